"""Where the data doctor begins to speak: both sides of its thresholds, and tables of very many series."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from doctor.tables import LONG, WIDE, changed, finding_of, long_table, titles, wide_table

from lformer.doctor import examine
from lformer.doctor.layout import by_number, lay_out
from lformer.doctor.records import read_records


def test_numbers_beyond_16_bits_are_sorted() -> None:
    for numbers in ([2**16, 0, 2**16 - 1, 1, 2**16], [3, 2**16 - 1, 0, 3], [2**40, 5], []):
        given = np.array(numbers, np.int64)
        assert by_number(given).tolist() == np.argsort(given, kind="stable").tolist()


@pytest.mark.parametrize("n", [2**16, 2**16 + 1, 70_000])
def test_layout_of_more_series_than_16_bits_count(n: int) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"who": np.tile(rng.permutation(n), 2), "t": rng.permutation(2 * n) * 1.0, "x": 0.5})
    records, findings = read_records(table, "who", "t", None, None)
    assert records is not None
    assert findings == []
    layout = lay_out(records)
    assert layout.lengths.tolist() == [2] * n
    assert layout.owner.tolist() == np.repeat(np.arange(n), 2).tolist()
    pairs = np.sort(table["t"].to_numpy().reshape(2, n), axis=0)
    assert layout.times.reshape(n, 2).tolist() == np.column_stack([np.zeros(n), pairs[1] - pairs[0]]).tolist()


def narrow(gap: float, start: float = 2.0**24) -> pd.DataFrame:
    """float32 stamps where the next number is 2 away; half of the gaps are larger."""
    stamps = np.float32(start + np.cumsum([0.0, gap, gap, 4000.0, gap, 6000.0, gap]))
    return pd.DataFrame({"who": np.repeat(["p", "q"], 7), "t": np.tile(stamps, 2), "x": np.arange(14) % 4 * 0.5})


@pytest.mark.parametrize("start", [2.0**24, -(2.0**25) + 2])
def test_float32_stamps_are_named_from_a_twentieth_of_their_gaps_on(start: float) -> None:
    assert "Stamps in float32" not in titles(examine(narrow(40, start), **WIDE))
    assert examine(narrow(40, start), **WIDE).ok
    report = examine(narrow(38, start), **WIDE)
    assert "resolves 2 at that size" in finding_of(report, "Stamps in float32").detail
    assert not report.ok  # a panel refuses them
    assert examine(narrow(38, start).astype({"t": np.float64}), **WIDE).ok


# -- what cannot be read at all


@pytest.mark.parametrize("column", ["who", "what"])
@pytest.mark.parametrize("odd", [[1], {"a": 1}, Decimal("sNaN")])
def test_names_that_cannot_be_told_apart(column: str, odd: Any) -> None:
    table = long_table().astype({column: object})
    table.at[7, column] = odd
    report = examine(table, **LONG)
    assert not report.ok
    finding = finding_of(report, "Names that cannot be compared")
    assert f"Column {column!r} must hold text or numbers; row 7 holds {odd!r}" in finding.detail


@pytest.mark.parametrize("column", ["t", "x"])
def test_a_nan_that_raises(column: str) -> None:
    table = long_table().astype({column: object})
    table.at[7, column] = Decimal("sNaN")
    assert f"Column {column!r} holds a decimal sNaN" in finding_of(examine(table, **LONG), "Signaling NaN").detail


@pytest.mark.parametrize("odd", [10**400, 1j, [1.0], np.datetime64("2020"), "low"], ids=lambda odd: type(odd).__name__)
def test_values_that_are_no_numbers_are_named(odd: Any) -> None:
    table = long_table().astype({"x": object})
    table.at[7, "x"] = odd
    finding = finding_of(examine(table, **LONG), "Values that are no numbers")
    assert "has 1 value that cannot be read as a number: row 7 holds" in finding.detail
    assert len(finding.detail) < 300


@pytest.mark.parametrize("odd", [10**400, 1j, [1.0], "low"], ids=lambda odd: type(odd).__name__)
def test_stamps_that_cannot_be_read_are_named(odd: Any) -> None:
    table = long_table().astype({"t": object})
    table.at[7, "t"] = odd
    assert (
        "1 stamp of column 't' cannot be read as a number: row 7 holds"
        in finding_of(examine(table, **LONG), "Unreadable time stamps").detail
    )


def test_columns_of_dates_are_no_values() -> None:
    table = changed(wide_table(), lambda t: t.assign(k=pd.Timestamp("2020-01-01")))
    assert "Column 'k' has" in finding_of(examine(table, **WIDE), "Values that are no numbers").detail


def test_a_series_that_spans_more_than_a_panel_holds() -> None:
    """No gap alone is too large, but both together are."""
    span = float(np.finfo(np.float32).max) / 2
    times = [0.0, 0.6 * span, 1.2 * span, 0.0]
    table = pd.DataFrame({"who": ["p", "p", "p", "q"], "t": times, "x": [1.0, 2.0, 3.0, 4.0]})
    finding = finding_of(examine(table, **WIDE), "Stamps too far apart")
    assert "1 gap cannot be represented: row 1, id p" in finding.detail
    edge = table.assign(t=[0.0, 0.5 * span, span, 0.0])
    assert "Stamps too far apart" not in titles(examine(edge, **WIDE))
    assert examine(edge, **WIDE).ok
    assert not examine(edge.assign(t=[0.0, 0.5 * span, np.nextafter(span, np.inf), 0.0]), **WIDE).ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": {"who": [1]}}, "examine takes a pandas DataFrame; got dict"),
        ({"id": ["who"]}, r"id must be the name of a column; got \['who'\]"),
        ({"time": np.arange(2)}, "time must be the name of a column; got array"),
        ({"value": 7}, "value must be the name of a column, or a list of names; got 7"),
        ({"value": [["x"]]}, "value must be the name of a column, or a list of names"),
        ({"batch_size": 2.5}, "batch_size must be a whole number; got 2.5"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        examine(**{"table": long_table(), **LONG, **change})


def test_whole_numbers_too_long_to_print() -> None:
    for column, title in (("x", "Values that are no numbers"), ("t", "Unreadable time stamps")):
        table = long_table().astype({column: object})
        table.at[7, column] = 10**5000
        assert "row 7 holds an object of type int" in finding_of(examine(table, **LONG), title).detail
