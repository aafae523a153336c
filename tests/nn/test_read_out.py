"""Queries that read rows by their distance in time: the loop over the formulas, and all that must change no answer."""

from dataclasses import fields, replace

import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error, require_close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.export.subject import STEP
from lformer.nn.query import merge
from lformer.nn.read_out import BUDGETS, TimeReadOut, by_definition
from lformer.train.updating import _groups

SETTINGS = settings(max_examples=8, deadline=None, derandomize=True)
MODES = [(False, "sequence"), (False, "prefix"), (False, "none"), (True, "sequence"), (True, "prefix"), (True, "none")]
CANCEL = [(causal, norm) for causal, norm in MODES if norm != "none"]  # where the unit of time does
STREAMS = ["prefix", "none"]
TIGHT = 1e-10


def build(seed: int = 0, **choices: object) -> LFormer:
    sizes = {"inputs": 3, "outputs": 2, "width": 8, "heads": 2, "depth": 1, "answer": "query", "read_out": "time"}
    torch.manual_seed(seed)
    model = LFormer(LFormerConfig(**sizes | {"time_embedding": "none"} | choices)).double()
    for name, parameter in model.named_parameters():
        if not name.endswith("log_budgets"):
            torch.nn.init.normal_(parameter, std=0.4)
    return model


def whole(values: Tensor, times: Tensor, lengths: Tensor, **more: object) -> IrregularBatch:
    """On a clock that keeps the total decay of the vanilla gate in range."""
    if "query_times" in more:
        more["query_times"] = more["query_times"] / 1e3  # type: ignore[operator]
    return IrregularBatch.build(values, times / 1e3, lengths=lengths, dtype=torch.float64, **more)


def around(times: Tensor, lengths: Tensor, seed: int, count: int = 9) -> Tensor:
    """(B, Q) before, between, at and behind the rows."""
    last = times.gather(1, lengths[:, None] - 1)
    share = torch.rand(len(times), count, generator=torch.Generator().manual_seed(seed)).double() * 1.6 - 0.3
    queries = times[:, :1] + share * (last - times[:, :1] + 1)
    queries[:, 0] = times[:, 0]
    return queries


# --- the definition ---


def both_ways(layer: TimeReadOut, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """By the module, and by the loop: uneven times with ties, ragged lengths, queries anywhere."""
    values, times, lengths = irregular_arrays(3, 12, 8, seed)
    values = values.nan_to_num().to(dtype)
    times = (times - times[:, :1]).mul(2**4).round() / 2**14  # exact in float32, too, as are all differences
    queries = around(times, lengths, seed).mul(2**14).round() / 2**14
    g = torch.Generator().manual_seed(seed)
    first = torch.rand(3, generator=g).double() + 0.1
    asked = torch.randn(3, 9, 8, generator=g, dtype=torch.float64).to(dtype)
    deltas = torch.cat([first[:, None], times.diff(dim=1)], 1) * (torch.arange(12) < lengths[:, None])
    merged = merge(times, deltas.to(dtype), lengths, queries, ahead=not layer.causal)
    found, _ = layer(merged.arrange(values, asked), merged)
    by_loop = [
        one_series(layer, values[b, :n], asked[b], times[b, :n], queries[b], first[b])
        for b, n in enumerate(lengths.tolist())
    ]
    return found, torch.stack(by_loop)


def layer_of(causal: bool, norm: str, seed: int) -> TimeReadOut:
    torch.manual_seed(seed)
    layer = TimeReadOut(8, 2, causal=causal, gate_norm=norm).double()  # type: ignore[arg-type]
    torch.nn.init.normal_(layer.log_budgets)
    return layer


@pytest.mark.parametrize("norm", ["sequence", "prefix", "none"])
@pytest.mark.parametrize("causal", [False, True])
@given(seed=st.integers(0, 10**6))
@settings(SETTINGS, max_examples=3)
def test_the_module_is_its_formulas(causal: bool, norm: str, seed: int) -> None:
    """Answers and gradients."""
    layer = layer_of(causal, norm, seed)
    found, expected = both_ways(layer, seed)
    assert relative_error(found, expected) < TIGHT
    wanted = list(layer.parameters())
    slopes, by_hand = (torch.autograd.grad(y.sin().sum(), wanted) for y in (found, expected))
    for slope, right in zip(slopes, by_hand, strict=True):
        assert relative_error(slope, right, scale=float(max(g.abs().max() for g in by_hand))) < TIGHT


@pytest.mark.parametrize("norm", ["sequence", "prefix", "none"])
@pytest.mark.parametrize("causal", [False, True])
def test_float32_is_as_exact_as_the_loop(causal: bool, norm: str) -> None:
    layer = layer_of(causal, norm, seed=1)
    _, exact = both_ways(layer, seed=1)
    found, plain = both_ways(layer.float(), seed=1, dtype=torch.float32)
    require_close(found.detach(), plain.detach(), exact.detach())


def test_mixed_precision_changes_a_few_digits_alone() -> None:
    model, batch = build().float(), irregular_batch(dtype=torch.float32)
    asked = batch.with_queries(batch.times[:, 2:9] + 0.01)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(asked)
    assert relative_error(mixed.float(), model(asked)) < 0.05


def one_series(
    layer: TimeReadOut, rows: Tensor, asked: Tensor, times: Tensor, queries: Tensor, first: Tensor
) -> Tensor:
    """(L, D), (Q, D) -> (Q, D): every head and budget by the definition, side by side, then mixed."""
    clock = (times.to(rows.dtype), queries.to(rows.dtype), first.to(rows.dtype))
    q = layer.query(layer.norm(asked)).unflatten(-1, (2, 4))
    k, v = (project(layer.norm(rows)).unflatten(-1, (2, 4)) for project in (layer.key, layer.value))
    read = [
        by_definition(q[:, h], k[:, h], v[:, h], *clock, budget, layer.gate_norm)
        for h in range(2)
        for budget in layer.log_budgets[h].exp()
    ]
    past = torch.cat([y[:, :4] for y in read], dim=-1)
    future = torch.cat([y[:, 4:] for y in read], dim=-1)
    return layer.mix(past if layer.causal else torch.cat([past, future], dim=-1))


def test_near_rows_count_for_a_large_budget_and_all_for_a_small_one() -> None:
    times, ones = torch.arange(5.0).double(), torch.ones(5, 1).double()
    rows = torch.eye(5).double()
    asked = torch.tensor([2.0, 2.4]).double()
    small, large = (
        by_definition(ones[:2], ones, rows, times, asked, ones[0, 0], torch.tensor(b).double(), "sequence")
        for b in (0.1, 500.0)
    )
    past, future = slice(0, 5), slice(5, 10)
    torch.testing.assert_close(large[0, past], torch.eye(5).double()[2])  # at row 2: row 2 alone
    assert float(large[:, future].abs().max()) < 1e-10
    assert float(small[1, past][:3].std() / small[1, past][:3].mean()) < 0.05
    assert bool((small[1, past][3:] == 0).all())
    assert bool((small[1, future][:3] == 0).all())
    assert bool((small[1, future][3:] > 0).all())


# --- what must change no answer ---


@pytest.mark.parametrize(("causal", "norm"), MODES)
@given(seed=st.integers(0, 10**6))
@SETTINGS
def test_queries_change_no_other_answer(causal: bool, norm: str, seed: int) -> None:
    values, times, lengths = irregular_arrays(4, 25, 3, seed)
    queries, model = around(times, lengths, seed), build(causal=causal, gate_norm=norm)
    answers = model(whole(values, times, lengths, query_times=queries))
    order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    turned = model(whole(values, times, lengths, query_times=queries[:, order]))
    assert relative_error(turned, answers[:, order]) < TIGHT
    assert relative_error(model(whole(values, times, lengths, query_times=queries[:, :1])), answers[:, :1]) < TIGHT
    doubled = model(whole(values, times, lengths, query_times=torch.cat([queries, queries], 1)))
    assert relative_error(doubled[:, 9:], answers) < TIGHT


@pytest.mark.parametrize(("causal", "norm"), MODES)
@given(seed=st.integers(0, 10**6), extra=st.integers(1, 70))
@SETTINGS
def test_padding_changes_no_answer_and_no_gradient(causal: bool, norm: str, seed: int, extra: int) -> None:
    values, times, lengths = irregular_arrays(3, 20, 3, seed)
    queries, model = around(times, lengths, seed), build(causal=causal, gate_norm=norm)
    longer = torch.cat([values, torch.full((3, extra, 3), 1e3)], 1), torch.cat([times, torch.full((3, extra), -5.0)], 1)
    results = []
    for rows in ((values, times), longer):
        y = model(whole(*rows, lengths, query_times=queries))
        results.append((y, *torch.autograd.grad(y.sin().sum(), list(model.parameters()))))
    for padded, plain in zip(results[1], results[0], strict=True):
        assert relative_error(padded, plain) < TIGHT


@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_batch_order_and_size_change_nothing(causal: bool, norm: str) -> None:
    values, times, lengths = irregular_arrays(5, 20, 3, seed=3)
    queries, model = around(times, lengths, 3), build(causal=causal, gate_norm=norm)
    answers, order = model(whole(values, times, lengths, query_times=queries)), torch.tensor([3, 0, 4, 1, 2])
    turned = model(whole(values[order], times[order], lengths[order], query_times=queries[order]))
    assert relative_error(turned, answers[order]) < TIGHT
    for i, n in enumerate(lengths.tolist()):
        one = slice(i, i + 1)
        alone = model(whole(values[one, :n], times[one, :n], lengths[one], query_times=queries[one]))
        assert relative_error(alone, answers[one]) < TIGHT


@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_the_time_origin_changes_nothing(causal: bool, norm: str) -> None:
    values, times, lengths = irregular_arrays(4, 20, 3, seed=4)
    times = (times * 2**10).round() / 2**10  # exact after the shift
    queries = (around(times, lengths, 4) * 2**10).round() / 2**10
    model = build(causal=causal, gate_norm=norm)
    here, there = (
        IrregularBatch.build(values, times + t, lengths=lengths, query_times=queries + t, dtype=torch.float64)
        for t in (0.0, 2.0**24)
    )
    if norm == "none" and not causal:  # whose own mixers would overflow on this clock
        here, there = (
            replace(b, times=b.times / 1e3, deltas=b.deltas / 1e3, query_times=b.query_times / 1e3)
            for b in (here, there)
        )
    assert relative_error(model(there), model(here)) < TIGHT


@pytest.mark.parametrize("unit", [1e-6, 3600.0, 1e9])
@pytest.mark.parametrize(("causal", "norm"), CANCEL)
def test_the_time_unit_changes_nothing(causal: bool, norm: str, unit: float) -> None:
    values, times, lengths = irregular_arrays(4, 20, 3, seed=5)
    queries, model = around(times, lengths, 5), build(causal=causal, gate_norm=norm)
    answers = model(whole(values, times, lengths, query_times=queries))
    model.first_interval.mul_(unit)
    other = model(whole(values, unit * times, lengths, query_times=unit * queries))
    assert relative_error(other, answers) < 1e-9


@pytest.mark.parametrize(("causal", "norm"), MODES)
@pytest.mark.parametrize("length", [0, 1])
def test_empty_and_one_row_series_are_answered(causal: bool, norm: str, length: int) -> None:
    values, times, _ = irregular_arrays(2, 5, 3, seed=0)
    lengths = torch.tensor([length, length])
    queries = torch.tensor([[0.0, 2.0]]).double().expand(2, 2)
    batch = whole(values[:, :length], times[:, :length], lengths).with_queries(queries)
    assert torch.isfinite(build(causal=causal, gate_norm=norm)(batch)).all()


def test_answers_hang_on_the_time_of_the_query_between_two_rows() -> None:
    values, _, _ = irregular_arrays(1, 6, 3, seed=1)
    times = torch.arange(6.0).double()[None]
    queries = torch.linspace(2.1, 2.9, 5).double()[None]
    model = build()
    torch.nn.init.zeros_(model.mixers[0].time_mixer.mix.weight)  # nothing of time but by the read-out
    answers = model(IrregularBatch.build(values, times, query_times=queries, dtype=torch.float64))[0]
    assert bool((answers.diff(dim=0).abs().amax(dim=1) > 1e-4).all())


# --- causal: the future, and streams ---


@pytest.mark.parametrize("norm", STREAMS)
def test_the_future_does_not_reach_the_past(norm: str) -> None:
    values, times, _ = irregular_arrays(3, 20, 3, seed=2)
    lengths, queries = torch.full((3,), 20), times[:, 4:12] + 1e-3
    queries = torch.minimum(queries, times[:, 12:13])
    model = build(causal=True, gate_norm=norm)
    other, later = values.clone(), times.clone()
    other[:, 13:] = 7.0
    later[:, 13:] += 5.0
    answers = model(whole(values, times, lengths, query_times=queries))
    assert relative_error(model(whole(other, later, lengths, query_times=queries)), answers) < TIGHT


@pytest.mark.parametrize("norm", STREAMS)
@pytest.mark.parametrize("cut", [1, 7, 24])
def test_a_series_cut_anywhere_answers_as_the_whole(norm: str, cut: int) -> None:
    values, times, _ = irregular_arrays(3, 25, 3, seed=6)
    model, full = build(causal=True, gate_norm=norm, depth=2), torch.full((3,), 25)
    queries = torch.cat([(times[:, cut - 1 : cut] + times[:, cut : cut + 1]) / 2, times[:, -1:], times[:, -1:] + 3], 1)
    start = {"t0": times[:, 0] / 1e3, "query_times": queries}
    expected = model(whole(values, times, full, **start))
    _, state = model(whole(values[:, :cut], times[:, :cut], torch.full((3,), cut), **start), return_state=True)
    rest = whole(values[:, cut:], times[:, cut:], full - cut, **start)
    answers, after = model(rest, state, return_state=True)
    assert relative_error(answers, expected) < TIGHT
    asked = queries[:, 1:] / 1e3 - times[:, :1] / 1e3
    assert relative_error(model.ask(asked, after), expected[:, 1:]) < TIGHT


@pytest.mark.parametrize("norm", STREAMS)
def test_one_row_at_a_time_answers_as_the_whole(norm: str) -> None:
    values, times, _ = irregular_arrays(3, 15, 3, seed=7)
    values = torch.where(torch.rand(3, 15, 3) < 0.5, values, torch.nan)
    times = times / 1e3
    model, state = build(causal=True, gate_norm=norm, depth=2, rows="carried"), None
    state = model.init_state(3)
    for n in range(15):
        delta = torch.zeros(3).double() if n == 0 else times[:, n] - times[:, n - 1]
        state = model.advance(values[:, n], delta, state)
    asked = times[:, -1:] + torch.tensor([0.0, 0.5, 40.0]).double()
    batch = IrregularBatch.build(values, times, query_times=asked, dtype=torch.float64)
    assert relative_error(model.ask(asked - times[:, :1], state), model(batch)) < TIGHT


def test_a_fresh_state_is_no_state() -> None:
    batch = irregular_batch()
    asked = batch.with_queries(batch.times[:, :3] - 1.0)  # the first one lies before every row
    model = build(causal=True, gate_norm="prefix")
    assert relative_error(model(asked, model.init_state(4)), model(asked)) < TIGHT


def test_a_model_that_looks_ahead_cannot_stream_and_says_so() -> None:
    with pytest.raises(RuntimeError, match="this layer cannot carry a state: causal=False"):
        build().init_state(1)


# --- around it ---


def test_it_is_for_queries_alone_and_off_by_default() -> None:
    assert LFormer(LFormerConfig(inputs=1, outputs=1, answer="query")).read_out is None
    for answer in ("series", "step"):
        with pytest.raises(ValueError, match=f"so it needs answer=\"query\"; got '{answer}'"):
            LFormerConfig(inputs=1, outputs=1, answer=answer, read_out="time")
    with pytest.raises(ValueError, match="read_out must be one of 'row', 'time'; got 'both'"):
        LFormerConfig(inputs=1, outputs=1, answer="query", read_out="both")
    assert STEP["read_out"] == ("row",)  # an exported step does without


def test_budgets_are_positive_learned_and_not_decayed() -> None:
    model = LFormer(LFormerConfig(inputs=3, outputs=2, answer="query", read_out="time")).double()
    layer = model.read_out
    assert layer is not None
    torch.testing.assert_close(layer.log_budgets.exp(), torch.tensor(BUDGETS).double().expand(4, 4))
    decayed = {id(p) for group in _groups(model, 0.1) if group["weight_decay"] for p in group["params"]}
    assert id(layer.log_budgets) not in decayed
    batch = irregular_batch()
    model(batch.with_queries(batch.times[:, 2:5] + 0.01)).square().sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not bool(p.grad.abs().max() > 0)]
    assert silent == []


@pytest.mark.parametrize(("causal", "norm"), [(False, "sequence"), (True, "prefix")])
def test_it_compiles_and_exports_with_any_length(causal: bool, norm: str) -> None:
    model = build(causal=causal, gate_norm=norm)
    names = [f.name for f in fields(IrregularBatch) if not f.name.startswith("targets")]

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Tensor | None) -> Tensor:
            return self.model(IrregularBatch(**dict(zip(names, tensors, strict=True))))

    def tensors(length: int, seed: int) -> tuple[Tensor | None, ...]:
        batch = irregular_batch(L=length, seed=seed)
        return tuple(getattr(batch.with_queries(batch.times[:, :2] + 0.5), name) for name in names)

    example, plain = tensors(40, seed=0), Plain()
    compiled = torch.compile(plain, fullgraph=True, backend="aot_eager")
    assert relative_error(compiled(*example), plain(*example)) < TIGHT
    length = torch.export.Dim("length", min=2)
    shapes = tuple({1: length} if name in ("values", "times", "deltas", "observed") else None for name in names)
    exported = torch.export.export(plain, example, dynamic_shapes=(shapes,)).module()
    for n in (2, 33, 300):
        other = tensors(n, seed=n)
        assert relative_error(exported(*other), plain(*other)) < TIGHT
