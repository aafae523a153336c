"""Numbers, spans of time and time stamps as text for a reader."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

SHOWN = 3  # examples in a finding
CLOCK = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def number(x: float) -> str:
    """Format a number with three significant digits, or in full if it is whole.

    Example:
        >>> number(12345), number(0.123456), number(1234.56), number(2.5e-7)
        ('12,345', '0.123', '1,235', '2.5e-07')
    """
    if not math.isfinite(x):
        return "none" if math.isnan(x) else str(x)
    if float(x).is_integer() and abs(x) < 1e15:
        return f"{int(x):,}"
    if 1e-3 <= abs(x) < 1e9:
        decimals = max(0, 2 - math.floor(math.log10(abs(x))))
        return f"{x:,.{decimals}f}"
    return f"{x:.3g}"


def percent(share: float) -> str:
    """Format a share in percent, never rounded to 0 or 100 unless it is exact.

    Example:
        >>> percent(0.25), percent(0.99999), percent(1e-5)
        ('25 %', '> 99.9 %', '< 0.1 %')
    """
    if math.isnan(share):
        return "none"
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.3g} %"


def span(x: float, unit: str) -> str:
    """Format a span of time; spans in seconds are given in the largest unit that fits.

    Example:
        >>> span(5400, "s"), span(0.25, "h"), span(2, "")
        ('1.50 h', '0.250 h', '2')
    """
    if unit == "s" and math.isfinite(x):
        unit, size = next(((name, size) for name, size in CLOCK if abs(x) >= size), ("s", 1.0))
        x /= size
    return f"{number(x)} {unit}".rstrip()


def readable(horizon: float, unit: str) -> tuple[float, str]:
    """A unit in which spans up to a horizon are easy to read: its size in the given unit, and its name.

    Example:
        >>> readable(200_000, "s"), readable(200_000, "weeks")
        ((86400.0, 'd'), (1.0, 'weeks'))
    """
    if unit != "s":
        return 1.0, unit
    return next(((size, name) for name, size in CLOCK if horizon >= 2 * size), (1.0, "s"))


def stamp(x: Any) -> str:
    """Format a time stamp as the user would write it."""
    if isinstance(x, np.datetime64):
        return str(np.datetime_as_string(x, unit="auto")) if not np.isnat(x) else "NaT"
    return f"{x:.15g}" if isinstance(x, float | np.floating) else str(x)


def listed(examples: Iterable[str], total: int) -> str:
    """List some examples, and how many more there are.

    Example:
        >>> listed(["row 3", "row 9"], 5)
        'row 3; row 9; and 3 more'
    """
    chosen = list(examples)
    return "; ".join(chosen) + (f"; and {total - len(chosen):,} more" if total > len(chosen) else "")


def counted(n: int, word: str) -> str:
    """A count with its noun: `1 row`, `2 rows`; series stay series."""
    return f"{n:,} {word if n == 1 or word == 'series' else word + 's'}"
