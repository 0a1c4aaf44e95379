"""Speed of a pass of a Gaussian mixture: against scikit-learn, bnpy, and the machine's products.

Seconds of a pass are the difference of two fits of 1 and of 1 + n passes, divided by n, so that
validation, seeds and what follows the last pass do not count; the least of several repeats, by the
clock and of CPU. ``MemoizedDPGMM`` makes memoized passes without moves, scikit-learn's
``BayesianGaussianMixture`` iterations of coordinate ascent, bnpy memoized laps. scikit-learn has
no Gaussians without means, so that its iteration stands beside both kinds of ours.

A pass takes two matrix products at least, features by table and features by responsibilities, of
4 N P K floating-point operations with P features a row: how far a pass is from the time that BLAS
needs for these on one thread is printed, and what share of a pass is not product.
"""

import subprocess
import sys
import tempfile
import warnings

import numpy as np
from _common import cores, parser, print_header, print_table, progress, timed
from _machine import gemm_flops, triad_bytes
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from skvt import MemoizedDPGMM
from skvt.datasets import make_edge_patches

# bnpy 0.1.7 asks for a function that Python 3.11 no longer has.
BNPY = """
import inspect, sys, time
if not hasattr(inspect, "getargspec"):
    inspect.getargspec = lambda function: inspect.getfullargspec(function)[:4]
import bnpy, numpy as np
file, likelihood, k, n_batches, passes, repeats, folder = sys.argv[1:]
data, times = bnpy.data.XData(X=np.load(file)), ([], [])
for _ in range(int(repeats)):
    for laps, measured in zip((1, 1 + int(passes)), times):
        clock, cpu = time.perf_counter(), time.process_time()
        bnpy.run(data, "DPMixtureModel", likelihood, "memoVB", K=int(k), nLap=laps, nTask=1,
                 nBatch=int(n_batches), initname="randexamples", moves="", gamma0=1.0,
                 ECovMat="covdata", sF=1.0, convergeThr=0.0, printEvery=-1, output_path=folder)
        measured.append((time.perf_counter() - clock, time.process_time() - cpu))
print("seconds", *(np.min(times[1], axis=0) - np.min(times[0], axis=0)) / int(passes))
"""


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--rows", type=int, default=100_000)
    p.add_argument("--patch-size", type=int, default=5, help="D is its square")
    p.add_argument("--k", type=int, default=25)
    p.add_argument("--n-batches", type=int, default=10)
    p.add_argument("--passes", type=int, default=5, help="of which a pass is the mean")
    p.add_argument("--repeats", type=int, default=3, help="the least counts")
    p.add_argument("--bnpy-python", metavar="PATH", help="a Python that can import bnpy")
    p.add_argument("--quick", action="store_true", help="20,000 rows, twice")
    args = p.parse_args()
    if args.quick:
        args.rows, args.repeats = 20_000, 2
    return args


def seconds_of_pass(make, X, args):
    """(seconds, CPU seconds) of one pass, the least of the repeats."""
    times = {1: [], 1 + args.passes: []}
    for _ in range(args.repeats):
        for n_passes, measured in times.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                measured.append(timed(make(n_passes).fit, X)[:2])
    short, long = (np.min(measured, axis=0) for measured in times.values())
    return (long - short) / args.passes


def ours(args, mean_type, n_jobs):
    def make(n_passes):
        return MemoizedDPGMM(
            args.k, mean_type=mean_type, moves=(), n_batches=args.n_batches, max_iter=n_passes,
            tol=0.0, init_params="random_from_data", n_jobs=n_jobs, random_state=0,
        )  # fmt: skip

    return make


def sklearn(args):
    def make(n_passes):
        return BayesianGaussianMixture(
            n_components=args.k, weight_concentration_prior_type="dirichlet_process",
            weight_concentration_prior=1.0, init_params="random_from_data", tol=0.0,
            max_iter=n_passes, random_state=0,
        )  # fmt: skip

    return make


def bnpy_seconds(args, X, mean_type):
    """(seconds, CPU seconds) of a lap in the other Python, one thread; None if it fails."""
    likelihood = "ZeroMeanGauss" if mean_type == "zero" else "Gauss"
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/X.npy", X)
        numbers = [args.k, args.n_batches, args.passes, args.repeats]
        command = [args.bnpy_python, "-c", BNPY, f"{folder}/X.npy", likelihood, *map(str, numbers)]
        done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("seconds ")]
    if done.returncode != 0 or not lines:
        print("bnpy failed:", done.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return None
    return np.array(lines[-1].split()[1:], dtype=float)


def measure(args, X):
    """Label -> (mean_type, dtype, threads, (seconds, CPU seconds))."""
    results = {}
    for mean_type in ("zero", "full"):
        for dtype in ("float64", "float32"):
            data = X.astype(dtype)
            for n in (1, 2):
                with cores(n):
                    make = ours(args, mean_type, n)
                    make(1).fit(data)  # compiles, starts threads
                    times = seconds_of_pass(make, data, args)
                label = f"MemoizedDPGMM, {mean_type} means, {dtype}"
                results[label, n] = mean_type, dtype, times
                progress(label, n, times)
    with cores(1):
        results["BayesianGaussianMixture, full means, float64", 1] = (
            "full", "float64", seconds_of_pass(sklearn(args), X, args),
        )  # fmt: skip
        for mean_type in ("zero", "full"):
            if not args.bnpy_python:
                print("bnpy is left out: --bnpy-python PATH names a Python that has it")
                break
            times = bnpy_seconds(args, X, mean_type)
            if times is not None:
                results[f"bnpy, {mean_type} means, float64", 1] = mean_type, "float64", times
    return results


def n_statistics(n_features, mean_type):
    """Features P of a row: 1, x with means, the upper triangle of x x'."""
    triangle = n_features * (n_features + 1) // 2
    return 1 + triangle + (n_features if mean_type == "full" else 0)


def report(args, X, results):
    with cores(1):
        rates = {dtype: gemm_flops(dtype, k=326, n=args.k) for dtype in ("float64", "float32")}
        stream = triad_bytes("float64")
    for dtype, rate in rates.items():
        print(f"BLAS, {dtype}, (512, 326) x (326, {args.k}), one thread: {rate / 1e9:.1f} Gflop/s")
    print(f"memory triad, one thread: {stream / 1e9:.1f} GB/s, so that reading the rows once takes "
          f"{X.nbytes / stream:.4f} s\n")  # fmt: skip
    peers = ("BayesianGaussianMixture", "bnpy")
    table = []
    for (label, n), (mean_type, dtype, (seconds, cpu)) in results.items():
        P = n_statistics(X.shape[1], mean_type)
        limit = 4.0 * X.shape[0] * P * args.k / rates[dtype]
        ratios = [_times_as_fast(results, peer, mean_type, (seconds, cpu)) for peer in peers]
        table.append([
            label, n, f"{seconds:.3f}", f"{cpu:.3f}", f"{X.shape[0] / seconds:,.0f}",
            f"{limit:.3f}", f"{limit / cpu:.0%}", *ratios,
        ])  # fmt: skip
    print_table(
        f"One pass, N = {X.shape[0]:,}, D = {X.shape[1]}, K = {args.k} ({args.n_batches} batches; "
        "products: CPU seconds that BLAS needs for 4 N P K operations, and their share; then how "
        "many times faster than scikit-learn and bnpy on one thread, by the clock / by CPU)",
        ["", "threads", "seconds", "CPU s", "rows / s", "products, s", "share", "sklearn", "bnpy"],
        table,
    )
    for (label, n), (_, _, times) in results.items():
        if n == 2:
            print(f"{label}: from 1 to 2 threads {results[label, 1][2][0] / times[0]:.2f}x")
    busy = max(r[2][0] / r[2][1] for (_, n), r in results.items() if n == 1)
    if busy > 1.1:
        print(
            f"THE MACHINE WAS BUSY: one thread took {busy:.1f} times its CPU seconds. Ratios by "
            "the clock, and from 1 to 2 threads, mean nothing; those by CPU seconds stand."
        )


def _times_as_fast(results, peer, mean_type, times):
    """Ratios by the clock and by CPU seconds to a peer on the same kind of means if it has it."""
    found = [
        (kind != mean_type, theirs)
        for (name, _), (kind, _, theirs) in results.items()
        if name.startswith(peer)
    ]
    if not found:
        return ""
    theirs = min(found, key=lambda pair: pair[0])[1]
    return f"{theirs[0] / times[0]:.1f}x / {theirs[1] / times[1]:.1f}x"


def main():
    args = arguments()
    print_header()
    X = make_edge_patches(args.rows, patch_size=args.patch_size, random_state=0, return_truth=False)
    report(args, X, measure(args, X))


if __name__ == "__main__":
    main()
