"""PhysioNet 2012: rows of 0.1 h, scaling, tasks, and the published counts on the real data."""

import hashlib
import math
import tracemalloc
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from real import raw as real_raw
from real import real
from stays import made

from lformer import scaling as scalings
from lformer.data.dataset import Array, Raw, Request
from lformer.data.files import DataError
from lformer.data.physionet import DATASET, missing, prepare
from lformer.data.physionet_files import CHANNELS, PARAMETERS
from lformer.parts import Prepared

RAW = "physionet2012/physionet2012_ab.npz"
needs_real = pytest.mark.skipif(not real(RAW), reason="raw file not at hand: set LFORMER_DATA")


def ask(raw: Raw, task: str = "reconstruct", scaling: str = "none", seed: int = 42, **options: Any) -> Prepared:
    choices = {name: given[0] for name, given in DATASET.card.options.items()} | options
    request = Request(task=task, seed=seed, split="published", scaling=scaling, options=choices)  # type: ignore[arg-type]
    return prepare(raw, request)


def slowly(raw: Raw, stay: int, resolution: str) -> dict[float, dict[str, float]]:
    """Rows of one stay by the words of the protocol: time in hours to mean of each variable."""
    bins: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    bins[0]  # always a row at 0
    for event in range(int(raw["offset"][stay]), int(raw["offset"][stay + 1])):
        minute = int(raw["time_min"][event])
        row = bins[minute if resolution == "minute" else round(minute / 60 / 0.1)]
        name = str(raw["param_names"][raw["param"][event]])
        if name not in ("Age", "Gender", "Height", "ICUType"):
            row[name].append(float(raw["value"][event]))
    per_hour = 60 if resolution == "minute" else 10
    return {b / per_hour: {name: math.fsum(v) / len(v) for name, v in bins[b].items()} for b in sorted(bins)}


def assert_stays_equal(raw: Raw, stays: list[int], resolution: str = "0.1h") -> None:
    panel = ask(raw, resolution=resolution).panel
    for stay in stays:
        rows = slowly(raw, stay, resolution)
        times, values = panel[stay]
        assert times.tolist() == list(rows)
        for row, found in zip(rows.values(), values, strict=True):
            expected = [row.get(name, math.nan) for name in CHANNELS]
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_rows_are_those_of_a_plain_loop() -> None:
    raw = made()
    assert_stays_equal(raw, list(range(40)))
    times, values = ask(raw).panel[7]  # nothing was charted
    assert times.tolist() == [0.0]
    assert np.isnan(values).all()


def test_rows_by_the_minute_are_those_of_a_plain_loop() -> None:
    raw = made()
    panel = ask(raw, resolution="minute").panel
    assert len(panel.times) > len(ask(raw).panel.times)
    assert_stays_equal(raw, list(range(40)), "minute")
    assert panel.unit == "h"
    assert panel[7][0].tolist() == [0.0]


def test_descriptors_are_static_and_minus_one_is_unknown() -> None:
    raw = made()
    static = ask(raw, "classify").panel.static
    assert static is not None
    assert list(static.columns) == ["Age", "Gender", "Height", "ICUType"]
    assert static.index.tolist() == raw["record_id"].tolist()
    unknown = 0
    for stay in range(40):
        for column in static.columns:
            mine = slice(int(raw["offset"][stay]), int(raw["offset"][stay + 1]))
            of = raw["param"][mine] == PARAMETERS.index(column)
            given = raw["value"][mine][of]
            found = static.loc[stay + 100, column]
            if len(given) == 0 or given[-1] == -1:
                assert pd.isna(found)
                unknown += 1
            else:
                assert found == (f"unit {given[-1]:.0f}" if column == "ICUType" else given[-1])
    assert 0 < unknown < 160
    assert not pd.api.types.is_numeric_dtype(static["ICUType"])
    assert static["Gender"].dtype == np.float32


@pytest.mark.parametrize("task", ["extrapolate", "reconstruct", "interpolate"])
def test_only_mortality_has_covariates(task: str) -> None:
    raw = made()
    assert ask(raw, task).panel.static is None
    assert ask(raw, "classify", covariates="without").panel.static is None


def parts(prepared: Prepared) -> list[Array]:
    return [prepared.train, prepared.validation, prepared.test]


def of_series(panel: Any, series: Array) -> tuple[Array, Array]:
    rows = panel[series].rows()
    return panel.values[rows], panel.observed[rows]


def test_published_scaling_is_by_each_part_and_counts_the_zeros() -> None:
    raw = made()
    plain, scaled = ask(raw), ask(raw, scaling="published")
    for part in parts(plain):
        values, observed = of_series(plain.panel, part)
        low, high = values.min(axis=0), values.max(axis=0)  # missing values are 0 here, and count
        high[high == 0] = 1
        expected = np.where(observed, (values - low) / (high - low), 0)
        np.testing.assert_allclose(of_series(scaled.panel, part)[0], expected, atol=1e-6)


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
def test_other_scalings_are_by_the_training_part(scaling: str) -> None:
    raw = made()
    plain, scaled = ask(raw), ask(raw, scaling=scaling)
    expected = scalings.scaled(plain.panel, plain.train, scaling)
    assert not np.array_equal(expected.values, plain.panel.values)
    np.testing.assert_array_equal(scaled.panel.values, expected.values)
    assert np.array_equal(scaled.panel.observed, plain.panel.observed)  # type: ignore[arg-type]


@pytest.mark.parametrize("scaling", ["published", "standard", "minmax"])
def test_a_test_stay_does_not_move_the_training_values(scaling: str) -> None:
    raw = made()
    before = ask(raw, scaling=scaling)
    other = dict(raw, value=raw["value"].copy())
    stay = int(next(s for s in before.test if raw["offset"][s] < raw["offset"][s + 1]))
    other["value"][raw["offset"][stay] : raw["offset"][stay + 1]] *= 100
    after = ask(other, scaling=scaling)
    assert not np.array_equal(before.panel.values, after.panel.values)
    for old, new in zip(of_series(before.panel, before.train), of_series(after.panel, after.train), strict=True):
        assert np.array_equal(old, new)


def test_tasks() -> None:
    raw = made()
    whole = ask(raw)
    late = whole.panel.times >= 24
    assert whole.panel.observed is not None

    ahead = ask(raw, "extrapolate")
    assert np.array_equal(ahead.panel.times, whole.panel.times)
    assert not ahead.panel.values[late].any()
    assert np.array_equal(ahead.panel.values[~late], whole.panel.values[~late])
    assert np.array_equal(ahead.targets.values, whole.panel.values)
    assert np.array_equal(ahead.targets.observed, whole.panel.observed)  # type: ignore[arg-type]
    assert np.array_equal(ahead.targets.given, whole.panel.observed & ~late[:, None])  # type: ignore[arg-type]

    asked = ask(raw, "extrapolate", unobserved="query")
    assert asked.targets.at == "queries"
    assert float(asked.panel.times.max()) < 24
    assert np.array_equal(asked.targets.times, whole.panel.times)  # type: ignore[arg-type]

    some = ask(raw, "interpolate", seed=1)
    shown = np.array([some.panel.observed[r].any() for r in range(len(late))])  # type: ignore[index]
    charted = whole.panel.observed.any(axis=1)
    assert 0.4 < shown.sum() / charted.sum() < 0.6
    assert not np.array_equal(some.panel.values, ask(raw, "interpolate", seed=2).panel.values)

    died = ask(raw, "classify")
    assert died.targets.at == "series"
    assert died.targets.values.dtype == np.int64
    assert died.targets.values.tolist() == (np.arange(40) % 2).tolist()
    assert np.array_equal(died.panel.values, whole.panel.values)


def test_the_seed_does_not_move_the_split_and_a_part_of_the_set_is_told() -> None:
    raw = made()
    for old, new in zip(parts(ask(raw, seed=1)), parts(ask(raw, seed=2)), strict=True):
        assert np.array_equal(old, new)
    assert missing(raw) == "40 of 8,000 stays"


def test_raw_arrays_out_of_order_are_refused() -> None:
    raw = made()
    raw["time_min"][raw["offset"][1] : raw["offset"][2]] = raw["time_min"][raw["offset"][1] : raw["offset"][2]][::-1]
    with pytest.raises(DataError, match="in order of time"):
        ask(raw)


# -- the real data


@needs_real
def test_published_counts() -> None:
    raw = real_raw(RAW)
    found = ask(raw, "classify", "published")
    assert missing(raw) == ""
    assert len(found.panel) == DATASET.card.series == 8000
    assert round(float(found.panel.lengths.mean()), 2) == 72.16
    assert found.panel.values.shape[1] == 37
    assert [len(part) for part in parts(found)] == [4800, 1600, 1600]
    assert np.array_equal(np.sort(np.concatenate(parts(found))), np.arange(8000))
    assert [int(found.targets.values[raw["set"] == s].sum()) for s in "ab"] == [554, 568]
    assert float(found.panel.values.min()) == 0.0
    assert float(found.panel.values.max()) == 1.0
    assert [hashlib.sha256(part.astype("<i8").tobytes()).hexdigest()[:16] for part in parts(found)] == [
        "b7599dc8034f0ffe",
        "72c0cf9319754db6",
        "6966cb73048325c7",
    ]


@needs_real
def test_real_stays_are_those_of_a_plain_loop() -> None:
    raw = real_raw(RAW)
    nothing = np.flatnonzero(np.diff(raw["offset"]) <= 5)[:2]
    stays = [0, 1, 4321, 7999, int(np.diff(raw["offset"]).argmax()), *map(int, nothing)]
    assert_stays_equal(raw, stays)
    assert_stays_equal(raw, stays, "minute")


@needs_real
def test_a_real_stay_checked_by_hand() -> None:
    panel = ask(real_raw(RAW), "classify").panel
    times, values = panel[0]  # 132539: 00:00 Weight -1; 00:07 GCS 15, HR 73, ... Temp 35.1; 00:37 HR 77, ...
    assert panel.ids[0] == 132539
    assert times[:3].tolist() == [0.0, 0.1, 0.6]
    assert values[0, CHANNELS.index("Weight")] == -1
    assert values[1, [CHANNELS.index(name) for name in ("GCS", "HR")]].tolist() == [15, 73]
    assert values[2, CHANNELS.index("HR")] == 77
    assert panel.static is not None
    assert panel.static.iloc[0, :2].tolist() == [54, 0]
    assert np.isnan(panel.static.iloc[0, 2])
    assert panel.static.iloc[0, 3] == "unit 4"


@needs_real
@pytest.mark.parametrize(("scaling", "times"), [("published", 2.0), ("none", 2.0), ("standard", 2.2), ("minmax", 2.2)])
def test_memory_stays_near_twice_the_result(scaling: str, times: float) -> None:  # the last two copy the values
    raw = real_raw(RAW)
    tracemalloc.start()
    panel = ask(raw, scaling=scaling).panel
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert panel.observed is not None
    assert peak < times * (panel.values.nbytes + panel.observed.nbytes)
