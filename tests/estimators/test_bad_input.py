"""Ten kinds of bad input, as a new user has them: a table, a Panel, `fit`, `predict`. Each gets a clear answer."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lformer import LFormerClassifier, LFormerForecaster, Panel


def visits(n: int = 12, seed: int = 0) -> pd.DataFrame:
    """Labs of n patients, uneven in time and number, in order of time."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        for t in np.cumsum(rng.exponential(3, int(rng.integers(2, 7)))):
            lab = str(rng.choice(["k", "na"]))
            rows.append({"who": f"p{i:02d}", "t": t, "lab": lab, "x": rng.normal(4 + i % 2)})
    return pd.DataFrame(rows)


def panel(table: pd.DataFrame, **more: Any) -> Panel:
    return Panel.from_long(table, id="who", time="t", channel="lab", value="x", **more)


def labels(n: int = 12) -> pd.Series:
    return pd.Series({f"p{i:02d}": i % 2 for i in range(n)})


def small() -> LFormerClassifier:
    return LFormerClassifier(width=8, heads=1, depth=1, max_epochs=1, random_state=0, device="cpu")


@pytest.fixture(scope="module")
def model() -> LFormerClassifier:
    return small().fit(panel(visits()), labels())


def test_1_strings_in_values() -> None:
    table = visits().astype({"x": object})
    table.loc[3, "x"] = "hemolysed"
    with pytest.raises(
        ValueError, match=r"column 'x' must hold numbers; row 3 holds 'hemolysed'. Convert it, or write"
    ):
        panel(table)


def test_2_a_series_without_any_value(model: LFormerClassifier) -> None:
    table = visits()
    table.loc[table["who"] == "p03", "x"] = np.nan
    X = panel(table)
    assert "p03" in X.ids
    assert np.isfinite(small().fit(X, labels()).predict_proba(X)).all()  # times alone are an observation, too
    with pytest.raises(ValueError, match=r"no value is observed in any of the .* training series"):
        small().fit(panel(table.assign(x=np.nan)), labels())
    with pytest.raises(ValueError, match=r"1 of 12 series have no observed value, among them \['p03'\].*Drop them"):
        LFormerForecaster(width=8, max_epochs=1).fit(X).predict(X, [100.0])


def test_3_a_single_class() -> None:
    with pytest.raises(ValueError, match="at least two classes; all 12 series are of one class, 'ill'"):
        small().fit(panel(visits()), labels().map({0: "ill", 1: "ill"}))


def test_4_one_observation(model: LFormerClassifier) -> None:
    once = visits().drop_duplicates("who")
    X = panel(once, channels=["k", "na"])
    assert set(X.lengths.tolist()) == {1}
    assert np.isfinite(small().fit(X, labels()).predict_proba(X)).all()
    assert np.isfinite(model.predict_proba(X[:1])).all()
    with pytest.raises(ValueError, match="at least two classes; all 1 series"):
        small().fit(X[:1], labels())
    with pytest.raises(ValueError, match="at least 2 series with rows to hide are needed"):
        LFormerForecaster().fit(X)


def test_5_unsorted_rows(model: LFormerClassifier) -> None:
    table = visits()
    mixed = table.sample(frac=1, random_state=0)
    assert np.array_equal(model.predict_proba(panel(mixed)), model.predict_proba(panel(table)))  # a table is sorted
    times, values = [3.0, 1.0], [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(
        ValueError, match=r"times must not decrease.*series 0 has 1\.0 in row 1 after 3\.0. Sort its rows"
    ):
        model.predict([(times, values)])


def test_6_the_same_stamp_twice() -> None:
    table = pd.concat([visits(), visits().iloc[[4]].assign(x=9.0)], ignore_index=True)
    who, t, lab = table.loc[4, ["who", "t", "lab"]]
    says = f"must not occur twice; 1 do: id '{who}', time {t}, channel '{lab}' \\(2 times\\). Choose with on_duplicate="
    with pytest.raises(ValueError, match=says):
        panel(table)
    assert len(panel(table, on_duplicate="mean")) == 12


@pytest.mark.parametrize("text", [False, True])
def test_7_mixed_time_zones(text: bool) -> None:
    table = visits()
    zones = ["Europe/Berlin", "America/New_York"]
    when = [pd.Timestamp("2024-01-01", tz=zones[i % 2]) + pd.Timedelta(hours=t) for i, t in enumerate(table["t"])]
    table["t"] = pd.Series([w.isoformat() for w in when] if text else when, dtype=object)
    shown = r"\+01:00.* and .*-05:00"
    with pytest.raises(
        TypeError, match=rf"column 't' must be .* They mix .*{shown}.*pandas.to_datetime\(..., utc=True\)"
    ):
        panel(table)
    table["t"] = pd.to_datetime(table["t"], utc=True)
    assert panel(table).unit == "s"


def test_8_epoch_seconds_in_float32() -> None:
    table = visits()
    epoch = 1_700_000_000 + 300 * table["t"].round()
    with pytest.raises(
        ValueError, match=r"column 't' are float32 up to 1\.7\d*e\+09, where the next number is 128 away"
    ):
        panel(table.assign(t=epoch.astype(np.float32)))
    with pytest.raises(ValueError, match=r"their intervals are wrong\. Read them again from the source as float64"):
        Panel.from_list([(np.float32(1.7e9 + 300 * np.arange(4)), np.ones((4, 1)))])
    with pytest.raises(ValueError, match="times are float32 up to"):
        Panel.from_array(np.ones((2, 4, 1)), np.float32(1.7e9 + 300 * np.arange(4)))
    assert len(panel(table.assign(t=epoch), on_duplicate="last")) == 12
    assert len(panel(table.assign(t=table["t"].astype(np.float32)))) == 12  # hours since admission are fine


def test_9_a_new_channel_at_predict(model: LFormerClassifier) -> None:
    table = visits(seed=1)
    table.loc[5, "lab"] = "ph"
    with pytest.raises(
        ValueError, match=r"trained on 2 channels: k, na. New: \['ph'\].*channels=model.features_.channels"
    ):
        model.predict(panel(table))
    with pytest.raises(ValueError, match=r"channels \['ph'\] are not among the ones listed: \['k', 'na'\]"):
        panel(table, channels=model.features_.channels)
    known = panel(table[table["lab"] != "ph"])
    assert np.isfinite(model.predict_proba(known)).all()


def test_10_nothing_at_all(model: LFormerClassifier) -> None:
    with pytest.raises(ValueError, match="a panel needs at least one series; the table has no rows"):
        panel(visits()[:0])
    with pytest.raises(ValueError, match="the panel is empty: at least one series is needed"):
        small().fit(panel(visits())[:0], [])
    with pytest.raises(ValueError, match="the panel is empty: at least one series is needed"):
        model.predict(panel(visits())[:0])


def test_11_values_that_float32_cannot_hold(model: LFormerClassifier) -> None:
    table = visits()
    table.loc[3, "x"] = 1e39
    with pytest.raises(ValueError, match=r"must be finite in float32; series 'p00'.* is inf"):
        panel(table)
    wide = panel(table, dtype=np.float64)
    assert np.isfinite(model.predict_proba(wide)).all()  # scaled and bounded in float64, before anything is cast
    assert np.isfinite(small().fit(wide, labels()).predict_proba(wide)).all()


def test_12_dates_and_masks_as_values(model: LFormerClassifier) -> None:
    times = [0.0, 1.0]
    for values in (
        np.array([["2020", "NaT"], ["2021", "2022"]], "datetime64[s]"),
        np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[True, False], [False, False]]),
        np.array([[1j, 2], [3, 4]]),
    ):
        with pytest.raises(TypeError, match=r"values of series 0 must (be numbers|not be a masked array)"):
            model.predict([(times, values)])


def test_13_stamps_that_stand_for_missing_ones(model: LFormerClassifier) -> None:
    with pytest.raises(
        ValueError, match=r"times of series 0 span more than 1.7e\+38.* Drop stamps that stand for missing"
    ):
        model.predict([([0.0, 1e300], [[1.0, 2.0], [3.0, 4.0]])])
