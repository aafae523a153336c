"""Series on their own scale: whether training series ask for it, how much each then counts, and where training begins.

A squared error in units of a series' spread serves all series alike; in units of the whole training part it would serve
the largest few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from lformer.batch import IrregularBatch
from lformer.evaluate import as_precise
from lformer.metrics import targets_of, unseen_targets, weigh
from lformer.nn import LFormer
from lformer.nn.ensemble import Ensemble
from lformer.nn.own_scale import OwnScale
from lformer.nn.recent import Asked, RecentMeans
from lformer.nn.rows import fit_clock
from lformer.panel import Array, Panel
from lformer.parts import PanelPart, Targets
from lformer.scaling import Scale
from lformer.tasks import Task

LEVELS = 0.5  # share of the variance that lies between the levels of series, from which on they differ much
SPREADS = 0.5  # deviation of the logarithms of their spreads, likewise
ALONE = 1.0  # the same where levels do not differ: spreads apart by the factor e
FEW = 4  # values that say little of a spread
WIDER = 10.0  # how far beyond the range of training a value of a larger series may lie
SMALLEST = 0.2  # of the typical spread: steadier series count as if they had it, lest those that never change count all
READ = 256  # series read at once


def wants_own_scale(panel: Panel, scale: Scale) -> bool:
    """Whether the series are of very different size, in most channels: in level and in spread, or in spread by far.

    Where levels differ alone, as the weights of patients do, starting from the latest value is enough.
    """
    panel = scale.apply(panel.compact())
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    apart = 0
    for c in range(len(panel.channels)):
        seen = np.ones(len(owner), bool) if panel.observed is None else panel.observed[:, c]
        share, factor = differences(panel.values[seen, c].astype(np.float64), owner[seen])
        apart += (share > LEVELS and factor > SPREADS) or factor > ALONE
    return 2 * apart > len(panel.channels)


def differences(values: Array, owner: Array) -> tuple[float, float]:
    """How series differ in level and in spread, from (N,) values and whose each is.

    Returns:
        The share of the variance that lies between the levels of series, and the deviation of the logarithms of their
        spreads; of both, what few values differ by by chance is taken away.
    """
    _, owner = np.unique(owner, return_inverse=True)
    count = np.bincount(owner)
    if len(values) <= len(count) or not np.ptp(values):
        return 0.0, 0.0
    mean = np.bincount(owner, values) / count
    square = np.bincount(owner, np.square(values - mean[owner]))
    within, total = square.sum() / (len(values) - len(count)), np.square(values - values.mean()).sum()
    some = (count > FEW) & (square > 0)
    if not some.any():
        return float(1 - within / (total / (len(values) - 1))), 0.0
    freedom = count[some] - 1
    logs = np.log(square[some] / freedom) / 2
    by_chance = np.mean(1 / (2 * freedom))
    return float(1 - within / (total / (len(values) - 1))), float(np.sqrt(max(logs.var() - by_chance, 0.0)))


def widened(scale: Scale) -> Scale:
    """Bounds that leave larger series than those of training as they are."""
    reach = WIDER * (scale.high - scale.low)
    bounded = np.isfinite(reach)
    low, high = np.where(bounded, scale.low - reach, scale.low), np.where(bounded, scale.high + reach, scale.high)
    return replace(scale, low=low.astype(scale.low.dtype), high=high.astype(scale.high.dtype))


@torch.no_grad()
def in_own_units(asked: Targets, series: Panel, scale: Scale, typical: torch.Tensor | None = None) -> Targets:
    """What is asked, weighted by 1 / spread² of each series and channel, in training deviations; within its bounds.

    Args:
        asked: at queries.
        series: whole ones, of which nothing is hidden, in their units: an error counts alike wherever they were cut.
        scale: of training.
        typical: (C,) spread of a series; that of these series if None.
    """
    scaled, own = scale.apply(series), OwnScale(len(series.channels))
    if typical is None:
        own.fit([(batch.values, batch.observed, None) for batch in _batches(scaled)])
    else:
        own.typical.copy_(typical)
    found = [own(batch.values, batch.observed, None) for batch in _batches(scaled)]
    spread, low, high = (torch.cat([getattr(one, name) for one in found]) for name in ("spread", "low", "high"))
    weights = torch.maximum(spread, SMALLEST * own.typical).double().pow(-2).numpy()
    assert asked.lengths is not None
    least, most = (np.repeat(scale.shift + scale.scale * one.numpy(), asked.lengths, axis=0) for one in (low, high))
    return replace(asked, values=np.clip(asked.values, least, most).astype(asked.values.dtype), weights=weights)


@torch.no_grad()
def own_sizes(model: LFormer | Ensemble, part: PanelPart, batch_size: int) -> Array:
    """(n, C) the spread of what is shown of each series, in training deviations, as `OwnScale.deviation` tells."""
    rows = (model.models[0] if isinstance(model, Ensemble) else model).rows
    found: Array = np.empty((len(part), len(part.panel.channels)))
    for batch in part.batches(batch_size):
        own = rows(as_precise(batch, rows)).own
        assert own is not None
        assert rows.own is not None
        assert batch.index is not None
        found[batch.index.numpy()] = rows.own.deviation(own).double().numpy()
    return found


def fit_start(model: LFormer, task: Task, batches: list[IrregularBatch]) -> None:
    """Begin training with the clock, the scales and the mixture of starts that are best for the training part."""
    start = model.persistence
    if not isinstance(start, RecentMeans):
        return
    fit_clock(model, batches)
    start.fit((_asked(model, task, batch) for batch in batches), model.rows.interval)


@torch.no_grad()
def _asked(model: LFormer, task: Task, batch: IrregularBatch) -> Asked:
    encoded, counted = model.rows(batch), unseen_targets(batch)
    assert encoded.known is not None
    targets, weights = task.encode(targets_of(batch)), weigh(counted.float(), batch)
    if encoded.own is not None:
        targets = encoded.own.remove(targets, counted, batch.query_marks)
        weights = weights * encoded.own.spread[:, None].square()
    return Asked(encoded.known, batch, targets, weights)


def _batches(panel: Panel) -> Iterator[IrregularBatch]:
    order = np.arange(len(panel))
    return (panel.batch(order[n : n + READ]) for n in range(0, len(panel), READ))
