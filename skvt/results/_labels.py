"""Classes of rows, as they are passed to ``fit``."""

import numpy as np

# The label of rows without one, and the class of components without one.
UNKNOWN = -1


def encoded(y, n_rows):
    """Known classes in order, and the place of each row's class among them, -1 where unknown."""
    given = np.asarray(y)
    if given.shape != (n_rows,):
        got = "None" if y is None else f"an array of shape {given.shape}"
        raise ValueError(
            "With use_labels=True, y must be an array of shape (n_samples,) = "
            f"({n_rows},), -1 where the class is not known. Got {got}."
        )
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise ValueError(
            "With use_labels=True, y must have finite numbers. Got NaN or infinity; set y to -1 "
            "where the class is not known."
        )
    if given.dtype.kind == "O":
        unknown = np.array([_is_unknown(label) for label in given.tolist()])
    else:
        unknown = given == UNKNOWN if given.dtype.kind in "iuf" else np.zeros(n_rows, bool)
    if unknown.all():
        raise ValueError(
            "With use_labels=True, the class of at least one row must be known. Got y = -1 in all "
            "rows; set use_labels=False."
        )
    codes = np.full(n_rows, -1, np.intp)
    try:
        known, codes[~unknown] = np.unique(given[~unknown], return_inverse=True)
    except TypeError as error:
        raise ValueError(
            "With use_labels=True, classes in y must be of one type, such as strings or whole "
            f"numbers. Got {sorted({type(one).__name__ for one in given[~unknown].tolist()})}."
        ) from error
    # (-1 is to be a value of their type)
    of_type = {"U": object, "S": object, "u": np.int64, "b": np.int64}.get(known.dtype.kind)
    return known if of_type is None else known.astype(of_type), codes


def _is_unknown(label):
    """Whether an object is no class: None, a missing value, or -1."""
    try:
        return label is None or bool(label != label) or bool(label == UNKNOWN)
    except TypeError:  # of pandas.NA
        return True
