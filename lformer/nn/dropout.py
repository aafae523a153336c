"""Dropout whose random numbers may belong to one run."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.draws import generator_on


class Dropout(nn.Dropout):
    """As `torch.nn.Dropout`; inside `lformer.draws.drawing_from` it draws from the generators of the run."""

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (...)"""
        if not self.training or self.p == 0:
            return x
        generator = None if torch.compiler.is_compiling() else generator_on(x.device)
        if generator is None:
            return F.dropout(x, self.p)
        kept = 1 - self.p
        return x * x.new_empty(x.shape).bernoulli_(kept, generator=generator).div_(kept)
