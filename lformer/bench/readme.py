"""The README's two tables, from the records: `python -m lformer.bench.readme`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lformer.bench import records, tables
from lformer.bench.layout import markdown
from lformer.bench.marks import fill
from lformer.bench.records import Record

# Rows of `tables.summary` that the README has room for: subject and how the metric begins.
HEADLINES = [
    ("scp1, classify", "accuracy"),
    ("scp1, classify, scaling standard", "accuracy"),
    ("motor-imagery, classify", "accuracy"),
    ("bidmc-hr, regress", "RMSE"),
    ("activity, classify-points", "accuracy"),
    ("pendulum, regress-points", "MSE"),
    ("spiral-0.02, trajectory", "RMSE, extrapolation"),
    ("physionet, extrapolate", "MSE, all points"),
    ("physionet, extrapolate", "MSE, unseen points"),
    ("ushcn, extrapolate", "MSE, unseen points"),
    ("physionet, classify, split p12, scaling robust", "AUROC"),
    ("physionet, classify, split p12, scaling robust", "AUPRC"),
]
MODELS = ("lformer", "gru", "transformer", "mamba", "mamba ‡")


def results(found: Iterable[Record]) -> str:
    """The headline rows of the summary, as far as there are records."""
    header, ruler, *body = tables.summary(found).splitlines()
    starts = [f"| {subject} | {metric}" for subject, metric in HEADLINES]
    return "\n".join([header, ruler, *(line for start in starts for line in body if line.startswith(start))])


def speed(cpu: dict[str, Any], cuda: dict[str, Any]) -> str:
    """Milliseconds of LFormer, and how many times as long its peers take."""
    rows = [["", *MODELS]]
    on_cpu, on_gpu = cpu["cells"], cuda["lengths"] + cuda["anchors"]
    for device, cells, work, length in (
        ("two CPU cores", on_cpu, "training step", 1024),
        ("two CPU cores", on_cpu, "training step", 8192),
        ("H200", on_gpu, "training step", 1024),
        ("H200", on_gpu, "training step", 16_384),
        ("H200", on_gpu, "replayed step", 1024),
        ("H200", on_gpu, "replayed step", 16_384),
    ):
        own = {c["model"]: c for c in cells if (c.get("work"), c["batch"], c["length"]) == (work, 8, length)}
        rows.append([f"{device}: {work}, 8 × {length:,} rows", *_times(own)])
    for precision, words in (("tf32", "TF32"), ("bf16", "bfloat16")):
        rates = cuda["throughput"] + cuda["anchors"]
        own = {r["model"]: r for r in rates if (r.get("precision"), r.get("mode")) == (precision, "replay")}
        rows.append([f"H200: inference by graph, {words}, 16 × 4,096 rows", *_times(own)])
    return markdown(rows)


def _times(own: dict[str, Any]) -> list[str]:
    base = own["lformer"]["seconds"]
    shown = [f"{1e3 * base:.3g} ms"]
    for model in MODELS[1:]:
        seconds = own[model]["seconds"] if model in own else None
        shown.append(
            "–" if model not in own else own[model]["note"].split(":")[0] if seconds is None else _ratio(seconds / base)
        )
    return shown


def _ratio(times: float) -> str:
    return f"{times:.1f}×" if times < 100 else f"{times:.0f}×"


def filled(text: str, root: Path = Path()) -> str:
    """A README with the tables of the records under `root`."""
    cpu, cuda = (json.loads((root / "results" / "speed" / f"{name}.json").read_text()) for name in ("cpu", "cuda"))
    text = fill(text, "results", results(records.read_all(root / "results" / "bench")))
    return fill(text, "speed", speed(cpu, cuda))


def main(root: Path = Path()) -> None:
    """Fill README.md under `root`."""
    page = root / "README.md"
    page.write_text(filled(page.read_text(), root))


if __name__ == "__main__":
    main()
