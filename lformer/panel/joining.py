"""Join several panels into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lformer.arrays import Array
from lformer.panel.core import Panel


def join(panels: Sequence[Panel]) -> Panel:
    """Concatenate the series of several panels, which must have the same channels, unit and static covariates.

    Ids are kept as they are, and may then occur more than once.

    Example:
        >>> one = Panel.from_list([([0.0, 1.0], [[1.0], [2.0]])], ids=["a"])
        >>> join([one, one]).ids.tolist()
        ['a', 'a']
    """
    if not panels:
        raise ValueError("there must be at least one panel; got none.")
    first = panels[0]
    for other in panels[1:]:
        for name in ("channels", "unit"):
            if getattr(other, name) != getattr(first, name):
                one, two = getattr(first, name), getattr(other, name)
                raise ValueError(f"panels must have the same {name}; got {one!r} and {two!r}.")
        has, needs = _covariates(other), _covariates(first)
        if has != needs:
            raise ValueError(f"panels must have the same static covariates; got {needs or 'none'} and {has or 'none'}.")
        if (first.origin.dtype.kind in "mM") != (other.origin.dtype.kind in "mM"):
            raise ValueError("panels must have the same kind of stamps; some have a calendar, others plain numbers.")
    parts = [panel.compact() for panel in panels]
    lengths = np.concatenate([part.lengths for part in parts])
    static = None
    if first.static is not None:
        import pandas as pd

        static = pd.concat([part.static for part in parts])
    return replace(
        first,
        times=np.concatenate([part.times for part in parts]),
        values=np.concatenate([_in_units(part) for part in parts]),
        observed=None if all(part.observed is None for part in parts) else np.concatenate([_seen(p) for p in parts]),
        first=np.cumsum(lengths) - lengths,
        lengths=lengths,
        ids=_names(parts),
        origin=np.concatenate([part.origin for part in parts]),
        static=static,
        scale=1.0,
        pad_to=None,
    )


def _covariates(panel: Panel) -> list[str]:
    return [] if panel.static is None else sorted(map(str, panel.static.columns))


def _in_units(panel: Panel) -> Array:
    return panel.values if panel.scale == 1.0 else (panel.values * panel.scale).astype(np.float32)


def _seen(panel: Panel) -> Array:
    return np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed


def _names(panels: Sequence[Panel]) -> Array:
    """(n,) ids; mixed types are kept as objects, so that a number does not become text."""
    mixed = len({panel.ids.dtype.kind for panel in panels}) > 1
    return np.concatenate([panel.ids.astype(object) if mixed else panel.ids for panel in panels])
