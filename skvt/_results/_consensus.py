"""Matching of the topics of independent fits, and the mean of matched topics.

A topic is a distribution over V words.
"""

from numbers import Integral

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.utils import check_array, check_scalar

from skvt.readers.validation import split_pipeline

# Parameters of the passes after averaging: each pass visits all documents at T = 1, and there are
# no moves, which split, merge, add or remove topics.
_FINAL_PARAMETERS = {"learning_method": "batch", "temperature": None, "moves": (), "n_init": 1}


def consensus(fits, X, *, n_passes=1, sample_weight=None):
    """Average independent fits: match topics one to one, take means, and fit a few passes more.

    The fit with the highest bound is the reference. The topics of each other fit are matched with
    the topics of the reference, so that matched topics have as much probability mass in common as
    possible, see :func:`skvt.metrics.topic_stability`. Each topic of the reference is averaged with
    the topics that are matched with it. What is averaged are the rows of ``components_``, the
    pseudo-counts of words. Then ``n_passes`` passes over the documents at the temperature T = 1
    follow. In these passes, each topic keeps its index, except that ``MemoizedHDP`` sorts topics.
    ``MemoizedHDP`` also makes its ``n_polish`` sweeps of collapsed sampling after the passes.

    Parameters
    ----------
    fits : sequence of estimators
        Two or more fitted topic models of one class that takes ``components_init``, fitted to X
        with different ``random_state``. Numbers of topics may differ. The result has as many topics
        as the reference. If a fit has fewer topics, some topics of the reference are averaged
        without this fit.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Counts of the documents.
    n_passes : int, default=1
        Number of passes over X after averaging. More passes raise the bound. However, averaging
        makes held-out words more probable, and this gain is lost in further passes.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the documents in the passes after averaging, as in ``fit``.

    Returns
    -------
    estimator
        A new estimator with the parameters of the reference, except ``n_components``,
        ``components_init`` and these parameters: ``learning_method="batch"``, ``temperature=None``,
        ``moves=()``, ``n_init=1`` and ``max_iter=n_passes``. ``fits`` do not change.

    Raises
    ------
    ValueError
        If there are fewer than two fits, if they are of several classes or of a class that does not
        take ``components_init``, or if their vocabularies differ. Also if a topic has a negative
        entry or no positive entry, or if ``n_passes`` is less than 1.
    TypeError
        If ``n_passes`` is not an integer.

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
            f"fits must be a list of at least two fits of the same class. Got {len(fits)} fits of "
            f"{' and '.join(classes) or 'no class'}."
        )
    if "components_init" not in getattr(fits[0], "get_params", dict)():
        raise ValueError(
            f"{classes[0]} has no parameter components_init, with which the consensus begins. "
            "Pass fits of TemperedLDA, StructuredLDA or MemoizedHDP."
        )
    topics = normalize_topics_of_fits(fits)
    # The index of the reference. A fit after ``partial_fit`` has no bound, and can be the reference
    # only if no fit has a bound.
    reference = int(np.argmax([fit.elbo_ if hasattr(fit, "elbo_") else -np.inf for fit in fits]))
    sum_of_partners = np.zeros_like(topics[reference])
    n_partners = np.zeros((len(topics[reference]), 1))
    # The reference takes part, too: its topics are matched with themselves.
    for fit, fit_topics in zip(fits, topics, strict=True):
        _, matched_topics, partners = match_topics(topics[reference], fit_topics)
        sum_of_partners[matched_topics] += fit.components_[partners]
        n_partners[matched_topics] += 1.0
    means = sum_of_partners / n_partners
    consensus_fit = clone(fits[reference])
    consensus_fit.set_params(
        n_components=len(means), components_init=means, max_iter=n_passes, **_FINAL_PARAMETERS
    )
    return consensus_fit.fit(X, sample_weight=sample_weight)


def match_topics(A, B):
    """Match topics one to one so that the sum of their overlaps is largest.

    Topics are the rows of A (K, V) and B (L, V), which sum to 1. The overlap of two topics p and q
    is the probability mass ``sum_v min(p_v, q_v)`` that they have in common, between 0 and 1.

    Return three arrays with an entry for each of the min(K, L) pairs: the overlap, the index of the
    topic in A, in ascending order, and the index of the topic in B.
    """
    overlaps = np.clip(1.0 - 0.5 * cdist(A, B, "cityblock"), 0.0, 1.0)
    rows, columns = linear_sum_assignment(overlaps, maximize=True)
    return overlaps[rows, columns], rows, columns


def require_different(fits, name):
    """Raise ValueError if the list ``fits``, which is the parameter ``name``, repeats a fit.

    A second copy would count as an independent fit, and make intervals too small.
    """
    if len(set(map(_identify_fit, fits))) < len(fits):
        raise ValueError(
            f"{name} has the same fit twice, or two fits with the same random_state, which says "
            "nothing about other optima. Pass independent fits with different random_state."
        )


def _identify_fit(fit):
    """Return what two fits have in common only if they are equal: the seed and the bound."""
    _, model = split_pipeline(fit)
    seed = getattr(model, "random_state", None)
    has_both = isinstance(seed, Integral) and hasattr(model, "elbo_")
    return (seed, model.elbo_) if has_both else id(model)


def normalize_topics_of_fits(fits):
    """Return the topics of each fit as a list of arrays (K, V) with rows that sum to 1.

    Raise ValueError if the fits differ in the size of the vocabulary, or in ``words_`` where these
    are known.
    """
    topics = [_get_topics_of_fit(fit, fit_index) for fit_index, fit in enumerate(fits)]
    sizes = sorted({array.shape[1] for array in topics})
    if len(sizes) > 1:
        raise ValueError(
            f"The fits have vocabularies of {', '.join(map(str, sizes))} words, but topics "
            "can be compared over the same vocabulary only. Fit all of them to the same columns."
        )
    # The words by fit; (V,) each, None if the words are not known.
    words_of_fits = [getattr(split_pipeline(fit)[1], "words_", None) for fit in fits]
    known = [(i, words) for i, words in enumerate(words_of_fits) if words is not None]
    for i, words in known[1:]:
        first, expected = known[0]
        if (unequal := np.flatnonzero(words != expected)).size:
            column = unequal[0]
            raise ValueError(
                "The fits have different words, or the same words in different orders: column "
                f"{column} is {expected[column]!r} in fits[{first}], but {words[column]!r} in "
                f"fits[{i}]. Fit all of them to the same columns, or correct set_words."
            )
    return topics


def _get_topics_of_fit(fit, fit_index):
    """Return the topics of a fit as rows that sum to 1, (K, V).

    In place of a fit, an array of topics is also legal. Raise ValueError for negative entries and
    rows of zeros. ``fit_index`` is the index of the fit, for the error.
    """
    _, model = split_pipeline(fit)
    name = f"fits[{fit_index}]"
    # ``model`` may also be an array of topics, which has no method ``fit``.
    weights = model.components_ if hasattr(model, "fit") else model
    weights = check_array(weights, dtype=np.float64, input_name=name)
    totals = weights.sum(axis=1, keepdims=True)
    if weights.min() < 0.0 or not totals.min() > 0.0:
        raise ValueError(
            "Topics must have entries of 0 or more and a positive sum. The smallest entry of "
            f"{name} is {weights.min():g}, and the smallest sum of a topic is {totals.min():g}."
        )
    return weights / totals
