"""Prepared sets on disk: as they were written, or made again; never other data, and never in the way."""

import json
import os
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import toy

from lformer import sealed
from lformer.data import CacheWarning, DataError, cache, mapped, store
from lformer.data.dataset import Array, Dataset, Request
from lformer.data.files import Files
from lformer.data.loading import load_dataset
from lformer.parts import PanelPart, Prepared, Splits


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the raw file of the toy lies."""
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "data"))
    (tmp_path / "toy-1.txt").write_text(toy.original(range(20)))
    store.write_raw(tmp_path / "data/toy/toy.npz", toy.pack(Files(tmp_path / "toy-1.txt")))
    return tmp_path


def get(dataset: Dataset | None = None) -> Splits[PanelPart]:
    keys: dict[str, Any] = {"task": None, "seed": 42, "split": None, "scaling": None, "variant": None, "cache": True}
    return load_dataset(dataset or toy.dataset(), **keys, options={})


def contents(splits: Splits[PanelPart]) -> list[Any]:
    found = []
    for part in (splits.train, splits.validation, splits.test):
        (batch,) = part.batches(100)
        found += [x.tolist() for x in (batch.values, batch.times, batch.observed, batch.lengths, batch.targets)]
    return found


def prepared_file(home: Path) -> Path:
    (path,) = (home / "cache" / "prepared").iterdir()
    return path


def put(path: Path, content: bytes) -> None:
    """Damage, at another time than that of the file that was there."""
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


def craft(path: Path, content: bytes) -> None:
    """A file with a good seal, whatever its content."""

    def fill(stream: BinaryIO) -> None:
        stream.write(content)

    sealed.write_blob(path, fill)


def layout(header: bytes | dict[str, Any], body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


NOTES = {"__metadata__": {"lformer": "{}"}}


def entry(shape: Any, begin: Any, end: Any, dtype: Any = "F64") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


# -- damage


def test_every_flipped_bit_is_noticed(home: Path) -> None:
    get()
    path = prepared_file(home)
    whole = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(whole)), 400):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        put(path, flipped)
        with pytest.raises(DataError, match="is damaged"):
            cache.load(path)


def test_a_damaged_file_is_made_anew(home: Path) -> None:
    expected = contents(get())
    path = prepared_file(home)
    whole = path.read_bytes()
    content = whole[sealed.SEAL.size :]
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    cut = [whole[:size] for size in (0, 5, sealed.SEAL.size, len(whole) // 2, len(whole) - 1)]
    for damaged in (*cut, flipped, content, whole + b"x", b"\xff" * 100):
        put(path, damaged)
        with pytest.raises(DataError, match=r"is damaged.*Delete it; it will be made again"):
            cache.read(path)
        assert contents(get()) == expected
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content",
    {
        "nothing": b"",
        "no header": (0).to_bytes(8, "little"),
        "a header longer than the file": layout(NOTES, length=2**20),
        "a header of exabytes": layout(NOTES, length=2**63),
        "no JSON": layout(b"{" * 40),
        "no text": layout(b"\xff" * 40),
        "deep JSON": layout(b"[" * 200_000),
        "deep notes": layout({"__metadata__": {"lformer": "[" * 200_000}}),
        "a list": layout(b"[]"),
        "no notes": layout({}),
        "notes that are no text": layout({"__metadata__": {"lformer": 3}}),
        "notes that are a list": layout({"__metadata__": {"lformer": "[]"}}),
        "an unaligned header": (21).to_bytes(8, "little") + json.dumps(NOTES).encode()[:21],
        "a list for an array": layout(NOTES | {"a": []}),
        "no shape": layout(NOTES | {"a": {"dtype": "F64", "data_offsets": [0, 8]}}, bytes(8)),
        "an unknown dtype": layout(NOTES | {"a": entry([1], 0, 8, "F8")}, bytes(8)),
        "a list for a dtype": layout(NOTES | {"a": entry([1], 0, 8, [])}, bytes(8)),
        "more than there is": layout(NOTES | {"a": entry([2], 0, 16)}, bytes(8)),
        "exabytes": layout(NOTES | {"a": entry([10**18], 0, 8 * 10**18)}, bytes(8)),
        "a product that overflows": layout(NOTES | {"a": entry([2**32, 2**32], 0, 0)}),
        "a huge empty array": layout(NOTES | {"a": entry([0, 10**18], 0, 0)}),
        "sides below zero": layout(NOTES | {"a": entry([-1, -1], 0, 8)}, bytes(8)),
        "sides that are no numbers": layout(NOTES | {"a": entry([True], 0, 8)}, bytes(8)),
        "a fraction": layout(NOTES | {"a": entry([1.0], 0, 8)}, bytes(8)),
        "very many sides": layout(NOTES | {"a": entry([1] * 1000, 0, 8)}, bytes(8)),
        "begins before the file": layout(NOTES | {"a": entry([1], -8, 0)}, bytes(8)),
        "overlap": layout(NOTES | {"a": entry([1], 0, 8), "b": entry([1], 0, 8)}, bytes(8)),
        "a gap": layout(NOTES | {"a": entry([1], 8, 16)}, bytes(16)),
        "bytes of nobody": layout(NOTES | {"a": entry([1], 0, 8)}, bytes(16)),
        "not aligned": layout(NOTES | {"a": entry([1], 0, 1, "U8"), "b": entry([1], 1, 9)}, bytes(9)),
    }.items(),
    ids=lambda case: case[0],
)
def test_what_a_wrong_writer_seals_is_refused_before_anything_is_allocated(
    tmp_path: Path, content: tuple[str, bytes]
) -> None:
    path = tmp_path / "x.prepared"
    craft(path, content[1])
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"x\.prepared is damaged"):
            cache.read(path)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_empty_arrays_and_none_at_all_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "x.prepared"
    mapped.write(path, {"a": np.zeros((0, 3), np.float32), "b": np.zeros((2, 0), np.int64)}, {"x": 1})
    arrays, notes = mapped.read(path)
    assert [(array.shape, array.dtype.str) for array in arrays.values()] == [((2, 0), "<i8"), ((0, 3), "<f4")]
    assert notes == {"x": 1}
    mapped.write(path, {}, {})
    assert mapped.read(path) == ({}, {})


# -- sound files that are no prepared sets

Change = Callable[[dict[str, Array], dict[str, Any]], object]

CHANGES: dict[str, Change] = {
    "no times": lambda a, n: a.pop("panel.times"),
    "no targets": lambda a, n: a.pop("targets.values"),
    "no training part": lambda a, n: a.pop("train"),
    "times that are whole numbers": lambda a, n: a.update({"panel.times": a["panel.times"].astype(np.int64)}),
    "times in two dimensions": lambda a, n: a.update({"panel.times": a["panel.times"][:, None]}),
    "a row too few": lambda a, n: a.update({"panel.values": a["panel.values"][:-1]}),
    "values without channels": lambda a, n: a.update({"panel.values": a["panel.values"][:, 0]}),
    "observed of another shape": lambda a, n: a.update({"panel.observed": a["panel.observed"][:, :0]}),
    "observed that is a number": lambda a, n: a.update({"panel.observed": a["panel.values"]}),
    "series before the first row": lambda a, n: a.update({"panel.first": a["panel.first"] - 1}),
    "series beyond the last row": lambda a, n: a.update({"panel.lengths": a["panel.lengths"] + 1}),
    "lengths that overflow": lambda a, n: a.update({"panel.lengths": np.full(20, 2**63 - 1)}),
    "lengths below zero": lambda a, n: a.update({"panel.lengths": np.full(20, -1)}),
    "an origin too few": lambda a, n: a.update({"panel.origin": a["panel.origin"][1:]}),
    "a target too few": lambda a, n: a.update({"targets.values": a["targets.values"][1:]}),
    "weights of nobody": lambda a, n: a.update({"targets.weights": np.ones(3)}),
    "a series that is not there": lambda a, n: a.update({"test": np.array([20])}),
    "a series below zero": lambda a, n: a.update({"test": np.array([-1])}),
    "a part in two dimensions": lambda a, n: a.update({"test": np.zeros((2, 2), np.int64)}),
    "a part of fractions": lambda a, n: a.update({"test": np.zeros(2)}),
    "queries without times": lambda a, n: n.update(at="queries"),
    "targets somewhere": lambda a, n: n.update(at="nowhere"),
    "a list for a place": lambda a, n: n.update(at=[]),
    "ids that are no text": lambda a, n: n["text"].update({"panel.ids": [{}] * 20}),
    "an id too few": lambda a, n: n["text"]["panel.ids"].pop(),
    "text that would take terabytes": lambda a, n: n["text"].update({"x": ["a" * 10**6] + [""] * 10**6}),
    "a twin of nobody": lambda a, n: n["same"].update({"targets.values": "x"}),
    "a channel too many": lambda a, n: n["channels"].append("y"),
    "channels that are no text": lambda a, n: n.update(channels=[1]),
    "a scale of zero": lambda a, n: n.update(scale=0.0),
    "a scale of NaN": lambda a, n: n.update(scale=float("nan")),
    "a scale beyond all floats": lambda a, n: n.update(scale=10**400),
    "a unit that is no text": lambda a, n: n.update(unit=None),
    "padding to less than the longest": lambda a, n: n.update(pad_to=1),
    "padding to billions of rows": lambda a, n: n.update(pad_to=2**31 - 1),
    "padding to a fraction": lambda a, n: n.update(pad_to=9.5),
    "columns of nobody": lambda a, n: n.update(static=["age"]),
    "partial without a word": lambda a, n: n.update(partial=3),
    "no scale": lambda a, n: n.pop("scale"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_sound_file_that_is_no_prepared_set_is_made_anew(home: Path, what: str) -> None:
    expected = contents(get())
    path = prepared_file(home)
    arrays, notes = mapped.read(path)
    arrays = {name: array.copy() for name, array in arrays.items()}
    CHANGES[what](arrays, notes)
    mapped.write(path, arrays, notes)
    with pytest.raises(DataError, match=r"is damaged.*made again"):
        cache.load(path)
    assert contents(get()) == expected


# -- a cache that cannot be written


def full(*args: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_no_reason_not_to_load(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sealed, "_measure", full)
        with pytest.warns(
            CacheWarning, match="toy is loaded, but cannot be kept in the cache.*No space left"
        ) as warned:
            first = contents(get())
        assert len(warned) == 1
    assert list((home / "cache" / "prepared").iterdir()) == []
    assert contents(get()) == first  # and no warning any more
    assert prepared_file(home).is_file()


def test_a_cache_that_cannot_be_made_is_no_reason_not_to_load(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = contents(get())
    (home / "file").touch()
    monkeypatch.setenv("LFORMER_CACHE", str(home / "file" / "cache"))
    with pytest.warns(CacheWarning, match="set LFORMER_CACHE to another folder"):
        assert contents(get()) == expected


def test_a_set_is_read_from_a_cache_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = contents(get())
    monkeypatch.setattr(store, "locked", full)
    monkeypatch.setattr(sealed, "write_blob", full)
    assert contents(get()) == expected


def test_an_error_of_the_preparation_is_not_taken_for_one_of_the_cache(home: Path) -> None:
    def refuse(raw: Any, request: Request) -> Prepared:
        raise OSError("the preparation")

    with pytest.raises(OSError, match=r"^the preparation$"):
        get(replace(toy.dataset(), prepare=refuse))


def test_what_killed_writers_left_is_removed_after_a_day(home: Path) -> None:
    folder = home / "cache" / "prepared"
    folder.mkdir(parents=True)
    old, new = folder / "toy-classify-0.prepared.abcdefgh.part", folder / "toy-classify-0.prepared.hgfedcba.part"
    for left in (old, new):
        left.write_bytes(b"half")
    os.utime(old, (0, 0))
    get()
    assert not old.exists()
    assert new.exists()  # somebody may be writing it
    assert len(list(folder.iterdir())) == 2
