"""Model files: what is saved is loaded, and nothing else is."""

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
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from _mutated import mutate, npy, parts_of, put, write_sources
from estimators._registry import CLASSES, assert_same_fit, counts, every_temperature, rows
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import skvt
from skvt import TemperedLDA, components, load, save
from skvt.callbacks import Checkpoint
from skvt.files import IN_FILES
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


def header(text):
    """The beginning of a file of NumPy's that claims whatever the text says."""
    text = text.encode() + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


# ------------------------------------------------------------------------------- what comes back
@every_temperature(None, "variational", "local")
def test_a_loaded_estimator_is_the_saved_one(entry, temperature, path):
    heat = {} if temperature is None else {"temperature": temperature}
    X = entry.data()
    saved = entry.make(**heat).fit(X)
    loaded = through(saved, path)
    assert loaded.get_params().keys() == saved.get_params().keys()
    assert_same_fit(loaded, saved)
    for one, other in zip(entry.answers(loaded, X), entry.answers(saved, X), strict=True):
        np.testing.assert_array_equal(one, other)
    if temperature != "local":  # which streams refuse
        assert_same_fit(loaded.partial_fit(X), saved.partial_fit(X))


def test_equal_models_make_equal_files(tmp_path):
    for name in ("one", "other"):
        mixture = skvt.MemoizedDPGMM(max_iter=3, random_state=0).fit(rows())
        mixture._fitted.history.clear()  # seconds differ
        save(mixture, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.quick_cases("[1, 0]")
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "categorical", "bernoulli",
                                        "negative_binomial", components.Multinomial(),
                                        "ordinal"], ids=str)  # fmt: skip
@pytest.mark.parametrize("columns", [[1, 2], [0, 2], [1, 0]], ids=str)
def test_columns_may_be_left_out_of_a_table(likelihood, columns, path):
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


def test_a_long_history_is_legible(path):
    saved = skvt.MemoizedDPGMM(max_iter=2, moves=(), random_state=0).fit(rows())
    entry = saved._fitted.history[-1]._replace(elbo=np.nan, objective=np.nan)
    saved._fitted.history.extend([entry] * 45_000)
    loaded = through(saved, path, dtype="float32")  # which leaves the history as it is
    for name, values in saved.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], values)


def test_generators_go_on_where_they_were(path):
    saved = skvt.MemoizedDPGMM(max_iter=2, random_state=np.random.RandomState(3)).fit(rows())
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


def test_skops_works_too(path):
    sio = pytest.importorskip("skops.io")
    entry = CLASSES[1]
    saved = make_pipeline(MaxAbsScaler(), entry.make(temperature="annealed")).fit(entry.data())
    sio.dump(saved, path)
    loaded = sio.load(path, trusted=sio.get_untrusted_types(file=path))
    assert_same_fit(loaded[-1], saved[-1])


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


def test_callbacks_stay_behind(path):
    callback = Checkpoint(path)
    saved = skvt.MemoizedDPGMM(max_iter=2, moves=(), random_state=0).set_callbacks(callback)
    assert not hasattr(through(saved.fit(rows()), path), "_skl_callbacks")
    assert saved._skl_callbacks == [callback]


@pytest.mark.parametrize("entry", CLASSES, ids=str)
def test_files_of_version_1_load_for_ever(entry):
    name = entry.cls.__name__
    X = entry.data()
    loaded = load(VERSION_1 / f"{name}.skvt")
    given = json.loads((VERSION_1 / "answers.json").read_text())[name]
    answers = [float(np.square(answer).sum()) for answer in entry.answers(loaded, X)]
    np.testing.assert_allclose(answers, given, rtol=1e-6)
    resumed = load(VERSION_1 / f"{name}.part.skvt").resume(X)
    # (passes by another processor may differ in their last digits)
    np.testing.assert_allclose(resumed.elbo(X), loaded.elbo(X), rtol=1e-3)


def test_fields_that_a_release_did_not_have_yet_get_their_defaults(path):
    document, members = parts_of(VERSION_1 / "MemoizedDPGMM.skvt")
    fields = document["estimator"]["fields"]
    del fields["verbose"]
    del fields["_fitted"]["fields"]["model"]["fields"]["learns_concentration"]
    put(path, document, members)
    loaded = load(path)
    assert loaded.verbose == 0
    assert loaded._fitted.model.learns_concentration is False


def test_every_class_of_files_exists_under_one_name():
    for name in [*IN_FILES]:
        assert get_class_name(get_class(name)) == name
        get_field_types(name)


def test_types_of_fields_may_be_type_statements():
    # as NumPy's NDArray from Python 3.12 on
    alias = SimpleNamespace(__value__=tuple[int, ...])
    assert conforms((1, 2), alias)
    assert not conforms(("1",), alias)


# --------------------------------------------------------------------------- what cannot be saved
class OwnPolicy(LinearAnnealing):
    """A policy of the user's."""


def test_what_a_file_cannot_hold_is_refused_by_name(path):
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


def test_what_load_would_refuse_is_not_written(path):
    mixture = skvt.MemoizedDPGMM(max_iter=2, moves=(), random_state=0).fit(rows())
    mixture._fitted.stats.arrays[0][:] = np.nan
    with pytest.raises(FileError, match="Nothing was written"):
        save(mixture, path)
    assert not path.exists()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_interrupted_save_leaves_what_was_there(interruption, step, path, monkeypatch):
    mixture = skvt.MemoizedDPGMM(max_iter=2, moves=(), random_state=0).fit(rows())
    save(mixture, path)
    before = path.read_bytes()

    def interrupted(*args):
        raise interruption("now")

    monkeypatch.setattr(f"os.{step}", interrupted)
    with pytest.raises(interruption):
        save(skvt.MemoizedDPGMM(max_iter=3, moves=(), random_state=1).fit(rows(1)), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


POSIX = pytest.mark.skipif(os.name != "posix", reason="modes, links and open files of POSIX")


@POSIX
def test_several_threads_may_save_to_one_path(path):
    mixtures = [load(VERSION_1 / f"{name}.skvt") for name in ("MemoizedDPGMM", "TemperedLDA")]
    save(mixtures[0], path)
    faults = []

    def saves(estimator):
        for _ in range(15):
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
def test_the_mode_of_the_file_before_is_kept(mode, path):
    mixture = load(VERSION_1 / "MemoizedDPGMM.skvt")
    save(mixture, path)
    mask = os.umask(0o022)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    path.chmod(mode)
    save(mixture, path)
    assert path.stat().st_mode & 0o777 == mode


@POSIX
def test_a_link_is_followed_and_none_is_planted(path, monkeypatch):
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
def mixture_parts():
    return parts_of(VERSION_1 / "MemoizedDPGMM.skvt")


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
    "NaN in an array": lambda d, m: m.update(
        {statistics_of(d)[0]: npy(np.full(3, np.nan))}
    ),
    "an array of another shape": lambda d, m: m.update({statistics_of(d)[0]: npy(np.ones(9))}),
    "negative counts": lambda d, m: m.update({statistics_of(d)[0]: npy(np.full(3, -9.0))}),
    "an array of text": lambda d, m: m.update({statistics_of(d)[0]: npy(np.array(["a", "b"]))}),
    "a pickle": lambda d, m: m.update({statistics_of(d)[0]: pickle.dumps([1, 2])}),
    "an array of objects": lambda d, m: m.update(
        {statistics_of(d)[0]: header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }")}
    ),
    "a huge array": lambda d, m: m.update(
        {statistics_of(d)[0]: header(
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }")}
    ),
    "a negative shape": lambda d, m: m.update(
        {statistics_of(d)[0]: header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }")}
    ),
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
    "no end of brackets": lambda d, m: m.update({statistics_of(d)[0]: header("(" * 900)}),
}  # fmt: skip


def assert_refused_in_little_memory(path):
    tracemalloc.start()
    try:
        with pytest.raises(FileError):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_get_an_error_and_no_memory(hostile, path):
    document, members = mixture_parts()
    put(path, document, members)
    load(path)  # imports what it needs
    hostile(document, members)
    put(path, document, members)
    assert_refused_in_little_memory(path)


@pytest.mark.parametrize("number", [0, 10**9, 10**30])
@pytest.mark.parametrize(
    ("name", "field"),
    [("MemoizedDPGMM", "n_initial"), ("MemoizedDPGMM", "n_fewest"), ("MemoizedHDP", "n_initial")],
)
def test_far_too_many_components_to_begin_with_are_refused(name, field, number, path):
    document, members = parts_of(VERSION_1 / f"{name}.skvt")
    fitted_of(document)["model"]["fields"][field] = number
    put(path, document, members)
    with pytest.raises(FileError, match=f"'{field}' .* is not from 1 to 100,000 more"):
        load(path)


@pytest.mark.parametrize("number", [2, 10**9, {"float": "1e30"}])
def test_a_dirichlet_distribution_of_other_components_is_refused_in_little_memory(number, path):
    settings = {"weight_concentration_prior_type": "dirichlet_distribution", "max_iter": 2}
    X = np.random.default_rng(0).normal(size=(30, 2))
    save(skvt.MemoizedDPGMM(3, random_state=0, **settings).fit(X), path)
    document, members = parts_of(path)
    load(path)  # imports what it needs
    fitted_of(document)["model"]["fields"]["weights"]["fields"].update(n_components=number)
    put(path, document, members)
    assert_refused_in_little_memory(path)


KEYS = {
    "whole numbers of one hash": [k * (2**61 - 1) for k in range(20_000)],
    "pairs of one hash": [{"tuple": [k * (2**61 - 1), 1]} for k in range(20_000)],
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
def test_no_file_takes_long(node, path):
    document, members = mixture_parts()
    put(path, document, members)
    load(path)  # imports what it needs
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
def test_objects_that_hold_one_another_many_times_take_no_time(hold, path):
    given = {"covariance_type": "low_rank", "max_iter": 2, "max_components": 4}
    stream = skvt.MemoizedDPGMM(3, **given, random_state=0).partial_fit(rows()[:10])
    stream._fitted = hold(stream._fitted)
    start = time.process_time()
    with pytest.raises(FileError):
        save(stream, path)
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize("name, number", [("n_last", 11), ("n_last", 0), ("n_judged", 11)])
def test_numbers_of_gathered_rows_are_at_most_all(name, number, path):
    stream = skvt.MemoizedDPGMM(3, max_iter=2, random_state=0).partial_fit(rows()[:10])
    save(stream, path)
    document, members = parts_of(path)
    fitted_of(document)["gathered"]["fields"][name] = number
    put(path, document, members)
    with pytest.raises(FileError, match="small calls"):
        load(path)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_arrays_are_of_precisions_that_loops_are_compiled_for(dtype, path):
    document, members = mixture_parts()
    for name in statistics_of(document):
        array = np.lib.format.read_array(io.BytesIO(members[name]))
        members[name] = npy(array.astype(dtype))
    put(path, document, members)
    if np.dtype(dtype) == np.float64:
        pytest.skip("long doubles are doubles here")
    with pytest.raises(FileError, match="cannot be part of a model"):
        load(path)
    given = {"doc_topic_prior": np.full(3, 0.5, dtype), "learning_decay": dtype(0.75)}
    loaded = through(skvt.TemperedLDA(3, max_iter=2, random_state=0, **given).fit(counts()), path)
    assert loaded.learning_decay == 0.75
    np.testing.assert_array_equal(loaded.doc_topic_prior, np.full(3, 0.5))


def test_columns_that_no_array_has_take_no_memory(path):
    given = {"mean_type": "zero", "max_iter": 2}
    save(skvt.MemoizedDPGMM(**given, moves=(), random_state=0).fit(rows()), path)
    document, members = parts_of(path)
    document["estimator"]["fields"]["n_features_in_"] = 2**40
    component = fitted_of(document)["model"]["fields"]["component"]["fields"]
    component["n_features"] = 2**40
    put(path, document, members)
    assert_refused_in_little_memory(path)


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
def test_what_engines_remember_has_the_shapes_and_topics_of_the_statistics(
    topics, name, change, path
):
    clone(topics).set_callbacks(Checkpoint(path, every=3)).fit(counts())
    document, members = parts_of(path)
    (node,) = dict(remembered_of(document))[name]
    member = f"arrays/{node['array']}.npy"
    members[member] = npy(change(np.lib.format.read_array(io.BytesIO(members[member]))))
    put(path, document, members)
    with pytest.raises(FileError, match="No engine, step or move remembers"):
        load(path)


def test_positions_of_columns_in_two_dimensions_are_refused(path):
    document, members = parts_of(VERSION_1 / "MemoizedDPMixture.skvt")
    blocks = fitted_of(document)["model"]["fields"]["component"]["fields"]["blocks"]["tuple"]
    for block in blocks:
        name = f"arrays/{block['fields']['columns']['array']}.npy"
        members[name] = npy(np.load(io.BytesIO(members[name]))[:, None])
    put(path, document, members)
    with pytest.raises(FileError, match="Product do not fit together"):
        load(path)


def table_of(document):
    return document["estimator"]["fields"]["_table"]["fields"]


TABLES = {
    "none": lambda document: document["estimator"]["fields"].pop("_table"),
    "of other names": lambda document: table_of(document)["names"]["tuple"].pop(),
    "of other blocks": lambda document: table_of(document)["blocks"]["tuple"].pop(),
    "of another kind": lambda document: table_of(document)["blocks"]["tuple"][0]["fields"].update(
        spec={"object": "components.Poisson", "fields": {}}
    ),
}


@pytest.mark.parametrize("change", TABLES.values(), ids=TABLES)
def test_a_table_is_that_of_the_mixture(change, path):
    document, members = parts_of(VERSION_1 / "MemoizedDPMixture.skvt")
    change(document)
    put(path, document, members)
    with pytest.raises(FileError, match="table"):
        load(path)


def test_an_engine_takes_up_nothing_of_another(path):
    document, members = parts_of(VERSION_1 / "MemoizedDPGMM.part.skvt")
    other, _ = parts_of(VERSION_1 / "StructuredBernoulliMixture.part.skvt")
    require_progress(document)["engine"] = require_progress(other)["engine"]
    put(path, document, members)
    with pytest.raises(ValueError, match="does not remember"):
        load(path).resume(rows())


def test_nesting_without_end(path):
    document, members = mixture_parts()
    put(path, document, members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("model.json", "[" * 100_000 + "]" * 100_000)
    with pytest.raises(FileError):
        load(path)


@pytest.mark.parametrize("path", [io.BytesIO(), None, 3])
def test_what_is_no_path_is_refused_with_a_remedy(path):
    with pytest.raises(TypeError, match=rf"type {type(path).__name__}\. .*pickle\.dumps"):
        save(TemperedLDA(2, max_iter=1, random_state=0).fit(np.eye(3)), path)
    with pytest.raises(TypeError, match=rf"type {type(path).__name__}\. "):
        load(path)


def test_zip_bombs(path):
    document, members = mixture_parts()
    members[f"arrays/{len(members)}.npy"] = npy(np.zeros(10**7))
    put(path, document, members, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 10**6
    with pytest.raises(FileError, match="compressed"):
        load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_only_regular_files_are_opened(path):
    # (a pipe that nobody writes to, and zeros without end)
    os.mkfifo(path)
    link = path.with_name("link")
    link.symlink_to("/dev/zero")
    for other in (path, link, "/dev/zero", path.parent):
        with pytest.raises(FileError, match="not a regular file"):
            load(other)


def test_files_that_are_cut_short_or_none(path):
    whole = (VERSION_1 / "MemoizedHDP.part.skvt").read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int):
        path.write_bytes(whole[:length])
        with pytest.raises(FileError):
            load(path)
    path.write_bytes(pickle.dumps([1, 2]))
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
def test_mutated_files_get_an_error_or_make_an_estimator_that_works(path):
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
def test_whatever_is_in_a_file_all_methods_work_or_raise_value_errors(tmp_path, pytestconfig):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    number = os.environ.get("SKVT_MUTATED_FILES", "200")
    if int(number) > 200:  # (loops with bounds checked are compiled anew, which takes minutes)
        environment["NUMBA_BOUNDSCHECK"] = "1"
        environment["NUMBA_CACHE_DIR"] = str(pytestconfig.cache.mkdir("boundscheck"))
    write_sources(tmp_path)
    command = [sys.executable, _mutated.__file__, tmp_path, "0", number]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    # (a file may ask for verbose passes)
    lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
    *faults, seen = map(json.loads, lines)
    assert found.returncode == 0, found.stderr
    assert not faults, found.stdout
    assert min(seen["seen"].values()) > 0.1 * int(number)


def test_flipped_bytes_get_an_error(path):
    whole = (VERSION_1 / "TemperedLDA.part.skvt").read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(whole), size=100):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        path.write_bytes(flipped)
        with suppress(FileError):  # unless it is a byte that nobody reads, such as a date's
            assert load(path).n_features_in_ == 25
