"""Directions in which births search for clusters of rows."""

from typing import Any

import numpy as np

from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Relative eigenvalue below which a direction counts as constant.
_LEAST_EIGENVALUE = 1e-9
# Number of columns, and of directions, along which clusters in a line are searched for.
_LINES = 3
# Number of rows whose range estimates the density along a line.
_NEIGHBOURS = 12
# Factor by which the density between two clusters must be lower than in either cluster.
_VALLEY = 6.0
# Fixed-point steps towards directions of extreme kurtosis.
_STEPS_OF_KURTOSIS = 10


def completed_rows(X: Any, weights: Array) -> Array:
    """Return rows in float64 with NaN replaced by the means of the columns."""
    rows = np.array(X, np.float64)
    missing = np.isnan(rows)
    if missing.any():
        seen = weights @ ~missing
        means = (weights @ np.where(missing, 0.0, rows)) / np.where(seen > 0.0, seen, 1.0)
        rows = np.where(missing, means, rows)
    return rows


def _spectrum(X: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return standardised columns (n, D), and eigenvalues and eigenvectors of correlations."""
    share = weights / weights.sum()
    X = X - share @ X
    deviation = np.sqrt(share @ X**2)
    X = X / np.where(deviation > 0.0, deviation, 1.0)
    return X, *np.linalg.eigh((X * share[:, None]).T @ X)


def principal_components(X: Array, weights: Array, number: int) -> Array:
    """Return the first principal components of standardised columns, more if eigenvalues tie."""
    X, variances, directions = _spectrum(X, weights)
    number = min(number, variances.size)
    last, scale = variances[-number], variances[-1]
    kept = ~exceeds(last, variances, scale=scale)
    components: Array = X @ directions[:, kept]
    return components


def least_normal_components(X: Array, weights: Array, number: int) -> Array:
    """Project rows onto the directions of most extreme kurtosis, (n, number).

    The directions are fixed points for whitened rows; the search starts at the columns of most
    extreme kurtosis. Components of the same covariance differ in these directions only.
    """
    X, variances, basis = _spectrum(X, weights)
    kept = variances > _LEAST_EIGENVALUE * variances[-1]
    basis = basis[:, kept]
    # whiten symmetrically, so that tied eigenvalues leave no arbitrary rotation
    Z = X @ ((basis / np.sqrt(variances[kept])) @ basis.T)
    share = weights / weights.sum()
    excess = np.abs(share @ Z**4 - 3.0)
    W = np.eye(Z.shape[1])[:, stable_order(-excess, scale=1.0)[:number]]
    for _ in range(_STEPS_OF_KURTOSIS):
        W = (Z * share[:, None]).T @ (Z @ W) ** 3 - 3.0 * W  # [HyvarinenOja97 eq. 8]
        W, _ = np.linalg.qr(W)
    projected: Array = Z @ W
    return projected


def clusters_in_line(X: Array, weights: Array) -> IndexArray:
    """Return labels (n,) of rows between the valleys of their density along one direction.

    The columns of smallest kurtosis and the directions of most extreme kurtosis are tried, and the
    one with most clusters is used. A valley lies between two much denser regions. The density at a
    row is the inverse distance between it and the twelfth row after it.
    """
    spread = _spectrum(X, weights)[0]
    kurtosis = weights @ spread**4 / weights.sum()
    flat = stable_order(np.where(kurtosis > 0.0, kurtosis, np.inf), scale=1.0)[:_LINES]
    lines = [*X[:, flat].T, *least_normal_components(X, weights, _LINES).T]
    return max([_between_valleys(line) for line in lines], key=np.max)


def _between_valleys(line: Array) -> IndexArray:
    """Return labels (n,) of the clusters of these numbers, in ascending order."""
    order = np.argsort(line, kind="stable")
    ordered, step = line[order], _NEIGHBOURS // 4
    wide = ordered[_NEIGHBOURS:] - ordered[:-_NEIGHBOURS]
    cuts, least, most, at = list[int](), np.inf, 0.0, -1
    if not wide.size or wide.min() <= 0.0:
        return np.zeros(line.size, np.intp)  # each rounded value would be a cluster
    for i, width in zip(range(0, wide.size, step), wide[::step].tolist(), strict=True):
        if at < 0:
            least = min(least, width)
            if width > _VALLEY * least:
                most, at = width, i
        elif width > most:
            most, at = width, i
        elif _VALLEY * width < most:
            cuts.append(at + 1 + int(np.argmax(np.diff(ordered[at : at + _NEIGHBOURS + 1]))))
            least, at = width, -1
    labels = np.zeros(line.size, np.intp)
    labels[order] = np.searchsorted(cuts, np.arange(line.size), side="right")
    return labels
