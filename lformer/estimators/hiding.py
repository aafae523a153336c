"""Training on less than there is: in every epoch other observations are hidden, so that none is learnt by heart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lformer.batch import IrregularBatch
from lformer.estimators.features import Features
from lformer.hiding import without_rows
from lformer.panel import Array, Panel
from lformer.parts import PanelPart


@dataclass(frozen=True, eq=False)
class HidingPart(PanelPart):
    """A part whose training batches show a share less, drawn anew in every epoch; elsewhere it shows everything.

    Attributes:
        series: the observations that the rows of `panel` were made from, in the same order.
        features: how rows are made of what is left.
        share: see `hide_some`.
    """

    series: Panel | None = None
    features: Features | None = None
    share: float = 0.0

    def training_batches(self, size: int, epoch: int) -> Iterator[IrregularBatch]:
        """Every series once, in an order of (seed, epoch), as is what is hidden."""
        assert self.series is not None
        assert self.features is not None
        left = hide_some(self.series, self.share, np.random.default_rng([self.seed, epoch]))
        shown = PanelPart(self.features.apply(left), self.targets, self.members, self.seed, self.partial)
        yield from shown.training_batches(size, epoch)


def hide_some(panel: Panel, share: float, rng: np.random.Generator) -> Panel:
    """The panel without some of its observations: single ones, whole rows, and whole channels of a series.

    Of each kind a share is hidden; that of the rows differs from series to series, between 0 and twice the share.
    A row in which nothing is left goes, but for the first one of a series.

    Example:
        >>> panel = Panel.from_list([(range(100), np.ones((100, 2)))])
        >>> left = hide_some(panel, 0.2, np.random.default_rng(0))
        >>> len(left.times) < 100 and bool(left.observed.any())
        True
    """
    panel = panel.compact()
    observed = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    channels = rng.random((len(panel), *observed.shape[1:])) < share
    rows = rng.random(len(owner)) < (2 * share * rng.random(len(panel)))[owner]
    single = rng.random(observed.shape, np.float32) < share
    hidden: Array = channels[owner] | rows.reshape(-1, *(1,) * (observed.ndim - 1)) | single
    left = observed & ~hidden
    empty: Array = np.logical_not(left.reshape(len(owner), -1).any(axis=1))
    empty[panel.first[panel.lengths > 0]] = False
    shown = replace(panel, values=np.where(left, panel.values, 0), observed=left)
    return without_rows(shown, empty)
