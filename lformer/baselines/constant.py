"""Constant: the same answer whatever the series, the level at which nothing was learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from lformer.baselines.tabular import Kind, Tabular
from lformer.batch import IrregularBatch
from lformer.panel import Array
from lformer.parts import Part


class Constant(Tabular):
    """The classes' shares among the training targets, and so the most frequent class; or the mean of the targets."""

    def look(self, part: Part) -> None:
        """Nothing is described."""

    def features(self, batch: IrregularBatch) -> Array:
        """(N, 1), nothing of each series or row"""
        return np.zeros((len(batch) if self.config.answer == "series" else int(batch.lengths.sum()), 1))

    def learned(self, kind: Kind, table: Array, y: Array, weight: Array) -> Any:
        """Shares or mean."""
        from sklearn.dummy import DummyClassifier, DummyRegressor

        model = DummyClassifier(strategy="prior") if kind == "classes" else DummyRegressor()
        return model.fit(table, y, weight)
