"""JSON lines as rows of streams, and the predictions of the streams as JSON lines, for `lformer stream`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lformer.arrays import shown
from lformer.doctor.dates import is_text, read_stamps
from lformer.doctor.form import Form
from lformer.estimators.streams import Streams

KEYS = {"id", "time", "at", "values", "static"}
Answer = dict[str, Any]


class Line(NamedTuple):
    """A valid line."""

    number: int  # from 1
    id: str | int
    time: Any  # of the row, or of the query
    asks: bool
    values: dict[str, Any]
    static: dict[str, Any] | None


class Lines:
    """Answers to lines, many at once; an invalid line is answered with an error and does not affect the others."""

    def __init__(self, streams: Streams, columns: dict[str, Any]) -> None:
        self.streams, self.count, self.wrong = streams, 0, 0
        self._form = Form(time_format=columns.get("time_format"), time_zone=columns.get("time_zone"))

    def answers(self, lines: Sequence[bytes]) -> list[Answer]:
        """One answer for each line that is not empty, in the same order."""
        found: list[tuple[int, Answer]] = []
        good: list[Line] = []
        for text in lines:
            self.count += 1
            if text.strip():
                try:
                    good.append(_read(text, self.count))
                except ValueError as error:
                    found.append((self.count, self._refusal(self.count, error)))
        for _, several in groupby(good, key=lambda line: line.asks):
            some = list(several)
            found += zip((line.number for line in some), self._told(some), strict=True)
        return [answer for _, answer in sorted(found, key=lambda pair: pair[0])]

    def _told(self, lines: list[Line]) -> list[Answer]:
        """Answer all lines at once if all are valid; if not, nothing was taken in, and each is tried by itself."""
        try:
            return self._asked(lines) if lines[0].asks else self._taken(lines)
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            if len(lines) > 1:
                return [answer for line in lines for answer in self._told([line])]
            text = error.args[0] if isinstance(error, KeyError) else error
            return [self._refusal(lines[0].number, text, lines[0].id)]

    def _taken(self, lines: list[Line]) -> list[Answer]:
        """Take in rows; returns the prediction after each."""
        stamps = self._stamps(lines)
        if late := _goes_back(lines, list(stamps)):
            return self._told(lines[:late]) + self._told(lines[late:])
        place = self.streams.reader.place
        values = np.full((len(lines), len(place)), np.nan)
        for n, line in enumerate(lines):
            for name, value in line.values.items():
                if name not in place:
                    raise ValueError(f"channel {name!r} is not a channel of training: {', '.join(list(place)[:8])}.")
                if value is not None:
                    values[n, place[name]] = _number(value, name)
        known = {line.id: line.static for line in lines if line.static is not None}
        static = pd.DataFrame.from_dict(known, orient="index") if known else None
        ids = [line.id for line in lines]
        told = self.streams.update(ids, stamps, values, static)
        answers = [{"id": line.id, "time": line.time} for line in lines]
        if told is None:
            for answer, rows in zip(answers, self._rows(ids), strict=True):
                answer["rows"] = rows
        else:
            for answer, one in zip(answers, told, strict=True):
                answer |= self._worded(one)
        for n in self.streams.dropped_last.tolist():
            answers[n]["dropped"] = True
        return answers

    def _asked(self, lines: list[Line]) -> list[Answer]:
        """The predictions at query times."""
        told = self.streams.predict_at([line.id for line in lines], self._stamps(lines))
        return [{"id": line.id, "at": line.time} | self._worded(one) for line, one in zip(lines, told, strict=True)]

    def _rows(self, ids: list[str | int]) -> list[int]:
        """How many rows each series has; 0 if nothing was ever observed."""
        return [int(self.streams.rows([name])[0]) if name in self.streams else 0 for name in ids]

    def _worded(self, told: Any) -> Answer:
        """A prediction in a form that JSON can hold."""
        estimator = self.streams.estimator
        if hasattr(estimator, "classes_"):
            classes = estimator.classes_.tolist()
            chances = {str(name): float(chance) for name, chance in zip(classes, told, strict=True)}
            return {"prediction": classes[int(np.argmax(told))], "probability": chances}
        if estimator.model_.config.answer == "query":
            return {"values": dict(zip(self.streams.reader.place, told.tolist(), strict=True))}
        return {"prediction": np.asarray(told).tolist()}

    def _stamps(self, lines: list[Line]) -> Any:
        """Numbers as they are; dates and durations in the format of the training table, or as ISO 8601."""
        times = [line.time for line in lines]
        if not self.streams.reader.features.calendar:
            for time in times:
                _number(time, "time")
            return times
        column = read_stamps(pd.Series(times), self._form, "time")
        if not is_text(column):
            return column
        try:
            return pd.to_timedelta(column)
        except (ValueError, TypeError):
            raise ValueError(
                f"time must be ISO 8601 or a duration, all with a zone or all without; got {shown(times[0])}."
            ) from None

    def _refusal(self, number: int, error: object, name: str | int | None = None) -> Answer:
        self.wrong += 1
        return {"line": number, **({} if name is None else {"id": name}), "error": str(error)}


def _read(text: bytes, number: int) -> Line:
    """Read a line, or raise an error that says what was expected."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict) or set(found) - KEYS or type(found.get("id")) not in (str, int):
        raise ValueError(
            'a line must be an object such as {"id": "p1", "time": 3.5, "values": {"heart rate": 71}} or '
            f'{{"id": "p1", "at": 4.0}}, with "static" if needed; got {shown(found)}.'
        )
    values, static, asks = found.get("values", {}), found.get("static"), "at" in found
    if asks == ("time" in found) or (asks and ("values" in found or static)):
        raise ValueError('a line must have either "time", for a row, or "at", for a query, which has no values.')
    if not isinstance(values, dict) or not isinstance(static, dict | None):
        raise ValueError('"values" and "static" must be objects that map names to values.')
    return Line(number, found["id"], found["at" if asks else "time"], asks, values, static)


def _goes_back(lines: list[Line], stamps: list[Any]) -> int:
    """Position of the first line that is earlier than a previous one of the same series; 0 if there is none.

    It is late even if both were waiting to be read: an answer must not depend on how fast lines arrive.
    """
    last: dict[str | int, Any] = {}
    for n, (line, stamp) in enumerate(zip(lines, stamps, strict=True)):
        if line.id in last and stamp < last[line.id]:
            return n
        last[line.id] = stamp
    return 0


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number; got {shown(value)}.")
    return float(value)
