"""The speed sweep: what it counts, what it fits, and when it gives a cell up."""

import math

import pytest
import torch

from lformer.bench import peers
from lformer.bench.speed import (
    Cell,
    LiveBytes,
    SpeedConfig,
    _hopeless,
    attempt,
    call,
    growth_exponent,
    measure,
    summary,
    table,
)


def cell(model: str, length: int, seconds: float | None, peak: int | None = 2**20, note: str = "") -> Cell:
    return Cell(model, "forward", 8, length, seconds, peak, note)


def test_live_bytes_count_what_is_alive_at_once() -> None:
    with LiveBytes() as memory:
        a = torch.ones(1000)
        b = a + 1
        del a
        c = b[:10]
        d = b * 2
        del b, c, d
    assert memory.peak == 8000
    assert memory.now == 0


def test_saved_activations_are_counted_until_backward() -> None:
    x = torch.ones(1000, requires_grad=True)
    with LiveBytes() as memory:
        x.exp().exp().exp().sum().backward()
    assert memory.peak >= 3 * 4000


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    cells = [cell("x", n, 1e-6 * n**power) for n in (512, 1024, 4096)] + [cell("x", 8192, None, None, "OOT")]
    assert growth_exponent(cells) == pytest.approx(power)
    assert math.isnan(growth_exponent(cells[:1]))


def test_a_cell_is_given_up_when_the_ones_before_say_so() -> None:
    config = SpeedConfig(limit=10.0, memory=1.0)
    assert _hopeless([], 1024, config) == ""
    assert _hopeless([cell("x", 512, 2.0)], 1024, config) == ""
    assert _hopeless([cell("x", 512, 3.0)], 1024, config) == "OOT"  # nothing is known yet: quadratic
    assert _hopeless([cell("x", 256, 1.5), cell("x", 512, 3.0)], 1024, config) == ""  # linear so far
    assert _hopeless([cell("x", 512, 0.1, 2**30)], 1024, config) == "OOM"
    assert _hopeless([cell("x", 512, None, None, "OOM")], 1024, config) == "OOM"


def test_the_summary_takes_the_worst_case() -> None:
    times = {"lformer": (1.0, 2.0), "lformer-causal": (1.5, 4.0), "gru": (3.0, 5.0)}
    cells = [cell(name, n, s) for name, pair in times.items() for n, s in zip((1024, 2048), pair, strict=True)]
    found = summary(cells)
    assert found["forward: causal over non-causal, time, worst"] == 2.0
    assert found["forward: gru over lformer, time, least"] == 2.5
    assert found["forward: gru over lformer-causal, time, least"] == 1.25
    assert table(cells, "forward", 8)[2][1] == "1500 ms (1.5×)"


def test_a_call_that_needs_too_much_memory_is_a_cell_and_any_other_error_an_error() -> None:
    assert attempt(lambda: torch.empty(2**50).fill_(1)) is None
    with pytest.raises(RuntimeError, match="size of tensor"):
        attempt(lambda: torch.ones(2) + torch.ones(3))


@pytest.mark.parametrize("name", peers.PEERS)
def test_every_peer_answers_and_learns(name: str) -> None:
    model, batch = peers.PEERS[name](), peers.random_batch(2, 40)
    assert model(batch).shape == (2, peers.CLASSES)
    seconds, peak = measure(call(model, batch, "training step"), seconds=0.0)
    assert seconds > 0
    assert peak > 40 * 2 * peers.WIDTH * 4
    assert all(p.grad is not None for p in model.parameters())
