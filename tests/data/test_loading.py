"""From files to parts: found, packed, prepared, cached, and never silently incomplete."""

import multiprocessing
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import toy

from lformer import sealed
from lformer.data import DATASETS, DataError, MissingDataError, PartialDataWarning, cache, load, manage, store
from lformer.data.dataset import Dataset, Request
from lformer.data.download import Downloaded
from lformer.data.loading import load_dataset
from lformer.parts import PanelPart, Splits


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "data"))
    return tmp_path


def unpack_here(home: Path, series: range = range(toy.SERIES)) -> Path:
    """The owner's files as a user would have them."""
    folder = home / "by hand"
    folder.mkdir(exist_ok=True)
    (folder / "toy-1.txt").write_text(toy.original(series))
    return folder


def get(dataset: Dataset | None = None, **wanted: Any) -> Splits[PanelPart]:
    options = wanted.pop("options", {})
    keys = {"task": None, "seed": 42, "split": None, "scaling": None, "variant": None, "cache": True}
    return load_dataset(dataset or toy.dataset(), **(keys | wanted), options=options)


def contents(part: PanelPart) -> list[Any]:
    (batch,) = part.batches(100)
    return [x.tolist() for x in (batch.values, batch.times, batch.observed, batch.lengths, batch.targets)]


def test_a_missing_set_says_how_to_get_it(home: Path) -> None:
    with pytest.raises(MissingDataError) as error:
        get()
    text = str(error.value)
    assert "toy/toy.npz and toy/toy_half.npz" in text
    assert str(home / "data") in text
    assert "`lformer data fetch toy`" in text
    assert "By hand: Download toy.zip" in text


def test_packed_files_load_and_the_cache_gives_the_same(home: Path) -> None:
    said: list[str] = []
    path = manage.pack(toy.dataset(), unpack_here(home), said.append)
    assert path == home / "data" / "toy" / "toy.npz"
    assert said == [f"wrote {path}"]
    fresh, first, second = get(cache=False), get(), get()
    for part in ("train", "validation", "test"):
        expected = contents(getattr(fresh, part))
        assert contents(getattr(first, part)) == expected
        assert contents(getattr(second, part)) == expected
        assert getattr(second, part).panel.ids.tolist() == getattr(fresh, part).panel.ids.tolist()
    assert (first.name, first.task, first.partial) == ("toy", "classify", "")
    assert len(list((home / "cache" / "prepared").iterdir())) == 1


def test_the_prepared_file_is_a_safetensors_file_after_its_seal(home: Path) -> None:
    manage.pack(toy.dataset(), unpack_here(home), print)
    get()
    (path,) = (home / "cache" / "prepared").iterdir()
    arrays = safetensors.numpy.load(path.read_bytes()[sealed.SEAL.size :])
    ours, _ = cache.read(path)
    assert arrays.keys() == ours.keys()
    for name, array in ours.items():
        assert np.array_equal(arrays[name], array)
        assert array.ctypes.data % array.dtype.itemsize == 0  # aligned, so mapped arrays are as fast as any


def test_every_part_of_a_request_makes_another_file(home: Path) -> None:
    manage.pack(toy.dataset(), unpack_here(home), print)
    requests: list[dict[str, Any]] = [
        {}, {"seed": 43}, {"task": "regress"}, {"split": "subject"}, {"scaling": "none"}, {"variant": "double"},
        {"options": {"unobserved": "query"}},
    ]  # fmt: skip
    for wanted in requests:
        get(**wanted)
    get(replace(toy.dataset(), version=2))
    assert len(list((home / "cache" / "prepared").iterdir())) == len(requests) + 1
    raw = home / "data" / "toy" / "toy.npz"
    arrays = dict(np.load(raw))
    store.write_raw(raw, {**arrays, "value": arrays["value"] + 1})
    get()
    assert len(list((home / "cache" / "prepared").iterdir())) == len(requests) + 2
    assert np.allclose(get(options={"factor": 2.0}).train.panel.values, 2 * get().train.panel.values)


def test_a_partial_set_warns_and_marks_what_comes_of_it(home: Path) -> None:
    said: list[str] = []
    manage.pack(toy.dataset(), unpack_here(home, range(9)), said.append)
    assert "it is partial: 9 of 20 series" in said[0]
    assert manage.status(toy.dataset()).state == "partial"
    for _ in range(2):  # prepared, then from the cache
        with pytest.warns(PartialDataWarning, match="toy is partial: 9 of 20 series. Everything derived"):
            splits = get()
        assert splits.partial == "9 of 20 series"
        assert {splits.train.partial, splits.validation.partial, splits.test.partial} == {"9 of 20 series"}


def test_the_complete_file_wins_over_the_partial_one(home: Path) -> None:
    manage.pack(toy.dataset(), unpack_here(home, range(9)), print)
    (home / "data/toy/toy.npz").rename(home / "data/toy/toy_half.npz")
    assert manage.status(toy.dataset()).state == "partial"
    manage.pack(toy.dataset(), unpack_here(home), print)
    assert manage.status(toy.dataset()).state == "complete"
    assert get().partial == ""


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"task": "forecast"}, "task of toy must be one of classify, regress; got 'forecast'"),
        ({"split": "random"}, "split of toy must be one of published, subject"),
        ({"scaling": "robust"}, "scaling of toy must be one of published, none"),
        ({"variant": "triple"}, "variant of toy must be one of double; got 'triple'"),
        ({"options": {"unobserved": "zeros"}}, "unobserved of toy must be one of rows, query; got 'zeros'"),
    ],
)
def test_what_the_card_does_not_offer_is_refused(home: Path, wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        get(**wanted)


def test_unknown_options_and_names_list_the_known_ones(home: Path) -> None:
    with pytest.raises(TypeError, match="toy has no option 'colour'; it has factor, unobserved"):
        get(options={"colour": "red"})
    with pytest.raises(ValueError, match=r"unknown data set 'iris'; there are ethanol, .*, physionet"):
        load("iris")


@pytest.mark.parametrize("damage", ["cut", "text", "flipped"])
def test_a_damaged_raw_file_is_named(home: Path, damage: str) -> None:
    path = manage.pack(toy.dataset(), unpack_here(home), print)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[60] ^= 0xFF
    path.write_bytes({"cut": whole[:-80], "text": b"hello", "flipped": bytes(flipped)}[damage])
    with pytest.raises(DataError, match=r"toy.npz is damaged"):
        manage.verify(toy.dataset(), print)
    with pytest.raises(DataError, match=r"toy.npz is damaged"):
        get()
    assert not (home / "cache" / "prepared").exists()


def test_raw_files_hold_no_pickles(home: Path) -> None:
    with pytest.raises(TypeError, match=r"not names \(object\)"):
        store.write_raw(home / "x.npz", {"names": np.array(["a", None], dtype=object)})
    assert list(home.iterdir()) == []
    np.savez(home / "evil.npz", id=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"evil.npz"), store.open_raw(home / "evil.npz") as arrays:
        arrays["id"]


def test_a_corrupt_original_leaves_nothing_behind(home: Path) -> None:
    folder = unpack_here(home)
    (folder / "toy-1.txt").write_text(toy.original(range(20)).rstrip() + "\n3,1.5\n")
    lines = (folder / "toy-1.txt").read_text().count("\n")
    with pytest.raises(DataError, match=rf"toy-1.txt, line {lines}: expected id,time,value,label; got '3,1.5'"):
        manage.pack(toy.dataset(), folder, print)
    assert not (home / "data").exists()


def test_an_interrupted_write_leaves_the_old_file(home: Path) -> None:
    path = manage.pack(toy.dataset(), unpack_here(home), print)
    before = path.read_bytes()

    def fail(part: Path) -> None:
        part.write_bytes(b"half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        sealed.write_whole(path, fail)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["toy.npz"]


def test_verify_records_compares_and_notices_change(home: Path) -> None:
    path = manage.pack(toy.dataset(), unpack_here(home), print)
    said: list[str] = []
    assert manage.verify(toy.dataset(), said.append)
    assert "sha256 as recorded" in said[-1]
    (home / "cache" / "hashes.json").unlink()
    assert manage.verify(toy.dataset(), said.append)
    assert "sha256 recorded now" in said[-1]
    store.write_raw(path, {**dict(np.load(path)), "more": np.zeros(3)})
    assert not manage.verify(toy.dataset(), said.append)
    assert "The file has changed since" in said[-1]


def test_fetch_downloads_verifies_converts_and_is_idempotent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bring(remote: Any, folder: Path, name: str, report: Any) -> Downloaded:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / "toy.zip", "w") as archive:
            archive.writestr("deep/../../toy-1.txt", toy.original(range(20)))  # would escape if it were unpacked
        report(10, 10)
        return Downloaded(remote, folder / "toy.zip", "0" * 64, "first")

    monkeypatch.setattr(manage, "download", bring)
    said: list[str] = []
    reported: list[tuple[str, int, int | None]] = []
    path = manage.fetch(toy.dataset(), said.append, lambda *what: reported.append(what))
    assert path.is_file()
    assert reported == [("toy.zip", 10, 10)]
    assert any("could not be verified" in line and "recorded now" in line for line in said)
    assert len(get().train) == 14
    assert not list(home.glob("toy-1.txt"))
    assert not list(home.parent.glob("toy-1.txt"))
    said.clear()
    assert manage.fetch(toy.dataset(), said.append) == path
    assert said == [f"toy is already here: {path}"]


def test_fetch_that_fails_tells_the_manual_way(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise DataError("http://x answered 404 Not Found; it may have moved.")

    monkeypatch.setattr(manage, "download", refuse)
    with pytest.raises(DataError, match=r"404.*By hand: Download toy.zip"):
        manage.fetch(toy.dataset(), print)


def _pack_and_load(home: str) -> int:
    os.environ |= {"LFORMER_CACHE": home + "/cache", "LFORMER_DATA": home + "/data"}
    manage.pack(toy.dataset(), Path(home) / "by hand", lambda text: None)
    return len(get().train)


def test_processes_may_pack_and_load_at_once(home: Path) -> None:
    unpack_here(home)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_pack_and_load, [str(home)] * 4, chunksize=1) == [14] * 4
    names = sorted(p.name for p in (home / "data" / "toy").iterdir())
    assert names == ["toy.npz"]
    assert list(sealed.read_json(home / "cache" / "hashes.json")) == [str(home / "data/toy/toy.npz")]


def test_every_card_is_complete() -> None:
    assert len(DATASETS) == 16
    for name, dataset in DATASETS.items():
        card = dataset.card
        assert card.name == name
        assert all((card.title, card.page, card.licence, card.citation, card.length, card.channels, card.tasks))
        assert (dataset.prepare is None) != (dataset.draw is None)
        if card.raw:
            assert dataset.pack is not None
            assert card.remotes
            assert f"lformer data pack {name}" in card.by_hand
        for values in card.variants.values():
            assert values.keys() <= card.options.keys()
        for extra in card.extras:
            assert all((extra.content, extra.splits, extra.by_hand))
            assert card.splits[0] not in extra.splits  # what one gets unasked needs the main file alone


def test_requests_are_told_apart_by_their_hash() -> None:
    data = DATASETS["pendulum"]
    one = Request(task="regress-points", seed=42, split="published", scaling="published")
    assert len({cache.fingerprint(data, request) for request in (one, replace(one, seed=43), one)}) == 2
    drawn = [load("spiral-2", seed=seed).fingerprint for seed in (1, 2, 1)]
    assert len(set(drawn)) == 2
    assert drawn[0] == drawn[2]
