"""Running the bench of defaults: one sealed record per cell, nothing run twice, and honest about what was not run."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from bench import problems
from test_cli import call

from lformer.bench.defaults import records, run
from lformer.bench.defaults.methods import METHODS
from lformer.bench.defaults.problem import Problem, fingerprint
from lformer.bench.defaults.records import Cell
from lformer.bench.defaults.rivals import OnSummaries
from lformer.bench.defaults.sets import DEFAULTS_SETS, Entry
from lformer.bench.records import RecordError
from lformer.data import MissingDataError

LEVELS = Cell(set="levels", method="logistic")


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sets of the tests beside those of the bench."""
    monkeypatch.setitem(DEFAULTS_SETS, "levels", Entry("series", lambda seed: problems.levels()))
    monkeypatch.setitem(DEFAULTS_SETS, "redrawn", Entry("series", _drawn, redrawn=True))
    monkeypatch.setitem(DEFAULTS_SETS, "weekly", Entry("forecast", lambda seed: problems.weekly()))
    monkeypatch.setitem(DEFAULTS_SETS, "absent", Entry("series", _absent))
    run._problem.cache_clear()
    yield
    run._problem.cache_clear()


def _drawn(seed: int) -> Problem:
    return problems.levels(seed=seed)


def _absent(seed: int) -> Any:
    raise MissingDataError("absent is not here; get it with a spade.")


def test_a_record_says_all_there_is_to_know(tmp_path: Path) -> None:
    (began, ended) = run.run([LEVELS], tmp_path)
    assert (began.status, ended.status) == ("running", "done")
    record = records.read(tmp_path / "test" / "levels" / "logistic" / "seed0.json")
    assert record["cell"] == {"set": "levels", "method": "logistic", "part": "test", "seed": 0}
    assert (record["kind"], record["measure"]) == ("series", "accuracy")
    assert record["scores"]["accuracy"] > 0.9
    assert record["scores"].keys() == record["errors"].keys() == {"accuracy", "log_loss", "auroc"}
    assert record["n"] == {"train": 30, "test": 30}
    assert record["fit_seconds"] > 0
    assert record["predict_seconds"] >= 0
    assert record["data"] == fingerprint(problems.levels())
    assert record["versions"].keys() >= {"lformer", "commit", "python", "numpy", "machine", "scikit-learn"}


def test_what_has_a_record_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [o.status for o in run.run([LEVELS], tmp_path)]
    monkeypatch.setattr(run, "run_cell", lambda *about: pytest.fail("it was run again"))
    assert [o.status for o in run.run([LEVELS], tmp_path)] == ["skipped"]
    assert first == ["running", "done"]


def test_a_changed_record_is_an_error_that_names_it(tmp_path: Path) -> None:
    list(run.run([LEVELS], tmp_path))
    path = LEVELS.path(tmp_path)
    text = path.read_text()
    path.write_text(text.replace('"test": 30', '"test": 31'))
    with pytest.raises(RecordError, match=r"seed0\.json is damaged.*Delete it"):
        list(run.run([LEVELS], tmp_path))
    path.write_text(text)
    moved = path.with_name("seed1.json")
    path.replace(moved)
    with pytest.raises(RecordError, match="another cell"):
        records.read_all(tmp_path)


def test_folds_give_a_record_of_their_own_from_the_training_part_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(set="levels", method="logistic", part="folds")
    whole = problems.levels()
    seen: set[Any] = set()
    fit, answer = OnSummaries.fit, OnSummaries.answer
    monkeypatch.setattr(OnSummaries, "fit", lambda s, p: (seen.update(p.train.ids), fit(s, p))[1])
    monkeypatch.setattr(OnSummaries, "answer", lambda s, p: (seen.update(p.test.ids), answer(s, p))[1])
    list(run.run([cell], tmp_path))
    record = records.read(tmp_path / "folds" / "levels" / "logistic" / "seed0.json")
    assert len(record["parts"]) == whole.folds
    assert record["n"]["test"] == len(whole.train)
    assert seen == set(whole.train.ids)
    scores = [part["scores"]["accuracy"] for part in record["parts"]]
    assert record["scores"]["accuracy"] == pytest.approx(sum(scores) / 3)


def test_no_method_is_shown_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    fit = OnSummaries.fit
    monkeypatch.setattr(OnSummaries, "fit", lambda self, problem: (shown.append(problem.truth), fit(self, problem))[1])
    list(run.run([LEVELS], tmp_path))
    assert shown == [[]]


def test_cells_are_every_method_that_can_answer_and_seeds_where_they_matter() -> None:
    made = run.cells(["levels", "weekly"], ["logistic", "boosting", "seasonal"], [0, 1])
    assert [(c.set, c.method, c.seed) for c in made] == [
        ("levels", "logistic", 0), ("levels", "boosting", 0), ("levels", "boosting", 1), ("weekly", "seasonal", 0),
    ]  # fmt: skip
    assert [c.seed for c in run.cells(["redrawn"], ["logistic"], [1, 2])] == [1, 2]
    assert [c.seed for c in run.cells(["levels"], ["logistic", "boosting"], [1, 2])] == [1, 2, 0]
    assert {c.part for c in run.cells(["levels"], [], [0], folds=True)} == {"folds"}
    with pytest.raises(ValueError, match="unknown set 'hills'; there are gunpoint"):
        run.cells(["hills"])
    with pytest.raises(ValueError, match="unknown method 'magic'; there are lformer, minirocket"):
        run.cells(["levels"], ["magic"])
    with pytest.raises(ValueError, match="none of seasonal can answer levels"):
        run.cells(["levels"], ["seasonal"])


def test_a_set_that_is_redrawn_has_other_data_for_each_seed(tmp_path: Path) -> None:
    list(run.run(run.cells(["redrawn"], ["logistic", "boosting"], [0, 1]), tmp_path))
    data = {(r["cell"]["method"], r["cell"]["seed"]): r["data"] for r in records.read_all(tmp_path)}
    assert data["logistic", 0] == data["boosting", 0] != data["logistic", 1] == data["boosting", 1]


def test_what_cannot_be_run_leaves_no_record_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*about: Any) -> Any:
        raise ZeroDivisionError("of all things")

    monkeypatch.setitem(METHODS, "broken", METHODS["logistic"]._replace(make=broken))
    monkeypatch.setitem(METHODS, "slow", METHODS["logistic"]._replace(why_not=lambda problem: "too slow: a day"))
    cells = run.cells(["absent", "levels"], ["slow", "broken", "logistic"])
    ended = {(o.cell.set, o.cell.method): (o.status, o.note) for o in run.run(cells, tmp_path)}
    assert ended["absent", "logistic"] == ("not here", "absent is not here; get it with a spade.")
    assert ended["levels", "slow"] == ("left out", "too slow: a day")
    assert ended["levels", "broken"] == ("failed", "ZeroDivisionError: of all things")
    assert ended["levels", "logistic"][0] == "done"
    assert len(records.read_all(tmp_path)) == 1


@pytest.mark.slow
def test_several_processes_make_the_same_records(tmp_path: Path) -> None:
    cells = run.cells(["pace", "sines"], ["logistic", "last-value", "linear-interpolation"])
    assert {o.status for o in run.run(cells, tmp_path / "two", workers=2)} == {"done"}
    list(run.run(cells, tmp_path / "one"))
    one, two = (
        [(r["cell"], r["scores"], r["errors"], r["data"]) for r in records.read_all(tmp_path / name)]
        for name in ("one", "two")
    )
    assert one == two
    assert len(one) == 3


def test_workers_end_with_whoever_started_them() -> None:
    context = get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    with ProcessPoolExecutor(1, mp_context=context, initializer=run._begin, initargs=(reader, 1)) as pool:
        assert pool.submit(abs, -3).result() == 3
        sleeping = pool.submit(time.sleep, 600)
        writer.close()
        with pytest.raises(BrokenProcessPool):
            sleeping.result(timeout=60)


# -- at the command line


def test_the_command_runs_skips_and_prints_the_table(tmp_path: Path) -> None:
    options = ("--sets", "levels,weekly", "--methods", "logistic,boosting,seasonal,last-value", "--seeds", "0-1")
    first = call("bench", "defaults", *options, "--out", str(tmp_path), "--device", "cpu")
    assert first.exit_code == 0, first.output
    assert "levels, boosting, test, seed 1: done" in first.output
    assert "5/5" in first.output
    again = call("bench", "defaults", *options, "--out", str(tmp_path))
    assert "5 of 5 cells already had a record" in again.output
    shown = call("bench", "defaults-table", "--out", str(tmp_path))
    assert shown.exit_code == 0, shown.output
    assert "| levels | accuracy, % ↑ |" in shown.output
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- defaults -->\n<!-- /defaults -->\n")
    written = call("bench", "defaults-table", "--out", str(tmp_path), "--write", str(page))
    assert written.exit_code == 0, written.output
    assert shown.output.strip() in page.read_text()
    assert json.loads((tmp_path / "test" / "weekly" / "seasonal" / "seed0.json").read_text())["scores"] == {
        "relative_mae": pytest.approx(0, abs=1e-12)
    }


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--sets", "hills"), 2, "unknown set 'hills'"),
        (("--sets", "levels", "--methods", "seasonal"), 2, "none of seasonal can answer levels"),
        (("--sets", "levels", "--seeds", "x"), 2, "seeds are numbers and ranges"),
        (("--sets", "absent", "--methods", "logistic"), 1, "absent is not here"),
    ],
)
def test_a_wrong_request_is_one_clear_line(tmp_path: Path, options: tuple[str, ...], code: int, says: str) -> None:
    result = call("bench", "defaults", *options, "--out", str(tmp_path))
    assert result.exit_code == code
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_table_without_records_says_what_to_do(tmp_path: Path) -> None:
    result = call("bench", "defaults-table", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "run `lformer bench defaults` first" in " ".join(result.output.split())
