"""PhysioNet Challenge 2012: two days in intensive care, with 37 variables recorded whenever they were measured.

Raw arrays (`physionet2012/physionet2012_ab.npz`), every line of the 8,000 files of sets A and B, in their order:

    record_id      (8000,) int32     RecordID, ascending within a set
    set            (8000,) str       "a" or "b"
    offset         (8001,) int32     the events of stay i are offset[i] to offset[i + 1]
    time_min       (E,) uint16       minutes since admission, 0 to 2880, never decreasing within a stay
    param          (E,) uint8        index into param_names
    value          (E,) float32      in the units of the challenge, not cleaned
    param_names    (41,) str         Age, Gender, Height and ICUType first
    outcomes       (8000, 6) int32   columns outcome_names: RecordID, SAPS-I, SOFA, Length_of_stay, Survival,
                                     In-hospital_death

Set C (`physionet2012/physionet2012_c.npz`): the same for its 4,000 stays, without `set`. A stay without an outcome has
-9 in every column but the first; in the copy that P12 is made of, these are two, 155655 and 156254.

The published splits of P12 (`physionet2012/p12_splits.npz`):

    record_id      (11988,) int32    stays of sets A, B and C, each once
    split          (11988, 5) int8   the part of a stay in each of five splits: 0 training, 1 validation, 2 test

Raindrop publishes them as `phy12_split1.npy` to `phy12_split5.npy`, three lists of positions in its `arr_outcomes.npy`,
whose first column is the RecordID. These are pickled objects, which can run code, so they are never read here.

Protocol (CRU and ACSSM, after latent ODE). Times are rounded to 0.1 h, `rint(hours / 0.1)`; a series has a row for each
distinct time and always one at 0, which makes 72.16 rows on average. Several measurements of a variable in one row are
averaged. The four descriptors are not channels, which leaves 37. Weight remains a channel, and its -1 for "unknown"
remains a value, as published. The option `resolution="minute"` keeps times as recorded, with a row for each minute.

Splits. "published": a fifth of the stays is held out for test, then a quarter of the rest for validation: 4,800 / 1,600
/ 1,600, always the same. The published code uses the stays in the order in which a file system lists them; ours is that
of the raw arrays. Two more are for in-hospital mortality. "folds": five stratified folds of sets A and B; the seed
chooses the test fold, (seed - 42) mod 5, and draws 15 % of each class of the rest for validation. "p12": the five
splits of 11,988 stays of sets A, B and C, 9,590 / 1,199 / 1,199, used by Raindrop and later publications; the seed
chooses one, (seed - 42) mod 5. Twelve stays in which only a weight was recorded are in none of them, including the two
without an outcome. One more is for extrapolation. "tpatchgnn": the protocol of t-PatchGNN and publications that compare
with it: all 12,000 stays of sets A, B and C, a random fifth for test and a quarter of the rest for validation, drawn by
the seed. The publication has a single split, that of seed 42, of stays in the order in which a file system lists them.
Times are as recorded, whatever `resolution` is; only rows from 24 h on are to be predicted; and the first metric is the
mean over channels of the error of each.

Scalings. "published": `(x - min) / (max - min)` per channel, where the training, validation and test set each use the
extremes of their own values, including the zeros that stand for missing values; a maximum of 0 is replaced by 1. With
"tpatchgnn", all sets use the extremes of the observed training and validation values. "minmax" and "standard" use the
observed values of the training set. "none": as recorded.

Tasks. "extrapolate": the rows before 24 h are given, and all rows are to be predicted. "reconstruct": all rows are
given and to be predicted, which published tables call interpolation. "interpolate": half of the rows of each stay,
drawn by the seed, are hidden. "classify": in-hospital mortality from all rows. With the option `unobserved`, hidden
rows either remain as empty rows, as published ("rows"), or become queries, of which only the time is known ("query").

Static covariates, only for "classify", because published models of the other tasks have none: Age, Gender (1 male, 0
female) and Height are numbers, NaN where the challenge has -1; ICUType is text, "unit 1" (coronary care), "unit 2"
(cardiac surgery recovery), "unit 3" (medical) or "unit 4" (surgical). The option `covariates="without"` leaves them
out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lformer import scaling, splitting
from lformer.data.dataset import Array, Card, Dataset, Extra, Raw, Remote, Request
from lformer.data.files import DataError
from lformer.data.physionet_files import CHANNELS, SET_C, STATIC, pack
from lformer.hiding import hide, random_rows, reconstruct
from lformer.panel import Panel
from lformer.parts import Prepared, Targets

if TYPE_CHECKING:
    import pandas as pd

P12 = "p12_splits"  # stem of the raw file of the published splits
TPATCHGNN = "tpatchgnn"
SPLITS_OF = {"extrapolate": (TPATCHGNN,), "classify": ("folds", "p12")}  # besides "published", which all tasks have
EVENTS = ("time_min", "param", "value")  # arrays with an entry for each event
KEYS = (*EVENTS, "record_id", "offset", "param_names", "outcomes", "outcome_names")
STAYS, P12_STAYS, ALL_STAYS = 8000, 11_988, 12_000
FOLDS, FIRST_SEED = 5, 42
BIN_HOURS, CUT_HOURS = 0.1, 24.0

Parts = tuple[Array, Array, Array]


def check(request: Request) -> None:
    """Refuse a split with a task that it is not for: all splits except the published one are for one task only."""
    own = SPLITS_OF.get(request.task, ())
    if request.split != "published" and request.split not in own:
        of = next(task for task, splits in SPLITS_OF.items() if request.split in splits)
        has = " or ".join(f"split={split!r}" for split in ("published", *own))
        raise ValueError(f"split={request.split!r} of physionet is for {of} only; {request.task} has {has}.")


def prepare(raw: Raw, request: Request) -> Prepared:
    """The stays as a panel, with the targets of a task."""
    stays = _stays(raw, request.split)
    train, validation, test = _split(raw, stays, request)
    part = np.zeros(len(stays["record_id"]), np.uint8)  # of each stay: 0 training, 1 validation, 2 test
    part[validation], part[test] = 1, 2
    panel = _panel(stays, part, request)
    if _by_seen_extremes(request):
        panel = scaling.scaled(panel, np.concatenate([train, validation]), "minmax")
    else:
        panel = scaling.scaled(panel, train, request.scaling)
    panel, targets = _task(panel, stays, request)
    return Prepared(panel=panel, targets=targets, train=train, validation=validation, test=test)


def missing(raw: Raw) -> str:
    """What is missing of 8,000 stays, of 12,000 with set C, or of 11,988 with the splits of P12."""
    found, of = len(raw["record_id"]), STAYS
    if f"{SET_C}/record_id" in raw:
        found, of = found + len(raw[f"{SET_C}/record_id"]), ALL_STAYS
    if f"{P12}/record_id" in raw:
        here = np.concatenate([raw["record_id"], raw[f"{SET_C}/record_id"]])
        found, of = int(np.isin(here, raw[f"{P12}/record_id"]).sum()), P12_STAYS
    return "" if found == of else f"{found:,} of {of:,} stays"


# -- the stays, and their split


def _stays(raw: Raw, split: str) -> dict[str, Array]:
    """The arrays of the stays that a split includes."""
    stays = {name: raw[name] for name in KEYS}  # each access reads an array from the file
    if split not in ("p12", TPATCHGNN):
        return stays
    joined = _joined(stays, {name: raw[f"{SET_C}/{name}"] for name in KEYS})
    if split == TPATCHGNN:
        return joined
    return _selected(joined, np.isin(joined["record_id"], raw[f"{P12}/record_id"]))


def _joined(one: dict[str, Array], other: dict[str, Array]) -> dict[str, Array]:
    """The stays of two files, concatenated."""
    for name in ("param_names", "outcome_names"):
        if not np.array_equal(one[name], other[name]):
            raise DataError(f"{SET_C}: expected the {name} of sets A and B, got {other[name].tolist()}. Pack it again.")
    flat = {name: np.concatenate([one[name], other[name]]) for name in (*EVENTS, "record_id", "outcomes")}
    return {**one, **flat, "offset": np.concatenate([one["offset"], one["offset"][-1] + other["offset"][1:]])}


def _selected(stays: dict[str, Array], kept: Array) -> dict[str, Array]:
    """Some of the stays, chosen by the booleans `kept` (n,)."""
    events = np.diff(stays["offset"])
    of_kept = np.repeat(kept, events)
    chosen = {name: stays[name][kept] for name in ("record_id", "outcomes")}
    chosen |= {name: stays[name][of_kept] for name in EVENTS}
    return {**stays, **chosen, "offset": np.concatenate([[0], np.cumsum(events[kept])])}


def _split(raw: Raw, stays: Raw, request: Request) -> Parts:
    """Positions of the training, validation and test stays."""
    if request.split == "published":
        return splitting.hold_out_twice(len(stays["record_id"]), 0.2, 0.25, seeds=(0, 0))
    if request.split == TPATCHGNN:
        rest, test = splitting.hold_out(len(stays["record_id"]), 0.2, request.seed)
        seen = int(0.75 * len(rest))
        return rest[:seen], rest[seen:], test
    turn = (request.seed - FIRST_SEED) % FOLDS
    if request.split == "folds":
        died = _died(stays)
        fold = splitting.stratified_folds(died, FOLDS, seed=1)
        rest = np.flatnonzero(fold != turn)
        train, validation = splitting.hold_out_stratified(died[rest], 0.15, request.seed)
        return rest[train], rest[validation], np.flatnonzero(fold == turn)
    records, split = raw[f"{P12}/record_id"].tolist(), raw[f"{P12}/split"][:, turn].tolist()
    part_of = dict(zip(records, split, strict=True))
    part = np.array([part_of[record] for record in stays["record_id"].tolist()])
    return np.flatnonzero(part == 0), np.flatnonzero(part == 1), np.flatnonzero(part == 2)


def _died(stays: Raw) -> Array:
    """(n,) int64, 1 for those who died in hospital."""
    died = stays["outcomes"][:, stays["outcome_names"].tolist().index("In-hospital_death")].astype(np.int64)
    if (unknown := ~np.isin(died, (0, 1))).any():
        stay = stays["record_id"][unknown][0]
        raise DataError(f"expected In-hospital_death 0 or 1, got {died[unknown][0]} for stay {stay}.")
    return died


# -- from the raw arrays to a panel


def _task(panel: Panel, stays: Raw, request: Request) -> tuple[Panel, Targets]:
    if request.task == "classify":
        if request.options["covariates"] == "with":
            panel = replace(panel, static=_static(stays))
        return panel, Targets(values=_died(stays), at="series")
    if request.task == "reconstruct":
        return panel, reconstruct(panel)
    late = request.task == "extrapolate"
    hidden = panel.times >= CUT_HOURS if late else random_rows(panel, 0.5, request.seed)
    panel, targets = hide(panel, hidden, request.options["unobserved"])
    if request.split == TPATCHGNN:
        assert targets.observed is not None
        assert targets.given is not None
        targets = replace(targets, observed=targets.observed & ~targets.given)
    return panel, targets


def _by_seen_extremes(request: Request) -> bool:
    """Whether all parts are scaled by the training and validation values, as in t-PatchGNN."""
    return request.split == TPATCHGNN and request.scaling == "published"


def _panel(raw: Raw, part: Array, request: Request) -> Panel:
    """A panel of all stays; values are scaled if each part has its own scale."""
    resolution = "minute" if request.split == TPATCHGNN else request.options["resolution"]
    row, times, lengths = _rows(raw, resolution)
    channel = _positions(raw["param_names"], CHANNELS)[raw["param"]]
    charted = channel >= 0
    channel, value = channel[charted], raw["value"][charted]
    cell = row[charted]  # becomes the position of each measurement in the flattened (N, 37) values
    del row, charted
    cell *= len(CHANNELS)
    cell += channel
    del channel

    cell, mean = _merge(cell, value, len(times) * len(CHANNELS))
    del value
    if request.scaling == "published" and not _by_seen_extremes(request):
        owner = np.repeat(part, lengths)[cell // len(CHANNELS)]
        _scale_parts(mean, (cell % len(CHANNELS)).astype(np.uint8), owner)
    mean = mean.astype(np.float32)
    values, observed = np.zeros((len(times), len(CHANNELS)), np.float32), np.zeros((len(times), len(CHANNELS)), bool)
    values.reshape(-1)[cell] = mean
    observed.reshape(-1)[cell] = True
    return Panel(  # valid by construction: `Panel.build` would check it and copy the values
        times=times,
        values=values,
        observed=observed,
        first=np.cumsum(lengths) - lengths,
        lengths=lengths,
        ids=raw["record_id"],
        channels=CHANNELS,
        unit="h",
        origin=np.zeros(len(lengths)),
    )


def _rows(raw: Raw, resolution: str) -> tuple[Array, Array, Array]:
    """The row of each event, and the times of the rows.

    Args:
        raw: the stays.
        resolution: "0.1h" or "minute", the time resolution of rows.

    Returns:
        row (E,) int32 of each event, times (N,) of the rows in hours, lengths (n,) rows of each stay.
    """
    minutes, offset = raw["time_min"], raw["offset"].astype(np.int64)
    if resolution == "minute":
        bins, per_hour = minutes, 60
    else:
        bins, per_hour = np.rint(np.arange(2**16) / 60 / BIN_HOURS).astype(np.uint16)[minutes], 10
    events = np.diff(offset)
    starts = offset[:-1][events > 0]
    new = np.ones(len(bins), bool)  # the first event of a row
    new[1:] = bins[1:] != bins[:-1]
    new[starts] = True
    back = minutes[1:] < minutes[:-1]
    back[starts[1:] - 1] = False  # from one stay to the next
    if back.any() or not np.isfinite(raw["value"]).all():
        raise DataError("expected finite values, in order of time within a stay. Pack the original files again.")

    late = np.ones(len(events), bool)  # nothing was recorded at 0: such a stay gets an empty row there
    late[events > 0] = bins[starts] > 0
    before = np.concatenate([[0], np.cumsum(new)])
    lengths = np.diff(before[offset]) + late
    row = np.cumsum(new, dtype=np.int32)
    row += np.repeat(np.cumsum(late, dtype=np.int32) - 1, events)
    times = np.zeros(int(lengths.sum()))
    times[row[new]] = bins[new] / per_hour  # the nearest float, which a product would not be
    return row, times, lengths


def _merge(cell: Array, value: Array, cells: int) -> tuple[Array, Array]:
    """The cells with a measurement, each once, and the mean of their measurements in float64."""
    order = np.arange(len(cell), dtype=np.int32)
    last = np.empty(cells, np.int32)
    last[cell] = order
    stands = last[cell]  # (E,) the measurement that represents all those of its cell
    del last
    kept = stands == order
    mean = np.bincount(stands, value)[kept]
    mean /= np.bincount(stands)[kept]
    return cell[kept], mean


def _scale_parts(value: Array, channel: Array, part: Array) -> None:
    """Scale observed values as published, in place, given the channel and part of each."""
    group = part * np.uint8(len(CHANNELS)) + channel
    low, high = np.zeros(3 * len(CHANNELS)), np.zeros(3 * len(CHANNELS))  # with the zeros of missing values
    np.minimum.at(low, group, value)
    np.maximum.at(high, group, value)
    reach = np.where(high == 0, 1.0, high) - low
    value -= low[group]
    value /= reach[group]


def _static(stays: Raw) -> pd.DataFrame:
    """Age, Gender, Height and ICUType of each stay; the last value if there are several."""
    import pandas as pd

    column = _positions(stays["param_names"], STATIC)[stays["param"]]
    events = np.flatnonzero(column >= 0)
    stay = np.searchsorted(stays["offset"], events, side="right") - 1
    table = np.full((len(stays["record_id"]), len(STATIC)), np.nan, np.float32)
    table[stay, column[events]] = stays["value"][events]
    table[table == -1] = np.nan
    static = pd.DataFrame(table, index=stays["record_id"], columns=list(STATIC))
    kinds = [None if np.isnan(kind) else f"unit {kind:.0f}" for kind in static["ICUType"]]  # four kinds, not a quantity
    return static.assign(ICUType=kinds)


def _positions(names: Array, wanted: tuple[str, ...]) -> Array:
    """(41,) int8 position of each parameter among the wanted ones, -1 if it is not wanted."""
    return np.array([wanted.index(name) if name in wanted else -1 for name in names.tolist()], np.int8)


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
        metrics={
            "classify": ("auroc", "auprc"),  # one stay in seven ends in death, so accuracy is not informative
            f"extrapolate {TPATCHGNN}": ("mse_channels", "mse_unseen"),
        },
        splits=("published", "folds", "p12", TPATCHGNN),
        scalings=("published", "minmax", "standard", "robust", "none"),
        options={
            "unobserved": ("rows", "query"),
            "resolution": ("0.1h", "minute"),
            "covariates": ("with", "without"),
        },
        flaw="The original has artefacts (pH 735, Temp -17.8), and a Weight of -1 means unknown; all are kept.",
        raw=("physionet2012/physionet2012_ab.npz",),
        extras=(
            Extra(
                name=f"physionet2012/{SET_C}.npz",
                content="the 4,000 stays of set C",
                splits=("p12", TPATCHGNN),
                by_hand=(
                    "Download set-c.tar.gz and Outcomes-c.txt from the page into one folder, alone or together with "
                    "those of sets A and B, then: lformer data pack physionet PATH."
                ),
            ),
            Extra(
                name=f"physionet2012/{P12}.npz",
                content="the five published splits of P12",
                splits=("p12",),
                by_hand=(
                    "Write record_id (11988,) and split (11988, 5) with numpy.savez_compressed from phy12_split1.npy "
                    "to phy12_split5.npy and arr_outcomes.npy of https://github.com/mims-harvard/Raindrop, as the "
                    "docstring of lformer.data.physionet describes."
                ),
            ),
        ),
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
    check=check,
    pack=pack,
    missing=missing,
    version=2,
)
