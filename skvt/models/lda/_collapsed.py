"""Latent Dirichlet allocation with topics and proportions summed out.

What is left are the topics z of tokens, which collapsed Gibbs sampling draws one by one given all
others [GriffithsSteyvers04 eq. 5]. What a local step takes for globals are the counts of all
tokens; its statistics are by how much its own tokens change them.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
import scipy.sparse as sp

from skvt.compiled import LANES, SharedLoop, digamma_array
from skvt.contracts import Capability, LocalResult, PriorTerm
from skvt.expfam import Dirichlet, RunningStats, Stats
from skvt.models.lda import _collapsed_kernels as kernels
from skvt.models.lda import _sparse_kernels as sparse
from skvt.models.lda._given_topics import LDAGivenTopics
from skvt.models.lda._kernels import WORDS
from skvt.models.lda._model import DocumentBatch
from skvt.models.lda._sampling import row_seeds
from skvt.typing import Array, IndexArray, Run

# Most groups of documents, which see each other's changes only after the sweep.
MOST_GROUPS = 8
# Entries of the counts' copies, one copy for each group, for each token at most.
TOKENS_OF_COUNT = 3
# Most documents of a group that advance side by side.
STREAMS = 4
# Documents of a group for each of these: tokens drawn at once see no changes by each other.
DOCUMENTS_OF_STREAM = 16
# Topics up to which sums over all of them are as fast as over those that there are.
MOST_DENSE = 700
# Numbers that single precision holds, and their products with each other.
RANGE = 1e-15, 1e15


class TopicCounts(NamedTuple):
    """``eta + n`` of a batch's words, on which its local step is conditioned."""

    # (A, W), float32: of topics beyond K, which fill lines of the kernels, 0. Of many topics n
    # alone, as CSR (A, K).
    lam: Array
    # (K,): sums over all words.
    totals: Array
    # Of random numbers.
    seed: int

    def at(self, places: IndexArray) -> "TopicCounts":
        """The counts of some words."""
        return self._replace(lam=self.lam[places])


class _Draws(NamedTuple):
    """A sweep of the G groups: what it begins with, and what it writes."""

    # (G + 1,): where the documents of each begin.
    groups: IndexArray
    # (G, K): counts of all words, changed.
    totals: Array
    # (n,), uint64: changed.
    seeds: Any
    # (tokens,): written.
    topics: IndexArray
    # (n,): 0, written.
    log_probability: Array


@dataclass(frozen=True, kw_only=True)
class TokenBatch(DocumentBatch):
    """Documents whose tokens are told apart.

    Those of each entry begin at ``token_indptr`` (nnz + 1,). The places of tokens sorted by word
    are ``tokens`` under ``word_tokens`` (A + 1,), and their weights, times those of their
    documents, ``token_weights``, which is None where all are 1. Of many topics ``token_documents``.
    """

    token_indptr: IndexArray
    word_tokens: IndexArray
    tokens: IndexArray
    token_weights: Array | None
    token_documents: IndexArray | None


@dataclass(frozen=True)
class CollapsedLDA(LDAGivenTopics):
    """LDA whose local step draws the topic of each token given those of all others.

    Given topics, as in a stream and for the bound, it is that of :class:`LDAGivenTopics`.

    ``start`` of a batch are the topics of its tokens, (tokens,), and so is that of a local result;
    without, tokens are placed given the topics alone. ``q`` is ``n_k`` (n, K), as CSR of many
    topics; ``bound`` no bound but the sum of ``log p(w_i | z_-i, w_-i)`` over the tokens of each
    document.
    """

    # eta under which topics of tokens are drawn, all else being as ``topic_word_prior`` has it;
    # None is that, too. The sampler hardly moves under the small values that are most probable.
    sampling_prior: float | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities | {Capability.COLLAPSIBLE}

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> TokenBatch:
        batch = super().batch(X, rows, weights)
        token_indptr = kernels.token_bounds(batch.counts)
        word_tokens = np.empty(batch.active.size + 1, np.int64)
        tokens = np.empty(token_indptr[-1], np.int32 if token_indptr[-1] < 2**31 else np.int64)
        token_weights = np.empty(tokens.size, self.dtype)
        alike = kernels.tokens_by_word(
            batch.word_indptr, batch.documents, batch.entries, batch.counts, token_indptr,
            batch.weights, word_tokens, tokens, token_weights,
        )  # fmt: skip
        of_tokens = None
        if self.n_components > MOST_DENSE:
            of_tokens = batch.documents.repeat(np.diff(token_indptr)[batch.entries])
        return TokenBatch(
            **vars(batch), token_indptr=token_indptr, word_tokens=word_tokens, tokens=tokens,
            token_weights=None if alike else token_weights, token_documents=of_tokens,
        )  # fmt: skip

    def counts_given_others(
        self, stats: RunningStats, batch: DocumentBatch, seed: int
    ) -> TopicCounts:
        """The globals of a batch: a :class:`TopicCounts`."""
        words, own = batch.active, self._of_sampling()
        eta = own.topic_word_prior[words]
        totals = np.maximum(stats.sums[0] + own.prior_totals, RANGE[0])
        if self.n_components > MOST_DENSE and eta.ndim == 1:
            return TopicCounts(self._present(stats, words), totals, seed)
        lam = np.empty((words.size, _width(self.n_components)), np.float32)
        eta = eta if eta.ndim == 2 else eta[:, None]
        kernels.pseudo_counts(stats.arrays[0], words, stats.scale, eta, *RANGE, lam)
        return TopicCounts(lam, totals, seed)

    def _present(self, stats: RunningStats, words: IndexArray) -> Any:
        """The counts of these words as CSR (float32)."""
        found = stats.listed(np.float32)
        if words.size < self.n_features:
            found = found[words]
        # (of fractional counts rounding leaves a rest)
        values = np.clip(np.float32(stats.scale) * found.data, 0.0, RANGE[1])
        return sp.csr_array((values, found.indices, found.indptr), shape=found.shape)

    def local_step(
        self, batch: DocumentBatch, global_params: Any, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """A sweep over the tokens of the batch, see :class:`CollapsedLDA`; T = 1."""
        if not isinstance(global_params, TopicCounts):
            return super().local_step(
                batch, global_params, inv_temp, run, with_energy=with_energy,
                with_marginal=with_marginal, with_stats=with_stats,
            )  # fmt: skip
        batch = cast("TokenBatch", batch)
        token_indptr = batch.token_indptr
        groups = self._groups(token_indptr[batch.indptr], batch.active.size)
        draws = _Draws(
            groups,
            np.repeat(np.asarray(global_params.totals, np.float64)[None], groups.size - 1, axis=0),
            # (row numbers, so that it does not matter which rows a batch consists of)
            row_seeds(np.uint64(global_params.seed), batch.rows),
            self._begun(batch, int(token_indptr[-1])),
            np.zeros(batch.n_rows),
        )
        if sp.issparse(global_params.lam):
            of_topics, stats = self._sparse_sweep(batch, global_params.lam, draws, run)
        else:
            of_topics = self._sweep(batch, global_params.lam, draws, run)
            stats = self._changed(batch, draws.topics, run)
        return LocalResult(
            stats,
            draws.log_probability,
            None,
            of_topics,
            start=draws.topics,  # type: ignore[arg-type]  # whole numbers
            counts=of_topics,
        )

    def _sweep(self, batch: TokenBatch, lam: Array, draws: _Draws, run: Run) -> Array:
        """Draw the topics of all tokens by sums over all topics; returns ``n_k`` (n, K)."""
        n_groups, n_topics = draws.groups.size - 1, self.n_components
        alpha = np.zeros(lam.shape[1], np.float32)
        alpha[:n_topics] = np.clip(self.doc_topic_prior, *RANGE)
        prior = self._of_sampling().topic_word_prior[batch.active]
        prior = np.clip(prior, *RANGE).astype(np.float32)
        prior = prior if prior.ndim == 2 else prior[:, None]
        of_topics = np.zeros((batch.n_rows, n_topics), np.float32)
        n_streams = min(max(batch.n_rows // (n_groups * DOCUMENTS_OF_STREAM), 1), STREAMS)
        loop = SharedLoop(
            n_groups, 1, n_streams, batch.indptr, batch.words, batch.counts, batch.token_indptr,
            batch.weights, draws.seeds, alpha, prior, draws.groups, lam, draws.totals,
            batch.start is not None, draws.topics, of_topics, draws.log_probability,
        )  # fmt: skip
        run(kernels.collapsed_steps, loop)
        return of_topics

    def _changed(self, batch: TokenBatch, topics: IndexArray, run: Run) -> Stats:
        """By how much the counts change, of all topics."""
        changed = np.empty((batch.active.size, self.n_components), self.dtype)
        loop = SharedLoop(
            batch.active.size, WORDS, batch.word_tokens, batch.tokens, batch.token_weights,
            batch.start, topics, changed,
        )  # fmt: skip
        run(kernels.changed_statistics, loop)
        return Stats((changed,), rows=batch.active)

    def _sparse_sweep(
        self, batch: TokenBatch, counts: Any, draws: _Draws, run: Run
    ) -> tuple[Any, Stats]:
        """Draw them by sums over the topics that there are; returns ``n_k`` (n, K) as CSR, too."""
        placed = batch.start is not None
        alpha = np.clip(self.doc_topic_prior, *RANGE).astype(np.float32)
        prior = np.clip(self._of_sampling().topic_word_prior[batch.active], *RANGE)
        ends = batch.token_indptr[batch.indptr]
        own = sparse.no_proportions(np.diff(ends), alpha.size)
        moves = sparse.no_moves(ends[draws.groups[:-1]], draws.topics, self.dtype)
        loop = SharedLoop(
            draws.groups.size - 1, 1, batch.indptr, batch.counts, batch.token_indptr,
            batch.weights, batch.active, batch.word_tokens, batch.tokens, batch.token_weights,
            batch.token_documents, draws.seeds, alpha if placed else np.ones_like(alpha),
            prior.astype(np.float32), draws.groups,
            counts.indptr, counts.indices, counts.data, placed, draws.topics, own,
            np.ones(batch.n_rows), draws.log_probability, draws.totals, moves,
        )  # fmt: skip
        run(sparse.sparse_steps, loop)
        words, topics, weights = moves.joined()
        stats = Stats((weights,), rows=words, columns=topics)
        return sparse.listed(own, alpha.size), stats

    def _of_sampling(self) -> Self:
        """The model under whose prior of the topics tokens are drawn."""
        if self.sampling_prior is None:
            return self
        eta = np.full_like(self.topic_word_prior, self.sampling_prior)
        return replace(self, topic_word_prior=eta)

    def _begun(self, batch: DocumentBatch, n_tokens: int) -> IndexArray:
        """The topics of tokens as they are before the sweep, to be written to."""
        dtype = np.uint16 if self.n_components <= 2**16 else np.int32
        if batch.start is None:
            return np.zeros(n_tokens, dtype)
        topics: IndexArray = batch.start.astype(dtype)
        if topics.shape != (n_tokens,) or topics.max(initial=0) >= self.n_components:
            raise ValueError("The topics of tokens to continue from are not those of these rows.")
        return topics

    def _groups(self, ends: IndexArray, n_words: int) -> IndexArray:
        """Where the documents of each group begin: as many tokens in each, as far as possible."""
        n_tokens = int(ends[-1])
        number = TOKENS_OF_COUNT * n_tokens // max(1, n_words * self.n_components)
        number = min(max(number, 2), MOST_GROUPS)
        bounds = np.searchsorted(ends, np.arange(1, number) * (n_tokens / number))
        return np.concatenate([[0], bounds, [ends.size - 1]])

    def prior_statistics(self, batch: DocumentBatch, result: LocalResult) -> PriorTerm | None:
        """``(sum_d w_d E[log theta_d | z_d], sum_d w_d)``; None unless alpha is learned.

        The last entry is the sum of ``w_d digamma(sum_k alpha_k + n_d)``.
        """
        if not self.learn_doc_topic_prior or result.counts is None:
            return super().prior_statistics(batch, result)
        alpha, weights = self.doc_topic_prior.astype(np.float64), batch.weights.astype(np.float64)
        of_none = digamma_array(alpha)
        sums = weights.sum() * of_none
        if sp.issparse(result.counts):
            counts: Any = result.counts.astype(np.float64)
            topics, sizes = counts.indices, counts @ np.ones(alpha.size)
            counts.data = digamma_array(alpha[topics] + counts.data) - of_none[topics]
            sums += weights @ counts
        else:
            kernels.add_log_proportions(result.counts, weights, alpha, of_none, sums)
            sizes = result.counts.sum(axis=1, dtype=np.float64)
        normaliser = weights @ digamma_array(sizes + alpha.sum())
        return np.append(sums - normaliser, normaliser), weights.sum()

    def with_most_probable_priors(
        self, prior_stats: Any, stats: RunningStats | None, *, slowly: bool
    ) -> Self:
        """alpha by a step towards, and eta at the maximum of the probability of all z and words.

        ``slowly`` is by expectation-maximisation, which keeps topics without tokens for long.
        """
        if not slowly and prior_stats.mean is not None:
            mean_log, normaliser = prior_stats.mean[:-1], float(prior_stats.mean[-1])
            alpha: Array = self.doc_topic_prior.astype(np.float64)
            alpha = Dirichlet.step_to_counts(alpha, mean_log, normaliser)
            model = replace(self, doc_topic_prior=alpha.astype(self.dtype))
        else:
            model = self.with_learned_priors(prior_stats.without_last())
        if not self.learn_topic_word_prior or stats is None:
            return model
        many = self.n_components > MOST_DENSE
        counts = stats.listed().data if many else stats.arrays[0]
        eta = Dirichlet.fit_symmetric_to_counts(
            self.topic_word_prior[0],
            counts.dtype.type(stats.scale) * counts[counts > 0.0],
            np.maximum(stats.sums[0], 0.0),
            self.n_features,
        )
        return replace(model, topic_word_prior=np.full_like(self.topic_word_prior, eta))


def _width(n_topics: int) -> int:
    """Topics and what fills the last line of the kernels."""
    return -(-n_topics // LANES) * LANES
