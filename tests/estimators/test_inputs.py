"""Channels and clocks of new data beside those of training."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from estimators.every_estimator import SIX, answers, close, fitted, records, same

from lformer import LFormerClassifier, Panel
from lformer.estimators import SuspectDataWarning
from lformer.estimators.inputs import as_panel, match_channels, series_weights


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


@pytest.mark.filterwarnings("ignore:Channels never observed")
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


ARRAY = np.array([[[1.0, 2.0], [3.0, np.nan], [np.nan, np.nan]], [[4.0, 5.0], [6.0, 7.0], [8.0, 9.0]]])


@pytest.mark.parametrize(
    "given",
    [
        ARRAY,
        ARRAY.tolist(),
        np.where(np.isnan(ARRAY), None, ARRAY),
        torch.from_numpy(ARRAY),
        torch.from_numpy(ARRAY).requires_grad_(),
        torch.from_numpy(ARRAY).bfloat16(),
        ARRAY.astype(">f4"),
        ARRAY.astype(np.longdouble),
    ],
)
def test_arrays_of_any_kind_are_read_alike(given: Any) -> None:
    panel, wide = as_panel(given)
    assert wide is None
    assert panel.lengths.tolist() == [2, 3]
    np.testing.assert_array_equal(panel[0][1], ARRAY[0, :2])
    np.testing.assert_array_equal(panel[1][1], ARRAY[1])


RAGGED = [np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]]), np.array([[4.0, 5.0]])]  # (time, channels)


@pytest.mark.parametrize(
    "given",
    [
        RAGGED,
        tuple(RAGGED),
        [one.T for one in RAGGED],  # (channels, time), as in aeon
        [torch.from_numpy(one).requires_grad_() for one in RAGGED],
        [one.astype(np.float32) for one in RAGGED],
        np.array([RAGGED[0], RAGGED[1], None], object)[:2],
        [(np.arange(3), RAGGED[0]), ([0], RAGGED[1])],
        [pd.DataFrame(one) for one in RAGGED],
    ],
)
def test_lists_of_arrays_that_differ_in_length(given: Any) -> None:
    panel, wide = as_panel(given)
    assert wide is None
    assert panel.channels == ("0", "1")
    assert [times.tolist() for times, _ in panel] == [[0, 1, 2], [0]]
    for (_, values), expected in zip(panel, RAGGED, strict=True):
        np.testing.assert_array_equal(values, expected)


def test_lists_of_arrays_of_one_channel() -> None:
    panel, _ = as_panel([np.array([1.0, np.nan, 3.0]), np.array([5, -9])], missing_values=-9)
    np.testing.assert_array_equal(panel[0][1], [[1.0], [np.nan], [3.0]])
    assert panel.lengths.tolist() == [3, 2]
    np.testing.assert_array_equal(panel[1][1], [[5.0], [np.nan]])
    by_aeon, _ = as_panel([np.array([[1.0, np.nan, 3.0]]), np.array([[5, -9]])], missing_values=-9)
    np.testing.assert_array_equal(by_aeon.values, panel.values)
    assert by_aeon.lengths.tolist() == [3, 2]


def test_lists_of_arrays_of_one_shape_are_an_array() -> None:
    panel, _ = as_panel(list(ARRAY))
    assert panel.lengths.tolist() == [2, 3]
    table, wide = as_panel([np.array([1.0, 2.0]), np.array([3.0, np.nan])])
    assert wide == 2
    assert table.lengths.tolist() == [2, 1]


CLOCK = pd.to_datetime(["2024-03-01 06:00", "2024-03-01 06:10", "2024-03-04 00:00"])


def test_lists_of_pandas_series_with_their_times() -> None:
    for name, channel in (("pulse", "pulse"), (None, "0")):
        panel, wide = as_panel(
            [pd.Series([1.0, np.nan, 3.0], CLOCK, name=name), pd.Series([2.0], CLOCK[:1], name=name)]
        )
        assert wide is None
        assert panel.channels == (channel,)
        assert panel.times.tolist() == [0.0, 600.0, 64_800 + 2 * 86_400.0, 0.0]
        np.testing.assert_array_equal(panel[0][1], [[1.0], [np.nan], [3.0]])
    by_name = [pd.Series([1.0, 2.0], [0.5, 4.0], name=name) for name in ("a", "b")]
    assert as_panel(by_name)[0].channels == ("0",)
    assert as_panel([pd.Series([1.0], CLOCK[:1].tz_localize("Asia/Tokyo"))])[0].zone == "Asia/Tokyo"
    rows = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    _, wide = as_panel([rows.iloc[0], rows.iloc[1]])  # rows of a table, as scikit-learn would take them
    assert wide == 2


@pytest.mark.parametrize("shape", [(50, 1, 150), (8, 3, 30), (2, 6, 17984)])
def test_an_array_whose_axes_seem_swapped_is_questioned(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)
    seen = "1 time step of 150 channels" if shape[1] == 1 else f"{shape[1]} time steps of {shape[2]} channels"
    message = rf"{seen}\. If it is \(series, channels, time\), .*swap its axes: X.swapaxes\(1, 2\)"
    with pytest.warns(SuspectDataWarning, match=message):
        panel, _ = as_panel(array)
    assert panel.shape == shape  # and taken as it stands
    with pytest.warns(UserWarning, match=message) as caught:
        Panel.from_array(array)
    assert caught[0].filename == __file__
    Panel.from_array(array, channels=[f"gene {i}" for i in range(shape[2])])
    Panel.from_array(array, times=np.arange(shape[1]))
    as_panel(array, some=True)  # to a trained model it must match what `fit` saw
    as_panel(array.swapaxes(1, 2))
    as_panel(array[:, 0])  # (n, time)


def test_the_question_points_at_the_call_of_fit() -> None:
    X, y = np.random.default_rng(0).standard_normal((10, 2, 20)), np.arange(10) % 2
    with pytest.warns(SuspectDataWarning, match="swap its axes") as caught:
        model = LFormerClassifier(width=8, max_epochs=1).fit(X, y)
    assert [one.filename for one in caught if "swap" in str(one.message)] == [__file__]
    assert model.predict(X).shape == (10,)


def test_arrays_that_do_not_seem_swapped_are_not_questioned() -> None:
    for shape in [(50, 150, 1), (50, 12, 60), (4, 24, 137), (3, 1, 9), (50, 1, 1)]:
        as_panel(np.zeros(shape))
        Panel.from_array(np.zeros(shape))


def test_tables_of_any_kind_are_read_alike() -> None:
    plain = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, np.nan]})
    for table in (plain, plain.convert_dtypes(), plain.astype(object).where(plain.notna(), None)):
        panel, wide = as_panel(table)
        assert wide == 2
        assert panel.lengths.tolist() == [2, 1]
        assert panel.values[:, 0].tolist() == [1.0, 3.0, 2.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ma.array([[1.0, 2.0]], mask=[[True, False]]), "X must not be a masked array"),
        ([np.ma.array([1.0, 2.0], mask=True)], "X must not be a masked array"),
        (np.array([["2020", "NaT"]], "datetime64[s]"), "values must be numbers; got datetime64"),
        (pd.DataFrame({"a": pd.to_datetime(["2020"])}), "X must be numbers; got datetime64"),
        (pd.DataFrame({"a": ["x"]}), "X must be numbers, NaN where nothing was observed"),
        (torch.tensor([[1j]]), "X must be numbers; got torch.complex64"),
        (torch.ones(1, 2).to_sparse(), "X must be a dense tensor"),
        ([[10**400]], "X must be numbers, NaN where nothing was observed: .*too large"),
        ([[1e39, 1.0]], "an observed value must be finite in float32; series 0, time 0.0, channel '0' is inf"),
        ([[np.inf, 1.0]], "contains infinity"),
        (np.ones((1, 1, 1, 1)), r"X must be \(series, time, channels\) or \(series, time\); got shape"),
        ([[Decimal("sNaN")]], "X must be numbers"),
        (None, "Expected 2D array"),
        (
            [np.ones((3, 2)), np.ones((2, 3))],
            r"differ in length alone; X has shapes \(2, 3\), \(3, 2\)\. Give the times",
        ),
        ([np.ones((3, 2)), np.ones(3)], r"Give the times of each: Panel.from_list\(\[\(times, values\), ...\]\)"),
        ([np.ones((3, 2, 1)), np.ones((2, 2, 1))], r"must be arrays \(time,\) or \(time, channels\)"),
        ([np.ones(3), np.float64(3.0)], "inhomogeneous"),
        ([np.ma.array([1.0, 2.0], mask=True), np.ones(3)], "values of series 0 must not be a masked array"),
        ([[1.0, 2.0], [3.0]], r"the rows of X have different lengths.*Panel.from_list\(\[\(times, values\), ...\]\)"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(given: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        as_panel(given)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0], "sample_weight must be 2 numbers from 0, one per series"),
        ([1.0, np.nan], "sample_weight must be 2 numbers from 0"),
        ([1.0], r"got shape \(1,\)"),
        ([0, 0], "sample_weight is zero for every series"),
        (["a", "b"], "sample_weight must be numbers"),
        ([10**400, 1], "sample_weight must be numbers"),
        ([1j, 1], "sample_weight must be numbers; got complex128"),
        ([[1], [1, 2]], "sample_weight must be an array"),
        (np.ma.array([1.0, 2.0], mask=True), "sample_weight must not be a masked array"),
        ({0: 1.0}, "sample_weight has no entry for 1 of 2 ids"),
    ],
)
def test_weights_that_are_none_are_refused(weights: Any, message: str) -> None:
    panel = Panel.from_list([([0.0], [1.0])] * 2)
    with pytest.raises((ValueError, TypeError), match=message):
        series_weights(weights, panel, by_id=True)


def test_weights_by_position_and_by_id() -> None:
    panel = Panel.from_list([([0.0], [1.0])] * 2, ids=["a", "b"])
    by_name = pd.Series([3.0, 2.0], index=["b", "a"])
    assert series_weights(None, panel, by_id=True).tolist() == [1.0, 1.0]
    assert series_weights([0, 2], panel, by_id=True).tolist() == [0.0, 2.0]
    assert series_weights(by_name, panel, by_id=True).tolist() == [2.0, 3.0]
    assert series_weights(by_name, panel, by_id=False).tolist() == [3.0, 2.0]
    assert series_weights({"b": 1, "a": 4}, panel, by_id=False).tolist() == [4.0, 1.0]
