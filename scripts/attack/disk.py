"""A disk that is full: nothing that was there is lost, errors name the file, and with room everything works again.

The disk is a small file system in memory, mounted for the purpose. Where that is not allowed, a limit on the size of
files stands in for it: what the system says is another error then, which is known to end a run.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kills import EPOCHS, Models, count_faults, names, train
from servers import NAME, Server, dataset, good, original, pack, serving
from tally import Tally

from lformer import load
from lformer.bench.records import Cell, cell_fields, read, read_all, write
from lformer.bench.run import run
from lformer.data import CacheWarning, cache, manage, store
from lformer.data.dataset import Dataset
from lformer.data.files import Files
from lformer.data.loading import load_dataset
from lformer.train import Result, checkpoint

SIZE = 2**20  # bytes of the disk; no case needs nearly as much
FILES = 60  # that fit on it
FULL = (errno.ENOSPC, errno.EFBIG)

Draw = random.Random
Faults = Iterator[str]


class Disk:
    """A folder whose room can be taken and given back."""

    def __init__(self, folder: Path, mounted: bool) -> None:
        self.folder = folder
        self.mounted = mounted
        self._filler = folder / "filler"
        self._limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self, room: int, files: int | None = None) -> None:
        """Leave room for so many bytes, and so many more files if that is given."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, self._limit[1]))
            return
        self._filler.mkdir()
        free = os.statvfs(self.folder)
        with (self._filler / "bytes").open("wb") as stream:
            if (size := free.f_bavail * free.f_bsize - room) > 0:
                os.posix_fallocate(stream.fileno(), 0, size)
        if files is not None:
            for n in range(os.statvfs(self.folder).f_favail - files):
                (self._filler / str(n)).touch()

    def free(self) -> None:
        """Give it all back."""
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limit)
        shutil.rmtree(self._filler, ignore_errors=True)

    def clear(self) -> None:
        """Leave nothing at all."""
        self.free()
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def small_disk(tally: Tally) -> Iterator[Disk]:
    """A disk for one attack; what stands in for it is noted."""
    folder = Path(tempfile.mkdtemp(prefix="lformer-attack-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},nr_inodes={FILES}", "lformer-attack", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        why = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        why = str(error)
    disk = Disk(folder, mounted=not why)
    if why:
        tally.examples.append(f"note: no disk could be mounted ({why}); a limit on the size of files stood in for it")
    try:
        yield disk
    finally:
        disk.free()
        if disk.mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a mapped file may still be open
        shutil.rmtree(folder)


def attack(tally: Tally, cases: int, seed: int, name: str, case: Callable[[Disk, Draw], Faults]) -> None:
    """Cases on one disk, each of them on an empty one."""
    with small_disk(tally) as disk:
        for number in count():
            if tally.cases >= cases or tally.over:
                return
            try:
                faults = case(disk, Draw(f"{seed}/{number}"))
                count_faults(tally, f"disk.{name}, seed {seed}, case {number}", faults)
            finally:
                disk.clear()
            tally.case()


def scarce(rng: Draw, disk: Disk, most: int) -> str:
    """Fill the disk but for at most so many bytes, or but for a few files; in words."""
    if disk.mounted and rng.random() < 0.25:
        files = rng.randrange(4)
        disk.fill(SIZE, files)
        return f"room for {files} files"
    room = rng.choice([0, rng.randrange(most)])
    disk.fill(room)
    return f"room for {room} bytes"


def refused(error: OSError, place: Path) -> Faults:
    """What is wrong with an error that a full disk is the reason of."""
    if error.errno not in FULL:
        yield f"the error is another one: {type(error).__name__}: {error}"
    if str(place) not in str(error):
        yield f"the error does not name the file: {error!r}"


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- models ---


def saves(tally: Tally, cases: int, seed: int) -> None:
    """A model is saved on a full disk, beside nothing or over another one, which stays."""
    models = Models()
    attack(tally, cases, seed, "saves", lambda disk, rng: _save(models, disk, rng))


def _save(models: Models, disk: Disk, rng: Draw) -> Faults:
    folder = disk.folder / "model"
    if before := rng.random() < 0.6:
        models.fitted[0].save(folder)
    there = contents(disk.folder)
    told = f"{'over another' if before else 'new'}, {scarce(rng, disk, 30_000)}"
    expected = 0
    try:
        models.fitted[1].save(folder)
        expected = 1
    except OSError as error:
        yield from (f"{told}: {fault}" for fault in refused(error, folder))
    disk.free()
    if not expected and contents(disk.folder) != there:
        yield f"{told}: it was {sorted(there)} and is {names(disk.folder)}"
    if not expected and not before and folder.exists():
        yield f"{told}: an empty folder is left"
    if (expected or before) and models.which(load(folder)) != expected:
        yield f"{told}: another model is there"
    models.fitted[2].save(folder)
    if models.which(load(folder)) != 2 or len(names(folder)) != 2:
        yield f"{told}: with room again, there is {names(folder)}"


# --- checkpoints ---


def checkpoints(tally: Tally, cases: int, seed: int) -> None:
    """The disk of a run is full now and then: the run goes on with a warning, and can be resumed from what was kept."""
    with tempfile.TemporaryDirectory(prefix="lformer-attack-") as home:
        whole = train(Path(home) / "whole", EPOCHS)[1]
    attack(tally, cases, seed, "checkpoints", lambda disk, rng: _run(whole, disk, rng))


class Stop(Exception):
    """The run is interrupted."""


def _run(whole: Result, disk: Disk, rng: Draw) -> Faults:
    folder = disk.folder / "run"
    stop = rng.choice([rng.randrange(EPOCHS), EPOCHS])  # after which epoch, if at all
    told: list[str] = [f"stopped after epoch {stop}" if stop < EPOCHS else "to the end"]
    kept: list[int] = []  # newest epoch on disk, after each

    def fill(row: dict[str, float]) -> None:
        disk.free()
        found = [_epoch(folder / name) for name in ("next.ckpt", "last.ckpt", "previous.ckpt")]
        kept.append(max(found))
        if row["epoch"] == stop:
            raise Stop
        told.append(scarce(rng, disk, 60_000) if rng.random() < 0.7 else "room")

    told.append(scarce(rng, disk, 60_000) if rng.random() < 0.5 else "room")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = train(folder, EPOCHS, fill)[1]
            yield from _differs(result, whole, f"{told}: the run")
        except Stop:
            pass
        except OSError as error:
            if disk.mounted:  # a limit on the size of files is no full disk
                yield f"{told}: the run ended: {error!r}"
            yield from (f"{told}: {fault}" for fault in refused(error, folder))
        finally:
            disk.free()
    if kept != sorted(kept):
        yield f"{told}: a checkpoint was lost; the newest were {kept}"
    missed = [n for n, epoch in enumerate(kept) if epoch != n]
    if missed and not any("could not be written" in str(w.message) for w in said):
        yield f"{told}: epochs {missed} were not kept, and nobody said so"
    yield from (f"{told}: a warning names no file: {w.message}" for w in said if str(folder) not in str(w.message))

    ran: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is damaged, and there is room
        result = train(folder, EPOCHS, lambda row: ran.append(row["epoch"]))[1]
    yield from _differs(result, whole, f"{told}: the run that went on")
    if kept and ran != list(range(kept[-1] + 1, EPOCHS)):
        yield f"{told}: {kept[-1]} was kept, but the next run went through {ran}"
    if not set(names(folder)) <= {"last.ckpt", "previous.ckpt", "next.ckpt", "metrics.csv"}:
        yield f"{told}: it leaves {names(folder)}"


def _epoch(path: Path) -> int:
    """Of a checkpoint; -1 if there is none. One that is damaged is an error."""
    try:
        return checkpoint.read(path)["epoch"]
    except FileNotFoundError:
        return -1


def _differs(result: Result, whole: Result, what: str) -> Faults:
    if (result.metrics, result.history) != (whole.metrics, whole.history):
        yield f"{what} gave {result.metrics} instead of {whole.metrics}"


# --- records ---

CELL = Cell(dataset="spiral-0.02", task="trajectory", model="last-value", seed=7, epochs=1)


def records(tally: Tally, cases: int, seed: int) -> None:
    """The record of a cell finds no room: those that are there stay, and the next run writes it."""
    with tempfile.TemporaryDirectory(prefix="lformer-attack-") as home:
        record = run(CELL, Path(home), device="cpu", progress=False)
    attack(tally, cases, seed, "records", lambda disk, rng: _record(record, disk, rng))


def _record(record: dict[str, Any], disk: Disk, rng: Draw) -> Faults:
    root = disk.folder / "records"
    there = Cell(**record["cell"] | {"seed": 1})
    write(record | {"cell": cell_fields(there)}, root)
    if again := rng.random() < 0.3:
        write(record | {"seconds": -1.0}, root)
    before = contents(disk.folder)
    runs = rng.random() < 0.2 and not again  # the whole cell, or its record alone
    told = f"{'run' if runs else 'write'}{' again' if again else ''}, {scarce(rng, disk, 8_000)}"
    written = False
    try:
        if runs:
            run(CELL, root, device="cpu", progress=False)
        else:
            write(record, root)
        written = True
    except OSError as error:
        yield from (f"{told}: {fault}" for fault in refused(error, CELL.path(root).parent))
    disk.free()
    found = {name: content for name, content in contents(disk.folder).items() if not name.endswith(".lock")}
    if not written and found != before:
        yield f"{told}: it was {sorted(before)} and is {names(disk.folder)}"
    if written and read(CELL.path(root))["metrics"] != record["metrics"]:
        yield f"{told}: the record holds other figures"
    run(CELL, root, device="cpu", progress=False)
    if [r["metrics"] for r in read_all(root)] != [record["metrics"]] * 2:
        yield f"{told}: with room again, the records hold other figures"
    if left := [name for name in contents(disk.folder) if not name.endswith(".json")]:
        yield f"{told}: with room again, there is {left}"


# --- data ---

KNOWN = dataset(f"http://127.0.0.1:1/{NAME}")  # where nobody answers


@contextmanager
def data_on(cache: Path, raw: Path) -> Iterator[None]:
    """Inside, this is where the library keeps its data."""
    before = {name: os.environ.get(name) for name in ("LFORMER_CACHE", "LFORMER_DATA")}
    os.environ.update(LFORMER_CACHE=str(cache), LFORMER_DATA=str(raw))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def prepared(tally: Tally, cases: int, seed: int) -> None:
    """A prepared set finds no room in the cache: it is loaded with a warning, and what is in the cache stays."""
    with tempfile.TemporaryDirectory(prefix="lformer-attack-") as home:
        original_file = Path(home) / NAME
        original_file.write_bytes(original(Draw(seed)))
        with data_on(Path(home) / "cache", Path(home) / "raw"):
            manage.pack(KNOWN, original_file, lambda line: None)
        attack(tally, cases, seed, "prepared", lambda disk, rng: _prepared(Path(home), disk, rng))


class Loaded(NamedTuple):
    """A prepared set: everything in it, whether the cache has it, and what was said of that."""

    content: bytes
    kept: bool
    said: list[str]


def _loaded(seed: int, use_cache: bool = True) -> Loaded:
    keys: dict[str, Any] = {"task": None, "split": None, "scaling": None, "variant": None, "options": {}}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        splits = load_dataset(KNOWN, seed=seed, cache=use_cache, **keys)
    batches = [batch for part in (splits.train, splits.validation, splits.test) for batch in part.batches(100)]
    every = [x for b in batches for x in (b.values, b.times, b.observed, b.lengths, b.targets)]
    kept = cache.place("numbers", splits.task, splits.fingerprint).is_file()
    words = [str(w.message) for w in said if issubclass(w.category, CacheWarning)]
    return Loaded(b"".join(np.asarray(x).tobytes() for x in every), kept, words)


def _prepared(home: Path, disk: Disk, rng: Draw) -> Faults:
    with data_on(disk.folder / "cache", home / "raw"):
        truth = {seed: _loaded(seed, use_cache=False).content for seed in (1, 2)}
        if before := rng.random() < 0.7:
            _loaded(1)
        there = contents(disk.folder)
        told = f"{'beside another' if before else 'alone'}, {scarce(rng, disk, 15_000)}"
        for seed in (1, 2):
            found = _loaded(seed)
            if found.content != truth[seed]:
                yield f"{told}: seed {seed} gives other data"
            if found.said and str(disk.folder) not in found.said[0]:
                yield f"{told}: the warning does not name the file: {found.said[0]}"
            if before and seed == 1 and found.said:
                yield f"{told}: what is in the cache is not read: {found.said}"
            if bool(found.said) == found.kept:
                yield f"{told}: seed {seed} is in the cache: {found.kept}, and what is said: {found.said}"
        disk.free()
        now = contents(disk.folder)
        if any(now.get(name) != content for name, content in there.items()):
            yield f"{told}: what was in the cache is lost: {sorted(there)} became {sorted(now)}"
        if left := [name for name in now if name.endswith(".part")]:
            yield f"{told}: {left} is left"
        for seed in (1, 2, 1, 2):
            if (found := _loaded(seed)) != (truth[seed], True, []):
                yield f"{told}: with room again, seed {seed} is not as it was, or not kept: {found.said}"


def packs(tally: Tally, cases: int, seed: int) -> None:
    """A raw file finds no room as it is packed: the one that is there stays, and is as it was recorded."""
    attack(tally, cases, seed, "packs", _pack)


def _pack(disk: Disk, rng: Draw) -> Faults:
    raw_on_disk = rng.random() < 0.7  # the record of hashes is, in any case
    with tempfile.TemporaryDirectory(prefix="lformer-attack-") as home:
        source, raw = Path(home) / NAME, (disk.folder if raw_on_disk else Path(home)) / "raw"
        with data_on(disk.folder / "cache", raw):
            if before := rng.random() < 0.6:
                source.write_bytes(original(rng))
                manage.pack(KNOWN, source, lambda line: None)
            there = contents(raw)
            source.write_bytes(original(rng))
            told = f"{'again' if before else 'first'}, {scarce(rng, disk, 12_000)}"
            packed = False
            try:
                manage.pack(KNOWN, source, lambda line: None)
                packed = True
            except OSError as error:
                yield from (f"{told}: {fault}" for fault in refused(error, disk.folder))
            disk.free()
            if not packed and contents(raw) != there and not _holds(source):
                yield f"{told}: what was there is lost; there is {names(raw)}"
            yield from (f"{told}: {fault}" for fault in _unverified(KNOWN))
            manage.pack(KNOWN, source, lambda line: None)
            yield from (f"{told}: with room again, {fault}" for fault in _unverified(KNOWN))


def _holds(source: Path) -> bool:
    """Whether the raw file is that of these files; if it was written before something else failed, so it may be."""
    with store.open_raw(store.raw_file(KNOWN.card)) as found:
        return all(np.array_equal(found[name], array) for name, array in pack(Files(source)).items())


def _unverified(known: Dataset) -> Faults:
    """What `verify` has against the raw file, if there is one."""
    said: list[str] = []
    if store.find_raw(known.card) is not None and not manage.verify(known, said.append):
        yield f"the raw file is not as recorded: {said}"


def fetches(tally: Tally, cases: int, seed: int) -> None:
    """A download finds no room: the error names the file, and the next one goes on."""
    with serving() as server:
        attack(tally, cases, seed, "fetches", lambda disk, rng: _fetch(server, disk, rng))


def _fetch(server: Server, disk: Disk, rng: Draw) -> Faults:
    content = original(rng)
    known = dataset(server.url)
    server.answers = [good(content)]
    with data_on(disk.folder / "cache", disk.folder / "raw"):
        told = scarce(rng, disk, 25_000)
        fetched = False
        try:
            manage.fetch(known, lambda line: None)
            fetched = True
        except OSError as error:
            yield from (f"{told}: {fault}" for fault in refused(error, disk.folder))
        disk.free()
        if not fetched and store.recorded(server.url) is not None:
            yield f"{told}: a hash was recorded"
        with suppress(FileNotFoundError):
            if (disk.folder / "cache" / "downloads" / "numbers" / NAME).read_bytes() != content:
                yield f"{told}: half a download is taken for the whole"
        yield from (f"{told}: {fault}" for fault in _unverified(known))
        manage.fetch(known, lambda line: None)
        folder = disk.folder / "cache" / "downloads" / "numbers"
        if contents(folder) != {NAME: content}:
            yield f"{told}: with room again, {names(folder)}"
        yield from (f"{told}: with room again, {fault}" for fault in _unverified(known))
