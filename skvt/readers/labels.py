"""Classes of rows, as they are passed to ``fit`` of mixtures with ``use_labels=True``."""

from dataclasses import dataclass, replace

import numpy as np

from skvt.models.mixture import with_column, with_labels, without_labels
from skvt.readers.chunks import is_chunked
from skvt.sklearn_private import num_samples
from skvt.typing import Array, IndexArray

# The label of rows without one, and the class of components without one.
UNKNOWN = -1


@dataclass(frozen=True)
class RowLabels:
    """The classes of the rows of a fit."""

    # (C,) in order.
    known: Array
    # (n,) of all rows as passed: the position of the class in ``known``, -1 where unknown.
    codes: IndexArray
    # The same for rows of positive weight.
    used: IndexArray

    @classmethod
    def of(cls, estimator, X, y, sample_weight):
        """Return y as classes of rows, None if the estimator does not use them."""
        if not estimator.use_labels:
            return None
        if estimator._continues():
            refuse_labels(estimator, "warm_start=True")
        if is_chunked(X):
            refuse_labels(estimator, "A fit to rows in chunks")
        known, codes = _encoded(y, num_samples(X))
        _check_start(estimator, known.size)
        used = np.ones(codes.size, bool)
        if np.shape(sample_weight) == codes.shape:  # others are refused where rows are read
            used = np.asarray(sample_weight) > 0.0
        if not np.isin(np.arange(known.size), codes[used]).all():
            raise ValueError(
                "Each class of y needs a row of positive weight. Set the others to -1, or leave "
                "such rows out."
            )
        return cls(known, codes, codes[used])

    def joined(self, model, X, weights):
        """Return the model and the rows that know the classes."""
        X = with_column(X, self.used + 1)
        return with_labels(model, X, weights, self.used + 1), X

    def removed(self, fitted):
        """Return a fit of such a model without its column of classes, but those of components."""
        state = fitted.state.without_memos(fitted.n_rows)
        model, stats, classes = without_labels(fitted.model, state.stats)
        return replace(
            fitted,
            model=model,
            state=replace(state, stats=stats),
            component_classes=np.append(self.known, UNKNOWN)[classes - 1].tolist(),
        )


def refuse_labels(estimator, whom):
    """Raise ValueError if the estimator uses labels of rows, which this method cannot."""
    if estimator.use_labels:
        raise ValueError(
            f"{whom} takes no labels of rows, but use_labels=True. Call fit with all rows in "
            "memory and warm_start=False, or set use_labels=False."
        )


def _check_start(estimator, n_classes):
    """Raise ValueError unless a fit can begin with a component for each class."""
    if estimator.labels == "clusters":
        raise ValueError(
            "The 'use_labels' and 'labels' parameters exclude each other: clusters may join "
            "components of different classes. Got labels='clusters'; set it to 'components'."
        )
    others = [name for name in ("labels_init", "means_init") if hasattr(estimator, name)]
    for name in others:
        if getattr(estimator, name) is not None:
            raise ValueError(
                f"The 'use_labels' and '{name}' parameters exclude each other: with labels, "
                f"a fit begins with a component for each class. Set {name}=None."
            )
    finite, n_components = getattr(estimator, "_is_finite", False), estimator.n_components
    legal = n_components >= n_classes if finite else n_components <= n_classes
    if not legal:
        limits = f"[{n_classes}, inf)" if finite else f"[1, {n_classes}]"
        raise ValueError(
            "With use_labels=True the 'n_components' parameter must be in the range "
            f"{limits}, as y has {n_classes} classes. Got {n_components!r}."
        )
    most = estimator.max_components
    if most is not None and most < n_classes:
        raise ValueError(
            "With use_labels=True the 'max_components' parameter must be at least the number "
            f"of classes of y, {n_classes}. Got {most!r}."
        )


def _encoded(y, n_rows):
    """Return the known classes in order, and the position of each row's class, -1 if unknown."""
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
