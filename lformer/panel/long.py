"""Tables, lists and padded arrays into the flat fields of a panel: sorted, merged by stamp, checked.

All three become the same thing first: source rows with an owner and a stamp, and entries (row, channel, value).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, get_args

import numpy as np
import pandas as pd

from lformer.arrays import CANNOT, NO_NUMBER, Array, as_floats, check_word, shown
from lformer.panel.core import OnDuplicate, channel_names, span_message, spell, whole_numbers
from lformer.panel.missing import Marks, MissingValues, is_mark, read_marks
from lformer.panel.stamps import as_stamps, choose_unit, elapsed, missing, require_fine, stored_dtype, too_long
from lformer.panel.zones import common_zone, zone_of

Fields = dict[str, Any]
SHOWN = 5  # examples in an error


def read_long(
    table: pd.DataFrame,
    id: str,
    time: str,
    channel: str | None,
    value: str | Sequence[str] | None,
    channels: Sequence[str] | None,
    unit: str | None,
    static: pd.DataFrame | None,
    on_duplicate: OnDuplicate,
    missing_values: MissingValues,
    dtype: Any,
) -> Fields:
    """See `Panel.from_long`."""
    dtype = _floating(dtype)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"from_long takes a pandas DataFrame; got {type(table).__name__}.")
    check_names(id, time, channel, value)
    named = [id, time, *([] if channel is None else [channel]), *([value] if isinstance(value, str) else [])]
    _columns_exist(table, named)
    if not len(table):
        raise ValueError("a panel needs at least one series; the table has no rows.")
    owner, ids = _coded(table[id], id)
    if (owner < 0).any():
        lost = table.index[int(np.argmax(owner < 0))]
        raise ValueError(f"{id!r} must name a series in every row; row {lost} has none.")
    clock = as_stamps(table[time], f"column {time!r}")
    require_fine(stored_dtype(table[time]), clock, owner, f"the stamps of column {time!r}")
    entries: tuple[Array, Array, Array]
    if channel is None:
        chosen = [value] if isinstance(value, str) else value
        columns = [c for c in table.columns if c not in (id, time)] if chosen is None else list(chosen)
        _columns_exist(table, columns)
        if not columns:
            raise ValueError(f"no column holds values: the table has only {id!r} and {time!r}.")
        place, names = _places(columns, channels)
        row, code, found = _entries(np.column_stack([_numbers(table[c], c, dtype) for c in columns]))
        entries = row, place[code], found
    else:
        if not isinstance(value, str):
            raise ValueError("with a channel column, value must name the column of the values.")
        code, names = _channel_codes(table[channel], channels, channel)
        numbers = _numbers(table[value], value, dtype)
        row = np.flatnonzero(~np.isnan(numbers))
        entries = row, code[row], numbers[row]
    entries = _without_marks(entries, read_marks(missing_values, names, dtype))
    fields = _fields(np.asarray(ids), owner, clock, entries, names, unit, static, on_duplicate, dtype, table.index)
    return fields | {"zone": zone_of(table[time])}


def read_list(
    series: Sequence[Any],
    ids: Sequence[Hashable] | None,
    channels: Sequence[str] | None,
    unit: str | None,
    static: pd.DataFrame | None,
    on_duplicate: OnDuplicate,
    missing_values: MissingValues,
    dtype: Any,
) -> Fields:
    """See `Panel.from_list`."""
    dtype = _floating(dtype)
    try:
        series = list(series)
    except TypeError:
        raise TypeError(
            f"from_list takes a list of (times, values) pairs or DataFrames; got {shown(series)}."
        ) from None
    if not len(series):
        raise ValueError("a panel needs at least one series; got an empty list.")
    names = _names(ids, len(series))
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
        elif isinstance(one, tuple | list) and len(one) == 2:
            clock, matrix = one
        else:
            raise ValueError(
                f"series {name!r} must be a pair (times, values) or a DataFrame; got {type(one).__name__}."
            )
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
    labels = channel_names(channels, matrix.shape[1])
    entries = _without_marks(_entries(matrix), read_marks(missing_values, labels, dtype))
    fields = _fields(names, owner, _joined(clocks), entries, labels, unit, static, on_duplicate, dtype, None)
    return fields | {"zone": common_zone(zones)}


def read_array(
    values: Any,
    times: Any,
    lengths: Any,
    ids: Sequence[Hashable] | None,
    channels: Sequence[str] | None,
    unit: str | None,
    static: pd.DataFrame | None,
    on_duplicate: OnDuplicate,
    missing_values: MissingValues,
    dtype: Any,
) -> Fields:
    """See `Panel.from_array`."""
    dtype = _floating(dtype)
    array = _cube(values, dtype)
    n, L = array.shape[:2]
    if not n:
        raise ValueError(f"a panel needs at least one series; got values of shape {array.shape}.")
    names = _names(ids, n)
    labels = channel_names(channels, array.shape[2])
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
    fields = _fields(names, owner, flat, _entries(array[valid]), labels, unit, static, on_duplicate, dtype, None)
    return fields | {"zone": None if times is None else zone_of(times)}


def _entries(matrix: Array) -> tuple[Array, Array, Array]:
    """Row, column and value of every number in (N, C); NaN is not one."""
    row, column = np.nonzero(~np.isnan(matrix))
    return row, column, matrix[row, column]


def _without_marks(entries: tuple[Array, Array, Array], marks: Marks) -> tuple[Array, Array, Array]:
    """The entries that are no marks for missing values."""
    source, code, value = entries
    kept = ~is_mark(value, marks, code)
    return (source[kept], code[kept], value[kept]) if marks else entries


def _joined(clocks: list[Array]) -> Array:
    """The stamps of all series, which must be of one kind; an empty series has none, and numbers mix."""
    filled = [(i, clock) for i, clock in enumerate(clocks) if len(clock)]
    kinds = {clock.dtype.kind.replace("i", "f"): (i, clock) for i, clock in filled}
    if len(kinds) > 1:
        found = "; ".join(f"series at position {i}: {clock.dtype}" for i, clock in kinds.values())
        raise ValueError(f"all series must have one kind of stamps, numbers, datetime64 or timedelta64; got {found}.")
    return np.concatenate([clock for _, clock in filled]) if filled else clocks[0]


def _fields(
    ids: Array,
    owner: Array,
    clock: Array,
    entries: tuple[Array, Array, Array],
    channels: Sequence[str],
    unit: str | None,
    static: pd.DataFrame | None,
    on_duplicate: OnDuplicate,
    dtype: Any,
    labels: pd.Index | None,
) -> Fields:
    """Sort source rows by owner and stamp, merge those of one stamp, and lay out values and mask."""
    check_word(on_duplicate, "on_duplicate", get_args(OnDuplicate))
    if (lost := missing(clock)).any():
        at = int(np.argmax(lost))
        place = f"row {int(np.sum(owner[:at] == owner[at]))}" if labels is None else f"row {labels[at]} of the table"
        raise ValueError(
            f"every observation needs a time; series {spell(ids[owner[at]])}, {place} has {clock[at]}. Drop such rows."
        )
    source, code, value = entries
    if (wild := ~np.isfinite(value)).any():
        at = int(np.argmax(wild))
        raise ValueError(
            f"an observed value must be finite in {np.dtype(dtype)}; series {spell(ids[owner[source[at]]])}, time "
            f"{clock[source[at]]}, channel {channels[code[at]]!r} is {value[at]}. Write NaN if it was not observed; "
            "use a larger unit, or dtype=float64, if it is too large."
        )
    row_of, N = _merge(owner, clock)
    key = row_of[source] * len(channels) + code
    values = np.zeros(N * len(channels), dtype)
    observed = np.zeros(N * len(channels), bool)
    values[key], observed[key] = value, True  # of equal keys the last one stays
    if int(observed.sum()) != len(key):
        if on_duplicate == "error":
            raise ValueError(_duplicates(key, owner[source], clock[source], code, ids, channels))
        if on_duplicate == "mean":
            values = _means(key, value, N * len(channels)).astype(dtype)
        if on_duplicate == "keep":
            warnings.warn(
                "duplicates are kept as rows at the same time: such a row reads the memory but does not write to it.",
                stacklevel=4,
            )
            row_of, N, key = _keep(row_of, source, key, code, len(channels))
            values, observed = np.zeros(N * len(channels), dtype), np.zeros(N * len(channels), bool)
            values[key], observed[key] = value, True
    row_owner, row_clock = np.empty(N, np.int64), np.empty(N, clock.dtype)
    if on_duplicate == "keep":
        row_owner[key // len(channels)], row_clock[key // len(channels)] = owner[source], clock[source]
    row_owner[row_of], row_clock[row_of] = owner, clock

    lengths = np.bincount(row_owner, minlength=len(ids))
    first = np.cumsum(lengths) - lengths
    unit = choose_unit(clock.dtype.kind, unit)
    origin = np.zeros(len(ids), clock.dtype)
    if clock.dtype.kind != "f":  # floating stamps stay as they are: subtracting would round them
        origin[lengths > 0] = row_clock[first[lengths > 0]]
    seen = observed.reshape(N, len(channels))
    times = elapsed(row_clock, np.repeat(origin, lengths), unit)
    if (i := too_long(times, first, lengths)) is not None:
        raise ValueError(span_message(ids[i]))
    return {
        "times": times,
        "values": values.reshape(N, len(channels)),
        "observed": None if seen.all() else seen,
        "first": first,
        "lengths": lengths,
        "ids": ids,
        "channels": tuple(channels),
        "unit": unit,
        "origin": origin,
        "static": None if static is None else _static(static, ids),
    }


def _merge(owner: Array, clock: Array) -> tuple[Array, int]:
    """The row each source row becomes, and how many rows there are: one for each (owner, stamp)."""
    if not len(owner):
        return np.zeros(0, np.int64), 0
    same = owner[1:] == owner[:-1]
    tidy = bool(((owner[1:] > owner[:-1]) | (same & (clock[1:] >= clock[:-1]))).all())
    order = np.arange(len(owner)) if tidy else _order(owner, clock)
    o, c = owner[order], clock[order]
    fresh = np.concatenate([[False], (o[1:] != o[:-1]) | (c[1:] != c[:-1])])
    row_of = np.empty(len(owner), np.int64)
    row_of[order] = np.cumsum(fresh)
    return row_of, int(row_of.max()) + 1


def _order(owner: Array, clock: Array) -> Array:
    """By owner, then by stamp: three times as fast as `lexsort`, as owners mostly fit into 16 bits."""
    order = np.argsort(clock)
    small = owner.astype(np.uint16) if int(owner.max()) < 2**16 else owner
    return order[np.argsort(small[order], kind="stable")]


def _keep(row_of: Array, source: Array, key: Array, code: Array, C: int) -> tuple[Array, int, Array]:
    """Rows where the second, third, ... of equal entries get rows of their own after the first."""
    order = np.argsort(key, kind="stable")
    fresh = np.concatenate([[True], key[order][1:] != key[order][:-1]])
    begins = np.maximum.accumulate(np.where(fresh, np.arange(len(key)), 0))
    repeat = np.empty(len(key), np.int64)
    repeat[order] = np.arange(len(key)) - begins  # 0 for the first of equal entries, in the order given
    rows = np.concatenate([np.column_stack([row_of, np.zeros_like(row_of)]), np.column_stack([row_of[source], repeat])])
    unique, inverse = np.unique(rows, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    return inverse[: len(row_of)], len(unique), inverse[len(row_of) :] * C + code


def _duplicates(key: Array, owner: Array, clock: Array, code: Array, ids: Array, channels: Sequence[str]) -> str:
    _, at, count = np.unique(key, return_index=True, return_counts=True)
    twice = np.flatnonzero(count > 1)
    shown = "; ".join(
        f"id {spell(ids[owner[at[i]]])}, time {clock[at[i]]}, channel {channels[code[at[i]]]!r} ({count[i]} times)"
        for i in twice[:SHOWN]
    )
    more = f"; and {len(twice) - SHOWN} more" if len(twice) > SHOWN else ""
    return (
        f"the same id, time and channel must not occur twice; {len(twice)} do: {shown}{more}. Choose with "
        'on_duplicate="mean", "last" or "keep".'
    )


def _means(key: Array, value: Array, size: int) -> Array:
    """(size,) float64, the mean of the values of each key; 0 if it has none."""
    count = np.maximum(np.bincount(key, minlength=size), 1)
    mean: Array = np.bincount(key, value, minlength=size) / count
    if not np.isfinite(mean).all():  # the sum of large numbers is too large, their mean is not
        mean = np.bincount(key, value / count[key], minlength=size)
    return mean


def check_names(id: Any, time: Any, channel: Any, value: Any) -> None:
    """Refuse what cannot be the name of a column, or of several."""
    for name, column in (("id", id), ("time", time), ("channel", channel)):
        if not _hashable(column):
            raise TypeError(f"{name} must be the name of a column; got {shown(column)}.")
    if not (value is None or isinstance(value, str) or _are_names(value)):
        raise TypeError(f"value must be the name of a column, or a list of names; got {shown(value)}.")


def _are_names(value: Any) -> bool:
    try:
        return isinstance(value, Iterable) and all(map(_hashable, value))
    except CANNOT:  # such as a tensor without an axis
        return False


def _hashable(name: Any) -> bool:
    try:
        hash(name)
    except CANNOT:
        return False
    return True


def _columns_exist(table: pd.DataFrame, columns: Sequence[str]) -> None:
    lost = [c for c in columns if c not in table.columns]
    if lost:
        raise ValueError(
            f"no column {', '.join(map(shown, lost))}; the table has {', '.join(map(shown, table.columns))}."
        )
    twice = [c for c in columns if isinstance(table[c], pd.DataFrame)]
    if twice:
        raise ValueError(f"the table has more than one column {', '.join(map(repr, twice))}.")


def _coded(column: pd.Series[Any], name: str) -> tuple[Array, Any]:
    """The position of each entry among the different ones, -1 if it is missing; and these, sorted."""
    try:
        return pd.factorize(column, sort=True)
    except CANNOT as error:
        raise TypeError(f"column {name!r} must hold names that can be told apart and sorted: {error}.") from error


def _channel_codes(column: pd.Series[Any], channels: Sequence[str] | None, name: str) -> tuple[Array, list[str]]:
    code, known = _coded(column, name)
    if (code < 0).any():
        raise ValueError(
            f"{name!r} must name a channel in every row; row {column.index[np.argmax(code < 0)]} has none."
        )
    place, names = _places(known, channels)
    return place[code], names


def _places(known: Sequence[Hashable], channels: Sequence[str] | None) -> tuple[Array, list[str]]:
    """Where each channel that occurs stands among all of them, by name, and the names."""
    names = channel_names(known if channels is None else channels)
    place = {name: i for i, name in enumerate(names)}
    strange = [c for c in known if str(c) not in place]
    if strange:
        raise ValueError(f"channels {strange[:SHOWN]} are not among the ones listed: {names}.")
    return np.asarray([place[str(c)] for c in known], np.int64), names


def _numbers(column: pd.Series[Any], name: Hashable, dtype: Any) -> Array:
    if getattr(column.dtype, "kind", "O") in "mMc":
        raise ValueError(f"column {name!r} must hold numbers; it holds {column.dtype}. Convert it, or leave it out.")
    try:
        return as_floats(column, f"column {name!r}", dtype)
    except (ValueError, TypeError):
        at = next(i for i, one in enumerate(column) if number_of(one) is None)
        raise ValueError(
            f"column {name!r} must hold numbers; row {column.index[at]} holds {shown(column.iloc[at])}. Convert it, or "
            "write NaN."
        ) from None


def number_of(one: Any) -> float | None:
    """A single entry as a number, NaN if it is missing; None if it cannot be read as one."""
    try:
        if pd.api.types.is_scalar(one) and pd.isna(one):
            return math.nan
        return None if isinstance(one, NO_NUMBER) else float(one)
    except CANNOT:
        return None


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


def _floating(dtype: Any) -> np.dtype[Any]:
    """A dtype for the values of a panel."""
    try:
        found = np.dtype(object if dtype is None else dtype)  # numpy takes None for float64
    except CANNOT:
        raise TypeError(f"dtype must be one of numpy, such as float32; got {shown(dtype)}.") from None
    if found.kind != "f" or found.itemsize > 8:
        raise ValueError(f"dtype must be floating, of at most 64 bits; got {found}.")
    return found


def _names(ids: Sequence[Hashable] | None, n: int) -> Array:
    """(n,) ids, each as it was given; 0 to n - 1 if None."""
    if ids is None:
        return np.arange(n)
    try:
        if isinstance(ids, str | bytes):
            raise TypeError("a text")
        index = pd.Index(ids, tupleize_cols=False)  # unlike numpy it does not make a text of 1 in ["a", 1]
        unique = index.is_unique
    except CANNOT as error:
        raise TypeError(f"ids must be a list of {n} names, one per series: {error}.") from error
    if len(index) != n:
        raise ValueError(f"ids must be {n} names, one per series; got {len(index)}.")
    if index.hasnans:
        raise ValueError(f"ids must name every series; the one at position {int(np.argmax(index.isna()))} has none.")
    if not unique:
        raise ValueError(f"ids must differ; {index[index.duplicated()].tolist()[:SHOWN]} occur more than once.")
    return index.to_numpy().copy()


def _static(static: pd.DataFrame, ids: Array) -> pd.DataFrame:
    if not isinstance(static, pd.DataFrame):
        raise TypeError(f"static must be a DataFrame indexed by id; got {type(static).__name__}.")
    if not static.index.is_unique:
        twice = static.index[static.index.duplicated()].tolist()[:SHOWN]
        raise ValueError(f"static must have one row per id; twice: {twice}.")
    where = static.index.get_indexer(ids)
    lost = ids[where < 0].tolist()
    if lost:
        raise ValueError(
            f"static has no row for {len(lost)} of {len(ids)} ids, among them {lost[:SHOWN]}; index it by id."
        )
    return static.iloc[where]
