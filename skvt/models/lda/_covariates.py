"""Document priors that depend on covariates: Dirichlet-multinomial regression.

    alpha_dk = exp(x_d' lambda_k),    lambda_pk ~ N(0, s_g^2),    1 / s_g^2 ~ Gamma(A, B)

This is the model of Mimno and McCallum (2008), except that they fix the variance. x_d is row d of
the design matrix, whose P columns p are covariates. The first column is 1, the intercept, whose
coefficients have a flat prior. All other columns are standardised. The columns of a term, such as
the levels of a category, form a group g with the variance s_g^2. The variances are integrated out,
so that the prior of the coefficients of a group is Student's t.

A step of lambda is computed as follows. Let q(theta_d) = Dirichlet(gamma_d), let psi be the digamma
function, and let b_d = psi(sum_k gamma_dk) - psi(sum_k alpha_dk) at the present lambda. The
objective

    sum_dk -log Gamma(alpha_dk) + alpha_dk (psi(gamma_dk) - b_d)

is a lower bound of the ELBO up to a constant, because log Gamma is convex. It touches the ELBO at
the present lambda, and each of its terms is a function of one x_d' lambda_k. If no x_d' lambda_k
changes by more than MAX_CHANGE, the second derivatives of the terms are bounded, and a parabola in
lambda is a lower bound of the objective.

A step leads to the maximum of the parabola, but is shortened so that no x_d' lambda_k changes by
more than MAX_CHANGE. It thus never lowers the ELBO. It needs no pass over the data, because the
gradients and curvatures of the parabola are sums over documents, which local steps collect.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from scipy.special import gammaln

from skvt._compiled import digamma_array
from skvt.files import POSITIVE, in_files
from skvt.models.lda._collapsed_kernels import write_count_derivatives
from skvt.rows import pieces
from skvt.typing import Array, IndexArray

# Largest change of log alpha_dk in a step.
MAX_CHANGE = 1.0
# Curvatures of parabolas below and above exp: if |u| <= MAX_CHANGE, then
# 1 + u + LOW_CURVATURE u^2 / 2 <= exp(u) <= 1 + u + HIGH_CURVATURE u^2 / 2.
LOW_CURVATURE = 2.0 * (np.exp(-MAX_CHANGE) - 1.0 + MAX_CHANGE) / MAX_CHANGE**2
HIGH_CURVATURE = 2.0 * (np.exp(MAX_CHANGE) - 1.0 - MAX_CHANGE) / MAX_CHANGE**2
# Range of log alpha, the same as for concentrations that are learned without covariates.
LOG_ALPHA_RANGE = np.log(1e-4), np.log(1e4)
# A and B of the prior of 1 / s_g^2.
SHAPE = 0.5
RATE = 0.5 * 0.25**2
# RIDGE times the sum of x x' over documents is added to the curvature matrix of each topic. All
# second derivatives may be 0 for a topic whose alpha is at an end of its range, and the matrix
# would then be singular.
RIDGE = 1e-8
# Maximum number of entries of the matrices x x' that are in memory at a time.
MAX_PRODUCT_ENTRIES = 2**20


@in_files("models.DocumentRegression")
@dataclass(frozen=True)
class DocumentRegression:
    """The regression of log alpha on covariates, with P columns of the design and K topics."""

    # (P, K): the coefficients lambda.
    coef: Annotated[Array, "p k"]
    # (P,): number of the group of each column, from 1; 0 for the intercept, which is in no group.
    groups: Annotated[IndexArray, "p"]
    # (P, P): mean of x x' over documents.
    gram: Annotated[Array, "p p"]
    # Maximum of x' gram^-1 x over documents.
    leverage: Annotated[float, POSITIVE]
    # Number of documents. Lambda is learned from mean statistics of documents times this number.
    n_documents: Annotated[float, POSITIVE]

    @classmethod
    def with_equal_alpha(
        cls, design: Array, groups: IndexArray, alpha: Array, n_documents: float
    ) -> Self:
        """Return the regression in which all documents have the prior ``alpha`` (K,).

        ``design`` is (n, P), and ``groups`` (P,) is the field of the same name.
        """
        coef = np.zeros((groups.size, alpha.size))
        coef[0] = np.log(alpha.astype(np.float64))
        gram = design.T @ design / len(design)
        gram_solutions = np.linalg.solve(gram, design.T)
        leverage = float(np.einsum("np,pn->n", design, gram_solutions).max())
        return cls(coef, groups, gram, leverage, float(n_documents))

    def validate(self, d: int, k: int) -> bool:
        """Return whether groups are numbered from 0 in ascending order and numbers are finite."""
        return (
            self.groups.dtype.kind in "iu"
            and self.groups.size > 0
            and self.groups[0] == 0
            and bool(np.all(np.diff(self.groups) >= 0))
            and bool(np.isfinite(self.coef).all() and np.isfinite(self.gram).all())
        )

    @property
    def statistics_shape(self) -> tuple[int, ...]:
        """Shape of the statistics, (K, P, 1 + P)."""
        n_columns, n_topics = self.coef.shape
        return n_topics, n_columns, 1 + n_columns

    def alpha(self, design: Array, allowed: Array | None = None) -> Array:
        """Return alpha (n, K) of documents with this design (n, P).

        It is 0 for topics that a document must not have, where ``allowed`` (n, K) is False.
        """
        alpha = np.exp(np.clip(design @ self.coef, *LOG_ALPHA_RANGE))
        return alpha if allowed is None else alpha * allowed

    def log_prior(self) -> float:
        """Return log p(lambda) in nats, without the intercepts, whose prior is flat."""
        # Add the log density of Student's t for the n coefficients of each group.
        value = 0.0
        for columns in self._columns_of_groups:
            n, sum_of_squares = self.coef[columns].size, (self.coef[columns] ** 2).sum()
            value += gammaln(SHAPE + 0.5 * n) - gammaln(SHAPE) - 0.5 * n * np.log(2.0 * np.pi)
            value += SHAPE * np.log(RATE) - (SHAPE + 0.5 * n) * np.log(RATE + 0.5 * sum_of_squares)
        return float(value)

    @property
    def _columns_of_groups(self) -> list[IndexArray]:
        """Positions of the columns of each group."""
        return [np.flatnonzero(self.groups == g) for g in range(1, int(self.groups.max()) + 1)]

    @property
    def _precisions(self) -> Array:
        """Expected precisions E[1 / s_g^2 | lambda] of each column, (P,); 0 for the intercept."""
        precisions = np.zeros(self.groups.size)
        for columns in self._columns_of_groups:
            n_coefs, sum_of_squares = self.coef[columns].size, (self.coef[columns] ** 2).sum()
            precisions[columns] = (SHAPE + 0.5 * n_coefs) / (RATE + 0.5 * sum_of_squares)
        return precisions

    # -------------------------------------------------------------------------- statistics
    def statistics(
        self, design: Array, weights: Array, gamma: Array, allowed: Array | None = None
    ) -> Array:
        """Return the parabolas below the ELBO given gamma of q(theta), summed over documents.

        ``design`` is (n, P), ``weights`` (n,) are the weights of the documents, and ``gamma`` and
        ``allowed`` are (n, K). The result h is (K, P, 1 + P). The parabola of topic k has the
        linear term ``h[k, :, 0]`` and the curvature matrix ``h[k, :, 1:]``: up to a constant, it is
        ``h[k, :, 0] @ lambda_k - lambda_k @ h[k, :, 1:] @ lambda_k / 2``.
        """
        alpha = self.alpha(design, allowed)
        # Gamma is at least alpha except for rounding errors.
        gamma = np.maximum(gamma, alpha)
        # Replace alpha = 0 by 1, so that digamma is finite. Gradient and curvature are still 0.
        digamma_gamma, digamma_alpha = (
            digamma_array(np.where(alpha > 0.0, values, 1.0)) for values in (gamma, alpha)
        )
        b = digamma_array(gamma.sum(axis=1)) - digamma_array(alpha.sum(axis=1))
        # The objective of the module docstring has the terms -log Gamma(alpha) - alpha * slope.
        slope = b[:, None] - digamma_gamma
        gradient = -alpha * (slope + digamma_alpha)
        # The second derivative of the parabola in log alpha is minus ``curvature``, the sum of two
        # terms. The first term is at least the second derivative of log Gamma(x) in log x for all x
        # up to ``max_alpha``. This derivative is at most x (psi(1 + x) + 1), which increases with
        # x, and psi(1 + x) is less than log(1 + x) - 1 / (2 + 2 x).
        max_alpha = np.exp(MAX_CHANGE) * alpha
        curvature = max_alpha * (np.log1p(max_alpha) - 0.5 / (1.0 + max_alpha) + 1.0)
        # The second term is the curvature of a parabola above ``alpha * slope``.
        curvature += alpha * slope * np.where(slope > 0.0, HIGH_CURVATURE, LOW_CURVATURE)
        return self._sum_parabolas(design, weights, alpha, gradient, np.maximum(curvature, 0.0))

    def statistics_of_counts(
        self, design: Array, weights: Array, counts: Array, allowed: Array | None = None
    ) -> Array:
        """Return parabolas as in :meth:`statistics`, given the tokens of drawn topics (n, K).

        A parabola has the gradient of the log probability of the drawn topics, and the second
        derivatives of a lower bound of this log probability [Minka00 eq. 55]. Without covariates,
        the step to the maximum of the parabola is a Newton step on this lower bound.
        """
        alpha = self.alpha(design, allowed)
        gradient, curvature = np.empty_like(alpha), np.empty_like(alpha)
        write_count_derivatives(counts, alpha, gradient, curvature)
        return self._sum_parabolas(design, weights, alpha, gradient, curvature)

    def _sum_parabolas(
        self, design: Array, weights: Array, alpha: Array, gradient: Array, curvature: Array
    ) -> Array:
        """Return the parabolas in lambda, summed over documents of the given weights.

        ``gradient`` and ``curvature`` (n, K) describe the parabola of each document as a function
        of log alpha.
        """
        # If alpha is at an end of its range and the gradient points outwards, alpha stays there.
        min_alpha, max_alpha = np.exp(LOG_ALPHA_RANGE)
        if alpha.min() <= min_alpha or alpha.max() >= max_alpha:
            is_stopped = (alpha <= min_alpha) & (gradient < 0.0)
            is_stopped |= (alpha >= max_alpha) & (gradient > 0.0)
            gradient, curvature = (
                np.where(is_stopped, 0.0, values) for values in (gradient, curvature)
            )
        n_columns, n_topics = self.coef.shape
        parabolas = np.zeros(self.statistics_shape)
        columns = np.ascontiguousarray(design.T)
        weighted_columns = weights * columns
        for rows in pieces(len(design), max(1, MAX_PRODUCT_ENTRIES // n_columns**2)):
            # The matrices x x' of these documents, times the weight of each, (P, P, rows).
            products = columns[:, None, rows] * weighted_columns[None, :, rows]
            sums = products.reshape(n_columns**2, -1) @ curvature[rows]
            parabolas[:, :, 1:] += sums.T.reshape(n_topics, n_columns, n_columns)
        # The linear term of the parabola is the gradient at lambda = 0.
        parabolas[:, :, 0] = (weighted_columns @ gradient).T
        parabolas[:, :, 0] += np.einsum("kpq,qk->kp", parabolas[:, :, 1:], self.coef)
        return parabolas

    # --------------------------------------------------------------------------- learning
    def take_step(self, mean: Array, *, slowly: bool = False) -> Self:
        """Return the regression after a step, given the mean of the statistics over documents.

        The step leads to the maximum of the sum of the parabolas and the log prior. It is shortened
        for a topic if log alpha of a document could change by more than MAX_CHANGE. If ``slowly``,
        the sum of x x' over documents is added to the curvature matrix, which makes steps shorter.
        The matrix is then at least minus the second derivatives of the objective of
        expectation-maximisation.
        """
        precisions, coef = self._precisions, self.coef.T
        # ``gradient`` (K, P) and ``curvature`` (K, P, P) are sums over all documents, plus the
        # derivatives of the log prior, at the present lambda.
        curvature = self.n_documents * mean[:, :, 1:]
        if slowly:
            curvature = curvature + self.n_documents * self.gram
        gradient = self.n_documents * mean[:, :, 0]
        gradient = gradient - np.einsum("kpq,kq->kp", self.n_documents * mean[:, :, 1:], coef)
        gradient -= precisions * coef
        curvature = curvature + np.diag(precisions) + RIDGE * self.n_documents * self.gram
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        # Bound |x_d' step| of all documents by the Cauchy-Schwarz inequality.
        max_change = np.sqrt(self.leverage * np.einsum("kp,pq,kq->k", step, self.gram, step))
        step *= np.minimum(1.0, MAX_CHANGE / np.maximum(max_change, MAX_CHANGE))[:, None]
        return replace(self, coef=self.coef + step.T)

    def with_merged_topics(self, groups: list[IndexArray]) -> Self:
        """Return the regression in which the topics of each of ``groups`` are merged.

        At mean covariates, where the standardised columns are 0, alpha of a merged topic is the sum
        of alpha over its group. The other coefficients are means weighted by alpha, so that alpha
        of the merged topic is nearly the sum near mean covariates, too.
        """
        merged_coef = np.empty((len(self.coef), len(groups)))
        for j, group in enumerate(groups):
            intercepts = self.coef[0, group]
            shares = np.exp(intercepts - np.logaddexp.reduce(intercepts))
            merged_coef[:, j] = self.coef[:, group] @ shares
            merged_coef[0, j] = np.logaddexp.reduce(intercepts)
        return replace(self, coef=merged_coef)
