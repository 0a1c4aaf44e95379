"""How many topics of drawn documents does a topic model miss?

Documents are drawn from known topics by :func:`skvt.datasets.make_topic_corpus`. A topic is missed
if no topic of the fit is within a total variation of .35, which is half the sum of the absolute
differences of word probabilities. A missed topic is usually joined with another topic. Each library
gets the true number of topics. The table has, as means over corpora with the standard deviation,
the number of missed topics, the held-out nats per word, which is the log probability of the second
halves of new documents given the first halves, and CPU seconds.
"""

from functools import partial

import numpy as np
from _common import (
    DocumentCompletion,
    find_required_packages,
    format_mean,
    limited_to_cores,
    parser,
    print_header,
    print_progress,
    print_table,
    word_probabilities,
)
from _peers import mallet_curve, sklearn_online_curve, skvt_curve, tomotopy_curve, warm_up

from skvt import StructuredLDA
from skvt.datasets import make_topic_corpus

# Numbers of documents, topics and words, and the mean length of a document.
CORPORA = {
    "2,000 documents of 60 words": (2000, 20, 1000, 60.0),
    "4,000 documents of 25 words": (4000, 30, 1000, 25.0),
    "3,000 documents of 100 words": (3000, 40, 2000, 100.0),
}
# Total variation from which on a topic is missed.
MISSED = 0.35


def arguments():
    p = parser(__doc__)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--corpora", nargs="+", default=list(CORPORA), choices=list(CORPORA))
    p.add_argument(
        "--libraries", nargs="+", default=["skvt", "sklearn", "tomotopy", "mallet"],
        choices=["skvt", "sklearn", "tomotopy", "mallet"],
    )  # fmt: skip
    return p.parse_args()


def curves(libraries, n_topics, seed):
    """Return a dict of functions by label, each of which fits a model to X and yields a point."""
    ours = {"n_components": n_topics, "random_state": seed}
    tempered = partial(skvt_curve, passes=[20], **ours)
    structured = partial(skvt_curve, passes=[200], estimator=StructuredLDA, **ours)
    prior = {"alpha": 1.0 / n_topics, "eta": 1.0 / n_topics}
    all_curves = {
        "StructuredLDA, 200 passes": structured,
        "StructuredLDA, 200 passes, moves=()": partial(structured, moves=()),
        "TemperedLDA, 20 passes": tempered,
        "TemperedLDA, 20 passes, moves=()": partial(tempered, moves=()),
        "sklearn online, 50 passes": partial(
            sklearn_online_curve, n_components=n_topics, passes=[50], random_state=seed
        ),
        "tomotopy, 1,000 sweeps": partial(
            tomotopy_curve, n_components=n_topics, sweeps=[1000], **prior, random_state=seed,
            workers=1, optimise=True,
        ),
        "mallet, 1,000 sweeps": partial(
            mallet_curve, n_components=n_topics, sweeps=[1000], random_state=seed
        ),
    }  # fmt: skip
    prefixes = {"skvt": ("StructuredLDA", "TemperedLDA")}
    chosen = tuple(prefix for name in libraries for prefix in prefixes.get(name, (name,)))
    return {label: curve for label, curve in all_curves.items() if label.startswith(chosen)}


def main():
    args = arguments()
    print_header(args, *find_required_packages(args.libraries))
    with limited_to_cores(1):
        for name in args.corpora:
            n, n_topics, n_words, length = CORPORA[name]
            results = {}
            for seed in range(args.seeds):
                drawn = make_topic_corpus(
                    n, n_components=n_topics, n_features=n_words, mean_length=length,
                    random_state=seed,
                )  # fmt: skip
                new = make_topic_corpus(
                    500, topics=drawn.topics, mean_length=length, random_state=1000 + seed
                )
                score = DocumentCompletion(new.X, 1.0 / n_topics)
                warm_up(drawn.X, n_topics, 1, (np.float64,), [(StructuredLDA, {})])
                for label, curve in curves(args.libraries, n_topics, seed).items():
                    (point,) = curve(drawn.X)
                    beta = word_probabilities(point.topics).T
                    variation = 0.5 * np.abs(drawn.topics[:, None] - beta).sum(axis=2)
                    n_missed = int((variation.min(axis=1) > MISSED).sum())
                    results.setdefault(label, []).append((n_missed, score(point.topics), point.cpu))
                    print_progress(name, seed, label, *results[label][-1])
            print_table(
                f"{n_topics} topics, {name}: means over corpora",
                ["fit", "missed", "nats per word", "CPU s"],
                [
                    [label, *(format_mean(v, d) for v, d in zip(zip(*r, strict=True), (1, 3, 1),
                                                                 strict=True))]
                    for label, r in results.items()
                ],
            )  # fmt: skip


if __name__ == "__main__":
    main()
