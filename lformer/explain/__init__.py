"""Explain predictions: half-lives of the memory, contributions of observations, importance of channels and times."""

from lformer.explain.explanation import Explanation, explain
from lformer.explain.fading import half_life, plot_half_life
from lformer.explain.importance import channel_importance, time_importance

__all__ = ["Explanation", "channel_importance", "explain", "half_life", "plot_half_life", "time_importance"]
