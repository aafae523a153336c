"""Every finding of the data doctor on a table made for it, and nothing that is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from doctor.faults import FINDINGS
from doctor.tables import (
    LONG,
    NAN,
    WIDE,
    Table,
    again,
    changed,
    finding_of,
    iso,
    long_table,
    more,
    put,
    titles,
    to,
    wide_table,
)

from lformer.doctor import examine
from lformer.panel import Panel


@pytest.mark.parametrize(
    ("title", "level", "table", "columns", "named"), FINDINGS, ids=[f"{n}-{f[0]}" for n, f in enumerate(FINDINGS)]
)
def test_finding(title: str, level: str, table: Table, columns: dict[str, Any], named: list[str]) -> None:
    before = table.copy()
    report = examine(table, **columns)
    finding = finding_of(report, title)
    assert finding.level == level
    for words in named:
        assert words in f"{finding.detail} {finding.advice}"
    assert report.ok == all(f.level != "error" for f in report.findings)
    assert title in report.text()
    pd.testing.assert_frame_equal(table, before)


def test_the_panel_is_the_last_word() -> None:
    """Ids that cannot be put in order are nothing the doctor looks for; the trial finds them."""
    table = changed(long_table(), to("who", lambda w: [1 + 2j if i == "p00" else (i,) for i in w]))
    with pytest.raises(TypeError):
        Panel.from_long(table, **LONG)
    report = examine(table, **LONG)
    assert titles(report) == ["Training refuses the table"]
    assert not report.ok


def test_whole_days_are_not_taken_for_float32() -> None:
    """86 400 is a multiple of 128."""
    table = changed(long_table(), to("t", lambda t: 86400.0 * (19000 + (10 * t).round())))
    assert titles(examine(table, **LONG)) == ["Stamps look like Unix time in s"]


def test_rows_are_named_as_the_table_names_them() -> None:
    table = changed(long_table(), put([6], "x", np.inf)).rename(index=lambda i: f"line{i}")
    assert "row line6 holds inf" in finding_of(examine(table, **LONG), "Infinite values").detail


def test_a_bad_stamp_does_not_hide_the_rest() -> None:
    """Figures and other findings are those of the rows that can be read."""
    report = examine(changed(long_table(), put([3], "t", NAN), put([6], "x", np.inf), again([20])), **LONG)
    assert titles(report) == ["Missing time stamps", "Infinite values", "Duplicates", "Stamps out of order"]
    assert report.figures["series"] == 12
    assert report.figures["gap_median"] > 0


def test_stamps_of_several_zones_count_as_instants() -> None:
    """What is reported beside mixed zones is right: 03:00+02:00 is 02:00+01:00."""
    one = changed(long_table(), to("t", lambda t: iso(t, "+01:00")))
    other = changed(one, to("t", lambda t: pd.to_datetime(t).dt.tz_convert("Etc/GMT-2").astype(str)))
    mixed = changed(one, lambda t: t.update(other[["t"]].iloc[::2]))
    assert titles(examine(mixed, **LONG)) == ["Mixed time zones"]
    assert examine(mixed, **LONG).figures["gap_median"] == examine(one, **LONG).figures["gap_median"]


def test_figures_beside_stamps_too_far_apart_are_finite() -> None:
    for table in (table for title, _, table, _, _ in FINDINGS if title == "Stamps too far apart"):
        figures = examine(table, **LONG).figures
        assert figures["gap_median"] == pytest.approx(examine(table.iloc[1:-2], **LONG).figures["gap_median"], rel=0.05)
        assert np.isfinite([figures["gap_p99"], figures["gap_max"], figures["gap_ratio"]]).all()


def test_errors_come_first() -> None:
    table = changed(long_table(), more(who=["q"], t=[0.7], what=["na"], x=[np.inf]), lambda t: t.iloc[::-1])
    assert [f.level for f in examine(table, **LONG).findings] == ["error", "warning", "warning", "info"]


def test_batch_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1; got 0"):
        examine(long_table(), **LONG, batch_size=0)


def test_a_large_panel_and_too_many_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    from lformer.doctor import records, series

    monkeypatch.setattr(series, "ROOMY", 3000)
    large = finding_of(examine(long_table(), **LONG), "A large panel")
    assert large.level == "warning"
    monkeypatch.setattr(records, "MANY", 2)
    report = examine(long_table(), **LONG)
    assert "'what' holds 3 different names" in finding_of(report, "Too many channels").detail
    assert not report.ok


def test_utc_has_two_spellings() -> None:
    table = changed(long_table(), to("t", lambda t: iso(t, "Z")), put([5], "t", "2021-03-01T03:00:00+00:00"))
    assert titles(examine(table, **LONG))[0] == "Time stamps are text"


def test_spread_of_a_channel_that_is_mostly_one_value() -> None:
    """Its quartiles agree, so its standard deviation stands in: no finding, and no outliers without end."""
    table = changed(wide_table(), to("k", lambda x: (np.arange(len(x)) % 10 == 0) * 1.0))
    report = examine(table, **WIDE)
    about = report.channels.set_index("channel").loc["k"]
    assert about["spread"] == pytest.approx(table["k"].std(ddof=0))
    assert about["outliers"] == 0
    assert report.findings == ()


def test_marks_that_are_named_are_no_finding() -> None:
    table = changed(long_table(), lambda t: t.loc.__setitem__((t.index[t["what"] == "k"][:5], "x"), -9999.0))
    marked, told = examine(table, **LONG), examine(table, **LONG, missing_values={"k": -9999})
    assert titles(marked) == ["Marks for missing values"]  # and not outliers, too
    assert told.findings == ()
    assert told.figures["observations"] == marked.figures["observations"] - 5


def test_channels_are_sorted_by_name_or_as_the_columns_stand() -> None:
    upside_down = long_table().sort_values("what", ascending=False)
    assert examine(upside_down, **LONG).channels["channel"].tolist() == ["k", "na", "ph"]
    assert examine(wide_table(), **WIDE, value=["ph", "k"]).channels["channel"].tolist() == ["ph", "k"]
