"""Which path every recipe and every estimator takes on a GPU, and why it is not the fastest.

A question to configurations alone, so it is answered on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lformer import estimators
from lformer.bench.recipes import recipe, stand_in
from lformer.data import DATASETS
from lformer.nn import LFormerConfig
from lformer.nn.fusion import Path, expected
from lformer.nn.predictor import Answer

ANSWERS: dict[str, Answer] = {  # of the estimators
    "LFormerClassifier": "series",
    "LFormerRegressor": "series",
    "LFormerPointClassifier": "step",
    "LFormerPointRegressor": "step",
    "LFormerForecaster": "query",
    "LFormerInterpolator": "query",
}


class Paths(NamedTuple):
    """Of one recipe or estimator."""

    name: str
    training: Path
    answering: Path


def all_paths() -> Iterator[Paths]:
    """Of the recipes of all data sets for their first tasks, and of the six estimators with their default settings.

    Example:
        >>> {p.name: p.training.name for p in all_paths()}["physionet"]
        'fused mixers'
    """
    for name in DATASETS:
        yield _paths(name, recipe_config(name))
    for name in ANSWERS:
        yield _paths(name, estimator_config(name))


def recipe_config(dataset: str) -> LFormerConfig:
    """As the recipe of a data set builds its model, for data that stand in for it."""
    plan, task = recipe(dataset), DATASETS[dataset].card.tasks[0]
    spec = stand_in(task)
    if task == "trajectory" and plan.data.get("unobserved", "query") == "query":
        spec = replace(spec, answer="query")
    return plan.config(spec)


def estimator_config(name: str) -> LFormerConfig:
    """As an estimator with its default settings builds its model, for one channel."""
    estimator = getattr(estimators, name)()
    return LFormerConfig(
        inputs=1, outputs=1, answer=ANSWERS[name], rows="carried", embedder="mlp", pooling="mean_last_max",
        width=estimator.width, depth=estimator.depth, heads=estimator.heads, dropout=estimator._dropout(),
        causal=estimator.streaming, gate_norm="prefix" if estimator.streaming else "sequence",
    )  # fmt: skip


def _paths(name: str, config: LFormerConfig) -> Paths:
    return Paths(name, expected(config), expected(config, training=False))
