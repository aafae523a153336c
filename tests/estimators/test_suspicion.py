"""Series that are not as they seem: `fit` says so, and marks for missing values are missing once they are named."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimators.every_estimator import SIX, SMALL, answers, fitted, records, same
from estimators.saved_models import changed
from sklearn.metrics import roc_auc_score

from lformer import LFormerClassifier, Panel
from lformer.estimators import SuspectDataWarning, load
from lformer.estimators.base import scale_of

NAN = np.nan


def with_columns(X: Panel, *columns: Any) -> Panel:
    """The panel with further channels, (N,) or a number each."""
    more = [np.full(len(X.times), column, np.float32) if np.ndim(column) == 0 else column for column in columns]
    values = np.column_stack([X._readable(slice(None)), *more])
    names = [*X.channels, *(f"more{i}" for i in range(len(more)))]
    return Panel.build(
        X.times, values, X.lengths, channels=names, ids=X.ids, static=X.static, unit=X.unit, origin=X.origin
    )


def marked(X: Panel, mark: float) -> Panel:
    """The panel with a mark wherever nothing was observed."""
    series = [(times, np.where(np.isnan(values), mark, values)) for times, values in X]
    return Panel.from_list(series, ids=X.ids.tolist(), channels=X.channels, static=X.static, unit=X.unit)


@pytest.mark.parametrize("kind", SIX)
def test_every_estimator_warns_once_for_each_finding(kind: Any) -> None:
    X = records(20)
    noise = np.random.default_rng(0).normal(80, 9, len(X.times)).astype(np.float32)
    spoilt = noise.copy()
    spoilt[:4] = -9999
    X = with_columns(X, noise, noise, spoilt, 7.4, NAN)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted(kind, X)
    found = [warning for warning in caught if issubclass(warning.category, SuspectDataWarning)]
    assert [str(warning.message).partition(":")[0] for warning in found] == [
        "Marks for missing values", "Channels never observed", "Constant channels", "Channels that are copies",
    ]  # fmt: skip
    assert "more2: -9999 in 4 rows" in str(found[0].message)
    assert "missing_values=-9999;" in str(found[0].message)
    assert {Path(warning.filename).name for warning in found} == {"every_estimator.py"}  # whoever called `fit`


def test_dates_written_as_numbers_are_said() -> None:
    days = np.array([20240129, 20240130, 20240131, *range(20240201, 20240206)])
    rng = np.random.default_rng(0)
    X = [(days[: 8 - i % 3], rng.normal(size=(8 - i % 3, 1))) for i in range(12)]
    with pytest.warns(SuspectDataWarning, match="from 20240131 to 20240201 would be an interval of 70"):
        LFormerClassifier(**SMALL).fit(X, np.arange(12) % 2)


@pytest.mark.parametrize("kind", SIX)
def test_marks_that_are_named_are_missing_in_fit_and_in_all_that_follows(kind: Any, tmp_path: Path) -> None:
    X, new = records(), records(seed=1)
    plain, told = fitted(kind, X), fitted(kind, marked(X, -9999), missing_values=[-9999, -1])
    assert same(answers(told, new), answers(plain, new))
    assert same(answers(told, marked(new, -9999)), answers(plain, new))
    told.save(tmp_path / "m")
    assert load(tmp_path / "m").missing_values == [-9999, -1]
    assert same(answers(load(tmp_path / "m"), marked(new, -1)), answers(plain, new))


def test_marks_by_channel_are_saved_and_a_channel_may_be_gone_later(tmp_path: Path) -> None:
    X = records()
    given: Any = {"k": -1, "na": [-9, -1]}
    model = fitted(LFormerClassifier, marked(X, -1), missing_values=given)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.missing_values == given
    assert same(answers(again, marked(X, -1)), answers(fitted(LFormerClassifier, X), X))
    table = X.to_long().query("channel == 'k'")
    alone = Panel.from_long(table, id="id", time="time", channel="channel", value="value", static=X.static)
    assert len(again.predict(alone)) == len(X)
    with pytest.raises(ValueError, match=r"missing_values names channels \['cl'\]"):
        fitted(LFormerClassifier, X, missing_values={"cl": -1})
    changed(tmp_path / "m", "parameters", "missing_values", to="many")
    with pytest.raises(ValueError, match="missing_values must be a number"):
        load(tmp_path / "m")


def test_an_array_padded_with_marks_is_padded() -> None:
    rng = np.random.default_rng(0)
    array = rng.normal(5, 1, (12, 6, 2))
    array[rng.random(array.shape) < 0.2] = NAN
    array[:, 0] = 5.0
    array[::3, 4:] = NAN
    y = np.arange(12) % 2
    plain = LFormerClassifier(**SMALL).fit(array, y)
    for X in (np.where(np.isnan(array), -9, array), np.where(np.isnan(array), -9, array).tolist()):
        told = LFormerClassifier(**SMALL, missing_values=-9).fit(X, y)
        assert same(answers(told, X), answers(plain, array))


def test_a_stream_knows_the_marks() -> None:
    X = records()
    model = fitted(LFormerClassifier, X, streaming=True, missing_values={"na": -9})
    static = {"age": 50.0, "site": "north"}
    one, two = model.stream(static), model.stream(static)
    assert np.array_equal(one.update(0.5, [3.0, NAN]), two.update(0.5, [3.0, -9.0]))
    assert not np.array_equal(one.update(0.9, [NAN, 3.0]), two.update(0.9, [-9.0, 3.0]))  # a value of k


@pytest.mark.parametrize("kind", SIX)
def test_what_is_no_number_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="missing_values must be a number, a list of numbers, or a mapping"):
        fitted(kind, missing_values="NA")


@pytest.mark.filterwarnings("ignore:Marks for missing values")
@pytest.mark.parametrize("mark", [-9999.0, 1e30, 0.0])
def test_marks_that_nobody_named_have_no_say_in_the_scale(mark: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(80, 10, (60, 30, 1))
    y = np.arange(60) % 2
    clean = scale_of(LFormerClassifier(**SMALL).fit(values, y).model_)
    spoilt = np.where(rng.random(values.shape) < 0.2, mark, values)
    found = scale_of(LFormerClassifier(**SMALL).fit(spoilt, y).model_)
    for one, other in zip((clean.shift, clean.low, clean.high), (found.shift, found.low, found.high), strict=True):
        assert np.abs(one - other) < 0.5 * clean.scale
    assert 0.9 < found.scale / clean.scale < 1.1


# -- what marks cost if nobody names them


def two_classes(n: int, seed: int, mark: float = 0.0, share: float = 0.0) -> tuple[Panel, Any]:
    """Irregular series; the level of the first of three channels tells them apart, but for chance."""
    rng, spoil = np.random.default_rng(seed), np.random.default_rng(seed + 1)  # the same series, whatever is spoilt
    y = rng.integers(0, 2, n)
    series = []
    for level in rng.normal(74.0 + 13.3 * y, 5.0):  # 2.66 deviations apart: an AUC of 0.97 at best
        rows = int(rng.integers(12, 30))
        values = rng.normal([level, 37.0, 1.5], [3.0, 0.5, 0.4], (rows, 3))
        values[rng.random((rows, 3)) < 0.3] = NAN
        values[(spoil.random(rows) < share) & ~np.isnan(values[:, 0]), 0] = mark
        series.append((np.cumsum(rng.exponential(1.0, rows)), values))
    return Panel.from_list(series), y


def auc(mark: float = 0.0, share: float = 0.0) -> float:
    (X, y), (new, truth) = two_classes(400, 0, mark, share), two_classes(1000, 5, mark, share)
    model = LFormerClassifier(max_epochs=25, device="cpu", random_state=0).fit(X, y)
    return float(roc_auc_score(truth, model.predict_proba(new)[:, 1]))


@pytest.fixture(scope="module")
def clean_auc() -> float:
    return auc()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Marks for missing values")
@pytest.mark.parametrize("mark", [-9999.0, 1e30, 0.0])
def test_marks_that_nobody_named_hardly_move_the_auc(clean_auc: float, mark: float) -> None:
    assert clean_auc > 0.96
    assert abs(auc(mark, 0.2) - clean_auc) < 0.02
