"""fit(..., eval_set=(X, y)): all series of X train, those of eval_set choose the epoch and do nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from estimators.every_estimator import POINTS, RECORDS, SERIES, SIX, SMALL, answers, records, same, targets
from sklearn.metrics import log_loss

from lformer import LFormerClassifier, LFormerPointClassifier, LFormerPointRegressor, LFormerRegressor, Panel
from lformer import LFormerPretrainer as Pretrainer
from lformer.estimators import base
from lformer.estimators import members as training
from lformer.estimators.base import scale_of


def given(kind: Any, X: Panel) -> Any:
    """eval_set as this class takes it."""
    return X if kind in (*RECORDS, Pretrainer) else (X, targets(kind, X))


def wild(X: Panel) -> Panel:
    """The same series with values, ids and covariates that no training series has."""
    static = X.static.assign(age=1e6, site="moon")
    return replace(X, values=X.values * 1e6, ids=np.array([f"v{i}" for i in range(len(X))]), static=static)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], set[str]]]:
    """Ids of training and validation series of every run from now on."""
    found = []
    work = training.fit

    def watched(model: Any, task: Any, splits: Any, *arguments: Any, **named: Any) -> Any:
        found.append((set(splits.train.panel.ids), set(splits.validation.panel.ids)))
        return work(model, task, splits, *arguments, **named)

    monkeypatch.setattr(training, "fit", watched)
    return found


@pytest.mark.parametrize("kind", [*SIX, Pretrainer])
def test_all_series_train_and_the_set_validates(kind: Any, parts: Any) -> None:
    X, V = records(), wild(records(5, seed=2))
    kind(**SMALL, members=2).fit(X, targets(kind, X), eval_set=given(kind, V))
    assert parts == [(set(X.ids), set(V.ids))] * 2
    kind(**SMALL).fit(X, targets(kind, X))
    assert parts[2][0] | parts[2][1] == set(X.ids)
    assert len(parts[2][1]) > 0


@pytest.mark.parametrize("kind", [*SIX, Pretrainer])
def test_features_and_scales_never_see_the_set(kind: Any) -> None:
    X, V = records(), records(5, seed=2)
    y = targets(kind, X)
    one, two = (kind(**SMALL).fit(X, y, eval_set=given(kind, v)) for v in (V, wild(V)))
    for a, b in zip(*(vars(scale_of(model.model_)).values() for model in (one, two)), strict=True):
        assert np.array_equal(a, b)
    assert one.features_.covariates == two.features_.covariates
    assert one.task_.shift == two.task_.shift
    if kind in (*SERIES, *POINTS):  # one epoch: nothing to choose
        assert same(answers(one, X), answers(two, X))
    assert one.history_ != two.history_  # the metrics of the set


@pytest.mark.parametrize("kind", [LFormerClassifier, *RECORDS])
def test_marks_for_missing_values_are_looked_for_in_training_series_alone(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    monkeypatch.setattr(base, "warn_of_suspects", lambda panel: seen.append(set(panel.ids)))
    X = records()
    kind(**SMALL).fit(X, targets(kind, X), eval_set=given(kind, wild(records(5, seed=2))))
    assert seen == [set(X.ids)]


def test_the_score_of_the_chosen_epoch_is_that_of_the_set() -> None:
    X, V = records(), records(7, seed=4)
    y, truth = targets(LFormerClassifier, X), targets(LFormerClassifier, V)
    model = LFormerClassifier(**SMALL | {"max_epochs": 4, "lr": 0.02}).fit(X, y, eval_set=(V, truth))
    told = model.predict_log_proba(V)
    assert np.allclose(np.exp(told), model.predict_proba(V), rtol=1e-12)
    assert model.validation_score_ == pytest.approx(log_loss(truth, model.predict_proba(V)), rel=1e-5)
    assert model.validation_score_ == min(row["cross_entropy"] for row in model.history_)
    again = LFormerClassifier(**SMALL | {"max_epochs": 4, "lr": 0.02}).fit(X, y, eval_set=[(V, truth)])
    assert same(answers(again, V), answers(model, V))


def test_logarithms_of_rows_are_finite_where_probabilities_are_not_told_from_0() -> None:
    X = records()
    model = LFormerPointClassifier(**SMALL).fit(X, targets(LFormerPointClassifier, X))
    with torch.no_grad():
        for weight in model.model_.parameters():
            weight.mul_(100)
    for told, proba in zip(model.predict_log_proba(X), model.predict_proba(X), strict=True):
        assert np.isfinite(told).all()
        assert np.allclose(np.exp(told), proba, rtol=1e-9, atol=0)


def test_targets_of_the_set_go_by_id_and_series_without_one_are_left_out() -> None:
    X, V = records(), records(5, seed=2)
    y, truth = targets(LFormerRegressor, X), targets(LFormerRegressor, V)
    table = pd.DataFrame(truth, index=V.ids)[::-1]
    one, two = (LFormerRegressor(**SMALL).fit(X, y, eval_set=(V, t)) for t in (truth, table))
    assert one.validation_score_ == two.validation_score_
    rows = targets(LFormerPointRegressor, V)
    rows[3] = np.full(V.lengths[3], np.nan)
    kept = [i for i in range(5) if i != 3]
    fit = LFormerPointRegressor(**SMALL).fit
    one = fit(X, targets(LFormerPointRegressor, X), eval_set=(V, rows)).validation_score_
    assert (
        one == fit(X, targets(LFormerPointRegressor, X), eval_set=(V[kept], [rows[i] for i in kept])).validation_score_
    )


BAD = {
    "no pair": (lambda V, y: V, r"eval_set: eval_set must be \(X, y\).*got Panel"),
    "a new class": (lambda V, y: (V, ["dead"] * 5), r"eval_set: classes \['dead'\] are not among those of training"),
    "too few targets": (lambda V, y: (V, y[:-1]), r"eval_set: X and y must have as many entries"),
    "no series": (lambda V, y: (V[:0], y[:0]), r"eval_set: the panel is empty"),
    "no covariates": (lambda V, y: (replace(V, static=None), y), r"eval_set: panels must have the same static"),
    "a new channel": (
        lambda V, y: (replace(V, channels=("k", "cl")), y),
        r"eval_set: X has 2 features.*New: \['cl'\]; missing: \['na'\]",
    ),
    "dates": (lambda V, y: (records(5, dated=True), y), r"eval_set: the times of X are calendar stamps"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_the_set_is_named(name: str) -> None:
    X, V = records(), records(5, seed=2)
    change, says = BAD[name]
    with pytest.raises(ValueError, match=says):
        LFormerClassifier(**SMALL).fit(
            X, targets(LFormerClassifier, X), eval_set=change(V, targets(LFormerClassifier, V))
        )


@pytest.mark.parametrize("kind", RECORDS)
def test_a_set_with_nothing_to_hide_is_refused(kind: Any) -> None:
    V = Panel.from_list([([1.0], [[1.0, 2.0]])], channels=["k", "na"])
    X = replace(records(), static=None)
    with pytest.raises(ValueError, match="eval_set: none of its series has rows that can be hidden"):
        kind(**SMALL).fit(X, eval_set=V)


@pytest.mark.parametrize("kind", SIX)
def test_a_gpu_that_is_not_there_is_missed_before_anything_is_computed(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(base, "warn_of_suspects", lambda panel: pytest.fail("it went on"))
    X = records()
    with pytest.raises(RuntimeError, match='device="gpu" insists on a GPU, and PyTorch sees none here; device="auto"'):
        kind(**SMALL | {"device": "gpu"}).fit(X, targets(kind, X))
