"""Files as published: found wherever they lie, read whole or refused."""

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lformer.data import files as files_module
from lformer.data.files import DataError, Files, Text

CONTENT = {
    "set/a.txt": b"one\r\ntwo\r\n",
    "set/deep/B.TXT": b"three",
    "set/c.csv": b"4",
    "set/noise.txt": bytes(range(256)),
}


def zipped(content: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("set")
        for name, data in content.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(content: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("set/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    return buffer.getvalue()


PACKED: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "x.zip": zipped,
    "x.ZIP": zipped,
    "x.tar": tarred,
    "x.tar.gz": lambda c: gzip.compress(tarred(c)),
    "x.tgz": lambda c: gzip.compress(tarred(c)),
    "x.tar.bz2": lambda c: bz2.compress(tarred(c)),
    "x.tar.xz": lambda c: lzma.compress(tarred(c)),
}


def found(path: Path, pattern: str = "*.txt") -> dict[str, bytes]:
    return dict(Files(path).walk(pattern))


@pytest.mark.parametrize("name", PACKED)
def test_the_same_files_from_every_kind_of_archive(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(PACKED[name](CONTENT))
    expected = {f"{name}/{k}": v for k, v in CONTENT.items() if k.lower().endswith("txt")}
    assert found(tmp_path / name) == expected
    assert list(found(tmp_path / name)) == list(expected)  # in the order of the archive
    assert found(tmp_path) == expected  # a folder that holds the archive
    assert [text.lines for text in Files(tmp_path / name).texts("a.*")] == [["one", "two"]]
    assert Files(tmp_path / name).only("*.csv").name == f"{tmp_path / name}: {name}/set/c.csv"


def test_a_folder_is_walked_in_the_order_of_names(tmp_path: Path) -> None:
    for name, data in {"b.txt": b"2", "a/z.txt": b"1", "c.txt.gz": gzip.compress(b"3"), "d.dat": b"4"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert list(Files(tmp_path).walk("*.TXT")) == [("a/z.txt", b"1"), ("b.txt", b"2"), ("c.txt", b"3")]
    assert found(tmp_path / "c.txt.gz") == {"c.txt": b"3"}
    assert found(tmp_path / "b.txt") == {"b.txt": b"2"}
    assert found(tmp_path / "d.dat") == {}
    assert Files(str(tmp_path / "b.txt")).only("*").name == str(tmp_path / "b.txt")


def test_what_macos_adds_is_left_out(tmp_path: Path) -> None:
    extra = {"__MACOSX/set/._a.txt": b"junk", "set/._a.txt": b"junk", "__MACOSX/a.txt": b"junk"}
    (tmp_path / "x.zip").write_bytes(zipped({**extra, "set/a.txt": b"1"}))
    assert found(tmp_path) == {"x.zip/set/a.txt": b"1"}


@pytest.mark.parametrize("name", [*PACKED, "x.txt.gz"])
def test_cut_short_anywhere_nothing_partial_comes_out(tmp_path: Path, name: str) -> None:
    data = gzip.compress(os.urandom(200)) if name == "x.txt.gz" else PACKED[name](CONTENT)
    (tmp_path / name).write_bytes(data)
    whole = found(tmp_path)
    assert whole
    messages = []
    for size in {*range(0, len(data), max(1, len(data) // 60)), *range(0, len(data), 512)}:
        (tmp_path / name).write_bytes(data[:size])
        try:
            assert found(tmp_path) == whole  # a plain tar ends in zeros that nobody needs
        except DataError as error:
            messages.append(str(error))
    assert len(messages) >= (20 if name == "x.tar" else 50)
    assert all(message.startswith(f"{tmp_path / name} is damaged or cut short") for message in messages)


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.tar.bz2", "x.tar.xz", "x.txt.gz"])
def test_a_flipped_bit_is_noticed(tmp_path: Path, name: str) -> None:
    content = {"a.txt": random.Random(0).randbytes(3000)}
    data = gzip.compress(content["a.txt"]) if name == "x.txt.gz" else PACKED[name](content)
    rng = random.Random(1)
    for _ in range(40):
        broken = bytearray(data)
        broken[rng.randrange(200, len(data) - 300)] ^= 1 << rng.randrange(8)
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(DataError, match="damaged"):
            found(tmp_path)


def test_an_archive_with_a_password_says_what_to_do(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.txt": b"1"}))
    local, central = data.rindex(b"PK\x03\x04"), data.rindex(b"PK\x01\x02")
    data[local + 6] |= 1
    data[central + 8] |= 1
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(DataError, match=r"cannot be read \(.*password.*Unpack it yourself"):
        found(tmp_path)


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "LARGEST", 1000)
    (tmp_path / "x.zip").write_bytes(zipped({"a.txt": bytes(1001)}))
    with pytest.raises(DataError, match=r"x\.zip/a\.txt would unpack to"):
        found(tmp_path / "x.zip")
    (tmp_path / "x.tgz").write_bytes(PACKED["x.tgz"]({"a.txt": bytes(1001)}))
    with pytest.raises(DataError, match=r"x\.tgz/a\.txt would unpack to"):
        found(tmp_path / "x.tgz")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(DataError, match=r"a\.txt\.gz unpacks to more than"):
        found(tmp_path / "a.txt.gz")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(bytes(1000)))
    assert found(tmp_path / "a.txt.gz") == {"a.txt": bytes(1000)}


def test_exactly_one_file_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'nowhere'} does not exist"):
        Files(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"expected exactly one \*.txt under .*; found 0: none"):
        Files(tmp_path).only("*.txt")
    (tmp_path / "a.txt").write_text("1")
    assert Files(tmp_path).only("*.txt").lines == ["1"]
    (tmp_path / "b.txt").write_text("2")
    with pytest.raises(DataError, match=r"found 2: .*a.txt, .*b.txt"):
        Files(tmp_path).only("*.txt")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"\xef\xbb\xbfid,x\n1,2", ["id,x", "1,2"]),
        ("grün\n".encode(), ["grün"]),
        ("grün\n".encode("latin-1"), ["grün"]),
        (b"a\x0bb\x1cc\n", ["a\x0bb\x1cc"]),  # not ends of lines in a data file
    ],
)
def test_lines_of_a_text(content: bytes, lines: list[str]) -> None:
    assert Text("f", content).lines == lines


def test_an_error_names_file_and_line() -> None:
    error = Text("set-a/1.txt", b"h\n00:07,RecordID\n").error(1, "expected 3 columns, got 2.")
    assert isinstance(error, DataError)
    assert isinstance(error, ValueError)
    assert str(error) == "set-a/1.txt, line 2: expected 3 columns, got 2."
