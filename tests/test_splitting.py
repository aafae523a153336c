"""Cuts: nothing twice, nothing lost, no group in two parts, and the same for ever."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, train_test_split

from lformer.splitting import (
    Array,
    by_group,
    cut,
    hold_out,
    hold_out_groups,
    hold_out_stratified,
    hold_out_twice,
    stratified_folds,
)


def digest(*parts: Array) -> str:
    """Of the index arrays as little-endian int64, lengths included."""
    joined = b"".join(np.asarray([len(p), *p], "<i8").tobytes() for p in parts)
    return hashlib.sha256(joined).hexdigest()[:16]


def complete(parts: tuple[Array, ...], n: int) -> bool:
    """Every number from 0 to n - 1 exactly once."""
    return sorted(np.concatenate(parts).tolist()) == list(range(n))


@given(st.integers(0, 300), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_every_series_is_in_exactly_one_part(n: int, seed: int) -> None:
    parts = cut(n, seed)
    assert complete(parts, n)
    assert len(parts[0]) == int(0.7 * n)
    assert len(parts[0]) + len(parts[1]) == int(0.85 * n)
    assert complete(hold_out(n, 0.2, seed), n)
    assert complete(hold_out_twice(n, 0.2, 0.25, (seed, 1)), n)


@given(st.integers(2, 400), st.sampled_from([0.1, 0.15, 0.2, 0.25, 1 / 3, 0.5]), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_held_out_series_are_those_of_scikit_learn(n: int, share: float, seed: int) -> None:
    rest, held = hold_out(n, share, seed)
    theirs = train_test_split(np.arange(n), test_size=share, random_state=seed)
    assert rest.tolist() == theirs[0].tolist()
    assert held.tolist() == theirs[1].tolist()


def test_the_second_hold_out_is_of_the_rest() -> None:
    indices = np.arange(97)
    rest, test = train_test_split(indices, test_size=0.2, random_state=3)
    train, validation = train_test_split(rest, test_size=0.25, random_state=8)
    ours = hold_out_twice(97, 0.2, 0.25, (3, 8))
    assert [part.tolist() for part in ours] == [train.tolist(), validation.tolist(), test.tolist()]


@given(st.lists(st.integers(0, 3), max_size=200), st.permutations("dbca"), st.integers(2, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_stratified_folds_are_those_of_scikit_learn(kinds: list[int], names: list[str], count: int, seed: int) -> None:
    labels = np.array(names)[[*kinds, *[0, 1, 2, 3] * count]]  # enough of every class
    folds = stratified_folds(labels, count, seed)
    theirs = StratifiedKFold(count, shuffle=True, random_state=seed).split(np.zeros(len(labels)), labels)
    for fold, (_, test) in enumerate(theirs):
        assert np.flatnonzero(folds == fold).tolist() == test.tolist()


@given(st.lists(st.integers(0, 2), max_size=200), st.sampled_from([0.0, 0.15, 0.5]), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_a_stratified_hold_out_takes_its_share_of_every_class(kinds: list[int], share: float, seed: int) -> None:
    labels = np.array(kinds, int)
    rest, held = hold_out_stratified(labels, share, seed)
    sizes = [int((labels == kind).sum()) for kind in range(3)]
    expected = [min(math.ceil(share * n), n - 1) if n else 0 for n in sizes]  # one of each class stays
    if not any(expected):
        assert rest.tolist() == held.tolist() == list(range(len(labels)))
        return
    assert complete((rest, held), len(labels))
    assert [int((labels[held] == kind).sum()) for kind in range(3)] == expected


def test_stratified_cuts_stay_for_ever() -> None:
    labels = np.arange(90) % 7 // 5
    assert digest(stratified_folds(labels, 5, seed=1)) == "325cb5134d05d071"
    assert digest(*hold_out_stratified(labels, 0.15, seed=42)) == "f468a98570c5ab3f"
    assert digest(*hold_out_stratified(labels, 0.15, seed=43)) == "b9af8c845c274ec3"


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=60), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_no_group_is_in_two_parts(groups: list[str], seed: int) -> None:
    parts = by_group(np.array(groups), seed)
    assert complete(parts, len(groups))
    found = [{groups[i] for i in part} for part in parts]
    assert sum(len(f) for f in found) == len(set(groups))
    assert [len(f) for f in found] == [len(part) for part in cut(len(set(groups)), seed)]
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)


@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=60),
    st.sampled_from([0.05, 0.15, 0.5]),
    st.integers(0, 999),
)
@settings(max_examples=80, deadline=None)
def test_whole_groups_are_held_out(groups: list[str], share: float, seed: int) -> None:
    n, names = len(groups), np.array(groups)
    classes = np.arange(n) % 2
    if max(groups.count(name) for name in set(groups)) > n / 2 and len(set(groups)) == 1:
        with pytest.raises(ValueError, match="cannot be divided by group"):
            hold_out_groups(names, share, seed)
        return
    rest, held = hold_out_groups(names, share, seed)
    assert complete((rest, held), n)
    assert not set(names[rest]) & set(names[held])
    assert len(held) <= n / 2
    largest = max(groups.count(name) for name in set(groups))
    assert len(held) < share * n + largest
    can_go = [2 * (left := names != name).sum() >= n and set(classes[left]) == {0, 1} for name in set(groups)]
    if not any(can_go):
        with pytest.raises(ValueError, match="of every class some"):
            hold_out_groups(names, share, seed, classes)
        return
    rest, _ = hold_out_groups(names, share, seed, classes)
    assert set(classes[rest]) == {0, 1}


def test_held_out_groups_stay_for_ever() -> None:
    groups = np.arange(90) % 11
    assert digest(*hold_out_groups(groups, 0.15, seed=42)) == "656b55a18ad16bc8"
    assert (
        digest(*hold_out_groups(groups, 0.15, 11, classes=groups == 10)) == "3cccb977ffab8de7"
    )  # 10 would have been next


def test_other_shares() -> None:
    assert [len(part) for part in cut(10, 0, (0.5, 0.5))] == [5, 0, 5]
    assert [len(part) for part in by_group(np.arange(10), 0, (0.8, 0.9))] == [8, 1, 1]


@pytest.mark.parametrize(
    ("parts", "frozen"),
    [
        (cut(561, 42), "de40bcf5ee181691"),
        (cut(561, 43), "256d85fdee5b62c1"),
        (hold_out(6554, 0.2, 42), "3052f083a0c67aa6"),
        (hold_out_twice(8000, 0.2, 0.2, (42, 42)), "adbfff0b6ab0ea04"),
        (by_group(np.arange(300) % 37, 7), "16635458bfe8526d"),
    ],
)
def test_a_seed_gives_the_same_cut_for_ever(parts: tuple[Array, ...], frozen: str) -> None:
    assert digest(*parts) == frozen
