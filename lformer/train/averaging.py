"""Averaged weights: their mean over the latest steps is validated and kept, and errs less than those of one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class AveragedWeights:
    """An exponential mean of a model's parameters over about `span` steps; the first steps count less long.

    Args:
        model: whose parameters are averaged, on their device.
        span: steps over which the mean reaches back; 0 averages nothing.
    """

    def __init__(self, model: nn.Module, span: float) -> None:
        self.span = span
        parameters = dict(model.named_parameters()) if span > 0 else {}
        self.mean = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        self._parameters: list[Tensor] = list(parameters.values())
        self._means = list(self.mean.values())
        self._room = [torch.empty_like(mean) for mean in self._means]  # for a moment, one more number for each weight

    def share(self, step: int) -> float:
        """How much the parameters after a step, which are the (step + 1)-th, count in the mean."""
        return min(1.0, 1 / min(self.span, 1 + step / 2)) if self.span > 0 else 0.0  # early ones are soon forgotten

    @torch.no_grad()
    def add(self, share: float | Tensor) -> None:
        """Take in the parameters as they are now; the share they have may lie on their device, ()."""
        if not self._means:
            return
        if not isinstance(share, Tensor):
            torch._foreach_lerp_(self._means, self._parameters, share)
            return
        # One number for each weight: with a single number on the device every weight would be a launch of its own.
        torch._foreach_zero_(self._room)
        # By its full name: `torch._foreach_add_` would take a tensor of one number for a number, and wait for it.
        torch.ops.aten._foreach_add_.Tensor(self._room, share.to(self._room[0].dtype))
        torch._foreach_lerp_(self._means, self._parameters, weights=self._room)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, Tensor]:
        """The mean so far, for a checkpoint."""
        return self.mean

    @torch.no_grad()
    def load(self, mean: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        for name, tensor in mean.items():
            self.mean[name].copy_(tensor)

    @torch.no_grad()
    def _swap(self) -> None:
        """Exchange the values, not the tensors: recorded steps and the optimiser hold on to these."""
        if self._means:
            torch._foreach_copy_(self._room, self._parameters)
            torch._foreach_copy_(self._parameters, self._means)
            torch._foreach_copy_(self._means, self._room)
