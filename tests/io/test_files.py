"""A model file gives back the saved estimator, and any other file is refused."""

import io
import json
import os
import pickle
import random
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import _mutated
import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from _mutated import mutate, npy, parts_of, put, write_sources
from estimators._registry import CLASSES, assert_same_fit, counts, rows
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import skvt
from skvt import TemperedLDA, components, load, save
from skvt.callbacks import Checkpoint
from skvt.files import REGISTRY
from skvt.io import FileError
from skvt.io._classes import conforms, get_class, get_class_name, get_field_types
from skvt.temperature import LinearAnnealing

VERSION_1 = Path(__file__).parent / "version_1"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skvt"


def through(estimator, path, **how):
    save(estimator, path, **how)
    return load(path)


def fitted_mixture(seed=0, **changes):
    settings = {"max_iter": 2, "moves": (), "random_state": seed} | changes
    return skvt.MemoizedDPGMM(**settings).fit(rows())


# --------------------------------------------------------------------------------- sound files
def test_equal_models_make_equal_files(tmp_path):
    for name in ("one", "other"):
        mixture = fitted_mixture()
        mixture._fitted.history.clear()  # The seconds differ.
        save(mixture, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.quick_cases("[1, 0]-gaussian", "[1, 0]-bernoulli", "[1, 0]-ordinal")
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "categorical", "bernoulli",
                                        "negative_binomial", components.Multinomial(),
                                        "ordinal"], ids=str)  # fmt: skip
@pytest.mark.parametrize("columns", [[1, 2], [0, 2], [1, 0]], ids=str)
def test_a_file_of_a_table_may_leave_out_columns(likelihood, columns, path):
    X = np.random.default_rng(0).integers(2, size=(40, 3)).astype(float)
    if likelihood == "ordinal":
        likelihood = components.LatentGaussian(ordinal=columns[:1])
    for table in (X, pd.DataFrame(X, columns=["a", "b", "c"])):
        saved = skvt.MemoizedDPMixture(
            components=[("block", likelihood, columns)], max_iter=3, tol=0.0, moves=("merge",),
            random_state=0,
        )  # fmt: skip
        saved.set_callbacks(Checkpoint(path, every=2)).fit(table)
        assert_same_fit(load(path).resume(table), saved)
        loaded = through(saved, path)
        assert_same_fit(loaded, saved)
        np.testing.assert_array_equal(loaded.predict_proba(table), saved.predict_proba(table))


def test_a_file_holds_a_long_history(path):
    saved = fitted_mixture()
    entry = saved._fitted.history[-1]._replace(elbo=np.nan, objective=np.nan)
    saved._fitted.history.extend([entry] * 45_000)
    loaded = through(saved, path, dtype="float32")  # This leaves the history as it is.
    for name, values in saved.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], values)


def test_a_generator_of_random_numbers_continues_after_loading(path):
    saved = fitted_mixture(np.random.RandomState(3))
    loaded = through(saved, path)
    np.testing.assert_array_equal(loaded.sample(5)[0], saved.sample(5)[0])


def test_single_precision_halves_the_file_and_keeps_the_answers(tmp_path):
    X = rows(n_rows=300, n_features=40)
    saved = skvt.MemoizedDPGMM(max_iter=4, moves=(), n_components=4, random_state=0).fit(X)
    loaded = through(saved, tmp_path / "single", dtype="float32")
    save(saved, tmp_path / "double")
    sizes = [(tmp_path / name).stat().st_size for name in ("single", "double")]
    assert sizes[0] < 0.65 * sizes[1]
    assert loaded._fitted.stats.arrays[1].dtype == np.float64
    np.testing.assert_allclose(loaded.score_samples(X), saved.score_samples(X), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "most"), [(None, 1.5), ("float32", 2.5)])
def test_files_take_little_more_memory_than_the_arrays_they_hold(dtype, most, path):
    words = np.random.default_rng(0).integers(40_000, size=8_000)
    X = sp.csr_array((np.ones(8_000), (np.arange(8_000) % 20, words)), shape=(20, 40_000))
    saved = skvt.TemperedLDA(100, max_iter=1, random_state=0).fit(X)
    tracemalloc.start()
    try:
        save(saved, path, dtype=dtype)
        before, peak = tracemalloc.get_traced_memory()
        size = path.stat().st_size
        assert peak < (2.5 if dtype else 0.8) * size
        tracemalloc.reset_peak()
        load(path)
        assert tracemalloc.get_traced_memory()[1] - before < most * size
    finally:
        tracemalloc.stop()


def test_a_file_holds_no_callbacks(path):
    callback = Checkpoint(path)
    saved = skvt.MemoizedDPGMM(max_iter=2, moves=(), random_state=0).set_callbacks(callback)
    assert not hasattr(through(saved.fit(rows()), path), "_skl_callbacks")
    assert saved._skl_callbacks == [callback]


@pytest.mark.parametrize("entry", CLASSES, ids=str)
def test_files_of_version_1_can_be_loaded(entry):
    name = entry.cls.__name__
    X = entry.data()
    loaded = load(VERSION_1 / f"{name}.skvt")
    given = json.loads((VERSION_1 / "answers.json").read_text())[name]
    answers = [float(np.square(answer).sum()) for answer in entry.answers(loaded, X)]
    np.testing.assert_allclose(answers, given, rtol=1e-6)
    resumed = load(VERSION_1 / f"{name}.part.skvt").resume(X)
    # The last digits of a pass depend on the processor.
    np.testing.assert_allclose(resumed.elbo(X), loaded.elbo(X), rtol=1e-3)


def test_a_field_that_an_old_file_lacks_gets_its_default(path):
    document, members = parts_of(VERSION_1 / "MemoizedDPGMM.skvt")
    fields = document["estimator"]["fields"]
    del fields["verbose"]
    del fields["_fitted"]["fields"]["model"]["fields"]["learns_concentration"]
    put(path, document, members)
    loaded = load(path)
    assert loaded.verbose == 0
    assert loaded._fitted.model.learns_concentration is False


def test_each_class_in_files_has_one_name():
    for name in [*REGISTRY]:
        assert get_class_name(get_class(name)) == name
        get_field_types(name)


def test_the_type_of_a_field_may_be_a_type_statement():
    # The type NDArray of NumPy is one from Python 3.12 on.
    alias = SimpleNamespace(__value__=tuple[int, ...])
    assert conforms((1, 2), alias)
    assert not conforms(("1",), alias)


# ----------------------------------------------------------------------------------------- saves
class OwnPolicy(LinearAnnealing):
    """A policy that the user has written."""


def test_save_names_what_a_file_cannot_hold(path):
    mixture = skvt.MemoizedDPGMM(max_iter=2, moves=(), random_state=0)
    with pytest.raises(NotFittedError):
        save(mixture, path)
    mixture.fit(rows())
    save(mixture, path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="save its last step, or save all of it by skops"):
        save(make_pipeline(mixture), path)
    with pytest.raises(ValueError, match="'float16'"):
        save(mixture, path, dtype="float16")
    mixture.set_params(temperature=OwnPolicy())
    with pytest.raises(TypeError, match=r"temperature is an object of type .*OwnPolicy"):
        save(mixture, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_save_writes_nothing_that_load_would_refuse(path):
    mixture = fitted_mixture()
    mixture._fitted.stats.arrays[0][:] = np.nan
    with pytest.raises(FileError, match="Nothing was written"):
        save(mixture, path)
    assert not path.exists()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_interrupted_save_leaves_what_was_there(interruption, step, path, monkeypatch):
    save(fitted_mixture(), path)
    before = path.read_bytes()

    def interrupted(*args):
        raise interruption("now")

    monkeypatch.setattr(f"os.{step}", interrupted)
    with pytest.raises(interruption):
        save(fitted_mixture(1), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


POSIX = pytest.mark.skipif(os.name != "posix", reason="modes, links and open files of POSIX")


@POSIX
def test_several_threads_may_save_to_one_path(path):
    mixtures = [load(VERSION_1 / f"{name}.skvt") for name in ("MemoizedDPGMM", "TemperedLDA")]
    save(mixtures[0], path)
    faults = []

    def saves(estimator):
        for _ in range(5):
            try:
                save(estimator, path)
                load(path)
            except Exception as error:
                faults.append(error)

    threads = [threading.Thread(target=saves, args=(one,)) for one in mixtures * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert list(path.parent.iterdir()) == [path]


@POSIX
@pytest.mark.parametrize("mode", [0o600, 0o664, 0o640])
def test_save_keeps_the_mode_of_an_existing_file(mode, path):
    mixture = load(VERSION_1 / "MemoizedDPGMM.skvt")
    save(mixture, path)
    mask = os.umask(0o022)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    path.chmod(mode)
    save(mixture, path)
    assert path.stat().st_mode & 0o777 == mode


@POSIX
def test_save_follows_a_link_and_is_not_misled_by_planted_ones(path, monkeypatch):
    target, victim = path.with_name("elsewhere") / "model.skvt", path.with_name("victim")
    target.parent.mkdir()
    path.symlink_to(target)
    victim.write_text("as it was")
    for pid in (os.getpid(), "0" * 16):
        path.with_name(f"model.skvt.{pid}.partial").symlink_to(victim)
        target.with_name(f"model.skvt.{pid}.partial").symlink_to(victim)
    monkeypatch.setattr("secrets.token_hex", lambda n: "0" * 16)
    with pytest.raises(FileExistsError):
        save(load(VERSION_1 / "MemoizedDPGMM.skvt"), path)
    monkeypatch.undo()
    save(load(VERSION_1 / "MemoizedDPGMM.skvt"), path)
    assert path.is_symlink() and load(target).n_features_in_ == load(path).n_features_in_
    assert victim.read_text() == "as it was"
    with pytest.raises(OSError, match="Only a regular file"):
        save(load(path), os.devnull)


# --------------------------------------------------------------------------------- hostile files
def header(shape="(1,), }", dtype="<f8"):
    """The beginning of a file of NumPy's that claims to hold an array of this shape."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def fitted_of(document):
    return document["estimator"]["fields"]["_fitted"]["fields"]


def statistics_of(document):
    """Numbers of the arrays of the statistics."""
    nodes = fitted_of(document)["state"]["fields"]["stats"]["fields"]["_arrays"]["tuple"]
    return [f"arrays/{node['array']}.npy" for node in nodes]


def changes_of(document, members, *indices):
    """Let all memos be due these changes of the order of components."""
    changes = fitted_of(document)["state"]["fields"]["memos"]["fields"]["_changes"]
    for index in indices:
        place = len(members)
        members[f"arrays/{place}.npy"] = npy(np.array(index))
        changes.append({"object": "inference.Rearranged", "fields": {"index": {"array": place}}})


def with_statistics(change):
    """A change of the first array of the statistics, whose new contents ``change`` returns."""

    def changed(document, members):
        name = statistics_of(document)[0]
        members[name] = change(np.lib.format.read_array(io.BytesIO(members[name])))

    return changed


# A change of the JSON ``d`` and of the arrays ``m`` in the file of a Gaussian mixture.
HOSTILE = {
    "another class": lambda d, m: d["estimator"].update(object="builtins.eval"),
    "no estimator": lambda d, m: d.update(estimator=fitted_of(d)["state"]),
    "a later version": lambda d, m: d.update(version=2),
    "no format": lambda d, m: d.pop("format"),
    "not fitted": lambda d, m: d["estimator"]["fields"].pop("_fitted"),
    "a method replaced": lambda d, m: d["estimator"]["fields"].update(predict=1),
    "a parameter out of range": lambda d, m: d["estimator"]["fields"].update(max_iter=-1),
    "a number as text": lambda d, m: fitted_of(d).update(n_rows="40"),
    "no number": lambda d, m: fitted_of(d).update(n_rows={"float": "nan"}),
    "an unknown kind": lambda d, m: fitted_of(d).update(n_rows={"pickle": "gASVAAA"}),
    "a field of its own": lambda d, m: fitted_of(d).update(extra=1),
    "a list for a name": lambda d, m: fitted_of(d).update(n_rows={"object": [], "fields": {}}),
    "itself": lambda d, m: fitted_of(d).update(model={"ref": 10**6}),
    "NaN in JSON": lambda d, m: fitted_of(d).update(n_rows=float("nan")),
    "a path that leaves": lambda d, m: m.update({"../../evil.npy": b"x"}),
    "an array too many": lambda d, m: m.update({"arrays/9999.npy": npy(np.zeros(2))}),
    "another number of columns": lambda d, m: d["estimator"]["fields"].update(n_features_in_=4),
    "NaN in an array": with_statistics(lambda a: npy(np.full(3, np.nan))),
    "an array of another shape": with_statistics(lambda a: npy(np.ones(9))),
    "negative counts": with_statistics(lambda a: npy(np.full(3, -9.0))),
    "an array of text": with_statistics(lambda a: npy(np.array(["a", "b"]))),
    "a pickle": with_statistics(lambda a: pickle.dumps([1, 2])),
    "an array of objects": with_statistics(lambda a: header(dtype="|O")),
    "a huge array": with_statistics(lambda a: header("(1000000000000,), }")),
    "a negative shape": with_statistics(lambda a: header("(-1,), }")),
    "no end of brackets": with_statistics(lambda a: header("(" * 900)),
    "half precision": with_statistics(lambda a: npy(a.astype(np.float16))),
    "memos that changes make large": lambda d, m: changes_of(d, m, np.zeros(20_000, int), range(3)),
    "a change of components that are not there": lambda d, m: changes_of(d, m, range(1, 4)),
    "a fit of another model": lambda d, m: fitted_of(d)["model"].update(
        fitted_of(parts_of(VERSION_1 / "MemoizedHDP.skvt")[0])["model"]
    ),
    "parameters without names": lambda d, m: fitted_of(d).update(parameters={"dict": [[1, 2]]}),
    "generators without end": lambda d, m: d["estimator"]["fields"].update(
        random_state=[{"random_state": [{"array": 0}, 0, 0, 0.0]}] * 20_000
    ),
    "lists without end": lambda d, m: d["estimator"]["fields"].update(labels_init=[[]] * 400_000),
}  # fmt: skip


def model_of(document):
    return fitted_of(document)["model"]["fields"]


def table_of(document):
    return document["estimator"]["fields"]["_table"]["fields"]


def add_a_dimension_to_positions(document, members):
    for block in model_of(document)["component"]["fields"]["blocks"]["tuple"]:
        name = f"arrays/{block['fields']['columns']['array']}.npy"
        members[name] = npy(np.load(io.BytesIO(members[name]))[:, None])


def claim_many_columns(document, members):
    document["estimator"]["fields"]["n_features_in_"] = 2**40
    model_of(document)["component"]["fields"]["n_features"] = 2**40


# A file, a change of its JSON and its arrays, and a part of the message.
INCONSISTENT = {
    **{name: ("MemoizedDPGMM", change, ".") for name, change in HOSTILE.items()},
    **{
        f"{name} begins with {number} components": (
            name,
            lambda d, m, field=field, number=number: model_of(d).update({field: number}),
            f"'{field}' .* is not from 1 to 100,000 more",
        )
        for name, field in (("MemoizedDPGMM", "n_initial"), ("MemoizedDPGMM", "n_fewest"),
                            ("MemoizedHDP", "n_initial"))
        for number in (0, 10**9, 10**30)
    },
    **{
        f"a Dirichlet distribution of {number} components": (
            "dirichlet",
            lambda d, m, number=number: model_of(d)["weights"]["fields"].update(
                n_components=number),
            ".",
        )
        for number in (2, 10**9, {"float": "1e30"})
    },
    **{
        f"{field} of {number} gathered rows": (
            "stream",
            lambda d, m, field=field, number=number: fitted_of(d)["gathered"]["fields"].update(
                {field: number}),
            "small calls",
        )
        for field, number in (("n_last", 11), ("n_last", 0), ("n_judged", 11))
    },
    "columns that no array has": ("zero mean", claim_many_columns, "."),
    "positions of columns in two dimensions": (
        "MemoizedDPMixture", add_a_dimension_to_positions, "Product do not fit together"),
    "no table": (
        "MemoizedDPMixture", lambda d, m: d["estimator"]["fields"].pop("_table"), "table"),
    "a table of other names": (
        "MemoizedDPMixture", lambda d, m: table_of(d)["names"]["tuple"].pop(), "table"),
    "a table of other blocks": (
        "MemoizedDPMixture", lambda d, m: table_of(d)["blocks"]["tuple"].pop(), "table"),
    "a table of another kind": (
        "MemoizedDPMixture",
        lambda d, m: table_of(d)["blocks"]["tuple"][0]["fields"].update(
            spec={"object": "components.Poisson", "fields": {}}),
        "table",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """``sources(name)`` is the path of a file of version 1, or of one of three other fits."""
    folder = tmp_path_factory.mktemp("sources")
    save(
        fitted_mixture(n_components=3, weight_concentration_prior_type="dirichlet_distribution"),
        folder / "dirichlet.skvt",
    )
    stream = skvt.MemoizedDPGMM(3, max_iter=2, random_state=0).partial_fit(rows()[:10])
    save(stream, folder / "stream.skvt")
    save(fitted_mixture(mean_type="zero"), folder / "zero mean.skvt")

    def source(name):
        own = folder / f"{name}.skvt"
        return own if own.exists() else VERSION_1 / f"{name}.skvt"

    return source


@pytest.mark.parametrize(
    ("name", "change", "message"), INCONSISTENT.values(), ids=[*map(str, INCONSISTENT)]
)
def test_a_file_that_contradicts_itself_is_refused_in_little_memory(
    name, change, message, sources, path
):
    load(sources(name))  # imports the modules that it needs
    document, members = parts_of(sources(name))
    change(document, members)
    put(path, document, members)
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=message):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_an_archive_that_is_no_plain_file_is_refused(path):
    document, members = parts_of(VERSION_1 / "MemoizedDPGMM.skvt")
    members[f"arrays/{len(members)}.npy"] = npy(np.zeros(10**6))
    put(path, document, members, zipfile.ZIP_DEFLATED)
    with pytest.raises(FileError, match="compressed"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.json", "[" * 100_000 + "]" * 100_000)
    with pytest.raises(FileError):
        load(path)


def test_parameters_may_be_of_any_precision(path):
    for dtype in (np.float16, np.longdouble):
        given = {"doc_topic_prior": np.full(3, 0.5, dtype), "learning_decay": dtype(0.75)}
        topics = skvt.TemperedLDA(3, max_iter=2, random_state=0, **given).fit(counts())
        loaded = through(topics, path)
        assert loaded.learning_decay == 0.75
        np.testing.assert_array_equal(loaded.doc_topic_prior, np.full(3, 0.5))


def test_an_engine_refuses_what_another_engine_remembers(path):
    document, members = parts_of(VERSION_1 / "MemoizedDPGMM.part.skvt")
    other, _ = parts_of(VERSION_1 / "StructuredBernoulliMixture.part.skvt")
    require_progress(document)["engine"] = require_progress(other)["engine"]
    put(path, document, members)
    with pytest.raises(ValueError, match="does not remember"):
        load(path).resume(rows())


KEYS = {
    "whole numbers of one hash": [k * (2**61 - 1) for k in range(10_000)],
    "pairs of one hash": [{"tuple": [k * (2**61 - 1), 1]} for k in range(10_000)],
}


def seeded(**sequence):
    """A generator of random numbers with this seed."""
    sequence = {"entropy": 1, "spawn_key": {"tuple": []}, "n_children_spawned": 0} | sequence
    return {"generator": [{"dict": []}, {"dict": list(map(list, sequence.items()))}]}


SLOW = {
    **{f"set of {name}": {"set": keys} for name, keys in KEYS.items()},
    **{f"dict of {name}": {"dict": [[key, 0] for key in keys]} for name, keys in KEYS.items()},
    "a large pool": seeded(pool_size=40_000),
    "a long seed": seeded(entropy=[1] * 200_000),
    "a long path of seeds": seeded(spawn_key={"tuple": [1] * 200_000}),
}


@pytest.mark.parametrize("node", SLOW.values(), ids=SLOW)
def test_a_file_that_would_take_long_is_refused_at_once(node, path):
    load(VERSION_1 / "MemoizedDPGMM.skvt")  # imports the modules that it needs
    document, members = parts_of(VERSION_1 / "MemoizedDPGMM.skvt")
    document["estimator"] = node
    put(path, document, members)
    start = time.process_time()
    with pytest.raises(FileError):
        load(path)
    assert time.process_time() - start < 2.0


def twice_in_key(fitted):
    gathered = fitted.gathered
    for _ in range(22):
        gathered = replace(gathered, key=(gathered, gathered))
    return replace(fitted, gathered=gathered)


def twice_in_start(fitted):
    component = fitted.model.component
    for _ in range(22):
        component = replace(component, initial_factors=(component, component))
    return replace(fitted, model=replace(fitted.model, component=component))


@pytest.mark.parametrize("hold", [twice_in_key, twice_in_start])
def test_objects_that_hold_one_another_many_times_are_refused_at_once(hold, path):
    given = {"covariance_type": "low_rank", "max_iter": 2, "max_components": 4}
    stream = skvt.MemoizedDPGMM(3, **given, random_state=0).partial_fit(rows()[:10])
    stream._fitted = hold(stream._fitted)
    start = time.process_time()
    with pytest.raises(FileError):
        save(stream, path)
    assert time.process_time() - start < 2.0


def require_progress(document):
    return document["estimator"]["fields"]["_progress"]["fields"]


def remembered_of(document):
    """What the engines and what follows passes remember, of all of them together."""
    parts = dict(require_progress(document)["engine"]["dict"])
    return [entry for own in (*parts["engines"], *parts["after_pass"]) for entry in own["dict"]]


AVERAGED = skvt.TemperedLDA(3, average=0.9, temperature=None, max_iter=4, random_state=0)
SUMMED_OUT = skvt.StructuredLDA(3, global_step="collapsed", average=0.0, max_iter=4, random_state=0)


@pytest.mark.parametrize(
    "topics, name, change",
    [
        (AVERAGED, "_sum", lambda a: a[:-1]), (AVERAGED, "_sum", lambda a: a[:1]),
        (AVERAGED, "_sum", lambda a: a.T), (SUMMED_OUT, "_ends", lambda a: a + 1),
    ],
    ids=["a row less", "one row", "transposed", "topics that are not there"],
)  # fmt: skip
def test_the_memory_of_an_engine_must_fit_the_statistics(topics, name, change, path):
    clone(topics).set_callbacks(Checkpoint(path, every=3)).fit(counts())
    document, members = parts_of(path)
    (node,) = dict(remembered_of(document))[name]
    member = f"arrays/{node['array']}.npy"
    members[member] = npy(change(np.lib.format.read_array(io.BytesIO(members[member]))))
    put(path, document, members)
    with pytest.raises(FileError, match="No engine, step or move remembers"):
        load(path)


@pytest.mark.parametrize("path", [io.BytesIO(), None, 3])
def test_save_and_load_refuse_what_is_no_path(path):
    with pytest.raises(TypeError, match=rf"type {type(path).__name__}\. .*pickle\.dumps"):
        save(TemperedLDA(2, max_iter=1, random_state=0).fit(np.eye(3)), path)
    with pytest.raises(TypeError, match=rf"type {type(path).__name__}\. "):
        load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_only_regular_files_are_opened(path):
    # Nobody writes to this pipe, and /dev/zero has no end.
    os.mkfifo(path)
    link = path.with_name("link")
    link.symlink_to("/dev/zero")
    for other in (path, link, "/dev/zero", path.parent):
        with pytest.raises(FileError, match="not a regular file"):
            load(other)


def test_a_truncated_or_foreign_file_is_refused(path):
    whole = (VERSION_1 / "MemoizedHDP.part.skvt").read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int):
        path.write_bytes(whole[:length])
        with pytest.raises(FileError):
            load(path)
    for compress in (0, 3, ("gzip", 3), ("bz2", 9), ("xz", 3), ("lzma", 3), ("zlib", 1)):
        joblib.dump([1, 2], path, compress=compress)
        with pytest.raises(FileError, match=r"It is a pickle, .* joblib\.load or pickle\.load"):
            load(path)
    path.write_text("{}")
    with pytest.raises(FileError, match=r"model\.skvt cannot be loaded: .* not a model file"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(path.with_name("another"))
    with pytest.raises(FileNotFoundError, match=r"folder to save in does not exist.*another'$"):
        save(load(VERSION_1 / "MemoizedHDP.part.skvt"), path.with_name("another") / "model.skvt")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_mutated_file_is_refused_or_gives_a_working_estimator(path):
    rng = random.Random(0)
    for _ in range(50):
        entry, kind = rng.choice(CLASSES), rng.choice([".skvt", ".part.skvt"])
        document, members = parts_of(VERSION_1 / f"{entry.cls.__name__}{kind}")
        mutate(rng, document, members)
        put(path, document, members)
        with suppress(ValueError):
            loaded = load(path)
            for question in ("transform", "predict_proba", "score"):
                if hasattr(loaded, question):
                    getattr(loaded, question)(entry.data())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_methods_of_an_estimator_from_a_mutated_file_work_or_raise_value_errors(
    tmp_path, pytestconfig
):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    number = os.environ.get("SKVT_MUTATED_FILES", "200")
    if int(number) > 200:  # Loops with checked bounds are compiled anew, which takes minutes.
        environment["NUMBA_BOUNDSCHECK"] = "1"
        environment["NUMBA_CACHE_DIR"] = str(pytestconfig.cache.mkdir("boundscheck"))
    write_sources(tmp_path)
    command = [sys.executable, _mutated.__file__, tmp_path, "0", number]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    # A file may ask for verbose passes, whose lines are no JSON.
    lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
    *faults, seen = map(json.loads, lines)
    assert found.returncode == 0, found.stderr
    assert not faults, found.stdout
    assert min(seen["seen"].values()) > 0.1 * int(number)


def test_a_flipped_byte_is_refused_unless_nobody_reads_it(path):
    whole = (VERSION_1 / "TemperedLDA.part.skvt").read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(whole), size=100):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        path.write_bytes(flipped)
        with suppress(FileError):  # Some bytes are not read, for example those of a date.
            assert load(path).n_features_in_ == 25
