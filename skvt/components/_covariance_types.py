"""The type of covariance that data support best, by the exact bounds of short fits on a sample."""

import numpy as np

from skvt.inference import Workers, fresh_mixture
from skvt.models.mixture import ROWS_PER_COLUMN, GaussianLearner, Mixture, StickBreaking
from skvt.moves import bound_of
from skvt.rows import dense, some_rows
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


def bounds_of_types(X, weights, build, learned, most=None):
    """The types of covariance, and their highest bounds in short fits, best first.

    In nats per row of a sample; of equal ones the simpler type first. Neither the number of threads
    nor the random state matters. ``build`` makes of rows, weights and a type the component and its
    prior's parameters, of which some are ``learned``; there are ``most`` components at most.
    """
    number = min(X.shape[0], MOST_ROWS)
    rows = np.linspace(0, X.shape[0] - 1, number).astype(np.intp)
    X, weights = some_rows(X, weights, rows)
    X, total = dense(X), float(weights.sum())
    kinds = CANDIDATES if total > ROWS_PER_COLUMN * X.shape[1] else DIAGONAL
    of_each = max(_ROWS_FOR_EACH, int(ROWS_PER_COLUMN * X.shape[1]))
    enough = max(NUMBERS[0], number // of_each)
    numbers = sorted({min(n, enough, most or n) for n in NUMBERS})
    bounds = {}
    with Workers(1) as workers:
        for kind in kinds:
            component, _ = build(X, weights, kind)
            learner = GaussianLearner.of(component, learned)
            model = Mixture(StickBreaking(1.0), component, learner=learner)
            bounds[kind] = max(
                _short_fit(model, X, weights, n_components, workers) / total
                for n_components in numbers
            )
    order = stable_order(-np.array([*bounds.values()]))
    return {kind: bounds[kind] for kind in np.array([*bounds])[order].tolist()}


def _short_fit(model, X, weights, n_components, workers):
    """The bound of a mixture of the rows, with its priors learned."""
    batch, rng = model.batch(X, np.arange(len(X)), weights), np.random.default_rng(0)
    start = model.resized(n_components, learns=True)
    memo, model = fresh_mixture(start, batch, n_components, -np.inf, workers, rng, _PASSES)
    return bound_of(model, memo)
