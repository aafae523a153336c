"""A data set on a device from which different observations are dropped in every epoch.

The CPU only draws what is kept, in advance, while the device works on the previous epoch; rows are compacted on the
device. Batches are gathered from the same memory in every epoch, so that recorded CUDA graphs stay valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lformer.panel import Array, is_large, what_is_left
from lformer.panel.own_numbers import OwnNumbers
from lformer.parts import ALONE, PanelPart, Share, Turn
from lformer.resident import ResidentPart, Runs, Selection


def can_be_thinned(part: PanelPart) -> bool:
    """Whether drops can be drawn for all series at once; for a large panel they are drawn for every batch."""
    return part.targets.at == "rows" or not is_large(part.panel)


class Left(NamedTuple):
    """What is kept in one epoch."""

    observed: Tensor  # (M, *C) bool, of every row that is kept
    rows: Tensor  # (M,) positions of these rows in the whole part
    place: Tensor  # (3, n) as in `Runs`
    lengths: Array  # (n,)


class ThinnedPart:
    """A part whose series are stored on a device, where a share `drop_fraction` is dropped.

    Its training batches are identical to those of the part itself.

    Args:
        part: the series, which must satisfy `can_be_thinned`.
        device: where they are stored.
    """

    def __init__(self, part: PanelPart, device: torch.device | str) -> None:
        self.part = part.compact()  # rows and their targets at the same positions
        self.whole = ResidentPart.of(self.part, device)
        self._keeps = part.targets.at == "rows"  # rows with targets are kept, without observations
        lengths = self.part.panel.lengths
        self._owner = np.repeat(np.arange(len(part)), np.maximum(lengths, 1))  # a series without rows has one position
        begin = np.cumsum(np.maximum(lengths, 1)) - np.maximum(lengths, 1)
        first = self.whole.rows.place[0].cpu().numpy()
        self._places = first[self._owner] + np.arange(len(self._owner)) - begin[self._owner]
        self._filled = (lengths > 0)[self._owner]  # positions that are rows
        self._shown = self._with_memory_of_its_own()
        self._ahead: tuple[tuple[int, float], Future[Left]] | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="lformer-dropping")

    def __len__(self) -> int:
        return len(self.part)

    def batches(self, size: int, turn: Turn = ALONE) -> Iterator[Selection]:
        """The batches of the part, with nothing dropped."""
        return self.whole.batches(size, turn)

    def training_shares(
        self, size: int, epoch: int, drop_fraction: float = 0.0, turn: Turn = ALONE
    ) -> Iterator[Share[Selection]]:
        """The training shares of the part."""
        if not drop_fraction:
            return self.whole.training_shares(size, epoch, turn=turn)
        asked = (epoch, drop_fraction)
        known = self._ahead is not None and self._ahead[0] == asked
        left = self._ahead[1].result() if known and self._ahead is not None else self._draw(*asked)
        self._ahead = (epoch + 1, drop_fraction), self._worker.submit(self._draw, epoch + 1, drop_fraction)
        self._show(left)
        panel = self.part.panel if self._keeps else replace(self.part.panel, lengths=left.lengths)
        lengths_of = replace(self._shown, part=replace(self.part, panel=panel))
        # A CUDA graph belongs to the one part whose memory it reads.
        return (
            share._replace(batch=replace(share.batch, part=self._shown))
            for share in lengths_of.training_shares(size, epoch, turn=turn)
        )

    def _with_memory_of_its_own(self) -> ResidentPart:
        """The whole part, with copies of what changes from epoch to epoch."""
        rows = self.whole.rows
        names = ("values", "observed") if self._keeps else tuple(rows.flat)
        flat = dict(rows.flat) | {name: rows.flat[name].clone() for name in names if name in rows.flat}
        if "observed" not in flat:  # everything was observed
            sides = self.part.panel.values.shape[1:]
            blank = flat["values"].shape[0]
            flat["observed"] = torch.zeros(blank, *sides, dtype=torch.bool, device=self.whole.device)
        shown = {name: sides for name, sides in rows.shown.items() if name != "observed"}
        return replace(self.whole, rows=Runs(rows.place.clone(), flat, shown))

    def _draw(self, epoch: int, drop_fraction: float) -> Left:
        """What is kept in an epoch, as a function of the part's seed and the epoch only."""
        part, panel = self.part, self.part.panel
        place = [part.seed, epoch]
        numbers = OwnNumbers(place, np.arange(len(part))) if self._keeps else np.random.default_rng(place)
        left, kept = what_is_left(panel, drop_fraction, numbers, keep_rows=self._keeps)
        stays = np.ones(len(self._owner), bool)
        if kept is not None:
            stays[self._filled] = kept
        observed = np.zeros((len(self._owner), *left.shape[1:]), bool)
        observed[self._filled] = left
        seats = np.bincount(self._owner[stays], minlength=len(part))
        lengths = np.where(panel.lengths > 0, seats, 0)
        first = self.whole.rows.place[0].cpu().numpy() if self._keeps else np.cumsum(seats) - seats
        found = observed[stays], self._places[stays], np.stack([first, seats - 1, lengths])
        shown, rows, seats_of = map(torch.from_numpy, found)
        return Left(shown, rows, seats_of, lengths)

    def _show(self, left: Left) -> None:
        """Write what an epoch keeps to the memory that batches are gathered from."""
        device, whole, shown = self.whole.device, self.whole.rows.flat, self._shown.rows
        observed, rows = left.observed.to(device), left.rows.to(device)
        if self._keeps:
            shown.flat["observed"][rows] = observed
            shown.flat["values"].copy_(torch.where(shown.flat["observed"], whole["values"], 0))
            return
        count = len(rows)
        for name, target in shown.flat.items():
            if name not in ("observed", "deltas"):
                torch.index_select(whole[name], 0, rows, out=target[:count])
        shown.flat["observed"][:count] = observed
        shown.flat["values"][:count].masked_fill_(~observed, 0)
        times, first = shown.flat["times"][:count], left.place[0].to(device)
        deltas = torch.diff(times, prepend=times[:1]).index_fill_(0, first, 0)
        shown.flat["deltas"][:count] = deltas.to(shown.flat["deltas"].dtype)
        shown.place.copy_(left.place)
