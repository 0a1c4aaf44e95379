"""Fits of fresh topics to a few documents alone. Births propose these topics to a model.

An annealed fit begins with more topics than the documents are expected to have. Two rounds follow.
A round has a few updates, each with a local step of all documents, and then merges of topics as
long as the bound of these documents rises.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import FitPlan, MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._merge import choose_merges, find_similar_pairs
from skvt.models.hdp._model import HDP, Globals, unite_words
from skvt.models.hdp._pairs import compute_pair_changes
from skvt.temperature import LinearAnnealing
from skvt.typing import Array

# Number of updates in the first and in the second round. Merges follow the updates.
UPDATES_OF_ROUNDS = 3, 2
# Number of passes of an annealed fit, and number of its passes in which the temperature falls.
ANNEALED_PASSES = 10
COOLING_PASSES = 8
# Largest number of batches of an annealed fit, and smallest number of documents of a batch.
MAX_BATCHES = 10
DOCUMENTS_PER_BATCH = 100


def fit_fresh_topics(
    model: HDP, X: sp.csr_array, weights: Array, n_topics: int, tools: MoveTools
) -> Stats:
    """Fit at most ``n_topics`` topics to documents X (n, V) alone, and merge similar topics.

    ``weights`` (n,) are the weights of the documents. Returns statistics of the topics, over the
    whole vocabulary.
    """
    rows = np.flatnonzero(X.sum(axis=1) > 0.0)
    X, weights = X[rows], weights[rows]
    n_topics = min(n_topics, rows.size)
    X = sp.csr_array(X.astype(model.dtype))
    n_all_words = model.n_features
    used_words = unite_words([X.indices], n_all_words)
    # Narrow the model and X to the words that occur, unless most words do.
    if used_words is not None:
        model = model.restrict_to_words(used_words)
        indices = np.searchsorted(used_words, X.indices).astype(X.indices.dtype)
        # The last column represents all words that do not occur.
        X = sp.csr_array((X.data, indices, X.indptr), shape=(rows.size, used_words.size + 1))
    stats = _fit_annealed(model, X, weights, n_topics, tools)
    stats = _update_and_merge(model, model.batch(X, np.arange(rows.size), weights), stats, tools)
    if used_words is None:
        return stats
    # Return to the whole vocabulary, without the last column of the narrow model.
    word_counts = np.zeros((len(stats.arrays[0]), n_all_words))
    word_counts[:, used_words] = stats.arrays[0][:, :-1]
    return Stats((word_counts, *stats.arrays[1:]))


def _update_and_merge(model: HDP, batch: Any, stats: Stats, tools: MoveTools) -> Stats:
    """Return statistics after updates of all topics and merges that raise the bound."""

    def update_topics() -> tuple[Globals, Any]:
        """Make a local step of all documents; return the global parameters and the result."""
        global_params = model.expectation(RunningStats(stats.arrays), batch, tools.run)
        return global_params, model.local_step(batch, global_params, 1.0, tools.run)

    for n_updates in UPDATES_OF_ROUNDS:
        for _ in range(n_updates):
            global_params, result = update_topics()
            stats = result.stats
        # Merge as long as the bound rises. A call of ``choose_merges`` merges each topic at most
        # once.
        while len(stats.arrays[0]) > 1:
            pairs = find_similar_pairs(model, stats.arrays[0])
            changes = compute_pair_changes(model, batch, global_params, result, pairs, tools.run)
            # A memo holds the statistics, the entropy and the weight of the documents.
            memo: Any = tools.make_memo(model, result, batch)
            chosen_pairs, _ = choose_merges(model, memo, changes)
            if not chosen_pairs:
                break
            merged_stats = changes.merge(memo, chosen_pairs).stats
            # Remove the second topic of each merged pair, which is empty.
            kept_topics = np.delete(np.arange(len(merged_stats.arrays[0])), pairs[chosen_pairs, 1])
            stats = Stats(tuple(array[kept_topics] for array in merged_stats.arrays))
            if len(kept_topics) > 1:
                global_params, result = update_topics()
                stats = result.stats
        if len(stats.arrays[0]) < 2:
            break
    return stats


def _fit_annealed(
    model: HDP, X: sp.csr_array, weights: Array, n_topics: int, tools: MoveTools
) -> Stats:
    """Fit topics to the documents by annealing to T = 1; return their statistics."""
    n_batches = min(MAX_BATCHES, max(2, weights.size // DOCUMENTS_PER_BATCH))
    model = model.resized(n_topics)
    policy = LinearAnnealing(n_passes=COOLING_PASSES).start(FitPlan(model, ANNEALED_PASSES))
    state, run_pass = tools.separate_fit(model, X, weights, policy, n_batches=n_batches)
    for _ in range(ANNEALED_PASSES):
        # The empty tuple means that the pass makes no moves.
        model, _ = run_pass(model, ())
    return state.memos.total().stats
