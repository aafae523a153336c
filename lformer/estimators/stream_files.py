"""Streams on disk: the state of all series in one sealed file, made of numbers and text only, without pickle.

64 bytes   the seal of the rest, see `lformer.sealed`
8 bytes    length of the description
JSON       what was saved, by which model, and the name, type and shape of each array
arrays     one after the other: the latest rows of each series and the states after them, the latest first
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch

from lformer import __version__
from lformer.estimators.incoming import Clock
from lformer.estimators.plain import entries, fields, number, plain, text, whole
from lformer.estimators.slots import Slots
from lformer.nn.states import leaves
from lformer.panel import Array
from lformer.panel.zones import read_zone
from lformer.sealed import SEAL, DamagedError, check_blob, write_blob

if TYPE_CHECKING:
    from lformer.estimators.base import LFormerEstimator
    from lformer.estimators.streams import Streams

FILE, FORMAT = "streams.sealed", 1
LENGTH = struct.Struct("<Q")
PARTS = ("format", "version", "model", "ids", "stamps", "zone", "dropped", "arrays")


def save(streams: Streams, folder: str | Path) -> None:
    """Save all series of some streams atomically; an existing file is replaced."""
    slots = streams.slots
    used = np.array(list(slots.place.values()), np.int64)
    arrays = _of_series(slots, used) | _of_rows(slots, used)
    about = {
        "format": FORMAT,
        "version": __version__,
        "model": fingerprint(streams.estimator),
        "ids": list(slots.place),
        "stamps": None if slots.clock is None or not len(used) else slots.stamps.dtype.str,
        "zone": None if slots.clock is None or not len(used) else slots.clock.zone,
        "dropped": streams.dropped,
        "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()],
    }
    head = json.dumps(about).encode()

    def fill(stream: BinaryIO) -> None:
        stream.write(LENGTH.pack(len(head)) + head)
        for array in arrays.values():
            stream.write(array.tobytes())

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_blob(folder / FILE, fill)


def load(streams: Streams, folder: str | Path) -> None:
    """Restore streams from a file; if that fails, they are left unchanged."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; expected a folder into which streams were saved.")
    check_blob(path)
    with path.open("rb") as stream:
        stream.seek(SEAL.size)
        about = _described(stream, path)
        if about["model"] != fingerprint(streams.estimator):
            raise ValueError(
                f"{path} holds streams of another model, whose states cannot be used. Open streams of the model that "
                "saved them, or start anew."
            )
        try:
            slots = _restored(streams.slots, about, stream)
        except ValueError as error:
            raise DamagedError(f"{path} does not hold streams of this model: {error}.") from error
    streams.slots, streams.dropped = slots, whole(about["dropped"], "dropped")


def fingerprint(estimator: LFormerEstimator) -> str:
    """SHA-256 of everything the states depend on: weights, shape, channels, clock and scales of a model."""
    model, features = estimator.model_, estimator.features_
    about = {
        "class": type(estimator).__name__,
        "config": {key: plain(value, key) for key, value in dataclasses.asdict(model.config).items()},
        "channels": list(features.channels),
        "known": features.known.tolist(),
        "unit": features.unit,
        "calendar": [features.calendar, repr(features.marks)],
        "covariates": repr(features.covariates),
        "scales": [list(map(number, scale, ["scale"] * len(scale))) for scale in _scales(estimator)],
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _scales(estimator: LFormerEstimator) -> list[list[float]]:
    return [list(estimator.task_.shift), list(estimator.task_.scale)]


def _of_series(slots: Slots, used: Array) -> dict[str, Array]:
    """(n, ...) data of the series in these slots."""
    index = torch.from_numpy(used)
    return {
        "count": slots.count[used],
        "kept": slots.kept[used],
        "origin": _ticks(slots.origin[used]),
        "static": slots.static[index].numpy(),
        "outputs": slots.outputs[index].numpy(),
    }


def _of_rows(slots: Slots, used: Array) -> dict[str, Array]:
    """(n, R, ...) data of their latest rows, the last one first."""
    ages = slots.ages(used)
    found = {"rows": _ticks(slots.stamps[used[:, None], ages]), "values": slots.values[used[:, None], ages]}
    flat = torch.from_numpy((used[:, None] * slots.ring + ages).ravel())
    for n, leaf in enumerate(leaves(slots.states)):
        found[f"state {n}"] = leaf.index_select(0, flat).reshape(*ages.shape, *leaf.shape[1:]).numpy()
    return found


def _ticks(stamps: Array) -> Array:
    """Dates and durations as integers."""
    return stamps.view(np.int64) if stamps.dtype.kind in "mM" else stamps


def _described(stream: BinaryIO, path: Path) -> dict[str, Any]:
    """The description, if this version can read it."""
    try:
        (length,) = LENGTH.unpack(stream.read(LENGTH.size))
        about = json.loads(stream.read(length))
        version = about["format"]
    except (ValueError, struct.error, KeyError, TypeError) as error:
        raise DamagedError(f"{path} does not hold streams of lformer.") from error
    if version != FORMAT:
        raise ValueError(
            f"{path} has format {version!r}, but this version reads {FORMAT}. Use the lformer that wrote it."
        )
    return fields(about, "it", PARTS)


def _restored(like: Slots, about: dict[str, Any], stream: BinaryIO) -> Slots:
    """Slots like the given ones, with the series of the file."""
    names = entries(about["ids"], "ids")
    if any(type(name) not in (str, int) for name in names) or len(set(names)) < len(names):
        raise ValueError("ids must be distinct strings or integers")
    found = _read(entries(about["arrays"], "arrays"), stream)
    slots = Slots(like.model, like.values.shape[2], like.ring - 1, like.static.shape[1], len(names))
    if names:
        zone = None if about["zone"] is None else text(about["zone"], "zone")
        if zone is not None:
            read_zone(zone)
        slots.keep_time(Clock(np.dtype(text(about["stamps"], "stamps")), zone))
    used = slots.claim(len(names))
    ring = found["rows"].shape[1] if "rows" in found and found["rows"].ndim == 2 else 0
    _require_alike(found, _of_series(slots, used), (len(names),))
    _require_alike(found, _of_rows(slots, used), (len(names), ring))
    if names:
        _fill(slots, used, found, ring)
    slots.place = dict(zip(names, used.tolist(), strict=True))
    return slots


def _require_alike(found: dict[str, Array], wanted: dict[str, Array], begin: tuple[int, ...]) -> None:
    """Raise for arrays of another type, or of another shape apart from the axes of series and rows."""
    for name, array in wanted.items():
        shape = (*begin, *array.shape[len(begin) :])
        if name not in found or found[name].shape != shape or found[name].dtype != array.dtype:
            raise ValueError(f"{name} must be {array.dtype} {shape}")


def _fill(slots: Slots, used: Array, found: dict[str, Array], ring: int) -> None:
    """Copy what was read into slots whose ring buffer may have another size: the latest rows are kept."""
    dtype, shared = slots.stamps.dtype, min(ring, slots.ring)
    slots.count[used], slots.origin[used] = found["count"], found["origin"].view(dtype)
    slots.kept[used] = np.minimum(found["kept"], shared)
    slots.static[torch.from_numpy(used)] = torch.from_numpy(found["static"])
    slots.outputs[torch.from_numpy(used)] = torch.from_numpy(found["outputs"])
    ages = slots.ages(used)[:, :shared]
    slots.stamps[used[:, None], ages] = found["rows"].view(dtype)[:, :shared]
    slots.values[used[:, None], ages] = found["values"][:, :shared]
    flat = torch.from_numpy((used[:, None] * slots.ring + ages).ravel())
    for n, leaf in enumerate(leaves(slots.states)):
        leaf.index_copy_(0, flat, torch.from_numpy(found[f"state {n}"][:, :shared].reshape(-1, *leaf.shape[1:])))


def _read(listed: list[Any], stream: BinaryIO) -> dict[str, Array]:
    """The arrays, which must fill the rest of the file."""
    found: dict[str, Array] = {}
    for entry in listed:
        name, kind, shape = entries(entry, "an array")
        dtype = np.dtype(text(kind, "type"))
        if dtype.kind not in "bif":
            raise ValueError(f"{name} has the type {kind}, which no array of streams has")
        size = [whole(n, "shape") for n in entries(shape, "shape")]
        content = stream.read(dtype.itemsize * int(np.prod(size, dtype=np.int64)))
        found[text(name, "name")] = np.frombuffer(bytearray(content), dtype).reshape(size)
    if stream.read(1):
        raise ValueError("there is unexpected data at its end")
    return found
