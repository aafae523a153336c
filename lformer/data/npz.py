"""Raw files: npz archives whose declared sizes are verified.

`numpy.load` allocates what the header of an array declares. Here, the header, the directory of the archive and the
bytes on disk have to agree first, so a file of a few kilobytes cannot allocate gigabytes. Nothing is ever unpickled.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from lformer.data import files
from lformer.data.dataset import Array

KINDS = "biufUS"  # plain numbers and text
RATIO = 1032  # largest compression ratio of DEFLATE
WIDEST = 2**24  # bytes of one element, or of the other dimensions, of an empty array, which cost nothing to claim
DIMENSIONS = 32
CHUNK = 2**20


class Npz(Mapping[str, Array]):
    """The arrays of a file, each read on access. A file that contradicts itself raises a ValueError."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)
        try:
            self._members = _members(self._archive, path.stat().st_size)
        except BaseException:
            self._archive.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._archive.close()

    def __getitem__(self, name: str) -> Array:
        member = self._members[name]
        with self._archive.open(member) as stream:
            dtype, shape, fortran = _header(name, stream)
            size = member.file_size - stream.tell()
            if math.prod(shape) * dtype.itemsize != size:
                raise ValueError(f"{name} claims the shape {shape} of {dtype}, but has {size:,} bytes")
            flat = _read(stream, size).view(dtype)
        return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members of an archive of `size` bytes, by the names of their arrays."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in found:
            raise ValueError(f"{member.filename} is not an array, or occurs twice")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is compressed in a way that numpy does not use")
        ratio = 1 if member.compress_type == zipfile.ZIP_STORED else RATIO
        if member.compress_size > size or member.file_size > ratio * member.compress_size:
            raise ValueError(
                f"{name} claims {member.file_size:,} bytes, packed into {member.compress_size:,} of a file of {size:,}"
            )
        if member.file_size > files.LARGEST:
            raise ValueError(f"{name} would take {member.file_size / 2**30:.1f} GiB; no benchmark is that large")
        found[name] = member
    return found


def _header(name: str, stream: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """The dtype, the shape, and whether the first axis varies fastest."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{name} has a header of a version that plain arrays do not need")
    try:
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except (SyntaxError, RecursionError, MemoryError) as error:  # raised by the parser on invalid nesting
        raise ValueError(f"{name} has a header that cannot be read") from error
    if dtype.kind not in KINDS or not dtype.itemsize:
        raise ValueError(f"{name} holds {dtype}; raw files hold plain numbers and text")
    if len(shape) > DIMENSIONS or any(side < 0 for side in shape):
        raise ValueError(f"{name} claims a shape of {len(shape)} dimensions, {str(shape)[:80]}")
    if 0 in shape and dtype.itemsize * math.prod(side for side in shape if side) > WIDEST:
        raise ValueError(f"{name} is empty, but claims the shape {shape} of {dtype}")
    return dtype, shape, fortran


def _read(stream: IO[bytes], size: int) -> Array:
    """Read exactly `size` bytes; the member is read to its end, where its checksum is compared."""
    content = np.empty(size, np.uint8)
    done = 0
    while chunk := stream.read(min(CHUNK, size - done) or 1):
        content[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
        done += len(chunk)
    if done != size:
        raise EOFError(f"it ends after {done:,} of {size:,} bytes")
    return content
