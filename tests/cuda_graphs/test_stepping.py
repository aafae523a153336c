"""Whole training steps by replay: the weights, moments and means of ordinary steps, to the last digit."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import irregular_batch, relative_error
from no_look import NoLook
from torch import Tensor, nn

from lformer import IrregularBatch, tasks
from lformer.cuda_graphs import RecordingError, recording
from lformer.nn import LFormer, LFormerConfig
from lformer.parts import Share
from lformer.train import TrainConfig
from lformer.train.distributed import World
from lformer.train.stepping import TrainingStep
from lformer.train.updating import DeviceUpdate, Update

TASK, TOTAL = tasks.regress(), 12
CONFIG = TrainConfig(
    lr=3e-3, weight_decay=0.1, clip=0.5, average=0.3, schedule="cosine", warmup=0.2, precision="float64", device="cpu"
)
# Rows that are a bucket of their own: more padding would change how products are split, and so the last digits.
LENGTHS = (32, 24, 32, 16, 24, 32, 24, 16, 32, 16, 24, 16)


class Spared(LFormer):
    """A group of its own: what is not decayed, at another rate."""

    undecayed, undecayed_rate = ("offset",), 0.1

    def __init__(self, config: LFormerConfig) -> None:
        super().__init__(config)
        self.offset = nn.Parameter(torch.zeros(1))

    def forward(self, batch: IrregularBatch) -> Tensor:  # type: ignore[override]
        answer: Tensor = super().forward(batch)
        return answer + self.offset


def model(dtype: torch.dtype = torch.float64, **config: object) -> Spared:
    torch.manual_seed(1)
    return Spared(LFormerConfig(**{"inputs": 3, "outputs": 1, "width": 16, "heads": 2} | config)).to(dtype)


def share_of(seed: int, L: int, dtype: torch.dtype = torch.float64) -> Share[IrregularBatch]:
    targets = torch.randn(4, 1, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return Share(irregular_batch(L=L, seed=seed, dtype=dtype, targets=targets))


def trained(net: nn.Module, config: TrainConfig = CONFIG, spoil: int | None = None) -> tuple[TrainingStep, list[float]]:
    """Some steps; in one of them the loss is not a number."""
    device = next(net.parameters()).device
    step = TrainingStep(net, TASK, World(device), config, TOTAL)
    losses = []
    for n, length in enumerate(LENGTHS):
        share = share_of(n, length, next(net.parameters()).dtype)
        if n == spoil:
            assert share.batch.targets is not None
            share = Share(replace(share.batch, targets=share.batch.targets * math.inf))
        losses.append(float(step(share, n)))
    return step, losses


def tensors(step: TrainingStep) -> dict[str, Tensor]:
    """Everything that steps have changed."""
    state = step.update.adam.state
    found = {name: parameter.detach() for name, parameter in step.model.named_parameters()}
    found |= {f"mean of {name}": tensor for name, tensor in step.update.averaged.mean.items()}
    for name, parameter in step.model.named_parameters():
        found |= {f"{key} of {name}": tensor for key, tensor in state[parameter].items()}
    return found


def require_same(one: TrainingStep, other: TrainingStep) -> None:
    expected = tensors(other)
    assert tensors(one).keys() == expected.keys()
    for name, tensor in tensors(one).items():
        assert torch.equal(tensor, expected[name]), name


@pytest.fixture
def plain() -> tuple[TrainingStep, list[float]]:
    """Ordinary steps of a CPU; asked for before `recorded`, it knows nothing of graphs."""
    step, losses = trained(model())
    assert type(step.update) is Update
    return step, losses


@pytest.mark.parametrize("changes", [{}, {"clip": None}, {"average": 0.0}, {"weight_decay": 0.0}], ids=str)
def test_whole_steps_are_ordinary_ones_to_the_last_digit(
    changes: dict[str, object], request: pytest.FixtureRequest
) -> None:
    config = replace(CONFIG, **changes)  # type: ignore[arg-type]
    ordinary, expected = trained(model(), config)
    shapes: list[tuple[int, ...]] = request.getfixturevalue("recorded")
    step, losses = trained(model(), config)
    assert isinstance(step.update, DeviceUpdate)
    assert sorted(shapes) == [(4, 16, 3), (4, 24, 3), (4, 32, 3)]
    assert losses == expected
    require_same(step, ordinary)
    assert len(step.update.adam.param_groups) == 2


def test_steps_that_are_not_recorded_are_the_same_on_a_device(
    plain: tuple[TrainingStep, list[float]], recorded: list[tuple[int, ...]]
) -> None:
    step, losses = trained(model(), replace(CONFIG, replay=False))
    assert isinstance(step.update, DeviceUpdate)
    assert recorded == []
    assert losses == plain[1]
    require_same(step, plain[0])


def test_whole_steps_leave_no_gradients(recorded: list[tuple[int, ...]]) -> None:
    step, _ = trained(model())
    assert recorded
    assert all(parameter.grad is None for parameter in step.model.parameters())


@pytest.mark.parametrize("replay", [True, False])
def test_a_loss_that_is_not_a_number_moves_nothing_in_its_step_nor_later(
    recorded: list[tuple[int, ...]], replay: bool
) -> None:
    config = replace(CONFIG, replay=replay)
    whole, losses = trained(model(), config, spoil=7)
    assert not math.isfinite(losses[7])
    assert all(map(math.isfinite, losses[:7] + losses[8:]))
    short = TrainingStep(model(), TASK, World(torch.device("cpu")), config, TOTAL)
    for n in range(7):
        short(share_of(n, LENGTHS[n]), n)
    require_same(whole, short)


def test_without_a_graph_a_loss_that_is_not_a_number_moves_nothing_in_its_step() -> None:
    step = TrainingStep(model(), TASK, World(torch.device("cpu")), CONFIG, TOTAL)
    step(share_of(0, 20), 0)
    before = {name: tensor.clone() for name, tensor in tensors(step).items()}
    share = share_of(1, 20)
    assert share.batch.targets is not None
    step(Share(replace(share.batch, targets=share.batch.targets * math.nan)), 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors(step).items())


def test_a_recording_that_fails_leaves_everything_as_it_was(
    plain: tuple[TrainingStep, list[float]], recorded: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm-up has taken steps by then."""

    def fails(work: object, inputs: object, name: str, pool: object) -> None:
        work(inputs)  # type: ignore[operator]
        raise RecordingError("LFormer cannot be recorded")

    monkeypatch.setattr(recording, "record", fails)
    with pytest.warns(UserWarning, match="steps are not replayed: LFormer cannot be recorded"):
        step, losses = trained(model())
    assert losses == plain[1]
    require_same(step, plain[0])


@pytest.mark.parametrize("first_on_a_device", [True, False])
@pytest.mark.parametrize("numbers", [True, False])
def test_a_checkpoint_of_another_device_is_gone_on_from(
    plain: tuple[TrainingStep, list[float]], first_on_a_device: bool, numbers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam counts its steps in a tensor on the device, or with numbers."""
    config = replace(CONFIG, replay=False)

    def part(on_a_device: bool, net: Spared, steps: range, saved: tuple[Any, Any] | None = None) -> TrainingStep:
        monkeypatch.setattr(recording, "replays_on", lambda device: on_a_device)
        step = TrainingStep(net, TASK, World(torch.device("cpu")), config, TOTAL)
        if saved is not None:
            step.update.load(*saved)
        for n in steps:
            step(share_of(n, LENGTHS[n]), n)
        return step

    early = part(first_on_a_device, model(), range(5))
    state, mean = early.update.state(), early.update.averaged.state()
    assert all(type(group["lr"]) is float for group in state["param_groups"])
    if numbers:
        for moments in state["state"].values():
            moments["step"] = float(moments["step"])
    net = model()
    net.load_state_dict(early.model.state_dict())
    late = part(not first_on_a_device, net, range(5, TOTAL), (state, mean))
    require_same(late, plain[0])
    assert all(group["capturable"] != first_on_a_device for group in late.update.adam.param_groups)


# --- on a GPU ---


@pytest.fixture
def exact_products() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels", "exact_products")
def test_on_a_gpu_whole_steps_are_ordinary_ones() -> None:
    config = replace(CONFIG, device="gpu")
    replayed, losses = trained(model().cuda(), config)
    assert replayed.recorded is not None
    assert replayed.recorded.captured(share_of(0, 32).batch)
    eager, expected = trained(model().cuda(), replace(config, replay=False))
    on_cpu, _ = trained(model(), CONFIG)
    assert isinstance(eager.update, DeviceUpdate)
    assert type(on_cpu.update) is Update
    assert losses == pytest.approx(expected, rel=1e-9)
    for other, limit in ((eager, 1e-9), (on_cpu, 1e-6)):  # learning rates are float32 on CUDA
        wanted = tensors(other)
        for name, tensor in tensors(replayed).items():
            if not name.startswith("exp_avg"):  # of a gradient that is 0, rounding is all there is
                assert relative_error(tensor.cpu(), wanted[name].cpu(), scale=1.0) < limit, name


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels", "exact_products")
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_on_a_gpu_whole_steps_learn_as_ordinary_ones_do(precision: str) -> None:
    """Where a gradient is 0 but for rounding, Adam moves a weight by its sign: only losses can be compared."""
    config = replace(CONFIG, precision=precision, device="gpu")  # type: ignore[arg-type]
    _, losses = trained(model(torch.float32).cuda(), config)
    _, expected = trained(model(torch.float32).cuda(), replace(config, replay=False))
    assert losses == pytest.approx(expected, rel=1e-3 if precision == "float32" else 5e-2)


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
def test_on_a_gpu_a_loss_that_is_not_a_number_moves_nothing() -> None:
    config = replace(CONFIG, precision="float32", device="gpu")
    whole, losses = trained(model(torch.float32).cuda(), config, spoil=7)
    assert not math.isfinite(losses[7])
    assert all(map(math.isfinite, losses[:7] + losses[8:]))
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors(whole).values())
    counts = {float(tensor) for name, tensor in tensors(whole).items() if name.startswith("step of")}
    assert counts == {7.0}


def test_an_update_on_a_device_looks_at_no_value() -> None:
    net = model()
    update = DeviceUpdate(net, CONFIG, TOTAL)
    update.begin(3)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = [mean.clone() for mean in update.averaged.mean.values()]
    with NoLook():
        update(torch.tensor(1.0, dtype=torch.float64))
    after = update.averaged.mean.values()
    assert not any(torch.equal(new, old) for new, old in zip(after, before, strict=True))


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_on_a_gpu_a_replayed_step_waits_for_nothing() -> None:
    """PyTorch says so whenever a call waits for the device."""
    net = model(torch.float32).cuda()
    step = TrainingStep(net, TASK, World(torch.device("cuda", 0)), replace(CONFIG, precision="float32"), TOTAL)
    shares = [share_of(n, 30, torch.float32) for n in range(6)]
    for n, share in enumerate(shares[:3]):
        step(share, n)
    before = torch.cuda.get_sync_debug_mode()
    try:
        torch.cuda.set_sync_debug_mode("error")
        losses = [step(share, n) for n, share in enumerate(shares[3:], 3)]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert np.isfinite([float(loss) for loss in losses]).all()
