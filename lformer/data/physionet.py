"""PhysioNet Challenge 2012: two days in intensive care, 37 variables charted when they were measured.

Raw arrays (`physionet2012/physionet2012_ab.npz`), every line of the 8,000 files of sets A and B, in their order:

    record_id      (8000,) int32     RecordID, ascending within a set
    set            (8000,) str       "a" or "b"
    offset         (8001,) int32     events of stay i are offset[i] to offset[i + 1]
    time_min       (E,) uint16       minutes since admission, 0 to 2880, never decreasing within a stay
    param          (E,) uint8        position in param_names
    value          (E,) float32      in the units of the challenge; nothing is cleaned
    param_names    (41,) str         Age, Gender, Height and ICUType first
    outcomes       (8000, 6) int32   columns outcome_names: RecordID, SAPS-I, SOFA, Length_of_stay, Survival,
                                     In-hospital_death

Protocol (CRU and ACSSM, after latent ODE). Times are rounded to 0.1 h, `rint(hours / 0.1)`; a series has a row for each
distinct time and always one at 0, which makes 72.16 rows on average. Several readings of a variable in one row are
averaged. The four descriptors are no channels, which leaves 37; here they are the static covariates of the panel, NaN
where the challenge writes -1. Weight stays a channel, and its -1 for "unknown" stays a value, as published. A fifth of
the stays is held out for test, then a quarter of the rest for validation: 4,800 / 1,600 / 1,600, always the same. The
published code takes the stays in the order in which a file system lists them; ours is that of the raw arrays.

Scalings. "published": `(x - min) / (max - min)` per channel, where training, validation and test part each use the
extremes of their own values, and the zeros that stand for missing values count among them; a maximum of 0 counts as 1.
"minmax" and "standard": by the observed values of the training part. "none": as charted.

Tasks. "extrapolate": the rows before 24 h are given, all are asked. "reconstruct": all rows are given and asked, which
published tables call interpolation. "interpolate": half of the rows of each stay, drawn by the seed, are hidden.
"classify": In-hospital_death from all rows. The option `unobserved` says whether hidden rows stay, empty, as published
("rows"), or are asked for by time only ("query").
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lformer.data.dataset import Array, Card, Dataset, Raw, Remote, Request, Scaling
from lformer.data.files import DataError, Files, Text
from lformer.hiding import hide, random_rows, reconstruct
from lformer.panel import Panel
from lformer.parts import Prepared, Targets
from lformer.splitting import hold_out_twice

if TYPE_CHECKING:
    import pandas as pd

STATIC = ("Age", "Gender", "Height", "ICUType")
CHANNELS = (
    "Weight", "GCS", "HR", "NIDiasABP", "NIMAP", "NISysABP", "RespRate", "Temp", "Urine", "HCT", "BUN", "Creatinine",
    "Glucose", "HCO3", "Mg", "Platelets", "K", "Na", "WBC", "pH", "PaCO2", "PaO2", "DiasABP", "FiO2", "MAP", "MechVent",
    "SysABP", "SaO2", "Albumin", "ALP", "ALT", "AST", "Bilirubin", "Lactate", "Cholesterol", "TroponinI", "TroponinT",
)  # fmt: skip
PARAMETERS = STATIC + CHANNELS
OUTCOMES = ("RecordID", "SAPS-I", "SOFA", "Length_of_stay", "Survival", "In-hospital_death")
KEYS = ("record_id", "offset", "time_min", "param", "value", "param_names", "outcomes", "outcome_names")
STAYS = 8000
BIN_HOURS, CUT_HOURS, LAST_MINUTE = 0.1, 24.0, 2880


# -- from the raw arrays to a panel


def prepare(raw: Raw, request: Request) -> Prepared:
    """The stays as a panel, with the targets of a task; the seed moves only what "interpolate" hides."""
    raw = {name: raw[name] for name in KEYS}  # each is unpacked from the file whenever it is asked for
    stays = len(raw["record_id"])
    train, validation, test = hold_out_twice(stays, 0.2, 0.25, seeds=(0, 0))
    part = np.zeros(stays, np.uint8)  # of each stay: 0 training, 1 validation, 2 test
    part[validation], part[test] = 1, 2
    panel = _panel(raw, part, request.scaling)
    panel, targets = _task(panel, raw, request)
    return Prepared(panel=panel, targets=targets, train=train, validation=validation, test=test)


def missing(raw: Raw) -> str:
    """What the raw arrays lack of the 8,000 stays."""
    stays = len(raw["record_id"])
    return "" if stays == STAYS else f"{stays:,} of {STAYS:,} stays"


def _task(panel: Panel, raw: Raw, request: Request) -> tuple[Panel, Targets]:
    if request.task == "classify":
        died = raw["outcomes"][:, raw["outcome_names"].tolist().index("In-hospital_death")]
        return panel, Targets(values=died.astype(np.int64), at="series")
    if request.task == "reconstruct":
        return panel, reconstruct(panel)
    late = request.task == "extrapolate"
    hidden = panel.times >= CUT_HOURS if late else random_rows(panel, 0.5, request.seed)
    return hide(panel, hidden, request.options["unobserved"])


def _panel(raw: Raw, part: Array, scaling: Scaling) -> Panel:
    """All stays, their values scaled."""
    row, times, lengths = _rows(raw)
    channel = _positions(raw["param_names"], CHANNELS)[raw["param"]]
    charted = channel >= 0
    channel, value = channel[charted], raw["value"][charted]
    cell = row[charted]  # becomes the place of each reading in the flattened (N, 37) values
    del row, charted
    cell *= len(CHANNELS)
    cell += channel
    del channel

    cell, scaled = _merge(cell, value, len(times) * len(CHANNELS))
    del value
    if scaling != "none":
        owner = np.repeat(part, lengths)[cell // len(CHANNELS)]
        _scale(scaled, (cell % len(CHANNELS)).astype(np.uint8), owner, scaling)
    scaled = scaled.astype(np.float32)
    values, observed = np.zeros((len(times), len(CHANNELS)), np.float32), np.zeros((len(times), len(CHANNELS)), bool)
    values.reshape(-1)[cell] = scaled
    observed.reshape(-1)[cell] = True
    return Panel(  # right by construction: `Panel.build` would check that and copy the values
        times=times,
        values=values,
        observed=observed,
        first=np.cumsum(lengths) - lengths,
        lengths=lengths,
        ids=raw["record_id"],
        channels=CHANNELS,
        unit="h",
        origin=np.zeros(len(lengths)),
        static=_static(raw),
    )


def _rows(raw: Raw) -> tuple[Array, Array, Array]:
    """Where each event belongs.

    Returns:
        row (E,) int32 of each event, times (N,) of the rows in hours, lengths (n,) rows of each stay.
    """
    minutes, offset = raw["time_min"], raw["offset"].astype(np.int64)
    bins = np.rint(np.arange(2**16) / 60 / BIN_HOURS).astype(np.uint16)[minutes]
    events = np.diff(offset)
    starts = offset[:-1][events > 0]
    new = np.ones(len(bins), bool)  # the first event of a row
    new[1:] = bins[1:] != bins[:-1]
    new[starts] = True
    back = minutes[1:] < minutes[:-1]
    back[starts[1:] - 1] = False  # from one stay to the next
    if back.any() or not np.isfinite(raw["value"]).all():
        raise DataError("expected finite values, in order of time within a stay. Pack the original files again.")

    late = np.ones(len(events), bool)  # nothing was charted at 0: such a stay gets an empty row there
    late[events > 0] = bins[starts] > 0
    before = np.concatenate([[0], np.cumsum(new)])
    lengths = np.diff(before[offset]) + late
    row = np.cumsum(new, dtype=np.int32)
    row += np.repeat(np.cumsum(late, dtype=np.int32) - 1, events)
    times = np.zeros(int(lengths.sum()))
    times[row[new]] = bins[new] / 10  # the number nearest to 0.1 h times the bin
    return row, times, lengths


def _merge(cell: Array, value: Array, cells: int) -> tuple[Array, Array]:
    """The cells with a reading, each once, and the mean of its readings in float64."""
    order = np.arange(len(cell), dtype=np.int32)
    last = np.empty(cells, np.int32)
    last[cell] = order
    stands = last[cell]  # (E,) the reading that stands for all of its cell
    del last
    kept = stands == order
    mean = np.bincount(stands, value)[kept]
    mean /= np.bincount(stands)[kept]
    return cell[kept], mean


def _scale(value: Array, channel: Array, part: Array, scaling: Scaling) -> None:
    """Scale observed values in place; each has its channel and the part of its stay."""
    shift, scale = np.zeros((3, len(CHANNELS))), np.ones((3, len(CHANNELS)))
    for p in range(3):
        mine = part == (p if scaling == "published" else 0)
        shift[p], scale[p] = _statistics(value[mine], channel[mine], scaling)
    group = part * np.uint8(len(CHANNELS)) + channel
    value -= shift.reshape(-1)[group]
    value /= scale.reshape(-1)[group]


def _statistics(value: Array, channel: Array, scaling: Scaling) -> tuple[Array, Array]:
    """Shift (37,) and scale (37,) by some of the observed values."""
    width = len(CHANNELS)
    if scaling == "standard":
        count = np.maximum(np.bincount(channel, minlength=width), 1)
        mean = np.bincount(channel, value, width) / count
        deviation = np.sqrt(np.bincount(channel, np.square(value - mean[channel]), width) / count)
        return mean, np.where(deviation > 0, deviation, 1.0)
    zeros_count = scaling == "published"  # those of missing values
    low, high = np.full(width, 0.0 if zeros_count else np.inf), np.full(width, 0.0 if zeros_count else -np.inf)
    np.minimum.at(low, channel, value)
    np.maximum.at(high, channel, value)
    if zeros_count:
        return low, np.where(high == 0, 1.0, high) - low
    low, high = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 1.0)
    return low, np.where(high > low, high - low, 1.0)


def _static(raw: Raw) -> pd.DataFrame:
    """Age, Gender, Height and ICUType of each stay, NaN if unknown; of several values the last."""
    import pandas as pd

    column = _positions(raw["param_names"], STATIC)[raw["param"]]
    events = np.flatnonzero(column >= 0)
    stay = np.searchsorted(raw["offset"], events, side="right") - 1
    table = np.full((len(raw["record_id"]), len(STATIC)), np.nan, np.float32)
    table[stay, column[events]] = raw["value"][events]
    table[table == -1] = np.nan
    return pd.DataFrame(table, index=raw["record_id"], columns=list(STATIC))


def _positions(names: Array, wanted: tuple[str, ...]) -> Array:
    """(41,) int8, where each parameter stands among the wanted ones, -1 if it does not."""
    return np.array([wanted.index(name) if name in wanted else -1 for name in names.tolist()], np.int8)


# -- from the owner's files to the raw arrays


def pack(files: Files) -> dict[str, Array]:
    """Raw arrays from set-a, set-b (folders or archives), Outcomes-a.txt and Outcomes-b.txt; set C is left out."""
    outcomes = _read_outcomes(files)
    stays: dict[int, tuple[Text, Array, Array, Array]] = {}
    for text in files.texts("[0-9]*.txt"):
        if "set-c" in text.name.lower():
            continue
        record, minutes, parameters, values = _read_stay(text)
        if record in stays:
            raise text.error(0, f"record {record} is also in {stays[record][0].name}; keep one of them.")
        if record not in outcomes:
            raise text.error(0, f"record {record} is not in Outcomes-a.txt or Outcomes-b.txt.")
        stays[record] = (text, minutes, parameters, values)
        text.lines.clear()  # thousands of files: only the numbers are kept
    if alone := sorted(outcomes.keys() - stays.keys()):
        raise DataError(f"{files.path}: {len(alone)} stays have an outcome but no file, among them {alone[:3]}.")

    records = sorted(outcomes, key=lambda record: (outcomes[record][0], record))
    events = [stays[record] for record in records]
    return {
        "record_id": np.array(records, np.int32),
        "set": np.array([outcomes[record][0] for record in records]),
        "offset": np.cumsum([0, *(len(minutes) for _, minutes, _, _ in events)], dtype=np.int32),
        "time_min": np.concatenate([minutes for _, minutes, _, _ in events]),
        "param": np.concatenate([parameters for _, _, parameters, _ in events]),
        "value": np.concatenate([values for _, _, _, values in events]),
        "param_names": np.array(PARAMETERS),
        "outcomes": np.array([outcomes[record][1] for record in records], np.int32),
        "outcome_names": np.array(OUTCOMES),
    }


def _read_outcomes(files: Files) -> dict[int, tuple[str, list[int]]]:
    """By record: the set, and the line of its outcomes."""
    found: dict[int, tuple[str, list[int]]] = {}
    for text in files.texts("outcomes-[ab].txt"):
        which = text.name.lower().removesuffix(".txt")[-1]
        for number, fields in _table(text, OUTCOMES):
            try:
                outcome = [int(field) for field in fields]
            except ValueError:
                raise text.error(number, f"expected six whole numbers, got {','.join(fields)!r}.") from None
            if outcome[0] in found:
                raise text.error(number, f"record {outcome[0]} has an outcome already.")
            if outcome[-1] not in (0, 1):
                raise text.error(number, f"expected In-hospital_death 0 or 1, got {outcome[-1]}.")
            found[outcome[0]] = (which, outcome)
    if not found:
        raise DataError(
            f"{files.path} holds neither Outcomes-a.txt nor Outcomes-b.txt, which say who belongs to a set."
        )
    return found


def _read_stay(text: Text) -> tuple[int, Array, Array, Array]:
    """RecordID, and of each event the minute, the parameter and the value."""
    position = {name: i for i, name in enumerate(PARAMETERS)}
    minutes: list[int] = []
    parameters: list[int] = []
    values: list[float] = []
    record: int | None = None
    for number, (time, name, value) in _table(text, ("Time", "Parameter", "Value")):
        minute = _minute(time)
        if minute is None:
            raise text.error(number, f"expected a time HH:MM up to 48:00, got {time!r}.")
        if name == "RecordID" and record is None and value.isdecimal():
            record = int(value)
            continue
        if name not in position:
            raise text.error(number, f"expected one RecordID or a parameter such as HR, got {name!r} with {value!r}.")
        if value.lower() in ("", "nan"):
            continue  # nothing was measured
        try:
            values.append(float(value))
        except ValueError:
            raise text.error(number, f"expected a number, got {value!r}.") from None
        if not math.isfinite(values[-1]) or (minutes and minute < minutes[-1]):
            raise text.error(number, f"expected finite values in order of time, got {value} at {time}.")
        minutes.append(minute)
        parameters.append(position[name])
    if record is None:
        raise text.error(len(text.lines) - 1, "expected a line 00:00,RecordID,<number>, got none.")
    return record, np.array(minutes, np.uint16), np.array(parameters, np.uint8), np.array(values, np.float32)


@lru_cache(maxsize=4096)
def _minute(time: str) -> int | None:
    """Minutes of HH:MM, None if it is no time of the two days."""
    clock = re.fullmatch(r"([0-4]\d):([0-5]\d)", time, re.ASCII)
    minute = 60 * int(clock[1]) + int(clock[2]) if clock else LAST_MINUTE + 1
    return minute if minute <= LAST_MINUTE else None


def _table(text: Text, header: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Line number and fields of all lines below the header; blank lines and comments do not count."""
    lines = [
        (number, line.strip().split(","))
        for number, line in enumerate(text.lines)
        if line.strip() and not line.startswith("#")
    ]
    if not lines or lines[0][1] != list(header):
        raise text.error(lines[0][0] if lines else 0, f"expected the header {','.join(header)}.")
    for number, fields in lines[1:]:
        if len(fields) != len(header):
            raise text.error(number, f"expected {len(header)} fields, got {len(fields)}: {text.lines[number]!r}.")
    return lines[1:]


_PLACE = "https://physionet.org/files/challenge-2012/1.0.0"

DATASET = Dataset(
    card=Card(
        name="physionet",
        title="PhysioNet/Computing in Cardiology Challenge 2012, sets A and B",
        page="https://physionet.org/content/challenge-2012/1.0.0/",
        licence="Open Data Commons Attribution License 1.0",
        citation=(
            "Silva, Moody, Scott, Celi, Mark: Predicting In-Hospital Mortality of ICU Patients: The "
            "PhysioNet/Computing in Cardiology Challenge 2012. Computing in Cardiology 39, 2012."
        ),
        series=STAYS,
        length="72.16 rows on average, over 48 hours",
        channels="37 vital signs and laboratory values",
        tasks=("extrapolate", "reconstruct", "interpolate", "classify"),
        scalings=("published", "minmax", "standard", "none"),
        options={"unobserved": ("rows", "query")},
        flaw="Artefacts are in the original (pH 735, Temp -17.8), and a Weight of -1 means unknown; all are kept.",
        raw=("physionet2012/physionet2012_ab.npz",),
        remotes=(
            Remote(
                url=f"{_PLACE}/set-a.tar.gz", sha256="8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920"
            ),
            Remote(
                url=f"{_PLACE}/set-b.tar.gz", sha256="b1637a2a423a8e76f8f087896cfc5fdf28f88519e1f4e874fbda69b2a64dac30"
            ),
            Remote(
                url=f"{_PLACE}/Outcomes-a.txt",
                sha256="2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2",
            ),
            Remote(
                url=f"{_PLACE}/Outcomes-b.txt",
                sha256="1305f29734da374a809483229a99f33a9230aa8d4fa74b1a2d6ad788136423d5",
            ),
        ),
        by_hand=(
            "Download set-a.tar.gz, set-b.tar.gz, Outcomes-a.txt and Outcomes-b.txt from the page into one folder, "
            "unpacked or not, then: lformer data pack physionet PATH"
        ),
    ),
    prepare=prepare,
    pack=pack,
    missing=missing,
)
