"""What the trainer adds to a bare loop: the same model, batches and optimiser, with bar and log, in turns.

OMP_NUM_THREADS=1 python scripts/overhead.py
"""

from __future__ import annotations

import statistics
import tempfile
import time

import torch

from lformer import LFormer, LFormerConfig, data, tasks, train
from lformer.evaluate import evaluate

STEPS, ROUNDS = 100, 5
CONFIG = LFormerConfig(inputs=2, outputs=2, answer="query", time_embedding="sinusoidal", width=32, depth=1)


def bare(splits: data.Splits, task: tasks.Task, settings: train.TrainConfig) -> float:
    """Seconds per step of a loop without any comfort."""
    with train.seeded(0):
        model = LFormer(CONFIG)
    adam = torch.optim.Adam(model.parameters(), lr=settings.lr, fused=True)
    began = time.perf_counter()
    for batch in splits.train.training_batches(settings.batch_size, 0):
        adam.zero_grad()
        loss = task.loss(task.predict(model, batch), batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
    evaluate(model, task, splits.validation, settings.batch_size)
    return (time.perf_counter() - began) / STEPS


def trained(splits: data.Splits, task: tasks.Task, settings: train.TrainConfig) -> float:
    """Seconds per step of the trainer, from its first step to the end of its epoch."""
    with train.seeded(0):
        model = LFormer(CONFIG)
    ends: list[float] = []
    starts: list[float] = []
    original = splits.train.training_batches

    def timed(size: int, epoch: int):  # the loop begins when the first batch is asked for
        starts.append(time.perf_counter())
        yield from original(size, epoch)

    object.__setattr__(splits.train, "training_batches", timed)
    with tempfile.TemporaryDirectory() as folder:
        train.fit(
            model,
            task,
            splits,
            settings,
            folder=folder,
            progress=True,
            report=lambda row: ends.append(time.perf_counter()),
        )
    object.__setattr__(splits.train, "training_batches", original)
    return (ends[0] - starts[0]) / STEPS


def main() -> None:
    """Print both, and their ratio."""
    splits = data.load("spiral-0.02", steps=STEPS, asked=100, validation=1)
    task = tasks.for_splits(splits)
    settings = train.TrainConfig(epochs=1, batch_size=32, lr=1e-3, clip=1.0, device="cpu", log="csv")
    bare(splits, task, settings)  # warm
    pairs = [(bare(splits, task, settings), trained(splits, task, settings)) for _ in range(ROUNDS)]
    loop, full = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"bare loop {1e3 * loop:.2f} ms a step, trainer {1e3 * full:.2f} ms: {100 * (full / loop - 1):+.1f} %")


if __name__ == "__main__":
    main()
