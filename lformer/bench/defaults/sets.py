"""Every set of the bench by name, as small as it can be and still tell methods apart."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lformer import data
from lformer.bench.defaults import archive, generated
from lformer.bench.defaults.problem import Kind, Problem, values_problem
from lformer.data.bidmc import RATE
from lformer.data.ushcn import FRAME, GIVEN_ROWS
from lformer.hiding import random_rows
from lformer.panel import Array, Panel
from lformer.parts import PanelPart, Splits, Targets

FIRST_FOLD = 42  # seed of the first of PhysioNet's folds
WINDOWS = (1500, 600)  # of Human Activity, to learn from and to answer for
STATIONS = (300, 150)  # of USHCN
APART, SAMPLES = 33, 20  # seconds from a window of BIDMC to the next, of 32 s; samples to a row


class Entry(NamedTuple):
    """A set of the bench.

    Attributes:
        kind: of its problem, known before anything is loaded.
        make: the problem, by the seed if it is `redrawn`.
        redrawn: whether each seed has its own training and test part, as PhysioNet's folds do.
    """

    kind: Kind
    make: Callable[[int], Problem]
    redrawn: bool = False


def _mortality(seed: int) -> Problem:
    """Death in hospital after two days in intensive care: one fold of PhysioNet 2012 for each seed."""
    splits = _loaded("physionet", task="classify", split="folds", scaling="none", seed=FIRST_FOLD + seed)
    train, test = _both(splits)
    return Problem(
        kind="series", measures=("auroc", "auprc", "log_loss"), train=train.panel, test=test.panel,
        labels=_classes(train), truth=_classes(test), steps=48, folds=3,
    )  # fmt: skip


def _activity(seed: int) -> Problem:
    """What a person does at every moment, from the positions of four tags."""
    splits = _loaded("activity", labels="corrected")
    parts = (splits.train.panel[: WINDOWS[0]], splits.test.panel[: WINDOWS[1]])
    labels, truth = (_row_classes(panel, splits.train.targets) for panel in parts)
    return Problem(
        kind="rows", measures=("accuracy",), train=parts[0], test=parts[1], labels=labels, truth=truth, folds=3
    )  # fmt: skip


def _ushcn_forecast(seed: int) -> Problem:
    """Rain, snow and temperature at climate stations: from half of four years, the other half."""

    def hides(panel: Panel) -> Array:
        return np.arange(len(panel.times)) - np.repeat(panel.first, panel.lengths) >= GIVEN_ROWS

    return values_problem(*_stations(), hides, kind="forecast", measures=("rmse",), season=365.25, folds=3)


def _ushcn_interpolate(seed: int) -> Problem:
    """The same stations: every other day of four years, drawn at random, from the days between."""
    return values_problem(
        *_stations(), partial(random_rows, share=0.5, seed=0), kind="interpolate", measures=("rmse",), season=365.25,
        folds=3,
    )  # fmt: skip


def _stations() -> tuple[Panel, Panel]:
    """Training and test stations, in their own units, on the calendar."""
    splits = _loaded("ushcn", task="reconstruct", scaling="none")
    if splits.train.panel.unit != "D":
        raise data.MissingDataError("ushcn is here in its chunked form only, which has no days; get the daily form.")
    return _dated(splits.train.panel[: STATIONS[0]]), _dated(splits.test.panel[: STATIONS[1]])


def _dated(panel: Panel) -> Panel:
    panel = panel.compact()
    begin = np.datetime64(FRAME, "D")
    return Panel.build(
        panel.times - np.repeat(panel.first_times(), panel.lengths), panel.values, panel.lengths,
        observed=panel.observed, ids=panel.ids, channels=panel.channels, unit="D",
        origin=begin + panel.first_times().astype(np.int64),
    )  # fmt: skip


def _heart_rate(seed: int) -> Problem:
    """Beats per minute from half a minute of PPG and ECG of patients who are in no other part: parts for each seed."""
    splits = _loaded("bidmc-hr", split="subject", scaling="none", seed=seed)
    (train, labels, groups), (test, truth, test_groups) = map(_thinned, _both(splits))
    return Problem(
        kind="numbers", measures=("deviations", "r2"), train=train, test=test, labels=labels, truth=truth,
        groups=groups, test_groups=test_groups, steps=int(train.lengths.max()), folds=2,
    )  # fmt: skip


def _thinned(part: PanelPart) -> tuple[Panel, Array, Array]:
    """Windows that do not overlap, each row the mean of twenty samples; their rates, and whose recordings they are."""
    recording, begin = np.array([name.removesuffix("s").split("+") for name in part.panel.ids.tolist()]).T
    kept = np.flatnonzero(begin.astype(int) % APART == 0)
    panel = part.panel[kept].compact()
    values = panel.values.reshape(-1, SAMPLES, len(panel.channels)).mean(axis=1)
    lengths = panel.lengths // SAMPLES
    seconds = np.concatenate([np.arange(length) for length in lengths]) * SAMPLES / RATE
    made = Panel.build(seconds, values, lengths, ids=panel.ids, channels=panel.channels, unit="s")
    return made, part.targets.values[part.members[kept], 0].astype(np.float64), recording[kept]


def _loaded(name: str, **asked: object) -> Splits[PanelPart]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", data.PartialDataWarning)  # seven stations of USHCN
        return data.load(name, **asked)  # type: ignore[arg-type]


def _both(splits: Splits[PanelPart]) -> tuple[PanelPart, PanelPart]:
    """Training part together with the validation part, since estimators draw their own; and test part."""
    train, held = splits.train, splits.validation
    joined: dict[str, Any] = {n: _joined(train.panel, held.panel, n) for n in ("first", "lengths", "ids", "origin")}
    static = None if train.panel.static is None else pd.concat([train.panel.static, held.panel.static])
    members = np.concatenate([train.members, held.members])
    return replace(train, panel=replace(train.panel, static=static, **joined), members=members), splits.test


def _joined(one: Panel, other: Panel, name: str) -> Array:
    """Some series of a panel and some others of it, which share their rows."""
    return np.concatenate([getattr(one, name), getattr(other, name)])


def _classes(part: PanelPart) -> Array:
    return part.targets.values[part.members]


def _row_classes(panel: Panel, targets: Targets) -> list[Array]:
    runs = zip(panel.first, panel.lengths, strict=True)
    return [targets.values[first : first + length] for first, length in runs]


def _archive(name: str, dropped: float = 0.0) -> Entry:
    return Entry("series", lambda seed: archive.problem(name, dropped))


def _generated(kind: Kind, make: Callable[[], Problem]) -> Entry:
    return Entry(kind, lambda seed: make())


DEFAULTS_SETS: dict[str, Entry] = {
    "gunpoint": _archive("gunpoint"),
    "gunpoint-30": _archive("gunpoint", 0.3),
    "gunpoint-60": _archive("gunpoint", 0.6),
    "italy-power": _archive("italy_power_demand"),
    "italy-power-30": _archive("italy_power_demand", 0.3),
    "italy-power-60": _archive("italy_power_demand", 0.6),
    "basic-motions": _archive("basic_motions"),
    "basic-motions-30": _archive("basic_motions", 0.3),
    "basic-motions-60": _archive("basic_motions", 0.6),
    "japanese-vowels": _archive("japanese_vowels"),
    "japanese-vowels-30": _archive("japanese_vowels", 0.3),
    "japanese-vowels-60": _archive("japanese_vowels", 0.6),
    "order": _generated("series", generated.order),
    "pace": _generated("series", generated.pace),
    "coupling": _generated("series", generated.coupling),
    "mortality": Entry("series", _mortality, redrawn=True),
    "activity": Entry("rows", _activity),
    "frequency": _generated("numbers", generated.frequency),
    "decay": _generated("numbers", generated.decay),
    "heart-rate": Entry("numbers", _heart_rate, redrawn=True),
    "leaky": _generated("row-numbers", generated.leaky),
    "stores": _generated("forecast", generated.stores),
    "sines": _generated("interpolate", generated.sines),
    "ushcn-forecast": Entry("forecast", _ushcn_forecast),
    "ushcn-interpolate": Entry("interpolate", _ushcn_interpolate),
}


def named(name: str) -> Entry:
    """A set by name, or an error that lists them."""
    if name not in DEFAULTS_SETS:
        raise ValueError(f"unknown set {name!r}; there are {', '.join(DEFAULTS_SETS)}.")
    return DEFAULTS_SETS[name]
