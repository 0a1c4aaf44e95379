"""Mixtures in which the classes of some rows are known; a component has rows of at most one class.

    log p(y_n | z_n = k) = 0 if y_n is unknown or the class of component k, else -inf.

The class of a row is in the last column of the rows: 0 if it is unknown, else 1, ..., C. Its
indicators are features, so that the statistics of a component contain its number of rows of each
class. They determine the component's class. Moves, which add, merge and split components, and the
memos that memoized inference keeps of batches therefore need no other information.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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
_IMPOSSIBLE = -1e25
# A merge of components of different classes has a lower gain than this.
_MIN_GAIN = 1e-9 * _IMPOSSIBLE
# A component of a birth, a move that adds components, has a class only if its rows of this class
# are at least _MIN_ROWS and at least the share _MIN_SHARE * s of its rows, where s is the share
# of all rows that have a label.
_MIN_SHARE = 0.1
_MIN_ROWS = 0.5


def classes_of(counts: Array) -> IndexArray:
    """Return the class 1, ..., C of most rows of each component; 0 if no row has a class.

    ``counts`` are (K, C + 1): rows without a class, and rows of each class.
    """
    known = counts[..., 1:]
    return np.where(known.max(axis=-1) > 0.0, known.argmax(axis=-1) + 1, 0)


def append_class_counts(stats: Stats, classes: IndexArray, n_classes: int) -> Stats:
    """Return statistics with the numbers of rows of each class, for components of these classes.

    All rows of a component count as rows of its class, 0 if it has none.
    """
    counts, sums = stats.arrays
    class_counts = counts[:, None] * (classes[:, None] == np.arange(n_classes + 1))
    return Stats((counts, np.hstack([sums, class_counts])))


@dataclass(frozen=True)
class _OneClass:
    """A point mass at the class of each component; natural parameters are counts of classes."""

    # Share of all rows that have a label, for births, see `_MIN_SHARE`; None otherwise.
    labelled_share: float | None = None

    def log_normalizer(self, eta: Array) -> Array:
        """Return 0 if all rows are of one class; each other row adds the log density -inf."""
        known = eta[..., 1:]
        return np.asarray(_IMPOSSIBLE * (known.sum(axis=-1) - known.max(axis=-1)))

    def expectation(self, eta: Array) -> Array:
        """Return the log density of rows of each class, (..., C + 1).

        It is 0 for rows without a label and of the component's class, and -inf for others.
        """
        classes = classes_of(eta)
        if self.labelled_share is not None and eta.ndim == 2:
            n_class_rows = eta[:, 1:].max(axis=1)
            min_rows = np.maximum(_MIN_ROWS, _MIN_SHARE * self.labelled_share * eta.sum(axis=1))
            # The component with most rows of a class keeps the class.
            has_most = np.isin(np.arange(len(eta)), eta[:, 1:].argmax(axis=0))
            classes = np.where(has_most | (n_class_rows >= min_rows), classes, 0)
        is_allowed = classes[..., None] == np.arange(eta.shape[-1])
        is_allowed[..., 0] = True
        return np.where(is_allowed, 0.0, _IMPOSSIBLE)


@dataclass(frozen=True)
class _Classes(ConjugateComponent):
    """The column of classes; features (n, C + 1) are their indicators."""

    prior: Array
    dtype: np.dtype[Any]
    family: Any = _OneClass()

    n_features = 1

    def features(self, X: Any) -> Array:
        return np.eye(self.prior.size)[np.asarray(dense(X), np.intp)[:, 0]]

    def row_fits(self, X: Any) -> RowFits:
        """Return fits of 0, the fits of features of 0, so that other columns determine seeds."""
        return RowFits(self, lambda rows: np.zeros((X[rows].shape[0], self.prior.size)))


@dataclass(frozen=True)
class _Labelled(Product):
    """Product of a component and of classes; rows without a column of classes have no class."""

    def _convert_rows(self, X: Any) -> Any:
        if X.shape[1] > self.n_features:
            return X
        return append_class_column(X, np.zeros(X.shape[0], np.intp))


@dataclass(frozen=True)
class LabelledMixture(Mixture):
    """A mixture whose components have classes, which is used during a fit only.

    The component is a :class:`_Labelled` with the blocks "values" and "classes".
    """

    # Share of the rows that have a label.
    labelled_share: float = 1.0

    def resized(
        self, n_components: int, *, learns_priors: bool = False, init_params: str = "k-means++"
    ) -> "LabelledMixture":
        """Return the model of births, whose components have no class if few of their rows do."""
        component: Any = self.component
        values, classes = (block.component for block in component.blocks)
        classes = replace(classes, family=_OneClass(self.labelled_share))
        model = replace(self, component=component.with_components([values, classes]))
        return Mixture.resized(
            model, n_components, learns_priors=learns_priors, init_params=init_params
        )

    def merge_gains(self, stats: Stats, a: IndexArray, b: IndexArray) -> Array:
        """Return the gains of merges, -inf for components of different classes."""
        gains = super().merge_gains(stats, a, b)
        return np.where(gains < _MIN_GAIN, -np.inf, gains)

    def symmetry_breaking_stats(self, *args: Any) -> Stats:
        """Return statistics of a random row for each component, without the row's class."""
        counts, sums = super().symmetry_breaking_stats(*args).arrays
        component: Any = self.component
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

    ``classes`` (n,) are 1, ..., C, and 0 where unknown. If ``begins_fit`` says that the fit begins
    with these rows, and some classes are known, the model starts with one component for each class;
    each class must then have a row.
    """
    width = X.shape[1] - 1
    dtype = model.dtype
    blocks = (
        Block("values", model.component, np.arange(width)),
        Block("classes", _Classes(np.zeros(max(n_classes, 1) + 1), dtype), np.array([width])),
    )
    learner = None if model.learner is None else ValuesLearner(model.learner)
    labelled = LabelledMixture(**vars(model) | {
        "component": _Labelled(blocks, width, dtype), "learner": learner,
        "labelled_share": float(weights[classes > 0].sum() / weights.sum()),
    })  # fmt: skip
    if not (begins_fit and classes.any()):
        return labelled
    return replace(labelled, start=initialise_from_labels(labelled, X, weights, classes - 1))


def without_labels(
    model: Any, stats: RunningStats
) -> tuple[Mixture, Callable[[Stats], Stats], IndexArray]:
    """Return the model without classes of rows, given a :class:`LabelledMixture`.

    Returns the model, a function that removes classes of rows from statistics, and the classes of
    the components, (K,).
    """
    values, _ = model.component.blocks
    fields = {name: value for name, value in vars(model).items() if name != "labelled_share"}
    plain = Mixture(**fields | {
        "component": values.component, "learner": model.learner and model.learner.learner,
        "start": None,
    })  # fmt: skip

    def remove_classes(labelled: Stats) -> Stats:
        counts, sums = labelled.arrays
        sums_of_values, _ = model.component.split_by_block(sums)
        return Stats((counts, sums_of_values.copy()))

    _, class_counts = model.component.split_by_block(stats.as_stats().arrays[1])
    return plain, remove_classes, classes_of(class_counts)
