"""Panel: ragged, irregular, partly observed series, read from a table, a list or an array and padded into batches."""

from lformer.arrays import Array
from lformer.panel.core import OnDuplicate, Panel
from lformer.panel.dropping import drop_observations, what_is_left, without_rows
from lformer.panel.joining import join
from lformer.panel.missing import MissingValues, check_missing_values
from lformer.panel.padding import padded_rows, runs, take_rows
from lformer.panel.sampling import is_large, sample, some_of

__all__ = [
    "Array", "MissingValues", "OnDuplicate", "Panel", "check_missing_values", "drop_observations", "is_large",
    "join", "padded_rows", "runs", "sample", "some_of", "take_rows", "what_is_left",
    "without_rows",
]  # fmt: skip
