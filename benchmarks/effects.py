"""Effects of covariates: how often 95 % intervals cover planted effects, and how biased they are.

- ``topics``: corpora of short and long documents, whose expected shares of topics are linear in
  two covariates. Intervals of several fits, of one fit, of the true topics, and of draws of
  proportions from each document's posterior, whose prior does not know the covariates.
- ``classes``: the simulation of Bakk and Kuha (2018), three classes and six binary items: the mean
  of an outcome in each class, and classes on a covariate; beside means by posterior probabilities.
- ``posts``: with ``--data`` political posts, how far effects of two disjoint sets of fits agree.
"""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _common import cores, parser, print_header, print_table, progress, spread, timed
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax
from scipy.stats import t as student
from sklearn.base import BaseEstimator

from skvt import MemoizedDPMixture, StructuredLDA, covariate_effects, outcome_by_cluster
from skvt.components import Bernoulli
from skvt.metrics import match_components

# Words of a document, and documents of a corpus.
SIZES = {10: 3_000, 40: 2_000, 200: 1_000}
N_TOPICS = 10
N_WORDS = 500
SEPARATIONS = (0.7, 0.8, 0.9)
OUTCOMES = np.array([-1.0, 1.0, 0.0])


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("parts", nargs="*", default=["topics", "classes"], help="posts needs --data")
    p.add_argument("--draws", type=int, default=5, help="corpora of each length")
    p.add_argument("--fits", type=int, default=4)
    p.add_argument("--tables", type=int, default=100, help="of each separation")
    p.add_argument("--rows", type=int, default=1_000, help="of each table")
    p.add_argument("--post-fits", type=int, default=8, help="fits in each of two sets")
    p.add_argument("--data", help="a folder with poliblog5k/counts.npz and meta.csv")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="1 corpus of each length, 10 tables")
    args = p.parse_args()
    if args.quick:
        args.draws, args.tables = 1, 10
    return args


# -------------------------------------------------------------------------------------- topics
def planted(n, length, rng):
    """Counts, covariates (n, 2), topics, and effects (2, K) on expected shares."""
    topics = rng.dirichlet(np.full(N_WORDS, 0.05), N_TOPICS)
    mean = rng.dirichlet(np.full(N_TOPICS, 5.0))
    effects = np.clip(0.3 * mean * rng.standard_normal((2, N_TOPICS)), -0.4 * mean, 0.4 * mean)
    effects -= effects.mean(axis=1, keepdims=True)
    covariates = np.c_[rng.integers(2, size=n) - 0.5, rng.uniform(-1.0, 1.0, n)]
    shares = np.maximum(mean + covariates @ effects, 1e-3)
    shares /= shares.sum(axis=1, keepdims=True)
    tokens = rng.multinomial(length, [rng.dirichlet(row) for row in shares])
    counts = np.zeros((n, N_WORDS), np.int64)
    for k, topic in enumerate(topics):
        documents = np.repeat(np.arange(n), tokens[:, k])
        np.add.at(counts, (documents, rng.choice(N_WORDS, documents.size, p=topic)), 1)
    return sp.csr_array(counts), covariates, topics, effects


class TrueTopics(BaseEstimator):
    """A fit that knows the topics."""

    def __init__(self, topics):
        self.components_ = self.exp_dirichlet_component_ = 1e12 * topics

    def fit(self, X):
        return self


def uncorrected(fit, X, covariates, seed, n_draws=25):
    """Effects and half widths, (2, P, K), by draws from each document's posterior."""
    rng = np.random.default_rng(seed)
    gamma = fit.transform(X, normalize=False)
    design = np.c_[np.ones(len(covariates)), covariates]
    bread = np.linalg.inv(design.T @ design)
    effects, squares = [], []
    for _ in range(n_draws):
        theta = rng.standard_gamma(gamma)
        theta /= theta.sum(axis=1, keepdims=True)
        b = bread @ design.T @ theta
        residuals = theta - design @ b
        scores = np.einsum("np,nk->knp", design @ bread, residuals)
        effects.append(b[1:])
        squares.append((scores**2).sum(axis=1).T[1:])
    variance = np.mean(squares, axis=0) + (1.0 + 1.0 / n_draws) * np.var(effects, axis=0, ddof=1)
    width = student.ppf(0.975, len(design) - 3) * np.sqrt(variance)
    return np.stack([np.mean(effects, axis=0), width])


def of_table(table, terms=("x0", "x1")):
    """Effects and half widths of a table of effects, (2, P, K)."""
    parts = [table[table["term"] == term] for term in terms]
    return np.stack(
        [[part["effect"] for part in parts], [(part["high"] - part["low"]) / 2 for part in parts]]
    )


def topics(args):
    rows = []
    for length, n in SIZES.items():
        scores = {}
        for draw in range(args.draws):
            X, covariates, truth, planted_effects = planted(n, length, np.random.default_rng(draw))
            fits = [StructuredLDA(N_TOPICS, random_state=s).fit(X) for s in range(args.fits)]
            options = {"random_state": 0}
            true = covariate_effects(TrueTopics(truth), X, covariates, **options)
            several = covariate_effects(fits, X, covariates, **options)
            single = covariate_effects(fits[0], X, covariates, **options)
            order, agreement = match_components(truth, fits[0].components_)
            estimates = {
                f"{args.fits} fits": of_table(several)[..., order],
                "1 fit": of_table(single)[..., order],
                "1 fit, posterior draws": uncorrected(fits[0], X, covariates, draw)[..., order],
                "true topics": of_table(true),
            }
            for name, (estimate, width) in estimates.items():
                covered = np.mean(abs(estimate - planted_effects) < width)
                slope = np.sum(planted_effects * estimate) / np.sum(planted_effects**2)
                scores.setdefault(name, []).append((covered, slope, 200.0 * width.mean()))
            progress(f"{length} words, corpus {draw}, topics correlate {agreement.mean():.3f}")
        for name, of_draws in scores.items():
            values = [spread(column, digits=3) for column in zip(*of_draws, strict=True)]
            rows.append([length, f"{n:,}", name, *values])
    header = ["words", "documents", "intervals", "coverage", "slope", "width (%)"]
    print_table(f"Planted effects on the shares of {N_TOPICS} topics", header, rows)


# ------------------------------------------------------------------------------------- classes
def drawn_classes(labels, separation, rng):
    """Six binary items of rows with these classes [Bakk and Kuha 2018, table 1]."""
    p = np.full((3, 6), 1.0 - separation)
    p[0] = p[1, :3] = separation
    return (rng.random((labels.size, 6)) < p[labels]).astype(float)


def class_fit(X, seed):
    """The best of 3 fits with three classes, and its class for each true one."""
    components = [("items", Bernoulli(), list(range(X.shape[1])))]
    mixture = MemoizedDPMixture(3, moves=(), components=components, n_init=3, random_state=seed)
    return mixture.fit(X), mixture.predict_proba(X)


def in_order(labels, responsibilities):
    """The cluster of each class."""
    return linear_sum_assignment(np.eye(3)[labels].T @ responsibilities, maximize=True)[1]


def classes(args):
    rows = []
    levels = np.arange(1, 6)
    intercepts = np.array([0.0, 2.34459467, -3.65540533])
    chances = softmax(np.outer(levels, [0.0, -1.0, 1.0]) + intercepts, axis=1)
    slopes = np.polyfit(levels, chances, 1)[0]
    for separation in SEPARATIONS:
        scores = {}
        for seed in range(args.tables):
            rng = np.random.default_rng(seed)
            labels = rng.integers(3, size=args.rows)
            X = drawn_classes(labels, separation, rng)
            outcome = OUTCOMES[labels] + rng.standard_normal(args.rows)
            mixture, r = class_fit(X, seed)
            order = in_order(labels, r)
            table = outcome_by_cluster(mixture, X, outcome, random_state=0).iloc[order]
            note(scores, "outcome, corrected", table, table["mean"], OUTCOMES)
            note(
                scores,
                "outcome, posterior means",
                None,
                (r.T @ outcome / r.sum(0))[order],
                OUTCOMES,
            )
            x = rng.integers(1, 6, args.rows)
            labels = (rng.random((args.rows, 1)) > chances[x - 1].cumsum(axis=1)).sum(axis=1)
            X = drawn_classes(labels, separation, rng)
            mixture, r = class_fit(X, seed)
            order = in_order(labels, r)
            table = covariate_effects(mixture, X, x, random_state=0)
            table = table[table["term"] == "x0"].iloc[order]
            note(scores, "covariate, corrected", table, table["effect"], slopes)
            note(scores, "covariate, posterior means", None, np.polyfit(x, r, 1)[0][order], slopes)
            if seed % 25 == 24:
                progress(f"separation {separation}, {seed + 1} tables")
        for name, (estimates, truth, covered) in scores.items():
            middle = np.median(estimates, axis=0)
            ratio = np.sum(middle * truth) / np.sum(truth**2)
            rows.append(
                [separation, name, f"{ratio:.3f}", f"{np.mean(covered):.3f}" if covered else "-"]
            )
    print_table(
        f"Three classes, {args.rows:,} rows, {args.tables} tables",
        ["separation", "estimates", "median / truth", "coverage"], rows,
    )  # fmt: skip


def note(scores, name, table, estimate, truth):
    """Add the estimates of one table, and whether its intervals cover the truth."""
    estimates, _, covered = scores.setdefault(name, ([], truth, []))
    estimates.append(np.asarray(estimate))
    if table is not None:
        covered.append((table["low"] < truth) & (truth < table["high"]))


# --------------------------------------------------------------------------------------- posts
def posts(args):
    folder = Path(args.data) / "poliblog5k"
    X = sp.csr_array(sp.load_npz(folder / "counts.npz"))
    used = np.flatnonzero(X.sum(axis=1))
    X, rating = X[used], pd.read_csv(folder / "meta.csv")["rating"].to_numpy()[used]
    n, fits, seconds = args.post_fits, [], 0.0
    for seed in range(2 * n):
        _, cpu, fit = timed(StructuredLDA(15, random_state=seed).fit, X)
        fits.append(fit)
        seconds += cpu / 2
        progress(f"fit {seed}, {cpu:.1f} CPU s")
    alone = [(fits[i : i + 1], fits[n + i : n + i + 1]) for i in range(n)]
    rows = []
    for name, pairs in ("1", alone), (str(n), [(fits[:n], fits[n:])]):
        _, cpu, compared = timed(lambda pairs=pairs: [compare(*pair, X, rating) for pair in pairs])
        values = [spread(column, digits=3) for column in zip(*compared, strict=True)]
        cpu = (seconds + cpu / 2) if name != "1" else seconds / n + cpu / 2 / n
        rows.append([name, *values, f"{cpu:.0f}"])
    header = ["fits", "correlation", "excluding 0", "same sign of these", "width (%)", "CPU s"]
    print_table("Effect of rating on 15 topics of political posts, two sets of fits", header, rows)


def compare(one, other, X, rating):
    """Correlation of the effects of two sets; of those that exclude 0, number and same sign."""
    tables = [covariate_effects(fits, X, rating, random_state=0) for fits in (one, other)]
    first, second = (of_table(table, table["term"].unique()[1:])[:, 0] for table in tables)
    second = second[:, match_components(one[0].components_, other[0].components_)[0]]
    excludes = (abs(first[0]) > first[1]) | (abs(second[0]) > second[1])
    same = np.sign(first[0]) == np.sign(second[0])
    width = 200.0 * np.mean([first[1], second[1]])
    return np.corrcoef(first[0], second[0])[0, 1], excludes.sum(), same[excludes].mean(), width


# ---------------------------------------------------------------------------------------- main
def main():
    args = arguments()
    warnings.simplefilter("ignore")
    print_header(args)
    with cores(args.cores):
        for part in args.parts:
            {"topics": topics, "classes": classes, "posts": posts}[part](args)


if __name__ == "__main__":
    main()
