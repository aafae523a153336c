"""The simulated ward."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lformer import Panel
from lformer.data.ward import LABS, Ward, toy_ward


@pytest.fixture(scope="module")
def ward() -> Ward:
    return toy_ward(patients=600, seed=0)


def hours(table: pd.DataFrame) -> pd.Series[float]:
    """Since the first result of the patient."""
    return (table.time - table.groupby("patient").time.transform("min")).dt.total_seconds() / 3600


def test_a_ward_is_a_function_of_its_size_and_seed(ward: Ward) -> None:
    np.random.seed(123)  # noqa: NPY002 - the global state must not matter
    again, other = toy_ward(patients=600, seed=0), toy_ward(patients=600, seed=1)
    pd.testing.assert_frame_equal(ward.table, again.table)
    pd.testing.assert_series_equal(ward.labels, again.labels)
    pd.testing.assert_frame_equal(ward.static, again.static)
    assert not ward.table.equals(other.table)
    assert not ward.labels.equals(other.labels)


def test_the_ward_stays_the_same_for_ever(ward: Ward) -> None:
    assert (len(ward.table), int(ward.labels.sum())) == (55_173, 231)
    assert ward.table.value.sum() == pytest.approx(2_721_331.19)


def test_columns_and_types(ward: Ward) -> None:
    assert ward.table.columns.tolist() == ["patient", "time", "lab", "value"]
    assert pd.api.types.is_datetime64_dtype(ward.table.time)
    assert ward.table.value.dtype == np.float64
    assert set(ward.table.lab) == set(LABS)
    assert set(ward.labels) == {0, 1}
    assert ward.static.columns.tolist() == ["age", "sex", "unit"]
    assert set(ward.static.sex) == {"f", "m"}
    assert set(ward.static.unit) == {"medical", "surgical", "cardiac"}


def test_ids_agree_and_are_sorted(ward: Ward) -> None:
    ids = ward.labels.index
    assert len(ids) == 600
    assert ids.is_unique
    assert ids.is_monotonic_increasing
    assert ward.static.index.equals(ids)
    assert ward.table.patient.drop_duplicates().tolist() == ids.tolist()


def test_some_ages_are_unknown_and_the_others_are_adult(ward: Ward) -> None:
    assert 0.05 < ward.static.age.isna().mean() < 0.15
    assert ward.static.age.dropna().between(18, 98).all()


def test_values_lie_where_the_labs_say(ward: Ward) -> None:
    median = ward.table.groupby("lab").value.median()
    for name in ("temperature", "potassium", "sodium", "haemoglobin", "creatinine"):
        assert median[name] == pytest.approx(LABS[name].level, rel=0.05)
    assert median["crp"] == pytest.approx(np.exp(LABS["crp"].level), rel=0.2)
    assert (ward.table.value.dropna() > 0).all()


def test_labs_have_different_rates(ward: Ward) -> None:
    counts = ward.table.lab.value_counts()
    assert counts.index[:2].tolist() == ["heart rate", "lactate"]
    assert counts.max() > 5 * counts.min()


def test_rows_are_sorted_and_no_lab_has_two_results_at_once(ward: Ward) -> None:
    assert not ward.table.duplicated(["patient", "time", "lab"]).any()
    assert (ward.table.groupby("patient").time.diff().dropna() >= pd.Timedelta(0)).all()


def test_results_are_asynchronous(ward: Ward) -> None:
    labs = ward.table.groupby(["patient", "time"]).size()
    assert (labs == 1).mean() > 0.4
    assert (labs > 1).mean() > 0.1
    heart, lactate = (ward.table[ward.table.lab == lab] for lab in ("heart rate", "lactate"))
    together = lactate.merge(heart, on=["patient", "time"])
    assert 0.4 < len(together) / len(lactate) < 0.6


def test_visits_are_irregular_and_stays_differ(ward: Ward) -> None:
    stamps = ward.table.drop_duplicates(["patient", "time"])
    gaps = stamps.groupby("patient").time.diff().dropna().dt.total_seconds()
    assert gaps.std() > gaps.mean()
    stay = hours(ward.table).groupby(ward.table.patient).max()
    assert stay.max() < 96
    assert stay.min() > 12
    assert stay.std() > 10


def test_some_results_are_lost(ward: Ward) -> None:
    lost = ward.table.value.isna().groupby(ward.table.lab).mean()
    assert lost.between(0.01, 0.06).all()


def test_visits_are_more_frequent_while_the_patient_looks_ill(ward: Ward) -> None:
    heart = ward.table[ward.table.lab == "heart rate"].dropna()
    gap = heart.groupby("patient").time.diff(-1).dt.total_seconds().abs() / 3600
    fast = heart.value > 105
    assert gap[~fast].mean() > 1.5 * gap[fast].mean()


@pytest.mark.parametrize("seed", range(5))
def test_labels_are_balanced_enough(seed: int) -> None:
    labels = toy_ward(patients=600, seed=seed).labels
    assert 0.2 < labels.mean() < 0.5
    assert 0.2 < labels[:300].mean() < 0.5


def test_height_tells_little_and_coincidence_much(ward: Ward) -> None:
    def means(of: pd.Series[float]) -> tuple[float, float]:
        by = of.groupby(ward.labels.reindex(of.index)).mean()
        return by[0], by[1]

    for lab in ("heart rate", "lactate"):
        peak = ward.table[ward.table.lab == lab].groupby("patient").value.max()
        calm, worse = means(peak)
        assert abs(worse - calm) < 0.5 * peak.std()

    ordered = ward.table.dropna().sort_values("time")
    lactate, heart = (ordered[ordered.lab == lab] for lab in ("lactate", "heart rate"))
    pairs = pd.merge_asof(lactate, heart, on="time", by="patient", direction="nearest")
    together = pairs.groupby("patient")[["value_x", "value_y"]].corr().xs("value_x", level=1).value_y
    calm, worse = means(together)
    assert worse - calm > together.std()


def test_a_panel_can_be_made(ward: Ward) -> None:
    panel = Panel.from_long(
        ward.table, id="patient", time="time", channel="lab", value="value", unit="h", static=ward.static
    )
    assert len(panel) == 600
    assert panel.ids.tolist() == ward.labels.index.tolist()
    assert panel.channels == tuple(sorted(LABS))
    assert panel.unit == "h"
    assert panel.static is not None
    assert panel.static.equals(ward.static)


def test_names_sort_as_drawn_in_a_large_ward() -> None:
    assert toy_ward(patients=10_001).labels.index.is_monotonic_increasing


def test_one_patient_is_enough_and_none_is_refused() -> None:
    assert toy_ward(patients=1).table.patient.unique().tolist() == ["p0000"]
    with pytest.raises(ValueError, match="at least 1; got 0"):
        toy_ward(patients=0)
