"""Tables of topics: their shares, words, rows and names; shares by group.

pandas is imported only by functions that return its data frames.
"""

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit
from scipy.stats import t as student_t
from sklearn.utils import check_scalar

from skvt.readers import declared_order, is_missing
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import column_names, is_frame, preprocessing_and_model
from skvt.results.topic_words import (
    first_words,
    labels_of,
    relevance,
    topic_probabilities,
    word_probabilities,
)
from skvt.ties import stable_argmax

# Maximum number of steps towards the shares of a group, and the change that ends them.
_MOST_STEPS = 2000
_TOL = 1e-8


@dataclass(frozen=True)
class Corpus:
    """Rows with their topics.

    ``counts`` (n, V) are CSR; ``topics`` (K, V) are distributions, or 0 for topics without words;
    ``words`` (V,) their mean;
    ``proportions`` (n, K) are distributions, or 0 for rows without words; ``lengths`` (n,) are the
    words of rows, ``frequency`` (V,) how often each word occurs in all. ``labels`` are those of
    :func:`labels_of`.
    """

    counts: Any
    names: Any
    topics: Any
    words: Any
    proportions: Any
    lengths: Any
    frequency: Any
    texts: list | None
    labels: list

    @property
    def is_empty(self):
        """Whether a row has no words or no topics, (n,)."""
        return (self.lengths == 0.0) | ~self.proportions.any(axis=1)

    @property
    def empty_rows(self):
        """Numbers of the rows without words or topics, and the first numbers as text."""
        rows = np.flatnonzero(self.is_empty)
        return rows, ", ".join(map(str, rows[:10])) + (", ..." if rows.size > 10 else "")

    @property
    def shares(self):
        """Share of each topic in the words of all rows, (K,)."""
        tokens = self.lengths @ self.proportions
        return tokens / (tokens.sum() or 1.0)

    def first_words(self, n_words, *, by_relevance):
        """Return the first words of each topic, if their probability is positive."""
        scores = relevance(self.topics, self.words) if by_relevance else self.topics
        order = first_words(scores, n_words)
        return [
            list(map(str, self.names[places[topic[places] > 0.0]]))
            for topic, places in zip(self.topics, order, strict=True)
        ]

    def rows_of(self, k, n_rows):
        """Return the rows with the largest proportions of topic k, if these are positive."""
        shares = np.where(self.is_empty, 0.0, self.proportions[:, k])
        order = first_words(shares[None], n_rows)[0]
        return order[shares[order] > 0.0]


def corpus_of(estimator, X, feature_names=None, texts=None, whom="topic_table", *, covariates=None):
    """Return the :class:`Corpus` of the rows X; for a pipeline, X is its input.

    The ``covariates`` of the rows go to ``transform`` of the model.
    """
    require_rows_in_memory(X, whom)
    topics = topic_probabilities(estimator)
    names = column_names(estimator, feature_names, topics.shape[1])
    preprocessing, model = preprocessing_and_model(estimator)
    if preprocessing is not None:
        rows = list(X) if texts is None else []
        texts = rows if rows and isinstance(rows[0], str) else texts
        X = preprocessing.transform(X)
    # models of other libraries have no such parameter
    options = {} if covariates is None else {"covariates": covariates}
    proportions = np.array(model.transform(X, **options), np.float64)
    counts = sp.csr_array(X)
    lengths, frequency = (np.asarray(counts.sum(axis=axis), np.float64) for axis in (1, 0))
    if texts is not None:
        texts = list(map(str, texts))
        _check_one_for_each_row("texts", texts, lengths)
    totals = proportions.sum(axis=1, keepdims=True)
    if not np.allclose(totals, 1.0):
        # activations of a factorisation, whose components have sizes
        proportions *= np.asarray(model.components_, np.float64).sum(axis=1)
        totals = proportions.sum(axis=1, keepdims=True)
    proportions /= np.where(totals == 0.0, 1.0, totals)
    proportions[lengths == 0.0] = 0.0
    words, labels = word_probabilities(estimator), labels_of(estimator, feature_names)
    return Corpus(counts, names, topics, words, proportions, lengths, frequency, texts, labels)


def topic_table(
    estimator, X, feature_names=None, texts=None, *, n_words=10, n_rows=3, covariates=None
):
    """Return the topics of a fitted model as a data frame: shares, words, typical rows.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A fitted topic model, also scikit-learn's: one with ``components_`` and ``transform``. Or a
        pipeline that ends in one.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Counts of documents, such as those of ``fit``; for a pipeline, what it takes: texts.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        The words; by default those that the model keeps (``words_``, see ``set_words``), else the
        names that a pipeline gives, or those that the columns had at ``fit``, else column numbers.
    texts : list of str of length n_samples or None, default=None
        The documents, for reading; by default those that a pipeline is given.
    n_words : int, default=10
        Number of words per topic.
    n_rows : int, default=3
        Number of rows per topic.
    covariates : data frame or array-like, optional
        Covariates of the rows, for a model that was fitted with covariates, as in its
        ``transform``.

    Returns
    -------
    pandas.DataFrame
        A row for each topic, with "label" (that of ``topic_labels_`` where it is set, else the
        first three words by relevance, or "topic 3" and so on where the model knows no words),
        "share" of the words of X, "n_rows" of which it is the
        largest topic, "words" by probability and "relevant_words" by relevance (see
        :func:`skvt.top_words`), numbers of the "rows" of which it has most, and their "texts", if
        there are any. Rows without words belong to no topic; ``attrs["rows_without_words"]`` has
        their numbers.

    Raises
    ------
    ValueError
        If the model was fitted with covariates and these are absent or do not fit, or if it was
        fitted without and there are covariates.

    Warns
    -----
    UserWarning
        If there are rows without words.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from skvt import TemperedLDA, topic_table
    >>> texts = ["cat cat mouse", "mouse cat", "sun rain", "rain rain sun"] * 20
    >>> pipeline = make_pipeline(CountVectorizer(), TemperedLDA(2, random_state=0)).fit(texts)
    >>> pipeline[-1].topic_labels_ = ["first", "second"]
    >>> topic_table(pipeline, texts, n_words=2, n_rows=1)["label"].tolist()
    ['first', 'second']
    """
    pandas = pandas_for("topic_table")
    check_scalar(n_words, "n_words", Integral, min_val=1)
    check_scalar(n_rows, "n_rows", Integral, min_val=1)
    corpus = corpus_of(estimator, X, feature_names, texts, covariates=covariates)
    empty, shown = corpus.empty_rows
    if empty.size:
        warnings.warn(
            f"{empty.size} of {corpus.lengths.size} rows have no words that the model knows (rows "
            f"{shown}): they belong to no topic, and transform gives them the prior.",
            UserWarning,
            stacklevel=2,
        )
    number = len(corpus.topics)
    largest = stable_argmax(corpus.proportions[~corpus.is_empty]) if number else []
    rows = [corpus.rows_of(k, n_rows).tolist() for k in range(number)]
    columns = {
        "label": corpus.labels,
        "share": corpus.shares,
        "n_rows": np.bincount(largest, minlength=number),
        "words": [", ".join(w) for w in corpus.first_words(n_words, by_relevance=False)],
        "relevant_words": [", ".join(w) for w in corpus.first_words(n_words, by_relevance=True)],
        "rows": rows,
    }
    if corpus.texts is not None:
        columns["texts"] = [[corpus.texts[row] for row in of_topic] for of_topic in rows]
    table = pandas.DataFrame(columns, index=pandas.RangeIndex(number, name="topic"))
    table.attrs["rows_without_words"] = empty.tolist()
    return table


def topic_shares(estimator, X, groups, feature_names=None, *, confidence=0.95, covariates=None):
    """Estimate shares of topics by group, such as a year or a party, with intervals.

    Parameters
    ----------
    estimator : estimator or Pipeline
        As of :func:`skvt.topic_table`.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Likewise.
    groups : array-like of shape (n_samples,), data frame or ndarray of shape (n_samples, n_columns)
        The group of each row, such as its year. By several columns, such as year and party, a group
        has the rows that agree in all of them. Rows with a missing value are left out. Groups are
        sorted; those of an ordered categorical type come in its order.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        Words, by which topics without ``topic_labels_`` are labelled.
    confidence : float, default=0.95
        Probability of the intervals, between 0 and 1.
    covariates : data frame or array-like, optional
        As of :func:`skvt.topic_table`.

    Returns
    -------
    pandas.DataFrame
        A row for each group, in order, and topic: "group", "topic", "label", estimated "share" of
        the words of the group, "low" and "high" of its interval, and the "n_rows" of the group that
        have words. In the place of "group", the columns of a data frame have their names, and those
        of an array are "group_0", "group_1" and so on.

    Raises
    ------
    ValueError
        If ``groups`` has not a value for each row, or has a column of the name of another column of
        the result.

    Notes
    -----
    Shares are those of the population of which the rows of a group are a random sample, ``E[length
    theta_k] / E[length]``. They maximise the likelihood ``sum_w c_w log sum_k share_k p(w | k)`` of
    the group's words and one more word with the topics of all rows, so that groups with few words
    have shares near those of all rows. Averages of the result of ``transform`` would be shrunk
    towards the proportions of all rows, most of all for short rows. At the true shares, the
    expected slope of the likelihood is 0 for any proportions of rows, so that the estimate is
    consistent for rows of any length. Intervals are approximate: normal in log odds, with Student's
    quantiles, by the sandwich covariance, which allows for dependent words within rows. Topics are
    taken as known. The interval of a group of one row is NaN.

    Examples
    --------
    >>> from skvt import TemperedLDA, topic_shares
    >>> from skvt.datasets import make_topic_corpus
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> topic_shares(lda, X, [2001, 2002] * 100).shape
    (6, 7)
    """
    pandas = pandas_for("topic_shares")
    corpus = corpus_of(estimator, X, feature_names, whom="topic_shares", covariates=covariates)
    of_shares = ["topic", "label", "share", "low", "high", "n_rows"]
    columns = _columns_of(groups)
    taken = sorted({*columns} & {*of_shares})
    if taken:
        raise ValueError(
            f"Columns of groups must not be called {', '.join(of_shares)}, as columns of the "
            f"result are. Got {taken[0]!r}; rename it."
        )
    rows = [
        (*group.values, k, corpus.labels[k], *group.of_topic(k), group.n_rows)
        for group in shares_by_group(corpus, groups, confidence)
        for k in range(len(corpus.topics))
    ]
    return pandas.DataFrame(rows, columns=[*columns, *of_shares])


@dataclass(frozen=True)
class Group:
    """Shares of topics in a group of rows, with intervals, each (K,).

    ``values`` are those of the columns of groups.
    """

    values: tuple[Any, ...]
    n_rows: int
    share: Any
    low: Any
    high: Any

    @property
    def name(self):
        """The values as text."""
        return ", ".join(map(str, self.values))

    def of_topic(self, k):
        """Share of topic k, with its interval."""
        return self.share[k], self.low[k], self.high[k]


def shares_by_group(corpus, groups, confidence):
    """A :class:`Group` for each value of ``groups``, or each combination of columns, in order."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in the range (0, 1). Got {confidence!r} instead.")
    columns = [*_columns_of(groups).values()]
    places = [_places(values) for values in columns]
    rows_of_values = [list(values) for values in columns]
    for values in rows_of_values:
        _check_one_for_each_row("groups", values, corpus.lengths)
    members = {}
    for row, values in enumerate(zip(*rows_of_values, strict=True)):
        if not any(map(is_missing, values)):
            members.setdefault(values, []).append(row)
    order = {values: tuple(place[one] for place, one in zip(places, values, strict=True))
             for values in members}  # fmt: skip
    for values in sorted(members, key=order.get):
        rows = np.array(members[values])
        rows = rows[~corpus.is_empty[rows]]
        n = rows.size
        if n == 0:
            yield Group(values, n, *np.full((3, len(corpus.topics)), np.nan))
            continue
        share, error = _share_and_error(corpus, rows)
        # one row has no variance
        z = student_t.ppf(0.5 + 0.5 * confidence, n - 1.0) if n > 1 else np.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            odds, width = logit(share), z * error / (share * (1.0 - share))
            low, high = expit(odds - width), expit(odds + width)
        yield Group(values, n, share, low, high)


def _columns_of(groups):
    """Columns of groups by their name in results."""
    if is_frame(groups):
        frame = nw.from_native(groups, eager_only=True)
        return {str(series.name): series for series in frame.iter_columns()}
    if isinstance(groups, np.ndarray) and groups.ndim == 2:
        return {f"group_{j}": groups[:, j] for j in range(groups.shape[1])}
    return {"group": groups}


def _places(values):
    """Position in order of each value of a column: declared, sorted, or sorted as text."""
    order = declared_order(values)
    if order is None:
        order = {value for value in values if not is_missing(value)}
        try:
            order = sorted(order)
        except TypeError:
            order = sorted(order, key=str)
    return {value: place for place, value in enumerate(order)}


def _share_and_error(corpus, rows):
    """Return the shares of topics (K,) in the words of rows, and their standard errors."""
    X = corpus.counts[rows]
    seen = corpus.topics.any(axis=0) & (np.asarray(X.sum(axis=0)).ravel() > 0.0)
    X, topics, n = X[:, seen], corpus.topics[:, seen], rows.size
    counts, lengths = (np.asarray(X.sum(axis=axis), np.float64).ravel() for axis in (0, 1))
    prior = 0.5 * corpus.shares + 0.5 / len(topics)
    share, total = prior, counts.sum()
    for _ in range(_MOST_STEPS):
        before = share
        share = (share * (topics @ (counts / (share @ topics))) + prior) / (total + 1.0)
        if np.abs(share - before).max() < _TOL:
            break
    words = share @ topics
    of_prior = np.diag(prior / share**2)
    inverse = np.linalg.inv((topics * (counts / words**2)) @ topics.T + of_prior)
    slopes = X @ (topics / words).T - lengths[:, None]
    spread = slopes.T @ slopes * (n / max(n - 1.0, 1.0)) + of_prior
    return share, np.sqrt(np.diag(inverse @ spread @ inverse))


def _check_one_for_each_row(name, values, rows):
    if len(values) != len(rows):
        raise ValueError(
            f"{name} has {len(values)} values and X {len(rows)} rows; give one for each."
        )


def pandas_for(whom):
    """Import pandas for the function ``whom``; the error names the remedy."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"skvt.{whom} makes a data frame: pip install pandas") from error
    return pandas


def as_frame(columns):
    """A pandas data frame where there is pandas, otherwise the columns as they are."""
    try:
        import pandas
    except ImportError:
        return columns
    if "category" in columns:  # integers beside None would become floats
        columns = columns | {"category": pandas.Series(columns["category"], dtype=object)}
    return pandas.DataFrame(columns)
