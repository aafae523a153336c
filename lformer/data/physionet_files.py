"""The files of the PhysioNet Challenge 2012 as published: a text file per stay, and a table of outcomes per set."""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np

from lformer.data.dataset import Array
from lformer.data.files import DataError, Files, Text

STATIC = ("Age", "Gender", "Height", "ICUType")
CHANNELS = (
    "Weight", "GCS", "HR", "NIDiasABP", "NIMAP", "NISysABP", "RespRate", "Temp", "Urine", "HCT", "BUN", "Creatinine",
    "Glucose", "HCO3", "Mg", "Platelets", "K", "Na", "WBC", "pH", "PaCO2", "PaO2", "DiasABP", "FiO2", "MAP", "MechVent",
    "SysABP", "SaO2", "Albumin", "ALP", "ALT", "AST", "Bilirubin", "Lactate", "Cholesterol", "TroponinI", "TroponinT",
)  # fmt: skip
PARAMETERS = STATIC + CHANNELS
OUTCOMES = ("RecordID", "SAPS-I", "SOFA", "Length_of_stay", "Survival", "In-hospital_death")
UNKNOWN = -9  # in the outcome columns of a stay of set C without an outcome
LAST_MINUTE = 2880
SET_C = "physionet2012_c"  # stem of the raw file of set C

Outcome = tuple[str, list[int]]  # set, and the line of the table
Stay = tuple[Text, Array, Array, Array]  # file, and the minute, parameter and value of each event


def pack(files: Files) -> dict[str, Array]:
    """Raw arrays from set-a, set-b and set-c (folders or archives), Outcomes-a.txt, Outcomes-b.txt and Outcomes-c.txt.

    Those of set C, an extra file, have its stem as a prefix; without Outcomes-c.txt, set C is left out.
    """
    outcomes = _read_outcomes(files)
    stays = _read_stays(files, outcomes)
    of_set = {which: sorted(record for record in outcomes if outcomes[record][0] == which) for which in "abc"}
    if not stays.keys() & set(of_set["c"]):
        of_set["c"] = []  # outcomes without stays do not count
    main = of_set["a"] + of_set["b"]
    if alone := sorted(set(main + of_set["c"]) - stays.keys()):
        raise DataError(f"{files.path}: {len(alone)} stays have an outcome but no file, among them {alone[:3]}.")
    packed: dict[str, Array] = {}
    if main:
        packed = _arrays(main, stays, outcomes) | {"set": np.array([outcomes[record][0] for record in main])}
    if of_set["c"]:
        packed |= {f"{SET_C}/{name}": array for name, array in _arrays(of_set["c"], stays, outcomes).items()}
    if not packed:
        raise DataError(f"{files.path} contains Outcomes-c.txt, but no stay of set-c.")
    return packed


def _arrays(records: list[int], stays: dict[int, Stay], outcomes: dict[int, Outcome]) -> dict[str, Array]:
    """The raw arrays of some stays, in the order of the records."""
    events = [stays[record] for record in records]
    return {
        "record_id": np.array(records, np.int32),
        "offset": np.cumsum([0, *(len(minutes) for _, minutes, _, _ in events)], dtype=np.int32),
        "time_min": np.concatenate([minutes for _, minutes, _, _ in events]),
        "param": np.concatenate([parameters for _, _, parameters, _ in events]),
        "value": np.concatenate([values for _, _, _, values in events]),
        "param_names": np.array(PARAMETERS),
        "outcomes": np.array([outcomes[record][1] for record in records], np.int32),
        "outcome_names": np.array(OUTCOMES),
    }


def _read_outcomes(files: Files) -> dict[int, Outcome]:
    """The outcomes by record."""
    found: dict[int, Outcome] = {}
    for text in files.texts("outcomes-[abc].txt"):
        which = text.name.lower().removesuffix(".txt")[-1]
        known = (0, 1, UNKNOWN) if which == "c" else (0, 1)
        for number, fields in _table(text, OUTCOMES):
            try:
                outcome = [int(field) for field in fields]
            except ValueError:
                raise text.error(number, f"expected six whole numbers, got {','.join(fields)!r}.") from None
            if outcome[0] in found:
                raise text.error(number, f"record {outcome[0]} already has an outcome.")
            if outcome[-1] not in known:
                raise text.error(number, f"expected In-hospital_death 0 or 1, got {outcome[-1]}.")
            found[outcome[0]] = (which, outcome)
    if not found:
        raise DataError(
            f"{files.path} contains neither Outcomes-a.txt nor Outcomes-b.txt nor Outcomes-c.txt, which list the stays "
            "of each set."
        )
    return found


def _read_stays(files: Files, outcomes: dict[int, Outcome]) -> dict[int, Stay]:
    """The stays by record. A stay of set C without an outcome gets unknown ones if the set has outcomes at all."""
    with_c = any(which == "c" for which, _ in outcomes.values())
    stays: dict[int, Stay] = {}
    for text in files.texts("[0-9]*.txt"):
        record, minutes, parameters, values = _read_stay(text)
        if record in stays:
            raise text.error(0, f"record {record} is also in {stays[record][0].name}; keep one of them.")
        if record not in outcomes:
            if "set-c" not in text.name.lower():
                raise text.error(0, f"record {record} is not in Outcomes-a.txt or Outcomes-b.txt.")
            if not with_c:
                continue
            outcomes[record] = ("c", [record, *[UNKNOWN] * (len(OUTCOMES) - 1)])
        stays[record] = (text, minutes, parameters, values)
        text.lines.clear()  # there are thousands of files: keep only the numbers
    return stays


def _read_stay(text: Text) -> tuple[int, Array, Array, Array]:
    """The RecordID, and the minute, parameter and value of each event."""
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
    """Minutes of HH:MM, None if it is not a time of the two days."""
    clock = re.fullmatch(r"([0-4]\d):([0-5]\d)", time, re.ASCII)
    minute = 60 * int(clock[1]) + int(clock[2]) if clock else LAST_MINUTE + 1
    return minute if minute <= LAST_MINUTE else None


def _table(text: Text, header: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Line number and fields of all lines below the header, except blank lines and comments."""
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
