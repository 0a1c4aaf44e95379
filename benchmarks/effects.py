"""Effects of covariates: how often do 95 % intervals cover planted effects, and what is their bias?

- ``topics``: corpora of short and long documents whose expected shares of topics are linear in two
  covariates. Intervals are from several fits, from one fit, from the true topics, and from draws of
  each document's posterior proportions under a prior that ignores the covariates.
- ``groups``: how often do intervals exclude 0 for small groups of documents that do not differ from
  the other documents? Most shares are near 0, and few are large.
- ``classes``: the simulation of Bakk and Kuha (2018) with three classes and six binary items. The
  estimates are the mean of an outcome in each class, and the effect of a covariate on the classes.
  They are compared with estimates from posterior probabilities, and with the three-step estimates
  of stepmix: without a correction, by BCH and by ML.
- ``prior``: how well do topics whose document prior depends on covariates predict hidden words of
  drawn short documents? They are compared with fits without covariates and with the true model. The
  table also has the time of the fits.
- ``held-out-posts``: the same for political posts (``--data``) with 5, 20 and 100 seen words.
- ``posts``: how far do the effects of two disjoint sets of fits to political posts (``--data``)
  agree? A second table has the agreement for matched topics of two fits, by the probability mass
  that their words share.
- ``stm``: the agreement for pairs of fits of topica's STM to political posts (``--data``).

K is the number of topics, P the number of covariates, and an array (2, P, K) has estimated effects
and the half widths of their 95 % intervals.
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
from skvt._results._consensus import match_topics, normalize_topics_of_fits
from skvt.components import Bernoulli
from skvt.metrics import match_components

# Number of documents of a corpus, by the number of words of a document.
SIZES = {10: 3_000, 40: 2_000, 200: 1_000}
N_TOPICS = 10
N_WORDS = 500
# Numbers of documents in each of N_GROUPS groups of a corpus of N_GROUPED documents.
GROUP_SIZES = 4, 8, 15, 30, 60, 160
N_GROUPS = 5
N_GROUPED = 1_000
# Mean outcome in each class.
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
    """Draw n documents of this length whose expected shares of topics depend on two covariates.

    Return counts, covariates (n, 2), topics, and the effects (2, K) on expected shares.
    """
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
    """Fitted topic model with the true topics, for `covariate_effects`."""

    def __init__(self, topics):
        # Such large pseudo-counts leave no uncertainty of the topics.
        self.components_ = self.exp_dirichlet_component_ = 1e12 * topics

    def fit(self, X):
        """Return the estimator itself."""
        return self


def uncorrected(fit, X, covariates, seed, n_draws=25):
    """Return effects and half widths (2, P, K) by draws from each document's posterior.

    Each draw of the proportions is regressed on the covariates. The variance of an effect is the
    mean of its robust sampling variances plus the variance between draws, by Rubin's rule.
    """
    rng = np.random.default_rng(seed)
    gamma = fit.transform(X, normalize=False)
    design = np.c_[np.ones(len(covariates)), covariates]
    inverse_gram = np.linalg.inv(design.T @ design)
    effects, variances = [], []
    for _ in range(n_draws):
        theta = rng.standard_gamma(gamma)
        theta /= theta.sum(axis=1, keepdims=True)
        coef = inverse_gram @ design.T @ theta
        residuals = theta - design @ coef
        scores = np.einsum("np,nk->knp", design @ inverse_gram, residuals)
        # Leave out the intercept, which is the first column of the design.
        effects.append(coef[1:])
        variances.append((scores**2).sum(axis=1).T[1:])
    variance = np.mean(variances, axis=0) + (1.0 + 1.0 / n_draws) * np.var(effects, axis=0, ddof=1)
    half_width = student.ppf(0.975, len(design) - 3) * np.sqrt(variance)
    return np.stack([np.mean(effects, axis=0), half_width])


def effects_of_table(table, terms=("x0", "x1")):
    """Return the effects and half widths (2, P, K) of a table by `covariate_effects`."""
    parts = [table[table["term"] == term] for term in terms]
    return np.stack(
        [[part["effect"] for part in parts], [(part["high"] - part["low"]) / 2 for part in parts]]
    )


def topics(args):
    """Print coverage, slope and width of intervals for planted effects on shares of topics."""
    rows = []
    for length, n in SIZES.items():
        scores = {}
        for draw in range(args.draws):
            X, covariates, truth, planted_effects = planted(n, length, np.random.default_rng(draw))
            fits = [StructuredLDA(N_TOPICS, random_state=s).fit(X) for s in range(args.fits)]
            options = {"random_state": 0}
            by_truth = covariate_effects(TrueTopics(truth), X, covariates, **options)
            by_fits = covariate_effects(fits, X, covariates, **options)
            by_fit = covariate_effects(fits[0], X, covariates, **options)
            # ``order`` has the topic of the fit that matches each true topic.
            order, correlations = match_components(truth, fits[0].components_)
            estimates = {
                f"{args.fits} fits": effects_of_table(by_fits)[..., order],
                "1 fit": effects_of_table(by_fit)[..., order],
                "1 fit, posterior draws": uncorrected(fits[0], X, covariates, draw)[..., order],
                "true topics": effects_of_table(by_truth),
            }
            for name, (estimate, half_width) in estimates.items():
                covered = np.mean(abs(estimate - planted_effects) < half_width)
                slope = np.sum(planted_effects * estimate) / np.sum(planted_effects**2)
                # The third score is the mean width of the intervals in percent.
                scores.setdefault(name, []).append((covered, slope, 200.0 * half_width.mean()))
            correlation = correlations.mean()
            print_progress(f"{length} words, corpus {draw}, topics correlate {correlation:.3f}")
        for name, draws in scores.items():
            values = [format_mean(column, digits=3) for column in zip(*draws, strict=True)]
            rows.append([length, f"{n:,}", name, *values])
    header = ["words", "documents", "intervals", "coverage", "slope", "width (%)"]
    print_table(f"Planted effects on the shares of {N_TOPICS} topics", header, rows)


# -------------------------------------------------------------------------------------- groups
def groups(args):
    """Print how often intervals for groups of documents that do not differ exclude 0."""
    scores = {}
    for draw in range(args.draws):
        rng = np.random.default_rng(draw)
        topics = rng.dirichlet(np.full(N_WORDS, 0.05), N_TOPICS)
        shares = rng.dirichlet(np.full(N_TOPICS, 0.1), N_GROUPED)
        X = sp.csr_array(rng.multinomial(100, shares @ topics))
        fit = StructuredLDA(N_TOPICS, random_state=draw).fit(X)
        for size in GROUP_SIZES:
            # The first level in the alphabet, with which the groups are compared, is "all others".
            labels = np.full(N_GROUPED, "all others")
            labels[: N_GROUPS * size] = np.repeat([f"group {g}" for g in range(N_GROUPS)], size)
            group = pd.DataFrame({"group": labels})
            for link in "identity", "logit":
                table = covariate_effects(fit, X, group, random_state=0, link=link)
                table = table[table["term"] != "Intercept"]
                excludes_0 = (table["low"] > 0.0) | (table["high"] < 0.0)
                width = 100.0 * (table["high"] - table["low"])
                scores.setdefault((size, link), []).append((excludes_0.mean(), width.mean()))
        print_progress(f"groups, corpus {draw}")
    rows = []
    for size in GROUP_SIZES:
        excluding, width = zip(*scores[size, "identity"], strict=True)
        excluding_by_logit, _ = zip(*scores[size, "logit"], strict=True)
        columns = excluding, excluding_by_logit, width
        rows.append([size, *(format_mean(column, digits=3) for column in columns)])
    header = ["documents", "excluding 0", "excluding 0, logit", "width (%)"]
    title = f"Groups among {N_GROUPED:,} documents, without effects, shares of {N_TOPICS} topics"
    print_table(title, header, rows)


# ------------------------------------------------------------------------------------- classes
def item_probabilities(separation):
    """Return probabilities (3, 6) of binary items in classes [Bakk and Kuha 2018, table 1]."""
    p = np.full((3, 6), 1.0 - separation)
    p[0] = p[1, :3] = separation
    return p


def drawn_classes(labels, separation, rng):
    """Draw six binary items of rows with these classes."""
    return (rng.random((labels.size, 6)) < item_probabilities(separation)[labels]).astype(float)


def class_fit(X, seed):
    """Return the best of 3 fits with three classes, and its probabilities of classes (n, 3)."""
    components = [("items", Bernoulli(), list(range(X.shape[1])))]
    mixture = MemoizedDPMixture(3, moves=(), components=components, n_init=3, random_state=seed)
    return mixture.fit(X), mixture.predict_proba(X)


def clusters_of_classes(labels, responsibilities):
    """Return the cluster that matches each class best, one to one."""
    overlap = np.eye(3)[labels].T @ responsibilities
    _, clusters = linear_sum_assignment(overlap, maximize=True)
    return clusters


def orders(labels, mixture, X, responsibilities):
    """Return the cluster of each class in the refit and in the mixture.

    The tables of `outcome_by_cluster` and `covariate_effects` number clusters as the refit does.
    """
    refit_responsibilities = mixture._make_refits(X, np.ones(len(X))).resp
    return (
        clusters_of_classes(labels, refit_responsibilities),
        clusters_of_classes(labels, responsibilities),
    )


def classes(args):
    """Print bias and coverage of outcomes and covariate effects in latent classes."""
    rows = []
    levels = np.arange(1, 6)
    intercepts = np.array([0.0, 2.34459467, -3.65540533])
    # Probability of each class at each level of the covariate, and true effects: linear slopes.
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
            refit_order, fit_order = orders(labels, mixture, X, r)
            table = outcome_by_cluster(mixture, X, outcome, random_state=0).iloc[refit_order]
            add_estimates(scores, "outcome, corrected", table, table["mean"], OUTCOMES)
            means = (r.T @ outcome / r.sum(0))[fit_order]
            add_estimates(scores, "outcome, posterior means", None, means, OUTCOMES)
            peers = ["naive", "BCH", "ML"] if seed < args.peer_tables else []
            for name, found in three_steps(peers, X, outcome, "gaussian_unit", seed, separation):
                add_estimates(
                    scores, f"outcome, stepmix {name}", None, found["means"][:, 0], OUTCOMES
                )
            x = rng.integers(1, 6, args.rows)
            labels = (rng.random((args.rows, 1)) > chances[x - 1].cumsum(axis=1)).sum(axis=1)
            X = drawn_classes(labels, separation, rng)
            mixture, r = class_fit(X, seed)
            refit_order, fit_order = orders(labels, mixture, X, r)
            table = covariate_effects(mixture, X, x, random_state=0)
            table = table[table["term"] == "x0"].iloc[refit_order]
            add_estimates(scores, "covariate, corrected", table, table["effect"], slopes)
            estimate = np.polyfit(x, r, 1)[0][fit_order]
            add_estimates(scores, "covariate, posterior means", None, estimate, slopes)
            x = x.astype(float)
            for name, found in three_steps(peers, X, x, "covariate", seed, separation):
                beta = found["beta"]
                shares = softmax(beta[:, 0] + np.outer(levels, beta[:, 1]), axis=1)
                estimate = np.polyfit(levels, shares, 1)[0]
                add_estimates(scores, f"covariate, stepmix {name}", None, estimate, slopes)
            if seed % 10 == 9:
                print_progress(f"separation {separation}, {seed + 1} tables")
        for name, (estimates, truth, covered) in scores.items():
            median = np.median(estimates, axis=0)
            ratio = np.sum(median * truth) / np.sum(truth**2)
            error = np.median(np.abs(np.array(estimates) - truth))
            coverage = [f"{part:.3f}" for part in coverage_of(covered)] if covered else ["-", "-"]
            rows.append(
                [separation, name, len(estimates), f"{ratio:.3f}", f"{error:.3f}", *coverage]
            )
    header = ["separation", "estimates", "tables", "median / truth", "median error", "coverage"]
    print_table(f"Three classes, {args.rows:,} rows", [*header, "standard error"], rows)


def coverage_of(covered):
    """Return the share of intervals that cover the truth, and its standard error.

    The standard error is of the means of tables, because intervals of a table are dependent.
    """
    shares = np.mean(covered, axis=1)
    return shares.mean(), shares.std(ddof=1) / np.sqrt(len(shares))


def three_steps(corrections, X, outside, structural, seed, separation):
    """Yield each correction and its structural parameters by stepmix, in the order of the classes.

    ``outside`` is the outcome or the covariate, and ``structural`` the model of it.
    """
    from stepmix.stepmix import StepMix

    for name in corrections:
        correction = None if name == "naive" else name
        model = StepMix(
            3, n_steps=3, measurement="bernoulli", structural=structural, correction=correction,
            n_init=3, random_state=seed, progress_bar=0,
        ).fit(X, outside[:, None])  # fmt: skip
        parameters = model.get_parameters()
        distances = cdist(item_probabilities(separation), parameters["measurement"]["pis"])
        _, order = linear_sum_assignment(distances)
        yield name, {key: value[order] for key, value in parameters["structural"].items()}


def add_estimates(scores, name, table, estimate, truth):
    """Add the estimates of one table to ``scores``, and whether its intervals cover the truth.

    ``table`` has the intervals; None if there are none.
    """
    estimates, _, covered = scores.setdefault(name, ([], truth, []))
    estimates.append(np.asarray(estimate))
    if table is not None:
        covered.append((table["low"] < truth) & (truth < table["high"]))


# --------------------------------------------------------------------------------------- prior
def draw_by_regression(n, length, rng):
    """Draw n documents whose alpha is log-linear in two covariates.

    Return counts, covariates (n, 2), topics, and alpha (n, K).
    """
    topics = rng.dirichlet(np.full(N_WORDS, 0.05), N_TOPICS)
    covariates = np.c_[rng.integers(2, size=n), rng.standard_normal(n)]
    slopes = rng.normal(0.0, 1.0, (2, N_TOPICS))
    alpha = np.exp(np.log(0.1) + (covariates - [0.5, 0.0]) @ slopes)
    # The small number prevents division by 0 for small alpha.
    shares = rng.standard_gamma(alpha) + 1e-300
    shares /= shares.sum(axis=1, keepdims=True)
    chances = shares @ topics
    counts = rng.multinomial(length, chances / chances.sum(axis=1, keepdims=True))
    return sp.csr_array(counts), covariates, topics, alpha


def divide_tokens(X, n_seen, rng):
    """Return counts of ``n_seen`` random tokens of each document, and of its hidden tokens."""
    X = sp.csr_array(X)
    drawn = [
        rng.multivariate_hypergeometric(X.data[i:j].astype(int), n_seen)
        for i, j in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    seen = sp.csr_array((np.concatenate(drawn), X.indices, X.indptr), X.shape)
    return seen, sp.csr_array(X - seen)


def score_by_draws(seen, hidden, topics, alpha, seed, n_draws=2_000):
    """Return the log probability of hidden words given the seen words, in nats per word.

    Proportions are drawn from the prior with ``alpha``, (K,) or (n, K), and weighted by the
    probability of the seen words.
    """
    rng, log_probability = np.random.default_rng(seed), 0.0
    log_topics = np.log(np.maximum(topics, 1e-30))
    for d, document_alpha in enumerate(np.broadcast_to(alpha, (seen.shape[0], len(topics)))):
        theta = rng.standard_gamma(document_alpha, (n_draws, len(topics))) + 1e-300
        theta /= theta.sum(axis=1, keepdims=True)
        seen_words, hidden_words = seen[[d]], hidden[[d]]
        # (n_draws,) and (n_draws, number of hidden words)
        log_weights = np.log(theta @ np.exp(log_topics[:, seen_words.indices])) @ seen_words.data
        log_hidden = np.log(theta @ np.exp(log_topics[:, hidden_words.indices]))
        log_means = logsumexp(log_weights[:, None] + log_hidden, axis=0) - logsumexp(log_weights)
        log_probability += log_means @ hidden_words.data
    return log_probability / hidden.sum()


def alpha_of(fit, covariates=None):
    """Return the alpha of each document under a fit, or the alpha that all documents share."""
    if covariates is None:
        return fit.doc_topic_prior_
    design = np.c_[np.ones(len(covariates)), covariates]
    return np.exp(design @ np.asarray(fit.covariate_coef_).T)


def word_probabilities(fit):
    """Return the word probabilities (K, V) of the topics of a fit."""
    return fit.components_ / fit.components_.sum(axis=1, keepdims=True)


# Estimators by name, made from a seed.
FITTED = {
    "StructuredLDA": lambda seed: StructuredLDA(N_TOPICS, random_state=seed),
    "StructuredLDA, 40 passes": lambda seed: StructuredLDA(
        N_TOPICS, max_iter=40, doc_topic_prior="auto", random_state=seed
    ),
    "TemperedLDA": lambda seed: TemperedLDA(N_TOPICS, doc_topic_prior="auto", random_state=seed),
}


def prior(args):
    """Print how well hidden words of drawn documents are predicted, with and without covariates."""
    n_train, n_test, length, n_seen = 3_000, 500, 12, 6
    scores = {}
    for draw in range(args.draws):
        rng = np.random.default_rng(draw)
        X, covariates, topics, alpha = draw_by_regression(n_train + n_test, length, rng)
        train, test = slice(0, n_train), slice(n_train, None)
        parts = divide_tokens(X[test], n_seen, rng)
        # The scores of the true model: with one alpha for all documents, and with their true alpha.
        common_alpha = learn_prior(X[train], topics, 0.1)
        true_score = score_by_draws(*parts, topics, alpha[test], draw)
        gain = true_score - score_by_draws(*parts, topics, common_alpha, draw)
        scores.setdefault("true model", []).append((true_score - gain, true_score, 1.0, np.nan))
        for name, make in FITTED.items():
            # Compile before times are taken.
            if draw == 0:
                make(draw).fit(X[:200]), make(draw).fit(X[:200], covariates=covariates[:200])
            _, plain_cpu, plain = timed(make(draw).fit, X[train])
            _, cpu, fit = timed(make(draw).fit, X[train], covariates=covariates[train])
            plain_score = score_by_draws(*parts, word_probabilities(plain), alpha_of(plain), draw)
            test_alpha = alpha_of(fit, covariates[test])
            score = score_by_draws(*parts, word_probabilities(fit), test_alpha, draw)
            share, ratio = (score - plain_score) / gain, cpu / plain_cpu
            scores.setdefault(name, []).append((plain_score, score, share, ratio))
            print_progress(
                f"corpus {draw}, {name}: {share:.2f} of the gain, {ratio:.2f} of the time"
            )
    rows = [
        [name, *(format_mean(column, digits=3) for column in zip(*values, strict=True))]
        for name, values in scores.items()
    ]
    header = ["fit", "without", "with covariates", "share of the true gain", "time"]
    title = f"Nats per word given {n_seen} words, {n_train:,} drawn documents of {length} words"
    print_table(title, header, rows)


def held_out_posts(args):
    """Print how well hidden words of political posts are predicted, with and without covariates."""
    folder = Path(args.data) / "poliblog5k"
    X = sp.csr_array(sp.load_npz(folder / "counts.npz"))
    meta = pd.read_csv(folder / "meta.csv")[["rating", "day"]]
    used = np.flatnonzero(X.sum(axis=1) >= 110)
    test = used[np.random.default_rng(0).permutation(used.size)[:500]]
    train = np.setdiff1d(np.flatnonzero(X.sum(axis=1)), test)
    parts = {n: divide_tokens(X[test], n, np.random.default_rng(n)) for n in (5, 20, 100)}
    scores, times = {}, []
    for seed in range(args.draws):
        _, plain_cpu, plain = timed(StructuredLDA(20, random_state=seed).fit, X[train])
        _, cpu, fit = timed(
            StructuredLDA(20, random_state=seed).fit, X[train], covariates=meta.iloc[train]
        )
        times.append(cpu / plain_cpu)
        for n, (seen, hidden) in parts.items():
            plain_score = score_completion(plain, seen, hidden)
            score = score_completion(fit, seen, hidden, covariates=meta.iloc[test])
            scores.setdefault(n, []).append((plain_score, score, score - plain_score))
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


def score_completion(fit, seen, hidden, **options):
    """Return the log probability of hidden words in nats per word, by the expected proportions.

    The proportions are inferred from the seen words.
    """
    chances = fit.transform(seen, **options) @ word_probabilities(fit)
    rows, words = hidden.nonzero()
    return (hidden[rows, words] * np.log(chances[rows, words])).sum() / hidden.sum()


# --------------------------------------------------------------------------------------- posts
def read_posts(args):
    """Return counts of the posts that have words, and a data frame of their covariates."""
    folder = Path(args.data) / "poliblog5k"
    X = sp.csr_array(sp.load_npz(folder / "counts.npz"))
    used = np.flatnonzero(X.sum(axis=1))
    return X[used], pd.read_csv(folder / "meta.csv").iloc[used].reset_index(drop=True)


def posts(args):
    """Print how far effects of the rating on topics agree between fits to political posts."""
    X, meta = read_posts(args)
    rating = meta["rating"].to_numpy()
    n, fits, seconds = args.post_fits, [], 0.0
    for seed in range(2 * n):
        _, cpu, fit = timed(StructuredLDA(15, random_state=seed).fit, X)
        fits.append(fit)
        seconds += cpu / 2
        print_progress(f"fit {seed}, {cpu:.1f} CPU s")
    # Pairs of sets of fits: single fits, or the first half and the second half of all fits.
    single_pairs = [(fits[i : i + 1], fits[n + i : n + i + 1]) for i in range(n)]
    rows = []
    for name, pairs in ("1", single_pairs), (str(n), [(fits[:n], fits[n:])]):
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
    """Return rows of a table: agreement of effects on matched topics of two fits, by shared mass.

    The shared mass of two topics is the sum over words of the smaller of their probabilities.
    """
    tables = [covariate_effects(fit, X, rating, n_draws=2, random_state=0) for fit in fits]
    effects = [effects_of_table(table, table["term"].unique()[1:])[0, 0] for table in tables]
    topics, pairs = normalize_topics_of_fits(fits), []
    for i, j in combinations(range(len(fits)), 2):
        mass, of_first, of_second = match_topics(topics[i], topics[j])
        pairs.append([mass, effects[i][of_first], effects[j][of_second]])
    mass, first, second = np.concatenate(pairs, axis=1)
    rows = []
    for low, high in pairwise([0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]):
        part = (low <= mass) & (mass < high)
        a, b = first[part], second[part]
        correlation = np.corrcoef(a, b)[0, 1] if part.sum() > 2 else np.nan
        same_sign = np.mean(np.sign(a) == np.sign(b))
        difference = 100.0 * np.median(abs(a - b))
        numbers = [f"{correlation:.2f}", f"{same_sign:.2f}", f"{difference:.1f}"]
        rows.append([f"{low} to {high}", part.sum(), *numbers])
    return rows


def compare(first_fits, second_fits, X, rating):
    """Return the measures of :func:`agree` for the effects of two sets of fits."""
    tables = [
        covariate_effects(fits, X, rating, random_state=0) for fits in (first_fits, second_fits)
    ]
    # Leave out the intercept, which is the first term; the rating has a single other term.
    first, second = (effects_of_table(table, table["term"].unique()[1:])[:, 0] for table in tables)
    order, _ = match_components(first_fits[0].components_, second_fits[0].components_)
    return agree(first, second[:, order])


def agree(first, second):
    """Return measures of the agreement of two analyses.

    Each analysis has an effect and half the width of its interval for each topic, (2, K). The
    measures are the correlation of the effects, the number of topics with an interval that excludes
    0 in one of the analyses, the share of equal signs among these, and the mean width in percent.
    """
    (first_effects, first_half_widths), (second_effects, second_half_widths) = first, second
    excludes_0 = (abs(first_effects) > first_half_widths) | (
        abs(second_effects) > second_half_widths
    )
    has_same_sign = np.sign(first_effects) == np.sign(second_effects)
    width = 200.0 * np.mean([first_half_widths, second_half_widths])
    correlation = np.corrcoef(first_effects, second_effects)[0, 1]
    return correlation, excludes_0.sum(), has_same_sign[excludes_0].mean(), width


def stm(args):
    """Print how far effects agree between random starts of topica's STM.

    The intervals are of single fits.
    """
    import topica

    X, meta = read_posts(args)
    corpus = topica.Corpus.from_documents(list_tokens(X))
    regression = {"formula": "~ rating", "data": meta}
    fits, seconds = [], []
    for seed in range(2 * args.peer_pairs):
        model = topica.STM(15, seed=seed, init="random")
        _, cpu, _ = timed(model.fit, corpus, num_threads=1, **regression)
        effects = topica.estimate_effect(model, nsims=25, seed=seed, **regression).to_frame()
        effects = effects[effects["feature"] != "intercept"]
        half_width = (effects["ci_high"] - effects["ci_low"]) / 2
        topics = reorder_topics(np.asarray(model.topic_word), model.vocabulary, X.shape[1])
        fits.append((np.stack([effects["coef"], half_width]), topics))
        seconds.append(cpu)
        print_progress(f"fit {seed}, {cpu:.1f} CPU s, bound {model.bound:.0f}")
    compared = []
    # Pairs of consecutive fits.
    for (first, topics), (second, other_topics) in zip(fits[::2], fits[1::2], strict=True):
        order, _ = match_components(topics, other_topics)
        compared.append(agree(first, second[:, order]))
    values = [format_mean(column, digits=3) for column in zip(*compared, strict=True)]
    print_table(
        f"Effect of rating on 15 topics by topica's STM, {args.peer_pairs} pairs of random starts",
        ["fits", "correlation", "excluding 0", "same sign of these", "width (%)", "CPU s"],
        [["1", *values, f"{np.mean(seconds):.0f}"]],
    )


# ---------------------------------------------------------------------------------------- main
PARTS = {
    "topics": topics, "groups": groups, "classes": classes, "posts": posts, "prior": prior,
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
