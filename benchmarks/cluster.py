"""A cluster of Dask on this machine: overhead, bytes, memory, and what follows for a large one.

- ``overhead``: batch passes of `TemperedLDA` over chunks, beside the same passes in this process
  with as many threads, in pairs; bytes on the loopback device beside the formula of the guide.
- ``workers``: the same fit by one, two and four workers: seconds and bits.
- ``memory``: rows four times as large as the limits of the workers together, and the peak of the
  driver.

No data needed. Linux only.
"""

import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path

import dask
import numpy as np
import scipy.sparse as sp
from _common import parser, peak_bytes, print_header, print_table, reset_peak, resident_bytes
from distributed import Client, LocalCluster
from sklearn.exceptions import ConvergenceWarning

from skvt import MemoizedDPGMM, TemperedLDA
from skvt.datasets import make_topic_corpus

PARTS = ("overhead", "workers", "memory")


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    p.add_argument("--documents", type=int, default=48_000)
    p.add_argument("--words", type=int, default=8_000)
    p.add_argument("--k", type=int, default=100)
    p.add_argument("--chunks", type=int, default=4)
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--limit", default="700MB", help="memory of each worker")
    p.add_argument("--gigabytes", type=float, default=None, help="of rows on disk; 4 x the limits")
    return p.parse_args()


def cluster_of(n_workers, **settings):
    return LocalCluster(
        n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0",
        **settings,
    )  # fmt: skip


def loopback_bytes():
    """Bytes that the loopback device has sent so far."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    raise SystemExit("no loopback device")


class Passes:
    """Seconds and loopback bytes of each pass of a fit."""

    def __init__(self):
        self.seconds, self.bytes = [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **given):
        self._began = time.perf_counter(), loopback_bytes()

    def on_fit_task_end(self, estimator, context, **given):
        if context.task_name == "pass":
            self.seconds.append(time.perf_counter() - self._began[0])
            self.bytes.append(loopback_bytes() - self._began[1])
        return False


def chunks_of(X, number):
    bounds = np.linspace(0, X.shape[0], number + 1).astype(int)
    return [X[start:stop] for start, stop in pairwise(bounds)]


def timed_passes(estimator, X):
    passes = Passes()
    estimator.set_callbacks(passes).fit(X)
    # (the first pass compiles, and asks chunks for their words)
    return estimator, passes.seconds[1:], passes.bytes[1:]


def expected_bytes(parts, k):
    """The guide's formula for a pass of a tree of two workers, all hops on one device counted."""
    active = [np.unique(part.indices).size for part in parts]
    union = np.unique(np.concatenate([part.indices for part in parts])).size
    if sum(active) >= 2 * union:
        out = 3 * (8 * k * union + 16 * union)  # driver - scheduler - worker - other worker
    else:
        out = 2 * sum(8 * k * a + 16 * a for a in active)  # driver - scheduler - worker
    between = sum(sorted(8 * k * a for a in active)[: len(active) // 2])  # to the one that adds
    back = 2 * 8 * k * union  # worker - scheduler - driver
    return out + between + back


def overhead(args):
    X = make_topic_corpus(
        args.documents, n_components=50, n_features=args.words, mean_length=120.0, random_state=0,
        return_truth=False,
    )  # fmt: skip
    X = sp.csr_array(X, dtype=np.float64)
    pieces = chunks_of(X, args.chunks)
    settings = {
        "learning_method": "batch", "temperature": None, "max_iter": 3, "moves": (),
        # (every document makes as many sweeps, so that passes are alike)
        "mean_change_tol": 0.0, "max_doc_update_iter": 60, "random_state": 0,
    }  # fmt: skip
    rows = []
    with cluster_of(2) as cluster, Client(cluster):
        parts = [dask.delayed(piece) for piece in pieces]
        for pair in range(args.pairs):
            here, seconds, _ = timed_passes(TemperedLDA(args.k, n_jobs=2, **settings), X)
            there, with_cluster, n_bytes = timed_passes(TemperedLDA(args.k, **settings), parts)
            rows.append((
                pair + 1, f"{np.mean(seconds):.2f}", f"{np.mean(with_cluster):.2f}",
                f"{np.mean(with_cluster) / np.mean(seconds):.3f}",
                f"{np.mean(n_bytes) / 1e6:.1f}", f"{expected_bytes(pieces, args.k) / 1e6:.1f}",
                f"{abs(there.elbo_ / here.elbo_ - 1.0):.1e}",
            ))  # fmt: skip
    print_table(
        f"{args.documents} documents, {X.nnz} entries, K = {args.k}, {args.chunks} chunks",
        ("pair", "threads s/pass", "cluster s/pass", "ratio", "MB/pass", "formula", "elbo differs"),
        rows,
    )


def workers(args):
    X = np.random.default_rng(0).normal(size=(400_000, 20))
    X[::2] += 3.0
    pieces, rows = chunks_of(X, 16), []
    for n_workers in (1, 2, 4):
        with cluster_of(n_workers) as cluster, Client(cluster):
            parts = [dask.delayed(piece) for piece in pieces]
            settings = {"max_iter": 6, "batch_size": 25_000, "random_state": 0,
                        "covariance_type": "diag"}  # fmt: skip
            MemoizedDPGMM(**settings | {"max_iter": 2}).fit(parts[:2])
            started = time.perf_counter()
            mixture = MemoizedDPGMM(**settings).fit(parts)
            seconds = time.perf_counter() - started
        rows.append((n_workers, f"{seconds:.1f}", repr(mixture.elbo_), mixture.n_components_))
    title = "400,000 rows x 20 columns in 16 chunks, MemoizedDPGMM with all moves, 6 passes"
    print_table(title, ("workers", "seconds", "bound", "components"), rows)


def write(path, seed, n_rows):
    rng = np.random.default_rng(seed)
    means = 3.0 * np.arange(4.0)[rng.integers(4, size=n_rows), None]
    np.save(path, means + rng.normal(size=(n_rows, 100)))


def memory(args):
    limit = float(dask.utils.parse_bytes(args.limit))
    n_bytes = 8 * limit if args.gigabytes is None else args.gigabytes * 1e9
    of_file = 20_000_000
    number = round(n_bytes / of_file)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{i:04}.npy") for i in range(number)]
        for i, path in enumerate(paths):
            write(path, i, of_file // 800)
        with cluster_of(2, memory_limit=args.limit) as cluster, Client(cluster):
            parts = [dask.delayed(np.load)(path) for path in paths]
            settings = {"covariance_type": "diag", "random_state": 0, "batch_size": 25_000}
            MemoizedDPGMM(max_iter=2, **settings).fit(parts[:4])
            reset_peak()
            before, started = resident_bytes(), time.perf_counter()
            mixture = MemoizedDPGMM(max_iter=6, **settings).fit(parts)
            seconds, peak = time.perf_counter() - started, peak_bytes() - before
    print_table(
        f"{number * of_file / 1e9:.1f} GB of rows in files, two workers with {args.limit} each",
        ("components of 4", "passes", "seconds", "driver's peak above its start, MB"),
        [(mixture.n_components_, mixture.n_iter_, f"{seconds:.0f}", f"{peak / 1e6:.0f}")],
    )


def main():
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    warnings.filterwarnings("ignore", "Sending large graph")
    args = arguments()
    print_header("dask", "distributed")
    for part in args.parts:
        globals()[part](args)


if __name__ == "__main__":
    main()
