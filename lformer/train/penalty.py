"""A penalty that keeps mu near 1/2, the trapezoidal rule, for data on which a free mu overfits (paper VI)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lformer.nn.attention import Interpolation


class MuPenalty:
    """λ · mean over layers and heads of (mu - 1/2)², (), recomputed at every call.

    As a part of the loss it is correct wherever the loss is: recorded steps include it; several processes add it in
    proportion to their shares of the batch, which sum to 1; and autocast does not affect it, because sigmoid and square
    of float32 numbers are not rounded to bfloat16. A decay of theta in the optimiser would need special cases for all
    of these, and neither `clip` nor the check of the loss would include it.

    Args:
        model: a model with at least one layer that learns its mu.
        weight: λ.
    """

    def __init__(self, model: nn.Module, weight: float) -> None:
        if weight < 0:
            raise ValueError(f"mu_penalty must be at least 0; got {weight:g}.")
        # Collected once: a recorded step replaces parameters with plain tensors.
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
