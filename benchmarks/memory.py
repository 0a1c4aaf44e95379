"""Peak memory of fits to sparse tables, above the data.

Rows of a table have a few entries each, half of them in columns of their cluster. Each fit runs in
a process of its own, after a small one has loaded all code; "above" is the peak during the fit over
what was resident before, beside the bytes of the rows (CSR) and of the statistics, one number for
each component and column. Linux only.
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
    rng = np.random.default_rng(0)
    y, width = rng.integers(CLUSTERS, size=n), n_columns // CLUSTERS
    own = rng.integers(width, size=(n, n_entries)) + width * y[:, None]
    places = np.where(rng.random(own.shape) < 0.5, own, rng.integers(n_columns, size=own.shape))
    values = np.ones(own.size) if binary else 1.0 + rng.poisson(0.5, own.size)
    starts = np.arange(0, own.size + 1, n_entries, dtype=np.int32)
    X = sp.csr_array((values, places.ravel().astype(np.int32), starts), (n, n_columns))
    X.sum_duplicates()
    if binary:
        X.data[:] = 1.0
    return X


def estimator(name):
    settings = {"max_iter": 3, "random_state": 0}
    if name not in COMPONENTS:
        return StructuredBernoulliMixture(CLUSTERS, learning_method="structured", **settings)
    block = [("counts", COMPONENTS[name](), slice(None))]
    return MemoizedDPMixture(CLUSTERS, components=block, moves=(), **settings)


def child(args):
    """Measures of one fit, as JSON."""
    binary = args.child in ("Bernoulli", "StructuredBernoulliMixture")
    estimator(args.child).fit(draw(300, 64, args.entries, binary=binary))
    X = draw(args.rows, args.columns, args.entries, binary=binary)
    before = resident_bytes()
    reset_peak()
    _, seconds, _ = timed(estimator(args.child).fit, X)
    rows = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    print(json.dumps([rows, peak_bytes() - before, seconds]))


def main():
    args = arguments()
    if args.child:
        return child(args)
    print_header(args)
    table = []
    for name in args.models:
        command = [sys.executable, *sys.argv, "--child", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows, above, seconds = json.loads(done.stdout.splitlines()[-1])
        statistics = 8 * CLUSTERS * args.columns
        table.append([
            name, f"{rows / 1e6:.0f}", f"{statistics / 1e6:.1f}", f"{above / 1e6:.0f}",
            f"{(above - statistics) / rows:.2f}", f"{seconds:.1f}",
        ])  # fmt: skip
        print_progress(*table[-1])
    print_table(
        f"{args.rows:,} x {args.columns:,}, {args.entries} entries a row",
        ["model", "rows MB", "K x D MB", "above MB", "(above - K x D) / rows", "CPU s"],
        table,
    )


if __name__ == "__main__":
    main()
