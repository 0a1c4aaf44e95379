"""Negative binomial columns: counts with a larger variance than a Poisson's."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc, betaincinv

from skvt.compiled import gammaln_array as gammaln
from skvt.files import PRIOR, in_files
from skvt.models.mixture._learned_priors import Ascent
from skvt.models.mixture._marginals import Marginals
from skvt.models.mixture._sizes import SIZES, OfSizes, SizesAndRates, betaln
from skvt.models.mixture.components import ExposureColumns
from skvt.rows import pieces
from skvt.typing import Array, IndexArray

# log h_r(x) is tabulated for counts below this one.
_TABULATED = 1024
# Entries whose fits to themselves are computed at a time.
_ENTRIES_AT_ONCE = 2**13
# Sizes of smaller probability are left out of predictive densities and quantiles.
_LEAST_SHARE = 1e-9
# Lower limit of the learned probability of a size, relative to the most probable size.
_LEAST_LEARNED_SHARE = 1e-5
# Steps of the bisection for the logarithm of a quantile.
_HALVINGS = 35


@in_files("models.NegativeBinomial")
@dataclass(frozen=True)
class NegativeBinomial(ExposureColumns):
    """Independent columns of counts, each negative binomial; see :class:`SizesAndRates`.

    Features are, for G sizes and J exposures, ``[log h_g(x_d), x_d L_j, -missing_d L_j, L_j,
    rest]`` with Lagrange's polynomials L_j at the row's exposure and ``rest = sum_d x_d log e``.
    All but the last J + 1 are 0 where x_d is.
    """

    # (D, G + 2 J)
    prior: Annotated[Array, "n width"]
    dtype: np.dtype[Any]
    # (J,): exposures e_j.
    points: Annotated[Array, "n_points", PRIOR]
    exposure: str = "none"
    typical: Annotated[float, PRIOR] = 1.0
    shares: Annotated[Array | None, "n"] = None

    missing = True
    sparse = True

    def validate(self, d: int, k: int) -> bool:
        rising = self.points.size > 0 and bool(np.all(np.diff(self.points) > 0.0))
        width = SIZES.size + 2 * self.points.size
        return super().validate(d, k) and rising and self.prior.shape[1] == width

    def with_prior(self, shape: Array, rate: Array, share: Array) -> "NegativeBinomial":
        """Return the component whose prior has ``shape`` counts in exposures ``rate`` (D,).

        Sizes have the prior probabilities ``share`` (G,). In the limit of large sizes, ``shape``
        and ``rate`` are the parameters of a gamma prior.
        """
        pseudo = (n[:, None] * self.family.typical for n in (shape, rate / self.typical))
        prior = np.concatenate([np.zeros((len(shape), SIZES.size)), *pseudo], axis=1)
        return replace(self, prior=prior).with_shares(share)

    def with_shares(self, share: Array) -> "NegativeBinomial":
        """Return the component with these prior probabilities of sizes (G,)."""
        prior, now = self.prior.copy(), self.family.of_sizes(self.prior).share
        log_integral = self.family.log_normalizer(prior)[:, None]
        prior[:, : SIZES.size] += np.log(share / share.sum()) - np.log(now) - log_integral
        return replace(self, prior=prior)

    @cached_property
    def family(self) -> SizesAndRates:
        return SizesAndRates(self.points, self._polynomials(np.array([self.typical]))[0])

    @property
    def base(self) -> Array:
        D, J = len(self.prior), self.points.size
        return np.append(np.zeros(D * (SIZES.size + 2 * J) + J), 1.0)

    def _polynomials(self, exposures: Array) -> Array:
        """Return Lagrange's polynomials (n, J) at exposures (n,), clipped to the points' range."""
        nodes = np.log(self.points)
        if nodes.size == 1:
            return np.ones((exposures.size, 1))
        number = nodes.size
        angles = np.pi * (np.arange(number) + 0.5) / number
        x = (np.log(exposures) - nodes.mean()) / (nodes[-1] - nodes.mean()) * np.cos(angles[0])
        # discrete orthogonality of Chebyshev polynomials at their zeros
        orders = np.arange(number)
        at_points = np.cos(np.outer(orders, np.pi - angles)) * np.where(orders, 2.0, 1.0)[:, None]
        chebyshev = np.cos(np.outer(np.arccos(np.clip(x, -1.0, 1.0)), orders))
        return np.asarray(chebyshev @ at_points / number)

    @cached_property
    def _tabulated(self) -> Array:
        return _log_h(np.arange(float(_TABULATED)))

    def _log_h(self, counts: Array) -> Array:
        """Return ``log h_g(x)`` (m, G) of counts (m,)."""
        small = counts < _TABULATED
        if small.all():
            return self._tabulated[counts.astype(np.intp)]
        out = np.empty((counts.size, SIZES.size))
        out[small] = self._tabulated[counts[small].astype(np.intp)]
        out[~small] = _log_h(counts[~small])
        return out

    def split(self, X: Any) -> tuple[Any, Array]:
        """Return counts, and exposures clipped to the range of the points."""
        counts, exposures = super().split(X)
        return counts, np.clip(exposures, self.points[0], self.points[-1])

    def features(self, X: Any) -> Any:
        """Return the features, see the class, as CSR if rows are sparse."""
        counts, exposures = self.split(X)
        L = self._polynomials(exposures)
        G, J, D = SIZES.size, self.points.size, len(self.prior)
        if not sp.issparse(counts):
            n, missing = len(counts), np.isnan(counts)
            counts = np.where(missing, 0.0, counts)
            out = np.empty((n, D * (G + 2 * J) + J + 1))
            out[:, : D * G] = self._log_h(counts.ravel()).reshape(n, -1)
            out[:, D * G : D * (G + J)] = (counts[..., None] * L[:, None]).reshape(n, -1)
            holes = missing[..., None] * -L[:, None]
            out[:, D * (G + J) : D * (G + 2 * J)] = holes.reshape(n, -1)
            out[:, -J - 1 : -1], out[:, -1] = L, counts.sum(axis=1) * np.log(exposures)
            return out
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        missing = np.isnan(counts.data)
        values = np.where(missing, 0.0, counts.data)
        rest = np.bincount(rows, values, counts.shape[0]) * np.log(exposures)
        holes = sp.csr_array((missing, counts.indices, counts.indptr), counts.shape, copy=True)
        holes.eliminate_zeros()
        L_of_holes = -np.repeat(L, np.diff(holes.indptr), axis=0)
        parts = [
            _widened(counts, self._log_h(values)),
            _widened(counts, values[:, None] * L[rows]),
            _widened(holes, L_of_holes),
            sp.csr_array(np.column_stack([L, rest])),
        ]
        return sp.csr_array(sp.hstack(parts, format="csr"))

    def spread(self, sums: Array) -> Array:
        """(..., P) -> (..., D, G + 2 J)."""
        G, J, D = SIZES.size, self.points.size, len(self.prior)
        ends = D * np.array([G, G + J, G + 2 * J])
        h, x, holes, rows = np.split(sums[..., :-1], ends, axis=-1)
        lead = sums.shape[:-1]
        h, x, holes = h.reshape(*lead, D, G), x.reshape(*lead, D, J), holes.reshape(*lead, D, J)
        return np.concatenate([h, x, holes + rows[..., None, :]], axis=-1)

    def gather(self, t: Array) -> Array:
        lead, (G, J) = t.shape[:-2], (SIZES.size, self.points.size)
        parts = [t[..., :G], t[..., G : G + J], t[..., G + J :]]
        flat = [part.reshape(*lead, -1) for part in parts]
        return np.concatenate([*flat, parts[2].sum(axis=-2), np.zeros((*lead, 1))], axis=-1)

    def unspread(self, statistics: Array) -> Array:
        """Return sums with this ``M S``, which count no row as complete."""
        sums = self.gather(statistics)
        sums[..., -self.points.size - 1 :] = 0.0
        return sums

    def self_fits(self, features: Any) -> tuple[Array, Array]:
        """Interpolate the sum over columns in which a row is zero between exposures."""
        X, D, (G, J) = sp.csr_array(features), len(self.prior), (SIZES.size, self.points.size)
        L, rest = X[:, -J - 1 : -1].toarray(), X[:, [-1]].toarray().ravel()
        at_points = np.repeat(np.arange(D), J), np.zeros(D * J), np.tile(np.eye(J), (D, 1))
        zeros, size_of_zeros = (part.reshape(D, J) for part in self._own_fits(*at_points))
        # these are the counts, and -1 where they are missing, since polynomials add up to 1
        of_points = X[:, D * G : D * (G + J)] + X[:, D * (G + J) : D * (G + 2 * J)]
        entries = sp.coo_array(of_points @ sp.kron(sp.eye_array(D), np.ones((J, 1)), format="csr"))
        rows, columns = entries.coords
        fits, sizes = self._own_fits(columns, np.rint(entries.data), L[rows])
        fits -= (L[rows] * zeros[columns]).sum(axis=1)
        out = L @ zeros.sum(axis=0) + rest + np.bincount(rows, fits, len(L))
        size = np.abs(L) @ size_of_zeros.sum(axis=0) + np.abs(rest)
        return out, size + np.bincount(rows, sizes, len(L))

    def _own_fits(self, columns: IndexArray, counts: Array, L: Array) -> tuple[Array, Array]:
        """Return fits of single counts (m,) at polynomials L (m, J); counts below 0 are missing."""
        fits, sizes = np.empty((2, counts.size))
        for part in pieces(counts.size, _ENTRIES_AT_ONCE):
            seen, x = (counts[part] >= 0.0)[:, None], np.maximum(counts[part], 0.0)
            entry = np.concatenate([self._log_h(x), x[:, None] * L[part], seen * L[part]], axis=1)
            terms = entry * self.family.expectation(self.prior[columns[part]] + entry)
            fits[part], sizes[part] = terms.sum(axis=1), np.abs(terms).sum(axis=1)
        return fits, sizes

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of mixtures of beta negative binomials over sizes, (n, K) in nats.

        They are exact if all exposures are the same. Otherwise ``b / (b + e)`` is approximated by
        Beta(A', B') with its mean at b* and, since this determines the spread of its logit,
        ``1 / A' + 1 / B' = 1 / A + 1 / B``. The sum over columns with zeros is interpolated between
        exposures.
        """
        return self._log_predictive(X, self.family.of_sizes(lam))

    def log_predictive_mixed(self, X: Any, lam: Array, other: Array, shares: Array) -> Array:
        """Join the sizes of both distributions, each with its share of the probability."""
        pairs = zip(self.family.of_sizes(lam), self.family.of_sizes(other), strict=True)
        q = OfSizes(*(np.concatenate(np.broadcast_arrays(*pair), axis=-1) for pair in pairs))
        shares = np.repeat(np.stack([shares, 1.0 - shares], axis=-1), SIZES.size, axis=-1)
        return self._log_predictive(X, q._replace(share=q.share * shares))

    def _log_predictive(self, X: Any, q: OfSizes) -> Array:
        """Return :meth:`log_predictive` for q (K, D, G'), whose sizes are SIZES, repeated."""
        counts, exposures = self.split(X)
        counts = sp.csr_array(counts)
        counts.eliminate_zeros()
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        missing = np.isnan(counts.data)
        L, (K, D) = self._polynomials(exposures), q.share.shape[:2]
        out = np.empty((counts.shape[0], K))
        for k in range(K):
            q_k = OfSizes(*(part[k] for part in q))
            columns = np.repeat(np.arange(D), self.points.size)
            zeros = _log_density(q_k, columns, 0.0, np.tile(self.points, D))
            zeros = zeros.reshape(-1, self.points.size)
            values = np.where(missing, 0.0, counts.data)
            entries = _log_density(q_k, counts.indices, values, exposures[rows])
            entries[missing] = 0.0
            entries -= (L[rows] * zeros[counts.indices]).sum(axis=1)
            out[:, k] = L @ zeros.sum(axis=0) + np.bincount(rows, entries, len(out))
        return out

    def means(self, lam: Array) -> Array:
        return self.family.mean(lam).rate

    def _drawn(self, lam: Array, exposures: Array, rng: np.random.Generator) -> Array:
        size, rate = self.family.sample(np.broadcast_to(lam, (exposures.size, *lam.shape)), rng)
        means = exposures[:, None] * rate * rng.standard_gamma(size) / size
        # a rate without rows may exceed the largest mean that NumPy can draw from
        draws = rng.poisson(np.minimum(means, 1e15)).astype(self.dtype)
        return self.append_exposure(draws, exposures.astype(self.dtype))

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return rates for an exposure of 1, and dispersions 1 / r, under q."""
        q, columns = self.family.of_sizes(lam), np.arange(lam.shape[1])

        def of_rates(p: float) -> Array:
            below = betaincinv(q.b, q.a, p)
            ends = np.log(below) - np.log1p(-below) + np.log(SIZES / q.scale)
            # the quantile lies between the quantiles given each of the likely sizes
            likely = q.share > _LEAST_SHARE
            low = np.where(likely, ends, np.inf).min(axis=-1)
            high = np.where(likely, ends, -np.inf).max(axis=-1)
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                odds = np.exp(middle)[..., None] * q.scale / SIZES
                reached = (q.share * betainc(q.b, q.a, odds / (1.0 + odds))).sum(axis=-1) >= p
                low, high = np.where(reached, low, middle), np.where(reached, middle, high)
            return np.exp(0.5 * (low + high))

        def of_dispersions(p: float) -> Array:
            index = (q.share[..., ::-1].cumsum(axis=-1) < p).sum(axis=-1)
            return (1.0 / SIZES[::-1])[np.minimum(index, SIZES.size - 1)]

        return (
            Marginals("rate", columns, self.means(lam), of_rates),
            Marginals("dispersion", columns, q.share @ (1.0 / SIZES), of_dispersions),
        )


def _log_h(counts: Array) -> Array:
    """Return ``log Gamma(x + r) - log Gamma(r) - log x!``, (m, G)."""
    counts = counts[:, None]
    return gammaln(counts + SIZES) - gammaln(SIZES) - gammaln(counts + 1.0)


def _widened(X: Any, values: Array) -> Any:
    """Return a CSR array in which W columns of ``values`` (nnz, W) replace each entry of X."""
    width = values.shape[1]
    indices = (X.indices[:, None].astype(np.int64) * width + np.arange(width)).ravel()
    shape = (X.shape[0], X.shape[1] * width)
    return sp.csr_array((values.ravel(), indices, X.indptr.astype(np.int64) * width), shape)


def _log_density(q: OfSizes, columns: IndexArray, counts: Any, exposures: Array) -> Array:
    """Return predictive log densities (m,) of single entries under one component."""
    counts = np.broadcast_to(np.asarray(counts, np.float64), columns.shape)
    density = np.zeros(columns.size)
    for g, size in enumerate(np.resize(SIZES, q.share.shape[1])):
        used = np.flatnonzero((q.share[:, g] > _LEAST_SHARE)[columns])
        d, x = columns[used], counts[used]
        a, b = q.a[d, g], q.b[d, g]
        pi = 1.0 / (1.0 + exposures[used] * b / (a * q.scale[d, g]))
        total = a * b / ((a + b) * pi * (1.0 - pi))
        a, b = total * pi, total * (1.0 - pi)
        logs = betaln(a + size, b + x) - betaln(a, b)
        logs += gammaln(x + size) - gammaln(size) - gammaln(x + 1.0)
        density[used] += q.share[d, g] * np.exp(logs)
    return np.log(density)


@in_files("models.SizesLearner")
@dataclass(frozen=True)
class SizesLearner(Ascent):
    """Learns the probabilities of negative binomials' sizes, the same for all columns."""

    def values(self, component: Any) -> dict[str, Any]:
        """Return the probabilities of the dispersions in ascending order."""
        return {"dispersion_prior": np.exp(self.parameters(component))[::-1].copy()}

    def parameters(self, component: Any) -> Array:
        return np.log(component.family.of_sizes(component.prior[0]).share)

    def at(self, component: Any, x: Array) -> Any:
        """Return the component with these probabilities, none below the least one."""
        return component.with_shares(np.maximum(np.exp(x - x.max()), _LEAST_LEARNED_SHARE))

    def step(self, component: Any, sums: Array) -> Array:
        """Return logarithms of posterior probabilities averaged over components and columns."""
        share = component.family.of_sizes(component.natural_parameters(sums)).share
        share = share.reshape(-1, share.shape[-1]).mean(axis=0)
        return np.log(np.maximum(share, _LEAST_LEARNED_SHARE))
