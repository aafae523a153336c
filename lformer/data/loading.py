"""Load a data set: check the options against its card, prepare it or read it from the cache, and warn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from lformer.data import cache as prepared_cache
from lformer.data import store
from lformer.data.dataset import Card, Dataset, Request
from lformer.data.files import DataError
from lformer.parts import Prepared, Splits, splits_of


class PartialDataWarning(UserWarning):
    """Warning: the files on this machine contain only part of a data set."""


class CacheWarning(UserWarning):
    """Warning: a prepared set cannot be stored on disk."""


def load_dataset(
    dataset: Dataset,
    *,
    task: str | None,
    seed: int,
    split: str | None,
    scaling: str | None,
    variant: str | None,
    cache: bool,
    options: Mapping[str, Any],
) -> Splits[Any]:
    """See `lformer.data.load`."""
    card = dataset.card
    request = Request(
        task=_one_of(card, "task", task, card.tasks),
        seed=seed,
        split=_one_of(card, "split", split, card.splits),
        scaling=cast(Any, _one_of(card, "scaling", scaling, card.scalings)),
        options=_options(card, variant, options),
    )
    dataset.check(request)
    if dataset.draw is not None:
        drawn = cast(Splits[Any], dataset.draw(request))
        return replace(drawn, fingerprint=prepared_cache.fingerprint(dataset, request))
    files = store.raw_files(card, request.split)
    fingerprint = prepared_cache.fingerprint(dataset, request, files)
    path = prepared_cache.place(card.name, request.task, fingerprint)
    prepared, partial = _cached(dataset, request, files, path) if cache else _prepare(dataset, request, files)
    if partial:
        warnings.warn(
            f"{card.name} is partial: {partial}. Everything derived from it is marked as partial.",
            PartialDataWarning,
            stacklevel=3,
        )
    metrics = card.metrics_of(request.task, request.split)
    return splits_of(prepared, card.name, request.task, seed, partial, fingerprint, metrics=metrics)


def _cached(dataset: Dataset, request: Request, files: Sequence[Path], path: Path) -> tuple[Prepared, str]:
    """Read a set from the cache, or prepare and store it; a cache that cannot be written is not an error."""
    if (found := _found(path)) is not None:
        return found
    with ExitStack() as stack:
        try:
            stack.enter_context(store.locked(path.stem))
        except OSError as error:
            _warn(dataset, error)
            return _prepare(dataset, request, files)
        if (found := _found(path)) is not None:  # another process has made it in the meantime
            return found
        made = _prepare(dataset, request, files)
        try:
            prepared_cache.save(path, *made)
            return prepared_cache.load(path)
        except (OSError, DataError) as error:
            _warn(dataset, error)
            return made


def _warn(dataset: Dataset, error: Exception) -> None:
    warnings.warn(
        f"{dataset.card.name} is loaded, but cannot be kept in the cache, so the next load prepares it again: {error}. "
        f"Free some space, or set LFORMER_CACHE to another folder; cache=False avoids this warning.",
        CacheWarning,
        stacklevel=5,
    )


def _found(path: Path) -> tuple[Prepared, str] | None:
    """The prepared set in the cache; None if there is none, or if it is unusable."""
    try:
        return prepared_cache.load(path)
    except (OSError, DataError):
        return None


def _prepare(dataset: Dataset, request: Request, files: Sequence[Path]) -> tuple[Prepared, str]:
    assert dataset.prepare is not None
    if not files:
        return dataset.prepare({}, request), ""
    with store.open_raw(*files) as arrays:
        return dataset.prepare(arrays, request), dataset.missing(arrays)


def _one_of(card: Card, what: str, wanted: str | None, choices: tuple[str, ...]) -> str:
    if wanted is None:
        return choices[0]
    if wanted not in choices:
        raise ValueError(f"{what} of {card.name} must be one of {', '.join(choices)}; got {wanted!r}.")
    return wanted


def _options(card: Card, variant: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the card: defaults, then those of the variant, then those given; text must be a valid choice."""
    if variant is not None and variant not in card.variants:
        known = ", ".join(card.variants) or "none"
        raise ValueError(f"variant of {card.name} must be one of {known}; got {variant!r}.")
    chosen = {name: choices[0] for name, choices in card.options.items()}
    asked = {**(card.variants[variant] if variant is not None else {}), **given}
    for name, value in asked.items():
        if name not in chosen:
            raise TypeError(f"{card.name} has no option {name!r}; it has {', '.join(chosen) or 'none'}.")
        choices = card.options[name]
        if isinstance(choices[0], str) and value not in choices:
            raise ValueError(f"{name} of {card.name} must be one of {', '.join(choices)}; got {value!r}.")
    return chosen | asked
