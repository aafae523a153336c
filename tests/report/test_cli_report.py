"""`lformer fit` leaves a page beside the model."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import call

from lformer.estimators import load


@pytest.mark.parametrize("task", ["classify", "regress-points", "forecast"])
def test_fit_writes_a_report_beside_the_model(tmp_path: Path, task: str) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"who": f"p{i:02d}", "when": t, "x": rng.normal() if rng.random() > 0.2 else np.nan, "y": i % 2}
        for i in range(20)
        for t in np.sort(rng.random(int(rng.integers(4, 9))))
    ]
    file, out = tmp_path / "labs.csv", tmp_path / "model"
    pd.DataFrame(rows).drop(columns=["y"] if task == "forecast" else []).to_csv(file, index=False)
    target = [] if task == "forecast" else ["--target", "y"]
    for _ in range(2):  # again into the same folder
        result = call(
            "fit", str(file), "--id", "who", "--time", "when", "--value", "x", "--task", task, *target, "--epochs", "1",
            "--quiet", "--out", str(out),
        )  # fmt: skip
        assert result.exit_code == 0, result.output
    page = tmp_path / "model-report.html"
    assert f"Report: {page}" in " ".join(result.output.split())
    assert f"labs.csv: {task}" in page.read_text()
    assert "3 series" in page.read_text()  # those that were held out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labs.csv", "model", "model-report.html"]
    load(out)
