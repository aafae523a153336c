"""report: what a fitted model is worth and why, as one page of HTML."""

from lformer.report.write import report

__all__ = ["report"]
