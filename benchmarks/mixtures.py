"""Gaussian mixtures of HS13: births from one component against a fixed number, on three data sets.

- ``edges`` (sec. 4.1): patches of eight covariances. Bounds are differences to that of inference
  started at the true labels, in nats per patch; beside them the largest error of a weight, and the
  least correlation of a covariance with the true one.
- ``digits`` (sec. 4.2 and fig. 3): MNIST in 50 dimensions by PCA; beside bounds the share of digits
  in the class that most of their component's have.
- ``patches`` (sec. 4.4): natural 8 x 8 patches less their mean, in 63 dimensions; beside bounds the
  mean PSNR of pictures of another set with noise, denoised by half-quadratic splitting with each
  mixture as the prior of patches (Zoran and Weiss, ICCV 2011).

``MemoizedDPGMM`` with births, merges and deletes from one component, and with K fixed, each from
several seeds: full-data inference, memoized inference, and stochastic inference with schedules
(decay, offset) = (0.5, 10), (0.5, 100) and (0.9, 10); beside them scikit-learn's
``BayesianGaussianMixture`` (edges; components with more than a thousandth of the rows count) and
``GaussianMixture`` (patches).
"""

import warnings
from pathlib import Path

import numpy as np
from _common import cores, parser, print_header, print_table, progress, spread, timed
from scipy.linalg import null_space
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from skvt import MemoizedDPGMM
from skvt.datasets import make_edge_patches
from skvt.metrics import cluster_alignment, match_components

SCHEDULES = ((0.5, 10.0), (0.5, 100.0), (0.9, 10.0))
BIRTHS = "births from K = 1"
SIDE = 8
BASIS = null_space(np.ones((1, SIDE**2)))  # (64, 63), orthonormal
STEPS = (1, 4, 8, 16, 32)
# (rows, K, most passes with births, with fixed K, stochastic)
SIZES = {"edges": (100_000, 25, 100, 40, 10), "digits": (60_000, 100, 100, 40, 40),
         "patches": (500_000, 100, 60, 40, 40)}  # fmt: skip


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("which", choices=SIZES)
    p.add_argument("--data", metavar="PATH", help="folder of mnist, bsds_train and bsd68_gray")
    p.add_argument("--rows", type=int, default=None)
    p.add_argument("--k", type=int, default=None, help="of the fixed truncation")
    p.add_argument("--seeds", type=int, default=3, help="of births")
    p.add_argument("--fixed-seeds", type=int, default=1, help="of each method with fixed K")
    p.add_argument("--noise", type=float, default=0.5, help="sd of a pixel of edges")
    p.add_argument("--pictures", type=int, default=68, help="to denoise")
    p.add_argument("--sigma", type=float, default=25.0, help="sd of their noise, of 255")
    p.add_argument("--sklearn-k", type=int, default=200, help="of GaussianMixture")
    p.add_argument("--sklearn-passes", type=int, default=30)
    p.add_argument("--only", nargs="+", default=[""], help="methods whose label contains a word")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="few rows, K = 20, short fits, one seed")
    args = p.parse_args()
    rows, k, *args.passes = SIZES[args.which]
    args.rows, args.k = args.rows or rows, args.k or k
    if args.quick:
        args.rows, args.k, args.passes = args.rows // 10, 20, [20, 10, 5]
        args.seeds, args.pictures, args.sklearn_k, args.sklearn_passes = 1, 2, 10, 10
    return args


def load(args, folder, *keys):
    """Arrays of ``folder/data.npz``; names in any case."""
    file = Path(args.data or ".") / folder / "data.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold {folder}/data.npz.")
    with np.load(file) as arrays:
        names = {name.lower(): name for name in arrays.files}
        return [arrays[names[key]] for key in keys]


# ------------------------------------------------------------------------------------ the data
def edges(args):
    """(rows, measure of a fitted mixture, headers, shared parameters, bound of the truth)."""
    patches = make_edge_patches(args.rows, noise=args.noise, random_state=0)
    truth = patches.covariances.reshape(len(patches.covariances), -1)

    def agreement(model):
        partners, correlations = match_components(
            truth, model.covariances_.reshape(len(model.covariances_), -1)
        )
        weights = np.where(partners < 0, 0.0, model.weights_[partners])
        least = 0.0 if np.isnan(correlations).any() else correlations.min()
        return np.abs(weights - patches.weights).max(), least

    shared = {"mean_type": "zero", "batch_size": 1000}
    known = MemoizedDPGMM(**shared, moves=(), labels_init=patches.labels, random_state=0)
    bound = known.fit(patches.X).elbo_
    return patches.X, agreement, ["error of a weight", "least correlation"], shared, bound


def digits(args):
    X, y = load(args, "mnist", "x_train", "y_train")
    X = X.reshape(len(X), -1)[: args.rows].astype(float)
    X = PCA(50, random_state=0).fit_transform(X)

    def alignment(model):
        return (cluster_alignment(y[: args.rows], model.predict(X))[0],)

    return X, alignment, ["alignment"], {"n_batches": 20}, 0.0


def patches(args):
    """Random patches; noise hides that grey values are whole numbers."""
    (images,), rng = load(args, "bsds_train", "train"), np.random.default_rng(0)
    images = images / np.float32(255.0)
    windows = np.lib.stride_tricks.sliding_window_view(images, (SIDE, SIDE), axis=(1, 2))
    places = tuple(rng.integers(n, size=args.rows) for n in windows.shape[:3])
    Z = windows[places].reshape(args.rows, -1) @ BASIS.astype(np.float32)
    Z = (Z + rng.normal(scale=1 / 255, size=Z.shape)).astype(np.float32)
    return Z, lambda model: (mean_psnr(args, model),), ["PSNR"], {"mean_type": "zero"}, 0.0


# --------------------------------------------------------------------------------- denoising
def denoise(noisy, sigma, model):
    """Half-quadratic splitting of a picture, with the mixture as prior of patches."""
    picture = noisy
    for step in STEPS:
        windows = np.lib.stride_tricks.sliding_window_view(picture, (SIDE, SIDE))
        rows = windows.reshape(-1, SIDE**2).astype(np.float32)
        clean = filtered(rows @ BASIS.astype(np.float32), sigma**2 / step, model)
        clean = (clean @ BASIS.T + rows.mean(axis=1, keepdims=True)).reshape(windows.shape)
        total, count = np.zeros_like(picture), np.zeros_like(picture)
        for i in range(SIDE):
            for j in range(SIDE):
                there = slice(i, i + windows.shape[0]), slice(j, j + windows.shape[1])
                total[there] += clean[:, :, i, j]
                count[there] += 1.0
        picture = (noisy + step * total / SIDE**2) / (1.0 + step * count / SIDE**2)
    return picture


def filtered(Z, variance, model):
    """Each row to its most probable component under the noise, and its posterior mean there."""
    spectra = [np.linalg.eigh(covariance.astype(float)) for covariance in model.covariances_]
    spectra = [(np.maximum(values, 0.0), vectors) for values, vectors in spectra]
    logs, clean = np.empty((len(Z), len(spectra)), np.float32), np.empty_like(Z)
    for k, (mean, (values, vectors)) in enumerate(zip(model.means_, spectra, strict=True)):
        turned = (Z - mean.astype(Z.dtype)) @ (vectors / np.sqrt(values + variance)).astype(Z.dtype)
        logs[:, k] = -0.5 * np.einsum("nd,nd->n", turned, turned)
        logs[:, k] += np.log(model.weights_[k]) - 0.5 * np.log(values + variance).sum()
    best = logs.argmax(axis=1)
    for k, (mean, (values, vectors)) in enumerate(zip(model.means_, spectra, strict=True)):
        turn = ((vectors * (values / (values + variance))) @ vectors.T).astype(Z.dtype)
        clean[best == k] = (Z[best == k] - mean.astype(Z.dtype)) @ turn + mean.astype(Z.dtype)
    return clean


def mean_psnr(args, model):
    """Mean over the pictures of the peak signal-to-noise ratio in dB, noise the same for all."""
    (truths,), rng = load(args, "bsd68_gray", "x"), np.random.default_rng(1)
    sigma, values = args.sigma / 255.0, []
    for truth in truths[: args.pictures] / np.float32(255.0):
        picture = denoise(truth + sigma * rng.normal(size=truth.shape), sigma, model)
        values.append(-10.0 * np.log10(np.mean((np.clip(picture, 0.0, 1.0) - truth) ** 2)))
    return np.mean(values)


# -------------------------------------------------------------------------------------- fits
def methods(args, shared):
    """Label -> (maker of an estimator from a seed, number of seeds)."""
    birth_passes, fixed_passes, online_passes = args.passes
    fixed = {"n_components": args.k, "moves": (), "max_iter": fixed_passes}
    online = fixed | {"learning_method": "online", "max_iter": online_passes, "evaluate_every": 0}
    params = {BIRTHS: {"max_iter": birth_passes}}
    params |= {"full": fixed | {"learning_method": "batch"}, "memoized": fixed}
    for decay, offset in SCHEDULES:
        steps = {"learning_decay": decay, "learning_offset": offset}
        params[f"stochastic ({decay:g}, {offset:g})"] = online | steps

    def ours(more):
        return lambda seed: MemoizedDPGMM(**shared | more, n_jobs=args.cores, random_state=seed)

    rows = {label: (ours(more), args.seeds if label == BIRTHS else args.fixed_seeds)
            for label, more in params.items()}  # fmt: skip
    if args.which == "edges":
        process = {"weight_concentration_prior_type": "dirichlet_process", "max_iter": fixed_passes}
        rows["sklearn BayesianGaussianMixture"] = (
            lambda seed: BayesianGaussianMixture(
                n_components=args.k, weight_concentration_prior=1.0, random_state=seed, **process
            ), 1,
        )  # fmt: skip
    if args.which == "patches":
        rows[f"sklearn GaussianMixture, K = {args.sklearn_k}"] = (
            lambda seed: GaussianMixture(
                args.sklearn_k, max_iter=args.sklearn_passes, random_state=seed
            ), 1,
        )  # fmt: skip
    return {name: row for name, row in rows.items() if any(word in name for word in args.only)}


def main():
    args = arguments()
    print_header()
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, measure, headers, shared, truth = {"edges": edges, "digits": digits, "patches": patches}[
        args.which
    ](args)
    per_row = 1 if args.which == "digits" else len(X)
    table, bounds = [], {}
    with cores(args.cores):
        MemoizedDPGMM(**shared, max_iter=3, random_state=0).fit(X[:2000])  # compiles
        for label, (make, n_seeds) in methods(args, shared).items():
            runs = []
            for seed in range(n_seeds):
                _, cpu, model = timed(make(seed).fit, X)
                bound = (getattr(model, "elbo_", np.nan) - truth) / per_row
                number = getattr(model, "n_components_", np.sum(model.weights_ > 1e-3))
                runs.append((number, bound, cpu, model.n_iter_, *measure(model)))
                progress(label, seed, *(f"{value:,.6g}" for value in runs[-1]))
            number, bound, cpu, passes, *measured = zip(*runs, strict=True)
            bounds[label], known = np.array(bound), not np.isnan(bound).any()
            table.append([
                label, n_seeds, " ".join(map(str, number)), spread(bound, 4) if known else "",
                f"{max(bound):,.4f}" if known else "", f"{np.mean(cpu):.1f}",
                f"{np.mean(passes):.0f}", *(spread(values, 4) for values in measured),
            ])  # fmt: skip
    print_table(
        f"N = {len(X):,}, D = {X.shape[1]}, fixed K = {args.k}, {args.cores} cores (ELBO in nats"
        f"{' per row' * (per_row > 1)}{', less that of the truth' * (truth != 0.0)})",
        ["", "seeds", "K", "ELBO", "best", "CPU s", "passes", *headers],
        table,
    )
    rest = [values for label, values in bounds.items() if label != BIRTHS]
    if BIRTHS in bounds and rest:
        best = np.nanmax(np.concatenate(rest))
        print(f"{(bounds[BIRTHS] > best).sum()} of {bounds[BIRTHS].size} runs with births have a "
              "higher bound than the best of all with fixed K")  # fmt: skip


if __name__ == "__main__":
    main()
