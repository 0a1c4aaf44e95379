"""Known classes of rows, as users pass them to ``fit`` of mixtures with ``use_labels=True``.

The *label* of a row is its class, or -1 if the class is unknown. A fit with labels begins with one
component for each class. During the fit, X has a further column with the class of each row, so that
labelled rows stay in components of their class. The ``state`` of a fit has the statistics of all
components, and ``Fitted`` is the outcome of a call, see `skvt.fitting._fitted`.
"""

from dataclasses import dataclass, replace

import numpy as np

from skvt._sklearn_private import num_samples
from skvt.expfam import Stats
from skvt.models.mixture import (
    append_class_column,
    append_class_counts,
    sum_by_label,
    with_labels,
    without_labels,
)
from skvt.readers.chunks import is_chunked
from skvt.typing import Array, IndexArray

# Label of rows whose class is unknown, and class of components to which no labelled row belongs.
UNKNOWN = -1


@dataclass(frozen=True)
class RowLabels:
    """The classes of the rows of a call of ``fit`` or ``partial_fit``, and of the components.

    The components are those of the fit that the call continues. The code of a class is its position
    in ``classes``, or -1 if the class is unknown.
    """

    # Sorted classes of the rows and of the components (n_classes,).
    classes: Array
    # Codes of all rows (n_rows,).
    codes: IndexArray
    # Codes of the rows of positive weight (n_used_rows,).
    used_codes: IndexArray
    # Codes of the components (n_components,); None if the call begins a fit.
    component_codes: IndexArray | None

    @classmethod
    def from_rows(cls, estimator, X, y, sample_weight, previous_fit=None, *, in_stream=False):
        """Return the :class:`RowLabels` of y; None if the estimator does not use labels.

        ``previous_fit`` is the :class:`~skvt.fitting._fitted.Fitted` that the call continues, or
        None. ``in_stream`` tells whether the method is ``partial_fit``. Only then may all classes
        be unknown. Raise ValueError for illegal y.
        """
        if not estimator.use_labels:
            return None
        if is_chunked(X):
            refuse_labels(estimator, "A fit to rows in chunks")
        classes, codes, component_codes = _encode_labels(y, num_samples(X), previous_fit, in_stream)
        if previous_fit is None:
            _check_start(estimator, classes.size)
        else:
            _check_growth(estimator, classes, codes, component_codes)
        is_used = np.ones(codes.size, bool)
        # Ignore weights of an illegal shape here, because the reader refuses them later.
        if np.shape(sample_weight) == codes.shape:
            is_used = np.asarray(sample_weight) > 0.0
        if not np.isin(codes, [-1, *codes[is_used]]).all():
            raise ValueError(
                "Each class in y must have a row of positive weight. Set y to -1 in the rows of "
                "other classes, or leave these rows out."
            )
        return cls(classes, codes, codes[is_used], component_codes)

    def add_class_column(self, model, X, weights):
        """Return the model and the rows X, both with a further column for the classes of rows.

        X are the rows of positive weight. The column has their codes plus 1, so that 0 is an
        unknown class.
        """
        column = self.used_codes + 1
        X = append_class_column(X, column)
        begins = self.component_codes is None
        return with_labels(model, X, weights, column, self.classes.size, begins_fit=begins), X

    def add_to_components(self, state, model, X, weights, scale=1.0):
        """Return the state with the classes of its components, and a component for each new class.

        A class is new if no component has it. Its component gets the statistics of the rows of X
        with this class, times ``scale``. ``model`` and X have the column of classes.
        """
        new_codes = _find_new_classes(self.used_codes, self.component_codes)
        n_old = self.component_codes.size
        n_components = n_old + new_codes.size
        # The class of each component as a number of the column of classes.
        class_numbers = np.append(self.component_codes, new_codes) + 1
        # The index of each component in the old state; -1 for new components.
        old_index = np.append(np.arange(n_old), np.full(new_codes.size, -1))
        state = state.rebuilt(
            lambda stats: append_class_counts(stats, class_numbers, self.classes.size), old_index
        )
        if new_codes.size:
            # The component of each new class, by its code; -1 for other classes. The code -1 of
            # unknown classes selects the last entry, which is -1.
            component_of_code = np.full(self.classes.size + 1, -1)
            component_of_code[new_codes] = np.arange(n_old, n_components)
            component_of_row = component_of_code[self.used_codes]
            sums = sum_by_label(model, X, weights, component_of_row, n_components)
            # The statistics of the state are tempered, and count each row ``replication`` times.
            scale *= state.inv_temp * state.replication
            state.stats.add(Stats(tuple(scale * array for array in sums.arrays)))
        return state

    def remove_class_column(self, fitted):
        """Return the fit without the column of classes, but with the class of each component."""
        # ``change`` removes the column from statistics, and ``class_numbers`` has the class of each
        # component as a number of the column, 0 if it is unknown.
        model, change, class_numbers = without_labels(fitted.model, fitted.state.stats)
        return replace(
            fitted,
            model=model,
            state=fitted.state.rebuilt(change, np.arange(class_numbers.size)),
            # The index 0 - 1 selects the last entry, UNKNOWN.
            component_classes=np.append(self.classes, UNKNOWN)[class_numbers - 1].tolist(),
            # ``seen`` has the checksum of the rows. Without it, a warm start does not reuse the
            # statistics of batches, which depend on the labels.
            seen=None,
        )


def _find_new_classes(codes, component_codes):
    """Return the sorted codes, among the ``codes`` of rows, of classes that no component has."""
    return np.setdiff1d(codes[codes >= 0], component_codes)


def refuse_labels(estimator, caller):
    """Raise ValueError if the estimator uses labels, because the method ``caller`` takes none."""
    if estimator.use_labels:
        raise ValueError(
            f"{caller} cannot use labels of rows, but use_labels=True. Call fit or partial_fit "
            "with rows in memory, or set use_labels=False."
        )


def _check_start(estimator, n_classes):
    """Raise ValueError unless a fit can begin with a component for each class."""
    if estimator.labels == "clusters":
        raise ValueError(
            "use_labels=True cannot be combined with labels='clusters', because clusters may join "
            "components of different classes. Set labels='components'."
        )
    for name in ("labels_init", "means_init"):
        if getattr(estimator, name, None) is not None:
            raise ValueError(
                f"use_labels=True cannot be combined with {name!r}, because the fit begins with a "
                f"component for each class. Set {name}=None."
            )
    # A finite mixture keeps its number of components, which must be at least the number of classes.
    # Other mixtures begin with one component for each class, so that a larger number is refused.
    is_finite = getattr(estimator, "_is_finite", False)
    n_components = estimator.n_components
    max_classes = max(n_classes, 1)
    is_legal = n_components >= n_classes if is_finite else n_components <= max_classes
    if not is_legal:
        limits = f"[{n_classes}, inf)" if is_finite else f"[1, {max_classes}]"
        raise ValueError(
            f"With use_labels=True, the 'n_components' parameter must be in the range {limits}, "
            f"because y has {n_classes} classes. Got {n_components!r}."
        )
    max_components = estimator.max_components
    if max_components is not None and max_components < n_classes:
        raise ValueError(
            "With use_labels=True, the 'max_components' parameter must be at least the number of "
            f"classes of y, {n_classes}. Got {max_components!r}."
        )


def _check_growth(estimator, classes, codes, component_codes):
    """Raise ValueError unless the fit that the call continues can get all components it needs.

    It needs a component for each class of rows that no component has. ``codes`` are the codes of
    the rows, and ``component_codes`` are the codes of the components.
    """
    new_codes = _find_new_classes(codes, component_codes)
    if not new_codes.size:
        return
    n_components = component_codes.size + new_codes.size
    max_components = estimator.max_components
    if getattr(estimator, "_is_finite", False):
        raise ValueError(
            f"The class {classes[new_codes[0]]!r} has no component, and a mixture with "
            "weight_concentration_prior_type='dirichlet_distribution' cannot get further "
            "components. Pass all classes in y of the first call, or set "
            "weight_concentration_prior_type='dirichlet_process'."
        )
    if max_components is not None and n_components > max_components:
        raise ValueError(
            f"The class {classes[new_codes[0]]!r} has no component, and the mixture may have at "
            f"most {max_components} components. Raise 'max_components' to at least {n_components}."
        )


def _encode_labels(y, n_rows, previous_fit, in_stream):
    """Return the sorted classes, the codes of the rows, and the codes of the components.

    A code is the position of a class among the classes, or -1 if the class is unknown. The
    components are those of ``previous_fit``; if this is None, the last result is None.
    """
    labels = np.asarray(y)
    if labels.dtype.kind in "US" and isinstance(y, list | tuple):
        # If a label in a list is a string, NumPy makes strings of all labels, also of -1 and NaN.
        labels = np.asarray(y, object)
    if labels.shape != (n_rows,):
        got = "None" if y is None else f"an array of shape {labels.shape}"
        raise ValueError(
            f"With use_labels=True, y must be an array of shape (n_samples,) = ({n_rows},), with "
            f"-1 where the class is not known. Got {got}."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(
            "With use_labels=True, y must have finite numbers. Got NaN or infinity; set y to -1 "
            "where the class is not known."
        )
    if labels.dtype.kind in "mM":
        raise ValueError(
            "With use_labels=True, classes in y must be strings or whole numbers. Got values of "
            f"type {labels.dtype}; convert them to strings."
        )
    is_unknown = labels == UNKNOWN
    if labels.dtype.kind in "OUS":
        is_unknown = np.array([_is_unknown(label) for label in labels.tolist()])
    if is_unknown.all() and not in_stream:
        raise ValueError(
            "With use_labels=True, the class of at least one row must be known. Got y = -1 in all "
            "rows; set use_labels=False."
        )
    known_labels = labels[~is_unknown]
    if previous_fit is not None:
        # Encode the classes of the components, which come first, together with the classes of the
        # rows. If the fit had no labels, the classes of its components are unknown.
        n_components = previous_fit.model.size(previous_fit.stats)
        component_labels = previous_fit.component_classes or [UNKNOWN] * n_components
        is_unknown = np.append([label == UNKNOWN for label in component_labels], is_unknown)
        known_component_labels = [label for label in component_labels if label != UNKNOWN]
        known_labels = np.array(known_component_labels + known_labels.tolist(), object)
    codes = np.full(is_unknown.size, -1, np.intp)
    try:
        classes, codes[~is_unknown] = np.unique(known_labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            "With use_labels=True, classes in y must be of one type, such as strings or whole "
            f"numbers. Got {sorted({type(label).__name__ for label in known_labels.tolist()})}."
        ) from error
    # The classes get a type that can hold -1, the class of components without labelled rows. The
    # keys are kinds of types: strings, bytes, unsigned integers and booleans.
    dtype = {"U": object, "S": object, "u": np.int64, "b": np.int64}.get(classes.dtype.kind)
    classes = classes if dtype is None else classes.astype(dtype)
    component_codes, row_codes = np.split(codes, [codes.size - n_rows])
    return classes, row_codes, None if previous_fit is None else component_codes


def _is_unknown(label):
    """Return whether a label stands for an unknown class: None, a missing value, -1 or "-1"."""
    try:
        # NaN and NaT differ from themselves.
        return label is None or bool(label != label) or label in (UNKNOWN, str(UNKNOWN))
    except TypeError:
        # pandas.NA has no truth value.
        return True
