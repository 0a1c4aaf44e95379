"""Mutated files of every estimator, and questions to the estimators that they still give.

    NUMBA_BOUNDSCHECK=1 python tests/_mutated.py FOLDER FIRST NUMBER

loads ``NUMBER`` mutated files, those of the seeds from ``FIRST`` on, of the fits that the folder
has (:func:`write_sources`). Memory is limited in proportion to the file, and so is time. Each fault
is printed as a line of JSON, and the last line has the number of files.
"""

import inspect
import io
import json
import os
import random
import resource
import signal
import sys
import traceback
import warnings
import zipfile
from collections import Counter
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd

# Load may take TIMES the size of the file and MORE bytes of memory.
TIMES, MORE = 10, 2**24
# Questions may take much memory, because loops may be compiled for other types.
MAX_FOR_QUESTIONS = 2**32
SECONDS = 20


# -------------------------------------------------------------------------------------- the files
def table():
    """A table with columns of every kind, some of which no component describes."""
    rng = np.random.default_rng(0)
    cluster = rng.integers(3, size=40)
    columns = {
        "left out": rng.normal(size=40), "x": rng.normal(3.0 * cluster), "y": rng.normal(size=40),
        "z": rng.normal(2.0 * cluster), "w": rng.normal(size=40),
        "word": rng.choice(["a", "b", "c"], 40), "flag": rng.random(40) < 0.3,
        "count": rng.poisson(1.0 + cluster), "n1": rng.poisson(3.0, 40),
        "n2": rng.poisson(3.0, 40),
        "grade": pd.Categorical(rng.integers(4, size=40), ordered=True),
        "left out, too": rng.normal(size=40),
    }  # fmt: skip
    frame = pd.DataFrame(columns)
    frame.loc[3:6, "x"] = np.nan
    frame.loc[20:22, "word"] = None
    return frame


def sources():
    """(name, estimator, rows) of the fits whose files are mutated."""
    from estimators._registry import ENTRIES, counts, rows, takes

    from skvt import MemoizedDPGMM, MemoizedDPMixture, StructuredLDA, TemperedLDA, components

    for entry in ENTRIES:
        for heat in (None, "annealed", "variational", "local"):
            given = {} if heat is None else {"temperature": heat} | entry.heated
            if takes(entry, heat) and not (entry.alike and heat in ("variational", "local")):
                n_init = {} if heat else {"n_init": 2}
                yield f"{entry}-{heat}", entry.make(**given, **n_init), entry.data()
    topics = {"max_iter": 3, "batch_size": 8, "random_state": 0}
    learned = {"doc_topic_prior": "auto", "topic_word_prior": "auto"}
    yield (
        "polish",
        TemperedLDA(3, n_polish=3, average=0.9, temperature=None, **learned, **topics),
        counts(),
    )
    yield (
        "collapsed",
        StructuredLDA(3, global_step="collapsed", average=0.9, **learned, **topics),
        counts(),
    )
    yield "births", MemoizedDPGMM(max_iter=5, tol=0.0, random_state=0), rows(n_rows=120)
    blocks = [
        ("full", components.Gaussian(covariance_prior="auto"), ["z", "x"]),
        ("diagonal", components.Gaussian("diag", mean_prior="auto"), ["w"]),
        ("kinds", "categorical", ["word"]), ("flags", "bernoulli", ["flag"]),
        ("rates", "poisson", ["count"]), ("counts", components.Multinomial(), ["n1", "n2"]),
        ("latent", components.LatentGaussian(ordinal=["grade"]), ["grade", "y"]),
    ]  # fmt: skip
    of_table = {"max_iter": 4, "tol": 0.0, "random_state": 0, "max_components": 4}
    yield "table", MemoizedDPMixture(3, components=blocks, **of_table), table()
    yield "auto", MemoizedDPMixture(3, components="auto", **of_table), table()


class Interrupted:
    """A callback that saves the estimator after the second pass."""

    def __init__(self, path):
        self.path = path

    def setup(self, estimator, context):
        pass

    teardown = on_fit_task_begin = setup

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "pass" and context.task_id == 1:
            from skvt import save

            save(fitted_estimator, self.path)


def write_sources(folder):
    """The files of ended and of interrupted fits."""
    from skvt import save

    for number, (_, estimator, X) in enumerate(sources()):
        estimator.set_callbacks(Interrupted(folder / f"{number}.part.skvt")).fit(X)
        if hasattr(estimator, "join_components"):
            estimator.join_components(X)
        save(estimator.set_callbacks(), folder / f"{number}.skvt")


# ----------------------------------------------------------------------------------- the mutations
def parts_of(path):
    """The JSON and the other members of a file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("model.json")), members


def put(path, document, members, compression=zipfile.ZIP_STORED):
    """Write a file of this JSON and these members."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("model.json", json.dumps(document))


def npy(array):
    """An array in NumPy's format."""
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


# Values that take the place of others.
STRANGE = [
    None, True, -1, 0, 1, 7, 300, 2**40, 0.3, -2.5, 1e308, "", "x", [], {}, {"float": "inf"},
    {"float": "nan"}, {"array": 0}, {"ref": 0}, {"tuple": []}, {"dict": []}, {"set": [[]]},
    {"object": "inference.Merged", "fields": {"a": 0, "b": 9, "bounded": True}},
    {"slice": [0, 1, None]}, {"member": ["models.Capability", "MERGEABLE"]}, {"dtype": "float32"},
]  # fmt: skip


def nodes_of(tree, path=()):
    """The places of all nodes."""
    if path:
        yield path
    keys = range(len(tree)) if isinstance(tree, list) else tree if isinstance(tree, dict) else ()
    for key in keys:
        yield from nodes_of(tree[key], (*path, key))


def at(tree, path):
    """The node at a place."""
    for key in path:
        tree = tree[key]
    return tree


def mutate(rng, document, members):
    """Change a node of the JSON or an array."""
    if rng.random() < 0.6:
        _mutate_node(rng, document)
    else:
        _mutate_array(rng, members)


def _mutate_node(rng, document):
    places = list(nodes_of(document))
    place = rng.choice(places)
    parent, key = at(document, place[:-1]), place[-1]
    node = parent[key]
    chance = rng.random()
    if chance < 0.35 and type(node) in (int, float):
        parent[key] = rng.choice([node + 1, node - 1, -node, 2 * node, 0, 0.5, 10**6 * node + 7])
    elif chance < 0.45 and isinstance(node, list) and node:
        parent[key] = rng.choice([node[:-1], node[1:], node + node, node[::-1], [*node, node[0]]])
    elif chance < 0.5:
        del parent[key]
    elif chance < 0.75:
        parent[key] = deepcopy(rng.choice(STRANGE))
    else:
        parent[key] = deepcopy(at(document, rng.choice(places)))


def _mutate_array(rng, members):
    name = rng.choice(sorted(members))
    array = np.lib.format.read_array(io.BytesIO(members[name]))
    numbers, one = array.dtype.kind in "if", array.copy()
    if array.size and numbers:
        values = [-1, 0, 1, 9, 100] if array.dtype.kind == "i" else [
            -1.0, 0.0, 9.0, 1e9, np.nan, np.inf, 1e-300, 1e300, 0.5
        ]  # fmt: skip
        one.flat[rng.randrange(array.size)] = rng.choice(values)
    change = {
        "short": lambda: array[:-1] if array.ndim else array,
        "narrow": lambda: array[..., :-1] if array.ndim else array,
        "long": lambda: np.concatenate([array, array]) if array.ndim else array,
        "wide": lambda: np.concatenate([array, array], axis=-1) if array.ndim else array,
        "empty": lambda: array[:0] if array.ndim else array, "flat": lambda: array.ravel(),
        "deep": lambda: array[..., None], "turned": lambda: array.T,
        "negative": lambda: -array if numbers else array, "none": lambda: np.zeros_like(array),
        "single": lambda: array.astype(np.float32) if numbers else array,
        "whole": lambda: np.nan_to_num(array).astype(np.int64) if numbers else array,
        "small": lambda: array.astype(np.int8) if array.dtype.kind == "i" else array,
        "text": lambda: array.astype(str),
        "large": lambda: array * 1e200 if array.dtype.kind == "f" else array, "one": lambda: one,
        "another": lambda: one, "third": lambda: one,
    }  # fmt: skip
    kind = rng.choice([*change, "other"])
    members[name] = members[rng.choice(sorted(members))] if kind == "other" else npy(change[kind]())


# ----------------------------------------------------------------------------------- the questions
# These methods are no questions about a fit, or make a new fit.
_LENGTHS = "max_iter", "n_samples"
_LEFT_OUT = "fit", "fit_transform", "fit_predict", "get_metadata_routing", "ranks_"
# Arguments of methods that do not take rows alone.
_ARGUMENTS = {
    "inverse_transform": lambda model, X: (model.transform(X),),
    "merge_topics": lambda model, X: ([[0, 1]],),
    "drop_topics": lambda model, X: ([0],),
    "sample": lambda model, X: (5,),
    "sample_mixtures": lambda model, X: (2,),
    "score_column": lambda model, X: (X, _some_column(X)),
    "predict_column": lambda model, X: (X, _some_column(X)),
    "predict_column_proba": lambda model, X: (X, _some_column(X)),
}  # fmt: skip


def _some_column(X):
    return "word" if hasattr(X, "columns") else 0


def questions(cls):
    """Names of public methods and attributes, with those last that change the estimator."""
    names = [name for name in dir(cls) if not name.startswith(("_", "set_"))]
    names = [name for name in names if name not in _LEFT_OUT]
    return sorted(names, key=lambda name: (name in ("partial_fit", "resume"), name))


def ask(model, name, X):
    """The answer to one question."""
    value = getattr(model, name)
    if not callable(value):
        return value
    if name in ("partial_fit", "resume"):
        # Any number of passes and sweeps is legal, and would take long.
        given = model.get_params(deep=False)
        model.set_params(**{key: min(given[key], 6) for key in _LENGTHS if key in given})
    if name in _ARGUMENTS:
        return value(*_ARGUMENTS[name](model, X))
    first = next(iter(inspect.signature(value).parameters), None)
    return value(X) if first == "X" else value()


class OutOfTime(BaseException):
    """The time is over. No handler of Exception catches this exception."""


def _limited(run, n_bytes):
    """The result of ``run()``, with ``n_bytes`` of additional memory and limited time."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return run()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _is_legal(error, name, model):
    """Whether a question may raise this error."""
    hidden = isinstance(error, AttributeError) and type(model).__name__ in str(error)
    return isinstance(error, ValueError) or (hidden and name.endswith("_"))


def _out_of_time(*args):
    raise OutOfTime


def try_file(path, X, more=MORE):
    """The outcome of load, and the questions that failed with an illegal error."""
    from skvt import load
    from skvt.io import FileError

    size, faults = path.stat().st_size, []
    try:
        model = _limited(lambda: load(path), TIMES * size + more)
    except FileError as error:
        if isinstance(error.__cause__, MemoryError):
            faults.append(("load", error))
        return "refused", faults
    except BaseException as error:
        return "refused", [("load", error)]
    for name in questions(type(model)):
        try:
            one = load(path) if name in ("partial_fit", "resume") else model
            _limited(lambda one=one, name=name: ask(one, name, X), MAX_FOR_QUESTIONS)
        except BaseException as error:
            if not _is_legal(error, name, model):
                faults.append((name, error))
    return "loaded", faults


def main(folder, first, number):
    """Try the files of these seeds."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _out_of_time)
    folder, seen, warm = Path(folder), Counter(), set()
    rows = [(name, X) for name, _, X in sources()]
    path = folder / f"mutated-{os.getpid()}.skvt"
    for seed in range(first, first + number):
        rng = random.Random(seed)
        source = rng.randrange(len(rows))
        kind = rng.choice([".skvt", ".part.skvt"])
        name, X = rows[source]
        whole = folder / f"{source}{kind}"
        if whole not in warm:  # The first time, loops are compiled and modules imported.
            warm.add(whole)
            _, faults = try_file(whole, X, MAX_FOR_QUESTIONS)
            for question, error in faults:
                _report(seen, "unchanged", f"{name}{kind}", question, error)
        document, members = parts_of(whole)
        for _ in range(rng.choice([1, 1, 1, 2])):
            mutate(rng, document, members)
        put(path, document, members)
        outcome, faults = try_file(path, X)
        seen[outcome] += 1
        for question, error in faults:
            _report(seen, seed, f"{name}{kind}", question, error)
    print(json.dumps({"seen": dict(seen)}), flush=True)


def _report(seen, seed, name, question, error):
    seen["faults"] += 1
    where = [
        f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)
    ]
    text = f"{type(error).__name__}: {str(error)[:160]}"
    if error.__cause__ is not None:
        text += f" <- {error.__cause__!r:.100}"
    print(
        json.dumps({"seed": seed, "file": name, "question": question, "error": text,
                    "where": where[-4:]}),
        flush=True,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
