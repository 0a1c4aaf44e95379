"""The choice of the type of covariance by the exact bounds of short fits on a sample."""

from functools import partial
from operator import itemgetter

import numpy as np

from skvt.compiled import serial_map
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
# Types whose priors have diagonal scales. Only these are compared if there are too few rows to
# determine a matrix.
DIAGONAL = ("spherical", "diag", "low_rank")
# Minimum number of columns at which "low_rank" has fewer parameters than "full".
_COLUMNS_FOR_LOW_RANK = 4
# Maximum number of rows in the evenly spaced sample, and initial numbers of components of short
# fits. The numbers of components are limited by the number of rows that each component needs, or
# that a covariance matrix needs. If rows are few for their columns, components without covariance
# matrices may have fewer rows each, since many of them can be better than a few matrices.
MOST_ROWS = 3_000
NUMBERS = (3, 20)
_ROWS_FOR_EACH = 20
_FEWER_FOR_EACH = 10
# Maximum number of columns, evenly spaced, by which types are compared: the time for matrices grows
# with the cube of their number.
MOST_COLUMNS = 64
# Largest difference of close bounds in nats per row.
_CLOSE = 1.0
# Number of folds for held-out densities. A table is tiny if it has at most _TINY values and at most
# _TINY_ROWS rows per column. There are more folds then, since a fit needs nearly all rows.
_FOLDS = 4
_FOLDS_OF_TINY = 16
_TINY = 500
_TINY_ROWS = 4.0
# After the first part, a type is dropped if its density of at least so many rows is below that of
# the best type by more than so many standard errors of the difference.
_ROWS_OF_CLEAR = 20
_CLEARLY = 4.0
# Number of passes of a short fit; the last passes have merges.
_PASSES = 10


def best_type(X, weights, build, learned, most=None, among=CANDIDATES):
    """Return the best type of covariance; arguments are those of :func:`bounds_of_types`.

    It is the type with the highest bound. If there are few rows per column, types whose bounds are
    close to the highest are compared by the density of held-out rows under short fits.
    """
    X, weights = sample(X, weights, MOST_ROWS)
    bounds = bounds_of_types(X, weights, build, learned, most, among)
    best, *_ = bounds
    close = [kind for kind in bounds if bounds[kind] > bounds[best] - _CLOSE]
    if {"diag", "low_rank"} <= {*close} and _has_no_factors(bounds, float(weights.sum())):
        close.remove("low_rank")
    X = _some_columns(X)
    if not _has_few_rows(X, weights) or len(X) < _FOLDS or len(close) == 1:
        return best
    is_tiny = X.size <= _TINY and len(X) <= _TINY_ROWS * X.shape[1]
    n_folds = min(len(X), _FOLDS_OF_TINY) if is_tiny else _FOLDS
    parts, total = np.random.default_rng(0).permutation(len(X)) % n_folds, float(weights.sum())
    densities = {kind: 0.0 for kind in close}
    for part in range(n_folds):
        of_rows = {
            kind: _held_out_densities(
                X, weights, parts == part, partial(build, covariance_type=kind), learned, most
            )
            for kind in densities
        }
        for kind, values in of_rows.items():
            densities[kind] += values.sum() / total
        if part == 0:
            first = of_rows[max(of_rows, key=lambda kind: of_rows[kind].sum())]
            densities = {
                kind: densities[kind]
                for kind, values in of_rows.items()
                if not _is_clearly_below(values - first)
            }
    kinds = [*densities]
    return kinds[stable_argmax([densities[kind] for kind in kinds])]


def _has_no_factors(bounds, n_rows):
    """Return whether "low_rank" is "diag", less log 2 for each component's choice of rank."""
    return 0.0 <= n_rows * (bounds["diag"] - bounds["low_rank"]) <= NUMBERS[-1] * np.log(2.0)


def _is_clearly_below(differences):
    """Return whether the sum of the differences of rows is below 0 by many standard errors."""
    n_rows = differences.size
    error = np.sqrt(n_rows) * differences.std()
    return n_rows >= _ROWS_OF_CLEAR and differences.sum() < -_CLEARLY * error


def bounds_of_types(X, weights, build, learned, most=None, among=CANDIDATES):
    """Return the types of covariance with their highest bounds in short fits, best first.

    Bounds are in nats per row of a sample. Of types with equal bounds, the simpler comes first. The
    result depends neither on the number of threads nor on a random state. ``build`` takes rows,
    weights and a ``covariance_type``, and returns the component and its prior's parameters.
    ``learned`` are the names of learned parameters, ``most`` is the maximum number of components,
    and ``among`` are the types that are compared.
    """
    X, weights = sample(X, weights, MOST_ROWS)
    kinds = CANDIDATES if weights.sum() > ROWS_PER_COLUMN * X.shape[1] else DIAGONAL
    if X.shape[1] < _COLUMNS_FOR_LOW_RANK:
        kinds = tuple(kind for kind in kinds if kind != "low_rank")
    if X.shape[1] > MOST_COLUMNS and _has_few_rows(X, weights):
        kinds = DIAGONAL
    if X.shape[1] > MOST_COLUMNS and np.isnan(X).any():
        # The time for matrices also grows with the cube of the number of missing values in a row.
        kinds = tuple(kind for kind in kinds if kind not in MATRICES)
    X = _some_columns(X)
    bounds = {
        kind: _best_fit(X, weights, partial(build, covariance_type=kind), learned, most)[0]
        / float(weights.sum())
        for kind in kinds
        if kind in among
    }
    order = stable_order(-np.array([*bounds.values()]))
    return {kind: bounds[kind] for kind in np.array([*bounds])[order].tolist()}


def _some_columns(X):
    """Return evenly spaced columns, at most ``MOST_COLUMNS``."""
    columns = np.linspace(0, X.shape[1] - 1, min(X.shape[1], MOST_COLUMNS)).astype(np.intp)
    return X[:, columns]


def _has_few_rows(X, weights):
    """Return whether there are so few rows per column that scales of priors are diagonal."""
    return weights.sum() <= ROWS_PER_COLUMN_OF_SCALE * X.shape[1]


def _held_out_densities(X, weights, out, build, learned, most):
    """Return weighted log predictive densities of the rows ``out`` under a fit to the others."""
    _, memo, model = _best_fit(X[~out], weights[~out], build, learned, most)
    stats = RunningStats(memo.stats.arrays)
    return weights[out] * model.log_predictive(X[out], stats, serial_map)


def _best_fit(X, weights, build, learned, most):
    """Return the bound in nats, the memo and the model of the best short fit."""
    component, _ = build(X, weights)
    has_matrices = component.covariance_type in MATRICES
    if has_matrices or not _has_few_rows(X, weights):
        rows_for_each = max(_ROWS_FOR_EACH, int(ROWS_PER_COLUMN * X.shape[1]))
    else:
        rows_for_each = _FEWER_FOR_EACH
    upper_limit = max(NUMBERS[0], len(X) // rows_for_each)
    numbers = sorted({min(n, upper_limit, most or n) for n in NUMBERS})
    return max(_fits(X, weights, component, learned, numbers), key=itemgetter(0))


def sample(X, weights, most):
    """Return evenly spaced rows in memory, at most ``most``, and their weights."""
    rows = np.linspace(0, X.shape[0] - 1, min(X.shape[0], most)).astype(np.intp)
    X, weights = some_rows(X, weights, rows)
    return dense(X), weights


def _fits(X, weights, component, learned, numbers):
    """Fit mixtures of these numbers of components; return bounds in nats, memos and models."""
    learner = GaussianLearner.of(component, learned)
    model = Mixture(StickBreaking(1.0), component, learner=learner)
    with Workers(1) as workers:
        fits = [short_fit(model, X, weights, n, workers, _PASSES) for n in numbers]
    return [(bound_of(fitted, memo), memo, fitted) for memo, fitted in fits]


def short_fit(model, X, weights, n_components, workers, n_passes):
    """Fit a mixture to the rows; return its memo, and its model with learned priors."""
    batch, rng = model.batch(X, np.arange(len(X)), weights), np.random.default_rng(0)
    start = model.resized(n_components, learns=True)
    return fresh_mixture(start, batch, Tools(1, rng, workers), -np.inf, max_passes=n_passes)
