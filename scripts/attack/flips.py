"""Damage: files with flipped bits, cuts and lost pages, which are refused or read as written; files made to harm."""

# What a case does is drawn from (seed, number). The harmful files are read in a process of their own, under limits of
# time and memory, which `python flips.py <seed> <first> <count>` is.

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd
import torch
from inputs import described, is_ours
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes
from tally import Tally

from lformer import LFormerClassifier, Panel, data, sealed, tasks
from lformer.bench import records as bench_records
from lformer.data import cache, mapped, store
from lformer.estimators import artefact
from lformer.nn import LFormer, LFormerConfig
from lformer.parts import Prepared, Targets
from lformer.train import TrainConfig, checkpoint, fit

REFUSED = (ValueError, FileNotFoundError)
PAGE = 4096


class Target(NamedTuple):
    """Files that belong together, and how they are read: in a form that is equal only if every bit is."""

    files: list[Path]
    read: Callable[[], Any]


# --- what is damaged ---


def series(n: int = 12) -> Panel:
    """Ragged series of two channels with holes, and covariates, a number and a text."""
    rng = np.random.default_rng(0)
    rows = []
    for length in rng.integers(3, 9, n):
        values = rng.normal(size=(length, 2))
        values[1:][rng.random((length - 1, 2)) < 0.3] = np.nan
        rows.append((np.sort(rng.random(length)), values))
    ids = [f"p{i}" for i in range(n)]
    static = pd.DataFrame({"age": rng.normal(50, 9, n), "site": (["north", "süd", None] * n)[:n]}, index=ids)
    return Panel.from_list(rows, ids=ids, channels=["k", "na"], static=static)


def saved_model(folder: Path) -> Target:
    """The folder of a saved classifier."""
    X = series()
    model = LFormerClassifier(width=8, max_epochs=1, device="cpu").fit(X, np.array(["well", "ill", "größer"] * 4))
    columns = {"id": "who", "time": "t", "channel": None, "value": ["k", "na"]}
    artefact.save(model, folder / "model", columns)

    def read() -> Any:
        found, columns = artefact.load_with_columns(folder / "model")  # what `load` returns, and the columns
        return found.predict_proba(X).tobytes(), found.classes_.tolist(), frozen(columns)

    return Target(sorted((folder / "model").iterdir()), read)


class Enough(Exception):
    """A run is to end in the middle."""


def interrupted_run(folder: Path) -> Target:
    """The last checkpoint of a training run that was interrupted."""

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 1:
            raise Enough

    config = LFormerConfig(inputs=2, outputs=2, answer="query", width=8, heads=2, depth=1)
    splits = data.load("spiral-0.02", points=30, cache=False)
    with suppress(Enough):
        fit(
            LFormer(config), tasks.trajectory(), splits, TrainConfig(epochs=3, device="cpu"), folder=folder / "run",
            progress=False, report=stop,
        )  # fmt: skip
    path = folder / "run" / checkpoint.LAST
    return Target([path], lambda: frozen(checkpoint.read(path)))


def prepared_set(folder: Path) -> Target:
    """A prepared data set in the cache."""
    panel = series()
    order = np.arange(len(panel))
    targets = Targets(values=order % 2, at="series", weights=np.linspace(0.5, 1, len(panel)))
    path = folder / "toy-classify-0123456789abcdef.prepared"
    cache.save(path, Prepared(panel=panel, targets=targets, train=order[:6], validation=order[6:9], test=order[9:]), "")

    def read() -> Any:
        found, partial = cache.load(path)
        parts = (found.train, found.validation, found.test)
        return frozen([vars(found.panel), vars(found.targets), parts, partial])

    return Target([path], read)


def record_of_a_run(folder: Path) -> Target:
    """The record of one run of the benchmark."""
    cell = bench_records.Cell(dataset="toy", task="classify", seed=7)
    record = {
        "cell": bench_records.cell_fields(cell), "status": "finished", "metrics": {"accuracy": 0.1 + 0.2, "auc": 1e-05},
        "history": [{"epoch": n, "loss": 1 / (n + 3)} for n in range(20)], "machine": {"name": "ä", "cores": 2},
    }  # fmt: skip
    path = bench_records.write(record, folder)
    return Target([path], lambda: frozen(bench_records.read(path)))


def frozen(value: Any) -> Any:
    """Anything that a file holds, such that it is equal to another only if every bit and type is."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    if isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype.kind in "OU" else np.ascontiguousarray(value).tobytes()
        return "array", value.dtype.str, value.shape, content
    if isinstance(value, pd.DataFrame):
        return "table", [(name, frozen(value[name].to_numpy())) for name in value], frozen(value.index.to_numpy())
    if isinstance(value, dict):
        return [(frozen(key), frozen(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [frozen(item) for item in value]
    return type(value).__name__, value.hex() if isinstance(value, float) else value


# --- how it is damaged ---


def flipped(content: bytes, draw: random.Random) -> bytes:
    """One bit is another."""
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def flipped_often(content: bytes, draw: random.Random) -> bytes:
    """Some bits are others."""
    for _ in range(draw.randrange(2, 20)):
        content = flipped(content, draw)
    return content


def cut(content: bytes, draw: random.Random) -> bytes:
    """The end is missing."""
    return content[: draw.randrange(len(content))]


def longer(content: bytes, draw: random.Random) -> bytes:
    """Something follows the end: anything, spaces, zeros or the file itself."""
    more = draw.randrange(1, 100)
    return content + draw.choice([draw.randbytes(more), b" " * more, bytes(more), b"\n", content])


def lost_page(content: bytes, draw: random.Random) -> bytes:
    """A page of the disk is zeros, or what another page holds."""
    size = draw.choice([16, 512, PAGE])
    begin = draw.randrange(0, len(content), size)
    page = content[begin : begin + size]
    other = draw.randrange(0, len(content), size)
    instead = draw.choice([bytes(len(page)), content[other : other + len(page)].ljust(len(page), b"\0")])
    return content[:begin] + instead + content[begin + size :]


def slipped(content: bytes, draw: random.Random) -> bytes:
    """A byte more, or one less, in the middle."""
    at = draw.randrange(len(content))
    return content[:at] + draw.choice([b"", content[at : at + 1] + draw.randbytes(1)]) + content[at + 1 :]


DAMAGES = (flipped, flipped, flipped, flipped, flipped_often, cut, longer, lost_page, slipped)


def damage(tally: Tally, cases: int, seed: int, made: Callable[[Path], Target]) -> None:
    """Damage a file, read, and put it back, over and over."""
    with tempfile.TemporaryDirectory() as home, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = made(Path(home))
        whole = {path: path.read_bytes() for path in target.files}
        expected = target.read()
        number = 0
        while tally.cases < cases and not tally.over:
            _damage_once(tally, target, whole, expected, seed, number)
            number += 1


def _damage_once(tally: Tally, target: Target, whole: dict[Path, bytes], expected: Any, seed: int, number: int) -> None:
    draw = random.Random(f"{seed} {number}")
    path, how = draw.choice(target.files), draw.choice(DAMAGES)
    put(path, how(whole[path], draw), 2 * number + 2)
    where = f"{how.__name__} {path.name}, seed {seed}, number {number}"
    tally.case()
    try:
        found = target.read()
    except REFUSED as error:
        if not is_ours(error):
            tally.fault(f"{where}: not in our words, {described(error)}")
    except Exception as error:
        tally.fault(f"{where}: {described(error)}")
    else:
        if found != expected:
            tally.fault(f"{where}: read as something else")
    put(path, whole[path], 2 * number + 3)


def put(path: Path, content: bytes, moment: int) -> None:
    """Write a file as another process would have, at a time of its own: a file that has not changed is not reread."""
    path.write_bytes(content)
    os.utime(path, ns=(moment, moment))


def artefacts(tally: Tally, cases: int, seed: int) -> None:
    """Folders of saved models."""
    damage(tally, cases, seed, saved_model)


def checkpoints(tally: Tally, cases: int, seed: int) -> None:
    """Checkpoints of training runs."""
    damage(tally, cases, seed, interrupted_run)


def prepared(tally: Tally, cases: int, seed: int) -> None:
    """Prepared sets in the cache."""
    damage(tally, cases, seed, prepared_set)


def records(tally: Tally, cases: int, seed: int) -> None:
    """Records of benchmark runs."""
    damage(tally, cases, seed, record_of_a_run)


# --- files made to harm ---

LIMIT = 500 * 2**20  # bytes that reading one of them may take
SECONDS, PATIENCE = 5, 30  # that it may compute, and last on a busy machine
FORGED = 1000  # descriptions of models with an entry that somebody drew
HUGE = (10**9, 2**31, 2**62, 2**63, 10**400)


class Place:
    """Sound files of every kind, of which one at a time is replaced by a harmful one."""

    def __init__(self, home: Path) -> None:
        self.targets = {
            "model": saved_model(home), "checkpoint": interrupted_run(home), "prepared": prepared_set(home),
            "record": record_of_a_run(home),
        }  # fmt: skip
        raw = home / "raw.npz"
        store.write_raw(raw, {"x": np.arange(3.0)})
        self.targets["raw"] = Target([raw], lambda: read_raw(raw))
        self.whole = {path: path.read_bytes() for target in self.targets.values() for path in target.files}
        self.moment = 1

    def restore(self) -> None:
        """All files as they were."""
        for path, content in self.whole.items():
            if path.is_symlink() or not path.is_file() or path.read_bytes() != content:
                path.unlink(missing_ok=True)
                self.write(path, content)

    def write(self, path: Path, content: bytes) -> None:
        """A file at a time of its own."""
        self.moment += 1
        put(path, content, self.moment)

    @property
    def description(self) -> Path:
        """What says everything of a model but its weights."""
        return self.file("model", "estimator.json")

    @property
    def weights(self) -> Path:
        """The weights of the model."""
        return self.file("model", "model.safetensors")

    def file(self, kind: str, name: str = "") -> Path:
        """One file of a kind."""
        return next(path for path in self.targets[kind].files if path.name == name or not name)


def read_raw(path: Path) -> Any:
    """All arrays of a raw file."""
    with store.open_raw(path) as arrays:
        return {name: frozen(arrays[name]) for name in arrays}


class Bomb(NamedTuple):
    """A harmful file."""

    name: str
    kind: str  # which of the files it replaces
    make: Callable[[Place], object]


def entry_of(text: bytes, *path: Any, to: Any) -> dict[str, Any]:
    """A sealed object with another entry, however deep, and without its seal."""
    found = json.loads(text)
    found.pop("sha256")
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return found


def sealed_bytes(content: dict[str, Any]) -> bytes:
    """A sealed object in ASCII, in which any text can be written, half a character included."""
    return json.dumps(json.loads(sealed.json_text(content))).encode()


def described_as(name: str, *path: Any, to: Any) -> Bomb:
    """A model whose description says something else, and is sealed as if it were right."""

    def make(place: Place) -> None:
        changed = entry_of(place.description.read_bytes(), *path, to=to)
        place.write(place.description, sealed_bytes(changed))

    return Bomb(f"{name} {str(to)[:40]}", "model", make)


def described_by(name: str, content: bytes) -> Bomb:
    """A model with any bytes for its description."""
    return Bomb(name, "model", lambda place: place.write(place.description, content))


def weighed_by(name: str, content: Callable[[bytes], bytes]) -> Bomb:
    """A model with other weights, which its description names as the right ones."""

    def make(place: Place) -> None:
        new = content(place.weights.read_bytes())
        place.write(place.weights, new)
        stored = {"file": place.weights.name, "sha256": hashlib.sha256(new).hexdigest(), "bytes": len(new)}
        changed = entry_of(place.description.read_bytes(), "weights", to=stored)
        place.write(place.description, sealed_bytes(changed))

    return Bomb(name, "model", make)


def laid_out(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    """The layout of safetensors: how long the header is, the header, and what it speaks of."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def tensor_of(shape: Any, begin: Any = 0, end: Any = 8, dtype: Any = "F64") -> dict[str, Any]:
    """What a header says of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def retyped(content: bytes, dtype: torch.dtype) -> bytes:
    """The weights with one of another type."""
    return as_bytes({**from_bytes(content), "first_interval": torch.ones((), dtype=dtype)})


def renamed(content: bytes, **changes: Any) -> bytes:
    """The weights, of one of which the header says something else."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["first_interval"] |= changes
    return laid_out(header, content[8 + size :])


def linked(name: str, file: str, to: str) -> Bomb:
    """A device in the place of a file of the model."""

    def make(place: Place) -> None:
        path = place.file("model", file)
        path.unlink()
        path.symlink_to(to)

    return Bomb(name, "model", make)


def model_bombs() -> Iterator[Bomb]:
    """Saved models: what they say of themselves, and their weights."""
    sizes = [f.name for f in fields(LFormerConfig) if str(f.type).startswith("int")]  # those that are yet to come, too
    for key in sizes:
        for huge in HUGE:
            yield described_as(key, "config", key, to=huge)
    for huge in HUGE:
        yield described_as("members", "members", to=huge)
        yield described_as("bytes", "weights", "bytes", to=huge)
        yield described_as("format", "format", to=huge)
    for entry in (10**400, -(10**400), float("nan"), float("inf"), "1", [], {}, None):
        yield described_as("a mean of", "features", "covariates", 0, "mean", to=entry)
        yield described_as("a deviation of", "features", "covariates", 0, "deviation", to=entry)
        yield described_as("a batch size of", "parameters", "batch_size", to=entry)
        yield described_as("epochs", "fitted", "n_iter_", to=entry)
    for dtype in ("<U500000000", "|S500000000", "|V500000000", "(99999,99999)f8", "f8" + ",f8" * 999, "O", "M8[s]"):
        yield described_as("classes of type", "fitted", "classes_", "dtype", to=dtype)
    yield described_as("wide classes", "fitted", "classes_", "values", to=["a" * 2**20, *map(str, range(2000))])
    for file in (
        "../../etc/passwd",
        "/etc/passwd",
        "model.safetensors/../x",
        "model.safetensors\n",
        "",
        "\0",
        "\ud800",
    ):
        yield described_as("weights in", "weights", "file", to=file)
    yield described_as("class", "class", to="os.system")
    yield described_by("deep lists", b"[" * 10**6)
    yield described_by("deep objects", b'{"a":' * 10**6)
    yield described_by("many digits", b'{"format": ' + b"1" * 10**6 + b"}")
    yield described_by("many digits of a fraction", b'{"format": 0.' + b"1" * 10**6 + b"}")
    yield described_by("much space", b" " * (2**24 + 1))
    yield described_by("one name very often", b"{" + b'"sha256": 1,' * 10**6 + b'"sha256": 2}')
    yield described_by("not text", b"\xff" * 10**6)
    yield linked("an endless description", "estimator.json", "/dev/zero")
    yield linked("endless weights", "model.safetensors", "/dev/zero")
    yield from weight_bombs()


def weight_bombs() -> Iterator[Bomb]:
    """Weights that are sealed as if they were right."""
    for length in (2**24 + 1, 2**31, 2**63, 2**64 - 1):
        yield weighed_by(f"a header of {length} bytes", lambda old, length=length: laid_out({}, length=length))
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.uint16, torch.bool, torch.bfloat16):
        yield weighed_by(f"weights in {dtype}", lambda old, dtype=dtype: retyped(old, dtype))
    for dtype in ("F8_E8M0", "F4", "F6_E2M3", "C64", "U500000000", "", 7, None, []):
        yield weighed_by(f"weights of type {dtype}", lambda old, dtype=dtype: renamed(old, dtype=dtype))
    for shape in ([2**62], [10**400], [1] * 10**6, [-1], [1.5], "x", {}, None, [[]], [0, 10**18]):
        name = f"weights of shape {str(shape)[:20]}"
        yield weighed_by(name, lambda old, shape=shape: renamed(old, shape=shape))
    for offsets in ([0, 2**70], [-4, 0], [2**63, 2**63 + 4], [0], None, [4, 0]):
        name = f"weights at {offsets}"
        yield weighed_by(name, lambda old, offsets=offsets: renamed(old, data_offsets=offsets))
    yield weighed_by("a deep header", lambda old: laid_out(b"[" * 10**6))
    yield weighed_by("deep objects in a header", lambda old: laid_out(b'{"a":' * 10**6))
    many = {f"t{n}": tensor_of([], 0, 0) for n in range(100_000)}
    yield weighed_by("very many tensors", lambda old: laid_out(many))
    yield weighed_by("a long name", lambda old: laid_out({"a" * 10**6: tensor_of([])}, bytes(8)))
    yield weighed_by("nothing", lambda old: b"")


def blob_of(kind: str, name: str, content: bytes) -> Bomb:
    """A checkpoint or a prepared set that is sealed as if it were right."""

    def make(place: Place) -> None:
        def fill(stream: BinaryIO) -> None:
            stream.write(content)

        path = place.file(kind)
        sealed.write_blob(path, fill)
        place.write(path, path.read_bytes())

    return Bomb(name, kind, make)


class Payload:
    """What a pickle would execute, were it trusted."""

    def __reduce__(self) -> Any:
        return os._exit, (77,)


def checkpoint_bombs() -> Iterator[Bomb]:
    """Checkpoints: pickles that execute, nest, or claim to be large."""
    yield blob_of("checkpoint", "nothing", b"")
    yield blob_of("checkpoint", "a pickle that executes", pickle.dumps(Payload()))
    yield blob_of("checkpoint", "an archive that executes", torch_archive(pickle.dumps(Payload())))
    yield blob_of("checkpoint", "deep lists", torch_archive(b"\x80\x02" + b"](" * 10**5 + b"l" * 10**5 + b"."))
    yield blob_of("checkpoint", "deep tuples", torch_archive(b"\x80\x02)" + b"\x85" * 10**5 + b"."))
    yield blob_of("checkpoint", "a text of exabytes", torch_archive(b"\x80\x04\x8d" + struct.pack("<Q", 2**62)))
    yield blob_of("checkpoint", "a text of gigabytes", torch_archive(b"\x80\x02X" + struct.pack("<I", 2**32 - 1)))
    yield blob_of("checkpoint", "a number of gigabytes", torch_archive(b"\x80\x02\x8b" + struct.pack("<I", 2**31 - 1)))
    yield blob_of("checkpoint", "a large memo", torch_archive(b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b"."))
    yield blob_of("checkpoint", "a list", saved([1, 2]))
    yield blob_of("checkpoint", "nothing of a run", saved({}))
    yield blob_of("checkpoint", "a tensor that is not there", claiming(saved({"w": torch.zeros(12345)})))
    yield blob_of("checkpoint", "an archive of zeros", archive_of_zeros(1500))


def saved(value: Any) -> bytes:
    """As PyTorch writes it."""
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def claiming(content: bytes) -> bytes:
    """A saved tensor of 12,345 numbers that claims to have 2**30."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    small, large = b"M" + struct.pack("<H", 12345), b"J" + struct.pack("<i", 2**30)
    return _zipped({n: p.replace(small, large) if n.endswith("data.pkl") else p for n, p in members.items()})


def torch_archive(pickled: bytes) -> bytes:
    """An archive as PyTorch writes it, around any pickle."""
    return _zipped({"x/data.pkl": pickled, "x/version": b"3\n", "x/byteorder": b"little"})


def archive_of_zeros(megabytes: int) -> bytes:
    """A small archive as PyTorch writes it, but packed, whose pickle is large."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/version", b"3\n")
        with archive.open("x/data.pkl", "w") as stream:
            for _ in range(megabytes):
                stream.write(bytes(2**20))
    return content.getvalue()


def _zipped(members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", how) as archive:
        for name, part in members.items():
            archive.writestr(name, part)
    return content.getvalue()


NOTES = {"__metadata__": {"lformer": "{}"}}


def prepared_bombs() -> Iterator[Bomb]:
    """Prepared sets: headers, and arrays and notes that make no sense."""
    for name, content in {
        "a header of exabytes": laid_out(NOTES, length=2**63),
        "a header of all bytes": laid_out(NOTES, length=2**64 - 1),
        "a header of gigabytes": laid_out(NOTES, length=2**31),
        "a deep header": laid_out(b"[" * 10**6),
        "deep notes": laid_out({"__metadata__": {"lformer": "[" * 10**6}}),
        "a number of many digits": laid_out(b'{"a": ' + b"1" * 10**6 + b"}"),
        "exabytes": laid_out(NOTES | {"a": tensor_of([10**18], 0, 8 * 10**18)}, bytes(8)),
        "a product that overflows": laid_out(NOTES | {"a": tensor_of([2**32, 2**32], 0, 0)}),
        "a side of 400 digits": laid_out(NOTES | {"a": tensor_of([10**400], 0, 8)}, bytes(8)),
        "a huge empty array": laid_out(NOTES | {"a": tensor_of([0, 10**18], 0, 0)}),
        "very many sides": laid_out(NOTES | {"a": tensor_of([1] * 10**6)}, bytes(8)),
        "an unknown type": laid_out(NOTES | {"a": tensor_of([1], dtype="<U500000000")}, bytes(8)),
        "a type that is no text": laid_out(NOTES | {"a": tensor_of([1], dtype=[])}, bytes(8)),
    }.items():
        yield blob_of("prepared", name, content)
    for name, change in {
        "a scale of 400 digits": {"scale": 10**400}, "padding to gigabytes": {"pad_to": 2**31 - 1},
        "padding to exabytes": {"pad_to": 2**62}, "padding of 400 digits": {"pad_to": 10**400},
        "text of terabytes": {"text": {"panel.ids": ["a" * 10**6] + [""] * 10**6}},
        "a twin of itself": {"same": {"targets.values": "targets.values", "x": "y"}},
        "a list for text": {"text": []}, "a number for twins": {"same": 3}, "deep channels": {"channels": [[[["x"]]]]},
    }.items():  # fmt: skip
        yield Bomb(name, "prepared", lambda place, change=change: annotated(place, change))


def annotated(place: Place, change: dict[str, Any]) -> None:
    """The prepared set with other notes."""
    path = place.file("prepared")
    arrays, notes = mapped.read(path)
    mapped.write(path, {name: array.copy() for name, array in arrays.items()}, notes | change)
    place.write(path, path.read_bytes())


def raw_bombs() -> Iterator[Bomb]:
    """Raw files: headers of arrays that claim what is not there."""
    for name, descr, shape, body in (
        ("a shape of exabytes", "'<f8'", f"({10**18},)", bytes(16)),
        ("a shape of gigabytes", "'<f8'", "(2000000000,)", bytes(16)),
        ("a side of 400 digits", "'<f8'", f"({10**400},)", bytes(16)),
        ("a product that overflows", "'<f8'", "(4294967296, 4294967296)", b""),
        ("text of gigabytes", "'<U500000000'", "(1,)", bytes(16)),
        ("empty text of gigabytes", "'<U500000000'", "(0,)", b""),
        ("a huge empty array", "'<f8'", f"(0, {10**18})", b""),
        ("very many sides", "'<f8'", str((1,) * 1000), bytes(8)),
        ("an object", "'|O'", "(1,)", pickle.dumps(Payload())),
        ("a record", "[('a', '<f8', (99999, 99999))]", "(1,)", bytes(16)),
        ("a nested type", "('<f8', (99999, 99999))", "(0,)", b""),
        ("a power of powers", "'<f8'", "(9**9**9**9,)", bytes(16)),
        ("nested parentheses", "'<f8'", "(" * 9000, b""),
    ):
        header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        array = b"\x93NUMPY\x01\x00" + struct.pack("<H", min(len(header), 2**16 - 1)) + header + body
        for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            content = _zipped({"x.npy": array}, how)
            yield Bomb(name, "raw", lambda place, content=content: place.write(place.file("raw"), content))
    content = _zipped({"x.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{"})
    yield Bomb("a header of gigabytes", "raw", lambda place: place.write(place.file("raw"), content))


def record_bombs() -> Iterator[Bomb]:
    """Records of runs."""
    for name, content in {
        "deep lists": b"[" * 10**6, "deep objects": b'{"a":' * 10**6, "many digits": b'{"a": ' + b"1" * 10**6 + b"}",
        "not text": b"\xff\xfe" * 10**6,
    }.items():  # fmt: skip
        yield Bomb(name, "record", lambda place, content=content: place.write(place.file("record"), content))
    for path, to in (
        (("cell", "seed"), 10**400), (("cell", "dataset"), "../../etc"), (("cell", "dataset"), "\0"),
        (("cell", "dataset"), "\ud800"), (("cell", "model"), ["x"]), (("cell", "epochs"), {}), (("cell",), []),
        (("cell",), {"dataset": 1}), (("cell",), None), (("cell",), {f"k{n}": n for n in range(10**5)}),
        (("cell", "task"), "a" * 10**6),
    ):  # fmt: skip

        def make(place: Place, path: tuple[str, ...] = path, to: Any = to) -> None:
            changed = entry_of(place.file("record").read_bytes(), *path, to=to)
            place.write(place.file("record"), sealed_bytes(changed))

        yield Bomb(f"{'.'.join(path)} = {str(to)[:30]!r}", "record", make)


def all_bombs() -> list[Bomb]:
    """Every harmful file that somebody thought of."""
    return [*model_bombs(), *checkpoint_bombs(), *prepared_bombs(), *raw_bombs(), *record_bombs()]


# --- reading them under limits ---


@contextmanager
def limited() -> Iterator[None]:
    """Little more memory than now, and little time."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s of computing, or {PATIENCE} s in all")

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT, before[1]))
    timers = {signal.ITIMER_PROF: (signal.SIGPROF, SECONDS), signal.ITIMER_REAL: (signal.SIGALRM, PATIENCE)}
    for timer, (name, seconds) in timers.items():
        signal.signal(name, late)
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)


def explode(place: Place, bomb: Bomb) -> str:
    """What is wrong with how a harmful file is refused; empty if nothing is."""
    place.restore()
    bomb.make(place)
    try:
        with limited():
            place.targets[bomb.kind].read()
    except REFUSED as error:
        if (cause := out_of_memory(error)) is not None:
            return f"only for want of memory, {described(cause)}"
        return "" if is_ours(error) else f"not in our words, {described(error)}"
    except Exception as error:
        return described(error)
    return "taken"


def out_of_memory(error: BaseException | None) -> BaseException | None:
    """The error among the causes of one that is there only because memory is limited here."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error) or "bad_alloc" in str(error):
            return error
        error = error.__cause__ or error.__context__
    return None


def forged(place: Place, draw: random.Random) -> tuple[Bomb, str]:
    """Any entry of a model's description replaced by something hostile, and what went wrong; it may be harmless."""
    place.restore()
    found = json.loads(place.description.read_bytes())
    path: list[Any] = []
    inner: Any = found
    while isinstance(inner, dict | list) and len(inner) and (not path or draw.random() < 0.85):
        path.append(draw.choice(list(inner) if isinstance(inner, dict) else range(len(inner))))
        inner = inner[path[-1]]
    to = draw.choice([*HUGE, -1, 0, 1.5, float("nan"), float("inf"), "", "x" * 1000, "\0", "\ud800", [], [[]], {},
                      {"dtype": "<U99999999", "values": ["a"]}, {"pairs": [[[], 1]]}, None, True])  # fmt: skip
    bomb = described_as(".".join(map(str, path)), *path, to=to)
    outcome = explode(place, bomb) if path != ["sha256"] else ""
    return bomb, "" if outcome == "taken" else outcome


def child(seed: int, first: int, count: int) -> None:
    """Read harmful files, and say after each what went wrong."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = all_bombs()
    with tempfile.TemporaryDirectory() as home:
        place = Place(Path(home))
        for target in place.targets.values():  # what is imported or allocated only once is not the fault of a bomb
            target.read()
        for number in range(first, first + count):
            if number < len(known):
                bomb, wrong = known[number], explode(place, known[number])
            else:
                bomb, wrong = forged(place, random.Random(f"{seed} {number}"))
            name = f"{bomb.kind} with {bomb.name}".encode("ascii", "backslashreplace").decode()
            print(json.dumps([number, name, wrong]), flush=True)


def bombs(tally: Tally, cases: int, seed: int) -> None:
    """Harmful files: first every one that somebody thought of, then some forged descriptions of models."""
    cases = min(cases, len(all_bombs()) + FORGED)
    while tally.cases < cases and not tally.over:
        _run_child(tally, cases, seed)


def _run_child(tally: Tally, cases: int, seed: int) -> None:
    """Count what a process reports; if it ends or falls silent, that is the fault of the file it was reading."""
    words = [sys.executable, __file__, str(seed), str(tally.cases), str(cases - tally.cases)]
    paths = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    waited = time.monotonic()
    try:
        while tally.cases < cases and not tally.over:
            if not select.select([process.stdout], [], [], 1)[0]:
                if time.monotonic() - waited > 2 * PATIENCE:
                    tally.case()
                    tally.fault(f"bomb {tally.cases - 1}, seed {seed}: no answer")
                    return
                continue
            line = process.stdout.readline()
            waited = time.monotonic()
            if not line:
                tally.case()
                tally.fault(f"bomb {tally.cases - 1}, seed {seed}: the process ended with {process.wait()}")
                return
            number, name, wrong = json.loads(line)
            tally.case()
            if wrong:
                tally.fault(f"bomb {number}, seed {seed}, a {name}: {wrong}")
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    child(*map(int, sys.argv[1:]))
