"""RFormer: windows in time that tile a path, and which of them an answer may read."""

from dataclasses import replace

import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error
from torch import Tensor

from lformer import IrregularBatch
from lformer.baselines import RFormer, RFormerConfig
from lformer.baselines.model import Clock
from lformer.baselines.patching import Paths, from_to
from lformer.baselines.rformer import Layer
from lformer.baselines.signature import Levels, prefixes

TIGHT = 1e-10
levels = pytest.mark.parametrize("level", [1, 2, 3])


def build(answer: str = "series", **choices: object) -> RFormer:
    torch.manual_seed(0)
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": 8, "windows": 5}
    model = RFormer(RFormerConfig(**sizes | choices)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def paths_of(batch: IrregularBatch, level: int, *, univariate: bool = False, basepoint: bool = True) -> Paths:
    clock = Clock.of(batch, torch.tensor(1.0))
    return Paths.through(batch.values, batch, clock, level, univariate, basepoint)


def flat(signature: Levels) -> Tensor:
    return torch.cat(signature, dim=-1)


def by_hand(batch: IrregularBatch, b: int, moments: list[float], level: int, basepoint: bool) -> list[Tensor]:
    """The signature of one series up to each moment, from a path that is cut off there."""
    n = int(batch.lengths[b])
    times, values = batch.times[b, :n], batch.values[b, :n]
    unit = max(float(times[-1] - times[0]), 1.0)
    found = []
    for moment in moments:
        points = [torch.zeros(4).double()] if basepoint else []
        for k in range(n):
            if times[k] > moment:
                if k:
                    share = (moment - times[k - 1]) / (times[k] - times[k - 1])
                    value = values[k - 1] + share * (values[k] - values[k - 1])
                    points.append(torch.cat([torch.tensor([moment], dtype=torch.float64) / unit, value]))
                break
            points.append(torch.cat([times[k : k + 1] / unit, values[k]]))
        else:
            points.append(torch.cat([torch.tensor([moment], dtype=torch.float64) / unit, values[-1]]))
        points = points or [torch.zeros(4).double()]
        found.append(flat(tuple(one[0, -1] for one in prefixes(torch.stack(points)[None], level))))
    return found


@levels
@pytest.mark.parametrize("basepoint", [True, False])
def test_the_path_is_cut_where_a_moment_falls(level: int, basepoint: bool) -> None:
    """Between rows, at ties, before the first and behind the last row."""
    batch = irregular_batch(B=4, L=9, seed=1)
    paths = paths_of(batch, level, basepoint=basepoint)
    last = batch.times.amax(dim=1, keepdim=True)
    shares = torch.tensor([-0.1, 0.0, 0.2, 0.55, 1.0, 1.4]).double()
    moments = torch.cat([shares * last, batch.times], dim=1)
    found = flat(paths.up_to(moments))[:, :, 0]
    for b in range(4):
        expected = torch.stack(by_hand(batch, b, moments[b].tolist(), level, basepoint))
        assert relative_error(found[b], expected) < TIGHT


@levels
@pytest.mark.parametrize("univariate", [True, False])
def test_windows_tile_the_path(level: int, univariate: bool) -> None:
    """Level 1 of windows are increments that add up; the last token is the signature of the whole path."""
    batch = irregular_batch(B=3, L=12, seed=2)
    paths = paths_of(batch, level, univariate=univariate)
    model = build(level=level, univariate=univariate)
    ends = model._ends(paths.clock)
    up_to = paths.up_to(ends)
    assert torch.equal(ends[:, -1:], paths.clock.end)
    assert relative_error(flat(up_to)[:, -1], flat(paths.signatures)[:, -1]) < TIGHT
    starts = tuple(torch.cat([torch.zeros_like(one[:, :1]), one[:, :-1]], dim=1) for one in up_to)
    windows = from_to(starts, up_to)
    assert relative_error(windows[0].cumsum(dim=1), up_to[0]) < TIGHT
    assert relative_error(windows[0].sum(dim=1), paths.points[:, -1]) < TIGHT
    for w in range(5):  # each by itself, from the rows inside and its two ends
        for b in range(3):
            inside = (batch.times[b] > (ends[b, w - 1] if w else -1)) & (batch.times[b] <= ends[b, w])
            rows = paths.points[b, 1:][inside & batch.valid[b]]
            first = paths.points[b, :1] if w == 0 else starts[0][b, w : w + 1]  # level 1 from 0 is where the path is
            piece = torch.cat([first, rows, up_to[0][b, w : w + 1]])
            expected = flat(tuple(one[0, -1] for one in prefixes(piece[None], level)))
            scale = float(flat(up_to)[b].abs().max())
            assert relative_error(flat(windows)[b, w], expected, scale=scale) < TIGHT


def test_without_time_the_pace_does_not_matter() -> None:
    """Level 1 of a channel in a window of the whole series does not depend on when its rows are."""
    values, times, lengths = irregular_arrays(3, 10, 3, seed=3)
    slow, quick = (
        paths_of(IrregularBatch.build(values, clock, lengths=lengths, dtype=torch.float64), 3)
        for clock in (times, times**2)
    )
    channels = [
        prefixes(paths.points[..., 1:], 3)[n][:, -1] for n in range(3) for paths in (slow, quick)
    ]  # without the first dimension, time
    for n in range(3):
        assert relative_error(channels[2 * n], channels[2 * n + 1]) < TIGHT
    assert relative_error(flat(slow.signatures)[:, 5], flat(quick.signatures)[:, 5]) > 1e-3


def test_missing_values_are_carried_and_shown_as_missing() -> None:
    """The path through the latest values: what a gap holds is the value before it, and the gap itself is a channel."""
    batch, model = irregular_batch(B=3, L=10, seed=5), build(rows="observed")
    x = model._carried(batch, model.channels(model.rows(batch).rows))
    for b, n in enumerate(batch.lengths.tolist()):
        latest = torch.zeros(3).double()
        for k in range(n):
            latest = torch.where(batch.observed[b, k], batch.values[b, k], latest)
            assert torch.equal(x[b, k], torch.cat([latest, batch.observed[b, k].double()]))


def test_a_row_reads_windows_that_ended_before_it_and_what_came_since() -> None:
    values, _, _ = irregular_arrays(2, 11, 3, seed=6)
    times, model = torch.arange(11.0), build("step", windows=5)  # windows end at 2, 4, 6, 8, 10
    values = torch.nan_to_num(values)
    known = model(IrregularBatch.build(values, times, dtype=torch.float64))
    for k in (1, 4, 7):
        other = values.clone()
        other[:, k:] = 9.0
        found = model(IrregularBatch.build(other, times, dtype=torch.float64))
        assert relative_error(found[:, :k], known[:, :k]) < TIGHT
        assert relative_error(found[:, k:], known[:, k:]) > 1e-3


def test_a_query_at_a_row_is_answered_as_the_row_and_times_behind_the_end_differ() -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=7)
    times = times + torch.arange(9) * 0.5  # no ties: a query reads all rows of its moment
    rows, asked = build("step"), build("query")
    state = rows.state_dict()
    state["position.weight"] = torch.cat([state["position.weight"], torch.ones(1, 10).double()])
    asked.load_state_dict(state)
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    found = asked(batch.with_queries(batch.times))
    assert relative_error(found[batch.valid], rows(batch)[batch.valid]) < TIGHT
    last = batch.times.amax(dim=1, keepdim=True)
    later = asked(replace(batch, query_times=last * torch.tensor([1.1, 1.5, 3.0]).double()))
    assert relative_error(later[:, 1:], later[:, :-1]) > 1e-3


def test_a_layer_is_softmax_attention_to_itself_and_the_windows_before() -> None:
    torch.manual_seed(0)
    layer, windows, seen = Layer(4, 2).double(), torch.randn(2, 5, 4).double(), torch.arange(5).expand(2, 5)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    found = layer(windows, windows, seen)
    for b in range(2):
        for w in range(5):
            heads = []
            for h in range(2):
                own = slice(4 * h, 4 * h + 4)
                q = layer.query(windows[b, w])[own]
                k, v = layer.key(windows[b, : w + 1])[:, own], layer.value(windows[b, : w + 1])[:, own]
                heads.append((k @ q).softmax(dim=0) @ v)
            y = layer.attention_norm(windows[b, w] + layer.out(torch.cat(heads)))
            expected = layer.feed_forward_norm(y + layer.feed_forward(y))
            assert relative_error(found[b, w], expected) < TIGHT


def test_as_published_the_transformer_is_as_wide_as_its_tokens_and_has_one_layer() -> None:
    published = {"mapped": False, "shared": True, "basepoint": False}
    uni = build(patches="global", **published)
    assert uni.read_width() == 3 * (2 + 4) + 10
    assert build(patches="local", univariate=False, level=3, **published).read_width() == 4 + 16 + 64 + 10
    assert len(uni.layers) == 1
    twice, batch = uni(irregular_batch(seed=8)), irregular_batch(seed=8)
    once = build(patches="global", depth=1, **published)
    once.load_state_dict(uni.state_dict())
    assert relative_error(once(batch), twice) > 1e-3
    moved = irregular_batch(seed=8)
    moved = replace(moved, values=torch.where(moved.observed, moved.values, 0) + 5.0)
    assert relative_error(uni(moved), uni(replace(moved, values=moved.values - 3.0))) < TIGHT  # only changes are seen


def test_impossible_settings_are_refused() -> None:
    for change, says in (
        ({"level": 4}, "level must be 1, 2 or 3; got 4"),
        ({"windows": 0}, "windows must be at least 1; got 0"),
        ({"patches": "none"}, "'global', 'local', 'both'; got 'none'"),
        ({"statics": 2, "basepoint": False}, "only with basepoint=True"),
    ):
        with pytest.raises(ValueError, match=says):
            RFormerConfig(**{"inputs": 1, "outputs": 1} | change)
