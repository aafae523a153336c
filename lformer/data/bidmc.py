"""BIDMC: heart rate, respiratory rate and oxygen saturation from 32 s of PPG and ECG (regression of long series).

53 recordings of 8 minutes from 46 patients in intensive care: the signals of a bedside monitor at 125 Hz, and the rates
that it displayed every second. A series is a window of 32 s, with 4,000 rows of PPG and ECG; its target is one rate in
its own unit: beats or breaths per minute, or per cent. There are two sources.

The windows of the regression archive (`BIDMC32HR_TRAIN.ts` and so on), which published results use:

| key | shape, dtype | meaning |
| --- | --- | --- |
| `X` | (n, 2, 4000) float32 | PPG and ECG |
| `y` | (n,) float32 | the target |
| `split` | (n,) str | TRAIN or TEST, as in the archive |

The recordings of PhysioNet, from which the same windows are cut here:

| key | shape, dtype | meaning |
| --- | --- | --- |
| `ppg`, `resp`, `ecg_ii` | (R, 60001) float32 | the signals; `resp`, the chest's impedance, is not used |
| `fs` | () int32 | 125, samples per second |
| `numerics` | (R, 481, 4) float32 | the values displayed by the monitor, once a second; NaN where there was none |
| `numerics_names` | (4,) str | HR, PULSE, RESP, SpO2 |
| `numerics_t0_s` | (R,) int32 | time of the first of them: 0, but -1 in bidmc23 |
| `record`, `age`, `gender`, `location`, `mimic2_subject` | (R,) str | of the patient; "90+", "NaN" and "?" occur |

How the archive cut its windows is not documented. We assume that its ECG is lead II; the following rules reproduce its
counts, 7,949 (HR, SpO2) and 7,870 (RR):

* A window starts every 3 s: 150 per recording, 7,950 in all. One of the archive's windows is known to start at 150 s of
  bidmc18.
* The target is the mean of the displayed values during the 32 s, ignoring seconds without a value.
* Windows with a mean of 0 are dropped: no breath was counted. These are 79 windows, all of bidmc13. The archive's RR
  has exactly 79 windows fewer than its HR, all in TRAIN (5,471 and 5,550 = 37 x 150).
* A window also needs a displayed value after its end. Only the last window of bidmc23, whose clock started a second
  early, lacks it. That this is the one window missing from the archive's TEST (2,399 = 16 x 150 - 1) is a guess.

With the value displayed at the window's end instead, there would be 7,949 (HR), 7,902 (RR) and 7,909 (SpO2) windows.

Published protocol (neural RDEs, RFormer, LFormer): TRAIN and TEST are merged, and a random permutation of the windows
is cut at 70 and 85 %, the same for all seeds (each publication has its own permutation; ours has the seed 0). Windows
overlap by 29 s and are spread over the parts, so nearly every test window was seen in training: published errors are
optimistic. `split="subject"` keeps the windows of a patient together, drawn by the seed of the request; it needs the
recordings, because the archive does not identify the patients.

Scaling: "published" is that of the neural RDEs, mean 0 and standard deviation 1 per channel by statistics of the
training windows, which is also "standard"; RFormer does not scale. Amplitudes differ between recordings: PPG reaches 4
in some and 1 in most. Targets are not scaled. Times are spread evenly over [0, 1] along a window. Windows of one
recording share their rows in the panel, which therefore needs 25 MB instead of 250. The id of a window contains its
recording and the second at which it starts, "bidmc18+150s"; patient, age and gender are not static covariates, because
published models see none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lformer import scaling, splitting
from lformer.data.dataset import Card, Dataset, Raw, Remote, Request
from lformer.data.files import DataError, Files, Text
from lformer.data.ts_format import read_ts
from lformer.panel import Panel
from lformer.parts import Prepared, Targets

Array = np.ndarray[Any, Any]

RECORDS = 53
RATE = 125  # samples per second
SAMPLES, SECONDS = 60_001, 481  # of a recording
LENGTH, DURATION, STRIDE = 4_000, 32, 3  # of a window: samples, seconds, seconds to the next
CHANNELS = ("PPG", "ECG")
SEED = 0

SIGNALS = {"ppg": "PLETH", "resp": "RESP", "ecg_ii": "II"}  # raw key and column
NUMERICS = ("HR", "PULSE", "RESP", "SpO2")
FIXED = {"age": "Age", "gender": "Gender", "location": "Location", "mimic2_subject": "MIMIC II matched wdb ID"}
RECORDINGS = "bidmc/bidmc.npz"
NUMBER = re.compile(r"bidmc_(\d+)_\w+\.\w+$", re.IGNORECASE)  # of a recording, in the name of its files


@dataclass(frozen=True, kw_only=True)
class _Target:
    """One of the three rates: its name in the archive, its column among the monitor's values, and counts."""

    archive: str
    column: str
    title: str
    windows: int
    zenodo: int

    @property
    def name(self) -> str:
        return self.archive.lower().replace("bidmc32", "bidmc-")

    @property
    def raw(self) -> str:
        return f"bidmc/{self.archive.lower()}.npz"


# -- from the original files to raw arrays


def _pack(target: _Target, files: Files) -> dict[str, Array]:
    """Pack the windows of the regression archive if they are there, else the recordings of PhysioNet."""
    return _pack_windows(target, files) or _pack_recordings(target, files)


def _pack_windows(target: _Target, files: Files) -> dict[str, Array]:
    """Raw arrays of the archive's windows; empty if there is no such file."""
    values, labels, split = [], [], []
    for part in ("TRAIN", "TEST"):
        texts = list(files.texts(f"{target.archive}_{part}.ts"))
        if len(texts) > 1:
            raise DataError(f"expected one {target.archive}_{part}.ts under {files.path}; found {len(texts)}.")
        for text in texts:
            windows = read_ts(text)
            if windows.values.shape[1:] != (len(CHANNELS), LENGTH) or windows.labels.dtype.kind != "f":
                raise DataError(
                    f"{text.name}: expected windows of 2 channels and {LENGTH:,} values with a number as target; got "
                    f"{windows.values.shape[1]} channels, {windows.values.shape[2]:,} values, {windows.labels.dtype}."
                )
            values.append(windows.values.astype(np.float32))
            labels.append(windows.labels.astype(np.float32))
            split += [part] * len(windows.labels)
            _all_finite(text, values[-1], labels[-1])
    if not values:
        return {}
    return {"X": np.concatenate(values), "y": np.concatenate(labels), "split": np.array(split)}


def _all_finite(text: Text, values: Array, labels: Array) -> None:
    bad = ~np.isfinite(values).all(axis=(1, 2)) | ~np.isfinite(labels)
    if bad.any():
        raise DataError(f"{text.name}: expected numbers only; window {int(np.argmax(bad)) + 1} has missing values.")


def _pack_recordings(target: _Target, files: Files) -> dict[str, Array]:
    signals = {number: _read_signals(text) for number, text in _record_files(files, "bidmc_*_Signals.csv")}
    numerics = {number: _read_numerics(text) for number, text in _record_files(files, "bidmc_*_Numerics.csv")}
    fixed = {number: _read_fixed(text) for number, text in _record_files(files, "bidmc_*_Fix.txt")}
    if not signals:
        raise DataError(
            f"expected {target.archive}_TRAIN.ts and {target.archive}_TEST.ts of the regression archive, or "
            "bidmc_01_Signals.csv, bidmc_01_Numerics.csv, bidmc_01_Fix.txt and so on of PhysioNet; found neither under "
            f"{files.path}."
        )
    for number in sorted(signals.keys() | numerics.keys() | fixed.keys()):
        for name, found in (("Signals.csv", signals), ("Numerics.csv", numerics), ("Fix.txt", fixed)):
            if number not in found:
                raise DataError(
                    f"bidmc_{number}_{name} is missing under {files.path}; other files of this recording are there."
                )
    numbers = sorted(signals, key=int)
    return {
        "record": np.array([f"bidmc{number}" for number in numbers]),
        "fs": np.array(RATE, np.int32),
        **{key: np.stack([signals[number][key] for number in numbers]) for key in SIGNALS},
        "numerics": np.stack([numerics[number][1] for number in numbers]),
        "numerics_names": np.array(NUMERICS),
        "numerics_t0_s": np.array([numerics[number][0] for number in numbers], np.int32),
        **{key: np.array([fixed[number][key] for number in numbers]) for key in FIXED},
    }


def _record_files(files: Files, pattern: str) -> Iterator[tuple[str, Text]]:
    """The number of each recording, such as "07", and its file; each number occurs once."""
    seen: dict[str, str] = {}
    for text in files.texts(pattern):
        if (match := NUMBER.search(text.name)) is None:
            continue
        number = match[1]
        if number in seen:
            raise DataError(f"expected one {pattern} per recording; found {seen[number]} and {text.name}.")
        seen[number] = text.name
        yield number, text


def _read_signals(text: Text) -> dict[str, Array]:
    """PPG, respiration and ECG, (60001,) float32 each."""
    table, lines = _read_table(text, ["Time [s]", *SIGNALS.values()], SAMPLES)
    wrong = np.abs(table[:, 0] - np.arange(SAMPLES) / RATE) > 1 / RATE  # the file rounds times to five digits
    if wrong.any():
        at = int(np.argmax(wrong))
        raise text.error(lines[at], f"expected the sample at {at / RATE} s, got {table[at, 0]} s.")
    if (gap := ~np.isfinite(table).all(axis=1)).any():
        raise text.error(lines[int(np.argmax(gap))], "expected a number for each signal, got a missing value.")
    return {key: table[:, 1 + k].astype(np.float32) for k, key in enumerate(SIGNALS)}


def _read_numerics(text: Text) -> tuple[int, Array]:
    """The second of the first row, and the values, (481, 4) float32."""
    table, lines = _read_table(text, ["Time [s]", *NUMERICS], SECONDS)
    clock = table[:, 0]
    wrong = clock != np.rint(clock[0]) + np.arange(SECONDS)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise text.error(lines[at], f"expected whole seconds, one after the other; row {at + 1} is at {clock[at]}.")
    return int(clock[0]), table[:, 1:].astype(np.float32)


def _read_table(text: Text, columns: list[str], rows: int) -> tuple[Array, list[int]]:
    """Read columns of a file that begins with a line of names; it may have more columns, in any order.

    Returns:
        (rows, columns) float64, and the line of each row.
    """
    names = [name.strip() for name in text.lines[0].split(",")] if text.lines else []
    for column in columns:
        if names.count(column) != 1:
            raise text.error(0, f"expected one column {column!r}, got {', '.join(names) or 'an empty file'}.")
    lines = [line for line, content in enumerate(text.lines) if line and content.strip()]
    table = _numbers(text, lines, len(names))
    if len(table) != rows:
        raise text.error(max(len(text.lines) - 1, 0), f"expected {rows:,} rows, got {len(table):,}. Download it again.")
    return table[:, [names.index(column) for column in columns]], lines


def _numbers(text: Text, lines: list[int], width: int) -> Array:
    """(lines, width) float64."""
    if not lines:
        return np.zeros((0, width))
    try:
        table = np.loadtxt([text.lines[line] for line in lines], delimiter=",", ndmin=2, comments=None)
    except ValueError:
        table = np.zeros((0, 0))
    if table.shape == (len(lines), width):
        return table
    for line in lines:  # slow, but finds the place of the error
        cells = text.lines[line].split(",")
        if len(cells) != width or not all(map(_is_number, cells)):
            raise text.error(line, f"expected {width} numbers separated by commas, got {text.lines[line][:80]!r}.")
    raise text.error(lines[0], f"expected {width} numbers separated by commas in every row.")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_fixed(text: Text) -> dict[str, str]:
    """Read age, gender, ward and patient."""
    said = dict(line.split(":", 1) for line in text.lines if ":" in line)
    for name in FIXED.values():
        if not said.get(name, "").strip():
            raise text.error(
                max(len(text.lines) - 1, 0), f"expected a line '{name}: ...' before the end of the file, got none."
            )
    return {key: said[name].strip() for key, name in FIXED.items()}


def _raw_name(target: _Target, arrays: Raw) -> str:
    """Name of the raw file: one per target for the archive's windows, one for all targets for the recordings."""
    return target.raw if "X" in arrays else RECORDINGS


def _missing(target: _Target, raw: Raw) -> str:
    if "X" in raw:
        lacks = "" if (found := len(raw["y"])) >= target.windows else f"{found:,} of {target.windows:,} windows"
        parts = set(raw["split"].tolist())
        return lacks + (f" (the archive's {parts.pop()} half only)" if lacks and len(parts) == 1 else "")
    found = len(raw["record"])
    return "" if found >= RECORDS else f"{found} of {RECORDS} recordings"


# -- from raw arrays to the prepared set


def _prepare(target: _Target, raw: Raw, request: Request) -> Prepared:
    """Windows, targets and parts, as described above."""
    panel, values = _archive_windows(raw) if "X" in raw else _recorded_windows(target, raw)
    train, validation, test = _split(target, raw, panel, request)
    published = request.scaling == "published"
    return Prepared(
        panel=scaling.scaled(panel, train, "standard" if published else request.scaling),
        targets=Targets(values=values[:, None].astype(np.float32), at="series"),
        train=train,
        validation=validation,
        test=test,
    )


def _archive_windows(raw: Raw) -> tuple[Panel, Array]:
    """The archive's windows as they are, and their targets (n,)."""
    windows = raw["X"]
    values = windows.transpose(0, 2, 1).reshape(-1, len(CHANNELS))
    times = np.tile(np.linspace(0, 1, LENGTH), len(windows))
    lengths = np.full(len(windows), LENGTH)
    return Panel.build(times, values, lengths, channels=CHANNELS, unit="window"), raw["y"]


def _recorded_windows(target: _Target, raw: Raw) -> tuple[Panel, Array]:
    """Windows cut from the recordings, recording by recording, and their targets (n,)."""
    ppg, ecg, names = raw["ppg"], raw["ecg_ii"], raw["record"]
    records, samples = ppg.shape
    starts = np.arange(0, samples - LENGTH + 1, STRIDE * RATE)  # in samples
    rates = raw["numerics"][:, :, raw["numerics_names"].tolist().index(target.column)]
    means = _window_means(rates, raw["numerics_t0_s"], starts // RATE)
    record, window = np.nonzero(means > 0)  # False for NaN as well
    ids = np.array([f"{name}+{STRIDE * k:03d}s" for name, k in zip(names[record], window, strict=True)])
    panel = Panel.build(
        np.tile(np.arange(samples) / (LENGTH - 1), records),
        np.stack([ppg, ecg], axis=-1).reshape(-1, len(CHANNELS)),
        np.full(len(record), LENGTH),
        first=record * samples + starts[window],
        ids=ids,
        channels=CHANNELS,
        unit="window",
    )
    return panel, means[record, window]


def _window_means(rates: Array, t0: Array, starts: Array) -> Array:
    """Mean of the displayed values during each window.

    Args:
        rates: (R, T) values, one per second.
        t0: (R,) second of the first value.
        starts: (K,) second in which each window begins.

    Returns:
        (R, K) float64; NaN if no value was displayed in the window, or the values end with it.
    """
    at = starts[None, :, None] + np.arange(DURATION + 2) - t0[:, None, None]  # (R, K, 34), to a second after the end
    inside = (at >= 0) & (at < rates.shape[1])
    shown = np.take_along_axis(rates[:, None, :], np.where(inside, at, 0), axis=2)
    seen = (inside & ~np.isnan(shown))[:, :, :DURATION]
    total = np.sum(shown[:, :, :DURATION], axis=2, where=seen, dtype=np.float64)
    count = seen.sum(axis=2)
    return np.where(inside[:, :, -1] & (count > 0), total / np.maximum(count, 1), np.nan)


def _split(target: _Target, raw: Raw, panel: Panel, request: Request) -> tuple[Array, Array, Array]:
    if request.split == "published":
        return splitting.cut(len(panel), SEED)
    if "X" in raw:
        raise DataError(
            f"{target.name} by subject needs the recordings of PhysioNet, {RECORDINGS}. The archive's windows, "
            f"{target.raw}, take precedence if they exist, and do not identify the patients: move that file away, or "
            "use split='published'."
        )
    record = panel.first // raw["ppg"].shape[1]  # the recording of each window
    return splitting.by_group(raw["mimic2_subject"][record], request.seed)


def _dataset(target: _Target) -> Dataset:
    card = Card(
        name=target.name,
        title=f"BIDMC PPG and Respiration, {target.title} ({target.archive})",
        page="https://physionet.org/content/bidmc/1.0.0/",
        licence="Open Data Commons Attribution License 1.0; the archive's windows CC BY 4.0",
        citation=(
            "M. Pimentel et al., Toward a robust estimation of respiratory rate from pulse oximeters, IEEE TBME 2016; "
            "windows: C. W. Tan et al., Time series extrinsic regression, DMKD 2021"
        ),
        series=target.windows,
        length="4,000",
        channels="2: PPG and ECG",
        tasks=("regress",),
        splits=("published", "subject"),
        scalings=("published", "none", "standard", "minmax"),
        flaw=(
            "Windows overlap by 29 s, and the published split assigns each at random, so nearly every test window was "
            "seen in training; split='subject' keeps patients apart."
        ),
        raw=(target.raw, RECORDINGS),
        remotes=(
            Remote(
                url="https://physionet.org/static/published-projects/bidmc/bidmc-ppg-and-respiration-dataset-1.0.0.zip"
            ),
        ),
        by_hand=(
            "Download the zip of https://physionet.org/content/bidmc/1.0.0/ or, for the windows of published results, "
            f"{target.archive}_TRAIN.ts and {target.archive}_TEST.ts from "
            f"https://zenodo.org/records/{target.zenodo} (the whole archive: https://zenodo.org/records/3902651), "
            f"then run `lformer data pack {target.name} PATH`."
        ),
    )
    return Dataset(
        card=card,
        prepare=partial(_prepare, target),
        pack=partial(_pack, target),
        missing=partial(_missing, target),
        name_raw=partial(_raw_name, target),
        version=2,
    )


HR = _dataset(
    _Target(archive="BIDMC32HR", column="HR", title="heart rate", windows=7_949, zenodo=4001456),
)
RR = _dataset(
    _Target(archive="BIDMC32RR", column="RESP", title="respiratory rate", windows=7_870, zenodo=4001463),
)
SPO2 = _dataset(
    _Target(archive="BIDMC32SpO2", column="SpO2", title="oxygen saturation", windows=7_949, zenodo=4001464),
)
