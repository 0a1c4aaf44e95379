"""Is the order of VT16 found: plain SVI < annealing <= VT < LVT, with starts enough to tell?

Four temperatures, none, annealed, one learned for all documents ("variational", VT) and one learned
for each ("local", LVT), all else equal: same starts (by seed), minibatches, steps and passes, no
moves. Differences are taken start by start: their mean with its standard error, the number of
starts in which the second is better, and the two-sided sign test of that number.

``--settings`` are the rest of a fit: "paper" (each document counted once, fixed prior of topics, no
average), "replicated" (the same, documents counted ten times while hot, as by default) and
"default" (learned prior of topics and averaged topics, too).

``--scorings learned`` lets the evaluator learn the prior of documents for the topics at hand.
"""

import numpy as np
from _common import (
    DocumentCompletion,
    add_data_arguments,
    cores,
    describe,
    learned_prior,
    load_corpus,
    parser,
    print_header,
    print_table,
    progress,
    spread,
    timed,
)
from _peers import warm_up
from scipy.stats import binomtest

from skvt import TemperedLDA
from skvt.temperature import LinearAnnealing, LocalTempering, VariationalTempering

POLICIES = {"annealed": LinearAnnealing, "variational": VariationalTempering,
            "local": LocalTempering}  # fmt: skip
PLAIN = "plain"
PAIRS = [(PLAIN, "annealed"), ("annealed", "variational"), ("variational", "local"),
         ("annealed", "local"), (PLAIN, "local")]  # fmt: skip
FIXED = {"topic_word_prior": None, "average": 0.0}
# Setting -> (parameters of policies, parameters of the estimator).
SETTINGS = {"paper": ({"replication": 1.0}, FIXED), "replicated": ({}, FIXED), "default": ({}, {})}


def arguments():
    p = parser(__doc__.splitlines()[0])
    add_data_arguments(p)
    p.add_argument("--k", type=int, default=50, help="topics")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--passes", type=int, default=10)
    p.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    p.add_argument("--scorings", nargs="+", choices=["common", "learned"], default=["common"])
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="K = 20, 3 seeds, 2,000 documents")
    args = p.parse_args()
    if args.quick:
        args.k, args.seeds, args.documents = 20, 3, args.documents or 2000
    return args


def compare(args, X, evaluators, setting):
    """(label -> measure -> values by seed, label -> mean CPU seconds)."""
    of_policies, of_estimator = SETTINGS[setting]
    policies = {PLAIN: None} | {name: make(**of_policies) for name, make in POLICIES.items()}
    values, costs = {name: {} for name in policies}, {}
    for name, policy in policies.items():
        cpus = []
        for seed in range(args.seeds):
            model = TemperedLDA(
                args.k, temperature=policy, moves=(), max_iter=args.passes, n_jobs=args.cores,
                random_state=seed, **of_estimator,
            )  # fmt: skip
            cpus.append(timed(model.fit, X)[1])
            measured = {scoring: score(model) for scoring, score in evaluators.items()}
            measured["ELBO / token"] = model.elbo_ / X.sum()
            for measure, value in measured.items():
                values[name].setdefault(measure, []).append(value)
            progress(setting, name, seed, *(f"{value:.4f}" for value in measured.values()))
        costs[name] = np.mean(cpus)
    return values, costs


def report(args, setting, values, costs):
    measures = list(values[PLAIN])
    title = f"{args.corpus}, K = {args.k}, {args.passes} passes, {setting}"
    print_table(
        f"{title}: nats per word, mean +- sd over {args.seeds} seeds",
        ["temperature", *measures, "CPU s"],
        [[name, *(spread(of[m]) for m in measures), f"{costs[name]:.1f}"]
         for name, of in values.items()],
    )  # fmt: skip
    table = []
    for first, second in PAIRS:
        row = [f"{second} - {first}"]
        for measure in measures:
            gain = np.subtract(values[second][measure], values[first][measure])
            error = gain.std(ddof=1) / np.sqrt(gain.size) if gain.size > 1 else np.nan
            better, differ = int((gain > 0.0).sum()), int((gain != 0.0).sum())
            p = binomtest(better, differ).pvalue if differ else 1.0
            row += [f"{gain.mean():+.4f} +- {error:.4f}", f"{better}/{gain.size}", f"{p:.3f}"]
        table.append(row)
    columns = [column for m in measures for column in (m, "better", "sign p")]
    print_table("differences by seed: mean +- standard error", ["", *columns], table)


def main():
    args = arguments()
    print_header()
    X, X_test = load_corpus(
        args.data, args.corpus, n_train=args.documents, split_seed=args.split_seed
    )
    print("training:", describe(X), "\ntest:    ", describe(X_test))
    X = X.astype(np.float64)
    with cores(args.cores):
        warm_up(X, args.k, args.cores, ["float64"])
        evaluate = DocumentCompletion(X_test, 1.0 / args.k)

        def by_learned_prior(model):
            topics = model.posterior_.mean()
            return evaluate(topics, learned_prior(X[:1000], topics, 1.0 / args.k))

        def by_common_prior(model):
            return evaluate(model.posterior_.mean())

        scorings = {"common": by_common_prior, "learned": by_learned_prior}
        evaluators = {name: scorings[name] for name in args.scorings}
        for setting in args.settings:
            report(args, setting, *compare(args, X, evaluators, setting))


if __name__ == "__main__":
    main()
