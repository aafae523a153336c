"""One function per benchmark of the paper: data, model and training, complete (paper, supplement, implementation).

A variant changes fields: `recipe("scp1", ablation="fixed_mu")`; a baseline gets the same embedder, head and training:
`recipe("scp1", "gru")`. Where the paper is silent (batch sizes, number of epochs, schedules) the choice is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from lformer.bench.models import entry
from lformer.nn import LFormerConfig
from lformer.train import TrainConfig


@dataclass(frozen=True)
class Recipe:
    """A model, how to train it, and options of the data."""

    model: Any
    train: TrainConfig
    data: dict[str, Any] = field(default_factory=dict)


def bidmc() -> Recipe:
    """Long series, regression: heart rate, respiratory rate, oxygen saturation.

    Note: the paper's rate is 1e-3, constant. Ours rises to 2e-3 and falls to 0: on the validation windows of heart rate
    a root mean squared error of 1.27 after 60 epochs, against 1.29 after 108 at the constant rate.
    """
    model = LFormerConfig(inputs=2, outputs=1, embedder="relu_norm")
    training = TrainConfig(lr=2e-3, batch_size=64, epochs=60, schedule="cosine", warmup=0.05, patience=None)
    return Recipe(model, training)


def uea(channels: int, classes: int) -> Recipe:
    """Long series, classification."""
    model = LFormerConfig(inputs=channels, outputs=classes, embedder="relu")
    return Recipe(model, TrainConfig(lr=1e-3, batch_size=32, epochs=200))


def scp(channels: int) -> Recipe:
    """Long series, classification: one wide head, one mixer."""
    model = LFormerConfig(inputs=channels, outputs=2, embedder="relu", width=128, heads=1, depth=1)
    return Recipe(model, TrainConfig(lr=1e-3, batch_size=32, epochs=200))


def pendulum() -> Recipe:
    """Per point, regression from 24 x 24 frames.

    Note: at the paper's rate of 1e-2 training is unstable here; ours is 1e-3, falling to 0.
    """
    model = LFormerConfig(inputs=24 * 24, outputs=2, answer="step", embedder="frames", width=128)
    training = TrainConfig(lr=1e-3, batch_size=50, epochs=300, schedule="cosine", warmup=0.05, clip=1.0, patience=None)
    return Recipe(model, training)


def activity() -> Recipe:
    """Per point, classification."""
    model = LFormerConfig(inputs=12, outputs=7, answer="step", embedder="mlp", depth=4)
    return Recipe(model, TrainConfig(lr=1e-3, batch_size=64, epochs=200))


def spirals(asked: int) -> Recipe:
    """Interpolation and extrapolation of curves, asked at query times: at `asked` of the 150 in training.

    Note: the paper does not say how unobserved times enter; `data.load("spiral-2", unobserved="rows")` with
    answer="step" is its n-in, n-out reading. The paper's rate is 0.01, constant; ours rises to 0.02 and falls to 0, and
    gradients are clipped: chosen on the validation spirals.
    """
    model = LFormerConfig(inputs=2, outputs=2, answer="query", time_embedding="sinusoidal", width=32, depth=1)
    training = TrainConfig(lr=2e-2, batch_size=32, clip=0.02, schedule="cosine", warmup=0.05, epochs=100, patience=None)
    return Recipe(model, training, {"asked": asked})


def records(channels: int, batch_size: int) -> Recipe:
    """Reconstruction, interpolation and extrapolation of climate and clinical records."""
    model = LFormerConfig(
        inputs=channels, outputs=channels, answer="step", embedder="mlp", embedder_layers=3, head_layers=3
    )
    return Recipe(model, TrainConfig(lr=1e-3, batch_size=batch_size, epochs=300))


RECIPES: dict[str, Callable[[], Recipe]] = {
    "ethanol": partial(uea, 3, 4),
    "eigenworms": partial(uea, 6, 5),
    "heartbeat": partial(uea, 61, 2),
    "motor-imagery": partial(uea, 64, 2),
    "scp1": partial(scp, 6),
    "scp2": partial(scp, 7),
    "bidmc-hr": bidmc,
    "bidmc-rr": bidmc,
    "bidmc-spo2": bidmc,
    "activity": activity,
    "pendulum": pendulum,
    "spiral-2": partial(spirals, 150),
    "spiral-0.2": partial(spirals, 150),
    "spiral-0.02": partial(spirals, 75),
    "ushcn": partial(records, 5, 50),
    "physionet": partial(records, 37, 100),
}

ABLATIONS: dict[str, dict[str, Any]] = {
    "softmax_attention": {"time_mixer": "softmax"},
    "feed_forward": {"channel_mixer": "feed_forward"},
    "no_output_gate": {"output_gate": "none"},
    "shared_mu": {"mu": "shared"},
    "fixed_mu": {"mu": "fixed"},
    "time_only": {"rate": "time"},
    "no_normalisation": {"gate_norm": "none"},
}


def recipe(dataset: str, model: str = "lformer", ablation: str = "", task: str | None = None) -> Recipe:
    """The recipe for a data set and a model.

    Args:
        dataset: one of `RECIPES`.
        model: "lformer", or a baseline, which gets LFormer's embedder, head, width and depth.
        ablation: one of `ABLATIONS`, of LFormer only; "" for none.
        task: as in `data.load`; a classification of records needs another head than their reconstruction.
    """
    if dataset not in RECIPES:
        raise ValueError(f"no recipe for {dataset!r}; there are {', '.join(RECIPES)}.")
    plan = RECIPES[dataset]()
    if task == "classify" and plan.model.answer != "series":
        plan = replace(plan, model=replace(plan.model, answer="series", outputs=2))
    if ablation:
        if ablation not in ABLATIONS:
            raise ValueError(f"unknown ablation {ablation!r}; there are {', '.join(ABLATIONS)}.")
        if model != "lformer":
            raise ValueError(f"ablations exchange parts of LFormer; {model} has none of them.")
        plan = replace(plan, model=replace(plan.model, **ABLATIONS[ablation]))
    if model == "lformer":
        return plan
    config = entry(model).config
    shared = {f.name: getattr(plan.model, f.name) for f in fields(config) if hasattr(plan.model, f.name)}
    return replace(plan, model=config(**shared))
