"""How long an estimator trains: in steps, so that few series are trained as thoroughly as many, and many no longer."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from sklearn.exceptions import ConvergenceWarning

from lformer.tasks import Task
from lformer.train import History, best_epoch

EPOCHS = 40  # passes over the series, if that is neither too little nor too much
LEAST, MOST = 1000, 2500  # steps in all; but every series is seen PASSES times
PASSES = 3
GROUPS = 3  # batches in a pass at least, so that few series do not come all at once
MEMBERS, ALONE = 3, 100  # models that answer together, for fewer than how many series; more are left to one alone
FEW = 30  # validation series that do not tell an early epoch from a good one: none of the first half is chosen
LATE, GAIN = 0.1, 0.02  # a run that gained more than this share of all its gain in its last epochs had not converged


class Budget(NamedTuple):
    """What a trainer is told."""

    epochs: int
    epoch_steps: int  # at least, in each of them
    batch_size: int


def budget(series: int, batch_size: int, max_epochs: int | None, times: int = 1) -> Budget:
    """The budget for so many training series; `max_epochs` passes over them, if the user says so.

    `times` as many epochs and steps are for what is redrawn in every epoch, and never learned by heart.

    Example:
        >>> budget(42, 32, None), budget(5440, 32, None), budget(10**6, 32, None).epochs
        (Budget(epochs=40, epoch_steps=25, batch_size=14), Budget(epochs=15, epoch_steps=1, batch_size=32), 3)
    """
    batch_size = min(batch_size, max(1, series // GROUPS))
    if max_epochs is not None:
        return Budget(max_epochs, 1, batch_size)
    steps = -(-max(1, series) // batch_size)  # of a pass
    epochs = min(times * EPOCHS, max(PASSES, -(-times * MOST // steps)))
    return Budget(epochs, 1 if epochs * steps >= times * LEAST else -(-times * LEAST // epochs), batch_size)


def members(series: int, max_epochs: int | None, streaming: bool, alone: int = ALONE) -> int:
    """How many models answer together, if nobody says: of fewer than `alone` series each one learns something else.

    One if the user counts epochs, and in a stream, which would take longer for every row.

    Example:
        >>> members(50, None, False), members(50, 20, False), members(5440, None, False)
        (3, 1, 1)
    """
    return MEMBERS if series < alone and max_epochs is None and not streaming else 1


def earliest(epochs: int, held: float, max_epochs: int | None) -> int:
    """The first epoch that may be chosen, with so many validation series; the first of all if the user counts epochs.

    Example:
        >>> earliest(40, 8, None), earliest(40, 500, None), earliest(40, 8, 40)
        (20, 0, 0)
    """
    return epochs // 2 if held < FEW and max_epochs is None else 0


def warn_if_unfinished(estimator: str, task: Task, history: History, epochs: int) -> bool:
    """Whether training ended while the model still got better; if so the user is told what to do."""
    late = max(1, round(LATE * epochs))
    if len(history) < epochs or len(history) <= 2 * late:  # it stopped by itself, or is too short to tell
        return False
    before, after = (rows[best_epoch(rows, task)][task.monitor] for rows in (history[:-late], history))
    unfinished = abs(after - before) > GAIN * abs(after - history[0][task.monitor])
    if unfinished:
        warnings.warn(
            f"{estimator} had not converged: {task.monitor} on the validation series went from {before:.4g} to "
            f"{after:.4g} in the last {late} of {epochs} epochs. Train longer: max_epochs={2 * epochs}, or more.",
            ConvergenceWarning,
            stacklevel=5,  # whoever called `fit`
        )
    return unfinished
