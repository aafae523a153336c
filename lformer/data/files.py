"""Files as published by their owners: a folder, a zip, a tar or a single file, read in place.

Nothing is ever unpacked to disk, so no archive can write to the wrong place, and interrupted reading leaves nothing.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

TARS = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")
DAMAGED = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, struct.error)
LARGEST = 4 * 2**30  # bytes of one file inside an archive; only decompression bombs are larger


class DataError(ValueError):
    """Raised if a file has the wrong content; says where, what was expected and what was found."""


class Text:
    """The lines of one file, and errors that name the file and the line."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
        self.lines = text.replace("\r\n", "\n").split("\n")
        if self.lines and self.lines[-1] == "":
            self.lines.pop()

    def error(self, line: int, message: str) -> DataError:
        """An error at a line, which is counted from 0 here and from 1 in the message."""
        return DataError(f"{self.name}, line {line + 1}: {message}")


class Files:
    """The files in a folder and its archives, or in an archive, named with forward slashes.

    An archive within an archive is not opened. Files that macOS adds to archives (`__MACOSX`, `._name`) are left out,
    and so are unfinished downloads (`name.part`).

    Args:
        path: the folder, archive or file.
        names: the only files of the folder to read; None reads all.

    Example:
        >>> [name for name, _ in Files(Path(__file__)).walk("*.py")]
        ['files.py']
    """

    def __init__(self, path: str | Path, names: Collection[str] | None = None) -> None:
        self.path = Path(path).expanduser()
        self._names = names
        if not self.path.exists():
            raise DataError(f"{self.path} does not exist.")

    def walk(self, pattern: str) -> Iterator[tuple[str, bytes]]:
        """Names and contents of all files whose last part matches, in the order of the archive or of their names.

        Args:
            pattern: pattern of the last part of a name, such as "*.txt", ignoring case. A file `x.txt.gz` counts as
                `x.txt`.
        """
        if self.path.is_dir():
            for file in sorted(p for p in self.path.rglob("*") if p.is_file() and p.suffix != ".part"):
                name = file.relative_to(self.path).as_posix()
                if self._names is None or name in self._names:
                    yield from _enter(name, file, pattern)
        else:
            yield from _enter(self.path.name, self.path, pattern)

    def texts(self, pattern: str) -> Iterator[Text]:
        """Like `walk`, but with the contents as lines of text."""
        for name, content in self.walk(pattern):
            yield Text(f"{self.path}: {name}" if name != self.path.name else str(self.path), content)

    def only(self, pattern: str) -> Text:
        """The only file that matches; raises an error if there is not exactly one."""
        found = list(self.texts(pattern))
        if len(found) != 1:
            names = ", ".join(text.name for text in found[:5]) or "none"
            raise DataError(f"expected exactly one {pattern} under {self.path}; found {len(found)}: {names}.")
        return found[0]


def _enter(name: str, file: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    try:
        if zipfile.is_zipfile(file) or name.lower().endswith(".zip"):
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    if not member.is_dir():
                        yield from _matching(f"{name}/{member.filename}", member.file_size, pattern, archive, member)
        elif name.lower().endswith(TARS):
            with tarfile.open(file) as archive:
                for entry in archive:
                    if entry.isfile():  # links and devices are not followed
                        yield from _matching(f"{name}/{entry.name}", entry.size, pattern, archive, entry)
                _ends_as_a_tar(archive)
        elif _matches(name, pattern):
            yield _plain(name), _read(name, file.open("rb"), LARGEST)
    except (*DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # the file cannot be opened at all
            raise
        raise DataError(f"{file} is damaged or cut short ({error}). Download it again.") from error
    except (RuntimeError, NotImplementedError) as error:  # a password, or an unknown compression
        raise DataError(f"{file} cannot be read ({error}). Unpack it yourself and give the folder.") from error


def _ends_as_a_tar(archive: tarfile.TarFile) -> None:
    """Check the end of a tar: a block of zeros, missing if it is cut between two files, then the checksum, if any."""
    stream = archive.fileobj
    assert stream is not None
    stream.seek(archive.offset)
    if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("its end is missing")
    while stream.read(2**20):  # the checksum is compared only at the very end
        pass


def _matching(
    name: str,
    size: int,
    pattern: str,
    archive: zipfile.ZipFile | tarfile.TarFile,
    member: zipfile.ZipInfo | tarfile.TarInfo,
) -> Iterator[tuple[str, bytes]]:
    if not _matches(name, pattern):
        return
    if size > LARGEST:
        raise DataError(f"{name} would unpack to {size / 2**30:.1f} GiB; no benchmark file is that large.")
    stream: IO[bytes] | None
    if isinstance(archive, zipfile.ZipFile):
        assert isinstance(member, zipfile.ZipInfo)
        stream = archive.open(member)
    else:
        assert isinstance(member, tarfile.TarInfo)
        stream = archive.extractfile(member)
    if stream is not None:
        yield _plain(name), _read(name, stream, LARGEST)


def _read(name: str, stream: IO[bytes], limit: int) -> bytes:
    with stream:
        content = stream.read()
    if name.endswith(".gz"):
        if not content:
            raise EOFError("the file is empty")
        with gzip.open(io.BytesIO(content)) as packed:
            content = packed.read(limit + 1)
        if len(content) > limit:
            raise DataError(f"{name} unpacks to more than {limit / 2**30:.0f} GiB; no benchmark file is that large.")
    return content


def _plain(name: str) -> str:
    return name.removesuffix(".gz")


def _matches(name: str, pattern: str) -> bool:
    path = PurePosixPath(_plain(name))
    if "__MACOSX" in path.parts or path.name.startswith("._"):
        return False
    return fnmatch.fnmatchcase(path.name.lower(), pattern.lower())
