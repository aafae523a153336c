"""Find where the activations of a model grow too large, for the error message of a run that diverged."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch


@torch.no_grad()
def largest_activation(model: nn.Module, batch: IrregularBatch) -> str:
    """Which layer has the largest activation on a batch, or the first one that is not finite."""
    found: list[tuple[float, str]] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.is_floating_point() and output.numel():
                found.append((float(output.detach().abs().max()), name))

        return hook

    refused = ""
    handles = [module.register_forward_hook(watch(name or "the model")) for name, module in model.named_modules()]
    try:
        model(batch)
    except (ValueError, ArithmeticError) as error:
        refused = f"; then a layer refuses: {error}"
    finally:
        for handle in handles:
            handle.remove()
    wild = [name for size, name in found if not math.isfinite(size)]
    if wild:
        return f"the first activation that is not finite comes out of {wild[0]}{refused}"
    size, name = max(found, default=(math.nan, "no layer"))
    return f"the largest activation is {size:.3g}, out of {name}{refused}"
