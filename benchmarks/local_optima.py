"""How far from the truth: local optima on a synthetic corpus whose topics are known.

Part 1: documents drawn from LDA. The truth's own score, variational inference started at the
truth, random starts of plain, annealed and other libraries' inference, and collapsed Gibbs: what
lies between the second and the third is the optimum that a start falls into. All are given the
priors that the corpus was drawn from. The ELBO is the mean-field one for structured inference, too.

Part 2: which number of topics does a library's own score choose, where the truth is 20?
"""

from functools import partial

import numpy as np
from _common import (
    DocumentCompletion,
    cores,
    describe,
    parser,
    print_header,
    print_table,
    progress,
    spread,
)
from _peers import (
    Point,
    Stopwatch,
    gensim_curve,
    sklearn_batch_curve,
    sklearn_online_curve,
    skvt_curve,
    start_at,
    tomotopy_curve,
    warm_up,
)
from sklearn.decomposition import LatentDirichletAllocation

from skvt import StructuredLDA, TemperedLDA
from skvt.datasets import make_topic_corpus
from skvt.temperature import LinearAnnealing

TRUTH, AT_TRUTH = "the truth itself", "VI started at the truth, batch"


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--k", type=int, default=50)
    p.add_argument("--features", type=int, default=3000)
    p.add_argument("--documents", type=int, default=4000)
    p.add_argument("--test-documents", type=int, default=1000)
    p.add_argument("--alpha", type=float, default=0.05)
    p.add_argument("--eta", type=float, default=0.02)
    p.add_argument("--seeds", type=int, default=3, help="starts of each method")
    p.add_argument("--corpus-seed", type=int, default=0)
    p.add_argument("--passes", type=int, default=None, help="online; None is skvt's default")
    p.add_argument("--batch-passes", type=int, default=50)
    p.add_argument("--structured-passes", type=int, nargs="*", default=[20, 40])
    p.add_argument("--sweeps", type=int, nargs="+", default=[100, 500])
    p.add_argument("--cores", type=int, default=2)
    p.add_argument("--parts", type=int, nargs="+", choices=[1, 2], default=[1, 2])
    p.add_argument("--quick", action="store_true", help="K = 20, a quarter of the documents")
    args = p.parse_args()
    if args.quick:
        args.k, args.features, args.documents, args.test_documents = 20, 1000, 1000, 250
        args.seeds, args.batch_passes, args.sweeps = min(2, args.seeds), 20, [20, 100]
        args.structured_passes = args.structured_passes[:1]
    args.passes = args.passes or TemperedLDA().max_iter
    return args


# ------------------------------------------------------------------------------------- part 1
def from_truth(X, topics, *, eta, n_passes, params, random_state):
    """Batch VI at T = 1 whose topics start at the truth, with the weight of the whole corpus."""
    lam = eta + topics * (X.sum() / len(topics))
    plain = {"temperature": None, "moves": ()}
    model = TemperedLDA(len(topics), random_state=random_state, **plain, **params)
    start_at(model, X, lam).set_params(learning_method="batch", max_iter=n_passes)
    with Stopwatch() as watch:
        model.fit(X)
    yield Point(n_passes, *watch.times, model.posterior_.mean(), model.elbo_)


def methods(args, X, topics):
    """Label -> runner of a seed."""
    k, both = args.k, {"doc_topic_prior": args.alpha, "topic_word_prior": args.eta}
    ours = both | {"n_jobs": args.cores}
    online, batch = [args.passes], [args.batch_passes]
    still = {"moves": ()}
    plain = {"temperature": None} | still
    structured = partial(skvt_curve, X, k, args.structured_passes, estimator=StructuredLDA, **ours)
    return {
        AT_TRUTH: partial(
            from_truth, X.astype(float), topics, eta=args.eta, n_passes=args.batch_passes,
            params=ours,
        ),
        "TemperedLDA, default": partial(skvt_curve, X, k, online, **ours),
        "TemperedLDA, moves=()": partial(skvt_curve, X, k, online, **ours, **still),
        "TemperedLDA, default, 4 times the passes": partial(
            skvt_curve, X, k, [4 * args.passes], **ours
        ),
        "SVI (temperature=None, moves=())": partial(skvt_curve, X, k, online, **ours, **plain),
        "VI (temperature=None, moves=(), batch)": partial(
            skvt_curve, X, k, batch, learning_method="batch", **ours, **plain
        ),
        "TemperedLDA, batch": partial(skvt_curve, X, k, batch, learning_method="batch", **ours),
        "TemperedLDA, batch, moves=()": partial(
            skvt_curve, X, k, batch, learning_method="batch", **ours, **still
        ),
        "StructuredLDA, default": structured,
        "StructuredLDA, moves=()": partial(structured, **still),
        "StructuredLDA, temperature=None, moves=()": partial(structured, **plain),
        "StructuredLDA, replication 10": partial(structured, temperature=LinearAnnealing()),
        "scikit-learn online": partial(sklearn_online_curve, X, k, online, **both),
        "scikit-learn batch": partial(sklearn_batch_curve, X, k, batch, **both),
        "gensim LdaModel": partial(gensim_curve, X, k, online, alpha=[args.alpha] * k,
                                   eta=args.eta),
        "tomotopy (collapsed Gibbs)": partial(
            tomotopy_curve, X, k, args.sweeps, alpha=args.alpha, eta=args.eta,
            workers=args.cores,
        ),
    }  # fmt: skip


def local_optima(args):
    size = {"n_components": args.k, "n_features": args.features}
    priors = {"doc_topic_prior": args.alpha, "topic_word_prior": args.eta}
    train = make_topic_corpus(args.documents, random_state=args.corpus_seed, **size, **priors)
    test = make_topic_corpus(
        args.test_documents, topics=train.topics, doc_topic_prior=args.alpha,
        random_state=args.corpus_seed + 1, return_truth=False,
    )  # fmt: skip
    print(f"training: {describe(train.X)}\ntest:     {describe(test)}")
    print(f"K = {args.k}, alpha {args.alpha:g}, eta {args.eta:g}; compiled in "
          f"{warm_up(train.X, args.k, args.cores):.1f} s\n")  # fmt: skip
    evaluate, n_tokens = DocumentCompletion(test, args.alpha), train.X.sum()
    truth = evaluate(train.topics)
    table, means = [[TRUTH, "", f"{truth:.4f}", "", "", "", ""]], {TRUTH: truth}
    for label, runner in methods(args, train.X, train.topics).items():
        curves = []
        # the start at the truth has nothing random
        for seed in range(1 if label == AT_TRUTH else args.seeds):
            curve = [(p, evaluate(p.topics)) for p in runner(random_state=seed)]
            progress(f"{label}, seed {seed}: {curve[-1][1]:.4f} in {curve[-1][0].seconds:.1f} s")
            curves.append(curve)
        for runs in zip(*curves, strict=True):
            scores, elbos = [r[1] for r in runs], [r[0].elbo / n_tokens for r in runs]
            means[f"{label} at {runs[0][0].length}"] = np.mean(scores)
            table.append([
                label, runs[0][0].length, spread(scores),
                "" if np.isnan(elbos[0]) else spread(elbos),
                f"{np.mean([r[0].seconds for r in runs]):.1f}",
                f"{np.mean([r[0].cpu for r in runs]):.1f}",
                " ".join(f"{score:.4f}" for score in scores),
            ])  # fmt: skip
    print_table(
        f"nats per word, {args.seeds} starts, mean +- sd (length: passes, or sweeps)",
        ["method", "length", "held-out", "ELBO / token", "seconds", "CPU s", "by start"],
        table,
    )
    report_gap(means)


def report_gap(means):
    """How much of the way from plain SVI to the start at the truth each method goes."""
    top = next(value for label, value in means.items() if label.startswith(AT_TRUTH))
    base = next(value for label, value in means.items() if label.startswith("SVI"))
    print(f"share of the gap between SVI ({base:.4f}) and the start at the truth ({top:.4f}):")
    for label, value in means.items():
        if not label.startswith((TRUTH, AT_TRUTH, "SVI")):
            print(f"  {100 * (value - base) / (top - base):6.1f} %  {label}")
    print()


# ------------------------------------------------------------------------------------- part 2
def models_of_choice(args):
    """Label -> (make an estimator of K topics and a seed, its own score of (model, X_test), sign).

    All at their defaults, but for the long fits: a score can choose only between fits that have
    got somewhere.
    """
    batch = {"learning_method": "batch", "max_iter": args.batch_passes}

    def ours(k, seed, **params):
        return TemperedLDA(k, n_jobs=args.cores, random_state=seed, **params)

    def theirs(k, seed, **params):
        return LatentDirichletAllocation(k, random_state=seed, **params)

    long = f"batch, {args.batch_passes} passes"
    return {
        "TemperedLDA, default": (ours, TemperedLDA.score, 1),
        f"TemperedLDA, {long}": (partial(ours, **batch), TemperedLDA.score, 1),
        "scikit-learn, default": (theirs, LatentDirichletAllocation.perplexity, -1),
        f"scikit-learn, {long}": (
            partial(theirs, **batch), LatentDirichletAllocation.perplexity, -1,
        ),
    }  # fmt: skip


def choice_of_k(args):
    n_train, n_test = (500, 100) if args.quick else (2000, 200)
    grid, table, chosen = (5, 10, 20, 40), [], {}

    def add(label, seed, values, sign, digits):
        best = grid[np.argmax(sign * np.asarray(values))]
        table.append([label, seed, *(f"{value:.{digits}f}" for value in values), best])
        chosen.setdefault(label, []).append(best)

    for seed in range(args.seeds):
        corpus = make_topic_corpus(
            n_train, n_components=20, n_features=1000, mean_length=85.0, doc_topic_prior=0.1,
            topic_word_prior=0.05, random_state=seed,
        )  # fmt: skip
        test = make_topic_corpus(
            n_test, topics=corpus.topics, mean_length=85.0, doc_topic_prior=0.1,
            random_state=seed + 1000, return_truth=False,
        )  # fmt: skip
        X, X_test = corpus.X.astype(float), test.astype(float)
        truth = DocumentCompletion(test, 0.1)(corpus.topics)
        print(f"seed {seed}: the truth itself scores {truth:.4f} with the common evaluator")
        for label, (make, own_score, sign) in models_of_choice(args).items():
            own, common, elbos = [], [], []
            for k in grid:
                model = make(k, seed).fit(X)
                own.append(own_score(model, X_test))
                common.append(DocumentCompletion(test, 1.0 / k)(model.components_))
                elbos.append(getattr(model, "elbo_", np.nan) / X.sum())
            progress(f"choice of K, seed {seed}: {label}")
            name = "score" if sign > 0 else "perplexity"
            add(f"{label}: {name}", seed, own, sign, 4 if sign > 0 else 1)
            add(f"{label}: common evaluator", seed, common, 1, 4)
            if sign > 0:
                add(f"{label}: ELBO / token", seed, elbos, 1, 4)
    table.sort(key=lambda row: list(chosen).index(row[0]))
    print_table(
        f"\nNumber of topics: the truth is 20 ({n_train:,} documents; perplexity: lower is better, "
        "all others: higher)",
        ["fit: score", "seed", *(f"K = {k}" for k in grid), "chosen"],
        table,
    )
    for label, values in chosen.items():
        share = np.mean(np.array(values) == 20)
        print(f"{label} chose {values}: the true K in {share:.0%}")


def main():
    args = arguments()
    print_header(*(("gensim", "tomotopy") if 1 in args.parts else ()))
    with cores(args.cores):
        if 1 in args.parts:
            local_optima(args)
        else:
            warm_up(make_topic_corpus(200, random_state=0, return_truth=False), 5, args.cores)
        if 2 in args.parts:
            choice_of_k(args)


if __name__ == "__main__":
    main()
