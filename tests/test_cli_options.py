"""Options of `lformer fit`, `predict` and `data doctor` that say how to train, what to write and when to refuse."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import call
from test_cli_ids import ASK, QUICK, visits, written
from test_cli_model import flat, refused

from lformer.cli import model as commands
from lformer.estimators import load

DOCTOR = ("data", "doctor")


def dated(zone: str | None = None, form: str | None = None) -> pd.DataFrame:
    """The same with dates, as text of some form."""
    table = visits(tuple(f"p{i}" for i in range(8)))
    stamps = pd.Timestamp("2024-03-01", tz=zone) + pd.to_timedelta((86400 * table["t"]).round(), unit="s")
    return table.assign(t=stamps if form is None else stamps.dt.strftime(form))


def done(*arguments: str) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return flat(result.output)


def test_training_is_as_the_options_say(tmp_path: Path) -> None:
    file, out = str(written(visits(), tmp_path / "t.csv")), str(tmp_path / "model")
    more = ("--members", "2", "--width", "12", "--lr", "0.01", "--device", "cpu", "--epochs", "2", "--quiet")
    done("fit", file, *ASK, "--target", "y", *more, "--out", out)
    model = load(out)
    told = (model.members, model.width, model.lr, model.device, model.max_epochs, len(model.model_.models))
    assert told == (2, 12, 0.01, "cpu", 2, 2)
    assert "--lr must be greater than 0; got -1" in refused(
        "fit", file, *ASK, "--target", "y", "--lr=-1", "--out", out, code=2
    )
    for wrong in (("--members", "0"), ("--width", "0"), ("--device", "tpu"), ("--id-type", "float")):
        assert call("fit", file, *ASK, "--target", "y", *wrong, "--out", out).exit_code == 2


def test_the_help_says_when_training_ends() -> None:
    text = flat(call("fit", "--help").output.replace("│", " "))
    assert "Training stops after 20 epochs without improvement" in text
    assert "at most" not in text.lower()


@pytest.mark.parametrize("wrong", [
    ("--sep", ";;"), ("--decimal", ""), ("--thousands", "."), ("--encoding", "klingon"), ("--time-format", "iso"),
    ("--time-zone", "Europe/Atlantis"), ("--missing-values", "NA"),
])  # fmt: skip
def test_options_that_cannot_be_meant_are_a_wrong_request_of_every_command(
    tmp_path: Path, wrong: tuple[str, str]
) -> None:
    file = str(written(visits(), tmp_path / "t.csv"))
    asks = (("fit", file, *ASK, "--target", "y", "--out", str(tmp_path / "m")), (*DOCTOR, file, *ASK[:4]),
            ("predict", str(tmp_path / "m"), file, "--out", str(tmp_path / "p.csv")))  # fmt: skip
    for ask in asks:
        assert f"{wrong[0]}" in refused(*ask, *wrong, code=2)


def test_exit_codes_are_the_same_in_every_command(tmp_path: Path) -> None:
    good = written(visits(), tmp_path / "t.csv")
    model = ("--out", str(tmp_path / "m"))
    done("fit", str(good), *ASK, "--target", "y", *QUICK, *model)
    (tmp_path / "empty.csv").write_text("")
    renamed = written(visits().rename(columns={"who": "patient"}), tmp_path / "renamed.csv")
    words = written(visits().assign(a="x"), tmp_path / "words.csv")
    cases = (
        (tmp_path / "none.csv", 2),
        (tmp_path / "none.xlsx", 2),
        (tmp_path / "empty.csv", 1),
        (renamed, 2),
        (words, 1),
    )
    for file, code in cases:
        for ask in (("fit", str(file), *ASK, "--target", "y", *model), (*DOCTOR, str(file), *ASK, "--target", "y"),
                    ("predict", str(tmp_path / "m"), str(file), "--out", str(tmp_path / "p.csv"))):  # fmt: skip
            result = call(*ask)
            assert result.exit_code == code, (ask, result.output)
            assert "Traceback" not in result.output
            assert file.name in flat(result.output).replace(" ", "")


# -- the doctor's verdict is that of fit


@pytest.mark.parametrize(("change", "options", "says"), [
    (lambda t: t.assign(y="ill"), ("--target", "y", "--task", "classify"), "at least two classes"),
    (lambda t: t, ("--target", "y", "--task", "regress"), "to regress, the target must hold numbers"),
    (lambda t: t.assign(y=np.arange(len(t))), ("--target", "y"), "'y' must be the same in all rows of an id"),
    (lambda t: t.assign(age=np.arange(len(t))), ("--target", "y", "--static", "age"), "'age' must be the same in all"),
    (lambda t: t.groupby("who").head(1), ("--task", "forecast"), "at least 2 series with rows to hide"),
    (lambda t: t.assign(y=t["y"].where(t["who"] != "7")), ("--target", "y"), "id '7' has none"),
    (lambda t: t[t["who"] < "0"], ("--target", "y"), "Training refuses the table"),
    (lambda t: t, ("--targets", "few.csv"), "has no target for 7 of 8 ids"),
    (lambda t: t, ("--target", "y"), ""),
    (lambda t: t, ("--target", "y", "--static", "age"), ""),
    (lambda t: t, ("--task", "interpolate"), ""),
    (lambda t: t.drop(columns="y"), ("--target", "b", "--task", "regress-points"), ""),
])  # fmt: skip
def test_the_doctor_knows_of_the_target_and_judges_as_fit_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: object, options: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names = tuple(name for name in ("001", "002", "003", "7", "07", "007", "NA", "null"))
    table = visits(names)
    if "forecast" in options or "interpolate" in options or "--targets" in options:
        table = table.drop(columns=["y", "age"])
    pd.DataFrame({"who": ["001"], "y": ["ill"]}).to_csv("few.csv", index=False)
    written(change(table), Path("t.csv"))  # type: ignore[operator]
    judged = call(*DOCTOR, "t.csv", *ASK[:4], *options)
    fitted = call("fit", "t.csv", *ASK[:4], *options, *QUICK, "--out", "model")
    assert judged.exit_code == fitted.exit_code == int(bool(says)), (judged.output, fitted.output)
    assert ("Training would work on t.csv" in judged.output) == (not says)
    if says != "Training refuses the table":
        assert says in flat(judged.output)
        assert says in flat(fitted.output)


def test_requests_that_the_table_shows_to_be_wrong(tmp_path: Path) -> None:
    file = str(written(visits().drop(columns=["y", "age"]), tmp_path / "t.csv"))
    for ask in ((*DOCTOR, file, *ASK[:4]), ("fit", file, *ASK[:4], "--out", str(tmp_path / "m"))):
        assert "--horizon must be a number" in refused(*ask, "--task", "forecast", "--horizon", "2D", code=2)
        assert "--target and --time both name the column 't'" in refused(*ask, "--target", "t", code=2)
        assert "--static and --id both name the column 'who'" in refused(
            *ask, "--task", "forecast", "--static", "who", code=2
        )


def test_without_a_target_one_row_or_series_does_not_train(tmp_path: Path) -> None:
    table = visits()
    for part, says in ((table[:1], "A single series"), (table[table["who"] == "7"], "A single series"),
                       (table[table["who"].isin(["7", "07", "007"])], "at least 4 series are needed")):  # fmt: skip
        result = call(*DOCTOR, str(written(part.drop(columns="y"), tmp_path / "t.csv")), *ASK[:4])
        assert result.exit_code == 1
        assert "Training would fail on" in result.output
        assert says in flat(result.output)


# -- stamps in, answers out


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "csv.gz", "jsonl.gz"])
def test_answers_are_written_by_suffix_in_the_zone_of_the_stamps(tmp_path: Path, suffix: str) -> None:
    table = dated("Europe/Berlin").drop(columns=["y", "age"]).assign(grade=lambda t: np.where(t["a"] > 0, "up", "down"))
    file = str(written(table, tmp_path / "t.parquet"))
    ask = (*ASK[:4], "--task", "classify-points", "--target", "grade")
    done("fit", file, *ask, *QUICK, "--out", str(tmp_path / "m"))
    out = tmp_path / f"p.{suffix}"
    done("predict", str(tmp_path / "m"), file, "--out", str(out))
    if suffix == "parquet":
        told = pd.read_parquet(out)
    elif "jsonl" in suffix:
        told = pd.read_json(out, lines=True, dtype=False)
    else:
        told = pd.read_csv(out, sep="\t" if suffix == "tsv" else ",")
    first = table[table["who"] == "p0"]["t"].min()
    assert len(told) == len(table)
    assert pd.Timestamp(told["t"].iloc[0]) == first
    assert str(told["t"].iloc[0]).endswith("+01:00")
    probability = np.concatenate(load(tmp_path / "m").predict_proba(_panel(table)))
    np.testing.assert_allclose(told[["probability_down", "probability_up"]], probability, rtol=1e-12)


def _panel(table: pd.DataFrame) -> object:
    from lformer import Panel

    return Panel.from_long(table.drop(columns="grade"), id="who", time="t")


def test_the_form_of_stamps_is_remembered_and_read_in_what_is_asked(tmp_path: Path) -> None:
    form = "%d.%m.%Y %H:%M:%S"
    plain = dated().drop(columns=["y", "age"])
    iso, german = (
        written(plain, tmp_path / "iso.csv"),
        written(plain.assign(t=plain["t"].dt.strftime(form)), tmp_path / "de.csv"),
    )
    told = []
    for file, more, at in ((iso, (), "2024-03-02T12:00"), (german, ("--time-format", form), "02.03.2024 12:00:00")):
        done("fit", str(file), *ASK[:4], "--task", "interpolate", *QUICK, *more, "--out", str(tmp_path / "m"))
        done("predict", str(tmp_path / "m"), str(file), "--at", at, "--out", str(tmp_path / "p.csv"))
        told.append(pd.read_csv(tmp_path / "p.csv"))
    pd.testing.assert_frame_equal(*told)
    says = refused("predict", str(tmp_path / "m"), str(german), "--at", "noon", "--out", str(tmp_path / "p.csv"))
    assert f"--at: 1 stamp cannot be read with --time-format {form}" in says


def test_local_time_of_a_zone_is_what_is_asked_for_and_told(tmp_path: Path) -> None:
    file = str(written(dated(form="%Y-%m-%d %H:%M:%S").drop(columns=["y", "age"]), tmp_path / "t.csv"))
    zone = ("--time-zone", "America/New_York")
    done("fit", file, *ASK[:4], "--task", "interpolate", *QUICK, *zone, "--out", str(tmp_path / "m"))
    out = tmp_path / "p.jsonl"
    done("predict", str(tmp_path / "m"), file, "--at", "2024-03-02T12:00", "--out", str(out))
    assert json.loads(out.read_text().splitlines()[0])["t"] == "2024-03-02T12:00:00-05:00"


def test_tables_of_records_that_are_not_here_say_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, folder in (("table", "bench"), ("figures", "bench"), ("defaults-table", "defaults")):
        text = refused("bench", command, code=2)
        assert f"there are no records in {tmp_path}/results/{folder}" in text.replace(" /", "/").replace(
            "records in/", "records in /"
        )
        assert "are in the repository of lformer" in text
        assert "give the folder with --out" in text


def test_commands_are_imported_without_torch() -> None:
    """Help comes at once."""
    import subprocess
    import sys

    code = "import sys, lformer.cli; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert commands.fit.__doc__
