"""`lformer fit` and `lformer predict`, as a person at a terminal meets them."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import call

from lformer import LFormerClassifier, LFormerRegressor, Panel
from lformer.estimators import load


def flat(text: str) -> str:
    return " ".join(text.split())


def labs(n: int = 40, seed: int = 0) -> pd.DataFrame:
    """Asynchronous labs with calendar stamps and holes; the ill have more potassium, and a higher score."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        begin = pd.Timestamp("2024-03-01") + pd.Timedelta(days=int(rng.integers(0, 90)))
        for _ in range(rng.integers(4, 9)):
            lab = str(rng.choice(["k", "na"]))
            value = rng.normal(4 + 3 * (i % 2), 0.2) if lab == "k" else rng.normal(140, 3)
            stamp = begin + pd.Timedelta(minutes=int(rng.integers(0, 5000)))
            rows.append({"who": f"p{i:02d}", "when": stamp, "lab": lab, "x": value if rng.random() > 0.1 else np.nan,
                         "state": "ill" if i % 2 else "well", "score": 10.0 * (i % 2) + 100})  # fmt: skip
    return pd.DataFrame(rows).drop_duplicates(["who", "when", "lab"]).sample(frac=1, random_state=seed)


LONG = ("--id", "who", "--time", "when", "--channel", "lab", "--value", "x")


def fit(file: Path, *options: str) -> str:
    result = call("fit", str(file), "--epochs", "1", "--quiet", "--out", str(file.parent / "model"), *options)
    assert result.exit_code == 0, result.output
    return flat(result.output)


def predict(file: Path, *options: str) -> pd.DataFrame:
    out = file.parent / "predictions.csv"
    result = call("predict", str(file.parent / "model"), str(file), "--out", str(out), *options)
    assert result.exit_code == 0, result.output
    return pd.read_csv(out)


def refused(*arguments: str) -> str:
    """The one line of a command that a user can put right."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.output.startswith("error: ")
    return flat(result.output)


def written(table: pd.DataFrame, path: Path) -> Path:
    table.to_parquet(path) if path.suffix == ".parquet" else table.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_classes_from_a_column_of_the_table(tmp_path: Path, suffix: str) -> None:
    file = written(labs().drop(columns="score"), tmp_path / f"labs{suffix}")
    text = fit(file, *LONG, "--target", "state", "--task", "classify", "--epochs", "12")
    assert "6 series held out, 34 to train" in text
    accuracy, constant = map(float, re.search(r"accuracy │ ([\d.]+) │ ([\d.]+)", text).groups())  # type: ignore[union-attr]
    assert accuracy > 0.8 > 0.7 > constant
    assert "AUC" in text
    assert "no better" not in text
    assert "times in s" in text
    new = labs(seed=1).drop(columns=["score", "state"])
    answers = predict(written(new, tmp_path / f"new{suffix}"))
    assert answers.columns.tolist() == ["who", "prediction", "probability_ill", "probability_well"]
    assert answers["who"].tolist() == [f"p{i:02d}" for i in range(40)]
    assert (answers["prediction"] == np.where(np.arange(40) % 2, "ill", "well")).mean() > 0.8
    panel = Panel.from_long(new, id="who", time="when", channel="lab", value="x")
    assert np.allclose(answers.iloc[:, 2:], load(tmp_path / "model").predict_proba(panel), atol=1e-6)


def test_the_scores_are_of_the_saved_model_on_series_it_has_not_seen(tmp_path: Path) -> None:
    from sklearn.model_selection import train_test_split

    table = labs().assign(score=lambda t: t["score"] + t["who"].str[1:].astype(float))
    file = written(table.drop(columns="state"), tmp_path / "labs.csv")
    text = fit(file, *LONG, "--target", "score", "--task", "regress", "--seed", "5")
    panel = Panel.from_long(table, id="who", time="when", channel="lab", value="x")
    truth = panel.align(table.groupby("who")["score"].first())
    train, test = (np.sort(part) for part in train_test_split(np.arange(40), test_size=0.15, random_state=5))
    model = load(tmp_path / "model")
    error, constant = model.predict(panel[test]) - truth[test], truth[train].mean() - truth[test]
    assert f"MAE │ {np.abs(error).mean():.4g} │ {np.abs(constant).mean():.4g}" in text
    assert f"RMSE │ {np.sqrt((error**2).mean()):.4g} │ {np.sqrt((constant**2).mean()):.4g}" in text
    by_hand = LFormerRegressor(max_epochs=1, random_state=5).fit(panel[train], truth[train])
    assert np.array_equal(by_hand.predict(panel[test]), model.predict(panel[test]))


def test_a_model_that_learnt_nothing_is_said_to_be_no_better_than_a_constant(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.repeat(np.arange(40), 3), "t": np.tile(np.arange(3), 40), "x": rng.random(120)})
    table["y"] = np.repeat((np.arange(40) == 0) | (np.arange(40) == 1), 3).astype(int)
    text = fit(written(table, tmp_path / "t.csv"), "--id", "id", "--time", "t", "--target", "y", "--task", "classify")
    assert "By accuracy the model is no better than a constant" in text
    assert load(tmp_path / "model").features_.channels == ("x",)  # the target is no input


def test_numbers_from_a_second_file_and_channels_in_columns(tmp_path: Path) -> None:
    table = labs().drop(columns=["state", "score"])
    wide = table.pivot(index=["who", "when"], columns="lab", values="x").reset_index()
    score = pd.DataFrame({"score": [100.0 + i for i in range(41)], "who": [f"p{i:02d}" for i in range(41)]})
    targets = written(score[::-1], tmp_path / "y.csv")
    file = written(wide, tmp_path / "wide.csv")
    text = fit(file, "--id", "who", "--time", "when", "--targets", str(targets), "--task", "regress")
    assert "MAE" in text
    assert json.loads((tmp_path / "model/columns.json").read_text()) == {
        "id": "who", "time": "when", "channel": None, "value": ["k", "na"], "on_duplicate": "error",
        "stamps": "calendar stamps",
    }  # fmt: skip
    answers = predict(file)
    assert answers.columns.tolist() == ["who", "prediction"]
    more = wide.rename(columns={"who": "patient"}).assign(site="north")[["site", "na", "k", "when", "patient"]]
    renamed = predict(written(more, tmp_path / "more.csv"), "--id", "patient")
    assert np.array_equal(renamed["prediction"], answers["prediction"])


def test_a_channel_that_a_new_table_lacks_counts_as_unobserved_and_renamed_columns_are_found(tmp_path: Path) -> None:
    table = labs()
    fit(written(table, tmp_path / "labs.csv"), *LONG, "--target", "state", "--task", "classify")
    only = table[table["lab"] == "na"].rename(columns={"x": "number", "lab": "what"})
    answers = predict(written(only, tmp_path / "na.csv"), "--value", "number", "--channel", "what")
    assert len(answers) == only["who"].nunique()
    extra = written(table.replace({"lab": {"na": "mg"}}), tmp_path / "mg.csv")
    text = refused("predict", str(tmp_path / "model"), str(extra), "--out", str(tmp_path / "p.csv"))
    assert "channels ['mg'] are not among the ones listed: ['k', 'na']" in text
    assert not (tmp_path / "p.csv").exists()


def test_numbered_classes_stay_whole_when_some_rows_lack_them(tmp_path: Path) -> None:
    table = labs().assign(grade=lambda t: (t["state"] == "ill") * 2 + 1.0)
    table.loc[table.duplicated("who"), "grade"] = np.nan
    fit(written(table, tmp_path / "labs.csv"), *LONG, "--target", "grade", "--task", "classify")
    answers = predict(tmp_path / "labs.csv")
    assert answers.columns.tolist() == ["who", "prediction", "probability_1", "probability_3"]
    assert load(tmp_path / "model").classes_.dtype == np.int64


def test_targets_that_vary_or_are_missing_name_the_id(tmp_path: Path) -> None:
    table = labs().reset_index(drop=True)
    ask = ("fit", str(tmp_path / "t.csv"), *LONG, "--task", "classify", "--out", str(tmp_path / "model"))
    varying = table.copy()
    varying.loc[varying["who"].eq("p07").idxmax(), "state"] = "well"
    written(varying, tmp_path / "t.csv")
    text = refused(*ask, "--target", "state")
    assert "id 'p07' has [" in text
    assert "'state' must be the same in all rows of an id" in text
    written(table.assign(state=table["state"].where(table["who"] != "p08")), tmp_path / "t.csv")
    assert "id 'p08' has none." in refused(*ask, "--target", "state")
    assert "has no column 'outcome'; it has 'who', 'when'" in refused(*ask, "--target", "outcome")
    assert "Give --target COLUMN, or --targets FILE" in refused(*ask)
    few = written(pd.DataFrame({"who": ["p00"], "y": [1]}), tmp_path / "y.csv")
    assert "the target has no entry for 39 of 40 ids, among them ['p01'" in refused(*ask, "--targets", str(few))
    two = written(pd.DataFrame({"who": ["p00"], "y": [1], "z": [1]}), tmp_path / "y.csv")
    assert "or choose one by --target; got ['y', 'z']" in refused(*ask, "--targets", str(two))
    assert not (tmp_path / "model").exists()


def test_wrong_requests_are_one_clear_line(tmp_path: Path) -> None:
    file = str(written(labs(), tmp_path / "t.csv"))
    ask = ("fit", file, "--id", "who", "--time", "when", "--target", "state", "--channel", "lab")
    out = ("--out", str(tmp_path / "model"))
    assert "the target must hold numbers" in refused(*ask, "--value", "x", "--task", "regress", *out)
    assert "give the one column of the values by --value" in refused(*ask, "--task", "classify", *out)
    assert "max_epochs must be greater than 0" in refused(
        *ask, "--value", "x", "--task", "classify", "--epochs", "0", *out
    )
    assert "holds other things than a model" in refused(
        *ask, "--value", "x", "--task", "classify", "--out", str(tmp_path)
    )
    assert "No such file" in refused("fit", str(tmp_path / "no.csv"), *ask[2:], "--task", "classify", *out)


def test_duplicates_are_an_error_unless_a_way_is_chosen_which_predict_repeats(tmp_path: Path) -> None:
    table = pd.concat([labs(), labs().assign(x=lambda t: t["x"] + 1)])
    file = written(table, tmp_path / "t.csv")
    ask = (*LONG, "--target", "state", "--task", "classify")
    assert "must not occur twice" in refused("fit", str(file), *ask, "--out", str(tmp_path / "model"))
    fit(file, *ask, "--on-duplicate", "mean")
    assert len(predict(file)) == 40


def test_predict_refuses_what_does_not_belong_to_the_model(tmp_path: Path) -> None:
    table = labs()
    file = written(table, tmp_path / "labs.csv")
    fit(file, *LONG, "--target", "state", "--task", "classify")
    model, out = str(tmp_path / "model"), ("--out", str(tmp_path / "p.csv"))
    numbers = written(table.assign(when=np.arange(len(table))), tmp_path / "numbers.csv")
    assert "holds numbers; the model was trained on calendar stamps" in refused("predict", model, str(numbers), *out)
    assert "--out must end with .csv" in refused("predict", model, str(file), "--out", str(tmp_path / "p.txt"))
    assert "nowhere does not exist" in refused("predict", str(tmp_path / "nowhere"), str(file), *out)
    (tmp_path / "model/columns.json").write_text("{")
    assert "columns.json is damaged" in refused("predict", model, str(file), *out)


def test_models_saved_from_python_are_told_the_columns(tmp_path: Path) -> None:
    table = labs()
    panel = Panel.from_long(table, id="who", time="when", channel="lab", value="x")
    labels = table.groupby("who")["state"].first()
    LFormerClassifier(width=8, max_epochs=1).fit(panel, labels).save(tmp_path / "model")
    file = written(table, tmp_path / "labs.csv")
    ask = ("predict", str(tmp_path / "model"), str(file), "--out", str(tmp_path / "p.csv"))
    assert "so --id and --time must" in refused(*ask)
    assert len(predict(file, *LONG)) == 40
    both = np.random.default_rng(0).random((40, 2))
    LFormerRegressor(width=8, max_epochs=1).fit(panel, both).save(tmp_path / "model")
    assert predict(file, *LONG).columns.tolist() == ["who", "prediction_0", "prediction_1"]


def test_progress_is_shown_unless_quiet(tmp_path: Path) -> None:
    file = written(labs(), tmp_path / "labs.csv")
    ask = ("fit", str(file), *LONG, "--target", "state", "--task", "classify", "--epochs", "1", "--out",
           str(tmp_path / "model"))  # fmt: skip
    assert "loss" in call(*ask).output
    assert "loss" not in call(*ask, "--quiet").output
