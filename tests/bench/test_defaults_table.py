"""Tables of the bench of defaults: means, standard errors, ranks and verdicts, from records alone."""

from pathlib import Path
from typing import Any

import pytest

from lformer.bench.defaults import methods, options, records, table
from lformer.bench.defaults.ours import ESTIMATORS

ROOT = Path(__file__).parents[2]


def record(name: str, method: str, score: float, error: float = 0.01, **more: Any) -> records.Record:
    """A record as the bench writes it, as far as tables read it."""
    values = name in ("stores", "sines")
    measure = "relative_mae" if values else "accuracy"
    return {
        "cell": {"set": name, "method": method, "part": more.get("part", "test"), "seed": more.get("seed", 0)},
        "kind": "forecast" if values else "series",
        "measure": measure,
        "scores": {measure: score},
        "errors": {measure: error},
        "fit_seconds": more.get("seconds", 1.0),
        "predict_seconds": 0.5,
        "data": more.get("data", "d" * 16),
        "versions": {"machine": "a slide rule"},
    }


def test_ranks_are_those_of_the_printed_means_and_the_sign_of_the_measure_counts() -> None:
    (row,) = table.rows(
        [record("pace", "lformer", 0.9001), record("pace", "dtw", 0.9004), record("pace", "boosting", 0.95)]
    )
    assert row.ranks == {"lformer": 2.5, "dtw": 2.5, "boosting": 1.0}
    (row,) = table.rows([record("stores", "lformer", 0.1), record("stores", "seasonal", 0.2)])
    assert row.ranks == {"lformer": 1.0, "seasonal": 2.0}


def test_the_error_has_the_test_series_and_the_seeds() -> None:
    seeds = [record("pace", "lformer", score, 0.03, seed=n) for n, score in enumerate((0.80, 0.84))]
    (row,) = table.rows(seeds)
    assert row.entries["lformer"].mean == pytest.approx(82)
    assert row.entries["lformer"].error == pytest.approx((3.0**2 + (8.0 / 2)) ** 0.5)  # 2.83² / 2 = 4
    assert row.entries["lformer"].seconds == 1.5


def test_seeds_with_test_series_of_their_own_share_the_error() -> None:
    seeds = [record("mortality", "boosting", 0.8, 0.03, seed=n, data=str(n)) for n in range(4)]
    (row,) = table.rows(seeds)
    assert row.entries["boosting"].error == pytest.approx(3.0 / 2)


@pytest.mark.parametrize(
    ("ours", "verdict"), [(0.95, "✓ +5.0"), (0.85, "✗ −5.0"), (0.91, "≈ +1.0"), (0.892, "≈ −0.8"), (None, "–")]
)
def test_the_verdict_is_about_the_best_of_the_others(ours: float | None, verdict: str) -> None:
    made = [record("pace", "dtw", 0.9), record("pace", "boosting", 0.6)]
    made += [] if ours is None else [record("pace", "lformer", ours)]
    assert table.rows(made)[0].verdict == verdict


def test_a_small_error_is_good_where_errors_are_measured() -> None:
    made = [record("stores", "seasonal", 0.2), record("stores", "last-value", 0.4), record("stores", "lformer", 0.1)]
    assert table.rows(made)[0].verdict == "✓ +10.0"


def test_records_of_other_data_are_not_compared() -> None:
    made = [record("pace", "dtw", 0.9), record("pace", "boosting", 0.6, data="other")]
    with pytest.raises(ValueError, match=r"records of pace are of different data: .*dtw.*boosting"):
        table.tables(made)


def test_tables_have_every_set_and_method_in_order_and_dashes() -> None:
    made = [
        record("order", "logistic", 0.5), record("gunpoint", "logistic", 0.7), record("gunpoint", "minirocket", 0.981),
        record("gunpoint", "lformer", 0.9), record("stores", "seasonal", 0.2, seconds=100),
        record("order", "logistic", 0.4, part="folds"),
    ]  # fmt: skip
    text = table.tables(made)
    lines = text.splitlines()
    assert "| set | measure | lformer | minirocket | logistic | lformer − best |" in lines
    assert (
        "| gunpoint | accuracy, % ↑ | 90.0 ±1.0 (2) | **98.1** ±1.0 (1) | 70.0 ±1.0 (3) | ✗ −8.1 |" in lines
    )  # the best in bold
    assert "| order | accuracy, % ↑ | – | – | **50.0** ±1.0 (1) | – |" in lines
    assert "| mean rank (rows) |  | 2.00 (1) | 1.00 (1) | 2.00 (2) |  |" in lines
    assert "| stores | 100 |" in lines
    assert text.index("gunpoint") < text.index("order") < text.index("stores") < text.index("folds of the")
    assert lines[-1] == "Machines: a slide rule."


def test_the_page_of_defaults_is_what_the_committed_records_give() -> None:
    text = (ROOT / "docs" / "defaults.md").read_text()
    defaults, changed = (records.read_all(ROOT / "results" / name) for name in ("defaults", "options"))
    assert changed
    assert table.filled(text, defaults, changed) == text


def test_options_are_compared_with_the_defaults_seed_by_seed() -> None:
    defaults = [record("pace", "lformer", score, seed=seed) for seed, score in enumerate((0.90, 0.95, 0.70))]
    changed = [record("pace", "lformer-neighbours-0", score, seed=seed) for seed, score in enumerate((0.88, 0.94))]
    defaults += [record("stores", "lformer", 0.2, seed=seed) for seed in (0, 1)]
    changed += [record("stores", "lformer-calendar-False", 0.3 + 0.02 * seed, seed=seed) for seed in (0, 1)]
    lines = options.table(defaults, changed).splitlines()
    assert "| changed | pace | stores |" in lines
    assert "| nothing | 85.0 | 20.0 |" in lines
    assert "| `neighbours=0` | **−1.5** ±0.5 | – |" in lines  # a seed that only one of the two has does not count
    assert "| `calendar=False` | – | **−11.0** ±1.0 |" in lines  # a larger error is worse
    assert not any("clock" in line for line in lines)


def test_every_option_is_a_method_of_its_estimators() -> None:
    for name, option in options.OPTIONS.items():
        assert methods.named(options.method_name(name)).kinds == option.kinds
        for kind in option.kinds:
            ESTIMATORS[kind](**option.given)
