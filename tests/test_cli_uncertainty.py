"""`lformer fit --calibrate` and `lformer predict --interval`: columns that say how sure an answer is."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli_model import LONG, fit, labs, predict, refused

from lformer.estimators import load


def test_intervals_of_numbers_are_two_more_columns(tmp_path: Path) -> None:
    file = tmp_path / "labs.csv"
    table = labs(80)
    table["score"] += table.groupby("who")["x"].transform("count")
    table.drop(columns="state").to_csv(file, index=False)
    options = ("--target", "score", "--task", "regress", "--uncertainty", "quantiles", "--calibrate", "0.3")
    fit(file, *LONG, *options)
    told = predict(file, "--interval", "0.8")
    assert list(told.columns) == ["who", "prediction", "prediction_low", "prediction_high"]
    assert (told["prediction_low"] < told["prediction_high"]).all()
    model = load(tmp_path / "model")
    assert (model.uncertainty, model.calibration_fraction) == ("quantiles", 0.3)
    assert model.calibration_.series == 21  # 0.3 of 68, rounded up
    assert "Observed against nominal coverage" in (tmp_path / "model-report.html").read_text()
    assert list(predict(file).columns) == ["who", "prediction"]
    said = refused(
        "predict", str(tmp_path / "model"), str(file), "--out", str(tmp_path / "p.csv"), "--interval", "0.99"
    )
    assert "coverage 0.99 needs at least 99 calibration series" in said


def test_sets_of_classes_and_intervals_of_values(tmp_path: Path) -> None:
    file = tmp_path / "labs.csv"
    labs(60).drop(columns="score").to_csv(file, index=False)
    fit(file, *LONG, "--target", "state", "--calibrate", "0.3")
    told = predict(file, "--interval", "0.8")
    assert list(told.columns) == [
        "who",
        "prediction",
        "probability_ill",
        "probability_well",
        "in_set_ill",
        "in_set_well",
    ]
    assert told["in_set_ill"].dtype == bool
    assert (told["in_set_ill"] | told["in_set_well"]).all()

    file = tmp_path / "values.csv"
    labs(60).drop(columns=["score", "state"]).to_csv(file, index=False)
    fit(file, *LONG, "--task", "interpolate", "--calibrate", "0.4", "--uncertainty", "gaussian")
    told = predict(file, "--interval", "0.7", "--at", "2024-04-01")
    assert list(told.columns) == ["who", "when", "k", "na", "k_low", "k_high", "na_low", "na_high"]
    assert np.isfinite(told[["k_low", "na_high"]].to_numpy()).all()
    assert ((told["k_low"] < told["k"]) & (told["k"] < told["k_high"])).all()


def test_what_does_not_go_together_is_said(tmp_path: Path) -> None:
    file = tmp_path / "labs.csv"
    labs(40).drop(columns="score").to_csv(file, index=False)
    begin = ("fit", str(file), *LONG, "--target", "state", "--out", str(tmp_path / "model"), "--quiet", "--epochs", "1")
    assert "--calibrate must be at least 0 and below 1" in refused(*begin, "--calibrate", "1.5", code=2)
    assert "--uncertainty is for numbers" in refused(*begin, "--task", "classify", "--uncertainty", "gaussian", code=2)
    fit(file, *LONG, "--target", "state")
    said = refused("predict", str(tmp_path / "model"), str(file), "--out", str(tmp_path / "p.csv"), "--interval", "0.9")
    assert "not calibrated" in said
    assert "--calibrate 0.2" in said


def test_rows_have_intervals_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"who": f"p{i:02d}", "when": t, "x": rng.normal(), "y": rng.normal(5)}
        for i in range(40)
        for t in np.sort(rng.random(rng.integers(3, 7))).round(4)
    ]
    file = tmp_path / "rows.csv"
    pd.DataFrame(rows).to_csv(file, index=False)
    fit(file, "--id", "who", "--time", "when", "--value", "x", "--target", "y", "--task", "regress-points",
        "--calibrate", "0.4")  # fmt: skip
    told = predict(file, "--interval", "0.8")
    assert list(told.columns) == ["who", "when", "prediction", "prediction_low", "prediction_high"]
    assert len(told) == len(rows)
    assert told["prediction_high"].sub(told["prediction_low"]).std() == pytest.approx(0, abs=1e-9)
