"""Human Activity: the activity of a person at every moment, from the positions of four tags (row classification).

"Localization Data for Person Activity" of the UCI repository: 5 persons, 25 recordings of 3 to 5 minutes, and tags on
both ankles, chest and belt, each located seven or eight times a second, at its own times.

Raw arrays, with one entry per line of the original file, in its order:

| key | shape, dtype | meaning |
| --- | --- | --- |
| `sequence` | (N,) uint8 | index into `sequence_names`, the recordings A01 to E05; the letter is the person |
| `tag` | (N,) uint8 | index into `tag_ids` and `tag_names` |
| `ticks` | (N,) int64 | time stamp in units of 100 ns |
| `date_ms` | (N,) int32 | the date column, in ms since 2009-05-27 00:00; not used by `prepare` |
| `xyz` | (N, 3) float32 | position in metres |
| `activity` | (N,) uint8 | index into the 11 `activity_names` |

Protocol, as published for the latent ODE and used by mTAN, ACSSM and LFormer: times are relative to the first line of a
recording and rounded to bins of 10 ms. The lines of a bin form one row of 12 channels, x, y and z of each tag; a tag
that occurs twice is averaged, one that does not occur is 0 and not observed. A recording is cut into windows of 50
rows, each starting 25 rows after the previous one, as long as there is a row beyond the window: 6,554 windows. Values
stay in metres, so "published" is "none"; "standard" and "minmax" use statistics of the training set only. Every row has
one of 7 classes, see `CLASSES`; if lines of one bin disagree, the lowest class is used (this never happens). The split
is that of mTAN, 4,194 / 1,049 / 1,311, the same for all seeds. Neighbouring windows share half of their rows and may be
in different parts, so published accuracies are optimistic.

Times are in units of 211 bins, 2.11 s, the scale of the LFormer paper. Windows share their rows in the panel; once
batched, the times of a window count from its first row. The id of a window contains its recording, "A01/003"; person
and recording are not static covariates, because published models see neither.

Labels: the published code looks for "standing up from sit on grnd", but the file has "standing up from sitting on the
ground". Therefore these rows (2,848 lines, 1.7 %) get no label and count as class 0, walking. `labels="published"` does
the same, because published results use these labels; `labels="corrected"` assigns them to class 4, standing up.

Difference from the published code: in twelve places, the time stamp of a line is 5 ms before that of the previous line.
The published code keeps the order of the file, so times step back by 10 ms within 14 windows; we sort the rows of a
recording by time. Every window keeps its rows. Bins are computed in float64 like the published ones; with exact
integers, 52 lines would be in the neighbouring bin.
"""

from __future__ import annotations

import math
import re
from datetime import date
from functools import cache
from typing import Any

import numpy as np

from lformer import scaling, splitting
from lformer.data.dataset import Card, Dataset, Raw, Remote, Request
from lformer.data.files import DataError, Files, Text
from lformer.panel import Panel, runs
from lformer.parts import Prepared, Targets

Array = np.ndarray[Any, Any]

FILE = "ConfLongDemo_JSI.txt"
LINES, RECORDINGS, WINDOWS = 164_860, 25, 6_554

TAGS = {
    "010-000-024-033": "ANKLE_LEFT",
    "010-000-030-096": "ANKLE_RIGHT",
    "020-000-033-111": "CHEST",
    "020-000-032-221": "BELT",
}
CHANNELS = tuple(f"{tag}_{axis}" for tag in TAGS.values() for axis in "xyz")

CLASSES = ("walking", "falling", "lying", "sitting", "standing up", "on all fours", "sitting on the ground")
CLASS_OF = {
    "walking": 0,
    "falling": 1,
    "lying down": 2,
    "lying": 2,
    "sitting down": 3,
    "sitting": 3,
    "standing up from lying": 4,
    "on all fours": 5,
    "sitting on the ground": 6,
    "standing up from sitting": 4,
    "standing up from sitting on the ground": 4,
}  # in the order of the raw file's `activity_names`
MISSPELT = "standing up from sitting on the ground"

TICKS_PER_BIN = 1e5  # 10 ms
BINS_PER_UNIT = 211
WINDOW, STRIDE = 50, 25

DAY_0 = date(2009, 5, 27)
DATE = re.compile(r"(\d\d)\.(\d\d)\.(\d{4}) (\d\d):(\d\d):(\d\d):(\d{3})")


# -- from the original file to raw arrays


def pack(files: Files) -> dict[str, Array]:
    """Make the raw arrays from `ConfLongDemo_JSI.txt`."""
    text = files.only(FILE)
    tags, activities = ({name: k for k, name in enumerate(names)} for names in (TAGS, CLASS_OF))
    sequences: dict[str, int] = {}
    rows = []
    for line, content in enumerate(text.lines):
        if not content.strip() or content.startswith("#"):
            continue
        name, tag, ticks, stamp, x, y, z, activity = _fields(text, line, content)
        rows.append(
            (
                sequences.setdefault(name, len(sequences)),
                _index(text, line, "a tag", tag, tags),
                _ticks(text, line, ticks),
                _date_ms(text, line, stamp),
                (_metres(text, line, x), _metres(text, line, y), _metres(text, line, z)),
                _index(text, line, "an activity", activity, activities),
            )
        )
    if not rows:
        raise DataError(f"{text.name} is empty; expected {LINES:,} lines of comma-separated fields. Download it again.")
    sequence, tag_of, tick, ms, xyz, activity_of = zip(*rows, strict=True)
    return {
        "sequence": np.array(sequence, np.uint8),
        "sequence_names": np.array(list(sequences)),
        "tag": np.array(tag_of, np.uint8),
        "tag_ids": np.array(list(tags)),
        "tag_names": np.array(list(TAGS.values())),
        "ticks": np.array(tick, np.int64),
        "date_ms": np.array(ms, np.int32),
        "xyz": np.array(xyz, np.float32),
        "activity": np.array(activity_of, np.uint8),
        "activity_names": np.array(list(activities)),
    }


def _fields(text: Text, line: int, content: str) -> list[str]:
    fields = [field.strip() for field in content.split(",")]
    if len(fields) != 8:
        raise text.error(
            line,
            f"expected 8 fields (recording, tag, ticks, date, x, y, z, activity), got {len(fields)}: {content[:80]!r}.",
        )
    return fields


def _index(text: Text, line: int, what: str, found: str, known: dict[str, int]) -> int:
    if found not in known:
        raise text.error(line, f"expected {what}, one of {', '.join(known)}; got {found!r}.")
    return known[found]


def _ticks(text: Text, line: int, found: str) -> int:
    if not (found.isascii() and found.isdigit() and len(found) <= 18):  # 18 digits always fit into int64
        raise text.error(line, f"expected a time stamp in units of 100 ns, up to 18 digits; got {found!r}.")
    return int(found)


def _date_ms(text: Text, line: int, found: str) -> int:
    """Milliseconds since 2009-05-27 00:00."""
    match = DATE.fullmatch(found)
    try:
        if match is None:
            raise ValueError
        hour, minute, second, ms = map(int, match.groups()[3:])
        days = _days(*match.groups()[:3])
        if hour > 23 or minute > 59 or second > 59 or abs(days) > 20:  # int32 holds 24 days
            raise ValueError
    except ValueError:
        raise text.error(line, f"expected a date of May 2009 such as 27.05.2009 14:03:25:127, got {found!r}.") from None
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + ms


@cache
def _days(day: str, month: str, year: str) -> int:
    return (date(int(year), int(month), int(day)) - DAY_0).days


def _metres(text: Text, line: int, found: str) -> float:
    try:
        value = float(found)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise text.error(line, f"expected a position in metres, got {found!r}.")
    return value


def missing(raw: Raw) -> str:
    """What is missing from the raw arrays, which should hold 25 recordings."""
    if (lines := len(raw["sequence"])) < LINES:
        recordings = len(np.unique(raw["sequence"]))
        return f"{lines:,} of {LINES:,} lines, {recordings} of {RECORDINGS} recordings"
    return ""


# -- from raw arrays to the prepared set


def prepare(raw: Raw, request: Request) -> Prepared:
    """Windows of 50 rows with a class for every row, as described above."""
    names = raw["sequence_names"]
    recording, bins, row = _rows(raw["sequence"], raw["ticks"])
    values, observed = _positions(row, raw["tag"], raw["xyz"], len(bins))
    labels = _labels(row, raw["activity"], raw["activity_names"], len(bins), request.options.get("labels", "published"))
    first, place = _windows(recording)
    source = names[recording[first]]
    ids = np.array([f"{name}/{k:03d}" for name, k in zip(source, place, strict=True)])
    panel = Panel.build(
        bins / BINS_PER_UNIT,
        values,
        np.full(len(first), WINDOW),
        observed=observed,
        first=first,
        ids=ids,
        channels=CHANNELS,
        unit="2.11 s",
    )
    train, validation, test = splitting.hold_out_twice(len(panel), 0.2, 0.2, seeds=(42, 11))
    return Prepared(
        panel=scaling.scaled(panel, train, request.scaling),
        targets=Targets(values=labels, at="rows"),
        train=train,
        validation=validation,
        test=test,
    )


def _rows(sequence: Array, ticks: Array) -> tuple[Array, Array, Array]:
    """The rows of all recordings, recording by recording, sorted by time.

    Returns:
        recording (R,) and bin (R,) of each row, and the row (N,) of each line.
    """
    _, first, recording = np.unique(sequence, return_index=True, return_inverse=True)
    stamps = ticks.astype(np.float64)
    bins = np.rint((stamps - stamps[first][recording]) / TICKS_PER_BIN).astype(np.int64)
    lines = np.stack([sequence.astype(np.int64), bins], axis=1)
    rows, row = np.unique(lines, axis=0, return_inverse=True)
    return rows[:, 0], rows[:, 1], row


def _positions(row: Array, tag: Array, xyz: Array, rows: int) -> tuple[Array, Array]:
    """Mean position of each tag in each row, and whether it was observed: (R, 12) float32 and bool."""
    cell = row * len(TAGS) + tag
    cells = rows * len(TAGS)
    seen = np.bincount(cell, minlength=cells)
    total = np.stack([np.bincount(cell, weights=axis, minlength=cells) for axis in xyz.T], axis=1)
    mean = total / np.maximum(seen, 1)[:, None]
    observed = np.repeat(seen > 0, 3).reshape(rows, len(CHANNELS))
    return mean.reshape(rows, len(CHANNELS)).astype(np.float32), observed


def _labels(row: Array, activity: Array, names: Array, rows: int, rule: str) -> Array:
    """(R,) the lowest class among the lines of each row."""
    class_of = CLASS_OF | ({MISSPELT: 0} if rule == "published" else {})
    classes = np.array([class_of[name] for name in names.tolist()])[activity]
    lowest = np.full(rows, len(CLASSES))
    np.minimum.at(lowest, row, classes)
    return lowest


def _windows(recording: Array) -> tuple[Array, Array]:
    """The first row of each window, and the window's number within its recording."""
    _, start, length = np.unique(recording, return_index=True, return_counts=True)
    count = np.maximum(-((WINDOW - length) // STRIDE), 0)  # offsets 0, 25, ... below length - 50
    place = runs(np.zeros_like(count), count)
    return np.repeat(start, count) + STRIDE * place, place


DATASET = Dataset(
    card=Card(
        name="activity",
        title="Localization Data for Person Activity (Human Activity)",
        page="https://archive.ics.uci.edu/dataset/196/localization+data+for+person+activity",
        licence="CC BY 4.0",
        citation="B. Kaluza et al., An agent-based approach to care in independent living, AmI 2010",
        series=WINDOWS,
        length="50",
        channels="12: x, y, z of the tags at left ankle, right ankle, chest and belt",
        tasks=("classify-points",),
        scalings=("published", "none", "standard", "minmax"),
        options={"labels": ("published", "corrected")},
        flaw=(
            "The published labels count the activity 'standing up from sitting on the ground' (1.7 % of the lines) as "
            "walking, because of a misspelt name in the code that everybody uses; labels='corrected' does not. Windows "
            "of the training and test set overlap by half."
        ),
        raw=("human_activity/human_activity.npz",),
        remotes=(
            Remote(
                url=f"https://archive.ics.uci.edu/ml/machine-learning-databases/00196/{FILE}",
                md5="280a677ae0d673ec9a50ada480d8a529",
            ),
        ),
        by_hand=(
            "Download https://archive.ics.uci.edu/static/public/196/localization+data+for+person+activity.zip, which "
            f"holds {FILE}, then run `lformer data pack activity PATH`."
        ),
    ),
    prepare=prepare,
    pack=pack,
    missing=missing,
    version=2,
)
