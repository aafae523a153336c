"""`lformer fit` and `lformer predict`: from a table of observations to a model, and from a model to answers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from lformer.cli.common import (
    ChannelColumn,
    IdColumn,
    MissingNumbers,
    TableFile,
    TimeColumn,
    UsageError,
    ValueColumns,
    clear_errors,
    console,
)

if TYPE_CHECKING:
    import pandas as pd

    from lformer.cli.scores import Scores
    from lformer.panel import Array, Panel

HELD_OUT = 0.15
FEWEST = 4  # series, to train, validate and test on


class Goal(StrEnum):
    """What is asked: of each series, of each of its rows, or at times between and after them."""

    classify = "classify"
    regress = "regress"
    classify_points = "classify-points"
    regress_points = "regress-points"
    interpolate = "interpolate"
    forecast = "forecast"

    @property
    def of_points(self) -> bool:
        return self in (Goal.classify_points, Goal.regress_points)

    @property
    def of_classes(self) -> bool:
        return self in (Goal.classify, Goal.classify_points)

    @property
    def of_records(self) -> bool:
        return self in (Goal.interpolate, Goal.forecast)


class Twice(StrEnum):
    """What to do with the same id, time and channel twice."""

    error = "error"
    mean = "mean"
    last = "last"


def fit(
    file: TableFile,
    id: IdColumn,
    time: TimeColumn,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model; one that is there is replaced.")],
    task: Annotated[
        Goal | None,
        typer.Option("--task", help="What to learn. By default classify or regress, by what the target holds."),
    ] = None,
    channel: ChannelColumn = None,
    value: ValueColumns = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Column to predict, the same in all rows of an id unless it is of points."),
    ] = None,
    targets: Annotated[
        Path | None, typer.Option("--targets", help="CSV or Parquet with the target of each id, if not in FILE.")
    ] = None,
    static: Annotated[
        list[str] | None, typer.Option("--static", help="Column of a covariate, the same in all rows of an id.")
    ] = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option("--unlabelled", help="CSV or Parquet like FILE, of ids without a target, to learn from first."),
    ] = None,
    horizon: Annotated[
        str | None, typer.Option("--horizon", help="How far to forecast: in the unit of the stamps, or such as 36h.")
    ] = None,
    on_duplicate: Annotated[
        Twice, typer.Option("--on-duplicate", help="What to do with the same id, time and channel twice.")
    ] = Twice.error,
    missing_values: MissingNumbers = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the series; chosen by how many there are if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of split and weights; the same seed repeats the run.")] = 42,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Train on 85 % of the series of a table, test on the others beside a simple answer, and save that model.

    Beside the folder of the model stands a page of HTML: scores, training, what matters, and examples with reasons.

    Exit code 0: the model is saved. 1: something is wrong with the data. 2: something is wrong with the request.
    """
    import warnings

    from lformer.cli import read_table, scores
    from lformer.doctor.quick import look_over
    from lformer.estimators import artefact
    from lformer.estimators.folder import free_place
    from lformer.estimators.naive import LosesToNaiveWarning
    from lformer.estimators.suspicion import SuspectDataWarning
    from lformer.report import report

    with clear_errors():
        free_place(out)
        _check_request(task, target, targets, horizon, unlabelled)
        missing = read_table.missing_values(missing_values)
        columns: dict[str, Any] = {
            "id": id, "time": time, "channel": channel, "value": read_table.one_value(channel, value),
            "on_duplicate": on_duplicate.value, "static": static or [],
        }  # fmt: skip
    with clear_errors(code=1):
        table = read_table.read(file, time)
        given = [id, time, *([channel] if channel else []), *(value or [])]
        read_table.require_columns(table, given, file)
        covariates, table = read_table.take_static(table, id, columns["static"], file)
        labelled, answers = table, None
        if task is None or not (task.of_points or task.of_records):
            answers, table = read_table.take_target(table, file, id, target, targets)
            task = task or _inferred(answers)
        elif task.of_points:
            read_table.require_columns(table, [str(target)], file)
            table = table.drop(columns=target)
        panel = read_table.series(table, columns, covariates, missing)
        if channel is None:
            columns["value"] = list(panel.channels)
        truth = _truth(task, panel, answers, labelled, columns, target)
        train, test = _split(len(panel), truth if task is Goal.classify else None, seed)
        for finding in look_over(panel)[0]:
            _say(f"{finding.title}: {finding.detail} {finding.advice}")
        training: dict[str, Any] = {
            "max_epochs": epochs, "random_state": seed, "verbose": int(not quiet), "missing_values": missing,
        }  # fmt: skip
        more: dict[str, Any] = {"horizon": read_table.horizon(horizon, panel)} if horizon else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuspectDataWarning)  # said above
            warnings.simplefilter("ignore", LosesToNaiveWarning)  # said below
            if unlabelled is not None:
                more["pretrained"] = _pretrained(panel, train, unlabelled, columns, training)
            model = _estimator(task)(**training, **more)
            model.fit(panel[train], _of(truth, train))
        found = _scores(model, task, panel[test], _of(truth, train), _of(truth, test))
        artefact.save(model, out, columns)
        beside = out.resolve().with_name(f"{out.resolve().name}-report.html")  # a model's folder holds nothing else
        report(model, panel[test], _of(truth, test), beside, title=f"{file.name}: {task}", trained_on=panel[train])
    worse = scores.show(found, len(train), len(test))
    _say(worse) if worse else None
    _say(f"{panel!r}; best of {model.n_iter_} epochs.")
    _say(
        f"Validation {model.task_.monitor}: {model.validation_score_:.4g}; {model.naive_} on the same series: "
        f"{model.naive_score_:.4g}" + (", which is better." if model.loses_ else ".")
    )
    _say(f"Report: {beside}")
    ask = " --at TIME" if task.of_records else ""
    _say(f"Model: {out}   Use it: lformer predict {out} NEW.csv{ask} --out predictions.csv")


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model that `lformer fit` or `save` wrote.")],
    file: TableFile,
    out: Annotated[Path, typer.Option("--out", help="CSV file for the answers.")],
    id: Annotated[str | None, typer.Option("--id", help="Column of ids, if named otherwise than at fit.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Column of stamps, likewise.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", help="Column of channels, likewise.")] = None,
    value: Annotated[list[str] | None, typer.Option("--value", help="Column or columns of values, likewise.")] = None,
    static: Annotated[list[str] | None, typer.Option("--static", help="Columns of covariates, if not kept.")] = None,
    at: Annotated[
        list[str] | None, typer.Option("--at", help="Time to interpolate or forecast at, of every id; may be repeated.")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option("--queries", help="CSV or Parquet with ids and times to interpolate or forecast at.")
    ] = None,
    missing_values: MissingNumbers = None,
) -> None:
    """Answer for a new table: one row per id, per id and time of the table, or per id and time asked for.

    Exit code 0: the answers are written. 1: something is wrong with the data. 2: something is wrong with the request.
    """
    from lformer.cli import answers, read_table
    from lformer.estimators import LFormerForecaster, LFormerInterpolator, LFormerPretrainer
    from lformer.estimators.artefact import load_with_columns

    with clear_errors(code=1):
        if out.suffix != ".csv":
            raise UsageError(f"--out must end with .csv; got {out}.")
        estimator, kept = load_with_columns(model)
        if missing_values:
            estimator.set_params(missing_values=read_table.missing_values(missing_values))
        if isinstance(estimator, LFormerPretrainer):
            raise UsageError(f"{model} was trained without targets and predicts nothing by itself: fit one from it.")
        given = {"id": id, "time": time, "channel": channel, "value": value, "static": static}
        columns = answers.columns_of(model, kept or {}, given)
        asks = isinstance(estimator, LFormerForecaster | LFormerInterpolator)
        if not asks and (at or queries):
            raise UsageError(f"--at and --queries are for models that interpolate or forecast; {model} does neither.")
        table = read_table.read(file, columns["time"])
        like, missing = estimator.features_, estimator.missing_values
        panel = answers.new_series(table, columns, like, missing, file, free=not value)
        asked = read_table.queries(panel, at or [], queries, columns) if asks else []
        if asks:
            told = answers.asked_table(estimator, panel, asked, columns)
        else:
            told = answers.answer_table(estimator, panel, columns)
        answers.write(told, out)
    _say(f"{len(told):,} predictions: {out}")


def _say(text: str) -> None:
    console.print(escape(text), soft_wrap=True, highlight=False)


# -- from a request to a trained model


def _check_request(
    task: Goal | None, target: str | None, targets: Path | None, horizon: str | None, unlabelled: Path | None
) -> None:
    if task is not None and task.of_records:
        if unlabelled:
            raise UsageError(f"--task {task} needs no targets: put the series of --unlabelled into FILE.")
        if target or targets:
            raise UsageError(f"--task {task} learns from the values themselves; drop --target and --targets.")
    elif task is not None and task.of_points:
        if targets or not target:
            raise UsageError(f"--task {task} needs --target COLUMN of FILE, with a target in each row.")
    elif not target and not targets:
        raise UsageError(
            "what is to be predicted? Give --target COLUMN, or --targets FILE with a target for each id, or --task "
            "interpolate or forecast."
        )
    if horizon and task is not Goal.forecast:
        raise UsageError("--horizon is for --task forecast.")


def _inferred(answers: pd.Series[Any]) -> Goal:
    from lformer.cli import read_table

    task = Goal.classify if read_table.looks_like_classes(answers) else Goal.regress
    _say(f"Task: {task}, as {answers.name!r} holds {answers.nunique():,} different values. --task chooses another.")
    return task


def _estimator(task: Goal) -> Any:
    from lformer import estimators

    return {
        Goal.classify: estimators.LFormerClassifier,
        Goal.regress: estimators.LFormerRegressor,
        Goal.classify_points: estimators.LFormerPointClassifier,
        Goal.regress_points: estimators.LFormerPointRegressor,
        Goal.interpolate: estimators.LFormerInterpolator,
        Goal.forecast: estimators.LFormerForecaster,
    }[task]


def _pretrained(panel: Panel, train: Array, file: Path, columns: dict[str, Any], training: dict[str, Any]) -> Any:
    """What the series of two tables teach without their targets; those that are tested on have no part in it."""
    import numpy as np

    from lformer.cli import answers, read_table
    from lformer.estimators import pretrain

    table = read_table.read(file, columns["time"])
    others = answers.new_series(table, columns, panel, training["missing_values"], file, free=True)
    others = others[~np.isin(others.ids.astype(str), panel.ids.astype(str))]
    if not len(others):
        raise ValueError(f"{file} must hold series of other ids than the table with the targets; it has none.")
    start = pretrain(panel[train], others, **training)
    _say(
        f"Pre-trained on {len(train):,} series of the table and {len(others):,} without a target. Hidden values: mean "
        f"squared error {start.history_[-1]['mse']:.3g}, in deviations of a channel."
    )
    return start


def _truth(
    task: Goal,
    panel: Panel,
    answers: pd.Series[Any] | None,
    labelled: pd.DataFrame,
    columns: dict[str, Any],
    target: str | None,
) -> Any:
    """(n,) targets of the series, a list of (L_i,) of their rows, or None if their values are the targets."""
    from lformer.cli import read_table

    if answers is not None:
        found = panel.align(answers, "the target")
        return read_table.as_classes(found) if task.of_classes else read_table.as_numbers(found)
    if task.of_records:
        return None
    flat = read_table.row_targets(labelled, columns, str(target), panel)
    flat = read_table.as_classes(flat) if task.of_classes else read_table.as_numbers(flat, allow_nan=True)
    return read_table.per_series(flat, panel)


def _of(truth: Any, positions: Array) -> Any:
    return [truth[i] for i in positions] if isinstance(truth, list) else None if truth is None else truth[positions]


def _split(n: int, classes: Array | None, seed: int) -> tuple[Array, Array]:
    """Positions to train and to test on; every class keeps its share where each has members for both."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    if n < FEWEST:
        raise ValueError(f"at least {FEWEST} series are needed to train, validate and test; the table has {n}.")
    stratify = None
    if classes is not None:
        _, code, count = np.unique(classes, return_inverse=True, return_counts=True)
        stratify = code if count.min() > 1 and len(count) <= HELD_OUT * n else None
    train, test = train_test_split(np.arange(n), test_size=HELD_OUT, random_state=seed, stratify=stratify)
    return np.sort(train), np.sort(test)


def _scores(model: Any, task: Goal, panel: Panel, known: Any, truth: Any) -> Scores:
    """Of the rows of all series together, if each row has a target."""
    import numpy as np

    from lformer.cli import scores

    if task.of_records:
        return scores.of_records(model, panel)
    join = np.concatenate if task.of_points else np.asarray
    if task.of_classes:
        return scores.of_classes(model.classes_, join(model.predict_proba(panel)), join(known), join(truth))
    return scores.of_numbers(join(model.predict(panel)), join(known), join(truth))
