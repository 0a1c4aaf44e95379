"""How many topics, and how far fits agree: bound, score, coherence, stability, consensus.

    python benchmarks/stability.py [--data PATH --corpus kos] [--seeds 4]

Without a corpus, 2,000 documents of 20 topics. For each number of topics, that many fits of
TemperedLDA (and MemoizedHDP from one topic): means of the bound (nats per word), `score` of
held-out documents, NPMI coherence, and `topic_stability`. Then, two groups of fits each: a single
fit of each, the one with the higher bound, and their consensus, with stability between the two
groups; "and a pass" is the better fit after the pass that a consensus ends with. ``--peers`` adds
fits of scikit-learn (batch) and tomotopy (collapsed Gibbs), without bounds.
"""

import argparse
import time
import warnings

import numpy as np
from _common import load_corpus
from _peers import sklearn_batch_curve, tomotopy_curve
from sklearn.base import clone

from skvt import MemoizedHDP, StructuredLDA, TemperedLDA, consensus
from skvt.datasets import make_topic_corpus
from skvt.metrics import document_completion_score, topic_coherence, topic_stability

GRIDS = {None: (5, 10, 15, 20, 25, 30, 40, 60)}
GRID = (10, 20, 50, 100, 200)


def corpus(arguments):
    """Counts of training and held-out documents, float64."""
    if arguments.corpus is None:
        X = make_topic_corpus(2400, n_components=20, n_features=1000, random_state=0).X
        return X[:2000], X[2000:]
    return (part.astype(float) for part in load_corpus(arguments.data, arguments.corpus))


def line(name, fits, train, test, seconds):
    """One row: means over fits."""
    values = [
        (fit.elbo_ / train.sum(), fit.score(test), topic_coherence(fit.components_, train).mean())
        for fit in fits
    ]
    bound, score, coherence = np.mean(values, axis=0)
    topics = "/".join(str(k) for k in sorted({len(fit.components_) for fit in fits}))
    print(
        f"{name:34s} {topics:>8s} {bound:8.4f} {score:8.4f} {coherence:6.3f} "
        f"{topic_stability(fits):6.3f} {seconds / len(fits):7.1f}",
        flush=True,
    )


def timed(make, train, seeds):
    """Fits from these seeds, and CPU seconds of all."""
    start = time.process_time()
    fits = [make().set_params(random_state=seed).fit(train) for seed in seeds]
    return fits, time.process_time() - start


def peers(k, train, test, n_seeds):
    """Fits of other libraries: score, coherence and stability."""
    prior = 1.0 / k
    for name, curve in {
        "scikit-learn, 50 passes": lambda seed: sklearn_batch_curve(
            train, k, [50], random_state=seed, n_jobs=1
        ),
        "tomotopy, 500 sweeps": lambda seed: tomotopy_curve(
            train, k, [500], alpha=prior, eta=prior, random_state=seed, workers=1
        ),
    }.items():
        points = [list(curve(seed))[-1] for seed in range(n_seeds)]
        topics = [np.asarray(point.topics, dtype=float) for point in points]
        scores = [document_completion_score(each, test, doc_topic_prior=prior) for each in topics]
        coherence = np.mean([topic_coherence(each, train).mean() for each in topics])
        seconds = np.mean([point.cpu for point in points])
        print(
            f"{name:34s} {k:8d} {'':8s} {np.mean(scores):8.4f} {coherence:6.3f} "
            f"{topic_stability(topics):6.3f} {seconds:7.1f}",
            flush=True,
        )


def groups(name, make, train, test, n_seeds):
    """Single fits, better ones and consensuses of two groups of fits."""
    fits, seconds = timed(make, train, range(2 * n_seeds))
    line(f"{name}, each", fits, train, test, seconds)
    halves = fits[:n_seeds], fits[n_seeds:]
    best = [max(half, key=lambda fit: fit.elbo_) for half in halves]
    line(f"best of {n_seeds}", best, train, test, seconds)
    start = time.process_time()
    means = [consensus(half, train) for half in halves]
    line(f"consensus of {n_seeds}", means, train, test, seconds + time.process_time() - start)
    after = [
        clone(mean).set_params(components_init=fit.components_).fit(train)
        for mean, fit in zip(means, best, strict=True)
    ]
    line("best, and a pass", after, train, test, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--corpus")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--k", type=int, help="topics of the groups; by default 20 or 50")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    train, test = corpus(arguments)
    print(f"{'':34s} {'topics':>8s} {'bound':>8s} {'score':>8s}   NPMI stable  CPU s")
    hdp, seconds = timed(MemoizedHDP, train, range(arguments.seeds))
    line("MemoizedHDP", hdp, train, test, seconds)
    for method, parameters in (("online", {}), ("batch", {"max_iter": 60})):
        for k in GRIDS.get(arguments.corpus, GRID):

            def make(k=k, method=method, parameters=parameters):
                return TemperedLDA(k, learning_method=method, **parameters)

            fits, seconds = timed(make, train, range(arguments.seeds))
            line(f"TemperedLDA, {method}", fits, train, test, seconds)
    k = arguments.k or (20 if arguments.corpus is None else 50)
    if arguments.peers:
        peers(k, train, test, arguments.seeds)
    for name, make in {
        "TemperedLDA": lambda: TemperedLDA(k),
        "StructuredLDA": lambda: StructuredLDA(k),
        "SSVI-A": lambda: StructuredLDA(k, global_step="ssvi-a"),
    }.items():
        groups(name, make, train, test, arguments.seeds)


if __name__ == "__main__":
    main()
