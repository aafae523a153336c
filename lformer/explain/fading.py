"""half_life: how long an observation stays in memory, measured on series, per layer and head."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lformer.batch import IrregularBatch
from lformer.doctor.words import readable
from lformer.estimators.asking import matched, unasked
from lformer.estimators.base import LFormerEstimator, members_of
from lformer.evaluate import as_precise
from lformer.explain.plots import require_matplotlib
from lformer.panel import Array

if TYPE_CHECKING:
    import pandas as pd

COLOUR, PALE = "#00798c", "#777777"


def half_life(estimator: LFormerEstimator, X: Any) -> pd.DataFrame:
    """Measure how long it takes until the weight of an observation in memory has halved.

    An observation enters the memory of a head with its row. Each later row multiplies the memory by its gate, and the
    half-life is the time until the product of these gates is 1/2. Between rows it is interpolated in time, over which a
    gate fades at a constant rate. If a series ends earlier, the half-life is *not reached*: it is only known to be
    longer than the remaining time, and the quartiles take this into account (Kaplan-Meier estimate).

    Args:
        estimator: a fitted estimator.
        X: series as in `predict`.

    Returns:
        One row per layer and head, counted from 1, and per member of an ensemble: `median`, `lower` and `upper`
        quartile in the unit of the times, which is also in `attrs["unit"]`, or inf if too few observations fade for it
        to be reached; `not_reached`, the share of observations whose series ended before; and `observations`, the
        number of rows of X with an observation that were followed.
    """
    import pandas as pd

    panel = matched(estimator, X)
    models = members_of(estimator.model_)
    rows: list[dict[str, Any]] = []
    for member, model in enumerate(models):
        found: list[list[tuple[Array, Array]]] = [[] for _ in range(model.config.depth * model.config.heads)]
        for batch in unasked(estimator, panel).batches(estimator.batch_size):
            batch = as_precise(batch, model)
            with torch.no_grad():
                layers = model.decays(batch)
            for kept, decay in zip(found, _each_head(layers), strict=True):
                kept.append(durations(decay, batch))
        for n, kept in enumerate(found):
            time, reached = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
            mark = {"member": member + 1} if len(models) > 1 else {}
            rows.append(mark | _summary(n // model.config.heads + 1, n % model.config.heads + 1, time, reached))
    table = pd.DataFrame(rows)
    table.attrs["unit"] = panel.unit
    return table


def durations(decay: Tensor, batch: IrregularBatch) -> tuple[Array, Array]:
    """How long the observations of a batch keep more than half of their weight, and whether it fell to half at all.

    Args:
        decay: (B, L), `-log g` of one head.
        batch: the batch.

    Returns:
        (N,) times and (N,) bool, for the rows that have an observation and enter the memory. If half is not reached,
        the time is that until the last row.
    """
    total, times = decay.double().cumsum(dim=1).contiguous(), batch.times.double()
    half = total + math.log(2)
    after = torch.searchsorted(total, half)  # (B, L), the first row at which half or less is left
    reached = after < batch.lengths[:, None]
    upper = after.clamp(max=max(total.shape[1] - 1, 0))
    before = (upper - 1).clamp(min=0)
    low, high = total.gather(1, before), total.gather(1, upper)
    share = torch.where(high > low, (half - low) / torch.where(high > low, high - low, 1), 1)
    crossing = torch.lerp(times.gather(1, before), times.gather(1, upper), share)
    last = times.gather(1, (batch.lengths[:, None] - 1).clamp(min=0)) if times.shape[1] else times
    entered = batch.valid & (decay > 0) & batch.observed.flatten(2).any(dim=2)
    lasted = torch.where(reached, crossing, last) - times
    return lasted[entered].numpy(), reached[entered].numpy()


def quantiles(time: Array, reached: Array, shares: tuple[float, ...]) -> list[float]:
    """Kaplan-Meier quantiles: the earliest time by which each share has been reached; inf if it never is.

    Args:
        time: (N,) time until it was reached, or until the end of observation (censoring).
        reached: (N,) bool, whether it was reached.
        shares: such as 0.5 for the median.

    Example:
        >>> quantiles(np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, False, True, True]), (0.25, 0.5, 0.95))
        [1.0, 2.0, 4.0]
    """
    event, count = np.unique(time[reached], return_counts=True)
    watched = len(time) - np.searchsorted(np.sort(time), event)  # neither reached nor censored before
    left = np.cumprod(1 - count / watched)
    enough = [np.flatnonzero(left <= 1 - share + 1e-12) for share in shares]
    return [float(event[found[0]]) if len(found) else math.inf for found in enough]


def plot_half_life(table: pd.DataFrame) -> Any:
    """Plot median and quartiles of each head, with an arrow if the upper quartile is not reached.

    Args:
        table: the result of `half_life`.

    Returns:
        The matplotlib figure; requires the extra `plots`.
    """
    plt = require_matplotlib()
    quartiles = table[["lower", "median", "upper"]].to_numpy()
    longest = float(quartiles[np.isfinite(quartiles)].max(initial=0.0)) or 1.0
    size, unit = readable(longest, table.attrs.get("unit", ""))
    end = 1.15 * longest / size
    figure, axis = plt.subplots(figsize=(6.4, 0.7 + 0.32 * len(table)), layout="constrained")
    for y, (low, middle, high) in enumerate(quartiles / size):
        if not math.isfinite(low):
            axis.annotate("not reached", (0.01 * end, y), va="center", color=PALE)
            continue
        axis.plot([low, min(high, end)], [y, y], color=COLOUR, linewidth=4, solid_capstyle="round", alpha=0.35)
        if not math.isfinite(high):
            axis.annotate("", (1.04 * end, y), (end, y), arrowprops={"arrowstyle": "->", "color": COLOUR})
        if math.isfinite(middle):
            axis.plot([middle], [y], "o", color=COLOUR)
    axis.set_yticks(range(len(table)), [head_name(row) for row in table.to_dict("records")])
    axis.invert_yaxis()
    axis.set_xlim(0, 1.06 * end)
    axis.set_xlabel(f"half-life ({unit})" if unit else "half-life")
    return figure


def head_name(row: dict[Any, Any]) -> str:
    """The name of a head, from a row of the table."""
    member = f"member {row['member']}, " if "member" in row else ""
    return f"{member}layer {row['layer']}, head {row['head']}"


def _each_head(layers: list[Tensor]) -> list[Tensor]:
    """[(B, L, H)] -> [(B, L)], the heads of the first layer first."""
    return [head for layer in layers for head in layer.unbind(dim=2)]


def _summary(layer: int, head: int, time: Array, reached: Array) -> dict[str, Any]:
    if not len(time):
        raise ValueError("X has no observation that enters a memory, so there is no half-life to measure.")
    lower, median, upper = quantiles(time, reached, (0.25, 0.5, 0.75))
    return {
        "layer": layer, "head": head, "median": median, "lower": lower, "upper": upper,
        "not_reached": float(1 - reached.mean()), "observations": len(time),
    }  # fmt: skip
