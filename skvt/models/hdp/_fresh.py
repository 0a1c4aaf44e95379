"""Fresh topics for a few documents, by themselves."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from skvt.expfam import RunningStats, Stats
from skvt.models.hdp._merge import changes_of_pairs, merge_greedily
from skvt.models.hdp._model import HDP
from skvt.models.hdp._sticks import DOCUMENTS, IN_USE, N_COLUMNS
from skvt.moves import MoveTools
from skvt.typing import Array

# Updates of a mixture of multinomials, and of a process of their own before and after merges.
MIXTURE_STEPS, STEPS_BEFORE, STEPS_AFTER = 8, 10, 5
# Of a document that is a seed, this share is the mean of all.
_SMOOTHED = 0.2


def fresh_topics(
    model: HDP, X: sp.csr_array, weights: Array, n_topics: int, tools: MoveTools
) -> Stats:
    """Statistics of at most so many topics of these documents; none share their words."""
    rows = np.flatnonzero(X.sum(axis=1) > 0.0)
    X, weights = X[rows], weights[rows]
    n_topics = min(n_topics, rows.size)
    words = _mixture(model, X, weights, n_topics, tools.rng)
    usage = np.zeros((len(words), N_COLUMNS))
    usage[:, IN_USE] = weights.sum() * words.sum(axis=1) / words.sum()
    usage[:, DOCUMENTS] = weights.sum()
    batch = model.batch(sp.csr_array(X.astype(model.dtype)), np.arange(rows.size), weights)
    stats = Stats((words, usage))
    for n_steps in (STEPS_BEFORE, STEPS_AFTER):
        for _ in range(n_steps):
            running = RunningStats(stats.arrays)
            global_params = model.expectation(running, batch, tools.run)
            result = model.local_step(batch, global_params, 1.0, tools.run)
            assert result.stats is not None
            stats = result.stats
        a, b = np.triu_indices(len(stats.arrays[0]), 1)
        if a.size == 0:
            break
        pairs = np.stack([a, b], axis=1)
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
            global_params = model.expectation(RunningStats(stats.arrays), batch, tools.run)
            result = model.local_step(batch, global_params, 1.0, tools.run)
            assert result.stats is not None
            stats = result.stats
            pairs = np.stack(np.triu_indices(len(kept), 1), axis=1)
        if len(stats.arrays[0]) < 2:
            break
    return stats


def _mixture(
    model: HDP, X: sp.csr_array, weights: Array, n_groups: int, rng: np.random.Generator
) -> Array:
    """Words of groups of documents (n_groups, V): a mixture of multinomials, seeds apart.

    Seeds are drawn one by one, by what those before them explain worse than the document would
    itself (k-means++ with the divergence of multinomials).
    """
    eta = model.topic_word_prior.astype(np.float64)
    lengths = np.asarray(X.sum(axis=1))
    shares = sp.csr_array(X.multiply(1.0 / lengths[:, None]))
    mean = np.asarray(weights @ X) + eta
    mean /= mean.sum()
    itself = np.asarray(X.multiply(_log(shares)).sum(axis=1)).ravel()
    seeds, best = [], np.full(X.shape[0], -np.inf)
    for i in range(n_groups):
        if i == 0:
            chance = weights * lengths
        else:
            chance = weights * np.maximum(itself - best, 0.0)
        if not chance.sum() > 0.0:
            break
        d = int(rng.choice(chance.size, p=chance / chance.sum()))
        seed = (1.0 - _SMOOTHED) * np.asarray(shares[[d]].todense()).ravel() + _SMOOTHED * mean
        seeds.append(seed)
        best = np.maximum(best, X @ np.log(seed))
    log_topics = np.log(np.stack(seeds))
    log_sizes = np.zeros(len(seeds))
    for _ in range(MIXTURE_STEPS):
        logits = X @ log_topics.T + log_sizes
        logits -= logits.max(axis=1, keepdims=True)
        resp = np.exp(logits)
        resp *= (weights / resp.sum(axis=1))[:, None]
        words = np.asarray((X.T @ resp).T)
        lam = words + eta
        log_topics = np.log(lam / lam.sum(axis=1, keepdims=True))
        log_sizes = np.log(resp.sum(axis=0) + 1.0)
    return words[words.sum(axis=1) > 0.0]


def _log(X: sp.csr_array) -> sp.csr_array:
    out = X.copy()
    out.data = np.log(out.data)
    return out
