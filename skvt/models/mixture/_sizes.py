"""The posterior of size and rate of a negative binomial column.

Given the component, a row of exposure e has the count

    x ~ Poisson(e lam),   lam ~ Gamma(r, b):
    p(x | r, b) = h_r(x) (b / (b + e))^r (e / (b + e))^x,   h_r(x) = Gamma(x + r) / (Gamma(r) x!),

where the Poisson rate lam per unit of exposure is integrated out. The mean of x is e mu with
mu = r / b, and its variance is e mu + (e mu)^2 / r. The size r has a prior on G values r_g, which
are equally probable unless the probabilities are learned. The posterior of r is exact, and no
statistic depends on q. Given r_g and a typical exposure c, the prior of the rate b is
b / (b + c) ~ Beta(1 + n r_g, s). Such a prior counts as n rows whose counts have the sum s: mu has
the mean s / (n c) under each r_g. As r grows, it becomes the gamma prior of a Poisson's rate.

The statistics of a component in a column are H_g, the sum of log h_r(x) at each r_g, and the sums
of 1 and of x by exposure. If all exposures are the same, the sums of 1 and of x are two numbers, N
and X, and the posterior is conjugate. If exposures differ, log(b + e) is interpolated between J
Chebyshev points e_j in log e, with a relative error of about 1e-6. The sums N_j and X_j are then
weighted by Lagrange's polynomials. Let c_j be the polynomial of point j at the typical exposure.
With the pseudo-counts of the prior included in N_j and X_j, let

    A = 1 + r sum_j N_j,    B = sum_j X_j,    C_j = r N_j + X_j + c_j.

The log likelihood of b is ``A log b - sum_j C_j log(b + e_j)``, with its maximum at b*. The
posterior q of y = b / (b + t) is Beta(A, B), whose mean is p = A / (A + B). The number t is such
that y = p at b = b*. Since the function ``log(y t + (1 - y) e_j)`` is concave in y, Jensen's
inequality yields

    log int ... db >= A log b* - sum_j C_j log(b* + e_j) + log Beta(A, B)
                      - A log p - B log(1 - p),

where the left side is the log of the integral of the likelihood of b, and Beta(A, B) is the beta
function. No Beta distribution near q gives a greater bound, and equality holds if all exposures are
the same. The bound of the mixture [HS13 eq. 8] therefore remains a lower bound, and passes over the
data never lower it. If exposures vary tenfold, the bound is less than 0.1 nats below the exact
value in a column. The slopes of the bound in the statistics are the expected log densities.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr, logsumexp

from skvt._compiled import (
    digamma,
    digamma_array,
    ensure_writeable,
    exp,
    gammaln,
    gammaln_array,
    jit_allocating,
    log,
)
from skvt.models.mixture.components import draw_positions
from skvt.typing import Array

# Sizes r, for dispersions 1 / r from 20 to 0.01. Each size is 1.66 times its predecessor. Rounding
# any size in this range to the nearest of these sizes loses about 0.1 % of the entropy.
SIZES = np.geomspace(0.05, 100.0, 16)
# Exposures of new rows may lie outside the range of the fit by this factor, and are clipped beyond.
_MARGIN_FACTOR = 2.0
# Relative error of the interpolation.
_INTERPOLATION_ERROR = 1e-6
# A posterior counts as certain if both the sum of sizes and the sum of counts are at least this.
_CERTAIN_SUM = 1e6
# Log probability of impossible sizes.
_LOG_ZERO = -1e300
# Smallest logarithm that is exponentiated, at which the exponential is still a normal number.
_MIN_EXPONENT = -700.0
# Maximum number of Newton steps towards b*.
_MAX_NEWTON_STEPS = 20
# Steps end when log b* changes by less than this.
_NEGLIGIBLE_STEP = 1e-4


def make_exposure_points(least: float, largest: float) -> Array:
    """Return Chebyshev points (J,) for exposures from ``least`` to ``largest`` and a little beyond.

    log(b + e) is analytic in log e up to a distance pi from the real axis. This distance determines
    the number of points at which the interpolation has the relative error `_INTERPOLATION_ERROR`.
    """
    low, high = np.log(least), np.log(largest)
    half_width = 0.5 * (high - low) + np.log(_MARGIN_FACTOR)
    ratio = np.pi / half_width
    # Each further point divides the error by ``gain``.
    gain = ratio + np.hypot(ratio, 1.0)
    n_points = 1 + int(np.ceil(-np.log(_INTERPOLATION_ERROR) / np.log(gain)))
    angles = np.pi * (np.arange(n_points) + 0.5) / n_points
    return np.exp(0.5 * (low + high) - half_width * np.cos(angles))


class SizeAndRate(NamedTuple):
    """Parameters of columns: the sizes r, and the rates mu for an exposure of 1."""

    size: Array
    rate: Array


class QGivenSizes(NamedTuple):
    """The posterior of columns given each size, (..., G) each, in the symbols of the module."""

    # Probability of the size.
    probability: Array
    # A and B of q(b / (b + t)) = Beta(A, B). The field ``b`` is B, and not the rate.
    a: Array
    b: Array
    # t.
    scale: Array


@dataclass(frozen=True)
class SizesAndRates:
    """The family of q of the size and the rate of a column.

    The natural parameters eta are ``[log shares (G), X_j (J), N_j (J)]``. The log shares are the
    log prior probabilities of the sizes plus H_g.
    """

    # (J,): exposures e_j.
    points: Array
    # (J,): c_j, the weights of the points in the interpolation at the typical exposure.
    typical_c: Array
    # The name in texts, like the ``__name__`` of families that are classes.
    __name__ = "NegativeBinomial"

    def _integrate_eta(
        self, eta: Any, *, with_slopes: bool = False
    ) -> tuple[QGivenSizes, Array, Array]:
        """Return q given each size, the log of the integral over b, and the slopes of this log.

        The log (...) is that of the sum of integrals over sizes. Its slopes in X_j and N_j are
        (..., 2 J), or empty unless ``with_slopes`` is set.
        """
        eta = np.asarray(eta, np.float64)
        leading_shape = eta.shape[:-1]
        flat_eta = ensure_writeable(np.ascontiguousarray(eta.reshape(-1, eta.shape[-1])))
        q = QGivenSizes(*np.empty((4, len(flat_eta), SIZES.size)))
        log_integral = np.empty(len(flat_eta))
        gradient = np.empty((len(flat_eta) if with_slopes else 0, 2 * self.points.size))
        _integrate_rates(flat_eta, SIZES, self.points, self.typical_c, q, log_integral, gradient)
        q = QGivenSizes(*(array.reshape(*leading_shape, -1) for array in q))
        gradient = gradient.reshape(*leading_shape, -1) if with_slopes else gradient
        return q, log_integral.reshape(leading_shape), gradient

    def log_normalizer(self, eta: Any) -> Array:
        """Return the log of the integral over b, summed over sizes, (...) in nats."""
        return np.asarray(self._integrate_eta(eta)[1])

    def condition_on_sizes(self, eta: Any) -> QGivenSizes:
        """Return the probabilities of the sizes, and q given each size."""
        return self._integrate_eta(eta)[0]

    def expectation(self, eta: Any) -> Array:
        """Return the slopes of :meth:`log_normalizer`: probabilities and expected logarithms."""
        q, _, slopes = self._integrate_eta(eta, with_slopes=True)
        return np.concatenate([q.probability, slopes], axis=-1)

    def to_standard(self, eta: Any) -> dict[str, Array]:
        """Return probabilities of sizes (..., G), and A, B and t given each size."""
        return self.condition_on_sizes(eta)._asdict()

    def sample(self, eta: Any, rng: np.random.Generator) -> SizeAndRate:
        """Draw the size, and then the rate given the size."""
        q = self.condition_on_sizes(eta)
        g = draw_positions(q.probability, rng)
        # Select A, B and t of the drawn size. Given the size, the odds of b / (b + t) are drawn.
        _, a, b, scale = (np.take_along_axis(x, g[..., None], -1)[..., 0] for x in q)
        odds = rng.standard_gamma(b) / rng.standard_gamma(a)
        return SizeAndRate(SIZES[g], SIZES[g] / scale * odds)

    def concentrate_at(self, x: SizeAndRate) -> Array:
        """Return natural parameters (..., G + 2 J) of distributions concentrated at x.

        They correspond to many rows at the typical exposure. The number of rows is limited because
        log-gammas lose digits with even more rows.
        """
        # ``mean`` is the mean count at the typical exposure. The limits of its ratio to the size
        # keep both A and B small enough.
        size, mean = x.size[..., None], x.rate[..., None] * (self.points @ self.typical_c)
        mean = np.clip(mean, 1e-6 * size, 1e6 * size)
        n_rows = _CERTAIN_SUM / np.minimum(size, mean)
        log_shares = np.where(np.isclose(SIZES, size, rtol=1e-6), 0.0, _LOG_ZERO)
        counts = n_rows * mean * self.typical_c
        return np.concatenate([log_shares, counts, n_rows * self.typical_c], axis=-1)

    def mean(self, eta: Any) -> SizeAndRate:
        return self._mean_and_variance(eta)[0]

    def variance(self, eta: Any) -> SizeAndRate:
        """Return variances; the variance of a rate with fewer than two rows may be infinite."""
        return self._mean_and_variance(eta)[1]

    def _mean_and_variance(self, eta: Any) -> tuple[SizeAndRate, SizeAndRate]:
        q = self.condition_on_sizes(eta)
        # Compute the first two moments of mu = r / b given each size. Since (1 - y) / y = t / b for
        # y = b / (b + t), mu is r / t times the odds (1 - y) / y of a Beta(A, B) variable y.
        probability, rate = q.probability, SIZES / q.scale
        first = rate * q.b / (q.a - 1.0)
        has_variance = q.a > 2.0
        square = first * rate * (q.b + 1.0) / np.where(has_variance, q.a - 2.0, 1.0)
        square = (probability * np.where(has_variance, square, np.inf)).sum(axis=-1)
        mean = SizeAndRate(probability @ SIZES, (probability * first).sum(axis=-1))
        return mean, SizeAndRate(probability @ SIZES**2 - mean.size**2, square - mean.rate**2)

    def log_density(self, eta: Any, value: SizeAndRate) -> Array:
        """Return the log of the probability of the size times the density of the rate, in nats."""
        q = self.condition_on_sizes(eta)
        size, rate = value
        is_size = np.abs(np.log(SIZES) - np.log(size)[..., None]) < 1e-9
        odds = np.asarray(rate)[..., None] * q.scale / SIZES
        logs = (q.b - 1.0) * np.log(odds) - (q.a + q.b) * np.log1p(odds) + np.log(q.scale / SIZES)
        log_densities = np.where(is_size, logs - betaln(q.a, q.b), -np.inf)
        return np.asarray(logsumexp(log_densities, b=q.probability, axis=-1))

    def entropy(self, eta: Any) -> Array:
        """Return the entropy of the size plus the expected entropy of the rate, in nats."""
        q = self.condition_on_sizes(eta)
        digamma_of_sum = digamma_array(q.a + q.b)
        expected_logs = (q.b - 1.0) * (digamma_array(q.b) - digamma_of_sum)
        expected_logs += (q.a + 1.0) * (digamma_array(q.a) - digamma_of_sum)
        rate_entropy = betaln(q.a, q.b) - expected_logs - np.log(q.scale / SIZES)
        return np.asarray((q.probability * rate_entropy + entr(q.probability)).sum(axis=-1))


def betaln(a: Array, b: Array) -> Array:
    """Return the logarithm of the beta function."""
    return gammaln_array(a) + gammaln_array(b) - gammaln_array(a + b)


@jit_allocating
def _integrate_rates(
    eta: Array, sizes: Array, points: Array, typical_c: Array, q: QGivenSizes, log_integral: Array,
    slopes: Array,
) -> None:  # fmt: skip
    """Write the results of :meth:`SizesAndRates._integrate_eta` for M columns.

    ``eta`` (M, G + 2 J) are natural parameters. ``q`` (M, G), ``log_integral`` (M,) and ``slopes``
    (M, 2 J) are outputs. If ``slopes`` is empty, slopes are not computed. The docstring of the
    module explains the symbols; ``b_star`` is b*. Loops over sizes are innermost, so that they are
    vectorised.
    """
    G, J = sizes.size, points.size
    # ``pi_sum`` is the sum of C_j pi_j with pi_j = b* / (b* + e_j), and ``pi_slope`` is its slope
    # in log b*. ``log_weight`` is the log share of each size plus the log of the integral over b.
    a, b_star, pi_sum, pi_slope, log_weight, weight = np.empty((6, G))
    row_slope, count_slope = np.empty((2, G))
    log_b_and_e = np.empty((J, G))
    for m in range(eta.shape[0]):
        # X_j and N_j of the column, from which A and B follow.
        x, n = eta[m, G : G + J], eta[m, G + J :]
        b, n_rows = 0.0, 0.0
        for j in range(J):
            b += x[j]
            n_rows += n[j]
        for g in range(G):
            a[g] = 1.0 + sizes[g] * n_rows
            b_star[g] = 0.0
        # Start at the b* of a single exposure, the average of the e_j weighted by C_j, which is
        # ``count + sizes[g] * n_j``.
        for j in range(J):
            count, n_j, e = x[j] + typical_c[j], n[j], points[j]
            for g in range(G):
                b_star[g] += (count + sizes[g] * n_j) * e
        for g in range(G):
            b_star[g] *= a[g] / (b * (a[g] + b))
        # Find b*, where ``pi_sum`` equals A.
        for _ in range(_MAX_NEWTON_STEPS if J > 1 else 0):
            for g in range(G):
                pi_sum[g], pi_slope[g] = 0.0, 0.0
            for j in range(J):
                count, n_j, e = x[j] + typical_c[j], n[j], points[j]
                for g in range(G):
                    pi = b_star[g] / (b_star[g] + e)
                    term = (count + sizes[g] * n_j) * pi
                    pi_sum[g] += term
                    pi_slope[g] += term * (1.0 - pi)
            # Make Newton steps for the logit of ``pi_sum / (A + B)`` as a function of log b*.
            largest_step = 0.0
            for g in range(G):
                remainder = a[g] + b - pi_sum[g]
                log_ratio = log(a[g] / b * remainder / pi_sum[g])
                step = log_ratio * pi_sum[g] * remainder / ((a[g] + b) * pi_slope[g])
                b_star[g] *= exp(step)
                largest_step = max(largest_step, abs(step))
            if largest_step < _NEGLIGIBLE_STEP:
                break
        # Compute the bound of the log integral given each size.
        for g in range(G):
            log_sum = log(a[g] + b)
            log_weight[g] = a[g] * (log(b_star[g]) - log(a[g]) + log_sum) - b * (log(b) - log_sum)
            log_weight[g] += eta[m, g] + gammaln(a[g]) + gammaln(b) - gammaln(a[g] + b)
        for j in range(J):
            count, n_j, e, logs = x[j] + typical_c[j], n[j], points[j], log_b_and_e[j]
            for g in range(G):
                logs[g] = log(b_star[g] + e)
                log_weight[g] -= (count + sizes[g] * n_j) * logs[g]
        # ``weight`` is the probability of each size times ``weight_sum``.
        max_log_weight, weight_sum = log_weight.max(), 0.0
        for g in range(G):
            weight[g] = exp(max(log_weight[g] - max_log_weight, _MIN_EXPONENT))
            weight_sum += weight[g]
        log_integral[m] = max_log_weight + log(weight_sum)
        for g in range(G):
            q.probability[m, g], q.a[m, g], q.b[m, g] = weight[g] / weight_sum, a[g], b
            q.scale[m, g] = b_star[g] * b / a[g]
        if slopes.shape[0] == 0:
            continue
        # Compute the terms of the slopes in X_j and N_j that are the same for all points.
        for g in range(G):
            term_of_sum = log(a[g] + b) - digamma(a[g] + b)
            count_slope[g] = digamma(b) - log(b) + term_of_sum
            row_slope[g] = digamma(a[g]) - log(a[g]) + term_of_sum + log(b_star[g])
        for j in range(J):
            x_slope, n_slope, logs = 0.0, 0.0, log_b_and_e[j]
            for g in range(G):
                x_slope += weight[g] * (count_slope[g] - logs[g])
                n_slope += weight[g] * sizes[g] * (row_slope[g] - logs[g])
            slopes[m, j], slopes[m, J + j] = x_slope / weight_sum, n_slope / weight_sum
