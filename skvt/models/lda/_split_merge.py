"""Split-merge moves of topics: one topic becomes two, and two topics become one.

See doc/guide/tempered_lda.md. A mixture of two multinomials divides the documents of a topic into
groups; it starts from the leading direction in which these documents differ. If topics have
separate priors, changes are among topics of equal priors only.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import entr, expit

from skvt.compiled import gammaln_array as gammaln
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
from skvt.moves import Ledger, Outcome, judged
from skvt.progress import Continued
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray

# Number of documents in the sample.
SAMPLE = 5_000
# Average number of pairs per topic that are considered, the most similar ones.
PAIRS_PER_TOPIC = 3
# Number of updates of the three topics before bounds are compared.
STEPS = 2
# Minimum number of documents of the sample per topic; with fewer, topics cannot be distinguished.
DOCUMENTS_PER_TOPIC = 5
# A search ends when the documents of its trials have this share of the tokens of the sample. Trials
# visit each document 2 (STEPS + 1) times, so that they cost a few passes, even with many topics.
VISITED = 0.5
# Minimum number of tokens of a topic in a document that is used for it.
FEWEST_TOKENS = 1.0
# Below this squared singular value, documents differ by rounding alone; the largest one is 1.
SMALLEST_SQUARE = 1e-12
# Number of power iterations for the leading direction of a topic's documents.
DIRECTION_STEPS = 5
# Number of EM steps of the mixture that starts from this direction, and number after which it has a
# gain if the topic is two.
MIXTURE_STEPS = 15
FIRST_STEPS = 3
# Searches end for good after this pause, which follows the second of two without a change.
LAST_PAUSE = 3


class SplitMerge(Continued):
    """Split a topic that combines two, and merge two topics that are one."""

    requires: tuple[Requirement, ...] = (
        Requirement("Split-merge", Capability.TOPICS, "Leave it out of moves."),
    )

    kept: ClassVar[dict[str, Any]] = {"exhausted": bool, "_ledger": Ledger}

    def __init__(self) -> None:
        # Whether the last search made no change.
        self.exhausted = False
        self._ledger = Ledger()

    def between(
        self, model: LDA, data: RowSource, state: SampledState, tools: MoveTools
    ) -> list[MoveRecord]:
        """Search for changes after a pass at T = 1, and make those that raise the bound."""
        records: list[MoveRecord] = []
        self._ledger = self._ledger.next_pass()
        if self._ledger.waiting < 0 and self._ledger.pause < LAST_PAUSE:
            sample = _Sample(model.mean_field(), data, tools)
            most = sample.rows.size / DOCUMENTS_PER_TOPIC
            if 2 < model.n_components <= most and sample.batch.counts.size > 0:
                records = self._search(sample, state, tools)
            self.exhausted = not any(record.accepted for record in records)
            self._ledger = self._ledger.searched(not self.exhausted)
        return records

    def _search(self, sample: "_Sample", state: SampledState, tools: MoveTools) -> list[MoveRecord]:
        """Try changes on the sample and make those that raise its bound; return their records."""
        # Structured inference's correction may leave negative statistics.
        S = np.maximum(state.stats.value().arrays[0], 0.0)
        stats = RunningStats([np.ascontiguousarray(S, sample.model.dtype)])
        S = S.astype(np.float64)
        result = sample.solve(stats, sample.batch, with_stats=False)
        tokens = result.q - sample.model.document_priors(sample.batch)
        splits = _splits(sample, stats, result, tools.rng)
        merges = _merges(sample, S)
        records: list[MoveRecord] = []
        used: set[int] = set()
        # Evidence is a sum over tokens, and so is its rounding error.
        precise = {"scale": S.sum() / sample.factor, "dtype": sample.model.dtype}
        order = [splits[i] for i in stable_order([-gain for gain, *_ in splits], **precise)]
        order = [split for split in order if exceeds(split[0], 0.0, **precise)]
        kinds = sample.model.prior_kinds()
        left = VISITED * sample.batch.lengths.sum(dtype=np.float64)
        for i in stable_order([-gain for gain, *_ in merges], **precise):
            loss, a, b = merges[i]
            others = (s for s in order if s[1] not in (a, b) and kinds[s[1]] == kinds[a])
            split = next((s for s in others if s[1] not in used), None)
            if a in used or b in used or split is None:
                continue
            gain, c, shares = split
            if not exceeds(loss + gain, 0.0, **precise):
                continue
            if left <= 0.0:
                break
            used |= {a, b, c}
            topics = [a, b, c]
            documents = np.flatnonzero(tokens[:, topics].max(axis=1) > 0.5 * FEWEST_TOKENS)
            left -= sample.batch.lengths[documents].sum(dtype=np.float64)
            outcome = _trial(sample, stats, documents, topics, shares)
            tried = "one topic for the first two, two for the third"
            records.append(outcome.record(tools.n_iter, "split-merge", topics, tried))
        if any(record.accepted for record in records):
            state.stats = RunningStats(stats.arrays)
        return records


class _Sample:
    """A sample of the documents, and the computations of moves on it.

    ``rows`` (n,) are rows of the data; ``document`` (nnz,) is the position of each entry's document
    in the sample.
    """

    def __init__(self, model: LDA, data: RowSource, tools: MoveTools) -> None:
        self.model, self.data, self.run = model, data, tools.run
        self.rows = np.arange(data.n_rows)
        if data.n_rows > SAMPLE:
            # Draw the sample, since rows may be sorted.
            self.rows = np.sort(tools.rng.choice(data.n_rows, SAMPLE, replace=False))
        self.batch = data.batch(model, self.rows)
        self.document = np.repeat(np.arange(self.rows.size), np.diff(self.batch.indptr))
        self.factor = data.total / self.batch.weights.sum(dtype=np.float64)
        # (1, V), or (K, V) if topics have separate priors
        self.priors = np.ascontiguousarray(model.prior().arrays[0], np.float64)

    def prior_of(self, topic: int) -> Array:
        """Return eta of a topic, (V,)."""
        return self.priors[topic if len(self.priors) > 1 else 0]

    def solve(
        self, stats: RunningStats, batch: DocumentBatch, *, with_stats: bool = True
    ) -> LocalResult:
        """Return the local result of documents at T = 1 under statistics (V, K)."""
        global_params = self.model.expectation(stats, batch, self.run)
        return self.model.local_step(batch, global_params, 1.0, self.run, with_stats=with_stats)

    def shares(self, stats: RunningStats, gamma: Array) -> Iterable[tuple[IndexArray, Array]]:
        """Return the entries of each topic and their expected counts, K pairs."""
        batch = self.batch
        table = _relative(self.model.expected_log_topics(stats, batch, self.run))
        log_shares = Dirichlet.expectation(np.where(gamma > 0.0, gamma, kernels.LEAST_PRIOR))
        # Topics that a document must not have get no tokens.
        weights = _relative(log_shares.astype(table.dtype)) * (gamma > 0.0)
        row, n_of = np.empty(len(weights[0]), table.dtype), np.zeros(len(weights[0]), np.int64)
        inputs = self.document, batch.words, batch.counts, weights, table, row
        entries, values = np.empty(0, np.int64), row[:0]
        kernels.list_shares(*inputs, n_of, entries, values)
        ends = np.cumsum(n_of)
        entries, values = np.empty(ends[-1], np.int64), np.empty(ends[-1], table.dtype)
        kernels.list_shares(*inputs, ends - n_of, entries, values)
        return zip(np.split(entries, ends[:-1]), np.split(values, ends[:-1]), strict=True)


def _relative(log_values: Array) -> Array:
    """Return exp of each row less its maximum, with the floor of the local step."""
    relative = np.exp(log_values - log_values.max(axis=1, keepdims=True))
    floor: Any = kernels.FLOOR[log_values.dtype]
    return np.maximum(relative, floor)


def _evidence(counts: Any, prior: Array, prior_sum: Any) -> Array:
    """Return ``log B(eta + S) - log B(eta)``, (...), for counts (..., A) of all words that occur.

    ``prior`` is (A,), or has one row for each member.
    """
    value = gammaln(prior + counts).sum(axis=-1) - gammaln(prior_sum + counts.sum(axis=-1))
    return value - gammaln(prior).sum(axis=-1) + gammaln(np.asarray(prior_sum))


def _merges(sample: "_Sample", S: Array) -> list[tuple[float, int, int]]:
    """List (gain in evidence, a, b) of the most similar pairs of topics.

    The statistics are those of all documents, scaled to the size of the sample: a topic that is
    absent from the sample by chance would appear to merge at no cost.
    """
    eta = sample.priors
    eta_sums = eta.sum(axis=-1)
    counts = np.ascontiguousarray(S.T) / sample.factor
    root = np.sqrt(Dirichlet.mean(counts + eta))
    first, second = np.triu_indices(len(root), 1)
    kinds = sample.model.prior_kinds()
    same = kinds[first] == kinds[second]
    first, second = first[same], second[same]
    alike = (root @ root.T)[first, second]
    order = stable_order(-alike, scale=1.0, dtype=sample.model.dtype)
    pairs = order[: PAIRS_PER_TOPIC * len(root)]
    alone = _evidence(counts, eta, eta_sums)
    merges = []
    for a, b in zip(first[pairs].tolist(), second[pairs].tolist(), strict=True):
        prior = sample.prior_of(a)
        as_one = _evidence(counts[a] + counts[b], prior, prior.sum())
        merges.append((float(as_one - alone[a] - alone[b]), a, b))
    return merges


def _splits(
    sample: "_Sample", stats: RunningStats, result: LocalResult, rng: np.random.Generator
) -> list[tuple[float, int, Array]]:
    """List (gain in evidence, topic, share (A,) of each word's counts in the first group)."""
    batch, splits, dtype = sample.batch, [], sample.model.dtype
    for topic, (entries, values) in enumerate(sample.shares(stats, result.q.astype(np.float64))):
        # Only words and documents that the topic has.
        documents, of_rows = np.unique(sample.document[entries], return_inverse=True)
        words, of_columns = np.unique(batch.words[entries], return_inverse=True)
        shape = documents.size, words.size
        counts = sp.csr_array((values.astype(np.float64), (of_rows, of_columns)), shape=shape)
        rows = np.flatnonzero(~exceeds(FEWEST_TOKENS, counts.sum(axis=1), dtype=dtype))
        prior, weights = sample.prior_of(topic), batch.weights[documents[rows]].astype(np.float64)
        groups = _groups(counts[rows], weights, prior[batch.active[words]], prior.sum(), rng)
        if groups is not None:
            shares = np.full(batch.active.size, 0.5)
            shares[words] = groups[1]
            splits.append((groups[0], topic, shares))
    return splits


def _groups(
    counts: Any, weights: Array, eta: Array, eta_sum: float, rng: np.random.Generator
) -> tuple[float, Array] | None:
    """Divide documents (n, A) into two groups: (gain, shares of words); None if they are one."""
    if counts.shape[0] < 2:
        return None
    coordinate = _leading_direction(counts, weights, rng)
    # Coordinates above 0 only by rounding do not count.
    first = exceeds(coordinate, 0.0, scale=np.abs(coordinate).max()).astype(float)
    of_words, gain, one, two = counts.T, -np.inf, *np.zeros((2, counts.shape[1]))
    for step in range(1, MIXTURE_STEPS + 1):
        one, two = of_words @ (weights * first), of_words @ (weights * (1.0 - first))
        chance = np.average(first, weights=weights)
        if not 0.0 < chance < 1.0 or min(one.sum(), two.sum()) < FEWEST_TOKENS:
            return None
        ratio = (two.sum() + eta_sum) / (one.sum() + eta_sum)
        log_odds = counts @ np.log(ratio * (one + eta) / (two + eta))
        first = expit(log_odds + np.log(chance / (1.0 - chance)))
        if step in (FIRST_STEPS, MIXTURE_STEPS):
            one, two = of_words @ (weights * first), of_words @ (weights * (1.0 - first))
            three = _evidence(np.stack([one, two, one + two]), eta, eta_sum)
            # The gain is the bound of the mixture, whose weights are the chances, less that of one
            # group.
            chance = np.average(first, weights=weights)
            drawn = weights.sum() * (entr(chance) + entr(1.0 - chance))
            entropy = weights @ (entr(first) + entr(1.0 - first))
            gain = float(three[0] + three[1] - three[2] + entropy - drawn)
            if gain <= 0.0:
                break
    # The counts of a rare word are shared equally.
    return gain, (one + 0.5) / (one + two + 1.0)


def _leading_direction(counts: Any, weights: Array, rng: np.random.Generator) -> Array:
    """Return coordinates (n,) of documents along the direction in which they differ most, or 0.

    The second singular vector of ``counts / sqrt(row sums x column sums)``: the first describes
    lengths of documents and frequencies of words.
    """
    rows = np.asarray(counts.sum(axis=1))
    columns = np.maximum(weights @ counts, np.finfo(float).tiny)
    scaled = counts.multiply(np.sqrt(weights / rows)[:, None]).tocsr()
    scaled = sp.csr_array(scaled.multiply(1.0 / np.sqrt(columns)))
    of_rows, of_words = np.sqrt(weights * rows), np.sqrt(columns)
    of_rows, of_words = of_rows / np.linalg.norm(of_rows), of_words / np.linalg.norm(of_words)
    v, transposed = rng.normal(size=columns.size), scaled.T
    for _ in range(DIRECTION_STEPS):
        v -= of_words * (of_words @ v)
        u = scaled @ v
        u -= of_rows * (of_rows @ u)
        v = transposed @ u
        length = np.linalg.norm(v)
        v /= max(length, np.finfo(float).tiny)
    if length < SMALLEST_SQUARE:
        return np.zeros(rows.size)
    return scaled @ (v - of_words * (of_words @ v))


def _trial(
    sample: "_Sample", stats: RunningStats, documents: IndexArray, topics: list[int], shares: Array
) -> Outcome:
    """Decide whether topics a and b merge and c splits into b and c; change the statistics then."""
    batch = sample.data.batch(sample.model, sample.rows[documents])
    current = stats.arrays[0][:, topics].astype(np.float64)
    share = np.full(len(current), 0.5)
    share[sample.batch.active] = shares
    one, other, both = current.T
    changed = np.stack([one + other, both * share, both * (1.0 - share)], axis=1)
    before, _ = _after_updates(sample, stats, batch, topics, current)
    after, updated = _after_updates(sample, stats, batch, topics, changed)
    size, dtype = max(abs(after), abs(before)), sample.model.dtype
    outcome = judged(after - before, size, rows="the sample", dtype=dtype)
    if not outcome.is_accepted:
        stats.replace_columns(topics, current)
        return outcome
    # Topics updated on a sample would have its noise.
    is_all = sample.rows.size == sample.data.n_rows
    stats.replace_columns(topics, updated if is_all else changed)
    return outcome


def _after_updates(
    sample: "_Sample", stats: RunningStats, batch: DocumentBatch, topics: list[int], columns: Array
) -> tuple[float, Array]:
    """Return the bound in nats, up to a constant, and columns after updates of these topics."""
    stats.replace_columns(topics, columns)
    for _ in range(STEPS):
        updated = sample.solve(stats, batch).stats
        assert updated is not None and updated.rows is not None  # rows are the batch's words
        columns = np.zeros_like(columns)
        columns[updated.rows] = sample.factor * updated.arrays[0][:, topics]
        stats.replace_columns(topics, columns)
    eta = np.stack([sample.prior_of(k) for k in topics])
    bound = sample.solve(stats, batch, with_stats=False).bound @ batch.weights.astype(np.float64)
    return sample.factor * bound - kl_divergence(Dirichlet, columns.T + eta, eta), columns
