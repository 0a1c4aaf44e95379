"""Regression of shares on covariates, by least squares or fractional logit.

Standard errors are robust: they allow for unequal variances, and for dependence within groups.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from skvt.results._design import require_full_rank

# Maximum number of steps of Newton's method.
_MOST_STEPS = 50
# Newton's method has converged if no coefficient changes by this share of the largest coefficient,
# or of 1 if that is larger.
_CONVERGED = 1e-8
# Largest change of a linear predictor in one step.
_LARGEST_STEP = 2.0
# Condition number of the information above which Newton's method has diverged.
_DIVERGED = 1e12


@dataclass(frozen=True)
class Regression:
    """A regression of the shares of n rows on P terms."""

    # Values of the terms, (n, P).
    design: Any
    # Weights of the rows, (n,).
    weights: Any
    # Indicators of the groups of rows, (number of groups, n); None without groups.
    groups: Any
    # "identity" or "logit".
    link: str

    @classmethod
    def of(cls, design, used, weights, cluster, link):
        """Return the regression of the rows ``used``, which are positions in the design.

        ``cluster`` has the group of every row, or is None. Raise ValueError for too few rows, for a
        design without full rank, and for missing groups or fewer than two groups.
        """
        matrix = design.matrix[used]
        n, n_terms = matrix.shape
        if n <= n_terms:
            raise ValueError(f"{n_terms} terms need more than {n} rows; leave out covariates.")
        require_full_rank(matrix, design.names)
        groups = None if cluster is None else _indicators(cluster, used, weights.size)
        return cls(matrix, weights[used], groups, link)

    @property
    def degrees(self):
        """Degrees of freedom of the standard errors."""
        n, n_terms = self.design.shape
        return n - n_terms if self.groups is None else self.groups.shape[0] - 1

    def fit(self, values, start=None):
        """Return the coefficients (P,) and their covariance (P, P).

        ``values`` (n,) are the estimated shares, and ``start`` (P,) are initial coefficients of the
        logit link.

        With the logit link, Newton's method maximises the fractional likelihood. The likelihood is
        concave even if estimates lie outside [0, 1]; but it has no maximum if no means between 0
        and 1 fit the estimates. Newton's method then diverges, and the results are NaN.
        """
        design, weights = self.design, self.weights
        if self.link == "identity":
            bread = np.linalg.inv(design.T @ (weights[:, None] * design))
            coefficients = bread @ (design.T @ (weights * values))
            return coefficients, self._covariance(values - design @ coefficients, bread)
        n_terms = design.shape[1]
        is_start = start is not None and np.isfinite(start).all()
        coefficients = start.copy() if is_start else np.zeros(n_terms)
        for _ in range(_MOST_STEPS):
            means = expit(design @ coefficients)
            slopes = weights * means * (1.0 - means)
            information = design.T @ (slopes[:, None] * design)
            if not np.isfinite(information).all() or np.linalg.cond(information) > _DIVERGED:
                break
            bread = np.linalg.inv(information)
            step = bread @ (design.T @ (weights * (values - means)))
            step /= max(1.0, abs(design @ step).max() / _LARGEST_STEP)
            coefficients += step
            if abs(step).max() < _CONVERGED * max(1.0, abs(coefficients).max()):
                return coefficients, self._covariance(values - means, bread)
        return np.full(n_terms, np.nan), np.full((n_terms, n_terms), np.nan)

    def _covariance(self, residuals, bread):
        """Return the sandwich covariance of the coefficients, HC1 without groups, CR1 with groups.

        ``bread`` (P, P) is the inverse of the information.
        """
        n, n_terms = self.design.shape
        scores = self.design * (self.weights * residuals)[:, None]
        correction = n / (n - n_terms)
        if self.groups is not None:
            n_groups = self.groups.shape[0]
            scores = self.groups @ scores
            correction = n_groups / (n_groups - 1) * (n - 1) / (n - n_terms)
        half = scores @ bread
        return correction * (half.T @ half)


def _indicators(cluster, used, n_rows):
    """Return indicators of the groups of used rows, (number of groups, number of used rows)."""
    cluster = list(cluster)
    if len(cluster) != n_rows:
        raise ValueError(
            f"cluster has {len(cluster)} values and X {n_rows} rows; give one for each."
        )
    missing = [row for row, value in enumerate(cluster) if value is None or value != value]
    if missing:
        raise ValueError(
            f"cluster is missing in {len(missing)} rows, the first is row {missing[0]}; give such "
            "rows groups of their own."
        )
    numbers = {}
    places = [numbers.setdefault(cluster[row], len(numbers)) for row in used]
    if len(numbers) < 2:
        raise ValueError(f"Errors need 2 or more groups; cluster has {len(numbers)}.")
    return sp.csr_array((np.ones(len(used)), (places, np.arange(len(used)))))
