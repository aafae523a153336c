"""Six sets of the UEA archive: EthanolConcentration, EigenWorms, Heartbeat, MotorImagery, SelfRegulationSCP1 and SCP2.

Raw arrays, n series of C channels and L time points:

| key | shape, dtype | meaning |
| --- | --- | --- |
| `X` | (n, C, L) float32 or float64 | the values; NaN where missing |
| or `X_e2`, `X_e6`, ... | (n, C, L) int16 or int32 | the values in hundredths, millionths, ..., exactly |
| or `X_32` | (n, C, L) int16 or int32 | the values in units of 1/32, exactly |
| `y` | (n,) int8 | index into `classes` |
| `classes` | (K,) str | names of the classes, sorted; not used by `prepare` |
| `split` | (n,) str | TRAIN or TEST, as in the archive; TRAIN first, each in the archive's order |

`X` may also have shape (n, L, C), as in the file of 448 of the 524 EthanolConcentration series, which has neither
`classes` nor `split`.

Protocol, as published for Log-NCDE and RFormer and followed for LFormer: training and test series are merged; of series
that are equal in all values, only the first is kept (EigenWorms loses 23, the others none); a random permutation is cut
at 70 and 85 %, redrawn for every seed. Values are not scaled, so "published" means the same as "none". Times are spread
evenly over [0, 1] and are not a channel. "standard" and "minmax" use statistics of the training set only.

`split="linoss"`: the sets on which the LinOSS paper reports results, for SCP1, SCP2 and EthanolConcentration and its
five seeds 2345, 3456, 4567, 5678 and 6789. They have the same sizes, but were drawn by different code. The benchmark's
seeds 42 to 46 stand for them in this order; everything else that depends on a seed, such as the weights, uses 42 to 46.
Raw arrays, in a separate file (`scp1/scp1_linoss_split.npz`), or as `linoss_split` and `seeds` in that of the 448
series:

| key | shape, dtype | meaning |
| --- | --- | --- |
| `split` | (n, 5) int8 | the part of each series for each seed: 0 training, 1 validation, 2 test |
| `seeds` | (5,) int64 | the seeds |

For EthanolConcentration, the validation and test sets (79 each) are complete, and 290 of the 366 training series are
among the 448.

Note: in MotorImagery, SCP1 and SCP2, the channels in the archive itself are faulty, see `Card.flaw`; published results
presumably use these faulty data, and so do ours.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from lformer import scaling, splitting
from lformer.data.dataset import Card, Dataset, Extra, Raw, Remote, Request
from lformer.data.files import DataError, Files, Text
from lformer.data.ts_format import Archive, read_arff, read_ts
from lformer.panel import Panel
from lformer.parts import Prepared, Targets

Array = np.ndarray[Any, Any]

PAPER = "A. Bagnall et al., The UEA multivariate time series classification archive, 2018, arXiv:1811.00075"
UNSTATED = "none stated; citation requested"
UNITS = {**{f"X_e{k}": 10**k for k in range(7)}, "X_32": 32}  # key of integer arrays: the integer that stands for 1

LINOSS_SEEDS = (2345, 3456, 4567, 5678, 6789)
OUR_SEEDS = (42, 43, 44, 45, 46)  # seeds of the benchmark that stand for them


@dataclass(frozen=True, kw_only=True)
class Source:
    """Description of one set in the archive."""

    name: str
    series: int
    channels: int
    length: int
    classes: int


# -- from the archive's files to raw arrays


def _pack(source: Source, files: Files) -> dict[str, Array]:
    """Make the raw arrays from both parts of a set in the archive."""
    train, test = (_read(source, part, files) for part in ("TRAIN", "TEST"))
    classes = sorted(train.classes)
    if classes != sorted(test.classes):
        raise DataError(f"{files.path}: TRAIN has the classes {train.classes}, but TEST has {test.classes}.")
    if len(train.labels) + len(test.labels) != source.series:
        raise DataError(
            f"{files.path}: expected {source.series} series of {source.name}, got {len(train.labels)} in TRAIN and "
            f"{len(test.labels)} in TEST. Download it again."
        )
    labels = np.concatenate([train.labels, test.labels])
    split = np.repeat(["TRAIN", "TEST"], [len(train.labels), len(test.labels)])
    values = np.concatenate([train.values, test.values])
    del train, test  # half a gigabyte of MotorImagery
    return {
        **_compact(values),
        "y": np.searchsorted(classes, labels).astype(np.int8),
        "classes": np.array(classes),
        "split": split,
    }


def _read(source: Source, part: str, files: Files) -> Archive:
    """Read TRAIN or TEST and check its shape."""
    archive = _first_form(source.name, part, files)
    found = (*archive.values.shape[1:], len(archive.classes))
    expected = (source.channels, source.length, source.classes)
    if found != expected:
        raise DataError(
            f"{files.path}: expected {source.name} {part} to have (channels, length, classes) {expected}, got {found}."
        )
    return archive


def _first_form(name: str, part: str, files: Files) -> Archive:
    """Read the first of the three formats that is there."""
    if text := _lone(f"{name}_{part}.ts", files):
        return read_ts(text)
    if text := _lone(f"{name}_{part}.arff", files):
        return read_arff([text])
    if texts := list(files.texts(f"{name}Dimension*_{part}.arff")):
        return read_arff(texts)
    raise DataError(
        f"expected {name}_{part}.ts, {name}_{part}.arff or {name}Dimension1_{part}.arff and so on under {files.path}; "
        "found none of them."
    )


def _lone(name: str, files: Files) -> Text | None:
    """The file of that name, None if there is none; several are an error, because they are ambiguous."""
    found = list(files.texts(name))
    if len(found) > 1:
        raise DataError(f"expected one {name} under {files.path}, got {', '.join(text.name for text in found)}.")
    return found[0] if found else None


def _compact(values: Array) -> dict[str, Array]:
    """The values in the smallest exact representation."""
    for kind in (np.int16, np.int32):
        for key, unit in UNITS.items():
            whole = _whole(values, unit, kind)
            if whole is not None:
                return {key: whole}
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return {"X": single if np.array_equal(single, values, equal_nan=True) else values}


def _whole(values: Array, unit: int, kind: type[np.integer[Any]]) -> Array | None:
    """The values times `unit` if these are integers that fit the type, else None."""
    whole, largest = np.empty(values.shape, kind), np.iinfo(kind).max
    for row, series in enumerate(values):  # one at a time: most units fail at the first
        scaled = np.rint(series * unit)
        if not (np.abs(scaled) <= largest).all() or not np.array_equal(scaled / unit, series):
            return None
        whole[row] = scaled
    return whole


# -- from raw arrays to the protocol


def _prepare(source: Source, raw: Raw, request: Request) -> Prepared:
    """Prepare the series by the protocol above."""
    stored, unit = _stored(source, raw)
    kept = _distinct(stored)
    values = np.empty((len(kept), source.length, source.channels), np.float32)
    for row, series in enumerate(kept):  # one at a time, so that they are never all in float64
        values[row] = (stored[series] / unit).T
    panel = Panel.build(
        np.tile(np.linspace(0, 1, source.length), len(kept)),
        values.reshape(-1, source.channels),
        np.full(len(kept), source.length),
        ids=kept,
    )
    train, validation, test = _split(source, raw, kept, request)
    panel = scaling.scaled(panel, train, request.scaling)
    targets = Targets(values=raw["y"][kept].astype(np.int64), at="series")
    return Prepared(panel=panel, targets=targets, train=train, validation=validation, test=test)


def _split(source: Source, raw: Raw, kept: Array, request: Request) -> tuple[Array, Array, Array]:
    """Positions of the training, validation and test series among the kept ones."""
    if request.split == "published":
        return splitting.cut(len(kept), request.seed)
    split, seeds = _linoss(source, raw)
    part = split[kept, seeds.tolist().index(linoss_seed(request.seed))]
    return np.flatnonzero(part == 0), np.flatnonzero(part == 1), np.flatnonzero(part == 2)


def _linoss(source: Source, raw: Raw) -> tuple[Array, Array]:
    """The splits of LinOSS for the series of the raw file, (n, 5), and their seeds."""
    own = next((key for key in raw if key.endswith("_linoss_split/split")), None)
    if own is None and "linoss_split" not in raw:
        raise DataError(
            f"{source.name}: split='linoss' needs a raw file with the arrays linoss_split and seeds, such as "
            "ethanol/ethanol_448.npz. The complete file takes precedence if it exists, and has none: move it away, or "
            "use split='published'."
        )
    split = raw[own or "linoss_split"]
    seeds = raw[own.replace("/split", "/seeds") if own else "seeds"]
    expected = (len(raw["y"]), len(seeds))
    if split.shape != expected:
        raise DataError(f"{source.name}: expected the splits of LinOSS to have shape {expected}, got {split.shape}.")
    return split, seeds


def linoss_seed(seed: int) -> int:
    """The seed of LinOSS that one of our seeds stands for; other seeds are returned as they are.

    Example:
        >>> linoss_seed(43), linoss_seed(3456)
        (3456, 3456)
    """
    return dict(zip(OUR_SEEDS, LINOSS_SEEDS, strict=True)).get(seed, seed)


def _check(source: Source, request: Request) -> None:
    if request.split == "linoss" and linoss_seed(request.seed) not in LINOSS_SEEDS:
        raise ValueError(
            f"split='linoss' of {source.name} exists for the seeds {', '.join(map(str, LINOSS_SEEDS))}, for which "
            f"{OUR_SEEDS[0]} to {OUR_SEEDS[-1]} stand; got {request.seed}."
        )


def _stored(source: Source, raw: Raw) -> tuple[Array, int]:
    """The values as stored, (n, C, L), and the number to divide them by."""
    key = next((key for key in ("X", *UNITS) if key in raw), None)
    if key is None:
        raise DataError(f"{source.name}: expected one of the arrays X, {', '.join(UNITS)}, got {', '.join(raw)}.")
    stored, labels = raw[key], raw["y"]
    expected = (len(labels), source.channels, source.length)
    if stored.shape == (len(labels), source.length, source.channels):
        stored = np.ascontiguousarray(stored.swapaxes(1, 2))
    if stored.shape != expected:
        raise DataError(f"{source.name}: expected {key} of shape {expected}, got {stored.shape}.")
    if not ((labels >= 0) & (labels < source.classes)).all():
        raise DataError(f"{source.name}: expected y from 0 to {source.classes - 1}, got {np.unique(labels)}.")
    return stored, UNITS.get(key, 1)


def _distinct(stored: Array) -> Array:
    """(m,) the series, except those that equal an earlier one in all values."""
    first: dict[bytes, int] = {}
    for row, series in enumerate(stored):
        first.setdefault(hashlib.sha256(series + 0).digest(), row)  # + 0 makes -0.0 and 0.0 the same
    return np.array(list(first.values()), np.int64)


def _missing(source: Source, raw: Raw) -> str:
    """What is missing from the raw arrays; "" if they are complete."""
    count = len(raw["y"])
    if count == source.series:
        return ""
    parts = np.unique(raw["split"]).tolist() if "split" in raw else []
    half = f" (the archive's {parts[0]} half only)" if len(parts) == 1 else ""
    return f"{count} of {source.series} series{half}"


# -- the six sets


def dataset(
    card_name: str,
    source: Source,
    origin: str,
    *,
    licence: str = UNSTATED,
    flaw: str = "",
    partial_raw: str = "",
    linoss: Literal["", "inside", "beside"] = "",
) -> Dataset:
    """Define one of the six sets.

    Args:
        card_name: name for `data.load`.
        source: the set in the archive.
        origin: the original publication of the data.
        licence, flaw: as in `Card`.
        partial_raw: raw file with a part of the set, used if there is no complete one.
        linoss: where the splits of LinOSS are stored: inside the raw file, or in a separate file beside it.
    """
    folder = card_name.replace("-", "")
    complete = f"{folder}/{folder}.npz"
    card = Card(
        name=card_name,
        title=source.name,
        page=f"https://www.timeseriesclassification.com/description.php?Dataset={source.name}",
        licence=licence,
        citation=f"{PAPER}; {origin}",
        series=source.series,
        length=f"{source.length:,}",
        channels=str(source.channels),
        tasks=("classify",),
        splits=("published", "linoss") if linoss else ("published",),
        scalings=("published", "none", "standard", "minmax"),
        flaw=flaw,
        raw=(complete, partial_raw) if partial_raw else (complete,),
        extras=(_linoss_file(folder, source),) if linoss == "beside" else (),
        remotes=(Remote(url=f"https://timeseriesclassification.com/aeon-toolkit/{source.name}.zip"),),
        by_hand=f"Download {source.name}.zip from its page (or its _TRAIN and _TEST files, .ts or .arff, from "
        f"any copy of the archive), then: lformer data pack {card_name} PATH",
    )
    return Dataset(
        card=card,
        prepare=partial(_prepare, source),
        check=partial(_check, source),
        pack=partial(_pack, source),
        missing=partial(_missing, source),
    )


def _linoss_file(folder: str, source: Source) -> Extra:
    return Extra(
        name=f"{folder}/{folder}_linoss_split.npz",
        content="the splits on which LinOSS reports results, for its five seeds",
        splits=("linoss",),
        by_hand=(
            f"Write split ({source.series}, 5) and seeds (5,) with numpy.savez_compressed as the docstring of "
            "lformer.data.uea describes, matching the series of LinOSS's own splits by their values."
        ),
    )


def _shifted(by: int, kept: str) -> str:
    """Description of the fault in the three sets from BCI competitions."""
    return (
        f"A fault of the archive: in every series, channel k is channel k - 1 shifted by {by} samples, so a series "
        f"does not contain {by} electrodes but {kept}."
    )


ETHANOL = dataset(
    "ethanol",
    Source(name="EthanolConcentration", series=524, channels=3, length=1751, classes=4),
    "J. Large et al., Detecting forged alcohol non-invasively through vibrational spectroscopy and machine learning, "
    "PAKDD 2018",
    partial_raw="ethanol/ethanol_448.npz",
    linoss="inside",
)
EIGENWORMS = dataset(
    "eigenworms",
    Source(name="EigenWorms", series=259, channels=6, length=17_984, classes=5),
    "E. Yemini et al., A database of Caenorhabditis elegans behavioral phenotypes, Nature Methods 10, 2013",
    flaw="23 of the 259 series are exact copies of others; they are dropped, which leaves 236.",
)
HEARTBEAT = dataset(
    "heartbeat",
    Source(name="Heartbeat", series=409, channels=61, length=405, classes=2),
    "C. Liu et al., An open access database for the evaluation of heart sound algorithms, "
    "Physiological Measurement 37, 2016",
    licence="Open Data Commons Attribution 1.0 (the recordings, PhysioNet/CinC Challenge 2016)",
    partial_raw="heartbeat/heartbeat_train.npz",
)
MOTOR_IMAGERY = dataset(
    "motor-imagery",
    Source(name="MotorImagery", series=378, channels=64, length=3000, classes=2),
    "T. N. Lal et al., Methods towards invasive human brain computer interfaces, NIPS 17, 2005 "
    "(BCI Competition III, data set I)",
    flaw=_shifted(64, "the first 7,032 of the 192,000 values of its trial"),
)
SCP1 = dataset(
    "scp1",
    Source(name="SelfRegulationSCP1", series=561, channels=6, length=896, classes=2),
    "N. Birbaumer et al., A spelling device for the paralysed, Nature 398, 1999 (BCI Competition II, data set Ia)",
    flaw=_shifted(6, "the first 926 values of its trial"),
    linoss="beside",
)
SCP2 = dataset(
    "scp2",
    Source(name="SelfRegulationSCP2", series=380, channels=7, length=1152, classes=2),
    "N. Birbaumer et al., A spelling device for the paralysed, Nature 398, 1999 (BCI Competition II, data set Ib)",
    flaw=_shifted(7, "the first 1,194 values of its trial"),
    linoss="beside",
)

DATASETS = (ETHANOL, EIGENWORMS, HEARTBEAT, MOTOR_IMAGERY, SCP1, SCP2)
