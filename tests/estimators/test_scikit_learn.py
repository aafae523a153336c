"""scikit-learn's own checks, at the default size of the model; docs/scikit-learn.md says how many pass."""

import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from lformer import (
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerRegressor,
)
from lformer.estimators import ExtrapolationWarning, Summaries

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"


class SpreadClassifier(LFormerPointClassifier):
    """Takes one target per series, as scikit-learn's checks give them, for each of its rows."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return super().fit(X, spread(X, y), sample_weight)

    def predict(self, X: Any) -> Any:
        return padded(super().predict(X))

    def predict_proba(self, X: Any) -> Any:
        return padded(super().predict_proba(X))

    def score(self, X: Any, y: Any) -> float:
        return super().score(X, spread(X, y))


class SpreadRegressor(LFormerPointRegressor):
    """The same for numbers."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return super().fit(X, spread(X, y), sample_weight)

    def predict(self, X: Any) -> Any:
        return padded(super().predict(X))

    def score(self, X: Any, y: Any) -> float:
        return super().score(X, spread(X, y))


class AskedInterpolator(LFormerInterpolator):
    """Asks at two times, as scikit-learn's checks ask for nothing."""

    def predict(self, X: Any, query_times: Any = (0.5, 1e3)) -> Any:
        return np.stack(super().predict(X, query_times))


class AskedForecaster(LFormerForecaster):
    """The same after the end, further ahead than any series is long."""

    def predict(self, X: Any, query_times: Any = (1e3, 2e3)) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            return np.stack(super().predict(X, query_times))


def spread(X: Any, y: Any) -> Any:
    X, y = np.asarray(X), y if y is None else np.asarray(y)
    return y if y is None or X.ndim < 2 or y.shape != (len(X),) else np.repeat(y[:, None], X.shape[1], axis=1)


def padded(told: list[Any]) -> Any:
    """One array, the last answer repeated where a series of the check ends early."""
    longest = max(map(len, told))
    return np.stack([np.concatenate([one, np.repeat(one[-1:], longest - len(one), axis=0)]) for one in told])


SMALL = {"max_epochs": 1, "random_state": 3, "device": "cpu"}  # of training: the model has its default size
ESTIMATORS: dict[str, Any] = {
    "LFormerClassifier": LFormerClassifier(**SMALL),
    "LFormerRegressor": LFormerRegressor(**SMALL),
    "LFormerPointClassifier": SpreadClassifier(**SMALL),
    "LFormerPointRegressor": SpreadRegressor(**SMALL),
    "LFormerInterpolator": AskedInterpolator(**SMALL),
    "LFormerForecaster": AskedForecaster(**SMALL, extrapolate="warn"),
    "Summaries": Summaries(),
}
LONGER = {  # it asks for a good fit
    "check_regressors_train": {"max_epochs": 10, "batch_size": 16, "lr": 0.01, "dropout": 0, "drop_fraction": 0}
}

# What is expected to fail, and why; the page says the same.
WEIGHTS, COLUMNS, ROUNDING = (
    ("check_sample_weight_equivalence_on_dense_data",),
    ("check_n_features_in_after_fitting",),
    ("check_methods_subset_invariance", "check_methods_sample_order_invariance"),
)
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "LFormerClassifier": (*WEIGHTS, *ROUNDING),
    "LFormerRegressor": (*WEIGHTS, *ROUNDING),
    "LFormerPointClassifier": (*WEIGHTS, *ROUNDING),
    "LFormerPointRegressor": (*WEIGHTS, *ROUNDING),
    "LFormerInterpolator": (*COLUMNS, *ROUNDING),
    "LFormerForecaster": (*COLUMNS, *ROUNDING),
    "Summaries": (),
}
SKIPPED = ("check_array_api_input",)  # what scikit-learn leaves out by itself

CHECKS = [(name, check) for name, estimator in ESTIMATORS.items() for _, check in estimator_checks_generator(estimator)]


def called(check: Any) -> str:
    return str(check.func.__name__)


def named(one: Any) -> str:
    return one if isinstance(one, str) else called(one)


def status(name: str, check: Any) -> str:
    """How a check should end."""
    if called(check) in SKIPPED:
        return "skipped"
    return "exceptions" if called(check) in EXCEPTIONS[name] else "pass"


@pytest.mark.filterwarnings("ignore")  # scikit-learn's checks provoke warnings
@pytest.mark.parametrize(("name", "check"), CHECKS, ids=named)
def test_a_check_ends_as_the_page_says(name: str, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCIPY_ARRAY_API", raising=False)
    estimator = ESTIMATORS[name]
    if called(check) in LONGER:
        estimator = type(estimator)(**estimator.get_params() | LONGER[called(check)])
    found = "pass"
    try:
        check(estimator)
    except SkipTest:
        found = "skipped"
    except (AssertionError, ValueError) as error:
        if status(name, check) != "exceptions" or (called(check) in ROUNDING and not small(error)):
            raise
        found = "exceptions"
    if called(check) not in ROUNDING:  # whether the last digit is rounded alike is up to the machine
        assert found == status(name, check)


def small(error: Exception) -> bool:
    """Whether answers differ by no more than float32 is rounded."""
    largest = re.findall(r"Max (?:absolute|relative) difference among violations: ([0-9.e+-]+)", str(error))
    return len(largest) == 2 and min(map(float, largest)) < 2e-6


def table() -> dict[str, tuple[int, ...]]:
    """The rows of the page: checks, pass, exceptions, skipped."""
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    return {name: tuple(map(int, numbers)) for name, *numbers in rows}


def test_the_page_counts_as_the_tests_do() -> None:
    counted = {name: Counter(status(name, check) for one, check in CHECKS if one == name) for name in ESTIMATORS}
    assert table() == {
        name: (found.total(), found["pass"], found["exceptions"], found["skipped"]) for name, found in counted.items()
    }


def test_every_exception_is_named_on_the_page() -> None:
    text = PAGE.read_text()
    assert [check for checks in EXCEPTIONS.values() for check in checks if f"`{check}`" not in text] == []
