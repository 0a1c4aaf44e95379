"""The scikit-learn faces."""

from skvt.estimators._annealed_factorial import AnnealedFactorialMixture
from skvt.estimators._cavi_mixture import CAVIGaussianMixture
from skvt.estimators._memoized_dpgmm import MemoizedDPGMM
from skvt.estimators._structured_lda import StructuredLDA
from skvt.estimators._tempered_lda import TemperedLDA

__all__ = [
    "AnnealedFactorialMixture",
    "CAVIGaussianMixture",
    "MemoizedDPGMM",
    "StructuredLDA",
    "TemperedLDA",
]
