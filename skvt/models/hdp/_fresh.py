"""Fresh topics for a few documents, by themselves."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.contracts import MoveTools
from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._merge import changes_of_pairs, merge_greedily, pairs_alike
from skvt.models.hdp._model import HDP, Globals, occurring_in
from skvt.typing import Array

# Updates of all documents at once before merges.
STEPS_BEFORE = 3
# Updates of all documents at once after merges.
STEPS_AFTER = 2


def fresh_topics(
    model: HDP, X: sp.csr_array, weights: Array, n_topics: int, tools: MoveTools
) -> Stats:
    """Statistics of at most ``n_topics`` topics of these documents: annealed, then merged."""
    rows = np.flatnonzero(X.sum(axis=1) > 0.0)
    X, weights = X[rows], weights[rows]
    n_topics = min(n_topics, rows.size)
    X = sp.csr_array(X.astype(model.dtype))
    columns, whole = occurring_in([X.indices], model.n_features), model.n_features
    if columns is not None:
        model = model.within(columns)
        own = np.searchsorted(columns, X.indices).astype(X.indices.dtype)
        X = sp.csr_array((X.data, own, X.indptr), shape=(rows.size, columns.size + 1))
    stats = tools.annealed(model, X, weights, n_topics)
    batch = model.batch(X, np.arange(rows.size), weights)

    def updated() -> tuple[Globals, Any]:
        found = model.expectation(RunningStats(stats.arrays), batch, tools.run)
        return found, model.local_step(batch, found, 1.0, tools.run)

    for n_steps in (STEPS_BEFORE, STEPS_AFTER):
        for _ in range(n_steps):
            global_params, result = updated()
            stats = result.stats
        if len(stats.arrays[0]) < 2:
            break
        pairs = pairs_alike(model, stats.arrays[0])
        while True:
            changes = changes_of_pairs(model, batch, global_params, result, pairs, tools.run)
            memo: Any = tools.memo_of(model, result, batch)
            chosen, _ = merge_greedily(model, memo, changes)
            if not chosen:
                break
            merged = changes.merged(memo, chosen).stats
            kept = np.delete(np.arange(len(merged.arrays[0])), pairs[chosen, 1])
            stats = Stats(tuple(array[kept] for array in merged.arrays))
            if len(kept) < 2:
                break
            global_params, result = updated()
            stats = result.stats
            pairs = pairs_alike(model, stats.arrays[0])
        if len(stats.arrays[0]) < 2:
            break
    if columns is None:
        return stats
    words = np.zeros((len(stats.arrays[0]), whole))
    words[:, columns] = stats.arrays[0][:, :-1]
    return Stats((words, *stats.arrays[1:]))
