"""Tables and series that the tests of panels share, and what it means that two are the same."""

import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import lformer
from lformer import IrregularBatch
from lformer.panel import Array, Panel

NAN = float("nan")


def long(table: Any, **options: Any) -> Panel:
    """`from_long` of a table with columns id, time, channel, value."""
    return Panel.from_long(table, **{"id": "id", "time": "time", "channel": "channel", "value": "value", **options})


def small(**columns: Any) -> pd.DataFrame:
    """Two series of two channels, deliberately out of order."""
    table = pd.DataFrame(
        {
            "id": ["b", "a", "b", "a"],
            "time": [3.0, 1.5, 1.0, 0.5],
            "channel": ["y", "x", "x", "y"],
            "value": [1.0, 2.0, 3.0, 4.0],
        },
        index=[70, 71, 72, 73],
    )
    return table.assign(**columns)


def random_series(seed: int, n: int = 9, C: int = 3, longest: int = 12) -> list[tuple[Array, Array]]:
    """Uneven times, ragged lengths from 0, missing values; some rows wholly unobserved."""
    rng = np.random.default_rng(seed)
    out = []
    for length in rng.integers(0, longest, n):
        values = rng.normal(size=(length, C)).astype(np.float32)
        values[rng.random((length, C)) < 0.4] = np.nan
        out.append((1000 * rng.random() + np.cumsum(rng.exponential(1.0, length)), values))
    return out


def same_batch(actual: IrregularBatch, expected: IrregularBatch) -> None:
    """Field by field, bit by bit, dtype by dtype."""
    for field in fields(IrregularBatch):
        ours, theirs = getattr(actual, field.name), getattr(expected, field.name)
        assert (ours is None) == (theirs is None), field.name
        if ours is not None:
            assert ours.dtype == theirs.dtype, field.name
            assert torch.equal(ours, theirs), field.name


def same_panel(actual: Panel, expected: Panel) -> None:
    """The same series, however their rows lie."""
    assert actual.ids.tolist() == expected.ids.tolist()
    assert (actual.channels, actual.unit, actual.pad_to) == (expected.channels, expected.unit, expected.pad_to)
    assert actual.lengths.tolist() == expected.lengths.tolist()
    for (ours, our_values), (theirs, their_values) in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
        assert our_values.dtype == their_values.dtype
        np.testing.assert_array_equal(our_values, their_values)
    assert (actual.static is None) == (expected.static is None)
    if actual.static is not None:
        pd.testing.assert_frame_equal(actual.static, expected.static)


def is_ours(error: Exception) -> bool:
    """Whether an error was raised in so many words by the library, and not by what it calls."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(last.filename).is_relative_to(Path(lformer.__file__).parent) and (last.line or "").startswith("raise")


def slow_rows(table: pd.DataFrame) -> dict[Any, dict[Any, dict[str, float]]]:
    """id -> time -> channel -> value, the last one wins."""
    out: dict[Any, dict[Any, dict[str, float]]] = {}
    for name, time, channel, value in table.itertuples(index=False):
        row = out.setdefault(name, {}).setdefault(time, {})
        if value == value:
            row[channel] = value
    return out
