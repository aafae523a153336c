"""What the explorer holds, without a browser: figures of the tables, commands, histories, and errors in words."""

import csv
import io
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from bench.explorer_records import BAD, SEEDS, everything, forecasts, run, written
from test_cli import call

from lformer.bench import explorer, grid, records, tables
from lformer.bench.explorer import site
from lformer.bench.explorer.compare import against, critical
from lformer.bench.explorer.gather import gather
from lformer.bench.explorer.page import SCRIPTS, in_script, page
from lformer.bench.explorer.runs import command, packed
from lformer.bench.records import Cell

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "results" / "bench"


def board(payload: dict[str, Any], dataset: str, task: str) -> dict[str, Any]:
    (found,) = [b for b in payload["boards"] if (b["dataset"], b["task"]) == (dataset, task)]
    return found


def line(payload: dict[str, Any], dataset: str, task: str, metric: str) -> dict[str, Any]:
    (found,) = [x for x in board(payload, dataset, task)["lines"] if x["metric"] == metric]
    return found


def pair(payload: dict[str, Any], system: str) -> dict[str, Any]:
    (row,) = [r for r in line(payload, "physionet", "extrapolate", "mse")["paired"]["rows"] if r["system"] == system]
    return row


@pytest.mark.parametrize("made", [everything(), records.read_all(COMMITTED)], ids=["made up", "committed"])
def test_every_figure_is_that_of_the_tables(made: list[dict[str, Any]]) -> None:
    payload, seen = gather(made), 0
    for table in tables.main_tables(made):
        for row in csv.DictReader(io.StringIO(table.csv())):
            names = ("dataset", "task", "split", "scaling")
            (own,) = [b for b in payload["boards"] if all(b[n] == row[n] for n in names)]
            (at,) = [x for x in own["lines"] if x["metric"] == row["metric"]]
            (system,) = [s for s in at["systems"] if s["name"] == row["column"]]
            assert system.get("mean", math.nan) == pytest.approx(float(row["mean"] or "nan"), nan_ok=True, rel=1e-6)
            assert system.get("sd", math.nan) == pytest.approx(
                float(row["std"] or "nan"), nan_ok=True, rel=1e-6, abs=1e-9
            )
            assert system.get("paper", {}).get("text", "") == row["paper"]
            assert system.get("rank") == (float(row["rank"]) if row["rank"] else None)
            if "mean" in system:  # and of the seeds behind it
                values = [value for _, value in system["points"] if value is not None]
                assert sum(values) / len(values) == pytest.approx(system["mean"], rel=1e-6)
                seen += 1
    assert seen > 15


def test_failures_marks_and_single_seeds_are_shown_as_such() -> None:
    payload = gather(everything())
    systems = {s["name"]: s for s in line(payload, "physionet", "extrapolate", "mse")["systems"]}
    assert systems["node"]["text"] == "OOT"
    assert "mean" not in systems["node"]
    assert systems["mtand"]["remark"] == "(1 seed)"
    assert "sd" not in systems["mtand"]
    assert systems["last-value"]["kind"] == "simple"
    assert systems["lformer best"]["kind"] == "variant"
    assert "paper" not in systems["lformer best"]
    assert systems["cru"] == {
        "name": "cru",
        "kind": "paper",
        "paper": {"text": "0.629±0.093", "mean": 0.629, "sd": 0.093},
    }
    ushcn = {s["name"]: s for s in line(payload, "ushcn", "extrapolate", "mse")["systems"]}
    assert ushcn["lformer"]["partial"] == f"7 of 9 stations {BAD}"
    assert ushcn["lformer"]["text"].endswith("‡")
    assert "comparable" not in ushcn["lformer"]


def test_ablations_stand_beside_the_papers() -> None:
    (shown,) = board(gather(forecasts()), "physionet", "extrapolate")["ablations"]
    systems = {s["name"]: s for s in shown["systems"]}
    assert systems["fixed_mu"]["paper"]["text"] == "0.374±0.006"
    assert len(systems["fixed_mu"]["points"]) == len(systems["full"]["points"]) == 5
    assert "text" not in systems["time_only"]


def test_lformers_best_is_chosen_by_validation_and_compared_seed_by_seed() -> None:
    made = forecasts()
    payload = gather(made)
    assert line(payload, "physionet", "extrapolate", "mse")["paired"]["best"] == "lformer best"
    values = {}
    for r in made:
        key = " ".join(filter(None, (r["cell"]["model"], r["cell"]["variant"], r["cell"]["ablation"])))
        values.setdefault(key, []).append(100 * r["metrics"].get("mse", math.nan))
    row = pair(payload, "gru")
    gains = [b - a for a, b in zip(values["lformer best"], values["gru"], strict=True)]
    assert row["seeds"] == row["wins"] == 5
    assert row["difference"] == pytest.approx(sum(gains) / 5, rel=1e-6)
    assert row["reprepared"] is False
    assert row["p"] < row["holm"]  # there are two tests: gru, last-value
    assert pair(payload, "transformer") == {"system": "transformer", "why": "2 common seeds; a test needs 3"}
    assert pair(payload, "node") == {"system": "node", "why": "OOT, 0 common seeds; a test needs 3"}
    for r in made:  # the same test figures, but validation prefers the paper's recipe
        if not r["cell"]["variant"] and r["cell"]["model"] == "lformer":
            r["validation"] = {"mse": 1e-5, "mse_unseen": 1e-5}
    assert line(gather(made), "physionet", "extrapolate", "mse")["paired"]["best"] == "lformer"


def test_different_data_and_short_training_are_not_compared() -> None:
    made = forecasts()
    for r in made:
        if r["cell"]["model"] == "gru":
            r["partial"] = "half of it"
    assert pair(gather(made), "gru")["why"] == "not of the same data: one of the two is partial"
    for r in (made := forecasts()):
        r["data"] = "other" if (r["cell"]["model"], r["cell"]["seed"]) == ("gru", 44) else r["data"]
    assert pair(gather(made), "gru")["reprepared"] is True
    (table,) = [t for t in tables.main_tables(made) if "Climate" in t.title]
    assert against(table.lines[0], {}) is None


def test_too_few_cells_are_said_in_words_and_enough_are_ranked() -> None:
    assert "There are none" in gather(forecasts()[:10])["critical"]["why"]
    names, made = ("lformer", "gru", "mamba", "cfc"), []
    for k, dataset in enumerate(("scp1", "scp2", "heartbeat", "ethanol")):
        for rank, model in enumerate(names):
            cell = Cell(dataset=dataset, task="classify", model=model)
            made.append(run(cell, {"accuracy": 0.9 - 0.1 * rank - 0.01 * k}, {"accuracy": 100.0}))
    made[-1] |= {"status": "OOM", "metrics": {}}
    found = gather(made)["critical"]
    assert found["systems"] == list(names)
    assert found["ranks"] == [1, 2, 3, 4]
    assert found["cells"] == ["ethanol, classify", "heartbeat, classify", "scp1, classify", "scp2, classify"]
    assert found["few"] is True
    assert found["p"] == pytest.approx(0.00738, abs=1e-5)  # chi-square 12 with 3 degrees of freedom
    made[0]["partial"] = "half"
    assert gather(made)["critical"]["cells"] == ["ethanol, classify", "heartbeat, classify", "scp2, classify"]
    assert critical([])["why"].endswith("There are none.")


def test_a_command_makes_the_cell_it_stands_beside() -> None:
    for record in records.read_all(COMMITTED):
        words = shlex.split(command(record))
        assert words[:3] == ["lformer", "bench", "run"]
        given = dict(zip(words[3::2], words[4::2], strict=True))
        given.pop("--time-limit", None)
        cells = grid.cells(
            datasets=[given.pop("--dataset")], tasks=[given.pop("--task")], models=[given.pop("--model")],
            seeds=grid.seeds(given.pop("--seeds")), ablations=[given.pop("--ablation", "")],
            variants=[given.pop("--variant", "")], split=given.pop("--split", "published"),
            scaling=given.pop("--scaling", "published"),
        )  # fmt: skip
        assert not given
        assert [records.cell_fields(cell) for cell in cells] == [record["cell"]]


def test_a_command_is_safe_to_paste() -> None:
    cell = Cell(dataset="a; rm -rf ~", task="$(boom)", model="x y", epochs=2)
    text = command({"cell": records.cell_fields(cell), "config": {"train": {"time_limit": 60.0}}})
    assert "--epochs 2 --time-limit 60 --seeds 42" in text
    assert shlex.split(text)[3:9] == ["--dataset", "a; rm -rf ~", "--task", "$(boom)", "--model", "x y"]


def test_histories_keep_their_digits() -> None:
    values = [0.0123456, 3.21, 0.0999, -0.5]
    exponent, *numbers = packed(values)
    assert exponent is not None
    assert [n * 10.0**exponent for n in numbers if n is not None] == pytest.approx(values, rel=1e-3)
    (record,) = [r for r in forecasts() if r["cell"]["model"] == "mtand"]
    (shown,) = [r for r in gather(forecasts())["runs"] if r["system"] == "mtand"]
    exponent, *numbers = shown["history"]["mse"]
    assert [n * 10.0**exponent for n in numbers] == pytest.approx([h["mse"] for h in record["history"]], rel=1e-3)


def test_nothing_of_a_record_becomes_markup(tmp_path: Path) -> None:
    text = explorer.write(written(tmp_path / "records", everything()), tmp_path / "index.html").read_text()
    assert re.findall(r"<(script|img|svg)\b", text) == ["script", "script"]
    assert text.count("</script>") == 2
    (data,) = re.findall(r'id="data">(.*?)</script>', text, flags=re.DOTALL)
    assert any(b["dataset"] == f"toy {BAD}" for b in json.loads(data)["boards"])
    assert json.loads(in_script({"a": "</script>&<!--\u2028"})) == {"a": "</script>&<!--\u2028"}
    assert not re.search(r"[<>&]", in_script({"a": "</script>&<!--"}))


def test_scripts_never_write_markup_and_ask_nobody() -> None:
    folder = ROOT / "lformer" / "bench" / "explorer"
    assert sorted(path.stem for path in folder.glob("*.js")) == sorted(SCRIPTS)
    for path in [*folder.glob("*.js"), *folder.glob("*.css")]:
        text = path.read_text()
        assert max(map(len, text.splitlines())) <= 120
        assert len(text.splitlines()) < 400
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|import\b|url\(", text
        )
        assert re.sub(r"http://www\.w3\.org/2000/svg", "", text).count("://") == 0


def test_the_page_of_all_records_is_small_and_the_same_every_time() -> None:
    found = records.read_all(COMMITTED)
    text = page(gather(found))
    assert len(text.encode()) < 2_000_000
    assert text == page(gather(reversed(found)))


def test_a_copy_without_records_says_so_on_its_site(tmp_path: Path) -> None:
    assert "This copy has no records" in site.text(tmp_path / "results" / "bench")
    text = site.text(written(tmp_path / "records", forecasts()))
    assert '<a href="results.html">' in text
    assert '"base":null' in text  # the records are not beside a site


def test_links_lead_from_the_page_to_the_records(tmp_path: Path) -> None:
    root = written(tmp_path / "my records", forecasts())
    out = explorer.write(root, tmp_path / "pages" / "here" / "index.html")
    (data,) = re.findall(r'id="data">(.*?)</script>', out.read_text(), flags=re.DOTALL)
    payload = json.loads(data)
    assert payload["base"] == "../../my%20records/"
    assert all((root / r["path"]).exists() for r in payload["runs"])
    assert len(payload["runs"]) == len(forecasts())


def test_the_command_writes_a_page_and_says_where(tmp_path: Path) -> None:
    root = written(tmp_path / "records", forecasts())
    result = call("bench", "page", "--records", str(root), "--out", str(tmp_path / "a" / "b.html"))
    assert result.exit_code == 0, result.output
    assert "".join(result.output.split()) == f"Page:{tmp_path}/a/b.html"
    assert (tmp_path / "a" / "b.html").read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.html"]


def test_what_cannot_be_done_is_said_in_words_and_ends_with_2(tmp_path: Path) -> None:
    def refused(records: Path, out: Path) -> str:
        result = call("bench", "page", "--records", str(records), "--out", str(out))
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
        return " ".join(result.output.split())

    out = tmp_path / "index.html"
    assert "there are no records in" in refused(tmp_path / "nowhere", out)
    assert "give the folder with --records" in refused(tmp_path / "nowhere", out)
    (tmp_path / "empty").mkdir()
    assert "no records in" in refused(tmp_path / "empty", out)
    root = written(tmp_path / "records", forecasts())
    assert "--out must end with .html" in refused(root, tmp_path / "index.txt")
    (tmp_path / "folder.html").mkdir()
    assert "is a folder" in refused(root, tmp_path / "folder.html")
    (tmp_path / "file").write_text("")
    assert "file" in refused(root, tmp_path / "file" / "index.html")
    path = root / "physionet" / "extrapolate" / "gru" / "seed43.json"
    good = path.read_text()
    path.write_text(good.replace('"status": "done"', '"status": "OOM"'))
    assert "seed43.json is damaged, or was changed since it was written" in refused(root, out)
    path.write_text(good[:200])
    assert "seed43.json is damaged: not JSON" in refused(root, out)
    assert not out.exists()


def test_a_metric_that_is_not_finite_is_a_collapse_and_no_number() -> None:
    made = forecasts()
    for r in made:
        if r["cell"]["model"] == "gru":
            r["metrics"] = {"mse": math.nan, "mse_unseen": math.inf}
            r["history"][3]["mse"] = math.inf
    payload = gather(made)
    json.dumps(payload, allow_nan=False)
    (gru,) = [s for s in line(payload, "physionet", "extrapolate", "mse")["systems"] if s["name"] == "gru"]
    assert gru["text"] == "collapse"
    assert len(SEEDS) == gru["failed"].count("collapse")
