"""Panel: ragged, irregular and partly observed series in flat, immutable arrays.

All rows of all series are stored in one array per field; a series is a run of rows, `first[i]` to `first[i] +
lengths[i]`. Selecting series (`panel[idx]`, as scikit-learn's splitters do) copies no rows, and windows of one
recording may share their rows. `batch` pads some series into an `IrregularBatch` in one vectorised step.
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
    """Irregular time series: n series with N rows in total.

    Create one with `from_long`, `from_list`, `from_array` or `build`, which validate their input.

    Attributes:
        times: (N,) float64 in `unit`, since `origin` of the series; not decreasing along a series.
        values: (N, *C), 0 where nothing was observed; floating point, or integers worth `scale` each (8-bit frames).
        observed: (N, *C) bool, True = observed; None if everything was.
        first, lengths: (n,) first row and number of rows of each series.
        ids: (n,) id of each series.
        channels: names of the last axis of the values.
        unit: unit of the times; for dates and durations one of ns, us, ms, s, min, h, D, else only a label.
        origin: (n,) the time stamp at which `times` are 0: the first one if time stamps are integers, datetime64 or
            timedelta64, whose differences are exact; 0 if they are floating point, so that `times` are the time stamps.
        static: static covariates, such as age or site: one row per series in the order of `ids`; None if there are
            none.
        scale: the value of one unit of a stored integer.
        pad_to: number of rows that `batch` pads to; None pads to the longest series.
        zone: time zone of the original dates, such as "Europe/Berlin", in which days and hours are determined; `origin`
            is then in UTC. None if they had none: dates are then taken as they are.
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
        """Make the arrays read-only."""
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
        """Create a panel from flat arrays, which are validated but not copied; do not modify them afterwards.

        Args:
            times: (N,) numbers, not decreasing along a series.
            values: (N, *C); NaN means not observed.
            lengths: (n,) number of rows of each series.
            observed: (N, *C) bool; takes precedence over NaN if given.
            first: (n,) first row of each series; None if series follow one another.
            ids: (n,) names; 0 to n - 1 if None.
            channels: names of the last axis of the values; "0", "1", ... if None.
            unit, origin, static, scale, zone: as in the class; rows of static are in the order of the series.
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
        """Create a panel from a long table with one observation per row, in any order.

        Args:
            table: the observations, as a pandas or polars DataFrame, a pyarrow Table, a DuckDB relation or any other
                table that narwhals supports. Lazy tables only compute the columns that are needed.
            id: column with the id of the series.
            time: column with the time stamps: numbers, datetime64 or timedelta64.
            channel: column with the name of the channel; None if each channel has its own column.
            value: column with the values; without `channel`, the columns of the channels, by default all others.
            channels: the channels and their order. By default those of the table: sorted if they come from a column,
                else in the order of the columns. A listed channel that never occurs is kept, unobserved; one that
                occurs but is not listed raises an error.
            unit: unit of the panel's times. Dates and durations are converted to it ("s" if None); for numbers it is
                only a label.
            static: static covariates, one row per id: a pandas DataFrame indexed by id, or another table with the same
                id column.
            on_duplicate: what to do if the same (id, time, channel) occurs more than once. "keep" gives each its own
                row at the same time; note that such a row reads from the memory but does not write to it (its interval
                is 0).
            missing_values: numbers that stand for missing values, such as -9999 or [-9999, 1e30], or a dict by channel,
                {"sodium": -1}. They are treated as NaN, and compared in `dtype`.
            dtype: dtype of the values.

        Returns:
            Series sorted by id and rows by time; channels with the same time stamp share a row.

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
        """Create a panel from `(times (L,), values (L, C))` pairs, or pandas DataFrames or Series indexed by time.

        Args:
            series: the series, each sorted by time; their order is kept. Values (L,) count as one channel.
            ids: names; 0 to n - 1 if None.
            channels: names; if None, the columns of the DataFrames, the common name of all Series, or "0", "1", ...
            static: static covariates, one row per id: a pandas DataFrame indexed by id, or another table with a column
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
        """Create a panel from a padded array, with NaN where nothing was observed.

        Args:
            values: (n, L, C), or (n, L) for one channel. An array that looks like (n, C, L), as in aeon and sktime,
                causes a warning unless times or channels are given.
            times: (n, L) or (L,); 0, 1, 2, ... if None. NaN or NaT marks padding.
            lengths: (n,) number of valid rows. If None, trailing rows without any value, and without a time if times
                are (n, L), are padding.
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
        """Create a panel on disk from Parquet files that form one table of any size, with rows in any order.

        Memory only needs to hold the names of the series, a few million rows, and the longest series.

        Args:
            files: the files of the table: a path, a folder, a pattern such as "big/*.parquet", or a list of these.
            folder: folder for the panel, which must not exist yet; `Panel.open` opens it again.
            others: as in `from_long`; the panel is the same, except that categories are sorted as text.
        """
        from lformer.panel.big import from_parquet

        return cls(
            **from_parquet(
                files, folder, id, time, channel, value, channels, unit, static, on_duplicate, missing_values, dtype
            )
        )

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Open a panel that `save` or `from_parquet` wrote; it is memory-mapped, and nothing is unpickled.

        Args:
            folder: folder of the panel. Its files must not change while the panel is in use.
            verify: whether to read each file once to verify its checksum; otherwise only file sizes are checked.
        """
        from lformer.panel.disk import read

        return cls(**read(folder, verify))

    def save(self, folder: str | Path) -> None:
        """Save the panel atomically to a folder, which must not exist yet; `Panel.open` opens it.

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

    # -- contents

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """(number of series, rows of the longest, *channels), as if padded."""
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
        """Share of all values of all rows that were observed, from 0 to 1."""
        if self.observed is None:
            return 1.0
        entries = int(self.lengths.sum()) * math.prod(self.values.shape[1:])
        seen = sum(int(np.count_nonzero(one.observed[one.rows()])) for one in self.pieces() if one.observed is not None)
        return seen / entries if entries else 0.0

    def _repr_html_(self) -> str:
        """HTML for notebooks: a summary, and a picture of the first series."""
        from lformer.panel.picture import as_html

        return as_html(self)

    def rows(self) -> Array:
        """(sum of lengths,) positions of the rows of all series, one series after another."""
        return runs(self.first, self.lengths)

    def pieces(self, rows: int = 2**20) -> Iterator[Self]:
        """All series in pieces: series that begin within the same `rows` rows form a piece."""
        before = np.cumsum(self.lengths) - self.lengths
        starts = np.flatnonzero(np.diff(before // rows, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(self)]):
            yield self[start:end]

    # -- selecting series

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> tuple[Array, Array]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Sequence[bool] | Array | tuple[Any, ...]) -> Self: ...

    def __getitem__(self, index: Any) -> tuple[Array, Array] | Self:
        """Select series by slice, positions or boolean mask, without copying rows; a single one as (times, values)."""
        if isinstance(index, tuple):  # scikit-learn uses panel[positions, ...]
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
        """Iterate over series as (time stamps (L,), values (L, *C) with NaN where nothing was observed)."""
        return (self._series(i) for i in range(len(self)))

    def _series(self, i: int) -> tuple[Array, Array]:
        run = slice(int(self.first[i]), int(self.first[i] + self.lengths[i]))
        return stamps(self.times[run], self.origin[i], self.unit), self._readable(run)

    def _readable(self, rows: slice | Array) -> Array:
        """Values as numbers, with NaN where nothing was observed."""
        values = self.values[rows]
        if values.dtype.kind != "f":
            values = (values * self.scale).astype(np.float32)
        return values if self.observed is None else np.where(self.observed[rows], values, np.nan).astype(values.dtype)

    def compact(self) -> Self:
        """The same series stored contiguously, without rows of other series."""
        rows = self.rows()
        return replace(
            self,
            times=self.times[rows],
            values=self.values[rows],
            observed=None if self.observed is None else self.observed[rows],
            first=np.cumsum(self.lengths) - self.lengths,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the rows of the selected series, not those of a large panel behind them."""
        return dict((self.compact() if self.wasteful else self).__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def wasteful(self) -> bool:
        """Whether most stored rows belong to none of the series."""
        return 2 * int(self.lengths.sum()) < len(self.times)

    def cut(self, length: int) -> Self:
        """Cut series to the paper's canonical length: longer ones into non-overlapping pieces, shorter ones are padded.

        The pieces of a series keep its id, so a target given by id applies to each of them; `batch` pads to `length`.

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

    # -- targets and values

    def align(self, target: Any, name: str = "target") -> Array:
        """Align a target with the series, by id or by position.

        A pandas Series or DataFrame is aligned by its index, a dict by its keys, a table of another library by its
        column "id"; an array or a list is aligned by position.

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
                raise ValueError(f"{name} must have one entry per id; duplicates: {twice}.")
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
        """The same series, with some numbers marked as missing values, that is, as not observed.

        Args:
            missing_values: as in `from_long`.
            some: whether to ignore channels in `missing_values` that the panel lacks; else they raise an error.

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

    # -- conversion

    def to_list(self) -> list[tuple[Array, Array]]:
        """(time stamps, values) of every series, as accepted by `from_list`."""
        return list(self)

    def to_array(self) -> tuple[Array, Array]:
        """Values (n, L, *C) with NaN, and times (n, L) since the first row of each series, NaN on padding."""
        rows, valid = padded_rows(self.first, self.lengths, self.pad_to)
        clock = self.times[rows[valid]] - np.repeat(self.first_times(), self.lengths)
        values = self._readable(rows[valid])
        padded = np.full((*rows.shape, *values.shape[1:]), np.nan, values.dtype), np.full(rows.shape, np.nan)
        padded[0][valid], padded[1][valid] = values, clock
        return padded

    def to_long(self) -> pd.DataFrame:
        """A table with one observation per row (id, time, channel, value), as accepted by `from_long`; times in `zone`.

        Rows of the panel in which nothing was observed do not appear in the table.
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
        """(n, 1) objects, each a panel with one series, for code that selects rows of an array.

        scikit-learn's `BaggingClassifier` works if `fit` and `predict` are both given `np.asarray(panel)`; estimators
        join the series again. For numbers, use `to_array`.
        """
        if dtype is not None and np.dtype(dtype) != np.dtype(object):
            raise TypeError(
                f"series of different lengths are no array of {np.dtype(dtype)}; use panel.to_array(), which pads them."
            )
        cells = np.empty((len(self), 1), object)
        for i in range(len(self)):
            cells[i, 0] = self[i : i + 1]
        return cells

    # -- batches

    def batch(self, index: Array | Sequence[int] | None = None, dtype: torch.dtype = torch.float32) -> IrregularBatch:
        """Pad series, by default all, into a batch of tensors, with times since the first row of each series.

        `start` is the time stamp of that row if time stamps are numbers; for dates and durations, the time since
        `origin`.

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
        """(n,) time of the first row of each selected series, as in `times`; 0 if it has none."""
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
        """Whether a finite value of the panel can become infinite in a batch; if not, values need no check."""
        own = self.values.dtype
        largest = float(np.finfo(own).max if own.kind == "f" else 1 if own.kind == "b" else np.iinfo(own).max)
        return largest * abs(self.scale) > torch.finfo(dtype).max

    def _place(self, row: int, channel: Sequence[int]) -> str:
        """Describe an entry by series, time and channel."""
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
        """Check that times are finite and do not decrease within a series; shared rows are checked once."""
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
        """The first series with a marked row, not counting its first `skip` rows."""
        if not rows.any():
            return None
        count = np.concatenate([[0], np.cumsum(rows)])
        begin = self.first + np.minimum(skip, self.lengths)
        marked = count[self.first + self.lengths] > count[begin]
        return int(np.argmax(marked)) if marked.any() else None

    def _with_observed(self) -> Self:
        """Replace NaN by zeros and `observed`; observed values must be finite."""
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
