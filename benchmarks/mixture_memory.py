"""Memory of a mixture's fit to rows that stay on disk.

Writes rows of a known mixture to a file in a temporary folder, chunk by chunk, and fits
``MemoizedDPGMM`` to the memory-mapped file in a fresh process. Counted is anonymous memory, which
nothing but the process itself can hold: RssAnon of /proc/self/status, read every 5 ms by a thread
while the fit runs, and its highest value above what it was before, with all code imported and
compiled. Pages of the file are not counted (the system takes them back when it needs room); the
peak of all resident pages is printed beside. Linux only.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
from _common import parser, print_header, print_table, progress

from skvt import MemoizedDPGMM

ROWS_AT_ONCE = 100_000


def arguments():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--rows", type=int, default=10_000_000)
    p.add_argument("--features", type=int, default=10)
    p.add_argument("--clusters", type=int, default=10, help="of the data")
    p.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    p.add_argument("--passes", type=int, default=8)
    p.add_argument("--n-jobs", type=int, default=2)
    p.add_argument("--limit", type=float, default=500.0, help="MB above the imports aimed at")
    p.add_argument("--folder", default=None, help="where to put the file; the system's by default")
    p.add_argument("--quick", action="store_true", help="a million rows")
    p.add_argument("--child", metavar="FILE", default=None, help="(used by the script itself)")
    args = p.parse_args()
    if args.quick:
        args.rows = min(args.rows, 1_000_000)
    return args


def write_rows(file, args, dtype):
    """Rows of a mixture of Gaussians, not more than a chunk of them in memory."""
    rng = np.random.default_rng(0)
    means = rng.normal(scale=4.0, size=(args.clusters, args.features))
    factors = rng.normal(size=(args.clusters, args.features, args.features)) / args.features**0.5
    X = np.lib.format.open_memmap(file, "w+", dtype, (args.rows, args.features))
    for start in range(0, args.rows, ROWS_AT_ONCE):
        n = min(ROWS_AT_ONCE, args.rows - start)
        labels = rng.integers(args.clusters, size=n)
        rows = np.einsum("nd,nde->ne", rng.normal(size=(n, args.features)), factors[labels])
        X[start : start + n] = rows + means[labels]
    X.flush()


# ------------------------------------------------------------------------------------ the child
def status(name):
    """Bytes of a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"No {name} in /proc/self/status: memory is measured on Linux only.")


class Watch:
    """The highest RssAnon, and when it was reached, while a ``with`` block runs."""

    def __enter__(self):
        self.peak, self._stop = 0, Event()
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self):
        while not self._stop.wait(0.005):
            self.peak = max(self.peak, status("RssAnon"))

    def __exit__(self, *exc_info):
        self._stop.set()
        self._thread.join()


def measure(args):
    """Fit the file's rows; a line of JSON."""
    X = np.load(args.child, mmap_mode="r")
    # moves kept, so that everything is compiled and loaded before memory counts
    MemoizedDPGMM(max_iter=3, n_jobs=args.n_jobs, random_state=0).fit(np.array(X[:5000]))
    before, started = status("RssAnon"), time.perf_counter()
    with Watch() as watch:
        model = MemoizedDPGMM(max_iter=args.passes, n_jobs=args.n_jobs, random_state=0).fit(X)
    answer = {
        "before": before, "peak": watch.peak, "resident": status("VmHWM"),
        "seconds": time.perf_counter() - started, "n_components": int(model.n_components_),
        "n_iter": int(model.n_iter_),
    }  # fmt: skip
    print(json.dumps(answer))


def main():
    args = arguments()
    if args.child:
        measure(args)
        return
    print_header()
    table, verdicts = [], []
    for dtype in args.dtypes:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            file = f"{folder}/rows.npy"
            write_rows(file, args, dtype)
            size = Path(file).stat().st_size / 1e6
            progress(f"wrote {size:,.0f} MB")
            done = subprocess.run(
                [sys.executable, *sys.argv, "--child", file],
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
        result = json.loads(done.stdout.splitlines()[-1])
        above = (result["peak"] - result["before"]) / 1e6
        table.append([
            dtype, f"{size:,.0f}", f"{result['before'] / 1e6:.0f}", f"{above:.0f}",
            f"{result['resident'] / 1e6:,.0f}", result["n_components"], result["n_iter"],
            f"{result['seconds']:.0f}",
        ])  # fmt: skip
        verdict = "below" if above < args.limit else "ABOVE"
        verdicts.append(f"{dtype}: {above:.0f} MB, {verdict} {args.limit:g} MB")
    print_table(
        f"{args.rows:,} rows x {args.features} columns in a memory-mapped file (MB; anonymous: "
        "RssAnon; resident: VmHWM, pages of the file included)",
        ["", "file", "before", "anonymous above it", "resident", "K", "passes", "seconds"],
        table,
    )
    print("\n".join(verdicts))


if __name__ == "__main__":
    main()
