"""Bars that say how far long work is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class TrainingBar(pl.Callback):
    """One line for the whole run: steps, loss, validation metric, time left."""

    def __init__(self, name: str, latest: Callable[[], str]) -> None:
        self.latest = latest
        self.progress = Progress(
            TextColumn(f"[bold]{name}"),
            BarColumn(bar_width=16),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("loss {task.fields[loss]:.2e}"),
            TextColumn("{task.fields[validation]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
        )

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        total = int(trainer.estimated_stepping_batches)
        self.bar = self.progress.add_task(
            "train", total=total, completed=trainer.global_step, loss=math.nan, validation=self.latest()
        )
        self.progress.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.progress.update(self.bar, advance=1, loss=float(outputs["loss"]))

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.progress.update(self.bar, validation=self.latest())

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        self.progress.stop()
