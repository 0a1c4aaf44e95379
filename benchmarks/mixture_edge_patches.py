"""Do births find what is there? Image patches of eight covariances (HS13 sec. 4.1).

``MemoizedDPGMM`` with births, merges and deletes from one component, several seeds: components
found, largest error of a weight, least correlation of a covariance with the true one, the exact
bound, seconds. Against it the fixed truncation K = 25 of the paper's comparison, each from several
seeds: full-data inference, memoized inference, and stochastic inference with three schedules
(decay, offset) = a (0.5, 10), b (0.5, 100), c (0.9, 10); and scikit-learn's
``BayesianGaussianMixture``, which has means to learn besides and leaves constants out of its bound,
so that only what it found compares. Bounds are differences to that of inference started at the
true labels, in nats per patch.
"""

import warnings

import numpy as np
from _common import cores, parser, print_header, print_table, progress, spread, timed
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from skvt import MemoizedDPGMM
from skvt.datasets import make_edge_patches
from skvt.expfam import RunningStats
from skvt.metrics import match_components

SCHEDULES = {"a": (0.5, 10.0), "b": (0.5, 100.0), "c": (0.9, 10.0)}
BIRTHS = "births from K = 1"


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--rows", type=int, default=100_000)
    p.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.5], help="sd of a pixel")
    p.add_argument("--k", type=int, default=25, help="of the fixed truncation")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=1000)
    p.add_argument("--fixed-passes", type=int, default=100, help="most passes with fixed K")
    p.add_argument("--stochastic-passes", type=int, default=20)
    p.add_argument("--sklearn-seeds", type=int, default=1)
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="20,000 rows, 2 seeds, fewer passes")
    args = p.parse_args()
    if args.quick:
        args.rows, args.seeds, args.fixed_passes, args.stochastic_passes = 20_000, 2, 30, 5
    return args


def methods(args):
    """Label -> a maker of an estimator from a seed."""

    def ours(seed, **params):
        return MemoizedDPGMM(
            **{"mean_type": "zero", "batch_size": args.batch_size, "n_jobs": args.cores} | params,
            random_state=seed,
        )

    fixed = {"n_components": args.k, "moves": (), "max_iter": args.fixed_passes}
    rows = {
        BIRTHS: lambda seed: ours(seed),
        f"{BIRTHS}, default batches": lambda seed: ours(seed, batch_size=None),
        "full": lambda seed: ours(seed, learning_method="batch", **fixed),
        "memoized": lambda seed: ours(seed, **fixed),
    }
    online = fixed | {"max_iter": args.stochastic_passes, "evaluate_every": 0}
    for name, (decay, offset) in SCHEDULES.items():
        rows[f"stochastic {name} ({decay:g}, {offset:g})"] = (
            lambda seed, decay=decay, offset=offset: ours(
                seed,
                learning_method="online",
                learning_decay=decay,
                learning_offset=offset,
                **online,
            )
        )
    return rows


def started_at_truth(patches):
    """Memoized inference whose first responsibilities are the true labels.

    There is no public way yet, so this sets the fitted state.
    """
    model = MemoizedDPGMM(mean_type="zero", moves=()).partial_fit(patches.X)
    state, component = model._fitted.state, model._fitted.model.component
    resp = np.eye(len(patches.weights))[patches.labels]
    sums = sum(
        resp[rows].T @ component.features(patches.X[rows])
        for rows in np.array_split(np.arange(len(resp)), 100)
    )
    state.stats = RunningStats([resp.sum(axis=0), sums])
    return model.set_params(warm_start=True).fit(patches.X)


def fit_all(args, patches):
    truth = patches.covariances.reshape(len(patches.covariances), -1)
    results = {}
    for label, make in methods(args).items():
        results[label] = []
        for seed in range(args.seeds):
            seconds, cpu, model = timed(make(seed).fit, patches.X)
            results[label].append((
                model.n_components_, *agreement(patches, truth, model), model.elbo_ / args.rows,
                seconds, cpu, model.n_iter_,
            ))  # fmt: skip
            progress(label, seed, *(f"{value:.5g}" for value in results[label][-1]))
    return results


def agreement(patches, truth, model):
    """(largest error of a weight, least correlation of covariances), each truth with a partner."""
    found = model.covariances_.reshape(len(model.covariances_), -1)
    partners, correlations = match_components(truth, found)
    weights = np.where(partners < 0, 0.0, model.weights_[partners])
    least = 0.0 if np.isnan(correlations).any() else correlations.min()
    return np.abs(weights - patches.weights).max(), least


def fit_sklearn(args, patches):
    """As :func:`fit_all`; components count that have more than a thousandth of the rows."""
    truth = patches.covariances.reshape(len(patches.covariances), -1)
    runs = []
    for seed in range(args.sklearn_seeds):
        model = BayesianGaussianMixture(
            n_components=args.k, weight_concentration_prior_type="dirichlet_process",
            weight_concentration_prior=1.0, max_iter=args.fixed_passes, random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            seconds, cpu, _ = timed(model.fit, patches.X)
        used = int((model.weights_ > 1e-3).sum())
        runs.append((used, *agreement(patches, truth, model), np.nan, seconds, cpu, model.n_iter_))
        progress("BayesianGaussianMixture", seed, *(f"{value:.5g}" for value in runs[-1]))
    return runs


def report(args, noise, truth, results):
    table = []
    for label, runs in results.items():
        columns = list(zip(*runs, strict=True))
        gaps = np.array(columns[3]) - truth
        known = not np.isnan(gaps).any()
        table.append([
            label, len(runs), " ".join(map(str, columns[0])), f"{max(columns[1]):.4f}",
            f"{min(columns[2]):.4f}", spread(gaps) if known else "",
            f"{gaps.max():+.4f}" if known else "", f"{np.mean(columns[4]):.1f}",
            f"{np.mean(columns[5]):.1f}", f"{np.mean(columns[6]):.0f}",
        ])  # fmt: skip
    print_table(
        f"N = {args.rows:,}, noise {noise:g}, batches of {args.batch_size}, {args.cores} cores; "
        f"started at the truth: {truth:.4f} nats per patch (over all seeds: largest error of a "
        "weight, least correlation of a covariance; ELBO minus that of the truth, mean +- sd)",
        ["", "seeds", "K found", "weight", "cov.", "ELBO", "best", "s", "CPU s", "passes"],
        table,
    )
    births = np.array([run[3] for run in results[BIRTHS]])
    fixed = np.array([r[3] for label in results for r in results[label] if BIRTHS not in label])
    fixed = fixed[~np.isnan(fixed)]
    right = sum(run[0] == 8 for run in results[BIRTHS])
    print(
        f"births find 8 components in {right} of {births.size} runs; {(births > fixed.max()).sum()}"
        f" of {births.size} have a higher bound than the best of all {fixed.size} runs with fixed "
        f"K (by {births.min() - fixed.max():.4f} nats per patch at least)\n",
        flush=True,
    )


def main():
    args = arguments()
    print_header()
    with cores(args.cores):
        for noise in args.noise:
            patches = make_edge_patches(args.rows, noise=noise, random_state=0)
            truth = started_at_truth(patches).elbo_ / args.rows
            results = fit_all(args, patches)
            if args.sklearn_seeds > 0:
                results["sklearn BayesianGaussianMixture"] = fit_sklearn(args, patches)
            report(args, noise, truth, results)


if __name__ == "__main__":
    main()
