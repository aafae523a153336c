"""A whole model on series that are cut along time over two and four processes: the answers and gradients of one.

This file is also the script whose processes hold the stretches; each compares its own with the whole and reports.
"""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from helpers import irregular_arrays, irregular_batch, relative_error
from processes import Report, meet, report
from torch import Tensor

from lformer import IrregularBatch
from lformer.nn import LFormer, LFormerConfig, ShardedLFormer

TIGHT = 1e-10
L, T0 = 30, 900.0
MODELS: dict[str, dict[str, Any]] = {
    "paper": {},
    "paper, rows": {"answer": "step", "rows": "observed", "statics": 2, "time_embedding": "sinusoidal"},
    "prefix": {"gate_norm": "prefix", "pooling": "mean_last_max", "first_interval": "zero"},
    "streaming": {"causal": True, "gate_norm": "prefix", "answer": "step"},
    "causal, sequence": {"causal": True, "rows": "observed", "mu": "shared"},
    "vanilla": {"causal": True, "gate_norm": "none", "answer": "step", "marks": 1},
    "clock": {"rate": "time", "output_gate": "none", "causal": True, "gate_norm": "prefix"},
}
CUTS = {2: [(0, 13, L), (0, L, L)], 4: [(0, 7, 7, 22, L), (0, 0, 1, 29, L)]}


def model_of(options: dict[str, Any], seed: int = 0) -> LFormer:
    torch.manual_seed(seed)
    made = LFormer(LFormerConfig(**{"inputs": 3, "outputs": 2, "width": 8, "heads": 2} | options)).double()
    made.first_interval.fill_(0.7)
    return made


def whole() -> IrregularBatch:
    """Uneven times with ties and one huge gap, ragged lengths down to a single row, missing values; and one empty."""
    values, times, lengths = irregular_arrays(5, L, 3, seed=4)
    times[:, 16:] += 1e4
    lengths[1:] = torch.tensor([22, 8, 1, 0])
    g = torch.Generator().manual_seed(1)
    extra = {"static": torch.randn(5, 2, generator=g), "marks": torch.randn(5, L, 1, generator=g)}
    targets = torch.randn(5, L, 2, generator=g).double()
    return IrregularBatch.build(values, times, lengths=lengths, t0=T0, dtype=torch.float64, targets=targets, **extra)


def loss_of(answer: Tensor, batch: IrregularBatch) -> Tensor:
    """Squared errors over all valid rows, or those of the first target of each series."""
    assert batch.targets is not None
    if answer.dim() == 2:
        return ((answer - batch.targets[:, 0]) ** 2).sum()
    return ((answer - batch.targets) ** 2)[batch.valid].sum()


def gradients(model: LFormer) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def errors(options: dict[str, Any], mine: IrregularBatch, rows: slice | None) -> dict[str, float]:
    """Of the answers of this process, and of all gradients of the parameters, relative to one process."""
    alone, batch = model_of(options), whole()
    if options.get("answer") == "step":
        mine = replace(mine, targets=batch.targets[:, rows])
    expected = alone(batch)
    loss_of(expected, batch).backward()
    model = ShardedLFormer(model_of(options, seed=dist.get_rank()))  # the weights of the first are those of all
    answer = model(mine)
    loss_of(answer, mine).backward()
    model.sum_gradients()
    if answer.dim() == 3:
        answer, expected = answer[mine.valid], expected[:, rows][mine.valid]
    wanted, found = gradients(alone), gradients(model.model)
    assert wanted.keys() == found.keys()
    scale = max(float(gradient.abs().max()) for gradient in wanted.values())
    worst = {name: relative_error(found[name], wanted[name], scale) for name in wanted}
    return {"answer": relative_error(answer, expected), **worst}


def cut_by_series() -> IrregularBatch:
    """Stretches that end at another row of every series, and are padded there; built from stamps, not cut."""
    values, times, lengths = irregular_arrays(5, L, 3, seed=4)
    times[:, 16:] += 1e4
    lengths[1:] = torch.tensor([22, 8, 1, 0])
    rank, size = dist.get_rank(), dist.get_world_size()
    begin, end = ((lengths * r + torch.arange(5)).clamp(max=size * lengths) // size for r in (rank, rank + 1))
    begin = torch.where(torch.tensor(rank == 0), 0, begin)
    end = torch.where(torch.tensor(rank == size - 1), lengths, end)
    count = int((end - begin).max())
    at = (begin[:, None] + torch.arange(count)).clamp(max=L - 1)
    return IrregularBatch.build(
        values.gather(1, at[..., None].expand(-1, -1, 3)), times.gather(1, at), lengths=end - begin, t0=T0,
        dtype=torch.float64, targets=whole().targets,
    )  # fmt: skip


def refused(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def work() -> Report:
    """What each process does: every model with every cut, and what none of them takes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    said: Report = {"errors": {}}
    for name, options in MODELS.items():
        for cut in CUTS[size]:
            rows = slice(*cut[rank : rank + 2])
            said["errors"][f"{name}, {cut}"] = errors(options, whole().stretch(rows.start, rows.stop), rows)
    said["errors"]["cut by series"] = errors({}, cut_by_series(), None)
    model, mine = ShardedLFormer(model_of({})), whole().stretch(rank * 7, rank * 7 + 7)
    said["other series"] = refused(lambda: model(mine[: 5 - rank]))
    said["other start"] = refused(lambda: model(replace(mine, start=mine.start + rank)))
    said["out of order"] = refused(lambda: model(whole().stretch(7 * (size - rank - 1), 7 * (size - rank))))
    return said


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Report]]:
    return report(__file__, tmp_path_factory.mktemp("sharded"), sizes=(2, 4))


@pytest.mark.parametrize("size", [2, 4])
def test_answers_and_gradients_are_those_of_one_process(reports: dict[int, list[Report]], size: int) -> None:
    for said in reports[size]:
        assert len(said["errors"]) == len(MODELS) * len(CUTS[size]) + 1
        found = {(case, name): e for case, of in said["errors"].items() for name, e in of.items()}
        assert {where: error for where, error in found.items() if not error <= TIGHT} == {}


def test_stretches_that_do_not_belong_together_are_refused_by_all(reports: dict[int, list[Report]]) -> None:
    for said in [*reports[2], *reports[4]]:
        assert "every process must hold a stretch of the same series" in said["other series"]
        assert "Build all of them with the t0 of the whole series" in said["other start"]
        assert "Give the stretches to the processes in order of time" in said["out of order"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"answer": "query"}, "queries"),
        ({"rows": "carried"}, "carried"),
        ({"answer": "step", "persistence": "latest", "outputs": 3}, "persistence"),
        ({"answer": "step", "series_scale": True, "outputs": 3}, "series_scale"),
        ({"time_mixer": "softmax"}, "softmax"),
    ],
)
def test_a_model_that_reads_other_stretches_by_other_ways_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=f"cannot run on stretches.*{word}"):
        ShardedLFormer(model_of(options))


def test_queries_belong_to_no_stretch() -> None:
    asked = irregular_batch(L=6).with_queries(torch.zeros(4, 1))
    with pytest.raises(ValueError, match="query_times cannot be cut"):
        asked.stretch(0, 3)
    with pytest.raises(ValueError, match="query_times"):
        ShardedLFormer(model_of({}))(asked)


def test_a_stretch_beyond_the_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="0 <= start <= stop <= 6; got 4 and 7"):
        irregular_batch(L=6).stretch(4, 7)


@pytest.mark.parametrize("name", MODELS)
def test_a_process_alone_gives_the_answer_of_the_model(name: str) -> None:
    model, batch = model_of(MODELS[name]), whole()
    assert relative_error(ShardedLFormer(model)(batch.stretch(0, L)), model(batch)) < TIGHT


def test_the_page_calculates_with_the_recorded_steps() -> None:
    root = Path(__file__).parents[2]
    cells = json.loads((root / "results" / "speed" / "cuda.json").read_text())["million"]
    recorded = {cell["model"]: (cell["seconds"], cell["peak_bytes"]) for cell in cells if cell["length"] == 2**20}
    page = (root / "docs" / "long-series.md").read_text()
    for mode, name in (("non-causal", "lformer-plain"), ("causal", "lformer-plain-causal")):
        written = re.search(rf'"{mode}": \((.+), (.+)\),', page)
        assert written is not None
        assert [float(number) for number in written.groups()] == pytest.approx(recorded[name], rel=2e-3)


if __name__ == "__main__":
    for processes in CUTS:
        meet(processes, work, Path(sys.argv[1]))
