"""README, CONTRIBUTING and the pages with figures tell the truth: code runs, tables are the records, links lead on."""

import importlib.util
import json
import re
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from lformer.bench import readme, records, tables
from lformer.bench.speed import page as speed_page

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
SPEED = (ROOT / "docs" / "speed.md").read_text()


def record(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text())


def script(path: str) -> Any:
    """A script as a module."""
    found: Any = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "scripts" / path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_every_python_block_runs_in_order() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 2
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)


def test_the_tables_of_the_readme_are_the_committed_records() -> None:
    assert readme.filled(README, ROOT) == README


def test_the_demo_table_is_the_committed_record() -> None:
    assert tables.demo(record("demo.json")) in (ROOT / "docs" / "tensors.md").read_text()


def test_every_headline_has_a_record() -> None:
    rows = readme.results(records.read_all(ROOT / "results" / "bench")).splitlines()[2:]
    assert [name for name, _ in readme.HEADLINES] == [row.split("|")[1].strip() for row in rows]


def test_what_the_readme_says_of_simple_models_is_in_the_records() -> None:
    lines = {(line.subject(with_task=True), line.measure.metric): line.entries
             for table in tables.main_tables(records.read_all(ROOT / "results" / "bench"))
             for line in table.lines}  # fmt: skip

    def mean(subject: str, metric: str, column: str) -> float:
        ours = lines[subject, metric][column].ours
        assert ours is not None
        return ours.mean

    assert mean("physionet, classify", "auroc", "boosting") > mean("physionet, classify", "auroc", "lformer")
    for split in ("folds", "p12"):  # with trees
        mortality = f"physionet, classify, split {split}, scaling robust"
        assert mean(mortality, "auroc", "boosting") < mean(mortality, "auroc", "lformer best")
    for subject, metric, simple in (
        ("scp1, classify", "accuracy", "minirocket"),
        ("activity, classify-points", "accuracy", "boosting"),
        ("spiral-2, trajectory", "interpolation_rmse", "cubic-spline"),
    ):
        ours, theirs = (mean(subject, metric, column) for column in ("lformer", simple))
        assert theirs > ours if metric == "accuracy" else theirs < ours
    forecast = [mean("physionet, extrapolate", "mse_unseen", c) for c in ("lformer best", "linear", "lformer")]
    assert forecast == sorted(forecast)


def test_the_speed_tables_are_the_committed_records() -> None:
    models, scales = (speed_page.records_of(ROOT, study) for study in ("models", "scaling"))
    assert speed_page.filled(SPEED, record("speed/cpu.json"), record("speed/cuda.json"), models, scales) == SPEED


def test_the_figures_of_a_gpu_are_the_committed_record() -> None:
    found = record("speed/cuda.json")
    replays = [r["seconds"] for r in found["throughput"] if (r["model"], r["mode"]) == ("lformer", "replay")]
    assert "{:.3f} ms in TF32\nand {:.3f} ms in bfloat16".format(*(1e3 * s for s in replays)) in SPEED
    steps, graphs = (
        {(c["model"], c["length"]): c["seconds"] for c in found["lengths"] if c["work"] == work and c["seconds"]}
        for work in ("training step", "replayed step")
    )
    ours = [steps["lformer", 2**n] for n in range(6, 17)]
    assert f"takes {1e3 * steps['lformer', 131_072]:.1f} ms at 131,072 rows" in SPEED
    short, long = graphs["lformer", 64], graphs["lformer", 32_768]
    assert f"needs {1e3 * long:.2f} ms at 32,768 and {1e3 * short:.2f} ms at 64" in SPEED
    assert f"CPU, {1e3 * sum(ours) / len(ours) - 0.5:.0f} to {1e3 * sum(ours) / len(ours) + 0.5:.0f} ms" in SPEED
    for length in (2**n for n in range(6, 15)):  # the peers were measured up to 16,384 rows
        of = {name: [s for (model, rows), s in times.items() if rows == length and "lformer" not in model]
              for name, times in (("steps", steps), ("graphs", graphs))}  # fmt: skip
        assert graphs["lformer", length] < min(of["graphs"])
        assert (steps["lformer", length] < min(of["steps"])) == (length > 512)
    answers = {(r["model"], r["precision"]): r["seconds"] for r in found["throughput"] if r["mode"] == "replay"}
    ratios = [answers["lformer-causal", p] / answers["lformer", p] for p in ("tf32", "bf16")]
    ratios += [steps["lformer-causal", 131_072] / steps["lformer", 131_072]]
    assert "{:.2f} times as long to answer in TF32, {:.2f} in bfloat16, and {:.2f} to train".format(*ratios) in SPEED


def test_the_training_curves_are_the_committed_record() -> None:
    curves = script("gpu/curves.py").table(record("curves.json"))
    assert curves in (ROOT / "docs" / "guides" / "gpu.md").read_text()


def test_the_forecasts_beside_simple_rules_are_the_committed_record() -> None:
    text = (ROOT / "docs" / "guides" / "forecast.md").read_text()
    shown = text.split("<!-- forecasts -->")[1].split("<!-- /forecasts -->")[0]
    assert shown.strip() == script("forecasts.py").table(record("forecasts.json"))


def test_the_stores_beside_simple_rules_are_the_committed_record() -> None:
    text, stores = (ROOT / "docs" / "guides" / "forecast.md").read_text(), record("stores.json")
    shown = text.split("<!-- stores -->")[1].split("<!-- /stores -->")[0]
    assert shown.strip() == script("stores.py").table(stores)
    for errors in stores["errors"].values():
        best = min(sum(found) for name, found in errors.items() if "weekday" in name)
        assert sum(errors["defaults"]) < 1.02 * best


def test_the_coverage_of_intervals_is_the_committed_record() -> None:
    text, rows = (ROOT / "docs" / "guides" / "uncertainty.md").read_text(), record("coverage.json")
    shown = text.split("<!-- coverage -->")[1].split("<!-- /coverage -->")[0]
    assert shown.strip() == script("coverage.py").table(rows)
    assert len(rows) == 6
    for row in rows:
        exact = row.get("one window each") or {c: mean for c, (mean, _) in row["divisions"].items()}
        for c in ("0.8", "0.9", "0.95"):
            assert abs(exact[c] - float(c)) < 0.01  # within one point
            assert float(c) - 0.002 < row["coverage"][c] < float(c) + 0.02


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_and_picture_exists(name: str) -> None:
    found = re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text())
    assert [target for target in found if "://" not in target and not (ROOT / target).exists()] == []


def test_the_layout_table_names_every_room() -> None:
    rooms = {path.name for path in (ROOT / "lformer").iterdir() if not path.name.startswith(("_", "py.typed"))}
    layout = CONTRIBUTING.split("## Layout")[1].split("## The path")[0]
    assert [room for room in sorted(rooms) if room not in layout] == []


def test_the_drawn_path_names_files_that_exist() -> None:
    path = CONTRIBUTING.split("```text")[1].split("```")[0]
    files = [name for name in re.findall(r"[\w/]+\.(?:py|md)", path) if not name.startswith("results")]
    assert [name for name in files if not ((ROOT / "lformer" / name).exists() or (ROOT / name).exists())] == []


@pytest.mark.parametrize(
    ("records", "unit"), [("mortality", "fold"), ("mortality-pretrained-c", "fold"), ("mortality-p12", "split")]
)
def test_mortality_with_covariates_is_that_of_its_records(records: str, unit: str) -> None:
    lines = (ROOT / "results" / f"{records}.jsonl").read_text().splitlines()
    folds = [json.loads(line) for line in lines]
    assert [fold["fold"] for fold in folds] == [42, 43, 44, 45, 46]
    assert {fold["members"] for fold in folds} == {3}
    cells: list[list[str]] = [[], [], []]
    for name in ("auroc", "auprc"):
        ours, theirs = [fold[name] for fold in folds], [fold["boosting"][name] for fold in folds]
        ahead = [a - b for a, b in zip(ours, theirs, strict=True)]
        cells[0].append(f"{fmean(ours):.2f}")
        cells[1].append(f"{fmean(theirs):.2f}")
        cells[2].append(f"{fmean(ahead):+.2f} ±{stdev(ahead) / 5**0.5:.2f}".replace("-", "−"))
    names = ("lformer, three models", "boosting", f"lformer − boosting, {unit} by {unit}")
    page = (ROOT / "docs" / "defaults.md").read_text()
    for name, row in zip(names, cells, strict=True):
        assert f"| {name} | {row[0]} | {row[1]} |" in page
