"""Clusters of mixed tables by pykamila and snob-factor, which are skipped if not installed.

pymcmm 0.3.1, a mixture with a Gaussian copula, is not among them: its compiled part is neither in
its wheel nor in its source distribution, which lacks ``mcmm/_fast_core.pyx``. In pure Python, three
iterations of its faster class and one prediction, with four clusters, took 39 CPU seconds for 1,000
rows of six columns.
"""

import contextlib
import importlib.util
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

RIVALS = ("pykamila", "snob-factor")  # on PyPI


def rivals(frame, logs, real, truth, seed):
    """(number, ARI, CPU seconds) by method; "crash" and NaN where the process of the fit ended.

    ``logs`` is the data frame with logarithms of amounts. ``real`` are the columns of numbers; the
    others are categories. pykamila is told the number of clusters.
    """
    methods = {
        "pykamila, told the number, logarithms": ("pykamila", kamila, logs, real, len(set(truth))),
        "snob-factor, as they are": ("snob", snob, frame, real),
        "snob-factor, logarithms": ("snob", snob, logs, real),
    }
    rows = {}
    for name, (library, *call) in methods.items():
        if importlib.util.find_spec(library) is None:
            continue
        # snob-factor 2026.4.5 ends the process on some tables: each fit has its own
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
            try:
                labels, cpu = pool.submit(_timed, *call, seed).result()
                rows[name] = len(set(labels)), adjusted_rand_score(truth, labels), cpu
            except BrokenProcessPool:
                rows[name] = "crash", np.nan, np.nan
    return rows


def _timed(method, *args):
    """Labels, and CPU seconds of this process."""
    began = time.process_time()
    return method(*args).tolist(), time.process_time() - began


def kamila(frame, real, number, seed, n_starts=2):
    """Best of several starts; numbers standardised, holes filled with means and modes."""
    from pykamila import KAMILA

    rest = frame.drop(columns=real)
    codes = rest.fillna(rest.mode().iloc[0]).apply(lambda column: column.factorize()[0])
    X = np.column_stack([StandardScaler().fit_transform(without_holes(frame[real])), codes])
    models = []
    for start in range(n_starts):
        model = KAMILA(number, con_init="kmeans++", n_init=1, random_state=seed * n_starts + start)
        # version 0.1.1 fails where the last cluster loses its rows
        with contextlib.suppress(ValueError):
            models.append(model.fit(X, np.arange(len(real))))
    return max(models, key=lambda model: model.obj_).labels_


def snob(frame, real, seed):
    """Classes by message length, the settings of its README; holes of numbers filled with means."""
    from snob import SNOBClassifier

    frame = frame.assign(**without_holes(frame[real]))
    kinds = {name: "real" if name in real else "multi-state" for name in frame}
    settings = {"cycles": 3, "steps": 40, "moves": 2, "tol": 0.01, "seed": seed + 1}
    model = SNOBClassifier(kinds, **settings).fit(frame)
    # version 2026.4.5 fails in predict() of the rows it has fitted
    items = model.fetch_assignments(len(frame)).set_index("item")
    return items["major_class"].sort_index().to_numpy()


def without_holes(numbers):
    """A data frame with means in its holes."""
    return numbers.fillna(numbers.mean())
