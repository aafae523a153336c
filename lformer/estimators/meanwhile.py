"""What the processor does while a GPU trains."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

Later = Callable[[Callable[[], Any]], Callable[[], Any]]
CORES = 4  # of the processor, for each thread of ours


@contextmanager
def meanwhile(device: torch.device) -> Iterator[Later]:
    """Inside, `later(work)` gives what waits for the result of the work.

    Where a GPU trains, work begins at once in another thread. A CPU that trains has no core to spare: there the work is
    done by whoever asks for its result first.

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
