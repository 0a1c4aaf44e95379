"""The variational family of a Bayesian factor analyser: a mean, loadings, and noise.

    p(r) = 2^-(r + 1)                                           r = 0, 1, ...
    alpha_l ~ Gamma(1/2, 1/2)                                   l = 1, ..., r
    psi_d ~ Gamma(nu_0 / 2, s_d / 2),      w_dl | psi_d, alpha_l ~ N(0, (psi_d alpha_l)^-1)
    Sigma = W W' + diag(psi)^-1,           mu | Sigma ~ N(m_0, Sigma / kappa_0)
    x = mu + W h + e,      h ~ N(0, I),    e ~ N(0, diag(psi)^-1)

so that loadings in units of the noise are Cauchy, and the prior of the mean is that of a
normal-Wishart. Given the covariance, the mean is integrated out exactly, as in a normal-Wishart.
The result is a factor ``(kappa_0 / kappa)^(D / 2)`` and a factor analyser of N rows y of mean 0,
whose scatter R is the growth of the normal-Wishart's inverse scale. Its approximate posterior is

    q = q(W, psi) q(alpha) prod_n q(h_n),      q(h_n) = N(V M' E[psi] y_n, V),
    q(W, psi) = prod_d N(w_d; m_d, C / psi_d) Gamma(psi_d; a, b_d)

with one rank r. Given E[psi], the best other factors are known in closed form. With the eigenvalues
lam_l and eigenvectors u_l of ``E[psi]^(1/2) R E[psi]^(1/2)``, the columns l = 1, ..., r have

    E[psi]^(1/2) m_l = u_l sqrt((lam_l - D) / (N + 1) - 1),      C = 1 / (N + 1),
    V_ll = (N + 1) / lam_l,      E[alpha_l] = (D + 1) V_ll,

and each of them adds to the bound, less the log 2 of the prior of the rank,

    (lam_l - N - 1) / 2 + (N + D + 1) / 2 log V_ll - D / 2 log(N + 1)
        + log Gamma((D + 1) / 2) + D / 2 log 2 - log(pi) / 2.

A column is included if its contribution is positive and ``lam_l > N + D + 1``. Given the columns,
``a = (nu_0 + N) / 2`` and ``b_d = (s_d + R_dd - (N + 1) |m_d|^2) / 2``. Alternating both updates
never lowers the bound; they are repeated, with accelerated steps, up to a maximum. The initial
noise is each column's variance given the others, so that the result depends on (N, R) alone.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skvt.compiled import digamma_array, exp, gammaln, jit_allocating, log, part, part_allocating
from skvt.expfam._gaussian import MeanPrecision, join, standard_gamma
from skvt.expfam._normal_wishart import NormalWishart
from skvt.expfam.triangle import pack_statistic
from skvt.typing import Array, IndexArray

_LOG_2 = np.log(2.0)
# Gain of the bound in nats a row below which steps end, their maximum number, and the number of
# earlier steps that an accelerated step combines.
_TOL = 1e-6
_MOST_STEPS = 100
_MEMORY = 4
# The same gain for trials of priors, for which an approximate bound suffices.
_TOL_OF_TRIALS = 1e-4
# Directions that steps follow besides those of the factors.
_MORE = 4
# Share of its squared length that a direction must have outside the span of others.
_DEPENDENT = 1e-24
# Regularisation of their combination, relative to the sum of their squares.
_RIDGE = 1e-10
# With at least so many columns, few steps are among all directions, and the scatter of few rows is
# factorised; the largest share of a column's scatter that the factorisation leaves out.
_MANY_COLUMNS = 64
_LEFT_OUT = 1e-12
# Natural parameters of members whose q are kept.
_ENTRIES_KEPT = 2**22


class Factors(NamedTuple):
    """Best q of K members at the maximum of the bound."""

    # (K,): without the factor of the mean; 0 of members without rows.
    bound: Array
    # (K, D): b; the shape a is that of the member.
    rate: Array
    # (K, D, L): m, columns of zeros where there are fewer.
    loadings: Array
    # (K, L): V_ll, 1 where there is no column.
    variances: Array

    @property
    def ranks(self) -> IndexArray:
        """Number of columns r, (K,)."""
        return np.count_nonzero(self.variances < 1.0, axis=-1)


@dataclass(frozen=True, eq=False)
class FactorAnalysis:
    """Approximate posterior of factor analysers, in the place of an exponential family.

    Natural parameters are those of a :class:`~skvt.expfam.NormalWishart`, whose rows add the same.
    The log-normaliser is the largest bound over q of the log evidence of what was added to the
    prior, and the expectation is its gradient: that of the normal-Wishart with a bound of
    ``E[log|Lambda|]`` and E[Lambda] as the bound of ``E[log p(x)]`` has them. Energies, evidences
    and divergences follow from these two as in any family.
    """

    # (2 + D + D (D + 1) / 2,): with a diagonal scale, s.
    prior: Array
    # Maximum number of columns of loadings.
    max_rank: int
    # Starts for trials of priors: the best q of each member under a similar prior.
    begun: Factors | None = None
    __name__ = "FactorAnalysis"

    @cached_property
    def _start(self) -> dict[str, Array]:
        """Textbook parameters of the prior, the scale as a vector."""
        prior = NormalWishart.standard(self.prior)
        return prior | {"scale_inverse": np.diagonal(prior["scale_inverse"])}

    @cached_property
    def _solved(self) -> dict[bytes, tuple[Any, ...]]:
        """The members solved last: evidences and expectations are those of the same ones."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {"prior": self.prior, "max_rank": self.max_rank}

    def factors(self, eta: ArrayLike) -> Factors:
        """The best q of each member, leading axes flattened to K."""
        rows = np.ascontiguousarray(eta, dtype=np.float64).reshape(-1, self.prior.size)
        keys, known = [row.tobytes() for row in rows], self._solved
        new = [k for k, key in enumerate(keys) if key not in known]
        begun = self.begun and Factors(*(part[new] for part in self.begun))
        solved = zip(*self._solve(rows[new], begun), strict=True)
        found = dict(zip((keys[k] for k in new), solved, strict=True))
        parts = zip(*(found.get(key) or known[key] for key in keys), strict=True)
        members = Factors(*map(np.array, parts))
        # single rows are solved so fast that they are not kept
        number = rows[:, 1] - self.prior[1]
        known.update((keys[k], found[keys[k]]) for k in new if not 0.0 < number[k] <= 1.0)
        while len(known) > max(1, _ENTRIES_KEPT // self.prior.size):
            known.pop(next(iter(known)))
        return members

    def _solve(self, eta: Array, begun: Factors | None) -> Factors:
        q, start = NormalWishart.standard(eta), self._start
        scatter, scale = q["scale_inverse"], start["scale_inverse"]
        nu, (K, D) = float(start["degrees_of_freedom"]), q["mean"].shape
        scatter[:, np.arange(D), np.arange(D)] -= scale
        most, number = min(self.max_rank, D), q["degrees_of_freedom"] - nu
        # start with the columns' variances given the others; one row has no factors
        rate = 0.5 * (scale + np.diagonal(scatter, axis1=1, axis2=2))
        several, tol = number > 1.0, _TOL
        out = Factors(np.zeros(K), rate, np.zeros((K, D, most)), np.ones((K, most)))
        if begun is None:
            many = several & ((D < _MANY_COLUMNS) | (2.0 * number >= D))
            inverse = np.linalg.inv(scatter[many] + np.diag(scale))
            rate[many] = 0.5 / np.diagonal(inverse, axis1=1, axis2=2)
        else:
            tol = _TOL_OF_TRIALS
            for part, known in zip(out, begun, strict=True):
                part[several] = known[several]
        _solve(number, scatter, 0.5 * nu, 0.5 * scale, *out, tol, begun is None)
        return out

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Bound of the log evidence, without ``-D / 2 log(2 pi)`` a row; 0 of the prior."""
        eta = np.asarray(eta, dtype=np.float64)
        kappa, D = eta[..., 1], len(self._start["scale_inverse"])
        of_means = 0.5 * D * np.log(self._start["mean_precision"] / kappa)
        return np.asarray(of_means + self.factors(eta).bound.reshape(kappa.shape))

    def expectation(self, eta: ArrayLike) -> Array:
        """The gradient of the log-normaliser; shape of eta."""
        eta = np.asarray(eta, dtype=np.float64)
        q = NormalWishart.standard(eta.reshape(-1, eta.shape[-1]))
        kappa, m, D = q["mean_precision"], q["mean"], q["mean"].shape[-1]
        factors, shape = self.factors(eta), 0.5 * q["degrees_of_freedom"][:, None]
        log_det = (digamma_array(shape) - np.log(factors.rate)).sum(axis=1)
        log_det += np.log(factors.variances).sum(axis=1)
        precision = expected_precision(shape, factors)
        precision_mean = np.einsum("kij,kj->ki", precision, m)
        square = np.einsum("ki,ki->k", m, precision_mean) + D / kappa
        scalars = np.stack([0.5 * log_det, -0.5 * square], axis=-1)
        return join(scalars, precision_mean, pack_statistic(precision)).reshape(eta.shape)

    def standard(self, eta: ArrayLike) -> dict[str, Array]:
        """``mean`` (..., D), ``mean_precision`` (...), ``shape`` a (...), ``rate`` b (..., D).

        And ``loadings`` m (..., D, L), ``loadings_variance`` C (...).
        """
        eta = np.asarray(eta, dtype=np.float64)
        q, factors, lead = NormalWishart.standard(eta), self.factors(eta), eta.shape[:-1]
        nu = q["degrees_of_freedom"]
        return {
            "mean": q["mean"],
            "mean_precision": q["mean_precision"],
            "shape": 0.5 * nu,
            "rate": factors.rate.reshape(*lead, -1),
            "loadings": factors.loadings.reshape(*lead, *factors.loadings.shape[1:]),
            "loadings_variance": 1.0 / (nu - self._start["degrees_of_freedom"] + 1.0),
        }

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> MeanPrecision:
        """One draw of each member (K, E): means (K, D), precisions (K, D, D).

        Draws are of q, in which loadings do not depend on the factors of the rows: covariances vary
        less than under the posterior, two or three times less where factors stand out.
        """
        q = self.standard(eta)
        psi = standard_gamma(np.broadcast_to(q["shape"][:, None], q["rate"].shape), rng) / q["rate"]
        there = np.abs(q["loadings"]).sum(axis=1, keepdims=True) > 0.0
        noise = rng.standard_normal(q["loadings"].shape) * there
        noise *= np.sqrt(q["loadings_variance"])[:, None, None] / np.sqrt(psi)[..., None]
        loadings = q["loadings"] + noise
        covariance = loadings @ np.swapaxes(loadings, 1, 2)
        D = np.arange(psi.shape[1])
        covariance[:, D, D] += 1.0 / psi
        z = np.linalg.cholesky(covariance) @ rng.standard_normal((*psi.shape, 1))
        mean = q["mean"] + z[..., 0] / np.sqrt(q["mean_precision"])[:, None]
        return MeanPrecision(mean, np.linalg.inv(covariance))

    def mean(self, eta: ArrayLike) -> MeanPrecision:
        """Means (K, D), and precisions (K, D, D) as the bound of ``E[log p(x)]`` has them."""
        q, factors = NormalWishart.standard(eta), self.factors(eta)
        return MeanPrecision(
            q["mean"], expected_precision(0.5 * q["degrees_of_freedom"][:, None], factors)
        )

    def variance(self, eta: ArrayLike) -> MeanPrecision:
        raise _unknown("variances")

    def log_density(self, eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        raise _unknown("densities")

    def entropy(self, eta: ArrayLike) -> Array:
        raise _unknown("the entropy")


def _unknown(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"For covariance_type='low_rank', {what} of the posterior are not known in closed form. "
        "Draw from it by 'sample'."
    )


def expected_precision(shape: Array, factors: Factors) -> Array:
    """``E[psi] - E[psi] M V M' E[psi]``, (K, D, D), for the shapes a (K, 1)."""
    psi = shape / factors.rate
    scaled = psi[..., None] * factors.loadings * np.sqrt(factors.variances)[:, None]
    precision = -scaled @ np.swapaxes(scaled, 1, 2)
    D = np.arange(psi.shape[1])
    precision[:, D, D] += psi
    return precision


@part
def _orthonormalise(columns: Array, rows: Array) -> None:
    """Make columns (D, p) orthonormal by Gram-Schmidt, done twice; ``rows`` (p, D) are the same.

    Columns that depend on those before become 0.
    """
    D, size = columns.shape
    for column in range(size):
        length = before = 0.0
        for again in range(3):
            length = 0.0
            for d in range(D):
                length += columns[d, column] * columns[d, column]
            if again == 0:
                before = length
            for other in range(column if again < 2 else 0):
                product = 0.0
                for d in range(D):
                    product += columns[d, other] * columns[d, column]
                for d in range(D):
                    columns[d, column] -= product * columns[d, other]
        factor = 1.0 / np.sqrt(length) if length > _DEPENDENT * before else 0.0
        for d in range(D):
            columns[d, column] *= factor
            rows[column, d] = columns[d, column]


@part_allocating
def _root_of(scatter: Array, most: int) -> Array:
    """Return F (D, p) with ``F F' = scatter``, or with p = 0 if p had to be more than ``most``.

    By Cholesky's algorithm: the pivot is the column of whose scatter the largest share is left.
    """
    D = scatter.shape[0]
    root, left = np.zeros((D, most)), np.empty(D)
    for d in range(D):
        left[d] = scatter[d, d]
    for p in range(most + 1):
        pivot, share = 0, 0.0
        for d in range(D):
            if left[d] > share * scatter[d, d]:
                pivot, share = d, left[d] / scatter[d, d]
        if share <= _LEFT_OUT:
            return root[:, :p].copy()
        if p == most:
            break
        length = np.sqrt(left[pivot])
        for d in range(D):
            value = scatter[d, pivot]
            for j in range(p):
                value -= root[d, j] * root[pivot, j]
            root[d, p] = value / length
            left[d] -= root[d, p] * root[d, p]
        left[pivot] = 0.0
    return np.empty((D, 0))


@part_allocating
def _start_of_few(few: Array, b0: Array, rate: Array) -> None:
    """Set rates of the columns' variances given the others, half of 1 / diag((F F' + 2 b0)^-1)."""
    D, size = few.shape
    scaled = np.empty((D, size))
    for d in range(D):
        for column in range(size):
            scaled[d, column] = few[d, column] / np.sqrt(2.0 * b0[d])
    # the formula of Woodbury
    inner = np.ascontiguousarray(scaled.T) @ scaled
    for column in range(size):
        inner[column, column] += 1.0
    product = scaled @ np.linalg.inv(inner)
    for d in range(D):
        left = 1.0
        for column in range(size):
            left -= product[d, column] * scaled[d, column]
        rate[d] = b0[d] / max(left, _LEFT_OUT)


@part_allocating
def _given_noise(
    number: float, scatter: Array, few: Array, log_rate: Array, a0: float, b0: Array,
    constant: float, basis: Array, target: Array, loadings: Array, variances: Array,
) -> tuple[float, Array]:  # fmt: skip
    """The best factors for given noise: the bound, loadings (D, L) and variances (L,).

    ``few`` (D, p) has the scatter as its product with its transpose, unless p = 0.
    With a ``basis`` (D, p), the best ones in the span of its product with the scatter, by
    orthogonal iteration: as any loadings, these have a bound. Returns a basis for noise that
    differs little, too, and in ``target`` the logarithms of the rates that are best given these
    factors.
    """
    D, most = loadings.shape
    a, rows = a0 + 0.5 * number, number + 1.0
    of_few = few.shape[1] > 0 and basis.shape[1] == 0
    root, scaled = np.empty(D), np.empty((0 if of_few else D, D))
    bound = -_LOG_2
    for d in range(D):
        root[d] = np.sqrt(a) * exp(-0.5 * log_rate[d])
        bound -= root[d] * root[d] * (b0[d] + 0.5 * scatter[d, d]) - a0 * log(b0[d])
        bound -= a * log_rate[d]
        target[d] = b0[d] + 0.5 * scatter[d, d]
        for e in range(0 if of_few else d + 1):
            scaled[d, e] = scaled[e, d] = scatter[d, e] * root[d] * root[e]
    bound += D * (a + gammaln(a) - gammaln(a0))
    variances[:] = 1.0
    loadings[:] = 0.0
    # (products of contiguous matrices alone: numba compiles one for each layout)
    size = basis.shape[1]
    inner, vectors, span = scaled, scaled, basis
    if size:
        span = scaled @ basis
        transposed = np.empty((size, D))
        _orthonormalise(span, transposed)
        inner = transposed @ (scaled @ span)
    elif of_few and most:
        size = few.shape[1]
        span, transposed = np.empty((D, size)), np.empty((size, D))
        for d in range(D):
            for column in range(size):
                span[d, column] = transposed[column, d] = few[d, column] * root[d]
        inner = transposed @ span
    number_of_values = size if size else (D if most else 0)
    values = root
    if number_of_values:
        values, weights = np.linalg.eigh(inner)
        vectors = np.empty((number_of_values, number_of_values))
        for d in range(number_of_values):
            for e in range(number_of_values):
                vectors[d, e] = weights[d, e]
        if size:
            vectors = span @ vectors
            if not basis.shape[1]:  # eigenvectors of F F' are F times those of F' F
                for column in range(size):
                    length = 1.0 / np.sqrt(max(values[column], _LEFT_OUT))
                    for d in range(D):
                        vectors[d, column] *= length
    last, there = number_of_values - 1, 0
    for column in range(min(most, number_of_values)):
        value = values[last - column]
        if value <= rows + D:
            break
        gain = 0.5 * (value - rows) + 0.5 * (rows + D) * log(rows / value) + constant
        if gain <= _LOG_2:
            break
        bound += gain - _LOG_2
        there += 1
        variances[column] = rows / value
        length = np.sqrt((value - D) / rows - 1.0)
        for d in range(D):
            loading = vectors[d, last - column] * length / root[d]
            loadings[d, column] = loading
            target[d] -= 0.5 * rows * loading * loading
    for d in range(D):
        # (factors found in a span can take up more than a column varies)
        target[d] = log(max(target[d], b0[d]))
    # The factors among all directions of few rows are found as fast as among some.
    if of_few and 4 * few.shape[1] <= D:
        return bound, np.empty((D, 0))
    clear = 0 < there < last and 2.0 * values[last - there] < values[last - there + 1]
    more = _MORE if clear or D < _MANY_COLUMNS else D // 16
    clear |= D >= _MANY_COLUMNS
    first = max(0, last + 1 - there - more) if clear else number_of_values
    next_basis = np.empty((D, number_of_values - first))
    for d in range(D):
        for e in range(number_of_values - first):
            next_basis[d, e] = vectors[d, first + e]
    return bound, next_basis


@part
def _combine(
    steps: Array, targets: Array, step: Array, n: int, size: int, matrix: Array, right: Array,
    x: Array,
) -> None:  # fmt: skip
    """Take from x what the last ``size`` steps, combined to the one of step n, led to."""
    trace = 0.0
    for i in range(size):
        right[i] = 0.0
        for j in range(size):
            matrix[i, j] = 0.0
        for d in range(x.size):
            change = steps[(n - i) % _MEMORY, d]
            right[i] += change * step[d]
            for j in range(size):
                matrix[i, j] += change * steps[(n - j) % _MEMORY, d]
        trace += matrix[i, i]
    # Gaussian elimination: the matrix is positive definite
    for i in range(size):
        matrix[i, i] += _RIDGE * trace
    for i in range(size):
        for j in range(i + 1, size):
            factor = matrix[j, i] / matrix[i, i]
            right[j] -= factor * right[i]
            for m in range(i, size):
                matrix[j, m] -= factor * matrix[i, m]
    for i in range(size - 1, -1, -1):
        for j in range(i + 1, size):
            right[i] -= matrix[i, j] * right[j]
        right[i] /= matrix[i, i]
        for d in range(x.size):
            x[d] -= right[i] * targets[(n - i) % _MEMORY, d]


@jit_allocating
def _solve(
    number: Array, scatter: Array, a0: float, b0: Array, bound: Array, rate: Array,
    loadings: Array, variances: Array, tol: float, starts: bool,
) -> None:  # fmt: skip
    """Best q of K members of N rows (K,) and scatter R (K, D, D), by Anderson's acceleration.

    The next noise is a combination of what the last few led to. One that lowers the bound is
    followed by a plain step from the best so far, which never does. The first step finds the
    factors among all directions, unless it is given some, later ones among those that the step
    before has found. With many columns, the last step is among all directions, too.
    """
    D, most = loadings.shape[1:]
    x, target, step, best = np.empty(D), np.empty(D), np.empty(D), np.empty(D)
    last_step, last_target = np.empty(D), np.empty(D)
    # changes of the steps, and of what they led to
    steps, targets = np.empty((_MEMORY, D)), np.empty((_MEMORY, D))
    matrix, right = np.empty((_MEMORY, _MEMORY)), np.empty(_MEMORY)
    some_loadings, some_variances = np.empty((D, most)), np.empty(most)
    half = 0.5 * (D + 1.0)
    for k in range(number.size):
        if number[k] <= 0.0:
            continue
        constant = gammaln(half) + (half - 0.5) * _LOG_2 - 0.5 * log(np.pi)
        constant -= 0.5 * D * log(number[k] + 1.0)
        some = most if number[k] > 1.0 else 0
        bound[k], size, accelerated, least = -np.inf, -1, False, tol * number[k]
        few = np.empty((D, 0))
        if D >= _MANY_COLUMNS and 1.0 < number[k] < 0.5 * D:
            few = _root_of(scatter[k], D // 2)
            if starts and few.shape[1]:
                _start_of_few(few, b0, rate[k])
        width = 0
        for column in range(most):
            width += variances[k, column] < 1.0
        basis = np.empty((D, width))
        for d in range(D):
            x[d] = np.log(rate[k, d])
            for column in range(width):
                basis[d, column] = loadings[k, d, column] / np.sqrt(rate[k, d])
        for n in range(_MOST_STEPS):
            width = basis.shape[1]
            found, basis = _given_noise(
                number[k], scatter[k], few, x, a0, b0, constant, basis, target,
                some_loadings[:, :some], some_variances[:some],
            )  # fmt: skip
            gain = found - bound[k]
            if gain > 0.0:
                bound[k] = found
                for d in range(D):
                    best[d], rate[k, d] = target[d], np.exp(x[d])
                    for column in range(some):
                        loadings[k, d, column] = some_loadings[d, column]
                for column in range(some):
                    variances[k, column] = some_variances[column]
            elif accelerated or (width > 0 and gain < -least):
                for d in range(D):
                    x[d] = best[d]
                size, accelerated, basis = -1, False, np.empty((D, 0))
                continue
            if not gain >= least:
                if width == 0 or D < _MANY_COLUMNS or tol > _TOL:
                    break
                # the factors may be in other directions
                for d in range(D):
                    x[d] = best[d]
                size, accelerated, basis = -1, False, np.empty((D, 0))
                continue
            for d in range(D):
                step[d] = target[d] - x[d]
                if size >= 0:
                    steps[n % _MEMORY, d] = step[d] - last_step[d]
                    targets[n % _MEMORY, d] = target[d] - last_target[d]
                last_step[d], last_target[d], x[d] = step[d], target[d], target[d]
            size = min(size + 1, _MEMORY)
            accelerated = size > 0
            if accelerated:
                _combine(steps, targets, step, n, size, matrix, right, x)
                for d in range(D):  # between the rates of all factors and of none
                    without = log(b0[d] + 0.5 * scatter[k, d, d])
                    x[d] = min(max(x[d], log(b0[d])), without)
