"""The forecasting protocol of t-PatchGNN on PhysioNet 2012: three sets, times as charted, its scaling and metrics."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real import raw as real_raw
from real import real
from stays import made

from lformer import tasks
from lformer.baselines import BASELINES
from lformer.data import MissingDataError, PartialDataWarning, load, store
from lformer.data.dataset import Array, Request
from lformer.data.physionet import DATASET, missing, prepare
from lformer.evaluate import evaluate
from lformer.parts import Prepared

AB, C = (f"physionet2012/physionet2012_{name}.npz" for name in ("ab", "c"))
needs_real = pytest.mark.skipif(not all(map(real, (AB, C))), reason="raw files not at hand: set LFORMER_DATA")


def two_files() -> dict[str, Array]:
    """Sets A and B of 40 stays, set C of 20."""
    c = made(20, seed=5)
    c["record_id"] = c["record_id"] + 500
    return {**made(40), **{f"physionet2012_c/{name}": array for name, array in c.items() if name != "set"}}


def ask(raw: Any, seed: int = 42, scaling: str = "published", split: str = "tpatchgnn", **options: Any) -> Prepared:
    choices = {name: given[0] for name, given in DATASET.card.options.items()} | options
    return prepare(raw, Request(task="extrapolate", seed=seed, split=split, scaling=scaling, options=choices))  # type: ignore[arg-type]


def test_all_stays_of_three_sets_are_split_by_the_seed() -> None:
    raw = two_files()
    found = ask(raw)
    assert found.panel.ids.tolist() == [*range(100, 140), *range(600, 620)]
    assert [len(part) for part in (found.train, found.validation, found.test)] == [36, 12, 12]
    everybody = np.concatenate([found.train, found.validation, found.test])
    assert np.sort(everybody).tolist() == list(range(60))
    assert ask(raw).test.tolist() == found.test.tolist()
    assert ask(raw, seed=43).test.tolist() != found.test.tolist()
    order = np.random.RandomState(42).permutation(60)  # as scikit-learn shuffles; the rest stays in that order
    assert everybody.tolist() == [*order[12:], *order[:12]]


def test_times_are_as_charted_and_only_later_rows_are_asked_for() -> None:
    raw = two_files()
    found = ask(raw, scaling="none")
    charted = np.unique(raw["time_min"][: raw["offset"][1]])
    assert found.panel[0][0].tolist() == (np.union1d(charted, [0]) / 60).tolist()
    late = found.panel.times >= 24
    assert found.targets.observed is not None
    assert found.targets.given is not None
    assert not found.panel.observed[late].any()  # type: ignore[index]
    assert found.targets.observed[late].any()
    assert not found.targets.observed[~late].any()
    assert found.targets.given[~late].any()
    asked = ask(raw, scaling="none", unobserved="query").targets
    assert asked.at == "queries"
    assert asked.observed is not None
    assert np.array_equal(asked.observed, found.targets.observed)


def test_values_are_scaled_by_observed_extremes_of_training_and_validation() -> None:
    raw = two_files()
    plain, scaled = ask(raw, scaling="none"), ask(raw)
    owner = np.repeat(np.arange(60), plain.panel.lengths)
    seen = np.isin(owner, np.concatenate([plain.train, plain.validation]))
    observed = plain.targets.observed | plain.targets.given  # type: ignore[operator]
    for c in range(37):
        values = plain.targets.values[seen & observed[:, c], c]
        low, high = values.min(), values.max()
        expected = (plain.targets.values[:, c] - low) / (high - low if high > low else 1)
        np.testing.assert_allclose(scaled.targets.values[observed[:, c], c], expected[observed[:, c]], atol=1e-6)
    minmax = ask(raw, scaling="minmax")  # by the training part alone
    assert not np.allclose(minmax.targets.values, scaled.targets.values)


def test_it_is_for_forecasts_alone() -> None:
    for task, says in (("classify", "'published' or split='folds' or split='p12'"), ("interpolate", "'published'")):
        request = Request(task=task, seed=0, split="tpatchgnn", scaling="published")
        with pytest.raises(ValueError, match=f"is for extrapolate only; {task} has split={says}"):
            DATASET.check(request)
    DATASET.check(Request(task="extrapolate", seed=0, split="tpatchgnn", scaling="published"))


def test_without_set_c_it_says_what_to_do_and_with_it_the_mean_over_channels_selects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path))
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    raw = two_files()
    store.write_raw(tmp_path / AB, {name: array for name, array in raw.items() if "/" not in name})
    with pytest.raises(MissingDataError, match="set C"):
        load("physionet", task="extrapolate", split="tpatchgnn")
    of_c = {name.split("/")[1]: array for name, array in raw.items() if "/" in name}
    store.write_raw(tmp_path / C, of_c)
    assert missing(raw) == "60 of 12,000 stays"
    with pytest.warns(PartialDataWarning, match="60 of 12,000"):
        splits = load("physionet", task="extrapolate", split="tpatchgnn")
    task = tasks.for_splits(splits)
    assert (task.monitor, list(task.printed)) == ("mse_channels", ["mse_channels", "mse_unseen"])
    with pytest.warns(PartialDataWarning):
        usual = load("physionet", task="extrapolate")
    assert tasks.for_splits(usual).monitor == "mse"


@needs_real
def test_simple_forecasts_on_the_real_stays() -> None:
    splits = load("physionet", task="extrapolate", split="tpatchgnn", cache=False)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [7200, 2400, 2400]
    task = tasks.for_splits(splits)
    found = {}
    for name in ("train-mean", "last-value", "linear"):
        model = BASELINES[name].model(BASELINES[name].config(inputs=37, outputs=37, answer="step"))
        model.fit(splits.train, task)  # type: ignore[operator]
        found[name] = 1e3 * evaluate(model, task, splits.test)["mse_channels"]
    assert found == pytest.approx({"train-mean": 10.706, "last-value": 6.379, "linear": 5.358}, abs=2e-3)


@needs_real
def test_no_stay_is_missing() -> None:
    raw = {**real_raw(AB), **{f"physionet2012_c/{name}": array for name, array in real_raw(C).items()}}
    assert missing(raw) == ""
