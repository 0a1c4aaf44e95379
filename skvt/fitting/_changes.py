"""Comparison of an estimator's parameters with their values at its last call."""

import numpy as np
from sklearn.base import BaseEstimator

# Parameters that may change before an interrupted fit is resumed, since the passes so far do not
# depend on them. ``random_state`` is one of them, because a file holds the seeds of the starts.
FREE_TO_CHANGE = frozenset(
    "max_iter tol perp_tol evaluate_every verbose verbose_interval n_jobs random_state".split()
)


def parameters_of(estimator):
    """Return the parameters by name, for a later comparison.

    Estimators and parameters that are fixed in streams are copied, so that changes in place are
    noticed. Other parameters are not copied, since their arrays may be as large as the data.
    """
    return {
        name: _copied(value)
        if name in estimator._fixed_in_streams or isinstance(value, BaseEstimator)
        else value
        for name, value in _values(estimator).items()
    }


def _values(estimator):
    """Return the parameters by name, without copies."""
    return {name: getattr(estimator, name) for name in estimator._get_param_names()}


def refuse_changes(estimator, fitted, caller, names, remedy):
    """Raise ValueError if one of these parameters differs from its value at the last call."""
    for name in names:
        before, now = fitted.parameters[name], getattr(estimator, name)
        if not _is_same(before, now):
            raise ValueError(
                f"{caller} continues the model fitted before, with {name}={before!r}. Got "
                f"{name}={now!r}; set it back, or {remedy}."
            )


def check_changes(estimator, fitted):
    """Check the parameters changed since the last call of a stream.

    Return None if there are none, and otherwise whether the model depends on one of them.
    """
    before, now = fitted.parameters, _values(estimator)
    changed = {name for name in now if not _is_same(before.get(name), now[name])}
    if not changed:
        return None
    # Validate again, since scikit-learn does so only in the first call of partial_fit.
    estimator._validate_params()
    fixed = estimator._fixed_in_streams
    refuse_changes(estimator, fitted, "partial_fit", fixed, "fit a clone to start anew")
    return not changed <= FREE_TO_CHANGE


def _copied(value):
    """Copy the lists, tuples, estimators and arrays in the value of a parameter.

    Other objects, such as selectors of columns, are not copied: a copy would not be equal to the
    original.
    """
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value))
    if isinstance(value, BaseEstimator):
        return type(value)(
            **{name: _copied(part) for name, part in value.get_params(deep=False).items()}
        )
    return value.copy() if isinstance(value, np.ndarray) else value


def _is_same(first, second):
    """Return whether two values of a parameter are equal; arrays are compared by element."""
    if first is second:
        return True
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, BaseEstimator) and type(first) is type(second):
        return _is_same(list(first.get_params().items()), list(second.get_params().items()))
    if np.ndim(first) == np.ndim(second) == 0:
        return bool(first == second)
    return np.shape(first) == np.shape(second) and bool(np.array_equal(first, second))
