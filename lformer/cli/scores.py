"""Scores of a model on held-out series, next to those of a simple baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table
from sklearn.metrics import roc_auc_score

from lformer.cli.common import console
from lformer.panel import Array, Panel

HIDDEN = "MSE of hidden rows"
LOWER_IS_BETTER = ("MAE", "RMSE", HIDDEN)
Scores = dict[str, tuple[float, float]]  # metric: of the model, of the baseline


def of_classes(classes: Array, probability: Array, known: Array, truth: Array) -> Scores:
    """Accuracy, next to that of the most frequent class, and AUC of each class against the others, averaged."""
    seen, count = np.unique(known, return_counts=True)
    hit = float((classes[probability.argmax(axis=1)] == truth).mean())
    scores = {"accuracy": (hit, float((truth == seen[count.argmax()]).mean()))}
    sides = [(truth == name, probability[:, i]) for i, name in enumerate(classes)]
    areas = [roc_auc_score(side, score) for side, score in sides if side.any() and not side.all()]
    return {**scores, "AUC": (float(np.mean(areas)), 0.5)} if areas else scores


def of_numbers(told: Array, known: Array, truth: Array) -> Scores:
    """Errors, next to those of the mean of the training targets; rows without a target do not count."""
    there = np.isfinite(truth)
    errors = (told - truth)[there], (np.nanmean(known) - truth)[there]
    mae = [float(np.abs(error).mean()) for error in errors]
    rmse = [float(np.sqrt(np.square(error).mean())) for error in errors]
    return {"MAE": (mae[0], mae[1]), "RMSE": (rmse[0], rmse[1])}


def of_records(model: Any, panel: Panel) -> Scores:
    """Mean squared error on hidden rows, in standard deviations of each channel, next to that of the best baseline."""
    return {HIDDEN: (-model.score(panel), -model.baseline_score(panel))}


def show(scores: Scores, train: int, test: int) -> str:
    """Print the scores; returns a remark if the model is no better than the baseline, else an empty string."""
    table = Table(title=f"{test:,} series held out, {train:,} to train and validate")
    for column in ("metric", "model", "baseline"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for metric, pair in scores.items():
        table.add_row(metric, *(f"{number:.4g}" for number in pair))
    console.print(table)
    metric, (model, simple) = next(iter(scores.items()))
    better = model < simple if metric in LOWER_IS_BETTER else model > simple
    return "" if better else f"By {metric}, the model is no better than the baseline: more series or epochs may help."
