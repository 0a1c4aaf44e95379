"""Latent Dirichlet allocation given topics: the local steps of structured inference.

Structured inference keeps the dependence between topics and assignments, q(beta, z) = q(beta) q(z |
beta): topics are drawn from q(beta), and the assignments z of each document are inferred given the
draw [HB15 sec. 2]. In place of log beta of a draw, a local step can also take the logarithm of the
mean of q(beta), or E[log beta]; the engine decides. T is the temperature and b = 1 / T.

Shapes have A words that occur in the n documents of a batch, V words of the vocabulary and K
topics. ``SharedLoop(n, size, *arguments)`` makes the calls of a compiled loop over n items, of
which a thread takes ``size`` items at a time; ``run`` makes these calls in several threads.
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse as sp

from skvt._compiled import SharedLoop, ensure_writeable
from skvt.contracts import Capability, LocalResult, require_one_temperature
from skvt.expfam import RunningStats, Stats, log_standard_gamma
from skvt.files import PRIOR, in_files
from skvt.models import Gammas, Topics, correct_statistics
from skvt.models.lda import _sampling as sampling
from skvt.models.lda._kernels import WORDS_PER_CLAIM, write_tempered_table
from skvt.models.lda._model import LDA, DocumentBatch
from skvt.typing import Array, IndexArray, Run

_CAPABILITIES_GIVEN_TOPICS = frozenset({Capability.DRAWABLE, Capability.CORRECTABLE})
# The sampler draws topics with the help of gains ``(alpha + b n)^b - alpha^b``, where n is the
# number of a document's tokens in a topic. Gains are tabulated for whole n below this number.
_N_TABULATED_SIZES = 256


@in_files("models.LDAGivenTopics")
@dataclass(frozen=True)
class LDAGivenTopics(LDA):
    """LDA whose local steps infer the assignments of tokens given topics.

    With Gibbs sampling and CVB0, ``q`` of a local result is ``alpha + E[n_k]`` (n, K), where n_k is
    the number of a document's tokens in topic k. ``bound`` is not a bound, but the log probability
    of the document's words at the proportions ``q``, times 1 / T. If topics have no seed, CVB0,
    which is deterministic, replaces Gibbs sampling.
    """

    # The method of local steps, "gibbs", "cvb0" or "mean_field".
    local: str = "gibbs"
    # Number of first sweeps of the Gibbs sampler that are dropped, and number of later sweeps that
    # are kept.
    n_burn_in: int = 2
    n_samples: Annotated[int, PRIOR] = 4
    # Whether a global step also changes the statistics of words that its documents lack.
    updates_all_rows: bool = False

    @classmethod
    def from_lda(
        cls, lda: LDA, local: str, n_burn_in: int = 2, n_samples: int = 4,
        updates_all_rows: bool = False,
    ) -> Self:  # fmt: skip
        """Return a model with the fields of ``lda`` and the given options of local steps."""
        # Copy the fields of LDA only, since ``lda`` may be of a subclass with more fields.
        lda_fields = {field.name: vars(lda)[field.name] for field in fields(LDA)}
        return cls(**lda_fields, local=local, n_burn_in=n_burn_in, n_samples=n_samples,
                   updates_all_rows=updates_all_rows)  # fmt: skip

    def mean_field(self) -> Self:
        """Return the model with mean-field local steps, which have a bound."""
        return replace(self, local="mean_field")

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities of the model.

        Temperatures can be learned only with mean-field local steps, since Gibbs sampling and CVB0
        have no bound.
        """
        if self.local == "mean_field":
            return super().capabilities | _CAPABILITIES_GIVEN_TOPICS
        return (super().capabilities - {Capability.TEMPERABLE}) | _CAPABILITIES_GIVEN_TOPICS

    def touched_columns(self, X: Any) -> IndexArray | None:
        """Return the words of documents X, or None if a step may change all words."""
        return None if self.updates_all_rows else super().touched_columns(X)

    # ------------------------------------------------------------------------------- topics
    def drawn_globals(
        self, stats: RunningStats, batch: DocumentBatch, kind: str, rng: np.random.Generator,
        run: Run,
    ) -> Any:  # fmt: skip
        """Return the :class:`Topics` of the batch's words for the kind of global step ``kind``.

        Topics are ``E[log beta]`` for "mean_field", the logarithm of the mean of q(beta) for "map",
        and log beta of a draw for "ssvi-a" and "ssvi". For "ssvi", the result also keeps the gamma
        variates of the draw, by which :meth:`corrected` corrects the statistics.
        """
        # Draw separate seeds for the assignments and the topics, since they must not share random
        # numbers.
        seed, topic_seed = (int(number) for number in rng.integers(2**63, size=2))
        if kind == "mean_field":
            return self.expectation(stats, batch, run)._replace(seed=seed)
        if kind == "map":
            return Topics(self.log_mean_topics(stats, batch), seed)
        words = batch.active
        logs = np.empty((words.size, self.n_components), np.float32)
        n_blocks = -(-words.size // sampling.WORDS_PER_BLOCK)
        log_sums, shape_sums = np.empty((2, n_blocks, self.n_components))
        run(sampling.draw_log_gammas, SharedLoop(
            len(log_sums), 1, *self.parameters_for_loops(stats, batch), topic_seed, logs,
            log_sums, shape_sums,
        ))  # fmt: skip
        gammas = Gammas(logs, np.logaddexp.reduce(log_sums), rows=words)
        if words.size < self.n_features:
            # Draw the sum of the variates of all other words, which is a gamma variate, too. Its
            # shape is at least the smallest eta, the shape of a word whose statistics are 0, but
            # rounding of the difference may make it smaller.
            shapes_of_others = stats.sums[0] + self.prior_totals
            shapes_of_others -= shape_sums.sum(axis=0)
            shapes_of_others = np.maximum(shapes_of_others, self.topic_word_prior.min(axis=0))
            logs_of_others = log_standard_gamma(shapes_of_others, rng)
            log_totals = np.logaddexp(gammas.log_totals, logs_of_others)
            gammas = Gammas(logs, log_totals, shapes_of_others, logs_of_others, words)
        # Gibbs sampling needs single precision only, the precision of its tables.
        dtype = logs.dtype if self.local == "gibbs" else self.dtype
        log_beta = np.subtract(logs, gammas.log_totals.astype(dtype), dtype=dtype)
        return Topics(log_beta, seed, gammas if kind == "ssvi" else None)

    def corrected(
        self, stats: RunningStats, global_params: Any, result_stats: Stats, run: Run
    ) -> Stats:
        """Return statistics of all words, corrected for the dependence of the draw on q(beta).

        The corrected statistics are ``V(beta, lam) hat`` [HB15 eq. 7], where ``hat`` are the
        statistics ``result_stats`` of a local step given the drawn topics ``global_params``.
        """
        # Limit the correction that all words of a topic have in common to the number of tokens of
        # the minibatch, because a topic cannot have more tokens.
        n_tokens = result_stats.arrays[0].sum(dtype=np.float64)
        corrected = correct_statistics(
            stats.arrays[0], global_params.gammas, result_stats.arrays[0], run,
            scale=float(stats.scale), prior=self.topic_word_prior, max_common=n_tokens,
        )  # fmt: skip
        return Stats((corrected.astype(self.dtype, copy=False),))

    def project(self, stats: RunningStats) -> None:
        """Raise statistics below 0 to 0, so that lam is at least eta.

        A corrected step may make statistics negative, since V of :meth:`corrected` is the identity
        on average only. If lam were near 0, it would stay near 0, because gamma variates with a
        shape near 0 hardly depend on the shape.
        """
        stats.clip()

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: DocumentBatch, global_params: Any, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Infer the assignments of each document given topics, see :class:`LDAGivenTopics`."""
        if self.local == "mean_field":
            return super().local_step(
                batch, global_params, inv_temp, run, with_energy=with_energy,
                with_marginal=with_marginal, with_stats=with_stats,
            )  # fmt: skip
        require_one_temperature(inv_temp)
        log_beta, seed, _ = global_params
        inv_temp = self.dtype.type(inv_temp)
        is_sampled = self.local == "gibbs" and seed is not None
        # Use single precision in the sampler, where double precision would move more bytes without
        # better draws.
        dtype = np.dtype(np.float32) if is_sampled else self.dtype
        table, shift = self._make_table(log_beta, inv_temp, dtype, run)
        if is_sampled:
            proportions, stats = self._run_gibbs(
                batch, table, inv_temp, seed, run, with_stats=with_stats
            )
        else:
            proportions, stats = self._run_cvb0(batch, table, inv_temp, run, with_stats=with_stats)
        if inv_temp != 1.0:
            # The log probability of words is a function of beta itself, not of its power.
            table, shift = self._make_table(log_beta, self.dtype.type(1.0), dtype, run)
        log_probability = self._compute_log_probability(batch, proportions, table, shift, run)
        return LocalResult(
            stats, log_probability * float(inv_temp), log_probability if with_energy else None,
            q=proportions, marginal_energy=log_probability if with_marginal else None,
        )  # fmt: skip

    def _make_table(
        self, log_beta: Array, inv_temp: Any, dtype: np.dtype[Any], run: Run
    ) -> tuple[Array, Array]:
        """Return ``beta^inv_temp`` (A, K), each row divided by its maximum, and log maxima (A,)."""
        # Choose a floor with which a product of two entries of the table is a normal number.
        floor = log_beta.dtype.type(np.finfo(dtype).tiny ** 0.5)
        inv_temp = log_beta.dtype.type(inv_temp)
        table, shift = np.empty_like(log_beta, dtype), np.empty(log_beta.shape[0], self.dtype)
        run(
            write_tempered_table,
            SharedLoop(shift.size, WORDS_PER_CLAIM, log_beta, inv_temp, floor, table, shift),
        )
        return table, shift

    def _run_cvb0(
        self, batch: DocumentBatch, table: Array, inv_temp: Any, run: Run, *, with_stats: bool
    ) -> tuple[Array, Stats | None]:
        """Return ``alpha + E[n_k]`` (n, K) by CVB0, and the statistics.

        The statistics are None unless ``with_stats``.
        """
        proportions = np.empty((batch.n_rows, self.n_components), self.dtype)
        shares = np.empty((batch.counts.size, self.n_components), self.dtype)
        run(sampling.run_cvb0, SharedLoop(
            batch.n_rows, 1, batch.indptr, batch.words, batch.counts, table,
            ensure_writeable(self.document_priors(batch)), inv_temp, self.max_doc_update_iter,
            self.dtype.type(self.mean_change_tol), shares, proportions,
        ))  # fmt: skip
        if not with_stats:
            return proportions, None
        return proportions, self._sum_by_word(sampling.write_cvb0_statistics, batch, run, shares)

    def _sum_by_word(self, kernel: Any, batch: DocumentBatch, run: Run, *assignments: Any) -> Stats:
        """Return the statistics that the loop ``kernel`` computes from assignments of tokens."""
        statistics = np.empty((batch.active.size, self.n_components), self.dtype)
        run(kernel, SharedLoop(
            batch.active.size, WORDS_PER_CLAIM, batch.word_indptr, batch.documents, batch.entries,
            batch.counts, batch.weights, *assignments, statistics,
        ))  # fmt: skip
        return Stats((statistics,), rows=batch.active)

    def _run_gibbs(
        self, batch: DocumentBatch, table: Array, inv_temp: Any, seed: int, run: Run, *,
        with_stats: bool,
    ) -> tuple[Array, Stats | None]:  # fmt: skip
        """Return means of ``alpha + n_k`` (n, K) over the kept Gibbs sweeps, and the statistics.

        The statistics are None unless ``with_stats``.
        """
        alpha = self.document_priors(batch)
        # Tabulate the gains (K, M) for n = 0, 1, ..., M - 1. If documents differ in alpha, or if
        # b = 1, tabulate only n = 0, for which the gain is always 0.
        n_tabulated_sizes = _N_TABULATED_SIZES if inv_temp < 1.0 and len(alpha) == 1 else 1
        sizes, alpha_column = np.arange(n_tabulated_sizes, dtype=self.dtype), alpha[0, :, None]
        gain_table = (alpha_column + inv_temp * sizes) ** inv_temp - alpha_column**inv_temp
        gain_table = gain_table.astype(table.dtype)
        alpha_powers = (alpha**inv_temp).astype(table.dtype)
        # The sampler draws all tokens of a large entry, which has a large count, together. The
        # lists of single tokens do not have these tokens.
        is_large = batch.counts > max(sampling.LARGE_COUNT, self.n_components)
        large_indices = np.flatnonzero(is_large)
        token_indptr = sampling.make_token_indptr(np.where(is_large, 0.0, batch.counts))
        # Make seeds from positions in the batch, since rows of a stream have no numbers.
        seeds = sampling.seed_rows(np.uint64(seed), np.arange(batch.n_rows))
        samples = np.empty((token_indptr[-1], self.n_samples), np.int32)
        # The fields ``indptr``, ``entries`` and ``means`` of `sampling.LargeEntries`; None if no
        # count is large.
        large_entries = None
        if large_indices.size:
            means = np.zeros((large_indices.size, self.n_components))
            large_entries = np.searchsorted(large_indices, batch.indptr), large_indices, means
        proportions = np.empty((batch.n_rows, self.n_components), self.dtype)
        documents = sampling.Documents(batch.indptr, batch.words, batch.counts, token_indptr, seeds)
        # If all documents have the same alpha, tabulate sums of alpha^b beta^b over topics for each
        # word, see `sampling.Conditional`. Otherwise the sampler computes them.
        n_blocks = -(-self.n_components // sampling.TOPICS_PER_BLOCK)
        cumulative = np.empty((table.shape[0], n_blocks), table.dtype)
        if len(alpha) == 1:
            loop = SharedLoop(table.shape[0], WORDS_PER_CLAIM, table, alpha_powers, cumulative)
            run(sampling.write_prior_sums, loop)
        conditional = sampling.Conditional(
            table, alpha_powers, cumulative, ensure_writeable(alpha), inv_temp, gain_table
        )
        run(sampling.sweep_gibbs, SharedLoop(
            batch.n_rows, 1, documents, conditional, self.n_burn_in, samples, proportions,
            large_entries,
        ))  # fmt: skip
        if not with_stats:
            return proportions, None
        stats = self._sum_by_word(
            sampling.write_sampled_statistics, batch, run, token_indptr, samples
        )
        if large_entries is not None:
            # Add the tokens of large entries, which have no samples, weighted by their documents.
            rows = np.searchsorted(batch.indptr, large_indices, side="right") - 1
            weighted_means = (batch.weights[rows, None] * means).astype(self.dtype)
            np.add.at(stats.arrays[0], batch.words[large_indices], weighted_means)
        return proportions, stats

    def _compute_log_probability(
        self, batch: DocumentBatch, proportions: Array, table: Array, shift: Array, run: Run
    ) -> Array:
        """Return ``sum_j n_j log sum_k theta_k beta_kj`` of each document in nats, (n,).

        ``beta_kj`` is ``table[j, k] * exp(shift[j])``, so that entries of the table stay in the
        range of floating-point numbers even if beta of a word underflows in all topics.
        """
        theta = proportions / proportions.sum(axis=1, keepdims=True)
        theta = theta.astype(table.dtype, copy=False)
        csr_arrays = batch.counts, batch.words, batch.indptr
        counts = sp.csr_array(csr_arrays, shape=(batch.n_rows, shift.size))
        return self._log_mixture(batch, theta, table, run) + counts @ shift.astype(np.float64)
