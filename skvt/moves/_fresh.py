"""Fresh mixtures: fits of a few rows alone, from which births take components."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Memo, MoveTools, RunningPolicy
from skvt.expfam import RunningStats, Stats
from skvt.moves._base import bound_of, joined
from skvt.moves._merge import Merge, dissolve

# Least number of rows per component from which seeds are chosen,
_ROWS_PER_SEED = 50
# number of these rows per column,
_ROWS_PER_COLUMN = 4
# and their largest number.
_MOST_PER_SEED = 1_000
# Maximum numbers of passes without merges and in all.
_PASSES_UNMERGED = 5
_PASSES = 40
# A pass without merges follows another if this share of rows has changed its component.
_STILL = 1e-5
# Gain in nats per row below which the fit ends.
_TOL = 1e-4
# Nats per row by which a mixture with newly learned priors may miss its goal after one pass.
_HOPELESS = 0.02


def fresh_mixture(
    model: Any,
    batch: Any,
    tools: MoveTools,
    goal: float,
    others: Stats | None = None,
    most_passes: int = _PASSES,
) -> tuple[Memo, Any]:
    """Fit a mixture to these rows and return its total memo and its model.

    The fit ends early if the mixture will miss the ``goal``, a bound in nats. If there are
    ``others`` with the same prior, the prior is learned from them and from the seeds, and their
    loss counts.
    """
    n_components, total = model.n_initial, float(batch.weights.sum())
    # constant columns of dense rows do not count
    n_columns = batch.X.shape[1] if sp.issparse(batch.X) else np.any(batch.X != batch.X[0], 0).sum()
    of_seed = int(np.clip(_ROWS_PER_COLUMN * n_columns, _ROWS_PER_SEED, _MOST_PER_SEED))
    seeds = None
    if batch.n_rows > of_seed * n_components:
        seeds = tools.rng.permutation(batch.n_rows)[: of_seed * n_components]
    policy, moves = RunningPolicy(), list[Merge]()
    policy.done = False  # priors are learned from seeds, and again when merges begin
    fit = tools.separate_fit(model, batch.X, batch.weights, policy, seeds=seeds)
    state, previous = fit.state, float("-inf")
    joint = others is not None and others.arrays[0].size > 0
    if others is not None and joint:
        goal += model.collapsed_energy(others)
        together = joined([others, state.plain_stats.value()])
        model = model.with_learned_priors(None, RunningStats(together.arrays))
        model = model.resized(n_components)
        goal -= model.collapsed_energy(others)
    model = model.with_learned_priors(None, state.plain_stats)
    counts = model.component_masses(state.plain_stats.value())
    for n_passes in range(most_passes):
        merging = bool(moves)
        model, may_stop = fit.sweep(model, moves)
        if joint and n_passes == 0:
            if bound_of(model, state.memos.total()) < goal - _HOPELESS * total:
                break
        if not merging:
            # delay merges, because similar seeds would all become one component at first
            before, counts = counts, model.component_masses(state.plain_stats.value())
            moves_on = np.abs(counts - before).sum() > _STILL * total
            if moves_on and n_passes < _PASSES_UNMERGED - 1:
                continue
            moves, policy.done = [Merge()], True
            model = model.with_learned_priors(None, state.plain_stats)
        bound = bound_of(model, state.memos.total())
        gain, previous = bound - previous, bound
        if merging and may_stop:
            hopeless = bound + (most_passes - n_passes) * gain < goal
            if hopeless or gain < _TOL * total:
                break
        if model.size(state.stats) == 1:
            break
    dissolve(model, state)
    return state.memos.total(), model
