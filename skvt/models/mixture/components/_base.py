"""Base classes of mixture components, see :class:`skvt.contracts.Component`.

A component has a likelihood p(x | phi) of rows x and a conjugate prior of phi, in an exponential
family with the sufficient statistics t(phi) and the log normaliser A. F(x) are the P features of a
row, and S are sums of features over the rows of a component, weighted by responsibilities. The
matrix M converts S to the form of natural parameters: the posterior q(phi) has the natural
parameters ``lam = eta + M S``, where eta are the natural parameters of the prior. The *table* is
``T = M' E[t] + base``. Its product with F(x) is E[log p(x | phi)].

In shapes, n is the number of rows, D of columns and K of components. ``lam`` is (K, ..., E), where
``...`` are the axes of independent factors of q, such as columns, and E is the number of natural
parameters of a factor. NaN in a row is a missing value.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from skvt.contracts import Capability, Completion
from skvt.models.mixture._marginals import Marginals
from skvt.rows import dense, pieces
from skvt.typing import Array, IndexArray

LOG_2PI = np.log(2.0 * np.pi)
# Maximum number of natural parameters that predictive densities and merges hold at a time.
_ENTRIES_AT_ONCE = 2**20
# Maximum number of components, each fitted to one row, that are computed at a time.
_FITTED_AT_ONCE = 512
# Maximum number of entries of the table of these components.
_TABLE_ENTRIES_AT_ONCE = 2**18
# Minimum number of rows whose features are summed at a time.
_MIN_ROWS_PER_SUM = 512


def sum_per_component(values: Array) -> Array:
    """Return the sums of an array (K, ...) over all axes but the first, (K,)."""
    return values.reshape(values.shape[0], -1).sum(axis=1)


class RowFits:
    """How well components that are fitted to one row, the seed, fit other rows.

    The fit of a row x to a seed is ``E[log p(x | phi)]`` in nats, up to a constant, under the
    component of the seed. Initialisation chooses seeds by these fits. ``features(rows)`` returns
    the features (n, P) of the rows with these indices.
    """

    def __init__(self, component: Any, features: Callable[[Any], Any]) -> None:
        self._component = component.without_shared_globals
        self._features = features

    def prepare(self, rows: Any) -> Any:
        """Return the features of the rows with these indices, for the other methods."""
        return self._features(rows)

    def fits_to_seeds(
        self, prepared: Any, seeds: Any, *, with_magnitudes: bool = True
    ) -> tuple[Array, Array]:
        """Return fits of prepared rows to seeds, and the magnitudes of their terms, (n, K) each.

        ``seeds`` are indices of K rows. The magnitude of a fit is the sum of the absolute values of
        its terms. Rounding errors of the fit are proportional to it. If ``with_magnitudes`` is
        false, the magnitudes may be left out, and are then 0.
        """
        lam = self._component.natural_parameters(dense(self._features(seeds)))
        # (P, K): the transposed table.
        table = self._component.expected_table(lam).T
        fits = prepared @ table
        magnitudes = abs(prepared) @ np.abs(table) if with_magnitudes else np.zeros_like(fits)
        return fits, magnitudes

    def fits_to_self(self, prepared: Any) -> tuple[Array, Array]:
        """Return fits of prepared rows to themselves as seeds, and their magnitudes, (n,) each."""
        return self._component.fits_to_self(prepared)


class ConjugateComponent:
    """Base of components, which computes ``lam`` and ``T`` from properties of a subclass.

    :class:`skvt.contracts.Component` documents the methods. A subclass defines ``family``,
    ``prior`` (eta), ``n_features`` (D), ``dtype``, ``features`` and ``sample``. If the features are
    not the sufficient statistics of the family, it defines ``natural_sums``, which applies the
    matrix M to sums of features, and ``feature_coefficients``, which applies the transpose of M. If
    log p(x | phi) contains features whose coefficients do not depend on phi, it defines these
    coefficients as ``base`` (P,). By default, components share no global parameters, have no
    missing values, and are not projected to subspaces.
    """

    # Whether NaN are missing values.
    missing: bool = False
    # Whether rows may be sparse.
    sparse: bool = False
    capabilities: frozenset[Capability] = frozenset()
    # Constant that is added to the squares of each row in a fit, see `FullGaussian`.
    added: Array | None = None
    # Maximum number of entries of an array of features while features are summed.
    entries_at_once: int = 2**22
    # Whether local steps do not compute the array of the features of all rows, because it is large.
    avoids_features: bool = False
    if TYPE_CHECKING:
        # Subclasses define these as fields, properties or class attributes.

        @property
        def family(self) -> Any: ...
        @property
        def prior(self) -> Array: ...
        @property
        def n_features(self) -> int: ...
        @property
        def center(self) -> Any: ...
        def features(self, X: Any) -> Any: ...
        def moments(self, lam: Array) -> tuple[Array, Array]: ...

    @property
    def base(self) -> Any:
        """The part of the table that does not depend on phi, (P,), or one number."""
        return 0.0

    @property
    def log_hyperprior(self) -> float:
        """Log density of parameters of the prior that have a prior themselves; here none have."""
        return 0.0

    @property
    def has_common_columns(self) -> bool:
        """Whether all components may have the same distribution in some columns."""
        return False

    @property
    def parameter_counts(self) -> tuple[int, ...]:
        """Number of natural parameters of each column, if columns are independent given phi."""
        return (self.prior[0].size,) * len(self.prior)

    def natural_sums(self, sums: Array) -> Array:
        """Return ``M S`` for sums of features S; here M is the identity."""
        return sums

    def feature_coefficients(self, t: Array) -> Array:
        """Return ``M' t`` for values t of the sufficient statistics; here M is the identity."""
        return t

    def feature_sums(self, statistics: Array) -> Array:
        """Return sums S of features for which ``M S`` equals ``statistics``.

        This method is right if M is a permutation. Other subclasses override it.
        """
        return self.feature_coefficients(statistics)

    def natural_parameters(self, sums: Array) -> Array:
        """Return ``lam = eta + M S``."""
        return self.prior + self.natural_sums(np.asarray(sums, dtype=np.float64))

    def expected_table(self, lam: Array) -> Array:
        """Return ``T = M' E[t] + base``, shape (K, P), for ``lam`` (K, ...)."""
        return self.table_at(self.family.expectation(lam))

    def table_at(self, t: Array) -> Array:
        """Return ``T`` for sufficient statistics ``t`` (K, ..., E) in place of E[t]."""
        return self.feature_coefficients(t) + self.base

    def row_fits(self, X: Any) -> Any:
        """Return the :class:`RowFits` of rows X, whose missing values are filled in."""
        return RowFits(self, lambda rows: self.filled_features(X[rows]))

    def log_densities_and_sums(
        self, X: Any, table: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return E[log p(x | phi)] (n, K), and a function that sums features.

        ``table`` is the transposed table (P, K). The function returns the sums of features (K, P)
        for responsibilities times weights of the rows, (n, K).
        """
        return multiply_features(self.features(X), table)

    def fits_to_self(self, features: Any) -> tuple[Array, Array]:
        """Return the fit of each row to a component fitted to this row alone, and its magnitude.

        Both are (n,), see `RowFits.fits_to_self`. ``features`` (n, P) are the features of the rows.
        """
        fits, magnitudes = np.empty((2, features.shape[0]))
        rows_at_once = max(1, min(_FITTED_AT_ONCE, _TABLE_ENTRIES_AT_ONCE // features.shape[1]))
        for rows in pieces(features.shape[0], rows_at_once):
            row_features = dense(features[rows])
            # Row i of this table belongs to the component that is fitted to row i.
            terms = row_features * self.expected_table(self.natural_parameters(row_features))
            fits[rows] = terms.sum(axis=1)
            magnitudes[rows] = np.abs(terms).sum(axis=1)
        return fits, magnitudes

    def completion(self, table: Array) -> Completion | None:
        """Return None, because missing values are integrated out without local variables."""
        return None

    def filled(self, X: Any) -> Any:
        """Return rows whose missing values are prior means, if features need complete rows.

        Here features are defined for missing values, so that X is returned.
        """
        return X

    def filled_features(self, X: Any) -> Any:
        """Return the features (n, P) of rows whose missing values are filled in."""
        return self.features(self.filled(X))

    def projected(self, X: Any, weights: Array, directions: Any) -> RowFits | None:
        """Return None, because the component has no form for rows projected to a subspace."""
        return None

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows whose missing values are conditional means under each component, (K, n, D).

        A mean is the mean of the posterior predictive distribution, given the observed values of
        the row. If a Student t has no mean, its location is used. Components with missing values
        must override this method.
        """
        raise NotImplementedError

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Raise NotImplementedError; a subclass whose rows can be drawn overrides this method."""
        raise NotImplementedError

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw missing values independently of the row's other values; subclasses may override."""
        return fill_missing(X, self.sample(lam, X.shape[0], rng))

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return the log posterior predictive densities of rows, (n, K) in nats.

        They are ``A(lam + M F(x)) - A(lam)`` plus the log base measure of the row, ``F(x) @ base``.
        The result is exact for every conjugate family.
        """
        normalizers = sum_per_component(self.family.log_normalizer(lam))
        log_densities = np.empty((X.shape[0], lam.shape[0]))
        for rows, base, statistics in self.row_statistics(X, lam.size):
            updated = self.family.log_normalizer(lam + statistics[:, None])
            updated = updated.reshape(*updated.shape[:2], -1).sum(axis=2)
            log_densities[rows] = updated - normalizers + base[:, None]
        return log_densities

    def log_predictive_mixed(
        self, X: Any, lam: Array, common_lam: Array, probabilities: Array
    ) -> Array:
        """Return log densities, (n, K) in nats, if each column has one of two distributions.

        A column has the predictive distribution of ``lam`` (K, ..., E) with the ``probabilities``
        (K, D), and otherwise the predictive distribution of ``common_lam`` (..., E), which all
        components share. Columns must be independent given the component.
        """
        with np.errstate(divide="ignore"):
            log_share = np.log(probabilities)
            log_common_share = np.log1p(-probabilities)
        separate = self.family.log_normalizer(lam)
        common = self.family.log_normalizer(common_lam)
        log_densities = np.empty((X.shape[0], len(lam)))
        # Gains are log predictive densities of columns without the base measure, (n, K, D).
        for rows, base, statistics in self.row_statistics(X, lam.size):
            separate_gain = self.family.log_normalizer(lam + statistics[:, None]) - separate
            common_gain = self.family.log_normalizer(common_lam + statistics) - common
            log_common = log_common_share + common_gain[:, None]
            column_densities = np.logaddexp(log_share + separate_gain, log_common)
            log_densities[rows] = column_densities.sum(axis=2) + base[:, None]
        return log_densities

    def mix_parameters(self, lam: Array, common_lam: Array, probabilities: Array) -> Array | None:
        """Return natural parameters with the densities of :meth:`log_predictive_mixed`.

        The result is None if the family has no such natural parameters.
        """
        return None

    def row_statistics(self, X: Any, size: int) -> Iterator[tuple[slice, Array, Array]]:
        """Yield slices of n rows, their log base measures (n,), and M F(x) of rows, (n, ..., E).

        Slices have so few rows that the caller can hold ``size`` numbers for each row. The array
        ``added``, which fits add to the squares of rows, is left out, because densities are those
        of the rows themselves.
        """
        # All components in which ``added`` is not None are dataclasses.
        component: Any = self if self.added is None else replace(self, added=None)  # type: ignore[type-var]
        features = dense(component.features(X))
        base = features @ np.broadcast_to(self.base, features.shape[1])
        for rows in pieces(X.shape[0], max(1, _ENTRIES_AT_ONCE // size)):
            yield rows, base[rows], self.natural_sums(features[rows])

    def weighted_sums(self, X: Any, weighted_resp: Array) -> Array:
        """Return sums of features (K, P) for responsibilities times weights of the rows, (n, K)."""
        # The prior has the shape of t (..., E), and the product of M' and any t has P entries.
        n_row_features = self.feature_coefficients(self.prior).shape[-1]
        sums = np.zeros((weighted_resp.shape[1], n_row_features))
        rows_at_once = max(_MIN_ROWS_PER_SUM, self.entries_at_once // n_row_features)
        for rows in pieces(len(weighted_resp), rows_at_once):
            sums += self._sum_few_rows(X[rows], weighted_resp[rows])
        return sums

    def _sum_few_rows(self, X: Any, weighted_resp: Array) -> Array:
        """Return :meth:`weighted_sums` of so few rows that their features fit into memory."""
        return self.features(X).T.dot(weighted_resp).T

    @property
    def without_shared_globals(self) -> Any:
        """The component itself, because components share no global parameters."""
        return self

    @property
    def with_unknown_levels(self) -> Any:
        """The component whose predictive densities also cover levels that are not in the fit."""
        return self

    def with_shared_globals(self, lam: Array) -> Array:
        """Return ``lam`` unchanged, because components share no global parameters."""
        return lam

    def log_evidence(self, sums: Array) -> Array:
        """Return the log evidence of each component's rows, (K,) in nats.

        With the sums S_k (P,) of component k, it is ``A(eta + M S_k) - A(eta) + S_k @ base``. The
        sum over components is the evidence of all rows, even if components share parameters.
        """
        updated = sum_per_component(self.family.log_normalizer(self.natural_parameters(sums)))
        return np.asarray(updated - self.log_normalizer + (sums * self.base).sum(axis=1))

    @cached_property
    def log_normalizer(self) -> float:
        """``A(eta)`` of the prior."""
        return float(self.family.log_normalizer(self.prior).sum())

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of evidence by the merge of each pair of components (a, b), in nats.

        With the :meth:`log_evidence` L, it is ``L(S_a + S_b) - L(S_a) - L(S_b)`` [HS13 eq. 12].
        The paper writes log M for L.
        """
        if a.size == 0:
            return np.zeros(0)
        # Compute the evidence of each component only once, even if it is in several pairs.
        evidence = np.zeros(len(sums))
        merged_components = np.union1d(a, b)
        evidence[merged_components] = self.log_evidence(sums[merged_components])
        gains = -evidence[a] - evidence[b]
        for chunk in pieces(a.size, max(1, _ENTRIES_AT_ONCE // max(1, sums[:1].size))):
            gains[chunk] += self.log_evidence(sums[a[chunk]] + sums[b[chunk]])
        return gains

    def in_data_coordinates(self, lam: Array) -> tuple[Any, Array]:
        """Return the family and ``lam`` in the coordinates of the data."""
        return self.family, lam

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        """Return {}, because the component has no named blocks of columns."""
        return {}

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple[Any, Array]:
        """Draw phi from q; return the component, and a ``lam`` that is concentrated at phi."""
        return self, self.family.concentrate_at(self.family.sample(lam, rng))

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return rows X, in which missing values stay NaN because they are integrated out."""
        return X

    @property
    def without_jacobian(self) -> Any:
        """The component itself: its densities have no Jacobian, because no column is in logarithms.

        See :class:`skvt.models.mixture._logs.Logged`.
        """
        return self

    def without_indicator(self, column: int) -> Any:
        """Return the component itself, because it does not model which values are missing."""
        return self

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values by the :meth:`conditional_mean`, averaged over components.

        ``memberships`` (n, K) are the weights of the average.
        """
        mean = np.einsum("nk,knd->nd", memberships, self.conditional_mean(X, lam))
        return np.where(np.isnan(X), mean, X)

    def gaussians(self, lam: Array) -> tuple[Array, Array] | None:
        """Return None, because the component is not Gaussian."""
        return None

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return no marginal posteriors of columns' parameters; subclasses may override."""
        return ()

    def column_evidence(self, sums: Array) -> Array:
        """Return the log evidence of each column, (K, D) in nats.

        It is the evidence in a model of the column alone. If all columns share one distribution,
        its evidence is divided equally among the columns.
        """
        log_normalizers = self.column_log_normalizers(self.natural_parameters(sums))
        evidence = log_normalizers - self.column_log_normalizers(self.prior[None])
        # If all columns share one distribution, ``evidence`` has no axis of columns.
        if evidence.ndim == 1:
            evidence = np.repeat(evidence[:, None] / self.n_features, self.n_features, axis=1)
        return np.asarray(evidence)

    def column_log_normalizers(self, lam: Array) -> Array:
        """Return the log normalisers of the distributions of single columns, (K, D).

        The result is (K,) if all columns share one distribution. Subclasses override the method if
        the family does not have one log normaliser for each column.
        """
        return np.asarray(self.family.log_normalizer(lam))

    def _centred(self, X: Any) -> Array:
        """Return rows in float64 from which the center of the component is subtracted."""
        # Use C order, so that rounding does not depend on the layout of X.
        return np.subtract(X, self.center, order="C", dtype=np.float64)


class PairOfEachColumn(ConjugateComponent):
    """Base of components with two features and two natural parameters for each column.

    ``prior`` is (D, 2). The features of a row are the first features of all columns, the second
    features of all columns, and ``n_constants`` numbers of the row, whose coefficients in the table
    are always 1. If ``sparse``, the row has one more feature c, which is last. The second feature
    of a column is then the sum of c and of the number that is stored for the column. This number is
    0 for columns with the value 0.
    """

    n_constants: int = 0

    @property
    def base(self) -> Array:
        """The part of the table that does not depend on phi: 1 for constants, and otherwise 0."""
        zeros = np.zeros(2 * len(self.prior))
        return np.concatenate([zeros, np.ones(self.n_constants), np.zeros(int(self.sparse))])

    def natural_sums(self, sums: Array) -> Array:
        """Convert sums of features (..., P) to natural parameters (..., D, 2)."""
        D = len(self.prior)
        first, second = sums[..., :D], sums[..., D : 2 * D]
        # The last sum belongs to the feature c, which is a term of all second features.
        return np.stack([first, second + sums[..., -1:] if self.sparse else second], axis=-1)

    def feature_coefficients(self, t: Array) -> Array:
        """Return ``M' t``, (..., P), for values t (..., D, 2) of the sufficient statistics."""
        coefficients = [t[..., 0], t[..., 1], np.zeros((*t.shape[:-2], self.n_constants))]
        if self.sparse:
            coefficients.append(t[..., 1].sum(axis=-1, keepdims=True))
        return np.concatenate(coefficients, axis=-1)

    def feature_sums(self, statistics: Array) -> Array:
        """Return sums S for which ``M S`` equals ``statistics``.

        They are non-negative if ``statistics`` are, and 0 for features that belong to no column.
        """
        sums = self.feature_coefficients(statistics)
        sums[..., 2 * len(self.prior) :] = 0.0
        return sums


def multiply_features(features: Any, table: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return :meth:`ConjugateComponent.log_densities_and_sums` of rows with ``features`` (n, P)."""
    return features @ table, lambda weighted_resp: features.T.dot(weighted_resp).T


def fill_missing(X: Any, values: Array) -> Array:
    """Return rows X (n, D) with missing values replaced by ``values``, broadcast to (..., n, D)."""
    X = dense_rows(X)
    return np.where(np.isnan(X), values, X)


def draw_positions(weights: Array, rng: np.random.Generator) -> IndexArray:
    """Draw positions (...) on the last axis of ``weights`` (..., S), in proportion to weights."""
    cumulative_weights = weights.cumsum(axis=-1)
    thresholds = rng.random(cumulative_weights.shape[:-1])[..., None] * cumulative_weights[..., -1:]
    return np.asarray((cumulative_weights < thresholds).sum(axis=-1))


def dense_rows(X: Any) -> Array:
    """Return rows as a dense array in float64."""
    # Use C order, so that rounding does not depend on the layout of X.
    return np.ascontiguousarray(dense(X), np.float64)
