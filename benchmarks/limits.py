"""What does a limit on the number of components cost?

A birth adds components where they help most, and births end at ``max_components``, so that early
births decide about all components. Fits with a fixed number start from k-means instead. Two tables
are compared: digits of scikit-learn in 10 principal components, and rows on four thin rings around
one centre. A Gaussian describes an arc that leaves its tangent by no more than the width of the
ring, so that thin rings need many Gaussians. The results are the density of other rows, in nats
per row, and, for rings, the adjusted Rand index of the suggested clusters.
"""

import warnings

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
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from skvt import MemoizedDPGMM


def rings(rng, n=4_000, width=0.01):
    """Draw rows on rings with the radii 1, 2, 3 and 4.

    Return n rows, n rows for the density, and the ring of each of the first rows.
    """
    ring = rng.integers(4, size=2 * n)
    angle = rng.uniform(0.0, 2.0 * np.pi, size=2 * n)
    X = (1.0 + ring)[:, None] * np.c_[np.cos(angle), np.sin(angle)]
    X += width * rng.standard_normal(X.shape)
    return X[:n], X[n:], ring[:n]


def digits(rng):
    """Return two thirds of the images, all other images, and None.

    The digits are no labels of clusters here, because a digit has several shapes.
    """
    X = PCA(10, random_state=0).fit_transform(load_digits().data)
    X = X[rng.permutation(len(X))]
    return X[:1_200], X[1_200:], None


# The function that draws each table, and the limits on the number of components.
TABLES = {"digits": (digits, (4, 8, 15)), "thin rings": (rings, (40, 60, 80))}


def compare(name, seed):
    """Return the results on a table by method.

    They are the numbers of components and of clusters, the Rand index, nats per new row, and CPU
    seconds. A result is NaN if the method or the table has none.
    """
    draw, limits = TABLES[name]
    X, new_rows, ring = draw(np.random.default_rng(seed))
    mixtures = {"no limit": MemoizedDPGMM(random_state=seed)}
    for k in limits:
        fixed = {"moves": (), "n_init": 3, "random_state": seed}
        mixtures |= {
            f"max_components={k}": MemoizedDPGMM(max_components=k, random_state=seed),
            f"n_components={k}, moves=(), n_init=3": MemoizedDPGMM(k, **fixed),
            f"GaussianMixture({k}, n_init=3)": GaussianMixture(k, n_init=3, random_state=seed),
        }
    rows = {}
    for method, mixture in mixtures.items():
        _, cpu, _ = timed(mixture.fit, X)
        n_clusters = index = np.nan
        if ring is not None and isinstance(mixture, MemoizedDPGMM):
            n_clusters = mixture.n_clusters_
            index = adjusted_rand_score(ring, mixture.predict(X, n_clusters="auto"))
        number = getattr(mixture, "n_components_", mixture.n_components)
        rows[method] = number, n_clusters, index, mixture.score(new_rows), cpu
    if ring is not None:
        _, cpu, labels = timed(HDBSCAN(copy=True).fit_predict, X)
        n_clusters = len(set(labels) - {-1})
        rows["HDBSCAN"] = np.nan, n_clusters, adjusted_rand_score(ring, labels), np.nan, cpu
    return rows


def main():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--tables", nargs="+", choices=sorted(TABLES), default=list(TABLES))
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--cores", type=int, default=1)
    args = p.parse_args()
    print_header(args)
    warnings.simplefilter("ignore", ConvergenceWarning)
    table = []
    with limited_to_cores(args.cores):
        # Compile before times are taken.
        X, *_ = rings(np.random.default_rng(0), 200)
        MemoizedDPGMM(random_state=0).fit(X)
        for name in args.tables:
            runs = []
            for seed in range(args.seeds):
                runs.append(compare(name, seed))
                print_progress(f"{name}, seed {seed}")
            for method in runs[0]:
                columns = zip(*(run[method] for run in runs), strict=True)
                cells = [
                    "" if np.isnan(values[0]) else format_mean(values, decimals)
                    for values, decimals in zip(columns, (0, 0, 2, 2, 1), strict=True)
                ]
                table.append([name, method, *cells])
    print_table(
        f"a limit on the number of components, {args.seeds} seeds",
        ["table", "method", "components", "clusters", "Rand index", "nats per new row", "CPU s"],
        table,
    )


if __name__ == "__main__":
    main()
