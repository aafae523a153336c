"""What a notebook shows of a fitted estimator in addition to scikit-learn's diagram: its inputs and its scores."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lformer.nn.ensemble import Ensemble

if TYPE_CHECKING:
    from lformer.estimators.base import LFormerEstimator

STYLE = "border-collapse:collapse;margin:0.6em 0;color:inherit;background:transparent"  # for light and dark pages
SHOWN = 8  # number of channels that are listed by name


def fitted_table(estimator: LFormerEstimator) -> str:
    """An HTML table of what `fit` found; empty before `fit`."""
    if not hasattr(estimator, "model_"):
        return ""
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left;padding:0.1em 1em 0.1em 0">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in found(estimator).items()
    )
    return f'<table style="{STYLE}">{cells}</table>'


def found(estimator: LFormerEstimator) -> dict[str, str]:
    """What `fit` found, as text."""
    features, model = estimator.features_, estimator.model_
    names = ", ".join(features.channels[:SHOWN])
    more = ", …" if len(features.channels) > SHOWN else ""
    weights = sum(weight.numel() for weight in model.parameters())
    kind = "dates or durations" if features.calendar else "numbers"
    rows = {
        "channels": f"{len(features.channels)}: {names}{more}",
        "times": f"{kind}{f' in {features.unit}' if features.unit else ''}",
    }
    if features.covariates.columns:
        rows["static covariates"] = ", ".join(features.covariates.columns)
    together = f", {len(model.members)} members" if isinstance(model, Ensemble) else ""
    rows["model"] = f"{weights:,} weights{together}"
    rows["training"] = f"{estimator.n_iter_} epoch{'' if estimator.n_iter_ == 1 else 's'}"
    if hasattr(estimator, "validation_score_"):  # a loaded model has no scores from training
        monitor = estimator.task_.monitor
        rows[f"validation {monitor}"] = f"{estimator.validation_score_:.4g}"
        verdict = "which is better" if estimator.loses_ else "which is worse"
        rows[f"{estimator.naive_}, same series"] = f"{estimator.naive_score_:.4g}, {verdict}"
    return rows
