"""How many functions does the first fit in a new installation compile, and how long does it take?

For each estimator, two new processes on one core fit the same small table with default parameters.
The first process finds an empty cache of numba. Its results are the CPU seconds in the compiler and
the number of compiled functions, which includes functions of numba's library that they call. The
second process reads the cache. Its results are the CPU seconds from the first import to the end of
``fit``, and the parts of them for the imports of scikit-learn and of skvt. Fits make one pass,
because the number of passes has no influence on what is compiled.
"""

import json
import os
import subprocess
import sys
import tempfile

# The kind of rows that each estimator fits.
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
    """Fit the estimator with this name in this process, and print the measures as JSON."""
    from time import process_time

    start = process_time()
    import numpy as np
    import sklearn.base  # noqa: F401

    sklearn_import, skvt_start = process_time() - start, process_time()
    import skvt

    skvt_import = process_time() - skvt_start
    compiled = register_listener()
    rng = np.random.default_rng(0)
    X = {
        "counts": rng.poisson(0.5, (60, 30)),
        "numbers": rng.standard_normal((60, 3)),
        "binary": rng.random((60, 8)) < 0.5,
    }
    numbers = np.where(rng.random((60, 3)) < 0.1, None, X["numbers"].astype(object))
    X["table"] = np.column_stack([numbers, rng.choice(list("abc"), 60), rng.poisson(2.0, 60)])
    X = X[ESTIMATORS[name]]
    estimator = getattr(skvt, name)(random_state=0)
    if estimator.get_params().get("max_iter") is not None:
        estimator.set_params(max_iter=1)
    estimator.fit(X if X.dtype == object else X.astype(np.float64))
    seconds = process_time() - start
    print(json.dumps([sklearn_import, skvt_import, compiled.number, compiled.seconds, seconds]))


def register_listener():
    """Return a listener of numba that counts compiled functions and the CPU seconds that they take.

    While a function is compiled, functions that it calls may be compiled, too. Seconds are only
    counted for the outermost function.
    """
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
    """Return what :func:`fit` prints in a new process on one core, with the cache in ``folder``."""
    env = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONWARNINGS": "ignore"}
    env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def restrict_to_one_core():
        """Restrict the new process to one core, if the system can."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    command = [sys.executable, __file__, "process", name]
    done = subprocess.run(
        command,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=restrict_to_one_core,
    )
    return json.loads(done.stdout)


def main():
    from _common import parser, print_header, print_progress, print_table

    p = parser(__doc__.splitlines()[0])
    args = p.parse_args()
    print_header(args)
    rows = []
    for name in ESTIMATORS:
        # Each estimator has a new cache, so that it does not profit from the estimators before it.
        with tempfile.TemporaryDirectory() as folder:
            _, _, number, seconds, cold = measured(name, folder)
            sklearn_import, skvt_import, again, _, warm = measured(name, folder)
        print_progress(f"{name}: {seconds:.1f} s")
        rows.append([
            name, number, f"{seconds:.2f}", f"{cold:.2f}", again, f"{warm:.2f}",
            f"{sklearn_import:.2f}", f"{skvt_import:.2f}",
        ])  # fmt: skip
    print_table(
        "First fit, CPU seconds on one core",
        ["estimator", "compiled", "compiler", "process", "compiled again", "second process",
         "import sklearn", "import skvt"],
        rows,
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["process"]:
        # Nothing else may be imported before.
        fit(*sys.argv[2:])
    else:
        main()
