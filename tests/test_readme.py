"""The README tells the truth: its code runs, its tables come from the committed records, its links lead somewhere."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from lformer.bench import records, tables
from lformer.bench.speed import readme as speed_gpu

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def record(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((ROOT / "results" / name).read_text())
    return found


def test_every_python_block_runs_in_order() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 6
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)


def test_the_demo_table_is_the_committed_record() -> None:
    assert tables.demo(record("demo.json")) in README


def test_the_results_are_the_committed_records() -> None:
    assert tables.summary(records.read_all(ROOT / "results" / "bench")) in README


def test_the_speed_tables_are_the_committed_record() -> None:
    assert tables.speed(record("speed/cpu.json"), batch=8) in README


def test_the_figures_of_a_gpu_are_the_committed_record() -> None:
    found: Any = record("speed/cuda.json")
    replays = [r["seconds"] for r in found["throughput"] if (r["model"], r["mode"]) == ("lformer", "replay")]
    assert "{:.3f} ms in TF32\nand {:.3f} ms in bfloat16".format(*(1e3 * s for s in replays)) in README
    steps, graphs = (
        {(c["model"], c["length"]): c["seconds"] for c in found["lengths"] if c["work"] == work and c["seconds"]}
        for work in ("training step", "replayed step")
    )
    ours = [steps["lformer", 2**n] for n in range(6, 17)]
    assert f"takes {1e3 * steps['lformer', 131_072]:.1f} ms at 131,072 rows" in README
    short, long = graphs["lformer", 64], graphs["lformer", 32_768]
    assert f"needs {1e3 * long:.2f} ms at 32,768 and {1e3 * short:.2f} ms at 64" in README
    assert f"CPU, {1e3 * sum(ours) / len(ours) - 0.5:.0f} to {1e3 * sum(ours) / len(ours) + 0.5:.0f} ms" in README
    for length in (2**n for n in range(6, 16)):
        of = {name: [s for (model, rows), s in times.items() if rows == length and "lformer" not in model]
              for name, times in (("steps", steps), ("graphs", graphs))}  # fmt: skip
        assert graphs["lformer", length] < min(of["graphs"])
        assert (steps["lformer", length] < min(of["steps"])) == (length > 1024)
    answers = {(r["model"], r["precision"]): r["seconds"] for r in found["throughput"] if r["mode"] == "replay"}
    ratios = [answers["lformer-causal", p] / answers["lformer", p] for p in ("tf32", "bf16")]
    ratios += [steps["lformer-causal", 131_072] / steps["lformer", 131_072]]
    assert "{:.2f} times as long to answer in TF32, {:.2f} in bfloat16, and {:.2f} to train".format(*ratios) in README


def test_the_training_curves_are_the_committed_record() -> None:
    found: Any = importlib.util.spec_from_file_location("curves", ROOT / "scripts" / "gpu" / "curves.py")
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    assert script.table(record("curves.json")) in (ROOT / "docs" / "guides" / "gpu.md").read_text()


def test_the_gpu_tables_are_the_committed_record() -> None:
    assert README.count(speed_gpu.BEGIN) == README.count(speed_gpu.END) == 1
    assert speed_gpu.filled(README, record("speed/cuda.json")) == README


def test_the_deaths_in_hospital_are_the_committed_record() -> None:
    found: Any = importlib.util.spec_from_file_location("mortality", ROOT / "scripts" / "mortality.py")
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    for page in (README, (ROOT / "docs" / "mortality.md").read_text()):
        assert script.table(record("mortality.json")) in page


def test_every_link_and_picture_exists() -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in target]
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_layout_table_names_every_room() -> None:
    rooms = {path.name for path in (ROOT / "lformer").iterdir() if not path.name.startswith(("_", "py.typed"))}
    layout = README.split("## Layout")[1].split("## Cite")[0]
    assert [room for room in sorted(rooms) if room not in layout] == []
