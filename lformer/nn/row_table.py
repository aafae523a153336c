"""What trees are given of a row: the values of each channel at that row and at rows nearby, and static covariates.

Between its observations a channel follows the straight line; before the first and after the last it stays constant. A
channel without observations is NaN, which trees can read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lformer.nn.known import follow, look_ahead, nothing_known
from lformer.nn.neighbours import Latest, on_line

PLACES = (-8, -4, -2, -1, 0, 1, 2, 4, 8)  # rows away; beyond the ends of a series, its first or last row


def row_table_width(channels: int, statics: int) -> int:
    """W of a table.

    Example:
        >>> row_table_width(3, 1)
        31
    """
    return (len(PLACES) + 1) * channels + statics


def row_table(values: Tensor, observed: Tensor, times: Tensor, lengths: Tensor, static: Tensor | None) -> Tensor:
    """Features of each row for `Trees`.

    Args:
        values, observed: (B, L, C), values scaled and 0 where nothing was observed.
        times: (B, L).
        lengths: (B,) valid rows.
        static: (B, S) static covariates, if there are any.

    Returns:
        (B, L, W): per channel the values at `PLACES` and the time to the nearest observation; then the covariates.
    """
    B, L, C = values.shape
    now = follow(values, observed, times, nothing_known(B, C, values, times.dtype)).after_rows()
    ahead = look_ahead(values, observed, times).after_rows()
    line = on_line(Latest(now.latest, now.time), ahead, times)
    begun, goes_on = torch.isfinite(now.time), torch.isfinite(ahead.time)
    constant = torch.where(begun, now.latest, torch.where(goes_on, ahead.value, torch.nan))
    line = torch.where(torch.isnan(line), constant, line)
    row = torch.arange(L, device=times.device)
    rows = torch.stack([row + place for place in PLACES], dim=1)  # on the device, for CUDA graphs
    rows = torch.minimum(rows.clamp(min=0), (lengths - 1).clamp(min=0)[:, None, None]).flatten(1)  # (B, L · places)
    nearby = line.gather(1, rows[..., None].expand(-1, -1, C)).unflatten(1, (L, len(PLACES))).flatten(2)
    apart = torch.minimum(times[..., None] - now.time, ahead.time - times[..., None])
    parts = [nearby, torch.where(torch.isfinite(apart), apart, torch.nan).to(values.dtype)]
    if static is not None:
        parts.append(static[:, None].expand(-1, L, -1))
    return torch.cat(parts, dim=-1)
