"""Own scales, seasons and recent starts by hand: against numpy, and what they do to series of other sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.nn.own_scale import LEAST, SHRINK, OwnScale, moments, quartiles
from lformer.nn.recent import GAIN, SPANS, Asked, RecentMeans
from lformer.nn.rows import RowEncoder, fit_clock
from lformer.nn.season import LEVEL, RIDGES, Observations, Season, normal_equations, solve, weights


def observations(B: int = 5, L: int = 40, C: int = 2, M: int = 6, seed: int = 0) -> Observations:
    g = torch.Generator().manual_seed(seed)
    observed = torch.rand(B, L, C, generator=g) < 0.6
    values = torch.randn(B, L, C, generator=g).double()
    return Observations(torch.where(observed, values, 0), observed, torch.randn(B, L, M, generator=g).double())


def test_a_season_is_the_ridge_regression_of_each_series_and_channel() -> None:
    given = observations()
    shared, ridge = torch.randn(2, 6).double(), torch.tensor([5.0, 40.0]).double()
    found = weights(given, shared, ridge)
    for b in range(5):
        for c in range(2):
            seen = given.observed[b, :, c].numpy()
            x = np.column_stack([np.ones(seen.sum()), given.marks[b].numpy()[seen]])
            y = given.values[b, :, c].numpy()[seen] - x[:, 1:] @ shared[c].numpy()
            penalty = np.diag([LEVEL, *[float(ridge[c]) / 2] * 6])
            w = np.linalg.solve(x.T @ x + penalty, x.T @ y)[1:] + shared[c].numpy()
            np.testing.assert_allclose(found[b, c], w, atol=1e-10)


@pytest.mark.parametrize("C", [1, 9])  # fewer and more channels than marks
def test_normal_equations_are_sums_over_what_was_observed(C: int) -> None:
    given = observations(C=C)
    gram, moment = normal_equations(given)
    for b, c in ((0, 0), (4, C - 1)):
        seen = given.observed[b, :, c]
        x = torch.cat([torch.ones(40, 1), given.marks[b]], dim=-1)[seen]
        torch.testing.assert_close(gram[b, c], x.T @ x)
        torch.testing.assert_close(moment[b, c], x.T @ given.values[b, :, c][seen])


def test_elimination_solves() -> None:
    a = torch.randn(3, 4, 7, 7).double()
    matrix, right = a @ a.transpose(-1, -2) + torch.eye(7), torch.randn(3, 4, 7).double()
    torch.testing.assert_close(solve(matrix, right), torch.linalg.solve(matrix, right))
    assert torch.autograd.gradcheck(solve, (matrix[0, 0].requires_grad_(), right[0, 0].requires_grad_()))


def weekly(strength: float, shared: float, n: int = 40, L: int = 60, seed: int = 0) -> list[Observations]:
    """Noise with a pattern that all series share and one that each has by itself."""
    g = torch.Generator().manual_seed(seed)
    day = torch.arange(L) % 7
    angle = 2 * torch.pi * day[:, None] / 7 * torch.arange(1, 4)
    marks = torch.cat([angle.sin(), angle.cos()], dim=1).expand(n, L, 6)
    common, own = shared * torch.randn(7, generator=g), strength * torch.randn(n, 7, generator=g)
    values = (common + own)[:, day] + torch.randn(n, L, generator=g)
    observed = torch.rand(n, L, 1, generator=g) < 0.8
    return [Observations(torch.where(observed, values[..., None], 0), observed, marks)]


def test_the_ridge_is_chosen_by_what_first_halves_foretell() -> None:
    ridges = []
    for strength in (2.0, 0.3, 0.0):
        season = Season(1, 6)
        season.fit(weekly(strength, shared=1.0))
        ridges.append(float(season.ridge))
    assert ridges == sorted(ridges)
    assert ridges[0] <= 10
    assert ridges[-1] >= 100
    series = weekly(0.0, shared=1.0)
    season = Season(1, 6)
    season.fit(series)
    found = season(series[0])  # all series follow the common pattern, however little each shows
    assert float((found - season.shared).abs().max()) < 0.1
    assert float(season.shared.abs().max()) > 0.2
    season.fit(weekly(0.0, shared=0.0))
    assert float(season.shared.abs().max()) < 0.1


def test_nothing_observed_is_no_season() -> None:
    given = observations()
    nothing = given._replace(values=torch.zeros_like(given.values), observed=torch.zeros_like(given.observed))
    season = Season(2, 6).double()
    assert not season(nothing).any()
    season.fit([nothing])
    assert not season.shared.any()
    assert bool((season.ridge > 0).all())


def test_level_and_spread_are_those_of_what_was_observed() -> None:
    values = torch.tensor([[1.0, 3.0, 99.0, 5.0], [7.0, 99.0, 99.0, 99.0], [0.0, 0.0, 0.0, 0.0]]).double()[..., None]
    observed = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()[..., None]
    own = OwnScale(1).double()
    own.typical.fill_(0.5)
    found = own(values, observed, None)
    assert found.level[:, 0].tolist() == [3, 7, 0]
    deviation, known = np.sqrt(8 / 3), 2
    shrunk = np.exp((known * np.log(deviation) + SHRINK * np.log(0.5)) / (known + SHRINK))
    np.testing.assert_allclose(found.spread[:, 0], [shrunk, 0.5, 0.5])
    own_units = found.remove(values, observed, None)
    assert not own_units[~observed].any()
    torch.testing.assert_close(found.restore(own_units, None)[observed], values[observed])
    constant = own(torch.full((1, 900, 1), 4.0).double(), torch.ones(1, 900, 1).bool(), None)
    assert float(constant.spread) > 0.9 * 0.5 * LEAST
    assert own.width == sum(part.shape[2] for part in found.features(4, None)) == 2


def test_wild_values_count_as_their_bounds() -> None:
    g = torch.Generator().manual_seed(0)
    values = torch.randn(2, 60, 1, generator=g).double() * torch.tensor([1.0, 50.0]).double()[:, None, None]
    observed = torch.rand(2, 60, 1, generator=g) < 0.7
    own = OwnScale(1).double()
    calm = own(values, observed, None)
    wild = torch.where(observed & (torch.arange(60) % 20 == 3)[:, None], -9999.0, values)
    found = own(wild, observed, None)
    for name in ("level", "spread"):
        one, two = getattr(calm, name), getattr(found, name)
        assert bool((((one - two) / calm.spread).abs() < torch.tensor([[1.5], [5.0]])).all()), name
    for b in range(2):
        seen = values[b, :, 0][observed[b, :, 0]]
        low, middle, high = (float(q[b, 0]) for q in quartiles(values, observed))
        assert low <= float(seen.median()) <= high
        assert middle == pytest.approx(float(seen.median()), abs=0.2 * float(seen.std()))
    kept = own.bounds(values, observed)
    assert bool(((values > kept[0][:, None]) & (values < kept[1][:, None]))[observed].all())


def test_typical_is_the_spread_of_the_median_series() -> None:
    own = OwnScale(2)
    values = torch.randn(9, 50, 2) * torch.logspace(-2, 2, 9)[:, None, None]
    observed = torch.ones(9, 50, 2).bool()
    observed[..., 1] = False
    own.fit([(values[:4], observed[:4], None), (values[4:], observed[4:], None)])
    assert float(own.typical[0]) == pytest.approx(float(moments(values, observed)[1][4, 0]))
    assert float(own.typical[1]) == 1.0  # never observed


def stores(size: float = 1.0, seed: int = 0) -> IrregularBatch:
    g = torch.Generator().manual_seed(seed)
    values = size * (5 + torch.randn(4, 30, 1, generator=g).double())
    values[torch.rand(4, 30, 1, generator=g) < 0.2] = torch.nan
    times = torch.rand(4, 30, generator=g).double().cumsum(1)
    return IrregularBatch.build(
        values, times, lengths=[30, 12, 25, 7], query_times=times[:, -1:] + torch.tensor([0.5, 2.0]),
        marks=torch.randn(4, 30, 3, generator=g), query_marks=torch.randn(4, 2, 3, generator=g), dtype=torch.float64,
    )  # fmt: skip


def test_series_a_thousand_times_as_large_begin_with_answers_a_thousand_times_as_large() -> None:
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=1, outputs=1, answer="query", rows="carried", marks=3, persistence="recent", series_scale=True, width=8
    )
    model = LFormer(config).double()
    with torch.no_grad():
        model.persistence.mixture.normal_()  # type: ignore[union-attr, operator]
    fit_clock(model, [stores()])
    one = model(stores())
    fit_clock(model, [stores(1000.0)])
    torch.testing.assert_close(model(stores(1000.0)), 1000 * one)  # before training, when the answer is the start
    own = model.rows.own
    assert own is not None
    batch = stores()
    told = own(batch.values, batch.observed, batch.marks).features(30, batch.marks)
    assert [part.shape for part in told] == [(4, 30, 2), (4, 30, 1)]
    assert own.width == 3


def known_and_asked() -> tuple[RecentMeans, IrregularBatch]:
    times = torch.cat([torch.arange(60.0), torch.tensor([200.0])])[None].double()
    values = torch.arange(61.0)[None, :, None].double().expand(1, 61, 2).clone()
    values[0, 3:50:2, 1] = torch.nan
    batch = IrregularBatch.build(
        values, times, query_times=torch.tensor([[30.0, 59.5, 300.0, -4.0]]), dtype=torch.float64
    )
    return RecentMeans(2).double(), batch


def test_a_recent_start_mixes_the_latest_value_and_means() -> None:
    start, batch = known_and_asked()
    encoder = RowEncoder(2, "carried", persistence="recent").double()
    encoded = encoder(batch)
    assert encoded.known is not None
    start.default.data.fill_(-7.0)
    expected = {
        0: [30, 59, 60, -7],
        1: [30, (52 + 59) / 2, 60, -7],  # of the last 8 intervals, the one at their beginning left out
        2: [30, (28 + 59) / 2, 60, -7],
        3: [30, 59 / 2, 30, -7],
    }
    for choice, told in expected.items():
        start.mixture.data.fill_(-100.0)
        start.mixture.data[:, choice] = 0.0
        found = start(encoded.known, batch, encoder.interval)
        np.testing.assert_allclose(found[0, :, 0].detach(), told)  # at a row, its own value
    assert SPANS == (8, 32)
    rows = batch.values[0, :, 1][batch.observed[0, :, 1]]
    clock = batch.times[0][batch.observed[0, :, 1]]
    start.mixture.data.fill_(-100.0)
    start.mixture.data[:, 1] = 0.0
    within = rows[(clock <= 59.5) & (clock > 51)]
    found = start(encoded.known, batch, encoder.interval)
    np.testing.assert_allclose(found[0, 1, 1].detach(), within.mean())


def test_the_mixture_begins_where_least_squares_says() -> None:
    g = torch.Generator().manual_seed(0)
    level = 30 * torch.randn(50, 1, 1, generator=g)
    walk = torch.randn(50, 41, 1, generator=g).cumsum(1)
    noise = level + 3 * torch.randn(50, 41, 1, generator=g)
    encoder = RowEncoder(2, "carried", persistence="recent")
    values = torch.cat([walk, noise], dim=2)
    batch = IrregularBatch.build(values[:, :40], torch.arange(40.0), query_times=torch.tensor([40.0]))
    encoder.set_scale(torch.zeros(2), torch.ones(2), torch.full((2,), -1e9), torch.full((2,), 1e9))
    encoded = encoder(batch)
    assert encoded.known is not None
    start = RecentMeans(2)
    start.fit([Asked(encoded.known, batch, values[:, 40:], torch.ones(50, 1, 2))], encoder.interval)
    share = torch.softmax(GAIN * start.mixture.detach(), dim=-1)
    assert float(share[0, 0]) > 0.7  # of a walk the latest value
    assert float(share[1, 2:].sum()) > 0.7  # of noise a long mean
    never = RecentMeans(2)
    never.fit([Asked(encoded.known, batch, values[:, 40:], torch.zeros(50, 1, 2))], encoder.interval)
    assert bool(torch.isfinite(never.mixture).all())
    assert len(RIDGES) > 2
