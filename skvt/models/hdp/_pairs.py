"""Changes of memos if pairs of topics merge."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln, psi

from skvt.contracts import LocalResult
from skvt.expfam import Stats
from skvt.models.hdp._kernels import add_pair_losses
from skvt.models.hdp._model import HDP, Globals
from skvt.models.hdp._sticks import IN_USE, SLOPE, TRACES, expected_weights
from skvt.rows import pieces
from skvt.typing import Array, IndexArray, Run

# Fewer tokens of a topic in a document count as none; the error is below rounding.
LEAST_TOKENS = 1e-9
# Number of documents of a task.
_ROWS_PER_TASK = 256


@dataclass
class PairChanges:
    """Changes of the memo of one or several batches if each of some pairs merges."""

    # (P, 2): the topic that stays, then the one that is removed.
    pairs: IndexArray
    # (P, 5): usage of the merged topic; columns that do not depend on the topic are 0.
    usage: Array
    # (P,): change of the memo's entropy in nats.
    entropy: Array

    def merged(self, memo: Any, chosen: list[int]) -> Any:
        """Return the memo after the chosen merges; the second topic of a pair becomes empty."""
        words, usage = (array.copy() for array in memo.stats.arrays)
        for p in chosen:
            a, b = self.pairs[p]
            words[a] += words[b]
            words[b] = 0.0
            usage[a] = self.used(p, usage[[a, b]])
            usage[b, : self.shared] = 0.0
        entropy = memo.entropy + self.entropy[chosen].sum()
        return replace(memo, stats=Stats((words, usage)), entropy=entropy)

    # Columns that depend on the topic come before this one.
    shared = IN_USE + 1

    def used(self, p: int, both: Array) -> Array:
        """Return the usage of the merged topic, (5,), given the usage of both topics, (2, 5)."""
        # A topic's totals leave out documents seen before its birth: take the larger ones.
        return np.append(self.usage[p, : self.shared], both[:, self.shared :].max(axis=0))

    @classmethod
    def where_apart(cls, pairs: IndexArray, usage: Array) -> "PairChanges":
        """Return changes for documents with this usage that never have both topics of a pair."""
        both = usage[pairs].sum(axis=1)
        both[:, cls.shared :] = 0.0
        return cls(pairs, both, np.zeros(len(pairs)))


def changes_of_pairs(
    model: HDP, batch: Any, global_params: Globals, result: LocalResult, pairs: IndexArray, run: Run
) -> PairChanges:
    """Return the :class:`PairChanges` of these documents, from a local step at T = 1."""
    assert result.counts is not None
    pseudo = model.sticks.doc_concentration * expected_weights(global_params.sticks)[:-1]
    pseudo = pseudo.astype(model.dtype).astype(np.float64)
    theta, tokens = result.q, result.counts
    weights = batch.weights.astype(np.float64)
    in_use = theta != pseudo
    document, topic = np.nonzero(in_use)
    used, held = theta[document, topic], tokens[document, topic]
    terms = weights[document] * (gammaln(used) + (held - used) * psi(used))
    alone = np.zeros(in_use.shape[1])
    np.add.at(alone, topic, terms)
    entropy = -alone[pairs[:, 0]] - alone[pairs[:, 1]]
    usage = np.zeros((len(pairs), 5))
    for p, (a, b) in enumerate(pairs):
        either = in_use[:, a] | in_use[:, b]
        both = theta[either, a] + theta[either, b]
        n = tokens[:, a] + tokens[:, b]
        slope, w = psi(both), weights[either]
        usage[p, SLOPE] = w @ slope
        usage[p, TRACES] = weights[~either] @ n[~either]
        usage[p, IN_USE] = w.sum()
        entropy[p] += w @ (gammaln(both) + (n[either] - both) * slope)
    entropy -= _entropy_losses(model, batch, global_params, result, pairs, run)
    return PairChanges(pairs, usage, entropy)


def _entropy_losses(
    model: HDP, batch: Any, global_params: Globals, result: LocalResult, pairs: IndexArray, run: Run
) -> Array:
    """Return the entropy of q(z) that is lost if each pair merges, (P,) nats."""
    table = global_params.expected_log
    table = np.exp(table - table.max(axis=1, keepdims=True))
    # Responsibilities follow from theta in the local step, before small entries were reset.
    weights = psi(result.found)  # type: ignore[attr-defined]
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    counts, row_weights = batch.counts.astype(np.float64), batch.weights.astype(np.float64)
    pairs = np.ascontiguousarray(pairs, np.int64)
    of_all = (
        batch.indptr, batch.words, counts, row_weights, weights, table, result.counts, pairs,
        LEAST_TOKENS,
    )  # fmt: skip
    tasks = [
        (*of_all, rows.start, rows.stop, np.zeros(len(pairs)))
        for rows in pieces(batch.n_rows, _ROWS_PER_TASK)
    ]
    run(add_pair_losses, tasks)
    return np.sum([task[-1] for task in tasks], axis=0)
