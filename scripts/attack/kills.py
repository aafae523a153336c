"""Processes killed at random moments: whatever they were doing, the next one finds everything whole and goes on.

The processes are forked from this one, which has imported everything: starting PyTorch again would take most of the
time. They end by a signal that comes after a random time, or as a file is touched for the nth time, or by themselves.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tally import Tally

from lformer import LFormerClassifier, data, load, tasks
from lformer.bench import records
from lformer.bench.records import Cell
from lformer.cli import app
from lformer.nn import LFormer, LFormerConfig
from lformer.train import Report, Result, TrainConfig, fit, seeded
from lformer.train.checkpoint import CheckpointWarning

torch.set_num_threads(1)  # before any work: the threads of a pool do not survive a fork

HOW = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TOUCHES = {
    "open", "os.rename", "os.remove", "os.chmod", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "os.utime",
    "tempfile.mkstemp", "fcntl.flock",
}  # fmt: skip
PATIENCE = 60.0  # seconds in which a process has to end when it is told to
OTHER = Path("/dev/shm")  # on most machines another file system than that of temporary files

Random = np.random.Generator
Say = Callable[[str], None]
Place = tuple[Path, Path]  # where to write, and where temporary files go


def count_faults(tally: Tally, told: str, faults: Iterator[str]) -> None:
    """Take down the faults of a case, an exception included."""
    try:
        for fault in faults:
            tally.fault(f"{told}: {fault}")
    except Exception:
        tally.fault(f"{told}: {traceback.format_exc().strip()}")


# --- processes ---


@dataclass(frozen=True)
class Moment:
    """A signal, and when it comes: after so many seconds, or as a file is touched for the nth time."""

    how: signal.Signals
    seconds: float | None = None
    touch: int = 0

    def __str__(self) -> str:
        when = f"at touch {self.touch}" if self.seconds is None else f"after {self.seconds:.4f} s"
        return f"{self.how.name} {when}"


def moment(rng: Random, seconds: float, touches: int) -> Moment:
    """A random one of either kind. SIGKILL, of which a process knows nothing, comes as often as the others together."""
    how = HOW[int(rng.choice(3, p=[0.5, 0.25, 0.25]))]
    if rng.random() < 0.5:
        return Moment(how, seconds=float(rng.uniform(0, seconds)))
    return Moment(how, touch=int(rng.integers(1, touches + 1)))


class Child:
    """A forked process that does one thing; it says lines, which can be read when it has ended."""

    def __init__(self, do: Callable[[Say], None], temporary: Path, when: Moment | None = None) -> None:
        self._reading, writing = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, HOW)  # else one could reach the child before it is ready
        try:
            self.pid = os.fork()
            if not self.pid:
                _be_a_child(do, temporary, writing, when)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HOW)
        os.close(writing)
        self._when = when
        self._code: int | None = None

    def end(self) -> int | None:
        """Let the moment come; the exit code, None if it had to be killed in the end."""
        if self._when is not None and self._when.seconds is not None and self.wait(self._when.seconds) is None:
            # Again and again, as Python drops a signal that comes while an object is being destroyed.
            until = time.monotonic() + PATIENCE
            while self._code is None and time.monotonic() < until:
                self.send(self._when.how)
                self.wait(1.0)
        if self.wait(PATIENCE) is None:
            self.close()
            return None
        return self._code

    def send(self, number: int) -> None:
        """A signal, if it has not ended."""
        if self._code is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        """End it at once, if it has not ended."""
        self.send(signal.SIGKILL)
        self.wait(PATIENCE)

    def wait(self, seconds: float) -> int | None:
        """The exit code, None if it has not ended by then."""
        until = time.monotonic() + seconds
        while self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
            elif (left := until - time.monotonic()) > 0:
                time.sleep(min(left, 0.002))
            else:
                break
        return self._code

    def said(self) -> list[str]:
        """What it said before it ended, once."""
        with os.fdopen(self._reading, encoding="utf-8") as stream:
            return stream.read().splitlines()


def _be_a_child(do: Callable[[Say], None], temporary: Path, writing: int, when: Moment | None) -> None:
    """Never returns."""
    code: Any = 1

    def say(line: str) -> None:
        os.write(writing, line.encode() + b"\n")

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a command in the background ignores it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HOW)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None
        if when is not None and when.seconds is None:
            _end_at_touch(when)
        do(say)
        code = 0
    except SystemExit as error:
        code = error.code
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        say("error: " + traceback.format_exc().replace("\n", " | ")[-1500:])
    finally:
        os._exit(code if isinstance(code, int) else 1)


def _end_at_touch(when: Moment) -> None:
    touches = count_touches()

    def end(event: str, arguments: Any) -> None:
        behind = touches[0] - when.touch
        if event in TOUCHES and behind >= 0 and behind % 50 == 0:  # again in case Python dropped it
            os.kill(os.getpid(), when.how)

    sys.addaudithook(end)


def count_touches() -> list[int]:
    """How often a file was touched from now on, in a list of one."""
    touches = [0]

    def note(event: str, arguments: Any) -> None:
        touches[0] += event in TOUCHES

    sys.addaudithook(note)
    return touches


@contextmanager
def places() -> Iterator[list[Place]]:
    """Folders to write into, each with one for temporary files: on one file system, and on two if there are two."""
    with tempfile.TemporaryDirectory(prefix="lformer-attack-") as home:
        here = Path(home)
        found = [(here, here / "tmp")]
        (here / "tmp").mkdir()
        if not os.access(OTHER, os.W_OK) or OTHER.stat().st_dev == here.stat().st_dev:
            yield found
            return
        with tempfile.TemporaryDirectory(prefix="lformer-attack-", dir=OTHER) as there:
            (Path(there) / "tmp").mkdir()
            yield [*found, (here, Path(there) / "tmp"), (Path(there), here / "tmp")]


def names(folder: Path) -> list[str]:
    """Everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def _left_behind(temporary: Path) -> list[str]:
    """Temporary files; PyTorch's own cache is meant to stay."""
    return [name for name in names(temporary) if not name.startswith("torchinductor_")]


# --- a model is saved ---


class Models:
    """Fitted models of the same shape, which only their answers tell apart."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._series = rng.random((8, 5, 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are not meant to be good
            self.fitted = [
                LFormerClassifier(width=8, depth=1, max_epochs=1, device="cpu", random_state=n).fit(
                    self._series, np.arange(8) % 2
                )
                for n in range(3)
            ]
        self._answers = [model.predict_proba(self._series) for model in self.fitted]
        assert not any(np.array_equal(self._answers[n], self._answers[n - 1]) for n in range(3))

    def which(self, model: LFormerClassifier) -> int:
        """The number of the model that answers so, to the last digit; -1 if none does."""
        answer = model.predict_proba(self._series)
        return next((n for n, known in enumerate(self._answers) if np.array_equal(answer, known)), -1)

    def save_forever(self, folder: Path, first: int, say: Say) -> None:
        """One after the other, saying which was saved."""
        for n in count(first):
            self.fitted[n % 3].save(folder)
            say(str(n % 3))

    def load_forever(self, folder: Path, begun: bool, say: Say) -> None:
        """Say what is wrong once there is a model; `begun` says that there is one."""
        while True:
            try:
                which = self.which(load(folder))
            except Exception as error:
                if begun:
                    say(f"load beside save: {type(error).__name__}: {error}")
            else:
                begun = True
                if which < 0:
                    say("load beside save gives no model that was saved")


def save(tally: Tally, cases: int, seed: int) -> None:
    """A process that saves models into one folder is killed: the folder holds a whole one, and takes the next."""
    models = Models()
    with places() as where:
        for number in count():
            if tally.cases >= cases or tally.over:
                return
            faults = _killed_save(models, *where[number % len(where)], np.random.default_rng((seed, number)))
            count_faults(tally, f"kills.save, seed {seed}, case {number}", faults)
            tally.case()


def _killed_save(models: Models, home: Path, temporary: Path, rng: Random) -> Iterator[str]:
    folder = home / "models" / "mine"
    _remove(home / "models")
    if before := rng.random() < 0.5:
        models.fitted[2].save(folder)
    reads, writers = rng.random() < 0.4, 1 + int(rng.random() < 0.3)
    moments = [moment(rng, seconds=0.1, touches=150) for _ in range(writers)]
    told = f"{'' if before else 'new '}folder {folder}, TMPDIR {temporary}, {', '.join(map(str, moments))}"

    with ExitStack() as stack:
        readers = [Child(partial(models.load_forever, folder, before), temporary)] if reads else []
        saving = [Child(partial(models.save_forever, folder, 0), temporary, when) for when in moments]
        for child in (*readers, *saving):
            stack.callback(child.close)
        codes = [child.end() for child in saving]
    yield from (f"{told}: {line}" for child in readers for line in child.said())
    said = [child.said() for child in saving]
    if None in codes:
        yield f"{told}: it did not end"
    yield from (f"{told}: {line}" for lines in said for line in lines if not line.isdigit())
    finished = [int(line) for lines in said for line in lines if line.isdigit()]
    try:
        found: int | None = models.which(load(folder))
    except (FileNotFoundError, ValueError) as error:
        found = None
        if before or finished:
            yield f"{told}: saved {finished}, but {type(error).__name__}: {error}"
        elif str(folder) not in str(error):
            yield f"{told}: the error does not name the folder: {error}"
    if found == -1:
        yield f"{told}: what is there is no model that was saved"
    if found is not None and writers == 1:
        last = finished[-1] if finished else 2
        if found not in (last, (last + 1) % 3):  # the last that was saved, or the one that was being saved
            yield f"{told}: model {found} is there after saving {finished}"

    then = int(rng.integers(3))
    try:
        models.fitted[then].save(folder)
        if models.which(load(folder)) != then:
            yield f"{told}: the next save did not replace it"
    except Exception as error:
        yield f"{told}: the next save: {type(error).__name__}: {error}"
    left = names(home / "models")
    if len(left) != 3 or left[:2] != ["mine", "mine/estimator.json"]:
        yield f"{told}: the next save leaves {left}"
    yield from (f"{told}: a temporary file is left: {name}" for name in _left_behind(temporary))


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with suppress(FileNotFoundError):
        folder.rmdir()


# --- a run is trained ---

EPOCHS = 6


def train(folder: Path, epochs: int, report: Report | None = None) -> tuple[LFormer, Result]:
    """A small run that draws random numbers in every step."""
    splits = data.load("spiral-0.02", seed=3, steps=2)
    with seeded(3):
        model = LFormer(LFormerConfig(inputs=2, outputs=2, answer="query", width=8, depth=1, heads=2, dropout=0.2))
    config = TrainConfig(epochs=epochs, lr=0.01, device="cpu", log="csv")
    options: dict[str, Any] = {"seed": 3, "folder": folder, "progress": False, "report": report}
    return model, fit(model, tasks.trajectory(), splits, config, **options)


def _trained(folder: Path, say: Say) -> None:
    """Train, and say everything that the run gave, which has to be the same to the last digit."""
    touches, began = count_touches(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)  # a kill damages nothing
        model, result = train(folder, EPOCHS)
    weights = hashlib.sha256(b"".join(x.numpy().tobytes() for x in model.state_dict().values())).hexdigest()
    say(json.dumps([result.metrics, result.validation, result.best_epoch, result.history, weights]))
    say(json.dumps([time.perf_counter() - began, touches[0]]))


@dataclass(frozen=True)
class Whole:
    """A run that nobody interrupted: what it gave, its log, how long it took and how often it touched a file."""

    given: str
    log: str
    seconds: float
    touches: int


def _uninterrupted(home: Path, temporary: Path) -> Whole:
    folder = home / "whole"
    child = Child(partial(_trained, folder), temporary)
    child.end()
    said = child.said()
    if len(said) != 2:
        raise RuntimeError(f"a run that nobody interrupts fails: {said}")
    seconds, touches = json.loads(said[1])
    log = (folder / "metrics.csv").read_text()
    _remove(folder)
    return Whole(said[0], log, seconds, touches)


def training(tally: Tally, cases: int, seed: int) -> None:
    """A run is killed and resumed until it is done, and ends with what it would have given, to the last digit."""
    with places() as where:
        train(where[0][0] / "first", 1)  # imports what is imported late, once for all the processes to come
        _remove(where[0][0] / "first")
        whole = _uninterrupted(*where[0])
        for number in count():
            if tally.cases >= cases or tally.over:
                return
            rng = np.random.default_rng((seed, number))
            faults = _killed_run(tally, whole, *where[number % len(where)], rng)
            count_faults(tally, f"kills.training, seed {seed}, run {number}", faults)


def _killed_run(tally: Tally, whole: Whole, home: Path, temporary: Path, rng: Random) -> Iterator[str]:
    folder = home / "run"
    _remove(folder)
    moments: list[Moment | None] = [moment(rng, whole.seconds, whole.touches) for _ in range(rng.integers(1, 6))]
    told = f"folder {folder}, TMPDIR {temporary}"
    for when in [*moments, None]:
        told += f", {when or 'to the end'}"
        child = Child(partial(_trained, folder), temporary, when)
        with closing(child):
            code = child.end()
        said = child.said()
        tally.case(when is not None and code != 0)  # one that was done before is no kill
        if code is None:
            yield f"{told}: it did not end"
        elif said and said[0].startswith("error"):
            yield f"{told}: {said[0]}"
        elif said and said[0] != whole.given:
            yield f"{told}: gave {said[0]} instead of {whole.given}"
        elif not said and when is None:
            yield f"{told}: ended with {code} and gave nothing"
        if said:
            break
    left = set(names(folder))
    if not {"metrics.csv"} < left <= {"last.ckpt", "previous.ckpt", "next.ckpt", "metrics.csv"}:
        yield f"{told}: leaves {sorted(left)}"
    elif (log := (folder / "metrics.csv").read_text()) != whole.log:
        yield f"{told}: the log has {log.count(chr(10)) - 1} of {whole.log.count(chr(10)) - 1} epochs"
    yield from (f"{told}: a temporary file is left: {name}" for name in _left_behind(temporary))


# --- a grid is run ---

CELLS = [Cell(dataset="spiral-0.02", task="trajectory", model=model, seed=7, epochs=2) for model in ("gru", "linear")]
TIMES = ("seconds", "peak_bytes", "series_per_second", "versions")  # what no two runs have in common
MARK = "LFORMER_ATTACK"  # in the environment of a runner and its workers: so they are found, whoever their parent is
WAYS = ("runner", "worker", "both", "twice")  # who gets the signal; "both" as from a terminal


class Runner:
    """`lformer bench run` in a forked process; its workers are processes of their own as always."""

    def __init__(self, root: Path, temporary: Path, workers: int) -> None:
        self.mark = uuid.uuid4().hex
        self.output = root.with_suffix(".txt")
        self.child = Child(partial(self._run, root, workers), temporary)

    def _run(self, root: Path, workers: int, say: Say) -> None:
        os.setsid()  # as a terminal would: signals to the group reach it and its workers, and nobody else
        shown = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(shown, 1)
        os.dup2(shown, 2)
        os.environ.update({MARK: self.mark, "OMP_NUM_THREADS": "1", "LFORMER_COMMIT": "attacked"})
        options = {
            "dataset": CELLS[0].dataset, "model": ",".join(cell.model for cell in CELLS), "seeds": CELLS[0].seed,
            "epochs": CELLS[0].epochs, "workers": workers, "device": "cpu", "out": root,
        }  # fmt: skip
        app(["bench", "run", *(f"--{name}={value}" for name, value in options.items())])

    def workers(self) -> list[int]:
        """Those that are alive."""
        wanted, found = f"{MARK}={self.mark}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def signal_worker(self, how: int, delay: float) -> None:
        """To one worker, some time after there are any."""
        while not self.workers() and self.child.wait(0.05) is None:
            pass
        self.child.wait(delay)
        for pid in self.workers()[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, how)

    def signal_runner(self, how: int, way: str) -> None:
        """To the runner, once or twice, or to the whole group."""
        if way == "both":
            with suppress(ProcessLookupError):  # before it has a group of its own
                os.killpg(self.child.pid, how)
                return
        self.child.send(how)
        if way == "twice":
            time.sleep(0.05)
            self.child.send(how)

    def orphans(self, seconds: float) -> list[int]:
        """Workers that are still there after so many seconds."""
        until = time.monotonic() + seconds
        while (left := self.workers()) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    def close(self) -> None:
        """End at once what has not ended."""
        self.child.close()
        for pid in self.workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def grid(tally: Tally, cases: int, seed: int) -> None:
    """Runner or worker of a grid is killed: no worker is left, the next run goes on, the records are as ever."""
    if not Path("/proc/self/environ").exists():
        tally.examples.append("kills.grid was left out: it finds processes by way of /proc")
        return
    with places() as where:
        began = time.monotonic()
        with closing(Runner(where[0][0] / "whole", where[0][1], 1)) as runner:
            if runner.child.wait(10 * PATIENCE) != 0:
                raise RuntimeError(f"a grid that nobody interrupts fails: {runner.output.read_text()}")
        seconds = time.monotonic() - began
        whole = {cell: _kept(cell, where[0][0] / "whole") for cell in CELLS}
        for number in count():
            if tally.cases >= cases or tally.over:
                return
            rng = np.random.default_rng((seed, number))
            faults = _killed_grid(tally, whole, seconds, *where[number % len(where)], rng)
            count_faults(tally, f"kills.grid, seed {seed}, grid {number}", faults)


def _kept(cell: Cell, root: Path) -> dict[str, Any]:
    """A record but for what differs from run to run."""
    return {name: value for name, value in records.read(cell.path(root)).items() if name not in TIMES}


def _killed_grid(
    tally: Tally, whole: dict[Cell, dict[str, Any]], seconds: float, home: Path, temporary: Path, rng: Random
) -> Iterator[str]:
    root, told = home / "grid", f"TMPDIR {temporary}, out {home / 'grid'}"
    written: dict[Cell, bytes] = {}
    _remove(root)
    for _ in range(rng.integers(2, 6)):
        workers, way = int(rng.integers(1, 3)), str(rng.choice(WAYS))
        how = signal.SIGKILL if way == "worker" and rng.random() < 0.7 else HOW[int(rng.integers(3))]
        delay = float(rng.uniform(0, 0.5 * seconds if way == "worker" else seconds))
        told += f", {how.name} to {way} of {workers} workers after {delay:.3f} s"
        with closing(Runner(root, temporary, workers)) as runner:
            if way == "worker":
                runner.signal_worker(how, delay)
            elif runner.child.wait(delay) is None:
                runner.signal_runner(how, way)
            code = runner.child.wait(5 * PATIENCE)  # one whose worker was killed goes on to the next cell
            yield from (f"{told}: {fault}" for fault in _after_a_kill(runner, code, how, way))
        tally.case(code != 0)  # one that was done before is no kill
        yield from (f"{told}: {fault}" for fault in _written_once(root, written))
        if code == 0:
            break
    with closing(Runner(root, temporary, 1)) as runner:
        if (code := runner.child.wait(10 * PATIENCE)) != 0:
            yield f"{told}: the next run ends with {code}: {runner.output.read_text()}"
    yield from (f"{told}: {fault}" for fault in _written_once(root, written))
    for cell, record in whole.items():
        if not cell.path(root).exists():
            yield f"{told}: there is no record of {cell}"
        elif _kept(cell, root) != record:
            yield f"{told}: the record of {cell} is not that of an uninterrupted run"
    left = [name for name in names(root) if (root / name).is_file()]
    if left != sorted(str(cell.path(root).relative_to(root)) for cell in CELLS):
        yield f"{told}: the next run leaves {left}"
    yield from (f"{told}: a temporary file is left: {name}" for name in _left_behind(temporary))


def _after_a_kill(runner: Runner, code: int | None, how: int, way: str) -> Iterator[str]:
    if code is None:
        yield "the runner did not end"
    output = runner.output.read_text() if runner.output.exists() else ""
    killed_runner = how == signal.SIGKILL and way != "worker"
    # A runner that is killed can wait for nobody; any other one ends after its workers.
    if left := runner.orphans(PATIENCE if killed_runner else 0.0):
        yield f"workers are left: {left}"
    if "Traceback" in output:
        yield f"the runner shows {output[-800:]}"
    # 0: it was done before; 1: a worker was killed, or Ctrl-C came before there was anything to stop
    if code not in (0, 1, -how, 128 + how):
        yield f"the runner ends with {code}: {output[-800:]}"


def _written_once(root: Path, written: dict[Cell, bytes]) -> Iterator[str]:
    """A record that is there is never written again."""
    for cell in CELLS:
        path = cell.path(root)
        content = path.read_bytes() if path.exists() else None
        if cell in written and content != written[cell]:
            yield f"the record of {cell} was written again, or is lost"
        if content is not None:
            written[cell] = content
