"""What the operator refuses, and how it says so.

Shapes are checked on every call. Values are read only in plain eager calls: reading them would break a compiled
graph, a captured graph or a function transform, and would make a GPU wait, so kernels never check.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

LARGEST_DECAY = 2.0**100  # sums of these still fit into float32, and exp(-50) is already nothing beside 1

_trusting: ContextVar[bool] = ContextVar("trusting", default=False)


@contextmanager
def skip_value_checks() -> Iterator[None]:
    """Inside, values are not looked at: for batches that were checked when they were made.

    On a GPU every look waits for all work before it. Whoever uses this watches the result, as the trainer its loss.
    """
    before = _trusting.set(True)
    try:
        yield
    finally:
        _trusting.reset(before)


def readable(*tensors: Tensor) -> bool:
    """True if the values of these tensors are to be looked at here: a plain eager call on real data."""
    if torch.compiler.is_compiling() or torch.compiler.is_exporting() or _trusting.get():
        return False
    # torch.func has no public question for "am I inside vmap or grad"; this is the one its own checks ask.
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    if any(t.is_meta or type(t) not in (Tensor, torch.nn.Parameter) for t in tensors):
        return False
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def exporting() -> bool:
    """True inside `torch.export`, where a length may be a symbol. PyTorch 2.11 says so inside `torch.compile` too."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def wide_dtype(*tensors: Tensor | None) -> torch.dtype:
    """The dtype sums and exponents are kept in: float32, or float64 if any input is."""
    return torch.float64 if any(t is not None and t.dtype == torch.float64 for t in tensors) else torch.float32


def exact_dtype(device: torch.device) -> torch.dtype:
    """The dtype of what grows with a series, such as running sums: float64, or float32 where a device has none."""
    return torch.float32 if device.type == "mps" else torch.float64


def first_bad(bad: Tensor) -> tuple[int, ...] | None:
    """Position of the first True entry, or None."""
    if not bool(bad.any()):
        return None
    return tuple(int(i) for i in bad.nonzero()[0])


def deltas_valid(deltas: Tensor) -> None:
    """Refuse negative or non-finite intervals, naming row and position."""
    if not readable(deltas):
        return
    where = first_bad(~((deltas >= 0) & (deltas < math.inf)))
    if where is not None:
        row, step = where
        raise ValueError(
            f"deltas must be finite and not negative; row {row} has deltas[{step}] = {float(deltas.detach()[where])}. "
            "Sort the series by time before taking differences, and give padding an interval of 0."
        )


def decay_valid(decay: Tensor) -> None:
    """Refuse negative or non-finite decays and those whose sums would overflow, naming row, position and head."""
    if not readable(decay):
        return
    where = first_bad(~((decay >= 0) & (decay <= LARGEST_DECAY)))
    if where is None:
        return
    row, step, head = where
    found = float(decay.detach()[where])
    if LARGEST_DECAY < found < math.inf:
        raise OverflowError(
            f"decay must be at most {LARGEST_DECAY:.3g}, so that its sums are finite; row {row} has "
            f"decay[{step}, {head}] = {found}. Use a larger unit of time, or normalise the decay."
        )
    raise ValueError(
        f"decay must be finite and not negative, so that every gate exp(-decay) lies in (0, 1]; row {row} has "
        f"decay[{step}, {head}] = {found}. Make it with liquid_decay and normalise_decay."
    )


def total_fits(total: Tensor) -> None:
    """Refuse a series whose decays sum to more than a float holds: nothing could be shared of an infinite sum."""
    if not readable(total):
        return
    where = first_bad(~torch.isfinite(total))
    if where is not None:
        raise OverflowError(
            f"the decays of row {where[0]} (head {where[1]}) sum to more than {_name(total.dtype)} holds, or are not "
            "numbers. Use a larger unit of time."
        )


def span_fits(decay: Tensor, dtype: torch.dtype, limit: float) -> None:
    """Refuse a non-causal series whose total decay would overflow `exp(+total)`."""
    if decay.shape[1] == 0 or not readable(decay):
        return
    total = decay.detach().sum(dim=1, dtype=dtype)
    where = first_bad(total > limit)
    if where is not None:
        raise OverflowError(
            f"row {where[0]} decays by {float(total[where]):.4g} in total (head {where[1]}), and the non-causal form "
            f"weighs its rows by exp(+total decay), which {_name(dtype)} holds up to "
            f'{limit:.4g}. Use gate_norm="sequence" (total decay 1), causal=True (its exponents are never positive), '
            "or a larger unit of time."
        )


def finite_result(result: Tensor, what: str = "the output", causes: str = "q, k or v hold") -> None:
    """Refuse to hand out inf or NaN. The sum tells in one pass; only if it is not finite is the place looked for."""
    if not readable(result) or math.isfinite(float(result.detach().sum())):
        return
    where = first_bad(~torch.isfinite(result))
    if where is not None:
        raise OverflowError(
            f"{what} is not finite at {list(where)}: {causes} inf or NaN, or their products overflow "
            f'{_name(result.dtype)}. Check the inputs; with gate_norm="none" also try gate_norm="sequence", '
            "causal=True or a larger unit of time."
        )


def moderate_result(y: Tensor) -> None:
    """Refuse a reading that is finite, but whose square would overflow in the layers after it."""
    if not readable(y) or y.numel() == 0:
        return
    y, limit = y.detach(), 1e-4 * math.sqrt(torch.finfo(wide_dtype(y)).max)
    where = first_bad(y.abs() > limit)
    if where is not None:
        raise OverflowError(
            f"row {where[1]} of series {where[0]} reads {float(y[where]):.4g} from its memory (head {where[2]}), and "
            f"the layers after it hold up to {limit:.4g}: the non-causal form weighs rows by exp(+decay). Use "
            'gate_norm="sequence" (total decay 1), causal=True, or a larger unit of time.'
        )


def row_valid(values: Tensor, delta: Tensor, batch: int, channels: int, dtype: torch.dtype) -> None:
    """Refuse one row per series that a model cannot take: other shapes, or a value that is infinite in its dtype."""
    _expect_row("values", values, (batch, channels))
    _expect_row("delta", delta, (batch,))
    if not readable(values, delta):
        return
    where = first_bad(torch.isinf(values.to(dtype)))
    if where is not None:
        raise ValueError(
            f"a value must be finite in {_name(dtype)}, or NaN where nothing was observed; values[{where[0]}, "
            f"{where[1]}] = {float(values[where])}."
        )
    bad = first_bad(~((delta >= 0) & (delta < math.inf)))
    if bad is not None:
        raise ValueError(
            f"delta must be the time since the latest row, finite and not negative; delta[{bad[0]}] = "
            f"{float(delta[bad])}."
        )


def _expect_row(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape or not tensor.is_floating_point():
        raise ValueError(
            f"{name} of a step must be floating point numbers of shape {shape}; got {tensor.dtype} {_shape(tensor)}."
        )


def gate_shapes(gate: Tensor, deltas: Tensor, mu: Tensor, previous: Tensor | None, is_query: Tensor | None) -> None:
    if gate.dim() != 3:
        raise ValueError(f"gate must have shape (B, L, H); got {_shape(gate)}.")
    B, L, H = gate.shape
    _expect("deltas", deltas, (B, L), gate, "gate")
    if mu.dim() != 1 or mu.shape[0] not in (1, H):
        raise ValueError(f"mu must have shape ({H},), one per head, or (1,); got {_shape(mu)}.")
    if previous is not None:
        _expect("previous", previous, (B, H), gate, "gate")
    if is_query is not None:
        _expect("is_query", is_query, (B, L), gate, "gate")
    _expect_floats(gate=gate, mu=mu, previous=previous)


def total_shape(u: Tensor, total: Tensor | None, is_query: Tensor | None) -> None:
    if u.dim() != 3:
        raise ValueError(f"u must have shape (B, L, H); got {_shape(u)}.")
    if total is not None:
        _expect("total", total, (u.shape[0], u.shape[2]), u, "u")
    if is_query is not None:
        _expect("is_query", is_query, (u.shape[0], u.shape[1]), u, "u")
    _expect_floats(u=u, total=total)


def attention_shapes(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor | None) -> None:
    if q.dim() != 4:
        raise ValueError(f"q must have shape (B, L, H, K); got {_shape(q)}.")
    B, L, H, K = q.shape
    _expect("k", k, (B, L, H, K), q, "q")
    if v.dim() != 4:
        raise ValueError(f"v must have shape (B, L, H, V); got {_shape(v)}.")
    V = v.shape[-1]
    _expect("v", v, (B, L, H, V), q, "q")
    _expect("decay", decay, (B, L, H), q, "q")
    if state is not None:
        _expect("state", state, (B, H, K, V), q, "q")
    _expect_floats(q=q, k=k, v=v, decay=decay, state=state)


def _expect(name: str, tensor: Tensor, shape: tuple[int, ...], other: Tensor, other_name: str) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape} beside {other_name} {_shape(other)}; got {_shape(tensor)}.")


def _expect_floats(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_floating_point():
            raise TypeError(f"{name} must be a floating point tensor; got {tensor.dtype}.")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
