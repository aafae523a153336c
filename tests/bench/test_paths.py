"""The list of paths on a GPU: of all recipes and estimators, as they build their models."""

import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest
import torch
from estimators.every_estimator import SIX, fitted
from rich.console import Console
from typer.testing import CliRunner

from lformer.bench.paths import ANSWERS, all_paths, estimator_config
from lformer.cli import app, bench
from lformer.nn.fusion import expected

DECIDING = ("answer", "rows", "embedder", "pooling", "width", "heads", "dropout", "causal", "gate_norm", "backend")


def test_every_recipe_and_every_estimator_has_a_path() -> None:
    found = {paths.name: paths for paths in all_paths()}
    assert len(found) == 16 + 6
    assert all(path.reason for p in found.values() for path in p[1:] if path.name != "fused model")
    assert found["physionet"].training.name == "fused mixers"
    assert found["LFormerClassifier"].training.name == "fused mixers"  # which drops
    assert "only read" in found["spiral-2"].training.reason
    assert "width 128" in found["scp1"].training.reason


@pytest.mark.parametrize("kind", SIX, ids=lambda kind: kind.__name__)
def test_estimators_are_asked_about_as_they_build_their_models(kind: Any) -> None:
    model = fitted(kind, width=kind().width, heads=kind().heads, dropout=kind().dropout).model_
    ours, theirs = asdict(estimator_config(kind.__name__)), asdict(model.config)
    assert {name: ours[name] for name in DECIDING} == {name: theirs[name] for name in DECIDING}
    assert expected(model.config).name == expected(estimator_config(kind.__name__)).name


def test_the_list_prints_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "console", Console(width=250))  # one that wraps no cell, whatever the terminal
    result = CliRunner().invoke(app, ["bench", "list", "--device", "cuda"])
    assert result.exit_code == 0, result.output
    for name in ("physionet", "spiral-0.02", *ANSWERS, "some rows only read", "fused mixers"):
        assert name in result.output
    refused = CliRunner().invoke(app, ["bench", "list", "--device", "cpu"])
    assert refused.exit_code != 0
    assert "--device must be cuda" in refused.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what a machine without a GPU says")
def test_warm_needs_a_gpu() -> None:
    result = CliRunner().invoke(app, ["warm"])
    assert result.exit_code == 2
    assert "torch sees none here" in " ".join(result.output.split())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_warm_compiles_what_has_kernels() -> None:
    result = CliRunner().invoke(app, ["warm", "--width", "32", "--heads", "2", "--rows", "40", "--batch", "2"])
    assert result.exit_code == 0, result.output
    assert result.output.count("width 32, 2 heads") == 4
    nothing = CliRunner().invoke(app, ["warm", "--width", "40", "--heads", "4"])
    assert "nothing to compile" in nothing.output


def test_the_command_line_loads_what_it_needs_alone() -> None:
    heavy = {"sklearn", "pandas", "triton", "matplotlib", "scipy", "pyarrow"}
    code = f"import sys, lformer.cli; print(sorted(sys.modules.keys() & {heavy}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
