"""Predictions of a saved model for the series of a new table, as a table, for `lformer predict`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lformer.cli import read_table
from lformer.cli.common import UsageError, say
from lformer.panel import MissingValues, Panel
from lformer.panel.zones import read_zone
from lformer.sealed import write_whole


def columns_of(model: Path, kept: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Column names of a new table: as given, else as the model recorded them when it was fitted."""
    empty: dict[str, Any] = {
        "channel": None,
        "value": None,
        "static": [],
        "id_type": "text",
        "time_format": None,
        "time_zone": None,
    }
    columns = empty | kept | {key: name for key, name in given.items() if name}
    value = columns["value"]
    columns["value"] = read_table.one_value(columns["channel"], [value] if isinstance(value, str) else value)
    lost = [f"--{key}" for key in ("id", "time") if not columns.get(key)]
    if lost:
        raise UsageError(f"{' and '.join(lost)} must be given, because {model} does not record the column names.")
    return columns


def new_series(
    table: pd.DataFrame,
    columns: dict[str, Any],
    like: Any,
    missing: MissingValues,
    file: Path,
    free: bool,
    ignore_new: bool = False,
) -> Panel:
    """The series of a new table, with the channels and unit of `like`, a panel or the features of a model.

    A channel without a column is unobserved, unless its column was named by the user; a channel that is new is left out
    if `ignore_new`.
    """
    value = columns["value"]
    if isinstance(value, list) and free:
        columns = {**columns, "value": [name for name in value if name in table.columns] or value}
    given = columns["value"] if isinstance(columns["value"], list) else [columns["value"]]
    named = [columns["id"], columns["time"], columns["channel"], *given]
    read_table.require_columns(table, [name for name in named if name], file)
    static, table = read_table.take_static(table, columns["id"], columns["static"], file)
    table, columns = _known_channels(table, columns, like.channels, file, ignore_new)
    return read_table.series(table, columns, static, missing, file, like.channels, like.unit or None)


def _known_channels(
    table: pd.DataFrame, columns: dict[str, Any], known: tuple[str, ...], file: Path, ignore_new: bool
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The table and its columns, without channels that were not in the training data."""
    channel, value = columns["channel"], columns["value"]
    names = value if channel is None else table[channel].dropna().unique().tolist()
    new = [name for name in names or [] if str(name) not in known]
    if new and not ignore_new:
        raise ValueError(
            f"{file} has channels that were not in the training data: {', '.join(map(repr, new[:5]))}; the model knows "
            f"{', '.join(known[:8])}{', ...' if len(known) > 8 else ''}. --ignore-new-channels leaves them out."
        )
    if new:
        say(f"Left out: {', '.join(map(repr, new[:5]))}{', ...' if len(new) > 5 else ''} (not in the training data).")
        if channel is None:
            return table, {**columns, "value": [name for name in names if name not in new]}
        return table[~table[channel].isin(new)], columns
    return table, columns


def answer_table(estimator: Any, panel: Panel, columns: dict[str, Any], interval: float | None = None) -> pd.DataFrame:
    """Columns: id, the time if there is a prediction per row, prediction, and the probability of each class.

    With `interval`, also the ends of the prediction interval of this coverage, or whether each class is in the
    prediction set.
    """
    each_row = estimator.model_.config.answer == "step"
    answers: dict[str, Any] = {columns["id"]: np.repeat(panel.ids, panel.lengths) if each_row else panel.ids}
    if each_row:
        answers[columns["time"]] = _on_the_wall(np.concatenate([stamps for stamps, _ in panel]), panel.zone)
    join = np.concatenate if each_row else np.asarray
    if hasattr(estimator, "classes_"):
        probability = join(estimator.predict_proba(panel))
        answers["prediction"] = estimator.classes_[probability.argmax(axis=1)]
        answers |= {f"probability_{name}": probability[:, i] for i, name in enumerate(estimator.classes_)}
        if interval is not None:
            held = join(estimator.predict_set(panel, interval))
            answers |= {f"in_set_{name}": held[:, i] for i, name in enumerate(estimator.classes_)}
    else:
        numbers = join(estimator.predict(panel))
        flat = numbers.ndim == 1
        names = ["prediction"] if flat else [f"prediction_{i}" for i in range(numbers.shape[1])]
        answers |= dict(zip(names, numbers[None] if flat else numbers.T, strict=True))
        if interval is not None:
            ends = join(estimator.predict_interval(panel, interval))
            answers |= _ends(names, ends[:, None] if flat else ends)
    return pd.DataFrame(answers)


def asked_table(
    estimator: Any, panel: Panel, asked: list[Any], columns: dict[str, Any], interval: float | None = None
) -> pd.DataFrame:
    """Columns: id, query time, the value of each channel, and the ends of its interval if `interval` is given.

    Ids without a query are left out.
    """
    some = [i for i, stamps in enumerate(asked) if len(stamps)]
    panel, asked = panel[some], [asked[i] for i in some]
    aware = asked if panel.zone is None else [pd.DatetimeIndex(stamps, tz="UTC") for stamps in asked]
    values = np.concatenate(estimator.predict(panel, aware))
    answers = {
        columns["id"]: np.repeat(panel.ids, [len(stamps) for stamps in asked]),
        columns["time"]: _on_the_wall(np.concatenate(asked), panel.zone),
    }
    names = list(estimator.features_.channels)
    answers |= dict(zip(names, values.T, strict=True))
    if interval is not None:
        answers |= _ends(names, np.concatenate(estimator.predict_interval(panel, aware, interval)))
    return pd.DataFrame(answers)


def _ends(names: list[str], ends: Any) -> dict[str, Any]:
    """Columns with the lower and upper ends of (N, O, 2) intervals."""
    return {f"{name}_{end}": ends[:, k, e] for k, name in enumerate(names) for e, end in enumerate(("low", "high"))}


def _on_the_wall(stamps: Any, zone: str | None) -> Any:
    """Dates in the time zone of the data, with their offset."""
    return stamps if zone is None else pd.DatetimeIndex(stamps, tz="UTC").tz_convert(read_zone(zone))


def write(answers: pd.DataFrame, out: Path) -> None:
    """Write a table in the format of the file's suffix: text, JSON lines or Parquet."""
    name = out.name.lower().removesuffix(".gz")
    packed = "gzip" if out.name.lower().endswith(".gz") else None
    if name.endswith(".parquet"):
        try:
            importlib.import_module("pyarrow")
        except ImportError:
            raise ImportError(f'{out} needs pyarrow to be written: pip install "lformer[data]"') from None
        write_whole(out, lambda part: answers.to_parquet(part, index=False))
    elif name.endswith(".jsonl"):
        iso = answers.assign(**{k: _iso(answers[k]) for k in answers if answers[k].dtype.kind in "mM"})
        write_whole(
            out,
            lambda part: iso.to_json(part, orient="records", lines=True, double_precision=15, compression=packed),
        )
    else:
        sep = "\t" if name.endswith(".tsv") else ","
        write_whole(out, lambda part: answers.to_csv(part, index=False, sep=sep, compression=packed))


def _iso(stamps: pd.Series[Any]) -> pd.Series[Any]:
    return stamps.map(lambda stamp: stamp.isoformat())
