"""Training on pieces of series: the answers are those of whole series, gradients end where a piece begins."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lformer import IrregularBatch, LFormer, LFormerConfig, data, tasks
from lformer.evaluate import as_precise
from lformer.tasks import Task
from lformer.train import TrainConfig, fit, pieces, seeded
from lformer.train.gradients import loss_of

KINDS: dict[str, Task] = {"step": tasks.regress_points(2), "series": tasks.classify(2)}


def build(answer: str, **choices: Any) -> LFormer:
    torch.manual_seed(0)
    given: dict[str, Any] = {"rows": "carried", "neighbours": 2, "pooling": "mean_last_max", "width": 8, "heads": 2}
    settings = {"inputs": 3, "outputs": 2, "answer": answer, "causal": True, "gate_norm": "prefix"} | given | choices
    return LFormer(LFormerConfig(**settings)).double()


def batch_of(answer: str) -> IrregularBatch:
    """Five series of up to 23 rows, uneven, with holes, weights and some targets missing."""
    torch.manual_seed(1)
    lengths = torch.tensor([23, 8, 9, 1, 17])
    values = torch.randn(5, 23, 3).double()
    values[torch.rand(5, 23, 3) < 0.4] = float("nan")
    times = torch.rand(5, 23).double().cumsum(1)
    targets = torch.randn(5, 23, 2).double() if answer == "step" else torch.tensor([0, 1, 1, 0, 1])
    asked = (
        (torch.rand(5, 23, 2) < 0.8) & (torch.arange(23) < lengths[:, None])[..., None] if answer == "step" else None
    )
    batch = IrregularBatch.build(
        values, times, lengths=lengths, targets=targets, targets_observed=asked, dtype=torch.float64
    )
    return replace(batch, weights=torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0]))


def gradients(model: LFormer, answer: str, rows: int | None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    batch, task = as_precise(batch_of(answer), model), KINDS[answer]
    if rows is None:
        loss = loss_of(task, model, batch)
        loss.backward()
    else:
        loss = pieces.gradients(model, task, batch, rows)
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("rows", [1, 4, 8, 22, 23, 50])
@pytest.mark.parametrize("answer", ["step", "series"])
def test_the_loss_is_that_of_whole_series_and_gradients_within_a_piece_are_too(answer: str, rows: int) -> None:
    model = build(answer)
    loss, whole = gradients(model, answer, None)
    cut, found = gradients(model, answer, rows)
    torch.testing.assert_close(cut, loss, rtol=1e-6, atol=1e-7)
    last = next(name for name in whole if name.startswith("head") and name.endswith("weight"))
    torch.testing.assert_close(found[last], whole[last], rtol=1e-6, atol=1e-8)  # which needs no way back
    same = all(torch.allclose(found[name], whole[name], rtol=1e-6, atol=1e-8) for name in whole)
    assert same == (rows >= 23)


def test_a_gradient_ends_where_its_piece_begins() -> None:
    model, task = build("step"), KINDS["step"]
    batch = as_precise(batch_of("step"), model)
    batch.values.requires_grad_()
    *_, final = pieces.losses(model, task, batch, 8)
    final.backward()
    assert batch.values.grad is not None
    assert not batch.values.grad[:, :16].any()
    assert batch.values.grad[:, 16:].any()


def test_the_trainer_learns_from_pieces_and_says_what_it_cannot() -> None:
    splits = _rows()
    task = tasks.classify(2, answer="step")
    with seeded(0):
        model = LFormer(
            LFormerConfig(inputs=1, outputs=2, answer="step", causal=True, gate_norm="prefix", width=8, heads=2)
        )
    config = TrainConfig(epochs=6, lr=2e-2, batch_size=8, device="cpu", piece_rows=7)
    result = fit(model, task, splits, config, progress=False)
    assert result.history[-1]["loss"] < 0.7 * result.history[0]["loss"]
    with pytest.raises(ValueError, match="piece_rows must be at least 1, or None; got 0"):
        fit(model, task, splits, TrainConfig(epochs=1, device="cpu", piece_rows=0), progress=False)
    ahead = LFormer(LFormerConfig(inputs=1, outputs=2, answer="step", width=8, heads=2))
    with pytest.raises(RuntimeError, match="this layer cannot carry a state"):
        fit(ahead, task, splits, config, progress=False)
    asked = LFormer(LFormerConfig(inputs=2, outputs=2, answer="query", causal=True, gate_norm="prefix"))
    with pytest.raises(
        ValueError, match=r'piece_rows=7 is for an LFormer that predicts per row or per series.*"query"'
    ):
        fit(asked, tasks.trajectory(), data.load("spiral-0.02", steps=4), config, progress=False)


def _rows() -> Any:
    """Whether the running sum of a series is above 0, asked at each of its rows."""
    import numpy as np

    from lformer import Panel
    from lformer.parts import Prepared, Targets, splits_of

    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 31, 24)
    series = [(np.cumsum(rng.exponential(1, n)), rng.normal(size=(n, 1))) for n in lengths]
    labels = np.concatenate([(np.cumsum(values[:, 0]) > 0).astype(np.int64) for _, values in series])
    targets = Targets(values=labels, at="rows", first=np.cumsum(lengths) - lengths, lengths=lengths)
    parts = {"train": np.arange(16), "validation": np.arange(16, 24), "test": np.arange(16, 24)}
    return splits_of(Prepared(panel=Panel.from_list(series), targets=targets, **parts), "sums", "classify-points", 0)
