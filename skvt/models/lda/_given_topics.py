"""Latent Dirichlet allocation given topics: the local steps of structured inference.

Structured inference keeps the dependence between topics and assignments, q(beta, z) = q(beta) q(z |
beta): topics are drawn from q(beta), and each document is solved given the draw [HB15 sec. 2]. A
local step here takes log beta or E[log beta], as the engine decides.
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from skvt.compiled import SharedLoop, writeable
from skvt.contracts import Capability, LocalResult
from skvt.expfam import RunningStats, Stats, log_standard_gamma
from skvt.files import PRIOR, in_files
from skvt.models import Gammas, corrected_statistics
from skvt.models.lda import _sampling as sampling
from skvt.models.lda._kernels import WORDS, mixture_log_likelihood, tempered_table
from skvt.models.lda._model import LDA, DocumentBatch
from skvt.typing import Array, IndexArray, Run

_GIVEN_TOPICS = frozenset({Capability.DRAWABLE, Capability.CORRECTABLE})
# Powers ``(alpha + b n)^b`` are tabulated for whole n below this number.
_SIZES = 256


class Topics(NamedTuple):
    """Topics on which a local step is conditioned."""

    # (A, K): logarithms of the probabilities of the batch's words, or their expectation.
    log_beta: Any
    # Seed of the sampler; if it is None, CVB0 replaces Gibbs sampling.
    seed: int | None = None
    # The gamma variates of which the topics were made, if the correction of SSVI needs them.
    gammas: Gammas | None = None

    def at(self, places: IndexArray) -> "Topics":
        """Return the topics at ``places``; they must be an expectation, without variates."""
        return self._replace(log_beta=self.log_beta.take(places, axis=0))


@in_files("models.LDAGivenTopics")
@dataclass(frozen=True)
class LDAGivenTopics(LDA):
    """LDA whose documents are solved given topics.

    With Gibbs sampling and CVB0, ``q`` of a local result is ``alpha + E[n_k]`` (n, K), and
    ``bound`` is not a bound, but the log probability of the document's words at these proportions,
    times 1 / T. If topics have no seed, CVB0, which is deterministic, replaces Gibbs sampling.
    """

    # {"gibbs", "cvb0", "mean_field"}
    local: str = "gibbs"
    # Numbers of sweeps of the sampler that are dropped and kept.
    n_burn_in: int = 2
    n_samples: Annotated[int, PRIOR] = 4
    # Whether a global step also changes the statistics of words that do not occur in its rows.
    updates_all_rows: bool = False

    @classmethod
    def of(
        cls, lda: LDA, local: str, n_burn_in: int = 2, n_samples: int = 4,
        updates_all_rows: bool = False,
    ) -> Self:  # fmt: skip
        # Only fields of LDA are copied, since a subclass may have others.
        lda_fields = {field.name: vars(lda)[field.name] for field in fields(LDA)}
        return cls(**lda_fields, local=local, n_burn_in=n_burn_in, n_samples=n_samples,
                   updates_all_rows=updates_all_rows)  # fmt: skip

    def mean_field(self) -> Self:
        """Return the model with mean-field local steps, which have a bound."""
        return replace(self, local="mean_field")

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities; only with mean field, which has a bound, can temperatures be learned."""
        if self.local == "mean_field":
            return super().capabilities | _GIVEN_TOPICS
        return _GIVEN_TOPICS | super().capabilities - {Capability.TEMPERABLE}

    def touched_columns(self, X: Any) -> IndexArray | None:
        return None if self.updates_all_rows else super().touched_columns(X)

    # ------------------------------------------------------------------------------- topics
    def drawn_globals(
        self, stats: RunningStats, batch: DocumentBatch, kind: str, rng: np.random.Generator,
        run: Run,
    ) -> Any:  # fmt: skip
        """Return the :class:`Topics` of the batch's words for a kind of global step.

        "mean_field" takes ``E[log beta]``, "map" the mean of q(beta), "ssvi-a" and "ssvi" a draw.
        """
        # Documents and words have separate seeds: they must not share random numbers.
        seed, seed_of_words = (int(part) for part in rng.integers(2**63, size=2))
        if kind == "mean_field":
            return self.expectation(stats, batch, run)._replace(seed=seed)
        if kind == "map":
            return Topics(self.log_mean_topics(stats, batch), seed)
        words = batch.active
        logs = np.empty((words.size, self.n_components), np.float32)
        n_blocks = -(-words.size // sampling.DRAWN_WORDS)
        log_sums, shape_sums = np.empty((2, n_blocks, self.n_components))
        parameters, rows, scale, eta = self.parameters_of(stats, batch)
        loop = SharedLoop(
            words.size, sampling.DRAWN_WORDS, parameters.arrays[0], rows, scale, eta,
            seed_of_words, logs, log_sums, shape_sums,
        )  # fmt: skip
        run(sampling.draw_log_gammas, loop)
        gammas = Gammas(logs, np.logaddexp.reduce(log_sums), rows=words)
        if words.size < self.n_features:
            # Draw the sum of the variates of all other words, which is a gamma variate, too. Its
            # shape is a difference that rounding may make smaller than a single eta.
            shapes = stats.sums[0] + self.prior_totals
            shapes -= shape_sums.sum(axis=0)
            shapes = np.maximum(shapes, self.topic_word_prior.min(axis=0))
            logs_of_others = log_standard_gamma(shapes, rng)
            log_totals = np.logaddexp(gammas.log_totals, logs_of_others)
            gammas = Gammas(logs, log_totals, shapes, logs_of_others, words)
        # The tables of the sampler have single precision.
        dtype = logs.dtype if self.local == "gibbs" else self.dtype
        log_beta = np.subtract(logs, gammas.log_totals.astype(dtype), dtype=dtype)
        return Topics(log_beta, seed, gammas if kind == "ssvi" else None)

    def expectation(self, stats: RunningStats, batch: DocumentBatch, run: Run) -> Any:
        """Return :class:`Topics` with E[log beta] of the batch's words."""
        expected_log = super().expectation(stats, batch, run)
        return Topics(expected_log if self.local == "mean_field" else expected_log.value(run))

    def corrected(
        self, stats: RunningStats, global_params: Any, result_stats: Stats, run: Run
    ) -> Stats:
        """Return ``V(beta, lam) eta_hat`` for all words [HB15 eq. 7], a dense Stats."""
        corrected = corrected_statistics(
            stats.arrays[0],
            global_params.gammas,
            result_stats.arrays[0],
            run,
            scale=float(stats.scale),
            prior=self.topic_word_prior,
            # A topic has at most all tokens of the minibatch.
            max_common=result_stats.arrays[0].sum(dtype=np.float64),
        )
        return Stats((corrected.astype(self.dtype, copy=False),))

    def project(self, stats: RunningStats) -> None:
        """Keep ``lam >= eta``, as counts would.

        V is the identity on average only, so that steps overshoot. Near zero a shape hardly affects
        its variate, and a shape that has fallen there would stay.
        """
        stats.clip()

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch: DocumentBatch, global_params: Any, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Solve each document given topics, see :class:`LDAGivenTopics`."""
        log_beta, seed, _ = global_params
        if self.local == "mean_field":
            return super().local_step(
                batch, log_beta, inv_temp, run, with_energy=with_energy,
                with_marginal=with_marginal, with_stats=with_stats,
            )  # fmt: skip
        if np.ndim(inv_temp) > 0:
            raise ValueError(
                f"local_step={self.local!r} has one temperature for all rows; use "
                'temperature="annealed", or local_step="mean_field".'
            )
        inv_temp = self.dtype.type(inv_temp)
        sampled = self.local == "gibbs" and seed is not None
        # Double precision would move more bytes without changing the draws.
        dtype = np.dtype(np.float32) if sampled else self.dtype
        table, shift = self._table(log_beta, inv_temp, dtype, run)
        step = self._gibbs if sampled else self._cvb0
        proportions, stats = step(batch, table, inv_temp, seed, with_stats, run)
        if inv_temp != 1.0:
            table, shift = self._table(log_beta, self.dtype.type(1.0), dtype, run)
        value = self._log_probability(batch, proportions, table, shift, run)
        return LocalResult(
            stats, value * float(inv_temp), value if with_energy else None, proportions,
            value if with_marginal else None,
        )  # fmt: skip

    def _table(
        self, log_beta: Array, inv_temp: Any, dtype: np.dtype[Any], run: Run
    ) -> tuple[Array, Array]:
        """Return ``beta^inv_temp``, each word divided by its maximum, and logs of the maxima."""
        # With this floor, a product of two table entries is a normal number.
        floor, inv_temp = (log_beta.dtype.type(x) for x in (np.finfo(dtype).tiny ** 0.5, inv_temp))
        table, shift = np.empty_like(log_beta, dtype), np.empty(log_beta.shape[0], self.dtype)
        loop = SharedLoop(shift.size, WORDS, log_beta, inv_temp, floor, table, shift)
        run(tempered_table, loop)
        return table, shift

    def _cvb0(
        self, batch: DocumentBatch, table: Array, inv_temp: Any, seed: int | None, with_stats: bool,
        run: Run,
    ) -> tuple[Array, Stats | None]:  # fmt: skip
        """Return ``alpha + E[n_k]`` by CVB0 and the statistics; ``seed`` is not used."""
        proportions = np.empty((batch.n_rows, self.n_components), self.dtype)
        shares = np.empty((batch.counts.size, self.n_components), self.dtype)
        loop = SharedLoop(
            batch.n_rows, 1, batch.indptr, batch.words, batch.counts, table,
            writeable(self.document_priors(batch)), inv_temp, self.max_doc_update_iter,
            self.dtype.type(self.mean_change_tol), shares, proportions,
        )  # fmt: skip
        run(sampling.cvb0_steps, loop)
        if not with_stats:
            return proportions, None
        out = np.empty_like(table)
        loop = SharedLoop(
            batch.active.size, WORDS, batch.word_indptr, batch.documents, batch.entries,
            batch.counts, batch.weights, shares, out,
        )  # fmt: skip
        run(sampling.shared_statistics, loop)
        return proportions, Stats((out,), rows=batch.active)

    def _gibbs(
        self, batch: DocumentBatch, table: Array, inv_temp: Any, seed: int, with_stats: bool,
        run: Run,
    ) -> tuple[Array, Stats | None]:  # fmt: skip
        """Return means of ``alpha + n_k`` over the kept Gibbs sweeps, and the statistics."""
        alpha = self.document_priors(batch)
        # If documents have different alpha, tabulate n = 0 only, where the gain is always 0.
        n_sizes = _SIZES if inv_temp < 1.0 and len(alpha) == 1 else 1
        sizes, first = np.arange(n_sizes, dtype=self.dtype), alpha[0, :, None]
        gains = ((first + inv_temp * sizes) ** inv_temp - first**inv_temp).astype(table.dtype)
        alpha_powers = (alpha**inv_temp).astype(table.dtype)
        n_blocks = -(-self.n_components // sampling.PRIOR_TOPICS)
        cumulative = np.empty((table.shape[0], n_blocks), table.dtype)
        if len(alpha) == 1:
            loop = SharedLoop(table.shape[0], WORDS, table, alpha_powers, cumulative)
            run(sampling.prior_table, loop)
        token_indptr = np.empty(batch.counts.size + 1, np.int64)
        large = sampling.count_tokens(batch.counts, self.n_components, token_indptr)
        # Seeds depend on positions in the batch, since rows of a stream have no numbers.
        seeds = sampling.row_seeds(np.uint64(seed), np.arange(batch.n_rows))
        samples = np.empty((token_indptr[-1], self.n_samples), np.int32)
        large_entries = None
        if large.size:
            means = np.zeros((large.size, self.n_components))
            large_entries = np.searchsorted(large, batch.indptr), large, means
        proportions = np.empty((batch.n_rows, self.n_components), self.dtype)
        loop = SharedLoop(
            batch.n_rows, 1, batch.indptr, batch.words, batch.counts, token_indptr, seeds, table,
            alpha_powers, cumulative, writeable(alpha), inv_temp, gains, self.n_burn_in,
            self.n_samples, samples, proportions, large_entries,
        )  # fmt: skip
        run(sampling.gibbs_steps, loop)
        if not with_stats:
            return proportions, None
        out = np.empty(table.shape, self.dtype)
        loop = SharedLoop(
            batch.active.size, WORDS, batch.word_indptr, batch.documents, batch.entries,
            batch.counts, token_indptr, batch.weights, samples, out,
        )  # fmt: skip
        run(sampling.sampled_statistics, loop)
        if large.size:
            documents = np.searchsorted(batch.indptr, large, side="right") - 1
            addend = batch.weights[documents, None] * means
            np.add.at(out, batch.words[large], addend.astype(out.dtype))
        return proportions, Stats((out,), rows=batch.active)

    def _log_probability(
        self, batch: DocumentBatch, proportions: Array, table: Array, shift: Array, run: Run
    ) -> Array:
        """Return ``sum_j n_j log sum_k theta_k beta_kj`` of each document in nats, (n,).

        ``beta = table * exp(shift)`` with one shift for each word, whose betas may all underflow.
        """
        theta = proportions / proportions.sum(axis=1, keepdims=True)
        theta = theta.astype(table.dtype, copy=False)
        out, entries = np.empty(batch.n_rows), (batch.counts, batch.words, batch.indptr)
        loop = SharedLoop(batch.n_rows, 1, *entries[::-1], theta, table, out)
        run(mixture_log_likelihood, loop)
        counts = sp.csr_array(entries, shape=(batch.n_rows, shift.size))
        return out + counts @ shift.astype(np.float64)
