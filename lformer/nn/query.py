"""Rows that only read: query times merged into a series, and their answers taken out again.

A query is put right after the latest observed row that is not later than it. It reads the memory of that row, faded
over the interval between them, and writes nothing, so no other answer depends on it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lformer.batch import IrregularBatch
from lformer.nn.predictor import Answer


def check_answer(answer: Answer, batch: IrregularBatch) -> None:
    """Refuse a batch with query times to a model that answers elsewhere, and one without to a model that needs them."""
    if (answer == "query") != (batch.query_times is not None):
        raise ValueError(
            f"this model answers per {answer}, and the batch "
            + ("has no query_times" if batch.query_times is None else "asks at query_times")
            + '. Build the model with answer="query" exactly when batches carry query_times.'
        )


def rows_until(times: Tensor, lengths: Tensor, query_times: Tensor) -> Tensor:
    """(B, L), (B,), (B, Q) -> (B, Q), how many valid rows are not later than each query."""
    return torch.searchsorted(_padding_last(times, lengths), query_times.contiguous(), right=True)


class Merged(NamedTuple):
    """Observed rows and queries in order of time, padding last."""

    order: Tensor  # (B, L + Q) which of [rows, queries] stands at each place
    deltas: Tensor  # (B, L + Q) interval since the latest observed row
    is_query: Tensor  # (B, L + Q) bool, True at queries
    lengths: Tensor  # (B,) valid rows plus queries
    place: Tensor  # (B, Q) where each query went
    ahead: Tensor | None = None  # (B, L + Q) interval to the next observed row, if somebody asked for it

    def arrange(self, rows: Tensor, queries: Tensor) -> Tensor:
        """(B, L, D), (B, Q, D) -> (B, L + Q, D) in merged order."""
        both = torch.cat([rows, queries], dim=1)
        return both.gather(1, self.order[..., None].expand_as(both))

    def answers(self, x: Tensor) -> Tensor:
        """(B, L + Q, D) -> (B, Q, D), in the order in which the queries were given."""
        return x.gather(1, self.place[..., None].expand(-1, -1, x.shape[2]))


def merge(
    times: Tensor,
    deltas: Tensor,
    lengths: Tensor,
    query_times: Tensor,
    last_time: Tensor | None = None,
    ahead: bool = False,
) -> Merged:
    """(B, L), (B, L), (B,), (B, Q) -> Merged.

    Args:
        times: (B, L) of the rows.
        deltas: (B, L) of the rows, the first interval filled in.
        lengths: (B,) valid rows.
        query_times: (B, Q), in any order.
        last_time: (B,) of the row before the first, if the series is continued; NaN where there is none. Before any
            row at all a query reads the empty memory, over no interval.
        ahead: also find the intervals to the next rows.
    """
    L, Q = times.shape[1], query_times.shape[1]
    clock = _padding_last(times, lengths)
    order = torch.argsort(torch.cat([clock, query_times], dim=1), dim=1, stable=True)  # rows before queries on ties
    place = torch.argsort(order, dim=1)[:, L:]

    before = query_times.new_full((times.shape[0], 1), torch.nan) if last_time is None else last_time[:, None]
    latest = torch.cat([before.to(clock.dtype), clock], dim=1).gather(1, rows_until(times, lengths, query_times))
    since = torch.nan_to_num(query_times - latest, nan=0.0)
    is_query = torch.arange(L + Q, device=times.device).expand(times.shape[0], -1) >= L
    return Merged(
        order=order,
        deltas=torch.cat([deltas, since.to(deltas.dtype)], dim=1).gather(1, order),
        is_query=is_query.gather(1, order),
        lengths=lengths + Q,
        place=place,
        ahead=_to_next(clock, deltas, query_times).gather(1, order) if ahead else None,
    )


def _to_next(clock: Tensor, deltas: Tensor, query_times: Tensor) -> Tensor:
    """(B, L), (B, L), (B, Q) -> (B, L + Q), from each row, then from each query, to the next row.

    The last row, which has none, is given the interval of the first; a query behind it reads nothing, over no interval.
    """
    coming = torch.cat([clock, clock.new_full((clock.shape[0], 1), torch.inf)], dim=1)
    rows = torch.where(torch.isfinite(coming[:, 1:]), coming[:, 1:] - clock, deltas[:, :1].to(clock.dtype))
    rows = torch.where(torch.isfinite(clock), rows, 0)  # padding
    after = coming.gather(1, torch.searchsorted(clock, query_times.contiguous(), right=True))
    queries = torch.where(torch.isfinite(after), after - query_times, 0)
    return torch.cat([rows, queries], dim=1).to(deltas.dtype)


def _padding_last(times: Tensor, lengths: Tensor) -> Tensor:
    """(B, L), (B,) -> (B, L), non-decreasing still, infinitely late on padding."""
    valid = torch.arange(times.shape[1], device=times.device) < lengths[:, None]
    return torch.where(valid, times, torch.inf).contiguous()
