"""What each option of the estimators brings: the defaults with one of them changed, on the same sets and seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean, stdev
from typing import Any, NamedTuple

from lformer.bench.defaults.measures import MEASURES
from lformer.bench.defaults.problem import CLASSES, NUMBERS, Kind
from lformer.bench.defaults.records import Record
from lformer.bench.layout import NONE, markdown

LEGEND = (
    "How much better (+) or worse (−) the test score becomes with one option changed, the mean over seeds ± its "
    "standard error, paired by seed; **bold** where it is more than two standard errors. The first row is the score of "
    "the defaults. Nothing was chosen by this table: the defaults were chosen on the folds."
)


class Option(NamedTuple):
    """A change of the defaults, for the kinds of problem whose estimators have it."""

    given: Mapping[str, Any]
    kinds: tuple[Kind, ...]


OPTIONS: dict[str, Option] = {
    "neighbours=0": Option({"neighbours": 0}, (*CLASSES, "interpolate")),
    "drop_fraction=0": Option({"drop_fraction": 0.0}, ("series",)),
    "dropout=0, weight_decay=0.01": Option({"dropout": 0.0, "weight_decay": 0.01}, CLASSES),
    "dropout=0.2": Option({"dropout": 0.2}, NUMBERS),
    "label_smoothing=0": Option({"label_smoothing": 0.0}, CLASSES),
    "clock=False": Option({"clock": False}, CLASSES),
    "max_epochs=40": Option({"max_epochs": 40}, CLASSES),
    "members=1": Option({"members": 1}, ("series",)),
    "trees=False": Option({"trees": False}, ("series", "numbers")),
    "calendar=False": Option({"calendar": False}, ("forecast",)),
    "series_scale=False": Option({"series_scale": False}, ("forecast",)),
    "persistence=False": Option({"persistence": False}, ("forecast", "interpolate")),
}


def method_name(option: str) -> str:
    """How the bench calls the defaults with an option changed; also the name of a folder.

    Example:
        >>> method_name("dropout=0, weight_decay=0.01")
        'lformer-dropout-0-weight_decay-0.01'
    """
    return "lformer-" + option.replace(", ", "-").replace("=", "-")


def table(defaults: Iterable[Record], changed: Iterable[Record]) -> str:
    """A row for each option, a column for each set on which options were tried; from records of the test part."""
    scores = _by_cell(record for record in defaults if record["cell"]["method"] == "lformer")
    tried = _by_cell(changed)
    sets = [name for name in dict.fromkeys(name for name, _ in tried) if (name, "lformer") in scores]
    body = [["changed", *sets], ["nothing", *(_plain(scores[name, "lformer"]) for name in sets)]]
    for option in OPTIONS:
        method = method_name(option)
        if any((name, method) in tried for name in sets):
            cells = [_gain(scores[name, "lformer"], tried.get((name, method), {})) for name in sets]
            body.append([f"`{option}`", *cells])
    return f"{LEGEND}\n\n{markdown(body)}"


class _Score(NamedTuple):
    measure: str
    value: float


def _by_cell(records: Iterable[Record]) -> dict[tuple[str, str], dict[int, _Score]]:
    """The scores of each set and method, by seed."""
    found: dict[tuple[str, str], dict[int, _Score]] = {}
    for record in records:
        cell, measure = record["cell"], record["measure"]
        if cell["part"] == "test":
            value = MEASURES[measure].factor * record["scores"][measure]
            found.setdefault((cell["set"], cell["method"]), {})[cell["seed"]] = _Score(measure, value)
    return found


def _plain(seeds: Mapping[int, _Score]) -> str:
    measure = MEASURES[next(iter(seeds.values())).measure]
    return f"{fmean(score.value for score in seeds.values()):.{measure.digits}f}"


def _gain(before: Mapping[int, _Score], after: Mapping[int, _Score]) -> str:
    both = sorted(before.keys() & after.keys())
    if len(both) < 2:
        return NONE
    measure = MEASURES[before[both[0]].measure]
    gains = [measure.sign * (after[seed].value - before[seed].value) for seed in both]
    mean, error = fmean(gains), stdev(gains) / math.sqrt(len(gains))
    shown = f"{mean:+.{measure.digits}f}".replace("-", "−")
    return f"{f'**{shown}**' if abs(mean) > 2 * error else shown} ±{error:.{measure.digits}f}"
