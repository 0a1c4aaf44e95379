"""Fits to rows in Dask's chunks do not depend on where the chunks lie."""

import os
import pickle
import signal
import sys
import time
import warnings
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimators._registry import StopAfter
from estimators.test_callbacks import Spy
from sklearn.base import clone

import skvt
from skvt.components import LatentGaussian
from skvt.temperature import LocalTempering, VariationalTempering


def _words():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(30, 0.1), 4)
    means = rng.dirichlet(np.full(4, 0.3), 120) @ topics
    return np.array([rng.multinomial(30, mean) for mean in means], float)


def _points():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(m, s, size=(60, 3)) for m, s in ((0, 1), (4, 0.5), (-5, 1.5))])
    return rng.permutation(X)


def _holes():
    X = _points()
    return np.where(np.random.default_rng(2).random(X.shape) < 0.1, np.nan, X)


def _bits():
    rng = np.random.default_rng(3)
    return (rng.random((120, 8)) < np.where(np.arange(120)[:, None] % 2, 0.2, 0.8)) * 1.0


# Every engine, and every kind of temperature.
FITS = {
    "online": (skvt.TemperedLDA(4, max_iter=2, batch_size=16, doc_topic_prior="auto"), _words),
    "batch": (skvt.TemperedLDA(4, max_iter=3, learning_method="batch", moves=()), _words),
    "by row": (
        skvt.TemperedLDA(4, max_iter=3, batch_size=16, temperature=LocalTempering()), _words),
    "learned": (
        skvt.TemperedLDA(4, max_iter=3, learning_method="batch",
                         temperature=VariationalTempering()), _words),
    "sampled": (skvt.StructuredLDA(4, max_iter=2, batch_size=16), _words),
    "corrected": (
        skvt.StructuredLDA(4, max_iter=2, batch_size=16, global_step="ssvi", local_step="cvb0"),
        _words),
    "topics": (skvt.MemoizedHDP(max_iter=4, batch_size=20, n_polish=0, max_components=6), _words),
    "polished": (skvt.MemoizedHDP(3, max_iter=2, batch_size=20, n_polish=3, moves=()), _words),
    "mixture": (skvt.MemoizedDPGMM(max_iter=5, batch_size=25, max_components=3), _points),
    "holes": (skvt.MemoizedDPGMM(max_iter=3, moves=("merge", "delete")), _holes),
    "table": (skvt.MemoizedDPMixture(max_iter=4, batch_size=25, max_components=3), _holes),
    "stochastic": (
        skvt.MemoizedDPGMM(3, max_iter=2, batch_size=20, learning_method="online"), _points),
    "matrix": (skvt.StructuredGaPNMF(4, max_iter=4), _words),
    "factors": (skvt.AnnealedFactorialMixture(3, max_iter=6), _points),
    "binary": (skvt.StructuredBernoulliMixture(3, max_iter=3), _bits),
    "textbook": (skvt.CAVIGaussianMixture(3, max_iter=4), _points),
}  # fmt: skip


def chunked(X, lengths=None):
    """X as a Dask array of chunks of unequal lengths, one of them empty."""
    n = len(X)
    lengths = lengths or (50, 0, n - 80, 30)
    return da.from_array(X, chunks=(lengths, -1))


def unfitted(name, **changes):
    return clone(FITS[name][0]).set_params(random_state=0, **changes)


def fitted(name, X=None, **changes):
    X = chunked(FITS[name][1]()) if X is None else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return unfitted(name, **changes).fit(X)


def bits(estimator):
    """The bound and the bytes of all statistics of a fit."""
    arrays = estimator._fitted.stats.as_stats().arrays
    return estimator.elbo_, *(np.ascontiguousarray(array).tobytes() for array in arrays)


@pytest.fixture(autouse=True)
def one_thread():
    """Dask computes chunks one after the other unless a test chooses another scheduler."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes on this machine, of two threads each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, host="127.0.0.1", dashboard_address=":0",
            silence_logs=60,
        ) as cluster:  # fmt: skip
            yield cluster


@pytest.fixture
def client(cluster):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.Client(cluster) as client:
            client.wait_for_workers(2)
            yield client


# ------------------------------------------------------------------------------------------ fits
@pytest.mark.quick_cases("factors", "textbook")
@pytest.mark.parametrize("name", ["topics", "table", "factors", "textbook"])
def test_a_warm_start_on_the_same_chunks_never_lowers_the_bound(name):
    warm, X = unfitted(name, temperature=None, warm_start=True), chunked(FITS[name][1]())
    before = warm.fit(X).elbo_
    assert warm.fit(X).elbo_ > before - 1e-9 * abs(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_fits_have_the_same_bits_wherever_chunks_lie(name, request):
    with dask.config.set(scheduler="threads"):
        expected = bits(fitted(name))
    request.getfixturevalue("client")
    there = fitted(name)
    assert bits(there) == expected
    assert bits(pickle.loads(pickle.dumps(there))) == expected


@pytest.mark.quick_cases("batch-changes0", "mixture", "matrix", "binary", "textbook")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("batch", {"temperature": None, "doc_topic_prior": "auto", "topic_word_prior": "auto"}),
        ("batch", {"temperature": "annealed"}),
        ("mixture", {"learning_method": "batch", "moves": ("delete", "merge")}),
        ("holes", {"learning_method": "batch", "moves": ()}),
        ("table", {"learning_method": "batch", "moves": ()}),
        ("matrix", {"local_step": "mean_field", "global_step": "mean_field"}),
        ("factors", {"moves": (), "temperature": None}),
        ("binary", {"learning_method": "memoized", "moves": ()}),
        ("textbook", {}),
    ],
)
def test_chunks_change_only_the_rounding_of_full_passes(name, changes):
    X = FITS[name][1]()
    with dask.config.set(scheduler="threads"):
        parts = fitted(name, chunked(X), **changes)
    whole = fitted(name, X, **changes)
    assert parts.elbo_ == pytest.approx(whole.elbo_, rel=1e-12)
    np.testing.assert_allclose(parts.history_["elbo"], whole.history_["elbo"], rtol=1e-12)


def test_weights_of_chunks_are_those_of_rows():
    X, weights = _points(), np.random.default_rng(4).uniform(0.5, 2.0, 180)
    weights[[3, 60]] = 0.0
    weights[150:] = 0.0  # All rows of a chunk have weight 0.
    settings = {"max_iter": 4, "learning_method": "batch", "random_state": 0, "moves": ()}
    expected = skvt.MemoizedDPGMM(3, **settings).fit(X, sample_weight=weights).elbo_
    for given in (da.from_array(weights, chunks=70), weights):
        found = skvt.MemoizedDPGMM(3, **settings).fit(chunked(X), sample_weight=given)
        assert found.elbo_ == pytest.approx(expected, rel=1e-12)
    unknown = chunked(X)[da.from_array(X[:, 0] > -9.0, chunks=((50, 0, 100, 30),))]
    again = skvt.MemoizedDPGMM(3, **settings).fit(unknown, sample_weight=unknown[:, 0] * 0.0 + 2.0)
    assert again._fitted.n_rows == pytest.approx(2.0 * np.sum(X[:, 0] > -9.0))


def test_batches_visited_at_once_raise_the_exact_bound():
    X = chunked(_points())
    settings = {"batch_size": 20, "moves": (), "max_iter": 8, "random_state": 0}
    for number in (1, 3, 20):
        mixture = skvt.MemoizedDPGMM(4, n_parallel_batches=number, **settings).fit(X)
        assert np.all(np.diff(mixture.history_["elbo"]) > -1e-9)
        # The bound that visits of the batches have left is at most the bound of the rows.
        assert mixture.elbo_ <= mixture.elbo(X) + 1e-9 * abs(mixture.elbo_)


# --------------------------------------------------------------------------------------- answers
@pytest.mark.quick_cases("mixture", "batch", "textbook")
@pytest.mark.parametrize(
    ("name", "questions"),
    [
        ("batch", {"transform": {}}), ("table", {"predict": {}}), ("matrix", {"transform": {}}),
        ("mixture", {"predict": {}, "predict_proba": {"n_clusters": 2}, "score_samples": {}}),
        ("textbook", {"predict_proba": {"n_clusters": 2}}),
        ("factors", {"transform": {}, "score_samples": {}}),
    ],
)  # fmt: skip
def test_answers_for_each_row_are_lazy_arrays(name, questions):
    X = FITS[name][1]().astype(np.float32)
    rows = chunked(X)
    estimator = fitted(name, rows)
    for question, options in questions.items():
        expected = getattr(estimator, question)(X, **options)
        found = getattr(estimator, question)(rows, **options)
        assert isinstance(found, da.Array)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found._meta.dtype == expected.dtype and found._meta.ndim == expected.ndim
        np.testing.assert_allclose(found.compute(), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="is expecting"):
        getattr(estimator, question)(rows[:, 1:])


@pytest.mark.parametrize("name", ["batch", "matrix", "mixture"])
def test_scores_are_those_of_all_rows(name):
    X = FITS[name][1]()
    estimator, rows = fitted(name, X), chunked(X)
    assert estimator.score(rows) == pytest.approx(estimator.score(X), rel=1e-10)
    assert estimator.elbo(rows) == pytest.approx(estimator.elbo(X), rel=1e-12)
    weights = np.random.default_rng(4).uniform(0.5, 2.0, len(X))
    weights[3] = weights[-30:] = 0.0  # One row and all rows of the last chunk have weight 0.
    expected = estimator.score(X, sample_weight=weights)
    for given in (da.from_array(weights, chunks=70), weights):
        assert estimator.score(rows, sample_weight=given) == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ValueError, match=r"0 sample\(s\) of positive weight"):
        estimator.score(rows, sample_weight=0.0 * weights)


# ------------------------------------------------------------------------------- kinds of chunks
def test_chunks_may_be_sparse_or_delayed():
    X = _words()
    expected = bits(fitted("batch"))
    assert bits(fitted("batch", chunked(X).map_blocks(sp.csr_array))) == expected
    parts = [dask.delayed(sp.csr_matrix)(rows) for rows in np.split(X, [50, 90])]
    estimator = fitted("batch", parts)
    assert bits(estimator) == expected
    assert estimator.transform(parts).compute().shape == (120, 4)
    whole, weights = dask.delayed(X), dask.delayed(np.ones)(120)
    single = skvt.TemperedLDA(4, max_iter=3, learning_method="batch", moves=(), random_state=0)
    assert single.fit(whole, sample_weight=weights).transform(whole).compute().shape == (120, 4)


def test_chunks_may_be_sparse_after_dense_ones():
    X, given = _words(), {"max_iter": 2, "random_state": 0}
    dense_first = [dask.delayed(X[:50]), dask.delayed(sp.csr_array)(X[50:])]
    sparse_first = [dask.delayed(sp.csr_array)(X[:50]), dask.delayed(X[50:])]
    for kind in (skvt.StructuredGaPNMF(4, **given), skvt.StructuredBernoulliMixture(4, **given)):
        kind = kind.set_params(binarize=0.5) if hasattr(kind, "binarize") else kind
        expected = clone(kind).fit(sparse_first).elbo(X)
        assert clone(kind).fit(dense_first).elbo(X) == pytest.approx(expected, rel=1e-9)


def test_categories_of_a_table_are_those_of_all_chunks():
    X = _points()
    table = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "kind": np.where(X[:, 2] > 0, "b", "a")})
    table.loc[:100, "kind"] = "a"
    settings = {"learning_method": "batch", "moves": (), "random_state": 0, "max_iter": 5}
    rows = dd.from_pandas(table, npartitions=3)
    parts, whole = (skvt.MemoizedDPMixture(3, **settings).fit(held) for held in (rows, table))
    assert parts.elbo_ == pytest.approx(whole.elbo_, rel=1e-12)
    assert list(parts.feature_names_in_) == ["x", "y", "kind"]
    np.testing.assert_array_equal(parts.predict(rows).compute(), whole.predict(table))
    for other, message in (
        (table.assign(kind=1.0), r"'kind' must have the same kind.* in chunk 0 and 'num"),
        (table[["x", "kind", "y"]], "same order. Column 1 is 'y' in chunk 0, 'kind' in chunk 2"),
        (table[["x", "y"]], "Column 2 is 'kind' in chunk 0, missing in chunk 2"),
    ):
        with pytest.raises(ValueError, match=message):
            parts.fit([*map(dask.delayed, (table, table[:0], other))])
    for method, *column in (["impute"], ["predict_column", "x"], ["score_column", "x"]):
        with pytest.raises(TypeError, match=r"takes rows in memory\. Got rows of Dask"):
            getattr(parts, method)(rows, *column)


def test_levels_of_ordinal_columns_are_those_of_all_chunks():
    X = _points()
    X[:, 1] = np.digitize(X[:, 1], [-1.0, 0.0, 1.5])
    X = X[np.argsort(X[:, 1], kind="stable")]  # Each chunk misses some levels.
    X[::7, 1] = np.nan
    components = [("all", LatentGaussian([1], mean_prior="auto"), slice(None))]
    changes = {"components": components, "learning_method": "batch", "moves": ()}
    whole, parts = (fitted("table", rows, n_components=3, **changes) for rows in (X, chunked(X)))
    assert parts.elbo_ == pytest.approx(whole.elbo_, rel=1e-12)


def test_partial_fit_takes_chunk_after_chunk():
    X = _points()
    settings = {"max_components": 3, "random_state": 0}
    one = skvt.MemoizedDPGMM(**settings).partial_fit(chunked(X)).partial_fit(chunked(X))
    other = skvt.MemoizedDPGMM(**settings)
    for rows in 2 * [X[:50], X[50:150], X[150:]]:
        other.partial_fit(rows)
    assert one.n_iter_ == 6
    np.testing.assert_array_equal(one.means_, other.means_)
    assert len(other.labels_) == 30 and not hasattr(one, "labels_")
    replaced = skvt.MemoizedDPGMM(moves=(), random_state=0)
    for _ in range(2):
        replaced.partial_fit(chunked(X), batch_id="a")
    assert replaced._fitted.n_rows == 180.0


# ------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (lambda: da.from_array(_words(), chunks=(60, 10)), ValueError, r"rechunk\(\{1: -1\}\)"),
        (lambda: da.from_array(_words().astype(object), chunks=(60, 30)), TypeError, "object"),
        (lambda: chunked(_words()).astype(str), TypeError, "must hold numbers"),
        (lambda: da.from_array(np.ones(9), chunks=3), ValueError, "Expected 2D array"),
        (lambda: [], ValueError, "Expected 2D array"),
        (lambda: da.ones((4, 3, 2), chunks=2), ValueError, "Expected 2D array"),
        (lambda: chunked(_words() - (np.arange(120) > 99)[:, None]), ValueError,
         "In chunk 3 of X: Negative values"),
        (lambda: chunked(_words())[:0], ValueError, "0 sample"),
        (lambda: [dask.delayed(_words()), dask.delayed(_words()[:, 1:])], ValueError,
         "In chunk 1 of X: X has 29 features"),
    ],
)  # fmt: skip
def test_illegal_chunks_are_refused_before_any_work(X, error, message):
    estimator = skvt.TemperedLDA(3)
    with pytest.raises(error, match=message):
        estimator.fit(X())
    assert not hasattr(estimator, "n_iter_")


class Unreadable(Exception):
    """An error of a user's own function."""


def _unreadable():
    raise Unreadable("broken disk")


def _another_chunk():
    rng = np.random.default_rng()
    return dask.delayed(lambda: _points()[: rng.integers(10, 90)], pure=False)()


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (lambda: dask.delayed(lambda: None)(), TypeError, "In chunk 1 of X: .* type NoneType"),
        (lambda: dask.delayed(_unreadable)(), Unreadable, r"broken disk\s+In chunk 1 of X"),
        (_another_chunk, ValueError, "In chunk 1 of X: A chunk must have the same rows"),
    ],
)
def test_a_chunk_that_cannot_be_used_is_named(bad, error, message):
    parts, fits = [dask.delayed(_points()), bad()], fitted("stochastic")
    with pytest.raises(error, match=message):
        fitted("stochastic", parts, tol=0.0, max_iter=30)
    if bad is not _another_chunk:
        with pytest.raises(error, match=message):
            fits.partial_fit(parts)
        with pytest.raises(error, match=message.replace(r"\s+In chunk 1 of X", "")):
            fits.predict(parts).compute()


def test_chunks_are_in_single_precision_if_all_are():
    X = _points().astype(np.float32)
    single = fitted("stochastic", [*map(dask.delayed, (X[:60], X[:0], X[60:]))])
    assert single.means_.dtype == np.float32
    expected = bits(fitted("stochastic", chunked(X.astype(float), (60, 120))))
    for types in ((np.float32, np.float64), (np.float64, np.float32)):
        parts = X[:60].astype(types[0]), X[60:].astype(types[1])
        assert bits(fitted("stochastic", [*map(dask.delayed, parts)])) == expected


def test_illegal_weights_and_labels_are_refused():
    X = chunked(_points())
    with pytest.raises(ValueError, match=r"0 sample\(s\) of positive weight"):
        skvt.MemoizedDPGMM().fit(X, sample_weight=np.zeros(180))
    for weights in (np.ones(7), da.ones(180, chunks=180)[da.ones(180, chunks=180) > 0.0]):
        with pytest.raises(ValueError, match="sample_weight must"):
            skvt.MemoizedDPGMM().fit(X, sample_weight=weights)
    nothing = dask.delayed(lambda: None)()
    with pytest.raises(ValueError, match=r"In chunk 0 of X: .*sample_weight"):
        skvt.MemoizedDPGMM().fit([dask.delayed(_points())], sample_weight=[nothing])
    with pytest.raises(ValueError, match="labels_init"):
        skvt.MemoizedDPGMM(labels_init=np.zeros(180, int)).fit(X)
    with pytest.raises(ValueError, match="n_components = 200"):
        skvt.MemoizedDPGMM(200).fit(X)


# ---------------------------------------------------------------------------------------- faults
class KillsWorker(Spy):
    """Kill a worker process in the middle of the second pass."""

    def __init__(self, cluster):
        super().__init__()
        self._cluster = cluster

    def on_fit_task_begin(self, estimator, context):
        super().on_fit_task_begin(estimator, context)
        if self.calls[-1] == ("begin", "pass", 1):
            worker = next(iter(self._cluster.workers.values()))
            os.kill(worker.process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_that_dies_changes_nothing(cluster, client):
    with dask.config.set(scheduler="synchronous"):
        expected = bits(fitted("mixture"))
    killer = KillsWorker(cluster)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = unfitted("mixture").set_callbacks(killer).fit(chunked(_points()))
    assert bits(again) == expected
    assert killer.count("begin", "pass") >= 2


@pytest.mark.slow
def test_an_error_in_a_worker_leaves_the_estimator_as_it_was(client):
    estimator = fitted("mixture")
    before = bits(estimator)
    with pytest.raises(ValueError, match=r"In chunk [23] of X"):
        estimator.fit(da.where(chunked(_points()) > 5.5, np.inf, chunked(_points())))
    assert bits(estimator) == before
    end = time.monotonic() + 10.0
    while client.futures and time.monotonic() < end:
        time.sleep(0.01)
    assert not client.futures  # The cluster keeps nothing.


def _fit_and_score():
    model = fitted("batch", max_iter=1)
    return bits(model), model.score(chunked(_words()))


@pytest.mark.slow
def test_tasks_that_fit_do_not_block_the_threads_that_compute_their_chunks(client):
    with dask.config.set(scheduler="synchronous"):
        expected = _fit_and_score()
    # The pytest command does not put the folder of the tests on the path of other processes.
    client.run(lambda root: sys.path.append(root), str(Path(__file__).parents[2]))
    n_threads = sum(client.nthreads().values())
    tasks = [client.submit(_fit_and_score, pure=False) for _ in range(n_threads)]
    assert [task.result(timeout=120) for task in tasks] == [expected] * n_threads


@pytest.mark.parametrize("name", ["online", "mixture"])
def test_a_fit_to_chunks_is_resumed_with_the_same_bits(name, tmp_path):
    X, path = chunked(FITS[name][1]()), tmp_path / "fit.skvt"
    expected = fitted(name, max_iter=5, tol=0.0)
    with pytest.raises(KeyboardInterrupt):
        unfitted(name, max_iter=5, tol=0.0).set_callbacks(StopAfter(path, 2)).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert bits(skvt.load(path).resume(X)) == bits(expected)
    for other in (X.rechunk((60, -1)), FITS[name][1]()):
        with pytest.raises(ValueError, match="resume continues with the rows"):
            skvt.load(path).resume(other)
