"""A classifier and a regressor for sktime, whose series are tables indexed by time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lformer.adapters import configured
from lformer.estimators import LFormerClassifier, LFormerRegressor
from lformer.panel import Array, Panel

try:
    from sktime.classification.base import BaseClassifier
    from sktime.regression.base import BaseRegressor
except ImportError as error:
    raise ImportError(
        'lformer.adapters.sktime needs sktime; install it with: pip install "lformer[adapters]"'
    ) from error

TAGS: dict[str, Any] = {
    "authors": "lformer",
    "X_inner_mtype": "df-list",
    "y_inner_mtype": "numpy1D",
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "capability:missing_values": True,
    "capability:random_state": True,
    "property:randomness": "derandomized",
}
TEST_PARAMETERS: dict[str, Any] = {
    "width": 8,
    "depth": 1,
    "heads": 2,
    "max_epochs": 1,
    "random_state": 0,
    "device": "cpu",
}
SMALLER = TEST_PARAMETERS | {"width": 4, "heads": 1}


class SktimeClassifier(BaseClassifier):  # type: ignore[misc]
    """An `LFormerClassifier` for sktime's pipelines, searches and benchmarks.

    The index of a series holds its times: numbers, dates, durations or periods. For arrays, consecutive rows are one
    unit of time apart. NaN means not observed.

    Args:
        estimator: the estimator to train; `LFormerClassifier()` if None. It is cloned, and the fitted clone is
            `estimator_`.
        random_state: replaces the random state of the estimator, unless it is None.

    Example:
        >>> import numpy as np
        >>> from lformer import LFormerClassifier
        >>> from lformer.adapters.sktime import SktimeClassifier
        >>> X = np.random.default_rng(0).normal(size=(20, 2, 7))  # (instances, channels, time)
        >>> model = SktimeClassifier(LFormerClassifier(width=8, max_epochs=1, random_state=0))
        >>> model.fit(X, np.array(["a", "b"] * 10)).predict(X[:3]).shape
        (3,)
    """

    _tags: ClassVar[dict[str, Any]] = TAGS | {"capability:predict_proba": True}

    def __init__(self, estimator: LFormerClassifier | None = None, random_state: Any = None) -> None:
        self.estimator = estimator
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Array) -> SktimeClassifier:
        self.estimator_ = configured(self.estimator, LFormerClassifier, self.random_state).fit(stamped(X), y)
        return self

    def _predict(self, X: Any) -> Array:
        return self.estimator_.predict(stamped(X))

    def _predict_proba(self, X: Any) -> Array:
        return self.estimator_.predict_proba(stamped(X))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Arguments for sktime's checks."""
        return [{"estimator": LFormerClassifier(**TEST_PARAMETERS)}, {"estimator": LFormerClassifier(**SMALLER)}]


class SktimeRegressor(BaseRegressor):  # type: ignore[misc]
    """An `LFormerRegressor` for sktime, with the arguments of `SktimeClassifier`.

    Example:
        >>> import numpy as np
        >>> from lformer import LFormerRegressor
        >>> from lformer.adapters.sktime import SktimeRegressor
        >>> X = np.random.default_rng(0).normal(size=(20, 2, 7))  # (instances, channels, time)
        >>> model = SktimeRegressor(LFormerRegressor(width=8, max_epochs=1, random_state=0))
        >>> model.fit(X, X.mean(axis=(1, 2))).predict(X[:3]).shape
        (3,)
    """

    _tags: ClassVar[dict[str, Any]] = TAGS

    def __init__(self, estimator: LFormerRegressor | None = None, random_state: Any = None) -> None:
        self.estimator = estimator
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Array) -> SktimeRegressor:
        self.estimator_ = configured(self.estimator, LFormerRegressor, self.random_state).fit(stamped(X), y)
        return self

    def _predict(self, X: Any) -> Array:
        return self.estimator_.predict(stamped(X))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Arguments for sktime's checks."""
        return [{"estimator": LFormerRegressor(**TEST_PARAMETERS)}, {"estimator": LFormerRegressor(**SMALLER)}]


def stamped(X: Any) -> Panel:
    """A panel from a list of tables indexed by time; for periods, their start is used."""
    tables = [one.set_axis(one.index.to_timestamp()) if hasattr(one.index, "to_timestamp") else one for one in X]
    channels = [str(name) for name in tables[0].columns]
    series = [
        (table.index.to_numpy() if _plain(table) else table.index, table.to_numpy(np.float64)) for table in tables
    ]
    return Panel.from_list(series, channels=channels)


def _plain(table: Any) -> bool:
    """Whether the times are numbers; dates are kept as an index, which may have a time zone."""
    return table.index.dtype.kind in "iuf"
