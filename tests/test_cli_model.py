"""`lformer fit` and `lformer predict`, as a person at a terminal meets them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_cli import call

from lformer import LFormerClassifier, LFormerPretrainer, LFormerRegressor, Panel
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


def refused(*arguments: str, code: int = 1) -> str:
    """The one line of an error that a user can correct: exit code 1 if it is about the data, 2 about the request."""
    result = call(*arguments)
    assert result.exit_code == code, result.output
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
    assert re.search(r"Validation cross_entropy: [\d.e-]+; boosting on the same series: [\d.e-]+", text)
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
    assert "By accuracy, the model is no better than the baseline" in text
    assert load(tmp_path / "model").features_.channels == ("x",)  # the target is no input


def test_numbers_from_a_second_file_and_channels_in_columns(tmp_path: Path) -> None:
    table = labs().drop(columns=["state", "score"])
    wide = table.pivot(index=["who", "when"], columns="lab", values="x").reset_index()
    score = pd.DataFrame({"score": [100.0 + i for i in range(41)], "who": [f"p{i:02d}" for i in range(41)]})
    targets = written(score[::-1], tmp_path / "y.csv")
    file = written(wide, tmp_path / "wide.csv")
    text = fit(file, "--id", "who", "--time", "when", "--targets", str(targets), "--task", "regress")
    assert "MAE" in text
    assert json.loads((tmp_path / "model/estimator.json").read_text())["columns"] == {
        "id": "who", "time": "when", "channel": None, "value": ["k", "na"], "on_duplicate": "error",
        "static": [], "id_type": "text", "time_format": None, "time_zone": None,
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
    says = "mg.csv has channels that were not in the training data: 'mg'; the model knows k, na. --ignore-new-channels"
    assert says in text
    assert not (tmp_path / "p.csv").exists()
    without = predict(written(table[table["lab"] != "na"], tmp_path / "k.csv"))
    pd.testing.assert_frame_equal(predict(extra, "--ignore-new-channels"), without)


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
    assert "has no column 'outcome'; it has 'who', 'when'" in refused(*ask, "--target", "outcome", code=2)
    assert "Give --target COLUMN, or --targets FILE" in refused(*ask, code=2)
    few = written(pd.DataFrame({"who": ["p00"], "y": [1]}), tmp_path / "y.csv")
    text = refused(*ask, "--targets", str(few))
    assert "y.csv has no target for 39 of 40 ids of" in text
    assert "among them ['p01', 'p02', 'p03', 'p04', 'p05']; it has ids such as ['p00']" in text
    two = written(pd.DataFrame({"who": ["p00"], "y": [1], "z": [1]}), tmp_path / "y.csv")
    assert "or choose one with --target; got ['y', 'z']" in refused(*ask, "--targets", str(two), code=2)
    assert not (tmp_path / "model").exists()


def test_wrong_requests_are_one_clear_line(tmp_path: Path) -> None:
    file = str(written(labs(), tmp_path / "t.csv"))
    ask = ("fit", file, "--id", "who", "--time", "when", "--target", "state", "--channel", "lab")
    out = ("--out", str(tmp_path / "model"))
    assert "the target must hold numbers" in refused(*ask, "--value", "x", "--task", "regress", *out)
    assert "give the one column of the values with --value" in refused(*ask, "--task", "classify", *out, code=2)
    assert "contains files that do not belong to a model" in refused(
        *ask, "--value", "x", "--task", "classify", "--out", str(tmp_path), code=2
    )
    missing = ("fit", str(tmp_path / "no.csv"), *ask[2:], "--value", "x", *out)
    assert "No such file" in refused(*missing, code=2)
    for wrong in (("--epochs", "0"), ("--task", "sing")):
        result = call(*ask, "--value", "x", *out, *wrong)
        assert result.exit_code == 2
        assert f"Invalid value for '{wrong[0]}'" in result.output
    one = written(labs()[:1], tmp_path / "one.csv")
    few = ("fit", str(one), *ask[2:], "--value", "x", "--task", "classify", *out)
    assert "at least 4 series are needed to train, validate and test; the table has 1" in refused(*few)
    assert not (tmp_path / "model").exists()


def test_duplicates_are_an_error_unless_a_way_is_chosen_which_predict_repeats(tmp_path: Path) -> None:
    table = pd.concat([labs(), labs().assign(x=lambda t: t["x"] + 1)])
    file = written(table, tmp_path / "t.csv")
    ask = (*LONG, "--target", "state", "--task", "classify")
    text = refused("fit", str(file), *ask, "--out", str(tmp_path / "model"))
    assert re.search(
        r"t\.csv: Duplicates\. \d+ \(id, time, channel\) occur more than once; .* --on-duplicate mean", text
    )
    fit(file, *ask, "--on-duplicate", "mean")
    assert len(predict(file)) == 40


def test_predict_refuses_what_does_not_belong_to_the_model(tmp_path: Path) -> None:
    table = labs()
    file = written(table, tmp_path / "labs.csv")
    fit(file, *LONG, "--target", "state", "--task", "classify")
    model, out = str(tmp_path / "model"), ("--out", str(tmp_path / "p.csv"))
    numbers = written(table.assign(when=np.arange(len(table))), tmp_path / "numbers.csv")
    says = "the times of X are numbers, but the model was trained on calendar stamps in s"
    assert says in refused("predict", model, str(numbers), *out)
    assert "--out must end with .csv" in refused("predict", model, str(file), "--out", str(tmp_path / "p.txt"), code=2)
    assert "nowhere does not exist" in refused("predict", str(tmp_path / "nowhere"), str(file), *out, code=2)
    assert "No such file" in refused("predict", model, str(tmp_path / "no.csv"), *out, code=2)
    assert "--at and --queries are for models that" in refused("predict", model, str(file), *out, "--at", "5", code=2)
    (tmp_path / "model/estimator.json").write_text("{")
    assert "estimator.json is damaged" in refused("predict", model, str(file), *out)


def test_models_saved_from_python_are_told_the_columns(tmp_path: Path) -> None:
    table = labs()
    panel = Panel.from_long(table, id="who", time="when", channel="lab", value="x")
    labels = table.groupby("who")["state"].first()
    LFormerClassifier(width=8, max_epochs=1).fit(panel, labels).save(tmp_path / "model")
    file = written(table, tmp_path / "labs.csv")
    ask = ("predict", str(tmp_path / "model"), str(file), "--out", str(tmp_path / "p.csv"))
    assert "--id and --time must be given" in refused(*ask, code=2)
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


# -- covariates, rows, and times asked for


def test_the_task_is_inferred_from_the_target_and_said(tmp_path: Path) -> None:
    file = written(labs().assign(score=lambda t: t["who"].str[1:].astype(float) / 3), tmp_path / "labs.csv")
    assert "Task: classify, because 'state' has 2 different values" in fit(file, *LONG, "--target", "state")
    assert type(load(tmp_path / "model")) is LFormerClassifier
    assert "Task: regress, because 'score' has 40 different values" in fit(file, *LONG, "--target", "score")
    assert type(load(tmp_path / "model")) is LFormerRegressor


def test_covariates_are_kept_for_predict_and_must_not_vary(tmp_path: Path) -> None:
    table = labs().assign(age=lambda t: t["who"].str[1:].astype(float), site=lambda t: "s" + t["who"].str[2])
    table.loc[table["who"] == "p03", "age"] = np.nan
    file = written(table, tmp_path / "labs.csv")
    ask = (*LONG, "--target", "state", "--static", "age", "--static", "site")
    fit(file, *ask)
    model = load(tmp_path / "model")
    assert list(model.features_.covariates.columns) == ["age", "site"]
    answers = predict(file)
    older = predict(written(table.assign(age=table["age"] + 500), tmp_path / "older.csv"))
    assert not np.allclose(answers["probability_ill"], older["probability_ill"])
    static = table.groupby("who")[["age", "site"]].first()
    panel = Panel.from_long(table, id="who", time="when", channel="lab", value="x", static=static)
    assert np.allclose(answers.iloc[:, 2:], model.predict_proba(panel), atol=1e-6)
    out = ("--out", str(tmp_path / "m2"))
    varying = written(table.assign(age=np.arange(len(table))), tmp_path / "varying.csv")
    assert "'age' must be the same in all rows of an id; in" in refused("fit", str(varying), *ask, *out)
    assert "has no column 'sex'" in refused("fit", str(file), *ask, "--static", "sex", *out, code=2)
    without = written(table.drop(columns="age"), tmp_path / "without.csv")
    lost = ("predict", str(tmp_path / "model"), str(without), "--out", str(tmp_path / "p.csv"))
    assert "without.csv has no column 'age'" in refused(*lost, code=2)


def test_classes_and_numbers_of_rows(tmp_path: Path) -> None:
    table = labs().assign(grade=lambda t: np.where(t["when"].dt.hour < 12, "early", "late"))
    table["load"] = np.where(table["when"].dt.hour % 3 == 0, np.nan, table["when"].dt.hour)
    file = written(table.drop(columns=["state", "score"]), tmp_path / "labs.csv")
    panel = Panel.from_long(table, id="who", time="when", channel="lab", value="x")
    text = fit(file, *LONG, "--target", "grade", "--task", "classify-points")
    assert "accuracy" in text
    told = predict(file)
    assert told.columns.tolist() == ["who", "when", "prediction", "probability_early", "probability_late"]
    assert len(told) == len(panel.times)
    assert told["who"].tolist() == np.repeat(panel.ids, panel.lengths).tolist()
    assert (pd.to_datetime(told["when"]) == np.concatenate([stamps for stamps, _ in panel])).all()
    model = load(tmp_path / "model")
    assert np.allclose(told.iloc[:, 3:], np.concatenate(model.predict_proba(panel)), atol=1e-6)
    assert "MAE" in fit(file, *LONG, "--target", "load", "--task", "regress-points")
    assert predict(file).columns.tolist() == ["who", "when", "prediction"]
    assert np.isclose(load(tmp_path / "model").task_.shift[0], table["load"].mean(), atol=3)
    ask = ("fit", str(file), *LONG, "--out", str(tmp_path / "m2"))
    assert "must hold numbers" in refused(*ask, "--target", "grade", "--task", "regress-points")
    assert "every row needs a class; " in refused(*ask, "--target", "load", "--task", "classify-points")
    assert "needs --target COLUMN of FILE" in refused(*ask, "--task", "classify-points", code=2)
    assert "Or give --task classify-points or regress-points" in refused(*ask, "--target", "grade")
    twice = written(pd.concat([table, table.assign(lab="mg", grade="late")]), tmp_path / "twice.csv")
    says = "'grade' must be the same in all rows of an id at one time; id 'p0"
    assert says in refused("fit", str(twice), *LONG, "--target", "grade", "--task", "classify-points", *ask[-2:])


def test_row_targets_meet_their_rows(tmp_path: Path) -> None:
    """The rows of a table in any order, two channels of one stamp in one row of the panel."""
    from lformer.cli.read_table import per_series, row_targets

    table = pd.DataFrame({"who": ["b", "a", "b", "a", "b"], "t": [2.0, 5.0, 1.0, 3.0, 2.0],
                          "lab": ["k", "k", "k", "k", "na"], "x": 1.0, "y": [22, 15, 21, 13, None]})  # fmt: skip
    panel = Panel.from_long(table, id="who", time="t", channel="lab", value="x")
    flat = row_targets(table, {"id": "who", "time": "t"}, "y", panel)
    assert [part.tolist() for part in per_series(flat, panel)] == [[13, 15], [21, 22]]


@pytest.mark.filterwarnings("ignore:.* further ahead than any in training:UserWarning")
@pytest.mark.parametrize("task", ["interpolate", "forecast"])
def test_values_at_times_asked_for(tmp_path: Path, task: str) -> None:
    table = labs().drop(columns=["state", "score"])
    file = written(table, tmp_path / "labs.csv")
    more = ("--horizon", "12h") if task == "forecast" else ()
    text = fit(file, *LONG, "--task", task, *more)
    assert "MSE of hidden rows" in text
    assert "--at TIME" in text
    model = load(tmp_path / "model")
    assert task == "interpolate" or model.horizon == 12 * 3600
    panel = Panel.from_long(table, id="who", time="when", channel="lab", value="x")
    late = ("--at", "2024-09-01", "--at", "2024-09-02T12:00:00Z")
    if task == "forecast":
        far = refused("predict", str(tmp_path / "model"), str(file), "--out", str(tmp_path / "p.csv"), *late)
        assert "40 of 40 series have queries further ahead than any in training, which was up to" in far
        assert "or allow it with --extrapolate warn." in far
        model.set_params(extrapolate="warn")
    told = predict(file, *late, "--extrapolate", "warn")
    assert told.columns.tolist() == ["who", "when", "k", "na"]
    assert len(told) == 80
    stamps = np.array(["2024-09-01", "2024-09-02T12:00:00"], "M8[s]")
    assert np.allclose(told[["k", "na"]], np.concatenate(model.predict(panel, stamps)), atol=1e-4)
    asked = pd.DataFrame({"who": ["p07", "p01", "p07"], "when": ["2024-09-03", "2024-09-01", "2024-09-01T00:00:00"]})
    some = predict(file, "--queries", str(written(asked, tmp_path / "q.csv")), "--extrapolate", "warn")
    assert some["who"].tolist() == ["p01", "p07", "p07"]
    assert pd.to_datetime(some["when"]).dt.day.tolist() == [1, 3, 1]
    same = told[(told["who"] == "p07") & (pd.to_datetime(told["when"]).dt.day == 1)]
    assert np.allclose(some.iloc[2][["k", "na"]].astype(float), same[["k", "na"]].iloc[0], atol=1e-4)
    ask = ("predict", str(tmp_path / "model"), str(file), "--out", str(tmp_path / "p.csv"))
    assert "give either --at TIME or --queries FILE" in refused(*ask, code=2)
    assert "--at must be ISO 8601" in refused(*ask, "--at", "noon", code=2)
    strange = written(asked.assign(who="nobody"), tmp_path / "strange.csv")
    assert "ids that have no observations, among them ['nobody']" in refused(*ask, "--queries", str(strange))
    if task == "forecast":
        assert "forecasts are for times after the last row" in refused(*ask, "--at", "2024-03-01")


def test_requests_that_do_not_go_together(tmp_path: Path) -> None:
    file = written(labs(), tmp_path / "labs.csv")
    ask = ("fit", str(file), *LONG, "--out", str(tmp_path / "model"))
    assert "drop --target" in refused(*ask, "--task", "forecast", "--target", "score", code=2)
    assert "--horizon is for --task forecast" in refused(*ask, "--task", "interpolate", "--horizon", "3", code=2)
    says = "--horizon must be a number of seconds or a duration such as 36h; got 'soon'"
    assert says in refused(*ask, "--task", "forecast", "--horizon", "soon", code=2)


def test_a_wide_table_may_lack_a_channel(tmp_path: Path) -> None:
    wide = labs().pivot_table(index=["who", "when", "state"], columns="lab", values="x").reset_index()
    wide["age"] = wide["who"].str[1:].astype(int)
    ask = ("--id", "who", "--time", "when", "--target", "state", "--static", "age")
    fit(written(wide, tmp_path / "wide.csv"), *ask)
    assert load(tmp_path / "model").features_.channels == ("k", "na")  # a covariate is no channel
    only = written(wide.drop(columns="k"), tmp_path / "na.csv")
    assert len(predict(only)) == wide["who"].nunique()
    told = ("predict", str(tmp_path / "model"), str(only), "--out", str(tmp_path / "p.csv"))
    assert "has no column 'k'" in refused(*told, "--value", "k", "--value", "na", code=2)


def test_marks_for_missing_values_are_named_once_and_kept(tmp_path: Path) -> None:
    table = labs()
    marked = table.assign(x=table["x"].fillna(-9999))
    options = (*LONG, "--target", "state")
    new = labs(seed=1).drop(columns=["state", "score"])
    fit(written(table, tmp_path / "labs.csv"), *options)
    expected = predict(written(new, tmp_path / "new.csv"))
    text = fit(written(marked, tmp_path / "labs.csv"), *options, "--missing-values", "-9999")
    assert "Marks for missing values" not in text
    assert load(tmp_path / "model").missing_values == [-9999]
    pd.testing.assert_frame_equal(predict(written(new.fillna(-9999), tmp_path / "new.csv")), expected)
    other = predict(
        written(new.fillna(-1), tmp_path / "new.csv"), "--missing-values", "k=-1", "--missing-values", "na=-1"
    )
    pd.testing.assert_frame_equal(other, expected)


def test_marks_for_missing_values_that_nobody_named_are_said(tmp_path: Path) -> None:
    table = labs()
    text = fit(written(table.assign(x=table["x"].fillna(-9999)), tmp_path / "labs.csv"), *LONG, "--target", "state")
    assert "Marks for missing values" in text
    assert "If it does, give --missing-values -9999; if it is a real value, ignore this." in text


def test_marks_that_are_no_numbers_are_a_wrong_request(tmp_path: Path) -> None:
    file = str(written(labs(), tmp_path / "labs.csv"))
    request = ("fit", file, *LONG, "--task", "classify", "--target", "state")
    request = (*request, "--out", str(tmp_path / "model"), "--missing-values")
    assert "must be a number, or CHANNEL=NUMBER; got 'NA'" in refused(*request, "NA", code=2)
    assert "not both" in refused(*request, "-1", "--missing-values", "k=-9", code=2)
    assert "names channels ['cl']" in refused(*request, "cl=-1")


# -- series without a target


def test_series_without_a_target_are_learned_from_first(tmp_path: Path) -> None:
    file = written(labs(), tmp_path / "labs.csv")
    more = labs(30, seed=1).drop(columns=["state", "score"])
    more["who"] = "q" + more["who"]
    unlabelled = written(pd.concat([more, labs()[more.columns]]), tmp_path / "more.parquet")  # those of the first, too
    ask = (*LONG, "--target", "state", "--task", "classify")
    text = fit(file, *ask, "--unlabelled", str(unlabelled))
    says = "Pre-trained on 34 series of the table and 30 without a target. Mean squared error on hidden values: "
    assert says in text
    assert "6 series held out, 34 to train" in text
    assert set(predict(file).prediction) <= {"ill", "well"}


def test_wide_tables_without_a_target_may_lack_a_channel_but_bring_none(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    wide = pd.DataFrame({"id": np.repeat(np.arange(12), 4), "t": np.tile(np.arange(4.0), 12)})
    wide = wide.assign(a=rng.normal(size=48), b=rng.normal(size=48), y=(wide.id % 2).map({0: "n", 1: "y"}))
    file, more = written(wide, tmp_path / "t.csv"), wide.assign(id=wide.id + 100)
    ask = ("--id", "id", "--time", "t", "--target", "y", "--task", "classify", "--unlabelled")
    assert "and 12 without a target" in fit(file, *ask, str(written(more.drop(columns=["b", "y"]), tmp_path / "a.csv")))
    again = ("fit", str(file), *ask, str(file), "--out", str(tmp_path / "model"), "--quiet")
    assert "must have series with ids that are not in the table with the targets" in refused(*again)


def test_unlabelled_series_are_for_tasks_with_targets(tmp_path: Path) -> None:
    file = str(written(labs(), tmp_path / "labs.csv"))
    ask = ("fit", file, *LONG, "--task", "forecast", "--unlabelled", file, "--out", str(tmp_path / "model"))
    assert "put the series of --unlabelled into FILE" in refused(*ask, code=2)


def test_a_pretrained_model_predicts_nothing_by_itself(tmp_path: Path) -> None:
    table = labs()
    panel = Panel.from_long(table, id="who", time="when", channel="lab", value="x")
    LFormerPretrainer(width=8, max_epochs=1).fit(panel).save(tmp_path / "model")
    file = str(written(table, tmp_path / "labs.csv"))
    ask = ("predict", str(tmp_path / "model"), file, "--out", str(tmp_path / "p.csv"), *LONG)
    assert "predicts nothing by itself" in refused(*ask, code=2)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_dates_with_and_without_a_zone_are_asked_for_by_text(tmp_path: Path, zone: str | None, suffix: str) -> None:
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-03-01", periods=30, freq="D", tz="UTC" if suffix == "csv" and zone else zone)
    rows = [{"who": f"s{i:02d}", "when": day, "x": float(rng.normal(i + 5))} for i in range(12) for day in days]
    table = written(pd.DataFrame(rows), tmp_path / f"sales.{suffix}")
    fit(table, "--id", "who", "--time", "when", "--value", "x", "--task", "forecast", "--horizon", "7D")
    model = load(tmp_path / "model")
    assert "weekday" in model.features_.marks.periods
    assert (model.features_.marks.zone is None) == (zone is None)
    told = predict(table, "--at", "2024-04-02", "--at", "2024-04-03T12:00")
    panel = Panel.from_long(pd.DataFrame(rows), id="who", time="when", value="x")
    asked = pd.DatetimeIndex(["2024-04-02", "2024-04-03 12:00"], tz=panel.zone)  # on the wall of the series
    np.testing.assert_allclose(told["x"], np.concatenate(model.predict(panel, asked))[:, 0], rtol=1e-4)
    listed = pd.DataFrame({"who": ["s03", "s01"], "when": ["2024-04-02", "2024-04-02"]})
    some = predict(table, "--queries", str(written(listed, tmp_path / "q.csv")))
    np.testing.assert_allclose(some["x"], told["x"].to_numpy()[[2, 6]], rtol=1e-4)


def test_several_files_are_one_table_in_memory_and_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = labs().assign(age=lambda t: t["who"].str[1:].astype(int) % 7)
    whole = written(table, tmp_path / "whole.parquet")
    (tmp_path / "big").mkdir()
    for n in range(3):
        written(table.iloc[n::3], tmp_path / "big" / f"{n}.parquet")
    options = (*LONG, "--target", "state", "--static", "age", "--on-duplicate", "last")
    fit(whole, *options)
    wanted = load(tmp_path / "model").predict_proba(  # type: ignore[attr-defined]
        series := Panel.from_long(
            table, id="who", time="when", channel="lab", value="x", static=table.groupby("who")[["age"]].first()
        )
    )
    runs = {"files": [str(tmp_path / "big" / f"{n}.parquet") for n in range(3)], "folder": [str(tmp_path / "big")]}
    for name, files in runs.items():
        kept = ("--on-disk", str(tmp_path / "panel")) if name == "folder" else ()
        out = ("--epochs", "1", "--quiet", "--out", str(tmp_path / name))
        result = call("fit", *files, *options, *out, *kept)
        assert result.exit_code == 0, result.output
        np.testing.assert_array_equal(load(tmp_path / name).predict_proba(series), wanted)  # type: ignore[attr-defined]
    assert len(Panel.open(tmp_path / "panel")) == 40
    monkeypatch.setattr("lformer.cli.big_table._memory", lambda: 1000)
    assert "its series are stored on disk" in fit(whole, *options)
    assert not list(tmp_path.glob("series-*"))
    text = refused(
        "fit", str(whole), *LONG, "--target", "score", "--task", "regress-points", "--out", str(tmp_path / "m"), code=2
    )
    assert "must fit into memory" in text
    text = refused(
        "fit", str(written(table, tmp_path / "labs.csv")), *LONG, "--target", "state", "--out", str(tmp_path / "m"),
        "--on-disk", str(tmp_path / "other"), code=2,
    )  # fmt: skip
    assert "--on-disk is for Parquet" in text
    twice = ("--out", str(tmp_path / "m"), "--on-disk", str(tmp_path / "panel"))
    text = refused("fit", str(tmp_path / "big"), *options, *twice, code=2)
    assert "already exists" in text
    text = refused("fit", str(tmp_path / "none*.csv"), *options, "--out", str(tmp_path / "m"), code=2)
    assert "none*.csv" in text


def test_a_container_has_less_memory_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lformer.cli import big_table

    limits = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    monkeypatch.setattr(big_table, "CONTAINER", limits)
    machine = big_table._memory()
    assert machine is None or machine > 2**20
    limits[0].write_text("max\n")
    assert big_table._memory() == machine
    limits[1].write_text("1048576\n")
    assert big_table._memory() == 2**20


def test_many_text_ids_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare each with each would take an hour for as many series as a large table has."""
    from types import SimpleNamespace

    from lformer.cli import read_table

    ids = np.array([f"patient {i}" for i in range(20_000)], object)
    panel: object = SimpleNamespace(ids=ids)
    answers = pd.Series(1.0, index=pd.Index(ids[::-1]))
    monkeypatch.setattr(np, "isin", lambda *_: pytest.fail("each with each"))
    assert read_table.for_all(answers, panel, SimpleNamespace()) is answers  # type: ignore[arg-type]


# -- whose a series is


def visits() -> pd.DataFrame:
    """Two series of each of twenty patients."""
    table = labs().drop(columns="score")
    return table.assign(patient=["n" + str(int(who[1:]) // 2) for who in table["who"]])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_patient_is_trained_on_or_tested_on(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    real = LFormerClassifier.fit

    def watched(self: LFormerClassifier, X: Panel, y: np.ndarray, groups: np.ndarray) -> LFormerClassifier:
        seen.update(zip(X.ids.tolist(), groups.tolist(), strict=True))
        return real(self, X, y, groups=groups)

    monkeypatch.setattr(LFormerClassifier, "fit", watched)
    file = written(visits(), tmp_path / f"labs{suffix}")
    text = fit(file, *LONG, "--target", "state", "--task", "classify", "--group", "patient")
    assert "Split by 'patient': 17 to train on, 3 to test on." in text
    assert len(seen) == 34
    assert all(name == f"n{int(who[1:]) // 2}" for who, name in seen.items())
    assert len(set(seen.values())) == 17
    answers = predict(written(labs(seed=1).drop(columns=["score", "state"]), tmp_path / "new.csv"))
    assert len(answers) == 40  # whose a new series is, nobody asks


def test_a_patient_of_a_wide_table_is_no_channel(tmp_path: Path) -> None:
    table = visits().pivot_table(index=["who", "when", "patient", "state"], columns="lab", values="x").reset_index()
    file = written(table, tmp_path / "wide.csv")
    text = fit(file, "--id", "who", "--time", "when", "--target", "state", "--group", "patient")
    assert "2 channels" in text
    assert load(tmp_path / "model").features_.channels == ("k", "na")


@pytest.mark.parametrize(
    ("change", "options", "code", "says"),
    [
        (lambda t: t.assign(patient="ann"), (), 1, "40 series of 1 groups cannot be divided"),
        (lambda t: t.assign(patient=t["patient"].where(t["who"] != "p03")), (), 1, "id 'p03' has none in 'patient'"),
        (lambda t: t.assign(patient=t["when"].astype(str)), (), 1, "'patient' must be the same in all rows of an id"),
        (lambda t: t.drop(columns="patient"), (), 2, "has no column 'patient'"),
        (lambda t: t, ("--group", "who"), 2, "--group and --id both name the column 'who'"),
    ],
)
def test_groups_that_cannot_be(tmp_path: Path, change: Any, options: tuple[str, ...], code: int, says: str) -> None:
    file = written(change(visits()), tmp_path / "labs.csv")
    target = ("--target", "state", "--task", "classify", "--out", str(tmp_path / "model"))
    assert says in refused("fit", str(file), *LONG, *target, "--group", "patient", *options, code=code)
