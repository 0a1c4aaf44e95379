"""Seeds: the components that a mixture begins with, found among the rows."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Component
from skvt.models.mixture.components import (
    RowFits,
    clusters_in_line,
    least_normal_components,
    principal_components,
)
from skvt.rows import pieces
from skvt.ties import exceeds, stable_argmax
from skvt.typing import Array, IndexArray

# Maximum number of rows among which seeds are drawn.
ROWS_TO_SEED = 2_000
# Where seeds are also looked for, by ``init_params``.
_SUBSPACES = {"k-means++": principal_components, "least normal": least_normal_components}
# Number of clusters in a line up to which "k-means++" finds them.
FEW_IN_LINE = 10
# Smallest numbers of clusters in a line by ``init_params``.
_FEWEST_IN_LINE = {"in line": FEW_IN_LINE + 1, "few in line": 2}
# Rows that are assigned to seeds at a time.
_ROWS_AT_ONCE = 1024


def memberships_of_seeds(
    component: Component, X: Any, weights: Array, n_components: int, init_params: str,
    rng: np.random.Generator,
) -> list[Array]:  # fmt: skip
    """Responsibilities (n, K) of at most ``n_components`` components found on rows.

    "k-means++" draws rows one after the other as seeds, each with probability proportional to what
    a component of its own would explain better than the seeds so far, in nats: k-means++ with the
    divergence of the likelihood [ArthurVassilvitskii07 sec. 2]. "random_from_data" draws the seeds
    uniformly. Rows are then assigned to the seed that explains them best. "random" draws
    responsibilities.

    Where many columns, or many directions of them, do not differ between components, their noise
    outweighs the others. "k-means++" is therefore done a second time for Gaussian columns projected
    onto the subspace in which they vary most, in which the means of K spherical clusters lie
    [VempalaWang04]; "least normal" does likewise in the subspace in which rows are least normal by
    their kurtosis. There are then two results. "in line" finds many clusters, seeds of which would
    be too few, between the valleys of the density along one direction; else all are one. "few in
    line" finds two and more in this way.
    """
    if n_components == 1:
        return [np.ones((weights.size, 1))]
    if init_params == "random":
        return [rng.dirichlet(np.ones(n_components), size=weights.size)]
    if init_params in _FEWEST_IN_LINE:
        return [_in_line(component, X, weights, n_components, _FEWEST_IN_LINE[init_params])]
    fits = component.row_fits(X)
    # (a stream of its own leaves that of the caller where it would be otherwise)
    other_rng = np.random.Generator(rng.bit_generator.jumped())  # type: ignore[attr-defined]
    found = [_nearest_seed(fits, weights, n_components, init_params, rng)]
    if init_params in _SUBSPACES:
        directions = partial(_SUBSPACES[init_params], number=n_components - 1)
        projected = component.projected(X, weights, directions)
        if projected is not None:
            found.append(_nearest_seed(projected, weights, n_components, init_params, other_rng))
    return found


def _in_line(component: Component, X: Any, weights: Array, most: int, fewest: int) -> Array:
    """One-hot responsibilities (n, K) of clusters in a line, if ``fewest`` or more; else of one."""
    found: list[IndexArray] = [np.zeros(weights.size, np.intp)]

    def along(rows: Array, weights: Array) -> Array:
        found.append(clusters_in_line(rows, weights))
        return rows

    component.projected(X, weights, along)
    labels = max(found, key=np.max)
    if not fewest <= labels.max() + 1 <= most:
        labels = found[0]
    return (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)


def distinct_rows(component: Component, X: Any, weights: Array) -> tuple[Any, Any]:
    """Rows and weights; of few rows the distinct ones in order, with their weights added up.

    Subsequent draws then depend neither on the order of few rows, nor on whether a row occurs twice
    or has weight 2, nor on whether rows are sparse.
    """
    if X.shape[0] > ROWS_TO_SEED:
        return X, weights
    if sp.issparse(X) and component.sparse:
        keys = _keys(X)
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
        first = np.array([True, *(keys[a] != keys[b] for a, b in pairwise(order))])
        return X[order[first]], np.bincount(np.cumsum(first) - 1, weights=weights[order])
    X = X.toarray() if sp.issparse(X) else X
    # as np.unique(X, axis=0) does, in which an interrupt may become a TypeError of NumPy's
    order = np.argsort(np.ascontiguousarray(X).view([("", X.dtype)] * X.shape[1])[:, 0])
    ranked = X[order]
    first = np.append(True, np.any(ranked[1:] != ranked[:-1], axis=1))
    inverse = np.empty(order.size, np.intp)
    inverse[order] = np.cumsum(first) - 1
    return ranked[first], np.bincount(inverse, weights=weights)


def _keys(X: Any) -> list[tuple[float, ...]]:
    """What sparse rows without negative values can be sorted by as if they were dense."""
    X = sp.csr_array(X, copy=True)
    X.eliminate_zeros()
    values = np.where(np.isnan(X.data), np.inf, X.data)
    pairs = np.column_stack([-X.indices.astype(np.float64), values]).ravel().tolist()
    return [tuple(pairs[2 * a : 2 * b]) for a, b in pairwise(X.indptr.tolist())]


def _nearest_seed(
    fits: RowFits, weights: Array, n_components: int, init_params: str, rng: np.random.Generator,
) -> Array:  # fmt: skip
    """One-hot responsibilities (n, K) of the seed that explains each row best."""
    candidates = rng.permutation(weights.size)[:ROWS_TO_SEED]
    few, chances = fits.some(candidates), weights[candidates]
    own, size = fits.own(few) if init_params in _SUBSPACES else (None, None)
    best: Array = np.full(candidates.size, -np.inf)
    seeds: list[int] = []
    used = np.zeros(candidates.size, dtype=bool)
    left = chances
    while len(seeds) < min(n_components, candidates.size) and left.sum() > 0.0:
        seed = rng.choice(candidates.size, p=left / left.sum())
        seeds.append(candidates[seed])
        used[seed] = True
        left = chances * ~used
        if own is not None and size is not None:
            best = np.maximum(best, fits.given(few, seeds[-1:])[0][:, 0])
            # a row equal to a seed is fully explained, up to rounding
            missed = left * np.where(exceeds(own, best, scale=size), own - best, 0.0)
            left = missed if missed.sum() > 0.0 else left
    resp = np.zeros((weights.size, len(seeds)))
    for rows in pieces(weights.size, _ROWS_AT_ONCE):
        found, size = fits.given(fits.some(rows), seeds)
        size = np.take_along_axis(size, found.argmax(axis=1)[:, None], axis=1)
        # of equally near seeds, the one drawn first
        nearest = stable_argmax(found, scale=size)
        resp[rows][np.arange(nearest.size), nearest] = 1.0
    return resp
