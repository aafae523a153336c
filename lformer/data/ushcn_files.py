"""Convert the files of USHCN, as published by their owners, into the raw arrays described in `ushcn`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import numpy as np

from lformer.data.dataset import Array
from lformer.data.files import DataError, Files, Text

VARIABLES = ("PRCP", "SNOW", "SNWD", "TMAX", "TMIN")
MISSING, PASSED = -9999, ord(" ")
EPOCH = date(1970, 1, 1)
KEPT = tuple((day - EPOCH).days for day in (date(1990, 1, 1), date(2001, 1, 1)))  # days of the raw arrays


def pack(files: Files) -> dict[str, Array]:
    """Raw arrays of the daily form from GHCN-Daily (`*.dly`) or USHCN state files, or of the chunked form from its csv.

    Station lists (`ushcn-stations.txt`, `ushcn-v2.5-stations.txt`, `ghcnd-stations.txt`) are read if they exist.
    """
    tables = list(files.texts("small_chunked_sporadic.csv"))
    if len(tables) == 1:
        return _pack_chunked(tables[0])
    stations: dict[str, _Station] = {}
    for kind in (GHCN, USHCN):
        for text in files.texts(kind.pattern):
            for station in _read_stations(text, kind):
                if station.id in stations:
                    raise text.error(0, f"station {station.id} is also in another file; keep one of them.")
                stations[station.id] = station
    if not stations:
        raise DataError(
            f"{files.path} contains no *.dly (GHCN-Daily), no state*.txt (USHCN daily) and not exactly one "
            "small_chunked_sporadic.csv."
        )
    places = _places(files, list(stations))
    order = sorted(stations, key=lambda station: (places[station].coop_id or "~", station))  # unknown ones last
    whole = {name: np.stack([getattr(stations[s], name) for s in order]) for name in _Station.ARRAYS}
    return {
        "station": np.array(order),
        **{name: np.array([getattr(places[s], name) for s in order]) for name in ("coop_id", "state", "name")},
        **{name: np.array([getattr(places[s], name) for s in order], np.float32) for name in ("lat", "lon", "elev")},
        "variables": np.array(VARIABLES),
        "first_day": np.array(KEPT[0], np.int32),
        "source": np.array([stations[s].source for s in order], np.uint8),
        **whole,
    }


class _Kind(NamedTuple):
    """A fixed-width format: a line is a month of one variable, 31 times a value (5 characters) and three flags."""

    pattern: str
    id_width: int
    prefix: str  # of the GHCN id
    source: int
    factor: tuple[float, ...]  # to GHCN units: (value - offset) * factor
    offset: tuple[float, ...]

    @property
    def head(self) -> int:
        return self.id_width + 10  # id, year, month, variable

    @property
    def width(self) -> int:
        return self.head + 31 * 8


GHCN = _Kind("*.dly", 11, "", 0, (1.0,) * 5, (0.0,) * 5)
USHCN = _Kind("state*.txt", 6, "USC00", 2, (2.54, 2.54, 25.4, 1 / 0.18, 1 / 0.18), (0.0, 0.0, 0.0, 32.0, 32.0))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Station:
    """The data of one station in the raw arrays."""

    ARRAYS = (
        "values", "qflag", "first_year", "last_year", "n_1950_2000", "mean_1950_2000", "std_1950_2000",
    )  # fmt: skip

    id: str
    source: int
    values: Array
    qflag: Array
    first_year: Array
    last_year: Array
    n_1950_2000: Array
    mean_1950_2000: Array
    std_1950_2000: Array


def _read_stations(text: Text, kind: _Kind) -> Iterator[_Station]:
    """Read the stations of one file; variables other than the five are skipped."""
    _check_lines(text, kind)
    name = slice(kind.head - 4, kind.head)
    numbers = [n for n, line in enumerate(text.lines) if line[name] in VARIABLES]
    if not numbers:
        return
    width = kind.width
    lines = [text.lines[n].ljust(width) for n in numbers]
    table = np.frombuffer("".join(lines).encode("ascii", "replace"), np.uint8).reshape(len(lines), width)
    days = table[:, kind.head :].reshape(len(lines), 31, 8)
    values, bad = _integers(days[..., :5])
    year, bad_year = _integers(table[:, kind.id_width : kind.id_width + 4])
    month, bad_month = _integers(table[:, kind.id_width + 4 : kind.id_width + 6])
    wrong = bad.any(axis=1) | bad_year | bad_month | (month < 1) | (month > 12) | (year < 1) | (year > 9998)
    if wrong.any():
        n = numbers[int(np.argmax(wrong))]
        raise text.error(n, f"expected an id, YYYYMM, a variable and 31 whole numbers, got {text.lines[n][:60]!r}.")

    variable = np.array([VARIABLES.index(line[name]) for line in lines])
    start = (year - 1970).astype("M8[Y]").astype("M8[M]") + (month - 1)
    length = ((start + 1).astype("M8[D]") - start.astype("M8[D]")).astype(np.int64)
    present = values != MISSING
    beyond = (present & (np.arange(31) >= length[:, None])).any(axis=1)
    if beyond.any():
        n = numbers[int(np.argmax(beyond))]
        raise text.error(n, "a value is on a day that its month does not have.")
    ids = np.array([line[: kind.id_width] for line in lines])
    for station in np.unique(ids):
        mine = ids == station
        _check_once(text, np.asarray(numbers)[mine], start[mine], variable[mine])
        flags = np.where(present[mine], days[mine][..., 6], 0).astype(np.uint8)
        month_start = start[mine].astype("M8[D]").astype(np.int64)
        yield _station(str(station), kind, variable[mine], month_start, year[mine], values[mine], flags)


def _check_lines(text: Text, kind: _Kind) -> None:
    """Check that every line has the length of the format, except for trailing blanks; blank lines may be shorter."""
    width = kind.width
    for n, line in enumerate(text.lines):
        if not width - 3 <= len(line.rstrip()) <= len(line) <= width and line.strip():
            raise text.error(n, f"expected {width} characters, got {len(line)}; the file may be cut short.")


def _check_once(text: Text, numbers: Array, start: Array, variable: Array) -> None:
    key = start.astype(np.int64) * len(VARIABLES) + variable
    order = np.argsort(key, kind="stable")
    twice = np.flatnonzero(np.diff(key[order]) == 0)
    if len(twice):
        raise text.error(int(numbers[order[twice[0] + 1]]), "this month of this variable occurs twice.")


def _integers(characters: Array) -> tuple[Array, Array]:
    """Read right-aligned integers from character codes (..., width) as int64 (...), and find where there is none."""
    digit = (characters >= ord("0")) & (characters <= ord("9"))
    minus = characters == ord("-")
    kind = 2 * digit.view(np.int8) + minus.view(np.int8)  # blanks, then at most one minus, then digits
    bad = ~digit[..., -1] | ~(digit | minus | (characters == ord(" "))).all(axis=-1)
    number = np.zeros(characters.shape[:-1], np.int64)
    for column in range(characters.shape[-1]):
        number = 10 * number + np.where(digit[..., column], characters[..., column] - ord("0"), 0)
        if column:
            before = kind[..., column - 1]
            bad |= (kind[..., column] < before) | (minus[..., column] & minus[..., column - 1])
    return np.where(minus.any(axis=-1), -number, number), bad


def _station(id: str, kind: _Kind, variable: Array, start: Array, year: Array, values: Array, flags: Array) -> _Station:
    """Make one station.

    Args:
        variable: (M,) variable of each month.
        start: (M,) first day of each month, since 1970-01-01.
        year: (M,) year of each month.
        values: (M, 31) in the units of the file, -9999 where missing.
        flags: (M, 31) quality flags, 0 where missing.
    """
    present = values != MISSING
    factor, offset = np.asarray(kind.factor)[variable, None], np.asarray(kind.offset)[variable, None]
    exact = (values - offset) * factor
    rounded = np.trunc(exact + np.copysign(0.5, exact))  # halves away from zero, as GHCN-Daily does
    converted = np.where(present, rounded, MISSING).astype(np.int64)
    if np.abs(converted).max(initial=0) > np.iinfo(np.int16).max:
        raise DataError(f"station {id} has the value {np.abs(converted).max()}, which is not plausible.")

    day = start[:, None] + np.arange(31)
    month, which = np.nonzero(present & (day >= KEPT[0]) & (day < KEPT[1]))
    shape = (KEPT[1] - KEPT[0], len(VARIABLES))
    kept, kept_flags = np.full(shape, MISSING, np.int16), np.zeros(shape, np.uint8)
    place = (day[month, which] - KEPT[0], variable[month])
    kept[place], kept_flags[place] = converted[month, which], flags[month, which]

    passed = flags == PASSED
    years, statistics = np.full((2, len(VARIABLES)), -1, np.int16), np.full((3, len(VARIABLES)), np.nan)
    for v in range(len(VARIABLES)):
        with_value = year[(variable == v) & passed.any(axis=1)]
        if len(with_value):
            years[:, v] = with_value.min(), with_value.max()
        sample = converted[passed & ((variable == v) & (year >= 1950) & (year <= 2000))[:, None]].astype(np.float64)
        if len(sample):
            statistics[:, v] = len(sample), sample.mean(), sample.std(ddof=min(1, len(sample) - 1))
    return _Station(
        id=kind.prefix + id,
        source=kind.source,
        values=kept,
        qflag=kept_flags,
        first_year=years[0],
        last_year=years[1],
        n_1950_2000=np.nan_to_num(statistics[0]).astype(np.int32),
        mean_1950_2000=statistics[1].astype(np.float32),
        std_1950_2000=statistics[2].astype(np.float32),
    )


class _Place(NamedTuple):
    coop_id: str = ""
    state: str = ""
    name: str = ""
    lat: float = math.nan
    lon: float = math.nan
    elev: float = math.nan


def _places(files: Files, stations: list[str]) -> dict[str, _Place]:
    """The locations of the stations, as far as the available lists contain them.

    A GHCN id `USC00` ends with the COOP id. Other stations, at airports, are found in the USHCN list by their position.
    """
    ushcn = {place.coop_id: place for text in files.texts("ushcn*stations.txt") for place in _read_list(text)}
    ghcn: dict[str, _Place] = {}
    for text in files.texts("ghcnd-stations.txt"):
        ghcn |= _read_ghcn_list(text, set(stations))
    found: dict[str, _Place] = {}
    for station in stations:
        if station.startswith("USC00"):
            coop_id = station[5:]
            found[station] = ushcn.get(coop_id) or ghcn.get(station, _Place())._replace(coop_id=coop_id)
    free = [place for coop_id, place in ushcn.items() if f"USC00{coop_id}" not in found]
    for station in sorted(set(stations) - found.keys()):
        here = ghcn.get(station, _Place())
        near = min(free, key=lambda place: _distance(place, here), default=_Place())
        if _distance(near, here) < 10:
            free.remove(near)
            here = near
        found[station] = here
    return found


def _distance(a: _Place, b: _Place) -> float:
    """Approximate distance in kilometres; infinite if a position is not known."""
    north, east = a.lat - b.lat, (a.lon - b.lon) * math.cos(math.radians(a.lat))
    return math.inf if math.isnan(north + east) else 111.2 * math.hypot(north, east)


def _read_list(text: Text) -> Iterator[_Place]:
    """Read `ushcn-stations.txt` (begins with the COOP id) or `ushcn-v2.5-stations.txt` (USH00 and the COOP id)."""
    for n, line in enumerate(text.lines):
        if line.strip() and not line.startswith("#"):
            at = 11 if line.startswith("USH") else 6
            yield _place(text, n, line[at - 6 : at], at)


def _read_ghcn_list(text: Text, wanted: set[str]) -> dict[str, _Place]:
    found = {line[:11]: _place(text, n, "", 11) for n, line in enumerate(text.lines) if line[:11] in wanted}
    if not found:
        raise text.error(0, f"expected a list with at least one of the {len(wanted)} stations here, got none.")
    return found


def _place(text: Text, n: int, coop_id: str, at: int) -> _Place:
    """Read latitude, longitude, elevation, state and name from the columns after the id, which ends at `at`."""
    line = text.lines[n]
    columns = [line[at + a : at + b].strip() for a, b in ((1, 9), (10, 19), (20, 26), (27, 29), (30, 60))]
    try:
        lat, lon, elev = (float(column) for column in columns[:3])
    except ValueError:
        raise text.error(n, f"expected latitude, longitude and elevation after the id, got {line[:40]!r}.") from None
    if coop_id and not coop_id.isdecimal():
        raise text.error(n, f"expected a COOP id of six digits, got {coop_id!r}.")
    return _Place(coop_id, columns[3], columns[4], lat, lon, math.nan if elev <= -999 else elev)


def _pack_chunked(text: Text) -> dict[str, Array]:
    header = ["ID", "Time", *(f"{what}_{v}" for what in ("Value", "Mask") for v in range(len(VARIABLES)))]
    rows: list[list[float]] = []
    for n, line in enumerate(text.lines):
        fields = line.strip().split(",")
        if fields == [""] or line.startswith("#"):
            continue
        if not rows and fields == header:
            rows.append([])
            continue
        if not rows:
            raise text.error(n, f"expected the header {','.join(header)}, got {line[:80]!r}.")
        rows.append(_numbers(text, n, fields))
    if len(rows) < 2:
        raise text.error(max(len(text.lines) - 1, 0), "expected a header and rows below it.")
    table = np.array(rows[1:])
    table = table[np.lexsort([table[:, 1], table[:, 0]])]
    if not np.diff(table[:, :2], axis=0).any(axis=1).all():
        twice = table[:-1][~np.diff(table[:, :2], axis=0).any(axis=1)][0]
        raise DataError(f"{text.name}: station {twice[0]:g} has two rows at time {twice[1]:g}.")
    mask = table[:, 7:] == 1
    return {
        "chunk_id": table[:, 0].astype(np.int32),
        "chunk_time": table[:, 1].copy(),
        "chunk_value": np.where(mask, table[:, 2:7], 0).astype(np.float32),
        "chunk_mask": mask,
    }


def _numbers(text: Text, n: int, fields: list[str]) -> list[float]:
    """Read the twelve numbers of a line; a value may be missing where its mask is 0."""
    try:
        numbers = [float(field or "nan") for field in fields]
    except ValueError:
        numbers = []
    masks = numbers[7:]
    whole = (
        len(numbers) == 12
        and numbers[0].is_integer()
        and 0 <= numbers[1] < math.inf
        and all(mask in (0, 1) for mask in masks)
        and all(math.isfinite(value) for value, mask in zip(numbers[2:7], masks, strict=True) if mask)
    )
    if not whole:
        raise text.error(n, f"expected ID, Time, five values and five masks 0 or 1, got {text.lines[n][:80]!r}.")
    return numbers
