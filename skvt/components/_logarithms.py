"""The choice of columns whose logarithms are modelled by Gaussians.

For each column, mixtures of one to three Gaussians are fitted to the values and to their
logarithms, with a Dirichlet process as the prior of weights. A fit starts from the division of the
sorted values into intervals that has the highest evidence. Many columns are fitted at a time. The
bound for the logarithms is corrected by the volume of the transformation, which is the sum of the
logarithms, so that it can be compared with the bound for the values.
"""

import numpy as np
from scipy.special import xlogy

from skvt.components._choices import MAX_ROWS, select_evenly_spaced
from skvt.expfam import Beta
from skvt.models.mixture import GaussianPrior, make_gaussian_component, weighted_moments
from skvt.rows import dense, pieces, sums_of_rows
from skvt.ties import stable_argmax

# Maximum number of values by which a column is judged.
_MAX_VALUES = 1_000
# Minimum sum of the weights of a column's values, so that the column can be put into logarithms.
_MIN_WEIGHT = 30
# Minimum gain in the bound for which logarithms are chosen, in nats.
_MIN_GAIN = 10.0
# Numbers of passes of coordinate ascent in the first fit and in the second fit. The second fit is
# made for columns whose gain in the first fit differs from _MIN_GAIN by less than _UNDECIDED_RANGE
# nats.
_N_PASSES = (10, 40)
_UNDECIDED_RANGE = 10.0
# Number of columns that are compared at a time.
_COLUMNS_AT_ONCE = 64
# Prior of the mean and the variance of each Gaussian.
_PRIOR = GaussianPrior(degrees_of_freedom=1.0)


def find_log_columns(X, weights, named=None):
    """Return the positions of the columns that are better in logarithms, and their least values.

    A column is better in logarithms if its values are positive and both a single Gaussian and the
    best of small mixtures have a higher bound. If positions of ``named`` columns are passed, the
    named columns are returned instead, and ValueError is raised if one of them has values that are
    not positive.

    The least value of a column is a positive number. Values below the least value are later raised
    to the least value, so that all logarithms are finite. The logarithm of the least value is as
    far below the smallest logarithm in a sample as the smallest logarithm is below the mean.
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
    chosen, least_values = [], []
    for part in pieces(columns.size, _COLUMNS_AT_ONCE):
        values = _sample_values(X[:, columns[part]], weights)
        all_columns = np.ones(values.shape[1], bool)
        is_chosen = _are_better(values, weights) if named is None else all_columns
        chosen.extend(columns[part][is_chosen])
        for column in values[:, is_chosen].T:
            is_observed = ~np.isnan(column)
            logs = np.log(column[is_observed])
            # A column without values gets an arbitrary least value.
            log_least = 0.0
            if logs.size:
                log_least = 2.0 * logs.min() - np.average(logs, weights=weights[is_observed])
            least_values.append(float(np.exp(log_least)))
    return np.array(chosen, np.intp), tuple(least_values)


def _count_without_log(X, weights):
    """Count the values of each column that have no logarithm, (D,), for `sums_of_rows`."""
    return ((weights > 0.0) @ (dense(X) <= 0.0),)


def _sample_values(X, weights):
    """Return rows (n, D) with at most _MAX_VALUES values in each column; other values are NaN.

    The values are evenly spaced among those of rows of positive weight.
    """
    values = np.full(X.shape, np.nan)
    for j, observed in enumerate((~np.isnan(X) & (weights > 0.0)[:, None]).T):
        rows = np.flatnonzero(observed)
        rows = rows[np.linspace(0, rows.size - 1, min(rows.size, _MAX_VALUES)).astype(np.intp)]
        values[rows, j] = X[rows, j]
    return values


def _are_better(X, weights):
    """Return whether each column is better in logarithms, (D,).

    X (n, D) holds positive numbers, NaN where a value is missing.
    """
    logs = np.log(X)
    # The sum of the weights of the values of each column.
    total_weights = weights @ ~np.isnan(X)
    # The log density of a value is the log density of its logarithm, minus the logarithm. The sum
    # of the logarithms is thus subtracted from bounds.
    volume = weights @ np.nan_to_num(logs)
    # First compare single Gaussians by their variances, because that takes little time.
    _, variances = weighted_moments(X, weights, "diag")
    _, variances_of_logs = weighted_moments(logs, weights, "diag")
    # A variance is 0 if all values of a column are equal, and NaN if it has no value.
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = 0.5 * total_weights * np.log(variances / variances_of_logs) - volume
    has_spread = np.minimum(variances, variances_of_logs) > 0.0
    is_better = (total_weights >= _MIN_WEIGHT) & has_spread & (gain > _MIN_GAIN)
    # Then compare mixtures in the columns in which single Gaussians are better in logarithms.
    compared = np.flatnonzero(is_better)
    for n_passes in _N_PASSES:
        if compared.size:
            bounds = _highest_bounds(X[:, compared], weights, n_passes)
            bounds_of_logs = _highest_bounds(logs[:, compared], weights, n_passes)
            excess = bounds_of_logs - bounds - volume[compared] - _MIN_GAIN
            is_better[compared] = excess > 0.0
            compared = compared[abs(excess) < _UNDECIDED_RANGE]
    return is_better


def _highest_bounds(X, weights, n_passes):
    """Return the highest bound of mixtures of one to three Gaussians for each column of X.

    X is (n, D), with NaN for missing values; the bounds are (D,) in nats.
    """
    component, _ = make_gaussian_component(X, weights, "diag", False, _PRIOR)
    # Sorting puts missing values at the end. Drop the last rows, which have no value in any column.
    order = np.argsort(X, axis=0, kind="stable")[: (~np.isnan(X)).sum(axis=0).max()]
    features = np.split(component.features(np.take_along_axis(X, order, axis=0)), 3, axis=1)
    features = np.ascontiguousarray(np.transpose(features, (2, 1, 0)))  # (D, n, 3)
    weighted = features * weights[order].T[:, :, None]
    # Choose the first cut: the last row of the lower of the two intervals whose Gaussians have the
    # highest evidence. Differences of cumulative sums give the sums of any interval of rows.
    sums = np.cumsum(weighted, axis=1)
    below, above = _evidence(component, sums), _evidence(component, sums[:, -1:] - sums)
    first = stable_argmax(below + above)[:, None]
    # Choose the second cut, which divides the interval below the first cut or the interval above
    # the first cut. ``between`` is the evidence of the rows between a possible second cut and the
    # first cut.
    is_lower = np.arange(sums.shape[1]) < first
    difference = sums - sums[np.arange(len(sums)), first[:, 0]][:, None]
    between = _evidence(component, np.where(is_lower[:, :, None], -difference, difference))
    if_lower = below + between + np.take_along_axis(above, first, axis=1)
    if_upper = np.take_along_axis(below, first, axis=1) + between + above
    second = stable_argmax(np.where(is_lower, if_lower, if_upper))[:, None]
    both = np.sort(np.hstack([first, second]), axis=1)
    # Start a mixture from no cut, one from the first cut, and one from both cuts.
    bounds = [
        _bounds_from(component, features, weighted, cuts, n_passes)
        for cuts in (both[:, :0], first, both)
    ]
    return np.max(bounds, axis=0)


def _evidence(component, sums):
    """Return the log evidence in nats, (D, K), of Gaussians with sums of features (D, K, 3).

    The first feature of an observed value is 1, so that the sum of the first feature is the sum of
    the weights of the rows.
    """
    flat = np.transpose(sums, (1, 2, 0)).reshape(sums.shape[1], -1)
    return component.column_evidence(flat).T - 0.5 * np.log(2.0 * np.pi) * sums[:, :, 0]


def _bounds_from(component, features, weighted, cuts, n_passes):
    """Return the bounds (D,) in nats of mixtures that start with a component for each interval.

    ``features`` of the sorted rows are (D, n, 3), and so are ``weighted``, the features times the
    weights of the rows. ``cuts`` (D, K - 1) are the last rows of all intervals but the last.
    """
    D, K = len(cuts), cuts.shape[1] + 1
    # Each column has a separate mixture. ``resp`` (D, K, n) has the responsibilities.
    labels = (np.arange(features.shape[1]) > cuts[:, :, None]).sum(axis=1)
    resp = (labels[:, None] == np.arange(K)[:, None]).astype(float)
    for _ in range(n_passes if K > 1 else 0):
        # Make the global step: expected coefficients of the features, and expected log weights.
        sums = resp @ weighted
        lam = component.natural_parameters(np.transpose(sums, (1, 2, 0)).reshape(K, -1))
        expectation = component.family.expectation(lam)
        coefficients = component.feature_coefficients(expectation).reshape(K, 3, D)
        log_stick, log_remainder = np.moveaxis(Beta.expectation(_sticks(sums[:, :, 0])), -1, 0)
        log_weights = log_stick + np.cumsum(log_remainder, axis=1) - log_remainder
        # Sticks are in descending order of the sizes of components, so that the rank of a component
        # by size selects its log weight.
        ranks = np.argsort(np.argsort(-sums[:, :, 0], axis=1, kind="stable"), axis=1)
        # Make the local step: responsibilities from log densities plus log weights.
        resp = np.transpose(coefficients, (2, 0, 1)) @ np.transpose(features, (0, 2, 1))
        resp += np.take_along_axis(log_weights, ranks, axis=1)[:, :, None]
        resp -= resp.max(axis=1, keepdims=True)
        np.exp(resp, out=resp)
        resp /= resp.sum(axis=1, keepdims=True)
    sums = resp @ weighted
    entropy = -(xlogy(resp, resp).sum(axis=1) * weighted[:, :, 0]).sum(axis=1)
    weights_evidence = Beta.log_normalizer(_sticks(sums[:, :, 0])).sum(axis=1)
    return _evidence(component, sums).sum(axis=1) + weights_evidence + entropy


def _sticks(counts):
    """Return the beta parameters (D, K, 2) of sticks, in descending order of the counts (D, K).

    The concentration is 1: the prior of sticks is Beta(1, 1), whose log normalizer is 0.
    """
    counts = -np.sort(-counts, axis=1)
    later_counts = np.maximum(counts[:, ::-1].cumsum(axis=1)[:, ::-1] - counts, 0.0)
    return 1.0 + np.stack([counts, later_counts], axis=-1)
