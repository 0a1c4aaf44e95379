"""Clusters as people count them: components joined, beside other ways to count.

On tables that ship with scikit-learn, on tables whose clusters are no Gaussians, on some whose
clusters are, on mixed columns and on rows that are one cluster: components of ``MemoizedDPGMM``
with learned priors, the clusters that it suggests, by entropy and evidence (as ``fit`` does), and
by either alone; the components joined to the true number; scikit-learn's ``GaussianMixture`` with
the number of components of the best BIC, and its ``HDBSCAN``. Judged by the adjusted Rand index.
HDBSCAN takes no number but the smallest cluster: 5 rows by default, and the same with the best
index among several, which no user can know. Its noise is a cluster of its own.
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

SMALLEST = (5, 10, 20, 40, 80)
# Of scikit-learn's mixture.
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
def digits(n_columns):
    """Digits of scikit-learn, projected on so many principal components."""
    X, y = load_digits(return_X_y=True)
    return PCA(n_columns, random_state=0).fit_transform(X), y


def standardised(load):
    """Rows with columns of mean 0 and variance 1, and labels."""
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def crosses(n, rng):
    """Five crosses of two long Gaussians each."""
    y = rng.integers(5, size=n)
    long = rng.integers(2, size=n)
    centres = np.array([[-8.0, -8.0], [8.0, -8.0], [0.0, 0.0], [-8.0, 8.0], [8.0, 8.0]])
    size = np.array([[3.0, 0.4], [0.4, 3.0]])
    return centres[y] + size[long] * rng.standard_normal((n, 2)), y


def cores_and_halos(n, rng):
    """Four clusters of a dense core in a wide halo each, in three dimensions."""
    y = rng.integers(4, size=n)
    size = np.where(rng.random(n) < 0.5, 0.3, 1.5)
    centres = 9.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    return centres[y] + size[:, None] * rng.standard_normal((n, 3)), y


def bent(n, rng):
    """Six clusters in five dimensions: bent chains of three Gaussians that overlap."""
    centres = 6.0 * rng.standard_normal((6, 1, 5))
    steps = rng.standard_normal((6, 3, 5))
    steps *= 1.8 / np.linalg.norm(steps, axis=2, keepdims=True)
    places = centres + np.cumsum(steps, axis=1)
    y, part = rng.integers(6, size=n), rng.integers(3, size=n)
    return places[y, part] + 0.7 * rng.standard_normal((n, 5)), y


def moons(n, rng):
    return make_moons(n, noise=0.08, random_state=int(rng.integers(2**31)))


def heavy_tails(n, rng):
    """Three clusters of Student's t with four degrees of freedom."""
    y = rng.integers(3, size=n)
    centres = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])
    return centres[y] + rng.standard_t(4, size=(n, 2)), y


def gaussians(n, rng):
    """Six Gaussians, the nearest of which are five standard deviations apart."""
    while True:
        centres = 6.0 * rng.standard_normal((6, 4))
        apart = np.linalg.norm(centres[:, None] - centres, axis=2) + 1e9 * np.eye(6)
        if apart.min() >= 5.0:
            break
    y = rng.integers(6, size=n)
    return centres[y] + rng.standard_normal((n, 4)), y


def overlapping(n, rng):
    """Three Gaussians at the corners of a triangle, three standard deviations apart."""
    y = rng.integers(3, size=n)
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [1.5, 2.6]])
    return centres[y] + rng.standard_normal((n, 2)), y


def nested(n, rng):
    """Sixteen Gaussians in four groups."""
    group = np.array([[0.0, 0.0], [60.0, 0.0], [0.0, 60.0], [60.0, 60.0]])
    y = rng.integers(16, size=n)
    return group[y // 4] + group[y % 4] / 6.0 + rng.standard_normal((n, 2)), y


def unequal(n, rng):
    """Six Gaussians of 2/3 to 1/150 of the rows."""
    share = np.array([3000, 1000, 300, 100, 50, 30]) / 4480
    y = rng.choice(6, size=n, p=share)
    centres = 12.0 * np.stack([np.arange(6) % 3, np.arange(6) // 3, 0.0 * np.arange(6)], axis=1)
    return centres[y] + rng.standard_normal((n, 3)), y


def low_rank(n, rng):
    """Ten classes in 32 columns, each of low rank plus noise."""
    y = rng.integers(10, size=n)
    loadings, centres = rng.standard_normal((10, 4, 32)), rng.standard_normal((10, 32))
    signal = np.einsum("nr,nrd->nd", rng.standard_normal((n, 4)), loadings[y])
    return centres[y] + signal + 0.3 * rng.standard_normal((n, 32)), y


def skewed(n, rng):
    """Two skewed classes in ten columns."""
    y = rng.integers(2, size=n)
    return 4.0 * y[:, None] + rng.gamma(1.0, 1.0, (n, 10)), y


def mixed(n, rng):
    """Eight clusters of real, categorical, binary and count columns, a tenth missing."""
    clusters, _ = drawn_clusters(rng)
    X, y = clusters.draw(n, 0.1, rng)
    return X, y, blocks_of(clusters)


def overlapping_and_far(n, rng):
    """Three such Gaussians, and another far from them."""
    X, y = overlapping(n, rng)
    X[y == 0] += np.where(rng.random((np.sum(y == 0), 1)) < 0.5, 0.0, 20.0)
    return X, np.where(X[:, 1] > 10.0, 3, y)


def classes(n, rng):
    """Three latent classes of ten items with four answers."""
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    chances = rng.dirichlet(np.full(4, 0.7), (3, 10))
    X = (chances.cumsum(axis=2)[y] < rng.random((n, 10, 1))).sum(axis=2).clip(max=3)
    return X.astype(float), y, [("items", Categorical(), slice(None))]


def flags(n, rng):
    """Four clusters of two real columns and eight flags."""
    y = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    ones = np.where(rng.random((4, 8)) < 0.5, 0.1, 0.85)[y]
    real = rng.normal(np.stack([3.0 * (y % 2), 2.0 * (y // 2)], axis=1), 1.0)
    X = np.hstack([real, rng.random((n, 8)) < ones])
    return X, y, [("real", Gaussian("auto"), slice(2)), ("flags", Bernoulli(), slice(2, 10))]


def noise(share, n, rng):
    """Five round Gaussians, and rows spread evenly over the square around them, labelled -1."""
    y = np.where(rng.random(n) < share, -1, rng.integers(5, size=n))
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0], [4.0, 4.0]])
    X = centres[y] + 0.6 * rng.standard_normal((n, 2))
    return np.where(y[:, None] < 0, rng.uniform(-4.0, 12.0, size=(n, 2)), X), y


# name: table of (rows, seed); where columns are mixed, with their blocks
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
    """{method: (number of clusters, labels)}, and CPU seconds."""
    _, seconds, _ = timed(mixture.fit, X)
    true = min(len(set(y[y >= 0])), mixture.n_components_)
    found = {"components": (mixture.n_components_, mixture.predict(X))}
    for criterion in ("auto", "share", "evidence"):
        mixture.join_components(X, criterion=criterion)
        found[f"joined by {criterion}"] = mixture.n_clusters_, mixture.predict(X, "auto")
        if criterion == "auto":
            found["joined by auto, true number"] = true, mixture.predict(X, true)
    return found, seconds


def index(y, labels):
    """Adjusted Rand index of the rows that are not noise, which is labelled -1."""
    return adjusted_rand_score(y[y >= 0], labels[y >= 0])


def compare(name, seed, args):
    """{method: (number, index, CPU seconds)} of one table, and its labels."""
    X, y, *blocks = TABLES[name](args.rows, np.random.default_rng(seed))
    rows = {}
    shapes = ["full", "background"] if args.background else ["full", "diag"]
    for shape in ["blocks"] if blocks else shapes:
        if blocks:
            mixture = MemoizedDPMixture(components=blocks[0], random_state=seed)
        elif shape == "background":
            mixture = MemoizedDPGMM(background=True, random_state=seed)
        else:
            mixture = MemoizedDPGMM(covariance_type=shape, random_state=seed)
        found, seconds = ours(mixture, X, y)
        rows |= {
            f"{shape}: {method}": (number, index(y, labels), seconds)
            for method, (number, labels) in found.items()
        }
    if blocks or args.no_peers:
        return rows, y
    _, seconds, mixture = timed(
        fit_gaussian_grid, X, MAX_COMPONENTS, shapes=["full"], random_state=seed
    )
    rows["GaussianMixture, BIC"] = mixture.n_components, index(y, mixture.predict(X)), seconds
    known = []
    for smallest in SMALLEST:
        _, seconds, labels = timed(HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict, X)
        known.append((len(set(labels) - {-1}), index(y, labels), seconds))
    rows["HDBSCAN"] = known[0]
    rows["HDBSCAN, best of 5"] = max(known, key=lambda row: row[1])
    return rows, y


def counted(runs, method):
    """Mean index, and the numbers of clusters."""
    if method not in runs[0]:
        return ""
    numbers, indices, _ = zip(*(run[method] for run in runs), strict=True)
    least, most = min(numbers), max(numbers)
    return f"{np.mean(indices):.2f} ({least}{f' to {most}' if most > least else ''})"


def main():
    args = arguments()
    print_header(args)
    # one cluster of several components is no surprise here
    warnings.filterwarnings("ignore", "All rows are in 1 cluster", UserWarning)
    own = ["components", *(f"joined by {how}" for how in ("auto", "share", "evidence")),
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
            for shape in dict.fromkeys(method.partition(": ")[0] for method in runs[0]):
                if shape in peers:
                    continue
                label = name if shape in ("full", "blocks") else f"{name}, {shape}"
                cells = [counted(runs, f"{shape}: {method}") for method in own]
                seconds = format_mean([run[f"{shape}: components"][2] for run in runs], 1)
                table.append([label, len(set(y[y >= 0])), *cells,
                              *(counted(runs, method) for method in peers), seconds])  # fmt: skip
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
