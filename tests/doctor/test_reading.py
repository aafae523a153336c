"""Text, stamps and ids of files, as a form says; and what is advised where nothing was said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lformer.doctor import Form, read_table
from lformer.doctor.hints import about_numbers, about_stamps
from lformer.doctor.ids import ids_like


def read(folder: Path, text: str, **form: Any) -> pd.DataFrame:
    (folder / "t.csv").write_text(text)
    return read_table(folder / "t.csv", id="who", time="t", channel="what", form=Form(**form))


def test_ids_and_channels_are_text_and_rows_are_lines(tmp_path: Path) -> None:
    table = read(tmp_path, "\nwho,t,what,x\n007,1,NA,1\n\n7,2,None,NA\n,,,\nTrue,3,,2\n\n")
    assert table["who"].tolist() == ["007", "7", "True"]
    assert table["what"].tolist()[:2] == ["NA", "None"]
    assert table["what"].isna().tolist() == [False, False, True]  # only an empty cell is missing
    assert table["x"].isna().tolist() == [False, True, False]
    assert table.index.tolist() == [3, 5, 7]


def test_whole_numbers_stay_whole_beside_blank_lines(tmp_path: Path) -> None:
    """float64 could not hold these."""
    stamps = [1700000000000000001, 1700000000000000003]
    table = read(tmp_path, f"who,t,what,x\na,{stamps[0]},k,1\n,,,\n\na,{stamps[1]},k,1\n")
    assert table["t"].tolist() == stamps


def test_lines_are_counted_across_cells_that_hold_several(tmp_path: Path) -> None:
    table = read(tmp_path, 'who,t,what,x\na,1,"k\nk",1\na,2,k,1\n')
    assert table.index.tolist() == [2, 4]


def test_blank_rows_go_and_no_other_where_cells_hold_several_lines(tmp_path: Path) -> None:
    text = 'who,t,what,x\na,1,"k\nk",1\n,,,\na,2,k,2\n\nb,3,k,3\n,,,\nc,4,"k\nm",4\n'
    table = read(tmp_path, text)
    assert table["x"].tolist() == [1, 2, 3, 4]
    assert table["t"].tolist() == [1, 2, 3, 4]
    assert table.index.tolist() == [2, 5, 7, 9]
    assert table["t"].dtype == int


def test_the_index_that_pandas_writes_is_no_channel(tmp_path: Path) -> None:
    pd.DataFrame({"who": ["a", "b"], "t": [0.5, 1.5], "x": [1.0, 2.0]}).to_csv(tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv").columns.tolist() == ["who", "t", "x"]
    (tmp_path / "t.csv").write_text(",who,t\n5,a,1\n9,b,2\n")
    assert read_table(tmp_path / "t.csv").columns.tolist() == ["Unnamed: 0", "who", "t"]  # which may mean something


@pytest.mark.parametrize(
    ("form", "cell", "stamp"),
    [
        ({"time_format": "%y%m%d"}, "040102", pd.Timestamp("2004-01-02")),  # with its zero
        ({"time_format": "excel"}, "45321.75", pd.Timestamp("2024-01-30 18:00")),
        ({"time_format": "unix-s"}, "1700000000", pd.Timestamp("2023-11-14 22:13:20", tz="UTC")),
        ({"time_format": "unix-ns"}, "1700000000000000001", pd.Timestamp("2023-11-14 22:13:20.000000001", tz="UTC")),
        ({"time_format": "duration"}, "1 days 02:30:00", pd.Timedelta("26.5h")),
        ({"time_zone": "Europe/Berlin"}, "2024-07-01T12:00:00", pd.Timestamp("2024-07-01 10:00", tz="UTC")),
        ({"time_zone": "Europe/Berlin"}, "2024-07-01T12:00:00-01:00", pd.Timestamp("2024-07-01 13:00", tz="UTC")),
        ({"time_format": "%d.%m.%Y", "time_zone": "UTC"}, "01.07.2024", pd.Timestamp("2024-07-01", tz="UTC")),
        ({"decimal": ",", "sep": ";"}, "0,5", 0.5),
    ],
)
def test_stamps_are_read_as_the_form_says(tmp_path: Path, form: dict[str, Any], cell: str, stamp: Any) -> None:
    sep = form.get("sep", ",")
    table = read(tmp_path, f"who{sep}t{sep}what{sep}x\na{sep}{cell}{sep}k{sep}1\n", **form)
    assert table["t"].iloc[0] == stamp


def test_a_zone_decides_between_stamps_with_and_without_an_offset(tmp_path: Path) -> None:
    text = "who,t,what,x\na,2024-07-01T12:00:00,k,1\nb,2024-07-01T12:00:00Z,k,1\nc,2024-07-01T12:00:00+05:30,k,1\n"
    assert read(tmp_path, text)["t"].dtype == object or pd.api.types.is_string_dtype(read(tmp_path, text)["t"])
    stamps = read(tmp_path, text, time_zone="Europe/Berlin")["t"]
    hours = stamps.dt.tz_convert("UTC").dt.strftime("%H:%M").tolist()
    assert hours == ["10:00", "12:00", "06:30"]


def test_dates_of_parquet_need_no_format(tmp_path: Path) -> None:
    """As a model may remember one from a file of text."""
    dates = pd.DataFrame({"who": ["a"], "t": pd.to_datetime(["2024-07-01 12:00"]), "x": [1.0]})
    dates.to_parquet(tmp_path / "t.parquet")
    form = Form(time_format="%d.%m.%Y", time_zone="Europe/Berlin")
    read = read_table(tmp_path / "t.parquet", id="who", time="t", form=form)
    assert read["t"].iloc[0] == pd.Timestamp("2024-07-01 10:00", tz="UTC")
    whole = dates.assign(t=[20240701])
    whole.to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", time="t", form=Form(time_format="%Y%m%d"))["t"].iloc[0].day == 1


@pytest.mark.parametrize("when", ["2024-03-31T02:30:00", "2024-10-27T02:30:00"])
def test_an_hour_that_a_zone_skips_or_has_twice_is_named(tmp_path: Path, when: str) -> None:
    with pytest.raises(
        ValueError, match=r"t\.csv, column 't': 1 time stamp occurred twice or never .* row 3 holds 2024"
    ):
        read(tmp_path, f"who,t,what,x\na,2024-03-01T00:00:00,k,1\na,{when},k,1\n", time_zone="Europe/Berlin")


def test_ids_of_two_files_meet_if_they_are_written_alike() -> None:
    text, whole = pd.Series(["7", "10"]), pd.Series([7, 10])
    assert ids_like(text, whole, "y", "t").tolist() == [7, 10]
    assert ids_like(whole, text, "y", "t").tolist() == ["7", "10"]
    assert ids_like(whole, whole, "y", "t") is whole
    with pytest.raises(ValueError, match=r"y: row 1 holds the text '07', but the ids of t are numbers, such as 7"):
        ids_like(pd.Series(["7", "07"]), whole, "y", "t")


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["3,5", "12,25"], "--decimal ,"),
        (["1.234,5", "12,5"], "--decimal , --thousands ."),
        (["1,234,567"], "--thousands ,"),
        (["1,234", "5,678"], "--thousands , if commas group the digits, or --decimal , if 1,234 is 1.234"),
        (["1 234.5", "12 000"], "--thousands ' '"),
        (["12 mg", "3.5mg"], "without its unit"),
        (["5 %"], "without its unit"),
        (["n.d.", "n.d."], "--missing-text n.d."),
        (["not done"], "--missing-text 'not done'"),
        (["a", "b", "c", "d"], "Correct the cells"),
    ],
)
def test_what_helps_with_cells_that_are_no_numbers(cells: list[str], says: str) -> None:
    assert says in about_numbers(cells)


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        (["31.01.2024", "01.02.2024"], '--time-format "%d.%m.%Y"'),
        (["01/02/2024", "03/04/2024"], '--time-format "%d/%m/%Y" or --time-format "%m/%d/%Y"'),
        (["01/31/2024 9:05 PM"], '--time-format "%m/%d/%Y %I:%M %p"'),
        (["36h", "2 days"], "--time-format duration"),
        (["02:30:00"], "--time-format duration"),
        (["0,5"], "--decimal ,"),
        (["yesterday"], "Correct or drop them"),
    ],
)
def test_what_helps_with_stamps(cells: list[str], says: str) -> None:
    assert says in about_stamps(cells)
