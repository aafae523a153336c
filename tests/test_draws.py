"""Random numbers that belong to one run."""

import threading

import pytest
import torch
from torch import Tensor, nn

from lformer import LFormer, LFormerConfig
from lformer.baselines import BASELINES
from lformer.draws import Draws, drawing_from, generator_on, seeded
from lformer.nn.dropout import Dropout

CPU = torch.device("cpu")


def weights(model: nn.Module) -> list[Tensor]:
    return list(model.state_dict().values())


def build(seed: int) -> LFormer:
    with seeded(seed):
        return LFormer(LFormerConfig(inputs=3, outputs=2, rows="carried", embedder="mlp", time_embedding="sinusoidal"))


def same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_seed_decides_the_weights_and_the_process_does_not() -> None:
    torch.manual_seed(1)
    first = weights(build(5))
    torch.manual_seed(2)
    assert same(first, weights(build(5)))
    assert not same(first, weights(build(6)))


@pytest.mark.parametrize("name", ["gru", "transformer"])
def test_no_weight_of_a_baseline_comes_from_the_process(name: str) -> None:
    made = []
    for state in (1, 2):
        torch.manual_seed(state)
        with seeded(3):
            made.append(weights(BASELINES[name].model(BASELINES[name].config(inputs=3, outputs=2))))
    assert same(*made)


def test_building_leaves_the_generator_of_the_process_alone() -> None:
    before = torch.get_rng_state()
    build(5)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_weights_are_those_of_the_same_seed_of_the_process() -> None:
    torch.manual_seed(5)
    plain = LFormer(build(0).config)
    assert same(weights(plain), weights(build(5)))


def test_models_built_at_once_in_threads_are_those_built_alone() -> None:
    alone = [weights(build(seed)) for seed in range(6)]
    together: dict[int, list[Tensor]] = {}
    barrier = threading.Barrier(6)

    def one(seed: int) -> None:
        barrier.wait()
        for _ in range(3):
            together[seed] = weights(build(seed))

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(alone[seed], together[seed]) for seed in range(6))


def test_what_is_on_another_device_is_left_alone() -> None:
    with torch.device("meta"), seeded(0):
        assert LFormer(LFormerConfig(inputs=3, outputs=2)).first_interval.is_meta
    with seeded(0):
        assert torch.rand(3, device="meta").is_meta


def test_a_generator_that_is_given_is_used() -> None:
    with seeded(0):
        a = torch.rand(4, generator=torch.Generator().manual_seed(9))
    assert torch.equal(a, torch.rand(4, generator=torch.Generator().manual_seed(9)))


def test_dropout_draws_from_the_run() -> None:
    x, layer, draws = torch.ones(7, 50), Dropout(0.3), Draws(CPU)
    with drawing_from(draws):
        draws.seed(4)
        first = layer(x)
        draws.seed(4)
        torch.manual_seed(1)
        assert torch.equal(layer(x), first)
        assert not torch.equal(layer(x), first)
    assert generator_on(CPU) is None


def test_dropout_outside_a_run_is_that_of_pytorch() -> None:
    x, layer = torch.randn(7, 50), Dropout(0.3)
    torch.manual_seed(4)
    expected = nn.functional.dropout(x, 0.3)
    torch.manual_seed(4)
    assert torch.equal(layer(x), expected)
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("shape", [(1_000_003,), (1001, 333)])  # no multiple of the numbers in a word
def test_dropout_of_a_run_drops_its_share_and_keeps_the_mean(p: float, shape: tuple[int, ...]) -> None:
    x, layer, draws = torch.ones(shape, dtype=torch.float64), Dropout(p), Draws(CPU)
    draws.seed(4)
    with drawing_from(draws):
        y = layer(x)
    dropped = y == 0
    deviation = (p * (1 - p) / y.numel()) ** 0.5
    assert abs(float(dropped.double().mean()) - p) < 4 * deviation + 2**-17
    assert torch.allclose(y[~dropped], torch.tensor(1 / (1 - p), dtype=torch.float64), rtol=2**-10)
    pairs = dropped.flatten()[: y.numel() // 2 * 2].view(-1, 2).double()
    covariance = float((pairs - p).prod(dim=1).mean())
    assert abs(covariance) < 4 * p * (1 - p) / len(pairs) ** 0.5  # neighbours are dropped independently


def test_gradients_are_dropped_with_their_numbers() -> None:
    x, layer, draws = torch.randn(9, 33, requires_grad=True), Dropout(0.4), Draws(CPU)
    with drawing_from(draws):
        y = layer(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient * x, y)


def test_a_run_in_another_thread_has_its_own_numbers() -> None:
    found = []
    with drawing_from(Draws(CPU)):
        thread = threading.Thread(target=lambda: found.append(generator_on(CPU)))
        thread.start()
        thread.join()
    assert found == [None]
