"""Threads that record and replay: a recording is alone, replays are not."""

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from lformer.cuda_graphs.turns import Turns


def together(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_nothing_happens_beside_a_recording() -> None:
    turns = Turns()
    inside: set[tuple[str, int]] = set()
    beside: list[set[tuple[str, int]]] = []

    def work(kind: str, number: int) -> None:
        for _ in range(100):
            with turns.recording() if kind == "record" else turns.replaying():
                inside.add((kind, number))
                time.sleep(0)  # others may go on
                if kind == "record":
                    beside.append(inside - {(kind, number)})
                inside.discard((kind, number))

    together(*(partial(work, kind, n) for n in range(3) for kind in ("record", "replay")))
    assert len(beside) == 300
    assert not any(beside)


def test_replays_go_on_beside_each_other() -> None:
    turns, meeting = Turns(), threading.Barrier(3)

    def replay() -> None:
        with turns.replaying():
            meeting.wait(20)  # which all of them reach

    together(replay, replay, replay)


def test_an_error_ends_a_turn() -> None:
    turns = Turns()
    for turn in (turns.recording, turns.replaying, turns.recording):
        with pytest.raises(KeyError), turn():
            raise KeyError
