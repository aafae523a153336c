"""From observed intervals to decay: the liquid gate in log space (paper IV-A and Algorithm 1).

A gate is never formed here. What travels is its exponent, `decay = -log g >= 0`, because sums of exponents are
exact where products of gates underflow.
"""

from typing import Literal, get_args, overload

import torch
from torch import Tensor

from lformer.ops import checks

GateNorm = Literal["sequence", "prefix", "none"]
FADED = 1e3  # decay after which nothing is left: exp(-1000) is 0, in float64 too


def shift(gate: Tensor, previous: Tensor | None = None, is_query: Tensor | None = None) -> Tensor:
    """The gate value of the latest row that wrote before each row (Algorithm 1, line 3).

    Args:
        gate: (B, L, H) projected gate values `x̃`.
        previous: (B, H) gate value before the first row; zeros if None, as in the paper.
        is_query: (B, L) bool, rows that only read and are therefore nobody's predecessor.

    Returns:
        (B, L, H) `x̃_prev`.
    """
    B, _, H = gate.shape
    before = gate.new_zeros(B, 1, H) if previous is None else previous[:, None].to(gate.dtype)
    shifted = torch.cat([before, gate], dim=1)  # entry n is the gate of row n - 1
    if is_query is None:
        return shifted[:, :-1]
    return shifted.gather(1, rows_before(is_query)[..., None].expand_as(gate))


def rows_before(is_query: Tensor) -> Tensor:
    """(B, L) bool -> (B, L) one-based position of the latest writing row before each row, 0 where there is none."""
    position = torch.arange(1, is_query.shape[1] + 1, device=is_query.device).expand_as(is_query)
    written = position.masked_fill(is_query, 0).cummax(dim=1).values
    return torch.cat([torch.zeros_like(written[:, :1]), written[:, :-1]], dim=1)


def liquid_decay(
    gate: Tensor, deltas: Tensor, mu: Tensor, previous: Tensor | None = None, is_query: Tensor | None = None
) -> Tensor:
    """Unnormalised decay `u = delta * (mu * x̃_prev + (1 - mu) * x̃)` (Algorithm 1, lines 3-5).

    Args:
        gate: (B, L, H) projected gate values `x̃` in (0, 1), one per head.
        deltas: (B, L) intervals since the latest writing row; 0 on padding and on ties.
        mu: (H,) or (1,) weight of the earlier endpoint; 0.5 is the trapezoidal rule.
        previous: (B, H) gate value just before the first row, when a series is continued; zeros if None.
        is_query: (B, L) bool, rows that only read (queries); they are nobody's earlier endpoint.

    Returns:
        (B, L, H) decay `u >= 0`, in float32 or wider.

    Example:
        >>> gate, deltas = torch.rand(2, 5, 4), torch.rand(2, 5)
        >>> liquid_decay(gate, deltas, mu=torch.full((4,), 0.5)).shape
        torch.Size([2, 5, 4])
    """
    checks.gate_shapes(gate, deltas, mu, previous, is_query)
    checks.deltas_valid(deltas)
    dtype = checks.wide_dtype(gate, deltas, previous)
    gate, deltas, mu = gate.to(dtype), deltas.to(dtype), mu.to(dtype)
    rate = torch.lerp(gate, shift(gate, previous, is_query), mu)  # x̄, interpolation
    return deltas[..., None] * rate


@overload
def normalise_decay(
    u: Tensor,
    norm: GateNorm,
    total: Tensor | None = None,
    return_total: Literal[False] = False,
    is_query: Tensor | None = None,
) -> Tensor: ...
@overload
def normalise_decay(
    u: Tensor,
    norm: GateNorm,
    total: Tensor | None = None,
    *,
    return_total: Literal[True],
    is_query: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
def normalise_decay(
    u: Tensor,
    norm: GateNorm,
    total: Tensor | None = None,
    return_total: bool = False,
    is_query: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Share out the decay budget of a series (Algorithm 1, lines 6-11).

    With `U_n` the running sum of `u` up to row n and `U` the sum over the whole series:

        "sequence"   û_n = u_n / U     total decay is 1; the gate reads the whole series (the paper's stabilised mode)
        "prefix"     û_n = u_n / U_n   gates in [1/e, 1]; nothing ahead is read, so it can stream
        "none"       û_n = u_n         the vanilla mode, in absolute time

    The first two do not depend on the unit of time. Rows with `u = 0` (padding, ties) take no share. Where the
    sum itself is 0 the result is 0, with gradient 0.

    Args:
        u: (B, L, H) output of `liquid_decay`.
        norm: one of the three names above.
        total: (B, H) sum of `u` over the rows before the first one, when a series is continued.
        return_total: also return that sum after the last row.
        is_query: (B, L) bool, rows that only read: they take no share in any sum. The decay of such a row is that of
            its own reading, from the latest writing row to it.

    Returns:
        (B, L, H) `û`, and (B, H) the new total if asked for. Each has the dtype of what was given: a total in float64
        goes on in float64, as the sum over a long stream must, while `û` stays in float32.
    """
    if norm not in get_args(GateNorm):
        raise ValueError(f"gate_norm must be one of {', '.join(map(repr, get_args(GateNorm)))}; got {norm!r}.")
    checks.total_shape(u, total, is_query)
    if norm == "sequence" and total is not None:
        raise ValueError(
            'norm="sequence" divides by the sum over the whole series, so a series cannot be continued from a running '
            'total. Normalise the whole series at once, or use norm="prefix", which only looks back.'
        )
    u = u.to(checks.wide_dtype(u))
    writes = u if is_query is None else u.masked_fill(is_query[..., None], 0)
    after = writes.sum(dim=1)
    if total is not None:
        after = total + after

    if norm != "none":  # which shares nothing out
        checks.total_fits(after)
    if norm == "sequence":
        decay = share(u, after[:, None])
    elif norm == "prefix":
        running = writes.cumsum(dim=1)
        if total is not None:
            running = total[:, None] + running
        # A reading row is measured against the past and itself, as a writing row in its place would be.
        decay = share(u, running if is_query is None else running + (u - writes)).to(u.dtype)
    else:
        decay = u
    return (decay, after) if return_total else decay


def share(part: Tensor, whole: Tensor) -> Tensor:
    """`part / whole` where there is anything to share, else 0. No epsilon, so the time unit cancels.

    A reading row takes no part in the sum, which may be far less than its own `u`. Where it is, nothing is left to
    read, and the share stops at `FADED`: without that bound its gradient, `part / whole²`, would overflow.
    """
    something = whole >= torch.finfo(whole.dtype).tiny  # below it 1 / whole overflows
    whole = torch.maximum(whole, part.detach() / FADED)
    return torch.where(something, part / torch.where(something, whole, 1.0), 0.0)
