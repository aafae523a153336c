"""The speed sweep: what it counts, what it fits, and when it gives a cell up."""

import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from lformer.baselines import BASELINES
from lformer.batch import IrregularBatch
from lformer.bench import peers
from lformer.bench.speed import anchors, cpu, timing
from lformer.bench.speed import sweep as sweeping
from lformer.bench.speed.cells import REPLAY, Cell, Work, growth_exponent, summary
from lformer.bench.speed.sweep import TIME_OVER, SpeedConfig, cheapest_first, hopeless, sweep
from lformer.bench.speed.tables import table
from lformer.bench.speed.timing import Budget, LiveBytes, Measured, attempt, call, measure

ONCE = Budget(1, 0.0)


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
    assert hopeless([], 1024, config) == ""
    assert hopeless([cell("x", 512, 2.0)], 1024, config) == ""
    assert hopeless([cell("x", 512, 3.0)], 1024, config) == "OOT"  # nothing is known yet: quadratic
    assert hopeless([cell("x", 256, 1.5), cell("x", 512, 3.0)], 1024, config) == ""  # linear so far
    assert hopeless([cell("x", 256, 6.0), cell("x", 512, 6.0)], 1024, config) == "OOT"  # flat: linear at least
    assert hopeless([cell("x", 512, 0.1, 2**30)], 1024, config) == "OOM"
    assert hopeless([cell("x", 512, None, None, "OOM")], 1024, config) == "OOM"
    grown = [cell("x", 256, 0.1, 2**26), cell("x", 512, 0.1, 2**28)]
    assert hopeless(grown, 1024, config) == ""
    assert hopeless(grown, 2048, config) == "OOM"  # quadratic so far
    failed = cell("x", 512, None, None, "failed: once")
    assert hopeless([failed], 1024, config) == ""  # another length may work
    assert hopeless([cell("x", 256, 3.0), failed], 1024, config) == "OOT"


def test_the_summary_takes_the_worst_case() -> None:
    times = {"lformer": (1.0, 2.0), "lformer-causal": (1.5, 4.0), "gru": (3.0, 5.0)}
    cells = [cell(name, n, s) for name, pair in times.items() for n, s in zip((1024, 2048), pair, strict=True)]
    found = summary(cells)
    assert found["forward: causal over non-causal, time, worst"] == 2.0
    assert found["forward: gru over lformer, time, least"] == 2.5
    assert found["forward: gru over lformer-causal, time, least"] == 1.25
    assert table(cells, "forward", 8)[2][1] == "1500 ms (1.5×)"


def test_a_call_that_fails_is_a_cell_that_says_why() -> None:
    assert attempt(lambda: torch.empty(2**50).fill_(1)) == "OOM"
    said = attempt(lambda: torch.ones(2) + torch.ones(3))
    assert isinstance(said, str)
    assert said.startswith("failed: RuntimeError: The size of tensor a (2)")

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    assert attempt(broken) == "failed: RuntimeError: CUDA error: an illegal memory access was encountered"


def test_a_broken_model_costs_its_own_cells_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> torch.nn.Module:
        raise ImportError("no such library")

    monkeypatch.setitem(peers.PEERS, "broken", peers.Peer(broken))
    config = SpeedConfig(lengths=(8,), batches=(2,), models=("broken", "lformer"), budget=ONCE)
    found = list(sweep(config))
    assert [c.note for c in found] == ["failed: ImportError: no such library", ""] * 2
    assert [c.seconds is not None for c in found] == [False, True] * 2


def test_after_the_deadline_cells_are_named_and_not_begun() -> None:
    config = SpeedConfig(lengths=(8, 16), batches=(2,), models=("lformer",), budget=ONCE, deadline=-1.0)
    assert [(c.length, c.seconds, c.note) for c in sweep(config)] == [
        (8, None, TIME_OVER), (8, None, TIME_OVER), (16, None, TIME_OVER), (16, None, TIME_OVER)
    ]  # fmt: skip


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path) -> None:
    def interrupt(found: Cell) -> None:
        if found.model == "lformer-causal":
            raise KeyboardInterrupt

    config = SpeedConfig(lengths=(8,), batches=(2,), models=("lformer", "lformer-causal"), budget=ONCE, folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cpu.run(config, interrupt)
    assert '"model": "lformer"' in (tmp_path / "cpu.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["cpu.json"]


@pytest.mark.parametrize("name", peers.available())
def test_every_peer_answers_and_learns(name: str) -> None:
    model, batch = peers.build(name), peers.random_batch(2, 40)
    assert model(batch).shape == (2, peers.CLASSES)
    seen: list[int] = []
    parameters = list(model.parameters())
    read = torch.autograd.grad(model(batch).sum(), parameters, allow_unused=hasattr(model, "training_loss"))
    parameters = [p for p, g in zip(parameters, read, strict=True) if g is not None]  # a variance only its loss reads
    hooks = [p.register_hook(lambda g: seen.append(g.numel())) for p in parameters]
    found = measure(call(model, batch, "training step"), budget=ONCE)
    assert found.seconds > 0
    assert found.peak_bytes > 40 * 2 * peers.WIDTH * 4
    assert len(seen) >= 2 * len(hooks)  # warm-up and one call, every parameter
    assert all(p.grad is None for p in model.parameters())  # the next call begins with the same memory


def test_the_cheapest_call_is_next_and_a_slow_model_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = {"LFormer": 1e-3, "GRU": 2e-2, "Transformer": 1.0}  # seconds of a row
    budgets: dict[tuple[str, int, str], Budget] = {}

    def timed(model: torch.nn.Module, data: IrregularBatch, work: Work, config: SpeedConfig) -> Measured:
        name, length = type(model).__name__, data.values.shape[1]
        budgets[name, length, work] = config.budget
        return Measured(1e-5 if work == REPLAY else rate[name] * length, 100)

    monkeypatch.setattr(sweeping, "_measured", timed)
    config = SpeedConfig(
        lengths=(64, 128), probes=(16,), batches=(2,), models=("lformer", "gru", "transformer"),
        works=("training step", REPLAY), limit=100.0, budget=ONCE,
    )  # fmt: skip
    found = list(cheapest_first(config))
    steps = [(c.model, c.length, c.note) for c in found if c.work != REPLAY]
    assert steps == [
        ("lformer", 16, ""), ("gru", 16, ""), ("transformer", 16, ""), ("lformer", 64, ""), ("lformer", 128, ""),
        ("gru", 64, ""), ("gru", 128, ""), ("transformer", 64, "OOT"), ("transformer", 128, "OOT"),
    ]  # fmt: skip
    replays = [(c.model, c.length, c.note) for c in found if c.work == REPLAY]
    assert sorted(r for r in replays if r[0] == "lformer") == [("lformer", 64, ""), ("lformer", 128, "")]
    assert {note for name, _, note in replays if name != "lformer"} == {timing.NOT_RECORDED}  # they do not say they may
    order = [(c.model, c.length, c.work) for c in found]
    assert order.index(("lformer", 64, REPLAY)) > order.index(("lformer", 64, "training step"))
    assert budgets["LFormer", 16, "training step"] == sweeping.PROBE
    assert budgets["LFormer", 64, "training step"] == ONCE
    assert budgets["GRU", 128, "training step"] == ONCE._replace(warm_up=1)  # expected to take seconds


def test_r_ode_has_about_the_papers_parameters() -> None:
    published = anchors.PAPER["r-ode"].parameters
    assert sum(p.numel() for p in peers.build("r-ode").parameters()) == pytest.approx(published, rel=0.005)


def test_a_model_whose_package_is_missing_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peers.installed(("r-ode", "lformer", "mamba-ssm")) == ("r-ode", "lformer")
    monkeypatch.setitem(peers.PACKAGES, "r-ode", "no_such_package")
    assert peers.installed(("r-ode", "lformer")) == ("lformer",)


def test_no_peer_has_the_name_of_a_baseline() -> None:
    """The GRU that is timed is the GRU that is compared."""
    assert not set(peers.PEERS) & set(BASELINES)
    assert isinstance(peers.build("gru"), BASELINES["gru"].model)


def test_every_baseline_that_is_trained_can_join_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BASELINES, "gru again", BASELINES["gru"])
    assert "gru again" in peers.available()
    assert "boosting" in BASELINES
    assert "boosting" not in peers.available()  # it takes no step that could be timed
    config = SpeedConfig(lengths=(8,), batches=(2,), models=("gru again",), works=("forward",), budget=ONCE)
    (found,) = sweep(config)
    assert found.seconds is not None
    assert found.seconds > 0


def test_what_needs_a_gpu_or_a_package_is_no_choice_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {"mamba-ssm", "simple-gla"} & set(peers.available("cpu"))
    monkeypatch.setitem(peers.PEERS, "kernels", peers.Peer(peers.lformer, cuda=True))
    monkeypatch.setitem(peers.PEERS, "absent", peers.Peer(peers.lformer, package="no_such_package"))
    assert {"kernels", "absent"} & set(peers.available("cpu")) == set()
    assert {"kernels", "absent"} & set(peers.available("cuda")) == {"kernels"}
    says = r"cannot measure mamba-ssm; there are lformer, .*mamba-ssm and simple-gla need a GPU"
    with pytest.raises(ValueError, match=says):
        SpeedConfig(models=("mamba-ssm",))


def test_simple_gla_computes_causal_liquid_gated_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels need a GPU; their recurrence, `S = e^g S + kᵀ v`, `y = scale q S`, stands in for them here."""

    def recurrence(q, k, v, g, scale):  # type: ignore[no-untyped-def]
        state, rows = torch.zeros(q.shape[0], *q.shape[2:], v.shape[-1]), []
        for n in range(q.shape[1]):
            state = g[:, n].exp()[..., None, None] * state + k[:, n, ..., None] * v[:, n, :, None]
            rows.append(scale * (q[:, n, :, None] @ state).squeeze(-2))
        return torch.stack(rows, dim=1), None

    fla = ModuleType("fla.ops.simple_gla")
    fla.chunk_simple_gla = recurrence  # type: ignore[attr-defined]
    for name, stub in (("fla", ModuleType("fla")), ("fla.ops", ModuleType("fla.ops")), ("fla.ops.simple_gla", fla)):
        monkeypatch.setitem(sys.modules, name, stub)
    theirs, ours = peers.build("simple-gla"), peers.build("lformer-plain-causal")
    ours.load_state_dict(theirs.state_dict())
    batch = peers.random_batch(2, 40)
    with torch.no_grad():
        torch.testing.assert_close(theirs(batch), ours(batch), rtol=1e-4, atol=1e-5)


def test_mamba_is_two_layers_of_the_papers_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, int]] = []

    class Mamba(torch.nn.Identity):
        def __init__(self, **sizes: int) -> None:
            super().__init__()
            asked.append(sizes)

    package = ModuleType("mamba_ssm")
    package.Mamba = Mamba  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mamba_ssm", package)
    assert peers.build("mamba-ssm")(peers.random_batch(2, 8)).shape == (2, peers.CLASSES)
    assert asked == 2 * [{"d_model": 64, "d_state": 16, "d_conv": 4, "expand": 2}]


class FakeEvent:
    """A CUDA event on a clock that the test moves."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = FakeEvent.now

    def elapsed_time(self, other: "FakeEvent") -> float:
        return 1e3 * (other.at - self.at)


@pytest.mark.parametrize(("seconds", "warm", "timed"), [(0.001, 3, 20), (0.05, 3, 6), (0.2, 2, 3), (0.4, 2, 1)])
def test_on_a_gpu_calls_are_timed_by_events_after_a_warm_up(
    monkeypatch: pytest.MonkeyPatch, seconds: float, warm: int, timed: int
) -> None:
    calls: list[float] = []

    def run() -> None:
        calls.append(FakeEvent.now)
        FakeEvent.now += 5.0 if len(calls) == 1 else seconds  # the first compiles

    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 100)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 350)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: FakeEvent.now)
    found = measure(run, "cuda", Budget(20, 0.31))
    assert found.seconds == pytest.approx(seconds)
    assert found.peak_bytes == 250
    assert len(calls) == warm + timed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_memory_is_what_a_call_allocates_and_time_is_the_gpus() -> None:
    run = lambda: torch.empty(2**20, device="cuda").normal_().sort()  # noqa: E731
    found = measure(run, "cuda", Budget(5, 1.0))
    assert 4 * 2**20 <= found.peak_bytes <= 64 * 2**20
    assert 1e-6 < found.seconds < 1.0
    assert attempt(lambda: torch.empty(2**45, device="cuda"), "cuda") == "OOM"
    assert isinstance(attempt(run, "cuda", Budget(5, 1.0)), Measured)
