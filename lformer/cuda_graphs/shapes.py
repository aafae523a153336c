"""Few shapes for batches of many lengths: every shape wants a recording of its own."""

from __future__ import annotations

from typing import TypeVar

from lformer.batch import Place, Source

S = TypeVar("S", bound=Source)
GRAIN = 8  # so many rows more or less make no difference to a GPU, and a recording takes as long as many steps


def pad_to_bucket(batch: S, targets: Place = "series") -> S:
    """The batch padded to one of few shapes; `targets` says where they stand.

    A batch has at most an eighth more rows then, or fewer than eight more.
    """
    rows, queries = batch.extent
    return batch.padded(rounded_up(rows), None if queries is None else rounded_up(queries), targets)


def rounded_up(n: int) -> int:
    """The next multiple of eight with at most four binary digits that count: eight to an octave.

    Example:
        >>> [rounded_up(n) for n in (0, 3, 16, 17, 100, 1000, 4000)]
        [0, 8, 16, 24, 104, 1024, 4096]
    """
    step = max(GRAIN, 1 << max(0, n.bit_length() - 4))
    return -(-n // step) * step
