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
        self.parameters = dict(model.named_parameters()) if span > 0 else {}
        self.mean = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def add(self, step: int) -> None:
        """Take in the parameters after a step, which are the (step + 1)-th."""
        if self.parameters:
            share = 1 / min(self.span, 1 + step / 2)  # early weights are soon forgotten
            torch._foreach_lerp_(list(self.mean.values()), list(self.parameters.values()), min(1.0, share))

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
        for name, parameter in self.parameters.items():
            kept = parameter.detach().clone()
            parameter.copy_(self.mean[name])
            self.mean[name].copy_(kept)
