"""Tables of topics, with their shares, words and typical rows, and shares of topics by group.

Tables are made for models of any library. A row of counts is a document: there are n rows, V words
and K topics. Every occurrence of a word in a row counts. The package pandas is imported only by
functions that return its data frames.
"""

import reprlib
import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
from scipy.stats import t as student_t
from sklearn.utils import check_scalar

from skvt._results.topic_words import (
    average_topics,
    compute_relevance,
    make_topic_labels,
    normalize_topics,
    select_first_words,
)
from skvt.inference import one_blas_thread
from skvt.readers import find_declared_order, is_missing
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import (
    check_probability,
    is_frame,
    require_column_names,
    require_order_of,
    require_package,
    show_first,
    split_pipeline,
)
from skvt.rows import collect_details
from skvt.ties import first_of_order, stable_argmax

# Maximum number of steps of the EM algorithm that estimates the shares of topics in a group.
_MAX_STEPS = 2000
# The EM algorithm ends when no share changes by this amount or more.
_TOL = 1e-8
# A share that differs from 0 or 1 by less than this is 0 or 1 up to rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Corpus:
    """Rows of counts with the topics of a fitted model."""

    # (n, V), a CSR array: number of times that each word occurs in each row.
    counts: Any
    # (V,): the words.
    names: Any
    # (K, V): probability of each word in each topic; 0 for topics without words.
    topics: Any
    # (V,): mean of the topics, weighted by the sums of ``components_``.
    mean_topic: Any
    # (n, K): proportions of topics in each row; 0 for rows without words or without topics.
    proportions: Any
    # (n,): number of words in each row, the sum of its counts.
    lengths: Any
    # (V,): number of times that each word occurs in all rows.
    frequency: Any
    # Text of each row; None if texts are not known.
    texts: list | None
    # Label of each topic, from :func:`make_topic_labels`.
    labels: list

    @property
    def is_empty(self):
        """Mask (n,) of the rows that have no words or no topics."""
        return (self.lengths == 0.0) | ~self.proportions.any(axis=1)

    @property
    def empty_rows(self):
        """Indices of the rows without words or topics."""
        return np.flatnonzero(self.is_empty)

    @property
    def first_empty_rows(self):
        """The first ten of ``empty_rows`` as text."""
        return show_first(self.empty_rows.tolist())

    @property
    def shares(self):
        """Share of each topic in the words of all rows, (K,)."""
        n_words_of_topics = self.lengths @ self.proportions
        # If no row has words, all shares are 0.
        return n_words_of_topics / (n_words_of_topics.sum() or 1.0)

    def first_words(self, n_words, *, by_relevance):
        """Return the ``n_words`` first words of each topic by relevance or by probability.

        Words of probability 0 are left out.
        """
        scores = compute_relevance(self.topics, self.mean_topic) if by_relevance else self.topics
        words_of_topics = select_first_words(self.topics, scores, n_words)
        return [list(map(str, self.names[words])) for words in words_of_topics]

    def typical_rows(self, k, n_rows):
        """Return the indices of the ``n_rows`` rows with the largest proportions of topic k.

        Rows without topic k are left out.
        """
        proportions = np.where(self.is_empty, 0.0, self.proportions[:, k])
        rows = first_of_order(-proportions, n_rows, dtype=np.float64)
        return rows[proportions[rows] > 0.0]


def make_corpus(estimator, X, feature_names=None, texts=None, *, caller, details):
    """Return the :class:`Corpus` of a fitted model and the rows X.

    If the estimator is a pipeline, X is the input of the pipeline. ``details`` are the covariates
    and allowed topics of the rows, a dict from :func:`skvt.rows.collect_details`; they are passed
    to the method ``transform`` of the model. ``caller`` is the name of the calling function in
    errors.
    """
    require_rows_in_memory(X, caller)
    require_order_of(X, texts=texts, **details)
    topics = normalize_topics(estimator)
    names = require_column_names(estimator, feature_names, topics.shape[1])
    preprocessing, model = split_pipeline(estimator)
    if preprocessing is not None:
        # By default, the texts are the input of the pipeline if this input is a list of strings.
        documents = list(X) if texts is None else []
        texts = documents if documents and isinstance(documents[0], str) else texts
        X = preprocessing.transform(X)
    with warnings.catch_warnings():
        # Those who call this function treat such rows themselves.
        warnings.filterwarnings("ignore", message=".* rows have no words that the model knows")
        proportions = np.array(model.transform(X, **details), np.float64)
    counts = sp.csr_array(X)
    lengths, frequency = (np.asarray(counts.sum(axis=axis), np.float64) for axis in (1, 0))
    if texts is not None:
        texts = list(map(str, texts))
        require_value_per_row("texts", texts, len(lengths))
    row_sums = proportions.sum(axis=1, keepdims=True)
    if not np.allclose(row_sums, 1.0):
        # The model is a factorisation, and its method ``transform`` returns activations in place of
        # proportions. The activation of a component times the sum of the component's weights is the
        # expected number of words that the component contributes to a row.
        proportions *= np.asarray(model.components_, np.float64).sum(axis=1)
        row_sums = proportions.sum(axis=1, keepdims=True)
    proportions /= np.where(row_sums == 0.0, 1.0, row_sums)
    proportions[lengths == 0.0] = 0.0
    return Corpus(
        counts=counts, names=names, topics=topics, mean_topic=average_topics(estimator),
        proportions=proportions, lengths=lengths, frequency=frequency, texts=texts,
        labels=make_topic_labels(estimator, feature_names),
    )  # fmt: skip


def topic_table(
    estimator, X, feature_names=None, texts=None, *, n_words=10, n_rows=3, covariates=None,
    allowed_topics=None,
):  # fmt: skip
    """Describe the topics of a fitted model by shares, words and typical rows, in a data frame.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A fitted topic model of any library with ``components_``, ``fit`` and ``transform``, or a
        pipeline that ends in such a model.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Counts of words in documents, such as the documents of ``fit``. If ``estimator`` is a
        pipeline, X is the input of the pipeline, such as texts.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        The words, also as a mapping, see ``set_words``. By default, the first of these that is
        known: ``words_`` of the model; the names that the earlier steps of a pipeline give; the
        column names of X in ``fit``; column numbers.
    texts : list of str of length n_samples or None, default=None
        The texts of the documents, for the column "texts" of the table. By default, the input of a
        pipeline is used if it consists of texts.
    n_words : int, default=10
        Maximum number of words per topic.
    n_rows : int, default=3
        Maximum number of rows per topic.
    covariates : data frame or array-like, optional
        Covariates of the rows, for a model that was fitted with covariates, as in the method
        ``transform`` of the model.
    allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
        Topics that each row may have, as in the method ``transform`` of the model; by default all.

    Returns
    -------
    pandas.DataFrame
        The table has a row for each topic and these columns:

        - "label": the label that is set in ``topic_labels_``, or otherwise the first three words by
          relevance; "topic 3" and so on if no words are known;
        - "share": share of the topic in all words of X;
        - "n_rows": number of rows of X in which the topic has the largest proportion;
        - "words": first words by probability;
        - "relevant_words": first words by relevance, see :func:`skvt.top_words`;
        - "rows": indices of the rows in which the topic has the largest proportions;
        - "texts": texts of these rows; left out if texts are not known.

        Rows without words belong to no topic; ``attrs["rows_without_words"]`` has their indices.

    Raises
    ------
    ValueError
        If ``n_words`` or ``n_rows`` is less than 1, if ``texts`` does not have a text for each row,
        if ``feature_names`` does not have a name for each column, or if the model has no
        ``components_``. Also if ``covariates`` or ``allowed_topics`` do not match X or the fit, or
        if the model does not take them, or if covariates are missing although the fit had some.
    TypeError
        If ``estimator`` is no estimator, if X is a collection of Dask, if ``n_words`` or ``n_rows``
        is not an integer, or if a model of another library does not take the details of documents.
    ImportError
        If pandas is not installed.

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
    pandas = import_pandas("topic_table")
    check_scalar(n_words, "n_words", Integral, min_val=1)
    check_scalar(n_rows, "n_rows", Integral, min_val=1)
    details = collect_details(covariates, allowed_topics)
    corpus = make_corpus(estimator, X, feature_names, texts, caller="topic_table", details=details)
    empty_rows = corpus.empty_rows
    if empty_rows.size:
        warnings.warn(
            f"{empty_rows.size} of {corpus.lengths.size} rows have no words that the model knows "
            f"(rows {corpus.first_empty_rows}). They belong to no topic, and transform returns the "
            "prior proportions for them.",
            UserWarning,
            stacklevel=2,
        )
    n_topics = len(corpus.topics)
    # The topic with the largest proportion in each row that has words.
    main_topics = stable_argmax(corpus.proportions[~corpus.is_empty]) if n_topics else []
    rows = [corpus.typical_rows(topic, n_rows).tolist() for topic in range(n_topics)]
    columns = {
        "label": corpus.labels,
        "share": corpus.shares,
        "n_rows": np.bincount(main_topics, minlength=n_topics),
        "words": [", ".join(words) for words in corpus.first_words(n_words, by_relevance=False)],
        "relevant_words": [
            ", ".join(words) for words in corpus.first_words(n_words, by_relevance=True)
        ],
        "rows": rows,
    }
    if corpus.texts is not None:
        columns["texts"] = [[corpus.texts[row] for row in topic_rows] for topic_rows in rows]
    table = pandas.DataFrame(columns, index=pandas.RangeIndex(n_topics, name="topic"))
    table.attrs["rows_without_words"] = empty_rows.tolist()
    return table


def topic_shares(
    estimator, X, groups, feature_names=None, *, confidence=0.95, covariates=None,
    allowed_topics=None,
):  # fmt: skip
    """Estimate shares of topics by group, such as a year or a party, with intervals.

    Parameters
    ----------
    estimator : estimator or Pipeline
        A fitted topic model or a pipeline, as in :func:`skvt.topic_table`.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Counts of words in documents, or the input of a pipeline, as in :func:`skvt.topic_table`.
    groups : array-like of shape (n_samples,), data frame or ndarray of shape (n_samples, n_columns)
        The group of each row, such as its year, in the order of the rows of X. With several
        columns, such as year and party, a group consists of the rows with equal values in all
        columns. Rows with a missing value belong to no group. The table is sorted by group; values
        of an ordered categorical type have the order of the type.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        The words, of which labels are made for topics that have no label in ``topic_labels_``.
    confidence : float, default=0.95
        Probability of the intervals, between 0 and 1.
    covariates : data frame or array-like, optional
        Covariates of the rows, as in :func:`skvt.topic_table`.
    allowed_topics : {array-like, sparse matrix} of shape (n_samples, n_components), optional
        Topics that each row may have, as in :func:`skvt.topic_table`.

    Returns
    -------
    pandas.DataFrame
        The table has a row for each group and topic, and these columns:

        - "group": the value of ``groups``. If ``groups`` is a data frame, the table has the columns
          of the data frame instead; if ``groups`` is an ndarray with two dimensions, the table has
          the columns "group_0", "group_1" and so on instead;
        - "topic" and "label": index and label of the topic;
        - "share": estimated share of the topic in the words of the group, NaN for a group without
          words;
        - "low" and "high": limits of the interval of the share, NaN for a group with fewer than two
          rows that have words;
        - "n_rows": number of rows of the group that have words.

    Raises
    ------
    ValueError
        If ``groups`` does not have a value for each row, if its index has the labels of X in
        another order, if a column of ``groups`` has the name of another column of the result, or if
        ``confidence`` is not between 0 and 1. Also for models, names, covariates and allowed topics
        as in :func:`skvt.topic_table`.
    TypeError
        If X is a collection of Dask.
    ImportError
        If pandas is not installed.

    Notes
    -----
    The rows of a group are taken as a random sample of a population. The share of topic k is
    ``E[length theta_k] / E[length]`` in this population. Here, length is the number of words of a
    row, and theta are the proportions of topics in the row.

    The estimated shares of a group maximise ``sum_w c_w log sum_k share_k p(w | k) + sum_k prior_k
    log share_k``, where c_w is the number of times that word w occurs in the group. The first sum
    is the log likelihood of the words. The second sum has the weight of one more word; ``prior_k``
    is the mean of 1 / K and the share of topic k in all rows. Groups with few words therefore have
    shares near the prior. Averages of the result of ``transform`` would be shrunk towards the
    proportions of all rows, most of all for short rows. The estimate does not have this bias: at
    the true shares, the expected gradient of the likelihood is 0, whatever the lengths and
    proportions of rows are.

    Intervals are approximate. The interval of a share s is the union of two intervals, from which
    numbers outside [0, 1] are left out. The first is ``s - q sqrt(v)`` to ``s + q sqrt(v)``, where
    q is a quantile of Student's t distribution. The variance v is that of the sandwich covariance,
    which allows for dependence between the words of a row. If hardly any row of the group has the
    topic, v is far too small. The second interval is therefore that of Wilson for a proportion
    [1]_, with an effective sample size [2]_: all x with ``(s - x)^2 <= q^2 rho x (1 - x) / m``.
    Here, ``m = (sum of lengths)^2 / sum of squared lengths`` is the effective number of rows. If
    each row consisted of one topic only, the variance of s would be ``s (1 - s) / m``, and rho is
    the ratio of v to this variance. A ratio less than 1 is replaced by its weighted average with 1.
    The ratio has the weight ``(s (1 - s))^2 / v``, which is about the number of rows that have the
    topic, and 1 has the weight 1. If no row has the topic, the interval ends near ``q^2 / (m +
    q^2)``, for example at .01 for 400 rows of equal length.

    The distributions p(w | k) of the topics are taken as known.

    References
    ----------
    .. [1] E. B. Wilson (1927). Probable inference, the law of succession, and statistical
       inference. Journal of the American Statistical Association 22, 209-212.
    .. [2] E. L. Korn and B. I. Graubard (1998). Confidence intervals for proportions with small
       expected number of positive counts estimated from survey data. Survey Methodology 24,
       193-201.

    Examples
    --------
    >>> from skvt import TemperedLDA, topic_shares
    >>> from skvt.datasets import make_topic_corpus
    >>> X = make_topic_corpus(200, n_components=3, n_features=50, random_state=0).X
    >>> lda = TemperedLDA(n_components=3, random_state=0).fit(X)
    >>> topic_shares(lda, X, [2001, 2002] * 100).shape
    (6, 7)
    """
    pandas = import_pandas("topic_shares")
    details = collect_details(covariates, allowed_topics)
    require_order_of(X, groups=groups, **details)
    corpus = make_corpus(estimator, X, feature_names, caller="topic_shares", details=details)
    share_columns = ["topic", "label", "share", "low", "high", "n_rows"]
    columns = _get_group_columns(groups)
    repeated_names = sorted({*columns} & {*share_columns})
    if repeated_names:
        raise ValueError(
            "The columns of groups cannot have the names of columns of the result: "
            f"{', '.join(share_columns)}. Got {repeated_names[0]!r}; rename it."
        )
    rows = [
        (*group.values, k, corpus.labels[k], group.share[k], group.low[k], group.high[k],
         group.n_rows)
        for group in generate_groups(corpus, groups, confidence)
        for k in range(len(corpus.topics))
    ]  # fmt: skip
    return pandas.DataFrame(rows, columns=[*columns, *share_columns])


@dataclass(frozen=True)
class Group:
    """Shares of topics in a group of rows, with intervals."""

    # Value of the group in each column of ``groups``.
    values: tuple[Any, ...]
    # Number of rows of the group that have words.
    n_rows: int
    # Share of each topic, (K,).
    share: Any
    # Limits of the intervals of the shares, (K,) each.
    low: Any
    high: Any

    @property
    def name(self):
        """The values of the group as text."""
        return ", ".join(map(str, self.values))


def generate_groups(corpus, groups, confidence):
    """Generate a :class:`Group` for each value of ``groups``, or each combination of values.

    The groups come in sorted order. ``corpus`` is a :class:`Corpus`, and ``confidence`` is the
    probability of the intervals. Raise ValueError if ``confidence`` is not between 0 and 1, or if
    ``groups`` does not have a value for each row.
    """
    check_probability("confidence", confidence)
    columns = [*_get_group_columns(groups).values()]
    for column in columns:
        require_value_per_row("groups", column, len(corpus.lengths))
    ranks = [_rank_values(column) for column in columns]
    # The rows of each group, by the tuple of its values.
    rows_of_group = {}
    for row, values in enumerate(zip(*map(list, columns), strict=True)):
        if not any(map(is_missing, values)):
            rows_of_group.setdefault(values, []).append(row)

    def rank_of_group(values):
        """Return the ranks of the values in their columns, by which groups are sorted."""
        return [rank[value] for rank, value in zip(ranks, values, strict=True)]

    for values in sorted(rows_of_group, key=rank_of_group):
        rows = np.array(rows_of_group[values])
        rows = rows[~corpus.is_empty[rows]]
        # The shares of a group without words are not known.
        if rows.size == 0:
            share, low, high = np.full((3, len(corpus.topics)), np.nan)
            yield Group(values, rows.size, share, low, high)
            continue
        # The matrices are small, so that several threads of the matrix library would be slower.
        with one_blas_thread():
            share, error = _estimate_shares(corpus, rows)
        # The interval of a group of one row is NaN, because one row has no variance.
        n_degrees = rows.size - 1.0
        quantile = student_t.ppf(0.5 + 0.5 * confidence, n_degrees) if n_degrees > 0 else np.nan
        lengths = corpus.lengths[rows]
        inverse_m = (lengths**2).sum() / lengths.sum() ** 2
        low, high = make_share_intervals(share, error**2, inverse_m, quantile)
        yield Group(values, rows.size, share, low, high)


def make_share_intervals(share, variance, inverse_m, quantile):
    """Return the limits of the intervals of shares, see the notes of :func:`topic_shares`.

    ``variance`` are the squared standard errors of ``share``, ``inverse_m`` is the inverse of the
    effective number of rows m, and ``quantile`` is q. All arrays have the shape of ``share``, or
    can be broadcast to it. Estimates outside [0, 1] count as 0 or 1 in the interval of Wilson.
    """
    clipped = np.clip(share, 0.0, 1.0)
    binomial = clipped * (1.0 - clipped)
    # Shares that differ from 0 or 1 by rounding only say nothing about rho.
    binomial = np.where(binomial < _ROUNDING, 0.0, binomial)
    # The ratio rho divided by m. The share of a single topic is 1, and rho is 1.
    ratio = np.broadcast_to(inverse_m, share.shape).copy()
    average = ratio.copy()
    np.divide(variance, binomial, out=ratio, where=binomial > 0.0)
    total = variance + binomial**2
    np.divide((binomial + inverse_m) * variance, total, out=average, where=total > 0.0)
    scaled = quantile**2 * np.maximum(ratio, average)
    center, root = clipped + 0.5 * scaled, np.sqrt(scaled * binomial + 0.25 * scaled**2)
    half_width = quantile * np.sqrt(variance)
    low = np.minimum((center - root) / (1.0 + scaled), share - half_width)
    high = np.maximum((center + root) / (1.0 + scaled), share + half_width)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)


def _get_group_columns(groups):
    """Return the columns of ``groups``, a dict by their names in the result."""
    if is_frame(groups):
        frame = nw.from_native(groups, eager_only=True)
        return {str(series.name): series for series in frame.iter_columns()}
    if isinstance(groups, np.ndarray) and groups.ndim == 2:
        return {f"group_{j}": groups[:, j] for j in range(groups.shape[1])}
    return {"group": groups}


def _rank_values(values):
    """Return a dict from each value of a column to its rank, by which groups are sorted.

    Values of an ordered categorical type have the order of the type. Other values are sorted; if
    they cannot be compared, they are sorted as text. Missing values have no rank.
    """
    ordered_values = find_declared_order(values)
    if ordered_values is None:
        known_values = {value for value in values if not is_missing(value)}
        try:
            ordered_values = sorted(known_values)
        except TypeError:
            ordered_values = sorted(known_values, key=str)
    return {value: rank for rank, value in enumerate(ordered_values)}


def _estimate_shares(corpus, rows):
    """Estimate the shares of topics in the words of the rows with indices ``rows``.

    Return the shares (K,) and their standard errors (K,). Both are explained in
    :func:`topic_shares`.
    """
    # Leave out words that do not occur in the rows, and words that have no topic.
    group_counts = corpus.counts[rows]
    is_used_word = corpus.topics.any(axis=0) & (np.asarray(group_counts.sum(axis=0)).ravel() > 0.0)
    group_counts = group_counts[:, is_used_word]
    topics = corpus.topics[:, is_used_word]
    # Number of times that each word occurs in the rows, and number of words of each row.
    counts, lengths = (
        np.asarray(group_counts.sum(axis=axis), np.float64).ravel() for axis in (0, 1)
    )
    # Maximise the objective by the EM algorithm. The entries of the prior sum to 1, so that the
    # prior has the weight of one word.
    prior = 0.5 * corpus.shares + 0.5 / len(topics)
    share = prior
    n_words = counts.sum()
    for _ in range(_MAX_STEPS):
        previous_share = share
        share = (share * (topics @ (counts / (share @ topics))) + prior) / (n_words + 1.0)
        if np.abs(share - previous_share).max() < _TOL:
            break
    # The probability of each word at the estimated shares.
    p_word = share @ topics
    # Compute the sandwich covariance ``H^-1 G H^-1``. H is the negative Hessian of the objective,
    # and G is the variance of its gradient.
    prior_curvature = np.diag(prior / share**2)
    inverse_curvature = np.linalg.inv((topics * (counts / p_word**2)) @ topics.T + prior_curvature)
    # The gradient of a row is that of its log likelihood minus the Lagrange multiplier of the
    # constraint that shares sum to 1. The multiplier is the number of words of the row.
    row_gradients = group_counts @ (topics / p_word).T - lengths[:, None]
    # The prior counts as one more word, whose topic is known. The second moment of its gradient is
    # equal to its curvature.
    small_sample_factor = rows.size / max(rows.size - 1.0, 1.0)
    gradient_variance = row_gradients.T @ row_gradients * small_sample_factor + prior_curvature
    return share, np.sqrt(np.diag(inverse_curvature @ gradient_variance @ inverse_curvature))


def require_value_per_row(name, values, n_rows):
    """Raise ValueError unless ``values`` has a value for each of ``n_rows`` rows.

    A string is illegal, because it may be the name of a column. ``name`` is the name of the
    parameter in errors.
    """
    if isinstance(values, str):
        raise ValueError(
            f"{name} must have a value for each of the {n_rows} rows of X. Got the string "
            f"{reprlib.repr(values)}; if this is the name of a column, pass the column itself."
        )
    if len(values) != n_rows:
        raise ValueError(
            f"{name} has {len(values)} values, but X has {n_rows} rows. Pass a value for each row."
        )


def import_pandas(caller):
    """Import and return pandas.

    If pandas is not installed, raise an ImportError that names the function ``caller`` and the
    command that installs pandas.
    """
    return require_package(
        "pandas", f"skvt.{caller} returns a pandas data frame: pip install pandas"
    )


def make_frame(columns):
    """Return a pandas data frame of a dict of columns, or the dict if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        return columns
    # Categories may be integers, and None in some rows. Without the type "object", pandas would
    # convert such integers to floats.
    if "category" in columns:
        columns = columns | {"category": pandas.Series(columns["category"], dtype=object)}
    return pandas.DataFrame(columns)
