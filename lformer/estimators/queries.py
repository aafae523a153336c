"""Query times, and the rows that represent them: read, checked, and converted to the time frame of a panel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lformer.estimators.inputs import require_dates
from lformer.hiding import hide
from lformer.panel import Array, Panel
from lformer.panel.calendar import Calendar
from lformer.panel.stamps import as_stamps, elapsed, missing
from lformer.panel.zones import zone_of
from lformer.parts import PanelPart, Targets


def informed(panel: Panel, every: bool = False) -> Panel:
    """The panel without rows in which nothing was observed; with `every`, raise if a series then has no row left."""
    panel = panel.compact()
    if panel.observed is not None:
        empty: Array = ~np.any(panel.observed, axis=1)
        panel, _ = hide(panel, empty, "query")
    lost = panel.ids[panel.lengths == 0].tolist()
    if len(lost) == len(panel) or (every and lost):
        raise ValueError(
            f"{len(lost)} of {len(panel)} series have no observed value, among them {lost[:5]}; their values cannot "
            "be predicted. Drop them."
        )
    return panel


def last_times(panel: Panel) -> Array:
    """(n,) time of the last row of each series, as in `times`; 0 if it has none."""
    last = np.zeros(len(panel))
    filled = panel.lengths > 0
    last[filled] = panel.times[(panel.first + panel.lengths - 1)[filled]]
    return last


def clocks(panel: Panel, query_times: Any, calendar: Calendar) -> list[Array]:
    """(Q_i,) float64 query times of each series, in the time frame of `panel.times`."""
    if query_times is None:
        raise ValueError(
            "query_times is missing: give the times at which values are wanted, (Q,) for all series or a list of "
            "arrays, one per series."
        )
    if not len(query_times) or np.ndim(next(iter(query_times))) == 0:
        query_times = [query_times] * len(panel)
    if len(query_times) != len(panel):
        raise ValueError(
            f"query_times must be (Q,) or one array for each of the {len(panel)} series; got {len(query_times)} arrays."
        )
    named = zip(query_times, panel.origin, panel.ids.tolist(), strict=True)
    return [
        _clock(stamps, origin, panel, calendar, f"query_times of series {name!r}") for stamps, origin, name in named
    ]


def _clock(query_times: Any, origin: Any, panel: Panel, calendar: Calendar, name: str) -> Array:
    """(Q,) float64 time from `origin` to each query time, negative before it."""
    if not len(query_times):
        return np.zeros(0)
    stamps = as_stamps(query_times, name)
    if stamps.ndim != 1 or bool(missing(stamps).any()):
        raise ValueError(f"{name} must be (Q,) finite times; got shape {stamps.shape}, {stamps.ravel()[:5].tolist()}.")
    kind = np.asarray(origin).dtype.kind
    if (kind in "mM" or stamps.dtype.kind in "mM") and stamps.dtype.kind != kind:
        raise ValueError(
            f"{name} must be of the kind of the times of X, {np.asarray(origin).dtype}; got {stamps.dtype}."
        )
    zone = zone_of(query_times)
    if calendar.periods:
        require_dates(stamps.dtype.kind, zone, calendar.zone, name)
    if (zone is None) != (panel.zone is None):  # an instant and a local time have no difference
        has, wants = (f"are in the time zone {one}" if one else "have no time zone" for one in (zone, panel.zone))
        raise ValueError(f"{name} {has}, but the times of X {wants}. Give both with a zone, or both without.")
    return elapsed(stamps, np.asarray(origin), panel.unit)


def only(targets: Targets, wanted: Array) -> Targets:
    """Select queries, (M,) bool."""
    assert targets.first is not None
    assert targets.lengths is not None
    before = np.concatenate([[0], np.cumsum(wanted)])  # number of selected queries before each one
    first, ends = before[targets.first], before[targets.first + targets.lengths]
    flat = {name: getattr(targets, name) for name in ("values", "observed", "given", "times")}
    kept = {name: array[wanted] for name, array in flat.items() if array is not None}
    return replace(targets, first=first, lengths=ends - first, **kept)


def values_at(part: PanelPart, y: Any) -> Array:
    """(M, C) values at all queries, from (Q_i, C) per series, or (Q_i,) for a single channel."""
    lengths, C = part.targets.lengths, len(part.panel.channels)
    assert lengths is not None
    tables = [np.asarray(one, np.float64) for one in y]
    tables = [one[:, None] if one.ndim == 1 and C == 1 else one for one in tables]
    if len(tables) != len(lengths):
        raise ValueError(f"y must have values for each of the {len(lengths)} series; got {len(tables)}.")
    for name, table, n in zip(part.panel.ids.tolist(), tables, lengths.tolist(), strict=True):
        if table.shape != (n, C):
            raise ValueError(
                f"y must be (query times, channels) of each series, ({n}, {C}) of {name!r}; got {table.shape}."
            )
    found = np.concatenate(tables)
    if np.isinf(found).any():
        raise ValueError("y must be finite numbers, or NaN where there is no value; it contains infinity.")
    return found
