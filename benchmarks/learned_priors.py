"""Gaussian mixtures: given and learned priors of MemoizedDPGMM, and other libraries' mixtures.

Each split holds out part of a table; its rows are judged by the predictive density.

``priors``: medians of held-out nats a row, components, ARI and bound of the rows learned from, CPU
seconds; and on how many splits the held-out density is above that of the default prior.

``peers``: MemoizedDPGMM with its default prior, with learned ones, and with the shape of the
covariances of the best bound among four, beside scikit-learn's GaussianMixture, its shape and
number of components chosen by BIC or by five-fold cross-validation (of ``reg_covar``, too), and
Mclust of R, its model among 14 and number by BIC, without and with its prior (left out where
Rscript has no mclust). Columns are standardised: ``reg_covar`` is absolute. CPU seconds of R are
those of Mclust alone.

``starts``: bounds, components and CPU seconds of the default on all rows of standardised tables,
from several seeds, with one and with the best of four starts.

``types``: what ``covariance_type="auto"`` chooses, beside each type: bound and held-out nats a row,
components, ARI, CPU seconds; default priors, tables of scikit-learn and clusters of each type.

A density of columns of whole numbers says little: a component on one value of a column has as much
of it as its variance is near nothing. So such tables come twice: as they are, and "spread", with
noise added that is uniform between -1/2 and 1/2. The density of spread rows is a lower bound of
the log probability of the whole numbers, and there is nothing to win by a variance near nothing.
"""

import warnings
from functools import partial

import numpy as np
from _common import cores, parser, print_header, print_table, progress, spread, timed
from _gaussian_peers import gaussian_grid, gaussian_search, has_mclust, mclust
from clusters import bent, digits, gaussians, heavy_tails, moons, standardised
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skvt import MemoizedDPGMM

SCALE = {"covariance_prior": "auto"}
MEANS = SCALE | {"mean_precision_prior": "auto"}
FREEDOM = MEANS | {"degrees_of_freedom_prior": "auto"}
ALL = FREEDOM | {"mean_prior": "auto", "weight_concentration_prior": "auto"}
PRIORS = {"default": {}, "covariance": SCALE, "and kappa": MEANS, "and nu": FREEDOM, "all": ALL}
# Of one covariance for all, no prior can be learned.
TIED = {"mean_precision_prior": "auto", "mean_prior": "auto", "weight_concentration_prior": "auto"}
SHAPES = {"full": ALL, "tied": TIED, "diag": ALL, "spherical": ALL}
PARTS = ("priors", "peers", "starts", "types")
TYPES = ("auto", "spherical", "diag", "tied", "low_rank", "full")


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    p.add_argument("--tables", nargs="+", choices=sorted(TABLES), help="of priors")
    p.add_argument("--peer-tables", nargs="+", choices=sorted(PEER_TABLES), help="of peers")
    p.add_argument("--type-tables", nargs="+", choices=sorted(TYPE_TABLES), help="of types")
    p.add_argument("--splits", type=int, default=6)
    p.add_argument("--seeds", type=int, default=6, help="of starts")
    p.add_argument("--held-out", type=float, default=0.5, help="share of the rows")
    p.add_argument("--most", type=int, default=12, help="components of other libraries")
    p.add_argument("--starts", type=int, default=3, help="of mixtures of scikit-learn")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="two small tables, two splits")
    args = p.parse_args()
    if args.quick:
        args.tables, args.peer_tables, args.splits = ["wine"], ["iris"], 2
        args.type_tables = ["wine"]
    return args


# ------------------------------------------------------------------------------------ the tables
def small_clusters():
    """Forty clusters in 4 dimensions, a hundredth of the table wide."""
    rng = np.random.default_rng(0)
    means, y = rng.uniform(-1.0, 1.0, (40, 4)), rng.integers(40, size=4000)
    scales = rng.uniform(0.005, 0.02, 40)
    return means[y] + scales[y, None] * rng.standard_normal((4000, 4)), y


def drawn(make):
    """A table of 1,000 rows, the same each time."""
    return make(1_000, np.random.default_rng(0))


def inked():
    """Ink of the sixteen squares of 2 x 2 pixels of each digit, whole numbers up to 64."""
    X, y = load_digits(return_X_y=True)
    return X.reshape(-1, 4, 2, 4, 2).sum(axis=(2, 4)).reshape(-1, 16), y


def counts():
    """Five clusters of six columns of Poisson counts."""
    rng = np.random.default_rng(0)
    rates, y = np.exp(rng.uniform(-1.0, 3.0, (5, 6))), rng.integers(5, size=1_000)
    return rng.poisson(rates[y]).astype(float), y


def rounded():
    """Six Gaussians rounded to whole numbers, and a column of three marks that says nothing."""
    X, y = drawn(gaussians)
    marks = np.random.default_rng(1).integers(3, size=len(X))
    return np.column_stack([np.round(X), marks]), y


def repeated():
    """Rows of three clusters with heavy tails, each drawn several times."""
    X, y = drawn(heavy_tails)
    rows = np.random.default_rng(1).integers(300, size=1_000)
    return X[rows], y[rows]


def spread_out(load):
    """Columns of whole numbers with uniform noise."""
    X, y = load()
    return X + np.random.default_rng(2).uniform(-0.5, 0.5, X.shape), y


TABLES = {
    "wine": (lambda: standardised(load_wine), "full"),
    "wine, raw": (lambda: load_wine(return_X_y=True), "full"),
    "wine, diag": (lambda: standardised(load_wine), "diag"),
    "breast cancer": (lambda: standardised(load_breast_cancer), "full"),
    "breast cancer, raw": (lambda: load_breast_cancer(return_X_y=True), "full"),
    "breast cancer, diag": (lambda: standardised(load_breast_cancer), "diag"),
    "digits": (partial(digits, 20), "full"),
    "digits, diag": (partial(digits, 20), "diag"),
    "small clusters": (small_clusters, "full"),
    "small clusters, diag": (small_clusters, "diag"),
}


PEER_TABLES = {
    "iris": partial(load_iris, return_X_y=True),
    "wine": partial(load_wine, return_X_y=True),
    "breast cancer": partial(load_breast_cancer, return_X_y=True),
    "diabetes": lambda: (load_diabetes().data, None),
    "digits, 10 columns": partial(digits, 10),
    "Gaussians": partial(drawn, gaussians),
    "bent chains": partial(drawn, bent),
    "moons": partial(drawn, moons),
    "heavy tails": partial(drawn, heavy_tails),
    "repeated rows": repeated,
    "ink": inked,
    "ink, spread": partial(spread_out, inked),
    "counts": counts,
    "counts, spread": partial(spread_out, counts),
    "rounded": rounded,
    "rounded, spread": partial(spread_out, rounded),
}


# ---------------------------------------------------------------------------------------- priors
def judge(X, y, covariance_type, prior, seed, args):
    """Held-out nats a row, components, ARI, bound, CPU seconds."""
    train, test, labels, _ = train_test_split(X, y, test_size=args.held_out, random_state=seed)
    mixture = MemoizedDPGMM(covariance_type=covariance_type, random_state=seed, **prior)
    _, seconds, _ = timed(mixture.fit, train)
    ari = adjusted_rand_score(labels, mixture.predict(train))
    return mixture.score(test), mixture.n_components_, ari, mixture.elbo_, seconds


def priors_part(args):
    table = []
    for name in args.tables or TABLES:
        load, covariance_type = TABLES[name]
        X, y = load()
        base = None
        for title, prior in PRIORS.items():
            rows = np.array([
                judge(X, y, covariance_type, prior, seed, args) for seed in range(args.splits)
            ])  # fmt: skip
            base = rows[:, 0] if base is None else base
            held, K, ari, bound, seconds = np.median(rows, axis=0)
            table.append([
                name, title, f"{held:.3f}", f"{K:.1f}", f"{ari:.3f}", f"{bound:.1f}",
                f"{seconds:.1f}", (rows[:, 0] > base).sum(), f"{(rows[:, 0] - base).min():+.2f}",
            ])  # fmt: skip
            progress(*table[-1])
    print_table(
        f"medians of {args.splits} splits, {args.held_out:.0%} held out",
        ["table", "prior", "held-out", "K", "ARI", "bound", "CPU s", "better", "least gain"],
        table,
    )


# ---------------------------------------------------------------------------------------- starts
STARTED = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


def starts_part(args):
    table = []
    for name in [name for name in STARTED if name in (args.tables or STARTED)]:
        X, _ = standardised(STARTED[name])
        for n_init in (1, 4):
            makers = [MemoizedDPGMM(n_init=n_init, random_state=seed) for seed in range(args.seeds)]
            fits = [timed(mixture.fit, X) for mixture in makers]
            bounds, numbers = zip(*[(m.elbo_, m.n_components_) for *_, m in fits], strict=True)
            table.append([
                f"{name}, {X.shape[0]:,} x {X.shape[1]}", n_init,
                f"{min(numbers)} to {max(numbers)}", f"{min(bounds):,.1f} to {max(bounds):,.1f}",
                f"{np.median(bounds):,.1f}", f"{np.mean([cpu for _, cpu, _ in fits]):.1f}",
            ])  # fmt: skip
            progress(*table[-1])
    print_table(
        f"{args.seeds} seeds",
        ["table", "n_init", "components", "bounds, nats", "median", "CPU s"],
        table,
    )


# ----------------------------------------------------------------------------------------- peers
def best_bound(train, seed):
    """The mixture with learned priors whose shape of covariances has the best bound."""
    tried = [
        MemoizedDPGMM(covariance_type=shape, random_state=seed, **prior).fit(train)
        for shape, prior in SHAPES.items()
    ]
    return max(tried, key=lambda mixture: mixture.elbo_)


def peers(train, test, seed, args):
    """{method: (nats of each row of test, what was chosen, number, labels, CPU seconds)}."""
    makers = {
        "default": lambda: MemoizedDPGMM(random_state=seed).fit(train),
        "learned priors": lambda: MemoizedDPGMM(random_state=seed, **ALL).fit(train),
        "learned priors, best bound of 4 shapes": lambda: best_bound(train, seed),
        "sklearn, BIC": lambda: gaussian_grid(
            train, args.most, n_init=args.starts, random_state=seed
        ),
        "sklearn, cross-validated": lambda: gaussian_search(train, args.most, args.starts, seed),
    }
    runs = {}
    for name, make in makers.items():
        _, cpu, mixture = timed(make)
        number = getattr(mixture, "n_components_", mixture.n_components)
        runs[name] = (mixture.score_samples(test), mixture.covariance_type, number,
                      mixture.predict(train), cpu)  # fmt: skip
    if args.has_mclust:
        for name, prior in {"mclust": False, "mclust, its prior": True}.items():
            m = mclust(train, args.most, test=test, prior=prior)
            runs[name] = m.log_density, m.model, m.number, m.labels, m.cpu
    return runs


def peers_part(args):
    args.has_mclust = has_mclust()
    if not args.has_mclust:
        print("mclust: Rscript or its package is not installed, left out\n")
    for name in args.peer_tables or PEER_TABLES:
        X, y = PEER_TABLES[name]()
        X = StandardScaler().fit_transform(X)
        runs = {}
        for seed in range(args.splits):
            rows = np.random.default_rng(seed).permutation(len(X))
            n_test = round(args.held_out * len(X))
            test, train = rows[:n_test], rows[n_test:]
            for method, (density, chosen, k, labels, cpu) in peers(
                X[train], X[test], seed, args
            ).items():
                index = np.nan if y is None else adjusted_rand_score(y[train], labels)
                runs.setdefault(method, []).append((density.mean(), chosen, k, index, cpu))
            progress(name, seed, *(f"{m}: {r[-1][0]:.3f} {r[-1][1:3]}," for m, r in runs.items()))
        base = np.array([run[0] for run in runs["default"]])
        table = []
        for method, of in runs.items():
            held, chosen, k, index, cpu = zip(*of, strict=True)
            less = np.array(held) - base
            table.append([
                method, spread(held, 3), spread(less, 3), f"{np.sum(less > 0)}/{len(less)}",
                " ".join(map(str, k)), " ".join(sorted(set(chosen))),
                "" if y is None else spread(index, 3), f"{np.mean(cpu):.1f}",
            ])  # fmt: skip
        print_table(
            f"{name}: {len(train):,} x {X.shape[1]}, {len(test):,} held out, {args.splits} splits",
            ["", "nats a row", "less default", "above", "components", "shapes", "ARI", "CPU s"],
            table,
        )


# ----------------------------------------------------------------------------------------- types
def of_type(covariance_type, n=1_500, K=6, seed=0):
    """Clusters in 10 columns, or 30, whose covariances are of a type, and their numbers."""
    rng = np.random.default_rng(seed)
    D = 30 if covariance_type == "low_rank" else 10
    means, z, noise = (
        3.0 * rng.normal(size=(K, D)),
        rng.integers(K, size=n),
        rng.normal(size=(n, D)),
    )
    roots = rng.normal(size=(K, D, D))
    if covariance_type == "tied":
        return (means[z] + noise) @ roots[0], z
    if covariance_type == "low_rank":
        signal = np.einsum("nij,nj->ni", roots[z, :, :2], noise[:, :2])
        return 0.7 * means[z] + signal + 0.5 * rng.normal(size=(n, D)), z
    scales = {
        "spherical": np.ones((K, D)),
        "diag": np.exp(rng.normal(size=(K, D))),
    }
    if covariance_type in scales:
        return means[z] + scales[covariance_type][z] * noise, z
    return 2.0 * means[z] + np.einsum("nij,nj->ni", roots[z], noise), z


def table_of(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def digits_projected():
    X, y = load_digits(return_X_y=True)
    return PCA(20, random_state=0).fit_transform(X), y


TYPE_TABLES = {
    "iris": partial(table_of, load_iris),
    "wine": partial(table_of, load_wine),
    "breast cancer": partial(table_of, load_breast_cancer),
    "digits, 20 components": digits_projected,
    **{f"{kind} clusters": partial(of_type, kind) for kind in TYPES[1:]},
}


def types_part(args):
    for name in args.type_tables or TYPE_TABLES:
        X, y = TYPE_TABLES[name]()
        runs = {}
        for seed in range(args.splits):
            train, test, labels, _ = train_test_split(
                X, y, test_size=args.held_out, random_state=seed
            )
            for kind in TYPES:
                mixture = MemoizedDPGMM(covariance_type=kind, random_state=seed)
                _, cpu, _ = timed(mixture.fit, train)
                index = adjusted_rand_score(labels, mixture.predict(train))
                runs.setdefault(kind, []).append((
                    mixture.covariance_type_, mixture.elbo_ / len(train), mixture.score(test),
                    mixture.n_components_, index, cpu,
                ))  # fmt: skip
                progress(name, seed, kind, *runs[kind][-1])
        table = []
        for kind, of in runs.items():
            chosen, bound, held, k, index, cpu = zip(*of, strict=True)
            table.append([
                kind, " ".join(chosen) if kind == "auto" else "", spread(bound, 3),
                spread(held, 3), " ".join(map(str, k)), spread(index, 2), f"{np.mean(cpu):.1f}",
            ])  # fmt: skip
        print_table(
            f"{name}: {X.shape[0]:,} x {X.shape[1]}, {args.splits} splits",
            ["type", "chosen", "bound, nats a row", "held-out", "components", "ARI", "CPU s"],
            table,
        )


def main():
    args = arguments()
    print_header()
    warnings.simplefilter("ignore")
    run = {"priors": priors_part, "peers": peers_part, "starts": starts_part, "types": types_part}
    with cores(args.cores):
        MemoizedDPGMM(random_state=0, **ALL).fit(drawn(gaussians)[0][:200])  # compiles
        for part in args.parts:
            run[part](args)


if __name__ == "__main__":
    main()
