"""A fit that does not end leaves the estimator as it was; Ctrl-C keeps the best model so far where it was asked for."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from estimators.every_estimator import SIX, SMALL, answers, fitted, records, same, targets

from lformer import LFormerClassifier, LFormerRegressor, Panel, load
from lformer.estimators import members as training
from lformer.estimators.base import InterruptedFit
from lformer.train import DivergedError


def other_records() -> Panel:
    """The same channels on another scale."""
    X = records(seed=5)
    series = [(times, 50 + 10 * np.asarray(values)) for times, values in (X[i] for i in range(len(X)))]
    return Panel.from_list(series, channels=X.channels, ids=X.ids, static=X.static)


@pytest.mark.parametrize("kind", SIX)
@pytest.mark.parametrize("fault", ["heads", "interrupt", "diverged", "late"])
def test_a_failed_fit_leaves_the_estimator_as_it_was(kind: Any, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = records()
    model = fitted(kind, X)
    before, state = answers(model, X), dict(vars(model))
    real = training.fit

    error = {"interrupt": KeyboardInterrupt(), "diverged": DivergedError("nan", [])}.get(fault, MemoryError())

    def fails(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)  # the weights have changed by now
        raise error

    monkeypatch.setattr(training, "fit", real if fault == "heads" else fails)
    if fault == "heads":
        model.set_params(heads=3)
    with pytest.raises((ValueError, KeyboardInterrupt, DivergedError, MemoryError)):
        model.fit(other_records(), targets(kind, records(seed=7)))
    model.set_params(heads=state["heads"])
    assert vars(model) == state
    assert same(answers(model, X), before)


def test_a_failed_warm_start_leaves_the_weights_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    X = records()
    model = fitted(LFormerClassifier, X, warm_start=True)
    before = answers(model, X)
    real = training.fit

    def fails(*args: Any, **kwargs: Any) -> Any:
        real(*args, **kwargs)
        raise MemoryError

    monkeypatch.setattr(training, "fit", fails)
    with pytest.raises(MemoryError):
        model.fit(X, targets(LFormerClassifier, X))
    assert same(answers(model, X), before)
    monkeypatch.setattr(training, "fit", real)
    model.fit(X, targets(LFormerClassifier, X))
    assert not same(answers(model, X), before)


def test_bad_targets_leave_the_classes_as_they_were() -> None:
    X = records()
    model = fitted(LFormerClassifier, X)
    classes = model.classes_
    with pytest.raises(ValueError, match="at least two classes"):
        model.fit(X, ["one"] * len(X))
    assert model.classes_ is classes


def interrupting(epoch: int, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Send this process SIGINT after an epoch, as Ctrl-C does; what is returned fills with the weights of each one."""
    real, weights, sent = training.fit, [], []

    def fit(model: Any, *args: Any, report: Any, **kwargs: Any) -> Any:
        def watch(row: dict[str, float]) -> None:
            report(row)
            weights.append({**deepcopy(model.state_dict()), "score": row["rmse"]})
            if row["epoch"] == epoch and not sent:  # one, though members may be trained side by side
                sent.append(epoch)
                os.kill(os.getpid(), signal.SIGINT)

        return real(model, *args, report=watch, **kwargs)

    monkeypatch.setattr(training, "fit", fit)
    return weights


@pytest.mark.usefixtures("signals_as_in_a_terminal")
@pytest.mark.parametrize("members", [1, 2])
def test_ctrl_c_is_a_keyboard_interrupt_with_the_best_model_so_far(
    members: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, folder = records(), tmp_path / "model"
    y = targets(LFormerRegressor, X)
    model = LFormerRegressor(**SMALL | {"max_epochs": 9, "members": members, "autosave": str(folder)})
    interrupting(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="saved in") as error:
        model.fit(X, y)
    assert isinstance(error.value, InterruptedFit)
    assert not hasattr(model, "model_")
    assert error.value.estimator is not None
    assert error.value.estimator.n_iter_ == 3 or members > 1  # beside it another had gone further
    assert error.value.estimator.n_iter_ >= 3
    assert same(answers(load(folder), X), answers(error.value.estimator, X))


@pytest.mark.usefixtures("signals_as_in_a_terminal")
def test_the_weights_after_ctrl_c_are_those_of_the_best_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    X = records()
    training = LFormerRegressor._training
    monkeypatch.setattr(LFormerRegressor, "_training", lambda self, n=1: replace(training(self, n), average=0.0))
    weights = interrupting(3, monkeypatch)
    with pytest.raises(InterruptedFit) as error:
        LFormerRegressor(**SMALL | {"max_epochs": 9, "lr": 0.5}).fit(X, targets(LFormerRegressor, X))
    scores = [epoch.pop("score") for epoch in weights]
    assert np.argmin(scores) != len(scores) - 1  # else the last weights would do
    assert error.value.estimator is not None
    kept = error.value.estimator.model_.state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in weights[int(np.argmin(scores))].items())


def test_before_the_first_epoch_there_is_nothing_to_keep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "fit", stop)
    X = records()
    with pytest.raises(InterruptedFit, match="before the end of the first epoch") as error:
        LFormerClassifier(**SMALL, autosave=str(tmp_path / "model")).fit(X, targets(LFormerClassifier, X))
    assert error.value.estimator is None
    assert not (tmp_path / "model").exists()


def test_autosave_keeps_the_final_model(tmp_path: Path) -> None:
    X = records()
    model = fitted(LFormerClassifier, X, autosave=str(tmp_path / "model"))
    assert same(answers(load(tmp_path / "model"), X), answers(model, X))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_fits_in_threads_draw_their_own_numbers(dropout: float) -> None:
    X, y = records(), targets(LFormerClassifier, records())
    change = {"dropout": dropout, "max_epochs": 3}
    alone = [answers(fitted(LFormerClassifier, X, random_state=seed, **change), X) for seed in range(4)]
    assert not same(alone[0], alone[1])
    stop = threading.Event()

    def noise() -> None:
        while not stop.is_set():
            torch.rand(10)
            torch.manual_seed(1)

    def one(seed: int) -> list[Any]:
        return answers(LFormerClassifier(**SMALL | {"random_state": seed} | change).fit(X, y), X)

    other = threading.Thread(target=noise)
    other.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(one, range(4)))
    finally:
        stop.set()
        other.join()
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


def test_a_fit_leaves_the_random_state_of_the_process_alone() -> None:
    torch.manual_seed(11)
    state = torch.get_rng_state()
    fitted(LFormerClassifier, dropout=0.2)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_stream_goes_on_with_the_model_it_was_opened_with() -> None:
    X, y = records(), targets(LFormerRegressor, records())
    model = fitted(LFormerRegressor, X, streaming=True)
    covariates = {"age": 50.0, "site": "north"}
    stream, other = model.stream(covariates), model.stream(covariates)
    first = stream.update(0.0, [3.0, 1.0])
    model.fit(X, 1000 * np.asarray(y))
    np.testing.assert_array_equal(other.update(0.0, [3.0, 1.0]), first)
