"""Two processes with half of the series each come to the gradients of one with all of them."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ops.fused.blocks import ragged, whole_models
from ops.fused.interpreter import sparing_work
from torch import Tensor, multiprocessing
from torch.nn.parallel import DistributedDataParallel

from lformer.batch import IrregularBatch
from lformer.nn import LFormer

PASSES = 2  # after the first one DDP sorts its buckets again


def model_on(device: str) -> LFormer:
    return whole_models(depth=1)[0].float().to(device).train()


def half(rank: int, device: str) -> IrregularBatch:
    """Series of other lengths for each process."""
    return ragged(21 + 30 * rank, 3, torch.float32).to(device)


def loss(answers: Tensor) -> Tensor:
    return answers.sin().sum()


def work(rank: int, folder: str, device: str) -> None:
    """What each process does; it leaves its gradients in the folder."""
    from lformer.ops.fused import weights  # imports triton

    if device == "cpu":
        weights.SUM_BLOCK = 512  # see `few_programs`
    torch.set_float32_matmul_precision("high")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = model_on(device)
    batch, several = half(rank, device), DistributedDataParallel(model, gradient_as_bucket_view=True)
    assert model.explain(batch).name == "fused model"
    with sparing_work():
        for _ in range(PASSES):
            several.zero_grad()
            loss(several(batch)).backward()
    torch.save({name: p.grad.cpu() for name, p in model.named_parameters()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="this PyTorch was built without distributed training")
@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_gradients_are_those_of_both_halves(device: str, where: str, tmp_path: Path) -> None:
    if device != where:
        pytest.skip("the interpreter runs where there is no GPU")
    multiprocessing.spawn(work, (str(tmp_path), device), nprocs=2)
    torch.set_float32_matmul_precision("high")
    model = model_on(device)
    sum(loss(model(half(rank, device))) for rank in range(2)).backward()
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, p in model.named_parameters():
            expected = p.grad.cpu() / 2  # DDP takes the mean over processes
            assert float((found[name] - expected).abs().max()) <= 1e-6 * float(expected.abs().max()), name
