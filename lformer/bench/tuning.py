"""Look for good settings of a model on a data set, on its validation part alone: `lformer bench tune`.

A study is a folder. Its trials are cells with other settings (`records.Trial`), run through the same engines as a grid;
the test part is never evaluated. Optuna's sampler chooses their settings from `space`, round by round, as a function of
the seed and the trials before: a study that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

import csv
import io
import json
import math
import time
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from lformer import data, sealed, tasks
from lformer.bench import grid, records
from lformer.bench.engine import Outcome, Settings
from lformer.bench.models import entry
from lformer.bench.recipes import Recipe, recipe
from lformer.bench.records import Cell, Trial
from lformer.parts import Spec

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import FrozenTrial

# --- what may be chosen ---


@dataclass(frozen=True)
class Range:
    """Any number between two; `log` looks at their orders of magnitude."""

    low: float
    high: float
    log: bool = False

    def including(self, value: float) -> Range:
        """Wide enough for a value."""
        return replace(self, low=min(self.low, value), high=max(self.high, value))


@dataclass(frozen=True)
class Choice:
    """One of a few."""

    options: tuple[Any, ...]

    def including(self, value: Any) -> Choice:
        """With a value, if it is not there."""
        return self if value in self.options else Choice((*self.options, value))


Space = dict[str, Range | Choice]  # by "train" or "model" and the field, such as "train.lr"

EPOCHS = (0.25, 0.5, 1.0)  # shares of the recipe's
TRAINING: Space = {
    "train.lr": Range(1e-4, 2e-2, log=True),
    "train.weight_decay": Choice((0.0, 1e-3, 1e-2, 1e-1)),
    "train.batch_size": Choice((16, 32, 64, 128)),
    "train.schedule": Choice(("constant", "cosine")),
}
SIZES: Space = {
    "model.width": Choice((32, 64, 128)),
    "model.depth": Choice((1, 2, 3, 4)),
    "model.dropout": Range(0.0, 0.5),
}
# What goes with a schedule that is not the recipe's: a rate that falls to 0 needs all of its epochs.
WITH_SCHEDULE: dict[str, dict[str, Any]] = {
    "constant": {"warmup": 0.0, "patience": 20},
    "cosine": {"warmup": 0.05, "patience": None},
}

STATE_SPACE: Space = {"model.state": Choice((16, 64, 128))}
SELECTIVE: Space = {"model.state": Choice((16, 32))}  # every channel has a state of that size
SOLVED: Space = {"model.width": Choice((16, 32, 64)), "model.depth": Choice((1, 2))}  # slow: many steps of a solver
LATENT: Space = {**SOLVED, "model.latent": Choice((10, 20, 40)), "model.units": Choice((50, 100))}

# What models look for beside, or instead of, the above.
OWN: dict[str, Space] = {
    "lru": STATE_SPACE,
    "linoss": STATE_SPACE,
    "s5": STATE_SPACE,
    "s6": SELECTIVE,
    "mamba": SELECTIVE,
    "node": LATENT,
    "r-ode": LATENT,
    "o-ode": LATENT,
    "gru-ode-b": SOLVED,
    "ncde": SOLVED,
    "nrde": SOLVED,
    "logncde": SOLVED,
    "lsde": SOLVED,
    "contiformer": SOLVED,
}


def space(plan: Recipe, spec: Spec) -> Space:
    """What is tried of a model: settings that it has, the recipe's own among them.

    Args:
        plan: the recipe to start from.
        spec: of the data.

    Example:
        >>> from lformer.bench.recipes import stand_in
        >>> space(recipe("scp1", model="gru"), stand_in("classify"))["model.width"]
        Choice(options=(32, 64, 128))
    """
    if entry(plan.of).at_once:
        raise ValueError(f"{plan.of} is fitted at once: it has no settings to look for.")
    has = {f"model.{field.name}" for field in fields(entry(plan.of).config)}
    sizes = {name: kind for name, kind in (SIZES | OWN.get(plan.of, {})).items() if name in has}
    epochs = tuple(sorted({max(1, round(share * plan.train.epochs)) for share in EPOCHS}))
    found: Space = {**TRAINING, "train.epochs": Choice(epochs), **sizes}
    own = current(plan, spec, found)
    return {name: kind.including(own[name]) for name, kind in found.items()}


def current(plan: Recipe, spec: Spec, names: Iterable[str]) -> dict[str, Any]:
    """What a recipe has for the names of a space."""
    where = {"model": plan.config(spec), "train": plan.train}
    return {name: getattr(where[name.split(".")[0]], name.split(".")[1]) for name in names}


def changes(plan: Recipe, chosen: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Fields of model and training for values of a space; a schedule brings what goes with it."""
    made: dict[str, dict[str, Any]] = {"model": {}, "train": {}}
    for name, value in chosen.items():
        where, field = name.split(".")
        made[where][field] = value
    if (schedule := made["train"].get("schedule", plan.train.schedule)) != plan.train.schedule:
        made["train"] |= WITH_SCHEDULE[schedule]
    return made


# --- a study ---


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A trial: its number, what was chosen, how it ended, the value of the monitored metric, None if it has none."""

    number: int
    chosen: dict[str, Any]
    status: str
    value: float | None


class Study:
    """A study in a folder, made or found there.

    Args:
        cell: data set, task, model, protocol and seed, with which every trial is run; `epochs` is the most of each.
        folder: all of it lies there.
        seed: of the sampler.

    Attributes:
        plan: the recipe from which it starts; with as many epochs at most as the cell says.
        space: what is tried.
        monitor, direction: the metric of the validation part that decides, and whether it is to be small or large.
    """

    def __init__(self, cell: Cell, folder: Path, seed: int = 0) -> None:
        optuna = _optuna()
        plan = recipe(cell.dataset, cell.task, model=cell.model, ablation=cell.ablation, variant=cell.variant)
        if cell.epochs is not None:
            plan = plan.changed(train={"epochs": min(cell.epochs, plan.train.epochs)})
        splits = data.load(
            cell.dataset, task=cell.task, seed=cell.seed, split=cell.split, scaling=cell.scaling, **plan.data
        )
        task = tasks.for_splits(splits)
        self.cell, self.folder, self.seed, self.plan = cell, folder, seed, plan
        self.space = space(plan, splits.spec)
        self.monitor, self.direction = task.monitor, task.direction
        self._own = current(plan, splits.spec, self.space)
        self._optuna, self._found = optuna, self._open(optuna, splits.fingerprint)

    def _open(self, optuna: Any, fingerprint: str) -> OptunaStudy:
        """Optuna's study in the folder, unless it asks something else; the first trial of a new one is the recipe."""
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = optuna.storages.journal
        storage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(self.folder / "study.log")))
        direction = "minimize" if self.direction == "min" else "maximize"
        found = optuna.create_study(storage=storage, study_name="tune", direction=direction, load_if_exists=True)
        asked = json.loads(
            json.dumps(
                {
                    "cell": records.cell_fields(self.cell), "seed": self.seed, "data": fingerprint,
                    "space": {name: asdict(kind) for name, kind in self.space.items()},
                }
            )
        )  # fmt: skip
        before = found.user_attrs.get("question")
        if before is None:
            found.set_user_attr("question", asked)
            found.enqueue_trial(self._own)
        elif before != asked:
            differs = ", ".join(name for name in asked if asked[name] != before.get(name))
            raise ValueError(f"{self.folder} has a study with another {differs}; choose another folder.")
        return found

    def run(
        self,
        settings: Settings,
        *,
        engine: str = "local",
        workers: int | None = None,
        trials: int | None = None,
        minutes: float | None = None,
    ) -> Generator[Outcome, None, None]:
        """Run trials until the study has `trials` of them, or until `minutes` of this call are over.

        They are run in rounds of as many as there are workers, and no round begins when the time is over. Those that an
        earlier call left unfinished come first, and go on where they were.

        Yields:
            What happens, as `grid.run` does.
        """
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        settings = replace(settings, root=self.folder)
        while time.monotonic() < until and (now := self._round(workers or 1, trials)):
            yield from grid.run(now, settings, engine, workers)
            for trial in now:
                self._tell(trial)

    def left(self, trials: int | None) -> int | None:
        """How many trials are still to be run, until there are `trials`; None if that has no end."""
        begun = len(self._found.get_trials(states=(self._optuna.trial.TrialState.RUNNING,)))
        return None if trials is None else max(begun, trials - len(self.tried))

    def _round(self, size: int, trials: int | None) -> list[Trial]:
        """The next trials: those that were begun, else new ones."""
        states = self._optuna.trial.TrialState
        begun = self._found.get_trials(states=(states.RUNNING,))
        if begun:
            return [self._trial(trial.number, trial.params) for trial in begun]
        there = len(self._found.get_trials(states=(states.COMPLETE, states.PRUNED, states.FAIL)))
        count = size if trials is None else min(size, trials - there)
        # A sampler of its own for every round: what it draws does not depend on whether the study was interrupted.
        self._found.sampler = self._sampler(there)
        return [self._ask() for _ in range(count)]

    def _sampler(self, there: int) -> Any:
        seed = (self.seed * 1_000_003 + there) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            return self._optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def _ask(self) -> Trial:
        trial = self._found.ask()
        for name, kind in self.space.items():
            if isinstance(kind, Range):
                trial.suggest_float(name, kind.low, kind.high, log=kind.log)
            else:
                trial.suggest_categorical(name, kind.options)
        return self._trial(trial.number, trial.params)

    def _trial(self, number: int, chosen: dict[str, Any]) -> Trial:
        cell = records.cell_fields(self.cell) | {"epochs": None}  # as many as were chosen
        return Trial(**cell, number=number, changes=changes(self.plan, chosen))

    def _tell(self, trial: Trial) -> None:
        """Tell the sampler how a trial ended; it stays away from settings that gave no figure."""
        states = self._optuna.trial.TrialState
        record = records.finished(trial, self.folder)
        if record is None:  # an error, not of its settings as far as we know
            self._found.tell(trial.number, state=states.FAIL)
            return
        value = record.get("validation", {}).get(self.monitor, math.nan)
        if math.isfinite(value):
            self._found.tell(trial.number, value)
        else:
            self._found.tell(trial.number, state=states.PRUNED)

    # --- what came of it ---

    @property
    def tried(self) -> list[Tried]:
        """All trials that have ended, in their order."""
        return [self._as_tried(trial) for trial in self._found.trials if trial.state.is_finished()]

    def _as_tried(self, trial: FrozenTrial) -> Tried:
        record = records.finished(self._trial(trial.number, trial.params), self.folder)
        status = "failed" if record is None else record["status"]
        return Tried(number=trial.number, chosen=dict(trial.params), status=status, value=trial.value)

    @property
    def ranked(self) -> list[Tried]:
        """The same, the best first, and those without a figure last."""
        sign = 1 if self.direction == "min" else -1
        return sorted(self.tried, key=lambda trial: math.inf if trial.value is None else sign * trial.value)

    def importance(self) -> dict[str, float]:
        """What mattered: for each setting its share of the variance of the figures (fANOVA), largest first.

        Empty where the figures do not tell: fewer than two, or all the same.
        """
        values = {trial.value for trial in self.tried if trial.value is not None}
        if len(values) < 2:
            return {}
        evaluator = self._optuna.importance.FanovaImportanceEvaluator(seed=self.seed)
        return dict(self._optuna.importance.get_param_importances(self._found, evaluator=evaluator))

    def write(self) -> list[Path]:
        """Put `best.json`, `trials.csv` and `importance.csv` into the folder; where they are."""
        rows = [
            {"trial": t.number, "status": t.status, self.monitor: "" if t.value is None else t.value, **t.chosen}
            for t in self.tried
        ]
        mattered = [{"setting": name, "importance": round(share, 4)} for name, share in self.importance().items()]
        texts = {
            "trials.csv": _csv(["trial", "status", self.monitor, *self.space], rows),
            "importance.csv": _csv(["setting", "importance"], mattered),
        }
        if self.ranked and (best := self.ranked[0]).value is not None:
            texts["best.json"] = json.dumps(self._best(best), indent=2) + "\n"
        for name, text in texts.items():
            sealed.write_text(self.folder / name, text)
        return [self.folder / name for name in texts]

    def _best(self, best: Tried) -> dict[str, Any]:
        """The best settings as a recipe, and as what they change of the one that the study began from."""
        change = changes(self.plan, best.chosen)
        found = self.plan.changed(**change)
        cell = self.cell
        return {
            "dataset": cell.dataset, "task": cell.task, "model": cell.model, "split": cell.split,
            "scaling": cell.scaling, "trial": best.number, "trials": len(self.tried),
            "validation": {self.monitor: best.value}, "changes": change,
            "recipe": {"model": dict(found.model), "train": asdict(found.train), "data": dict(found.data)},
        }  # fmt: skip


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Inside, no other process works on the study in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "study.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise ValueError(f"another process is at work on the study in {folder}.") from error
    try:
        yield
    finally:
        lock.release()


def _csv(columns: list[str], rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _optuna() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise ImportError('lformer bench tune needs Optuna: pip install "lformer[tune]".') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
