"""The choice of the type of covariance by the exact bounds of short fits on a sample.

For each type of covariance, mixtures are fitted to evenly spaced rows and columns by a few passes,
and the type with the highest bound is chosen. If there are few rows for each column, bounds depend
strongly on the prior. Types with close bounds are then also compared by the density of held-out
rows. :func:`choose_covariance_type` makes the choice.

In shapes, n is the number of rows and K the number of components.
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
    LOW_RANK_TYPES,
    MATRIX_TYPES,
    MIN_ROWS_PER_COLUMN_OF_MATRIX,
    MIN_ROWS_PER_COLUMN_OF_SCALE,
    GaussianLearner,
    Mixture,
    StickBreaking,
)
from skvt.moves import compute_bound, fit_fresh_mixture
from skvt.rows import dense, take_rows
from skvt.ties import stable_argmax, stable_order

# Types of covariance, the simplest first, because the simplest of equally good types is chosen. The
# constant `MATRIX_TYPES` lists the types with covariance matrices.
CANDIDATE_TYPES = ("spherical", "diag", "tied_low_rank", "tied", "low_rank", "full")
# Types whose priors have diagonal scales. Only these types are compared if there are too few rows
# to determine a matrix.
DIAGONAL_TYPES = ("spherical", "diag", "tied_low_rank", "low_rank")
# Minimum number of columns for the types of low rank. From there on, "low_rank" has fewer
# parameters than "full".
_MIN_COLUMNS_OF_LOW_RANK = 4
# Maximum number of rows in the evenly spaced sample.
MAX_ROWS = 3_000
# Initial numbers of components of the short fits of a type. They are reduced if there are fewer
# than _ROWS_PER_COMPONENT rows per component, or fewer than _FEWER_ROWS_PER_COMPONENT if there are
# few rows per column and the type has no covariance matrices. The second limit is lower, because
# many components without matrices can be better than a few components with matrices.
INITIAL_NUMBERS = (3, 20)
_ROWS_PER_COMPONENT = 20
_FEWER_ROWS_PER_COMPONENT = 10
# Maximum number of columns, evenly spaced, by which types are compared. The time for covariance
# matrices grows with the cube of the number of columns.
MAX_COLUMNS = 64
# Bounds are close if they differ by less than this, in nats per row and column. The influence of
# the prior on the bound per row grows with the number D of columns, too: a matrix has D^2 entries,
# and with c rows per column there are c D rows.
_CLOSE_BOUNDS = 0.05
# Maximum number of folds for held-out densities.
_MAX_FOLDS = 4
# Minimum number of rows for a comparison by held-out densities.
_MIN_ROWS_OF_FOLDS = 4
# The held-out density of a type is clearly lower than the density of another type if the winsorised
# mean of the differences is negative by more than _CLEAR_STANDARD_ERRORS standard errors. To
# winsorise, the share _TAIL_SHARE of the differences at each end is clipped at the quantile,
# because the log densities of unusual rows vary by hundreds of nats.
_CLEAR_STANDARD_ERRORS = 1.5
_TAIL_SHARE = 0.05
# A short fit starts only from components whose rows have a larger total weight than this.
_MIN_WEIGHT = 1e-9
# Maximum number of passes of a short fit.
_MAX_PASSES = 10
# Maximum number of passes of a fit to the rows outside of a fold. Few passes suffice, because the
# fit starts from the clusters of a short fit.
_MAX_PASSES_OF_FOLD = 1


class ShortFit(NamedTuple):
    """A short fit to a sample of the rows."""

    # Bound in nats per row.
    bound: float
    # Statistics of the rows and terms of the bound, as memoized inference keeps them. The field
    # ``entropy`` (K,) has a term for each component that is left after merges.
    memo: Memo
    # The model with learned priors.
    model: Mixture


def choose_covariance_type(
    X, weights, build, learned_names, max_components=None, candidates=CANDIDATE_TYPES, *,
    may_start=False,
):  # fmt: skip
    """Return the best type of covariance, and the short fit from which the user's fit starts.

    :func:`fit_each_type` explains the arguments before ``may_start``.

    The best type is the type with the highest bound. If there are few rows per column, it is
    instead the first type, in descending order of bounds, whose held-out density is not clearly
    lower than the highest held-out density among the types with close bounds.

    The second result is None unless ``may_start`` is set, all rows and columns were used for the
    choice, and there are few rows per column. A short fit with a single component is returned only
    if its prior is clearly better than the default prior.
    """
    is_complete = X.shape[0] <= MAX_ROWS and X.shape[1] <= MAX_COLUMNS
    X, weights = select_evenly_spaced(X, weights, MAX_ROWS)
    fits = fit_each_type(X, weights, build, learned_names, max_components, candidates)
    # The first key is the type with the highest bound.
    best_type, *_ = fits
    # From here on, X has only the columns of the short fits. Their number decides whether there are
    # few rows per column.
    X = _sample_columns(X)
    if not _has_few_rows(X, weights) or len(X) < _MIN_ROWS_OF_FOLDS:
        return best_type, None
    # For each type, a function that takes rows and weights and returns the model.
    model_makers = {
        name: partial(
            _make_mixture, build=partial(build, covariance_type=name), learned_names=learned_names
        )
        for name in fits
    }
    lowest_bound = fits[best_type].bound - _CLOSE_BOUNDS * X.shape[1]
    close_types = [name for name in fits if fits[name].bound > lowest_bound]
    if len(close_types) > 1:
        # For each type, the log densities (n,) of held-out rows.
        densities = [
            _score_held_out(X, weights, model_makers[name], fits[name]) for name in close_types
        ]
        best_densities = densities[stable_argmax(np.sum(densities, axis=1))]
        are_lower = [_is_clearly_negative(scores - best_densities) for scores in densities]
        # The types are in descending order of their bounds.
        best_type = close_types[are_lower.index(False)]
    is_possible_start = may_start and is_complete
    if is_possible_start and _is_good_start(X, weights, model_makers[best_type], fits[best_type]):
        return best_type, fits[best_type]
    return best_type, None


def _is_good_start(X, weights, make_model, fit):
    """Return whether the user's fit should start from ``fit``, the short fit of the best type.

    A short fit of several components is a good start. If a short fit has merged all components into
    one, which does not determine a prior, it is a good start only if held-out rows have a clearly
    higher density under its prior than under the default prior.
    """
    if fit.memo.entropy.size > 1:
        return True
    # ``make_model`` makes models with the default prior. ``fit.model`` has the learned prior.
    default_densities = _score_held_out(X, weights, make_model, fit)
    learned_densities = _score_held_out(X, weights, lambda *_: fit.model, fit)
    return _is_clearly_negative(default_densities - learned_densities)


def _is_clearly_negative(differences):
    """Return whether the winsorised mean of differences (n,) is clearly below 0."""
    differences = differences.clip(*np.quantile(differences, [_TAIL_SHARE, 1.0 - _TAIL_SHARE]))
    threshold = -_CLEAR_STANDARD_ERRORS * differences.std() / np.sqrt(differences.size)
    return differences.mean() < threshold


def fit_each_type(
    X, weights, build, learned_names, max_components=None, candidates=CANDIDATE_TYPES
):
    """Return a dict of the best short fit of each type of covariance, highest bound first.

    If types have equal bounds, the simplest comes first. The result depends neither on the number
    of threads nor on a random state. If there are few rows per column, a fit of each type also
    starts from the clusters of the best simpler type. Random initial components that have few rows
    and a covariance matrix are often merged before they separate the clusters.

    ``build`` takes rows, weights and a ``covariance_type``, and returns the component and its
    prior's parameters. ``learned_names`` are the names of learned parameters of the prior, and
    ``max_components`` is the maximum number of components, or None. Types that are not among the
    ``candidates``, or that have more parameters than the rows can determine, are left out.
    """
    X, weights = select_evenly_spaced(X, weights, MAX_ROWS)
    names = _find_determined_types(X, weights)
    X = _sample_columns(X)
    # The best short fit of each type so far, simpler types first.
    fits = {}
    for name in (name for name in names if name in candidates):
        build_type = partial(build, covariance_type=name)
        resp = None
        if fits and _has_few_rows(X, weights):
            best_index = stable_argmax([fit.bound for fit in fits.values()])
            resp = _compute_responsibilities([*fits.values()][best_index], X, weights)
        fits[name] = _find_best_fit(X, weights, build_type, learned_names, max_components, resp)
    order = stable_order([-fit.bound for fit in fits.values()])
    return {name: fits[name] for name in np.array([*fits])[order].tolist()}


def _find_determined_types(X, weights):
    """Return the types whose parameters the rows X can determine, simplest first.

    X has all columns, like the user's fit, and not only the columns of the short fits.
    """
    may_have_matrices = weights.sum() > MIN_ROWS_PER_COLUMN_OF_MATRIX * X.shape[1]
    names = CANDIDATE_TYPES if may_have_matrices else DIAGONAL_TYPES
    if X.shape[1] < _MIN_COLUMNS_OF_LOW_RANK:
        names = tuple(name for name in names if name not in LOW_RANK_TYPES)
    if X.shape[1] > MAX_COLUMNS and _has_few_rows(X, weights):
        # There are too few rows for matrices of all columns, even if there are enough rows for
        # matrices of the sampled columns.
        names = DIAGONAL_TYPES
    if X.shape[1] > MAX_COLUMNS and np.isnan(X).any():
        # Matrices are left out, because their time also grows with the cube of the number of
        # missing values in a row.
        names = tuple(name for name in names if name not in MATRIX_TYPES)
    return names


def _sample_columns(X):
    """Return evenly spaced columns, at most ``MAX_COLUMNS``."""
    columns = np.linspace(0, X.shape[1] - 1, min(X.shape[1], MAX_COLUMNS)).astype(np.intp)
    return X[:, columns]


def _has_few_rows(X, weights):
    """Return whether there are so few rows per column of X that scales of priors are diagonal."""
    return weights.sum() <= MIN_ROWS_PER_COLUMN_OF_SCALE * X.shape[1]


def _score_held_out(X, weights, make_model, fit):
    """Return the weighted log density (n,) in nats of each row under a fit to the other folds.

    ``make_model`` returns the model for rows and weights. The rows are divided into folds at
    random. For each fold, a model is fitted to all rows outside of the fold. It starts from the
    clusters of ``fit``, a fit to all rows, so that densities depend little on the division into
    folds.
    """
    resp = _compute_responsibilities(fit, X, weights)
    n_folds = min(len(X), _MAX_FOLDS)
    folds = np.random.default_rng(0).permutation(len(X)) % n_folds
    densities = np.empty(len(X))
    for fold in range(n_folds):
        is_used = folds != fold
        used_rows, used_weights = X[is_used], weights[is_used]
        model = make_model(used_rows, used_weights)
        start_model = _make_start_model(model, used_rows, used_weights, resp[is_used])
        memo, model = run_passes(start_model, used_rows, used_weights, _MAX_PASSES_OF_FOLD)
        stats = RunningStats(memo.stats.arrays)
        densities[~is_used] = model.log_predictive(X[~is_used], stats, run_serially)
    return weights * densities


def _make_mixture(X, weights, build, learned_names):
    """Return the model of a short fit to the rows X, which learns ``learned_names``."""
    component, _ = build(X, weights)
    return Mixture(
        StickBreaking(1.0),
        component,
        learner=GaussianLearner.from_component(component, learned_names),
    )


def _find_best_fit(X, weights, build, learned_names, max_components, resp):
    """Return the best short fit of the type of covariance that ``build`` makes.

    A fit starts from random components for each number in ``INITIAL_NUMBERS``. Another fit starts
    from ``resp``, responsibilities (n, K), unless they are None.
    """
    model = _make_mixture(X, weights, build, learned_names)
    has_matrices = model.component.covariance_type in MATRIX_TYPES
    if has_matrices or not _has_few_rows(X, weights):
        rows_per_component = max(
            _ROWS_PER_COMPONENT, int(MIN_ROWS_PER_COLUMN_OF_MATRIX * X.shape[1])
        )
    else:
        rows_per_component = _FEWER_ROWS_PER_COMPONENT
    # The rows limit the numbers of components, but the smallest initial number is always allowed.
    upper_limit = max(min(INITIAL_NUMBERS), len(X) // rows_per_component)
    numbers = sorted({min(n, upper_limit, max_components or n) for n in INITIAL_NUMBERS})
    starts = [model.resized(n, learns_priors=True) for n in numbers]
    if resp is not None:
        starts.append(_make_start_model(model, X, weights, resp))
    fits = [run_passes(start, X, weights, _MAX_PASSES) for start in starts]
    bounds = [compute_bound(model_of_fit, memo) for memo, model_of_fit in fits]
    best_index = stable_argmax(bounds)
    return ShortFit(bounds[best_index] / float(weights.sum()), *fits[best_index])


def _compute_responsibilities(fit, X, weights):
    """Return the responsibilities (n, K) of the components of ``fit`` for the rows of X."""
    batch, stats = _make_batch(fit.model, X, weights), RunningStats(fit.memo.stats.arrays)
    global_params = fit.model.expectation(stats, batch, run_serially)
    inv_temp = 1.0
    return fit.model.local_step(batch, global_params, inv_temp, run_serially, with_stats=False).q


def select_evenly_spaced(X, weights, max_rows):
    """Return at most ``max_rows`` evenly spaced rows as a dense array, and their weights."""
    rows = np.linspace(0, X.shape[0] - 1, min(X.shape[0], max_rows)).astype(np.intp)
    X, weights = take_rows(X, weights, rows)
    return dense(X), weights


def _make_start_model(model, X, weights, resp):
    """Return the model whose initial components have the responsibilities ``resp`` (n, K).

    Components almost without rows are left out.
    """
    has_rows = weights @ resp > _MIN_WEIGHT
    batch = _make_batch(model, X, weights)
    stats = model.make_local_result(batch, resp[:, has_rows]).stats
    return replace(model.resized(int(has_rows.sum()), learns_priors=True), start=stats)


def run_passes(start, X, weights, n_passes):
    """Fit a mixture to the rows by at most ``n_passes`` passes, from the components of ``start``.

    ``start`` is a model with initial values. Return the :class:`~skvt.contracts.Memo` of the
    rows, and the model with learned priors. Merges may make the number of components smaller.
    """
    batch = _make_batch(start, X, weights)
    with Workers(1) as workers:
        tools = EngineTools(n_iter=1, rng=np.random.default_rng(0), workers=workers)
        # A fit ends early if it cannot reach the bound ``goal``. With -inf it never ends early.
        return fit_fresh_mixture(start, batch, tools, goal=-np.inf, max_passes=n_passes)


def _make_batch(model, X, weights):
    """Return all rows as a single batch."""
    return model.batch(X, np.arange(len(X)), weights)
