"""Losses that arrive late: none is missed, and the first that is not a number is named with its step and batch."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import irregular_batch
from torch import Tensor, nn

from lformer import IrregularBatch, data, tasks
from lformer.batch import Source
from lformer.train import DivergedError, TrainConfig, fit, watching
from lformer.train.watching import AHEAD, Losses

BATCH = irregular_batch()


class Late:
    """A device whose losses arrive some steps later, or when they are waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
        self.sent, self.waits, self.steps = 0, 0, steps
        monkeypatch.setattr(watching, "sent", self.send)

    def send(self, loss: Tensor, batch: Source) -> Any:
        self.sent += 1
        number = self.sent
        return watching._Sent(loss.clone(), lambda: self.sent >= number + self.steps, self.wait, batch)

    def wait(self) -> None:
        self.waits += 1


def exploded(loss: float, step: int, batch: Source) -> Exception:
    return FloatingPointError(f"{loss} in step {step} of {len(batch)} series")


def test_on_a_cpu_a_loss_is_looked_at_once() -> None:
    losses = Losses(exploded)
    assert math.isnan(losses.latest)
    for n in range(5):
        losses.add(torch.tensor(float(n)), BATCH)
        assert losses.latest == n
    assert losses.mean() == 2.0
    with pytest.raises(FloatingPointError, match="inf in step 5 of 4 series"):
        losses.add(torch.tensor(math.inf), BATCH)


def test_an_epoch_without_steps_has_no_loss() -> None:
    assert math.isnan(Losses(exploded).mean())


@pytest.mark.parametrize("steps", [1, 3, 100])
def test_losses_that_come_late_all_count(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device, losses, buffer = Late(monkeypatch, steps), Losses(exploded), torch.zeros(())
    for n in range(30):
        buffer.fill_(n)  # as a replay does with the loss of the step before
        losses.add(buffer, BATCH)
        late = min(steps, AHEAD)  # so many are on their way at most
        assert math.isnan(losses.latest) if n < late else losses.latest == n - late
    assert losses.mean() == 14.5
    assert losses.latest == 29
    assert device.waits == 30


@pytest.mark.parametrize("steps", [1, 3, 100])
@pytest.mark.parametrize("bad", [0, 4, 28])
def test_a_late_loss_that_is_not_a_number_is_named_before_the_epoch_ends(
    steps: int, bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, losses = Late(monkeypatch, steps), Losses(exploded)

    def epoch() -> None:
        for n in range(30):
            losses.add(torch.tensor(math.nan if n >= bad else 1.0), BATCH)
        losses.mean()

    with pytest.raises(FloatingPointError, match=f"nan in step {bad} of 4 series"):
        epoch()
    assert device.sent == min(30, bad + 1 + min(steps, AHEAD))


class Blows(nn.Module):
    """Fine until a training step, then infinity."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.linear, self.calls, self.first = nn.Linear(2, 2), 0, first

    def forward(self, batch: IrregularBatch) -> Tensor:
        assert batch.query_times is not None
        self.calls += self.training
        x = self.linear(torch.ones(*batch.query_times.shape, 2))
        return x * math.inf if self.calls > self.first and self.training else x


@pytest.mark.parametrize("late", [False, True])
def test_nothing_is_kept_of_an_epoch_in_which_a_run_diverged(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if late:
        Late(monkeypatch, 100)
    splits, told = data.load("spiral-0.02", steps=4), []
    steps = splits.train.training_steps(40)
    assert 2 <= steps < AHEAD  # the last is looked at only at the end of the epoch
    config = TrainConfig(epochs=3, batch_size=40, device="cpu")
    model = Blows(2 * steps - 1)
    with pytest.raises(DivergedError, match=rf"inf at epoch 1, step {steps - 1};") as error:
        fit(model, tasks.trajectory(), splits, config, folder=tmp_path, progress=False, report=told.append)
    assert [row["epoch"] for row in error.value.history] == [0]
    assert [row["epoch"] for row in told] == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
