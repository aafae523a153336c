"""What adapters make of series: axes as aeon and sktime have them, stamps where there are any, else one unit apart."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from lformer import LFormerClassifier, LFormerRegressor, Panel

NEEDS = "the extra `adapters` is not installed here; make test installs it"
pytest.importorskip("aeon", reason=NEEDS)
pytest.importorskip("sktime", reason=NEEDS)

from lformer.adapters.aeon import AeonClassifier, AeonRegressor, unit_spaced  # noqa: E402
from lformer.adapters.sktime import SktimeClassifier, SktimeRegressor, stamped  # noqa: E402

SMALL: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "max_epochs": 1, "random_state": 3, "device": "cpu"}


def ragged(n: int = 16, seed: int = 0) -> list[Any]:
    """(channels, time) with holes, of different lengths."""
    rng = np.random.default_rng(seed)
    series = [rng.normal(i % 2, 1, (2, int(rng.integers(4, 9)))) for i in range(n)]
    for one in series:
        one[rng.random(one.shape) < 0.2] = np.nan
        one[:, 0] = 1.0
    return series


def tables(seed: int = 0) -> list[pd.DataFrame]:
    """The same with uneven dates in the index."""
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2024-03-30 22:00", tz="Europe/Berlin")
    return [
        pd.DataFrame(
            one.T, columns=["k", "na"], index=start + pd.to_timedelta(np.cumsum(rng.exponential(3, one.shape[1])), "h")
        )
        for one in ragged(seed=seed)
    ]


def test_aeon_gives_channels_first_and_no_stamps() -> None:
    X = ragged()
    panel = unit_spaced(X)
    assert panel.lengths.tolist() == [one.shape[1] for one in X]
    assert len(panel.channels) == 2
    times, values = panel[3]
    assert times.tolist() == list(range(X[3].shape[1]))
    assert np.array_equal(values, X[3].T.astype(np.float32), equal_nan=True)
    assert unit_spaced(np.zeros((3, 2, 5))).shape == (3, 5, 2)


def test_sktime_gives_the_index_as_time() -> None:
    X = tables()
    panel = stamped(X)
    assert panel.zone == "Europe/Berlin"
    assert panel.channels == ("k", "na")
    times, values = panel[2]
    assert (pd.DatetimeIndex(times, tz="UTC") == X[2].index).all()
    assert np.array_equal(values, X[2].to_numpy(np.float32), equal_nan=True)
    months = [pd.DataFrame({"x": [1.0, 2.0]}, index=pd.period_range("2024-01", periods=2, freq="M"))]
    assert (
        stamped(months)[0][0].astype("datetime64[D]").tolist()
        == pd.to_datetime(["2024-01-01", "2024-02-01"]).date.tolist()
    )
    numbers = [pd.DataFrame({"x": [1.0, 2.0]}, index=[0.5, 4.0])]
    assert stamped(numbers)[0][0].tolist() == [0.5, 4.0]


@pytest.mark.parametrize(
    ("adapter", "kind", "make"),
    [(AeonClassifier, LFormerClassifier, unit_spaced), (AeonRegressor, LFormerRegressor, unit_spaced)],
)
def test_an_adapter_answers_as_what_it_wraps(adapter: Any, kind: Any, make: Any) -> None:
    X = ragged()
    y = np.array(["a", "b"] * 8) if kind is LFormerClassifier else np.linspace(0, 1, 16)
    model = clone(adapter(kind(**SMALL))).fit(X, y)
    told = kind(**SMALL).fit(make(X), y).predict(make(X))
    assert np.array_equal(model.predict(X), told)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), told)
    assert adapter(kind(**SMALL), random_state=7).fit(X, y).estimator_.random_state == 7


@pytest.mark.parametrize(
    ("adapter", "kind"), [(SktimeClassifier, LFormerClassifier), (SktimeRegressor, LFormerRegressor)]
)
def test_sktime_answers_hang_on_the_stamps(adapter: Any, kind: Any) -> None:
    X = tables()
    y = np.array(["a", "b"] * 8) if kind is LFormerClassifier else np.linspace(0, 1, 16)
    model = adapter(kind(**SMALL)).fit(X, y)
    same = kind(**SMALL).fit(stamped(X), y)
    assert np.array_equal(model.predict(X), same.predict(stamped(X)))
    shuffled = [one.set_axis(one.index[0] + 5 * (one.index - one.index[0])) for one in X]
    ask = "predict_proba" if kind is LFormerClassifier else "predict"
    assert not np.allclose(getattr(model, ask)(shuffled), getattr(model, ask)(X))


def test_an_estimator_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="estimator must be an LFormerClassifier or None; got LFormerRegressor"):
        AeonClassifier(LFormerRegressor()).fit(ragged(), np.array(["a", "b"] * 8))
    assert isinstance(unit_spaced(ragged()), Panel)
