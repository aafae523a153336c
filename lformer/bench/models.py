"""Every model of the benchmark by name, behind one constructor."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from lformer.baselines import BASELINES, FittedAtOnce
from lformer.nn import LFormer, LFormerConfig


class Entry(NamedTuple):
    """A model and its configuration."""

    model: type[nn.Module]
    config: type[Any]

    @property
    def at_once(self) -> bool:
        """Whether it is fitted at once, by `model.fit(part, task)`, and not trained: naive forecasts, boosting."""
        return issubclass(self.model, FittedAtOnce)


MODELS: dict[str, Entry] = {"lformer": Entry(LFormer, LFormerConfig)} | {
    name: Entry(*baseline) for name, baseline in BASELINES.items()
}


def entry(name: str) -> Entry:
    """A model by name, or an error that lists them."""
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; there are {', '.join(MODELS)}.")
    return MODELS[name]


def build(name: str, config: Any) -> nn.Module:
    """A model of a configuration."""
    return entry(name).model(config)
