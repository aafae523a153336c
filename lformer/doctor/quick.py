"""A quick check of series before training, for data that are probably not intended, in a fraction of a second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

import numpy as np

from lformer.doctor.records import Channel
from lformer.doctor.report import Finding
from lformer.doctor.suspects import Dates, Mark, find_dates, find_marks, is_code
from lformer.doctor.words import SHOWN, counted, listed
from lformer.panel import Array, Panel, some_of
from lformer.panel.stamps import stamps

FEW = 3  # fewer values of a channel are not informative
ALIKE = 10  # least number of values, other than the most frequent one, that copies have in common
PROBES = 16  # rows at which a channel is compared with all others, before any pair is compared everywhere
MANY = 2000  # largest number of channels that are compared with each other

Marks = dict[str, list[Mark]]


def look_over(panel: Panel) -> tuple[list[Finding], Marks]:
    """Suspicious findings in series of numbers, and the marks for missing values by channel.

    A row that belongs to several series, such as overlapping windows, counts once. Of a large panel, only some series
    are checked.
    """
    if panel.values.ndim != 2:
        return [], {}
    panel = some_of(panel)
    channels, rows = channels_of(panel)
    marks = marks_of(channels)
    always = [channel for channel in channels if len(channel.rows) == rows]  # in others, the times may be informative
    found = [*marked(marks), *dated(_stamps(panel)), *never_observed(channels), *constant(always)]
    return [*found, *copied(panel, channels)], marks


def channels_of(panel: Panel) -> tuple[list[Channel], int]:
    """The observations of each channel, in the dtype of the panel, and the number of rows; each row counts once."""
    ends = np.zeros(len(panel.times) + 1, np.int64)
    np.add.at(ends, panel.first, 1)
    np.add.at(ends, panel.first + panel.lengths, -1)
    inside = ends.cumsum()[:-1] > 0
    channels = []
    for c, name in enumerate(panel.channels):
        rows = np.flatnonzero(inside if panel.observed is None else inside & panel.observed[:, c])
        values = panel.values[rows, c]
        channels.append(Channel(name, rows, values if panel.scale == 1.0 else values * panel.scale))
    return channels, int(inside.sum())


def _stamps(panel: Panel) -> Array:
    """(N,) the time stamps of all series if they are plain numbers, else empty."""
    if panel.origin.dtype.kind in "mM":
        return np.zeros(0)
    return stamps(panel.times[panel.rows()], np.repeat(panel.origin, panel.lengths), panel.unit)


# -- the findings, which `examine` also uses


def marks_of(channels: Sequence[Channel]) -> Marks:
    """The marks for missing values of each channel that has any."""
    return {channel.name: marks for channel in channels if (marks := find_marks(channel.values))}


def marked(marks: Marks) -> Iterator[Finding]:
    """Numbers that seem to stand for missing values."""
    if marks:
        shown = [f"{name}: {', '.join(map(_spelt, found))}" for name, found in list(marks.items())[:SHOWN]]
        yield Finding(
            "warning", "Marks for missing values",
            f"{counted(len(marks), 'channel')} with a number that repeats far from all others, as if it stood for a "
            f"missing value: {listed(shown, len(marks))}.",
            f"If it does, set missing_values={_setting(marks)}; if it is a real value, ignore this.",
            f"If it does, give {_options(marks)}; if it is a real value, ignore this.",
        )  # fmt: skip


def _spelt(mark: Mark) -> str:
    return f"{mark.value:.9g} in {counted(mark.times, 'row')}"


def _setting(marks: Marks) -> str:
    """The value of `missing_values` to suggest: codes for all channels; numbers that may also be values, by channel."""
    numbers = {mark.value: f"{mark.value:.9g}" for found in marks.values() for mark in found}
    if all(map(is_code, numbers)):
        return _list(list(numbers.values()))
    some = list(marks.items())[:SHOWN]
    words = ", ".join(f"{name!r}: {_list([f'{mark.value:.9g}' for mark in found])}" for name, found in some)
    return "{" + words + (", ..." if len(marks) > len(some) else "") + "}"


def _options(marks: Marks) -> str:
    """The same as command-line options."""
    numbers = {mark.value: f"{mark.value:.9g}" for found in marks.values() for mark in found}
    if all(map(is_code, numbers)):
        return " ".join(f"--missing-values {number}" for number in numbers.values())
    some = [(name, mark) for name, found in marks.items() for mark in found]
    words = " ".join(f"--missing-values {quote(f'{name}={mark.value:.9g}')}" for name, mark in some[:SHOWN])
    return words + (" and so on" if len(some) > SHOWN else "")


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"[{', '.join(words)}]"


def dated(clock: Array) -> Iterator[Finding]:
    """Dates written as numbers, whose differences are not time intervals."""
    if (dates := find_dates(clock)) is not None:
        yield Finding(
            "warning", "Dates written as numbers",
            f"All stamps look like dates written {dates.written}: from {dates.before} to {dates.after} would be an "
            f"interval of {dates.after - dates.before:,}.",
            f"Convert them before building the panel: {_conversion(dates)}.",
            f"Give --time-format {dates.format}",
        )  # fmt: skip


def _conversion(dates: Dates) -> str:
    zeros = "" if dates.written.startswith("YYYY") else f".str.zfill({len(dates.written)})"
    return f'pandas.to_datetime(stamps.astype("int64").astype(str){zeros}, format="{dates.format}")'


def never_observed(channels: Sequence[Channel]) -> Iterator[Finding]:
    """Channels without a value, unless all channels are without one."""
    never = [channel.name for channel in channels if not len(channel.values)]
    if never and len(never) < len(channels):
        yield Finding(
            "warning", "Channels never observed",
            f"{counted(len(never), 'channel')} without a value: {listed(never[:SHOWN], len(never))}.",
            "Leave them out: they cost memory and carry no information.",
        )  # fmt: skip


def constant(channels: Sequence[Channel]) -> Iterator[Finding]:
    """Channels with a single value."""
    some = [c for c in channels if len(c.values) >= FEW and bool((c.values == c.values[0]).all())]
    if some:
        shown = (f"{c.name} (always {c.values[0]:g})" for c in some[:SHOWN])
        yield Finding(
            "warning", "Constant channels", f"{counted(len(some), 'channel')}: {listed(shown, len(some))}.",
            "Leave them out, unless the times of their observations are informative.",
        )  # fmt: skip


def copied(panel: Panel, channels: Sequence[Channel]) -> Iterator[Finding]:
    """Channels with the same values wherever both are observed, provided that most of their rows have both."""
    pairs = [] if len(channels) > MANY else list(_copies(panel, channels))
    if pairs:
        shown = (f"{panel.channels[a]} and {panel.channels[b]}" for a, b in pairs[:SHOWN])
        yield Finding(
            "warning", "Channels that are copies",
            f"{counted(len(pairs), 'pair')} with the same values wherever both are observed: "
            f"{listed(shown, len(pairs))}.",
            "Leave out one channel of each pair, unless they differ in new data.",
        )  # fmt: skip


def _copies(panel: Panel, channels: Sequence[Channel]) -> Iterator[tuple[int, int]]:
    """Pairs of copies: channels that agree at a few informative rows are compared everywhere."""
    telling = [_telling(channel) for channel in channels]
    for a, rows in enumerate(telling):
        if len(rows) < ALIKE:
            continue
        probes = rows[np.linspace(0, len(rows) - 1, PROBES).astype(np.int64)]
        for b in np.flatnonzero(_alike(panel, probes, a, slice(None))).tolist():
            comparable = b > a and len(telling[b]) >= ALIKE and len(channels[b].rows) <= 2 * len(channels[a].rows)
            if comparable and bool(_alike(panel, channels[a].rows, a, slice(b, b + 1))[0]):
                yield a, b


def _alike(panel: Panel, rows: Array, a: int, others: slice) -> Array:
    """Which of the other channels are observed in most of the rows and equal to channel `a` there."""
    values = panel.values[rows, others]
    same = values == panel.values[rows, a][:, None]
    if panel.observed is None:
        return np.all(same, axis=0)
    both = panel.observed[rows, others] & panel.observed[rows, a][:, None]
    return np.all(same | ~both, axis=0) & (2 * both.sum(axis=0) >= len(rows))


def _telling(channel: Channel) -> Array:
    """Rows in which a channel differs from its median: two channels that are both mostly 0 are no copies."""
    if not len(channel.values):
        return channel.rows
    middle = len(channel.values) // 2
    return channel.rows[channel.values != np.partition(channel.values, middle)[middle]]
