"""Mixtures in which the classes of some rows are known; a component has rows of at most one class.

    log p(y_n | z_n = k) = 0 if y_n is unknown or the class of component k, else -inf.

The class of a row is in the last column of the rows: 0 if it is unknown, else 1, ..., C. Rows with
a known class are called labelled. The indicators of classes are features, so that the statistics of
a component contain its number of rows of each class. These numbers determine the component's class.
Moves, which add, merge and split components, and memoized inference, which keeps the statistics of
batches, therefore need no other information on classes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from skvt.expfam import RunningStats, Stats
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._product import Block, Product, ValuesLearner
from skvt.models.mixture._starts import initialise_from_labels
from skvt.models.mixture.components import ConjugateComponent, RowFits
from skvt.rows import dense
from skvt.typing import Array, IndexArray

# Log density in place of -inf, whose product with 0 would be NaN.
_LOG_ZERO = -1e25
# A merge of components of different classes has a lower gain than this, and no other merge has.
_MIN_POSSIBLE_GAIN = 1e-9 * _LOG_ZERO
# A birth is a move that adds components. An added component has a class only if enough of its rows
# have this class: at least _MIN_CLASS_ROWS, and at least the share _MIN_CLASS_SHARE * s of them,
# where s is the share of labelled rows among all rows.
_MIN_CLASS_SHARE = 0.1
_MIN_CLASS_ROWS = 0.5


def most_frequent_classes(counts: Array) -> IndexArray:
    """Return the most frequent class of each component, 1, ..., C, or 0 if no row has a class.

    ``counts`` (K, C + 1) are the numbers of rows without a class, and of rows of each class.
    """
    class_counts = counts[..., 1:]
    return np.where(class_counts.max(axis=-1) > 0.0, class_counts.argmax(axis=-1) + 1, 0)


def append_class_counts(stats: Stats, classes: IndexArray, n_classes: int) -> Stats:
    """Return statistics to which the numbers of rows of each class are appended.

    ``classes`` (K,) are the classes of the components, 0 for components without a class. All rows
    of a component count as rows of its class.
    """
    counts, sums = stats.arrays
    class_counts = counts[:, None] * (classes[:, None] == np.arange(n_classes + 1))
    return Stats((counts, np.hstack([sums, class_counts])))


@dataclass(frozen=True)
class _ClassFamily:
    """The family of point masses at the classes of components.

    Natural parameters ``eta`` (..., C + 1) are numbers of rows without a class and of each class.
    """

    # Share of labelled rows among all rows, for births, see `_MIN_CLASS_SHARE`; None otherwise.
    labelled_share: float | None = None

    def log_normalizer(self, eta: Array) -> Array:
        """Return the log density of the classes of each component's rows, (...).

        It is 0 if all rows with a class have the same class. Each row of another class adds -inf.
        """
        class_counts = eta[..., 1:]
        n_other_rows = class_counts.sum(axis=-1) - class_counts.max(axis=-1)
        return np.asarray(_LOG_ZERO * n_other_rows)

    def expectation(self, eta: Array) -> Array:
        """Return the log density of rows of each class, (..., C + 1).

        It is 0 for rows without a class and for rows of the component's class. It is -inf for rows
        of other classes.
        """
        classes = most_frequent_classes(eta)
        # In a birth, components with few rows of their class lose the class, except the component
        # with most rows of the class, which only an array (K, C + 1) of all components shows.
        if self.labelled_share is not None and eta.ndim == 2:
            n_class_rows = eta[:, 1:].max(axis=1)
            min_rows = _MIN_CLASS_SHARE * self.labelled_share * eta.sum(axis=1)
            min_rows = np.maximum(_MIN_CLASS_ROWS, min_rows)
            # For each class, find the component with most rows of this class.
            has_most_rows = np.isin(np.arange(len(eta)), eta[:, 1:].argmax(axis=0))
            classes = np.where(has_most_rows | (n_class_rows >= min_rows), classes, 0)
        is_allowed = classes[..., None] == np.arange(eta.shape[-1])
        # Rows without a class may be in any component.
        is_allowed[..., 0] = True
        return np.where(is_allowed, 0.0, _LOG_ZERO)


@dataclass(frozen=True)
class _ClassComponent(ConjugateComponent):
    """The component of the column of classes; features (n, C + 1) are indicators of classes."""

    # (C + 1,): zeros, because no class is known before the rows.
    prior: Array
    dtype: np.dtype[Any]
    family: Any = _ClassFamily()

    n_features = 1

    def features(self, X: Any) -> Array:
        return np.eye(self.prior.size)[np.asarray(dense(X), np.intp)[:, 0]]

    def row_fits(self, X: Any) -> RowFits:
        """Return fits from features of 0, which are 0.

        The other columns alone thus determine the initial components.
        """
        return RowFits(self, lambda rows: np.zeros((X[rows].shape[0], self.prior.size)))


@dataclass(frozen=True)
class _LabelledProduct(Product):
    """Product of a component and of classes.

    Rows without a column of classes have no class.
    """

    def _convert_rows(self, X: Any) -> Any:
        """Append a column of unknown classes to rows without a column of classes."""
        if X.shape[1] > self.n_features:
            return X
        return append_class_column(X, np.zeros(X.shape[0], np.intp))


@dataclass(frozen=True)
class LabelledMixture(Mixture):
    """A mixture whose components have classes, which is used during a fit only.

    The component is a :class:`_LabelledProduct` with the blocks "values" and "classes".
    """

    # Share of labelled rows among all rows.
    labelled_share: float = 1.0

    def for_new_start(self) -> Self:
        """Return the model for births: components with few rows of a class have no class."""
        component: Any = self.component
        values, classes = (block.component for block in component.blocks)
        classes = replace(classes, family=_ClassFamily(self.labelled_share))
        return replace(self, component=component.with_components([values, classes]))

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        """Return the gains of merges in nats; they are -inf for components of different classes."""
        gains = super().merge_gains(stats, a, b)
        return np.where(gains < _MIN_POSSIBLE_GAIN, -np.inf, gains)

    def symmetry_breaking_stats(self, *args: Any) -> Stats:
        """Return statistics of a random row for each component, without the row's class."""
        counts, sums = super().symmetry_breaking_stats(*args).arrays
        component: Any = self.component
        # The parts of the blocks are views of ``sums``.
        _, class_sums = component.split_by_block(sums)
        class_sums[:] = 0.0
        return Stats((counts, sums))


def append_class_column(X: Any, classes: IndexArray) -> Any:
    """Return the rows with their classes (n,) as the last column."""
    if sp.issparse(X):
        return sp.csr_array(sp.hstack([X, sp.csr_array(classes[:, None], dtype=X.dtype)]))
    return np.concatenate([X, classes[:, None].astype(X.dtype)], axis=1)


def with_labels(
    model: Mixture, X: Any, weights: Array, classes: IndexArray, n_classes: int, *, begins_fit: bool
) -> LabelledMixture:
    """Return the model of rows whose last column is their class, see :func:`append_class_column`.

    ``classes`` (n,) are 1, ..., C, or 0 where a class is unknown. If ``begins_fit`` says that the
    fit begins with these rows, and some classes are known, the model starts with one component for
    each class. Each class must then have a row.
    """
    # The last of the columns, which have the positions 0, ..., D, has the classes.
    D, dtype = X.shape[1] - 1, model.dtype
    blocks = (
        Block("values", model.component, np.arange(D)),
        Block("classes", _ClassComponent(np.zeros(max(n_classes, 1) + 1), dtype), np.array([D])),
    )
    learner = None if model.learner is None else ValuesLearner(model.learner)
    model_with_labels = LabelledMixture(**vars(model) | {
        "component": _LabelledProduct(blocks, D, dtype), "learner": learner,
        "labelled_share": float(weights[classes > 0].sum() / weights.sum()),
    })  # fmt: skip
    if not (begins_fit and classes.any()):
        return model_with_labels
    start = initialise_from_labels(model_with_labels, X, weights, classes - 1)
    return replace(model_with_labels, start=start)


def without_labels(
    model: Any, stats: RunningStats
) -> tuple[Mixture, Callable[[Stats], Stats], IndexArray]:
    """Convert a :class:`LabelledMixture` to a model without classes of rows.

    Returns the model, a function that removes classes of rows from statistics, and the classes of
    the components, (K,). The classes are read from the statistics ``stats`` of the fit.
    """
    values, _ = model.component.blocks
    fields = {name: value for name, value in vars(model).items() if name != "labelled_share"}
    unlabelled_model = Mixture(**fields | {
        "component": values.component, "learner": model.learner and model.learner.learner,
        "start": None,
    })  # fmt: skip

    def remove_classes(labelled_stats: Stats) -> Stats:
        counts, sums = labelled_stats.arrays
        sums_of_values, _ = model.component.split_by_block(sums)
        return Stats((counts, sums_of_values.copy()))

    _, class_counts = model.component.split_by_block(stats.as_stats().arrays[1])
    return unlabelled_model, remove_classes, most_frequent_classes(class_counts)
