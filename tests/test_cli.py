"""The command line, as a person at a terminal meets it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lformer
from lformer.bench import plots
from lformer.cli import app


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"})


def one_epoch(folder: Path, *more: str) -> dict[str, object]:
    result = call("demo", "--epochs", "1", "--out", str(folder), "--quiet", *more)
    assert result.exit_code == 0, result.output
    assert "interpolation MAE" in result.output
    assert "0.33 ± 0.09" in result.output
    record: dict[str, object] = json.loads((folder / "record.json").read_text())
    return record


def test_the_demo_leaves_table_figure_and_record_and_repeats_to_the_last_digit(tmp_path: Path) -> None:
    first = one_epoch(tmp_path / "a")
    assert (tmp_path / "a" / "spirals.png").read_bytes().startswith(b"\x89PNG")
    assert first["dataset"] == "spiral-0.02"
    assert first["epochs"] == 1
    again = one_epoch(tmp_path / "b")
    assert again["metrics"] == first["metrics"]
    assert again["history"] == first["history"]
    assert one_epoch(tmp_path / "c", "--seed", "7")["metrics"] != first["metrics"]


def test_help_explains_every_option_of_the_demo() -> None:
    text = call("demo", "--help").output
    for option in ("--alpha", "--points", "--noise", "--epochs", "--seed", "--out", "--quiet"):
        assert re.search(rf"{option}\b.*[A-Z]\w+", text), option


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("demo", "--alpha", "3"), "'3' is not one of 2, 0.2, 0.02"),
        (("demo", "--points", "500"), "points must lie between 1 and 75"),
        (("demo", "--steps", "5"), "No such option: --steps"),
        (("speed", "--models", "lformer,lstm"), "cannot measure lstm"),
        (("speed", "--lengths", "a,b"), "whole numbers separated by commas"),
        (("speed", "--lengths", "0"), "whole numbers from 1 up"),
    ],
)
def test_a_wrong_option_ends_with_one_clear_line(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    result = call(*arguments, "--out", str(tmp_path / "x"))
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("│", " ").split())
    assert "Traceback" not in result.output


def test_without_matplotlib_the_demo_says_what_to_install_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ImportError("figures need matplotlib; install it with: pip install 'lformer[plots]'")

    monkeypatch.setattr(plots, "require_matplotlib", missing)
    result = call("demo", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "lformer[plots]" in result.output


def test_a_folder_that_cannot_be_written_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = call("demo", "--epochs", "1", "--quiet", "--out", str(tmp_path / "file" / "demo"))
    assert result.exit_code == 2
    assert "error:" in result.output


def test_speed_prints_ratios_and_saves_record_and_figure(tmp_path: Path) -> None:
    result = call("speed", "--lengths", "32,64", "--batches", "2", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    for word in ("lformer-causal", "gru", "transformer", "exponent", "causal over non-causal", "×"):
        assert word in result.output
    record = json.loads((tmp_path / "cpu.json").read_text())
    assert len(record["cells"]) == 2 * 2 * 4
    assert all(cell["seconds"] > 0 and cell["peak_bytes"] > 0 for cell in record["cells"])
    assert (tmp_path / "cpu.png").read_bytes().startswith(b"\x89PNG")


def test_the_version_is_the_packages() -> None:
    assert call("--version").output.strip() == lformer.__version__


def test_as_a_module_it_is_the_same_command() -> None:
    told = subprocess.run([sys.executable, "-m", "lformer", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == lformer.__version__


def test_figures_without_matplotlib_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"lformer\[plots\]"):
        plots.require_matplotlib()
