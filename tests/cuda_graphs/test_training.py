"""Training steps by replay: the gradients of an ordinary step, of this batch alone; graphs for shapes that return."""

import pytest
import torch
from helpers import irregular_batch, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch
from lformer.baselines import GRU, S5, GRUConfig, S5Config
from lformer.cuda_graphs import RecordingError, capture_step
from lformer.nn import LFormer, LFormerConfig


def model(dtype: torch.dtype = torch.float64, **config: object) -> LFormer:
    torch.manual_seed(1)
    return LFormer(LFormerConfig(**{"inputs": 3, "outputs": 2, "width": 16, "heads": 2} | config)).to(dtype)


def batch_of(seed: int = 0, L: int = 30, dtype: torch.dtype = torch.float64) -> IrregularBatch:
    targets = torch.randn(4, 2, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return irregular_batch(L=L, seed=seed, dtype=dtype, targets=targets)


def objective(net: nn.Module, batch: IrregularBatch) -> Tensor:
    return (net(batch) - batch.targets).square().mean()


def ordinary(net: nn.Module, batch: IrregularBatch) -> tuple[Tensor, list[Tensor | None]]:
    net.zero_grad()
    loss = objective(net, batch)
    loss.backward()
    found = [p.grad for p in net.parameters()]
    net.zero_grad()
    return loss.detach(), found


def require_step(net: nn.Module, loss: Tensor, expected: tuple[Tensor, list[Tensor | None]]) -> None:
    assert torch.equal(loss, expected[0])
    assert not loss.requires_grad
    for parameter, gradient in zip(net.parameters(), expected[1], strict=True):
        assert gradient is not None
        assert torch.equal(parameter.grad, gradient)


def test_without_cuda_every_step_is_an_ordinary_one() -> None:
    net = model()
    step = capture_step(net, objective)
    for seed in range(3):
        batch = batch_of(seed)
        expected = ordinary(net, batch)
        require_step(net, step(batch), expected)  # gradients of an earlier step are gone, not added to
        assert not step.captured(batch)


def test_a_shape_is_recorded_when_it_comes_again_and_gives_the_gradients_of_its_batch(
    recorded: list[tuple[int, ...]],
) -> None:
    net = model()
    step = capture_step(net, objective)
    for seed, length in ((0, 30), (1, 20), (2, 30), (3, 30), (4, 20), (5, 30)):
        batch = batch_of(seed, length)
        expected = ordinary(net, batch)
        require_step(net, step(batch), expected)
        assert step.captured(batch) == (seed > 1)
    assert recorded == [(4, 30, 3), (4, 20, 3)]
    step.clear()
    assert not step.captured(batch)


def test_gradients_can_be_placed_again_after_somebody_took_them_away(recorded: list[tuple[int, ...]]) -> None:
    net, batch = model(), batch_of()
    step = capture_step(net, objective)
    with pytest.raises(RuntimeError, match="no gradients before the first step"):
        step.place_gradients()
    expected = ordinary(net, batch)
    for _ in range(3):
        loss = step(batch)
        net.zero_grad()
        step.place_gradients()
        require_step(net, loss, expected)


def test_a_loss_is_not_overwritten_by_the_next_step(recorded: list[tuple[int, ...]]) -> None:
    step = capture_step(model(), objective)
    losses = [step(batch_of(seed)) for seed in (0, 0, 0, 1, 2)]
    assert len({float(loss) for loss in losses}) == 3


def test_an_optimiser_comes_to_the_same_weights(recorded: list[tuple[int, ...]]) -> None:
    one, two = model(), model()
    step = capture_step(one, objective)
    adams = [torch.optim.Adam(net.parameters(), lr=1e-2) for net in (one, two)]
    for seed in range(6):
        batch = batch_of(seed, 20 + 10 * (seed % 2))
        step(batch)
        objective(two, batch).backward()
        for adam in adams:
            adam.step()
        two.zero_grad()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    assert len(recorded) == 2


def test_frozen_weights_and_the_mode_of_training_make_a_graph_of_their_own(recorded: list[tuple[int, ...]]) -> None:
    net, batch = model(), batch_of()
    step = capture_step(net, objective)
    step(batch), step(batch)
    net.eval()
    assert not step.captured(batch)
    net.train()
    assert step.captured(batch)
    net.head[0].weight.requires_grad_(False)
    assert not step.captured(batch)
    step(batch), step(batch)
    assert net.head[0].weight.grad is None
    assert net.head[0].bias.grad is not None


def test_weights_that_are_shared_by_two_layers_get_one_gradient(recorded: list[tuple[int, ...]]) -> None:
    net, batch = model(), batch_of()
    net.mixers[1].time_mixer.query.weight = net.mixers[0].time_mixer.query.weight
    step = capture_step(net, objective)
    expected = ordinary(net, batch)
    for _ in range(3):
        require_step(net, step(batch), expected)


class Normalised(nn.Module):
    """Writes down the means it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(3, dtype=torch.float64), nn.Linear(3, 2, dtype=torch.float64)

    def forward(self, batch: IrregularBatch) -> Tensor:
        return self.out(self.norm(batch.values.mean(dim=1)))


def test_what_a_model_writes_down_is_written_once_a_step(recorded: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    net, other = Normalised(), Normalised()
    other.load_state_dict(net.state_dict())
    step = capture_step(net, objective)
    for seed in range(4):
        step(batch_of(seed))
        objective(other, batch_of(seed))
    assert len(recorded) == 1
    for name, value in other.state_dict().items():
        assert torch.equal(net.state_dict()[name], value), name


def test_a_recurrence_does_not_take_the_weights_of_a_step_for_new_ones(recorded: list[tuple[int, ...]]) -> None:
    """On CUDA it would move them at its next ordinary call, and graphs read them where they were."""
    model = GRU(GRUConfig(inputs=3, outputs=2, width=4, rows="observed")).double()
    step = capture_step(model, lambda model, batch: model(batch).square().sum())
    for seed in range(3):
        step(irregular_batch(seed=seed))
        assert not model.recurrence._weights_have_changed()
        assert all(a is b for a, b in zip(model.recurrence._flat_weights, model.recurrence.parameters(), strict=True))


def test_gradients_lie_in_memory_as_their_weights_do(recorded: list[tuple[int, ...]]) -> None:
    net = S5(S5Config(inputs=3, outputs=2, width=16))
    step = capture_step(net, objective)
    for seed in range(3):
        step(batch_of(seed, dtype=torch.float32))
        assert all(p.grad is not None and p.grad.stride() == p.stride() for p in net.parameters())


def test_values_are_not_looked_at(recorded: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Tensor] = []
    monkeypatch.setattr("lformer.ops.checks.first_bad", lambda bad: looks.append(bad))
    step, batch = capture_step(model(), objective), batch_of()
    for _ in range(3):
        step(batch)
    assert not looks


# --- on a GPU ---

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", ["parallel", "auto"])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_graph_gives_the_gradients_of_an_ordinary_step(backend: str, causal: bool, autocast: bool) -> None:
    torch.set_float32_matmul_precision("high")
    net = model(torch.float32, width=64, heads=4, causal=causal, backend=backend).cuda()
    step = capture_step(net, objective)
    for seed, length in ((0, 100), (1, 100), (2, 300), (3, 100), (4, 300), (5, 100)):
        batch = batch_of(seed, length, torch.float32)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = step(batch)  # from the CPU
        found = [p.grad.clone() for p in net.parameters()]
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            expected = objective(net, batch.to("cuda"))  # and lives on while the next batch is recorded
        net.zero_grad()
        expected.backward()
        assert relative_error(loss, expected.detach()) < 1e-5
        for parameter, gradient in zip(net.parameters(), found, strict=True):
            assert relative_error(gradient, parameter.grad) < 1e-5
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(0.01 * parameter.grad)  # weights written in place are seen
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        assert step.captured(batch)


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
@pytest.mark.parametrize(("backend", "path"), [("parallel", "plain"), ("auto", "fused model")])
def test_a_graph_draws_the_random_numbers_of_an_ordinary_step(backend: str, path: str) -> None:
    torch.set_float32_matmul_precision("high")
    net = model(torch.float32, width=64, heads=4, dropout=0.3, backend=backend).cuda()
    assert net.explain(batch_of(dtype=torch.float32).to("cuda")).name == path
    step, batch = capture_step(net, objective), batch_of(dtype=torch.float32)
    losses: dict[int, list[float]] = {0: [], 1: []}
    for seed in (0, 1, 0, 1, 0):  # ordinary, recorded, replayed
        torch.manual_seed(seed)
        losses[seed].append(float(step(batch)))
    assert step.captured(batch)
    assert max(losses[0]) - min(losses[0]) < 1e-5
    assert max(losses[1]) - min(losses[1]) < 1e-5
    assert abs(losses[0][0] - losses[1][0]) > 1e-3


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
def test_few_graphs_make_room_for_one_another_and_a_refusal_leaves_the_device_working() -> None:
    net = model(torch.float32, width=64, heads=4).cuda()
    step = capture_step(net, objective, graphs=1)
    for length in (50, 50, 60, 60, 50, 50):
        assert bool(torch.isfinite(step(batch_of(L=length, dtype=torch.float32))))
    reads = capture_step(net, lambda net, batch: objective(net, batch) * float(batch.values.sum()))
    batch = batch_of(dtype=torch.float32)
    reads(batch)
    with pytest.raises(RecordingError, match="LFormer cannot be recorded as a CUDA graph"):
        reads(batch)
    assert bool(torch.isfinite(step(batch)))
