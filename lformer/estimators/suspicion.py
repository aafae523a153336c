"""Warnings about suspicious data, from the doctor's quick check of the series in `fit`."""

from __future__ import annotations

import warnings

from lformer.doctor.quick import look_over
from lformer.panel import Panel


class SuspectDataWarning(UserWarning):
    """Something in the training series looks like a mistake; the message says what to do."""


def warn_of_suspects(panel: Panel) -> dict[str, list[float]]:
    """Warn about each finding; return by channel the numbers that seem to stand for missing values."""
    findings, marks = look_over(panel)
    for finding in findings:
        warnings.warn(
            f"{finding.title}: {finding.detail} {finding.advice}",
            SuspectDataWarning,
            stacklevel=5,  # the caller of `fit`
        )
    return {name: [mark.value for mark in found] for name, found in marks.items()}
