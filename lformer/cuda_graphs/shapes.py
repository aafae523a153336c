"""Few shapes for batches of many lengths: every shape wants a recording of its own."""

from __future__ import annotations

from typing import TypeVar

from lformer.batch import Place, Source

S = TypeVar("S", bound=Source)


def pad_to_bucket(batch: S, targets: Place = "series") -> S:
    """The batch padded to one of few shapes, with at most an eighth more rows; `targets` says where they stand."""
    rows, queries = batch.extent
    return batch.padded(rounded_up(rows), None if queries is None else rounded_up(queries), targets)


def rounded_up(n: int) -> int:
    """The next number with at most four binary digits that count: eight to an octave, at most an eighth more.

    Example:
        >>> [rounded_up(n) for n in (3, 16, 17, 100, 1000, 4000)]
        [3, 16, 18, 104, 1024, 4096]
    """
    step = 1 << max(0, n.bit_length() - 4)
    return -(-n // step) * step
