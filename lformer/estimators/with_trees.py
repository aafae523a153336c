"""Estimators whose predictions may be mixed with those of gradient-boosted trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from lformer.estimators.devices import choose
from lformer.estimators.fine_tuning import FineTunedEstimator
from lformer.estimators.meanwhile import Later
from lformer.estimators.members import Member
from lformer.estimators.tree_fitting import TreeFitter
from lformer.nn import LFormerConfig
from lformer.tasks import Task
from lformer.train import rounding


@dataclass(kw_only=True, eq=False, repr=False)
class TreesEstimator(FineTunedEstimator):
    """Base class of the estimators with trees; a subclass says what the trees need.

    Args:
        trees: whether predictions are averaged with those of gradient-boosted trees. The weight of the trees
            (`model_.trees.weight`, from 0 to 1) is the one that is best on the validation series, see
            `lformer.nn.trees`. "auto" turns this on if the trees have features and there are enough validation series
            to choose the weight, but not with `streaming`, where trees would slow down every row, nor with
            `class_weight`.
        others: see `FineTunedEstimator`.
    """

    trees: bool | Literal["auto"] = "auto"
    _to_mix: ClassVar[int] = 30  # validation series that suffice to choose the weight of the trees
    _trees_need: ClassVar[str]

    def _with_trees(self, config: LFormerConfig) -> bool:
        """Whether trees are possible; raises an error if they are not, but were asked for."""
        if self.trees is True and not config.can_have_trees:
            raise ValueError(
                f"trees=True needs {self._trees_need} and uncertainty=None: trees predict a single number."
            )
        return config.can_have_trees and self.trees is not False

    def _trees_by_default(self, member: Member) -> bool:
        enough = len(member.splits.validation) >= self._to_mix
        return enough and not self.streaming and getattr(self, "class_weight", None) is None

    def _beside(self, member: Member, task: Task, later: Later) -> Callable[[float], float]:
        if not self._with_trees(member.model.config) or (self.trees == "auto" and not self._trees_by_default(member)):
            return super()._beside(member, task, later)
        device = choose(self.device)
        trees = TreeFitter(member.model, task, member.splits, member.seed, self.batch_size, device)
        if device.type != "cpu":
            _ = trees.tables  # computed now, while the GPU is idle
        fitted = later(lambda: trees.fitted)

        def finished(score: float) -> float:
            fitted()
            with rounding(member.training):
                return trees.mix()[task.monitor]

        return finished

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.trees is not True and self.trees is not False and self.trees != "auto":
            raise ValueError(f'trees must be True, False or "auto"; got {self.trees!r}.')
