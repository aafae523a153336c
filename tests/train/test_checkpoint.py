"""Checkpoints: whatever happens to a process, its disk or a file, a run goes on and ends where it would have."""

import errno
import io
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from torch import Tensor, nn

from lformer import IrregularBatch, data, sealed, tasks
from lformer.sealed import DamagedError
from lformer.train import Report, Result, TrainConfig, checkpoint, fit
from lformer.train.checkpoint import Checkpoint, CheckpointWarning
from lformer.train.logs import log_to

TASK = tasks.trajectory()
SPLITS = data.load("spiral-0.02", seed=3, steps=2)


class Line(nn.Module):
    """A straight line through time: all it takes to have weights, and to train in no time."""

    def __init__(self) -> None:
        super().__init__()
        self.slope, self.start = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))

    def forward(self, batch: IrregularBatch) -> Tensor:
        assert batch.query_times is not None
        return batch.query_times[..., None] * self.slope + self.start


def train(folder: Path | None = None, report: Report | None = None, **changes: Any) -> Result:
    config = TrainConfig(**{"epochs": 4, "lr": 0.1, "device": "cpu"} | changes)
    return fit(Line(), TASK, SPLITS, config, seed=3, folder=folder, progress=False, report=report)


@pytest.fixture(scope="module")
def whole() -> Result:
    return train()


def stop(after: int) -> Report:
    def report(row: dict[str, float]) -> None:
        if row["epoch"] == after:
            raise KeyboardInterrupt

    return report


def interrupted(folder: Path, after: int = 2) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(folder, stop(after))


def made(last: int = 0, **changes: Any) -> Checkpoint:
    weights = {"w": torch.arange(3.0) + last}
    history = [{"epoch": n, "loss": 1.0 / (n + 1)} for n in range(last + 1)]
    fields = {
        "run": "r", "epoch": last, "seconds": 1.5, "history": history, "model": weights, "best": weights,
        "average": {}, "optimiser": {"state": {}, "param_groups": []},
    }  # fmt: skip
    return Checkpoint(**fields | changes)  # type: ignore[typeddict-item]


def flip(path: Path, at: int = -20) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- two of them, each whole ---


def test_the_last_two_epochs_are_kept(tmp_path: Path) -> None:
    train(tmp_path, epochs=3)
    assert names(tmp_path) == ["last.ckpt", "previous.ckpt"]
    assert checkpoint.read(tmp_path / "last.ckpt")["epoch"] == 2
    assert checkpoint.read(tmp_path / "previous.ckpt")["epoch"] == 1


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from lformer.train import checkpoint

def made(epoch):
    weights = {"w": torch.arange(3.0)}
    history = [{"epoch": n} for n in range(epoch + 1)]
    return dict(run="r", epoch=epoch, seconds=1.0, history=history, model=weights, best=weights, average={},
                optimiser={"state": {}, "param_groups": []})

def save_and_be_killed(folder, moment):
    left = [moment]
    def count(event, arguments):
        if event in ("open", "os.rename", "os.remove", "os.chmod", "os.mkdir", "tempfile.mkstemp"):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    checkpoint.save(folder, made(2))
    os._exit(0)

torch.set_num_threads(1)
for moment in range(1, 100):
    folder = Path(sys.argv[1]) / str(moment)
    for epoch in (0, 1):
        checkpoint.save(folder, made(epoch))
    child = os.fork()
    if not child:
        save_and_be_killed(folder, moment)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(moment, ended, checkpoint.load(folder, "r")["epoch"], *sorted(path.name for path in folder.iterdir()))
    if not ended:
        break
"""


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint_and_no_rubbish(tmp_path: Path) -> None:
    child = [sys.executable, "-W", "error", "-c", KILLED, str(tmp_path)]
    said = subprocess.run(child, capture_output=True, text=True, check=True).stdout.splitlines()
    lines = [line.split() for line in said]
    assert len(lines) > 5
    assert [ended for _, ended, *_ in lines] == ["-9"] * (len(lines) - 1) + ["0"]
    assert {epoch for _, _, epoch, *_ in lines} == {"1", "2"}  # the one before, or the new one: nothing is lost
    for _, _, _, *found in lines:
        assert set(found) <= {"next.ckpt", "last.ckpt", "previous.ckpt"}
        assert len(found) >= 2


@pytest.mark.parametrize("name", ["next.ckpt", "last.ckpt", "previous.ckpt"])
def test_whichever_is_there_is_found(tmp_path: Path, name: str) -> None:
    checkpoint.save(tmp_path, made(4))
    (tmp_path / "last.ckpt").rename(tmp_path / name)
    found = checkpoint.load(tmp_path, "r")
    assert found is not None
    assert found["epoch"] == 4
    with pytest.raises(ValueError, match=rf"{name} belongs to another run"):
        checkpoint.load(tmp_path, "another")


def test_where_nothing_is_a_run_begins(tmp_path: Path) -> None:
    assert checkpoint.load(None, "r") is None
    assert checkpoint.load(tmp_path / "nowhere", "r") is None


def test_a_run_that_is_over_leaves_its_log_alone(tmp_path: Path) -> None:
    for folder, log in ((tmp_path / "a", False), (tmp_path / "b", True)):
        for epoch in range(3):
            checkpoint.save(folder, made(epoch))
        for name in ("last.ckpt.damaged", "next.ckpt.x1.part"):
            (folder / name).touch()
        if log:
            (folder / "metrics.csv").touch()
        checkpoint.discard(folder)
    assert names(tmp_path) == ["b"]
    assert names(tmp_path / "b") == ["metrics.csv"]


# --- damage ---


@pytest.mark.parametrize("at", [0, 17, 40, 64, 500, -1])
def test_a_flipped_bit_costs_an_epoch_and_changes_no_figure(tmp_path: Path, whole: Result, at: int) -> None:
    interrupted(tmp_path)
    flip(tmp_path / "last.ckpt", at)
    damaged = (tmp_path / "last.ckpt").read_bytes()
    told: list[float] = []
    says = r"last\.ckpt is damaged.* set aside as last\.ckpt\.damaged, and the run goes on after epoch 1\.$"
    with pytest.warns(CheckpointWarning, match=says):
        result = train(tmp_path, lambda row: told.append(row["epoch"]))
    assert told == [2, 3]
    assert (result.metrics, result.history) == (whole.metrics, whole.history)
    assert (tmp_path / "last.ckpt.damaged").read_bytes() == damaged


@pytest.mark.parametrize("left", [0, 30, 64, 1000])
def test_a_cut_checkpoint_is_no_dead_end(tmp_path: Path, whole: Result, left: int) -> None:
    interrupted(tmp_path)
    path = tmp_path / "last.ckpt"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.warns(CheckpointWarning, match="goes on after epoch 1"):
        assert train(tmp_path).history == whole.history


def test_without_a_whole_one_the_run_begins_again(tmp_path: Path, whole: Result) -> None:
    interrupted(tmp_path)
    for name in ("last.ckpt", "previous.ckpt"):
        flip(tmp_path / name)
    with pytest.warns(CheckpointWarning) as said:
        result = train(tmp_path)
    assert [str(w.message).split()[0] for w in said] == [str(tmp_path / "last.ckpt"), str(tmp_path / "previous.ckpt")]
    assert all("goes on from the start" in str(w.message) for w in said)
    assert (result.metrics, result.history) == (whole.metrics, whole.history)
    assert {"last.ckpt.damaged", "previous.ckpt.damaged"} < set(names(tmp_path))


def test_an_unreadable_sector_is_damage_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch in range(2):
        checkpoint.save(tmp_path, made(epoch))
    check = sealed.check_blob

    def broken(path: Path) -> None:
        if path.name == "last.ckpt":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        check(path)

    monkeypatch.setattr(sealed, "check_blob", broken)
    with pytest.warns(CheckpointWarning, match=r"last\.ckpt is damaged: Input/output error\. .*after epoch 0"):
        found = checkpoint.load(tmp_path, "r")
    assert found is not None
    assert found["epoch"] == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([1, 2], "must hold run, epoch, seconds, history"),
        ({k: v for k, v in made().items() if k != "best"}, "must hold run, epoch, seconds, history"),
        (made(run=5), "run must be of type str, not int"),
        (made(epoch="0"), "epoch must be of type int, not str"),
        (made(model=[]), "model must be of type dict, not list"),
        (made(epoch=-1, history=[]), "a row for each epoch"),
        (made(1, history=[{"epoch": 0}]), "a row for each epoch from 0 to 1"),
        (made(1, history=[{"epoch": 1}, {"epoch": 0}]), "a row for each epoch from 0 to 1"),
        (made(history=["epoch"]), "a row for each epoch"),
        (made(history=[{"epoch": 0, "loss": "small"}]), "history must hold numbers"),
        (made(best={}), "tensors of the same names"),
        (made(average={"v": torch.zeros(3)}), "averaged weights must be tensors named as those of the model"),
        (made(model={"w": 1}, best={"w": 1}), "tensors of the same names"),
        (made(optimiser={"state": {}}), "optimiser must have a state and param_groups"),
    ],
)
def test_a_whole_file_with_another_content_is_damaged(tmp_path: Path, content: Any, says: str) -> None:
    checkpoint.save(tmp_path, content)
    with pytest.raises(DamagedError, match=rf"last\.ckpt is damaged: .*{says}"):
        checkpoint.read(tmp_path / "last.ckpt")


class Runs:
    """Would run a command as it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo executed",)


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for content in (io.BytesIO(b"no zip"), io.BytesIO()):
        if not content.getvalue():
            torch.save({"run": Runs()}, content)
        whole = content.getvalue()
        sealed.write_blob(tmp_path / "last.ckpt", lambda stream, whole=whole: stream.write(whole))
        with pytest.raises(DamagedError, match=r"last\.ckpt is damaged: PyTorch cannot read it"):
            checkpoint.read(tmp_path / "last.ckpt")
    assert capfd.readouterr().out == ""


# --- a full disk ---


def no_room(number: int) -> Any:
    def refuse(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_warning_and_the_run_goes_on(
    tmp_path: Path, whole: Result, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fill(row: dict[str, float]) -> None:
        if row["epoch"] == 0:
            monkeypatch.setattr(os, "fsync", no_room(number))

    with pytest.warns(UserWarning, match="could not be written") as said:
        result = train(tmp_path, fill, log="csv")
    assert (result.metrics, result.history) == (whole.metrics, whole.history)
    about = sorted(str(w.message) for w in said)
    for text, name in zip(about, ("last.ckpt", "metrics.csv"), strict=True):  # once each
        assert text.startswith(f"{tmp_path / name} could not be written ({os.strerror(number)}). The run goes on")
    assert "only after epoch 0" in about[0]
    assert names(tmp_path) == ["last.ckpt", "metrics.csv"]
    monkeypatch.undo()
    told: list[float] = []
    assert train(tmp_path, lambda row: told.append(row["epoch"])).history == whole.history
    assert told == [1, 2, 3]


def test_a_disk_that_is_full_again_is_a_warning_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(epoch: int, full: bool) -> list[str]:
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if full:
                patch.setattr(os, "fsync", no_room(errno.ENOSPC))
            checkpoint.save(tmp_path, made(epoch))
        return [str(w.message) for w in said]

    assert "only from the start" in save(0, full=True)[0]
    assert save(1, full=True) == []
    assert save(2, full=False) == []
    assert "only after epoch 2" in save(3, full=True)[0]
    assert names(tmp_path) == ["last.ckpt"]
    checkpoint.load(tmp_path, "r")  # another run begins
    assert "only after epoch 2" in save(3, full=True)[0]


def test_another_error_of_the_disk_ends_the_run_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", no_room(errno.EIO))
    with pytest.raises(OSError, match=r"Input/output error: '.*last\.ckpt'"):
        checkpoint.save(tmp_path, made())
    assert names(tmp_path) == []


# --- the log ---


def test_a_torn_log_is_whole_again_after_the_next_epoch(tmp_path: Path) -> None:
    rows = [{"epoch": n, "loss": 0.5} for n in range(3)]
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,loss\n0,0.5\n1,0.")
    with log_to(tmp_path, "csv", done=1) as log:
        log(rows)
    assert path.read_text() == "epoch,loss\n0,0.5\n1,0.5\n2,0.5\n"


def test_a_log_that_cannot_be_written_for_another_reason_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", no_room(errno.EIO))
    with log_to(tmp_path, "csv", done=0) as log, pytest.raises(OSError, match="Input/output"):
        log([{"epoch": 0}])


def test_a_kill_between_log_and_checkpoint_costs_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = checkpoint.save

    def killed_after(folder: Path, state: Checkpoint) -> None:
        real(folder, state)
        raise SystemExit(137)  # after the last epoch: the next run finds itself finished

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed_after)
        with pytest.raises(SystemExit):
            train(tmp_path, log="csv", epochs=1)
    train(tmp_path, log="csv", epochs=1)
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 2


def test_a_packed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    def fill(stream: BinaryIO) -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", bytes(10**7))
        stream.write(packed.getvalue())

    sealed.write_blob(tmp_path / "last.ckpt", fill)
    with pytest.raises(DamagedError, match="it is compressed, which checkpoints are not"):
        checkpoint.read(tmp_path / "last.ckpt")
