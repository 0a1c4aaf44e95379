"""Tests of whether rows have a valley of density between two Gaussian components.

The fitted density has valleys between components even where several components cover one cluster,
such as a uniform cloud or a curved band. The rows are therefore tested for a valley. Rows of two
components that touch are projected onto the direction that separates the components best, and
counted in windows between the two means. There is a valley if a window has fewer rows than a window
at the lower of the two peaks, by more than chance explains.

This test misses shallow valleys between normal clusters unless there are many rows. Valleys of the
fitted density are therefore accepted, too, in clusters whose rows do not contradict a mixture of
Gaussians. The results of a fit call :func:`find_valleys`. See doc/guide/joining.md.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from skvt.contracts import Component
from skvt.models.mixture._joins import SIGNIFICANT_VALLEY, Joins
from skvt.models.mixture._pairs import Assignments, JoinCriterion
from skvt.models.mixture._suggestions import separate_by_valleys
from skvt.typing import Array, IndexArray

# Maximum number of columns in which valleys are tested. In more columns, nearly every component is
# a separate peak of the density.
_MAX_COLUMNS = 3
# Two components hardly overlap if joining them loses less than this share of the largest possible
# loss of entropy.
_OVERLAP_LOSS_SHARE = 0.1
# Components that hardly overlap are taken as apart, without a count of rows, in two cases. In the
# first, the log densities at their means differ by more than _CLEAR_LOG_RATIO nats. In the second,
# their means are less than _MAX_CROSSING_DISTANCE standard deviations apart, so that they cross or
# one lies within the other.
_MAX_CROSSING_DISTANCE = 2.0
# Two clusters are also compared at their peaks, see `Valleys`, if the lower peak is more than
# _CLEAR_LOG_RATIO nats above the log density of their connection.
_CLEAR_LOG_RATIO = 1.0
# Value of the test, in standard errors, for two components that are taken as apart. It is also the
# largest value for other components that touch.
_TEST_IF_APART = 50.0
# Value of the test for two clusters without components that touch.
_TEST_IF_NOT_TOUCHING = 100.0
# (15, 1, 1): positions on the path from one mean, at 0, to another, at 1, without the ends. Two
# components touch unless the density of a third component exceeds the sum of their densities at one
# of these positions.
_PATH = np.linspace(0.0, 1.0, 17)[1:-1, None, None]
# Minimum number of components with which each is compared: the most probable ones at its mean.
_MIN_NEIGHBOURS = 24
# Step from one centre to the next, and centres, of the windows in which rows are counted. The means
# of the two components are at 0 and 1. _INNER_CENTRES are the indices of the centres from 0 to 1.
_WINDOW_STEP = 0.05
_CENTRES = np.arange(-10, 31) * _WINDOW_STEP
_INNER_CENTRES = np.arange(10, 31)
# Width of a window, and numbers of windows in a stretch, in which a valley may lie.
_WINDOW_WIDTH = 4 * _WINDOW_STEP
_STRETCH_WIDTHS = (1, 2, 3)
# Rows contradict Gaussian clusters if their log densities have a smaller spread than those of draws
# from the fit, by at least this number of standard errors. This is a test at the 10 % level.
_MIN_SPREAD_DIFFERENCE = 1.28
# Number of draws from the fit.
_N_DRAWS = 10_000
# Two components of Gaussian clusters are separated if the expected numbers of rows between them,
# under the fit, have a valley of at least this many standard errors.
_MIN_EXPECTED_TEST = 0.8
# Positions at which the expected numbers of rows are computed.
_POSITIONS = np.linspace(_CENTRES[0] - _WINDOW_WIDTH, _CENTRES[-1] + _WINDOW_WIDTH, 600)


class Valleys(JoinCriterion):
    """Tests of the valleys between clusters.

    A test is the depth of a valley in standard errors. The test of two clusters is a weighted mean
    over the pairs of their components that touch. The weights are the densities at the saddles
    between components, ``saddle_densities`` (K, K), which are 0 where components do not touch.
    ``weighted_tests`` (K, K) are weights times tests. The two clusters with the smallest test are
    joined first.

    No valley separates a broad component of noise from the clusters that it surrounds. When the
    noise has been joined with one of these clusters, it must not connect this cluster with the
    others. Two clusters are therefore also compared at their peaks. ``peaks`` (K,) is the log
    density of a cluster's densest component at its mean, and ``peak_counts`` (K,) is the number of
    this component's rows. ``connection_levels`` (K, K) is the log density at which two clusters are
    connected. For two components without a valley between them, it is the lower of their peaks. For
    clusters, it is the maximum over such pairs of components, or -inf if there are none. The test
    compares the rows at the lower of the two peaks with the rows that are expected at this level.
    """

    sign = -1.0

    def __init__(
        self, assignments: Assignments, saddle_densities: Array, tests: Array, peaks: Array,
        peak_counts: Array,
    ) -> None:  # fmt: skip
        # Copy the arrays that joins change.
        self.proportions = assignments.proportions.copy()
        self.is_vacant = assignments.is_vacant.copy()
        self.dtype = assignments.dtype
        self.saddle_densities, self.weighted_tests = saddle_densities, saddle_densities * tests
        self.peaks, self.peak_counts = peaks.copy(), peak_counts.copy()
        are_connected = (saddle_densities > 0.0) & (tests < SIGNIFICANT_VALLEY)
        self.connection_levels = np.where(are_connected, np.minimum(peaks, peaks[:, None]), -np.inf)

    def join_tests(self, joins: Joins) -> Array:
        """Return the tests of the clusters in each join, (K - 1,), inf if they do not touch."""
        tests = self.join_losses(joins.linkage)
        # Only clusters that do not touch have tests above `_TEST_IF_APART`.
        return np.where(tests > 0.5 * (_TEST_IF_APART + _TEST_IF_NOT_TOUCHING), np.inf, tests)

    def join_losses(self, pairs: Array) -> Array:
        """Return the tests of the clusters in each join, (K - 1,)."""
        # Make the joins on a copy, in which the cluster with number i has the index ``indices[i]``.
        joined_valleys = self.copy()
        indices = list(range(self.proportions.size))
        losses = np.empty(len(pairs))
        for step, numbers in enumerate(pairs[:, :2].astype(int)):
            a, b = sorted(indices[number] for number in numbers)
            losses[step] = joined_valleys.losses(a, np.array([b]))[0]
            joined_valleys.join(a, b)
            indices.append(a)
        return losses

    def losses(self, a: int | IndexArray, b: IndexArray) -> Array:
        """Return the tests of the valleys between a and each of b, see `JoinCriterion`."""
        tests = np.full(b.size, _TEST_IF_NOT_TOUCHING)
        saddle_densities, levels = self.saddle_densities[a, b], self.connection_levels[a, b]
        are_touching = saddle_densities > 0.0
        np.divide(self.weighted_tests[a, b], saddle_densities, out=tests, where=are_touching)
        # Compare the clusters at their peaks. ``lower`` are the clusters with the lower peaks.
        lower = np.where(self.peaks[a] < self.peaks[b], a, b)
        depths = np.where(levels > -np.inf, self.peaks[lower] - levels, 0.0)
        # With n rows at the lower peak, this is 2 (sqrt(n) - sqrt(n exp(-depth))) / sqrt(2), as in
        # `measure_valley`.
        peak_tests = np.sqrt(2.0 * self.peak_counts[lower]) * -np.expm1(-0.5 * depths)
        peak_tests = np.minimum(peak_tests, _TEST_IF_APART)
        return np.where(depths > _CLEAR_LOG_RATIO, np.maximum(tests, peak_tests), tests)

    def join(self, a: int, b: int) -> None:
        """Join b into a: their saddles are added up, and the higher peak is that of the union."""
        super().join(a, b)
        for matrix in (self.saddle_densities, self.weighted_tests):
            matrix[a] += matrix[b]
            matrix[:, a] = matrix[a]
        if self.peaks[b] > self.peaks[a]:
            self.peaks[a] = self.peaks[b]
            self.peak_counts[a] = self.peak_counts[b]
        self.connection_levels[a] = np.maximum(self.connection_levels[a], self.connection_levels[b])
        self.connection_levels[:, a] = self.connection_levels[a]


def find_valleys(
    assignments: Assignments, component: Component, lam: Array, X: Array, weights: Array
) -> Valleys | None:
    """Test the valleys between Gaussian components by rows X (n, D) of ``weights`` (n,).

    ``lam`` (K, E) are the natural parameters of the components. The result is None if components
    are not Gaussian, or have more than `_MAX_COLUMNS` columns. Missing values are filled with the
    mean of the row's most probable component.
    """
    lam = component.with_shared_globals(lam)
    gaussians = component.gaussians(lam) if component.n_features <= _MAX_COLUMNS else None
    if gaussians is None:
        return None
    means, covariances = gaussians
    K = len(means)
    proportions = np.maximum(assignments.proportions, np.finfo(float).tiny)

    def compute_log_joint(points: Array) -> Array:
        """Return log proportion plus log density of points (n, D) for each component, (n, K)."""
        return component.log_predictive(points, lam) + np.log(proportions)

    saddles, peaks = _find_saddles(compute_log_joint, means, covariances)
    # Test the pairs of components that touch, by their rows unless they are taken as apart.
    tests = np.full((K, K), _TEST_IF_APART)
    X = np.where(np.isnan(X), means[assignments.labels], X)
    rows_of_component = [np.flatnonzero(assignments.labels == k) for k in range(K)]
    for a in range(K):
        # Take each pair once, with b > a.
        others = a + 1 + np.flatnonzero(saddles[a, a + 1 :] > -np.inf)
        for b, loss in zip(others, assignments.relative_losses(a, others), strict=True):
            mean_difference = means[b] - means[a]
            direction = np.linalg.solve(covariances[a] + covariances[b], mean_difference)
            # The squared distance of the means in standard deviations, divided by 2.
            half_squared_distance = float(mean_difference @ direction)
            is_crossing = 2.0 * half_squared_distance < _MAX_CROSSING_DISTANCE**2
            peaks_differ = abs(peaks[a] - peaks[b]) > _CLEAR_LOG_RATIO
            if loss >= _OVERLAP_LOSS_SHARE or not (is_crossing or peaks_differ):
                rows = np.concatenate([rows_of_component[a], rows_of_component[b]])
                # Project the rows so that the two means have the positions 0 and 1.
                length = max(half_squared_distance, np.finfo(float).tiny)
                positions = (X[rows] - means[a]) @ direction / length
                test = measure_valley(positions, weights[rows])
                tests[a, b] = tests[b, a] = min(test, _TEST_IF_APART)
    # Weight the tests by the densities at the saddles, relative to the highest one. The logarithms
    # are limited, so that weights of components that touch stay positive.
    highest_saddle = max(float(saddles.max()), np.finfo(float).min)
    log_weights = np.maximum(saddles - highest_saddle, 0.5 * np.log(np.finfo(float).tiny))
    are_touching = saddles > -np.inf
    densities = np.where(are_touching, np.exp(log_weights), 0.0)
    n_rows = weights.sum() * proportions
    valleys = Valleys(assignments, densities, tests.copy(), peaks, n_rows)
    # Within Gaussian clusters, also accept the valleys of the fitted density.
    draws = _draw_points(means, covariances, proportions)
    clusters = separate_by_valleys(valleys)
    is_gaussian = _find_gaussian_clusters(compute_log_joint, draws, X, weights, clusters)
    for a, b in np.argwhere(np.triu(are_touching, 1) & is_gaussian[:, None] & is_gaussian):
        expected_test = _test_expected_rows(means[[a, b]], covariances[[a, b]], n_rows[[a, b]])
        # Scale the expected test, so that it is significant from `_MIN_EXPECTED_TEST` on.
        scaled_test = expected_test / _MIN_EXPECTED_TEST * SIGNIFICANT_VALLEY
        tests[a, b] = tests[b, a] = max(tests[a, b], scaled_test)
    # The result has the tests of the rows, but its suggested clusters follow the raised tests.
    valleys.clusters = separate_by_valleys(Valleys(assignments, densities, tests, peaks, n_rows))
    return valleys


def _draw_points(means: Array, covariances: Array, proportions: Array) -> Array:
    """Return points that are drawn from a mixture of Gaussians, (_N_DRAWS, D)."""
    rng = np.random.default_rng(0)
    labels = rng.choice(proportions.size, _N_DRAWS, p=proportions / proportions.sum())
    noise = rng.standard_normal((_N_DRAWS, means.shape[1]))
    return means[labels] + np.einsum("nij,nj->ni", np.linalg.cholesky(covariances)[labels], noise)


def _find_gaussian_clusters(
    compute_log_joint: Callable[[Array], Array], draws: Array, X: Array, weights: Array,
    clusters: IndexArray,
) -> NDArray[np.bool_]:  # fmt: skip
    """Return whether the cluster of each component may be a mixture of Gaussians, (K,).

    ``clusters`` (K,) are the clusters of the components. The result is False where the rows X
    contradict such a mixture. Several Gaussians may cover a cluster of another shape, such as a
    uniform cloud or a curved band. Its rows have no tails, so that their log densities have a
    smaller spread than the log densities of ``draws`` from the fit. The spread is compared in all
    rows, and in the rows of each cluster.

    Before the spread is measured, the mean over draws with the same most probable component is
    subtracted from each log density. In D Gaussian columns, the kurtosis of the log density is
    3 + 12 / D, so that the log of its standard deviation in n rows has the standard error
    ``sqrt((1 + 6 / D) / (2 n))``.
    """
    K, D = clusters.size, X.shape[1]
    # Each of the next four lists has an array for the draws, followed by an array for the rows.
    log_joints = [compute_log_joint(draws), compute_log_joint(X)]
    labels = [log_joint.argmax(axis=1) for log_joint in log_joints]
    log_densities = [logsumexp(log_joint, axis=1) for log_joint in log_joints]
    weights_of_points = [np.ones(_N_DRAWS), weights]
    # (K,): mean log density of the draws of each component.
    counts = np.maximum(np.bincount(labels[0], minlength=K), 1)
    mean_log_densities = np.bincount(labels[0], log_densities[0], K) / counts

    def has_smaller_spread(is_member: NDArray[np.bool_]) -> bool:
        """Return whether rows of the member components have a smaller spread than their draws."""
        log_spreads, variance = [], 0.0
        draws_and_rows = zip(labels, log_densities, weights_of_points, strict=True)
        for point_labels, point_log_densities, point_weights in draws_and_rows:
            is_used = is_member[point_labels] & (point_weights > 0.0)
            if np.count_nonzero(is_used) < 2:
                return False
            deviations = (point_log_densities - mean_log_densities[point_labels])[is_used]
            deviations -= np.average(deviations, weights=point_weights[is_used])
            # The limit keeps the logarithm finite.
            mean_square = max(np.average(deviations**2, weights=point_weights[is_used]), 1e-300)
            log_spreads.append(0.5 * np.log(mean_square))
            variance += (1.0 + 6.0 / D) / (2.0 * point_weights[is_used].sum())
        draws_log_spread, rows_log_spread = log_spreads
        return bool(draws_log_spread - rows_log_spread > _MIN_SPREAD_DIFFERENCE * np.sqrt(variance))

    if has_smaller_spread(np.ones(K, bool)):
        return np.zeros(K, bool)
    is_gaussian = [not has_smaller_spread(clusters == c) for c in range(clusters.max() + 1)]
    return np.array(is_gaussian)[clusters]


def _test_expected_rows(means: Array, covariances: Array, counts: Array) -> float:
    """Return the test of the valley between two Gaussians for the expected numbers of rows.

    The Gaussians have ``means`` (2, D), ``covariances`` (2, D, D) and ``counts`` (2,) of rows.
    """
    mean_difference = means[1] - means[0]
    direction = np.linalg.solve(covariances[0] + covariances[1], mean_difference)
    length = max(float(mean_difference @ direction), np.finfo(float).tiny)
    # Standard deviations of the positions, whose means are 0 and 1.
    deviations = np.sqrt(np.einsum("i,kij,j->k", direction, covariances, direction)) / length
    standardised = (_POSITIONS[:, None] - np.arange(2.0)) / deviations
    densities = np.exp(-0.5 * standardised**2) / (deviations * np.sqrt(2.0 * np.pi))
    return measure_valley(_POSITIONS, densities @ counts * (_POSITIONS[1] - _POSITIONS[0]))


def _find_saddles(
    compute_log_joint: Callable[[Array], Array], means: Array, covariances: Array
) -> tuple[Array, Array]:
    """Return log densities at the saddles between components (K, K), and at peaks (K,).

    The peaks are the log densities of each component at its mean. Saddles are -inf where components
    do not touch. All peaks and saddles of two Gaussians lie on a curve between their means, on
    which their gradients have opposite directions [Ray05 eq. 4]. The saddle is approximated by the
    point of lowest density on this curve.
    """
    K = len(means)
    log_joint_at_means = compute_log_joint(means)
    peaks = np.diagonal(log_joint_at_means)
    # Compare each component with itself and with those that are most probable at its mean.
    is_near = np.zeros((K, K), bool)
    most_probable = np.argsort(-log_joint_at_means, axis=1, kind="stable")[:, : 1 + _MIN_NEIGHBOURS]
    np.put_along_axis(is_near, most_probable, True, axis=1)
    is_near |= is_near.T
    saddles = np.full((K, K), -np.inf)
    precisions = np.linalg.inv(covariances)
    scaled_means = np.einsum("kij,kj->ki", precisions, means)
    for a in range(K - 1):
        # Find points on the curves from component a to the others. [Ray05 eq. 4]
        others = a + 1 + np.flatnonzero(is_near[a, a + 1 :])
        precision = (1.0 - _PATH[..., None]) * precisions[a] + _PATH[..., None] * precisions[others]
        scaled_mean = (1.0 - _PATH) * scaled_means[a] + _PATH * scaled_means[others]
        points = np.linalg.solve(precision, scaled_mean[..., None]).reshape(-1, means.shape[1])
        # Log densities of the mixture, (points, curves), and of components, (points, curves, K).
        log_components = compute_log_joint(points)
        log_mixture = logsumexp(log_components, axis=1).reshape(len(_PATH), -1)
        log_components = log_components.reshape(*log_mixture.shape, K)
        # Compare the sum of the densities of the two components with each third component.
        curves = np.arange(others.size)
        log_sum = np.logaddexp(log_components[..., a], log_components[:, curves, others])
        log_components[..., a] = log_components[:, curves, others] = -np.inf
        are_touching = (log_sum >= log_components.max(axis=2)).all(axis=0)
        saddles[a, others] = np.where(are_touching, log_mixture.min(axis=0), -np.inf)
    # Make the matrix symmetric.
    return np.maximum(saddles, saddles.T), peaks


def measure_valley(positions: Array, weights: Array) -> float:
    """Return the depth of the deepest valley between positions 0 and 1, in standard errors.

    The positions (n,) have weights (n,), which are added up in windows. Consider a stretch of m
    windows, and one window at the highest peak on each side of the stretch. If there is no valley,
    the stretch has at least m times the rows of the lower of the two peaks. The square root of a
    count has the variance 1/4, so that ``sqrt(m peak) - sqrt(stretch)`` has the standard error
    ``sqrt(m + 1) / 2``.
    """
    order = np.argsort(positions, kind="stable")
    positions = positions[order]
    cumulative_weights = np.append(0.0, weights[order].cumsum())

    def sum_windows(width: float) -> Array:
        """Return the sum of weights in a window of this width around each centre."""
        starts = np.searchsorted(positions, _CENTRES - 0.5 * width)
        ends = np.searchsorted(positions, _CENTRES + 0.5 * width)
        return np.asarray(cumulative_weights[ends] - cumulative_weights[starts])

    window_sums = sum_windows(_WINDOW_WIDTH)
    # The largest sum in any window up to each centre from the left, and from the right.
    left_peaks = np.maximum.accumulate(window_sums)
    right_peaks = np.maximum.accumulate(window_sums[::-1])[::-1]
    largest_test = 0.0
    for m in _STRETCH_WIDTHS:
        # Peaks are windows that do not overlap the stretch. This is the minimum number of steps
        # from their centre to the centre of the stretch.
        distance = round((m + 1) * _WINDOW_WIDTH / 2.0 / _WINDOW_STEP)
        left_peak = left_peaks[np.maximum(_INNER_CENTRES - distance, 0)]
        right_peak = right_peaks[np.minimum(_INNER_CENTRES + distance, window_sums.size - 1)]
        lower_peak = np.minimum(left_peak, right_peak)
        stretch_sums = sum_windows(m * _WINDOW_WIDTH)[_INNER_CENTRES]
        depths = np.sqrt(m * lower_peak) - np.sqrt(stretch_sums)
        largest_test = max(largest_test, 2.0 * float(depths.max()) / np.sqrt(m + 1.0))
    return largest_test
