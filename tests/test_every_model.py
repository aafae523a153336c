"""What must hold for every model, LFormer and baselines alike, whatever it is asked for."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import irregular_arrays, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from no_look import NoLook
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import lformer
from lformer import IrregularBatch, LFormer, LFormerConfig, tasks
from lformer.baselines import BASELINES, BaselineModel, FittedAtOnce, expm
from lformer.cuda_graphs import capture_step
from lformer.nn.rows import fit_clock
from lformer.train.gradients import loss_of

TRAINED = {name: entry for name, entry in BASELINES.items() if not issubclass(entry.model, FittedAtOnce)}
MODELS: dict[str, tuple[type[nn.Module], type[Any]]] = {"lformer": (LFormer, LFormerConfig), **TRAINED}
VARIANTS: dict[str, list[dict[str, object]]] = {  # choices beside the defaults that read time or padding differently
    "lformer": [{"causal": True, "gate_norm": "prefix", "time_embedding": "sinusoidal", "pooling": "mean_last_max"}],
    "cfc": [{"mode": "no_gate", "depth": 1, "backbone_layers": 2}, {"mixed_memory": True}],
    "rkn-dt": [{"normalise": "post", "depth": 1}],
    "cru": [{"fast": True, "depth": 2}],
    "acssm": [{"causal": True}, {"absolute_time": True}],
    "transformer": [{"positions": "time"}, {"positions": "none", "norm_first": False}],
    "lru": [{"time_channel": True}],
    "linoss": [{"steps": "intervals"}, {"discretisation": "imex", "time_channel": True}],
    "s5": [{"discretisation": "bilinear", "hippo_blocks": 2, "time_channel": True}],
    "mamba": [{"block": "gated", "conv": 2, "expand": 1}],
    "mtand": [{"points": "encoder", "heads": 2}],
    "node": [{"method": "euler", "activation": "elu", "steps": 3}],
    "r-ode": [{"method": "midpoint", "depth": 2}],
    "o-ode": [{"recognition_steps": 2}],
    "gru-ode-b": [{"impute": False, "depth": 2}],
    "contiformer": [{"dynamics": "sigmoid", "depth": 2}],
    "rformer": [{"level": 3, "patches": "local"}, {"univariate": False, "shared": True, "mapped": False, "windows": 5}],
    "ncde": [{"path": "linear", "causal": True, "solver": "heun", "steps": 2}],
    "nrde": [{"level": 1, "window": 1, "causal": True}, {"level": 3}],
    "logncde": [{"causal": True, "time_in_path": False}],
}
SMALL: dict[str, dict[str, object]] = {  # sizes beside the width that cost time here
    "cfc": {"backbone": 12},
    "rkn-dt": {"state": 8, "transitions": 3, "band": 2},
    "cru": {"state": 6, "transitions": 3, "band": 1},
    "acssm": {"bases": 3},
    "mtand": {"references": 8, "time_width": 16, "generator": 8},
    "rformer": {"windows": 6},
    "node": {"latent": 8, "units": 8, "steps": 3},
    "r-ode": {"latent": 8, "units": 8, "steps": 3},
    "o-ode": {"latent": 8, "units": 8, "steps": 3, "gate_units": 8},
    "gru-ode-b": {"prediction_units": 8, "prepared": 3},
    "ncde": {"inner": 8},
    "nrde": {"inner": 8},
    "logncde": {"inner": 8, "window": 6},
    "lsde": {"state": 4, "grid": 4, "references": 6, "time_width": 16, "degree": 3},
    "contiformer": {"steps": 2, "feed_forward": 12},
}
LOOKS_AHEAD = {
    "lformer",
    "transformer",
    "mtand",
    "rformer",
    "acssm",
    "node",
    "r-ode",
    "o-ode",
    "ncde",
    "nrde",
    "logncde",
    "contiformer",
    "lsde",
}  # rows of these read later ones, unless a choice says otherwise
FILLING_IN = {"gru-d", "gru-ode-b"}  # these ask what was observed whatever the rows show
CASES = [(name, {}) for name in MODELS]
CASES += [(name, choices) for name in MODELS for choices in VARIANTS.get(name, [])]
CASES += [(name, {"rows": "observed"}) for name in MODELS]
# Carried rows are the work of the encoder that all share: one model of each way to read them is enough.
CASES += [
    (name, {"rows": "carried"}) for name in ("lformer", "gru", "gru-d", "gru-dt", "rkn-dt", "s5", "mtand", "ncde")
]
STREAMING = {"causal": True, "gate_norm": "prefix"}
CASES.append(("lformer", {"rows": "carried", "pooling": "mean_last_max", "time_embedding": "relative"} | STREAMING))

every_model = pytest.mark.parametrize(
    ("name", "choices"), CASES, ids=[" ".join([name, *map(str, choices.values())]) for name, choices in CASES]
)
every_answer = pytest.mark.parametrize("answer", ["series", "step", "query"])
TIGHT = 1e-10
Arrays = dict[str, Tensor]


def build(name: str, answer: str, choices: dict[str, object], seed: int = 0) -> nn.Module:
    """A small model in float64 all of whose parameters matter."""
    model, config = MODELS[name]
    torch.manual_seed(seed)
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": 8} | SMALL.get(name, {})
    built = model(config(**sizes | choices)).double()
    for parameter in built.parameters():
        nn.init.normal_(parameter, std=0.4)
    return built


def arrays(answer: str, B: int = 4, L: int = 20, seed: int = 0) -> Arrays:
    """Ragged series with uneven times and missing values; queries before, at, between and behind their rows."""
    values, times, lengths = irregular_arrays(B, L, 3, seed)
    made = {"values": values, "times": times, "lengths": lengths}
    if answer == "query":
        g = torch.Generator().manual_seed(seed)
        last = times.gather(1, lengths[:, None] - 1)
        share = torch.cat([torch.tensor([-0.1, 1.1]), torch.rand(5, generator=g)]).double()
        made["query_times"] = torch.cat([times[:, :1], times[:, :1] + share * (last - times[:, :1] + 1)], 1)
    return made


def whole(made: Arrays, dtype: torch.dtype = torch.float64, **change: Tensor) -> IrregularBatch:
    return IrregularBatch.build(**made | change, dtype=dtype)


def of_series(made: Arrays, series: Tensor | list[int]) -> Arrays:
    return {key: array[series] for key, array in made.items()}


def task_of(answer: str, outputs: int) -> tasks.Task:
    """Numbers to be learned, wherever they are asked for."""
    if answer == "query":
        return tasks.records("extrapolate", outputs, "query")
    return tasks.regress(outputs) if answer == "series" else tasks.regress_points(outputs)


def answers(model: nn.Module, batch: IrregularBatch) -> Tensor:
    """The answers that count: those at padding rows are set to 0."""
    y = model(batch)
    if model.config.answer != "step":
        return y
    assert y.shape[:2] == batch.valid.shape
    return torch.where(batch.valid[..., None], y, 0.0)


def gradients(model: nn.Module, y: Tensor) -> list[Tensor]:
    """Of every parameter, zeros where an answer does not depend on it."""
    return list(torch.autograd.grad(y.sin().sum(), list(model.parameters()), materialize_grads=True))


def idle(model: nn.Module, batch: IrregularBatch) -> list[str]:
    """The parameters that do not learn from a batch."""
    y = answers(model, batch)
    if hasattr(model, "training_loss"):  # which may read more of the model than its answers do
        task = task_of(model.config.answer, y.shape[-1])
        y = y + model.training_loss(task, replace(batch, targets=torch.zeros_like(y)))
    found = gradients(model, y)
    return [key for (key, _), g in zip(model.named_parameters(), found, strict=True) if not bool(g.abs().max() > 1e-9)]


def assert_same(model: nn.Module, actual: IrregularBatch, expected: IrregularBatch, tolerance: float = TIGHT) -> None:
    """Two batches give the same answers (rows that only one of them has left out) and the same gradients."""
    y, known = answers(model, actual), answers(model, expected)
    if model.config.answer == "step":
        rows = min(y.shape[1], known.shape[1])
        y, known = y[:, :rows], known[:, :rows]
    assert relative_error(y, known) < tolerance
    for one, other in zip(gradients(model, y), gradients(model, known), strict=True):
        assert relative_error(one, other) < tolerance


@every_model
@every_answer
def test_an_answer_has_the_shape_that_was_asked_for(name: str, choices: dict[str, object], answer: str) -> None:
    y = build(name, answer, choices)(whole(arrays(answer)))
    assert y.shape == {"series": (4, 2), "step": (4, 20, 2), "query": (4, 8, 2)}[answer]
    assert bool(torch.isfinite(y).all())


@every_model
@every_answer
@given(seed=st.integers(0, 10**6), extra=st.integers(1, 30))
@settings(max_examples=3, deadline=None, derandomize=True)
def test_appended_padding_changes_no_answer_and_no_gradient(
    name: str, choices: dict[str, object], answer: str, seed: int, extra: int
) -> None:
    made = arrays(answer, B=3, seed=seed)
    values = torch.cat([made["values"], torch.full((3, extra, 3), 1e3)], 1)
    times = torch.cat([made["times"], torch.full((3, extra), -5.0)], 1)
    assert_same(build(name, answer, choices), whole(made, values=values, times=times), whole(made))


@every_model
@every_answer
def test_what_stands_in_padding_is_not_read(name: str, choices: dict[str, object], answer: str) -> None:
    batch = whole(arrays(answer), lengths=torch.tensor([20, 0, 7, 1]))
    padding = ~batch.valid
    assert bool(padding.any())
    values = torch.where(padding[..., None], 1e3, batch.values)
    observed = padding[..., None] | batch.observed
    assert_same(build(name, answer, choices), replace(batch, values=values, observed=observed), batch)


@every_model
@every_answer
def test_what_was_not_observed_is_not_read(name: str, choices: dict[str, object], answer: str) -> None:
    made = arrays(answer)
    observed = ~made["values"].isnan()
    other = torch.where(observed, made["values"], 1e3)
    assert not bool(observed.all())
    assert_same(build(name, answer, choices), whole(made, values=other, observed=observed), whole(made))


@every_model
@every_answer
def test_neither_order_nor_company_changes_an_answer(name: str, choices: dict[str, object], answer: str) -> None:
    made, model = arrays(answer), build(name, answer, choices)
    known = answers(model, whole(made))
    order = torch.tensor([2, 0, 3, 1])
    assert relative_error(answers(model, whole(of_series(made, order))), known[order]) < TIGHT
    strangers = arrays(answer, seed=9)
    others = {key: torch.cat([array[:1], strangers[key][1:]]) for key, array in made.items()}
    assert relative_error(answers(model, whole(others))[:1], known[:1]) < TIGHT


@every_model
@every_answer
def test_a_batch_of_one_is_answered_as_one_of_many(name: str, choices: dict[str, object], answer: str) -> None:
    made, model = arrays(answer), build(name, answer, choices)
    known = answers(model, whole(made))
    for i, n in enumerate(made["lengths"].tolist()):
        alone = of_series(made, [i])
        y = answers(model, whole(alone, values=alone["values"][:, :n], times=alone["times"][:, :n]))
        assert relative_error(y, known[[i], :n] if answer == "step" else known[[i]]) < TIGHT


@every_model
@every_answer
def test_the_time_origin_changes_nothing(name: str, choices: dict[str, object], answer: str) -> None:
    made = arrays(answer)
    for key in made.keys() & {"times", "query_times"}:
        made[key] = (made[key] * 64).round() / 64  # so that moving the origin is exact
    moved = {key: made[key] + 2.0**30 for key in made.keys() & {"times", "query_times"}}
    model = build(name, answer, choices)
    assert torch.equal(answers(model, whole(made, **moved)), answers(model, whole(made)))


@every_model
@every_answer
def test_every_parameter_learns(name: str, choices: dict[str, object], answer: str) -> None:
    assert idle(build(name, answer, choices), whole(arrays(answer))) == []


@every_model
@pytest.mark.parametrize("answer", ["step", "query"])
def test_a_causal_model_does_not_see_the_future(name: str, choices: dict[str, object], answer: str) -> None:
    if name in LOOKS_AHEAD and not choices.get("causal"):
        pytest.skip("rows of this model read later ones")
    made, model = arrays(answer), build(name, answer, choices)
    lengths = torch.full((4,), 20)
    now = made["times"][:, 11:12]
    if answer == "query":
        made["query_times"] = torch.cat([made["times"][:, :1] - 1, made["times"][:, [5, 11]], now + 1e-3], dim=1)
    changed = {key: array.clone() for key, array in made.items()}
    later = made["times"] > now
    assert bool(later.any())
    changed["values"][later] = 9.0
    changed["times"] = torch.where(later, made["times"] + 3.0, made["times"])
    known, other = (answers(model, whole(one, lengths=lengths)) for one in (made, changed))
    seen = (~later if answer == "step" else torch.ones(other.shape[:2], dtype=torch.bool))[..., None]
    assert relative_error(torch.where(seen, other, 0), torch.where(seen, known, 0)) < TIGHT
    if answer == "step":
        assert relative_error(other, known) > 1e-3


@every_model
@every_answer
def test_the_same_again_is_the_same_to_the_last_digit(name: str, choices: dict[str, object], answer: str) -> None:
    batch = whole(arrays(answer))
    once, again = (build(name, answer, choices) for _ in range(2))
    y, z = answers(once, batch), answers(again, batch)
    assert torch.equal(y, z)
    assert all(torch.equal(g, h) for g, h in zip(gradients(once, y), gradients(again, z), strict=True))


@every_model
def test_a_query_changes_no_other_answer(name: str, choices: dict[str, object]) -> None:
    made, model = arrays("query"), build(name, "query", choices)
    asked = made["query_times"]
    for lengths in (made["lengths"], torch.tensor([20, 0, 7, 1])):
        batch = whole(made, lengths=lengths)
        known = model(batch)
        order = torch.tensor([4, 0, 7, 2, 5, 1, 6, 3])
        assert relative_error(model(whole(made, lengths=lengths, query_times=asked[:, order])), known[:, order]) < TIGHT
        assert relative_error(model(whole(made, lengths=lengths, query_times=asked[:, 2:3])), known[:, 2:3]) < TIGHT
        twice = torch.cat([asked, asked.flip(1) + 0.5], 1)
        assert relative_error(model(whole(made, lengths=lengths, query_times=twice))[:, :8], known) < TIGHT


@every_model
@every_answer
@pytest.mark.parametrize("training", [True, False])
def test_empty_and_single_row_series_are_answered(
    name: str, choices: dict[str, object], answer: str, training: bool
) -> None:
    made, model = arrays(answer, B=3, L=5), build(name, answer, choices).train(training)
    for lengths, L in (([0, 0, 0], 0), ([0, 0, 0], 5), ([1, 1, 1], 1), ([0, 1, 5], 5)):
        batch = whole(made, values=made["values"][:, :L], times=made["times"][:, :L], lengths=torch.tensor(lengths))
        with torch.set_grad_enabled(training):
            y = answers(model, batch)
        assert y.shape == {"series": (3, 2), "step": (3, L, 2), "query": (3, 8, 2)}[answer]
        assert bool(torch.isfinite(y).all())
        if training:
            found = torch.autograd.grad(y.sin().sum(), list(model.parameters()), materialize_grads=True)
            assert all(bool(torch.isfinite(g).all()) for g in found)


@every_model
@every_answer
def test_it_answers_alike_while_training_and_afterwards(name: str, choices: dict[str, object], answer: str) -> None:
    batch = whole(arrays(answer), lengths=torch.tensor([20, 0, 7, 1]))
    model = build(name, answer, choices)
    known = answers(model.train(), batch)
    with torch.no_grad():
        assert relative_error(answers(model.eval(), batch), known) < TIGHT


@every_model
@every_answer
def test_saved_and_loaded_it_gives_the_same_answers(
    name: str, choices: dict[str, object], answer: str, tmp_path: Path
) -> None:
    batch, model, other = whole(arrays(answer)), build(name, answer, choices), build(name, answer, choices, seed=1)
    known = answers(model, batch)
    assert relative_error(answers(other, batch), known) > 1e-3
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(answers(other, batch), known)


@every_model
@every_answer
def test_both_precisions_agree(name: str, choices: dict[str, object], answer: str) -> None:
    made, model = arrays(answer), build(name, answer, choices)
    exact = answers(model, whole(made))
    rough = answers(model.float(), whole(made, dtype=torch.float32))
    assert (exact.dtype, rough.dtype) == (torch.float64, torch.float32)
    assert relative_error(rough, exact) < 1e-3


@every_model
@every_answer
def test_it_learns_the_level_of_a_series(name: str, choices: dict[str, object], answer: str) -> None:
    made = arrays(answer, B=16, L=12)
    level = torch.linspace(-1, 1, 16).double()[:, None, None]
    made["values"] = torch.where(made["values"].isnan(), torch.nan, level + made["values"] / 10)
    if answer == "query":
        made["query_times"] = made["query_times"][:, 3:]  # none before the first row
    batch = whole(made, dtype=torch.float32)
    shape = {"series": (16, 1), "step": (16, 12, 1), "query": (16, 5, 1)}[answer]
    targets = level.float().expand(16, 12, 1)[:, : shape[1]] if len(shape) == 3 else level.float()[:, 0]
    counted = batch.valid[..., None] if answer == "step" else torch.ones(shape, dtype=torch.bool)
    batch = replace(batch, targets=targets, targets_observed=counted)
    task = task_of(answer, 1)

    torch.manual_seed(0)
    model, config = MODELS[name]
    sizes = {"inputs": 3, "outputs": 1, "answer": answer, "width": 16, "depth": 1} | SMALL.get(name, {})
    learner = model(config(**sizes | choices))
    fit_clock(learner, [batch])  # as the trainer does
    optimiser = torch.optim.Adam(learner.parameters(), lr=2e-2)
    for _ in range(60):  # some starts stand still for the first forty
        optimiser.zero_grad()
        loss = task.loss(task.predict(learner, batch), batch)
        loss.backward()
        optimiser.step()
    constant = targets[counted].var()  # the best that an answer without looking can reach
    assert loss.item() < 0.15 * constant.item()


@every_model
@every_answer
def test_a_model_and_a_batch_must_agree_about_queries(name: str, choices: dict[str, object], answer: str) -> None:
    wrong = "series" if answer == "query" else "query"
    says = "has no query_times" if answer == "query" else "has query_times"
    with pytest.raises(ValueError, match=f'per {answer}, .*{says}.*answer="query" exactly when'):
        build(name, answer, choices)(whole(arrays(wrong)))


@every_model
def test_rows_of_another_shape_are_refused(name: str, choices: dict[str, object]) -> None:
    made = arrays("series")
    with pytest.raises(ValueError, match="built for rows of shape"):
        build(name, "series", choices)(whole(made, values=made["values"][..., :2]))


@pytest.mark.parametrize("name", MODELS)
@every_answer
def test_frames_are_rows_like_others(name: str, answer: str) -> None:
    frames = torch.rand(4, 20, 24, 24).double()
    model = build(name, answer, {"inputs": 1, "rows": "values", "embedder": "frames", "head_layers": 1})
    y = answers(model, whole(arrays(answer), values=frames))
    assert bool(torch.isfinite(y).all())
    frames[1:] = 0
    assert relative_error(answers(model, whole(arrays(answer), values=frames))[:1], y[:1]) < TIGHT


@pytest.mark.parametrize("name", [name for name in TRAINED if issubclass(TRAINED[name].model, BaselineModel)])
@pytest.mark.parametrize("embedder", ["linear", "mlp", "frames"])
def test_embedder_and_head_are_those_of_lformer(name: str, embedder: str) -> None:
    choices = {"embedder": embedder, "embedder_layers": 2, "head_layers": 3, "time_embedding": "sinusoidal"}
    model, ours = build(name, "series", choices), build("lformer", "series", choices)
    assert (str(model.embedder), str(model.head)) == (str(ours.embedder), str(ours.head))


@pytest.mark.parametrize("name", MODELS)
@every_answer
@pytest.mark.parametrize("rows", ["values", "observed", "carried"])
def test_a_missing_value_differs_from_a_zero_only_if_shown(name: str, answer: str, rows: str) -> None:
    made = arrays(answer)
    empty = made["values"].isnan().all(dim=2, keepdim=True)  # a model may pass over rows without an observation
    zeros = torch.where(empty, torch.nan, torch.nan_to_num(made["values"], nan=0.0))
    model = build(name, answer, {"rows": rows})
    change = relative_error(answers(model, whole(made, values=zeros)), answers(model, whole(made)))
    assert (change == 0) if rows == "values" and name not in FILLING_IN else (change > 1e-4)  # untrained, in float64


@pytest.mark.parametrize("name", MODELS)
@every_answer
@pytest.mark.parametrize("rows", ["values", "observed", "carried"])
def test_static_covariates_are_read_and_asked_for(name: str, answer: str, rows: str) -> None:
    made, model = arrays(answer), build(name, answer, {"rows": rows, "statics": 2})
    static = torch.linspace(-1, 1, 8).double().reshape(4, 2)
    y = answers(model, whole(made, static=static))
    other = answers(model, whole(made, static=torch.cat([static[:1], -static[1:]])))
    assert relative_error(other[:1], y[:1]) < TIGHT
    assert relative_error(other[1:], y[1:]) > 1e-3
    with pytest.raises(ValueError, match="needs 2 numbers of static covariates; the batch has none"):
        model(whole(made))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("answer", ["step", "query"])
@pytest.mark.parametrize("rows", ["values", "carried"])
@pytest.mark.parametrize("persistence", ["latest", "line"])
def test_an_answer_may_start_from_a_guess(name: str, answer: str, rows: str, persistence: str) -> None:
    choices: dict[str, object] = {"rows": rows, "persistence": persistence, "outputs": 3}
    model, made = build(name, answer, choices), arrays(answer)
    for last in (model.head[-1].weight, model.head[-1].bias):
        nn.init.zeros_(last)
    nn.init.constant_(model.persistence.share, 0.25)
    if answer == "query":  # also right at rows that have others before them
        made["query_times"] = torch.cat([made["query_times"], made["times"][:, 8:12]], dim=1)
    batch = whole(made)
    y = answers(model, batch).detach()
    for b, n in enumerate(batch.lengths.tolist()):
        moments = batch.times[b, :n] if answer == "step" else batch.query_times[b]
        for c in range(3):
            seen = batch.observed[b, :n, c]
            clock, values = batch.times[b, :n][seen], batch.values[b, :n, c][seen]
            for m, now in enumerate(moments.tolist()):
                first = m + 1 if answer == "step" else int((batch.times[b, :n] <= now).sum())
                known = int(seen[:first].sum())
                expected = latest = float(values[known - 1]) if known else float(model.persistence.default[c].detach())
                fresh = bool(seen[m]) if answer == "step" else bool(known and clock[known - 1] == now)
                if known and not fresh:  # an observation itself is not moved towards the mean so far
                    expected += 0.25 * (float(values[:known].mean()) - latest)
                if persistence == "line" and known < len(values):
                    ahead, value = float(clock[known]), float(values[known])
                    before = float(clock[known - 1]) if known else ahead
                    way = (now - before) / (ahead - before) if ahead > before else 0.0
                    expected = latest + way * (value - latest) if known else value
                assert float(y[b, m, c]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("answer", ["step", "query"])
@pytest.mark.parametrize("persistence", ["latest", "line"])
def test_neither_padding_nor_company_changes_a_guess(name: str, answer: str, persistence: str) -> None:
    choices: dict[str, object] = {"rows": "carried", "persistence": persistence, "outputs": 3}
    model, made = build(name, answer, choices), arrays(answer)
    made["values"][0, :, 0] = torch.nan  # one channel is never observed, so that its default counts
    batch = whole(made, lengths=torch.tensor([20, 0, 7, 1]))
    padding = ~batch.valid
    values = torch.where(padding[..., None], 1e3, batch.values)
    assert_same(model, replace(batch, values=values, observed=padding[..., None] | batch.observed), batch)
    order = torch.tensor([2, 0, 3, 1])
    known = answers(model, whole(made))
    assert relative_error(answers(model, whole(of_series(made, order))), known[order]) < TIGHT
    assert idle(model, whole(made)) == []


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answer": "token"}, "'series', 'step', 'query'; got 'token'"),
        ({"embedder": "patch"}, "'linear', 'relu'"),
        ({"time_embedding": "calendar"}, "'none', 'sinusoidal'"),
        ({"depth": 0}, "depth must be at least 1; got 0"),
        ({"embedder": "frames", "rows": "carried"}, "takes one frame per row"),
        ({"rows": "bare"}, "'values', 'observed', 'carried'; got 'bare'"),
        ({"persistence": "latest"}, "as many outputs as inputs"),
        ({"statics": -1}, "statics must be at least 0"),
    ],
)
def test_unknown_choices_are_refused(name: str, change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BASELINES[name].config(**{"inputs": 3, "outputs": 2} | change)


def recordable(name: str, answer: str, choices: dict[str, object]) -> bool:
    return bool(getattr(build(name, answer, choices), "recordable", False))


@pytest.mark.parametrize(
    ("name", "choices"),
    [case for case in CASES if "rows" not in case[1] and recordable(case[0], "series", case[1])],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else value,
)
@every_answer
def test_a_recordable_step_looks_at_no_value(
    name: str, choices: dict[str, object], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expm, "can_look", lambda x: False)  # as on a GPU
    model = build(name, answer, {"rows": "observed"} | choices)
    batch = whole(arrays(answer, L=9), lengths=torch.tensor([9, 0, 4, 1]))
    batch = replace(batch, targets=torch.zeros_like(model(batch)))
    step = capture_step(model, partial(loss_of, task_of(answer, 2)))
    with NoLook():
        step(batch)
    found = [parameter.grad for parameter in model.parameters()]
    assert any(gradient is not None and bool(gradient.any()) for gradient in found)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [name for name in MODELS if recordable(name, "series", {})])
@every_answer
def test_a_replayed_step_has_the_gradients_of_its_batch(name: str, answer: str) -> None:
    torch.use_deterministic_algorithms(False)  # the GPU's cumsum has no deterministic form
    model = build(name, answer, {}).cuda()
    step = capture_step(model, lambda net, batch: answers(net, batch).sin().sum())
    for seed in range(4):
        batch = whole(arrays(answer, seed=seed)).to("cuda")
        known = gradients(model, answers(model, batch))
        step(batch)
        assert step.captured(batch) == (seed > 0)
        for parameter, expected in zip(model.parameters(), known, strict=True):
            found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad  # only the loss reads it
            assert relative_error(found.cpu(), expected.cpu()) < 1e-8


def test_the_baselines_table_has_a_row_for_each() -> None:
    page = (Path(lformer.__file__).parent / "baselines" / "README.md").read_text()
    assert [name for name in BASELINES if f"\n| `{name}` |" not in page] == []
