"""Posterior marginals of single columns, and the evidence that a component differs in a column.

Components return :class:`Marginals`. The results of a fit call :func:`relevance`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv, gammainccinv, gammaincinv, stdtrit

from skvt.typing import Array, IndexArray

# If a parameter of a beta distribution is larger, scipy's quantiles may be NaN or far off.
_MAX_BETA_PARAMETER = 1e7
# Components with less than this share of the rows may consist of errors in the data.
MIN_LARGE_SHARE = 0.05


class Marginals(NamedTuple):
    """Posterior marginals of one kind of parameter of K components."""

    # Name of the kind, such as "mean", "standard deviation", "probability" or "rate".
    quantity: str
    # (Q,): the column of each parameter, as a position among the columns of this kind of component.
    columns: IndexArray
    # (K, Q): posterior means, or medians of standard deviations, whose means need not exist.
    estimate: Array
    # Function that returns the quantiles (K, Q) for a probability.
    quantile: Callable[[float], Array]
    # (Q,): if the parameters are probabilities of categories, the codes of the categories. None if
    # each column has one parameter.
    categories: IndexArray | None = None

    def select(self, positions: Any) -> "Marginals":
        """Return the marginals at ``positions``, a mask or indices, without their categories."""
        return Marginals(
            self.quantity, self.columns[positions], self.estimate[:, positions],
            lambda p: self.quantile(p)[:, positions],
        )  # fmt: skip


def mean_marginals(mean: Array, mean_precision: Array, shape: Array, rate: Array) -> Marginals:
    """Return the marginals of means under normal-gammas with the shape a, the rate b and kappa.

    Here ``mean_precision`` is kappa. The marginals are Student t with 2a degrees of freedom and the
    squared scale b / (a kappa). The arguments broadcast to (K, D), see
    :class:`~skvt.expfam.NormalGamma`.
    """
    scale, columns = np.sqrt(rate / (shape * mean_precision)), np.arange(mean.shape[1])
    return Marginals("mean", columns, mean, lambda p: mean + scale * stdtrit(2.0 * shape, p))


def deviation_marginals(shape: Array, rate: Array) -> Marginals:
    """Return the marginals of standard deviations, (K, D), given Gamma(shape, rate) precisions."""

    def quantile(p: float) -> Array:
        # The p-quantile of the deviation belongs to the (1 - p)-quantile of the precision.
        return np.sqrt(rate / gammainccinv(shape, p))

    median = quantile(0.5)
    return Marginals("standard deviation", np.arange(median.shape[1]), median, quantile)


def rate_marginals(shape: Array, rate: Array) -> Marginals:
    """Return the marginals of rates that are Gamma(shape, rate), (K, D)."""
    columns = np.arange(shape.shape[1])
    return Marginals("rate", columns, shape / rate, lambda p: gammaincinv(shape, p) / rate)


def probability_marginals(
    counts: Array, others: Array, columns: IndexArray | None = None,
    categories: IndexArray | None = None,
) -> Marginals:  # fmt: skip
    """Return the marginals of probabilities that are Beta(counts, others), (K, Q).

    A probability is certainly 1 if ``others`` is 0, as for the only category of a column.
    """
    is_certain = others <= 0.0
    b = np.where(is_certain, 1.0, others)

    def quantile(p: float) -> Array:
        return np.where(is_certain, 1.0, _beta_quantile(counts, b, p))

    columns = np.arange(counts.shape[1]) if columns is None else columns
    return Marginals("probability", columns, counts / (counts + others), quantile, categories)


def _beta_quantile(a: Array, b: Array, p: float) -> Array:
    """Return the quantiles of Beta(a, b) for the probability p.

    The odds are the ratio of a Gamma(a) and a Gamma(b) variable. If one parameter is above the
    limit of scipy, its gamma variable is nearly constant, and is replaced by its mean. The quantile
    of the other variable, divided by the mean of this variable, is raised to a power slightly above
    1, so that the log odds have about the variance 1/a + 1/b.
    """
    smaller, larger = np.minimum(a, b), np.maximum(a, b)
    if not np.any(larger > _MAX_BETA_PARAMETER):
        return np.asarray(betaincinv(a, b, p))
    relative_quantile = gammaincinv(smaller, np.where(a <= b, p, 1.0 - p)) / smaller
    # The logarithm of the relative quantile has about the variance 1/smaller. The power multiplies
    # this variance by 1 + smaller/larger.
    odds_of_smaller = smaller / larger * relative_quantile ** np.sqrt(1.0 + smaller / larger)
    # If b is the smaller parameter, these are the odds of 1 - x at its (1 - p)-quantile.
    approximation = np.where(a <= b, odds_of_smaller, 1.0) / (1.0 + odds_of_smaller)
    return np.where(larger > _MAX_BETA_PARAMETER, approximation, betaincinv(a, b, p))


def have_large_shares(counts: Array) -> Array:
    """Return whether each component has at least ``MIN_LARGE_SHARE`` of the rows, (K,).

    If half of the mean share is smaller than ``MIN_LARGE_SHARE``, because there are many
    components, it is the minimum instead.
    """
    shares = counts / counts.sum()
    return np.asarray(shares >= min(MIN_LARGE_SHARE, 0.5 / shares.size))


def relevance(evidence: Callable[[Array], Array], sums: Array, counts: Array) -> Array:
    """Return the evidence in nats per row that each component differs from all other rows, (K, B).

    This is ``[log M(S_k) + log M(S_rest) - log M(S_k + S_rest)] / N_k``, the log Bayes factor of
    separate parameters against parameters shared with all other rows. S_k are the ``sums`` of
    features (K, P) of component k, and S_rest are those of the other rows. ``evidence`` maps sums
    to log marginal likelihoods ``log M`` (K, B) for each of B groups of columns. Terms linear in
    the sums may be left out, because they cancel. N_k are the ``counts`` (K,) of rows, at least 1.

    If some of the other components have many rows, only their rows count as other rows, because a
    component of a few errors would otherwise determine the variance of all other rows.
    """
    # S_rest is the sum over the other large components. If there are none, all others count.
    large_others = _sum_others(sums * have_large_shares(counts)[:, None])
    others = np.where(large_others.any(axis=1, keepdims=True), large_others, _sum_others(sums))
    gain = evidence(sums) + evidence(others) - evidence(sums + others)
    return np.asarray(gain / np.maximum(counts, 1.0)[:, None])


def _sum_others(sums: Array) -> Array:
    """Return, for each component, the total of the sums (K, P) of all other components."""
    # Add the components before k and the components after k. The difference of the total and the
    # sums of k would lose digits. The slice ``[:0:-1]`` has the components K - 1, ..., 1.
    others = np.zeros_like(sums)
    others[1:] += np.cumsum(sums[:-1], axis=0)
    others[:-1] += np.cumsum(sums[:0:-1], axis=0)[::-1]
    return others
