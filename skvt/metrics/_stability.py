"""Stability of topics: how well the topics of independent fits agree."""

from itertools import combinations

import numpy as np

from skvt._results import match_topics, normalize_topics_of_fits, require_different
from skvt.readers.validation import check_choice


def topic_stability(fits, *, average="macro"):
    """Measure the agreement of the topics of independent fits, matched one to one.

    The agreement of two topics p and q is the probability mass ``sum_v min(p_v, q_v)`` that their
    distributions over words v have in common, which is 1 minus their total variation distance. The
    topics of two fits are matched so that the sum of agreements is largest. A topic's stability is
    its mean agreement with its partners in the other fits. If a fit with fewer topics has no
    partner for the topic, the agreement with this fit is 0.

    Parameters
    ----------
    fits : sequence of estimators or of array-like of shape (n_components, n_features)
        Two or more fits to the same vocabulary with different ``random_state``. A fit is a fitted
        topic model of any library with ``components_``, a pipeline that ends in one, or an array of
        non-negative weights of words in topics, whose rows are divided by their sums. Numbers of
        topics may differ.
    average : {"macro"} or None, default="macro"
        "macro" averages over the topics of each fit, and then over fits. None does not average.

    Returns
    -------
    float or list of ndarray of shape (n_components,)
        The stability, from 0 to 1; with ``average=None``, the stability of each topic of each fit.

    Raises
    ------
    ValueError
        If ``fits`` has fewer than two fits, if two fits are equal, as fits with the same
        ``random_state`` are, or if vocabularies differ.

    Notes
    -----
    The fewer topics the fits have, the more they agree by chance, and topics that agree may still
    be a blend of two true topics. Stability is therefore suited to compare fits with equal numbers
    of topics, and to find reproducible topics, but not to find the number of topics. A similar
    measure [1]_ compares the ranked top words of topics.

    References
    ----------
    .. [1] D. Greene, D. O'Callaghan and P. Cunningham (2014). How many topics? Stability analysis
       for topic models. ECML PKDD. https://doi.org/10.1007/978-3-662-44848-9_32

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.metrics import topic_stability
    >>> X = make_topic_corpus(300, n_components=3, n_features=50, random_state=0).X
    >>> fits = [TemperedLDA(3, max_iter=20, random_state=seed).fit(X) for seed in range(3)]
    >>> topic_stability(fits) > 0.8
    True
    """
    check_choice("average", average, ("macro", None))
    fits = [fits] if hasattr(fits, "fit") else list(fits)
    if len(fits) < 2:
        raise ValueError(f"fits must be a list of at least 2 fits. Got {len(fits)}.")
    require_different(fits, "fits")
    topics = normalize_topics_of_fits(fits)
    # For each fit, the sums (n_components,) of the agreements of topics with their partners.
    agreement_sums = [np.zeros(len(topics_of_fit)) for topics_of_fit in topics]
    for i, j in combinations(range(len(topics)), 2):
        agreements, topics_of_i, topics_of_j = match_topics(topics[i], topics[j])
        agreement_sums[i][topics_of_i] += agreements
        agreement_sums[j][topics_of_j] += agreements
    stability = [sums_of_fit / (len(topics) - 1) for sums_of_fit in agreement_sums]
    return stability if average is None else float(np.mean([values.mean() for values in stability]))
