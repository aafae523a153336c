"""Convert user input to series and weights; match channels and clock of new series with training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_array
from torch import Tensor

from lformer.arrays import as_floats, as_tensor, refuse_masked
from lformer.estimators.suspicion import SuspectDataWarning
from lformer.panel import Array, MissingValues, Panel, join
from lformer.panel.lists import swapped_axes
from lformer.panel.missing import is_mark, read_marks
from lformer.panel.stamps import one_of

Groups = dict[Any, int]  # id of a series -> its subject


def as_panel(X: Any, missing_values: MissingValues = None, *, some: bool = False) -> tuple[Panel, int | None]:
    """Convert X to a Panel, from a Panel, a list of series, or an array (n, time, channels) or (n, time).

    A series is a pair (times, values), a pandas Series or DataFrame with the times as index, or an array without times,
    evenly spaced: (time,) or (time, channels), or (channels, time) as in aeon, if lengths differ along that axis.

    Args:
        X: the series.
        missing_values: numbers that stand for missing values, as in `Panel.from_long`.
        some: whether `missing_values` may name channels that X lacks, as in prediction.

    Returns:
        The series, and the number of columns of X if it was a plain table (n, time).
    """
    if isinstance(X, Panel):
        if not len(X):
            raise ValueError("the panel is empty: at least one series is needed.")
        return X.with_missing(missing_values, some=some), None
    if _is_cells(X):
        return as_panel(join(X.ravel().tolist()), missing_values, some=some)
    if isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype.kind == "O" and X.ndim == 1):
        series = list(X) if len(X) and _is_series(X[0]) else ragged_arrays(list(X))
        if series is not None:
            return Panel.from_list(series).with_missing(missing_values, some=some), None
    refuse_masked(X, "X")
    if isinstance(X, Tensor):
        X = as_tensor(X, "X").detach().to(torch.float64).numpy()
    elif hasattr(X, "iloc"):  # pandas
        X = as_floats(X, "X", np.float64)
    if isinstance(X, list | tuple) and len({len(row) for row in X if isinstance(row, list | tuple)}) > 1:
        raise ValueError(
            "the rows of X have different lengths. If each is a series, give their times, or make each an array: "
            "Panel.from_list([(times, values), ...]), or [numpy.asarray(row) for row in X] if they are evenly spaced."
        )
    try:
        array = check_array(X, allow_nd=True, ensure_all_finite="allow-nan", dtype="numeric", input_name="X")
    except (RuntimeError, OverflowError) as error:
        raise ValueError(f"X must be series or an array of numbers; got {type(X).__name__}: {error}.") from error
    if array.dtype.kind == "O":
        array = as_floats(array, "X", np.float64)
    if array.ndim > 3:
        raise ValueError(f"X must be (series, time, channels) or (series, time); got shape {array.shape}.")
    wide = array.shape[1] if array.ndim == 2 else None
    if array.ndim == 3 and not some and (swapped := swapped_axes(array.shape)):
        warnings.warn(f"X: {swapped}", SuspectDataWarning, stacklevel=5)  # the caller of `fit`
    array = _with_nan(array if array.ndim == 3 else array[..., None], missing_values, some)
    channels = list(map(str, range(array.shape[2])))
    return Panel.from_array(array, lengths=_lengths(array), channels=channels), wide


def check_width(estimator: Any, wide: int | None) -> None:
    """Raise if a plain table (n, time) has another number of columns than the one in `fit`."""
    if estimator._is_table and wide is not None and wide != estimator.n_features_in_:
        name, known = type(estimator).__name__, estimator.n_features_in_
        raise ValueError(f"X has {wide} features, but {name} is expecting {known} features as input.")


def _with_nan(array: Array, missing_values: MissingValues, some: bool) -> Array:
    """(n, time, channels) with marks for missing values replaced by NaN; rows of marks alone at the end are padding."""
    if missing_values is None:
        return array
    values = as_floats(array, "X", np.float32)  # as the panel holds them
    marked = is_mark(values, read_marks(missing_values, list(map(str, range(array.shape[2]))), np.float32, some=some))
    return np.where(marked, np.float32(np.nan), values) if marked.any() else array


def _is_cells(X: Any) -> bool:
    """Whether scikit-learn made X out of a Panel: an array (n, 1) of panels with one series each."""
    return isinstance(X, np.ndarray) and X.dtype == object and X.size > 0 and isinstance(X.flat[0], Panel)


def _is_series(one: Any) -> bool:
    """Whether this is a series for `Panel.from_list`, which reports invalid columns of other libraries itself."""
    if hasattr(one, "iloc") and not hasattr(one, "columns"):  # a pandas Series; one with a text index is a table row
        return getattr(one.index.dtype, "kind", "O") in "fiumM"
    other = hasattr(one, "__arrow_c_stream__") or hasattr(one, "__arrow_c_array__")
    return other or hasattr(one, "columns") or (isinstance(one, tuple) and len(one) == 2)


def ragged_arrays(arrays: Sequence[Any]) -> list[tuple[Array, Array]] | None:
    """Series (times, values) with times 0, 1, 2, ... from arrays of different shapes; None for anything else.

    All series have the same channels, so the axis along which lengths differ is time.
    """
    if not all(isinstance(one, np.ndarray | Tensor) for one in arrays):
        return None
    shapes = sorted({tuple(one.shape) for one in arrays})
    if len(shapes) < 2:
        return None
    axes = len(shapes[0])
    differ = [axis for axis in range(axes) if len({shape[axis : axis + 1] for shape in shapes}) > 1]
    if axes not in (1, 2) or any(len(shape) != axes for shape in shapes) or len(differ) != 1:
        raise ValueError(
            "series without times must be arrays (time,) or (time, channels) that differ in length alone; X has shapes "
            f"{', '.join(map(str, shapes[:5]))}. Give the times of each: Panel.from_list([(times, values), ...])."
        )
    plain = [
        as_tensor(one, "X").detach().to(torch.float64).numpy() if isinstance(one, Tensor) else one for one in arrays
    ]
    values = [one if differ == [0] else one.T for one in plain]  # (time,) or (time, channels)
    return [(np.arange(len(one)), one) for one in values]


def _lengths(array: Array) -> Array | None:
    """(n,) the full number of rows if nothing is missing: a row of zeros at the end is then a row, not padding."""
    return None if array.dtype.kind == "f" and np.isnan(array).any() else np.full(len(array), array.shape[1])


def match_channels(panel: Panel, channels: tuple[str, ...]) -> Panel:
    """The panel with exactly these channels, in this order: missing ones count as unobserved, new ones raise an error.

    Unnamed channels ("0", "1", ...) are identified by position only, so all of them must be present.
    """
    if panel.channels == channels:
        return panel
    place = {name: i for i, name in enumerate(panel.channels)}
    new = [name for name in panel.channels if name not in channels]
    lost = [name for name in channels if name not in place]
    if new or (lost and channels == tuple(map(str, range(len(channels))))):
        raise ValueError(
            f"X has {len(place)} features, but the model was trained on {len(channels)} channels: "
            f"{', '.join(channels[:8])}{', ...' if len(channels) > 8 else ''}. New: {new[:5]}; missing: {lost[:5]}. "
            "Leave new ones out, for example with Panel.from_long(..., channels=model.features_.channels)."
        )
    values = np.zeros((*panel.values.shape[:-1], len(channels)), panel.values.dtype)
    observed = np.zeros(values.shape, bool)
    for c, name in enumerate(channels):
        if name in place:
            values[..., c] = panel.values[..., place[name]]
            observed[..., c] = True if panel.observed is None else panel.observed[..., place[name]]
    return replace(panel, values=values, observed=None if observed.all() else observed, channels=channels)


def match_clock(panel: Panel, calendar: bool, unit: str) -> Panel:
    """The panel with times in this unit; numbers do not mix with dates or durations, nor units of numbers."""
    is_calendar = on_calendar(panel)
    if is_calendar != calendar:
        has, known = (_kind(one) for one in (is_calendar, calendar))
        raise ValueError(
            f"the times of X are {has}, but the model was trained on {known}{f' in {unit}' if unit else ''}. Give both "
            "in the same form."
        )
    if panel.unit == unit or not (panel.unit and unit):
        return panel
    if not calendar:
        raise ValueError(f"the times of X are in {panel.unit}, but the model was trained on times in {unit}.")
    return replace(panel, times=panel.times * (one_of(panel.unit) / one_of(unit)), unit=unit)


def alike(panel: Panel, first: Panel) -> Panel:
    """The panel with the channels and the unit of time of another, whose unit it takes on if it has none."""
    matched = match_clock(match_channels(panel, first.channels), on_calendar(first), first.unit)
    return replace(matched, unit=first.unit)


def require_dates(kind: str, zone: str | None, known: str | None, name: str) -> None:
    """Raise for time stamps whose local time a model with calendar features cannot determine.

    Args:
        kind: of their dtype.
        zone: their time zone; None if they have none.
        known: the time zone of training. Time stamps in any other time zone are converted.
        name: how to refer to them in errors.
    """
    if kind != "M":
        raise ValueError(f"{name} must be dates, because the model was trained with calendar features.")
    if (zone is None) != (known is None):
        has, wants = (f"are in the time zone {z}" if z else "have no time zone" for z in (zone, known))
        how = f"tz_localize({known!r})" if known else f"tz_convert({zone!r}).tz_localize(None), or the zone of training"
        raise ValueError(f"{name} {has}, but those of training {wants}. Convert them: {how}.")


def on_calendar(panel: Panel) -> bool:
    """Whether the time stamps are dates or durations, whose unit is known, rather than plain numbers."""
    return panel.origin.dtype.kind in "mM"


def _kind(calendar: bool) -> str:
    return "calendar stamps" if calendar else "numbers"


def goes_by_id(target: Any, by_id: bool) -> bool:
    """Whether a target is aligned by id: a dict always, a pandas Series or any table if the series have ids."""
    return isinstance(target, dict) or (by_id and (hasattr(target, "reindex") or hasattr(type(target), "columns")))


def series_groups(groups: Any, panel: Panel, by_id: bool) -> Groups | None:
    """The subject of each series, by id, as an integer; a Series or dict of names is aligned by id if there are ids."""
    if groups is None:
        return None
    if goes_by_id(groups, by_id):
        groups = panel.align(groups, "groups")
    return dict(zip(panel.ids.tolist(), group_codes(groups, len(panel)).tolist(), strict=True))


def group_codes(groups: Any, n: int) -> Array:
    """(n,) int64, equal for series of the same subject."""
    names = np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(f"groups must have one entry for each of the {n} series; got shape {names.shape}.")
    if (missing := np.asarray(pd.isna(names))).any():
        raise ValueError(f"groups must name the subject of each series; series {int(missing.argmax())} has none.")
    return np.unique(names, return_inverse=True)[1]


def series_weights(sample_weight: Any, panel: Panel, by_id: bool) -> Array:
    """(n,) float64, 1 by default; a Series or a table is aligned by id if there are ids."""
    n = len(panel)
    if sample_weight is None:
        return np.ones(n)
    if goes_by_id(sample_weight, by_id):
        sample_weight = panel.align(sample_weight, "sample_weight")
    weights = as_floats(sample_weight, "sample_weight", np.float64)
    if weights.shape != (n,) or not np.isfinite(weights).all() or bool((weights < 0).any()):
        raise ValueError(f"sample_weight must be {n} numbers from 0, one per series; got shape {weights.shape}.")
    if not weights.any():
        raise ValueError("sample_weight is zero for every series, so there is nothing to learn from.")
    return weights
