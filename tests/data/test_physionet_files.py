"""PhysioNet 2012: from the files of the challenge to raw arrays."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from lformer.data import manage, store
from lformer.data.dataset import Array
from lformer.data.files import DataError, Files
from lformer.data.physionet import DATASET
from lformer.data.physionet_files import OUTCOMES, PARAMETERS, SET_C, pack

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
        ("Outcomes-a.txt", HEADER + "132539,6,1,5,-1,0\n" * 2, r"line 3: record 132539 already has an outcome"),
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


# -- set C

OF_C = {
    "set-c/152871.txt": STAY.format(id=152871) + "00:30,Na,141\n",
    "set-c/155655.txt": STAY.format(id=155655),
    "set-c/152873.txt": STAY.format(id=152873),
    "Outcomes-c.txt": HEADER + "152873,16,8,8,-1,1\n152871,6,1,5,-1,0\n",  # nothing of 155655
}


def of_c(packed: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(f"{SET_C}/"): array for name, array in packed.items() if "/" in name}


def test_set_c_becomes_arrays_of_its_own_beside_the_others(tmp_path: Path) -> None:
    plain = pack(Files(original(tmp_path / "ab")))
    packed = pack(Files(original(tmp_path / "abc", **OF_C)))
    assert same({name: array for name, array in packed.items() if "/" not in name}, plain)
    c = of_c(packed)
    assert c.keys() == plain.keys() - {"set"}
    assert {name: array.dtype for name, array in c.items()} == {name: plain[name].dtype for name in c}
    assert c["record_id"].tolist() == [152871, 152873, 155655]
    assert c["offset"].tolist() == [0, 5, 9, 13]
    assert c["value"][4] == 141
    assert c["outcomes"].tolist() == [
        [152871, 6, 1, 5, -1, 0],
        [152873, 16, 8, 8, -1, 1],
        [155655, -9, -9, -9, -9, -9],
    ]


def test_set_c_may_come_alone_and_its_outcomes_may_say_that_none_is_known(tmp_path: Path) -> None:
    for name, content in OF_C.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content + "155655,-1,-1,-1,-1,-9\n" * name.startswith("Outcomes"))
    packed = pack(Files(tmp_path))
    assert all(name.startswith(f"{SET_C}/") for name in packed)
    assert of_c(packed)["outcomes"][2].tolist() == [155655, -1, -1, -1, -1, -9]


def test_outcomes_of_c_without_its_stays_leave_it_out(tmp_path: Path) -> None:
    plain = pack(Files(original(tmp_path / "ab")))
    more = original(tmp_path / "more", **{"Outcomes-c.txt": OF_C["Outcomes-c.txt"]})
    assert same(pack(Files(more)), plain)
    only = tmp_path / "only"
    only.mkdir()
    (only / "Outcomes-c.txt").write_text(OF_C["Outcomes-c.txt"])
    with pytest.raises(DataError, match="no stay of set-c"):
        pack(Files(only))


def test_a_stay_of_c_that_is_missing_is_told(tmp_path: Path) -> None:
    some = {name: content for name, content in OF_C.items() if "152873" not in name}
    with pytest.raises(DataError, match=r"1 stays have an outcome but no file.*\[152873\]"):
        pack(Files(original(tmp_path, **some)))


def test_packing_writes_a_raw_file_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "data"))
    said: list[str] = []
    path = manage.pack(DATASET, original(tmp_path / "abc", **OF_C), said.append)
    c = tmp_path / "data/physionet2012/physionet2012_c.npz"
    assert path == tmp_path / "data/physionet2012/physionet2012_ab.npz"
    assert said == [f"wrote {path}; it is partial: 3 of 8,000 stays", f"wrote {c}"]
    with store.open_raw(path, c) as raw:
        assert raw["record_id"].tolist() == [132539, 132540, 142675]
        assert raw["physionet2012_c/record_id"].tolist() == [152871, 152873, 155655]
    assert store.recorded(str(c)) == store.digest(c)
