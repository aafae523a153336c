"""From a request and a table to everything that training starts from; `lformer data doctor` stops there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lformer.cli import read_table
from lformer.cli.common import Goal, UsageError, say
from lformer.doctor import Form
from lformer.panel import Array, MissingValues, Panel
from lformer.splitting import hold_out_groups

HELD_OUT = 0.15
FEWEST = 4  # series, to train, validate and test on


@dataclass(frozen=True, kw_only=True)
class Request:
    """A table and what to do with it.

    Attributes:
        files: the files of the table.
        form: the format of the files.
        columns: the names of the columns id, time, channel, value and static; on_duplicate; id_type, time_format and
            time_zone of the form. A model keeps them for new tables.
        missing: numbers that stand for missing values.
        task: what to predict; None if it is inferred from the target or not known yet.
        target, targets: the column to predict, and the file it is in if that is another one.
        group: the column with the subject of each series.
        horizon: how far ahead to forecast.
        seed: random seed of the split.
    """

    files: tuple[Path, ...]
    form: Form
    columns: dict[str, Any]
    missing: MissingValues = None
    task: Goal | None = None
    target: str | None = None
    targets: Path | None = None
    group: str | None = None
    horizon: str | None = None
    seed: int = 42

    @property
    def file(self) -> Path:
        """Name of the table: its file, or a pattern that stands for several."""
        first = self.files[0]
        return first if len(self.files) == 1 else first.parent / f"*{first.suffix}"

    @property
    def once(self) -> list[str]:
        """Columns of the file with one value per series, which are no channels."""
        target = [self.target] if self.target and self.targets is None else []
        return [*self.columns["static"], *target, *([self.group] if self.group else [])]

    def check(self, *, open_end: bool = False) -> None:
        """Refuse options that contradict each other; with `open_end`, neither a task nor a target is required."""
        task, columns = self.task, self.columns
        taken = {columns[name]: f"--{name}" for name in ("id", "time", "channel") if columns[name]}
        static = [("--static", name) for name in columns["static"]]
        for option, name in (("--target", self.target), ("--group", self.group), *static):
            if name in taken and not (option == "--target" and self.targets):
                raise UsageError(f"{option} and {taken[name]} both name the column {name!r}.")
        if task is not None and task.of_records:
            if self.target or self.targets:
                raise UsageError(f"--task {task} learns from the values themselves; drop --target and --targets.")
        elif task is not None and task.of_points:
            if self.targets or not self.target:
                raise UsageError(f"--task {task} needs --target COLUMN of FILE, with a target in every row.")
        elif not self.target and not self.targets and (task is not None or not open_end):
            raise UsageError(
                "the target is missing. Give --target COLUMN, or --targets FILE with a target for each id, or --task "
                "interpolate or --task forecast."
            )
        if self.horizon and task is not Goal.forecast:
            raise UsageError("--horizon is for --task forecast.")

    def read(self) -> pd.DataFrame:
        """The table, with all columns that the request names."""
        columns, value = self.columns, self.columns["value"]
        tables = [read_table.read(file, columns, self.form) for file in self.files]
        table = tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)
        values = [value] if isinstance(value, str) else value or []
        named = [columns["id"], columns["time"], columns["channel"], *values]
        read_table.require_columns(table, [name for name in (*named, *self.once) if name], self.file)
        return table


class Parts(NamedTuple):
    """The parts of a table."""

    task: Goal | None
    observations: pd.DataFrame  # without the target and without covariates
    labelled: pd.DataFrame  # the same rows with the target
    covariates: pd.DataFrame | None  # a row per id
    answers: pd.Series[Any] | None  # the target of each id, if each has one
    whose: pd.Series[Any] | None  # the group of each id, if they have groups


def take_apart(request: Request, table: pd.DataFrame) -> Parts:
    """Separate observations, covariates and targets: the target must not be an input."""
    id, task = request.columns["id"], request.task
    covariates, table = read_table.take_static(table, id, request.columns["static"], request.file)
    whose, table = read_table.take_group(table, id, request.group, request.file)
    if request.target or request.targets:
        if task is not None and task.of_points:
            return Parts(task, table.drop(columns=request.target), table, covariates, None, whose)
        answers, rest = read_table.take_target(table, request)
        return Parts(task or _inferred(answers), rest, table, covariates, answers, whose)
    return Parts(task, table, table, covariates, None, whose)


def observations_of(request: Request, table: pd.DataFrame) -> pd.DataFrame:
    """The observations of a table whose targets or covariates are invalid."""
    return table.drop(columns=request.once)


@dataclass(frozen=True, eq=False)
class Plan:
    """What training starts from.

    Attributes:
        task: what to predict; None if unknown.
        panel: the series.
        truth: (n,) targets per series, a list of (L_i,) targets per row, or None if the values are the targets.
        train, test: positions of the training and test series; without a task, all are training series.
        horizon: how far ahead to forecast, in the unit of the panel.
        groups: (n,) subject of each series, if known.
    """

    task: Goal | None
    panel: Panel
    truth: Any
    train: Array
    test: Array
    horizon: float | None
    groups: Array | None = None

    def estimator(self, **parameters: Any) -> Any:
        """An estimator for the task, not fitted yet."""
        assert self.task is not None
        horizon = {} if self.horizon is None else {"horizon": self.horizon}
        return estimator_of(self.task)(**parameters, **horizon)

    def fit(self, estimator: Any) -> None:
        """Fit an estimator on the training series."""
        whose = None if self.groups is None else self.groups[self.train]
        estimator.fit(self.panel[self.train], self.targets(self.train), groups=whose)

    def targets(self, positions: Array) -> Any:
        """The targets of some series, as `fit` takes them."""
        if isinstance(self.truth, list):
            return [self.truth[i] for i in positions]
        return None if self.truth is None else self.truth[positions]


def plan(request: Request, parts: Parts) -> Plan:
    """Series, targets and split of a table; raises an error if they cannot be made."""
    panel = read_table.series(parts.observations, request.columns, parts.covariates, request.missing, request.file)
    return planned(request, parts, panel)


def planned(request: Request, parts: Parts, panel: Panel) -> Plan:
    """Like `plan`, with the panel already built."""
    truth = _truth(request, parts, panel)
    _require_enough(panel, request)
    everyone = np.arange(len(panel))
    groups = None if parts.whose is None else panel.align(parts.whose, "the group").astype(str)
    train, test = everyone, everyone[:0]
    if parts.task is not None:
        classes = truth if parts.task is Goal.classify else None
        if groups is None:
            train, test = _split(everyone, classes, request.seed)
        else:
            with naming(request.file):
                train, test = hold_out_groups(groups, HELD_OUT, request.seed, classes)
            counts = [len(np.unique(groups[part])) for part in (train, test)]
            say(f"Split by {request.group!r}: {counts[0]:,} to train on, {counts[1]:,} to test on.")
    horizon = read_table.horizon(request.horizon, panel) if request.horizon else None
    return Plan(parts.task, panel, truth, train, test, horizon, groups)


def try_out(request: Request, parts: Parts) -> Panel:
    """The series of a plan that passes every check of `fit`, up to the point where training would begin."""
    found = plan(request, parts)
    if found.task is not None:
        kind = estimator_of(found.task)
        trial = type(kind.__name__, (kind,), {"_begin": _stop})
        horizon = {} if found.horizon is None else {"horizon": found.horizon}
        estimator = trial(random_state=request.seed, missing_values=request.missing, device="cpu", **horizon)
        with suppress(_ReadyError), naming(request.file):
            found.fit(estimator)
    return found.panel


def estimator_of(task: Goal) -> Any:
    """The estimator class for a task."""
    from lformer import estimators  # late, because the doctor does not need them without a target

    return {
        Goal.classify: estimators.LFormerClassifier,
        Goal.regress: estimators.LFormerRegressor,
        Goal.classify_points: estimators.LFormerPointClassifier,
        Goal.regress_points: estimators.LFormerPointRegressor,
        Goal.interpolate: estimators.LFormerInterpolator,
        Goal.forecast: estimators.LFormerForecaster,
    }[task]


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Prefix errors about the data with the name of the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


class _ReadyError(Exception):
    """Everything is ready for training."""


def _stop(*_: Any) -> None:
    raise _ReadyError


def _inferred(answers: pd.Series[Any]) -> Goal:
    task = Goal.classify if read_table.looks_like_classes(answers) else Goal.regress
    say(f"Task: {task}, because {answers.name!r} has {answers.nunique():,} different values. --task chooses another.")
    return task


def _truth(request: Request, parts: Parts, panel: Panel) -> Any:
    task = parts.task
    if parts.answers is not None:
        found = panel.align(read_table.for_all(parts.answers, panel, request), "the target")
        return read_table.as_classes(found) if task is Goal.classify else read_table.as_numbers(found)
    if task is None or not task.of_points:
        return None
    flat = read_table.row_targets(parts.labelled, request.columns, str(request.target), panel)
    flat = read_table.as_classes(flat) if task.of_classes else read_table.as_numbers(flat, allow_nan=True)
    return read_table.per_series(flat, panel)


def _require_enough(panel: Panel, request: Request) -> None:
    if len(panel) < FEWEST:
        raise ValueError(
            f"{request.file}: at least {FEWEST} series are needed to train, validate and test; the table has "
            f"{len(panel)}. Check that --id {request.columns['id']} names the column of the series."
        )


def _split(everyone: Array, classes: Array | None, seed: int) -> tuple[Array, Array]:
    """Positions of training and test series, stratified by class if every class has enough series."""
    from sklearn.model_selection import train_test_split

    stratify = None
    if classes is not None:
        _, code, count = np.unique(classes, return_inverse=True, return_counts=True)
        stratify = code if count.min() > 1 and len(count) <= HELD_OUT * len(everyone) else None
    train, test = train_test_split(everyone, test_size=HELD_OUT, random_state=seed, stratify=stratify)
    return np.sort(train), np.sort(test)
