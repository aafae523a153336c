"""Estimators that may start from one that was trained before, without targets, on more series."""

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
    """What estimators with targets have beyond `CalibratedEstimator`.

    Args:
        pretrained: a fitted `LFormerPretrainer`, or the folder of a saved one. Channels, unit of time, scales and the
            coding of covariates are then its own, and so are the weights that training starts from, but for the head.
            Both must have the same width, depth, heads, neighbours and streaming. A clone keeps it as it is; a saved
            model does without it, and comes back with None.
        others: see `CalibratedEstimator`.
    """

    pretrained: LFormerPretrainer | str | Path | None = None

    def __sklearn_clone__(self) -> Any:
        """A clone starts from the same fitted model: cloned along with it, that would have forgotten everything."""
        again = super().__sklearn_clone__()
        again.pretrained = self.pretrained
        return again

    def _pretrainer(self, panel: Panel) -> LFormerPretrainer | None:
        """The model to start from, if it knows the covariates of the series."""
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
        found.features_.static(panel)  # refuses series that lack some
        given = [] if panel.static is None else map(str, panel.static.columns)
        if new := [name for name in given if name not in found.features_.covariates.columns]:
            raise ValueError(
                f"the pretrained model does not know the static covariates {', '.join(new)}. Pre-train on series that "
                "have them, or leave them out here."
            )
        return found

    def _validated(self, train: Part, eval_set: Any, read: Callable[[Panel, Any, Any], Part]) -> Part:
        """Training series and, behind them, those of `eval_set` with the targets that `read` finds."""
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
