"""Gaussian mixtures of [HS13]: births from one component compared with a fixed number K.

- ``edges`` (sec. 4.1): patches with eight covariances. The table has the bound minus the bound of a
  fit that starts from the true labels, in nats per patch, the largest error of a weight, and the
  lowest correlation of a covariance with the true one.
- ``digits`` (sec. 4.2 and fig. 3): MNIST in 50 dimensions by PCA. The table has the bound, and the
  share of digits whose class is the most frequent class of their component.

``MemoizedDPGMM`` starts from one component with births, merges and deletes, or has K fixed
components. With K fixed, inference is on the full data, memoized, or stochastic with the schedules
(decay, offset) = (0.5, 10), (0.5, 100) and (0.9, 10). Each fit is made from several seeds. On
edges, ``BayesianGaussianMixture`` of scikit-learn is added; the number of its components is the
number of those with more than a thousandth of the rows.
"""

import warnings
from pathlib import Path

import numpy as np
from _common import (
    format_mean,
    limited_to_cores,
    parser,
    print_header,
    print_progress,
    print_table,
    timed,
)
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from skvt import MemoizedDPGMM
from skvt.datasets import make_edge_patches
from skvt.metrics import cluster_alignment, match_components

# Schedules of step sizes for stochastic inference: (decay, offset).
SCHEDULES = ((0.5, 10.0), (0.5, 100.0), (0.9, 10.0))
# Label of the fits with births.
BIRTHS = "births from K = 1"
# Number of rows, fixed K, and maximum numbers of passes with births, with fixed K, and of
# stochastic inference.
SIZES = {"edges": (100_000, 25, 100, 40, 10), "digits": (60_000, 100, 100, 40, 40)}


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("which", choices=SIZES)
    p.add_argument("--data", metavar="PATH", help="folder of mnist/data.npz")
    p.add_argument("--rows", type=int, default=None)
    p.add_argument("--k", type=int, default=None, help="of the fixed truncation")
    p.add_argument("--seeds", type=int, default=3, help="of births")
    p.add_argument("--fixed-seeds", type=int, default=1, help="of each method with fixed K")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="few rows, K = 20, short fits, one seed")
    args = p.parse_args()
    rows, k, *args.passes = SIZES[args.which]
    args.rows, args.k = args.rows or rows, args.k or k
    if args.quick:
        args.rows, args.k, args.passes = args.rows // 10, 20, [20, 10, 5]
        args.seeds = 1
    return args


def load(args, folder, *keys):
    """Return arrays of ``folder/data.npz``, by names in lower case."""
    file = Path(args.data or ".") / folder / "data.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold {folder}/data.npz.")
    with np.load(file) as arrays:
        names = {name.lower(): name for name in arrays.files}
        return [arrays[names[key]] for key in keys]


# ------------------------------------------------------------------------------------ the data
# A function returns rows, a function that measures a fitted mixture, headers of the measures,
# parameters that all fits share, and the bound of a fit from the true labels, or 0.
def edges(args):
    """Return patches, and what else the comment above lists."""
    patches = make_edge_patches(args.rows, noise=0.5, random_state=0)
    truth = patches.covariances.reshape(len(patches.covariances), -1)

    def agreement(model):
        """Return the largest error of a weight, and the lowest correlation of a covariance."""
        partners, correlations = match_components(
            truth, model.covariances_.reshape(len(model.covariances_), -1)
        )
        # True components without a partner, -1, have the weight 0 and no correlation.
        weights = np.where(partners < 0, 0.0, model.weights_[partners])
        lowest = 0.0 if np.isnan(correlations).any() else correlations.min()
        return np.abs(weights - patches.weights).max(), lowest

    shared = {"mean_type": "zero", "batch_size": 1000}
    reference = MemoizedDPGMM(**shared, moves=(), labels_init=patches.labels, random_state=0)
    bound = reference.fit(patches.X).elbo_
    return patches.X, agreement, ["error of a weight", "least correlation"], shared, bound


def digits(args):
    """Return digits, and what else the comment above lists."""
    X, y = load(args, "mnist", "x_train", "y_train")
    X = X.reshape(len(X), -1)[: args.rows].astype(float)
    X = PCA(50, random_state=0).fit_transform(X)

    def alignment(model):
        """Return the share of digits in the most frequent class of their component."""
        share, *_ = cluster_alignment(y[: args.rows], model.predict(X))
        return (share,)

    return X, alignment, ["alignment"], {"n_batches": 20}, 0.0


# -------------------------------------------------------------------------------------- fits
def methods(args, shared):
    """Return a function that makes an estimator from a seed, and the number of seeds, by label."""
    birth_passes, fixed_passes, online_passes = args.passes
    fixed = {"n_components": args.k, "moves": (), "max_iter": fixed_passes}
    online = fixed | {"learning_method": "online", "max_iter": online_passes, "evaluate_every": 0}
    params = {BIRTHS: {"max_iter": birth_passes}}
    params |= {"full": fixed | {"learning_method": "batch"}, "memoized": fixed}
    for decay, offset in SCHEDULES:
        steps = {"learning_decay": decay, "learning_offset": offset}
        params[f"stochastic ({decay:g}, {offset:g})"] = online | steps

    def ours(own_params):
        """Return a function that makes a mixture with these parameters from a seed."""
        settings = shared | own_params
        return lambda seed: MemoizedDPGMM(**settings, n_jobs=args.cores, random_state=seed)

    rows = {label: (ours(own_params), args.seeds if label == BIRTHS else args.fixed_seeds)
            for label, own_params in params.items()}  # fmt: skip
    if args.which == "edges":
        process = {"weight_concentration_prior_type": "dirichlet_process", "max_iter": fixed_passes}
        rows["sklearn BayesianGaussianMixture"] = (
            lambda seed: BayesianGaussianMixture(
                n_components=args.k, weight_concentration_prior=1.0, random_state=seed, **process
            ), 1,
        )  # fmt: skip
    return rows


def main():
    args = arguments()
    print_header(args)
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, measure, headers, shared, truth = {"edges": edges, "digits": digits}[args.which](args)
    # Bounds are divided by this number.
    divisor = 1 if args.which == "digits" else len(X)
    table, bounds = [], {}
    with limited_to_cores(args.cores):
        # Compile before times are taken.
        MemoizedDPGMM(**shared, max_iter=3, random_state=0).fit(X[:2000])
        for label, (make, n_seeds) in methods(args, shared).items():
            runs = []
            for seed in range(n_seeds):
                _, cpu, model = timed(make(seed).fit, X)
                bound = (getattr(model, "elbo_", np.nan) - truth) / divisor
                number = getattr(model, "n_components_", np.sum(model.weights_ > 1e-3))
                runs.append((number, bound, cpu, model.n_iter_, *measure(model)))
                print_progress(label, seed, *(f"{value:,.6g}" for value in runs[-1]))
            number, bound, cpu, passes, *measured = zip(*runs, strict=True)
            bounds[label], has_bound = np.array(bound), not np.isnan(bound).any()
            table.append([
                label, n_seeds, " ".join(map(str, number)),
                format_mean(bound, 4) if has_bound else "",
                f"{max(bound):,.4f}" if has_bound else "", format_mean(cpu, 1),
                f"{np.mean(passes):.0f}", *(format_mean(values, 4) for values in measured),
            ])  # fmt: skip
    print_table(
        f"N = {len(X):,}, D = {X.shape[1]}, fixed K = {args.k}, {args.cores} cores (ELBO in nats"
        f"{' per row' * (divisor > 1)}{', less that of the truth' * (truth != 0.0)})",
        ["", "seeds", "K", "ELBO", "best", "CPU s", "passes", *headers],
        table,
    )
    fixed_bounds = [values for label, values in bounds.items() if label != BIRTHS]
    best = np.nanmax(np.concatenate(fixed_bounds))
    print(f"{(bounds[BIRTHS] > best).sum()} of {bounds[BIRTHS].size} runs with births have a "
          "higher bound than the best of all with fixed K")  # fmt: skip


if __name__ == "__main__":
    main()
