"""Fuzzed inputs: random operands, models, tables and plain garbage, each beside a slow truth that is written here."""

# Everything is drawn from (seed, number): `operator_batch`, `models_batch` and `panels_case` show a single case again.

from __future__ import annotations

import dis
import math
import traceback
import warnings
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from tally import Tally

import lformer
from lformer import IrregularBatch, ops
from lformer.nn import LFormer, LFormerConfig
from lformer.panel import Panel

Array = np.ndarray[Any, Any]
HOME = Path(lformer.__file__).parent
EPS = float(np.finfo(np.float64).eps)
REFUSALS = (ValueError, TypeError, OverflowError, RuntimeError)


def is_ours(error: BaseException) -> bool:
    """Whether an error comes from a `raise` of the library itself, in more than a word, and not from what it calls."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or not Path(place.tb_frame.f_code.co_filename).is_relative_to(HOME):
        return False
    raised = place.tb_frame.f_code.co_code[place.tb_lasti] == dis.opmap["RAISE_VARARGS"]  # what C raises is a call
    return raised and len(str(error)) > 20


def described(error: BaseException) -> str:
    """An error in a line, with the place it comes from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} from {Path(last.filename).name}:{last.lineno}: {str(error)[:200]}"


# --- the operator ---


class Operands(NamedTuple):
    """One batch of series as the operator takes them; what a model would make of times is still to be computed."""

    q: Array  # (B, L, H, K)
    k: Array  # (B, L, H, K)
    v: Array  # (B, L, H, V)
    gate: Array  # (B, L, H)
    deltas: Array  # (B, L)
    mu: Array  # (H,)
    is_query: Array | None  # (B, L) bool
    previous: Array | None  # (B, H)
    total: Array | None  # (B, H)
    state: Array | None  # (B, H, K, V)
    norm: ops.GateNorm
    causal: bool

    @property
    def words(self) -> str:
        """What an error says of it."""
        B, L, H, K = self.q.shape
        return (
            f"B={B} L={L} H={H} K={K} V={self.v.shape[-1]} {self.q.dtype} {self.norm} causal={self.causal} "
            f"state={None if self.state is None else self.state.dtype} queries={self.is_query is not None}"
        )


def operator(tally: Tally, cases: int, seed: int) -> None:
    """`liquid_decay`, `normalise_decay` and `liquid_gated_attention` against the recurrence; a case is one series."""
    number = 0
    while tally.cases < cases and not tally.over:
        operator_batch(tally, seed, number)
        number += 1


def operator_batch(tally: Tally, seed: int, number: int) -> None:
    """One batch of series: sound ones have to be right, poisoned ones have to be refused."""
    rng = np.random.default_rng([seed, number])
    x = draw_operands(rng)
    tally.case(max(len(x.q), 1))
    where = f"operator_batch(tally, {seed}, {number}): {x.words}"
    try:
        if rng.random() < 0.05 and x.q.size and x.v.size:
            _poisoned(tally, x, rng, where)
        else:
            _sound(tally, x, where)
    except Exception as error:
        tally.fault(f"{where}: {described(error)}")


def draw_operands(rng: np.random.Generator) -> Operands:
    """Any shape, and intervals, gates and values of very different sizes."""
    L = int(rng.choice([0, 1, 2, rng.integers(3, 21), rng.integers(30, 67), rng.integers(100, 140), 1100],
                       p=[0.02, 0.08, 0.1, 0.6, 0.15, 0.04, 0.01]))  # fmt: skip
    B = int(rng.choice([1, rng.integers(64, 257)], p=[0.02, 0.98])) if L < 100 else 16 if L < 1000 else 2
    H, K, V = (int(n) for n in rng.integers(1, [5, 9, 9]))
    if rng.random() < 0.05:
        K, V = int(rng.choice([0, 1, 17, 33])), int(rng.choice([0, 1, 16, 40]))
        B = min(B, 32)
    dtype = rng.choice([np.float32, np.float64])
    norm = str(rng.choice(["sequence", "prefix", "none"]))
    causal = bool(rng.random() < 0.6)
    continued = norm != "sequence" and rng.random() < 0.5
    wide = np.float64 if rng.random() < 0.5 else dtype
    reach = 3.0
    if rng.random() < 0.05:  # to the end of the type; few series, as one that overflows is an error of the whole batch
        reach, B = 0.55 * math.log10(float(np.finfo(dtype).max)), int(rng.integers(1, 4))
    gate = _gates(rng, (B, L, H))
    state = _numbers(rng, (B, H, K, V), reach).astype(wide) if rng.random() < 0.5 else None
    return Operands(
        q=_numbers(rng, (B, L, H, K), reach).astype(dtype),
        k=_numbers(rng, (B, L, H, K), reach).astype(dtype),
        v=_numbers(rng, (B, L, H, V), reach).astype(dtype),
        gate=gate.astype(dtype),
        deltas=_gaps(rng, B, L, bounded=norm == "none" and not causal and rng.random() < 0.9, dtype=dtype),
        mu=rng.choice([rng.random(H), np.full(H, 0.5), rng.choice([0.0, 1.0, 1e-6, 1 - 1e-6], H)]).astype(dtype),
        is_query=rng.random((B, L)) < rng.choice([0.1, 0.5, 1.0]) if rng.random() < 0.3 else None,
        previous=_gates(rng, (B, H)).astype(dtype) if continued else None,
        total=(10 ** rng.uniform(-12, 12, (B, H))).astype(wide) if continued else None,
        state=state,
        norm=norm,  # type: ignore[arg-type]
        causal=causal,
    )


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], reach: float) -> Array:
    """Normal numbers, each series at a scale of its own from 10^-reach to 10^reach; some are 0."""
    scale = 10 ** rng.uniform(-reach, reach, (shape[0], *(1,) * (len(shape) - 1)))
    return rng.normal(size=shape) * scale * (rng.random(shape) > 0.05)


def _gates(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Within (0, 1), and now and then one of its ends, which a sigmoid reaches by rounding."""
    gates = 1 / (1 + np.exp(-rng.choice([1.0, 5.0, 30.0]) * rng.normal(size=shape)))
    return np.where(rng.random(shape) < 0.01, rng.integers(0, 2, shape), gates)


def _gaps(rng: np.random.Generator, B: int, L: int, bounded: bool, dtype: Any) -> Array:
    """(B, L) intervals over many decades, with ties, huge gaps and padding after a length that may be 0."""
    gaps = 10 ** (rng.uniform(-12, 12, (B, 1)) + rng.choice([0.0, 1.0, 5.0]) * rng.normal(size=(B, L)))
    gaps[rng.random((B, L)) < rng.choice([0.0, 0.1, 0.9])] = 0
    gaps[rng.random((B, L)) < rng.choice([0.0, 0.02])] *= 1e15
    gaps *= np.arange(L) < rng.integers(0, L + 1, B)[:, None] if rng.random() < 0.5 else 1
    if bounded and L:  # the decay of a series then is at most this, which the non-causal form can hold
        gaps *= 10 ** rng.uniform(-6, 1.8, (B, 1)) / np.maximum(gaps.sum(axis=1, keepdims=True), 1e-300)
    if rng.random() < 0.02:  # as large as the type can hold
        gaps = gaps / max(gaps.max(initial=0), 1e-300) * float(np.finfo(dtype).max) / 2
    return np.minimum(gaps, float(np.finfo(dtype).max) / 2).astype(dtype)


def _sound(tally: Tally, x: Operands, where: str) -> None:
    """Decays, output and memory are those of the recurrence, or an error says why they cannot be had."""
    expected, slack, refusable = true_decay(x)
    try:
        decay = library_decay(x)
    except REFUSALS as error:
        if not is_ours(error) or not refusable:
            tally.fault(f"{where}: decays refused, {described(error)}")
        return
    found = decay.numpy().astype(np.float64)
    if (bad := _beyond(found, expected, slack)) is not None:
        tally.fault(f"{where}: decay{bad} is {found[bad]}, not {expected[bad]} within {slack[bad]:.3g}")
        return
    truth = true_attention(x, found)
    try:
        y, state = library_attention(x, decay)
    except REFUSALS as error:
        if not is_ours(error) or not truth.refusable:
            tally.fault(f"{where}: attention refused, {described(error)}")
        return
    for name, ours, right, room in (("y", y, truth.y, truth.y_slack), ("state", state, truth.state, truth.state_slack)):
        if (bad := _beyond(ours, right, room)) is not None:
            tally.fault(f"{where}: {name}{bad} is {ours[bad]}, not {right[bad]} within {room[bad]:.3g}")
            return


def _beyond(found: Array, expected: Array, slack: Array) -> tuple[int, ...] | None:
    """Where a number is not finite, or off by more than its slack; what overflows here, too, cannot be judged."""
    if found.shape != expected.shape:
        raise AssertionError(f"a result of shape {found.shape}, not {expected.shape}")
    with np.errstate(invalid="ignore", over="ignore"):
        off = ~(np.abs(found.astype(np.float64) - expected) <= slack)
    bad = ~np.isfinite(found) | (off & np.isfinite(expected) & np.isfinite(slack))
    return tuple(int(i) for i in np.argwhere(bad)[0]) if bad.any() else None


def _tensor(array: Array | None) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array)


def library_decay(x: Operands) -> torch.Tensor:
    """(B, L, H) as a layer makes it."""
    gate, deltas, mu = (torch.from_numpy(part) for part in (x.gate, x.deltas, x.mu))
    u = ops.liquid_decay(gate, deltas, mu, _tensor(x.previous), _tensor(x.is_query))
    return ops.normalise_decay(u, x.norm, _tensor(x.total), is_query=_tensor(x.is_query))


def library_attention(x: Operands, decay: torch.Tensor) -> tuple[Array, Array]:
    """Output and memory as a layer makes them: a query reads, after its own gate, and writes nothing."""
    q, k, v = (torch.from_numpy(part) for part in (x.q, x.k, x.v))
    reads = _tensor(x.is_query)
    writes = decay if reads is None else decay.masked_fill(reads[..., None], 0)
    y, state = ops.liquid_gated_attention(
        q, k, v, writes, x.causal, _tensor(x.state), return_state=True, backend="parallel"
    )
    if reads is not None:
        y = y * torch.exp(writes - decay)[..., None]
    return y.numpy(), state.numpy()


def true_decay(x: Operands) -> tuple[Array, Array, bool]:
    """(B, L, H) decays row by row, by how much rounding may change each, and whether an error would be right, too."""
    B, L, H = x.gate.shape
    kind, least = np.finfo(x.gate.dtype), float(np.finfo(x.gate.dtype).smallest_subnormal)
    eps, largest = float(kind.eps), float(kind.max)
    wider = np.longdouble  # sums that leave the range of float64 stay within this one
    gate, deltas, mu = (part.astype(wider) for part in (x.gate, x.deltas, x.mu))
    reads = np.zeros((B, L), bool) if x.is_query is None else x.is_query
    before = np.zeros((B, H)) if x.previous is None else x.previous.astype(wider)
    u = np.zeros((B, L, H), wider)
    for n in range(L):
        u[:, n] = deltas[:, n, None] * (mu * before + (1 - mu) * gate[:, n])
        before = np.where(reads[:, n, None], before, gate[:, n])
    lost = 4 * least * (1 + deltas[..., None])  # in what is below the smallest normal number
    room = 8 * eps * u + lost
    if x.norm == "none":
        return u, room, bool((u > 0.99 * largest).any())
    past = np.zeros((B, 1, H)) if x.total is None else x.total.astype(wider)[:, None]
    writes = np.where(reads[..., None], 0, u)
    whole = past + (writes.sum(axis=1, keepdims=True) if x.norm == "sequence" else writes.cumsum(axis=1))
    whole = np.broadcast_to(whole + (u - writes if x.norm == "prefix" else 0), u.shape)
    tiny = float(np.finfo(x.gate.dtype if x.total is None else x.total.dtype).tiny)
    something = whole >= tiny
    share = np.where(something, np.minimum(u / np.where(something, whole, 1), 1000), 0)
    vanished = np.where(something, (1 + share) * (L + 1) * lost / np.maximum(whole, tiny), 0)
    slack = (L + 16) * eps * share + 4 * least + vanished
    edge = np.abs(whole - tiny) <= 1e-3 * tiny + L * lost  # either side of the smallest sum that is shared
    return share, np.where(edge, np.maximum(slack, share + 1), slack), bool((whole > 0.49 * largest).any())


class Truth(NamedTuple):
    """Output and memory, by how much rounding may change each number, and whether an error would be right, too."""

    y: Array
    y_slack: Array
    state: Array
    state_slack: Array
    refusable: bool


def true_attention(x: Operands, decay: Array) -> Truth:
    """The recurrence in float64, S_n = g_n S_{n-1} + (1 - g_n) k_n^T v_n and y_n = q_n S_n, and what it may lose.

    Beside the memory run two sums of sizes: `size`, the same with every number taken as positive, which any sum of
    products may lose some last digits of; and `aged`, in which each product counts as often as its exponent is large,
    because the exponent is rounded, too.
    """
    B, L, H, K = x.q.shape
    V, eps = x.v.shape[-1], float(np.finfo(x.q.dtype).eps)
    q, k, v = (part.astype(np.float64) for part in (x.q, x.k, x.v))
    reads = np.zeros((B, L), bool) if x.is_query is None else x.is_query
    writes = np.where(reads[..., None], 0, decay)
    own = np.exp(-np.where(reads[..., None], decay, 0))[..., None]  # what a query's own gate leaves
    memory = np.zeros((B, H, K, V)) if x.state is None else x.state.astype(np.float64)
    given, size, aged = np.abs(memory), np.abs(memory), np.zeros_like(memory)
    y, sizes, ages = np.zeros((B, L, H, V)), np.zeros((B, L, H, V)), np.zeros((B, L, H, V))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for n in range(L):
            d = writes[:, n, :, None, None]
            g, w = np.exp(-d), -np.expm1(-d)
            aged = g * (aged + d * size)
            write = w * k[:, n, :, :, None] * v[:, n, :, None, :]
            memory, size = g * memory + write, g * size + np.abs(write)
            if x.causal:
                y[:, n] = np.einsum("bhk,bhkv->bhv", q[:, n], memory)
                sizes[:, n] = np.einsum("bhk,bhkv->bhv", np.abs(q[:, n]), size)
                ages[:, n] = np.einsum("bhk,bhkv->bhv", np.abs(q[:, n]), aged)
        span = writes.sum(axis=1)
        if not x.causal:  # every row reads the last memory, as it would have been at its own time
            ahead = np.exp(np.flip(np.cumsum(np.flip(writes, 1), axis=1), 1) - writes)[..., None]
            y = ahead * np.einsum("blhk,bhkv->blhv", q, memory)
            sizes = ahead * np.einsum("blhk,bhkv->blhv", np.abs(q), size)
            ages = sizes * span[:, None, :, None]
            aged = size * span[..., None, None]
        digits, floor, spans = (L + K + 16) * eps, _floor(x, span), span[..., None, None]
        y_slack = own * (digits * sizes + 2 * (L + 2) * (eps if x.causal else EPS) * ages + floor)
        y_slack = y_slack + float(np.finfo(x.q.dtype).tiny) * (1 + sizes)  # where the gate of a query itself vanishes
        kept = np.zeros_like(size)
        if x.state is not None and x.state.dtype != x.q.dtype:  # a wider memory is faded in its own digits
            kept = np.exp(-spans) * given
        state_slack = digits * (size - kept) + 2 * (L + 2) * eps * (aged - spans * kept)
        state_slack = state_slack + (L + 16) * EPS * (1 + spans) * kept + floor
        return Truth(own * y, y_slack, memory, state_slack, _refusable(x, writes, span))


def _floor(x: Operands, span: Array) -> Array:
    """(B, 1, 1, 1) below which products of the operands vanish in their type, non-causal weights included."""
    most = np.ones(len(x.q))
    for part in (x.q, x.k, x.v, *([] if x.state is None else [x.state])):
        most = most * (1 + np.abs(part.astype(np.float64)).max(axis=tuple(range(1, part.ndim)), initial=0))
    rise = np.ones(len(x.q)) if x.causal else np.exp(np.minimum(span.max(axis=1, initial=0), 1400) / 2)
    products = (x.q.shape[1] + 1) * (x.q.shape[3] + 1)
    return (float(np.finfo(x.q.dtype).tiny) * products * most * rise)[:, None, None, None]


def _refusable(x: Operands, writes: Array, span: Array) -> bool:
    """Whether some series is such that products, weights or sums may leave the range of the type."""
    largest = float(np.finfo(x.q.dtype).max)
    if (writes > 1e30).any():
        return True
    limit = 0.9 * math.log(largest)
    if not x.causal and (span > limit * (1 - 1e-5)).any():
        return True
    sizes = [np.abs(part.astype(np.float64)).max(initial=0) for part in (x.q, x.k, x.v)]
    given = 0.0 if x.state is None else float(np.abs(x.state).max(initial=0))
    rise = 0.0 if x.causal else float(span.max(initial=0))
    L, K = x.q.shape[1:4:2]
    logs = [math.log(max(size, 1.0)) for size in sizes]
    return sum(logs) + math.log(max(given, 1.0)) + math.log((L + 1) * (K + 1)) + rise > math.log(1e-3 * largest)


POISON = (math.nan, math.inf, -math.inf)


def _poisoned(tally: Tally, x: Operands, rng: np.random.Generator, where: str) -> None:
    """One impossible number among the operands has to be an error."""
    name = str(rng.choice(["q", "k", "v", "deltas", "decay"]))
    value = float(rng.choice([*POISON, -1.0, -1e-30] if name in ("deltas", "decay") else POISON))
    where = f"{where} with {name} = {value}"
    try:
        if name == "decay":
            decay = torch.from_numpy(rng.random(x.gate.shape).astype(x.gate.dtype))
            decay.view(-1)[int(rng.integers(decay.numel()))] = value
            library_attention(x._replace(is_query=None), decay)
        else:
            part = getattr(x, name).copy()
            part.reshape(-1)[int(rng.integers(part.size))] = value
            x = x._replace(**{name: part})
            library_attention(x, library_decay(x))
    except REFUSALS as error:
        if not is_ours(error):
            tally.fault(f"{where}: {described(error)}")
    else:
        tally.fault(f"{where}: taken")


# --- models ---

CLOSE = 1e-10  # of the largest answer of a series, in float64: sums in another order, through a few layers


class Arrays(NamedTuple):
    """Series as somebody has them, all in float64; times are whole multiples of one power of two, so differences of
    any two are exact, wherever the clock starts."""

    values: Array  # (B, L, C), NaN where nothing was observed
    times: Array  # (B, L)
    lengths: Array  # (B,)
    queries: Array | None  # (B, Q)
    static: Array | None  # (B, S)
    unit: float  # that power of two

    def batch(self, start: Array | None = None) -> IrregularBatch:
        """Checked and padded."""
        return IrregularBatch.build(
            self.values, self.times, lengths=self.lengths, t0=start, query_times=self.queries, static=self.static,
            dtype=torch.float64,
        )  # fmt: skip

    def take(self, series: Array) -> Arrays:
        """Some of the series."""
        return Arrays(*(part[series] if isinstance(part, np.ndarray) else part for part in self))

    def rows(self, begin: int, end: int) -> Arrays:
        """Some rows of all series."""
        lengths = np.clip(self.lengths - begin, 0, end - begin)
        return self._replace(values=self.values[:, begin:end], times=self.times[:, begin:end], lengths=lengths)


class Disagreement(AssertionError):
    """Two answers that should be the same are not."""


def models(tally: Tally, cases: int, seed: int) -> None:
    """Random models on random series, and what must not change an answer; a case is one series and one model."""
    number = 0
    while tally.cases < cases and not tally.over:
        models_batch(tally, seed, number)
        number += 1


def models_batch(tally: Tally, seed: int, number: int) -> None:
    """One model and one batch."""
    rng = np.random.default_rng([seed, number])
    config = draw_config(rng)
    x = draw_arrays(rng, config)
    tally.case(max(len(x.values), 1))
    where = f"models_batch(tally, {seed}, {number}): {_as_call(config)} on {x.values.shape}"
    try:
        with torch.no_grad():
            _hold(draw_model(rng, config), x, rng)
    except OverflowError as error:  # only weights exp(+decay) may be too large
        if not is_ours(error) or config.causal or config.gate_norm != "none":
            tally.fault(f"{where}: {described(error)}")
    except Exception as error:
        tally.fault(f"{where}: {described(error)}")


def draw_config(rng: np.random.Generator) -> LFormerConfig:
    """Any small model that there may be."""

    def one(*choices: str) -> Any:
        return str(rng.choice(choices))

    inputs, heads = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    answer, causal = one("series", "step", "query"), bool(rng.random() < 0.6)
    rows = one("values", "observed", "carried")
    persistence = "none" if answer == "series" else one("none", "latest", *([] if causal else ["line", "wave"]))
    return LFormerConfig(
        inputs=inputs, outputs=inputs if persistence != "none" else int(rng.integers(1, 4)), answer=answer,
        rows=rows, neighbours=int(rng.choice([0, 1, 3])) if rows == "carried" else 0,
        statics=int(rng.choice([0, 0, 2])), persistence=persistence,
        summaries=rows == "carried" and answer == "series" and bool(rng.random() < 0.5),
        width=2 * heads * int(rng.integers(1, 4)), depth=int(rng.integers(1, 3)), heads=heads,
        embedder=one("linear", "relu", "relu_norm", "mlp"), time_embedding=one("none", "sinusoidal", "relative"),
        head_layers=int(rng.integers(0, 2)), pooling=one("mean", "mean_last_max"), causal=causal,
        gate_norm=one("sequence", "prefix", "none"), first_interval=one("typical", "zero"),
        time_mixer=one("liquid", "liquid", "liquid", "softmax"), channel_mixer=one("swiglu", "feed_forward"),
        mu=one("per_head", "shared", "fixed"), rate=one("input", "time"), output_gate=one("sigmoid", "none"),
    )  # fmt: skip


def _as_call(config: LFormerConfig) -> str:
    """A configuration as the call that makes it, without what is as it always is."""
    given = {f.name: getattr(config, f.name) for f in fields(config)}
    odd = {f.name for f in fields(config) if given[f.name] != f.default}
    return ", ".join(f"{name}={given[name]!r}" for name in given if name in odd)


def draw_model(rng: np.random.Generator, config: LFormerConfig) -> LFormer:
    """As after some training: no weight at its start, values scaled and clipped, a typical interval of any size."""
    torch.manual_seed(int(rng.integers(2**31)))
    model = LFormer(config).double().eval()
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn_like(parameter)
    if config.rows != "values":
        shift, scale = torch.randn(config.inputs), torch.rand(config.inputs) + 0.1
        far = torch.full((config.inputs,), 3.0 if rng.random() < 0.5 else torch.inf)
        model.rows.set_scale(shift, scale, shift - far, shift + far)
    interval = float(10 ** rng.uniform(-3, 3))
    model.rows.interval.fill_(interval)
    model.rows.span.fill_(interval * float(10 ** rng.uniform(0, 3)))
    model.first_interval.fill_(interval)
    return model


def draw_arrays(rng: np.random.Generator, config: LFormerConfig) -> Arrays:
    """Ragged series of uneven intervals: ties, gaps over nine decades, holes, wild values, none at all."""
    B, C = int(rng.integers(1, 7)), config.inputs
    L = int(rng.choice([0, 1, rng.integers(2, 13), rng.integers(30, 70)], p=[0.03, 0.07, 0.8, 0.1]))
    unit = 2.0 ** int(rng.integers(-20, 1) if config.gate_norm != "none" or config.causal else -40)
    gaps = np.floor(2 ** rng.uniform(0, rng.choice([1, 8, 30]), (B, L)))
    gaps[rng.random((B, L)) < rng.choice([0.0, 0.2, 1.0], p=[0.45, 0.5, 0.05])] = 0
    ticks = np.cumsum(gaps, axis=1)
    values = rng.normal(size=(B, L, C)) * 10 ** rng.uniform(-3, 3, (B, 1, C))
    values[rng.random((B, L, C)) < rng.choice([0.0, 0.3, 0.9])] = np.nan
    if rng.random() < 0.1:
        values = values * 1e30
    lengths = np.full(B, L) if rng.random() < 0.3 else rng.integers(0, L + 1, B)
    queries = unit * _some_queries(rng, ticks) if config.answer == "query" else None
    static = rng.normal(size=(B, config.statics)) if config.statics else None
    return Arrays(values, unit * ticks, lengths, queries, static, unit)


def _some_queries(rng: np.random.Generator, ticks: Array) -> Array:
    """(B, Q) before, between and after the rows, some at the very time of one."""
    (B, L), Q = ticks.shape, int(rng.choice([0, 1, 5]))
    anywhere = np.floor(rng.uniform(-0.2, 1.2, (B, Q)) * ticks.max(initial=64))
    if not L:
        return anywhere
    at_rows = np.take_along_axis(ticks, rng.integers(0, L, (B, Q)), axis=1)
    return np.where(rng.random((B, Q)) < 0.3, at_rows, anywhere)


def _hold(model: LFormer, x: Arrays, rng: np.random.Generator) -> None:
    """Everything that an answer must not depend on."""
    config = model.config
    answers = model(x.batch())
    if not bool(torch.isfinite(answers).all()):
        raise Disagreement("an answer is not finite")
    valid = _valid(config, x)
    _same_origin(model, x, answers, rng)
    _same_padding(model, x, answers, valid, rng)
    _same_alone(model, x, answers, valid, rng)
    if config.answer == "query":
        _same_beside_queries(model, x, answers, rng)
    if config.causal and config.gate_norm != "sequence":
        if config.answer == "step":
            _same_before(model, x, answers, valid, rng)
        if config.time_mixer == "liquid":
            _same_in_pieces(model, x, rng)
            if config.answer != "query":
                _same_in_steps(model, x, answers)


def _valid(config: LFormerConfig, x: Arrays) -> Array:
    """(B,) how many of the answers of each series count; those after its last row are of nobody."""
    rows = x.lengths if config.answer == "step" else np.full(len(x.lengths), 2**31)
    return np.asarray(rows)


def _agree(what: str, found: torch.Tensor, expected: torch.Tensor, valid: Array | None = None) -> None:
    """(B, ...) answers, each series beside its own largest; `valid` (B,) is how many answers of each count."""
    if found.shape != expected.shape:
        raise Disagreement(f"{what}: {tuple(found.shape)} answers, not {tuple(expected.shape)}")
    for i in range(len(expected)):
        count = 2**31 if valid is None else int(valid[i])
        ours, right = (part[i].reshape(-1, part.shape[-1])[:count] for part in (found, expected))
        if right.numel() == 0:
            continue
        scale = float(right.abs().max())
        off = float((ours - right).abs().max())
        if not off <= CLOSE * scale + 1e-12:
            raise Disagreement(f"{what}: series {i} is off by {off:.3g} of {scale:.3g}")


def _same_origin(model: LFormer, x: Arrays, answers: torch.Tensor, rng: np.random.Generator) -> None:
    """Another start of the clock changes not a bit: the calendar is subtracted before anything is computed."""
    shift = x.unit * np.floor(rng.uniform(-(2**50), 2**50, (len(x.values), 1)))
    moved = x._replace(times=x.times + shift, queries=None if x.queries is None else x.queries + shift)
    if x.queries is not None and (x.lengths == 0).any():  # what is asked of an empty series has no time
        _agree("another origin", model(moved.batch()), answers)
    elif not torch.equal(model(moved.batch()), answers):
        raise Disagreement("another origin: not the same bits")


def _same_padding(model: LFormer, x: Arrays, answers: torch.Tensor, valid: Array, rng: np.random.Generator) -> None:
    """More padding changes nothing, and neither does what stands on it."""
    batch = x.batch()
    more = int(rng.integers(1, 40))
    asked = None if x.queries is None else x.queries.shape[1] + int(rng.integers(0, 5))
    _agree("more padding", _front(model(batch.padded(batch.values.shape[1] + more, asked)), answers), answers, valid)
    B, _, C = x.values.shape
    rubbish = rng.choice([np.nan, np.inf, -np.inf, 1e308, -5.0], (B, more, C))
    late = rng.choice([np.nan, np.inf, -np.inf, 1e308, -5.0], (B, more))
    longer = x._replace(
        values=np.concatenate([x.values, rubbish], axis=1), times=np.concatenate([x.times, late], axis=1)
    )
    _agree("rubbish as padding", _front(model(longer.batch()), answers), answers, valid)


def _front(found: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The answers that were there without padding."""
    return found[:, : like.shape[1]] if like.dim() == 3 else found


def _same_alone(model: LFormer, x: Arrays, answers: torch.Tensor, valid: Array, rng: np.random.Generator) -> None:
    """A series is answered alike in any order, and alone without padding."""
    order = rng.permutation(len(x.values))
    _agree("another order", model(x.take(order).batch()), answers[torch.from_numpy(order)], valid[order])
    i = int(rng.integers(len(x.values)))
    alone = model(x.take(np.array([i])).rows(0, int(x.lengths[i])).batch())
    _agree("alone", alone, _front(answers[i : i + 1], alone), valid[i : i + 1])


def _same_beside_queries(model: LFormer, x: Arrays, answers: torch.Tensor, rng: np.random.Generator) -> None:
    """Other questions, in any order, change no answer."""
    batch = x.batch()
    assert batch.query_times is not None
    B, Q = batch.query_times.shape
    reach = float(batch.times.abs().max()) + 1 if batch.times.numel() else 1.0
    others = torch.from_numpy(rng.uniform(-reach, 2 * reach, (B, int(rng.integers(1, 6)))))
    both = torch.cat([batch.query_times, others], dim=1)
    order = torch.from_numpy(rng.permutation(both.shape[1]))
    found = model(batch.with_queries(both[:, order]))
    _agree("beside other queries", found[:, torch.argsort(order)][:, :Q], answers)


def _same_before(model: LFormer, x: Arrays, answers: torch.Tensor, valid: Array, rng: np.random.Generator) -> None:
    """What comes later changes nothing before it."""
    cut = int(rng.integers(0, x.values.shape[1] + 1))
    values, times = x.values.copy(), x.times.copy()
    values[:, cut:] = rng.normal(size=values[:, cut:].shape)
    times[:, cut:] += float(rng.choice([0, 2 ** rng.integers(0, 20)]))  # a row may come at the same time, yet later
    found = model(x._replace(values=values, times=times).batch())
    _agree("before a change", found, answers, np.minimum(valid, cut))


def _same_in_pieces(model: LFormer, x: Arrays, rng: np.random.Generator) -> None:
    """Two pieces of a series, with the state between them, are the whole."""
    L = x.values.shape[1]
    cut = int(rng.integers(0, L + 1))
    start = x.times[:, 0] if L else np.zeros(len(x.times))
    pieces = x.rows(0, cut), x.rows(cut, L)
    if x.queries is not None:  # what is asked of a later piece is asked after the earlier one
        so_far = np.where(np.arange(L) < np.minimum(x.lengths, cut)[:, None], x.times, -np.inf)
        x = x._replace(queries=np.maximum(x.queries, so_far.max(axis=1, initial=-np.inf, keepdims=True)))
        pieces = pieces[0]._replace(queries=x.queries[:, :0]), pieces[1]._replace(queries=x.queries)
    first, state = model(pieces[0].batch(start), return_state=True)
    second, _ = model(pieces[1].batch(start), state, return_state=True)
    found = torch.cat([first, second], dim=1) if model.config.answer == "step" else second
    _agree("in pieces", found, model(x.batch(start)), _valid(model.config, x))


def _same_in_steps(model: LFormer, x: Arrays, answers: torch.Tensor) -> None:
    """Row by row is the whole; a series that has ended goes on with rows that nobody looks at."""
    batch = x.batch()
    values = torch.where(batch.observed, batch.values, torch.nan)
    state = model.init_state(len(batch), batch.static)
    for n in range(batch.values.shape[1]):
        found, state = model.step(values[:, n], batch.deltas[:, n], state)
        if model.config.answer == "step":
            _agree(f"step {n}", found, answers[:, n], valid=(x.lengths > n).astype(int))
        else:
            _agree(f"step {n}", found, answers, valid=(x.lengths == n + 1).astype(int))


# --- panels ---

NAN = float("nan")
REFUSED = (ValueError, TypeError, OverflowError)
TICKS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "D": 86400 * 10**9}
Series = list[tuple[Any, list[float]]]  # rows of one series: stamp, and a value of each channel, NaN if it has none


class Wrong(AssertionError):
    """The library took something and made something else of it."""


def panels(tally: Tally, cases: int, seed: int) -> None:
    """Tables, lists, arrays and garbage into panels and batches; a case is one call."""
    number = 0
    while tally.cases < cases and not tally.over:
        panels_case(tally, seed, number)
        number += 1


def panels_case(tally: Tally, seed: int, number: int) -> None:
    """One call: an answer that the slow way gives, too, or an error in our words."""
    rng = np.random.default_rng([seed, number])
    kinds = (long_case, list_case, array_case, build_case, masked_case, garbage_case)
    kind = kinds[int(rng.choice(len(kinds), p=[0.3, 0.1, 0.1, 0.15, 0.01, 0.34]))]
    tally.case()
    where = f"panels_case(tally, {seed}, {number}): {kind.__name__}"
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            kind(rng)
    except Wrong as error:
        tally.fault(f"{where}: {error}")
    except Exception as error:
        tally.fault(f"{where}: escaped, {described(error)}")
    else:
        strange = [w for w in warned if w.category is not UserWarning or "duplicates are kept" not in str(w.message)]
        if strange and kind is not garbage_case:  # of what garbage is, numpy may say what it likes
            place = f"{Path(strange[0].filename).name}:{strange[0].lineno}"
            tally.fault(f"{where}: warned at {place}, {strange[0].category.__name__}: {str(strange[0].message)[:200]}")


def refused(call: Callable[[], Any], must: bool | None, what: str) -> Any:
    """What a call returns, or None if it is refused in our words.

    Args:
        call: what to try.
        must: whether it has to be refused; None if nobody can say.
        what: was given, for the report.
    """
    try:
        found = call()
    except (*REFUSED, IndexError) as error:  # an index that does not exist is an IndexError everywhere in Python
        if not is_ours(error):
            raise Wrong(f"{what}: not in our words, {described(error)}") from error
        if must is False:
            raise Wrong(f"{what}: refused, {described(error)}") from error
        return None
    except Exception as error:
        raise Wrong(f"{what}: {described(error)}") from error
    if must:
        raise Wrong(f"{what}: taken")
    return found


# tables


class Row(NamedTuple):
    """One row of a table, in plain Python."""

    id: Any
    stamp: int | float  # of a calendar, nanoseconds
    values: dict[str, Any]  # one channel of a long table, all of a wide one


class Table(NamedTuple):
    """A table in plain Python, and how it is handed over."""

    rows: list[Row]
    channels: list[str]
    wide: bool
    clock: str  # "float", "int", "datetime", "zone" or "timedelta"
    cells: str  # "float", "int", "text", "nullable" or "object"

    @property
    def words(self) -> str:
        """What a report says of it."""
        return f"a {'wide' if self.wide else 'long'} table of {len(self.rows)} rows, {self.clock} times, {self.cells}"


def long_case(rng: np.random.Generator) -> None:
    """A table, sound or with one defect, into `Panel.from_long`."""
    table = draw_table(rng)
    names: dict[str, Any] = {"id": "id", "time": "time"}
    names |= {} if table.wide else {"channel": "channel", "value": "value"}
    options = {
        "unit": None if rng.random() < 0.5 else str(rng.choice(list(TICKS))),
        "on_duplicate": str(rng.choice(["error", "mean", "last", "keep"])),
        "dtype": rng.choice([np.float32, np.float64]),
    }
    frame = as_frame(table, rng)
    if rng.random() < 0.4:
        name = str(rng.choice(list(DEFECTS)))
        spoil, must = DEFECTS[name]
        frame = frame if "value" in frame else frame.assign(channel="a", value=1.0)
        names |= {"channel": "channel", "value": "value"}
        changes = spoil(frame, rng)
        call = {**names, **options, **{key: new for key, new in changes.items() if key != "table"}}
        refused(lambda: Panel.from_long(changes.get("table", frame), **call), must, f"a table with {name}")
        return
    truth = slow_panel(table, options["on_duplicate"], options["dtype"])
    panel = refused(lambda: Panel.from_long(frame, **names, **options), truth is None, table.words)
    if truth is not None:
        ticks = 1 if table.clock in ("float", "int") else TICKS[options["unit"] or "s"]
        compare(panel, truth, table.words)
        compare_batch(panel, truth, ticks, rng, table.words)


def draw_table(rng: np.random.Generator) -> Table:
    """Some rows in no order, with duplicates, holes, and numbers in many disguises."""
    wide, n = bool(rng.random() < 0.3), int(rng.integers(1, 25))
    clock = str(rng.choice(["float", "int", "datetime", "zone", "timedelta"]))
    cells = str(rng.choice(["float", "int", "text", "nullable", "object"]))
    ids = _some_ids(rng)
    channels = ["x", "y", "long name", "7"][: int(rng.integers(1, 5))]
    pool = _some_stamps(rng, clock)
    rows = []
    for _ in range(n):
        chosen = channels if wide else [channels[int(rng.integers(len(channels)))]]
        stamp = pool[int(rng.integers(len(pool)))]
        rows.append(Row(ids[int(rng.integers(len(ids)))], stamp, {c: _some_cell(rng, cells) for c in chosen}))
    return Table(rows, channels, wide, clock, cells)


def _some_ids(rng: np.random.Generator) -> list[Any]:
    """Names of up to four series: whole numbers, text, both, or fractions."""
    kinds: list[list[Any]] = [
        [3, 1, 2, -5], ["b", "a", "", "ä"], [1, "1", 2, "b"], [0.5, 1.5, -1.0, 1e300], [2**62, 1],
    ]  # fmt: skip
    return kinds[int(rng.integers(len(kinds)))][: int(rng.integers(1, 5))]


def _some_stamps(rng: np.random.Generator, clock: str) -> list[Any]:
    """A few stamps, of which rows take any, so that some are the same."""
    count = int(rng.integers(1, 12))
    if clock == "float":
        return [float(x) for x in rng.normal(size=count) * 10.0 ** rng.integers(-9, 30)]
    if clock == "int":
        reach = 2 ** int(rng.choice([3, 20, 40, 61]))
        return [int(x) for x in rng.integers(-reach, reach, count)]
    reach = 10 ** int(rng.choice([3, 9, 12, 17]))
    begin = 0 if clock == "timedelta" else 1_577_836_800 * 10**9  # 2020
    return [begin + int(x) for x in rng.integers(-reach, reach, count)]


def _some_cell(rng: np.random.Generator, cells: str) -> Any:
    """One entry of a column of this kind."""
    number = float(rng.normal() * 10.0 ** rng.choice([-30, 0, 0, 0, 5, 30]))
    if cells == "int":
        return int(rng.integers(-(2**40), 2**40))
    if rng.random() < 0.2:
        return {"float": NAN, "nullable": None, "text": "nan"}.get(cells, [None, NAN, pd.NA][int(rng.integers(3))])
    if cells == "text":
        return repr(number)
    if cells == "object":
        disguises = [
            number,
            np.float32(round(number % 1e6)),
            Decimal(repr(number)),
            repr(number),
            round(number),
            Fraction(number),
        ]
        return disguises[int(rng.integers(len(disguises)))]
    return number


def meaning(cell: Any) -> float:
    """The number that an entry stands for; NaN if it stands for nothing."""
    return NAN if cell is None or cell is pd.NA else float(cell)


def as_frame(table: Table, rng: np.random.Generator) -> pd.DataFrame:
    """The table as somebody has it in pandas."""
    columns: dict[str, Any] = {
        "id": pd.Series([row.id for row in table.rows]),
        "time": as_times([row.stamp for row in table.rows], table.clock, rng),
    }
    if table.wide:
        columns |= {c: as_column([row.values[c] for row in table.rows], table.cells) for c in table.channels}
    else:
        columns["channel"] = [next(iter(row.values)) for row in table.rows]
        columns["value"] = as_column([next(iter(row.values.values())) for row in table.rows], table.cells)
    frame = pd.DataFrame(columns)
    frame.index = rng.permutation(len(frame)) + 100
    return frame


def as_times(stamps: list[Any], clock: str, rng: np.random.Generator) -> pd.Series:
    """A column of stamps."""
    if clock in ("float", "int"):
        return pd.Series(stamps, dtype="float64" if clock == "float" else "int64")
    if clock == "timedelta":
        return pd.Series(pd.to_timedelta(stamps, unit="ns"))
    dates = pd.Series(pd.to_datetime(stamps, unit="ns"))
    if clock == "zone":
        zones = ["UTC", "Asia/Kathmandu", "America/New_York", "Europe/Berlin"]
        dates = dates.dt.tz_localize("UTC").dt.tz_convert(str(rng.choice(zones)))
    return dates


def as_column(cells: list[Any], kind: str) -> pd.Series:
    """A column of values."""
    dtype = {"float": "float64", "int": "int64", "nullable": "Float64"}.get(kind, "object")
    return pd.Series(cells, dtype=dtype)


def slow_panel(table: Table, ties: str, dtype: Any) -> dict[Any, Series] | None:
    """id -> rows in order of time, by hand; None if the table has to be refused."""
    found: dict[Any, dict[Any, dict[str, list[float]]]] = {}
    for row in table.rows:
        at = found.setdefault(row.id, {}).setdefault(row.stamp, {})
        for channel, cell in row.values.items():
            with np.errstate(over="ignore"):
                number = float(dtype(meaning(cell)))
            if math.isinf(number):
                return None
            if not math.isnan(number):
                at.setdefault(channel, []).append(number)
    several = [len(values) for series in found.values() for at in series.values() for values in at.values()]
    if ties == "error" and max(several, default=0) > 1:
        return None
    channels = table.channels if table.wide else sorted({c for row in table.rows for c in row.values})
    return {
        name: [(t, row) for t in sorted(series) for row in _untied(series[t], channels, ties)]
        for name, series in found.items()
    }


class Mean(float):
    """The mean of some numbers, and the size of the largest, some last digits of which it may lose."""

    size: float

    def __new__(cls, numbers: list[float]) -> Mean:
        mean = super().__new__(cls, math.fsum(number / len(numbers) for number in numbers))
        mean.size = max(map(abs, numbers))
        return mean


def _untied(at: dict[str, list[float]], channels: list[str], ties: str) -> list[list[float]]:
    """The rows that all values of one stamp become: one, or as many as there are duplicates if they are kept."""
    if ties == "keep":
        deepest = max(map(len, at.values()), default=1)
        return [[at[c][n] if n < len(at.get(c, [])) else NAN for c in channels] for n in range(deepest)]
    one = {c: Mean(values) if ties == "mean" else values[-1] for c, values in at.items()}
    return [[one.get(c, NAN) for c in channels]]


def compare(panel: Panel, truth: dict[Any, Series], what: str) -> None:
    """The panel holds the series of the slow way, in order of their names."""
    names = panel.ids.tolist()
    sortable = len(set(map(type, truth))) == 1
    if len(names) != len(truth) or set(names) != set(truth) or (sortable and names != sorted(names)):
        raise Wrong(f"{what}: the series are {names}, not {list(truth)}")
    for i, name in enumerate(names):
        stamps, values = panel[i]
        rows = truth[name]
        if len(stamps) != len(rows):
            raise Wrong(f"{what}: series {name!r} has {len(stamps)} rows, not {len(rows)}")
        for found, numbers, (stamp, right) in zip(_plain(stamps), values.tolist(), rows, strict=True):
            if abs(found - stamp) > (0 if isinstance(stamp, float) else abs(stamp - rows[0][0]) * 2.0**-51):
                raise Wrong(f"{what}: series {name!r} has a row at {found}, not {stamp}")
            _same_numbers(numbers, right, panel.values.dtype, f"{what}: series {name!r} at {stamp}")


def _plain(stamps: Array) -> list[Any]:
    """Stamps as numbers, those of a calendar in nanoseconds."""
    if stamps.dtype.kind in "mM":
        return stamps.astype(f"{stamps.dtype.kind}8[ns]").astype(np.int64).tolist()
    return stamps.tolist()


def _same_numbers(found: list[float], right: list[float], dtype: Any, what: str) -> None:
    """Value by value, but for the last digit, which a text or a mean may round otherwise."""
    eps = float(np.finfo(dtype).eps)
    for ours, number in zip(found, right, strict=True):
        room = 2 * eps * abs(number) + 8 * EPS * getattr(number, "size", 0.0) + 1e-45
        same = math.isnan(ours) if math.isnan(number) else abs(ours - number) <= room
        if not same:
            raise Wrong(f"{what}: {found}, not {right}")


def compare_batch(panel: Panel, truth: dict[Any, Series], ticks: int, rng: np.random.Generator, what: str) -> None:
    """Some series of the panel, padded by `Panel.batch` and by hand."""
    index = rng.integers(-len(panel), len(panel), int(rng.integers(0, 5)))
    dtype = torch.float32 if rng.random() < 0.5 else torch.float64
    chosen = [truth[name] for name in panel.ids[index].tolist()]
    batch = refused(lambda: panel.batch(index, dtype), None if dtype == torch.float32 else False, f"a batch of {what}")
    if batch is not None:
        series = [[(since(t, rows, ticks), row) for t, row in rows] for rows in chosen]
        padded_by_hand(batch, series, what, panel.values.dtype)
    elif all(not abs(value) > 3e38 for rows in chosen for _, row in rows for value in row):
        raise Wrong(f"{what}: its batch is refused")


def since(stamp: float, rows: Series, ticks: int) -> float:
    """The time of a row since the first one of its series, without rounding before the end."""
    return float((Fraction(stamp) - Fraction(rows[0][0])) / ticks)


def padded_by_hand(batch: IrregularBatch, series: list[Series], what: str, stored: Any = np.float64) -> None:
    """Every tensor of a batch is that of these series, whose stamps are times since their first rows.

    The values were rounded to `stored` before they were put into the batch.
    """
    sane(batch, what)
    if batch.lengths.tolist() != [len(rows) for rows in series]:
        raise Wrong(f"{what}: lengths {batch.lengths.tolist()}, not {[len(rows) for rows in series]}")
    kind = {torch.float32: np.float32, torch.float64: np.float64}[batch.deltas.dtype]
    for i, rows in enumerate(series):
        before = rows[0][0] if rows else 0.0
        for n, (time, right) in enumerate(rows):
            values = torch.where(batch.observed[i, n], batch.values[i, n].double(), torch.nan).tolist()
            coarser = max(kind, stored, key=lambda dtype: np.finfo(dtype).eps)
            _same_numbers(values, right, coarser, f"{what}: series {i}, row {n} of its batch")
            found, delta = float(batch.times[i, n]), float(batch.deltas[i, n])
            if abs(found - time) > 2 * EPS * abs(time):
                raise Wrong(f"{what}: series {i}, row {n} of its batch is at {found}, not {time}")
            room = 4 * EPS * abs(time) + float(np.finfo(kind).eps) * abs(time - before) + 1e-45
            if abs(delta - (time - before)) > room:
                raise Wrong(
                    f"{what}: series {i}, row {n} of its batch comes {delta} after the last, not {time - before}"
                )
            before = time


def sane(batch: IrregularBatch, what: str) -> None:
    """What holds for every batch, whatever it was made of."""
    B, L = batch.values.shape[:2]
    floats = {"values": batch.values, "times": batch.times, "deltas": batch.deltas, "start": batch.start}
    floats |= {} if batch.query_times is None else {"query_times": batch.query_times}
    floats |= {} if batch.static is None else {"static": batch.static}
    valid = torch.arange(L) < batch.lengths[:, None]
    seen = batch.observed.flatten(2).any(dim=2) if batch.values[0:1].numel() else valid
    wrong = {
        "shapes": batch.times.shape != (B, L) or batch.deltas.shape != (B, L) or batch.start.shape != (B,),
        "the shape of observed": batch.observed.shape != batch.values.shape or batch.observed.dtype != torch.bool,
        "lengths": batch.lengths.shape != (B,) or bool(((batch.lengths < 0) | (batch.lengths > L)).any()),
        "an interval below zero": bool((batch.deltas < 0).any()),
        "padding that was observed": bool((seen & ~valid).any()),
        "padding that takes time": bool((batch.deltas.ne(0) & ~valid).any()),
        "a value that was not observed": bool((batch.values.ne(0) & ~batch.observed).any()),
        **{f"{name} that are not finite": not bool(torch.isfinite(part).all()) for name, part in floats.items()},
    }
    for name, is_so in wrong.items():
        if is_so:
            raise Wrong(f"{what}: a batch with {name}")


Spoil = Callable[[pd.DataFrame, np.random.Generator], dict[str, Any]]


def _one(frame: pd.DataFrame, column: str, entry: Any, rng: np.random.Generator) -> dict[str, Any]:
    """The table with another entry in one place."""
    cells = frame[column].astype(object).tolist()
    cells[int(rng.integers(len(cells)))] = entry
    return {"table": frame.assign(**{column: pd.Series(cells, dtype=object, index=frame.index)})}


def _all(frame: pd.DataFrame, column: str, entries: Callable[[int], Any]) -> dict[str, Any]:
    """The table with another column; entry n is that of row n."""
    cells = [entries(n) for n in range(len(frame))]
    return {"table": frame.assign(**{column: pd.Series(cells, index=frame.index)})}


def _lost_time(frame: pd.DataFrame, rng: np.random.Generator) -> dict[str, Any]:
    gone = np.arange(len(frame)) == rng.integers(len(frame))
    return {"table": frame.assign(time=frame["time"].mask(gone))}


def _zones(n: int) -> datetime:
    return datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=n % 3)) if n % 3 else None)


DEFECTS: dict[str, tuple[Spoil, bool | None]] = {  # what is done, and whether it has to be refused
    "an id that is None": (lambda f, r: _one(f, "id", None, r), True),
    "an id that is NaN": (lambda f, r: _one(f, "id", NAN, r), True),
    "lists for ids": (lambda f, r: _one(f, "id", [1], r), True),
    "ids of many kinds": (lambda f, r: _all(f, "id", lambda n: [1, "a", (1, 2), datetime(2020, 1, 1)][n % 4]), None),
    "ids that are categories": (lambda f, r: {"table": f.assign(id=f["id"].astype("category"))}, None),
    "a time that is missing": (_lost_time, True),
    "an infinite time": (lambda f, r: _all(f, "time", lambda n: math.inf), True),
    "times that are text": (lambda f, r: {"table": f.assign(time=f["time"].astype(str))}, True),
    "times that are True or False": (lambda f, r: _all(f, "time", lambda n: n % 2 == 0), True),
    "complex times": (lambda f, r: _all(f, "time", lambda n: complex(n)), True),
    "decimal times": (lambda f, r: _all(f, "time", lambda n: Decimal(n)), True),
    "times of several zones": (lambda f, r: _all(f.iloc[[0] * 3].reset_index(), "time", _zones), True),
    "times and dates": (lambda f, r: _one(f, "time", datetime(2020, 1, 1) if f["time"].dtype.kind in "fi" else 5, r),
                        None),
    "times beyond 2**63": (lambda f, r: _all(f, "time", lambda n: 2**63 + n), True),
    "times beyond 2**64": (lambda f, r: _all(f, "time", lambda n: 2**70 + n), True),
    "times in float32": (lambda f, r: {"table": f.assign(time=np.arange(len(f), dtype=np.float32) + 1e8)}, None),
    "times too far apart": (lambda f, r: _all(f.assign(id=1), "time", lambda n: n * 1e300), None),
    "whole times too far apart": (lambda f, r: _all(f.assign(id=1), "time", lambda n: (-1) ** n * (2**63 - 1)), None),
    "periods for times": (lambda f, r: {"table": f.assign(time=pd.period_range("2020", periods=len(f), freq="D"))},
                          True),
    "a channel that is None": (lambda f, r: _one(f, "channel", None, r), True),
    "a channel that is a list": (lambda f, r: _one(f, "channel", ["x"], r), True),
    "a channel that is not listed": (lambda f, r: {"channels": ["no such channel"]}, True),
    "a channel listed twice": (lambda f, r: {"channels": [*map(str, f["channel"]), "x", "x"]}, True),
    "a text for channels": (lambda f, r: {"channels": "xy"}, True),
    "an infinite value": (lambda f, r: _one(f, "value", math.inf, r), True),
    "a value beyond all floats": (lambda f, r: _one(f, "value", 10**400, r), True),
    "a value of 5,000 digits": (lambda f, r: _one(f, "value", 10**5000, r), True),
    "a value that is text": (lambda f, r: _one(f, "value", "abc", r), True),
    "a complex value": (lambda f, r: _one(f, "value", 1j, r), True),
    "a date for a value": (lambda f, r: _one(f, "value", pd.Timestamp("2020"), r), True),
    "NaT for a value": (lambda f, r: _one(f, "value", pd.NaT, r), None),
    "a list for a value": (lambda f, r: _one(f, "value", [1.0, 2.0], r), True),
    "a list of one for a value": (lambda f, r: _one(f, "value", [1.0], r), True),
    "a signalling NaN": (lambda f, r: _one(f, "value", Decimal("sNaN"), r), True),
    "a dict for a value": (lambda f, r: _one(f, "value", {}, r), True),
    "bytes for a value": (lambda f, r: _one(f, "value", b"abc", r), True),
    "dates for values": (lambda f, r: _all(f, "value", lambda n: pd.Timestamp("2020")), True),
    "complex values": (lambda f, r: _all(f, "value", lambda n: 1j), True),
    "no such column": (lambda f, r: {"value": "nothing"}, True),
    "no column of times": (lambda f, r: {"time": "nothing"}, True),
    "a number for a column": (lambda f, r: {"id": 7}, True),
    "a list for a column": (lambda f, r: {"id": ["id"]}, True),
    "two columns of a name": (lambda f, r: {"table": pd.concat([f, f[["value"]]], axis=1)}, True),
    "two columns of times": (lambda f, r: {"table": pd.concat([f, f[["time"]]], axis=1)}, True),
    "no rows": (lambda f, r: {"table": f.iloc[:0]}, True),
    "no columns": (lambda f, r: {"table": f.iloc[:, :0]}, True),
    "a dict for a table": (lambda f, r: {"table": f.to_dict()}, True),
    "levels of columns": (lambda f, r: {"table": pd.concat({"a": f}, axis=1)}, True),
    "an unknown unit": (lambda f, r: {"unit": "fortnight"}, None),
    "a unit that is no text": (lambda f, r: {"unit": 7}, True),
    "an unknown way with ties": (lambda f, r: {"on_duplicate": "first"}, True),
    "a list for a way with ties": (lambda f, r: {"on_duplicate": []}, True),
    "a dtype of whole numbers": (lambda f, r: {"dtype": "int32"}, True),
    "a dtype of nothing": (lambda f, r: {"dtype": "nothing"}, True),
    "a dtype of torch": (lambda f, r: {"dtype": torch.float32}, True),
    "a dtype that is too wide": (lambda f, r: {"dtype": np.longdouble}, True),
    "covariates of nobody": (lambda f, r: {"static": pd.DataFrame({"age": [1.0]}, index=["nobody"])}, True),
    "covariates twice": (lambda f, r: {"static": pd.DataFrame({"age": 1.0}, index=[*f["id"], *f["id"]])}, True),
    "covariates in a list": (lambda f, r: {"static": [1, 2]}, True),
}  # fmt: skip


# lists and arrays


def draw_lists(rng: np.random.Generator, clocks: list[str], cells: list[str]) -> tuple[Table, list[list[Row]]]:
    """A wide table of sorted series, and the rows of each; some have none."""
    clock, kind = str(rng.choice(clocks)), str(rng.choice(cells))
    channels = [str(n) for n in range(int(rng.integers(1, 4)))]
    series: list[list[Row]] = []
    for name in range(int(rng.integers(1, 5))):
        pool = _some_stamps(rng, clock)
        stamps = sorted(pool[int(i)] for i in rng.integers(0, len(pool), int(rng.integers(0, 9))))
        series.append([Row(name, t, {c: _some_cell(rng, kind) for c in channels}) for t in stamps])
    return Table([row for rows in series for row in rows], channels, True, clock, kind), series


def list_case(rng: np.random.Generator) -> None:
    """Series one by one into `Panel.from_list`, each in another container."""
    table, series = draw_lists(rng, ["float", "int", "datetime", "zone", "timedelta"], ["float", "int", "object"])
    options = {"on_duplicate": str(rng.choice(["error", "mean", "last", "keep"])), "dtype": np.float64}
    named = {} if rng.random() < 0.5 else {"ids": list(range(len(series)))}
    given = [as_series(rows, table, rng) for rows in series]
    truth = slow_panel(table, str(options["on_duplicate"]), np.float64)
    panel = refused(lambda: Panel.from_list(given, **named, **options), truth is None, f"a list of {table.words}")
    _check_all(panel, truth, len(series), table, rng)


def _check_all(
    panel: Panel | None, truth: dict[Any, Series] | None, count: int, table: Table, rng: np.random.Generator
) -> None:
    """The panel of `count` series, those without rows included, if there is one."""
    if panel is None or truth is None:
        return
    truth = {name: truth.get(name, []) for name in range(count)}
    compare(panel, truth, table.words)
    compare_batch(panel, truth, 1 if table.clock in ("float", "int") else TICKS["s"], rng, table.words)


def as_series(rows: list[Row], table: Table, rng: np.random.Generator) -> Any:
    """One series as a pair or a DataFrame."""
    times = as_times([row.stamp for row in rows], table.clock, rng)
    columns = {c: as_column([row.values[c] for row in rows], table.cells) for c in table.channels}
    form = int(rng.integers(4))
    if form == 0:
        return pd.DataFrame(columns).set_index(pd.Index(times))
    marks = {c: [None if one is pd.NA else one for one in column] for c, column in columns.items()}
    matrix = pd.DataFrame({c: as_column(column, table.cells) for c, column in marks.items()}).to_numpy()
    if form == 1 and table.clock in ("float", "int"):
        return times.tolist(), matrix.tolist() if rows else matrix
    if form == 2 and table.clock in ("float", "int") and matrix.dtype != object:
        return torch.tensor(times.to_numpy()), torch.tensor(matrix)
    return [pd.Index(times) if form == 3 else times, matrix]


def array_case(rng: np.random.Generator) -> None:
    """Padded arrays into `Panel.from_array`, with lengths or without."""
    table, series = draw_lists(rng, ["float", "datetime", "timedelta"], ["float"])
    ties = str(rng.choice(["error", "mean", "last", "keep"]))
    L = max(map(len, series)) + int(rng.integers(0, 3))
    values = np.full((len(series), L, len(table.channels)), NAN)
    kind, nothing = {"float": ("f8", NAN), "datetime": ("M8[ns]", "NaT"), "timedelta": ("m8[ns]", "NaT")}[table.clock]
    clock = np.full((len(series), L), nothing, kind)
    for i, rows in enumerate(series):
        for n, row in enumerate(rows):
            values[i, n] = [row.values[c] for c in table.channels]
            clock[i, n] = row.stamp if table.clock == "float" else np.int64(row.stamp).astype(clock.dtype)
    lengths = {"lengths": [len(rows) for rows in series]} if rng.random() < 0.5 else {}
    truth = slow_panel(table, ties, np.float64)
    panel = refused(
        lambda: Panel.from_array(values, clock, on_duplicate=ties, dtype=np.float64, **lengths),
        truth is None, f"an array of {table.words}",
    )  # fmt: skip
    _check_all(panel, truth, len(series), table, rng)


def build_case(rng: np.random.Generator) -> None:
    """Padded arrays of many types into `IrregularBatch.build`."""
    B, L, C = int(rng.integers(1, 5)), int(rng.integers(0, 9)), int(rng.integers(1, 4))
    dtype = torch.float32 if rng.random() < 0.5 else torch.float64
    values = _odd_layout(rng.normal(size=(B, L, C)) * 10.0 ** rng.integers(-3, 4), rng)
    if values.dtype.kind == "f":
        values = np.where(rng.random(values.shape) < 0.3, np.array(NAN, values.dtype), values)
    whole = bool(rng.random() < 0.5)
    reach = int(2.0 ** rng.integers(1, 60))
    times = np.sort(rng.integers(-reach, reach, (B, L)) if whole else reach * rng.normal(size=(B, L)), axis=1)
    lengths = rng.integers(0, L + 1, B)
    start = [None, int(times.min(initial=0)), times[:, 0] if L else None][int(rng.integers(3))]
    queries = times[:, : int(rng.integers(0, 3))] + (1 if whole else 0.5) if rng.random() < 0.5 else None
    given: dict[str, Any] = {"lengths": lengths, "t0": start, "query_times": queries, "dtype": dtype}
    what = f"arrays {values.dtype} {values.shape}, times up to {reach}"
    batch = refused(lambda: IrregularBatch.build(as_given(values, rng), as_given(times, rng), **given), False, what)
    begins = [_begin(times[i], start, i) if lengths[i] or start is not None else 0 for i in range(B)]
    series: list[Series] = []
    for i in range(B):
        rows = range(int(lengths[i]))
        series.append(
            [(float(Fraction(times[i, n].item()) - Fraction(begins[i])), values[i, n].tolist()) for n in rows]
        )
    padded_by_hand(batch, series, what, np.float64)
    if queries is not None:
        for i, asked in enumerate(queries.tolist()):
            right = [
                0.0 if start is None and not lengths[i] else float(Fraction(q) - Fraction(begins[i])) for q in asked
            ]
            if batch.query_times[i].tolist() != right:
                raise Wrong(f"{what}: queries at {batch.query_times[i].tolist()}, not {right}")


def masked_case(rng: np.random.Generator) -> None:
    """Masked arrays, whose masks would be lost, at any depth of lists: they have to be refused."""
    B, L = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    rows = [[np.ma.array([5.0, 6.0], mask=[False, False]) for _ in range(L)] for _ in range(B)]
    rows[int(rng.integers(B))][int(rng.integers(L))].mask[int(rng.integers(2))] = True
    depth = int(rng.integers(3))
    given = [rows, [np.ma.stack(series) for series in rows], np.ma.stack([np.ma.stack(s) for s in rows])][depth]
    times = np.arange(float(L))
    calls: list[Callable[[], Any]] = [
        lambda: IrregularBatch.build(given, times),
        lambda: Panel.from_array(given, times),
        lambda: Panel.from_list([(times, one) for one in given]),
        lambda: IrregularBatch.from_series([(times, one) for one in given]),
    ]
    which = int(rng.integers(len(calls)))
    refused(calls[which], True, f"masked arrays {3 - depth} deep, call {which}")


def _begin(times: Array, start: Any, i: int) -> Any:
    """What is subtracted from the times of a series."""
    if start is None:
        return times[0].item()
    return start if isinstance(start, int | float) else start[i].item()


def _odd_layout(values: Array, rng: np.random.Generator) -> Array:
    """The same shape in another type of number, or lying in memory in another way."""
    forms: list[Callable[[Array], Array]] = [
        lambda x: x.astype(np.float32), lambda x: x.astype(np.float16), lambda x: x.astype(">f8"), np.asfortranarray,
        lambda x: x[:, ::-1], lambda x: x.astype(np.int64), lambda x: x > 0, lambda x: np.abs(x).astype(np.uint16),
        lambda x: np.repeat(x, 2, axis=2)[..., ::2], lambda x: x.astype(np.longdouble), lambda x: x,
    ]  # fmt: skip
    return forms[int(rng.integers(len(forms)))](values)


def as_given(array: Array, rng: np.random.Generator) -> Any:
    """An array in a container."""
    form = int(rng.integers(3))
    if form == 0 and array.size and array.dtype != np.longdouble:
        return array.tolist()
    if form == 1 and array.dtype.kind in "fib" and array.dtype.itemsize <= 8:
        return torch.tensor(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("=")))
    return array


# garbage

ATOMS: list[Any] = [
    None, NAN, math.inf, -math.inf, 0, 1, -1, 2, 2.5, 10**400, 2**63, 2**64, -(2**63), 1e39, 1e308, True, 1j, "", "a",
    "1.5", "nan", b"b", Decimal("1.5"), Decimal("sNaN"), Fraction(1, 3), pd.NA, pd.NaT, pd.Timestamp("2020"),
    pd.Timestamp("2020", tz="Asia/Kathmandu"), datetime(2020, 1, 1), timedelta(1), np.datetime64("2020"),
    np.datetime64("NaT"), np.timedelta64(3, "s"), np.float16(1), np.longdouble(1), np.uint64(2**63), np.bool_(True),
    np.str_("x"), object(), len, int, Ellipsis, slice(None), range(3), float, torch.float32, np.float32, "float64",
    "mean", "s", "series", {}, set(), {1, 2}, {"a": 1}, frozenset(), (), [], [[]], [[[]]], [()], np.ma.masked,
]  # fmt: skip
DTYPES = ["f2", "f4", "f8", "g", "c8", "i1", "i8", "u1", "u8", ">f8", ">i4", "?", "M8[s]", "M8[Y]", "m8[s]", "m8", "U3",
          "S3", "O", "V4", "i4,f8"]  # fmt: skip


def garbage(rng: np.random.Generator, depth: int = 0) -> Any:
    """Anything that somebody might pass."""
    kind = int(rng.integers(8 if depth < 3 else 2))
    if kind < 2:
        return ATOMS[int(rng.integers(len(ATOMS)))]
    if kind < 5:
        return _odd_array(rng, depth)
    few = [garbage(rng, depth + 1) for _ in range(int(rng.integers(0, 4)))]
    if kind == 5:
        few = few[:1] * len(few)  # all the same: more often an array of something
    forms: list[Callable[[list[Any]], Any]] = [list, tuple, iter, lambda x: dict(enumerate(x)), _objects]
    return forms[int(rng.choice(len(forms), p=[0.6, 0.2, 0.05, 0.05, 0.1]))](few)


def _objects(few: list[Any]) -> Array:
    array = np.empty(len(few), object)
    for n, one in enumerate(few):
        array[n] = one
    return array


def _odd_array(rng: np.random.Generator, depth: int) -> Any:
    """An array, tensor or table of some type and shape, mostly with the sides that the other arguments have."""
    sides = [SIDES, SIDES[:2], SIDES[:1], SIDES[1:2], SIDES[1:], tuple(rng.integers(0, 4, int(rng.integers(0, 5))))]
    shape = tuple(int(side) for side in sides[int(rng.integers(len(sides)))])
    dtype = DTYPES[int(rng.integers(len(DTYPES)))]
    if dtype == "O":
        return np.reshape(_objects([garbage(rng, depth + 2) for _ in range(math.prod(shape))]), shape)
    whole = rng.integers(-3 if rng.random() < 0.3 else 0, 4, shape)
    with np.errstate(all="ignore"):
        array = whole.astype(dtype)
        if array.dtype.kind == "f" and array.size:
            array.reshape(-1)[int(rng.integers(array.size))] = float(rng.choice([NAN, math.inf, 1e308, 0.0]))
    return _dressed(array, rng)


def _dressed(array: Array, rng: np.random.Generator) -> Any:
    """An array as numpy, torch or pandas has it."""
    form = int(rng.integers(9))
    if form == 0 and array.dtype.kind in "fiubc" and array.dtype.itemsize <= 8 and array.dtype.isnative:
        return _odd_tensor(torch.tensor(array), rng)
    if form == 1:
        return np.ma.array(array, mask=rng.random(array.shape) < 0.5)
    if form in (2, 3) and array.ndim in (1, 2) and array.dtype.kind in "fiubcMUS" and array.dtype.char not in "eg":
        native = array.astype(array.dtype.newbyteorder("="))
        return pd.Series(native) if array.ndim == 1 else pd.DataFrame(native)
    if form == 4:
        return array.tolist()
    if form == 5 and array.ndim:
        return array[::-1]
    return array


def _odd_tensor(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """A tensor, sometimes of a kind that few expect."""
    forms: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda t: t, lambda t: t.float().to_sparse() if t.dim() else t, lambda t: t.to("meta"),
        lambda t: t.float().requires_grad_(), lambda t: t.bfloat16(), lambda t: t.to(torch.uint16),
        lambda t: torch.nn.Parameter(t.float()), lambda t: t.to(torch.float8_e4m3fn), lambda t: t.expand(3, *t.shape),
    ]  # fmt: skip
    if tensor.is_complex():
        return tensor
    return forms[int(rng.integers(len(forms)))](tensor)


SIDES = (2, 3, 1)  # series, rows and channels of the sound arguments
VALUES = np.arange(6.0).reshape(SIDES)
TIMES = np.arange(6.0).reshape(SIDES[:2])
TABLE = pd.DataFrame({"id": ["b", "a", "b", "a"], "time": [3.0, 1.5, 1.0, 0.5], "value": [1.0, 2.0, 3.0, 4.0]})


def _calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """What takes arguments of many kinds, with sound ones."""
    batch = IrregularBatch.build(VALUES, TIMES, query_times=TIMES, targets=torch.zeros(2))
    panel = Panel.from_list([(t, v) for t, v in zip(TIMES, VALUES, strict=True)], ids=["a", "b"])
    more = {"ids": ["a", "b"], "channels": ["x"], "unit": "h", "static": None, "on_duplicate": "mean", "dtype": "f4"}
    extra = {"observed": VALUES > 0, "lengths": [3, 2], "t0": 0.0, "query_times": TIMES, "static": VALUES[:, 0]}
    flat = {"times": TIMES.ravel(), "values": VALUES.reshape(-1, 1), "lengths": [3, 3], "observed": None}
    flat |= {"first": [0, 3], "ids": ["a", "b"], "channels": ["x"], "unit": "h", "origin": [0, 0], "static": None}
    rows = {"id": "id", "time": "time", "value": "value", "channels": None}
    pair = [(t, v) for t, v in zip(TIMES, VALUES, strict=True)]
    return {
        "build": (IrregularBatch.build, {"values": VALUES, "times": TIMES, **extra, "dtype": torch.float32}),
        "targets": (IrregularBatch.build, {"values": VALUES, "times": TIMES, "targets": 0, "targets_observed": None}),
        "from_series": (IrregularBatch.from_series, {"series": pair}),
        "one of from_series": (lambda t, v: IrregularBatch.from_series([(t, v)]), {"t": TIMES[0], "v": VALUES[0]}),
        "with_queries": (batch.with_queries, {"query_times": TIMES}),
        "padded": (batch.padded, {"rows": 5, "queries": 5, "targets": "series"}),
        "some of a batch": (batch.__getitem__, {"series": [0]}),
        "from_list": (Panel.from_list, {"series": pair, **more}),
        "one of from_list": (lambda t, v: Panel.from_list([(t, v)]), {"t": TIMES[0], "v": VALUES[0]}),
        "from_array": (Panel.from_array, {"values": VALUES, "times": TIMES, "lengths": [3, 2], **more}),
        "from_long": (Panel.from_long, {"table": TABLE, **rows, "unit": "h", "static": None, "on_duplicate": "mean"}),
        "Panel.build": (Panel.build, {**flat, "scale": 1.0}),
        "Panel.batch": (panel.batch, {"index": [0], "dtype": torch.float32}),
        "some of a panel": (panel.__getitem__, {"index": [0]}),
        "align": (panel.align, {"target": [0, 1]}),
        "with_values": (panel.with_values, {"values": panel.values}),
        "cut": (panel.cut, {"length": 2}),
    }  # fmt: skip


CALLS = _calls()


def garbage_case(rng: np.random.Generator) -> None:
    """Garbage for one or two arguments of something that takes much."""
    name = list(CALLS)[int(rng.integers(len(CALLS)))]
    call, sound = CALLS[name]
    spoilt = rng.choice(list(sound), min(len(sound), 1 if rng.random() < 0.7 else 2), replace=False)
    given = {key: garbage(rng) if key in spoilt else value for key, value in sound.items()}
    what = f"{name} of {', '.join(f'{key}={_shown(given[key])}' for key in spoilt)}"
    found = refused(lambda: call(*given.values()) if "some of" in name else call(**given), None, what)
    if isinstance(found, IrregularBatch):
        sane(found, what)
    if isinstance(found, Panel):
        sane_panel(found, what)


def _shown(value: Any) -> str:
    try:
        return f"{type(value).__name__} {value!r}"[:150].replace("\n", " ")
    except Exception:
        return type(value).__name__


def sane_panel(panel: Panel, what: str) -> None:
    """What holds for every panel, whatever it was made of."""
    repr(panel)
    for i in range(len(panel)):
        stamps, values = panel[i]
        if len(stamps) != len(values) or not np.isfinite(stamps).all() or np.isinf(values).any():
            raise Wrong(f"{what}: series {i} of the panel is {stamps.tolist()}, {values.tolist()}")
        if (stamps[1:] < stamps[:-1]).any():
            raise Wrong(f"{what}: series {i} of the panel goes back in time")
    batch = refused(panel.batch, None, f"a batch of {what}")
    if batch is not None:
        sane(batch, what)
