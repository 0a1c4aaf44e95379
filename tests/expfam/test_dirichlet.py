"""The Dirichlet family agrees with SciPy, and its concentrations can be fitted."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from scipy.special import digamma, gammaln, logsumexp

from skvt.expfam import Dirichlet

CONCENTRATIONS = {
    "flat": np.ones(4), "sparse": np.array([0.01, 0.02, 0.05]),
    "peaked": np.array([300.0, 2.0, 15.0, 0.7]),
    "one word among many": np.append(np.full(50, 0.1), 40.0), "two": np.array([0.3, 4.0]),
}  # fmt: skip
each_concentration = pytest.mark.parametrize(
    "eta", CONCENTRATIONS.values(), ids=CONCENTRATIONS.keys()
)


@each_concentration
def test_moments_density_and_entropy_are_those_of_scipy(eta):
    twin = scipy.stats.dirichlet(eta)
    np.testing.assert_allclose(Dirichlet.mean(eta), twin.mean(), rtol=1e-12)
    np.testing.assert_allclose(Dirichlet.variance(eta), twin.var(), rtol=1e-12)
    np.testing.assert_allclose(Dirichlet.entropy(eta), twin.entropy(), rtol=1e-10)
    x = np.random.default_rng(0).dirichlet(np.full(eta.size, 5.0), size=7)
    np.testing.assert_allclose(
        Dirichlet.log_density(eta, x), [twin.logpdf(row) for row in x], rtol=1e-11, atol=1e-11
    )


def test_the_density_is_zero_off_the_simplex():
    eta = np.array([2.0, 3.0, 1.0])
    outside = np.array([[0.5, 0.6, 0.1], [1.2, -0.2, 0.0], [0.2, 0.2, 0.2]])
    assert np.all(Dirichlet.log_density(eta, outside) == -np.inf)
    # On the edge the density is 0 if eta > 1, and finite if eta = 1.
    assert Dirichlet.log_density(eta, np.array([0.0, 0.5, 0.5])) == -np.inf
    np.testing.assert_allclose(
        Dirichlet.log_density(eta, np.array([0.4, 0.6, 0.0])),
        gammaln(6.0) - gammaln(2.0) - gammaln(3.0) + np.log(0.4) + 2.0 * np.log(0.6),
    )


# ---------------------------------------------------------------------------------- fitting
def attainable(eta):
    """E[log x] of the member, for which eta is the only maximiser."""
    return digamma(eta) - digamma(eta.sum())


STARTS = {"ones": 1.0, "tiny": 1e-4, "small": 0.02, "large": 50.0, "huge": 1e4}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
@pytest.mark.parametrize(
    "eta",
    [
        np.array([0.2, 0.4, 0.8]), np.array([1e-3, 0.5, 20.0]), np.full(30, 0.03),
        np.array([2000.0, 5.0, 0.01, 0.01]),
    ],
    ids=["moderate", "spread", "sparse", "peaked"],
)  # fmt: skip
def test_a_fit_recovers_the_concentration_from_any_start(eta, start):
    fitted = Dirichlet.fit(np.full(eta.size, start), attainable(eta), max_iter=200)
    np.testing.assert_allclose(fitted, eta, rtol=1e-4)


def test_a_step_is_newtons_and_divides_no_entry_by_more_than_e():
    eta = np.array([0.2, 0.4, 0.8])
    for start in (np.full(3, 50.0), np.full(3, 1.0)):
        change = Dirichlet.fit(start, attainable(eta), max_iter=1) / start - 1.0
        assert np.abs(change).max() == pytest.approx(1.0 - 1.0 / np.e)
    # Near the maximum, a whole step squares the error.
    near = eta * np.array([1.001, 0.999, 1.001])
    np.testing.assert_allclose(Dirichlet.fit(near, attainable(eta), max_iter=1), eta, rtol=4e-6)


def test_a_fit_from_usual_starts_converges_within_the_default_number_of_steps():
    rng = np.random.default_rng(4)
    for _ in range(20):
        size = int(rng.integers(2, 40))
        eta = rng.gamma(0.5, size=size) + 5e-3
        mean_log = attainable(eta)
        fitted = Dirichlet.fit(np.full(size, 1.0 / size), mean_log)
        gradient = mean_log - (digamma(fitted) - digamma(fitted.sum()))
        # This is Newton's decrement in units of the parameter.
        assert np.max(np.abs(gradient * fitted)) < 1e-5


def test_a_fit_is_the_maximum_within_its_range():
    mean_log = np.array([-0.7, -0.8, -1e5])

    def loss(log_eta):
        eta = np.append(np.exp(log_eta), 1e-4)
        return gammaln(eta).sum() - gammaln(eta.sum()) - eta @ mean_log

    best = scipy.optimize.minimize(loss, np.zeros(2), tol=1e-10).x
    fitted = Dirichlet.fit(np.full(3, 0.3), mean_log)
    np.testing.assert_allclose(fitted, [*np.exp(best), 1e-4], rtol=1e-4)
    np.testing.assert_array_equal(Dirichlet.fit(np.ones(2), attainable(np.full(2, 1e6))), 1e4)


def test_a_fit_to_a_single_event_keeps_the_concentration():
    # The only share is 1 for any concentration.
    np.testing.assert_array_equal(Dirichlet.fit(np.array([0.7]), np.zeros(1)), [0.7])
    assert Dirichlet.fit_symmetric(0.7, 0.0, 1) == 0.7


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
@pytest.mark.parametrize(
    ("eta", "n_events"), [(0.01, 1000), (0.5, 3), (1.0, 2), (30.0, 50), (1e-3, 20)]
)
def test_a_symmetric_fit_recovers_the_concentration_from_any_start(eta, n_events, start):
    mean_log = digamma(eta) - digamma(n_events * eta)
    fitted = Dirichlet.fit_symmetric(start, mean_log, n_events)
    assert fitted == pytest.approx(eta, rel=1e-5)


def log_polya(counts, eta):
    """The log probability of counts (K, D) without their order, with shares integrated out."""
    totals, total = counts.sum(axis=1), np.broadcast_to(eta, counts.shape[1]).sum()
    value = gammaln(total) - gammaln(totals + total)
    return value.sum() + (gammaln(counts + eta) - gammaln(eta)).sum()


@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_the_fit_to_counts_is_the_most_probable_concentration(scale):
    rng = np.random.default_rng(0)
    counts = scale * rng.multinomial([40, 500, 0], rng.dirichlet(np.full(30, 0.1), 3))
    found = Dirichlet.fit_symmetric_to_counts(7.0, counts[counts > 0.0], counts.sum(axis=1), 30)
    for other in (0.99 * found, 1.01 * found, 0.01 * found, 100.0 * found):
        assert log_polya(counts, found) > log_polya(counts, other)


def test_the_fit_to_counts_without_a_mode_is_an_end_of_the_range():
    # Each sequence repeats one event, or all events are equally frequent.
    for counts, expected in ((np.diag([4.0, 9.0]), 1e-4), (np.full((2, 2), 5.0), 1e4)):
        found = Dirichlet.fit_symmetric_to_counts(0.3, counts[counts > 0.0], counts.sum(axis=1), 2)
        assert found == expected
    assert Dirichlet.fit_symmetric_to_counts(0.3, np.zeros(0), np.zeros(2), 5) == 0.3
    assert Dirichlet.fit_symmetric_to_counts(0.3, np.ones(3), np.ones(3), 1) == 0.3


# ------------------------------------------------------------------------------- power sums
POWERS = np.array([1.0, 0.8, 0.5, 0.2])


def test_a_power_sum_is_the_sum_of_moments():
    a = np.array([0.02, 0.9, 5.0])
    for b in POWERS:
        moments = gammaln(a + b) - gammaln(a) + gammaln(a.sum()) - gammaln(a.sum() + b)
        value, _ = Dirichlet.log_mean_power_sum(a, [b])
        np.testing.assert_allclose(value, logsumexp(moments), rtol=1e-12, atol=1e-13)


def test_a_power_sum_of_large_concentrations_approaches_that_of_equal_shares():
    # In the limit p = 1/n. The next term of the expansion is -b (1 - b) (n - 1) / (2 n a).
    n, a, b = 40, 1e8, POWERS
    limit = (1 - b) * np.log(n) - b * (1 - b) * (n - 1) / (2 * n * a)
    value, _ = Dirichlet.log_mean_power_sum(np.full(n, a), b)
    np.testing.assert_allclose(value, limit, rtol=0, atol=5e-10)


@each_concentration
def test_the_slope_of_a_power_sum_is_its_derivative(eta):
    b, step = np.array([0.9, 0.6, 0.3, 0.1]), 1e-5
    up, down = (Dirichlet.log_mean_power_sum(eta, b + sign * step)[0] for sign in (1, -1))
    _, slope = Dirichlet.log_mean_power_sum(eta, b)
    np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=1e-7, atol=1e-9)


def test_steps_to_counts_raise_their_probability_up_to_its_mode():
    rng = np.random.default_rng(0)
    totals = rng.integers(1, 30, 400)
    shares = np.append(rng.dirichlet([0.9, 0.3, 0.1], totals.size), np.zeros((400, 1)), axis=1)
    counts = rng.multinomial(totals, shares)  # The last event is never drawn.
    eta = np.full(4, 2.0)
    before = log_polya(counts, eta)
    for _ in range(500):
        normaliser = digamma(totals + eta.sum()).mean()
        mean_log = digamma(counts + eta).mean(axis=0) - normaliser
        eta = Dirichlet.step_towards_counts(eta, mean_log, normaliser)
        assert eta[3] < 1e-3  # This holds from the first step on.
        assert log_polya(counts, eta) > before - 1e-9
        before = log_polya(counts, eta)
    found = scipy.optimize.minimize(
        lambda logs: -log_polya(counts, np.append(np.exp(logs), eta[3])), np.zeros(3), tol=1e-10
    )
    np.testing.assert_allclose(eta[:3], np.exp(found.x), rtol=1e-3)
    of_none = digamma(eta.sum())
    unchanged = Dirichlet.step_towards_counts(eta, digamma(eta) - of_none, of_none)
    np.testing.assert_array_equal(unchanged, eta)
