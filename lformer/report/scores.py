"""Scores of predictions, next to those of simple baselines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from lformer.panel import Array
from lformer.report.facts import Score

FREQUENT, MEAN = "always the class shares", "always the mean"


def of_classes(truth: Array, told: dict[str, Array], classes: int) -> list[Score]:
    """Accuracy, AUC, log loss and Brier score.

    Args:
        truth: (N,) positions of the classes.
        told: (N, K) probabilities by name, first those of the model, then those of baselines.
        classes: number of classes, K.
    """
    share = np.bincount(truth, minlength=classes) / len(truth)
    told = told | {FREQUENT: np.tile(share, (len(truth), 1))}
    found = [
        _score("accuracy", told, lambda p: float((p.argmax(axis=1) == truth).mean()), higher=True),
        _score("log loss", told, lambda p: float(log_loss(truth, _proper(p), labels=np.arange(classes))), higher=False),
        _score("Brier score", told, lambda p: brier(p, truth), higher=False),
    ]
    sides = [k for k in range(classes) if 0 < share[k] < 1]
    if sides:
        sides = sides[-1:] if classes == 2 else sides

        def area(p: Array) -> float:
            return float(np.mean([roc_auc_score(truth == k, p[:, k]) for k in sides]))

        found.insert(1, _score("AUC" if classes == 2 else "AUC, mean over classes", told, area, higher=True))
    return found


def brier(probability: Array, truth: Array) -> float:
    """Mean squared error of probabilities (N, K): of the second of two classes, or summed over more than two.

    Example:
        >>> brier(np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 0]))
        0.1
    """
    missed = np.square(probability - (truth[:, None] == np.arange(probability.shape[1])))
    return float(round(missed[:, 1].mean() if probability.shape[1] == 2 else missed.sum(axis=1).mean(), 12))


def of_numbers(truth: Array, told: dict[str, Array]) -> list[Score]:
    """MAE, RMSE and R², averaged over outputs; NaN in the truth (N, K) is a missing target."""
    told = told | {MEAN: np.broadcast_to(np.nanmean(truth, axis=0), truth.shape)}
    columns = [np.isfinite(column) for column in truth.T]

    def mean(measure: Callable[[Array, Array], float]) -> Callable[[Array], float]:
        some = [(k, c) for k, c in enumerate(columns) if c.any()]
        return lambda p: float(np.mean([measure(truth[c, k], p[c, k]) for k, c in some]))

    found = [
        _score("MAE", told, mean(lambda t, p: float(np.abs(t - p).mean())), higher=False),
        _score("RMSE", told, mean(lambda t, p: float(np.sqrt(np.square(t - p).mean()))), higher=False),
    ]
    if all(c.sum() > 1 for c in columns):
        found.append(_score("R²", told, mean(r2_score), higher=True))
    return found


def of_records(compared: dict[str, float], name: str) -> list[Score]:
    """The score from the result of `compare` of an estimator of that name."""
    others = {rule: -score for rule, score in compared.items() if rule != name}
    return [Score("MSE of hidden values", -compared[name], others, False)]


def _score(metric: str, told: dict[str, Array], measure: Callable[[Array], float], higher: bool) -> Score:
    values = {name: measure(p) for name, p in told.items()}
    first, *others = values
    return Score(metric, values[first], {name: values[name] for name in others}, higher)


def _proper(p: Array) -> Array:
    """Probabilities that sum to 1 to the last digit."""
    return p / p.sum(axis=1, keepdims=True)
