"""Stability of topics: how well the topics of independent fits agree."""

from itertools import combinations

import numpy as np

from skvt._results import match_topics, topic_distributions
from skvt.readers.validation import check_choice


def topic_stability(fits, *, average="macro"):
    """Measure the agreement of the topics of independent fits, matched one to one.

    The agreement of two topics is the mass that their distributions over words share, ``sum_v
    min(p_v, q_v)``, which is 1 minus their total variation distance. Two fits are matched by the
    pairing with the largest sum of agreements. A topic's stability is its mean agreement with its
    partners in the other fits; the agreement is 0 if a fit with fewer topics has no partner.

    Parameters
    ----------
    fits : sequence of estimators or of array-like of shape (n_components, n_features)
        Two or more fits to the same vocabulary with different ``random_state``: fitted topic
        models of any library with ``components_``, pipelines that end in one, or arrays of
        topics, non-negative, whose rows are divided by their sums. Numbers of topics may differ.
    average : {"macro"} or None, default="macro"
        "macro": the mean over the topics of each fit, then over fits. None: no mean.

    Returns
    -------
    float or list of ndarray of shape (n_components,)
        The stability, 0 to 1; with ``average=None``, for each topic of each fit.

    Notes
    -----
    Fewer topics agree more by chance, and topics that agree may still be a blend of two true
    topics. Stability thus compares fits with equal numbers of topics, and shows which topics are
    reproducible, but not how many topics there are. [1]_ uses the agreement of ranked top words
    instead.

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
    topics = topic_distributions(fits)
    if len(topics) < 2:
        raise ValueError(f"fits must be a list of at least 2 fits. Got {len(topics)}.")
    # For each fit, the sums (n_components,) of the agreements of topics with their partners.
    sums = [np.zeros(len(topics_of_fit)) for topics_of_fit in topics]
    for i, j in combinations(range(len(topics)), 2):
        agreements, rows, columns = match_topics(topics[i], topics[j])
        sums[i][rows] += agreements
        sums[j][columns] += agreements
    stability = [sums_of_fit / (len(topics) - 1) for sums_of_fit in sums]
    return stability if average is None else float(np.mean([values.mean() for values in stability]))
