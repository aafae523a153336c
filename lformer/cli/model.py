"""`lformer fit` and `lformer predict`: from a table of observations to a model, and from a model to predictions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lformer.cli.common import (
    KINDS,
    ChannelColumn,
    Decimal,
    Encoding,
    GroupColumn,
    Horizon,
    IdColumn,
    IdKind,
    IdType,
    MissingNumbers,
    MissingText,
    OnDuplicate,
    Sep,
    StaticColumns,
    TableFile,
    TableFiles,
    TargetColumn,
    TargetsFile,
    TaskName,
    Thousands,
    TimeColumn,
    TimeFormat,
    TimeZone,
    Twice,
    UsageError,
    ValueColumns,
    clear_errors,
    say,
)

if TYPE_CHECKING:
    from lformer.cli.plan import Plan, Request
    from lformer.cli.scores import Scores


class Device(StrEnum):
    """Device to train on."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


class Sure(StrEnum):
    """Distributions that a model can predict for numbers."""

    gaussian = "gaussian"
    quantiles = "quantiles"


class Beyond(StrEnum):
    """What to do with a time further ahead than in training."""

    error = "error"
    warn = "warn"


def fit(
    file: TableFiles,
    id: IdColumn,
    time: TimeColumn,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model; an existing model is replaced.")],
    task: TaskName = None,
    channel: ChannelColumn = None,
    value: ValueColumns = None,
    target: TargetColumn = None,
    targets: TargetsFile = None,
    static: StaticColumns = None,
    group: GroupColumn = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            "--unlabelled", help=f"{KINDS} file like FILE, with ids that have no target, to pre-train the model on."
        ),
    ] = None,
    horizon: Horizon = None,
    on_disk: Annotated[
        Path | None,
        typer.Option("--on-disk", help="New folder to store the series in, for Parquet files larger than memory."),
    ] = None,
    on_duplicate: OnDuplicate = Twice.error,
    missing_values: MissingNumbers = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    encoding: Encoding = "utf-8",
    time_format: TimeFormat = None,
    time_zone: TimeZone = None,
    id_type: IdKind = IdType.text,
    missing_text: MissingText = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of passes over the training series. By default about 1,000 steps for few series and 2,500 for "
            "many. Training stops after 20 epochs without improvement on the validation series; the best epoch is "
            "kept.",
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of models in an ensemble; five take five times as long to train. By default 3 to classify or "
            "regress fewer than 100 series, else 1.",
        ),
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="Width of the model: the size of its representation of a row.")
    ] = None,
    lr: Annotated[float | None, typer.Option("--lr", help="Peak learning rate.")] = None,
    uncertainty: Annotated[
        Sure | None,
        typer.Option(help="Distribution to predict for numbers: a normal distribution or quantiles. By default none."),
    ] = None,
    calibrate: Annotated[
        float,
        typer.Option(
            "--calibrate",
            help="Share of the series to hold out for calibration, as required by `lformer predict --interval`; 0.2 "
            "for a few hundred series.",
        ),
    ] = 0.0,
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Train a causal model, as required by `lformer stream`.")
    ] = False,
    device: Annotated[Device, typer.Option(help="Device to train on. auto uses a GPU if there is one.")] = Device.auto,
    devices: Annotated[
        int, typer.Option(min=1, help="Number of processes that train together, one per GPU or several on CPUs.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Random seed of split and weights; the same seed repeats the run.")] = 42,
    quiet: Annotated[bool, typer.Option("--quiet", help="Hide the progress bar.")] = False,
) -> None:
    """Train on a table, evaluate on held-out series and save the model.

    15 % of the series are held out, and the model is compared with a simple baseline on them. An HTML report is written
    next to the folder of the model: scores, training curves, importance of channels, and explained examples.

    Exit code 0: the model is saved. 1: something is wrong with the data. 2: something is wrong with the request.
    """
    from lformer.cli import big_table, read_table, scores
    from lformer.cli import plan as planning
    from lformer.doctor.quick import look_over
    from lformer.estimators import artefact
    from lformer.estimators.devices import check_devices
    from lformer.estimators.folder import free_place
    from lformer.estimators.naive import LosesToNaiveWarning
    from lformer.estimators.suspicion import SuspectDataWarning
    from lformer.report import report

    with clear_errors():
        free_place(out)
        request = planning.Request(
            files=big_table.tables_of(file), task=task, target=target, targets=targets, group=group, horizon=horizon,
            seed=seed,
            form=read_table.form(sep, decimal, thousands, encoding, time_format, time_zone, id_type, missing_text),
            missing=read_table.missing_values(missing_values),
            columns={
                "id": id, "time": time, "channel": channel, "value": read_table.one_value(channel, value),
                "on_duplicate": on_duplicate.value, "static": static or [],
                "id_type": str(id_type or IdType.text), "time_format": time_format, "time_zone": time_zone,
            },
        )  # fmt: skip
        request.check()
        if task is not None and task.of_records and unlabelled:
            raise UsageError(f"--task {task} needs no targets: put the series of --unlabelled into FILE.")
        check_devices(devices, device.value)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError("lformer fit starts its own processes: give --devices 2 instead of using torchrun.")
        if lr is not None and not lr > 0:
            raise UsageError(f"--lr must be greater than 0; got {lr}.")
        if not 0 <= calibrate < 1:
            raise UsageError(f"--calibrate must be at least 0 and below 1; got {calibrate}.")
    with clear_errors(code=1), big_table.place_on_disk(request, on_disk, out) as folder:
        if folder is None:
            plan = planning.plan(request, planning.take_apart(request, request.read()))
        else:
            plan = big_table.plan_on_disk(request, folder)
        panel, columns = plan.panel, request.columns
        if channel is None:
            columns["value"] = list(panel.channels)
        for finding in look_over(panel)[0]:
            say(f"{finding.title}: {finding.detail} {finding.option or finding.advice}")
        training: dict[str, Any] = {
            "max_epochs": epochs, "random_state": seed, "verbose": int(not quiet), "missing_values": request.missing,
            "device": device.value, "devices": devices, "streaming": streaming,
        }  # fmt: skip
        given = {"members": members, "width": width, "lr": lr}
        more: dict[str, Any] = {"calibration_fraction": calibrate}
        if uncertainty is not None:
            if plan.task is not None and plan.task.of_classes:
                raise UsageError(
                    "--uncertainty is for numbers; for classes there are probabilities, and prediction sets with "
                    "--calibrate."
                )
            more["uncertainty"] = uncertainty.value
        training |= {name: value for name, value in given.items() if value is not None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuspectDataWarning)  # printed above
            warnings.simplefilter("ignore", LosesToNaiveWarning)  # printed below
            start = {} if unlabelled is None else {"pretrained": _pretrained(plan, request, unlabelled, training)}
            model = plan.estimator(**training, **more, **start)
            with planning.naming(request.file):
                plan.fit(model)
                found = _scores(model, plan)
        artefact.save(model, out, columns)
        beside = out.resolve().with_name(f"{out.resolve().name}-report.html")  # a model's folder holds nothing else
        title, asked = f"{request.file.name}: {plan.task}", plan.targets(plan.test)
        report(model, panel[plan.test], asked, beside, title=title, trained_on=panel[plan.train])
    worse = scores.show(found, len(plan.train), len(plan.test))
    say(worse) if worse else None
    say(f"{panel!r}; best of {model.n_iter_} epochs.")
    say(
        f"Validation {model.task_.monitor}: {model.validation_score_:.4g}; {model.naive_} on the same series: "
        f"{model.naive_score_:.4g}" + (", which is better." if model.loses_ else ".")
    )
    say(f"Report: {beside}")
    asks = plan.task is not None and plan.task.of_records
    say(f"Model: {out}   Use it: lformer predict {out} NEW.csv{' --at TIME' if asks else ''} --out predictions.csv")


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model that was saved by `lformer fit` or `save`.")],
    file: TableFile,
    out: Annotated[
        Path, typer.Option("--out", help="File for the predictions, ending with .csv, .tsv, .jsonl or .parquet.")
    ],
    id: Annotated[
        str | None, typer.Option("--id", help="Column with the ids, if named differently from the training table.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="Column with the time stamps, if named differently.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Column with the channel names, if named differently.")
    ] = None,
    value: Annotated[
        list[str] | None, typer.Option("--value", help="Columns with the values, if named differently.")
    ] = None,
    static: Annotated[
        list[str] | None, typer.Option("--static", help="Columns with static covariates, if named differently.")
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", help="Time to interpolate or forecast at, for every id. Can be repeated."),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", help=f"{KINDS} file with the ids and times to interpolate or forecast at."),
    ] = None,
    extrapolate: Annotated[
        Beyond, typer.Option("--extrapolate", help="What to do with times further ahead than in training.")
    ] = Beyond.error,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            help="Coverage, such as 0.9: also write the ends of prediction intervals, or which classes are in the "
            "prediction set. The model must have been fitted with --calibrate.",
        ),
    ] = None,
    ignore_new_channels: Annotated[
        bool, typer.Option("--ignore-new-channels", help="Leave out channels that were not in the training data.")
    ] = False,
    missing_values: MissingNumbers = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    encoding: Encoding = "utf-8",
    time_format: TimeFormat = None,
    time_zone: TimeZone = None,
    id_type: IdKind = None,
    missing_text: MissingText = None,
) -> None:
    """Predict for a new table: one row per id, per id and time of the table, or per id and query time.

    Column names, the type of ids, and the format and time zone of time stamps are those of `lformer fit` unless given.

    Exit code 0: predictions are written. 1: something is wrong with the data. 2: something is wrong with the request.
    """
    from lformer.cli import answers, read_table
    from lformer.doctor.files import KNOWN, is_known
    from lformer.estimators import LFormerForecaster, LFormerInterpolator, LFormerPretrainer
    from lformer.estimators.artefact import load_with_columns

    with clear_errors():
        if not is_known(out):
            raise UsageError(f"--out must end with {KNOWN}; got {out}.")
        numbers = read_table.missing_values(missing_values)
        form = (sep, decimal, thousands, encoding)
        read_table.form(*form, time_format, time_zone, id_type, missing_text)
    with clear_errors(code=1):
        estimator, kept = load_with_columns(model)
        if numbers:
            estimator.set_params(missing_values=numbers)
        if isinstance(estimator, LFormerPretrainer):
            raise UsageError(
                f"{model} was pre-trained without targets and predicts nothing by itself: fit an estimator from it."
            )
        given = {"id": id, "time": time, "channel": channel, "value": value, "static": static, "id_type": id_type,
                 "time_format": time_format, "time_zone": time_zone}  # fmt: skip
        columns = answers.columns_of(model, kept or {}, given)
        written = read_table.form(*form, columns["time_format"], columns["time_zone"], columns["id_type"], missing_text)
        asks = isinstance(estimator, LFormerForecaster | LFormerInterpolator)
        if not asks and (at or queries):
            raise UsageError(f"--at and --queries are for models that interpolate or forecast; {model} does neither.")
        table = read_table.read(file, columns, written)
        like, missing = estimator.features_, estimator.missing_values
        panel = answers.new_series(table, columns, like, missing, file, free=not value, ignore_new=ignore_new_channels)
        if asks:
            asked = read_table.queries(panel, at or [], queries, columns, written)
            if isinstance(estimator, LFormerForecaster):
                estimator.set_params(extrapolate=extrapolate.value)
            told = _said(lambda: answers.asked_table(estimator, panel, asked, columns, interval))
        else:
            told = _said(lambda: answers.answer_table(estimator, panel, columns, interval))
        answers.write(told, out)
    say(f"{len(told):,} predictions: {out}")


def _said(answer: Callable[[], Any]) -> Any:
    """The result of a call; its warnings are printed, one line each, and its errors name options, not arguments."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            told = answer()
    except ValueError as error:
        said = str(error).replace('extrapolate="warn"', "--extrapolate warn")
        raise ValueError(said.replace("with calibration_fraction=0.2", "with --calibrate 0.2")) from error
    for warning in caught:
        say(f"warning: {warning.message}")
    return told


def _pretrained(plan: Plan, request: Request, file: Path, training: dict[str, Any]) -> Any:
    """A model pre-trained on the series of two tables without their targets; test series are not used."""
    import numpy as np

    from lformer.cli import answers, read_table
    from lformer.estimators import pretrain

    panel, train = plan.panel, plan.train
    table = read_table.read(file, request.columns, request.form)
    others = answers.new_series(table, request.columns, panel, request.missing, file, free=True)
    others = others[~np.isin(others.ids.astype(str), panel.ids.astype(str))]
    if not len(others):
        raise ValueError(f"{file} must have series with ids that are not in the table with the targets; it has none.")
    start = pretrain(panel[train], others, **training)
    say(
        f"Pre-trained on {len(train):,} series of the table and {len(others):,} without a target. Mean squared error "
        f"on hidden values: {start.history_[-1]['mse']:.3g}, with each channel scaled to unit variance."
    )
    return start


def _scores(model: Any, plan: Plan) -> Scores:
    """The scores on the test series, over all of their rows if each row has a target."""
    import numpy as np

    from lformer.cli import scores

    panel, known, truth = plan.panel[plan.test], plan.targets(plan.train), plan.targets(plan.test)
    assert plan.task is not None
    if plan.task.of_records:
        return scores.of_records(model, panel)
    join = np.concatenate if plan.task.of_points else np.asarray
    if plan.task.of_classes:
        return scores.of_classes(model.classes_, join(model.predict_proba(panel)), join(known), join(truth))
    return scores.of_numbers(join(model.predict(panel)), join(known), join(truth))
