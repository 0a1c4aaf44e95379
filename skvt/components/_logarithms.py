"""The choice of columns whose logarithms are modelled by Gaussians.

For each column, mixtures of one to three Gaussians are fitted to the values and to their
logarithms, with a Dirichlet process as the prior of weights. They start from the division of the
sorted values into intervals that has the highest evidence. Many columns are fitted at a time.
"""

import numpy as np
from scipy.special import xlogy

from skvt.components._choices import MOST_ROWS, sample
from skvt.expfam import Beta
from skvt.models.mixture import GaussianPrior, gaussian_component, weighted_moments
from skvt.rows import dense, pieces, sums_of_rows
from skvt.ties import stable_argmax

# Maximum number of values by which a column is judged, and the minimum sum of their weights.
_ROWS_OF_LOGS = 1_000
_FEWEST = 30
# Logarithms are chosen if they raise the bound by more than this, in nats.
_NATS = 10.0
# Numbers of passes of coordinate ascent: for all columns, and in a second fit for columns whose
# gain is less than _UNSURE nats away from _NATS.
_PASSES = (10, 40)
_UNSURE = 10.0
# Number of columns that are compared at a time.
_COLUMNS_AT_ONCE = 64
# The prior of mean and variance of a single column.
_PRIOR = GaussianPrior(degrees_of_freedom=1.0)


def columns_in_logarithms(X, weights, named=None):
    """Return the columns that are better in logarithms, and the least value of each.

    If ``named`` columns are passed, they are returned in place of the columns that are better. A
    column is better in logarithms if its values are positive and both a single Gaussian and the
    best of small mixtures have a higher bound. Smaller values than the least value are later raised
    to it. In logarithms, it is as far below the smallest value of a sample as this is below the
    mean. Raise ValueError if a named column has values that are not positive.
    """
    lacking = sums_of_rows(X, weights, _not_positive)[0] > 0.0
    if named is not None and lacking[named].any():
        raise ValueError(
            "The 'log' parameter must name columns of positive numbers. The column at place "
            f"{named[lacking[named]][0]} of the component holds others: leave it out, or give it "
            "to a Hurdle if they are zeros."
        )
    X, weights = sample(X, weights, MOST_ROWS)
    columns = np.flatnonzero(~lacking) if named is None else named
    chosen, least = [], []
    for part in pieces(columns.size, _COLUMNS_AT_ONCE):
        values = _some_values(X[:, columns[part]], weights)
        better = (
            np.full(values.shape[1], True) if named is not None else _are_better(values, weights)
        )
        chosen.extend(columns[part][better])
        for x in values[:, better].T:
            y, w = np.log(x[~np.isnan(x)]), weights[~np.isnan(x)]
            least.append(float(np.exp(2.0 * y.min() - np.average(y, weights=w))) if y.size else 1.0)
    return np.array(chosen, np.intp), tuple(least)


def _not_positive(X, weights):
    """Count the values of each column that have no logarithm, (D,), for `sums_of_rows`."""
    return ((weights > 0.0) @ (dense(X) <= 0.0),)


def _some_values(X, weights):
    """Return rows (n, D) with at most _ROWS_OF_LOGS values in each column; the others are NaN.

    The values are evenly spaced among those of rows of positive weight.
    """
    values = np.full(X.shape, np.nan)
    for j, observed in enumerate((~np.isnan(X) & (weights > 0.0)[:, None]).T):
        rows = np.flatnonzero(observed)
        rows = rows[np.linspace(0, rows.size - 1, min(rows.size, _ROWS_OF_LOGS)).astype(np.intp)]
        values[rows, j] = X[rows, j]
    return values


def _are_better(X, weights):
    """Return which columns (n, D) of positive numbers or NaN are better in logarithms, (D,)."""
    Y, number = np.log(X), weights @ ~np.isnan(X)
    volume = weights @ np.nan_to_num(Y)
    variances = np.array([weighted_moments(V, weights, "diag", False)[1] for V in (X, Y)])
    # A variance is 0 if all values of a column are equal, and NaN if it has no value.
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = 0.5 * number * np.log(variances[0] / variances[1]) - volume
    better = (number >= _FEWEST) & (variances.min(axis=0) > 0.0) & (gain > _NATS)
    compared, undecided = np.flatnonzero(better), slice(None)
    for n_passes in _PASSES:
        compared = compared[undecided]
        if compared.size:
            plain, logs = (_bounds(V[:, compared], weights, n_passes) for V in (X, Y))
            excess = logs - plain - volume[compared] - _NATS
            better[compared], undecided = excess > 0.0, abs(excess) < _UNSURE
    return better


def _bounds(X, weights, n_passes):
    """Return the highest bound of mixtures of one to three Gaussians for each column of X.

    X is (n, D), with NaN for missing values; the bounds are (D,) in nats.
    """
    component, _ = gaussian_component(X, weights, "diag", False, _PRIOR)
    order = np.argsort(X, axis=0, kind="stable")[: (~np.isnan(X)).sum(axis=0).max()]
    features = np.split(component.features(np.take_along_axis(X, order, axis=0)), 3, axis=1)
    features = np.ascontiguousarray(np.transpose(features, (2, 1, 0)))  # (D, n, 3)
    weighted = features * weights[order].T[:, :, None]
    # The sorted values are divided once. The part is then divided again in which this is best.
    sums, columns = np.cumsum(weighted, axis=1), np.arange(len(features))
    below, above = _evidence(component, sums), _evidence(component, sums[:, -1:] - sums)
    first = stable_argmax(below + above)[:, None]
    is_lower = np.arange(sums.shape[1]) < first
    rest = sums - sums[columns, first[:, 0]][:, None]
    between = _evidence(component, np.where(is_lower[:, :, None], -rest, rest))
    lower = below + between + np.take_along_axis(above, first, axis=1)
    upper = np.take_along_axis(below, first, axis=1) + between + above
    second = stable_argmax(np.where(is_lower, lower, upper))[:, None]
    cuts = np.sort(np.hstack([first, second]), axis=1)
    bounds = [
        _bound_from(component, features, weighted, at, n_passes)
        for at in (cuts[:, :0], first, cuts)
    ]
    return np.max(bounds, axis=0)


def _evidence(component, sums):
    """Return the log evidence in nats, (D, K), of Gaussians with sums of features (D, K, 3)."""
    flat = np.transpose(sums, (1, 2, 0)).reshape(sums.shape[1], -1)
    return component.column_evidence(flat).T - 0.5 * np.log(2.0 * np.pi) * sums[:, :, 0]


def _bound_from(component, features, weighted, cuts, n_passes):
    """Return the bounds (D,) of mixtures that start with a component for each interval of rows.

    ``features`` of the sorted rows are (D, n, 3), and so are ``weighted``, the features times the
    rows' weights. ``cuts`` (D, K - 1) are the last rows of all intervals but the last.
    """
    D, K = len(cuts), cuts.shape[1] + 1
    labels = (np.arange(features.shape[1]) > cuts[:, :, None]).sum(axis=1)
    resp = (labels[:, None] == np.arange(K)[:, None]).astype(float)  # (D, K, n)
    for _ in range(n_passes if K > 1 else 0):
        sums = resp @ weighted
        lam = component.natural_parameters(np.transpose(sums, (1, 2, 0)).reshape(K, -1))
        coefficients = component.gather(component.family.expectation(lam)).reshape(K, 3, D)
        log_stick, log_rest = np.moveaxis(Beta.expectation(_sticks(sums[:, :, 0])), -1, 0)
        log_weights = log_stick + np.cumsum(log_rest, axis=1) - log_rest
        by_size = np.argsort(np.argsort(-sums[:, :, 0], axis=1, kind="stable"), axis=1)
        resp = np.transpose(coefficients, (2, 0, 1)) @ np.transpose(features, (0, 2, 1))
        resp += np.take_along_axis(log_weights, by_size, axis=1)[:, :, None]
        resp -= resp.max(axis=1, keepdims=True)
        np.exp(resp, out=resp)
        resp /= resp.sum(axis=1, keepdims=True)
    sums = resp @ weighted
    entropy = -(xlogy(resp, resp).sum(axis=1) * weighted[:, :, 0]).sum(axis=1)
    weights_evidence = Beta.log_normalizer(_sticks(sums[:, :, 0])).sum(axis=1)
    return _evidence(component, sums).sum(axis=1) + weights_evidence + entropy


def _sticks(counts):
    """Return the beta parameters (D, K, 2) of sticks given counts (D, K), the largest count first.

    The concentration is 1: the prior of sticks is Beta(1, 1), whose log normalizer is 0.
    """
    counts = -np.sort(-counts, axis=1)
    smaller = np.maximum(counts[:, ::-1].cumsum(axis=1)[:, ::-1] - counts, 0.0)
    return 1.0 + np.stack([counts, smaller], axis=-1)
