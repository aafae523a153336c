"""`lformer fit` and `lformer predict`: from a table of observations to a model, and from a model to answers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from lformer.cli.common import ChannelColumn, IdColumn, TableFile, TimeColumn, ValueColumns, clear_errors, console

if TYPE_CHECKING:
    import pandas as pd

    from lformer.panel import Array, Panel

HELD_OUT = 0.15
LOWER_IS_BETTER = ("MAE", "RMSE")


class Goal(StrEnum):
    """What is asked of each series."""

    classify = "classify"
    regress = "regress"


class Twice(StrEnum):
    """What to do with the same id, time and channel twice."""

    error = "error"
    mean = "mean"
    last = "last"


def fit(
    file: TableFile,
    id: IdColumn,
    time: TimeColumn,
    task: Annotated[Goal, typer.Option("--task", help="Predict a class or a number of each series.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the model; one that is there is replaced.")],
    channel: ChannelColumn = None,
    value: ValueColumns = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Column to predict, the same in all rows of an id.")
    ] = None,
    targets: Annotated[
        Path | None, typer.Option("--targets", help="CSV or Parquet with the target of each id, if not in FILE.")
    ] = None,
    on_duplicate: Annotated[
        Twice, typer.Option("--on-duplicate", help="What to do with the same id, time and channel twice.")
    ] = Twice.error,
    epochs: Annotated[int, typer.Option(help="At most so many; training stops earlier if nothing improves.")] = 40,
    seed: Annotated[int, typer.Option(help="Of split and weights; the same seed repeats the run.")] = 42,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Train on 85 % of the series of a table, test on the others beside a constant, and save that model."""
    from lformer import doctor
    from lformer.estimators import LFormerClassifier, LFormerRegressor, artefact

    with clear_errors():
        artefact.free_place(out)
        table = doctor.read_table(file, time=time)
        answers, table = _answers(table, file, id, target, targets)
        columns = {"id": id, "time": time, "channel": channel, "value": _value(channel, value),
                   "on_duplicate": on_duplicate.value}  # fmt: skip
        panel = _panel(table, columns)
        columns["stamps"] = _stamps(panel)
        if channel is None:
            columns["value"] = list(panel.channels)
        truth = _truth(panel.align(answers, "the target"), task)
        train, test = _split(truth, task, seed)
        estimator = LFormerClassifier if task is Goal.classify else LFormerRegressor
        model = estimator(max_epochs=epochs, random_state=seed, verbose=int(not quiet))
        model.fit(panel[train], truth[train])
        score = _class_scores if task is Goal.classify else _number_scores
        scores = score(model, panel[test], truth[train], truth[test])
        artefact.save(model, out, columns)
    _summary(scores, len(train), len(test))
    _say(f"{panel!r}; best of {model.n_iter_} epochs.")
    _say(f"Model: {out}   Use it: lformer predict {out} NEW.csv --out predictions.csv")


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model that `lformer fit` or `save` wrote.")],
    file: TableFile,
    out: Annotated[Path, typer.Option("--out", help="CSV file for the answers, one row per id.")],
    id: Annotated[str | None, typer.Option("--id", help="Column of ids, if named otherwise than at fit.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Column of stamps, likewise.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", help="Column of channels, likewise.")] = None,
    value: Annotated[list[str] | None, typer.Option("--value", help="Column or columns of values, likewise.")] = None,
) -> None:
    """Answer for every series of a new table: the prediction and, of classes, the probability of each."""
    from lformer import doctor
    from lformer.estimators import load

    with clear_errors():
        if out.suffix != ".csv":
            raise ValueError(f"--out must end with .csv; got {out}.")
        estimator = load(model)
        columns = _columns(model, {"id": id, "time": time, "channel": channel, "value": value})
        table = doctor.read_table(file, time=columns["time"])
        panel = _panel(table, columns, estimator.features_.channels)
        if columns.get("stamps") not in (None, _stamps(panel)):
            raise ValueError(
                f"column {columns['time']!r} of {file} holds {_stamps(panel)}; the model was trained on "
                f"{columns['stamps']}. Give the stamps of both in the same form."
            )
        answers = _answer_table(estimator, panel, columns["id"])
        _write(answers, out)
    _say(f"{len(answers):,} predictions: {out}")


def _say(text: str) -> None:
    console.print(escape(text), soft_wrap=True, highlight=False)


# -- from a table to series and targets


def _value(channel: str | None, value: list[str] | None) -> str | list[str] | None:
    """One column beside a channel column, else a column for each channel; all columns if None."""
    if channel is None:
        return value or None
    if not value or len(value) != 1:
        raise ValueError(f"with --channel, give the one column of the values by --value; got {value or 'none'}.")
    return value[0]


def _panel(table: pd.DataFrame, columns: dict[str, Any], channels: tuple[str, ...] | None = None) -> Panel:
    from lformer.panel import Panel

    return Panel.from_long(
        table, id=columns["id"], time=columns["time"], channel=columns["channel"], value=columns["value"],
        channels=channels, on_duplicate=columns.get("on_duplicate", "error"),
    )  # fmt: skip


def _stamps(panel: Panel) -> str:
    return "calendar stamps" if panel.origin.dtype.kind in "mM" else "numbers"


def _answers(
    table: pd.DataFrame, file: Path, id: str, target: str | None, targets: Path | None
) -> tuple[pd.Series[Any], pd.DataFrame]:
    """The target of each id, and the table without it: what is to be predicted must not be an input."""
    from lformer import doctor

    if targets is not None:
        source, place = doctor.read_table(targets), targets
        rest = [column for column in source.columns if column != id]
        if target is None and len(rest) != 1:
            raise ValueError(f"{targets} must have one column beside {id!r}, or choose one by --target; got {rest}.")
        target = target or rest[0]
    elif target is not None:
        source, place = table, file
    else:
        raise ValueError("what is to be predicted? Give --target COLUMN, or --targets FILE with a target for each id.")
    lost = [column for column in (id, target) if column not in source.columns]
    if lost:
        raise ValueError(f"{place} has no column {lost[0]!r}; it has {', '.join(map(repr, source.columns))}.")
    return _constant(source, id, target, place), table.drop(columns=target) if source is table else table


def _constant(source: pd.DataFrame, id: str, target: str, place: Path) -> pd.Series[Any]:
    """The one value of the target for each id; rows without a value do not count."""
    groups = source.groupby(id, observed=True)[target]
    varying = groups.nunique() > 1
    if varying.any():
        who = varying.index[varying.argmax()]
        values = source.loc[source[id] == who, target].dropna().unique()[:3].tolist()
        raise ValueError(
            f"{target!r} must be the same in all rows of an id; in {place} id {who!r} has {values}"
            f"{_more(int(varying.sum()))}. Choose one value for each id."
        )
    answers = groups.first()
    if (none := answers.isna()).any():
        raise ValueError(
            f"every id needs a target; in {place} id {answers.index[none.argmax()]!r} has none"
            f"{_more(int(none.sum()))}. Write one, or drop its rows."
        )
    return answers


def _more(count: int) -> str:
    return f" (so do {count - 1} others)" if count > 1 else ""


def _truth(answers: Array, task: Goal) -> Array:
    """(n,) numbers to regress, or classes; classes that became floating only because a row had none are whole again."""
    import numpy as np

    if task is Goal.classify:
        labels = np.asarray(answers.tolist())  # of their own type, where pandas kept them as objects
        whole = labels.dtype.kind == "f" and bool((labels == np.rint(labels)).all())
        return labels.astype(np.int64) if whole else labels
    try:
        numbers = answers.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"to regress, the target must hold numbers: {error}. Is it --task classify?") from error
    if not np.isfinite(numbers).all():
        raise ValueError(f"the target must be finite; one is {numbers[~np.isfinite(numbers)][0]}.")
    return numbers


def _split(truth: Array, task: Goal, seed: int) -> tuple[Array, Array]:
    """Positions to train and to test on; every class keeps its share where each has members for both."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    _, code, count = np.unique(truth, return_inverse=True, return_counts=True)
    stratify = code if task is Goal.classify and count.min() > 1 and len(count) <= HELD_OUT * len(truth) else None
    train, test = train_test_split(np.arange(len(truth)), test_size=HELD_OUT, random_state=seed, stratify=stratify)
    return np.sort(train), np.sort(test)


# -- how good it is

Scores = dict[str, tuple[float, float]]  # metric: of the model, of a constant


def _class_scores(model: Any, panel: Panel, known: Array, truth: Array) -> Scores:
    """Accuracy beside that of the most frequent class; AUC of each class against the others, averaged."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    probability = model.predict_proba(panel)
    classes, count = np.unique(known, return_counts=True)
    hit = float((model.classes_[probability.argmax(axis=1)] == truth).mean())
    scores = {"accuracy": (hit, float((truth == classes[count.argmax()]).mean()))}
    sides = [(truth == name, probability[:, i]) for i, name in enumerate(model.classes_)]
    areas = [roc_auc_score(side, score) for side, score in sides if side.any() and not side.all()]
    return {**scores, "AUC": (float(np.mean(areas)), 0.5)} if areas else scores


def _number_scores(model: Any, panel: Panel, known: Array, truth: Array) -> Scores:
    """Errors beside those of the mean of the training targets."""
    import numpy as np

    errors = model.predict(panel) - truth, known.mean() - truth
    mae, rmse = ([float(f(e)) for e in errors] for f in (lambda e: np.abs(e).mean(), lambda e: np.sqrt((e**2).mean())))
    return {"MAE": (mae[0], mae[1]), "RMSE": (rmse[0], rmse[1])}


def _summary(scores: Scores, train: int, test: int) -> None:
    table = Table(title=f"{test:,} series held out, {train:,} to train and choose the epoch")
    for column in ("metric", "model", "constant"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for metric, pair in scores.items():
        table.add_row(metric, *(f"{number:.4g}" for number in pair))
    console.print(table)
    metric, (model, constant) = next(iter(scores.items()))
    if not (model < constant if metric in LOWER_IS_BETTER else model > constant):
        _say(f"By {metric} the model is no better than a constant: more series or epochs may help.")


# -- from a model to answers


def _columns(model: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Names of the columns: as given, else as at fit."""
    from lformer.estimators import artefact

    known = artefact.read_json(model, artefact.COLUMNS) if (model / artefact.COLUMNS).exists() else {}
    columns = {"channel": None, "value": None, **known, **{key: name for key, name in given.items() if name}}
    value = columns["value"]
    columns["value"] = _value(columns["channel"], [value] if isinstance(value, str) else value)
    lost = [f"--{key}" for key in ("id", "time") if not columns.get(key)]
    if lost:
        raise ValueError(f"{model} does not say how the columns are named, so {' and '.join(lost)} must.")
    return columns


def _answer_table(estimator: Any, panel: Panel, id: str) -> pd.DataFrame:
    """id, prediction (numbered if there are several) and the probability of each class."""
    import pandas as pd

    answers: dict[str, Any] = {id: panel.ids}
    if hasattr(estimator, "classes_"):
        probability = estimator.predict_proba(panel)
        answers["prediction"] = estimator.classes_[probability.argmax(axis=1)]
        answers |= {f"probability_{name}": probability[:, i] for i, name in enumerate(estimator.classes_)}
    else:
        numbers = estimator.predict(panel)
        flat = numbers.ndim == 1
        answers |= {"prediction": numbers} if flat else {f"prediction_{i}": n for i, n in enumerate(numbers.T)}
    return pd.DataFrame(answers)


def _write(answers: pd.DataFrame, out: Path) -> None:
    from lformer.data.store import write_whole

    write_whole(out, lambda part: answers.to_csv(part, index=False))
