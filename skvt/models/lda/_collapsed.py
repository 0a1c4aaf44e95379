"""Latent Dirichlet allocation with topics and proportions summed out.

Collapsed Gibbs sampling draws the topic z of each token given those of all others
[GriffithsSteyvers04 eq. 5]. The globals of a local step are the counts over all tokens; its
statistics are the changes of these counts by the tokens of the batch.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Self, cast

import numpy as np
import scipy.sparse as sp

from skvt.compiled import LANES, SharedLoop, digamma_array
from skvt.contracts import Capability, LocalResult, PriorTerm
from skvt.expfam import Dirichlet, RunningStats, Stats
from skvt.files import PRIOR, in_files
from skvt.models.lda import _collapsed_kernels as kernels
from skvt.models.lda import _sparse_kernels as sparse
from skvt.models.lda._given_topics import LDAGivenTopics
from skvt.models.lda._kernels import WORDS
from skvt.models.lda._model import DocumentBatch
from skvt.models.lda._sampling import row_seeds
from skvt.typing import Array, IndexArray, Run

# Maximum number of groups of documents. A group sees changes by others only after the sweep.
MOST_GROUPS = 8
# Each group has a copy of the counts. Unless there are only two groups, all copies together have
# at most this many entries for each token.
TOKENS_OF_COUNT = 3
# Maximum number of documents of a group whose draws are interleaved.
STREAMS = 4
# Minimum number of documents of a group for each interleaved one: tokens that are drawn at the
# same time do not see each other's changes.
DOCUMENTS_OF_STREAM = 16
# Up to this number of topics, sums over all topics are as fast as sums over those with counts.
MOST_DENSE = 700
# Numbers are clipped to this range, in which products of two do not leave single precision.
RANGE = 1e-15, 1e15


class TopicCounts(NamedTuple):
    """Counts with their prior, ``eta + n``, of the words of a batch: globals of its local step."""

    # (A, W), float32, padded with zeros from K to W topics. With many topics that share one eta, a
    # CSR matrix (A, K) of n alone.
    lam: Array
    # (K,): sums of ``eta + n`` over all words of the vocabulary.
    totals: Array
    # Seed of the random numbers of the sweep.
    seed: int

    def at(self, places: IndexArray) -> "TopicCounts":
        """Return the counts of the words at ``places``."""
        return self._replace(lam=self.lam[places])


class _Draws(NamedTuple):
    """Input and output arrays of one sweep over the G groups of documents."""

    # (G + 1,): first document of each group, then n.
    groups: IndexArray
    # (G, K): total of each topic in each group's copy of the counts, changed by the sweep.
    totals: Array
    # (n,), uint64: seed of each document, which the sweep may change.
    seeds: Any
    # (tokens,): topic of each token, overwritten by the sweep.
    topics: IndexArray
    # (n,): 0; the sweep adds ``log p(w_i | z_-i, w_-i)`` of each token of the document.
    log_probability: Array


@dataclass(frozen=True, kw_only=True)
class TokenBatch(DocumentBatch):
    """Documents in which each token has a topic.

    The tokens of entry j begin at ``token_indptr[j]``, (nnz + 1,). ``tokens`` are the tokens sorted
    by word; those of word a begin at ``word_tokens[a]``, (A + 1,). In the same order,
    ``token_weights`` are weights of tokens times weights of documents, or None if all are 1, and
    ``token_documents``, which only the sampler of many topics needs, are their documents.
    """

    token_indptr: IndexArray
    word_tokens: IndexArray
    tokens: IndexArray
    token_weights: Array | None
    token_documents: IndexArray | None


@in_files("models.CollapsedLDA")
@dataclass(frozen=True)
class CollapsedLDA(LDAGivenTopics):
    """LDA whose local step draws the topic of each token given those of all others.

    With topics as globals, as in a stream and for the bound, the local step is that of
    :class:`LDAGivenTopics`.

    ``start`` of a batch and of a local result are the topics of the tokens, (tokens,). Without
    ``start``, tokens are drawn given the topics alone. ``q`` of the result is ``n_k`` (n, K), a CSR
    matrix if there are many topics. Its ``bound`` is not a bound, but the sum of
    ``log p(w_i | z_-i, w_-i)`` over the tokens of each document.
    """

    # eta of the conditional from which topics of tokens are drawn; None is ``topic_word_prior``,
    # which everything else uses. Under the small values of eta that are most probable, the sampler
    # hardly moves.
    sampling_prior: Annotated[float | None, PRIOR] = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities | {Capability.COLLAPSIBLE}

    @property
    def _is_sparse(self) -> bool:
        """Whether sums over topics are sparse: for many topics, if all documents have one alpha."""
        return self.n_components > MOST_DENSE and not self.has_document_priors

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
        token_documents = None
        if self._is_sparse:
            token_documents = batch.documents.repeat(np.diff(token_indptr)[batch.entries])
        return TokenBatch(
            **vars(batch), token_indptr=token_indptr, word_tokens=word_tokens, tokens=tokens,
            token_weights=None if alike else token_weights, token_documents=token_documents,
        )  # fmt: skip

    def counts_given_others(
        self, stats: RunningStats, batch: DocumentBatch, seed: int
    ) -> TopicCounts:
        """Return the globals of a local step on the batch: a :class:`TopicCounts`."""
        words, sampling_model = batch.active, self._of_sampling()
        eta = sampling_model.topic_word_prior[words]
        totals = np.maximum(stats.sums[0] + sampling_model.prior_totals, RANGE[0])
        if self._is_sparse and eta.ndim == 1:
            return TopicCounts(self._present(stats, words), totals, seed)
        lam = np.empty((words.size, _width(self.n_components)), np.float32)
        eta = eta if eta.ndim == 2 else eta[:, None]
        kernels.pseudo_counts(stats.arrays[0], words, stats.scale, eta, *RANGE, lam)
        return TopicCounts(lam, totals, seed)

    def _present(self, stats: RunningStats, words: IndexArray) -> Any:
        """Return the counts of these words as a CSR matrix, float32."""
        counts = stats.listed(np.float32)
        if words.size < self.n_features:
            counts = counts[words]
        # Rounding of fractional counts may leave values below 0.
        values = np.clip(np.float32(stats.scale) * counts.data, 0.0, RANGE[1])
        return sp.csr_array((values, counts.indices, counts.indptr), shape=counts.shape)

    def local_step(
        self, batch: DocumentBatch, global_params: Any, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Draw the topic of each token of the batch once, at T = 1; see :class:`CollapsedLDA`."""
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
            # Seeds depend on row numbers, not on how rows are divided into batches.
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
        """Draw the topics of all tokens by sums over all topics; return ``n_k`` (n, K)."""
        n_groups, n_topics = draws.groups.size - 1, self.n_components
        priors = self.document_priors(batch)
        alpha = np.zeros((len(priors), lam.shape[1]), np.float32)
        weights = np.clip(priors, *RANGE) if batch.start is not None else np.float32(1.0)
        alpha[:, :n_topics] = np.where(priors > 0.0, weights, np.float32(0.0))
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
        """Return the change of each count of the batch's words."""
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
        """Draw the topics by sparse sums; return ``n_k`` (n, K) as CSR and changes of counts."""
        placed = batch.start is not None
        alpha = np.clip(self.doc_topic_prior, *RANGE).astype(np.float32)
        prior = np.clip(self._of_sampling().topic_word_prior[batch.active], *RANGE)
        ends = batch.token_indptr[batch.indptr]
        proportions = sparse.no_proportions(np.diff(ends), alpha.size)
        moves = sparse.no_moves(ends[draws.groups[:-1]], draws.topics, self.dtype)
        loop = SharedLoop(
            draws.groups.size - 1, 1, batch.indptr, batch.counts, batch.token_indptr,
            batch.weights, batch.active, batch.word_tokens, batch.tokens, batch.token_weights,
            batch.token_documents, draws.seeds, alpha if placed else np.ones_like(alpha),
            prior.astype(np.float32), draws.groups,
            counts.indptr, counts.indices, counts.data, placed, draws.topics,
            proportions, np.ones(batch.n_rows), draws.log_probability, draws.totals, moves,
        )  # fmt: skip
        run(sparse.sparse_steps, loop)
        words, topics, weights = moves.joined()
        stats = Stats((weights,), rows=words, columns=topics)
        return sparse.listed(proportions, alpha.size), stats

    def _of_sampling(self) -> Self:
        """Return the model with ``sampling_prior``, if there is one, as eta."""
        if self.sampling_prior is None:
            return self
        eta = np.full_like(self.topic_word_prior, self.sampling_prior)
        return replace(self, topic_word_prior=eta)

    def _begun(self, batch: DocumentBatch, n_tokens: int) -> IndexArray:
        """Return a copy of the tokens' topics, or zeros, which the sweep overwrites."""
        dtype = np.uint16 if self.n_components <= 2**16 else np.int32
        if batch.start is None:
            return np.zeros(n_tokens, dtype)
        topics: IndexArray = batch.start.astype(dtype)
        if topics.shape != (n_tokens,) or topics.max(initial=0) >= self.n_components:
            raise ValueError("The topics of tokens to continue from are not those of these rows.")
        return topics

    def _groups(self, ends: IndexArray, n_words: int) -> IndexArray:
        """Return the first document of each group, then n; groups have similarly many tokens."""
        n_tokens = int(ends[-1])
        number = TOKENS_OF_COUNT * n_tokens // max(1, n_words * self.n_components)
        number = min(max(number, 2), MOST_GROUPS)
        bounds = np.searchsorted(ends, np.arange(1, number) * (n_tokens / number))
        return np.concatenate([[0], bounds, [ends.size - 1]])

    def prior_statistics(self, batch: DocumentBatch, result: LocalResult) -> PriorTerm | None:
        """Return ``(sum_d w_d E[log theta_d | z_d], sum_d w_d)``; None unless alpha is learned.

        The first array has one more entry, the sum of ``w_d digamma(sum_k alpha_k + n_d)``; with
        covariates, it is :meth:`DocumentRegression.statistics_of_counts`, and the entry is 0.
        """
        if not self.learn_doc_topic_prior or result.counts is None:
            return super().prior_statistics(batch, result)
        counts: Any
        alpha, weights = self.doc_topic_prior.astype(np.float64), batch.weights.astype(np.float64)
        if self.regression is not None:
            assert batch.design is not None  # as prepared
            parabolas = self.regression.statistics_of_counts(
                batch.design, weights, result.counts, batch.allowed
            )
            return np.append(parabolas, np.zeros_like(parabolas[:1]), axis=0), weights.sum()
        of_none = digamma_array(alpha)
        sums = weights.sum() * of_none
        if sp.issparse(result.counts):
            counts = result.counts.astype(np.float64)
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
        """Return the model with priors of greater probability of all z and words.

        alpha takes a step towards the maximum, eta is at the maximum. With ``slowly``, the step of
        alpha is one of expectation-maximisation, which keeps topics without tokens for long.
        """
        if self.regression is not None and prior_stats.mean is not None:
            model = self._with(self.regression.learned(prior_stats.mean[:-1], slowly=slowly))
        elif not slowly and prior_stats.mean is not None:
            mean_log, normaliser = prior_stats.mean[:-1], float(prior_stats.mean[-1])
            alpha: Array = self.doc_topic_prior.astype(np.float64)
            alpha = Dirichlet.step_to_counts(alpha, mean_log, normaliser)
            model = replace(self, doc_topic_prior=alpha.astype(self.dtype))
        else:
            model = self.with_learned_priors(prior_stats.without_last())
        if not self.learn_topic_word_prior or stats is None:
            return model
        many = self._is_sparse
        counts = stats.listed().data if many else stats.arrays[0]
        eta = Dirichlet.fit_symmetric_to_counts(
            self.topic_word_prior[0],
            counts.dtype.type(stats.scale) * counts[counts > 0.0],
            np.maximum(stats.sums[0], 0.0),
            self.n_features,
        )
        return replace(model, topic_word_prior=np.full_like(self.topic_word_prior, eta))


def _width(n_topics: int) -> int:
    """Return the number of topics, rounded up to a multiple of LANES."""
    return -(-n_topics // LANES) * LANES
