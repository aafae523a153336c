"""`examine`: read a table as far as possible, run every check, and try to build the panel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd

from lformer.arrays import whole_number
from lformer.doctor import channels, quick, series, timing
from lformer.doctor.layout import Figures, Layout, lay_out, padding
from lformer.doctor.records import Records, read_records, without_marks
from lformer.doctor.report import LEVELS, Finding, Report
from lformer.doctor.sketch import sketch
from lformer.panel import MissingValues, Panel
from lformer.panel.core import OnDuplicate
from lformer.panel.long import check_names

REFUSED = "Training refuses the table"
TRIAL = 2 * 10**8  # largest number of cells of a panel that is built as a trial


def examine(
    table: pd.DataFrame,
    *,
    id: str,
    time: str,
    channel: str | None = None,
    value: str | Sequence[str] | None = None,
    missing_values: MissingValues = None,
    batch_size: int = 64,
    on_duplicate: OnDuplicate = "error",
    trial: Callable[[], Panel] | None = None,
) -> Report:
    """Check a table as `Panel.from_long` would read it, and report whether training would work.

    Args:
        table: the observations, in any order.
        id: column with the id of each row's series.
        time: column with the time stamps.
        channel: column with the channel names; None if each channel has a column of its own.
        value: column with the values; without `channel`, the columns of the channels, and None stands for all others.
        missing_values: numbers that stand for missing values, as in `Panel.from_long`.
        batch_size: series per batch, to estimate the amount of padding.
        on_duplicate: how training would resolve duplicates of (id, time, channel), as in `Panel.from_long`.
        trial: function that does what training starts with and returns the panel; `Panel.from_long` if None. It is
            called if no other check finds an error, and an exception becomes a finding.

    Example:
        >>> table = pd.DataFrame({"who": ["a", "a", "b"], "t": [0.0, 0.7, 0.2], "x": [1.0, float("inf"), 2.0]})
        >>> report = examine(table, id="who", time="t")
        >>> report.ok, report.findings[0].title
        (False, 'Infinite values')
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"examine takes a pandas DataFrame; got {type(table).__name__}.")
    check_names(id, time, channel, value)
    if whole_number(batch_size, "batch_size") < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    records, findings = read_records(table, id, time, channel, value)
    if records is None:
        return Report(tuple(findings), {"rows": len(table)}, channels.no_channels())
    records = without_marks(records, missing_values)
    layout = lay_out(records)
    about = channels.channel_table(records, layout)
    figures = _figures(records, layout, about, batch_size)
    for check in (*series.CHECKS, *timing.CHECKS):
        findings += check(records, layout, figures)
    if on_duplicate != "error":
        findings = [timing.merged(f, on_duplicate) if f.title == timing.DUPLICATES else f for f in findings]
    marks = quick.marks_of(records.channels)
    for look in channels.CHECKS:
        findings += look(records, about, marks)
    if not any(f.level == "error" for f in findings) and figures["cells"] <= TRIAL:
        findings += _trial(
            trial
            or partial(
                Panel.from_long, table, id=id, time=time, channel=channel, value=value, missing_values=missing_values,
                on_duplicate=on_duplicate,
            )
        )  # fmt: skip
    findings.sort(key=lambda f: LEVELS.index(f.level))
    return Report(tuple(findings), figures, about, layout.unit, sketch(records, layout, about))


def _trial(build: Callable[[], Panel]) -> Iterator[Finding]:
    """Build the panel: reports any other reason to refuse the table, and what only its rows reveal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            panel = build()
    except Exception as error:
        yield Finding("error", REFUSED, str(error), "Put right what the message names.")
    else:
        yield from quick.copied(panel, quick.channels_of(panel)[0])


def _figures(records: Records, layout: Layout, about: pd.DataFrame, batch_size: int) -> Figures:
    lengths = layout.lengths
    observations = sum(len(c.rows) for c in records.channels)
    cells = len(layout.source) * len(records.channels)
    figures: Figures = {
        "rows": len(records.owner),
        "series": len(records.ids),
        "channels": len(records.channels),
        "stamps": len(layout.source),
        "observations": observations,
        "cells": cells,
        "observed_share": 1 - float(about["missing"].mean()),
        "duration_total": float(layout.durations().sum()),
        "batch_size": batch_size,
        "panel_bytes": 5 * cells + 8 * len(layout.source),  # float32 values, booleans and times
    }
    if len(lengths):
        for name, q in (("min", 0), ("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1)):
            figures[f"length_{name}"] = float(np.quantile(lengths, q))
    else:
        figures |= {f"length_{name}": 0.0 for name in ("min", "median", "p90", "p99", "max")}
    figures["padding_random"], figures["padding_by_length"] = padding(lengths, batch_size)
    gaps = layout.gaps[np.isfinite(layout.gaps)]
    if len(gaps):
        median, p99 = np.quantile(gaps, (0.5, 0.99))
        largest = float(gaps.max())
        figures |= {"gap_median": float(median), "gap_p99": float(p99), "gap_max": largest}
        figures["gap_min"] = float(gaps.min())
        figures["gap_ratio"] = largest / float(median) if median > 0 else float("inf")
    return figures
