"""Tables and figures from made-up records: numbers, marks, ranks, misses, and text that can be read back."""

import csv
import io
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from lformer import tasks
from lformer.bench import page, paper, plots, records, tables
from lformer.bench.layout import MARKDOWN, Entry, Line, Table
from lformer.bench.paper import MEASURES, Measure
from lformer.bench.records import Cell
from lformer.parts import Spec

SEEDS = range(42, 47)


def record(dataset: str, task: str, metrics: dict[str, float] | None = None, **fields: Any) -> dict[str, Any]:
    cell = records.cell_fields(Cell(dataset=dataset, task=task))
    made = {"cell": cell, "status": "done", "metrics": metrics or {}, "partial": "", "smoke": False}
    for name, value in fields.items():
        (cell if name in cell else made)[name] = value
    made["smoke"] = cell["epochs"] is not None
    return made


def seeds(
    dataset: str, task: str, values: list[float], metric: str = "accuracy", **fields: Any
) -> list[dict[str, Any]]:
    return [record(dataset, task, {metric: v}, seed=s, **fields) for s, v in zip(SEEDS, values, strict=False)]


def around(mean: float) -> list[float]:
    """Five values with this mean and sample deviation 0.1."""
    step = 0.1 / math.sqrt(2.5)
    return [mean + k * step for k in (-2, -1, 0, 1, 2)]


def only(made: list[dict[str, Any]]) -> Table:
    (table,) = tables.result_tables(made)
    return table


def line(table: Table, row: str, split: str = "published", scaling: str = "published") -> Line:
    found = [x for x in table.lines if (x.measure, x.split, x.scaling) == (MEASURES[row], split, scaling)]
    assert len(found) == 1
    return found[0]


def cells(table: Table, subject: str, metric: str = "") -> dict[str, str]:
    """The Markdown cells of a row by column."""
    rows = [
        [cell.strip() for cell in text.strip("|").split("|")] for text in table.markdown().splitlines() if "|" in text
    ]
    (row,) = [row for row in rows if row[0] == subject and row[1].startswith(metric)]
    return dict(zip(rows[0], row, strict=True))


def mixed() -> list[dict[str, Any]]:
    """Every kind of record there is, for all six tables."""
    made = seeds("ethanol", "classify", around(0.45)) + seeds("ethanol", "classify", around(0.40), model="transformer")
    made += seeds("ethanol", "classify", [0.3, 0.32, 0.28], model="gru")
    made += [record("eigenworms", "classify", status="OOM", model="transformer")]
    made += [record("heartbeat", "classify", {"accuracy": 0.8}, partial="204 of 409 series, 100 % & more_")]
    made += [record("heartbeat", "classify", {"accuracy": 0.9}, model="gru", epochs=2)]
    for split in ("published", "subject"):
        made += [record("bidmc-hr", "regress", {"mae": 1.0, "rmse": 1.5}, seed=s, split=split) for s in SEEDS]
    made += [record("activity", "classify-points", {"accuracy": 0.93}, scaling="standard")]
    made += [
        record("physionet", "extrapolate", {"mse": 0.0035, "mse_unseen": 0.005}, model=m) for m in ("mtand", "lformer")
    ]
    made += [record("physionet", "reconstruct", {"mse": 0.0}, model="last-value", at_once=True)]
    made += [record("spiral-2", "trajectory", {"interpolation_mae": 0.004, "extrapolation_mae": 0.006})]
    made += [record("spiral-2", "trajectory", {"interpolation_mae": 0.003}, variant="carried")]
    made += seeds("ethanol", "classify", around(0.41), ablation="fixed_mu")
    return made


def test_mean_and_sample_deviation_over_the_seeds_in_the_units_of_the_paper() -> None:
    values = [0.40, 0.44, 0.46, 0.48, 0.52]
    entry = line(only(seeds("ethanol", "classify", values)), "EC").entries["lformer"]
    assert entry.ours is not None
    assert entry.ours.mean == pytest.approx(46.0)
    assert entry.ours.deviation == pytest.approx(100 * math.sqrt(sum((v - 0.46) ** 2 for v in values) / 4))
    assert cells(only(seeds("ethanol", "classify", values)), "ethanol")["lformer"] == "46.0±4.5 / 45.3±3.5 ✓ +0.7"


@pytest.mark.parametrize(
    ("row", "raw", "shown"),
    [
        ("HR-RMSE", 1.40, "1.40 (1 seed) / 1.52±0.07 ✓ +0.12"),
        ("PHY-E", 0.00401, "0.401 (1 seed) / 0.372±0.002 ✗ −0.029"),
        ("PDL", 0.0019, "1.90 (1 seed) / 2.05±0.25 ✓ +0.15"),
        ("HA", 0.92, "92.00 (1 seed) / 92.87±0.16 ✗ −0.87"),
        ("2DS2-E-MAE", 0.0053, "0.53 (1 seed) / 0.53±0.06 ✓ +0.00"),
    ],
)
def test_units_and_the_good_direction_of_every_kind_of_metric(row: str, raw: float, shown: str) -> None:
    measure = MEASURES[row]
    table = only([record(measure.dataset, measure.task, {measure.metric: raw})])
    found = line(table, row)
    assert cells(table, found.subject(", task" in table.markdown()), found.metric)["lformer"] == shown


def test_a_miss_is_a_miss_at_the_precision_of_the_page() -> None:
    for value, gain in ((0.4524, -0.1), (0.4525001, 0.0), (0.453, 0.0), (0.4536, 0.1)):
        entry = line(only([record("ethanol", "classify", {"accuracy": value})]), "EC").entries["lformer"]
        assert entry.gain == gain
        assert math.copysign(1, entry.gain) == math.copysign(1, gain)
        assert entry.verdict.startswith("✓" if gain >= 0 else "✗")


def test_small_figures_keep_two_significant_digits_and_are_judged_as_printed() -> None:
    table = only(seeds("ushcn", "reconstruct", [1.3e-5] * 5, metric="mse"))
    assert cells(table, "ushcn, reconstruct")["lformer"] == "0.0013±0.0000 / 0.001±0.000 ✓ +0.000"


def test_models_we_did_not_run_show_the_paper_alone_and_models_it_lacks_show_ours_alone() -> None:
    ours = ["mine", "yours", "gru", "anyone", "cfc"]
    table = only([r for model in ours for r in seeds("ethanol", "classify", around(0.3), model=model)])
    row = cells(table, "ethanol")
    assert row["lru"] == "– / 21.5±2.1"
    assert row["gru"] == "**30.0±10.0**"
    assert list(row)[2:] == [*paper.LTS_C.columns[:-1], "gru", "cfc", "anyone", "mine", "yours", "lformer"]
    assert cells(table, "scp2")["gru"] == "–"


def test_best_and_second_best_of_ours_are_marked_ties_together() -> None:
    made = []
    for model, mean in (("gru", 1.2), ("mamba", 1.1), ("ncde", 1.1), ("cfc", 1.3), ("lformer", 1.0)):
        made += seeds("bidmc-hr", "regress", around(mean), metric="rmse", model=model)
    table = only(made)
    marks = {name: entry.mark for name, entry in line(table, "HR-RMSE").entries.items() if entry.ours}
    assert marks == {"gru": "", "mamba": "second", "ncde": "second", "cfc": "", "lformer": "best"}
    assert {n: e.rank for n, e in line(table, "HR-RMSE").entries.items() if e.ours} == {
        "lformer": 1, "mamba": 2.5, "ncde": 2.5, "gru": 4, "cfc": 5,
    }  # fmt: skip
    row = cells(table, "bidmc-hr", "RMSE")
    assert row["lformer"] == "**1.00±0.10** / 1.52±0.07 ✓ +0.52"
    assert row["mamba"] == "1.10±0.10† / 2.75±0.70 ✓ +1.65"
    assert r"\underline{1.10$\pm$0.10} / 2.75$\pm$0.70 \ding{51} +1.65" in table.latex()
    assert r"\textbf{1.00$\pm$0.10} / 1.52$\pm$0.07" in table.latex()


def test_one_model_alone_is_not_the_best_and_the_worse_of_two_not_second() -> None:
    one = only(seeds("ethanol", "classify", around(0.4)))
    assert line(one, "EC").entries["lformer"].mark == ""
    assert "mean rank" not in one.markdown()
    two = line(
        only(seeds("ethanol", "classify", around(0.4)) + seeds("ethanol", "classify", around(0.5), model="gru")), "EC"
    )
    assert (two.entries["gru"].mark, two.entries["lformer"].mark) == ("best", "")


def test_out_of_memory_and_out_of_time_are_shown_ranked_last_and_a_miss() -> None:
    made = seeds("eigenworms", "classify", around(0.8)) + seeds("eigenworms", "classify", around(0.7), model="gru")
    made += [record("eigenworms", "classify", status="OOM", model="transformer")]
    made += [record("eigenworms", "classify", status="OOT", model="ncde")]
    table = only(made)
    row = cells(table, "eigenworms")
    assert row["transformer"] == "OOM / OOM"
    assert row["ncde"] == "OOT / 75.0±3.9 ✗"
    entries = line(table, "EW").entries
    assert [entries[m].rank for m in ("lformer", "gru", "transformer", "ncde")] == [1, 2, 3.5, 3.5]
    alone = [r for r in made if r["cell"]["model"] != "gru"]
    marks = {m: entry.mark for m, entry in line(only(alone), "EW").entries.items() if entry.ours}
    assert marks == {"lformer": "best", "transformer": "", "ncde": ""}


def test_seeds_that_failed_beside_seeds_that_did_not_are_counted_and_not_ranked() -> None:
    made = [*seeds("ethanol", "classify", [0.4, 0.5]), record("ethanol", "classify", status="OOM", seed=44)]
    made += seeds("ethanol", "classify", around(0.3), model="gru")
    table = only(made)
    assert cells(table, "ethanol")["lformer"] == "45.0±7.1 (2 seeds, 1 OOM) / 45.3±3.5"
    assert line(table, "EC").entries["lformer"].rank is None


def test_a_metric_that_is_not_finite_is_a_collapse() -> None:
    table = only([record("ethanol", "classify", {"accuracy": math.nan}, seed=s) for s in SEEDS])
    assert cells(table, "ethanol")["lformer"] == "collapse / 45.3±3.5 ✗"


def test_partial_and_smoke_records_are_signed_explained_and_never_ranked_or_judged() -> None:
    made = seeds("heartbeat", "classify", around(0.99), partial="204 of 409 series")
    made += seeds("heartbeat", "classify", around(0.98), model="mamba", epochs=3)
    made += seeds("heartbeat", "classify", around(0.6), model="gru") + seeds(
        "heartbeat", "classify", around(0.5), model="lru"
    )
    table = only(made)
    row, entries = cells(table, "heartbeat"), line(table, "HB").entries
    assert row["lformer"] == "99.0±10.0‡ / 81.6±1.6"
    assert row["mamba"] == "98.0±10.0§ / 76.2±3.8"
    assert row["gru"] == "**60.0±10.0**"
    assert (entries["lformer"].rank, entries["mamba"].rank, entries["gru"].rank) == (None, None, 1)
    assert table.ranks == {"gru": 1, "lru": 2}
    assert any("‡" in note and "heartbeat: 204 of 409 series" in note for note in table.notes)
    assert any("§" in note and "3 epochs" in note for note in table.notes)
    whole = only(seeds("heartbeat", "classify", around(0.6)))
    assert not any(sign in note for note in whole.notes for sign in "‡§")


def test_complete_runs_stand_before_partial_ones_and_these_before_smoke_runs() -> None:
    smoke = seeds("ethanol", "classify", [0.1] * 5, epochs=1) + seeds("ethanol", "classify", [0.2] * 2, epochs=2)
    partial = seeds("ethanol", "classify", [0.3] * 3, partial="half")
    complete = seeds("ethanol", "classify", [0.4])
    for made, shown in (
        (smoke, "20.0±0.0§ (2"),
        (smoke + partial, "30.0±0.0‡ (3"),
        (smoke + partial + complete, "40.0 (1"),
    ):
        assert cells(only(made), "ethanol")["lformer"].startswith(shown)


def test_two_records_of_one_cell_are_refused() -> None:
    with pytest.raises(ValueError, match="two records of the same cell"):
        tables.result_tables(seeds("ethanol", "classify", [0.4]) * 2)


def test_other_splits_and_scalings_get_rows_of_their_own_without_a_printed_figure() -> None:
    made = [record("bidmc-hr", "regress", {"mae": 1.0, "rmse": 1.5})]
    made += [record("bidmc-hr", "regress", {"mae": 8.0, "rmse": 9.0}, split="subject")]
    made += [record("bidmc-hr", "regress", {"mae": 7.0, "rmse": 7.5}, split="subject", scaling="standard")]
    made += [record("bidmc-hr", "regress", {"mae": 6.0, "rmse": 6.5}, scaling="none")]
    table = only(made)
    subjects = [x.subject(False) for x in table.lines][:8:2]
    other = "bidmc-hr, split subject"
    assert subjects == ["bidmc-hr", "bidmc-hr, scaling none", other, f"{other}, scaling standard"]
    assert cells(table, other, "MAE")["lformer"] == "8.00 (1 seed)"
    assert cells(table, other, "MAE")["mamba"] == "–"
    assert cells(table, "bidmc-hr", "MAE")["lformer"] == "1.00 (1 seed) / 1.03±0.04 ✓ +0.03"


def test_a_record_says_which_metrics_a_table_prints() -> None:
    figures = {"accuracy": 0.86, "auroc": 0.871, "auprc": 0.55}
    old = record("physionet", "classify", figures, split="folds")
    new = old | {"printed": {"auroc": 100.0, "auprc": 100.0}}
    metrics = [[x.metric for x in only([r]).lines if x.measure.dataset == "physionet"] for r in (old, new)]
    assert metrics == [["accuracy ↑ (%)"], ["AUROC ↑ (%)", "AUPRC ↑ (%)"]]
    assert cells(only([new]), "physionet, split folds", "AUROC")["lformer"] == "87.1 (1 seed)"
    better = record("physionet", "classify", figures | {"auroc": 0.9}, split="folds", model="gru")
    (auroc, *_) = [x for x in only([new, better | {"printed": new["printed"]}]).lines if x.measure.metric == "auroc"]
    assert (auroc.entries["gru"].mark, auroc.entries["lformer"].mark) == ("best", "")
    kilo = record("toy", "regress", {"mae": 0.002}, printed={"mae": 1000.0})
    assert cells(only([kilo]), "toy", "MAE ↓ (× 1e-3)")["lformer"] == "2.000 (1 seed)"


def test_older_records_are_printed_as_their_task_says() -> None:
    for name in ("classify", "regress", "classify-points", "regress-points", "interpolate", "trajectory"):
        task = tasks.TASKS[name](Spec(inputs=2, outputs=2, answer="step"))
        shown = {x.measure.metric: x.measure.factor for x in only([record("new", name, {"x": 1.0})]).lines
                 if x.measure.dataset == "new"}  # fmt: skip
        assert shown == dict(task.printed)


def test_the_good_direction_of_a_metric_is_that_of_its_task() -> None:
    for make in tasks.TASKS.values():
        for name, metric in make(Spec(inputs=2, outputs=2, answer="series")).metrics.items():
            assert Measure("any", "any", name, 1).sign == (1 if metric.best == "max" else -1), name


def test_variants_and_simple_models_are_columns_that_no_printed_figure_stands_beside() -> None:
    made = []
    for mean, fields in (
        (0.0037, {}), (0.0020, {"variant": "persistence"}), (0.0030, {"variant": "carried"}),
        (0.0045, {"model": "last-value", "at_once": True}), (0.0033, {"model": "mtand"}),
        (0.0031, {"model": "gru", "variant": "carried"}),
    ):  # fmt: skip
        made += seeds("physionet", "extrapolate", [mean] * 5, metric="mse", **fields)
    table = only(made)
    ours = ["gru carried", "last-value", "lformer", "lformer carried", "lformer persistence"]
    assert table.columns == [*paper.RECORDS.columns[:-1], *ours]
    row = cells(table, "physionet, extrapolate", "MSE, all")
    assert row["lformer"] == "0.370±0.000 / 0.372±0.002 ✓ +0.002"
    assert row["lformer persistence"] == "**0.200±0.000**"
    assert row["lformer carried"] == "0.300±0.000†"
    assert row["last-value"] == "0.450±0.000"
    assert row["mtand"] == "0.330±0.000 / 0.340±0.020 ✓ +0.010"
    ranks = {name: entry.rank for name, entry in line(table, "PHY-E").entries.items() if entry.ours}
    assert ranks == {"mtand": 1, "lformer": 2} | dict.fromkeys(
        ("gru carried", "last-value", "lformer carried", "lformer persistence")
    )
    assert table.ranks == {"mtand": 1, "lformer": 2}


def test_a_model_that_starts_from_the_answers_is_trivial_and_neither_ranked_nor_judged() -> None:
    def config(persistence: str) -> dict[str, Any]:
        return {"model": {"persistence": persistence}}

    made = seeds("physionet", "reconstruct", [4e-4] * 5, metric="mse", config=config("none"))
    made += seeds("physionet", "reconstruct", [1e-6] * 5, metric="mse", variant="persistence", config=config("line"))
    for model, error in (("last-value", 0.0), ("linear", 1e-15), ("series-mean", 2e-4)):
        made += seeds("physionet", "reconstruct", [error] * 5, metric="mse", model=model, at_once=True)
    table = only(made)
    row = cells(table, "physionet, reconstruct")
    assert row["lformer persistence"] == "0.00010±0.00000¶"
    assert row["last-value"] == "0.000±0.000¶"
    assert row["linear"].endswith("¶")
    assert row["series-mean"] == "**0.020±0.000**"  # it does not hand back what was given
    assert row["lformer"] == "0.040±0.000 / 0.040±0.009 ✓ +0.000"
    entries = line(table, "PHY-I").entries
    assert [entries[name].cost for name in ("lformer persistence", "last-value", "linear")] == [None] * 3
    assert any(note.startswith("¶ trivial, neither ranked nor judged: reconstruction") for note in table.notes)
    assert "$^\\P$" in table.latex()
    elsewhere = only(seeds("physionet", "extrapolate", [1e-6] * 5, metric="mse", config=config("latest")))
    assert line(elsewhere, "PHY-E").entries["lformer"].rank == 1
    assert not any("¶" in note for note in elsewhere.notes)


def test_the_summary_has_the_papers_recipe_the_best_of_ours_and_the_best_simple_model() -> None:
    made = []
    for mean, fields in (
        (0.0037, {}), (0.0020, {"variant": "persistence"}), (0.0030, {"variant": "carried"}),
        (0.0045, {"model": "last-value", "at_once": True}), (0.0042, {"model": "linear", "at_once": True}),
        (0.0033, {"model": "mtand"}), (0.0010, {"model": "gru", "variant": "carried"}),
    ):  # fmt: skip
        made += seeds("physionet", "extrapolate", [mean] * 5, metric="mse", **fields)
    made += seeds("physionet", "extrapolate", [1e-4] * 5, metric="mse", variant="observed", epochs=1)
    made += seeds("scp1", "classify", [0.9] * 5, variant="carried")
    made += seeds("scp2", "classify", [0.9] * 5, model="gru")
    made += seeds("ushcn", "reconstruct", [0.0] * 5, metric="mse", model="last-value", at_once=True)
    made += seeds("ushcn", "reconstruct", [1e-5] * 5, metric="mse")
    rows = [[cell.strip() for cell in text.strip("|").split("|")] for text in tables.summary(made).splitlines()]
    assert rows[0] == [
        "data set, task", "metric", "lformer", "its best variant", "best simple model", "LFormer paper", "",
    ]  # fmt: skip
    assert rows[2:] == [
        ["scp1, classify", "accuracy ↑ (%)", "–", "carried 90.0±0.0", "–", "84.5±1.7", ""],
        ["ushcn, reconstruct", "MSE ↓ (× 1e-2)", "0.0010±0.0000", "–", "–", "0.001±0.000", "✓ +0.000"],
        ["physionet, extrapolate", "MSE, all points ↓ (× 1e-2)", "0.370±0.000", "persistence 0.200±0.000",
         "linear 0.420±0.000", "0.372±0.002", "✓ +0.002"],
    ]  # fmt: skip


def test_the_validation_part_chooses_between_variants_and_the_test_part_is_shown() -> None:
    made = seeds("scp1", "classify", [0.82] * 5, validation={"accuracy": 0.84})
    made += seeds("scp1", "classify", [0.95] * 5, variant="carried", validation={"accuracy": 0.80})  # lucky
    made += seeds("scp1", "classify", [0.80] * 5, variant="cosine", validation={"accuracy": 0.90})
    made += seeds("scp1", "classify", [0.99] * 5, variant="observed")  # an older record, without
    made += seeds("scp1", "classify", [0.81] * 5, model="boosting", at_once=True)
    assert "| cosine 80.0±0.0 | boosting 81.0±0.0 |" in tables.summary(made)
    text = page.filled("<!-- tables -->\n<!-- /tables -->\n", made)
    assert "ahead of the best simple model in 0 of the 1 rows that have both, and not on scp1, classify." in text


def test_unseen_points_and_tasks_the_paper_lacks_are_shown_without_a_printed_figure() -> None:
    made = [record("physionet", task, {"mse": 0.003, "mse_unseen": 0.005}) for task in ("extrapolate", "interpolate")]
    table = only(made)
    shown = cells(table, "physionet, extrapolate", "MSE, all")["lformer"]
    assert shown == "0.300 (1 seed) / 0.372±0.002 ✓ +0.072"
    assert cells(table, "physionet, extrapolate", "MSE, unseen")["lformer"] == "0.500 (1 seed)"
    assert cells(table, "physionet, interpolate", "MSE, unseen")["lformer"] == "0.500 (1 seed)"
    assert "read as over all" in table.markdown()


def test_printed_figures_as_records_give_the_printed_mean_ranks() -> None:
    made = []
    for measure, row in paper.LTS_C.figures.items():
        for model, figure in row.items():
            known = not math.isnan(figure.mean)
            made.append(
                record(measure.dataset, "classify", {"accuracy": figure.mean / 100} if known else {}, model=model,
                       status="done" if known else figure.text)
            )  # fmt: skip
    table = only(made)
    printed = [5.67, 5.92, 5.50, 7.92, 6.67, 7.08, 3.92, 6.50, 4.50, 1.33]
    assert [round(table.ranks[model], 2) for model in paper.LTS_C.columns] == printed
    assert table.ranked == "6 of 6 rows"
    assert table.markdown().count("✗") == 1  # in the legend: every figure meets itself


def test_ranks_are_over_the_rows_that_all_ranked_models_have() -> None:
    made = []
    for model, ethanol, scp1 in (("gru", 0.3, 0.9), ("lru", 0.4, 0.8), ("lformer", 0.5, 0.7)):
        made += seeds("ethanol", "classify", around(ethanol), model=model)
        made += seeds("scp1", "classify", around(scp1), model=model) if model != "lru" else []
    table = only(made)
    assert table.ranks == {"gru": 3, "lru": 2, "lformer": 1}
    assert table.ranked == "1 of 6 rows"
    assert cells(table, "mean rank ↓")["lformer"] == "**1.00**"
    assert cells(table, "mean rank ↓")["s5"] == "–"
    apart = only(seeds("ethanol", "classify", around(0.3), model="gru") + seeds("scp1", "classify", around(0.3)))
    assert (apart.ranks, apart.ranked) == ({}, "0 of 6 rows")
    assert cells(apart, "mean rank ↓")["gru"] == "–"


def test_other_protocols_do_not_enter_the_mean_ranks() -> None:
    made = seeds("ethanol", "classify", around(0.3), model="gru") + seeds("ethanol", "classify", around(0.4))
    made += seeds("ethanol", "classify", around(0.9), model="gru", scaling="none")
    made += seeds("ethanol", "classify", around(0.1), scaling="none")
    assert only(made).ranks == {"gru": 2, "lformer": 1}


def test_one_run_on_a_curve_has_both_halves() -> None:
    metrics = {
        "mae": 0.005, "interpolation_mae": 0.004, "interpolation_rmse": 0.005, "extrapolation_mae": 0.006,
        "extrapolation_rmse": 0.007,
    }  # fmt: skip
    table = only([record("spiral-0.2", "trajectory", metrics)])
    words = "MAE, interpolation ↓ (× 1e-2)"
    assert cells(table, "spiral-0.2", words)["lformer"] == "0.40 (1 seed) / 0.33±0.02 ✗ −0.07"
    assert cells(table, "spiral-0.2", "RMSE, extrapolation")["lformer"] == "0.70 (1 seed) / 0.45±0.06 ✗ −0.25"
    assert len(table.lines) == 12  # the paper's; what selects is not printed


def test_the_ablation_table_has_the_full_model_and_its_ablations() -> None:
    made = seeds("ethanol", "classify", around(0.45)) + seeds("ethanol", "classify", around(0.41), ablation="fixed_mu")
    made += seeds("ethanol", "classify", around(0.2), model="gru")
    made += seeds("ethanol", "classify", around(0.6), variant="carried")
    made += [record("pendulum", "regress-points", {"mse": 0.002}, ablation="no_output_gate")]
    made += seeds("scp1", "classify", around(0.8))
    main, ablation = tables.result_tables(made)
    assert "fixed_mu" not in main.columns
    assert ablation.columns == paper.ABLATION.columns
    row = cells(ablation, "ethanol, classify")
    assert row["full"] == "**45.00±10.00** / 45.30±3.50 ✗ −0.30"
    assert row["fixed_mu"] == "41.00±10.00 / 40.30±4.40 ✓ +0.70"
    assert row["time_only"] == "– / 41.00±4.10"
    assert cells(ablation, "pendulum, regress-points")["no_output_gate"] == "2.00 (1 seed) / collapse"
    assert cells(ablation, "scp1, classify")["full"] == "– / 84.50±1.70"  # nothing to compare it with
    assert len(ablation.lines) == 21
    made += [record("physionet", "interpolate", {"mse": 0.01, "mse_unseen": 0.02}, ablation="fixed_mu")]
    assert [x.metric for x in tables.result_tables(made)[-1].lines[21:]] == ["MSE, all points ↓ (× 1e-2)"]


def test_there_are_six_tables_and_only_those_with_records() -> None:
    titles = [table.title for table in tables.result_tables(mixed())]
    assert titles == [table.title for table in (*paper.MAIN, paper.ABLATION)]
    assert [table.title for table in tables.result_tables(seeds("scp1", "classify", [0.8]))] == [paper.LTS_C.title]


def on_page(text: str, title: str) -> dict[str, dict[str, dict[str, tuple[str, str]]]]:
    """Of a section: data set and task -> system -> metric -> ours, and the paper's where there is a column for it."""
    section = text.partition(f"### {title}\n")[2].partition("\n###")[0]
    found: dict[str, dict[str, dict[str, tuple[str, str]]]] = {}
    for subject, blocks in re.findall(r"^\*\*(.+)\*\*\n\n((?:\|(?:.*\n)+?\n)+)", section, flags=re.MULTILINE):
        for block in blocks.strip().split("\n\n"):
            header, _, *rows = [[x.strip() for x in re.split(r"(?<!\\)\|", row)[1:-1]] for row in block.splitlines()]
            assert {len(row) for row in rows} == {len(header)}
            assert len(header) <= 5
            for row in rows:
                of = found.setdefault(subject.replace(r"\|", "|"), {}).setdefault(row[0].replace(r"\|", "|"), {})
                for k, name in enumerate(header[1:], start=1):
                    if name != "paper":
                        of[name] = (row[k], row[k + 1] if header[k + 1 : k + 2] == ["paper"] else "")
    return found


def test_a_page_gets_every_figure_and_one_legend_between_its_marks() -> None:
    made = [*mixed(), record("a|b", "classify", {"accuracy": 0.5}, model="x|y")]
    text = page.filled("# Results\n\n<!-- tables -->\nEARLIER\n<!-- /tables -->\n\nend\n", made)
    assert text.startswith("# Results\n\n<!-- tables -->\n\n")
    assert text.endswith("\n<!-- /tables -->\n\nend\n")
    assert "EARLIER" not in text
    assert page.filled(text, made) == text
    seen = 0
    for table in tables.result_tables(made):
        shown = on_page(text, table.title)
        for line in table.lines:
            rows = shown.get(line.subject(with_task=True), {})
            for column, entry in line.entries.items():
                if entry.ours is not None:
                    ours, _, printed = MARKDOWN.cell(entry).replace("|", r"\|").partition(" / ")
                    assert rows[column][line.metric] == (ours, printed)
                    seen += 1
        assert shown.keys() == {
            x.subject(with_task=True) for x in table.lines if any(entry.ours for entry in x.entries.values())
        }
        assert [note for note in table.notes if f"- {note}" not in text] == []
    assert seen == 22
    assert text.count("ours, rounded as printed, meets or misses the paper") == 1
    for broken in ("no marks", "<!-- /tables --> <!-- tables -->"):
        with pytest.raises(ValueError, match="a page needs the marks <!-- tables --> and <!-- /tables -->"):
            page.filled(broken, made)


def test_a_page_counts_what_lformer_meets_leads_and_loses() -> None:
    def said(made: list[dict[str, Any]]) -> list[str]:
        text = page.filled("<!-- tables -->\n<!-- /tables -->\n", made)
        return re.findall(r"^- ((?:By|Of|LFormer).*)$", text.partition("## All systems")[0], flags=re.MULTILINE)

    made = seeds("ethanol", "classify", around(0.5)) + seeds("scp1", "classify", around(0.3))
    assert said(made) == [
        "By the paper's recipe, LFormer meets the printed figure in 1 of the 2 rows that can be compared, and misses "
        "it in 1."
    ]
    made += seeds("ethanol", "classify", around(0.4), model="gru") + seeds("scp1", "classify", around(0.4), model="gru")
    assert said(made)[1:] == [
        "Of the models that were trained by the paper's recipe it is the best in 1 of the 2 rows where there are "
        "rivals."
    ]
    made += seeds("ethanol", "classify", around(0.55), model="boosting", at_once=True)
    made += seeds("scp1", "classify", around(0.55), model="boosting", at_once=True)
    made += seeds("scp1", "classify", around(0.6), variant="carried")
    assert said(made)[2:] == [
        "LFormer, by its best recipe, is ahead of the best simple model in 1 of the 2 rows that have both, and not on "
        "ethanol, classify."
    ]


def test_the_page_of_results_is_what_the_committed_records_give() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "results.md").read_text()
    assert page.filled(text, records.read_all(root / "results" / "bench")) == text


def test_no_records_say_so() -> None:
    with pytest.raises(ValueError, match="no records, so no tables: run a cell first"):
        tables.result_tables([])


def test_the_order_of_records_does_not_matter() -> None:
    made = mixed()
    expected = [(t.markdown(), t.latex(), t.csv()) for t in tables.result_tables(made)]
    for seed in range(3):
        random.Random(seed).shuffle(made)
        assert [(t.markdown(), t.latex(), t.csv()) for t in tables.result_tables(made)] == expected


def test_the_code_that_made_the_records_is_named() -> None:
    made = [record("scp1", "classify", {"accuracy": 0.8}, seed=s) for s in SEEDS]
    for r, commit in zip(made, ["abc", "abc", "def+", "abc", ""], strict=True):
        r["versions"] = {"lformer": "0.2", "commit": commit}
    assert only(made).notes[-1] == "Made with lformer 0.2 (abc), 0.2 (def+), 0.2 (no commit)."


def test_markdown_rows_have_equal_counts_of_cells() -> None:
    for table in tables.result_tables([*mixed(), record("a|b", "classify", {"accuracy": 0.5}, model="x|y")]):
        rows = [text for text in table.markdown().splitlines() if text.startswith("|")]
        counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert counts == {len(table.columns) + 3}
        assert len(rows) == len(table.lines) + 2 + bool(table.ranked)


def test_latex_is_balanced_escaped_and_rectangular() -> None:
    for table in tables.result_tables([*mixed(), record("50%_a&b#$", "classify", {"accuracy": 0.5}, model="m_1")]):
        text = table.latex()
        assert text.isascii()
        plain = re.sub(r"\\[\\{}&%$#_]", "", text)
        assert plain.count("{") == plain.count("}")
        assert plain.count("$") % 2 == 0
        assert "_" not in plain
        assert "#" not in plain
        assert plain.count("%") == 1  # the one that ends the line before the tabular
        begun, ended = (re.findall(rf"\\{word}{{([a-z*]+)}}", text) for word in ("begin", "end"))
        assert begun == ["table*", "tabular"] == ended[::-1]
        rows = [row for row in text.splitlines() if row.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table.columns) + 1}
        assert len(rows) == len(table.lines) + 1 + bool(table.ranked)
        (layout,) = re.findall(r"\\begin{tabular}{(\w+)}", text)
        assert len(layout) == len(table.columns) + 2


def test_csv_reads_back_as_the_numbers_that_went_in() -> None:
    first, *_, last = tables.result_tables(mixed())
    rows = list(csv.DictReader(io.StringIO(first.csv())))
    assert len(rows) == sum(
        e.ours is not None or e.printed is not None for x in first.lines for e in x.entries.values()
    )
    found = {(row["dataset"], row["column"]): row for row in rows}
    gru = found["ethanol", "gru"]
    assert float(gru["mean"]) == pytest.approx(30.0)
    assert float(gru["std"]) == pytest.approx(2.0)
    assert (gru["seeds"], gru["comparable"], gru["paper"], gru["gain"]) == ("3", "1", "", "")
    lformer = found["ethanol", "lformer"]
    assert (lformer["unit"], lformer["rank"], lformer["paper_mean"], lformer["gain"]) == ("0.01", "1.0", "45.3", "-0.3")
    partial = found["heartbeat", "lformer"]
    assert (partial["partial"], partial["comparable"]) == ("204 of 409 series, 100 % & more_", "0")
    assert (found["heartbeat", "gru"]["smoke"], found["eigenworms", "transformer"]["failed"]) == ("1", "OOM")
    assert found["eigenworms", "lformer"]["seeds"] == "0"
    assert {row["column"] for row in csv.DictReader(io.StringIO(last.csv()))} == set(paper.ABLATION.columns)
    copied, plain = ({row["column"]: (row["trivial"], row["kind"]) for row in csv.DictReader(io.StringIO(each.csv()))}
                     for each in tables.result_tables(mixed())[3:5])  # fmt: skip
    assert copied["last-value"] == ("1", "simple")
    assert (plain["lformer"], plain["lformer carried"]) == (("0", "paper"), ("0", "variant"))


def test_an_entry_without_ours_is_neither_ranked_nor_judged() -> None:
    entry = Entry(ours=None, printed=paper.LTS_C.figures[MEASURES["EC"]]["lru"], digits=1, sign=1)
    assert (entry.cost, entry.gain, entry.verdict) == (None, None, "")


def history(epochs: int, level: float, metric: str = "accuracy") -> dict[str, Any]:
    return {"history": [{"epoch": e, "loss": level / (e + 1), metric: level} for e in range(epochs)]}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """pyplot that does not close its figures before they were looked at."""
    plt = plots.require_matplotlib()
    close = plt.close
    monkeypatch.setattr(plt, "close", lambda figure: None)
    yield plt
    close("all")


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_dynamics_have_labelled_axes_every_run_and_the_mean_as_far_as_all_go(tmp_path: Path, kept: Any) -> None:
    path = tmp_path / "dynamics.png"
    plots.dynamics_figure(path, [history(5, 0.8), history(3, 0.6)], [history(2, 0.2)])
    assert is_png(path)
    loss, accuracy = kept.gcf().axes
    assert [loss.get_xlabel(), loss.get_ylabel()] == ["epoch", "training loss"]
    assert [accuracy.get_xlabel(), accuracy.get_ylabel()] == ["epoch", "validation accuracy"]
    assert [text.get_text() for text in loss.get_legend().get_texts()] == [
        "with normalisation",
        "without normalisation",
    ]
    drawn = [list(x.get_ydata()) for x in accuracy.lines]
    assert drawn == [[0.8] * 5, [0.6] * 3, pytest.approx([0.7] * 3), [0.2] * 2, [0.2] * 2]
    assert (loss.get_yscale(), accuracy.get_yscale()) == ("log", "linear")


def test_dynamics_of_runs_that_never_got_through_an_epoch(tmp_path: Path, kept: Any) -> None:
    plots.dynamics_figure(tmp_path / "a.png", [history(5, 0.8, "mse")], [{"history": []}, {}])
    loss, error = kept.gcf().axes
    assert loss.get_legend().get_texts()[1].get_text() == "without normalisation: no epoch finished"
    assert error.get_ylabel() == "validation MSE"
    with pytest.raises(ValueError, match="none of the records has a history"):
        plots.dynamics_figure(tmp_path / "b.png", [], [])


def test_pareto_names_every_point_and_draws_the_frontier(tmp_path: Path, kept: Any) -> None:
    points = {model: (1.5**k, (k * 7) % 10 + 50.0) for k, model in enumerate(paper.MODELS)}
    path = tmp_path / "pareto.png"
    plots.pareto_figure(path, points, title="motor-imagery")
    assert is_png(path)
    (axis,) = kept.gcf().axes
    assert [axis.get_xlabel(), axis.get_ylabel(), axis.get_title()] == [
        "throughput, series per second", "accuracy (%)", "motor-imagery",
    ]  # fmt: skip
    assert axis.get_xscale() == "log"
    assert sorted(text.get_text() for text in axis.texts) == sorted(paper.MODELS)
    (curve,) = axis.lines
    assert list(zip(*curve.get_data(), strict=True)) == [points[name] for name in plots.frontier(points)]


def test_names_of_equal_points_are_still_written(tmp_path: Path, kept: Any) -> None:
    plots.pareto_figure(tmp_path / "a.png", {f"model {k}": (10.0, 50.0) for k in range(12)})
    assert len(kept.gcf().axes[0].texts) == 12
    with pytest.raises(ValueError, match="no model has both"):
        plots.pareto_figure(tmp_path / "b.png", {})


def test_the_frontier_of_an_error_is_below() -> None:
    points = {"slow": (1.0, 0.1), "middle": (5.0, 0.3), "beaten": (4.0, 0.3), "fast": (9.0, 0.2)}
    assert plots.frontier(points, "min") == ["slow", "fast"]
    assert plots.frontier(points, "max") == ["middle", "fast"]
