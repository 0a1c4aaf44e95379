"""Components of mixtures: the likelihoods, see :class:`skvt.contracts.Component`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from skvt.compiled import digamma_array
from skvt.compiled import gammaln_array as _gammaln
from skvt.contracts import Capability, Completion
from skvt.expfam import Dirichlet, Gamma, Normal, NormalGamma, NormalWishart, Wishart, triangle
from skvt.models import noise_log_partition
from skvt.models.mixture._kernels import outer_features
from skvt.models.mixture._marginals import (
    Marginals,
    of_deviations,
    of_means,
    of_probabilities,
)
from skvt.models.mixture._missing import CompletionOfTable, GaussianCompletion, has_holes
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

LOG_2PI = np.log(2.0 * np.pi)
# Rows times components times columns that a predictive density holds at a time.
_ENTRIES_AT_ONCE = 2**22
# Relative eigenvalue below which a direction counts as constant.
_LEAST_EIGENVALUE = 1e-9
# Fixed-point steps towards directions of extreme kurtosis.
_STEPS_OF_KURTOSIS = 10


def _generic_log_predictive(component: Any, X: Any, lam: Array) -> Array:
    """``A(lam + M F(x)) - A(lam)`` + base measure: exact for every conjugate family."""
    if component.added is not None:
        component = replace(component, added=None)
    features = component.features(X)
    features = features.toarray() if sp.issparse(features) else features
    base = features @ np.broadcast_to(component.base, features.shape[1])
    before = per_component(component.family.log_normalizer(lam))
    out = np.empty((X.shape[0], lam.shape[0]))
    step = max(1, _ENTRIES_AT_ONCE // lam.size)
    for start in range(0, X.shape[0], step):
        rows = slice(start, start + step)
        after = lam + component.spread(features[rows])[:, None]
        after = component.family.log_normalizer(after)
        out[rows] = after.reshape(*after.shape[:2], -1).sum(axis=2) - before
    return out + base[:, None]


def per_component(values: Array) -> Array:
    """Sum over all axes but the first."""
    return values.reshape(values.shape[0], -1).sum(axis=1)


class ConjugateComponent:
    """Base of components: ``lam`` and ``T`` from ``spread`` (M), ``gather`` (M') and ``base`` (P,).

    A subclass has ``family``, ``prior``, ``n_features`` and ``dtype``, see :class:`Component`;
    ``base``, the coefficients (P,) of its features that do not depend on phi; :meth:`spread` and
    :meth:`gather` where features are not statistics as they are; ``features`` and ``sample``.
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
        @property
        def base(self) -> Any: ...

        def features(self, X: Any) -> Any: ...

    def spread(self, sums: Array) -> Array:
        """``M S``: features are the statistics unless a subclass overrides it."""
        return sums

    def gather(self, t: Array) -> Array:
        """Transpose of :meth:`spread`."""
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

    def row_tables(self, features: Array) -> Array:
        """Tables of components that have seen one row each, see :class:`Component`."""
        return self.table(self.natural_parameters(features))

    def completion(self, table: Array) -> Completion | None:
        """No completion unless a subclass overrides it."""
        return None

    def filled(self, X: Any) -> Any:
        """Rows as they are."""
        return X

    def filled_features(self, X: Any) -> Any:
        """Features of rows whose missing values are filled in."""
        return self.features(self.filled(X))

    def projected(self, X: Any, weights: Array, directions: Any) -> tuple[Any, Any] | None:
        """None unless a subclass overrides it."""
        return None

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Rows with missing values at their means given the rest of the row, (K, n, D).

        Under the posterior predictive of each component; for a Student t without a mean, at its
        location. No missing values unless a subclass overrides it.
        """
        raise NotImplementedError

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """See :class:`Component`; no missing values unless a subclass overrides it."""
        raise NotImplementedError

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Exact posterior predictive, see :class:`Component`."""
        return _generic_log_predictive(self, X, lam)

    @property
    def alone(self) -> Any:
        """Itself: components share nothing unless a subclass overrides it."""
        return self

    def apart(self, lam: Array) -> Array:
        """``lam``, see :attr:`alone`."""
        return lam

    def log_evidence(self, sums: Array) -> Array:
        """Log marginal likelihood of each component's rows, ``A(eta + S_k) - A(eta)``, (K,) nats.

        With the base measure; M(S_k) of [HS13 eq. 12]. The sum is that of all rows, also where
        components share something.
        """
        after = per_component(self.family.log_normalizer(self.natural_parameters(sums)))
        before = self.family.log_normalizer(self.prior).sum()
        return np.asarray(after - before + (sums * self.base).sum(axis=1))

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """``log M(S_a + S_b) - log M(S_a) - log M(S_b)`` [HS13 eq. 12], see :class:`Component`."""
        if a.size == 0:
            return np.zeros(0)
        single, used = np.zeros(len(sums)), np.union1d(a, b)
        single[used] = self.log_evidence(sums[used])
        gain = -single[a] - single[b]
        step = max(1, _ENTRIES_AT_ONCE // max(1, sums[:1].size))
        for start in range(0, a.size, step):
            pairs = slice(start, start + step)
            gain[pairs] += self.log_evidence(sums[a[pairs]] + sums[b[pairs]])
        return gain

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        """The family and ``lam`` in the coordinates of the data."""
        return self.family, lam

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        """Components of which this one consists, with their ``lam``: none."""
        return {}

    def without_indicator(self, column: int) -> Any:
        """Itself, see :class:`Component`."""
        return self

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Missing values replaced by their means, see :class:`Component`."""
        mean = np.einsum("nk,knd->nd", memberships, self.conditional_mean(X, lam))
        return np.where(np.isnan(X), mean, X)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Posterior marginals of the columns' parameters; none unless a subclass overrides it."""
        return ()

    def column_evidence(self, sums: Array) -> Array:
        """See :class:`Component`.

        Exact here if the family has a member for each column; a member shared by columns is divided
        equally among them.
        """
        after = self.family.log_normalizer(self.natural_parameters(sums))
        own = after - self.family.log_normalizer(self.prior)
        if own.ndim == 1:
            own = np.repeat(own[:, None] / self.n_features, self.n_features, axis=1)
        return np.asarray(own)

    def _centred(self, X: Any) -> Array:
        # row by row in memory, so that rounding does not depend on the layout of X
        return np.subtract(X, self.center, order="C", dtype=np.float64)


class _Centred:
    """Gaussians with means, of the data minus ``center`` (D,)."""

    if TYPE_CHECKING:

        @property
        def family(self) -> Any: ...
        @property
        def center(self) -> Array: ...
        def filled(self, X: Any) -> Any: ...

    @property
    def n_features(self) -> int:
        """Number of columns D."""
        return self.center.size

    def projected(
        self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]
    ) -> tuple[Any, Any] | None:
        """Spherical Gaussians of the rows in these directions.

        None of no more rows than columns, or rows that are all the same.
        """
        if X.shape[0] <= X.shape[1]:
            return None
        rows = directions(_completed_rows(self.filled(X), weights), weights)
        size, scale = rows.shape[1], float((weights @ rows**2).mean() / weights.sum())
        if scale == 0.0:
            return None
        prior = NormalGamma.from_standard(np.zeros(size), np.ones(size), 0.5 * size, 0.5 * scale)
        component = SphericalGaussian(prior, np.zeros(size), rows.dtype)
        return component, component.features(rows)

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        """The family and ``lam`` in the coordinates of the data."""
        q = self.family.standard(lam)
        center = self.center[:, None] if q["mean"].shape[-1] == 1 < self.n_features else self.center
        return self.family, self.family.from_standard(**(q | {"mean": q["mean"] + center}))


def _completed_rows(X: Any, weights: Array) -> Array:
    """Rows in float64, NaN replaced by the means of the columns."""
    rows = np.array(X, np.float64)
    missing = np.isnan(rows)
    if missing.any():
        seen = weights @ ~missing
        means = (weights @ np.where(missing, 0.0, rows)) / np.where(seen > 0.0, seen, 1.0)
        rows = np.where(missing, means, rows)
    return rows


def _spectrum(X: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Standardised columns (n, D), and eigenvalues and eigenvectors of their correlations."""
    share = weights / weights.sum()
    X = X - share @ X
    deviation = np.sqrt(share @ X**2)
    X = X / np.where(deviation > 0.0, deviation, 1.0)
    return X, *np.linalg.eigh((X * share[:, None]).T @ X)


def principal_components(X: Array, weights: Array, number: int) -> Array:
    """The first principal components of the standardised columns, (n, number or more).

    Those of the same variance as the last one are there, too.
    """
    X, variances, directions = _spectrum(X, weights)
    number = min(number, variances.size)
    last, scale = variances[-number], variances[-1]
    kept = ~exceeds(last, variances, scale=scale)
    components: Array = X @ directions[:, kept]
    return components


def least_normal_components(X: Array, weights: Array, number: int) -> Array:
    """Rows in the directions in which they are least normal by their kurtosis, (n, number).

    Fixed points of the kurtosis of whitened rows, from the columns of most extreme kurtosis on.
    Components of the same covariance are told apart there and nowhere else.
    """
    X, variances, basis = _spectrum(X, weights)
    kept = variances > _LEAST_EIGENVALUE * variances[-1]
    basis = basis[:, kept]
    # symmetric, so that it does not depend on the basis where eigenvalues are the same
    Z = X @ ((basis / np.sqrt(variances[kept])) @ basis.T)
    share = weights / weights.sum()
    excess = np.abs(share @ Z**4 - 3.0)
    W = np.eye(Z.shape[1])[:, stable_order(-excess, scale=1.0)[:number]]
    for _ in range(_STEPS_OF_KURTOSIS):
        W = (Z * share[:, None]).T @ (Z @ W) ** 3 - 3.0 * W  # [HyvarinenOja97 eq. 8]
        W, _ = np.linalg.qr(W)
    projected: Array = Z @ W
    return projected


class PairOfEachColumn:
    """Two features and two natural parameters of each column; ``prior`` (D, 2)."""

    if TYPE_CHECKING:

        @property
        def prior(self) -> Array: ...

    @property
    def n_features(self) -> int:
        """Number of columns D."""
        return self.prior.shape[0]

    def spread(self, sums: Array) -> Array:
        """(..., 2D) -> (..., D, 2)."""
        return np.stack(np.split(sums, 2, axis=-1), axis=-1)

    def gather(self, t: Array) -> Array:
        """Transpose of :meth:`spread`."""
        return np.concatenate([t[..., 0], t[..., 1]], axis=-1)


class _Full:
    """Gaussians with full covariances, whose predictive is a multivariate Student t."""

    if TYPE_CHECKING:

        @property
        def prior(self) -> Array: ...
        @property
        def n_features(self) -> int: ...
        @property
        def center(self) -> Any: ...

        def _centred(self, X: Any) -> Array: ...

    missing = True

    def _student(self, lam: Array) -> tuple[Array, Array, Array]:
        """Mean (K, D), shape matrix times degrees of freedom (K, D, D), and these (K,)."""
        raise NotImplementedError

    def completion(self, table: Array) -> Completion | None:
        """q of missing values."""
        return CompletionOfTable(self.center, table, self.n_features)

    def filled(self, X: Any) -> Any:
        """Rows with missing values at their mean under the prior."""
        return self.conditional_mean(X, self.prior[None])[0] if has_holes(X) else X

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Student t with nu - D + 1 degrees of freedom [Bishop06 eq. 10.81]."""
        return student_t(self._centred(X), *self._student(lam))

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """``x_m`` at its mean given ``x_o`` under that Student t, (K, n, D)."""
        mean, scale, _ = self._student(lam)
        holes = GaussianCompletion.of_scale(self.center, mean, scale).holes(X, np.ones(1))
        if holes is None:
            return np.repeat(np.asarray(X, np.float64)[None], len(lam), axis=0)
        filled = np.stack([holes.filled(k) for k in range(len(lam))]) + self.center
        return np.where(holes.missing, filled, X)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draws of ``x_m`` given ``x_o``, a Student t of more degrees of freedom, (n, D).

        With f degrees of freedom and ``delta`` the squared distance of ``x_o`` in its marginal
        shape matrix, f + |o|, and the conditional shape matrix times ``(f + delta) / (f + |o|)``.
        """
        mean, scale, freedom = self._student(lam[None])
        holes = GaussianCompletion.of_scale(self.center, mean, scale).holes(X, np.ones(1))
        if holes is None:
            return np.array(X, np.float64)
        n_seen = self.n_features - holes.missing.sum(axis=1)
        distance = _distances(holes.filled(0), mean[0], np.linalg.cholesky(scale[0]))
        spread = np.sqrt((1.0 + distance) / rng.chisquare(freedom[0] + n_seen))
        noise = rng.standard_normal(holes.X.shape) * spread[:, None]
        return np.where(holes.missing, holes.filled(0, noise) + self.center, X)


@dataclass(frozen=True)
class FullGaussian(_Centred, _Full, ConjugateComponent):
    """N(mu_k, Lambda_k^-1) with normal-Wishart prior; features [1, x, x x'].

    Parameters
    ----------
    prior : ndarray, shape (2 + D + D(D+1)/2,)
        Of the data minus ``center``.
    center : ndarray, shape (D,)
        Subtracted from the rows, so that a distant origin does not cost precision.
    dtype : dtype
    added : ndarray, shape (D (D + 1) / 2,), or None
        Added to ``x x'`` of each row where columns are dependent; densities are of rows as they
        are. See :mod:`skvt.models.mixture._gaussian_prior`.
    """

    prior: Array
    center: Array
    dtype: np.dtype[Any]
    added: Array | None = None

    covariance_type = "full"
    family = NormalWishart

    @property
    def base(self) -> Array:
        """Constant of the density, at the feature that counts rows."""
        base = np.zeros(self.prior.size - 1)
        base[0] = -0.5 * self.n_features * LOG_2PI
        return base

    def features(self, X: Any) -> Any:
        """``[1, x, upper triangle of x x']``, see :func:`_full_features`."""
        return _full_features(self._centred(X), True, self.added)

    def spread(self, sums: Array) -> Array:
        """A row counts for log|Lambda| / 2 and for -mu' Lambda mu / 2."""
        return np.concatenate([sums[..., :1], sums], axis=-1)

    def gather(self, t: Array) -> Array:
        """Transpose of :meth:`spread`."""
        out = t[..., 1:].copy()
        out[..., 0] += t[..., 0]
        return out

    def row_tables(self, features: Array) -> Array:
        """See :class:`Component`; the prior's scale is inverted once, changes are of rank one."""
        if self.added is not None:
            return super().row_tables(features)
        q, D = NormalWishart.standard(self.prior), self.n_features
        kappa, nu = q["mean_precision"] + 1.0, q["degrees_of_freedom"] + 1.0
        deviation = features[:, 1 : 1 + D] - q["mean"]
        inverse, mean = np.linalg.inv(q["scale_inverse"]), q["mean"] + deviation / kappa
        direction, share = deviation @ inverse, q["mean_precision"] / kappa
        growth = 1.0 + share * np.einsum("ni,ni->n", deviation, direction)
        scaled = direction * np.sqrt(share / growth)[:, None]
        precision_mean = nu * (mean @ inverse)
        precision_mean -= nu * scaled * np.einsum("ni,ni->n", scaled, mean)[:, None]
        square = np.einsum("ni,ni->n", mean, precision_mean) + D / kappa
        prior_log_det = 2.0 * NormalWishart.expectation(self.prior)[0]
        # E[log|Lambda|] grows with the degrees of freedom, by digamma of all halves but two
        halves = 0.5 * (q["degrees_of_freedom"] - np.array([D - 1.0, -1.0]))
        log_det = prior_log_det + np.diff(digamma_array(halves)) - np.log(growth)
        halved = triangle.pack_statistic(np.ones((D, D)))
        packed = triangle.pack_statistic(inverse) - halved * triangle.pack_outer(scaled)
        t = [0.5 * log_det[:, None], -0.5 * square[:, None], precision_mean, nu * packed]
        return self.table_of(np.concatenate(t, axis=1))

    def _student(self, lam: Array) -> tuple[Array, Array, Array]:
        q = NormalWishart.standard(lam)
        kappa = q["mean_precision"]
        return (
            q["mean"],
            q["scale_inverse"] * ((1.0 + kappa) / kappa)[:, None, None],
            q["degrees_of_freedom"] - self.n_features + 1.0,
        )

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draws of that Student t."""
        mean, scale, freedom = self._student(lam[None])
        return draw_student_t(mean[0], scale[0], freedom[0], n_rows, rng) + self.center

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Mean (K, D) and inverse of the expected precision (K, D, D)."""
        q = NormalWishart.standard(lam)
        covariances = q["scale_inverse"] / q["degrees_of_freedom"][:, None, None]
        return q["mean"] + self.center, covariances

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Means and standard deviations of the columns."""
        mean, kappa, shape, rate = self._of_columns(lam)
        return of_means(mean, kappa, shape, rate), of_deviations(shape, rate)

    def column_evidence(self, sums: Array) -> Array:
        """Of each column in the Gaussian model of this column alone."""
        _, kappa, shape, rate = self._of_columns(self.natural_parameters(sums))
        _, *before = self._of_columns(self.prior[None])
        return log_normal_gammas(kappa, shape, rate) - log_normal_gammas(*before)

    def _of_columns(self, lam: Array) -> tuple[Array, Array, Array, Array]:
        """Normal-gamma of each column: m, kappa, shape, rate, which broadcast to (K, D)."""
        q = NormalWishart.standard(lam)
        shape, rate = _variances_of_columns(q)
        return q["mean"] + self.center, q["mean_precision"][:, None], shape, rate


@dataclass(frozen=True)
class ZeroMeanFullGaussian(_Full, ConjugateComponent):
    """N(0, Lambda_k^-1) with Wishart prior; features [1, x x']."""

    prior: Array
    n_features: int
    dtype: np.dtype[Any]
    added: Array | None = None

    covariance_type = "full"
    family = Wishart
    center = 0.0

    @property
    def base(self) -> Array:
        """Constant of the density, at the feature that counts rows."""
        base = np.zeros(self.prior.size)
        base[0] = -0.5 * self.n_features * LOG_2PI
        return base

    def features(self, X: Any) -> Any:
        """``[1, upper triangle of x x']``, see :func:`_full_features`."""
        return _full_features(self._centred(X), False, self.added)

    def _student(self, lam: Array) -> tuple[Array, Array, Array]:
        q = Wishart.standard(lam)
        freedom = q["degrees_of_freedom"] - self.n_features + 1.0
        return np.zeros((lam.shape[0], self.n_features)), q["scale_inverse"], freedom

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draws of that Student t."""
        q = Wishart.standard(lam)
        freedom = q["degrees_of_freedom"] - self.n_features + 1.0
        return draw_student_t(np.zeros(self.n_features), q["scale_inverse"], freedom, n_rows, rng)

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Mean (K, D) and inverse of the expected precision (K, D, D)."""
        q = Wishart.standard(lam)
        covariances = q["scale_inverse"] / q["degrees_of_freedom"][:, None, None]
        return np.zeros((lam.shape[0], self.n_features)), covariances

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Standard deviations of the columns."""
        return (of_deviations(*_variances_of_columns(Wishart.standard(lam))),)

    def column_evidence(self, sums: Array) -> Array:
        """Of each column in the Gaussian model of this column alone."""
        after, before = (
            Gamma.log_normalizer(Gamma.from_standard(*_variances_of_columns(Wishart.standard(lam))))
            for lam in (self.natural_parameters(sums), self.prior[None])
        )
        return after - before


def _variances_of_columns(q: dict[str, Array]) -> tuple[Array, Array]:
    """Of each column of a Wishart, shape (K, 1) and rate (K, D) of the inverse of its variance."""
    scale = np.diagonal(q["scale_inverse"], axis1=1, axis2=2)
    freedom = q["degrees_of_freedom"][:, None] - scale.shape[1] + 1.0
    return 0.5 * freedom, 0.5 * scale


def log_normal_gammas(kappa: Array, shape: Array, rate: Array) -> Array:
    """Log-normalisers (K, D) of normal-gammas, which do not depend on where their means are."""
    kappa, shape, rate = np.broadcast_arrays(kappa, shape, rate)
    eta = NormalGamma.from_standard(np.zeros((*rate.shape, 1)), kappa[..., None], shape, rate)
    return NormalGamma.log_normalizer(eta)


def _full_features(X: Array, linear: bool, added: Array | None) -> Array:
    """``[1, x, upper triangle of x x']`` of centred rows, x if ``linear``; ``added`` to the last.

    With 0 for missing values. All features of a row without any value are 0: its density is one.
    """
    features = outer_features(X, linear=linear)
    if added is not None:
        features[:, -added.size :] += features[:, :1] * added
    return features


def with_means(X: Any, means: Array) -> Array:
    """Rows with missing values at the means (K, D) of their columns, (K, n, D)."""
    X = np.asarray(X, np.float64)
    return np.where(np.isnan(X), means[:, None], X)


def with_draws(X: Any, draws: Array) -> Array:
    """Rows with missing values replaced by those of the draws, (n, D)."""
    X = np.asarray(X, np.float64)
    return np.where(np.isnan(X), draws, X)


class _MissingMixin(ConjugateComponent):
    """Gaussians whose columns are independent given the precision: NaN is left out."""

    missing = True
    if TYPE_CHECKING:

        def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array: ...

        def _means(self, lam: Array) -> Array:
            """Means of the columns relative to the centre, (K, D)."""

    def _observed(self, X: Any) -> tuple[Array, Array]:
        """Centred rows with 0 for NaN, and which entries are there."""
        X = self._centred(X)
        there = ~np.isnan(X)
        return np.where(there, X, 0.0), there.astype(np.float64)

    def _squares(self, X: Any, seen: Array) -> Array:
        squares = X * X
        return squares if self.added is None else squares + seen * self.added

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Missing values at the means of their columns, (K, n, D)."""
        return with_means(X, self._means(lam) + self.center)

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draws of missing values, independent of the rest unless a subclass overrides it."""
        return with_draws(X, self.sample(lam, len(X), rng))


@dataclass(frozen=True)
class DiagonalGaussian(_Centred, _MissingMixin):
    """Independent columns, each N(mu_kd, 1 / tau_kd), normal-gamma; features [seen, x, x^2].

    ``prior`` is (D, 4), and ``added`` None or (D,): what is added to the squares.
    """

    prior: Array
    center: Array
    dtype: np.dtype[Any]
    added: Array | None = None

    covariance_type = "diag"
    family = NormalGamma

    @property
    def base(self) -> Array:
        """Constant of the density, for each value seen."""
        zeros = np.zeros(2 * self.n_features)
        return np.concatenate([np.full(self.n_features, -0.5 * LOG_2PI), zeros])

    def features(self, X: Any) -> Any:
        """``[seen_d, x_d, x_d^2]``, D of each."""
        X, seen = self._observed(X)
        return np.concatenate([seen, X, self._squares(X, seen)], axis=1)

    def spread(self, sums: Array) -> Array:
        """(..., 3D) -> (..., D, 4): counts, squares, sums, counts."""
        counts, first, second = np.split(sums, 3, axis=-1)
        return np.stack([counts, second, first, counts], axis=-1)

    def gather(self, t: Array) -> Array:
        """Transpose of :meth:`spread`."""
        return np.concatenate([t[..., 0] + t[..., 3], t[..., 2], t[..., 1]], axis=-1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draws of independent Student t."""
        q = NormalGamma.standard(lam)
        mean, kappa = q["mean"][:, 0], q["mean_precision"][:, 0]
        scale = q["rate"] * (1.0 + kappa) / (kappa * q["shape"])
        t = rng.standard_t(2.0 * q["shape"], size=(n_rows, self.n_features))
        return mean + self.center + np.sqrt(scale) * t

    def _means(self, lam: Array) -> Array:
        return NormalGamma.standard(lam)["mean"][..., 0]

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Mean (K, D) and inverse of the expected precision (K, D)."""
        q = NormalGamma.standard(lam)
        return q["mean"][..., 0] + self.center, q["rate"] / q["shape"]

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Means and standard deviations of the columns."""
        q = NormalGamma.standard(lam)
        mean, kappa = q["mean"][..., 0] + self.center, q["mean_precision"][..., 0]
        return of_means(mean, kappa, q["shape"], q["rate"]), of_deviations(q["shape"], q["rate"])


@dataclass(frozen=True)
class SphericalGaussian(_Centred, _MissingMixin):
    """N(mu_k, I / tau_k), normal-gamma; features [values seen, |x|^2, x, seen].

    ``prior`` is (2 + 2D,), and ``added`` None or (D,): what is added to the squares.
    """

    prior: Array
    center: Array
    dtype: np.dtype[Any]
    added: Array | None = None

    covariance_type = "spherical"
    family = NormalGamma

    @property
    def base(self) -> Array:
        """Constant of the density, for each value seen."""
        base = np.zeros(self.prior.size)
        base[0] = -0.5 * LOG_2PI
        return base

    def features(self, X: Any) -> Any:
        """``[number seen, |x|^2, x_d, seen_d]``."""
        X, seen = self._observed(X)
        number = seen.sum(axis=1, keepdims=True)
        squares = self._squares(X, seen).sum(axis=1, keepdims=True)
        return np.concatenate([number, squares, X, seen], axis=1)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draws of the Student t: the precision first, shared by a row's columns."""
        q = NormalGamma.standard(lam)
        tau = rng.gamma(q["shape"], 1.0 / q["rate"], size=(n_rows, 1))
        variance = (1.0 + 1.0 / q["mean_precision"]) / tau
        noise = rng.standard_normal((n_rows, self.n_features))
        return q["mean"] + self.center + np.sqrt(variance) * noise

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draws of missing values: first the precision, given the rest of the row."""
        observed, seen = self._observed(X)
        q = NormalGamma.standard(lam)
        factor = 1.0 + 1.0 / q["mean_precision"]
        squares = (seen * (observed - q["mean"]) ** 2 / factor).sum(axis=1)
        rate = q["rate"] + 0.5 * squares
        tau = rng.gamma(q["shape"] + 0.5 * seen.sum(axis=1)) / rate
        noise = rng.standard_normal(seen.shape) / np.sqrt(tau)[:, None]
        return with_draws(X, q["mean"] + self.center + np.sqrt(factor) * noise)

    def _means(self, lam: Array) -> Array:
        return NormalGamma.standard(lam)["mean"]

    def moments(self, lam: Array) -> tuple[Array, Array]:
        """Mean (K, D) and inverse of the expected precision (K,)."""
        q = NormalGamma.standard(lam)
        return q["mean"] + self.center, q["rate"] / q["shape"]

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Means of the columns, and their standard deviation, which is the same for all."""
        q = NormalGamma.standard(lam)
        mean, kappa = q["mean"] + self.center, q["mean_precision"]
        shape, rate = (np.broadcast_to(q[name][:, None], mean.shape) for name in ("shape", "rate"))
        return of_means(mean, kappa, shape, rate), of_deviations(shape, rate)


@dataclass(frozen=True)
class KnownVarianceGaussian(_Centred, _MissingMixin):
    """N(mu_k, s I) with known s, normal prior of each mean; features [x / s, seen / s, rest].

    ``rest`` is the part of the log density that does not depend on the means. Prior plus statistics
    are the precision ``1 / v + N_k / s`` and the mean of [BKM17 alg. 2].

    Parameters
    ----------
    prior : ndarray, shape (D, 2)
        Of the data minus ``center``.
    center : ndarray, shape (D,)
    noise_variance : float
        s.
    dtype : dtype
    """

    prior: Array
    center: Array
    noise_variance: float
    dtype: np.dtype[Any]

    family = Normal
    capabilities = frozenset({Capability.TEMPERABLE})

    @property
    def base(self) -> Array:
        """``rest`` as it is."""
        return np.append(np.zeros(2 * self.n_features), 1.0)

    def projected(self, X: Any, weights: Array, directions: Any) -> None:
        """None: distances are those of the known variance."""

    def features(self, X: Any) -> Any:
        """``[x_d / s, seen_d / s]``, D of each, and ``-(|x|^2 / s + D log(2 pi s)) / 2``."""
        X, seen = self._observed(X)
        s = self.noise_variance
        rest = -0.5 * ((X * X).sum(axis=1) / s + seen.sum(axis=1) * np.log(2.0 * np.pi * s))
        return np.concatenate([X / s, seen / s, rest[:, None]], axis=1)

    def spread(self, sums: Array) -> Array:
        """(..., 2D + 1) -> (..., D, 2)."""
        D = self.n_features
        return np.stack([sums[..., :D], sums[..., D : 2 * D]], axis=-1)

    def gather(self, t: Array) -> Array:
        """Transpose of :meth:`spread`."""
        nothing = np.zeros((*t.shape[:-2], 1))
        return np.concatenate([t[..., 0], t[..., 1], nothing], axis=-1)

    def sums_at(self, means: Array, counts: Array) -> Array:
        """Sums of features for which q has these means (K, D), given numbers of rows (K,)."""
        seen = np.repeat(counts[:, None] / self.noise_variance, self.n_features, axis=1)
        first = (self.prior[:, 1] + seen) * (means - self.center) - self.prior[:, 0]
        return np.concatenate([first, seen, np.zeros((len(counts), 1))], axis=1)

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Independent normal columns of variance ``s + Var[mu_kd]``."""
        X, seen = self._observed(X)
        out = np.empty((X.shape[0], lam.shape[0]))
        for k, (m, v) in enumerate(zip(Normal.mean(lam), Normal.variance(lam), strict=True)):
            v = v + self.noise_variance
            out[:, k] = -0.5 * (seen * ((X - m) ** 2 / v + np.log(2.0 * np.pi * v))).sum(axis=1)
        return out

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draws of these normals."""
        scale = np.sqrt(self.noise_variance + Normal.variance(lam))
        noise = rng.standard_normal((n_rows, self.n_features))
        return Normal.mean(lam) + self.center + scale * noise

    def _means(self, lam: Array) -> Array:
        return Normal.mean(lam)

    def log_partition(self, b: Array) -> tuple[Array, Array]:
        """``log int p(x | mu_k)^b dx`` of a complete row and its slope in b, (M,) each, in nats."""
        return noise_log_partition(b, self.n_features, self.noise_variance)


@dataclass(frozen=True)
class Bernoulli(PairOfEachColumn, ConjugateComponent):
    """Independent binary columns with beta priors; features [x, seen - x]; ``prior`` (D, 2).

    With ``sparse``, they are ``[x, -x - missing, 1]``, which but for the last are 0 where x is.
    """

    prior: Array
    dtype: np.dtype[Any]
    sparse: bool = False

    family = Dirichlet
    base = 0.0
    missing = True

    def features(self, X: Any) -> Any:
        """See the class, D of each but the last; 0 where x is missing, unless ``sparse``."""
        if not self.sparse:
            X = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, np.float64)
            ones = np.concatenate([X, 1.0 - X], axis=1)
            return np.nan_to_num(ones, copy=False)
        X = sp.csr_array(X, dtype=np.float64)
        missing = np.isnan(X.data)
        ones, others = (
            sp.csr_array((data, X.indices, X.indptr), X.shape)
            for data in (np.where(missing, 0.0, X.data), np.where(missing, -1.0, -X.data))
        )
        rows = sp.csr_array(np.ones((X.shape[0], 1)))
        return sp.csr_array(sp.hstack([ones, others, rows], format="csr"))

    def spread(self, sums: Array) -> Array:
        """(..., P) -> (..., D, 2)."""
        if not self.sparse:
            return super().spread(sums)
        D = len(self.prior)
        return np.stack([sums[..., :D], sums[..., D:-1] + sums[..., -1:]], axis=-1)

    def gather(self, t: Array) -> Array:
        """Transpose of :meth:`spread`."""
        rows = [t[..., 1].sum(axis=-1, keepdims=True)] if self.sparse else []
        return np.concatenate([t[..., 0], t[..., 1], *rows], axis=-1)

    def sums_of(self, own: Array) -> Array:
        """Non-negative sums with this ``M S``, if it is."""
        sums = self.gather(own)
        sums[..., 2 * len(self.prior) :] = 0.0
        return sums

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Columns are independent, so that the predictive is linear in the features."""
        return self.features(X) @ self.gather(np.log(Dirichlet.mean(lam))).T

    def column_probabilities(self, lam: Array, column: int) -> Array:
        """Predictive probabilities of a zero and a one in a column, (K, 2)."""
        return Dirichlet.mean(lam)[:, column, ::-1]

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Missing values replaced by the more probable value; ties give zero."""
        out = np.array(X, np.float64)
        ones = memberships @ Dirichlet.mean(lam)[..., 0]
        return np.where(np.isnan(out), exceeds(ones, 0.5), out)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Binary rows."""
        probability = Dirichlet.mean(lam)[:, 0]
        return (rng.random((n_rows, self.n_features)) < probability).astype(self.dtype)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Missing values at the probabilities of ones, (K, n, D)."""
        X = X.toarray() if sp.issparse(X) else X
        return with_means(X, Dirichlet.mean(lam)[..., 0])

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draws of missing values, independent of the rest of the row."""
        X = X.toarray() if sp.issparse(X) else X
        return with_draws(X, self.sample(lam, X.shape[0], rng))

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Probabilities of a one."""
        ones = np.ones(self.n_features, np.intp)
        return (of_probabilities(lam[..., 0], lam[..., 1], categories=ones),)


@dataclass(frozen=True)
class Multinomial(ConjugateComponent):
    """Rows of counts, each token from Dir(phi_k); features are the counts; ``prior`` (D,).

    The density is that of the sequence of tokens: without the multinomial coefficient, which does
    not depend on parameters. The number of tokens is not modelled; rows are drawn with
    ``n_tokens``.
    """

    prior: Array
    dtype: np.dtype[Any]
    n_tokens: int = 1

    family = Dirichlet
    base = 0.0
    sparse = True

    @property
    def n_features(self) -> int:
        """Size of the vocabulary D."""
        return self.prior.size

    def features(self, X: Any) -> Any:
        """The counts, CSR or dense."""
        if sp.issparse(X):
            return sp.csr_array(X, dtype=np.float64)
        return np.ascontiguousarray(X, np.float64)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Rows of ``n_tokens`` tokens each, with other probabilities in each row."""
        probabilities = Dirichlet.sample(np.broadcast_to(lam, (n_rows, lam.size)), rng)
        return rng.multinomial(self.n_tokens, probabilities).astype(self.dtype)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Probabilities of the columns for a token."""
        return (of_probabilities(lam, lam.sum(axis=1, keepdims=True) - lam),)

    def column_evidence(self, sums: Array) -> Array:
        """Of whether each token belongs to a column or to any other."""
        after, before = (
            np.stack([lam, lam.sum(axis=1, keepdims=True) - lam], axis=-1)
            for lam in (self.natural_parameters(sums), self.prior[None])
        )
        return Dirichlet.log_normalizer(after) - Dirichlet.log_normalizer(before)


def student_t(X: Array, mean: Array, scale: Array, freedom: Array) -> Array:
    """Log density of the multivariate Student t, (n, K) in nats; NaN are left out.

    X is (n, D), ``mean`` (K, D), ``scale`` (K, D, D) the inverse scale of the precision, so that
    ``shape matrix = scale / freedom``.
    """
    apart, half_logdet, n_features, holes = distances(X, mean, scale)
    total = 0.5 * (freedom + n_features)
    constant = _gammaln(total) - _gammaln(0.5 * freedom) - 0.5 * n_features * np.log(np.pi)
    density = constant - half_logdet - total * np.log1p(apart)
    if holes is not None:
        density[holes.missing.all(axis=1)] = 0.0
    return np.asarray(density)


def distances(X: Array, mean: Array, scale: Array) -> tuple[Array, Array, Any, Any]:
    """Of what is there of rows (n, D) under scales (K, D, D): their marginals.

    Squared distances from the means (n, K), half the log-determinants (n, K) or (K,), number of
    columns (n, 1) or one for all, and the holes; what is missing is at its mean given the rest,
    which adds nothing to the distance.
    """
    n_features: Any = X.shape[1]
    cholesky = np.linalg.cholesky(scale)
    half_logdet = np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum(axis=1)
    holes = None
    if has_holes(X):
        holes = GaussianCompletion.of_scale(0.0, mean, scale).holes(X, np.ones(1))
    if holes is not None:
        half_logdet = half_logdet + holes.half_log_det()
        n_features = (~holes.missing).sum(axis=1)[:, None]
    out = np.empty((X.shape[0], mean.shape[0]))
    for k in range(mean.shape[0]):
        out[:, k] = _distances(X if holes is None else holes.filled(k), mean[k], cholesky[k])
    return out, half_logdet, n_features, holes


def _distances(X: Array, mean: Array, cholesky: Array) -> Array:
    """``(x - mean)' (L L')^-1 (x - mean)`` of each row, (n,)."""
    white = (X - mean) @ np.linalg.inv(cholesky).T
    return np.einsum("nd,nd->n", white, white)


def draw_student_t(
    mean: Array, scale: Array, freedom: Array, n_rows: int, rng: np.random.Generator
) -> Array:
    """Draws with that density, (n_rows, D)."""
    normal = rng.standard_normal((n_rows, mean.size)) @ np.linalg.cholesky(scale).T
    return mean + normal / np.sqrt(rng.chisquare(freedom, size=(n_rows, 1)))
