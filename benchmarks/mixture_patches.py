"""Natural image patches: births against fixed truncations, and denoising (HS13 sec. 4.4).

Zero-mean Gaussian mixtures with full covariances of 8 x 8 patches of natural pictures, each less
its own mean, in the 63 dimensions that are left. Part 1: the exact bound with births, merges and
deletes from one component, and with fixed K, memoized and stochastic, from several seeds. Part 2:
pictures of another set with noise of standard deviation sigma (of 255), denoised by half-quadratic
splitting with each mixture as the prior of patches (Zoran and Weiss, ICCV 2011), among them
scikit-learn's ``GaussianMixture`` fitted to the same patches; mean PSNR, all by the same NumPy
code.
"""

import warnings
from pathlib import Path

import numpy as np
from _common import cores, parser, print_header, print_table, progress, spread, timed
from scipy.linalg import null_space
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skvt import MemoizedDPGMM

SIDE = 8
BASIS = null_space(np.ones((1, SIDE**2)))  # (64, 63), orthonormal
STEPS = (1, 4, 8, 16, 32)
ROWS_AT_A_TIME = 256


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument(
        "--data", required=True, metavar="PATH",
        help="folder of bsds_train/data.npz (train) and bsd68_gray/data.npz (X): grey pictures",
    )  # fmt: skip
    p.add_argument("--rows", type=int, default=500_000, help="patches to learn from")
    p.add_argument("--k", type=int, default=100, help="of the fixed truncation")
    p.add_argument("--seeds", type=int, default=2, help="of births")
    p.add_argument("--fixed-seeds", type=int, default=1)
    p.add_argument("--passes", type=int, default=60, help="most passes with births")
    p.add_argument("--fixed-passes", type=int, default=40)
    p.add_argument("--sklearn-k", type=int, default=200, help="of GaussianMixture; 0: none")
    p.add_argument("--sklearn-passes", type=int, default=40)
    p.add_argument("--pictures", type=int, default=68, help="to denoise; 0: none")
    p.add_argument("--sigma", type=float, default=25.0)
    p.add_argument("--dtype", default="float32", choices=["float64", "float32"])
    p.add_argument("--only", nargs="+", default=None, help="methods whose label contains a word")
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="20,000 patches, K = 20, 2 pictures")
    args = p.parse_args()
    if args.quick:
        args.rows, args.k, args.sklearn_k, args.pictures = 20_000, 20, 10, 2
        args.seeds, args.passes, args.fixed_passes, args.sklearn_passes = 1, 15, 15, 10
    return args


def pictures(args, folder, key):
    """Grey pictures (n, height, width), values in [0, 1]."""
    file = Path(args.data) / folder / "data.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold {folder}/data.npz.")
    with np.load(file) as arrays:
        return arrays[key] / np.float32(255.0)


def patches(args):
    """Random patches in the basis, (rows, 63); noise hides that grey values are whole numbers."""
    images, rng = pictures(args, "bsds_train", "train"), np.random.default_rng(0)
    windows = np.lib.stride_tricks.sliding_window_view(images, (SIDE, SIDE), axis=(1, 2))
    places = tuple(rng.integers(n, size=args.rows) for n in windows.shape[:3])
    Z = windows[places].reshape(args.rows, -1) @ BASIS.astype(np.float32)
    return (Z + rng.normal(scale=1 / 255, size=Z.shape)).astype(args.dtype)


# --------------------------------------------------------------------------------- denoising
def denoise(noisy, sigma, weights, means, covariances):
    """Half-quadratic splitting of a picture, with the mixture as prior of patches."""
    dtype = np.float32
    picture, basis = noisy, BASIS.astype(dtype)
    spectra = [np.linalg.eigh(covariance.astype(np.float64)) for covariance in covariances]
    for step in STEPS:
        variance = sigma**2 / step
        windows = np.lib.stride_tricks.sliding_window_view(picture, (SIDE, SIDE))
        rows = windows.reshape(-1, SIDE**2).astype(dtype)
        averages = rows.mean(axis=1, keepdims=True)
        clean = filtered(rows @ basis, variance, weights, means, spectra)
        clean = (clean @ basis.T + averages).reshape(windows.shape)
        total, count = np.zeros_like(picture), np.zeros_like(picture)
        for i in range(SIDE):
            for j in range(SIDE):
                there = slice(i, i + windows.shape[0]), slice(j, j + windows.shape[1])
                total[there] += clean[:, :, i, j]
                count[there] += 1.0
        picture = (noisy + step * total / SIDE**2) / (1.0 + step * count / SIDE**2)
    return picture


def filtered(Z, variance, weights, means, spectra):
    """Each row to its most probable component under the noise, and its posterior mean there."""
    best, clean = most_probable(Z, variance, weights, means, spectra), np.empty_like(Z)
    for k, (mean, (values, vectors)) in enumerate(zip(means, spectra, strict=True)):
        rows = best == k
        gain = np.maximum(values, 0.0) / (np.maximum(values, 0.0) + variance)
        turn = ((vectors * gain) @ vectors.T).astype(Z.dtype)
        clean[rows] = (Z[rows] - mean.astype(Z.dtype)) @ turn + mean.astype(Z.dtype)
    return clean


def most_probable(Z, variance, weights, means, spectra):
    """The component of each row with the highest log density: one product with a table for all."""
    first, second = np.triu_indices(Z.shape[1])
    table = []
    for weight, mean, (values, vectors) in zip(weights, means, spectra, strict=True):
        spread = np.maximum(values, 0.0) + variance
        precision = (vectors / spread) @ vectors.T
        squares = -np.where(first == second, 0.5, 1.0) * precision[first, second]
        rest = np.log(weight) - 0.5 * (np.log(spread).sum() + mean @ precision @ mean)
        table.append([*squares, *(precision @ mean), rest])
    table = np.transpose(table).astype(Z.dtype)
    best = np.empty(len(Z), int)
    features = np.ones((ROWS_AT_A_TIME, len(table)), Z.dtype)
    for start in range(0, len(Z), ROWS_AT_A_TIME):
        rows, end = Z[start : start + ROWS_AT_A_TIME], 0
        for i in range(Z.shape[1]):
            begin, end = end, end + Z.shape[1] - i
            np.multiply(rows[:, i:], rows[:, i, None], out=features[: len(rows), begin:end])
        features[: len(rows), end:-1] = rows
        best[start : start + ROWS_AT_A_TIME] = (features[: len(rows)] @ table).argmax(axis=1)
    return best


def mean_psnr(args, model):
    """Mean over the pictures of the peak signal-to-noise ratio in dB, noise the same for all."""
    truths, rng = pictures(args, "bsd68_gray", "X")[: args.pictures], np.random.default_rng(1)
    sigma, values = args.sigma / 255.0, []
    for truth in truths:
        noisy = truth + sigma * rng.normal(size=truth.shape)
        picture = noisy
        if model is not None:
            picture = denoise(noisy, sigma, model.weights_, model.means_, model.covariances_)
        error = np.clip(picture, 0.0, 1.0) - truth
        values.append(-10.0 * np.log10(np.mean(error**2)))
    return np.mean(values)


# -------------------------------------------------------------------------------------- fits
def methods(args):
    """Label -> (maker of an estimator from a seed, number of seeds)."""

    def maker(**params):
        params = {"mean_type": "zero", "n_jobs": args.cores} | params
        return lambda seed: MemoizedDPGMM(**params, random_state=seed)

    fixed = {"n_components": args.k, "moves": (), "max_iter": args.fixed_passes}
    online = fixed | {"learning_method": "online", "evaluate_every": 0, "learning_decay": 0.5}
    rows = {
        "births from K = 1": (maker(max_iter=args.passes), args.seeds),
        f"memoized, K = {args.k}": (maker(**fixed), args.fixed_seeds),
        f"stochastic a (0.5, 10), K = {args.k}": (
            maker(**online, learning_offset=10.0),
            args.fixed_seeds,
        ),
        f"stochastic b (0.5, 100), K = {args.k}": (
            maker(**online, learning_offset=100.0),
            args.fixed_seeds,
        ),
    }
    if args.sklearn_k > 0:
        rows["sklearn GaussianMixture"] = (
            lambda seed: GaussianMixture(
                args.sklearn_k, max_iter=args.sklearn_passes, reg_covar=1e-6, random_state=seed
            ),
            1,
        )
    if args.only:
        rows = {name: row for name, row in rows.items() if any(w in name for w in args.only)}
    return rows


def main():
    args = arguments()
    print_header()
    Z = patches(args)
    with cores(args.cores):
        MemoizedDPGMM(mean_type="zero", max_iter=3, random_state=0).fit(Z[:2000])  # compiles
        table = []
        if args.pictures > 0:
            table.append(["(noisy)", "", "", "", "", "", "", f"{mean_psnr(args, None):.3f}"])
        for label, (make, n_seeds) in methods(args).items():
            runs = []
            for seed in range(n_seeds):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    seconds, cpu, model = timed(make(seed).fit, Z)
                elbo = model.elbo_ / len(Z) if hasattr(model, "elbo_") else np.nan
                psnr = mean_psnr(args, model) if args.pictures > 0 else np.nan
                runs.append((len(model.weights_), elbo, seconds, cpu, model.n_iter_, psnr))
                progress(label, seed, *(f"{value:.5g}" for value in runs[-1]))
            K, elbo, seconds, cpu, passes, psnr = zip(*runs, strict=True)
            table.append([
                label, n_seeds, " ".join(map(str, K)), "" if np.isnan(elbo[0]) else spread(elbo),
                f"{np.mean(seconds):.0f}", f"{np.mean(cpu):.0f}", f"{np.mean(passes):.0f}",
                "" if np.isnan(psnr[0]) else spread(psnr, 3),
            ])  # fmt: skip
    print_table(
        f"N = {len(Z):,} patches, {Z.shape[1]} dimensions, {Z.dtype}, {args.cores} cores (ELBO in "
        f"nats per patch; mean PSNR in dB of {args.pictures} pictures at sigma {args.sigma:g})",
        ["", "seeds", "K", "ELBO", "s", "CPU s", "passes", "PSNR"],
        table,
    )


if __name__ == "__main__":
    main()
