"""Classes of rows, as they are passed to ``fit`` of mixtures with ``use_labels=True``."""

from dataclasses import dataclass, replace

import numpy as np

from skvt.expfam import Stats
from skvt.models.mixture import (
    statistics_of_labels,
    with_classes,
    with_column,
    with_labels,
    without_labels,
)
from skvt.readers.chunks import is_chunked
from skvt.sklearn_private import num_samples
from skvt.typing import Array, IndexArray

# Label of rows whose class is unknown, and class of components that no labelled row belongs to.
UNKNOWN = -1


@dataclass(frozen=True)
class RowLabels:
    """The classes of the rows of a call."""

    # (C,): the classes in order, also those of components of the fit that the call continues.
    known: Array
    # (n,): the position in ``known`` of the class of each row as passed, -1 where unknown.
    codes: IndexArray
    # (m,): the codes of the m rows of positive weight.
    used: IndexArray
    # (K,): the codes of components of the fit that the call continues; None if there is none.
    of_fit: IndexArray | None

    @classmethod
    def of(cls, estimator, X, y, sample_weight, before=None, *, in_stream=False):
        """Return the classes in y; None if the estimator does not use labels.

        ``before`` is the fit that the call continues. Only in a stream, all may be unknown.
        """
        if not estimator.use_labels:
            return None
        if is_chunked(X):
            refuse_labels(estimator, "A fit to rows in chunks")
        known, codes, of_fit = _encode(y, num_samples(X), before, in_stream)
        if before is None:
            _check_start(estimator, known.size)
        else:
            _check_growth(estimator, known, codes, of_fit)
        used = np.ones(codes.size, bool)
        if np.shape(sample_weight) == codes.shape:  # the reader refuses weights of other shapes
            used = np.asarray(sample_weight) > 0.0
        if not np.isin(codes, [-1, *codes[used]]).all():
            raise ValueError(
                "Each class of y needs a row of positive weight. Set the others to -1, or leave "
                "such rows out."
            )
        return cls(known, codes, codes[used], of_fit)

    def joined(self, model, X, weights):
        """Return the model and the rows with a further column, the classes of rows."""
        X, begins = with_column(X, self.used + 1), self.of_fit is None
        return with_labels(model, X, weights, self.used + 1, self.known.size, begins=begins), X

    def of_components(self, state, model, X, weights, scale=1.0):
        """Return the state with the classes of its components, and a component for each new class.

        A new component has the statistics of the labelled rows of X, times ``scale``.
        """
        new, K = _without_component(self.used, self.of_fit), self.of_fit.size
        classes = np.append(self.of_fit, new) + 1
        index = np.append(np.arange(K), np.full(new.size, -1))
        state = state.rebuilt(lambda stats: with_classes(stats, classes, self.known.size), index)
        if new.size:
            # The component of each row that has a new class; -1 for other rows.
            places = np.full(self.known.size + 1, -1)
            places[new] = K + np.arange(new.size)
            seeds = statistics_of_labels(model, X, weights, places[self.used], K + new.size)
            scale *= state.inv_temp * state.replication
            state.stats.add(Stats(tuple(scale * array for array in seeds.arrays)))
        return state

    def removed(self, fitted):
        """Return the fit without the column of classes, and with the classes of components."""
        model, change, classes = without_labels(fitted.model, fitted.state.stats)
        return replace(
            fitted,
            model=model,
            state=fitted.state.rebuilt(change, np.arange(classes.size)),
            component_classes=np.append(self.known, UNKNOWN)[classes - 1].tolist(),
            # Memos of the same rows with other labels are of no use to a warm start.
            seen=None,
        )


def _without_component(codes, of_components):
    """Return the codes of known classes that no component has, in order."""
    return np.setdiff1d(codes[codes >= 0], of_components)


def refuse_labels(estimator, whom):
    """Raise ValueError if the estimator uses labels; ``whom`` names what does not take them."""
    if estimator.use_labels:
        raise ValueError(
            f"{whom} takes no labels of rows, but use_labels=True. Call fit or partial_fit with "
            "rows in memory, or set use_labels=False."
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
    legal = n_components >= n_classes if finite else n_components <= max(n_classes, 1)
    if not legal:
        limits = f"[{n_classes}, inf)" if finite else f"[1, {max(n_classes, 1)}]"
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


def _check_growth(estimator, known, codes, of_components):
    """Raise ValueError unless the fit may get a component for each class that has none."""
    new = _without_component(codes, of_components)
    most, n_components = estimator.max_components, of_components.size + new.size
    if not new.size:
        return
    if getattr(estimator, "_is_finite", False):
        raise ValueError(
            f"The class {known[new[0]]!r} has no component, and a mixture with "
            "weight_concentration_prior_type='dirichlet_distribution' gets no further ones. Let y "
            "of the first call have every class, or set 'dirichlet_process'."
        )
    if most is not None and n_components > most:
        raise ValueError(
            f"The class {known[new[0]]!r} has no component, and there may be {most}. The "
            f"'max_components' parameter must be at least {n_components}; raise it."
        )


def _encode(y, n_rows, before, in_stream):
    """Return the classes in order, and the positions of rows' and components' classes in them.

    A position is -1 if the class is unknown. Components are those of the fit ``before``, if any.
    """
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
    if unknown.all() and not in_stream:
        raise ValueError(
            "With use_labels=True, the class of at least one row must be known. Got y = -1 in all "
            "rows; set use_labels=False."
        )
    known_labels = labels[~unknown]
    if before is not None:
        classes = before.component_classes or [UNKNOWN] * before.model.size(before.stats)
        unknown = np.append([label == UNKNOWN for label in classes], unknown)
        known_of_fit = [label for label in classes if label != UNKNOWN]
        known_labels = np.array(known_of_fit + known_labels.tolist(), object)
    codes = np.full(unknown.size, -1, np.intp)
    try:
        known, codes[~unknown] = np.unique(known_labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            "With use_labels=True, classes in y must be of one type, such as strings or whole "
            f"numbers. Got {sorted({type(label).__name__ for label in known_labels.tolist()})}."
        ) from error
    # The array gets a type of which -1 is a value.
    dtype = {"U": object, "S": object, "u": np.int64, "b": np.int64}.get(known.dtype.kind)
    of_fit = None if before is None else codes[: unknown.size - n_rows]
    known = known if dtype is None else known.astype(dtype)
    return known, codes[unknown.size - n_rows :], of_fit


def _is_unknown(label):
    """Return whether a label stands for an unknown class: None, a missing value, or -1."""
    try:
        return label is None or bool(label != label) or bool(label == UNKNOWN)
    except TypeError:  # pandas.NA has no truth value
        return True
