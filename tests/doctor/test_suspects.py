"""Marks for missing values and dates written as numbers: found where they are, and never in ordinary data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lformer.doctor.quick import dated
from lformer.doctor.suspects import Dates, Mark, find_dates, find_marks

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, int], Array]

SPOILT: dict[str, tuple[Draw, tuple[float, ...]]] = {
    "heart rate": (lambda rng, n: rng.normal(80, 10, n), (-9999, -999, -99, -1, 0, 999, 1e30)),
    "whole numbers": (lambda rng, n: rng.normal(80, 10, n).round(), (-9999, -1, 0, 255, 999)),
    "creatinine": (lambda rng, n: np.exp(rng.normal(0, 0.5, n)).round(2), (-9999, -9, -1, 99, 999, 1e30)),
    "temperature": (lambda rng, n: rng.normal(37, 0.7, n).round(1), (-17.8, 0, 99.9, 999)),
    "glucose": (lambda rng, n: (130 * np.exp(rng.normal(0, 0.35, n))).round(), (-9, -1, 999, 9999)),
    "levels": (lambda rng, n: rng.integers(3, 16, n), (-9999, 99, 999)),
    "switch": (lambda rng, n: rng.integers(0, 2, n), (-9999, 99)),
    "share": (lambda rng, n: rng.random(n), (-9999, -1, 99)),
    "rain": (lambda rng, n: np.where(rng.random(n) < 0.7, 0, rng.exponential(5, n)), (-9999, -1, 999)),
    "around 0": (lambda rng, n: rng.normal(0, 1, n), (-9999, -99, -50, 99, 1e30)),
}
CASES = [(name, mark) for name, (_, marks) in SPOILT.items() for mark in marks]


@pytest.mark.parametrize(("name", "mark"), CASES)
@pytest.mark.parametrize("share", [0.005, 0.05, 0.2])
def test_a_mark_is_found_and_nothing_else(name: str, mark: float, share: float) -> None:
    rng = np.random.default_rng(0)
    values = SPOILT[name][0](rng, 5000).astype(np.float32)
    hit = rng.random(5000) < share
    values[hit] = mark
    assert find_marks(values) == [Mark(float(np.float32(mark)), int(hit.sum()))]


ORDINARY: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(0, 1, n),
    "rounded": lambda rng, n: rng.normal(12, 4.3, n).round(),
    "skewed": lambda rng, n: np.exp(rng.normal(0, 2, n)),
    "skewed and rounded": lambda rng, n: np.exp(rng.normal(3, 1.5, n)).round(),
    "money": lambda rng, n: np.exp(rng.normal(8, 1.5, n)).round(-3),
    "no mean": lambda rng, n: rng.pareto(0.5, n).round(),
    "wild on both sides": lambda rng, n: rng.standard_cauchy(n).round(1),
    "counts": lambda rng, n: rng.poisson(3, n),
    "rare counts": lambda rng, n: rng.negative_binomial(0.5, 0.02, n),
    "words": lambda rng, n: rng.zipf(1.5, n),
    "clipped": lambda rng, n: np.clip(rng.normal(0, 1, n), -1, 1),
    "saturation": lambda rng, n: np.minimum(rng.normal(97, 2, n).round(), 100),
    "detection limit": lambda rng, n: np.maximum(np.exp(rng.normal(-3, 2, n)), 0.05).round(3),
    "rain": lambda rng, n: np.where(rng.random(n) < 0.8, 0, rng.exponential(5, n)).round(1),
    "doses": lambda rng, n: np.where(rng.random(n) < 0.2, 0, rng.choice([50, 100, 250, 500, 1000], n)),
    "a pump, on and off": lambda rng, n: np.where(rng.random(n) < 0.5, 0, rng.normal(1000, 5, n)),
    "three ways": lambda rng, n: rng.choice([-1, 0, 1], n),
    "levels held for long": lambda rng, n: np.repeat(rng.normal(80, 10, n // 50), 50),
    "spikes": lambda rng, n: np.where(rng.random(n) < 0.01, 100 + rng.normal(0, 1, n), rng.normal(0, 1, n)),
    "a walk": lambda rng, n: rng.normal(0, 1, n).cumsum().round(1),
    "years": lambda rng, n: rng.integers(1950, 2024, n),
    "a constant": lambda rng, n: np.full(n, 7.4),
}


@pytest.mark.parametrize("name", list(ORDINARY))
@pytest.mark.parametrize("size", [50, 300, 5000])
def test_ordinary_data_raise_no_suspicion(name: str, size: int) -> None:
    for seed in range(20):
        values = ORDINARY[name](np.random.default_rng(seed), 5000)[:: 5000 // size]
        assert find_marks(values.astype(np.float32)) == [], seed


def test_several_marks_in_one_channel() -> None:
    values = np.random.default_rng(0).normal(80, 10, 1000)
    values[:50], values[50:90], values[90:120], values[120:125] = -9999.0, -999.0, 1e30, 0.0
    values[125] = -5000.0  # a stray between the marks and the rest
    assert {mark.value: mark.times for mark in find_marks(values)} == {-9999: 50, -999: 40, 1e30: 30, 0: 5}


def test_a_code_may_be_most_of_a_channel_and_a_zero_may_not() -> None:
    values = np.random.default_rng(0).normal(80, 10, 1000)
    values[:700] = -9999.0
    assert find_marks(values) == [Mark(-9999.0, 700)]
    values[:700] = 0.0
    assert find_marks(values) == []


def test_too_little_to_tell() -> None:
    assert find_marks(np.array([])) == []
    assert find_marks(np.array([1.0, 2.0, -9999.0, -9999.0, -9999.0])) == []
    assert find_marks(np.append(np.arange(50.0), [-9999.0, -9999.0])) == []  # twice


DAYS = pd.date_range("2023-11-20", periods=100)
MONTHS = pd.date_range("2008-05", periods=40, freq="MS")
HOURS = pd.date_range("2024-02-28 20:00", periods=40, freq="7h")
WRITTEN = {
    "YYYYMMDD": (DAYS, "%Y%m%d", 70),
    "YYYYMM": (MONTHS, "%Y%m", 89),
    "YYMMDD": (DAYS, "%y%m%d", 70),
    "YYMM": (MONTHS, "%y%m", 89),
    "YYYYMMDDHH": (HOURS, "%Y%m%d%H", None),
    "YYYYMMDDHHMM": (HOURS, "%Y%m%d%H%M", None),
    "YYYYMMDDHHMMSS": (HOURS, "%Y%m%d%H%M%S", None),
}


@pytest.mark.parametrize("written", list(WRITTEN))
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_dates_written_as_numbers(written: str, dtype: Any) -> None:
    days, form, leap = WRITTEN[written]
    stamps = np.random.default_rng(0).permutation(days.strftime(form).astype(np.int64).to_numpy()).astype(dtype)
    found = find_dates(stamps)
    assert isinstance(found, Dates)
    assert (found.written, found.format) == (written, form)
    assert leap is None or found.after - found.before == leap
    (finding,) = dated(stamps)
    assert written in finding.detail
    assert f"{found.after - found.before:,}." in finding.detail
    advice = finding.advice.partition(": ")[2].removesuffix(".")
    assert eval(advice, {"pandas": pd, "stamps": pd.Series(stamps)}).sort_values().tolist() == days.tolist()


@pytest.mark.parametrize(
    "stamps",
    [
        np.array([]),
        np.arange(5000),
        np.arange(0, 10**6, 100),
        np.arange(12),
        np.arange(20240101, 20240200),  # counts on where a month would be over
        np.arange(20240101, 20240131),  # a month alone: its intervals are right
        np.array([20240101, 20240131, 20240201]),  # few
        np.arange(2201, 2213),  # one year of months, or a count
        np.random.default_rng(0).integers(0, 10000, 500),
        np.random.default_rng(0).random(500) * 1e4,
        np.append(DAYS.strftime("%Y%m%d").astype(int), [20240199]),  # no date
        np.append(DAYS.strftime("%Y%m%d").astype(int), [0]),
        DAYS.strftime("%Y%m%d").astype(int) + 0.5,
        1.7e9 + np.arange(1000.0) * 60,
        1_700_000_000_000 + np.arange(1000) * 60,
        np.array([-1e300, 1e300]),
        DAYS.to_numpy(),
    ],
)
def test_other_stamps_are_no_dates(stamps: Array) -> None:
    assert find_dates(np.asarray(stamps)) is None
