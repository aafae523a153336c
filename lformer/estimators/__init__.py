"""scikit-learn estimators for irregular time series."""

from lformer.estimators.artefact import load
from lformer.estimators.conformal import TooFewSeriesWarning
from lformer.estimators.forecast import ExtrapolationWarning, LFormerForecaster
from lformer.estimators.interpolate import LFormerInterpolator
from lformer.estimators.naive import LosesToNaiveWarning
from lformer.estimators.points import LFormerPointClassifier, LFormerPointRegressor
from lformer.estimators.pretraining import LFormerPretrainer, pretrain
from lformer.estimators.series import LFormerClassifier, LFormerRegressor
from lformer.estimators.summaries import Summaries
from lformer.estimators.suspicion import SuspectDataWarning

__all__ = [
    "ExtrapolationWarning",
    "LFormerClassifier",
    "LFormerForecaster",
    "LFormerInterpolator",
    "LFormerPointClassifier",
    "LFormerPointRegressor",
    "LFormerPretrainer",
    "LFormerRegressor",
    "LosesToNaiveWarning",
    "Summaries",
    "SuspectDataWarning",
    "TooFewSeriesWarning",
    "load",
    "pretrain",
]
