"""Readers, which return rows as numbers in one precision or raise errors with remedies."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from skvt.readers._columns import find_unread_column
from skvt.readers.validation import (
    ENCODE,
    LEGAL_RANGE,
    admitted,
    check_magnitude,
    counts_of_words,
    each_entry_once,
    in_range,
    refuse_masked_weights,
    require_binary,
    require_counts,
    stack_level,
    text_in,
    total_of,
    warn_of_empty_rows,
)
from skvt.sklearn_private import check_sample_weight


@dataclass(frozen=True)
class Reader:
    """Reader of real numbers, and base of the other readers.

    A reader can be sent to the processes that hold the rows. It does not depend on a model; it
    takes the requirements on later rows from the first rows.
    """

    # Class of the estimator, for its name in errors.
    owner: type
    # Attributes of an estimator by which later rows are checked, once rows have been read:
    # ``n_features_in_``, ``feature_names_in_``.
    columns: dict[str, Any] = field(default_factory=dict)
    # Precision of the rows; None before the first rows.
    dtype: np.dtype[Any] | None = None
    # Whether the first rows are those of a stream, whose later rows may differ from them.
    in_stream: bool = False

    # Whether rows may be sparse, and whether values may be missing.
    sparse: ClassVar[bool] = False
    missing: ClassVar[bool] = False
    # Memory order of arrays; None keeps the order of the input.
    order: ClassVar[str | None] = None
    # Whether models depend on the sum of all numbers, as for counts.
    adds_up: ClassVar[bool] = False
    # Whether all rows must be scanned before any is read, see `scan`.
    needs_scan: ClassVar[bool] = False
    # Remedy for text.
    remedy: ClassVar[str] = ENCODE

    @classmethod
    def of(cls, estimator):
        """The reader by an estimator's parameters, before the first rows."""
        return cls(type(estimator))

    def first(self, X):
        """Return the reader of further rows, and these rows as numbers; raise if illegal."""
        X, columns = self._numbers(X)
        X = self._legal(X)
        return replace(self, columns=columns, dtype=X.dtype), X

    def _numbers(self, X):
        """Return X as an array or CSR matrix of numbers, and the attributes of its columns."""
        legal = {
            "accept_sparse": "csr" if self.sparse else False,
            "dtype": [np.float64, np.float32] if self.dtype is None else self.dtype,
            "order": self.order,
            "ensure_all_finite": "allow-nan" if self.missing else True,
        }
        X = admitted(X, self.owner.__name__, missing=self.missing)
        try:
            return self._checked(X, legal)
        except (TypeError, ValueError) as error:
            example, unread = text_in(X), find_unread_column(X)
            if example is not None:
                raise ValueError(
                    f"X holds text, such as {example[:40]!r}, and {self.owner.__name__} takes "
                    f"numbers. {self.remedy}"
                ) from error
            if unread is None:
                raise
            name, column = unread
            raise type(error)(
                f"Column {name!r} is of the type {column.type}, and {self.owner.__name__} takes "
                f"numbers. {column.remedy}"
            ) from error

    def first_weighted(self, X, sample_weight):
        """Return the reader of further rows, the rows of positive weight, and their weights."""
        reader, X = self.first(X)
        # Readers that scan warn of empty columns elsewhere.
        if self.dtype is None and not self.needs_scan and hasattr(self.owner, "impute"):
            _warn_of_empty_columns(X)
        return reader, *reader.weighted(X, sample_weight)

    def read(self, X):
        """Return rows like the first rows as numbers."""
        return self.first(X)[1]

    def resumed(self, attributes, dtype):
        """Return the reader of later rows, by the estimator's attributes and the precision."""
        columns = {name: attributes[name] for name in ("n_features_in_", "feature_names_in_")
                   if name in attributes}  # fmt: skip
        return replace(self, columns=columns, dtype=np.dtype(dtype))

    def scan(self, X):
        """Return the data of some rows from which :meth:`scanned` learns about all rows."""

    def scanned(self, scans):
        """Return the reader after the scans of all chunks, given by number."""
        return self

    def _checked(self, X, legal):
        """Return X after scikit-learn's checks, and the attributes that these set."""
        # scikit-learn sets attributes of an estimator, whose class it names in errors
        owner = object.__new__(self.owner)
        vars(owner).update(self.columns)
        return validate_data(owner, X, reset=self.dtype is None, **legal), vars(owner)

    def _legal(self, X):
        """Return the rows as the model takes them; raise ValueError for illegal values."""
        check_magnitude(X)
        return X

    def weighted(self, X, sample_weight):
        """Return the rows of positive weight, and their weights as float64."""
        if sample_weight is None:
            return X, np.ones(X.shape[0])
        refuse_masked_weights(sample_weight)
        weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():  # scikit-learn before 1.8 does not check this
            raise ValueError("Sample weights must contain at least one non-zero number.")
        with np.errstate(over="ignore", under="ignore"):
            as_computed = weights.astype(X.dtype)
        if np.any((as_computed == 0.0) != (weights == 0.0)) or np.isinf(as_computed).any():
            raise ValueError(
                f"sample_weight must be 0 or in the range of {X.dtype}. Got weights from "
                f"{weights.min():g} to {weights.max():g}; scale them."
            )
        if self.adds_up:
            total = total_of(X, weights)
            if total > 0.0 and not in_range(total):
                raise ValueError(
                    f"sample_weight times X must add up to 0 or a number in {LEGAL_RANGE}. Got a "
                    f"sum of {total:g}, weights from {weights.min():g} to {weights.max():g}; scale "
                    "them."
                )
        used = weights > 0.0
        return (X, weights) if used.all() else (X[used], weights[used])


class RealReader(Reader):
    """Reader of real numbers, NaN where a value is missing."""

    missing = True

    def _legal(self, X):
        X = super()._legal(X)
        warn_of_empty_rows(X)
        return X


class ContiguousReader(RealReader):
    """Reader of real numbers in C order, row after row."""

    order = "C"


@dataclass(frozen=True)
class BinaryReader(Reader):
    """Reader of zeros and ones; with a threshold, values above it count as 1, others as 0."""

    threshold: float | None = None

    sparse = missing = True

    @classmethod
    def of(cls, estimator):
        """The reader by an estimator's parameters, before the first rows."""
        return cls(type(estimator), threshold=estimator.binarize)

    def _legal(self, X):
        warn_of_empty_rows(X)
        if sp.issparse(X):
            if self.threshold is not None and self.threshold < 0.0:
                raise ValueError(
                    "The 'binarize' parameter must not be negative for sparse data. Got "
                    f"{self.threshold}."
                )
            X = each_entry_once(X)
        values = X.data if sp.issparse(X) else X
        if self.threshold is None:
            require_binary(values)
            return X
        ones = values > self.threshold
        values = np.where(np.isnan(values), values, ones).astype(X.dtype, copy=False)
        return sp.csr_array((values, X.indices, X.indptr), X.shape) if sp.issparse(X) else values


class CountReader(Reader):
    """Reader of counts or magnitudes, NaN where a value is missing."""

    sparse = missing = adds_up = True

    def _legal(self, X):
        if sp.issparse(X):
            X = each_entry_once(X)
        require_counts(X, self.owner.__name__, "counts or magnitudes")
        return X


class DocumentReader(Reader):
    """Reader of counts of words, as canonical CSR matrices."""

    sparse = adds_up = True
    remedy = (
        "Count the words first: CountVectorizer().fit_transform(texts), of "
        "sklearn.feature_extraction.text."
    )

    def _legal(self, X):
        return counts_of_words(X, self.owner.__name__, warns=self.dtype is None)


def _warn_of_empty_columns(X):
    """Warn of columns without any value: only the prior informs their parameters."""
    if sp.issparse(X) or X.size == 0 or not np.isnan(X[0]).any():
        return
    columns = np.flatnonzero(np.isnan(X).all(axis=0))
    if columns.size:
        shown = ", ".join(map(str, columns[:10])) + (", ..." if columns.size > 10 else "")
        warnings.warn(
            f"{columns.size} of {X.shape[1]} columns have no value: all are NaN (columns {shown}). "
            "Nothing is known of them but the prior, by which 'impute' would fill them in; leave "
            "them out if that is not meant.",
            UserWarning,
            stacklevel=stack_level(),
        )
