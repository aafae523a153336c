"""What all estimators share: the scikit-learn interface, and training by the common trainer."""

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

NEIGHBOURS, FEW_CHANNELS = 4, 16  # neighbours="auto": this many, for up to this many channels


class InterruptedFit(KeyboardInterrupt):
    """Raised when Ctrl-C interrupts `fit`.

    `estimator` is a fitted copy with the best weights so far, or None if no epoch was completed.
    """

    def __init__(self, message: str, estimator: LFormerEstimator | None) -> None:
        super().__init__(message)
        self.estimator = estimator


E = TypeVar("E", bound="LFormerEstimator")
P = ParamSpec("P")


def all_or_nothing(fit: Callable[Concatenate[E, P], E]) -> Callable[Concatenate[E, P], E]:
    """Decorate `fit` to work on a copy, so that an error or Ctrl-C leaves the estimator as it was.

    Series held out for calibration are removed before fitting and used after it.
    """

    @wraps(fit)
    def whole(self: E, /, *args: P.args, **kwargs: P.kwargs) -> E:
        fitted = copy(self)
        given: Any = args, kwargs
        (args, kwargs), held = fitted._hold_out(fit, *given)
        fit(fitted, *args, **kwargs)  # called from here, so that the stacklevel of warnings points at the user's call
        fitted._calibrate_on(held)
        self.__dict__.update(fitted.__dict__)  # atomic: no signal is handled in between
        return self

    return whole


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerEstimator(HubMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of all estimators, with the constructor arguments that they share.

    As in scikit-learn, the constructor only stores its arguments, and `fit` validates them. Subclasses add arguments of
    their own and change some defaults.

    After `fit`, `validation_score_` is the metric by which the epoch was selected, computed on the validation series.
    `naive_score_` is the same metric for `naive_`, the best of a few simple baselines: gradient-boosted trees on
    summary features if there is one prediction per series, the latest value, the mean and the like for forecasts. If a
    baseline is better than the model, `fit` warns.

    Args:
        width, depth, heads: size of the model.
        dropout: dropout rate inside the model during training. "auto", which only the two regressors accept, is 0
            without `uncertainty`, because dropout makes predicted numbers less precise; with `uncertainty` it is 0.2
            per series or 0.1 per row, because models without dropout are overconfident.
        members: number of models in the ensemble. They are trained independently, each with its own validation set, and
            their predictions are averaged. Five members cost five times as much, spread over the cores of a CPU or side
            by side on a GPU, and nearly always beat one. "auto" is 3 for fewer than 100 series (2,000 for
            `LFormerPointClassifier`), and 1 for more series, with `streaming`, and if `max_epochs` is given.
        lr: peak learning rate; it warms up to this value and then decays to 0 by the end of training.
        batch_size: series per training step; at most a third of the training series.
        max_epochs: number of passes over the training series. None sets the number of steps instead: about 1,000 for
            few series, with several passes per epoch, and 2,500 for many, but never fewer than three passes.
        weight_decay: weight decay of AdamW.
        neighbours: number of moments before and after each row, one typical interval apart, at which the row also shows
            the values of every channel. This lets the model see shapes; 0 turns it off. "auto" is 4 for up to 16
            channels, else 0.
        patience: number of epochs without a better validation metric after which training stops; None never stops
            early.
        validation_fraction: share of the training series held out to select the epoch. If fewer than 30 are held out
            and `max_epochs` is None, only epochs in the second half of training can be selected. With `groups` in
            `fit`, all series of some subjects are held out together; with `eval_set`, none are.
        streaming: train a causal model, in which the gate only looks back; required by `stream`.
        missing_values: numbers that stand for missing values, in the training series and in all later ones: a number
            such as -9999, a list, or a dict by channel such as {"sodium": -1}. NaN always counts as missing.
        calendar: calendar features of rows and query times, if the time stamps are dates. "auto" takes those of "hour",
            "weekday" and "year" that the training series can support: most of them are longer than a day, a week or
            a year, and their time stamps differ within it. False for none, or a tuple of names. Days and hours are in
            the time zone of the time stamps, if they have one. Times that are numbers or durations have no calendar.
        clock: whether the model also sees the absolute time of a row, on the clock that numeric times or durations
            refer to, such as hours since admission, and not only the time since the first row of its series. "auto"
            turns this on if training series begin at different times of one clock and cover most of its range; a series
            on another clock then needs its times shifted. Use False for a clock without meaning; forecasters and
            interpolators only use the clock if you set True.
        device: device for training and prediction. "auto" is CUDA if available, else the CPU; "cpu" never uses a GPU.
            "gpu" requires a GPU in `fit`, but predicts like "auto", so a saved model works on every machine. On CUDA,
            matrix products use TF32 in both. `model_` stays on the CPU, and a GPU predicts with a copy.
        devices: number of processes that train together on this machine, each on its share of every batch: one per GPU,
            or several on CPUs. `fit` starts them, which takes a few seconds, and stops them. The resulting model is
            that of a single process, up to rounding and the random numbers of dropout. `predict` always runs in the
            calling process.
        random_state: seed for the initial weights, the validation split and the order of the series.
        verbose: 1 shows a progress bar.
        warm_start: whether to continue from the weights of the previous `fit`.
        autosave: folder in which `fit` saves the model, as `save` does: the final model, or after Ctrl-C the best so
            far.

    `fit` first inspects the series and emits a `SuspectDataWarning` for everything that looks like a mistake in the
    data. If `fit` does not finish, for whatever reason, the estimator is left unchanged.
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

    _times: ClassVar[int] = 1  # multiplies the usual number of steps
    _alone: ClassVar[int] = ALONE  # from this many series on, one model is enough
    # How many series at the end of those of the last `fit` came from `eval_set`, for validation only; not saved.
    _held: int = field(default=0, init=False)

    if TYPE_CHECKING:  # set by `fit`; at run time, a dataclass would take these annotations for parameters
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
        _naive: Naive | None = field(init=False)  # the baselines of the last `fit`; not saved

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
        """Fit features and model; the validation set is stratified by `classes`, or consists of whole groups."""
        self._check_parameters()
        self.calibration_ = None
        if len(panel) < 2:
            raise ValueError(f"at least 2 series are needed to train and to validate; n_samples={len(panel)}.")
        world = join(self.device)  # a single process, unless torchrun or the like has started several
        seed = world.agreed(int(check_random_state(self.random_state).randint(2**31 - 1)))
        begun = panel.ids[: len(panel) - self._held].tolist()
        whose = None if groups is None else np.array([groups[id] for id in begun])
        suspected = warn_of_suspects(panel[self._split(len(panel), seed, classes, whose)[0]] if self._held else panel)
        earlier = deepcopy(members_of(self.model_)) if self.warm_start and hasattr(self, "model_") else []
        for fitted in earlier:
            fitted.set_trees(None)  # its trees were fitted to complement other weights
        before = None if earlier else self._pretrainer(panel)
        if earlier:
            scale = scale_of(earlier[0])
        elif before is not None:
            self.features_, scale = before.features_, scale_of(before.model_)
        else:
            train, _ = self._split(len(panel), seed, classes, whose)
            clock = False if self.clock == "auto" and self.streaming else self.clock  # a stream may outrun the clock
            self.features_ = Features.fit(panel[train], self.calendar, clock)
            scale = self._scale(some_of(panel[train]).with_missing(suspected))  # without marks for missing values
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
        """Split the arguments of `fit` into those without the calibration series, and these; None if there are none."""
        return (args, kwargs), None

    def _calibrate_on(self, held: Any) -> None:
        """After `fit`, calibrate on the series that were held out, if any."""

    def _interrupted(self, stopped: StoppedError) -> InterruptedFit:
        """The error that `fit` raises after Ctrl-C, with the members that completed an epoch, each at its best one."""
        if not stopped.models:
            return InterruptedFit("fit was interrupted before the end of the first epoch.", None)
        self.model_, self.n_iter_ = _together(stopped.models), stopped.epochs
        if self.autosave is None:
            return InterruptedFit("fit was interrupted; the best model so far is the `estimator` of this error.", self)
        self.save(self.autosave)
        return InterruptedFit(f"fit was interrupted; the best model so far is saved in {self.autosave}.", self)

    def _html_repr(self) -> str:
        """HTML for notebooks: scikit-learn's diagram, followed by a table of what `fit` found."""
        return estimator_html_repr(self) + fitted_table(self)

    def save(self, folder: str | Path) -> None:
        """Save the fitted estimator to a folder, without pickle; `lformer.estimators.load` loads it."""
        from lformer.estimators import artefact

        artefact.save(self, folder)

    def export(self, folder: str | Path, to: Literal["onnx", "pt2"] = "onnx") -> Path:
        """Export the fitted estimator as graphs that run without lformer, with a description and examples.

        Args:
            folder: a new or empty folder, or one with an earlier export, which is replaced.
            to: "onnx", which also runs without PyTorch, or "pt2", PyTorch's own archive format.

        Returns:
            The folder. See `lformer.export` for its contents.
        """
        from lformer.export import export

        check_is_fitted(self, "model_")
        return export(self, folder, to)

    def stream(
        self, static: Mapping[str, Any] | None = None, late: Late = "refuse", memory: int | None = None
    ) -> Stream:
        """Open a stream for one series whose rows arrive one at a time; requires `streaming=True`.

        It runs on the CPU whatever `device` is: for a single row, launching kernels on a GPU takes longer than the CPU
        needs to compute it.

        Args:
            static: the static covariates of the series, if the model was trained with any.
            late, memory: how rows that are older than the last one are handled, see `Streams`.
        """
        from lformer.estimators.stream import Stream

        return Stream(self, static, late, memory)

    def streams(self, late: Late = "refuse", memory: int | None = None) -> Streams:
        """Open streams for many series, which are updated together in one batched step; see `Streams`."""
        from lformer.estimators.streams import Streams

        return Streams(self, late, memory)

    @abstractmethod
    def _decode(self, outputs: torch.Tensor) -> Array:
        """Predictions as the user gets them, (..., O), from the outputs of the model, (..., O)."""

    def _series(self, X: Any, reset: bool = False) -> Panel:
        """The series of X; a plain table (n, time) must have as many columns as in `fit`."""
        panel, wide = as_panel(X, self.missing_values, some=not reset)
        if reset:
            self.n_features_in_ = len(panel.channels) if wide is None else wide
            self._is_table = wide is not None
        else:
            check_width(self, wide)
        return panel

    def _answers(self, X: Any, task: Task) -> list[torch.Tensor]:
        """The raw output of the model for every series, in order."""
        check_is_fitted(self, "model_")
        panel = self.features_.match(self._series(X))
        part = self._part(panel, Targets(values=np.zeros(len(panel)), at="series"))
        with self._answering() as model:
            return predict(model, task, part, series_at_once(part, device_of(model), self.batch_size))

    def _part(self, panel: Panel, targets: Targets) -> PanelPart:
        """Matched series as a data set for prediction or evaluation."""
        everyone = np.arange(len(panel))
        features = self.features_
        return PanelPart(
            panel, targets, everyone, 0, static=features.static(panel), precise=True, calendar=features.marks
        )

    @contextmanager
    def _answering(self) -> Iterator[LFormer | Ensemble]:
        """The model on its prediction device; inside the context, products are rounded there as in training."""
        with rounding(self._training()):
            yield placed(self.model_, choose(self.device))

    def _scale(self, train: Panel) -> Scale:
        """Fit the scaling of the channels to the training series."""
        return _single(scaling.fit(train, np.arange(len(train)), "robust"))

    def _prepare(
        self, panel: Panel, targets: Targets, task: Task, scale: Scale, seed: int
    ) -> tuple[Panel, Targets, Task]:
        """Inputs, targets and task of training, once the scales are known."""
        return panel, targets, task

    def _pretrainer(self, panel: Panel) -> LFormerEstimator | None:
        """The fitted estimator whose features, scales and weights training starts from; None to start from scratch."""
        return None

    def _splits(self, prepared: Prepared, task: Task, seed: int) -> Splits[PanelPart]:
        """The training and validation sets for the trainer."""
        name, features = type(self).__name__, self.features_
        return splits_of(
            prepared, name, task.name, seed, covariates=features.covariates, precise=True, calendar=features.marks
        )

    def _begin(self, model: LFormer, task: Task, splits: Splits[PanelPart]) -> None:
        """Initialise a new model from the training data, before it is trained."""

    def _beside(self, member: Member, task: Task, later: Later) -> Callable[[float], float]:
        """Start work that runs alongside the training of a model; return a function that finishes it.

        After training, that function is called with the model's validation score and returns the score, which may have
        changed.
        """
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
        """The number of neighbours; "auto" has none for many channels, most of which are rarely observed."""
        if self.neighbours == "auto":
            return NEIGHBOURS if len(self.features_.channels) <= FEW_CHANNELS else 0
        return int(self.neighbours)

    def _dropout(self) -> float:
        """The dropout rate."""
        given: Any = self.dropout
        if not (isinstance(given, Real) and 0 <= float(given) < 1):
            raise ValueError(f"dropout must be at least 0 and below 1; got {given!r}.")
        return float(given)

    def _members(self, series: int) -> int:
        """Size of the ensemble for this many training series."""
        if self.members == "auto":
            return members(series, self.max_epochs, self.streaming, self._alone)
        return self.members

    def _training(self, series: int = 1) -> TrainConfig:
        """Settings of the trainer for this many series."""
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
        """Training and validation series: whole groups, or stratified by class where a class has enough series."""
        share, seed = self.validation_fraction, seed % 2**32
        if self._held:
            return np.arange(n - self._held), np.arange(n - self._held, n)
        if whose is not None:
            return hold_out_groups(whose, share, seed, classes)
        if classes is None:
            return hold_out(n, min(share, (n - 1) / n), seed)
        return hold_out_stratified(classes, share, seed)

    def _with_validation(self, panel: Panel, eval_set: Any) -> Panel:
        """Training series followed by those of `eval_set`, which has no targets here."""
        self._held = 0
        if eval_set is None:
            return panel
        if isinstance(eval_set, tuple) and len(eval_set) == 2 and eval_set[1] is None:
            eval_set = eval_set[0]
        with named():
            held = self._asked(self._series(eval_set))
            if not len(held):
                raise ValueError("none of its series has rows that can be hidden and predicted.")
            self._held = len(held)
            return joined(panel, held)

    def _asked(self, panel: Panel) -> Panel:
        """The series that can be used for training and evaluation."""
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
            devices.choose("gpu")  # training requires one: raise an error before anything is computed
        check_devices(self.devices, self.device)


def _together(models: list[LFormer]) -> LFormer | Ensemble:
    """Trained models as the single model or ensemble that predicts, on the CPU."""
    ready = [model.cpu().eval() for model in models]
    if any(model.config.waves for model in ready):  # each member has decided on its own validation set
        for model in ready:
            model.set_trees(model.trees, waves=True)
    if all(model.config.answer == "step" and not _trees_count(model) for model in ready):
        for model in ready:
            model.set_trees(None)  # of rows they take longer than the network, so they go if no member uses them
    return ready[0] if len(ready) == 1 else Ensemble(ready).eval()


def _trees_count(model: LFormer) -> bool:
    return model.trees is not None and float(model.trees.weight) > 0


def _asks(config: LFormerConfig, task: Task) -> bool:
    """Whether a model with this config has the outputs that the task needs."""
    return (config.outputs, config.distribution) == (task.outputs, task.distribution)


def members_of(model: LFormer | Ensemble) -> list[LFormer]:
    """The members of an ensemble, or a list with the single model."""
    return model.models if isinstance(model, Ensemble) else [model]


def mean_and_deviation(table: Array) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each column of (n, O) numbers, ignoring NaN; a deviation of 0 becomes 1."""
    spread = np.nanstd(table, axis=0)
    return np.nanmean(table, axis=0).tolist(), np.where(spread > 0, spread, 1.0).tolist()


def _single(scale: Scale) -> Scale:
    """The scale rounded to float32, as the model stores it, so that scaling and its inverse use the same numbers."""
    return Scale(*(array.astype(np.float32) for array in (scale.shift, scale.scale, scale.low, scale.high)))


def scale_of(model: LFormer | Ensemble) -> Scale:
    """The scaling of the channels of a fitted model."""
    rows = members_of(model)[0].rows
    return Scale(*(buffer.cpu().numpy() for buffer in (rows.shift, rows.scale, rows.low, rows.high)))
