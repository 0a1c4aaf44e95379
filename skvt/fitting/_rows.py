"""The rows of a call, as an estimator's reader reads them."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvt.inference import Workers
from skvt.readers import Reader
from skvt.readers.chunks import released, rows_read
from skvt.readers.labels import RowLabels
from skvt.rows import layout_of
from skvt.stages import stages_printed


@dataclass(frozen=True)
class CallRows:
    """The rows of one call, as the caller passed them and as numbers."""

    # X as passed; None for one of several chunks.
    passed: Any
    # Rows of positive weight, (n, D), and their weights, (n,), in memory or in chunks.
    X: Any
    weights: Any
    # The reader of these rows, which also reads later rows.
    reader: Reader
    # y as passed.
    y: Any = None
    # Classes of the rows; None unless the estimator uses labels.
    labels: RowLabels | None = None
    # Whether the call is one of ``partial_fit``.
    in_stream: bool = False

    @property
    def shown(self):
        """X and y as callbacks get them; zeros in place of y if there is none."""
        if self.y is not None:
            return self.passed, self.y
        # ScoringMonitor of scikit-learn 1.9 needs a target to compute scores, even if the scorer
        # ignores it.
        n_rows = self.X.shape[0] if layout_of(self.X).size else np.shape(self.passed)[0]
        return self.passed, np.zeros(n_rows)


def read_rows(estimator, X, sample_weight, details=None, *, reset, in_stream=False):
    """Return the rows of a call, read by a new reader if ``reset``, else by that of the fit.

    ``details`` is what the caller passed about rows besides X, by name.
    """
    reader = replace(estimator._reads.of(estimator), in_stream=in_stream)
    reader = reader if reset else estimator._fitted.reader
    reader, numbers, weights = rows_read(reader, X, sample_weight)
    if reset:
        for name in ("feature_names_in_", "_covariates"):
            vars(estimator).pop(name, None)
        vars(estimator).update(reader.columns)
    rows = CallRows(X, numbers, weights, reader, in_stream=in_stream)
    if reset and not details:
        return rows
    used = slice(None) if sample_weight is None else np.asarray(sample_weight) > 0.0
    return replace(rows, X=estimator._with_details(rows, details or {}, used, reset=reset))


@contextmanager
def given_rows(estimator, X, sample_weight=None, details=None, *, reset=False):
    """Provide the :class:`CallRows` of a call; after the block, a cluster may free the rows."""
    rows = read_rows(estimator, X, sample_weight, details, reset=reset)
    try:
        yield rows
    finally:
        released(rows.X)


@contextmanager
def rows_at_work(estimator, X, y, sample_weight, *, labels=None, details=None, reset=False):
    """Provide the :class:`CallRows` of a fit and its threads; print stages if it is verbose."""
    reading = given_rows(estimator, X, sample_weight, details, reset=reset)
    shown, threads = stages_printed(estimator.verbose), Workers(estimator.n_jobs)
    with shown, reading as rows, threads as workers:
        yield replace(rows, y=y, labels=labels), workers
