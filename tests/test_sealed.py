"""Files are written whole, and what was changed since is refused by name."""

import json
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from lformer import sealed
from lformer.sealed import DamagedError

CONTENT = bytes(range(256)) * 3


def write(path: Path, content: bytes = CONTENT) -> None:
    def fill(stream: BinaryIO) -> None:
        stream.write(content)

    sealed.write_blob(path, fill)


def test_a_blob_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    write(path)
    sealed.check_blob(path)
    assert path.read_bytes()[sealed.SEAL.size :] == CONTENT


def test_every_flipped_bit_of_a_blob_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    write(path)
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedError, match="blob is damaged"):
            sealed.check_blob(path)


@pytest.mark.parametrize("left", [0, 10, sealed.SEAL.size, sealed.SEAL.size + 5])
def test_a_cut_blob_is_noticed(tmp_path: Path, left: int) -> None:
    path = tmp_path / "blob"
    write(path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DamagedError):
        sealed.check_blob(path)


def test_a_blob_is_read_to_the_end_once_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "blob"
    write(path)
    sealed.check_blob(path)
    measure, read = sealed._measure, []
    monkeypatch.setattr(sealed, "_measure", lambda path: (read.append(path), measure(path))[1])
    sealed.check_blob(path)
    assert not read
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DamagedError):
        sealed.check_blob(path)


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.json"
    sealed.write_json(path, {"a": (1, 2.5), "é": {"x": None}})
    assert sealed.read_json(path) == {"a": [1, 2.5], "é": {"x": None}}


def test_no_flipped_bit_of_json_changes_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    fields = {"depth": 2, "scale": [1.5, -3e-7], "name": "ä", "on": True}
    sealed.write_json(path, fields)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = sealed.read_json(path)
        except DamagedError:
            continue
        assert found == fields  # a tab for a space says the same


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"a": 1}', "[" * 100_000, '{"a": 1, "sha256": 5}'])
def test_json_without_a_seal_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(DamagedError, match=r"file\.json is damaged"):
        sealed.read_json(path)


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    sealed.write_json(path, {"a": 1})

    def fail(part: Path) -> None:
        part.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        sealed.write_whole(path, fail)
    assert sealed.read_json(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_json_is_plain_text_for_people(tmp_path: Path) -> None:
    assert json.loads(sealed.json_text({"ü": [1]}))["ü"] == [1]
    assert "ü" in sealed.json_text({"ü": [1]})


def test_an_error_of_the_disk_names_the_file(tmp_path: Path) -> None:
    def fail(part: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*file\.json'") as error:
        sealed.write_whole(tmp_path / "file.json", fail)
    assert error.value.filename == str(tmp_path / "file.json")
