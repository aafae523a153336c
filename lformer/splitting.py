"""How data sets are cut into training, validation and test part: pure functions of counts and seeds.

All draws use numpy's `RandomState`, whose stream is frozen for good, so a seed gives the same cut on every machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def cut(n: int, seed: int, shares: tuple[float, float] = (0.7, 0.85)) -> tuple[Array, Array, Array]:
    """A random permutation cut at `int(0.7 n)` and `int(0.85 n)`.

    Example:
        >>> [len(part) for part in cut(561, seed=42)]
        [392, 84, 85]
    """
    order = np.random.RandomState(seed).permutation(n)
    first, second = int(shares[0] * n), int(shares[1] * n)
    return order[:first], order[first:second], order[second:]


def hold_out(n: int, share: float, seed: int) -> tuple[Array, Array]:
    """The rest and a random share, rounded up, as scikit-learn's `train_test_split` draws them.

    Example:
        >>> rest, held = hold_out(6554, 0.2, seed=42)
        >>> len(rest), len(held)
        (5243, 1311)
    """
    order = np.random.RandomState(seed).permutation(n)
    held = math.ceil(share * n)
    return order[held:], order[:held]


def hold_out_twice(n: int, share: float, of_rest: float, seeds: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Training, validation and test: a share is held out for test, then a share of the rest for validation."""
    rest, test = hold_out(n, share, seeds[0])
    train, validation = hold_out(len(rest), of_rest, seeds[1])
    return rest[train], rest[validation], test


def by_group(groups: Array, seed: int, shares: tuple[float, float] = (0.7, 0.85)) -> tuple[Array, Array, Array]:
    """As `cut`, but of whole groups: no group has members in two parts.

    Example:
        >>> train, validation, test = by_group(np.array(["a", "a", "b", "c", "c", "d"]), seed=0)
        >>> np.sort(np.concatenate([train, validation, test])).tolist()
        [0, 1, 2, 3, 4, 5]
    """
    names, member = np.unique(groups, return_inverse=True)
    train, validation, test = (
        np.flatnonzero(np.isin(member, part)) for part in cut(len(names), seed, shares)
    )  # members stay in their order
    return train, validation, test


def hold_out_groups(groups: Array, share: float, seed: int, classes: Array | None = None) -> tuple[Array, Array]:
    """The rest and a random share of the members, about, in whole groups; members stay in their order.

    Groups are taken in random order until there are enough. One is passed over that would leave the rest less than
    half of all members, or none of one of the classes.

    Args:
        groups: (n,) the group of each member.
        share: of the members.
        seed: of the draw.
        classes: (n,) of each member, if each must be in the rest.

    Example:
        >>> rest, held = hold_out_groups(np.array([1, 1, 2, 2, 3, 3, 4, 4]), 0.2, seed=0)
        >>> held.tolist()
        [4, 5]
    """
    n, held = len(groups), np.zeros(len(groups), bool)
    names, member = np.unique(groups, return_inverse=True)
    kind = np.zeros(n, np.int64) if classes is None else np.unique(classes, return_inverse=True)[1]
    every = np.bincount(kind) > 0
    for group in np.random.RandomState(seed).permutation(len(names)):
        if held.sum() >= share * n:
            break
        more = held | (member == group)
        if 2 * more.sum() <= n and np.array_equal(np.bincount(kind[~more], minlength=len(every)) > 0, every):
            held = more
    if not held.any():
        raise ValueError(
            f"{n} series of {len(names)} groups cannot be divided by group: of the series, at least half must remain"
            + ("." if classes is None else ", of every class some.")
        )
    return np.flatnonzero(~held), np.flatnonzero(held)


def stratified_folds(labels: Array, count: int, seed: int) -> Array:
    """The fold of each member, every class spread evenly, as scikit-learn's `StratifiedKFold` draws them.

    Args:
        labels: (n,) class of each member.
        count: how many folds.
        seed: of the draw.

    Returns:
        (n,) numbers from 0 to `count - 1`.

    Example:
        >>> folds = stratified_folds(np.array([0, 1, 0, 0, 1, 0]), 2, seed=1)
        >>> np.bincount(folds).tolist(), np.bincount(folds[[1, 4]]).tolist()
        ([3, 3], [1, 1])
    """
    rng = np.random.RandomState(seed)
    classes, first = np.unique(labels, return_index=True)
    classes = classes[np.argsort(first)]  # by first appearance
    sizes = [int((labels == name).sum()) for name in classes]
    dealt = np.arange(len(labels)) % count  # to all members in order of class
    starts = np.cumsum([0, *sizes])
    folds = np.empty(len(labels), np.int64)
    for k, name in enumerate(classes):
        hand = np.sort(dealt[starts[k] : starts[k + 1]])
        rng.shuffle(hand)
        folds[labels == name] = hand
    return folds


def hold_out_stratified(labels: Array, share: float, seed: int) -> tuple[Array, Array]:
    """The rest and a random share of every class, rounded up, but never all of it; members stay in their order.

    Where no class has a member to spare, both are everybody.

    Example:
        >>> rest, held = hold_out_stratified(np.array([0, 1] * 20), 0.15, seed=0)
        >>> len(rest), len(held), int((held % 2).sum())
        (34, 6, 3)
    """
    rng = np.random.RandomState(seed)
    held = np.zeros(len(labels), bool)
    for name in np.unique(labels):
        members = np.flatnonzero(labels == name)
        held[rng.permutation(members)[: min(math.ceil(share * len(members)), len(members) - 1)]] = True
    if not held.any():
        return np.arange(len(labels)), np.arange(len(labels))
    return np.flatnonzero(~held), np.flatnonzero(held)
