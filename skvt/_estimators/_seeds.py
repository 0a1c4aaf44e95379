"""The function `seeded_prior`: a prior of topics from words that a user expects in them."""

import warnings
from collections.abc import Mapping

import numpy as np

from skvt.readers.validation import (
    LEGAL_RANGE,
    find_stack_level,
    is_in_legal_range,
    list_names,
    require_positive_int,
    show_first,
)

# Pseudo-count of an excluded word: its expected log probability is about -1,000,000 nats.
EXCLUDED_PSEUDO_COUNT = 1e-6


def seeded_prior(
    seed_words, feature_names, n_components, *, excluded_words=None, base=None, boost=100.0
):
    """Return a ``topic_word_prior`` for topics of which some have seed words.

    Topic k starts from its seed words and picks up words that occur together with them. Topics
    without seeds are learned as usual. Row k of ``components_`` is the topic of ``seed_words[k]``.

    Parameters
    ----------
    seed_words : dict or list of lists
        Words of topics: ``{topic index: words}``, or a list of words for each of the first topics,
        which is empty if a topic has no seeds. A word may be in several topics.
    feature_names : array-like of str of shape (n_features,)
        Names of the columns of X, such as ``CountVectorizer().get_feature_names_out()``, or a
        mapping as in ``set_words``.
    n_components : int
        Number of topics K.
    excluded_words : dict or list of lists, default=None
        Words without which topics start, in the form of ``seed_words``. Their pseudo-count is 1e-6,
        or ``base`` if that is less.
    base : float or None, default=None
        Pseudo-count of all words in all topics. Smaller values make sparser topics. None is ``1 /
        n_components``, as in the estimators.
    boost : float, default=100.0
        Pseudo-count of the seed words of a topic, added to ``base``. See Notes.

    Returns
    -------
    ndarray of shape (n_components, n_features)
        Prior for :class:`~skvt.TemperedLDA` and :class:`~skvt.StructuredLDA`.

    Warns
    -----
    UserWarning
        If words are not among ``feature_names``. They are left out.

    See Also
    --------
    skvt.TemperedLDA : Takes the result as ``topic_word_prior``. To start from whole topics, pass
        them as ``components_init``.

    Notes
    -----
    A ``boost`` of 100 has the effect of 100 occurrences of the word in the topic, before any
    document is read. Compare it with how often the word occurs in the corpus, ``X.sum(axis=0)``: a
    word that occurs a thousand times may end up in another topic, and a word that occurs ten times
    stays in the topic that you gave it. The topic itself keeps its index in both cases, because the
    seeds act before any data.

    On three corpora of 1,900 to 5,100 documents, 6 or 8 of 20 topics had four seeds each. A seeded
    topic succeeds if it has more occurrences of its seeds than any other topic. With a boost of 10,
    39 to 94 % of the seeded topics succeeded, and with a boost of 100, 89 to 100 %. Held-out scores
    changed by .01 nats a word with a boost of 100, and fell by .03 to .06 nats a word with 1,000.

    A boost has less effect where rows count more than once. In the passes at T > 1 of an annealed
    :class:`~skvt.TemperedLDA`, rows count ten times (``replication``). In ``partial_fit``, the rows
    of a call count as ``total_samples`` rows.

    Examples
    --------
    >>> from skvt import seeded_prior
    >>> names = ["court", "goal", "judge", "league"]
    >>> seeded_prior({0: ["goal", "league"]}, names, 2, base=0.1, boost=50.0)
    array([[ 0.1, 50.1,  0.1, 50.1],
           [ 0.1,  0.1,  0.1,  0.1]])
    """
    n_components = require_positive_int("n_components", n_components)
    names = np.asarray(list_names(feature_names))
    if names.ndim != 1:
        raise ValueError(
            "feature_names must be a list of names, one for each column of X. Got an array of "
            f"shape {names.shape} instead."
        )
    base = 1.0 / n_components if base is None else base
    for name, value in (("base", base), ("boost", boost)):
        if np.ndim(value) or not is_in_legal_range(value):
            raise ValueError(f"{name} must be a number in {LEGAL_RANGE}. Got {value!r} instead.")
    prior = np.full((n_components, names.size), float(base))
    for topic, words in _list_words_by_topic("seed_words", seed_words, n_components):
        prior[topic, _find_words(names, words, topic)] += boost
    for topic, words in _list_words_by_topic("excluded_words", excluded_words or {}, n_components):
        is_excluded = _find_words(names, words, topic)
        conflicting_words = names[is_excluded & (prior[topic] > base)].tolist()
        if conflicting_words:
            raise ValueError(
                f"Words of topic {topic} cannot be both in seed_words and in excluded_words. Got "
                f"{conflicting_words!r} in both."
            )
        prior[topic, is_excluded] = min(EXCLUDED_PSEUDO_COUNT, base)
    return prior


def _find_words(names, words, topic):
    """Return a mask (n_features,) of the names that are among the words of a topic.

    Warn of words that are not among the names.
    """
    # Words that are no strings are sorted by their texts.
    unknown_words = sorted(set(words) - set(names.tolist()), key=str)
    if unknown_words:
        warnings.warn(
            f"Words of topic {topic} are not in feature_names and are ignored: "
            f"{show_first(unknown_words)}. Write words as they are counted: CountVectorizer "
            "converts them to lower case, and its min_df and max_df leave words out.",
            UserWarning,
            stacklevel=find_stack_level(),
        )
    return np.isin(names, list(words))


def _list_words_by_topic(name, words_by_topic, n_components):
    """Return a list of pairs: the index of a topic, and a list of its words.

    ``words_by_topic`` is the value of the parameter ``name``, a mapping or a sequence. Raise
    ValueError if it is illegal.
    """
    is_mapping = isinstance(words_by_topic, Mapping)
    pairs = []
    for topic, words in words_by_topic.items() if is_mapping else enumerate(words_by_topic):
        if topic not in range(n_components):
            raise ValueError(
                f"Topics in {name} must be integers in the range [0, n_components) = [0, "
                f"{n_components}). Got {topic!r}; raise n_components, or leave this topic out. To "
                "name topics, set topic_labels_ after the fit."
            )
        if isinstance(words, str):
            raise ValueError(
                f"Words of topic {topic} in {name} must be a list. Got {words!r} instead; "
                f"write [{words!r}]."
            )
        pairs.append((int(topic), list(words)))
    return pairs
