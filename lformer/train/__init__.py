"""The trainer: `fit(model, task, splits, config)`."""

from lformer.draws import seeded
from lformer.train.config import TrainConfig, rate_share
from lformer.train.errors import DivergedError, History, TimeLimitError
from lformer.train.loop import (
    Report,
    Result,
    best_epoch,
    finished,
    fit,
    rounding,
)

__all__ = [
    "DivergedError", "History", "Report", "Result", "TimeLimitError", "TrainConfig", "best_epoch", "finished", "fit",
    "rate_share", "rounding", "seeded",
]  # fmt: skip
