"""Variational inference that does not get stuck, with scikit-learn's interface."""

from importlib import import_module

from skvt._estimators import (
    AnnealedFactorialMixture,
    CAVIGaussianMixture,
    MemoizedDPGMM,
    MemoizedDPMixture,
    MemoizedHDP,
    StructuredBernoulliMixture,
    StructuredGaPNMF,
    StructuredLDA,
    TemperedLDA,
    seeded_prior,
)
from skvt._results import (
    consensus,
    covariate_effects,
    outcome_by_cluster,
    top_words,
    topic_shares,
    topic_table,
    unusual_rows,
)
from skvt.readers import ColumnWarning

__version__ = "0.1.0"

__all__ = [
    "AnnealedFactorialMixture", "CAVIGaussianMixture", "ColumnWarning", "MemoizedDPGMM",
    "MemoizedDPMixture", "MemoizedHDP", "StructuredBernoulliMixture", "StructuredGaPNMF",
    "StructuredLDA", "TemperedLDA", "__version__", "cluster_report", "consensus",
    "covariate_effects", "load", "outcome_by_cluster", "save", "seeded_prior", "top_words",
    "topic_shares", "topic_table", "unusual_rows",
]  # fmt: skip


def __getattr__(name):
    # Modules that are not needed for a fit are imported when they are first used.
    if name in ("load", "save"):
        return getattr(import_module("skvt.io"), name)
    if name == "cluster_report":
        return import_module("skvt.plotting").cluster_report
    if name in ("callbacks", "datasets", "io", "metrics", "plotting"):
        return import_module(f"skvt.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    """Return the public names."""
    return sorted([*__all__, "callbacks", "components", "contracts", "datasets", "fitting", "io",
                   "metrics", "plotting", "temperature"])  # fmt: skip
