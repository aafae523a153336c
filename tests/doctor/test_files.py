"""Files that the data doctor reads, and those it cannot."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pandas as pd
import pytest
from doctor.tables import LONG, calendar, changed, finding_of, iso, long_table, titles, to

from lformer.doctor import examine, read_table


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
        assert "row 6" in finding_of(report, title).detail


def test_numbers_of_a_csv_stay_numbers(tmp_path: Path) -> None:
    changed(long_table(), to("t", lambda t: 2000 + (100 * t).astype(int))).to_csv(tmp_path / "a.csv", index=False)
    assert read_table(tmp_path / "a.csv", time="t")["t"].dtype.kind == "i"  # and not years


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xlsx").write_text("")
    with pytest.raises(ValueError, match=r"ends with \.csv, .* \.jsonl, .* or \.parquet; got .*a\.xlsx"):
        read_table(tmp_path / "a.xlsx")
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match=r"a\.csv is empty"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("who,t\na,1\nb,2,3,4\n")
    with pytest.raises(ValueError, match=r"b\.csv, row 3 has 4 cells, but there are 2 names"):
        read_table(tmp_path / "b.csv")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "c.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "lformer\[data\]"'):
        read_table(tmp_path / "a.parquet")
