"""The rows of a call, and the attributes that the estimator has after it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skvt.readers.labels import RowLabels
from skvt.rows import layout_of


@dataclass(frozen=True)
class CallRows:
    """The rows of one call, as the caller passed them and as numbers."""

    # X as passed; None for one of several chunks.
    passed: Any
    # Rows of positive weight, (n, D), and their weights, (n,), in memory or in chunks.
    X: Any
    weights: Any
    # y as passed.
    y: Any = None
    # Classes of the rows; None unless the estimator uses them.
    labels: RowLabels | None = None
    # Whether the call is one of ``partial_fit``.
    in_stream: bool = False

    @property
    def shown(self):
        """X and y for callbacks."""
        if self.y is not None:
            return self.passed, self.y
        # ScoringMonitor of scikit-learn 1.9 scores only with a target, which scorers of models
        # without targets ignore
        n_rows = self.X.shape[0] if layout_of(self.X).size else np.shape(self.passed)[0]
        return self.passed, np.zeros(n_rows)


def publish(estimator, fitted, rows, **attributes):
    """Set all attributes of an estimator after a call: no other function does."""
    vars(estimator).pop("_progress", None)
    estimator._fitted, estimator.n_iter_ = fitted, len(fitted.history)
    vars(estimator).update(attributes | estimator._published(fitted.model))
    # results of rows are computed from the attributes so far
    estimator._fitted = replace(fitted, **estimator._row_results(rows))
