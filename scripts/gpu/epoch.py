"""Seconds of an epoch of `physionet extrapolate` by the recipe of LFormer, with its series on the device and without.

LFORMER_DATA=folder python scripts/gpu/epoch.py [--epochs 10] [--device cuda] [--seed 42] [--series 500]

One JSON line for each of the two: seconds of an epoch, the median after `--warm` epochs in which kernels are compiled
and graphs recorded, and the last training loss, which is the same for both. Then what the parts of an epoch take, each
by itself and waited for: `collation` (batches on the processor, or names of resident ones), `copy` (to the device, or
gathered there), `step` (loss, gradients, clipping and Adam), `validation`. On a CPU resident series are an exercise: a
smoke test is `--epochs 1 --warm 0 --device cpu --series 200`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from lformer import data, tasks, train
from lformer.batch import Source
from lformer.bench.models import build
from lformer.bench.recipes import Recipe, recipe
from lformer.bench.run import versions
from lformer.devices import choose
from lformer.draws import Draws, drawing_from
from lformer.parts import ALONE, PanelPart, Share, Splits, training_shares
from lformer.train import TrainConfig, placing
from lformer.train.distributed import World, evaluate
from lformer.train.measuring import Measuring
from lformer.train.stepping import TrainingStep


@contextmanager
def residence(resident: bool) -> Iterator[None]:
    """Inside, series lie on the device whatever its memory, or never."""
    before = placing.free_memory
    placing.free_memory = (lambda device: 2**60) if resident else (lambda device: 0)
    try:
        yield
    finally:
        placing.free_memory = before


def epochs(plan: Recipe, splits: Splits[PanelPart], config: TrainConfig, seed: int, warm: int) -> dict[str, float]:
    """The median epoch of a run of the trainer after the warm-up, the first, the end after the last, and the loss."""
    stamps = [time.perf_counter()]
    model = new_model(plan, splits, seed)
    told = train.fit(
        model, tasks.for_splits(splits), splits, config, seed=seed, progress=False,
        report=lambda row: stamps.append(time.perf_counter()),
    )  # fmt: skip
    end, took = time.perf_counter() - stamps[-1], [b - a for a, b in pairwise(stamps)]
    return {
        "epoch": statistics.median(took[warm:]), "first": took[0], "end": end, "loss": told.history[-1]["loss"],
    }  # fmt: skip


def breakdown(plan: Recipe, splits: Splits[PanelPart], config: TrainConfig, seed: int, rounds: int) -> dict[str, float]:
    """What each part of an epoch takes by itself, the device waited for in between; the last of some rounds."""
    world, task, size = World(choose(config.device)), tasks.for_splits(splits), config.batch_size
    model = new_model(plan, splits, seed).to(world.device)
    step = TrainingStep(model, task, world, config, rounds * splits.train.training_steps(size))
    measure = Measuring(model, task, world, replay=config.replay)
    training = placing.placed(splits.train, world.device, config.drop_fraction)
    validating = placing.placed(splits.validation, world.device)
    found: dict[str, float] = {}

    def steps(batches: list[Source]) -> None:
        for n, batch in enumerate(batches):
            step(Share(batch), n)

    with drawing_from(Draws(world.device)), train.rounding(config):
        for epoch in range(rounds):
            shares, found["collation"] = timed(
                world,
                lambda: [s.batch for s in training_shares(training, size, epoch, 0.0, ALONE)],  # noqa: B023
            )
            _, found["copy"] = timed(world, lambda: [batch.to(world.device) for batch in shares])  # noqa: B023
            _, found["step"] = timed(world, lambda: steps(shares))  # noqa: B023
            _, found["validation"] = timed(world, lambda: evaluate(model, task, validating, size, world, measure))
    return found | {"steps": len(shares)}


def timed(world: World, work: Callable[[], Any]) -> tuple[Any, float]:
    """What some work makes, and the seconds until the device is done with it."""
    began = time.perf_counter()
    made = work()
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
    return made, time.perf_counter() - began


def new_model(plan: Recipe, splits: Splits[PanelPart], seed: int) -> torch.nn.Module:
    """As the recipe has it, with the weights of a seed."""
    with train.seeded(seed):
        return build("lformer", plan.config(splits.spec))


def first_of(splits: Splits[PanelPart], count: int) -> Splits[PanelPart]:
    """The first series of each part."""
    parts = {name: getattr(splits, name) for name in ("train", "validation", "test")}
    return replace(splits, **{name: part.some(range_of(part, count)) for name, part in parts.items()})


def range_of(part: PanelPart, count: int) -> Any:
    """Positions of the first series of a part."""
    return torch.arange(min(count, len(part))).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10, help="timed ones")
    parser.add_argument("--warm", type=int, default=2, help="epochs before them")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--series", type=int, help="so many of each part; all if not given")
    args = parser.parse_args()
    plan = recipe("physionet", "extrapolate", model="lformer")
    splits = data.load("physionet", task="extrapolate", seed=args.seed, **plan.data)
    splits = splits if args.series is None else first_of(splits, args.series)
    config = replace(plan.train, epochs=args.warm + args.epochs, patience=None, device=args.device)
    about = {"series": len(splits.train), "machine": versions()["machine"]}
    for resident in (False, True):
        with residence(resident):
            figures = epochs(plan, splits, config, args.seed, args.warm)
            apart = breakdown(plan, splits, config, args.seed, max(1, min(4, config.epochs)))
        apart = {name: round(seconds, 5) for name, seconds in apart.items()}
        print(json.dumps({"resident": resident, **figures, "apart": apart, **about}), flush=True)


if __name__ == "__main__":
    main()
