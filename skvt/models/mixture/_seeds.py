"""Seeds: rows, or clusters of rows, from which the initial components of a mixture are made.

The model of a mixture calls :func:`propose_responsibilities`.
"""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Component
from skvt.models.mixture._ends import find_clusters_at_ends
from skvt.models.mixture.components import (
    RowFits,
    cluster_along_line,
    project_to_factors,
    project_to_least_normal,
    project_to_principal,
)
from skvt.rows import pieces
from skvt.ties import exceeds, stable_argmax
from skvt.typing import Array, IndexArray

# Maximum number of rows among which seeds are drawn.
MAX_ROWS_TO_SEED = 2_000
# Functions that project rows onto a subspace in which seeds are also drawn, by ``init_params``.
_PROJECTIONS = {"k-means++": project_to_principal, "least normal": project_to_least_normal}
# Up to this number of clusters along a line, "k-means++" finds all of them.
N_FEW_IN_LINE = 10
# Minimum number of clusters along a line that are proposed, by ``init_params``.
_MIN_CLUSTERS_IN_LINE = {"in line": N_FEW_IN_LINE + 1, "few in line": 2}
# Maximum number of steps of k-means on common factors.
_N_STEPS_OF_MEANS = 10
# Number of rows that are assigned to seeds at a time.
_ROWS_AT_ONCE = 1024


def propose_responsibilities(
    component: Component, X: Any, weights: Array, n_components: int, init_params: str,
    rng: np.random.Generator,
) -> list[Array]:  # fmt: skip
    """Find initial components by the method ``init_params``; return one or more proposals.

    Each proposal is an array of responsibilities (n, K) of K <= ``n_components`` components for the
    rows X of ``weights`` (n,). The methods are:

    - "random" draws each row's responsibilities from a uniform distribution.
    - "random_from_data" draws rows as seeds uniformly. Rows are then assigned to the seed that
      explains them best.
    - "k-means++" draws one seed after the other. The probability of a row is proportional to the
      nats by which a separate component would explain it better than the seeds drawn before. This
      is k-means++ with the divergence of the likelihood [ArthurVassilvitskii07 sec. 2]. In many
      columns, the noise of columns in which components agree outweighs the differences in the
      others. A second proposal therefore comes from Gaussian columns projected onto the subspace in
      which they vary most, which contains the means of K spherical clusters [VempalaWang04]. A
      third proposal has the clusters of their common factors, see :func:`_cluster_factors`.
    - "least normal" does the same, but projects onto the subspace in which rows are least normal by
      their kurtosis.
    - "in line" separates clusters at the valleys of the density along one direction. All rows are
      one cluster unless there are more than ``N_FEW_IN_LINE`` clusters.
    - "few in line" does the same, but requires only two clusters.

    If components may have a common distribution in some columns, "k-means++" and "least normal"
    also propose the result of :func:`find_clusters_at_ends`.
    """
    if n_components == 1:
        return [np.ones((weights.size, 1))]
    if init_params == "random":
        return [rng.dirichlet(np.ones(n_components), size=weights.size)]
    if init_params in _MIN_CLUSTERS_IN_LINE:
        min_clusters = _MIN_CLUSTERS_IN_LINE[init_params]
        return [_find_clusters_in_line(component, X, weights, min_clusters, n_components)]
    fits = component.row_fits(X)
    # Projections use a separate stream of random numbers, so that they do not change the later
    # draws of the caller.
    jumped_rng = np.random.Generator(rng.bit_generator.jumped())  # type: ignore[attr-defined]
    proposals = [_assign_to_seeds(fits, weights, n_components, init_params, rng)]
    if init_params in _PROJECTIONS:
        if component.has_common_columns:
            resp = find_clusters_at_ends(component, X, weights, n_components - 1, jumped_rng)
            proposals.append(resp)
        # The means of K clusters lie in a subspace of K - 1 dimensions.
        directions = partial(_PROJECTIONS[init_params], n_directions=n_components - 1)
        subspace_fits = component.projected(X, weights, directions)
        if subspace_fits is not None:
            resp = _assign_to_seeds(subspace_fits, weights, n_components, init_params, jumped_rng)
            proposals.append(resp)
            if init_params == "k-means++":
                proposals.append(_cluster_factors(component, X, weights, n_components, jumped_rng))
    return proposals


def _cluster_factors(
    component: Component, X: Any, weights: Array, n_components: int, rng: np.random.Generator
) -> Array:
    """Return responsibilities (n, K) of clusters of the common factors of Gaussian columns.

    The clusters start from seeds, and are improved by steps of k-means on the factors.
    """
    factors: list[Array] = []

    def project(rows: Array, weights: Array) -> Array:
        """Return the factors of one block, and append them to ``factors``."""
        factors.append(project_to_factors(rows, weights, n_components - 1))
        return factors[-1]

    fits = component.projected(X, weights, project)
    resp = _assign_to_seeds(fits, weights, n_components, "k-means++", rng)
    rows = np.concatenate(factors, axis=1)
    for _ in range(_N_STEPS_OF_MEANS):
        totals = weights @ resp
        is_used = totals > 0.0
        means = (resp * weights[:, None]).T[is_used] @ rows / totals[is_used, None]
        half_squares = 0.5 * (means**2).sum(axis=1)
        scale = np.abs(rows) @ np.abs(means).max(axis=0) + half_squares.max()
        labels = stable_argmax(rows @ means.T - half_squares, scale=scale[:, None])
        old_resp, resp = resp, (labels[:, None] == np.arange(len(means))).astype(np.float64)
        if np.array_equal(resp, old_resp):
            break
    return resp[:, weights @ resp > 0.0]


def _find_clusters_in_line(
    component: Component, X: Any, weights: Array, min_clusters: int, max_clusters: int
) -> Array:
    """Return one-hot responsibilities (n, K) of clusters along a direction.

    If there are fewer than ``min_clusters`` or more than ``max_clusters``, all rows are one
    cluster. If the component has several Gaussian blocks of columns, the block with the largest
    number of clusters is used.
    """
    labels_of_one_cluster: IndexArray = np.zeros(weights.size, np.intp)
    labelings = [labels_of_one_cluster]

    def append_clusters(rows: Array, weights: Array) -> Array:
        """Append the clusters of the rows of one block to ``labelings``."""
        labelings.append(cluster_along_line(rows, weights))
        return rows

    # The method `projected` calls ``append_clusters`` with the rows of each Gaussian block, as it
    # calls a function that projects rows. The result of the method is not needed.
    component.projected(X, weights, append_clusters)
    # The largest label is the number of clusters minus 1.
    labels = max(labelings, key=np.max)
    if not min_clusters <= labels.max() + 1 <= max_clusters:
        labels = labels_of_one_cluster
    return (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)


def merge_equal_rows(component: Component, X: Any, weights: Array) -> tuple[Any, Any]:
    """Return the distinct rows in ascending order, and the sums of the weights of equal rows.

    Draws from these rows depend neither on the order of rows, nor on whether a row occurs twice or
    has weight 2, nor on whether rows are sparse. If there are more than MAX_ROWS_TO_SEED rows,
    rows and weights are returned unchanged.
    """
    if X.shape[0] > MAX_ROWS_TO_SEED:
        return X, weights
    # ``is_new`` says of each row, in ascending order, whether it differs from the row before it.
    if sp.issparse(X) and component.sparse:
        keys = _sort_keys(X)
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
        is_new = np.array([True, *(keys[a] != keys[b] for a, b in pairwise(order))])
        return X[order[is_new]], np.bincount(np.cumsum(is_new) - 1, weights=weights[order])
    X = X.toarray() if sp.issparse(X) else X
    # Sort rows as np.unique(X, axis=0) does. It is not called, because NumPy may turn an interrupt
    # in it into a TypeError. The view has one record for each row, and records sort by columns.
    order = np.argsort(np.ascontiguousarray(X).view([("", X.dtype)] * X.shape[1])[:, 0])
    sorted_rows = X[order]
    is_new = np.append(True, np.any(sorted_rows[1:] != sorted_rows[:-1], axis=1))
    number_of_row = np.empty(order.size, np.intp)
    number_of_row[order] = np.cumsum(is_new) - 1
    return sorted_rows[is_new], np.bincount(number_of_row, weights=weights)


def _sort_keys(X: Any) -> list[tuple[float, ...]]:
    """Return keys that sort sparse non-negative rows in the order of the dense rows.

    The key of a row lists its entries that are not 0, each as minus its column and its value. Of
    two rows that first differ in a column, the row with an entry there, or with the larger entry,
    is the larger dense row, and has the larger key.
    """
    X = sp.csr_array(X, copy=True)
    X.eliminate_zeros()
    # NaN sorts last.
    values = np.where(np.isnan(X.data), np.inf, X.data)
    column_value_pairs = np.column_stack([-X.indices.astype(np.float64), values]).ravel().tolist()
    return [tuple(column_value_pairs[2 * a : 2 * b]) for a, b in pairwise(X.indptr.tolist())]


def _assign_to_seeds(
    fits: RowFits, weights: Array, n_components: int, init_params: str, rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Draw seeds among the rows, and assign each row to its best seed.

    Returns one-hot responsibilities (n, K) of the seeds. ``fits`` computes how well a component
    that is fitted to one row explains other rows, in nats.
    """
    candidates = rng.permutation(weights.size)[:MAX_ROWS_TO_SEED]
    prepared_candidates, candidate_weights = fits.prepare(candidates), weights[candidates]
    # ``best_fit`` is the fit of each candidate to a separate component. It is not needed if seeds
    # are drawn uniformly. ``fit_so_far`` is the fit to the best seed so far. Rounding errors are
    # relative to ``magnitudes``.
    best_fit, magnitudes = (
        fits.fits_to_self(prepared_candidates) if init_params in _PROJECTIONS else (None, None)
    )
    fit_so_far: Array = np.full(candidates.size, -np.inf)
    seeds: list[int] = []
    is_seed = np.zeros(candidates.size, dtype=bool)
    # The probability that a candidate is the next seed is proportional to these numbers.
    draw_weights = candidate_weights
    while len(seeds) < min(n_components, candidates.size) and draw_weights.sum() > 0.0:
        new_seed = rng.choice(candidates.size, p=draw_weights / draw_weights.sum())
        seeds.append(candidates[new_seed])
        is_seed[new_seed] = True
        draw_weights = candidate_weights * ~is_seed
        if best_fit is not None and magnitudes is not None:
            seed_fit = fits.fits_to_seeds(prepared_candidates, seeds[-1:], with_magnitudes=False)[0]
            fit_so_far = np.maximum(fit_so_far, seed_fit[:, 0])
            # A row that equals a seed is fully explained, whatever the rounding errors are.
            is_explained = ~exceeds(best_fit, fit_so_far, scale=magnitudes)
            unexplained = draw_weights * np.where(is_explained, 0.0, best_fit - fit_so_far)
            draw_weights = unexplained if unexplained.sum() > 0.0 else draw_weights
    resp = np.zeros((weights.size, len(seeds)))
    for rows in pieces(weights.size, _ROWS_AT_ONCE):
        seed_fits, seed_magnitudes = fits.fits_to_seeds(fits.prepare(rows), seeds)
        scale = np.take_along_axis(seed_magnitudes, seed_fits.argmax(axis=1)[:, None], axis=1)
        # Ties go to the seed that was drawn first.
        best_seeds = stable_argmax(seed_fits, scale=scale)
        # ``rows`` is a slice, so that the assignment changes ``resp``.
        resp[rows][np.arange(best_seeds.size), best_seeds] = 1.0
    return resp
