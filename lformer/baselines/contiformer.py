"""ContiFormer: attention whose keys and values follow differential equations from the time of a row to the reader's.

    k_j(t_j) = W_k x_j,   dk_j/dt = g_k(t, k_j)         likewise v_j; backwards in time for earlier readers
    logit_ij = ½ [q(t_j) · k_j(t_j) + q(t_i) · k_j(t_i)] / √d
    y_i      = Σ_j softmax_j(logit_ij) · ½ [v_j(t_j) + v_j(t_i)]

The halves are the two-point rule for the means over [t_j, t_i] of q(τ) · k_j(τ) and of v_j(τ), as in the published
runs. At one moment there is no path between two rows: where t_i = t_j the logit is q_i · k_j / √d, that of ordinary
attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lformer.baselines.model import BaselineConfig, BaselineModel, Clock
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.embedder import SinusoidalTime
from lformer.nn.query import rows_until

Dynamics = Literal["tanh", "sigmoid"]
Field = Callable[[Tensor, Tensor], Tensor]  # times (...), states (..., D) -> rates of change (..., D)


@dataclass(frozen=True, kw_only=True)
class ContiFormerConfig(BaselineConfig):
    """One layer, as published.

    Attributes:
        heads: H; must divide the width.
        feed_forward: inner width of the feed-forward part.
        dynamics: g(t, y). "tanh": tanh(W y + b + c t), which starts at 0 (published for the spirals). "sigmoid": the
            sigmoid of the same with y normalised first, c starting at 0 (published for the UEA sets).
        steps: of the Runge-Kutta solver from the time of a row to that of a reader.
        solved_at_once: numbers of the state that are solved at a time. Fewer take less memory and more time; answers
            are the same.
    """

    depth: int = 1
    heads: int = 4
    feed_forward: int = 128
    dynamics: Dynamics = "tanh"
    steps: int = 20
    solved_at_once: int = 2**20

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("dynamics", self.dynamics, Dynamics)
        self.require_positive("heads", "feed_forward", "steps", "solved_at_once")
        if self.width % self.heads:
            raise ValueError(f"heads must divide width; got width={self.width}, heads={self.heads}.")


class ContiFormer(BaselineModel):
    """Every row attends to all valid rows, earlier and later, and a series is answered from their mean.

    A query reads the rows and nobody reads it. It starts as the published model fills in unobserved times: from the
    line between the embedded rows around it, the nearest row outside.

    Note: the published model looks the path of q up on a grid of pitch 0.01; here q is taken at the times themselves.
    The equations run in spans of a series, so that neither the unit of time nor the length of a series matters.
    """

    recordable = True  # what it does depends on shapes alone, so its steps may be replayed as CUDA graphs
    own_draws = True  # it draws nothing

    def __init__(self, config: ContiFormerConfig) -> None:
        super().__init__(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.depth))

    def mix(self, x: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) -> (B, L, D)"""
        rows = self._moments(batch.times, batch)
        for layer in self.layers:
            x = layer(x, rows, x, rows, _read(batch))
        return x

    def queries(self, x: Tensor, asked: Tensor, batch: IrregularBatch, query_times: Tensor) -> Tensor:
        """(B, L, D), (B, Q, D), (B, Q) -> (B, Q, D)"""
        y = between_rows(x, batch, query_times)
        rows, readers = self._moments(batch.times, batch), self._moments(query_times, batch)
        for n, layer in enumerate(self.layers):
            y = layer(y, readers, x, rows, _read(batch))
            if n + 1 < len(self.layers):
                x = layer(x, rows, x, rows, _read(batch))
        return y

    def _moments(self, times: Tensor, batch: IrregularBatch) -> Moments:
        return Moments(times / self.rows.interval, Clock.of(batch, self.rows.span)(times))


class Moments(NamedTuple):
    """When rows and readers are, in two units."""

    intervals: Tensor  # (B, N) since the start, in typical intervals
    spans: Tensor  # (B, N) since the start, in spans of the series


class Layer(nn.Module):
    """Time encoding, attention along paths, feed-forward; each of the two with a residual sum, then normalised."""

    def __init__(self, config: ContiFormerConfig) -> None:
        super().__init__()
        D = config.width
        self.time = SinusoidalTime(D)
        self.attend = PathAttention(config)
        self.feed_forward = nn.Sequential(
            nn.Linear(D, config.feed_forward), nn.GELU(), nn.Linear(config.feed_forward, D)
        )
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=1e-6), nn.LayerNorm(D, eps=1e-6)

    def forward(self, y: Tensor, readers: Moments, x: Tensor, rows: Moments, read: Tensor) -> Tensor:
        """(B, N, D) readers, (B, L, D) rows, (B, L) bool, which of these are read -> (B, N, D)"""
        y, x = y + self.time(readers.intervals), x + self.time(rows.intervals)
        y = self.norm1(y + self.attend(y, readers.spans, x, rows.spans, read))
        return self.norm2(y + self.feed_forward(y))


class PathAttention(nn.Module):
    """Softmax attention from readers to rows, whose keys and values move along paths of their own."""

    def __init__(self, config: ContiFormerConfig) -> None:
        super().__init__()
        D = config.width
        self.heads, self.steps, self.solved_at_once = config.heads, config.steps, config.solved_at_once
        self.query, self.out = nn.Linear(D, D), nn.Linear(D, D)
        self.key, self.value = nn.Linear(D, D), nn.Linear(D, D)
        self.key_field = VectorField(D, config.dynamics)
        self.value_field = VectorField(D, config.dynamics)

    def forward(self, y: Tensor, moments: Tensor, x: Tensor, times: Tensor, read: Tensor) -> Tensor:
        """(B, N, D), (B, N), (B, L, D), (B, L), (B, L) bool -> (B, N, D)

        Series, and then readers, are taken a few at a time, and their paths solved again for the gradient instead of
        being kept: there are N · L of them, with four evaluations in every step.
        """
        given = (self.query(y), moments, self.query(x), self.key(x), self.value(x), times, read)
        some = max(1, self.solved_at_once // max(1, x[:1].numel()))
        found = [self._read_some(*part) for part in zip(*(t.split(some) for t in given), strict=True)]
        return self.out(torch.cat(found))

    def _read_some(
        self, q: Tensor, moments: Tensor, own: Tensor, k: Tensor, v: Tensor, times: Tensor, read: Tensor
    ) -> Tensor:
        """As `_read`, readers a few at a time: (B, N, D), … -> (B, N, D)"""
        size = max(1, self.solved_at_once // max(1, k.numel()))
        found = []
        parameters = (*self.key_field.parameters(), *self.value_field.parameters())
        for some, when in zip(q.split(size, dim=1), moments.split(size, dim=1), strict=True):
            found.append(_SolvedAgain.apply(self._read, some, when, own, k, v, times, read, *parameters))
        return torch.cat(found, dim=1) if found else q

    def _read(
        self,
        q: Tensor,
        moments: Tensor,
        own: Tensor,
        k: Tensor,
        v: Tensor,
        times: Tensor,
        read: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        """(B, n, D) queries, (B, n), (B, L, D) queries, keys and values of the rows, (B, L), (B, L) -> (B, n, D)

        The parameters of both fields are given, as autograd must see them come in.
        """
        half = len(parameters) // 2
        later_k = follow(_given(self.key_field, parameters[:half]), k, times, moments, self.steps)  # (B, n, L, D)
        later_v = follow(_given(self.value_field, parameters[half:]), v, times, moments, self.steps)
        at_once = moments[:, :, None] == times[:, None]  # (B, n, L)
        here = torch.where(at_once[..., None], self._dot(q[:, :, None], k[:, None]), self._dot(own, k)[:, None])
        logits = (here + self._dot(q[:, :, None], later_k)) / 2  # (B, n, L, H)
        weights = logits.masked_fill(~read[:, None, :, None], -torch.inf).softmax(dim=2)
        values = ((v[:, None] + later_v) / 2).unflatten(-1, (self.heads, -1))
        return torch.einsum("bnlh,bnlhd->bnhd", weights, values).flatten(-2)

    def _dot(self, q: Tensor, k: Tensor) -> Tensor:
        """(..., D), (..., D) -> (..., H), by heads, over √d"""
        q, k = q.unflatten(-1, (self.heads, -1)), k.unflatten(-1, (self.heads, -1))
        return (q * k).sum(dim=-1) / q.shape[-1] ** 0.5


class _SolvedAgain(torch.autograd.Function):
    """work(*tensors), and once more for the gradient: one node, where a checkpoint would keep all nodes of `work`.

    What `work` learns must be among the tensors.
    """

    @staticmethod
    def forward(ctx: Any, work: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        kind = tensors[0].device.type
        ctx.work, ctx.autocast = work, (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        ctx.save_for_backward(*tensors)
        return work(*tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        learns = ctx.needs_input_grad[1:]
        given = [t.detach().requires_grad_(wanted) for t, wanted in zip(ctx.saved_tensors, learns, strict=True)]
        with torch.enable_grad(), torch.autocast(*ctx.autocast):
            result = ctx.work(*given)
        found = iter(torch.autograd.grad(result, [t for t in given if t.requires_grad], grad, allow_unused=True))
        return None, *(next(found) if t.requires_grad else None for t in given)


class VectorField(nn.Module):
    """g(t, y), how keys or values change."""

    undecayed = ("drift",)

    def __init__(self, width: int, dynamics: Dynamics) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.drift = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width) if dynamics == "sigmoid" else None
        if dynamics == "tanh":
            nn.init.zeros_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)

    def forward(self, times: Tensor, y: Tensor) -> Tensor:
        """(...), (..., D) -> (..., D)"""
        moved = times[..., None] * self.drift
        return (self.linear(y) + moved).tanh() if self.norm is None else (self.linear(self.norm(y)) + moved).sigmoid()


def _given(field: VectorField, parameters: Sequence[Tensor]) -> Field:
    """The field with these parameters."""
    named = dict(zip((name for name, _ in field.named_parameters()), parameters, strict=True))
    return lambda times, y: functional_call(field, named, (times, y))


def follow(field: Field, start: Tensor, times: Tensor, moments: Tensor, steps: int) -> Tensor:
    """Where the path of every row is at every moment, forwards or backwards.

    All pairs are solved together over s from -1 to 1, with t = t_j + (s + 1) (t_i - t_j) / 2.

    Args:
        field: dy/dt.
        start: (B, L, D) where the paths begin.
        times: (B, L) when they begin.
        moments: (B, N) when they are read.
        steps: of the solver.

    Returns:
        (B, N, L, D)
    """
    half = ((moments[:, :, None] - times[:, None]) / 2).to(start.dtype)  # (B, N, L)
    begin = times[:, None].to(start.dtype)

    def rate(s: float, y: Tensor) -> Tensor:
        return half[..., None] * field(begin + (s + 1) * half, y)

    return runge_kutta(rate, start[:, None].expand(*half.shape, -1), steps)


def runge_kutta(rate: Callable[[float, Tensor], Tensor], y: Tensor, steps: int) -> Tensor:
    """y(1) for dy/ds = rate(s, y) from y(-1), by the classical method of order four with equal steps."""
    h = 2 / steps
    for n in range(steps):
        s = -1 + n * h
        a = rate(s, y)
        b = rate(s + h / 2, y + h / 2 * a)
        c = rate(s + h / 2, y + h / 2 * b)
        d = rate(s + h, y + h * c)
        y = y + h / 6 * (a + 2 * b + 2 * c + d)
    return y


def between_rows(x: Tensor, batch: IrregularBatch, moments: Tensor) -> Tensor:
    """(B, L, D), (B, Q) -> (B, Q, D), on the line between the rows around each moment; the nearest row outside."""
    count = rows_until(batch.times, batch.lengths, moments)
    last = (batch.lengths - 1).clamp(min=0)[:, None]
    left, right = (count - 1).clamp(min=0), torch.minimum(count, last)
    before, after = batch.times.gather(1, left), batch.times.gather(1, right)
    apart = after - before
    share = torch.where(apart > 0, (moments - before) / torch.where(apart > 0, apart, 1), 0).clamp(0, 1)
    at_left, at_right = (x.gather(1, place[..., None].expand(-1, -1, x.shape[2])) for place in (left, right))
    return torch.lerp(at_left, at_right, share.to(x.dtype)[..., None])


def _read(batch: IrregularBatch) -> Tensor:
    """(B, L) bool, the valid rows; an empty series reads its first padding row, as a softmax over nothing is NaN."""
    first = torch.arange(batch.times.shape[1], device=batch.times.device) == 0
    return batch.valid | (first & (batch.lengths == 0)[:, None])
