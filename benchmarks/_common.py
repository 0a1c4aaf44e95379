"""Functions that all benchmarks share: corpora, an evaluator of topics, cores, memory, tables.

The evaluator is written in NumPy alone. It takes topics (K, V) of any library, K topics over V
words, and scores all of them in the same way, so that it favours no library. In the comments, alpha
(K,) is the Dirichlet prior of a document's topics, gamma (n, K) has the Dirichlet parameters of the
topics of n documents, and beta (V, K) has the probabilities of words.
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

# Number of test documents by corpus.
TEST_DOCUMENTS = {"newsgroups20": 2000, "kos": 400, "ap": 300, "arxiv_daily": 2000}
# Maximum number of elements of a dense block of the evaluator, which then fits into the
# second-level cache.
MAX_BLOCK_SIZE = 100_000


# ------------------------------------------------------------------------------------ corpora
def read_corpora(args):
    """Return the training and the test documents of the corpus named on the command line.

    Both are CSR matrices of int32 counts with sorted indices. Rows are permuted, and training
    documents without words are left out. Print the sizes.
    """
    file = Path(args.data) / args.corpus / "counts.npz"
    if not file.exists():
        raise SystemExit(f"{file} does not exist; --data must hold <corpus>/counts.npz (CSR).")
    X = sp.csr_matrix(sp.load_npz(file)).astype(np.int32)
    X.sum_duplicates()
    rows = np.random.default_rng(args.split_seed).permutation(X.shape[0])
    n_test = TEST_DOCUMENTS.get(args.corpus, X.shape[0] // 10)
    test, train = X[rows[:n_test]], X[rows[n_test:]]
    has_words = np.diff(train.indptr) > 0
    train = train[has_words][: args.documents]
    print("training:", describe(train), "\ntest:    ", describe(test))
    return train, test


def describe(X):
    """Return a line with the sizes of a corpus."""
    n_tokens = int(X.sum())
    return (
        f"{X.shape[0]:,} documents, {X.shape[1]:,} words, {n_tokens:,} tokens "
        f"({n_tokens / X.shape[0]:.1f} a document), {X.nnz:,} entries"
    )


# ---------------------------------------------------------------------------------- evaluator
class DocumentCompletion:
    """Scorer of topics by their held-out log predictive probability, in nats per word.

    Each token of each test document is observed or held out with equal probability, by a fixed
    seed. With the topics fixed at ``E[beta]``, the observed tokens give q(theta), the Dirichlet
    posterior of a document's topic proportions, by mean-field updates

        phi_jk ~ beta_kj exp(digamma(gamma_k)),    gamma_k = alpha_k + sum_j n_j phi_jk

    from equal shares to a tight tolerance. The held-out tokens are then scored by
    ``log sum_k E[theta_k] E[beta_kj]``.

    Parameters
    ----------
    X : CSR matrix
        Counts of the test documents.
    alpha : float or ndarray of shape (K,)
        Prior of the proportions. It is the same for all libraries, unless a call passes another.
    seed : int
        Seed of the division of tokens.
    tol : float
        A document has converged when its gamma, in tokens, changes by less than this on average.
    """

    def __init__(self, X, alpha, *, seed=0, tol=1e-6, max_sweeps=2000):
        rng = np.random.default_rng(seed)
        self.alpha, self.tol, self.max_sweeps = alpha, tol, max_sweeps
        observed, held_out = X.copy(), X.copy()
        observed.data = rng.binomial(X.data, 0.5).astype(np.int32)
        held_out.data = X.data - observed.data
        for counts in (observed, held_out):
            counts.eliminate_zeros()
        self.observed, self.held_out = observed, held_out
        self.n_tokens = int(held_out.sum())

    def __call__(self, topics, alpha=None):
        """Return nats per held-out word for topics (K, V), as pseudo-counts or probabilities."""
        beta = word_probabilities(topics)
        alpha = self.alpha if alpha is None else alpha
        gamma = infer_topic_weights(self.observed, beta, alpha, self.tol, self.max_sweeps)
        theta = gamma / gamma.sum(axis=1, keepdims=True)
        log_probability = 0.0
        # Take 500 documents at a time. ``p`` has the probability of each of their entries.
        for start in range(0, theta.shape[0], 500):
            entries = self.held_out[start : start + 500].tocoo()
            p = np.einsum("jk,jk->j", theta[start + entries.row], beta[entries.col])
            log_probability += entries.data @ np.log(p)
        score = float(log_probability / self.n_tokens)
        if not np.isfinite(score):
            raise ValueError("The topics give some held-out word probability 0 or NaN.")
        return score


def word_probabilities(topics):
    """Return topics (K, V) as columns of probabilities, (V, K)."""
    beta = np.ascontiguousarray(np.asarray(topics, dtype=np.float64).T)
    return beta / beta.sum(axis=0)


def infer_topic_weights(X, beta, alpha, tol=1e-6, max_sweeps=2000, start=None):
    """Return gamma (n, K) of the documents of X, given word probabilities beta (V, K).

    Updates start from ``start``, or from equal shares. They end when the mean absolute change of a
    document's gamma is below ``tol``.
    """
    # ``sizes`` has the number of distinct words of each document.
    n_topics, sizes = beta.shape[1], np.diff(X.indptr)
    alpha = np.broadcast_to(np.asarray(alpha, dtype=np.float64), n_topics)
    if start is None:
        start = alpha + np.asarray(X.sum(axis=1)).reshape(-1, 1) / n_topics
    gamma = np.array(start)
    # Documents of similar sizes form a block. Shorter documents are padded with words that occur 0
    # times. ``order[first:stop]`` are the documents of a block, in ascending order of their sizes.
    order = np.argsort(sizes, kind="stable")
    first = 0
    while first < order.size:
        stop = first + 1
        while (
            stop < order.size
            and (stop + 1 - first) * sizes[order[stop]] * n_topics < MAX_BLOCK_SIZE
        ):
            stop += 1
        rows = order[first:stop]
        counts = np.zeros((rows.size, max(1, sizes[rows[-1]])))
        probabilities = np.ones((*counts.shape, n_topics))
        for i, d in enumerate(rows):
            entries = slice(X.indptr[d], X.indptr[d + 1])
            counts[i, : sizes[d]] = X.data[entries]
            probabilities[i, : sizes[d]] = beta[X.indices[entries]]
        gamma[rows] = _update_block(probabilities, counts, alpha, gamma[rows], tol, max_sweeps)
        first = stop
    return gamma


def _update_block(probabilities, counts, alpha, gamma, tol, max_sweeps):
    """Return gamma (B, K) of the B documents of a block at convergence.

    ``counts`` (B, J) has the counts of the words of each document, and ``probabilities`` (B, J, K)
    the probabilities of these words in each topic.
    """
    # The documents that are still updated.
    active = np.arange(gamma.shape[0])
    for _ in range(max_sweeps):
        old = gamma[active]
        weights = digamma(old)
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        norm = np.matmul(probabilities, weights[:, :, None])[:, :, 0]
        new = alpha + weights * np.matmul((counts / norm)[:, None, :], probabilities)[:, 0, :]
        gamma[active] = new
        changes = np.abs(new - old).mean(axis=1) >= tol
        if not changes.any():
            break
        # The arrays of the remaining documents are copied. This takes less time than it saves only
        # if clearly fewer documents remain.
        if changes.sum() < 0.7 * active.size:
            active, probabilities, counts = active[changes], probabilities[changes], counts[changes]
    return gamma


def learn_prior(X, topics, alpha, *, n_rounds=100):
    """Return the alpha (K,) that maximises the bound of training documents X, given topics (K, V).

    This is variational EM with fixed topics. Each round makes 10 sweeps over all documents, and
    then updates alpha by the fixed point of Minka (2000, eq. 9). Rounds end when alpha changes by
    less than a thousandth.

    Parameters
    ----------
    X : CSR matrix
        Counts of the training documents.
    topics : ndarray of shape (K, V)
        Pseudo-counts or probabilities.
    alpha : float
        Initial value.
    """
    beta = word_probabilities(topics)
    alpha, gamma = np.full(beta.shape[1], float(alpha)), None
    for _ in range(n_rounds):
        gamma = infer_topic_weights(X, beta, alpha, tol=1e-3, max_sweeps=10, start=gamma)
        # E[log theta] of the proportions theta, averaged over documents.
        mean_log = (digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))).mean(axis=0)
        before = alpha
        for _ in range(50):
            alpha = _inverse_digamma(digamma(alpha.sum()) + mean_log)
        if np.abs(alpha / before - 1.0).max() < 1e-3:
            break
    return alpha


def _inverse_digamma(y, n_steps=5):
    """Return x with digamma(x) = y, by Newton's method [Minka 2000, app. C]."""
    x = np.where(y >= -2.22, np.exp(y) + 0.5, -1.0 / (y - digamma(1.0)))
    for _ in range(n_steps):
        x = x - (digamma(x) - y) / polygamma(1, x)
    return x


# ---------------------------------------------------------------------------- cores and clocks
@contextmanager
def limited_to_cores(n):
    """Restrict this process, its new threads and BLAS to ``n`` of the cores it may use."""
    if not hasattr(os, "sched_setaffinity"):
        with threadpool_limits(n):
            yield
        return
    usable = os.sched_getaffinity(0)
    # Take the last cores, because other programs tend to use core 0.
    os.sched_setaffinity(0, sorted(usable)[-n:])
    try:
        with threadpool_limits(n):
            yield
    finally:
        os.sched_setaffinity(0, usable)


def timed(function, *args, **kwargs):
    """Return seconds, CPU seconds of this process, and the result of a call of ``function``."""
    start, cpu_start = time.perf_counter(), time.process_time()
    result = function(*args, **kwargs)
    return time.perf_counter() - start, time.process_time() - cpu_start, result


# -------------------------------------------------------------------------------------- memory
def resident_bytes():
    """Return the memory of this process now, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def peak_bytes():
    """Return the highest memory of this process since :func:`reset_peak`, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("No VmHWM in /proc/self/status: memory is measured on Linux only.")


def reset_peak():
    """Reset the peak of memory to the memory of this process now."""
    Path("/proc/self/clear_refs").write_text("5")


# -------------------------------------------------------------------------------------- output
def parser(description):
    """Return an argument parser that shows defaults and has ``--save``, see :func:`print_table`."""
    p = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    p.add_argument("--save", metavar="FILE", help="write the tables as JSON, too")
    return p


def add_data_arguments(arguments, corpus="newsgroups20"):
    """Add the arguments of :func:`read_corpora`."""
    arguments.add_argument(
        "--data", required=True, metavar="PATH", help="folder of <corpus>/counts.npz"
    )
    arguments.add_argument("--corpus", default=corpus)
    arguments.add_argument("--split-seed", type=int, default=0)
    arguments.add_argument(
        "--documents", type=int, default=None, help="train on so many documents only"
    )


def find_required_packages(chosen):
    """Return the packages that the libraries chosen on the command line need.

    A library is chosen by its name, or by its name and a variant after a hyphen.
    """
    packages = {
        "gensim": "gensim",
        "tomotopy": "tomotopy",
        "mallet": "pyrmallet",
        "topica": "topica",
        "vowpalwabbit": "vowpalwabbit",
    }
    names = {choice.split("-")[0] for choice in chosen}
    return sorted(packages[name] for name in names & set(packages))


# The header and the tables of this run, which ``--save`` writes to a file.
RESULT = {}


def print_header(args, *libraries, optional=()):
    """Print the command line, versions and machine; end the run if a library is missing.

    A run continues without ``optional`` libraries, and leaves out the comparisons that need them.
    """
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"This run compares with {' and '.join(missing)}, which this Python does not have: "
            'pip install ".[bench]", or leave it out by the options that --help lists.'
        )
    names = ["skvt", "numpy", "scipy", "scikit-learn", "numba", *libraries, *optional]
    # The command that is shown has no paths of this machine: PATH replaces the folder of the data,
    # and ``--save`` is removed.
    words = ["PATH" if word == getattr(args, "data", 0) else word for word in sys.argv[1:]]
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
        value = RESULT[name]
        text = ", ".join(map(" ".join, value.items())) if isinstance(value, dict) else value
        print(f"{name + ':':11}{text}")
    print(flush=True)


def _version(name):
    """Return the version of a package, or "not installed"."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        # A module that is imported from a folder is no installed package.
        module = sys.modules.get(name)
        return getattr(module, "__version__", "not installed")


def _usable_cores():
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _processor():
    """Return the name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def format_mean(values, digits=4):
    """Return the text "mean +- standard deviation" of values.

    The deviation is of a sample. A single value has no deviation, and the text is "-" if all values
    are NaN.
    """
    values = np.asarray(values, dtype=float)
    if np.isnan(values).all():
        return "-"
    if values.size == 1:
        return f"{values[0]:.{digits}f}"
    return f"{values.mean():.{digits}f} +- {values.std(ddof=1):.{digits}f}"


def print_table(title, headers, rows):
    """Print a table whose first column is left-aligned; write all tables so far by ``--save``."""
    cells = [[str(cell) for cell in row] for row in [headers, *rows]]
    lines = [" | ".join(cell.strip() for cell in row) for row in cells]
    RESULT["tables"].append({"title": title, "lines": lines})
    if RESULT["save"]:
        result = {name: value for name, value in RESULT.items() if name != "save"}
        Path(RESULT["save"]).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    print(title)
    for number, row in enumerate(cells):
        line = [row[0].ljust(widths[0])]
        line += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  " + "  ".join(line).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
    print(flush=True)


def print_progress(*words):
    """Print a line to standard error, which shows the progress of a long run."""
    print("...", *words, file=sys.stderr, flush=True)
