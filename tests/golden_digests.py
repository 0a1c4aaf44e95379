"""Digests of many small fits: whether a change that is to change no result changes none.

    python tests/golden_digests.py record FILE [WORD ...]
    python tests/golden_digests.py check FILE [WORD ...]

``record`` writes digests of the statistics, the history without seconds, the moves, each published
attribute and the answers about rows, for each estimator of the registry on dense rows, sparse
rows and Dask chunks: fitted, fitted again from a warm start, fitted to a stream, and interrupted,
saved and resumed; and for temperatures and tables. ``check`` makes the same fits and names what
differs; it ends with status 1 if anything does. With words, only cases whose names contain all of
them are fitted ("check FILE MemoizedHDP dask"), and of a file that there is only these recorded.

Record from the commit before a change and check after it, on the same machine and with the same
packages, since bits differ between processors. It takes about a minute of CPU. After changes in
skvt/_compiled delete the files *.nbi below skvt: numba compiles a function again only where its own
file has changed, not where the parts have that it is made of.
"""

import os

os.environ |= {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}

import hashlib
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import _mutated
import dask.array as da
import llvmlite.binding
import numpy as np
import pandas as pd
import scipy.sparse as sp
from estimators._registry import ENTRIES, published, without_time

from skvt import load

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "dask")


# --------------------------------------------------------------------------------------- the fits
def fitted(estimator, X, params):
    """A fit."""
    return estimator.fit(X)


def fitted_again(estimator, X, params):
    """A fit that begins where another ended."""
    return estimator.set_params(warm_start=True).fit(X).fit(X)


def streamed(estimator, X, params):
    """Three calls of partial_fit."""
    estimator.set_params(**params)
    for part in range(3):
        estimator.partial_fit(X[part * 14 : (part + 1) * 14])
    return estimator


def resumed(estimator, X, params):
    """A fit that was interrupted after two passes, saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.skvt"
        estimator.set_callbacks(_mutated.Interrupted(path)).fit(X)
        return load(path).resume(X)


FITS = (fitted, fitted_again, streamed, resumed)
FORMS = {
    "dense": lambda X: X,
    "sparse": sp.csr_array,
    "dask": lambda X: da.from_array(X, chunks=(20, -1)),
}
SEEDS = {"dense": (0, 1), "sparse": (1,), "dask": (0,)}


def cases():
    """(name, entry or None, estimator, rows, fit, parameters of a stream) of all fits."""
    for entry in ENTRIES:
        for form, as_form in FORMS.items():
            if form == "sparse" and not entry.takes.sparse:
                continue
            for seed in SEEDS[form]:
                X = entry.data(seed)
                for fit in FITS:
                    name = f"{entry} {form} {seed} {fit.__name__}"
                    make = entry.make(random_state=seed)
                    yield name, entry, make, as_form(X), fit, entry.stream(len(X))
        if not entry.alike:
            X = entry.data()
            yield f"{entry} n_jobs", entry, entry.make(n_jobs=2), X, fitted, {}
    for name, estimator, X in _mutated.sources():
        for fit in (fitted, resumed):
            yield f"{name} of files {fit.__name__}", None, estimator, X, fit, {}


# ------------------------------------------------------------------------------------ the digests
def fill(digest, value):
    """Add a value to a digest."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            digest.update(repr(key).encode())
            fill(digest, value[key])
    elif isinstance(value, list | tuple):
        digest.update(b"[")
        for part in value:
            fill(digest, part)
    elif isinstance(value, pd.DataFrame | pd.Series):
        fill(digest, value.reset_index().to_dict("list"))
    elif sp.issparse(value):
        fill(digest, value.toarray())
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, np.ndarray):
        fill(digest, value.tolist())
    else:
        digest.update(re.sub(r" at 0x\w+", "", repr(value)).encode())


def digest_of(value):
    """A few letters that stand for a value."""
    digest = hashlib.blake2b(digest_size=8)
    fill(digest, value)
    return digest.hexdigest()


def numbers_of(arrays):
    """All numbers of arrays that may stand in tuples, however they are grouped."""
    if isinstance(arrays, list | tuple):
        return np.concatenate([numbers_of(part) for part in arrays])
    return np.ravel(arrays)


def outcome(entry, estimator, X, fit, params):
    """Digests of what a fit gives, or the error that it ends in."""
    try:
        estimator = fit(estimator, X, params)
    except (ValueError, TypeError, NotImplementedError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    shown = without_time(published(estimator))
    statistics = estimator._fitted.stats.as_stats().arrays
    parts = {
        "statistics": numbers_of(statistics),
        "history": shown.pop("history_"),
        "moves": shown.pop("move_log_", None),
    }
    if entry is not None:
        parts["answers"] = [np.asarray(answer) for answer in entry.answers(estimator, X)]
    return {name: digest_of(part) for name, part in (parts | shown).items()}


def outcomes(words):
    """The outcome of each case."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    return {name: outcome(*case) for name, *case in cases() if all(word in name for word in words)}


def machine():
    """What bits may depend on."""
    return [llvmlite.binding.get_host_cpu_name(), *map(version, PACKAGES)]


def main(action, file, *words):
    """Record or check; returns the number of cases that differ."""
    if action == "record":
        before = json.loads(Path(file).read_text())["outcomes"] if words else {}
        content = {"machine": machine(), "outcomes": before | outcomes(words)}
        Path(file).write_text(json.dumps(content, indent=1) + "\n")
        return 0
    before = json.loads(Path(file).read_text())
    if before["machine"] != machine():
        raise SystemExit(f"{file} was recorded on {before['machine']}, this is {machine()}.")
    found = outcomes(words)
    expected = {
        name: old for name, old in before["outcomes"].items() if all(word in name for word in words)
    }
    n_different = 0
    for name, old in expected.items():
        new = found.get(name, {})
        # New attributes change no result.
        parts = [part for part in old if old[part] != new.get(part)]
        if parts:
            n_different += 1
            print(f"{name}: {', '.join(parts)}", new.get("error", ""))
    print(f"{len(found)} cases, {n_different} differ")
    return n_different


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) > 0)
