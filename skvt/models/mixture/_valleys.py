"""Valleys of the density between Gaussian components, as the rows show them.

The fitted density has valleys where components meet, even if these tile a flat cloud or a curved
band. The rows tell such valleys from those between clusters. Rows of two components that touch are
projected to the direction that separates the components best, and rows in windows between the two
means are counted: in a valley there are fewer than at the lower one of the two peaks, by more than
chance explains. See doc/guide/clusters.md.
"""

from copy import deepcopy
from typing import Self

import numpy as np
from scipy.special import logsumexp

from skvt.contracts import Component
from skvt.models.mixture._joins import Assignments, Joins, Pairs, join_components
from skvt.typing import Array, IndexArray

# Most columns in which valleys are tested: in many, nearly every component is a hill by itself.
_MOST_COLUMNS = 3
# Two components that lose a smaller share of the entropy hardly overlap. They are apart ...
_OVERLAP = 0.1
# ... if their peaks differ by more nats than this ...
_CLIFF = 1.0
# ... or if their means are nearer than so many standard deviations: they cross or are nested.
_CROSSING = 2.0
# Test of two components that are apart, and largest test, in standard errors.
_APART = 50.0
# Test of two clusters that do not touch.
_NOT_TOUCHING = 100.0
# Points on the way from one mean to another. Components touch if no third one has more of the
# density there than both together.
_WAY = np.linspace(0.0, 1.0, 17)[1:-1, None, None]
# Each component is compared with the components that are most probable at its mean, at least.
_NEIGHBOURS = 24
# Distance of the centres of windows in which rows are counted; the means are at 0 and 1.
_STEP = 0.05
_CENTRES = np.arange(-10, 31) * _STEP
_BETWEEN = np.arange(10, 31)
# Width of a window, and widths of stretches in windows.
_WIDTH = 4 * _STEP
_STRETCHES = (1, 2, 3)


class Valleys(Pairs):
    """Tests of the valleys between clusters: means of those of pairs of components that touch.

    Weights are densities at the saddles (K, K), 0 where components do not touch; ``sums`` are
    weights times tests. The clusters with the smallest test are joined first.
    """

    sign = -1.0

    def __init__(self, assignments: Assignments, weights: Array, tests: Array) -> None:
        self.mass, self.vacant = assignments.mass.copy(), assignments.vacant.copy()
        self.dtype, self.weights, self.sums = assignments.dtype, weights, weights * tests

    def copy(self) -> Self:
        return deepcopy(self)

    def tests_of(self, joins: Joins) -> Array:
        """Return the tests of clusters that are joined (K - 1,), infinite if they do not touch."""
        linkage = joins.pairs(len(joins.linkage))
        tests = join_components(self, relative=False, first=linkage).losses
        return np.where(tests > 0.5 * (_APART + _NOT_TOUCHING), np.inf, tests)

    def losses(self, a: int, others: IndexArray) -> Array:
        out = np.full(others.size, _NOT_TOUCHING)
        weights = self.weights[a, others]
        return np.divide(self.sums[a, others], weights, out=out, where=weights > 0.0)

    def join(self, a: int, b: int) -> None:
        super().join(a, b)
        for values in (self.weights, self.sums):
            values[a] += values[b]
            values[:, a] = values[a]


def valleys_between(
    assignments: Assignments, component: Component, lam: Array, X: Array, weights: Array
) -> Valleys | None:
    """Return tests of Gaussian components by rows X (n, D) with weights.

    The result is None if components are no Gaussians, or have too many columns. Holes are filled
    with the means of the row's component.
    """
    lam = component.apart(lam)
    gaussians = component.gaussians(lam) if component.n_features <= _MOST_COLUMNS else None
    if gaussians is None:
        return None
    means, covariances = gaussians
    K, tests = len(means), np.full((len(means),) * 2, _APART)
    saddles, peaks = _saddles(component, lam, means, covariances, assignments.mass)
    X = np.where(np.isnan(X), means[assignments.labels], X)
    rows_of = [np.flatnonzero(assignments.labels == k) for k in range(K)]
    for a in range(K):
        others = a + 1 + np.flatnonzero(saddles[a, a + 1 :] > -np.inf)
        for b, share in zip(others, assignments.shares(a, others), strict=True):
            step = means[b] - means[a]
            direction = np.linalg.solve(covariances[a] + covariances[b], step)
            squared = float(step @ direction)
            crossing = 2.0 * squared < _CROSSING**2
            if share >= _OVERLAP or not (crossing or abs(peaks[a] - peaks[b]) > _CLIFF):
                rows = np.concatenate([rows_of[a], rows_of[b]])
                at = (X[rows] - means[a]) @ direction / max(squared, np.finfo(float).tiny)
                tests[a, b] = tests[b, a] = min(valley_test(at, weights[rows]), _APART)
    # weights of components that touch stay positive
    highest = max(float(saddles.max()), np.finfo(float).min)
    logs = np.maximum(saddles - highest, 0.5 * np.log(np.finfo(float).tiny))
    return Valleys(assignments, np.where(saddles > -np.inf, np.exp(logs), 0.0), tests)


def _saddles(
    component: Component, lam: Array, means: Array, covariances: Array, mass: Array
) -> tuple[Array, Array]:
    """Return log densities at saddles (K, K), -inf where components do not touch, and at means.

    All peaks and saddles of two Gaussians are on a curve [Ray05 eq. 4].
    """
    log_mass = np.log(np.maximum(mass, np.finfo(float).tiny))
    parts, K = component.log_predictive(means, lam) + log_mass, len(means)
    peaks, near = logsumexp(parts, axis=1), np.zeros((K, K), bool)
    likely = np.argsort(-parts, axis=1, kind="stable")[:, : 1 + _NEIGHBOURS]
    np.put_along_axis(near, likely, True, axis=1)
    near |= near.T
    saddles = np.full((K, K), -np.inf)
    precisions = np.linalg.inv(covariances)
    scaled = np.einsum("kij,kj->ki", precisions, means)
    for a in range(K - 1):
        others = a + 1 + np.flatnonzero(near[a, a + 1 :])
        both = (1.0 - _WAY[..., None]) * precisions[a] + _WAY[..., None] * precisions[others]
        right = (1.0 - _WAY) * scaled[a] + _WAY * scaled[others]
        points = np.linalg.solve(both, right[..., None]).reshape(-1, means.shape[1])
        parts = component.log_predictive(points, lam) + log_mass
        density = logsumexp(parts, axis=1).reshape(len(_WAY), -1)
        parts = parts.reshape(*density.shape, K)
        pairs = np.arange(others.size)
        of_both = np.logaddexp(parts[..., a], parts[:, pairs, others])
        parts[..., a] = parts[:, pairs, others] = -np.inf
        touching = (of_both >= parts.max(axis=2)).all(axis=0)
        saddles[a, others] = np.where(touching, density.min(axis=0), -np.inf)
    return np.maximum(saddles, saddles.T), peaks


def valley_test(positions: Array, weights: Array) -> float:
    """Return by how many standard errors rows between 0 and 1 are fewer than at the peaks.

    Weighted rows are counted in windows. Without a valley a stretch of m windows has m times the
    rows of one window at the lower one of the two peaks beside it. Square roots of counts have the
    variance 1/4, so that the standard error of ``sqrt(m peak) - sqrt(stretch)`` is ``sqrt(m + 1) /
    2``.
    """
    order = np.argsort(positions, kind="stable")
    positions, total = positions[order], np.append(0.0, weights[order].cumsum())

    def counted(width: float) -> Array:
        below, above = (np.searchsorted(positions, _CENTRES + e * width) for e in (-0.5, 0.5))
        return np.asarray(total[above] - total[below])

    peaks, largest = counted(_WIDTH), 0.0
    left = np.maximum.accumulate(peaks)
    right = np.maximum.accumulate(peaks[::-1])[::-1]
    for m in _STRETCHES:
        # windows at the peaks do not overlap the stretch
        away = round((m + 1) * _WIDTH / 2.0 / _STEP)
        left_of, right_of = np.maximum(_BETWEEN - away, 0), _BETWEEN + away
        peak = np.minimum(left[left_of], right[np.minimum(right_of, peaks.size - 1)])
        fewer = np.sqrt(m * peak) - np.sqrt(counted(m * _WIDTH)[_BETWEEN])
        largest = max(largest, 2.0 * float(fewer.max()) / np.sqrt(m + 1.0))
    return largest
