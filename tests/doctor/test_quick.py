"""A quick look over a panel: what it finds, and that the data this library comes with raise no suspicion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from real import real

from lformer import data
from lformer.doctor.quick import look_over
from lformer.panel import Panel

NAN = np.nan


def made(channels: int = 4, rows: int = 40, series: int = 12, seed: int = 0) -> Panel:
    """Ragged series at uneven times with missing values."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(series):
        length = int(rng.integers(2, rows))
        values = rng.normal(80, 9, (length, channels))
        values[rng.random((length, channels)) < 0.3] = NAN
        made.append((np.cumsum(rng.exponential(1, length)), values))
    return Panel.from_list(made)


def changed(panel: Panel, change: Any) -> Panel:
    """The panel with values (N, C), NaN where nothing was observed, after a change in place."""
    values = panel._readable(slice(None)).copy()
    change(values)
    return Panel.build(panel.times, values, panel.lengths, channels=panel.channels)


def titles(panel: Panel) -> list[str]:
    return [finding.title for finding in look_over(panel)[0]]


def test_nothing_to_say() -> None:
    assert look_over(made()) == ([], {})


def test_marks_say_where_what_how_often_and_what_to_do() -> None:
    def spoil(values: Any) -> None:
        values[:4, 1] = -9999
        values[10:13, 2] = [-9999, -9999, -9999]

    (finding,), marks = look_over(changed(made(), spoil))
    assert {name: [tuple(mark) for mark in found] for name, found in marks.items()} == {
        "1": [(-9999.0, 4)],
        "2": [(-9999.0, 3)],
    }
    assert "2 channels" in finding.detail
    assert "1: -9999 in 4 rows; 2: -9999 in 3 rows." in finding.detail
    assert "missing_values=-9999;" in finding.advice


def test_a_number_that_other_channels_may_hold_is_named_with_its_channel() -> None:
    def spoil(values: Any) -> None:
        values[:5, 1], values[5:9, 1], values[:6, 2] = -9999, 0, 0

    (finding,), _ = look_over(changed(made(), spoil))
    assert "missing_values={'1': [-9999, 0], '2': 0};" in finding.advice


def test_the_advice_is_what_the_panel_takes() -> None:
    def spoil(values: Any) -> None:
        values[:5, 1], values[5:9, 1], values[:6, 2] = -9999, 0, 0

    panel = changed(made(), spoil)
    advice = look_over(panel)[0][0].advice
    told = eval(advice.split("missing_values=")[1].partition(";")[0])
    assert titles(panel.with_missing(told)) == []


def test_rows_of_windows_that_overlap_count_once() -> None:
    values = np.random.default_rng(0).normal(50, 9, (100, 1))
    values[:4] = -9999
    panel = Panel.build(np.arange(100.0), values, np.full(60, 40), first=np.arange(60))
    assert look_over(panel)[1]["0"][0].times == 4
    assert look_over(panel[10:])[1] == {}  # what belongs to none of the series is not looked at


def test_constant_channels_and_those_of_which_the_time_counts() -> None:
    def always(values: Any) -> None:
        values[:, 0] = 7.4

    def sometimes(values: Any) -> None:
        values[:, 0] = np.where(np.isnan(values[:, 0]), NAN, 1.0)  # an event: what is told is when

    assert titles(changed(made(), always)) == ["Constant channels"]
    assert titles(changed(made(), sometimes)) == []


def test_channels_never_observed() -> None:
    def never(values: Any) -> None:
        values[:, 2] = NAN

    (finding,), _ = look_over(changed(made(), never))
    assert (finding.title, finding.detail) == ("Channels never observed", "1 channel without a value: 2.")


@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_copies_whatever_else_is_missing(lost: float) -> None:
    def copy(values: Any) -> None:
        values[:, 3] = np.where(np.random.default_rng(1).random(len(values)) < lost, NAN, values[:, 1])

    (finding,), _ = look_over(changed(made(), copy))
    assert finding.title == "Channels that are copies"
    assert "1 pair" in finding.detail
    assert "1 and 3." in finding.detail


def test_what_is_no_copy() -> None:
    def nearly(values: Any) -> None:
        values[:, 3] = values[:, 1]
        values[np.flatnonzero(~np.isnan(values[:, 1]))[7], 3] += 1e-3

    def mostly_zero(values: Any) -> None:
        values[:, :2] = 0
        values[3, :2] = 1

    def events(values: Any) -> None:
        values[:, :2] = np.where(np.isnan(values[:, :2]), NAN, 1.0)

    def seldom_together(values: Any) -> None:
        values[:, 3] = np.where(np.arange(len(values)) % 5 == 0, values[:, 1], NAN)
        values[:, 1] = np.where(np.arange(len(values)) % 5 > 0, values[:, 1], NAN)

    for change in (nearly, mostly_zero, events, seldom_together):
        assert titles(changed(made(), change)) == [], change


def test_dates_as_stamps_of_a_panel() -> None:
    days = np.array([20240129, 20240130, 20240131, *range(20240201, 20240206)])
    series = [(days[: 8 - i], np.random.default_rng(i).normal(size=(8 - i, 1))) for i in range(3)]
    for panel in (Panel.from_list(series), Panel.from_list([(t.astype(float), x) for t, x in series])):
        (finding,), _ = look_over(panel)
        assert "from 20240131 to 20240201 would be an interval of 70." in finding.detail
    stamped = [(t.astype("datetime64[D]"), x) for t, x in series]
    assert titles(Panel.from_list(stamped)) == []


def test_frames_are_not_looked_at() -> None:
    frames = np.zeros((5, 4, 4, 1), np.uint8)
    assert look_over(Panel.build(np.arange(5.0), frames, np.array([5]))) == ([], {})


def test_the_ward_raises_no_suspicion() -> None:
    for seed in range(3):
        ward = data.toy_ward(200, seed)
        columns: Any = {"id": "patient", "time": "time", "channel": "lab", "value": "value"}
        assert titles(Panel.from_long(ward.table, **columns)) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lformer.data.loading.PartialDataWarning")
@pytest.mark.skipif(not real("physionet2012/physionet2012_ab.npz"), reason="PhysioNet is not here")
def test_of_physionet_only_the_weight_that_was_not_taken_is_suspicious() -> None:
    stays = data.load("physionet", task="extrapolate", seed=42, scaling="none", cache=False).train.panel
    (finding,), marks = look_over(stays)
    assert {name: [mark.value for mark in found] for name, found in marks.items()} == {"Weight": [-1.0]}
    assert "missing_values={'Weight': -1}" in finding.advice


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lformer.data.loading.PartialDataWarning")
@pytest.mark.skipif(not real("ushcn/ushcn_1990_2000.npz"), reason="USHCN is not here")
def test_of_ushcn_nothing_is_suspicious() -> None:
    assert titles(data.load("ushcn", task="extrapolate", seed=42, scaling="none", cache=False).train.panel) == []


def test_many_channels() -> None:
    panel = made(channels=300)
    wide = replace(panel, values=np.ascontiguousarray(panel.values))
    assert titles(wide) == []
