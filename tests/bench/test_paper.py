"""The printed figures: typed again by hand, and held against the averages the paper prints of them."""

import math
from statistics import fmean

import pytest

from lformer.bench import paper
from lformer.bench.paper import ABLATION, LTS_C, LTS_R, MAIN, MEASURES, POINTS, RECORDS, SPIRALS, Printed


@pytest.mark.parametrize(
    ("table", "row", "column", "mean", "deviation"),
    [
        (LTS_C, "EC", "lformer", 45.3, 3.5),
        (LTS_C, "EW", "s6", 85.0, 16.1),
        (LTS_C, "SCP1", "s5", 89.9, 4.6),
        (LTS_R, "HR-MAE", "mamba", 1.97, 0.39),
        (LTS_R, "RR-RMSE", "cfc", 2.98, 0.16),
        (LTS_R, "SpO2-RMSE", "lformer", 0.42, 0.02),
        (POINTS, "HA", "lformer", 92.87, 0.16),
        (POINTS, "PDL", "lformer", 2.05, 0.25),
        (RECORDS, "PHY-I", "cru", 0.182, 0.091),
        (RECORDS, "USH-I", "lformer", 0.001, 0.000),
        (RECORDS, "PHY-E", "mtand", 0.340, 0.020),
        (RECORDS, "USH-E", "gru-ode-b", 5.437, 1.020),
        (SPIRALS, "2DS2-I-MAE", "contiformer", 0.41, 0.07),
        (SPIRALS, "2DS0.2-E-RMSE", "transformer", 2.96, 1.46),
        (SPIRALS, "2DS0.02-E-MAE", "lformer", 0.34, 0.08),
        (ABLATION, "MI", "full", 65.3, 7.0),
        (ABLATION, "SCP1", "softmax_attention", 89.2, 4.0),
        (ABLATION, "PHY-I", "no_normalisation", 0.132, 0.053),
        (ABLATION, "HA", "no_normalisation", 20.49, 0.0),
        (ABLATION, "PDL", "fixed_mu", 1.56, 0.36),
        (ABLATION, "2DS0.02-E-RMSE", "no_output_gate", 0.50, 0.21),
    ],
)
def test_figures_are_those_of_the_page(table: Printed, row: str, column: str, mean: float, deviation: float) -> None:
    figure = table.figures[MEASURES[row]][column]
    assert (figure.mean, figure.deviation) == (mean, deviation)


def test_words_stand_where_the_paper_has_no_figure() -> None:
    for table, row, column, word in (
        (LTS_C, "EW", "transformer", "OOM"),
        (ABLATION, "USH-E", "no_normalisation", "collapse"),
        (ABLATION, "PDL", "shared_mu", "collapse"),
    ):
        figure = table.figures[MEASURES[row]][column]
        assert figure.text == word
        assert math.isnan(figure.mean)
        assert math.isnan(figure.deviation)


def test_figures_that_are_only_derived_say_so() -> None:
    derived = [
        (row, figure.text) for row in POINTS.figures for figure in POINTS.figures[row].values() if "≈" in figure.text
    ]
    assert derived == [(MEASURES["HA"], "≈91.4"), (MEASURES["PDL"], "≈2.98")]
    assert round(92.87 / 1.016, 1) == 91.4
    assert round(2.05 / (1 - 0.312), 2) == 2.98


def test_decimals_are_as_printed() -> None:
    digits = {row: {f.digits for f in RECORDS.figures[MEASURES[row]].values()} for row in ("PHY-I", "USH-E")}
    assert digits == {"PHY-I": {3}, "USH-E": {3}}
    assert LTS_C.figures[MEASURES["EC"]]["lformer"].digits == 1
    assert ABLATION.figures[MEASURES["EC"]]["full"].digits == 2


def test_every_data_set_has_a_printed_figure_of_lformer_for_each_published_task() -> None:
    from lformer.bench.recipes import RECIPES

    tasks = {
        "activity": {"classify-points"},
        "pendulum": {"regress-points"},
        "ushcn": {"reconstruct", "extrapolate"},
        "physionet": {"reconstruct", "extrapolate"},
    }
    for name in RECIPES:
        own = {"trajectory"} if "spiral" in name else {"regress"} if "bidmc" in name else {"classify"}
        assert {m.task for m in paper.lformer(name)} == tasks.get(name, own), name
    assert {m.dataset for m in MEASURES.values()} == set(RECIPES)


def test_every_metric_is_one_the_task_prints_in_the_papers_unit() -> None:
    from lformer.bench.recipes import stand_in
    from lformer.tasks import TASKS

    for measure in MEASURES.values():
        task = TASKS[measure.task](stand_in(measure.task))
        assert task.printed[measure.metric] == measure.factor
        assert measure.sign == (1 if measure.metric == "accuracy" else -1)


def test_columns_are_models_and_ablations_of_ours() -> None:
    from lformer.bench.recipes import ABLATIONS

    assert {column for table in MAIN for column in table.columns} <= set(paper.MODELS)
    assert all(table.columns[-1] == "lformer" for table in MAIN)
    assert ABLATION.columns == ["full", *ABLATIONS]
    assert list(ABLATIONS) == paper.ABLATIONS
    assert len(set(paper.MODELS)) == len(paper.MODELS) == 24


def test_the_paper_agrees_with_itself_on_the_full_model() -> None:
    main = {measure: row["lformer"] for table in MAIN for measure, row in table.figures.items()}
    differ = [m for m, row in ABLATION.figures.items() if row["full"][1:] != main[m][1:]]
    assert differ == [MEASURES["MI"], MEASURES["PHY-I"]]  # in their deviations, as the table's note says
    assert all(row["full"].mean == main[m].mean for m, row in ABLATION.figures.items())


def test_average_accuracies_come_out_as_printed() -> None:
    printed = [61.7, 61.8, 62.0, 58.6, 60.2, 60.6, 64.3, 49.2, 64.5, 71.3]
    for model, average in zip(LTS_C.columns, printed, strict=True):
        means = [LTS_C.figures[row][model].mean for row in LTS_C.figures]
        assert fmean(0.0 if math.isnan(x) else x for x in means) == pytest.approx(average, abs=0.06), model  # OOM is 0


@pytest.mark.parametrize(
    ("rows", "printed"),
    [
        (["HR-RMSE", "RR-RMSE", "SpO2-RMSE"], [-20.28, -2.27, -4.19, -4.24, -4.50, -15.83, -8.22]),
        (["EC", "EW", "HB", "MI", "SCP1", "SCP2"], [-2.62, -2.67, -2.02, -3.47, -3.45, -2.00, -3.10]),
        (["HA"], [-3.15, -2.15, -1.24, -1.12, -1.14, -1.15, None]),
        (["PDL"], [None, None, None, None, 23.90, -39.02, None]),
    ],
)
def test_average_changes_of_the_ablations_come_out_as_printed(rows: list[str], printed: list[float | None]) -> None:
    for ablation, average in zip(paper.ABLATIONS, printed, strict=True):
        figures = [(MEASURES[row], ABLATION.figures[MEASURES[row]]) for row in rows]
        changes = [100 * m.sign * (f[ablation].mean / f["full"].mean - 1) for m, f in figures]
        if average is not None:
            assert fmean(changes) == pytest.approx(average, abs=0.11), ablation


def test_throughput_against_the_slowest() -> None:
    slowest = paper.THROUGHPUT["r-ode"]
    for model, times in (("transformer", 105), ("mamba", 3648), ("lformer", 1891)):
        assert paper.THROUGHPUT[model] / slowest == pytest.approx(times, abs=1)
    assert paper.PARAMETERS.keys() == paper.THROUGHPUT.keys()
