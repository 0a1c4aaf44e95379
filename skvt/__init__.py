"""Topic models, mixtures and factor models by variational inference, with scikit-learn's interface.

Which estimator should you use? It depends on what a row of your data is:

- counts of words, genes or items: `StructuredLDA` for the best topics, `TemperedLDA` for topics of
  a stream, `MemoizedHDP` if the number of topics is unknown
- numbers: `MemoizedDPGMM` for clusters and their number, `AnnealedFactorialMixture` for parts that
  add up, `CAVIGaussianMixture` to learn variational inference
- columns of any kind, some values missing: `MemoizedDPMixture`
- zeros and ones: `StructuredBernoulliMixture`
- counts or magnitudes that are sums of parts: `StructuredGaPNMF`

What can you do with a fit? All estimators have the methods of scikit-learn, such as ``fit``,
``predict`` or ``transform``, and ``score``. These functions take fitted estimators:

- `top_words`, `topic_table`, `topic_shares`: words of topics, and their shares in groups of texts
- `covariate_effects`: how topics or clusters change with covariates, such as age or party
- `outcome_by_cluster`, `unusual_rows`, `cluster_report`: means of an outcome in clusters, rows that
  fit worst, and a page about the clusters for colleagues
- `consensus`, `seeded_prior`: the mean of several fits of topics, and topics from given words
- `save`, `load`: files that later versions can read

Which modules are there? `skvt.plotting` has pictures, `skvt.metrics` scores, `skvt.datasets` data
for examples, `skvt.components` the likelihoods of columns, `skvt.temperature` temperatures, and
`skvt.callbacks` checkpoints. `skvt.contracts`, `skvt.fitting` and `skvt.io` are for authors of
models.

>>> import numpy as np
>>> from skvt import MemoizedDPGMM
>>> rng = np.random.default_rng(0)
>>> X = np.concatenate([rng.normal(mean, 1.0, size=(100, 2)) for mean in (-6.0, 0.0, 6.0)])
>>> MemoizedDPGMM(random_state=0).fit(X).n_components_
3

The user guide is at https://skvt.readthedocs.io.
"""

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
