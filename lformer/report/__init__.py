"""Reports on fitted estimators, each as a single HTML page."""

from lformer.report.write import report

__all__ = ["report"]
