"""Regression of estimated shares on covariates, with robust standard errors.

The shares of n rows are regressed on the P columns of a design matrix, by least squares or by
fractional logistic regression. The latter maximises the fractional likelihood, which is the
likelihood of a logistic regression whose response may be a share.

The coefficients are computed for orthogonal columns of the same span as the design. The reason is
that the information matrix of the design itself is almost singular in two cases: if the mean of a
covariate is large compared with its standard deviation, as for years, or if the units of covariates
differ by orders of magnitude. A row x of the design and the row z of the orthogonal columns have
x = R' z, where R is the triangular factor of the QR decomposition of the design. Coefficients b of
x and c of z therefore have R b = c, and linear combinations of coefficients are
``a' b = (R^-T a)' c``.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from scipy.special import expit

from skvt._results._design import list_values, require_full_rank

# Maximum number of steps of Newton's method.
_MAX_NEWTON_STEPS = 50
# Newton's method has converged when a step changes no coefficient by more than this, relative to
# the largest coefficient or to 1.
_CONVERGENCE_TOLERANCE = 1e-8
# Largest change of a linear predictor in one step of Newton's method. Longer steps are shortened.
_MAX_PREDICTOR_CHANGE = 2.0
# Newton's method has diverged if the condition number of the information matrix, the negative
# Hessian of the log likelihood, is larger than this.
_MAX_CONDITION = 1e12
# The variance of a combination cannot be estimated if the expectation of its sandwich variance is
# at most this fraction of its true variance.
_MIN_VARIANCE_RATIO = 1e-8
# If a lower bound of the degrees of freedom is larger than this, the bound is used in their place,
# because it is cheap to compute. Quantiles of Student's t distribution with more degrees of freedom
# are within .7 % of those of the normal distribution.
_LARGE_DEGREES_OF_FREEDOM = 200.0


@dataclass(frozen=True)
class Regression:
    """The design of a regression on n rows, its link, and the groups for robust errors."""

    # (n, P): orthogonal columns of mean square 1, which span the columns of the design matrix.
    columns: Any
    # (P, P): upper triangular R; the design matrix is ``columns @ design_factor``.
    design_factor: Any
    # (n,): weights of the rows.
    weights: Any
    # (number of groups, n): sparse indicators of the rows of each group. Rows of the same group may
    # depend on each other, and standard errors allow for this. None for independent rows.
    group_indicators: Any
    # "identity" for least squares, "logit" for the fractional likelihood.
    link: str

    @classmethod
    def for_rows(cls, design, rows, weights, group_labels, link):
        """Return the regression on the rows with indices ``rows``.

        ``design`` is the :class:`~skvt._results._design.Design` of all rows, and ``weights`` has
        the weight of each row. ``group_labels`` is None, or has the group of each row.

        Raise ValueError if there are too few rows for the terms, if the used rows of the design do
        not have full rank, or if ``group_labels`` has another length, missing values or only one
        group.
        """
        matrix = design.matrix[rows]
        n_rows, n_terms = matrix.shape
        if n_rows <= n_terms:
            raise ValueError(
                f"A regression on {n_terms} terms needs more than {n_terms} rows. Got {n_rows} "
                "rows, not counting rows of weight 0 and documents without words; leave covariates "
                "out, or pass more rows."
            )
        try:
            require_full_rank(matrix, design.names)
        except ValueError as error:  # All rows together have full rank, see `make_design`.
            raise ValueError(
                f"{error} Rows of weight 0 and documents without words are not used. If no other "
                f"row has a level of a category, leave these {weights.size - n_rows} rows out of "
                "X, the covariates and the weights."
            ) from None
        groups = None
        if group_labels is not None:
            groups = _make_group_indicators(group_labels, rows, weights.size)
        columns, design_factor = np.linalg.qr(matrix)
        scale = np.sqrt(n_rows)
        return cls(scale * columns, design_factor / scale, weights[rows], groups, link)

    def to_orthogonal(self, combinations):
        """Convert combinations (Q, P) of coefficients of the design to those of the columns."""
        return solve_triangular(self.design_factor, combinations.T, trans="T").T

    def find_extreme_rows(self):
        """Return the rows of ``columns`` in which a column has its minimum or its maximum."""
        extremes = [self.columns.argmin(axis=0), self.columns.argmax(axis=0)]
        return self.columns[np.unique(extremes)]

    def compute_corrections(self, combinations):
        """Return a factor and degrees of freedom for the variance of each of Q combinations.

        ``combinations`` (Q, P) are of the coefficients of the columns. The sandwich variance of a
        combination is too small if it rests on few rows, because the regression fits these rows
        closely. Suppose that the errors of all rows are independent and have equal variances. Then
        the variance multiplied by the factor, (Q,), is unbiased. If the errors are also normal, it
        is distributed about like a chi-squared variable of the same mean and variance, and the
        degrees of freedom, (Q,), are those of this variable. Bell and McCaffrey [BellMcCaffrey02]
        compute the degrees of freedom in the same way, but correct the residuals instead of the
        variance. Factor and degrees of freedom are NaN for a combination that rests on a single
        row or a single group of rows.

        X are the columns, W the weights, and B = (X' W X)^-1. The estimate of a combination c is
        ``a' y`` with ``a = W X B c``. Errors u have the residuals ``e = (I - X B X' W) u``. Column
        g of D is a in the rows of group g, and 0 in other rows. Then the sandwich variance is
        ``|D' e|^2``. It is a quadratic form of u with the eigenvalues of

            M = D' (I - X B X' W) (I - W X B X') D = D' D + F K F',  F = D' [U, V].

        Here ``U = X T^-1`` and ``V = W X T^-1`` with ``T' T = X' W X``, and K has the blocks V' V,
        -I, -I and 0. The mean of the sandwich variance is ``tr(M)``, and the mean of an unbiased
        estimate is ``|a|^2``, both in units of the variance of an error. The degrees of freedom are
        ``tr(M)^2 / tr(M M)``. If weights are equal, ``tr(M)`` divided by the largest diagonal entry
        of D' D is a lower bound. This bound is returned in their place if it is larger than
        _LARGE_DEGREES_OF_FREEDOM.
        """
        roots = np.sqrt(self.weights)[:, None]
        basis, T = np.linalg.qr(roots * self.columns)
        # [U, V], (n, 2 P), and K, (2 P, 2 P).
        V = basis * roots
        U_and_V = np.hstack([basis / roots, V])
        identity = np.eye(basis.shape[1])
        K = np.block([[V.T @ V, -identity], [-identity, np.zeros_like(identity)]])
        # (n,): the diagonal of [U, V] K [U, V]'.
        diagonal_of_UVK = ((U_and_V @ K) * U_and_V).sum(axis=1)
        factors, degrees = np.ones(len(combinations)), np.full(len(combinations), np.inf)
        # (Q, P): the combinations as combinations of the columns of ``basis``.
        basis_combinations = solve_triangular(T, combinations.T, trans="T").T
        for q, combination in enumerate(basis_combinations):
            # (n,): a.
            a = V @ combination
            # The diagonals of D' D and of F K F', first for groups of single rows.
            diagonal_of_DD = a**2
            target = diagonal_of_DD.sum()
            # A combination of nothing has the variance 0, which needs no correction.
            if target == 0.0:
                continue
            diagonal_of_FKF = diagonal_of_DD * diagonal_of_UVK
            F = None
            if self.group_indicators is not None:
                diagonal_of_DD = self.group_indicators @ diagonal_of_DD
                F = self.group_indicators @ (a[:, None] * U_and_V)
                diagonal_of_FKF = ((F @ K) * F).sum(axis=1)
            trace = (diagonal_of_DD + diagonal_of_FKF).sum()
            if trace <= _MIN_VARIANCE_RATIO * target:
                factors[q] = degrees[q] = np.nan
                continue
            factors[q], degrees[q] = target / trace, trace / diagonal_of_DD.max()
            if degrees[q] <= _LARGE_DEGREES_OF_FREEDOM:
                F = a[:, None] * U_and_V if F is None else F
                product = K @ (F.T @ F)
                # tr(M M) = tr(D' D D' D) + 2 tr(D' D F K F') + tr(F K F' F K F').
                first_terms = (diagonal_of_DD * (diagonal_of_DD + 2.0 * diagonal_of_FKF)).sum()
                degrees[q] = trace**2 / (first_terms + (product * product.T).sum())
        return factors, degrees

    def fit(self, values, start=None):
        """Fit the regression to estimated shares (n,).

        Return the coefficients (P,) of the orthogonal columns and their covariance (P, P).

        With the logit link, Newton's method maximises the fractional log likelihood, which is
        concave even if estimated shares are outside [0, 1]. Newton's method begins with the
        coefficients ``start`` (P,), or with zeros if ``start`` is None or not finite. All results
        are NaN if Newton's method diverges or does not converge. It diverges if no means between 0
        and 1 fit the shares.
        """
        columns, weights = self.columns, self.weights
        if self.link == "identity":
            # The inverse of the information matrix is called bread in the sandwich covariance.
            bread = np.linalg.inv(columns.T @ (weights[:, None] * columns))
            coefficients = bread @ (columns.T @ (weights * values))
            return coefficients, self._compute_covariance(values - columns @ coefficients, bread)
        n_terms = columns.shape[1]
        has_start = start is not None and np.isfinite(start).all()
        coefficients = start.copy() if has_start else np.zeros(n_terms)
        for _ in range(_MAX_NEWTON_STEPS):
            means = expit(columns @ coefficients)
            slopes = weights * means * (1.0 - means)
            information = columns.T @ (slopes[:, None] * columns)
            if not np.isfinite(information).all() or np.linalg.cond(information) > _MAX_CONDITION:
                break
            # Make a step of Newton's method, shortened if it changes a linear predictor too much.
            bread = np.linalg.inv(information)
            step = bread @ (columns.T @ (weights * (values - means)))
            step /= max(1.0, abs(columns @ step).max() / _MAX_PREDICTOR_CHANGE)
            coefficients += step
            if abs(step).max() < _CONVERGENCE_TOLERANCE * max(1.0, abs(coefficients).max()):
                return coefficients, self._compute_covariance(values - means, bread)
        return np.full(n_terms, np.nan), np.full((n_terms, n_terms), np.nan)

    def _compute_covariance(self, residuals, bread):
        """Return the sandwich covariance (P, P) of the coefficients.

        ``residuals`` (n,) are shares minus fitted means, and ``bread`` (P, P) is the inverse of the
        information matrix. :meth:`compute_corrections` corrects variances for small samples.
        """
        scores = self.columns * (self.weights * residuals)[:, None]
        if self.group_indicators is not None:
            scores = self.group_indicators @ scores
        scores_by_bread = scores @ bread
        return scores_by_bread.T @ scores_by_bread


def _make_group_indicators(group_labels, used_rows, n_rows):
    """Return sparse indicators of groups, (number of groups, number of used rows).

    Entry (g, i) is 1 if used row i is in group g. ``group_labels`` has the group of each of
    ``n_rows`` rows, and ``used_rows`` are the indices of the used rows. Groups are the distinct
    labels of the used rows, in the order in which they first occur.
    """
    group_labels = list_values("cluster", group_labels, n_rows)
    ungrouped_rows = [row for row, value in enumerate(group_labels) if value is None]
    if ungrouped_rows:
        raise ValueError(
            f"cluster is missing in {len(ungrouped_rows)} rows, the first of them row "
            f"{ungrouped_rows[0]}. Give each of these rows a group, such as one of its own."
        )
    if not all(isinstance(value, Hashable) for value in group_labels):
        raise ValueError(
            "cluster must be one-dimensional, with a number or a category for each row."
        )
    group_numbers = {}
    used_labels = [group_labels[row] for row in used_rows]
    group_of_row = [group_numbers.setdefault(label, len(group_numbers)) for label in used_labels]
    if len(group_numbers) < 2:
        raise ValueError(
            "Standard errors for clustered rows need at least 2 groups. cluster has "
            f"{len(group_numbers)}, not counting rows of weight 0 and documents without words."
        )
    return sp.csr_array((np.ones(len(used_rows)), (group_of_row, np.arange(len(used_rows)))))
