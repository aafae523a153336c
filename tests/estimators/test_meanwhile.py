"""Work beside training: in another thread where a GPU trains, when it is asked for on a CPU."""

import threading

import pytest
import torch

from lformer.estimators.meanwhile import meanwhile


def test_on_a_cpu_work_waits_until_it_is_asked_for() -> None:
    done: list[int] = []
    with meanwhile(torch.device("cpu")) as later:
        result = later(lambda: done.append(1) or len(done))
        assert not done
        assert (result(), result()) == (1, 1)  # and is done once


def test_beside_a_gpu_it_begins_at_once() -> None:
    begun = threading.Event()

    def work() -> str:
        begun.set()
        return threading.current_thread().name

    with meanwhile(torch.device("cuda")) as later:
        result = later(work)
        assert begun.wait(10)
        assert result() != threading.current_thread().name


def test_what_has_not_begun_is_given_up_with_the_fit() -> None:
    go_on, begun = threading.Event(), []

    def leave_it() -> None:
        with meanwhile(torch.device("cuda")) as later:
            for n in range(100):
                later(lambda n=n: begun.append(n) or go_on.wait(10))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave_it()
    go_on.set()
    assert len(begun) < 100
