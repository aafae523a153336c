"""From a table of observations to series and targets, for `lformer fit` and `lformer predict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lformer import doctor
from lformer.cli.common import UsageError
from lformer.doctor import Form
from lformer.doctor.checks import REFUSED
from lformer.doctor.dates import read_stamps
from lformer.doctor.files import KNOWN, is_known, separator_of, use_separator
from lformer.doctor.ids import ids_like
from lformer.doctor.series import ALONE
from lformer.panel import Array, MissingValues, Panel
from lformer.panel.stamps import as_stamps, one_of
from lformer.panel.zones import zone_of

if TYPE_CHECKING:
    from lformer.cli.plan import Request

FEW = 10  # up to this many different whole numbers are taken as classes


def read(path: Path, columns: Mapping[str, Any], form: Form) -> pd.DataFrame:
    """The table of a file, with ids, channels and time stamps read as specified by `columns` and the form."""
    if not is_known(path):
        raise UsageError(f"expected a file that ends with {KNOWN}; got {path}.")
    if not path.exists():
        raise UsageError(f"No such file: {path}.")
    named = {name: columns.get(name) for name in ("id", "time", "channel")}
    return doctor.read_table(path, **named, form=form)


def require_columns(table: pd.DataFrame, names: list[str], place: Path) -> None:
    """Raise an error if a column named by an option does not exist."""
    if lost := [name for name in names if name not in table.columns]:
        missing = f"{place} has no column {lost[0]!r}; it has {', '.join(map(repr, table.columns))}."
        if sep := separator_of(list(table.columns)):
            raise ValueError(f"{missing} {use_separator(sep)}")
        raise UsageError(f"{missing} Name columns as the file does; without --channel, each column is a channel.")


def one_value(channel: str | None, value: list[str] | None) -> str | list[str] | None:
    """One column if there is a channel column, else one per channel; None stands for all other columns."""
    if channel is None:
        return value or None
    if not value or len(value) != 1:
        raise UsageError(f"with --channel, give the one column of the values with --value; got {value or 'none'}.")
    return value[0]


def missing_values(texts: list[str] | None) -> list[float] | dict[str, list[float]] | None:
    """Numbers that stand for missing values, in all channels or by channel."""
    everywhere: list[float] = []
    by_channel: dict[str, list[float]] = {}
    for text in texts or []:
        channel, named, number = text.rpartition("=")
        try:
            (by_channel.setdefault(channel, []) if named else everywhere).append(float(number))
        except ValueError:
            raise UsageError(f"--missing-values must be a number, or CHANNEL=NUMBER; got {text!r}.") from None
    if everywhere and by_channel:
        raise UsageError("--missing-values must be given for all channels or by channel, not both; name each channel.")
    return by_channel or everywhere or None


def form(
    sep: str | None,
    decimal: str,
    thousands: str | None,
    encoding: str,
    time_format: str | None,
    time_zone: str | None,
    id_type: str | None,
    missing_text: list[str] | None,
) -> Form:
    """The format of a table, from the options."""
    kind: Any = str(id_type or "text")
    return Form(
        sep={"\\t": "\t"}.get(sep or "", sep), decimal=decimal, thousands=thousands, encoding=encoding,
        time_format=time_format, time_zone=time_zone, id_type=kind, missing_text=tuple(missing_text or ()),
    )  # fmt: skip


def series(
    table: pd.DataFrame,
    columns: dict[str, Any],
    static: pd.DataFrame | None,
    missing: MissingValues,
    place: Path,
    channels: tuple[str, ...] | None = None,
    unit: str | None = None,
) -> Panel:
    """The panel of a table, laid out as `columns` says."""
    layout = {name: columns[name] for name in ("id", "time", "channel", "value")}
    layout |= {"missing_values": missing, "on_duplicate": columns.get("on_duplicate", "error")}
    try:
        return Panel.from_long(table, **layout, channels=channels, static=static, unit=unit)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: {_explained(table, layout) or error}") from error


def _explained(table: pd.DataFrame, layout: dict[str, Any]) -> str:
    """The first error that the doctor finds in a table that makes no panel, with its advice; "" if there is none."""
    for finding in doctor.examine(table, **layout).in_options().findings:
        if finding.level == "error" and finding.title not in (REFUSED, ALONE):
            return f"{finding.title}. {finding.detail} {finding.advice}"
    return ""


# -- columns with one value for each id


def take_static(
    table: pd.DataFrame, id: str, names: list[str], place: Path
) -> tuple[pd.DataFrame | None, pd.DataFrame]:
    """Covariates, one row per id, and the table without them; NaN where no row of an id has a value."""
    if not names:
        return None, table
    require_columns(table, names, place)
    columns = {name: constant(table, id, name, place) for name in names}
    return pd.DataFrame(columns), table.drop(columns=names)


def take_group(
    table: pd.DataFrame, id: str, name: str | None, place: Path
) -> tuple[pd.Series[Any] | None, pd.DataFrame]:
    """The group of each id, and the table without this column."""
    if name is None:
        return None, table
    whose = constant(table, id, name, place)
    if (none := whose.isna()).any():
        raise ValueError(
            f"every id needs a group; in {place} id {whose.index[none.argmax()]!r} has none in {name!r}"
            f"{_more(int(none.sum()))}. Fill it in, or drop its rows."
        )
    return whose, table.drop(columns=name)


def take_target(table: pd.DataFrame, request: Request) -> tuple[pd.Series[Any], pd.DataFrame]:
    """The target of each id, and the table without it: the target must not be an input."""
    source, place, id, target = table, request.file, request.columns["id"], request.target
    if request.targets is not None:
        source, place = read(request.targets, {"id": id}, request.form), request.targets
        require_columns(source, [id], place)
        rest = [column for column in source.columns if column != id]
        if target is None and len(rest) != 1:
            raise UsageError(f"{place} must have one column besides {id!r}, or choose one with --target; got {rest}.")
        target = target or rest[0]
        source = source.assign(**{id: ids_like(source[id], table[id], f"{place}, column {id!r}", str(request.file))})
    assert target is not None
    require_columns(source, [id, target], place)
    try:
        answers = constant(source, id, target, place)
    except ValueError as error:
        each = " Or give --task classify-points or regress-points, if each row has its own."
        raise ValueError(f"{error}{'' if request.targets else each}") from error
    if (none := answers.isna()).any():
        raise ValueError(
            f"every id needs a target; in {place} id {answers.index[none.argmax()]!r} has none"
            f"{_more(int(none.sum()))}. Write one, or drop its rows."
        )
    return answers, table.drop(columns=target) if source is table else table


def for_all(answers: pd.Series[Any], panel: Panel, request: Request) -> pd.Series[Any]:
    """The targets; raises an error if there is not one for each series."""
    known = pd.Index(panel.ids.astype(str)).isin(answers.index.astype(str))  # numpy would compare every pair
    lost = panel.ids[~known].tolist()
    if lost:
        raise ValueError(
            f"{request.targets or request.file} has no target for {len(lost)} of {len(panel)} ids of {request.file}, "
            f"among them {lost[:5]}; it has ids such as {answers.index[:3].tolist()}. "
            + ("They match as whole numbers: give --id-type int" if _meet(lost, answers.index) else "Add the targets.")
        )
    return answers


def _meet(some: Iterable[Any], others: Iterable[Any]) -> bool:
    """Whether some ids of two tables are the same except for leading zeros."""
    one, two = ({str(name).lstrip("0") for name in names if str(name).isdigit()} for names in (some, others))
    return bool(one & two)


def constant(source: pd.DataFrame, id: str, name: str, place: Path) -> pd.Series[Any]:
    """The single value of a column for each id, ignoring rows without a value."""
    groups = source.groupby(id, observed=True)[name]
    varying = groups.nunique() > 1
    if varying.any():
        who = varying.index[varying.argmax()]
        values = source.loc[source[id] == who, name].dropna().unique()[:3].tolist()
        raise ValueError(
            f"{name!r} must be the same in all rows of an id; in {place} id {who!r} has {values}"
            f"{_more(int(varying.sum()))}. Choose one value for each id."
        )
    return groups.first()


def _more(count: int) -> str:
    return f", as do {count - 1} others" if count > 1 else ""


# -- targets


def row_targets(table: pd.DataFrame, columns: dict[str, Any], target: str, panel: Panel) -> Array:
    """(N,) the target of every row of the panel made from the table; None or NaN where there is none."""
    owner, ids = pd.factorize(table[columns["id"]], sort=True)
    clock = as_stamps(table[columns["time"]], f"column {columns['time']!r}")
    groups = table[target].groupby([owner, clock])  # in the order of the rows of the panel
    varying = groups.nunique() > 1
    if varying.any():
        who, when = varying.index[varying.argmax()]
        raise ValueError(
            f"{target!r} must be the same in all rows of an id at one time; id {ids[who]!r} has several at {when}"
            f"{_more(int(varying.sum()))}. Choose one value."
        )
    found: Array = groups.first().to_numpy()
    assert len(found) == int(panel.lengths.sum())
    return found


def per_series(flat: Array, panel: Panel) -> list[Array]:
    """Split an array over all rows into one array for each series."""
    return np.split(flat, np.cumsum(panel.lengths)[:-1])


def as_classes(answers: Array) -> Array:
    """(n,) classes in their own type; whole numbers that became floats because some rows had none are whole again."""
    if (lost := pd.isna(answers)).any():
        raise ValueError(f"every row needs a class; {int(lost.sum())} of {len(answers)} have none. Drop these rows.")
    labels = np.asarray(answers.tolist())
    whole = labels.dtype.kind == "f" and bool((labels == np.rint(labels)).all())
    return labels.astype(np.int64) if whole else labels


def as_numbers(answers: Array, allow_nan: bool = False) -> Array:
    """(n,) float64."""
    try:
        numbers = answers.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"to regress, the target must hold numbers: {error}. For classes, give --task classify."
        ) from error
    if (wild := np.isinf(numbers) if allow_nan else ~np.isfinite(numbers)).any():
        raise ValueError(f"the target must be finite; got {numbers[wild][0]}.")
    return numbers


def looks_like_classes(answers: pd.Series[Any]) -> bool:
    """Whether targets are text, booleans, or a few different whole numbers."""
    if not pd.api.types.is_numeric_dtype(answers) or pd.api.types.is_bool_dtype(answers):
        return True
    return answers.nunique() <= FEW and bool((answers == answers.round()).all())


# -- query times


def horizon(text: str, panel: Panel) -> float:
    """A number in the unit of the times; for calendar stamps also a duration such as 36h or 2D."""
    try:
        return float(text)
    except ValueError:
        if panel.origin.dtype.kind not in "mM":
            raise UsageError(f"--horizon must be a number, because the time stamps are; got {text!r}.") from None
    try:
        return float(pd.Timedelta(text).to_timedelta64() / one_of(panel.unit))
    except ValueError as error:
        raise UsageError(f"--horizon must be a number of seconds or a duration such as 36h; got {text!r}.") from error


def queries(panel: Panel, at: list[str], table: Path | None, columns: dict[str, Any], form: Form) -> list[Any]:
    """The query times of each series, in UTC: the same for all, or those of a table with ids and time stamps.

    Time stamps without a time zone are in that of the series.
    """
    if bool(at) == (table is not None):
        raise UsageError("this model predicts at query times: give either --at TIME or --queries FILE.")
    if table is None:
        stamps = _stamps(at, panel.origin.dtype.kind, panel.zone, form)
        return [stamps] * len(panel)
    asked = read(table, columns, form)
    require_columns(asked, [columns["id"], columns["time"]], table)
    stamps, owner = asked[columns["time"]], asked[columns["id"]]
    if panel.zone is not None and getattr(stamps.dtype, "kind", "") == "M" and zone_of(stamps) is None:
        stamps = stamps.dt.tz_localize(panel.zone)
    clock = as_stamps(stamps, f"{table}, column {columns['time']!r}")
    owner = ids_like(owner, panel.ids, f"{table}, column {columns['id']!r}", "the table")
    if strange := sorted(set(owner.unique()) - set(panel.ids.tolist()), key=str):
        raise ValueError(f"{table} has ids that have no observations, among them {strange[:5]}.")
    return [clock[(owner == name).to_numpy()] for name in panel.ids.tolist()]


def _stamps(at: list[str], kind: str, zone: str | None, form: Form) -> Array:
    if form.time_format is not None:
        stamps = read_stamps(pd.Series(at, dtype=str), form, "--at")
        if zone is not None and zone_of(stamps) is None:
            stamps = stamps.dt.tz_localize(zone)
        return as_stamps(stamps, "--at")
    try:
        if kind == "m":
            return pd.to_timedelta(at).to_numpy()
        if kind == "M":
            dates = [pd.to_datetime(text, format="ISO8601") for text in at]
            local = [date if date.tzinfo else date.tz_localize(zone or "UTC") for date in dates]
            return as_stamps(pd.to_datetime(local, utc=True), "--at")
        return np.array([float(text) for text in at])
    except (ValueError, TypeError) as error:
        kinds = {"M": "ISO 8601", "m": "a duration"}
        raise UsageError(
            f"--at must be {kinds.get(kind, 'a number')}, like the time stamps of the table: {error}."
        ) from error
