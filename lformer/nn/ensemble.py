"""Ensemble: several models whose predictions are averaged, or whose predicted distributions are mixed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.distributions import mixture
from lformer.nn.lformer import LFormer, LFormerConfig, State


class Ensemble(nn.Module):
    """An ensemble of models with the same configuration, trained independently.

    Their errors partly cancel, so the mean has a smaller error than a single model.

    Example:
        >>> models = Ensemble([LFormer(LFormerConfig(inputs=3, outputs=2)) for _ in range(3)])
        >>> models(IrregularBatch.build(torch.randn(8, 50, 3), times=torch.rand(8, 50).cumsum(1))).shape
        torch.Size([8, 2])
    """

    def __init__(self, members: Sequence[LFormer]) -> None:
        super().__init__()
        if not members or any(member.config != members[0].config for member in members):
            raise ValueError("an ensemble needs at least one model, and all of the same configuration.")
        self.members = nn.ModuleList(members)

    @property
    def config(self) -> LFormerConfig:
        return self.models[0].config

    def forward(self, batch: IrregularBatch) -> Tensor:
        """(B, O), (B, L, O) or (B, Q, O), depending on `config.answer`; O is `config.numbers`"""
        return mixture(self.config.distribution, torch.stack([member(batch) for member in self.models]))

    def init_state(self, batch: int, static: Tensor | None = None) -> tuple[State, ...]:
        """The states before the first row of `batch` series, one per member; `static` as in `LFormer.init_state`."""
        return tuple(member.init_state(batch, static) for member in self.models)

    def step(
        self, values: Tensor, delta: Tensor, states: tuple[State, ...], marks: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """One row per series, as in `LFormer.step`: (B, O) and the new states."""
        steps = [m.step(values, delta, state, marks) for m, state in zip(self.models, states, strict=True)]
        told = mixture(self.config.distribution, torch.stack([answer for answer, _ in steps]))
        return told, tuple(state for _, state in steps)

    def advance(
        self, values: Tensor, delta: Tensor, states: tuple[State, ...], marks: Tensor | None = None
    ) -> tuple[State, ...]:
        """The states after one row per series, as in `LFormer.advance`."""
        return tuple(m.advance(values, delta, state, marks) for m, state in zip(self.models, states, strict=True))

    def ask(self, times: Tensor, states: tuple[State, ...], marks: Tensor | None = None) -> Tensor:
        """(B, Q, O) at query times, as in `LFormer.ask`."""
        answers = [m.ask(times, state, marks) for m, state in zip(self.models, states, strict=True)]
        return mixture(self.config.distribution, torch.stack(answers))

    @property
    def models(self) -> list[LFormer]:
        """The members, with their type."""
        return [member for member in self.members if isinstance(member, LFormer)]
