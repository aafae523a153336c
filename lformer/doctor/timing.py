"""Checks of rows and time stamps: order, duplicates, resolution and gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from lformer.doctor.dates import EXCEL
from lformer.doctor.layout import Figures, Layout, by_number, distinct
from lformer.doctor.quick import dated
from lformer.doctor.records import Array, Channel, Records
from lformer.doctor.report import Finding
from lformer.doctor.words import SHOWN, counted, listed, number, span, stamp
from lformer.panel.stamps import LONGEST

EPOCHS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
EPOCH_LOW, EPOCH_HIGH = 1e8, 5e9  # seconds since 1970: from 1973 to 2128
SERIALS = (36526.0, 55153.0)  # days since 1899-12-30: from 2000 to 2050
MIDNIGHT = 86400  # seconds; a multiple of 128, so whole days merely look as if they had been rounded
DUPLICATES = "Duplicates"
ENOUGH = 8  # least number of different time stamps in which a pattern means anything
COARSE = 0.05  # resolution of float32 stamps as a share of the median gap
HUGE_GAP, BEYOND_P99 = 100.0, 10.0  # times the median, times the 99 % quantile
ROUNDING = 1e-9  # relative difference of time stamps that are probably meant to be the same


def _unsorted(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    kept = np.flatnonzero(layout.row_of >= 0)
    kept = kept[by_number(records.owner[kept])]
    owner, clock = records.owner[kept], records.clock[kept]
    back = np.flatnonzero((owner[1:] == owner[:-1]) & (clock[1:] < clock[:-1]))
    figures["unsorted"] = len(back)
    if len(back):
        at = int(back[0])
        yield Finding(
            "info", "Stamps out of order",
            f"{counted(len(back), 'row')} in {counted(distinct(owner[back]), 'series')} come before the row "
            f"above them, such as {records.at(kept[at + 1])} after {stamp(clock[at])}.",
            "Nothing to do: Panel.from_long sorts the rows. If they were meant to be in order of time, check the time "
            "stamps.",
            "Nothing to do: rows are sorted. If their order was meant to be the order of time, check the stamps.",
        )  # fmt: skip


def _merged_rows(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    """Rows with the same id and time: usual in a table with a channel column, worth mentioning in one without."""
    in_row = np.bincount(layout.row_of[layout.row_of >= 0], minlength=len(layout.source))
    tied = in_row > 1
    figures["tied"] = int(in_row[tied].sum())
    if records.wide and tied.any():
        rows = layout.source[tied]
        yield Finding(
            "info", "Rows with the same id and time",
            f"{counted(int(figures['tied']), 'row')} share {counted(len(rows), 'stamp')}: "
            f"{listed((records.at(r) for r in rows[:SHOWN]), len(rows))}.",
            "Nothing to do if they hold different channels: they become one row.",
        )  # fmt: skip


def _duplicates(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    count = agree = 0
    shown: list[str] = []
    for channel in records.channels:
        rows, low, high, times = _repeats(channel, layout)
        count += len(rows)
        agree += int((low == high).sum())
        shown += [
            f"{records.at(r)}, channel {channel.name} ({n} values from {a:.6g} to {b:.6g})"
            for r, a, b, n in list(zip(rows, low, high, times, strict=True))[: SHOWN - len(shown)]
        ]
    figures |= {"duplicates": count, "duplicates_agreeing": agree}
    if count:
        yield Finding(
            "error", DUPLICATES,
            f"{count:,} (id, time, channel) occur more than once; in {agree:,} of them all values agree, in "
            f"{count - agree:,} they differ: {listed(shown, count)}.",
            "Drop the surplus rows, or choose with Panel.from_long(..., on_duplicate=\"mean\"), \"last\" or \"keep\"."
            + (" \"last\" loses nothing here." if agree == count else ""),
            "Drop the surplus rows, or choose with --on-duplicate mean or --on-duplicate last."
            + (" --on-duplicate last loses nothing here." if agree == count else ""),
        )  # fmt: skip


def merged(finding: Finding, on_duplicate: str) -> Finding:
    """The finding about duplicates if the user has specified how to resolve them."""
    done = f"Nothing to do: on_duplicate={on_duplicate!r} resolves them."
    option = f"Nothing to do: --on-duplicate {on_duplicate} resolves them."
    return replace(finding, level="info", advice=done, option=option)


def _repeats(channel: Channel, layout: Layout) -> tuple[Array, Array, Array, Array]:
    """For each (id, time) that occurs more than once: one record, its lowest and highest value, and their number."""
    row = layout.row_of[channel.rows]
    records, values = channel.rows[row >= 0], channel.values[row >= 0]
    row = row[row >= 0]
    if not bool((row[1:] >= row[:-1]).all()):
        order = np.argsort(row, kind="stable")
        row, records, values = row[order], records[order], values[order]
    starts = np.flatnonzero(np.append(True, row[1:] != row[:-1])[: len(row)])
    if len(starts) == len(row):
        return records[:0], values[:0], values[:0], row[:0]
    times = np.diff(np.append(starts, len(row)))
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    more = times > 1
    return records[starts[more]], low[more], high[more], times[more]


def _float32_stamps(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    clock = records.clock[layout.source]
    if not len(clock):
        return
    advice = (
        "Go back to the source of the time stamps and read them as int64, float64 or datetime64; what float32 has "
        "rounded away cannot be recovered. Or subtract the start of each series before storing times in float32."
    )
    if getattr(records.stored, "kind", "") == "f" and records.stored.itemsize < 8:
        step = float(np.spacing(np.abs(clock).max().astype(f"f{records.stored.itemsize}")))
        if _epoch_unit(clock) or step > COARSE * figures.get("gap_median", np.inf):
            yield Finding(
                "warning", "Stamps in float32",
                f"Stamps up to {stamp(clock.max())} are stored as {records.stored}, which resolves {step:g} at that "
                f"size; time stamps closer together than that have been merged or shifted.",
                advice,
            )  # fmt: skip
        return
    seconds = _seconds_since_1970(clock)
    if seconds is None or distinct(seconds) < ENOUGH or bool((seconds % MIDNIGHT == 0).all()):
        return
    if bool((seconds.astype(np.float32).astype(np.float64) == seconds).all()):
        step = float(np.spacing(seconds.max().astype(np.float32)))
        yield Finding(
            "warning", "Stamps rounded to float32",
            f"All {number(len(seconds))} stamps are multiples of {np.gcd.reduce(seconds.astype(np.int64)):g} s since "
            f"1970, such as {stamp(clock[0])}: they look like epoch seconds that once went through float32, which "
            f"resolves {step:g} s at that size.",
            advice,
        )  # fmt: skip


def _seconds_since_1970(clock: Array) -> Array | None:
    """(N,) float64 if the time stamps are whole seconds of recent decades, else None."""
    if clock.dtype.kind == "M":
        whole = clock.astype("datetime64[s]")
        if not bool((whole == clock).all()):
            return None
        seconds = whole.astype(np.int64).astype(np.float64)
    elif _epoch_unit(clock) == "s":
        seconds = clock.astype(np.float64)
    else:
        return None
    inside = seconds.min() >= EPOCH_LOW and seconds.max() <= EPOCH_HIGH and bool((seconds % 1 == 0).all())
    return seconds if inside else None


def _epoch_unit(clock: Array) -> str:
    """The unit in which numbers look like time since 1970; "" if they do not."""
    if clock.dtype.kind not in "if" or not len(clock):
        return ""
    low, high = float(clock.min()), float(clock.max())
    return next((unit for unit, n in EPOCHS.items() if EPOCH_LOW * n <= low and high <= EPOCH_HIGH * n), "")


def _epoch(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    clock = records.clock[layout.source]
    unit = _epoch_unit(clock)
    if unit:
        first, last = (pd.Timestamp(int(x), unit=unit) for x in (clock.min(), clock.max()))
        yield Finding(
            "info", f"Stamps look like Unix time in {unit}",
            f"Read so, they run from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}. Gaps are counted in {unit}; "
            f"the median is {number(figures.get('gap_median', float('nan')))}.",
            "Nothing to do: only differences count, and they are computed in 64 bits. For another unit, convert with "
            f'pandas.to_datetime(..., unit="{unit}") and choose Panel.from_long(..., unit="h").',
            f"Nothing to do if only differences count; --time-format unix-{unit} makes dates of them, so that the "
            "model sees hours and weekdays.",
        )  # fmt: skip


def _excel(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    """Numbers that a spreadsheet would show as dates of this century."""
    clock = records.clock[layout.source]
    if clock.dtype.kind not in "if" or distinct(clock) < ENOUGH:
        return
    low, high = float(clock.min()), float(clock.max())
    if SERIALS[0] <= low and high < SERIALS[1]:
        first, last = (pd.Timestamp(EXCEL) + pd.Timedelta(days=x) for x in (low, high))
        yield Finding(
            "info", "Stamps may be day numbers of a spreadsheet",
            f"Read so, they run from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}, and gaps are counted in days.",
            f'Nothing to do if only differences count; pandas.to_datetime(..., unit="D", origin="{EXCEL}") makes '
            "dates of them.",
            "Nothing to do if only differences count; --time-format excel makes dates of them, so that the model sees "
            "hours and weekdays.",
        )  # fmt: skip


def _dated(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    return dated(records.clock[layout.source])


def _too_far_apart(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    """Gaps that make a series longer than 64-bit integers or a panel can represent."""
    before, after = layout.times[layout.after - 1], layout.times[layout.after]
    bad = (before <= LONGEST) & ~(after <= LONGEST)
    if bad.any():
        here, there = (records.at(layout.source[i]) for i in _around(layout, int(np.argmax(bad))))
        yield Finding(
            "error", "Stamps too far apart",
            f"{counted(int(bad.sum()), 'gap')} cannot be represented: {here}, then {there}.",
            "Such time stamps usually stand for missing ones; drop these rows.",
        )  # fmt: skip


def _around(layout: Layout, gap: int) -> tuple[int, int]:
    """The rows before and after a gap."""
    return int(layout.after[gap]) - 1, int(layout.after[gap])


def _huge_gaps(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    if "gap_median" not in figures:
        return
    limit = max(HUGE_GAP * figures["gap_median"], BEYOND_P99 * figures["gap_p99"])
    huge = (layout.gaps > limit) & np.isfinite(layout.gaps)
    if not huge.any():
        return
    where = np.flatnonzero(huge)
    where = where[np.argsort(-layout.gaps[where], kind="stable")]
    shown = []
    for gap in where[:SHOWN]:
        before, after = _around(layout, int(gap))
        shown.append(
            f"{span(layout.gaps[gap], layout.unit)} in series {records.ids[layout.owner[after]]} between "
            f"{stamp(records.clock[layout.source[before]])} and {stamp(records.clock[layout.source[after]])}"
        )
    series = distinct(layout.owner[layout.after[where]])
    yield Finding(
        "warning", "Huge gaps",
        f"{counted(len(where), 'gap')} in {counted(series, 'series')} far above the median of "
        f"{span(figures['gap_median'], layout.unit)} and the 99 % quantile of "
        f"{span(figures['gap_p99'], layout.unit)}: {listed(shown, len(where))}.",
        "Check these time stamps for a wrong unit or a date that stands for a missing one. If they are correct, "
        "consider splitting the series at the gap.",
    )  # fmt: skip


def _near_ties(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    """Time stamps that differ only by rounding, and would become separate rows."""
    clock = records.clock
    if clock.dtype.kind != "f" or "gap_median" not in figures:
        return
    size = np.abs(clock[layout.source[layout.after]])
    close = np.flatnonzero((layout.gaps <= ROUNDING * size) & (layout.gaps < 1e-3 * figures["gap_median"]))
    if len(close):
        pairs = [[records.clock[layout.source[row]] for row in _around(layout, int(g))] for g in close[:SHOWN]]
        who = [records.ids[layout.owner[layout.after[g]]] for g in close[:SHOWN]]
        shown = (f"series {w}, {a:.17g} and {b:.17g}" for w, (a, b) in zip(who, pairs, strict=True))
        yield Finding(
            "warning", "Stamps that differ only by rounding",
            f"{counted(len(close), 'pair')} of neighbouring stamps: {listed(shown, len(close))}.",
            "If they are meant to be the same, round them before building the panel: table[time].round(6).",
            "If they are meant to be the same, round them in the file.",
        )  # fmt: skip


CHECKS = (
    _unsorted, _merged_rows, _duplicates, _float32_stamps, _epoch, _excel, _dated, _too_far_apart, _huge_gaps,
    _near_ties,
)  # fmt: skip
