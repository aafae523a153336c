"""Dropout with random numbers that may belong to a single run."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.draws import generator_on
from lformer.ops.dropout import LEVELS, levels


class Dropout(nn.Dropout):
    """Like `torch.nn.Dropout`; inside `lformer.draws.drawing_from` it uses the random generators of the run."""

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (...)"""
        if not self.training or self.p == 0:
            return x
        generator = None if torch.compiler.is_compiling() else generator_on(x.device)
        if generator is None:
            return F.dropout(x, self.p)
        if x.device.type == "cpu":
            return x * _kept_on_cpu(x, self.p, generator)
        kept = 1 - self.p
        return x * x.new_empty(x.shape).bernoulli_(kept, generator=generator).div_(kept)


def draw_seed(device: torch.device) -> Tensor:
    """() int64 seed for dropout in kernels, from the generator of `Dropout`; a replayed CUDA graph draws a new one."""
    return torch.empty((), dtype=torch.int64, device=device).random_(generator=generator_on(device))


def _kept_on_cpu(x: Tensor, p: float, generator: torch.Generator) -> Tensor:
    """0 for a share p of the numbers, 1 / (1 - p) for the others, in the shape of x.

    On a CPU, `bernoulli_` draws 64 bits per number, which took a tenth of a training step; 16 bits are enough.
    """
    dropped = levels(p)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)  # from -LEVELS / 2 to LEVELS / 2 - 1
    kept = torch.empty(x.shape, dtype=x.dtype)
    return torch.ge(draws, dropped - LEVELS // 2, out=kept).mul_(LEVELS / (LEVELS - dropped))
