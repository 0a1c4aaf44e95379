"""A fit that is interrupted and resumed ends with the same bits."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from estimators._registry import ENTRIES, StopAfter, assert_same_fit, counts, rows, sums, takes
from joblib import parallel_config
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import skvt
from skvt import load
from skvt._estimators import _structured_lda
from skvt._replacing import open_replacement
from skvt.callbacks import Checkpoint
from skvt.datasets import make_topic_corpus


class Copies(Checkpoint):
    """Keeps the file of each pass under its own name."""

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        super().on_fit_task_end(estimator, context, fitted_estimator=fitted_estimator)
        if context.task_name == "pass":
            os.replace(self.path, self.path.with_name(f"{self._n_passes}.skvt"))

    def files(self):
        return [self.path.with_name(f"{i + 1}.skvt") for i in range(self._n_passes)]


def fit_with_copies(estimator, X, folder, **given):
    copies = Copies(folder / "fit.skvt")
    estimator.set_callbacks(copies).fit(X, **given)
    estimator.set_callbacks()
    return copies.files()


FITS = [
    pytest.param(entry, temperature, params, id=f"{entry}-{temperature}-{''.join(params)}")
    for entry in ENTRIES
    for temperature, params in [
        (None, {"n_init": 2}),
        ("annealed", {}),
        ("annealed", {"warm_start": True}),
        ("variational", {}),
        ("local", {"n_init": 2}),
    ]
    if takes(entry, temperature) and not (entry.alike and temperature)
]


@pytest.mark.quick_cases(
    "))]-None",
    "CAVIGaussianMixture-None",
    "LDA-online-None",
    "64.0-None",
    "LDA-online-annealed-warm_start",
)
@pytest.mark.parametrize(("entry", "temperature", "params"), FITS)
def test_a_fit_can_be_resumed_after_any_pass(entry, temperature, params, tmp_path):
    heat = {} if temperature is None else {"temperature": temperature}
    fit, X = entry.make(**heat, **params), entry.data()
    if params.get("warm_start"):
        fit.fit(entry.data(1))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    files = fit_with_copies(fit, X, tmp_path, sample_weight=weights)
    assert len(files) == 4 * params.get("n_init", 1)
    for file in files[:: 3 if params else 2]:
        resumed = load(file).resume(X, sample_weight=weights)
        assert_same_fit(resumed, fit)
        for one, other in zip(entry.answers(resumed, X), entry.answers(fit, X), strict=True):
            np.testing.assert_array_equal(one, other)


FIRST_FITS = {
    "mixture": (skvt.MemoizedDPGMM(2, moves=(), max_iter=2), rows),
    "factors": (skvt.AnnealedFactorialMixture(3, max_iter=3), sums),
    "sounds": (skvt.StructuredGaPNMF(3, max_iter=3, local_step="mean_field"), counts),
    "topics": (skvt.StructuredLDA(3, global_step="collapsed", max_iter=14), counts),
}


@pytest.mark.parametrize(("fit", "data"), FIRST_FITS.values(), ids=FIRST_FITS)
def test_later_starts_of_a_resumed_fit_with_warm_start_begin_anew(fit, data, tmp_path):
    X = data()
    fit = clone(fit).set_params(n_init=2, warm_start=True, random_state=0)
    first, *_ = fit_with_copies(fit, X, tmp_path)
    resumed = load(first).resume(X)
    np.testing.assert_array_equal(resumed.restart_elbos_, fit.restart_elbos_)
    np.testing.assert_array_equal(resumed._fitted.stats.arrays[0], fit._fitted.stats.arrays[0])


def few_documents():
    given = {"mean_length": 25.0, "doc_topic_prior": 0.3, "topic_word_prior": 0.1}
    return make_topic_corpus(250, n_components=12, n_features=60, random_state=0, **given).X


def grades():
    return np.random.default_rng(0).integers(3, size=(40, 2)).astype(float)


ORDINAL = [("grades", skvt.components.LatentGaussian(ordinal=[1]), [0, 1])]
LEARNED = {"doc_topic_prior": "auto", "topic_word_prior": "auto"}
# An estimator, its rows, the number of files and the distance between those that are resumed.
REMEMBERING = {
    "births": (
        skvt.MemoizedDPGMM(max_iter=9, n_batches=4, max_components=8),
        lambda: rows(n_rows=700, n_features=4, n_clusters=7), None, 5,
    ),
    "moves of topics": (
        skvt.MemoizedHDP(n_components=8, max_iter=12, tol=0.0, n_polish=3),
        lambda: counts(n_rows=200, n_features=40, n_topics=4), None, 5,
    ),
    "split-merge": (
        skvt.TemperedLDA(5, temperature=None, max_iter=12),
        lambda: counts(n_rows=200, n_features=40, n_topics=5), 12, 5,
    ),
    "superposition": (
        skvt.AnnealedFactorialMixture(4, max_iter=24),
        lambda: sums(n_rows=200, n_features=8, n_components=4), None, 7,
    ),
    "a second start from several topics": (
        skvt.MemoizedHDP(max_iter=4, n_polish=3), few_documents, 7, 4),
    "a mean of topics and a polish": (
        skvt.TemperedLDA(3, topic_word_prior="auto", batch_size=8, max_iter=3, n_polish=3,
                         average=0.7, temperature=None),
        counts, 6, 1,
    ),
    "topics of tokens": (
        skvt.StructuredLDA(3, global_step="collapsed", max_iter=12, average=0.5, **LEARNED),
        counts, 12, 3,
    ),
    "ordinal columns in a later start": (
        skvt.MemoizedDPMixture(components=ORDINAL, n_init=2, max_iter=2, tol=0.0), grades, 4, 4),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The fit ended with one topic")
@pytest.mark.quick_cases("superposition", "several", "mean", "tokens", "ordinal")
@pytest.mark.parametrize("name", REMEMBERING)
def test_a_resumed_fit_continues_what_its_parts_remember(name, tmp_path, monkeypatch):
    monkeypatch.setattr(_structured_lda, "MAX_ROWS_OF_BATCH", 12)
    fit, data, n_files, step = REMEMBERING[name]
    fit, X = clone(fit).set_params(random_state=0), data()
    files = fit_with_copies(fit, X, tmp_path)
    assert n_files in (None, len(files))
    if name in ("births", "moves of topics", "split-merge", "superposition"):
        assert sum(fit.move_log_["accepted"]) > 0
    for file in files[::step]:
        assert_same_fit(load(file).resume(X), fit)


def interrupted(path, X, **params):
    """The path of a fit that was interrupted after its third pass."""
    mixture = skvt.MemoizedDPGMM(max_iter=8, tol=0.0, random_state=0, moves=(), **params)
    with pytest.raises(KeyboardInterrupt):
        mixture.set_callbacks(StopAfter(path, 3)).fit(X)
    return path


def test_resume_refuses_other_rows_and_parameters(tmp_path):
    X = rows()
    path = interrupted(tmp_path / "fit.skvt", X, n_components=3)
    others = {
        "40 rows": X[:-1], "6 features": np.c_[X, X], "float64": X.astype(np.float32),
        "checksum": X + np.eye(*X.shape) * 1e-9, "in the same order": X[::-1],
    }  # fmt: skip
    for complaint, other in others.items():
        with pytest.raises(ValueError, match=complaint):
            load(path).resume(other)
    with pytest.raises(ValueError, match="sample_weight"):
        load(path).resume(X, sample_weight=np.arange(1.0, 41.0))
    with pytest.raises(ValueError, match="n_components=3"):
        load(path).set_params(n_components=4).resume(X)
    with pytest.raises(ValueError, match="max_iter"):
        load(path).set_params(max_iter=0).resume(X)


def test_a_resumed_fit_may_have_more_passes(tmp_path):
    X = rows()
    path = interrupted(tmp_path / "fit.skvt", X, n_components=3)
    whole = skvt.MemoizedDPGMM(3, max_iter=20, tol=0.0, random_state=0, moves=()).fit(X)
    resumed = load(path).set_params(max_iter=20).resume(X)
    assert_same_fit(resumed, whole)


def test_only_an_interrupted_fit_can_be_resumed(tmp_path):
    X = rows()
    path = interrupted(tmp_path / "fit.skvt", X)
    for ended in (load(path).resume(X), load(path).fit(X), load(path).partial_fit(X)):
        with pytest.raises(ValueError, match="no interrupted fit"):
            ended.resume(X)


def test_a_failed_resume_can_be_repeated(tmp_path):
    X = rows()
    path = interrupted(tmp_path / "fit.skvt", X)
    fit = load(path)
    with pytest.raises(ValueError, match="same X"):
        fit.resume(X[:-1])
    assert_same_fit(fit.resume(X), load(path).resume(X))


def test_the_last_two_files_are_kept(tmp_path):
    path = tmp_path / "fit.skvt"
    mixture = skvt.MemoizedDPGMM(max_iter=7, tol=0.0, random_state=0, moves=())
    stale = path.with_name("fit.skvt.123.partial")
    stale.write_text("left by a process that was killed")
    mixture.set_callbacks(Checkpoint(path, every=2)).fit(rows())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fit.skvt", "fit.skvt.previous"]
    assert [load(file).n_iter_ for file in (path, f"{path}.previous")] == [6, 4]
    # A process that is killed between two files leaves this state.
    path.with_name("fit.skvt.previous").unlink()
    os.link(path, path.with_name("fit.skvt.previous"))
    load(path).set_callbacks(Checkpoint(path)).set_params(max_iter=9).resume(rows())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fit.skvt", "fit.skvt.previous"]
    assert [load(file).n_iter_ for file in (path, f"{path}.previous")] == [9, 8]
    for every in (0, 1.5, True):
        with pytest.raises(ValueError, match="every must be"):
            Checkpoint(path, every=every)


def test_only_partial_files_of_dead_processes_are_removed(tmp_path):
    path = tmp_path / "fit.skvt"
    dead = path.with_name("fit.skvt.123.partial")
    dead.write_text("left by a process that was killed")
    fit = skvt.MemoizedDPGMM(max_iter=2, moves=(), random_state=0)
    with open_replacement(path) as file:
        file.write(b"half of a file")
        fit.set_callbacks(Checkpoint(path)).fit(rows())
        assert not dead.exists()
        file.write(b", and its end")
    assert path.read_bytes() == b"half of a file, and its end"


POSIX = pytest.mark.skipif(os.name != "posix", reason="links and open files of POSIX")


@POSIX
def test_both_files_of_a_link_are_in_its_target_folder(tmp_path):
    path, target = tmp_path / "fit.skvt", tmp_path / "large_disk" / "fit.skvt"
    target.parent.mkdir()
    path.symlink_to(target)
    fit = skvt.MemoizedDPGMM(max_iter=3, tol=0.0, moves=(), random_state=0)
    fit.set_callbacks(Checkpoint(path)).fit(rows())
    assert path.is_symlink()
    assert [load(file).n_iter_ for file in (target, f"{target}.previous")] == [3, 2]


@POSIX
@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_the_fits_of_a_search_may_share_a_checkpoint(backend, tmp_path):
    path, numbers = tmp_path / "fit.skvt", {"n_components": [2, 3, 4]}
    fit = skvt.MemoizedDPGMM(max_iter=4, tol=0.0, moves=()).set_callbacks(Checkpoint(path))
    with parallel_config(backend, n_jobs=2):
        search = GridSearchCV(fit, numbers, cv=2, error_score="raise").fit(rows())
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert load(path).n_iter_ <= 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fit.skvt", "fit.skvt.previous"]


WRITER = """
import sys
import skvt
from skvt.callbacks import Checkpoint
from estimators._registry import rows
mixture = skvt.MemoizedDPGMM(30, max_iter=10**6, tol=0.0, moves=(), random_state=0)
mixture.set_callbacks(Checkpoint(sys.argv[1])).fit(rows())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.slow
def test_a_killed_process_leaves_whole_files(tmp_path):
    path, rng = tmp_path / "fit.skvt", np.random.default_rng(0)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for _ in range(3):
        path.unlink(missing_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path], env=environment)
        try:
            while not path.exists():
                assert writer.poll() is None
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.1))
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        assert load(path).n_iter_ >= 1
        previous = path.with_name("fit.skvt.previous")
        if previous.exists():
            assert load(previous).n_iter_ >= 1
