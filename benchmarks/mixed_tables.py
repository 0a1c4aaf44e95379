"""Tables of mixed columns with holes: density, number of clusters, imputation.

Nine parts, each against other ways to do the same:

- ``peers``: on tables drawn from eight clusters, held-out density beside stepmix at its number of
  classes by BIC, ARI beside k-prototypes that is told the true number, and scikit-learn's Gaussian
  mixtures of one-hot columns with means in the holes (whose densities are no densities of mixed
  rows).
- ``imputation``: wine, breast cancer and diabetes with some columns cut into categories:
  ``impute`` beside ``IterativeImputer``, ``KNNImputer``, means and modes. Once all are told that
  columns are categories, of which scikit-learn's imputers, and one Gaussian, get indicators as
  numbers; once that these are ordered: then the mixture has a ``LatentGaussian``, and the others
  get the codes as numbers, and their answers are rounded.
- ``counts``: 500 columns of negative binomials with dispersions of .2 to 5 and tenfold exposures,
  from four clusters: number, ARI and held-out density beside those of the true parameters, of
  Poisson columns, and of scikit-learn's Gaussian mixtures of log rates.
- ``cells``: 4,000 cells of five lines by counts of 500 genes, negative binomials whose exposures
  are given: components, clusters and ARI beside scikit-learn's Gaussian mixtures and k-means and,
  if igraph and leidenalg are installed, beside Leiden communities of nearest neighbours, all of
  these on 20 principal components of log counts per 10,000.
- ``ordinal``: surveys of 10 and 25 six-point items from three classes, and of 6 from classes that
  are far apart, within which items are independent or share a factor: ``LatentGaussian`` beside
  ``Categorical`` and smooth categories (a Bernoulli for each step from a level to the next).
- ``people``: 3,000 people of four kinds by age, hours of work (40 for many), capital gains (0 for
  most), income, education and marriage: defaults, real columns read as they are, and scikit-learn's
  mixtures and k-means of one-hot columns, amounts as they are and in logarithms.
- ``rivals``: the same people by pykamila and snob-factor, which are left out if not installed.
- ``given``: three classes of 500 rows with five real columns and two of categories, all shifted by
  two categories: classes found with these as given columns, with these columns described like the
  others, and without them. Classes are 4 or 7 standard deviations apart.
- ``sparse``: a class of 20 of 300 rows that differs from the others in ten of 34 signs of four
  levels, and tables of 26 columns of four kinds whose two to six classes differ in four tenths of
  the columns: classes found and held-out density, with ``sparse_differences`` and without.

In the first two, clusters overlap: tables are drawn anew until the oracle's ARI of 20,000 complete
rows is between .90 and .97. The evaluator of densities, ``Clusters`` below, is NumPy alone; it
takes weights, means, variances, probabilities and rates from whoever has learned them and treats
them alike.
"""

import importlib.util
import itertools
import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from _common import (
    format_mean,
    limited_to_cores,
    parser,
    print_header,
    print_progress,
    print_table,
    timed,
)
from _mixture_peers import fit_gaussian_grid, fit_lowest_bic
from _rivals import RIVALS, rivals
from scipy.special import gammaln, logsumexp, xlogy
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import StandardScaler

from skvt import MemoizedDPGMM, MemoizedDPMixture
from skvt.components import (
    Bernoulli,
    Categorical,
    Gaussian,
    LatentGaussian,
    NegativeBinomial,
    Poisson,
)

COMMUNITIES = ("igraph", "leidenalg")
TRUE = 8
SIZES = (3, 4, 5, 6)  # categories of the categorical columns
OVERLAP = (0.90, 0.97)  # ARI of the oracle on complete rows
MOST = 12  # classes of grids by BIC
PARTS = ("peers", "imputation", "counts", "cells", "ordinal", "people", "rivals", "given", "sparse")


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    p.add_argument("--peer-draws", type=int, default=5)
    p.add_argument("--peer-rows", type=int, nargs="+", default=[2_000])
    p.add_argument("--peer-missing", type=float, nargs="+", default=[0.0, 0.2])
    p.add_argument("--stepmix-starts", type=int, nargs="+", default=[1, 5], help="n_init")
    p.add_argument("--seeds", type=int, default=5, help="of holes, for imputation")
    p.add_argument("--cells-draws", type=int, default=2)
    p.add_argument("--cells-rows", type=int, default=4_000)
    p.add_argument("--cells-spreads", type=float, nargs="+", default=[0.5, 0.3, 0.25],
                   help="standard deviations of log rates between lines")  # fmt: skip
    p.add_argument("--items", type=int, nargs="+", default=[10, 25], help="of ordinal surveys")
    p.add_argument("--ordinal-draws", type=int, default=3)
    p.add_argument("--people-draws", type=int, default=5)
    p.add_argument("--given-draws", type=int, default=10)
    p.add_argument("--sparse-draws", type=int, default=10)
    p.add_argument("--cores", type=int, default=2)
    p.add_argument("--quick", action="store_true", help="few draws, few rows")
    args = p.parse_args()
    if args.quick:
        args.peer_draws, args.peer_rows = 1, [1_000]
        args.stepmix_starts, args.seeds = [1], 1
        args.cells_draws, args.cells_rows = 1, 1_000
        args.items, args.ordinal_draws, args.people_draws = [10], 1, 1
        args.given_draws = args.sparse_draws = 1
    return args


def rows_of(runs, *digits):
    """Rows of a table from {method: its runs}: mean and deviation to these digits, all if None."""
    return [[method, *map(_told, zip(*of, strict=True), digits)] for method, of in runs.items()]


def _told(values, digits):
    if digits is None:
        return "" if values[0] is None else " ".join(map(str, values))
    return format_mean([value for value in values if not np.isnan(value)], digits)


# --------------------------------------------------------------------------------- the evaluator
@dataclass
class Clusters:
    """A mixture of rows whose columns are real, categorical, binary and counts, in this order.

    ``weights`` (K,), ``means`` and ``variances`` (K, R), ``probabilities`` of categories, a list
    of (K, C), ``ones`` (K, B), ``rates`` (K, D).
    """

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    probabilities: list
    ones: np.ndarray
    rates: np.ndarray

    @property
    def columns(self):
        """Places of the columns by kind; no kind without columns."""
        widths = [self.means.shape[1], len(self.probabilities), self.ones.shape[1],
                  self.rates.shape[1]]  # fmt: skip
        ends = np.cumsum(widths).tolist()
        kinds = ("real", "category", "binary", "count")
        return {
            kind: list(range(end - width, end))
            for kind, end, width in zip(kinds, ends, widths, strict=True)
            if width
        }

    def draw(self, n, missing, rng):
        """Rows (n, columns) with holes, and the clusters to which they belong."""
        y = rng.choice(self.weights.size, n, p=self.weights)
        real = self.means[y] + np.sqrt(self.variances[y]) * rng.standard_normal(self.means[y].shape)
        codes = [
            (p[y].cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=p.shape[1] - 1)
            for p in self.probabilities
        ]
        ones = rng.random((n, self.ones.shape[1])) < self.ones[y]
        X = np.column_stack([real, *codes, ones, rng.poisson(self.rates[y])]).astype(float)
        X[rng.random(X.shape) < missing] = np.nan
        return X, y

    def log_joint(self, X):
        """Log of weight times density of what is there of each row, (n, K) in nats."""
        places = self.columns
        with np.errstate(divide="ignore"):
            out = np.tile(np.log(self.weights), (len(X), 1))
        for k in range(self.weights.size):
            if "real" in places:
                x, variance = X[:, places["real"]], self.variances[k]
                square = (x - self.means[k]) ** 2 / variance + np.log(2.0 * np.pi * variance)
                out[:, k] -= 0.5 * np.nansum(square, axis=1)
            if "binary" in places:
                x = X[:, places["binary"]]
                out[:, k] += np.nansum(xlogy(x, self.ones[k]) + xlogy(1 - x, 1 - self.ones[k]), 1)
            if "count" in places:
                x, rate = X[:, places["count"]], self.rates[k]
                out[:, k] += np.nansum(xlogy(x, rate) - rate - gammaln(x + 1.0), axis=1)
            for column, p in zip(places.get("category", []),
                                 self.probabilities, strict=True):  # fmt: skip
                x = X[:, column]
                seen = ~np.isnan(x)
                with np.errstate(divide="ignore"):
                    out[seen, k] += np.log(p[k])[x[seen].astype(int)]
        return out

    def density(self, X):
        """Mean log density of rows in nats."""
        return float(logsumexp(self.log_joint(X), axis=1).mean())

    def labels(self, X):
        """The most probable cluster of each row."""
        return self.log_joint(X).argmax(axis=1)


def drawn_clusters(rng, *, n_real=4, sizes=SIZES, n_binary=4, n_counts=4, spread=1.0):
    """Parameters of eight clusters that overlap as ``OVERLAP`` says, and the oracle's ARI."""
    while True:
        logits = [1.1 * spread * rng.standard_normal((TRUE, size)) for size in sizes]
        clusters = Clusters(
            rng.dirichlet(np.full(TRUE, 10.0)),
            1.1 * spread * rng.standard_normal((TRUE, n_real)),
            rng.uniform(0.7, 1.3, (TRUE, n_real)) ** 2,
            [np.exp(a) / np.exp(a).sum(axis=1, keepdims=True) for a in logits],
            1.0 / (1.0 + np.exp(-1.4 * spread * rng.standard_normal((TRUE, n_binary)))),
            4.0 * np.exp(0.5 * spread * rng.standard_normal((TRUE, n_counts))),
        )
        X, y = clusters.draw(20_000, 0.0, rng)
        index = adjusted_rand_score(y, clusters.labels(X))
        if OVERLAP[0] <= index <= OVERLAP[1]:
            return clusters, index


# ------------------------------------------------------------------------------------- this library
def blocks_of(clusters):
    """The ``components`` parameter for such rows."""
    kinds = {
        "real": Gaussian("diag"),
        "category": Categorical(categories=[list(range(p.shape[1]))
                                            for p in clusters.probabilities]),
        "binary": Bernoulli(),
        "count": Poisson(),
    }  # fmt: skip
    return [(kind, kinds[kind], places) for kind, places in clusters.columns.items()]


def learned(mixture):
    """What a mixture has learned, for the evaluator: weights and posterior means."""
    parts = mixture.posterior_.components.mean()
    K = mixture.weights_.size
    none = np.empty((K, 0))
    real = parts.get("real")
    sizes = [len(own) for own in mixture.categories_.get("category", [])]
    p = np.split(parts["category"], np.cumsum(sizes)[:-1], axis=1) if sizes else []
    return Clusters(
        mixture.weights_,
        none if real is None else real.mean.reshape(K, -1),
        none if real is None else 1.0 / real.precision.reshape(K, -1),
        p,
        parts["binary"][..., 0].reshape(K, -1) if "binary" in parts else none,
        parts["count"].reshape(K, -1) if "count" in parts else none,
    )


def mixture_of(components, args, seed, **settings):
    """The mixture that is compared, before its fit."""
    return MemoizedDPMixture(
        components=components, n_jobs=args.cores, random_state=seed, **settings
    )


def without_empty_rows(X):
    """X; rows without any value (next to none) get a zero in the first column."""
    X[np.isnan(X).all(axis=1), 0] = 0.0
    return X


def compile_all(args):
    """Fit a few rows, so that no compilation is timed."""
    rng = np.random.default_rng(0)
    clusters, _ = drawn_clusters(rng)
    X, _ = clusters.draw(500, 0.2, rng)
    mixture_of(blocks_of(clusters), args, 0).fit(X)
    if "cells" in args.parts:
        counts, exposures, _ = lines_of_cells(0, 300, 0.5)
        mixture_of(genes_of(counts), args, 0).fit(np.column_stack([counts, exposures]))


# ------------------------------------------------------------------------------------------- peers
def stepmix_grid(X, clusters, most, n_init, seed):
    """The StepMix with the lowest BIC."""
    from stepmix.stepmix import StepMix

    models = {"real": "gaussian_diag", "category": "categorical", "binary": "binary"}
    holes = "_nan" if np.isnan(X).any() else ""
    measurement = {
        kind: {"model": models[kind] + holes, "n_columns": len(places)}
        for kind, places in clusters.columns.items()
    }
    settings = {"measurement": measurement, "n_init": n_init, "random_state": seed}
    return fit_lowest_bic((StepMix(k, **settings, progress_bar=0) for k in range(1, most + 1)), X)


def learned_by_stepmix(model, clusters):
    """Its parameters for the evaluator; probabilities clipped as its own likelihood does."""
    found = model.get_parameters()["measurement"]
    real, categories = found["real"], found["category"]
    most = categories["max_n_outcomes"]
    sizes = [p.shape[1] for p in clusters.probabilities]
    pis = np.clip(categories["pis"], 1e-15, 1 - 1e-15)
    return Clusters(
        model.weights_,
        np.asarray(real["means"]),
        np.asarray(real["covariances"]),
        [pis[:, j * most : j * most + size] for j, size in enumerate(sizes)],
        np.clip(found["binary"]["pis"], 1e-15, 1 - 1e-15),
        np.empty((model.n_components, 0)),
    )


def k_prototypes(X, clusters, seed):
    """Labels; numbers standardised, holes filled with means and modes."""
    from kmodes.kprototypes import KPrototypes

    X = filled_in(X, clusters)
    numbers = [j for kind in ("real", "count") for j in clusters.columns.get(kind, [])]
    X[:, numbers] = StandardScaler().fit_transform(X[:, numbers])
    categories = [j for kind in ("category", "binary") for j in clusters.columns[kind]]
    rows = X.astype(object)
    for j in categories:
        rows[:, j] = X[:, j].astype(int).astype(str)
    return KPrototypes(TRUE, n_init=3, random_state=seed).fit_predict(rows, categorical=categories)


def filled_in(X, clusters):
    """X with means and, in categories, modes in its holes."""
    X = X.copy()
    for kind, places in clusters.columns.items():
        how = "mean" if kind in ("real", "count") else "most_frequent"
        X[:, places] = SimpleImputer(strategy=how).fit_transform(X[:, places])
    return X


def one_hot(X, clusters):
    """Standardised columns, categories as indicators, means and modes in holes."""
    X = filled_in(X, clusters)
    parts = [
        np.eye(p.shape[1])[X[:, j].astype(int)]
        for j, p in zip(clusters.columns["category"], clusters.probabilities, strict=True)
    ]
    rest = np.setdiff1d(np.arange(X.shape[1]), clusters.columns["category"])
    return StandardScaler().fit_transform(np.column_stack([X[:, rest], *parts]))


def gaussians(X, covariance_type, most, seed, **params):
    """Labels by the GaussianMixture with the lowest BIC, and their number."""
    mixture = fit_gaussian_grid(X, most, shapes=[covariance_type], random_state=seed, **params)
    return mixture.n_components, mixture.predict(X)


def bayesian(X, covariance_type, seed):
    """Labels by a BayesianGaussianMixture of 20, and the number of those with rows."""
    mixture = BayesianGaussianMixture(
        n_components=20, covariance_type=covariance_type, max_iter=500, random_state=seed
    )
    labels = mixture.fit_predict(X)
    return np.unique(labels).size, labels


def density_of(seed, n_rows, missing, args):
    """{method: (held-out by the evaluator, by the method itself, number, ARI, CPU seconds)}."""
    rng = np.random.default_rng([seed, n_rows, 3])
    clusters, _ = drawn_clusters(rng, n_counts=0, spread=1.15)
    X, y = clusters.draw(n_rows, missing, rng)
    test, _ = clusters.draw(10_000, missing, rng)
    X, test = without_empty_rows(X), without_empty_rows(test)
    truth = clusters.density(test)
    rows = {"truth": (0.0, 0.0, TRUE, adjusted_rand_score(y, clusters.labels(X)), 0.0)}
    _, cpu, mixture = timed(mixture_of(blocks_of(clusters), args, seed).fit, X)
    rows["MemoizedDPMixture"] = (
        learned(mixture).density(test) - truth, mixture.score(test) - truth,
        mixture.n_components_, adjusted_rand_score(y, mixture.predict(X)), cpu,
    )  # fmt: skip
    for n_init in args.stepmix_starts:
        _, cpu, model = timed(stepmix_grid, X, clusters, MOST, n_init, seed)
        rows[f"stepmix, BIC of 1-{MOST}, n_init={n_init}"] = (
            learned_by_stepmix(model, clusters).density(test) - truth, model.score(test) - truth,
            model.n_components, adjusted_rand_score(y, model.predict(X)), cpu,
        )  # fmt: skip
    return rows


def index_of(seed, n_rows, missing, args):
    """{method: (number, ARI, CPU seconds)} of tables with counts, too."""
    rng = np.random.default_rng([seed, n_rows, 4])
    clusters, _ = drawn_clusters(rng)
    X, y = clusters.draw(n_rows, missing, rng)
    X = without_empty_rows(X)
    rows = {"oracle": (TRUE, adjusted_rand_score(y, clusters.labels(X)), 0.0)}

    def add(name, function, *given, **named):
        _, cpu, (number, labels) = timed(function, *given, **named)
        rows[name] = number, adjusted_rand_score(y, labels), cpu

    def ours():
        mixture = mixture_of(blocks_of(clusters), args, seed).fit(X)
        return mixture.n_components_, mixture.predict(X)

    add("MemoizedDPMixture", ours)
    add("k-prototypes, told 8", lambda: (TRUE, k_prototypes(X, clusters, seed)))
    flat, means = one_hot(X, clusters), KMeans(TRUE, n_init=10, random_state=seed)
    add("k-means of one-hot, told 8", lambda: (TRUE, means.fit_predict(flat)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for shape in ("diag", "full"):
            add(f"GaussianMixture {shape}, BIC", gaussians, flat, shape, MOST, seed)
            add(f"BayesianGaussianMixture {shape}", bayesian, flat, shape, seed)
        # variances that cannot shrink to nothing in a column of zeros and ones
        add("GaussianMixture diag, reg_covar=0.1", gaussians, flat, "diag", MOST, seed,
            reg_covar=0.1)  # fmt: skip
    return rows


def peers_part(args):
    for n_rows in args.peer_rows:
        for missing in args.peer_missing:
            runs = of_draws(density_of, n_rows, missing, args)
            print_table(
                f"{n_rows:,} rows of 4 real, 4 categorical, 4 binary columns, {missing:.0%} "
                "missing: held-out nats a row less those of the truth",
                ["method", "evaluator", "its own score", "components", "ARI", "CPU s"],
                rows_of(runs, 4, 4, None, 3, 1),
            )
            runs = of_draws(index_of, n_rows, missing, args)
            print_table(
                f"{n_rows:,} rows with 4 columns of counts, too, {missing:.0%} missing",
                ["method", "clusters", "ARI", "CPU s"],
                rows_of(runs, None, 3, 1),
            )


def of_draws(measure, n_rows, missing, args):
    """{method: its runs} of a measure of all methods on several tables."""
    runs = {}
    for seed in range(args.peer_draws):
        for method, values in measure(seed, n_rows, missing, args).items():
            runs.setdefault(method, []).append(values)
        print_progress(measure.__name__, n_rows, missing, seed)
    return runs


# -------------------------------------------------------------------------------------- imputation
IMPUTED = {"wine": load_wine, "breast cancer": load_breast_cancer, "diabetes": load_diabetes}


def cut_table(load):
    """A table of which each third column is cut into 4 categories, and each fifth into 2."""
    X = load().data.astype(float)
    kinds = []
    for j in range(X.shape[1]):
        kind = "category" if j % 3 == 1 else "binary" if j % 5 == 0 else "real"
        if kind == "category":
            X[:, j] = np.searchsorted(np.unique(np.quantile(X[:, j], [0.25, 0.5, 0.75])), X[:, j])
        elif kind == "binary":
            X[:, j] = X[:, j] > np.median(X[:, j])
        else:
            X[:, j] = (X[:, j] - X[:, j].mean()) / X[:, j].std()
        kinds.append(kind)
    return X, np.array(kinds)


def by_indicators(fill, X, kinds, left_out=0):
    """Rows filled by indicators: a missing category is that whose indicator is highest; None.

    Indicators of a category sum to one. Regressions of each on all others find just that, so that
    holes stay at the values with which they were filled first: there one level is ``left_out``.
    """
    parts, levels = [], []
    for j, kind in enumerate(kinds):
        x = X[:, [j]]
        known = np.unique(x[~np.isnan(x)])
        if kind == "category":
            x = np.where(np.isnan(x), np.nan, (x == known[left_out:]).astype(float))
        parts.append(x)
        levels.append(known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        filled = fill(np.column_stack(parts))
    out = X.copy()
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    for j, part in enumerate(np.split(filled, ends, axis=1)):
        holes = np.isnan(X[:, j])
        if kinds[j] == "category":
            rest = 1.0 - part.sum(axis=1, keepdims=True)
            scores = np.hstack([rest, part]) if left_out else part
            out[holes, j] = levels[j][scores[holes].argmax(axis=1)]
        else:
            out[holes, j] = part[holes, 0] > 0.5 if kinds[j] == "binary" else part[holes, 0]
    return out, None


def by_codes(imputer, X, kinds):
    """Rows filled by numbers, of categories their codes: the nearest one; None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        filled = imputer.fit_transform(X)
    for j in np.flatnonzero(kinds != "real"):
        filled[:, j] = np.clip(np.rint(filled[:, j]), np.nanmin(X[:, j]), np.nanmax(X[:, j]))
    return filled, None


def described(kinds, shape):
    """Components of columns of such kinds, real ones with such covariances."""
    specs = {"real": Gaussian(shape), "category": Categorical(), "binary": Bernoulli()}
    return [
        (kind, specs[kind], np.flatnonzero(kinds == kind).tolist())
        for kind in specs
        if kind in kinds
    ]


def ordered(kinds, shape):
    """A component of all columns together, those that are not real ordinal."""
    spec = LatentGaussian(np.flatnonzero(kinds != "real").tolist(), shape)
    return [("all", spec, slice(None))]


def by_a_gaussian(rows):
    """Rows of numbers filled by one Gaussian."""
    return MemoizedDPGMM(1, max_components=1).fit(rows).impute(rows)


def by_mixture(components, X, kinds, args, seed, **settings):
    """Rows filled by a mixture of such components; their number."""
    mixture = mixture_of(components, args, seed, **settings).fit(X)
    return mixture.impute(X), mixture.n_components_


def imputation_part(args):
    for name, load in IMPUTED.items():
        complete, kinds = cut_table(load)
        runs = {}
        for seed in range(args.seeds):
            rng = np.random.default_rng(seed)
            holes = rng.random(complete.shape) < 0.2
            holes[holes.all(axis=1), 0] = False
            X = np.where(holes, np.nan, complete)
            mixtures = {f"mixture, {s}": described(kinds, s) for s in ("full", "tied", "diag")}
            mixtures |= {f"ordered: mixture, {s}": ordered(kinds, s) for s in ("full", "tied")}
            methods = {
                name: partial(by_mixture, components, args=args, seed=seed)
                for name, components in mixtures.items()
            }
            merging = {"n_components": 10, "moves": ("merge", "delete")}
            methods |= {
                f"{name}, ten that merge": partial(methods[name], **merging)
                for name in mixtures if not name.startswith("ordered")
            }  # fmt: skip
            methods["ordered: one component"] = partial(
                methods["ordered: mixture, full"], n_components=1, moves=()
            )
            one_left_out = {
                "one Gaussian of indicators": by_a_gaussian,
                "IterativeImputer": IterativeImputer(random_state=0).fit_transform,
            }
            methods |= {
                name: partial(by_indicators, fill, left_out=1)
                for name, fill in one_left_out.items()
            }
            methods |= {
                "KNNImputer": partial(by_indicators, KNNImputer().fit_transform),
                "mean, mode": partial(by_indicators, SimpleImputer().fit_transform),
                "ordered: IterativeImputer": partial(by_codes, IterativeImputer(random_state=0)),
                "ordered: KNNImputer": partial(by_codes, KNNImputer()),
            }
            for method, impute in methods.items():
                _, cpu, (filled, number) = timed(impute, X, kinds)
                real = holes & (kinds == "real")
                codes = holes & (kinds != "real")
                runs.setdefault(method, []).append((
                    np.sqrt(np.mean((filled - complete)[real] ** 2)),
                    np.mean(filled[codes] == complete[codes]), number, cpu,
                ))  # fmt: skip
                print_progress(name, seed, method, runs[method][-1])
        there = ", ".join(f"{np.sum(kinds == kind)} {kind}" for kind in np.unique(kinds))
        print_table(
            f"{name}: {complete.shape[0]} x {complete.shape[1]} ({there}), 20 % missing, "
            f"{args.seeds} draws of holes",
            ["method", "normalised RMSE", "right categories", "components", "CPU s"],
            rows_of(runs, 3, 3, None, 1),
        )


# ------------------------------------------------------------------------------------------ counts
def counts_part(args):
    number, n_columns, n_rows = 4, 500, 1_000
    rng = np.random.default_rng(0)
    shape = number, n_columns
    rates = rng.gamma(0.5, 2.0, n_columns) + 0.02
    rates = rates * np.exp(0.5 * rng.standard_normal(shape) * (rng.random(shape) < 0.4))
    sizes = np.exp(-rng.uniform(np.log(0.2), np.log(5.0), shape))
    y = rng.integers(number, size=2 * n_rows)
    exposures = np.exp(rng.uniform(0.0, np.log(10.0), y.size)) / 3.9
    means = exposures[:, None] * rates[y] * rng.standard_gamma(sizes[y]) / sizes[y]
    counts = rng.poisson(means).astype(float)
    X, test = np.split(np.column_stack([counts, exposures]), 2)

    of_test, labels = (_true_counts(rows, rates, sizes) for rows in (test, X))
    truth = logsumexp(of_test, axis=1).mean()
    y = y[:n_rows]
    table = [["the true parameters", number, f"{truth:.2f}",
              f"{adjusted_rand_score(y, labels.argmax(axis=1)):.3f}", ""]]  # fmt: skip
    for component in (NegativeBinomial(exposure=n_columns), Poisson(exposure=n_columns)):
        blocks = [("counts", component, slice(0, n_columns))]
        _, cpu, mixture = timed(mixture_of(blocks, args, 0).fit, X)
        own, index = mixture.score(test), adjusted_rand_score(y, mixture.predict(X))
        table.append([type(component).__name__, mixture.n_components_,
                      f"{own:.2f} ({(own - truth) / abs(truth):+.2%})",
                      f"{index:.3f}", f"{cpu:.1f}"])  # fmt: skip
    logs = np.log1p(X[:, :-1] / X[:, -1:])
    _, cpu, (k, labels) = timed(gaussians, logs, "diag", MOST, 0, reg_covar=1e-3)
    table.append(["GaussianMixture diag, BIC", k, "",
                  f"{adjusted_rand_score(y, labels):.3f}", f"{cpu:.1f}"])  # fmt: skip
    print_table(
        f"{n_rows:,} rows of {n_columns} negative binomial columns",
        ["method", "components", "held-out nats a row", "ARI", "CPU s"],
        table,
    )


def _true_counts(rows, rates, sizes):
    """Log joint density (n, K) of rows under the parameters that they were drawn from."""
    x, e = rows[:, None, :-1], rows[:, None, -1:]
    means = e * rates
    logs = gammaln(x + sizes) - gammaln(sizes) - gammaln(x + 1.0) - np.log(len(rates)) / x.shape[2]
    logs -= sizes * np.log1p(means / sizes) + x * np.log1p(sizes / means)
    return logs.sum(axis=2)


# ------------------------------------------------------------------------------------------- cells
def lines_of_cells(seed, n_rows, spread, n_lines=5, n_genes=500):
    """Counts of genes (n, D), exposures (n,), and the lines of the cells (n,)."""
    rng = np.random.default_rng(seed)
    common = np.exp(rng.normal(-0.5, 1.0, n_genes))
    rates = common * np.exp(rng.normal(0.0, spread, (n_lines, n_genes)))
    y = rng.integers(n_lines, size=n_rows)
    exposures = np.exp(rng.normal(0.0, 0.5, n_rows))
    sizes = rng.uniform(1.0, 5.0, n_genes)
    means = exposures[:, None] * rates[y] * rng.gamma(sizes, 1.0 / sizes, (n_rows, n_genes))
    return rng.poisson(means).astype(float), exposures, y


def genes_of(counts):
    """The block of all counts; the column after them has the exposures."""
    n_genes = counts.shape[1]
    return [("genes", NegativeBinomial(exposure=n_genes), slice(0, n_genes))]


def communities(X, seed, resolution):
    """Labels by Leiden, among 15 nearest neighbours."""
    import igraph
    import leidenalg

    graph = kneighbors_graph(X, 15)
    graph = graph.maximum(graph.T).tocoo()
    once = graph.row < graph.col
    graph = igraph.Graph(len(X), np.column_stack([graph.row, graph.col])[once].tolist())
    kind = leidenalg.RBConfigurationVertexPartition
    options = {"resolution_parameter": resolution, "seed": seed, "n_iterations": 2}
    return np.array(leidenalg.find_partition(graph, kind, **options).membership)


def cells_part(args):
    for spread_of_lines in args.cells_spreads:
        runs = {}
        for seed in range(args.cells_draws):
            for method, *result in lines_found(spread_of_lines, seed, args):
                runs.setdefault(method, []).append(result)
                print_progress("cells", spread_of_lines, seed, method, result)
        print_table(
            f"spread {spread_of_lines}: {args.cells_rows:,} cells, {args.cells_draws} draws",
            ["method", "components", "clusters", "ARI", "CPU s"],
            rows_of(runs, None, None, 3, 1),
        )


def lines_found(spread_of_lines, seed, args):
    """Yield method, components, clusters, ARI and CPU seconds of each method on one table."""
    counts, exposures, y = lines_of_cells(seed, args.cells_rows, spread_of_lines)
    X = np.column_stack([counts, exposures])

    def result(method, labels, cpu, n_components=None):
        index = adjusted_rand_score(y, labels)
        return method, n_components, len(np.unique(labels)), index, cpu

    from_30 = {"n_components": 30, "moves": ("merge", "delete")}
    for name, settings in ("NegativeBinomial", {}), ("NegativeBinomial, from 30", from_30):
        mixture = mixture_of(genes_of(counts), args, seed, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, cpu, _ = timed(mixture.fit, X)
            labels = mixture.predict(X, n_clusters="auto")
        yield result(name, labels, cpu, mixture.n_components_)

    def project():
        shares = counts / counts.sum(axis=1, keepdims=True)
        return PCA(20, random_state=seed).fit_transform(np.log1p(1e4 * shares))

    _, cpu_of_axes, axes = timed(project)
    told = {"n_init": 10, "random_state": seed}
    peers = {
        f"GaussianMixture {shape}, told 5": GaussianMixture(5, covariance_type=shape, **told)
        for shape in ("full", "tied", "diag")
    }
    for method, model in (peers | {"k-means, told 5": KMeans(5, **told)}).items():
        _, cpu, labels = timed(model.fit_predict, axes)
        yield result(method, labels, cpu + cpu_of_axes)
    if all(map(importlib.util.find_spec, COMMUNITIES)):
        for resolution in (0.2, 0.5, 1.0):
            _, cpu, labels = timed(communities, axes, seed, resolution)
            yield result(f"Leiden, resolution {resolution}", labels, cpu + cpu_of_axes)


# ----------------------------------------------------------------------------------------- ordinal
LEVELS = 6
ORDINAL = {
    "LatentGaussian full": lambda D: (LatentGaussian(list(range(D)), "full"), np.asarray),
    "Categorical, prior 1": lambda D: (Categorical(1.0), np.asarray),
    "Categorical, prior learned": lambda D: (Categorical("auto"), np.asarray),
    "smooth categories": lambda D: (Bernoulli(), steps_of_levels),
}


def survey(seed, n_items, correlated, apart, n=2_000):
    """Levels (n, D) of items that cut normal variates at their quantiles, and classes.

    Classes that are ``apart`` have means of 0, 4 and 8 deviations in each item.
    """
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    means = 0.8 * rng.standard_normal((3, n_items))
    means = 4.0 * means.argsort(axis=0) if apart else means
    loads = 0.8 * correlated * rng.choice([-1, 1], (3, n_items))
    z = means[y] + loads[y] * rng.standard_normal((n, 1))
    z += np.sqrt(1.0 - 0.64 * correlated) * rng.standard_normal(z.shape)
    cuts = np.quantile(z, np.arange(1, LEVELS) / LEVELS, axis=0)
    return (z > cuts[:, None]).sum(axis=0).astype(float), y


def steps_of_levels(X):
    """Of each item and level but the last: above it (1), at it (0), or below (NaN)."""
    return np.hstack([np.where(X >= c, X > c, np.nan) for c in range(LEVELS - 1)])


def ordinal_part(args):
    for apart, correlated in itertools.product((False, True), repeat=2):
        for n_items in [6] if apart else args.items:
            runs = {}
            for seed in range(args.ordinal_draws):
                X, y = survey(seed, n_items, correlated, apart)
                for method, of in ORDINAL.items():
                    spec, columns = of(n_items)
                    rows, test = np.split(columns(X), 2)
                    blocks = [("items", spec, slice(None))]
                    _, cpu, mixture = timed(mixture_of(blocks, args, seed).fit, rows)
                    index = adjusted_rand_score(y[: len(rows)], mixture.predict(rows))
                    runs.setdefault(method, []).append(
                        (mixture.score(test), index, mixture.n_components_, cpu)
                    )
                    print_progress(n_items, apart, correlated, seed, method, runs[method][-1])
            print_table(
                f"{n_items} items, {'correlated' if correlated else 'independent'} within classes"
                f"{' far apart' if apart else ''}, {args.ordinal_draws} draws",
                ["method", "held-out nats a row", "ARI", "components", "CPU s"],
                rows_of(runs, 3, 2, None, 1),
            )


# ------------------------------------------------------------------------------------------ people
def people(seed, n=3_000):
    """A data frame with holes, and kinds of people."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])

    def drawn(mean, deviation):
        return rng.normal(np.array(mean)[kind], np.array(deviation)[kind])

    def chosen(names, chances):
        return np.array(names)[(rng.random((n, 1)) > np.cumsum(chances, axis=1)[kind]).sum(axis=1)]

    full_time = rng.random(n) < np.array([0.5, 0.6, 0.05, 0.3])[kind]
    hours = np.where(full_time, 40.0, drawn([32, 48, 15, 60], [8] * 4).clip(1, 99))
    without = rng.random(n) < np.array([0.98, 0.9, 0.92, 0.7])[kind]
    frame = pd.DataFrame({
        "age": np.round(drawn([28, 45, 70, 38], [6, 9, 7, 12]).clip(17, 90)),
        "hours": np.round(hours),
        "gains": np.where(without, 0.0, np.round(np.exp(drawn([7.0, 8.5, 8.0, 9.5], [0.6] * 4)))),
        "income": np.round(np.exp(drawn([10.0, 10.8, 10.2, 11.6], [0.4] * 4))),
        "education": chosen(["none", "school", "college", "degree"],
                            [[0.1, 0.5, 0.2, 0.2], [0.05, 0.35, 0.2, 0.4],
                             [0.2, 0.5, 0.15, 0.15], [0.01, 0.04, 0.1, 0.85]]),
        "married": chosen(["single", "married", "widowed"],
                          [[0.8, 0.19, 0.01], [0.2, 0.78, 0.02], [0.1, 0.5, 0.4],
                           [0.4, 0.55, 0.05]]),
    })  # fmt: skip
    return frame.mask(rng.random(frame.shape) < 0.03), kind


def indicators(frame, logs):
    """Standardised numbers, of amounts their logarithms if asked, and indicators of categories."""
    numbers = frame[REAL].fillna(frame[REAL].mean())
    if logs:
        numbers[["gains", "income"]] = np.log1p(numbers[["gains", "income"]])
    parts = [numbers, pd.get_dummies(frame[["education", "married"]])]
    return StandardScaler().fit_transform(np.column_stack(parts).astype(float))


REAL = ["age", "hours", "gains", "income"]


def people_part(args):
    plain = [
        ("numbers", Gaussian("auto"), REAL),
        ("kinds", Categorical(), ["education", "married"]),
    ]
    runs = {}
    for seed in range(args.people_draws):
        frame, kind = people(seed)

        def ours(components, frame=frame, seed=seed):
            mixture = mixture_of(components, args, seed).fit(frame)
            return mixture.n_components_, mixture.labels_

        methods = {"MemoizedDPMixture": partial(ours, "auto"),
                   "MemoizedDPMixture, numbers as they are": partial(ours, plain)}  # fmt: skip
        for logs in (False, True):
            flat, how = indicators(frame, logs), "logarithms" if logs else "as they are"
            methods[f"GaussianMixture full, BIC, {how}"] = partial(
                gaussians, flat, "full", MOST, seed
            )
            methods[f"GaussianMixture diag, BIC, {how}"] = partial(
                gaussians, flat, "diag", MOST, seed, reg_covar=0.1
            )
            means = KMeans(4, n_init=10, random_state=seed)
            methods[f"k-means told 4, {how}"] = partial(
                lambda means, flat: (4, means.fit_predict(flat)), means, flat
            )
        for method, labels_of in methods.items():
            _, cpu, (number, labels) = timed(labels_of)
            runs.setdefault(method, []).append((number, adjusted_rand_score(kind, labels), cpu))
            print_progress("people", seed, method, runs[method][-1])
    print_table(
        f"3,000 people of four kinds, {args.people_draws} draws",
        ["method", "clusters", "ARI", "CPU s"],
        rows_of(runs, None, 2, 1),
    )


def rivals_part(args):
    runs = {}
    for seed in range(args.people_draws):
        frame, kind = people(seed)
        logs = frame.assign(**np.log1p(frame[["gains", "income"]]))
        _, cpu, mixture = timed(mixture_of("auto", args, seed).fit, frame)
        index = adjusted_rand_score(kind, mixture.labels_)
        rows = {"MemoizedDPMixture": (mixture.n_components_, index, cpu)}
        for method, values in (rows | rivals(frame, logs, REAL, kind, seed)).items():
            runs.setdefault(method, []).append(values)
            print_progress("rivals", seed, method, values)
    print_table(
        f"3,000 people of four kinds, {args.people_draws} draws: libraries for mixed tables",
        ["method", "clusters", "ARI", "CPU s"],
        rows_of(runs, None, 2, 1),
    )


# ------------------------------------------------------------------------------------------- given
def shifted(seed, apart, n=500, D=5):
    """A table whose columns two categories shift, and the classes of its rows."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(size, size=n) for size in (3, 2, 3)]
    centers = [apart / np.sqrt(2.0) * np.eye(3, D)]
    centers += [4.0 * rng.normal(size=(size, D)) for size in (2, 3)]
    numbers = sum(one[of] for one, of in zip(centers, codes, strict=True))
    table = pd.DataFrame(numbers + rng.normal(size=(n, D)), columns=[f"x{d}" for d in range(D)])
    for name in ("a", "b"):
        odds = sum(2.0 * rng.normal(size=(of.max() + 1, 3))[of] for of in codes)
        table[name] = np.array(["p", "q", "r"])[(odds + rng.gumbel(size=odds.shape)).argmax(axis=1)]
    table["sex"], table["season"] = (np.array(list("stuv"))[of] for of in codes[1:])
    return table, codes[0]


def given_part(args):
    given = ["sex", "season"]
    for apart in (4.0, 7.0):
        runs = {}
        for seed in range(args.given_draws):
            table, kind = shifted(seed, apart)
            for method, rows, settings in (
                ("given", table, {"given": given}),
                ("described like the others", table, {}),
                ("left out", table.drop(columns=given), {}),
            ):
                _, cpu, mixture = timed(mixture_of("auto", args, seed, **settings).fit, rows)
                index, number = adjusted_rand_score(kind, mixture.labels_), mixture.n_components_
                runs.setdefault(method, []).append((number, number == 3, index, cpu))
                print_progress("given", apart, seed, method, runs[method][-1])
        print_table(
            f"Classes {apart:g} standard deviations apart, shifted by two categories, "
            f"{args.given_draws} draws",
            ["the two categories", "components", "share of draws with three", "ARI", "CPU s"],
            rows_of(runs, 1, 2, 2, 1),
        )


# ------------------------------------------------------------------------------------------ sparse
def signs(concentration, seed, n=300, n_rare=20):
    """Rows of signs of a rare class and the others, held-out rows, and who is rare."""
    rng = np.random.default_rng(seed)
    usual = rng.dirichlet(np.full(4, concentration), 34)
    rare = usual.copy()
    rare[rng.choice(34, 10, replace=False)] = rng.dirichlet(np.full(4, concentration), 10)
    is_rare = np.concatenate([np.arange(n) < n_rare, np.arange(1_000) < 1_000 * n_rare / n])
    chances = np.where(is_rare[:, None, None], rare, usual).cumsum(axis=-1)
    codes = (rng.random((len(chances), 34, 1)) > chances[..., :-1]).sum(axis=-1)
    table = pd.DataFrame(codes).rename(columns=str).astype(pd.CategoricalDtype(range(4)))
    return table[:n], table[n:], is_rare[:n]


def of_four_kinds(seed, n=300):
    """Rows of classes that differ in few columns, held-out rows, and their classes."""
    rng = np.random.default_rng(seed)
    n_classes = rng.integers(2, 7)
    kind = rng.choice(n_classes, 2 * n, p=rng.dirichlet(np.full(n_classes, 3.0)))

    def parameters(draw):
        own = rng.random((n_classes, *(1,) * np.ndim(draw())))
        return np.where(own < 0.4, np.array([draw() for _ in range(n_classes)]), draw())[kind]

    columns = {}
    for j in range(8):
        below = parameters(lambda: rng.dirichlet(np.ones(4))).cumsum(axis=1)
        columns[f"category {j}"] = np.array(list("abcd"))[
            (rng.random((2 * n, 1)) > below[:, :-1]).sum(axis=1)
        ]
        columns[f"flag {j}"] = rng.random(2 * n) < parameters(rng.random)
    for j in range(6):
        columns[f"number {j}"] = rng.normal(parameters(lambda: rng.normal(0.0, 2.0)))
    for j in range(4):
        columns[f"count {j}"] = rng.poisson(parameters(lambda: rng.gamma(2.0, 3.0)))
    table = pd.DataFrame(columns)
    return table[:n], table[n:], kind[:n]


def sparse_part(args):
    def named(word):
        return lambda table: [name for name in table if name.startswith(word)]

    four_kinds = [
        ("categories", Categorical(), named("category")), ("flags", Bernoulli(), named("flag")),
        ("numbers", Gaussian("diag"), named("number")), ("counts", Poisson(), named("count")),
    ]  # fmt: skip
    for title, draw, components in (
        ("Signs, a rare class, concentration .5", partial(signs, 0.5), "auto"),
        ("Signs, a rare class, concentration 1", partial(signs, 1.0), "auto"),
        ("Four kinds of columns", of_four_kinds, four_kinds),
    ):
        runs = {}
        for seed in range(args.sparse_draws):
            table, others, kind = draw(seed)
            for on in (False, True):
                mixture = mixture_of(components, args, seed, sparse_differences=on)
                _, cpu, mixture = timed(mixture.fit, table)
                index = adjusted_rand_score(kind, mixture.labels_)
                result = mixture.n_components_, index > 0.5, index, mixture.score(others), cpu
                runs.setdefault(f"sparse_differences={on}", []).append(result)
                print_progress("sparse", title, seed, on, result)
        print_table(
            f"{title}: {args.sparse_draws} draws",
            ["method", "components", "share of draws with ARI above .5", "ARI",
             "held-out nats per row", "CPU s"],
            rows_of(runs, 1, 2, 2, 2, 1),
        )  # fmt: skip


def main():
    args = arguments()
    libraries = ["stepmix", "kmodes"] if "peers" in args.parts else []
    beside = {"rivals": RIVALS, "cells": COMMUNITIES}
    print_header(
        args, *libraries, optional=[x for part in args.parts for x in beside.get(part, ())]
    )
    run = {"peers": peers_part, "imputation": imputation_part, "counts": counts_part,
           "cells": cells_part, "ordinal": ordinal_part, "people": people_part,
           "rivals": rivals_part, "given": given_part, "sparse": sparse_part}  # fmt: skip
    with limited_to_cores(args.cores):
        compile_all(args)
        for part in args.parts:
            run[part](args)


if __name__ == "__main__":
    main()
