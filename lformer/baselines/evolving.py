"""Evolving: recurrent models whose state is written by observations alone and moves on between them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lformer.baselines.model import BaselineModel, full_precision, state_after
from lformer.batch import IrregularBatch
from lformer.nn.query import rows_until
from lformer.nn.rows import Encoded


class Evolving(BaselineModel):
    """A recurrence over the rows that hold an observation. A model brings `states` and `evolve`.

    A row in which nothing was observed, and a query, are answered from the state after the latest observation, evolved
    over the interval since then; they write nothing, so no other answer depends on them. A series is answered from its
    last state.
    """

    def states(self, x: Tensor, deltas: Tensor) -> list[Tensor]:
        """(B, L, D) embedded rows, (B, L) intervals before them -> the states of each layer after each, (B, L, D)."""
        raise NotImplementedError(f"{type(self).__name__} must say how rows change its states.")

    def evolve(self, x: Tensor, since: Tensor, states: list[Tensor]) -> Tensor:
        """(B, N, D) rows in which nothing was observed, (B, N), (B, N, D) of each layer -> (B, N, D), the last layer's.

        `since` is the interval since the state was written. Intervals are in the typical interval of the training data.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what becomes of its states between observations.")

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D) as `config.answer` says."""
        x, dtype = self.embed_rows(encoded.rows, batch), encoded.rows.dtype
        asked = None if batch.query_times is None else self.embed_queries(batch, encoded).to(dtype)
        with full_precision(x.device):
            return self._read(x.to(dtype), asked, batch)

    def _read(self, x: Tensor, asked: Tensor | None, batch: IrregularBatch) -> Tensor:
        filled = filled_rows(batch)
        states = self.states(filled.first(x), self.typical(filled.deltas, x))
        if asked is not None and batch.query_times is not None:
            count = filled.until(rows_until(batch.times, batch.lengths, batch.query_times))
            since = self.typical(filled.since(batch.query_times, count), x)
            return self.evolve(asked, since, [state_after(s, count) for s in states])
        if self.config.answer == "series":
            return state_after(states[-1], filled.so_far[:, -1:]).squeeze(1)
        after = [state_after(s, filled.so_far) for s in states]
        since = self.typical(filled.since(batch.times, filled.so_far), x)
        return torch.where(filled.has[..., None], after[-1], self.evolve(x, since, after))

    def typical(self, intervals: Tensor, like: Tensor) -> Tensor:
        """Intervals in units of a typical one, in the dtype of `like`."""
        return (intervals / self.rows.interval).to(like.dtype)


class Filled(NamedTuple):
    """The rows that hold an observation, moved to the front; the others follow and are not read."""

    has: Tensor  # (B, L) bool, True where something was observed
    order: Tensor  # (B, L) which row stands at each place
    so_far: Tensor  # (B, L) how many rows with an observation there are up to each row
    times: Tensor  # (B, L) in the new order
    deltas: Tensor  # (B, L) in the new order, since the row before; 0 at the first, and where nothing is read

    def first(self, rows: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D) in the new order."""
        return rows.gather(1, self.order[..., None].expand_as(rows))

    def until(self, rows: Tensor) -> Tensor:
        """(B, N) numbers of rows -> (B, N), how many of these first rows hold an observation."""
        return torch.cat([torch.zeros_like(self.so_far[:, :1]), self.so_far], dim=1).gather(1, rows)

    def since(self, moments: Tensor, count: Tensor) -> Tensor:
        """(B, N) times, (B, N) of rows before -> (B, N), since the last of these; 0 if there is none."""
        latest = self.times.gather(1, (count - 1).clamp(min=0))
        return torch.where(count > 0, moments - latest, 0).clamp(min=0)


def filled_rows(batch: IrregularBatch) -> Filled:
    """Find the rows in which something was observed."""
    has = batch.observed.flatten(2).any(dim=2) & batch.valid
    order = torch.argsort(~has, dim=1, stable=True)
    so_far = has.cumsum(dim=1)
    times = batch.times.gather(1, order)
    place = torch.arange(has.shape[1], device=has.device)
    within = (place > 0) & (place < so_far[:, -1:])
    deltas = torch.where(within, times - times.roll(1, dims=1), 0)
    return Filled(has, order, so_far, times, deltas)
