"""Every local step with every global step, over the prior of the topics [HB15 app. D].

All rows differ in ``local_step=`` and ``global_step=`` alone: no moves, same passes and steps
(those of the paper by default), starts (by seed) and data. "mean_field" with "mean_field" is plain
SVI, and TemperedLDA at the same temperature stands beside it as a check and as the unit of cost.

``--yardsticks`` adds both estimators at their defaults and, where tomotopy is installed, collapsed
Gibbs sampling: how much the prior matters where inference is next to exact.
"""

from functools import partial
from importlib.util import find_spec

import numpy as np
from _common import (
    DocumentCompletion,
    add_data_arguments,
    cores,
    describe,
    least_cpu,
    load_corpus,
    parser,
    print_header,
    print_table,
    progress,
    spread,
    timed,
)
from _peers import tomotopy_curve
from sklearn.base import clone

from skvt import StructuredLDA, TemperedLDA

LOCAL_STEPS = ("mean_field", "cvb0", "gibbs")
GLOBAL_STEPS = ("mean_field", "map", "ssvi-a", "ssvi")
PEER, SVI = "TemperedLDA", "mean_field x mean_field"


def arguments():
    p = parser(__doc__.splitlines()[0])
    add_data_arguments(p)
    p.add_argument("--k", type=int, default=100)
    p.add_argument("--alpha", type=float, default=0.1)
    p.add_argument("--etas", type=float, nargs="+", default=[0.01, 0.1, 0.3, 1.0])
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--passes", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=1000)
    p.add_argument("--offset", type=float, default=1.0)
    p.add_argument("--decay", type=float, default=0.75)
    p.add_argument("--temperatures", nargs="+", choices=["none", "annealed"], default=["none"])
    p.add_argument("--local", nargs="+", choices=LOCAL_STEPS, default=LOCAL_STEPS)
    p.add_argument(
        "--global", nargs="+", choices=GLOBAL_STEPS, default=GLOBAL_STEPS, dest="globals"
    )
    p.add_argument(
        "--ssvi-from",
        type=int,
        default=0,
        metavar="PASSES",
        help='let "ssvi" begin at the topics of so many of its passes by "ssvi-a"',
    )
    p.add_argument(
        "--yardsticks",
        type=int,
        default=0,
        metavar="SWEEPS",
        help="add the defaults, and so many sweeps of collapsed Gibbs sampling",
    )
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="K = 20, 2,000 documents, two priors")
    args = p.parse_args()
    if args.quick:
        args.k, args.etas, args.batch_size = 20, [0.1, 1.0], min(250, args.batch_size)
        args.documents = args.documents or 2000
    return args


def methods(args):
    """Label -> estimator without prior, temperature and seed."""
    params = {
        "n_components": args.k,
        "doc_topic_prior": args.alpha,
        "max_iter": args.passes,
        "batch_size": args.batch_size,
        "learning_offset": args.offset,
        "learning_decay": args.decay,
        "n_jobs": args.cores,
        "moves": (),
    }
    rows = {PEER: TemperedLDA(**params)}
    for global_step in args.globals:
        for local_step in args.local:
            steps = {"local_step": local_step, "global_step": global_step}
            rows[f"{local_step} x {global_step}"] = StructuredLDA(**steps, **params)
    return rows


def default_topics(estimator, X, **params):
    """Topics of the estimator as it is."""
    return estimator(**params).fit(X).components_


def sampled_topics(args, X, *, n_components, doc_topic_prior, topic_word_prior, random_state, **_):
    """Topics of the last state of a collapsed Gibbs sampler."""
    (point,) = tomotopy_curve(
        X.astype(int), n_components, [args.yardsticks], alpha=doc_topic_prior, eta=topic_word_prior,
        random_state=random_state, workers=args.cores,
    )  # fmt: skip
    return point.topics


def yardsticks(args):
    """Label -> (X, parameters) -> topics."""
    rows = {
        f"{estimator.__name__}, default": partial(default_topics, estimator)
        for estimator in (TemperedLDA, StructuredLDA)
    }
    if find_spec("tomotopy"):
        rows[f"tomotopy, {args.yardsticks} sweeps"] = partial(sampled_topics, args)
    return rows if args.yardsticks else {}


def run_yardsticks(args, X, evaluate):
    """Label -> scores (seeds, etas)."""
    rows = yardsticks(args)
    scores = {label: np.empty((args.seeds, len(args.etas))) for label in rows}
    params = {"n_components": args.k, "doc_topic_prior": args.alpha, "n_jobs": args.cores}
    for seed in range(args.seeds):
        for label, topics in rows.items():
            for j, eta in enumerate(args.etas):
                at = params | {"topic_word_prior": eta, "random_state": seed}
                scores[label][seed, j] = evaluate(topics(X, **at))
            progress(f"seed {seed}: {label}:", *(f"{s:.4f}" for s in scores[label][seed]))
    return scores


def fit(args, model, X):
    """Fit; "ssvi" may begin with passes of "ssvi-a"."""
    if args.ssvi_from == 0 or getattr(model, "global_step", None) != "ssvi":
        return model.fit(X)
    model.set_params(global_step="ssvi-a", max_iter=args.ssvi_from).fit(X)
    rest = args.passes - args.ssvi_from
    return model.set_params(global_step="ssvi", max_iter=rest, warm_start=True).fit(X)


def run_all(args, X, evaluate, temperature):
    """Label -> scores (seeds, etas), CPU microseconds a document (seeds, etas).

    The cost is that of three more minibatches, least of two: a fit evaluates a bound at its end.
    """
    rows = methods(args)
    scores = {label: np.empty((args.seeds, len(args.etas))) for label in rows}
    costs = {label: np.empty_like(scores[label]) for label in rows}
    few = X[: 3 * args.batch_size]
    for seed in range(args.seeds):
        for label, row in rows.items():
            for j, eta in enumerate(args.etas):
                model = clone(row).set_params(topic_word_prior=eta, random_state=seed)
                fit(args, model.set_params(temperature=temperature), X)
                scores[label][seed, j] = evaluate(model.components_)
                seconds = least_cpu(2, partial(model.partial_fit, few))
                costs[label][seed, j] = 1e6 * seconds / few.shape[0]
            progress(f"seed {seed}: {label}:", *(f"{s:.4f}" for s in scores[label][seed]))
    return scores, costs


def report(args, scores, costs, temperature):
    means = {label: score.mean(axis=0) for label, score in scores.items()}
    base = means.get(SVI, means[PEER])
    unit = costs[PEER].mean()
    table = []
    for label, mean in means.items():
        table.append([
            label,
            *(spread(scores[label][:, j]) for j in range(mean.size)),
            f"{np.ptp(mean):.4f}",
            f"{np.ptp(mean) / np.ptp(base):.2f}" if np.ptp(base) > 0.0 else "",
            f"{mean.min() - base.max():+.4f}",
            *((f"{costs[label].mean():.0f}", f"{costs[label].mean() / unit:.2f}")
              if label in costs else ("", "")),
        ])  # fmt: skip
    print_table(
        f"{args.corpus}, K = {args.k}, alpha {args.alpha:g}, {args.passes} passes, temperature "
        f"{temperature}, {args.seeds} seeds: held-out nats per word (local x global step)",
        [
            "method", *(f"eta {eta:g}" for eta in args.etas), "range", "/ SVI's",
            "worst - SVI's best", "CPU us / doc", "/ TemperedLDA",
        ],
        table,
    )  # fmt: skip


def main():
    args = arguments()
    print_header()
    X, X_test = load_corpus(
        args.data, args.corpus, n_train=args.documents, split_seed=args.split_seed
    )
    X = X.astype(float)
    print("training:", describe(X), "\ntest:    ", describe(X_test))
    print(f"minibatches of {args.batch_size}, steps ({args.offset:g} + t) ** -{args.decay:g}\n")
    with cores(args.cores):
        for label, model in methods(args).items():
            seconds = timed(model.partial_fit, X[:200])[0]
            progress(f"compiled: {label}, {seconds:.1f} s")
        evaluate = DocumentCompletion(X_test, args.alpha)
        beside = run_yardsticks(args, X, evaluate)
        for name in args.temperatures:
            temperature = None if name == "none" else name
            scores, costs = run_all(args, X, evaluate, temperature)
            report(args, scores | beside, costs, temperature)


if __name__ == "__main__":
    main()
