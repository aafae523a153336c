"""Adapters that make the estimators available in other libraries: aeon and sktime."""

from __future__ import annotations

from typing import Any, TypeVar

from sklearn.base import clone

from lformer.estimators.base import LFormerEstimator

E = TypeVar("E", bound=LFormerEstimator)


def configured(estimator: E | None, kind: Any, random_state: Any) -> E:
    """A clone of the given estimator, or a new one of its class with default arguments."""
    if estimator is not None and not isinstance(estimator, kind):
        raise TypeError(f"estimator must be an {kind.__name__} or None; got {type(estimator).__name__}.")
    chosen: E = kind() if estimator is None else clone(estimator)
    return chosen if random_state is None else chosen.set_params(random_state=random_state)
