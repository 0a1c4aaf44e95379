"""Comparison of the parameters of an estimator with their values at its last fit or other call.

Warm starts, later calls of ``partial_fit``, and ``resume`` refuse or adopt the changes.
"""

import numpy as np
from sklearn.base import BaseEstimator

# Parameters that may change before an interrupted fit is resumed, since the passes made so far do
# not depend on them. ``random_state`` may change, because the file of an interrupted fit holds the
# seeds that the fit has drawn.
FREE_TO_CHANGE = frozenset(
    "max_iter tol perp_tol evaluate_every verbose verbose_interval n_jobs random_state".split()
)


def copy_parameters(estimator):
    """Return the values of the parameters by name, for a comparison with later values.

    A value is copied, so that the comparison also finds changes in place, if it is an estimator or
    must not change within a stream, that is, between calls of ``partial_fit``. Other values are not
    copied, since their arrays may be as large as the data.
    """
    return {
        name: _copy(value)
        if name in estimator._fixed_in_streams or isinstance(value, BaseEstimator)
        else value
        for name, value in _get_current_values(estimator).items()
    }


def _get_current_values(estimator):
    """Return the values of the parameters by name, without copies."""
    return {name: getattr(estimator, name) for name in estimator._get_param_names()}


def refuse_changes(estimator, fitted, caller, names, remedy):
    """Raise ValueError if a parameter differs from its value at the last call.

    Parameters
    ----------
    estimator : estimator
    fitted : Fitted
        The outcome of the last call, with the values of the parameters.
    caller : str
        The name of the method, with which the error message begins.
    names : iterable of str
        The parameters that are compared.
    remedy : str
        The advice to the user with which the error message ends.
    """
    for name in names:
        old_value = fitted.parameters[name]
        new_value = getattr(estimator, name)
        if not _is_same(old_value, new_value):
            raise ValueError(
                f"{caller} continues the earlier fit, which had {name}={old_value!r}. Got "
                f"{name}={new_value!r}; set it back, or {remedy}."
            )


def find_changes(estimator, fitted):
    """Return the set of names of the parameters that have changed since the last call."""
    old, new = fitted.parameters, _get_current_values(estimator)
    # Most values are the same objects as before. Leave them out before the slower `_is_same`.
    other_objects = {name for name, value in new.items() if value is not old.get(name)}
    return {name for name in other_objects if not _is_same(old.get(name), new[name])}


def _copy(value):
    """Copy the lists, tuples, estimators and arrays in the value of a parameter.

    Other objects, such as selectors of columns, are not copied, because a copy may be unequal to
    the original, and would seem to be a change.
    """
    if isinstance(value, list | tuple):
        return type(value)(map(_copy, value))
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        return type(value)(**{name: _copy(nested) for name, nested in parameters.items()})
    return value.copy() if isinstance(value, np.ndarray) else value


def _is_same(first, second):
    """Return whether two values of a parameter are equal.

    Lists, tuples, estimators and arrays are compared item by item.
    """
    if first is second:
        return True
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, BaseEstimator) and type(first) is type(second):
        return _is_same(list(first.get_params().items()), list(second.get_params().items()))
    if np.ndim(first) == np.ndim(second) == 0:
        return bool(first == second)
    return np.shape(first) == np.shape(second) and bool(np.array_equal(first, second))
