"""Clusters of handwritten digits: births from one component against K = 100 from the start.

MNIST, 60,000 digits projected to 50 dimensions by PCA without whitening, full covariances with
means (HS13 sec. 4.2 and fig. 3). ``MemoizedDPGMM`` with births, merges and deletes from one
component; against it K = 100 from smart starts, as full-data inference, memoized inference, and
stochastic inference with three schedules (decay, offset) = a (0.5, 10), b (0.5, 100), c (0.9, 10),
the last two kinds in 20 and in 100 batches. K, the exact bound, seconds, and the share of digits
in the class that most of their component's have (in the training set; more components never lower
it). Runs may stop early by ``tol``.
"""

from pathlib import Path

import numpy as np
from _common import cores, parser, print_header, print_table, progress, spread, timed
from sklearn.decomposition import PCA

from skvt import MemoizedDPGMM
from skvt.metrics import cluster_alignment

SCHEDULES = {"a": (0.5, 10.0), "b": (0.5, 100.0), "c": (0.9, 10.0)}
BIRTHS = "births from K = 1"


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--data", required=True, metavar="PATH", help="folder of mnist/data.npz")
    p.add_argument("--rows", type=int, default=60_000)
    p.add_argument("--columns", type=int, default=50, help="of the PCA")
    p.add_argument("--k", type=int, default=100, help="of the fixed truncation")
    p.add_argument("--seeds", type=int, default=3, help="of births")
    p.add_argument("--fixed-seeds", type=int, default=1, help="of each method with fixed K")
    p.add_argument("--batches", type=int, nargs="+", default=[20, 100])
    p.add_argument("--passes", type=int, default=100, help="most passes with births")
    p.add_argument("--fixed-passes", type=int, default=40, help="most passes with fixed K")
    p.add_argument("--init-params", default="k-means++", help="of the fixed truncation")
    p.add_argument("--dtype", default="float64", choices=["float64", "float32"])
    p.add_argument("--only", nargs="+", default=None, help="methods whose label contains a word")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="6,000 rows, K = 30, 10 passes, one seed")
    args = p.parse_args()
    if args.quick:
        args.rows, args.k, args.seeds, args.fixed_passes = 6_000, 30, 1, 10
        args.passes, args.batches = 20, [20]
    return args


def load(args):
    """Projected digits (N, columns), labels, and the share of variance that is left."""
    file = Path(args.data) / "mnist" / "data.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold mnist/data.npz.")
    with np.load(file) as arrays:
        names = {name.lower(): name for name in arrays.files}
        X = arrays[names["x_train"]].reshape(60_000, -1)[: args.rows].astype(args.dtype)
        labels = arrays[names["y_train"]][: args.rows]
    pca = PCA(args.columns, random_state=0)
    X = pca.fit_transform(X)
    return X, labels, pca.explained_variance_ratio_.sum()


def methods(args):
    """Label -> (maker of an estimator from a seed, number of seeds)."""
    fixed = {"n_components": args.k, "moves": (), "init_params": args.init_params}
    fixed["max_iter"] = args.fixed_passes

    def maker(**params):
        return lambda seed: MemoizedDPGMM(**params, n_jobs=args.cores, random_state=seed)

    rows = {}
    for n in args.batches:
        births = maker(max_iter=args.passes, n_batches=n)
        rows[f"{BIRTHS}, {n} batches"] = births, args.seeds
    rows["full"] = maker(learning_method="batch", **fixed), args.fixed_seeds
    for n in args.batches:
        rows[f"memoized, {n} batches"] = maker(n_batches=n, **fixed), args.fixed_seeds
    for name, (decay, offset) in SCHEDULES.items():
        for n in args.batches:
            rows[f"stochastic {name} ({decay:g}, {offset:g}), {n} batches"] = (
                maker(
                    learning_method="online", learning_decay=decay, learning_offset=offset,
                    n_batches=n, evaluate_every=0, **fixed,
                ),
                args.fixed_seeds,
            )  # fmt: skip
    if args.only:
        rows = {name: row for name, row in rows.items() if any(w in name for w in args.only)}
    return rows


def main():
    args = arguments()
    print_header()
    X, labels, share = load(args)
    print(
        f"{X.shape[0]:,} digits, {X.shape[1]} dimensions with {share:.1%} of the variance, "
        f"{X.dtype}; fixed K from init_params={args.init_params!r}\n"
    )
    table, bounds = [], {}
    with cores(args.cores):
        MemoizedDPGMM(max_iter=3, random_state=0).fit(X[:2000])  # compiles
        for label, (make, n_seeds) in methods(args).items():
            runs = []
            for seed in range(n_seeds):
                seconds, cpu, model = timed(make(seed).fit, X)
                accuracy = cluster_alignment(labels, model.predict(X))[0]
                run = model.n_components_, model.elbo_, accuracy, seconds, cpu, model.n_iter_
                runs.append(run)
                progress(label, seed, *(f"{value:,.4g}" for value in run[2:]), run[:2])
            K, elbo, accuracy, seconds, cpu, passes = zip(*runs, strict=True)
            bounds[label] = np.array(elbo)
            table.append([
                label, n_seeds, " ".join(map(str, K)), spread(elbo, 0), f"{max(elbo):,.0f}",
                spread(accuracy, 3), f"{np.mean(seconds):.0f}", f"{np.mean(cpu):.0f}",
                f"{np.mean(passes):.0f}",
            ])  # fmt: skip
    print_table(
        f"N = {X.shape[0]:,}, {args.cores} cores (fixed K: {args.k}; ELBO in nats)",
        ["", "seeds", "K", "ELBO", "best", "alignment", "s", "CPU s", "passes"],
        table,
    )
    ours = [values for label, values in bounds.items() if BIRTHS in label]
    rest = [values for label, values in bounds.items() if BIRTHS not in label]
    if ours and rest:
        ours, best = np.concatenate(ours), np.concatenate(rest).max()
        print(
            f"{(ours > best).sum()} of {ours.size} runs with births have a higher bound than the "
            f"best run with K = {args.k}; the least of them by {ours.min() - best:+,.0f} nats, the "
            f"best by {ours.max() - best:+,.0f}"
        )


if __name__ == "__main__":
    main()
