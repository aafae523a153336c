"""Raw files beside the main one: found, packed, part of the fingerprint, and shown."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from test_cli import call

from lformer import data
from lformer.data import DataError, MissingDataError, manage, store
from lformer.data.dataset import Array, Dataset, Extra, Request
from lformer.data.files import Files
from lformer.data.loading import load_dataset
from lformer.parts import PanelPart, Prepared, Splits

OWNERS = Extra(
    name="toy/toy_owners.npz",
    content="who owns a series",
    splits=("subject",),
    by_hand="Ask the owners, then: lformer data pack toy PATH.",
)
OTHERS = replace(OWNERS, name="toy/toy_others.npz", content="nothing of use", splits=("published", "subject"))


def pack(files: Files) -> dict[str, Array]:
    """The toy's own file, and `owners.txt` with one owner per line if it is there."""
    packed = toy.pack(files) if list(files.texts("toy-*.txt")) else {}
    for text in files.texts("owners.txt"):
        packed["toy_owners/owner"] = np.array(text.lines)
    return packed


def prepare(raw: Mapping[str, Array], request: Request) -> Prepared:
    prepared = toy.prepare(raw, request)
    if request.split != "subject":
        assert "toy_owners/owner" not in raw  # nobody asked for it
        return prepared
    mine = raw["toy_owners/owner"] == "me"
    return replace(prepared, train=np.flatnonzero(mine), test=np.flatnonzero(~mine))


def dataset(*extras: Extra) -> Dataset:
    plain = toy.dataset()
    return replace(plain, card=replace(plain.card, extras=extras or (OWNERS,)), prepare=prepare, pack=pack)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(data.DATASETS, "toy", dataset())
    (tmp_path / "by hand").mkdir()
    (tmp_path / "by hand/toy-1.txt").write_text(toy.original(range(20)))
    (tmp_path / "by hand/owners.txt").write_text("me\nyou\n" * 10)
    return tmp_path


def get(split: str, of: Dataset | None = None) -> Splits[PanelPart]:
    keys: dict[str, Any] = {"task": None, "seed": 42, "scaling": None, "variant": None, "cache": True, "options": {}}
    return load_dataset(of or dataset(), split=split, **keys)


def test_a_split_reads_its_extra_file(home: Path) -> None:
    said: list[str] = []
    main = manage.pack(dataset(), home / "by hand", said.append)
    extra = home / "data/toy/toy_owners.npz"
    assert said == [f"wrote {main}", f"wrote {extra}"]
    assert list(np.load(extra)) == ["owner"]
    assert get("subject").train.members.tolist() == list(range(0, 20, 2))
    assert len(get("published").train) == 14


def test_an_extra_file_may_be_packed_alone(home: Path) -> None:
    manage.pack(dataset(), home / "by hand", print)
    (home / "by hand/toy-1.txt").unlink()
    (home / "by hand/owners.txt").write_text("you\nme\n" * 10)
    before = store.digest(home / "data/toy/toy.npz")
    assert manage.pack(dataset(), home / "by hand", print) == home / "data/toy/toy_owners.npz"
    assert store.digest(home / "data/toy/toy.npz") == before
    assert get("subject").train.members.tolist() == list(range(1, 20, 2))


def test_without_the_extra_file_only_its_split_fails(home: Path) -> None:
    manage.pack(dataset(), home / "by hand", print)
    (home / "data/toy/toy_owners.npz").unlink()
    assert len(get("published").train) == 14
    with pytest.raises(MissingDataError) as error:
        get("subject")
    assert str(error.value) == (
        f"split='subject' of toy needs toy/toy_owners.npz (who owns a series), which is not in {home / 'data'}. "
        "By hand: Ask the owners, then: lformer data pack toy PATH. Or set LFORMER_DATA to a folder that has it."
    )


def test_the_fingerprint_covers_every_file_that_is_used(home: Path) -> None:
    both = dataset(OWNERS, OTHERS)
    manage.pack(both, home / "by hand", print)
    store.write_raw(home / "data" / OTHERS.name, {"x": np.zeros(3)})
    published, subject = get("published", both).fingerprint, get("subject", both).fingerprint
    store.write_raw(home / "data" / OWNERS.name, {"owner": np.array(["me"] * 19 + ["you"])})
    assert get("published", both).fingerprint == published
    assert (owners := get("subject", both)).fingerprint != subject
    assert len(owners.train) == 19  # not what the cache had
    store.write_raw(home / "data" / OTHERS.name, {"x": np.ones(3)})
    assert get("published", both).fingerprint != published
    assert get("subject", both).fingerprint not in (subject, owners.fingerprint)


def test_damage_is_told_of_the_right_file(home: Path) -> None:
    main = manage.pack(dataset(), home / "by hand", print)
    extra = home / "data/toy/toy_owners.npz"
    whole = extra.read_bytes()
    extra.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"toy_owners\.npz is damaged"):
        get("subject")
    with pytest.raises(DataError, match=r"toy_owners\.npz is damaged"):
        manage.verify(dataset(), print)
    store.write_raw(extra, {"nobody": np.zeros(2)})
    with pytest.raises(DataError, match=r"toy_owners\.npz is damaged or not a raw file of lformer"):
        get("subject")
    store.write_raw(main, {"id": np.arange(2)})
    with pytest.raises(DataError, match=r"toy\.npz is damaged or not a raw file"):
        get("subject")


def test_an_error_of_the_preparation_is_not_taken_for_damage(home: Path) -> None:
    manage.pack(dataset(), home / "by hand", print)

    def refuse(raw: Any, request: Request) -> Prepared:
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match=r"^no such thing$"):
        get("published", replace(dataset(), prepare=refuse))


def test_arrays_are_read_when_asked_for(home: Path) -> None:
    main = manage.pack(dataset(), home / "by hand", print)
    with store.open_raw(main, home / "data/toy/toy_owners.npz") as raw:
        assert sorted(raw) == ["id", "label", "time", "toy_owners/owner", "value"]
        assert len(raw) == 5
        assert "toy_owners/owner" in raw
        assert "owner" not in raw
        assert raw.get("owner") is None
        assert raw.get("toy_owners/owner", 1) is not None


def test_a_request_is_checked_before_files_are_looked_for(home: Path) -> None:
    def check(request: Request) -> None:
        raise ValueError(f"not {request.split} with {request.task}")

    with pytest.raises(ValueError, match="not subject with classify"):
        get("subject", replace(dataset(), check=check))


def test_a_card_names_only_its_own_splits() -> None:
    with pytest.raises(ValueError, match=r"toy: extra files for unknown splits \{'p12'\}"):
        dataset(replace(OWNERS, splits=("p12",)))


# -- at the terminal


def flat(text: str) -> str:
    return " ".join(text.split())


def test_list_info_and_verify_show_them(home: Path) -> None:
    missing = "toy: split subject needs toy/toy_owners.npz, which is missing"
    assert missing not in flat(call("data", "list").output)  # the main file is not here either
    manage.pack(dataset(), home / "by hand", print)
    assert missing not in flat(call("data", "list").output)
    shown = flat(call("data", "info", "toy").output)
    assert "extra toy_owners for split subject: who owns a series" in shown
    assert "is missing" not in shown
    verified = call("data", "verify", "toy")
    assert verified.exit_code == 0
    assert verified.output.count("sha256 as recorded") == 2

    extra = home / "data/toy/toy_owners.npz"
    store.write_raw(extra, {**dict(np.load(extra)), "more": np.zeros(1)})
    changed = call("data", "verify", "toy")
    assert changed.exit_code == 1
    assert "has changed since" in flat(changed.output)

    extra.unlink()
    assert missing in flat(call("data", "list").output)
    assert "toy/toy_owners.npz is missing. By hand: Ask the owners" in flat(call("data", "info", "toy").output)
    absent = call("data", "verify", "toy")
    assert absent.exit_code == 0
    assert "toy/toy_owners.npz is missing; it is needed for split='subject' only." in flat(absent.output)
