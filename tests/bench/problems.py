"""Small problems of every kind, whose answers are known."""

import numpy as np

from lformer import Panel
from lformer.bench.defaults.problem import Problem, last_rows, values_problem
from lformer.hiding import random_rows


def levels(n: int = 60, seed: int = 0) -> Problem:
    """Two classes of irregular, partly observed series that differ in their level; lengths differ, too."""
    rng = np.random.default_rng(seed)
    labels = np.array(["high", "low"])[np.arange(n) % 2]
    series = []
    for label in labels:
        length = rng.integers(8, 15)
        values = rng.normal(2 if label == "high" else -2, 1, (length, 2))
        values[rng.random(values.shape) < 0.3] = np.nan
        values[0] = rng.normal(0, 0.1, 2)
        series.append((np.sort(rng.uniform(0, 10, length)), values))
    panel = Panel.from_list(series)
    half = n // 2
    return Problem(
        kind="series", measures=("accuracy", "log_loss", "auroc"), train=panel[:half], test=panel[half:],
        labels=labels[:half], truth=labels[half:], steps=12, folds=3,
    )  # fmt: skip


def rows(n: int = 24) -> Problem:
    """Each row's class is the sign of its value."""
    rng = np.random.default_rng(0)
    signed = [rng.choice([-1, 1], (k, 1)) * rng.uniform(1, 2, (k, 1)) for k in rng.integers(5, 9, n)]
    panel = Panel.from_list([(np.sort(rng.random(len(values))), values) for values in signed])
    labels = [(values[:, 0] > 0).astype(int) for _, values in panel]
    half = n // 2
    return Problem(
        kind="rows", measures=("accuracy",), train=panel[:half], test=panel[half:], labels=labels[:half],
        truth=labels[half:], folds=3,
    )  # fmt: skip


def amounts(n: int = 80) -> Problem:
    """The number of a series is its level; the series of a group, two and two, are neighbours."""
    rng = np.random.default_rng(0)
    levels = rng.normal(50, 20, n)
    series = []
    for level in levels:
        values = level + rng.normal(0, 1, (rng.integers(8, 15), 1))
        series.append((np.sort(rng.uniform(0, 10, len(values))), values))
    panel, half, group = Panel.from_list(series), n // 2, np.arange(n) // 2
    return Problem(
        kind="numbers", measures=("deviations", "r2"), train=panel[:half], test=panel[half:], labels=levels[:half],
        truth=levels[half:], groups=group[:half], test_groups=group[half:], steps=12, folds=3,
    )  # fmt: skip


def row_amounts(n: int = 24) -> Problem:
    """The number of a row is ten times the difference to the row before."""
    rng = np.random.default_rng(0)
    walks = [np.cumsum(rng.normal(0, 1, k)) for k in rng.integers(10, 20, n)]
    panel = Panel.from_list([(np.sort(rng.random(len(walk))), walk[:, None]) for walk in walks])
    numbers = [10 * np.diff(walk, prepend=walk[0]) for walk in walks]
    half = n // 2
    return Problem(
        kind="row-numbers", measures=("deviations", "r2"), train=panel[:half], test=panel[half:],
        labels=numbers[:half], truth=numbers[half:], folds=3,
    )  # fmt: skip


def weekly(count: int = 6, weeks: int = 12) -> Problem:
    """Sales that repeat from week to week exactly, with days missing; two weeks ahead are asked."""
    rng = np.random.default_rng(0)
    series = []
    for k in range(count):
        days = np.flatnonzero(rng.random(7 * weeks) > 0.1)
        stamps = np.datetime64("2024-01-01", "D") + np.union1d(days, [0, 7 * weeks - 1])
        week = 10.0**k * np.array([3, 1, 4, 1, 5, 9, 2])
        series.append((stamps, week[(stamps - np.datetime64("2024-01-01", "D")).astype(int) % 7][:, None]))
    whole = Panel.from_list(series, unit="D", dtype=np.float64)
    hides = last_rows(14.0)
    train = values_problem(whole, whole, hides, kind="forecast", measures=("relative_mae",)).test
    return values_problem(
        train, whole, hides, kind="forecast", measures=("relative_mae",), onwards=True, horizon=14.0, folds=2
    )  # fmt: skip


def waves(n: int = 16, rows: int = 40) -> Problem:
    """Smooth waves, each with a period of its own, one of two channels partly observed; half of the rows is asked."""
    rng = np.random.default_rng(0)
    series = []
    for _ in range(n):
        times = np.sort(rng.uniform(0, 10, rows))
        wave = np.sin(2 * np.pi * (times / rng.uniform(3, 5) + rng.random()))
        values = np.column_stack([wave, 5 + wave])
        values[rng.random(rows) < 0.3, 1] = np.nan
        series.append((times, values))
    panel = Panel.from_list(series, dtype=np.float64)
    half = n // 2
    return values_problem(
        panel[:half], panel[half:], lambda whole: random_rows(whole, 0.5, 0), kind="interpolate",
        measures=("relative_rmse", "rmse"), folds=2,
    )  # fmt: skip
