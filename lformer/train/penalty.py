"""Beside the task's loss: mu held near 1/2, the trapezoidal rule, for data on which a free mu overfits (paper VI)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lformer.nn.attention import Interpolation


class MuPenalty:
    """λ · mean over layers and heads of (mu - 1/2)², (), read anew at every call.

    It is part of the loss, so it is right wherever the loss is: a recorded step records it; of several processes each
    adds it in the share of the batch that it weighs, and these shares add up to 1; and autocast leaves it alone, as
    neither a sigmoid nor a square of float32 numbers is rounded to bfloat16. A decay of theta beside the optimiser
    would need all of that done again, and neither `clip` nor the watch over the loss would see it.

    Args:
        model: with at least one layer that learns its mu.
        weight: λ.
    """

    def __init__(self, model: nn.Module, weight: float) -> None:
        if weight < 0:
            raise ValueError(f"mu_penalty must be at least 0; got {weight:g}.")
        # Looked for once: a recorded step puts plain tensors in the place of parameters.
        self.mus = [m for m in model.modules() if isinstance(m, Interpolation) and isinstance(m.theta, nn.Parameter)]
        self.weight = weight
        if not self.mus:
            raise ValueError(
                f"mu_penalty={weight:g} is for models that learn a mu; this {type(model).__name__} has none. Leave it "
                'at 0, or build an LFormer with mu="per_head" or "shared".'
            )

    def __call__(self) -> Tensor:
        """-> ()"""
        return self.weight * torch.cat([mu() - 0.5 for mu in self.mus]).square().mean()
