"""Functions that make the plan of a fit, or parts of it, from the parameters of estimators.

A :class:`~skvt.inference.Plan` tells :mod:`skvt.fitting._fit` how to make a fit. It has the rows in
batches, the *engine*, that is, the inference algorithm, the temperature policy and the rules for
stopping. *Moves*, such as births, change the number of components between passes.
"""

from functools import partial

from skvt.inference import (
    MemoizedInference,
    Phase,
    Pilot,
    Plan,
    StochasticInference,
    Stopping,
    StreamPlan,
    make_rows,
)
from skvt.moves import Birth, Delete, Merge
from skvt.readers.validation import illegal_value_error
from skvt.schedules import RobbinsMonro
from skvt.temperature import POLICIES, ConstantTemperature

# Smallest and largest default number of rows per batch. Between these limits, the default is a
# tenth of all rows.
BATCH_SIZE_LIMITS = 1_000, 50_000


def make_policy(temperature):
    """Return the temperature policy for the parameter ``temperature`` of an estimator.

    The parameter is None for T = 1, a name in ``POLICIES``, or a policy.
    """
    if temperature is None:
        return ConstantTemperature()
    return POLICIES[temperature]() if isinstance(temperature, str) else temperature


def check_moves(moves, known_names):
    """Raise ValueError unless all names of ``moves`` are in ``known_names``."""
    unknown = [move for move in moves if move not in known_names]
    if unknown:
        names = ", ".join(map(repr, known_names))
        raise ValueError(
            f"The 'moves' parameter must be a tuple of some of {names}, or () for no moves. Got "
            f"{unknown[0]!r} in it."
        )


def check_memoized(estimator):
    """Raise ValueError for illegal parameters of memoized inference.

    It is illegal to give both ``n_batches`` and ``batch_size``, to name unknown moves, and to set
    ``max_components`` below ``n_components``.
    """
    n_batches, batch_size = estimator.n_batches, estimator.batch_size
    if n_batches is not None and batch_size is not None:
        raise ValueError(
            f"Set either n_batches or batch_size, not both. Got n_batches={n_batches} and "
            f"batch_size={batch_size}."
        )
    check_moves(estimator.moves, ("birth", "merge", "delete"))
    n_initial = estimator.n_components
    max_components = choose_max_components(estimator)
    if max_components < n_initial:
        legal_range = f"in the range [n_components, inf) = [{n_initial}, inf)"
        raise illegal_value_error("max_components", legal_range, max_components)


def choose_max_components(estimator):
    """Return the maximum number of components.

    It is the parameter ``max_components`` or, if the parameter is None, the larger of
    ``_default_max_components`` and twice the initial number of components. Estimators without the
    parameter do not change the number of components: the maximum is the initial number.
    """
    n_initial = estimator.n_components
    max_components = getattr(estimator, "max_components", n_initial)
    if max_components is None:
        return max(estimator._default_max_components, 2 * n_initial)
    return max_components


def choose_batch_size(estimator, n_rows, limits=BATCH_SIZE_LIMITS, *, stream):
    """Return the number of rows per batch; raise ValueError if a fit has more batches than rows.

    ``n_rows`` is the number of rows of the call, and ``stream`` tells whether it is a call of
    ``partial_fit``. ``limits`` are the smallest and largest default number of rows per batch.
    """
    if not stream and estimator.n_batches is not None and estimator.n_batches > n_rows:
        legal_range = f"in the range [1, n_samples] = [1, {n_rows}]"
        raise illegal_value_error("n_batches", legal_range, estimator.n_batches)
    if estimator.learning_method == "batch":
        return n_rows
    # Divide and round up.
    if estimator.n_batches is not None:
        return -(-n_rows // estimator.n_batches)
    size = estimator.batch_size
    if size is None:
        smallest, largest = limits
        size = min(largest, max(smallest, -(-n_rows // 10)))
    # A step of a stream on fewer rows than ``size`` is smaller than a full step.
    return size if stream else min(size, n_rows)


def make_plan_with_moves(
    estimator, X, weights, moves=None, *, stream, scale=1.0, limits=BATCH_SIZE_LIMITS
):
    """Return the plan of memoized inference with moves, or of stochastic inference.

    Memoized inference keeps a *memo* of each batch: its statistics and entropies. ``moves`` maps
    names to constructors of moves, in the order in which the moves act after a pass; None stands
    for the moves of mixtures. ``stream`` tells whether the plan is for a call of ``partial_fit``.
    ``scale`` multiplies the step sizes. ``limits`` are the smallest and largest default number of
    rows per batch.
    """
    if moves is None:
        # Deletes come before merges. A delete can give each row of a component to the component
        # that explains the row best; a merge gives all rows to a single other component.
        birth = partial(Birth, choose_max_components(estimator))
        moves = {"delete": Delete, "merge": Merge, "birth": birth}
    n_rows, n_parallel = X.shape[0], estimator.n_parallel_batches
    step_schedule = RobbinsMonro(estimator.learning_offset, estimator.learning_decay, scale)
    batch_size = choose_batch_size(estimator, n_rows, limits, stream=stream)
    # The pilot also uses the minibatches, see below.
    minibatches = make_rows(X, weights, batch_size, n_parallel)
    if estimator.learning_method == "online":
        data, move_names = minibatches, []
        engine = StochasticInference(step_schedule)
    else:
        # In a stream, the rows of a call are one batch with one memo.
        data = make_rows(X, weights, n_rows, n_parallel) if stream else minibatches
        move_names = [name for name in moves if name in estimator.moves]
        engine = MemoizedInference([moves[name]() for name in move_names])
    stopping = Stopping(
        estimator.max_iter, estimator.evaluate_every, estimator.tol,
        max_components=choose_max_components(estimator) if "birth" in move_names else None,
    )  # fmt: skip
    # The pilot is a short fit at T = 1, which calibrates learned temperatures. It makes steps on
    # minibatches even if the fit has a single batch.
    return Plan(
        data, (Phase(engine),), make_policy(estimator.temperature), stopping,
        pilot=Pilot(step_schedule, minibatches), stream=StreamPlan(estimator.total_samples),
    )  # fmt: skip
