"""The state of a run on disk: written whole after every epoch, and read by the run that goes on from there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

NAME = "last.ckpt"


class Checkpoint(TypedDict):
    """Everything a run needs to go on after its last full epoch, and to end; tensors, numbers and text alone."""

    run: str  # what makes two runs the same
    epoch: int
    history: list[dict[str, float]]
    model: dict[str, Tensor]
    best: dict[str, Tensor]  # weights of the best epoch so far
    optimiser: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Put a checkpoint in the place of the last one; whatever happens meanwhile, one of the two is there."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (NAME + ".part")
    with part.open("wb") as stream:
        torch.save(checkpoint, stream)
        stream.flush()
        os.fsync(stream.fileno())  # before the name: a machine may stop as well as a process
    part.replace(folder / NAME)


def load(folder: Path | None, run: str) -> Checkpoint | None:
    """The checkpoint in a folder, which must be of this run; None if there is none. Nothing in it is executed."""
    if folder is None or not (path := folder / NAME).is_file():
        return None
    saved: Checkpoint = torch.load(path, weights_only=True, map_location="cpu")
    if saved["run"] != run:
        raise ValueError(
            f"{path} is of another run: other data, task, seed, settings or model. Choose another folder, or delete it."
        )
    return saved
