"""Data sets by name: `load(name)` returns the training, validation and test set, ready to train on."""

from typing import Any

from lformer.data import activity, bidmc, pendulum, physionet, spirals, uea, ushcn
from lformer.data.dataset import Card, Dataset
from lformer.data.files import DataError
from lformer.data.loading import CacheWarning, PartialDataWarning, load_dataset
from lformer.data.store import MissingDataError
from lformer.data.ward import Ward, toy_ward
from lformer.parts import PanelPart, Part, Splits

__all__ = [
    "DATASETS", "CacheWarning", "Card", "DataError", "Dataset", "MissingDataError", "PanelPart", "Part",
    "PartialDataWarning", "Splits", "Ward", "load", "named", "toy_ward",
]  # fmt: skip

DATASETS: dict[str, Dataset] = {
    "ethanol": uea.ETHANOL,
    "eigenworms": uea.EIGENWORMS,
    "heartbeat": uea.HEARTBEAT,
    "motor-imagery": uea.MOTOR_IMAGERY,
    "scp1": uea.SCP1,
    "scp2": uea.SCP2,
    "bidmc-hr": bidmc.HR,
    "bidmc-rr": bidmc.RR,
    "bidmc-spo2": bidmc.SPO2,
    "activity": activity.DATASET,
    "pendulum": pendulum.DATASET,
    "spiral-2": spirals.SPIRAL_2,
    "spiral-0.2": spirals.SPIRAL_02,
    "spiral-0.02": spirals.SPIRAL_002,
    "ushcn": ushcn.DATASET,
    "physionet": physionet.DATASET,
}


def named(name: str) -> Dataset:
    """Get a data set by name; an unknown name is an error that lists them all."""
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}; there are {', '.join(DATASETS)}.")
    return DATASETS[name]


def load(
    name: str,
    *,
    task: str | None = None,
    seed: int = 42,
    split: str | None = None,
    scaling: str | None = None,
    variant: str | None = None,
    cache: bool = True,
    **options: Any,
) -> Splits[Any]:
    """Load the training, validation and test set of a data set, prepared by a published protocol.

    Args:
        name: one of `DATASETS`.
        task: one of the data set's tasks. None is the first.
        seed: random seed of the split, if the publication draws a new one for every run, of hidden points, and of the
            order of training batches.
        split: "published", or another split of the data set, such as "subject".
        scaling: "published", "none", "standard" or "minmax"; the last two use statistics of the training set only.
        variant: a named set of options of the data set, such as "contiformer" for the spirals.
        cache: store the prepared data set on disk, and reuse it.
        options: further options of the data set.

    Returns:
        An object with `.train`, `.validation` and `.test`; `.partial` says what is missing from the files.

    Example:
        >>> splits = load("spiral-0.02", points=30)
        >>> len(splits.train), len(splits.validation), len(splits.test)
        (170, 30, 100)
    """
    return load_dataset(
        named(name), task=task, seed=seed, split=split, scaling=scaling, variant=variant, cache=cache, options=options
    )
