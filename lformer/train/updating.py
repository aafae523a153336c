"""The update of a training step: clip the gradients, step with Adam, average the weights.

A loss that is not finite changes nothing: the weights stay those that caused it, so the run can report why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lformer.train.averaging import AveragedWeights
from lformer.train.config import TrainConfig, rate_share

OF_THE_DEVICE = ("lr", "fused", "foreach", "capturable")  # Adam settings that are not taken from a checkpoint


class Update:
    """Called with the loss of a step, after the parameters have their gradients.

    Args:
        model: on its device.
        config: settings of the training.
        total: total number of steps of the run.
    """

    capturable = False

    def __init__(self, model: nn.Module, config: TrainConfig, total: int) -> None:
        self.model, self.config, self.total = model, config, total
        self.adam = adam(model, config, self.capturable)
        self.averaged = AveragedWeights(model, config.average * total)
        self.share = 0.0

    def begin(self, step: int) -> None:
        """Set the learning rates and the averaging share of the next step."""
        for group, rate in zip(self.adam.param_groups, self.rates(step), strict=True):
            group["lr"] = rate
        self.share = self.averaged.share(step)

    def rates(self, step: int) -> list[float]:
        """The learning rate of each parameter group."""
        slowed = rate_share(step, self.total, self.config)
        return [self.config.lr * group["rate"] * slowed for group in self.adam.param_groups]

    def __call__(self, loss: Tensor) -> None:
        if math.isfinite(loss.item()):
            self._clip()
            self.adam.step()
            self.averaged.add(self.share)

    def _clip(self) -> None:
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)

    def state(self) -> dict[str, Any]:
        """The state of Adam, for a checkpoint that can be loaded on any device."""
        state: dict[str, Any] = self.adam.state_dict()
        for group in state["param_groups"]:
            group["lr"] = float(group["lr"])
        return state

    def load(self, state: Mapping[str, Any], mean: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint of any device: Adam and the averaged weights."""
        ours = [{name: group[name] for name in OF_THE_DEVICE} for group in self.adam.param_groups]
        groups = [{**theirs, **mine} for theirs, mine in zip(state["param_groups"], ours, strict=True)]
        self.adam.load_state_dict({"state": state["state"], "param_groups": groups})
        for group, mine in zip(self.adam.param_groups, ours, strict=True):
            group.update(mine)  # restore the original tensors, which Adam has copied
        self.averaged.load(mean)


class DeviceUpdate(Update):
    """The same without reading any number: everything that changes from step to step is on the device.

    The CPU never waits, and the update can be recorded in a CUDA graph.
    """

    capturable = True

    def __init__(self, model: nn.Module, config: TrainConfig, total: int) -> None:
        super().__init__(model, config, total)
        device = next(model.parameters()).device
        self.pinned = device.type == "cuda"
        # Learning rate of each group, and averaging share. The CUDA kernels read learning rates in float32.
        dtype = torch.float32 if self.pinned else torch.float64
        self.numbers = torch.zeros(len(self.adam.param_groups) + 1, dtype=dtype, device=device)
        self.written_last: list[float] = []
        for group, rate in zip(self.adam.param_groups, self.numbers, strict=False):
            group["lr"] = rate
        self.stopped = torch.zeros((), device=device)  # 1 from the first loss that is not finite
        self.adam.found_inf = self.stopped  # type: ignore[attr-defined]  # if it is 1, fused Adam does nothing
        self._begin_moments()

    def begin(self, step: int) -> None:
        """Like `Update`, with one small copy, or none if nothing has changed."""
        numbers = [*self.rates(step), self.averaged.share(step)]
        if numbers != self.written_last:
            self.written_last = numbers
            told = torch.tensor(numbers, dtype=self.numbers.dtype, pin_memory=self.pinned)
            self.numbers.copy_(told, non_blocking=True)

    @torch.no_grad()
    def __call__(self, loss: Tensor) -> None:
        self.stopped.masked_fill_(~torch.isfinite(loss), 1.0)
        self._clip()
        self.adam.step()
        self.averaged.add(self.numbers[-1] * (1 - self.stopped))

    def load(self, state: Mapping[str, Any], mean: Mapping[str, Tensor]) -> None:
        super().load(state, mean)
        self._begin_moments()

    def written(self) -> list[Tensor]:
        """All tensors that a call writes to."""
        moments = [tensor for state in self.adam.state.values() for tensor in state.values()]
        return [*self.model.parameters(), *moments, *self.averaged.mean.values(), self.stopped]

    def _begin_moments(self) -> None:
        """Create the state that Adam would create in its first step, because recorded steps need fixed tensors."""
        for group in self.adam.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and parameter not in self.adam.state:
                    self.adam.state[parameter] = {
                        "step": torch.zeros((), device=parameter.device),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    }


def adam(model: nn.Module, config: TrainConfig, capturable: bool = False) -> torch.optim.Optimizer:
    """Adam, or AdamW with weight decay; as a single fused kernel if available."""
    kind = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    return kind(_groups(model, config.weight_decay), lr=config.lr, fused=fused, capturable=capturable)


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters, grouped by weight decay and by `rate`, their share of the learning rate.

    Parameters that a module lists as `undecayed`, such as rates and steps, are separate: 0 has no special meaning for
    them.
    """
    spared = {
        id(getattr(module, name)): float(getattr(module, "undecayed_rate", 1.0))
        for module in model.modules()
        for name in getattr(module, "undecayed", ())
    }
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for p in model.parameters():
        found.setdefault((0.0 if id(p) in spared else weight_decay, spared.get(id(p), 1.0)), []).append(p)
    return [
        {"params": found[decay, rate], "weight_decay": decay, "rate": rate}
        for decay, rate in sorted(found, reverse=True)
    ]
