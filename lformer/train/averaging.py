"""Averaged weights: the mean over recent steps is validated and kept; it has a smaller error than a single step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class AveragedWeights:
    """An exponential moving average of a model's parameters over about `span` steps; early steps are forgotten faster.

    Args:
        model: the model whose parameters are averaged, on their device.
        span: number of steps over which the average reaches back; 0 does not average.
    """

    def __init__(self, model: nn.Module, span: float) -> None:
        self.span = span
        parameters = dict(model.named_parameters()) if span > 0 else {}
        self.mean = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        self._parameters: list[Tensor] = list(parameters.values())
        self._means = list(self.mean.values())
        self._room = [torch.empty_like(mean) for mean in self._means]  # temporary buffers, as large as the weights

    def share(self, step: int) -> float:
        """The weight in the average of the parameters after a step, counted from 0."""
        return min(1.0, 1 / min(self.span, 1 + step / 2)) if self.span > 0 else 0.0  # early steps are soon forgotten

    @torch.no_grad()
    def add(self, share: float | Tensor) -> None:
        """Add the current parameters to the average; their share may be a tensor () on the device."""
        if not self._means:
            return
        if not isinstance(share, Tensor):
            torch._foreach_lerp_(self._means, self._parameters, share)
            return
        # As large as the weights: with a scalar on the device, every weight would need a kernel launch of its own.
        torch._foreach_zero_(self._room)
        # By its full name: `torch._foreach_add_` would treat a tensor with one element as a number, and wait for it.
        torch.ops.aten._foreach_add_.Tensor(self._room, share.to(self._room[0].dtype))
        torch._foreach_lerp_(self._means, self._parameters, weights=self._room)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """In this context, the model has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, Tensor]:
        """The current average, for a checkpoint."""
        return self.mean

    @torch.no_grad()
    def load(self, mean: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        for name, tensor in mean.items():
            self.mean[name].copy_(tensor)

    @torch.no_grad()
    def _swap(self) -> None:
        """Exchange the values, not the tensors, to which recorded steps and the optimiser hold references."""
        if self._means:
            torch._foreach_copy_(self._room, self._parameters)
            torch._foreach_copy_(self._parameters, self._means)
            torch._foreach_copy_(self._means, self._room)
