"""Observed against nominal coverage of prediction intervals and sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lformer.doctor.words import number, percent
from lformer.drawing import line, svg, text
from lformer.estimators.asking import judged, of_classes
from lformer.estimators.class_sets import class_scores
from lformer.estimators.normal_scores import normal_quantile, value_at
from lformer.panel import Array
from lformer.report.charts import Chart
from lformer.report.facts import Coverage
from lformer.report.frame import HALF, HIGH, Frame, dot

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
CALIBRATED, THOUGHT = "calibrated", "not calibrated"


def of_sets(estimator: Any, probability: Array, code: Array, lengths: Array) -> list[Coverage]:
    """Coverage of a classifier's prediction sets: (N, K) probabilities, (N,) classes, (n,) predictions per series."""
    if estimator.calibration_ is None or not of_classes(estimator):
        return []
    missed, owner = class_scores(probability, code)[:, 0], np.repeat(np.arange(len(lengths)), lengths)
    limits = [float(estimator.calibration_.at(c)[0, 0]) for c in LEVELS]
    sets = [np.maximum((1 - probability <= limit).sum(axis=1), 1).astype(float) for limit in limits]
    best = probability.argmax(axis=1) == code  # the likeliest class is in every set
    inside = [((missed <= limit) | best).astype(float) for limit in limits]
    return [_shares(CALIBRATED, inside, sets, owner, "mean number of classes")]


def of_intervals(estimator: Any, X: Any, y: Any) -> list[Coverage]:
    """Coverage of prediction intervals: calibrated ones, and those of the predicted distributions."""
    kind, calibration = estimator.task_.distribution, estimator.calibration_
    if kind == "point" and calibration is None:
        return []
    told, truth = judged(estimator, X, y)
    scores = estimator._scores(told, truth)
    owner = np.repeat(np.arange(len(told.lengths)), told.lengths)
    scale = np.asarray(estimator.task_.scale)

    def found(name: str, limit: Callable[[float], Array]) -> Coverage:
        inside, wide = [], []
        for c in LEVELS:
            z = np.broadcast_to(limit(c), scores.shape)
            ends = [value_at(kind, told.numbers, told.size, side * z) for side in (-1.0, 1.0)]
            inside.append(np.where(np.isnan(scores), np.nan, scores <= z))
            wide.append(np.where(np.isnan(scores), np.nan, (ends[1] - ends[0]) / scale))
        return _shares(name, inside, wide, owner, "mean width, in standard deviations")

    coverages = []
    if calibration is not None:
        place = calibration.bins(told.ahead)
        coverages.append(found(CALIBRATED, lambda c: calibration.at(c)[:, place].T))
    if kind != "point":
        coverages.append(found(THOUGHT, lambda c: np.asarray(normal_quantile((1 + c) / 2))))
    return coverages


def _shares(name: str, inside: list[Array], size: list[Array], owner: Array, what: str) -> Coverage:
    """Means over series of the shares of their predictions."""
    observed, error = [], []
    for one in inside:
        each = _by_series(one, owner)
        observed.append(float(each.mean()))
        error.append(float(each.std() / np.sqrt(len(each))))
    sizes = [float(_by_series(one, owner).mean()) for one in size]
    return Coverage(name, list(LEVELS), observed, error, sizes, what)


def _by_series(values: Array, owner: Array) -> Array:
    """(n,) the mean of the values of each series, ignoring NaN; series without a value are left out."""
    table = values[:, None] if values.ndim == 1 else values
    known = ~np.isnan(table)
    count = np.bincount(owner, known.sum(axis=1))
    total = np.bincount(owner, np.where(known, table, 0).sum(axis=1))
    return total[count > 0] / count[count > 0]


def coverage_chart(found: list[Coverage]) -> Chart:
    """Observed against nominal coverage; whiskers are two standard errors over series."""
    low = min(0.4, *(min(one.observed) for one in found))
    frame = Frame(x_low=0.45, x_high=1.0, y_low=max(low - 0.05, 0.0), y_high=1.0)
    parts = [*frame.axes("nominal coverage"), frame.path([0.45, 1], [max(0.45, frame.y_low), 1], "mark")]
    rows = []
    for k, one in enumerate(found):
        for c, share, error, size in zip(one.nominal, one.observed, one.error, one.size, strict=True):
            reach = max(share - 2 * error, frame.y_low), min(share + 2 * error, 1.0)
            tip = f"{one.name}: nominal {percent(c)}, observed {percent(share)}"
            parts += [
                line(frame.x(c), frame.y(reach[0]), frame.x(c), frame.y(reach[1]), "whisker"),
                dot(frame.x(c), frame.y(share), 4.0, f"dot{k}", tip),
            ]
            shown = number(size) if np.isfinite(size) else "infinite"
            rows.append([one.name, percent(c), percent(share), f"± {percent(2 * error)}", shown])
        parts += [frame.path(one.nominal, one.observed, f"curve c{k}"), *_key(frame, found, k)]
    words = "Observed against nominal coverage on these series: " + "; ".join(
        f"{one.name} {percent(one.observed[one.nominal.index(0.9)])} at 90 %" for one in found
    )
    kind = "interval" if "width" in found[0].what else "set"
    header = [kind, "nominal", "observed", "two standard errors", found[0].what]
    return Chart(svg(HALF, HIGH, words, parts), header, rows)


def size_chart(found: list[Coverage]) -> Chart:
    """The width of intervals, or the size of sets, by nominal coverage."""
    known = [size for one in found for size in one.size if np.isfinite(size)] or [1.0]
    frame = Frame(x_low=0.45, x_high=1.0, y_low=0.0, y_high=1.08 * max(known))
    parts, rows = frame.axes("nominal coverage"), []
    for k, one in enumerate(found):
        some = [(c, size) for c, size in zip(one.nominal, one.size, strict=True) if np.isfinite(size)]
        parts += [frame.path([c for c, _ in some], [size for _, size in some], f"curve c{k}"), *_key(frame, found, k)]
        parts += [dot(frame.x(c), frame.y(size), 4.0, f"dot{k}", f"{one.name}: {number(size)}") for c, size in some]
        rows += [
            [one.name, percent(c), number(size) if np.isfinite(size) else "infinite"]
            for c, size in zip(one.nominal, one.size, strict=True)
        ]
    words = f"{found[0].what} by nominal coverage"
    return Chart(svg(HALF, HIGH, words, parts), ["interval", "nominal", found[0].what], rows)


def _key(frame: Frame, found: list[Coverage], k: int) -> list[str]:
    """The legend entry of one curve."""
    y = frame.bottom - 12 - 18 * (len(found) - 1 - k)
    return [
        f'<path d="M{frame.right - 150:.1f} {y - 4:.1f}h18" class="curve c{k}"/>',
        text(frame.right - 126, y, found[k].name, "small"),
    ]
