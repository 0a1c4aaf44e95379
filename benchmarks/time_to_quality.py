"""Quality against seconds: scikit-learn, gensim, tomotopy, MALLET, topica, Vowpal Wabbit and ours.

Every library gets the same documents, the same symmetric priors (1/K), the same number of cores
and the same evaluator; all other parameters are its own defaults unless the label says otherwise.
TemperedLDA begins to learn the prior of topics there, which is its default; MALLET (one core)
learns both, as its authors recommend. Topics are scored by the completion of documents, with the
prior 1/K of documents for all of them ("common") or with the prior that the evaluator finds for
them on training documents ("learned"), and by the probability of whole documents, left to right,
with the prior at which training documents are most probable ("left-to-right") or with 1/K
("left-to-right-common"). Their words are scored by coherence in the training documents, the NPMI
of the ten most probable, as a mean over topics ("npmi") or over the tokens that topics have in
training documents under the learned prior ("npmi-by-tokens"), and by the share of distinct ones
("diversity").
A budget is met by a point of a curve whose CPU seconds fit into it; each library shows its best.
scikit-learn runs with one job: compare on one core. Compilation (and loading from numba's cache) is
not part of our seconds; it is printed apart. Our seconds contain the exact bound that ``fit``
evaluates at its end; scikit-learn is not charged for its own.
"""

import re
from functools import partial

import numpy as np
from _common import (
    DocumentCompletion,
    add_data_arguments,
    cores,
    corpora,
    learned_prior,
    parser,
    peers_of,
    print_header,
    print_table,
    progress,
    spread,
    topic_weights,
    word_probabilities,
)
from _left_to_right import LeftToRight, sampled_prior
from _peers import (
    gensim_curve,
    mallet_curve,
    sklearn_online_curve,
    skvt_curve,
    tomotopy_curve,
    topica_curve,
    vowpalwabbit_curve,
    warm_up,
)

from skvt import StructuredLDA, TemperedLDA
from skvt.metrics import topic_coherence

LIBRARIES = ("skvt", "sklearn-online", "gensim", "tomotopy", "mallet", "topica", "vowpalwabbit")
DEFAULT_LIBRARIES = ("skvt", "sklearn-online", "gensim", "tomotopy")
BOTH = "TemperedLDA, alpha learned"
POLISHED = "TemperedLDA, n_polish as many"
COLLAPSED = "StructuredLDA, collapsed"
COLLAPSED_PARAMS = {"global_step": "collapsed", "average": 0.5}
# Fits that compile what the default does not.
WARM_UPS = (
    (TemperedLDA, {"doc_topic_prior": "auto"}),
    (TemperedLDA, {"n_polish": 2}),
    (StructuredLDA, COLLAPSED_PARAMS),
)
SCORINGS = ("common", "learned")  # completions of documents, by prior
WORDS = ("npmi", "npmi-by-tokens", "diversity")
WHOLE = {"left-to-right": "sampled", "left-to-right-common": "common"}
# The best settings tried on kos, K = 50, by the common score after 5 passes. gensim: chunks of 256
# documents, decay 0.7 or offset 10 score less than its default chunks of 2,000.
GENSIM_TUNED = {"alpha": "auto", "eta": "auto"}
# Vowpal Wabbit: minibatches of 64, 256 and 1,024, power_t 0.5 and 0.7, learning_rate 0.3, 0.5
# and 1, initial_t 1 and 10; on ap, K = 100, too.
VOWPALWABBIT_TUNED = {"minibatch": 1024, "learning_rate": 1.0, "initial_t": 1.0}


def arguments():
    p = parser(__doc__.splitlines()[0])
    add_data_arguments(p)
    p.add_argument("--k", type=int, default=50, help="topics")
    p.add_argument("--seeds", type=int, default=3, help="of skvt")
    p.add_argument("--peer-seeds", type=int, default=1, help="of the others, which take longer")
    p.add_argument("--cores", type=int, default=1, help="for every library")
    p.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=DEFAULT_LIBRARIES)
    p.add_argument("--scorings", nargs="+", choices=(*SCORINGS, *WHOLE, *WORDS), default=["common"])
    p.add_argument("--learned-from", type=int, default=1000, help="documents, for the prior")
    p.add_argument("--particles", type=int, default=20, help="of left-to-right")
    p.add_argument("--passes", type=int, nargs="+", default=[1, 2, 3, 5, 10, 20], help="skvt")
    p.add_argument("--peer-passes", type=int, nargs="+", default=[1, 2, 5, 10])
    p.add_argument("--sweeps", type=int, nargs="+", default=[20, 50, 100, 200, 500])
    sweeps = [50, 100, 200, 500, 1000]
    p.add_argument("--mallet-sweeps", type=int, nargs="+", default=sweeps, help="and topica's")
    p.add_argument("--collapsed-sweeps", type=int, nargs="+", default=[10, 20, 50, 100, 200])
    p.add_argument(
        "--tuned", action="store_true", help="also learned alpha, polished and collapsed fits"
    )
    p.add_argument(
        "--tuned-peers",
        action="store_true",
        help="also scikit-learn with learning_offset=64, tomotopy with its own priors, "
        "gensim and Vowpal Wabbit at their best",
    )
    p.add_argument("--only", metavar="REGEX", default="", help="only rows whose label has this")
    p.add_argument("--budgets", type=float, nargs="+", default=None, help="CPU seconds")
    p.add_argument("--quick", action="store_true", help="3,000 documents, short fits, 1 seed")
    args = p.parse_args()
    if args.quick:
        args.documents = args.documents or 3000
        args.seeds, args.passes, args.peer_passes = 1, [1, 2, 5, 10], [1, 3]
        args.sweeps, args.mallet_sweeps, args.collapsed_sweeps = [20, 100], [50, 100], [20, 50]
    return args


def runners(args, X):
    """Label -> runner of a seed; the best settings of others are tried beside their defaults."""
    k, prior = args.k, 1.0 / args.k
    rows, tuned = {}, {}
    if "skvt" in args.libraries:
        ours = partial(skvt_curve, X, k, args.passes, n_jobs=args.cores)
        rows["TemperedLDA, float64"] = partial(ours, dtype=np.float64)
        rows["TemperedLDA, float32"] = partial(ours, dtype=np.float32)
        if args.tuned:
            rows[BOTH] = partial(ours, dtype=np.float32, doc_topic_prior="auto")
            rows[POLISHED] = partial(ours, polish=True)
            sweeps = partial(skvt_curve, X, k, args.collapsed_sweeps, n_jobs=args.cores)
            rows[COLLAPSED] = partial(sweeps, estimator=StructuredLDA, **COLLAPSED_PARAMS)
    if "sklearn-online" in args.libraries:
        rows["scikit-learn online"] = partial(sklearn_online_curve, X, k, args.peer_passes)
        tuned["scikit-learn online"] = "learning_offset=64", {"learning_offset": 64.0}
    if "gensim" in args.libraries:
        rows["gensim LdaModel"] = partial(gensim_curve, X, k, args.peer_passes)
        tuned["gensim LdaModel"] = "priors learned", GENSIM_TUNED
    if "tomotopy" in args.libraries:
        gibbs = partial(tomotopy_curve, X, k, args.sweeps, workers=args.cores)
        rows["tomotopy"] = partial(gibbs, alpha=prior, eta=prior)
        own = {"alpha": 0.1, "eta": 0.01, "optimise": True}
        tuned["tomotopy"] = "its own priors (alpha learned)", own
    if "mallet" in args.libraries:
        rows["MALLET"] = partial(mallet_curve, X, k, args.mallet_sweeps)
    if "topica" in args.libraries:
        for sampler in ("sparse", "warp", "cvb0"):
            rows[f"topica, {sampler}"] = partial(
                topica_curve, X, k, args.mallet_sweeps, sampler=sampler, n_threads=args.cores
            )
    if "vowpalwabbit" in args.libraries:
        rows["Vowpal Wabbit"] = partial(
            vowpalwabbit_curve, X, k, args.peer_passes, alpha=prior, eta=prior
        )
        tuned["Vowpal Wabbit"] = "minibatch=1024, learning_rate=1", VOWPALWABBIT_TUNED
    if args.tuned_peers:
        rows |= {f"{label}, {how}": partial(rows[label], **more)
                 for label, (how, more) in tuned.items()}  # fmt: skip
    return {label: row for label, row in rows.items() if re.search(args.only, label)}


class Scores:
    """Scores of topics, one for each of the chosen scorings."""

    def __init__(self, X, X_test, n_topics, scorings, n_particles=20, learned_from=1000):
        rows = np.random.default_rng(1).permutation(X.shape[0])[:learned_from]
        self._prior, self._sample, self._scorings = 1.0 / n_topics, X[rows], scorings
        self._X = X
        self._completion = DocumentCompletion(X_test, self._prior)
        if set(scorings) & set(WHOLE):
            self._whole = LeftToRight(X_test, n_particles=n_particles)

    def __call__(self, topics):
        alphas = {"common": self._prior}
        if {"learned", "npmi-by-tokens"} & set(self._scorings):
            alphas["learned"] = learned_prior(self._sample, topics, self._prior)
        if "left-to-right" in self._scorings:
            alphas["sampled"] = sampled_prior(self._sample, topics, self._prior)
        return np.array([self._score(topics, alphas, scoring) for scoring in self._scorings])

    def _score(self, topics, alphas, scoring):
        if scoring in WHOLE:
            return self._whole(topics, alphas[WHOLE[scoring]])
        if scoring == "npmi-by-tokens":
            alpha = alphas["learned"]
            tokens = topic_weights(self._sample, word_probabilities(topics), alpha, 1e-3) - alpha
            return np.average(topic_coherence(topics, self._X), weights=tokens.sum(axis=0))
        if scoring == "npmi":
            return topic_coherence(topics, self._X).mean()
        if scoring == "diversity":
            top = np.argsort(-topics, axis=1)[:, :10]
            return np.unique(top).size / top.size
        return self._completion(topics, alphas[scoring])


def run_all(args, rows, evaluate):
    """Label -> list over seeds of lists of (length, seconds, scores, CPU seconds)."""
    results = {}
    for label, runner in rows.items():
        results[label] = []
        for seed in range(args.seeds if is_ours(label) else args.peer_seeds):
            curve = []
            for point in runner(random_state=seed):
                score = evaluate(point.topics)
                curve.append((point.length, point.seconds, score, point.cpu))
                told = ", ".join(f"{value:.4f}" for value in score)
                progress(
                    f"{label}, seed {seed}, length {point.length}: {told} after "
                    f"{point.seconds:.2f} s, {point.cpu:.2f} CPU s"
                )
            results[label].append(curve)
    return results


def report(args, results):
    table = []
    for label, curves in results.items():
        for points in zip(*curves, strict=True):
            seconds, scores = [p[1] for p in points], np.array([p[2] for p in points]).T
            table.append([
                label, points[0][0], spread(seconds, 2), spread([p[3] for p in points], 2),
                *map(spread, scores), " ".join(f"{score:.4f}" for score in scores[0]),
            ])  # fmt: skip
    print_table(
        f"{args.corpus}, K = {args.k}: held-out nats per word by the prior of documents (length: "
        f"passes, for tomotopy, MALLET and topica sweeps; {args.cores} cores each; CPU s: without "
        "worker processes; mean +- sd)",
        ["library", "length", "seconds", "CPU s", *args.scorings, f"{args.scorings[0]} by seed"],
        table,
    )
    if args.budgets:
        report_budgets(args, results)


def is_ours(label):
    return label.startswith(("TemperedLDA", "StructuredLDA"))


def within(curves, budget, number):
    """Scores over seeds, by one scoring, of the point best on average within CPU seconds."""
    points = [
        [p[2][number] for p in points]
        for points in zip(*curves, strict=True)
        if np.mean([p[3] for p in points]) <= budget
    ]
    return max(points, key=np.mean, default=None)


def report_budgets(args, results):
    """Who is best within each budget, by each scoring."""
    for number, scoring in enumerate(args.scorings):
        columns = [
            {label: within(curves, budget, number) for label, curves in results.items()}
            for budget in args.budgets
        ]
        columns = [{k: v for k, v in column.items() if v is not None} for column in columns]
        best = [max(column, key=lambda k: np.mean(column[k]), default=None) for column in columns]
        table = [
            [label]
            + [
                spread(column[label]) + "* "[label != first] if label in column else "- "
                for column, first in zip(columns, best, strict=True)
            ]
            for label in results
        ]
        print_table(
            f"{args.corpus}, K = {args.k}: best {scoring} score of a point within so many CPU "
            "seconds (mean +- sd; * the best of all)",
            ["library", *(f"{budget:g} s " for budget in args.budgets)],
            table,
        )
        lost = [
            f"{budget:g} s ({first}, by {lead(column, first):.4f})"
            for budget, column, first in zip(args.budgets, columns, best, strict=True)
            if first is not None and not is_ours(first)
        ]
        told = f"at {', '.join(lost)}" if lost else "at none of these budgets"
        print(f"{scoring}: another library is ahead of ours {told}\n")


def lead(column, first):
    """How much more the best library scores than the best of ours."""
    ours = [np.mean(scores) for label, scores in column.items() if is_ours(label)]
    return np.mean(column[first]) - max(ours, default=-np.inf)


def main():
    args = arguments()
    print_header(args, *peers_of(args.libraries))
    X, X_test = corpora(args)
    with cores(args.cores):
        seconds = warm_up(X, args.k, args.cores, others=WARM_UPS if args.tuned else ())
        print(f"skvt: compiling or loading its kernels took {seconds:.1f} s")
        evaluate = Scores(X, X_test, args.k, args.scorings, args.particles, args.learned_from)
        results = run_all(args, runners(args, X), evaluate)
    print()
    report(args, results)


if __name__ == "__main__":
    main()
