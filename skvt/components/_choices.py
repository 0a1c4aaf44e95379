"""The choice of the type of covariance by the exact bounds of short fits on a sample.

For each type of covariance, mixtures of few components are fitted to evenly spaced rows and
columns, and the type with the highest bound is chosen. Bounds depend on the prior if there are few
rows for each column. Types with close bounds are then compared by the density of rows that the
short fits have not seen. :func:`best_type` makes the choice.
"""

from functools import partial
from operator import itemgetter

import numpy as np

from skvt._compiled import serial_map
from skvt.expfam import RunningStats
from skvt.inference import Tools, Workers
from skvt.models.mixture import (
    MATRICES,
    ROWS_PER_COLUMN,
    ROWS_PER_COLUMN_OF_SCALE,
    GaussianLearner,
    Mixture,
    StickBreaking,
)
from skvt.moves import bound_of, fresh_mixture
from skvt.rows import dense, some_rows
from skvt.ties import stable_argmax, stable_order

# Types of covariance, the simplest first. The simplest of equally good types is chosen.
CANDIDATES = ("spherical", "diag", "tied", "low_rank", "full")
# Types whose priors have diagonal scales. Other types are not compared if there are too few rows to
# determine a matrix.
DIAGONAL = ("spherical", "diag", "low_rank")
# Minimum number of columns at which "low_rank" has fewer parameters than "full".
_COLUMNS_FOR_LOW_RANK = 4
# Maximum number of rows in the evenly spaced sample.
MOST_ROWS = 3_000
# Initial numbers of components of short fits, unless there are too few rows for the components.
NUMBERS = (3, 20)
# Minimum number of rows for each component. The second number is for components without covariance
# matrices if rows are few for their columns, because many of these components can be better than a
# few matrices.
_ROWS_FOR_EACH = 20
_FEWER_FOR_EACH = 10
# Maximum number of columns, evenly spaced, by which types are compared: the time for matrices grows
# with the cube of their number.
MOST_COLUMNS = 64
# Largest difference between close bounds, in nats per row.
_CLOSE = 1.0
# Number of folds for held-out densities. A tiny table has more folds, since a fit needs nearly all
# of its rows.
_FOLDS = 4
_FOLDS_OF_TINY = 16
# Maximum number of values of a tiny table, and of its rows per column.
_TINY = 500
_TINY_ROWS = 4.0
# After the first fold, a type is dropped if its density is below the density of the best type by
# more than _CLEARLY standard errors of the difference, and the fold has at least _ROWS_OF_CLEAR
# rows.
_ROWS_OF_CLEAR = 20
_CLEARLY = 4.0
# Number of passes of a short fit; the last passes have merges.
_PASSES = 10


def best_type(X, weights, build, learned, max_components=None, candidates=CANDIDATES):
    """Return the best type of covariance; arguments are those of :func:`bounds_of_types`.

    It is the type with the highest bound. If there are few rows per column, types whose bounds are
    close to the highest are compared by the density of held-out rows under short fits.
    """
    X, weights = sample(X, weights, MOST_ROWS)
    bounds = bounds_of_types(X, weights, build, learned, max_components, candidates)
    best, *_ = bounds
    close = [kind for kind in bounds if bounds[kind] > bounds[best] - _CLOSE]
    if {"diag", "low_rank"} <= {*close} and _has_no_factors(bounds, float(weights.sum())):
        close.remove("low_rank")
    X = _sample_columns(X)
    if not _has_few_rows(X, weights) or len(X) < _FOLDS or len(close) == 1:
        return best
    is_tiny = X.size <= _TINY and len(X) <= _TINY_ROWS * X.shape[1]
    n_folds = min(len(X), _FOLDS_OF_TINY) if is_tiny else _FOLDS
    folds = np.random.default_rng(0).permutation(len(X)) % n_folds
    total_weight = float(weights.sum())
    # Mean log densities of held-out rows, in nats.
    densities = {kind: 0.0 for kind in close}
    for fold in range(n_folds):
        densities_of_rows = {
            kind: _held_out_densities(
                X, weights, folds == fold, partial(build, covariance_type=kind), learned,
                max_components,
            )
            for kind in densities
        }  # fmt: skip
        for kind, row_densities in densities_of_rows.items():
            densities[kind] += row_densities.sum() / total_weight
        if fold == 0:
            highest = max(densities_of_rows.values(), key=np.sum)
            densities = {
                kind: densities[kind]
                for kind, row_densities in densities_of_rows.items()
                if not _is_clearly_negative(row_densities - highest)
            }
    kinds = [*densities]
    return kinds[stable_argmax([densities[kind] for kind in kinds])]


def _has_no_factors(bounds, n_rows):
    """Return whether the best fit of "low_rank" has rank 0, and thus is that of "diag".

    Its bound is then lower by log 2 for each component, the cost of choosing a rank. ``bounds`` are
    in nats per row, by type.
    """
    return 0.0 <= n_rows * (bounds["diag"] - bounds["low_rank"]) <= NUMBERS[-1] * np.log(2.0)


def _is_clearly_negative(differences):
    """Return whether the sum of differences (n,) of rows is below 0 by many standard errors."""
    n_rows = differences.size
    standard_error = np.sqrt(n_rows) * differences.std()
    return n_rows >= _ROWS_OF_CLEAR and differences.sum() < -_CLEARLY * standard_error


def bounds_of_types(X, weights, build, learned, max_components=None, candidates=CANDIDATES):
    """Return the types of covariance with their highest bounds in short fits, best first.

    The result is a dict of bounds in nats per row of a sample. If types have equal bounds, the
    simplest comes first. The result depends neither on the number of threads nor on a random state.
    ``build`` takes rows, weights and a ``covariance_type``, and returns the component and its
    prior's parameters. ``learned`` are the names of learned parameters of the prior. Types that are
    not among the ``candidates``, or that have more parameters than the rows can determine, are left
    out.
    """
    X, weights = sample(X, weights, MOST_ROWS)
    kinds = CANDIDATES if weights.sum() > ROWS_PER_COLUMN * X.shape[1] else DIAGONAL
    if X.shape[1] < _COLUMNS_FOR_LOW_RANK:
        kinds = tuple(kind for kind in kinds if kind != "low_rank")
    if X.shape[1] > MOST_COLUMNS and _has_few_rows(X, weights):
        kinds = DIAGONAL
    if X.shape[1] > MOST_COLUMNS and np.isnan(X).any():
        # Matrices are left out, because their time also grows with the cube of the number of
        # missing values in a row.
        kinds = tuple(kind for kind in kinds if kind not in MATRICES)
    X = _sample_columns(X)
    bounds = {}
    for kind in (kind for kind in kinds if kind in candidates):
        build_kind = partial(build, covariance_type=kind)
        bound, _, _ = _find_best_fit(X, weights, build_kind, learned, max_components)
        bounds[kind] = bound / float(weights.sum())
    order = stable_order(-np.array([*bounds.values()]))
    return {kind: bounds[kind] for kind in np.array([*bounds])[order].tolist()}


def _sample_columns(X):
    """Return evenly spaced columns, at most ``MOST_COLUMNS``."""
    columns = np.linspace(0, X.shape[1] - 1, min(X.shape[1], MOST_COLUMNS)).astype(np.intp)
    return X[:, columns]


def _has_few_rows(X, weights):
    """Return whether there are so few rows per column that scales of priors are diagonal."""
    return weights.sum() <= ROWS_PER_COLUMN_OF_SCALE * X.shape[1]


def _held_out_densities(X, weights, is_held_out, build, learned, max_components):
    """Return weighted log densities of held-out rows in nats, under a fit to the other rows.

    ``is_held_out`` (n,) is a mask of the rows.
    """
    X_train, weights_train = X[~is_held_out], weights[~is_held_out]
    _, memo, model = _find_best_fit(X_train, weights_train, build, learned, max_components)
    stats = RunningStats(memo.stats.arrays)
    return weights[is_held_out] * model.log_predictive(X[is_held_out], stats, serial_map)


def _find_best_fit(X, weights, build, learned, max_components):
    """Return the bound in nats, the memo and the model of the best short fit of one type."""
    component, _ = build(X, weights)
    has_matrices = component.covariance_type in MATRICES
    if has_matrices or not _has_few_rows(X, weights):
        rows_for_each = max(_ROWS_FOR_EACH, int(ROWS_PER_COLUMN * X.shape[1]))
    else:
        rows_for_each = _FEWER_FOR_EACH
    upper_limit = max(NUMBERS[0], len(X) // rows_for_each)
    numbers = sorted({min(n, upper_limit, max_components or n) for n in NUMBERS})
    learner = GaussianLearner.of(component, learned)
    model = Mixture(StickBreaking(1.0), component, learner=learner)
    with Workers(1) as workers:
        fits = [run_short_fit(model, X, weights, n, workers, _PASSES) for n in numbers]
    outcomes = [(bound_of(fitted, memo), memo, fitted) for memo, fitted in fits]
    return max(outcomes, key=itemgetter(0))


def sample(X, weights, max_rows):
    """Return at most ``max_rows`` evenly spaced rows as a dense array, and their weights."""
    rows = np.linspace(0, X.shape[0] - 1, min(X.shape[0], max_rows)).astype(np.intp)
    X, weights = some_rows(X, weights, rows)
    return dense(X), weights


def run_short_fit(model, X, weights, n_components, workers, n_passes):
    """Fit a mixture to the rows; return its memo, and its model with learned priors.

    ``n_components`` is the number of components with which the fit starts; merges may make it
    smaller.
    """
    batch, rng = model.batch(X, np.arange(len(X)), weights), np.random.default_rng(0)
    start = model.resized(n_components, learns=True)
    return fresh_mixture(start, batch, Tools(1, rng, workers), -np.inf, max_passes=n_passes)
