"""Ten thousand series at once on one core: what an update costs, what memory it takes, whether the answers are right.

OMP_NUM_THREADS=1 python scripts/streams.py [--out results/streams.json] [--series 10000] [--updates 1000] [--compile]

The default classifier with five channels, fitted for one epoch on made-up series: what a step costs does not depend on
the weights. Half of the values are missing, and intervals are uneven. Updates come in calls of 1,000 series, in another
order each time. At the end the answers are compared with `predict_proba` on the whole series, all of them.
Times are CPU time, of the calls alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lformer import LFormerClassifier, Panel
from lformer.bench.speed.machine import described
from lformer.sealed import write_text

CHANNELS, CALL = 5, 1000


def fitted() -> LFormerClassifier:
    rng = np.random.default_rng(0)
    X = [(np.cumsum(rng.exponential(1, 30)), holes(rng.normal(size=(30, CHANNELS)), rng)) for _ in range(200)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return LFormerClassifier(streaming=True, max_epochs=1, device="cpu", random_state=0).fit(X, np.arange(200) % 2)


def holes(values: Any, rng: np.random.Generator) -> Any:
    return np.where(rng.random(values.shape) < 0.5, np.nan, values)


def news(update: int, series: int) -> tuple[Any, Any]:
    """(n,) times and (n, C) values of one update of all series, always the same."""
    rng = np.random.default_rng((7, update))
    return update + 0.9 * rng.random(series), holes(rng.normal(size=(series, CHANNELS)), rng).astype(np.float32)


def resident() -> float:
    """MB of memory that the process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def many(model: LFormerClassifier, series: int, updates: int) -> dict[str, Any]:
    """All series through all updates."""
    streams, order = model.streams(), np.random.default_rng(1)
    last, seconds, memory = np.zeros((series, 2)), 0.0, {"before the first": round(resident(), 1)}
    for n in range(updates):
        times, values = news(n, series)
        for part in np.array_split(order.permutation(series), -(-series // CALL)):
            began = time.process_time()
            last[part] = streams.update(part, times[part], values[part])
            seconds += time.process_time() - began
        if n in (1, updates // 2, updates - 1):
            memory[f"after update {n + 1}"] = round(resident(), 1)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        streams.save(folder)
        saved = time.process_time() - began
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        began = time.process_time()
        model.streams().load(folder)
        loaded = time.process_time() - began
    return {
        "series": series,
        "updates of each": updates,
        "microseconds per update": 1e6 * seconds / series / updates,
        "resident MB": memory,
        "saved bytes per series": size / series,
        "seconds to save": saved,
        "seconds to load": loaded,
        "largest difference from predict_proba": difference(model, last, updates),
    }


def difference(model: LFormerClassifier, last: Any, updates: int) -> float:
    """Between the last answers and those for the whole series, a block of series at a time."""
    worst, series = 0.0, len(last)
    for block in np.array_split(np.arange(series), -(-series // CALL)):
        rows = [news(n, series) for n in range(updates)]
        times, values = np.stack([t[block] for t, _ in rows], 1), np.stack([v[block] for _, v in rows], 1)
        whole = model.predict_proba(Panel.from_list(list(zip(times, values, strict=True))))
        worst = max(worst, float(np.abs(whole - last[block]).max()))
    return worst


def timed(run: Callable[[], Any], repeats: int) -> float:
    """Microseconds of CPU time, the least of five rounds."""
    run()
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(repeats):
            run()
        rounds.append((time.process_time() - began) / repeats)
    return 1e6 * min(rounds)


def single(model: LFormerClassifier, compiled: bool) -> dict[str, float]:
    """One series and a thousand: the whole update, and the step of the model inside it, per series."""
    stream, streams, clock = model.stream(), model.streams(), iter(range(10**9))
    _, values = news(0, CALL)
    ids = np.arange(CALL)
    found = {
        "stream.update, one series": timed(lambda: stream.update(float(next(clock)), values[0]), 50),
        "streams.update, 1,000 series": timed(lambda: streams.update(ids, float(next(clock)), values), 3) / CALL,
    }
    for name, step in [("model.step", model.model_.step)] + [
        ("compiled step", torch.compile(model.model_.step))
    ] * compiled:
        for count in (1, CALL):
            state, gap = model.model_.init_state(count), torch.ones(count, dtype=torch.float64)
            row = torch.from_numpy(values[:count].astype(np.float64))
            with torch.no_grad():
                _, state = step(row, gap, state)
                spent = timed(lambda: step(row, gap, state), 50 if count == 1 else 3) / count  # noqa: B023
            found[f"{name}, {count:,} series"] = spent
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/streams.json"))
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--compile", action="store_true", help="also time the step under torch.compile")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = fitted()
    found: dict[str, Any] = {"machine": described("cpu"), "load average": os.getloadavg()[0]}
    found["microseconds per series"] = single(model, given.compile)
    print(json.dumps(found, indent=1), flush=True)
    found["many"] = many(model, given.series, given.updates)
    found["load average at the end"] = os.getloadavg()[0]
    print(json.dumps(found["many"], indent=1), flush=True)
    write_text(given.out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
