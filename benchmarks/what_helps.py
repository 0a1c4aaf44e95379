"""What makes the difference to held-out topics: learned priors, averages, passes, CVB0, the start?

One thing at a time, on one core, in both scorings of ``time_to_quality.py``. With ``--mallet`` also
MALLET, and our inference begun at its topics: whether the start makes the difference, or inference.
``--collapsed-sweeps`` compares collapsed fits of these lengths alone, ``--collapsed N`` such fits
of N passes that differ from the default in one thing. When tokens are placed anew, and under which
prior they are drawn, is no parameter of the package: what decides it is replaced for the row
(``--placed`` adds settings). Agreement is the correlation of the topics of two starts, matched one
to one: its mean over topics and pairs of starts.
"""

from contextlib import ExitStack
from functools import partial
from itertools import combinations
from unittest import mock

import numpy as np
from _common import (
    add_data_arguments,
    cores,
    describe,
    load_corpus,
    parser,
    print_header,
    print_table,
    progress,
    spread,
)
from _peers import mallet_curve, skvt_curve, warm_up
from scipy.optimize import linear_sum_assignment
from time_to_quality import SCORINGS, Scores

from skvt import StructuredLDA
from skvt.inference import _collapsed
from skvt.models.lda import CollapsedLDA
from skvt.temperature import LinearAnnealing

ALPHA, ETA = {"doc_topic_prior": "auto"}, {"topic_word_prior": "auto"}
GIVEN = {"topic_word_prior": None}
CVB0 = {"estimator": StructuredLDA, "local_step": "cvb0", "global_step": "map"}
COLLAPSED = {"estimator": StructuredLDA, "global_step": "collapsed", "average": 0.5}
# Label -> (passes, parameters).
ROWS = {
    "eta given, average=0": (10, GIVEN | {"average": 0.0}),
    "eta given": (10, GIVEN),
    "eta given, alpha learned": (10, GIVEN | ALPHA),
    "eta learned (defaults)": (10, ETA),
    "eta learned, 30 passes": (30, ETA),
    "both learned, 30 passes": (30, ALPHA | ETA),
    "eta given, n_polish=10": (10, GIVEN | {"n_polish": 10}),
    "eta learned, n_polish=10": (10, ETA | {"n_polish": 10}),
    "eta learned, n_polish=10, average=0": (10, ETA | {"n_polish": 10, "average": 0.0}),
    "eta learned, n_polish=20": (10, ETA | {"n_polish": 20}),
    "both learned, n_polish=10": (10, ALPHA | ETA | {"n_polish": 10}),
    "annealed CVB0 x MAP, eta learned, 20 passes": (
        20, CVB0 | ETA | {"temperature": LinearAnnealing(replication=1.0)},
    ),
    "collapsed, 100 sweeps": (100, COLLAPSED),
    "collapsed, 150 sweeps": (150, COLLAPSED),
    "collapsed, 200 sweeps": (200, COLLAPSED),
}  # fmt: skip
PLACED = "placed anew: {:g} of the passes between, {:.0f} at least, up to {:g} of them"


def placed_anew(share, fewest, upto):
    """What decides when tokens are placed anew."""
    values = {"SHARE_BETWEEN": share, "FEWEST_BETWEEN": int(fewest), "SHARE_PLACED": upto}
    return [(_collapsed, name, value) for name, value in values.items()]


# Label -> (share of the passes, parameters, what is replaced).
COLLAPSED_ROWS = {
    "default": (1.0, {}, []),
    "half the passes": (0.5, {}, []),
    "twice the passes": (2.0, {}, []),
    "alpha given, .02": (1.0, {"doc_topic_prior": 0.02}, []),
    "alpha given, .1": (1.0, {"doc_topic_prior": 0.1}, []),
    "eta given, .1": (1.0, {"topic_word_prior": 0.1}, []),
    "tokens drawn under the learned eta": (
        1.0, {}, [(CollapsedLDA, "_of_sampling", lambda model: model)],
    ),
    "never placed anew": (1.0, {}, placed_anew(1.0, 1, 0.0)),
    "average=0, the last counts": (1.0, {"average": 0.0}, []),
    "average=.25": (1.0, {"average": 0.25}, []),
}  # fmt: skip
FROM_MALLET = {
    "from MALLET's topics, 5 passes, eta given": (5, GIVEN | {"moves": ()}),
    "from MALLET's topics, 5 passes of CVB0 x MAP, eta learned": (
        5, CVB0 | ETA | {"temperature": None, "moves": ()},
    ),
}  # fmt: skip


def arguments():
    p = parser(__doc__.splitlines()[0])
    add_data_arguments(p, corpus="kos")
    p.add_argument("--k", type=int, default=50, help="topics")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--mallet", action="store_true", help="also MALLET, and fits from its topics")
    p.add_argument("--sweeps", type=int, default=1000, help="of MALLET")
    p.add_argument("--rows", type=int, nargs="+", default=None, help="numbers of rows, from 0")
    collapsed = p.add_mutually_exclusive_group()
    collapsed.add_argument(
        "--collapsed-sweeps", type=int, nargs="+", default=[], help="collapsed fits instead of rows"
    )
    collapsed.add_argument("--collapsed", type=int, metavar="N", help="one thing at a time")
    p.add_argument(
        "--placed",
        type=float,
        nargs=3,
        action="append",
        default=[],
        metavar=("SHARE", "FEWEST", "UPTO"),
        help="with --collapsed: tokens are placed anew after each such share of the passes, after "
        "so many at least, up to such a share of all",
    )
    p.add_argument("--quick", action="store_true", help="1,000 documents, 1 seed, 100 sweeps")
    args = p.parse_args()
    if args.quick:
        args.documents, args.seeds, args.sweeps = args.documents or 1000, 1, 100
    return args


def rows_of(args):
    """Label -> (passes, parameters, what is replaced) of each chosen row."""
    if args.collapsed_sweeps:
        return {f"collapsed, {n} sweeps": (n, COLLAPSED, []) for n in args.collapsed_sweeps}
    rows = {label: (n_passes, params, []) for label, (n_passes, params) in ROWS.items()}
    if args.collapsed:
        placed = {PLACED.format(*each): (1.0, {}, placed_anew(*each)) for each in args.placed}
        rows = {
            label: (round(share * args.collapsed), COLLAPSED | params, replaced)
            for label, (share, params, replaced) in (COLLAPSED_ROWS | placed).items()
        }
    labels = list(rows)
    numbers = range(len(rows)) if args.rows is None else args.rows
    return {labels[number]: rows[labels[number]] for number in numbers}


def rows_from_mallet(args):
    """Label -> (passes, parameters) of the fits that begin at MALLET's topics."""
    if args.collapsed_sweeps:
        return {}
    if args.collapsed:
        return {"from MALLET's topics": (args.collapsed, COLLAPSED)}
    return FROM_MALLET


def points(args, X, seed):
    """(label, point) of each row."""
    ours = partial(skvt_curve, X, args.k, n_jobs=1, random_state=seed)
    for label, (n_passes, params, replaced) in rows_of(args).items():
        with ExitStack() as stack:
            for owner, name, value in replaced:
                stack.enter_context(mock.patch.object(owner, name, value))
            point = next(ours([n_passes], **params))
        yield label, point
    if not args.mallet:
        return
    mallet = next(mallet_curve(X, args.k, [args.sweeps], random_state=seed))
    yield f"MALLET, {args.sweeps} sweeps", mallet
    for label, (n_passes, params) in rows_from_mallet(args).items():
        yield label, next(ours([n_passes], components_init=mallet.topics, **params))


def agreement(fits):
    """Mean correlation of matched topics over pairs of starts; NaN of one."""
    means = []
    for one, other in combinations(fits, 2):
        k = len(one)
        correlations = np.corrcoef(one, other)[:k, k:]
        means.append(correlations[linear_sum_assignment(-correlations)].mean())
    return np.mean(means) if means else np.nan


def main():
    args = arguments()
    print_header(*(["pyrmallet"] if args.mallet else []))
    X, X_test = load_corpus(
        args.data, args.corpus, n_train=args.documents, split_seed=args.split_seed
    )
    print("training:", describe(X), "\ntest:    ", describe(X_test))
    found, topics = {}, {}
    with cores(1):
        warm_up(X, args.k, 1)
        evaluate = Scores(X, X_test, args.k, SCORINGS)
        for seed in range(args.seeds):
            for label, point in points(args, X, seed):
                row = *evaluate(point.topics), point.elbo / X.sum(), point.cpu
                found.setdefault(label, []).append(row)
                topics.setdefault(label, []).append(np.asarray(point.topics))
                progress(f"seed {seed}, {label}:", *(f"{value:.4f}" for value in row))
    table = []
    for label, rows in found.items():
        *scores, bound, cpu = np.array(rows).T
        agrees = f"{agreement(topics[label]):.2f}"
        table.append(
            [label, *map(spread, scores), agrees, f"{bound.mean():.3f}", f"{cpu.mean():.1f}"]
        )
    print_table(
        f"{args.corpus}, K = {args.k}, {args.seeds} seeds, 1 core (scores: held-out nats per word "
        "by the prior of documents; mean +- sd)",
        ["fit", *SCORINGS, "agreement", "ELBO per token", "CPU s"],
        table,
    )


if __name__ == "__main__":
    main()
