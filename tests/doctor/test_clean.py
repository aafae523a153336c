"""The data doctor on clean tables: no finding, and the figures of the panel."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from doctor.tables import LONG, WIDE, Table, calendar, changed, long_table, millis, to, wide_table

from lformer.doctor import examine
from lformer.panel import Panel


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (long_table(), LONG),
        (wide_table(), WIDE),
        (wide_table(), {**WIDE, "value": ["na", "k"]}),
        (wide_table(), {**WIDE, "value": "na"}),
        (changed(long_table(), to("t", calendar)), LONG),
        (changed(long_table(), to("t", lambda t: calendar(t).dt.tz_localize("Europe/Berlin"))), LONG),
        (changed(long_table(), to("t", lambda t: pd.to_timedelta(t, unit="h"))), LONG),
        (changed(long_table(), to("t", millis)), LONG),
        (changed(long_table(), to("t", lambda t: t.astype(np.float32))), LONG),
        (changed(long_table(), to("what", lambda c: c.astype("category"))), LONG),
    ],
)
def test_a_clean_table_has_no_finding(table: Table, columns: dict[str, Any]) -> None:
    report = examine(table, **columns)
    assert report.findings == ()
    assert report.ok
    assert "would work" in report.text()


def test_figures_are_those_of_the_panel() -> None:
    table = long_table()
    report, panel = examine(table, **LONG, batch_size=5), Panel.from_long(table, **LONG)
    figures = report.figures
    assert panel.observed is not None
    assert figures["series"] == len(panel) == 12
    assert figures["stamps"] == len(panel.times)
    assert figures["observations"] == panel.observed.sum() == len(table) - 1
    assert figures["observed_share"] == pytest.approx(panel.observed.mean())
    gaps = np.concatenate([np.diff(clock) for clock, _ in panel])
    for name, expected in (("median", np.median(gaps)), ("p99", np.quantile(gaps, 0.99)), ("max", gaps.max())):
        assert figures[f"gap_{name}"] == pytest.approx(expected)
    assert figures["gap_ratio"] == pytest.approx(gaps.max() / np.median(gaps))
    assert (figures["length_min"], figures["length_max"]) == (panel.lengths.min(), panel.lengths.max())

    channels = report.channels.set_index("channel")
    assert channels.index.tolist() == list(panel.channels)
    np.testing.assert_allclose(channels["missing"], 1 - panel.observed.mean(axis=0))
    duration = sum(clock[-1] - clock[0] for clock, _ in panel)
    np.testing.assert_allclose(channels["rate"], panel.observed.sum(axis=0) / duration)
    for name, values in table.dropna().groupby("what")["x"]:
        assert channels.loc[name, "median"] == pytest.approx(values.median())
        assert channels.loc[name, "minimum"] == values.min()


def test_a_calendar_is_counted_in_seconds() -> None:
    numbers, stamps = examine(long_table(), **LONG), examine(changed(long_table(), to("t", calendar)), **LONG)
    assert (numbers.unit, stamps.unit) == ("", "s")
    assert stamps.figures["gap_median"] == pytest.approx(3600 * numbers.figures["gap_median"], abs=1)
    assert re.search(r"median 1\.\d\d h", stamps.text())
