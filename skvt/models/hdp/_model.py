"""The hierarchical Dirichlet process: LDA with an unknown number of topics.

    u_k ~ Beta(1, gamma)                                    sticks, global
    beta_k = u_k prod_{l<k} (1 - u_l)                       weights of topics
    phi_k ~ Dir(eta)                                        topics, global, (V,)
    pi_d ~ Dir(alpha beta)                                  proportions of document d, local
    z_dn ~ Cat(pi_d),  w_dn ~ Cat(phi_{z_dn})

Mean field, truncated to K topics and the rest: q(u_k) = Beta(a_k, b_k), q(phi_k) = Dir(lam_k),
q(z_dn) = Cat(r_dn) with r_dnk = 0 for k > K, q(pi_d) = Dir(theta_d) over the K topics and the rest,
which stands for all topics not yet seen and has no tokens. Truncations are nested: the bound with K
topics is that with K + 1 topics, one of them without tokens, but for the nats of one more q(u).

The guide (doc/guide/memoized_hdp.md) derives the bound L, two terms of which are bounded by sums
over documents: ``E[log c_D(alpha beta)]`` by
:meth:`~skvt.models.hdp._sticks.Sticks.log_normalizer_bound`; ``log Gamma(c_dk)``, with
``c_dk = N_dk + alpha E[beta_k]`` and N_dk = sum_n r_dnk, by its tangent at theta_dk, the value of
c_dk in the document's last local step, or at ``alpha E[beta_k]`` if the document has next to no
tokens of topic k.

If alpha is learned, ``-log Gamma(alpha + N_d)``, which is not convex, is replaced by
``-log Gamma(alpha) + log Gamma(a) - log Gamma(a + N_d) - (alpha - a) (psi(a + N_d) - psi(a))``.
This is a lower bound, exact at alpha = a, the value in the last local step.

So S, the usage of each topic (sums of slopes, of traces of tokens, of documents) and one number
represent all documents. The best q(u) is a function of the usage alone. At T = 1 every step raises
L. Sticks are sorted by the usage of topics if that raises L.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, psi

from skvt.compiled import digamma_array, gammaln_array
from skvt.contracts import BatchScope, Capability, ConjugateModel, LocalResult, RowSource
from skvt.expfam import Beta, Dirichlet, Family, RunningStats, Stats
from skvt.files import COMPONENTS, in_files
from skvt.models.hdp._sticks import (
    DOCUMENTS,
    IN_USE,
    LENGTH,
    N_COLUMNS,
    SLOPE,
    TRACES,
    Sticks,
    expected_weights,
    usage_of_one,
)
from skvt.rows import column_totals, sums_of_rows
from skvt.ties import exceeds, stable_order
from skvt.typing import Array, IndexArray, Run

# A document uses a topic if its tokens of the topic exceed this share of the pseudo-count.
LEAST_USE = 0.01
# Relative noise of the initial statistics of each topic.
_ROUGHNESS = 0.1


class Globals(NamedTuple):
    """Globals of a local step: E[log phi] of words (A, K), and q(u) (K, 2)."""

    expected_log: Array
    sticks: Array

    def at(self, places: IndexArray) -> "Globals":
        """Return the globals of the words at ``places``."""
        return Globals(self.expected_log[places], self.sticks)


@dataclass(frozen=True)
class DocumentsResult(LocalResult):
    # The part of these documents' bound that is not linear in statistics, in nats: the entropy of
    # q(z) and the constants of the tangents.
    entropy: float = np.nan
    # (n, K): theta in the local step. In ``q``, topics not in use have their pseudo-count instead.
    found: Array | None = None


@in_files("models.HDP")
@dataclass(frozen=True)
class HDP(ConjugateModel):
    """A hierarchical Dirichlet process; statistics: words (K, V), usage (K, 5), float64."""

    # A model of documents given pseudo-counts of topics. Local steps replace its
    # ``doc_topic_prior`` and let it count tokens.
    topics: Any
    # gamma and alpha.
    sticks: Sticks
    # Initial number of topics.
    n_initial: Annotated[int, COMPONENTS] = 1
    # (n_initial, V): word probabilities of the initial topics; None draws initial statistics.
    start: Annotated[Array | None, "n_initial d"] = None
    # Move gamma, alpha or eta (one value for all words) to the maximum of the bound.
    learn_topic_concentration: bool = False
    learn_doc_topic_concentration: bool = False
    learn_topic_word_prior: bool = False

    families: ClassVar[tuple[Family, ...]] = (Dirichlet, Beta)
    capabilities = frozenset(
        {Capability.MEMOIZABLE, Capability.GROWING_TOPICS, Capability.LOCAL_SEARCH}
    )

    def validate(self, d: int, k: int) -> bool:
        return self.topics.n_components == 1 and self.topic_word_prior.shape == (d,)

    def statistics_shapes(self, n_components: int) -> list[tuple[int, ...]]:
        """Return the shapes of the statistics."""
        return [(n_components, self.n_features), (n_components, 5)]

    @property
    def n_features(self) -> int:
        return self.topic_word_prior.size

    @property
    def topic_word_prior(self) -> Array:
        """eta, (V,)."""
        return np.asarray(self.topics.topic_word_prior)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.topics.dtype)

    # ------------------------------------------------------------------------------- globals
    def prior(self) -> Stats:
        """Return natural parameters of p(phi), (1, V), and of p(u), (1, 2)."""
        eta = self.topic_word_prior.astype(np.float64)
        return Stats((eta[None, :], self.sticks.prior()))

    def natural_parameters(self, stats: RunningStats) -> tuple[Array, ...]:
        """Return ``lam = eta + S`` (K, V), and the best (a, b) of the sticks (K, 2)."""
        words, usage = stats.value().arrays
        return words + self.prior().arrays[0], self.sticks.best(usage)

    def expectation(self, stats: RunningStats, batch: Any, run: Run) -> Globals:
        """Return E[log phi] of the batch's words, or of all words without a batch, and q(u)."""
        words, usage = stats.arrays
        eta = self.topic_word_prior.astype(np.float64)
        # Topic by topic, since a scaled copy of all topics would be large.
        sums = np.array([(row if stats.scale == 1.0 else row * stats.scale).sum() for row in words])
        log_sums = digamma_array(sums + eta.sum())
        if batch is not None:
            words, eta = words[:, batch.active], eta[batch.active]
        lam = np.empty(words.T.shape)
        np.multiply(words.T, stats.scale, out=lam)
        lam += eta[:, None]
        expected_log = digamma_array(lam)
        expected_log -= log_sums
        return Globals(expected_log, self.sticks.best(usage * stats.scale))

    def log_mean_topics(self, stats: RunningStats, batch: Any) -> Array:
        """Return log E[phi] of the batch's words, (A, K)."""
        eta = self.topic_word_prior.astype(np.float64)
        words = stats.arrays[0]
        lam = stats.scale * words[:, batch.active].T + eta[batch.active, None]
        totals = stats.scale * words.sum(axis=1) + eta.sum()
        return np.log(lam / totals).astype(self.dtype)

    def documents(self, stats: RunningStats) -> Any:
        """Return LDA with the expected weights of the K topics as document prior."""
        pseudo = self.sticks.doc_concentration * self.weights(stats)[:-1]
        return replace(self.topics, doc_topic_prior=pseudo.astype(self.dtype))

    def scope(self, batch: Any) -> BatchScope:
        return BatchScope(active=batch.active)

    def weights(self, stats: RunningStats) -> Array:
        """Return ``E[beta_k]``, and last E[beta] of the rest, (K + 1,)."""
        return expected_weights(self.sticks.best(stats.scale * stats.arrays[1]))

    def component_masses(self, stats: Stats) -> Array:
        """Return the expected tokens of each topic, (K,)."""
        return stats.arrays[0].sum(axis=1)

    def words_evidence(self, words: Array) -> Array:
        """Return ``log B(eta + S_k) - log B(eta)``, the log evidence of each topic, (...)."""
        eta = self.topic_word_prior.astype(np.float64)
        sums, total = words.sum(axis=-1), eta.sum()
        occur = occurring(words)
        if occur is not None:  # the terms of all other words cancel
            words, eta = words[..., occur], eta[occur]
        after = gammaln_array(words + eta).sum(axis=-1)
        after -= gammaln(sums + total)
        return after - (gammaln_array(eta).sum() - gammaln(total))

    def statistics_energy(self, stats: RunningStats, global_params: Globals) -> float:
        """Return the part of the documents' bound that is linear in statistics, in nats."""
        words, usage = stats.value().arrays
        of_words = float(np.einsum("kv,vk->", words, global_params.expected_log))
        return of_words + self.sticks.document_terms(global_params.sticks, usage)

    def collapsed_energy(self, stats: Stats) -> float:
        """Return :meth:`statistics_energy` less the globals' divergence at the best globals."""
        words, usage = stats.arrays
        return float(self.words_evidence(words).sum()) + self.sticks.best_bound(usage)

    def compact(self, stats: RunningStats) -> tuple[Self, RunningStats]:
        """Narrow model and statistics to the words that occur, if most words do not."""
        occur = occurring(stats.arrays[0])
        if occur is None:
            return self, stats
        words, usage = stats.value().arrays
        return self.within(occur), RunningStats([narrowed(words, occur), usage])

    def within(self, words: IndexArray) -> Self:
        """Return the model of these words and, last, one word in place of all others."""
        eta = self.topic_word_prior
        rest = eta.sum(dtype=np.float64) - eta[words].sum(dtype=np.float64)
        eta = np.append(eta[words], eta.dtype.type(rest))
        topics = replace(self.topics, topic_word_prior=eta)
        return replace(self, topics=topics, start=None, learn_topic_word_prior=False)

    def best_order(self, stats: RunningStats) -> IndexArray | None:
        """Return the order of topics by usage if it raises the bound; None keeps the order."""
        usage = stats.value().arrays[1]
        n_documents = float(usage[:, DOCUMENTS].max())
        order = stable_order(-usage[:, IN_USE], scale=n_documents)
        if np.array_equal(order, np.arange(order.size)):
            return None
        before, after = self.sticks.best_bound(usage), self.sticks.best_bound(usage[order])
        return order if exceeds(after, before) else None

    def regrouped(self, groups: Sequence[IndexArray]) -> Self:
        """Return this model, which does not depend on the topics."""
        return self

    def regrouped_stats(self, stats: Stats, groups: Sequence[IndexArray]) -> Stats:
        """Return statistics in which topic j is the sum of topics ``groups[j]``.

        The number of documents that have several of these topics is not known; it is taken to be
        what it would be by chance.
        """
        words, usage = stats.arrays
        return Stats((
            np.stack([words[group].sum(axis=0) for group in groups]),
            np.stack([usage_of_one(usage[group]) for group in groups]),
        ))  # fmt: skip

    # --------------------------------------------------------------------------------- rows
    def batch(self, X: Any, rows: IndexArray, weights: Array) -> Any:
        return self.topics.batch(X, rows, weights)

    def local_step(
        self, batch: Any, global_params: Globals, inv_temp: float | Array, run: Run, *,
        with_energy: bool = False, with_marginal: bool = False, with_stats: bool = True,
    ) -> LocalResult:  # fmt: skip
        """Optimise q(z_d) q(pi_d) of each document; ``q`` of the result is theta (n, K).

        The step is that of :class:`~skvt.models.lda.LDA` with the pseudo-counts
        ``alpha E[beta_k]``. The rest has no tokens and enters only the bound.
        """
        sticks, alpha = global_params.sticks, self.sticks.doc_concentration
        pseudo = alpha * expected_weights(sticks)
        of_topics = pseudo[:-1].astype(self.dtype)
        topics = replace(self.topics, doc_topic_prior=of_topics, counts_tokens=True)
        tempered = np.ndim(inv_temp) > 0 or inv_temp != 1.0
        table = np.ascontiguousarray(global_params.expected_log, self.dtype)
        result = topics.local_step(
            batch, table, inv_temp, run, with_energy=with_energy or tempered,
            with_marginal=with_marginal, with_stats=with_stats,
        )  # fmt: skip
        documents = _Documents.of(batch, result, inv_temp, of_topics.astype(np.float64))
        bound = documents.bound(result.bound, pseudo, self.sticks, sticks)
        energy, marginal = result.energy, result.marginal_energy
        if energy is not None:
            energy = energy + documents.of_whole_normaliser(alpha)
        if marginal is not None:
            marginal = marginal + documents.of_whole_normaliser(alpha)
        if not with_stats:
            theta = documents.theta.astype(self.dtype)
            return DocumentsResult(None, bound, energy, theta, marginal)
        weights = batch.weights.astype(np.float64)
        of_words = result.stats.arrays[0].astype(np.float64)
        words = np.zeros((of_topics.size, self.n_features))
        words[:, batch.active] = of_words.T
        usage = documents.usage(weights, alpha)
        entropy = float(weights @ bound)
        if tempered:
            entropy += float(weights @ ((1.0 - np.asarray(inv_temp)) * energy))
        entropy -= float(np.einsum("ak,ak->", of_words, global_params.expected_log))
        entropy -= self.sticks.document_terms(sticks, usage)
        return DocumentsResult(
            Stats((words, usage)), bound, energy, documents.theta, marginal,
            counts=documents.tokens, entropy=entropy, found=documents.found,
        )  # fmt: skip

    def memo_entropy(
        self, batch: Any, result: Any, run: Run, *, pairs: bool
    ) -> tuple[Array, Array | None]:
        """Return ``result.entropy``, (), and None: merges compute what pairs of topics lose."""
        return np.array(result.entropy), None

    # ------------------------------------------------------------------------ learned priors
    def with_learned_priors(self, prior_stats: Any, stats: RunningStats | None = None) -> Self:
        """Return the model with learned gamma, alpha and eta at the maximum of the bound."""
        changes: dict[str, Any] = {}
        if stats is None:
            return self
        if self.learn_topic_concentration or self.learn_doc_topic_concentration:
            changes["sticks"] = self.sticks.with_learned(
                stats.value().arrays[1],
                concentration=self.learn_topic_concentration,
                doc_concentration=self.learn_doc_topic_concentration,
            )
        if self.learn_topic_word_prior:
            eta, (model, compact) = self.topic_word_prior, self.compact(stats)
            expected = Dirichlet.expectation(model.natural_parameters(compact)[0])
            mean_log = expected.mean()
            if model is not self:
                # Words that do not occur have equal E[log phi]; the last column is their sum.
                n_others = self.n_features - expected.shape[1] + 1
                others = expected[:, -1].mean() + psi(eta[0]) - psi(n_others * eta[0])
                mean_log = expected[:, :-1].sum() / len(expected) + n_others * others
                mean_log /= self.n_features
            learned = Dirichlet.fit_symmetric(eta[0], mean_log, self.n_features)
            changes["topics"] = replace(self.topics, topic_word_prior=np.full_like(eta, learned))
        return replace(self, **changes) if changes else self

    # ------------------------------------------------------------------------- initial values
    def resized(self, n_components: int) -> Self:
        return replace(self, n_initial=n_components, start=None)

    def initial(self, data: RowSource, rng: np.random.Generator) -> RunningStats:
        """Share all words evenly but for noise, or all tokens equally among the given topics."""
        n = self.n_initial
        counts, weight = sums_of_rows(data.X, data.weights, column_totals)
        counts = counts * (data.total / weight)
        if self.start is None:
            noise = rng.gamma(_ROUGHNESS**-2, _ROUGHNESS**2, size=(n, self.n_features))
            words = noise * (counts + 1.0) / n
        else:
            words = self.start * (max(float(counts.sum()), 1.0) / n)
        usage = np.zeros((n, N_COLUMNS))
        usage[:, IN_USE] = data.total / n
        usage[:, DOCUMENTS] = data.total
        return RunningStats([words, usage])

    def symmetry_breaking_stats(
        self, stats: RunningStats, data: RowSource, share: float, rng: np.random.Generator
    ) -> Stats:
        """Draw noise of this share of the word counts; the usage has none."""
        words, usage = stats.value().arrays
        noise, occur = np.zeros_like(words), np.flatnonzero(words.any(axis=0))
        words = words[:, occur]
        drawn = share * words * rng.standard_normal(words.shape)
        noise[:, occur] = np.maximum(drawn, -0.5 * words)
        return Stats((noise, np.zeros_like(usage)))

    # --------------------------------------------------------------------------- predictions
    def log_predictive(self, batch: Any, proportions: Array, topics: Array, run: Run) -> Array:
        proportions = proportions.astype(self.dtype)
        return np.asarray(self.topics.log_predictive(batch, proportions, topics, run))


def occurring(words: Array) -> IndexArray | None:
    """Return the words that have tokens in topics (..., V), or None if they are half or more."""
    occur = np.flatnonzero(words.reshape(-1, words.shape[-1]).any(axis=0))
    return occur if 2 * occur.size < words.shape[-1] else None


def occurring_in(words: Iterable[IndexArray], n_words: int) -> IndexArray | None:
    """Return the distinct words in order, or None if they are half of ``n_words`` or more."""
    occur: IndexArray = np.unique(np.concatenate([np.empty(0, np.int64), *words]))
    return occur if 2 * occur.size < n_words else None


def narrowed(words: Array, columns: IndexArray) -> Array:
    """Return the counts of these columns of (K, V), and last the sum over all others."""
    kept = words[:, columns]
    others = np.maximum(words.sum(axis=1) - kept.sum(axis=1), 0.0)
    return np.column_stack([kept, others])


@dataclass(frozen=True)
class _Documents:
    """The result of a local step of LDA, in double precision.

    ``pseudo`` (K,) are the pseudo-counts of topics. ``found`` (n, K) is theta of the local step,
    and ``theta`` (n, K) the points where tangents touch. ``tokens`` (n, K) are not tempered,
    ``lengths`` (n,) are times the inverse temperature ``b``.
    """

    pseudo: Array
    theta: Array
    found: Array
    tokens: Array
    b: Any
    lengths: Array
    in_use: NDArray[np.bool_] = field(repr=False)

    @classmethod
    def of(cls, batch: Any, result: LocalResult, inv_temp: Any, pseudo: Array) -> "_Documents":
        solved = result.q.astype(np.float64)
        in_use = solved - pseudo > LEAST_USE * pseudo
        theta = np.where(in_use, solved, pseudo)
        assert result.counts is not None
        b = np.asarray(inv_temp, np.float64)
        tokens = result.counts.astype(np.float64)
        lengths = b * batch.lengths.astype(np.float64)
        return cls(pseudo, theta, solved, tokens, b, lengths, in_use)

    @property
    def tempered_tokens(self) -> Array:
        return self.tokens * (self.b if self.b.ndim == 0 else self.b[:, None])

    def of_whole_normaliser(self, alpha: float) -> Array:
        """Return the change of the energy because the rest has a part of the proportions, (n,)."""
        inner = psi(self.pseudo.sum() + self.lengths) - psi(alpha + self.lengths)
        return np.asarray(self.lengths / self.b * inner)

    def bound(self, bound: Array, pseudo: Array, law: Sticks, sticks: Array) -> Array:
        """Return each document's part of L, (n,), given its ``bound`` in LDA with K topics.

        The bound of LDA has ``log Gamma(A) - log Gamma(A + N_d)`` with A the sum of pseudo-counts,
        and for each topic ``log Gamma(theta) + (c - theta) psi(theta) - log Gamma(alpha_k)``. Its
        other terms are those of L.
        """
        alpha, total = law.doc_concentration, self.pseudo.sum()
        out = bound + gammaln(total + self.lengths) - gammaln(total) - gammaln(alpha + self.lengths)
        out += gammaln(self.pseudo).sum() + gammaln(pseudo[-1]) + law.log_normalizer_bound(sticks)
        # The tangent of a topic that is not in use touches at its pseudo-count.
        document, topic = np.nonzero((self.found != self.pseudo) & ~self.in_use)
        if document.size:
            c = self.pseudo[topic] + self.tempered_tokens[document, topic]
            at = self.found[document, topic], self.pseudo[topic]
            at_found, at_pseudo = (gammaln(x) + (c - x) * psi(x) for x in at)
            np.add.at(out, document, at_pseudo - at_found)
        return np.asarray(out)

    def usage(self, weights: Array, alpha: float) -> Array:
        """Return the usage of topics by these documents, (K, 5)."""
        usage = np.empty((self.pseudo.size, N_COLUMNS))
        document, topic = np.nonzero(self.in_use)
        slopes = np.zeros_like(self.theta)
        slopes[document, topic] = psi(self.theta[document, topic])
        usage[:, SLOPE] = weights @ slopes
        usage[:, TRACES] = weights @ np.where(self.in_use, 0.0, self.tempered_tokens)
        usage[:, IN_USE] = weights @ self.in_use
        usage[:, DOCUMENTS] = weights.sum()
        usage[:, LENGTH] = weights @ (psi(alpha + self.lengths) - psi(alpha))
        return usage
