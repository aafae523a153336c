"""`lformer stream`: lines in, answers out, as they come; and a process that is killed goes on where it was saved."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import fitted, records
from test_cli import call
from test_cli_model import LONG, fit, labs
from typer.testing import CliRunner

from lformer import LFormerClassifier, LFormerForecaster, LFormerPointRegressor, Panel
from lformer.cli import app
from lformer.estimators import load

COMMAND = [sys.executable, "-c", "from lformer.cli import app; app()", "stream"]


def lines_of(X: Panel) -> list[dict[str, Any]]:
    """Every row of every series, in the order of time; the first of each has its covariates."""
    rows, begun = [], set()
    table = [
        (time, name, values)
        for name, (times, many) in zip(X.ids, X, strict=True)
        for time, values in zip(times, many, strict=True)
    ]
    for time, name, values in sorted(table, key=lambda row: row[0]):
        seen = {channel: float(v) for channel, v in zip(X.channels, values, strict=True) if not np.isnan(v)}
        stamp = str(time) if X.origin.dtype.kind == "M" else float(time)
        line: dict[str, Any] = {"id": str(name), "time": stamp, "values": seen}
        if name not in begun and X.static is not None:
            line["static"] = X.static.loc[name].astype(object).where(X.static.loc[name].notna(), None).to_dict()
        begun.add(name)
        rows.append(line)
    return rows


def streamed(folder: Path, lines: list[Any], *options: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    result = CliRunner().invoke(app, ["stream", str(folder), *options], input=text, env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def near(some: list[Any], others: list[Any]) -> bool:
    """The same probabilities for the same rows; how many are worked off at once changes their last digits."""
    rows = [[(one["id"], one["time"], *one["probability"]) for one in several] for several in (some, others)]
    chances = [np.array([list(one["probability"].values()) for one in several]) for several in (some, others)]
    return rows[0] == rows[1] and np.allclose(*chances, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerPointRegressor])
def test_the_last_answer_of_each_series_is_that_of_predict(kind: Any, dated: bool, tmp_path: Path) -> None:
    X = records(dated=dated)
    model = fitted(kind, X, streaming=True)
    model.save(tmp_path / "m")
    told, _ = streamed(tmp_path / "m", lines_of(X))
    assert len(told) == X.lengths.sum()
    last = {answer["id"]: answer for answer in told}
    for i, name in enumerate(X.ids):
        if kind is LFormerClassifier:
            wanted = dict(zip(model.classes_, model.predict_proba(X)[i], strict=True))
            assert last[name]["probability"] == pytest.approx(wanted, abs=1e-5)
            assert last[name]["prediction"] == max(wanted, key=lambda c: wanted[c])
        else:
            assert last[name]["prediction"] == pytest.approx(model.predict(X)[i][-1], abs=1e-4)


def test_forecasts_are_asked_for_in_between(tmp_path: Path) -> None:
    X = records()
    model = fitted(LFormerForecaster, X, streaming=True, max_epochs=2)
    model.save(tmp_path / "m")
    mine = [line for line in lines_of(X) if line["id"] == X.ids[0]]
    lines: list[dict[str, Any]] = []
    for line in mine:
        lines += [line, {"id": line["id"], "at": line["time"] + 0.05}]
    told, _ = streamed(tmp_path / "m", lines)
    asked = [answer for answer in told if "at" in answer]
    assert [answer["rows"] for answer in told if "time" in answer][-1] == len(mine)
    wanted = model.predict(X[[0]], [[asked[-1]["at"]]])[0][0]
    assert list(asked[-1]["values"].values()) == pytest.approx(wanted.tolist(), abs=1e-4)


def test_a_wrong_line_is_answered_by_an_error_and_the_others_go_on(tmp_path: Path) -> None:
    X = records()
    model = fitted(LFormerClassifier, X, streaming=True)
    model.save(tmp_path / "m")
    good = lines_of(X)
    wrong = [
        ("{", "not JSON"),
        ({"id": 1.5, "time": 1, "values": {}}, "a line must be an object such as"),
        ({"id": "p00"}, 'either "time", for a row, or "at"'),
        ({"id": "p00", "time": 99.0, "values": {"ph": 7.4}}, "channel 'ph' is not a channel of training: k, na"),
        ({"id": "p00", "time": 99.0, "values": {"k": "high"}}, "k must be a number; got 'high'"),
        ({"id": "p00", "time": "noon", "values": {"k": 1}}, "time must be a number; got 'noon'"),
        ({"id": "p00", "time": -99.0, "values": {"k": 1}}, "time must not go back"),
        ({"id": "new", "time": 1.0, "values": {"k": 1}}, "static covariates age, site"),
        ({"id": "nobody", "at": 1.0}, "series 'nobody' had no row yet"),
    ]
    lines: list[Any] = [*good, *(line for line, _ in wrong), ""]
    told, said = streamed(tmp_path / "m", lines)
    clean, _ = streamed(tmp_path / "m", good)
    assert near(told[: len(good)], clean)
    for n, (answer, (_, says)) in enumerate(zip(told[len(good) :], wrong, strict=True)):
        assert answer["line"] == len(good) + n + 1
        assert says in answer["error"]
    assert "9 invalid, 0 dropped as late" in said
    # In the midst of the others, which are then worked off one by one.
    told, _ = streamed(
        tmp_path / "m", [*good[:9], wrong[6][0] | {"time": good[0]["time"], "id": good[0]["id"]}, *good[9:]]
    )
    kept = [answer for answer in told if "error" not in answer]
    assert len(kept) == len(good)
    assert near(kept, clean)


def test_late_lines_are_dropped_or_merged(tmp_path: Path) -> None:
    X = records()
    model = fitted(LFormerClassifier, X, streaming=True)
    model.save(tmp_path / "m")
    mine = [line for line in lines_of(X) if line["id"] == X.ids[3]]
    late = [mine[0], *mine[2:], mine[1]]
    told, said = streamed(tmp_path / "m", late, "--late", "drop")
    assert told[-1]["dropped"]
    assert "dropped" not in told[-2]
    assert "1 dropped as late" in said
    # The same if all lines were waiting together, and others follow.
    told, said = streamed(tmp_path / "m", [*late, mine[-1] | {"time": 99.0}, ""], "--late", "drop")
    assert [n for n, answer in enumerate(told) if "dropped" in answer] == [len(late) - 1]
    told, _ = streamed(tmp_path / "m", [*late, mine[-1] | {"time": 99.0}, ""])
    assert ["error" in answer for answer in told] == [False] * (len(late) - 1) + [True, False]
    told, _ = streamed(tmp_path / "m", late, "--late", "merge")
    assert list(told[-1]["probability"].values()) == pytest.approx(model.predict_proba(X)[3].tolist(), abs=1e-5)


def test_a_model_of_the_command_line_streams_with_the_stamps_of_its_table(tmp_path: Path) -> None:
    table = labs().assign(when=lambda t: t.when.dt.strftime("%d.%m.%Y %H:%M"))
    table.to_csv(tmp_path / "labs.csv", index=False)
    stamps = ("--time-format", "%d.%m.%Y %H:%M", "--time-zone", "Europe/Berlin")
    fit(tmp_path / "labs.csv", *LONG, "--target", "state", "--streaming", *stamps)
    ordered = table.assign(at=pd.to_datetime(table.when, format="%d.%m.%Y %H:%M")).sort_values("at").dropna()
    lines = [{"id": row.who, "time": row.when, "values": {row.lab: row.x}} for row in ordered.itertuples()]
    told, _ = streamed(tmp_path / "model", lines)
    ordered.drop(columns="at").to_csv(tmp_path / "new.csv", index=False)
    result = call("predict", str(tmp_path / "model"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv"))
    assert result.exit_code == 0, result.output
    wanted = pd.read_csv(tmp_path / "p.csv").set_index("who").probability_ill
    last = {answer["id"]: answer["probability"]["ill"] for answer in told}
    assert [last[name] for name in wanted.index] == pytest.approx(wanted.tolist(), abs=1e-5)


def test_a_model_that_cannot_stream_and_a_foreign_state_are_refused(tmp_path: Path) -> None:
    X = records()
    fitted(LFormerClassifier, X).save(tmp_path / "whole")
    result = call("stream", str(tmp_path / "whole"))
    assert result.exit_code == 2
    assert "Fit it again with LFormerClassifier(streaming=True)" in " ".join(result.output.split())
    fitted(LFormerClassifier, X, streaming=True).save(tmp_path / "m")
    streamed(tmp_path / "m", lines_of(X), "--state", str(tmp_path / "s"))
    fitted(LFormerClassifier, X, streaming=True, random_state=8).save(tmp_path / "other")
    _, said = streamed(tmp_path / "other", [], "--state", str(tmp_path / "s"), code=2)
    assert "holds streams of another model" in said
    damaged = bytearray((tmp_path / "s" / "streams.sealed").read_bytes())
    damaged[-5] ^= 4
    (tmp_path / "s" / "streams.sealed").write_bytes(damaged)
    _, said = streamed(tmp_path / "m", [], "--state", str(tmp_path / "s"), code=2)
    assert "damaged" in said


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_killed_process_goes_on_from_its_state_and_sigterm_saves_it(tmp_path: Path) -> None:
    X = records(16)
    model = fitted(LFormerClassifier, X, streaming=True)
    model.save(tmp_path / "m")
    lines = lines_of(X)
    wanted, _ = streamed(tmp_path / "m", lines)

    def begin() -> subprocess.Popen[str]:
        command = [*COMMAND, str(tmp_path / "m"), "--state", str(tmp_path / "s"), "--every", "7"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes)

    def feed(process: subprocess.Popen[str], some: list[Any]) -> list[Any]:
        """Each line is answered before the next one comes."""
        assert process.stdin is not None
        assert process.stdout is not None
        found = []
        for line in some:
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            found.append(json.loads(process.stdout.readline()))
        return found

    with begin() as first:
        told = feed(first, lines[:17])
        first.kill()
    assert first.returncode == -signal.SIGKILL
    done = int(load(tmp_path / "m").streams().load(tmp_path / "s").rows().sum())
    assert done == 14  # after the second time seven lines
    with begin() as second:
        again = feed(second, lines[done:30])
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 143
    third, _ = streamed(tmp_path / "m", lines[30:], "--state", str(tmp_path / "s"))
    for found, begin_at in ((told, 0), (again, done), (third, 30)):
        assert near(found, wanted[begin_at : begin_at + len(found)])
    assert len(third) == len(lines) - 30
