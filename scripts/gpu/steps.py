"""What a training step costs on a GPU: an epoch of `physionet extrapolate` in three ways, its parts, and an ensemble.

LFORMER_DATA=folder python scripts/gpu/steps.py [--epochs 8] [--device auto] [--seed 42] [--series 500]
    [--member-epochs 6] [--stays 2000] [--only epoch | members]

    whole       a step is one graph: gradients, clipping, Adam and the mean of weights; losses are not waited for
    gradients   the graph ends with the gradients, and the rest is launched step by step
    eager       nothing is recorded

Of each, seconds of an epoch, the median of those after the warm-up, and the last loss, the same up to rounding.
`gradients, waited for` also waits for the loss of every step, as a loop that calls `loss.item()` does. The parts of an
epoch are timed one by one, the device waited for at the end of each; `launch` is what the processor needs for the steps
of an epoch if it does not wait. Then seconds of `LFormerClassifier` on PhysioNet's mortality with one member and with
five, and of the parts of such a fit. A table comes last. A smoke test on a CPU:
`--epochs 1 --warm 1 --series 200 --device cpu --member-epochs 1 --stays 200`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from epoch import epochs, first_of, new_model, timed
from mortality import loaded
from sklearn.exceptions import ConvergenceWarning

from lformer import LFormerClassifier, data, tasks, train
from lformer.bench.recipes import Recipe, recipe
from lformer.bench.run import versions
from lformer.cuda_graphs import capture_step
from lformer.devices import choose
from lformer.draws import Draws, drawing_from
from lformer.estimators import LosesToNaiveWarning
from lformer.estimators import base as estimators
from lformer.parts import ALONE, PanelPart, Splits, training_shares
from lformer.train import TrainConfig, placing, stepping, watching
from lformer.train.distributed import World, evaluate
from lformer.train.measuring import Measuring
from lformer.train.stepping import TrainingStep


class UntilGradients:
    """Stands in the place of `capture_step` in the trainer: the update is launched after the graph, not within."""

    def __init__(self, model: Any, objective: Any, update: Any) -> None:
        self.step, self.update = capture_step(model, objective), update

    def __call__(self, batch: Any) -> torch.Tensor:
        loss = self.step(batch)
        self.update(loss)
        return loss


@contextmanager
def way(name: str) -> Iterator[None]:
    """Inside, the trainer takes its steps this way."""
    kept: Any = stepping.capture_step, watching.AHEAD
    if name.startswith("gradients"):
        stepping.capture_step = UntilGradients  # type: ignore[assignment,misc]
    if name.endswith("waited for"):
        watching.AHEAD = 0
    try:
        yield
    finally:
        stepping.capture_step, watching.AHEAD = kept


def parts(plan: Recipe, splits: Splits[PanelPart], config: TrainConfig, seed: int, rounds: int) -> dict[str, float]:
    """Seconds that each part of an epoch takes by itself; of the last round."""
    world, task, size = World(choose(config.device)), tasks.for_splits(splits), config.batch_size
    model = new_model(plan, splits, seed).to(world.device)
    count = splits.train.training_steps(size)
    step = TrainingStep(model, task, world, config, rounds * count)
    measure = Measuring(model, task, world, replay=config.replay)
    training = placing.placed(splits.train, world.device)
    validating = placing.placed(splits.validation, world.device)
    draws, found = Draws(world.device), {}
    with drawing_from(draws), train.rounding(config):
        for epoch in range(rounds):
            shares, found["names of the batches"] = timed(
                world,
                lambda: list(training_shares(training, size, epoch, 0.0, ALONE)),  # noqa: B023
            )
            began = time.perf_counter()
            for n, share in enumerate(shares):
                draws.seed(n)
                step(share, epoch * count + n)
            found["launch of the steps"] = time.perf_counter() - began
            timed(world, lambda: None)
            found["steps"] = time.perf_counter() - began
            _, found["validation"] = timed(world, lambda: evaluate(model, task, validating, size, world, measure))
    return found


def ensemble(members: int, args: argparse.Namespace) -> dict[str, float]:
    """Seconds of a fit of so many members, and of the training within."""
    spent: list[float] = []
    real = estimators.train_members

    def watched(*arguments: Any, **more: Any) -> Any:
        began = time.perf_counter()
        told = real(*arguments, **more)
        spent.append(time.perf_counter() - began)
        return told

    known, _ = loaded("folds", args.seed)
    known = known.some(args.stays, seed=0)
    estimators.train_members = watched
    began = time.perf_counter()
    try:
        model = LFormerClassifier(
            members=members, random_state=args.seed, device="cpu" if args.device == "cpu" else "auto",
            **({"max_epochs": args.member_epochs, "patience": None} if args.member_epochs else {}),
        ).fit(known.panel, known.died)  # fmt: skip
    finally:
        estimators.train_members = real
    whole = time.perf_counter() - began
    began = time.perf_counter()
    answers = model.predict_proba(known.panel)
    asked = time.perf_counter() - began
    assert np.isfinite(answers).all()
    return {"fit": whole, "training": spent[0], "predict": asked, "validation": model.validation_score_}


def of_an_epoch(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The three ways, and the parts of an epoch."""
    rows: list[tuple[str, str]] = []
    plan = recipe("physionet", "extrapolate", model="lformer")
    splits = data.load("physionet", task="extrapolate", seed=args.seed, **plan.data)
    splits = splits if args.series is None else first_of(splits, args.series)
    config = replace(plan.train, epochs=args.warm + args.epochs, patience=None, device=args.device)
    for name in ("whole", "gradients", "gradients, waited for", "eager"):
        chosen = replace(config, replay=name != "eager")
        chosen = replace(chosen, epochs=args.warm + min(3, args.epochs)) if name == "eager" else chosen
        with way(name):
            told = epochs(plan, splits, chosen, args.seed, args.warm)
        print(name, told, flush=True)
        words = f"{told['epoch']:.4f} s, first {told['first']:.2f} s, end {told['end']:.2f} s, loss {told['loss']:.5f}"
        rows.append((f"epoch, {name}", words))
    for name, seconds in parts(plan, splits, config, args.seed, 4).items():
        rows.append((f"  {name}", f"{1e3 * seconds:.1f} ms"))
    return rows


def of_ensembles(args: argparse.Namespace) -> list[tuple[str, str]]:
    """One member and five."""
    rows: list[tuple[str, str]] = []
    times = {}
    for members in (1, 1, 5):  # the first compiles kernels
        times[members] = told = ensemble(members, args)
        print(members, told, flush=True)
    for members, told in times.items():
        words = f"training {told['training']:.2f} s, fit {told['fit']:.2f} s, predict {told['predict']:.2f} s"
        rows.append((f"mortality, members={members}", words))
    ratio = times[5]["training"] / times[1]["training"]
    rows.append(("five members / one", f"{ratio:.2f} of training, {times[5]['fit'] / times[1]['fit']:.2f} of fit"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8, help="timed ones of each way")
    parser.add_argument("--warm", type=int, default=4, help="epochs before them, in which steps are recorded")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--series", type=int, help="so many of each part of the epoch; all if not given")
    parser.add_argument("--member-epochs", type=int, help="of the ensemble; as many as the defaults say if not given")
    parser.add_argument("--stays", type=int, help="so many for the ensemble; all if not given")
    parser.add_argument("--only", choices=("epoch", "members"), help="one half of it")
    args = parser.parse_args()
    for kind in (LosesToNaiveWarning, ConvergenceWarning, data.PartialDataWarning):
        warnings.simplefilter("ignore", kind)
    rows: list[tuple[str, str]] = [("machine", versions()["machine"])]
    if args.only != "members":
        rows += of_an_epoch(args)
    if args.only != "epoch":
        rows += of_ensembles(args)
    print(*(f"{name:32} {words}" for name, words in rows), sep="\n")


if __name__ == "__main__":
    main()
