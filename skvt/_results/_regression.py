"""Regression of estimated shares on covariates, with robust standard errors.

The shares of n rows are regressed on the P columns of a design matrix, by least squares or by
fractional logistic regression. The latter maximises the fractional likelihood, which is the
likelihood of a logistic regression whose response may be a share.

Two estimates of a variance are combined. The sandwich variance is robust to unequal variances of
the errors, but it hardly says anything if an effect rests on few rows and shares are skewed: by
chance all shares of these rows may be near 0, and then so is their sandwich variance. The pooled
variance assumes that all errors have one variance, which is estimated from all rows.

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
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from scipy.special import expit

from skvt._results._design import list_values, require_full_rank
from skvt._results._pooling import compute_kurtosis, moderate_variances

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
# Degrees of freedom are computed approximately if a bound of them is larger than this.
_LARGE_DEGREES_OF_FREEDOM = 200.0


class RegressionFit(NamedTuple):
    """Coefficients of the orthogonal columns, and what is needed for their variances."""

    # (P,): the coefficients.
    coefficients: Any
    # (P, P): their sandwich covariance.
    sandwich: Any
    # (P, P): their covariance if all errors have one variance, or one dispersion for the logit
    # link, and all pairs of rows of the same group have one correlation.
    pooled: Any
    # Excess kurtosis of the residuals, at least 0.
    kurtosis: float

    def combine(self, combinations, factors, degrees_of_freedom):
        """Return linear combinations of the coefficients and their moderated variances, (3, Q).

        ``combinations`` (Q, P) are the weights of the coefficients. ``factors`` and
        ``degrees_of_freedom``, (Q,) each, are those of :meth:`Regression.compute_corrections`. The
        second and the third row are those of
        :func:`~skvt._results._pooling.moderate_variances`.
        """
        sandwich, pooled = (
            ((combinations @ covariance) * combinations).sum(axis=1)
            for covariance in (self.sandwich, self.pooled)
        )
        moderated = moderate_variances(
            factors * sandwich, pooled, degrees_of_freedom, self.kurtosis
        )
        return np.array([combinations @ self.coefficients, *moderated])


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
        of D' D is a lower bound. If it is larger than _LARGE_DEGREES_OF_FREEDOM, the entries of M
        outside the diagonal are left out, because they are costly and hardly matter.
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
            factors[q] = target / trace
            degrees[q] = trace**2 / ((diagonal_of_DD + diagonal_of_FKF) ** 2).sum()
            if trace <= _LARGE_DEGREES_OF_FREEDOM * diagonal_of_DD.max():
                F = a[:, None] * U_and_V if F is None else F
                product = K @ (F.T @ F)
                # tr(M M) = tr(D' D D' D) + 2 tr(D' D F K F') + tr(F K F' F K F').
                first_terms = (diagonal_of_DD * (diagonal_of_DD + 2.0 * diagonal_of_FKF)).sum()
                degrees[q] = trace**2 / (first_terms + (product * product.T).sum())
        return factors, degrees

    def fit(self, values, start=None):
        """Fit the regression to estimated shares (n,), and return a :class:`RegressionFit`.

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
            residuals = values - columns @ coefficients
            return self._make_fit(coefficients, residuals, np.ones_like(residuals), bread)
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
                return self._make_fit(coefficients, values - means, means * (1.0 - means), bread)
        missing = np.full((n_terms, n_terms), np.nan)
        return RegressionFit(missing[0], missing, missing, 0.0)

    def _make_fit(self, coefficients, residuals, variances, bread):
        """Return the :class:`RegressionFit` with these coefficients (P,).

        ``residuals`` (n,) are shares minus fitted means, ``variances`` (n,) are the variances of
        shares up to a common factor, and ``bread`` (P, P) is the inverse of the information matrix.
        :meth:`compute_corrections` corrects sandwich variances for small samples.
        """
        columns, weights = self.columns, self.weights
        errors = weights * residuals
        # (n, P): scores, and scores of errors that are equal to their standard deviations.
        scores = columns * errors[:, None]
        unit_errors = weights * np.sqrt(variances)
        unit_scores = columns * unit_errors[:, None]
        meat = unit_scores.T @ unit_scores
        leverages = weights * variances * ((columns @ bread) * columns).sum(axis=1)
        dispersion = errors @ residuals / (weights * variances @ (1.0 - leverages))
        if self.group_indicators is not None:
            scores, sums = (self.group_indicators @ rows for rows in (scores, unit_scores))
            # Sums over all pairs of different rows of the same group.
            products, unit_products = (
                ((self.group_indicators @ terms) ** 2).sum() - terms @ terms
                for terms in (errors, unit_errors)
            )
            expected = dispersion * unit_products
            correlation = np.clip(products / expected, 0.0, 1.0) if expected > 0.0 else 0.0
            meat += correlation * (sums.T @ sums - meat)
        scores_by_bread = scores @ bread
        return RegressionFit(
            coefficients,
            scores_by_bread.T @ scores_by_bread,
            dispersion * bread @ meat @ bread,
            compute_kurtosis(residuals, weights),
        )


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
