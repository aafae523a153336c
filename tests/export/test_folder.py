"""The exported folder stands alone: its examples run where neither lformer nor, for ONNX, torch can be imported."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from export.conftest import SCALE, SMALL, X, fitted
from typer.testing import CliRunner

from lformer import LFormerClassifier, LFormerRegressor, Panel
from lformer.cli import app
from lformer.estimators import LFormerPretrainer
from lformer.export.ask import AskGraph
from lformer.export.example import initial
from lformer.export.graphs import BatchGraph
from lformer.export.program import traced
from lformer.export.step import StepGraph


@pytest.fixture(autouse=True, scope="module")
def traced_once() -> Iterator[None]:
    """A model that is exported twice is traced once."""
    programs: dict[Any, Any] = {}

    def once(graph: Any, inputs: Any) -> Any:
        if graph not in programs:
            programs[graph] = traced(graph, inputs)
        return programs[graph]

    with pytest.MonkeyPatch.context() as patched:
        for kind in (BatchGraph, StepGraph, AskGraph):
            patched.setattr(f"lformer.export.{kind.__name__}", cache(kind))
        patched.setattr("lformer.export.traced", once)
        yield


def run_alone(folder: Path, tmp_path: Path, without: tuple[str, ...]) -> dict[str, Any]:
    """What run.py prints in a process that cannot import some packages, from another folder."""
    shut = tmp_path / "shut"
    shut.mkdir()
    for name in without:
        (shut / f"{name}.py").write_text(f"raise ImportError('{name} is not here')\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", folder / "run.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(shut)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def agree(found: dict[str, Any], folder: Path) -> None:
    told = json.loads((folder / "example.json").read_text())
    assert found.keys() - {"classes"} == told.keys() - {"inputs", "sha256"}
    for name in told.keys() - {"inputs", "sha256"}:
        one, other = (np.array(x, float) for x in (found[name], told[name]))  # null becomes NaN
        assert (np.isnan(one) == np.isnan(other)).all()
        if "query_times" in told["inputs"]:
            one, other = one / SCALE, other / SCALE  # in deviations of the channels
        assert np.nanmax(np.abs(one - other)) < 1e-5, name


def test_the_example_runs_without_torch(exported: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="runs with the extra `export`")
    folder = exported("stream")
    found = run_alone(folder, tmp_path, without=("torch", "lformer", "pandas", "sklearn"))
    assert len(found["step_answers"]) == 12
    agree(found, folder)


def test_the_example_of_a_model_that_is_asked_runs_without_torch(exported: Callable[..., Path], tmp_path: Path) -> None:
    """Row by row it says at the query times what it says of the whole series, with intervals."""
    pytest.importorskip("onnxruntime", reason="runs with the extra `export`")
    folder = exported("calibrated forecaster")
    found = run_alone(folder, tmp_path, without=("torch", "lformer", "pandas", "sklearn"))
    agree(found, folder)
    for name in ("answers", "deviations", "low", "high"):
        assert (np.abs(np.array(found[f"ask_{name}"]) - found[name][0]) / SCALE).max() < 1e-5
    about = json.loads((folder / "export.json").read_text())
    assert about["calibration"]["series"] == len(X)
    assert [port["name"] for port in about["graphs"]["ask"]["outputs"]] == ["answers", "deviations", "low", "high"]
    assert {port["name"] for port in about["graphs"]["ask"]["state"]} <= {
        port["name"] for port in about["graphs"]["step"]["state"]
    }
    assert "between `low` and `high` with probability at least `coverage`" in (folder / "README.md").read_text()


@pytest.mark.parametrize("name", ["stream", "points", "calibrated forecaster"])
def test_the_archive_of_torch_runs_without_lformer(name: str, exported: Callable[..., Path], tmp_path: Path) -> None:
    folder = exported(name, "pt2")
    agree(run_alone(folder, tmp_path, without=("lformer", "pandas", "sklearn", "onnxruntime")), folder)


def test_the_example_in_javascript_is_right(exported: Callable[..., Path], tmp_path: Path) -> None:
    """Its syntax where there is node; its answers where there is onnxruntime-node, too, named by NODE_PATH."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    folder = shutil.copytree(exported("stream"), tmp_path / "model")
    checked = subprocess.run([node, "--check", folder / "run.mjs"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    packages = Path(os.environ.get("NODE_PATH", ""))
    if not (packages / "onnxruntime-node").exists():
        return
    (tmp_path / "node_modules").symlink_to(packages)  # modules are not looked for in NODE_PATH
    done = subprocess.run([node, folder / "run.mjs"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    agree(json.loads(done.stdout), folder)


def test_the_description_says_what_a_caller_must_know(exported: Callable[..., Path]) -> None:
    folder, model = exported("stream", "pt2"), fitted("stream")
    about = json.loads((folder / "export.json").read_text())
    assert about["estimator"] == "LFormerClassifier"
    assert about["channels"] == list(model.features_.channels)
    assert about["classes"] == [0, 1]
    for graph in about["graphs"].values():
        assert graph["sha256"] == hashlib.sha256((folder / graph["file"]).read_bytes()).hexdigest()
    state = initial(StepGraph(model), 2)
    for port in about["graphs"]["step"]["state"]:
        assert state[port["name"]].shape == tuple(2 if axis == "batch" else axis for axis in port["axes"])
        assert (state[port["name"]] == np.array(port["initial"])).all()
    assert all(f"`{port['name']}`" in (folder / "README.md").read_text() for port in about["graphs"]["step"]["state"])


def test_dates_and_covariates_are_coded_as_the_description_says(tmp_path: Path) -> None:
    """Marks and covariates are inputs, made here from export.json alone."""
    rng = np.random.default_rng(0)
    tables = [
        pd.DataFrame({"id": n, "time": pd.Timestamp("2024-03-29") + pd.to_timedelta(np.sort(72 * rng.random(k)), "h"),
                      "a": rng.normal(size=k)}) for n, k in enumerate(rng.integers(4, 9, 24))
    ]  # fmt: skip
    static = pd.DataFrame({"age": rng.normal(60, 9, 24), "site": rng.choice(["x", "y"], 24)}, index=range(24))
    static.loc[0, "age"] = np.nan
    panel = Panel.from_long(pd.concat(tables), id="id", time="time", value=["a"], static=static, unit="h")
    model = LFormerRegressor(calendar=("hour",), neighbours=0, members=1, **SMALL).fit(panel, rng.normal(size=24))
    about = json.loads((model.export(tmp_path / "model", "pt2") / "export.json").read_text())
    assert (about["unit"], about["dates"], about["calendar"]["harmonics"]) == ("h", True, {"hour": 3})
    age, site = about["covariates"]["age"], about["covariates"]["site"]["categories"]
    graph = BatchGraph(model).eval()
    for n in (0, 5):
        hours = (tables[n]["time"] - pd.Timestamp("1970-01-01")) / pd.Timedelta("1h")
        angles = 2 * np.pi * (hours.to_numpy() % 24 / 24)[:, None] * np.arange(1, 4)
        known = [0.0, 0.0] if n == 0 else [(static.age[n] - age["mean"]) / age["deviation"], 1.0]
        given = {
            "values": tables[n][["a"]].to_numpy()[None], "times": hours.to_numpy()[None],
            "lengths": np.array([len(hours)]),
            "static": np.array([[*known, *(float(static.site[n] == one) for one in site)]], np.float32),
            "marks": np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)[None],
        }  # fmt: skip
        assert [port["name"] for port in about["graphs"]["batch"]["inputs"]] == list(given)
        with torch.no_grad():
            found = graph(*map(torch.tensor, given.values()))[0].numpy()[0]
        assert np.abs(found - model.predict(panel[n : n + 1])).max() < 1e-5


def test_an_export_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    model = fitted("points")
    folder = model.export(tmp_path / "deep" / "model", "pt2")
    (folder / "run.py").write_text("changed")
    assert "changed" not in (model.export(folder, "pt2") / "run.py").read_text()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"contains files that do not belong to an export \(notes.txt\)"):
        model.export(folder, "pt2")
    assert (folder / "notes.txt").read_text() == "mine"
    assert [entry.name for entry in folder.parent.iterdir()] == ["model"]  # nothing half-written is left


def test_what_cannot_be_exported_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="LFormerPretrainer that was trained to pretrain cannot be exported"):
        LFormerPretrainer(**SMALL).fit(X).export(tmp_path / "model")
    with pytest.raises(ValueError, match="to must be one of onnx, pt2; got 'tflite'"):
        fitted("points").export(tmp_path / "model", "tflite")
    model = LFormerClassifier(members=1, **SMALL).fit(X, np.arange(len(X)) % 2)
    model.classes_ = np.arange(3)
    with pytest.raises(ValueError, match="has 2 outputs where LFormerClassifier needs 3"):
        model.export(tmp_path / "model")
    model.classes_ = np.arange(2)
    model.model_.mixers[0].channel_mixer = torch.nn.Identity()
    with pytest.raises(ValueError, match="not the usual mixer"):
        model.export(tmp_path / "model")
    stream = LFormerRegressor(streaming=True, members=1, **SMALL).fit(X, np.arange(len(X)) % 5)
    stream.model_.config = replace(stream.model_.config, gate_norm="none")
    with pytest.raises(ValueError, match=r"this one has {'gate_norm': 'none'}\. Fit it with LFormerRegressor"):
        stream.export(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_command_line_exports_a_saved_model(tmp_path: Path) -> None:
    model = fitted("points")
    model.save(tmp_path / "ward")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "ward"), "--to", "pt2"])
    assert done.exit_code == 0, done.output
    assert {entry.name for entry in (tmp_path / "ward-pt2").iterdir()} == {
        "README.md", "example.json", "export.json", "model.pt2", "run.py",
    }  # fmt: skip
    lost = CliRunner().invoke(app, ["export", str(tmp_path / "nowhere")])
    assert lost.exit_code == 2
    assert "does not exist" in lost.output
