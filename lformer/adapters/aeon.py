"""A classifier and a regressor for aeon, whose series are arrays (channels, time) without time stamps."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lformer.adapters import configured
from lformer.estimators import LFormerClassifier, LFormerRegressor
from lformer.panel import Array, Panel

try:
    from aeon.classification.base import BaseClassifier
    from aeon.regression.base import BaseRegressor
except ImportError as error:
    raise ImportError('lformer.adapters.aeon needs aeon; install it with: pip install "lformer[adapters]"') from error

TAGS: dict[str, Any] = {
    "X_inner_type": ["np-list", "numpy3D"],
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "capability:missing_values": True,
    "algorithm_type": "deeplearning",
}
TEST_PARAMETERS: dict[str, Any] = {
    "width": 8,
    "depth": 1,
    "heads": 2,
    "max_epochs": 1,
    "random_state": 0,
    "device": "cpu",
}


class AeonClassifier(BaseClassifier):  # type: ignore[misc]
    """An `LFormerClassifier` for aeon's pipelines, comparisons and searches.

    aeon's series have no time stamps, so consecutive rows are one unit of time apart. NaN means not observed.

    Args:
        estimator: the estimator to train; `LFormerClassifier()` if None. It is cloned, and the fitted clone is
            `estimator_`.
        random_state: replaces the random state of the estimator, unless it is None.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(20, 2, 7))  # (cases, channels, time)
        >>> model = AeonClassifier(LFormerClassifier(width=8, max_epochs=1, random_state=0))
        >>> model.fit(X, np.array(["a", "b"] * 10)).predict(X[:3]).shape
        (3,)
    """

    _tags: ClassVar[dict[str, Any]] = TAGS

    def __init__(self, estimator: LFormerClassifier | None = None, random_state: Any = None) -> None:
        self.estimator = estimator
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Array) -> AeonClassifier:
        self.estimator_ = configured(self.estimator, LFormerClassifier, self.random_state).fit(unit_spaced(X), y)
        return self

    def _predict(self, X: Any) -> Array:
        return self.estimator_.predict(unit_spaced(X))

    def _predict_proba(self, X: Any) -> Array:
        return self.estimator_.predict_proba(unit_spaced(X))

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Arguments for aeon's checks."""
        return {"estimator": LFormerClassifier(**TEST_PARAMETERS)}


class AeonRegressor(BaseRegressor):  # type: ignore[misc]
    """An `LFormerRegressor` for aeon, with the arguments of `AeonClassifier`."""

    _tags: ClassVar[dict[str, Any]] = TAGS

    def __init__(self, estimator: LFormerRegressor | None = None, random_state: Any = None) -> None:
        self.estimator = estimator
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Array) -> AeonRegressor:
        self.estimator_ = configured(self.estimator, LFormerRegressor, self.random_state).fit(unit_spaced(X), y)
        return self

    def _predict(self, X: Any) -> Array:
        return self.estimator_.predict(unit_spaced(X))

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Arguments for aeon's checks."""
        return {"estimator": LFormerRegressor(**TEST_PARAMETERS)}


def unit_spaced(X: Any) -> Panel:
    """A panel from an array (n, channels, time) or a list of (channels, time), with times 0, 1, 2, ..."""
    return Panel.from_list([(np.arange(one.shape[1]), np.asarray(one).T) for one in X])
