"""The few shapes that our pages draw as SVG, and the colours of those pages, so that pictures suit light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

LETTER = 6.2  # width of a letter, about
LIGHT = """--page:#fbfbf9;--card:#ffffff;--ink:#1c1e21;--soft:#5c6067;--grid:#e6e6e2;--edge:#deded9;--fill:#2f6fb5;
--good:#1d6f47;--bad:#a8231b;--mark:#c2551d;--raise:#c0392b;--lower:#2667ad;--thread:#b9bbc0;--shade:#eef3f9;
--c0:#2f6fb5;--c1:#c2551d;--c2:#23805f;--c3:#a24688;--c4:#8f6a08;--c5:#6658b8"""
DARK = """--page:#141517;--card:#1d1f22;--ink:#ececee;--soft:#a9acb3;--grid:#2d3034;--edge:#34373c;--fill:#6ea8e6;
--good:#7fd6a8;--bad:#f49a92;--mark:#f0985f;--raise:#f28478;--lower:#7fb5ee;--thread:#5a5e65;--shade:#22303f;
--c0:#6ea8e6;--c1:#f0985f;--c2:#5ccba2;--c3:#d989c1;--c4:#e0b84a;--c5:#a99cf0"""


def themes() -> str:
    """The colours of a page as CSS: as the reader's system has it, or the button of the page; always light on paper."""
    return (
        f":root{{color-scheme:light;{LIGHT}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{DARK}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{DARK}}}}}\n"
    )


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
