"""Panel: ragged, irregular, partly observed series, in from a table, a list or an array, and on into batches."""

from lformer.panel.core import Array, OnDuplicate, Panel, padded_rows, runs, take_rows
from lformer.panel.dropping import drop_observations, without_rows

__all__ = ["Array", "OnDuplicate", "Panel", "drop_observations", "padded_rows", "runs", "take_rows", "without_rows"]
