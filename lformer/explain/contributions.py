"""The contribution of each observation: by integrated gradients, which are additive, or by leaving it out."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lformer.evaluate import as_precise
from lformer.explain.question import Question
from lformer.nn import LFormer
from lformer.nn.ensemble import Ensemble
from lformer.panel import Array, Panel, without_rows

ROWS = 8192  # rows per batch
FEWEST, MOST = 16, 256  # number of points on the path from the baseline to the record
CLOSE = 0.01  # tolerated gap, as a share of what is explained
LITTLE = 0.1  # lower bound on what is explained in that rule, as a share of a large difference


class Contributions(NamedTuple):
    """The contributions of the observations of one series to one number."""

    answer: float
    baseline: float | None  # the prediction to which contributions are relative; None if they are not additive
    values: Array  # (L, C), 0 where nothing was observed

    @property
    def gap(self) -> float | None:
        """The part that the contributions leave unexplained, `answer - baseline - their sum`."""
        return None if self.baseline is None else self.answer - self.baseline - float(self.values.sum())

    def misses(self, share: float, size: float) -> bool:
        """Whether the gap exceeds a share of what is explained; `size` is a large difference of the prediction."""
        if self.baseline is None or self.gap is None:
            return False
        return abs(self.gap) > share * max(abs(self.answer - self.baseline), LITTLE * size)


def integrated_gradients(model: LFormer | Ensemble, question: Question) -> Contributions:
    """Gradients along the straight path from typical to observed values, multiplied by the change of each value.

    Only values change along the path: when something was observed, and what, stays the same. The typical value of a
    channel is the one that the model reads as 0, its median in training. Computed in float64, with an increasing number
    of points on the path until the contributions add up to the prediction minus that for the typical values.
    """
    exact = deepcopy(model).double().eval().requires_grad_(False)
    rows = (exact.models[0] if isinstance(exact, Ensemble) else exact).rows
    batch = as_precise(question.part.batch(np.array([0])), exact)
    observed = batch.observed & batch.valid[..., None]
    inner = batch.values.clamp(rows.low, rows.high)  # clipped as in the model; beyond the bounds, gradients vanish
    typical = torch.where(observed, rows.shift, batch.values)
    way = torch.where(observed, inner - typical, 0.0)  # (1, L, C)
    with torch.no_grad():
        ends = torch.cat([typical + way, typical])
        answer, baseline = question.of(exact(replace(batch[[0, 0]], values=ends))).tolist()

    points = FEWEST
    while True:
        nodes, weights = np.polynomial.legendre.leggauss(points)
        slope = torch.zeros_like(way)
        size = max(1, ROWS // batch.values.shape[1])
        for start in range(0, points, size):
            share = torch.from_numpy(nodes[start : start + size] + 1)[:, None, None] / 2
            weight = torch.from_numpy(weights[start : start + size])[:, None, None] / 2
            here = (typical + share * way).requires_grad_()
            told = question.of(exact(replace(batch[np.zeros(len(here), np.int64)], values=here)))
            slope += (weight * torch.autograd.grad(told.sum(), here)[0]).sum(dim=0, keepdim=True)
        found = Contributions(answer, baseline, (way * slope)[0].numpy())
        if not np.isfinite(found.values).all():
            raise ArithmeticError(
                "the gradient of the prediction is not finite on the path from typical to observed values. Use "
                'method="leave-one-out".'
            )
        if points >= MOST or not found.misses(CLOSE, question.size):
            return found
        points *= 2


def leave_one_out(model: LFormer | Ensemble, question: Question) -> Contributions:
    """The change of the prediction if an observation had not been made, for each observation.

    A row without any remaining observation is removed, unless it is the only one or there is a prediction for each row.
    """
    panel = question.panel
    seen = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    places = np.argwhere(seen)  # (N, 2) row, channel
    [answer] = _answers(model, question, panel)
    found = np.zeros(panel.values.shape)
    size = max(1, ROWS // max(1, len(panel.times)))
    for start in range(0, len(places), size):
        some = places[start : start + size]
        found[tuple(some.T)] = answer - np.array(_answers(model, question, _without(panel, seen, some, question)))
    return Contributions(float(answer), None, found)


def _without(panel: Panel, seen: Array, places: Array, question: Question) -> Panel:
    """A copy of the series for each position, (n, 2), without the observation there."""
    n, L = len(places), len(panel.times)
    observed = np.repeat(seen[None], n, axis=0)  # (n, L, C)
    observed[np.arange(n), places[:, 0], places[:, 1]] = False
    copies = panel[np.zeros(n, np.int64)]
    copies = replace(
        copies,
        times=np.tile(panel.times, n),
        values=np.where(observed, panel.values, 0).reshape(n * L, -1),
        observed=observed.reshape(n * L, -1),
        first=L * np.arange(n),
        lengths=np.full(n, L),
    )
    lost = np.zeros((n, L), bool)
    if question.row is None and L > 1:
        emptied = ~observed[np.arange(n), places[:, 0]].any(axis=1)
        lost[np.flatnonzero(emptied), places[emptied, 0]] = True
    return without_rows(copies, lost.ravel()) if lost.any() else copies


@torch.no_grad()
def _answers(model: LFormer | Ensemble, question: Question, panel: Panel) -> list[float]:
    batch: Tensor = model(as_precise(question.copies(panel).batch(np.arange(len(panel))), model))
    return question.of(batch).double().tolist()
