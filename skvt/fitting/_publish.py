"""The attributes that an estimator has after a call."""

from dataclasses import replace


def publish(estimator, fitted, rows, **attributes):
    """Set all attributes of an estimator after a call: no other function does."""
    vars(estimator).pop("_progress", None)
    fitted = replace(fitted, reader=rows.reader)
    estimator._fitted, estimator.n_iter_ = fitted, len(fitted.history)
    vars(estimator).update(attributes | estimator._published(fitted.model))
    # results of rows are computed from the attributes so far
    estimator._fitted = replace(fitted, **estimator._row_results(rows))
