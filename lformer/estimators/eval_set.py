"""Series that the user provides for validation: they are appended to the training series, and only validate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from lformer.estimators.inputs import alike, require_dates
from lformer.panel import Array, Panel, join
from lformer.parts import Targets

Part = tuple[Panel, Targets]


def pair(eval_set: Any) -> tuple[Any, Any]:
    """Series and targets of `eval_set=(X, y)`, or of a list that contains this pair."""
    if isinstance(eval_set, list) and len(eval_set) == 1:
        (eval_set,) = eval_set
    if not isinstance(eval_set, tuple) or len(eval_set) != 2:
        raise ValueError(
            f"eval_set must be (X, y), the series to validate on and their targets; got {type(eval_set).__name__}."
        )
    return eval_set


@contextmanager
def named() -> Iterator[None]:
    """Prefix errors raised inside with `eval_set`."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"eval_set: {error}") from error


def codes(labels: Array, classes: Array) -> Array:
    """(n,) int64 position of each label among the classes of training."""
    found = np.isin(labels, classes)
    if not found.all():
        new = np.unique(labels[~found]).tolist()
        raise ValueError(f"classes {new[:5]} are not among those of training, {classes.tolist()[:8]}.")
    return np.searchsorted(classes, labels).astype(np.int64)


def joined(train: Panel, validation: Panel) -> Panel:
    """Training series followed by the validation series, whose channels and clock must agree with them."""
    validation = alike(validation, train)
    if train.origin.dtype.kind == "M":
        require_dates(validation.origin.dtype.kind, validation.zone, train.zone, "its times")
    return join([train, validation])


def joined_parts(train: Part, validation: Part) -> Part:
    """The same with targets, one per series or per row."""
    (panel, asked), (more, also) = train, validation
    observed = None
    if asked.observed is not None and also.observed is not None:
        observed = np.concatenate([asked.observed, also.observed])
    if asked.values.shape[1:] != also.values.shape[1:]:
        raise ValueError(f"y must be of shape {asked.values.shape[1:]} as in training; got {also.values.shape[1:]}.")
    assert asked.weights is not None
    targets = replace(
        asked,
        values=np.concatenate([asked.values, also.values]),
        observed=observed,
        weights=np.concatenate([asked.weights, np.ones(len(more))]),
    )
    return joined(panel.compact(), more), targets
