"""Which temperature: plain SVI, a grid of annealing schedules, learned temperatures.

All rows differ in ``temperature=`` alone: same passes, minibatches, step sizes, starts (by seed)
and data, no moves. Only plain SVI is shown with another step size, too, so that it is no straw man,
and the last row is the estimator as it is by default, with moves. The best schedule of the grid is
chosen by the very scores that the table shows, which favours it.

``--settings`` are the rest of a fit: "default" (learned prior of topics, averaged topics, documents
counted ten times while hot), "replicated" (fixed prior, no average) and "paper" (documents counted
once, too). A second table compares temperatures start by start: mean of the differences with its
standard error, in how many starts the second is better, and the two-sided sign test of that number.
"""

import numpy as np
from _common import (
    DocumentCompletion,
    add_data_arguments,
    format_mean,
    limited_to_cores,
    parser,
    print_header,
    print_progress,
    print_table,
    read_corpora,
    timed,
)
from _peers import warm_up
from scipy.stats import binomtest

from skvt import TemperedLDA
from skvt.temperature import LinearAnnealing, LocalTempering, VariationalTempering

PASSES = TemperedLDA().max_iter
PLAIN, DEFAULT = "plain (temperature=None)", "default, with moves"
LEARNED = {"variational": VariationalTempering, "local": LocalTempering}
PAIRS = [(PLAIN, "annealed"), ("annealed", "variational"), ("variational", "local"),
         ("annealed", "local"), (PLAIN, "local")]  # fmt: skip
FIXED = {"topic_word_prior": None, "average": 0.0}
# Setting -> (parameters of temperatures, parameters of the estimator).
SETTINGS = {"paper": ({"replication": 1.0}, FIXED), "replicated": ({}, FIXED), "default": ({}, {})}


def arguments():
    p = parser(__doc__.splitlines()[0])
    add_data_arguments(p)
    p.add_argument("--k", type=int, default=50, help="topics")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--cores", type=int, default=2)
    p.add_argument("--temperatures", type=float, nargs="*", default=(1.25, 1.5, 2.0, 3.0))
    p.add_argument("--lengths", type=float, nargs="*", default=(1, 2, 5, 8), help="passes, hot")
    p.add_argument("--settings", choices=SETTINGS, default="default")
    p.add_argument("--quick", action="store_true", help="2 seeds, a grid of 4, 2,000 documents")
    args = p.parse_args()
    if args.quick:
        args.seeds, args.temperatures, args.lengths = min(2, args.seeds), (1.5, 2.0), (2, 5)
        args.documents = args.documents or 2000
    return args


def rows_of(args):
    """Label -> parameters of an estimator, in order."""
    of_policies, of_estimator = SETTINGS[args.settings]
    still = {"moves": ()} | of_estimator
    rows = {PLAIN: {"temperature": None} | still}
    rows["plain, learning_offset=10"] = {"temperature": None, "learning_offset": 10.0} | still
    for length in args.lengths:
        for top in args.temperatures:
            policy = LinearAnnealing(initial_temperature=top, n_passes=length)
            rows[f"linear from {top:g} over {length:g}"] = {"temperature": policy} | still
    rows["annealed"] = {"temperature": LinearAnnealing(**of_policies)} | still
    for name, learned in LEARNED.items():
        rows[name] = {"temperature": learned(**of_policies)} | still
    rows[DEFAULT] = {}
    return rows


def fit_all(args, X, evaluate):
    """Label -> runs by seed of (score, ELBO per token, CPU seconds, temperatures)."""
    results = {}
    for label, params in rows_of(args).items():
        results[label] = []
        for seed in range(args.seeds):
            model = TemperedLDA(args.k, random_state=seed, n_jobs=args.cores, **params)
            _, cpu, _ = timed(model.fit, X)
            run = evaluate(model.posterior_.mean()), model.elbo_ / X.sum(), cpu
            results[label].append((*run, model.history_["temperature"]))
            print_progress(f"{label}, seed {seed}: {run[0]:.4f} in {cpu:.1f} s")
    return results


def report(args, results):
    grid = [label for label in results if label.startswith("linear from")]
    scores = {label: np.array([run[0] for run in runs]) for label, runs in results.items()}
    best = max(grid, key=lambda label: scores[label].mean(), default=None)
    table = []
    for label, runs in results.items():
        _, elbo, cpu, paths = zip(*runs, strict=True)
        table.append([
            label + ("  <- best of the grid" if label == best else ""), format_mean(scores[label]),
            format_mean(scores[label] - scores[PLAIN]), format_mean(elbo), format_mean(cpu, 1),
            f"{np.mean([np.count_nonzero(np.array(path) > 1.0) for path in paths]):.1f}",
            " ".join(f"{T:.2f}" for T in np.mean(paths, axis=0)),
        ])  # fmt: skip
    print_table(
        f"{args.corpus}, K = {args.k}, {PASSES} passes, {args.settings}: nats per word, mean "
        f"+- sd over {args.seeds} seeds (the gain is paired by seed; hot are the passes that end "
        "above T = 1)",
        ["temperature", "held-out", "gain", "ELBO / token", "CPU s", "hot", "T after each pass"],
        table,
    )
    table = []
    for first, second in [*PAIRS, *((best, name) for name in ("annealed", *LEARNED) if best)]:
        if first not in results or second not in results:
            continue
        row = [f"{second} - {first}"]
        for place in (0, 1):
            gain = np.array([r[place] for r in results[second]])
            gain = gain - [r[place] for r in results[first]]
            error = gain.std(ddof=1) / np.sqrt(gain.size) if gain.size > 1 else np.nan
            better, differ = int((gain > 0.0).sum()), int((gain != 0.0).sum())
            p = binomtest(better, differ).pvalue if differ else 1.0
            row += [f"{gain.mean():+.4f} +- {error:.4f}", f"{better}/{gain.size}", f"{p:.3f}"]
        table.append(row)
    columns = [column for m in ("held-out", "ELBO") for column in (m, "better", "sign p")]
    print_table("differences by seed: mean +- standard error", ["", *columns], table)


def main():
    args = arguments()
    print_header(args)
    X, X_test = read_corpora(args)
    X, completion = X.astype(np.float64), DocumentCompletion(X_test, 1.0 / args.k)
    with limited_to_cores(args.cores):
        warm_up(X, args.k, args.cores, [np.float64])
        report(args, fit_all(args, X, completion))


if __name__ == "__main__":
    main()
