"""Series that are cut along time over two and four processes: the numbers and gradients of one process.

This file is also the script whose processes hold the stretches; each compares its own with the whole and reports.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from helpers import relative_error, require_close
from processes import Report, meet, report
from torch import Tensor

from lformer import ops
from lformer.ops import GateNorm, sharded

TIGHT = 1e-10
B, L, H, K, V = 4, 23, 2, 4, 3
LENGTHS = torch.tensor([23, 14, 5, 1])
HUGE = 12  # the row before which nothing happened for very long
MODES: list[tuple[bool, GateNorm]] = [
    (False, "sequence"), (False, "prefix"), (True, "prefix"), (True, "sequence"), (True, "none"),
]  # fmt: skip
CUTS = {  # of L rows, by how many processes: even, uneven, and with empty stretches at either end and between
    2: [(0, 11, 23), (0, 1, 23), (0, 0, 23), (0, 23, 23)],
    4: [(0, 6, 12, 18, 23), (0, 3, 3, 17, 23), (0, 0, 11, 12, 23), (0, 23, 23, 23, 23)],
}


class Series(NamedTuple):
    """Rows (B, L, ...) of whole series or of stretches of them, and mu (H,)."""

    gate: Tensor
    deltas: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    mu: Tensor

    def part(self, rows: slice) -> "Series":
        """A stretch, as leaves that ask for gradients."""
        parts = [t[:, rows] for t in self[:-1]]
        return Series(*(t.detach().clone().requires_grad_() for t in (*parts, self.mu)))


def series(rows: int = L, gap: float = 1e6, dtype: torch.dtype = torch.float64) -> Series:
    """Uneven times with ties and one huge gap, ragged lengths, operands of every size."""
    g = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    deltas = torch.exp(normal(B, rows))
    deltas[:, 1::7] = 0.0
    deltas[:, HUGE] *= gap
    deltas = deltas * (torch.arange(rows) < LENGTHS[:, None])
    gate, mu = torch.sigmoid(normal(B, rows, H)), torch.sigmoid(normal(H))
    q, k, v = normal(B, rows, H, K), normal(B, rows, H, K) / K**0.5, normal(B, rows, H, V)
    return Series(*(t.to(dtype) for t in (gate, deltas, q, k, v, mu)))


def whole(x: Series, causal: bool, norm: GateNorm, backend: str = "reference") -> Tensor:
    decay = ops.normalise_decay(ops.liquid_decay(x.gate, x.deltas, x.mu), norm)
    return ops.liquid_gated_attention(x.q, x.k, x.v, decay, causal, backend=backend)


def stretch(x: Series, lengths: Tensor, causal: bool, norm: GateNorm) -> Tensor:
    decay = sharded.normalise_decay(sharded.liquid_decay(x.gate, x.deltas, x.mu, lengths), norm)
    return sharded.liquid_gated_attention(x.q, x.k, x.v, decay, causal)


def gradients(y: Tensor, x: Series, start: int = 0) -> Series:
    """Of a sum in which no two outputs of the whole count alike; `start` is the first row that is here."""
    size = H * V
    weights = torch.cos(torch.arange(start * size, start * size + y[0].numel(), dtype=torch.float64))
    found = Series(*torch.autograd.grad((y.flatten(1) * weights).sum(), x, materialize_grads=True))
    valid = torch.arange(start, start + y.shape[1]) < LENGTHS[:, None]
    return found._replace(deltas=found.deltas * valid)  # padding has no interval that could be another


def errors(x: Series, cut: tuple[int, ...], causal: bool, norm: GateNorm) -> dict[str, float]:
    """Of the outputs and all gradients of this process, relative to one process with the whole."""
    rank = dist.get_rank()
    rows = slice(*cut[rank : rank + 2])
    everything = x.part(slice(None))
    expected = whole(everything, causal, norm)
    wanted = gradients(expected, everything)
    mine = x.part(rows)
    y = stretch(mine, lengths_in(rows), causal, norm)
    found = gradients(y, mine, rows.start)
    dist.all_reduce(found.mu)
    pairs = zip(found[:-1], wanted[:-1], strict=True)
    return {"y": relative_error(y, expected[:, rows]), "mu": relative_error(found.mu, wanted.mu)} | {
        name: relative_error(a, b[:, rows], scale=float(b.abs().max()))
        for name, (a, b) in zip(Series._fields, pairs, strict=False)
    }


def lengths_in(rows: slice) -> Tensor:
    return (LENGTHS - rows.start).clamp(0, rows.stop - rows.start)


def float32_is_accurate(cut: tuple[int, ...], causal: bool, norm: GateNorm) -> bool:
    rank = dist.get_rank()
    rows = slice(*cut[rank : rank + 2])
    exact, narrow = series(), series(dtype=torch.float32)
    y = stretch(Series(*(t[:, rows] for t in narrow[:-1]), narrow.mu), lengths_in(rows), causal, norm)
    if y.numel():
        require_close(y, whole(narrow, causal, norm)[:, rows], whole(exact, causal, norm)[:, rows], scale=1.0)
    return True


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Numbers that this process gives to each kind of exchange."""
    sent: dict[str, int] = {"all_gather": 0, "reduce_scatter": 0}
    before = {name: getattr(dist, name) for name in sent}

    def counting(name: str, given: int) -> Any:
        def call(*tensors: Any, **more: Any) -> Any:
            sent[name] += sum(t.numel() for t in (tensors[given] if given else [tensors[1]]))
            return before[name](*tensors, **more)

        return call

    for name in sent:
        setattr(dist, name, counting(name, given=0 if name == "all_gather" else 1))
    yield sent
    for name, call in before.items():
        setattr(dist, name, call)


def traffic(rows: int, causal: bool, norm: GateNorm) -> dict[str, int]:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = series(rows).part(slice(rank * rows // size, (rank + 1) * rows // size))
    with counted() as sent:
        gradients(stretch(mine, torch.full((B,), mine.q.shape[1]), causal, norm), mine)
    return dict(sent)


def work() -> Report:
    """What each process does: every mode with every cut."""
    cuts = CUTS[dist.get_world_size()]
    said: Report = {"errors": {}, "float32": {}, "traffic": {}}
    for causal, norm in MODES:
        name = f"{'causal' if causal else 'non-causal'}, {norm}"
        for cut in cuts:
            said["errors"][f"{name}, {cut}"] = errors(series(), cut, causal, norm)
        said["float32"][name] = float32_is_accurate(cuts[0], causal, norm)
        said["traffic"][name] = [traffic(rows, causal, norm) for rows in (L, 4 * L)]
    said["errors"]["non-causal, none"] = errors(series(gap=1.0), cuts[1], False, "none")
    said["refused"] = refused()
    return said


def refused() -> str:
    """What is said of a series whose total decay is too much, though that of no stretch is."""
    size = dist.get_world_size()
    x = torch.ones(1, 2, 1, 1, dtype=torch.float64)
    try:
        sharded.liquid_gated_attention(x, x, x, torch.full((1, 2, 1), 400.0 / size, dtype=torch.float64))
    except OverflowError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Report]]:
    return report(__file__, tmp_path_factory.mktemp("sharded"), sizes=(2, 4))


@pytest.mark.parametrize("size", [2, 4])
def test_outputs_and_gradients_are_those_of_one_process(reports: dict[int, list[Report]], size: int) -> None:
    for said in reports[size]:
        assert len(said["errors"]) == len(MODES) * len(CUTS[size]) + 1
        found = {(case, name): e for case, of in said["errors"].items() for name, e in of.items()}
        assert {where: error for where, error in found.items() if not error <= TIGHT} == {}


@pytest.mark.parametrize("size", [2, 4])
def test_float32_is_as_accurate_as_the_reference(reports: dict[int, list[Report]], size: int) -> None:
    assert all(all(said["float32"].values()) and len(said["float32"]) == len(MODES) for said in reports[size])


@pytest.mark.parametrize("size", [2, 4])
def test_what_is_exchanged_does_not_depend_on_the_length(reports: dict[int, list[Report]], size: int) -> None:
    gate, total, memory = B * (H + 1), B * H, B * H * (K * V + 1)
    for said in reports[size]:
        for mode, (short, long) in said["traffic"].items():
            numbers = gate + memory + (0 if mode.endswith("none") else total)
            assert short == long == {"all_gather": numbers, "reduce_scatter": size * numbers}


def test_a_span_is_refused_in_all_processes_if_that_of_the_whole_is_too_long(reports: dict[int, list[Report]]) -> None:
    for said in [*reports[2], *reports[4]]:
        assert "decays by 800 in total" in said["refused"]


@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_a_process_alone_has_the_whole_series(causal: bool, norm: GateNorm) -> None:
    x = series()
    assert relative_error(stretch(x, LENGTHS, causal, norm), whole(x, causal, norm)) < TIGHT


if __name__ == "__main__":
    for processes in CUTS:
        meet(processes, work, Path(sys.argv[1]))
