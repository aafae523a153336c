"""lformer where other libraries put estimators: `lformer.adapters.aeon` and `lformer.adapters.sktime`."""

from __future__ import annotations

from typing import Any, TypeVar

from sklearn.base import clone

from lformer.estimators.base import LFormerEstimator

E = TypeVar("E", bound=LFormerEstimator)


def configured(estimator: E | None, kind: Any, random_state: Any) -> E:
    """A clone of the estimator that somebody gave, or one with the defaults of its class."""
    if estimator is not None and not isinstance(estimator, kind):
        raise TypeError(f"estimator must be an {kind.__name__} or None; got a {type(estimator).__name__}.")
    chosen: E = kind() if estimator is None else clone(estimator)
    return chosen if random_state is None else chosen.set_params(random_state=random_state)
