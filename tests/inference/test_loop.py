"""Fits and streams record their passes, and fits stop or warn by their tolerance."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skvt import (
    AnnealedFactorialMixture,
    CAVIGaussianMixture,
    MemoizedDPGMM,
    StructuredBernoulliMixture,
    StructuredGaPNMF,
    TemperedLDA,
)
from skvt.inference import Stopping
from skvt.inference._loop import _has_converged

RNG = np.random.default_rng(0)
REALS = RNG.normal(size=(60, 2)) + RNG.integers(3, size=(60, 1)) * 4.0
BITS = (RNG.random((60, 6)) < 0.5).astype(float)
COUNTS = RNG.poisson(1.0, size=(60, 8)).astype(float)

# Estimators that judge the bound, with rows for which two passes are too few.
JUDGED = [
    (MemoizedDPGMM(2, tol=1e-12, moves=("merge",), random_state=0), REALS),
    (
        MemoizedDPGMM(2, tol=1e-12, learning_method="online", evaluate_every=1, random_state=0),
        REALS,
    ),
    (
        StructuredBernoulliMixture(
            2, learning_method="structured", tol=1e-12, evaluate_every=1, random_state=0
        ),
        BITS,
    ),
    (StructuredBernoulliMixture(2, tol=1e-12, learning_method="batch", random_state=0), BITS),
    (CAVIGaussianMixture(3, tol=1e-12, random_state=0), REALS),
    (StructuredGaPNMF(2, tol=1e-12, evaluate_every=1, random_state=0), COUNTS),
    (AnnealedFactorialMixture(2, tol=1e-12, random_state=0), REALS),
]
every_judged = pytest.mark.parametrize("estimator, X", JUDGED, ids=lambda value: str(value)[:40])


def make(estimator, **changes):
    return type(estimator)(**(estimator.get_params() | changes))


# ----------------------------------------------------------------------------- no convergence
@every_judged
def test_a_fit_out_of_passes_warns_where_it_was_called(estimator, X):
    estimator = make(estimator, max_iter=2)
    with pytest.warns(ConvergenceWarning, match=r"within max_iter=2 passes.*Raise max_iter") as got:
        estimator.fit(X)
    assert not estimator.converged_
    assert [record.filename for record in got] == [__file__]


@pytest.mark.parametrize(
    "estimator, X",
    [
        (CAVIGaussianMixture(2, max_iter=50, random_state=0), REALS),  # This fit converges.
        (MemoizedDPGMM(max_iter=2, tol=0.0, random_state=0), REALS),  # It judges no gain.
        (  # It knows no bound.
            StructuredBernoulliMixture(2, learning_method="structured", max_iter=2, random_state=0),
            BITS,
        ),
        (StructuredGaPNMF(2, max_iter=4, random_state=0), COUNTS),
        # Its twin in scikit-learn does not warn.
        (TemperedLDA(2, max_iter=2, evaluate_every=1, perp_tol=1e-9, random_state=0), COUNTS),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_fit_that_converges_or_judges_no_gain_does_not_warn(estimator, X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.fit(X)


@pytest.mark.parametrize(
    "estimator, X, n_units",
    [
        (
            StructuredGaPNMF(
                3, tol=1e-2, evaluate_every=1, local_step="mean_field",
                global_step="mean_field", random_state=0,
            ),
            COUNTS,
            60,
        ),
        (
            # By perp_tol it would end at once.
            TemperedLDA(
                3, tol=1e-4, perp_tol=1e6, evaluate_every=1, max_iter=100, temperature=None,
                moves=(), learning_method="batch", random_state=0,
            ),
            COUNTS,
            COUNTS.sum(),
        ),
    ],
    ids=["rows", "words"],
)  # fmt: skip
def test_the_tolerance_is_in_nats_per_row_or_word(estimator, X, n_units):
    fitted = make(estimator).fit(X)
    gains = np.diff(fitted.history_["elbo"])
    assert fitted.converged_
    assert gains[-1] < estimator.tol * n_units <= gains[:-1].min()


def test_a_warning_as_an_error_leaves_the_estimator_unfitted():
    mixture = CAVIGaussianMixture(3, max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            mixture.fit(REALS)
    assert not hasattr(mixture, "n_iter_") and not hasattr(mixture, "means_")


def test_the_warning_of_a_falling_bound_names_other_causes():
    with pytest.warns(
        ConvergenceWarning, match="begin anew .* other optima, which is not an error"
    ):
        stopping = Stopping(2, tol=1.0)
        assert not _has_converged(-100.0, -100.3, 60.0, stopping, monotone=True, dtype=np.float64)


# ------------------------------------------------------------------------------------ history
@every_judged
def test_the_history_covers_all_passes_since_the_model_began(estimator, X):
    warm = make(estimator, max_iter=2, warm_start=True).fit(X)
    first = warm.history_
    warm.set_params(max_iter=3).fit(X)
    history = warm.history_
    assert history["n_iter"] == [1, 2, 3, 4, 5]
    assert warm.n_iter_ == 5
    for name, values in first.items():
        np.testing.assert_equal(history[name][:2], values)
    assert np.all(np.diff(history["seconds"]) > 0.0)
    # A fit without a warm start begins a new history.
    assert warm.set_params(warm_start=False).fit(X).history_["n_iter"] == [1, 2, 3]


@every_judged
def test_each_call_of_a_stream_has_an_entry(estimator, X):
    stream = make(estimator, max_iter=2).fit(X)
    assert np.isfinite(stream.elbo_)
    for _ in range(3):
        stream.partial_fit(X)
    history = stream.history_
    assert history["n_iter"] == [1, 2, 3, 4, 5] and stream.n_iter_ == 5
    assert np.isnan(history["elbo"][2:]).all() and np.isnan(history["objective"][2:]).all()
    assert np.isfinite(history["temperature"]).all() and np.isfinite(history["learning_rate"]).all()
    assert np.all(np.diff(history["seconds"]) > 0.0)
    with pytest.raises(ValueError):
        stream.partial_fit(X[:, :1])
    np.testing.assert_equal(stream.history_, history)


def test_the_objective_of_minibatches_at_temperature_1_is_the_estimated_bound():
    fitted = TemperedLDA(2, temperature=None, batch_size=20, max_iter=3, random_state=0).fit(COUNTS)
    history = fitted.history_
    np.testing.assert_allclose(history["objective"], history["elbo"], rtol=1e-12)


def test_moves_are_numbered_as_the_passes_and_calls_of_the_history():
    model = MemoizedDPGMM(2, max_iter=2, warm_start=True, random_state=0).fit(REALS)
    log = model.move_log_
    assert set(log["n_iter"]) == {1, 2}
    n_before = len(log["n_iter"])
    again = model.fit(REALS).move_log_["n_iter"]
    assert again[:n_before] == log["n_iter"] and set(again[n_before:]) == {3, 4}
    later = model.partial_fit(REALS).move_log_["n_iter"]
    assert later[: len(again)] == again and set(later[len(again) :]) == {5}


@pytest.mark.parametrize(
    "estimator, X",
    [(TemperedLDA(2, random_state=0), COUNTS), (MemoizedDPGMM(moves=(), random_state=0), REALS)],
    ids=["topics", "mixture"],
)
def test_a_stream_has_no_elbo_and_names_the_method_for_it(estimator, X):
    stream = make(estimator).partial_fit(X)
    for _ in range(2):
        assert not hasattr(stream, "elbo_")
        with pytest.raises(AttributeError, match=r"'elbo_'.* after partial_fit.*elbo\(X\) is"):
            _ = stream.elbo_
        assert np.isfinite(stream.elbo(X))
        # A stream after a fit has no bound, either.
        stream = make(estimator, max_iter=2).fit(X)
        assert hasattr(stream, "elbo_")
        stream.partial_fit(X)
    fresh = make(estimator)
    for name in ("elbo_", "history_"):
        assert not hasattr(fresh, name)


def test_a_failed_call_has_no_entry_and_keeps_the_bound(monkeypatch):
    lda = TemperedLDA(2, max_iter=2, batch_size=20, random_state=0).fit(COUNTS)
    elbo, step, calls = lda.elbo_, type(lda._fitted.model).local_step, []

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError
        return step(*args, **kwargs)

    monkeypatch.setattr(type(lda._fitted.model), "local_step", failing)
    with pytest.raises(RuntimeError):
        lda.partial_fit(COUNTS)
    assert lda.history_["n_iter"] == [1, 2] and lda.n_iter_ == 2
    assert lda.elbo_ == elbo
