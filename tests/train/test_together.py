"""Processes that are started for a run: the result of one process, and whatever goes wrong reaches the caller."""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_distributed import TASK, ragged

from lformer import IrregularBatch, Panel
from lformer.nn import LFormer, LFormerConfig
from lformer.parts import PanelPart, Targets
from lformer.train import DivergedError, Result, TrainConfig, checkpoint, fit, parcel, seeded, together
from lformer.train.processes import LostProcessError
from lformer.train.together import check_devices

BATCH, FIRST_EPOCH = 19, 2  # series, of 21, and steps: two series are left over, too few for three processes


class Fated(LFormer):
    """Something befalls the second process, or the first, at the first step of the second epoch."""

    def __init__(self, fate: str) -> None:
        super().__init__(LFormerConfig(inputs=2, outputs=1, answer="step", width=8, heads=2, depth=1))
        self.fate, self.steps = fate, 0

    def forward(self, batch: IrregularBatch, *rest: Any, **more: Any) -> torch.Tensor:
        answer = super().forward(batch, *rest, **more)
        self.steps += self.training
        if self.steps <= FIRST_EPOCH:
            return answer
        match self.fate, os.environ.get("LOCAL_RANK"):
            case "diverges", _:
                return answer * torch.nan
            case "fails", "1":
                raise ArithmeticError("out of luck")
            case "killed", "1":
                print("some last words", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case "warns", _ if self.training:
                warnings.warn("look out", RuntimeWarning, stacklevel=2)
            case "sleeps", _:
                time.sleep(60)
        return answer


def train(fate: str = "", devices: int = 2, epochs: int = 3, **more: Any) -> tuple[Fated, Result]:
    model = fresh(fate)
    config = TrainConfig(
        epochs=epochs,
        batch_size=BATCH,
        lr=1e-2,
        clip=0.5,
        average=0.2,
        device="cpu",
        precision="float64",
        devices=devices,
    )
    return model, fit(model, TASK, ragged(), config, **{"progress": False} | more)


def fresh(fate: str = "") -> Fated:
    with seeded(2):
        return Fated(fate)


def workers() -> list[int]:
    """The processes that are started for runs, whoever started them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if b"lformer.train.worker" in command:
            found.append(int(entry.parts[2]))
    return found


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Every test leaves neither a process nor a file behind."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    mine = [pid for pid in workers() if str(place).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert mine == []
    assert list(place.iterdir()) == []


def require_same_run(run: tuple[Fated, Result], other: tuple[Fated, Result]) -> None:
    for name, weight in other[0].state_dict().items():
        assert torch.allclose(run[0].state_dict()[name], weight, rtol=0, atol=1e-9), name
    for row, expected in zip(run[1].history, other[1].history, strict=True):
        assert row == pytest.approx(expected, rel=1e-9)
    assert run[1].metrics == pytest.approx(other[1].metrics, rel=1e-9)
    assert run[1].best_epoch == other[1].best_epoch


@pytest.mark.slow
def test_a_killed_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    alone = train(devices=1)
    with pytest.raises(LostProcessError, match="process 1 of 2 ended by SIGKILL, as the system ends") as caught:
        train("killed", folder=tmp_path / "run")
    assert "some last words" in str(caught.value)
    saved = checkpoint.newest(tmp_path / "run")
    assert saved is not None
    assert saved["epoch"] == 0
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    reported: list[dict[str, float]] = []
    one = train(devices=1, folder=tmp_path / "run")
    three = train(devices=3, folder=tmp_path / "copy", report=reported.append)
    assert one[0].steps == 2 * FIRST_EPOCH  # it went on, and did not begin again
    assert [row["epoch"] for row in reported] == [1, 2]
    require_same_run(one, alone)
    require_same_run(three, alone)


@pytest.mark.slow
def test_an_error_of_one_process_is_that_of_the_caller() -> None:
    with pytest.raises(ArithmeticError, match=r"^out of luck\n") as caught:
        train("fails")
    assert "test_together.py" in caught.value.__notes__[0]  # where it happened


@pytest.mark.slow
def test_an_explosion_has_its_history() -> None:
    with pytest.raises(DivergedError, match="the loss became nan at epoch 1, step 0") as caught:
        train("diverges")
    assert [row["epoch"] for row in caught.value.history] == [0]


@pytest.mark.slow
@pytest.mark.usefixtures("signals_as_in_a_terminal")
def test_an_interrupted_run_leaves_its_best_epoch_in_the_model(tmp_path: Path, capsys: Any) -> None:
    def interrupt(row: dict[str, float]) -> None:
        if row["epoch"] == 1:
            os.kill(os.getpid(), signal.SIGINT)

    model, before = fresh("warns"), fresh()
    config = TrainConfig(epochs=50, batch_size=BATCH, lr=1e-2, device="cpu", devices=2)
    with pytest.warns(RuntimeWarning, match="^look out$"), pytest.raises(KeyboardInterrupt):
        fit(model, TASK, ragged(), config, folder=tmp_path / "run", report=interrupt)
    saved = checkpoint.newest(tmp_path / "run")
    assert saved is not None
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, saved["best"][name])
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    shown = capsys.readouterr().out
    assert "/100" in shown  # the bar, with the steps of the run
    assert "val mse" in shown


SCRIPT = """
import sys
from train.test_together import train
print("begun", flush=True)
train("sleeps", report=lambda row: print("an epoch", flush=True))
"""


@pytest.mark.slow
def test_processes_end_with_a_script_that_is_killed_and_need_no_guard_of_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    tests = Path(__file__).parents[1]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])}
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, text=True, env=env
    ) as script:
        assert script.stdout is not None
        said = [script.stdout.readline(), script.stdout.readline()]
        started = [pid for pid in workers() if parent(pid) == script.pid]
        script.kill()
    assert said == ["begun\n", "an epoch\n"]  # once: they do not run the script
    assert len(started) == 2
    deadline = time.monotonic() + 30
    while set(started) & set(workers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not set(started) & set(workers())


def parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("PPid:"))


# --- what is refused, without starting anything ---


@pytest.mark.parametrize("devices", [0, -1, 1.5, "2", True, None])
def test_devices_are_counted(devices: Any) -> None:
    with pytest.raises(ValueError, match="devices must be a whole number of at least 1; got"):
        check_devices(devices)


def test_processes_that_torchrun_started_start_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    check_devices(np.int64(2), "cpu")
    monkeypatch.setenv("WORLD_SIZE", "4")
    check_devices(1)
    with pytest.raises(ValueError, match=r"devices=2 .* one of 4 that were already started together"):
        train()


@pytest.mark.parametrize(
    ("device", "devices", "says"),
    [
        ("auto", 3, "devices=3 needs a GPU for each, but PyTorch sees 2. Set devices=2, or device=.cpu."),
        ("cuda:1", 2, "devices=2 takes the first 2 GPUs, but device=.cuda:1. names a single one"),
    ],
)
def test_every_process_has_a_gpu_of_its_own(
    device: str, devices: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_devices(2, "auto")
    check_devices(3, "cpu")
    with pytest.raises(ValueError, match=says):
        check_devices(devices, device)


def test_a_class_of_the_script_itself_is_named() -> None:
    about = {"kind": "AttributeError", "words": "Can't get attribute 'Mine' on <module '__main__' ...>", "trace": ""}
    with pytest.raises(ValueError, match=r"'Mine'.*Move it into a module"):
        raise together._Ear(None, None, None)._error(about)  # type: ignore[arg-type]


# --- what travels ---


def test_parts_share_their_rows_on_the_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 300, 60)
    series = [(np.cumsum(rng.exponential(1.0, n)), rng.standard_normal((n, 3))) for n in lengths]
    panel = Panel.from_list(series)
    targets = Targets(values=np.arange(60) % 2, at="series")
    parts = [PanelPart(panel[some], targets, np.asarray(some), seed=1) for some in (range(50), range(50, 60))]
    for folder, given in (("memory", parts), ("disk", [_on_disk(part, panel, tmp_path / "panel") for part in parts])):
        (tmp_path / folder).mkdir()
        parcel.pack(given, tmp_path / folder)
        back = parcel.unpack(tmp_path / folder)
        for part, other in zip(parts, back, strict=True):
            for batch, same in zip(part.training_batches(8, 3, 0.2), other.training_batches(8, 3, 0.2), strict=True):
                assert torch.equal(batch.values, same.values)
                assert torch.equal(batch.times, same.times)
        written = (tmp_path / folder / parcel.ARRAYS).stat().st_size
        rows = panel.times.nbytes + panel.values.nbytes
        assert (written == 0) if folder == "disk" else (rows <= written < 1.01 * rows + 200)


def _on_disk(part: PanelPart, panel: Panel, folder: Path) -> PanelPart:
    if not folder.exists():
        panel.save(folder)
    return PanelPart(Panel.open(folder)[part.members], part.targets, part.members, part.seed)
