"""Document priors that depend on covariates: Dirichlet-multinomial regression.

    alpha_dk = exp(x_d' lambda_k),    lambda_pk ~ N(0, s_g^2),    1 / s_g^2 ~ Gamma(A, B)

x_d is row d of the design. Its first column is 1, the intercept, whose coefficients have a flat
prior. All other columns are standardised. Columns of one term, such as the levels of a category,
form a group g with one variance s_g^2 (Mimno and McCallum 2008, there with a fixed variance). The
variances are integrated out, so that the prior of the n coefficients of a group is Student's t.

A step of lambda is computed as follows. Let q(theta_d) = Dirichlet(gamma_d), and at the present
lambda let b_d = psi(sum_k gamma_dk) - psi(sum_k alpha_dk). Since log Gamma is convex, a change of
lambda raises the ELBO by at least as much as it raises

    sum_dk -log Gamma(alpha_dk) + alpha_dk (psi(gamma_dk) - b_d),

in which each term is a function of one x_d' lambda_k. If no x_d' lambda_k changes by more than
RADIUS, second derivatives are bounded, and a parabola in lambda is a lower bound. Its gradients and
curvatures are sums over documents, so that a step needs no pass over the data. The step to the
maximum of the parabola, shortened to the radius, never lowers the ELBO.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from scipy.special import gammaln

from skvt.compiled import digamma_array
from skvt.files import POSITIVE, in_files
from skvt.models.lda._collapsed_kernels import derivatives_of_counts
from skvt.rows import pieces
from skvt.typing import Array, IndexArray

# Largest change of log alpha_dk in a step.
RADIUS = 1.0
# For |u| <= RADIUS: 1 + u + LOW u^2 / 2 <= exp(u) <= 1 + u + HIGH u^2 / 2.
LOW = 2.0 * (np.exp(-RADIUS) - 1.0 + RADIUS) / RADIUS**2
HIGH = 2.0 * (np.exp(RADIUS) - 1.0 - RADIUS) / RADIUS**2
# Range of log alpha, the same as for concentrations that are learned without covariates.
RANGE = np.log(1e-4), np.log(1e4)
# A and B of the prior of 1 / s_g^2.
SHAPE = 0.5
RATE = 0.5 * 0.25**2
# This multiple of x x' of each document is added to second derivatives, which would be zero for a
# topic whose alpha is at an end of its range in all documents.
LEAST = 1e-8
# Maximum number of products of two columns of the design that are in memory at a time.
MOST_PRODUCTS = 2**20


@in_files("models.DocumentRegression")
@dataclass(frozen=True)
class DocumentRegression:
    """The regression of log alpha on covariates, with P columns of the design and K topics."""

    # (P, K): lambda.
    coef: Annotated[Array, "p k"]
    # (P,): number of the group of each column, from 1; 0 for the intercept, which is in no group.
    groups: Annotated[IndexArray, "p"]
    # (P, P): mean of x x' over documents.
    gram: Annotated[Array, "p p"]
    # Largest x' gram^-1 x of a document.
    leverage: Annotated[float, POSITIVE]
    # Number of documents by which mean statistics are multiplied when lambda is learned.
    n_documents: Annotated[float, POSITIVE]

    @classmethod
    def of(cls, design: Array, groups: IndexArray, alpha: Array, n_documents: float) -> Self:
        """Return the regression in which all documents have the prior alpha, (K,)."""
        coef = np.zeros((groups.size, alpha.size))
        coef[0] = np.log(alpha.astype(np.float64))
        gram = design.T @ design / len(design)
        gram_solutions = np.linalg.solve(gram, design.T)
        leverage = float(np.einsum("np,pn->n", design, gram_solutions).max())
        return cls(coef, groups, gram, leverage, float(n_documents))

    def validate(self, d: int, k: int) -> bool:
        """Return whether columns are in the order of their groups and all numbers are finite."""
        return (
            self.groups.dtype.kind in "iu"
            and self.groups[0] == 0 < self.groups.size
            and bool(np.all(np.diff(self.groups) >= 0))
            and bool(np.isfinite(self.coef).all() and np.isfinite(self.gram).all())
        )

    @property
    def statistics_shape(self) -> tuple[int, ...]:
        """Shape of :meth:`statistics`."""
        n_columns, n_topics = self.coef.shape
        return n_topics, n_columns, 1 + n_columns

    def alpha(self, design: Array, allowed: Array | None = None) -> Array:
        """Return alpha of documents with this design, (n, K), 0 for topics not ``allowed``."""
        alpha = np.exp(np.clip(design @ self.coef, *RANGE))
        return alpha if allowed is None else alpha * allowed

    def log_prior(self) -> float:
        """Return log p(lambda) in nats, without the intercepts, whose prior is flat."""
        value = 0.0
        for columns in self._columns_of_groups:
            n, square = self.coef[columns].size, (self.coef[columns] ** 2).sum()
            value += gammaln(SHAPE + 0.5 * n) - gammaln(SHAPE) - 0.5 * n * np.log(2.0 * np.pi)
            value += SHAPE * np.log(RATE) - (SHAPE + 0.5 * n) * np.log(RATE + 0.5 * square)
        return float(value)

    @property
    def _columns_of_groups(self) -> list[IndexArray]:
        """Positions of the columns of each group."""
        return [np.flatnonzero(self.groups == g) for g in range(1, int(self.groups.max()) + 1)]

    @property
    def _precisions(self) -> Array:
        """E[1 / s_g^2 | lambda] of the group of each column, (P,); 0 for the intercept."""
        out = np.zeros(self.groups.size)
        for columns in self._columns_of_groups:
            n, square = self.coef[columns].size, (self.coef[columns] ** 2).sum()
            out[columns] = (SHAPE + 0.5 * n) / (RATE + 0.5 * square)
        return out

    # -------------------------------------------------------------------------- statistics
    def statistics(
        self, design: Array, weights: Array, gamma: Array, allowed: Array | None = None
    ) -> Array:
        """Return the parabola below the ELBO given gamma of q(theta), summed over documents.

        The result h is (K, P, 1 + P). In lambda_k of topic k the parabola is, up to a constant,
        ``h[k, :, 0] @ lambda_k - lambda_k @ h[k, :, 1:] @ lambda_k / 2``.
        """
        alpha = self.alpha(design, allowed)
        gamma = np.maximum(gamma, alpha)  # gamma may be lower by rounding
        # Topics with alpha = 0 have the gradient and the curvature 0 for any finite logarithm.
        digamma_gamma, digamma_alpha = (
            digamma_array(np.where(alpha > 0.0, each, 1.0)) for each in (gamma, alpha)
        )
        rise = digamma_array(gamma.sum(axis=1)) - digamma_array(alpha.sum(axis=1))
        slope = rise[:, None] - digamma_gamma
        gradient = -alpha * (slope + digamma_alpha)
        # The second derivative of log Gamma(x) in log x is at most x (psi(1 + x) + 1), which
        # increases with x, and psi(1 + x) < log(1 + x) - 1 / (2 + 2 x).
        highest = np.exp(RADIUS) * alpha
        curvature = highest * (np.log1p(highest) - 0.5 / (1.0 + highest) + 1.0)
        curvature += alpha * slope * np.where(slope > 0.0, HIGH, LOW)
        return self._sums(design, weights, alpha, gradient, np.maximum(curvature, 0.0))

    def statistics_of_counts(
        self, design: Array, weights: Array, counts: Array, allowed: Array | None = None
    ) -> Array:
        """Return a parabola, as :meth:`statistics`, given numbers of tokens of topics (n, K).

        Its gradient is that of the log probability of the drawn topics. Its second derivatives are
        those of a lower bound [Minka00 eq. 55]: without covariates, the step to its maximum is a
        Newton step on this lower bound.
        """
        alpha = self.alpha(design, allowed)
        gradient, curvature = np.empty_like(alpha), np.empty_like(alpha)
        derivatives_of_counts(counts, alpha, gradient, curvature)
        return self._sums(design, weights, alpha, gradient, curvature)

    def _sums(
        self, design: Array, weights: Array, alpha: Array, gradient: Array, curvature: Array
    ) -> Array:
        """Return the parabolas in lambda given gradients and curvatures (n, K) in x' lambda."""
        lowest, highest = np.exp(RANGE)
        if alpha.min() <= lowest or alpha.max() >= highest:
            is_at_end = (alpha <= lowest) & (gradient < 0.0) | (alpha >= highest) & (gradient > 0.0)
            gradient, curvature = (np.where(is_at_end, 0.0, each) for each in (gradient, curvature))
        n_columns, n_topics = self.coef.shape
        out, columns = np.zeros(self.statistics_shape), np.ascontiguousarray(design.T)
        weighted = weights * columns
        for part in pieces(len(design), max(1, MOST_PRODUCTS // n_columns**2)):
            products = columns[:, None, part] * weighted[None, :, part]
            sums = products.reshape(n_columns**2, -1) @ curvature[part]
            out[:, :, 1:] += sums.T.reshape(n_topics, n_columns, n_columns)
        out[:, :, 0] = (weighted @ gradient).T
        out[:, :, 0] += np.einsum("kpq,qk->kp", out[:, :, 1:], self.coef)
        return out

    # --------------------------------------------------------------------------- learning
    def learned(self, mean: Array, *, slowly: bool = False) -> Self:
        """Return the regression after a step, given the mean of the statistics over documents.

        With ``slowly``, second derivatives are at least those of expectation-maximisation.
        """
        precisions, coef = self._precisions, self.coef.T
        curvature = self.n_documents * mean[:, :, 1:]
        if slowly:
            curvature = curvature + self.n_documents * self.gram
        gradient = self.n_documents * mean[:, :, 0]
        gradient = gradient - np.einsum("kpq,kq->kp", self.n_documents * mean[:, :, 1:], coef)
        gradient -= precisions * coef
        curvature = curvature + np.diag(precisions) + LEAST * self.n_documents * self.gram
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        # By the Cauchy-Schwarz inequality, no x_d' step is larger than this in absolute value.
        longest = np.sqrt(self.leverage * np.einsum("kp,pq,kq->k", step, self.gram, step))
        step *= np.minimum(1.0, RADIUS / np.maximum(longest, RADIUS))[:, None]
        return replace(self, coef=self.coef + step.T)

    def regrouped(self, groups: list[IndexArray]) -> Self:
        """Merge the topics in each of ``groups``: their alpha add up at mean covariates.

        The slopes are means weighted by alpha, so that the sum also holds near mean covariates.
        """
        merged = np.empty((len(self.coef), len(groups)))
        for j, group in enumerate(groups):
            intercepts = self.coef[0, group]
            shares = np.exp(intercepts - np.logaddexp.reduce(intercepts))
            merged[:, j] = self.coef[:, group] @ shares
            merged[0, j] = np.logaddexp.reduce(intercepts)
        return replace(self, coef=merged)
