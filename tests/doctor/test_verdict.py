"""The verdict of the data doctor: a table is good exactly where a panel can be built and trained on."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from doctor.faults import BROAD, CLEAN, FINDINGS
from doctor.tables import LONG, WIDE, Table, calendar, changed, millis, more, put, to

from lformer.doctor import examine
from lformer.panel import Panel


def trains(table: Table, columns: dict[str, Any]) -> bool:
    """Whether a panel can be built, its batch is finite, and there is anything to learn from."""
    try:
        panel = Panel.from_long(table, **columns)
        batch = panel.batch()
    except (ValueError, TypeError):
        return False
    except RuntimeWarning:  # a value that float32 cannot hold
        return False
    finite = all(bool(x.isfinite().all()) for x in (batch.values, batch.times, batch.deltas))
    return finite and bool((batch.deltas >= 0).all()) and bool(batch.observed.any()) and len(panel) > 1


VERDICTS: list[tuple[Table, dict[str, Any]]] = [
    (CLEAN, LONG),
    (BROAD, WIDE),
    (changed(CLEAN, to("x", lambda x: x.astype(str))), LONG),  # numbers as text are taken
    (changed(CLEAN, to("x", lambda x: x.astype("Float64"))), LONG),
    (changed(CLEAN, to("t", lambda t: millis(t).astype("Int64"))), LONG),
    (changed(CLEAN, to("t", lambda t: millis(t).astype("Int64")), put([2], "t", pd.NA)), LONG),
    (changed(CLEAN, to("t", lambda t: millis(t).astype("uint32"))), LONG),
    (changed(CLEAN, to("t", lambda t: t > 3)), LONG),
    (changed(CLEAN, to("t", lambda t: calendar(t).astype(object))), LONG),
    (changed(CLEAN, to("x", lambda x: x > 0)), LONG),
    (changed(CLEAN, to("x", lambda x: x.round().astype("category"))), LONG),
    (changed(BROAD, to("k", lambda x: calendar(x.fillna(0)))), WIDE),
    (changed(BROAD, to("k", lambda x: "a")), WIDE),
    (changed(BROAD, to("k", lambda x: "a")), {**WIDE, "value": ["na", "ph"]}),
    (changed(CLEAN, to("who", lambda w: [i if i < "p05" else int(i[1:]) for i in w])), LONG),
    (changed(CLEAN, to("who", lambda w: w.astype("category"))), LONG),
    (changed(CLEAN, to("what", lambda w: [{"k": 1, "na": "1", "ph": 2.5}[i] for i in w])), LONG),
    (CLEAN.iloc[:1], LONG),
    (BROAD.iloc[:1], WIDE),
    (pd.DataFrame({"who": [], "t": [], "what": [], "x": []}), LONG),
    (CLEAN, {**LONG, "value": ["x"]}),
    (CLEAN, {**LONG, "channel": None}),
    (changed(CLEAN, more(who=["q", "q"], t=[-1e308, 1e308], what=["k", "k"], x=[0.1, 0.2])), LONG),
    *((table, columns) for _, _, table, columns, _ in FINDINGS),
]  # fmt: skip


@pytest.mark.parametrize(("table", "columns"), VERDICTS)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_the_verdict_is_true(table: Table, columns: dict[str, Any]) -> None:
    assert examine(table, **columns).ok == trains(table, columns)


def test_there_are_good_and_bad_tables_to_judge() -> None:
    verdicts = [examine(table, **columns).ok for table, columns in VERDICTS]
    assert min(verdicts.count(True), verdicts.count(False)) > 20
