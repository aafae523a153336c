"""Sets that are made: timing decides a class or a number, stores whose sales are forecast, and noisy sines.

Draws are those of numpy's `RandomState`, and numbers are rounded, so that a set is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lformer.bench.defaults.problem import Kind, Problem, last_rows, values_problem
from lformer.hiding import random_rows
from lformer.panel import Array, Panel, without_rows

SPAN = 10.0  # of the series whose class is asked
TRAIN, TEST = 240, 400
NUMBERED = 480  # series to learn numbers from, so that each half of them, a fold, is as large as the sets of classes
DECIMALS = 4

Series = tuple[Array, Array]  # times, values
Draw = Callable[[np.random.RandomState, bool], Series]
DrawNumber = Callable[[np.random.RandomState], tuple[Series, Array]]  # one number, or one for each row


def order() -> Problem:
    """B follows A: among noise, three pairs of events close to each other; the class is which of a pair comes first."""
    return _two_classes(_order, "A", "B")


def pace() -> Problem:
    """Visits that speed up or slow down; their number and values say nothing."""
    return _two_classes(_pace, "value")


def coupling() -> Problem:
    """Visits come thick and fast while the value is high, or while it is low."""
    return _two_classes(_coupling, "value")


def _two_classes(draw: Draw, *channels: str) -> Problem:
    rng = np.random.RandomState(0)
    labels = rng.permutation(np.arange(TRAIN + TEST) % 2)
    series = [_rounded(draw(rng, bool(label))) for label in labels]
    panel = Panel.from_list(series, channels=channels)
    return Problem(
        kind="series", measures=("accuracy", "log_loss"), train=panel[:TRAIN], test=panel[TRAIN:],
        labels=labels[:TRAIN], truth=labels[TRAIN:], steps=128,
    )  # fmt: skip


def _order(rng: np.random.RandomState, label: bool) -> Series:
    count, pairs = rng.randint(20, 41), 3
    starts = rng.choice(np.arange(1, 10, 1.5), pairs, replace=False) + rng.uniform(-0.4, 0.4, pairs)
    ends = starts + rng.uniform(0.1, 0.4, pairs)
    times = np.concatenate([rng.uniform(0, SPAN, count), starts, ends])
    channel = np.concatenate([rng.randint(0, 2, count), np.full(pairs, int(not label)), np.full(pairs, int(label))])
    values = np.full((len(times), 2), np.nan)
    values[np.arange(len(times)), channel] = rng.normal(0, 1, len(times)) + 4 * (np.arange(len(times)) >= count)
    place = np.argsort(times)
    return times[place], values[place]


def _pace(rng: np.random.RandomState, label: bool) -> Series:
    count = rng.randint(20, 41)
    gaps = np.geomspace(1, rng.uniform(2, 5), count) * rng.lognormal(0, 0.6, count)
    times = np.cumsum(gaps[::-1] if label else gaps)
    return SPAN * times / times[-1], rng.normal(0, 1, (count, 1))


def _coupling(rng: np.random.RandomState, label: bool) -> Series:
    count, strength = rng.randint(30, 51), 0.25 if label else -0.25
    frequency, phase = rng.uniform(0.1, 0.4, 3), rng.uniform(0, 2 * np.pi, 3)

    def curve(time: float) -> float:
        return float(np.sin(2 * np.pi * frequency * time + phase).sum())

    times = [0.0]
    for noise in rng.lognormal(0, 0.9, count - 1):
        times.append(times[-1] + 0.25 * noise * np.exp(-strength * curve(times[-1])))
    values = np.array([curve(time) for time in times]) + rng.normal(0, 0.5, count)
    even = np.linspace(-1.7, 1.7, count)[values.argsort().argsort()]  # by themselves the values say nothing
    return SPAN * np.array(times) / times[-1], even[:, None]


def frequency() -> Problem:
    """A noisy sine at random moments: how fast is it? Phase, and so the values by themselves, say nothing."""
    return _numbers(_frequency, "numbers")


def decay() -> Problem:
    """What is left of something that fades, at random moments and with noise: the logarithm of the rate."""
    return _numbers(_decay, "numbers")


def leaky() -> Problem:
    """Doses at random moments, which leave at a constant rate: how much is there at each of these moments?"""
    return _numbers(_leaky, "row-numbers")


def _numbers(draw: DrawNumber, kind: Kind) -> Problem:
    rng = np.random.RandomState(3)
    drawn = [draw(rng) for _ in range(NUMBERED + TEST)]
    panel = Panel.from_list([_rounded(series) for series, _ in drawn], channels=["value"])
    asked = [np.round(numbers, DECIMALS) for _, numbers in drawn]
    each = asked if kind == "row-numbers" else np.array(asked)
    return Problem(
        kind=kind, measures=("deviations", "r2"), train=panel[:NUMBERED], test=panel[NUMBERED:], labels=each[:NUMBERED],
        truth=each[NUMBERED:], steps=128, folds=2,
    )  # fmt: skip


def _moments(rng: np.random.RandomState) -> Array:
    """(L,) thirty to fifty times, one apart in the mean."""
    return np.cumsum(rng.exponential(1, rng.randint(30, 51)))


def _frequency(rng: np.random.RandomState) -> tuple[Series, Array]:
    times, frequency = _moments(rng), rng.uniform(0.02, 0.12)
    wave = np.sin(2 * np.pi * (frequency * times + rng.uniform()))
    return (times, (wave + rng.normal(0, 0.3, len(times)))[:, None]), np.array(100 * frequency)


def _decay(rng: np.random.RandomState) -> tuple[Series, Array]:
    times, rate = _moments(rng), rng.uniform(-4.5, -2)
    left = rng.uniform(1, 3) * np.exp(-np.exp(rate) * times)
    return (times, (left + rng.normal(0, 0.1, len(times)))[:, None]), np.array(rate)


def _leaky(rng: np.random.RandomState) -> tuple[Series, Array]:
    times = _moments(rng)
    doses = rng.exponential(1, len(times)) * (rng.uniform(size=len(times)) < 0.3)
    away = times[:, None] - times
    there = np.where(away >= 0, np.exp(-0.05 * np.maximum(away, 0)), 0) @ doses
    return (times, doses[:, None]), there


def stores(count: int = 60, days: int = 730, ahead: int = 28) -> Problem:
    """Daily sales of stores from fifty to fifty thousand a day; forecast the next four weeks of each.

    Weekdays and the year have a pattern, which differs a little from store to store; sales drift; days are missing.
    """
    rng = np.random.RandomState(1)
    stamps = np.datetime64("2023-01-02", "D") + np.arange(days + ahead)  # a Monday
    clock = np.arange(days + ahead)
    week = np.array([0.9, 0.85, 0.9, 1.0, 1.3, 1.5, 0.55])
    series = []
    for _ in range(count):
        size = 50 * 1000 ** rng.uniform()
        weekday = (week * rng.lognormal(0, 0.1, 7))[clock % 7]
        year = 1 + rng.uniform(0.05, 0.3) * np.sin(2 * np.pi * (clock / 365.25 + rng.normal(0, 0.05)))
        drift = np.exp(rng.normal(0, 0.15) * clock / 365.25)
        sales = size * weekday * year * drift * rng.lognormal(0, 0.12, len(clock))
        kept = rng.uniform(size=len(clock)) >= 0.04
        kept[[0, days - 1, -1]] = True
        series.append((stamps[kept], np.round(sales[kept], 1)[:, None]))
    whole = Panel.from_list(series, channels=["sales"], unit="D")
    hides = last_rows(float(ahead))
    return values_problem(
        without_rows(whole, hides(whole)), whole, hides, kind="forecast", measures=("relative_mae",), onwards=True,
        horizon=float(ahead), folds=4,
    )  # fmt: skip


def sines(train: int = 160, test: int = 80, rows: int = 60) -> Problem:
    """Each series a noisy sine with a period, phase, amplitude and level of its own; half of its rows are asked for."""
    rng = np.random.RandomState(2)
    series = []
    for _ in range(train + test):
        times = np.sort(rng.uniform(0, 20, rows))
        amplitude = rng.lognormal(0, 1)
        wave = amplitude * np.sin(2 * np.pi * (times / rng.uniform(3, 10) + rng.uniform()))
        values = rng.normal(0, 2) + wave + 0.1 * amplitude * rng.normal(0, 1, rows)
        series.append(_rounded((times, values[:, None])))
    panel = Panel.from_list(series, channels=["wave"])
    return values_problem(
        panel[:train], panel[train:], lambda whole: random_rows(whole, 0.5, seed=0), kind="interpolate",
        measures=("relative_rmse",),
    )  # fmt: skip


def _rounded(series: Series) -> Series:
    """To a few decimals; rows that then share their time are told apart."""
    times = np.round(series[0], DECIMALS)
    while (same := np.flatnonzero(np.diff(times) <= 0)).size:
        times[same + 1] = np.round(times[same] + 10.0**-DECIMALS, DECIMALS)
    return times, np.round(series[1], DECIMALS)
