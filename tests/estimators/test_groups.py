"""fit(..., groups=): all series of a subject train, or all validate, or all calibrate."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import RECORDS, SIX, SMALL, records, targets

from lformer import LFormerClassifier, LFormerPointRegressor, LFormerRegressor, Panel
from lformer.estimators import calibrating
from lformer.estimators import members as training

WHOSE = np.array(["ann", "bob", "cid", "dan", "eve", "fay"]).repeat(4)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], list[str]]]:
    """Ids of training and validation series of every run from now on."""
    found = []
    work = training.fit

    def watched(model: Any, task: Any, splits: Any, *arguments: Any, **named: Any) -> Any:
        found.append((splits.train.panel.ids.tolist(), splits.validation.panel.ids.tolist()))
        return work(model, task, splits, *arguments, **named)

    monkeypatch.setattr(training, "fit", watched)
    return found


def mixed(n: int = 24) -> tuple[Panel, np.ndarray]:
    """Series of six subjects, not in their order, and whose each is."""
    return records(n), np.random.default_rng(4).permutation(WHOSE[:n])


def subjects(ids: list[str], X: Panel, whose: np.ndarray) -> set[str]:
    return {whose[X.ids.tolist().index(id)] for id in ids}


@pytest.mark.parametrize("kind", SIX)
@pytest.mark.parametrize("members", [1, 3])
def test_no_subject_trains_and_validates(kind: Any, members: int, parts: Any) -> None:
    X, whose = mixed()
    kind(**SMALL, members=members).fit(X, targets(kind, X), groups=whose)
    assert len(parts) == members
    for train, held in parts:
        assert subjects(train, X, whose) | subjects(held, X, whose) == set(whose)
        assert not subjects(train, X, whose) & subjects(held, X, whose)
        assert 4 <= len(set(held)) <= 8  # a sixth or a third, where a share of 0.15 is asked
    assert (len({tuple(held) for _, held in parts}) > 1) == (members > 1)  # each draws its own


@pytest.mark.parametrize("given", ["array", "list", "series", "dict"])
def test_groups_go_by_id_if_they_have_ids(given: str, parts: Any) -> None:
    X, whose = mixed()
    by_id = pd.Series(whose, index=X.ids)[::-1]
    groups = {"array": whose, "list": whose.tolist(), "series": by_id, "dict": by_id.to_dict()}[given]
    LFormerRegressor(**SMALL).fit(X, targets(LFormerRegressor, X), groups=groups)
    train, held = parts[0]
    assert not subjects(train, X, whose) & subjects(held, X, whose)


def test_series_without_a_target_take_their_group_with_them(parts: Any) -> None:
    X, whose = mixed()
    y = targets(LFormerPointRegressor, X)
    y[0], y[5] = np.full_like(y[0], np.nan), np.full_like(y[5], np.nan)
    LFormerPointRegressor(**SMALL).fit(X, y, groups=whose)
    train, held = parts[0]
    assert not {X.ids[0], X.ids[5]} & {*train, *held}
    assert not subjects(train, X, whose) & subjects(held, X, whose)


def test_every_class_is_trained_on(parts: Any) -> None:
    """Who alone has a class is not held out."""
    X, whose = records(24), np.array(["ann", "bob", "cid"]).repeat(8)
    y = np.where(whose == "ann", "rare", "common")
    y[1:8:2] = "common"
    for seed in range(8):
        LFormerClassifier(**SMALL | {"random_state": seed}).fit(X, y, groups=whose)
        assert "ann" in subjects(parts[-1][0], X, whose)


@pytest.mark.parametrize("kind", SIX)
def test_whole_subjects_are_held_out_for_calibration(kind: Any, parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    work = calibrating.calibrated

    def watched(scores: Any, owner: Any, *others: Any) -> Any:
        seen.append((len(owner), len(np.unique(owner))))
        return work(scores, owner, *others)

    monkeypatch.setattr(calibrating, "calibrated", watched)
    X, whose = mixed()
    y = targets(kind, X)
    if kind is LFormerClassifier:
        y = np.where(np.arange(24) % 2, "a", "b")
    kind(**SMALL, calibration_fraction=0.3).fit(X, y, groups=whose)
    rest = subjects([*parts[0][0], *parts[0][1]], X, whose)
    assert len(rest) == 4  # the two others calibrate, and count as two
    assert not subjects(parts[0][0], X, whose) & subjects(parts[0][1], X, whose)
    assert seen[0][1] == 2
    assert seen[0][0] > 2


def test_with_a_set_of_ones_own_all_train(parts: Any) -> None:
    X, whose = mixed()
    y = targets(LFormerRegressor, X)
    LFormerRegressor(**SMALL).fit(X, y, groups=whose, eval_set=(X[:3], y[:3]))
    assert len(parts[0][0]) == len(X)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["ann"] * 24, "24 series of 1 groups cannot be divided by group"),
        (["ann"] * 20, r"groups must have one entry for each of the 24 series; got shape \(20,\)"),
        ([None, *["ann", "bob"] * 11, "cid"], "series 0 has none"),
    ],
)
def test_groups_that_cannot_be(groups: Any, message: str) -> None:
    X = records(24)
    for kind in (LFormerRegressor, RECORDS[0]):
        with pytest.raises(ValueError, match=message):
            kind(**SMALL).fit(X, targets(kind, X), groups=groups)
