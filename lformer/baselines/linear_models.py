"""Logistic and ridge regression on features: as little as can be learned from a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from lformer.baselines.tabular import Kind, Tabular
from lformer.panel import Array

PENALTIES = np.logspace(-3, 3, 10)  # of ridge regression, chosen by leaving out one line at a time


class Logistic(Tabular):
    """Logistic regression, for classes."""

    def learned(self, kind: Kind, table: Array, y: Array, weight: Array) -> Any:
        """On scaled features."""
        if kind == "numbers":
            raise ValueError("logistic tells classes, and these targets are numbers; their linear model is ridge.")
        return logistic().fit(table, y, logisticregression__sample_weight=weight)


class Ridge(Tabular):
    """Ridge regression, for numbers."""

    def learned(self, kind: Kind, table: Array, y: Array, weight: Array) -> Any:
        """On scaled features."""
        if kind == "classes":
            raise ValueError("ridge tells numbers, and these targets are classes; their linear model is logistic.")
        from sklearn.linear_model import RidgeCV

        return scaled(RidgeCV(alphas=PENALTIES)).fit(table, y, ridgecv__sample_weight=weight)


def logistic() -> Any:
    """Logistic regression on scaled features, with the penalty of scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    return scaled(LogisticRegression(max_iter=1000))


def scaled(model: Any) -> Any:
    """A linear model on scaled features; what is missing is at its mean, and marked."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler(), model)
