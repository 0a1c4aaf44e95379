"""Proposals for births: topics fitted to a few documents alone."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import FitPlan, MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._merge import merge_greedily, pairs_alike
from skvt.models.hdp._model import HDP, Globals, occurring_in
from skvt.models.hdp._pairs import changes_of_pairs
from skvt.temperature import LinearAnnealing
from skvt.typing import Array

# Updates of all documents at once before merges.
STEPS_BEFORE = 3
# Updates of all documents at once after merges.
STEPS_AFTER = 2
# Passes of an annealed fit, and number of passes in which the temperature falls.
ANNEALED_PASSES = 10
HOT_PASSES = 8
# Largest number of batches of an annealed fit, and smallest number of documents of a batch.
MOST_BATCHES = 10
DOCUMENTS_PER_BATCH = 100


def fresh_topics(
    model: HDP, X: sp.csr_array, weights: Array, n_topics: int, tools: MoveTools
) -> Stats:
    """Fit at most ``n_topics`` topics to these documents alone and merge similar ones.

    Returns their statistics over the whole vocabulary.
    """
    rows = np.flatnonzero(X.sum(axis=1) > 0.0)
    X, weights = X[rows], weights[rows]
    n_topics = min(n_topics, rows.size)
    X = sp.csr_array(X.astype(model.dtype))
    n_words = model.n_features
    used_words = occurring_in([X.indices], n_words)  # None: most words occur, so keep all of them
    if used_words is not None:
        model = model.within(used_words)
        indices = np.searchsorted(used_words, X.indices).astype(X.indices.dtype)
        # The last column represents all words that do not occur.
        X = sp.csr_array((X.data, indices, X.indptr), shape=(rows.size, used_words.size + 1))
    stats = _annealed_fit(model, X, weights, n_topics, tools)
    batch = model.batch(X, np.arange(rows.size), weights)

    def updated() -> tuple[Globals, Any]:
        expected = model.expectation(RunningStats(stats.arrays), batch, tools.run)
        return expected, model.local_step(batch, expected, 1.0, tools.run)

    for n_steps in (STEPS_BEFORE, STEPS_AFTER):
        for _ in range(n_steps):
            global_params, result = updated()
            stats = result.stats
        while len(stats.arrays[0]) > 1:
            pairs = pairs_alike(model, stats.arrays[0])
            changes = changes_of_pairs(model, batch, global_params, result, pairs, tools.run)
            memo: Any = tools.memo_of(model, result, batch)
            chosen, _ = merge_greedily(model, memo, changes)
            if not chosen:
                break
            merged = changes.merged(memo, chosen).stats
            kept = np.delete(np.arange(len(merged.arrays[0])), pairs[chosen, 1])
            stats = Stats(tuple(array[kept] for array in merged.arrays))
            if len(kept) > 1:
                global_params, result = updated()
                stats = result.stats
        if len(stats.arrays[0]) < 2:
            break
    if used_words is None:
        return stats
    words = np.zeros((len(stats.arrays[0]), n_words))
    words[:, used_words] = stats.arrays[0][:, :-1]  # without the column of all other words
    return Stats((words, *stats.arrays[1:]))


def _annealed_fit(
    model: HDP, X: sp.csr_array, weights: Array, n_topics: int, tools: MoveTools
) -> Stats:
    """Return the statistics of topics fitted to these documents, annealed to T = 1."""
    n_batches = min(MOST_BATCHES, max(2, weights.size // DOCUMENTS_PER_BATCH))
    model = model.resized(n_topics)
    policy = LinearAnnealing(n_passes=HOT_PASSES).start(FitPlan(model, ANNEALED_PASSES))
    state, sweep = tools.separate_fit(model, X, weights, policy, n_batches=n_batches)
    for _ in range(ANNEALED_PASSES):
        model, _ = sweep(model, ())
    return state.memos.total().stats
