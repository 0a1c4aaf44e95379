"""Peak memory of fits to sparse tables, above the memory of the data.

Rows of a table have a few entries each, half of them in columns of their cluster. Each fit runs in
a separate process, after a small fit that loads all code. "above" is the peak during the fit minus
the memory before. It is compared with the bytes of the rows in CSR format, and with the bytes of
the statistics, one number for each component and column. The measurements work on Linux only.
"""

import json
import subprocess
import sys

import numpy as np
import scipy.sparse as sp
from _common import (
    parser,
    peak_bytes,
    print_header,
    print_progress,
    print_table,
    reset_peak,
    resident_bytes,
    timed,
)

from skvt import MemoizedDPMixture, StructuredBernoulliMixture
from skvt.components import Bernoulli, Multinomial, NegativeBinomial, Poisson

CLUSTERS = 8
COMPONENTS = {c.__name__: c for c in (Bernoulli, Poisson, Multinomial, NegativeBinomial)}
MODELS = (*COMPONENTS, "StructuredBernoulliMixture")


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--rows", type=int, default=1_000_000)
    p.add_argument("--columns", type=int, default=10_000)
    p.add_argument("--entries", type=int, default=20, help="of a row")
    p.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    p.add_argument("--quick", action="store_true", help="20,000 rows")
    p.add_argument("--child", metavar="MODEL", default=None, help="(used by the script itself)")
    args = p.parse_args()
    if args.quick:
        args.rows = min(args.rows, 20_000)
    return args


def draw(n, n_columns, n_entries, *, binary):
    """Draw sparse rows of clusters, in CSR format."""
    rng = np.random.default_rng(0)
    # Each cluster has a range of columns of this width.
    y, width = rng.integers(CLUSTERS, size=n), n_columns // CLUSTERS
    cluster_columns = rng.integers(width, size=(n, n_entries)) + width * y[:, None]
    is_of_cluster = rng.random(cluster_columns.shape) < 0.5
    any_columns = rng.integers(n_columns, size=cluster_columns.shape)
    columns = np.where(is_of_cluster, cluster_columns, any_columns)
    values = np.ones(columns.size) if binary else 1.0 + rng.poisson(0.5, columns.size)
    starts = np.arange(0, columns.size + 1, n_entries, dtype=np.int32)
    X = sp.csr_array((values, columns.ravel().astype(np.int32), starts), (n, n_columns))
    X.sum_duplicates()
    if binary:
        X.data[:] = 1.0
    return X


def estimator(name):
    """Return the estimator of a model."""
    settings = {"max_iter": 3, "random_state": 0}
    if name not in COMPONENTS:
        return StructuredBernoulliMixture(CLUSTERS, learning_method="structured", **settings)
    block = [("counts", COMPONENTS[name](), slice(None))]
    return MemoizedDPMixture(CLUSTERS, components=block, moves=(), **settings)


def child(args):
    """Print the measures of one fit as JSON: bytes of the rows, bytes above, and CPU seconds."""
    binary = args.child in ("Bernoulli", "StructuredBernoulliMixture")
    # A small fit compiles and loads all code.
    estimator(args.child).fit(draw(300, 64, args.entries, binary=binary))
    X = draw(args.rows, args.columns, args.entries, binary=binary)
    before = resident_bytes()
    reset_peak()
    _, cpu, _ = timed(estimator(args.child).fit, X)
    row_bytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    print(json.dumps([row_bytes, peak_bytes() - before, cpu]))


def main():
    args = arguments()
    if args.child:
        return child(args)
    print_header(args)
    table = []
    for name in args.models:
        command = [sys.executable, *sys.argv, "--child", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows, above, cpu = json.loads(done.stdout.splitlines()[-1])
        statistics = 8 * CLUSTERS * args.columns
        table.append([
            name, f"{rows / 1e6:.0f}", f"{statistics / 1e6:.1f}", f"{above / 1e6:.0f}",
            f"{(above - statistics) / rows:.2f}", f"{cpu:.1f}",
        ])  # fmt: skip
        print_progress(*table[-1])
    print_table(
        f"{args.rows:,} x {args.columns:,}, {args.entries} entries a row",
        ["model", "rows MB", "K x D MB", "above MB", "(above - K x D) / rows", "CPU s"],
        table,
    )


if __name__ == "__main__":
    main()
