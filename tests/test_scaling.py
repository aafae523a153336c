"""Scaling: statistics of the named series alone, of what was observed alone, against slow loops."""

import numpy as np
import pytest

from lformer.panel import Array, Panel
from lformer.scaling import Scale, fit, scaled

LENGTHS = np.array([5, 0, 8, 3, 6])
SERIES = np.array([0, 2, 3])


def ragged(seed: int = 0, C: int = 3, missing: float = 0.3) -> Panel:
    """Five series, one of them empty."""
    rng = np.random.default_rng(seed)
    N = int(LENGTHS.sum())
    values = rng.normal(5.0, 3.0, size=(N, C)).astype(np.float32)
    values[rng.random((N, C)) < missing] = np.nan
    return Panel.build(np.concatenate([np.arange(k) for k in LENGTHS]), values, LENGTHS)


def standard(panel: Panel, series: Array) -> tuple[Array, Array]:
    found = fit(panel, series, "standard")
    return found.shift, found.scale


def minmax(panel: Panel, series: Array) -> tuple[Array, Array]:
    found = fit(panel, series, "minmax")
    return found.shift, found.scale


def apply(panel: Panel, shift: Array, scale: Array) -> Panel:
    return Scale(shift, scale, np.full(len(shift), -np.inf), np.full(len(shift), np.inf)).apply(panel)


def seen(panel: Panel, series: Array) -> list[Array]:
    """The observed values of each channel, one series after the other."""
    rows = np.concatenate([panel[int(i)][1].reshape(-1, panel.values.shape[-1]) for i in series]).astype(np.float64)
    return [column[~np.isnan(column)] for column in rows.T]


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_mean_and_deviation_of_some_series(missing: float) -> None:
    panel = ragged(missing=missing)
    shift, scale = standard(panel, SERIES)
    np.testing.assert_allclose(shift, [column.mean() for column in seen(panel, SERIES)], rtol=1e-12)
    np.testing.assert_allclose(scale, [column.std() for column in seen(panel, SERIES)], rtol=1e-12)
    for column in seen(apply(panel, shift, scale), SERIES):
        assert column.mean() == pytest.approx(0, abs=1e-6)
        assert column.std() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_least_and_greatest_of_some_series(missing: float) -> None:
    panel = ragged(missing=missing)
    shift, scale = minmax(panel, SERIES)
    assert shift.tolist() == [column.min() for column in seen(panel, SERIES)]
    assert (shift + scale).tolist() == [column.max() for column in seen(panel, SERIES)]
    for column in seen(apply(panel, shift, scale), SERIES):
        assert (column.min(), column.max()) == (0.0, 1.0)


@pytest.mark.parametrize("statistics", [standard, minmax])
def test_other_series_do_not_count(statistics: type) -> None:
    panel = ragged()
    changed = panel.values.copy()
    changed[-6:] = 1e6  # all of the last series, which is not among ours
    other = Panel.build(panel.times, changed, LENGTHS, observed=panel.observed)
    for ours, theirs in zip(statistics(panel, SERIES), statistics(other, SERIES), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert statistics(other, np.arange(5))[1].max() > 1e4
    mask = np.isin(np.arange(5), SERIES)
    np.testing.assert_array_equal(statistics(panel, mask)[0], statistics(panel, SERIES)[0])


def test_unobserved_values_stay_zero() -> None:
    panel = apply(ragged(), *standard(ragged(), SERIES))
    assert panel.observed is not None
    assert panel.values.dtype == np.float32
    assert not panel.values[~panel.observed].any()
    assert (panel.values[panel.observed] != 0).all()


def test_a_channel_that_never_changes_or_was_never_seen() -> None:
    values = np.full((1000, 3), np.nan)
    values[:, 0] = 0.1  # the mean of many 0.1 is not quite 0.1
    values[:, 1] = np.linspace(-1, 1, 1000)
    panel = Panel.build(np.arange(1000.0), values, np.array([1000]))
    shift, scale = standard(panel, np.array([0]))
    assert scale[0] == 1
    assert (shift[2], scale[2]) == (0, 1)
    assert np.abs(apply(panel, shift, scale).values[:, 0]).max() < 1e-12
    low, width = minmax(panel, np.array([0]))
    assert low.tolist() == [0.1, -1, 0]
    assert width.tolist() == [1, 2, 1]


def test_of_no_series_nothing_is_learnt() -> None:
    for statistics in (standard, minmax):
        shift, scale = statistics(ragged(), np.array([], int))
        assert shift.tolist() == [0.0] * 3
        assert scale.tolist() == [1.0] * 3


def test_rows_count_once_for_every_window_they_are_in() -> None:
    values = np.arange(6.0)[:, None]
    panel = Panel.build(np.arange(6.0), values, np.full(4, 3), first=np.arange(4))
    shift, scale = standard(panel, np.array([0, 1]))
    windows = np.array([0.0, 1, 2, 1, 2, 3])
    assert shift[0] == pytest.approx(windows.mean())
    assert scale[0] == pytest.approx(windows.std())
    assert minmax(panel, np.array([1, 2]))[0].tolist() == [1.0]
    assert minmax(panel, np.array([1, 2]))[1].tolist() == [3.0]


def test_frames_are_scaled_by_channel() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (7, 4, 5, 2)).astype(np.uint8)
    panel = Panel.build(np.arange(7.0), frames, np.array([4, 3]), scale=1 / 255)
    shift, scale = standard(panel, np.array([0]))
    real = frames / 255  # what a stored number is worth counts, in statistics and values alike
    np.testing.assert_allclose(shift, real[:4].mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(scale, real[:4].std(axis=(0, 1, 2)))
    near = apply(panel, shift, scale)
    np.testing.assert_allclose(near[1][1], (real[4:] - shift) / scale, rtol=1e-4, atol=1e-6)
    low, width = minmax(panel, np.array([1]))
    np.testing.assert_allclose(low, real[4:].min(axis=(0, 1, 2)))
    np.testing.assert_allclose(low + width, real[4:].max(axis=(0, 1, 2)))


def test_scaling_is_computed_in_float64() -> None:
    values = np.random.default_rng(0).normal(1000, 1, (50, 1)).astype(np.float32)
    panel = Panel.build(np.arange(50.0), values, np.array([50]))
    narrow = np.float32([3.3333]), np.float32([0.3])
    exact = (values.astype(np.float64) - narrow[0]) / narrow[1]
    np.testing.assert_array_equal(apply(panel, *narrow).values, exact.astype(np.float32))
    for statistics in (standard, minmax):
        assert [s.dtype for s in statistics(panel, np.array([0]))] == [np.float64, np.float64]


def test_one_wild_value_moves_the_robust_scale_of_nothing_else() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 1))
    wild = x.copy()
    wild[0] = 1e9
    whole = np.array([0])
    calm, upset = (fit(Panel.from_list([(np.arange(1000.0), values)]), whole, "robust") for values in (x, wild))
    assert abs(upset.scale[0] / calm.scale[0] - 1) < 0.05
    assert upset.apply(Panel.from_list([([0.0], [[1e9]])])).values[0, 0] < 6  # it counts as the bound
    inside = calm.apply(Panel.from_list([([0.0], [[2.0]])])).values[0, 0]
    assert inside == pytest.approx((2.0 - calm.shift[0]) / calm.scale[0], rel=1e-5)


def test_a_channel_that_is_nearly_always_one_number_keeps_its_exceptions() -> None:
    x = np.zeros((1000, 2))
    x[:2, 0] = 1.0
    x[:, 1] = np.nan
    found = fit(Panel.from_list([(np.arange(1000.0), x)]), np.array([0]), "robust")
    values = found.apply(Panel.from_list([([0.0, 1.0], [[0.0, 7.0], [1.0, np.nan]])])).values
    assert values[1, 0] > values[0, 0] + 0.5
    assert values[:, 1].tolist() == [7.0, 0.0]  # never seen in training: as it is


def test_scales_are_taken_from_training_by_name() -> None:
    panel = ragged()
    for kind in ("standard", "minmax", "robust"):
        expected = fit(panel, SERIES, kind).apply(panel).values  # type: ignore[arg-type]
        np.testing.assert_array_equal(scaled(panel, SERIES, kind).values, expected)
    assert scaled(panel, SERIES, "none") is scaled(panel, SERIES, "published") is panel
    with pytest.raises(ValueError, match="standard, minmax or robust; got 'log'"):
        scaled(panel, SERIES, "log")


@pytest.mark.parametrize("mark", [-9999.0, 1e30, 0.0])
@pytest.mark.parametrize("share", [0.001, 0.0058, 0.05, 0.2])
def test_marks_for_missing_values_do_not_ruin_a_robust_scale(mark: float, share: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(80, 10, 5000)
    values[rng.random(5000) < share] = mark
    panel = Panel.from_list([(np.arange(5000.0), values[:, None])], dtype=np.float64)
    scale = fit(panel, np.arange(1), "robust")
    low, high = ((np.array([60.0, 100.0]) - scale.shift) / scale.scale).tolist()
    assert 0.7 < high - low < 4.5  # 4 without marks
    assert scale.low[0] > -60
    assert scale.high[0] < 200


def test_rain_which_mostly_is_none_keeps_its_heavy_days() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(5000) < 0.7, 0.0, rng.exponential(5.0, 5000))
    panel = Panel.from_list([(np.arange(5000.0), values[:, None])])
    scale = fit(panel, np.arange(1), "robust")
    assert scale.high[0] > 20
    assert scale.low[0] > -10


def test_two_levels_are_both_kept() -> None:
    values = np.repeat([0.0, 1000.0, 1001.0, 1002.0], [60, 15, 15, 10])
    panel = Panel.from_list([(np.arange(100.0), values[:, None])])
    assert fit(panel, np.arange(1), "robust").scale[0] > 100
