"""What the doctor finds at a quick look over the series of a `fit`, as warnings."""

from __future__ import annotations

import warnings

from lformer.doctor.quick import look_over
from lformer.panel import Panel


class SuspectDataWarning(UserWarning):
    """Something in the training series seems not to be meant as it stands; the message says what to do."""


def warn_of_suspects(panel: Panel) -> dict[str, list[float]]:
    """One warning for each finding; by channel, the numbers that seem to stand for missing values."""
    findings, marks = look_over(panel)
    for finding in findings:
        warnings.warn(
            f"{finding.title}: {finding.detail} {finding.advice}",
            SuspectDataWarning,
            stacklevel=5,  # whoever called `fit`
        )
    return {name: [mark.value for mark in found] for name, found in marks.items()}
