"""In-hospital mortality of PhysioNet 2012: five folds of sets A and B, and the published splits of P12."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from real import raw as real_raw
from real import real
from sklearn.model_selection import StratifiedKFold
from stays import made

from lformer.data import MissingDataError, PartialDataWarning, load, store
from lformer.data.dataset import Array, Raw, Request
from lformer.data.files import DataError
from lformer.data.physionet import DATASET, missing, prepare
from lformer.parts import Prepared

AB, C, P12 = (f"physionet2012/{name}.npz" for name in ("physionet2012_ab", "physionet2012_c", "p12_splits"))
SEEDS = range(42, 47)
needs_ab = pytest.mark.skipif(not real(AB), reason="raw file not at hand: set LFORMER_DATA")
needs_p12 = pytest.mark.skipif(not all(map(real, (AB, C, P12))), reason="raw files not at hand: set LFORMER_DATA")


def ask(raw: Raw, split: str, seed: int = 42, scaling: str = "none", **options: Any) -> Prepared:
    choices = {name: given[0] for name, given in DATASET.card.options.items()} | options
    request = Request(task="classify", seed=seed, split=split, scaling=scaling, options=choices)  # type: ignore[arg-type]
    return prepare(raw, request)


def parts(prepared: Prepared) -> list[Array]:
    return [prepared.train, prepared.validation, prepared.test]


def deaths(prepared: Prepared) -> list[float]:
    return [float(prepared.targets.values[part].mean()) for part in parts(prepared)]


def uneven(stays: int = 203) -> dict[str, Array]:
    """Random stays of which about one in seven ends in death."""
    raw = made(stays)
    raw["outcomes"][:, -1] = np.random.default_rng(3).random(stays) < 1 / 7
    return raw


def three_sets() -> dict[str, Array]:
    """Sets A and B of 40 stays, set C of 20, and splits that leave out one stay of each; the order is mixed up."""
    ab, c = made(40), made(20, seed=5)
    c["record_id"] = c["record_id"] + 500
    c["outcomes"][:, 0] += 500
    c["outcomes"][3, 1:] = -9
    listed = np.setdiff1d(np.r_[ab["record_id"], c["record_id"]], [105, 603])
    order = np.random.default_rng(1).permutation(len(listed))
    split = (np.arange(len(listed))[:, None] + np.arange(5)) % 5 % 3  # 0, 1, 2, 0, 1 and so on
    return {
        **ab,
        **{f"physionet2012_c/{name}": array for name, array in c.items() if name != "set"},
        "p12_splits/record_id": listed[order].astype(np.int32),
        "p12_splits/split": split[order].astype(np.int8),
    }


# -- folds


def assert_five_folds(raw: Raw, died: Array) -> None:
    """The folds of scikit-learn, each the test part of one seed, with all parts stratified."""
    expected = StratifiedKFold(5, shuffle=True, random_state=1).split(np.zeros(len(died)), died)
    for seed, (rest, test) in zip(SEEDS, expected, strict=True):
        found = ask(raw, "folds", seed)
        assert found.test.tolist() == test.tolist()
        assert np.sort(np.r_[found.train, found.validation]).tolist() == rest.tolist()
        for kind in (0, 1):
            of_kind = int((died[rest] == kind).sum())
            assert int((died[found.validation] == kind).sum()) == math.ceil(0.15 * of_kind)


def test_folds_are_those_of_scikit_learn() -> None:
    raw = uneven()
    died = raw["outcomes"][:, -1]
    assert_five_folds(raw, died)
    assert np.bincount(np.concatenate([ask(raw, "folds", seed).test for seed in SEEDS])).tolist() == [1] * len(died)
    late = np.sort(1 - died)[::-1]  # the first stay, not the first class, comes first
    assert_five_folds({**raw, "outcomes": np.c_[raw["outcomes"][:, :-1], late]}, late)


def test_a_seed_chooses_the_fold_and_draws_the_validation_part() -> None:
    raw = uneven()
    one, same_fold, again = ask(raw, "folds", 43), ask(raw, "folds", 48), ask(raw, "folds", 43)
    assert one.test.tolist() == same_fold.test.tolist()
    assert one.validation.tolist() != same_fold.validation.tolist()
    assert [part.tolist() for part in parts(one)] == [part.tolist() for part in parts(again)]


# -- P12


def test_p12_takes_the_named_stays_of_three_sets() -> None:
    raw = three_sets()
    part_of = dict(zip(raw["p12_splits/record_id"].tolist(), raw["p12_splits/split"].tolist(), strict=True))
    alone = {record: made(40) for record in range(100, 140)} | {record: made(20, seed=5) for record in range(600, 620)}
    for seed in (42, 44, 46, 47):
        found = ask(raw, "p12", seed)
        ids = found.panel.ids
        assert ids.tolist() == [record for record in [*range(100, 140), *range(600, 620)] if record in part_of]
        assert len(ids) == 58
        for number, part in enumerate(parts(found)):
            assert {part_of[record][(seed - 42) % 5] for record in ids[part].tolist()} == {number}
        assert sorted(np.concatenate(parts(found)).tolist()) == list(range(58))
    for record in (100, 104, 106, 139, 600, 604, 619):  # their own values, whatever was left out before them
        series, own = int(np.flatnonzero(ids == record)[0]), record - (600 if record >= 600 else 100)
        expected = ask(alone[record], "published", resolution="minute").panel
        times, values = ask(raw, "p12", resolution="minute").panel[series]
        assert times.tolist() == expected[own][0].tolist()
        np.testing.assert_array_equal(values, expected[own][1])
        assert found.targets.values[series] == own % 2
    static = found.panel.static
    assert static is not None
    assert static.index.tolist() == ids.tolist()


def test_p12_tells_what_is_missing() -> None:
    raw = three_sets()
    assert missing(raw) == "58 of 11,988 stays"
    assert missing(made(40)) == "40 of 8,000 stays"


def test_a_stay_without_an_outcome_cannot_be_a_target() -> None:
    raw = three_sets()
    raw["physionet2012_c/outcomes"][5, 1:] = -9
    with pytest.raises(DataError, match="expected In-hospital_death 0 or 1, got -9 for stay 605"):
        ask(raw, "p12")


def test_sets_that_name_their_parameters_otherwise_are_refused() -> None:
    raw = three_sets()
    raw["physionet2012_c/param_names"] = raw["physionet2012_c/param_names"][::-1]
    with pytest.raises(DataError, match="physionet2012_c: expected the param_names of sets A and B"):
        ask(raw, "p12")


@pytest.mark.parametrize("scaling", ["published", "standard", "minmax"])
@pytest.mark.parametrize("split", ["folds", "p12"])
def test_the_test_part_does_not_move_the_training_values(split: str, scaling: str) -> None:
    raw = three_sets()
    before = ask(raw, split, scaling=scaling)
    other = {name: array.copy() for name, array in raw.items()}
    changed = before.panel.ids[before.test]
    for prefix in ("", "physionet2012_c/"):
        of_changed = np.isin(raw[f"{prefix}record_id"], changed)
        other[f"{prefix}value"][np.repeat(of_changed, np.diff(raw[f"{prefix}offset"]))] *= 100
    after = ask(other, split, scaling=scaling)
    rows = [before.panel[part].rows() for part in (before.train, before.test)]
    assert np.array_equal(before.panel.values[rows[0]], after.panel.values[rows[0]])
    assert not np.array_equal(before.panel.values[rows[1]], after.panel.values[rows[1]])


# -- through `load`


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of raw files of three small sets."""
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "data"))
    raw = three_sets()
    store.write_raw(tmp_path / "data" / AB, {name: array for name, array in raw.items() if "/" not in name})
    for file in (C, P12):
        prefix = f"{Path(file).stem}/"
        mine = {name.removeprefix(prefix): array for name, array in raw.items() if name.startswith(prefix)}
        store.write_raw(tmp_path / "data" / file, mine)
    return tmp_path


def test_p12_loads_from_three_files_and_again_from_the_cache(home: Path) -> None:
    with pytest.warns(PartialDataWarning, match="58 of 11,988 stays"):
        fresh, made_now, kept = (
            load("physionet", task="classify", split="p12", seed=43, cache=cache) for cache in (False, True, True)
        )
    assert [len(part) for part in (fresh.train, fresh.validation, fresh.test)] == [23, 23, 12]
    assert fresh.train.panel.static["ICUType"].isna().any()
    for name in ("train", "validation", "test"):
        one = getattr(fresh, name)
        for other in (getattr(made_now, name), getattr(kept, name)):
            assert other.panel.ids.tolist() == one.panel.ids.tolist()
            pd.testing.assert_frame_equal(one.panel.static, other.panel.static)  # an unknown text stays unknown


@pytest.mark.parametrize("file", [C, P12])
def test_each_file_is_part_of_the_fingerprint(home: Path, file: str) -> None:
    def fingerprints() -> list[str]:
        with pytest.warns(PartialDataWarning):
            return [load("physionet", task="classify", split=split).fingerprint for split in ("p12", "folds")]

    before = fingerprints()
    arrays = dict(np.load(home / "data" / file))
    store.write_raw(home / "data" / file, {**arrays, "more": np.zeros(1)})
    after = fingerprints()
    assert after[0] != before[0]
    assert after[1] == before[1]  # does not need the file


@pytest.mark.parametrize(("file", "says"), [(C, "lformer data pack physionet PATH"), (P12, "savez_compressed")])
def test_a_file_that_is_not_here_is_named(home: Path, file: str, says: str) -> None:
    (home / "data" / file).unlink()
    with pytest.raises(MissingDataError) as error:
        load("physionet", task="classify", split="p12")
    text = str(error.value)
    assert f"split='p12' of physionet needs {file}" in text
    assert str(home / "data") in text
    assert says in text
    with pytest.warns(PartialDataWarning):
        load("physionet", task="classify")  # does not need it


@pytest.mark.parametrize("split", ["folds", "p12"])
@pytest.mark.parametrize("task", ["extrapolate", "reconstruct", "interpolate"])
def test_other_tasks_have_the_published_split_only(home: Path, task: str, split: str) -> None:
    with pytest.raises(ValueError, match=rf"split='{split}' of physionet is for classify only; {task} has"):
        load("physionet", task=task, split=split)


# -- the real data


@needs_ab
def test_real_folds() -> None:
    raw = real_raw(AB)
    died = raw["outcomes"][:, -1]
    assert_five_folds(raw, died)
    for seed in SEEDS:
        found = ask(raw, "folds", seed)
        assert [len(part) for part in parts(found)] == [5439, 961, 1600]
        assert all(0.1395 < share < 0.141 for share in deaths(found))


@needs_ab
def test_real_stays_by_the_minute() -> None:
    raw = real_raw(AB)
    panel = ask(raw, "folds", resolution="minute").panel
    assert round(float(panel.lengths.mean()), 2) == 74.79
    assert panel.static is not None
    assert panel.static["ICUType"].value_counts().to_dict() == {
        "unit 1": 1167, "unit 2": 1656, "unit 3": 2917, "unit 4": 2260,
    }  # fmt: skip
    assert panel.static.isna().sum().tolist() == [0, 8, 3824, 0]
    assert set(panel.static["Gender"].dropna()) == {0.0, 1.0}


@needs_p12
def test_real_p12() -> None:
    files = {name: real_raw(file) for name, file in (("physionet2012_c", C), ("p12_splits", P12))}
    raw = real_raw(AB) | {f"{stem}/{name}": array for stem, own in files.items() for name, array in own.items()}
    assert missing(raw) == ""
    tested = []
    for seed in SEEDS:
        found = ask(raw, "p12", seed)
        assert [len(part) for part in parts(found)] == [9590, 1199, 1199]
        assert np.sort(np.concatenate(parts(found))).tolist() == list(range(11_988))
        assert all(0.125 < share < 0.175 for share in deaths(found))
        tested.append(found.test)
    assert int(found.targets.values.sum()) == 1707
    assert len(np.unique(found.panel.ids)) == 11_988
    assert not any(np.array_equal(tested[0], other) for other in tested[1:])
    assert {155655, 156254}.isdisjoint(found.panel.ids.tolist())


@needs_p12
def test_real_p12_keeps_every_reading_of_a_stay_of_set_c() -> None:
    c = real_raw(C)
    raw = real_raw(AB) | {f"physionet2012_c/{name}": array for name, array in c.items()}
    raw |= {f"p12_splits/{name}": array for name, array in real_raw(P12).items()}
    panel = ask(raw, "p12", resolution="minute").panel
    for stay in (0, 1234, 3999):
        times, values = panel[int(np.flatnonzero(panel.ids == c["record_id"][stay])[0])]
        events = slice(int(c["offset"][stay]), int(c["offset"][stay + 1]))
        charted = c["param"][events] >= 4  # the first four are descriptors
        assert times.tolist() == np.unique(c["time_min"][events] / 60).tolist()
        cells = set(zip(c["time_min"][events][charted].tolist(), c["param"][events][charted].tolist(), strict=True))
        assert int((~np.isnan(values)).sum()) == len(cells)
