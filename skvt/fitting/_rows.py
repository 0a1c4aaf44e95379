"""Reading of the rows that are passed to a method of an estimator.

A *reader* checks rows and converts them to numbers, see :mod:`skvt.readers`.
"""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvt.inference import Workers
from skvt.readers import Reader
from skvt.readers.chunks import read_rows_with, release
from skvt.readers.labels import RowLabels
from skvt.readers.validation import require_order_of
from skvt.rows import get_chunk_sizes


@dataclass(frozen=True)
class CallRows:
    """The rows of a call of a method, as the caller passed them and as numbers."""

    # X as the caller passed it; None if ``partial_fit`` has loaded the rows as a chunk of X.
    passed_X: Any
    # Rows of positive weight as numbers, (n, D), in memory or in chunks.
    X: Any
    # Weights of these rows, (n,), in memory or in chunks.
    weights: Any
    # The reader that has read the rows, and by which later rows are read in the same way.
    reader: Reader
    # y as the caller passed it.
    y: Any = None
    # Classes of the rows; None unless the estimator uses labels.
    labels: RowLabels | None = None
    # Whether the method is ``partial_fit``.
    in_stream: bool = False

    @property
    def callback_data(self):
        """X and y for callbacks; y consists of zeros if the caller passed None."""
        if self.y is not None:
            return self.passed_X, self.y
        # The zeros stand for a target, without which ScoringMonitor of scikit-learn 1.9 computes no
        # scores, even if the scorer ignores the target. The number of rows in chunks is known only
        # after reading, without rows of weight 0.
        n_rows = self.X.shape[0] if get_chunk_sizes(self.X).size else np.shape(self.passed_X)[0]
        return self.passed_X, np.zeros(n_rows)


def read_rows(estimator, X, sample_weight, details=None, *, reset, in_stream=False):
    """Read the rows of a call; return :class:`CallRows` without y and labels.

    If ``reset``, the rows begin a fit: a new reader reads them, and the estimator gets attributes
    of the columns, such as ``n_features_in_``. Otherwise the reader of the fit reads the rows.
    ``details`` are further arguments about the rows by name, such as covariates. ``in_stream``
    tells whether the method is ``partial_fit``.

    Raise ValueError if indexes of X, weights and details have the same labels in other orders.
    """
    if sample_weight is not None:
        require_order_of(X, sample_weight=sample_weight, **(details or {}))
    if reset:
        reader = replace(estimator._reader_class.from_estimator(estimator), in_stream=in_stream)
    else:
        reader = estimator._fitted.reader.with_parameters(estimator)
        reader.refuse_other_names(X, estimator._fitted.words)
    reader, numbers, weights = read_rows_with(reader, X, sample_weight)
    if reset:
        # Remove attributes of an earlier fit, which the new rows may not have.
        for name in ("feature_names_in_", "_covariates"):
            vars(estimator).pop(name, None)
        vars(estimator).update(reader.attributes)
    rows = CallRows(X, numbers, weights, reader, in_stream=in_stream)
    # Add the details to the rows. A new fit without details has nothing to add. After a fit,
    # `_with_details` is called even without details, because it refuses rows without the details
    # that the fit had.
    if reset and not details:
        return rows
    # The reader has kept the rows of positive weight only.
    used = slice(None) if sample_weight is None else np.asarray(sample_weight) > 0.0
    return replace(rows, X=estimator._with_details(rows, details or {}, used, reset=reset))


@contextmanager
def open_rows(
    estimator, X, sample_weight=None, details=None, *, y=None, labels=None, reset=False
):  # fmt: skip
    """Provide the :class:`CallRows` and the threads of a call in a ``with`` block.

    ``y`` and ``labels`` are added to the rows; :func:`read_rows` explains the other parameters.
    After the block, the workers of a cluster may free the memory of the rows.
    """
    rows = read_rows(estimator, X, sample_weight, details, reset=reset)
    try:
        with Workers(estimator.n_jobs) as workers:
            yield replace(rows, y=y, labels=labels), workers
    finally:
        release(rows.X)
