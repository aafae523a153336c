"""A grid of cells: made from names, run through an engine, finished ones left alone."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import product
from typing import Any, cast

from lformer.bench import records
from lformer.bench.engine import ENGINES, Outcome, Settings
from lformer.bench.recipes import recipe
from lformer.bench.records import Cell
from lformer.bench.run import clear
from lformer.data import named
from lformer.data.dataset import Request


def seeds(text: str) -> list[int]:
    """Numbers and ranges, separated by commas.

    Example:
        >>> seeds("42-44,7")
        [42, 43, 44, 7]
    """
    found: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            found += range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise ValueError(f"seeds are numbers and ranges such as 42-46,50; got {text!r}.") from error
    if not found:
        raise ValueError(f"no seed in {text!r}.")
    return found


def cells(
    *,
    datasets: Sequence[str],
    models: Sequence[str],
    seeds: Sequence[int],
    tasks: Sequence[str] = (),
    ablations: Sequence[str] = (),
    variants: Sequence[str] = (),
    split: str = "published",
    scaling: str = "published",
    epochs: int | None = None,
) -> list[Cell]:
    """Every combination, checked before anything is loaded or run.

    A data set is run for each of the given tasks that it has; for its first if none are given.
    """
    made = []
    for dataset in datasets:
        card = named(dataset).card
        wanted = [task for task in tasks if task in card.tasks] if tasks else list(card.tasks[:1])
        if not wanted:
            raise ValueError(f"{dataset} has none of the tasks {', '.join(tasks)}; it has {', '.join(card.tasks)}.")
        for what, choices, value in (("split", card.splits, split), ("scaling", card.scalings, scaling)):
            if value not in choices:
                raise ValueError(f"{what} of {dataset} must be one of {', '.join(choices)}; got {value!r}.")
        for task, seed in product(wanted, seeds):
            named(dataset).check(Request(task=cast(Any, task), seed=seed, split=split, scaling=cast(Any, scaling)))
        for task, model, ablation, variant in product(wanted, models, ablations or [""], variants or [""]):
            recipe(dataset, task, model=model, ablation=ablation, variant=variant)
            made += [
                Cell(
                    dataset=dataset, task=task, model=model, ablation=ablation, variant=variant, split=split,
                    scaling=scaling, seed=seed, epochs=epochs,
                )
                for seed in seeds
            ]  # fmt: skip
    return list(dict.fromkeys(made))  # a seed given twice is run once


def run(
    cells: Sequence[Cell], settings: Settings, engine: str = "local", workers: int | None = None
) -> Generator[Outcome, None, None]:
    """Run what has no record yet. Yields where each cell stands, the finished ones first."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; there are {', '.join(ENGINES)}.")
    left = []
    for cell in cells:
        found = records.finished(cell, settings.root)
        if found is None:
            left.append(cell)
        else:
            clear(cell, settings.root)
            yield Outcome(cell, "skipped", f"its record is there: {cell.path(settings.root)}")
    yield from ENGINES[engine](left, settings, workers)
