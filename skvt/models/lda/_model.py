"""Latent Dirichlet allocation, as a model for the engines.

    beta_k ~ Dir(eta)        topics, global, (V,)
    theta_d ~ Dir(alpha)     proportions of document d, local, (K,)
    z_dn ~ Mult(theta_d)     topic of token n of document d
    w_dn ~ Mult(beta_{z_dn}) word of this token

There are K topics and V words in the vocabulary. The mean-field family is q(beta_k) = Dir(lam_k),
q(theta_d) = Dir(gamma_d), q(z_dn) = Mult(phi_dw), with one phi_dw for all tokens of word w
[Blei03 sec. 5], [Hoffman10 eq. 2]. The tempered likelihood is p(w, z | theta, beta)^(1/T); neither
p(beta | eta) nor p(theta | alpha) is tempered [VT16 app. B.2].
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax

from skvt._compiled import (
    COUNTER_SIZE,
    SharedLoop,
    allocate_aligned,
    digamma_array,
    gammaln_array,
    wait_for_items,
    yield_core,
)
from skvt.contracts import BatchScope, Capability, LocalResult, PriorTerm, RowSource
from skvt.expfam import Dirichlet, Family, RunningStats, Stats
from skvt.files import PRIOR, in_files
from skvt.models import Topics
from skvt.models.lda import _kernels as kernels
from skvt.models.lda._covariates import DocumentRegression
from skvt.rows import get_design_and_allowed, sum_total_and_weight, sums_of_rows
from skvt.typing import Array, IndexArray, Run

# After the first sweeps over a document, a topic is left out if it has fewer of the document's
# tokens than this number, and fewer than a tenth of an equal share.
MAX_THRESHOLD = 0.01
# The prior of a topic excludes a word if eta of the word in this topic is below this share of the
# word's largest eta in any topic.
EXCLUDED_SHARE = 1e-2
# Coefficients of covariates are learned from a running mean over minibatches. Its step size is at
# least this number times the share of the minibatch in the data, see :meth:`LDA.prior_step`.
STEP_SIZE_PER_SHARE = 4.0


@dataclass(frozen=True)
class DocumentBatch:
    """Documents prepared for local steps: n rows of X, in which A words occur.

    These words are numbered from 0. An entry is a word of a document with its count.
    """

    # (n + 1,), (nnz,) and (nnz,): a CSR matrix of the documents over the A words.
    indptr: IndexArray
    words: IndexArray
    counts: Array
    # (A,): the column of X of each word.
    active: IndexArray
    # (A + 1,), (nnz,) and (nnz,): the entries sorted by word. ``entries`` holds their numbers in
    # the matrix, and ``documents`` their rows. The entries of word a begin at ``word_indptr[a]``.
    word_indptr: IndexArray
    documents: IndexArray
    entries: IndexArray
    # (n,): number of tokens, sample weight and row of X of each document.
    lengths: Array
    weights: Array
    rows: IndexArray
    # The state from which a local step starts; None for models that keep no state between steps.
    row_starts: Array | None = None
    # (n, P): covariates of the documents; None unless the prior depends on them.
    design: Array | None = None
    # (n, K): whether each document may have each topic; None if all documents may have all topics.
    allowed: Array | None = None

    @property
    def n_rows(self) -> int:
        return self.lengths.size

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in vars(self).values() if array is not None)

    @property
    def max_words(self) -> int:
        """Number of entries of the longest document."""
        return int(np.diff(self.indptr).max(initial=1))


def _optimise_documents(max_words: int, *arguments: Any) -> None:
    """Allocate a thread's scratch and call :func:`~skvt.models.lda._kernels.optimise_documents`.

    ``max_words`` is the number of words of the longest document. ``arguments`` are the arguments
    of the compiled function from ``indptr`` to ``gamma``, and last the ``counter``.
    """
    *other_arguments, gamma, counter = arguments
    # Pad both sizes to multiples of TABLE_MULTIPLE.
    n_padded_words = max_words + (-max_words % kernels.TABLE_MULTIPLE)
    n_padded_topics = gamma.shape[1] + (-gamma.shape[1] % kernels.TABLE_MULTIPLE)
    table = allocate_aligned(1, n_padded_words * n_padded_topics, gamma.dtype)[0]
    per_word = allocate_aligned(3, n_padded_words, gamma.dtype)
    per_topic = allocate_aligned(6, n_padded_topics, gamma.dtype)
    order = np.empty(n_padded_topics, np.int32)
    kernels.optimise_documents(*other_arguments, gamma, table, per_word, per_topic, order, counter)


class _Loop(NamedTuple):
    """A compiled loop over ``n_items`` items, to be shared by threads."""

    kernel: Any
    n_items: int
    arguments: tuple[Any, ...]


def _run_loops(loops: list[_Loop], counters: IndexArray) -> None:
    """Run the present thread's share of the loops, one after the other.

    A loop needs the results of the loop before, and begins when all threads have finished it.
    ``counters`` holds one counter for each loop, by which threads share its items. A counter has
    COUNTER_SIZE entries, but the last may have more, see :class:`~skvt._compiled.SharedLoop`.

    All loops are a single task, because it takes 30 microseconds to start all threads. They are
    separate kernels, because numba would compile all of them again as parts of a common kernel.
    """
    for i, (kernel, n_items, arguments) in enumerate(loops):
        counter = counters[i * COUNTER_SIZE :]
        if i + 1 < len(loops):
            counter = counter[:COUNTER_SIZE]
        # A call takes a limited number of items. Repeat it until all threads have finished all
        # items of the loop.
        kernel(*arguments, counter)
        while not wait_for_items(counter, n_items):
            # Let the thread with the last item run, which may need this core.
            yield_core()
            kernel(*arguments, counter)


@in_files("models.LDA")
@dataclass(frozen=True)
class LDA:
    """Latent Dirichlet allocation for the engines.

    Computations have the precision of the priors. The statistics S (V, K) are the expected counts
    of words in topics.
    """

    # (K,): alpha, concentration of the Dirichlet prior of a document's topic proportions.
    doc_topic_prior: Annotated[Array, "n", PRIOR]
    # (V,) or (V, K): eta, concentration of the Dirichlet prior of the word probabilities of all
    # topics or of each topic.
    topic_word_prior: Annotated[Array, "d | d n", PRIOR]
    # Maximum number of sweeps of one document's local step.
    max_doc_update_iter: int = 100
    # A document has converged when gamma changes by less than this on average over topics.
    mean_change_tol: float = 1e-3
    # Whether alpha, and one eta for all words and topics, are learned by maximising the bound.
    learn_doc_topic_prior: bool = False
    learn_topic_word_prior: bool = False
    # Whether local steps return the expected tokens of each topic in each document.
    counts_tokens: bool = False
    # (K, V): word probabilities of the initial topics; None draws initial statistics.
    start: Annotated[Array | None, "n d"] = None
    # The regression of log alpha on covariates of documents; None without covariates. If there is a
    # regression, ``doc_topic_prior`` is alpha at mean covariates.
    regression: DocumentRegression | None = None
    # (K,): the number of each topic's group; None if all documents may have all topics. Topics of a
    # group are allowed in the same documents. If there are groups, alpha is learned as the
    # intercept of ``regression``.
    topic_groups: Annotated[IndexArray | None, "n"] = None

    families: ClassVar[tuple[Family, ...]] = (Dirichlet,)

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities, which depend on how the priors of documents differ."""
        if self.regression is not None:
            return frozenset({Capability.TOPICS, Capability.HYPERPRIOR})
        # The normaliser log C(T) of the tempered likelihood is not known if documents differ in
        # alpha.
        if self.has_document_priors:
            return frozenset({Capability.TOPICS})
        return frozenset({Capability.TEMPERABLE, Capability.TOPICS})

    @property
    def has_document_priors(self) -> bool:
        """Whether documents may differ in alpha."""
        return self.regression is not None or self.topic_groups is not None

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        """Return the shapes of the statistics."""
        return [(self.n_features, n_components)]

    @property
    def n_components(self) -> int:
        return self.doc_topic_prior.size

    @property
    def n_features(self) -> int:
        return len(self.topic_word_prior)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.doc_topic_prior.dtype

    # -------------------------------------------------------------------- global parameters
    def prior(self) -> Stats:
        """Return the natural parameters of p(beta), (1, V), or (K, V) if topics differ in eta."""
        return Stats((np.atleast_2d(self.topic_word_prior.T),))

    def prior_kinds(self) -> IndexArray:
        """Return the number of each topic's kind, (K,).

        Topics are of the same kind if they have the same prior and are allowed in the same
        documents. Moves combine only topics of the same kind.
        """
        groups = self.topic_groups
        if groups is None:
            groups = np.zeros(self.n_components, np.intp)
        if self.topic_word_prior.ndim == 1:
            return groups
        # Topics are of the same kind if they have equal columns.
        columns = np.vstack([self.topic_word_prior, groups])
        return np.unique(columns, axis=1, return_inverse=True)[1].ravel()

    @property
    def prior_totals(self) -> Array:
        """Sum of a topic's eta, () or (K,), float64."""
        return np.asarray(self.topic_word_prior.sum(axis=0, dtype=np.float64))

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = eta + S`` as a single array (K, V)."""
        counts, prior = stats.arrays[0], self.topic_word_prior
        lam = np.empty((self.n_components, self.n_features), np.result_type(counts, prior))
        np.multiply(counts.T, counts.dtype.type(stats.scale), out=lam)
        lam += prior.T
        return (lam,)

    def size(self, stats: RunningStats) -> int:
        return self.n_components

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return initial statistics.

        If there are initial topics ``start``, all tokens are shared equally among them. Otherwise
        S_vk is drawn from Gamma(100, 1/100), but is 0 for words that the prior of a topic excludes.
        """
        if self.start is not None:
            n_tokens, total_weight = sums_of_rows(data.X, data.weights, sum_total_and_weight)
            # Scale the tokens of the rows to the whole data set, which the rows may be a sample of.
            n_tokens = max(float(n_tokens), 1.0) * data.total / float(total_weight)
            counts = self.start * (n_tokens / self.n_components)
        else:
            counts = rng.gamma(100.0, 0.01, size=(self.n_components, self.n_features))
            eta = self.topic_word_prior
            if eta.ndim == 2:
                counts[(eta < EXCLUDED_SHARE * eta.max(axis=1, keepdims=True)).T] = 0.0
        return RunningStats([np.ascontiguousarray(counts.T, self.dtype)])

    def stats_from_topics(self, lam: ArrayLike) -> RunningStats:
        """Return running statistics S for which ``eta + S`` is ``lam`` (K, V)."""
        lam = np.asarray(lam)
        return RunningStats([np.ascontiguousarray((lam - self.topic_word_prior.T).T, self.dtype)])

    def with_merged_topics(self, groups: Sequence[IndexArray]) -> Self:
        """Return the model in which the topics of each of ``groups`` are merged.

        Alpha of a merged topic is the sum over the topics of its group, and eta of a word is the
        maximum over these topics.
        """
        alpha = np.array([self.doc_topic_prior[group].sum() for group in groups], self.dtype)
        eta = self.topic_word_prior
        if eta.ndim == 2:
            eta = np.ascontiguousarray(np.stack([eta[:, group].max(axis=1) for group in groups]).T)
        topic_groups = None if self.topic_groups is None else np.arange(len(groups))
        model = replace(
            self, doc_topic_prior=alpha, topic_word_prior=eta, start=None, topic_groups=topic_groups
        )
        return model._with_regression(
            self.regression and self.regression.with_merged_topics(list(groups))
        )

    def merge_topic_stats(self, stats: Stats, groups: Sequence[IndexArray]) -> Stats:
        """Return the statistics of the merged topics, which are sums over each group of topics."""
        (counts,) = stats.arrays
        merged_counts = np.stack([counts[:, group].sum(axis=1) for group in groups])
        return Stats((np.ascontiguousarray(merged_counts.T),))

    # --------------------------------------------------------------------------------- rows
    def batch(self, X: Any, rows: IndexArray, weights: Array) -> DocumentBatch:
        """Copy rows of the CSR matrix X, with their words numbered from 0 and sorted by word."""
        rows = np.asarray(rows)
        indptr = np.empty(rows.size + 1, np.int64)
        # -1 marks a column of X that has not occurred yet in these rows.
        marker = np.full(X.shape[1], -1, np.int32)
        active = np.empty(X.shape[1] + 1, np.int32)
        n_active = kernels.gather_rows(X.indptr, X.indices, rows, marker, indptr, active)
        # Sort the words, so that rows of the statistics are read in the order of memory.
        active = np.sort(active[:n_active])
        n_entries = int(indptr[-1])
        words, documents = np.empty((2, n_entries), np.int32)
        counts, lengths = np.empty(n_entries, self.dtype), np.empty(rows.size, self.dtype)
        word_indptr, entries = np.empty(n_active + 1, np.int64), np.empty(n_entries, np.int64)
        kernels.copy_rows(
            X.indptr, X.indices, X.data, rows, active, marker, indptr, words, counts, lengths,
            word_indptr, documents, entries,
        )  # fmt: skip
        design, allowed = get_design_and_allowed(X)
        return DocumentBatch(
            indptr=indptr, words=words, counts=counts, active=active, word_indptr=word_indptr,
            documents=documents, entries=entries, lengths=lengths,
            weights=np.ascontiguousarray(weights, self.dtype), rows=rows,
            design=None if self.regression is None or design is None else design[rows],
            allowed=None if allowed is None else allowed[rows],
        )  # fmt: skip

    def scope(self, batch: DocumentBatch) -> BatchScope:
        return BatchScope(active=batch.active)

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Return the rows of the statistics that documents X can change, which are their words."""
        occurs = np.zeros(X.shape[1], bool)
        occurs[X.indices] = True
        return np.flatnonzero(occurs)

    def expectation(self, stats: RunningStats, batch: DocumentBatch, run: Run) -> Topics:
        """Return :class:`Topics` with ``E[log beta_vk]`` of the batch's words."""
        digamma_sums = digamma_array(stats.sums[0] + self.prior_totals).astype(self.dtype)
        expected_log = np.empty((batch.active.size, self.n_components), self.dtype)
        # SharedLoop takes the number of items, the number that a thread takes at a time, and the
        # arguments of the compiled loop, which ``run`` calls in each thread.
        run(kernels.write_expected_log_topics, SharedLoop(
            batch.active.size, kernels.WORDS_PER_CLAIM, *self.parameters_for_loops(stats, batch),
            digamma_sums, expected_log,
        ))  # fmt: skip
        return Topics(expected_log)

    def parameters_for_loops(
        self, stats: RunningStats, batch: DocumentBatch
    ) -> tuple[Array, IndexArray, Any, Array]:
        """Return ``array, rows, scale, prior``, from which compiled loops compute lam.

        The parameters lam of the batch's words are ``prior[rows, None] + scale * array[rows]``.
        """
        eta, words = self.topic_word_prior, batch.active
        array, scale = stats.arrays[0], self.dtype.type(stats.scale)
        if eta.ndim == 1:
            return array, words, scale, eta
        # The loops cannot add an eta that differs between topics. Return lam itself as the array,
        # and zeros as the prior.
        rows, no_prior = np.arange(words.size, dtype=words.dtype), np.zeros(words.size, self.dtype)
        return eta[words] + scale * array[words], rows, self.dtype.type(1.0), no_prior

    def log_mean_topics(self, stats: RunningStats, batch: DocumentBatch) -> Array:
        """Return log E[beta] of the batch's words, (A, K)."""
        lam_sums = stats.sums[0] + self.prior_totals
        lam = stats.scale * stats.arrays[0][batch.active].astype(np.float64)
        eta = self.topic_word_prior[batch.active]
        lam += eta if eta.ndim == 2 else eta[:, None]
        return np.log(lam / lam_sums).astype(self.dtype)

    def document_model(self, stats: RunningStats) -> "LDA":
        """Return the model of documents given the topics, which is this model."""
        return self

    def mean_field(self) -> Self:
        """Return this model, whose local steps are mean-field."""
        return self

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: DocumentBatch, global_params: Any, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Optimise q(theta_d) q(z_d) of each document; ``q`` of the result is gamma (n, K).

        ``global_params`` are :class:`Topics`. The statistics are ``sum_d w_d n_dv phi_dvk`` for the
        words v of the batch, with the sample weights w_d and the counts n_dv [Hoffman10 eq. 5].
        """
        expected_log, n_words = global_params.log_beta, batch.active.size
        floor = kernels.FLOOR[self.dtype]
        loops = []
        row_inv_temps, n_tabulated = None, n_words
        if np.ndim(inv_temp) > 0:
            # Rows have separate temperatures. Make no tempered table, which has a single
            # temperature. The loops do not use the scalar ``inv_temp``.
            row_inv_temps, n_tabulated, inv_temp = np.asarray(inv_temp, self.dtype), 0, 1.0
        inv_temp = self.dtype.type(inv_temp)
        table = np.empty((n_tabulated, self.n_components), self.dtype)
        shift = np.empty(n_tabulated, self.dtype)
        if n_tabulated:
            table_arguments = expected_log, inv_temp, floor, table, shift
            loops.append(_Loop(kernels.write_tempered_table, n_tabulated, table_arguments))
        gamma = np.empty((batch.n_rows, self.n_components), self.dtype)
        weights, ratio = np.empty_like(gamma), np.empty_like(batch.counts)
        bound, digamma_sums = np.empty(batch.n_rows), np.empty(batch.n_rows)
        energy = np.empty(batch.n_rows if with_energy else 0)
        marginal = np.empty(batch.n_rows) if with_marginal else None
        tokens = np.empty_like(gamma) if self.counts_tokens else None
        # Each loop needs the results of earlier loops only. Energies are computed by the loop over
        # documents if rows have separate temperatures, and otherwise by a separate loop.
        documents = batch.indptr, batch.words, batch.counts, batch.lengths, expected_log
        document_arguments = (
            batch.max_words, *documents, table, shift, self._padded_priors(batch), inv_temp,
            row_inv_temps, floor, self.max_doc_update_iter, self.dtype.type(self.mean_change_tol),
            self.dtype.type(MAX_THRESHOLD), weights, ratio, bound,
            None if row_inv_temps is None else energy, digamma_sums, gamma,
        )  # fmt: skip
        loops.append(_Loop(_optimise_documents, batch.n_rows, document_arguments))
        assignments = batch.indptr, batch.words, table, weights, ratio
        if with_energy and row_inv_temps is None:
            energy_arguments = (*assignments, expected_log, gamma, digamma_sums, energy)
            loops.append(_Loop(kernels.write_energies, batch.n_rows, energy_arguments))
        if marginal is not None:
            marginal_arguments = (*documents, gamma, digamma_sums, floor, marginal)
            loops.append(_Loop(kernels.write_log_marginals, batch.n_rows, marginal_arguments))
        if tokens is not None:
            loops.append(_Loop(kernels.write_topic_tokens, batch.n_rows, (*assignments, tokens)))
        if with_stats:
            statistics = np.empty((n_words, self.n_components), self.dtype)
            statistics_arguments = (
                batch.word_indptr, batch.documents, batch.entries, batch.weights, weights, ratio,
                table, expected_log, row_inv_temps, floor, statistics,
            )  # fmt: skip
            loops.append(_Loop(kernels.write_word_statistics, n_words, statistics_arguments))
        run(
            _run_loops,
            SharedLoop(loops[-1].n_items, kernels.WORDS_PER_CLAIM, loops, n_loops=len(loops)),
        )
        stats = Stats((statistics,), rows=batch.active) if with_stats else None
        return LocalResult(
            stats, bound, energy if with_energy else None, q=gamma, marginal_energy=marginal,
            counts=tokens,
        )  # fmt: skip

    def document_priors(self, batch: DocumentBatch) -> Array:
        """Return alpha of all documents, (1, K), or of each, (n, K), if documents may differ.

        It is 0 for topics that a document must not have.
        """
        if self.regression is not None and batch.design is not None:
            return self.regression.alpha(batch.design, batch.allowed).astype(self.dtype)
        alpha = self.doc_topic_prior[None]
        return alpha if batch.allowed is None else alpha * batch.allowed

    def _padded_priors(self, batch: DocumentBatch) -> Array:
        """Return alpha and log Gamma(alpha) as (2, 1 or n, w), padded by the minimum of alpha.

        The number of topics w is rounded up to a multiple of TABLE_MULTIPLE.
        """
        alpha = self.document_priors(batch).astype(np.float64)
        n_padding = -alpha.shape[1] % kernels.TABLE_MULTIPLE
        alpha = np.hstack([alpha, alpha.min(axis=1, keepdims=True).repeat(n_padding, axis=1)])
        return np.stack([alpha, gammaln_array(alpha)])

    # --------------------------------------------------------------------------- temperature
    def tempered_log_partition(self, inv_temps: Array) -> tuple[Array, Array]:
        """Return log C(T) per token in nats, and its slope in 1/T, (M,) each [VT16 app. B.1].

        C(T) is the normaliser of the tempered likelihood of words and assignments. For a single
        token, ``log C(T) = log E[sum_kv (theta_k beta_kv)^(1/T)]`` has a closed form [VT16 eq. 13],
        which this method returns. For more tokens, it is a lower bound per token by Jensen's
        inequality, although VT16 calls it an upper bound.
        """
        alpha, eta, b = self.doc_topic_prior, self.topic_word_prior, inv_temps
        # For each topic k, or once if topics share eta: log E[sum_v beta_kv^b] and its slope in b,
        # (M,) each.
        power_sums = [Dirichlet.log_mean_power_sum(prior, b) for prior in np.atleast_2d(eta.T)]
        if eta.ndim == 1:
            log_sum, slope = Dirichlet.log_mean_power_sum(alpha, b)
            return log_sum + power_sums[0][0], slope + power_sums[0][1]
        # C(T) is the sum of exp(log_terms_k) = E[theta_k^b] E[sum_v beta_kv^b] over topics k.
        log_sums, sum_slopes = map(np.array, zip(*power_sums, strict=True))
        log_powers, power_slopes = Dirichlet.log_mean_powers(alpha, b)
        log_terms, slopes = log_sums + log_powers, sum_slopes + power_slopes
        return logsumexp(log_terms, axis=0), (softmax(log_terms, axis=0) * slopes).sum(axis=0)

    # --------------------------------------------------------------------------- predictions
    def log_predictive(
        self, batch: DocumentBatch, proportions: Array, topics: Array, run: Run
    ) -> Array:
        """Return ``sum_j n_dj log sum_k proportions_dk topics_kj`` in nats, (n,).

        ``proportions`` are (n, K). ``topics`` (V, K) are the word probabilities of the topics.
        """
        word_rows = np.ascontiguousarray(topics[batch.active], self.dtype)
        return self._log_mixture(batch, proportions, word_rows, run)

    def _log_mixture(
        self, batch: DocumentBatch, proportions: Array, word_rows: Array, run: Run
    ) -> Array:
        """Return the result of :meth:`log_predictive`, given ``topics`` of the batch words."""
        log_likelihoods = np.empty(batch.n_rows)
        run(kernels.write_mixture_log_likelihoods, SharedLoop(
            batch.n_rows, 1, batch.indptr, batch.words, batch.counts, proportions, word_rows,
            log_likelihoods,
        ))  # fmt: skip
        return log_likelihoods

    # ------------------------------------------------------------------------ learned priors
    def _with_regression(self, regression: DocumentRegression | None) -> Self:
        """Return the model with another regression and its alpha at mean covariates.

        Return the model itself if ``regression`` is None.
        """
        if regression is None:
            return self
        # At mean covariates, the intercept is 1 and all other columns are 0.
        mean_design = np.eye(1, len(regression.coef))
        alpha = regression.alpha(mean_design)[0].astype(self.dtype)
        return replace(self, doc_topic_prior=alpha, regression=regression)

    def log_hyperprior(self) -> float:
        """Return the log prior density of the coefficients in nats; 0 without covariates."""
        return 0.0 if self.regression is None else self.regression.log_prior()

    def prior_statistics(self, batch: DocumentBatch, result: LocalResult) -> PriorTerm | None:
        """Return ``sum_d w_d E[log theta_d]`` and ``sum_d w_d``; None unless alpha is learned.

        With covariates, the first array is :meth:`DocumentRegression.statistics`.
        """
        if not self.learn_doc_topic_prior:
            return None
        weights = batch.weights.astype(np.float64)
        if self.regression is not None:
            # ``batch`` sets the design if there is a regression.
            assert batch.design is not None
            gamma = result.q.astype(np.float64)
            statistics = self.regression.statistics(batch.design, weights, gamma, batch.allowed)
            return statistics, weights.sum()
        return weights @ Dirichlet.expectation(result.q), weights.sum()

    def prior_step(self, rho: float, share: float) -> float:
        """Return the step size of the running mean of :meth:`prior_statistics`.

        A step moves the mean towards the statistics of a minibatch. ``rho`` is the step size of the
        statistics S, and ``share`` is the share of the minibatch in the data. Without covariates,
        the result is ``rho``. With covariates, it is at least ``STEP_SIZE_PER_SHARE * share``, with
        which the mean is over about 1 / STEP_SIZE_PER_SHARE of the data. Coefficients make short
        steps, as in expectation-maximisation. If the mean were over more documents, the passes at
        T = 1 would have too few steps.
        """
        return rho if self.regression is None else max(rho, min(1.0, STEP_SIZE_PER_SHARE * share))

    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with learned alpha and eta, which maximise the bound.

        ``prior_stats`` has the mean of :meth:`prior_statistics` over documents. With covariates,
        alpha makes one step towards the maximum. Eta is learned if ``stats`` are not None. Priors
        that are not learned do not change.
        """
        model = self
        if self.learn_doc_topic_prior and prior_stats.mean is not None:
            if self.regression is not None:
                model = self._with_regression(self.regression.take_step(prior_stats.mean))
            else:
                alpha = Dirichlet.fit(self.doc_topic_prior, prior_stats.mean)
                model = replace(self, doc_topic_prior=alpha.astype(self.dtype))
        if self.learn_topic_word_prior and stats is not None:
            eta, mean_log = self.topic_word_prior[0], self._mean_log_topics(stats)
            eta = Dirichlet.fit_symmetric(eta, mean_log, self.n_features)
            model = replace(model, topic_word_prior=np.full_like(self.topic_word_prior, eta))
        return model

    def _mean_log_topics(self, stats: RunningStats) -> float:
        """Return the mean of E[log beta_kv] over topics and words.

        The best symmetric eta depends on the topics through this number alone.
        """
        eta, counts = self.topic_word_prior[0], stats.arrays[0]
        # Compute digamma(eta) once for all counts of 0, since sampled topics have no tokens of most
        # words. Compare with 0 by !=, since counts of topics that users pass may be negative.
        nonzero_counts = counts[counts != 0.0]
        lam = eta + counts.dtype.type(stats.scale) * nonzero_counts
        digamma_total = digamma_array(lam).sum(dtype=np.float64)
        digamma_total += (counts.size - nonzero_counts.size) * float(digamma_array(eta))
        digamma_sums = digamma_array(stats.sums[0] + self.prior_totals)
        return float(digamma_total / counts.size - digamma_sums.mean())
