"""Quality and time of topic models: scikit-learn, gensim, tomotopy, MALLET, topica, VW and skvt.

Every library gets the same documents, the same symmetric priors 1 / K for K topics, the same number
of cores and the same evaluator. All other parameters are the defaults of the library unless the
label says otherwise. TemperedLDA learns the prior of topics, starting from 1 / K, which is its
default. MALLET runs on one core and learns both priors, as its authors recommend.

Scorings of topics:

- "common": the completion of held-out documents, with the prior 1 / K of a document's topics;
- "learned": the same with the prior that the evaluator learns on training documents;
- "left-to-right": the probability of whole held-out documents, with the prior under which training
  documents are most probable;
- "left-to-right-common": the same with the prior 1 / K;
- "npmi": the coherence of the ten most probable words of a topic in the training documents, as a
  mean over topics;
- "npmi-by-tokens": the same as a mean weighted by the tokens that topics have in training documents
  under the learned prior;
- "diversity": the share of distinct words among the ten most probable words of all topics.

A curve has a point for each length of fit. Each library shows its best point whose CPU seconds are
within a budget. scikit-learn runs with one job, so that a comparison needs one core. The seconds of
skvt do not include compilation or loading from numba's cache, which are printed separately. They
include the exact bound that ``fit`` evaluates at its end, whereas the seconds of scikit-learn do
not include its bound.
"""

import re
from functools import partial
from typing import NamedTuple

import numpy as np
from _common import (
    DocumentCompletion,
    add_data_arguments,
    find_required_packages,
    format_mean,
    infer_topic_weights,
    learn_prior,
    limited_to_cores,
    parser,
    print_header,
    print_progress,
    print_table,
    read_corpora,
    word_probabilities,
)
from _left_to_right import LeftToRight, sample_prior
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
# Labels of rows of skvt.
ALPHA_LEARNED = "TemperedLDA, alpha learned"
POLISHED = "TemperedLDA, n_polish as many"
COLLAPSED = "StructuredLDA, collapsed"
COLLAPSED_PARAMS = {"global_step": "collapsed", "average": 0.5}
# Fits that compile functions that a default fit does not compile.
WARM_UPS = (
    (TemperedLDA, {"doc_topic_prior": "auto"}),
    (TemperedLDA, {"n_polish": 2}),
    (StructuredLDA, COLLAPSED_PARAMS),
)
# Scorings by the completion of documents, with the name of the prior.
SCORINGS = ("common", "learned")
# Scorings by words.
WORDS = ("npmi", "npmi-by-tokens", "diversity")
# Scorings by the probability of whole documents, and the name of the prior.
WHOLE = {"left-to-right": "sampled", "left-to-right-common": "common"}
# The best settings of those tried on kos, K = 50, by the common score after 5 passes. For gensim,
# chunks of 256 documents, decay 0.7 and offset 10 scored less than its default chunks of 2,000.
GENSIM_TUNED = {"alpha": "auto", "eta": "auto"}
# For Vowpal Wabbit, the settings tried were minibatches of 64, 256 and 1,024, power_t 0.5 and 0.7,
# learning_rate 0.3, 0.5 and 1, and initial_t 1 and 10; also on ap, K = 100.
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
    """Return the runners by label. A runner takes the keyword ``random_state``.

    With ``--tuned-peers``, other libraries also run with their best settings.
    """
    k, prior = args.k, 1.0 / args.k
    # ``tuned`` has the name and the parameters of the best settings, by label.
    rows, tuned = {}, {}
    if "skvt" in args.libraries:
        ours = partial(skvt_curve, X, k, args.passes, n_jobs=args.cores)
        rows["TemperedLDA, float64"] = partial(ours, dtype=np.float64)
        rows["TemperedLDA, float32"] = partial(ours, dtype=np.float32)
        if args.tuned:
            rows[ALPHA_LEARNED] = partial(ours, dtype=np.float32, doc_topic_prior="auto")
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
    """Scorer of topics, with a score for each of the chosen scorings.

    Priors are found on ``learned_from`` training documents, drawn at random.
    """

    def __init__(self, X, X_test, n_topics, scorings, n_particles=20, learned_from=1000):
        rows = np.random.default_rng(1).permutation(X.shape[0])[:learned_from]
        self._prior, self._sample, self._scorings = 1.0 / n_topics, X[rows], scorings
        self._X = X
        self._completion = DocumentCompletion(X_test, self._prior)
        if set(scorings) & set(WHOLE):
            self._whole = LeftToRight(X_test, n_particles=n_particles)

    def __call__(self, topics):
        """Return the scores of topics (K, V), in the order of the scorings."""
        # The priors of a document's topics by name, as far as the scorings need them.
        alphas = {"common": self._prior}
        if {"learned", "npmi-by-tokens"} & set(self._scorings):
            alphas["learned"] = learn_prior(self._sample, topics, self._prior)
        if "left-to-right" in self._scorings:
            alphas["sampled"] = sample_prior(self._sample, topics, self._prior)
        return np.array([self._score(topics, alphas, scoring) for scoring in self._scorings])

    def _score(self, topics, alphas, scoring):
        """Return the score of topics by one scoring."""
        if scoring in WHOLE:
            return self._whole(topics, alphas[WHOLE[scoring]])
        if scoring == "npmi-by-tokens":
            # gamma minus alpha is the expected number of tokens of each topic in each document.
            alpha = alphas["learned"]
            tokens = (
                infer_topic_weights(self._sample, word_probabilities(topics), alpha, 1e-3) - alpha
            )
            return np.average(topic_coherence(topics, self._X), weights=tokens.sum(axis=0))
        if scoring == "npmi":
            return topic_coherence(topics, self._X).mean()
        if scoring == "diversity":
            top = np.argsort(-topics, axis=1)[:, :10]
            return np.unique(top).size / top.size
        return self._completion(topics, alphas[scoring])


class ScoredPoint(NamedTuple):
    """Scores of the topics after a fit of ``length`` passes or sweeps, and its time."""

    length: int
    seconds: float
    # One number for each of the chosen scorings.
    scores: np.ndarray
    cpu: float


def run_all(args, rows, evaluate):
    """Return the curves of each label: a list over seeds of lists of :class:`ScoredPoint`."""
    results = {}
    for label, runner in rows.items():
        results[label] = []
        for seed in range(args.seeds if is_ours(label) else args.peer_seeds):
            curve = []
            for point in runner(random_state=seed):
                scores = evaluate(point.topics)
                curve.append(ScoredPoint(point.length, point.seconds, scores, point.cpu))
                text = ", ".join(f"{score:.4f}" for score in scores)
                print_progress(
                    f"{label}, seed {seed}, length {point.length}: {text} after "
                    f"{point.seconds:.2f} s, {point.cpu:.2f} CPU s"
                )
            results[label].append(curve)
    return results


def report(args, results):
    """Print the scores of all points, and of the best points within budgets."""
    table = []
    for label, curves in results.items():
        # Take the points of all seeds at each length. ``scores`` has a row for each scoring.
        for points in zip(*curves, strict=True):
            seconds, cpu = [p.seconds for p in points], [p.cpu for p in points]
            scores = np.array([p.scores for p in points]).T
            table.append([
                label, points[0].length, format_mean(seconds, 2), format_mean(cpu, 2),
                *map(format_mean, scores), " ".join(f"{score:.4f}" for score in scores[0]),
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
    """Return whether a row is of an estimator of skvt."""
    return label.startswith(("TemperedLDA", "StructuredLDA"))


def best_within(curves, budget, number):
    """Return the scores over seeds of the best point within a budget of CPU seconds, or None.

    ``number`` is the number of the scoring. The best point has the highest mean over seeds.
    """
    points = [
        [p.scores[number] for p in points]
        for points in zip(*curves, strict=True)
        if np.mean([p.cpu for p in points]) <= budget
    ]
    return max(points, key=np.mean, default=None)


def report_budgets(args, results):
    """Print the scores of the best points within each budget, a table for each scoring."""
    for number, scoring in enumerate(args.scorings):
        # The scores by label, in a dict for each budget. Labels without a point are left out.
        columns = [
            {label: best_within(curves, budget, number) for label, curves in results.items()}
            for budget in args.budgets
        ]
        columns = [{k: v for k, v in column.items() if v is not None} for column in columns]
        # The best label of each budget; None if no label has a point.
        best = [max(column, key=lambda k: np.mean(column[k]), default=None) for column in columns]
        table = [
            [label]
            + [
                format_mean(column[label]) + "* "[label != first] if label in column else "- "
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
        text = f"at {', '.join(lost)}" if lost else "at none of these budgets"
        print(f"{scoring}: another library is ahead of ours {text}\n")


def lead(column, first):
    """Return the difference between the best score and the best score of an estimator of skvt."""
    ours = [np.mean(scores) for label, scores in column.items() if is_ours(label)]
    return np.mean(column[first]) - max(ours, default=-np.inf)


def main():
    args = arguments()
    print_header(args, *find_required_packages(args.libraries))
    X, X_test = read_corpora(args)
    with limited_to_cores(args.cores):
        seconds = warm_up(X, args.k, args.cores, others=WARM_UPS if args.tuned else ())
        print(f"skvt: compiling or loading its kernels took {seconds:.1f} s")
        evaluate = Scores(X, X_test, args.k, args.scorings, args.particles, args.learned_from)
        results = run_all(args, runners(args, X), evaluate)
    print()
    report(args, results)


if __name__ == "__main__":
    main()
