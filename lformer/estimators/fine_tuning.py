"""Estimators that can start from a pre-trained model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from lformer.estimators.calibrating import CalibratedEstimator
from lformer.estimators.eval_set import Part, joined_parts, named, pair
from lformer.estimators.pretraining import LFormerPretrainer
from lformer.panel import Panel


@dataclass(kw_only=True, eq=False, repr=False)
class FineTunedEstimator(CalibratedEstimator):
    """Base class of the estimators with targets; adds pre-training to `CalibratedEstimator`.

    Args:
        pretrained: a fitted `LFormerPretrainer`, or the folder of a saved one. Its channels, unit of time, scales and
            encoding of covariates are then used, and training starts from its weights, except for the head. Both
            estimators must have the same width, depth, heads, neighbours and streaming. Cloning keeps the fitted
            pretrainer; a saved model does not include it, and has None after loading.
        others: see `CalibratedEstimator`.
    """

    pretrained: LFormerPretrainer | str | Path | None = None

    def __sklearn_clone__(self) -> Any:
        """A clone keeps the same fitted pretrainer: if that were cloned too, it would no longer be fitted."""
        again = super().__sklearn_clone__()
        again.pretrained = self.pretrained
        return again

    def _pretrainer(self, panel: Panel) -> LFormerPretrainer | None:
        """The pre-trained model to start from, if it knows the covariates of the series."""
        if self.pretrained is None:
            return None
        found: Any = self.pretrained
        if isinstance(found, str | Path):
            from lformer.estimators import artefact

            found = artefact.load(Path(found).expanduser())
        if not isinstance(found, LFormerPretrainer):
            raise ValueError(
                f"pretrained must be a fitted LFormerPretrainer or the folder of a saved one; got {_kind(found)}."
            )
        check_is_fitted(found, "model_")
        found.features_.static(panel)  # raises if series lack some of its covariates
        given = [] if panel.static is None else map(str, panel.static.columns)
        if new := [name for name in given if name not in found.features_.covariates.columns]:
            raise ValueError(
                f"the pretrained model does not know the static covariates {', '.join(new)}. Pre-train on series that "
                "have them, or leave them out here."
            )
        return found

    def _validated(self, train: Part, eval_set: Any, read: Callable[[Panel, Any, Any], Part]) -> Part:
        """Training series followed by those of `eval_set`, whose targets `read` extracts."""
        self._held = 0
        if eval_set is None:
            return train
        with named():
            X, y = pair(eval_set)
            panel, targets = read(self._series(X), X, y)
            if not len(panel):
                raise ValueError("none of its series has a target.")
            self._held = len(panel)
            return joined_parts(train, (panel, targets))


def _kind(found: Any) -> str:
    return found.__name__ if isinstance(found, type) else f"a {type(found).__name__}"
