"""Which path a model takes, as far as modules and shapes decide it; the kernels have tests of their own."""

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import irregular_batch

from lformer import nn
from lformer.nn import LFormer, LFormerConfig, fusion

FOLDER = Path(nn.__file__).parent


def test_one_page_of_the_models_knows_the_kernels() -> None:
    knows = set()
    for file in FOLDER.glob("*.py"):
        nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        if any((node.module or "").startswith("lformer.ops.fused") for node in nodes):
            knows.add(file.name)
    assert knows == {"fusion.py"}


@pytest.mark.parametrize(
    ("config", "training", "name", "reason", "remedy"),
    [
        ({}, True, "fused model", "", ""),
        ({"causal": True, "gate_norm": "prefix"}, True, "fused model", "", ""),
        ({"embedder": "relu"}, True, "fused mixers", "not a bare linear map", 'embedder="linear"'),
        ({"rows": "carried"}, True, "fused mixers", "more than values", 'rows="values"'),
        ({"dropout": 0.1}, True, "fused model", "", ""),
        ({"dropout": 0.1, "rows": "carried"}, True, "fused mixers", "more than values", 'rows="values"'),
        ({"dropout": 0.1}, False, "fused model", "", ""),
        ({"answer": "query"}, True, "fused layers", "only read", "step"),
        ({"width": 128}, True, "fused layers", "width 128", "widths (32, 64)"),
        ({"width": 48, "heads": 6}, True, "fused layers", "width 48", "widths (32, 64)"),
        ({"width": 40}, True, "fused operator", "width 40", "multiples of 16 up to 512"),
        ({"width": 512, "heads": 2}, True, "plain", "heads of 256", "heads of (8, 16, 32, 64, 128)"),
        ({"heads": 2, "causal": True}, True, "fused layers", "causal heads of 32", 'backend="fused"'),
        ({"gate_norm": "prefix"}, True, "fused layers", "prefix", "causal"),
        ({"causal": True, "gate_norm": "none"}, True, "fused operator", "none", "sequence"),
        ({"time_mixer": "softmax"}, True, "plain", "SoftmaxAttention", "liquid"),
        ({"backend": "parallel"}, True, "plain", "backend='parallel'", 'backend="auto"'),
        ({"embedder": "frames"}, True, "fused mixers", "(24, 24)", "64 channels"),
    ],
)  # fmt: skip
def test_what_runs_on_a_gpu_is_known_without_one(
    config: dict[str, Any], training: bool, name: str, reason: str, remedy: str
) -> None:
    path = fusion.expected(LFormerConfig(inputs=3, outputs=2, **config), training)
    assert path.name == name
    assert reason in path.reason
    assert remedy in path.remedy
    assert str(path) == (f"{name}: {path.reason} ({path.remedy})" if reason else name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what a CPU does")
def test_a_model_explains_itself() -> None:
    model = LFormer(LFormerConfig(inputs=3, outputs=2)).double()
    path = model.explain(irregular_batch(C=3))
    assert str(path) == 'plain: it is on cpu; backend="auto" fuses on CUDA alone (move model and batch to a GPU)'
    causal = LFormer(LFormerConfig(inputs=3, outputs=2, causal=True, gate_norm="prefix")).double()
    _, state = causal(irregular_batch(C=3), return_state=True)
    assert causal.explain(irregular_batch(C=3), state).reason == "a state is carried"
