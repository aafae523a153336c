"""BIDMC: both forms of its files, windows and targets cut from recordings, and splits by window and by patient."""

import hashlib
import re
import tarfile
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real import raw, real

from lformer.data import bidmc
from lformer.data.bidmc import HR, LENGTH, RATE, RR, SPO2
from lformer.data.dataset import Dataset, Request
from lformer.data.files import DataError, Files
from lformer.parts import Prepared
from lformer.splitting import by_group

Array = np.ndarray[Any, Any]

NPZ = "bidmc/bidmc.npz"
with_data = pytest.mark.skipif(not real(NPZ), reason="raw file not at hand: set LFORMER_DATA")


def ask(dataset: Dataset, arrays: dict[str, Array], **changes: Any) -> Prepared:
    asked: dict[str, Any] = {"task": "regress", "seed": 0, "split": "published", "scaling": "published"}
    assert dataset.prepare is not None
    return dataset.prepare(arrays, Request(**{**asked, **changes}))


def pack(dataset: Dataset, path: Path) -> dict[str, Array]:
    assert dataset.pack is not None
    return dataset.pack(Files(path))


def toy(records: int = 8, windows: int = 3, seed: int = 0) -> dict[str, Array]:
    """Raw arrays of short recordings, two for each patient."""
    rng = np.random.default_rng(seed)
    samples = LENGTH + 3 * RATE * (windows - 1) + 1
    seconds = 32 + 3 * (windows - 1) + 2
    return {
        "record": np.array([f"bidmc{k + 1:02d}" for k in range(records)]),
        "fs": np.array(125, np.int32),
        **{key: rng.normal(5, 3, (records, samples)).astype(np.float32) for key in ("ppg", "resp", "ecg_ii")},
        "numerics": rng.integers(10, 90, (records, seconds, 4)).astype(np.float32),
        "numerics_names": np.array(["HR", "PULSE", "RESP", "SpO2"]),
        "numerics_t0_s": np.zeros(records, np.int32),
        **{key: np.array([str(k) for k in range(records)]) for key in ("age", "gender", "location")},
        "mimic2_subject": np.array([f"s{k // 2}" for k in range(records)]),
    }


# -- files of PhysioNet

SHORT, SECONDS = 30, 5


def signals(number: int) -> list[str]:
    """A table whose columns stand in the order of that recording."""
    order = ["RESP", "PLETH", "V", "AVR", "II"] if number % 2 else ["PLETH", "ABP", "RESP", "II", "V", "AVR"]
    value = {"PLETH": 1, "RESP": 2, "II": 3, "ABP": 90, "V": 5, "AVR": 6}
    rows = [
        f"{float(f'{i / RATE:.5g}'):g}," + ",".join(f"{value[name] + number + i / 1000:.5g}" for name in order)
        for i in range(SHORT)
    ]
    return [", ".join(["Time [s]", *order]), *rows]


def numerics(number: int) -> list[str]:
    start = -1 if number == 2 else 0
    rows = [f"{start + i},{60 + number},{61 + number},{'NaN' if i == 3 else 18},{90 + i}" for i in range(SECONDS)]
    return ["Time [s], HR, PULSE, RESP, SpO2", *rows]


def fixed(number: int) -> list[str]:
    return [
        f"bidmc_{number:02d}", "Signals: RESP; PLETH; V; AVR; II", "Signals sampling frequency: 125 Hz",
        f"Age: {'90+' if number == 1 else 40 + number}", "Gender: F", "Location: micu",
        f"MIMIC II matched wdb ID: s0{number}", "Original overall header file: http://physionet.org/x.hea",
    ]  # fmt: skip


def release(numbers: tuple[int, ...] = (1, 2, 10), end: str = "\n") -> dict[str, str]:
    """Files of the CSV release by name."""
    kinds = (("Signals.csv", signals), ("Numerics.csv", numerics), ("Fix.txt", fixed))
    return {f"bidmc_{n:02d}_{name}": end.join(lines(n)) + end for n in numbers for name, lines in kinds}


def write(folder: Path, content: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in content.items():
        (folder / name).write_bytes(text.encode())
    return folder


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bidmc, "SAMPLES", SHORT)
    monkeypatch.setattr(bidmc, "SECONDS", SECONDS)


def check_release(arrays: dict[str, Array]) -> None:
    assert arrays["record"].tolist() == ["bidmc01", "bidmc02", "bidmc10"]
    assert arrays["ppg"].shape == arrays["resp"].shape == arrays["ecg_ii"].shape == (3, SHORT)
    np.testing.assert_allclose(arrays["ppg"][:, 0], [2, 3, 11])
    np.testing.assert_allclose(arrays["resp"][:, 0], [3, 4, 12])
    np.testing.assert_allclose(arrays["ecg_ii"][:, -1], [4.029, 5.029, 13.029], rtol=1e-4)
    assert int(arrays["fs"]) == 125
    assert arrays["numerics"].shape == (3, SECONDS, 4)
    assert arrays["numerics"][:, 0].tolist() == [[61, 62, 18, 90], [62, 63, 18, 90], [70, 71, 18, 90]]
    assert np.isnan(arrays["numerics"]).sum(axis=(0, 1)).tolist() == [0, 0, 3, 0]
    assert arrays["numerics_t0_s"].tolist() == [0, -1, 0]
    assert arrays["numerics_names"].tolist() == ["HR", "PULSE", "RESP", "SpO2"]
    assert arrays["age"].tolist() == ["90+", "42", "50"]
    assert arrays["mimic2_subject"].tolist() == ["s01", "s02", "s010"]
    assert {arrays[name].dtype.name for name in ("ppg", "resp", "ecg_ii", "numerics")} == {"float32"}
    assert not any(array.dtype.hasobject for array in arrays.values())


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_the_csv_release_is_read(tmp_path: Path, end: str) -> None:
    arrays = pack(HR, write(tmp_path / "bidmc_csv", release(end=end)))
    check_release(arrays)
    assert arrays.keys() == toy().keys()
    assert [dataset.raw_name(arrays) for dataset in (HR, RR, SPO2)] == [NPZ] * 3
    assert HR.missing(arrays) == "3 of 53 recordings"


@pytest.mark.usefixtures("short")
def test_the_csv_release_is_read_from_archives(tmp_path: Path) -> None:
    folder = write(tmp_path / "bidmc_csv", release())
    with zipfile.ZipFile(tmp_path / "bidmc.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"bidmc-ppg-and-respiration-dataset-1.0.0/bidmc_csv/{file.name}")
        archive.writestr("bidmc-ppg-and-respiration-dataset-1.0.0/bidmc01.hea", "bidmc01 5 125")
    with tarfile.open(tmp_path / "bidmc.tar.gz", "w:gz") as archive:
        archive.add(folder, "bidmc_csv")
    check_release(pack(RR, tmp_path / "bidmc.zip"))
    check_release(pack(SPO2, tmp_path / "bidmc.tar.gz"))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (
            "bidmc_02_Signals.csv",
            "\n0.008,",
            "\n0.008,x",
            "line 3: expected 7 numbers separated by commas, got '0.008,x",
        ),
        ("bidmc_02_Signals.csv", "\n0.008,", "\n0.008,1,", "line 3: expected 7 numbers"),
        ("bidmc_02_Signals.csv", "\n0.016,3.002", "\n0.016,NaN", "line 4: expected a number for each signal"),
        ("bidmc_02_Signals.csv", "\n0.016,", "\n0.5,", "line 4: expected the sample at 0.016 s, got 0.5 s"),
        ("bidmc_02_Signals.csv", "PLETH", "PPG", "line 1: expected one column 'PLETH', got Time [s], PPG"),
        ("bidmc_02_Signals.csv", "ABP", "II", "line 1: expected one column 'II'"),
        (
            "bidmc_02_Numerics.csv",
            "\n0,",
            "\n7,",
            "line 3: expected whole seconds, one after the other; row 2 is at 7.0",
        ),
        ("bidmc_02_Numerics.csv", "\n-1,", "\n-0.5,", "line 2: expected whole seconds"),
        ("bidmc_02_Numerics.csv", "62,63,18,91", "62,63,18", "line 3: expected 5 numbers"),
        ("bidmc_02_Fix.txt", "MIMIC II matched wdb ID: s02", "", "expected a line 'MIMIC II matched wdb ID: ...'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, file: str, old: str, new: str, says: str) -> None:
    content = release()
    assert old in content[file]
    content[file] = content[file].replace(old, new, 1)
    with pytest.raises(DataError, match=rf"{file}, .*{re.escape(says)}"):
        pack(HR, write(tmp_path / "csv", content))


@pytest.mark.usefixtures("short")
def test_the_line_of_an_error_counts_blank_lines(tmp_path: Path) -> None:
    content = release()
    content["bidmc_01_Signals.csv"] = content["bidmc_01_Signals.csv"].replace("\n0.016,", "\n\n0.5,")
    with pytest.raises(DataError, match="line 5: expected the sample at"):
        pack(HR, write(tmp_path / "csv", content))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("file", ["bidmc_10_Signals.csv", "bidmc_10_Numerics.csv", "bidmc_10_Fix.txt"])
def test_files_cut_short_empty_or_absent_are_errors(tmp_path: Path, file: str) -> None:
    content = release()
    folder = write(tmp_path / "csv", content)
    (folder / file).write_text(content[file][: len(content[file]) // 2])
    with pytest.raises(DataError, match=file):
        pack(HR, folder)
    (folder / file).write_text("")
    with pytest.raises(DataError, match=file):
        pack(HR, folder)
    (folder / file).unlink()
    with pytest.raises(DataError, match=f"{file} is missing"):
        pack(HR, folder)


@pytest.mark.usefixtures("short")
def test_a_row_less_or_a_recording_twice_is_an_error(tmp_path: Path) -> None:
    content = release()
    lines = content["bidmc_01_Signals.csv"].splitlines()
    content["bidmc_01_Signals.csv"] = "\n".join(lines[:-1])
    with pytest.raises(DataError, match=f"bidmc_01_Signals.csv, line {SHORT}: expected {SHORT} rows, got {SHORT - 1}"):
        pack(HR, write(tmp_path / "less", content))
    twice = write(tmp_path / "twice", release())
    write(twice / "copy", release((1,)))
    with pytest.raises(DataError, match=r"expected one bidmc_.*_Signals\.csv per recording"):
        pack(HR, twice)


# -- files of the regression archive

HEADER = "@problemName BIDMC32HR\n@timeStamps false\n@missing false\n@univariate false\n@dimensions 2\n"
HEADER += "@equalLength true\n@seriesLength 4000\n@targetlabel true\n@data\n"


def ts(windows: Array, targets: list[float]) -> str:
    lines = [
        ":".join(",".join(map(str, c)) for c in w) + f":{y}" for w, y in zip(windows.tolist(), targets, strict=True)
    ]
    return HEADER + "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def windows() -> Array:
    return np.random.default_rng(0).normal(size=(5, 2, LENGTH)).round(4)


def test_the_archive_is_read(tmp_path: Path, windows: Array) -> None:
    folder = write(tmp_path / "BIDMC32HR", {"BIDMC32HR_TRAIN.ts": ts(windows[:3], [60.5, 61, 62])})
    half = pack(HR, folder)
    assert HR.missing(half) == "3 of 7,949 windows (the archive's TRAIN half only)"
    write(folder, {"BIDMC32HR_TEST.ts": ts(windows[3:], [63, 64]), **release((1,))})  # the archive's windows win
    arrays = pack(HR, folder)
    assert arrays.keys() == {"X", "y", "split"}
    assert np.array_equal(arrays["X"], windows.astype(np.float32))
    assert arrays["X"].dtype == arrays["y"].dtype == np.float32
    assert arrays["y"].tolist() == [60.5, 61, 62, 63, 64]
    assert arrays["split"].tolist() == ["TRAIN"] * 3 + ["TEST"] * 2
    assert HR.raw_name(arrays) == "bidmc/bidmc32hr.npz"
    assert HR.missing(arrays) == "5 of 7,949 windows"


def test_each_set_reads_its_own_files(tmp_path: Path, windows: Array) -> None:
    folder = write(
        tmp_path / "all", {f"BIDMC32{n}_TRAIN.ts": ts(windows[:1], [y]) for n, y in (("RR", 17), ("SpO2", 97))}
    )
    assert pack(RR, folder)["y"].tolist() == [17]
    assert pack(SPO2, folder)["y"].tolist() == [97]
    assert [d.card.raw[0] for d in (HR, RR, SPO2)] == [f"bidmc/bidmc32{n}.npz" for n in ("hr", "rr", "spo2")]
    with pytest.raises(DataError, match=r"expected BIDMC32HR_TRAIN\.ts and BIDMC32HR_TEST\.ts.*found neither"):
        pack(HR, folder)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (":63\n", ":?\n", "BIDMC32HR_TEST.ts"),
        ("@seriesLength 4000\n", "", "expected windows of 2 channels and 4,000 values"),
        (
            "@targetlabel true",
            "@classLabel true 63 64",
            "expected windows of 2 channels and 4,000 values with a number",
        ),
    ],
)
def test_a_damaged_archive_is_an_error(tmp_path: Path, windows: Array, old: str, new: str, says: str) -> None:
    chosen = windows[3:, :, :-1] if "Length" in old else windows[3:]
    text = ts(chosen, [63, 64])
    assert old in text
    folder = write(tmp_path / "ts", {"BIDMC32HR_TRAIN.ts": ts(windows[:3], [60.5, 61, 62])})
    write(folder, {"BIDMC32HR_TEST.ts": text.replace(old, new)})
    with pytest.raises(DataError, match=says):
        pack(HR, folder)


def test_missing_values_in_the_archive_are_an_error(tmp_path: Path, windows: Array) -> None:
    text = ts(windows[:2], [63, 64]).replace(f"\n{windows[1, 0, 0]},", "\n?,")
    with pytest.raises(DataError, match=r"BIDMC32HR_TRAIN.ts: expected numbers only; window 2 has missing values"):
        pack(HR, write(tmp_path / "ts", {"BIDMC32HR_TRAIN.ts": text}))


def test_windows_of_the_archive_are_prepared(windows: Array) -> None:
    arrays = {
        "X": windows.astype(np.float32),
        "y": np.arange(60, 65, dtype=np.float32),
        "split": np.array(["TRAIN"] * 5),
    }
    prepared = ask(HR, arrays, scaling="none")
    batch = prepared.panel.batch([4])
    assert np.array_equal(batch.values[0].numpy(), arrays["X"][4].T)
    np.testing.assert_allclose(batch.times[0].numpy(), np.linspace(0, 1, LENGTH), atol=1e-12)
    assert prepared.targets.values.tolist() == [[60], [61], [62], [63], [64]]
    assert [len(part) for part in (prepared.train, prepared.validation, prepared.test)] == [3, 1, 1]
    with pytest.raises(DataError, match=r"by subject needs the recordings of PhysioNet, bidmc/bidmc\.npz"):
        ask(HR, arrays, split="subject")


# -- windows cut from recordings


def test_a_window_is_the_recording_from_its_second_on() -> None:
    arrays = toy()
    prepared = ask(HR, arrays, scaling="none")
    panel = prepared.panel
    assert panel.shape == (24, 4000, 2)
    assert panel.channels == ("PPG", "ECG")
    assert panel.ids[:4].tolist() == ["bidmc01+000s", "bidmc01+003s", "bidmc01+006s", "bidmc02+000s"]
    batch = panel.batch([7])  # the second window of the third recording
    assert np.array_equal(batch.values[0, :, 0].numpy(), arrays["ppg"][2, 375:4375])
    assert np.array_equal(batch.values[0, :, 1].numpy(), arrays["ecg_ii"][2, 375:4375])
    np.testing.assert_allclose(batch.times[0].numpy(), np.linspace(0, 1, LENGTH), atol=1e-12)
    assert panel.ids[7] == "bidmc03+003s"
    assert panel.static is None  # a model must not read whose windows they are
    assert panel.values.shape == (arrays["ppg"].size, 2)  # rows are shared


@pytest.mark.parametrize(("dataset", "column"), [(HR, 0), (RR, 2), (SPO2, 3)])
def test_the_target_is_the_mean_over_the_window(dataset: Dataset, column: int) -> None:
    arrays = toy()
    values = ask(dataset, arrays).targets.values
    assert values.shape == (24, 1)
    assert values.dtype == np.float32
    expected = [arrays["numerics"][r, 3 * k : 3 * k + 32, column].mean(dtype=float) for r in range(8) for k in range(3)]
    np.testing.assert_allclose(values[:, 0], expected, rtol=1e-6)


def test_seconds_without_a_value_do_not_count() -> None:
    arrays = toy()
    arrays["numerics"][0, :31, 0] = np.nan
    arrays["numerics"][1, :32, 0] = np.nan
    prepared = ask(HR, arrays)
    assert "bidmc02+000s" not in prepared.panel.ids  # nothing was shown during it
    assert len(prepared.panel) == 23
    assert prepared.targets.values[0, 0] == arrays["numerics"][0, 31, 0]


def test_a_window_without_a_breath_goes() -> None:
    arrays = toy()
    arrays["numerics"][3, :32, 2] = 0
    arrays["numerics"][4, :31, 2] = 0
    ids = ask(RR, arrays).panel.ids
    assert len(ids) == 23
    assert "bidmc04+000s" not in ids
    assert "bidmc05+000s" in ids
    assert len(ask(HR, arrays).panel) == 24


def test_a_monitor_that_started_early_is_read_by_its_clock_and_lacks_the_last_window() -> None:
    arrays = toy()
    arrays["numerics_t0_s"][5] = -1
    prepared = ask(HR, arrays)
    assert "bidmc06+006s" not in prepared.panel.ids
    assert len(prepared.panel) == 23
    at = prepared.panel.ids.tolist().index("bidmc06+003s")
    assert prepared.targets.values[at, 0] == np.float32(arrays["numerics"][5, 4:36, 0].mean(dtype=float))


def subjects(prepared: Prepared, arrays: dict[str, Array]) -> Array:
    """Whose window each is, by the recording in its name."""
    of = dict(zip(arrays["record"].tolist(), arrays["mimic2_subject"].tolist(), strict=True))
    return np.array([of[name.split("+")[0]] for name in prepared.panel.ids.tolist()])


def test_the_parts_share_no_window_and_the_published_split_ignores_the_seed() -> None:
    prepared, other = ask(HR, toy(), seed=1), ask(HR, toy(), seed=2)
    everything = np.concatenate([prepared.train, prepared.validation, prepared.test])
    assert np.array_equal(np.sort(everything), np.arange(24))
    assert [len(part) for part in (prepared.train, prepared.validation, prepared.test)] == [16, 4, 4]
    assert np.array_equal(prepared.train, other.train)


def test_by_subject_the_seed_moves_whole_patients() -> None:
    arrays = toy(20)
    prepared = ask(HR, arrays, split="subject", seed=1)
    subject = subjects(prepared, arrays)
    parts = [set(subject[part]) for part in (prepared.train, prepared.validation, prepared.test)]
    assert [len(part) for part in parts] == [7, 1, 2]
    assert len(set.union(*parts)) == 10
    for ours, expected in zip((prepared.train, prepared.validation, prepared.test), by_group(subject, 1), strict=True):
        assert np.array_equal(ours, expected)
    assert not np.array_equal(prepared.train, ask(HR, arrays, split="subject", seed=2).train)


@pytest.mark.parametrize("scaling", ["published", "standard", "minmax"])
def test_scaling_knows_the_training_windows_alone(scaling: str) -> None:
    arrays = toy()
    before = ask(HR, arrays, scaling=scaling, split="subject")
    tested = np.isin(arrays["mimic2_subject"], subjects(before, arrays)[before.test])
    changed = {**arrays, "ppg": np.where(tested[:, None], 1000, arrays["ppg"]).astype(np.float32)}
    after = ask(HR, changed, scaling=scaling, split="subject")
    rows = before.panel[before.train].rows()
    assert np.array_equal(before.panel.values[rows], after.panel.values[rows])
    assert not np.array_equal(before.panel.values, after.panel.values)
    seen = before.panel.values[rows].astype(float)  # a row as often as training sees it
    if scaling == "minmax":
        assert seen.min(axis=0).tolist() == [0, 0]
        assert seen.max(axis=0).tolist() == [1, 1]
    else:
        np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-6)
        np.testing.assert_allclose(seen.std(axis=0), 1, atol=1e-6)


def test_by_hand_and_the_card_name_each_set() -> None:
    assert [dataset.card.name for dataset in (HR, RR, SPO2)] == ["bidmc-hr", "bidmc-rr", "bidmc-spo2"]
    for dataset in (HR, RR, SPO2):
        assert dataset.card.by_hand.endswith(f"`lformer data pack {dataset.card.name} PATH`.")
        assert dataset.card.raw[1] == NPZ


# -- the real set


@cache
def real_arrays() -> dict[str, Array]:
    return raw(NPZ)


@cache
def real_set(name: str, split: str = "published") -> Prepared:
    return ask({"HR": HR, "RR": RR, "SPO2": SPO2}[name], real_arrays(), split=split)


@with_data
@pytest.mark.parametrize(
    ("name", "parts", "low", "high"),
    [
        ("HR", [5564, 1192, 1193], 50, 130),
        ("RR", [5509, 1180, 1181], 0, 30),
        ("SPO2", [5564, 1192, 1193], 80, 100),
    ],
)
def test_the_set_has_the_published_counts(name: str, parts: list[int], low: float, high: float) -> None:
    prepared = real_set(name)
    dataset = {"HR": HR, "RR": RR, "SPO2": SPO2}[name]
    assert dataset.missing(real_arrays()) == ""
    assert prepared.panel.shape == (dataset.card.series, 4000, 2)
    assert dataset.card.series == sum(parts)
    found = (prepared.train, prepared.validation, prepared.test)
    assert [len(part) for part in found] == parts
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(sum(parts)))
    assert prepared.targets.values.shape == (sum(parts), 1)
    assert low < prepared.targets.values.min()
    assert prepared.targets.values.max() <= high
    assert prepared.panel.values.nbytes == 53 * 60_001 * 2 * 4


@with_data
def test_the_missing_windows_are_the_known_ones() -> None:
    hr, rr = (real_set(name).panel for name in ("HR", "RR"))
    counts = Counter(name.split("+")[0] for name in hr.ids.tolist())
    assert len(counts) == 53
    assert counts.pop("bidmc23") == 149
    assert set(counts.values()) == {150}
    gone = set(hr.ids.tolist()) - set(rr.ids.tolist())
    assert len(gone) == 79
    assert {name.split("+")[0] for name in gone} == {"bidmc13"}


@with_data
@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("HR", "734d92f48aed2c9cc27664da6e3a9d181a038aab0797b80354e5247702c4befa"),
        ("RR", "5f1274fa9c82a825aaeb5727547c1080f35570cafdc40d8bd73cdc73db783f78"),
    ],
)
def test_the_split_is_frozen(name: str, digest: str) -> None:
    prepared = real_set(name)
    found = hashlib.sha256()
    for part in (prepared.train, prepared.validation, prepared.test):
        found.update(part.astype("<i8").tobytes())
    assert found.hexdigest() == digest


@with_data
def test_the_split_by_subject_keeps_46_patients_apart() -> None:
    prepared = real_set("HR", "subject")
    subject = subjects(prepared, real_arrays())
    found = (prepared.train, prepared.validation, prepared.test)
    parts = [set(subject[part]) for part in found]
    assert [len(part) for part in parts] == [32, 7, 7]
    assert len(set.union(*parts)) == 46
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(7949))
    digest = hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in found)).hexdigest()
    assert digest == "c448dd87d6665147d6675c4d318b6fcbc7deb153768c94a0c7fde4b5acc8d4f4"


@with_data
def test_the_training_windows_are_standardised() -> None:
    prepared = real_set("HR")
    batch = prepared.panel.batch(prepared.train[::40]).values.double()
    assert batch.mean(dim=(0, 1)).abs().max() < 0.2
    assert (batch.std(dim=(0, 1)) - 1).abs().max() < 0.2
    rows = prepared.panel[prepared.train]
    weight = np.zeros(len(rows.times))
    for first in rows.first:
        weight[first : first + LENGTH] += 1
    values = rows.values.astype(float)
    mean = np.average(values, axis=0, weights=weight)
    np.testing.assert_allclose(mean, 0, atol=1e-6)
    np.testing.assert_allclose(np.average((values - mean) ** 2, axis=0, weights=weight), 1, atol=1e-5)
