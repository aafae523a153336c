"""What a report says, before it is a page: numbers and words alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lformer.explain import Explanation
from lformer.panel import Array

if TYPE_CHECKING:
    import pandas as pd


class Score(NamedTuple):
    """One metric of the model and of simple answers to the same question."""

    metric: str
    model: float
    others: dict[str, float]  # by name
    higher: bool  # whether more is better

    @property
    def wins(self) -> bool:
        """Whether the model is better than all of them."""
        return all(self.model > x if self.higher else self.model < x for x in self.others.values())


class Numbers(NamedTuple):
    """Predicted and true numbers, of one output or channel."""

    name: str
    told: Array  # (N,)
    truth: Array  # (N,)


class Coverage(NamedTuple):
    """How often the truth lies in intervals or sets, mean over series."""

    name: str  # of the intervals
    nominal: list[float]  # what was asked for
    observed: list[float]
    error: list[float]  # standard error over series
    size: list[float]  # mean width, or mean number of classes
    what: str  # the size is


class Example(NamedTuple):
    """A record with its answer, and why."""

    role: str  # "best", "typical" or "worst"
    answer: str
    truth: str
    explanation: Explanation
    unit: str  # of the times of the record
    times: Array  # (N,) of the observations in the explanation, since the first
    asked: float | None = None  # when, likewise, if the answer is for a moment


@dataclass(kw_only=True)
class Facts:
    """Everything that the page shows. What is None or empty has no place on it."""

    title: str
    kind: str  # of the estimator
    question: str  # in words
    trained_on: str
    looked_at: str
    series: int  # that the report looks at
    validation: list[Score]
    scores: list[Score]
    monitor: str
    lower_is_better: bool
    history: list[dict[str, float]]
    naive: tuple[str, float] | None
    classes: list[Any] = field(default_factory=list)
    probabilities: Array | None = None  # (N, K)
    labels: Array | None = None  # (N,) positions of the true classes
    numbers: list[Numbers] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    lost: str = ""  # what importance is counted in, such as "AUC lost"
    channels: pd.DataFrame | None = None
    stamps: pd.DataFrame | None = None
    importance_on: str = ""
    half_lives: pd.DataFrame | None = None
    half_lives_on: str = ""
    memory: str = ""  # what else there is to say of it
    examples: list[Example] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
