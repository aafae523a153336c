"""What ends a run before its time. Each error has the epochs before it."""

from __future__ import annotations

History = list[dict[str, float]]  # of every epoch its number, the loss and the validation metrics


class TimeLimitError(RuntimeError):
    """The run took longer than it was given. `history` holds the epochs before; the last checkpoint stays."""

    def __init__(self, message: str, history: History) -> None:
        super().__init__(message)
        self.history = history


class DivergedError(FloatingPointError):
    """The loss is no longer a number. `history` holds the epochs before; the last checkpoint stays."""

    def __init__(self, message: str, history: History) -> None:
        super().__init__(message)
        self.history = history
