"""`devices=2`: an estimator trained by two processes is the one that a single process trains."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimators.every_estimator import SIX, SMALL, answers, fitted, records, targets
from test_cli import call
from test_cli_model import LONG, labs, written

from lformer import LFormerClassifier, LFormerForecaster, load

SOME = {"max_epochs": 3, "dropout": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerForecaster])
def test_two_processes_train_the_model_of_one(kind: Any) -> None:
    X = records(23)
    alone, together = fitted(kind, X, **SOME), fitted(kind, X, **SOME, devices=2)
    assert len(together.history_) == 3
    for row, expected in zip(together.history_, alone.history_, strict=True):
        assert row == pytest.approx(expected, rel=1e-4)
    for name, weight in alone.model_.state_dict().items():
        np.testing.assert_allclose(together.model_.state_dict()[name].numpy(), weight.numpy(), rtol=0, atol=1e-5)
    for told, expected in zip(answers(together, X), answers(alone, X), strict=True):
        if np.asarray(expected).dtype.kind == "f":
            np.testing.assert_allclose(told, expected, rtol=1e-4, atol=1e-5)
    assert together.validation_score_ == pytest.approx(alone.validation_score_, rel=1e-4)


SCRIPT = """
from estimators.every_estimator import fitted, records
from lformer import LFormerClassifier

model = fitted(LFormerClassifier, records(23), devices=2)
model.save("model")
print(model.n_iter_, "epoch")
"""


@pytest.mark.slow
def test_a_script_needs_no_guard_and_a_saved_model_remembers(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]
    code = f"import runpy, sys; sys.path[:0] = {paths}; runpy.run_path('script.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 epoch\n"  # once: the processes do not run the script
    model = load(tmp_path / "model")
    assert model.devices == 2
    assert len(model.predict(records(5))) == 5


@pytest.mark.slow
def test_on_the_command_line(tmp_path: Path) -> None:
    table = written(labs(), tmp_path / "labs.csv")
    target = ("--target", "state", "--task", "classify", "--out", str(tmp_path / "model"), "--epochs", "1")
    result = call("fit", str(table), *LONG, *target, "--devices", "2", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "model").n_iter_ == 1


@pytest.mark.parametrize("kind", SIX)
def test_what_makes_no_sense_is_refused_before_anything_is_read(kind: Any) -> None:
    with pytest.raises(ValueError, match="devices must be a whole number of at least 1; got 0"):
        kind(**SMALL, devices=0).fit(records(), targets(kind, records()))


def test_the_command_line_refuses_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(labs(), tmp_path / "labs.csv")
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = call("fit", str(table), *LONG, "--target", "state", "--out", str(tmp_path / "model"))
    assert result.exit_code == 2
    assert "--devices 2 instead of using torchrun" in result.output
