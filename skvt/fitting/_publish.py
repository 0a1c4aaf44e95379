"""The attributes of an estimator, which ``fit``, ``partial_fit`` and ``resume`` set at the end."""

from dataclasses import replace


def publish(estimator, fitted, rows, workers, **attributes):
    """Set the attributes of an estimator after a call whose outcome is ``fitted``.

    ``attributes`` are further attributes by name. Attributes of columns and covariates are not
    set here, because they were set when the rows were read.
    """
    vars(estimator).pop("_progress", None)
    fitted = replace(fitted, reader=rows.reader)
    estimator._fitted = fitted
    estimator.n_iter_ = len(fitted.history)
    vars(estimator).update(attributes | estimator._attributes_of_model(fitted.model))
    # The results of rows come last, since they are computed from the attributes set so far.
    estimator._fitted = replace(fitted, **estimator._row_results(rows, workers))
