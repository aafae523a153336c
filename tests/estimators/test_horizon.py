"""How far ahead a forecaster looks, said as a number or as a duration."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import SMALL, answers, records, same
from sklearn.base import clone

from lformer import LFormerForecaster, Panel
from lformer.estimators import load
from lformer.estimators.horizon import check_horizon, in_unit

DURATIONS = ["2.5h", "150min", timedelta(minutes=150), pd.Timedelta("2.5h"), np.timedelta64(150, "m")]


@pytest.mark.parametrize("horizon", DURATIONS, ids=lambda one: type(one).__name__)
def test_a_duration_is_the_number_in_the_unit_of_the_times(horizon: Any, tmp_path: Path) -> None:
    X = records(dated=True)
    assert X.unit == "h"
    told = answers(LFormerForecaster(**SMALL, horizon=2.5).fit(X), X)
    model = clone(LFormerForecaster(**SMALL, horizon=horizon)).fit(X)
    assert same(answers(model, X), told)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert in_unit(again.horizon, X) == 2.5
    assert same(answers(again, X), told)


def test_the_unit_of_the_panel_counts() -> None:
    stamps = np.array(["2024-01-01", "2024-01-03", "2024-03-01"], "datetime64[s]")
    for unit, length in (("s", 28 * 86400), ("h", 28 * 24), ("D", 28)):
        assert in_unit("28D", Panel.from_list([(stamps, [1.0, 2.0, 3.0])], unit=unit)) == length


def test_a_duration_and_times_without_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"horizon='28D' is a duration, but the times of X are numbers. Give"):
        LFormerForecaster(**SMALL, horizon="28D").fit(records())


@pytest.mark.parametrize("horizon", ["28", "soon", "1M", "-2h", "0s", pd.NaT, 0, -1.0, np.inf, np.nan, True, [3]])
def test_what_is_no_horizon_is_refused(horizon: Any) -> None:
    with pytest.raises(ValueError, match=r"horizon must be .*; got"):
        LFormerForecaster(**SMALL, horizon=horizon).fit(records(dated=True))


def test_numbers_and_none_are_as_they_were() -> None:
    for horizon in (None, 2, 2.0, np.float32(2)):
        check_horizon(horizon)
