"""Frame: the axes of a chart, and the conversion of numbers into positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lformer.drawing import clean, line, text, ticks
from lformer.panel import Array

HALF, HIGH = 440.0, 250.0  # size of a chart that is placed next to another


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The plotting area of a chart, and the numbers at its edges."""

    left: float = 56.0
    right: float = HALF - 14
    top: float = 14.0
    bottom: float = HIGH - 46
    x_low: float = 0.0
    x_high: float = 1.0
    y_low: float = 0.0
    y_high: float = 1.0

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * (value - self.x_low) / ((self.x_high - self.x_low) or 1.0)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * (value - self.y_low) / ((self.y_high - self.y_low) or 1.0)

    def axes(self, across: str, whole: bool = False) -> list[str]:
        """Grid and tick labels of both axes, and the name of the horizontal one; `whole` shows integers only."""
        parts = []
        for v in ticks(self.y_low, self.y_high, 4):
            parts += [
                line(self.left, self.y(v), self.right, self.y(v), "grid"),
                text(self.left - 7, self.y(v) + 4, label(v), "small", "end"),
            ]
        for v in ticks(self.x_low, self.x_high, 5):
            if not whole or float(v).is_integer():
                parts.append(text(self.x(v), self.bottom + 17, label(v), "small", "middle"))
        parts += [
            line(self.left, self.bottom, self.right, self.bottom, "axis"),
            text((self.left + self.right) / 2, self.bottom + 36, across, "small", "middle"),
        ]
        return parts

    def path(self, xs: Sequence[float] | Array, ys: Sequence[float] | Array, kind: str) -> str:
        """A line through some points."""
        points = "L".join(f"{self.x(a):.1f} {self.y(b):.1f}" for a, b in zip(xs, ys, strict=True))
        return f'<path d="M{points}" class="{kind}"/>' if points else ""


def label(value: float) -> str:
    """Format a number of an axis, without floating-point noise.

    Example:
        >>> label(0.30000000000000004), label(-0.0), label(12000.0)
        ('0.3', '0', '12,000')
    """
    return f"{value + 0.0:,.10g}"


def around(low: float, high: float) -> tuple[float, float]:
    """Extend a range a little, so that nothing lies on the edge."""
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def dot(x: float, y: float, size: float, kind: str, tip: str = "") -> str:
    title = f"<title>{clean(tip)}</title>" if tip else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" class="{kind}">{title}</circle>'
