"""Directions in which rows differ, where births look for clusters."""

from typing import Any

import numpy as np

from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Relative eigenvalue below which a direction counts as constant.
_LEAST_EIGENVALUE = 1e-9
# Columns, and directions, along which clusters in a line are looked for.
_LINES = 3
# Rows by whose distance the density along a line is estimated.
_NEIGHBOURS = 12
# Factor by which the density between two clusters is lower than in either.
_VALLEY = 6.0
# Fixed-point steps towards directions of extreme kurtosis.
_STEPS_OF_KURTOSIS = 10


def completed_rows(X: Any, weights: Array) -> Array:
    """Rows in float64, NaN replaced by the means of the columns."""
    rows = np.array(X, np.float64)
    missing = np.isnan(rows)
    if missing.any():
        seen = weights @ ~missing
        means = (weights @ np.where(missing, 0.0, rows)) / np.where(seen > 0.0, seen, 1.0)
        rows = np.where(missing, means, rows)
    return rows


def _spectrum(X: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Standardised columns (n, D), and eigenvalues and eigenvectors of their correlations."""
    share = weights / weights.sum()
    X = X - share @ X
    deviation = np.sqrt(share @ X**2)
    X = X / np.where(deviation > 0.0, deviation, 1.0)
    return X, *np.linalg.eigh((X * share[:, None]).T @ X)


def principal_components(X: Array, weights: Array, number: int) -> Array:
    """First principal components of standardised columns, (n, number or more if tied)."""
    X, variances, directions = _spectrum(X, weights)
    number = min(number, variances.size)
    last, scale = variances[-number], variances[-1]
    kept = ~exceeds(last, variances, scale=scale)
    components: Array = X @ directions[:, kept]
    return components


def least_normal_components(X: Array, weights: Array, number: int) -> Array:
    """Rows in the directions in which they are least normal by their kurtosis, (n, number).

    Fixed points of the kurtosis of whitened rows, from the columns of most extreme kurtosis on.
    Components of the same covariance are told apart there and nowhere else.
    """
    X, variances, basis = _spectrum(X, weights)
    kept = variances > _LEAST_EIGENVALUE * variances[-1]
    basis = basis[:, kept]
    # symmetric, so that it does not depend on the basis where eigenvalues are the same
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
    """Labels (n,) of rows between valleys of their density along one direction.

    Of a few in which rows are least normal, that of most clusters: columns spread like clusters
    in a line by their kurtosis, and directions found. A valley lies between two places of which
    each is denser by far; among k and k + 12 rows in order, density is one over their distance.
    """
    spread = _spectrum(X, weights)[0]
    kurtosis = weights @ spread**4 / weights.sum()
    flat = stable_order(np.where(kurtosis > 0.0, kurtosis, np.inf), scale=1.0)[:_LINES]
    lines = [*X[:, flat].T, *least_normal_components(X, weights, _LINES).T]
    return max([_between_valleys(line) for line in lines], key=np.max)


def _between_valleys(line: Array) -> IndexArray:
    """Labels of these numbers, (n,), from the least on."""
    order = np.argsort(line, kind="stable")
    places, step = line[order], _NEIGHBOURS // 4
    wide = places[_NEIGHBOURS:] - places[:-_NEIGHBOURS]
    cuts, least, most, at = list[int](), np.inf, 0.0, -1
    if not wide.size or wide.min() <= 0.0:
        return np.zeros(line.size, np.intp)  # of rounded values, each would be a cluster
    for i, width in zip(range(0, wide.size, step), wide[::step].tolist(), strict=True):
        if at < 0:
            least = min(least, width)
            if width > _VALLEY * least:
                most, at = width, i
        elif width > most:
            most, at = width, i
        elif _VALLEY * width < most:
            cuts.append(at + 1 + int(np.argmax(np.diff(places[at : at + _NEIGHBOURS + 1]))))
            least, at = width, -1
    labels = np.zeros(line.size, np.intp)
    labels[order] = np.searchsorted(cuts, np.arange(line.size), side="right")
    return labels
