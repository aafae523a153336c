"""How far a forecaster looks ahead, as a number in the unit of the times or as a duration such as "28D"."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from lformer.panel import Panel
from lformer.panel.stamps import one_of

if TYPE_CHECKING:
    import pandas as pd

Horizon = float | str | timedelta | np.timedelta64 | None  # a pandas Timedelta is a timedelta


def check_horizon(horizon: Any) -> None:
    """Raise unless it is None, a number greater than 0 or a duration longer than 0."""
    if horizon is None:
        return
    if is_duration(horizon):
        length: Any = _duration(horizon).value
    elif isinstance(horizon, int | float | np.number) and not isinstance(horizon, bool):
        length = horizon
    else:
        raise ValueError(f'horizon must be a number, a duration such as "28D", or None; got {horizon!r}.')
    if not 0 < length < np.inf:
        raise ValueError(f"horizon must be greater than 0, or None; got {horizon}.")


def is_duration(horizon: Any) -> bool:
    """Whether the horizon has a unit of its own."""
    return isinstance(horizon, str | timedelta | np.timedelta64)


def in_unit(horizon: Any, panel: Panel) -> float:
    """The horizon in the unit of the times of a panel; a plain number already is.

    Example:
        >>> import numpy as np
        >>> dates = np.array(["2024-01-01", "2024-01-31"], "datetime64[s]")
        >>> in_unit("36h", Panel.from_list([(dates, [1.0, 2.0])], unit="D"))
        1.5
    """
    if not is_duration(horizon):
        return float(horizon)
    if panel.origin.dtype.kind not in "mM":
        named = f" in {panel.unit}" if panel.unit else ""
        raise ValueError(
            f"horizon={horizon!r} is a duration, but the times of X are numbers{named}. Give the horizon as a number "
            "in their unit, or give X with dates or durations as times."
        )
    return float(_duration(horizon).to_timedelta64() / one_of(panel.unit))


def as_text(horizon: Any) -> str:
    """A duration as text for a file, without loss."""
    return str(_duration(horizon))


def _duration(horizon: Any) -> pd.Timedelta:
    import pandas as pd

    try:
        if isinstance(horizon, str) and _is_number(horizon):
            raise ValueError("it has no unit")  # pandas would take it as nanoseconds
        length = pd.Timedelta(horizon)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f'horizon must be a number, or a duration with its unit such as "28D" or "36h"; got {horizon!r}: {error}.'
        ) from error
    if length is pd.NaT:
        raise ValueError(f"horizon must be a duration, not a missing one; got {horizon!r}.")
    return length


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
