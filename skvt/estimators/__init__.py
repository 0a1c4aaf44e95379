"""The scikit-learn faces."""

from skvt.estimators._tempered_lda import TemperedLDA

__all__ = ["TemperedLDA"]
