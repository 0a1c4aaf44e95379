"""The posterior of size and rate of a negative binomial column.

Given the component, a row of exposure e has the count

    x ~ Poisson(e lam),   lam ~ Gamma(r, b):
    p(x | r, b) = h_r(x) (b / (b + e))^r (e / (b + e))^x,   h_r(x) = Gamma(x + r) / (Gamma(r) x!),

with lam integrated out; its mean is e mu with mu = r / b, its variance e mu + (e mu)^2 / r. The
size r has a prior on G values r_g, uniform over their logarithms unless learned: its posterior
is exact, and no statistic depends on q. Given r_g, b / (b + c) ~ Beta(1 + n r_g, s) at a typical
exposure c. This corresponds to s counts in n rows: mu has the mean s / (n c) under each r_g. As r
grows, the prior becomes the gamma prior of a Poisson's rate.

Statistics of a component in a column are H_g, the sum of log h_r(x) at each r_g, and the sums of 1
and of x by exposure. If all exposures are the same, the latter are two numbers, N and X, and the
posterior is conjugate. If they differ, log(b + e) is interpolated between J Chebyshev points e_j in
log e, to about 1e-6 of its value; the sums are N_j and X_j, weighted by Lagrange's polynomials.
With

    A = 1 + r sum_j N_j,    B = sum_j X_j,    C_j = r N_j + X_j + [what the prior adds],

pseudo-counts included, the likelihood of b is ``A log b - sum_j C_j log(b + e_j)``, with its
maximum at b*. Take q(b / (b + t)) = Beta(A, B) with t such that the mean p = A / (A + B) lies at
b*. The logarithm of its linear function ``p t + (1 - p) e_j`` is concave, so that (Jensen)

    log int ... db >= A log b* - sum_j C_j log(b* + e_j) + log B(A, B) - A log p - B log(1 - p).

No Beta near it gives a greater bound, and equality holds if all exposures are the same. The bound
of the mixture [HS13 eq. 8] therefore remains a lower bound, and passes never lower it. If exposures
vary tenfold, it loses less than .1 nats in a column. Its slopes in the statistics are the expected
log densities.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr, logsumexp

from skvt.compiled import (
    digamma,
    digamma_array,
    exp,
    gammaln,
    gammaln_array,
    jit_allocating,
    log,
    writeable,
)
from skvt.typing import Array

# Sizes r, for dispersions 1 / r from 20 to .01; each size is 1.66 times its predecessor. Rounding
# any other size in this range to the nearest one loses about .1 % of the entropy.
SIZES = np.geomspace(0.05, 100.0, 16)
# Factor by which new exposures may lie outside the range of the fit; others are clipped.
_MARGIN = 2.0
# Relative error of the interpolation.
_ERROR = 1e-6
# Sum of sizes or of counts, whichever is smaller, at which a posterior is nearly certain.
_ROWS = 1e6
# Log probability of all sizes but the certain one.
_NEVER = -1e300
# Maximum number of steps towards b*, and the step in log b* below which they end.
_MOST_STEPS = 20
_SMALLEST_STEP = 1e-4


def exposure_points(least: float, largest: float) -> Array:
    """Return Chebyshev points (J,) for exposures in this range and a little beyond it.

    log(b + e) is analytic in log e up to a distance pi from the real axis. The number of points
    that the relative error needs follows from this distance.
    """
    low, high = np.log(least), np.log(largest)
    half = 0.5 * (high - low) + np.log(_MARGIN)
    ratio = np.pi / half
    number = 1 + int(np.ceil(-np.log(_ERROR) / np.log(ratio + np.hypot(ratio, 1.0))))
    angles = np.pi * (np.arange(number) + 0.5) / number
    return np.exp(0.5 * (low + high) - half * np.cos(angles))


class SizeAndRate(NamedTuple):
    """Parameters of a column: the size r, and the rate mu for an exposure of 1."""

    size: Array
    rate: Array


class OfSizes(NamedTuple):
    """q of columns given each size, (..., G): the size's probability, A, B and the scale t."""

    share: Array
    a: Array
    b: Array
    scale: Array


@dataclass(frozen=True)
class SizesAndRates:
    """q of size and rate of a column: eta is ``[log shares (G), X_j (J), N_j (J)]``."""

    # (J,): exposures e_j, and their weights for the typical exposure.
    points: Array
    typical: Array

    __name__ = "NegativeBinomial"

    def _integrated(self, eta: Any, *, slopes: bool = False) -> tuple[OfSizes, Array, Array]:
        """Return q given each size, the log of the integral (...), and its slopes if requested."""
        eta = np.asarray(eta, np.float64)
        flat, lead = np.ascontiguousarray(eta.reshape(-1, eta.shape[-1])), eta.shape[:-1]
        flat = writeable(flat)
        q, total = OfSizes(*np.empty((4, len(flat), SIZES.size))), np.empty(len(flat))
        gradient = np.empty((len(flat) if slopes else 0, 2 * self.points.size))
        _integrate(flat, SIZES, self.points, self.typical, q, total, gradient)
        q = OfSizes(*(part.reshape(*lead, -1) for part in q))
        return q, total.reshape(lead), gradient.reshape(*lead, -1) if slopes else gradient

    def log_normalizer(self, eta: Any) -> Array:
        """Return the log of the integral over b, summed over sizes, (...) in nats."""
        return np.asarray(self._integrated(eta)[1])

    def of_sizes(self, eta: Any) -> OfSizes:
        return self._integrated(eta)[0]

    def expectation(self, eta: Any) -> Array:
        """Return the slopes of :meth:`log_normalizer`: probabilities and expected logarithms."""
        q, _, slopes = self._integrated(eta, slopes=True)
        return np.concatenate([q.share, slopes], axis=-1)

    def standard(self, eta: Any) -> dict[str, Array]:
        """Return probabilities of sizes (..., G), and A, B and t given each size."""
        return self.of_sizes(eta)._asdict()

    def sample(self, eta: Any, rng: np.random.Generator) -> SizeAndRate:
        q = self.of_sizes(eta)
        below = q.share.cumsum(axis=-1)
        g = (below < rng.random(below.shape[:-1])[..., None] * below[..., -1:]).sum(axis=-1)
        a, b, scale = (np.take_along_axis(x, g[..., None], -1)[..., 0] for x in q[1:])
        odds = rng.standard_gamma(b) / rng.standard_gamma(a)
        return SizeAndRate(SIZES[g], SIZES[g] / scale * odds)

    def certain(self, x: SizeAndRate) -> Array:
        """Return natural parameters (..., G + 2 J) of members that are nearly certain of x.

        They correspond to many rows at the typical exposure; with still more rows, log-gammas would
        lose digits.
        """
        size, mean = x.size[..., None], x.rate[..., None] * (self.points @ self.typical)
        mean = np.clip(mean, 1e-6 * size, 1e6 * size)
        rows = _ROWS / np.minimum(size, mean)
        counts = rows * mean
        chosen = np.isclose(SIZES, size, rtol=1e-6)
        return np.concatenate(
            [np.where(chosen, 0.0, _NEVER), counts * self.typical, rows * self.typical], axis=-1
        )

    def mean(self, eta: Any) -> SizeAndRate:
        return self._moments(eta)[0]

    def variance(self, eta: Any) -> SizeAndRate:
        """Return variances; that of a rate with fewer than two rows may be infinite."""
        return self._moments(eta)[1]

    def _moments(self, eta: Any) -> tuple[SizeAndRate, SizeAndRate]:
        q = self.of_sizes(eta)
        share, rate = q.share, SIZES / q.scale
        first = rate * q.b / (q.a - 1.0)
        enough = q.a > 2.0
        second = first * rate * (q.b + 1.0) / np.where(enough, q.a - 2.0, 1.0)
        second = (share * np.where(enough, second, np.inf)).sum(axis=-1)
        mean = SizeAndRate(share @ SIZES, (share * first).sum(axis=-1))
        return mean, SizeAndRate(share @ SIZES**2 - mean.size**2, second - mean.rate**2)

    def log_density(self, eta: Any, value: SizeAndRate) -> Array:
        """Return the log of the probability of the size times the density of the rate, in nats."""
        q, (size, rate) = self.of_sizes(eta), value
        distance = np.abs(np.log(SIZES) - np.log(size)[..., None])
        odds = np.asarray(rate)[..., None] * q.scale / SIZES
        logs = (q.b - 1.0) * np.log(odds) - (q.a + q.b) * np.log1p(odds) + np.log(q.scale / SIZES)
        density = np.where(distance < 1e-9, logs - betaln(q.a, q.b), -np.inf)
        return np.asarray(logsumexp(density, b=q.share, axis=-1))

    def entropy(self, eta: Any) -> Array:
        """Return the entropy of the size plus the expected one of the rate, in nats."""
        q = self.of_sizes(eta)
        both = digamma_array(q.a + q.b)
        logs = (q.b - 1.0) * (digamma_array(q.b) - both) + (q.a + 1.0) * (digamma_array(q.a) - both)
        inner = betaln(q.a, q.b) - logs - np.log(q.scale / SIZES)
        return np.asarray((q.share * inner + entr(q.share)).sum(axis=-1))


def betaln(a: Array, b: Array) -> Array:
    return gammaln_array(a) + gammaln_array(b) - gammaln_array(a + b)


@jit_allocating
def _integrate(
    eta: Array, sizes: Array, points: Array, typical: Array, q: OfSizes, total: Array,
    slopes: Array,
) -> None:  # fmt: skip
    """Write q of columns (M,) given each size, the log of the integral and its slopes.

    See the module. Loops over sizes are innermost, so that they are vectorised.
    """
    G, J = sizes.size, points.size
    a, best, share, slope, value = np.empty((5, G))
    of_row, of_count = np.empty((2, G))
    far = np.empty((J, G))
    for m in range(eta.shape[0]):
        x, n = eta[m, G : G + J], eta[m, G + J :]
        b, rows = 0.0, 0.0
        for j in range(J):
            b += x[j]
            rows += n[j]
        for g in range(G):
            a[g] = 1.0 + sizes[g] * rows
            best[g] = 0.0
        for j in range(J):
            of_all, of_rows, e = x[j] + typical[j], n[j], points[j]
            for g in range(G):
                best[g] += (of_all + sizes[g] * of_rows) * e
        for g in range(G):
            best[g] *= a[g] / (b * (a[g] + b))
        for _ in range(_MOST_STEPS if J > 1 else 0):
            for g in range(G):
                share[g], slope[g] = 0.0, 0.0
            for j in range(J):
                of_all, of_rows, e = x[j] + typical[j], n[j], points[j]
                for g in range(G):
                    pi = best[g] / (best[g] + e)
                    term = (of_all + sizes[g] * of_rows) * pi
                    share[g] += term
                    slope[g] += term * (1.0 - pi)
            largest = 0.0
            for g in range(G):
                rest = a[g] + b - share[g]
                step = log(a[g] / b * rest / share[g]) * share[g] * rest / ((a[g] + b) * slope[g])
                best[g] *= exp(step)
                largest = max(largest, abs(step))
            if largest < _SMALLEST_STEP:
                break
        for g in range(G):
            c = log(a[g] + b)
            value[g] = a[g] * (log(best[g]) - log(a[g]) + c) - b * (log(b) - c)
            value[g] += eta[m, g] + gammaln(a[g]) + gammaln(b) - gammaln(a[g] + b)
        for j in range(J):
            of_all, of_rows, e, logs = x[j] + typical[j], n[j], points[j], far[j]
            for g in range(G):
                logs[g] = log(best[g] + e)
                value[g] -= (of_all + sizes[g] * of_rows) * logs[g]
        most, norm = value.max(), 0.0
        for g in range(G):
            share[g] = exp(max(value[g] - most, -700.0))
            norm += share[g]
        total[m] = most + log(norm)
        for g in range(G):
            q.share[m, g], q.a[m, g], q.b[m, g] = share[g] / norm, a[g], b
            q.scale[m, g] = best[g] * b / a[g]
        if slopes.shape[0] == 0:
            continue
        for g in range(G):
            both = log(a[g] + b) - digamma(a[g] + b)
            of_count[g] = digamma(b) - log(b) + both
            of_row[g] = digamma(a[g]) - log(a[g]) + both + log(best[g])
        for j in range(J):
            x_slope, n_slope, logs = 0.0, 0.0, far[j]
            for g in range(G):
                x_slope += share[g] * (of_count[g] - logs[g])
                n_slope += share[g] * sizes[g] * (of_row[g] - logs[g])
            slopes[m, j], slopes[m, J + j] = x_slope / norm, n_slope / norm
