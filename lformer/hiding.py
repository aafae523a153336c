"""Hide parts of series from the model, as targets of interpolation, extrapolation and pre-training.

All rows of all series are targets. A target counts where something was observed (`observed`); `given` says which of
these the model was also shown, so that errors on seen and unseen values can be separated.

For pre-training, a `HidingPart` hides different rows and channels in every epoch, and only these are targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple, Self, get_args

import numpy as np
import torch

from lformer.batch import IrregularBatch
from lformer.panel import Array, Panel, padded_rows, take_rows, without_rows
from lformer.parts import ALONE, PanelPart, Share, Targets, Turn

Unobserved = Literal["rows", "query"]


def hide(panel: Panel, hidden: Array, unobserved: Unobserved) -> tuple[Panel, Targets]:
    """The panel without the values of some rows, and the values of all rows as targets.

    Args:
        panel: the complete series. It is copied first unless its series are stored contiguously.
        hidden: (N,) bool, the rows of `panel` to hide.
        unobserved: "rows": hidden rows stay, with value 0 and nothing observed. "query": they are removed, and the
            times of all rows become queries.

    Example:
        >>> panel = Panel.from_list([([0.0, 1.0, 2.0], [[5.0], [6.0], [7.0]])])
        >>> shown, targets = hide(panel, np.array([False, False, True]), "rows")
        >>> shown.values[:, 0].tolist(), targets.values[:, 0].tolist(), targets.given[:, 0].tolist()
        ([5.0, 6.0, 0.0], [5.0, 6.0, 7.0], [True, True, False])
        >>> shown, targets = hide(panel, np.array([False, False, True]), "query")
        >>> shown.times.tolist(), targets.times.tolist()
        ([0.0, 1.0], [0.0, 1.0, 2.0])
    """
    if hidden.shape != panel.times.shape or hidden.dtype != bool:
        raise ValueError(f"hidden must be bool, one for each of the {len(panel.times)} rows; got {hidden.shape}.")
    if unobserved not in get_args(Unobserved):
        raise ValueError(f"unobserved must be one of {get_args(Unobserved)}; got {unobserved!r}.")
    if not _one_after_the_other(panel):
        panel, hidden = panel.compact(), hidden[panel.rows()]
    given = _given(panel, hidden)
    if unobserved == "rows":
        values = panel.values.copy()
        values[hidden] = 0
        return replace(panel, values=values, observed=given), replace(reconstruct(panel), given=given)
    asked = Targets(
        values=_in_units(panel),
        at="queries",
        observed=panel.observed,
        given=given,
        times=panel.times,
        first=panel.first,
        lengths=panel.lengths,
    )
    return without_rows(panel, hidden), asked


def reconstruct(panel: Panel) -> Targets:
    """The panel's own values as targets at its rows, all of which are also given."""
    given = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    return Targets(values=_in_units(panel), at="rows", observed=panel.observed, given=given)


def random_rows(panel: Panel, share: float, seed: int) -> Array:
    """(N,) bool, `int(share * length)` rows of each series, determined by the seed; at least one row is kept.

    Example:
        >>> panel = Panel.from_list([(range(4), [[1.0]] * 4), (range(1), [[1.0]])])
        >>> hidden = random_rows(panel, 0.5, seed=0)
        >>> int(hidden[:4].sum()), int(hidden[4:].sum())
        (2, 0)
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie between 0 and 1; got {share}.")
    if not _one_after_the_other(panel):
        raise ValueError("rows are drawn series by series, which must not share any: use panel.compact() first.")
    count = np.minimum((share * panel.lengths).astype(np.int64), np.maximum(panel.lengths - 1, 0))
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    shuffled = np.lexsort([np.random.RandomState(seed).random_sample(len(owner)), owner])
    hidden = np.zeros(len(owner), bool)
    hidden[shuffled] = np.arange(len(owner)) - panel.first[owner] < count[owner]
    return hidden


class Hidden(NamedTuple):
    """What is hidden from the model: rows of the panel, and whole channels of some series."""

    rows: Array  # (N,) bool
    channels: Array  # (n, C) bool


def runs_and_channels(panel: Panel, rows: float, channels: float, rng: np.random.Generator) -> Hidden:
    """Hide single rows, runs of neighbouring rows and whole channels; a part of each series is kept.

    Rows are hidden run by run. The mean length of the runs of a series is drawn at random, from single rows up to a
    quarter of its length: a single row can be inferred from its neighbours, a long gap cannot.

    Args:
        panel: contiguous series.
        rows: approximate share of the rows to hide.
        channels: approximate share of the channels of a series to hide; the only channel is never hidden entirely.
        rng: random generator.

    Example:
        >>> panel = Panel.from_list([(range(1000), np.ones((1000, 2)))])
        >>> hidden = runs_and_channels(panel, 0.5, 0.15, np.random.default_rng(0))
        >>> 300 < int(hidden.rows.sum()) < 700, hidden.channels.shape
        (True, (1, 2))
    """
    if not _one_after_the_other(panel):
        raise ValueError("rows are drawn series by series, which must not share any: use panel.compact() first.")
    n, C = len(panel), panel.values.shape[1]
    owner = np.repeat(np.arange(n), panel.lengths)
    usual = np.maximum(panel.lengths / 4, 1) ** rng.random(n)  # length of a run, on a logarithmic scale
    begins = rng.random(len(owner)) < 1 / usual[owner]
    begins[panel.first[panel.lengths > 0]] = True
    run, of_series = np.cumsum(begins) - 1, owner[begins]
    hidden = _some_left(rng.random(len(of_series)) < rows, of_series, n, rng)
    whole = rng.random((n, C)) < channels if C > 1 else np.zeros((n, C), bool)
    whole = _some_left(whole.ravel(), np.repeat(np.arange(n), C), n, rng).reshape(n, C)
    return Hidden(hidden[run], whole)


@dataclass(frozen=True, eq=False)
class HidingPart(PanelPart):
    """Series that are their own targets: some rows and channels of each are hidden and predicted.

    A hidden row stays, without values: the model knows when something was measured, but not what. Targets are (L, 2 C)
    for each series: the values, which count where they were observed and hidden, followed by their presence, 1 or 0,
    which counts wherever it is hidden.

    Training hides different rows in every epoch, determined by the seed and the epoch; `batches` always hides the same.

    Attributes:
        rows, channels: shares to hide, see `runs_and_channels`.
        hidden: what is hidden, once it has been drawn.
    """

    rows: float = 0.5
    channels: float = 0.15
    hidden: Hidden | None = None

    @classmethod
    def of(cls, part: PanelPart, rows: float, channels: float) -> Self:
        """The series of another part, whose targets are ignored."""
        part = part.compact()
        return cls(**{field.name: getattr(part, field.name) for field in fields(part)}, rows=rows, channels=channels)

    def batches(self, size: int, turn: Turn = ALONE) -> Iterator[IrregularBatch]:
        """Every series once, shortest first; the same is hidden on every call."""
        return self._drawn(0).batches(size, turn) if self.hidden is None else super().batches(size, turn)

    def training_shares(
        self, size: int, epoch: int, drop_fraction: float = 0.0, turn: Turn = ALONE
    ) -> Iterator[Share[IrregularBatch]]:
        """Every series once, in an order that depends on (seed, epoch), with different entries hidden each epoch."""
        if drop_fraction:
            raise ValueError("hidden entries are the targets, so nothing else may be dropped; set drop_fraction to 0.")
        if self.hidden is None:
            return self._drawn(1, epoch).training_shares(size, epoch, turn=turn)
        return super().training_shares(size, epoch, turn=turn)

    def batch(self, index: Array) -> IrregularBatch:
        """A padded batch of some series without what is hidden, which is the target."""
        assert self.hidden is not None
        whole = super().batch(index)
        cells, valid = padded_rows(self.panel.first[index], self.panel.lengths[index], self.panel.pad_to)
        rows = torch.from_numpy(take_rows(self.hidden.rows, cells, valid))
        unseen = rows[..., None] | torch.from_numpy(self.hidden.channels[index])[:, None]  # (B, L, C)
        return replace(
            whole,
            values=torch.where(unseen, 0, whole.values),
            observed=whole.observed & ~unseen,
            targets=torch.cat([whole.values, whole.observed.to(whole.values.dtype)], dim=-1),
            targets_observed=torch.cat([whole.observed & unseen, unseen & whole.valid[..., None]], dim=-1),
        )

    def _drawn(self, *place: int) -> Self:
        """The part with hidden entries drawn from the seed and the place."""
        rng = np.random.default_rng([self.seed, *place])
        return replace(self, hidden=runs_and_channels(self.panel, self.rows, self.channels, rng))


def _some_left(hidden: Array, owner: Array, n: int, rng: np.random.Generator) -> Array:
    """(M,) bool, the hidden entries of each owner; if all were hidden, one random entry is kept."""
    count = np.bincount(owner, minlength=n)
    chosen = np.cumsum(count) - count + (rng.random(n) * count).astype(np.int64)
    lost = (count > 0) & (np.bincount(owner, hidden, n) == count)
    hidden[chosen[lost]] = False
    return hidden


def _in_units(panel: Panel) -> Array:
    """The values in their own units; stored integers are multiplied by the panel's scale."""
    if panel.scale == 1.0 and panel.values.dtype.kind == "f":
        return panel.values
    return (panel.values * panel.scale).astype(np.float32)


def _one_after_the_other(panel: Panel) -> bool:
    ends = np.cumsum(panel.lengths)
    return bool((panel.first == ends - panel.lengths).all()) and int(panel.lengths.sum()) == len(panel.times)


def _given(panel: Panel, hidden: Array) -> Array:
    """(N, *C) bool, what was observed and is not hidden."""
    given = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed.copy()
    given[hidden] = False
    return given
