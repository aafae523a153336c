"""What a method is measured by: a score of the test series, and how far it would be from itself on other series.

A measure first keeps two numbers of every series, then makes the score of them. Drawing series again, with replacement,
gives the standard error: series are independent of each other, rows of a series are not, nor are the series of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from lformer.bench.defaults.problem import Problem
from lformer.panel import Array

DRAWS = 200
LEAST = 1e-6  # probability of a class that a method rules out


@dataclass(frozen=True, eq=False, kw_only=True)
class Answers:
    """What a method says of the test series.

    Attributes:
        said: classes or numbers (n,), those of the rows n of (L_i,), or values n of (Q_i, C).
        probabilities: (n, K) of the classes in their order, where a method has them.
        ranking: (n,) how far a series is of the second class rather than of the first, where there are two.
    """

    said: Array | list[Array]
    probabilities: Array | None = None
    ranking: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A score.

    Attributes:
        words: its name in a table, with the unit.
        sign: 1 if a large value is good, -1 if a small one is.
        keep: (n, 2) of the series of a problem, or of its groups, and the answers to it; None if these do not say.
        score: from some of these rows.
        factor, digits: how a table prints it.
    """

    words: str
    sign: int
    keep: Callable[[Problem, Answers], Array | None]
    score: Callable[[Array], float]
    factor: float = 1.0
    digits: int = 3


def measure(problem: Problem, answers: Answers) -> dict[str, tuple[float, float]]:
    """By measure, the score and its standard error; what the answers do not say is not there."""
    found = {}
    for name in problem.measures:
        kept = MEASURES[name].keep(problem, answers)
        if kept is not None:
            if not np.isfinite(kept).all():
                raise ArithmeticError(f"{name} is not finite for {int((~np.isfinite(kept)).any(axis=1).sum())} series.")
            found[name] = (MEASURES[name].score(kept), _standard_error(kept, MEASURES[name].score))
    return found


def _standard_error(kept: Array, score: Callable[[Array], float]) -> float:
    rng = np.random.RandomState(0)
    scores = [score(kept[rng.randint(0, len(kept), len(kept))]) for _ in range(DRAWS)]
    return float(np.nanstd(scores))


# -- what is kept of a series


def _correct(problem: Problem, answers: Answers) -> Array:
    """How many classes were right, and how many were asked."""
    right = [np.atleast_1d(np.asarray(a) == t) for a, t in zip(answers.said, problem.truth, strict=True)]
    return np.array([[one.sum(), len(one)] for one in right], np.float64)


def _surprise(problem: Problem, answers: Answers) -> Array | None:
    """-log of the probability of the right class."""
    if answers.probabilities is None:
        return None
    place = np.searchsorted(np.unique(problem.labels), np.asarray(problem.truth))
    likely = np.clip(answers.probabilities, LEAST, None)
    likely /= likely.sum(axis=1, keepdims=True)
    return np.column_stack([-np.log(likely[np.arange(len(place)), place]), np.ones(len(place))])


def _ranked(problem: Problem, answers: Answers) -> Array | None:
    """Whether it is of the second class, and how far it was said to be."""
    if answers.ranking is None:
        return None
    return np.column_stack([np.asarray(problem.truth) == np.unique(problem.labels)[1], answers.ranking])


def _relative(power: int, spread: Callable[[Array], float]) -> Callable[[Problem, Answers], Array]:
    """Mean error to a power, back at its root, in units of the series' own spread."""

    def keep(problem: Problem, answers: Answers) -> Array:
        found = []
        for said, truth in zip(answers.said, problem.truth, strict=True):
            seen = np.isfinite(truth)
            error = np.mean(np.abs(said - truth)[seen] ** power) ** (1 / power)
            found.append([error / spread(truth[seen]), 1.0])
        return np.array(found)

    return keep


def _in_deviations(problem: Problem, answers: Answers) -> Array:
    """Sum and count of squared errors, in deviations of each channel over the training series."""
    train = problem.train.compact()
    seen = np.ones(train.values.shape, bool) if train.observed is None else train.observed
    deviation = np.array([train.values[seen[:, c], c].astype(np.float64).std() for c in range(len(train.channels))])
    found = []
    for said, truth in zip(answers.said, problem.truth, strict=True):
        error = (np.square((said - truth) / np.where(deviation > 0, deviation, 1.0)))[np.isfinite(truth)]
        found.append([error.sum(), len(error)])
    return np.array(found)


def _squared(problem: Problem, answers: Answers) -> Array:
    """Sums of squared errors, and of what they would be in the mean if the mean were said of all numbers; by group."""
    variance = np.concatenate([np.atleast_1d(t) for t in problem.truth]).var()
    pairs = zip(answers.said, problem.truth, strict=True)
    found = np.array([[np.square(a - t).sum(), variance * np.size(t)] for a, t in pairs])
    if problem.test_groups is None:
        return found
    names, member = np.unique(problem.test_groups, return_inverse=True)
    return np.stack([np.bincount(member, column, len(names)) for column in found.T], axis=1)


# -- what is made of it


def _share(kept: Array) -> float:
    return float(kept[:, 0].sum() / kept[:, 1].sum())


def _root(kept: Array) -> float:
    return float(np.sqrt(_share(kept)))


def _explained(kept: Array) -> float:
    return 1 - _share(kept)


def _auroc(kept: Array) -> float:
    return float(roc_auc_score(*kept.T)) if 0 < kept[:, 0].sum() < len(kept) else float("nan")


def _auprc(kept: Array) -> float:
    return float(average_precision_score(*kept.T)) if kept[:, 0].any() else float("nan")


MEASURES: dict[str, Measure] = {
    "accuracy": Measure(words="accuracy, %", sign=1, keep=_correct, score=_share, factor=100, digits=1),
    "log_loss": Measure(words="log loss", sign=-1, keep=_surprise, score=_share),
    "auroc": Measure(words="AUROC, %", sign=1, keep=_ranked, score=_auroc, factor=100, digits=1),
    "auprc": Measure(words="AUPRC, %", sign=1, keep=_ranked, score=_auprc, factor=100, digits=1),
    "deviations": Measure(
        words="RMSE, % of the deviation", sign=-1, keep=_squared, score=_root, factor=100, digits=1
    ),
    "r2": Measure(words="R²", sign=1, keep=_squared, score=_explained),
    "relative_mae": Measure(
        words="MAE, % of the series' mean", sign=-1, keep=_relative(1, lambda x: float(np.abs(x).mean())),
        score=_share, factor=100, digits=1,
    ),
    "relative_rmse": Measure(
        words="RMSE, % of the series' deviation", sign=-1, keep=_relative(2, lambda x: float(x.std())),
        score=_share, factor=100, digits=1,
    ),
    "rmse": Measure(words="RMSE, deviations of the channel", sign=-1, keep=_in_deviations, score=_root),
}  # fmt: skip
