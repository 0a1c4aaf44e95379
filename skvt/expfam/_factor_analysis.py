"""Variational inference of Bayesian factor analysers, for Gaussians of low-rank covariance.

A member of the family is one factor analyser, that is, the distribution of the parameters of one
component. N is the number of rows of data, D the number of their columns, and r the rank, which is
the number of factors. The covariance of a row x (D,) is the product W W' of the loadings W (D, r)
plus the diagonal matrix of the variances of the noise, the inverses of the precisions psi_d:

    p(r) = 2^-(r + 1)                                           r = 0, 1, ...
    alpha_l ~ Gamma(1/2, 1/2)                                   l = 1, ..., r
    psi_d ~ Gamma(nu_0 / 2, s_d / 2),      w_dl | psi_d, alpha_l ~ N(0, (psi_d alpha_l)^-1)
    Sigma = W W' + diag(psi)^-1,           mu | Sigma ~ N(m_0, Sigma / kappa_0)
    x = mu + W h + e,      h ~ N(0, I),    e ~ N(0, diag(psi)^-1)

The loadings, in units of the noise, therefore have a Cauchy distribution, and the mean has the same
prior as in a normal-Wishart. The mean is integrated out exactly, as in a normal-Wishart. The
evidence is then ``(kappa_0 / kappa)^(D / 2)`` times the evidence of a factor analyser of N rows y
with the known mean 0. The scatter R (D, D) of the rows y is the inverse scale of the posterior
normal-Wishart minus the inverse scale of its prior. The approximate posterior of W, psi, alpha and
the factors h_n is

    q = q(W, psi) q(alpha) prod_n q(h_n),      q(h_n) = N(V M' E[psi] y_n, V),
    q(W, psi) = prod_d N(w_d; m_d, C / psi_d) Gamma(psi_d; a, b_d)

where the rank r has a single value in q. The matrix M (D, r) has the rows m_d and the columns m_l,
C and V are diagonal matrices (r, r), and E[psi] stands for the diagonal matrix (D, D) of the means
of psi_d. Given E[psi], the best values of the other parameters of q are known in closed form. Let
lam_l be the eigenvalues, in descending order, and u_l the eigenvectors of the *scaled scatter*
``E[psi]^(1/2) R E[psi]^(1/2)``. For the columns l = 1, ..., r,

    E[psi]^(1/2) m_l = u_l sqrt((lam_l - D) / (N + 1) - 1),      C = 1 / (N + 1),
    V_ll = (N + 1) / lam_l,      E[alpha_l] = (D + 1) V_ll,

and each column adds to the bound of the log evidence

    (lam_l - N - 1) / 2 + (N + D + 1) / 2 log V_ll - D / 2 log(N + 1)
        + log Gamma((D + 1) / 2) + D / 2 log 2 - log(pi) / 2 - log 2,

where the term -log 2 is due to the prior of the rank. A column is included if its contribution is
positive and ``lam_l > N + D + 1``. Given the columns, the parameters of the noise are
``a = (nu_0 + N) / 2`` and ``b_d = (s_d + R_dd - (N + 1) |m_d|^2) / 2``. Alternating the updates of
columns and noise never lowers the bound. The updates are repeated, with accelerated steps, until
the bound is at a maximum. The noise starts at the variance of each column of data given the other
columns of data, so that the result depends on N, R and the prior alone. If D >= 32, the covariance
is first shrunk towards its diagonal. Otherwise the columns of few rows would have a variance of
almost 0 given the other columns, and first steps would find about as many factors as rows.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skvt._compiled import (
    digamma_array,
    exp,
    gammaln,
    jit_allocating,
    jit_inlined,
    jit_inlined_allocating,
    log,
)
from skvt.expfam._gaussian import MeanPrecision, standard_gamma
from skvt.expfam._normal_wishart import NormalWishart, get_m_kappa_nu, join_moments
from skvt.typing import Array, IndexArray

_LOG_2 = np.log(2.0)
# A step updates the columns of loadings and the noise. Steps end if a step raises the bound by less
# than this number of nats per row.
_TOLERANCE = 1e-6
# The same limit in trials of priors, for which an approximate bound is enough.
_TRIAL_TOLERANCE = 1e-4
# Maximum number of steps.
_MAX_STEPS = 100
# Number of earlier steps that an accelerated step combines.
_MEMORY = 4
# Ridge of the least squares of an accelerated step, relative to the sum of the squares of the
# changes of earlier steps.
_RIDGE = 1e-10
# Number of directions, in addition to the directions of the factors, in which the next step looks
# for factors.
_EXTRA_DIRECTIONS = 4
# A direction counts as dependent on other directions if less than this share of its squared length
# is outside their span.
_MIN_INDEPENDENT_SHARE = 1e-24
# With at least this number of columns of data, three things change to save time: only the first and
# last steps look for factors among all directions, the scatter of few rows is factorised, and the
# noise starts at a shrunk covariance.
_MANY_COLUMNS = 32
# The share by which the covariance of N rows is shrunk towards its diagonal is the minimum of
# _MAX_SHRINKAGE, _SHRINKAGE_OF_FEW_ROWS N / D and _SHRINKAGE_OF_MANY_ROWS D / N.
_MAX_SHRINKAGE = 0.2
_SHRINKAGE_OF_FEW_ROWS = 0.4
_SHRINKAGE_OF_MANY_ROWS = 0.2
# Maximum share of the scatter of a column of data that the factorisation leaves out.
_MAX_SHARE_LEFT_OUT = 1e-12
# The factorisation is given up if it explains more than all of the scatter of a column, by more
# than this share.
_MAX_RELATIVE_EXCESS = 1e-6
# Maximum number of natural parameters of all members in the cache.
_MAX_CACHED_NUMBERS = 2**22


class Factors(NamedTuple):
    """The q of K members at the maximum of the bound, with L columns of loadings for each.

    A member of rank r uses the first r of the L columns.
    """

    # (K,): bound in nats, without the logarithm of (kappa_0 / kappa)^(D / 2), which is due to the
    # mean; 0 for members without rows.
    bound: Array
    # (K, D): rates b of the noise precisions psi. The shape a of psi is half the degrees of
    # freedom.
    rate: Array
    # (K, D, L): loadings M; 0 in unused columns.
    loadings: Array
    # (K, L): variances V_ll of the factors; 1 for unused columns.
    variances: Array

    @property
    def ranks(self) -> IndexArray:
        """Rank r of each member, (K,)."""
        # The variances V_ll = (N + 1) / lam_l of used columns are less than 1.
        return np.count_nonzero(self.variances < 1.0, axis=-1)

    def split(self) -> "list[Factors]":
        """Return the q of each member, without the columns that the member does not use."""
        ranks = self.ranks
        loadings = [self.loadings[k, :, :rank].copy() for k, rank in enumerate(ranks)]
        variances = [self.variances[k, :rank] for k, rank in enumerate(ranks)]
        return [*map(Factors, self.bound, self.rate, loadings, variances)]

    @classmethod
    def join(cls, members: "list[Factors]") -> "Factors":
        """Return the q of all members, given a list of entries of results of :meth:`split`."""
        bound = np.array([member.bound for member in members])
        rate = np.array([member.rate for member in members])
        max_rank = max(member.variances.size for member in members)
        loadings, variances = np.zeros((*rate.shape, max_rank)), np.ones((bound.size, max_rank))
        for k, member in enumerate(members):
            rank = member.variances.size
            loadings[k, :, :rank], variances[k, :rank] = member.loadings, member.variances
        return cls(bound, rate, loadings, variances)


@dataclass(frozen=True, eq=False)
class FactorAnalysis:
    """Approximate posterior of factor analysers, with the interface of an exponential family.

    A member has the natural parameters of a :class:`~skvt.expfam.NormalWishart`, and a row of data
    adds the same statistics to them. The log-normaliser is the maximum over q of the bound of the
    log evidence of the rows that were added to the prior. The expectation is the gradient of the
    log-normaliser. Compared with a normal-Wishart, a bound takes the place of ``E[log|Lambda|]``,
    and the result of :func:`compute_expected_precision`, the matrix in the bound of
    ``E[log p(x)]``, takes the place of E[Lambda]. Energies, evidences and divergences follow from
    the log-normaliser and the expectation as in any family. :class:`~skvt.expfam.Family` documents
    the methods that all families have.
    """

    # (2 + D + D (D + 1) / 2,): natural parameters of the prior, a normal-Wishart whose inverse
    # scale is the diagonal matrix of s.
    prior: Array
    # Maximum number of columns of loadings.
    max_rank: int
    # In trials of priors, the initial q of each member, which is the best q under a similar prior.
    initial_factors: Factors | None = None
    # The name of the family in texts. Other families are classes, which have a ``__name__``.
    __name__ = "FactorAnalysis"

    @cached_property
    def _standard_prior(self) -> dict[str, Array]:
        """Standard parameters of the prior by name; ``scale_inverse`` is only the diagonal (D,)."""
        prior = NormalWishart.to_standard(self.prior)
        return prior | {"scale_inverse": np.diagonal(prior["scale_inverse"])}

    @cached_property
    def _cache(self) -> dict[bytes, tuple[Array, Factors]]:
        """Natural parameters and best q of recent members, by the bytes of their first parameters.

        Callers compute both evidences and expectations of the same members.
        """
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the cache and the initial q."""
        return {"prior": self.prior, "max_rank": self.max_rank}

    def factors(self, eta: ArrayLike) -> Factors:
        """Return the best q of each member; the leading axes of eta become a single axis K."""
        members = np.ascontiguousarray(eta, dtype=np.float64).reshape(-1, self.prior.size)
        # The entries before the triangle are the key, because hashes of all entries take long.
        D, cache = len(self._standard_prior["scale_inverse"]), self._cache
        keys = [member[: 2 + D].tobytes() for member in members]
        # A cached entry is a pair of natural parameters and q. It belongs to the member only if all
        # natural parameters agree. ``uncached`` has the numbers of the other members.
        cached = [cache.get(key) for key in keys]
        uncached = [
            k for k, entry in enumerate(cached)
            if entry is None or not np.array_equal(entry[0], members[k])
        ]  # fmt: skip
        best_of_member = {k: entry[1] for k, entry in enumerate(cached) if entry is not None}
        if uncached:
            initial = self.initial_factors
            if initial is not None:
                initial = Factors(*(array[uncached] for array in initial))
            best_of_uncached = self._find_best_factors(members[uncached], initial).split()
            best_of_member.update(zip(uncached, best_of_uncached, strict=True))
        # Cache these members, except members of at most one row, whose q is computed very fast. The
        # prior, which has no rows, is cached. Each row adds 1 to the second natural parameter.
        n_rows = members[:, 1] - self.prior[1]
        for k in uncached:
            if not 0.0 < n_rows[k] <= 1.0:
                cache[keys[k]] = members[k].copy(), best_of_member[k]
        # Remove the oldest members.
        while len(cache) > max(1, _MAX_CACHED_NUMBERS // self.prior.size):
            cache.pop(next(iter(cache)))
        return Factors.join([best_of_member[k] for k in range(len(keys))])

    def trial(self, eta: ArrayLike) -> "FactorAnalysis":
        """Return a copy of this family for trials of other priors.

        The trials start from the best q at eta.
        """
        trial = replace(self, initial_factors=self.factors(eta))
        # Trials begin with the present prior, under which the best q is known.
        trial._cache.update(self._cache)
        return trial

    def _find_best_factors(self, eta: Array, initial: Factors | None) -> Factors:
        """Find the best q of members (K, E), starting from ``initial`` unless it is None."""
        posterior = NormalWishart.to_standard(eta)
        prior = self._standard_prior
        nu_0, s = float(prior["degrees_of_freedom"]), prior["scale_inverse"]
        K, D = posterior["mean"].shape
        # The scatter R of each member.
        scatter = posterior["scale_inverse"]
        scatter[:, np.arange(D), np.arange(D)] -= s
        max_rank = min(self.max_rank, D)
        n_rows = posterior["degrees_of_freedom"] - nu_0
        # A member of at most one row has no factors, so that all of its scatter is noise.
        rate = 0.5 * (s + np.diagonal(scatter, axis1=1, axis2=2))
        has_several_rows = n_rows > 1.0
        tolerance = _TOLERANCE
        factors = Factors(
            bound=np.zeros(K), rate=rate, loadings=np.zeros((K, D, max_rank)),
            variances=np.ones((K, max_rank)),
        )  # fmt: skip
        if initial is not None:
            tolerance = _TRIAL_TOLERANCE
            # ``initial`` may have fewer columns of loadings.
            rank = initial.variances.shape[1]
            arrays = (*factors[:2], factors.loadings[:, :, :rank], factors.variances[:, :rank])
            for values, initial_array in zip(arrays, initial, strict=True):
                values[has_several_rows] = initial_array[has_several_rows]
        elif D < _MANY_COLUMNS:
            # The noise starts at the variance of each column of data given the other columns. If
            # there are many columns, `_maximise_bounds` computes this variance.
            inverse = np.linalg.inv(scatter[has_several_rows] + np.diag(s))
            rate[has_several_rows] = 0.5 / np.diagonal(inverse, axis1=1, axis2=2)
        start_noise = initial is None and D >= _MANY_COLUMNS
        # This overwrites the arrays of ``factors``.
        _maximise_bounds(n_rows, scatter, 0.5 * nu_0, 0.5 * s, *factors, tolerance, start_noise)
        return factors

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return the bound of the log evidence in nats, shape (...); 0 for the prior.

        The bound lacks the constant ``-D / 2 log(2 pi)`` of each row.
        """
        eta = np.asarray(eta, dtype=np.float64)
        kappa, D = eta[..., 1], len(self._standard_prior["scale_inverse"])
        mean_term = 0.5 * D * np.log(self._standard_prior["mean_precision"] / kappa)
        return np.asarray(mean_term + self.factors(eta).bound.reshape(kappa.shape))

    def expectation(self, eta: ArrayLike) -> Array:
        """Return the gradient of the log-normaliser, in the shape of eta."""
        eta = np.asarray(eta, dtype=np.float64)
        m, kappa, nu = get_m_kappa_nu(eta.reshape(-1, eta.shape[-1]))
        factors = self.factors(eta)
        shape = 0.5 * nu[:, None]
        log_det = (digamma_array(shape) - np.log(factors.rate)).sum(axis=1)
        log_det += np.log(factors.variances).sum(axis=1)
        precision = compute_expected_precision(shape, factors)
        precision_mean = np.einsum("kij,kj->ki", precision, m)
        return join_moments(m, kappa, log_det, precision, precision_mean).reshape(eta.shape)

    def to_standard(self, eta: ArrayLike) -> dict[str, Array]:
        """Return the parameters of q by name.

        The names are ``mean`` (..., D), ``mean_precision`` (...), ``shape`` for a (...), ``rate``
        for b (..., D), ``loadings`` for M (..., D, L), and ``loadings_variance`` (...) for the
        diagonal entries of C, which are all equal.
        """
        eta = np.asarray(eta, dtype=np.float64)
        mean, kappa, nu = get_m_kappa_nu(eta)
        factors = self.factors(eta)
        leading_shape = eta.shape[:-1]
        return {
            "mean": mean,
            "mean_precision": kappa,
            "shape": 0.5 * nu,
            "rate": factors.rate.reshape(*leading_shape, -1),
            "loadings": factors.loadings.reshape(*leading_shape, *factors.loadings.shape[1:]),
            "loadings_variance": 1.0 / (nu - self._standard_prior["degrees_of_freedom"] + 1.0),
        }

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> MeanPrecision:
        """Draw a mean (K, D) and a precision (K, D, D) for each of the members (K, E).

        In q, the loadings are independent of the factors h of the rows. Drawn covariances therefore
        vary less than under the exact posterior, two or three times less if the variance of factors
        is large compared with the noise.
        """
        q = self.to_standard(eta)
        psi = standard_gamma(np.broadcast_to(q["shape"][:, None], q["rate"].shape), rng) / q["rate"]
        # Whether each column of loadings is used, (K, 1, L).
        is_used = np.abs(q["loadings"]).sum(axis=1, keepdims=True) > 0.0
        deviations = rng.standard_normal(q["loadings"].shape) * is_used
        deviations *= np.sqrt(q["loadings_variance"])[:, None, None] / np.sqrt(psi)[..., None]
        loadings = q["loadings"] + deviations
        covariance = loadings @ np.swapaxes(loadings, 1, 2)
        columns = np.arange(psi.shape[1])
        covariance[:, columns, columns] += 1.0 / psi
        mean_deviations = np.linalg.cholesky(covariance) @ rng.standard_normal((*psi.shape, 1))
        mean = q["mean"] + mean_deviations[..., 0] / np.sqrt(q["mean_precision"])[:, None]
        return MeanPrecision(mean, np.linalg.inv(covariance))

    def mean(self, eta: ArrayLike) -> MeanPrecision:
        """Return means (K, D), and the precisions (K, D, D) in the bound of ``E[log p(x)]``."""
        mean, _, nu = get_m_kappa_nu(eta)
        return MeanPrecision(mean, compute_expected_precision(0.5 * nu[:, None], self.factors(eta)))

    def variance(self, eta: ArrayLike) -> MeanPrecision:
        """Raise NotImplementedError."""
        raise _make_no_closed_form_error("the variance")

    def log_density(self, eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        """Raise NotImplementedError."""
        raise _make_no_closed_form_error("the density")

    def entropy(self, eta: ArrayLike) -> Array:
        """Raise NotImplementedError."""
        raise _make_no_closed_form_error("the entropy")


def _make_no_closed_form_error(quantity: str) -> NotImplementedError:
    """Return the error for a quantity of q that has no closed form."""
    return NotImplementedError(
        f"For covariances of low rank, {quantity} of the posterior has no closed form. "
        "Estimate it from draws: posterior_.sample(n_samples)."
    )


def compute_expected_precision(shape: Array, factors: Factors) -> Array:
    """Return ``E[psi] - E[psi] M V M' E[psi]``, (K, D, D), given the shapes a (K, 1)."""
    psi = shape / factors.rate
    scaled_loadings = psi[..., None] * factors.loadings * np.sqrt(factors.variances)[:, None]
    precision = -scaled_loadings @ np.swapaxes(scaled_loadings, 1, 2)
    columns = np.arange(psi.shape[1])
    precision[:, columns, columns] += psi
    return precision


@jit_inlined
def _orthonormalise(columns: Array, transposed: Array) -> None:
    """Make columns (D, p) orthonormal in place, and write their transpose to ``transposed`` (p, D).

    Columns that are linearly dependent on earlier columns become 0. The projections of the method
    of Gram and Schmidt are subtracted twice from each column, so that rounding errors are small.
    """
    D, n_columns = columns.shape
    for column in range(n_columns):
        squared_length = initial_squared_length = 0.0
        # The third sweep only measures the squared length after two rounds of projections.
        for sweep in range(3):
            squared_length = 0.0
            for d in range(D):
                squared_length += columns[d, column] * columns[d, column]
            if sweep == 0:
                initial_squared_length = squared_length
            for previous in range(column if sweep < 2 else 0):
                projection = 0.0
                for d in range(D):
                    projection += columns[d, previous] * columns[d, column]
                for d in range(D):
                    columns[d, column] -= projection * columns[d, previous]
        is_independent = squared_length > _MIN_INDEPENDENT_SHARE * initial_squared_length
        scale = 1.0 / np.sqrt(squared_length) if is_independent else 0.0
        for d in range(D):
            columns[d, column] *= scale
            transposed[column, d] = columns[d, column]


@jit_inlined_allocating
def _factorise_scatter(scatter: Array, max_rank: int) -> Array:
    """Return F (D, p) with ``F F' = scatter``.

    If F needed more than ``max_rank`` columns, or if rounding errors dominate the scatter of an
    almost constant column of data, return a matrix without columns. The algorithm is Cholesky's
    with pivots. The next pivot is the column of data with the largest share of its scatter that the
    columns of F so far do not explain.
    """
    D = scatter.shape[0]
    # ``factor_rows`` is the transpose of F, whose rows are contiguous. ``residual`` is a row of the
    # scatter minus the part that the columns of F so far explain.
    factor_rows, residual = np.zeros((max_rank, D)), np.empty(D)
    # The part of the scatter of each column of data that F F' does not explain yet.
    variance_left = np.diag(scatter).copy()
    for rank in range(max_rank + 1):
        pivot, largest_share = 0, 0.0
        for d in range(D):
            if variance_left[d] > largest_share * scatter[d, d]:
                pivot, largest_share = d, variance_left[d] / scatter[d, d]
        if largest_share <= _MAX_SHARE_LEFT_OUT:
            return factor_rows[:rank].T.copy()
        if rank == max_rank:
            break
        pivot_length = np.sqrt(variance_left[pivot])
        for d in range(D):
            residual[d] = scatter[pivot, d]
        for j in range(rank):
            pivot_loading = factor_rows[j, pivot]
            for d in range(D):
                residual[d] -= pivot_loading * factor_rows[j, d]
        for d in range(D):
            factor_rows[rank, d] = residual[d] / pivot_length
            variance_left[d] -= factor_rows[rank, d] * factor_rows[rank, d]
            if variance_left[d] < -_MAX_RELATIVE_EXCESS * scatter[d, d]:
                return np.empty((D, 0))
        variance_left[pivot] = 0.0
    return np.empty((D, 0))


@jit_inlined_allocating
def _start_noise(
    n_rows: float, scatter: Array, scatter_root: Array, b0: Array, rate: Array
) -> None:  # fmt: skip
    """Set each rate (D,) to half the scatter of the column given the others, after shrinkage.

    The scatter of the columns given the others is 1 / diag(S^-1), where
    ``S = (1 - share) R + share diag(R) + 2 diag(b0)`` with the scatter R (D, D). ``scatter_root``
    is a matrix F (D, p) with F F' = R, or has no columns.
    """
    D, rank = scatter_root.shape
    share = min(
        _MAX_SHRINKAGE, _SHRINKAGE_OF_FEW_ROWS * n_rows / D, _SHRINKAGE_OF_MANY_ROWS * D / n_rows
    )
    # S is (1 - share) R plus the diagonal matrix of ``ridge``.
    ridge = np.empty(D)
    for d in range(D):
        ridge[d] = share * scatter[d, d] + 2.0 * b0[d]
    if rank == 0:
        shrunk_scatter = (1.0 - share) * scatter
        for d in range(D):
            shrunk_scatter[d, d] += ridge[d]
        inverse = np.linalg.inv(shrunk_scatter)
        for d in range(D):
            rate[d] = 0.5 / inverse[d, d]
        return
    scaled_root = np.empty((D, rank))
    for d in range(D):
        for column in range(rank):
            scaled_root[d, column] = scatter_root[d, column] * np.sqrt((1.0 - share) / ridge[d])
    # Compute the diagonal of S^-1 from the inverse of a (p, p) matrix by Woodbury's formula.
    inner_matrix = np.ascontiguousarray(scaled_root.T) @ scaled_root
    for column in range(rank):
        inner_matrix[column, column] += 1.0
    product = scaled_root @ np.linalg.inv(inner_matrix)
    for d in range(D):
        share_left = 1.0
        for column in range(rank):
            share_left -= product[d, column] * scaled_root[d, column]
        rate[d] = 0.5 * ridge[d] / max(share_left, _MAX_SHARE_LEFT_OUT)


@jit_inlined
def _compute_factor_gain(eigenvalue: float, n_plus_1: float, D: int, gain_constant: float) -> float:
    """Return what a column of loadings of this eigenvalue adds to the bound, without ``-log 2``.

    The term ``-log 2`` is due to the prior of the rank. The column raises the bound if the result,
    in nats, is larger than log 2.
    """
    log_ratio = log(n_plus_1 / eigenvalue)
    return 0.5 * (eigenvalue - n_plus_1) + 0.5 * (n_plus_1 + D) * log_ratio + gain_constant


@jit_inlined_allocating
def _multiply_by_scaled_scatter(scatter: Array, noise_root: Array, columns: Array) -> Array:
    """Return the product (D, p) of the scaled scatter and ``columns`` (D, p).

    ``noise_root`` (D,) has the roots of E[psi].
    """
    D, n_columns = columns.shape
    scaled_columns = np.empty((D, n_columns))
    for d in range(D):
        for column in range(n_columns):
            scaled_columns[d, column] = columns[d, column] * noise_root[d]
    product = scatter @ scaled_columns
    for d in range(D):
        for column in range(n_columns):
            product[d, column] *= noise_root[d]
    return product


@jit_inlined_allocating
def _has_all_factors(
    n_rows: float, scatter: Array, a: float, rate: Array, loadings: Array, variances: Array,
    gain_constant: float,
) -> bool:  # fmt: skip
    """Return whether no direction outside the span of the loadings (D, r) raises the bound.

    Let t be the eigenvalue of the scaled scatter S from which on a factor raises the bound. If
    ``t I - S + U C U'`` is positive definite for some U (D, r) and some positive diagonal C, then
    at most r eigenvalues of S are t or more. Here U has the directions of the loadings, and C is
    twice their eigenvalues, so that errors of U hardly matter. The matrix is factorised in the
    units of the data, not of the noise. ``gain_constant`` is explained in :func:`_fit_factors`.
    """
    D, rank = loadings.shape
    n_plus_1 = n_rows + 1.0
    # Find t by bisection. The gain rises with the eigenvalue from ``n_plus_1 + D`` on.
    low = high = n_plus_1 + D
    while _compute_factor_gain(high, n_plus_1, D, gain_constant) <= _LOG_2:
        low, high = high, 2.0 * high
    while high - low > _TOLERANCE * low:
        middle = 0.5 * (low + high)
        if _compute_factor_gain(middle, n_plus_1, D, gain_constant) <= _LOG_2:
            low = middle
        else:
            high = middle
    weighted_loadings, transposed = np.empty((D, rank)), np.empty((rank, D))
    for column in range(rank):
        eigenvalue = n_plus_1 / variances[column]
        weight = 2.0 * eigenvalue / ((eigenvalue - D) / n_plus_1 - 1.0)
        for d in range(D):
            weighted_loadings[d, column] = weight * loadings[d, column]
            transposed[column, d] = loadings[d, column]
    matrix = weighted_loadings @ transposed
    for d in range(D):
        for e in range(D):
            matrix[d, e] -= scatter[d, e]
        # ``low`` is t, and ``rate[d] / a`` is 1 / E[psi_d].
        matrix[d, d] += low * rate[d] / a
    # The Cholesky decomposition fails unless the matrix is positive definite.
    try:
        np.linalg.cholesky(matrix)
    except Exception:
        return False
    return True


@jit_inlined_allocating
def _fit_factors(
    n_rows: float, scatter: Array, scatter_root: Array, log_rate: Array, a0: float, b0: Array,
    gain_constant: float, basis: Array, best_log_rate: Array, loadings: Array, variances: Array,
) -> tuple[float, Array]:  # fmt: skip
    """Find the best factors of a member for given noise, E[psi] = a exp(-log_rate).

    The function writes ``loadings`` (D, L), ``variances`` (L,), and to ``best_log_rate`` (D,) the
    logarithms of the best rates of the noise given these factors. The results are the bound in
    nats, and a basis (D, p) of directions in which the next step may look for the factors, because
    the noise of the next step is only slightly different.

    If ``basis`` has no columns, factors are sought among all directions. Otherwise factors are
    sought in the span of the product of the scaled scatter and ``basis``, as in orthogonal
    iteration. The bound is valid for loadings in any span. ``scatter_root`` is a matrix F (D, p)
    with ``F F' = scatter``, or has no columns if the scatter is not factorised. ``gain_constant``
    is the part of the contribution of a column of loadings to the bound that does not depend on
    lam_l, without the term -log 2. The prior of psi_d is Gamma(a0, b0_d).
    """
    D, max_rank = loadings.shape
    a, n_plus_1 = a0 + 0.5 * n_rows, n_rows + 1.0
    span_size = basis.shape[1]
    # Only a search among all directions without a root of the scatter needs the matrix ``scaled``,
    # the scaled scatter.
    uses_root = scatter_root.shape[1] > 0 and span_size == 0
    needs_scaled = span_size == 0 and not uses_root
    noise_root, scaled = np.empty(D), np.empty((D if needs_scaled else 0, D))
    # First compute the bound without factors. The probability of the rank 0 is 1/2.
    bound = -_LOG_2
    for d in range(D):
        noise_root[d] = np.sqrt(a) * exp(-0.5 * log_rate[d])
        bound -= noise_root[d] * noise_root[d] * (b0[d] + 0.5 * scatter[d, d]) - a0 * log(b0[d])
        bound -= a * log_rate[d]
        best_log_rate[d] = b0[d] + 0.5 * scatter[d, d]
        for e in range(d + 1 if needs_scaled else 0):
            scaled[d, e] = scaled[e, d] = scatter[d, e] * noise_root[d] * noise_root[e]
    bound += D * (a + gammaln(a) - gammaln(a0))
    # Find the leading eigenvectors of the scaled scatter, among all directions or in a span.
    variances[:] = 1.0
    loadings[:] = 0.0
    # ``projected`` is the matrix whose eigenvectors are computed, in one of three ways:
    # 1. In a search in a span, ``span`` (D, p) is an orthonormal basis of the directions, and
    #    ``projected`` (p, p) is the scaled scatter in this basis.
    # 2. With a root F of the scatter, ``span`` (D, p) is F in units of the noise, and ``projected``
    #    (p, p) is ``span' span``.
    # 3. Otherwise ``projected`` (D, D) is the scaled scatter, and ``span`` is not used.
    # Only contiguous matrices are multiplied, because numba compiles a product for each layout.
    projected, vectors, span = scaled, scaled, basis
    if span_size:
        span = _multiply_by_scaled_scatter(scatter, noise_root, basis)
        transposed = np.empty((span_size, D))
        _orthonormalise(span, transposed)
        projected = transposed @ _multiply_by_scaled_scatter(scatter, noise_root, span)
    elif uses_root and max_rank:
        span_size = scatter_root.shape[1]
        span, transposed = np.empty((D, span_size)), np.empty((span_size, D))
        for d in range(D):
            for column in range(span_size):
                span[d, column] = transposed[column, d] = scatter_root[d, column] * noise_root[d]
        projected = transposed @ span
    # Number of eigenvalues. Without eigenvalues, ``values`` is an arbitrary array, which numba
    # needs.
    n_values = span_size if span_size else (D if max_rank else 0)
    values = noise_root
    if n_values:
        values, eigenvectors = np.linalg.eigh(projected)
        vectors = np.ascontiguousarray(eigenvectors)
        if span_size:
            vectors = span @ vectors
            if not basis.shape[1]:
                # The eigenvectors of ``span span'`` are ``span`` times the eigenvectors of
                # ``span' span``, and are normalised here.
                for column in range(span_size):
                    normaliser = 1.0 / np.sqrt(max(values[column], _MAX_SHARE_LEFT_OUT))
                    for d in range(D):
                        vectors[d, column] *= normaliser
    # Include the columns of loadings that raise the bound, from the largest eigenvalue on.
    last = n_values - 1
    rank = 0
    for column in range(min(max_rank, n_values)):
        eigenvalue = values[last - column]
        if eigenvalue <= n_plus_1 + D:
            break
        gain = _compute_factor_gain(eigenvalue, n_plus_1, D, gain_constant)
        if gain <= _LOG_2:
            break
        bound += gain - _LOG_2
        rank += 1
        variances[column] = n_plus_1 / eigenvalue
        loading_scale = np.sqrt((eigenvalue - D) / n_plus_1 - 1.0)
        for d in range(D):
            loading = vectors[d, last - column] * loading_scale / noise_root[d]
            loadings[d, column] = loading
            best_log_rate[d] -= 0.5 * n_plus_1 * loading * loading
    # Set rates to at least b0, because factors in a span may explain more than the scatter of a
    # column of data, which would make the rate of the column too small.
    for d in range(D):
        best_log_rate[d] = log(max(best_log_rate[d], b0[d]))
    # Return no basis for very few rows, because a search among all directions is as fast.
    if uses_root and 4 * scatter_root.shape[1] <= D:
        return bound, np.empty((D, 0))
    # Return the directions of the factors and a few more, if a gap between eigenvalues separates
    # the factors from other directions. Eigenvalues ascend, so that the last directions are kept.
    has_gap = 0 < rank < last and 2.0 * values[last - rank] < values[last - rank + 1]
    n_extra = _EXTRA_DIRECTIONS if has_gap or D < _MANY_COLUMNS else D // 16
    has_next_basis = has_gap or D >= _MANY_COLUMNS
    first_kept = max(0, last + 1 - rank - n_extra) if has_next_basis else n_values
    return bound, vectors[:, first_kept:n_values].copy()


@jit_inlined
def _accelerate(
    step_changes: Array, target_changes: Array, step: Array, n: int, n_changes: int, matrix: Array,
    right_side: Array, log_rate: Array,
) -> None:  # fmt: skip
    """Make Anderson's accelerated step: subtract a combination of earlier changes from log_rate.

    ``step`` (D,) is the step with the number n, and ``log_rate`` (D,) is its target, which is
    overwritten. Let ``sum_i c_i step_changes_i``, with the last ``n_changes`` changes of steps, be
    the least-squares fit to ``step``. Then ``sum_i c_i target_changes_i`` is subtracted from
    ``log_rate``. ``step_changes`` and ``target_changes`` (_MEMORY, D) are ring buffers: the change
    of step n is in row n % _MEMORY. ``matrix`` and ``right_side`` are temporary arrays.
    """
    # Make the normal equations of the least squares.
    trace = 0.0
    for i in range(n_changes):
        right_side[i] = 0.0
        for j in range(n_changes):
            matrix[i, j] = 0.0
        for d in range(log_rate.size):
            step_change = step_changes[(n - i) % _MEMORY, d]
            right_side[i] += step_change * step[d]
            for j in range(n_changes):
                matrix[i, j] += step_change * step_changes[(n - j) % _MEMORY, d]
        trace += matrix[i, i]
    # Solve the equations by Gaussian elimination. Pivots are not needed, because the matrix is
    # positive definite.
    for i in range(n_changes):
        matrix[i, i] += _RIDGE * trace
    for i in range(n_changes):
        for j in range(i + 1, n_changes):
            factor = matrix[j, i] / matrix[i, i]
            right_side[j] -= factor * right_side[i]
            for m in range(i, n_changes):
                matrix[j, m] -= factor * matrix[i, m]
    for i in range(n_changes - 1, -1, -1):
        for j in range(i + 1, n_changes):
            right_side[i] -= matrix[i, j] * right_side[j]
        right_side[i] /= matrix[i, i]
        for d in range(log_rate.size):
            log_rate[d] -= right_side[i] * target_changes[(n - i) % _MEMORY, d]


@jit_allocating
def _maximise_bounds(
    n_rows: Array, scatter: Array, a0: float, b0: Array, bound: Array, rate: Array,
    loadings: Array, variances: Array, tolerance: float, sets_noise: bool,
) -> None:  # fmt: skip
    """Find the best q of K members with N rows (K,) and the scatter R (K, D, D).

    ``bound``, ``rate``, ``loadings`` and ``variances``, the fields of :class:`Factors`, have the
    initial q, and are overwritten. With ``sets_noise``, :func:`_start_noise` first sets the rates
    of members of more than one row. The prior of the noise precisions psi_d is Gamma(a0, b0_d).
    Steps end if the bound rises by less than ``tolerance`` nats per row.

    Each step finds the best factors for the present noise, and the best noise given these factors,
    which is called the target of the step. Anderson's acceleration combines the last targets to the
    next noise. If this lowers the bound, the next noise is the target of the best step so far
    instead, which never lowers the bound.

    Steps look for factors among the directions that the step before has returned, or among all
    directions without these, as in a first step without initial loadings. With many columns of
    data, the last step also looks among all directions, unless :func:`_has_all_factors` shows that
    no other factors exist.
    """
    D, max_rank = loadings.shape[1:]
    log_rate, target, step, best_target = np.empty(D), np.empty(D), np.empty(D), np.empty(D)
    last_step, last_target = np.empty(D), np.empty(D)
    # Differences of consecutive steps, and of consecutive targets.
    step_changes, target_changes = np.empty((_MEMORY, D)), np.empty((_MEMORY, D))
    matrix, right_side = np.empty((_MEMORY, _MEMORY)), np.empty(_MEMORY)
    new_loadings, new_variances = np.empty((D, max_rank)), np.empty(max_rank)
    half = 0.5 * (D + 1.0)
    for k in range(n_rows.size):
        if n_rows[k] <= 0.0:
            continue
        # The terms of the contribution of a column of loadings that do not depend on lam_l, without
        # the term -log 2.
        gain_constant = gammaln(half) + (half - 0.5) * _LOG_2 - 0.5 * log(np.pi)
        gain_constant -= 0.5 * D * log(n_rows[k] + 1.0)
        member_rank = max_rank if n_rows[k] > 1.0 else 0
        bound[k] = -np.inf
        min_gain = tolerance * n_rows[k]
        # Number of changes that an accelerated step combines; -1 until a step has been made.
        n_changes = -1
        is_accelerated = False
        # The initial basis consists of the initial loadings in use, in units of the noise.
        basis_size = np.count_nonzero(variances[k] < 1.0)
        scatter_root = np.empty((D, 0))
        if D >= _MANY_COLUMNS and basis_size == 0 and 1.0 < n_rows[k] < 0.5 * D:
            # Many rows of small weights can have a scatter whose rank is larger than D // 2. Such a
            # scatter is not factorised, and ``scatter_root`` still has no columns.
            scatter_root = _factorise_scatter(scatter[k], D // 2)
        if sets_noise and n_rows[k] > 1.0:
            _start_noise(n_rows[k], scatter[k], scatter_root, b0, rate[k])
        basis = np.empty((D, basis_size))
        for d in range(D):
            log_rate[d] = np.log(rate[k, d])
            for column in range(basis_size):
                basis[d, column] = loadings[k, d, column] / np.sqrt(rate[k, d])
        for n in range(_MAX_STEPS):
            basis_size = basis.shape[1]
            new_bound, basis = _fit_factors(
                n_rows[k], scatter[k], scatter_root, log_rate, a0, b0, gain_constant, basis, target,
                new_loadings[:, :member_rank], new_variances[:member_rank],
            )  # fmt: skip
            gain = new_bound - bound[k]
            if gain > 0.0:
                # Keep the best q.
                bound[k] = new_bound
                for d in range(D):
                    best_target[d], rate[k, d] = target[d], np.exp(log_rate[d])
                    for column in range(member_rank):
                        loadings[k, d, column] = new_loadings[d, column]
                for column in range(member_rank):
                    variances[k, column] = new_variances[column]
            # Acceleration, or a basis that lacks a factor, can make a step fail. Comparisons are
            # written with ``not``, so that they are also true if ``gain`` is NaN.
            may_lack_factor = basis_size > 0 and gain < -min_gain
            has_failed = not gain > 0.0 and (is_accelerated or may_lack_factor)
            has_converged = not has_failed and not gain >= min_gain
            if has_converged and (basis_size == 0 or D < _MANY_COLUMNS or tolerance > _TOLERANCE):
                break
            if has_converged:
                rank = np.count_nonzero(variances[k] < 1.0)
                best_loadings = np.ascontiguousarray(loadings[k, :, :rank])
                if rank < member_rank and _has_all_factors(
                    n_rows[k], scatter[k], a0 + 0.5 * n_rows[k], rate[k], best_loadings,
                    variances[k], gain_constant,
                ):  # fmt: skip
                    break
            if has_failed or has_converged:
                # Go on from the best q by a step without acceleration. The step looks among all
                # directions if the basis may lack factors.
                if D < _MANY_COLUMNS or not is_accelerated or has_converged:
                    basis = np.empty((D, 0))
                log_rate[:] = best_target
                n_changes, is_accelerated = -1, False
                continue
            for d in range(D):
                step[d] = target[d] - log_rate[d]
                if n_changes >= 0:
                    step_changes[n % _MEMORY, d] = step[d] - last_step[d]
                    target_changes[n % _MEMORY, d] = target[d] - last_target[d]
                last_step[d], last_target[d], log_rate[d] = step[d], target[d], target[d]
            n_changes = min(n_changes + 1, _MEMORY)
            is_accelerated = n_changes > 0
            if is_accelerated:
                _accelerate(
                    step_changes, target_changes, step, n, n_changes, matrix, right_side, log_rate
                )
                # The rates are between the rates without factors, and the rates if factors explain
                # all of the scatter.
                for d in range(D):
                    log_rate_without_factors = log(b0[d] + 0.5 * scatter[k, d, d])
                    log_rate[d] = min(max(log_rate[d], log(b0[d])), log_rate_without_factors)
