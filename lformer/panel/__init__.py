"""Panel: ragged, irregular, partly observed series, in from a table, a list or an array, and on into batches."""

from lformer.panel.core import Array, OnDuplicate, Panel, padded_rows, runs, take_rows

__all__ = ["Array", "OnDuplicate", "Panel", "padded_rows", "runs", "take_rows"]
