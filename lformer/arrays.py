"""Numbers as people hand them over, as arrays and tensors; whatever is no array of numbers is refused in words.

numpy and torch each convert some things silently: dates to counts of nanoseconds, NaT to -2**63, masked entries to what
stands beneath the mask, complex numbers to their real part. Nothing of that passes here.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]

NUMBERS, STAMPS, WHOLE, BOOL = "fiub", "fiu", "iu", "b"  # kinds of numpy's dtypes
WORDS = {NUMBERS: "numbers", STAMPS: "numbers", WHOLE: "whole numbers", BOOL: "bool", WHOLE + BOOL: "positions or mask"}
CANNOT = (ValueError, TypeError, RuntimeError, ArithmeticError, AttributeError)  # what a failed conversion raises
NO_NUMBER = (complex, np.complexfloating, np.datetime64, np.timedelta64)  # that float() takes all the same
USUAL = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64,
)  # fmt: skip


def as_array(values: Any, name: str, kinds: str = NUMBERS) -> Array:
    """A numpy array of one of some kinds of numbers.

    Args:
        values: array, tensor, pandas object or nested lists.
        name: what to call them in an error.
        kinds: `NUMBERS`, `STAMPS` (no bool), `WHOLE` or `BOOL`.
    """
    array = any_array(values, name)
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name} must be {WORDS[kinds]}; got {_described(array)}.{_advice(array)}")
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2**63; got {array.max()}.")
    return array


def any_array(values: Any, name: str) -> Array:
    """A numpy array of whatever values hold."""
    refuse_masked(values, name)
    try:
        return np.asarray(values)
    except CANNOT as error:
        raise ValueError(
            f"{name} must be an array, or nested lists of one length each; got {type(values).__name__}: {error}."
        ) from error


def refuse_masked(values: Any, name: str) -> None:
    """Masked arrays, whose mask would be lost."""
    if _is_masked(values):
        raise TypeError(
            f"{name} must not be a masked array. Write NaN where nothing was observed: values.filled(numpy.nan)."
        )


def _is_masked(values: Any) -> bool:
    return np.ma.isMaskedArray(values) or (isinstance(values, list | tuple) and any(map(_is_masked, values)))


def as_floats(values: Any, name: str, dtype: Any) -> Array:
    """A floating array; None is NaN, text that reads as a number is one, and what is too large is infinite."""
    if hasattr(values, "to_numpy") and hasattr(values, "isna"):
        # pandas, which may hold its own mark of what is missing
        values = _without_marks(values, name, dtype)
    array = any_array(values, name)
    if array.dtype.kind not in NUMBERS + "OUS":
        raise TypeError(f"{name} must be numbers; got {_described(array)}.{_advice(array)}")
    _refuse_no_number(array, name)
    try:
        with np.errstate(over="ignore"):
            return array.astype(dtype, copy=False)
    except CANNOT as error:
        raise ValueError(f"{name} must be numbers, NaN where nothing was observed: {error}.") from error


def as_tensor(values: Any, name: str, kinds: str = NUMBERS) -> Tensor:
    """The same as a tensor on the CPU, of a dtype that torch can compute with."""
    if not isinstance(values, Tensor):
        return _shared(as_array(values, name, kinds))
    if values.layout != torch.strided or values.is_nested or values.is_meta or values.is_quantized:
        raise TypeError(f"{name} must be a dense tensor; got a {_form(values)} one. Use its to_dense().")
    kind = _kind(values.dtype)
    if kind not in kinds:
        raise TypeError(f"{name} must be {WORDS[kinds]}; got {values.dtype}.")
    values = values.cpu()
    if values.dtype == torch.uint64:
        return _shared(as_array(values.numpy(), name, kinds))
    return values if values.dtype in USUAL else values.to(torch.float32 if kind == "f" else torch.int64)


def as_clock(values: Any, name: str) -> Tensor:
    """Time stamps as float64, or as int64 if they are whole numbers, so that their differences are exact."""
    stamps = as_tensor(values, name, STAMPS)
    return stamps.to(torch.float64 if stamps.is_floating_point() else torch.int64)


def floating(dtype: Any) -> torch.dtype:
    """A dtype of torch for values: one of the floating ones in which it can compute."""
    if not isinstance(dtype, torch.dtype) or dtype not in USUAL or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating one of torch, such as torch.float32; got {shown(dtype)}.")
    return dtype


def check_word(word: Any, name: str, words: Collection[str]) -> None:
    """Refuse what is none of some words."""
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}; got {shown(word)}.")


def whole_number(number: Any, name: str) -> int:
    """An int, from whatever is one without rounding."""
    try:
        whole = operator.index(number)
    except TypeError:
        raise TypeError(f"{name} must be a whole number; got {shown(number)}.") from None
    if abs(whole) >= 2**31:
        raise ValueError(f"{name} must be below 2**31; got {shown(number)}.")
    return whole


def shown(value: Any) -> str:
    """A value for an error, in less than a line."""
    try:
        text = repr(value)
    except Exception:  # of a whole number beyond 4,300 digits, or of somebody's class
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _described(array: Array) -> str:
    """The dtype, and an entry if that says more."""
    example = f", such as {shown(array.ravel()[0])}" if array.size and array.dtype.kind in "OUS" else ""
    return f"{array.dtype}{example}"


def _advice(array: Array) -> str:
    if array.dtype.kind in "mM":
        return " Choose the unit: (times - times[:, :1]) / numpy.timedelta64(1, 'h')."
    if array.dtype.kind in "OUS":
        return " Convert with numpy.asarray(..., float), and write NaN where nothing was observed."
    return ""


def _refuse_no_number(array: Array, name: str) -> None:
    """Objects that are no numbers although float() would take them."""
    entries = array.ravel().tolist() if array.dtype.kind == "O" else []
    for one in entries:
        if isinstance(one, NO_NUMBER):
            raise TypeError(f"{name} must be numbers; got {shown(one)}.")


def _without_marks(values: Any, name: str, dtype: Any) -> Any:
    """A pandas object as an array, with NaN in place of what is missing; calendar stamps stay what they are."""
    dtypes = values.dtypes if hasattr(values, "columns") else [values.dtype]
    kinds = {getattr(one, "kind", "O") for one in dtypes}
    if kinds & set("mMc"):
        return values.to_numpy()
    if "O" in kinds:
        _refuse_no_number(values.to_numpy(), name)
    try:
        if "O" in kinds:  # of pandas' own mark, float() knows nothing
            values = values.astype(object).where(values.notna(), np.nan)
        with np.errstate(over="ignore"):
            return values.to_numpy(dtype, na_value=np.nan)
    except CANNOT as error:
        raise ValueError(f"{name} must be numbers, NaN where nothing was observed: {error}.") from error


def _shared(array: Array) -> Tensor:
    """A tensor that shares memory with an array where that is possible."""
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind == "f" and dtype.itemsize > 8:
        dtype = np.dtype(np.float64)
    if dtype.kind == "u" and dtype.itemsize > 1:  # of these torch has little more than the name
        dtype = np.dtype(np.int64)
    with np.errstate(over="ignore"):  # what float64 cannot hold is refused by the caller
        array = array.astype(dtype, copy=False)
    plain = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if plain else array.copy())


def _kind(dtype: torch.dtype) -> str:
    """As numpy would call it."""
    if dtype == torch.bool:
        return "b"
    return "f" if dtype.is_floating_point else "c" if dtype.is_complex else "i"


def _form(tensor: Tensor) -> str:
    """What makes a tensor unusual."""
    names = {"nested": tensor.is_nested, "meta": tensor.is_meta, "quantized": tensor.is_quantized}
    return next((name for name, is_so in names.items() if is_so), str(tensor.layout).removeprefix("torch."))
