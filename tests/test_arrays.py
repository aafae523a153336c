"""Numbers as people hand them over: taken as they are meant, or refused in words."""

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lformer.arrays import (
    BOOL,
    STAMPS,
    WHOLE,
    as_array,
    as_clock,
    as_floats,
    as_tensor,
    check_word,
    floating,
    shown,
    whole_number,
)

NAN = float("nan")
MASKED = np.ma.array([1.0, 2.0], mask=[True, False])


class NoArray:
    """What claims to be an array and is none."""

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError("no array")


class NoText:
    """What cannot be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        ([1, 2], torch.int64, [1, 2]),
        ([0.1, 2], torch.float64, [0.1, 2.0]),
        ([True, False], torch.bool, [True, False]),
        (np.arange(3.0)[::-1], torch.float64, [2.0, 1.0, 0.0]),
        (np.arange(3, dtype=">i4"), torch.int32, [0, 1, 2]),
        (np.array([1.5, 2.5], ">f4"), torch.float32, [1.5, 2.5]),
        (np.array([1.5], np.float16), torch.float16, [1.5]),
        (np.array([0.1], np.longdouble), torch.float64, [0.1]),
        (np.array([1, 65535], np.uint16), torch.int64, [1, 65535]),
        (np.array([1, 2**63 - 1], np.uint64), torch.int64, [1, 2**63 - 1]),
        (np.array([200], np.uint8), torch.uint8, [200]),
        (np.broadcast_to(3.0, (2,)), torch.float64, [3.0, 3.0]),
        (pd.Series([1.0, None]).ffill(), torch.float64, [1.0, 1.0]),
        (range(3), torch.int64, [0, 1, 2]),
        (torch.tensor([1, 65535], dtype=torch.uint16), torch.int64, [1, 65535]),
        (torch.tensor([2**63 - 1], dtype=torch.uint64), torch.int64, [2**63 - 1]),
        (torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn), torch.float32, [1.0, 2.0]),
        (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), torch.bfloat16, [1.0, 2.0]),
    ],
)
def test_numbers_of_many_kinds_become_tensors(given: Any, dtype: torch.dtype, expected: list[Any]) -> None:
    tensor = as_tensor(given, "x")
    assert tensor.dtype == dtype
    assert tensor.tolist() == expected
    tensor.add_(0) if dtype != torch.bool else tensor.logical_not_()  # it can be written to, or is a copy


ODD: list[tuple[Any, type[Exception], str]] = [
    (None, TypeError, "x must be numbers; got object, such as None"),
    ([None, 1.0], TypeError, "such as None. Convert with numpy.asarray"),
    ("hello", TypeError, "got <U5, such as np.str_.'hello'"),
    (["1", "2"], TypeError, "such as np.str_.'1'"),
    ([Decimal("sNaN")], TypeError, r"object, such as Decimal\('sNaN'\)"),
    ([Decimal("1.5")], TypeError, r"object, such as Decimal\('1.5'\)"),
    ([10**400], TypeError, r"object, such as 1000.*0\.\.\."),
    ([10**5000], TypeError, "object, such as an object of type int"),
    ([NoText()], TypeError, "such as an object of type NoText"),
    (NoArray(), ValueError, "x must be an array, or nested lists of one length each; got NoArray: no array"),
    ([1j], TypeError, "got complex128"),
    ({"a": 1}, TypeError, "object"),
    ([[1.0], [1.0, 2.0]], ValueError, "nested lists of one length each; got list"),
    (np.array(["2020", "NaT"], "datetime64[s]"), TypeError, r"got datetime64\[s\]. Choose the unit"),
    ([datetime(2020, 1, 1)], TypeError, "object"),
    (MASKED, TypeError, r"x must not be a masked array. Write NaN .* values.filled\(numpy.nan\)"),
    ([MASKED, MASKED], TypeError, "masked array"),
    (np.array([2**63], np.uint64), ValueError, r"x must be below 2\*\*63; got 9223372036854775808"),
    (np.zeros(2, [("a", float)]), TypeError, "x must be numbers"),
    (torch.tensor([1j]), TypeError, "x must be numbers; got torch.complex64"),
    (torch.ones(2).to_sparse(), TypeError, "x must be a dense tensor; got a sparse_coo one"),
    (torch.ones(2, device="meta"), TypeError, "got a meta one"),
    (torch.tensor([2**63], dtype=torch.uint64), ValueError, r"below 2\*\*63"),
]


@pytest.mark.parametrize(("given", "kind", "message"), ODD)
def test_what_holds_no_numbers_is_refused(given: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        as_tensor(given, "x")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("kinds", "given", "message"),
    [
        (STAMPS, [True], "x must be numbers; got bool"),
        (STAMPS, torch.tensor([True]), "x must be numbers; got torch.bool"),
        (WHOLE, [2.5], "x must be whole numbers; got float64"),
        (WHOLE, [NAN], "x must be whole numbers; got float64"),
        (WHOLE, torch.tensor([2.0]), "x must be whole numbers; got torch.float32"),
        (WHOLE + BOOL, [0.5], "x must be positions or mask; got float64"),
    ],
)
def test_kinds_are_told_apart(kinds: str, given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        as_tensor(given, "x", kinds)


def test_clocks_are_exact_if_whole_and_double_otherwise() -> None:
    assert as_clock(np.array([2**60 + 1]), "t").tolist() == [2**60 + 1]
    assert as_clock([1], "t").dtype == torch.int64
    assert as_clock(torch.tensor([1], dtype=torch.int8), "t").dtype == torch.int64
    assert as_clock(torch.tensor([1.5], dtype=torch.bfloat16), "t").dtype == torch.float64


@pytest.mark.parametrize(
    "given",
    [
        [1.0, None, 3.0],
        ["1", "nan", b"3"],
        [Decimal(1), Decimal("nan"), Fraction(3)],
        pd.array([1, None, 3], dtype="Int64"),
        pd.Series([1.0, None, 3.0], dtype="Float64"),
        pd.Series(["1", None, "3"], dtype=object),
    ],
)
def test_floats_from_objects_and_text(given: Any) -> None:
    np.testing.assert_array_equal(as_floats(given, "x", np.float32), np.float32([1, NAN, 3]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([10**400], "x must be numbers.*too large"),
        ([Decimal("sNaN")], "x must be numbers.*signaling NaN"),
        (["a"], "x must be numbers.*'a'"),
        ([1j], "got complex128"),
        ([np.complex128(1j), "1"], "x must be numbers"),
        (np.array(["2020", "NaT"], "datetime64[s]"), r"got datetime64\[s\]"),
        (pd.Series(pd.to_datetime(["2020"])), "x must be numbers; got datetime64"),
        (pd.DataFrame({"a": pd.to_timedelta([1], unit="s")}), "x must be numbers; got timedelta64"),
        (np.array([np.datetime64("2020"), 1.0], object), r"got np.datetime64\('2020'\)"),
        (np.array([1.0, np.timedelta64(3, "s")], object), r"got np.timedelta64\(3,'s'\)"),
        (pd.Series([1.0, "b"], dtype=object), "x must be numbers, NaN where nothing was observed: .*'b'"),
        (MASKED, "masked array"),
    ],
)
def test_no_float_is_made_of_what_is_no_number(given: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        as_floats(given, "x", np.float32)


def test_too_large_for_a_float_is_infinite_without_a_warning() -> None:
    assert as_floats([1e39, 1.0], "x", np.float32).tolist() == [np.inf, 1.0]
    assert as_floats(pd.Series([1e39]), "x", np.float32).tolist() == [np.inf]
    assert as_tensor(np.array([np.longdouble(10) ** 4000]), "x").tolist() == [np.inf]


def test_whole_arrays_and_words() -> None:
    assert as_array([1, 2], "x").dtype == np.int64
    assert floating(torch.float16) == torch.float16
    for dtype in (torch.int64, torch.complex64, torch.float8_e4m3fn, np.float32, None, "float32"):
        with pytest.raises(TypeError, match=r"dtype must be a floating one of torch, such as torch\.float32; got"):
            floating(dtype)
    check_word("a", "x", ("a", "b"))
    for word in ("c", None, np.array(["a", "b"]), pd.DataFrame({"a": [1]})):
        with pytest.raises(ValueError, match="x must be one of a, b; got"):
            check_word(word, "x", ("a", "b"))
    assert len(shown("y" * 1000)) == 60


def test_masks_are_found_in_nested_lists() -> None:
    masked = np.ma.array([5.0], mask=[True])
    for given in ([[masked]], ([masked, masked],), [[[masked]]]):
        with pytest.raises(TypeError, match="must not be a masked array"):
            as_tensor(given, "values")


def test_the_mark_of_pandas_is_nan_in_objects_too() -> None:
    table = pd.DataFrame({"a": [1.0, pd.NA], "b": [None, 2]}, dtype=object)
    assert np.array_equal(as_floats(table, "values", np.float64), [[1.0, np.nan], [np.nan, 2.0]], equal_nan=True)


@pytest.mark.parametrize("stamp", [pd.Timestamp("2020"), pd.NaT])
def test_a_stamp_is_no_number(stamp: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="values must be"):
        as_floats(stamp, "values", np.float32)


@pytest.mark.parametrize("number", [2**31, 2**63, 10**400, -(2**40)])
def test_whole_numbers_have_a_bound(number: int) -> None:
    with pytest.raises(ValueError, match=r"rows must be below 2\*\*31"):
        whole_number(number, "rows")
