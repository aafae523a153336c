"""Ids at the command line: text as it is written, in every file alike, unless somebody wants whole numbers."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import call
from test_cli_model import flat, refused

NAMES = ("001", "002", "003", "7", "07", "007", "NA", "null")
ASK = ("--id", "who", "--time", "t", "--task", "classify")
QUICK = ("--epochs", "1", "--width", "4", "--quiet")


def visits(names: tuple[object, ...] = NAMES, seed: int = 0) -> pd.DataFrame:
    """Two channels at uneven times, ragged, with holes; a class and a covariate of each id."""
    rng = np.random.default_rng(seed)
    rows = [
        {"who": name, "t": t, "a": rng.normal(i % 2), "b": rng.normal() if rng.random() > 0.3 else None,
         "age": 40 + i, "y": "ill" if i % 2 else "well"}
        for i, name in enumerate(names)
        for t in np.cumsum(rng.exponential(1.0, 3 + i % 3)).round(3)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def classes(names: tuple[object, ...] = NAMES) -> pd.DataFrame:
    return pd.DataFrame({"who": list(names), "y": ["ill" if i % 2 else "well" for i in range(len(names))]})[::-1]


def written(table: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    elif path.suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def fit(file: Path, *options: str) -> str:
    result = call("fit", str(file), *ASK, *QUICK, "--out", str(file.parent / "model"), *options)
    assert result.exit_code == 0, result.output
    return flat(result.output)


def ids_of_predictions(file: Path, *options: str, suffix: str = "csv") -> list[object]:
    out = file.parent / f"told.{suffix}"
    result = call("predict", str(file.parent / "model"), str(file), "--out", str(out), *options)
    assert result.exit_code == 0, result.output
    if suffix == "jsonl":
        return [json.loads(line)["who"] for line in out.read_text().splitlines()]
    if suffix == "parquet":
        return pd.read_parquet(out)["who"].tolist()
    sep = "\t" if suffix == "tsv" else ","
    return [line.split(sep)[0] for line in out.read_text().splitlines()[1:]]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_ids_come_back_as_they_were_written(tmp_path: Path, suffix: str) -> None:
    file = written(visits(), tmp_path / f"t.{suffix}")
    text = fit(file, "--target", "y", "--static", "age")
    assert "Panel(8 series, 2 channels" in text
    assert ids_of_predictions(file, suffix=suffix) == sorted(NAMES)


def test_targets_of_another_file_meet_ids_as_text(tmp_path: Path) -> None:
    file = written(visits().drop(columns="y"), tmp_path / "t.csv")
    by_text = written(classes(), tmp_path / "y.csv")
    fit(file, "--targets", str(by_text), "--static", "age")
    assert ids_of_predictions(file) == sorted(NAMES)
    swapped = classes().replace(
        {"who": {"007": "7", "7": "007"}}
    )  # every id has a target, but 7 and 007 that of the other
    before = (tmp_path / "model/estimator.json").read_text()
    fit(file, "--targets", str(written(swapped, tmp_path / "y.csv")), "--static", "age")
    assert before != (tmp_path / "model/estimator.json").read_text()


def test_whole_numbers_on_request_and_only_where_they_are(tmp_path: Path) -> None:
    names = ("01", "2", "03", "4", "005", "6")
    file = written(visits(names).drop(columns="y"), tmp_path / "t.csv")
    targets = written(classes(tuple(map(int, names))), tmp_path / "y.csv")
    ask = ("fit", str(file), *ASK, "--out", str(tmp_path / "model"), "--targets", str(targets))
    text = refused(*ask)
    assert "y.csv has no target for 3 of 6 ids" in text
    assert "among them ['005', '01', '03']" in text
    assert "give --id-type int" in text
    fit(file, "--targets", str(targets), "--id-type", "int")
    assert ids_of_predictions(file) == list("123456")  # the model remembers
    assert ids_of_predictions(file, "--id-type", "text") == sorted(names)
    named = written(visits(("1", "2", "x", "4", "5")), tmp_path / "x.csv")
    says = refused("fit", str(named), *ASK, "--target", "y", "--id-type", "int", "--out", str(tmp_path / "m"))
    assert "x.csv, column 'who': --id-type int needs whole numbers; row 9 holds 'x'" in says


@pytest.mark.parametrize("floating", [False, True])
def test_numbers_of_parquet_stay_numbers_and_meet_text_that_is_written_alike(tmp_path: Path, floating: bool) -> None:
    names = tuple(float(i) if floating else i for i in range(1, 9))
    file = written(visits(names).drop(columns="y"), tmp_path / "t.parquet")
    targets = written(classes(tuple(range(1, 9))), tmp_path / "y.csv")
    fit(file, "--targets", str(targets))
    assert ids_of_predictions(file) == list("12345678")
    told = ids_of_predictions(file, suffix="parquet")
    assert told == list(range(1, 9))
    assert all(isinstance(one, int) for one in told)
    zeros = written(classes(tuple(f"{i:03d}" for i in range(1, 9))), tmp_path / "y.csv")
    says = refused("fit", str(file), *ASK, "--targets", str(zeros), "--out", str(tmp_path / "m"))
    assert "y.csv, column 'who': row 2 holds the text '008', but the ids of" in says
    assert "--id-type int reads text as whole numbers" in says
    fit(file, "--targets", str(zeros), "--id-type", "int")
    text = written(visits(tuple(map(str, range(1, 9)))).drop(columns="y"), tmp_path / "t.csv")
    numbers = written(classes(tuple(range(1, 9))), tmp_path / "y.parquet")
    fit(text, "--targets", str(numbers))


def test_queries_and_unlabelled_series_go_by_the_same_ids(tmp_path: Path) -> None:
    file = written(visits().drop(columns=["y", "age"]), tmp_path / "t.csv")
    out = ("--out", str(tmp_path / "model"))
    assert call("fit", str(file), *ASK[:4], "--task", "interpolate", *QUICK, *out).exit_code == 0
    asked = written(pd.DataFrame({"who": ["007", "7", "NA"], "t": [0.5, 1.5, 0.7]}), tmp_path / "q.csv")
    assert ids_of_predictions(file, "--queries", str(asked)) == ["007", "7", "NA"]
    more = written(visits(("01", "07", "70")).drop(columns="y"), tmp_path / "more.csv")
    labelled = written(visits(), tmp_path / "l.csv")
    assert "and 2 without a target" in fit(labelled, "--target", "y", "--unlabelled", str(more))  # 07 has one
