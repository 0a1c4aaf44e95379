"""Variational inference that does not get stuck, with scikit-learn's interface."""

from skvt.estimators import (
    AnnealedFactorialMixture,
    CAVIGaussianMixture,
    MemoizedDPGMM,
    MemoizedDPMixture,
    MemoizedHDP,
    StructuredBernoulliMixture,
    StructuredGaPNMF,
    StructuredLDA,
    TemperedLDA,
    consensus,
    seeded_prior,
    top_words,
)
from skvt.io import load, save

__version__ = "0.1.0.dev0"

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
    "__version__",
    "consensus",
    "load",
    "save",
    "seeded_prior",
    "top_words",
]
