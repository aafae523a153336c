"""Files that are written whole, and read back only as they were written.

Every file that lformer writes and reads again carries the SHA-256 of its content, so that a flipped bit, a copy cut
short or an edit by hand is an error that names the file, never another answer:

    JSON    an object with the entry "sha256", the digest of all its other entries
    blob    64 bytes, what this is, how long and its digest, and then the content
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO

MAGIC = b"lformer sealed 1"
SEAL = struct.Struct("<16sQ8x32s")  # MAGIC, length of the content, its SHA-256

Version = tuple[int, int, int, int]  # inode, size and times of change: another one, another content
_checked: dict[Path, Version] = {}  # blobs that this process has compared with their seals


class DamagedError(ValueError):
    """A file is not as it was written."""


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, then put it in place in one step; on an error nothing is left.

    Whatever happens, a kill or a loss of power included, `path` is the old file or the new one. Two processes may do so
    at once: each has its own file, and the last one stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=path.name + ".", suffix=".part", delete=False) as stream:
        part = Path(stream.name)
    try:
        write(part)
        part.chmod(0o644)
        with part.open("rb") as stream:
            os.fsync(stream.fileno())  # before the name: a machine may stop as well as a process
        part.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(part)):  # say where
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    write_whole(path, lambda part: _fill(part, text))


def _fill(part: Path, text: str) -> None:
    part.write_text(text, encoding="utf-8")


# --- JSON ---


def json_text(fields: Mapping[str, Any]) -> str:
    """An object as text, with its seal."""
    kept = json.loads(json.dumps(dict(fields)))  # as it will be read: lists for tuples, text for keys
    return json.dumps({**kept, "sha256": _digest(kept)}, indent=1, ensure_ascii=False) + "\n"


def parse_json(text: str | bytes, name: str) -> dict[str, Any]:
    """The object of a sealed text, without the seal; `name` is what an error calls it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{name} is damaged: not JSON ({error}).") from error
    if not isinstance(found, dict):
        raise DamagedError(f"{name} is damaged: it must hold an object, not a {type(found).__name__}.")
    seal = found.pop("sha256", None)
    if seal is None:
        raise DamagedError(f"{name} is damaged: it has no sha256 of its content.")
    if seal != _digest(found):
        raise DamagedError(f"{name} is damaged, or was changed since it was written: its sha256 differs.")
    return found


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """A sealed object, whole or not at all."""
    write_text(path, json_text(fields))


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote, or an error that names the file."""
    return parse_json(path.read_bytes(), str(path))


def _digest(fields: dict[str, Any]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# --- blobs ---


def write_blob(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Let `write` fill a file after its seal, whole or not at all; positions then count from `SEAL.size`."""

    def fill(part: Path) -> None:
        with part.open("wb") as stream:
            stream.write(bytes(SEAL.size))
            write(stream)
        length, digest = _measure(part)
        with part.open("r+b") as stream:
            stream.write(SEAL.pack(MAGIC, length, digest))

    write_whole(path, fill)


def check_blob(path: Path) -> None:
    """Refuse a blob that is not as it was written. A process reads it to the end once, and trusts it until it changes.

    What the content means begins at `SEAL.size`.
    """
    about = path.stat()
    version = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    if _checked.get(path) == version:
        return
    with path.open("rb") as stream:
        head = stream.read(SEAL.size)
    if len(head) < SEAL.size or not head.startswith(MAGIC):
        raise DamagedError(f"{path} is damaged: it does not begin as a file of lformer.")
    _, length, digest = SEAL.unpack(head)
    if length != about.st_size - SEAL.size:
        held = about.st_size - SEAL.size
        raise DamagedError(f"{path} is damaged: it holds {held:,} bytes where {length:,} were written.")
    if (length, digest) != _measure(path) or head != SEAL.pack(MAGIC, length, digest):
        raise DamagedError(f"{path} is damaged, or was changed since it was written: its sha256 differs.")
    _checked[path] = version


def _measure(path: Path) -> tuple[int, bytes]:
    """Length and SHA-256 of what stands after the seal."""
    with path.open("rb") as stream:
        stream.seek(SEAL.size)
        digest = hashlib.file_digest(stream, "sha256").digest()
        return stream.tell() - SEAL.size, digest
