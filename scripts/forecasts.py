"""Forecaster and interpolator with their defaults beside simple rules, on PhysioNet's and USHCN's own units.

LFORMER_DATA=folder python scripts/forecasts.py [--out results/forecasts.json] [--stays 1500]

PhysioNet: the ten most charted channels of stays of the published training part, tested on 500 stays of the test part.
USHCN: the stations of the published parts. Nothing is scaled or chosen for the purpose; every score is the mean squared
error on hidden rows of the test series, in deviations of a channel.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lformer import LFormerForecaster, LFormerInterpolator, Panel, __version__, data
from lformer.sealed import write_text

CHANNELS, TEST_STAYS = 10, 500


def most_charted(panel: Panel, count: int) -> list[int]:
    """Positions of the channels with the most observations."""
    rows = panel.rows()
    seen = np.ones(panel.values.shape, bool)[rows] if panel.observed is None else panel.observed[rows]
    return sorted(np.argsort(-seen.sum(axis=0), kind="stable")[:count].tolist())


def with_channels(panel: Panel, chosen: list[int]) -> Panel:
    """Some channels of some series."""
    panel = panel.compact()
    observed = None if panel.observed is None else panel.observed[:, chosen]
    names = tuple(panel.channels[c] for c in chosen)
    return replace(panel, values=panel.values[:, chosen], observed=observed, channels=names)


def series(name: str, stays: int) -> tuple[Panel, Panel]:
    """Training and test series, as they were charted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", data.PartialDataWarning)
        splits = data.load(name, task="reconstruct", scaling="none")
    train, test = splits.train.panel, splits.test.panel
    if name == "physionet":
        chosen = most_charted(train, CHANNELS)
        train, test = with_channels(train[:stays], chosen), with_channels(test[:TEST_STAYS], chosen)
    return train, test


def assess(name: str, kind: Any, stays: int) -> dict[str, Any]:
    train, test = series(name, stays)
    began = time.perf_counter()
    model = kind(random_state=0).fit(train)
    took = time.perf_counter() - began
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return {
        "data": name,
        "channels": list(train.channels),
        "train": len(train),
        "test": len(test),
        "model": kind.__name__,
        "mse": {rule: round(-score, 5) for rule, score in model.compare(test).items()},
        "epochs": model.n_iter_,
        "seconds": round(took, 1),
        "versions": {"lformer": __version__, "torch": torch.__version__},
        "machine": f"{platform.machine()}{gpu}",
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Mean squared errors in deviations; the best of a row in bold."""
    rules = ["last-value", "series-mean", "linear", "linear-interpolation"]
    lines = ["| data, estimator | ours | " + " | ".join(rules) + " |", "| :-- |" + " --: |" * (len(rules) + 1)]
    for row in rows:
        found = [row["mse"].get(name) for name in (row["model"], *rules)]
        best = min(value for value in found if value is not None)
        shown = ["–" if v is None else f"**{v:.3f}**" if v == best else f"{v:.3f}" for v in found]
        lines.append(f"| {row['data']}, {row['model']} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/forecasts.json"))
    parser.add_argument("--stays", type=int, default=1500, help="training stays of PhysioNet")
    parser.add_argument("--only", choices=["physionet", "ushcn"], help="one data set")
    parser.add_argument("--kind", choices=["LFormerForecaster", "LFormerInterpolator"], help="one estimator")
    given = parser.parse_args()
    rows = json.loads(given.out.read_text()) if given.out.exists() else []
    for name in ("physionet", "ushcn") if given.only is None else (given.only,):
        for kind in (LFormerForecaster, LFormerInterpolator):
            done = any((row["data"], row["model"]) == (name, kind.__name__) for row in rows)
            if done or given.kind not in (None, kind.__name__):
                continue
            rows.append(assess(name, kind, given.stays))
            text = json.dumps(rows, indent=1) + "\n"
            write_text(given.out, text)
            print(f"{name}, {kind.__name__}: {rows[-1]['seconds']} s", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
