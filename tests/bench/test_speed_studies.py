"""The three studies with tiny sizes on a CPU: what is counted, measured, written and shown."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from lformer import LFormer, LFormerConfig
from lformer.bench import peers
from lformer.bench.speed import __main__ as door
from lformer.bench.speed import anchors, cells, figures, machine, page, studies, tables, throughput, timing
from lformer.bench.speed.cells import Cell
from lformer.bench.speed.floor import count, distances
from lformer.bench.speed.machine import Rates
from lformer.bench.speed.sweep import SpeedConfig, sweep
from lformer.bench.speed.throughput import NO_GRAPH, Rate
from lformer.bench.speed.timing import Budget
from lformer.cli import app
from lformer.cuda_graphs import RecordingError

ONCE = Budget(1, 0.0)
TINY: dict[str, Any] = {
    "device": "cpu", "models": ("lformer", "lformer-plain-causal", "gru"), "lengths": (8, 16), "million": 32,
    "inference": (2, 16), "matrix": 32, "copied": 1024, "budget": ONCE,
}  # fmt: skip


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return studies.run(studies.StudiesConfig(**TINY, folder=tmp_path_factory.mktemp("speed")))


def test_one_run_has_all_three_studies(record: dict[str, Any]) -> None:
    assert record["finished"]
    assert len(record["lengths"]) == 2 * 2 * 3
    assert [(c["model"], c["batch"], c["length"], c["work"]) for c in record["million"]] == [
        ("lformer", 1, 32, "training step"), ("lformer-plain-causal", 1, 32, "training step")
    ]  # fmt: skip
    assert len(record["throughput"]) == 3 * 2 * 3
    assert all(rate > 0 for rate in record["rates"].values())
    assert all(c["seconds"] > 0 and c["peak_bytes"] > 0 for c in (*record["lengths"], *record["million"]))
    assert "TF32" in record["setting"]["float32"]
    assert {a["model"] for a in record["anchors"]} == {"mamba ‡"}
    assert {d["model"] for d in record["distances"]} == {"lformer", "lformer-plain-causal"}
    assert tables.failures(record) == []


def test_the_record_on_disk_is_the_one_returned(tmp_path: Path) -> None:
    done = studies.run(studies.StudiesConfig(**TINY | {"models": ("lformer",)}, folder=tmp_path))
    written = json.loads((tmp_path / "cpu.json").read_text())
    assert written["lengths"] == done["lengths"]
    assert written["throughput"] == done["throughput"]
    assert (tmp_path / "cpu.md").read_text() == tables.page(done)


def test_a_run_that_is_interrupted_keeps_what_it_has(tmp_path: Path) -> None:
    def interrupt(found: object) -> None:
        written = json.loads((tmp_path / "cpu.json").read_text())  # there already, should the process be killed now
        assert asdict(found) in (*written["throughput"], *written["million"], *written["lengths"])
        if isinstance(found, Cell) and found.length == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studies.run(studies.StudiesConfig(**TINY, folder=tmp_path), interrupt)
    written = json.loads((tmp_path / "cpu.json").read_text())
    assert not written["finished"]
    assert len(written["throughput"]) == 18
    fused = [name for name in TINY["models"] if name in studies.FUSED]  # these come first
    assert [(c["model"], c["length"]) for c in written["lengths"]] == 2 * [(n, 8) for n in fused] + [(fused[0], 16)]
    assert "cut short" in (tmp_path / "cpu.md").read_text()


def test_a_run_that_ends_before_its_first_study_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> Rates:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "rates", interrupt)
    with pytest.raises(KeyboardInterrupt):
        studies.run(studies.StudiesConfig(**TINY, folder=tmp_path))
    assert json.loads((tmp_path / "cpu.json").read_text())["rates"] is None
    assert "cut short" in (tmp_path / "cpu.md").read_text()


def test_float32_products_are_in_tf32_during_the_run_and_as_before_after_it(tmp_path: Path) -> None:
    before, seen = torch.get_float32_matmul_precision(), set()
    torch.set_float32_matmul_precision("highest")
    config = studies.StudiesConfig(**TINY | {"models": ("gru",)}, folder=tmp_path)
    studies.run(config, lambda found: seen.add(torch.get_float32_matmul_precision()))
    after = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    assert seen == {"high"}
    assert after == "highest"


def test_half_precision_moves_weights_and_rows_and_leaves_time_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[torch.dtype, ...]] = []
    forward = LFormer.forward

    def spy(self: LFormer, batch: Any, **more: Any) -> Any:
        seen.append((self.head[-1].weight.dtype, batch.values.dtype, batch.deltas.dtype, batch.times.dtype))
        return forward(self, batch, **more)

    monkeypatch.setattr(LFormer, "forward", spy)
    found = list(throughput.throughput(("lformer",), 2, 16, "cpu", ONCE))
    assert set(seen) == {
        (torch.float32, torch.float32, torch.float32, torch.float64),
        (torch.bfloat16, torch.bfloat16, torch.float32, torch.float64),
    }
    assert [r.note for r in found] == 2 * ["", NO_GRAPH, NO_GRAPH]
    assert found[0].parameters == sum(p.numel() for p in peers.build("lformer").parameters())
    assert found[0].seconds is not None
    assert found[0].series_per_second == 2 / found[0].seconds


def test_a_broken_model_and_a_late_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> torch.nn.Module:
        raise ImportError("no such library")

    monkeypatch.setitem(peers.PEERS, "mambapy", peers.Peer(broken))
    found = list(throughput.throughput(("mambapy", "lformer"), 2, 8, "cpu", ONCE, deadline=-1.0))
    assert {(r.model, r.note, r.seconds) for r in found} == {
        ("mambapy", "failed: ImportError: no such library", None), ("lformer", "not reached", None)
    }  # fmt: skip


def test_a_replayed_step_is_the_step_and_its_memory_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = peers.build("lformer"), peers.random_batch(2, 8)
    steps: list[bool] = []
    model.register_forward_hook(lambda net, *_: steps.append(net.training))
    run = timing.call(model, batch, cells.REPLAY)
    run()
    assert steps == [True]
    assert all(parameter.grad is not None for parameter in model.parameters())
    works = (*cells.WORKS, cells.REPLAY)
    config = SpeedConfig(lengths=(8, 16), batches=(2,), models=("lformer", "lformer-causal"), works=works, budget=ONCE)
    found = list(sweep(config))
    assert [c.peak_bytes is None for c in found if c.work == cells.REPLAY] == [True] * 4
    assert all(c.peak_bytes for c in found if c.work != cells.REPLAY)
    told = cells.summary(found)
    assert "replayed step: causal over non-causal, time, worst" in told
    assert "replayed step: causal over non-causal, memory, worst" not in told

    def refuse(*_: object) -> None:
        raise RecordingError("cannot be recorded")

    assert timing.attempt(refuse) == timing.NOT_RECORDED


def test_the_floor_counts_every_product_of_a_layer() -> None:
    """With heads of 128 the plain path computes nothing twice and nothing in vain, so both counts agree exactly."""
    batch = peers.random_batch(2, 50)

    def flop(depth: int) -> int:
        config = LFormerConfig(inputs=12, outputs=7, width=256, heads=2, depth=depth, backend="parallel")
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            LFormer(config)(batch)
        return counter.get_total_flops()

    assert flop(2) - flop(1) == 2 * 50 * count(256, 2).flop
    assert count(64, 4, "training step", item=2) == (3 * 113_152, 8 * 64 * 2)


def test_the_distance_is_measured_over_the_longer_of_computing_and_moving() -> None:
    rates = Rates(copy=4e12, tf32=4e14, bf16=8e14)
    cells = [Cell("lformer", "training step", 8, 1000, 1e-3, 1), Cell("gru", "forward", 8, 1000, 1.0, 1)]
    speeds = [Rate("lformer", "bf16", "graph", 16, 4096, 1, 1e-4, 1.6e5)]
    shape = {"width": 64, "heads": 4, "depth": 2}
    step, graph = distances(cells, speeds, rates, shape)
    assert step.compute == pytest.approx(8 * 1000 * 2 * 3 * 113_152 / 4e14)
    assert step.move == pytest.approx(8 * 1000 * 2 * 8 * 64 * 4 / 4e12)
    assert step.times == pytest.approx(1e-3 / step.compute)
    assert graph.compute == pytest.approx(16 * 4096 * 2 * 113_152 / 8e14)
    assert graph.times == pytest.approx(1e-4 / graph.compute)
    moving = distances(cells, [], rates._replace(copy=4e11), shape)[0]
    assert moving.times == pytest.approx(1e-3 / moving.move)


def test_rates_are_bytes_both_ways_and_two_per_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "measure", lambda run, device, budget: (run(), machine_measured)[1])
    found = machine.rates("cpu", size=32, copied=1024, budget=ONCE)
    assert found == Rates(copy=2 * 1024 / 0.5, tf32=2 * 32**3 / 0.5, bf16=2 * 32**3 / 0.5)


machine_measured = type("Measured", (), {"seconds": 0.5})()


def test_the_tables_show_figures_anchors_the_paper_and_what_failed() -> None:
    cells = [Cell("lformer", "training step", 8, n, 1e-6 * n, 2**20 * n) for n in (8192, 16_384, 32_768)]
    rows = tables.table([*cells, *anchors.MAMBA_LENGTHS], "training step", 8, tables.SHOWN)
    assert rows[0] == ["model", "16,384", "32,768", "131,072", "exponent", "MiB at 131,072"]
    assert rows[1] == ["lformer", "16.38 ms", "32.77 ms", "", "1.00", ""]
    assert rows[2] == ["mamba ‡", "", "14.6 ms (0.4×)", "53.7 ms", "0.94", "9,421"]
    speeds = [
        Rate("lformer-plain", "tf32", "eager", 16, 4096, 111_383, 0.002, 8000.0),
        Rate("lformer-plain", "bf16", "graph", 16, 4096, 111_383, None, None, "failed: RuntimeError: no"),
        *anchors.MAMBA_THROUGHPUT,
    ]
    assert tables.throughput_table(speeds)[1:] == [
        ["lformer-plain", "111,383", "8,000", "", "", "", "failed", "", "4,653"],
        ["mamba ‡", "", "", "", "13,700", "", "", "21,500", "8,975"],
    ]
    slow = tables.throughput_table([Rate("r-ode", "tf32", "eager", 16, 4096, 34_425, 1.0, 16.0)])
    assert slow[1] == ["r-ode", "34,425", "16", "", "", "", "", "", "2.46"]
    million = tables.million_table([Cell("lformer", "training step", 1, 2**20, 0.012, 3 * 2**29)])
    assert million[1] == ["lformer", "1,048,576", "12 ms", "1.50 GiB"]


def test_the_page_names_every_failure_in_full(record: dict[str, Any]) -> None:
    bad = record["lengths"][0] | {"seconds": None, "peak_bytes": None, "note": "failed: ValueError: a | b"}
    page = tables.page(record | {"lengths": [bad, *record["lengths"][1:]]})
    assert "- lformer, forward, 8, 8: failed: ValueError: a | b" in page
    assert "| lformer | failed |" in page
    assert anchors.NOTE in page
    assert "times the floor" in page


def test_mamba_is_not_anchored_where_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(peers.PEERS, "mamba-ssm", peers.PEERS["lformer"])
    done = studies.run(studies.StudiesConfig(**TINY | {"models": ("lformer", "mamba-ssm")}, folder=tmp_path))
    assert done["anchors"] == []
    assert anchors.NOTE not in tables.page(done)


def test_the_default_models_are_ours_and_what_is_installed() -> None:
    assert studies.default_models("cpu") == (*studies.OURS, "gru", "transformer", "mamba", "r-ode")
    assert studies.StudiesConfig(device="cpu").models == studies.default_models("cpu")
    quick = studies.StudiesConfig.quick(device="cpu", lengths=(64,))
    assert (quick.lengths, quick.deadline) == ((64,), 25.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a CUDA device")
def test_without_a_gpu_the_studies_say_so() -> None:
    with pytest.raises(ValueError, match="there is no CUDA device here"):
        studies.StudiesConfig()


def test_the_page_is_filled_between_its_marks(record: dict[str, Any], tmp_path: Path) -> None:
    cpu = {"cells": [c | {"batch": page.BATCH} for c in record["lengths"]]}
    text = "before\n<!-- speed -->old<!-- /speed -->\n<!-- speed-gpu -->\nold\n<!-- /speed-gpu -->\n"
    text += "<!-- speed-scaling -->old<!-- /speed-scaling -->\n<!-- speed-models -->old<!-- /speed-models -->\nafter\n"
    filled = page.filled(text, cpu, record)
    assert filled.startswith("before\n")
    assert filled.endswith("after\n")
    assert "old" not in filled
    assert tables.highlights(record) in filled
    assert page.filled(filled, cpu, record) == filled
    for broken in ("no marks", "<!-- speed --> and no end"):
        with pytest.raises(ValueError, match="a page needs the marks <!-- speed -->"):
            page.filled(broken, cpu, record)
    (tmp_path / page.RECORDS).mkdir(parents=True)
    (tmp_path / page.PAGE).parent.mkdir()
    (tmp_path / page.PAGE).write_text(text)
    for name, found in (("cpu", cpu), ("cuda", record)):
        (tmp_path / page.RECORDS / f"{name}.json").write_text(json.dumps(found))
    page.main(tmp_path)
    assert (tmp_path / page.PAGE).read_text() == filled
    for picture in page.PICTURES.values():
        assert ((tmp_path / page.PAGE).parent / picture).read_bytes().startswith(b"\x89PNG")


def test_the_figure_draws_other_runs_as_stars_without_a_line() -> None:
    assert figures._style("mamba ‡")["linestyle"] == "none"
    assert figures._style("lformer-causal")["linestyle"] == "--"


def test_the_door_for_torch_and_numpy_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"lengths": (8,), "batches": (2,), "models": ("lformer",), "budget": ONCE}
    monkeypatch.setattr(door.SpeedConfig, "QUICK", few)
    door.main(["--quick", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert "forward: growth exponent of lformer" in json.loads(said.out)
    assert "Cell(model='lformer'" in said.err
    assert (tmp_path / "cpu.json").exists()

    tiny = studies.StudiesConfig(**TINY | {"models": ("lformer",)}, folder=tmp_path / "gpu")
    monkeypatch.setattr(studies.StudiesConfig, "quick", lambda folder: tiny)
    door.main(["--device", "cuda", "--quick", "--out", "unused"])
    assert "## Floor" in capsys.readouterr().out


def test_the_command_hands_over_its_choices_prints_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    real = studies.StudiesConfig

    def tiny(**given: Any) -> studies.StudiesConfig:
        asked.update(given)
        return real(**TINY | given | {"device": "cpu"})

    monkeypatch.setattr(studies.StudiesConfig, "quick", tiny)
    command = ["speed", "--device", "cuda", "--quick", "--lengths", "8,16", "--batches", "4", "--models", "lformer,gru"]
    result = CliRunner().invoke(app, [*command, "--limit", "1.5", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert asked == {
        "lengths": (8, 16), "batch": 4, "models": ("lformer", "gru"), "limit": 1.5, "folder": tmp_path
    }  # fmt: skip
    assert "series per second" in result.output
    assert (tmp_path / "cuda.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_fails_when_a_cell_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> torch.nn.Module:
        raise ImportError("no such library")

    monkeypatch.setitem(peers.PEERS, "gru", peers.Peer(broken))
    tiny = studies.StudiesConfig(**TINY, folder=tmp_path)
    monkeypatch.setattr(studies.StudiesConfig, "quick", lambda **given: tiny)
    result = CliRunner().invoke(app, ["speed", "--device", "cuda", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "ImportError: no such library" in result.output


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_studies_run_on_a_gpu(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(False)  # the GPU's cumsum has no deterministic form
    gpu = {"device": "cuda", "models": studies.OURS, "inference": (4, 256)}
    done = studies.run(studies.StudiesConfig(**TINY | gpu, folder=tmp_path))
    assert done["finished"]
    assert tables.failures(done) == []
    assert all(entry["seconds"] > 0 for entry in (*done["throughput"], *done["lengths"], *done["million"]))
    assert (tmp_path / "cuda.json").exists()
