"""Queries as rows that only read: query times are merged into a series, and their outputs are extracted again.

A query comes directly after the latest row that is not later than it. It reads the memory after that row, faded over
the interval between them, and writes nothing, so it does not affect other predictions.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lformer.batch import IrregularBatch
from lformer.nn.predictor import Answer


def check_answer(answer: Answer, batch: IrregularBatch) -> None:
    """Raise if a batch has query times exactly when the model does not predict at queries."""
    if (answer == "query") != (batch.query_times is not None):
        raise ValueError(
            f"this model predicts per {answer}, but the batch "
            + ("has no query_times" if batch.query_times is None else "has query_times")
            + '. Build the model with answer="query" exactly when batches have query_times.'
        )


def rows_until(times: Tensor, lengths: Tensor, query_times: Tensor) -> Tensor:
    """(B, L), (B,), (B, Q) -> (B, Q), number of valid rows that are not later than each query"""
    return torch.searchsorted(_padding_last(times, lengths), query_times.contiguous(), right=True)


class Merged(NamedTuple):
    """Rows and queries in order of time, padding last."""

    order: Tensor  # (B, L + Q) index into [rows, queries] at each position
    deltas: Tensor  # (B, L + Q) interval since the latest observed row
    is_query: Tensor  # (B, L + Q) bool, True at queries
    lengths: Tensor  # (B,) valid rows plus queries
    place: Tensor  # (B, Q) position of each query
    ahead: Tensor | None = None  # (B, L + Q) interval to the next observed row, if requested

    def arrange(self, rows: Tensor, queries: Tensor) -> Tensor:
        """(B, L, D), (B, Q, D) -> (B, L + Q, D) in merged order"""
        both = torch.cat([rows, queries], dim=1)
        return both.gather(1, self.order[..., None].expand_as(both))

    def answers(self, x: Tensor) -> Tensor:
        """(B, L + Q, D) -> (B, Q, D), in the original order of the queries"""
        return x.gather(1, self.place[..., None].expand(-1, -1, x.shape[2]))


def merge(
    times: Tensor,
    deltas: Tensor,
    lengths: Tensor,
    query_times: Tensor,
    last_time: Tensor | None = None,
    ahead: bool = False,
) -> Merged:
    """(B, L), (B, L), (B,), (B, Q) -> Merged

    Args:
        times: (B, L) of the rows.
        deltas: (B, L) of the rows, with the first interval filled in.
        lengths: (B,) number of valid rows.
        query_times: (B, Q), in any order.
        last_time: (B,) time of the row before the first, if the series is continued; NaN where there is none. A query
            before any row reads the empty memory, with an interval of 0.
        ahead: whether to also compute the intervals to the next rows.
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
    """(B, L), (B, L), (B, Q) -> (B, L + Q), interval from each row, then from each query, to the next row

    The last row, which has no next row, gets the interval of the first; a query after it reads nothing, with interval
    0.
    """
    coming = torch.cat([clock, clock.new_full((clock.shape[0], 1), torch.inf)], dim=1)
    rows = torch.where(torch.isfinite(coming[:, 1:]), coming[:, 1:] - clock, deltas[:, :1].to(clock.dtype))
    rows = torch.where(torch.isfinite(clock), rows, 0)  # padding
    after = coming.gather(1, torch.searchsorted(clock, query_times.contiguous(), right=True))
    queries = torch.where(torch.isfinite(after), after - query_times, 0)
    return torch.cat([rows, queries], dim=1).to(deltas.dtype)


def _padding_last(times: Tensor, lengths: Tensor) -> Tensor:
    """(B, L), (B,) -> (B, L), still non-decreasing, infinite on padding"""
    valid = torch.arange(times.shape[1], device=times.device) < lengths[:, None]
    return torch.where(valid, times, torch.inf).contiguous()
