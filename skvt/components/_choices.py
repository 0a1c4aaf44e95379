"""What data support best, by the exact bounds of short fits on a sample.

The type of covariance, and whether a column or its logarithm is Gaussian.
"""

import numpy as np

from skvt.inference import Workers, fresh_mixture
from skvt.models.mixture import (
    ROWS_PER_COLUMN,
    GaussianLearner,
    Mixture,
    StickBreaking,
    gaussian_component,
)
from skvt.moves import bound_of
from skvt.rows import dense, some_rows, sums_of_rows
from skvt.ties import stable_order

# From the simplest, which is taken where several are equally good.
CANDIDATES = ("spherical", "diag", "tied", "low_rank", "full")
# Those whose scales of priors are diagonal: rows too few for a matrix determine no others.
DIAGONAL = ("spherical", "diag", "low_rank")
# Number of rows of the sample, evenly spaced, and numbers of components that short fits begin
# with, at most the sample's number of rows over the number of rows that each needs, or that a
# matrix of its columns needs.
MOST_ROWS = 3_000
NUMBERS = (3, 20)
_ROWS_FOR_EACH = 20
# Passes of a short fit, the last ones with merges.
_PASSES = 10
# Values that say whether a column is better in logarithms, the fewest of them, and by how many nats
# the bound must be higher.
_ROWS_OF_LOGS = 1_000
_FEWEST = 30
_NATS = 10.0


def bounds_of_types(X, weights, build, learned, most=None):
    """The types of covariance, and their highest bounds in short fits, best first.

    In nats per row of a sample; of equal ones the simpler type first. Neither the number of threads
    nor the random state matters. ``build`` makes of rows, weights and a type the component and its
    prior's parameters, of which some are ``learned``; there are ``most`` components at most.
    """
    X, weights = sample(X, weights, MOST_ROWS)
    kinds = CANDIDATES if weights.sum() > ROWS_PER_COLUMN * X.shape[1] else DIAGONAL
    of_each = max(_ROWS_FOR_EACH, int(ROWS_PER_COLUMN * X.shape[1]))
    enough = max(NUMBERS[0], len(X) // of_each)
    numbers = sorted({min(n, enough, most or n) for n in NUMBERS})
    bounds = {
        kind: _bound(X, weights, build(X, weights, kind)[0], learned, numbers) for kind in kinds
    }
    order = stable_order(-np.array([*bounds.values()]))
    return {kind: bounds[kind] for kind in np.array([*bounds])[order].tolist()}


def columns_in_logarithms(X, weights, given=None):
    """Columns that are better in logarithms, or given ones, and the least number of each.

    Values are positive, and one Gaussian and the bound of a short fit to the column alone say so.
    The least is as far below the smallest value of a sample as this is below their mean, in
    logarithms. ValueError where given columns are not positive.
    """
    lacking = sums_of_rows(X, weights, _not_positive)[0] > 0.0
    if given is not None and lacking[given].any():
        raise ValueError(
            "The 'log' parameter must name columns of positive numbers. The column at place "
            f"{given[lacking[given]][0]} of the component holds others: leave it out, or give it "
            "to a Hurdle if they are zeros."
        )
    X, weights = sample(X, weights, MOST_ROWS)
    found, least = [], []
    for j in np.flatnonzero(~lacking) if given is None else given:
        there = ~np.isnan(X[:, j]) & (weights > 0.0)
        x, w = sample(X[there][:, [j]].astype(np.float64), weights[there], _ROWS_OF_LOGS)
        if given is not None or (w.sum() >= _FEWEST and _is_better_in_logarithms(x, w)):
            found.append(j)
            y = np.log(x[:, 0]) if x.size else np.zeros(1)
            least.append(
                float(np.exp(2.0 * y.min() - np.average(y, weights=w if x.size else None)))
            )
    return np.array(found, np.intp), tuple(least)


def _is_better_in_logarithms(x, weights):
    """Whether positive values (n, 1) are: under one Gaussian, and under mixtures of a few."""
    y = np.log(x)
    volume, least = weights @ y[:, 0], _NATS / weights.sum()
    deviations = [np.sqrt(np.cov(v[:, 0], aweights=weights, ddof=0)) for v in (x, y)]
    if not min(deviations) > 0.0:  # (all values are the same)
        return False
    if not np.log(deviations[0]) - np.log(deviations[1]) - volume / weights.sum() > least:
        return False
    plain, logged = (
        _bound(
            v, weights, gaussian_component(v, weights, "diag", False)[0], frozenset(), NUMBERS[:1]
        )
        for v in (x, y)
    )
    return logged - plain - volume / weights.sum() > least


def sample(X, weights, most):
    """Evenly spaced rows in memory, at most ``most``, and their weights."""
    rows = np.linspace(0, X.shape[0] - 1, min(X.shape[0], most)).astype(np.intp)
    X, weights = some_rows(X, weights, rows)
    return dense(X), weights


def _not_positive(X, weights):
    """Number of values of each column that have no logarithm, (D,); for `sums_of_rows`."""
    return ((weights > 0.0) @ (dense(X) <= 0.0),)


def _bound(X, weights, component, learned, numbers):
    """The highest bound of mixtures of these numbers of components, in nats per row."""
    learner = GaussianLearner.of(component, learned)
    model = Mixture(StickBreaking(1.0), component, learner=learner)
    with Workers(1) as workers:
        fits = [short_fit(model, X, weights, n, workers, _PASSES) for n in numbers]
    return max(bound_of(own, memo) for memo, own in fits) / float(weights.sum())


def short_fit(model, X, weights, n_components, workers, n_passes):
    """The memo of a mixture of the rows, and its model with the priors learned."""
    batch, rng = model.batch(X, np.arange(len(X)), weights), np.random.default_rng(0)
    start = model.resized(n_components, learns=True)
    return fresh_mixture(start, batch, -np.inf, workers, rng, most_passes=n_passes)
