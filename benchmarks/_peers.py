"""Runners: every library fits the same counts and hands back topics and seconds.

A runner is a generator of :class:`Point`, one for each length of fit asked for. Only the library's
own work is timed: neither the conversion of the data to its format, nor what the caller does
between two points.
"""

import logging
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import LatentDirichletAllocation

from skvt import TemperedLDA


class Point(NamedTuple):
    """Topics after a fit of ``length`` passes (or sweeps).

    It took ``seconds``, and ``cpu`` CPU seconds of this process and its threads; what other
    processes compute for it is not in that.
    """

    length: int
    seconds: float
    cpu: float
    topics: np.ndarray


class Stopwatch:
    """Adds up the seconds of ``with`` blocks, by the clock and of CPU."""

    def __init__(self):
        self.seconds = self.cpu = 0.0

    def __enter__(self):
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *exc_info):
        self.seconds += time.perf_counter() - self._began[0]
        self.cpu += time.process_time() - self._began[1]

    @property
    def times(self):
        """(seconds, CPU seconds) so far."""
        return self.seconds, self.cpu


# ---------------------------------------------------------------------------------------- skvt
def warm_up(X, n_components, n_jobs, dtypes=(np.float64, np.float32), others=()):
    """Compile (or load from numba's cache) everything; returns the seconds it took.

    ``others`` are pairs of an estimator's class and its parameters, beside ``TemperedLDA``.
    """
    with Stopwatch() as watch:
        for dtype in dtypes:
            for estimator, params in ((TemperedLDA, {}), *others):
                model = estimator(n_components, max_iter=2, n_jobs=n_jobs, random_state=0, **params)
                model.fit(X[:200].astype(dtype))
    return watch.seconds


def skvt_curve(
    X, n_components, passes, *, dtype=np.float64, estimator=TemperedLDA, polish=False, **params
):
    """``estimator``; a fit of its own for each number of passes, the final bound included.

    With ``polish``, as many passes of CVB0 follow.
    """
    X = X.astype(dtype)
    for n_passes in passes:
        more = {"n_polish": n_passes} if polish else {}
        model = estimator(n_components, max_iter=n_passes, **params, **more)
        with Stopwatch() as watch:
            model.fit(X)
        yield Point(n_passes, *watch.times, model.posterior_.mean())


# -------------------------------------------------------------------------------- scikit-learn
def sklearn_online_curve(X, n_components, passes, **params):
    """LatentDirichletAllocation(learning_method="online"), watched after each pass.

    ``partial_fit`` of all data with ``total_samples=N`` is exactly one pass of ``fit``, without
    the perplexity that ``fit`` evaluates at the end.
    """
    model = LatentDirichletAllocation(n_components, total_samples=X.shape[0], **params)
    X, watch = X.astype(np.float64), Stopwatch()
    for n_passes in range(1, max(passes) + 1):
        with watch:
            model.partial_fit(X)
        if n_passes in passes:
            yield Point(n_passes, *watch.times, model.components_.copy())


# -------------------------------------------------------------------------------------- gensim
def gensim_corpus(X):
    """Lists of (word, count), gensim's own format; not timed."""
    return [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]


def gensim_curve(X, n_components, passes, *, random_state, **params):
    """LdaModel, watched after each pass by its own callback, without its perplexity reports."""
    from gensim.models import LdaModel
    from gensim.models.callbacks import Metric

    points, watch = [], Stopwatch()

    class Watch(Metric):
        logger, title = None, "watch"

        def get_value(self, *, model, **ignored):
            watch.__exit__()
            points.append(Point(len(points) + 1, *watch.times, model.state.get_lambda()))
            watch.__enter__()

    corpus = gensim_corpus(X)
    logging.getLogger("gensim").setLevel(logging.ERROR)
    with watch:
        model = LdaModel(
            corpus,
            num_topics=n_components,
            id2word={v: str(v) for v in range(X.shape[1])},
            passes=max(passes),
            eval_every=None,
            callbacks=[Watch()],
            random_state=random_state,
            **params,
        )
    # gensim calls back before the update of the last, incomplete chunk
    points[-1] = Point(max(passes), *watch.times, model.state.get_lambda())
    yield from (point for point in points if point.length in passes)


# ------------------------------------------------------------------------------------ tomotopy
def documents_of(X, prefix="w"):
    """The tokens of each document, which are words named by their numbers."""
    words = np.array([f"{prefix}{v}" for v in range(X.shape[1])], dtype=object)
    counts = X.data.astype(np.int64)
    return [
        np.repeat(words[X.indices[a:b]], counts[a:b]).tolist()
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]


def tomotopy_model(X, n_components, *, alpha, eta, random_state, optimise=False):
    """An LDAModel that has been given the documents of X."""
    import tomotopy

    model = tomotopy.LDAModel(k=n_components, alpha=alpha, eta=eta, seed=random_state)
    model.optim_interval = model.optim_interval if optimise else 0
    for tokens in documents_of(X, prefix=""):
        model.add_doc(tokens)
    return model


def tomotopy_topics(model, n_features, eta):
    """Pseudo-counts (K, V) in our order of words; a word it never saw has its prior."""
    topics = np.full((model.k, n_features), eta)
    columns = np.array([int(word) for word in model.used_vocabs])
    for k in range(model.k):
        topics[k, columns] = model.get_topic_word_dist(k, normalize=False)
    return topics


def tomotopy_curve(X, n_components, sweeps, *, alpha, eta, random_state, workers, optimise=False):
    """LDAModel (collapsed Gibbs), watched on its way; its last state gives the topics."""
    model = tomotopy_model(
        X, n_components, alpha=alpha, eta=eta, random_state=random_state, optimise=optimise
    )
    watch, done = Stopwatch(), 0
    for n_sweeps in sorted(sweeps):
        with warnings.catch_warnings():  # several workers: not reproducible, it says
            warnings.simplefilter("ignore")
            with watch:
                model.train(n_sweeps - done, workers=workers, show_progress=False)
        done = n_sweeps
        yield Point(n_sweeps, *watch.times, tomotopy_topics(model, X.shape[1], eta))


# ------------------------------------------------------------------------------ Vowpal Wabbit
def vowpalwabbit_curve(
    X, n_components, passes, *, alpha, eta, random_state, minibatch=256, power_t=0.5, **more
):
    """--lda of Vowpal Wabbit, a fit of its own for each number of passes over its cache.

    Words are numbers below 2 ** bits, which are not hashed, so that no two share a weight. It
    starts the weights from numbers that depend on the word's alone, whatever --random_seed says:
    that words are numbered at random makes the start random.
    """
    from vowpalwabbit import Workspace

    n_documents, n_features = X.shape
    places = np.random.default_rng(random_state).permutation(n_features)
    common = {
        "lda_alpha": alpha,
        "lda_rho": eta,
        "lda_D": n_documents,
        "bit_precision": max(1, (n_features - 1).bit_length()),
        "minibatch": minibatch,
        "power_t": power_t,
    } | more
    # Of several passes, a tenth of the documents would be held out otherwise. (Version 9.11.9 does
    # not survive it if minibatches make it enlarge the queue.)
    common |= {"holdout_off": True, "noconstant": True, "quiet": True}
    common["example_queue_limit"] = max(256, 1 << (minibatch - 1).bit_length())
    with tempfile.TemporaryDirectory() as folder:
        text, cache = Path(folder, "text"), str(Path(folder, "cache"))
        with text.open("w") as file:
            for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
                pairs = zip(places[X.indices[a:b]], X.data[a:b], strict=True)
                print("|", *(f"{word}:{count}" for word, count in pairs), file=file)
        Workspace(lda=1, data=str(text), cache_file=cache, kill_cache=True, **common).finish()
        for n_passes in passes:
            watch = Stopwatch()
            with watch:
                model = Workspace(lda=n_components, cache_file=cache, passes=n_passes, **common)
            weights = [[model.get_weight(int(w), k) for w in places] for k in range(n_components)]
            model.finish()
            yield Point(n_passes, *watch.times, np.array(weights) + eta)


# -------------------------------------------------------------------------- MALLET and topica
# Sweeps before the priors are optimised: at most these, as in MALLET, and a fifth of short fits.
MALLET_BURN_IN = 200


def mallet_corpus(X):
    """The corpus in MALLET's form; not timed."""
    from pyrmallet import _rust_mallet

    documents = [" ".join(tokens) for tokens in documents_of(X)]
    return _rust_mallet.Corpus.from_strings(documents, token_regex=r"\w+")


def in_our_order(topics, vocabulary, n_features):
    """Word probabilities (K, V) in our order; a word never seen has those of no occurrence."""
    out = np.repeat(topics.min(axis=1, keepdims=True), n_features, axis=1)
    out[:, [int(word[1:]) for word in vocabulary]] = topics
    return out


def mallet_curve(X, n_components, sweeps, *, random_state, interval=10, n_samples=5):
    """pyrmallet, a fit of its own for each number of sweeps, priors optimised.

    Its authors recommend to optimise every 10 sweeps. The last eighth of the sweeps are those
    between samples, over which topics are averaged.
    """
    from pyrmallet import _rust_mallet

    corpus = mallet_corpus(X)
    for n_sweeps in sweeps:
        gap = max(1, n_sweeps // (8 * n_samples))
        watch = Stopwatch()
        with watch:
            model = _rust_mallet.train(
                corpus,
                num_topics=n_components,
                iterations=n_sweeps - n_samples * gap,
                burn_in=min(MALLET_BURN_IN, n_sweeps // 5),
                optimize_interval=interval,
                num_samples=n_samples,
                sample_interval=gap,
                alpha_sum=5.0,
                beta=0.01,
                seed=random_state,
                callback_interval=10**9,  # each would evaluate the likelihood
            )
        topics = in_our_order(np.array(model.topic_word_matrix()), model.vocabulary, X.shape[1])
        yield Point(n_sweeps, *watch.times, topics)


def topica_curve(X, n_components, sweeps, *, sampler, random_state, n_threads=1, n_samples=5):
    """topica, a fit of its own for each number of sweeps, priors optimised where it does.

    Settings are those of MALLET above. Its ``iters`` are those before the samples.
    """
    import topica

    corpus = topica.Corpus.from_documents(documents_of(X))
    for n_sweeps in sweeps:
        gap = max(1, n_sweeps // (8 * n_samples))
        watch = Stopwatch()
        with watch:
            model = topica.LDA(
                n_components,
                sampler=sampler,
                seed=random_state,
                burn_in=min(MALLET_BURN_IN, n_sweeps // 5),
                optimize_interval=10,
                num_threads=n_threads,
            ).fit(
                corpus,
                iters=n_sweeps - n_samples * gap,
                num_samples=n_samples,
                sample_interval=gap,
                progress=False,
                keep_theta_draws=False,
            )
        topics = in_our_order(np.asarray(model.topic_word), model.vocabulary, X.shape[1])
        yield Point(n_sweeps, *watch.times, topics)
