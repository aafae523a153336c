"""From what a user hands over to the rows a model reads: scaled values, what was observed, pace, static covariates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array

from lformer.data import scaling
from lformer.panel import Array, Panel

if TYPE_CHECKING:
    import pandas as pd


def as_panel(X: Any) -> tuple[Panel, int | None]:
    """A Panel as it is; a list of (times, values) or DataFrames; an array (n, time, channels), or (n, time).

    Returns:
        The series, and how wide X was if it was a plain table (n, time).
    """
    if isinstance(X, Panel):
        if not len(X):
            raise ValueError("the panel is empty: at least one series is needed.")
        return X, None
    if isinstance(X, list | tuple) and X and _is_series(X[0]):
        return Panel.from_list(list(X)), None
    array = check_array(X, allow_nd=True, ensure_all_finite="allow-nan", dtype="numeric", input_name="X")
    if array.ndim > 3:
        raise ValueError(f"X must be (series, time, channels) or (series, time); got shape {array.shape}.")
    return Panel.from_array(array, lengths=_lengths(array)), array.shape[1] if array.ndim == 2 else None


def _is_series(one: Any) -> bool:
    return hasattr(one, "columns") or (isinstance(one, tuple) and len(one) == 2)


def _lengths(array: Array) -> Array | None:
    """All rows, if nothing is missing: a row of zeros at the end is a row."""
    return None if array.dtype.kind == "f" and np.isnan(array).any() else np.full(len(array), array.shape[1])


@dataclass(frozen=True, kw_only=True)
class Features:
    """How rows are made, fitted on training series.

    A row holds the scaled values (0 where nothing was observed), 1 or 0 for observed or not, two numbers for the pace
    (logarithms of the interval since the last row and of the time since the first, in typical intervals), and the
    static covariates, the same in every row.

    Attributes:
        channels: names, in the order of training.
        shift, scale: (C,) of the values.
        interval: the typical one.
        statics: column -> (mean, deviation) of a number, or -> the categories of a text.
    """

    channels: tuple[str, ...]
    shift: Array
    scale: Array
    interval: float
    statics: dict[str, tuple[float, float] | list[str]]

    @classmethod
    def fit(cls, panel: Panel) -> Features:
        """From the training series."""
        shift, scale = scaling.standard(panel, np.arange(len(panel)))
        gaps = np.diff(panel.times)[np.diff(_owners(panel)) == 0] if len(panel.times) > 1 else np.zeros(0)
        gaps = gaps[gaps > 0]
        return cls(
            channels=panel.channels,
            shift=shift,
            scale=scale,
            interval=float(np.median(gaps)) if len(gaps) else 1.0,
            statics=_fit_statics(panel.static),
        )

    @property
    def width(self) -> int:
        """Numbers per row."""
        static = sum(2 if isinstance(kind, tuple) else len(kind) for kind in self.statics.values())
        return 2 * len(self.channels) + 2 + static

    def apply(self, panel: Panel) -> Panel:
        """The same series with rows for the model. Channels the model does not know are an error."""
        panel = panel.compact()
        self._require_channels(panel)
        values = scaling.apply(panel, self.shift, self.scale).values
        seen = np.ones(values.shape, np.float32) if panel.observed is None else panel.observed.astype(np.float32)
        elapsed = panel.times - np.repeat(panel.first_times(), panel.lengths)
        gap = np.diff(elapsed, prepend=0.0)
        gap[panel.first[panel.lengths > 0]] = 0.0
        pace = np.log1p(np.column_stack([gap, elapsed]) / self.interval).astype(np.float32)
        static = np.repeat(self._encode(panel.static, len(panel)), panel.lengths, axis=0)
        rows = np.concatenate([values, seen, pace, static], axis=1)
        names = tuple(str(i) for i in range(rows.shape[1]))
        return replace(panel, values=rows, observed=None, channels=names, static=None, scale=1.0)

    def _require_channels(self, panel: Panel) -> None:
        if panel.channels != self.channels:
            new = [c for c in panel.channels if c not in self.channels]
            lost = [c for c in self.channels if c not in panel.channels]
            raise ValueError(
                f"X has {len(panel.channels)} features, but the model was trained on {len(self.channels)} channels, in "
                f"this order: {', '.join(self.channels[:8])}{', ...' if len(self.channels) > 8 else ''}. New: "
                f"{new[:5]}; missing: {lost[:5]}. Give Panel.from_long the channels of the training data."
            )

    def _encode(self, static: pd.DataFrame | None, n: int) -> Array:
        """(n, S): a number and whether it is known, or one of its categories."""
        if not self.statics:
            return np.zeros((n, 0), np.float32)
        lost = [c for c in self.statics if static is None or c not in static.columns]
        if lost or static is None:
            raise ValueError(f"the model was trained with static covariates {', '.join(self.statics)}; {lost} missing.")
        parts = []
        for name, kind in self.statics.items():
            if isinstance(kind, tuple):
                number = static[name].to_numpy(np.float64, na_value=np.nan)
                known = np.isfinite(number)
                parts += [np.where(known, (number - kind[0]) / kind[1], 0.0), known]
            else:
                text = static[name].astype(str).to_numpy()
                parts += [text == category for category in kind]
        return np.column_stack(parts).astype(np.float32)


def _owners(panel: Panel) -> Array:
    """(N,) which series a row of a compact panel belongs to."""
    return np.repeat(np.arange(len(panel)), panel.lengths)


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
