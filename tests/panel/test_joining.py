"""Several panels as one: every series as it was, and what does not go together is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lformer.panel import Panel, join


def panel(start: float = 0.0, ids: Any = ("a", "b"), missing: bool = False) -> Panel:
    values = np.arange(6.0).reshape(3, 2) + start
    values[1, 0] = np.nan if missing else 7
    static = pd.DataFrame({"age": [start, start + 1]}, index=list(ids))
    return Panel.from_list(
        [([0.0, 1.5], values[:2]), ([4.0], values[2:])], channels=["k", "na"], ids=ids, static=static
    )


def test_series_stay_as_they_were() -> None:
    parts = [panel(), panel(10, ids=("c", "d"), missing=True)[[1, 0]]]
    both = join(parts)
    assert both.ids.tolist() == ["a", "b", "d", "c"]
    for one, other in zip(both, [series for part in parts for series in part], strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert both.static.age.tolist() == [0.0, 1.0, 11.0, 10.0]
    assert join([panel(), panel()]).observed is None
    assert join([panel()]).ids.tolist() == ["a", "b"]


def test_ids_keep_their_types() -> None:
    assert join([panel(ids=(1, 2)), panel()]).ids.tolist() == [1, 2, "a", "b"]
    assert join([panel(ids=(1, 2)), panel(ids=(3, 4))]).ids.dtype.kind == "i"


def test_what_does_not_go_together_is_refused() -> None:
    dated = replace(panel(), origin=np.array(["2024-01-01", "2024-02-01"], "datetime64[s]"))
    for other, says in (
        (replace(panel(), channels=("k", "crp")), "the same channels"),
        (replace(panel(), unit="h"), "the same unit"),
        (replace(panel(), static=None), r"the same static covariates; got \['age'\] and none"),
        (dated, "the same kind of stamps"),
    ):
        with pytest.raises(ValueError, match=says):
            join([panel(), other])
    with pytest.raises(ValueError, match="at least one panel"):
        join([])
