"""Numbers, spans of time and stamps as a reader wants them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

SHOWN = 3  # examples in a finding
CLOCK = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def number(x: float) -> str:
    """Three significant digits, whole numbers in full.

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
    """A share in percent, never rounded to 0 or 100 unless it is.

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
    """A span of time; one in seconds of a calendar in the largest unit that it fills.

    Example:
        >>> span(5400, "s"), span(0.25, "h"), span(2, "")
        ('1.50 h', '0.250 h', '2')
    """
    if unit == "s" and math.isfinite(x):
        unit, size = next(((name, size) for name, size in CLOCK if abs(x) >= size), ("s", 1.0))
        x /= size
    return f"{number(x)} {unit}".rstrip()


def readable(horizon: float, unit: str) -> tuple[float, str]:
    """How many of our units make one in which spans up to a horizon are easy to read, and its name.

    Example:
        >>> readable(200_000, "s"), readable(200_000, "weeks")
        ((86400.0, 'd'), (1.0, 'weeks'))
    """
    if unit != "s":
        return 1.0, unit
    return next(((size, name) for name, size in CLOCK if horizon >= 2 * size), (1.0, "s"))


def stamp(x: Any) -> str:
    """A stamp as the user wrote it."""
    if isinstance(x, np.datetime64):
        return str(np.datetime_as_string(x, unit="auto")) if not np.isnat(x) else "NaT"
    return f"{x:.15g}" if isinstance(x, float | np.floating) else str(x)


def listed(examples: Iterable[str], total: int) -> str:
    """Some examples and how many more there are.

    Example:
        >>> listed(["row 3", "row 9"], 5)
        'row 3; row 9; and 3 more'
    """
    chosen = list(examples)
    return "; ".join(chosen) + (f"; and {total - len(chosen):,} more" if total > len(chosen) else "")


def counted(n: int, word: str) -> str:
    """`1 row`, `2 rows`; series stay series."""
    return f"{n:,} {word if n == 1 or word == 'series' else word + 's'}"
