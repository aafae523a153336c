"""LFormerPretrainer, and estimators that start from it: what is hidden, what is taken over, what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from estimators.every_estimator import POINTS, SERIES, SMALL, answers, fitted, records, same, targets
from estimators.saved_models import changed
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import lformer
from lformer import LFormerClassifier, LFormerPointRegressor, LFormerPretrainer, Panel, pretrain
from lformer.estimators import members as training
from lformer.nn import LFormer

FOUR = SERIES + POINTS
OURS = ("rows.", "embedder.", "mixers.", "first_interval")  # what is taken over


@pytest.fixture(scope="module")
def start() -> LFormerPretrainer:
    return LFormerPretrainer(**SMALL).fit(records(20, seed=5))


def test_it_learns_what_is_hidden() -> None:
    rng = np.random.default_rng(0)
    phase = rng.uniform(0, 6, 120)
    series = []
    for p in phase:
        times = np.sort(rng.uniform(0, 8, 12))
        values = np.column_stack([50 + 20 * np.sin(times + p), 3 - np.sin(times + p)])
        values[rng.random((12, 2)) < 0.2] = np.nan
        values[times > 6, 1] = np.nan  # never measured so late
        series.append((times, values))
    change: dict[str, Any] = {"width": 16, "heads": 2, "depth": 1, "max_epochs": 25, "lr": 0.01, "random_state": 0}
    model = LFormerPretrainer(**change, device="cpu").fit(series)
    first, last = model.history_[0], model.history_[-1]
    assert last["mse"] < 0.7 < first["mse"]
    assert last["presence"] < 0.9 * first["presence"]
    assert model.validation_score_ < model.naive_score_
    assert model.naive_ == "the mean"
    assert not model.loses_
    assert -model.score(series) < 0.7


def test_of_the_same_seed_comes_the_same(start: LFormerPretrainer) -> None:
    again = clone(start).fit(records(20, seed=5))
    assert equal(again.model_.state_dict(), start.model_.state_dict())
    assert again.score(records()) == start.score(records())
    other = LFormerPretrainer(**{**SMALL, "random_state": 4}).fit(records(20, seed=5))
    assert not equal(other.model_.state_dict(), start.model_.state_dict())


def equal(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_saved_and_loaded_it_is_the_same(start: LFormerPretrainer, tmp_path: Path) -> None:
    start.save(tmp_path / "start")
    again = lformer.load(tmp_path / "start")
    assert again.get_params() == start.get_params()
    assert equal(again.model_.state_dict(), start.model_.state_dict())
    assert again.score(records()) == start.score(records())
    assert again.task_.scale == start.task_.scale


@pytest.mark.parametrize(
    ("path", "to", "reason"),
    [
        (("parameters", "hidden"), 0, "hidden must lie between 0 and 1"),
        (("parameters", "hidden_channels"), -0.1, "hidden_channels must be at least 0 and below 1"),
        (("config", "outputs"), 2, "shift and scale must have 2 numbers"),
        (("config", "answer"), "series", "place of the answers: series where the rest of the file needs step"),
        (("task", "scale"), [1.0, 1.0, 1.0, 0.0], "scale must be greater than 0"),
    ],
)
def test_a_saved_one_that_makes_no_sense_is_named(
    start: LFormerPretrainer, tmp_path: Path, path: Any, to: Any, reason: str
) -> None:
    start.save(tmp_path / "start")
    changed(tmp_path / "start", *path, to=to)
    with pytest.raises(ValueError, match=r"estimator\.json does not describe an estimator: .*" + reason):
        lformer.load(tmp_path / "start")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden": 0.0}, "hidden must lie between 0 and 1"),
        ({"hidden_channels": 1.0}, "hidden_channels must be at least 0 and below 1"),
    ],
)
def test_impossible_shares_are_refused(change: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LFormerPretrainer(**{**SMALL, **change}).fit(records())


def test_without_anything_to_hide_there_is_nothing_to_learn() -> None:
    with pytest.raises(ValueError, match="none of the 4 series has a second row or channel"):
        LFormerPretrainer(**SMALL).fit([([0.0], [[1.0]])] * 4)


# -- what an estimator starts from


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The weights of every model at the moment before its training."""
    found: list[dict[str, Any]] = []
    train = training.fit

    def watched(model: LFormer, *arguments: Any, **more: Any) -> Any:
        found.append({name: value.clone() for name, value in model.state_dict().items()})
        return train(model, *arguments, **more)

    monkeypatch.setattr(training, "fit", watched)
    return found


@pytest.mark.parametrize("kind", FOUR)
@pytest.mark.parametrize("saved", [False, True])
def test_training_starts_from_the_pretrained_weights(
    kind: Any, saved: bool, start: LFormerPretrainer, begun: list[dict[str, Any]], tmp_path: Path
) -> None:
    start.save(tmp_path / "start")
    X = records()
    model = fitted(kind, X, pretrained=tmp_path / "start" if saved else start)
    given = start.model_.state_dict()
    taken = [name for name in begun[0] if name.startswith(OURS)]
    assert {name.split(".")[0] for name in begun[0]} - {name.split(".")[0] for name in taken} == {"head"}
    assert all(torch.equal(begun[0][name], given[name]) for name in taken)
    after = model.model_.state_dict()
    assert not torch.equal(after["embedder.value.0.weight"], given["embedder.value.0.weight"])  # it trains on
    for name in ("rows.shift", "rows.scale", "rows.low", "rows.high", "rows.interval", "rows.span", "first_interval"):
        assert torch.equal(after[name], given[name]), name
    assert model.features_.covariates == start.features_.covariates
    assert not same(answers(model, X), answers(fitted(kind, X), X))


def test_members_start_from_members(begun: list[dict[str, Any]]) -> None:
    start = LFormerPretrainer(**SMALL, members=2).fit(records(20, seed=5))
    begun.clear()
    fitted(LFormerClassifier, pretrained=start, members=3)
    weights = [one["embedder.value.0.weight"] for one in begun]
    given = [one.state_dict()["embedder.value.0.weight"] for one in start.model_.models]  # type: ignore[union-attr]
    assert all(torch.equal(a, b) for a, b in zip(weights, [*given, given[0]], strict=True))


def test_a_stream_goes_with_it() -> None:
    X = records()
    start = LFormerPretrainer(**SMALL, streaming=True).fit(X)
    model = fitted(LFormerClassifier, X, pretrained=start, streaming=True)
    stream = model.stream(X.static.iloc[0])
    for time, values in zip(*X[0], strict=True):
        so_far = stream.update(time, values)
    np.testing.assert_allclose(so_far, model.predict_proba(X[:1])[0], atol=1e-5)


def test_a_clone_keeps_it_and_a_saved_model_does_without(start: LFormerPretrainer, tmp_path: Path) -> None:
    X = records()
    model = fitted(LFormerClassifier, X, pretrained=start)
    again = clone(model)
    assert again.pretrained is start
    assert again.get_params() == model.get_params()
    assert same(answers(again.fit(X, targets(LFormerClassifier, X)), X), answers(model, X))
    model.save(tmp_path / "model")
    loaded = lformer.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params(deep=False) | {"pretrained": None}
    assert same(answers(loaded, X), answers(model, X))


# -- what does not go together


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"width": 16}, "the pretrained model has width=8, but this estimator has 16"),
        ({"depth": 2}, "has depth=1, but this estimator has 2"),
        ({"heads": 4}, "has heads=2, but this estimator has 4"),
        ({"neighbours": 0}, "has neighbours=4, but this estimator has 0"),
        ({"streaming": True}, "has streaming=False, but this estimator has True"),
    ],
)
def test_other_sizes_are_refused(start: LFormerPretrainer, change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fitted(LFormerClassifier, pretrained=start, **change)


def test_what_is_no_fitted_pretrainer_is_refused(start: LFormerPretrainer, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        fitted(LFormerClassifier, pretrained=clone(start))
    other = fitted(LFormerPointRegressor)
    with pytest.raises(ValueError, match="or the folder of a saved one; got a LFormerPointRegressor"):
        fitted(LFormerClassifier, pretrained=other)
    other.save(tmp_path / "other")
    with pytest.raises(ValueError, match="got a LFormerPointRegressor"):
        fitted(LFormerClassifier, pretrained=str(tmp_path / "other"))
    with pytest.raises(ValueError, match="got LFormerPretrainer"):
        fitted(LFormerClassifier, pretrained=LFormerPretrainer)
    with pytest.raises(FileNotFoundError, match="does not exist; expected the folder of a saved model"):
        fitted(LFormerClassifier, pretrained=tmp_path / "nowhere")


def test_other_series_are_refused(start: LFormerPretrainer) -> None:
    X = records()
    y = targets(LFormerClassifier, X)
    model = LFormerClassifier(**SMALL, pretrained=start)
    with pytest.raises(ValueError, match="does not know the static covariates weight"):
        model.fit(replace(X, static=X.static.assign(weight=70.0)), y)
    with pytest.raises(ValueError, match="trained with the static covariates age, site; missing here"):
        model.fit(replace(X, static=None), y)
    with pytest.raises(ValueError, match=r"trained on 2 channels: k, na. New: \['crp'\]"):
        model.fit(replace(X, channels=("k", "crp")), y)
    with pytest.raises(ValueError, match="are calendar stamps, but the model was trained on numbers"):
        model.fit(records(dated=True), y)


# -- several sources


def test_several_sources_are_joined() -> None:
    one, two = records(8), records(9, seed=1)
    both = pretrain(one, two, **SMALL)
    assert both.features_.channels == ("k", "na")
    lacks = Panel.from_list([(t, v[:, :1]) for t, v in two], channels=["k"], ids=two.ids, static=two.static, unit="h")
    assert pretrain(one, lacks, **SMALL).features_.unit == ""
    with pytest.raises(ValueError, match=r"must have the same static covariates; got .* and none"):
        pretrain(one, replace(two, static=None), **SMALL)
    with pytest.raises(TypeError, match="needs series to learn from"):
        pretrain(**SMALL)


# -- what it is for


def swinging(n: int, seed: int) -> tuple[Panel, Any]:
    """Two noisy sines of random phase and pace, of which one leads or follows, which is the class."""
    rng = np.random.default_rng(seed)
    leads = rng.integers(0, 2, n)
    series = []
    for lead in leads:
        times = np.sort(rng.uniform(0, 10, rng.integers(15, 25)))
        angle = rng.uniform(0.8, 1.6) * times + rng.uniform(0, 6)
        values = np.column_stack([np.sin(angle), np.sin(angle + (0.8 if lead else -0.8)), 0.5 * np.cos(angle)])
        values += rng.normal(0, 0.3, values.shape)
        values[rng.random(values.shape) < 0.4] = np.nan
        series.append((times, values))
    return Panel.from_list(series), leads


@pytest.mark.slow
def test_many_series_without_classes_help_where_few_have_one() -> None:
    X, y = swinging(740, seed=0)
    few, test = slice(400, 440), slice(440, None)
    change: dict[str, Any] = {"width": 16, "depth": 1, "heads": 2, "lr": 5e-3, "patience": None, "device": "cpu"}
    change["clock"] = False  # the phase of a sine is random, so the time of the day says nothing
    start = pretrain(X[:440], **change, max_epochs=40, random_state=0)

    def accuracy(pretrained: LFormerPretrainer | None) -> float:
        models = [
            LFormerClassifier(
                **change, max_epochs=20, random_state=seed, pretrained=pretrained, label_smoothing=0.0
            ).fit(X[few], y[few])  # smoothed labels help few series, too
            for seed in range(3)
        ]
        return float(np.mean([model.score(X[test], y[test]) for model in models]))

    assert accuracy(start) > accuracy(None) + 0.03
