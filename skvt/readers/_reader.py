"""Readers, which return the rows that users pass as numbers, or raise an error with a remedy.

The first rows fit a reader: the reader takes from them the number and the names of the columns, and
the precision of numbers. Later rows must have the same columns, and are converted to the same
precision. Each subclass of :class:`Reader` reads the rows of one kind of model. A reader does not
change: methods that fit it return a new reader.
"""

import warnings
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from skvt._sklearn_private import check_sample_weight
from skvt.readers._columns import (
    find_unread_column,
    is_missing,
    list_column_names,
    list_columns,
)
from skvt.readers.validation import (
    LEGAL_RANGE,
    TEXT_REMEDY,
    check_magnitude,
    find_stack_level,
    find_text,
    is_frame,
    is_in_legal_range,
    refuse_bags,
    refuse_masked_weights,
    require_binary,
    require_counts,
    require_rows,
    require_word_counts,
    show_first,
    sum_entries,
    to_canonical_csr,
    warn_of_empty_rows,
)
from skvt.rows import dense

# Weights whose mean is outside this range are probably not numbers of equal rows, unless
# `_may_count_rows` accepts them. Fits to 300 rows of two clusters had 2 or 3 components if the mean
# weight was 2, 4 to 9 if it was 3, and 11 to 158 if it was 5.
_MEAN_WEIGHTS = 0.1, 3.0
# Maximum number of columns of rows whose combinations of values are counted.
_MAX_COLUMNS_OF_COMBINATIONS = 64
# With at least this number of rows and of columns, a column with half of all counts is suspicious,
# and so are many equal rows.
_MIN_SIZE = 10
# A text of at least so many different words that occurs so often may become a topic. Shorter texts,
# such as answers of one word, are equal without being copies. In five corpora of posts, articles
# and abstracts, no text occurs more than seven times.
_MIN_WORDS_OF_COPIES, _MIN_COPIES = 5, 10
# Rows of few words or products are equal by chance. A text is copied only if it would be expected
# in at most this number of rows if words were independent.
_MAX_EXPECTED_ROWS = 1e-3
# Minimum share of the rows that such texts have. With a smaller share, topics hardly change.
_MIN_SHARE_OF_COPIES = 0.1
# Minimum number of weights that are judged by their mean. The first call of a stream of small calls
# has fewer weights.
_MIN_WEIGHTS = 20


@dataclass(frozen=True)
class Reader:
    """Reader of complete real numbers, and base of the other readers.

    A reader can be sent to the processes that hold the rows, because it does not depend on a model.
    """

    # Class of the estimator, whose name errors show.
    owner: type
    # Attributes of the estimator by which later rows are checked, ``n_features_in_`` and
    # ``feature_names_in_``; empty before the first rows.
    attributes: dict[str, Any] = field(default_factory=dict)
    # Precision of the rows; None before the first rows.
    dtype: np.dtype[Any] | None = None
    # Whether the first rows begin a stream, so that later rows may have values that they lack.
    in_stream: bool = False

    # Whether rows may be sparse.
    accepts_sparse: ClassVar[bool] = False
    # Whether values may be missing.
    accepts_missing: ClassVar[bool] = False
    # Memory order of arrays; None keeps the order of the input.
    order: ClassVar[str | None] = None
    # Whether the weighted sum of all numbers must be 0 or in ``LEGAL_RANGE``, as for counts.
    adds_up: ClassVar[bool] = False
    # Whether all chunks of Dask must be scanned before the first row is read, see `scan`.
    needs_scan: ClassVar[bool] = False
    # Remedy in errors for rows of text.
    remedy: ClassVar[str] = TEXT_REMEDY
    # Remedy in errors for missing values, of readers that do not accept them.
    missing_remedy: ClassVar[str] = (
        "Leave these rows out, or fill the values in. MemoizedDPGMM takes missing values."
    )
    # Remedies in errors for a data frame with other columns than the first rows, and for rows with
    # another number of columns.
    names_remedy: ClassVar[str] = (
        "Pass X.reindex(columns=model.feature_names_in_), which sorts the columns, leaves out "
        "others, and adds columns that X lacks as missing values."
    )
    width_remedy: ClassVar[str] = ""

    @classmethod
    def from_estimator(cls, estimator):
        """Make a reader with the parameters of an estimator, before the first rows."""
        return cls(type(estimator))

    def fit_and_read(self, X):
        """Return the fitted reader, which reads further rows, and X as numbers.

        If the reader was fitted before, X must have the columns of the first rows, and the returned
        reader is equal to this one. Raise ValueError or TypeError if X is illegal.
        """
        X, attributes = self._to_numbers(X)
        # Errors about illegal values name the columns.
        reader = replace(self, attributes=attributes)
        X = reader._require_legal(X)
        return replace(reader, dtype=X.dtype), X

    def _to_numbers(self, X):
        """Return X as an array or CSR matrix of numbers, and the attributes of its columns."""
        # Arguments of scikit-learn's ``validate_data``. A list of types lets it keep float32.
        requirements = {
            "accept_sparse": "csr" if self.accepts_sparse else False,
            "dtype": [np.float64, np.float32] if self.dtype is None else self.dtype,
            "order": self.order,
            "ensure_all_finite": "allow-nan" if self.accepts_missing else True,
        }
        X = require_rows(X, self.owner.__name__, missing=self.accepts_missing)
        try:
            return self._validate(X, requirements)
        except (TypeError, ValueError) as error:
            if sp.issparse(X) and not self.accepts_sparse:
                raise TypeError(
                    f"{self.owner.__name__} takes dense rows, but X is sparse. Reduce X to a few "
                    "columns, by TruncatedSVD from sklearn.decomposition, or pass X.toarray() if "
                    "this array fits in memory. MemoizedDPMixture takes sparse counts as they are."
                ) from error
            # Raise an error with a remedy if X holds paths, text or dates.
            text = find_text(X)
            if isinstance(text, PathLike):
                raise ValueError(
                    f"{self.owner.__name__} takes numbers, but X has paths, such as "
                    f"{str(text)!r}. Read the files first: texts = "
                    f"[path.read_text(encoding='utf-8') for path in paths]. {self.remedy}"
                ) from error
            if text is not None:
                raise ValueError(
                    f"{self.owner.__name__} takes numbers, but X has text, such as {text[:40]!r}. "
                    f"{self.remedy}"
                ) from error
            if "contains NaN" in str(error):
                raise ValueError(f"{_describe_missing(X)} {self.missing_remedy}") from error
            unread_column = find_unread_column(X)
            if unread_column is None:
                raise
            name, column = unread_column
            raise type(error)(
                f"{self.owner.__name__} takes numbers, but column {name!r} is of type "
                f"{column.type}. {column.remedy}"
            ) from error

    def fit_and_read_weighted(self, X, sample_weight):
        """Return the fitted reader, the rows of positive weight as numbers, and their weights."""
        reader, X = self.fit_and_read(X)
        # Warn of the first rows only. Readers of tables warn of columns by themselves.
        if self.dtype is None and not self.needs_scan and hasattr(self.owner, "impute"):
            _warn_of_empty_columns(X)
        X, weights = reader.select_weighted(X, sample_weight)
        if self.dtype is None:
            warn_of_weights(X, weights)
            reader._warn_of_rows(X)
        return reader, X, weights

    def _warn_of_rows(self, X):
        """Warn of the first rows of positive weight, X, if the model can hardly learn from them."""

    def read(self, X):
        """Return X as numbers; X must have the columns of the first rows."""
        _, numbers = self.fit_and_read(X)
        return numbers

    def refuse_other_names(self, X, names):
        """Raise ValueError if columns of a data frame have ``names``, but not all in their order.

        ``names`` are those that the user has given to the columns of the fit, or None. A data frame
        without any of these names may be named in another way.
        """
        if names is None or not is_frame(X) or "feature_names_in_" in self.attributes:
            return
        columns = list_column_names(X)
        if columns != tuple(names) and not set(names).isdisjoint(columns):
            raise ValueError(
                "The columns of X are not the names of set_words in the same order. "
                + self.names_remedy.replace("feature_names_in_", "words_")
            )

    def with_parameters(self, estimator):
        """Return this fitted reader with the parameters of an estimator that may change later."""
        return self

    def restore(self, attributes, dtype):
        """Return this reader as if it had been fitted to the rows of an estimator in a file.

        ``attributes`` are the attributes of the estimator by name, and ``dtype`` is the precision
        of its rows.
        """
        names = "n_features_in_", "feature_names_in_"
        attributes = {name: attributes[name] for name in names if name in attributes}
        return replace(self, attributes=attributes, dtype=np.dtype(dtype))

    def scan(self, X):
        """Return the data of a chunk X that :meth:`learn_from_scans` needs, or None."""

    def learn_from_scans(self, scans):
        """Return the reader that knows the rows of all chunks, such as their categories.

        ``scans`` has the result of :meth:`scan` by the number of the chunk.
        """
        return self

    def _validate(self, X, requirements):
        """Return X after scikit-learn's checks, and the attributes that the checks set.

        ``requirements`` are keyword arguments of ``validate_data``.
        """
        if self._is_legal_array(X):
            return X, self.attributes
        # scikit-learn sets attributes of an estimator, and names its class in errors. Pass an empty
        # object of the estimator's class.
        estimator = object.__new__(self.owner)
        vars(estimator).update(self.attributes)
        try:
            X = validate_data(estimator, X, reset=self.dtype is None, **requirements)
        except OverflowError as error:
            raise ValueError(
                "Input X contains whole numbers beyond the range of float64. Columns take finite "
                "numbers: correct these, or replace them by NaN if the estimator allows it."
            ) from error
        except ValueError as error:
            if str(error).startswith("The feature names should match"):
                raise ValueError(f"{error}{self.names_remedy}") from error
            if self.width_remedy and "features, but" in str(error):
                raise ValueError(f"{error} {self.width_remedy}") from error
            raise
        return X, vars(estimator)

    def _is_legal_array(self, X):
        """Return whether X is an array like the first rows, which scikit-learn returns unchanged.

        The checks of scikit-learn are left out for such X, because they take as long as the local
        step of a few rows.
        """
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype == self.dtype
            and len(X) > 0
            and X.shape[1] == self.attributes.get("n_features_in_")
            and "feature_names_in_" not in self.attributes
            and (self.order is None or X.flags.c_contiguous)
            and (not np.isinf(X).any() if self.accepts_missing else bool(np.isfinite(X).all()))
        )

    def _require_legal(self, X):
        """Return rows X in the form that the model takes; raise ValueError for illegal values."""
        names = self.attributes.get("feature_names_in_", range(X.shape[1]))
        check_magnitude(X, lambda is_illegal: names[int(np.argmax(is_illegal.any(axis=0)))])
        return X

    def select_weighted(self, X, sample_weight):
        """Return the rows of positive weight, and their weights as float64."""
        if sample_weight is None:
            return X, np.ones(X.shape[0])
        refuse_masked_weights(sample_weight)
        weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        # scikit-learn before 1.8 accepts weights that are all 0.
        if not weights.any():
            raise ValueError("Sample weights must contain at least one non-zero number.")
        # The model uses weights in the precision of X, in which they must not become 0 or infinite.
        with np.errstate(over="ignore", under="ignore"):
            rounded_weights = weights.astype(X.dtype)
        if np.any((rounded_weights == 0.0) != (weights == 0.0)) or np.isinf(rounded_weights).any():
            raise ValueError(
                f"Each value of sample_weight must be 0 or within the range of {X.dtype}. Got "
                f"weights from {weights.min():g} to {weights.max():g}; multiply all of them by "
                "one number."
            )
        if self.adds_up:
            total = sum_entries(X, weights)
            if total > 0.0 and not is_in_legal_range(total):
                raise ValueError(
                    f"The sum of X, weighted by sample_weight, must be 0 or in {LEGAL_RANGE}. The "
                    f"sum is {total:g}, with weights from {weights.min():g} to {weights.max():g}; "
                    "multiply X or the weights by one number."
                )
        is_used = weights > 0.0
        return (X, weights) if is_used.all() else (X[is_used], weights[is_used])


class RealReader(Reader):
    """Reader of real numbers, NaN where a value is missing."""

    accepts_missing = True

    def _require_legal(self, X):
        """Return X; raise ValueError for illegal values, and warn of empty rows."""
        X = super()._require_legal(X)
        warn_of_empty_rows(X)
        return X


class ContiguousReader(RealReader):
    """Reader of real numbers in C order, row after row."""

    order = "C"


@dataclass(frozen=True)
class BinaryReader(Reader):
    """Reader of zeros and ones, which ``threshold`` can make from other numbers.

    If there is a threshold, values above the threshold become 1, and other values become 0.
    """

    threshold: float | None = None

    accepts_sparse = accepts_missing = True
    remedy = (
        "Turn answers into ones and zeros: (X == 'yes').astype(float).where(X.notna()) of a data "
        "frame keeps missing values. MemoizedDPMixture takes answers as they are."
    )

    @classmethod
    def from_estimator(cls, estimator):
        """Make a reader with an estimator's parameters, before the first rows."""
        return cls(type(estimator), threshold=estimator.binarize)

    def _require_legal(self, X):
        """Return X with values 0, 1 and NaN; without a threshold, other values raise ValueError."""
        warn_of_empty_rows(X)
        if sp.issparse(X):
            if self.threshold is not None and self.threshold < 0.0:
                raise ValueError(
                    "With sparse X, the 'binarize' parameter must be in the range [0, inf), "
                    f"because zeros are not stored. Got {self.threshold}."
                )
            X = to_canonical_csr(X)
        values = X.data if sp.issparse(X) else X
        if self.threshold is None:
            require_binary(values)
            return X
        is_above = values > self.threshold
        values = np.where(np.isnan(values), values, is_above).astype(X.dtype, copy=False)
        return sp.csr_array((values, X.indices, X.indptr), X.shape) if sp.issparse(X) else values


class CountReader(Reader):
    """Reader of counts or magnitudes, NaN where a value is missing."""

    accepts_sparse = accepts_missing = adds_up = True

    def _require_legal(self, X):
        """Return X; raise ValueError for negative values and sums out of range."""
        if sp.issparse(X):
            X = to_canonical_csr(X)
        require_counts(X, self.owner.__name__, "counts or magnitudes")
        return X


class DocumentReader(Reader):
    """Reader of counts of words, as CSR matrices without duplicates and stored zeros."""

    accepts_sparse = adds_up = True
    remedy = (
        "Count the words first: CountVectorizer().fit_transform(texts), from "
        "sklearn.feature_extraction.text."
    )
    missing_remedy = (
        "If a missing count means that the text does not have the word, replace it by 0, in pandas "
        "by X.fillna(0). Leave out texts that have not been counted, in pandas by "
        "X.dropna(how='all')."
    )
    names_remedy = (
        "Pass X.reindex(columns=model.feature_names_in_, fill_value=0), which sorts the columns, "
        "counts words that X lacks as 0, and leaves out words that the fit does not know."
    )
    width_remedy = (
        "Count new texts by the vectorizer of the fit, vectorizer.transform(texts), not by "
        "fit_transform, which makes another vocabulary."
    )

    def _to_numbers(self, X):
        """Return X as numbers, as the base class does, with a better error for bags of words."""
        try:
            return super()._to_numbers(X)
        except (TypeError, ValueError):
            refuse_bags(X, self.owner.__name__)
            raise

    def _require_legal(self, X):
        """Return X without stored zeros; raise ValueError unless X holds counts of words."""
        return require_word_counts(X, self.owner.__name__, warns=self.dtype is None)

    def _warn_of_rows(self, X):
        """Warn if most rows have no words, a column counts no word, or texts have many copies."""
        self._warn_of_columns(X)
        self._warn_of_copies(X)
        n_rows, n_empty = X.shape[0], np.count_nonzero(np.diff(X.indptr) == 0)
        if self.in_stream or 2 * n_empty <= n_rows:
            return
        topics = "Topics are the prior" if n_empty == n_rows else "Topics come from the others only"
        warnings.warn(
            f"{n_empty} of {n_rows} rows have no words. {topics}. Count the words with the "
            "vocabulary of these texts: check the 'vocabulary', 'token_pattern' and 'min_df' of "
            "CountVectorizer.",
            UserWarning,
            stacklevel=find_stack_level(),
        )

    def _warn_of_columns(self, X):
        """Warn of a column that is half of all counts, such as years or lengths of documents."""
        sums = np.asarray(X.sum(axis=0, dtype=np.float64))
        j = int(np.argmax(sums))
        if min(X.shape) < _MIN_SIZE or 2.0 * sums[j] < sums.sum() or sums[j] == 0.0:
            return
        # A few large counts of a word do not make it a year or a length.
        row_sums = np.asarray(X.sum(axis=1, dtype=np.float64))
        if np.median(2.0 * dense(X[:, [j]])[:, 0] - row_sums) < 0.0:
            return
        name = self.attributes.get("feature_names_in_", range(X.shape[1]))[j]
        warnings.warn(
            f"The column {name!r} has {sums[j] / sums.sum():.0%} of all counts, so that it decides "
            "the topics. If it is a year, a length or a number of the document, leave it out; if "
            "it is a word, count without it, by 'stop_words' or 'max_df' of CountVectorizer.",
            UserWarning,
            stacklevel=find_stack_level(),
        )

    def _warn_of_copies(self, X):
        """Warn of texts with many copies, such as retweets, each of which may become a topic."""
        if self.in_stream or min(X.shape) < _MIN_SIZE:
            return
        n_copies = _count_copies(X)
        if n_copies <= _MIN_SHARE_OF_COPIES * X.shape[0]:
            return
        warnings.warn(
            f"{n_copies} of {X.shape[0]} rows have the words of {_MIN_COPIES - 1} or more other "
            "rows. Copies of a text, such as retweets or form letters, become topics, and too many "
            "topics have the highest score. Fit to one row of each text, without the rows that "
            "pandas.Series(texts).duplicated() finds.",
            UserWarning,
            stacklevel=find_stack_level(),
        )


def _count_copies(X):
    """Return the number of rows of counts of words X (n, V) whose text has at least `_MIN_COPIES`.

    Rows with the same counts have the same text. Texts that are equal by chance are not copies.
    """
    # Sums of random numbers of words are equal only if all counts of words are equal.
    sums = X @ np.random.default_rng(0).random(X.shape[1])
    _, first_rows, n_rows = np.unique(sums, return_index=True, return_counts=True)
    is_frequent = n_rows >= _MIN_COPIES
    if not is_frequent.any():
        return 0
    # The distinct texts, with 1 for each word that a text has. Their shares of texts with each word
    # do not depend on the numbers of copies; the numbers added keep shares between 0 and 1.
    has_word = X[first_rows].astype(bool).astype(np.float64)
    share = (has_word.sum(axis=0) + 0.5) / (first_rows.size + 1.0)
    log_share, log_other = np.log(share), np.log1p(-share)
    log_probability = log_other.sum() + has_word @ (log_share - log_other)
    is_long = np.diff(has_word.indptr) >= _MIN_WORDS_OF_COPIES
    is_unlikely = log_probability < np.log(_MAX_EXPECTED_ROWS / X.shape[0])
    # A single text determines no shares.
    is_copy = is_frequent & is_long & (is_unlikely | (first_rows.size == 1))
    return int(n_rows[is_copy].sum())


def _describe_missing(X):
    """Return a sentence that says that rows X have missing values, and where in a data frame."""
    names = list_column_names(X) if is_frame(X) else ()
    columns = list_columns(X) if is_frame(X) else ()
    for name, column in zip(names, columns, strict=True):
        if any(map(is_missing, column.to_objects())):
            return f"Input X contains NaN, first in column {name!r}."
    return "Input X contains NaN."


def _warn_of_empty_columns(X):
    """Warn of columns without any value, because only the prior determines their parameters."""
    # If no value of the first row is NaN, no column is empty, and the slower check is not needed.
    if sp.issparse(X) or X.size == 0 or not np.isnan(X[0]).any():
        return
    columns = np.flatnonzero(np.isnan(X).all(axis=0))
    if columns.size:
        warnings.warn(
            f"{columns.size} of {X.shape[1]} columns have NaN only (columns "
            f"{show_first(columns.tolist())}). The prior alone determines their parameters and "
            "what 'impute' fills in; leave these columns out if that is not intended.",
            UserWarning,
            stacklevel=find_stack_level(),
        )


def warn_of_weights(X, weights):
    """Warn of weights (n,) that are probably not numbers of equal rows X (n, D).

    Weights of a survey, for example, add up to the number of people in a country.
    """
    if weights.size < _MIN_WEIGHTS:
        return
    min_mean, max_mean = _MEAN_WEIGHTS
    if not min_mean <= weights.mean() <= max_mean and not _may_count_rows(X, weights):
        warnings.warn(
            f"sample_weight adds up to {weights.sum():.4g} for {weights.size} rows of positive "
            "weight. A row of weight w counts as w rows, so that the fit takes the sum for the "
            "number of rows: a far larger one gives too many components and too narrow intervals, "
            "a far smaller one too few components. Unless weights are numbers of equal rows, "
            "divide them by their mean: sample_weight=weights / weights.mean().",
            UserWarning,
            stacklevel=find_stack_level(),
        )


def _may_count_rows(X, weights):
    """Return whether weights (n,) of large mean may say how often each row of X (n, D) occurred.

    Numbers of equal rows are whole, and one of two conditions holds:

    - The values of the columns can be combined in many more ways than X has rows. Many combinations
      then occur only once or twice: at least 1 in m weights is 1 or 2, where m is the mean weight.
      For comparison, 1 in m geometric numbers of mean m is 1.
    - X has most of the combinations, each in one row, as a table of all answers to a few questions
      has.
    """
    if not np.array_equal(weights, np.floor(weights)):
        return False
    if np.mean(weights <= 2.0) >= 1.0 / weights.mean():
        return True
    n_rows, n_columns = X.shape
    if n_columns > _MAX_COLUMNS_OF_COMBINATIONS:
        return False
    n_combinations = 1
    for j in range(n_columns):
        n_combinations *= np.unique(dense(X[:, [j]])).size
        if n_combinations > 2 * n_rows:
            return False
    return np.unique(dense(X), axis=0).shape[0] == n_rows
