"""The data doctor: every finding on a table made for it, none on a clean one, and a verdict that training confirms."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from lformer.doctor import Report, draw, examine, read_table
from lformer.doctor.layout import padding
from lformer.panel import Panel

NAN = float("nan")
LONG = {"id": "who", "time": "t", "channel": "what", "value": "x"}
WIDE = {"id": "who", "time": "t"}

Table = pd.DataFrame
Change = Callable[[Table], Any]


def long_table(seed: int = 0) -> Table:
    """Twelve series of 9 to 20 uneven stamps, three channels seen at some of them, one missing value, sorted."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(12):
        times = np.cumsum(rng.uniform(0.2, 2.0, 9 + i)).round(3)
        for c, name in enumerate(("k", "na", "ph")):
            seen = rng.random(len(times)) < 0.8 - 0.2 * c
            seen[:2] = True
            parts.append(
                pd.DataFrame({"who": f"p{i:02d}", "t": times[seen], "what": name, "x": rng.normal(c, 1, seen.sum())})
            )
    table = pd.concat(parts).sort_values(["who", "t", "what"], ignore_index=True)
    table.loc[5, "x"] = NAN
    return table


def wide_table(seed: int = 0) -> Table:
    """The same with a column per channel."""
    wide = long_table(seed).pivot(index=["who", "t"], columns="what", values="x").reset_index()
    wide.columns.name = None
    return wide


def changed(table: Table, *changes: Change) -> Table:
    """A copy of a table after some changes; a change that returns a table replaces it."""
    table = table.copy()
    for change in changes:
        result = change(table)
        table = result if isinstance(result, Table) else table
    return table


def put(rows: Any, column: str, value: Any) -> Change:
    """Write a value to some rows of a column."""

    def change(table: Table) -> None:
        if isinstance(value, str) or value is None:
            table[column] = table[column].astype(object)
        table.loc[rows, column] = value

    return change


def to(column: str, convert: Callable[[pd.Series[Any]], Any]) -> Change:
    """Convert a column."""

    def change(table: Table) -> None:
        table[column] = convert(table[column])

    return change


def again(rows: list[int], shift: float = 0.0) -> Change:
    """Append rows once more, their values shifted."""

    def change(table: Table) -> Table:
        more = table.loc[rows].assign(x=lambda t: t["x"] + shift)
        return pd.concat([table, more], ignore_index=True)

    return change


def more(**columns: Any) -> Change:
    """Append one row or several."""
    return lambda table: pd.concat([table, pd.DataFrame(columns)], ignore_index=True)


def calendar(t: pd.Series[Any]) -> pd.Series[Any]:
    """Hours as stamps of whole seconds."""
    return pd.Timestamp("2021-03-01") + pd.to_timedelta((t * 3600).round(), unit="s")


def millis(t: pd.Series[Any]) -> pd.Series[Any]:
    """Whole numbers."""
    return (1000 * t).round().astype(int)


def iso(t: pd.Series[Any], zone: str = "") -> pd.Series[Any]:
    return calendar(t).dt.strftime("%Y-%m-%dT%H:%M:%S") + zone


def epoch(t: pd.Series[Any]) -> pd.Series[Any]:
    return (1.7e9 + (3600 * t).round()).astype(np.float64)


def titles(report: Report) -> list[str]:
    return [finding.title for finding in report.findings]


def finding_of(report: Report, title: str) -> Any:
    """The one finding of that title."""
    (found,) = (f for f in report.findings if f.title == title)
    assert found.advice
    return found


# -- clean tables


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


# -- every finding


def sentinel(table: Table) -> None:
    table.loc[table.index[table["what"] == "k"][[3, 40]], "x"] = -999.0


def never(table: Table) -> None:
    table["spo2"] = NAN


CLEAN, BROAD = long_table(), wide_table()

FINDINGS: list[tuple[str, str, Table, dict[str, Any], list[str]]] = [
    # title, level, table, columns, what the finding must name
    ("Missing columns", "error", CLEAN, {**LONG, "time": "when"}, ["'when'", "'who'"]),
    ("Missing columns", "error", BROAD, {**WIDE, "value": ["na", "cl"]}, ["'cl'"]),
    ("No column of values", "error", CLEAN, {**LONG, "value": None}, ["'what'"]),
    ("No column of values", "error", BROAD[["who", "t"]], WIDE, ["'who'"]),
    ("Columns with the same name", "error", changed(BROAD, lambda t: t.rename(columns={"k": "na"})), WIDE, ["na"]),
    ("Empty table", "error", CLEAN.iloc[:0], LONG, []),
    ("Nothing was observed", "error", changed(CLEAN, put(slice(None), "x", NAN)), LONG, ["All values"]),
    ("Missing ids", "error", changed(CLEAN, put([7, 9], "who", None)), LONG, ["2 rows", "row 7", "row 9"]),
    ("Missing channel names", "error", changed(CLEAN, put(4, "what", None)), LONG, ["1 row ", "row 4"]),
    ("Missing time stamps", "error", changed(CLEAN, put([3], "t", NAN)), LONG, ["1 row ", "row 3", "id p00"]),
    ("Missing time stamps", "error", changed(CLEAN, put([3], "t", np.inf)), LONG, ["row 3"]),
    ("Missing time stamps", "error", changed(CLEAN, to("t", calendar), put([8], "t", pd.NaT)), LONG, ["row 8"]),
    ("Missing time stamps", "error", changed(CLEAN, to("t", iso), put([8], "t", None)), LONG, ["1 row ", "row 8"]),
    ("Time stamps are text", "error", changed(CLEAN, to("t", iso)), LONG, ["'t'", "'2021-03-01T"]),
    ("Time stamps are text", "error", changed(CLEAN, to("t", lambda t: t.astype(str))), LONG, ["'t'"]),
    (
        "Unreadable time stamps", "error", changed(CLEAN, to("t", iso), put([2, 6], "t", "yesterday")), LONG,
        ["2 stamps", "row 2 holds 'yesterday'", "row 6"],
    ),
    (
        "Unreadable time stamps", "error", changed(CLEAN, to("t", lambda t: t.astype(str)),
        put([11], "t", "1,5")), LONG, ["1 stamp ", "as a number", "row 11 holds '1,5'"],
    ),
    (
        "Mixed time zones", "error", changed(CLEAN, to("t", lambda t: iso(t, "+01:00")),
        put([5], "t", "2021-03-01T03:00:00+02:00")), LONG, ["+01:00 in", "+02:00 in 1 row, such as row 5"],
    ),
    (
        "Mixed time zones", "error", changed(CLEAN, to("t", lambda t: iso(t, "Z")),
        put([5], "t", "2021-03-01T03:00:00")), LONG, ["none in 1 row, such as row 5"],
    ),
    (
        "Values that are no numbers", "error", changed(CLEAN, put([6, 10], "x", "pos")), LONG,
        ["2 values", "row 6 holds 'pos'", "row 10"],
    ),
    ("Values that are no numbers", "error", changed(BROAD, put([6], "na", "<130")), WIDE, ["'na'", "row 6", "<130"]),
    ("Infinite values", "error", changed(CLEAN, put([6], "x", -np.inf)), LONG, ["row 6 holds -inf"]),
    ("Infinite values", "error", changed(BROAD, put([6], "k", 1e39)), WIDE, ["'k'", "row 6 holds 1e+39"]),
    ("Duplicates", "error", changed(CLEAN, again([0, 20, 30])), LONG, ["3 (id", "in 3 of them", "id p00", "(2 values"]),
    ("Duplicates", "error", changed(CLEAN, again([0, 20], 0.5)), LONG, ["in 0 of them", "in 2 they differ"]),
    (
        "Duplicates", "error", changed(BROAD, lambda t: pd.concat([t, t.iloc[[4]]], ignore_index=True)), WIDE,
        ["id p00", "channel"],
    ),
    ("Stamps too large", "error", changed(CLEAN, to("t", lambda t: 2**63 + millis(t).astype("u8"))), LONG, ["2**63"]),
    (
        "Stamps too far apart", "error", changed(CLEAN, to("t", millis),
        more(who=["p03", "p03"], t=[-(2**62) - 2**61, 2**62 + 2**61], what=["k", "k"], x=[0.1, 0.2])), LONG, ["id p03"],
    ),
    ("Stamps too far apart", "error", changed(CLEAN, put([0], "t", -1e39)), LONG, ["id p00"]),
    ("Stamps out of order", "info", CLEAN.iloc[::-1], LONG, ["in 12 series", "sorts"]),
    (
        "Rows with the same id and time", "info",
        changed(BROAD, more(who=["p02"], t=[BROAD.query("who == 'p02'")["t"].iloc[3]], k=[NAN])), WIDE,
        ["2 rows share 1 stamp", "id p02"],
    ),
    ("Stamps in float32", "warning", changed(CLEAN, to("t", lambda t: epoch(t).astype(np.float32))), LONG, ["128"]),
    (
        "Stamps in float32", "warning", changed(CLEAN, to("t", lambda t: (738000 + t).astype(np.float32))), LONG,
        ["0.0625"],
    ),
    ("Stamps in float32", "warning", changed(CLEAN, to("t", lambda t: epoch(t).astype("Float32"))), LONG, ["128"]),
    (
        "Stamps rounded to float32", "warning",
        changed(CLEAN, to("t", lambda t: epoch(t).astype(np.float32).astype(np.float64))), LONG, ["128 s"],
    ),
    (
        "Stamps rounded to float32", "warning", changed(CLEAN,
        to("t", lambda t: pd.to_datetime(epoch(t).astype(np.float32).astype(np.int64), unit="s"))), LONG, ["128 s"],
    ),
    ("Stamps look like Unix time in s", "info", changed(CLEAN, to("t", epoch)), LONG, ["2023-11-14"]),
    (
        "Stamps look like Unix time in ms", "info",
        changed(CLEAN, to("t", lambda t: (1000 * epoch(t)).astype(np.int64))), LONG, ["2023-11-14"],
    ),
    ("Stamps look like Unix time in us", "info", changed(CLEAN, to("t", lambda t: 1e6 * epoch(t))), LONG, ["2023"]),
    (
        "Stamps look like Unix time in ns", "info",
        changed(CLEAN, to("t", lambda t: 10**9 * epoch(t).astype(np.int64))), LONG, ["2023-11-14"],
    ),
    (
        "Huge gaps", "warning", changed(CLEAN, more(who=["p04"], t=[5000.0], what=["na"], x=[1.0])), LONG,
        ["1 gap in 1 series", "series p04", "and 5000"],
    ),
    (
        "Stamps that differ only by rounding", "warning",
        changed(CLEAN, more(who=["p01"], t=[CLEAN.query("who == 'p01'")["t"].iloc[6] + 1e-13], what=["zn"],
        x=[1.0])), LONG, ["1 pair", "series p01"],
    ),
    (
        "Series with a single row", "warning", changed(CLEAN, more(who=["q"], t=[0.7], what=["na"], x=[1.0])), LONG,
        ["1 series of 13", ": q."],
    ),
    (
        "Series without a value", "warning",
        changed(CLEAN, more(who=["q", "q"], t=[0.7, 1.9], what=["na", "k"], x=[NAN, NAN])), LONG, ["1 series", "q."],
    ),
    (
        "A few very long series", "info", changed(CLEAN, more(who="q", t=np.arange(500) ** 1.01, what="na",
        x=np.arange(500) % 7 / 7)), LONG, ["longest, q, has 500 rows"],
    ),
    (
        "Much padding in random batches", "info", changed(CLEAN, more(who="q", t=np.arange(500) ** 1.01, what="na",
        x=np.arange(500) % 7 / 7)), LONG, ["batches of 64"],
    ),
    ("Channels never observed", "warning", changed(BROAD, never), WIDE, ["1 channel ", "spo2"]),
    (
        "Channels almost never observed", "warning", changed(CLEAN, put([12], "what", "troponin")), LONG,
        ["troponin (1 value)"],
    ),
    ("Constant channels", "warning", changed(BROAD, put(slice(None), "ph", 7.4)), WIDE, ["ph (always 7.4)"]),
    (
        "Channels on very different scales", "warning", changed(BROAD, to("ph", lambda x: 1e6 * x)), WIDE,
        ["Channel ph", "na over 0.856"],
    ),
    ("Extreme outliers", "warning", changed(CLEAN, sentinel), LONG, ["2 values in 1 channel", "k is -999 in 2 rows"]),
    ("Extreme outliers", "warning", changed(BROAD, put([17], "na", 400.0)), WIDE, ["na is 400 in row 17, id p"]),
]  # fmt: skip


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
    assert titles(report) == ["Panel refuses the table"]
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


def test_channels_are_sorted_by_name_or_as_the_columns_stand() -> None:
    upside_down = long_table().sort_values("what", ascending=False)
    assert examine(upside_down, **LONG).channels["channel"].tolist() == ["k", "na", "ph"]
    assert examine(wide_table(), **WIDE, value=["ph", "k"]).channels["channel"].tolist() == ["ph", "k"]


# -- the verdict


def trains(table: Table, columns: dict[str, Any]) -> bool:
    """Whether a panel can be built, its batch is finite, and there is anything to learn from."""
    try:
        batch = Panel.from_long(table, **columns).batch()
    except (ValueError, TypeError):
        return False
    except RuntimeWarning:  # a value that float32 cannot hold
        return False
    finite = all(bool(x.isfinite().all()) for x in (batch.values, batch.times, batch.deltas))
    return finite and bool((batch.deltas >= 0).all()) and bool(batch.observed.any())


VERDICTS: list[tuple[Table, dict[str, Any]]] = [
    (CLEAN, LONG),
    (BROAD, WIDE),
    (changed(CLEAN, to("x", lambda x: x.astype(str))), LONG),  # numbers as text are taken
    (changed(CLEAN, to("x", lambda x: x.astype("Float64"))), LONG),
    (changed(CLEAN, to("t", lambda t: millis(t).astype("Int64"))), LONG),
    (changed(CLEAN, to("t", lambda t: millis(t).astype("Int64")), put([2], "t", pd.NA)), LONG),
    (changed(CLEAN, to("t", lambda t: millis(t).astype("uint32"))), LONG),
    (changed(CLEAN, to("t", lambda t: t > 3)), LONG),
    (changed(CLEAN, to("t", lambda t: calendar(t).astype(object))), LONG),
    (changed(CLEAN, to("x", lambda x: x > 0)), LONG),
    (changed(CLEAN, to("x", lambda x: x.round().astype("category"))), LONG),
    (changed(BROAD, to("k", lambda x: calendar(x.fillna(0)))), WIDE),
    (changed(BROAD, to("k", lambda x: "a")), WIDE),
    (changed(BROAD, to("k", lambda x: "a")), {**WIDE, "value": ["na", "ph"]}),
    (changed(CLEAN, to("who", lambda w: [i if i < "p05" else int(i[1:]) for i in w])), LONG),
    (changed(CLEAN, to("who", lambda w: w.astype("category"))), LONG),
    (changed(CLEAN, to("what", lambda w: [{"k": 1, "na": "1", "ph": 2.5}[i] for i in w])), LONG),
    (CLEAN.iloc[:1], LONG),
    (BROAD.iloc[:1], WIDE),
    (pd.DataFrame({"who": [], "t": [], "what": [], "x": []}), LONG),
    (CLEAN, {**LONG, "value": ["x"]}),
    (CLEAN, {**LONG, "channel": None}),
    (changed(CLEAN, more(who=["q", "q"], t=[-1e308, 1e308], what=["k", "k"], x=[0.1, 0.2])), LONG),
    *((table, columns) for _, _, table, columns, _ in FINDINGS),
]  # fmt: skip


@pytest.mark.parametrize(("table", "columns"), VERDICTS)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_the_verdict_is_true(table: Table, columns: dict[str, Any]) -> None:
    assert examine(table, **columns).ok == trains(table, columns)


def test_there_are_good_and_bad_tables_to_judge() -> None:
    verdicts = [examine(table, **columns).ok for table, columns in VERDICTS]
    assert min(verdicts.count(True), verdicts.count(False)) > 20


# -- padding


def test_padding_by_hand() -> None:
    lengths = np.asarray([1, 9, 1, 9])
    assert padding(lengths, 1) == (0.0, 0.0)
    assert padding(lengths, 4)[0] == pytest.approx(1 - 20 / 36)
    assert padding(lengths, 2)[1] == 0.0
    assert padding(lengths, 3)[1] == pytest.approx(1 - 20 / (27 + 9))
    assert padding(np.zeros(0, np.int64), 4) == (0.0, 0.0)


def test_padding_is_that_of_training() -> None:
    """Pools of fifty batches, sorted within: measured on the batches that training would draw."""
    from lformer.data.parts import POOL, PanelPart, Targets
    from lformer.doctor import layout

    assert layout.POOL == POOL
    rng = np.random.default_rng(3)
    lengths = rng.geometric(0.1, 700)
    panel = Panel.build(np.zeros(lengths.sum()), np.zeros((lengths.sum(), 1), np.float32), lengths)
    part = PanelPart(panel, Targets(values=np.zeros(700), at="series"), np.arange(700), seed=0)
    batches = list(part.training_batches(4, epoch=0))
    padded = sum(b.times.numel() for b in batches)
    assert padding(lengths, 4)[1] == pytest.approx(1 - lengths.sum() / padded, abs=0.005)
    assert padding(lengths, 4)[0] > 2 * padding(lengths, 4)[1]


# -- files


def test_csv_round_trip(tmp_path: Path) -> None:
    table = changed(long_table(), to("t", calendar))
    table.to_csv(tmp_path / "a.csv", index=False)
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        table.to_csv(file, index=False)
    for name in ("a.csv", "a.csv.gz"):
        report = examine(read_table(tmp_path / name, time="t"), **LONG)
        assert report.findings == ()
        assert report.figures == examine(table, **LONG).figures
        assert titles(examine(read_table(tmp_path / name), **LONG)) == ["Time stamps are text"]


def test_parquet_round_trip(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = changed(long_table(), to("t", lambda t: calendar(t).dt.tz_localize("UTC")))
    table.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.parquet", time="t"), table)
    assert examine(read_table(tmp_path / "a.parquet"), **LONG).findings == ()


@pytest.mark.parametrize(
    ("zone", "row", "title"),
    [
        ("+01:00", None, None),
        ("", "2021-03-32T00:00:00", "Unreadable time stamps"),
        ("", "01.03.2021 10:00", "Unreadable time stamps"),
        ("Z", "2021-03-01T00:00:00+02:00", "Mixed time zones"),
        ("", "", "Missing time stamps"),
    ],
)
def test_stamps_of_a_csv(tmp_path: Path, zone: str, row: str | None, title: str | None) -> None:
    table = changed(long_table(), to("t", lambda t: iso(t, zone)))
    if row is not None:
        table.loc[4, "t"] = row
    table.to_csv(tmp_path / "a.csv", index=False)
    report = examine(read_table(tmp_path / "a.csv", time="t"), **LONG)
    if title is None:
        assert report.findings == ()
    else:
        assert "row 4" in finding_of(report, title).detail


def test_numbers_of_a_csv_stay_numbers(tmp_path: Path) -> None:
    changed(long_table(), to("t", lambda t: 2000 + (100 * t).astype(int))).to_csv(tmp_path / "a.csv", index=False)
    assert read_table(tmp_path / "a.csv", time="t")["t"].dtype.kind == "i"  # and not years


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xlsx").write_text("")
    with pytest.raises(ValueError, match=r"ends with \.csv, \.csv\.gz or \.parquet; got .*a\.xlsx"):
        read_table(tmp_path / "a.xlsx")
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match=r"a\.csv is empty"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("who,t\na,1\nb,2,3,4\n")
    with pytest.raises(ValueError, match=r"b\.csv cannot be read.*line 3"):
        read_table(tmp_path / "b.csv")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "c.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "lformer\[data\]"'):
        read_table(tmp_path / "a.parquet")


# -- text and page


class Reader(HTMLParser):
    """Collects words and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read_page(path: Path) -> tuple[Reader, ElementTree.Element]:
    text = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader, ElementTree.fromstring(text)


SVG = "{http://www.w3.org/2000/svg}"


def test_page_shows_the_figures(tmp_path: Path) -> None:
    table = changed(
        long_table(), to("t", calendar), more(who=["q"], t=[pd.Timestamp("2021-05-01")], what=["k"], x=[1.0])
    )
    report = examine(table, **LONG)
    reader, root = read_page(report.html(tmp_path / "report.html"))
    words = " ".join(reader.words)
    for _, what in report.summary():
        assert what in words
    for finding in report.findings:
        assert finding.title in words
        assert finding.detail in words
        assert finding.advice in words
    for row in report.channel_rows()[1]:
        assert all(cell in words for cell in row)
    assert reader.seen.count("svg") == 5
    assert report.verdict in words

    timeline, _, gaps, lengths, _ = root.iter(f"{SVG}svg")
    assert report.sketch is not None
    drawn = [t.text for t in timeline.iter(f"{SVG}text")]
    assert {lane.name for lane in report.sketch.lanes} <= set(drawn)
    assert {"k", "na", "ph"} <= set(drawn)
    for picture, total, word in ((gaps, report.figures["stamps"] - 13, "gap"), (lengths, 13, "series")):
        tips = [t.text or "" for t in picture.iter(f"{SVG}title")]
        assert sum(int(re.search(rf": ([\d,]+) {word}", tip)[1].replace(",", "")) for tip in tips) == total  # type: ignore[index]
    assert (tmp_path / "report.html").stat().st_size < 100_000


def test_page_stays_within_its_pictures(tmp_path: Path) -> None:
    table = changed(long_table(), more(who=["p04"], t=[5000.0], what=["na"], x=[1.0]))
    _, root = read_page(examine(table, **LONG).html(tmp_path / "report.html"))
    for picture in root.iter(f"{SVG}svg"):
        width, height = map(float, picture.attrib["viewBox"].split()[2:])
        for bar in picture.iter(f"{SVG}rect"):
            x, y, w, h = (float(bar.attrib[k]) for k in ("x", "y", "width", "height"))
            assert min(x, y, w, h) >= 0
            assert x + w <= width
            assert y + h <= height
        for words in picture.iter(f"{SVG}text"):
            assert 0 <= float(words.attrib["x"]) <= width
            assert 0 <= float(words.attrib["y"]) <= height
        for path in picture.iter(f"{SVG}path"):
            for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path.attrib["d"]):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height


def test_dots_are_the_observations() -> None:
    """Each channel of each series has a dot wherever it was seen, and nowhere else."""
    table = long_table()
    report = examine(table, **LONG)
    assert report.sketch is not None
    assert len(report.sketch.lanes) == 12
    for lane in report.sketch.lanes:
        mine = table[(table["who"] == lane.name)]
        for name, cells in zip(report.sketch.legend, lane.cells, strict=True):
            seen = mine[(mine["what"] == name)].dropna()["t"]
            places = np.rint((seen - mine["t"].min()) / report.sketch.horizon * 320).astype(int)
            assert set(places[places <= 320]) == set(cells)


def test_neighbouring_dots_are_one_stroke() -> None:
    assert draw._dots(np.asarray([2, 3, 4, 7]), left=10.0, step=2.0, y=5.0) == "M14.0 5.0h4M24.0 5.0h0.01"


@pytest.mark.parametrize(("stretch", "words"), [(1 / 3600, "per s"), (1 / 60, "per min"), (1, "per h"), (24, "per d")])
def test_rates_of_a_calendar_are_readable(stretch: float, words: str) -> None:
    table = changed(long_table(), to("t", lambda t: pd.to_timedelta(t * stretch, unit="h")))
    report = examine(table, **LONG)
    factor, unit = report.rate_unit()
    assert unit == words
    assert 0.2 < factor * report.channels["rate"].median() < 2


@pytest.mark.parametrize(
    "title", ["Empty table", "Missing time stamps", "Nothing was observed", "Stamps too far apart"]
)
def test_page_of_a_bad_table(title: str, tmp_path: Path) -> None:
    table, columns = next((t, c) for name, _, t, c, _ in FINDINGS if name == title)
    reader, _ = read_page(examine(table, **columns).html(tmp_path / "report.html"))
    assert title in " ".join(reader.words)


def test_page_of_one_row_and_of_many_channels(tmp_path: Path) -> None:
    read_page(examine(wide_table().iloc[:1], **WIDE).html(tmp_path / "one.html"))
    rng = np.random.default_rng(1)
    many = pd.DataFrame(rng.normal(size=(40, 60)), columns=[f"c{i}" for i in range(60)])
    many.insert(0, "t", np.tile(np.cumsum(rng.uniform(0.1, 2, 10)), 4))
    many.insert(0, "who", np.repeat(["a", "b", "c", "d"], 10))
    many.loc[3, "c5"] = NAN
    reader, _ = read_page(examine(many, **WIDE).html(tmp_path / "many.html"))
    assert "53 others" in reader.words
    assert "and 30 more channels" in examine(many, **WIDE).text()


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&\x00"
    table = changed(long_table(), to("who", lambda w: w + evil), to("what", lambda w: w + evil), put([3], "x", np.inf))
    reader, _ = read_page(examine(table, **LONG).html(tmp_path / "report.html"))
    assert "script" not in reader.seen
    assert any("<script>" in words for words in reader.words)


def test_text_fits_a_terminal_and_rich_prints_the_same() -> None:
    report = examine(changed(long_table(), to("who", lambda w: "[b]" + w), again([0]), put([9], "x", 1e5)), **LONG)
    assert max(len(line) for line in report.text(90).splitlines()) <= 90
    console = Console(width=200)
    with console.capture() as capture:
        console.print(report)
    assert [line.rstrip() for line in capture.get().rstrip().splitlines()] == [
        line.rstrip() for line in report.text().rstrip().splitlines()
    ]
    assert "[b]p00" in capture.get()
