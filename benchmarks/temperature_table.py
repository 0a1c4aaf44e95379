"""Which temperature: plain SVI, a grid of annealing schedules, learned temperatures.

All rows differ in ``temperature=`` alone: same passes, minibatches, step sizes, starts (by seed)
and data, no moves. Only plain SVI is shown with another step size, too, so that it is no straw man,
and the last row is the estimator as it is by default, with moves. The best
schedule of the grid is chosen by the very scores that the table shows, which favours it.

``--log-partition closed_form log_mean mean_log nested map`` has a row for each way to compute
log C(T).

A few passes of stochastic inference do not reach a fixed point, and a hot start leaves fewer of
them at T = 1, so the ELBO there says little about the optimum that is being approached. With
``--polish N`` each fit is followed by N batch passes at T = 1 and both values are shown again.
"""

import time

import numpy as np
from _common import (
    DocumentCompletion,
    add_data_arguments,
    describe,
    load_corpus,
    parser,
    print_header,
    print_table,
    progress,
    spread,
)
from _peers import warm_up

from skvt import TemperedLDA
from skvt.temperature import LinearAnnealing, LocalTempering, VariationalTempering

GRID_TEMPERATURES = (1.25, 1.5, 2.0, 3.0)
GRID_PASSES = (1, 2, 5, 8)
LEARNED = {"variational": VariationalTempering, "local": LocalTempering}


def arguments():
    p = parser(__doc__.splitlines()[0])
    add_data_arguments(p)
    p.add_argument("--k", type=int, default=50, help="topics")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--passes", type=int, default=None, help="None is the estimator's default")
    p.add_argument("--offset", type=float, default=None, help="learning_offset, None as above")
    p.add_argument("--batch-size", type=int, default=None, help="None as above")
    p.add_argument("--method", choices=["online", "batch"], default="online")
    p.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    p.add_argument("--n-jobs", type=int, default=2)
    p.add_argument("--temperatures", type=float, nargs="*", default=GRID_TEMPERATURES)
    p.add_argument("--lengths", type=float, nargs="*", default=GRID_PASSES)
    p.add_argument(
        "--plain-offsets", type=float, nargs="*", default=[10.0],
        help="more values of learning_offset for plain SVI",
    )  # fmt: skip
    p.add_argument(
        "--log-partition", nargs="*", default=["closed_form"],
        help="how learned temperatures compute log C(T): closed_form, log_mean, ...",
    )  # fmt: skip
    p.add_argument("--polish", type=int, default=0, help="batch passes at T = 1 after each fit")
    p.add_argument("--figure", metavar="FILE", default=None, help="temperatures over passes")
    p.add_argument("--quick", action="store_true", help="2 seeds, a grid of 4, 2,000 documents")
    args = p.parse_args()
    if args.quick:
        args.seeds, args.temperatures, args.lengths = min(2, args.seeds), (1.5, 2.0), (2, 5)
        args.documents = args.documents or 2000
    return args


def policies(args, max_iter):
    """Label -> (temperature, other parameters), in order; what does not exist is named and left."""
    default = TemperedLDA().temperature
    rows = {"plain (temperature=None)": (None, {"moves": ()})}
    for offset in args.plain_offsets if args.method == "online" else []:
        steps = {"learning_offset": offset, "moves": ()}
        rows[f"plain, learning_offset={offset:g}"] = None, steps
    for length in args.lengths:
        if length > max_iter - 1:
            print(f"left out: annealing over {length:g} passes, since {max_iter} are made")
            continue
        for top in args.temperatures:
            label = f"linear from {top:g} over {length:g}"
            policy = LinearAnnealing(initial_temperature=top, n_passes=length)
            rows[label] = policy, {"moves": ()}
    rows[f"default ({default!r})"] = default, {"moves": ()}
    for name, learned in LEARNED.items():
        for method in args.log_partition:
            label = name if method == "closed_form" else f"{name}, {method}"
            rows[label] = learned(log_partition=method), {"moves": ()}
    rows["default, with moves"] = default, {}
    print()
    return rows


def fit_all(args, X, evaluate, params, rows):
    """Label -> list over seeds of (score, elbo per token, seconds, temperatures, polished)."""
    n_tokens, results = X.sum(), {label: [] for label in rows}
    for seed in range(args.seeds):
        for label, (temperature, others) in rows.items():
            started = time.perf_counter()
            model = TemperedLDA(temperature=temperature, random_state=seed, **params | others)
            model.fit(X)
            seconds = time.perf_counter() - started
            score = evaluate(model.posterior_.mean())
            run = (score, model.elbo_ / n_tokens, seconds, model.history_["temperature"])
            results[label].append((*run, polish(args, model, X, evaluate)))
            progress(f"seed {seed}: {label}: {score:.4f} in {seconds:.1f} s")
    return results


def polish(args, model, X, evaluate):
    """(score, elbo per token) after batch passes at T = 1 from where the model is."""
    if args.polish == 0:
        return None
    model.set_params(
        warm_start=True, learning_method="batch", temperature=None, max_iter=args.polish, moves=()
    )
    model.fit(X)
    return evaluate(model.posterior_.mean()), model.elbo_ / X.sum()


def best_schedule(results):
    """The label of the annealing schedule with the highest mean score, or None."""
    grid = [label for label in results if label.startswith("linear from")]
    return max(grid, key=lambda label: np.mean([r[0] for r in results[label]]), default=None)


def report(args, results):
    best, base = best_schedule(results), np.array([r[0] for r in next(iter(results.values()))])
    table = []
    for label, runs in results.items():
        scores = np.array([run[0] for run in runs])
        table.append([
            label + ("  <- best of the grid" if label == best else ""),
            spread(scores),
            spread(scores - base) if label != next(iter(results)) else "",
            spread([run[1] for run in runs]),
            f"{np.mean([run[2] for run in runs]):.1f}",
            f"{np.mean([np.count_nonzero(np.array(run[3]) > 1.0) for run in runs]):.1f}",
            f"{np.mean([run[3][-1] for run in runs]):.3f}",
            " ".join(f"{score:.4f}" for score in scores),
        ])  # fmt: skip
        if args.polish:
            table[-1] += [spread([run[4][i] for run in runs]) for i in (0, 1)]
    headers = [
        "temperature",
        "held-out",
        "gain",
        "ELBO / token",
        "s / fit",
        "hot",
        "final T",
        "by seed",
    ]
    if args.polish:
        headers += ["polished held-out", "polished ELBO / token"]
    print_table(
        f"{args.corpus}, K = {args.k}, nats per word, mean +- sd over {args.seeds} seeds (the gain "
        "is paired by seed; hot are the passes that end above T = 1, final T is that of the last)",
        headers,
        table,
    )
    for label in (*LEARNED, *(name for name in results if name.startswith("default"))):
        if label in results and best is not None:
            gap = np.array([r[0] for r in results[label]]) - [r[0] for r in results[best]]
            print(f"{label} minus the best of the grid ({best}): {spread(gap)} nats")
    for label, runs in results.items():
        if label.startswith(tuple(LEARNED)):
            path = np.mean([run[3] for run in runs], axis=0)
            print(f"T after each pass, {label}:", " ".join(f"{T:.3f}" for T in path))
    order = list(results)
    by_score = max(order, key=lambda name: np.mean([r[0] for r in results[name]]))
    by_elbo = max(order, key=lambda name: np.mean([r[1] for r in results[name]]))
    print(f"highest held-out score: {by_score}; highest ELBO at T = 1: {by_elbo}")


def draw(args, results):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = [best_schedule(results), *(name for name in results if name.startswith("default"))]
    shown += [name for name in LEARNED if name in results]
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for number, label in enumerate(dict.fromkeys(name for name in shown if name)):
        for seed, run in enumerate(results[label]):
            passes = np.arange(1, len(run[3]) + 1)
            axes.plot(passes, run[3], color=f"C{number}", alpha=0.7, label=None if seed else label)
    axes.set(xlabel="passes", ylabel="temperature", title=f"{args.corpus}, K = {args.k}")
    axes.legend()
    figure.savefig(args.figure, dpi=150)
    print("temperatures over passes:", args.figure)


def main():
    args = arguments()
    print_header()
    X, X_test = load_corpus(
        args.data, args.corpus, n_train=args.documents, split_seed=args.split_seed
    )
    print("training:", describe(X), "\ntest:    ", describe(X_test))
    params = {
        "n_components": args.k,
        "learning_method": args.method,
        "max_iter": args.passes,
        "learning_offset": args.offset,
        "batch_size": args.batch_size,
        "n_jobs": args.n_jobs,
    }
    params = {name: value for name, value in params.items() if value is not None}
    model = TemperedLDA(**params)
    print(
        f"passes {model.max_iter}, batch_size {model.batch_size}, learning_offset "
        f"{model.learning_offset}, learning_decay {model.learning_decay:g}, {args.method}, "
        f"{args.dtype}, doc_topic_prior {model.doc_topic_prior}, topic_word_prior "
        f"{model.topic_word_prior}, evaluator's alpha 1/K"
    )
    rows = policies(args, model.max_iter)
    X = X.astype(args.dtype)
    warm_up(X, args.k, args.n_jobs, [args.dtype])
    results = fit_all(args, X, DocumentCompletion(X_test, 1.0 / args.k), params, rows)
    report(args, results)
    if args.figure:
        draw(args, results)


if __name__ == "__main__":
    main()
