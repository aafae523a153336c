"""What the estimators share: scikit-learn's manners outside, the one trainer inside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, ParamSpec, Self, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state, estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from lformer import devices, scaling
from lformer.devices import device_of
from lformer.estimators.budget import ALONE, budget, earliest, members, warn_if_unfinished
from lformer.estimators.devices import check_devices, choose, placed, series_at_once
from lformer.estimators.display import fitted_table
from lformer.estimators.eval_set import joined, named
from lformer.estimators.features import Features
from lformer.estimators.hub import HubMixin
from lformer.estimators.inputs import Groups, as_panel, check_width
from lformer.estimators.meanwhile import Later, meanwhile
from lformer.estimators.members import Member, StoppedError, each_on_its_cores, train_members
from lformer.estimators.naive import Naive, fit_naive, warn_if_it_loses
from lformer.estimators.starting import start_from
from lformer.estimators.suspicion import warn_of_suspects
from lformer.evaluate import predict
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.ensemble import Ensemble
from lformer.panel import Array, MissingValues, Panel, check_missing_values, some_of
from lformer.panel.calendar import Choice, check_calendar
from lformer.parts import PanelPart, Prepared, Splits, Targets, splits_of
from lformer.scaling import Scale
from lformer.splitting import hold_out, hold_out_groups, hold_out_stratified
from lformer.tasks import Task
from lformer.train import TrainConfig, rounding, seeded
from lformer.train.distributed import join

if TYPE_CHECKING:
    from lformer.estimators.conformal import Calibration
    from lformer.estimators.stream import Stream
    from lformer.estimators.streams import Late, Streams

NEIGHBOURS, FEW_CHANNELS = 4, 16  # how many a row shows, of up to how many channels, if nobody says


class InterruptedFit(KeyboardInterrupt):
    """Ctrl-C in `fit`. `estimator` is a fitted copy with the best weights so far; None if there were none yet."""

    def __init__(self, message: str, estimator: LFormerEstimator | None) -> None:
        super().__init__(message)
        self.estimator = estimator


E = TypeVar("E", bound="LFormerEstimator")
P = ParamSpec("P")


def all_or_nothing(fit: Callable[Concatenate[E, P], E]) -> Callable[Concatenate[E, P], E]:
    """A `fit` that works on a copy, which the estimator becomes at the end; an error or Ctrl-C leaves it as it was.

    Series that are held out for calibration are taken away before and used after it.
    """

    @wraps(fit)
    def whole(self: E, /, *args: P.args, **kwargs: P.kwargs) -> E:
        fitted = copy(self)
        given: Any = args, kwargs
        (args, kwargs), held = fitted._hold_out(fit, *given)
        fit(fitted, *args, **kwargs)  # from here, as warnings point at whoever called `fit`
        fitted._calibrate_on(held)
        self.__dict__.update(fitted.__dict__)  # one step: no signal is handled within it
        return self

    return whole


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerEstimator(HubMixin, BaseEstimator):  # type: ignore[misc]
    """Constructor arguments of every estimator; they are stored and nothing else, `fit` checks them.

    They are declared once, as fields: estimators below add their own, and change defaults.

    After `fit`, `validation_score_` is the metric that chose the epoch, on the validation series, and `naive_score_`
    that of `naive_`, the best of what one would try first: boosting on summary features for answers per series, the
    latest value, mean and the like for forecasts. If the model loses, `fit` warns.

    Args:
        width, depth, heads: size of the model.
        dropout: in training, share of the numbers inside the model that are set to 0. "auto", of the two regressors
            alone, is 0 without `uncertainty`, as it makes numbers less precise; with it 0.2 of series, 0.1 of rows, as
            models without dropout are too sure.
        members: models trained apart, each with its own validation part, that answer together by their mean. Five cost
            five times as much, shared among the cores of a CPU or side by side on a GPU, and are nearly always better
            than one. "auto" is 3 for fewer than 100 series (of an `LFormerPointClassifier` 2,000), and 1 for more, for
            streams, and if `max_epochs` is given.
        lr: largest learning rate; it rises to this, then falls to 0 by the end of training.
        batch_size: series per step; at most a third of the training series.
        max_epochs: passes over the training series. None counts in steps: about 1,000 for few series, which are then
            gone through several times per epoch, 2,500 for many, and never fewer than three passes.
        weight_decay: of AdamW.
        neighbours: a row also shows what each channel did at so many moments before and after it, a typical interval
            apart, which lets the model see shapes; 0 shows none. "auto" is 4 for up to 16 channels, else 0.
        patience: epochs without a better validation metric before training stops; None never stops early.
        validation_fraction: share of the training series held out to choose the epoch; if they are fewer than 30, and
            `max_epochs` is None, an epoch of the second half. With `fit(..., groups=)` they are all series of some of
            the subjects, with `fit(..., eval_set=)` none is held out.
        streaming: build a causal model whose gate looks back only, which `stream` needs.
        missing_values: numbers that stand for missing values in the series, of training and all later ones: -9999, a
            list, or by channel, {"sodium": -1}. NaN always does.
        calendar: what the model is told of dates, of rows and of query times. "auto" takes of "hour", "weekday" and
            "year" those that the training series can show: they are longer than a day, a week or a year, and their
            stamps differ in it. False for nothing, or a tuple of names. Days and hours are those of the time zone of
            the stamps, if they have one. Numbers and durations have no calendar.
        clock: whether the model is told where a row stands on the clock that numbers or durations are read off, such as
            hours since admission, and not only how long after the first row of its series. "auto" if training series
            begin at different times of one clock and run over most of it; a series on another clock then needs its
            times shifted. False for a clock that means nothing; forecasts and interpolation never see it by themselves.
        device: of training and prediction. "auto" is CUDA where there is one, else the CPU; "cpu" never a GPU. "gpu"
            insists on one in `fit`, while prediction goes on as "auto": a saved model answers everywhere. On CUDA
            products are rounded to TF32, in both. `model_` stays on the CPU, and a GPU predicts with a copy.
        devices: processes that train together on this machine, each with its share of every batch: one for each GPU, or
            several on CPUs. `fit` starts them, which takes a few seconds, and ends them. The model is that of one
            process up to rounding, and up to what dropout draws. `predict` is the work of the calling process.
        random_state: of weights, split and order.
        verbose: 1 shows a bar.
        warm_start: go on from the weights of the last `fit`.
        autosave: folder for the model, as `save` writes it: the final one, or after Ctrl-C the best so far.

    `fit` looks over the series first, and says what seems not to be meant as it stands in a `SuspectDataWarning` each.
    A `fit` that does not end, whatever the reason, leaves the estimator as it was.
    """

    width: int = 64
    depth: int = 2
    heads: int = 4
    dropout: float | Literal["auto"] = 0.0
    members: int | Literal["auto"] = 1
    lr: float = 2e-3
    batch_size: int = 32
    max_epochs: int | None = None
    weight_decay: float = 0.01
    neighbours: int | Literal["auto"] = "auto"
    patience: int | None = 20
    validation_fraction: float = 0.15
    streaming: bool = False
    missing_values: MissingValues = None
    calendar: Choice = "auto"
    clock: bool | Literal["auto"] = "auto"
    device: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int = 1
    random_state: Any = None
    verbose: int = 0
    warm_start: bool = False
    autosave: str | None = None

    _times: ClassVar[int] = 1  # as many steps as others take
    _alone: ClassVar[int] = ALONE  # from so many series on, one model is enough
    # Of the series of the last `fit`, how many at the end were its `eval_set` and only validated; not saved.
    _held: int = field(default=0, init=False)

    if TYPE_CHECKING:  # found by `fit`; to a dataclass any other annotation is a parameter
        model_: LFormer | Ensemble = field(init=False)
        features_: Features = field(init=False)
        task_: Task = field(init=False)
        history_: list[dict[str, float]] = field(init=False)
        n_iter_: int = field(init=False)
        validation_score_: float = field(init=False)
        calibration_: Calibration | None = field(init=False)
        naive_: str = field(init=False)
        naive_score_: float = field(init=False)
        loses_: bool = field(init=False)
        _naive: Naive | None = field(init=False)  # what it was compared with in `fit`; not saved

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _fit(
        self,
        panel: Panel,
        targets: Targets,
        task: Task,
        classes: Array | None = None,
        groups: Groups | None = None,
    ) -> Self:
        """Fit features and model; validation has each of the classes in proportion, or whole groups."""
        self._check_parameters()
        self.calibration_ = None
        if len(panel) < 2:
            raise ValueError(f"at least 2 series are needed to train and to validate; n_samples={len(panel)}.")
        world = join(self.device)  # of one, unless torchrun or the like has started others
        seed = world.agreed(int(check_random_state(self.random_state).randint(2**31 - 1)))
        begun = panel.ids[: len(panel) - self._held].tolist()
        whose = None if groups is None else np.array([groups[id] for id in begun])
        suspected = warn_of_suspects(panel[self._split(len(panel), seed, classes, whose)[0]] if self._held else panel)
        earlier = deepcopy(members_of(self.model_)) if self.warm_start and hasattr(self, "model_") else []
        for fitted in earlier:
            fitted.set_trees(None)  # its trees were grown beside another network
        before = None if earlier else self._pretrainer(panel)
        if earlier:
            scale = scale_of(earlier[0])
        elif before is not None:
            self.features_, scale = before.features_, scale_of(before.model_)
        else:
            train, _ = self._split(len(panel), seed, classes, whose)
            clock = False if self.clock == "auto" and self.streaming else self.clock  # which a stream outlives
            self.features_ = Features.fit(panel[train], self.calendar, clock)
            scale = self._scale(some_of(panel[train]).with_missing(suspected))  # marks have no say in it
        panel, targets, task = self._prepare(self.features_.match(panel), targets, task, scale, seed)
        self.task_ = task
        count = self._members(len(panel) - self._held)
        members: list[Member] = []
        for n in range(count):
            train, validation = self._split(len(panel), seed + n, classes, whose)
            prepared = Prepared(panel=panel, targets=targets, train=train, validation=validation, test=validation)
            splits = self._splits(prepared, task, seed + n)
            model = earlier[n] if n < len(earlier) and _asks(earlier[n].config, task) else None
            if model is None:
                with seeded(seed + n):
                    model = LFormer(self._config(task))
                model.rows.set_scale(*map(torch.from_numpy, (scale.shift, scale.scale, scale.low, scale.high)))
                self._begin(model, task, splits)
            training = self._training(len(train))
            if before is not None:
                start_from(model, members_of(before.model_), n)
                training = replace(training, clock="kept")
            members.append(Member(model, splits, training, seed + n))
        device = choose(self.device)
        with meanwhile(device) as later:
            naive = later(lambda: fit_naive(task, members[0].splits, scale, self.batch_size))
            beside = [self._beside(member, task, later) for member in members]
            try:
                results = train_members(members, task, shown=bool(self.verbose))
            except StoppedError as stopped:
                raise self._interrupted(stopped) from None
            first, mark = members[0], count > 1
            self.history_ = [
                ({"member": n} if mark else {}) | row for n, one in enumerate(results) for row in one.history
            ]
            self.n_iter_ = max(result.epochs for result in results)
            name, history = type(self).__name__, results[0].history
            self.unfinished_ = warn_if_unfinished(name, task, history, first.training.epochs)
            self._naive = naive()
            self.naive_, self.naive_score_ = self._naive.name, self._naive.score
            scores = each_on_its_cores(lambda n: beside[n](results[n].validation[task.monitor]), len(members))
        self.model_ = _together([member.model for member in members])
        self.validation_score_ = scores[0]
        self.loses_ = warn_if_it_loses(name, task, self.validation_score_, self.naive_, self.naive_score_)
        if self.autosave is not None and world.rank == 0:
            self.save(self.autosave)
        return self

    def _hold_out(self, fit: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Arguments of `fit` without the series that calibrate, and those; None if there are none."""
        return (args, kwargs), None

    def _calibrate_on(self, held: Any) -> None:
        """After `fit`, calibrate on the series that were held out, if any were."""

    def _interrupted(self, stopped: StoppedError) -> InterruptedFit:
        """What `fit` raises after Ctrl-C: members that had ended an epoch, at their best one so far, are a model."""
        if not stopped.models:
            return InterruptedFit("fit was interrupted before the end of the first epoch.", None)
        self.model_, self.n_iter_ = _together(stopped.models), stopped.epochs
        if self.autosave is None:
            return InterruptedFit("fit was interrupted; the best model so far is the `estimator` of this error.", self)
        self.save(self.autosave)
        return InterruptedFit(f"fit was interrupted; the best model so far is saved in {self.autosave}.", self)

    def _html_repr(self) -> str:
        """What a notebook shows: scikit-learn's diagram, and below it what `fit` found."""
        return estimator_html_repr(self) + fitted_table(self)

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator to a folder, from which `lformer.estimators.load` reads it; nothing is pickled."""
        from lformer.estimators import artefact

        artefact.save(self, folder)

    def export(self, folder: str | Path, to: Literal["onnx", "pt2"] = "onnx") -> Path:
        """Write the fitted estimator as graphs that run without lformer, with a description and examples.

        Args:
            folder: new, empty, or with an earlier export, which is replaced.
            to: "onnx", which runs without PyTorch too; or "pt2", PyTorch's own archive.

        Returns:
            The folder. `lformer.export` says what is in it.
        """
        from lformer.export import export

        check_is_fitted(self, "model_")
        return export(self, folder, to)

    def stream(
        self, static: Mapping[str, Any] | None = None, late: Late = "refuse", memory: int | None = None
    ) -> Stream:
        """Open a series that comes in row by row, with its covariates if there are any; needs `streaming=True`.

        It runs on the CPU whatever `device` says: launching the work on a GPU takes longer than one row on a CPU.
        `late` and `memory` say what becomes of rows that are older than the last one, see `Streams`.
        """
        from lformer.estimators.stream import Stream

        return Stream(self, static, late, memory)

    def streams(self, late: Late = "refuse", memory: int | None = None) -> Streams:
        """Open many series that come in row by row, in one batched step for all that have news; see `Streams`."""
        from lformer.estimators.streams import Streams

        return Streams(self, late, memory)

    @abstractmethod
    def _decode(self, outputs: torch.Tensor) -> Array:
        """Answers as the user gets them, (..., O), from what the model puts out, (..., O)."""

    def _series(self, X: Any, reset: bool = False) -> Panel:
        """The series of X; a plain table (n, time) must be as wide as the one of `fit`."""
        panel, wide = as_panel(X, self.missing_values, some=not reset)
        if reset:
            self.n_features_in_ = len(panel.channels) if wide is None else wide
            self._is_table = wide is not None
        else:
            check_width(self, wide)
        return panel

    def _answers(self, X: Any, task: Task) -> list[torch.Tensor]:
        """The model's answer for every series, in order."""
        check_is_fitted(self, "model_")
        panel = self.features_.match(self._series(X))
        part = self._part(panel, Targets(values=np.zeros(len(panel)), at="series"))
        with self._answering() as model:
            return predict(model, task, part, series_at_once(part, device_of(model), self.batch_size))

    def _part(self, panel: Panel, targets: Targets) -> PanelPart:
        """Series that match, as something to be answered or evaluated."""
        everyone = np.arange(len(panel))
        features = self.features_
        return PanelPart(
            panel, targets, everyone, 0, static=features.static(panel), precise=True, calendar=features.marks
        )

    @contextmanager
    def _answering(self) -> Iterator[LFormer | Ensemble]:
        """The model on the device it answers on; inside, products are rounded there as in training."""
        with rounding(self._training()):
            yield placed(self.model_, choose(self.device))

    def _scale(self, train: Panel) -> Scale:
        """How the values of a channel are scaled, by the training series."""
        return _single(scaling.fit(train, np.arange(len(train)), "robust"))

    def _prepare(
        self, panel: Panel, targets: Targets, task: Task, scale: Scale, seed: int
    ) -> tuple[Panel, Targets, Task]:
        """What is shown and asked in training, once the scales are known."""
        return panel, targets, task

    def _pretrainer(self, panel: Panel) -> LFormerEstimator | None:
        """A fitted estimator whose features, scales and weights training starts from; None begins with nothing."""
        return None

    def _splits(self, prepared: Prepared, task: Task, seed: int) -> Splits[PanelPart]:
        """The parts for the trainer."""
        name, features = type(self).__name__, self.features_
        return splits_of(
            prepared, name, task.name, seed, covariates=features.covariates, precise=True, calendar=features.marks
        )

    def _begin(self, model: LFormer, task: Task, splits: Splits[PanelPart]) -> None:
        """What is done with a new model before it is trained."""

    def _beside(self, member: Member, task: Task, later: Later) -> Callable[[float], float]:
        """What is done beside the training of a model, and then with it and its score on the validation series, which
        may become another."""
        return lambda score: score

    def _config(self, task: Task) -> LFormerConfig:
        return LFormerConfig(
            inputs=len(self.features_.channels), outputs=task.outputs, distribution=task.distribution,
            answer=task.answer, rows="carried",
            neighbours=self._neighbours(), statics=self.features_.covariates.width, marks=self.features_.marks.width,
            embedder="mlp", width=self.width, depth=self.depth, heads=self.heads, pooling="mean_last_max",
            dropout=self._dropout(), causal=self.streaming, gate_norm="prefix" if self.streaming else "sequence",
        )  # fmt: skip

    def _neighbours(self) -> int:
        """Of many channels most are rarely observed, and what they did around a row is many numbers that say little."""
        if self.neighbours == "auto":
            return NEIGHBOURS if len(self.features_.channels) <= FEW_CHANNELS else 0
        return int(self.neighbours)

    def _dropout(self) -> float:
        """Share of the numbers inside the model that are set to 0 in training."""
        given: Any = self.dropout
        if not (isinstance(given, Real) and 0 <= float(given) < 1):
            raise ValueError(f"dropout must be at least 0 and below 1; got {given!r}.")
        return float(given)

    def _members(self, series: int) -> int:
        """How many models answer together, trained on so many series."""
        if self.members == "auto":
            return members(series, self.max_epochs, self.streaming, self._alone)
        return self.members

    def _training(self, series: int = 1) -> TrainConfig:
        """How to train on so many series."""
        epochs, epoch_steps, batch_size = budget(series, self.batch_size, self.max_epochs, self._times)
        held = self._held or series * self.validation_fraction / (1 - self.validation_fraction)
        return TrainConfig(
            epochs=epochs, epoch_steps=epoch_steps, batch_size=batch_size, lr=self.lr, weight_decay=self.weight_decay,
            patience=self.patience, earliest=earliest(epochs, held, self.max_epochs), schedule="cosine", warmup=0.05,
            average=0.05, clip=1.0, device=self.device, devices=int(self.devices),
        )  # fmt: skip

    def _split(
        self, n: int, seed: int, classes: Array | None = None, whose: Array | None = None
    ) -> tuple[Array, Array]:
        """Training and validation series: whole groups, or of each class the same share if it has some to spare."""
        share, seed = self.validation_fraction, seed % 2**32
        if self._held:
            return np.arange(n - self._held), np.arange(n - self._held, n)
        if whose is not None:
            return hold_out_groups(whose, share, seed, classes)
        if classes is None:
            return hold_out(n, min(share, (n - 1) / n), seed)
        return hold_out_stratified(classes, share, seed)

    def _with_validation(self, panel: Panel, eval_set: Any) -> Panel:
        """Training series and, behind them, those of `eval_set`, which has no targets here."""
        self._held = 0
        if eval_set is None:
            return panel
        if isinstance(eval_set, tuple) and len(eval_set) == 2 and eval_set[1] is None:
            eval_set = eval_set[0]
        with named():
            held = self._asked(self._series(eval_set))
            if not len(held):
                raise ValueError("none of its series has rows to hide and to ask for.")
            self._held = len(held)
            return joined(panel, held)

    def _asked(self, panel: Panel) -> Panel:
        """The series of which something can be asked."""
        return panel

    def _check_parameters(self) -> None:
        positive = ("width", "depth", "heads", "lr", "batch_size", "max_epochs")
        for name in positive:
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0; got {getattr(self, name)}.")
        given: Any = self.members
        if given != "auto" and not (isinstance(given, Integral) and int(given) > 0):
            raise ValueError(f'members must be "auto" or a whole number greater than 0; got {given!r}.')
        given = self.neighbours
        if given != "auto" and not (isinstance(given, Integral) and int(given) >= 0):
            raise ValueError(f'neighbours must be "auto" or a whole number of at least 0; got {given!r}.')
        self._dropout()
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1; got {self.validation_fraction}.")
        check_missing_values(self.missing_values)
        check_calendar(self.calendar)
        if self.clock is not True and self.clock is not False and self.clock != "auto":
            raise ValueError(f'clock must be True, False or "auto"; got {self.clock!r}.')
        choose(self.device)
        if self.device == "gpu":
            devices.choose("gpu")  # to train it insists on one, and says so before anything is computed
        check_devices(self.devices, self.device)


def _together(models: list[LFormer]) -> LFormer | Ensemble:
    """Trained models as the one that answers, on the CPU."""
    ready = [model.cpu().eval() for model in models]
    if any(model.config.waves for model in ready):  # each has chosen by its own validation part
        for model in ready:
            model.set_trees(model.trees, waves=True)
    return ready[0] if len(ready) == 1 else Ensemble(ready).eval()


def _asks(config: LFormerConfig, task: Task) -> bool:
    """Whether a model of this shape puts out what a task asks for."""
    return (config.outputs, config.distribution) == (task.outputs, task.distribution)


def members_of(model: LFormer | Ensemble) -> list[LFormer]:
    """The models that answer together, one if it is alone."""
    return model.models if isinstance(model, Ensemble) else [model]


def mean_and_deviation(table: Array) -> tuple[list[float], list[float]]:
    """Of each column of (n, O) numbers, NaN aside; a deviation of 0 counts as 1."""
    spread = np.nanstd(table, axis=0)
    return np.nanmean(table, axis=0).tolist(), np.where(spread > 0, spread, 1.0).tolist()


def _single(scale: Scale) -> Scale:
    """In float32, as the model holds it, so that what it takes away and what is added again are the same."""
    return Scale(*(array.astype(np.float32) for array in (scale.shift, scale.scale, scale.low, scale.high)))


def scale_of(model: LFormer | Ensemble) -> Scale:
    """How a fitted model scales the values of its channels."""
    rows = members_of(model)[0].rows
    return Scale(*(buffer.cpu().numpy() for buffer in (rows.shift, rows.scale, rows.low, rows.high)))
