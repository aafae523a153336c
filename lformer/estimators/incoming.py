"""Read incoming rows of streams as in training: series, time stamp and values; anything else raises a clear error."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lformer.arrays import shown
from lformer.estimators.inputs import require_dates
from lformer.panel import Array
from lformer.panel.missing import is_mark, read_marks
from lformer.panel.stamps import as_stamps, missing
from lformer.panel.zones import zone_of

if TYPE_CHECKING:
    from lformer.estimators.base import LFormerEstimator

Id = str | int
ALONE = ""  # the id of the single series of a `Stream`, which errors do not mention


class Clock(NamedTuple):
    """The type of all time stamps of some streams."""

    dtype: np.dtype[Any]
    zone: str | None  # of the first time stamps; later ones may have another time zone, but not none


class Reader:
    """Converts the arguments of `update` and `predict_at` to arrays, for a fitted estimator."""

    def __init__(self, estimator: LFormerEstimator) -> None:
        self.features = estimator.features_
        self.place = {name: c for c, name in enumerate(self.features.channels)}
        self._marks = read_marks(estimator.missing_values, self.features.channels, np.float32, some=True)

    def ids(self, ids: Any) -> list[Id]:
        """The ids as Python strings and integers."""
        names = ids.tolist() if hasattr(ids, "tolist") else [ids] if isinstance(ids, str | int) else list(ids)
        for kind in set(map(type, names)) - {str, int}:
            wrong = next(name for name in names if type(name) is kind)
            if isinstance(wrong, np.generic) and type(wrong.item()) in (str, int):
                return [name.item() if isinstance(name, np.generic) else name for name in names]
            raise TypeError(f"ids must be strings or integers, one for each row; got {shown(wrong)}.")
        return names

    def stamps(self, times: Any, names: Sequence[Id], known: Clock | None) -> tuple[Array, Clock]:
        """(N,) time stamps of the same kind as in training, and their type; a single one applies to all rows.

        Args:
            times: numbers, or dates or durations from Python, numpy or pandas.
            names: (N,) the series of each.
            known: the type of earlier time stamps.
        """
        given = _sequence(times, len(names))
        stamps = as_stamps(given, "time")
        if stamps.shape != (len(names),):
            raise ValueError(f"times must be one stamp for each of {len(names)} rows; got shape {stamps.shape}.")
        if (bad := missing(stamps)).any():
            n = int(np.argmax(bad))
            raise ValueError(f"time must be one finite stamp; got {_entry(given, n)!r}{whose(names[n])}.")
        features, kind, zone = self.features, stamps.dtype.kind, zone_of(given)
        calendar = kind in "mM"
        if calendar != features.calendar or (calendar and known is not None and kind != known.dtype.kind):
            needs = "a date or a duration, one kind for a series" if features.calendar else "a number"
            raise ValueError(f"time must be {needs}, as in training; got {_entry(given, 0)!r}.")
        if features.marks.periods:
            require_dates(kind, zone, features.marks.zone, f"the stamps, such as {_entry(given, 0)!r},")
        if known is None:
            return stamps, Clock(stamps.dtype, zone)
        if (zone is None) != (known.zone is None):
            has, had = (f"the time zone {one}" if one else "no time zone" for one in (zone, known.zone))
            raise ValueError(
                f"time must have a time zone in all rows of a stream or in none: {_entry(given, 0)!r} has {has}, the "
                f"row before it had {had}. Give both the same: tz_localize, or datetime.replace(tzinfo=...)."
            )
        return _alike(stamps, known)

    def values(self, values: Any, names: Sequence[Id], channels: Any = None) -> Array:
        """(N, C) float64, NaN where nothing was observed; numbers that float32 can represent.

        Args:
            values: (N, C) in the order of training; columns by channel; or (N,), together with `channels`.
            names: (N,) the series of each row.
            channels: (N,) the channel of each value.
        """
        N, C = len(names), len(self.place)
        try:
            if channels is not None:
                row = self._scattered(values, channels, N)
            elif isinstance(values, Mapping) or hasattr(values, "columns"):
                row = self._columns(values, N)
            else:
                row = np.asarray(values, np.float64)
        except (ValueError, TypeError) as error:
            if isinstance(error, _WrongChannelsError):
                raise
            raise ValueError(f"values must be numbers, NaN where nothing was observed: {error}.") from error
        bad: Array = np.ones(1, bool)
        if row.shape == (N, C):
            with np.errstate(over="ignore"):  # what float32 cannot represent becomes infinite and raises an error
                single = row.astype(np.float32)
            bad = np.any(np.isinf(single), axis=1)
            if self._marks:
                row = np.where(is_mark(single, self._marks), np.nan, row)
        if bad.any():
            n = int(np.argmax(bad))
            got = values if row.shape != (N, C) and N != 1 else _first(values, n)
            raise ValueError(
                f"values must be {C} finite numbers, one for each of {', '.join(list(self.place)[:8])}, NaN where "
                f"nothing was observed; got {shown(got)}{whose(names[n]) if row.shape == (N, C) else ''}."
            )
        return row

    def observed(self, values: Array) -> Array:
        """The values with channels that were never observed in training set to NaN, as in `predict`."""
        return values if self.features.known.all() else np.where(self.features.known, values, np.nan)

    def static(self, static: Any, names: Sequence[Id], new: Sequence[int]) -> Array:
        """(n, S) static covariates of the series whose first rows are the `new` ones of the call.

        Args:
            static: a table with a row for each id, by its index; or columns with an entry for each row of the call.
            names: (N,) the series of each row of the call.
            new: (n,) positions of first rows in the call.
        """
        coding = self.features.covariates
        if not coding.width or not len(new):
            return np.zeros((len(new), coding.width), np.float32)
        return coding.encode(None if static is None else _table(static, names, new))

    def _columns(self, values: Any, N: int) -> Array:
        self._require_channels([name for name in values if name not in self.place])
        row = np.full((N, len(self.place)), np.nan)
        for name in values:
            row[:, self.place[name]] = np.asarray(values[name], np.float64)
        return row

    def _scattered(self, values: Any, channels: Any, N: int) -> Array:
        names = channels.tolist() if hasattr(channels, "tolist") else list(channels)
        self._require_channels(list(dict.fromkeys(name for name in names if name not in self.place)))
        row = np.full((N, len(self.place)), np.nan)
        row[np.arange(N), [self.place[name] for name in names]] = np.asarray(values, np.float64)
        return row

    def _require_channels(self, new: list[Any]) -> None:
        if new:
            known = ", ".join(list(self.place)[:8])
            raise _WrongChannelsError(f"channels {new[:5]} are not among those of training: {known}.")


class _WrongChannelsError(ValueError):
    """Channels that did not exist in training."""


def whose(name: Hashable) -> str:
    """How an error message names the series; empty for a single stream."""
    return "" if name == ALONE else f" (series {name!r})"


def _sequence(times: Any, N: int) -> Any:
    """Time stamps as an array or an Index that knows their type and time zone."""
    import pandas as pd

    if hasattr(times, "dtype") and np.ndim(times) == 1:
        return times
    if isinstance(times, list | tuple):
        plain = all(isinstance(one, float | int) for one in times)
        return np.array(times) if plain else pd.Index(times)
    return np.full(N, times) if isinstance(times, float | int) else pd.Index([times] * N)


def _alike(stamps: Array, known: Clock) -> tuple[Array, Clock]:
    """Time stamps in a type that represents these and the earlier ones exactly; numpy determines it."""
    if stamps.dtype == known.dtype:
        return stamps, known
    both = np.promote_types(stamps.dtype, known.dtype)
    found = stamps.astype(both)
    if not np.array_equal(found.astype(stamps.dtype), stamps):
        raise ValueError(f"time must be in a unit that goes with {known.dtype}, as before; got {stamps.dtype}.")
    return found, Clock(both, known.zone)


def _table(static: Any, names: Sequence[Id], new: Sequence[int]) -> Any:
    """One row for each new series."""
    import pandas as pd

    if isinstance(static, pd.DataFrame):
        wanted = [names[n] for n in new]
        if lost := [name for name in wanted if name not in static.index]:
            raise ValueError(f"static has no row for {lost[:5]}: give a table whose index holds the ids.")
        return static.loc[wanted]
    columns = {name: np.broadcast_to(np.asarray(column, object), len(names))[list(new)]
               for name, column in static.items()}  # fmt: skip
    return pd.DataFrame(columns).infer_objects()


def _entry(given: Any, n: int) -> Any:
    one = given.iloc[n] if hasattr(given, "iloc") else given[n]
    return one.item() if isinstance(one, np.generic) and one.dtype.kind in "iuf" else one


def _first(values: Any, n: int) -> Any:
    """What an error message shows of the values of a row."""
    return values if isinstance(values, Mapping) or hasattr(values, "columns") or np.ndim(values) < 2 else values[n]
