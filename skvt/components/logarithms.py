"""The choice of columns whose logarithms are modelled by Gaussians.

Descriptions of Gaussian columns call :func:`find_log_columns`.

For each column, mixtures of one to three Gaussians are fitted to the values and to their
logarithms, with a Dirichlet process as the prior of weights. The lowest and the highest values are
left out. Otherwise a single wrong value could decide: a value 1,000 times too high makes the
logarithms of any column more probable, and a value 1,000 times too low makes them less so. A fit
starts from the division of the sorted values into intervals that has the highest evidence. Many
columns are fitted at a time. By the change of variables, the density of a value is the density of
its logarithm divided by the value. The sum of the logarithms is therefore subtracted from the bound
for the logarithms, which is then comparable with the bound for the values.

In shapes, n is the number of rows, D the number of columns, and K the number of Gaussians of a
mixture. A value x, less the centre of its column, has the three features 1, x and x^2, which are 0
if the value is missing. The log density of a Gaussian is linear in the features, and their sums
determine its evidence.
"""

import numpy as np
from scipy.special import xlogy

from skvt.components._choices import MAX_ROWS, select_evenly_spaced
from skvt.expfam import Beta
from skvt.models.mixture import (
    GaussianPrior,
    StickBreaking,
    make_gaussian_component,
    weighted_moments,
)
from skvt.rows import dense, pieces, sums_of_rows
from skvt.ties import stable_argmax

# Maximum number of values of a column in the fits.
_MAX_VALUES = 1_000
# A column with a smaller sum of the weights of its values is not put into logarithms.
_MIN_WEIGHT = 30
# Share of the lowest values of a column, and of the highest values, that comparisons leave out, so
# that single wrong values do not decide.
_SHARE_OF_EXTREMES = 0.002
# Minimum gain in the bound for which logarithms are chosen, in nats.
MIN_GAIN = 8.0
# Cube roots are considered for standard deviations of at least this share of the mean. It is 1 for
# an exponential distribution, and about .5 in groups of values that are cube roots already.
_MIN_RELATIVE_DEVIATION = 0.6
# Numbers of passes of coordinate ascent in a first and a second comparison. The second comparison
# is only for columns whose gain in the first differs from MIN_GAIN by less than _UNDECIDED_RANGE
# nats.
_NUMBERS_OF_PASSES = (10, 40)
_UNDECIDED_RANGE = 10.0
# Number of columns that are compared at a time.
_COLUMNS_AT_ONCE = 64
# Prior of the mean and the variance of each Gaussian.
_GAUSSIAN_PRIOR = GaussianPrior(degrees_of_freedom=1.0)
# Prior of the weights of a mixture: a Dirichlet process as stick breaking. The prior of each stick
# is Beta(1, 1), whose log normalizer is 0.
_STICK_BREAKING = StickBreaking(1.0)


def find_log_columns(X, weights, named=None):
    """Return the positions of the columns that are better in logarithms, and their least values.

    A column is better in logarithms if its values are positive, if their weights add up to at least
    ``_MIN_WEIGHT``, and if logarithms gain more than ``MIN_GAIN`` nats without the most extreme
    values, both with a single Gaussian and with the best mixture. If ``named`` is not None, it has
    the positions of columns that the user names. They are then returned without a comparison, and
    ValueError is raised if any of them has values that are not positive.

    The least value of a column is a positive number. Smaller values of later rows are raised to it,
    so that all logarithms are finite. The logarithm of the least value is as far below the smallest
    logarithm in a sample as the smallest logarithm is below the mean.
    """
    (n_without_log,) = sums_of_rows(X, weights, _count_without_log)
    lacks_logs = n_without_log > 0.0
    if named is not None and lacks_logs[named].any():
        raise ValueError(
            "The 'log' parameter must name columns of positive numbers. Column "
            f"{named[lacks_logs[named]][0]} of the component (counted from 0) has values of 0 or "
            "less: leave it out of 'log', or use a Hurdle if these are zeros."
        )
    X, weights = select_evenly_spaced(X, weights, MAX_ROWS)
    columns = np.flatnonzero(~lacks_logs) if named is None else named
    log_columns, least_values = [], []
    for chunk in pieces(columns.size, _COLUMNS_AT_ONCE):
        values = _sample_values(X[:, columns[chunk]], weights)
        gains = compute_gains(values, weights) if named is None else np.full(len(values.T), np.inf)
        is_log = gains > MIN_GAIN
        log_columns.extend(columns[chunk][is_log])
        for column in values[:, is_log].T:
            is_observed = ~np.isnan(column)
            logs = np.log(column[is_observed])
            # A column without values gets an arbitrary least value, 1.
            log_limit = 0.0
            if logs.size:
                log_limit = 2.0 * logs.min() - np.average(logs, weights=weights[is_observed])
            least_values.append(float(np.exp(log_limit)))
    return np.array(log_columns, np.intp), tuple(least_values)


def _count_without_log(X, weights):
    """Return a tuple with the number of values <= 0 in each column, (D,), for `sums_of_rows`."""
    return ((weights > 0.0) @ (dense(X) <= 0.0),)


def _sample_values(X, weights):
    """Return rows (n, D) with at most _MAX_VALUES values in each column; other values are NaN.

    The rows of the values are evenly spaced among the rows of positive weight in which the column
    is observed.
    """
    values = np.full(X.shape, np.nan)
    is_used = ~np.isnan(X) & (weights > 0.0)[:, None]
    for j in range(X.shape[1]):
        rows = np.flatnonzero(is_used[:, j])
        rows = rows[np.linspace(0, rows.size - 1, min(rows.size, _MAX_VALUES)).astype(np.intp)]
        values[rows, j] = X[rows, j]
    return values


def compute_gains(X, weights):
    """Return by how many nats the bound of each column is higher in logarithms, (D,).

    X (n, D) holds positive numbers, NaN where a value is missing. The bound of a column is the
    highest bound of mixtures of one to three Gaussians for its values without the most extreme
    ones. The gain is -inf, and no mixtures are fitted, if the weight of the column is too small, or
    if logarithms do not gain ``MIN_GAIN`` nats with a single Gaussian.
    """
    is_heavy = weights @ ~np.isnan(X) >= _MIN_WEIGHT
    X = _remove_extremes(X)
    logs = np.log(X)
    # The sum of the weights of the values of each column.
    total_weights = weights @ ~np.isnan(X)
    # The sum of the logarithms, which is subtracted from bounds for logarithms.
    sum_of_logs = weights @ np.nan_to_num(logs)
    # First compare single Gaussians, because that takes little time. The maximum log likelihood of
    # a Gaussian is -0.5 * weight * log(variance), up to a constant.
    _, variances = weighted_moments(X, weights, "diag")
    _, variances_of_logs = weighted_moments(logs, weights, "diag")
    # A variance is 0 if all values of a column are equal, and NaN if it has no value.
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = 0.5 * total_weights * np.log(variances / variances_of_logs) - sum_of_logs
    has_spread = np.minimum(variances, variances_of_logs) > 0.0
    gains[~(is_heavy & has_spread & (gains > MIN_GAIN))] = -np.inf
    # Then compare mixtures in the columns in which single Gaussians are better in logarithms.
    columns = np.flatnonzero(gains > MIN_GAIN)
    for n_passes in _NUMBERS_OF_PASSES:
        if columns.size:
            bounds = _compute_highest_bounds(X[:, columns], weights, n_passes)
            bounds_of_logs = _compute_highest_bounds(logs[:, columns], weights, n_passes)
            gains[columns] = bounds_of_logs - bounds - sum_of_logs[columns]
            # Compare undecided columns once more, with more passes.
            columns = columns[abs(gains[columns] - MIN_GAIN) < _UNDECIDED_RANGE]
    return gains


def _remove_extremes(X):
    """Return X (n, D) with NaN for the lowest and the highest values of each column.

    At each end these are ``_SHARE_OF_EXTREMES`` of the values, rounded up to a whole number.
    """
    # Missing values have the last ranks.
    ranks = np.argsort(np.argsort(X, axis=0, kind="stable"), axis=0, kind="stable")
    n_values = (~np.isnan(X)).sum(axis=0)
    n_removed = np.ceil(_SHARE_OF_EXTREMES * n_values)
    return np.where((ranks >= n_removed) & (ranks < n_values - n_removed), X, np.nan)


def prefer_cube_roots(values):
    """Return whether Gaussians describe cube roots better than values and their logarithms.

    ``values`` (n,) have no missing value, and must be positive. A single Gaussian must gain
    more than ``MIN_GAIN`` nats. The best mixture need not gain as much: if mixtures are equally
    good, that of cube roots usually has fewer components. Cube roots of gamma variables, such as
    durations, are nearly Gaussian. The most extreme values do not count.
    """
    if values.min() <= 0.0:
        return False
    values = _remove_extremes(values[:, None])
    values = values[~np.isnan(values)]
    # The unit does not matter, but squares of very large numbers overflow.
    values /= values.max()
    if values.std() < _MIN_RELATIVE_DEVIATION * values.mean():
        return False
    logs, weights = np.log(values), np.ones(values.size)
    X = np.column_stack([values, logs, np.cbrt(values)])
    # Sums of the logarithms of derivatives, by the change of variables.
    log_derivatives = np.array([0.0, -1.0, -2.0 / 3.0]) * logs.sum()
    log_derivatives[2] -= values.size * np.log(3.0)
    single_bounds = log_derivatives - 0.5 * values.size * np.log(X.var(axis=0))
    if single_bounds[2] <= single_bounds[:2].max() + MIN_GAIN:
        return False
    bounds = log_derivatives + _compute_highest_bounds(X, weights, _NUMBERS_OF_PASSES[-1])
    return bounds[2] > bounds[:2].max()


def _compute_highest_bounds(X, weights, n_passes):
    """Return the highest bound of mixtures of one to three Gaussians for each column of X.

    X is (n, D), with NaN for missing values; the bounds are (D,) in nats. Each column is sorted and
    divided into intervals of rows, which are the initial components. A *cut* is the last row of an
    interval.
    """
    component, _ = make_gaussian_component(
        X, weights, "diag", zero_mean=False, prior=_GAUSSIAN_PRIOR
    )
    # Sort each column. Missing values come last, and rows in which all are missing are dropped. The
    # component returns features (n, 3 D): the first feature of all D columns, then the second
    # feature, then the third.
    order = np.argsort(X, axis=0, kind="stable")[: (~np.isnan(X)).sum(axis=0).max()]
    features = np.split(component.features(np.take_along_axis(X, order, axis=0)), 3, axis=1)
    features = np.ascontiguousarray(np.transpose(features, (2, 1, 0)))  # (D, n, 3)
    weighted_features = features * weights[order].T[:, :, None]
    # Choose the first cut (D, 1) so that the Gaussians of the two intervals have the highest
    # evidence. ``sums[:, i]`` are sums of features over rows 0 to i, so that a difference is the
    # sum over an interval. ``below`` (D, n) is the evidence of the rows up to each possible cut,
    # and ``above`` (D, n) is the evidence of the rows after the cut.
    sums = np.cumsum(weighted_features, axis=1)
    below = _compute_evidence(component, sums)
    above = _compute_evidence(component, sums[:, -1:] - sums)
    first_cut = stable_argmax(below + above)[:, None]
    # Choose the second cut (D, 1), which divides the interval below or above the first cut.
    # ``between`` (D, n) is the evidence of the rows between each possible second cut and the first
    # cut. ``sums_from_first`` has the sums over these rows, with a negative sign if the second cut
    # is the lower one.
    is_lower = np.arange(sums.shape[1]) < first_cut
    sums_at_first = sums[np.arange(len(sums)), first_cut[:, 0]]
    sums_from_first = sums - sums_at_first[:, None]
    between = _compute_evidence(
        component, np.where(is_lower[:, :, None], -sums_from_first, sums_from_first)
    )
    below_first = np.take_along_axis(below, first_cut, axis=1)
    above_first = np.take_along_axis(above, first_cut, axis=1)
    evidence_if_lower = below + between + above_first
    evidence_if_upper = below_first + between + above
    second_cut = stable_argmax(np.where(is_lower, evidence_if_lower, evidence_if_upper))[:, None]
    both_cuts = np.sort(np.hstack([first_cut, second_cut]), axis=1)
    # Start three mixtures: of one Gaussian, of two that the first cut separates, and of three.
    no_cut = both_cuts[:, :0]
    bounds = [
        _fit_mixtures(component, features, weighted_features, cuts, n_passes)
        for cuts in (no_cut, first_cut, both_cuts)
    ]
    return np.max(bounds, axis=0)


def _compute_evidence(component, sums):
    """Return the log evidence in nats, (D, K), of Gaussians with sums of features (D, K, 3)."""
    # The component takes an array (K, 3 D) with the D sums of the first feature first. Its evidence
    # lacks the factor 1 / sqrt(2 pi) of the density of each value. The first feature is 1, so that
    # its sum is the weight of the values.
    flat_sums = np.transpose(sums, (1, 2, 0)).reshape(sums.shape[1], -1)
    return component.column_evidence(flat_sums).T - 0.5 * np.log(2.0 * np.pi) * sums[:, :, 0]


def _fit_mixtures(component, features, weighted_features, cuts, n_passes):
    """Fit a mixture to each column by coordinate ascent, and return the bounds (D,) in nats.

    The initial components are the intervals of rows that ``cuts`` (D, K - 1) separate.
    ``features`` (D, n, 3) are the features of the sorted rows, and ``weighted_features`` (D, n, 3)
    are the features times the weights of the rows.
    """
    D, K = len(cuts), cuts.shape[1] + 1
    # ``resp`` (D, K, n) has the responsibilities. The initial label of a row is the number of its
    # interval, which is the number of cuts before the row.
    labels = (np.arange(features.shape[1]) > cuts[:, :, None]).sum(axis=1)
    resp = (labels[:, None] == np.arange(K)[:, None]).astype(float)
    for _ in range(n_passes if K > 1 else 0):
        # Global step: compute expected coefficients of the features, and expected log weights.
        sums = resp @ weighted_features
        lam = component.natural_parameters(np.transpose(sums, (1, 2, 0)).reshape(K, -1))
        expected_statistics = component.family.expectation(lam)
        coefficients = component.feature_coefficients(expected_statistics).reshape(K, 3, D)
        log_weights = _STICK_BREAKING.log_weights(Beta.expectation(_make_sticks(sums[:, :, 0])))
        # Log weights are in descending order of counts. Two calls of argsort give the rank of each
        # component, which is the position of its log weight.
        ranks = np.argsort(np.argsort(-sums[:, :, 0], axis=1, kind="stable"), axis=1)
        # Local step: compute responsibilities from log densities plus log weights.
        resp = np.transpose(coefficients, (2, 0, 1)) @ np.transpose(features, (0, 2, 1))
        resp += np.take_along_axis(log_weights, ranks, axis=1)[:, :, None]
        resp -= resp.max(axis=1, keepdims=True)
        np.exp(resp, out=resp)
        resp /= resp.sum(axis=1, keepdims=True)
    # The bound is the evidence of the Gaussians and of the sticks, plus the entropy of assignments.
    sums = resp @ weighted_features
    # (D, n): weights of the values, 0 for missing values.
    value_weights = weighted_features[:, :, 0]
    entropy = -(xlogy(resp, resp).sum(axis=1) * value_weights).sum(axis=1)
    weights_evidence = Beta.log_normalizer(_make_sticks(sums[:, :, 0])).sum(axis=1)
    return _compute_evidence(component, sums).sum(axis=1) + weights_evidence + entropy


def _make_sticks(counts):
    """Return the beta parameters (D, K, 2) of sticks, in descending order of the counts (D, K)."""
    return _STICK_BREAKING.natural_parameters(-np.sort(-counts, axis=1))
