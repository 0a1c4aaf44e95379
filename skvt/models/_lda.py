"""Latent Dirichlet allocation.

    beta_k ~ Dir(eta)        topics, global, (V,)
    theta_d ~ Dir(alpha)     proportions of document d, local, (K,)
    z_dn ~ Mult(theta_d), w_dn ~ Mult(beta_{z_dn})

Mean field: q(beta_k) = Dir(lam_k), q(theta_d) = Dir(gamma_d), q(z_dn) = Mult(phi_dw)
[Blei03 sec. 5], [Hoffman10 eq. 2]. The tempered likelihood is p(w, z | theta, beta)^(1/T); neither
p(beta | eta) nor p(theta | alpha) is tempered [VT16 app. B.2].
"""

import threading
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from skvt.expfam import Dirichlet, RunningStats, Stats
from skvt.expfam._special import digamma_array
from skvt.models import _lda_kernels as kernels
from skvt.models._base import LocalResult

# Sizes of one parallel task, 30 to 100 microseconds: a minibatch of a hundred documents is shared
# evenly between threads, and the hand-over (30 microseconds for each call of ``run``, 10 for each
# task) stays small. Entries of documents (a document costs as much as so many more); words; entries
# and words of the statistics.
ENTRIES_PER_TASK = 1000
ENTRIES_OF_A_DOCUMENT = 10
WORDS_PER_TASK = 600
STATISTICS_PER_TASK = 4500
# The last tasks are this many times smaller, down from where this many are left.
SHORTEST = 3
CACHE_LINE = 64  # bytes
# A topic with a smaller share of a document (in tokens, and of a tenth of an equal share) is set
# aside in the document's later sweeps.
PRUNE = 0.01


@dataclass(frozen=True)
class DocumentBatch:
    """Documents prepared for local steps: their words numbered among themselves.

    ``words`` and ``counts`` are CSR entries under ``indptr``; ``active`` (A,) translates local
    words to columns of X, ``rows`` (n,) documents to rows of X. The same entries sorted by word
    are ``documents`` and ``entries`` under ``word_indptr``. ``lengths`` (n,) are tokens,
    ``weights`` (n,) the rows' sample weights. ``chunks`` are tasks of documents, ``word_pieces``
    slices of words of equal number and ``entry_pieces`` of about as many entries: divided here,
    since batches are prepared ahead.
    """

    indptr: np.ndarray
    words: np.ndarray
    counts: np.ndarray
    active: np.ndarray
    word_indptr: np.ndarray
    documents: np.ndarray
    entries: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    chunks: list
    word_pieces: list
    entry_pieces: list

    @property
    def n_rows(self):
        """Number of documents."""
        return self.lengths.size


_scratch = threading.local()


def _aligned(size, dtype):
    """An array that begins at a line of the cache: vectors that cross lines load at half speed."""
    raw = np.empty(size * dtype.itemsize + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size * dtype.itemsize].view(dtype)


def _scratch_of(dtype, longest, n_topics):
    """Work arrays of this thread for ``document_steps``.

    Kept from call to call: fresh ones of this size would be mapped and unmapped by the system each
    time, which stops all threads of the process.
    """
    longest, width = (-(-size // kernels.LANES) * kernels.LANES for size in (longest, n_topics))
    sizes = 2 * longest * width, 3 * longest, 7 * width
    arrays = getattr(_scratch, "arrays", {})
    if arrays.get(dtype, np.empty(0)).size < sum(sizes):
        arrays[dtype] = _aligned(sum(sizes), dtype)
        _scratch.arrays = arrays
    array = arrays[dtype]
    tables, array = array[: sizes[0]], array[sizes[0] :]
    per_word, per_topic = array[: sizes[1]], array[sizes[1] : sizes[1] + sizes[2]]
    return tables.reshape(2, -1), per_word.reshape(3, -1), per_topic.reshape(7, -1)


def _document_task(longest, n_topics, dtype, before, after):
    """``document_steps`` with this thread's scratch."""
    kernels.document_steps(*before, *_scratch_of(dtype, longest, n_topics), *after)


def _pieces(cost, most):
    """Consecutive slices that cover n items, of a cost of ``most`` and, towards the end, less.

    ``cost`` is cumulative, (n + 1,) from 0. The last pieces are small, so that threads that take
    them in turn end at about the same time.
    """
    total, least = int(cost[-1]), max(1, most // SHORTEST)
    n_full = max(0, total // most - SHORTEST)
    ends = [most * i for i in range(1, n_full + 1)]
    done = n_full * most
    while done < total - least:
        done += min(most, max(least, (total - done) // SHORTEST))
        ends.append(done)
    places = np.searchsorted(cost, ends).tolist() if ends else []
    bounds = pairwise([0, *places, cost.size - 1])
    return [slice(start, stop) for start, stop in bounds if start < stop]


class DocumentChunk(NamedTuple):
    """Documents of one task: their slices of rows and of entries, and CSR pointers of their own."""

    rows: slice
    entries: slice
    indptr: np.ndarray
    longest: int


def _chunks_of_documents(indptr):
    """The tasks of documents, a list of :class:`DocumentChunk`."""
    cost = indptr + ENTRIES_OF_A_DOCUMENT * np.arange(indptr.size)
    sizes, chunks = np.diff(indptr), []
    for rows in _pieces(cost, ENTRIES_PER_TASK):
        first = indptr[rows.start]
        own = indptr[rows.start : rows.stop + 1] - first
        entries = slice(int(first), int(first + own[-1]))
        chunks.append(DocumentChunk(rows, entries, own, int(sizes[rows].max())))
    return chunks


@dataclass(frozen=True)
class LDA:
    """Latent Dirichlet allocation for the engines.

    Parameters
    ----------
    doc_topic_prior : ndarray, shape (K,)
        alpha, concentration of the Dirichlet prior of a document's topic proportions.
    topic_word_prior : ndarray, shape (V,)
        eta, concentration of the Dirichlet prior of a topic's word probabilities.
    max_doc_update_iter : int
        Most sweeps of one document's local step.
    mean_change_tol : float
        A document has converged when gamma changes by less than this on average over topics.
    learn_doc_topic_prior, learn_topic_word_prior : bool
        Move alpha (each entry) or eta (one value for all words) to the maximum of the bound.

    Notes
    -----
    The precision of the computation is that of the priors. Statistics are (V, K), word by word.
    """

    doc_topic_prior: np.ndarray
    topic_word_prior: np.ndarray
    max_doc_update_iter: int = 100
    mean_change_tol: float = 1e-3
    learn_doc_topic_prior: bool = False
    learn_topic_word_prior: bool = False

    families = (Dirichlet,)

    @property
    def n_components(self):
        """Number of topics K."""
        return self.doc_topic_prior.size

    @property
    def n_features(self):
        """Size of the vocabulary V."""
        return self.topic_word_prior.size

    @property
    def dtype(self):
        """Precision of the computation."""
        return self.doc_topic_prior.dtype

    # ------------------------------------------------------------------------------- globals
    def prior(self):
        """Natural parameters of p(beta), shape (1, V) for the one block."""
        return Stats((self.topic_word_prior[None, :],))

    def natural_parameters(self, stats):
        """``lam = eta + S``, shape (K, V) for the one block."""
        lam = stats.value().arrays[0].T + self.topic_word_prior
        return (np.ascontiguousarray(lam),)

    def size(self, stats):
        """Number of topics K."""
        return self.n_components

    def initial(self, data, rng):
        """Random statistics: every S_vk ~ Gamma(100, 1/100), about one token of each word."""
        counts = rng.gamma(100.0, 0.01, size=(self.n_components, self.n_features))
        return RunningStats([np.ascontiguousarray(counts.T, self.dtype)])

    def from_topics(self, lam):
        """Running statistics whose ``prior + S`` is the given lam, shape (K, V)."""
        lam = np.asarray(lam)
        return RunningStats([np.ascontiguousarray((lam - self.topic_word_prior).T, self.dtype)])

    # --------------------------------------------------------------------------------- rows
    def batch(self, X, rows, weights):
        """Documents ``rows`` of the CSR matrix X as a :class:`DocumentBatch`."""
        rows = np.asarray(rows)
        indptr = np.empty(rows.size + 1, np.int64)
        marker = np.full(X.shape[1], -1, np.int32)
        active = np.empty(X.shape[1] + 1, np.int32)
        n_active = kernels.gather_rows(X.indptr, X.indices, rows, marker, indptr, active)
        # In order, rows of the statistics are read from memory one after the other.
        active = np.sort(active[:n_active])
        n_entries = int(indptr[-1])
        words, documents = np.empty((2, n_entries), np.int32)
        counts, lengths = np.empty(n_entries, self.dtype), np.empty(rows.size, self.dtype)
        word_indptr, entries = np.empty(n_active + 1, np.int64), np.empty(n_entries, np.int64)
        kernels.localise(
            X.indptr, X.indices, X.data, rows, active, marker, indptr, words, counts, lengths,
            word_indptr, documents, entries,
        )  # fmt: skip
        return DocumentBatch(
            indptr=indptr,
            words=words,
            counts=counts,
            active=active,
            word_indptr=word_indptr,
            documents=documents,
            entries=entries,
            lengths=lengths,
            weights=np.ascontiguousarray(weights, self.dtype),
            rows=rows,
            chunks=_chunks_of_documents(indptr),
            word_pieces=_pieces(np.arange(n_active + 1), WORDS_PER_TASK),
            entry_pieces=_pieces(word_indptr + np.arange(n_active + 1), STATISTICS_PER_TASK),
        )

    def touched(self, X):
        """Rows of the statistics that these documents can change: their words."""
        occurs = np.zeros(X.shape[1], bool)
        occurs[X.indices] = True
        return np.flatnonzero(occurs)

    def expectation(self, stats, batch, run):
        """``E[log beta_vk]`` of the batch's words, shape (A, K)."""
        digamma_sums = digamma_array(stats.sums[0] + self.topic_word_prior.sum(dtype=np.float64))
        digamma_sums = digamma_sums.astype(self.dtype)
        out = np.empty((batch.active.size, self.n_components), self.dtype)
        scale = self.dtype.type(stats.scale)
        run(
            kernels.expected_log_topics,
            [
                (stats.arrays[0], batch.active[piece], scale, self.topic_word_prior, digamma_sums,
                 out[piece])
                for piece in batch.word_pieces
            ],
        )  # fmt: skip
        return out

    def row_globals(self, stats, batch, run):
        """What rows are explained by after the fit: E[log beta]."""
        return self.expectation(stats, batch, run)

    def mean_field(self):
        """The model whose local step gives the bound: itself."""
        return self

    # --------------------------------------------------------------------------- local step
    def local_step(
        self, batch, g, inv_temp, run, *, with_energy=False, with_marginal=False, with_stats=True
    ):
        """Optimise q(theta_d) q(z_d) of each document; ``q`` of the result is gamma (n, K)."""
        own = np.ndim(inv_temp) > 0
        inv_temps = np.atleast_1d(np.asarray(inv_temp, self.dtype))
        floor = kernels.FLOOR[self.dtype]
        table, shift = self._table(batch, g, inv_temps[0], floor, own, run)
        gamma = np.empty((batch.n_rows, self.n_components), self.dtype)
        weights = np.empty_like(gamma)
        ratio = np.empty_like(batch.counts)
        bound, energy, marginal = np.empty((3, batch.n_rows))
        tasks = []
        for piece, part, indptr, longest in batch.chunks:
            before = (
                indptr, batch.words[part], batch.counts[part], batch.lengths[piece],
                g, table, shift, self.doc_topic_prior,
                inv_temps[piece] if own else inv_temps, own, floor,
                self.max_doc_update_iter, self.dtype.type(self.mean_change_tol),
                self.dtype.type(PRUNE), with_energy, with_marginal,
            )  # fmt: skip
            after = (
                gamma[piece],
                weights[piece],
                ratio[part],
                bound[piece],
                energy[piece],
                marginal[piece],
            )
            tasks.append((max(1, longest), self.n_components, self.dtype, before, after))
        run(_document_task, tasks)
        stats = None
        if with_stats:
            stats = self._statistics(batch, g, table, weights, ratio, inv_temps, own, run)
        return LocalResult(
            stats,
            bound,
            energy if with_energy else None,
            gamma,
            marginal if with_marginal else None,
        )

    def _table(self, batch, g, inv_temp, floor, own, run):
        """Tempered exponential of E[log beta] and its row shifts; empty if rows have their own."""
        if own:
            return np.empty((0, self.n_components), self.dtype), np.empty(0, self.dtype)
        table, shift = np.empty_like(g), np.empty(g.shape[0], self.dtype)
        run(
            kernels.tempered_table,
            [
                (g[piece], inv_temp, floor, table[piece], shift[piece])
                for piece in batch.word_pieces
            ],
        )
        return table, shift

    def _statistics(self, batch, g, table, weights, ratio, inv_temps, own, run):
        """``sum_d w_d n_dv phi_dvk`` for the active words, [Hoffman10 eq. 5]."""
        row_weights = batch.weights
        if own:
            mean = np.average(inv_temps, weights=row_weights)
            row_weights = row_weights * (inv_temps / mean)  # [VT16 eq. 11]
        out = np.empty_like(g)
        tasks = [
            (
                batch.word_indptr[piece.start : piece.stop + 1], batch.documents, batch.entries,
                row_weights, weights, ratio, table[piece], g[piece], inv_temps, own,
                kernels.FLOOR[self.dtype], out[piece],
            )
            for piece in batch.entry_pieces
        ]  # fmt: skip
        run(kernels.word_statistics, tasks)
        return Stats((out,), rows=batch.active)

    # --------------------------------------------------------------------------- temperature
    def tempered_log_partition(self, inv_temps):
        """log C(T) of one token in nats and its slope in 1/T, (M,) each [VT16 app. B.1].

        The closed form of the joint of word and assignment; see
        :mod:`skvt.temperature._partition` for what it bounds.
        """
        alpha, eta = self.doc_topic_prior, self.topic_word_prior
        value = Dirichlet.log_mean_power_sum(alpha, inv_temps)
        slope = Dirichlet.log_mean_power_sum_slope(alpha, inv_temps)
        value += Dirichlet.log_mean_power_sum(eta, inv_temps)
        return value, slope + Dirichlet.log_mean_power_sum_slope(eta, inv_temps)

    # --------------------------------------------------------------------------- predictions
    def log_predictive(self, batch, proportions, topics, run):
        """``sum_j n_dj log sum_k proportions_dk topics_kj`` of each document in nats, (n,).

        ``proportions`` is (n, K), ``topics`` (V, K) the word probabilities of each topic.
        """
        rows = np.ascontiguousarray(topics[batch.active], self.dtype)
        out = np.empty(batch.n_rows)
        tasks = []
        for piece, part, indptr, _ in batch.chunks:
            tasks.append((indptr, batch.words[part], batch.counts[part],
                          proportions[piece], rows, out[piece]))  # fmt: skip
        run(kernels.mixture_log_likelihood, tasks)
        return out

    # ------------------------------------------------------------------------ learned priors
    def prior_statistics(self, batch, result):
        """``(sum_d w_d E[log theta_d], sum_d w_d)``; None unless alpha is learned."""
        if not self.learn_doc_topic_prior:
            return None
        weights = batch.weights.astype(np.float64)
        return weights @ Dirichlet.expectation(result.q), weights.sum()

    def with_learned_priors(self, prior_stats, stats=None):
        """alpha by Newton's method on its part of the bound; eta likewise if ``stats`` is given."""
        changes = {}
        if self.learn_doc_topic_prior and prior_stats.mean is not None:
            changes["doc_topic_prior"] = Dirichlet.fit(
                self.doc_topic_prior, prior_stats.mean
            ).astype(self.dtype)
        if self.learn_topic_word_prior and stats is not None:
            # One eta for all topics and words: the mean of E[log beta_kv] is all that matters.
            mean_log = Dirichlet.expectation(self.natural_parameters(stats)[0]).mean()
            eta = Dirichlet.fit_symmetric(self.topic_word_prior[0], mean_log, self.n_features)
            changes["topic_word_prior"] = np.full_like(self.topic_word_prior, eta)
        return replace(self, **changes) if changes else self
