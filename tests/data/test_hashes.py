"""The record of hashes: what it says was written by us, or nothing is believed."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lformer import sealed
from lformer.data import DataError, store

ONE, TWO = "1" * 64, "2" * 64


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path))
    return tmp_path


def test_hashes_are_recorded_and_forgotten() -> None:
    assert store.recorded("a") is None
    store.forget(["a"])
    store.record("b", TWO)
    store.record("a", ONE)
    assert (store.recorded("a"), store.recorded("b")) == (ONE, TWO)
    assert json.loads(store.hashes_file().read_text())["a"] == ONE  # people may read it
    store.forget(["a", "c"])
    assert (store.recorded("a"), store.recorded("b")) == (None, TWO)


def test_many_may_record_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: store.record(f"k{i}", ONE), range(20)))
    assert len(sealed.read_json(store.hashes_file())) == 20


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "3", "{}", f'{{"a": "{ONE}"}}', "[" * 100_000, "\xff\xfe", '{"a": 1, "sha256": "x"}']
)
def test_a_damaged_record_is_named_with_what_to_do(text: str) -> None:
    store.hashes_file().write_bytes(text.encode("latin-1"))
    for call in (lambda: store.recorded("a"), lambda: store.record("a", ONE), lambda: store.forget(["a"])):
        with pytest.raises(DataError, match=r"hashes\.json is damaged.*Delete it: hashes are then recorded again"):
            call()
    store.hashes_file().unlink()
    store.record("a", ONE)
    assert store.recorded("a") == ONE


@pytest.mark.parametrize("value", [None, 3, [], {}, "", "xyz", ONE + "1", ONE.replace("1", "A"), 10**400])
def test_a_record_of_something_else_is_refused(value: object) -> None:
    sealed.write_json(store.hashes_file(), {"a": ONE, "b": value})
    with pytest.raises(DataError, match=r"expected a sha256 for 'b', got .*Delete it"):
        store.recorded("a")


def test_no_flipped_bit_gives_another_hash() -> None:
    store.record("a", ONE)
    whole = store.hashes_file().read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        store.hashes_file().write_bytes(flipped)
        try:
            assert store.recorded("a") == ONE
        except DataError:
            continue
