"""MiniRocket: ten thousand random convolutions of a regular grid and a ridge on what they find (Dempster et al. 2021).

The convolutions are aeon's: `pip install "lformer[adapters]"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lformer.baselines.fitted import READ
from lformer.baselines.linear_models import PENALTIES
from lformer.baselines.neighbourhood import along, clocks, observed_mean
from lformer.baselines.tabular import Kind, Tabular, TabularConfig
from lformer.batch import IrregularBatch
from lformer.panel import Array
from lformer.parts import Part

SHORTEST = 9  # points that a kernel spans


@dataclass(frozen=True, kw_only=True)
class MiniRocketConfig(TabularConfig):
    """A grid, and what is drawn for its convolutions; static covariates are not read.

    Attributes:
        steps: points of the grid; as many as the longest training series has rows if None.
        random_state: of the biases that the convolutions are compared with.
    """

    steps: int | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answer != "series":
            raise ValueError(f'minirocket reads whole series: answer must be "series"; got {self.answer!r}.')
        if self.statics:
            raise ValueError(f"minirocket reads no static covariates: statics must be 0; got {self.statics}.")
        if self.steps is not None and self.steps < SHORTEST:
            raise ValueError(f"steps must be at least {SHORTEST}, the length of a kernel; got {self.steps}.")


class MiniRocket(Tabular):
    """Channels along the line between observations, from the start of a series to the longest time in training."""

    config: MiniRocketConfig

    def __init__(self, config: MiniRocketConfig) -> None:
        super().__init__(config)
        aeon("aeon.transformations.collection.convolution_based", "MiniRocket")  # missing? Say so before data are read

    def look(self, part: Part) -> None:
        """Learn where the grid lies, and the means of the channels."""
        rows, end = SHORTEST, 0.0
        for batch in part.batches(READ):
            rows, end = max(rows, int(batch.lengths.max())), max(end, float(batch.times.max()))
        self.mean = observed_mean(part.batches(READ))
        self.grid = np.linspace(0.0, end, self.config.steps or rows)

    def series(self, batch: IrregularBatch) -> Array:
        """(B, C, steps)"""
        return np.stack([along(times, values, self.grid, self.mean).T for times, values in clocks(batch)])

    def learned(self, kind: Kind, table: Array, y: Array, weight: Array) -> Any:
        """Convolutions and the ridge."""
        model = minirocket(kind, self.config.random_state)
        return model.fit(table, y, **{f"{model.steps[-1][0]}__sample_weight": weight})


def minirocket(kind: Kind, seed: int) -> Any:
    """Convolutions of arrays (n, C, steps) and a ridge, as their authors combine them."""
    from sklearn.linear_model import RidgeClassifierCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kernels = aeon("aeon.transformations.collection.convolution_based", "MiniRocket")(random_state=seed)
    ridge = RidgeClassifierCV(alphas=PENALTIES) if kind == "classes" else RidgeCV(alphas=PENALTIES)
    return make_pipeline(kernels, StandardScaler(with_mean=False), ridge)


def aeon(module: str, name: str) -> Any:
    """A class of aeon, or an error that says how to install it."""
    from importlib import import_module

    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise ImportError("this rival comes from aeon; install it with: pip install 'lformer[adapters]'") from error
