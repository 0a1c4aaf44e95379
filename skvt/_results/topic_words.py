"""The first words of topics, by probability or by relevance, and labels made of these words.

There are K topics and V words. Beta are the probabilities of words in topics, p(w | k), and p(w) is
the mean of the topics, weighted by the sums of ``components_``.
"""

from collections.abc import Mapping
from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar

from skvt.readers.validation import (
    check_choice,
    find_column_names,
    require_column_names,
    require_fitted,
    split_pipeline,
)
from skvt.ties import first_of_order

# Weight of log p(w | k) in the relevance of a word. The authors of the measure recommend 0.6.
RELEVANCE_WEIGHT = 0.6


def top_words(estimator, n_words=10, feature_names=None, *, by="probability"):
    """Return the first words of each topic of a topic model, or of a pipeline that ends in one.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A fitted topic model of any library with ``components_``, or a pipeline that ends in one. In
        a pipeline, earlier steps such as ``CountVectorizer`` give the words.
    n_words : int, default=10
        Number of words per topic.
    feature_names : array-like of str of shape (n_features,), optional
        The words, also as a mapping, see ``set_words``. By default, the first of these that is
        known: ``words_`` of the model; the names that the earlier steps of a pipeline give; the
        column names of X in ``fit``; column numbers.
    by : {"probability", "relevance"}, default="probability"
        The order of words, either by probability in the topic, or by relevance [1]_. The relevance
        ``log p(w | k) - .4 log p(w)`` is high for words that are more probable in topic k than in
        other topics. ``p(w)`` is the mean of the topics, weighted by the sums of ``components_``.
        Relevance distinguishes topics, but prefers rare words: use it with a ``min_df`` of 10 or
        more in ``CountVectorizer``.

    Returns
    -------
    list of list
        ``n_components`` lists of ``n_words`` words in order. A list is shorter if fewer words have
        a positive probability, as in topics of scikit-learn's NMF.

    References
    ----------
    .. [1] C. Sievert, K. Shirley (2014). LDAvis: a method for visualizing and interpreting topics.
       ACL workshop on interactive language learning, visualization, and interfaces.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from skvt import TemperedLDA, top_words
    >>> texts = ["cat cat mouse", "mouse cat", "sun rain", "rain rain sun"] * 20
    >>> pipeline = make_pipeline(CountVectorizer(), TemperedLDA(2, random_state=0)).fit(texts)
    >>> sorted(top_words(pipeline, 2))
    [['cat', 'mouse'], ['rain', 'sun']]
    """
    check_scalar(n_words, "n_words", Integral, min_val=1)
    check_choice("by", by, ("probability", "relevance"))
    topics = normalize_topics(estimator)
    names = require_column_names(estimator, feature_names, topics.shape[1])
    scores = compute_relevance(topics, average_topics(estimator)) if by == "relevance" else topics
    _, model = split_pipeline(estimator)
    words_of_topics = select_first_words(topics, scores, n_words, model.components_.dtype)
    return [names[words].tolist() for words in words_of_topics]


def make_topic_labels(estimator, feature_names=None):
    """Return a label for each topic, a list of str.

    If the user has not set a label, the label consists of the first three words of the topic by
    relevance, or of the index of the topic if no words are known.
    """
    _, model = split_pipeline(estimator)
    # The labels that the user has set, by the index of the topic. Models of other libraries may
    # have ``topic_labels_``, a list of labels, or a dict of labels by the index of the topic.
    labels = getattr(model, "_labels_by_topic", None)
    if labels is None:
        labels = getattr(model, "topic_labels_", None) or {}
    if not isinstance(labels, Mapping):
        labels = dict(enumerate(labels))
    n_topics = len(normalize_topics(estimator))
    if len(labels) < n_topics:
        if find_column_names(estimator, feature_names) is None:
            default_labels = [f"topic {k}" for k in range(n_topics)]
        else:
            first_words = top_words(estimator, 3, feature_names, by="relevance")
            default_labels = [", ".join(map(str, words)) or "no words" for words in first_words]
        labels = dict(enumerate(default_labels)) | dict(labels)
    return [str(labels[k]) for k in range(n_topics)]


def select_first_words(topics, scores, n_words, dtype=np.float64):
    """Return the ``n_words`` words with the largest scores in each topic, as column numbers.

    ``scores`` (K, V) are the scores, and ``topics`` (K, V) are the probabilities of the words. The
    result is a list with an array for each topic, from which words of probability 0 are left out.
    Scores that differ by no more than rounding errors of ``dtype`` are tied; of tied words, the
    first column comes first.
    """
    words_of_topics = [first_of_order(-row, n_words, dtype=dtype) for row in scores]
    return [words[topic[words] > 0.0] for topic, words in zip(topics, words_of_topics, strict=True)]


def normalize_topics(estimator):
    """Return E[beta], (K, V), which is ``components_`` divided by the sums of its rows.

    A row whose sum is 0 remains 0.
    """
    _, model = split_pipeline(estimator)
    require_fitted(model)
    topics = getattr(model, "components_", None)
    if topics is None:
        raise ValueError(
            f"{type(model).__name__} has no attribute components_ with topics. Pass a fitted "
            "topic model such as TemperedLDA, or a pipeline that ends in one."
        )
    topics = np.asarray(topics, np.float64)
    totals = topics.sum(axis=1, keepdims=True)
    return topics / np.where(totals == 0.0, 1.0, totals)


def average_topics(estimator):
    """Return p(w), the mean of the topics weighted by the sums of ``components_``, (V,)."""
    _, model = split_pipeline(estimator)
    weights = np.asarray(model.components_, np.float64).sum(axis=0)
    return weights / (weights.sum() or 1.0)


def compute_relevance(topics, p_word, weight=RELEVANCE_WEIGHT):
    """Return ``weight log p(w | k) + (1 - weight) log(p(w | k) / p(w))``, (K, V).

    ``topics`` (K, V) are p(w | k), and ``p_word`` (V,) are p(w). The result is -inf if
    p(w | k) = 0.
    """
    log_topics = np.full(topics.shape, -np.inf)
    np.log(topics, out=log_topics, where=topics > 0.0)
    # The formula is equal to ``log p(w | k) - (1 - weight) log p(w)``.
    return log_topics - (1.0 - weight) * np.log(np.where(p_word > 0.0, p_word, 1.0))
