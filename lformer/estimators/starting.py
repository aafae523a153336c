"""Initialise a model with the weights of a pre-trained one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import torch

from lformer.nn import LFormer

NEW = ("head.", "pool.", "persistence.", "summaries.", "trees.")  # parts that are specific to the task
FREE = (
    "outputs",
    "distribution",
    "answer",
    "head_layers",
    "pooling",
    "summaries",
    "trees",
    "waves",
    "dropout",
    "backend",
)  # settings in which the two models may differ
NAMES = {"causal": "streaming"}  # name of the estimator's parameter


@torch.no_grad()
def start_from(model: LFormer, trained: Sequence[LFormer], member: int = 0) -> None:
    """Copy the row encoder with its scales and clock, the embedder and the mixers of a trained model.

    Args:
        model: receives them; its head is left as it is.
        trained: one model, or the members of an ensemble.
        member: index of the member to copy from, modulo their number.
    """
    given = trained[member % len(trained)]
    has, needs = asdict(given.config), asdict(model.config)
    wrong = [name for name in needs if name not in FREE and has[name] != needs[name]]
    if wrong:
        name = wrong[0]
        raise ValueError(
            f"the pretrained model has {NAMES.get(name, name)}={has[name]}, but this estimator has {needs[name]}. Use "
            "the same value for both, or pre-train again."
        )
    parts = {key: weight for key, weight in given.state_dict().items() if not key.startswith(NEW)}
    model.load_state_dict({**model.state_dict(), **parts})
