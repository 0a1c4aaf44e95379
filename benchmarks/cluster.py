"""Overhead and bytes sent of fits on a cluster of Dask on this machine.

- ``overhead``: the time of batch passes of `TemperedLDA` over chunks on the cluster, compared with
  the same passes in this process with the same number of threads, in pairs of fits. The bytes that
  the loopback device sends are compared with the formula of the guide.
- ``bytes``: the bytes of a pass of each engine, compared with the formulas of the guide.

No data are needed. The measurements work on Linux only.
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
    """Return a cluster of two worker processes with a thread each."""
    return LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0")


def loopback_bytes():
    """Return the number of bytes that the loopback device has sent so far."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            # Eight counters of received data precede the number of bytes sent.
            return int(counters.split()[8])
    raise SystemExit("no loopback device")


class Passes:
    """Callback that measures the seconds and the loopback bytes of each pass of a fit."""

    def __init__(self):
        self.seconds, self.bytes = [], []

    def setup(self, estimator, context):
        """Do nothing before the fit, and as :meth:`teardown` after the fit."""

    teardown = setup

    def on_fit_task_begin(self, estimator, context, **arguments):
        """Start the clock and the counter of bytes."""
        self._start, self._start_bytes = time.perf_counter(), loopback_bytes()

    def on_fit_task_end(self, estimator, context, **arguments):
        """Keep the measures of a pass; return False, so that the fit continues."""
        if context.task_name == "pass":
            self.seconds.append(time.perf_counter() - self._start)
            self.bytes.append(loopback_bytes() - self._start_bytes)
        return False


def chunks_of(X, number):
    """Return this number of chunks of consecutive rows, of nearly equal sizes."""
    bounds = np.linspace(0, X.shape[0], number + 1).astype(int)
    return [X[start:stop] for start, stop in pairwise(bounds)]


def timed_passes(estimator, X):
    """Return the fitted estimator, and the seconds and bytes of all passes but the first."""
    passes = Passes()
    estimator.set_callbacks(passes).fit(X)
    # The first pass compiles functions, and finds the words of the chunks.
    return estimator, passes.seconds[1:], passes.bytes[1:]


def bytes_of_round(words, k, *, summed, dense=None):
    """Return the bytes of batches that are visited at once, by the formula of the guide.

    Each hop counts, with two workers. ``words`` has the words of each batch, and k is the number of
    topics. If all words are sent to all workers, ``dense`` is their number. ``summed`` tells
    whether the workers add up the statistics of the batches.
    """
    n_words, n_distinct = [batch.size for batch in words], np.unique(np.concatenate(words)).size
    # Bytes of the topics of the words of each batch, and of the words of any batch.
    separate, shared = 8 * k * sum(n_words), 8 * k * (dense or n_distinct)
    # Shared topics make three hops: from the driver to the scheduler, to a worker, and to the other
    # worker. The topics of each batch make the first two hops.
    sent_out = 3 * shared if dense or separate >= 2 * shared else 2 * separate
    if not summed:
        return sent_out + 2 * separate
    # A half of the batches send their statistics to the other worker, and the sum makes two hops.
    batch_bytes = sorted(8 * k * (dense or n) for n in n_words)
    return sent_out + sum(batch_bytes[: len(batch_bytes) // 2]) + 2 * shared


def overhead(args):
    """Compare seconds and bytes of passes with threads and with the cluster."""
    X = make_topic_corpus(
        args.documents, n_components=50, n_features=args.words, mean_length=120.0, random_state=0
    ).X
    X = sp.csr_array(X, dtype=np.float64)
    pieces = chunks_of(X, args.chunks)
    expected = bytes_of_round([np.unique(p.indices) for p in pieces], args.k, summed=True)
    settings = {
        "learning_method": "batch", "temperature": None, "max_iter": 3, "moves": (),
        # Each document makes the same number of sweeps, so that passes take equal times.
        "mean_change_tol": 0.0, "max_doc_update_iter": 60, "random_state": 0,
    }  # fmt: skip
    rows = []
    with two_workers() as cluster, Client(cluster):
        parts = [dask.delayed(piece) for piece in pieces]
        for pair in range(args.pairs):
            with_threads, seconds, _ = timed_passes(TemperedLDA(args.k, n_jobs=2, **settings), X)
            with_cluster, cluster_seconds, n_bytes = timed_passes(
                TemperedLDA(args.k, **settings), parts
            )
            rows.append((
                pair + 1, f"{np.mean(seconds):.2f}", f"{np.mean(cluster_seconds):.2f}",
                f"{np.mean(cluster_seconds) / np.mean(seconds):.3f}",
                f"{np.mean(n_bytes) / 1e6:.1f}", f"{expected / 1e6:.1f}",
                f"{abs(with_cluster.elbo_ / with_threads.elbo_ - 1.0):.1e}",
            ))  # fmt: skip
    print_table(
        f"{args.documents} documents, {X.nnz} entries, K = {args.k}, {args.chunks} chunks",
        ("pair", "threads s/pass", "cluster s/pass", "ratio", "MB/pass", "formula", "elbo differs"),
        rows,
    )


def bytes_by_engine(args):
    """Compare bytes of a pass with formulas, for topics in 16 chunks and a mixture in 10 chunks."""
    X = make_topic_corpus(
        16 * 500, n_components=50, n_features=args.words, mean_length=120.0, random_state=0
    ).X
    X = sp.csr_array(X, dtype=np.float64)
    pieces = chunks_of(X, 16)
    words = [np.unique(piece.indices) for piece in pieces]

    def bytes_of_pass(k, size, **options):
        """Return the sum over rounds of ``size`` chunks that are visited at once."""
        return sum(bytes_of_round(words[i : i + size], k, **options) for i in range(0, 16, size))

    common = {"random_state": 0, "batch_size": 500, "max_iter": 4}
    k, rows = args.k, []
    plain = {"temperature": None, "moves": (), "evaluate_every": 0, **common}
    # The estimator of each engine, and the bytes of a pass by the formula.
    topics = {
        "online": (TemperedLDA(k, average=0.0, **plain), bytes_of_pass(k, 8, summed=True)),
        "structured, ssvi-a": (
            StructuredLDA(k, global_step="ssvi-a", **plain), bytes_of_pass(k, 8, summed=True)),
        "structured, ssvi": (
            StructuredLDA(k, global_step="ssvi", local_step="cvb0", **plain),
            bytes_of_pass(k, 8, summed=True, dense=args.words)),
        "memoized HDP, no moves": (
            MemoizedHDP(k, moves=(), **common), bytes_of_pass(k, 2, summed=False)),
        "memoized HDP, all moves": (MemoizedHDP(k, **common), bytes_of_pass(k, 2, summed=False)),
    }  # fmt: skip
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(100_000, 40)) + 4.0 * rng.integers(-1, 2, size=(20, 40))[
        rng.integers(20, size=100_000)
    ]  # fmt: skip
    # Number of statistics of a full Gaussian in D = 40 columns, D (D + 3) / 2, without the number
    # of rows.
    P = 40 * 43 // 2
    settings = {"random_state": 0, "batch_size": 10_000, "max_iter": 4, "init_params": "random"}
    # Moves, and the number of passes.
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
            # The components before a pass determine the bytes that it sends.
            sizes = np.array(done.history_["n_components"][:-1])
            # Ten batches, one by one: 8 bytes a number, two hops out and two hops back.
            expected = 10 * 4 * 8 * sizes * (1 + P)
            if moves != ():
                # The entropies that moves need make two hops back.
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
    """Return numbers in millions, as a text."""
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
