"""The scikit-learn faces."""

from skvt.estimators._memoized_dpgmm import MemoizedDPGMM
from skvt.estimators._tempered_lda import TemperedLDA

__all__ = ["MemoizedDPGMM", "TemperedLDA"]
