"""Convert lists of series and padded arrays to the flat fields of a panel."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lformer.arrays import Array, as_floats, shown
from lformer.panel.checks import channel_names, spell, whole_numbers
from lformer.panel.core import OnDuplicate
from lformer.panel.missing import MissingValues, is_mark, read_marks
from lformer.panel.rows import Fields, entries_of, lay_out, series_names, value_dtype, without_marks
from lformer.panel.stamps import as_stamps, require_fine, stored_dtype
from lformer.panel.tables import indexed
from lformer.panel.zones import common_zone, zone_of

PAIR = "a pair (times, values), or a Series or DataFrame of pandas whose index is the time"
LONG_AXIS = 10  # with this many times as many channels as time stamps, the axes of an array are probably swapped


def read_list(
    series: Sequence[Any],
    ids: Sequence[Hashable] | None,
    channels: Sequence[str] | None,
    unit: str | None,
    static: Any,
    on_duplicate: OnDuplicate,
    missing_values: MissingValues,
    dtype: Any,
) -> Fields:
    """See `Panel.from_list`."""
    dtype = value_dtype(dtype)
    try:
        series = list(series)
    except TypeError:
        raise TypeError(f"from_list takes a list, each series of which is {PAIR}; got {shown(series)}.") from None
    if not len(series):
        raise ValueError("a panel needs at least one series; got an empty list.")
    names = series_names(ids, len(series))
    channels = None if channels is None else channel_names(channels)
    clocks: list[Array] = []
    zones: list[str | None] = []
    matrices: list[Array] = []
    for name, one in zip(names.tolist(), series, strict=True):
        if isinstance(one, pd.DataFrame):
            clock: Any = one.index
            matrix: Any = one
            channels = [str(c) for c in one.columns] if channels is None else channels
            if [str(c) for c in one.columns] != channels:
                raise ValueError(f"series {name!r} has columns {list(one.columns)}; expected {channels}.")
        elif isinstance(one, pd.Series):
            clock, matrix = one.index, one
        elif isinstance(one, tuple | list) and len(one) == 2:
            clock, matrix = one
        else:
            raise ValueError(f"series {name!r} must be {PAIR}; got {_without_times(one)}")
        stamps = as_stamps(clock, f"times of series {name!r}")
        values = _matrix(matrix, f"series {name!r}", dtype)
        if stamps.ndim != 1 or len(stamps) != len(values):
            raise ValueError(
                f"series {name!r} must be a pair of times (L,) and values (L, C); got shapes {stamps.shape} and "
                f"{values.shape}."
            )
        if matrices and values.shape[1] != matrices[0].shape[1]:
            raise ValueError(
                f"all series must have the same channels; series {spell(names[0])} has {matrices[0].shape[1]}, series "
                f"{name!r} has {values.shape[1]}. Give a channel that was never observed as a column of NaN."
            )
        back = np.flatnonzero(stamps[1:] < stamps[:-1])
        if len(back):
            at = int(back[0])
            raise ValueError(
                f"times must not decrease along a series; series {name!r} has {stamps[at + 1]} in row {at + 1} after "
                f"{stamps[at]}. Sort its rows by time."
            )
        require_fine(stored_dtype(clock), stamps, np.zeros(len(stamps)), f"times of series {name!r}")
        clocks.append(stamps)
        zones += [zone_of(clock)] if len(stamps) else []
        matrices.append(values)
    owner = np.repeat(np.arange(len(names)), [len(c) for c in clocks])
    matrix = np.concatenate(matrices)
    labels = channel_names(_shared_name(series) if channels is None else channels, matrix.shape[1])
    entries = without_marks(entries_of(matrix), read_marks(missing_values, labels, dtype))
    static = None if static is None else indexed(static, "id", "static")
    fields = lay_out(names, owner, _joined(clocks), entries, labels, unit, static, on_duplicate, dtype, None)
    return fields | {"zone": common_zone(zones)}


def _shared_name(series: Sequence[Any]) -> list[str] | None:
    """The common name of pandas Series, for their single channel; None if there is none."""
    names = {one.name if isinstance(one, pd.Series) else None for one in series}
    return [str(*names)] if len(names) == 1 and names != {None} else None


def _without_times(one: Any) -> str:
    """Describe an object with values but without times, and what to do about it."""
    what = f"{type(one).__module__.partition('.')[0]} {type(one).__name__}"
    if hasattr(one, "__arrow_c_stream__") or hasattr(one, "__arrow_c_array__"):
        return (
            f"a {what}, which has no index to hold the times. Give them beside the values, Panel.from_list([(times, "
            "values), ...]), or one table with a column of ids to Panel.from_long."
        )
    if hasattr(one, "shape") and len(one.shape) in (1, 2):
        aeon = "; or (range(x.shape[1]), x.T), if each is (channels, time), as in aeon" if len(one.shape) == 2 else ""
        return (
            f"a {what} of shape {tuple(one.shape)} without times. If its rows are evenly spaced in time, give "
            f"Panel.from_list([(range(len(x)), x) for x in series]){aeon}."
        )
    return f"{shown(one)}."


def read_array(
    values: Any,
    times: Any,
    lengths: Any,
    ids: Sequence[Hashable] | None,
    channels: Sequence[str] | None,
    unit: str | None,
    static: Any,
    on_duplicate: OnDuplicate,
    missing_values: MissingValues,
    dtype: Any,
) -> Fields:
    """See `Panel.from_array`."""
    dtype = value_dtype(dtype)
    array = _cube(values, dtype)
    n, L = array.shape[:2]
    if not n:
        raise ValueError(f"a panel needs at least one series; got values of shape {array.shape}.")
    names = series_names(ids, n)
    labels = channel_names(channels, array.shape[2])
    if times is None and channels is None and (swapped := swapped_axes(array.shape)):
        warnings.warn(f"{swapped} If it is meant as it stands, name the channels: channels=[...].", stacklevel=3)
    if (marked := is_mark(array, read_marks(missing_values, labels, dtype))).any():
        array = np.where(marked, np.asarray(np.nan, dtype), array)
    clock = np.arange(L, dtype=np.float64) if times is None else as_stamps(times, "times")
    shared = clock.shape == (L,)
    clock = np.broadcast_to(clock, (n, L)) if shared else clock
    if clock.shape != (n, L):
        raise ValueError(f"times must have shape {(n, L)} or {(L,)} beside values {array.shape}; got {clock.shape}.")
    if lengths is None:
        used: Array = np.any(~np.isnan(array), axis=2)
        used = used if shared else used | ~np.isnan(clock)
        count = L - np.argmax(np.column_stack([used[:, ::-1], np.ones(n, bool)]), axis=1)
    else:
        count = whole_numbers(lengths, "lengths")
        if count.shape != (n,) or bool(((count < 0) | (count > L)).any()):
            raise ValueError(f"lengths must be {n} numbers from 0 to {L}; got {count.tolist()}.")
    valid = np.arange(L) < count[:, None]
    owner = np.repeat(np.arange(n), count)
    flat = clock[valid]
    require_fine(stored_dtype(clock if times is None else times), flat, owner, "times")
    back = (flat[1:] < flat[:-1]) & (owner[1:] == owner[:-1])
    if back.any():
        at = int(np.argmax(back))
        raise ValueError(
            f"times must not decrease along a series; series {spell(names[owner[at]])} has {flat[at + 1]} after "
            f"{flat[at]}. Sort its rows by time; write NaN or NaT as the time of padding, or give lengths."
        )
    static = None if static is None else indexed(static, "id", "static")
    fields = lay_out(names, owner, flat, entries_of(array[valid]), labels, unit, static, on_duplicate, dtype, None)
    return fields | {"zone": None if times is None else zone_of(times)}


def swapped_axes(shape: tuple[int, ...]) -> str | None:
    """A warning if an array (n, L, C) has many more channels than time stamps, else None."""
    n, L, C = shape
    if not 0 < L * LONG_AXIS <= C:
        return None
    steps = f"{L} time step{'' if L == 1 else 's'}"
    return (
        f"an array of shape {(n, L, C)} is read as (series, time, channels), that is {steps} of {C} channels. If it is "
        "(series, channels, time), as in aeon and sktime, swap its axes: X.swapaxes(1, 2)."
    )


def _joined(clocks: list[Array]) -> Array:
    """The time stamps of all series, which must be of one kind; an empty series has none, and numeric types may mix."""
    filled = [(i, clock) for i, clock in enumerate(clocks) if len(clock)]
    kinds = {clock.dtype.kind.replace("i", "f"): (i, clock) for i, clock in filled}
    if len(kinds) > 1:
        found = "; ".join(f"series at position {i}: {clock.dtype}" for i, clock in kinds.values())
        raise ValueError(f"all series must have one kind of stamps, numbers, datetime64 or timedelta64; got {found}.")
    return np.concatenate([clock for _, clock in filled]) if filled else clocks[0]


def _matrix(values: Any, name: str, dtype: Any) -> Array:
    matrix = as_floats(values, f"values of {name}", dtype)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2:
        raise ValueError(f"values of {name} must have shape (L, C) or (L,); got {matrix.shape}.")
    return matrix


def _cube(values: Any, dtype: Any) -> Array:
    array = as_floats(values, "values", dtype)
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3:
        raise ValueError(f"values must have shape (n, L, C) or (n, L); got {array.shape}.")
    return array
