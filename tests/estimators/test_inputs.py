"""Channels and clocks of new data beside those of training."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import SIX, answers, close, fitted, records, same

from lformer import LFormerClassifier, Panel
from lformer.estimators.inputs import match_channels


def reordered(X: Panel, *names: str) -> Panel:
    """The same panel with these of its channels, in this order."""
    at = [X.channels.index(name) for name in names]
    observed = None if X.observed is None else X.observed[:, at]
    return replace(X, values=X.values[:, at], observed=observed, channels=names)


@pytest.mark.parametrize("kind", SIX)
def test_channels_in_another_order_are_put_right(kind: Any) -> None:
    X = records()
    model = fitted(kind, X)
    assert same(answers(model, reordered(X, "na", "k")), answers(model, X))


@pytest.mark.parametrize("kind", SIX)
def test_a_channel_that_is_missing_counts_as_never_observed(kind: Any) -> None:
    X = records()
    model = fitted(kind, X)
    assert X.observed is not None
    seen = X.observed * np.array([True, False])
    without = replace(X, values=np.where(seen, X.values, 0), observed=seen)
    assert same(answers(model, reordered(X, "k")), answers(model, without))
    assert not close(answers(model, without), answers(model, X))


@pytest.mark.parametrize("kind", SIX)
def test_a_new_channel_is_an_error(kind: Any) -> None:
    X = records()
    with pytest.raises(ValueError, match=r"trained on 2 channels: k, na\. New: \['ph'\]; missing: \['na'\]"):
        answers(fitted(kind, X), replace(X, channels=("k", "ph")))


def test_channels_without_names_must_all_be_there() -> None:
    array = np.random.default_rng(0).standard_normal((10, 4, 3))
    model = LFormerClassifier(width=8, max_epochs=1).fit(array, np.arange(10) % 2)
    with pytest.raises(
        ValueError, match=r"X has 2 features, but the model was trained on 3 channels.*missing: \['2'\]"
    ):
        model.predict(array[:, :, :2])


def test_matched_channels_by_hand() -> None:
    panel = Panel.from_list([([0.0, 1.0], [[1.0, 2.0], [np.nan, 4.0]])], channels=["a", "b"])
    assert match_channels(panel, ("a", "b")) is panel
    (_, values), = match_channels(panel, ("b", "c", "a"))  # fmt: skip
    assert np.array_equal(values, [[2.0, np.nan, 1.0], [4.0, np.nan, np.nan]], equal_nan=True)


@pytest.mark.parametrize("kind", SIX)
def test_values_of_a_channel_that_training_never_saw_are_left_out_with_a_warning(kind: Any) -> None:
    X = records()
    table = X.to_long()
    long = {"id": "id", "time": "time", "channel": "channel", "value": "value", "static": X.static}
    listed: Any = ("k", "mg", "na")
    model = fitted(kind, Panel.from_long(table, channels=listed, **long))
    told = answers(model, Panel.from_long(table, channels=listed, **long))
    mg = table[table["channel"] == "k"].assign(channel="mg", value=1e6)
    more = Panel.from_long(pd.concat([table, mg]), channels=listed, **long)
    with pytest.warns(UserWarning, match=r"channels \['mg'\] were never observed in training"):
        assert same(answers(model, more), told)


def test_times_in_another_unit_are_converted_and_labels_must_agree() -> None:
    X = records()
    minutes = replace(X, unit="min")
    model = fitted(LFormerClassifier, minutes)
    assert same(answers(model, X), answers(model, minutes))  # no label, no contradiction
    with pytest.raises(ValueError, match="the times of X are in h, but the model was trained on times in min"):
        model.predict(replace(X, unit="h"))
    with pytest.raises(ValueError, match="X are calendar stamps, but the model was trained on numbers in min"):
        model.predict(records(dated=True))
