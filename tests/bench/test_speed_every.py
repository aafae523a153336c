"""The study of every trained model: who takes part, what its table says, and its place on the page."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from lformer.baselines import BASELINES, FittedAtOnce
from lformer.bench import peers
from lformer.bench.layout import markdown
from lformer.bench.speed import __main__ as door
from lformer.bench.speed import every, page, sweep
from lformer.bench.speed.every import EveryConfig
from lformer.bench.speed.timing import Budget, Measured
from lformer.cli import app

TRAINED = [name for name, entry in BASELINES.items() if not issubclass(entry.model, FittedAtOnce)]
TINY: dict[str, Any] = {"length": 12, "batch": 2, "budget": Budget(1, 0.0)}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return every.run(EveryConfig(**TINY, folder=tmp_path_factory.mktemp("speed")))


def test_every_trained_model_takes_a_step_beside_lformer(record: dict[str, Any]) -> None:
    assert [cell["model"] for cell in record["cells"]] == ["lformer", *TRAINED]
    for cell in record["cells"]:
        assert (cell["work"], cell["batch"], cell["length"], cell["note"]) == ("training step", 2, 12, "")
        assert cell["seconds"] > 0
    assert record["parameters"]["gru"] == sum(p.numel() for p in peers.build("gru").parameters())


def cells(**seconds: float | None) -> list[dict[str, Any]]:
    both = {"batch": 8, "length": 4096, "peak_bytes": 3 * 2**20}
    return [
        {"model": name.replace("_", "-"), "work": "training step", "seconds": s, "note": "" if s else "OOM"} | both
        | ({} if s else {"peak_bytes": None}) for name, s in seconds.items()
    ]  # fmt: skip


def test_the_table_is_in_order_of_time_with_ratios_to_lformer(record: dict[str, Any]) -> None:
    sizes = {"lformer": 1000, "gru": 2000, "s5": None, "lru": 7, "rformer": 50}
    made = record | {"cells": cells(s5=None, lru=None, lformer=0.2, gru=0.5, rformer=0.05), "parameters": sizes}
    assert every.table(made) == [
        ["model", "parameters", "training step", "ratio", "peak memory"],
        ["rformer", "50", "50 ms", "0.2×", "3 MiB"],
        ["lformer", "1,000", "200 ms", "1.0×", "3 MiB"],
        ["gru", "2,000", "500 ms", "2.5×", "3 MiB"],
        ["s5", "", "OOM", "", ""],
        ["lru", "7", "OOM", "", ""],
    ]
    replays = [c | {"work": "replayed step", "peak_bytes": None} for c in cells(lformer=0.1, gru=0.4)]
    replays.append(replays[0] | {"model": "rformer", "seconds": None, "note": "no graph"})
    rows = every.table(made | {"cells": [*made["cells"], *replays]})
    assert rows[0][5:] == ["replayed step", "ratio"]
    assert [row[5:] for row in rows[1:]] == [
        ["no graph", ""],
        ["100 ms", "1.0×"],
        ["400 ms", "4.0×"],
        ["", ""],
        ["", ""],
    ]


def test_a_step_as_a_graph_is_measured_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EveryConfig().sweep().works == ("training step",)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert EveryConfig(device="cuda").sweep().works == ("training step", "replayed step")


def test_what_shorter_series_call_too_slow_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every.peers, "trained", lambda: ["gru"])
    seconds = {"lformer": 1e-4, "gru": 1e-2}  # of a row
    begun: list[tuple[str, int]] = []

    def timed(model: torch.nn.Module, data: Any, work: str, config: Any) -> Measured:
        name = "gru" if type(model).__name__ == "GRU" else "lformer"
        begun.append((name, data.values.shape[1]))
        return Measured(seconds[name] * data.values.shape[1], 100)

    monkeypatch.setattr(sweep, "_measured", timed)
    found = every.run(EveryConfig(length=4096, limit=20.0, folder=tmp_path))
    assert [(c["model"], c["note"]) for c in found["cells"]] == [("lformer", ""), ("gru", "OOT")]
    assert begun == [("lformer", 16), ("gru", 16), ("lformer", 64), ("lformer", 256), ("lformer", 4096), ("gru", 64),
                     ("gru", 256)]  # fmt: skip
    assert len(found["probes"]) == 6
    assert [EveryConfig(length=n).probes() for n in (12, 512)] == [(), (16, 32)]
    assert "OOT: a step was expected to take more than 20 s." in every.words(found)
    late = every.run(EveryConfig(length=4096, deadline=-1.0, folder=tmp_path))
    assert {c["note"] for c in late["cells"]} == {"not reached"}
    assert "Not reached: not begun within -1 s." in every.words(late)
    assert every.table(late)[1][2] == "not reached"


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a CUDA device")
def test_without_a_gpu_the_study_says_so() -> None:
    with pytest.raises(ValueError, match="there is no CUDA device here"):
        EveryConfig(device="cuda")


def test_the_page_shows_the_records_that_there_are(record: dict[str, Any], tmp_path: Path) -> None:
    assert page.records_of(tmp_path, "models") == {}
    (tmp_path / page.RECORDS).mkdir(parents=True)
    (tmp_path / page.RECORDS / "models-cpu.json").write_text(json.dumps(record))
    assert page.records_of(tmp_path, "models") == {"cpu": record}
    shown = page.models_part({"cpu": record})
    assert markdown(every.table(record)) in shown
    assert f"{torch.get_num_threads()} thread" in shown
    assert "batch 2, 12 rows of 12 features; width 64, depth 2" in shown
    assert "r-ode with units 64 and latent 32" in shown
    assert "OOT" not in shown
    assert page.models_part({}) == ""


def test_both_commands_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(every.peers, "trained", lambda: ["gru"])
    monkeypatch.setattr(every, "QUICK", TINY)
    command = ["speed", "--models", "all", "--quick", "--lengths", "16", "--batches", "3", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "models-cpu.json").read_text())
    assert [(c["model"], c["batch"], c["length"]) for c in written["cells"]] == [("lformer", 3, 16), ("gru", 3, 16)]
    door.main(["--models", "all", "--quick", "--out", str(tmp_path / "door")])
    assert "| gru | " in capsys.readouterr().out
    assert (tmp_path / "door" / "models-cpu.json").exists()
