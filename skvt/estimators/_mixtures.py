"""The components that mixtures begin with, and how many rows these need."""

from dataclasses import replace

import numpy as np

from skvt.models.mixture import labelled_statistics
from skvt.readers.validation import LARGEST_VALUE
from skvt.rows import layout_of


def require_rows(estimator, X, fewest):
    """Raise ValueError for fewer rows than a first fit needs."""
    n_rows = X.shape[0]
    if n_rows < fewest:
        raise ValueError(
            f"Expected n_samples >= n_components but got n_components = {estimator.n_components}, "
            f"n_samples = {n_rows}: each component starts with a row. Lower n_components or "
            "give more rows."
        )


def given_means(estimator, X):
    """The parameter ``means_init`` as an array, or a ValueError."""
    means = np.asarray(estimator.means_init, dtype=np.float64)
    shape = (estimator.n_components, X.shape[1])
    if means.shape != shape or not np.all(np.abs(means) <= LARGEST_VALUE[X.dtype]):
        raise ValueError(
            f"The 'means_init' parameter must be an array of shape (n_components, n_features) "
            f"= {shape} of finite numbers, no larger than {LARGEST_VALUE[X.dtype]:g} in "
            f"{X.dtype}. Got {estimator.means_init!r} instead."
        )
    return means


def begun_with_labels(model, labels, X, weights, most):
    """The model with an initial component for each label."""
    if layout_of(X).size:
        raise ValueError(
            "The 'labels_init' parameter is for rows in memory. Got labels for rows in chunks; "
            "leave it None, or fit to some of the rows first and begin there by warm_start=True."
        )
    given = np.asarray(labels)
    legal = given.shape == (X.shape[0],) and given.dtype.kind in "iuf"
    if legal:
        with np.errstate(invalid="ignore"):
            whole = given.astype(np.int64)
        legal, given = np.array_equal(whole, given), whole
    if not legal or given.min() < -1 or given.max() < 0:
        raise ValueError(
            f"The 'labels_init' parameter must be an array of whole numbers of shape (n_samples,) "
            f"= ({X.shape[0]},), one for each row of positive weight: 0, 1, ..., or -1 where the "
            f"label is not known, but not everywhere. Got {labels!r} instead."
        )
    known, numbers = np.unique(given[given >= 0], return_inverse=True)
    if most is not None and known.size > most:
        raise ValueError(
            f"The 'max_components' parameter must be in the range [number of labels, inf) = "
            f"[{known.size}, inf). Got {most} instead."
        )
    places = np.full(given.size, -1, np.intp)
    places[given >= 0] = numbers
    return replace(model, start=labelled_statistics(model, X, weights, places))
