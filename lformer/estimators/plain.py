"""Convert values to JSON and back, checking types and ranges; errors name the invalid value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from reprlib import repr as short
from typing import Any

import numpy as np

from lformer.panel import Array

Scalar = str | bool | int | float | None
NUMBERS = re.compile(r"[<>|](b1|i[1248]|u[1248]|f[248])")  # types of arrays, in numpy's notation
MOST = 2**26  # total characters of a text array, in which every entry takes as much memory as the longest

# --- from JSON ---


def fields(value: Any, name: str, keys: Iterable[str]) -> dict[str, Any]:
    """An object with exactly these keys."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object; got {short(value)}")
    keys = list(keys)
    for key in keys:
        if key not in value:
            raise ValueError(f"{name} has no {key!r}")
    for key in value:
        if key not in keys:
            raise ValueError(f"{name} has an entry {short(key)}, which is not one of {', '.join(keys)}")
    return value


def entries(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list; got {short(value)}")
    return value


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got {short(value)}")
    return value


def truth(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false; got {short(value)}")
    return value


def whole(value: Any, name: str, least: int = 0) -> int:
    """An integer that fits into 64 bits, and is not a boolean."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise ValueError(f"{name} must be a whole number from {least}; got {short(value)}")
    return value


def number(value: Any, name: str) -> float:
    """A finite number."""
    try:
        found = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer beyond all floating-point numbers
        found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{name} must be a finite number; got {short(value)}")
    return found


def positive(value: Any, name: str) -> float:
    """A finite number greater than 0."""
    if number(value, name) <= 0:
        raise ValueError(f"{name} must be greater than 0; got {short(value)}")
    return float(value)


def scalar(value: Any, name: str) -> Scalar:
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{name} must be a finite number, text, true, false or null; got {short(value)}")


def texts(value: Any, name: str) -> list[str]:
    """A list of distinct strings."""
    return different([text(one, name) for one in entries(value, name)], name)


def different(values: list[Any], name: str) -> list[Any]:
    """Raise if an entry occurs twice."""
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{name} must all be different; {short(value)} occurs twice")
        seen.add(value)
    return values


def array(value: Any, name: str) -> Array:
    """(n,) with its original dtype: numbers, booleans, text, or Python objects of these kinds."""
    stored = fields(value, name, ("dtype", "values"))
    kind = text(stored["dtype"], f"the type of {name}")
    values = [scalar(one, name) for one in entries(stored["values"], name)]
    if kind == "str":  # as wide as its longest entry, whatever a file might say
        longest = max((len(text(one, name)) for one in values), default=0)
        if len(values) * longest > MOST:
            raise ValueError(f"{name} has {len(values)} texts of up to {longest} characters, which is too much")
        return np.array(values, np.str_)
    if kind == "|O":
        objects = np.empty(len(values), object)
        objects[:] = values
        return objects
    if not NUMBERS.fullmatch(kind):
        raise ValueError(f"{name} has the type {short(kind)}, which is not a valid array type")
    return _numbers(values, np.dtype(kind), name)


def _numbers(values: list[Scalar], dtype: np.dtype[Any], name: str) -> Array:
    right = {"b": bool, "i": int, "u": int, "f": float}[dtype.kind]
    try:
        found = np.array(values if all(type(one) is right for one in values) else [], dtype)
    except OverflowError:
        found = np.array([], dtype)
    if found.tolist() != values:  # another type, or a number that this one cannot hold
        raise ValueError(f"{name} must hold numbers of the type {dtype.str}; got {short(values)}")
    return found


def restored(value: Any, name: str) -> Any:
    """The value that was given to `plain`."""
    if not isinstance(value, dict):
        return scalar(value, name)
    if "list" in value:
        return [scalar(one, name) for one in entries(fields(value, name, ("list",))["list"], name)]
    if "tuple" in value:
        return tuple(scalar(one, name) for one in entries(fields(value, name, ("tuple",))["tuple"], name))
    if "pairs" not in value:
        return array(value, name)
    pairs = [entries(pair, name) for pair in entries(fields(value, name, ("pairs",))["pairs"], name)]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{name} must hold pairs of a key and a value; got {short(pairs)}")
    different([scalar(key, name) for key, _ in pairs], f"the keys of {name}")
    for _, item in pairs:
        if isinstance(item, dict) and "list" not in item:
            raise ValueError(f"{name} must hold numbers, text or lists by key; got {short(item)}")
    return {key: restored(item, name) for key, item in pairs}


# --- to JSON ---


def plain(value: Any, name: str) -> Any:
    """Values for JSON that `restored` reads back: numbers, text, lists, tuples, dicts, and arrays with their dtype."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return {"tuple": [scalar(plain(item, name), name) for item in value]}
    if isinstance(value, dict):
        return {"pairs": [[plain(key, name), plain(item, name)] for key, item in value.items()]}
    if isinstance(value, list):
        return {"list": [plain(item, name) for item in value]}
    if isinstance(value, np.ndarray) and value.ndim == 1:
        kind = "str" if value.dtype.kind == "U" else value.dtype.str
        return {"dtype": kind, "values": [plain(item, name) for item in value]}
    try:
        return scalar(value, name)
    except ValueError:
        raise ValueError(
            f"{name} cannot be saved: it must be a finite number, text, True, False or None; got {value!r}. Change it "
            f"first, for example with set_params({name}=None)."
        ) from None
