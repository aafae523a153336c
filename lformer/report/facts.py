"""The content of a report, before it becomes a page: only numbers and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lformer.explain import Explanation
from lformer.panel import Array

if TYPE_CHECKING:
    import pandas as pd


class Score(NamedTuple):
    """One metric of the model and of simple baselines."""

    metric: str
    model: float
    others: dict[str, float]  # of the baselines, by name
    higher: bool  # whether higher is better

    @property
    def wins(self) -> bool:
        """Whether the model is better than all baselines."""
        return all(self.model > x if self.higher else self.model < x for x in self.others.values())


class Numbers(NamedTuple):
    """Predicted and true values of one output or channel."""

    name: str
    told: Array  # (N,)
    truth: Array  # (N,)


class Coverage(NamedTuple):
    """How often intervals or sets contain the truth, as a mean over series."""

    name: str  # of the intervals
    nominal: list[float]
    observed: list[float]
    error: list[float]  # standard error over series
    size: list[float]  # mean width, or mean number of classes
    what: str  # name of the size


class Example(NamedTuple):
    """A record with its prediction and the explanation of it."""

    role: str  # "best", "typical" or "worst"
    answer: str
    truth: str
    explanation: Explanation
    unit: str  # of the times
    times: Array  # (N,) times of the observations in the explanation, since the first
    asked: float | None = None  # time of the query, likewise, if the prediction is for one


@dataclass(kw_only=True)
class Facts:
    """Everything that the page shows. Fields that are None or empty are left out."""

    title: str
    kind: str  # of the estimator
    question: str  # the task, in words
    trained_on: str
    looked_at: str
    series: int  # number of series of the report
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
    lost: str = ""  # what importance measures, such as "decrease in AUC"
    channels: pd.DataFrame | None = None
    stamps: pd.DataFrame | None = None
    importance_on: str = ""
    half_lives: pd.DataFrame | None = None
    half_lives_on: str = ""
    memory: str = ""  # a remark on the memory
    examples: list[Example] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
