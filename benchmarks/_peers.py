"""Runners of topic models: each library fits the same counts, and yields topics and seconds.

A runner is a generator function of the counts X (n, V), the number of topics K, and the lengths of
fits in passes or sweeps. It yields a :class:`Point` for each length. Only the work of the library
is timed, without the conversion of the data to its format, and without the work of the caller
between two points. alpha and eta are the priors of a document's topics and of a topic's words.
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
    """Topics after a fit, and the time of the fit."""

    # Number of passes or sweeps.
    length: int
    seconds: float
    # CPU seconds of this process and its threads, without worker processes.
    cpu: float
    # (K, V): pseudo-counts or probabilities.
    topics: np.ndarray


class Stopwatch:
    """Sum of the seconds and of the CPU seconds that ``with`` blocks take."""

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
        """Seconds and CPU seconds so far, in the order of the fields of :class:`Point`."""
        return self.seconds, self.cpu


# ---------------------------------------------------------------------------------------- skvt
def warm_up(X, n_components, n_jobs, dtypes=(np.float64, np.float32), others=()):
    """Compile all functions or load them from numba's cache; return the seconds that this takes.

    ``others`` are pairs of an estimator's class and its parameters, in addition to ``TemperedLDA``.
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
    """Run ``estimator``, with a separate fit for each number of passes.

    The time includes the final bound. With ``polish``, the same number of CVB0 passes follows.
    """
    X = X.astype(dtype)
    for n_passes in passes:
        extra_passes = {"n_polish": n_passes} if polish else {}
        model = estimator(n_components, max_iter=n_passes, **params, **extra_passes)
        with Stopwatch() as watch:
            model.fit(X)
        yield Point(n_passes, *watch.times, model.posterior_.mean())


# -------------------------------------------------------------------------------- scikit-learn
def sklearn_online_curve(X, n_components, passes, **params):
    """Run LatentDirichletAllocation(learning_method="online"), and stop the clock after each pass.

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
    """Return a list of pairs of word and count for each document, the format of gensim."""
    return [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]


def gensim_curve(X, n_components, passes, *, random_state, **params):
    """Run LdaModel without its perplexity reports; its callback stops the clock after each pass."""
    from gensim.models import LdaModel
    from gensim.models.callbacks import Metric

    points, watch = [], Stopwatch()

    class Watch(Metric):
        """Callback that stops the clock, keeps the topics, and starts the clock again."""

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
    # gensim calls back before the update of the last, incomplete chunk: replace the last point.
    points[-1] = Point(max(passes), *watch.times, model.state.get_lambda())
    yield from (point for point in points if point.length in passes)


# ------------------------------------------------------------------------------------ tomotopy
def list_tokens(X, prefix="w"):
    """Return the list of tokens of each document. Names of words are ``prefix`` and a number."""
    words = np.array([f"{prefix}{v}" for v in range(X.shape[1])], dtype=object)
    counts = X.data.astype(np.int64)
    return [
        np.repeat(words[X.indices[a:b]], counts[a:b]).tolist()
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]


def tomotopy_model(X, n_components, *, alpha, eta, random_state, optimise=False):
    """Return an LDAModel to which the documents of X have been added."""
    import tomotopy

    model = tomotopy.LDAModel(k=n_components, alpha=alpha, eta=eta, seed=random_state)
    model.optim_interval = model.optim_interval if optimise else 0
    for tokens in list_tokens(X, prefix=""):
        model.add_doc(tokens)
    return model


def tomotopy_topics(model, n_features, eta):
    """Return pseudo-counts (K, V) in the order of the columns of X.

    A word that does not occur in the documents has its prior.
    """
    topics = np.full((model.k, n_features), eta)
    columns = np.array([int(word) for word in model.used_vocabs])
    for k in range(model.k):
        topics[k, columns] = model.get_topic_word_dist(k, normalize=False)
    return topics


def tomotopy_curve(X, n_components, sweeps, *, alpha, eta, random_state, workers, optimise=False):
    """Run LDAModel, a collapsed Gibbs sampler; topics are those of the last state of a length."""
    model = tomotopy_model(
        X, n_components, alpha=alpha, eta=eta, random_state=random_state, optimise=optimise
    )
    watch, n_done = Stopwatch(), 0
    for n_sweeps in sorted(sweeps):
        with warnings.catch_warnings():
            # With several workers, it warns that the result is not reproducible.
            warnings.simplefilter("ignore")
            with watch:
                model.train(n_sweeps - n_done, workers=workers, show_progress=False)
        n_done = n_sweeps
        yield Point(n_sweeps, *watch.times, tomotopy_topics(model, X.shape[1], eta))


# ------------------------------------------------------------------------------ Vowpal Wabbit
def vowpalwabbit_curve(
    X, n_components, passes, *, alpha, eta, random_state, minibatch=256, power_t=0.5, **more
):
    """Run --lda of Vowpal Wabbit, with a separate fit for each number of passes over its cache.

    Words are numbers below 2 ** bits, which are not hashed, so that no two words share a weight.
    The initial weights of a word depend on its number only, and not on --random_seed. Words are
    therefore numbered at random, so that the start is random.
    """
    from vowpalwabbit import Workspace

    n_documents, n_features = X.shape
    word_numbers = np.random.default_rng(random_state).permutation(n_features)
    common = {
        "lda_alpha": alpha,
        "lda_rho": eta,
        "lda_D": n_documents,
        "bit_precision": max(1, (n_features - 1).bit_length()),
        "minibatch": minibatch,
        "power_t": power_t,
    } | more
    # Without "holdout_off", a fit of several passes would hold out a tenth of the documents. The
    # queue has at least the size of a minibatch, because version 9.11.9 crashes if it must be
    # enlarged.
    common |= {"holdout_off": True, "noconstant": True, "quiet": True}
    common["example_queue_limit"] = max(256, 1 << (minibatch - 1).bit_length())
    with tempfile.TemporaryDirectory() as folder:
        text, cache = Path(folder, "text"), str(Path(folder, "cache"))
        with text.open("w") as file:
            for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
                pairs = zip(word_numbers[X.indices[a:b]], X.data[a:b], strict=True)
                print("|", *(f"{word}:{count}" for word, count in pairs), file=file)
        # This fit of one topic writes the cache, and is not timed.
        Workspace(lda=1, data=str(text), cache_file=cache, kill_cache=True, **common).finish()
        for n_passes in passes:
            watch = Stopwatch()
            with watch:
                model = Workspace(lda=n_components, cache_file=cache, passes=n_passes, **common)
            weights = [
                [model.get_weight(int(w), k) for w in word_numbers] for k in range(n_components)
            ]
            model.finish()
            yield Point(n_passes, *watch.times, np.array(weights) + eta)


# -------------------------------------------------------------------------- MALLET and topica
# Maximum number of sweeps before priors are optimised, as in MALLET. Short fits optimise priors
# after a fifth of their sweeps.
MALLET_BURN_IN = 200


def mallet_corpus(X):
    """Return the corpus in the format of MALLET."""
    from pyrmallet import _rust_mallet

    documents = [" ".join(tokens) for tokens in list_tokens(X)]
    return _rust_mallet.Corpus.from_strings(documents, token_regex=r"\w+")


def reorder_topics(topics, vocabulary, n_features):
    """Return word probabilities (K, V) in the order of the columns of X.

    ``vocabulary`` has names of words by `list_tokens`, in the order of the columns of ``topics``. A
    word that does not occur has the smallest probability of the topic, the probability of words
    without tokens in the topic.
    """
    reordered = np.repeat(topics.min(axis=1, keepdims=True), n_features, axis=1)
    # The number of a word follows its one-letter prefix.
    reordered[:, [int(word[1:]) for word in vocabulary]] = topics
    return reordered


def mallet_curve(X, n_components, sweeps, *, random_state, interval=10, n_samples=5):
    """Run pyrmallet, with a separate fit for each number of sweeps, and with optimised priors.

    The authors of MALLET recommend to optimise priors every 10 sweeps. Topics are averaged over
    ``n_samples`` samples in the last eighth of the sweeps.
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
                callback_interval=10**9,  # avoids callbacks, which evaluate the likelihood
            )
        topics = reorder_topics(np.array(model.topic_word_matrix()), model.vocabulary, X.shape[1])
        yield Point(n_sweeps, *watch.times, topics)


def topica_curve(X, n_components, sweeps, *, sampler, random_state, n_threads=1, n_samples=5):
    """Run topica, with a separate fit for each number of sweeps.

    Priors are optimised if the sampler does so. Settings are as in :func:`mallet_curve`. ``iters``
    is the number of sweeps before the samples.
    """
    import topica

    corpus = topica.Corpus.from_documents(list_tokens(X))
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
        topics = reorder_topics(np.asarray(model.topic_word), model.vocabulary, X.shape[1])
        yield Point(n_sweeps, *watch.times, topics)
