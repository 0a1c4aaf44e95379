"""What all benchmarks share: corpora, the one evaluator, cores, memory, plain tables.

The evaluator is written in NumPy alone and knows no library: it takes topics (K, V) and treats
them all alike, so that it can favour nobody.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.special import digamma, polygamma
from threadpoolctl import threadpool_limits

TEST_DOCUMENTS = {"newsgroups20": 2000, "kos": 400, "ap": 300, "arxiv_daily": 2000}
# Elements of one dense block of the evaluator: it stays in the second-level cache.
BLOCK = 100_000


# ------------------------------------------------------------------------------------ corpora
def corpora(args):
    """(train, test) of the corpus named on the command line, rows permuted; prints their sizes.

    Both are CSR of int32 with sorted indices; documents without words are left out.
    """
    file = Path(args.data) / args.corpus / "counts.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold <corpus>/counts.npz (CSR).")
    X = sp.csr_matrix(sp.load_npz(file)).astype(np.int32)
    X.sum_duplicates()
    rows = np.random.default_rng(args.split_seed).permutation(X.shape[0])
    n_test = TEST_DOCUMENTS.get(args.corpus, X.shape[0] // 10)
    test, train = X[rows[:n_test]], X[rows[n_test:]]
    train = train[np.diff(train.indptr) > 0][: args.documents]
    print("training:", describe(train), "\ntest:    ", describe(test))
    return train, test


def describe(X):
    """One line about a corpus."""
    tokens = int(X.sum())
    return (
        f"{X.shape[0]:,} documents, {X.shape[1]:,} words, {tokens:,} tokens "
        f"({tokens / X.shape[0]:.1f} a document), {X.nnz:,} entries"
    )


# ---------------------------------------------------------------------------------- evaluator
class DocumentCompletion:
    """Held-out log predictive probability in nats per word, the same way for every library.

    Each token of each test document is observed or held out by a fair coin (fixed seed). With the
    topics fixed at ``E[beta]``, the observed tokens give q(theta) by mean-field updates

        phi_jk ~ beta_kj exp(digamma(gamma_k)),    gamma_k = alpha_k + sum_j n_j phi_jk

    from equal shares to a tight tolerance; the others are scored by
    ``log sum_k E[theta_k] E[beta_kj]``.

    Parameters
    ----------
    X : CSR of counts, test documents
    alpha : float or (K,), prior of the proportions, for all libraries the same unless a call
        gives another
    seed : int, of the split of tokens
    tol : float, mean absolute change of gamma (tokens) at which a document has converged
    """

    def __init__(self, X, alpha, *, seed=0, tol=1e-6, max_sweeps=2000):
        rng = np.random.default_rng(seed)
        self.alpha, self.tol, self.max_sweeps = alpha, tol, max_sweeps
        observed, held_out = X.copy(), X.copy()
        observed.data = rng.binomial(X.data, 0.5).astype(np.int32)
        held_out.data = X.data - observed.data
        for part in (observed, held_out):
            part.eliminate_zeros()
        self.observed, self.held_out = observed, held_out
        self.n_tokens = int(held_out.sum())

    def __call__(self, topics, alpha=None):
        """Nats per held-out word for topics (K, V): pseudo-counts or probabilities."""
        beta = word_probabilities(topics)
        alpha = self.alpha if alpha is None else alpha
        gamma = topic_weights(self.observed, beta, alpha, self.tol, self.max_sweeps)
        theta = gamma / gamma.sum(axis=1, keepdims=True)
        total = 0.0
        for start in range(0, theta.shape[0], 500):
            part = self.held_out[start : start + 500].tocoo()
            p = np.einsum("jk,jk->j", theta[start + part.row], beta[part.col])
            total += part.data @ np.log(p)
        score = float(total / self.n_tokens)
        if not np.isfinite(score):
            raise ValueError("The topics give some held-out word probability 0 or NaN.")
        return score


def word_probabilities(topics):
    """Topics (K, V) as columns of probabilities, (V, K)."""
    beta = np.ascontiguousarray(np.asarray(topics, dtype=np.float64).T)
    return beta / beta.sum(axis=0)


def topic_weights(X, beta, alpha, tol=1e-6, max_sweeps=2000, start=None):
    """gamma of all documents of X given topics (V, K), to a mean absolute change of ``tol``.

    From equal shares, or from another gamma to ``start`` with.
    """
    n_topics, sizes = beta.shape[1], np.diff(X.indptr)
    alpha = np.broadcast_to(np.asarray(alpha, dtype=np.float64), n_topics)
    if start is None:
        start = alpha + np.asarray(X.sum(axis=1)).reshape(-1, 1) / n_topics
    gamma = np.array(start)
    # Documents of like size go together, padded with words that occur 0 times.
    order = np.argsort(sizes, kind="stable")
    first = 0
    while first < order.size:
        stop = first + 1
        while stop < order.size and (stop + 1 - first) * sizes[order[stop]] * n_topics < BLOCK:
            stop += 1
        rows = order[first:stop]
        counts = np.zeros((rows.size, max(1, sizes[rows[-1]])))
        table = np.ones((*counts.shape, n_topics))
        for i, d in enumerate(rows):
            entries = slice(X.indptr[d], X.indptr[d + 1])
            counts[i, : sizes[d]] = X.data[entries]
            table[i, : sizes[d]] = beta[X.indices[entries]]
        gamma[rows] = _fixed_point(table, counts, alpha, gamma[rows], tol, max_sweeps)
        first = stop
    return gamma


def _fixed_point(table, counts, alpha, gamma, tol, max_sweeps):
    """gamma (B, K) of documents with word probabilities table (B, J, K), counts (B, J)."""
    todo = np.arange(gamma.shape[0])
    for _ in range(max_sweeps):
        old = gamma[todo]
        weights = digamma(old)
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        norm = np.matmul(table, weights[:, :, None])[:, :, 0]
        new = alpha + weights * np.matmul((counts / norm)[:, None, :], table)[:, 0, :]
        gamma[todo] = new
        going = np.abs(new - old).mean(axis=1) >= tol
        if not going.any():
            break
        # copying the rest is worth it only when it has become clearly smaller
        if going.sum() < 0.7 * todo.size:
            todo, table, counts = todo[going], table[going], counts[going]
    return gamma


def learned_prior(X, topics, alpha, *, n_rounds=100):
    """alpha (K,) that fits topics (K, V): the most probable for training documents X.

    Variational EM with the topics fixed: some sweeps over all documents, then alpha by the fixed
    point of Minka (2000, eq. 9), until it changes by less than a thousandth.

    Parameters
    ----------
    X : CSR of counts, training documents
    topics : (K, V), pseudo-counts or probabilities
    alpha : float, to begin with
    """
    beta = word_probabilities(topics)
    alpha, gamma = np.full(beta.shape[1], float(alpha)), None
    for _ in range(n_rounds):
        gamma = topic_weights(X, beta, alpha, 1e-3, 10, gamma)
        mean_log = (digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))).mean(axis=0)
        before = alpha
        for _ in range(50):
            alpha = _inverse_digamma(digamma(alpha.sum()) + mean_log)
        if np.abs(alpha / before - 1.0).max() < 1e-3:
            break
    return alpha


def _inverse_digamma(y, n_steps=5):
    """x with digamma(x) = y, by Newton's method [Minka 2000, app. C]."""
    x = np.where(y >= -2.22, np.exp(y) + 0.5, -1.0 / (y - digamma(1.0)))
    for _ in range(n_steps):
        x = x - (digamma(x) - y) / polygamma(1, x)
    return x


# ---------------------------------------------------------------------------- cores and clocks
@contextmanager
def cores(n):
    """Restrict this process, its new threads and BLAS to ``n`` of the cores it may use."""
    if not hasattr(os, "sched_setaffinity"):
        with threadpool_limits(n):
            yield
        return
    before = os.sched_getaffinity(0)
    # the last ones: other programs tend to sit on core 0
    os.sched_setaffinity(0, sorted(before)[-n:])
    try:
        with threadpool_limits(n):
            yield
    finally:
        os.sched_setaffinity(0, before)


def timed(function, *args, **kwargs):
    """(seconds, CPU seconds of this process, result) of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function(*args, **kwargs)
    return time.perf_counter() - wall, time.process_time() - cpu, result


# -------------------------------------------------------------------------------------- memory
def resident_bytes():
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def peak_bytes():
    """Highest memory of this process since :func:`reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("No VmHWM in /proc/self/status: memory is measured on Linux only.")


def reset_peak():
    """Let the peak start again from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


# -------------------------------------------------------------------------------------- output
def parser(description):
    """An argument parser that shows defaults, with ``--save`` of :func:`print_table`."""
    p = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    p.add_argument("--save", metavar="FILE", help="write the tables as JSON, too")
    return p


def add_data_arguments(arguments, corpus="newsgroups20"):
    """--data, --corpus, --split-seed, --documents."""
    arguments.add_argument(
        "--data", required=True, metavar="PATH", help="folder of <corpus>/counts.npz"
    )
    arguments.add_argument("--corpus", default=corpus)
    arguments.add_argument("--split-seed", type=int, default=0)
    arguments.add_argument(
        "--documents", type=int, default=None, help="train on so many documents only"
    )


def peers_of(chosen):
    """The libraries, beside scikit-learn, that the rows chosen on the command line need."""
    needed = {
        "gensim": "gensim",
        "tomotopy": "tomotopy",
        "mallet": "pyrmallet",
        "topica": "topica",
        "vowpalwabbit": "vowpalwabbit",
    }
    return sorted(needed[name] for name in {row.split("-")[0] for row in chosen} & set(needed))


RESULT = {}  # of this run: header and tables, for --save


def print_header(args, *libraries, beside=()):
    """Command line, versions, machine; the run ends here if one of ``libraries`` is missing.

    A run without those ``beside`` goes on, and leaves out what needs them.
    """
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"This run compares with {' and '.join(missing)}, which this Python does not have: "
            'pip install ".[bench]", or leave it out by the options that --help lists.'
        )
    names = ["skvt", "numpy", "scipy", "scikit-learn", "numba", *libraries, *beside]
    # where data and results lie on this machine is nobody's concern
    words = ["PATH" if a == getattr(args, "data", 0) else a for a in sys.argv[1:]]
    command = shlex.join([f"benchmarks/{Path(sys.argv[0]).name}", *words])
    RESULT.update({
        "command": f"python {command}".replace(f" --save {args.save}", ""),
        "versions": {"python": platform.python_version()} | {n: _version(n) for n in names},
        "processor": _processor(),
        "cores": f"{os.cpu_count()} in the machine, {_usable_cores()} for this process",
        "load": f"{os.getloadavg()[0]:.2f} on average at the start",
        "date": time.strftime("%Y-%m-%d"),
        "save": args.save,
        "tables": [],
    })  # fmt: skip
    for name in ("command", "versions", "processor", "cores", "load"):
        told = RESULT[name]
        told = ", ".join(map(" ".join, told.items())) if isinstance(told, dict) else told
        print(f"{name + ':':11}{told}")
    print(flush=True)


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = sys.modules.get(name)
        return getattr(module, "__version__", "not installed")


def _usable_cores():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _processor():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def spread(values, digits=4):
    """``mean +- sd`` (sample standard deviation); one value alone has none, NaN are a dash."""
    values = np.asarray(values, dtype=float)
    if np.isnan(values).all():
        return "-"
    if values.size == 1:
        return f"{values[0]:.{digits}f}"
    return f"{values.mean():.{digits}f} +- {values.std(ddof=1):.{digits}f}"


def print_table(title, headers, rows):
    """A plain table: the first column to the left, all others to the right; saved by ``--save``."""
    cells = [[str(cell) for cell in row] for row in [headers, *rows]]
    lines = [" | ".join(cell.strip() for cell in row) for row in cells]
    RESULT["tables"].append({"title": title, "lines": lines})
    if RESULT["save"]:
        told = {name: value for name, value in RESULT.items() if name != "save"}
        Path(RESULT["save"]).write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    print(title)
    for number, row in enumerate(cells):
        line = [row[0].ljust(widths[0])]
        line += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  " + "  ".join(line).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
    print(flush=True)


def progress(*words):
    """A line on standard error, so that a long run is seen to live."""
    print("...", *words, file=sys.stderr, flush=True)
