"""The weights of a model from those of another one that was trained before on something else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import torch

from lformer.nn import LFormer

NEW = ("head.", "pool.", "persistence.", "summaries.", "trees.")  # what another kind of answer needs of its own
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
)  # in what the two models may differ
NAMES = {"causal": "streaming"}  # as the parameter of an estimator is called


@torch.no_grad()
def start_from(model: LFormer, trained: Sequence[LFormer], member: int = 0) -> None:
    """Give a model the row encoder with its scales and clock, the embedder and the mixers of a trained one.

    Args:
        model: gets them; its head stays new.
        trained: one model, or the members of an ensemble.
        member: which of several to start from; counted again from the first if there are fewer.
    """
    given = trained[member % len(trained)]
    has, needs = asdict(given.config), asdict(model.config)
    wrong = [name for name in needs if name not in FREE and has[name] != needs[name]]
    if wrong:
        name = wrong[0]
        raise ValueError(
            f"the pretrained model has {NAMES.get(name, name)}={has[name]}, and {needs[name]} is asked for. Give both "
            "the same, or pre-train again."
        )
    parts = {key: weight for key, weight in given.state_dict().items() if not key.startswith(NEW)}
    model.load_state_dict({**model.state_dict(), **parts})
