"""The first fit in a new installation: what is compiled, and how long does it take?

For each estimator two fresh processes on one core fit the same small table at the defaults. The
first finds numba's cache empty: its CPU seconds in the compiler, and the functions compiled, with
those of numba's own library that they call. The second reads the cache: CPU seconds from the first
import to the end of ``fit``, of which the imports of scikit-learn and of skvt. The number of passes
is one where it has a default; what is compiled does not depend on it.
"""

import json
import os
import subprocess
import sys
import tempfile

ESTIMATORS = {
    "TemperedLDA": "counts",
    "StructuredLDA": "counts",
    "MemoizedHDP": "counts",
    "MemoizedDPGMM": "numbers",
    "MemoizedDPMixture": "table",
    "StructuredBernoulliMixture": "binary",
    "StructuredGaPNMF": "counts",
    "AnnealedFactorialMixture": "numbers",
    "CAVIGaussianMixture": "numbers",
}


# ------------------------------------------------------------------------------------- one process
def fit(name):
    """Fit in this process; prints a line of JSON."""
    from time import process_time

    start = process_time()
    import numpy as np
    import sklearn.base  # noqa: F401

    of_sklearn, start_of_skvt = process_time() - start, process_time()
    import skvt

    of_skvt = process_time() - start_of_skvt
    compiled = listener()
    rng = np.random.default_rng(0)
    X = {
        "counts": rng.poisson(0.5, (60, 30)),
        "numbers": rng.standard_normal((60, 3)),
        "binary": rng.random((60, 8)) < 0.5,
    }
    holes = np.where(rng.random((60, 3)) < 0.1, None, X["numbers"].astype(object))
    X["table"] = np.column_stack([holes, rng.choice(list("abc"), 60), rng.poisson(2.0, 60)])
    X = X[ESTIMATORS[name]]
    estimator = getattr(skvt, name)(random_state=0)
    if estimator.get_params().get("max_iter") is not None:
        estimator.set_params(max_iter=1)
    estimator.fit(X if X.dtype == object else X.astype(np.float64))
    until_fitted = process_time() - start
    print(json.dumps([of_sklearn, of_skvt, compiled.number, compiled.seconds, until_fitted]))


def listener():
    """One of numba's: number of compiled functions, CPU seconds in the outermost of them."""
    from time import process_time

    from numba.core import event

    class Compilations(event.Listener):
        number = depth = 0
        seconds = 0.0

        def on_start(self, event):
            self.number += 1
            self.depth += 1
            if self.depth == 1:
                self.start = process_time()

        def on_end(self, event):
            self.depth -= 1
            if self.depth == 0:
                self.seconds += process_time() - self.start

    compiled = Compilations()
    event.register("numba:compile", compiled)
    return compiled


# ------------------------------------------------------------------------------------------- table
def measured(name, folder):
    """What :func:`fit` prints in a process of its own on one core, with this cache."""
    env = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONWARNINGS": "ignore"}
    env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def on_one_core():
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    command = [sys.executable, __file__, "process", name]
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=on_one_core
    )
    return json.loads(done.stdout)


def main():
    from _common import parser, print_header, print_progress, print_table

    p = parser(__doc__.splitlines()[0])
    args = p.parse_args()
    print_header(args)
    rows = []
    for name in ESTIMATORS:
        # a cache of its own, so that none profits from the one before
        with tempfile.TemporaryDirectory() as folder:
            _, _, number, seconds, cold = measured(name, folder)
            of_sklearn, of_skvt, again, _, warm = measured(name, folder)
        print_progress(f"{name}: {seconds:.1f} s")
        rows.append([
            name, number, f"{seconds:.2f}", f"{cold:.2f}", again, f"{warm:.2f}",
            f"{of_sklearn:.2f}", f"{of_skvt:.2f}",
        ])  # fmt: skip
    print_table(
        "First fit, CPU seconds on one core",
        ["estimator", "compiled", "compiler", "process", "compiled again", "second process",
         "import sklearn", "import skvt"],
        rows,
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["process"]:
        fit(*sys.argv[2:])  # before anything else is imported
    else:
        main()
