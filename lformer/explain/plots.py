"""matplotlib, imported on demand, and the plot of one explained series. Requires the extra `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

AGAINST, FOR, LINE = "#2f6fb5", "#d1495b", "#b9b9b9"


def require_matplotlib() -> Any:
    """pyplot as the user has configured it, or an error that says what to install."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("figures need matplotlib; install it with: pip install 'lformer[plots]'") from error
    return plt


def plot_record(table: pd.DataFrame, title: str, channels: int) -> Any:
    """Plot one axis per channel, those with the largest contributions first, with markers sized by contribution.

    Args:
        table: time, channel, value, contribution of one series.
        title: title of the figure.
        channels: maximum number of channels.

    Returns:
        The matplotlib figure.
    """
    plt = require_matplotlib()
    sizes = table["contribution"].abs().groupby(table["channel"]).sum().sort_values(ascending=False)
    names = sizes.index[:channels].tolist()
    largest = float(table["contribution"].abs().max()) or 1.0
    figure, axes = plt.subplots(
        len(names), 1, figsize=(7.2, 0.9 + 1.15 * len(names)), sharex=True, squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[:, 0], names, strict=True):
        one = table[table["channel"] == name]
        share = one["contribution"].to_numpy() / largest
        axis.plot(one["time"], one["value"], color=LINE, linewidth=1, zorder=1)
        for mine, colour, marker in ((share >= 0, FOR, "^"), (share < 0, AGAINST, "v")):
            points = one[mine]
            size = 12 + 90 * np.abs(share[mine])
            axis.scatter(points["time"], points["value"], s=size, c=colour, marker=marker, zorder=2, linewidths=0)
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize="medium")
    if len(names):
        figure.autofmt_xdate(rotation=0, ha="center")
    return figure
