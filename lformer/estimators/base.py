"""What the estimators share: scikit-learn's manners outside, the one trainer inside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from lformer import tasks
from lformer.estimators.devices import choose, placed
from lformer.estimators.features import Features
from lformer.estimators.hub import HubMixin
from lformer.estimators.inputs import as_panel
from lformer.evaluate import predict
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.ensemble import Ensemble
from lformer.panel import Array, Panel
from lformer.parts import PanelPart, Prepared, Splits, Targets, splits_of
from lformer.splitting import hold_out
from lformer.tasks import Task
from lformer.train import TrainConfig, fit, rounding, seeded

if TYPE_CHECKING:
    from lformer.estimators.stream import Stream


class LFormerEstimator(HubMixin, BaseEstimator):  # type: ignore[misc]
    """Constructor arguments of every estimator; they are stored and nothing else, `fit` checks them.

    Args:
        width, depth, heads: size of the model.
        dropout: in training, share of the numbers inside the model that are set to 0.
        members: models trained apart, each with its own validation part, that answer together by their mean. Five cost
            five times as much and are nearly always better than one.
        lr, batch_size, max_epochs: how it is trained; the rate rises, then falls to 0 over `max_epochs`.
        weight_decay: of AdamW.
        patience: epochs without a better validation metric before training stops; None never stops early.
        validation_fraction: share of the training series held out to choose the epoch.
        streaming: build a causal model whose gate looks back only, which `stream` needs.
        device: of training and prediction. "auto" is a GPU where there is one, in prediction with CUDA alone, else the
            CPU; "cpu" never a GPU. "gpu" insists on one in `fit`, while prediction goes on as "auto": a saved model
            answers everywhere. On CUDA products are rounded to TF32, in both. `model_` stays on the CPU, and a GPU
            predicts with a copy.
        random_state: of weights, split and order.
        verbose: 1 shows a bar.
        warm_start: go on from the weights of the last `fit`.
    """

    def __init__(
        self,
        *,
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
        dropout: float = 0.0,
        members: int = 1,
        lr: float = 2e-3,
        batch_size: int = 32,
        max_epochs: int = 40,
        weight_decay: float = 0.01,
        patience: int | None = 10,
        validation_fraction: float = 0.15,
        streaming: bool = False,
        device: Literal["auto", "cpu", "gpu"] = "auto",
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.width = width
        self.depth = depth
        self.heads = heads
        self.dropout = dropout
        self.members = members
        self.lr = lr
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.streaming = streaming
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    model_: LFormer | Ensemble
    features_: Features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _fit(self, panel: Panel, targets: Targets, task: Task, groups: Array | None = None) -> Self:
        """Fit features and model; `groups` keeps the proportions of classes in the validation part."""
        self._check_parameters()
        if len(panel) < 2:
            raise ValueError(f"at least 2 series are needed to train and to validate; n_samples={len(panel)}.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        earlier = list(_members(self.model_)) if self.warm_start and hasattr(self, "model_") else []
        if not earlier:
            train, _ = self._split(len(panel), seed, groups)
            self.features_ = Features.fit(panel[train].compact())
        rows, asked = self._prepare(panel, targets, seed)
        trained: list[LFormer] = []
        self.history_: list[dict[str, float]] = []
        self.n_iter_ = 0
        for n in range(self.members):
            train, validation = self._split(len(panel), seed + n, groups)
            prepared = Prepared(panel=rows, targets=asked, train=train, validation=validation, test=validation)
            model = earlier[n] if n < len(earlier) and earlier[n].config.outputs == task.outputs else None
            if model is None:
                with seeded(seed + n):
                    model = LFormer(self._config(task))
            splits = self._splits(panel, prepared, task, seed + n)
            result = fit(model, task, splits, self._training(), seed=seed + n, progress=bool(self.verbose))
            trained.append(model.cpu().eval())
            mark = {"member": n} if self.members > 1 else {}
            self.history_ += [mark | row for row in result.history]
            self.n_iter_ = max(self.n_iter_, result.epochs)
        self.task_ = task
        self.model_ = trained[0] if self.members == 1 else Ensemble(trained).eval()
        return self

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator to a folder, from which `lformer.estimators.load` reads it; nothing is pickled."""
        from lformer.estimators import artefact

        artefact.save(self, folder)

    def stream(self, static: Mapping[str, Any] | None = None) -> Stream:
        """Open a series that comes in row by row, with its covariates if there are any; needs `streaming=True`.

        It runs on the CPU whatever `device` says: a single row is less work than a GPU takes to be told of it.
        """
        from lformer.estimators.stream import Stream

        return Stream(self, static)

    @abstractmethod
    def _decode(self, outputs: torch.Tensor) -> Array:
        """What the user is told, (..., O), from what the model puts out, (..., O)."""

    def _series(self, X: Any, reset: bool = False) -> Panel:
        """The series of X; a plain table (n, time) must be as wide as the one of `fit`."""
        panel, wide = as_panel(X)
        if reset:
            self.n_features_in_ = len(panel.channels) if wide is None else wide
            self._is_table = wide is not None
        elif self._is_table and wide is not None and wide != self.n_features_in_:
            name, known = type(self).__name__, self.n_features_in_
            raise ValueError(f"X has {wide} features, but {name} is expecting {known} features as input.")
        return panel

    def _answers(self, X: Any, task: Task) -> list[torch.Tensor]:
        """The model's answer for every series, in order."""
        check_is_fitted(self, "model_")
        panel = self._series(X)
        part = PanelPart(self.features_.apply(panel), Targets(values=np.zeros(len(panel)), at="series"),
                         np.arange(len(panel)), 0)  # fmt: skip
        with self._answering() as model:
            return predict(model, task, part, self.batch_size)

    @contextmanager
    def _answering(self) -> Iterator[LFormer | Ensemble]:
        """The model on the device it answers on; inside, products are rounded there as in training."""
        with rounding(self._training()):
            yield placed(self.model_, choose(self.device))

    def _prepare(self, panel: Panel, targets: Targets, seed: int) -> tuple[Panel, Targets]:
        """Rows for the model and what is asked of it, once the features are known."""
        return self.features_.apply(panel), targets

    def _splits(self, panel: Panel, prepared: Prepared, task: Task, seed: int) -> Splits[PanelPart]:
        """The parts for the trainer; `panel` holds what the rows of `prepared` were made from."""
        return splits_of(prepared, type(self).__name__, task.name, seed)

    def _config(self, task: Task) -> LFormerConfig:
        return LFormerConfig(
            inputs=self.features_.width, outputs=task.outputs, answer=task.answer, embedder="mlp", width=self.width,
            depth=self.depth, heads=self.heads, pooling="mean_last_max", dropout=self.dropout, causal=self.streaming,
            gate_norm="prefix" if self.streaming else "sequence",
        )  # fmt: skip

    def _training(self) -> TrainConfig:
        return TrainConfig(
            epochs=self.max_epochs, batch_size=self.batch_size, lr=self.lr, weight_decay=self.weight_decay,
            patience=self.patience, schedule="cosine", warmup=0.05, clip=1.0, accelerator=self.device,
        )  # fmt: skip

    def _split(self, n: int, seed: int, groups: Array | None) -> tuple[Array, Array]:
        """Training and validation series; of each class the same share, if it has members to spare."""
        if groups is None:
            return hold_out(n, min(self.validation_fraction, (n - 1) / n), seed % 2**32)
        parts = [np.flatnonzero(groups == g) for g in np.unique(groups)]
        cuts = [hold_out(len(p), self.validation_fraction, seed % 2**32) if len(p) > 1 else ([0], []) for p in parts]
        train = np.concatenate([p[np.asarray(a, int)] for p, (a, _) in zip(parts, cuts, strict=True)])
        held = np.concatenate([p[np.asarray(b, int)] for p, (_, b) in zip(parts, cuts, strict=True)])
        return (np.sort(train), np.sort(held)) if len(held) else (np.sort(train), np.sort(train))

    def _check_parameters(self) -> None:
        positive = ("width", "depth", "heads", "members", "lr", "batch_size", "max_epochs")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0; got {getattr(self, name)}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1; got {self.dropout}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1; got {self.validation_fraction}.")
        choose(self.device)


def _members(model: LFormer | Ensemble) -> list[LFormer]:
    return model.models if isinstance(model, Ensemble) else [model]


def classification(classes: Array, labels: Array, class_weight: Any, answer: Literal["series", "step"]) -> Task:
    """The task of a classifier; its epoch is chosen by cross-entropy, as accuracy moves in steps of one example."""
    of_class = None if class_weight is None else compute_class_weight(class_weight, classes=classes, y=labels).tolist()
    return replace(tasks.classify(len(classes), answer, of_class), monitor="cross_entropy", direction="min")
