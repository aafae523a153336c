"""Raw files that claim what they do not hold are refused, by name, before anything is allocated for them."""

import io
import random
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lformer.data import DataError, files, npz, store
from lformer.data.npz import Npz

ARRAYS = {
    "whole": np.arange(12).reshape(3, 4),
    "text": np.array(["a", "bcd"]),
    "bytes": np.array([b"x", b"yz"]),
    "yes": np.array([True, False]),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 6, 1000)),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "large": np.arange(200_000, dtype=np.int16),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, "ours"])
def test_arrays_come_back_as_they_were(tmp_path: Path, save: Any) -> None:
    path = tmp_path / "x.npz"
    store.write_raw(path, ARRAYS) if save == "ours" else save(path, **ARRAYS)
    with Npz(path) as found:
        assert list(found) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)
            assert found[name].flags.writeable


@pytest.mark.parametrize("array", [np.zeros(2, complex), np.zeros(2, "M8[s]"), np.zeros(2, "i4,f8"), np.array([None])])
def test_what_could_not_be_read_is_not_written(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(TypeError, match=r"raw files hold plain numbers and text, not x \("):
        store.write_raw(tmp_path / "x.npz", {"x": array})
    assert list(tmp_path.iterdir()) == []


def member(header: str, body: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An array file with a header of our own."""
    text = header.encode("latin-1") + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + body


def described(descr: str, shape: str, fortran: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"


def zipped(*members: tuple[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def x(header: str, body: bytes = b"") -> bytes:
    return zipped(("x.npy", member(header, body)))


def claiming(content: bytes, **claims: int) -> bytes:
    """An archive of one member whose directory says something else of it: its size, packed or unpacked."""
    changed = bytearray(content)
    central, local = changed.rindex(b"PK\x01\x02"), changed.index(b"PK\x03\x04")
    for name, number in claims.items():
        begin = {"packed": 20, "size": 24}[name]
        changed[central + begin : central + begin + 4] = struct.pack("<I", number)
        changed[local + begin - 2 : local + begin + 2] = struct.pack("<I", number)
    return bytes(changed)


PLAIN = member(described("'<f8'", "(2,)"), bytes(16))
SMALL = described("'|u1'", "(872,)")

BAD = {
    "nothing": b"",
    "no archive": b"hello",
    "a plain array": PLAIN,
    "a shape of exabytes": x(described("'<f8'", f"({10**18},)"), bytes(16)),
    "a shape of gigabytes": x(described("'<f8'", "(2000000000,)"), bytes(16)),
    "a product that overflows": x(described("'<f8'", "(4294967296, 4294967296)")),
    "more than it has": x(described("'<f8'", "(3,)"), bytes(16)),
    "less than it has": x(described("'<f8'", "(1,)"), bytes(16)),
    "a side below zero": x(described("'<f8'", "(-2, -1)"), bytes(16)),
    "a huge empty array": x(described("'<f8'", f"(0, {10**18})")),
    "empty text of gigabytes": x(described("'<U500000000'", "(0,)")),
    "text of gigabytes": x(described("'<U500000000'", "(1,)"), bytes(16)),
    "text without room": x(described("'<U0'", f"({10**18},)")),
    "very many sides": x(described("'<f8'", str((1,) * 100)), bytes(8)),
    "an object": x(described("'|O'", "(1,)"), b"cos\nsystem\n."),
    "a record": x(described("[('a', '<f8'), ('b', '<f8')]", "(1,)"), bytes(16)),
    "an array in an array": x(described("('<f8', (2,))", "(1,)"), bytes(16)),
    "no dtype": x(described("'!'", "(1,)"), bytes(16)),
    "no shape": x(described("'<f8'", "'ab'"), bytes(16)),
    "no header": x("", bytes(16)),
    "nested parentheses": x("(" * 9000),
    "nested signs": x("-" * 9000 + "1"),
    "a long header": x(described("'<f8'", "(2,)") + " " * 20_000, bytes(16)),
    "another version": zipped(("x.npy", member(described("'<f8'", "(2,)"), bytes(16), (2, 0)))),
    "a header that is cut": zipped(("x.npy", PLAIN[:30])),
    "no array": zipped(("x.txt", b"hello")),
    "another compression": zipped(("x.npy", PLAIN), how=zipfile.ZIP_LZMA),
    "a size beyond all": claiming(zipped(("x.npy", PLAIN)), size=2**32 - 2),
    "a packed size beyond the file": claiming(zipped(("x.npy", PLAIN)), packed=2**31, size=2**31),
    "a stored size that is another": claiming(zipped(("x.npy", PLAIN), how=zipfile.ZIP_STORED), size=10**6),
    "unpacks to more than it says": claiming(x(SMALL, bytes(10**6)), size=len(member(SMALL)) + 872),
    "unpacks to less than it says": claiming(x(SMALL, bytes(87)), size=len(member(SMALL)) + 872),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(BAD[kind])
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"x\.npz is damaged or not a raw file of lformer"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def read(path: Path) -> dict[str, np.ndarray]:
    with store.open_raw(path) as arrays:
        return {name: arrays[name] for name in arrays}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_is_one_array(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(zipped(("x.npy", PLAIN), ("x.npy", PLAIN)))
    with pytest.raises(DataError, match="occurs twice"):
        read(tmp_path / "x.npz")


def test_an_archive_that_unpacks_to_very_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    store.write_raw(path, {"x": np.zeros(10**6)})
    assert len(read(path)["x"]) == 10**6
    monkeypatch.setattr(files, "LARGEST", 7 * 10**6)
    with pytest.raises(DataError, match="no benchmark is that large"):
        read(path)


def test_no_flipped_bit_gives_other_data(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    store.write_raw(path, ARRAYS | {"large": np.arange(500)})
    whole, expected = path.read_bytes(), read(path)
    for bit in random.Random(0).sample(range(8 * len(whole)), 600):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = read(path)
        except DataError:
            continue
        for name, array in found.items():  # a date, a comment; or a name, which whoever asks for it will miss
            assert name not in expected or np.array_equal(array, expected[name])


def test_the_bound_on_compression_is_that_of_deflate() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    size = len(packer.compress(bytes(10**8)) + packer.flush())
    assert 1000 < 10**8 / size < npz.RATIO
