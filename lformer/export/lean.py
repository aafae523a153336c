"""LeanStep: `LFormer.step` in fewer and smaller operations, each of which costs time in a runtime.

- Times are relative to the first row, in typical intervals, so that ages need no division. This does not affect the
  prefix norm.
- The memory is stored as `M = S / ġ`, where ġ is the product of all gates so far: then a row only adds to it,

      M_n = M_{n-1} + (1/ġ_n - 1/ġ_{n-1}) k_nᵀ v_n,        y_n = ġ_n q_n M_n,

  as (1 - g_n) / ġ_n = 1/ġ_n - 1/ġ_{n-1}. With the prefix norm, 1/ġ only grows as fast as the time since the start.
- For the latest rows, it stores what was known of each channel after them, and the next observation, which is filled in
  when it comes: linear interpolation is then a lookup instead of a search.
- A model that predicts at queries leaves out rows without observations, like `predict`: with an interval of 0, u = 0,
  so that memory, total and growth are unchanged to the last digit; the rest is kept explicitly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.distributions import from_raw
from lformer.export.ports import Port
from lformer.nn.lformer import LFormer
from lformer.nn.mixer import LiquidMixer, SwiGLU
from lformer.nn.neighbours import REACH, offsets
from lformer.nn.summaries import FAR

# Powers of two, which are exact in float32: constants of a graph may be converted to it.
NEVER = 2.0**100  # time of a next observation that has not come; negated, of a previous one
LOWEST = -(2.0**100)  # below every number of a row
TINY = 2.0**-100  # lower bound on a sum of decays
KEPT = REACH - 1  # number of earlier rows that a row looks back at

State = dict[str, Tensor]


class LeanMixer(nn.Module):
    """A `LiquidMixer` on one row of each series; memory and gates are in float64, as in a stream."""

    def __init__(self, mixer: LiquidMixer, name: str) -> None:
        super().__init__()
        time, channel = mixer.liquid, mixer.channel_mixer
        assert isinstance(channel, SwiGLU)
        assert time.output_gate is not None
        assert time.gate is not None
        assert time.mu is not None
        H, K = time.heads, time.width // time.heads
        self.heads, self.name = H, name
        self.time_norm, self.channel_norm, self.up = mixer.time_norm, mixer.channel_norm, channel.up
        layers, key_scale = [time.output_gate, time.query, time.value, time.key, time.gate], 1 / math.sqrt(K)
        self.project = by_heads(layers, H, [1, 1, 1, key_scale, 1])
        self.mix, self.down = (nn.Buffer(m.weight.detach().T.contiguous()) for m in (time.mix, channel.down))
        mu = time.mu().detach().double().expand(H)[:, None, None]
        self.mu, self.rest = nn.Buffer(mu), nn.Buffer(1 - mu)

    def ports(self) -> list[tuple[Port, float]]:
        """The state, with its initial values."""
        H, K = self.heads, self.mix.shape[0] // self.heads
        shapes = {"memory": (H, K, K), "total": (H, 1, 1), "gate": (H, 1, 1), "growth": (H, 1, 1)}
        return [
            (Port(f"{self.name}_{part}", "float64", ("batch", *shape)), {"growth": 1.0, "total": TINY}.get(part, 0.0))
            for part, shape in shapes.items()
        ]

    def forward(self, x: Tensor, gap: Tensor, informed: Tensor | None, state: State, after: State) -> Tensor:
        """(B, D), (B, 1, 1, 1), (B, 1) bool -> (B, D); a row that is not informed has interval 0"""
        H, D = self.heads, x.shape[1]
        mine = {part: state[f"{self.name}_{part}"] for part in ("memory", "total", "gate", "growth")}
        K = D // H
        opened, heads = self.project(self.time_norm(x)).reshape(-1, H, 1, 4 * K + 1).split([K, 3 * K + 1], dim=3)
        q, v, k, gate = heads.double().split([K, K, K, 1], dim=3)
        gate = torch.sigmoid(gate)
        u = gap * (mine["gate"] + self.rest * gate)
        total = mine["total"] + u
        growth = mine["growth"] * torch.exp(u / total)  # 1/ġ
        memory = mine["memory"] + (k * (growth - mine["growth"])).mT @ v  # a runtime fuses transpose and product
        y = (q @ memory / growth).float()
        x = torch.addmm(x, (torch.sigmoid(opened) * y).reshape(-1, D), self.mix)
        left, right = self.up(self.channel_norm(x)).chunk(2, dim=1)
        earlier = self.mu * gate
        if informed is not None:
            earlier = torch.where(informed[..., None, None], earlier, mine["gate"])
        fresh = {"memory": memory, "total": total, "gate": earlier, "growth": growth}
        after |= {f"{self.name}_{part}": tensor for part, tensor in fresh.items()}
        return torch.addmm(x, F.silu(left) * right, self.down)


class LeanStep(nn.Module):
    """One row of each series, in raw values and time stamps, -> output of the head.

    Args:
        model: a causal model with the prefix norm, as built with `streaming=True`.
        prefix: prefix of the names of its state.
    """

    def __init__(self, model: LFormer, prefix: str = "") -> None:
        super().__init__()
        config, rows = model.config, model.rows
        C, self.channels, self.neighbours, self.prefix = config.inputs, config.inputs, config.neighbours, prefix
        self.series, self.asks, self.answer_width = config.answer == "series", config.answer == "query", config.width
        self.outputs, self.distribution = config.outputs, config.distribution
        self.last_part = config.pooling == "mean_last_max"
        self.shift, self.scale = nn.Buffer(rows.shift.double()), nn.Buffer(1 / rows.scale.double())
        self.bounded = bool(torch.isfinite(rows.low).any() or torch.isfinite(rows.high).any())
        self.low, self.high = (nn.Buffer(x.double()) for x in (rows.low, rows.high))
        interval = rows.interval.double()
        self.interval, self.span = nn.Buffer(interval), nn.Buffer(-rows.span.double() / interval)
        self.first = nn.Buffer(model.typical_first(torch.float64) / interval)
        self.steps = nn.Buffer(torch.tensor(offsets(self.neighbours, causal=True), dtype=torch.float64)[:, None])
        self.waiting = nn.Buffer(torch.tensor([2 * LOWEST] * 2 * C + [NEVER] * 2 * C, dtype=torch.float64))
        self.mixers = nn.ModuleList(LeanMixer(mixer, f"{prefix}layer{n}") for n, mixer in enumerate(model.blocks))
        self.head, self.summaries, self.trees = model.head, model.summaries, model.trees
        self.guesses, self.clock = model.persistence is not None, model.embedder.time
        embedder = model.embedder.value
        assert isinstance(embedder, nn.Sequential)
        self.embed, self.after_embed = _folded(embedder[0], C, rows.span.double() / interval), embedder[1:]

    def ports(self) -> list[tuple[Port, float | list[float]]]:
        """The state, with its initial values: a number, or one for each position of the last axis."""
        C, D = self.channels, self.answer_width
        found: list[tuple[str, str, tuple[int, ...], float | list[float]]] = [
            ("rows", "float64", (1,), 0.0), ("start", "float64", (1,), 0.0), ("time", "float64", (1,), 0.0),
            ("latest", "float64", (C,), 0.0), ("when", "float64", (C,), -NEVER),
        ]  # fmt: skip
        if self.neighbours:
            empty = [0.0] * C + [-NEVER] * C + [NEVER] * 2 * C
            found += [("recent", "float64", (KEPT, 4 * C), empty), ("recent_times", "float64", (1, KEPT), -NEVER)]
        if self.series:
            found.append(("sum", "float64", (D,), 0.0))
            if self.last_part:
                found.append(("greatest", "float32", (D,), LOWEST))
        if self.summaries is not None or self.guesses:
            found += [("values_sum", "float64", (C,), 0.0), ("values_seen", "float64", (C,), 0.0)]
        if self.summaries is not None:
            found += [
                ("values_squares", "float64", (C,), 0.0), ("values_first", "float64", (C,), 0.0),
                ("values_least", "float64", (C,), -LOWEST), ("values_greatest", "float64", (C,), LOWEST),
            ]  # fmt: skip
        own = [(Port(f"{self.prefix}{name}", dtype, ("batch", *shape)), start) for name, dtype, shape, start in found]
        return [*own, *(port for mixer in self.mixers for port in mixer.ports())]  # type: ignore[operator]

    def forward(
        self, values: Tensor, missing: Tensor, stamps: Tensor, static: Tensor | None, marks: Tensor | None, state: State
    ) -> tuple[Tensor | None, State]:
        """(B, C), (B, C) bool, (B, 1), (B, S), (B, M) -> (B, P O), None for models with queries, and the new state"""
        was = {name.removeprefix(self.prefix): tensor for name, tensor in state.items()}
        is_first = was["rows"] == 0
        start = torch.where(is_first, stamps, was["start"])
        now = (stamps - start) / self.interval
        if self.bounded:
            values = torch.minimum(torch.maximum(values, self.low), self.high)
        values = (values - self.shift) * self.scale
        latest, when = torch.where(missing, was["latest"], values), torch.where(missing, was["when"], now)
        after: State = {"rows": was["rows"] + 1, "start": start, "time": now, "latest": latest, "when": when}
        gap = now - was["time"]
        since = torch.cat([now - torch.maximum(when, self.span), gap, now], dim=1)
        parts = [latest, missing.double(), torch.log(since + 1)]
        if self.neighbours:
            parts.append(self._around(now, values, missing, latest, when, was, after))
        row = torch.cat(parts, dim=1).float()
        known = [x for x in (static, marks) if x is not None]
        x = self.after_embed(self.embed(torch.cat([row, *known], dim=1) if known else row))
        if self.clock is not None:
            x = x + self.clock(now).squeeze(1)
        gap = torch.where(is_first, self.first, gap)
        if self.guesses or self.summaries is not None:
            exact, seen = torch.where(missing, 0, values), (~missing).double()
            after |= {"values_sum": was["values_sum"] + exact, "values_seen": was["values_seen"] + seen}
        informed = None
        if self.asks:
            informed = ~missing.all(dim=1, keepdim=True)
            gap = torch.where(informed, gap, 0)
            for name in ("rows", "start", "time", *(("recent", "recent_times") if self.neighbours else ())):
                kept = informed if after[name].ndim == 2 else informed[..., None]
                after[name] = torch.where(kept, after[name], was[name])
        inner: State = {}
        for mixer in self.mixers:
            x = mixer(x, gap[..., None, None], informed, state, inner)
        told = None if self.asks else self._answer(x, values, missing, latest, static, was, after)
        return told, {f"{self.prefix}{name}": tensor for name, tensor in after.items()} | inner

    def _answer(
        self,
        x: Tensor,
        values: Tensor,
        missing: Tensor,
        latest: Tensor,
        static: Tensor | None,
        was: State,
        after: State,
    ) -> Tensor:
        """(B, D) -> (B, P O)"""
        answer: Tensor = self.head(self._pooled(x, was, after) if self.series else x)
        if self.summaries is not None:
            answer = self._summarised(answer, values, missing, latest, static, was, after)
        return from_raw(self.distribution, answer[:, : self.outputs], answer[:, self.outputs :])

    def _around(
        self, now: Tensor, values: Tensor, missing: Tensor, latest: Tensor, when: Tensor, was: State, after: State
    ) -> Tensor:
        """(B, count · C) the values of each channel some intervals ago, relative to its latest value."""
        C = self.channels
        new = [torch.where(missing, NEVER, values), torch.where(missing, NEVER, now)]
        came = torch.cat([latest, when, *new], dim=1)[:, None]
        recent = torch.where(was["recent"] == NEVER, came, was["recent"])  # those waiting for an observation
        later = was["recent_times"][:, :, 1:]  # the first row is used even if all are too late
        now = now[..., None]
        asked = now + self.steps  # (B, count, 1)
        row = (later <= asked).sum(dim=2, keepdim=True)
        found = recent.gather(1, row.expand(-1, -1, 4 * C))
        before, at, following, then = found.split(C, dim=2)
        reach = then - at
        line = before + ((asked - at) / reach).clamp(min=0) * (following - before)
        fresh = torch.maximum(came, self.waiting)  # the next observation is not known yet
        after["recent"] = torch.cat([recent[:, 1:], fresh], dim=1)
        after["recent_times"] = torch.cat([later, now], dim=2)
        return torch.where(reach < NEVER / 2, line - latest[:, None], 0).flatten(1)

    def _pooled(self, x: Tensor, was: State, after: State) -> Tensor:
        """(B, D) -> (B, D) or (B, 3 D): mean, last and maximum of the rows so far"""
        after["sum"] = was["sum"] + x
        mean = (after["sum"] / after["rows"]).float()
        if not self.last_part:
            return mean
        after["greatest"] = torch.maximum(was["greatest"], x)
        return torch.cat([mean, x, after["greatest"]], dim=1)

    def _summarised(
        self,
        answer: Tensor,
        values: Tensor,
        missing: Tensor,
        latest: Tensor,
        static: Tensor | None,
        was: State,
        after: State,
    ) -> Tensor:
        """(B, O) -> (B, O) with the contribution of `SummaryHead`, mixed with the prediction of `Trees`"""
        assert self.summaries is not None
        exact = torch.where(missing, 0, values)
        after |= {
            "values_squares": was["values_squares"] + exact.square(),
            "values_first": torch.where(was["values_seen"] > 0, was["values_first"], exact),
            "values_least": torch.where(missing, was["values_least"], torch.minimum(was["values_least"], values)),
            "values_greatest": torch.where(
                missing, was["values_greatest"], torch.maximum(was["values_greatest"], values)
            ),
        }
        some, count = after["values_seen"] > 0, after["values_seen"].clamp(min=1)
        mean = after["values_sum"] / count
        deviation = (after["values_squares"] / count - mean.square()).clamp(min=0).sqrt()
        change = latest - after["values_first"]
        about = [latest, mean, after["values_least"], after["values_greatest"], deviation, change]
        parts = [torch.where(some, x.float(), 0).clamp(-FAR, FAR) for x in about]
        parts += [torch.log(after["values_seen"] + 1).float(), some.float()]
        known = [] if static is None else [static]
        answer = answer + self.summaries.added(torch.cat([*parts, *known], dim=1))
        if self.trees is None:
            return answer
        table = [torch.where(some, x, torch.nan).float() for x in about]
        return self.trees.mix(answer, torch.cat([*table, after["values_seen"].float(), *known], dim=1))


def by_heads(layers: Sequence[nn.Linear], heads: int, scales: Sequence[float] | None = None) -> nn.Linear:
    """Fuse several linear maps into one, whose outputs are grouped by head."""
    stacked = nn.Linear(layers[0].in_features, sum(layer.out_features for layer in layers))
    weights = [m.weight * scale for m, scale in zip(layers, scales or [1.0] * len(layers), strict=True)]
    with torch.no_grad():
        stacked.weight.copy_(torch.cat([weight.unflatten(0, (heads, -1)) for weight in weights], 1).flatten(0, 1))
        stacked.bias.copy_(torch.cat([m.bias.unflatten(0, (heads, -1)) for m in layers], 1).flatten())
    return stacked


def _folded(linear: nn.Module, C: int, span: Tensor) -> nn.Linear:
    """The first layer of the embedder, for rows with missing instead of fresh flags, and ages not divided by a span."""
    assert isinstance(linear, nn.Linear)
    folded = nn.Linear(linear.in_features, linear.out_features)
    weight, bias = linear.weight.detach().double().clone(), linear.bias.detach().double()
    fresh = slice(C, 2 * C)
    bias = bias + weight[:, fresh].sum(dim=1)
    weight[:, fresh] = -weight[:, fresh]
    weight[:, 2 * C : 3 * C] /= torch.log1p(span)
    with torch.no_grad():
        folded.weight.copy_(weight)
        folded.bias.copy_(bias)
    return folded
