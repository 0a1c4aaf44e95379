"""Document priors that depend on covariates: Dirichlet-multinomial regression.

    alpha_dk = exp(x_d' lambda_k),    lambda_pk ~ N(0, s_g^2),    1 / s_g^2 ~ Gamma(A, B)

x_d is row d of the design, whose first column is 1; its coefficients have a flat prior. All other
columns are standardised. Columns of one term, such as the levels of a category, form a group g with
one variance (Mimno and McCallum 2008, there with a fixed variance). The variances are integrated
out, so that the prior of the n coefficients of a group is Student's t.

Given gamma_d of q(theta_d), let b_d = psi(sum_k gamma_dk) - psi(sum_k alpha_dk). Since log Gamma is
convex, the bound rises with lambda by at least as much as

    sum_dk -log Gamma(alpha_dk) + alpha_dk (psi(gamma_dk) - b_d),

in which each term is a function of one x_d' lambda_k. Where no x_d' lambda_k changes by more than
RADIUS, second derivatives are bounded, and a parabola lies below. Gradients and curvatures add up
over documents, so that a step needs no pass. The step to the top of the parabola, shortened to the
radius, never lowers the bound.
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

# Largest change of a logarithm of alpha in a step.
RADIUS = 1.0
# exp(u) lies above 1 + u + LOW u^2 / 2 and below 1 + u + HIGH u^2 / 2 for |u| <= RADIUS.
LOW = 2.0 * (np.exp(-RADIUS) - 1.0 + RADIUS) / RADIUS**2
HIGH = 2.0 * (np.exp(RADIUS) - 1.0 - RADIUS) / RADIUS**2
# Range of log alpha, that of learned concentrations.
RANGE = np.log(1e-4), np.log(1e4)
# A and B of the prior of 1 / s_g^2.
SHAPE = 0.5
RATE = 0.5 * 0.25**2
# Share of each document that is added to second derivatives, so that a topic that has reached the
# end of its range can be solved for.
LEAST = 1e-8
# Largest number of products of design columns that are in memory at a time.
MOST_PRODUCTS = 2**20


@in_files("models.DocumentRegression")
@dataclass(frozen=True)
class DocumentRegression:
    """Coefficients of covariates in the prior of documents, for P columns and K topics."""

    # (P, K): lambda.
    coef: Annotated[Array, "p k"]
    # (P,): number of the group of each column; 0 is the intercept, which has no group.
    groups: Annotated[IndexArray, "p"]
    # (P, P): mean of x x' over documents.
    gram: Annotated[Array, "p p"]
    # Largest x' gram^-1 x of a document.
    leverage: Annotated[float, POSITIVE]
    # Number of documents whose mean statistics are learned from.
    n_documents: Annotated[float, POSITIVE]

    @classmethod
    def of(cls, design: Array, groups: IndexArray, alpha: Array, n_documents: float) -> Self:
        """Return the regression in which all documents have the prior alpha, (K,)."""
        coef = np.zeros((groups.size, alpha.size))
        coef[0] = np.log(alpha.astype(np.float64))
        gram = design.T @ design / len(design)
        solved = np.linalg.solve(gram, design.T)
        leverage = float(np.einsum("np,pn->n", design, solved).max())
        return cls(coef, groups, gram, leverage, float(n_documents))

    def validate(self, d: int, k: int) -> bool:
        """Return whether columns are in the order of their groups, and all numbers finite."""
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

    def alpha(self, design: Array) -> Array:
        """Return alpha of documents with this design, (n, K)."""
        return np.exp(np.clip(design @ self.coef, *RANGE))

    def log_prior(self) -> float:
        """Return log p(lambda) in nats, without the intercepts, whose prior is flat."""
        value = 0.0
        for columns in self._columns:
            n, square = self.coef[columns].size, (self.coef[columns] ** 2).sum()
            value += gammaln(SHAPE + 0.5 * n) - gammaln(SHAPE) - 0.5 * n * np.log(2.0 * np.pi)
            value += SHAPE * np.log(RATE) - (SHAPE + 0.5 * n) * np.log(RATE + 0.5 * square)
        return float(value)

    @property
    def _columns(self) -> list[IndexArray]:
        """Columns of each group."""
        return [np.flatnonzero(self.groups == g) for g in range(1, int(self.groups.max()) + 1)]

    @property
    def _precisions(self) -> Array:
        """Expectation of 1 / s_g^2 of each column given lambda, (P,); 0 for the intercept."""
        out = np.zeros(self.groups.size)
        for columns in self._columns:
            n, square = self.coef[columns].size, (self.coef[columns] ** 2).sum()
            out[columns] = (SHAPE + 0.5 * n) / (RATE + 0.5 * square)
        return out

    # -------------------------------------------------------------------------- statistics
    def statistics(self, design: Array, weights: Array, gamma: Array) -> Array:
        """Return the parabola below the bound given gamma of q(theta), summed over documents.

        The result is (K, P, 1 + P): for each topic h, such that the parabola is ``h[:, 0] @ lambda
        - lambda @ h[:, 1:] @ lambda / 2`` up to a constant.
        """
        alpha = self.alpha(design)
        gamma = np.maximum(gamma, alpha)  # rounding
        of_gamma, of_alpha = digamma_array(gamma), digamma_array(alpha)
        rise = digamma_array(gamma.sum(axis=1)) - digamma_array(alpha.sum(axis=1))
        slope = rise[:, None] - of_gamma
        gradient = -alpha * (slope + of_alpha)
        # The second derivative of log Gamma(x) in log x is at most x (psi(1 + x) + 1), which
        # increases with x, and psi(1 + x) < log(1 + x) - 1 / (2 + 2 x).
        top = np.exp(RADIUS) * alpha
        curvature = top * (np.log1p(top) - 0.5 / (1.0 + top) + 1.0)
        curvature += alpha * slope * np.where(slope > 0.0, HIGH, LOW)
        return self._sums(design, weights, alpha, gradient, np.maximum(curvature, 0.0))

    def statistics_of_counts(self, design: Array, weights: Array, counts: Array) -> Array:
        """Return the parabola, as :meth:`statistics`, given numbers of tokens of topics (n, K).

        It touches the log probability of the drawn topics. Without covariates, its maximum would be
        a step of the fixed point of [Minka00 eq. 55].
        """
        alpha = self.alpha(design)
        gradient, curvature = np.empty_like(alpha), np.empty_like(alpha)
        derivatives_of_counts(counts, alpha, gradient, curvature)
        return self._sums(design, weights, alpha, gradient, curvature)

    def _sums(
        self, design: Array, weights: Array, alpha: Array, gradient: Array, curvature: Array
    ) -> Array:
        """Sum gradients and second derivatives (n, K) in x' lambda to parabolas in lambda."""
        lowest, highest = np.exp(RANGE)
        if alpha.min() <= lowest or alpha.max() >= highest:
            ends = (alpha <= lowest) & (gradient < 0.0) | (alpha >= highest) & (gradient > 0.0)
            gradient, curvature = (np.where(ends, 0.0, each) for each in (gradient, curvature))
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
        # No x' step exceeds this number.
        longest = np.sqrt(self.leverage * np.einsum("kp,pq,kq->k", step, self.gram, step))
        step *= np.minimum(1.0, RADIUS / np.maximum(longest, RADIUS))[:, None]
        return replace(self, coef=self.coef + step.T)

    def regrouped(self, groups: list[IndexArray]) -> Self:
        """Merge topics ``groups[j]``; near the mean of the covariates their alpha add up."""
        merged = np.empty((len(self.coef), len(groups)))
        for j, group in enumerate(groups):
            intercepts = self.coef[0, group]
            shares = np.exp(intercepts - np.logaddexp.reduce(intercepts))
            merged[:, j] = self.coef[:, group] @ shares
            merged[0, j] = np.logaddexp.reduce(intercepts)
        return replace(self, coef=merged)
