"""Data sets that are stored on a device: rows are copied there once, and batches are gathered there.

The collation rule remains that of `PanelPart.batch`: it is applied once to every series, and the result is stored flat,
one series after another. A batch is then represented by a `Selection`, whose shapes are known without querying the
device: gathering does not synchronise with it, and can be part of a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from lformer.batch import IrregularBatch, Place
from lformer.panel import Array
from lformer.parts import ALONE, PanelPart, Share, Turn

CHUNK = 64  # series that are collated at once when a part is copied to a device
TARGETS = ("targets", "targets_observed", "targets_given")
OF_ROWS = ("values", "times", "deltas", "observed", "marks")
OF_QUERIES = ("query_times", "query_marks")
OF_SERIES = ("start", "static", "weights")
LAST_AGAIN = (
    "times",
    "marks",
    "query_times",
    "query_marks",
)  # repeat the last valid entry on padding; other fields are 0


@dataclass(frozen=True, eq=False)
class Runs:
    """The rows, or the queries, of all series on a device.

    A series without any still has one position, which holds the value of its padding.

    Attributes:
        place: (3, n) first position of each series, number of positions after it, and number of valid ones.
        flat: by field of a batch, (N + 1, ...); the last position is 0.
        shown: fields that are True wherever an entry is valid, and their shape after (B, L).
    """

    place: Tensor
    flat: dict[str, Tensor]
    shown: dict[str, tuple[int, ...]]

    def gather(self, series: Tensor, width: int) -> tuple[Tensor, dict[str, Tensor]]:
        """(B,) number of valid entries of each series, and every field, (B, width, ...)."""
        first, others, lengths = self.place.index_select(1, series).unbind(0)
        step = torch.arange(width, device=series.device)
        valid = step < lengths[:, None]
        cells = first[:, None] + torch.minimum(step, others[:, None])
        blank = next(iter(self.flat.values())).shape[0] - 1
        zeroed, repeated = torch.where(valid, cells, blank).flatten(), cells.flatten()
        found = {
            name: flat.index_select(0, repeated if name in LAST_AGAIN else zeroed).reshape(
                *valid.shape, *flat.shape[1:]
            )
            for name, flat in self.flat.items()
        }
        for name, sides in self.shown.items():
            found[name] = valid.reshape(*valid.shape, *(1,) * len(sides)).expand(*valid.shape, *sides).contiguous()
        return lengths, found


@dataclass(frozen=True, eq=False)
class ResidentPart:
    """A part whose series are stored on a device; its batches are identical to those of the part itself.

    Attributes:
        part: the same series off the device, which determine the order.
        device: where they are stored.
        alone: by field, (n, ...) what a series has once.
        rows, queries: its rows and queries; None if there are no queries.
    """

    part: PanelPart
    device: torch.device
    alone: dict[str, Tensor]
    rows: Runs
    queries: Runs | None

    @classmethod
    def of(cls, part: PanelPart, device: torch.device | str) -> Self:
        """Collate every series once, some at a time, and store the valid entries on the device."""
        device, targets = torch.device(device), part.targets
        absent = {"targets_observed"} if targets.observed is None else set()  # these follow from the lengths
        absent |= {"observed"} if part.panel.observed is None else set()
        of_rows, of_queries, of_series = (
            tuple(name for name in (*own, *(TARGETS if targets.at == at else ())) if name not in absent)
            for at, own in (("rows", OF_ROWS), ("queries", OF_QUERIES), ("series", OF_SERIES))
        )
        order = np.argsort(part.panel.lengths, kind="stable")  # to reduce padding
        lengths, asked = part.panel.lengths[order], _asked(part)[order]
        chunks: dict[str, list[Tensor]] = {name: [] for name in (*of_rows, *of_queries, *of_series)}
        for start in range(0, len(order), CHUNK):
            some = slice(start, start + CHUNK)
            batch = _collated(part, order[some])
            for name in chunks:
                tensor: Tensor | None = getattr(batch, name)
                if tensor is not None:
                    count = None if name in of_series else (asked if name in of_queries else lengths)[some]
                    chunks[name].append(_flat(tensor, count).to(device))
        back = torch.from_numpy(np.argsort(order)).to(device)
        whole = {name: torch.cat(found) for name, found in chunks.items() if found}
        shown = {"observed": part.panel.values.shape[1:]} if "observed" in absent else {}
        sides = {"targets_observed": targets.values.shape[1:]} if "targets_observed" in absent else {}
        return cls(
            part,
            device,
            {name: whole[name].index_select(0, back) for name in of_series if name in whole},
            _runs(whole, of_rows, shown | (sides if targets.at == "rows" else {}), lengths, back),
            _runs(whole, of_queries, sides, asked, back) if targets.at == "queries" else None,
        )

    def __len__(self) -> int:
        return len(self.part)

    def batches(self, size: int, turn: Turn = ALONE) -> Iterator[Selection]:
        """The batches of the part."""
        return self._selections(list(self.part.order(size, turn)))

    def training_shares(
        self, size: int, epoch: int, drop_fraction: float = 0.0, turn: Turn = ALONE
    ) -> Iterator[Share[Selection]]:
        """The training shares of the part; nothing can be dropped from what is stored on the device."""
        if drop_fraction:
            raise ValueError("observations that are on a device cannot be dropped; set drop_fraction to 0.")
        order = list(self.part.training_order(size, epoch, turn))
        chosen = self._selections([index for index, _ in order])
        return (Share(batch, counts) for batch, (_, counts) in zip(chosen, order, strict=True))

    def _selections(self, order: list[Array]) -> Iterator[Selection]:
        """Some batches, whose positions are copied to the device together: each copy would wait for earlier work."""
        if order:
            positions = torch.from_numpy(np.concatenate(order).astype(np.int64, copy=False)).to(self.device)
            for index, series in zip(order, positions.split([len(index) for index in order]), strict=True):
                yield self.select(index, series)

    def select(self, index: Array, series: Tensor | None = None) -> Selection:
        """Some series, padded to the longest of them; `series` are the same positions on the device."""
        panel, asked = self.part.panel, _asked(self.part)[index]
        lengths = panel.lengths[index]
        rows = int(lengths.max(initial=0)) if panel.pad_to is None else panel.pad_to
        queries = None if self.queries is None else int(asked.max(initial=0))
        count, width = (lengths, rows) if queries is None else (asked, queries)
        complete = self.part.targets.at == "series" or bool((count == width).all())
        series = torch.from_numpy(np.asarray(index, np.int64)) if series is None else series
        return Selection(self, series, rows, queries, complete)


@dataclass(frozen=True, eq=False)
class Selection:
    """Some series of a resident part, by position; `to` gathers the batch.

    Attributes:
        part: where they are stored.
        series: (B,) their positions.
        rows, queries: number of each, including padding.
        complete: whether no target is on padding, so that no mask of valid targets is needed.
    """

    part: ResidentPart
    series: Tensor
    rows: int
    queries: int | None
    complete: bool

    def __len__(self) -> int:
        return len(self.series)

    @property
    def index(self) -> Tensor:
        """(B,) position of each series in its data set."""
        return self.series

    @property
    def extent(self) -> tuple[int, int | None]:
        """(L, Q), including padding."""
        return self.rows, self.queries

    def padded(self, rows: int, queries: int | None = None, targets: Place = "series") -> Self:
        """Like `IrregularBatch.padded`, before anything is gathered."""
        queries = queries if queries and self.queries else self.queries
        if rows < self.rows or (queries or 0) < (self.queries or 0):
            raise ValueError(f"{self.extent} rows and queries cannot be padded to {rows} and {queries}, which is less.")
        return replace(self, rows=rows, queries=queries, complete=self.complete and targets == "series")

    def to(self, device: torch.device | str) -> IrregularBatch:
        """The batch, gathered on the device that stores its rows."""
        part, series = self.part, self.series.to(self.part.device)
        lengths, found = part.rows.gather(series, self.rows)
        if part.queries is not None and self.queries is not None:
            found |= part.queries.gather(series, self.queries)[1]
        if self.complete and part.part.targets.observed is None:
            found.pop("targets_observed", None)
        found |= {name: flat.index_select(0, series) for name, flat in part.alone.items()}
        return IrregularBatch(lengths=lengths, index=series, **found).to(device)


def resident_bytes(part: PanelPart) -> int:
    """Approximate memory that the series of a part take on a device."""
    panel, targets = part.panel, part.targets
    marks = 4 * part.calendar.width
    values = 4 * (1 + part.precise) + (panel.observed is not None)
    row = 12 + marks + values * math.prod(panel.values.shape[1:])
    target = targets.values.itemsize + (targets.observed is not None) + (targets.given is not None)
    target *= math.prod(targets.values.shape[1:])
    rows, asked = int(panel.lengths.sum()), int(_asked(part).sum())
    entries = {"series": len(part), "rows": rows, "queries": asked}[targets.at]
    return rows * row + entries * target + asked * (8 + marks)


def _asked(part: PanelPart) -> Array:
    """(n,) number of queries of each series."""
    asked = part.targets.lengths
    return np.zeros(len(part), np.int64) if asked is None or part.targets.at != "queries" else asked[part.members]


def _collated(part: PanelPart, index: Array) -> IrregularBatch:
    """A batch of some series with at least one row and, if any series of the part has queries, one query each."""
    longest = max(1, int(part.panel.lengths[index].max(initial=0)))
    part = replace(part, panel=replace(part.panel, pad_to=longest))
    asked = _asked(part)
    if asked[index].any() or not asked.any():
        return part.batch(index)
    return part.batch(np.append(index, int(asked.argmax())))[: len(index)]


def _flat(tensor: Tensor, count: Array | None) -> Tensor:
    """(B, L, ...) -> (N, ...) the first positions of each series, as many as are valid and at least one"""
    if count is None:
        return tensor
    seats = torch.from_numpy(np.maximum(count, 1))
    return tensor[torch.arange(tensor.shape[1]) < seats[:, None]]


def _runs(
    whole: dict[str, Tensor], names: tuple[str, ...], shown: dict[str, tuple[int, ...]], lengths: Array, back: Tensor
) -> Runs:
    """Flat fields with a position for padding; `back` is the position of each series of the part among `lengths`."""
    flat = {
        name: torch.cat([whole[name], whole[name].new_zeros(1, *whole[name].shape[1:])])
        for name in names
        if name in whole
    }
    seats = np.maximum(lengths, 1)
    place = torch.from_numpy(np.stack([np.cumsum(seats) - seats, seats - 1, lengths]))
    return Runs(place.to(back.device).index_select(1, back), flat, shown)
