"""Which device a name stands for, and where a model is."""

import pytest
import torch
from torch import nn

from lformer.devices import choose, device_of


@pytest.mark.parametrize(
    ("name", "cuda", "mps", "chosen"),
    [
        ("auto", True, False, "cuda:0"), ("auto", False, True, "cpu"), ("auto", False, False, "cpu"),
        ("gpu", True, True, "cuda:0"), ("gpu", False, True, "mps"), ("cpu", True, True, "cpu"),
        ("cuda", True, False, "cuda:0"), ("cuda:1", True, False, "cuda:1"), ("mps", False, True, "mps"),
    ],
)  # fmt: skip
def test_a_name_stands_for_a_device(
    name: str, cuda: bool, mps: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2 * cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose(name) == torch.device(chosen)


def test_of_several_processes_each_has_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert choose("auto", 3) == choose("gpu", 3) == choose("cuda", 3) == torch.device("cuda", 3)
    assert choose("cuda:1", 3) == torch.device("cuda", 1)
    assert choose("cpu", 3) == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("gpu", RuntimeError, 'insists on a GPU, and PyTorch sees none here; device="auto" takes the CPU'),
        ("cuda:1", RuntimeError, 'device="cuda:1" is not here: PyTorch sees 0 CUDA devices'),
        ("tpu!", ValueError, "device must be .* got 'tpu!'"),
    ],
)
def test_a_device_that_is_not_here_is_refused(
    name: str, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(error, match=says):
        choose(name)


def test_a_model_is_where_its_first_tensor_is() -> None:
    assert device_of(nn.Linear(2, 2, device="meta")).type == "meta"
    assert device_of(nn.BatchNorm1d(2, affine=False, device="meta")).type == "meta"
    assert device_of(nn.Identity()).type == "cpu"
