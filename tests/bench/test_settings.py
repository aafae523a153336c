"""The settings of every baseline: they name data sets, build what they describe, and are those that were published."""

import math
from dataclasses import fields

import pytest
from bench.specs import SPECS, batch_for

from lformer.baselines import BASELINES, BaselineModel, FittedAtOnce
from lformer.bench.models import build
from lformer.bench.recipes import ENDS, RECIPES, recipe, stand_in
from lformer.bench.settings import SETTINGS, WITH_GAPS, Changes, settings
from lformer.data import DATASETS
from lformer.train import TrainConfig

TRAINED = [name for name, entry in BASELINES.items() if not issubclass(entry.model, FittedAtOnce)]
SHARING = [name for name in TRAINED if issubclass(BASELINES[name].model, BaselineModel)]
OWN_WAY = ("gru-d", "rkn-dt")  # these read what was observed in their own way
UEA = ("ethanol", "eigenworms", "heartbeat", "motor-imagery", "scp1", "scp2")
CELLS = [(name, task) for name in DATASETS for task in DATASETS[name].card.tasks]


def test_settings_are_of_data_sets_and_tasks_that_there_are() -> None:
    known = {"", *DATASETS, *(f"{name} {task}" for name, task in CELLS)}
    assert [(model, key) for model, own in SETTINGS.items() for key in own if key not in known] == []


@pytest.mark.parametrize("model", TRAINED)
@pytest.mark.parametrize(("dataset", "task"), CELLS)
def test_every_setting_builds_the_configuration_of_its_model(model: str, dataset: str, task: str) -> None:
    plan, own = recipe(dataset, task, model=model), settings(model, dataset, task)
    sizes = plan.config(stand_in(task))
    assert isinstance(sizes, BASELINES[model].config)
    assert {name: getattr(sizes, name) for name in own.model} == own.model
    assert {name: getattr(plan.train, name) for name in own.train} == own.train


@pytest.mark.parametrize("model", TRAINED)
@pytest.mark.parametrize("dataset", ["scp1", "bidmc-hr", "activity", "pendulum", "spiral-2", "physionet"])
def test_every_model_answers_as_lformer_does(model: str, dataset: str) -> None:
    sizes = recipe(dataset, model=model).config(SPECS[dataset])
    leading = {"series": (3,), "step": (3, 12), "query": (3, 4)}[sizes.answer]
    assert build(model, sizes)(batch_for(sizes)).shape == (*leading, sizes.outputs)


@pytest.mark.parametrize("model", SHARING)
@pytest.mark.parametrize("dataset", RECIPES)
def test_a_model_without_an_encoder_has_embedder_and_head_of_the_task(model: str, dataset: str) -> None:
    task = DATASETS[dataset].card.tasks[0]
    ours, theirs = recipe(dataset).config(stand_in(task)), recipe(dataset, model=model).config(stand_in(task))
    own = settings(model, dataset, task).model
    assert {n: getattr(theirs, n) for n in ENDS if n not in own} == {n: getattr(ours, n) for n in ENDS if n not in own}


@pytest.mark.parametrize("model", TRAINED)
def test_rate_schedule_and_sizes_of_lformer_are_not_those_of_a_baseline(model: str) -> None:
    """LFormer's recipe for heart rate rises to 2e-3 and falls to 0, that for SCP1 has 128 channels and one mixer."""
    plan = recipe("bidmc-rr", model=model)
    assert (plan.train.schedule, plan.train.warmup, plan.train.clip) == (
        "constant", 0.0, SETTINGS.get(model, {}).get("", Changes()).train.get("clip")
    )  # fmt: skip
    assert plan.train.lr == SETTINGS.get(model, {}).get("", Changes()).train.get("lr", 1e-3)
    default = {f.name: f.default for f in fields(BASELINES[model].config)}
    own = settings(model, "scp1", "classify").model
    sizes = recipe("scp1", model=model).config(SPECS["scp1"])
    assert (sizes.width, sizes.depth) == tuple(own.get(name, default[name]) for name in ("width", "depth"))


def test_where_values_are_missing_every_model_is_told() -> None:
    for dataset in WITH_GAPS:
        for model in (name for name in TRAINED if name not in OWN_WAY):
            assert recipe(dataset, model=model).config(stand_in(DATASETS[dataset].card.tasks[0])).rows == "observed"


def test_settings_of_a_task_win_over_those_of_a_data_set_and_these_over_all() -> None:
    assert settings("mtand", "physionet", "extrapolate").model["head_layers"] == 1
    assert settings("mtand", "physionet", "classify").model["head_layers"] == 2
    assert settings("mtand", "activity", "classify-points").train["batch_size"] == 256
    assert settings("no such model", "scp1", "classify") == Changes(train={"lr": 1e-3})


def test_the_published_table_of_the_uea_sets() -> None:
    """Rate, blocks, width, state, time; then what only one model has."""
    printed = {
        ("lru", "ethanol"): (1e-5, 6, 64, 16, True),
        ("lru", "scp1"): (1e-3, 2, 64, 16, False),
        ("s5", "heartbeat"): (1e-3, 4, 128, 16, False, 4),
        ("s5", "scp2"): (1e-4, 2, 16, 64, True, 2),
        ("s6", "motor-imagery"): (1e-3, 4, 16, 256, True),
        ("mamba", "ethanol"): (1e-3, 4, 64, 256, True, 4, 4),
        ("mamba", "scp1"): (1e-5, 2, 128, 16, False, 4, 1),
    }
    names = ("depth", "width", "state", "time_channel", "hippo_blocks", "conv", "expand")
    for (model, dataset), expected in printed.items():
        found = settings(model, dataset, "classify")
        assert (found.train["lr"], *(found.model[name] for name in names if name in found.model)) == expected
    for model in ("lru", "s5", "s6", "mamba", "rformer"):
        for dataset in UEA:
            steps = settings(model, dataset, "classify").train
            assert steps["batch_size"] == (20 if model == "rformer" else 32)
            assert steps.get("epoch_steps", math.nan) == 1000 or model == "rformer"
            TrainConfig(**steps)
            assert settings(model, dataset, "classify").model.get("state_rate", 1.0) == 1.0
    swinging = settings("s5", "pendulum", "regress-points")
    assert (swinging.train["lr"], swinging.train["lr"] * swinging.model["state_rate"]) == (1.2e-2, 3e-3)
    rough = settings("rformer", "motor-imagery", "classify")
    assert {n: rough.model[n] for n in ("windows", "level", "patches", "univariate", "heads")} == {
        "windows": 200, "level": 2, "patches": "local", "univariate": True, "heads": 3
    }  # fmt: skip
    assert (rough.train["lr"], rough.train["epochs"]) == (1e-4, 60)


def test_the_published_table_of_controlled_equations() -> None:
    """Rate, state, layers of the field, their width, time; level and window; steps; penalty."""
    printed = {
        ("ncde", "heartbeat"): (1e-3, 128, 4, 128, True, 2),
        ("ncde", "scp1"): (1e-4, 128, 4, 128, False),
        ("nrde", "eigenworms"): (1e-3, 64, 3, 64, False, 2, 4),
        ("nrde", "scp2"): (1e-4, 128, 4, 128, True, 1, 1),
        ("logncde", "scp1"): (1e-4, 64, 3, 128, False, 2, 16, 9, 0.0),
        ("logncde", "eigenworms"): (1e-3, 128, 2, 32, True, 2, 12, 1e-3),
    }
    names = ("width", "depth", "inner", "time_in_path", "level", "window", "steps", "penalty")
    for (model, dataset), expected in printed.items():
        found = settings(model, dataset, "classify")
        assert (found.train["lr"], *(found.model[name] for name in names if name in found.model)) == expected
    lengths = {"heartbeat": (405, 2e-3), "motor-imagery": (3000, 2e-3), "scp1": (896, 2e-3), "scp2": (1152, 2e-3)}
    for dataset, (rows, step) in lengths.items():  # a step of ours is not longer than a published one, nor half of it
        own = settings("logncde", dataset, "classify").model
        ours = own["window"] / own["steps"] / rows
        assert step / 2 < ours <= step * 1.01
    for model in ("ncde", "nrde", "logncde"):
        for dataset in UEA:
            train = settings(model, dataset, "classify").train
            assert (train["batch_size"], train["epoch_steps"]) == (32, 100)
