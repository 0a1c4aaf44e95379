"""Mixtures of Bernoullis: how many clusters, and how far from the truth?

Binary rows of HB15 sec. 4.2 (1,000 x 100, K = 100, alpha = 20, half of the components with rows):
mean field by coordinate ascent, mean field with merges and births, SSVI-A and SSVI, each with the
true hyperparameters, against collapsed Gibbs sampling and against an oracle that knows the
assignments. Clusters with rows, and the Monte Carlo estimate of KL(truth || predictive density) in
nats a row on common draws from the truth, the same for all.

With ``--data``, binarised MNIST: log predictive probability of held-out digits and time, against a
mixture by plain EM (a count of one added to ones and zeros). A BernoulliRBM has no such
probability, only a pseudo-likelihood, and is left out.

With ``--tables N``, tables of scikit-learn made binary at half of the range or at the median, a
quarter held out, N splits: given and learned priors by structured and memoized inference, beside
stepmix, which must be installed, and plain EM (as above), whose numbers of classes are those
of the best BIC, and of EM also of the best held-out score, which no user can know. stepmix is
scored twice: at its maximum likelihood, as it scores itself, and with a count of one added to ones
and zeros of each class, as EM is. The last columns compare split by split.
"""

import warnings
from pathlib import Path

import numpy as np
from _collapsed_gibbs import collapsed_gibbs, posterior_means
from _common import cores, parser, print_header, print_table, progress, spread, timed
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

from skvt import StructuredBernoulliMixture
from skvt.datasets import make_bernoulli_mixture

ALPHA = 20.0
MEAN_FIELD = {"learning_method": "batch", "tol": 1e-7}


def clusters_with_rows(mixture, X):
    """Components to which at least half a row is expected to belong."""
    return int(np.sum(mixture.predict_proba(X).sum(axis=0) >= 0.5))


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--draws", type=int, default=10, help="of the process; 0 for none")
    p.add_argument("--k", type=int, default=100, help="components of the process and of all fits")
    p.add_argument("--passes", type=int, default=500, help="of structured inference")
    p.add_argument("--sweeps", type=int, default=500, help="of Gibbs sampling")
    p.add_argument("--monte-carlo", type=int, default=20_000, help="rows that estimate KL")
    p.add_argument("--data", metavar="PATH", help="folder of binarized_mnist/data.npz")
    p.add_argument("--rows", type=int, default=10_000, help="digits to learn from")
    p.add_argument("--mnist-k", type=int, default=100)
    p.add_argument("--mnist-passes", type=int, default=20)
    p.add_argument("--seeds", type=int, default=1, help="of digits")
    p.add_argument("--tables", type=int, default=0, metavar="N", help="splits of real tables")
    p.add_argument("--most", type=int, default=30, help="classes of EM and stepmix")
    p.add_argument("--starts", type=int, default=3, help="of EM and stepmix")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument(
        "--quick",
        action="store_true",
        help="2 draws, 5,000 digits, K = 30, 5 passes; 2 splits, 8 classes, 1 start",
    )
    args = p.parse_args()
    if args.quick:
        args.draws, args.rows = min(args.draws, 2), 5_000
        args.mnist_k, args.mnist_passes = 30, 5
        args.tables, args.most, args.starts = min(args.tables, 2), 8, 1
    return args


# ----------------------------------------------------------------------------- the paper's draws
def log_density(X, weights, means):
    """Log probability of rows (n,) under a mixture of Bernoullis."""
    with np.errstate(divide="ignore"):
        logs = X @ np.log(means).T + (1.0 - X) @ np.log1p(-means).T + np.log(weights)
    return logsumexp(logs, axis=1)


def methods(args):
    """Label -> parameters of an estimator."""
    shared = {
        "n_components": args.k,
        "weight_concentration_prior": ALPHA,
        "weight_concentration_prior_type": "dirichlet_distribution",
        "max_iter": args.passes,
    }
    random = {"init_params": "random"}
    variants = {
        "mean field": MEAN_FIELD | {"moves": ()} | random,
        "mean field, k-means++": MEAN_FIELD | {"moves": ()},
        "mean field with moves": MEAN_FIELD,
        "SSVI-A": {},
        "SSVI-A, learned prior": {"feature_prior": "auto"},
        "SSVI-A, random start": random,
        "SSVI-A, sticks": {"weight_concentration_prior_type": "dirichlet_process"},
        "SSVI-A, rho = t^-0.75": {"learning_scale": 1.0, "learning_offset": 1.0},
        "SSVI": {"global_step": "ssvi"},
    }
    return {label: shared | params for label, params in variants.items()}


def one_draw(seed, args):
    """Label -> (clusters, KL, CPU seconds) for one draw of the process; and the true clusters."""
    truth = make_bernoulli_mixture(n_components=args.k, random_state=seed)
    rng = np.random.default_rng(seed)
    labels = rng.choice(args.k, size=args.monte_carlo, p=truth.weights)
    X = (rng.random((labels.size, truth.X.shape[1])) < truth.means[labels]).astype(float)
    true = log_density(X, truth.weights, truth.means)

    def divergence(weights, means):
        return np.mean(true - log_density(X, weights, means))

    runs = {}
    for label, params in methods(args).items():
        mixture = StructuredBernoulliMixture(**params, n_jobs=args.cores, random_state=seed)
        _, cpu, mixture = timed(mixture.fit, truth.X)
        kl = np.mean(true - mixture.score_samples(X))
        runs[label] = clusters_with_rows(mixture, truth.X), kl, cpu
    _, cpu, found = timed(collapsed_gibbs, truth.X, args.k, ALPHA, args.sweeps, seed)
    kl = divergence(*posterior_means(truth.X, found, args.k, ALPHA))
    runs["collapsed Gibbs"] = np.unique(found).size, kl, cpu
    kl = divergence(*posterior_means(truth.X, truth.labels, args.k, ALPHA))
    runs["oracle"] = np.unique(truth.labels).size, kl, 0.0
    return runs


def synthetic(args):
    StructuredBernoulliMixture(5, max_iter=2).fit(np.eye(9))  # compiles
    collapsed_gibbs(np.eye(9, dtype=np.int8), 5, ALPHA, 1, 0)
    draws = []
    for seed in range(args.draws):
        draws.append(one_draw(seed, args))
        progress(seed, *(f"{name}: {k} {kl:.3f}," for name, (k, kl, _) in draws[-1].items()))
    table = []
    gibbs, oracle = (np.array([d[n][1] for d in draws]) for n in ("collapsed Gibbs", "oracle"))
    for label in draws[0]:
        clusters, kl, cpu = (np.array(column) for column in zip(*[d[label] for d in draws],
                                                                strict=True))  # fmt: skip
        true = np.array([d["oracle"][0] for d in draws])
        table.append([
            label, spread(clusters, 1), spread(np.abs(clusters / true - 1.0), 3), spread(kl, 3),
            spread(kl / gibbs, 3), f"{np.max(kl / gibbs):.3f}", spread(kl / oracle, 3),
            f"{np.mean(cpu):.1f}",
        ])  # fmt: skip
    print_table(
        f"{args.draws} draws of the process",
        ["", "clusters", "off truth by", "KL", "KL / Gibbs", "worst", "KL / oracle", "CPU s"],
        table,
    )


# ------------------------------------------------------------------------------------- digits
def smoothed(X, R):
    """Weights and means given shares (n, K) of rows, a count of one added to ones and zeros."""
    counts = R.sum(axis=0)
    return counts / counts.sum(), (1.0 + R.T @ X) / (2.0 + counts[:, None])


def em_mixture(X, n_components, n_passes, seed):
    """Weights and means of a mixture of Bernoullis by expectation maximisation."""
    R = np.random.default_rng(seed).dirichlet(np.ones(n_components), size=len(X))
    for _ in range(n_passes):
        weights, means = smoothed(X, R)
        logs = X @ (np.log(means) - np.log1p(-means)).T + np.log1p(-means).sum(axis=1)
        with np.errstate(divide="ignore"):
            R = softmax(logs + np.log(weights), axis=1)
    return weights, means


def digits(args):
    file = Path(args.data) / "binarized_mnist" / "data.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold binarized_mnist/data.npz.")
    with np.load(file) as arrays:
        train, test = (
            np.unpackbits(arrays[name], axis=1)[:, :784] for name in ("X_train", "X_test")
        )
    train, test = train[: args.rows].astype(float), test.astype(float)
    shared = {"n_components": args.mnist_k, "max_iter": args.mnist_passes, "n_jobs": args.cores}
    minibatches = {"batch_size": 500, "learning_decay": 0.6, "learning_offset": 10.0}
    variants = {
        "SSVI-A, minibatches": minibatches,
        "SVI, minibatches": minibatches | {"learning_method": "online"},
        "memoized with moves": {"learning_method": "memoized"},
        "mean field": MEAN_FIELD | {"moves": ()},
    }
    table = []
    for label, params in variants.items():
        runs = []
        for seed in range(args.seeds):
            mixture = StructuredBernoulliMixture(**shared | params, random_state=seed)
            _, cpu, mixture = timed(mixture.fit, train)
            n_clusters = clusters_with_rows(mixture, train)
            runs.append((mixture.score(test), n_clusters, cpu, mixture.n_iter_))
            progress(label, seed, *runs[-1])
        table.append([label, *_columns(runs)])
    runs = []
    for seed in range(args.seeds):
        _, cpu, found = timed(em_mixture, train, args.mnist_k, args.mnist_passes, seed)
        used = int(np.sum(found[0] * len(train) >= 0.5))
        runs.append((log_density(test, *found).mean(), used, cpu, args.mnist_passes))
    table.append(["plain EM", *_columns(runs)])
    print_table(
        f"binarised MNIST, {len(train):,} digits, K = {args.mnist_k}",
        ["", "held-out nats per row", "components", "CPU s", "passes"],
        table,
    )


def _columns(runs):
    score, K, cpu, passes = zip(*runs, strict=True)
    return spread(score, 2), f"{np.mean(K):.0f}", f"{np.mean(cpu):.0f}", f"{np.mean(passes):.0f}"


# ------------------------------------------------------------------------- tables of scikit-learn
REAL = {"digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine}
OURS = {
    "structured": {},
    "structured, learned prior": {"feature_prior": "auto"},
    "memoized": {"learning_method": "memoized"},
    "memoized, learned prior": {"learning_method": "memoized", "feature_prior": "auto"},
}
COMPARED = ("structured", "plain EM, BIC")  # rows that all others are compared with


def grid_of_em(train, test, args, seed):
    """(score, number) of plain EM by BIC and by the held-out score itself, the best of starts."""
    by_bic, by_score = (np.inf,), (-np.inf,)
    for k in range(1, args.most + 1):
        tried = [em_mixture(train, k, 100, seed + 1_000 * i) for i in range(args.starts)]
        inside, best = max(
            ((log_density(train, *found).sum(), found) for found in tried), key=lambda pair: pair[0]
        )
        bic = (k * (train.shape[1] + 1) - 1) * np.log(len(train)) - 2.0 * inside
        score = log_density(test, *best).mean()
        by_bic = min(by_bic, (bic, score, k))
        by_score = max(by_score, (score, k))
    return by_bic[1:], by_score


def grid_of_stepmix(train, test, args, seed):
    """(own score, smoothed score, number) of the StepMix of the best BIC."""
    from stepmix.stepmix import StepMix

    best = (np.inf,)
    for k in range(1, args.most + 1):
        model = StepMix(k, measurement="binary", n_init=args.starts, random_state=seed,
                        progress_bar=0)  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bic = model.fit(train).bic(train)
        if bic < best[0]:
            best = bic, k, model
    _, k, model = best
    found = smoothed(train, model.predict_proba(train))
    return model.score(test), log_density(test, *found).mean(), k


def real_tables(args):
    for name, load in REAL.items():
        X = load().data
        X = (X > (8.0 if name == "digits" else np.median(X, axis=0))).astype(float)
        runs = {}
        for seed in range(args.tables):
            train, test = train_test_split(X, test_size=0.25, random_state=seed)
            for label, params in OURS.items():
                mixture = StructuredBernoulliMixture(**params, n_jobs=args.cores, random_state=seed)
                _, cpu, mixture = timed(mixture.fit, train)
                row = mixture.score(test), clusters_with_rows(mixture, train), cpu
                runs.setdefault(label, []).append(row)
            _, cpu, (by_bic, by_score) = timed(grid_of_em, train, test, args, seed)
            runs.setdefault("plain EM, BIC", []).append((*by_bic, cpu))
            runs.setdefault("plain EM, best held out", []).append((*by_score, cpu))
            _, cpu, (own, smooth, k) = timed(grid_of_stepmix, train, test, args, seed)
            runs.setdefault("stepmix, BIC", []).append((own, k, cpu))
            runs.setdefault("stepmix, BIC, smoothed", []).append((smooth, k, cpu))
            progress(name, seed)
        scores = {label: np.array([row[0] for row in rows]) for label, rows in runs.items()}
        table = []
        for label, rows in runs.items():
            _, K, cpu = zip(*rows, strict=True)
            line = [label, spread(scores[label], 2), f"{np.mean(K):.0f}", f"{np.mean(cpu):.1f}"]
            for base in COMPARED:
                less = scores[label] - scores[base]
                line += [spread(less, 3), f"{np.sum(less > 0)}/{len(less)}"]
            table.append(line)
        less = [title for base in COMPARED for title in (f"less {base}", "above")]
        print_table(
            f"{name}, binary, {len(train):,} x {X.shape[1]}, {args.tables} splits",
            ["", "held-out nats per row", "classes", "CPU s", *less],
            table,
        )


def main():
    args = arguments()
    print_header(*(["stepmix"] if args.tables else []))
    with cores(args.cores):
        if args.draws:
            synthetic(args)
        if args.tables:
            real_tables(args)
        if args.data:
            digits(args)


if __name__ == "__main__":
    main()
