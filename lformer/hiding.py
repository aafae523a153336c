"""Parts of series kept from the model: what is hidden, and what is then asked.

All rows of all series are asked for. A target counts where something was measured (`observed`); `given` says which of
these the model was also shown, so that errors on seen and unseen values can be told apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from lformer.panel import Array, Panel, without_rows
from lformer.parts import Targets

Unobserved = Literal["rows", "query"]


def hide(panel: Panel, hidden: Array, unobserved: Unobserved) -> tuple[Panel, Targets]:
    """The panel without the values of some rows, and the values of all rows as targets.

    Args:
        panel: the complete series. Unless its series lie one after the other, it is copied so first.
        hidden: (N,) bool, the rows of `panel` to hide.
        unobserved: "rows": hidden rows stay, with value 0 and nothing observed. "query": they are dropped, and answers
            are asked for at the times of all rows.

    Example:
        >>> panel = Panel.from_list([([0.0, 1.0, 2.0], [[5.0], [6.0], [7.0]])])
        >>> shown, targets = hide(panel, np.array([False, False, True]), "rows")
        >>> shown.values[:, 0].tolist(), targets.values[:, 0].tolist(), targets.given[:, 0].tolist()
        ([5.0, 6.0, 0.0], [5.0, 6.0, 7.0], [True, True, False])
        >>> shown, targets = hide(panel, np.array([False, False, True]), "query")
        >>> shown.times.tolist(), targets.times.tolist()
        ([0.0, 1.0], [0.0, 1.0, 2.0])
    """
    if hidden.shape != panel.times.shape or hidden.dtype != bool:
        raise ValueError(f"hidden must be bool, one for each of the {len(panel.times)} rows; got {hidden.shape}.")
    if unobserved not in get_args(Unobserved):
        raise ValueError(f"unobserved must be one of {get_args(Unobserved)}; got {unobserved!r}.")
    if not _one_after_the_other(panel):
        panel, hidden = panel.compact(), hidden[panel.rows()]
    given = _given(panel, hidden)
    if unobserved == "rows":
        values = panel.values.copy()
        values[hidden] = 0
        return replace(panel, values=values, observed=given), replace(reconstruct(panel), given=given)
    asked = Targets(
        values=_in_units(panel),
        at="queries",
        observed=panel.observed,
        given=given,
        times=panel.times,
        first=panel.first,
        lengths=panel.lengths,
    )
    return without_rows(panel, hidden), asked


def reconstruct(panel: Panel) -> Targets:
    """The panel's own values as targets at its rows: all that was measured is also given."""
    given = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    return Targets(values=_in_units(panel), at="rows", observed=panel.observed, given=given)


def random_rows(panel: Panel, share: float, seed: int) -> Array:
    """(N,) bool, `int(share * length)` rows of each series, drawn by the seed alone; at least one row stays.

    Example:
        >>> panel = Panel.from_list([(range(4), [[1.0]] * 4), (range(1), [[1.0]])])
        >>> hidden = random_rows(panel, 0.5, seed=0)
        >>> int(hidden[:4].sum()), int(hidden[4:].sum())
        (2, 0)
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie between 0 and 1; got {share}.")
    if not _one_after_the_other(panel):
        raise ValueError("rows are drawn series by series, which must not share any: use panel.compact() first.")
    count = np.minimum((share * panel.lengths).astype(np.int64), np.maximum(panel.lengths - 1, 0))
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    shuffled = np.lexsort([np.random.RandomState(seed).random_sample(len(owner)), owner])
    hidden = np.zeros(len(owner), bool)
    hidden[shuffled] = np.arange(len(owner)) - panel.first[owner] < count[owner]
    return hidden


def _in_units(panel: Panel) -> Array:
    """The values as numbers in their own units; whole numbers may be worth a fraction each."""
    if panel.scale == 1.0 and panel.values.dtype.kind == "f":
        return panel.values
    return (panel.values * panel.scale).astype(np.float32)


def _one_after_the_other(panel: Panel) -> bool:
    ends = np.cumsum(panel.lengths)
    return bool((panel.first == ends - panel.lengths).all()) and int(panel.lengths.sum()) == len(panel.times)


def _given(panel: Panel, hidden: Array) -> Array:
    """(N, *C) bool, what was measured and is not hidden."""
    given = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed.copy()
    given[hidden] = False
    return given
