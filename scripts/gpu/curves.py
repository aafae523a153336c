"""Training curves of the fused and the plain path, on the heart rates of BIDMC: the same runs but for the kernels.

LFORMER_DATA=folder python scripts/gpu/curves.py OUT [--epochs 8] [--seeds 3]
Writes OUT/curves.json: for each path and seed the validation error of every epoch, the test error and the seconds.
python scripts/gpu/curves.py --draw results/curves.json docs/guides/curves.png draws them, and prints the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from lformer import data, tasks, train
from lformer.bench.recipes import recipe
from lformer.bench.run import commit, versions
from lformer.nn import LFormer

DATASET = "bidmc-hr"
PATHS = {"plain": ("parallel", "tf32"), "fused": ("auto", "tf32"), "fused, bf16": ("auto", "bf16")}


def curve(path: str, seed: int, epochs: int) -> dict[str, Any]:
    """One run; the seed draws the weights, the split is the same for all."""
    backend, precision = PATHS[path]
    plan = recipe(DATASET)
    splits = data.load(DATASET, seed=0)
    with train.seeded(seed):
        model = LFormer(replace(plan.config(splits.spec), backend=backend))
    config = replace(plan.train, epochs=epochs, precision=precision, device="gpu")
    task = tasks.for_splits(splits)
    result = train.fit(model, task, splits, config, seed=seed, progress=False)
    batch = next(splits.test.batches(config.batch_size)).to("cuda")
    with train.rounding(config), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
        ran = model.cuda().explain(batch).name
    return {
        "path": path, "seed": seed, "ran": ran, "monitor": task.monitor, "validation": [row[task.monitor] for row in
        result.history], "loss": [row["loss"] for row in result.history], "test": result.metrics,
        "seconds": round(result.seconds, 1), "data": splits.fingerprint,
    }  # fmt: skip


def _curve(job: tuple[str, int, int]) -> dict[str, Any]:
    return curve(*job)


def table(record: dict[str, Any]) -> str:
    """One line per path: the test error, seed by seed, and the seconds of a run; runs shared the GPU."""
    lines = ["| path | test RMSE of seeds 0, 1, … | mean | s a run |", "| :-- | --: | --: | --: |"]
    for path in dict.fromkeys(run["path"] for run in record["runs"]):
        runs = [run for run in record["runs"] if run["path"] == path]
        errors = [run["test"]["rmse"] for run in runs]
        each = ", ".join(f"{error:.3f}" for error in errors)
        seconds = statistics.mean(run["seconds"] for run in runs)
        lines.append(f"| {path} | {each} | {statistics.mean(errors):.3f} | {seconds:.0f} |")
    return "\n".join(lines)


def draw(record: dict[str, Any], path: Path) -> None:
    """Validation error against the epoch: a colour for each seed, a stroke for each path."""
    import matplotlib.pyplot as plt

    strokes = dict(zip(PATHS, ({"lw": 5, "alpha": 0.35}, {"lw": 1.5}, {"lw": 1.5, "ls": ":"}), strict=True))
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for run in record["runs"]:
        epochs = range(1, len(run["validation"]) + 1)
        label = run["path"] if run["seed"] == 0 else None
        axes.plot(epochs, run["validation"], color=f"C{run['seed']}", label=label, **strokes[run["path"]])
    axes.set(xlabel="epoch", ylabel=f"validation {run['monitor'].upper()}", title=f"{record['dataset']}, three seeds")
    axes.grid(alpha=0.25)
    axes.legend()
    figure.savefig(path, dpi=130)


def main() -> None:
    if sys.argv[1:2] == ["--draw"]:
        record = json.loads(Path(sys.argv[2]).read_text())
        draw(record, Path(sys.argv[3]))
        print(table(record))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=6, help="runs at a time")
    args = parser.parse_args()
    data.load(DATASET, seed=0)  # prepared once, before the runs ask for it
    jobs = [(path, seed, args.epochs) for seed in range(args.seeds) for path in PATHS]
    runs = []
    with get_context("spawn").Pool(args.jobs) as pool:
        for found in pool.imap_unordered(_curve, jobs):
            runs.append(found)
            print(f"{found['path']:12} seed {found['seed']} {found['test']} {found['seconds']} s", flush=True)
    runs.sort(key=lambda found: (list(PATHS).index(found["path"]), found["seed"]))
    about = {"dataset": DATASET, "epochs": args.epochs, "device": torch.cuda.get_device_name(), "commit": commit()}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "curves.json").write_text(json.dumps(about | {"versions": versions(), "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
