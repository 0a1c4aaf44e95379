"""The hierarchical Dirichlet process (HDP): LDA with an unknown number of topics.

    u_k ~ Beta(1, gamma)                                    sticks, global
    beta_k = u_k prod_{l<k} (1 - u_l)                       weights of topics
    phi_k ~ Dir(eta)                                        topics, global, (V,)
    pi_d ~ Dir(alpha beta)                                  proportions of document d, local
    z_dn ~ Cat(pi_d),  w_dn ~ Cat(phi_{z_dn})

There are V words in the vocabulary and D documents. Mean field is truncated to K topics and *the
rest*, which stands for all topics that are not represented:

    q(u_k) = Beta(a_k, b_k),  q(phi_k) = Dir(lam_k),
    q(z_dn) = Cat(r_dn) with r_dnk = 0 for k > K,
    q(pi_d) = Dir(theta_d) over the K topics and the rest.

Truncations are nested: one more topic without tokens changes the bound only by the few nats of its
q(u).

The guide (doc/guide/memoized_hdp.md) derives the bound L. Some of its terms are replaced by lower
bounds that are sums over documents:

- ``E[log c_D(alpha beta)]``, with the normaliser c_D of the Dirichlet density, by
  :meth:`~skvt.models.hdp._sticks.Sticks.log_normalizer_bound`;
- ``log Gamma(c_dk)``, with ``c_dk = N_dk + alpha E[beta_k]`` and N_dk = sum_n r_dnk, by a tangent,
  since it is convex. The tangent touches at theta_dk, the value of c_dk in the document's last
  local step, or at the *pseudo-count* ``alpha E[beta_k]`` if the document has next to no tokens of
  topic k;
- ``-log Gamma(alpha + N_d)`` of a document of N_d tokens, if alpha is learned, by
  ``-log Gamma(alpha) + log Gamma(a) - log Gamma(a + N_d) - (alpha - a) (psi(a + N_d) - psi(a))``
  with the digamma function psi. The two are equal at alpha = a, the value in the last local step.

L thus depends on the documents only through three sums: the expected word counts of topics, the
*usage* of topics (:mod:`skvt.models.hdp._usage`), and an entropy. Memoized inference keeps these
sums of each batch in its memo. The best q(u) is a function of the usage alone. At T = 1 every step
raises L. Topics are sorted by the number of their documents if this order raises L.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, psi

from skvt._compiled import digamma_array, gammaln_array
from skvt.contracts import BatchScope, Capability, ConjugateModel, LocalResult, RowSource
from skvt.expfam import Beta, Dirichlet, Family, RunningStats, Stats
from skvt.files import COMPONENTS, in_files
from skvt.models import Topics
from skvt.models.hdp._sticks import Sticks, compute_expected_weights
from skvt.models.hdp._usage import (
    DOCUMENTS,
    IN_USE,
    LENGTH_SLOPE,
    N_COLUMNS,
    SLOPE,
    TRACES,
    estimate_usage_of_union,
)
from skvt.rows import sum_columns, sums_of_rows
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray, Run

# A topic is in use in a document if the document's tokens of the topic exceed this share of the
# pseudo-count alpha E[beta_k].
MIN_USE_SHARE = 0.01
# Standard deviation of the noise of initial statistics, relative to their mean.
_START_NOISE = 0.1


class Globals(NamedTuple):
    """Global parameters of a local step."""

    # (A, K): E[log phi] of the A words of a batch.
    expected_log: Array
    # (K, 2): the parameters (a_k, b_k) of q(u_k).
    sticks: Array

    def select_words(self, positions: IndexArray) -> "Globals":
        """Return the global parameters with only the rows ``positions`` of ``expected_log``."""
        return Globals(self.expected_log[positions], self.sticks)


@dataclass(frozen=True)
class DocumentsResult(LocalResult):
    """The result of a local step.

    ``q`` (n, K) are the points at which tangents of log Gamma touch: theta, or the pseudo-count of
    a topic that is not in use.
    """

    # The part of these documents' bound that is not linear in statistics, in nats: the entropy of
    # q(z) and the constants of the tangents.
    entropy: float = np.nan
    # (n, K): theta of all topics, whether or not they are in use.
    solved_theta: Array | None = None


@in_files("models.HDP")
@dataclass(frozen=True)
class HDP(ConjugateModel):
    """A hierarchical Dirichlet process for the engines.

    Statistics are ``words`` (K, V), the expected word counts of topics, and ``usage`` (K, 5), both
    float64.
    """

    # An LDA model, which makes the local step of documents given pseudo-counts of topics.
    topics: Any
    # The prior of the weights of topics: gamma and alpha.
    sticks: Sticks
    # Initial number of topics.
    n_initial: Annotated[int, COMPONENTS] = 1
    # (n_initial, V): word probabilities of the initial topics; None draws initial statistics.
    start: Annotated[Array | None, "n_initial d"] = None
    # Whether gamma, alpha, and one eta for all words, are learned.
    learn_topic_concentration: bool = False
    learn_doc_topic_concentration: bool = False
    learn_topic_word_prior: bool = False

    families: ClassVar[tuple[Family, ...]] = (Dirichlet, Beta)
    capabilities = frozenset(
        {Capability.MEMOIZABLE, Capability.GROWING_TOPICS, Capability.LOCAL_SEARCH}
    )

    def validate(self, d: int, k: int) -> bool:
        """Return whether the LDA model has a single topic, and eta has a value for each word."""
        return self.topics.n_components == 1 and self.topic_word_prior.shape == (d,)

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        """Return the shapes of the statistics."""
        return [(n_components, self.n_features), (n_components, N_COLUMNS)]

    @property
    def n_features(self) -> int:
        return self.topic_word_prior.size

    @property
    def topic_word_prior(self) -> Array:
        """Prior eta of the words, (V,)."""
        return np.asarray(self.topics.topic_word_prior)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.topics.dtype)

    # -------------------------------------------------------------------- global parameters
    def prior(self) -> Stats:
        """Return natural parameters of p(phi), (1, V), and of p(u), (1, 2)."""
        eta = self.topic_word_prior.astype(np.float64)
        return Stats((eta[None, :], self.sticks.prior()))

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = eta + S`` (K, V), and the best (a, b) of the sticks (K, 2)."""
        word_counts, usage = stats.as_stats().arrays
        return word_counts + self.prior().arrays[0], self.sticks.find_best(usage)

    def expectation(self, stats: RunningStats, batch: Any, run: Run) -> Globals:
        """Return E[log phi] of the batch's words, or of all words without a batch, and q(u)."""
        words, usage = stats.arrays
        eta = self.topic_word_prior.astype(np.float64)
        # Scale topic by topic, since a scaled copy of all topics would be large.
        sums = np.array([(row if stats.scale == 1.0 else row * stats.scale).sum() for row in words])
        log_sums = digamma_array(sums + eta.sum())
        if batch is not None:
            words, eta = words[:, batch.active], eta[batch.active]
        lam = np.empty(words.T.shape)
        np.multiply(words.T, stats.scale, out=lam)
        lam += eta[:, None]
        expected_log = digamma_array(lam)
        expected_log -= log_sums
        return Globals(expected_log, self.sticks.find_best(usage * stats.scale))

    def log_mean_topics(self, stats: RunningStats, batch: Any) -> Array:
        """Return log E[phi] of the batch's words, (A, K)."""
        eta = self.topic_word_prior.astype(np.float64)
        word_counts = stats.arrays[0]
        lam = stats.scale * word_counts[:, batch.active].T + eta[batch.active, None]
        lam_sums = stats.scale * word_counts.sum(axis=1) + eta.sum()
        return np.log(lam / lam_sums).astype(self.dtype)

    def document_model(self, stats: RunningStats) -> Any:
        """Return the LDA model whose prior of documents is ``alpha E[beta]`` of the K topics."""
        # Leave out the last weight, the weight of the rest, which LDA does not have.
        pseudo_counts = self.sticks.doc_concentration * self.weights(stats)[:-1]
        return replace(self.topics, doc_topic_prior=pseudo_counts.astype(self.dtype))

    def scope(self, batch: Any) -> BatchScope:
        return BatchScope(active=batch.active)

    def weights(self, stats: RunningStats) -> Array:
        """Return the expected weights of the topics, and last of the rest, (K + 1,)."""
        return compute_expected_weights(self.sticks.find_best(stats.scale * stats.arrays[1]))

    def component_masses(self, stats: Stats) -> Array:
        """Return the expected tokens of each topic, (K,)."""
        return stats.arrays[0].sum(axis=1)

    def words_evidence(self, words: Array) -> Array:
        """Return the log evidence of the word counts (..., V) of each topic, (...), in nats.

        It is ``log B(eta + words) - log B(eta)``, with B the normaliser of the Dirichlet density.
        """
        eta = self.topic_word_prior.astype(np.float64)
        n_tokens, eta_sum = words.sum(axis=-1), eta.sum()
        used_words = find_occurring_words(words)
        if used_words is not None:
            # The terms of all other words cancel.
            words, eta = words[..., used_words], eta[used_words]
        log_posterior = gammaln_array(words + eta).sum(axis=-1)
        log_posterior -= gammaln(n_tokens + eta_sum)
        return log_posterior - (gammaln_array(eta).sum() - gammaln(eta_sum))

    def statistics_energy(self, stats: RunningStats, global_params: Globals) -> float:
        """Return the part of the documents' bound that is linear in statistics, in nats."""
        word_counts, usage = stats.as_stats().arrays
        word_terms = float(np.einsum("kv,vk->", word_counts, global_params.expected_log))
        return word_terms + self.sticks.document_terms(global_params.sticks, usage)

    def collapsed_energy(self, stats: Stats) -> float:
        """Return the part of the bound that depends on q(u) and q(phi), at its maximum, in nats.

        The part is :meth:`statistics_energy` less the divergences of q(u) and q(phi) from their
        priors.
        """
        word_counts, usage = stats.arrays
        return float(self.words_evidence(word_counts).sum()) + self.sticks.best_bound(usage)

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Return model and statistics narrowed to the words that occur, if fewer than half do.

        Otherwise return this model and ``stats``.
        """
        used_words = find_occurring_words(stats.arrays[0])
        if used_words is None:
            return self, stats
        word_counts, usage = stats.as_stats().arrays
        narrow_stats = RunningStats([narrow_columns(word_counts, used_words), usage])
        return self.restrict_to_words(used_words), narrow_stats

    def restrict_to_words(self, words: IndexArray) -> Self:
        """Return the model whose words are ``words`` and a last word that stands for all others."""
        eta = self.topic_word_prior
        eta_of_others = eta.sum(dtype=np.float64) - eta[words].sum(dtype=np.float64)
        eta = np.append(eta[words], eta.dtype.type(eta_of_others))
        lda = replace(self.topics, topic_word_prior=eta)
        return replace(self, topics=lda, start=None, learn_topic_word_prior=False)

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        """Return the order of topics by descending numbers of documents, if it raises the bound.

        Return None if it does not, or if topics are in this order already.
        """
        usage = stats.as_stats().arrays[1]
        n_documents = float(usage[:, DOCUMENTS].max())
        order = stable_order(-usage[:, IN_USE], scale=n_documents)
        if np.array_equal(order, np.arange(order.size)):
            return None
        bound, new_bound = self.sticks.best_bound(usage), self.sticks.best_bound(usage[order])
        return order if exceeds(new_bound, bound) else None

    def with_merged_topics(self, groups: Sequence[IndexArray]) -> Self:
        """Return this model, which does not depend on the topics."""
        return self

    def merge_topic_stats(self, stats: Stats, groups: Sequence[IndexArray]) -> Stats:
        """Return statistics in which topic j is the sum of topics ``groups[j]``.

        The number of documents that have several of these topics is not known. It is estimated as
        if topics were independent.
        """
        word_counts, usage = stats.arrays
        return Stats((
            np.stack([word_counts[group].sum(axis=0) for group in groups]),
            np.stack([estimate_usage_of_union(usage[group]) for group in groups]),
        ))  # fmt: skip

    # --------------------------------------------------------------------------------- rows
    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        """Return rows of X as the LDA model prepares them."""
        return self.topics.batch(X, rows, weights)

    def local_step(
        self, batch: Any, global_params: Globals, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Optimise q(z_d) q(pi_d) of each document.

        This is the local step of :class:`~skvt.models.lda.LDA` with the pseudo-counts
        ``alpha E[beta_k]`` as prior. The rest has no tokens and enters only the bound.
        """
        sticks, alpha = global_params.sticks, self.sticks.doc_concentration
        # The last pseudo-count belongs to the rest, which LDA does not have.
        pseudo_counts = alpha * compute_expected_weights(sticks)
        lda_prior = pseudo_counts[:-1].astype(self.dtype)
        lda = replace(self.topics, doc_topic_prior=lda_prior, counts_tokens=True)
        is_tempered = np.ndim(inv_temp) > 0 or inv_temp != 1.0
        topics = Topics(np.ascontiguousarray(global_params.expected_log, self.dtype))
        result = lda.local_step(
            batch, topics, inv_temp, run, with_energy=with_energy or is_tempered,
            with_marginal=with_marginal, with_stats=with_stats,
        )  # fmt: skip
        solved = _SolvedDocuments.from_result(batch, result, inv_temp, lda_prior.astype(np.float64))
        bound = solved.compute_bound(
            result.bound, pseudo_count_of_rest=pseudo_counts[-1], prior=self.sticks, sticks=sticks
        )
        energy, marginal = result.energy, result.marginal_energy
        if energy is not None:
            energy = energy + solved.compute_energy_of_rest(alpha)
        if marginal is not None:
            marginal = marginal + solved.compute_energy_of_rest(alpha)
        if not with_stats:
            theta = solved.theta.astype(self.dtype)
            return DocumentsResult(None, bound, energy, theta, marginal)
        weights = batch.weights.astype(np.float64)
        active_counts = result.stats.arrays[0].astype(np.float64)
        word_counts = np.zeros((lda_prior.size, self.n_features))
        word_counts[:, batch.active] = active_counts.T
        usage = solved.compute_usage(weights, alpha)
        # The entropy is the untempered bound less the terms that are linear in the statistics.
        entropy = float(weights @ bound)
        if is_tempered:
            entropy += float(weights @ ((1.0 - np.asarray(inv_temp)) * energy))
        entropy -= float(np.einsum("ak,ak->", active_counts, global_params.expected_log))
        entropy -= self.sticks.document_terms(sticks, usage)
        return DocumentsResult(
            Stats((word_counts, usage)), bound, energy, solved.theta, marginal,
            counts=solved.tokens, entropy=entropy, solved_theta=solved.solved_theta,
        )  # fmt: skip

    def memo_entropy(
        self, batch: Any, result: Any, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Return ``result.entropy``, (), and None.

        The second result of other models is the entropy that is lost if each pair of components
        merges. Merges of topics compute this entropy themselves in :mod:`skvt.models.hdp._pairs`.
        """
        return np.array(result.entropy), None

    # ------------------------------------------------------------------------ learned priors
    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with learned gamma, alpha and eta at the maximum of the bound."""
        if stats is None:
            return self
        learned: dict[str, Any] = {}
        if self.learn_topic_concentration or self.learn_doc_topic_concentration:
            learned["sticks"] = self.sticks.with_learned(
                stats.as_stats().arrays[1],
                concentration=self.learn_topic_concentration,
                doc_concentration=self.learn_doc_topic_concentration,
            )
        if self.learn_topic_word_prior:
            # The best eta depends on the mean of E[log phi] over all topics and words.
            eta = self.topic_word_prior
            model, compact_stats = self.compact(stats)
            expected_log = Dirichlet.expectation(model.natural_parameters(compact_stats)[0])
            mean_log = expected_log.mean()
            if model is not self:
                # The last column stands for all words that do not occur, which have equal
                # E[log phi]. Replace digamma of the sum of their eta by digamma of a single eta.
                n_others = self.n_features - expected_log.shape[1] + 1
                log_of_other = expected_log[:, -1].mean() + psi(eta[0]) - psi(n_others * eta[0])
                mean_log = expected_log[:, :-1].sum() / len(expected_log) + n_others * log_of_other
                mean_log /= self.n_features
            new_eta = Dirichlet.fit_symmetric(eta[0], mean_log, self.n_features)
            learned["topics"] = replace(self.topics, topic_word_prior=np.full_like(eta, new_eta))
        return replace(self, **learned) if learned else self

    # ------------------------------------------------------------------------- initial values
    def resized(self, n_components: int) -> Self:
        """Return the model with another initial number of topics, and without ``start``."""
        return replace(self, n_initial=n_components, start=None)

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Return statistics of the initial topics ``start``, which share all tokens equally.

        Without ``start``, the tokens of each word are shared evenly among topics, with noise.
        """
        n_topics = self.n_initial
        # Scale the word counts of the rows to the whole data set.
        all_counts, total_weight = sums_of_rows(data.X, data.weights, sum_columns)
        all_counts = all_counts * (data.total / total_weight)
        if self.start is None:
            noise = rng.gamma(_START_NOISE**-2, _START_NOISE**2, size=(n_topics, self.n_features))
            word_counts = noise * (all_counts + 1.0) / n_topics
        else:
            word_counts = self.start * (max(float(all_counts.sum()), 1.0) / n_topics)
        usage = np.zeros((n_topics, N_COLUMNS))
        usage[:, IN_USE] = data.total / n_topics
        usage[:, DOCUMENTS] = data.total
        return RunningStats([word_counts, usage])

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Draw noise of the statistics, which makes equal topics different.

        The standard deviation of the noise of a word count is ``share`` of the count, and the noise
        lowers a count by at most half. The usage has no noise.
        """
        word_counts, usage = stats.as_stats().arrays
        noise = np.zeros_like(word_counts)
        used_words = np.flatnonzero(word_counts.any(axis=0))
        word_counts = word_counts[:, used_words]
        drawn_noise = share * word_counts * rng.standard_normal(word_counts.shape)
        noise[:, used_words] = np.maximum(drawn_noise, -0.5 * word_counts)
        return Stats((noise, np.zeros_like(usage)))

    # --------------------------------------------------------------------------- predictions
    def log_predictive(self, batch: Any, proportions: Array, topics: Array, run: Run) -> Array:
        proportions = proportions.astype(self.dtype)
        return np.asarray(self.topics.log_predictive(batch, proportions, topics, run))


def find_occurring_words(word_counts: Array) -> IndexArray | None:
    """Return the words that have a count in ``word_counts`` (..., V).

    Return None if these are at least half of the words, so that leaving out the others would save
    little.
    """
    used_words = np.flatnonzero(word_counts.reshape(-1, word_counts.shape[-1]).any(axis=0))
    return used_words if 2 * used_words.size < word_counts.shape[-1] else None


def unite_words(word_lists: Iterable[IndexArray], n_words: int) -> IndexArray | None:
    """Return the distinct words of all lists in ascending order.

    Return None if these are at least half of the ``n_words`` words of the vocabulary.
    """
    distinct: IndexArray = np.unique(np.concatenate([np.empty(0, np.int64), *word_lists]))
    return distinct if 2 * distinct.size < n_words else None


def narrow_columns(word_counts: Array, columns: IndexArray) -> Array:
    """Return ``columns`` of the counts (K, V), and last the sum over all other columns."""
    kept_counts = word_counts[:, columns]
    other_counts = np.maximum(word_counts.sum(axis=1) - kept_counts.sum(axis=1), 0.0)
    return np.column_stack([kept_counts, other_counts])


@dataclass(frozen=True)
class _SolvedDocuments:
    """The result of a local step of LDA in double precision, for the bound and usage of the HDP."""

    # (K,): pseudo-counts alpha E[beta_k] of topics.
    pseudo_counts: Array
    # (n, K): points at which tangents touch: theta of the local step, or pseudo-counts of topics
    # that are not in use.
    theta: Array
    # (n, K): theta of the local step for all topics.
    solved_theta: Array
    # (n, K): tokens of topics, not tempered.
    tokens: Array
    # () or (n,): inverse temperature.
    inv_temp: Any
    # (n,): tokens of documents times the inverse temperature.
    lengths: Array
    # (n, K): whether topics are in use.
    in_use: NDArray[np.bool_]

    @classmethod
    def from_result(
        cls, batch: Any, result: LocalResult, inv_temp: Any, pseudo_counts: Array
    ) -> "_SolvedDocuments":
        """Return the documents, given the LDA result of their local step.

        The topics in use, and the points at which tangents touch, follow from theta.
        """
        solved_theta = result.q.astype(np.float64)
        in_use = solved_theta - pseudo_counts > MIN_USE_SHARE * pseudo_counts
        theta = np.where(in_use, solved_theta, pseudo_counts)
        assert result.counts is not None
        inv_temp = np.asarray(inv_temp, np.float64)
        tokens = result.counts.astype(np.float64)
        lengths = inv_temp * batch.lengths.astype(np.float64)
        return cls(pseudo_counts, theta, solved_theta, tokens, inv_temp, lengths, in_use)

    @property
    def tempered_tokens(self) -> Array:
        """Tokens of topics times the inverse temperature, (n, K)."""
        return self.tokens * (self.inv_temp if self.inv_temp.ndim == 0 else self.inv_temp[:, None])

    def compute_energy_of_rest(self, alpha: float) -> Array:
        """Return the change of energies of documents due to the proportions of the rest, (n,)."""
        change = psi(self.pseudo_counts.sum() + self.lengths) - psi(alpha + self.lengths)
        return np.asarray(self.lengths / self.inv_temp * change)

    def compute_bound(
        self, lda_bound: Array, *, pseudo_count_of_rest: float, prior: Sticks, sticks: Array
    ) -> Array:
        """Return each document's part of L in nats, (n,), given its bound in LDA with K topics.

        ``prior`` has gamma and alpha, and ``sticks`` are the parameters of q(u). The bound of LDA
        with the pseudo-counts alpha_k as prior has the terms ``log Gamma(A) - log Gamma(A + N_d)``,
        where A is the sum of all alpha_k, and for each topic ``log Gamma(theta) + (c - theta)
        psi(theta) - log Gamma(alpha_k)``. The terms of L take their place.
        """
        alpha, prior_sum = prior.doc_concentration, self.pseudo_counts.sum()
        bound = lda_bound + gammaln(prior_sum + self.lengths) - gammaln(prior_sum)
        bound = bound - gammaln(alpha + self.lengths)
        constant = gammaln(self.pseudo_counts).sum() + gammaln(pseudo_count_of_rest)
        bound += constant + prior.log_normalizer_bound(sticks)
        # LDA has tangents at theta for all topics. Move the tangents of topics that are not in use
        # to their pseudo-counts.
        is_moved = (self.solved_theta != self.pseudo_counts) & ~self.in_use
        document, topic = np.nonzero(is_moved)
        if document.size:
            c_dk = self.pseudo_counts[topic] + self.tempered_tokens[document, topic]
            points = self.solved_theta[document, topic], self.pseudo_counts[topic]
            old_tangent, new_tangent = (gammaln(x) + (c_dk - x) * psi(x) for x in points)
            np.add.at(bound, document, new_tangent - old_tangent)
        return np.asarray(bound)

    def compute_usage(self, weights: Array, alpha: float) -> Array:
        """Return the documents' usage of topics, (K, 5), see :mod:`skvt.models.hdp._usage`."""
        usage = np.empty((self.pseudo_counts.size, N_COLUMNS))
        document, topic = np.nonzero(self.in_use)
        slopes = np.zeros_like(self.theta)
        slopes[document, topic] = psi(self.theta[document, topic])
        usage[:, SLOPE] = weights @ slopes
        usage[:, TRACES] = weights @ np.where(self.in_use, 0.0, self.tempered_tokens)
        usage[:, IN_USE] = weights @ self.in_use
        usage[:, DOCUMENTS] = weights.sum()
        usage[:, LENGTH_SLOPE] = weights @ (psi(alpha + self.lengths) - psi(alpha))
        return usage
