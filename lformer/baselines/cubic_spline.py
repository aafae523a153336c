"""CubicSpline: the natural cubic spline through the observations of a channel, which reads the future."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lformer.baselines.naive import Naive, moments_of
from lformer.batch import IrregularBatch
from lformer.panel import Array


class CubicSpline(Naive):
    """x̂ = the natural cubic spline, which goes straight on before the first observation and after the last."""

    def rule(self, batch: IrregularBatch) -> Tensor:
        """(B, N, C)"""
        values, observed = (tensor.cpu().numpy() for tensor in self._observations(batch))
        times, asked = batch.times.double().cpu().numpy(), moments_of(batch).double().cpu().numpy()
        found = self.mean.cpu().numpy() * np.ones((*asked.shape, 1))
        for b, c in np.argwhere(observed.any(axis=1)).tolist():
            seen = observed[b, :, c]
            found[b, :, c] = natural_spline(times[b, seen], values[b, seen, c], asked[b])
        return torch.from_numpy(found).to(self.mean)


def natural_spline(times: Array, values: Array, asked: Array) -> Array:
    """(Q,) on the spline through observations (M,), at least one; those of one moment count as their mean.

    Example:
        >>> line = natural_spline(np.array([0.0, 1.0, 1.0, 3.0]), np.array([0.0, 1.0, 3.0, 6.0]), np.array([0.5, 5.0]))
        >>> line.tolist()
        [1.0, 10.0]
    """
    from scipy.interpolate import CubicSpline as Spline

    knots, owner = np.unique(times, return_inverse=True)
    means = np.bincount(owner, values) / np.bincount(owner)
    if len(knots) == 1:
        return np.full(asked.shape, means[0])
    spline = Spline(knots, means, bc_type="natural")
    inside = asked.clip(knots[0], knots[-1])
    return np.asarray(spline(inside) + (asked - inside) * spline(inside, 1))
