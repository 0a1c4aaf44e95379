"""The scikit-learn faces, and what further ones are built on."""

from skvt.estimators._annealed_factorial import AnnealedFactorialMixture
from skvt.estimators._base import VariationalEstimator
from skvt.estimators._cavi_mixture import CAVIGaussianMixture
from skvt.estimators._consensus import consensus, distributions, matched
from skvt.estimators._memoized_dpgmm import MemoizedDPGMM
from skvt.estimators._memoized_hdp import MemoizedHDP
from skvt.estimators._memoized_mixture import MemoizedDPMixture
from skvt.estimators._seeds import seeded_prior
from skvt.estimators._structured_bernoulli import StructuredBernoulliMixture
from skvt.estimators._structured_gap_nmf import StructuredGaPNMF
from skvt.estimators._structured_lda import StructuredLDA
from skvt.estimators._tempered_lda import TemperedLDA
from skvt.estimators.topic_tables import topic_shares, topic_table
from skvt.estimators.topic_words import top_words

__all__ = [
    "AnnealedFactorialMixture",
    "CAVIGaussianMixture",
    "MemoizedDPGMM",
    "MemoizedDPMixture",
    "MemoizedHDP",
    "StructuredBernoulliMixture",
    "StructuredGaPNMF",
    "StructuredLDA",
    "TemperedLDA",
    "VariationalEstimator",
    "consensus",
    "distributions",
    "matched",
    "seeded_prior",
    "top_words",
    "topic_shares",
    "topic_table",
]
