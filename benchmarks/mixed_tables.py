"""Tables of mixed columns with missing values: density, number of clusters, imputation.

ARI is the adjusted Rand index. Each of the eleven parts compares ``MemoizedDPMixture`` with other
methods:

- ``peers``: tables drawn from eight clusters. Held-out densities are compared with stepmix, whose
  number of classes is chosen by BIC. ARIs are also compared with k-prototypes, which is told the
  true number, and with Gaussian mixtures of scikit-learn on one-hot columns with imputed means,
  whose densities are not comparable.
- ``imputation``: wine, breast cancer and diabetes, with some columns cut into categories.
  ``impute`` is compared with ``IterativeImputer``, ``KNNImputer``, means and modes. In one
  comparison, these columns are categories, and the imputers of scikit-learn and a single Gaussian
  get indicators as numbers. In another, the categories are ordered: the mixture has a
  ``LatentGaussian``, and the imputers get the codes as numbers, and their answers are rounded.
- ``counts``: 500 columns of negative binomials with dispersions of .2 to 5 and exposures in a
  tenfold range, from four clusters. Number of components, ARI and held-out density are compared
  with the true parameters, with Poisson columns, and with Gaussian mixtures of log rates.
- ``cells``: 4,000 cells of five lines with counts of 500 genes, which are negative binomials with
  known exposures. Components, clusters and ARI are compared with Gaussian mixtures, k-means and, if
  igraph and leidenalg are installed, Leiden communities of nearest neighbours. These methods use 20
  principal components of log counts per 10,000.
- ``ordinal``: surveys of 10 or 25 six-point items with three classes, and of 6 items with classes
  that are far apart. Within a class, items are independent or share a factor. ``LatentGaussian`` is
  compared with ``Categorical`` and with smooth categories, which are a Bernoulli for each step from
  a level to the next.
- ``people``: 3,000 people of four kinds by age, hours of work (40 for many), capital gains (0 for
  most), income, education and marriage. Defaults are compared with a description of real columns
  without logarithms and point masses, and with mixtures and k-means of scikit-learn on one-hot
  columns, with and without logarithms of amounts.
- ``visits``: 500 or 2,000 people of three kinds by age, income, a category and three columns of
  small or larger counts, which are Poisson or vary more within a kind, or of counts from 1 on.
  Defaults, which read counts as such, are compared with a description of all numbers by Gaussians,
  and with mixtures of scikit-learn on one-hot columns.
- ``factors``: 1,000 or 3,000 rows of three or six classes in 20 to 60 real columns, which also
  depend on five common factors. Defaults are compared with separate factors of each component, and
  with mixtures and k-means of scikit-learn.
- ``rivals``: the same people by pykamila and snob-factor, which are left out if not installed.
- ``given``: three classes of 500 rows with five real and two categorical columns, which also depend
  on two further categories. These are given columns, or described like the others, or left out.
  Classes are 4 or 7 standard deviations apart.
- ``sparse``: a class of 20 of 300 rows that differs from the others in ten of 34 columns of four
  levels, and tables of 26 columns of four kinds whose two to six classes differ in four tenths of
  the columns. Fits with and without ``sparse_differences`` are compared.
- ``weights``: three classes of 500 people in ten real and ten categorical columns of five levels,
  with the weights of a survey, which follow the classes or chance or both. Fits with weights on
  several scales, fits without weights, and fits with weights that start from these without moves
  are compared.

In the first part, clusters overlap: parameters are drawn until the ARI of the oracle, which knows
the parameters, is between .90 and .97 for 20,000 complete rows. The evaluator of densities, the
class ``Clusters`` below, is written in NumPy alone. It takes parameters that any library has
learned, and treats all of them in the same way.
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

# Packages for communities of nearest neighbours.
COMMUNITIES = ("igraph", "leidenalg")
# True number of clusters of the drawn tables.
N_CLUSTERS = 8
# Numbers of categories of the categorical columns.
SIZES = (3, 4, 5, 6)
# Range of the ARI of the oracle on complete rows.
OVERLAP = (0.90, 0.97)
# Maximum number of components that are compared by BIC.
MAX_COMPONENTS = 12
PARTS = (
    "peers", "imputation", "counts", "cells", "ordinal", "people", "visits", "factors",
    "rivals", "given", "sparse", "weights",
)  # fmt: skip


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
    p.add_argument("--visits-rows", type=int, nargs="+", default=[500, 2_000])
    p.add_argument("--factors-draws", type=int, default=5)
    p.add_argument("--given-draws", type=int, default=10)
    p.add_argument("--sparse-draws", type=int, default=10)
    p.add_argument("--weights-draws", type=int, default=5)
    p.add_argument("--cores", type=int, default=2)
    p.add_argument("--quick", action="store_true", help="few draws, few rows")
    args = p.parse_args()
    if args.quick:
        args.peer_draws, args.peer_rows = 1, [1_000]
        args.stepmix_starts, args.seeds = [1], 1
        args.cells_draws, args.cells_rows = 1, 1_000
        args.items, args.ordinal_draws, args.people_draws = [10], 1, 1
        args.visits_rows = [500]
        args.factors_draws = args.given_draws = args.sparse_draws = args.weights_draws = 1
    return args


def table_rows(runs, *digits):
    """Return the rows of a table from the runs of each method.

    A run is a tuple of results. ``digits`` has the number of decimals of each result.
    """
    return [
        [method, *map(_format_column, zip(*method_runs, strict=True), digits)]
        for method, method_runs in runs.items()
    ]


def _format_column(values, digits):
    """Return mean and deviation of values, or all values if ``digits`` is None."""
    if digits is None:
        return "" if values[0] is None else " ".join(map(str, values))
    return format_mean([value for value in values if not np.isnan(value)], digits)


# --------------------------------------------------------------------------------- the evaluator
@dataclass
class Clusters:
    """Parameters of K clusters of rows with real, categorical, binary and count columns.

    The columns have this order.
    """

    # (K,)
    weights: np.ndarray
    # (K, R): means and variances of the R real columns.
    means: np.ndarray
    variances: np.ndarray
    # (K, C) for each categorical column: probabilities of its C categories.
    probabilities: list
    # (K, B): probability of a one in each of the B binary columns.
    ones: np.ndarray
    # (K, D): rates of the D count columns.
    rates: np.ndarray

    @property
    def columns(self):
        """Positions of the columns by kind; kinds without columns are left out."""
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
        """Draw n rows, of whose values the share ``missing`` is NaN; return them and clusters."""
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
        """Return the log of weight times density of the observed values, (n, K) in nats."""
        positions = self.columns
        with np.errstate(divide="ignore"):
            log_joint = np.tile(np.log(self.weights), (len(X), 1))
        for k in range(self.weights.size):
            if "real" in positions:
                x, variance = X[:, positions["real"]], self.variances[k]
                square = (x - self.means[k]) ** 2 / variance + np.log(2.0 * np.pi * variance)
                log_joint[:, k] -= 0.5 * np.nansum(square, axis=1)
            if "binary" in positions:
                x = X[:, positions["binary"]]
                log_joint[:, k] += np.nansum(
                    xlogy(x, self.ones[k]) + xlogy(1 - x, 1 - self.ones[k]), 1
                )
            if "count" in positions:
                x, rate = X[:, positions["count"]], self.rates[k]
                log_joint[:, k] += np.nansum(xlogy(x, rate) - rate - gammaln(x + 1.0), axis=1)
            for column, p in zip(positions.get("category", []),
                                 self.probabilities, strict=True):  # fmt: skip
                x = X[:, column]
                observed = ~np.isnan(x)
                with np.errstate(divide="ignore"):
                    log_joint[observed, k] += np.log(p[k])[x[observed].astype(int)]
        return log_joint

    def density(self, X):
        """Return the mean log density of rows in nats."""
        return float(logsumexp(self.log_joint(X), axis=1).mean())

    def labels(self, X):
        """Return the most probable cluster of each row."""
        return self.log_joint(X).argmax(axis=1)


def drawn_clusters(rng, *, n_real=4, sizes=SIZES, n_binary=4, n_counts=4, spread=1.0):
    """Draw parameters of eight clusters that overlap; return them and the ARI of the oracle.

    ``spread`` is the scale of the differences between clusters.
    """
    while True:
        logits = [1.1 * spread * rng.standard_normal((N_CLUSTERS, size)) for size in sizes]
        clusters = Clusters(
            rng.dirichlet(np.full(N_CLUSTERS, 10.0)),
            1.1 * spread * rng.standard_normal((N_CLUSTERS, n_real)),
            rng.uniform(0.7, 1.3, (N_CLUSTERS, n_real)) ** 2,
            [np.exp(a) / np.exp(a).sum(axis=1, keepdims=True) for a in logits],
            1.0 / (1.0 + np.exp(-1.4 * spread * rng.standard_normal((N_CLUSTERS, n_binary)))),
            4.0 * np.exp(0.5 * spread * rng.standard_normal((N_CLUSTERS, n_counts))),
        )
        X, y = clusters.draw(20_000, 0.0, rng)
        index = adjusted_rand_score(y, clusters.labels(X))
        if OVERLAP[0] <= index <= OVERLAP[1]:
            return clusters, index


# ------------------------------------------------------------------------------------- this library
def blocks_of(clusters):
    """Return the parameter ``components`` for rows of these clusters."""
    kinds = {
        "real": Gaussian("diag"),
        "category": Categorical(categories=[list(range(p.shape[1]))
                                            for p in clusters.probabilities]),
        "binary": Bernoulli(),
        "count": Poisson(),
    }  # fmt: skip
    return [(kind, kinds[kind], places) for kind, places in clusters.columns.items()]


def parameters_of_mixture(mixture):
    """Return the parameters of a fitted mixture for the evaluator, by posterior means."""
    means = mixture.posterior_.components.mean()
    K = mixture.weights_.size
    no_columns = np.empty((K, 0))
    real = means.get("real")
    sizes = [len(levels) for levels in mixture.categories_.get("category", [])]
    p = np.split(means["category"], np.cumsum(sizes)[:-1], axis=1) if sizes else []
    return Clusters(
        mixture.weights_,
        no_columns if real is None else real.mean.reshape(K, -1),
        no_columns if real is None else 1.0 / real.precision.reshape(K, -1),
        p,
        means["binary"][..., 0].reshape(K, -1) if "binary" in means else no_columns,
        means["count"].reshape(K, -1) if "count" in means else no_columns,
    )


def mixture_of(components, args, seed, **settings):
    """Return the mixture that is compared, before its fit."""
    return MemoizedDPMixture(
        components=components, n_jobs=args.cores, random_state=seed, **settings
    )


def fill_empty_rows(X):
    """Set the first column to 0 in rows without any value, which are rare; return X."""
    X[np.isnan(X).all(axis=1), 0] = 0.0
    return X


def compile_all(args):
    """Fit a few rows, so that times do not include compilation."""
    rng = np.random.default_rng(0)
    clusters, _ = drawn_clusters(rng)
    X, _ = clusters.draw(500, 0.2, rng)
    mixture_of(blocks_of(clusters), args, 0).fit(X)
    if "cells" in args.parts:
        counts, exposures, _ = lines_of_cells(0, 300, 0.5)
        mixture_of(genes_of(counts), args, 0).fit(np.column_stack([counts, exposures]))


# ------------------------------------------------------------------------------------------- peers
def stepmix_grid(X, clusters, max_components, n_init, seed):
    """Return the StepMix of 1 to ``max_components`` classes with the lowest BIC."""
    from stepmix.stepmix import StepMix

    models = {"real": "gaussian_diag", "category": "categorical", "binary": "binary"}
    # Models whose names end with "_nan" allow missing values.
    suffix = "_nan" if np.isnan(X).any() else ""
    measurement = {
        kind: {"model": models[kind] + suffix, "n_columns": len(places)}
        for kind, places in clusters.columns.items()
    }
    settings = {"measurement": measurement, "n_init": n_init, "random_state": seed}
    return fit_lowest_bic(
        (StepMix(k, **settings, progress_bar=0) for k in range(1, max_components + 1)), X
    )


def parameters_of_stepmix(model, clusters):
    """Return the parameters of a StepMix for the evaluator.

    Probabilities are clipped as in its likelihood.
    """
    parameters = model.get_parameters()["measurement"]
    real, categories = parameters["real"], parameters["category"]
    # Each categorical column has this number of consecutive probabilities, of which those beyond
    # its number of categories are not used.
    width = categories["max_n_outcomes"]
    sizes = [p.shape[1] for p in clusters.probabilities]
    pis = np.clip(categories["pis"], 1e-15, 1 - 1e-15)
    return Clusters(
        model.weights_,
        np.asarray(real["means"]),
        np.asarray(real["covariances"]),
        [pis[:, j * width : j * width + size] for j, size in enumerate(sizes)],
        np.clip(parameters["binary"]["pis"], 1e-15, 1 - 1e-15),
        np.empty((model.n_components, 0)),
    )


def k_prototypes(X, clusters, seed):
    """Return labels by k-prototypes; numbers are standardised, missing values imputed."""
    from kmodes.kprototypes import KPrototypes

    X = fill_missing(X, clusters)
    numbers = [j for kind in ("real", "count") for j in clusters.columns.get(kind, [])]
    X[:, numbers] = StandardScaler().fit_transform(X[:, numbers])
    categories = [j for kind in ("category", "binary") for j in clusters.columns[kind]]
    rows = X.astype(object)
    for j in categories:
        rows[:, j] = X[:, j].astype(int).astype(str)
    return KPrototypes(N_CLUSTERS, n_init=3, random_state=seed).fit_predict(
        rows, categorical=categories
    )


def fill_missing(X, clusters):
    """Return X with means or, for categories, modes in place of missing values."""
    X = X.copy()
    for kind, places in clusters.columns.items():
        strategy = "mean" if kind in ("real", "count") else "most_frequent"
        X[:, places] = SimpleImputer(strategy=strategy).fit_transform(X[:, places])
    return X


def one_hot(X, clusters):
    """Return standardised columns, with indicators of categories and imputed missing values."""
    X = fill_missing(X, clusters)
    parts = [
        np.eye(p.shape[1])[X[:, j].astype(int)]
        for j, p in zip(clusters.columns["category"], clusters.probabilities, strict=True)
    ]
    rest = np.setdiff1d(np.arange(X.shape[1]), clusters.columns["category"])
    return StandardScaler().fit_transform(np.column_stack([X[:, rest], *parts]))


def gaussians(X, covariance_type, max_components, seed, **params):
    """Return the number of components and labels by the GaussianMixture with the lowest BIC."""
    mixture = fit_gaussian_grid(
        X, max_components, shapes=[covariance_type], random_state=seed, **params
    )
    return mixture.n_components, mixture.predict(X)


def bayesian(X, covariance_type, seed):
    """Return the number of components with rows and labels by a BayesianGaussianMixture of 20."""
    mixture = BayesianGaussianMixture(
        n_components=20, covariance_type=covariance_type, max_iter=500, random_state=seed
    )
    labels = mixture.fit_predict(X)
    return np.unique(labels).size, labels


def density_of(seed, n_rows, missing, args):
    """Return the results on a table by method.

    They are the held-out density by the evaluator and by the method itself, both minus the density
    under the true parameters, the number of components, ARI and CPU seconds.
    """
    rng = np.random.default_rng([seed, n_rows, 3])
    clusters, _ = drawn_clusters(rng, n_counts=0, spread=1.15)
    X, y = clusters.draw(n_rows, missing, rng)
    test, _ = clusters.draw(10_000, missing, rng)
    X, test = fill_empty_rows(X), fill_empty_rows(test)
    truth = clusters.density(test)
    rows = {"truth": (0.0, 0.0, N_CLUSTERS, adjusted_rand_score(y, clusters.labels(X)), 0.0)}
    _, cpu, mixture = timed(mixture_of(blocks_of(clusters), args, seed).fit, X)
    rows["MemoizedDPMixture"] = (
        parameters_of_mixture(mixture).density(test) - truth, mixture.score(test) - truth,
        mixture.n_components_, adjusted_rand_score(y, mixture.predict(X)), cpu,
    )  # fmt: skip
    for n_init in args.stepmix_starts:
        _, cpu, model = timed(stepmix_grid, X, clusters, MAX_COMPONENTS, n_init, seed)
        rows[f"stepmix, BIC of 1-{MAX_COMPONENTS}, n_init={n_init}"] = (
            parameters_of_stepmix(model, clusters).density(test) - truth, model.score(test) - truth,
            model.n_components, adjusted_rand_score(y, model.predict(X)), cpu,
        )  # fmt: skip
    return rows


def index_of(seed, n_rows, missing, args):
    """Return number of clusters, ARI and CPU seconds by method for a table that has counts, too."""
    rng = np.random.default_rng([seed, n_rows, 4])
    clusters, _ = drawn_clusters(rng)
    X, y = clusters.draw(n_rows, missing, rng)
    X = fill_empty_rows(X)
    rows = {"oracle": (N_CLUSTERS, adjusted_rand_score(y, clusters.labels(X)), 0.0)}

    def add(name, function, *arguments, **options):
        """Add the result of a function that returns the number of clusters and labels."""
        _, cpu, (number, labels) = timed(function, *arguments, **options)
        rows[name] = number, adjusted_rand_score(y, labels), cpu

    def ours():
        """Return the number of components and labels by MemoizedDPMixture."""
        mixture = mixture_of(blocks_of(clusters), args, seed).fit(X)
        return mixture.n_components_, mixture.predict(X)

    add("MemoizedDPMixture", ours)
    add("k-prototypes, told 8", lambda: (N_CLUSTERS, k_prototypes(X, clusters, seed)))
    flat, means = one_hot(X, clusters), KMeans(N_CLUSTERS, n_init=10, random_state=seed)
    add("k-means of one-hot, told 8", lambda: (N_CLUSTERS, means.fit_predict(flat)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for shape in ("diag", "full"):
            add(f"GaussianMixture {shape}, BIC", gaussians, flat, shape, MAX_COMPONENTS, seed)
            add(f"BayesianGaussianMixture {shape}", bayesian, flat, shape, seed)
        # With this ``reg_covar``, variances cannot shrink to 0 in columns of zeros and ones.
        add("GaussianMixture diag, reg_covar=0.1", gaussians, flat, "diag", MAX_COMPONENTS, seed,
            reg_covar=0.1)  # fmt: skip
    return rows


def peers_part(args):
    """Print the tables of the part ``peers``."""
    for n_rows in args.peer_rows:
        for missing in args.peer_missing:
            runs = run_draws(density_of, n_rows, missing, args)
            print_table(
                f"{n_rows:,} rows of 4 real, 4 categorical, 4 binary columns, {missing:.0%} "
                "missing: held-out nats a row less those of the truth",
                ["method", "evaluator", "its own score", "components", "ARI", "CPU s"],
                table_rows(runs, 4, 4, None, 3, 1),
            )
            runs = run_draws(index_of, n_rows, missing, args)
            print_table(
                f"{n_rows:,} rows with 4 columns of counts, too, {missing:.0%} missing",
                ["method", "clusters", "ARI", "CPU s"],
                table_rows(runs, None, 3, 1),
            )


def run_draws(measure, n_rows, missing, args):
    """Return the runs of each method on several tables.

    ``measure`` returns the results of all methods on a table.
    """
    runs = {}
    for seed in range(args.peer_draws):
        for method, values in measure(seed, n_rows, missing, args).items():
            runs.setdefault(method, []).append(values)
        print_progress(measure.__name__, n_rows, missing, seed)
    return runs


# -------------------------------------------------------------------------------------- imputation
IMPUTED = {"wine": load_wine, "breast cancer": load_breast_cancer, "diabetes": load_diabetes}


def cut_table(load):
    """Return a table with some columns cut into categories, and the kind of each column.

    Of three columns, one is cut into 4 categories. Of five columns, one is cut at the median,
    unless it has 4 categories already.
    """
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
    """Return rows imputed by numbers and indicators, and None for the number of components.

    ``fill`` imputes numbers. A missing category becomes the category with the highest indicator.
    The indicators of a column add up to 1. A regression of an indicator on all others would find
    only this identity, so that imputed values would stay at their initial values. Methods that use
    such regressions therefore leave out the first indicator, with ``left_out=1``.
    """
    parts, levels = [], []
    for j, kind in enumerate(kinds):
        x = X[:, [j]]
        observed_levels = np.unique(x[~np.isnan(x)])
        if kind == "category":
            indicators = (x == observed_levels[left_out:]).astype(float)
            x = np.where(np.isnan(x), np.nan, indicators)
        parts.append(x)
        levels.append(observed_levels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        filled = fill(np.column_stack(parts))
    out = X.copy()
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    for j, part in enumerate(np.split(filled, ends, axis=1)):
        is_missing = np.isnan(X[:, j])
        if kinds[j] == "category":
            # The first indicator follows from the sum of the others if it was left out.
            first = 1.0 - part.sum(axis=1, keepdims=True)
            scores = np.hstack([first, part]) if left_out else part
            out[is_missing, j] = levels[j][scores[is_missing].argmax(axis=1)]
        elif kinds[j] == "binary":
            out[is_missing, j] = part[is_missing, 0] > 0.5
        else:
            out[is_missing, j] = part[is_missing, 0]
    return out, None


def by_codes(imputer, X, kinds):
    """Return rows imputed by numbers, with the nearest code of categories, and None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        filled = imputer.fit_transform(X)
    for j in np.flatnonzero(kinds != "real"):
        filled[:, j] = np.clip(np.rint(filled[:, j]), np.nanmin(X[:, j]), np.nanmax(X[:, j]))
    return filled, None


def describe_kinds(kinds, shape):
    """Return components for columns of these kinds; ``shape`` is the covariance type."""
    specs = {"real": Gaussian(shape), "category": Categorical(), "binary": Bernoulli()}
    return [
        (kind, specs[kind], np.flatnonzero(kinds == kind).tolist())
        for kind in specs
        if kind in kinds
    ]


def describe_ordered(kinds, shape):
    """Return a LatentGaussian of all columns, in which columns that are not real are ordinal."""
    spec = LatentGaussian(np.flatnonzero(kinds != "real").tolist(), shape)
    return [("all", spec, slice(None))]


def by_a_gaussian(rows):
    """Return rows of numbers imputed by a single Gaussian."""
    return MemoizedDPGMM(1, max_components=1).fit(rows).impute(rows)


def by_mixture(components, X, kinds, args, seed, **settings):
    """Return rows imputed by a mixture with these components, and its number of components."""
    mixture = mixture_of(components, args, seed, **settings).fit(X)
    return mixture.impute(X), mixture.n_components_


def imputation_part(args):
    """Print the tables of the part ``imputation``."""
    for name, load in IMPUTED.items():
        complete, kinds = cut_table(load)
        runs = {}
        for seed in range(args.seeds):
            rng = np.random.default_rng(seed)
            is_missing = rng.random(complete.shape) < 0.2
            # No row is without any value.
            is_missing[is_missing.all(axis=1), 0] = False
            X = np.where(is_missing, np.nan, complete)
            mixtures = {f"mixture, {s}": describe_kinds(kinds, s) for s in ("full", "tied", "diag")}
            mixtures |= {
                f"ordered: mixture, {s}": describe_ordered(kinds, s) for s in ("full", "tied")
            }
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
                real = is_missing & (kinds == "real")
                codes = is_missing & (kinds != "real")
                runs.setdefault(method, []).append((
                    np.sqrt(np.mean((filled - complete)[real] ** 2)),
                    np.mean(filled[codes] == complete[codes]), number, cpu,
                ))  # fmt: skip
                print_progress(name, seed, method, runs[method][-1])
        kind_counts = ", ".join(f"{np.sum(kinds == kind)} {kind}" for kind in np.unique(kinds))
        print_table(
            f"{name}: {complete.shape[0]} x {complete.shape[1]} ({kind_counts}), 20 % missing, "
            f"{args.seeds} draws of holes",
            ["method", "normalised RMSE", "right categories", "components", "CPU s"],
            table_rows(runs, 3, 3, None, 1),
        )


# ------------------------------------------------------------------------------------------ counts
def counts_part(args):
    """Print the table of the part ``counts``."""
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

    test_log_joint, log_joint = (_true_log_joint(rows, rates, sizes) for rows in (test, X))
    truth = logsumexp(test_log_joint, axis=1).mean()
    y = y[:n_rows]
    table = [["the true parameters", number, f"{truth:.2f}",
              f"{adjusted_rand_score(y, log_joint.argmax(axis=1)):.3f}", ""]]  # fmt: skip
    for component in (NegativeBinomial(exposure=n_columns), Poisson(exposure=n_columns)):
        blocks = [("counts", component, slice(0, n_columns))]
        _, cpu, mixture = timed(mixture_of(blocks, args, 0).fit, X)
        score, index = mixture.score(test), adjusted_rand_score(y, mixture.predict(X))
        table.append([type(component).__name__, mixture.n_components_,
                      f"{score:.2f} ({(score - truth) / abs(truth):+.2%})",
                      f"{index:.3f}", f"{cpu:.1f}"])  # fmt: skip
    logs = np.log1p(X[:, :-1] / X[:, -1:])
    _, cpu, (k, labels) = timed(gaussians, logs, "diag", MAX_COMPONENTS, 0, reg_covar=1e-3)
    table.append(["GaussianMixture diag, BIC", k, "",
                  f"{adjusted_rand_score(y, labels):.3f}", f"{cpu:.1f}"])  # fmt: skip
    print_table(
        f"{n_rows:,} rows of {n_columns} negative binomial columns",
        ["method", "components", "held-out nats a row", "ARI", "CPU s"],
        table,
    )


def _true_log_joint(rows, rates, sizes):
    """Return the log joint density (n, K) of rows and clusters under the true parameters."""
    # Counts x and exposures, which are the last column.
    x, exposures = rows[:, None, :-1], rows[:, None, -1:]
    means = exposures * rates
    # The log weight of a cluster is divided among the columns, over which ``logs`` is summed.
    logs = gammaln(x + sizes) - gammaln(sizes) - gammaln(x + 1.0) - np.log(len(rates)) / x.shape[2]
    logs -= sizes * np.log1p(means / sizes) + x * np.log1p(sizes / means)
    return logs.sum(axis=2)


# ------------------------------------------------------------------------------------------- cells
def lines_of_cells(seed, n_rows, spread, n_lines=5, n_genes=500):
    """Return counts of genes (n, D), exposures (n,), and the line of each cell (n,).

    ``spread`` is the standard deviation of log rates between lines.
    """
    rng = np.random.default_rng(seed)
    common = np.exp(rng.normal(-0.5, 1.0, n_genes))
    rates = common * np.exp(rng.normal(0.0, spread, (n_lines, n_genes)))
    y = rng.integers(n_lines, size=n_rows)
    exposures = np.exp(rng.normal(0.0, 0.5, n_rows))
    sizes = rng.uniform(1.0, 5.0, n_genes)
    means = exposures[:, None] * rates[y] * rng.gamma(sizes, 1.0 / sizes, (n_rows, n_genes))
    return rng.poisson(means).astype(float), exposures, y


def genes_of(counts):
    """Return the block of all counts; the column after the counts has the exposures."""
    n_genes = counts.shape[1]
    return [("genes", NegativeBinomial(exposure=n_genes), slice(0, n_genes))]


def communities(X, seed, resolution):
    """Return Leiden communities of the graph of 15 nearest neighbours."""
    import igraph
    import leidenalg

    graph = kneighbors_graph(X, 15)
    graph = graph.maximum(graph.T).tocoo()
    # Take each edge of the symmetric matrix once.
    is_upper = graph.row < graph.col
    graph = igraph.Graph(len(X), np.column_stack([graph.row, graph.col])[is_upper].tolist())
    kind = leidenalg.RBConfigurationVertexPartition
    options = {"resolution_parameter": resolution, "seed": seed, "n_iterations": 2}
    return np.array(leidenalg.find_partition(graph, kind, **options).membership)


def cells_part(args):
    """Print the tables of the part ``cells``."""
    for spread_of_lines in args.cells_spreads:
        runs = {}
        for seed in range(args.cells_draws):
            for method, *result in lines_found(spread_of_lines, seed, args):
                runs.setdefault(method, []).append(result)
                print_progress("cells", spread_of_lines, seed, method, result)
        print_table(
            f"spread {spread_of_lines}: {args.cells_rows:,} cells, {args.cells_draws} draws",
            ["method", "components", "clusters", "ARI", "CPU s"],
            table_rows(runs, None, None, 3, 1),
        )


def lines_found(spread_of_lines, seed, args):
    """Yield method, components, clusters, ARI and CPU seconds of each method on one table."""
    counts, exposures, y = lines_of_cells(seed, args.cells_rows, spread_of_lines)
    X = np.column_stack([counts, exposures])

    def result(method, labels, cpu, n_components=None):
        """Return the results of a method."""
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
        """Return 20 principal components of log counts per 10,000."""
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
# Number of levels of an item.
LEVELS = 6
# For each method, a function of the number of items that returns the component, and a function that
# prepares the rows.
ORDINAL = {
    "LatentGaussian full": lambda D: (LatentGaussian(list(range(D)), "full"), np.asarray),
    "Categorical, prior 1": lambda D: (Categorical(1.0), np.asarray),
    "Categorical, prior learned": lambda D: (Categorical("auto"), np.asarray),
    "smooth categories": lambda D: (Bernoulli(), steps_of_levels),
}


def survey(seed, n_items, correlated, apart, n=2_000):
    """Draw levels (n, D) of items, and the class of each row.

    Items cut normal variates at their quantiles. Within a class they share a factor if
    ``correlated``. If ``apart``, the means of classes are 0, 4 and 8 deviations in each item.
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
    """Return a column for each item and each level but the last.

    It is 1 if the value is above the level, 0 if it is equal, and NaN if it is below.
    """
    return np.hstack([np.where(X >= c, X > c, np.nan) for c in range(LEVELS - 1)])


def ordinal_part(args):
    """Print the tables of the part ``ordinal``."""
    for apart, correlated in itertools.product((False, True), repeat=2):
        for n_items in [6] if apart else args.items:
            runs = {}
            for seed in range(args.ordinal_draws):
                X, y = survey(seed, n_items, correlated, apart)
                for method, make in ORDINAL.items():
                    spec, prepare = make(n_items)
                    rows, test = np.split(prepare(X), 2)
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
                table_rows(runs, 3, 2, None, 1),
            )


# ------------------------------------------------------------------------------------------ people
def people(seed, n=3_000):
    """Draw a data frame of people with missing values, and the kind of each person."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])

    def drawn(mean, deviation):
        """Draw normal numbers, by the mean and the deviation of each kind."""
        return rng.normal(np.array(mean)[kind], np.array(deviation)[kind])

    def chosen(names, chances):
        """Draw names, by their probabilities for each kind."""
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
    """Return standardised numbers and indicators of categories; ``logs`` is for amounts."""
    numbers = frame[REAL].fillna(frame[REAL].mean())
    if logs:
        numbers[["gains", "income"]] = np.log1p(numbers[["gains", "income"]])
    parts = [numbers, pd.get_dummies(frame[["education", "married"]])]
    return StandardScaler().fit_transform(np.column_stack(parts).astype(float))


# Names of the columns of numbers of people.
REAL = ["age", "hours", "gains", "income"]


def people_part(args):
    """Print the table of the part ``people``."""
    plain = [
        ("numbers", Gaussian("auto"), REAL),
        ("kinds", Categorical(), ["education", "married"]),
    ]
    runs = {}
    for seed in range(args.people_draws):
        frame, kind = people(seed)

        def ours(components, frame=frame, seed=seed):
            """Return the number of components and labels."""
            mixture = mixture_of(components, args, seed).fit(frame)
            return mixture.n_components_, mixture.labels_

        methods = {"MemoizedDPMixture": partial(ours, "auto"),
                   "MemoizedDPMixture, numbers as they are": partial(ours, plain)}  # fmt: skip
        for logs in (False, True):
            flat, how = indicators(frame, logs), "logarithms" if logs else "as they are"
            methods[f"GaussianMixture full, BIC, {how}"] = partial(
                gaussians, flat, "full", MAX_COMPONENTS, seed
            )
            methods[f"GaussianMixture diag, BIC, {how}"] = partial(
                gaussians, flat, "diag", MAX_COMPONENTS, seed, reg_covar=0.1
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
        table_rows(runs, None, 2, 1),
    )


def visits(seed, n, dispersion, mean_counts, smallest=0):
    """Draw a data frame of people with counts, and the kind of each person.

    ``mean_counts`` (3, 3) has the mean of each count for each kind. Given the kind, the variance of
    a count is mean + dispersion * mean^2. ``smallest`` is added to all counts.
    """
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    # Seven of ten people live in the region of their kind.
    region = np.where(rng.random(n) < 0.7, kind, rng.integers(3, size=n))
    frame = pd.DataFrame({
        "age": rng.normal(np.array([30.0, 45.0, 60.0])[kind], 8.0),
        "income": np.exp(rng.normal(np.array([7.0, 7.8, 7.4])[kind], 0.4)),
        "region": np.array(list("abc"))[region],
    })  # fmt: skip
    for name, column in zip(["visits", "pills", "calls"], np.transpose(mean_counts), strict=True):
        factors = rng.gamma(1.0 / dispersion, dispersion, n) if dispersion else 1.0
        frame[name] = smallest + rng.poisson(column[kind] * factors)
    return frame, kind


def visits_part(args):
    """Print the table of the part ``visits``."""
    numbers = ["age", "income", "visits", "pills", "calls"]
    plain = [
        ("numbers", Gaussian("auto", log="auto"), numbers),
        ("kinds", Categorical(), ["region"]),
    ]
    sizes = {"means .4 to 4": [[0.5, 1, 3], [2, 1, 1], [4, 3, 0.4]],
             "means 3 to 15": [[3, 5, 2], [8, 5, 6], [15, 12, 6]]}  # fmt: skip
    settings = [(*size, dispersion, 0) for size in sizes.items() for dispersion in (0.0, 0.5)]
    small = "means .4 to 4"
    settings.append((f"counts from 1 on, 1 + {small}", sizes[small], 0.5, 1))
    for title, mean_counts, dispersion, smallest in settings:
        runs = {}
        for n, seed in itertools.product(args.visits_rows, range(args.people_draws)):
            frame, kind = visits(seed, n, dispersion, mean_counts, smallest)

            def ours(components, frame=frame, seed=seed):
                """Return the number of components and labels."""
                mixture = mixture_of(components, args, seed).fit(frame)
                return mixture.n_components_, mixture.labels_

            parts = [
                frame[numbers].assign(income=np.log(frame["income"])),
                pd.get_dummies(frame.region),
            ]
            flat = StandardScaler().fit_transform(np.column_stack(parts).astype(float))
            means = KMeans(3, n_init=10, random_state=seed)
            methods = {
                "MemoizedDPMixture": partial(ours, "auto"),
                "MemoizedDPMixture, all numbers Gaussian": partial(ours, plain),
                "GaussianMixture full, BIC, logarithms": partial(
                    gaussians, flat, "full", MAX_COMPONENTS, seed
                ),
                "k-means told 3, logarithms": partial(
                    lambda means, flat: (3, means.fit_predict(flat)), means, flat
                ),
            }  # fmt: skip
            for method, labels_of in methods.items():
                _, cpu, (number, labels) = timed(labels_of)
                result = number, adjusted_rand_score(kind, labels), cpu
                runs.setdefault(f"{n:,} rows: {method}", []).append(result)
                print_progress("visits", title, dispersion, n, seed, method, result)
        print_table(
            f"{title}, dispersion {dispersion}: three kinds of people, {args.people_draws} draws",
            ["method", "clusters", "ARI", "CPU s"],
            table_rows(runs, None, 2, 1),
        )


def factors(seed, n, n_columns, n_classes):
    """Draw rows (n, D) of classes with five common factors within each class, and the classes.

    Two classes are about 6 sqrt(2) standard deviations of the noise apart. A factor varies more.
    """
    rng = np.random.default_rng(seed)
    kind = rng.integers(n_classes, size=n)
    means = rng.normal(size=(n_classes, n_columns)) * 6.0 / np.sqrt(n_columns)
    loadings = 0.7 * rng.normal(size=(5, n_columns))
    noise = rng.normal(size=(n, n_columns))
    return means[kind] + rng.normal(size=(n, 5)) @ loadings + noise, kind


def factors_part(args):
    """Print the table of the part ``factors``."""
    rows = []
    for n, n_columns, n_classes in [(1_000, 20, 3), (1_000, 40, 6), (1_000, 60, 3), (3_000, 60, 6)]:
        runs = {}
        for seed in range(args.factors_draws):
            # The second half of the rows is not fitted.
            X, kind = factors(seed, 2 * n, n_columns, n_classes)
            X, X_new, kind = X[:n], X[n:], kind[:n]

            def ours(components, seed=seed, X=X, X_new=X_new):
                """Return the number of components, labels and the mean density of new rows."""
                mixture = mixture_of(components, args, seed).fit(X)
                return mixture.n_components_, mixture.labels_, mixture.score(X_new)

            def peer(covariance_type, seed=seed, X=X, X_new=X_new):
                """Return the same of scikit-learn's mixture with the lowest BIC."""
                mixture = fit_gaussian_grid(
                    X, MAX_COMPONENTS, [covariance_type], n_init=3, random_state=seed
                )
                return mixture.n_components, mixture.predict(X), mixture.score(X_new)

            means = KMeans(n_classes, n_init=10, random_state=seed)
            methods = {
                "MemoizedDPMixture": partial(ours, "auto"),
                "MemoizedDPMixture, separate factors": partial(
                    ours, [("x", Gaussian("low_rank"), slice(None))]
                ),
                "GaussianMixture full, BIC": partial(peer, "full"),
                "GaussianMixture tied, BIC": partial(peer, "tied"),
                "k-means told the number": lambda means=means, X=X: (
                    means.n_clusters, means.fit_predict(X), np.nan,
                ),
            }  # fmt: skip
            for method, fit in methods.items():
                _, cpu, (number, labels, density) = timed(fit)
                result = number, adjusted_rand_score(kind, labels), density, cpu
                runs.setdefault(method, []).append(result)
                print_progress("factors", n, n_columns, n_classes, seed, method, result)
        table = f"{n:,} x {n_columns}"
        rows += [[table, n_classes, *row] for row in table_rows(runs, None, 2, 2, 1)]
    print_table(
        f"Classes under five common factors, {args.factors_draws} draws",
        [
            "rows x columns",
            "classes",
            "method",
            "clusters",
            "ARI",
            "held-out nats per row",
            "CPU s",
        ],
        rows,
    )


def rivals_part(args):
    """Print the table of the part ``rivals``."""
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
        table_rows(runs, None, 2, 1),
    )


# ------------------------------------------------------------------------------------------- given
def draw_shifted(seed, apart, n=500, D=5):
    """Draw a table whose columns depend on classes and on two categories, and the classes."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(size, size=n) for size in (3, 2, 3)]
    # Shifts of the numbers by class, and by each of the two categories.
    shifts = [apart / np.sqrt(2.0) * np.eye(3, D)]
    shifts += [4.0 * rng.normal(size=(size, D)) for size in (2, 3)]
    numbers = sum(shift[code] for shift, code in zip(shifts, codes, strict=True))
    table = pd.DataFrame(numbers + rng.normal(size=(n, D)), columns=[f"x{d}" for d in range(D)])
    for name in ("a", "b"):
        odds = sum(2.0 * rng.normal(size=(code.max() + 1, 3))[code] for code in codes)
        table[name] = np.array(["p", "q", "r"])[(odds + rng.gumbel(size=odds.shape)).argmax(axis=1)]
    classes, sex, season = codes
    table["sex"], table["season"] = (np.array(list("stuv"))[code] for code in (sex, season))
    return table, classes


def given_part(args):
    """Print the tables of the part ``given``."""
    given = ["sex", "season"]
    for apart in (4.0, 7.0):
        runs = {}
        for seed in range(args.given_draws):
            table, kind = draw_shifted(seed, apart)
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
            table_rows(runs, 1, 2, 2, 1),
        )


# ------------------------------------------------------------------------------------------ sparse
def signs(concentration, seed, n=300, n_rare=20):
    """Draw rows of 34 categorical signs, of which ``n_rare`` are of a rare class.

    Return the rows, held-out rows, and whether each of the first rows is of the rare class.
    """
    rng = np.random.default_rng(seed)
    usual = rng.dirichlet(np.full(4, concentration), 34)
    rare = usual.copy()
    rare[rng.choice(34, 10, replace=False)] = rng.dirichlet(np.full(4, concentration), 10)
    is_rare = np.concatenate([np.arange(n) < n_rare, np.arange(1_000) < 1_000 * n_rare / n])
    chances = np.where(is_rare[:, None, None], rare, usual).cumsum(axis=-1)
    codes = (rng.random((len(chances), 34, 1)) > chances[..., :-1]).sum(axis=-1)
    table = pd.DataFrame(codes).rename(columns=str).astype(pd.CategoricalDtype(range(4)))
    return table[:n], table[n:], is_rare[:n]


def draw_four_kinds(seed, n=300):
    """Draw rows of classes that differ in some columns; return them, held-out rows and classes."""
    rng = np.random.default_rng(seed)
    n_classes = rng.integers(2, 7)
    kind = rng.choice(n_classes, 2 * n, p=rng.dirichlet(np.full(n_classes, 3.0)))

    def parameters(draw):
        """Return a parameter for each row; classes differ with probability 0.4."""
        chance = rng.random((n_classes, *(1,) * np.ndim(draw())))
        return np.where(chance < 0.4, np.array([draw() for _ in range(n_classes)]), draw())[kind]

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
    """Print the tables of the part ``sparse``."""

    def named(word):
        """Return a selector of the columns whose names start with ``word``."""
        return lambda table: [name for name in table if name.startswith(word)]

    four_kinds = [
        ("categories", Categorical(), named("category")), ("flags", Bernoulli(), named("flag")),
        ("numbers", Gaussian("diag"), named("number")), ("counts", Poisson(), named("count")),
    ]  # fmt: skip
    for title, draw, components in (
        ("Signs, a rare class, concentration .5", partial(signs, 0.5), "auto"),
        ("Signs, a rare class, concentration 1", partial(signs, 1.0), "auto"),
        ("Four kinds of columns", draw_four_kinds, four_kinds),
    ):
        runs = {}
        for seed in range(args.sparse_draws):
            table, test, kind = draw(seed)
            for on in (False, True):
                mixture = mixture_of(components, args, seed, sparse_differences=on)
                _, cpu, mixture = timed(mixture.fit, table)
                index = adjusted_rand_score(kind, mixture.labels_)
                result = mixture.n_components_, index > 0.5, index, mixture.score(test), cpu
                runs.setdefault(f"sparse_differences={on}", []).append(result)
                print_progress("sparse", title, seed, on, result)
        print_table(
            f"{title}: {args.sparse_draws} draws",
            ["method", "components", "share of draws with ARI above .5", "ARI",
             "held-out nats per row", "CPU s"],
            table_rows(runs, 1, 2, 2, 2, 1),
        )  # fmt: skip


# ----------------------------------------------------------------------------------------- weights
def draw_weighted(seed, weight_of_class, deviation, n=1_500):
    """Draw a table of three classes with weights, further rows with weights, and the classes.

    ``deviation`` is the standard deviation of the logarithms of weights within a class.
    """
    rng = np.random.default_rng(seed)
    kind = np.tile([0, 1, 2], 2 * n // 3)
    table = pd.DataFrame(rng.normal(size=(2 * n, 10)) + 1.5 * rng.normal(size=(3, 10))[kind])
    table = table.add_prefix("number")
    for j in range(10):
        chances = rng.dirichlet(np.full(5, 2.0), 3)[kind].cumsum(axis=1)
        table[f"category{j}"] = np.array(list("abcde"))[
            (rng.random((2 * n, 1)) > chances[:, :-1]).sum(axis=1)
        ]
    weights = np.array(weight_of_class)[kind] * np.exp(deviation * rng.normal(size=2 * n))
    return table[:n], weights[:n], table[n:], weights[n:], kind[:n]


def weights_part(args):
    """Print the tables of the part ``weights``."""
    for title, weight_of_class, deviation in (
        ("by class", (0.5, 1.0, 2.5), 0.0),
        ("by chance", (1.0, 1.0, 1.0), 0.5),
        ("both", (0.5, 1.0, 2.5), 0.5),
    ):
        runs = {}
        for seed in range(args.weights_draws):
            table, weights, test, test_weights, kind = draw_weighted(
                seed, weight_of_class, deviation
            )
            scaled = weights / weights.mean()
            for method, fit_weights, first in (
                ("no weights", None, False),
                ("weights / mean", scaled, False),
                ("effective number of rows", scaled / np.mean(scaled**2), False),
                ("no weights, then weights / mean", scaled, True),
            ):
                mixture = mixture_of("auto", args, seed, warm_start=True)
                if first:
                    mixture.fit(table).set_params(moves=())
                _, cpu, mixture = timed(mixture.fit, table, sample_weight=fit_weights)
                score = mixture.score(test, sample_weight=test_weights)
                index = adjusted_rand_score(kind, mixture.labels_)
                runs.setdefault(method, []).append((mixture.n_components_, index, score, cpu))
                print_progress("weights", title, seed, method, runs[method][-1])
        print_table(
            f"{title}: weights of 1,500 people of three classes, {args.weights_draws} draws",
            ["fit", "components", "ARI", "held-out nats per person", "CPU s"],
            table_rows(runs, None, 2, 2, 1),
        )


def main():
    args = arguments()
    libraries = ["stepmix", "kmodes"] if "peers" in args.parts else []
    optional = {"rivals": RIVALS, "cells": COMMUNITIES}
    print_header(
        args, *libraries, optional=[x for part in args.parts for x in optional.get(part, ())]
    )
    run = {"peers": peers_part, "imputation": imputation_part, "counts": counts_part,
           "cells": cells_part, "ordinal": ordinal_part, "people": people_part,
           "visits": visits_part, "factors": factors_part, "rivals": rivals_part,
           "given": given_part, "sparse": sparse_part, "weights": weights_part}  # fmt: skip
    with limited_to_cores(args.cores):
        compile_all(args)
        for part in args.parts:
            run[part](args)


if __name__ == "__main__":
    main()
