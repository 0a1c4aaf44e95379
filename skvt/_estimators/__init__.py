"""The estimators, with the methods and conventions of scikit-learn."""

from skvt._estimators._annealed_factorial import AnnealedFactorialMixture
from skvt._estimators._cavi_mixture import CAVIGaussianMixture
from skvt._estimators._memoized_dpgmm import MemoizedDPGMM
from skvt._estimators._memoized_hdp import MemoizedHDP
from skvt._estimators._memoized_mixture import MemoizedDPMixture
from skvt._estimators._seeds import seeded_prior
from skvt._estimators._structured_bernoulli import StructuredBernoulliMixture
from skvt._estimators._structured_gap_nmf import StructuredGaPNMF
from skvt._estimators._structured_lda import StructuredLDA
from skvt._estimators._tempered_lda import TemperedLDA

__all__ = [
    "AnnealedFactorialMixture", "CAVIGaussianMixture", "MemoizedDPGMM", "MemoizedDPMixture",
    "MemoizedHDP", "StructuredBernoulliMixture", "StructuredGaPNMF", "StructuredLDA", "TemperedLDA",
    "seeded_prior",
]  # fmt: skip
