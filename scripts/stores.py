"""Sixty stores of very different size, with weeks, gaps and drift: the default forecaster beside simple rules.

python scripts/stores.py [--out results/stores.json] [--seeds 3] [--set max_epochs=5 ...]

Daily sales are made up: a size of each store, a week that stores share and each varies, a level that wanders or is
steady, noise; some days and some weeks are lost. The model learns from all days but the last 28, which are then asked
for. A relative error is the mean absolute error of a store by its mean sales; its mean over stores is kept.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lformer import LFormerForecaster, Panel, __version__
from lformer.estimators import ExtrapolationWarning, LosesToNaiveWarning
from lformer.sealed import write_text

STORES, DAYS, HORIZON = 60, 200, 28
BEGIN = np.datetime64("2023-01-02")  # a Monday
WEEK = np.array([-0.15, -0.2, -0.1, 0.0, 0.25, 0.45, -0.35])
DRIFT = {"wandering": 0.02, "steady": 0.0}  # of the logarithm of the level, a day
NOISE, LOST = 0.15, 0.15
SETTINGS: dict[str, dict[str, Any]] = {
    "neither calendar nor own scale": {"calendar": False, "series_scale": False},
    "calendar alone": {"series_scale": False},
    "own scale alone": {"calendar": False, "series_scale": True},
    "defaults": {},
}
Series = list[tuple[Any, Any]]


def sales(seed: int, level: str = "wandering") -> Series:
    """(dates, sales) of each store."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(STORES):
        length = int(rng.integers(DAYS // 2, DAYS + 1))
        dates = BEGIN + np.arange(DAYS - length, DAYS)
        week = WEEK * rng.uniform(0.4, 1.4) + rng.normal(0, 0.12, 7)
        wandered = np.cumsum(rng.normal(0, 1, length)) * DRIFT[level]
        values = np.exp(rng.normal(5, 1) + wandered + week[weekday(dates)] + rng.normal(0, NOISE, length))
        kept = rng.random(length) > LOST
        if rng.random() < 0.3:
            hole = int(rng.integers(0, length // 2))
            kept[hole : hole + 14] = False
        made.append((dates[kept], values[kept]))
    return made


def weekday(dates: Any) -> Any:
    """0 on Mondays."""
    return (dates - BEGIN).astype(int) % 7


def split(series: Series) -> tuple[Series, Series]:
    """What is known, and what is asked."""
    cut = BEGIN + DAYS - HORIZON
    return [(d[d < cut], v[d < cut]) for d, v in series], [(d[d >= cut], v[d >= cut]) for d, v in series]


def rules(dates: Any, values: Any, asked: Any) -> dict[str, Any]:
    """What one would say of a store without a model."""
    past, ahead = weekday(dates), weekday(asked)
    mean = np.array([values[past == w].mean() if (past == w).any() else values.mean() for w in range(7)])
    last = np.array([values[past == w][-1] if (past == w).any() else values[-1] for w in range(7)])
    recent = dates >= dates[-1] - HORIZON
    return {
        "latest value": np.full(len(asked), values[-1]),
        "latest of the weekday": last[ahead],
        "mean of the weekday": mean[ahead],
        "mean of the weekday, level of four weeks": mean[ahead] * (values / mean[past])[recent].mean(),
    }


def relative(told: list[Any], truth: Series) -> float:
    return float(np.mean([np.abs(t - v).mean() / v.mean() for t, (_, v) in zip(told, truth, strict=True)]))


def assess(seed: int, level: str, settings: dict[str, dict[str, Any]], change: dict[str, Any]) -> dict[str, float]:
    """The relative error of each rule, and of the forecaster with each setting."""
    known, truth = split(sales(seed, level))
    said = [rules(*one, dates) for one, (dates, _) in zip(known, truth, strict=True)]
    found = {name: relative([one[name] for one in said], truth) for name in said[0]}
    panel = Panel.from_list(known, unit="D")
    for name, setting in settings.items():
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LosesToNaiveWarning)
            warnings.simplefilter("ignore", ExtrapolationWarning)  # some stores were closed on the last days
            asked = {"horizon": float(HORIZON), "extrapolate": "warn"}
            model = LFormerForecaster(**asked, random_state=seed, **setting, **change).fit(panel)
            found[name] = relative([a[:, 0] for a in model.predict(panel, [dates for dates, _ in truth])], truth)
        print(f"{level} {seed}, {name}: {found[name]:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
    return found


def table(record: dict[str, Any]) -> str:
    """Mean relative errors over all sets of stores; the best of a column in bold."""
    levels = list(record["errors"])
    means = {level: {k: float(np.mean(v)) for k, v in record["errors"][level].items()} for level in levels}
    lines = ["| | " + " | ".join(f"level {level}" for level in levels) + " |", "| :-- |" + " --: |" * len(levels)]
    for name in means[levels[0]]:
        shown = []
        for level in levels:
            value = means[level].get(name)
            best = value == min(means[level].values())
            shown.append("–" if value is None else f"**{value:.3f}**" if best else f"{value:.3f}")
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file for the errors")
    parser.add_argument("--seeds", type=int, default=3, help="sets of stores")
    parser.add_argument("--only", nargs="*", choices=list(SETTINGS), default=list(SETTINGS), help="settings to try")
    parser.add_argument("--set", nargs="*", default=[], help="other parameters of the forecaster, such as max_epochs=5")
    given = parser.parse_args()
    change = {key: ast.literal_eval(value) for key, value in (one.split("=", 1) for one in given.set)}
    errors: dict[str, dict[str, list[float]]] = {}
    for level in DRIFT:
        for seed in range(given.seeds):
            settings = {name: SETTINGS[name] for name in given.only if level == "wandering" or name == "defaults"}
            for name, error in assess(seed, level, settings, change).items():
                errors.setdefault(level, {}).setdefault(name, []).append(round(error, 4))
    record = {
        "errors": errors,
        "versions": {"lformer": __version__, "torch": torch.__version__},
        "machine": platform.machine(),
    }
    if given.out is not None:
        write_text(given.out, json.dumps(record, indent=1) + "\n")
    print(table(record))


if __name__ == "__main__":
    main()
