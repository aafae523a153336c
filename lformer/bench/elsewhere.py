"""The best figures that others publish on the UEA sets, outside the paper, and ours beside them.

Accuracies in per cent, over five seeds of parts of 70, 15 and 15 %: T. Rusch and D. Rus, Oscillatory state-space models
(LinOSS), 2025; A. Terzić et al., Structured sparse transition matrices (PD-SSM), 2025. Over thirty resamples of the
archive's own sizes: results that the authors of tsml-eval publish.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lformer.bench.layout import NONE, PARTIAL, SMOKE, Entry, Line, markdown
from lformer.bench.records import Record
from lformer.bench.tables import OURS, best_of, main_tables, shown

LINOSS, DRAWN, RESAMPLED = "those of LinOSS", "as large, drawn otherwise", "the archive's sizes, 30 resamples"
SPLITS = {LINOSS: "linoss", DRAWN: "published"}  # of ours that stand beside; none beside resamples


class Reported(NamedTuple):
    """What others report of a data set, on which parts, the best first."""

    dataset: str
    parts: str
    figures: str


REPORTED = (
    Reported("ethanol", DRAWN, "PD-SSM 34.7±4.0"),
    Reported("ethanol", RESAMPLED, "STC 82.4±2.2, HC2 79.1, ROCKET 44.7"),
    Reported("eigenworms", DRAWN, "LinOSS-IM 95.0±4.4"),
    Reported("eigenworms", RESAMPLED, "DrCIF 90.6"),
    Reported("heartbeat", DRAWN, "PD-SSM 80.0±2.6"),
    Reported("heartbeat", RESAMPLED, "CIF 76.5"),
    Reported("motor-imagery", DRAWN, "PD-SSM 60.0±3.7, LinOSS-IM 60.0±7.5"),
    Reported("motor-imagery", RESAMPLED, "TDE 54.0±4.0"),
    Reported("scp1", LINOSS, "LinOSS-IM 87.8±2.6"),
    Reported("scp1", RESAMPLED, "HC2 87.9±1.3"),
    Reported("scp2", LINOSS, "LinOSS-IMEX 58.9±8.1"),
    Reported("scp2", RESAMPLED, "1NN-DTW 53.7±3.6"),
)

TESTED = {"motor-imagery": 57, "scp1": 85, "scp2": 57}  # series of one test part, of the complete sets at hand

HEADER = [
    "data set", "parts", "published elsewhere", "lformer", "error of its mean", "chance", "its best variant",
    "best simple model",
]  # fmt: skip


def section(records: Iterable[Record]) -> list[str]:
    """Paragraphs of a page: what others report, and ours on the same parts, or on parts of the same sizes."""
    lines = [line for table in main_tables(records) for line in table.lines if line.measure.metric == "accuracy"]
    rows = [row for reported in REPORTED for row in _rows(reported, lines)]
    return ["## Published elsewhere", markdown([HEADER, *rows]), NOTES]


NOTES = f"""\
- Accuracy in %. Only the parts of LinOSS are the very same series; on parts drawn otherwise a difference of one
  standard deviation says nothing, and resamples of the archive's own sizes are another question.
- Error of its mean: standard deviation over the seeds by the root of their number. Chance: the standard error that the
  number of series of one test part alone leaves, √(p (1 − p) / n).
- `motor-imagery` and `scp2` carry hardly any signal for anybody: on resamples sixteen classifiers lie between 49.6 and
  54.0 %, and twenty between 48.5 and 53.7 %.
- {PARTIAL} partial data, {SMOKE} smoke run: not comparable."""


def _rows(reported: Reported, lines: list[Line]) -> Iterator[list[str]]:
    """One row for each way to scale that there are records of; one without figures of ours if there are none."""
    split = SPLITS.get(reported.parts)
    found = [line for line in lines if line.measure.dataset == reported.dataset and line.split == split]
    there = [row for line in found if (row := _ours(line)) is not None]
    for name, figures in there or [(reported.dataset, [NONE] * 5)]:
        yield [name, reported.parts, reported.figures, *figures]


def _ours(line: Line) -> tuple[str, list[str]] | None:
    """What the row is of, and our five columns of it; None without a record of LFormer."""
    entry, variant = line.entries[OURS], best_of(line, "variant", f"{OURS} ")
    if entry.ours is None and variant == NONE:
        return None
    name = line.measure.dataset if line.scaling == "published" else f"{line.measure.dataset}, scaling {line.scaling}"
    return name, [shown(entry), *_errors(entry, line.measure.dataset), variant, best_of(line, "simple")]


def _errors(entry: Entry, dataset: str) -> tuple[str, str]:
    """± of the mean by the seeds, ± of one test part by its size; – where there are too few, or nobody knows."""
    if entry.ours is None or not entry.ours.values:
        return NONE, NONE
    over_seeds = entry.ours.deviation / math.sqrt(len(entry.ours.values))
    share = entry.ours.mean / 100
    by_size = 100 * math.sqrt(share * (1 - share) / TESTED[dataset]) if dataset in TESTED else math.nan
    first, second = (NONE if math.isnan(x) else f"±{x:.1f}" for x in (over_seeds, by_size))
    return first, second
