"""PhysioNet 2012: the owner's files, rows of 0.1 h, scaling, tasks, and the published counts on the real data."""

import hashlib
import io
import math
import tarfile
import tracemalloc
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real import raw as real_raw
from real import real

from lformer import scaling as scalings
from lformer.data.dataset import Array, Raw, Request
from lformer.data.files import DataError, Files
from lformer.data.physionet import CHANNELS, DATASET, OUTCOMES, PARAMETERS, missing, pack, prepare
from lformer.parts import Prepared

RAW = "physionet2012/physionet2012_ab.npz"
needs_real = pytest.mark.skipif(not real(RAW), reason="raw file not at hand: set LFORMER_DATA")


def ask(raw: Raw, task: str = "reconstruct", scaling: str = "none", seed: int = 42, **options: Any) -> Prepared:
    choices = {"unobserved": "rows", **options}
    request = Request(task=task, seed=seed, split="published", scaling=scaling, options=choices)  # type: ignore[arg-type]
    return prepare(raw, request)


# -- files as the challenge publishes them

STAY = "Time,Parameter,Value\n00:00,RecordID,{id}\n00:00,Age,54\n00:00,Gender,0\n00:00,Height,-1\n00:00,ICUType,4\n"
EVENTS = "00:00,Weight,-1\n00:07,HR,73\n00:07,GCS,15\n01:37,HR,77.5\n48:00,Temp,35.1\n"
HEADER = ",".join(OUTCOMES) + "\n"


def original(folder: Path, **changed: str) -> Path:
    """A small challenge of three stays; `changed` replaces files by name."""
    files = {
        "set-a/132540.txt": STAY.format(id=132540) + EVENTS,
        "set-a/132539.txt": STAY.format(id=132539) + "00:30,Na,137\n",
        "set-b/142675.txt": STAY.format(id=142675),
        "Outcomes-a.txt": HEADER + "132539,6,1,5,-1,0\n132540,16,8,8,-1,1\n",
        "Outcomes-b.txt": HEADER + "142675,7,1,9,575,0\n",
    } | changed
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode())
    return folder


def test_the_files_become_the_raw_arrays(tmp_path: Path) -> None:
    raw = pack(Files(original(tmp_path)))
    assert raw["record_id"].tolist() == [132539, 132540, 142675]
    assert raw["set"].tolist() == ["a", "a", "b"]
    assert raw["offset"].tolist() == [0, 5, 14, 18]
    assert raw["time_min"][5:14].tolist() == [0, 0, 0, 0, 0, 7, 7, 97, 2880]
    names = [PARAMETERS[p] for p in raw["param"][5:14]]
    assert names == ["Age", "Gender", "Height", "ICUType", "Weight", "HR", "GCS", "HR", "Temp"]
    assert raw["value"][5:14].tolist() == [54, 0, -1, 4, -1, 73, 15, 77.5, np.float32(35.1)]
    assert raw["outcomes"][1].tolist() == [132540, 16, 8, 8, -1, 1]
    dtypes = {name: raw[name].dtype for name in ("record_id", "offset", "time_min", "param", "value", "outcomes")}
    assert [str(dtype) for dtype in dtypes.values()] == ["int32", "int32", "uint16", "uint8", "float32", "int32"]
    assert raw["param_names"].tolist() == list(PARAMETERS)
    assert raw["outcome_names"].tolist() == list(OUTCOMES)


def same(a: dict[str, Array], b: dict[str, Array]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_archives_line_ends_blank_lines_and_missing_values(tmp_path: Path) -> None:
    plain = pack(Files(original(tmp_path / "plain")))
    source = tmp_path / "plain"
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "set-a.tar.gz", "w:gz") as tar:
        for file in sorted((source / "set-a").iterdir(), reverse=True):
            tar.add(file, f"set-a/{file.name}")
    with zipfile.ZipFile(packed / "set-b.zip", "w") as zipped:
        zipped.write(source / "set-b/142675.txt", "set-b/142675.txt")
    for name in ("Outcomes-a.txt", "Outcomes-b.txt"):
        (packed / name).write_bytes((source / name).read_bytes().replace(b"\n", b"\r\n"))
    assert same(pack(Files(packed)), plain)

    odd = original(tmp_path / "odd")
    file = odd / "set-a/132540.txt"
    text = file.read_text().replace("01:37,HR", "# nurse's note\n01:00,HR,\n01:00,HR,NaN\n\n01:37,HR").rstrip("\n")
    file.write_bytes(text.replace("\n", "\r\n").encode())
    (odd / "set-c").mkdir()
    (odd / "set-c/152871.txt").write_text(STAY.format(id=152871))  # not part of the benchmark
    assert same(pack(Files(odd)), plain)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("set-a/132540.txt", STAY.format(id=132540) + "00:07,HR\n", r"132540\.txt, line 7: expected 3 fields, got 2"),
        ("set-a/132540.txt", STAY.format(id=132540) + "00:07,HR,high\n", r"line 7: expected a number, got 'high'"),
        ("set-a/132540.txt", STAY.format(id=132540) + "00:07,HR,inf\n", r"line 7: expected finite values"),
        ("set-a/132540.txt", STAY.format(id=132540) + "00:7,HR,70\n", r"line 7: expected a time HH:MM"),
        ("set-a/132540.txt", STAY.format(id=132540) + "00:60,HR,70\n", r"line 7: expected a time HH:MM"),
        ("set-a/132540.txt", STAY.format(id=132540) + "48:01,HR,70\n", r"line 7: expected a time HH:MM up to 48:00"),
        ("set-a/132540.txt", STAY.format(id=132540) + "00:07,,70\n", r"line 7: expected one RecordID or a parameter"),
        ("set-a/132540.txt", STAY.format(id=132540) + "00:07,Hr,70\n", r"line 7: .* got 'Hr'"),
        ("set-a/132540.txt", STAY.format(id=132540) + "00:07,HR,7\n00:06,HR,7\n", r"line 8: .* in order of time"),
        ("set-a/132540.txt", STAY.format(id=132540) + "00:00,RecordID,3\n", r"line 7: expected one RecordID"),
        ("set-a/132540.txt", "", r"132540\.txt, line 1: expected the header Time,Parameter,Value"),
        ("set-a/132540.txt", "Time,Parameter,Value\n00:00,Age,54\n", r"line 2: expected a line 00:00,RecordID"),
        ("set-a/132540.txt", STAY.format(id=132539), r"record 132539 is also in .*132539\.txt"),
        ("set-a/132540.txt", STAY.format(id=99), r"record 99 is not in Outcomes"),
        ("Outcomes-a.txt", HEADER + "132539,6,1,5,-1,0\n132540,16,8\n", r"Outcomes-a\.txt, line 3: expected 6 fields"),
        ("Outcomes-a.txt", HEADER + "132539,6,1,5,-1,x\n", r"Outcomes-a\.txt, line 2: expected six whole numbers"),
        ("Outcomes-a.txt", HEADER + "132539,6,1,5,-1,2\n", r"line 2: expected In-hospital_death 0 or 1, got 2"),
        ("Outcomes-a.txt", HEADER + "132539,6,1,5,-1,0\n" * 2, r"line 3: record 132539 has an outcome already"),
        ("Outcomes-a.txt", "id,dead\n", r"Outcomes-a\.txt, line 1: expected the header RecordID"),
        (
            "Outcomes-b.txt",
            HEADER + "142675,7,1,9,575,0\n7,7,1,9,575,0\n",
            r"1 stays have an outcome but no file.*\[7\]",
        ),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, name: str, content: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        pack(Files(original(tmp_path, **{name: content})))


def test_truncated_archives_and_empty_folders_are_refused(tmp_path: Path) -> None:
    source, broken = original(tmp_path / "source"), tmp_path / "broken"
    broken.mkdir()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        tar.add(source / "set-a", "set-a")
        tar.add(source / "set-b", "set-b")
    (broken / "sets.tar.gz").write_bytes(stream.getvalue()[:-80])
    for name in ("Outcomes-a.txt", "Outcomes-b.txt"):
        (broken / name).write_bytes((source / name).read_bytes())
    with pytest.raises(DataError, match=r"sets\.tar\.gz"):
        pack(Files(broken))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="neither Outcomes-a"):
        pack(Files(tmp_path / "empty"))


# -- rows, channels, scaling, tasks


def made(stays: int = 40, seed: int = 0) -> dict[str, Array]:
    """Raw arrays of random stays, with many readings in one bin, bins without any, and one stay with nothing at all."""
    rng = np.random.default_rng(seed)
    minutes, params, values, counts = [], [], [], []
    for stay in range(stays):
        events = 0 if stay == 7 else int(rng.integers(1, 120))
        minutes.append(np.sort(rng.integers(20 if stay % 3 == 0 else 0, 2881, events)) // 3 * 3)
        params.append(rng.integers(0, 41, events))
        values.append(rng.choice([rng.normal(80, 20), 5.0, -1.0], events) + (params[-1] == 9) * 3)
        values[-1] = np.where(params[-1] == 12, -1 - rng.integers(0, 2, events), values[-1])  # never above 0
        values[-1] = np.where(params[-1] == 13, 0, values[-1])
        counts.append(events)
    return {
        "record_id": np.arange(stays, dtype=np.int32) + 100,
        "set": np.array(["a"] * stays),
        "offset": np.cumsum([0, *counts]).astype(np.int32),
        "time_min": np.concatenate(minutes).astype(np.uint16),
        "param": np.concatenate(params).astype(np.uint8),
        "value": np.concatenate(values).astype(np.float32),
        "param_names": np.array(PARAMETERS),
        "outcomes": np.c_[np.arange(stays) + 100, np.zeros((stays, 4)), np.arange(stays) % 2].astype(np.int32),
        "outcome_names": np.array(OUTCOMES),
    }


def slowly(raw: Raw, stay: int) -> dict[float, dict[str, float]]:
    """Rows of one stay by the words of the protocol: time in hours to mean of each variable."""
    bins: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    bins[0]  # always a row at 0
    for event in range(int(raw["offset"][stay]), int(raw["offset"][stay + 1])):
        row = bins[round(float(raw["time_min"][event]) / 60 / 0.1)]
        name = str(raw["param_names"][raw["param"][event]])
        if name not in ("Age", "Gender", "Height", "ICUType"):
            row[name].append(float(raw["value"][event]))
    return {b / 10: {name: math.fsum(v) / len(v) for name, v in bins[b].items()} for b in sorted(bins)}


def assert_stays_equal(raw: Raw, stays: list[int]) -> None:
    panel = ask(raw).panel
    for stay in stays:
        rows = slowly(raw, stay)
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


def test_descriptors_are_static_and_minus_one_is_unknown() -> None:
    raw = made()
    static = ask(raw).panel.static
    assert static is not None
    assert list(static.columns) == ["Age", "Gender", "Height", "ICUType"]
    assert static.index.tolist() == raw["record_id"].tolist()
    for stay in range(40):
        for column in static.columns:
            mine = slice(int(raw["offset"][stay]), int(raw["offset"][stay + 1]))
            of = raw["param"][mine] == PARAMETERS.index(column)
            given = raw["value"][mine][of]
            expected = given[-1] if len(given) and given[-1] != -1 else np.nan
            np.testing.assert_equal(static.loc[stay + 100, column], np.float32(expected))


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
    expected = scalings.apply(plain.panel, *getattr(scalings, scaling)(plain.panel, plain.train))
    np.testing.assert_allclose(scaled.panel.values, expected.values, rtol=1e-5, atol=1e-6)
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
    assert_stays_equal(raw, [0, 1, 4321, 7999, int(np.diff(raw["offset"]).argmax()), *map(int, nothing)])


@needs_real
def test_a_real_stay_checked_by_hand() -> None:
    panel = ask(real_raw(RAW)).panel
    times, values = panel[0]  # 132539: 00:00 Weight -1; 00:07 GCS 15, HR 73, ... Temp 35.1; 00:37 HR 77, ...
    assert panel.ids[0] == 132539
    assert times[:3].tolist() == [0.0, 0.1, 0.6]
    assert values[0, CHANNELS.index("Weight")] == -1
    assert values[1, [CHANNELS.index(name) for name in ("GCS", "HR")]].tolist() == [15, 73]
    assert values[2, CHANNELS.index("HR")] == 77
    assert panel.static is not None
    assert panel.static.iloc[0, :2].tolist() == [54, 0]
    assert np.isnan(panel.static.iloc[0, 2])


@needs_real
@pytest.mark.parametrize("scaling", ["published", "standard", "minmax", "none"])
def test_memory_stays_below_twice_the_result(scaling: str) -> None:
    raw = real_raw(RAW)
    tracemalloc.start()
    panel = ask(raw, scaling=scaling).panel
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert panel.observed is not None
    assert peak < 2 * (panel.values.nbytes + panel.observed.nbytes)
