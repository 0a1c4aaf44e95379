"""Time, memory and quality of fits as a problem grows along one axis.

- ``words``: topic models of documents of about 100 tokens, with a growing vocabulary.
- ``levels``: a mixture of one column of categories, with a growing number of levels.

Every fit makes the same small number of passes on one core. CPU seconds are without compilation.
Memory is the peak during the fit above the memory before. Quality is held out: nats per word by the
evaluator of all benchmarks with the prior 1 / K, or nats per row for mixtures.
"""

import warnings
from functools import partial

import numpy as np
import scipy.sparse as sp
from _common import (
    DocumentCompletion,
    limited_to_cores,
    parser,
    peak_bytes,
    print_header,
    print_progress,
    print_table,
    reset_peak,
    resident_bytes,
    timed,
)
from sklearn.decomposition import LatentDirichletAllocation

from skvt import MemoizedDPMixture, MemoizedHDP, TemperedLDA
from skvt.datasets import make_topic_corpus

PASSES = 5


def words(rng, n_words, k=50, n=2000):
    """Return documents of 20 topics, functions that make estimators, and the score of a fit."""
    corpus = make_topic_corpus(
        n + 200, n_components=20, n_features=n_words, random_state=int(rng.integers(2**31))
    )
    X = sp.csr_matrix(corpus.X).astype(np.float32)
    evaluate = DocumentCompletion(sp.csr_matrix(X[n:]).astype(np.int32), 1.0 / k)
    fits = {
        "TemperedLDA": partial(TemperedLDA, k, max_iter=PASSES),
        "MemoizedHDP": partial(MemoizedHDP, max_iter=PASSES, n_polish=0),
        "scikit-learn, online": partial(
            LatentDirichletAllocation, k, max_iter=PASSES, learning_method="online"
        ),
    }
    return X[:n], fits, lambda model: evaluate(model.components_)


def levels(rng, n_levels, n=20_000):
    """Return a column of categories with frequencies 1 / rank, estimators, and their score."""
    weights = 1.0 / np.arange(1, n_levels + 1)
    X = rng.choice(n_levels, size=(n, 1), p=weights / weights.sum()).astype(float)
    make = partial(
        MemoizedDPMixture, 5, moves=(), max_iter=PASSES, tol=0.0,
        components=[("level", "categorical", [0])],
    )  # fmt: skip
    return X, {"MemoizedDPMixture": make}, lambda model: model.score(X[:1000])


# For each axis, the function that makes a problem, and the sizes of problems.
AXES = {
    "words": (words, (1000, 5000, 20_000, 100_000, 1_000_000)),
    "levels": (levels, (10, 100, 1000, 10_000)),
}


def measured(make, X, evaluate):
    """Return CPU seconds, MB of memory and quality of one fit."""
    reset_peak()
    before = resident_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, cpu, model = timed(make(random_state=0).fit, X)
    return cpu, (peak_bytes() - before) / 1e6, float(evaluate(model))


def main():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    p.add_argument("--seed", type=int, default=0, help="of the data")
    args = p.parse_args()
    print_header(args)
    with limited_to_cores(1):
        for axis in args.axes:
            problem, sizes = AXES[axis]
            rows = []
            # The first size comes twice, because its first fits compile functions. They are not
            # shown.
            for number, size in enumerate([sizes[0], *sizes]):
                X, fits, evaluate = problem(np.random.default_rng(args.seed), size)
                for label, make in fits.items():
                    cpu, peak, quality = measured(make, X, evaluate)
                    print_progress(f"{axis} {size}, {label}: {cpu:.2f} CPU s, {quality:.4f}")
                    if number:
                        rows.append(
                            [label, f"{size:,}", f"{cpu:.2f}", f"{peak:.0f}", f"{quality:.4f}"]
                        )
            print_table(
                f"{axis}: {PASSES} passes, one core",
                [f"by {axis}", axis, "CPU s", "peak MB", "held out"],
                rows,
            )


if __name__ == "__main__":
    main()
