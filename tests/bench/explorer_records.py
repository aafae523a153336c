"""Made-up records for the explorer: several seeds, one seed, OOT, partial data, simple models, ablations, bad names."""

import random
from pathlib import Path
from typing import Any

from lformer.bench import records
from lformer.bench.records import Cell

SEEDS = range(42, 47)
BAD = '<img src=x onerror="window.boom=1">'
WORSE = "</script><script>window.boom=1</script>"


def run(cell: Cell, metrics: dict[str, float] | None, printed: dict[str, float], **fields: Any) -> dict[str, Any]:
    """A record as `bench run` writes it; without metrics if it failed."""
    rng = random.Random(str(cell))
    history = [
        {"epoch": e, "loss": 1.0 / (e + 1), **{k: v * (1 + rng.random() / (e + 1)) for k, v in (metrics or {}).items()}}
        for e in range(0 if fields.get("at_once") else 12)
    ]
    made = {
        "cell": records.cell_fields(cell), "status": "done" if metrics else "OOT", "metrics": metrics or {},
        "printed": printed, "partial": "", "smoke": cell.epochs is not None, "at_once": False, "data": "0123abcd",
        "parameters": 1000 + rng.randrange(9000), "seconds": 1 + 100 * rng.random(), "epochs": len(history),
        "config": {"model": {"width": 8}, "train": {"lr": 0.001}}, "history": history, "peak_bytes": 3 << 20,
        "versions": {"lformer": "0.1.0", "commit": "abc", "machine": "CPU, x86_64, 1 threads"},
    }  # fmt: skip
    if metrics:
        made |= {"validation": metrics, "best_epoch": 7}
    return made | fields


def spread(mean: float, size: float, seed: int) -> float:
    """The same for the same numbers."""
    return mean * (1 + size * random.Random(f"{mean} {seed}").gauss(0, 1))


def forecasts() -> list[dict[str, Any]]:
    """PhysioNet, two metrics: rivals with five seeds and with one, a failure, simple models, variants."""
    made, printed = [], {"mse": 100.0, "mse_unseen": 100.0}

    def add(mean: float, seeds: Any = SEEDS, size: float = 0.02, **fields: Any) -> None:
        named = {name: fields.pop(name) for name in ("model", "variant", "ablation") if name in fields}
        for seed in seeds:
            cell = Cell(dataset="physionet", task="extrapolate", seed=seed, **named)
            value = spread(mean, size, seed)
            made.append(run(cell, {"mse": value, "mse_unseen": 3.1 * value - 0.003}, printed, **fields))

    add(0.0036)
    add(0.0018, variant="best")
    add(0.0030, model="gru")
    add(0.0026, model="mtand", seeds=[42])
    add(0.0031, model="transformer", seeds=[42, 43])
    add(0.0022, model="last-value", at_once=True, size=0.0, parameters=0)
    add(0.0034, model="linear", at_once=True, seeds=[42], parameters=0)
    add(0.0040, ablation="fixed_mu")
    made.append(run(Cell(dataset="physionet", task="extrapolate", model="node"), None, printed, error="slow " + WORSE))
    return made


def everything() -> list[dict[str, Any]]:
    """All of it, and what is neither whole nor harmless."""
    made, percent = forecasts(), {"accuracy": 100.0}
    for model, mean in (("lformer", 0.86), ("gru", 0.81), ("mtand", 0.79), ("boosting", 0.84)):
        at_once = model == "boosting"
        for seed in SEEDS:
            cell = Cell(dataset="scp1", task="classify", model=model, seed=seed)
            made.append(run(cell, {"accuracy": spread(mean, 0.02, seed)}, percent, at_once=at_once))
    for model, value in (("lformer", 0.0083), ("gru", 0.02)):
        cell = Cell(dataset="ushcn", task="extrapolate", model=model)
        made.append(run(cell, {"mse": value}, {"mse": 100.0}, partial=f"7 of 9 stations {BAD}"))
    for name, value in ((BAD, 2.5), (WORSE, 1.5)):
        cell = Cell(dataset=f"toy {BAD}", task="regress", model=name, variant="we & they", split="a'b")
        made.append(run(cell, {"mae": value}, {"mae": 1.0}))
    made.append(run(Cell(dataset="scp2", task="classify", epochs=2), {"accuracy": 0.9}, percent))
    return made


def written(folder: Path, made: list[dict[str, Any]]) -> Path:
    for record in made:
        records.write(record, folder)
    return folder
