"""Clusters of joined components, compared with components and with other methods.

The tables are tables of scikit-learn, tables whose clusters are not Gaussian, tables whose clusters
are Gaussian, mixed columns, and rows of a single cluster. The methods are

- the components of ``MemoizedDPGMM`` with learned priors;
- the clusters that it suggests: by entropy and evidence, as in ``fit``, by entropy alone, and by
  evidence alone;
- its components joined to the true number of clusters;
- ``GaussianMixture`` of scikit-learn with the number of components of the best BIC;
- ``HDBSCAN`` of scikit-learn. It needs the size of the smallest cluster: 5 rows by default, and for
  comparison the size with the best index among several, which no user can know. Rows that it
  labels as noise are a separate cluster.

The measure is the adjusted Rand index.
"""

import warnings
from functools import partial

import numpy as np
from _common import (
    format_mean,
    limited_to_cores,
    parser,
    print_header,
    print_progress,
    print_table,
    timed,
)
from _mixture_peers import fit_gaussian_grid
from mixed_tables import blocks_of, drawn_clusters, people
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from skvt import MemoizedDPGMM, MemoizedDPMixture
from skvt.components import Bernoulli, Categorical, Gaussian

# Sizes of the smallest cluster for HDBSCAN.
MIN_CLUSTER_SIZES = (5, 10, 20, 40, 80)
# Maximum number of components of GaussianMixture.
MAX_COMPONENTS = 30


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--tables", nargs="+", choices=sorted(TABLES), default=list(TABLES))
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--rows", type=int, default=3_000, help="of synthetic tables")
    p.add_argument("--no-peers", action="store_true", help="skvt alone")
    p.add_argument("--background", action="store_true", help="also fits with a background")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="1 seed, 1,000 rows")
    args = p.parse_args()
    if args.quick:
        args.seeds, args.rows = 1, 1_000
    return args


# ------------------------------------------------------------------------------------ the tables
# A function returns n rows X and the cluster y of each row.
def digits(n_columns):
    """Return the digits of scikit-learn, projected on principal components, and their labels."""
    X, y = load_digits(return_X_y=True)
    return PCA(n_columns, random_state=0).fit_transform(X), y


def standardised(load):
    """Return rows with columns of mean 0 and variance 1, and labels."""
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def crosses(n, rng):
    """Draw five clusters, each a cross of two long Gaussians."""
    y = rng.integers(5, size=n)
    long = rng.integers(2, size=n)
    centres = np.array([[-8.0, -8.0], [8.0, -8.0], [0.0, 0.0], [-8.0, 8.0], [8.0, 8.0]])
    size = np.array([[3.0, 0.4], [0.4, 3.0]])
    return centres[y] + size[long] * rng.standard_normal((n, 2)), y


def cores_and_halos(n, rng):
    """Draw four clusters in three dimensions, each a dense core in a wide halo."""
    y = rng.integers(4, size=n)
    size = np.where(rng.random(n) < 0.5, 0.3, 1.5)
    centres = 9.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    return centres[y] + size[:, None] * rng.standard_normal((n, 3)), y


def bent(n, rng):
    """Draw six clusters in five dimensions, each a bent chain of three Gaussians that overlap."""
    centres = 6.0 * rng.standard_normal((6, 1, 5))
    steps = rng.standard_normal((6, 3, 5))
    steps *= 1.8 / np.linalg.norm(steps, axis=2, keepdims=True)
    means = centres + np.cumsum(steps, axis=1)
    y, link = rng.integers(6, size=n), rng.integers(3, size=n)
    return means[y, link] + 0.7 * rng.standard_normal((n, 5)), y


def moons(n, rng):
    """Draw two interleaved half circles."""
    return make_moons(n, noise=0.08, random_state=int(rng.integers(2**31)))


def heavy_tails(n, rng):
    """Draw three clusters with Student's t distribution with four degrees of freedom."""
    y = rng.integers(3, size=n)
    centres = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])
    return centres[y] + rng.standard_t(4, size=(n, 2)), y


def gaussians(n, rng):
    """Draw six Gaussians that are at least five standard deviations apart."""
    while True:
        centres = 6.0 * rng.standard_normal((6, 4))
        # A large number excludes the distance of a centre from itself.
        distances = np.linalg.norm(centres[:, None] - centres, axis=2) + 1e9 * np.eye(6)
        if distances.min() >= 5.0:
            break
    y = rng.integers(6, size=n)
    return centres[y] + rng.standard_normal((n, 4)), y


def overlapping(n, rng):
    """Draw three Gaussians at the corners of a triangle, three standard deviations apart."""
    y = rng.integers(3, size=n)
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [1.5, 2.6]])
    return centres[y] + rng.standard_normal((n, 2)), y


def nested(n, rng):
    """Draw sixteen Gaussians in four groups."""
    group = np.array([[0.0, 0.0], [60.0, 0.0], [0.0, 60.0], [60.0, 60.0]])
    y = rng.integers(16, size=n)
    return group[y // 4] + group[y % 4] / 6.0 + rng.standard_normal((n, 2)), y


def unequal(n, rng):
    """Draw six Gaussians that have from 2/3 to 1/150 of the rows."""
    share = np.array([3000, 1000, 300, 100, 50, 30]) / 4480
    y = rng.choice(6, size=n, p=share)
    centres = 12.0 * np.stack([np.arange(6) % 3, np.arange(6) // 3, 0.0 * np.arange(6)], axis=1)
    return centres[y] + rng.standard_normal((n, 3)), y


def low_rank(n, rng):
    """Draw ten classes in 32 columns, whose covariances are of low rank plus noise."""
    y = rng.integers(10, size=n)
    loadings, centres = rng.standard_normal((10, 4, 32)), rng.standard_normal((10, 32))
    signal = np.einsum("nr,nrd->nd", rng.standard_normal((n, 4)), loadings[y])
    return centres[y] + signal + 0.3 * rng.standard_normal((n, 32)), y


def skewed(n, rng):
    """Draw two classes with skewed distributions in ten columns."""
    y = rng.integers(2, size=n)
    return 4.0 * y[:, None] + rng.gamma(1.0, 1.0, (n, 10)), y


def mixed(n, rng):
    """Draw eight clusters of real, categorical, binary and count columns, a tenth missing.

    The third result is the parameter ``components``, here and in the functions below.
    """
    clusters, _ = drawn_clusters(rng)
    X, y = clusters.draw(n, 0.1, rng)
    return X, y, blocks_of(clusters)


def overlapping_and_far(n, rng):
    """Draw the three Gaussians of `overlapping`, and a fourth far from them."""
    X, y = overlapping(n, rng)
    X[y == 0] += np.where(rng.random((np.sum(y == 0), 1)) < 0.5, 0.0, 20.0)
    return X, np.where(X[:, 1] > 10.0, 3, y)


def classes(n, rng):
    """Draw three latent classes of ten items with four answers."""
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    chances = rng.dirichlet(np.full(4, 0.7), (3, 10))
    X = (chances.cumsum(axis=2)[y] < rng.random((n, 10, 1))).sum(axis=2).clip(max=3)
    return X.astype(float), y, [("items", Categorical(), slice(None))]


def flags(n, rng):
    """Draw four clusters of two real columns and eight binary columns."""
    y = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    ones = np.where(rng.random((4, 8)) < 0.5, 0.1, 0.85)[y]
    real = rng.normal(np.stack([3.0 * (y % 2), 2.0 * (y // 2)], axis=1), 1.0)
    X = np.hstack([real, rng.random((n, 8)) < ones])
    return X, y, [("real", Gaussian("auto"), slice(2)), ("flags", Bernoulli(), slice(2, 10))]


def noise(share, n, rng):
    """Draw five round Gaussians, and uniform rows in the square around them, labelled -1.

    ``share`` is the share of the uniform rows.
    """
    y = np.where(rng.random(n) < share, -1, rng.integers(5, size=n))
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0], [4.0, 4.0]])
    X = centres[y] + 0.6 * rng.standard_normal((n, 2))
    return np.where(y[:, None] < 0, rng.uniform(-4.0, 12.0, size=(n, 2)), X), y


# Functions of the number of rows and a random generator, by the name of the table.
TABLES = {
    "digits, 10 columns": lambda n, rng: digits(10),
    "digits, 16 columns": lambda n, rng: digits(16),
    "iris": lambda n, rng: load_iris(return_X_y=True),
    "wine": lambda n, rng: standardised(load_wine),
    "breast cancer": lambda n, rng: standardised(load_breast_cancer),
    "crosses": crosses,
    "cores and halos": cores_and_halos,
    "bent chains": bent,
    "moons": moons,
    "heavy tails": heavy_tails,
    "Gaussians": gaussians,
    "overlapping": overlapping,
    "nested": nested,
    "unequal": unequal,
    "low rank": low_rank,
    "skewed": skewed,
    "mixed": mixed,
    "overlapping and far": overlapping_and_far,
    "classes of items": classes,
    "flags": flags,
    "people": lambda n, rng: (*people(int(rng.integers(2**31)), n), "auto"),
    "noise, a tenth": partial(noise, 0.1),
    "noise, three tenths": partial(noise, 0.3),
    "noise, half": partial(noise, 0.5),
    "one heavy tail": lambda n, rng: (rng.standard_t(3, size=(n, 4)), np.zeros(n, int)),
    "one flat": lambda n, rng: (rng.uniform(size=(n, 3)), np.zeros(n, int)),
    "one normal": lambda n, rng: (rng.standard_normal((n, 5)), np.zeros(n, int)),
}


# ------------------------------------------------------------------------------------ the methods
def ours(mixture, X, y):
    """Return a number of clusters and labels by method, and the CPU seconds of the fit."""
    _, cpu, _ = timed(mixture.fit, X)
    true_number = min(len(set(y[y >= 0])), mixture.n_components_)
    answers = {"components": (mixture.n_components_, mixture.predict(X))}
    for criterion in ("auto", "share", "evidence"):
        mixture.join_components(X, criterion=criterion)
        answers[f"joined by {criterion}"] = mixture.n_clusters_, mixture.predict(X, "auto")
        if criterion == "auto":
            labels = mixture.predict(X, true_number)
            answers["joined by auto, true number"] = true_number, labels
    return answers, cpu


def index(y, labels):
    """Return the adjusted Rand index of the rows that are not noise, where y is not -1."""
    return adjusted_rand_score(y[y >= 0], labels[y >= 0])


def compare(name, seed, args):
    """Return number of clusters, index and CPU seconds by method for a table, and its labels."""
    X, y, *components = TABLES[name](args.rows, np.random.default_rng(seed))
    rows = {}
    # The kinds of mixtures: of mixed columns, with a background, or of a covariance type.
    kinds = ["full", "background"] if args.background else ["full", "diag"]
    for kind in ["blocks"] if components else kinds:
        if components:
            mixture = MemoizedDPMixture(components=components[0], random_state=seed)
        elif kind == "background":
            mixture = MemoizedDPGMM(background=True, random_state=seed)
        else:
            mixture = MemoizedDPGMM(covariance_type=kind, random_state=seed)
        answers, cpu = ours(mixture, X, y)
        rows |= {
            f"{kind}: {method}": (number, index(y, labels), cpu)
            for method, (number, labels) in answers.items()
        }
    if components or args.no_peers:
        return rows, y
    _, cpu, mixture = timed(
        fit_gaussian_grid, X, MAX_COMPONENTS, shapes=["full"], random_state=seed
    )
    rows["GaussianMixture, BIC"] = mixture.n_components, index(y, mixture.predict(X)), cpu
    runs = []
    for size in MIN_CLUSTER_SIZES:
        _, cpu, labels = timed(HDBSCAN(min_cluster_size=size, copy=True).fit_predict, X)
        runs.append((len(set(labels) - {-1}), index(y, labels), cpu))
    # The first size is the default. The best run has the highest index.
    rows["HDBSCAN"] = runs[0]
    rows["HDBSCAN, best of 5"] = max(runs, key=lambda run: run[1])
    return rows, y


def summarise(runs, method):
    """Return a text: the mean index over runs, and the range of the numbers of clusters."""
    if method not in runs[0]:
        return ""
    numbers, indices, _ = zip(*(run[method] for run in runs), strict=True)
    lowest, highest = min(numbers), max(numbers)
    return f"{np.mean(indices):.2f} ({lowest}{f' to {highest}' if highest > lowest else ''})"


def main():
    args = arguments()
    print_header(args)
    # Some tables have a single cluster.
    warnings.filterwarnings("ignore", "All rows are in 1 cluster", UserWarning)
    methods = ["components", *(f"joined by {how}" for how in ("auto", "share", "evidence")),
               "joined by auto, true number"]  # fmt: skip
    peers = [] if args.no_peers else ["GaussianMixture, BIC", "HDBSCAN", "HDBSCAN, best of 5"]
    table = []
    with limited_to_cores(args.cores):
        for name in args.tables:
            runs = []
            for seed in range(args.seeds):
                rows, y = compare(name, seed, args)
                runs.append(rows)
                print_progress(f"{name}, seed {seed}")
            # The kind of mixture precedes the method and a colon.
            for kind in dict.fromkeys(method.partition(": ")[0] for method in runs[0]):
                if kind in peers:
                    continue
                label = name if kind in ("full", "blocks") else f"{name}, {kind}"
                cells = [summarise(runs, f"{kind}: {method}") for method in methods]
                _, _, cpu = zip(*(run[f"{kind}: components"] for run in runs), strict=True)
                table.append([label, len(set(y[y >= 0])), *cells,
                              *(summarise(runs, method) for method in peers),
                              format_mean(cpu, 1)])  # fmt: skip
    print_table(
        f"Rand index (and clusters), {args.seeds} seeds",
        [
            "rows",
            "classes",
            "components",
            "joined",
            "by entropy",
            "by evidence",
            "true number",
            *(name.replace(",", "") for name in peers),
            "CPU s",
        ],
        table,
    )


if __name__ == "__main__":
    main()
