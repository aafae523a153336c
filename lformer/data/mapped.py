"""Named arrays and notes in one sealed file, which is memory-mapped rather than read.

After the seal, the file has the safetensors layout: the length of the header, the header in JSON, then the arrays as
they are in memory. So opening a file costs nothing, several processes share one copy, and no code is ever executed. A
file that has changed since it was written, or contradicts itself, is refused before any memory is allocated for it.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lformer import sealed
from lformer.data.dataset import Array
from lformer.data.files import DataError

DTYPES = {
    "F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
NAMES = {np.dtype(numpy): name for name, numpy in DTYPES.items()}
LARGEST_HEADER = 2**25  # bytes, enough for the names of a million series
LARGEST_SIDE = 2**31  # of an empty array, whose other dimensions cost nothing to claim
DIMENSIONS = 32
WRONG = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)  # raised by wrong content


def damaged(path: Path, error: Exception) -> DataError:
    """The error for a file that cannot be used."""
    return DataError(f"{path} is damaged ({error}). Delete it; it will be made again.")


def write(path: Path, arrays: dict[str, Array], notes: dict[str, Any]) -> None:
    """Write arrays, those of the widest type first so that all are aligned, and notes, atomically."""
    order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": {"lformer": json.dumps(notes)}}
    end = 0
    for name in order:
        array = arrays[name]
        if array.dtype not in NAMES:
            raise TypeError(f"{name} has dtype {array.dtype}; prepared sets hold {', '.join(DTYPES)}.")
        header[name] = {
            "dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [end, end + array.nbytes],
        }  # fmt: skip
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LARGEST_HEADER:
        raise DataError(
            f"the header of a prepared set may have {LARGEST_HEADER:,} bytes; that of {path} has {len(text):,}"
        )

    def fill(stream: BinaryIO) -> None:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            stream.write(np.ascontiguousarray(arrays[name]).data)

    sealed.write_blob(path, fill)


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays, memory-mapped, and the notes of a file."""
    try:
        sealed.check_blob(path)
        with path.open("rb") as stream:
            header, begin = _header(stream)
            notes = json.loads(header.pop("__metadata__")["lformer"])
            if not isinstance(notes, dict):
                raise ValueError(f"its notes are a {type(notes).__name__}")
            size = os.fstat(stream.fileno()).st_size - begin
            places = {name: _place(name, entry) for name, entry in header.items()}
            _check_order(places, size)
            content = np.asarray(np.memmap(stream, np.uint8, "r", begin)) if size else np.empty(0, np.uint8)
        arrays = {
            name: content[start:end].view(dtype).reshape(shape) for name, (start, end, dtype, shape) in places.items()
        }
    except WRONG as error:
        raise damaged(path, error) from error
    return arrays, notes


def _header(stream: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header, and the position at which the arrays begin."""
    stream.seek(sealed.SEAL.size)
    length = int.from_bytes(stream.read(8), "little")
    if length > LARGEST_HEADER:
        raise ValueError(f"a header of {length:,} bytes")
    begin = stream.tell() + length
    header = json.loads(stream.read(length))
    if stream.tell() != begin or begin % 8 or not isinstance(header, dict):
        raise ValueError("its header is cut short, not aligned or not an object")
    return header, begin


Place = tuple[int, int, np.dtype[Any], tuple[int, ...]]  # begin, end, dtype, shape


def _place(name: str, entry: Any) -> Place:
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), entry["shape"]
    begin, end = entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (begin, end, *shape)) or len(shape) > DIMENSIONS:
        raise ValueError(f"{name} has shape {shape} from byte {begin} to {end}")
    if math.prod(shape) * dtype.itemsize != end - begin or (0 in shape and max(shape) > LARGEST_SIDE):
        raise ValueError(f"{name} has shape {shape} of {dtype} in {end - begin:,} bytes")
    if begin % dtype.itemsize:
        raise ValueError(f"{name} is not aligned")
    return begin, end, dtype, tuple(shape)


def _check_order(places: dict[str, Place], size: int) -> None:
    """Check that the arrays follow each other without gap or overlap, from the first byte to the last."""
    expected = 0
    for begin, end, _, _ in sorted(places.values(), key=lambda place: place[:2]):
        if begin != expected:
            raise ValueError(f"an array begins at byte {begin:,} where {expected:,} was expected")
        expected = end
    if expected != size:
        raise ValueError(f"its arrays end at byte {expected:,} of {size:,}")
