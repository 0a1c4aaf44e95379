"""The scikit-learn faces."""

from skvt.estimators._memoized_dpgmm import MemoizedDPGMM
from skvt.estimators._structured_gap_nmf import StructuredGaPNMF
from skvt.estimators._structured_lda import StructuredLDA
from skvt.estimators._tempered_lda import TemperedLDA

__all__ = ["MemoizedDPGMM", "StructuredGaPNMF", "StructuredLDA", "TemperedLDA"]
