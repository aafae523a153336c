"""Members are trained side by side on the cores of a CPU, each as it would be alone."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from estimators.every_estimator import SMALL, answers, records, targets

from lformer import LFormerClassifier, LFormerRegressor
from lformer.estimators import members as training
from lformer.estimators.base import InterruptedFit, members_of
from lformer.estimators.members import Turns
from lformer.train import DivergedError


@pytest.fixture
def threads() -> Iterator[None]:
    """Two threads to work with, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads that trained a model."""
    found, real = set(), training.fit

    def watched(*args: Any, **kwargs: Any) -> Any:
        found.add(threading.get_ident())
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "fit", watched)
    return found


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerRegressor])
def test_side_by_side_is_one_after_the_other(kind: Any, workers: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    X = records()
    y = targets(kind, X)
    settings = SMALL | {"members": 3, "max_epochs": 4, "dropout": 0.2}
    beside = kind(**settings).fit(X, y)
    assert threading.get_ident() not in workers
    assert 1 <= len(workers) <= 3
    assert torch.get_num_threads() == 2
    monkeypatch.setattr(training, "_at_once", lambda members: 1)
    workers.clear()
    torch.set_num_threads(1)
    after = kind(**settings).fit(X, y)
    assert workers == {threading.get_ident()}
    assert [row["member"] for row in beside.history_] == [row["member"] for row in after.history_]
    for one, two in zip(answers(beside, X), answers(after, X), strict=True):
        if np.asarray(one).dtype.kind == "f":
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    weights = [[p.detach() for p in model.parameters()] for model in members_of(beside.model_)]
    assert not torch.equal(weights[0][0], weights[1][0])  # each has its own seed and validation part


def test_turns_go_round() -> None:
    """Whoever passes on comes again after all who waited."""
    turns, order = Turns(1), []

    def work(n: int) -> None:
        with turns:
            for _ in range(6):
                order.append(n)
                turns.pass_on()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    with turns:
        for n, thread in enumerate(threads):
            thread.start()
            while len(turns._waiting) <= n:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2] * 6


@pytest.mark.usefixtures("threads")
def test_members_pass_on_their_turn_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = []

    class Watched(Turns):
        def pass_on(self) -> None:
            passed.append(self)
            super().pass_on()

    monkeypatch.setattr(training, "Turns", Watched)
    X = records()
    LFormerClassifier(**SMALL | {"members": 3, "max_epochs": 6}).fit(X, targets(LFormerClassifier, X))
    assert len(passed) == 3 * 6


@pytest.mark.usefixtures("threads")
def test_one_that_fails_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, real = [], training.fit

    def fails(model: Any, *args: Any, seed: int, **kwargs: Any) -> Any:
        begun.append(seed)
        if seed == min(begun):
            raise DivergedError("the loss became nan", [])
        return real(model, *args, seed=seed, **kwargs)

    monkeypatch.setattr(training, "fit", fails)
    X = records()
    with pytest.raises(DivergedError, match="nan"):
        LFormerClassifier(**SMALL | {"members": 9, "max_epochs": 50}).fit(X, targets(LFormerClassifier, X))
    assert len(begun) < 9


@pytest.mark.usefixtures("threads", "signals_as_in_a_terminal")
def test_ctrl_c_reaches_members_in_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    real, sent = training.fit, []

    def fit(model: Any, *args: Any, report: Any, **kwargs: Any) -> Any:
        def watch(row: dict[str, float]) -> None:
            report(row)
            if row["epoch"] == 2 and not sent:
                sent.append(row)
                os.kill(os.getpid(), signal.SIGINT)

        return real(model, *args, report=watch, **kwargs)

    monkeypatch.setattr(training, "fit", fit)
    X = records()
    endless = LFormerRegressor(**SMALL | {"members": 5, "max_epochs": 1500, "patience": None})
    with pytest.raises(InterruptedFit, match="best model so far") as error:
        endless.fit(X, targets(LFormerRegressor, X))
    assert error.value.estimator is not None
    assert len(members_of(error.value.estimator.model_)) == 5  # as they take turns
    assert 3 <= error.value.estimator.n_iter_ < 1500
    assert np.isfinite(error.value.estimator.predict(X)).all()
