"""The last digits of sums differ between processors and change no answer."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.decomposition import LatentDirichletAllocation

from skvt import CAVIGaussianMixture, MemoizedDPGMM, top_words
from skvt.contracts import FitPlan
from skvt.inference import Stopping
from skvt.inference._loop import _has_converged
from skvt.metrics import topic_coherence
from skvt.models.mixture._model import Mixture
from skvt.temperature import GeometricAnnealing, LinearAnnealing

CORNERS = np.array(list(product([-6.0, 6.0], repeat=2)))


def last_digits(seed):
    """A function that changes the last digits of an array's numbers."""
    rng = np.random.default_rng(seed)

    def off(array):
        noise = rng.uniform(-8.0, 8.0, array.shape) * np.finfo(array.dtype).eps
        return (array * (1.0 + noise)).astype(array.dtype)

    return off


def shaken(step, seed):
    """A local step whose statistics and bounds are off by their last digits."""
    off = last_digits(seed)

    def noisy(*args, **kwargs):
        result = step(*args, **kwargs)
        changes = {"bound": off(result.bound)}
        if result.stats is not None:
            arrays = tuple(off(array) for array in result.stats.arrays)
            changes["stats"] = replace(result.stats, arrays=arrays)
        return replace(result, **changes)

    return noisy


def mirrored(n_offsets=6, times=2, n_corners=4):
    """Clusters of equally many rows, each the mirror image of the others; rows several times."""
    offsets = np.abs(np.random.default_rng(0).normal(size=(n_offsets, 2)))
    signs = np.array(list(product([-1.0, 1.0], repeat=2)))
    cluster = (offsets[:, None] * signs).reshape(-1, 2)
    return np.concatenate([corner + cluster for corner in CORNERS[:n_corners]] * times)


CASES = {
    "components of exactly as many rows as a birth needs": (MemoizedDPGMM, mirrored(5, 1)),
    "single precision": (MemoizedDPGMM, mirrored().astype(np.float32)),
    "known weights": (
        lambda: CAVIGaussianMixture(3, weights=[0.2, 0.3, 0.5]), mirrored(n_corners=3)
    ),
    "starts that end alike": (lambda: CAVIGaussianMixture(2, n_init=4), mirrored(n_corners=2)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_last_digits_change_no_choice(case, monkeypatch):
    make, X = CASES[case]
    step, expected = Mixture.local_step, None
    for seed in range(2):
        monkeypatch.setattr(Mixture, "local_step", shaken(step, seed))
        fitted = make().set_params(random_state=0).fit(X)
        monkeypatch.setattr(Mixture, "local_step", step)
        log = getattr(fitted, "move_log_", {})
        answer = [log[name] for name in ("move", "proposed", "accepted") if log]
        answer += [fitted.n_iter_, fitted.predict(X).tolist()]
        assert expected is None or answer == expected
        expected = answer


@pytest.mark.parametrize("seed", range(4))
def test_a_row_between_two_components_belongs_to_the_first(seed, monkeypatch):
    monkeypatch.setattr(Mixture, "local_step", shaken(Mixture.local_step, seed))
    X = mirrored(n_corners=2)[:, 1:]
    mixture = CAVIGaussianMixture(2, random_state=0).fit(X)
    np.testing.assert_allclose(mixture.predict_proba([[0.0]]), 0.5, rtol=1e-9)
    assert mixture.predict([[0.0]]) == 0


@pytest.mark.parametrize("seed", range(4))
def test_words_that_are_equally_probable_stand_in_the_order_of_the_columns(seed):
    model = LatentDirichletAllocation(2)
    model.components_ = last_digits(seed)(np.array([[3.0, 1.0, 3.0, 5.0, 1.0, 3.0]] * 2))
    assert top_words(model) == [[3, 0, 2, 5, 1, 4]] * 2


@pytest.mark.parametrize("seed", range(4))
def test_coherence_takes_equally_probable_words_in_the_order_of_the_columns(seed):
    topic = np.array([[3.0, 1.0, 3.0, 5.0, 1.0, 3.0]])
    X = np.random.default_rng(0).integers(0, 2, size=(30, 6))
    expected = topic_coherence(topic, X, n_words=3)
    assert topic_coherence(last_digits(seed)(topic), X, n_words=3) == expected
    # The last words in the order of the columns have another coherence.
    assert topic_coherence(topic[:, ::-1], X[:, ::-1], n_words=3) != expected


def test_at_rest_a_fall_by_the_last_digits_is_none():
    stopping = Stopping(10, tol=1e-3)

    def at_rest(current, stopping=stopping, dtype=np.float64):
        return _has_converged(-1e3, current, 1.0, stopping, monotone=False, dtype=dtype)

    for fall, expected in {1e-12: True, 1e-7: False}.items():
        assert at_rest(-1e3 * (1.0 + fall)) is expected
    assert at_rest(-1e3 * (1.0 + 1e-7), dtype=np.float32)
    assert not at_rest(-1e3 * (1.0 + 1e-12), Stopping(10, tol=0.0))
    assert not at_rest(np.nan)


@pytest.mark.parametrize("policy", [LinearAnnealing(n_passes=3.0), GeometricAnnealing(1.2, 3.0)])
def test_annealing_ends_though_the_rows_do_not_quite_add_up(policy):
    running = policy.start(FitPlan(None, 10, 100, 100.0, None))
    running.advance(2.5 - 1e-3, 1.0, 5)
    assert not running.done
    running.advance(2.5 - 1e-15, 1.0, 5)
    assert running.done and running.mean_inv_temp == 1.0 and running.replication == 1.0
