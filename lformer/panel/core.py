"""Panel: series as people have them, ragged, irregular and partly observed, kept flat and never changed.

All rows of all series lie in one array per field; a series is a run of rows, `first[i]` to `first[i] + lengths[i]`.
Taking some series (`panel[idx]`, what scikit-learn's splitters do) copies no row, and windows of one recording may
share their rows. `batch` pads some series into an `IrregularBatch` in one vectorised step.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import torch

from lformer.arrays import Array, any_array, as_array, floating, whole_number
from lformer.batch import IrregularBatch, intervals
from lformer.panel.checks import (
    channel_names,
    finite_number,
    float64_times,
    origins,
    positions,
    span_message,
    spell,
    whole_numbers,
)
from lformer.panel.missing import MissingValues, is_mark, read_marks
from lformer.panel.padding import padded_rows, runs, take_rows
from lformer.panel.stamps import choose_unit, stamps, too_long
from lformer.panel.zones import read_zone

if TYPE_CHECKING:
    import pandas as pd

OnDuplicate = Literal["error", "mean", "last", "keep"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Panel:
    """n series over N rows. Make one with `from_long`, `from_list`, `from_array` or `build`, which check.

    Attributes:
        times: (N,) float64 in `unit`, since `origin` of its series; not decreasing along a series.
        values: (N, *C), 0 where nothing was observed; floating, or integers worth `scale` each (8-bit frames).
        observed: (N, *C) bool, True = observed; None if everything was.
        first, lengths: (n,) the rows of each series.
        ids: (n,) what each series is called.
        channels: names of the last axis of the values.
        unit: of the times; for stamps of a calendar one of ns, us, ms, s, min, h, D, else only a label.
        origin: (n,) the stamp at which `times` are 0: the first one if stamps are whole numbers, datetime64 or
            timedelta64, whose differences are exact; 0 if they are floating, so that `times` are the stamps themselves.
        static: one row per series in the order of `ids`, such as age or site; None if there are none.
        scale: what one unit of a stored integer is worth.
        pad_to: rows that `batch` pads to; as many as the longest series needs if None.
        zone: the time zone that dates came in, such as "Europe/Berlin", in which days and hours are told; `origin` is
            in UTC then. None if they had none: then they are taken as they are.
    """

    times: Array
    values: Array
    observed: Array | None
    first: Array
    lengths: Array
    ids: Array
    channels: tuple[str, ...]
    unit: str
    origin: Array
    static: pd.DataFrame | None = None
    scale: float = 1.0
    pad_to: int | None = None
    zone: str | None = None

    def __post_init__(self) -> None:
        """No array of a panel can be written to."""
        for name in ("times", "values", "observed", "first", "lengths", "ids", "origin"):
            array = getattr(self, name)
            if array is not None:
                array = array.view()
                array.flags.writeable = False
                object.__setattr__(self, name, array)

    @classmethod
    def build(
        cls,
        times: Array,
        values: Array,
        lengths: Array,
        *,
        observed: Array | None = None,
        first: Array | None = None,
        ids: Array | Sequence[Hashable] | None = None,
        channels: Sequence[str] | None = None,
        unit: str = "",
        origin: Array | None = None,
        static: pd.DataFrame | None = None,
        scale: float = 1.0,
        zone: str | None = None,
    ) -> Self:
        """A panel from flat arrays, checked; they are not copied, so do not change them afterwards.

        Args:
            times: (N,) numbers, not decreasing along a series.
            values: (N, *C); NaN means not observed.
            lengths: (n,) rows of each series.
            observed: (N, *C) bool; wins over NaN if given.
            first: (n,) first row of each series; one after the other if None.
            ids: (n,) names; 0 to n - 1 if None.
            channels: names of the last axis of the values; "0", "1", ... if None.
            unit, origin, static, scale, zone: as in the class; static has its rows in the order of the series.
        """
        times, values = float64_times(times), as_array(values, "values")
        lengths = whole_numbers(lengths, "lengths")
        n, rows = len(lengths), times.size
        if times.ndim != 1 or values.ndim < 2 or len(values) != rows:
            raise ValueError(
                f"times and values must have shapes (N,) and (N, C), one row per stamp; got {times.shape} and "
                f"{values.shape}."
            )
        contiguous = first is None
        if bool(((lengths < 0) | (lengths > rows)).any()) or (contiguous and int(lengths.sum()) != rows):
            raise ValueError(
                f"lengths must be numbers from 0 that sum to the {rows} rows; they sum to {lengths.sum()}."
            )
        first = np.cumsum(lengths) - lengths if first is None else whole_numbers(first, "first")
        if first.shape != (n,) or bool(((first < 0) | (first > rows - lengths)).any()):
            raise ValueError(f"first and lengths must describe runs within the {rows} rows.")
        names = np.arange(n) if ids is None else any_array(ids, "ids")
        if names.shape != (n,):
            raise ValueError(f"ids must be {n} names, one per series; got shape {names.shape}.")
        if static is not None and (not hasattr(static, "iloc") or len(static) != n):
            got = len(static) if hasattr(static, "iloc") else type(static).__name__
            raise ValueError(f"static must have one row for each of the {n} series, in their order; got {got}.")
        begins = origins(origin, n)
        if zone is not None and (read_zone(zone) is None or begins.dtype.kind != "M"):
            raise ValueError(f"zone={zone!r} is for dates: origin must be {n} stamps of datetime64, in UTC.")
        panel = cls(
            times=times, values=values, observed=None if observed is None else any_array(observed, "observed"),
            first=first, lengths=lengths, ids=names, channels=tuple(channel_names(channels, values.shape[-1])),
            unit=choose_unit(begins.dtype.kind, unit), static=static,
            scale=finite_number(scale, "scale"), origin=begins, zone=zone,
        )  # fmt: skip
        panel._check_times()
        return panel._with_observed()

    @classmethod
    def from_long(
        cls,
        table: Any,
        *,
        id: str,
        time: str,
        channel: str | None = None,
        value: str | Sequence[str] | None = None,
        channels: Sequence[str] | None = None,
        unit: str | None = None,
        static: Any = None,
        on_duplicate: OnDuplicate = "error",
        missing_values: MissingValues = None,
        dtype: Any = np.float32,
    ) -> Self:
        """A panel from a table with one observation per row, in any order.

        Args:
            table: the observations, as a DataFrame of pandas or polars, a pyarrow Table, a DuckDB relation or any other
                table that narwhals knows. Of a lazy one, only the columns that are named are computed.
            id: column that says whose observation it is.
            time: column of stamps: numbers, datetime64 or timedelta64.
            channel: column that says what was observed; None if each channel has a column of its own.
            value: column of the values; without `channel`, the columns of the channels, all others if None.
            channels: the channels and their order; if None, those of the table: sorted if they come from a column,
                in the order of the columns otherwise. One that never occurs stays, unobserved; one that occurs and is
                not listed is an error.
            unit: of the panel's times. Of calendar stamps it says what they are converted to, "s" if None; of numbers
                it is only a label.
            static: covariates, one row per id: a DataFrame of pandas indexed by id, or another table with a column of
                the same name as here.
            on_duplicate: what to do when the same (id, time, channel) occurs twice. "keep" gives each its own row at
                the same time; beware that such a row reads but does not write (its interval is 0).
            missing_values: numbers that stand for a missing value, such as -9999 or [-9999, 1e30]; or by channel,
                {"sodium": -1}. They count as NaN, and are compared in `dtype`.
            dtype: of the values.

        Returns:
            Series sorted by id, rows by time, all channels of one stamp in one row.

        Example:
            >>> import pandas as pd
            >>> table = pd.DataFrame({"who": ["b", "a", "a"], "t": [5.0, 2.0, 0.5], "lab": ["na", "k", "na"],
            ...                       "x": [140.0, 4.1, 139.0]})
            >>> panel = Panel.from_long(table, id="who", time="t", channel="lab", value="x")
            >>> panel.ids.tolist(), panel.channels, panel.lengths.tolist()
            (['a', 'b'], ('k', 'na'), [2, 1])
        """
        from lformer.panel.long import read_long

        return cls(
            **read_long(table, id, time, channel, value, channels, unit, static, on_duplicate, missing_values, dtype)
        )

    @classmethod
    def from_list(
        cls,
        series: Sequence[tuple[Any, Any] | pd.DataFrame | pd.Series[Any]],
        *,
        ids: Sequence[Hashable] | None = None,
        channels: Sequence[str] | None = None,
        unit: str | None = None,
        static: Any = None,
        on_duplicate: OnDuplicate = "error",
        missing_values: MissingValues = None,
        dtype: Any = np.float32,
    ) -> Self:
        """A panel from `(times (L,), values (L, C))` pairs, or from a pandas DataFrame or Series each, indexed by time.

        Args:
            series: one after the other, each sorted by time; their order is kept. Values (L,) count as one channel.
            ids: names; 0 to n - 1 if None.
            channels: names; if None, the columns of the DataFrames, the name that all Series have, or "0", "1", ...
            static: covariates, one row per id: a DataFrame of pandas indexed by id, or another table with a column
                "id".
            unit, on_duplicate, missing_values, dtype: as in `from_long`.

        Example:
            >>> panel = Panel.from_list([([0.0, 0.4, 3.0], [[1.0], [2.0], [4.0]]), ([7.5], [[1.0]])])
            >>> panel
            Panel(2 series, 1 channel, 4 rows, 100 % observed)
        """
        from lformer.panel.lists import read_list

        return cls(**read_list(series, ids, channels, unit, static, on_duplicate, missing_values, dtype))

    @classmethod
    def from_array(
        cls,
        values: Any,
        times: Any = None,
        *,
        lengths: Any = None,
        ids: Sequence[Hashable] | None = None,
        channels: Sequence[str] | None = None,
        unit: str | None = None,
        static: Any = None,
        on_duplicate: OnDuplicate = "error",
        missing_values: MissingValues = None,
        dtype: Any = np.float32,
    ) -> Self:
        """A panel from a padded array with NaN where nothing was observed.

        Args:
            values: (n, L, C), or (n, L) of one channel. What looks like (n, C, L), as in aeon and sktime, is questioned
                by a warning, unless times or channels are given.
            times: (n, L) or (L,); 0, 1, 2, ... if None. NaN or NaT marks padding.
            lengths: (n,) valid rows. If None, rows at the end are padding that have no value and, with times (n, L),
                no time either.
            ids, channels, unit, static, on_duplicate, missing_values, dtype: as in `from_list`.

        Example:
            >>> nan = float("nan")
            >>> Panel.from_array([[[1.0, nan], [2.0, 5.0], [nan, nan]]]).lengths.tolist()
            [2]
        """
        from lformer.panel.lists import read_array

        return cls(
            **read_array(values, times, lengths, ids, channels, unit, static, on_duplicate, missing_values, dtype)
        )

    @classmethod
    def from_parquet(
        cls,
        files: Any,
        folder: str | Path,
        *,
        id: str,
        time: str,
        channel: str | None = None,
        value: str | Sequence[str] | None = None,
        channels: Sequence[str] | None = None,
        unit: str | None = None,
        static: Any = None,
        on_duplicate: OnDuplicate = "error",
        missing_values: MissingValues = None,
        dtype: Any = np.float32,
    ) -> Self:
        """A panel on disk from Parquet files that together are one table, however large, with its rows in any order.

        Memory holds the names of the series, some million rows, and the longest series.

        Args:
            files: of the table: a path, a folder, a pattern such as "big/*.parquet", or a list of these.
            folder: for the panel, which must not be there yet; `Panel.open` opens it again.
            others: as in `from_long`, whose panel this is, but for categories, which are sorted as text.
        """
        from lformer.panel.big import from_parquet

        return cls(
            **from_parquet(
                files, folder, id, time, channel, value, channels, unit, static, on_duplicate, missing_values, dtype
            )
        )

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """A panel that `save` or `from_parquet` wrote, mapped into memory rather than read; nothing is unpickled.

        Args:
            folder: of the panel. Its files must not change as long as the panel is used.
            verify: whether each file is read to the end once, to see that it is as it was written; else its size tells.
        """
        from lformer.panel.disk import read

        return cls(**read(folder, verify))

    def save(self, folder: str | Path) -> None:
        """Write the panel to a folder, which must not be there yet, whole or not at all; `Panel.open` opens it.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> panel = Panel.from_list([([0.0, 0.4, 3.0], [[1.0], [2.0], [4.0]]), ([7.5], [[1.0]])])
            >>> with TemporaryDirectory() as place:
            ...     panel.save(f"{place}/panel")
            ...     Panel.open(f"{place}/panel")
            Panel(2 series, 1 channel, 4 rows, 100 % observed)
        """
        from lformer.panel.disk import write

        write(self, folder)

    # -- what it holds

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """(series, rows of the longest, *channels), as if padded."""
        return (len(self), int(self.lengths.max(initial=0)), *self.values.shape[1:])

    def __repr__(self) -> str:
        rows = int(self.lengths.sum())
        counted = [
            f"{n:,} {word}{'' if n == 1 or word == 'series' else 's'}"
            for n, word in ((len(self), "series"), (self.values.shape[-1], "channel"), (rows, "row"))
        ]
        unit = f", times in {self.unit}" if self.unit else ""
        return f"Panel({', '.join(counted)}, {100 * self.share_observed():.3g} % observed{unit})"

    def share_observed(self) -> float:
        """Of all values of all rows, how many were observed, from 0 to 1."""
        if self.observed is None:
            return 1.0
        entries = int(self.lengths.sum()) * math.prod(self.values.shape[1:])
        seen = sum(int(np.count_nonzero(one.observed[one.rows()])) for one in self.pieces() if one.observed is not None)
        return seen / entries if entries else 0.0

    def _repr_html_(self) -> str:
        """What a notebook shows: figures, and a picture of the first series."""
        from lformer.panel.picture import as_html

        return as_html(self)

    def rows(self) -> Array:
        """(sum of lengths,) where the rows of the series lie, one series after the other."""
        return runs(self.first, self.lengths)

    def pieces(self, rows: int = 2**20) -> Iterator[Self]:
        """All series, some after the other: those that begin within so many rows are one piece."""
        before = np.cumsum(self.lengths) - self.lengths
        starts = np.flatnonzero(np.diff(before // rows, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(self)]):
            yield self[start:end]

    # -- taking series

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> tuple[Array, Array]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Sequence[bool] | Array | tuple[Any, ...]) -> Self: ...

    def __getitem__(self, index: Any) -> tuple[Array, Array] | Self:
        """Some series by slice, positions or mask, without copying a row; a single one as (stamps, values)."""
        if isinstance(index, tuple):  # scikit-learn asks for panel[positions, ...]
            if len(index) != 2 or index[1] is not Ellipsis:
                raise TypeError(
                    "a panel is indexed by series alone: panel[5], panel[2:9], panel[positions], panel[mask]."
                )
            index = index[0]
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            if not -len(self) <= index < len(self):
                raise IndexError(f"there are {len(self)} series; got index {index}.")
            return self._series(int(index))
        index = index if isinstance(index, slice) else positions(index, len(self))
        return replace(
            self,
            first=self.first[index],
            lengths=self.lengths[index],
            ids=self.ids[index],
            origin=self.origin[index],
            static=None if self.static is None else self.static.iloc[index],
        )

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Every series as (stamps (L,), values (L, *C) with NaN where nothing was observed)."""
        return (self._series(i) for i in range(len(self)))

    def _series(self, i: int) -> tuple[Array, Array]:
        run = slice(int(self.first[i]), int(self.first[i] + self.lengths[i]))
        return stamps(self.times[run], self.origin[i], self.unit), self._readable(run)

    def _readable(self, rows: slice | Array) -> Array:
        """Values as numbers with NaN where nothing was observed."""
        values = self.values[rows]
        if values.dtype.kind != "f":
            values = (values * self.scale).astype(np.float32)
        return values if self.observed is None else np.where(self.observed[rows], values, np.nan).astype(values.dtype)

    def compact(self) -> Self:
        """The same series with no other rows behind them, one after the other."""
        rows = self.rows()
        return replace(
            self,
            times=self.times[rows],
            values=self.values[rows],
            observed=None if self.observed is None else self.observed[rows],
            first=np.cumsum(self.lengths) - self.lengths,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Some series of a large panel do not carry the rest along to another process."""
        return dict((self.compact() if self.wasteful else self).__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def wasteful(self) -> bool:
        """Whether most rows behind this panel belong to none of its series."""
        return 2 * int(self.lengths.sum()) < len(self.times)

    def cut(self, length: int) -> Self:
        """Series of the paper's canonical length: longer ones in non-overlapping pieces, shorter ones padded to it.

        The pieces of a series keep its id, so a target given by id goes to each of them; `batch` pads to `length`.

        Example:
            >>> panel = Panel.from_list([(range(5), [[1.0]] * 5), (range(2), [[1.0]] * 2)], ids=["a", "b"])
            >>> panel.cut(3).ids.tolist(), panel.cut(3).lengths.tolist()
            (['a', 'a', 'b'], [3, 2, 2])
        """
        length = whole_number(length, "length")
        if length < 1:
            raise ValueError(f"length must be at least 1; got {length}.")
        pieces = np.maximum(-(-self.lengths // length), 1)  # an empty series stays one piece
        source = np.repeat(np.arange(len(self)), pieces)
        before = length * (np.arange(len(source)) - np.repeat(np.cumsum(pieces) - pieces, pieces))
        cut = self[source]
        return replace(cut, first=cut.first + before, lengths=np.minimum(cut.lengths - before, length), pad_to=length)

    # -- what goes with a series

    def align(self, target: Any, name: str = "target") -> Array:
        """A target for each series, looked up by id or by position.

        A Series or DataFrame of pandas goes by its index, a dict by its keys, a table of another library by its column
        "id"; an array or a list goes by position.

        Example:
            >>> Panel.from_list([([0.0], [[1.0]])] * 2, ids=["a", "b"]).align({"b": 1, "a": 0}).tolist()
            [0, 1]
        """
        if isinstance(target, Mapping):
            self._all_known([i in target for i in self.ids.tolist()], name)
            return np.asarray([target[i] for i in self.ids.tolist()])
        if not hasattr(target, "iloc"):
            from lformer.panel.tables import target_by_id

            target = target_by_id(target, name)
        if hasattr(target, "iloc"):  # pandas
            if not target.index.is_unique:
                twice = target.index[target.index.duplicated()].tolist()[:5]
                raise ValueError(f"{name} must have one entry per id; twice: {twice}.")
            where = target.index.get_indexer(self.ids)
            self._all_known(where >= 0, name)
            return target.to_numpy()[where]
        array = any_array(target, name)
        if array.ndim == 0 or len(array) != len(self):
            raise ValueError(f"{name} must have one entry for each of the {len(self)} series; got shape {array.shape}.")
        return array

    def _all_known(self, known: Array | list[bool], name: str) -> None:
        lost = self.ids[~np.asarray(known, bool)].tolist()
        if lost:
            raise ValueError(
                f"{name} has no entry for {len(lost)} of {len(self)} ids, among them {lost[:5]}. It is aligned by id; "
                "give one for each series, or an array in the order of panel.ids."
            )

    def with_values(self, values: Array) -> Self:
        """The same rows with other values, all finite, 0 where nothing was observed."""
        values = as_array(values, "values")
        if values.shape != self.values.shape:
            raise ValueError(f"expected values of shape {self.values.shape}; got {values.shape}.")
        if not np.isfinite(values).all():
            row, *channel = np.argwhere(~np.isfinite(values))[0].tolist()
            raise ValueError(f"values must be finite in {values.dtype}; {self._place(row, channel)} is not.")
        return replace(self, values=values, scale=1.0)

    def with_missing(self, missing_values: MissingValues, *, some: bool = False) -> Self:
        """The same series, in which some numbers stand for missing values and count as not observed.

        Args:
            missing_values: as in `from_long`.
            some: whether a channel that is named and not there is left out; else it is an error.

        Example:
            >>> panel = Panel.from_list([([0.0, 0.4, 3.0], [[1.0], [-9999.0], [4.0]])])
            >>> panel.with_missing(-9999)
            Panel(1 series, 1 channel, 3 rows, 66.7 % observed)
        """
        dtype = self.values.dtype if self.values.dtype.kind == "f" else np.dtype(np.float32)
        marks = read_marks(missing_values, self.channels, dtype, some=some)

        def marked_in(rows: slice) -> Array:
            values = self.values[rows]
            return is_mark(values if values.dtype == dtype else (values * self.scale).astype(dtype), marks)

        steps = range(0, len(self.values) if marks else 0, 2**20)
        if not any(marked_in(slice(start, start + steps.step)).any() for start in steps):
            return self
        marked = marked_in(slice(None))
        seen = ~marked if self.observed is None else self.observed & ~marked
        return replace(self, values=np.where(seen, self.values, np.zeros((), self.values.dtype)), observed=seen)

    # -- back

    def to_list(self) -> list[tuple[Array, Array]]:
        """(stamps, values) of every series, as `from_list` takes them."""
        return list(self)

    def to_array(self) -> tuple[Array, Array]:
        """Values (n, L, *C) with NaN, and times (n, L) since each series' first row, NaN on padding."""
        rows, valid = padded_rows(self.first, self.lengths, self.pad_to)
        clock = self.times[rows[valid]] - np.repeat(self.first_times(), self.lengths)
        values = self._readable(rows[valid])
        padded = np.full((*rows.shape, *values.shape[1:]), np.nan, values.dtype), np.full(rows.shape, np.nan)
        padded[0][valid], padded[1][valid] = values, clock
        return padded

    def to_long(self) -> pd.DataFrame:
        """One observation per row: id, time, channel, value; as `from_long` takes it, times in the zone of the panel.

        A row of the panel in which nothing was observed has no place in the table.
        """
        import pandas as pd

        if self.values.ndim != 2:
            raise ValueError(f"a table holds one number per channel; these values have shape {self.values.shape[1:]}.")
        rows = self.rows()
        seen = np.ones(self.values[rows].shape, bool) if self.observed is None else self.observed[rows]
        row, channel = np.nonzero(seen)
        owner = np.repeat(np.arange(len(self)), self.lengths)
        clock = stamps(self.times[rows], self.origin[owner], self.unit)[row]
        return pd.DataFrame(
            {
                "id": self.ids[owner[row]],
                "time": clock if self.zone is None else pd.DatetimeIndex(clock, tz="UTC").tz_convert(self.zone),
                "channel": np.asarray(self.channels)[channel],
                "value": self._readable(rows)[row, channel],
            }
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """(n, 1) objects, each a panel of one series, for what takes rows of an array and hands them on.

        scikit-learn's `BaggingClassifier` does, if `fit` and `predict` are both given `np.asarray(panel)`; estimators
        put the series together again. Numbers are in `to_array`.
        """
        if dtype is not None and np.dtype(dtype) != np.dtype(object):
            raise TypeError(
                f"series of different lengths are no array of {np.dtype(dtype)}; use panel.to_array(), which pads them."
            )
        cells = np.empty((len(self), 1), object)
        for i in range(len(self)):
            cells[i, 0] = self[i : i + 1]
        return cells

    # -- onward

    def batch(self, index: Array | Sequence[int] | None = None, dtype: torch.dtype = torch.float32) -> IrregularBatch:
        """Pad some series, all if None, into tensors; times since each series' first row.

        `start` is the stamp of that row if stamps are numbers; of calendar stamps, what lies between `origin` and it.

        Example:
            >>> panel = Panel.from_list([([9.0, 9.5], [[1.0], [2.0]]), ([3.0], [[4.0]])])
            >>> panel.batch().times.tolist()
            [[0.0, 0.5], [0.0, 0.0]]
        """
        dtype = floating(dtype)
        chosen = slice(None) if index is None else positions(index, len(self))
        first, lengths, origin = self.first[chosen], self.lengths[chosen], self.origin[chosen]
        rows, valid = padded_rows(first, lengths, self.pad_to)
        clock = self.times[rows] if self.times.size else np.zeros(rows.shape)  # (B, L); padding repeats the last row
        start = self.first_times(chosen)
        clock = np.where(lengths[:, None] > 0, clock - start[:, None], 0.0)
        if origin.dtype.kind not in "mM":
            start = np.where(lengths > 0, start + origin, 0.0)
        return IrregularBatch(
            values=self._padded_values(rows, valid, dtype),
            times=torch.from_numpy(clock),
            deltas=intervals(torch.from_numpy(clock), dtype),
            observed=self._padded_observed(rows, valid),
            lengths=torch.from_numpy(lengths.copy()),
            start=torch.from_numpy(start),
        )

    def first_times(self, index: slice | Array = slice(None)) -> Array:
        """(n,) of `times`, that of the first row of each series, or of some; 0 if it has none."""
        first, filled = self.first[index], self.lengths[index] > 0
        times = np.zeros(len(first))
        times[filled] = self.times[first[filled]]
        return times

    def _padded_values(self, rows: Array, valid: Array, dtype: torch.dtype) -> torch.Tensor:
        values = torch.from_numpy(take_rows(self.values, rows, valid)).to(dtype)
        values = values if self.scale == 1.0 else values.mul_(self.scale)
        if self._may_overflow(dtype) and not bool((finite := torch.isfinite(values)).all()):
            series, row, *channel = (~finite).nonzero()[0].tolist()
            at = int(rows[series, row])
            raise ValueError(
                f"{dtype} cannot hold an observed value: {self._place(at, channel)} is "
                f"{self.values[(at, *channel)] * self.scale:g}. Use a larger unit, or batch(..., dtype=torch.float64)."
            )
        return values

    def _may_overflow(self, dtype: torch.dtype) -> bool:
        """Whether a finite value of the panel can be infinite in a batch; what cannot is not looked at again."""
        own = self.values.dtype
        largest = float(np.finfo(own).max if own.kind == "f" else 1 if own.kind == "b" else np.iinfo(own).max)
        return largest * abs(self.scale) > torch.finfo(dtype).max

    def _place(self, row: int, channel: Sequence[int]) -> str:
        """An entry in words: whose, when and what."""
        own = (self.first <= row) & (row < self.first + self.lengths)
        if not own.any():
            return f"row {row}, channel {list(channel)}"
        i = int(np.argmax(own))
        time = stamps(self.times[row], self.origin[i], self.unit)
        name = repr(self.channels[channel[-1]]) if len(channel) == 1 else list(channel)
        return f"series {spell(self.ids[i])}, time {time}, channel {name}"

    def _padded_observed(self, rows: Array, valid: Array) -> torch.Tensor:
        if self.observed is not None:
            return torch.from_numpy(take_rows(self.observed, rows, valid))
        extra = self.values.ndim - 1
        return torch.from_numpy(valid).reshape(*valid.shape, *(1,) * extra).expand(*valid.shape, *self.values.shape[1:])

    # -- checks

    def _check_times(self) -> None:
        """Finite and never decreasing within each series; rows may be shared, so each is looked at once."""
        wild = ~np.isfinite(self.times)
        if (i := self._first_with(wild)) is not None:
            row = int(self.first[i]) + int(np.argmax(wild[self.first[i] :]))
            raise ValueError(f"times must be finite; series {spell(self.ids[i])} has {self.times[row]}.")
        back = np.zeros(len(self.times), bool)  # a row earlier than the one before
        back[1:] = self.times[1:] < self.times[:-1]
        if (i := self._first_with(back, skip=1)) is not None:
            row = int(self.first[i]) + 1 + int(np.argmax(back[self.first[i] + 1 : self.first[i] + self.lengths[i]]))
            raise ValueError(
                f"times must not decrease along a series; series {spell(self.ids[i])} has {self.times[row]} after "
                f"{self.times[row - 1]}. Sort its rows by time."
            )
        if (i := too_long(self.times, self.first, self.lengths)) is not None:
            raise ValueError(span_message(self.ids[i]))

    def _first_with(self, rows: Array, skip: int = 0) -> int | None:
        """The first series with a marked row, its first `skip` rows aside."""
        if not rows.any():
            return None
        count = np.concatenate([[0], np.cumsum(rows)])
        begin = self.first + np.minimum(skip, self.lengths)
        marked = count[self.first + self.lengths] > count[begin]
        return int(np.argmax(marked)) if marked.any() else None

    def _with_observed(self) -> Self:
        """Zeros and a mask in place of NaN; an observed value must be finite."""
        values, observed = self.values, self.observed
        if observed is not None and (observed.shape != values.shape or observed.dtype != bool):
            raise ValueError(
                f"observed must be bool with the shape of values, {values.shape}, True = observed; got "
                f"{observed.dtype} {observed.shape}."
            )
        if values.dtype.kind != "f" and observed is None:
            return self
        seen = ~np.isnan(values) if observed is None else observed
        wild = ~np.isfinite(values)
        wild &= seen
        if wild.any():
            where = np.argwhere(wild)[0]
            raise ValueError(
                f"an observed value must be finite; row {where[0]}, channel {where[1:].tolist()} is "
                f"{values[tuple(where)]}. Mark it as not observed, or write NaN."
            )
        if bool(seen.all()):
            return replace(self, observed=None)
        if observed is None or bool((values != 0)[~seen].any()):
            values = np.where(seen, values, np.zeros((), values.dtype))
        return replace(self, values=values, observed=seen)
