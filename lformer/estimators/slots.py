"""Slots hold the states of many series in a few arrays that grow; Python objects store only the id of each.

For each series, a ring buffer keeps its latest rows and the states after them, so that this many rows can be undone.
Freed slots are reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from lformer.estimators.incoming import Clock, Id
from lformer.nn.ensemble import Ensemble
from lformer.nn.lformer import LFormer, State
from lformer.nn.states import each, put, room, take
from lformer.panel import Array

FEWEST = 16  # minimum number of slots for more than one series


class Slots:
    """States, latest rows and outputs of some series, for one model.

    Args:
        model: the model.
        channels: C.
        memory: number of rows that can be undone.
        statics: S, number of static covariates.
        slots: initial number of slots.
    """

    def __init__(self, model: LFormer | Ensemble, channels: int, memory: int, statics: int, slots: int = 0) -> None:
        self.model, self.ring = model, memory + 1
        self.place: dict[Id, int] = {}  # id -> slot
        self.free: list[int] = []
        self.clock: Clock | None = None
        self.size = 0
        blank = np.zeros(0)
        self.count = blank.astype(np.int64)  # (n,) rows so far
        self.kept = blank.astype(np.int64)  # (n,) of them in the ring buffer
        self.origin = blank  # (n,) time stamp of the first row
        self.stamps = blank.reshape(0, self.ring)  # (n, R) in the ring buffer; row i of a series is at i % R
        self.values = np.zeros((0, self.ring, channels))
        self.static = torch.zeros(0, statics)
        self.outputs = torch.zeros(0, model.config.numbers)  # (n, O) after the last row; O is `config.numbers`
        self.states = each(lambda x: x[:0], dressed(model.init_state(1), None))  # (n · R, ...)
        if slots:
            self._grow(slots)

    def find(self, names: Sequence[Id]) -> Array:
        """(N,) slots, -1 for new series."""
        place = self.place
        return np.fromiter((place.get(name, -1) for name in names), np.int64, len(names))

    def claim(self, count: int) -> Array:
        """(count,) slots for new series, reserved for the caller."""
        if count > len(self.free):
            self._grow(max(2 * self.size, self.size + count - len(self.free), FEWEST))
        taken = self.free[len(self.free) - count :][::-1]
        del self.free[len(self.free) - count :]
        return np.array(taken, np.int64)

    def give_back(self, slots: Array) -> None:
        """Free slots."""
        self.free += slots.tolist()[::-1]

    def forget(self, names: Sequence[Id]) -> None:
        """Remove these series."""
        self.give_back(np.array([self.place.pop(name) for name in names], np.int64))

    def keep_time(self, clock: Clock) -> None:
        """Store time stamps in this type from now on; it must represent the stored ones exactly."""
        if self.clock is None or clock.dtype != self.stamps.dtype:
            before = self.stamps if self.place else np.zeros_like(self.stamps)
            changed = before.astype(clock.dtype)
            used = np.array(list(self.place.values()), np.int64)
            if self.place and not np.array_equal(changed.astype(before.dtype)[used], before[used]):
                raise ValueError(
                    f"time must be of the type {before.dtype}, as before; {clock.dtype} cannot hold those."
                )
            self.stamps, self.origin = changed, self.origin.astype(clock.dtype)
        self.clock = clock

    def ages(self, slots: Array) -> Array:
        """(B, R) positions in the ring buffer, the latest row first."""
        return (self.count[slots, None] - 1 - np.arange(self.ring)) % self.ring

    def latest(self, slots: Array) -> Array:
        """(B,) time stamps of the last rows."""
        return self.stamps[slots, (self.count[slots] - 1) % self.ring]

    def later(self, slots: Array, moments: Array, equal: bool) -> Array:
        """(B,) number of kept rows that are later than a time, or also `equal` to it."""
        ages = self.ages(slots)
        then = self.stamps[slots[:, None], ages]
        after = then >= moments[:, None] if equal else then > moments[:, None]
        return (after & (np.arange(self.ring) < self.kept[slots, None])).sum(axis=1)

    def reachable(self, slots: Array, back: Array) -> Array:
        """(B,) bool, whether the state before the latest `back` rows is known."""
        return (back < self.kept[slots]) | (back == self.count[slots])

    def before(self, slots: Array, rows: Array) -> Any:
        """Copies of the states of series after their first `rows` (B,) rows, with their static covariates."""
        at = torch.from_numpy(slots * self.ring + (rows - 1) % self.ring)
        state = take(self.states, at)
        if not rows.all():
            fresh = np.flatnonzero(rows == 0)
            put(state, torch.from_numpy(fresh), dressed(self.model.init_state(len(fresh)), None))
        return dressed(state, self.static[torch.from_numpy(slots)] if self.static.shape[1] else None)

    def copy(self) -> Self:
        """An independent copy."""
        other = copy(self)
        other.place, other.free = dict(self.place), list(self.free)
        for name in ("count", "kept", "origin", "stamps", "values"):
            setattr(other, name, getattr(self, name).copy())
        other.static, other.outputs = self.static.clone(), self.outputs.clone()
        other.states = each(Tensor.clone, self.states)
        return other

    def _grow(self, size: int) -> None:
        for name in ("count", "kept", "origin", "stamps", "values"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: self.size] = old
            setattr(self, name, new)
        self.static, self.outputs = room(self.static, size), room(self.outputs, size)
        self.states = room(self.states, size * self.ring)
        self.free = [*range(size - 1, self.size - 1, -1), *self.free]
        self.size = size


def dressed(state: Any, static: Tensor | None) -> Any:
    """The state of a model, or the states of an ensemble, with these static covariates."""
    if isinstance(state, State):
        return state._replace(static=static)
    return tuple(one._replace(static=static) for one in state)
