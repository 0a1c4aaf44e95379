"""Classes of rows, as they are passed to ``fit`` of mixtures with ``use_labels=True``."""

from dataclasses import dataclass, replace

import numpy as np

from skvt.models.mixture import with_column, with_labels, without_labels
from skvt.readers.chunks import is_chunked
from skvt.sklearn_private import num_samples
from skvt.typing import Array, IndexArray

# Label of rows whose class is unknown, and class of components that no labelled row belongs to.
UNKNOWN = -1


@dataclass(frozen=True)
class RowLabels:
    """The classes of the rows of a fit."""

    # (C,): the classes in order.
    known: Array
    # (n,): the position in ``known`` of the class of each row as passed, -1 where unknown.
    codes: IndexArray
    # (m,): the codes of the m rows of positive weight.
    used: IndexArray

    @classmethod
    def of(cls, estimator, X, y, sample_weight):
        """Return the classes in y; None if the estimator does not use labels."""
        if not estimator.use_labels:
            return None
        if estimator._continues():
            refuse_labels(estimator, "warm_start=True")
        if is_chunked(X):
            refuse_labels(estimator, "A fit to rows in chunks")
        known, codes = _encode(y, num_samples(X))
        _check_start(estimator, known.size)
        used = np.ones(codes.size, bool)
        if np.shape(sample_weight) == codes.shape:  # the reader refuses weights of other shapes
            used = np.asarray(sample_weight) > 0.0
        if not np.isin(np.arange(known.size), codes[used]).all():
            raise ValueError(
                "Each class of y needs a row of positive weight. Set the others to -1, or leave "
                "such rows out."
            )
        return cls(known, codes, codes[used])

    def joined(self, model, X, weights):
        """Return the model and the rows with a further column, the classes of rows."""
        X = with_column(X, self.used + 1)
        return with_labels(model, X, weights, self.used + 1), X

    def removed(self, fitted):
        """Return the fit without the column of classes, and with the classes of components."""
        state = fitted.state.without_memos(fitted.n_rows)
        model, stats, classes = without_labels(fitted.model, state.stats)
        return replace(
            fitted,
            model=model,
            state=replace(state, stats=stats),
            component_classes=np.append(self.known, UNKNOWN)[classes - 1].tolist(),
        )


def refuse_labels(estimator, whom):
    """Raise ValueError if the estimator uses labels; ``whom`` names what does not take them."""
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
    max_components = estimator.max_components
    if max_components is not None and max_components < n_classes:
        raise ValueError(
            "With use_labels=True the 'max_components' parameter must be at least the number "
            f"of classes of y, {n_classes}. Got {max_components!r}."
        )


def _encode(y, n_rows):
    """Return the classes in order, and the position of each row's class, -1 if unknown."""
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        got = "None" if y is None else f"an array of shape {labels.shape}"
        raise ValueError(
            "With use_labels=True, y must be an array of shape (n_samples,) = "
            f"({n_rows},), -1 where the class is not known. Got {got}."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(
            "With use_labels=True, y must have finite numbers. Got NaN or infinity; set y to -1 "
            "where the class is not known."
        )
    if labels.dtype.kind == "O":
        unknown = np.array([_is_unknown(label) for label in labels.tolist()])
    else:
        unknown = labels == UNKNOWN if labels.dtype.kind in "iuf" else np.zeros(n_rows, bool)
    if unknown.all():
        raise ValueError(
            "With use_labels=True, the class of at least one row must be known. Got y = -1 in all "
            "rows; set use_labels=False."
        )
    codes = np.full(n_rows, -1, np.intp)
    try:
        known, codes[~unknown] = np.unique(labels[~unknown], return_inverse=True)
    except TypeError as error:
        raise ValueError(
            "With use_labels=True, classes in y must be of one type, such as strings or whole "
            f"numbers. Got {sorted({type(label).__name__ for label in labels[~unknown].tolist()})}."
        ) from error
    # The array gets a type of which -1 is a value.
    dtype = {"U": object, "S": object, "u": np.int64, "b": np.int64}.get(known.dtype.kind)
    return known if dtype is None else known.astype(dtype), codes


def _is_unknown(label):
    """Return whether a label stands for an unknown class: None, a missing value, or -1."""
    try:
        return label is None or bool(label != label) or bool(label == UNKNOWN)
    except TypeError:  # pandas.NA has no truth value
        return True
