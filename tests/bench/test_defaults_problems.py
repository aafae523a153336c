"""Problems of the bench of defaults: the same for every method, honest about what is hidden, folds within training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench import problems

from lformer.bench.defaults import archive, generated
from lformer.bench.defaults.measures import MEASURES, Answers, measure
from lformer.bench.defaults.problem import Problem, fingerprint, last_times, validation_folds
from lformer.bench.defaults.sets import DEFAULTS_SETS

GENERATED = [
    generated.order, generated.pace, generated.coupling, generated.frequency, generated.decay, generated.leaky,
    generated.stores, generated.sines,
]  # fmt: skip


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """In place of aeon: ramps, of equal length or not; says what was read."""
    read: list[str] = []

    def made(name: str, split: str) -> archive.Part:
        read.append(f"{name} {split}")
        lengths = [20] * 6 if name == "even" else [9, 12, 20, 15, 11, 10]
        return archive.Part([np.arange(2.0 * n).reshape(n, 2) for n in lengths], np.array(["a", "b"] * 3))

    monkeypatch.setattr(archive, "_from_aeon", made)
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path))
    return read


@pytest.mark.parametrize("make", GENERATED)
def test_a_generated_set_is_the_same_at_every_call(make: Callable[[], Problem]) -> None:
    assert fingerprint(make()) == fingerprint(make())


def test_a_fingerprint_sees_a_changed_value_and_a_changed_answer() -> None:
    problem = problems.levels()
    values = problem.train.values.copy()
    values[3, 0] += 1e-3
    other = replace(problem, train=replace(problem.train, values=values))
    swapped = replace(problem, truth=np.asarray(problem.truth)[::-1])
    assert len({fingerprint(problem), fingerprint(other), fingerprint(swapped)}) == 3


def test_dropped_rows_are_drawn_once_and_the_others_keep_their_times(stub: list[str]) -> None:
    whole, some, again = (archive.problem("even", share) for share in (0.0, 0.3, 0.3))
    assert fingerprint(some) == fingerprint(again)
    assert whole.train.lengths.tolist() == [20] * 6
    assert some.train.lengths.tolist() == some.test.lengths.tolist() == [14] * 6
    for times, values in some.train:
        assert (values[:, 0] == 2 * times).all()  # a ramp is where it was
    assert len({tuple(times) for times, _ in some.train}) == 6  # other rows of each series
    assert not some.stretch
    assert some.steps == 20


def test_series_of_different_lengths_are_stretched(stub: list[str]) -> None:
    problem = archive.problem("ragged", 0.0)
    assert problem.stretch
    assert problem.steps == 20


def test_what_was_read_once_needs_no_aeon(stub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = archive.problem("ragged", 0.3)
    assert stub == ["ragged train", "ragged test"]
    monkeypatch.setattr(archive, "_from_aeon", lambda *about: pytest.fail("it was read again"))
    assert fingerprint(archive.problem("ragged", 0.3)) == fingerprint(first)


def test_without_aeon_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "aeon", None)
    with pytest.raises(ImportError, match=r"gunpoint comes with aeon.*lformer\[adapters\]"):
        archive.problem("gunpoint", 0.0)


def test_the_sets_of_aeon_are_the_archives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("aeon", reason="the four sets come with aeon")
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path))
    found = {name: DEFAULTS_SETS[name].make(0) for name in ("gunpoint", "japanese-vowels-60")}
    assert (len(found["gunpoint"].train), len(found["gunpoint"].test)) == (50, 150)
    assert found["gunpoint"].train.shape == (50, 150, 1)
    assert found["japanese-vowels-60"].stretch
    assert found["japanese-vowels-60"].train.shape[2] == 12


FOLDED = [problems.levels, problems.rows, problems.amounts, problems.row_amounts, problems.waves]


@pytest.mark.parametrize("make", FOLDED)
def test_folds_divide_the_training_series_and_show_nobody_his_answers(make: Callable[[], Problem]) -> None:
    problem = make()
    held = []
    for fold in validation_folds(problem):
        assert set(fold.train.ids) | set(fold.test.ids) == set(problem.train.ids)
        assert not set(fold.train.ids) & set(fold.test.ids)
        held += fold.test.ids.tolist()
        if problem.kind != "interpolate":
            of = dict(zip(problem.train.ids, problem.labels, strict=True))
            assert all(np.array_equal(of[i], y) for i, y in zip(fold.train.ids, fold.labels, strict=True))
            assert all(np.array_equal(of[i], y) for i, y in zip(fold.test.ids, fold.truth, strict=True))
    assert sorted(held) == sorted(problem.train.ids)


def test_classes_are_spread_evenly_over_the_folds() -> None:
    for fold in validation_folds(problems.levels()):
        assert np.unique(np.asarray(fold.truth), return_counts=True)[1].tolist() == [5, 5]


def test_the_series_of_a_group_are_in_one_fold() -> None:
    for fold in validation_folds(problems.amounts()):
        assert fold.groups is not None
        assert fold.test_groups is not None
        assert not set(fold.groups) & set(fold.test_groups)
        assert len(fold.groups) == len(fold.train)
        assert len(fold.test_groups) == len(fold.test)


def test_leaky_sums_are_those_of_the_rows_so_far() -> None:
    problem = generated.leaky()
    times, values = problem.train[:1][0]
    there = 0.0
    for gap, dose, told in zip(np.diff(times, prepend=times[0]), values[:, 0], problem.labels[0], strict=True):
        there = there * np.exp(-0.05 * gap) + dose
        assert told == pytest.approx(there, abs=1e-3)


def test_rows_that_are_asked_for_are_not_shown() -> None:
    whole = problems.waves()
    for problem in (whole, *validation_folds(whole)):
        for (times, _), asked, truth in zip(problem.test, problem.asked, problem.truth, strict=True):
            assert len(times) == len(asked) == len(truth) == 20
            assert not set(times) & set(asked)
    assert np.isnan(np.concatenate(list(whole.truth))).any()  # what was not observed does not count


def test_series_that_go_on_are_cut_back_by_one_more_horizon_in_each_fold() -> None:
    problem = problems.weekly()
    whole = last_times(problem.train.compact())
    assert (problem.asked[0] > whole[0]).all()
    for back, fold in enumerate(validation_folds(problem)):
        assert (last_times(fold.train.compact()) <= whole - 14 * (back + 1)).all()
        assert all((asked > last).all() for asked, last in zip(fold.asked, last_times(fold.test), strict=True))
        assert all((asked <= last - 14 * back).all() for asked, last in zip(fold.asked, whole, strict=True))
        assert [len(truth) for truth in fold.truth] == [len(asked) for asked in fold.asked]


def test_the_stores_are_asked_for_four_weeks_and_differ_in_size() -> None:
    problem = generated.stores()
    sizes = [values.mean() for _, values in problem.train]
    assert max(sizes) > 100 * min(sizes)
    assert problem.train.origin.dtype.kind == "M"
    days = np.concatenate(problem.asked)
    assert (days.min(), days.max()) == (730, 757)
    assert last_times(problem.test).tolist() == [729.0] * 60


# -- measures


def test_scores_are_what_their_names_say() -> None:
    problem = replace(problems.levels(), truth=np.array(["high", "low", "low", "low"]))
    shares = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])
    said = np.array(["high", "low", "high", "low"])
    found = measure(problem, Answers(said=said, probabilities=shares, ranking=shares[:, 1]))
    assert found["accuracy"][0] == 0.75
    assert found["log_loss"][0] == pytest.approx(-np.log([0.9, 0.8, 0.4, 0.5]).mean())
    assert found["auroc"][0] == 1.0
    assert measure(problem, Answers(said=said)).keys() == {"accuracy"}  # what was not said is not measured


def test_relative_errors_are_in_units_of_each_series() -> None:
    problem = replace(problems.weekly(), truth=[np.array([[1.0], [3.0]]), np.array([[100.0], [np.nan]])])
    found = measure(problem, Answers(said=[np.array([[2.0], [4.0]]), np.array([[150.0], [7.0]])]))
    assert found["relative_mae"][0] == pytest.approx((1 / 2 + 50 / 100) / 2)
    rmse = MEASURES["relative_rmse"].keep(
        replace(problem, truth=[np.array([[1.0], [3.0]])]), Answers(said=[np.array([[1.0], [5.0]])])
    )
    assert rmse is not None
    assert rmse[0, 0] == pytest.approx(np.sqrt(2) / 1)


def test_rmse_is_in_deviations_of_the_channels_in_training() -> None:
    problem = problems.waves()
    seen = np.asarray(problem.train.observed)
    spread = [problem.train.values[seen[:, c], c].std() for c in range(2)]
    answers = Answers(said=[truth + np.array(spread) * [1, -1] for truth in problem.truth])
    assert measure(problem, answers)["rmse"][0] == pytest.approx(1.0)


def test_errors_of_numbers_are_in_deviations_of_those_asked_for() -> None:
    problem = replace(problems.amounts(), truth=np.array([1.0, 3.0, 5.0, 7.0]), test_groups=None)
    found = measure(problem, Answers(said=np.array([2.0, 2.0, 6.0, 6.0])))
    assert found["deviations"][0] == pytest.approx(1 / np.sqrt(5))
    assert found["r2"][0] == pytest.approx(1 - 1 / 5)
    rows = replace(problem, truth=[np.array([1.0, 3.0]), np.array([5.0, 7.0])])
    assert measure(rows, Answers(said=[np.array([2.0, 2.0]), np.array([6.0, 6.0])])).keys() == found.keys()
    paired = MEASURES["deviations"].keep(
        replace(problem, test_groups=np.array([1, 0, 1, 0])), Answers(said=np.zeros(4))
    )
    assert paired is not None
    assert paired.tolist() == [[9 + 49, 2 * 5], [1 + 25, 2 * 5]]  # the deviation is that of all, whoever is drawn


def test_the_standard_error_is_that_of_drawing_other_series() -> None:
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(400) < 0.8, "high", "low")
    problem = replace(problems.levels(), truth=truth, measures=("accuracy",))
    score, error = measure(problem, Answers(said=np.full(400, "high")))["accuracy"]
    assert error == pytest.approx(np.sqrt(score * (1 - score) / 400), rel=0.15)


def test_answers_that_are_not_finite_are_an_error() -> None:
    problem = problems.waves()
    with pytest.raises(ArithmeticError, match="not finite for 8 series"):
        measure(problem, Answers(said=[np.full_like(truth, np.inf) for truth in problem.truth]))


def test_every_set_says_its_kind_before_it_is_loaded() -> None:
    for name in ("order", "pace", "coupling", "frequency", "decay", "leaky", "stores", "sines"):
        assert DEFAULTS_SETS[name].make(0).kind == DEFAULTS_SETS[name].kind
