"""A sweep of the factorial mixture against BLAS; its held-out error against other factor models.

A pass is one sweep over rows and factors at T = 1: the difference of two fits of 1 and of 1 + n
passes, divided by n, in CPU seconds of one thread, the least of several repeats. Two products of
the rows with K x D matrices are the least that it takes; BLAS does them in the same run, on the
same rows.

Then half of the values of each held-out row, drawn once for all, are predicted from the other half
at fixed components: by ``AnnealedFactorialMixture`` from the activations given the visible values
(the others are NaN), by ``FactorAnalysis`` from the conditional mean of its Gaussian, by
``MiniBatchDictionaryLearning`` from the code that orthogonal matching pursuit or the lasso (alpha
as in its fit) finds for the visible values. The error is mean square over variance. A row of the
first is told by K bits, of the others by up to K numbers: on rows of the model the first should
win, on faces (``--data``, every second pixel each way, columns centred) it need not.
"""

from pathlib import Path

import numpy as np
from _common import cores, least_cpu, parser, print_header, print_table, progress, timed
from sklearn.decomposition import FactorAnalysis, MiniBatchDictionaryLearning, sparse_encode

from skvt import AnnealedFactorialMixture


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--data", metavar="PATH", help="folder of yale_b/data.npz; none: no faces")
    p.add_argument("--rows", type=int, default=50_000)
    p.add_argument("--columns", type=int, default=256)
    p.add_argument("--k", type=int, default=32)
    p.add_argument("--held-out", type=int, default=500)
    p.add_argument("--passes", type=int, default=10, help="of which a pass is the mean")
    p.add_argument("--repeats", type=int, default=3, help="the least counts")
    p.add_argument("--quick", action="store_true", help="10,000 rows, 64 columns, K = 16")
    args = p.parse_args()
    if args.quick:
        args.rows, args.columns, args.k = 10_000, 64, 16
    return args


def rows_of_model(args, dtype):
    """Rows drawn from the model: pi 0.2, variances of noise 1 and of components 0.25."""
    rng = np.random.default_rng(0)
    components = 0.5 * rng.standard_normal((args.k, args.columns))
    on = rng.random((args.rows + args.held_out, args.k)) < 0.2
    X = on @ components + rng.standard_normal((len(on), args.columns))
    X = X.astype(dtype)
    return X[args.held_out :], X[: args.held_out]


def faces(args):
    """Faces with every second pixel each way, columns centred by those that are fitted to."""
    file = Path(args.data) / "yale_b" / "data.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold yale_b/data.npz.")
    with np.load(file) as arrays:
        images = arrays["images"][:, ::2, ::2].astype(np.float64)
    X = images.reshape(len(images), -1) / images.std()
    X = X[np.random.default_rng(0).permutation(len(X))]
    train, test = X[args.held_out :], X[: args.held_out]
    mean = train.mean(axis=0)
    return (train - mean).astype(np.float32), (test - mean).astype(np.float32)


# -------------------------------------------------------------------------------------- speed
def report_speed(args, dtype):
    X, _ = rows_of_model(args, dtype)

    def fit(n_passes):
        return lambda: AnnealedFactorialMixture(
            args.k, temperature=None, moves=(), max_iter=n_passes, tol=0.0, noise_variance=1.0,
            prior_variance=0.25, activation_prior=0.2, random_state=0,
        ).fit(X)  # fmt: skip

    components, activations = np.ones((args.columns, args.k), dtype), np.ones((len(X), args.k))
    activations = activations.astype(dtype)

    def products():
        for start in range(0, len(X), 1024):
            rows = slice(start, start + 1024)
            np.matmul(X[rows], components)
            np.matmul(activations[rows].T, X[rows])

    fit(1)()  # compiles
    products()
    short, long = (least_cpu(args.repeats, fit(n)) for n in (1, 1 + args.passes))
    seconds, limit = (long - short) / args.passes, least_cpu(2 * args.repeats, products)
    flops = 4.0 * len(X) * args.columns * args.k
    return [
        np.dtype(dtype).name, f"{seconds:.4f}", f"{len(X) / seconds:,.0f}", f"{limit:.4f}",
        f"{flops / limit / 1e9:.0f}", f"{seconds / limit:.2f}",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------- errors
def by_factorial(model, X, visible):
    return model.inverse_transform(model.transform(np.where(visible, X, np.nan)))


def by_factor_analysis(model, X, visible):
    """``W E[y | visible values] + mean`` of each row."""
    out, W, precision = np.empty(X.shape), model.components_.T, 1.0 / model.noise_variance_
    for x, seen, row in zip(X, visible, out, strict=True):
        weighted = W[seen] * precision[seen, None]
        inner = np.eye(W.shape[1]) + weighted.T @ W[seen]
        row[:] = W @ np.linalg.solve(inner, weighted.T @ (x - model.mean_)[seen]) + model.mean_
    return out


def by_dictionary(algorithm, **params):
    def predict(model, X, visible):
        out, atoms = np.empty(X.shape), model.components_
        for x, seen, row in zip(X, visible, out, strict=True):
            # of atoms of length 1 on the visible values
            lengths = np.maximum(np.linalg.norm(atoms[:, seen], axis=1), 1e-12)
            code = sparse_encode(
                x[None, seen], atoms[:, seen] / lengths[:, None], algorithm=algorithm, **params
            )
            row[:] = (code[0] / lengths) @ atoms
        return out

    return predict


def report_errors(args, name, train, test, noise=None):
    visible = np.random.default_rng(1).random(test.shape) < 0.5
    scale = np.mean(test[~visible].astype(np.float64) ** 2)
    remark = "" if noise is None else f" (of which noise: {noise / scale:.4f})"
    n_on = max(1, args.k // 5)
    ours = AnnealedFactorialMixture(args.k, random_state=0)
    analysis = FactorAnalysis(args.k, random_state=0)
    dictionary = MiniBatchDictionaryLearning(args.k, alpha=1.0, random_state=0)
    table = []
    for label, model, predictors in (
        ("AnnealedFactorialMixture", ours, {"": by_factorial}),
        ("FactorAnalysis", analysis, {"": by_factor_analysis}),
        ("MiniBatchDictionaryLearning", dictionary, {
            f", {n_on} atoms": by_dictionary("omp", n_nonzero_coefs=n_on),
            ", lasso": by_dictionary("lasso_lars", alpha=1.0),
        }),
    ):  # fmt: skip
        _, cpu, _ = timed(model.fit, train)
        progress(name, label, f"{cpu:.1f} CPU s")
        for suffix, predict in predictors.items():
            _, coding, guess = timed(predict, model, test, visible)
            error = np.mean((guess - test)[~visible] ** 2.0) / scale
            table.append([
                label + suffix, f"{error:.4f}", f"{cpu:.1f}", model.n_iter_, f"{coding:.2f}"
            ])  # fmt: skip
    print_table(
        f"{name}: {len(train):,} x {train.shape[1]:,}, K = {args.k}; mean square error of the "
        f"hidden half of {len(test)} held-out rows over their mean square{remark}",
        ["", "error", "fit, CPU s", "iterations", "predict, CPU s"],
        table,
    )


def main():
    args = arguments()
    print_header()
    with cores(1):
        print_table(
            f"One sweep, N = {args.rows:,}, D = {args.columns}, K = {args.k}, one thread (limit: "
            "CPU seconds of its two products in BLAS)",
            ["", "CPU s", "rows / s", "limit", "Gflop/s", "ratio"],
            [report_speed(args, dtype) for dtype in (np.float32, np.float64)],
        )
        train, test = rows_of_model(args, np.float32)
        report_errors(args, "rows of the model", train, test, noise=1.0)
        if args.data:
            report_errors(args, "faces", *faces(args))


if __name__ == "__main__":
    main()
