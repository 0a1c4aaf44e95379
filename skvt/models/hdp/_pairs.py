"""Changes of memos if pairs of topics merge. Merges and births, which also merge topics, use them.

A memo holds the sums of the statistics, entropies and weights of the documents of a batch. If
topics a and b merge, their responsibilities r_a and r_b of each token are added, and so are their
word counts. The changes of the entropy, and of the usage of topics
(:mod:`skvt.models.hdp._usage`), are sums over documents, which follow from a local step.

The bound has a tangent of log Gamma for each document and topic, see
:mod:`skvt.models.hdp._model`. The tangents of the merged topic touch at theta_a + theta_b, where
theta is the parameter of q(pi_d) for the topic.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln, psi

from skvt.contracts import LocalResult
from skvt.expfam import Stats
from skvt.models.hdp._kernels import add_pair_losses
from skvt.models.hdp._model import HDP, Globals
from skvt.models.hdp._sticks import compute_expected_weights
from skvt.models.hdp._usage import DOCUMENTS, IN_USE, N_COLUMNS, SLOPE, TRACES
from skvt.rows import pieces
from skvt.typing import Array, IndexArray, Run

# A topic with fewer tokens of a document than this number counts as absent from the document. The
# effect on the bound is smaller than rounding errors. A topic with fewer tokens of some batches
# than this number counts as absent from these batches.
NEGLIGIBLE_TOKENS = 1e-9
# Number of documents for which a thread computes losses at a time.
_ROWS_PER_TASK = 256


@dataclass
class PairChanges:
    """For each of P pairs of topics, the change of the memo of some batches if the pair merges."""

    # (P, 2): the topic that stays, then the topic that is removed.
    pairs: IndexArray
    # (P, 5): the usage of the merged topic, which is not a change, with 0 in the columns DOCUMENTS
    # and LENGTH_SLOPE.
    usage: Array
    # (P,): change of the memo's entropy in nats.
    entropy: Array

    def merge(self, memo: Any, chosen_pairs: list[int]) -> Any:
        """Return the memo after ``chosen_pairs`` have merged; their second topics are empty."""
        word_counts, usage = (array.copy() for array in memo.stats.arrays)
        for p in chosen_pairs:
            kept, removed = self.pairs[p]
            word_counts[kept] += word_counts[removed]
            word_counts[removed] = 0.0
            usage[kept] = self.merged_usage(p, usage[[kept, removed]])
            # The columns before DOCUMENTS are SLOPE, TRACES and IN_USE.
            usage[removed, :DOCUMENTS] = 0.0
        entropy = memo.entropy + self.entropy[chosen_pairs].sum()
        return replace(memo, stats=Stats((word_counts, usage)), entropy=entropy)

    def merged_usage(self, p: int, pair_usage: Array) -> Array:
        """Return the usage (5,) of pair p after its merge, given the usage of both topics (2, 5).

        DOCUMENTS and LENGTH_SLOPE of a topic leave out documents whose last local step preceded its
        birth. The merged topic takes the larger value of each.
        """
        return np.append(self.usage[p, :DOCUMENTS], pair_usage[:, DOCUMENTS:].max(axis=0))

    @classmethod
    def without_common_documents(cls, pairs: IndexArray, usage: Array) -> "PairChanges":
        """Return the changes for documents that never have both topics of a pair.

        ``usage`` (K, 5) is the documents' usage of topics. The usage of a merged topic is the sum
        over both topics. Tangents touch at the same points as before, so that the entropy does not
        change.
        """
        pair_usage = usage[pairs].sum(axis=1)
        pair_usage[:, DOCUMENTS:] = 0.0
        return cls(pairs, pair_usage, np.zeros(len(pairs)))


def compute_pair_changes(
    model: HDP, batch: Any, global_params: Globals, result: LocalResult, pairs: IndexArray, run: Run
) -> PairChanges:
    """Compute how each merge changes the memo of a batch, from its local step at T = 1."""
    assert result.counts is not None
    # Leave out the last weight, which belongs to all topics that are not represented.
    weights_of_topics = compute_expected_weights(global_params.sticks)[:-1]
    pseudo_counts = model.sticks.doc_concentration * weights_of_topics
    # Round the pseudo-counts as the local step does.
    pseudo_counts = pseudo_counts.astype(model.dtype).astype(np.float64)
    theta, tokens = result.q, result.counts
    weights = batch.weights.astype(np.float64)
    # ``theta`` (n, K) are the points at which tangents touch. The point of a topic that is not in
    # use is its pseudo-count.
    is_in_use = theta != pseudo_counts
    # The tangent of log Gamma at theta, evaluated at pseudo-count + tokens, is psi(theta) times the
    # pseudo-count plus the constant log Gamma(theta) + (tokens - theta) psi(theta). Sum the
    # constants of each topic over documents.
    document, topic = np.nonzero(is_in_use)
    topic_theta, topic_tokens = theta[document, topic], tokens[document, topic]
    constants = gammaln(topic_theta) + (topic_tokens - topic_theta) * psi(topic_theta)
    constants_of_topics = np.zeros(is_in_use.shape[1])
    np.add.at(constants_of_topics, topic, weights[document] * constants)
    entropy = -constants_of_topics[pairs[:, 0]] - constants_of_topics[pairs[:, 1]]
    # Compute the usage of each merged topic, and replace the constants of both topics by the
    # constant of the tangent at the sum of their theta.
    usage = np.zeros((len(pairs), N_COLUMNS))
    for p, (a, b) in enumerate(pairs):
        is_either_in_use = is_in_use[:, a] | is_in_use[:, b]
        merged_theta = theta[is_either_in_use, a] + theta[is_either_in_use, b]
        merged_tokens = tokens[:, a] + tokens[:, b]
        slope, weights_in_use = psi(merged_theta), weights[is_either_in_use]
        usage[p, SLOPE] = weights_in_use @ slope
        usage[p, TRACES] = weights[~is_either_in_use] @ merged_tokens[~is_either_in_use]
        usage[p, IN_USE] = weights_in_use.sum()
        excess = merged_tokens[is_either_in_use] - merged_theta
        entropy[p] += weights_in_use @ (gammaln(merged_theta) + excess * slope)
    entropy -= _compute_entropy_losses(model, batch, global_params, result, pairs, run)
    return PairChanges(pairs, usage, entropy)


def _compute_entropy_losses(
    model: HDP, batch: Any, global_params: Globals, result: LocalResult, pairs: IndexArray, run: Run
) -> Array:
    """Return the entropy of q(z) that is lost if each pair merges, (P,), in nats."""
    word_weights = global_params.expected_log
    word_weights = np.exp(word_weights - word_weights.max(axis=1, keepdims=True))
    # Responsibilities follow from the theta of the local step, not from the points of tangents.
    topic_weights = psi(result.solved_theta)  # type: ignore[attr-defined]
    topic_weights = np.exp(topic_weights - topic_weights.max(axis=1, keepdims=True))
    counts, row_weights = batch.counts.astype(np.float64), batch.weights.astype(np.float64)
    pairs = np.ascontiguousarray(pairs, np.int64)
    shared_arguments = (
        batch.indptr, batch.words, counts, row_weights, topic_weights, word_weights, result.counts,
        pairs, NEGLIGIBLE_TOKENS,
    )  # fmt: skip
    tasks = [
        (*shared_arguments, rows.start, rows.stop, np.zeros(len(pairs)))
        for rows in pieces(batch.n_rows, _ROWS_PER_TASK)
    ]
    # Each task adds to its last argument.
    run(add_pair_losses, tasks)
    return np.sum([losses for *_, losses in tasks], axis=0)
