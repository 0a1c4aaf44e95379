"""Split-merge moves of topics: a topic is split in two, and two other topics are merged.

The moves escape local optima of topic models, as doc/guide/tempered_lda_updates.md explains. A
proposal merges topics a and b and splits topic c, so that the number of topics stays the same.
Proposals are chosen and judged on a sample of the documents. The split follows from a mixture of
two multinomials, which divides the documents of c into two groups; the mixture starts from the
leading direction in which these documents differ. All topics of a proposal have equal priors.

A *search* draws a sample and tries proposals on it, one after the other. A local step on the sample
gives the expected counts of topics, from which merges and splits are proposed. The *evidence* of a
topic is the probability of its expected counts with beta, its word probabilities, integrated out.
The gain of a merge or a split is its change of the log evidence. Shapes have n documents of the
sample, A words that occur in them, V words of the vocabulary and K topics.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import entr, expit

from skvt._compiled import gammaln_array as gammaln
from skvt.contracts import (
    Capability,
    LocalResult,
    MoveRecord,
    MoveTools,
    Requirement,
    RowSource,
    SampledState,
)
from skvt.expfam import Dirichlet, RunningStats, kl_divergence
from skvt.models.lda import _kernels as kernels
from skvt.models.lda._model import LDA, DocumentBatch
from skvt.moves import Decision, Ledger, decide
from skvt.progress import ResumableMixin
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Maximum number of documents in the sample.
MAX_SAMPLE_SIZE = 5_000
# Number of pairs of similar topics that are considered for a merge, per topic.
PAIRS_PER_TOPIC = 3
# Number of updates of the three topics of a proposal before bounds are compared.
N_UPDATES = 2
# Minimum number of documents of the sample per topic. Topics cannot be distinguished in a sample of
# fewer documents.
DOCUMENTS_PER_TOPIC = 5
# Number of proposals that a search tries even if the sum of their estimated gains is negative. The
# estimate of a merge is pessimistic, because it keeps all tokens of both topics together. In a
# trial, tokens that do not fit the merged topic move to other topics.
MIN_TRIALS = 2
# A proposal of negative gain is tried only if both merged topics have enough tokens in the sample:
# at least this share of the mean number in samples of this size. A topic that is absent from the
# sample by chance would otherwise be merged at no cost.
MIN_REPRESENTATION = 0.5
# Maximum number of topics, those with the most tokens, for which a split is considered.
MAX_SPLITS = 100
# A search ends when the documents of its trials have this multiple of the sample's tokens. A trial
# makes 2 (N_UPDATES + 1) local steps of each of its documents.
TOKENS_PER_SEARCH = 0.5
# A topic is split by the documents that have at least this number of its tokens each. Each of the
# two groups of documents must have at least this number of its tokens in total.
MIN_TOKENS = 1.0
# If the squared singular value of the leading direction is smaller than this, documents differ by
# rounding errors only. The largest singular value is 1.
MIN_SQUARED_VALUE = 1e-12
# Number of power iterations for the leading direction of a topic's documents.
N_DIRECTION_STEPS = 5
# Number of EM steps of the mixture that divides a topic's documents. EM ends after N_FIRST_STEPS
# steps if the split has no gain by then.
N_MIXTURE_STEPS = 15
N_FIRST_STEPS = 3
# The pause after a search becomes longer with each search that changes nothing. Searches end for
# good when the pause has reached this number of passes.
MAX_PAUSE = 3


class SplitMerge(ResumableMixin):
    """Merge two topics and split a third topic if the bound rises."""

    requires: tuple[Requirement, ...] = (
        Requirement("Split-merge", Capability.TOPICS, "Leave it out of moves."),
    )

    # Attributes that files keep, with their types.
    kept_attributes: ClassVar[dict[str, Any]] = {"exhausted": bool, "_ledger": Ledger}

    def __init__(self) -> None:
        # Whether the last search made no change, or was not possible.
        self.exhausted = False
        # Counter of passes and of searches without a change, which says when to search again.
        self._ledger = Ledger()

    def change_between_passes(
        self, model: LDA, data: RowSource, state: SampledState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Try proposals after a pass at T = 1, and accept each proposal that raises the bound.

        Return a record of each tried proposal. There are no records if the pass has no search.
        """
        records: list[MoveRecord] = []
        self._ledger = self._ledger.record_pass()
        # Search if the pause after the last search is over.
        if self._ledger.waiting < 0 and self._ledger.pause < MAX_PAUSE:
            sample = _Sample(model.mean_field(), data, tools)
            max_topics = sample.rows.size / DOCUMENTS_PER_TOPIC
            if 2 < model.n_components <= max_topics and sample.batch.counts.size > 0:
                records = self._search(sample, state, tools)
            self.exhausted = not any(record.accepted for record in records)
            self._ledger = self._ledger.record_search(not self.exhausted)
        return records

    def _search(self, sample: "_Sample", state: SampledState, tools: MoveTools) -> list[MoveRecord]:
        """Try proposals on the sample, and accept each proposal that raises its bound.

        Merges are taken in the order of their gains, which are negative if topics differ. Each
        merge is combined with the best remaining split. A topic is in at most one proposal. After
        ``MIN_TRIALS`` proposals, a proposal is tried only if the sum of its gains is positive.
        Return a record of each proposal.
        """
        # The correction of structured inference may have made statistics negative. Replace these
        # statistics by 0.
        counts = np.maximum(state.stats.as_stats().arrays[0], 0.0)
        stats = RunningStats([np.ascontiguousarray(counts, sample.model.dtype)])
        counts = counts.astype(np.float64)
        # Compute the expected tokens (n, K) of topics in the sampled documents. ``result.q``, the
        # parameters of q(theta), is alpha plus these tokens.
        result = sample.solve(stats, sample.batch, with_stats=False)
        tokens = result.q - sample.model.document_priors(sample.batch)
        splits = _propose_splits(sample, stats, result, tools.rng)
        merges = _propose_merges(sample, counts)
        records: list[MoveRecord] = []
        # Topics of the proposals so far.
        used_topics: set[int] = set()
        # A gain counts as 0 if it is smaller than the rounding errors of the evidence, which grow
        # with the number of tokens, because the evidence is a sum over tokens.
        rounding = {"scale": counts.sum() / sample.factor, "dtype": sample.model.dtype}
        split_order = stable_order([-split.gain for split in splits], **rounding)
        splits = [splits[i] for i in split_order if exceeds(splits[i].gain, 0.0, **rounding)]
        # Topics of equal priors have the same number in ``kinds`` (K,).
        kinds = sample.model.prior_kinds()
        # Compare the tokens (K,) of topics in the sample with their tokens in all documents, scaled
        # to the size of the sample.
        sampled_tokens = sample.batch.weights.astype(np.float64) @ tokens
        is_represented = sampled_tokens >= MIN_REPRESENTATION * counts.sum(axis=0) / sample.factor
        # Number of tokens that the documents of further trials may have.
        n_tokens_left = TOKENS_PER_SEARCH * sample.batch.lengths.sum(dtype=np.float64)
        for i in stable_order([-merge.gain for merge in merges], **rounding):
            a, b = merges[i].topics
            if a in used_topics or b in used_topics:
                continue
            unavailable = used_topics | {a, b}
            candidates = (
                split
                for split in splits
                if split.topic not in unavailable and kinds[split.topic] == kinds[a]
            )
            split = next(candidates, None)
            if split is None:
                continue
            is_tried_anyway = len(records) < MIN_TRIALS and is_represented[[a, b]].all()
            estimate = merges[i].gain + split.gain
            if not (is_tried_anyway or exceeds(estimate, 0.0, **rounding)):
                continue
            if n_tokens_left <= 0.0:
                break
            topics = [a, b, split.topic]
            used_topics |= set(topics)
            # Judge the proposal by the documents with more than half of MIN_TOKENS tokens of at
            # least one of its topics.
            documents = np.flatnonzero(tokens[:, topics].max(axis=1) > 0.5 * MIN_TOKENS)
            n_tokens_left -= sample.batch.lengths[documents].sum(dtype=np.float64)
            decision = _try_proposal(sample, stats, documents, topics, split.shares)
            change = "one topic for the first two, two for the third"
            records.append(decision.record(tools.n_iter, "split-merge", topics, change))
        if any(record.accepted for record in records):
            state.stats = RunningStats(stats.arrays)
        return records


class _Merge(NamedTuple):
    """A proposal to merge a pair of topics."""

    # Change of the log evidence in nats.
    gain: float
    topics: tuple[int, int]


class _Split(NamedTuple):
    """A proposal to split a topic into a first and a second new topic."""

    # Change of the log evidence in nats.
    gain: float
    topic: int
    # (A,): share of the first new topic in the counts of each of the sample's words.
    shares: Array


class _Sample:
    """A sample of the documents, and local steps on the sample.

    ``rows`` (n,) are the rows of the sampled documents in the data. An entry is a word of a
    document with its count, and nnz is the number of entries. ``document_of`` (nnz,) has the
    position in the sample of the document of each entry. ``factor`` is the ratio of the weight of
    all documents to the weight of the sample.
    """

    def __init__(self, model: LDA, data: RowSource, tools: MoveTools) -> None:
        self.model, self.data, self.run = model, data, tools.run
        self.rows = np.arange(data.n_rows)
        if data.n_rows > MAX_SAMPLE_SIZE:
            # Draw the sample at random, because rows may be sorted.
            self.rows = np.sort(tools.rng.choice(data.n_rows, MAX_SAMPLE_SIZE, replace=False))
        self.batch = data.batch(model, self.rows)
        self.document_of = np.repeat(np.arange(self.rows.size), np.diff(self.batch.indptr))
        self.factor = data.total / self.batch.weights.sum(dtype=np.float64)
        # eta of all topics, (1, V), or of each topic, (K, V).
        self.priors = np.ascontiguousarray(model.prior().arrays[0], np.float64)

    def prior_of(self, topic: int) -> Array:
        """Return eta of a topic, (V,)."""
        return self.priors[topic if len(self.priors) > 1 else 0]

    def solve(
        self, stats: RunningStats, batch: DocumentBatch, *, with_stats: bool = True
    ) -> LocalResult:
        """Return the local result of documents at T = 1, given the statistics (V, K) of topics."""
        global_params = self.model.expectation(stats, batch, self.run)
        return self.model.local_step(batch, global_params, 1.0, self.run, with_stats=with_stats)

    def list_expected_counts(
        self, stats: RunningStats, gamma: Array
    ) -> Iterable[tuple[IndexArray, Array]]:
        """List the expected counts of each topic in the entries of the sample's matrix of counts.

        Return a pair for each topic: the positions of entries in ``batch.words``, and the expected
        counts of the topic in these entries. Entries with negligible counts are left out. ``gamma``
        (n, K) are the parameters of q(theta).
        """
        batch = self.batch
        table = _exp_relative_to_maximum(self.model.expectation(stats, batch, self.run).log_beta)
        log_shares = Dirichlet.expectation(np.where(gamma > 0.0, gamma, kernels.MIN_PRIOR))
        # Set the weights of topics that a document must not have to 0.
        weights = _exp_relative_to_maximum(log_shares.astype(table.dtype)) * (gamma > 0.0)
        n_topics = len(weights[0])
        # Scratch of the kernel.
        row = np.empty(n_topics, table.dtype)
        list_sizes = np.zeros(n_topics, np.int64)
        inputs = self.document_of, batch.words, batch.counts, weights, table, row
        # The first call of the kernel, with empty output, only adds the number of entries of each
        # topic to ``list_sizes``. The second call writes the lists at the positions at which they
        # begin.
        entries, values = np.empty(0, np.int64), row[:0]
        kernels.list_expected_counts(*inputs, list_sizes, entries, values)
        ends = np.cumsum(list_sizes)
        entries, values = np.empty(ends[-1], np.int64), np.empty(ends[-1], table.dtype)
        kernels.list_expected_counts(*inputs, ends - list_sizes, entries, values)
        return zip(np.split(entries, ends[:-1]), np.split(values, ends[:-1]), strict=True)


def _exp_relative_to_maximum(log_values: Array) -> Array:
    """Return exp(log_values), each row divided by its maximum, with the floor of local steps."""
    relative = np.exp(log_values - log_values.max(axis=1, keepdims=True))
    floor: Any = kernels.FLOOR[log_values.dtype]
    return np.maximum(relative, floor)


def _compute_log_evidence(counts: Any, prior: Array, prior_sum: Any) -> Array:
    """Return ``log B(eta + S) - log B(eta)``, the log evidence of counts S, in nats.

    B is the multivariate beta function. ``counts`` S have the shape (..., A), and the result has
    the shape (...). ``prior`` is eta of the A words, (A,) or a row for each row of counts. Words
    without counts can be left out, but ``prior_sum`` is the sum of eta over the whole vocabulary.
    """
    log_evidence = gammaln(prior + counts).sum(axis=-1) - gammaln(prior_sum + counts.sum(axis=-1))
    return log_evidence - gammaln(prior).sum(axis=-1) + gammaln(np.asarray(prior_sum))


def _propose_merges(sample: "_Sample", counts: Array) -> list[_Merge]:
    """Return the merges of the most similar pairs of topics, given counts (V, K) of all documents.

    The counts are scaled to the size of the sample. They are not the counts in the sample, in which
    a topic that is absent by chance would seem to merge at no cost.
    """
    eta = sample.priors
    eta_sums = eta.sum(axis=-1)
    topic_counts = np.ascontiguousarray(counts.T) / sample.factor
    # The similarity of two topics is the Bhattacharyya coefficient of their words' probabilities.
    root_probabilities = np.sqrt(Dirichlet.mean(topic_counts + eta))
    first_topics, second_topics = np.triu_indices(len(root_probabilities), 1)
    kinds = sample.model.prior_kinds()
    is_same_kind = kinds[first_topics] == kinds[second_topics]
    first_topics, second_topics = first_topics[is_same_kind], second_topics[is_same_kind]
    similarities = (root_probabilities @ root_probabilities.T)[first_topics, second_topics]
    order = stable_order(-similarities, scale=1.0, dtype=sample.model.dtype)
    pairs = order[: PAIRS_PER_TOPIC * len(root_probabilities)]
    evidence = _compute_log_evidence(topic_counts, eta, eta_sums)
    merges = []
    for a, b in zip(first_topics[pairs].tolist(), second_topics[pairs].tolist(), strict=True):
        prior = sample.prior_of(a)
        merged_evidence = _compute_log_evidence(
            topic_counts[a] + topic_counts[b], prior, prior.sum()
        )
        merges.append(_Merge(float(merged_evidence - evidence[a] - evidence[b]), (a, b)))
    return merges


def _propose_splits(
    sample: "_Sample", stats: RunningStats, result: LocalResult, rng: np.random.Generator
) -> list[_Split]:
    """Return the split of each topic whose documents in the sample can be divided.

    Of many topics, only the ``MAX_SPLITS`` topics with the most tokens are considered.
    """
    batch, dtype = sample.batch, sample.model.dtype
    splits = []
    counts_of_topics = list(sample.list_expected_counts(stats, result.q.astype(np.float64)))
    sizes = np.array([values.sum(dtype=np.float64) for _, values in counts_of_topics])
    order = stable_order(-sizes, scale=float(sizes.sum()), dtype=dtype)
    for topic in np.sort(order[:MAX_SPLITS]).tolist():
        entries, values = counts_of_topics[topic]
        # Build the matrix of the topic's counts, with the documents and words that have the topic.
        documents, row_of_entry = np.unique(sample.document_of[entries], return_inverse=True)
        words, column_of_entry = np.unique(batch.words[entries], return_inverse=True)
        counts = sp.csr_array(
            (values.astype(np.float64), (row_of_entry, column_of_entry)),
            shape=(documents.size, words.size),
        )
        # Keep documents with at least MIN_TOKENS tokens of the topic, up to rounding errors.
        rows = np.flatnonzero(~exceeds(MIN_TOKENS, counts.sum(axis=1), dtype=dtype))
        prior = sample.prior_of(topic)
        weights = batch.weights[documents[rows]].astype(np.float64)
        division = _divide_in_two(
            counts[rows], weights, prior[batch.active[words]], prior.sum(), rng
        )
        if division is not None:
            gain, word_shares = division
            # Words without counts of the topic are shared equally.
            shares = np.full(batch.active.size, 0.5)
            shares[words] = word_shares
            splits.append(_Split(gain, topic, shares))
    return splits


def _divide_in_two(
    counts: Any, weights: Array, eta: Array, eta_sum: float, rng: np.random.Generator
) -> tuple[float, Array] | None:
    """Divide documents into two groups by a mixture of two multinomials.

    ``counts`` (n, A) are the counts of a topic in documents of ``weights`` (n,), ``eta`` (A,) the
    prior of their words, and ``eta_sum`` its sum over the vocabulary. Return the gain in evidence
    in nats and the share of the first group in the counts of each word, (A,). Return None if there
    are fewer than two documents, or if a group has fewer than MIN_TOKENS tokens.
    """
    if counts.shape[0] < 2:
        return None
    coordinates = _find_leading_coordinates(counts, weights, rng)
    # ``in_first`` (n,) are the probabilities that documents are in the first group. Coordinates
    # that exceed 0 only by rounding are not in the first group.
    in_first = exceeds(coordinates, 0.0, scale=np.abs(coordinates).max()).astype(float)
    by_word, gain = counts.T, -np.inf
    for step in range(1, N_MIXTURE_STEPS + 1):
        # Make a step of expectation-maximisation: compute the counts of words in both groups,
        # ``first`` and ``second`` (A,), and then the log odds of the first group from the smoothed
        # probabilities of the words.
        first, second = by_word @ (weights * in_first), by_word @ (weights * (1.0 - in_first))
        first_weight = np.average(in_first, weights=weights)
        if not 0.0 < first_weight < 1.0 or min(first.sum(), second.sum()) < MIN_TOKENS:
            return None
        ratio = (second.sum() + eta_sum) / (first.sum() + eta_sum)
        log_odds = counts @ np.log(ratio * (first + eta) / (second + eta))
        in_first = expit(log_odds + np.log(first_weight / (1.0 - first_weight)))
        if step in (N_FIRST_STEPS, N_MIXTURE_STEPS):
            # The gain is the bound of the mixture less the evidence of a single group. The bound is
            # the evidence of both groups, plus the entropy of ``in_first``, plus the expected log
            # prior of the documents' groups, which is minus a cross-entropy.
            first, second = by_word @ (weights * in_first), by_word @ (weights * (1.0 - in_first))
            first_evidence, second_evidence, single_evidence = _compute_log_evidence(
                np.stack([first, second, first + second]), eta, eta_sum
            )
            first_weight = np.average(in_first, weights=weights)
            cross_entropy = weights.sum() * (entr(first_weight) + entr(1.0 - first_weight))
            entropy = weights @ (entr(in_first) + entr(1.0 - in_first))
            evidence_gain = first_evidence + second_evidence - single_evidence
            gain = float(evidence_gain + entropy - cross_entropy)
            if gain <= 0.0:
                break
    # Add half a token to each count, so that the few tokens of a rare word are shared almost
    # equally.
    return gain, (first + 0.5) / (first + second + 1.0)


def _find_leading_coordinates(counts: Any, weights: Array, rng: np.random.Generator) -> Array:
    """Return coordinates (n,) of documents along the direction in which they differ most.

    The direction is the second right singular vector of ``counts / sqrt(row sums x column sums)``,
    in which the row of each document is first multiplied by its weight. The first singular vectors
    are known: they describe the lengths of documents and the frequencies of words. All coordinates
    are 0 if documents do not differ.
    """
    row_sums = np.asarray(counts.sum(axis=1))
    column_sums = np.maximum(weights @ counts, np.finfo(float).tiny)
    scaled_counts = counts.multiply(np.sqrt(weights / row_sums)[:, None]).tocsr()
    scaled_counts = sp.csr_array(scaled_counts.multiply(1.0 / np.sqrt(column_sums)))
    first_u, first_v = np.sqrt(weights * row_sums), np.sqrt(column_sums)
    first_u, first_v = first_u / np.linalg.norm(first_u), first_v / np.linalg.norm(first_v)
    # Make power iterations, from which the first singular vectors are projected out.
    direction, transposed = rng.normal(size=column_sums.size), scaled_counts.T
    for _ in range(N_DIRECTION_STEPS):
        direction -= first_v * (first_v @ direction)
        coordinates = scaled_counts @ direction
        coordinates -= first_u * (first_u @ coordinates)
        direction = transposed @ coordinates
        length = np.linalg.norm(direction)
        direction /= max(length, np.finfo(float).tiny)
    if length < MIN_SQUARED_VALUE:
        return np.zeros(row_sums.size)
    return scaled_counts @ (direction - first_v * (first_v @ direction))


def _try_proposal(
    sample: "_Sample", stats: RunningStats, documents: IndexArray, topics: list[int], shares: Array
) -> Decision:
    """Merge topics a and b, and split topic c, if the bound then rises; return the decision.

    ``topics`` are a, b and c, and ``shares`` (A,) are the shares of a :class:`_Split` of c. If the
    proposal is accepted, column a of the statistics belongs to the merged topic, and columns b and
    c belong to the two new topics. Otherwise the statistics do not change. The bound is computed
    for ``documents``, which are positions in the sample.
    """
    batch = sample.data.batch(sample.model, sample.rows[documents])
    current_columns = stats.arrays[0][:, topics].astype(np.float64)
    # Words that are not in the sample are shared equally.
    shares_of_vocabulary = np.full(len(current_columns), 0.5)
    shares_of_vocabulary[sample.batch.active] = shares
    a, b, c = current_columns.T
    changed = np.stack([a + b, c * shares_of_vocabulary, c * (1.0 - shares_of_vocabulary)], axis=1)
    current_bound, _ = _compute_bound_after_updates(sample, stats, batch, topics, current_columns)
    changed_bound, updated = _compute_bound_after_updates(sample, stats, batch, topics, changed)
    bound_size = max(abs(changed_bound), abs(current_bound))
    dtype = sample.model.dtype
    decision = decide(changed_bound - current_bound, bound_size, rows="the sample", dtype=dtype)
    if not decision.is_accepted:
        stats.replace_columns(topics, current_columns)
        return decision
    # Keep the updates only if the sample has all documents, because otherwise they have the noise
    # of the sample.
    is_complete = sample.rows.size == sample.data.n_rows
    stats.replace_columns(topics, updated if is_complete else changed)
    return decision


def _compute_bound_after_updates(
    sample: "_Sample", stats: RunningStats, batch: DocumentBatch, topics: list[int], columns: Array
) -> tuple[float, Array]:
    """Update topics N_UPDATES times, starting from ``columns`` (V, 3) of the statistics.

    Return the bound in nats, up to a constant, and the updated columns, which ``stats`` has
    afterwards.
    """
    stats.replace_columns(topics, columns)
    for _ in range(N_UPDATES):
        updated_stats = sample.solve(stats, batch).stats
        # Row i of the updated statistics belongs to word ``updated_stats.rows[i]``.
        assert updated_stats is not None and updated_stats.rows is not None
        columns = np.zeros_like(columns)
        columns[updated_stats.rows] = sample.factor * updated_stats.arrays[0][:, topics]
        stats.replace_columns(topics, columns)
    eta = np.stack([sample.prior_of(k) for k in topics])
    bound = sample.solve(stats, batch, with_stats=False).bound @ batch.weights.astype(np.float64)
    return sample.factor * bound - kl_divergence(Dirichlet, columns.T + eta, eta), columns
