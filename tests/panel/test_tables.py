"""Tables of polars, pyarrow and DuckDB give the panel that pandas gives, whatever their columns hold."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import narwhals
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from panel.made import NAN, long, same_panel, small

from lformer.estimators.inputs import as_panel, goes_by_id, series_weights
from lformer.panel import Panel
from lformer.panel.tables import column_names, open_table, take_columns

HOURS = [3, 1, 0, 0]
STAMPS = [datetime(2024, 3, 31, hour, 30) for hour in HOURS]
MAKERS: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda table: table,
    "chunks": lambda table: pa.concat_tables([table[:1], table[1:]]),
    "reader": lambda table: table.to_reader(),
    "polars": pl.from_arrow,
    "lazy polars": lambda table: pl.from_arrow(table).lazy(),
    "duckdb": duckdb.from_arrow,
    "narwhals": narwhals.from_native,
    "pandas in narwhals": lambda table: narwhals.from_native(table.to_pandas()),
}
THREE = ["chunks", "polars", "duckdb"]


def arrow(**columns: Any) -> pa.Table:
    """The small table, with some of its columns exchanged."""
    plain = small().reset_index(drop=True)
    return pa.table({name: columns.get(name, pa.array(plain[name])) for name in plain.columns})


def same(actual: Panel, expected: Panel) -> None:
    same_panel(actual, expected)
    assert actual.zone == expected.zone
    assert actual.origin.dtype == expected.origin.dtype
    assert actual.ids.dtype == expected.ids.dtype


@pytest.mark.parametrize("make", THREE)
def test_a_table_of_any_library_is_read_as_one_of_pandas(make: str) -> None:
    same(long(MAKERS[make](arrow())), long(small()))


ZONES: dict[str, list[str | None]] = {
    "chunks": [None, "UTC", "Europe/Berlin", "+02:00"],
    "polars": [None, "UTC", "Europe/Berlin"],
    "duckdb": [None],
}
RESOLUTIONS = [  # polars has no seconds, and no zone without a name; DuckDB shows instants in the zone of its session
    (make, unit, zone)
    for make, zones in ZONES.items()
    for zone in zones
    for unit in ("s", "ms", "us", "ns")[make == "polars" :]
]


@pytest.mark.parametrize(("make", "unit", "zone"), RESOLUTIONS)
def test_dates_of_every_resolution_and_zone(make: str, unit: Any, zone: str | None) -> None:
    column = pa.array(STAMPS, pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    expected = pd.DatetimeIndex(STAMPS).as_unit(unit)
    expected = expected if zone is None else expected.tz_localize("UTC").tz_convert(zone)
    same(long(MAKERS[make](arrow(time=column)), unit="min"), long(small(time=expected), unit="min"))


def test_instants_of_duckdb_are_in_the_zone_of_its_session() -> None:
    with duckdb.connect() as session:
        session.execute("set timezone = 'Asia/Tokyo'")
        found = long(session.from_arrow(arrow(time=pa.array(STAMPS, pa.timestamp("us", "UTC")))))
    same(found, long(small(time=pd.DatetimeIndex(STAMPS, tz="UTC").as_unit("us").tz_convert("Asia/Tokyo"))))


@pytest.mark.parametrize("make", ["chunks", "polars"])  # DuckDB has none of one unit: see below
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_durations_of_every_resolution(make: str, unit: Any) -> None:
    spans = np.array(HOURS, "timedelta64[h]").astype(f"timedelta64[{unit}]")
    same(long(MAKERS[make](arrow(time=pa.array(spans))), unit="h"), long(small(time=spans), unit="h"))


def test_an_interval_of_duckdb_is_no_stamp() -> None:
    with pytest.raises(TypeError, match="column 'time' must be numbers, datetime64 or timedelta64; got object"):
        long(duckdb.sql("select 1 as id, interval 3 hours as time, 'x' as channel, 1 as value"))


@pytest.mark.parametrize("make", THREE)
def test_dates_without_a_time_of_day_begin_at_midnight(make: str) -> None:
    days = [date(2024, 3, 31 - hour) for hour in HOURS]
    expected = long(small(time=np.array(days, "datetime64[s]")), unit="D")
    same(long(MAKERS[make](arrow(time=pa.array(days))), unit="D"), expected)
    same(long(small(time=days), unit="D"), expected)  # as pandas reads them from a file of Parquet
    assert expected[1][0].dtype == "datetime64[s]"


@pytest.mark.parametrize("make", THREE)
@pytest.mark.parametrize("column", [[5, 2, 1, 1], [5.5, 2.0, 1.0, 0.5]])
@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "int64", "uint64", "float32", "float64"])
def test_stamps_that_are_numbers(make: str, column: list[float], kind: str) -> None:
    stamps = np.array(column).astype(kind)
    same(long(MAKERS[make](arrow(time=pa.array(stamps)))), long(small(time=stamps)))


@pytest.mark.parametrize("make", THREE)
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (pa.array([12, 3, 12, 3]), [12, 3, 12, 3]),
        (pa.array([12, 3, 12, 3], pa.uint8()), np.array([12, 3, 12, 3], np.uint8)),
        (pa.array(["é", "z", "é", "Z"]), ["é", "z", "é", "Z"]),
        (pa.array(["é", "z", "é", "Z"], pa.large_string()), ["é", "z", "é", "Z"]),
        (pa.array([True, False, True, False]), [True, False, True, False]),
        (pa.array([1.5, 0.5, 1.5, 0.5]), [1.5, 0.5, 1.5, 0.5]),
        (pa.array([Decimal("1.50"), Decimal("0.50")] * 2), pd.Series([Decimal("1.50"), Decimal("0.50")] * 2).array),
        (pa.array(STAMPS[:2] * 2, pa.timestamp("us")), np.array(STAMPS[:2] * 2, "datetime64[us]")),
    ],
)
def test_ids_and_channels_of_many_kinds(make: str, names: Any, expected: Any) -> None:
    for column in ("id", "channel"):
        same(long(MAKERS[make](arrow(**{column: names}))), long(small(**{column: expected})))


@pytest.mark.parametrize("make", MAKERS)
def test_categories_are_in_the_order_that_they_have(make: str) -> None:
    kinds = pd.Categorical(["y", "x", "x", "y"], categories=["y", "unused", "x"])
    table = arrow(channel=pa.array(kinds), id=pa.array(kinds))
    found = long(MAKERS[make](table))
    if "polars" in make or make == "duckdb":  # where categories that come from Arrow have no order
        kinds = pd.Categorical(["y", "x", "x", "y"])
    same(found, long(small(channel=kinds, id=kinds)))


def test_an_enum_is_in_the_order_of_its_members() -> None:
    kinds = pd.Categorical(["y", "x", "x", "y"], categories=["y", "unused", "x"])
    table = pl.from_arrow(arrow())
    enum = table.with_columns(pl.col("channel").cast(pl.Enum(["y", "unused", "x"])))
    same(long(enum), long(small(channel=kinds)))
    members = "create type kind as enum ('y', 'unused', 'x')"
    with duckdb.connect() as session:
        session.execute(members)
        relation = session.from_arrow(arrow()).project("id, time, channel::kind as channel, value")
        same(long(relation), long(small(channel=kinds)))


@pytest.mark.parametrize("make", THREE)
@pytest.mark.parametrize(
    "value",
    [
        pa.array([1.0, None, NAN, 4.5]),
        pa.array([1.0, None, NAN, 4.5], pa.float32()),
        pa.array([1, None, None, 4]),
        pa.array([2**53 + 1, None, 2**62 + 2**38 + 1, -4]),
        pa.array([1, None, 3, 255], pa.uint8()),
        pa.array([True, None, False, True]),
        pa.array([True, False, False, True]),
        pa.array([Decimal("0.1"), None, Decimal("123456789012345.67"), Decimal("-4.5")], pa.decimal128(38, 2)),
        pa.array(["1", None, "3.25", "4e3"]),
        pa.array([None, None, None, None], pa.float64()),
        pa.array([None, None, None, None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_of_many_kinds_with_nulls_and_nan(make: str, value: Any, dtype: Any) -> None:
    numbers = [NAN if one is None else one for one in value.to_pylist()]
    expected = np.array([float(one) for one in numbers])
    if pa.types.is_integer(value.type):  # rounded once, from the whole number
        expected = np.where(
            np.isnan(expected), NAN, np.array([one if one == one else 0 for one in numbers]).astype(dtype)
        )
    same(long(MAKERS[make](arrow(value=value)), dtype=dtype), long(small(value=expected), dtype=dtype))


@pytest.mark.parametrize("make", THREE)
def test_a_wide_table_keeps_the_order_of_its_columns(make: str) -> None:
    wide = pd.DataFrame(
        {"z": [1.0, NAN, 2.0], "time": [1, 0, 4], "id": [5, 5, 3], "a": [NAN, 3.0, 1.0], "n": ["x"] * 3}
    )
    table = pa.table({name: pa.array(wide[name]) for name in wide.columns})
    for value in (["z", "a"], ["a"], "z"):
        found = Panel.from_long(MAKERS[make](table), id="id", time="time", value=value)
        same(found, Panel.from_long(wide, id="id", time="time", value=value))
    found = Panel.from_long(MAKERS[make](table.drop_columns("n")), id="id", time="time")
    same(found, Panel.from_long(wide.drop(columns="n"), id="id", time="time"))
    with pytest.raises(ValueError, match="column 'n' must hold numbers; row 0 holds 'x'"):
        Panel.from_long(MAKERS[make](table), id="id", time="time")


@pytest.mark.parametrize("make", THREE)
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": pa.array(["1", "n/a", "3", "4"])}, "column 'value' must hold numbers; row 1 holds 'n/a'"),
        ({"value": pa.array(STAMPS)}, "column 'value' must hold numbers; it holds datetime64"),
        ({"value": pa.array([[1.0]] * 4)}, "column 'value' must hold numbers; row 0 holds"),
        ({"time": pa.array([3.0, None, 1.0, 0.5])}, "needs a time; series 'a', row 1 of the table has nan"),
        ({"time": pa.array([3, None, 1, 0])}, "needs a time; series 'a', row 1 of the table has nan"),
        ({"time": pa.array([STAMPS[0], None, *STAMPS[2:]])}, "needs a time; series 'a', row 1 of the table has NaT"),
        (
            {"time": pa.array(["1", "2", "3", "4"])},
            "column 'time' must be numbers, datetime64 or timedelta64; got .*'1'",
        ),
        ({"time": pa.array([time(1)] * 4)}, "column 'time' must be numbers, datetime64 or timedelta64; got object"),
        ({"time": pa.array([True, False, True, False])}, "column 'time' must be numbers, .*; got bool"),
        ({"id": pa.array(["b", None, "b", "a"])}, "'id' must name a series in every row; row 1 has none"),
        ({"id": pa.array([2, None, 2, 1])}, "'id' must name a series in every row; row 1 has none"),
        ({"id": pa.array(["b", None, "b", "a"]).dictionary_encode()}, "'id' must name a series .*; row 1 has none"),
        ({"channel": pa.array(["y", None, "x", "y"])}, "'channel' must name a channel in every row; row 1 has none"),
    ],
)
def test_bad_tables_are_refused_with_the_place(make: str, columns: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        long(MAKERS[make](arrow(**columns)))


@pytest.mark.parametrize("make", MAKERS)
def test_wrong_columns_and_empty_tables_are_refused(make: str) -> None:
    with pytest.raises(ValueError, match="no column 'who'; the table has 'id', 'time', 'channel', 'value'"):
        long(MAKERS[make](arrow()), id="who")
    with pytest.raises(ValueError, match="no column 3; the table has"):
        Panel.from_long(MAKERS[make](arrow()), id="id", time="time", value=[3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="at least one series; the table has no rows"):
        long(MAKERS[make](arrow()[:0]))


@pytest.mark.parametrize("table", [pl.Series([1.0]), pa.array([1.0]), np.ones((2, 2)), pd.Series([1.0]), pl.DataFrame])
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(TypeError, match=r"the table must be a DataFrame of pandas or polars, a pyarrow Table, .*; got"):
        long(table)


def test_a_lazy_table_computes_only_what_is_asked_for() -> None:
    def never(_: Any) -> Any:
        raise AssertionError("this column was not asked for")

    table = pl.from_arrow(arrow()).lazy()
    table = table.with_columns(other=pl.col("value").map_batches(never, return_dtype=pl.Float64))
    same(long(table), long(small()))


@pytest.mark.parametrize("make", [pl.from_arrow, lambda table: table])
def test_numbers_and_stamps_share_memory_with_the_table(make: Callable[[pa.Table], Any]) -> None:
    table = make(pa.table({"t": pa.array(STAMPS, pa.timestamp("us")), "i": [1, 2, 3, 4], "x": [1.0, 2.0, 3.0, 4.0]}))
    frame = open_table(table, "table")
    taken = take_columns(frame, column_names(frame))
    for name in ("t", "i", "x"):
        assert np.shares_memory(taken[name].to_numpy(), table[name].to_numpy()), name


def test_polars_needs_no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pl.from_arrow(arrow(value=pa.array([1, None, 3, 4]), time=pa.array(STAMPS, pa.timestamp("us", "UTC"))))
    table = table.with_columns(channel=pl.col("channel").cast(pl.Enum(["y", "x"])))
    expected, relation = long(table), duckdb.from_arrow(arrow())

    def absent(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'pyarrow'")

    for name in ("to_arrow", "to_pandas"):
        monkeypatch.setattr(pl.Series, name, absent)
        monkeypatch.setattr(pl.DataFrame, name, absent)
    monkeypatch.setattr("lformer.panel.tables.find_spec", lambda _: None)
    same(long(table), expected)
    same(long(table.lazy()), expected)
    with pytest.raises(ImportError, match=r"reading a table of duckdb needs pyarrow: pip install 'lformer\[data\]'"):
        long(relation)


COVARIATES = pa.table({"age": [61, None, 50], "id": ["b", "q", "a"], "site": ["x", "y", None]})


@pytest.mark.parametrize("make", THREE)
def test_covariates_have_a_column_of_ids(make: str) -> None:
    expected = pd.DataFrame({"age": [61, None, 50], "site": ["x", "y", None]}, index=["b", "q", "a"]).loc[["a", "b"]]
    pairs: Any = [([0.0], [[1.0]]), ([0.0], [[2.0]])]
    for panel in (
        long(small(), static=MAKERS[make](COVARIATES)),
        long(arrow().rename_columns(["who", "time", "channel", "value"]), id="who",
             static=MAKERS[make](COVARIATES.rename_columns(["age", "who", "site"]))),
        Panel.from_list(pairs, ids=["a", "b"], static=MAKERS[make](COVARIATES)),
        Panel.from_array([[1.0], [2.0]], ids=["a", "b"], static=MAKERS[make](COVARIATES)),
    ):  # fmt: skip
        assert panel.static is not None
        assert panel.static.index.tolist() == ["a", "b"]
        assert panel.static["age"].tolist() == [50, 61]
        assert panel.static["site"].dtype == expected["site"].dtype
        assert panel.static["site"].isna().tolist() == [True, False]
    with pytest.raises(ValueError, match=r"static is aligned by id, so it needs a column 'id'.* it has 'age', 'site'"):
        long(small(), static=MAKERS[make](COVARIATES.drop_columns("id")))


@pytest.mark.parametrize("make", THREE)
def test_targets_have_a_column_of_ids(make: str) -> None:
    panel = long(small())
    one = MAKERS[make](pa.table({"y": [1, 2, 3], "id": ["b", "q", "a"]}))
    assert panel.align(one).tolist() == [3, 1]
    text = MAKERS[make](pa.table({"y": ["no", None, "yes"], "id": ["b", "q", "a"]}))
    assert panel.align(text).tolist() == ["yes", "no"]
    holey = MAKERS[make](pa.table({"y": [1, 2, None], "id": ["b", "q", "a"]}))
    np.testing.assert_array_equal(panel.align(holey), [NAN, 1.0])
    flags = MAKERS[make](pa.table({"y": [True, False, None], "id": ["b", "q", "a"], "z": [1, 2, None]}))
    found = panel.align(flags)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [[NAN, NAN], [1.0, 1.0]])
    two = MAKERS[make](pa.table({"y": [1, 2, 3], "id": ["b", "q", "a"], "z": [0.5, 0.0, 1.5]}))
    assert panel.align(two).tolist() == [[3, 1.5], [1, 0.5]]
    for table, message in (
        (pa.table({"y": [1, 2]}), "target is aligned by id, so it needs a column 'id'"),
        (pa.table({"id": ["a", "b"]}), "target is aligned by id, so it needs a column 'id' .* and at least one other"),
        (pa.table({"id": ["a", "c"], "y": [1, 2]}), r"target has no entry for 1 of 2 ids, among them \['b'\]"),
        (pa.table({"id": ["a", "a"], "y": [1, 2]}), r"target must have one entry per id; duplicates: \['a'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            panel.align(MAKERS[make](table))


@pytest.mark.parametrize("make", ["pyarrow", "polars", "lazy polars", "duckdb"])
def test_weights_of_series_have_a_column_of_ids(make: str) -> None:
    weights = MAKERS[make](pa.table({"w": [1.0, 2.0], "id": ["b", "a"]}))
    assert series_weights(weights, long(small()), by_id=True).tolist() == [2.0, 1.0]
    assert not goes_by_id(weights, by_id=False)
    assert not goes_by_id(pl.Series([1.0, 2.0]), by_id=True)


@pytest.mark.parametrize("make", [pl.Series, pa.array, lambda given: pa.chunked_array([given])])
def test_columns_of_other_libraries_as_series_and_targets(make: Callable[[Any], Any]) -> None:
    panel = Panel.from_list([(make([0.5, 2.0]), make([1.0, None])), (make([0.1]), make([True]))])
    assert panel[0][0].tolist() == [0.5, 2.0]
    np.testing.assert_array_equal(panel[0][1], [[1.0], [NAN]])
    assert panel[1][1].tolist() == [[1.0]]
    assert panel.align(make([7, 8])).tolist() == [7, 8]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_column_of_dates_keeps_its_zone(zone: str | None) -> None:
    stamps = pa.array(STAMPS[::-2], pa.timestamp("us", zone))
    expected = pd.DatetimeIndex(STAMPS[::-2]).as_unit("us")
    expected = expected if zone is None else expected.tz_localize("UTC").tz_convert(zone)
    for column in (stamps, pl.from_arrow(stamps)):
        same(Panel.from_list([(column, [1.0, 2.0])]), Panel.from_list([(expected, [1.0, 2.0])]))


@pytest.mark.parametrize("one", [pl.Series([1.0, 2.0]), pa.array([1.0, 2.0]), pl.DataFrame({"a": [1.0, 2.0]})])
def test_what_has_no_index_cannot_be_a_series_of_a_list(one: Any) -> None:
    message = (
        r"series 0 must be a pair .*which has no index to hold the times.*Panel.from_list\(\[\(times, values\), ...\]\)"
    )
    for make in (Panel.from_list, as_panel):
        with pytest.raises(ValueError, match=message):
            make([one, one])


def test_wide_tables_of_other_libraries() -> None:
    plain = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, NAN]})
    for table in (pl.from_pandas(plain, nan_to_null=True), pa.Table.from_pandas(plain)):
        panel, wide = as_panel(table)
        assert wide == 2
        assert panel.lengths.tolist() == [2, 1]
        assert panel.values[:, 0].tolist() == [1.0, 3.0, 2.0]


def test_durations_as_a_column() -> None:
    panel = Panel.from_list([(pl.Series([timedelta(hours=1), timedelta(hours=4)]), [1.0, 2.0])], unit="h")
    assert panel.times.tolist() == [0.0, 3.0]
