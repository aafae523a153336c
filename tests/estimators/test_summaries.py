"""Summary features: by hand, and in the company they are made for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from lformer import Panel
from lformer.estimators import Summaries


def ward() -> Panel:
    nan = np.nan
    static = pd.DataFrame({"age": [61.0, nan, 40.0], "unit": ["a", "b", None]}, index=["p", "q", "r"])
    made = Panel.from_list(
        [
            ([0.0, 1.0, 3.0], [[2.0, nan], [nan, 7.0], [8.0, nan]]),
            ([5.0], [[1.0, 4.0]]),
            ([1.0, 2.0], [[nan, 3.0], [nan, 3.0]]),
        ],
        ids=["p", "q", "r"],
        channels=["na", "k"],
    )
    return replace(made, static=static)


def test_by_hand() -> None:
    found = Summaries().fit_transform(ward())
    nan = np.nan
    np.testing.assert_array_equal(
        found,
        [
            [2, 5, 8, 2, 8, 2, 1, 7, 7, 7, 7, nan, 61, 1, 0],
            [1, 1, 1, 1, 1, nan, 1, 4, 4, 4, 4, nan, nan, 0, 1],
            [0, nan, nan, nan, nan, nan, 2, 3, 3, 3, 3, 0, 40, 0, 0],
        ],
    )


def test_the_slope_is_that_of_a_line_fitted_through_the_points() -> None:
    rng = np.random.default_rng(0)
    t, x = np.sort(rng.random(20)) * 50 + 1e6, rng.standard_normal(20)
    (row,) = Summaries().fit_transform(Panel.from_list([(t, x[:, None])]))
    assert row[5] == pytest.approx(np.polyfit(t - 1e6, x, 1)[0], rel=1e-6)


def test_columns_are_named_in_order() -> None:
    names = Summaries().fit(ward()).get_feature_names_out()
    assert names[:6].tolist() == ["na count", "na mean", "na last", "na min", "na max", "na slope"]
    assert names[12:].tolist() == ["age", "unit a", "unit b"]


def test_new_data_follow_the_channels_and_covariates_of_fit() -> None:
    made, fitted = ward(), Summaries().fit(ward())
    swapped = replace(
        made, values=made.values[:, ::-1], observed=made.observed[:, ::-1], channels=("k", "na")  # type: ignore[index]
    )  # fmt: skip
    np.testing.assert_array_equal(fitted.transform(swapped), fitted.transform(made))
    with pytest.raises(ValueError, match="the covariate 'age' was there in fit"):
        fitted.transform(replace(made, static=None))
    np.testing.assert_array_equal(fitted.transform(made[[2, 0]]), fitted.transform(made)[[2, 0]])


def test_in_a_pipeline_under_cross_validation() -> None:
    rng = np.random.default_rng(1)
    X = Panel.from_list([(np.sort(rng.random(8)), rng.normal(i % 2, 1, (8, 2))) for i in range(100)])
    scores = cross_val_score(make_pipeline(Summaries(), HistGradientBoostingClassifier()), X, np.arange(100) % 2, cv=3)
    assert scores.mean() > 0.7
