"""The chart of one record: its channels over time, with the contribution of each observation as its size."""

from __future__ import annotations

import numpy as np

from lformer.doctor.words import number, readable, stamp
from lformer.drawing import clean, line, short, svg, text, ticks
from lformer.panel import Array
from lformer.report.charts import UNITS, Chart
from lformer.report.facts import Example
from lformer.report.frame import Frame, around
from lformer.report.frame import label as axis_label

STRIPS = 5  # channels drawn
LARGEST = 6  # contributions in the table
WIDE = 900.0


def record(example: Example) -> Chart:
    """Triangles that point up raise the prediction, those that point down lower it; the table lists the largest."""
    table = example.explanation.table
    total = table["contribution"].abs().groupby(table["channel"]).sum().sort_values(ascending=False, kind="stable")
    names = total.index[:STRIPS].tolist()
    most = float(table["contribution"].abs().max()) or 1.0
    moments = np.append(example.times, 0.0 if example.asked is None else example.asked)
    size, unit = readable(float(moments.max()), example.unit)
    high, gap, left, right = 62.0, 14.0, 150.0, WIDE - 20
    begin, end = float(moments.min()) / size, float(moments.max()) / size
    parts = []
    bottom = 8 + (high + gap) * len(names)
    ends = around(begin, end) if end > begin else (0.0, 1.0)
    across = Frame(left=left, right=right, x_low=ends[0], x_high=ends[1])
    for v in ticks(begin, end, 6):
        parts += [
            line(across.x(v), 4, across.x(v), bottom - gap + 4, "grid"),
            text(across.x(v), bottom + 8, axis_label(v), "small", "middle"),
        ]
    words = UNITS.get(unit, unit)
    parts.append(
        text((left + right) / 2, bottom + 27, f"{words or 'time'} since the first observation", "small", "middle")
    )
    if example.asked is not None:
        x = across.x(example.asked / size)
        parts += [line(x, 4, x, bottom - gap + 4, "mark"), text(x - 5, bottom - gap, "query", "small", "end")]
    for n, name in enumerate(names):
        mine = np.flatnonzero((table["channel"] == name).to_numpy())
        parts += _strip(example, mine, str(name), 8 + (high + gap) * n, high, across, size, most)
    label = f"Record {example.explanation.id}: observations and their contributions to {example.explanation.what}"
    order = np.argsort(-table["contribution"].abs().to_numpy(), kind="stable")[:LARGEST]
    rows = [
        [str(row["channel"]), stamp(_scalar(row["time"])), number(float(row["value"])), f"{row['contribution']:+.3g}"]
        for row in table.iloc[order].to_dict("records")
    ]
    return Chart(svg(WIDE, bottom + 34, label, parts), ["channel", "time", "value", "contribution"], rows)


def _strip(
    example: Example, mine: Array, name: str, top: float, high: float, across: Frame, size: float, most: float
) -> list[str]:
    """One channel: a line through its observations, and their contributions."""
    table = example.explanation.table
    values = table["value"].to_numpy(dtype=float)[mine]
    low_y, high_y = around(float(values.min()), float(values.max()))
    frame = Frame(
        left=across.left, right=across.right, x_low=across.x_low, x_high=across.x_high, top=top, bottom=top + high,
        y_low=low_y, y_high=high_y,
    )  # fmt: skip
    times = example.times[mine] / size
    parts = [
        line(frame.left, frame.bottom, frame.right, frame.bottom, "axis faint"),
        text(frame.left - 10, top + high / 2, short(name, 20), "strong", "end"),
        text(frame.left - 10, top + high / 2 + 15, _range(values), "small", "end"),
        frame.path(times, values, "thread"),
    ]
    gave = table["contribution"].to_numpy()[mine]
    order = np.argsort(np.abs(gave), kind="stable")  # large ones lie above
    for k in order:
        tip = f"{name} {number(values[k])} at {stamp(_scalar(table['time'].iloc[mine[k]]))}: {gave[k]:+.3g}"
        parts.append(_triangle(frame.x(times[k]), frame.y(values[k]), float(gave[k]) / most, tip))
    return parts


def _range(values: Array) -> str:
    low, high = number(float(values.min())), number(float(values.max()))
    return low if low == high else f"{low} to {high}"


def _triangle(x: float, y: float, share: float, tip: str) -> str:
    """A triangle that points up or down by the sign of the share, from -1 to 1, which sets its size; a dot near 0."""
    if abs(share) < 0.02:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" class="idle"><title>{clean(tip)}</title></circle>'
    r = 2.5 + 6.5 * abs(share) ** 0.5
    up = -1 if share > 0 else 1
    kind = "raise" if share > 0 else "lower"
    path = f"M{x - r:.1f} {y - up * r * 0.75:.1f}h{2 * r:.1f}L{x:.1f} {y + up * r:.1f}Z"
    return f'<path d="{path}" class="{kind}"><title>{clean(tip)}</title></path>'


def _scalar(when: object) -> object:
    """A pandas time stamp as one of numpy, which `stamp` writes without trailing zeros; others as they are."""
    zone = getattr(when, "tzinfo", None)
    return when.to_datetime64().astype("datetime64[s]") if hasattr(when, "to_datetime64") and zone is None else when
