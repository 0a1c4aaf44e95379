"""Temperatures for topics: none, a grid of annealing schedules, and learned temperatures.

The rows differ in the parameter ``temperature`` only. Passes, minibatches, step sizes, data and, by
seed, starts are the same, and there are no moves. There are two exceptions. Fits without a
temperature are also shown with another step size, so that the comparison is fair, and the last row
has all defaults, with moves. The best schedule of the grid is chosen by the scores in the table,
which favours this schedule.

``--settings`` selects the other parameters. "default" learns the prior of topics, averages topics,
and counts documents ten times while T > 1. "replicated" has a fixed prior and no average, and
"paper" also counts documents once. A second table compares pairs of temperatures by seed: the mean
of the differences with its standard error, the number of seeds for which the second temperature is
better, and the two-sided sign test of this number.
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

# Number of passes of a fit.
PASSES = TemperedLDA().max_iter
PLAIN, DEFAULT = "plain (temperature=None)", "default, with moves"
LEARNED = {"variational": VariationalTempering, "local": LocalTempering}
# Pairs of rows that the second table compares.
PAIRS = [(PLAIN, "annealed"), ("annealed", "variational"), ("variational", "local"),
         ("annealed", "local"), (PLAIN, "local")]  # fmt: skip
FIXED = {"topic_word_prior": None, "average": 0.0}
# Parameters of temperature policies and parameters of the estimator, by setting.
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
    """Return the parameters of the estimator by label, in the order of the rows."""
    policy_params, estimator_params = SETTINGS[args.settings]
    common = {"moves": ()} | estimator_params
    rows = {PLAIN: {"temperature": None} | common}
    rows["plain, learning_offset=10"] = {"temperature": None, "learning_offset": 10.0} | common
    for length in args.lengths:
        for initial in args.temperatures:
            policy = LinearAnnealing(initial_temperature=initial, n_passes=length)
            rows[f"linear from {initial:g} over {length:g}"] = {"temperature": policy} | common
    rows["annealed"] = {"temperature": LinearAnnealing(**policy_params)} | common
    for name, policy_class in LEARNED.items():
        rows[name] = {"temperature": policy_class(**policy_params)} | common
    rows[DEFAULT] = {}
    return rows


def fit_all(args, X, evaluate):
    """Return the runs of each label by seed.

    A run has the score, the bound per token, CPU seconds, and the temperature after each pass.
    """
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
    """Print a table of all runs, and a table of differences by seed."""
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
        # The score and the bound are the first two results of a run.
        for position in (0, 1):
            gain = np.array([run[position] for run in results[second]])
            gain = gain - [run[position] for run in results[first]]
            error = gain.std(ddof=1) / np.sqrt(gain.size) if gain.size > 1 else np.nan
            n_better, n_different = int((gain > 0.0).sum()), int((gain != 0.0).sum())
            p = binomtest(n_better, n_different).pvalue if n_different else 1.0
            row += [f"{gain.mean():+.4f} +- {error:.4f}", f"{n_better}/{gain.size}", f"{p:.3f}"]
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
