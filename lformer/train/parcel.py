"""Pass objects to other processes on this machine through a private folder, which is deleted soon.

Objects are pickled, as in `multiprocessing`, and only read by our own processes. Large arrays are not copied to each
process: they are in one file that all processes map, and arrays that already were memory-mapped from a file, as in a
panel on disk, are mapped from there again.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lformer.arrays import Array
from lformer.panel import Panel
from lformer.parts import PanelPart

SMALL = 2**16  # arrays of up to this many bytes are pickled with the rest
ALIGNED = 64  # every array starts at a multiple of this
THINGS, ARRAYS = "things.pickle", "arrays.bin"

Place = tuple[str, str, int, tuple[int, ...]]  # file, dtype, first byte and shape of an array


def pack(thing: Any, folder: Path) -> None:
    """Write an object to a folder, for `unpack` in a process on the same file system."""
    content = io.BytesIO()
    with (folder / ARRAYS).open("wb") as arrays:
        _Packer(content, arrays).dump(thing)
    (folder / THINGS).write_bytes(content.getbuffer())


def unpack(folder: Path) -> Any:
    """Read what `pack` wrote; large arrays are read-only."""
    with (folder / THINGS).open("rb") as stream:
        return pickle.load(stream)


class _Packer(pickle.Pickler):
    def __init__(self, stream: BinaryIO, arrays: BinaryIO) -> None:
        super().__init__(stream, protocol=5)
        self._arrays = arrays
        self._placed: dict[Any, Place] = {}  # training and validation sets are views of the same rows

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Panel | PanelPart):
            # Not compacted, as pickling usually does: their arrays are in a file that all processes share.
            return copyreg.__newobj__, (type(thing),), dict(thing.__dict__)  # type: ignore[attr-defined]
        if type(thing) is np.ndarray and thing.nbytes > SMALL and not thing.dtype.hasobject:
            return _mapped, self._place(thing)
        return NotImplemented

    def _place(self, array: Array) -> Place:
        where = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
        if where not in self._placed:
            self._placed[where] = _origin(array) or self._written(array)
        return self._placed[where]

    def _written(self, array: Array) -> Place:
        self._arrays.write(b"\0" * (-self._arrays.tell() % ALIGNED))
        begin = self._arrays.tell()
        self._arrays.write(np.ascontiguousarray(array).view(np.uint8).data)  # dates have no buffer interface
        return str(Path(self._arrays.name).absolute()), array.dtype.str, begin, array.shape


def _origin(array: Array) -> Place | None:
    """The file position of a memory-mapped array; None if it is not mapped, or not contiguous."""
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    if base is None or base.filename is None or not array.flags.c_contiguous:
        return None
    while isinstance(base.base, np.memmap):  # a view of a mapping does not know its offset
        base = base.base
    ahead = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return str(Path(base.filename).absolute()), array.dtype.str, base.offset + ahead, array.shape


def _mapped(file: str, dtype: str, begin: int, shape: tuple[int, ...]) -> Array:
    return np.memmap(file, np.dtype(dtype), "r", begin, shape).view(np.ndarray)
