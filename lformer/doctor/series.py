"""Checks of whole series: empty, short and long ones, and the cost of padding and storage."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lformer.doctor.dates import is_text
from lformer.doctor.layout import Figures, Layout
from lformer.doctor.records import Records
from lformer.doctor.report import Finding
from lformer.doctor.words import SHOWN, counted, listed, number, percent

ALONE = "A single series"
TAIL = 10.0  # longest series to median
WASTE = 0.5  # share of padding
ROOMY = 4 * 2**30  # bytes of a panel that are worth a warning


def _nothing_observed(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    if not figures["observations"]:
        yield Finding(
            "error", "Nothing was observed", f"All values of the {counted(len(records.owner), 'row')} are missing.",
            "Check the column names, and how missing values are written.",
        )  # fmt: skip


def _alone(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    if len(records.ids) == 1:
        yield Finding(
            "error", ALONE,
            f"There is no id but {records.ids[0]} in the {counted(len(records.owner), 'row')}; training needs other "
            "series to validate on.",
            "Check that the id column names the series. A long recording can be cut into several: panel.cut(length).",
            "Check that --id names the column of the series. A long recording needs an id for each of its parts.",
        )  # fmt: skip


def _same_number(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    """Ids that differ only as text, such as 7 and 007."""
    if not is_text(pd.Series(records.ids[:1])):
        return
    ids = pd.Series(records.ids).astype(str)
    numbers = pd.to_numeric(ids.where(ids.str.fullmatch(r"[+-]?\d+(\.0*)?")), errors="coerce").dropna()
    alike = numbers[numbers.duplicated(keep=False)].sort_values(kind="stable")
    if len(alike):
        shown = [", ".join(map(repr, ids[group.index])) for _, group in alike.groupby(alike)]
        yield Finding(
            "warning", "Ids that are the same number",
            f"{counted(len(alike), 'id')} are different series, and would be fewer as numbers: "
            f"{listed(shown[:SHOWN], len(shown))}.",
            "If they are meant to be the same, convert them: table[id].astype(int).",
            "If they are meant to be the same, give --id-type int",
        )  # fmt: skip


def _single(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    who = np.flatnonzero(layout.lengths == 1)
    figures["single"] = len(who)
    if len(who):
        yield Finding(
            "warning", "Series with a single row",
            f"{counted(len(who), 'series')} of {len(layout.lengths):,}: "
            f"{listed((str(records.ids[i]) for i in who[:SHOWN]), len(who))}.",
            "They contain no time interval to learn from. Drop them, unless such short series are expected. If nearly "
            "all series are this short, check that the id column identifies the series and not the row.",
        )  # fmt: skip


def _never_seen(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    """Series whose values are all missing."""
    seen = np.zeros(len(records.ids), bool)
    for channel in records.channels:
        owner = records.owner[channel.rows]
        seen[owner[owner >= 0]] = True
    who = np.flatnonzero(~seen)
    figures["empty_series"] = len(who)
    if len(who) and seen.any():
        yield Finding(
            "warning", "Series without a value",
            f"{counted(len(who), 'series')} of {len(seen):,} have rows but no observed value: "
            f"{listed((str(records.ids[i]) for i in who[:SHOWN]), len(who))}.",
            "Drop them: a model can only predict a constant for them.",
        )  # fmt: skip


def _long_tail(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    longest, median = figures["length_max"], figures["length_median"]
    if median > 0 and longest > TAIL * median:
        yield Finding(
            "info", "A few very long series",
            f"The longest, {records.ids[layout.lengths.argmax()]}, has {number(longest)} rows, "
            f"{number(longest / median)} times the median of {number(median)}; the 90th percentile is "
            f"{number(figures['length_p90'])}.",
            "Batches with one of them take much memory; panel.cut(length) cuts long series into pieces.",
            "Batches with one of them take much memory; cut it into several series.",
        )  # fmt: skip


def _padding_waste(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    drawn, by_length = figures["padding_random"], figures["padding_by_length"]
    if drawn > WASTE:
        yield Finding(
            "info", "Much padding in random batches",
            f"In batches of {number(figures['batch_size'])} series drawn at random, {percent(drawn)} of the cells are "
            f"padding; in batches of similar length, {percent(by_length)} are.",
            "Batch series of similar length, as training in this library does"
            + ("; cut the longest ones with panel.cut(length)." if by_length > WASTE else "."),
            "Nothing to do: training batches series of similar length.",
        )  # fmt: skip


def _memory(records: Records, layout: Layout, figures: Figures) -> Iterator[Finding]:
    if figures["panel_bytes"] > ROOMY:
        yield Finding(
            "warning", "A large panel",
            f"{number(figures['stamps'])} rows of {counted(len(records.channels), 'channel')} take "
            f"{number(figures['panel_bytes'] / 2**30)} GiB, of which {percent(figures['observed_share'])} is used.",
            "Check that the channel column really names the channels; if it does, leave out rare channels or train on "
            "fewer series.",
        )  # fmt: skip


CHECKS = (_nothing_observed, _alone, _same_number, _single, _never_seen, _long_tail, _padding_waste, _memory)
