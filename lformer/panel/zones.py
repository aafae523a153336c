"""Time zones by name: the original one of time stamps, and local time there, including daylight saving time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from lformer.arrays import Array, shown
from lformer.panel.stamps import stored_zone

_OFFSET = re.compile(r"UTC([+-])(\d\d):(\d\d)")
_PATH = re.compile(r"zoneinfo/([\w/+-]+)")


def zone_of(values: Any) -> str | None:
    """The name of the time zone of time stamps, such as "Europe/Berlin" or "UTC+02:00"; None if they have none.

    Example:
        >>> import pandas as pd
        >>> zone_of(pd.date_range("2024-03-30", periods=2, tz="Europe/Berlin")), zone_of([1.0, 2.0])
        ('Europe/Berlin', None)
    """
    zone = stored_zone(values)
    return None if zone is None else name_of(zone)


def common_zone(zones: Iterable[str | None]) -> str | None:
    """The time zone of several series: the common one, or "UTC" if they differ."""
    found = set(zones)
    return found.pop() if len(found) == 1 else "UTC" if found else None


def read_zone(name: Any) -> tzinfo:
    """The time zone with a name; raises a clear error if there is none."""
    if isinstance(name, str):
        if name == "UTC":
            return UTC
        if (parts := _OFFSET.fullmatch(name)) and int(parts[2]) < 24 and int(parts[3]) < 60:
            offset = timedelta(hours=int(parts[2]), minutes=int(parts[3]))
            return timezone(offset if parts[1] == "+" else -offset)
        try:
            return ZoneInfo(name)
        except (ValueError, OSError, KeyError):  # not a name; a folder; not there
            pass
    raise ValueError(f"zone must be the name of a time zone, such as 'Europe/Berlin' or 'UTC'; got {shown(name)}.")


def wall_clock(stamps: Array, zone: str | None) -> Array:
    """The local time in a time zone at these UTC instants, datetime64; unchanged without a time zone.

    Example:
        >>> import numpy as np
        >>> wall_clock(np.array(["2024-03-31T00:30", "2024-03-31T01:30"], "datetime64[us]"), "Europe/Berlin")
        array(['2024-03-31T01:30:00.000000', '2024-03-31T03:30:00.000000'],
              dtype='datetime64[us]')
    """
    if zone is None or zone == "UTC":
        return stamps
    import pandas as pd

    there = pd.DatetimeIndex(stamps.ravel()).tz_localize("UTC").tz_convert(read_zone(zone)).tz_localize(None)
    return there.to_numpy().astype(stamps.dtype).reshape(stamps.shape)


def instants(clock: Array, zone: str | None) -> Array:
    """The UTC instants, datetime64, of local times in a time zone; NaT for a local time that does not exist.

    For a local time that occurs twice, the first occurrence is used.

    Example:
        >>> import numpy as np
        >>> instants(np.array(["2024-03-31T01:30", "2024-03-31T02:30"], "datetime64[m]"), "Europe/Berlin").tolist()
        [datetime.datetime(2024, 3, 31, 0, 30), None]
    """
    if zone is None or zone == "UTC":
        return clock
    import pandas as pd

    there = pd.DatetimeIndex(clock).tz_localize(read_zone(zone), ambiguous=[True] * len(clock), nonexistent="NaT")
    return there.tz_convert("UTC").tz_localize(None).to_numpy().astype(clock.dtype)


def name_of(zone: Any) -> str:
    """The name of a time zone, by which it can be found again."""
    name = str(getattr(zone, "key", None) or getattr(zone, "zone", None) or zone)
    if path := _PATH.search(name):  # as dateutil calls it
        name = path[1]
    name = f"UTC{name}" if _OFFSET.fullmatch(f"UTC{name}") else name  # as Arrow writes it
    for one in (name, _fixed(zone)):
        try:
            read_zone(one)
        except ValueError:
            continue
        return str(one)
    warnings.warn(
        f"the time zone {name} has no name that can be stored, so hours and days are in UTC. Convert the time stamps "
        'with tz_convert("Europe/Berlin") or the like.',
        stacklevel=6,
    )
    return "UTC"


def _fixed(zone: Any) -> str | None:
    """The name of a time zone with a constant offset."""
    offset = zone.utcoffset(None) if isinstance(zone, tzinfo) else None
    if offset is None:
        return None
    minutes = round(offset / timedelta(minutes=1))
    return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
