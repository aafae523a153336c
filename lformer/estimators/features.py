"""The rows a model reads: what is known of each channel and since when, pace, static covariates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lformer.estimators.inputs import match_channels, match_clock, on_calendar
from lformer.panel import Array, Panel

if TYPE_CHECKING:
    import pandas as pd


TAIL = 0.005  # share of the values at either end that has no say in the scale of a channel


class Latest(NamedTuple):
    """What was last observed of each channel, and when; (N, C) at every row, or (1, C) after the last one."""

    values: Array  # scaled; 0 if never
    times: Array  # since the first row; -inf if never


@dataclass(frozen=True, kw_only=True)
class Features:
    """How rows are made, fitted on training series.

    A row holds for each channel the latest value, scaled, whether it was observed in this very row, and its age; two
    numbers for the pace (the interval since the row before, the time since the first); and the static covariates, the
    same in every row. Times enter as logarithms, in typical intervals.

    Attributes:
        channels: names, in the order of training.
        known: (C,) bool, False for a channel that was never observed in training; later values of it are left out.
        shift, scale: (C,) mean and deviation of the values but for their tails.
        low, high: (C,) bounds beyond which a value counts as the bound, one deviation outside of the tails.
        interval: the typical one, in `unit`.
        span: the typical length of a series, likewise; what was never observed counts as older than that.
        unit: of the times.
        calendar: whether stamps were dates or durations, and not numbers.
        statics: column -> (mean, deviation) of a number, or -> the categories of a text.
    """

    channels: tuple[str, ...]
    known: Array
    shift: Array
    scale: Array
    low: Array
    high: Array
    interval: float
    span: float
    unit: str
    calendar: bool
    statics: dict[str, tuple[float, float] | list[str]]

    @classmethod
    def fit(cls, panel: Panel) -> Features:
        """From the training series."""
        observed = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
        known: Array = np.any(observed, axis=0)
        if not known.any():
            raise ValueError(
                f"no value is observed in any of the {len(panel)} training series, so there is nothing to learn from."
            )
        shift, scale, low, high = np.transpose([_scale(panel.values[seen, c], panel.scale) for c, seen in
                                                enumerate(observed.T)])  # fmt: skip
        gaps = np.diff(panel.times)[np.diff(_owners(panel)) == 0] if len(panel.times) > 1 else np.zeros(0)
        gaps = gaps[gaps > 0]
        interval = float(np.median(gaps)) if len(gaps) else 1.0
        return cls(
            channels=panel.channels,
            known=known,
            shift=shift,
            scale=scale,
            low=low,
            high=high,
            interval=interval,
            span=max(float(np.median(_durations(panel))), interval),
            unit=panel.unit,
            calendar=on_calendar(panel),
            statics=_fit_statics(panel.static),
        )

    @property
    def width(self) -> int:
        """Numbers per row."""
        static = sum(2 if isinstance(kind, tuple) else len(kind) for kind in self.statics.values())
        return 3 * len(self.channels) + 2 + static

    def match(self, panel: Panel) -> Panel:
        """The panel with the channels and the unit of time of training, or an error that says what differs."""
        panel = match_clock(match_channels(panel, self.channels), self.calendar, self.unit)
        if self.known.all():
            return panel
        observed = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
        if (new := observed[panel.rows()].any(axis=0) & ~self.known).any():
            names = [name for name, is_new in zip(self.channels, new, strict=True) if is_new]
            warnings.warn(
                f"channels {names[:5]} were never observed in training; their values in X are left out.", stacklevel=4
            )
        return replace(panel, values=np.where(self.known, panel.values, 0), observed=observed & self.known)

    def apply(self, panel: Panel) -> Panel:
        """The same series with rows for the model."""
        panel = self.match(panel).compact()
        elapsed = panel.times - np.repeat(panel.first_times(), panel.lengths)
        gap = np.diff(elapsed, prepend=0.0)
        gap[panel.first[panel.lengths > 0]] = 0.0
        static = np.repeat(self.encode(panel.static, len(panel)), panel.lengths, axis=0)
        values, observed = self.scaled(panel)
        latest = _latest(values, observed, elapsed, np.repeat(panel.first, panel.lengths))
        rows = self.rows(latest, observed, gap, elapsed, static)
        names = tuple(str(i) for i in range(rows.shape[1]))
        return replace(panel, values=rows, observed=None, channels=names, static=None, scale=1.0)

    def scaled(self, panel: Panel) -> tuple[Array, Array]:
        """(N, C) float32, 0 where nothing was observed, and (N, C) bool what was, of a panel that matches."""
        observed = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
        values: Array = np.empty(panel.values.shape, np.float32)
        for c in range(len(self.channels)):
            column = panel.values[:, c].astype(np.float64) * panel.scale
            values[:, c] = (np.clip(column, self.low[c], self.high[c]) - self.shift[c]) / self.scale[c]
        values[~observed] = 0
        return values, observed

    def rows(self, latest: Latest, observed: Array, gap: Array, elapsed: Array, static: Array) -> Array:
        """What the model reads.

        Args:
            latest: (N, C) at every row, this row included.
            observed: (N, C) bool.
            gap, elapsed: (N,) time since the row before, 0 at the first, and since the first row.
            static: (N, S) from `encode`.

        Returns:
            (N, width) float32.
        """
        never = np.isneginf(latest.times)
        age = elapsed[:, None] - np.where(never, -self.span, latest.times)
        age = np.log1p(age / self.interval) / np.log1p(self.span / self.interval)
        pace = np.log1p(np.column_stack([gap, elapsed]) / self.interval)
        parts = [latest.values, observed, age, pace, static]
        return np.concatenate([part.astype(np.float32) for part in parts], axis=1)

    def encode(self, static: pd.DataFrame | None, n: int) -> Array:
        """(n, S): a number and whether it is known, or one of its categories."""
        if not self.statics:
            return np.zeros((n, 0), np.float32)
        lost = [c for c in self.statics if static is None or c not in static.columns]
        if lost or static is None:
            raise ValueError(f"the model was trained with static covariates {', '.join(self.statics)}; {lost} missing.")
        parts = []
        for name, kind in self.statics.items():
            if isinstance(kind, tuple):
                number = _as_numbers(static[name], name)
                known = np.isfinite(number)
                parts += [np.where(known, (number - kind[0]) / kind[1], 0.0), known]
            else:
                text = static[name].astype(str).to_numpy()
                parts += [text == category for category in kind]
        return np.column_stack(parts).astype(np.float32)


def follow(before: Latest, values: Array, observed: Array, now: float) -> Latest:
    """After one more row, at `now`; all (1, C)."""
    return Latest(np.where(observed, values, before.values), np.where(observed, now, before.times))


def _latest(values: Array, observed: Array, elapsed: Array, first: Array) -> Latest:
    """(N, C) at every row of series one after the other; `first` (N,) is where the series of a row begins."""
    row = np.where(observed, np.arange(len(values), dtype=np.int32)[:, None], np.int32(-1))
    np.maximum.accumulate(row, axis=0, out=row)
    never = row < first[:, None]
    row[never] = 0
    if not len(values):
        return Latest(values, np.zeros(values.shape))
    at = np.where(never, -np.inf, elapsed[row])
    return Latest(np.where(never, 0, np.take_along_axis(values, row, axis=0)), at)


def _scale(values: Array, worth: float) -> tuple[float, float, float, float]:
    """Shift, scale, low and high of one channel."""
    if not len(values):
        return 0.0, 1.0, 0.0, 0.0
    values = values.astype(np.float64) * worth
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    inner = np.clip(values, low, high)
    deviation = float(inner.std()) if high > low else 0.0
    if deviation == 0:  # all but the tails are one number
        deviation = float(values.std()) if values.max() > values.min() else 1.0
    return float(inner.mean()), deviation, float(low) - deviation, float(high) + deviation


def _durations(panel: Panel) -> Array:
    """(n,) time between first and last row of a compact panel; 0 of an empty series."""
    filled = panel.lengths > 0
    ends = panel.first[filled] + panel.lengths[filled] - 1
    durations = np.zeros(max(len(panel), 1))
    durations[: len(panel)][filled] = panel.times[ends] - panel.times[panel.first[filled]]
    return durations


def _owners(panel: Panel) -> Array:
    """(N,) which series a row of a compact panel belongs to."""
    return np.repeat(np.arange(len(panel)), panel.lengths)


def _as_numbers(column: pd.Series[Any], name: str) -> Array:
    """(n,) float64 of a covariate that was a number in training."""
    try:
        return column.to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the static covariate {name!r} was a number in training, and now is not: {error}.") from error


def _fit_statics(static: pd.DataFrame | None) -> dict[str, tuple[float, float] | list[str]]:
    if static is None:
        return {}
    import pandas as pd

    fitted: dict[str, tuple[float, float] | list[str]] = {}
    for name in static.columns:
        if pd.api.types.is_numeric_dtype(static[name]):
            number = static[name].to_numpy(np.float64, na_value=np.nan)
            number = number[np.isfinite(number)]
            spread = float(number.std()) if len(number) else 1.0
            fitted[str(name)] = (float(number.mean()) if len(number) else 0.0, spread or 1.0)
        else:
            fitted[str(name)] = sorted(static[name].dropna().astype(str).unique().tolist())
    return fitted
