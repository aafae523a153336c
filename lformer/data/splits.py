"""What a data set is to the trainer: three parts that hand out batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lformer.batch import IrregularBatch


class Part(Protocol):
    """Series of one part of a data set."""

    def __len__(self) -> int:
        """Number of series."""
        ...

    def batches(self, size: int) -> Iterator[IrregularBatch]:
        """Every series once, in order; the same on every call."""
        ...

    def training_steps(self, size: int) -> int:
        """How many batches `training_batches` gives."""
        ...

    def training_batches(self, size: int, epoch: int) -> Iterator[IrregularBatch]:
        """One epoch of training, as a function of the data set's seed and the epoch alone."""
        ...


P = TypeVar("P", bound=Part, covariant=True)


@dataclass(frozen=True)
class Splits(Generic[P]):
    """Training, validation and test part of a named data set."""

    name: str
    train: P
    validation: P
    test: P
