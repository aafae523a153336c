"""The six UEA sets: from the archive's files to raw arrays and on to the published protocol."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real import raw, real

from lformer.data import uea
from lformer.data.dataset import Dataset, Request, Scaling
from lformer.data.files import DataError, Files
from lformer.parts import Prepared

Array = np.ndarray[Any, Any]

TOY = uea.dataset("toy", uea.Source(name="Toy", series=5, channels=2, length=3, classes=2), "nobody")
TRAIN = np.array([[[0.5, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11.25]], [[-1, 0, 1], [2, 3, 4]]])
TEST = np.array([[[2, 2, 2], [3, 3, 3]], [[0, 0, 0], [1, 1, 1.5]]])
LABELS = {"TRAIN": ["up", "down", "up"], "TEST": ["down", "up"]}


def request(seed: int = 42, scaling: Scaling = "published", split: str = "published") -> Request:
    return Request(task="classify", seed=seed, split=split, scaling=scaling)


def run(series: Array) -> list[str]:
    return [",".join(f"{value:.10g}" for value in channel) for channel in series]


def ts(values: Array, labels: list[str], classes: str = "up down", name: str = "Toy") -> str:
    rows = (":".join([*run(series), label]) for series, label in zip(values, labels, strict=True))
    return "\n".join([f"@problemName {name}", f"@classLabel true {classes}", "@data", *rows]) + "\n"


def relational(values: Array, labels: list[str]) -> str:
    head = "@relation Toy\n@attribute x relational\n@attribute a numeric\n@end x\n@attribute c {down,up}\n@data\n"
    rows = ("'" + r"\n".join(run(series)) + f"',{label}" for series, label in zip(values, labels, strict=True))
    return head + "\n".join(rows) + "\n"


def one_channel(values: Array, labels: list[str], channel: int) -> str:
    head = "@relation Toy\n" + "".join(f"@attribute t{i} numeric\n" for i in range(values.shape[2]))
    rows = (f"{run(series)[channel]},{label}" for series, label in zip(values, labels, strict=True))
    return head + "@attribute c {up,down}\n@data\n" + "\n".join(rows) + "\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


def as_ts(folder: Path, test: Array = TEST, classes: str = "up down") -> Path:
    train = ts(TRAIN, LABELS["TRAIN"], classes)
    return write(folder, {"Toy_TRAIN.ts": train, "Toy_TEST.ts": ts(test, LABELS["TEST"][: len(test)])})


def as_relational(folder: Path) -> Path:
    train, test = relational(TRAIN, LABELS["TRAIN"]), relational(TEST, LABELS["TEST"])
    return write(folder, {"Toy_TRAIN.arff": train, "Toy_TEST.arff": test})


def as_channels(folder: Path) -> Path:
    for channel in (0, 1):
        train, test = (one_channel(v, LABELS[p], channel) for v, p in ((TRAIN, "TRAIN"), (TEST, "TEST")))
        stem = f"ToyDimension{channel + 1}"
        write(folder, {f"{stem}_TRAIN.arff": train, f"{stem}_TEST.arff": test})
    return folder


def pack(path: Path) -> dict[str, Array]:
    assert TOY.pack is not None
    return TOY.pack(Files(path))


# -- pack


@pytest.mark.parametrize("form", [as_ts, as_relational, as_channels])
def test_every_form_of_the_archive_gives_the_same_raw_arrays(form: Any, tmp_path: Path) -> None:
    packed = pack(form(tmp_path / "download"))
    assert list(packed) == ["X_e2", "y", "classes", "split"]
    assert packed["X_e2"].dtype == np.int16
    np.testing.assert_array_equal(packed["X_e2"] / 100, np.concatenate([TRAIN, TEST]))
    assert packed["y"].dtype == np.int8
    assert packed["y"].tolist() == [1, 0, 1, 0, 1]
    assert packed["classes"].tolist() == ["down", "up"]
    assert packed["split"].tolist() == ["TRAIN"] * 3 + ["TEST"] * 2


def test_pack_finds_the_files_in_a_zip_and_prefers_ts(tmp_path: Path) -> None:
    as_ts(tmp_path)
    with zipfile.ZipFile(tmp_path / "Toy.zip", "w") as archive:
        archive.writestr("Multivariate/Toy/Toy_TRAIN.arff", "broken")
        archive.writestr("Multivariate/Toy/ToyDimension1_TEST.arff", "broken")
        archive.writestr("__MACOSX/Toy/._Toy_TRAIN.ts", "broken")
        for part in ("TRAIN", "TEST"):
            content = (tmp_path / f"Toy_{part}.ts").read_text().replace("\n", "\r\n")
            archive.writestr(f"Multivariate/Toy/Toy_{part}.ts", content)
    np.testing.assert_array_equal(pack(tmp_path / "Toy.zip")["X_e2"] / 100, np.concatenate([TRAIN, TEST]))


def test_a_damaged_zip_is_an_error(tmp_path: Path) -> None:
    as_ts(tmp_path)
    with zipfile.ZipFile(tmp_path / "Toy.zip", "w") as archive:
        for part in ("TRAIN", "TEST"):
            archive.write(tmp_path / f"Toy_{part}.ts", f"Toy_{part}.ts")
    content = bytearray((tmp_path / "Toy.zip").read_bytes())
    place = content.index(b"11.25")
    content[place : place + 2] = b"99"
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        pack(tmp_path / "bad.zip")


def test_pack_names_file_and_line_of_a_bad_value(tmp_path: Path) -> None:
    as_ts(tmp_path)
    file = tmp_path / "Toy_TEST.ts"
    file.write_text(file.read_text().replace("1.5", "1.5.5"))
    with pytest.raises(DataError, match=r"Toy_TEST\.ts, line 5: channel 2, value 3: .*'1\.5\.5'"):
        pack(tmp_path)


def test_pack_refuses_what_is_not_the_whole_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected 5 series of Toy, got 3 in TRAIN and 1 in TEST"):
        pack(as_ts(tmp_path / "short", TEST[:1]))
    with pytest.raises(DataError, match=r"TEST to have \(channels, length, classes\) \(2, 3, 2\), got \(1, 3, 2\)"):
        pack(as_ts(tmp_path / "narrow", TEST[:, :1]))
    with pytest.raises(DataError, match=r"got \(2, 2, 2\)"):
        pack(as_ts(tmp_path / "brief", TEST[:, :, :2]))
    with pytest.raises(DataError, match=r"TRAIN to have .*, got \(2, 3, 3\)"):
        pack(as_ts(tmp_path / "classes", classes="up down left"))
    other_classes = as_ts(tmp_path / "names")
    write(other_classes, {"Toy_TRAIN.ts": ts(TRAIN, ["up"] * 3, classes="up left")})
    with pytest.raises(DataError, match="TRAIN has the classes"):
        pack(other_classes)
    half = as_ts(tmp_path / "half")
    (half / "Toy_TEST.ts").unlink()
    with pytest.raises(DataError, match=r"expected Toy_TEST\.ts, Toy_TEST\.arff or ToyDimension1_TEST\.arff"):
        pack(half)
    twice = as_ts(tmp_path / "twice")
    as_ts(twice / "copy")
    with pytest.raises(DataError, match=r"expected one Toy_TRAIN\.ts .*copy/Toy_TRAIN\.ts"):
        pack(twice)


@pytest.mark.parametrize(
    ("values", "key", "dtype"),
    [
        ([1.0, -3.0], "X_e0", np.int16),
        ([0.1, 327.67], "X_e2", np.int16),
        ([0.1, 327.68], "X_e2", np.int32),
        ([0.000001, -2147.0], "X_e6", np.int32),
        ([0.03125, 1000.0], "X_32", np.int16),
        ([0.03125, 2000.0], "X_e5", np.int32),
        ([0.0000001, 1.0], "X", np.float64),
        ([2.0**-20, 3.0e9], "X", np.float32),
        ([1.0, float("nan")], "X", np.float32),
        ([0.1, float("nan")], "X", np.float64),
        ([1e300, 1.0], "X", np.float64),
    ],
)
def test_values_are_stored_in_the_smallest_exact_form(values: list[float], key: str, dtype: Any) -> None:
    whole = np.array(values).reshape(2, 1, 1)
    ((found, stored),) = uea._compact(whole).items()
    assert (found, stored.dtype) == (key, dtype)
    np.testing.assert_array_equal(stored / uea.UNITS.get(key, 1), whole)


# -- prepare


def made(n: int = 20, **arrays: Array) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {"X": rng.normal(3, 2, (n, 2, 3)), "y": np.arange(n) % 2, "split": np.repeat("TRAIN", n), **arrays}


def digest(prepared: Prepared) -> str:
    parts = (prepared.train, prepared.validation, prepared.test)
    return hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts)).hexdigest()[:16]


def check_parts(prepared: Prepared, sizes: tuple[int, int, int]) -> None:
    parts = (prepared.train, prepared.validation, prepared.test)
    assert tuple(len(part) for part in parts) == sizes
    assert sorted(np.concatenate(parts).tolist()) == list(range(sum(sizes)))
    assert len(prepared.panel) == len(prepared.targets.values) == sum(sizes)


def test_rows_are_time_points_and_columns_channels() -> None:
    arrays = made()
    prepared = TOY.prepare(arrays, request())
    assert prepared.panel.channels == ("0", "1")
    assert prepared.panel.unit == ""
    assert prepared.panel.observed is None
    assert prepared.panel.values.dtype == np.float32
    for i, (times, values) in enumerate(prepared.panel):
        assert times.tolist() == [0, 0.5, 1]
        np.testing.assert_array_equal(values, arrays["X"][i].T.astype(np.float32))
    assert prepared.targets.at == "series"
    assert prepared.targets.values.dtype == np.int64
    assert prepared.targets.values.tolist() == [0, 1] * 10
    check_parts(prepared, (14, 3, 3))


@pytest.mark.parametrize(("key", "unit"), [("X_e0", 1), ("X_e2", 100), ("X_e6", 10**6), ("X_32", 32)])
def test_whole_numbers_give_the_values_back(key: str, unit: int) -> None:
    whole = np.random.default_rng(1).integers(-(2**31), 2**31, (20, 2, 3)).astype(np.int32)
    arrays = {"y": np.zeros(20, np.int8), key: whole}
    expected = (whole / unit).astype(np.float32)
    np.testing.assert_array_equal(TOY.prepare(arrays, request()).panel.to_array()[0], expected.swapaxes(1, 2))


def test_channels_may_come_last() -> None:
    arrays = made()
    arrays["X"][7] = arrays["X"][2]
    turned = {**arrays, "X": np.ascontiguousarray(arrays["X"].swapaxes(1, 2))}
    expected, found = (TOY.prepare(a, request()) for a in (arrays, turned))
    np.testing.assert_array_equal(found.panel.values, expected.panel.values)
    assert found.panel.ids.tolist() == [i for i in range(20) if i != 7]


def test_copies_are_dropped_and_the_first_stays() -> None:
    arrays = made()
    arrays["X"][[3, 7, 19]] = arrays["X"][[9, 2, 2]]  # 3 comes before 9, so 9 goes; 7 and 19 are copies of 2
    arrays["X"][11] = -arrays["X"][11]
    arrays["X"][12] = arrays["X"][13] + [[0, 0, 0], [0, 0, 1e-9]]  # nearly equal is not equal
    arrays["X"][14], arrays["X"][15] = 0.0, -0.0
    prepared = TOY.prepare(arrays, request())
    kept = [i for i in range(20) if i not in (7, 9, 15, 19)]
    assert prepared.panel.ids.tolist() == kept
    assert prepared.targets.values.tolist() == arrays["y"][kept].tolist()
    np.testing.assert_array_equal(prepared.panel.to_array()[0], arrays["X"][kept].swapaxes(1, 2).astype(np.float32))
    check_parts(prepared, (11, 2, 3))


def test_eigenworms_loses_23_copies() -> None:
    values = np.random.default_rng(2).integers(-9, 9, (259, 6, 17_984), np.int16)
    values[230:253] = values[:23]
    prepared = uea.EIGENWORMS.prepare({"X_e2": values, "y": np.zeros(259, np.int8)}, request())
    assert prepared.panel.ids.tolist() == [*range(230), *range(253, 259)]
    check_parts(prepared, (165, 35, 36))


def test_missing_values_are_not_observed() -> None:
    arrays = made()
    arrays["X"][4, 1, 2] = np.nan
    panel = TOY.prepare(arrays, request(scaling="standard")).panel
    assert panel.observed is not None
    assert np.argwhere(~panel.observed).tolist() == [[4 * 3 + 2, 1]]
    assert panel.values[4 * 3 + 2, 1] == 0


def test_the_split_is_drawn_anew_for_every_seed_and_stays_for_ever() -> None:
    arrays = made(100)
    found = {seed: digest(TOY.prepare(arrays, request(seed))) for seed in (42, 43)}
    assert found == {42: "46f01d97f8ab4830", 43: "64d8f2d6c885933a"}


def test_published_is_unscaled() -> None:
    published, none = (TOY.prepare(made(), request(scaling=s)).panel.values for s in ("published", "none"))
    np.testing.assert_array_equal(published, none)


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
def test_statistics_come_from_the_training_part_alone(scaling: Scaling) -> None:
    arrays = made()
    before = TOY.prepare(arrays, request(scaling=scaling))
    train = before.panel[before.train].to_array()[0].astype(np.float64)
    if scaling == "standard":
        np.testing.assert_allclose(train.mean(axis=(0, 1)), 0, atol=1e-6)
        np.testing.assert_allclose(train.std(axis=(0, 1)), 1, atol=1e-6)
    else:
        assert train.min(axis=(0, 1)).tolist() == [0, 0]
        assert train.max(axis=(0, 1)).tolist() == [1, 1]
    outside = np.concatenate([before.validation, before.test])
    moved = {**arrays, "X": arrays["X"].copy()}
    moved["X"][outside] += 1000
    after = TOY.prepare(moved, request(scaling=scaling))
    np.testing.assert_array_equal(after.panel[before.train].to_array()[0], before.panel[before.train].to_array()[0])
    assert (after.panel[outside].to_array()[0] > before.panel[outside].to_array()[0] + 10).all()


def test_wrong_raw_arrays_are_errors() -> None:
    with pytest.raises(DataError, match=r"Toy: expected one of the arrays X, .*, got y"):
        TOY.prepare({"y": np.zeros(2)}, request())
    with pytest.raises(DataError, match=r"expected X of shape \(20, 2, 3\), got \(20, 3, 3\)"):
        TOY.prepare(made(X=np.zeros((20, 3, 3))), request())
    with pytest.raises(DataError, match=r"expected X of shape \(19, 2, 3\)"):
        TOY.prepare(made(y=np.zeros(19)), request())
    for wrong in (2, -1):
        with pytest.raises(DataError, match="expected y from 0 to 1"):
            TOY.prepare(made(y=np.full(20, wrong)), request())


def test_what_is_missing_is_said() -> None:
    assert TOY.missing(made(5)) == ""
    assert TOY.missing(made(3)) == "3 of 5 series (the archive's TRAIN half only)"
    assert TOY.missing(made(4, split=np.array(["TRAIN", "TEST"] * 2))) == "4 of 5 series"
    assert TOY.missing({"X": np.zeros((4, 2, 3)), "y": np.zeros(4)}) == "4 of 5 series"


# -- the splits of LinOSS

SEEDS = (2345, 3456, 4567, 5678, 6789)
BESIDE = uea.dataset(
    "toy", uea.Source(name="Toy", series=20, channels=2, length=3, classes=2), "nobody", linoss="beside"
)


def linoss(n: int = 20) -> Array:
    return np.random.default_rng(4).integers(0, 3, (n, 5)).astype(np.int8)


@pytest.mark.parametrize("prefix", ["", "toy_linoss_split/"], ids=["inside", "beside"])
def test_the_parts_of_linoss_are_those_of_its_seed(prefix: str) -> None:
    split = linoss()
    own = {f"{prefix}{'split' if prefix else 'linoss_split'}": split, f"{prefix}seeds": np.array(SEEDS)}
    arrays = {**made(), **own}
    for column, seed in enumerate((*SEEDS, *range(42, 47))):  # ours stand for them
        column %= len(SEEDS)
        prepared = TOY.prepare(arrays, request(seed, split="linoss"))
        for number, part in enumerate((prepared.train, prepared.validation, prepared.test)):
            assert part.tolist() == np.flatnonzero(split[:, column] == number).tolist()
    arrays["X"][5] = arrays["X"][2]  # a copy goes, and the others keep their part
    prepared = TOY.prepare(arrays, request(2345, split="linoss"))
    assert prepared.panel.ids[prepared.test].tolist() == [i for i in np.flatnonzero(split[:, 0] == 2) if i != 5]
    assert sorted(np.r_[prepared.train, prepared.validation, prepared.test].tolist()) == list(range(19))


def test_splits_of_linoss_that_do_not_fit_are_refused() -> None:
    arrays = {**made(), "linoss_split": linoss(19), "seeds": np.array(SEEDS)}
    with pytest.raises(DataError, match=r"expected the splits of LinOSS to have shape \(20, 5\), got \(19, 5\)"):
        TOY.prepare(arrays, request(2345, split="linoss"))
    with pytest.raises(DataError, match=r"Toy: split='linoss' needs a raw file with .*move it away"):
        TOY.prepare(made(), request(2345, split="linoss"))


@pytest.mark.parametrize("seed", [41, 47, 2346])
def test_linoss_has_five_seeds(seed: int) -> None:
    says = rf"of Toy exists for the seeds 2345, 3456, 4567, 5678, 6789, for which 42 to 46 stand; got {seed}"
    with pytest.raises(ValueError, match=says):
        BESIDE.check(request(seed, split="linoss"))
    for known in (2345, 42, 46):
        BESIDE.check(request(known, split="linoss"))
    BESIDE.check(request(seed))


# -- the cards


def test_the_six_cards() -> None:
    cards = [dataset.card for dataset in uea.DATASETS]
    assert [c.name for c in cards] == ["ethanol", "eigenworms", "heartbeat", "motor-imagery", "scp1", "scp2"]
    assert [c.series for c in cards] == [524, 259, 409, 378, 561, 380]
    assert [c.raw[0] for c in cards] == [
        f"{n}/{n}.npz" for n in ("ethanol", "eigenworms", "heartbeat", "motorimagery", "scp1", "scp2")
    ]
    assert [c.raw[1:] for c in cards] == [
        ("ethanol/ethanol_448.npz",), (), ("heartbeat/heartbeat_train.npz",), (), (), (),
    ]  # fmt: skip
    assert [c.name for c in cards if "linoss" in c.splits] == ["ethanol", "scp1", "scp2"]
    assert [[extra.name for extra in c.extras_of("linoss")] for c in cards if "linoss" in c.splits] == [
        [], ["scp1/scp1_linoss_split.npz"], ["scp2/scp2_linoss_split.npz"],
    ]  # fmt: skip
    assert not any(c.extras_of("published") for c in cards)
    for card in cards:
        assert card.tasks == ("classify",)
        assert card.scalings == ("published", "none", "standard", "minmax")
        assert card.remotes[0].name == f"{card.title}.zip"
        assert card.by_hand.endswith(f"lformer data pack {card.name} PATH")


# -- the real data

REAL: dict[str, tuple[Dataset, str, str, tuple[int, int, int], str]] = {
    "scp1": (uea.SCP1, "scp1/scp1.npz", "X_e2", (392, 84, 85), "e1f4a66287f849aa"),
    "scp2": (uea.SCP2, "scp2/scp2.npz", "X_e2", (266, 57, 57), "3f7783cfdc6f4ffc"),
    "motor-imagery": (uea.MOTOR_IMAGERY, "motorimagery/motorimagery.npz", "X_32", (264, 57, 57), "1716e5fa577ea6fe"),
}
ABSENT = "raw file not at hand: set LFORMER_DATA"


def real_sets() -> list[Any]:
    return [
        pytest.param(*row, id=name, marks=pytest.mark.skipif(not real(row[1]), reason=ABSENT))
        for name, row in REAL.items()
    ]


@pytest.mark.parametrize(("dataset", "file", "key", "sizes", "expected"), real_sets())
def test_complete_sets(dataset: Dataset, file: str, key: str, sizes: tuple[int, int, int], expected: str) -> None:
    arrays = raw(file)
    assert dataset.missing(arrays) == ""
    prepared = dataset.prepare(arrays, request())
    check_parts(prepared, sizes)
    assert prepared.panel.ids.tolist() == list(range(dataset.card.series))
    assert prepared.panel.observed is None
    assert digest(prepared) == expected
    assert digest(dataset.prepare(arrays, request(43))) != expected
    assert prepared.panel.shape == (dataset.card.series, arrays[key].shape[2], arrays[key].shape[1])
    times, values = prepared.panel[7]
    np.testing.assert_array_equal(values, (arrays[key][7].T / uea.UNITS[key]).astype(np.float32))
    assert (times[0], times[-1]) == (0, 1)
    np.testing.assert_allclose(np.diff(times), 1 / (len(times) - 1), rtol=1e-9)
    counts = np.bincount(prepared.targets.values)
    assert len(counts) == 2
    assert abs(counts[0] - counts[1]) <= 3


@pytest.mark.parametrize(("dataset", "file", "key", "sizes", "expected"), real_sets())
def test_the_flaw_is_in_the_data(dataset: Dataset, file: str, key: str, sizes: Any, expected: str) -> None:
    values = raw(file)[key]
    shift = values.shape[1]
    assert np.array_equal(values[:, 1:, :-shift], values[:, :-1, shift:])
    assert f"shifted by {shift} samples" in dataset.card.flaw


@pytest.mark.skipif(not real("heartbeat/heartbeat_train.npz"), reason=ABSENT)
def test_heartbeat_is_partial() -> None:
    arrays = raw("heartbeat/heartbeat_train.npz")
    assert uea.HEARTBEAT.missing(arrays) == "204 of 409 series (the archive's TRAIN half only)"
    prepared = uea.HEARTBEAT.prepare(arrays, request())
    check_parts(prepared, (142, 31, 31))
    assert prepared.panel.shape == (204, 405, 61)
    assert np.bincount(prepared.targets.values).tolist() == [147, 57]
    assert prepared.panel.values.max() == np.float32(33.662)


@pytest.mark.parametrize(("name", "sizes"), [("scp1", (392, 84, 85)), ("scp2", (266, 57, 57))])
def test_the_splits_of_linoss(name: str, sizes: tuple[int, int, int]) -> None:
    dataset, file = REAL[name][:2]
    own = f"{name}/{name}_linoss_split.npz"
    if not (real(file) and real(own)):
        pytest.skip(ABSENT)
    arrays = raw(file) | {f"{name}_linoss_split/{key}": array for key, array in raw(own).items()}
    found = [dataset.prepare(arrays, request(seed, split="linoss")) for seed in SEEDS]
    for prepared in found:
        check_parts(prepared, sizes)
    assert len({digest(prepared) for prepared in found}) == 5
    ours = [dataset.prepare(arrays, request(seed, split="linoss")) for seed in range(42, 47)]
    assert [digest(prepared) for prepared in ours] == [digest(prepared) for prepared in found]
    assert digest(found[0]) != digest(dataset.prepare(arrays, request(2345)))


@pytest.mark.skipif(not real("ethanol/ethanol_448.npz"), reason=ABSENT)
def test_ethanol_is_partial_but_validation_and_test_are_complete() -> None:
    arrays = raw("ethanol/ethanol_448.npz")
    assert uea.ETHANOL.missing(arrays) == "448 of 524 series"
    for seed in SEEDS:
        prepared = uea.ETHANOL.prepare(arrays, request(seed, split="linoss"))
        check_parts(prepared, (290, 79, 79))
    assert prepared.panel.shape == (448, 1751, 3)
    np.testing.assert_array_equal(prepared.panel[7][1], arrays["X"][7])
    assert np.bincount(prepared.targets.values).tolist() == [113, 107, 112, 116]
    check_parts(uea.ETHANOL.prepare(arrays, request()), (313, 67, 68))


@pytest.mark.skipif(not real("scp1/scp1.npz"), reason=ABSENT)
def test_pack_gives_the_raw_file_back(tmp_path: Path) -> None:
    arrays = raw("scp1/scp1.npz")
    for part in ("TRAIN", "TEST"):
        mine = arrays["split"] == part
        labels = arrays["classes"][arrays["y"][mine]].tolist()
        content = ts(arrays["X_e2"][mine] / 100, labels, classes="positivity negativity", name="SelfRegulationSCP1")
        (tmp_path / f"SelfRegulationSCP1_{part}.ts").write_text(content)
    assert uea.SCP1.pack is not None
    packed = uea.SCP1.pack(Files(tmp_path))
    assert packed.keys() == arrays.keys()
    for key, expected in arrays.items():
        assert packed[key].dtype == expected.dtype
        np.testing.assert_array_equal(packed[key], expected)
