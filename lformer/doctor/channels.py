"""Checks of channels, and a table that describes each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from lformer.doctor import quick
from lformer.doctor.layout import Layout, distinct
from lformer.doctor.quick import FEW, Marks
from lformer.doctor.records import Array, Channel, Records
from lformer.doctor.report import Finding
from lformer.doctor.words import SHOWN, counted, listed, number, percent

COLUMNS = ("channel", "observations", "missing", "rate", "minimum", "median", "maximum", "spread", "outliers")
RARE = 0.001  # share of rows
APART = 1000.0  # ratio of the spreads of two channels
WILD = 50.0  # robust standard deviations


def channel_table(records: Records, layout: Layout) -> pd.DataFrame:
    """A row per channel; see `Report.channels`."""
    duration = float(layout.durations().sum())
    return pd.DataFrame([_describe(c, layout, duration) for c in records.channels], columns=list(COLUMNS))


def no_channels() -> pd.DataFrame:
    """The empty table of channels, for a table that could not be read."""
    return pd.DataFrame(columns=list(COLUMNS))


def _describe(channel: Channel, layout: Layout, duration: float) -> dict[str, object]:
    """One row of the table of channels."""
    values = channel.values
    n, nan = len(values), float("nan")
    rows = len(layout.source)
    row = layout.row_of[channel.rows]
    seen = distinct(row[row >= 0])
    low, q1, median, q3, high = np.quantile(values, (0, 0.25, 0.5, 0.75, 1)) if n else (nan,) * 5
    spread = (q3 - q1) / 1.349 if n else nan  # the standard deviation, if the distribution is normal
    if spread == 0:
        spread = float(values.std())
    wild = np.abs(values - median) > WILD * spread if n and spread > 0 else np.zeros(n, bool)
    return {
        "channel": channel.name,
        "observations": n,
        "missing": 1 - seen / rows if rows else 1.0,
        "rate": n / duration if duration > 0 and np.isfinite(duration) else nan,
        "minimum": low,
        "median": median,
        "maximum": high,
        "spread": spread,
        "outliers": int(wild.sum()),
    }


def _named(channels: pd.DataFrame, chosen: pd.Series[bool], show: Callable[[pd.Series[Any]], str]) -> str:
    some = channels[chosen]
    return listed((show(row) for _, row in some.head(SHOWN).iterrows()), len(some))


def _rarely_observed(records: Records, channels: pd.DataFrame, marks: Marks) -> Iterator[Finding]:
    n = channels["observations"]
    rare = (n > 0) & ((channels["missing"] > 1 - RARE) | (n < FEW))
    if rare.any():
        shown = _named(channels, rare, lambda c: f"{c['channel']} ({counted(c['observations'], 'value')})")
        yield Finding(
            "warning", "Channels almost never observed",
            f"{counted(int(rare.sum()), 'channel')} observed in fewer than {percent(RARE)} of the rows or with fewer "
            f"than {FEW} values: {shown}.",
            "Leave them out, unless even a single value is informative.",
        )  # fmt: skip


def _scales(records: Records, channels: pd.DataFrame, marks: Marks) -> Iterator[Finding]:
    spread = channels["spread"]
    spread = spread[spread > 0]
    if len(spread) > 1 and spread.max() > APART * spread.min():
        wide, narrow = channels.loc[spread.idxmax()], channels.loc[spread.idxmin()]
        yield Finding(
            "warning", "Channels on very different scales",
            f"Channel {wide['channel']} has a spread of {number(wide['spread'])}, channel {narrow['channel']} one of "
            f"{number(narrow['spread'])}: a ratio of {number(wide['spread'] / narrow['spread'])}.",
            "Scale each channel by statistics of the training set, or the first will dominate the second.",
        )  # fmt: skip


def _never_observed(records: Records, channels: pd.DataFrame, marks: Marks) -> Iterator[Finding]:
    return quick.never_observed(records.channels)


def _constant(records: Records, channels: pd.DataFrame, marks: Marks) -> Iterator[Finding]:
    return quick.constant(records.channels)


def _marked(records: Records, channels: pd.DataFrame, marks: Marks) -> Iterator[Finding]:
    return quick.marked(marks)


def _outliers(records: Records, channels: pd.DataFrame, marks: Marks) -> Iterator[Finding]:
    """Values far from the median, except marks for missing values, which have a finding of their own."""
    found = {}
    for i in np.flatnonzero(channels["outliers"].to_numpy() > 0):
        channel, about = records.channels[i], channels.iloc[i]
        wild = np.abs(channel.values - about["median"]) > WILD * about["spread"]
        wild &= ~np.isin(channel.values, [mark.value for mark in marks.get(channel.name, [])])
        if wild.any():
            found[i] = np.flatnonzero(wild)
    if found:
        shown = [_worst(records, records.channels[i], found[i], channels.iloc[i]) for i in list(found)[:SHOWN]]
        yield Finding(
            "warning", "Extreme outliers",
            f"{counted(sum(map(len, found.values())), 'value')} in {counted(len(found), 'channel')} more than {WILD:g} "
            f"robust standard deviations from the median: {listed(shown, len(found))}.",
            "Check their units, replace codes for missing values such as -999 with NaN, and clip values that are real.",
        )  # fmt: skip


def _worst(records: Records, channel: Channel, wild: Array, about: pd.Series[Any]) -> str:
    """Describe the most extreme value of a channel, or the one that most of its outliers share."""
    value, times = np.unique(channel.values[wild], return_counts=True)
    often = int(times.argmax())
    if times[often] > 1 and 2 * times[often] >= len(wild):
        at = wild[np.argmax(channel.values[wild] == value[often])]
        return f"{channel.name} is {value[often]:g} in {times[often]:,} rows, first in {records.at(channel.rows[at])}"
    at = wild[np.abs(channel.values[wild] - about["median"]).argmax()]
    return f"{channel.name} is {channel.values[at]:g} in {records.at(channel.rows[at])} (median {about['median']:g})"


CHECKS = (_never_observed, _rarely_observed, _constant, _scales, _marked, _outliers)
