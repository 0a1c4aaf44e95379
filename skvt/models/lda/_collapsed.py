"""Latent Dirichlet allocation with topics and proportions integrated out.

Collapsed Gibbs sampling draws the topic z of each token given the topics of all other tokens
[GriffithsSteyvers04 eq. 5]. A local step is one sweep over the tokens of a batch, which draws their
topics. Its global parameters are the counts n_wk of the tokens of word w in topic k over all
documents. Its statistics are the resulting changes of these counts.

The dense sampler in :mod:`skvt.models.lda._collapsed_kernels` computes the probabilities of all
topics for each token. For many topics, the sparse sampler in
:mod:`skvt.models.lda._sparse_kernels`, whose cost hardly grows with their number, may replace it.

Shapes have the V words of the vocabulary, A words that occur in a batch of n documents, nnz
entries, which are the words of a document with their counts, and K topics.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Self, cast

import numpy as np
import scipy.sparse as sp

from skvt._compiled import LANES, SharedLoop, digamma_array
from skvt.contracts import Capability, LocalResult, PriorTerm
from skvt.expfam import Dirichlet, RunningStats, Stats
from skvt.files import PRIOR, in_files
from skvt.models.lda import _collapsed_kernels as kernels
from skvt.models.lda import _sparse_kernels as sparse
from skvt.models.lda._collapsed_kernels import COUNT_RANGE
from skvt.models.lda._given_topics import LDAGivenTopics
from skvt.models.lda._kernels import WORDS_PER_CLAIM
from skvt.models.lda._model import DocumentBatch
from skvt.models.lda._sampling import make_token_indptr, seed_rows
from skvt.typing import Array, IndexArray, Run

# Maximum number of groups of documents. Threads sweep over different groups at the same time. The
# number is limited because the sweep over a group does not see how the sweeps over other groups
# change the counts.
MAX_GROUPS = 8
# Each group has a copy of the counts. There are more than two groups only if all copies together
# have at most this number of entries per token of the batch.
MAX_COUNTS_PER_TOKEN = 3
# Maximum number of documents of a group whose draws are interleaved, so that the processor need not
# wait for the result of one draw before it begins the next.
MAX_STREAMS = 4
# If groups have d documents on average, the draws of d // DOCUMENTS_PER_STREAM documents are
# interleaved, at least 1 and at most MAX_STREAMS. The number is small in small groups, because
# tokens that are drawn at the same time do not see how they change the counts.
DOCUMENTS_PER_STREAM = 16
# The dense sampler is used up to this number of topics. For more topics the sparse sampler, which
# sums over the topics of a document, is faster.
MAX_DENSE_TOPICS = 700


class TopicCounts(NamedTuple):
    """The global parameters of a local step, where n are the counts n_wk."""

    # For the dense sampler, ``eta + n`` of the batch's words, (A, W), float32, padded with zeros
    # from K to W topics. For the sparse sampler, n without eta as a CSR matrix (A, K).
    lam: Array
    # (K,): sums of ``eta + n`` over all words of the vocabulary.
    totals: Array
    # Seed of the local step's random numbers.
    seed: int

    def select_words(self, positions: IndexArray) -> "TopicCounts":
        """Return the global parameters with only the rows ``positions`` of ``lam``."""
        return self._replace(lam=self.lam[positions])


class _Draws(NamedTuple):
    """Input and output arrays of a sweep over G groups of documents."""

    # (n + 1,): the number of the first token of each document, and last the number of all tokens.
    token_bounds: IndexArray
    # (G + 1,): the number of the first document of each group, and last the number of documents.
    groups: IndexArray
    # (G, K): the totals of topics in each group's copy of the counts. The sweep changes them.
    totals: Array
    # (n,), uint64: the seed of each document. The sweep may change it.
    seeds: Any
    # (tokens,): the topic of each token. The sweep overwrites it.
    topics: IndexArray
    # (n,): zeros. The sweep adds ``log p(w_i | z_-i, w_-i)`` of each token of the document.
    log_probability: Array


@dataclass(frozen=True, kw_only=True)
class TokenBatch(DocumentBatch):
    """Documents in which each token has a topic.

    Tokens are numbered document by document, and entry by entry within a document.
    """

    # (nnz + 1,): the number of the first token of each entry, and last the number of all tokens.
    token_indptr: IndexArray
    # (A + 1,): the position in ``tokens`` at which the tokens of each word begin.
    word_token_indptr: IndexArray
    # (tokens,): the numbers of the tokens, sorted by word.
    tokens: IndexArray
    # (tokens,): the weight of each token times the weight of its document, in the order of
    # ``tokens``. It is None if all are 1.
    token_weights: Array | None
    # (tokens,): the document of each token, in the order of ``tokens``. It is None unless the
    # sparse sampler may be used, which needs it.
    token_documents: IndexArray | None


@in_files("models.CollapsedLDA")
@dataclass(frozen=True)
class CollapsedLDA(LDAGivenTopics):
    """LDA whose local step draws the topic of each token given the topics of all other tokens.

    If the global parameters are :class:`TopicCounts`, the local step draws the topics of tokens. If
    they are topics, as in a stream and for the bound, it is the local step of
    :class:`LDAGivenTopics`.

    ``row_starts`` of a batch, (tokens,), are the topics of the tokens before a sweep, and
    ``row_starts`` of the result are the topics after it. If a batch has no ``row_starts``, its
    tokens are drawn given the counts in the global parameters alone, with uniform proportions.

    ``q`` of the result is n_dk (n, K), the weight of each document's tokens in each topic. It is a
    CSR matrix if the sparse sampler was used. ``bound`` of the result is not a bound, but the sum
    of ``log p(w_i | z_-i, w_-i)`` over the tokens i of each document, where ``-i`` stands for all
    other tokens.
    """

    # The eta with which the topics of tokens are drawn; None stands for ``topic_word_prior``, which
    # all other computations use. A learned ``topic_word_prior`` may be so small that a sampler with
    # this eta would hardly move.
    sampling_prior: Annotated[float | None, PRIOR] = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities of LDA given topics, and local steps with topics integrated out."""
        return super().capabilities | {Capability.COLLAPSIBLE}

    @property
    def _may_use_sparse_sampler(self) -> bool:
        """Whether there are many topics, and all documents have the same alpha.

        If topics also have the same eta, the sparse sampler is used.
        """
        return self.n_components > MAX_DENSE_TOPICS and not self.has_document_priors

    @property
    def _sampling_eta(self) -> Array:
        """Eta with which the topics of tokens are drawn, (V,) or (V, K)."""
        if self.sampling_prior is None:
            return self.topic_word_prior
        return np.full_like(self.topic_word_prior, self.sampling_prior)

    def batch(self, X: Any, rows: IndexArray, weights: Array) -> TokenBatch:
        """Return the result of :meth:`LDA.batch` with the tokens of the documents added."""
        batch = super().batch(X, rows, weights)
        # A count above MAX_TOKENS is represented by MAX_TOKENS tokens.
        token_indptr = make_token_indptr(np.minimum(batch.counts, kernels.MAX_TOKENS))
        word_token_indptr = np.empty(batch.active.size + 1, np.int64)
        tokens = np.empty(token_indptr[-1], np.int32 if token_indptr[-1] < 2**31 else np.int64)
        token_weights = np.empty(tokens.size, self.dtype)
        are_all_one = kernels.list_tokens_by_word(
            batch.word_indptr, batch.documents, batch.entries, batch.counts, token_indptr,
            batch.weights, word_token_indptr, tokens, token_weights,
        )  # fmt: skip
        token_documents = None
        if self._may_use_sparse_sampler:
            tokens_per_entry = np.diff(token_indptr)[batch.entries]
            token_documents = batch.documents.repeat(tokens_per_entry)
        return TokenBatch(
            **vars(batch), token_indptr=token_indptr, word_token_indptr=word_token_indptr,
            tokens=tokens,
            token_weights=None if are_all_one else token_weights, token_documents=token_documents,
        )  # fmt: skip

    def counts_given_others(
        self, stats: RunningStats, batch: DocumentBatch, seed: int
    ) -> TopicCounts:
        """Return the counts of the words of a batch as global parameters for its local step.

        Parameters
        ----------
        stats : RunningStats
            The counts over all documents, or initial values of these counts.
        batch : DocumentBatch
        seed : int
            Seed of the random numbers of the local step.

        Returns
        -------
        TopicCounts
        """
        words = batch.active
        prior_totals = self._sampling_eta.sum(axis=0, dtype=np.float64)
        # Clip the totals, which rounding of fractional weights could make negative.
        totals = np.maximum(stats.sums[0] + prior_totals, COUNT_RANGE[0])
        eta = self._sampling_eta[words]
        if self._may_use_sparse_sampler and eta.ndim == 1:
            return TopicCounts(self._make_sparse_counts(stats, words), totals, seed)
        # Pad the topics to a multiple of LANES.
        lam = np.empty((words.size, -(-self.n_components // LANES) * LANES), np.float32)
        eta = eta if eta.ndim == 2 else eta[:, None]
        kernels.write_pseudo_counts(stats.arrays[0], words, stats.scale, eta, lam)
        return TopicCounts(lam, totals, seed)

    def _make_sparse_counts(self, stats: RunningStats, words: IndexArray) -> Any:
        """Return the counts (A, K) of words, without eta, as a CSR matrix of float32."""
        counts = stats.as_csr(np.float32)
        if words.size < self.n_features:
            counts = counts[words]
        # Clip the counts, which rounding of fractional weights may make negative.
        values = np.clip(np.float32(stats.scale) * counts.data, 0.0, COUNT_RANGE[1])
        return sp.csr_array((values, counts.indices, counts.indptr), shape=counts.shape)

    def local_step(
        self, batch: DocumentBatch, global_params: Any, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Draw the topic of each token of the batch once, see :class:`CollapsedLDA`.

        With :class:`TopicCounts` as global parameters, the temperature is 1 and ``inv_temp`` is
        ignored. The result has statistics, but neither energies nor marginals.
        """
        if not isinstance(global_params, TopicCounts):
            return super().local_step(
                batch, global_params, inv_temp, run, with_energy=with_energy,
                with_marginal=with_marginal, with_stats=with_stats,
            )  # fmt: skip
        batch = cast("TokenBatch", batch)
        token_bounds = batch.token_indptr[batch.indptr]
        groups = self._divide_into_groups(token_bounds, batch.active.size)
        draws = _Draws(
            token_bounds=token_bounds,
            groups=groups,
            totals=np.tile(np.asarray(global_params.totals, np.float64), (groups.size - 1, 1)),
            # Make a seed from the number of the row, so that it does not depend on the batches.
            seeds=seed_rows(np.uint64(global_params.seed), batch.rows),
            topics=self._make_initial_topics(batch, int(token_bounds[-1])),
            log_probability=np.zeros(batch.n_rows),
        )
        if sp.issparse(global_params.lam):
            doc_counts, stats = self._run_sparse_sweep(batch, global_params.lam, draws, run)
        else:
            doc_counts = self._run_dense_sweep(batch, global_params.lam, draws, run)
            stats = self._compute_count_changes(batch, draws.topics, run)
        # ``row_starts`` is declared as an array of floating point, but holds integers here.
        new_row_starts: Any = draws.topics
        return LocalResult(
            stats,
            draws.log_probability,
            energy=None,
            q=doc_counts,
            row_starts=new_row_starts,
            counts=doc_counts,
        )

    def _run_dense_sweep(self, batch: TokenBatch, lam: Array, draws: _Draws, run: Run) -> Array:
        """Draw the topics of all tokens by the dense sampler; return n_dk (n, K)."""
        n_groups, n_topics = draws.groups.size - 1, self.n_components
        has_topics = batch.row_starts is not None
        priors = self.document_priors(batch)
        # Without ``row_starts``, alpha is 1 for all topics that a document may have, so that
        # proportions are uniform. The prior of the other topics is 0.
        positive_alpha = np.clip(priors, *COUNT_RANGE) if has_topics else np.float32(1.0)
        alpha = np.zeros((len(priors), lam.shape[1]), np.float32)
        alpha[:, :n_topics] = np.where(priors > 0.0, positive_alpha, np.float32(0.0))
        eta = np.clip(self._sampling_eta[batch.active], *COUNT_RANGE).astype(np.float32)
        eta = eta if eta.ndim == 2 else eta[:, None]
        doc_counts = np.zeros((batch.n_rows, n_topics), np.float32)
        n_streams = min(max(batch.n_rows // (n_groups * DOCUMENTS_PER_STREAM), 1), MAX_STREAMS)
        # SharedLoop takes the number of items, which are groups of documents, the number of items
        # that a thread takes at a time, and the arguments of ``sweep_collapsed`` in order.
        run(kernels.sweep_collapsed, SharedLoop(
            n_groups, 1, n_streams, batch.indptr, batch.token_indptr, lam, batch.words,
            batch.counts, batch.weights, draws.seeds, alpha, eta, draws.groups, draws.totals,
            has_topics, draws.topics, doc_counts, draws.log_probability,
        ))  # fmt: skip
        return doc_counts

    def _compute_count_changes(self, batch: TokenBatch, topics: IndexArray, run: Run) -> Stats:
        """Return the changes (A, K) of the counts of the batch's words due to the drawn topics."""
        changes = np.empty((batch.active.size, self.n_components), self.dtype)
        run(kernels.write_count_changes, SharedLoop(
            batch.active.size, WORDS_PER_CLAIM, batch.word_token_indptr, batch.tokens,
            batch.token_weights, batch.row_starts, topics, changes,
        ))  # fmt: skip
        return Stats((changes,), rows=batch.active)

    def _run_sparse_sweep(
        self, batch: TokenBatch, counts: Any, draws: _Draws, run: Run
    ) -> tuple[Any, Stats]:
        """Draw the topics of all tokens by the sparse sampler.

        Return n_dk (n, K) as a CSR matrix, and the changes of the counts.
        """
        has_topics = batch.row_starts is not None
        alpha = np.clip(self.doc_topic_prior, *COUNT_RANGE).astype(np.float32)
        eta = np.clip(self._sampling_eta[batch.active], *COUNT_RANGE)
        document_counts = sparse.allocate_document_counts(np.diff(draws.token_bounds), alpha.size)
        # Number of the first token of each group.
        first_tokens = draws.token_bounds[draws.groups[:-1]]
        changes = sparse.allocate_changes(first_tokens, draws.topics, self.dtype)
        # Scratch for the products of the probabilities of each document's tokens.
        products = np.ones(batch.n_rows)
        # The arguments are in the order of ``sweep_sparse``. If tokens have no topics yet, it draws
        # topics with alpha = 1.
        run(sparse.sweep_sparse, SharedLoop(
            draws.groups.size - 1, 1, alpha if has_topics else np.ones_like(alpha), batch.indptr,
            batch.counts, batch.token_indptr, batch.weights, batch.active, batch.word_token_indptr,
            batch.tokens, batch.token_weights, batch.token_documents, draws.seeds,
            eta.astype(np.float32), draws.groups, counts.indptr, counts.indices, counts.data,
            has_topics, draws.topics, document_counts, products, draws.log_probability,
            draws.totals, changes,
        ))  # fmt: skip
        words, topics, weights = changes.concatenate()
        stats = Stats((weights,), rows=words, columns=topics)
        return sparse.to_csr(document_counts, alpha.size), stats

    def _make_initial_topics(self, batch: DocumentBatch, n_tokens: int) -> IndexArray:
        """Return the topics of the tokens before the sweep, in an array that the sweep overwrites.

        If the batch has no ``row_starts``, the array has zeros, which the sweep does not read.

        Raises
        ------
        ValueError
            If ``row_starts`` has another number of tokens, or topics outside [0, K).
        """
        dtype = np.uint16 if self.n_components <= 2**16 else np.int32
        if batch.row_starts is None:
            return np.zeros(n_tokens, dtype)
        topics, n_topics = batch.row_starts, self.n_components
        if topics.shape != (n_tokens,) or not np.all((topics >= 0) & (topics < n_topics)):
            raise ValueError(
                f"The topics of tokens with which sweeps continue must be {n_tokens} numbers in "
                f"the range [0, {n_topics}). Got an array of shape {topics.shape} or numbers out "
                "of this range."
            )
        return np.asarray(topics.astype(dtype))

    def _divide_into_groups(self, token_bounds: IndexArray, n_words: int) -> IndexArray:
        """Divide the documents into groups with similar numbers of tokens.

        Return the number of the first document of each group, and last the number of all documents.
        ``token_bounds`` (n + 1,) are the numbers of the first token of each document, and last the
        number of all tokens. ``n_words`` is the number of words in each group's copy of the counts.
        """
        n_tokens = int(token_bounds[-1])
        n_groups = MAX_COUNTS_PER_TOKEN * n_tokens // max(1, n_words * self.n_components)
        n_groups = min(max(n_groups, 2), MAX_GROUPS)
        inner_bounds = np.searchsorted(token_bounds, np.arange(1, n_groups) * (n_tokens / n_groups))
        return np.concatenate([[0], inner_bounds, [token_bounds.size - 1]])

    def prior_statistics(self, batch: DocumentBatch, result: LocalResult) -> PriorTerm | None:
        """Return the statistics from which alpha is learned; None unless alpha is learned.

        The statistics are ``sum_d w_d E[log theta_d | z_d]`` (K,) and ``sum_d w_d``, with the
        weights w_d of documents. The first array has an additional last entry,
        ``sum_d w_d digamma(sum_k alpha_k + n_d)``, where n_d is the number of tokens of the
        document.

        With covariates, the first array is the result of
        :meth:`DocumentRegression.statistics_of_counts`, with an additional last row of zeros. If
        the global parameters of the local step were topics, the result is that of
        :meth:`LDA.prior_statistics`, without an additional entry.
        """
        if not self.learn_doc_topic_prior or result.counts is None:
            return super().prior_statistics(batch, result)
        counts: Any
        alpha, weights = self.doc_topic_prior.astype(np.float64), batch.weights.astype(np.float64)
        if self.regression is not None:
            # ``batch`` sets the design if there is a regression.
            assert batch.design is not None
            regression_stats = self.regression.statistics_of_counts(
                batch.design, weights, result.counts, batch.allowed
            )
            last_row = np.zeros_like(regression_stats[:1])
            return np.append(regression_stats, last_row, axis=0), weights.sum()
        digamma_alpha = digamma_array(alpha)
        # Begin with the sums for documents without tokens. The tokens of a document then add
        # digamma(alpha_k + n_dk) - digamma(alpha_k).
        sums = weights.sum() * digamma_alpha
        if sp.issparse(result.counts):
            counts = result.counts.astype(np.float64)
            topics, n_doc_tokens = counts.indices, counts @ np.ones(alpha.size)
            differences = digamma_array(alpha[topics] + counts.data) - digamma_alpha[topics]
            sums += weights @ sp.csr_array((differences, topics, counts.indptr), shape=counts.shape)
        else:
            kernels.add_log_proportions(result.counts, weights, alpha, digamma_alpha, sums)
            n_doc_tokens = result.counts.sum(axis=1, dtype=np.float64)
        digamma_total = weights @ digamma_array(n_doc_tokens + alpha.sum())
        return np.append(sums - digamma_total, digamma_total), weights.sum()

    def with_most_probable_priors(
        self, prior_stats: Any, stats: RunningStats | None, *, slowly: bool
    ) -> Self:
        """Return the model with learned priors, under which z and the words are more probable.

        Parameters
        ----------
        prior_stats : PriorStats
            Sums of :meth:`prior_statistics` over all documents, from which alpha is learned.
        stats : RunningStats or None
            The counts over all documents, from which eta is learned. If it is None, eta does not
            change.
        slowly : bool
            If it is False, alpha makes a fixed-point step towards the most probable alpha. If it is
            True, alpha makes a step of expectation-maximisation, which keeps topics without tokens
            for a longer time.

        Returns
        -------
        CollapsedLDA
            The model with the new alpha, and the most probable eta. Priors that are not learned do
            not change.
        """
        model = self
        if prior_stats.mean is not None:
            # The last entry is the additional entry of :meth:`prior_statistics`.
            mean, mean_digamma_total = prior_stats.mean[:-1], prior_stats.mean[-1]
            if self.regression is not None:
                model = self._with_regression(self.regression.take_step(mean, slowly=slowly))
            elif slowly:
                model = self.with_learned_priors(prior_stats.without_last())
            else:
                alpha: Array = self.doc_topic_prior.astype(np.float64)
                alpha = Dirichlet.step_towards_counts(alpha, mean, float(mean_digamma_total))
                model = replace(self, doc_topic_prior=alpha.astype(self.dtype))
        if not self.learn_topic_word_prior or stats is None:
            return model
        counts = stats.as_csr().data if self._may_use_sparse_sampler else stats.arrays[0]
        positive_counts = counts.dtype.type(stats.scale) * counts[counts > 0.0]
        topic_totals = np.maximum(stats.sums[0], 0.0)
        eta = Dirichlet.fit_symmetric_to_counts(
            self.topic_word_prior[0], positive_counts, topic_totals, self.n_features
        )
        return replace(model, topic_word_prior=np.full_like(self.topic_word_prior, eta))
