"""Errors that end a run early. Each has the history of the completed epochs."""

from __future__ import annotations

History = list[dict[str, float]]  # number, loss and validation metrics of every epoch


class TimeLimitError(RuntimeError):
    """The run exceeded its time limit. `history` holds the completed epochs; the last checkpoint is kept."""

    def __init__(self, message: str, history: History) -> None:
        super().__init__(message)
        self.history = history


class DivergedError(FloatingPointError):
    """The loss became NaN or infinite. `history` holds the completed epochs; the last checkpoint is kept."""

    def __init__(self, message: str, history: History) -> None:
        super().__init__(message)
        self.history = history
