"""LeanAsk: `LFormer.ask` from the state of `LeanStep`; it only reads.

With the memory stored as M = S / ġ, a query at û after the latest row reads `q S exp(-û) = q M / (exp(û) / ġ)`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.distributions import from_raw
from lformer.export.lean import State, by_heads
from lformer.export.ports import Port
from lformer.nn.lformer import LFormer
from lformer.nn.mixer import LiquidMixer, SwiGLU
from lformer.nn.persistence import Persistence


class AskingMixer(nn.Module):
    """A `LiquidMixer` on queries, which read the memory, faded since the latest row, and do not change it."""

    def __init__(self, mixer: LiquidMixer, name: str) -> None:
        super().__init__()
        time, channel = mixer.liquid, mixer.channel_mixer
        assert isinstance(channel, SwiGLU)
        assert time.output_gate is not None
        assert time.gate is not None
        assert time.mu is not None
        self.heads, self.name = time.heads, name
        self.time_norm, self.channel_norm, self.mix, self.channel = (
            mixer.time_norm,
            mixer.channel_norm,
            time.mix,
            channel,
        )
        self.project = by_heads([time.query, time.output_gate, time.gate], time.heads)
        self.rest = nn.Buffer(1 - time.mu().detach().double().expand(time.heads)[:, None, None])

    def forward(self, x: Tensor, since: Tensor, state: State) -> Tensor:
        """(B, Q, D), (B, 1, Q, 1) -> (B, Q, D)"""
        H, K = self.heads, x.shape[2] // self.heads
        memory, total, gate, growth = (state[f"{self.name}_{part}"] for part in ("memory", "total", "gate", "growth"))
        heads = self.project(self.time_norm(x)).unflatten(2, (H, 2 * K + 1)).transpose(1, 2)  # (B, H, Q, 2 K + 1)
        q, rest = heads.split([K, K + 1], dim=3)
        opened, own = torch.sigmoid(rest).split([K, 1], dim=3)
        u = since * (gate + self.rest * own.double())
        y = (q.double() @ memory / (growth * torch.exp(u / (total + u)))).float()
        x = x + self.mix((opened * y).transpose(1, 2).flatten(2))
        left, right = self.channel.up(self.channel_norm(x)).chunk(2, dim=2)
        return x + self.channel.down(F.silu(left) * right)


class LeanAsk(nn.Module):
    """Query times of each series, as raw time stamps, -> output of the model.

    Args:
        model: a causal model with the prefix norm that predicts at queries, as built with `streaming=True`.
        prefix: prefix of the names of its state.
    """

    def __init__(self, model: LFormer, prefix: str = "") -> None:
        super().__init__()
        config, rows = model.config, model.rows
        C, self.channels, self.prefix = config.inputs, config.inputs, prefix
        self.outputs, self.distribution = config.outputs, config.distribution
        interval = rows.interval.double()
        self.interval, self.span = nn.Buffer(interval), nn.Buffer(-rows.span.double() / interval)
        self.mixers = nn.ModuleList(AskingMixer(mixer, f"{prefix}layer{n}") for n, mixer in enumerate(model.blocks))
        self.head, self.clock = model.head, model.embedder.time
        assert model.persistence is None or isinstance(model.persistence, Persistence)
        self.persistence = model.persistence
        embedder = model.embedder.value
        assert isinstance(embedder, nn.Sequential)
        # Of the features of a row, a query has the latest values, their ages and the intervals, if predictions start
        # from there; nothing is fresh, and neighbours are 0. What is known in advance comes last.
        shown = [] if model.persistence is None else [*range(C), *range(2 * C, 3 * C + 2)]
        advance = range(rows.width - config.statics - config.marks, rows.width)
        self.embed = _columns(embedder[0], [*shown, *advance], C, rows.span.double() / interval)
        self.after_embed = embedder[1:]

    def ports(self) -> list[Port]:
        """The part of the state that it reads."""
        C = self.channels
        own = {"rows": (1,), "start": (1,), "time": (1,)}
        if self.persistence is not None:
            own |= {"latest": (C,), "when": (C,), "values_sum": (C,), "values_seen": (C,)}
        found = [Port(f"{self.prefix}{name}", "float64", ("batch", *shape)) for name, shape in own.items()]
        for mixer in self.mixers:
            assert isinstance(mixer, AskingMixer)
            H, K = mixer.heads, mixer.mix.in_features // mixer.heads
            shapes = {"memory": (H, K, K), "total": (H, 1, 1), "gate": (H, 1, 1), "growth": (H, 1, 1)}
            found += [Port(f"{mixer.name}_{part}", "float64", ("batch", *shape)) for part, shape in shapes.items()]
        return found

    def forward(
        self, asked: Tensor, static: Tensor | None, marks: Tensor | None, state: State
    ) -> tuple[Tensor, Tensor]:
        """(B, Q), (B, S), (B, Q, M) -> (B, Q, P O), NaN before the latest row, and (B, Q) the time since then"""
        was = {name.removeprefix(self.prefix): tensor for name, tensor in state.items()}
        now = (asked - was["start"]) / self.interval
        since = now - was["time"]
        B, Q = asked.shape
        parts: list[Tensor] = []
        if self.persistence is not None:
            age = now[..., None] - torch.maximum(was["when"], self.span)[:, None]
            ages = torch.log(torch.cat([age, since[..., None], now[..., None]], dim=2).clamp(min=0) + 1)
            parts = [was["latest"][:, None].expand(B, Q, -1).float(), ages.float()]
        parts += [] if static is None else [static[:, None].expand(B, Q, -1)]
        parts += [] if marks is None else [marks]
        x = self.embed.bias.expand(B, Q, -1) if not parts else self.embed(torch.cat(parts, dim=2))
        x = self.after_embed(x)
        if self.clock is not None:
            x = x + self.clock(now)
        for mixer in self.mixers:
            x = mixer(x, since[:, None, :, None], state)
        output = self.head(x)
        location, raw = output[..., : self.outputs], output[..., self.outputs :]
        if self.persistence is not None:
            location = location + self._guess(now, was)
        told = from_raw(self.distribution, location, raw)
        answerable = (since >= 0) & (was["rows"] > 0)
        return torch.where(answerable[..., None], told, torch.nan), since * self.interval

    def _guess(self, now: Tensor, was: State) -> Tensor:
        """(B, Q, C) the guess of `Persistence`"""
        assert self.persistence is not None
        latest, seen = was["latest"].float(), was["values_seen"]
        mean = (was["values_sum"] / seen.clamp(min=1)).float()
        moved = (self.persistence.share * (mean - latest))[:, None]
        fresh = was["when"][:, None] == now[..., None]
        guess = latest[:, None] + torch.where(fresh, 0, moved)
        return torch.where((seen > 0)[:, None], guess, self.persistence.default)


def _columns(linear: nn.Module, columns: list[int], C: int, span: Tensor) -> nn.Linear:
    """The first layer of the embedder on some of the features of a row, with ages not divided by a span."""
    assert isinstance(linear, nn.Linear)
    weight = linear.weight.detach().double().clone()
    weight[:, 2 * C : 3 * C] /= torch.log1p(span)
    found = nn.Linear(max(1, len(columns)), linear.out_features)  # without any columns, only the bias counts
    with torch.no_grad():
        found.weight.copy_(weight[:, columns] if columns else torch.zeros_like(found.weight))
        found.bias.copy_(linear.bias)
    return found
