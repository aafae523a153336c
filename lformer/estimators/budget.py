"""How long an estimator trains: counted in steps, so that few series get enough steps and many do not take longer."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from sklearn.exceptions import ConvergenceWarning

from lformer.tasks import Task
from lformer.train import History, best_epoch

EPOCHS = 40  # passes over the series, unless that makes too few or too many steps
LEAST, MOST = 1000, 2500  # bounds on the total number of steps; but every series is seen at least PASSES times
PASSES = 3
GROUPS = 3  # minimum number of batches per pass, so that few series do not all fall into one batch
MEMBERS, ALONE = 3, 100  # members of an ensemble for fewer series than this; else a single model
FEW = 30  # with fewer validation series, early epochs may be best by chance: only the second half is considered
LATE, GAIN = 0.1, 0.02  # not converged: more than 2 % of the total gain was made in the last 10 % of the epochs


class Budget(NamedTuple):
    """The length of training."""

    epochs: int
    epoch_steps: int  # minimum number of steps in each epoch
    batch_size: int


def budget(series: int, batch_size: int, max_epochs: int | None, times: int = 1) -> Budget:
    """The budget for this many training series; `max_epochs` passes over them if the user sets it.

    `times` multiplies epochs and steps, for tasks that change in every epoch and therefore do not overfit.

    Example:
        >>> budget(42, 32, None), budget(5440, 32, None), budget(10**6, 32, None).epochs
        (Budget(epochs=40, epoch_steps=25, batch_size=14), Budget(epochs=15, epoch_steps=1, batch_size=32), 3)
    """
    batch_size = min(batch_size, max(1, series // GROUPS))
    if max_epochs is not None:
        return Budget(max_epochs, 1, batch_size)
    steps = -(-max(1, series) // batch_size)  # per pass
    epochs = min(times * EPOCHS, max(PASSES, -(-times * MOST // steps)))
    return Budget(epochs, 1 if epochs * steps >= times * LEAST else -(-times * LEAST // epochs), batch_size)


def members(series: int, max_epochs: int | None, streaming: bool, alone: int = ALONE) -> int:
    """The default ensemble size: several members for fewer than `alone` series, where single models vary most.

    One if the user sets `max_epochs`, and for streams, where several would slow down every row.

    Example:
        >>> members(50, None, False), members(50, 20, False), members(5440, None, False)
        (3, 1, 1)
    """
    return MEMBERS if series < alone and max_epochs is None and not streaming else 1


def earliest(epochs: int, held: float, max_epochs: int | None) -> int:
    """The first epoch that may be selected, given the number of validation series; 0 if the user sets `max_epochs`.

    Example:
        >>> earliest(40, 8, None), earliest(40, 500, None), earliest(40, 8, 40)
        (20, 0, 0)
    """
    return epochs // 2 if held < FEW and max_epochs is None else 0


def warn_if_unfinished(estimator: str, task: Task, history: History, epochs: int) -> bool:
    """Whether training ended while the model was still improving; if so, warn and suggest what to do."""
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
            stacklevel=5,  # the caller of `fit`
        )
    return unfinished
