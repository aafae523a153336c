"""A training step by replaying a CUDA graph: answer, loss, all gradients and what becomes of them in one launch.

An eager step launches every kernel from Python, forward and backward, and a GPU is done with a small batch long before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lformer.batch import IrregularBatch, Source
from lformer.cuda_graphs import recording
from lformer.cuda_graphs.recording import Recordings, fill
from lformer.cuda_graphs.turns import turns
from lformer.ops import checks

Objective = Callable[[nn.Module, IrregularBatch], Tensor]


class Step(NamedTuple):
    """What a step leaves."""

    loss: Tensor  # ()
    gradients: list[Tensor | None]  # of each parameter; None where there is none


class Update(Protocol):
    """What becomes of the gradients of a step: clipping, an optimiser that is `capturable`, a mean of the weights."""

    def __call__(self, loss: Tensor, /) -> None:
        """Read the gradients of the parameters, and write into tensors that stay where they are."""

    def written(self) -> Iterable[Tensor]:
        """All of these tensors. Recording a step leaves them as they are."""


class CapturedStep:
    """What `capture_step` returns; called with a batch."""

    def __init__(self, model: nn.Module, objective: Objective, graphs: int = 64, update: Update | None = None) -> None:
        self.model, self.update = model, update
        self._whole = Whole(model, objective)
        # Not bound methods: graphs would hold on to their memory until somebody looks for circles.
        self._run = partial(_step, self._whole) if update is None else partial(_whole_step, self._whole, update)
        written = tuple if update is None else update.written
        self._graphs = Recordings(model, self._run, graphs, partial(_settings, self._whole), written)
        self._latest: Step | None = None

    def __call__(self, batch: Source) -> Tensor:
        """The loss of a batch, (); afterwards the gradients of its step, and of no other, are those of the parameters.

        They hold until the next call: let the optimiser go first. With an update, that is done, and the gradients are
        gone. A batch on another device than the model is moved; what becomes a batch on that device becomes one within
        the graph.
        """
        device = self._whole.device
        found = self._graphs.if_it_comes_again(batch, device) if recording.can_replay(batch, device) else None
        if found is None:
            with turns.recording():
                self._latest = self._run(batch)
        else:
            fill(found.inputs, batch)
            found.replay()
            self._latest = found.output
        if self.update is None:
            self.place_gradients()
        return self._latest.loss.clone()

    def place_gradients(self) -> None:
        """Give the parameters the gradients of the latest step once more, after somebody has taken them away."""
        if self._latest is None:
            raise RuntimeError("there are no gradients before the first step.")
        self._whole.place(self._latest.gradients)

    def captured(self, batch: Source) -> bool:
        """Whether a graph is held for batches like this one; never on a device without CUDA."""
        device = self._whole.device
        return recording.can_replay(batch, device) and self._graphs.holds(batch, device)

    def clear(self) -> None:
        """Let all graphs go, and the memory they hold; also to be called after a submodule was replaced."""
        self._graphs.clear()
        self._whole.look()
        self._latest = None


class Whole(nn.Module):
    """From a batch to its loss, as one module."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective
        self.look()

    def look(self) -> None:
        """Find the parameters; where they hang is not asked for on every step."""
        self.learnt = dict(self.named_parameters())

    @property
    def device(self) -> torch.device:
        return next(iter(self.learnt.values())).device

    def place(self, gradients: list[Tensor | None]) -> None:
        """Give the parameters their gradients."""
        for parameter, gradient in zip(self.learnt.values(), gradients, strict=True):
            parameter.grad = gradient

    def forward(self, batch: IrregularBatch) -> Tensor:
        """-> ()"""
        return self.objective(self.model, batch)


def _step(whole: Whole, source: Source) -> Step:
    """Answer, loss and gradients.

    For autograd the weights are new tensors that share their memory: what it keeps of the parameters themselves belongs
    to the stream of an earlier step as long as the loss of that step lives, and no recording could go on from there.
    """
    batch = source.to(whole.device)
    fresh = {name: p.detach().requires_grad_(p.requires_grad) for name, p in whole.learnt.items()}
    with checks.skip_value_checks(), _unmoved_recurrences(whole):
        loss = functional_call(whole, fresh, (batch,))
    wanted = {name: weight for name, weight in fresh.items() if weight.requires_grad}
    with torch.autocast(batch.values.device.type, enabled=False):  # it is for forward passes
        found = dict(zip(wanted, torch.autograd.grad(loss, list(wanted.values()), allow_unused=True), strict=True))
    return Step(loss.detach(), [_laid_out(found.get(name), weight) for name, weight in fresh.items()])


def _whole_step(whole: Whole, update: Update, source: Source) -> Step:
    """Answer, loss and gradients, and what becomes of these. Nobody reads them later, so their memory is free again."""
    loss, gradients = _step(whole, source)
    whole.place(gradients)
    with torch.autocast(loss.device.type, enabled=False):
        update(loss)
    gone: list[Tensor | None] = [None] * len(gradients)
    whole.place(gone)
    return Step(loss, gone)


def _laid_out(gradient: Tensor | None, weight: Tensor) -> Tensor | None:
    """A gradient whose numbers lie in memory as those of its weight, which a fused optimiser asks for."""
    if gradient is None or gradient.stride() == weight.stride():
        return gradient
    return torch.empty_like(weight).copy_(gradient)


@contextmanager
def _unmoved_recurrences(model: nn.Module) -> Iterator[None]:
    """Leave `nn.GRU` and the like as if no other weights had stood in the place of theirs.

    They move all weights to new memory when these are not those of the call before, as in a validation between steps,
    and every graph that reads the old memory would have to be recorded again.
    """
    found = [m for m in model.modules() if isinstance(m, nn.RNNBase)]
    before = [(list(m._flat_weights), list(m._flat_weight_refs)) for m in found]
    try:
        yield
    finally:
        for module, (weights, references) in zip(found, before, strict=True):
            module._flat_weights, module._flat_weight_refs = weights, references


def _settings(whole: Whole) -> Hashable:
    """What decides which gradients there are, and what dropout does."""
    return whole.model.training, tuple([parameter.requires_grad for parameter in whole.learnt.values()])


def capture_step(
    model: nn.Module, objective: Objective, graphs: int = 64, update: Update | None = None
) -> CapturedStep:
    """A training step that replays CUDA graphs, one per shape of batch.

    The first batch of a shape takes an ordinary step, the second is recorded, later ones are copied into fixed buffers
    and replayed. Batches of few shapes make this worth while: `pad_to_bucket` pads them, which changes no answer. The
    optimiser stays outside, unless an `update` is given, and everything that `capture` says of weights and values holds
    here. Random numbers are those of an ordinary step. One process with one GPU: gradients are not exchanged with
    others. On a device without CUDA every step is an ordinary one.

    Args:
        model: any model called with an `IrregularBatch`. What it does must not depend on the values.
        objective: from the model and a batch to the loss, ().
        graphs: how many shapes are held, each with its buffers and gradients; the one not used for longest makes room.
        update: what becomes of the gradients, recorded with them: a step is then one launch from the batch to the new
            weights. It must not depend on values either; numbers that change from step to step lie on the device.

    Example:
        >>> from lformer.nn import LFormer, LFormerConfig
        >>> model = LFormer(LFormerConfig(inputs=3, outputs=2))
        >>> step = capture_step(model, lambda model, batch: (model(batch) - batch.targets).square().mean())
        >>> times = torch.rand(8, 50).cumsum(1)
        >>> batch = IrregularBatch.build(torch.randn(8, 50, 3), times, targets=torch.randn(8, 2))
        >>> adam = torch.optim.Adam(model.parameters())
        >>> losses = []
        >>> for _ in range(5):
        ...     losses.append(step(batch))
        ...     adam.step()
        >>> bool(losses[-1] < losses[0])
        True
    """
    return CapturedStep(model, objective, graphs, update)
