"""Half-lives: the closed form, what is not reached, ragged series, ensembles."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from estimators.every_estimator import SIX, fitted, records

from lformer import LFormerClassifier, LFormerForecaster, LFormerPretrainer, Panel
from lformer.batch import IrregularBatch
from lformer.estimators.base import members_of
from lformer.explain import half_life, plot_half_life
from lformer.explain.fading import durations, quantiles


def uneven(lengths: list[int], seed: int = 0) -> IrregularBatch:
    rng = np.random.default_rng(seed)
    series = [(np.cumsum(rng.exponential(1.0, n)), rng.normal(size=(n, 2))) for n in lengths]
    return IrregularBatch.from_series(series)


def test_a_constant_rate_has_the_half_life_of_the_closed_form() -> None:
    rate, batch = 0.37, uneven([60, 41, 3, 1])
    lasted, reached = durations(rate * batch.deltas.double(), batch)
    np.testing.assert_allclose(lasted[reached], math.log(2) / rate, rtol=1e-6)  # deltas are float32
    assert reached.any()
    assert not reached.all()


def test_what_is_not_reached_lasted_until_the_last_row() -> None:
    batch = IrregularBatch.from_series([([0.0, 1.0, 1.5, 4.0], np.ones((4, 1))), ([3.0, 3.5], np.ones((2, 1)))])
    decay = torch.tensor([[0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.0, 0.0]])
    lasted, reached = durations(decay, batch)
    assert not reached.any()
    assert lasted.tolist() == [4.0, 3.0, 2.5, 0.0, 0.5, 0.0]


def test_between_rows_it_is_interpolated_in_time() -> None:
    batch = IrregularBatch.from_series([([0.0, 2.0, 10.0], np.ones((3, 1)))])
    lasted, reached = durations(torch.tensor([[0.5, 0.0, 2 * math.log(2)]]), batch)
    assert lasted[reached].tolist() == pytest.approx([6.0])  # half of the last interval; row 1 never entered


def test_rows_that_hold_or_write_nothing_are_not_followed() -> None:
    nan = float("nan")
    batch = IrregularBatch.from_series([([0.0, 1.0, 1.0, 2.0], [[1.0], [nan], [2.0], [3.0]])])
    lasted, _ = durations(torch.tensor([[1.0, 1.0, 0.0, 1.0]]), batch)
    assert len(lasted) == 2  # the second is empty, the third a tie


def test_quartiles_take_an_early_end_for_what_it_is() -> None:
    rng = np.random.default_rng(0)
    truth, end = rng.exponential(4.0, 20_000), rng.uniform(0, 9, 20_000)
    found = quantiles(np.minimum(truth, end), truth <= end, (0.25, 0.5, 0.75))
    np.testing.assert_allclose(found, -4 * np.log([0.75, 0.5, 0.25]), rtol=0.05)
    assert quantiles(np.array([1.0, 2.0]), np.array([True, False]), (0.5, 0.75)) == [1.0, math.inf]


def with_constant_gates(model: Any) -> Any:
    """A model whose gate value is 1/2 whatever it reads."""
    for member in members_of(model.model_):
        for mixer in member.blocks:
            assert mixer.liquid.gate is not None
            mixer.liquid.gate.weight.data.zero_()
            mixer.liquid.gate.bias.data.zero_()
            mixer.liquid.mu.theta.data.fill_(-30.0)  # only the row itself counts, also in the first
    return model


def long_series(n: int = 6) -> Panel:
    rng = np.random.default_rng(4)
    series = []
    for k in range(n):
        values = rng.normal(size=(30 + 7 * k, 2))
        values[rng.random(values.shape) < 0.3] = np.nan
        values[:, 0] = np.where(np.isnan(values).all(axis=1), 1.0, values[:, 0])
        series.append((np.cumsum(rng.exponential(0.5, len(values))), values))
    return Panel.from_list(series, channels=["k", "na"], unit="h")


def test_a_model_that_shares_out_one_budget_halves_after_ln_2_of_it() -> None:
    X = long_series(1)
    model = with_constant_gates(fitted(LFormerForecaster, long_series(), depth=2))
    table = half_life(model, X)
    span = float(X.times[-1] - X.times[0])
    budget = span * len(X.times) / (len(X.times) - 1)  # the first row has the mean interval
    np.testing.assert_allclose(table["median"], math.log(2) * budget, rtol=1e-4)
    np.testing.assert_allclose(table["upper"], math.log(2) * budget, rtol=1e-4)
    assert (table["not_reached"] > 0.5).all()
    assert table[["layer", "head"]].to_numpy().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    assert table.attrs["unit"] == "h"


def test_a_streaming_model_halves_when_twice_as_much_has_gone_by() -> None:
    X = long_series(1)
    model = with_constant_gates(fitted(LFormerForecaster, long_series(), streaming=True))
    clock = X.times - X.times[0] + float(model.model_.first_interval)
    passed = np.diff(np.concatenate([[0.0], clock])) / clock
    total = np.cumsum(passed)
    expected = []
    for n in range(len(clock)):
        after = np.flatnonzero(total >= total[n] + math.log(2))
        if len(after):
            m = after[0]
            share = (total[n] + math.log(2) - total[m - 1]) / passed[m]
            expected.append(clock[m - 1] + share * (clock[m] - clock[m - 1]) - clock[n])
    table = half_life(model, X)
    assert table["not_reached"].tolist() == pytest.approx([1 - len(expected) / len(clock)] * 2)
    assert min(expected) <= table["lower"][0] <= table["median"][0] <= max(expected)
    from lformer.estimators.asking import matched, unasked

    batch = unasked(model, matched(model, X)).batch(np.array([0]))
    [decay] = model.model_.decays(batch)
    lasted, reached = durations(decay[..., 0].detach(), batch)
    np.testing.assert_allclose(lasted[reached], expected, rtol=1e-3)


@pytest.mark.parametrize("kind", SIX)
@pytest.mark.parametrize("dated", [False, True])
def test_every_estimator_has_half_lives_that_padding_does_not_change(kind: Any, dated: bool) -> None:
    X = records(dated=dated)
    model = fitted(kind, X)
    table = half_life(model, X)
    assert len(table) == model.depth * model.heads
    assert (table["lower"] <= table["median"]).all()
    assert (table["median"] <= table["upper"]).all()
    assert table.attrs["unit"] == X.unit
    alone = [half_life(model.set_params(batch_size=size), X) for size in (1, 5)]
    np.testing.assert_allclose(alone[0].to_numpy(), alone[1].to_numpy(), rtol=1e-4)
    np.testing.assert_allclose(alone[0].to_numpy(), table.to_numpy(), rtol=1e-4)


def test_each_member_of_an_ensemble_has_its_own() -> None:
    model = fitted(LFormerClassifier, members=2)
    table = half_life(model, records())
    assert table["member"].tolist() == [1, 1, 2, 2]
    assert table["not_reached"].nunique() > 1


def test_a_pretrainer_and_an_unfitted_estimator_are_refused() -> None:
    with pytest.raises(TypeError, match="fit an estimator from it"):
        half_life(LFormerPretrainer(width=8, heads=2, depth=1, max_epochs=1).fit(records()), records())
    with pytest.raises(ValueError, match="not fitted"):
        half_life(LFormerClassifier(), records())


def test_the_plot_shows_what_is_not_reached() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    table = half_life(fitted(LFormerClassifier), records())
    table.loc[0, ["lower", "median", "upper"]] = math.inf
    table.attrs["unit"] = "s"
    table.loc[1, ["lower", "median", "upper"]] = 7200.0, 10800.0, 36000.0
    figure = plot_half_life(table)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["layer 1, head 1", "layer 1, head 2"]
    assert figure.axes[0].lines[1].get_xdata().tolist() == [3.0]
    assert "not reached" in [text.get_text() for text in figure.axes[0].texts]
    assert figure.axes[0].get_xlabel() == "half-life (h)"
    plt.close(figure)
