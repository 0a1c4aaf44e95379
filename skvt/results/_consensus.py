"""Topics on which independent fits agree."""

from numbers import Integral

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.utils import check_array, check_scalar

from skvt.readers.validation import preprocessing_and_model

# Parameters of the last passes of a consensus: all documents, T = 1, and no moves of topics.
_POLISH = {"learning_method": "batch", "temperature": None, "moves": (), "n_init": 1}


def consensus(fits, X, *, n_passes=1, sample_weight=None):
    """Average independent fits: match topics one to one, take means, and fit a few passes more.

    The fit with the highest bound is the reference. Topics of each other fit are matched with its
    topics by shared mass (:func:`skvt.metrics.topic_stability`). The variational parameters ``lam``
    of partners, which are pseudo-counts of words, are averaged. Then ``n_passes`` passes over the
    documents at T = 1 follow, in which each topic keeps its index.

    Parameters
    ----------
    fits : sequence of estimators
        Two or more fitted topic models of one class that takes ``components_init``, fitted to X
        with different ``random_state``. Numbers of topics may differ; the result has the topics of
        the reference, each averaged over the fits that have a partner for it.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Counts of the documents.
    n_passes : int, default=1
        Number of passes over X after averaging. More passes raise the bound, but lose the gain of
        averaging for held-out words.
    sample_weight : array-like of shape (n_samples,), optional
        As in ``fit``.

    Returns
    -------
    estimator
        A new fit with the parameters of the reference, except ``components_init`` and parameters of
        the last passes: ``learning_method="batch"``, ``temperature=None``, ``moves=()``,
        ``n_init=1``, ``max_iter=n_passes``. The fits do not change.

    See Also
    --------
    skvt.metrics.topic_stability : How far independent fits agree.

    Examples
    --------
    >>> from skvt import TemperedLDA, consensus
    >>> from skvt.datasets import make_topic_corpus
    >>> X = make_topic_corpus(300, n_components=3, n_features=50, random_state=0).X
    >>> fits = [TemperedLDA(3, random_state=seed).fit(X) for seed in range(4)]
    >>> consensus(fits, X).components_.shape
    (3, 50)
    """
    check_scalar(n_passes, "n_passes", Integral, min_val=1)
    fits = list(fits)
    classes = sorted({type(fit).__name__ for fit in fits})
    if len(fits) < 2 or len(classes) > 1:
        raise ValueError(
            f"fits must be two or more fits of one class. Got {len(fits)}, of "
            f"{' and '.join(classes) or 'no class'}."
        )
    if "components_init" not in getattr(fits[0], "get_params", dict)():
        raise ValueError(
            f"{classes[0]} does not take components_init, with which a consensus begins; pass fits "
            "of TemperedLDA, StructuredLDA or MemoizedHDP."
        )
    topics = distributions(fits)
    best = int(np.argmax([fit.elbo_ if hasattr(fit, "elbo_") else -np.inf for fit in fits]))
    total, n_partners = np.zeros_like(topics[best]), np.zeros((len(topics[best]), 1))
    for fit, of_fit in zip(fits, topics, strict=True):
        _, places, partners = matched(topics[best], of_fit)
        total[places] += fit.components_[partners]
        n_partners[places] += 1.0
    reference = clone(fits[best])
    mean = total / n_partners
    reference.set_params(n_components=len(mean), components_init=mean, max_iter=n_passes, **_POLISH)
    return reference.fit(X, sample_weight=sample_weight)


def matched(A, B):
    """Match topics so that the sum of shared mass, ``sum_v min(p_v, q_v)``, is largest.

    The rows of A (K, V) and B (L, V) sum to 1. Return the mass that partners share, 0 to 1, the
    topics of A, in order, and their partners in B, each (min(K, L),).
    """
    shared = np.clip(1.0 - 0.5 * cdist(A, B, "cityblock"), 0.0, 1.0)
    rows, columns = linear_sum_assignment(shared, maximize=True)
    return shared[rows, columns], rows, columns


def distributions(fits):
    """Return the topics of each fit, (K, V) with rows that sum to 1, over one vocabulary."""
    topics = [_distributions(fit, number) for number, fit in enumerate(fits)]
    sizes = sorted({each.shape[1] for each in topics})
    if len(sizes) > 1:
        raise ValueError(
            f"The fits have vocabularies of {', '.join(map(str, sizes))} words; topics can be "
            "compared over one vocabulary only."
        )
    return topics


def _distributions(fit, number):
    model, name = preprocessing_and_model(fit)[1], f"fits[{number}]"
    weights = model.components_ if hasattr(model, "fit") else model
    weights = check_array(weights, dtype=np.float64, input_name=name)
    totals = weights.sum(axis=1, keepdims=True)
    if weights.min() < 0.0 or not totals.min() > 0.0:
        raise ValueError(
            f"Topics must be non-negative and have mass; {name} has entries down to "
            f"{weights.min():g} and sums down to {totals.min():g}."
        )
    return weights / totals
