"""A cluster of Dask on this machine: overhead and bytes, and what follows for a large one.

- ``overhead``: batch passes of `TemperedLDA` over chunks, beside the same passes in this process
  with as many threads, in pairs; bytes on the loopback device beside the formula of the guide.
- ``bytes``: those of a pass by engine, beside the formulas of the guide.

No data needed. Linux only.
"""

import time
import warnings
from itertools import pairwise
from pathlib import Path

import dask
import numpy as np
import scipy.sparse as sp
from _common import parser, print_header, print_table
from distributed import Client, LocalCluster
from sklearn.exceptions import ConvergenceWarning

from skvt import MemoizedDPGMM, MemoizedHDP, StructuredLDA, TemperedLDA
from skvt.datasets import make_topic_corpus

PARTS = ("overhead", "bytes")


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    p.add_argument("--documents", type=int, default=48_000)
    p.add_argument("--words", type=int, default=8_000)
    p.add_argument("--k", type=int, default=100)
    p.add_argument("--chunks", type=int, default=4)
    p.add_argument("--pairs", type=int, default=3)
    return p.parse_args()


def two_workers():
    return LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0")


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

    teardown = setup

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


def bytes_of_round(words, k, *, summed, dense=None):
    """The guide's formula for batches visited at once, all hops between two workers counted.

    ``words`` are those of each batch; ``dense`` how many there are where all are sent to all.
    """
    active, union = [own.size for own in words], np.unique(np.concatenate(words)).size
    own, shared = 8 * k * sum(active), 8 * k * (dense or union)
    # driver - scheduler - worker - other worker, or driver - scheduler - worker
    out = 3 * shared if dense or own >= 2 * shared else 2 * own
    if not summed:
        return out + 2 * own
    parts = sorted(8 * k * (dense or a) for a in active)
    return out + sum(parts[: len(parts) // 2]) + 2 * shared


def overhead(args):
    X = make_topic_corpus(
        args.documents, n_components=50, n_features=args.words, mean_length=120.0, random_state=0
    ).X
    X = sp.csr_array(X, dtype=np.float64)
    pieces = chunks_of(X, args.chunks)
    expected = bytes_of_round([np.unique(p.indices) for p in pieces], args.k, summed=True)
    settings = {
        "learning_method": "batch", "temperature": None, "max_iter": 3, "moves": (),
        # (every document makes as many sweeps, so that passes are alike)
        "mean_change_tol": 0.0, "max_doc_update_iter": 60, "random_state": 0,
    }  # fmt: skip
    rows = []
    with two_workers() as cluster, Client(cluster):
        parts = [dask.delayed(piece) for piece in pieces]
        for pair in range(args.pairs):
            here, seconds, _ = timed_passes(TemperedLDA(args.k, n_jobs=2, **settings), X)
            there, with_cluster, n_bytes = timed_passes(TemperedLDA(args.k, **settings), parts)
            rows.append((
                pair + 1, f"{np.mean(seconds):.2f}", f"{np.mean(with_cluster):.2f}",
                f"{np.mean(with_cluster) / np.mean(seconds):.3f}",
                f"{np.mean(n_bytes) / 1e6:.1f}", f"{expected / 1e6:.1f}",
                f"{abs(there.elbo_ / here.elbo_ - 1.0):.1e}",
            ))  # fmt: skip
    print_table(
        f"{args.documents} documents, {X.nnz} entries, K = {args.k}, {args.chunks} chunks",
        ("pair", "threads s/pass", "cluster s/pass", "ratio", "MB/pass", "formula", "elbo differs"),
        rows,
    )


def bytes_by_engine(args):
    """Bytes of a pass of topics in 16 chunks, and of a mixture in 10."""
    X = make_topic_corpus(
        16 * 500, n_components=50, n_features=args.words, mean_length=120.0, random_state=0
    ).X
    X = sp.csr_array(X, dtype=np.float64)
    pieces = chunks_of(X, 16)
    words = [np.unique(piece.indices) for piece in pieces]

    def of_rounds(k, size, **how):
        return sum(bytes_of_round(words[i : i + size], k, **how) for i in range(0, 16, size))

    common = {"random_state": 0, "batch_size": 500, "max_iter": 4}
    k, rows = args.k, []
    plain = {"temperature": None, "moves": (), "evaluate_every": 0, **common}
    topics = {
        "online": (TemperedLDA(k, average=0.0, **plain), of_rounds(k, 8, summed=True)),
        "structured, ssvi-a": (
            StructuredLDA(k, global_step="ssvi-a", **plain), of_rounds(k, 8, summed=True)),
        "structured, ssvi": (
            StructuredLDA(k, global_step="ssvi", local_step="cvb0", **plain),
            of_rounds(k, 8, summed=True, dense=args.words)),
        "memoized HDP, no moves": (
            MemoizedHDP(k, moves=(), **common), of_rounds(k, 2, summed=False)),
        "memoized HDP, all moves": (MemoizedHDP(k, **common), of_rounds(k, 2, summed=False)),
    }  # fmt: skip
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(100_000, 40)) + 4.0 * rng.integers(-1, 2, size=(20, 40))[
        rng.integers(20, size=100_000)
    ]  # fmt: skip
    P = 40 * 43 // 2
    settings = {"random_state": 0, "batch_size": 10_000, "max_iter": 4, "init_params": "random"}
    mixtures = {
        "no moves": ((), 4),
        "merge, delete": (("merge", "delete"), 4),
        "all moves": (None, 8),
    }
    with two_workers() as cluster, Client(cluster):
        for name, (estimator, expected) in topics.items():
            done, _, n_bytes = timed_passes(estimator, [dask.delayed(p) for p in pieces])
            rows.append((name, _millions(n_bytes), f"{expected / 1e6:.1f}", len(done.components_)))
            print(*rows[-1], flush=True)
        for name, (moves, n_passes) in mixtures.items():
            changes = {} if moves is None else {"moves": moves}
            mixture = MemoizedDPGMM(20, **settings | changes | {"max_iter": n_passes})
            done, _, n_bytes = timed_passes(
                mixture, [dask.delayed(piece) for piece in chunks_of(Y, 10)]
            )
            # (what is sent is of the components before the pass)
            sizes = np.array(done.history_["n_components"][:-1])
            # (globals out and back, ten batches one by one)
            expected = 10 * 4 * 8 * sizes * (1 + P)
            if moves != ():
                expected = expected + 10 * 2 * 8 * sizes * (sizes + 1)
            rows.append(
                (f"mixture, {name}", _millions(n_bytes), _millions(expected), done.n_components_)
            )
            print(*rows[-1], flush=True)
    print_table(
        f"16 chunks of 500 documents, {args.words} words, K = {k}; 10 chunks of 10,000 rows, 40 "
        "columns, full covariances: MB a pass",
        ("engine", "counted in each pass", "formula", "components at the end"),
        rows,
    )


def _millions(numbers):
    return " ".join(f"{number / 1e6:.1f}" for number in numbers)


def main():
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    warnings.filterwarnings("ignore", "Sending large graph")
    args = arguments()
    print_header(args, "dask", "distributed")
    for part in args.parts:
        {"overhead": overhead, "bytes": bytes_by_engine}[part](args)


if __name__ == "__main__":
    main()
