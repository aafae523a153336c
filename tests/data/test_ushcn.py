"""USHCN: fixed-width files of two owners, cleaning in the published order, tasks, and the counts on the real data."""

import hashlib
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real import raw as real_raw
from real import real

from lformer import scaling as scalings
from lformer.data.dataset import Array, Raw, Request
from lformer.data.files import DataError, Files
from lformer.data.ushcn import DATASET, missing, name_raw, prepare
from lformer.data.ushcn_files import VARIABLES, pack
from lformer.parts import Prepared
from lformer.splitting import hold_out_twice

RAW = "ushcn/ushcn_1990_2000.npz"
needs_real = pytest.mark.skipif(not real(RAW), reason="raw file not at hand: set LFORMER_DATA")


def ask(raw: Raw, task: str = "reconstruct", scaling: str = "none", seed: int = 42, **options: Any) -> Prepared:
    choices = {"unobserved": "rows", **options}
    request = Request(task=task, seed=seed, split="published", scaling=scaling, options=choices)  # type: ignore[arg-type]
    return prepare(raw, request)


# -- files as NOAA publishes them


def month(id: str, when: str, variable: str, values: dict[int, int], flags: dict[int, str] | None = None) -> str:
    """A line: the days of a month with their value and quality flag."""
    flags = flags or {}
    days = [f"{values[d]:5d} {flags.get(d, ' ')}0" if d in values else "-9999   " for d in range(1, 32)]
    return id + when + variable + "".join(days) + "\n"


LIST = (
    "011084  31.0581  -87.0547   25.9 AL BREWTON 3 SSE                  ------ ------ ------ +6\n"
    "376698  41.7219  -71.4325   16.8 RI PROVIDENCE GREEN AP            ------ ------ ------ +5\n"
)
A, B = "USC00011084", "USW00014765"
FIRST = month(A, "199001", "TMAX", {1: 150, 31: -12}, {31: "I"}) + month(A, "194912", "TMAX", {1: 7})
FIRST += month(A, "199001", "TOBS", {1: 120}) + month(A, "200012", "PRCP", {31: 254})
FIRST += month(A, "195002", "TMAX", {1: 100, 28: 200}) + month(A, "201502", "SNOW", {1: 0})


def ghcn(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{A}.dly").write_text(FIRST)
    (folder / f"{B}.dly").write_text(month(B, "199312", "SNWD", {31: 25}))
    (folder / "ushcn-stations.txt").write_text(LIST)
    (folder / "ghcnd-stations.txt").write_text(
        "USW00014765  41.7225  -71.4325   16.8 RI PROVIDENCE                     HCN 72507\n"
        "AE000041196  25.3330   55.5170   34.0    SHARJAH INTER. AIRP            GSN     41196\n"
    )
    return folder


def test_ghcn_files_become_the_raw_arrays(tmp_path: Path) -> None:
    raw = pack(Files(ghcn(tmp_path)))
    assert raw["values"].shape == raw["qflag"].shape == (2, 4018, 5)
    assert int(raw["first_day"]) == 7305
    assert raw["values"].dtype == np.int16
    assert raw["qflag"].dtype == np.uint8
    tmax, prcp, snwd = (VARIABLES.index(name) for name in ("TMAX", "PRCP", "SNWD"))
    present = np.argwhere(raw["values"] != -9999).tolist()
    assert present == [[0, 0, tmax], [0, 30, tmax], [0, 4017, prcp], [1, 1460, snwd]]
    assert raw["values"][raw["values"] != -9999].tolist() == [150, -12, 254, 25]
    assert raw["qflag"][raw["values"] != -9999].tolist() == [32, ord("I"), 32, 32]
    assert not raw["qflag"][raw["values"] == -9999].any()
    assert raw["station"].tolist() == [A, B]
    assert raw["coop_id"].tolist() == ["011084", "376698"]  # the second by its position
    assert raw["state"].tolist() == ["AL", "RI"]
    assert raw["name"].tolist() == ["BREWTON 3 SSE", "PROVIDENCE GREEN AP"]
    np.testing.assert_allclose(raw["lat"], [31.0581, 41.7219], rtol=1e-6)
    np.testing.assert_allclose(raw["lon"], [-87.0547, -71.4325], rtol=1e-6)
    np.testing.assert_allclose(raw["elev"], [25.9, 16.8], rtol=1e-6)
    assert raw["first_year"][0].tolist() == [2000, 2015, -1, 1949, -1]
    assert raw["last_year"][0].tolist() == [2000, 2015, -1, 1990, -1]
    assert raw["n_1950_2000"][0].tolist() == [1, 0, 0, 3, 0]
    assert raw["mean_1950_2000"][0, tmax] == 150
    assert raw["std_1950_2000"][0, tmax] == 50
    assert np.isnan(raw["mean_1950_2000"][0, 1])
    assert raw["source"].tolist() == [0, 0]
    assert name_raw(raw) == RAW
    assert missing(raw) == "2 of 1,218 stations"


def test_a_station_without_a_list_is_still_read(tmp_path: Path) -> None:
    ghcn(tmp_path)
    (tmp_path / "ushcn-stations.txt").unlink()
    raw = pack(Files(tmp_path))
    assert raw["coop_id"].tolist() == ["011084", ""]
    assert raw["name"].tolist() == ["", "PROVIDENCE"]
    assert np.isnan(raw["lat"][0])
    (tmp_path / "ushcn-v2.5-stations.txt").write_text("USH00" + LIST.replace("\n3", "\nUSH003"))
    assert pack(Files(tmp_path))["coop_id"].tolist() == ["011084", "376698"]


def same(a: dict[str, Array], b: dict[str, Array]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[n], b[n], equal_nan=a[n].dtype.kind == "f") for n in a)


def test_archives_line_ends_and_lost_blanks(tmp_path: Path) -> None:
    plain, packed = ghcn(tmp_path / "plain"), tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "ghcnd_hcn.tar.gz", "w:gz") as tar:
        for name in (f"{B}.dly", f"{A}.dly"):
            tar.add(plain / name, f"ghcnd_hcn/{name}")
    with zipfile.ZipFile(packed / "lists.zip", "w") as zipped:
        for name in ("ushcn-stations.txt", "ghcnd-stations.txt"):
            zipped.write(plain / name, name)
    expected = pack(Files(plain))
    assert same(pack(Files(packed)), expected)
    lines = FIRST.splitlines()
    (plain / f"{A}.dly").write_bytes("\r\n".join([line.rstrip() for line in lines] + ["", ""]).encode())
    assert same(pack(Files(plain)), expected)


def test_state_files_are_converted_to_ghcn_units(tmp_path: Path) -> None:
    lines = month("376698", "199001", "PRCP", {1: 75, 2: 100}) + month("376698", "199001", "SNOW", {1: 25})
    lines += month("376698", "199001", "SNWD", {1: 3}) + month("376698", "199001", "TMAX", {1: 32, 2: 73, 3: -9})
    lines += month("011084", "199001", "TMIN", {5: 50}, {5: "X"})
    (tmp_path / "state37_RI.txt").write_text(lines)
    (tmp_path / "ushcn-stations.txt").write_text(LIST)
    raw = pack(Files(tmp_path))
    assert raw["station"].tolist() == ["USC00011084", "USC00376698"]
    assert raw["state"].tolist() == ["AL", "RI"]
    assert raw["values"][1, :3].T.tolist() == [
        [191, 254, -9999],  # 190.5 is rounded up
        [64, -9999, -9999],
        [76, -9999, -9999],
        [0, 228, -228],
        [-9999, -9999, -9999],
    ]
    assert raw["values"][0, 4, 4] == 100
    assert raw["qflag"][0, 4, 4] == ord("X")
    assert raw["first_year"][0, 4] == -1  # it failed
    assert raw["source"].tolist() == [2, 2]
    back = np.rint(np.array([191, 254]) / 2.54)
    assert back.tolist() == [75, 100]


GOOD = month(A, "199001", "TMAX", {1: 150})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (GOOD + GOOD[:140], r"USC00011084\.dly, line 2: expected 269 characters, got 140; the file may be cut short"),
        (GOOD + GOOD.replace("  150", "  1x0"), r"line 2: expected an id, YYYYMM, a variable and 31 whole numbers"),
        (GOOD + GOOD.replace("  150", "  1 0"), r"line 2: expected an id, YYYYMM, a variable and 31 whole numbers"),
        (GOOD + GOOD.replace("  150", " 1-50"), r"line 2: expected an id, YYYYMM, a variable and 31 whole numbers"),
        (GOOD + GOOD.replace("  150", "--150"), r"line 2: expected an id, YYYYMM, a variable and 31 whole numbers"),
        (GOOD + GOOD.replace("  150", "     "), r"line 2: expected an id, YYYYMM, a variable and 31 whole numbers"),
        (GOOD + GOOD.replace("  150", "  1é0"), r"line 2: expected an id, YYYYMM, a variable and 31 whole numbers"),
        (GOOD + GOOD.replace("199001", "199013"), r"line 2: expected an id, YYYYMM"),
        (GOOD + GOOD.replace("199001", "19x001"), r"line 2: expected an id, YYYYMM"),
        (GOOD + month(A, "199102", "TMAX", {29: 5}), r"line 2: a value is on a day that its month does not have"),
        (GOOD + GOOD, r"line 2: this month of this variable occurs twice"),
        (GOOD.replace("  150", "40000"), "which is not plausible"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / f"{A}.dly").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=says):
        pack(Files(tmp_path))


def test_leap_days_exist_and_double_stations_are_refused(tmp_path: Path) -> None:
    (tmp_path / f"{A}.dly").write_text(month(A, "199202", "TMAX", {29: 5}))
    assert pack(Files(tmp_path))["values"][0, 365 + 365 + 31 + 28, 3] == 5
    (tmp_path / "copy.dly").write_text(GOOD)
    with pytest.raises(DataError, match=rf"station {A} is also in another file"):
        pack(Files(tmp_path))


def test_bad_lists_and_empty_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"contains no \*\.dly"):
        pack(Files(tmp_path))
    (tmp_path / f"{A}.dly").write_text(GOOD)
    (tmp_path / "ushcn-stations.txt").write_text(LIST.replace("41.7219", "north  "))
    with pytest.raises(DataError, match=r"ushcn-stations\.txt, line 2: expected latitude"):
        pack(Files(tmp_path))
    (tmp_path / "ushcn-stations.txt").write_text(LIST.replace("376698", "37669x"))
    with pytest.raises(DataError, match=r"ushcn-stations\.txt, line 2: expected a COOP id of six digits"):
        pack(Files(tmp_path))


# -- the preprocessed table of GRU-ODE-Bayes

COLUMNS = "ID,Time,Value_0,Value_1,Value_2,Value_3,Value_4,Mask_0,Mask_1,Mask_2,Mask_3,Mask_4\n"
ROWS = (
    "3,10.5,0.5,0.0,0.0,0.0,0.0,1.0,0.0,0.0,0.0,0.0\n3,0.1,0.0,-1.5,0.0,0.0,2.0,0,1,0,0,1\n1,180.0,,,1.0,,,0,0,1,0,0\n"
)


def table(folder: Path, content: str) -> Files:
    (folder / "small_chunked_sporadic.csv").write_bytes(content.encode())
    return Files(folder)


def test_the_chunked_table_becomes_raw_arrays(tmp_path: Path) -> None:
    raw = pack(table(tmp_path, COLUMNS + ROWS))
    assert raw["chunk_id"].tolist() == [1, 3, 3]
    assert raw["chunk_time"].tolist() == [180.0, 0.1, 10.5]
    assert raw["chunk_value"].tolist() == [[0, 0, 1, 0, 0], [0, -1.5, 0, 0, 2], [0.5, 0, 0, 0, 0]]
    assert raw["chunk_mask"][1].tolist() == [False, True, False, False, True]
    assert name_raw(raw) == "ushcn/ushcn_chunked.npz"
    assert missing(raw) == "3 of 350,665 rows"
    assert same(raw, pack(table(tmp_path, ("# from elsewhere\n" + COLUMNS + "\n" + ROWS).replace("\n", "\r\n"))))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (ROWS, r"small_chunked_sporadic\.csv, line 1: expected the header ID,Time"),
        (COLUMNS, r"line 1: expected a header and rows"),
        (COLUMNS + ROWS + "4,1.0,0.5,0.0\n", r"line 5: expected ID, Time, five values and five masks"),
        (COLUMNS + ROWS.replace("10.5", "late"), r"line 2: expected ID, Time"),
        (COLUMNS + ROWS.replace("10.5", ""), r"line 2: expected ID, Time"),
        (COLUMNS + ROWS.replace("-1.5", ""), r"line 3: expected ID, Time"),
        (COLUMNS + ROWS.replace("1.0,0.0,0.0,0.0,0.0\n", "2,0.0,0.0,0.0,0.0\n"), r"line 2: expected ID, Time"),
        (COLUMNS + ROWS + ROWS, r"station 1 has two rows at time 180"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        pack(table(tmp_path, content))


def chunks(stations: int = 10) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    mask = rng.random((stations * 20, 5)) < 0.4
    return {
        "chunk_id": np.repeat(np.arange(stations), 20).astype(np.int32),
        "chunk_time": np.tile(np.arange(20) * 10.0, stations),
        "chunk_value": np.where(mask, rng.standard_normal(mask.shape), 0).astype(np.float32),
        "chunk_mask": mask,
    }


def test_the_chunked_form_gives_three_of_four_years() -> None:
    raw = chunks()
    found = ask(raw, "extrapolate", "published")
    assert found.targets.observed is not None
    assert found.targets.given is not None
    assert np.array_equal(found.targets.values, raw["chunk_value"])
    early = np.tile(np.arange(20) <= 15, 10)
    assert np.array_equal(found.targets.given, raw["chunk_mask"] & early[:, None])
    assert [len(p) for p in (found.train, found.validation, found.test)] == [6, 2, 2]
    scaled = ask(raw, scaling="standard")
    rows = scaled.panel[scaled.train].rows()
    sample = scaled.panel.values[rows][scaled.panel.observed[rows][:, 0], 0]  # type: ignore[index]
    assert abs(float(sample.mean())) < 1e-6
    assert abs(float(sample.std()) - 1) < 1e-6


# -- cleaning and drawing


def made(stations: int = 12, seed: int = 0) -> dict[str, Array]:
    """Raw arrays of random weather: the last station is too young, the one before has too few days."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-50, 300, (stations, 4018, 5)).astype(np.int16)
    values[rng.random(values.shape) < 0.3] = -9999
    values[-2] += (values[-2] != -9999) * np.int16(40)
    values[-2, 700:] = -9999
    qflag = np.where(values == -9999, 0, 32).astype(np.uint8)
    first_year = np.full((stations, 5), 1900, np.int16)
    first_year[-1] = [1991, -1, 1991, 1991, 1991]
    first_year[0] = [1995, 1990, -1, 1995, 1995]  # one variable is enough
    return {
        "values": values,
        "qflag": qflag,
        "first_day": np.array(7305, np.int32),
        "station": np.array([f"S{s:02d}" for s in range(stations)]),
        "first_year": first_year,
        "last_year": np.full((stations, 5), 1994, np.int16),
    }


def parts(prepared: Prepared) -> list[Array]:
    return [prepared.train, prepared.validation, prepared.test]


def test_stations_days_and_entries() -> None:
    raw = made()
    panel = ask(raw).panel
    assert panel.ids.tolist() == [f"S{s:02d}" for s in range(10)]
    assert panel.lengths.tolist() == [730] * 10
    assert panel.observed is not None
    days = panel.times.reshape(10, 730).astype(int) - 14610  # 1990-01-01 is day 14,610 since 1950-01-01
    assert bool((np.diff(days, axis=1) > 0).all())
    assert days.min() >= 0
    assert days.max() < 1461
    dropped = ~panel.observed.reshape(10, 730, 5).any(axis=0)  # the same entries everywhere
    assert 0.15 < dropped.mean() < 0.25
    kept = np.random.RandomState(0).random_sample((730, 5)) >= 0.2
    for station in range(10):
        there = raw["values"][station, days[station]]
        seen = (there != -9999) & kept
        assert there.shape == (730, 5)
        assert bool((there != -9999).any(axis=1).all())
        assert np.array_equal(panel.observed[station * 730 : station * 730 + 730], seen)
        assert np.array_equal(panel.values[station * 730 : station * 730 + 730], np.where(seen, there, 0))


def test_the_same_rows_are_drawn_from_as_many() -> None:
    raw = made()
    raw["values"][:2] = 7
    raw["qflag"][:2] = 32
    times = ask(raw).panel.times.reshape(10, 730)
    assert np.array_equal(times[0], times[1])
    assert np.array_equal(times[0] - 14610, np.sort(np.random.RandomState(0).permutation(1461)[:730]))


def test_failed_values_and_outliers_of_a_part_are_dropped() -> None:
    raw = made()
    panel = ask(raw).panel
    days = panel.times.reshape(10, 730).astype(int) - 14610
    assert panel.observed is not None
    spots = [int(np.argmax(panel.observed[s * 730 : (s + 1) * 730, 3])) for s in (2, 3)]
    for station, spot, value, flag in ((2, spots[0], 20, ord("X")), (3, spots[1], 30000, 32)):
        raw["values"][station, days[station, spot], 3] = value
        raw["qflag"][station, days[station, spot], 3] = flag
    after = ask(raw).panel
    assert after.observed is not None
    for station, spot in zip((2, 3), spots, strict=True):
        assert panel.observed[station * 730 + spot, 3]
        assert not after.observed[station * 730 + spot, 3]
    assert int((panel.observed != after.observed).sum()) == 2


def test_published_scaling_is_by_all_days_of_each_part() -> None:
    raw = made()
    plain, scaled = ask(raw), ask(raw, scaling="published")
    assert plain.panel.observed is not None
    for members, part in zip(hold_out_twice(11, 0.2, 0.25, (42, 43)), parts(plain), strict=True):
        assert part.tolist() == [m for m in members if m < 10]  # the eleventh has too few days, but counts for scaling
        days = raw["values"][members][:, :1461].astype(float)
        days[days == -9999] = np.nan
        low, high = np.nanmin(days, axis=(0, 1)), np.nanmax(days, axis=(0, 1))
        rows = np.arange(7300).reshape(10, 730)[part].ravel()
        expected = np.where(plain.panel.observed[rows], (plain.panel.values[rows] - low) / (high - low), 0)
        np.testing.assert_allclose(scaled.panel.values[rows], expected, atol=1e-6)
    assert float(scaled.panel.values.min()) >= 0
    assert float(scaled.panel.values.max()) <= 1


@pytest.mark.parametrize("scaling", ["published", "standard", "minmax"])
def test_a_test_station_does_not_move_the_training_values(scaling: str) -> None:
    raw = made()
    before = ask(raw, scaling=scaling)
    other = dict(raw, values=raw["values"].copy())
    station = int(before.test[0])
    seen = other["values"][station] != -9999
    other["values"][station][seen] = other["values"][station][seen] * 3 + 50
    after = ask(other, scaling=scaling)
    rows = np.arange(7300).reshape(10, 730)
    assert not np.array_equal(before.panel.values[rows[station]], after.panel.values[rows[station]])
    assert np.array_equal(before.panel.values[rows[before.train]], after.panel.values[rows[after.train]])


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
def test_other_scalings_are_by_the_training_part(scaling: str) -> None:
    raw = made()
    plain, scaled = ask(raw), ask(raw, scaling=scaling)
    expected = scalings.scaled(plain.panel, plain.train, scaling)
    assert not np.array_equal(expected.values, plain.panel.values)
    assert np.array_equal(scaled.panel.values, expected.values)


def test_tasks() -> None:
    raw = made()
    whole = ask(raw)
    first = np.arange(7300) % 730 < 365
    ahead = ask(raw, "extrapolate")
    assert whole.panel.observed is not None
    assert not ahead.panel.values[~first].any()
    assert np.array_equal(ahead.panel.values[first], whole.panel.values[first])
    assert np.array_equal(ahead.targets.given, whole.panel.observed & first[:, None])  # type: ignore[arg-type]
    assert np.array_equal(ahead.targets.values, whole.panel.values)
    asked = ask(raw, "extrapolate", unobserved="query")
    assert asked.panel.lengths.tolist() == [365] * 10
    assert asked.targets.lengths is not None
    assert asked.targets.lengths.tolist() == [730] * 10
    some, others = ask(raw, "interpolate", seed=1), ask(raw, "interpolate", seed=2, unobserved="query")
    assert others.panel.lengths.tolist() == [365] * 10
    assert 0.4 < some.targets.given.sum() / whole.panel.observed.sum() < 0.6  # type: ignore[union-attr]
    assert not np.array_equal(some.targets.given, others.targets.given)  # type: ignore[arg-type]
    for old, new in zip(parts(some), parts(others), strict=True):
        assert np.array_equal(old, new)


def test_raw_arrays_of_other_years_are_refused() -> None:
    with pytest.raises(DataError, match="1990 to 1993"):
        ask(dict(made(), first_day=np.array(8000)))


# -- the real data


@needs_real
def test_published_counts() -> None:
    raw = real_raw(RAW)
    found = ask(raw, "extrapolate", "published")
    panel, targets = found.panel, found.targets
    assert missing(raw) == "1,211 of 1,218 stations (near enough to compare, not equal)"
    assert len(panel) == 1186  # of 1,192 published for all 1,218 stations
    assert panel.lengths.tolist() == [730] * 1186
    assert panel.channels == VARIABLES
    assert [len(part) for part in parts(found)] == [710, 236, 240]
    assert np.array_equal(np.sort(np.concatenate(parts(found))), np.arange(1186))
    assert targets.observed is not None
    assert targets.given is not None
    assert float(targets.values.min()) == 0.0
    assert float(targets.values.max()) == 1.0
    assert 0.77 < float(targets.observed.mean()) < 0.79  # a fifth is dropped, and some was never measured
    assert not targets.given.reshape(1186, 730, 5)[:, 365:].any()
    assert np.array_equal(targets.given.reshape(1186, 730, 5)[:, :365], targets.observed.reshape(1186, 730, 5)[:, :365])
    assert (float(panel.times.min()), float(panel.times.max())) == (14610.0, 16070.0)
    assert DATASET.card.series == 1192


@needs_real
def test_real_draws_never_change() -> None:
    found = ask(real_raw(RAW))
    assert [hashlib.sha256(part.astype("<i8").tobytes()).hexdigest()[:16] for part in parts(found)] == [
        "599892fccaae38d9",
        "9d29f5b5026342a1",
        "ad3f06fbc0562b7d",
    ]
    assert hashlib.sha256(found.panel.times.astype("<i8").tobytes()).hexdigest()[:16] == "aa2712752b92da1d"
