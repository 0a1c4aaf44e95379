"""Effects of covariates: how often 95 % intervals cover planted effects, and how biased they are.

- ``topics``: corpora of short and long documents, whose expected shares of topics are linear in
  two covariates. Intervals of several fits, of one fit, of the true topics, and of draws of
  proportions from each document's posterior, whose prior does not know the covariates.
- ``classes``: the simulation of Bakk and Kuha (2018), three classes and six binary items: the mean
  of an outcome in each class, and classes on a covariate; compared with means by posterior
  probabilities, and with three steps of stepmix, without correction, by BCH and by ML.
- ``prior``: how well topics whose document prior depends on covariates predict the other words of
  drawn short documents, beside fits without covariates and the true model, and the time of a pass.
- ``held-out-posts``: with ``--data`` political posts, the same for 5, 20 and 100 seen words.
- ``posts``: with ``--data`` political posts, how far effects of two disjoint sets of fits agree,
  and effects of matched topics of two fits by the mass of words that these topics share.
- ``stm``: with ``--data`` political posts, the same for pairs of fits of topica's STM.
"""

import warnings
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _common import (
    format_mean,
    learn_prior,
    limited_to_cores,
    parser,
    print_header,
    print_progress,
    print_table,
    timed,
)
from _peers import list_tokens, reorder_topics
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax
from scipy.stats import t as student
from sklearn.base import BaseEstimator

from skvt import (
    MemoizedDPMixture,
    StructuredLDA,
    TemperedLDA,
    covariate_effects,
    outcome_by_cluster,
)
from skvt._results._consensus import match_topics, topic_distributions
from skvt.components import Bernoulli
from skvt.metrics import match_components

# Words of a document, and documents of a corpus.
SIZES = {10: 3_000, 40: 2_000, 200: 1_000}
N_TOPICS = 10
N_WORDS = 500
OUTCOMES = np.array([-1.0, 1.0, 0.0])


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument(
        "parts",
        nargs="*",
        default=["topics", "classes"],
        help="posts, held-out-posts and stm need --data",
    )
    p.add_argument("--draws", type=int, default=5, help="corpora of each length")
    p.add_argument("--fits", type=int, default=4)
    p.add_argument("--tables", type=int, default=100, help="of each separation")
    p.add_argument("--first-table", type=int, default=0, help="the seed of the first table")
    p.add_argument("--separations", type=float, nargs="+", default=[0.7, 0.8, 0.9])
    p.add_argument("--peer-tables", type=int, default=10, help="of each separation, for stepmix")
    p.add_argument("--peer-pairs", type=int, default=3, help="pairs of fits of topica")
    p.add_argument("--rows", type=int, default=1_000, help="of each table")
    p.add_argument("--post-fits", type=int, default=8, help="fits in each of two sets")
    p.add_argument("--data", help="a folder with poliblog5k/counts.npz and meta.csv")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="1 corpus of each length, 10 tables")
    args = p.parse_args()
    if args.quick:
        args.draws, args.tables, args.peer_tables = 1, 10, 3
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
            print_progress(
                f"{length} words, corpus {draw}, topics correlate {agreement.mean():.3f}"
            )
        for name, of_draws in scores.items():
            values = [format_mean(column, digits=3) for column in zip(*of_draws, strict=True)]
            rows.append([length, f"{n:,}", name, *values])
    header = ["words", "documents", "intervals", "coverage", "slope", "width (%)"]
    print_table(f"Planted effects on the shares of {N_TOPICS} topics", header, rows)


# ------------------------------------------------------------------------------------- classes
def item_probabilities(separation):
    """Probabilities of six binary items in three classes [Bakk and Kuha 2018, table 1]."""
    p = np.full((3, 6), 1.0 - separation)
    p[0] = p[1, :3] = separation
    return p


def drawn_classes(labels, separation, rng):
    """Six binary items of rows with these classes."""
    return (rng.random((labels.size, 6)) < item_probabilities(separation)[labels]).astype(float)


def class_fit(X, seed):
    """The best of 3 fits with three classes, and its probabilities of classes."""
    components = [("items", Bernoulli(), list(range(X.shape[1])))]
    mixture = MemoizedDPMixture(3, moves=(), components=components, n_init=3, random_state=seed)
    return mixture.fit(X), mixture.predict_proba(X)


def in_order(labels, responsibilities):
    """The cluster of each class."""
    return linear_sum_assignment(np.eye(3)[labels].T @ responsibilities, maximize=True)[1]


def orders(labels, mixture, X, r):
    """The cluster of each class in the refit, on which tables are based, and in the mixture."""
    refit = mixture._make_refits(X, np.ones(len(X))).resp
    return in_order(labels, refit), in_order(labels, r)


def classes(args):
    rows = []
    levels = np.arange(1, 6)
    intercepts = np.array([0.0, 2.34459467, -3.65540533])
    chances = softmax(np.outer(levels, [0.0, -1.0, 1.0]) + intercepts, axis=1)
    slopes = np.polyfit(levels, chances, 1)[0]
    for separation in args.separations:
        scores = {}
        for seed in range(args.first_table, args.first_table + args.tables):
            rng = np.random.default_rng(seed)
            labels = rng.integers(3, size=args.rows)
            X = drawn_classes(labels, separation, rng)
            outcome = OUTCOMES[labels] + rng.standard_normal(args.rows)
            mixture, r = class_fit(X, seed)
            order, of_fit = orders(labels, mixture, X, r)
            table = outcome_by_cluster(mixture, X, outcome, random_state=0).iloc[order]
            note(scores, "outcome, corrected", table, table["mean"], OUTCOMES)
            means = (r.T @ outcome / r.sum(0))[of_fit]
            note(scores, "outcome, posterior means", None, means, OUTCOMES)
            peers = ["naive", "BCH", "ML"] if seed < args.peer_tables else []
            for name, found in three_steps(peers, X, outcome, "gaussian_unit", seed, separation):
                note(scores, f"outcome, stepmix {name}", None, found["means"][:, 0], OUTCOMES)
            x = rng.integers(1, 6, args.rows)
            labels = (rng.random((args.rows, 1)) > chances[x - 1].cumsum(axis=1)).sum(axis=1)
            X = drawn_classes(labels, separation, rng)
            mixture, r = class_fit(X, seed)
            order, of_fit = orders(labels, mixture, X, r)
            table = covariate_effects(mixture, X, x, random_state=0)
            table = table[table["term"] == "x0"].iloc[order]
            note(scores, "covariate, corrected", table, table["effect"], slopes)
            note(scores, "covariate, posterior means", None, np.polyfit(x, r, 1)[0][of_fit], slopes)
            x = x.astype(float)
            for name, found in three_steps(peers, X, x, "covariate", seed, separation):
                beta = found["beta"]
                shares = softmax(beta[:, 0] + np.outer(levels, beta[:, 1]), axis=1)
                estimate = np.polyfit(levels, shares, 1)[0]
                note(scores, f"covariate, stepmix {name}", None, estimate, slopes)
            if seed % 10 == 9:
                print_progress(f"separation {separation}, {seed + 1} tables")
        for name, (estimates, truth, covered) in scores.items():
            middle = np.median(estimates, axis=0)
            ratio = np.sum(middle * truth) / np.sum(truth**2)
            error = np.median(np.abs(np.array(estimates) - truth))
            coverage = [f"{part:.3f}" for part in coverage_of(covered)] if covered else ["-", "-"]
            rows.append(
                [separation, name, len(estimates), f"{ratio:.3f}", f"{error:.3f}", *coverage]
            )
    header = ["separation", "estimates", "tables", "median / truth", "median error", "coverage"]
    print_table(f"Three classes, {args.rows:,} rows", [*header, "standard error"], rows)


def coverage_of(covered):
    """The share of intervals that cover, and its standard error; intervals of a table depend."""
    shares = np.mean(covered, axis=1)
    return shares.mean(), shares.std(ddof=1) / np.sqrt(len(shares))


def three_steps(corrections, X, outside, structural, seed, separation):
    """The structural parameters of stepmix by each correction, in the order of the classes."""
    from stepmix.stepmix import StepMix

    for name in corrections:
        correction = None if name == "naive" else name
        model = StepMix(
            3, n_steps=3, measurement="bernoulli", structural=structural, correction=correction,
            n_init=3, random_state=seed, progress_bar=0,
        ).fit(X, outside[:, None])  # fmt: skip
        found = model.get_parameters()
        distances = cdist(item_probabilities(separation), found["measurement"]["pis"])
        order = linear_sum_assignment(distances)[1]
        yield name, {key: value[order] for key, value in found["structural"].items()}


def note(scores, name, table, estimate, truth):
    """Add the estimates of one table, and whether its intervals cover the truth."""
    estimates, _, covered = scores.setdefault(name, ([], truth, []))
    estimates.append(np.asarray(estimate))
    if table is not None:
        covered.append((table["low"] < truth) & (truth < table["high"]))


# --------------------------------------------------------------------------------------- prior
def of_regression(n, length, rng):
    """Counts, covariates (n, 2), topics, and alpha (n, K), log-linear in the covariates."""
    topics = rng.dirichlet(np.full(N_WORDS, 0.05), N_TOPICS)
    covariates = np.c_[rng.integers(2, size=n), rng.standard_normal(n)]
    slopes = rng.normal(0.0, 1.0, (2, N_TOPICS))
    alpha = np.exp(np.log(0.1) + (covariates - [0.5, 0.0]) @ slopes)
    shares = rng.standard_gamma(alpha) + 1e-300
    shares /= shares.sum(axis=1, keepdims=True)
    chances = shares @ topics
    counts = rng.multinomial(length, chances / chances.sum(axis=1, keepdims=True))
    return sp.csr_array(counts), covariates, topics, alpha


def seen_and_others(X, n_seen, rng):
    """Counts of ``n_seen`` tokens of each document drawn at random, and of its other tokens."""
    X = sp.csr_array(X)
    drawn = [
        rng.multivariate_hypergeometric(X.data[i:j].astype(int), n_seen)
        for i, j in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    seen = sp.csr_array((np.concatenate(drawn), X.indices, X.indptr), X.shape)
    return seen, sp.csr_array(X - seen)


def by_draws(seen, others, topics, alpha, seed, n_draws=2_000):
    """Log probability of the other words given those seen, nats per word, by drawn proportions."""
    rng, total = np.random.default_rng(seed), 0.0
    logs = np.log(np.maximum(topics, 1e-30))
    for d, of_prior in enumerate(np.broadcast_to(alpha, (seen.shape[0], len(topics)))):
        theta = rng.standard_gamma(of_prior, (n_draws, len(topics))) + 1e-300
        theta /= theta.sum(axis=1, keepdims=True)
        first, rest = seen[[d]], others[[d]]
        before = np.log(theta @ np.exp(logs[:, first.indices])) @ first.data
        after = np.log(theta @ np.exp(logs[:, rest.indices]))
        total += (logsumexp(before[:, None] + after, axis=0) - logsumexp(before)) @ rest.data
    return total / others.sum()


def alpha_of(fit, covariates=None):
    """alpha of each document of a fit."""
    if covariates is None:
        return fit.doc_topic_prior_
    design = np.c_[np.ones(len(covariates)), covariates]
    return np.exp(design @ np.asarray(fit.covariate_coef_).T)


def word_probabilities(fit):
    return fit.components_ / fit.components_.sum(axis=1, keepdims=True)


FITTED = {
    "StructuredLDA": lambda seed: StructuredLDA(N_TOPICS, random_state=seed),
    "StructuredLDA, 40 passes": lambda seed: StructuredLDA(
        N_TOPICS, max_iter=40, doc_topic_prior="auto", random_state=seed
    ),
    "TemperedLDA": lambda seed: TemperedLDA(N_TOPICS, doc_topic_prior="auto", random_state=seed),
}


def prior(args):
    n_train, n_test, length, n_seen = 3_000, 500, 12, 6
    scores = {}
    for draw in range(args.draws):
        rng = np.random.default_rng(draw)
        X, covariates, topics, alpha = of_regression(n_train + n_test, length, rng)
        train, test = slice(0, n_train), slice(n_train, None)
        parts = seen_and_others(X[test], n_seen, rng)
        common = learn_prior(X[train], topics, 0.1)
        true = by_draws(*parts, topics, alpha[test], draw)
        gain = true - by_draws(*parts, topics, common, draw)
        scores.setdefault("true model", []).append((true - gain, true, 1.0, np.nan))
        for name, make in FITTED.items():
            if draw == 0:  # compile before times are taken
                make(draw).fit(X[:200]), make(draw).fit(X[:200], covariates=covariates[:200])
            _, plain_cpu, plain = timed(make(draw).fit, X[train])
            _, cpu, fit = timed(make(draw).fit, X[train], covariates=covariates[train])
            before = by_draws(*parts, word_probabilities(plain), alpha_of(plain), draw)
            at = covariates[test]
            after = by_draws(*parts, word_probabilities(fit), alpha_of(fit, at), draw)
            share, times = (after - before) / gain, cpu / plain_cpu
            scores.setdefault(name, []).append((before, after, share, times))
            print_progress(
                f"corpus {draw}, {name}: {share:.2f} of the gain, {times:.2f} of the time"
            )
    rows = [
        [name, *(format_mean(column, digits=3) for column in zip(*values, strict=True))]
        for name, values in scores.items()
    ]
    header = ["fit", "without", "with covariates", "share of the true gain", "time"]
    title = f"Nats per word given {n_seen} words, {n_train:,} drawn documents of {length} words"
    print_table(title, header, rows)


def held_out_posts(args):
    folder = Path(args.data) / "poliblog5k"
    X = sp.csr_array(sp.load_npz(folder / "counts.npz"))
    meta = pd.read_csv(folder / "meta.csv")[["rating", "day"]]
    used = np.flatnonzero(X.sum(axis=1) >= 110)
    test = used[np.random.default_rng(0).permutation(used.size)[:500]]
    train = np.setdiff1d(np.flatnonzero(X.sum(axis=1)), test)
    parts = {n: seen_and_others(X[test], n, np.random.default_rng(n)) for n in (5, 20, 100)}
    scores, times = {}, []
    for seed in range(args.draws):
        fits = {}
        for covariates in None, meta:
            options = {} if covariates is None else {"covariates": covariates.iloc[train]}
            lda = StructuredLDA(20, random_state=seed)
            _, cpu, fit = timed(lda.fit, X[train], **options)
            fits[covariates is None] = fit, cpu
        times.append(fits[False][1] / fits[True][1])
        for n, (seen, others) in parts.items():
            values = [
                completed(fits[True][0], seen, others, {}),
                completed(fits[False][0], seen, others, {"covariates": meta.iloc[test]}),
            ]
            scores.setdefault(n, []).append((*values, values[1] - values[0]))
        print_progress(f"seed {seed}: {times[-1]:.2f} of the time")
    rows = [
        [
            n,
            *(format_mean(column, digits=4) for column in zip(*values, strict=True)),
            format_mean(times),
        ]
        for n, values in scores.items()
    ]
    header = ["seen words", "without", "with covariates", "gain", "time"]
    print_table("Nats per word of 500 political posts, covariates rating and day", header, rows)


def completed(fit, seen, others, options):
    """Log probability of the other words, nats per word, at the proportions of those seen."""
    chances = fit.transform(seen, **options) @ word_probabilities(fit)
    rows, words = others.nonzero()
    return (others[rows, words] * np.log(chances[rows, words])).sum() / others.sum()


# --------------------------------------------------------------------------------------- posts
def read_posts(args):
    """Counts of the posts that have words, and what is known of each post."""
    folder = Path(args.data) / "poliblog5k"
    X = sp.csr_array(sp.load_npz(folder / "counts.npz"))
    used = np.flatnonzero(X.sum(axis=1))
    return X[used], pd.read_csv(folder / "meta.csv").iloc[used].reset_index(drop=True)


def posts(args):
    X, meta = read_posts(args)
    rating = meta["rating"].to_numpy()
    n, fits, seconds = args.post_fits, [], 0.0
    for seed in range(2 * n):
        _, cpu, fit = timed(StructuredLDA(15, random_state=seed).fit, X)
        fits.append(fit)
        seconds += cpu / 2
        print_progress(f"fit {seed}, {cpu:.1f} CPU s")
    alone = [(fits[i : i + 1], fits[n + i : n + i + 1]) for i in range(n)]
    rows = []
    for name, pairs in ("1", alone), (str(n), [(fits[:n], fits[n:])]):
        _, cpu, compared = timed(lambda pairs=pairs: [compare(*pair, X, rating) for pair in pairs])
        values = [format_mean(column, digits=3) for column in zip(*compared, strict=True)]
        cpu = (seconds + cpu / 2) if name != "1" else seconds / n + cpu / 2 / n
        rows.append([name, *values, f"{cpu:.0f}"])
    header = ["fits", "correlation", "excluding 0", "same sign of these", "width (%)", "CPU s"]
    print_table("Effect of rating on 15 topics of political posts, two sets of fits", header, rows)
    print_table(
        f"Effects on matched topics in all pairs of {2 * n} fits, by the mass that they share",
        ["shared mass", "pairs of topics", "correlation", "same sign", "typical difference (%)"],
        by_shared_mass(fits, X, rating),
    )


def by_shared_mass(fits, X, rating):
    """Rows of a table: how far effects on matched topics of two fits agree, by shared mass."""
    tables = [covariate_effects(fit, X, rating, n_draws=2, random_state=0) for fit in fits]
    effects = [of_table(table, table["term"].unique()[1:])[0, 0] for table in tables]
    topics, pairs = topic_distributions(fits), []
    for i, j in combinations(range(len(fits)), 2):
        mass, of_first, of_second = match_topics(topics[i], topics[j])
        pairs.append([mass, effects[i][of_first], effects[j][of_second]])
    mass, first, second = np.concatenate(pairs, axis=1)
    rows = []
    for low, high in pairwise([0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]):
        part = (low <= mass) & (mass < high)
        one, other = first[part], second[part]
        correlation = np.corrcoef(one, other)[0, 1] if part.sum() > 2 else np.nan
        same_sign = np.mean(np.sign(one) == np.sign(other))
        difference = 100.0 * np.median(abs(one - other))
        numbers = [f"{correlation:.2f}", f"{same_sign:.2f}", f"{difference:.1f}"]
        rows.append([f"{low} to {high}", part.sum(), *numbers])
    return rows


def compare(one, other, X, rating):
    """The agreement of the effects of two sets of fits."""
    tables = [covariate_effects(fits, X, rating, random_state=0) for fits in (one, other)]
    first, second = (of_table(table, table["term"].unique()[1:])[:, 0] for table in tables)
    return agree(first, second[:, match_components(one[0].components_, other[0].components_)[0]])


def agree(first, second):
    """Correlation of two analyses; of effects that exclude 0, number and same sign; mean width.

    Each analysis has an effect and half the width of its interval for each topic, (2, K).
    """
    excludes = (abs(first[0]) > first[1]) | (abs(second[0]) > second[1])
    same = np.sign(first[0]) == np.sign(second[0])
    width = 200.0 * np.mean([first[1], second[1]])
    return np.corrcoef(first[0], second[0])[0, 1], excludes.sum(), same[excludes].mean(), width


def stm(args):
    """Effects by topica's STM from random starts, whose intervals are of one fit."""
    import topica

    X, meta = read_posts(args)
    corpus = topica.Corpus.from_documents(list_tokens(X))
    model_of = {"formula": "~ rating", "data": meta}
    fits, seconds = [], []
    for seed in range(2 * args.peer_pairs):
        model = topica.STM(15, seed=seed, init="random")
        _, cpu, _ = timed(model.fit, corpus, num_threads=1, **model_of)
        effects = topica.estimate_effect(model, nsims=25, seed=seed, **model_of).to_frame()
        effects = effects[effects["feature"] != "intercept"]
        half_width = (effects["ci_high"] - effects["ci_low"]) / 2
        topics = reorder_topics(np.asarray(model.topic_word), model.vocabulary, X.shape[1])
        fits.append((np.stack([effects["coef"], half_width]), topics))
        seconds.append(cpu)
        print_progress(f"fit {seed}, {cpu:.1f} CPU s, bound {model.bound:.0f}")
    compared = []
    for (first, topics), (second, others) in zip(fits[::2], fits[1::2], strict=True):
        compared.append(agree(first, second[:, match_components(topics, others)[0]]))
    values = [format_mean(column, digits=3) for column in zip(*compared, strict=True)]
    print_table(
        f"Effect of rating on 15 topics by topica's STM, {args.peer_pairs} pairs of random starts",
        ["fits", "correlation", "excluding 0", "same sign of these", "width (%)", "CPU s"],
        [["1", *values, f"{np.mean(seconds):.0f}"]],
    )


# ---------------------------------------------------------------------------------------- main
PARTS = {
    "topics": topics, "classes": classes, "posts": posts, "prior": prior,
    "held-out-posts": held_out_posts, "stm": stm,
}  # fmt: skip


def main():
    args = arguments()
    warnings.simplefilter("ignore")
    peers = {"classes": "stepmix", "stm": "topica"}
    print_header(args, *(peers[part] for part in args.parts if part in peers))
    with limited_to_cores(args.cores):
        for part in args.parts:
            PARTS[part](args)


if __name__ == "__main__":
    main()
