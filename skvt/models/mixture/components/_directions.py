"""Directions in which births, the moves that add components, search for clusters of rows.

Births of mixtures project rows to a few directions: principal components, directions of extreme
kurtosis [HyvarinenOja97], or one direction along which the density of rows has valleys. In shapes,
n is the number of rows and D the number of columns. Rows have ``weights`` (n,).
"""

from typing import Any

import numpy as np

from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Rows count as constant along an eigenvector if its eigenvalue, relative to the largest one, is at
# most this number.
_MIN_EIGENVALUE = 1e-9
# A column counts as constant if its standard deviation, relative to its mean, is at most this
# number.
_MIN_RELATIVE_DEVIATION = 1e-12
# Number of columns, and of directions of extreme kurtosis, that :func:`cluster_along_line` tries.
_N_TRIED_DIRECTIONS = 3
# The density at a row is the inverse of the distance to the row that comes this number of places
# later on the line.
_N_NEIGHBOURS = 12
# In the clusters on both sides of a valley, the density is at least this multiple of the density in
# the valley.
_MIN_DENSITY_RATIO = 6.0
# Number of fixed-point steps towards directions of extreme kurtosis.
_N_KURTOSIS_STEPS = 10


def fill_with_means(X: Any, weights: Array) -> Array:
    """Return rows in float64, with NaN replaced by the weighted mean of their column.

    In columns without any value, NaN are replaced by 0.
    """
    rows = np.array(X, np.float64)
    is_missing = np.isnan(rows)
    if is_missing.any():
        totals = weights @ ~is_missing
        sums = weights @ np.where(is_missing, 0.0, rows)
        means = sums / np.where(totals > 0.0, totals, 1.0)
        rows = np.where(is_missing, means, rows)
    return rows


def standardise_columns(X: Array, row_shares: Array) -> Array:
    """Return columns with mean 0 and variance 1; constant columns become 0.

    ``row_shares`` (n,) are the weights of the rows, divided by their sum.
    """
    means = row_shares @ X
    X = X - means
    deviation = np.sqrt(row_shares @ X**2)
    # The mean of a constant column, such as 0.1, may have a rounding error.
    varies = deviation > _MIN_RELATIVE_DEVIATION * np.abs(means)
    return np.where(varies, X, 0.0) / np.where(varies, deviation, 1.0)


def _standardise_and_correlate(X: Array, weights: Array) -> tuple[Array, Array]:
    """Return the standardised columns (n, D), and the matrix of their correlations (D, D)."""
    row_shares = weights / weights.sum()
    X = standardise_columns(X, row_shares)
    return X, (X * row_shares[:, None]).T @ X


def project_to_principal(X: Array, weights: Array, n_directions: int) -> Array:
    """Project rows onto the first principal components of standardised columns.

    Returns an array (n, m), where m is the smaller of ``n_directions`` and D. If further
    eigenvalues are tied with the last one, their components are included, and m is larger.
    """
    X, correlations = _standardise_and_correlate(X, weights)
    variances, basis = np.linalg.eigh(correlations)
    n_directions = min(n_directions, variances.size)
    # Eigenvalues are in ascending order.
    min_variance, max_variance = variances[-n_directions], variances[-1]
    # Keep variances that are at least ``min_variance``, up to rounding.
    is_kept = ~exceeds(min_variance, variances, scale=max_variance)
    return np.asarray(X @ basis[:, is_kept])


def project_to_factors(X: Array, weights: Array, n_directions: int) -> Array:
    """Project rows onto the common factors of the columns, and scale the projections to variance 1.

    Returns an array (n, m). m is the number of factors that stand out from noise, or
    ``n_directions`` if that is larger, and at most D.

    If columns depend on a few common factors, the distances between rows mostly reflect these
    factors, not the clusters. The means of clusters are common factors, too. After all factors are
    scaled to the same variance, the clusters stand out, because factors within clusters are normal.

    The scale of a column is the deviation of its residual, after regression on all other columns
    [Harris62]. In this scale, the eigenvalues of noise are below the edge (1 + sqrt(D / n))^2, in
    units of their median [MarchenkoPastur67].
    """
    X, correlations = _standardise_and_correlate(X, weights)
    # The diagonal of the inverse matrix has the inverse variances of the residuals. The second term
    # makes the matrix regular if a column is constant, or a sum of others.
    ridge = _MIN_EIGENVALUE * np.eye(len(correlations))
    scales = np.sqrt(np.diagonal(np.linalg.inv(correlations + ridge)))
    variances, basis = np.linalg.eigh(correlations * scales[:, None] * scales)
    # Leave out directions in which rows do not vary, up to rounding errors.
    varies = variances > _MIN_EIGENVALUE * variances[-1]
    if not varies.any():
        return np.zeros((len(X), 1))
    variances, basis = variances[varies], basis[:, varies]
    edge = np.median(variances) * (1.0 + np.sqrt(variances.size / weights.sum())) ** 2
    # Eigenvalues are in ascending order.
    n_kept = max(int(np.count_nonzero(variances > edge)), min(n_directions, variances.size))
    return np.asarray(X @ (scales[:, None] * basis[:, -n_kept:] / np.sqrt(variances[-n_kept:])))


def project_to_least_normal(X: Array, weights: Array, n_directions: int) -> Array:
    """Project rows onto orthogonal directions of extreme kurtosis.

    Returns an array (n, m), where m is the smaller of ``n_directions`` and D.

    If the components of a Gaussian mixture have the same covariance, rows are normal along each
    direction in which the means of the components agree. Directions whose kurtosis differs from 3
    therefore separate components. Fixed-point steps on whitened rows find such directions. The
    steps start at the columns of most extreme kurtosis.
    """
    X, correlations = _standardise_and_correlate(X, weights)
    variances, basis = np.linalg.eigh(correlations)
    is_kept = variances > _MIN_EIGENVALUE * variances[-1]
    basis = basis[:, is_kept]
    # Whiten the rows by the symmetric root of the inverse covariance. It does not depend on the
    # choice of eigenvectors, which is arbitrary for tied eigenvalues.
    Z = X @ ((basis / np.sqrt(variances[is_kept])) @ basis.T)
    row_shares = weights / weights.sum()
    # 3 is the kurtosis of a normal distribution. The columns of W (D, m) are the directions.
    extremeness = np.abs(row_shares @ Z**4 - 3.0)
    W = np.eye(Z.shape[1])[:, stable_order(-extremeness, scale=1.0)[:n_directions]]
    for _ in range(_N_KURTOSIS_STEPS):
        W = (Z * row_shares[:, None]).T @ (Z @ W) ** 3 - 3.0 * W  # [HyvarinenOja97 eq. 8]
        W, _ = np.linalg.qr(W)
    return np.asarray(Z @ W)


def cluster_along_line(X: Array, weights: Array) -> IndexArray:
    """Cluster rows by the valleys of their density along one direction; return labels (n,).

    A valley is a region between two much denser regions. The directions that are tried are the
    columns of smallest kurtosis and the directions of most extreme kurtosis. The direction with the
    largest number of clusters is used.
    """
    standardised, _ = _standardise_and_correlate(X, weights)
    kurtosis = weights @ standardised**4 / weights.sum()
    # Constant columns have the kurtosis 0, and are ordered last.
    order = stable_order(np.where(kurtosis > 0.0, kurtosis, np.inf), scale=1.0)
    flattest = order[:_N_TRIED_DIRECTIONS]
    least_normal = project_to_least_normal(X, weights, _N_TRIED_DIRECTIONS)
    all_projections = [*X[:, flattest].T, *least_normal.T]
    # The largest label is the number of clusters minus 1.
    return max([_label_between_valleys(projections) for projections in all_projections], key=np.max)


def _label_between_valleys(projections: Array) -> IndexArray:
    """Cluster ``projections`` (n,) by the valleys of their density; return labels (n,).

    Larger projections have larger labels. All labels are 0 if there are at most _N_NEIGHBOURS rows.
    They are also 0 if a value occurs more than _N_NEIGHBOURS times, because otherwise each repeated
    value would be a cluster.
    """
    order = np.argsort(projections, kind="stable")
    ordered = projections[order]
    # A width is the distance to the row _N_NEIGHBOURS places later, the inverse of the density.
    widths = ordered[_N_NEIGHBOURS:] - ordered[:-_N_NEIGHBOURS]
    if not widths.size or widths.min() <= 0.0:
        return np.zeros(projections.size, np.intp)
    # A valley begins at a width much larger than ``least_width``, the smallest width of the present
    # cluster. The largest width of the valley is ``bottom_width``, at the position ``bottom``. The
    # valley ends at a width much smaller than ``bottom_width``. The clusters on both sides are then
    # separated at the largest gap between the rows from ``bottom`` on.
    cuts: list[int] = []
    in_valley, least_width = False, np.inf
    bottom, bottom_width = 0, 0.0
    # To save time, only the width of each ``step``-th row is examined.
    step = _N_NEIGHBOURS // 4
    for i, width in zip(range(0, widths.size, step), widths[::step].tolist(), strict=True):
        if not in_valley:
            least_width = min(least_width, width)
            if width > _MIN_DENSITY_RATIO * least_width:
                in_valley, bottom_width, bottom = True, width, i
        elif width > bottom_width:
            bottom_width, bottom = width, i
        elif _MIN_DENSITY_RATIO * width < bottom_width:
            gaps = np.diff(ordered[bottom : bottom + _N_NEIGHBOURS + 1])
            cuts.append(bottom + 1 + int(np.argmax(gaps)))
            in_valley, least_width = False, width
    labels = np.zeros(projections.size, np.intp)
    labels[order] = np.searchsorted(cuts, np.arange(projections.size), side="right")
    return labels
