"""The few shapes that our pages draw as SVG; colours come from the page, so that pictures suit light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

LETTER = 6.2  # width of a letter, about


def clean(text: object) -> str:
    """Text that may stand in a page: escaped, and without control characters."""
    return escape("".join(c if c.isprintable() else "·" for c in str(text)))


def short(text: str, letters: int) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two others.

    Example:
        >>> ticks(0, 47)
        [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * (1 - 1e-9))
    return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    """A picture with a name for those who do not see it."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{clean(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{clean(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>'


def bar(x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> str:
    title = f"<title>{clean(tip)}</title>" if tip else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}">{title}</rect>'
