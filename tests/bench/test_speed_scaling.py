"""The study of scaling: what is measured, what its table and sentences say, its figure and its place on the page."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from lformer.batch import median_interval, median_span
from lformer.bench import peers
from lformer.bench.layout import markdown
from lformer.bench.speed import __main__ as door
from lformer.bench.speed import figures, page, scaling
from lformer.bench.speed.scaling import ScalingConfig
from lformer.bench.speed.sweep import SpeedConfig, _measured, built
from lformer.bench.speed.timing import Budget
from lformer.cli import app

TINY: dict[str, Any] = {"models": ("lformer", "ncde"), "lengths": (8, 16), "batch": 2, "budget": Budget(1, 0.0)}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return scaling.run(ScalingConfig(**TINY, folder=tmp_path_factory.mktemp("speed")))


def line(model: str, seconds: list[float], note: str, mib: int = 1) -> list[dict[str, Any]]:
    """Lengths 64, 128, ..., 4096; memory quadratic in length."""
    lengths = [2**n for n in range(6, 13)]
    both = {"model": model, "work": "training step", "batch": 8}
    done = [
        both | {"length": n, "seconds": s, "peak_bytes": mib * n**2, "note": ""}
        for n, s in zip(lengths, seconds, strict=False)
    ]
    rest = [both | {"length": n, "seconds": None, "peak_bytes": None, "note": note} for n in lengths[len(done) :]]
    return [*rest, *done]


@pytest.fixture
def made(record: dict[str, Any]) -> dict[str, Any]:
    """Linear, linear up to 512 rows, flat and then quadratic, and one that fails from the start."""
    cells = [
        *line("lformer", [1e-5 * 2**n for n in range(6, 13)], ""),
        *line("ncde", [1e-3 * 2**n for n in range(6, 10)], "OOT"),
        *line("contiformer", [0.1, 0.1, 0.1, 0.2, 0.8, 3.2], "OOM", mib=4),
        *line("r-ode", [], "failed: ImportError: no"),
    ]
    return record | {"cells": cells, "models": ["lformer", "ncde", "contiformer", "r-ode"]}


def test_every_model_is_measured_at_every_length(record: dict[str, Any], tmp_path: Path) -> None:
    cells = {(c["model"], c["length"]): c for c in record["cells"]}
    assert set(cells) == {(model, length) for model in TINY["models"] for length in TINY["lengths"]}
    assert all(c["seconds"] > 0 and c["peak_bytes"] > 0 and not c["note"] for c in cells.values())
    late = scaling.run(ScalingConfig(**TINY, deadline=-1.0, folder=tmp_path))
    assert {c["note"] for c in late["cells"]} == {"not reached"}
    assert json.loads((tmp_path / "scaling-cpu.json").read_text()) == late
    assert scaling.statement(late) == "Longest training step: lformer, ncde none (not reached)."


def test_the_table_has_exponents_of_the_longest_series_and_what_ended_each_line(made: dict[str, Any]) -> None:
    assert scaling.table(made) == [
        ["model", "step, 512 rows", "longest series", "step there", "time", "peak memory there", "memory", "beyond"],
        ["lformer", "5.12 ms", "4,096 rows", "40.96 ms", "∝ L^1.00", "16 MiB", "∝ L^2.00", ""],
        ["ncde", "512 ms (100×)", "512 rows", "512 ms", "∝ L^1.00", "0 MiB", "∝ L^2.00", "OOT"],
        ["contiformer", "200 ms (39.1×)", "2,048 rows", "3200 ms", "∝ L^1.70", "16 MiB", "∝ L^2.00", "OOM"],
        ["r-ode", "", "", "", "", "", "", "failed"],
    ]


def test_the_sentences_are_those_of_the_record(made: dict[str, Any]) -> None:
    assert scaling.statement(made) == (
        "Longest training step: lformer 4,096 rows; contiformer 2,048 rows (then OOM); ncde 512 rows (then OOT); r-ode "
        "none (failed). Time grows with the power of length: lformer 1.00, ncde 1.00, contiformer 1.70. At 512 rows, "
        "in steps of lformer: ncde 100×, contiformer 39.1×."
    )
    assert "expected to take more than 10 s; OOM: more than 12 GiB" in scaling.words(made)


def test_the_page_shows_figure_and_table_where_there_is_a_record(made: dict[str, Any], tmp_path: Path) -> None:
    assert page.scaling_part(page.records_of(tmp_path, "scaling")) == ""
    (tmp_path / page.RECORDS).mkdir(parents=True)
    (tmp_path / page.RECORDS / "scaling-cuda.json").write_text(json.dumps(made))
    shown = page.scaling_part(page.records_of(tmp_path, "scaling"))
    assert scaling.statement(made) in shown
    assert markdown(scaling.table(made)) in shown
    assert f"({page.SCALING_PICTURES['cuda']}#plot)" in shown


def test_the_figure_marks_lines_that_end_early(made: dict[str, Any], tmp_path: Path) -> None:
    figures.draw_scaling(tmp_path / "scaling.png", made)
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    figures.draw_scaling(tmp_path / "empty.png", made | {"cells": []})  # a run that was cut short at once
    assert figures.spread([0.99, 0.98, 0.1], 0.1) == pytest.approx([1.0, 0.9, 0.1])


def test_a_gpu_has_longer_series_and_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = ScalingConfig.on("cuda", deadline=9.0)
    assert (config.lengths[0], config.lengths[-1], config.deadline) == (64, 131_072, 9.0)
    assert config.sweep().memory == float("inf")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="there is no CUDA device here"):
        ScalingConfig.on("cuda")


def test_both_commands_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scaling, "MODELS", ("lformer", "gru"))
    command = ["speed", "--models", "scaling", "--quick", "--lengths", "16,8", "--batches", "2", "--limit", "5"]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "scaling-cpu.json").read_text())
    assert (written["setting"]["limit"], written["setting"]["batch"]) == (5.0, 2)
    assert sorted((c["model"], c["length"]) for c in written["cells"]) == [
        ("gru", 8), ("gru", 16), ("lformer", 8), ("lformer", 16)
    ]  # fmt: skip
    assert (tmp_path / "scaling-cpu.png").read_bytes().startswith(b"\x89PNG")
    door.main(["--models", "scaling", "--quick", "--deadline", "-1", "--out", str(tmp_path / "door")])
    assert "| gru | " in capsys.readouterr().out
    assert (tmp_path / "door" / "scaling-cpu.json").exists()


def test_a_model_knows_the_clock_of_the_series_it_is_timed_on() -> None:
    """A solver walks as many steps as the series has typical spans: with another clock it would be timed on others."""
    models = {name: built(name, "cpu") for name in ("r-ode", "lformer")}
    for length in (8, 64):
        data = peers.random_batch(2, length)
        for model in models.values():
            assert isinstance(model, nn.Module)  # and not why there is none
            found = _measured(model, data, "training step", SpeedConfig(models=("gru",), budget=Budget(1, 0.0)))
            assert not isinstance(found, str)
            assert float(model.rows.span) == pytest.approx(median_span([data]))
            assert float(model.rows.interval) == pytest.approx(median_interval([data]))
