"""Cost, memory and quality as a problem grows in one direction, with slopes of log on log.

Each axis varies one number of a problem of its own and leaves the others as they are: topics K,
documents N, words V, tokens of a document for models of topics; components K, rows N, columns D for
Gaussian mixtures; levels of one column of categories. Every fit makes the same few passes from
its own start, ours and scikit-learn's, on one core. A slope of 1 is cost in proportion, and one
near 0 that it does not matter. Slopes are those of the larger half of the values, where what does
not grow counts least.

CPU seconds are those of one fit, without compilation. Memory is the peak above what was resident
before. Quality is held out: nats a word by the evaluator of all benchmarks with the prior 1/K,
nats a row for mixtures.
"""

import warnings
from functools import partial

import numpy as np
import scipy.sparse as sp
from _common import (
    DocumentCompletion,
    cores,
    parser,
    peak_bytes,
    print_header,
    print_table,
    progress,
    reset_peak,
    resident_bytes,
    timed,
)
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.mixture import BayesianGaussianMixture

from skvt import MemoizedDPGMM, MemoizedDPMixture, MemoizedHDP, StructuredLDA, TemperedLDA
from skvt.datasets import make_topic_corpus

PASSES = 5
# Topics and clusters that there are.
TRUE_TOPICS, TRUE_CLUSTERS = 20, 20


def topics(rng, k=50, n=2000, v=5000, length=100):
    """Documents, those held out, and what fits them."""
    seed = int(rng.integers(2**31))
    corpus = make_topic_corpus(
        n + 200, n_components=TRUE_TOPICS, n_features=v, mean_length=float(length),
        random_state=seed,
    )  # fmt: skip
    X = sp.csr_matrix(corpus.X).astype(np.float32)
    test = sp.csr_matrix(X[n:]).astype(np.int32)
    evaluate = DocumentCompletion(test, 1.0 / k)
    sweeps = {"global_step": "collapsed", "max_iter": 4 * PASSES}
    fits = {
        "TemperedLDA, online": partial(TemperedLDA, k, max_iter=PASSES),
        "TemperedLDA, batch": partial(
            TemperedLDA, k, max_iter=PASSES, learning_method="batch", temperature=None
        ),
        "StructuredLDA, four times as many sweeps": partial(StructuredLDA, k, **sweeps),
        "MemoizedHDP": partial(MemoizedHDP, max_iter=PASSES, n_polish=0),
        "scikit-learn, online": partial(
            LatentDirichletAllocation, k, max_iter=PASSES, learning_method="online"
        ),
    }
    return X[:n], fits, lambda model: evaluate(model.components_)


def mixture(rng, k=20, n=10_000, d=25):
    """Rows of clusters with covariances of their own, those held out, and what fits them."""
    means = 3.0 * rng.standard_normal((TRUE_CLUSTERS, d))
    shapes = rng.standard_normal((TRUE_CLUSTERS, d, d)) / np.sqrt(d) + np.eye(d)
    labels = rng.integers(TRUE_CLUSTERS, size=n + 1000)
    noise = rng.standard_normal((n + 1000, d))
    X = means[labels] + np.einsum("ndj,nj->nd", shapes[labels], noise)
    given = {"max_iter": PASSES, "tol": 0.0}
    fits = {
        "MemoizedDPGMM, no moves": partial(MemoizedDPGMM, k, moves=(), **given),
        "MemoizedDPGMM, diag, no moves": partial(
            MemoizedDPGMM, k, moves=(), covariance_type="diag", **given
        ),
        "scikit-learn": partial(
            BayesianGaussianMixture, n_components=k, init_params="random_from_data", **given
        ),
    }
    return X[:n], fits, lambda model: model.score(X[n:])


def levels(rng, levels=100, n=20_000):
    """One column of categories, whose frequencies fall like 1 / rank."""
    weights = 1.0 / np.arange(1, levels + 1)
    X = rng.choice(levels, size=(n, 1), p=weights / weights.sum()).astype(float)
    make = partial(
        MemoizedDPMixture, 5, moves=(), max_iter=PASSES, tol=0.0,
        components=[("level", "categorical", [0])],
    )  # fmt: skip
    return X, {"MemoizedDPMixture": make}, lambda model: model.score(X[:1000])


# Axis: what makes its problems, the number that varies, and its values.
AXES = {
    "topics": (topics, "k", (50, 100, 200, 500, 1000, 2000, 5000)),
    "documents": (topics, "n", (500, 1000, 2000, 4000, 8000, 16_000)),
    "words": (topics, "v", (1000, 5000, 20_000, 100_000, 1_000_000)),
    "length": (topics, "length", (10, 30, 100, 300, 1000)),
    "components": (mixture, "k", (10, 20, 50, 100, 200, 500)),
    "rows": (mixture, "n", (2000, 5000, 10_000, 50_000, 200_000)),
    "columns": (mixture, "d", (4, 8, 16, 32, 64, 128)),
    "levels": (levels, "levels", (10, 100, 1000, 10_000)),
}


def measured(make, X, evaluate):
    """(CPU seconds, MB, quality, components) of one fit."""
    reset_peak()
    before = resident_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, cpu, model = timed(make(random_state=0).fit, X)
    peak = (peak_bytes() - before) / 1e6
    found = getattr(model, "n_components_", model.n_components)
    return cpu, peak, float(evaluate(model)), int(found)


def slope(sizes, values, least):
    """Of log on log over the larger half of the sizes; values are at least what can be told."""
    half = len(sizes) // 2 if len(sizes) > 3 else 0
    logs = np.log(np.maximum(values[half:], least))
    return float(np.polyfit(np.log(sizes[half:]), logs, 1)[0])


def run_axis(axis, args):
    """Fits of all sizes by all models; a table of them, and slopes."""
    problem, name, sizes = AXES[axis]
    sizes = [size for size in sizes if size <= (args.largest or np.inf)]
    found = {}
    # (the first size once more: its first fits compile)
    for number, size in enumerate([sizes[0], *sizes]):
        X, fits, evaluate = problem(np.random.default_rng(args.seed), **{name: size})
        for label, make in fits.items():
            own = found.setdefault(label, [])
            if args.only not in label or (own and own[-1][1] > args.seconds):
                continue  # larger sizes would take too long
            values = measured(make, X, evaluate)
            progress(f"{axis} {size}, {label}: {values[0]:.2f} CPU s, {values[2]:.4f}")
            if number:
                own.append((size, *values))
    rows, slopes = [], []
    for label, points in found.items():
        for size, cpu, peak, quality, n_found in points:
            rows.append(
                [label, f"{size:,}", f"{cpu:.2f}", f"{peak:.0f}", f"{quality:.4f}", n_found]
            )
        if len(points) > 1:
            size, cpu, peak = np.array([point[:3] for point in points], float).T
            slopes.append([label, f"{slope(size, cpu, 0.01):.2f}", f"{slope(size, peak, 1.0):.2f}"])
    headers = [f"by {axis}", name, "CPU s", "peak MB", "held out", "found"]
    print_table(f"{axis}: {PASSES} passes, one core", headers, rows)
    print_table("slopes of log on log", ["", "CPU s", "peak MB"], slopes)


def main():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    p.add_argument("--largest", type=float, default=None, help="leave out larger values")
    p.add_argument("--seconds", type=float, default=60.0, help="CPU s after which a model stops")
    p.add_argument("--only", default="", help="only models whose label has this")
    p.add_argument("--seed", type=int, default=0, help="of the data")
    args = p.parse_args()
    print_header(args)
    with cores(1):
        for axis in args.axes:
            run_axis(axis, args)


if __name__ == "__main__":
    main()
