"""The number of topics: MemoizedHDP, a grid of TemperedLDA, and tomotopy's HDP.

    python benchmarks/topics_found.py --data PATH --corpus kos [--seeds 3] [--sweeps 100 300 1000]

One line for each fit: topics, held-out nats per word by the one evaluator (documents held out, the
half of each predicted from the other, the same prior of proportions for all), CPU seconds. The last
line of the grid is its sum. tomotopy's HDP starts with ``--initial`` topics, with its own priors
(which it learns) and with those of the grid; topics are those that it calls alive.
"""

import time
import warnings

import numpy as np
from _common import (
    DocumentCompletion,
    add_data_arguments,
    cores,
    load_corpus,
    parser,
    print_header,
)
from _peers import tomotopy_topics, with_documents

from skvt import MemoizedHDP, TemperedLDA

GRID = (10, 20, 50, 100, 200, 400)


def arguments():
    parse = parser(__doc__.split("\n")[0])
    add_data_arguments(parse, corpus="kos")
    parse.add_argument("--seeds", type=int, default=3)
    parse.add_argument("--sweeps", type=int, nargs="*", default=[100, 300, 1000])
    parse.add_argument("--initial", type=int, default=50)
    parse.add_argument("--alpha", type=float, default=0.1, help="prior of the evaluator")
    return parse.parse_args()


def show(name, topics, score, seconds):
    print(f"{name:44s} {topics:>6} {score:9.4f} {seconds:8.1f}", flush=True)


def timed(estimator, X):
    """The fit, and its CPU seconds."""
    start = time.process_time()
    estimator.fit(X)
    return estimator, time.process_time() - start


def sampler(X, args, seed, **priors):
    """tomotopy's HDP: (sweeps, topics (K, V), CPU seconds) on its way."""
    import tomotopy

    model = tomotopy.HDPModel(initial_k=args.initial, seed=seed, **priors)
    start = time.process_time()
    with_documents(model, X)
    done = 0
    for n_sweeps in args.sweeps:
        model.train(n_sweeps - done, workers=1, show_progress=False)
        done = n_sweeps
        seconds = time.process_time() - start
        alive = [k for k in range(model.k) if model.is_live_topic(k)]
        yield n_sweeps, tomotopy_topics(model, X.shape[1], model.eta, alive), seconds


def main():
    args = arguments()
    print_header(*(("tomotopy",) if args.sweeps else ()))
    warnings.simplefilter("ignore")
    train, test = load_corpus(args.data, args.corpus, split_seed=args.split_seed)
    train = train[: args.documents]
    score = DocumentCompletion(test, args.alpha)
    X = train.astype(float)
    with cores(1):
        for estimator in (MemoizedHDP(max_iter=1), TemperedLDA(5, max_iter=2)):
            estimator.fit(X[:50])  # compiles
        for seed in range(args.seeds):
            hdp, seconds = timed(MemoizedHDP(random_state=seed), X)
            topics = hdp.components_.astype(float)
            show(f"MemoizedHDP, seed {seed}", len(topics), score(topics), seconds)
        total = 0.0
        for k in GRID:
            lda, seconds = timed(TemperedLDA(k, random_state=0), X)
            total += seconds
            show("TemperedLDA", k, score(lda.components_), seconds)
        show("the whole grid", "", np.nan, total)
        for name, priors in {"own priors": {}, "eta 0.1": {"eta": 0.1}}.items():
            for seed in range(args.seeds if args.sweeps else 0):
                for n_sweeps, topics, seconds in sampler(train, args, seed, **priors):
                    label = f"tomotopy HDP, {name}, {n_sweeps} sweeps, seed {seed}"
                    show(label, len(topics), score(topics), seconds)


if __name__ == "__main__":
    main()
