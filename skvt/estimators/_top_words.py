"""The most probable words of topics, with the names that a pipeline knows."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from skvt.readers.validation import column_names, preprocessing_and_model
from skvt.ties import stable_order


def top_words(estimator, n_words=10, feature_names=None):
    """The most probable words of each topic of a topic model, or of a pipeline that ends in one.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A fitted topic model of any library with ``components_``. A pipeline knows the words:
        those of its ``CountVectorizer``.
    n_words : int, default=10
        Number of words per topic.
    feature_names : array-like of str of shape (n_features,), optional
        By default those that the steps before the model name, else the column names of X in
        ``fit``, else column numbers.

    Returns
    -------
    list of list
        ``n_components`` lists of ``n_words`` words, most probable first; fewer or none where fewer
        have a positive probability, as in topics of scikit-learn's NMF.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    ValueError
        If it has no topics, `n_words` is not a positive whole number, or the number of names is
        not that of the columns.

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
    model = preprocessing_and_model(estimator)[1]
    check_is_fitted(model)
    topics = getattr(model, "components_", None)
    if topics is None:
        raise ValueError(
            f"{type(model).__name__} has no topics (no components_); pass a topic model such as "
            "TemperedLDA, or a pipeline that ends in one."
        )
    names = column_names(estimator, feature_names, topics.shape[1])
    totals = topics.sum(axis=1, keepdims=True)
    probability = topics / np.where(totals == 0.0, 1.0, totals)
    order = [stable_order(-topic, dtype=topics.dtype)[:n_words] for topic in probability]
    return [
        names[words[topic[words] > 0.0]].tolist()
        for topic, words in zip(probability, order, strict=True)
    ]
