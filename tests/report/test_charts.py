"""What pictures and tables of a report are made of."""

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lformer.explain import Explanation
from lformer.report import scores
from lformer.report.charts import cloud, curve, errors, losses, ranges, reliability
from lformer.report.examples import chosen
from lformer.report.facts import Example
from lformer.report.frame import around, label
from lformer.report.records import record


def test_a_good_a_typical_and_the_worst_answer() -> None:
    missed = np.array([np.nan, 0.3, 0.1, 0.9, 0.2, 0.4])
    assert chosen(missed) == {"best": 2, "typical": 1, "worst": 3}
    assert chosen(np.array([0.5])) == {"worst": 0}
    assert chosen(np.array([np.nan])) == {}


def test_reliability_counts_every_answer_once() -> None:
    rng = np.random.default_rng(0)
    said = rng.random(1000)
    chart = reliability(said, rng.random(1000) < said)
    assert sum(int(row[3]) for row in chart.rows) == 1000
    for predicted, observed, _, _ in chart.rows:
        assert float(predicted[:-2]) == pytest.approx(float(observed[:-2]), abs=12)
    assert len(reliability(np.ones(5), np.ones(5, bool)).rows) == 1  # all alike


def test_the_curve_marks_the_best_epoch_of_all_members() -> None:
    history = [
        {"member": m, "epoch": e, "loss": 1.0, "validation": v}
        for m, values in enumerate(([0.9, 0.4, 0.5], [0.8, 0.3, 0.35]))
        for e, v in enumerate(values)
    ]
    chart = curve(history, "validation", "log loss", ("boosting", 0.45), low=True)
    assert "best: 0.300 in epoch 2" in chart.picture
    assert "boosting: 0.450" in chart.picture
    assert chart.rows[4] == ["2", "2", "0.300"]
    assert "best: 0.900 in epoch 1" in curve(history, "validation", "accuracy", None, low=False).picture
    assert len(re.findall('class="curve', chart.picture)) == 2


def test_one_epoch_and_equal_numbers_are_drawn(recwarn: pytest.WarningsRecorder) -> None:
    one = [{"member": 0, "epoch": 0, "loss": 0.0, "validation": 0.0}]
    same = np.full(4, 3.0)
    for chart in (curve(one, "loss", "loss", None, True), cloud(same, same, "x"), errors(same, same, "x")):
        assert "nan" not in chart.picture
        assert "inf" not in chart.picture
    assert not recwarn.list


def test_losses_may_be_gains() -> None:
    table = pd.DataFrame({"channel": ["a", "b"], "loss": [0.2, -0.05], "deviation": [0.01, 0.02]})
    chart = losses(table, "channel", "decrease in AUC")
    assert chart.rows == [["a", "0.200", "0.0100"], ["b", "-0.0500", "0.0200"]]
    once = losses(table.assign(deviation=np.nan), "channel", "decrease in AUC")
    assert once.rows[0] == ["a", "0.200", "none"]
    assert "nan" not in once.picture
    assert "whisker" in chart.picture
    assert "whisker" not in once.picture
    other = pd.DataFrame({"stamps": ["even"], "loss": [0.9], "deviation": [0.0]})
    axes = [re.findall(r'middle">([^<]+)<', losses(*one, "decrease in AUC", two).picture)[:-1] for one, two in
            (((table, "channel"), other), ((other, "stamps"), table))]  # fmt: skip
    assert axes[0] == axes[1]  # the two can be compared
    assert all(float(width) > 0 for width in re.findall(r'width="([\d.]+)" height="14', chart.picture))


def test_half_lives_that_are_not_reached_are_said() -> None:
    table = pd.DataFrame(
        {"layer": [1, 1], "head": [1, 2], "median": [7200.0, math.inf], "lower": [3600.0, math.inf],
         "upper": [math.inf, math.inf], "not_reached": [0.4, 1.0], "observations": [10, 10]}
    )  # fmt: skip
    table.attrs["unit"] = "s"
    chart = ranges(table)
    assert chart.rows[0][1:5] == ["1 h", "2 h", "not reached", "40 %"]
    assert chart.rows[1][1:4] == ["not reached"] * 3
    assert chart.picture.count('class="arrow"') == 1
    assert "half-life in hours" in chart.picture


def example(contribution: list[float]) -> Example:
    table: Any = pd.DataFrame(
        {"id": "p", "time": [0.0, 1.5, 2.0], "channel": ["k", "na", "k"], "value": [4.0, 140.0, 4.4],
         "contribution": contribution}
    )  # fmt: skip
    why = Explanation(
        id="p", what="prediction", answer=1.0, baseline=0.5, gap=0.0, method="integrated-gradients", table=table
    )
    return Example("best", "1", "1", why, "h", np.array([0.0, 1.5, 2.0]))


def test_a_record_shows_what_raises_and_what_lowers() -> None:
    chart = record(example([0.4, -0.1, 0.0001]))
    assert chart.picture.count('class="raise"') == 1
    assert chart.picture.count('class="lower"') == 1
    assert chart.picture.count('class="idle"') == 1
    assert [row[0] for row in chart.rows] == ["k", "na", "k"]
    assert chart.rows[0] == ["k", "0", "4", "+0.4"]
    assert "hours since the first observation" in chart.picture
    assert "nan" not in record(example([0.0, 0.0, 0.0])).picture
    assert "query" not in chart.picture
    assert "query" in record(example([0.4, -0.1, 0.0])._replace(asked=5.0)).picture


def test_scores_of_classes_and_numbers() -> None:
    truth = np.array([0, 1, 1, 0, 1])
    p = np.array([0.2, 0.8, 0.6, 0.7, 0.9])
    found = {s.metric: s for s in scores.of_classes(truth, {"model": np.column_stack([1 - p, p])}, 2)}
    assert found["accuracy"].model == 0.8
    assert found["accuracy"].others == {"always the class shares": 0.6}
    assert found["AUC"].model == pytest.approx(5 / 6)
    assert found["log loss"].model == pytest.approx(-np.log([0.8, 0.8, 0.6, 0.3, 0.9]).mean())
    assert found["accuracy"].wins
    numbers = np.array([[1.0, np.nan], [3.0, 5.0], [2.0, 7.0]])
    told = np.array([[1.5, 0.0], [3.0, 5.0], [2.0, 6.0]])
    by = {s.metric: s for s in scores.of_numbers(numbers, {"model": told})}
    assert by["MAE"].model == pytest.approx((0.5 / 3 + 0.5) / 2)
    assert by["MAE"].others["always the mean"] == pytest.approx((2 / 3 + 1) / 2)
    assert by["R²"].others["always the mean"] == pytest.approx(0.0)


def test_axes() -> None:
    assert around(2.0, 2.0) == (1.9, 2.1)
    assert around(0.0, 0.0) == (-1.0, 1.0)
    assert label(1e-7) == "1e-07"
