"""The two text formats of the time-series archive: `.ts` and `.arff`, for classification and for regression.

A `.ts` file has a header of `@tag value` lines, then one series per line: its channels separated by `:`, and the label
last. An `.arff` file contains either whole series, quoted, with a literal `\\n` between channels, or only one channel;
in the latter case there is one file per channel, `NameDimension3_TRAIN.arff`. `?` is a missing value.

The series of a file must have the same length, and time stamps `(t,v)` are not supported: none of our sets has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from lformer.data.files import Text

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Archive:
    """The series of one file, or of one file per channel.

    Attributes:
        values: (n, C, L) float64, NaN where missing.
        labels: (n,) str, or float64 for regression.
        classes: the labels that may occur, in the order of the header; () for regression.
        name: name of the data set, as in the header; "" if it has none.
    """

    values: Array
    labels: Array
    classes: tuple[str, ...]
    name: str


def read_ts(text: Text) -> Archive:
    """Read the series of a `.ts` file.

    Example:
        >>> content = "@problemName toy\\n@classLabel true a b\\n@data\\n1,2,?:4,5,6:b\\n"
        >>> toy = read_ts(Text("toy.ts", content.encode()))
        >>> toy.values.tolist(), toy.labels.tolist(), toy.classes
        ([[[1.0, 2.0, nan], [4.0, 5.0, 6.0]]], ['b'], ('a', 'b'))
    """
    header = _TsHeader(text)

    def split(line: int, content: str) -> tuple[list[str], str]:
        *runs, label = content.split(":")
        if not runs:
            raise text.error(line, f"expected the channels and the label, separated by ':', got {_shown(content)}.")
        return runs, label.strip()

    values, labels, _ = _read_rows(text, header.end, "#", split, header.channels, header.length, header.classes)
    return Archive(values, labels, header.classes, header.name)


def read_arff(texts: Sequence[Text]) -> Archive:
    """Read the series of one `.arff` file, or of one file per channel, in any order."""
    if not texts:
        raise ValueError("expected at least one .arff file, got none.")
    headers = [_ArffHeader(text) for text in texts]
    if len(texts) == 1:
        values, labels, _ = _read_arff_rows(headers[0])
        return Archive(values, labels, headers[0].classes, headers[0].name)
    for header in headers:
        if header.relational:
            raise header.text.error(0, "expected one channel, as in the other files, got whole series.")
    return _join(_by_dimension(headers))


# -- the header of a .ts file


class _TsHeader:
    """The header, before `@data`.

    Attributes:
        end: the first line after the header.
        name: name of the problem.
        channels, length: channels and length of every series; None if the header does not specify them.
        classes: names of the classes; () for regression.
    """

    def __init__(self, text: Text) -> None:
        self.text = text
        self.tags, self.end = self._tags()
        self.name = _bare(" ".join(self._words("problemname")))
        self._refuse("timestamps", "true", "values without time stamps")
        self._refuse("equallength", "false", "series of equal length")
        self.channels = self._count("dimensions") or self._count("dimension")
        if self.channels is None and self._says("univariate") == "true":
            self.channels = 1
        self.length = self._count("serieslength")
        self.classes = self._classes()

    def _tags(self) -> tuple[dict[str, tuple[int, list[str]]], int]:
        """The line number and words of each tag, by its name in lower case."""
        tags: dict[str, tuple[int, list[str]]] = {}
        for line, content in enumerate(self.text.lines):
            content = content.strip()
            if not content or content.startswith(("#", "%")):
                continue
            if not content.startswith("@"):
                raise self.text.error(line, f"expected a header line '@...' or '@data', got {_shown(content)}.")
            tag, *words = content[1:].split() or [""]
            if tag.lower() == "data":
                return tags, line + 1
            tags[tag.lower()] = (line, words)
        raise _cut_short(self.text, "'@data' and the series after it")

    def _words(self, tag: str) -> list[str]:
        return self.tags[tag][1] if tag in self.tags else []

    def _says(self, tag: str) -> str:
        """The first word after a tag, in lower case."""
        return next(iter(self._words(tag)), "").lower()

    def _refuse(self, tag: str, word: str, expected: str) -> None:
        if self._says(tag) == word:
            raise self.text.error(
                self.tags[tag][0], f"expected {expected}, got @{tag} {word}; such files are not supported."
            )

    def _count(self, tag: str) -> int | None:
        if tag not in self.tags:
            return None
        line, words = self.tags[tag]
        if len(words) != 1 or not words[0].isdecimal() or int(words[0]) < 1:
            raise self.text.error(line, f"expected @{tag} and a number from 1, got {_shown(' '.join(words))}.")
        return int(words[0])

    def _classes(self) -> tuple[str, ...]:
        if self._says("classlabel") == "true":
            line, words = self.tags["classlabel"]
            return _checked_classes(self.text, line, words[1:])
        if self._says("targetlabel") == "true":
            return ()
        raise self.text.error(
            self.end - 1, "expected '@classLabel true' and the classes, or '@targetLabel true', before the data."
        )


# -- the header of an .arff file

_ATTRIBUTE = re.compile(r"""@attribute\s+('[^']*'|"[^"]*"|\S+)\s+(.+)""", re.IGNORECASE)
_DIMENSION = re.compile(r"dimension(\d+)(?=[^/\\]*$)", re.IGNORECASE)
_NUMERIC = ("numeric", "real", "integer")


class _ArffHeader:
    """The header, before `@data`.

    Attributes:
        text: the file.
        end: the first line after the header.
        name: name of the relation, without the number of a dimension.
        relational: whether a line contains all channels, quoted, rather than one.
        length: length of every series if a line contains one channel; None if it contains all.
        classes: names of the classes; () for regression.
    """

    def __init__(self, text: Text) -> None:
        self.text = text
        self.name = ""
        self.types, self.end = self._attributes()
        if len(self.types) < 2:
            raise text.error(self.end - 1, f"expected attributes for values and label, got {len(self.types)}.")
        *values, (label_line, label) = self.types
        self.relational = values[0][1].lower() == "relational"
        self.length = None if self.relational else len(values)
        wanted = ("relational",) if self.relational and len(values) == 1 else _NUMERIC
        for line, kind in values:
            if kind.lower() not in wanted:
                raise text.error(line, f"expected an attribute of type {' or '.join(wanted)}, got {_shown(kind)}.")
        self.classes = self._classes(label_line, label)

    def _attributes(self) -> tuple[list[tuple[int, str]], int]:
        """The line number and type of each attribute, except those between a relational one and its `@end`."""
        types: list[tuple[int, str]] = []
        inside = False
        for line, content in enumerate(self.text.lines):
            content = content.strip()
            if not content or content.startswith("%"):
                continue
            tag = content.split(maxsplit=1)[0].lower()
            if tag == "@data":
                return types, line + 1
            if tag == "@end":
                inside = False
            elif tag == "@relation":
                self.name = re.sub(r"(?i)dimension\d+$", "", _bare(content[len(tag) :]))
            elif tag != "@attribute":
                raise self.text.error(line, f"expected '@attribute', '@end' or '@data', got {_shown(content)}.")
            elif not inside:
                match = _ATTRIBUTE.fullmatch(content)
                if match is None:
                    raise self.text.error(line, f"expected '@attribute name type', got {_shown(content)}.")
                types.append((line, match[2]))
                inside = match[2].lower() == "relational"
        raise _cut_short(self.text, "'@data' and the series after it")

    def _classes(self, line: int, kind: str) -> tuple[str, ...]:
        if kind.startswith("{") and kind.endswith("}"):
            return _checked_classes(self.text, line, [_bare(name) for name in kind[1:-1].split(",")])
        if kind.lower() in _NUMERIC:
            return ()
        raise self.text.error(line, f"expected classes such as {{a,b}}, or numeric, for the label, got {_shown(kind)}.")

    def dimension(self) -> int:
        """The number of the channel in the file, from the file name."""
        match = _DIMENSION.search(self.text.name)
        if match is None:
            raise self.text.error(
                0, "expected the number of the channel in the name, such as NameDimension2_TRAIN.arff."
            )
        return int(match[1])


def _by_dimension(headers: Sequence[_ArffHeader]) -> list[_ArffHeader]:
    """The headers sorted by number, so that 10 comes after 9."""
    ordered = sorted(headers, key=lambda header: header.dimension())
    if ordered[0].dimension() > 1:
        raise ordered[0].text.error(0, "expected dimension 1 before this file.")
    for before, after in pairwise(ordered):
        if after.dimension() != before.dimension() + 1:
            raise after.text.error(0, f"expected dimension {before.dimension() + 1} after {before.text.name}.")
    return ordered


def _join(headers: Sequence[_ArffHeader]) -> Archive:
    """Join the channels of series that are stored in one file per channel."""
    first, labels, _ = _read_arff_rows(headers[0])
    values = np.empty((len(first), len(headers), first.shape[2]))
    values[:, :1] = first
    for channel, header in enumerate(headers[1:], start=1):
        one, named, lines = _read_arff_rows(header)
        if one.shape != first.shape:
            raise header.text.error(
                lines[-1],
                f"expected {len(first)} series of length {first.shape[2]}, as in {headers[0].text.name}, "
                f"got {len(one)} of length {one.shape[2]}.",
            )
        for line, here, there in zip(lines, named, labels, strict=True):
            if here != there:
                raise header.text.error(line, f"expected the label {there!s} of {headers[0].text.name}, got {here!s}.")
        values[:, channel] = one[:, 0]
    return Archive(values, labels, headers[0].classes, headers[0].name)


def _read_arff_rows(header: _ArffHeader) -> tuple[Array, Array, list[int]]:
    text = header.text

    def split(line: int, content: str) -> tuple[list[str], str]:
        if not header.relational:
            run, comma, label = content.rpartition(",")
            if not comma:
                raise text.error(line, f"expected values and the label, separated by ',', got {_shown(content)}.")
            return [run], _bare(label)
        end = content.find(content[0], 1)
        if content[0] not in "'\"" or end < 0 or content[end + 1 : end + 2] != ",":
            raise text.error(
                line, f"expected 'values of all channels', in quotes, and the label, got {_shown(content)}."
            )
        return content[1:end].split(r"\n"), _bare(content[end + 2 :])

    channels = None if header.relational else 1
    return _read_rows(text, header.end, "%", split, channels, header.length, header.classes)


# -- the lines of data, the same in both formats


def _read_rows(
    text: Text,
    start: int,
    comment: str,
    split: Callable[[int, str], tuple[list[str], str]],
    channels: int | None,
    length: int | None,
    classes: tuple[str, ...],
) -> tuple[Array, Array, list[int]]:
    """Read values (n, C, L), labels (n,) and the line number of each series.

    Args:
        start: the first line of data.
        comment: the beginning of lines to skip.
        split: function from a line to the values of each channel and the label, as text.
        channels, length: the numbers in the header; None if it has none.
        classes: labels that may occur; () if they are numbers.
    """
    lines = [i for i in range(start, len(text.lines)) if _holds_data(text.lines[i], comment)]
    if not lines:
        raise _cut_short(text, "at least one series after '@data'")
    values, labels, source = np.empty(0), [], "the header"
    for row, line in enumerate(lines):
        runs, label = split(line, text.lines[line].strip())
        if len(runs) != (channels or len(runs)):
            raise text.error(line, f"expected {channels} channels, as in {source}, got {len(runs)}.")
        for channel, run in enumerate(runs):
            numbers = _numbers(text, line, channel, run)
            if len(numbers) != (length or len(numbers)):
                raise text.error(
                    line, f"channel {channel + 1}: expected {length} values, as in {source}, got {len(numbers)}."
                )
            if row == channel == 0:  # the first series defines what the header does not
                channels, length, source = len(runs), len(numbers), "the series before"
                values = np.empty((len(lines), channels, length))
            values[row, channel] = numbers
        labels.append(_label(text, line, label, classes))
    return values, np.array(labels, str if classes else np.float64), lines


def _holds_data(content: str, comment: str) -> bool:
    start = content[:1] if content[:1].strip() else content.strip()[:1]  # most lines are long: check one character
    return bool(start) and start != comment


def _numbers(text: Text, line: int, channel: int, run: str) -> Array:
    """Read the values of one channel, (L,) float64."""
    cells = run.split(",")
    if "?" in run:
        cells = ["nan" if cell.strip() == "?" else cell for cell in cells]
    try:
        numbers = np.array(cells, np.float64)
        sound = "_" not in run and not np.isinf(numbers).any()  # 1_000 is a number in Python, but not here
    except ValueError:
        sound = False
    if not sound:
        place, cell = next((i, cell) for i, cell in enumerate(cells) if not _is_number(cell))
        raise text.error(
            line, f"channel {channel + 1}, value {place + 1}: expected a number or '?', got {_shown(cell)}."
        )
    return numbers


def _is_number(cell: str) -> bool:
    try:
        return "_" not in cell and not np.isinf(float(cell))
    except ValueError:
        return False


def _label(text: Text, line: int, label: str, classes: tuple[str, ...]) -> str | float:
    if classes:
        if label not in classes:
            raise text.error(line, f"expected one of the classes {', '.join(classes)}, got {_shown(label)}.")
        return label
    if not _is_number(label) or np.isnan(float(label)):
        raise text.error(line, f"expected a number as the label, got {_shown(label)}.")
    return float(label)


# -- helpers


def _checked_classes(text: Text, line: int, names: Sequence[str]) -> tuple[str, ...]:
    if not names or not all(names) or len(set(names)) < len(names):
        raise text.error(line, f"expected the names of the classes, each once, got {_shown(' '.join(names))}.")
    return tuple(names)


def _bare(name: str) -> str:
    """A name without the quotes around it."""
    name = name.strip()
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name


def _shown(content: str) -> str:
    """The beginning of some content, for a message."""
    return repr(content if len(content) <= 40 else content[:40] + "...")


def _cut_short(text: Text, expected: str) -> Exception:
    return text.error(max(len(text.lines) - 1, 0), f"expected {expected}, but the file ends. Download it again.")
