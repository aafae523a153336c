"""LFormer on irregular data: what must not change an answer, and the ways to get the same one."""

from dataclasses import fields, replace

import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.nn import State
from lformer.nn.query import merge

SETTINGS = settings(max_examples=20, deadline=None, derandomize=True)
MODES = [(False, "sequence"), (True, "sequence"), (True, "prefix"), (True, "none")]
STREAMS = ["prefix", "none"]
TIGHT = 1e-10


def build(seed: int = 0, **choices: object) -> LFormer:
    config = LFormerConfig(**{"inputs": 3, "outputs": 2, "width": 8, "heads": 2, "depth": 2} | choices)
    torch.manual_seed(seed)
    model = LFormer(config).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def slow(arrays: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The same series on a clock that keeps the total decay of the vanilla gate in range."""
    values, times, lengths = arrays
    return values, times / 1e3, lengths


def whole(values: Tensor, times: Tensor, lengths: Tensor, **more: object) -> IrregularBatch:
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **more)


@pytest.mark.parametrize("answer", ["series", "step"])
@pytest.mark.parametrize(("causal", "norm"), [*MODES, (False, "none")])
@given(seed=st.integers(0, 10**6), extra=st.integers(1, 70))
@settings(SETTINGS, max_examples=6)
def test_appended_padding_changes_no_answer_and_no_gradient(
    causal: bool, norm: str, answer: str, seed: int, extra: int
) -> None:
    values, times, lengths = slow(irregular_arrays(3, 20, 3, seed))
    model = build(causal=causal, gate_norm=norm, answer=answer)
    padded_values = torch.cat([values, torch.full((3, extra, 3), 1e3)], 1)
    padded_times = torch.cat([times, torch.full((3, extra), -5.0)], 1)
    results = []
    for batch in (whole(values, times, lengths), whole(padded_values, padded_times, lengths)):
        y = model(batch)
        if answer == "step":
            y = torch.where(batch.valid[..., None], y, 0.0)[:, :20]
        results.append((y, *torch.autograd.grad(y.sin().sum(), list(model.parameters()))))
    for padded, plain in zip(results[1], results[0], strict=True):
        assert relative_error(padded, plain) < TIGHT


@pytest.mark.parametrize(("causal", "norm"), MODES)
@given(seed=st.integers(0, 10**6))
@settings(SETTINGS, max_examples=6)
def test_batch_order_and_batch_size_change_nothing(causal: bool, norm: str, seed: int) -> None:
    values, times, lengths = irregular_arrays(4, 25, 3, seed)
    model = build(causal=causal, gate_norm=norm)
    together = model(whole(values, times, lengths))
    turned = model(whole(values.flip(0), times.flip(0), lengths.flip(0))).flip(0)
    alone = torch.cat(
        [model(whole(values[[i], :n], times[[i], :n], lengths[[i]])) for i, n in enumerate(lengths.tolist())]
    )
    assert relative_error(turned, together) < TIGHT
    assert relative_error(alone, together) < TIGHT


@pytest.mark.parametrize("time_embedding", ["none", "sinusoidal"])
@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_the_time_origin_changes_nothing(causal: bool, norm: str, time_embedding: str) -> None:
    values, times, lengths = irregular_arrays(3, 25, 3, seed=1)
    times = (times * 64).round() / 64  # so that moving the origin is exact
    model = build(causal=causal, gate_norm=norm, time_embedding=time_embedding)
    moved = model(whole(values, times + 2.0**30, lengths))
    assert torch.equal(moved, model(whole(values, times, lengths)))


@pytest.mark.parametrize(("causal", "norm"), [(False, "sequence"), (True, "sequence"), (True, "prefix")])
@pytest.mark.parametrize("unit", [1e-9, 3600.0, 1e12])
def test_the_time_unit_changes_nothing(causal: bool, norm: str, unit: float) -> None:
    values, times, lengths = irregular_arrays(3, 25, 3, seed=2)
    times = times - 1000
    model = build(causal=causal, gate_norm=norm)
    expected = model(whole(values, times, lengths))
    model.first_interval.mul_(unit)  # a fitted model keeps it in the data's unit
    assert relative_error(model(whole(values, times * unit, lengths)), expected) < 1e-9


def test_without_normalisation_the_time_unit_matters() -> None:
    values, times, lengths = irregular_arrays(3, 25, 3, seed=2)
    model = build(causal=True, gate_norm="none")
    slower = model(whole(values, times / 100, lengths))
    assert relative_error(slower, model(whole(values, times, lengths))) > 1e-3


@pytest.mark.parametrize("norm", STREAMS)
@given(seed=st.integers(0, 10**6), cut=st.integers(1, 24))
@SETTINGS
def test_the_future_does_not_reach_the_past(norm: str, seed: int, cut: int) -> None:
    values, times, _ = irregular_arrays(2, 25, 3, seed)
    lengths = torch.tensor([25, 25])
    model = build(causal=True, gate_norm=norm, answer="step")
    other_values, other_times = values.clone(), times.clone()
    other_values[:, cut:] = 9.0
    other_times[:, cut:] += 77.0
    changed = model(whole(other_values, other_times, lengths))
    assert relative_error(changed[:, :cut], model(whole(values, times, lengths))[:, :cut]) < TIGHT


def test_sequence_normalisation_lets_the_future_reach_the_past_by_design() -> None:
    values, times, _ = irregular_arrays(2, 25, 3, seed=3)
    model = build(causal=True, gate_norm="sequence", answer="step")
    later = times.clone()
    later[:, 20:] += 500.0
    lengths = torch.tensor([25, 25])
    assert (
        relative_error(model(whole(values, later, lengths))[:, :20], model(whole(values, times, lengths))[:, :20])
        > 1e-6
    )


@pytest.mark.parametrize("answer", ["series", "step"])
@pytest.mark.parametrize("norm", STREAMS)
@given(seed=st.integers(0, 10**6), cut=st.integers(0, 25))
@SETTINGS
def test_a_series_cut_anywhere_and_joined_equals_the_whole(norm: str, answer: str, seed: int, cut: int) -> None:
    values, times, lengths = irregular_arrays(3, 25, 3, seed)
    model = build(causal=True, gate_norm=norm, answer=answer, time_embedding="sinusoidal")
    expected, end = model(whole(values, times, lengths), return_state=True)
    first = whole(values[:, :cut], times[:, :cut], lengths.clamp(max=cut), t0=times[:, 0])
    rest = whole(values[:, cut:], times[:, cut:], (lengths - cut).clamp(min=0), t0=times[:, 0])
    y_first, state = model(first, return_state=True)
    y_rest, state = model(rest, state, return_state=True)
    if answer == "series":
        assert relative_error(y_rest, expected) < TIGHT
    else:
        valid = (torch.arange(25) < lengths[:, None])[..., None]
        joined = torch.cat([y_first, y_rest], 1)
        assert relative_error(torch.where(valid, joined, 0), torch.where(valid, expected, 0)) < TIGHT
    assert_same_state(state, end)


@pytest.mark.parametrize("answer", ["series", "step"])
@pytest.mark.parametrize("norm", STREAMS)
def test_one_row_at_a_time_through_a_deep_model_equals_the_batch(norm: str, answer: str) -> None:
    values, times, _ = irregular_arrays(3, 40, 3, seed=5)
    model = build(causal=True, gate_norm=norm, answer=answer, depth=4, time_embedding="sinusoidal")
    model.first_interval.fill_(3.7)
    expected, end = model(whole(values, times, torch.tensor([40, 40, 40])), return_state=True)
    state = model.init_state(3)
    gaps = torch.diff(times, dim=1, prepend=times[:, :1])
    for n in range(40):
        y, state = model.step(values[:, n], gaps[:, n], state)
        if answer == "step":
            assert relative_error(y, expected[:, n]) < TIGHT
    assert relative_error(y, expected if answer == "series" else expected[:, -1]) < TIGHT
    assert_same_state(state, end)


def assert_same_state(actual: State, expected: State) -> None:
    for a, b in zip(torch.utils._pytree.tree_leaves(actual), torch.utils._pytree.tree_leaves(expected), strict=True):
        assert (a is None) == (b is None)  # what rows of bare values do not keep
        assert a is None or relative_error(a, b) < TIGHT


@pytest.mark.parametrize("choices", [{}, {"causal": True}, {"time_mixer": "softmax", "causal": True}])
def test_stepping_is_refused_where_it_cannot_be_right(choices: dict[str, object]) -> None:
    model = build(**choices)
    with pytest.raises(RuntimeError, match='gate_norm="prefix"'):
        model.init_state(1)
    with pytest.raises(RuntimeError, match='gate_norm="prefix"'):
        model(irregular_batch(), return_state=True)


def test_a_piece_with_another_origin_is_refused() -> None:
    model = build(causal=True, gate_norm="prefix")
    batch = irregular_batch()
    _, state = model(batch, return_state=True)
    with pytest.raises(ValueError, match="same t0"):
        model(batch, state)


def test_a_step_backwards_in_time_is_refused() -> None:
    model = build(causal=True, gate_norm="prefix")
    with pytest.raises(ValueError, match=r"not negative; delta\[0\] = -1"):
        model.step(torch.ones(1, 3).double(), torch.tensor([-1.0]).double(), model.init_state(1))


@pytest.mark.parametrize("time_mixer", ["liquid", "softmax"])
@pytest.mark.parametrize(("causal", "norm"), MODES)
@given(seed=st.integers(0, 10**6))
@settings(SETTINGS, max_examples=8)
def test_queries_change_no_other_answer(causal: bool, norm: str, time_mixer: str, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    batch = irregular_batch(L=25, seed=seed)
    span = float(batch.times.max())
    queries = (torch.rand(4, 9, generator=g).double() * 1.4 - 0.2) * span  # before, between and behind the rows
    queries[:, 0] = batch.times[:, 3]  # at a row
    model = build(causal=causal, gate_norm=norm, answer="query", time_embedding="sinusoidal", time_mixer=time_mixer)
    answers = model(batch.with_queries(queries))
    order = torch.randperm(9, generator=g)
    assert relative_error(model(batch.with_queries(queries[:, order])), answers[:, order]) < TIGHT
    assert relative_error(model(batch.with_queries(queries[:, :1])), answers[:, :1]) < TIGHT
    doubled = model(batch.with_queries(torch.cat([queries, queries], 1)))
    assert relative_error(doubled[:, 9:], answers) < TIGHT


@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_queries_do_not_touch_the_rows(causal: bool, norm: str) -> None:
    batch = irregular_batch(L=25)
    steps = build(causal=causal, gate_norm=norm, answer="step")
    asked = build(causal=causal, gate_norm=norm, answer="query")
    assert all(torch.equal(a, b) for a, b in zip(steps.parameters(), asked.parameters(), strict=True))
    seen: list[Tensor] = []
    asked.mixers[-1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    merged_queries = torch.full((4, 1), -1.0).double()  # before every row: the rows keep their order behind it
    asked(batch.with_queries(merged_queries))
    expected = steps(batch)
    rows = asked.head(seen[0][:, 1:])
    valid = batch.valid[..., None]
    assert relative_error(torch.where(valid, rows, 0), torch.where(valid, expected, 0)) < TIGHT


@pytest.mark.parametrize("norm", STREAMS)
def test_queries_to_a_continued_series_are_answered_as_by_the_whole(norm: str) -> None:
    values, times, _ = irregular_arrays(3, 25, 3, seed=6)
    model = build(causal=True, gate_norm=norm, answer="query", time_embedding="sinusoidal")
    first, rest, all_rows = slice(0, 10), slice(10, 25), torch.tensor([25, 25, 25])
    middle = (times[:, 9:10] + times[:, 10:11]) / 2
    queries = torch.cat([middle, times[:, 15:16], times[:, -1:] + 3.0], 1)
    start = {"t0": times[:, 0], "query_times": queries}
    expected = model(whole(values, times, all_rows, **start))
    _, state = model(whole(values[:, first], times[:, first], all_rows - 15, **start), return_state=True)
    assert (
        relative_error(model(whole(values[:, rest], times[:, rest], all_rows - 10, **start), state), expected) < TIGHT
    )


def test_a_fresh_state_is_no_state() -> None:
    batch = irregular_batch()
    queries = batch.times[:, :3] - 1.0  # the first one lies before every row
    model = build(causal=True, gate_norm="none", answer="query", time_embedding="sinusoidal")
    asked = batch.with_queries(queries)
    assert relative_error(model(asked, model.init_state(4)), model(asked)) < TIGHT


def test_a_query_fades_with_its_distance_from_the_last_row() -> None:
    batch = irregular_batch(L=12)
    model = build(causal=True, gate_norm="none", answer="query", depth=1)
    last = batch.times.max()
    far = model(batch.with_queries(last + torch.tensor([[1e7, 1e8]]).double().expand(4, 2)))
    near = model(batch.with_queries(last + torch.tensor([[0.0, 1.0]]).double().expand(4, 2)))
    assert relative_error(far[:, 0], far[:, 1]) < TIGHT  # nothing is left
    assert relative_error(near[:, 0], near[:, 1]) > 1e-6


@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_a_query_at_a_row_reads_what_that_row_has_written(causal: bool, norm: str) -> None:
    batch = irregular_batch(L=12)
    model = build(causal=causal, gate_norm=norm, answer="query", depth=1)
    at = batch.times[:, :1]
    just_after = model(batch.with_queries(at + 1e-12))
    assert relative_error(model(batch.with_queries(at)), just_after) < 1e-9
    merged = merge(batch.times, batch.deltas, batch.lengths, batch.times[:, 5:6])
    since = merged.deltas[merged.is_query]
    reached = batch.lengths > 5  # elsewhere the time is that of the padding, which is the last row's
    assert bool((since[reached] == 0).all())


def test_a_model_and_a_batch_must_agree_about_queries() -> None:
    batch = irregular_batch()
    with pytest.raises(ValueError, match='answer="query"'):
        build(answer="query")(batch)
    with pytest.raises(ValueError, match='answer="query"'):
        build(answer="step")(batch.with_queries(batch.times[:, :2]))


@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_empty_and_one_row_series_are_answered(causal: bool, norm: str, length: int) -> None:
    values, times, _ = irregular_arrays(2, 5, 3, seed=0)
    batch = whole(values[:, :length], times[:, :length], torch.tensor([length, length]))
    assert torch.isfinite(build(causal=causal, gate_norm=norm)(batch)).all()
    asked = build(causal=causal, gate_norm=norm, answer="query")
    assert torch.isfinite(asked(batch.with_queries(torch.tensor([[0.0, 2.0]]).double().expand(2, 2)))).all()


def test_the_first_row_is_remembered_unless_told_otherwise() -> None:
    values, times, _ = irregular_arrays(2, 2, 3, seed=0)
    other = values.clone()
    other[:, 0] = 5.0
    lengths = torch.tensor([2, 2])
    for choice, reaches in (("typical", True), ("zero", False)):
        model = build(answer="step", first_interval=choice, causal=True, gate_norm="none", rate="time", depth=1)
        change = model(whole(values, times, lengths))[:, 1] - model(whole(other, times, lengths))[:, 1]
        assert bool(change.abs().max() > 1e-6) is reaches


def test_the_first_interval_is_the_mean_of_the_series_or_the_fitted_one() -> None:
    batch = IrregularBatch.from_series(
        [([0.0, 1.0, 5.0], torch.ones(3, 3)), ([2.0], torch.ones(1, 3)), ([4.0, 4.0], torch.ones(2, 3))],
        dtype=torch.float64,
    )
    model = build()
    model.first_interval.fill_(0.25)
    assert model.intervals(batch, None)[:, 0].tolist() == [2.5, 0.25, 0.25]
    assert build(causal=True, gate_norm="prefix").intervals(batch, None)[:, 0].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("causal", "norm", "answer"), [(False, "sequence", "series"), (True, "prefix", "query")])
def test_the_whole_model_compiles_and_exports_with_any_length(causal: bool, norm: str, answer: str) -> None:
    model = build(causal=causal, gate_norm=norm, answer=answer)

    names = [f.name for f in fields(IrregularBatch) if not f.name.startswith("targets")]

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Tensor | None) -> Tensor:
            return self.model(IrregularBatch(**dict(zip(names, tensors, strict=True))))

    def tensors(length: int, seed: int) -> tuple[Tensor | None, ...]:
        batch = irregular_batch(L=length, seed=seed)
        if answer == "query":
            batch = batch.with_queries(batch.times[:, :2] + 0.5)
        return tuple(getattr(batch, name) for name in names)

    example, plain = tensors(40, seed=0), Plain()
    compiled = torch.compile(plain, fullgraph=True, backend="aot_eager")
    assert relative_error(compiled(*example), plain(*example)) < TIGHT
    length = torch.export.Dim("length", min=2)
    shapes = tuple({1: length} if name in ("values", "times", "deltas", "observed") else None for name in names)
    exported = torch.export.export(plain, example, dynamic_shapes=(shapes,)).module()
    for n in (2, 33, 300):
        other = tensors(n, seed=n)
        assert relative_error(exported(*other), plain(*other)) < TIGHT


def test_rows_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"built for rows of shape \(3,\); got \(5,\)"):
        build()(irregular_batch(C=5))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gate_norm": "batch"}, "'sequence', 'prefix', 'none'; got 'batch'"),
        ({"answer": "token"}, "'series', 'step', 'query'"),
        ({"embedder": "patch"}, "'linear', 'relu'"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"time_mixer": "mamba"}, "'liquid', 'softmax'"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(LFormerConfig(inputs=3, outputs=2), **change)
