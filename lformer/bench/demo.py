"""The demo: learn to reconstruct spirals from thirty noisy, irregular points, and plot the result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lformer import data, tasks, train
from lformer.batch import IrregularBatch
from lformer.bench import plots
from lformer.bench.recipes import recipe
from lformer.bench.run import versions
from lformer.data.spirals import HALF
from lformer.evaluate import predict
from lformer.nn import LFormer

PANELS = 6


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Settings of the demo. With the defaults, it takes two minutes on two CPU cores."""

    alpha: str = "0.02"
    points: int = 30
    noise: float = 0.1
    epochs: int = 60
    seed: int = 42
    folder: Path = Path("runs/demo")


def run(config: DemoConfig, progress: bool = True) -> dict[str, Any]:
    """Train, test and plot. Writes `record.json` and `spirals.png` to `config.folder`.

    Returns:
        The record, as written to the JSON file.
    """
    plots.require_matplotlib()  # before two minutes of training, not after
    config.folder.mkdir(parents=True, exist_ok=True)
    name = f"spiral-{config.alpha}"
    splits = data.load(name, seed=config.seed, points=config.points, noise=config.noise)
    plan = recipe(name)
    training = replace(plan.train, epochs=config.epochs, device="cpu")
    sizes = plan.config(splits.spec)
    with train.seeded(config.seed):
        model = LFormer(sizes)
    task = tasks.for_splits(splits)
    result = train.fit(model, task, splits, training, seed=config.seed, progress=progress)

    record = {
        "dataset": name,
        "model": "lformer",
        "parameters": sum(p.numel() for p in model.parameters()),
        "metrics": result.metrics,
        "validation": result.validation,
        "best_epoch": result.best_epoch,
        "epochs": result.epochs,
        "seconds": round(result.seconds, 2),
        "seed": config.seed,
        "data": {"points": config.points, "noise": config.noise, "train": len(splits.train), "test": len(splits.test)},
        "config": {"model": asdict(sizes), "train": asdict(training)},
        "versions": versions(),
        "history": result.history,
    }
    (config.folder / "record.json").write_text(json.dumps(record, indent=1) + "\n")

    prediction, truth = torch.stack(predict(model, task, splits.test)), splits.test.clean
    title = f"LFormer, α = {config.alpha}: spirals reconstructed from {config.points} points of their first half"
    show = spread(truth, PANELS)
    plots.spiral_figure(
        config.folder / "spirals.png",
        truth[show],
        prediction[show],
        observations(splits.test.batches(len(splits.test)), show),
        HALF,
        title,
    )
    return record


def spread(truth: Tensor, count: int) -> Tensor:
    """Indices of test spirals of both orientations, evenly spaced in the order of their first points."""
    order = truth[:, 0, 0].argsort()
    return order[torch.linspace(0, len(order) - 1, count).round().long()]


def observations(batches: Iterable[IrregularBatch], chosen: Tensor) -> list[Tensor]:
    """The observed rows of the chosen series of a single batch, (points, 2) each."""
    (batch,) = batches
    return [batch.values[i][batch.observed[i].all(dim=-1)] for i in chosen.tolist()]
