"""Clusters of mixed tables by pykamila and snob-factor, which are skipped if not installed.

pymcmm 0.3.1, a mixture with a Gaussian copula, is left out. Neither its wheel nor its source
distribution has its compiled part: the source lacks ``mcmm/_fast_core.pyx``. In pure Python, three
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

# Names of the packages on PyPI.
RIVALS = ("pykamila", "snob-factor")


def rivals(frame, logs, real, truth, seed):
    """Return the number of clusters, the adjusted Rand index and CPU seconds, by method.

    If the process of a fit crashes, the number is "crash", and the index and the time are NaN.
    ``frame`` is the table, and ``logs`` the table with logarithms of amounts. ``real`` has the
    names of the columns of numbers; all other columns are categories. ``truth`` are the true
    clusters; pykamila is told their number.
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
        # snob-factor 2026.4.5 crashes on some tables, so that each fit has a separate process.
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
            try:
                labels, cpu = pool.submit(_timed, *call, seed).result()
                rows[name] = len(set(labels)), adjusted_rand_score(truth, labels), cpu
            except BrokenProcessPool:
                rows[name] = "crash", np.nan, np.nan
    return rows


def _timed(method, *args):
    """Return the labels by a method, and the CPU seconds of this process."""
    start = time.process_time()
    return method(*args).tolist(), time.process_time() - start


def kamila(frame, real, number, seed, n_starts=2):
    """Return labels by the best of several starts of KAMILA with this number of clusters.

    Numbers are standardised. Means and modes replace missing values.
    """
    from pykamila import KAMILA

    categories = frame.drop(columns=real)
    filled = categories.fillna(categories.mode().iloc[0])
    codes = filled.apply(lambda column: column.factorize()[0])
    X = np.column_stack([StandardScaler().fit_transform(fill_with_means(frame[real])), codes])
    models = []
    for start in range(n_starts):
        model = KAMILA(number, con_init="kmeans++", n_init=1, random_state=seed * n_starts + start)
        # Version 0.1.1 raises ValueError if the last cluster loses its rows.
        with contextlib.suppress(ValueError):
            models.append(model.fit(X, np.arange(len(real))))
    return max(models, key=lambda model: model.obj_).labels_


def snob(frame, real, seed):
    """Return classes by minimum message length, with the settings of the README of snob-factor.

    Means replace missing numbers.
    """
    from snob import SNOBClassifier

    frame = frame.assign(**fill_with_means(frame[real]))
    kinds = {name: "real" if name in real else "multi-state" for name in frame}
    settings = {"cycles": 3, "steps": 40, "moves": 2, "tol": 0.01, "seed": seed + 1}
    model = SNOBClassifier(kinds, **settings).fit(frame)
    # In version 2026.4.5, predict() fails for the rows of the fit.
    items = model.fetch_assignments(len(frame)).set_index("item")
    return items["major_class"].sort_index().to_numpy()


def fill_with_means(numbers):
    """Return a data frame with means in place of missing values."""
    return numbers.fillna(numbers.mean())
