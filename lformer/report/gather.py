"""Collect the facts of a report from a fitted estimator and series with their targets."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch

import lformer
from lformer.doctor.words import counted, percent
from lformer.estimators.asking import (
    aligned,
    hidden,
    matched,
    of_classes,
    of_points,
    of_records,
    rules,
    selected,
    unasked,
)
from lformer.estimators.base import LFormerEstimator, members_of
from lformer.evaluate import predict
from lformer.explain import channel_importance, half_life, time_importance
from lformer.panel import Array, Panel
from lformer.report import coverage, scores
from lformer.report.examples import of_rows, of_series, of_values
from lformer.report.facts import Facts, Numbers, Score

SCORED = 5000  # largest number of series that are scored
ROWS = 300_000  # rows that are read to measure importance, over all passes
MANY = 16  # with more channels, each is exchanged only once
MEASURED = 20_000  # rows on which half-lives are measured
QUESTIONS = {
    "LFormerClassifier": "classify whole series",
    "LFormerRegressor": "regress a number for each series",
    "LFormerPointClassifier": "classify each row of a series",
    "LFormerPointRegressor": "regress a number for each row of a series",
    "LFormerInterpolator": "interpolate between the rows of a series",
    "LFormerForecaster": "forecast the values after the last row of a series",
}
METRICS = {
    "crps": "CRPS",
    "crps_own": "CRPS",
    "cross_entropy": "log loss",
    "mse_unseen": "MSE of hidden values",
    "rmse": "RMSE",
    "mse": "MSE",
}


def gather(
    estimator: Any, X: Any, y: Any, title: str | None, trained_on: Panel | None, note: str, random_state: int
) -> Facts:
    """All facts of a report. If there are more than `SCORED` series, some are drawn at random, which is noted."""
    draws = np.random.default_rng(random_state)
    panel, truth = matched(estimator, X), aligned(estimator, X, y)
    notes = [note] if note else []
    if len(panel) > SCORED:
        notes.append(f"Scored on {SCORED:,} of {len(panel):,} series, drawn at random.")
        chosen = np.sort(draws.permutation(len(panel))[:SCORED])
        panel, truth = panel[chosen].compact(), selected(truth, chosen)
    name, task = type(estimator).__name__, estimator.task_
    naive = getattr(estimator, "naive_", None)
    facts = Facts(
        title=title or name,
        kind=name,
        question=QUESTIONS[name],
        trained_on="" if trained_on is None else _described(trained_on),
        looked_at=_described(panel),
        series=len(panel),
        validation=_validation(estimator),
        scores=[],
        monitor=METRICS.get(task.monitor, task.monitor),
        lower_is_better=task.direction == "min",
        history=[_plain(row, task.monitor) for row in getattr(estimator, "history_", [])],
        naive=None if naive is None else (naive, float(estimator.naive_score_)),
        notes=notes,
        settings=_settings(estimator),
        versions=_versions(),
    )
    if of_records(estimator):
        _look_at_records(facts, estimator, panel)
    else:
        _look_at_answers(facts, estimator, panel, truth)
    _look_inside(facts, estimator, panel, truth, draws)
    return facts


def _look_at_answers(facts: Facts, estimator: Any, panel: Panel, truth: Any) -> None:
    """Add scores and examples of predictions per series or row."""
    points, classes = of_points(estimator), of_classes(estimator)
    told = estimator.predict_proba(panel) if classes else estimator.predict(panel)
    joined = {"model": np.concatenate(told) if points else np.asarray(told)} | _by_rules(estimator, panel, points)
    known = np.concatenate(truth) if points else np.asarray(truth)
    if classes:
        code = np.searchsorted(estimator.classes_, known)
        if (wrong := estimator.classes_[code % len(estimator.classes_)] != known).any():
            new = known[np.argmax(wrong)]
            raise ValueError(f"y has the class {new!r}, which is not a class of training: {estimator.classes_[:8]}.")
        facts.classes, facts.probabilities, facts.labels = estimator.classes_.tolist(), joined["model"], code
        facts.scores = scores.of_classes(code, joined, len(estimator.classes_))
        missed = 1 - joined["model"][np.arange(len(code)), code]
        lengths = panel.lengths if points else np.ones(len(panel), np.int64)
        facts.coverage = coverage.of_sets(estimator, joined["model"], code, lengths)
    else:
        joined = {name: _table(one) for name, one in joined.items()}
        known = _table(known.astype(np.float64))
        facts.scores = scores.of_numbers(known, joined)
        some = np.isfinite(known)
        facts.numbers = [
            Numbers(f"output {k}" if known.shape[1] > 1 else "target", joined["model"][c, k], known[c, k])
            for k, c in enumerate(some.T)
            if c.any()
        ]
        missed = np.abs(joined["model"] - known)[:, 0]
        facts.coverage = coverage.of_intervals(estimator, panel, truth)
    facts.examples = (of_rows if points else of_series)(estimator, panel, joined["model"], known, missed)


def _look_at_records(facts: Facts, estimator: Any, panel: Panel) -> None:
    """Add scores and examples of values that were hidden."""
    facts.scores = scores.of_records(estimator.compare(panel), type(estimator).__name__)
    part = hidden(estimator, panel)
    targets = part.targets
    assert targets.lengths is not None
    assert targets.given is not None
    with estimator._answering() as model:
        answers = predict(model, estimator.task_, part, estimator.batch_size)
    told = np.concatenate([estimator._decode(a[:n]) for a, n in zip(answers, targets.lengths, strict=True)])
    seen = np.ones(targets.values.shape, bool) if targets.observed is None else targets.observed
    asked = seen & ~targets.given
    facts.numbers = [
        Numbers(name, told[asked[:, c], c], targets.values[asked[:, c], c].astype(np.float64))
        for c, name in enumerate(part.panel.channels)
        if asked[:, c].any()
    ]
    facts.examples = of_values(estimator, part, told, asked)
    facts.coverage = coverage.of_intervals(estimator, panel, None)


def _look_inside(facts: Facts, estimator: Any, panel: Panel, truth: Any, draws: np.random.Generator) -> None:
    """Add the importance of channels and time stamps, and half-lives, on a sample of the series if there are many."""
    C = len(panel.channels)
    repeats = 1 if C > MANY else 2
    passes = (C + 1) * repeats + 3
    some = _some(panel, ROWS // passes, draws)
    facts.importance_on = _of(some, panel)
    fewer, known = panel[some].compact(), selected(truth, some)
    scoring, facts.lost = _scoring(estimator, known)
    more: dict[str, Any] = {"scoring": scoring, "repeats": repeats, "random_state": 0}
    try:
        facts.stamps = time_importance(estimator, fewer, known, **more)
        if len(fewer) > 1:
            facts.channels = channel_importance(estimator, fewer, known, **more)
    except ValueError as error:  # too few series to hide rows in, for instance
        facts.notes.append(f"The importance of channels and time stamps was not measured: {error}")
    some = _some(panel, MEASURED, draws)
    facts.half_lives, facts.half_lives_on = half_life(estimator, panel[some]), _of(some, panel)
    if not estimator.model_.config.causal:
        facts.memory = (
            " This model distributes the same total decay over every record: long records fade more slowly than short "
            "ones, and late observations never fade by half."
        )


def _by_rules(estimator: LFormerEstimator, panel: Panel, points: bool) -> dict[str, Array]:
    """The predictions of the simple models of `fit`, in the form of the estimator's own."""
    found = {}
    for name, rule in rules(estimator).items():
        outputs = predict(rule, estimator.task_, unasked(estimator, panel), estimator.batch_size)
        decoded = [estimator._decode(one) for one in outputs] if points else [estimator._decode(torch.stack(outputs))]
        found[name] = np.concatenate(decoded)
    return found


def _scoring(estimator: Any, truth: Any) -> tuple[str | None, str]:
    """The score that importance is measured in: AUC for two classes, because accuracy hardly changes if one is rare."""
    if of_records(estimator):
        return None, "increase in MSE of hidden values"
    if not of_classes(estimator):
        return None, "decrease in R²"
    both = not of_points(estimator) and len(estimator.classes_) == 2 == len(np.unique(truth))
    return ("roc_auc", "decrease in AUC") if both else (None, "decrease in accuracy")


def _some(panel: Panel, rows: int, draws: np.random.Generator) -> Array:
    """Positions of series drawn at random, with about `rows` rows in total, but at least 30 series if there are."""
    order = draws.permutation(len(panel))
    count = int(np.searchsorted(np.cumsum(panel.lengths[order]), rows, side="right"))
    return np.sort(order[: max(count, 30)])


def _of(some: Array, panel: Panel) -> str:
    whole = counted(len(panel), "series")
    return f"all {whole}" if len(some) == len(panel) else f"{len(some):,} of {whole}, drawn at random"


def _validation(estimator: Any) -> list[Score]:
    """The score of `fit` on its validation series; empty after loading."""
    if not hasattr(estimator, "validation_score_"):
        return []
    task = estimator.task_
    others = {estimator.naive_: float(estimator.naive_score_)}
    metric = METRICS.get(task.monitor, task.monitor)
    return [Score(metric, float(estimator.validation_score_), others, task.direction == "max")]


def _plain(row: dict[str, float], monitor: str) -> dict[str, float]:
    """The numbers of an epoch that the curves show."""
    return {"member": row.get("member", 0), "epoch": row["epoch"], "loss": row["loss"], "validation": row[monitor]}


def _described(panel: Panel) -> str:
    rows, lengths, share = int(panel.lengths.sum()), panel.lengths, panel.share_observed()
    dated = panel.origin.dtype.kind == "M"
    unit = ", time stamps are dates" if dated else f", times in {panel.unit}" if panel.unit else ""
    return (
        f"{counted(len(panel), 'series')}, {counted(rows, 'row')} ({lengths.min():,} to {lengths.max():,} each), "
        f"{counted(len(panel.channels), 'channel')}, {percent(share)} observed{unit}"
    )


def _settings(estimator: Any) -> dict[str, str]:
    """The arguments, starting with those that were changed, and what `fit` made of them."""
    config = estimator.model_.config
    models = members_of(estimator.model_)
    count = sum(p.numel() for p in models[0].parameters())
    made = {
        "weights": f"{count:,}" + (f" in each of {len(models)} members" if len(models) > 1 else ""),
        "memory": "causal (streaming)" if config.causal else "over the whole series",
        "epochs": str(estimator.n_iter_),
    }
    defaults = type(estimator)()
    given = {k: v for k, v in estimator.get_params(deep=False).items() if k != "pretrained"}
    changed = {k: repr(v) for k, v in given.items() if repr(v) != repr(getattr(defaults, k))}
    return made | changed | {k: f"{v!r} (default)" for k, v in given.items() if k not in changed}


def _versions() -> dict[str, str]:
    return {
        "lformer": lformer.__version__, "Python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "pandas": pd.__version__, "scikit-learn": sklearn.__version__,
    }  # fmt: skip


def _table(numbers: Array) -> Array:
    """(N,) or (N, K) -> (N, K)"""
    return numbers[:, None] if numbers.ndim == 1 else numbers
