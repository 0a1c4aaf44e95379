"""What components of mixtures share, see :class:`skvt.contracts.Component`."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from skvt.contracts import Capability, Completion
from skvt.models.mixture._marginals import Marginals
from skvt.rows import dense, pieces
from skvt.typing import Array, IndexArray

LOG_2PI = np.log(2.0 * np.pi)
# Rows times components times columns that predictive densities and merges hold at a time.
_ENTRIES_AT_ONCE = 2**20
# Rows whose own tables are held at a time, and numbers in these.
_TABLES_AT_ONCE = 512
_NUMBERS_AT_ONCE = 2**18
# Numbers that features of rows hold at a time where they are summed.
_NUMBERS_OF_SUMS = 2**22


def per_component(values: Array) -> Array:
    """Sum over all axes but the first."""
    return values.reshape(values.shape[0], -1).sum(axis=1)


class RowFits:
    """What components that saw one row each say of rows, by their ``features`` (n, P)."""

    def __init__(self, component: Any, features: Callable[[Any], Any]) -> None:
        self._component, self._features = component.alone, features

    def some(self, rows: Any) -> Any:
        return self._features(rows)

    def given(self, some: Any, seeds: Any) -> tuple[Array, Array]:
        """Of each row under each seed, (n, K) in nats up to a constant, and sizes of the terms.

        ``E[log p(x | phi)]``; its sum is rounded relative to these sizes.
        """
        own, component = dense(self._features(seeds)), self._component
        tables = component.table(component.natural_parameters(own)).T
        return some @ tables, abs(some) @ np.abs(tables)

    def own(self, some: Any) -> tuple[Array, Array]:
        """Of each row under itself, (n,), and sizes of the terms."""
        found: tuple[Array, Array] = self._component.own_fits(some)
        return found


class ConjugateComponent:
    """Base of components: ``lam`` and ``T`` from ``spread`` (M), ``gather`` (M') and ``base`` (P,).

    What methods are to do, :class:`skvt.contracts.Component` says. A subclass has ``family``,
    ``prior``, ``n_features`` and ``dtype``; ``features`` and ``sample``; ``base``, the coefficients
    (P,) of its features that do not depend on phi, where there are any; ``spread`` and its
    transpose ``gather`` where features are not statistics as they are. Here components share
    nothing, have no missing values and no subspaces in which rows are compared.
    """

    missing: bool = False
    sparse: bool = False
    capabilities: frozenset[Capability] = frozenset()
    # what is added to squares of each row
    added: Array | None = None
    if TYPE_CHECKING:  # fields, properties or class attributes of those who inherit

        @property
        def family(self) -> Any: ...
        @property
        def prior(self) -> Array: ...
        @property
        def n_features(self) -> int: ...
        @property
        def center(self) -> Any: ...
        def features(self, X: Any) -> Any: ...
        def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array: ...
        def moments(self, lam: Array) -> tuple[Array, Array]: ...

    @property
    def base(self) -> Any:
        return 0.0

    def spread(self, sums: Array) -> Array:
        return sums

    def gather(self, t: Array) -> Array:
        return t

    def sums_of(self, own: Array) -> Array:
        """Sums with this ``M S``: where M is no permutation, a subclass overrides it."""
        return self.gather(own)

    def natural_parameters(self, sums: Array) -> Array:
        """``lam = eta + M S``."""
        return self.prior + self.spread(np.asarray(sums, dtype=np.float64))

    def table(self, lam: Array) -> Array:
        """``T = M' E[t] + base measure``."""
        return self.table_of(self.family.expectation(lam))

    def table_of(self, t: Array) -> Array:
        """``T`` of given ``t(phi_k)``, shape (K, ..., E)."""
        return self.gather(t) + self.base

    def row_fits(self, X: Any) -> Any:
        return RowFits(self, lambda rows: self.filled_features(X[rows]))

    def explain(self, X: Any, table: Array) -> tuple[Array, Callable[[Array], Array]]:
        features = self.features(X)
        return features @ table, lambda weighted: features.T.dot(weighted).T

    def own_fits(self, features: Any) -> tuple[Array, Array]:
        """How well each row is explained by itself, (n,), and sizes of the terms."""
        out, size = np.empty((2, features.shape[0]))
        step = max(1, min(_TABLES_AT_ONCE, _NUMBERS_AT_ONCE // features.shape[1]))
        for rows in pieces(features.shape[0], step):
            part = dense(features[rows])
            product = part * self.table(self.natural_parameters(part))
            out[rows], size[rows] = product.sum(axis=1), np.abs(product).sum(axis=1)
        return out, size

    def completion(self, table: Array) -> Completion | None:
        return None

    def filled(self, X: Any) -> Any:
        return X

    def filled_features(self, X: Any) -> Any:
        return self.features(self.filled(X))

    def projected(self, X: Any, weights: Array, directions: Any) -> RowFits | None:
        return None

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Rows with missing values at their means given the rest of the row, (K, n, D).

        Under the posterior predictive of each component; for a Student t without a mean, at its
        location. No missing values unless a subclass overrides it.
        """
        raise NotImplementedError

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Missing values drawn, independent of the rest unless a subclass overrides it."""
        return with_draws(X, self.sample(lam, X.shape[0], rng))

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """``A(lam + M F(x)) - A(lam)`` + base measure: exact for every conjugate family."""
        # (densities are of rows as they are)
        component: Any = self if self.added is None else replace(self, added=None)  # type: ignore[type-var]
        features = dense(component.features(X))
        base = features @ np.broadcast_to(self.base, features.shape[1])
        before = per_component(self.family.log_normalizer(lam))
        out = np.empty((X.shape[0], lam.shape[0]))
        for rows in pieces(X.shape[0], max(1, _ENTRIES_AT_ONCE // lam.size)):
            after = lam + self.spread(features[rows])[:, None]
            after = self.family.log_normalizer(after)
            out[rows] = after.reshape(*after.shape[:2], -1).sum(axis=2) - before
        return out + base[:, None]

    def weighted_sums(self, X: Any, weighted: Array) -> Array:
        sums = np.zeros((weighted.shape[1], self.gather(self.prior).shape[-1]))
        step = max(_TABLES_AT_ONCE, _NUMBERS_OF_SUMS // sums.shape[1])
        for rows in pieces(len(weighted), step):
            sums += self.features(X[rows]).T.dot(weighted[rows]).T
        return sums

    @property
    def alone(self) -> Any:
        return self

    @property
    def opened(self) -> Any:
        """The component whose columns may hold levels that the fit has not seen."""
        return self

    def apart(self, lam: Array) -> Array:
        return lam

    def log_evidence(self, sums: Array) -> Array:
        """Log marginal likelihood of each component's rows, ``A(eta + S_k) - A(eta)``, (K,) nats.

        With the base measure; M(S_k) of [HS13 eq. 12]. The sum is that of all rows, also where
        components share something.
        """
        after = per_component(self.family.log_normalizer(self.natural_parameters(sums)))
        return np.asarray(after - self.log_normalizer + (sums * self.base).sum(axis=1))

    @cached_property
    def log_normalizer(self) -> float:
        """``A(eta)`` of the prior."""
        return float(self.family.log_normalizer(self.prior).sum())

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """``log M(S_a + S_b) - log M(S_a) - log M(S_b)`` [HS13 eq. 12], see :class:`Component`."""
        if a.size == 0:
            return np.zeros(0)
        single, used = np.zeros(len(sums)), np.union1d(a, b)
        single[used] = self.log_evidence(sums[used])
        gain = -single[a] - single[b]
        for pairs in pieces(a.size, max(1, _ENTRIES_AT_ONCE // max(1, sums[:1].size))):
            gain[pairs] += self.log_evidence(sums[a[pairs]] + sums[b[pairs]])
        return gain

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        """The family and ``lam`` in the coordinates of the data."""
        return self.family, lam

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        """Components of which this one consists, with their ``lam``: none."""
        return {}

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple[Any, Array]:
        return self, self.family.certain(self.family.sample(lam, rng))

    def with_completed(self, X: Any, completed: Array) -> Any:
        return X

    def without_indicator(self, column: int) -> Any:
        return self

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        mean = np.einsum("nk,knd->nd", memberships, self.conditional_mean(X, lam))
        return np.where(np.isnan(X), mean, X)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        return ()

    def column_evidence(self, sums: Array) -> Array:
        """Exact if the family has a member for each column; a shared one is divided equally."""
        after = self.family.log_normalizer(self.natural_parameters(sums))
        own = after - self.family.log_normalizer(self.prior)
        if own.ndim == 1:
            own = np.repeat(own[:, None] / self.n_features, self.n_features, axis=1)
        return np.asarray(own)

    def _centred(self, X: Any) -> Array:
        # row by row in memory, so that rounding does not depend on the layout of X
        return np.subtract(X, self.center, order="C", dtype=np.float64)


class PairOfEachColumn(ConjugateComponent):
    """Two features and two natural parameters of each column; ``prior`` (D, 2)."""

    @property
    def n_features(self) -> int:
        return self.prior.shape[0]

    def spread(self, sums: Array) -> Array:
        """(..., 2D) -> (..., D, 2)."""
        return np.stack(np.split(sums, 2, axis=-1), axis=-1)

    def gather(self, t: Array) -> Array:
        return np.concatenate([t[..., 0], t[..., 1]], axis=-1)


def with_means(X: Any, means: Array) -> Array:
    """Rows with missing values at the means (K, D) of their columns, (K, n, D)."""
    X = dense_rows(X)
    return np.where(np.isnan(X), means[:, None], X)


def with_draws(X: Any, draws: Array) -> Array:
    X = dense_rows(X)
    return np.where(np.isnan(X), draws, X)


def dense_rows(X: Any) -> Array:
    # row by row in memory, so that rounding does not depend on the layout of X
    return np.ascontiguousarray(dense(X), np.float64)
