"""Convert numbers to normal scores (z) under a predicted distribution, and back.

    "point"      z = (y - prediction) / size        size: the assumed standard deviation
    "gaussian"   z = (y - mean) / deviation
    "quantiles"  z of the level, linear in y between two levels; beyond the last one on the line from the median

Since all three share one scale, an interval of any coverage consists of the values from -z to z. The inverse increases
with z, so quantiles never cross.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from lformer.distributions import BELOW, Distribution
from lformer.panel import Array

STEPS = np.array([0.0, *(-NormalDist().inv_cdf(level) for level in reversed(BELOW))])  # (K + 1,) from the median


def normal_quantile(level: float) -> float:
    """The quantile function of the standard normal distribution.

    Example:
        >>> round(normal_quantile(0.975), 3)
        1.96
    """
    return NormalDist().inv_cdf(level)


def z_of(kind: Distribution, answers: Array, size: Array, values: Array) -> Array:
    """(N, O) normal scores of values (N, O); NaN stays NaN.

    Args:
        kind: kind of the distributions.
        answers: (N, P O) predictions, as returned by `Task.decode`.
        size: (N, O) assumed standard deviations, for points.
        values: (N, O).
    """
    outputs = values.shape[1]
    missed = values - answers[:, :outputs]
    if kind == "point":
        return missed / size
    if kind == "gaussian":
        return missed / answers[:, outputs:]
    return np.where(
        missed < 0,
        -_along(_reach(answers, outputs, below=True), -missed),
        _along(_reach(answers, outputs, below=False), missed),
    )


def value_at(kind: Distribution, answers: Array, size: Array, z: Array) -> Array:
    """(N, O) values at z, which is (N, O) or broadcast to it: the inverse of `z_of`, infinite where z is."""
    outputs = size.shape[1]
    z = np.broadcast_to(z, size.shape)
    center = answers[:, :outputs]
    if kind == "point":
        return center + z * size
    if kind == "gaussian":
        return center + z * answers[:, outputs:]
    reach = np.where((z < 0)[..., None], _reach(answers, outputs, below=True), _reach(answers, outputs, below=False))
    return center + np.copysign(_distance(reach, np.abs(z)), z)


def _reach(answers: Array, outputs: int, below: bool) -> Array:
    """(N, O, K + 1) distances from the median to the levels on one side, increasing from 0."""
    K = len(BELOW)
    blocks = answers.reshape(len(answers), -1, outputs)
    side = blocks[:, K:0:-1] if below else blocks[:, K + 1 :]
    distances = np.abs(side - blocks[:, :1]).transpose(0, 2, 1)
    return np.concatenate([np.zeros((*distances.shape[:2], 1)), distances], axis=2)


def _along(reach: Array, distance: Array) -> Array:
    """(N, O, K + 1), (N, O) -> (N, O) the smallest z at which a side reaches this distance; inf if there is none"""
    k = np.clip((reach < distance[..., None]).sum(axis=2), 1, len(STEPS) - 1)
    before, after = (np.take_along_axis(reach, i[..., None], axis=2)[..., 0] for i in (k - 1, k))
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = STEPS[k - 1] + (distance - before) / (after - before) * (STEPS[k] - STEPS[k - 1])
        beyond = STEPS[-1] * distance / reach[..., -1]
    z = np.where(distance > reach[..., -1], beyond, inside)
    return np.where(distance <= 0, 0.0, z)


def _distance(reach: Array, z: Array) -> Array:
    """(N, O, K + 1), (N, O) -> (N, O) the distance that a side reaches at z"""
    k = np.clip((z[..., None] > STEPS).sum(axis=2), 1, len(STEPS) - 1)
    before, after = (np.take_along_axis(reach, i[..., None], axis=2)[..., 0] for i in (k - 1, k))
    share = np.minimum((z - STEPS[k - 1]) / (STEPS[k] - STEPS[k - 1]), 1.0)
    inside = before + share * (after - before)
    with np.errstate(invalid="ignore"):
        beyond = reach[..., -1] * (z / STEPS[-1])
    return np.where(z > STEPS[-1], np.where(np.isinf(z), np.inf, beyond), inside)
