"""The choice of the type of covariance by the exact bounds of short fits on a sample.

For each type of covariance, mixtures of few components are fitted to evenly spaced rows and
columns, and the type with the highest bound is chosen. Bounds depend on the prior if there are few
rows for each column. Types with close bounds are then also compared by the density of held-out
rows. :func:`choose_covariance_type` makes the choice.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from skvt._compiled import run_serially
from skvt.contracts import Memo
from skvt.expfam import RunningStats
from skvt.inference import EngineTools, Workers
from skvt.models.mixture import (
    MATRICES,
    ROWS_PER_COLUMN,
    ROWS_PER_COLUMN_OF_SCALE,
    GaussianLearner,
    Mixture,
    StickBreaking,
)
from skvt.moves import compute_bound, fit_fresh_mixture
from skvt.rows import dense, take_rows
from skvt.ties import stable_argmax, stable_order

# Types of covariance, the simplest first. The simplest of equally good types is chosen.
CANDIDATES = ("spherical", "diag", "tied", "low_rank", "full")
# Types whose priors have diagonal scales. Other types are not compared if there are too few rows to
# determine a matrix.
DIAGONAL = ("spherical", "diag", "low_rank")
# Minimum number of columns at which "low_rank" has fewer parameters than "full".
_COLUMNS_FOR_LOW_RANK = 4
# Maximum number of rows in the evenly spaced sample.
MAX_ROWS = 3_000
# Initial numbers of components of the short fits of a type, lower if there are too few rows.
NUMBERS = (3, 20)
# Minimum number of rows for each component. The second number is for components without covariance
# matrices if rows are few for their columns, because many of these components can be better than a
# few matrices.
_ROWS_FOR_EACH = 20
_FEWER_FOR_EACH = 10
# Maximum number of columns, evenly spaced, by which types are compared: the time for matrices grows
# with the cube of their number.
MAX_COLUMNS = 64
# Largest difference between close bounds, in nats per row and column. The influence of the prior
# grows with the number of parameters of a matrix. It is thus proportional to the number of columns
# if there are equally many rows for each column.
_CLOSE = 0.05
# Maximum number of folds for held-out densities, and minimum number of rows.
_FOLDS = 4
_MIN_ROWS = 4
# The held-out density of a type is clearly below that of the best type if the winsorised mean of
# the rows' differences is negative by more than _CLEARLY standard errors. The largest and the
# smallest differences, a share of _TAIL each, are replaced by the next ones, because the densities
# of unusual rows vary by hundreds of nats.
_CLEARLY = 1.5
_TAIL = 0.05
# A component is left out of a start unless the weight of its rows is more than this.
_MIN_WEIGHT = 1e-9
# Number of passes of a short fit, of which the last passes have merges.
_PASSES = 10
# Number of passes of a fit to the rows outside of a fold, which starts from the clusters of a short
# fit.
_PASSES_OF_FOLD = 1


class ShortFit(NamedTuple):
    """A short fit to a sample of the rows."""

    # Bound in nats per row.
    bound: float
    # Statistics of the rows and terms of the bound, as memoized inference keeps them.
    memo: Memo
    # The model with learned priors.
    model: Mixture


def choose_covariance_type(
    X, weights, build, learned_names, max_components=None, candidates=CANDIDATES, may_start=False
):
    """Return the best type of covariance, and the short fit from which the fit starts, or None.

    If ``may_start``, the fit starts from the short fit of the best type, unless there are many rows
    per column, or the short fit has only some of the rows or columns. The other arguments are those
    of :func:`fit_each_type`.

    The best type is the type with the highest bound. If there are few rows per column, the best
    type is the first of the types with close bounds, highest bound first, under which the density
    of held-out rows is not clearly lower than under the type with the highest density.
    """
    is_complete = X.shape[0] <= MAX_ROWS and X.shape[1] <= MAX_COLUMNS
    X, weights = select_evenly_spaced(X, weights, MAX_ROWS)
    fits = fit_each_type(X, weights, build, learned_names, max_components, candidates)
    best, *_ = fits
    X = _sample_columns(X)
    if not _has_few_rows(X, weights) or len(X) < _MIN_ROWS:
        return best, None
    models = {
        kind: partial(_mixture, build=partial(build, covariance_type=kind), names=learned_names)
        for kind in fits
    }
    lowest_bound = fits[best].bound - _CLOSE * X.shape[1]
    close = [kind for kind in fits if fits[kind].bound > lowest_bound]
    if len(close) > 1:
        densities = [_held_out_densities(X, weights, models[kind], fits[kind]) for kind in close]
        highest = densities[stable_argmax(np.sum(densities, axis=1))]
        is_lower = [_is_clearly_negative(of_kind - highest) for of_kind in densities]
        best = close[is_lower.index(False)]
    is_start = may_start and is_complete
    if is_start and _is_better_than_default(X, weights, models[best], fits[best]):
        return best, fits[best]
    return best, None


def _is_better_than_default(X, weights, make_model, fit):
    """Return whether the fit should start from the short fit, rather than from one component.

    A short fit of several components should be the start. A short fit that has merged all of its
    components into one should be the start only if held-out rows have a clearly higher density
    under its prior than under the default prior, because one component does not determine a prior.
    """
    if fit.memo.entropy.size > 1:
        return True
    default, learned = (
        _held_out_densities(X, weights, make, fit) for make in (make_model, lambda *_: fit.model)
    )
    return _is_clearly_negative(default - learned)


def _is_clearly_negative(differences):
    """Return whether the winsorised mean of differences (n,) is clearly below 0."""
    differences = differences.clip(*np.quantile(differences, [_TAIL, 1.0 - _TAIL]))
    return differences.mean() < -_CLEARLY * differences.std() / np.sqrt(differences.size)


def fit_each_type(X, weights, build, learned_names, max_components=None, candidates=CANDIDATES):
    """Return a dict of the best short fit of each type of covariance, highest bound first.

    If types have equal bounds, the simplest comes first. The result depends neither on the number
    of threads nor on a random state. If there are few rows per column, a fit of each type also
    starts from the clusters of the best simpler type. Without this fit, random initial components
    of few rows with matrices are often merged before they separate the clusters.

    ``build`` takes rows, weights and a ``covariance_type``, and returns the component and its
    prior's parameters. ``learned_names`` are the names of learned parameters of the prior. Types
    that are not among the ``candidates``, or that have more parameters than the rows can determine,
    are left out.
    """
    X, weights = select_evenly_spaced(X, weights, MAX_ROWS)
    kinds = CANDIDATES if weights.sum() > ROWS_PER_COLUMN * X.shape[1] else DIAGONAL
    if X.shape[1] < _COLUMNS_FOR_LOW_RANK:
        kinds = tuple(kind for kind in kinds if kind != "low_rank")
    if X.shape[1] > MAX_COLUMNS and _has_few_rows(X, weights):
        kinds = DIAGONAL
    if X.shape[1] > MAX_COLUMNS and np.isnan(X).any():
        # Matrices are left out, because their time also grows with the cube of the number of
        # missing values in a row.
        kinds = tuple(kind for kind in kinds if kind not in MATRICES)
    X = _sample_columns(X)
    fits = {}
    for kind in (kind for kind in kinds if kind in candidates):
        build_kind = partial(build, covariance_type=kind)
        clusters = None
        if fits and _has_few_rows(X, weights):
            best = stable_argmax([fit.bound for fit in fits.values()])
            clusters = _responsibilities([*fits.values()][best], X, weights)
        fits[kind] = _find_best_fit(X, weights, build_kind, learned_names, max_components, clusters)
    order = stable_order([-fit.bound for fit in fits.values()])
    return {kind: fits[kind] for kind in np.array([*fits])[order].tolist()}


def _sample_columns(X):
    """Return evenly spaced columns, at most ``MAX_COLUMNS``."""
    columns = np.linspace(0, X.shape[1] - 1, min(X.shape[1], MAX_COLUMNS)).astype(np.intp)
    return X[:, columns]


def _has_few_rows(X, weights):
    """Return whether there are so few rows per column that scales of priors are diagonal."""
    return weights.sum() <= ROWS_PER_COLUMN_OF_SCALE * X.shape[1]


def _held_out_densities(X, weights, make_model, fit):
    """Return the weighted log density (n,) in nats of each row under a fit to the other folds.

    ``make_model`` returns the model of rows and weights. Each of these fits starts from the
    clusters of ``fit`` to all rows, and differs from it only by the rows of a fold, so that
    densities depend little on how rows are divided into folds.
    """
    responsibilities = _responsibilities(fit, X, weights)
    n_folds = min(len(X), _FOLDS)
    folds = np.random.default_rng(0).permutation(len(X)) % n_folds
    densities = np.empty(len(X))
    for fold in range(n_folds):
        is_used = folds != fold
        rows = X[is_used], weights[is_used]
        start = _start_from(make_model(*rows), *rows, responsibilities[is_used])
        with Workers(1) as workers:
            memo, model = run_passes(start, *rows, workers, _PASSES_OF_FOLD)
        stats = RunningStats(memo.stats.arrays)
        densities[~is_used] = model.log_predictive(X[~is_used], stats, run_serially)
    return weights * densities


def _mixture(X, weights, build, names):
    """Return the model of a short fit to the rows X, with the ``names`` of learned parameters."""
    component, _ = build(X, weights)
    return Mixture(
        StickBreaking(1.0),
        component,
        learner=GaussianLearner.from_component(component, names),
    )


def _find_best_fit(X, weights, build, learned_names, max_components, clusters):
    """Return the best short fit of one type.

    ``clusters`` are responsibilities (n, K) from which one of the fits starts, or None.
    """
    model = _mixture(X, weights, build, learned_names)
    has_matrices = model.component.covariance_type in MATRICES
    if has_matrices or not _has_few_rows(X, weights):
        rows_for_each = max(_ROWS_FOR_EACH, int(ROWS_PER_COLUMN * X.shape[1]))
    else:
        rows_for_each = _FEWER_FOR_EACH
    upper_limit = max(NUMBERS[0], len(X) // rows_for_each)
    numbers = sorted({min(n, upper_limit, max_components or n) for n in NUMBERS})
    starts = [model.resized(n, learns_priors=True) for n in numbers]
    if clusters is not None:
        starts.append(_start_from(model, X, weights, clusters))
    with Workers(1) as workers:
        fits = [run_passes(start, X, weights, workers, _PASSES) for start in starts]
    bounds = [compute_bound(fitted, memo) for memo, fitted in fits]
    best = stable_argmax(bounds)
    return ShortFit(bounds[best] / float(weights.sum()), *fits[best])


def _responsibilities(fit, X, weights):
    """Return the responsibilities (n, K) of the components of a short fit to these rows."""
    batch, stats = _batch_of(fit.model, X, weights), RunningStats(fit.memo.stats.arrays)
    global_params = fit.model.expectation(stats, batch, run_serially)
    return fit.model.local_step(batch, global_params, 1.0, run_serially, with_stats=False).q


def select_evenly_spaced(X, weights, max_rows):
    """Return at most ``max_rows`` evenly spaced rows as a dense array, and their weights."""
    rows = np.linspace(0, X.shape[0] - 1, min(X.shape[0], max_rows)).astype(np.intp)
    X, weights = take_rows(X, weights, rows)
    return dense(X), weights


def _start_from(model, X, weights, responsibilities):
    """Return the model that starts from components with these responsibilities (n, K)."""
    has_rows = weights @ responsibilities > _MIN_WEIGHT
    batch = _batch_of(model, X, weights)
    stats = model.make_local_result(batch, responsibilities[:, has_rows]).stats
    return replace(model.resized(int(has_rows.sum()), learns_priors=True), start=stats)


def run_passes(start, X, weights, workers, n_passes):
    """Fit a mixture to the rows by at most ``n_passes`` passes, from the components of ``start``.

    Return the :class:`~skvt.contracts.Memo` of the rows, and the model with learned priors. Merges
    may make the number of components smaller. The fit has no goal: it does not end early because
    its bound is low.
    """
    tools = EngineTools(n_iter=1, rng=np.random.default_rng(0), workers=workers)
    batch = _batch_of(start, X, weights)
    return fit_fresh_mixture(start, batch, tools, goal=-np.inf, max_passes=n_passes)


def _batch_of(model, X, weights):
    """Return all rows as one batch."""
    return model.batch(X, np.arange(len(X)), weights)
