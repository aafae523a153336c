"""Work for the CPU while a GPU trains."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

Later = Callable[[Callable[[], Any]], Callable[[], Any]]
CORES = 4  # CPU cores for each of our threads


@contextmanager
def meanwhile(device: torch.device) -> Iterator[Later]:
    """In this context, `later(work)` returns a function that waits for the result of `work`.

    If a GPU trains, the work starts at once in another thread. If the CPU trains, it has no core to spare, so the work
    is done when its result is first requested.

    Example:
        >>> with meanwhile(torch.device("cpu")) as later:
        ...     result = later(lambda: 1 + 1)
        ...     result()
        2
    """
    if device.type == "cpu":
        yield lambda work: cache(work)
        return
    pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // CORES), thread_name_prefix="lformer-meanwhile")
    try:
        yield lambda work: pool.submit(work).result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
