"""Series on their own scale: whether the training series need it, how they are weighted, and how training begins.

A squared error in units of each series' own spread treats all series alike; in units of the whole training set, it
would be dominated by the few largest series.
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

LEVELS = 0.5  # levels differ much if they account for this share of the variance
SPREADS = 0.5  # spreads differ much if their logarithms have this standard deviation
ALONE = 1.0  # the same if levels do not differ: spreads that differ by a factor of e
FEW = 4  # too few values to estimate a spread
WIDER = 10.0  # bounds are extended on both sides by this multiple of the range of training, for larger series
SMALLEST = 0.2  # lower bound of a spread, relative to the typical one: else series that hardly change would dominate
READ = 256  # series per batch


def wants_own_scale(panel: Panel, scale: Scale) -> bool:
    """Whether the series differ much in size, in most channels: in level and in spread, or very much in spread alone.

    If only levels differ, as the weights of patients do, starting from the latest value is enough.
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
    """How much series differ in level and in spread, from (N,) values and the series of each.

    Returns:
        The share of the variance between the levels of series, and the standard deviation of the logarithms of their
        spreads; both are corrected for chance differences between few values.
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
    """The scale with wider bounds, which do not clip series larger than those of training."""
    reach = WIDER * (scale.high - scale.low)
    bounded = np.isfinite(reach)
    low, high = np.where(bounded, scale.low - reach, scale.low), np.where(bounded, scale.high + reach, scale.high)
    return replace(scale, low=low.astype(scale.low.dtype), high=high.astype(scale.high.dtype))


@torch.no_grad()
def in_own_units(asked: Targets, series: Panel, scale: Scale, typical: torch.Tensor | None = None) -> Targets:
    """The targets, weighted by 1 / spread² of each series and channel, in standard deviations of training; clipped.

    Args:
        asked: targets at queries.
        series: the complete series with nothing hidden, in their units, so that errors are weighted alike wherever they
            are cut.
        scale: of training.
        typical: (C,) typical spread of a series; that of these series if None.
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
    """(n, C) the spread of the visible values of each series, in standard deviations of training.

    See `OwnScale.deviation`.
    """
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
    """Initialise the clock, the scales and the mixture of starting values to the best ones for the training set."""
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
