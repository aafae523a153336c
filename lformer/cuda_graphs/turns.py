"""Who may record, and who may replay: several threads of a process, each with its own model and stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock


class Turns:
    """A recording is alone: a process can make one at a time, and random generators that all graphs know are then not
    fit for a replay. Replays go on beside each other."""

    def __init__(self) -> None:
        self._recorder, self._changed = Lock(), Condition()
        self._recording, self._replays = False, 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, no other thread records, replays, or does anything for the first time.

        For work that is about to be recorded too: kernels that one thread compiles are there for the next.
        """
        with self._recorder:
            with self._changed:
                self._recording = True
                self._changed.wait_for(lambda: not self._replays)
            try:
                yield
            finally:
                with self._changed:
                    self._recording = False
                    self._changed.notify_all()

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Inside, no other thread records."""
        with self._changed:
            self._changed.wait_for(lambda: not self._recording)
            self._replays += 1
        try:
            yield
        finally:
            with self._changed:
                self._replays -= 1
                self._changed.notify_all()


turns = Turns()  # of this process
