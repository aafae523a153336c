"""The three studies of efficiency in one run on a GPU: lengths, throughput, floor. Written down as they go."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from lformer.bench import peers
from lformer.bench.speed import anchors, machine, tables
from lformer.bench.speed.cells import REPLAY, WORKS, Cell, summary
from lformer.bench.speed.files import write
from lformer.bench.speed.floor import distances
from lformer.bench.speed.machine import Rates
from lformer.bench.speed.sweep import SpeedConfig, sweep
from lformer.bench.speed.throughput import Rate, throughput
from lformer.bench.speed.timing import Budget
from lformer.ops.precision import tf32

FUSED = ("lformer", "lformer-causal")
OURS = (*FUSED, "lformer-plain", "lformer-plain-causal")
PEERS = ("gru", "transformer", "mamba", "r-ode", "mamba-ssm", "simple-gla")  # those that can run here
SHORT = Budget(20, 0.3)
SHAPE = {"width": peers.WIDTH, "depth": peers.DEPTH, "heads": peers.HEADS}


def default_models(device: str) -> tuple[str, ...]:
    """LFormer fused and plain, and the peers that are installed."""
    return peers.installed(OURS + PEERS, device)


@dataclass(frozen=True, kw_only=True)
class StudiesConfig:
    """What to measure; `quick` is a first look. In tests the sizes are small and the device is the CPU."""

    device: Literal["cpu", "cuda"] = "cuda"
    models: tuple[str, ...] = ()  # `default_models` if none are named
    lengths: tuple[int, ...] = tuple(2**n for n in range(6, 18))
    batch: int = 8
    limit: float = 2.0  # seconds one call may be expected to take
    million: int = 2**20  # rows of the one very long series
    inference: tuple[int, int] = (16, 4096)  # batch and rows of the study of throughput
    matrix: int = 8192
    copied: int = 2**30  # bytes
    budget: Budget = SHORT
    deadline: float = 150.0  # seconds after which no further cell is begun
    folder: Path = Path("runs/speed")

    @classmethod
    def quick(cls, **given: Any) -> StudiesConfig:
        few: dict[str, Any] = {
            "lengths": (1024, 4096, 16_384, 131_072),
            "budget": Budget(5, 0.05),
            "limit": 1.0,
            "deadline": 25.0,
        }
        return cls(**(few | given))

    def __post_init__(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("there is no CUDA device here; without --device the CPU is measured.")
        if not self.models:
            object.__setattr__(self, "models", default_models(self.device))

    def sweep(self, **given: Any) -> SpeedConfig:
        """The study against length; on a GPU memory is not guessed, it runs out or it does not."""
        same: dict[str, Any] = {
            "lengths": self.lengths, "batches": (self.batch,), "models": self.models, "limit": self.limit,
            "memory": math.inf, "device": self.device, "budget": self.budget,
            "works": (*WORKS, REPLAY) if self.device == "cuda" else WORKS,
        }  # fmt: skip
        return SpeedConfig(**(same | given))


@dataclass
class Record:
    """What is written, after every measurement: a run that is cut short keeps what it has."""

    config: StudiesConfig
    rates: Rates | None = None
    throughput: list[Rate] = field(default_factory=list)
    million: list[Cell] = field(default_factory=list)
    lengths: list[Cell] = field(default_factory=list)
    finished: bool = False
    began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds until nothing new is begun."""
        return self.config.deadline - (time.monotonic() - self.began)

    def as_dict(self) -> dict[str, Any]:
        config = self.config
        anchored: list[Cell | Rate] = (
            [] if "mamba-ssm" in config.models else [*anchors.MAMBA_LENGTHS, *anchors.MAMBA_THROUGHPUT]
        )
        cells = [*self.lengths, *self.million]
        return {
            "machine": machine.described(config.device),
            "setting": SHAPE
            | {
                "features": peers.FEATURES,
                "float32": "Products of float32 in TF32 (torch.set_float32_matmul_precision('high')).",
                "timing": f"Medians of {config.budget.repeats} after a warm-up, between CUDA events; fewer where "
                f"{config.budget.seconds:g} s are over.",
                "peak memory": "Peak memory: what was allocated at most less what was before.",
            },
            "finished": self.finished,
            "seconds": time.monotonic() - self.began,
            "rates": None if self.rates is None else self.rates._asdict(),
            "throughput": [asdict(rate) for rate in self.throughput],
            "million": [asdict(cell) for cell in self.million],
            "lengths": [asdict(cell) for cell in self.lengths],
            "summary": summary(self.lengths) if self.lengths else {},
            "distances": []
            if self.rates is None
            else [asdict(d) for d in distances(cells, self.throughput, self.rates, SHAPE)],
            "anchors": [asdict(anchor) for anchor in anchored],
        }

    def write(self) -> None:
        write(self.as_dict(), self.config.folder / f"{self.config.device}.json")


def run(config: StudiesConfig, progress: Callable[[object], None] = lambda cell: None) -> dict[str, Any]:
    """All three studies; writes `cuda.json` as they go and `cuda.md` at the end, under `config.folder`."""
    record = Record(config)
    try:
        with tf32():
            _measure(record, progress)
        record.finished = True
    finally:
        record.write()
        done = record.as_dict()
        (config.folder / f"{config.device}.md").write_text(tables.page(done))
    return done


def _measure(record: Record, progress: Callable[[object], None]) -> None:
    """Short studies first, then what is fused: the deadline then costs long series of the others only."""
    config = record.config
    record.rates = machine.rates(config.device, config.matrix, config.copied, config.budget)
    for rate in throughput(config.models, *config.inference, config.device, config.budget, record.left() / 2):
        record.throughput.append(rate)
        _note(record, rate, progress)
    ours = tuple(name for name in config.models if name in OURS)
    if ours:
        one = config.sweep(
            lengths=(config.million,), batches=(1,), models=ours, works=("training step",), deadline=record.left()
        )
        for cell in sweep(one):
            record.million.append(cell)
            _note(record, cell, progress)
    fused = tuple(name for name in config.models if name in FUSED)
    for models in (fused, tuple(name for name in config.models if name not in fused)):
        for cell in sweep(config.sweep(models=models, deadline=record.left())) if models else ():
            record.lengths.append(cell)
            _note(record, cell, progress)


def _note(record: Record, cell: object, progress: Callable[[object], None]) -> None:
    record.write()
    progress(cell)
