"""Data sets by name: `load(name)` gives training, validation and test part, ready to train on."""

from collections.abc import Callable
from functools import partial
from typing import Any

from lformer.data import spirals
from lformer.data.splits import Part, Splits

__all__ = ["DATASETS", "Part", "Splits", "load"]

DATASETS: dict[str, Callable[..., Splits[Any]]] = {
    "spiral-2": partial(spirals.load, 2.0),
    "spiral-0.2": partial(spirals.load, 0.2),
    "spiral-0.02": partial(spirals.load, 0.02),
}


def load(name: str, *, seed: int = 42, **options: Any) -> Splits[Any]:
    """A data set by name; further options are those of its own `load`.

    Example:
        >>> splits = load("spiral-0.02", points=30)
        >>> len(splits.train), len(splits.validation), len(splits.test)
        (170, 30, 100)
    """
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}; there are {', '.join(DATASETS)}.")
    return DATASETS[name](seed=seed, **options)
