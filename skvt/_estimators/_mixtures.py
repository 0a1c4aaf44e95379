"""Checks of the rows of a mixture, and of initial components that users pass as means or labels."""

from dataclasses import replace

import numpy as np

from skvt.models.mixture import initialise_from_labels
from skvt.readers.validation import MAX_VALUE, illegal_value_error
from skvt.rows import get_chunk_sizes


def require_rows(estimator, X, min_rows):
    """Raise ValueError if X has fewer than ``min_rows`` rows."""
    if X.shape[0] < min_rows:
        raise ValueError(
            f"Expected n_samples >= n_components but got n_components = {estimator.n_components}, "
            f"n_samples = {X.shape[0]}. Lower n_components or give more rows."
        )


def make_initial_means(estimator, X):
    """Return the parameter ``means_init`` as an array (K, D); raise ValueError if it is illegal.

    K is the number of components, and D the number of columns of X.
    """
    means = np.asarray(estimator.means_init, dtype=np.float64)
    shape = (estimator.n_components, X.shape[1])
    if means.shape != shape or not np.all(np.abs(means) <= MAX_VALUE[X.dtype]):
        legal_values = (
            f"an array of shape (n_components, n_features) = {shape} of finite numbers, no larger "
            f"than {MAX_VALUE[X.dtype]:g} in {X.dtype}"
        )
        raise illegal_value_error("means_init", legal_values, repr(estimator.means_init))
    return means


def start_from_labels(model, labels, X, weights, max_components):
    """Return the model with an initial component for each of the ``labels`` of the rows X.

    Raise ValueError for illegal labels, for more labels than ``max_components``, and for rows in
    chunks.
    """
    # `get_chunk_sizes` returns an empty array for rows in memory.
    if get_chunk_sizes(X).size:
        raise ValueError(
            "The 'labels_init' parameter takes labels of rows in memory only, but X has its rows "
            "in chunks. Leave it None, or fit to some of the rows first and continue with "
            "warm_start=True."
        )
    row_labels = np.asarray(labels)
    # The kinds of dtypes are signed integers, unsigned integers and floating-point numbers.
    is_legal = row_labels.shape == (X.shape[0],) and row_labels.dtype.kind in "iuf"
    if is_legal:
        # The conversion to integers changes labels that are NaN, infinite or not whole.
        with np.errstate(invalid="ignore"):
            whole_labels = row_labels.astype(np.int64)
        is_legal = np.array_equal(whole_labels, row_labels)
        row_labels = whole_labels
    if not is_legal or row_labels.min() < -1 or row_labels.max() < 0:
        raise ValueError(
            "The 'labels_init' parameter must be an array of shape (n_samples,) = "
            f"({X.shape[0]},) of whole numbers, one for each row of positive weight: 0, 1, 2 and "
            "so on, or -1 where the label is not known. At least one label must be known. Got "
            f"{labels!r} instead."
        )
    is_known = row_labels >= 0
    # The inverse numbers the distinct labels 0, 1, ..., and these numbers are the components.
    distinct_labels, components = np.unique(row_labels[is_known], return_inverse=True)
    if max_components is not None and distinct_labels.size > max_components:
        legal_values = f"in the range [number of labels, inf) = [{distinct_labels.size}, inf)"
        raise illegal_value_error("max_components", legal_values, max_components)
    # Rows of unknown label have the component -1.
    row_components = np.full(row_labels.size, -1, np.intp)
    row_components[is_known] = components
    return replace(model, start=initialise_from_labels(model, X, weights, row_components))
