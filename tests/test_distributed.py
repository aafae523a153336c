"""Two processes that share every batch take the steps of one process that has the whole of it.

This file is also the script that `torchrun` starts: each process trains, and writes what it has seen and got.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lformer import IrregularBatch, tasks
from lformer.draws import Draws
from lformer.nn import LFormer, LFormerConfig
from lformer.panel import Panel
from lformer.parts import PanelPart, Spec, Splits, Targets
from lformer.train import Result, TimeLimitError, TrainConfig, fit, seeded
from lformer.train.distributed import World, join
from lformer.train.loop import _seed

SERIES, TRAIN, BATCH = 33, 21, 4  # a batch of one series is left over in every epoch, too short for two
TASK = tasks.regress_points(1)


def ragged() -> Splits[PanelPart]:
    """2 to 30 rows, uneven times, missing values, targets of which very different numbers count."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 31, SERIES)
    times = [np.cumsum(rng.exponential(1.0, n)) for n in lengths]
    values = [np.where(rng.random((n, 2)) < 0.3, np.nan, rng.standard_normal((n, 2))) for n in lengths]
    panel = Panel.from_list(list(zip(times, values, strict=True)))
    rows = int(lengths.sum())
    counts = rng.random((rows, 1)) < np.repeat(rng.random(SERIES), lengths)[:, None]
    targets = Targets(values=rng.standard_normal((rows, 1)).astype(np.float32), at="rows", observed=counts)
    members = np.split(np.arange(SERIES), [TRAIN, 27])
    train, validation, test = (PanelPart(panel[part], targets, part, seed=5) for part in members)
    return Splits("ragged", train, validation, test, Spec(inputs=2, outputs=1, answer="step"))


class Watched(LFormer):
    """Notes which series it is trained on, and has a weight that no batch reaches."""

    def __init__(self, config: LFormerConfig) -> None:
        super().__init__(config)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.seen: list[list[int]] = []

    def forward(self, batch: IrregularBatch, *rest: Any, **more: Any) -> Tensor:
        if self.training and batch.index is not None:
            self.seen.append(batch.index.tolist())
        return super().forward(batch, *rest, **more)


def train(folder: Path | None = None, start: int = 2, **changes: Any) -> tuple[Watched, Result]:
    with seeded(start):
        model = Watched(LFormerConfig(inputs=2, outputs=1, answer="step", width=16, heads=2, depth=1))
    options = {
        "epochs": 3, "batch_size": BATCH, "lr": 1e-2, "weight_decay": 0.1, "clip": 0.5, "schedule": "cosine",
        "mu_penalty": 0.3,
    }  # fmt: skip
    config = TrainConfig(**options | {"device": "cpu", "precision": "float64"} | changes)
    return model, fit(model, TASK, ragged(), config, folder=folder, progress=False)


def refused(call: Callable[[], object]) -> str:
    try:
        call()
    except (ValueError, TimeLimitError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(out: Path) -> None:
    """What each of the processes does."""
    rank = join("cpu").rank
    # Other weights to begin with than those of the first, which are the ones that count.
    model, result = train(start=2 + rank)
    kept, _ = train(folder=out / "run")
    again, resumed = train(folder=out / "run")
    said = {
        "seen": model.seen,
        "result": asdict(result),
        "kept": same(kept, model) and same(again, model),
        "trained again": len(again.seen),
        "resumed": asdict(resumed),
        "another": refused(lambda: train(folder=out / "run", lr=0.5)),
        "late": refused(lambda: train(time_limit=0.0 if rank == 1 else 1e9)),
    }
    torch.save(model.state_dict(), out / f"weights{rank}.pt")
    (out / f"said{rank}.json").write_text(json.dumps(said))


def same(one: Watched, other: Watched) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """What two processes wrote; `--standalone` finds a free port by itself."""
    out = tmp_path_factory.mktemp("together")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launch, __file__, str(out)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, [json.loads((out / f"said{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone() -> tuple[Watched, Result]:
    return train()


@pytest.mark.slow
def test_every_series_is_in_one_process_once_an_epoch(
    together: tuple[Path, list[dict[str, Any]]], alone: tuple[Watched, Result]
) -> None:
    one, two = (said["seen"] for said in together[1])
    assert len(one) == len(two) == len(alone[0].seen) == 3 * 6
    short = 0
    for mine, yours, whole in zip(one, two, alone[0].seen, strict=True):
        if len(whole) == 1:  # the other takes the same one, and lets it weigh nothing
            assert mine == yours == whole
            short += 1
        else:
            assert not set(mine) & set(yours)
            assert sorted(mine + yours) == sorted(whole)
    assert short == 3


@pytest.mark.slow
def test_the_weights_are_those_of_one_process(
    together: tuple[Path, list[dict[str, Any]]], alone: tuple[Watched, Result]
) -> None:
    expected = alone[0].state_dict()
    for rank in (0, 1):
        weights = torch.load(together[0] / f"weights{rank}.pt", weights_only=True)
        for name, weight in expected.items():
            assert torch.allclose(weights[name], weight, rtol=0, atol=1e-9), name


@pytest.mark.slow
def test_both_processes_get_the_result_of_one(
    together: tuple[Path, list[dict[str, Any]]], alone: tuple[Watched, Result]
) -> None:
    one, two = (said["result"] for said in together[1])
    assert one == two
    assert one["metrics"] == pytest.approx(alone[1].metrics, rel=1e-6)
    assert one["validation"] == pytest.approx(alone[1].validation, rel=1e-6)
    assert one["best_epoch"] == alone[1].best_epoch
    for row, expected in zip(one["history"], alone[1].history, strict=True):
        assert row == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_a_folder_changes_nothing_and_is_read_by_all(together: tuple[Path, list[dict[str, Any]]]) -> None:
    for said in together[1]:
        assert said["kept"]
        assert said["trained again"] == 0
        assert said["resumed"]["history"] == said["result"]["history"]
        assert said["another"].startswith("ValueError")
        assert "belongs to another run" in said["another"]
    assert sorted(path.name for path in (together[0] / "run").iterdir()) == ["last.ckpt", "previous.ckpt"]


@pytest.mark.slow
def test_what_stops_one_stops_all(together: tuple[Path, list[dict[str, Any]]]) -> None:
    assert {said["late"].split(",")[0].split(" after")[0] for said in together[1]} == {"TimeLimitError: stopped"}


def test_processes_draw_different_numbers() -> None:
    def drawn(rank: int, size: int) -> float:
        cpu = torch.device("cpu")
        draws = Draws(cpu)
        _seed(draws, LFormer(LFormerConfig(inputs=1, outputs=1, width=4)), (1, 2, 3), World(cpu, rank, size))
        return float(torch.rand((), generator=draws.on(cpu)))

    assert len({drawn(0, 1), drawn(0, 2), drawn(1, 2)}) == 3
    assert drawn(1, 2) == drawn(1, 2)


def test_a_process_alone_exchanges_nothing() -> None:
    world = join("cpu")
    assert (world.rank, world.size) == (0, 1)
    assert world.anywhere(True)
    assert not world.anywhere(False)
    assert world.agreed("as it is") == world.by_first(lambda: "as it is") == "as it is"
    assert float(world.total(torch.tensor(3.0))) == 3.0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
