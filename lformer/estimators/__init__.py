"""scikit-learn estimators over irregular series: a Panel in, a trained model out."""

from lformer.estimators.series import LFormerClassifier, LFormerRegressor

__all__ = ["LFormerClassifier", "LFormerRegressor"]
