"""Sixty stores of very different size, with weeks, gaps and drift: the default forecaster beside simple rules.

python scripts/stores.py [--seeds 3] [--stores 60] [--days 200] [--horizon 28] [--set calendar=False ...]

Daily sales are made up: a size of each store, a week that stores share and each varies, a level that wanders, noise;
some days and some weeks are lost. The model learns from the days up to the last `horizon`, which are then asked for. A
relative error is the mean absolute error of a store by its mean sales, and the mean over stores is printed.
"""

from __future__ import annotations

import argparse
import ast
import time
import warnings
from typing import Any

import numpy as np

from lformer import LFormerForecaster, Panel


def sales(seed: int, stores: int, days: int, noise: float = 0.15, drift: float = 0.02, lost: float = 0.15) -> list[Any]:
    """(dates, sales) of each store."""
    rng = np.random.default_rng(seed)
    week = np.array([-0.15, -0.2, -0.1, 0.0, 0.25, 0.45, -0.35])
    made = []
    for _ in range(stores):
        length = int(rng.integers(days // 2, days + 1))
        date = np.datetime64("2023-01-02") + np.arange(days - length, days)
        own = week * rng.uniform(0.4, 1.4) + rng.normal(0, 0.12, 7)
        level = np.cumsum(rng.normal(0, drift, length))
        weekday = (date.astype("datetime64[D]").astype(int) + 3) % 7
        value = np.exp(rng.normal(5, 1) + level + own[weekday] + rng.normal(0, noise, length))
        kept = rng.random(length) > lost
        if rng.random() < 0.3:
            hole = int(rng.integers(0, length // 2))
            kept[hole : hole + 14] = False
        made.append((date[kept], value[kept]))
    return made


def rules(known: tuple[Any, Any], asked: Any) -> dict[str, Any]:
    """What simple rules say of one store."""
    dates, values = known
    day = {int(d): v for d, v in zip(dates.astype(int), values, strict=True)}
    weekday = (dates.astype(int) + 3) % 7
    ask = (asked.astype(int) + 3) % 7
    last = int(dates[-1].astype(int))
    naive, mean = [], []
    for d, w in zip(asked.astype(int), ask, strict=True):
        back = int(d) - 7
        while back > last or (back not in day and back >= int(dates[0].astype(int))):
            back -= 7
        naive.append(day.get(back, values.mean()))
        mean.append(values[weekday == w].mean() if (weekday == w).any() else values.mean())
    recent = values[-28:]
    share = np.array([values[weekday == w].mean() if (weekday == w).any() else values.mean() for w in range(7)])
    recent_level = (recent / share[weekday[-28:]]).mean()
    return {
        "last value": np.full(len(ask), values[-1]),
        "mean": np.full(len(ask), values.mean()),
        "last same weekday": np.array(naive),
        "mean of the weekday": np.array(mean),
        "weekday, recent level": recent_level * share[ask],
    }


def split(series: list[Any], days: int, horizon: int) -> tuple[list[Any], list[Any]]:
    """What is known, and what is asked."""
    cut = np.datetime64("2023-01-02") + days - horizon
    return [(d[d < cut], v[d < cut]) for d, v in series], [(d[d >= cut], v[d >= cut]) for d, v in series]


def relative(told: list[Any], truth: list[Any]) -> float:
    return float(np.mean([np.abs(t - y).mean() / y.mean() for t, (_, y) in zip(told, truth, strict=True) if len(y)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seeds", 3), ("stores", 60), ("days", 200), ("horizon", 28), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("noise", 0.15), ("drift", 0.02), ("lost", 0.15)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--set", nargs="*", default=[], help="parameters of the forecaster, such as calendar=False")
    parser.add_argument("--rules", action="store_true", help="only the rules")
    given = parser.parse_args()
    change = {key: ast.literal_eval(value) for key, value in (one.split("=", 1) for one in given.set)}
    found: dict[str, list[float]] = {}
    for seed in range(given.first, given.first + given.seeds):
        series = sales(seed, given.stores, given.days, given.noise, given.drift, given.lost)
        known, truth = split(series, given.days, given.horizon)
        told = [rules(k, t[0]) for k, t in zip(known, truth, strict=True)]
        for name in told[0]:
            found.setdefault(name, []).append(relative([one[name] for one in told], truth))
        if not given.rules:
            panel = Panel.from_list(known, unit="D")
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = LFormerForecaster(**{"horizon": float(given.horizon), "random_state": seed, **change}).fit(
                    panel
                )
            answers = [a[:, 0] for a in model.predict(panel, [t[0] for t in truth])]
            found.setdefault("LFormerForecaster", []).append(relative(answers, truth))
            found.setdefault("seconds", []).append(time.perf_counter() - began)
            found.setdefault("epochs", []).append(model.n_iter_)
    for name, errors in found.items():
        print(f"{name:24s} {np.mean(errors):8.4f}   {' '.join(f'{e:.4f}' for e in errors)}", flush=True)


if __name__ == "__main__":
    main()
