"""The correction of structured inference agrees with SciPy's quantiles and dense linear algebra.

For a topic ``beta_v = b_v / sum b`` with ``b_v = quantile of Gamma(lam_v, 1) at u_v``,

    V hat = F^-1 grad,    grad = d/dlam sum_v hat_v log beta_v  at fixed u,

F the covariance of log beta under Dir(lam), so that E[V hat] = hat.
"""

from decimal import Decimal, localcontext
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammainccinv, gammaincinv, gammaln, polygamma

from skvt._compiled import jit_allocating, trigamma
from skvt._compiled import run_serially as run
from skvt.expfam import RunningStats, Stats
from skvt.models._dirichlet_correction import Gammas, correct_statistics, write_log_gamma_slopes
from skvt.models.lda._given_topics import LDAGivenTopics
from skvt.models.lda._model import LDA


# ------------------------------------------------------------------------- special functions
def log_gamma_slope(a, log_x):
    out = np.empty(1)
    write_log_gamma_slopes(np.array([a]), np.array([log_x]), out)
    return out[0]


def log_quantile(a, u, complement):
    """Return the log of x with P(a, x) = u. The complement is 1 - u with all its digits."""
    # P(a, x) = x^a / Gamma(a + 1) to the last digit where x < exp(-40); x itself may underflow
    power = (np.log(u) + gammaln(a + 1.0)) / a
    if power < -40.0:
        return power
    return float(np.log(gammaincinv(a, u) if u <= 0.5 else gammainccinv(a, complement)))


def slope_by_differences(a, u, complement):
    """Return d log_quantile / d a by central differences, extrapolated twice to step 0."""

    def difference(h):
        return (log_quantile(a + h, u, complement) - log_quantile(a - h, u, complement)) / (2 * h)

    coarse, middle, fine = (difference(step * a) for step in (0.02, 0.01, 0.005))
    left, right = (4.0 * middle - coarse) / 3.0, (4.0 * fine - middle) / 3.0
    return (16.0 * right - left) / 15.0


def test_slopes_of_quantiles_equal_those_of_scipy():
    rng = np.random.default_rng(0)
    shapes = [1e-3, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1e3, 1e4, 1e5]
    cases = [*product(shapes, [1e-6, 0.01, 0.1, 0.5])]
    cases += zip(10.0 ** rng.uniform(-3, 5, 400), 0.5 * rng.random(400), strict=True)
    for a, tail in cases:
        for u, complement in ((tail, 1.0 - tail), (1.0 - tail, tail)):
            slope = log_gamma_slope(a, log_quantile(a, u, complement))
            assert slope == pytest.approx(slope_by_differences(a, u, complement), rel=2e-7)


@jit_allocating
def trigammas(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = trigamma(x[i])
    return out


def test_trigamma_equals_that_of_scipy():
    x = np.concatenate([10.0 ** np.linspace(-6, 9, 400), 8.0 + np.array([-1e-12, 0.0, 1e-12])])
    np.testing.assert_allclose(trigammas(x), polygamma(1, x), rtol=2e-14)
    large = np.array([1e15, 1e18, 1e25, 1e60])
    np.testing.assert_allclose(trigammas(large), 1.0 / large, rtol=1e-14)


@pytest.mark.parametrize("a", [2e6, 1e8, 1e12, 1e20, 1e30])
@pytest.mark.parametrize("z", [-4.0, -0.5, 0.0, 1.0, 5.0])
def test_slopes_of_very_large_shapes_follow_the_cornish_fisher_expansion(a, z):
    # log x = log a + z / sqrt(a) + (z^2 / 3 - 1 / 3 - z^2 / 2) / a + O(a^-3/2), by Cornish-Fisher
    slope = 1.0 / a - z / (2.0 * a**1.5) + (z**2 / 6.0 + 1.0 / 3.0) / a**2
    log_x = np.log(a) + z / a**0.5 - (z**2 / 6.0 + 1.0 / 3.0) / a
    assert log_gamma_slope(a, log_x) == pytest.approx(slope, rel=2e-8 + 1e-15 * np.log(a))


# -------------------------------------------------------------------------- the correction
def fisher(lam):
    """Return the covariance of log beta under Dir(lam)."""
    return np.diag(polygamma(1, lam)) - polygamma(1, lam.sum())


def draw_log_gammas(lam, rng, size=None):
    """Draw logarithms of gamma variates, which themselves may underflow."""
    shape = lam.shape if size is None else (size, *lam.shape)
    return np.log(rng.gamma(lam + 1.0, size=shape)) + np.log(rng.random(shape)) / lam


def correct(lam, log_gammas, hat):
    """Return V hat of one topic."""
    columns = (np.ascontiguousarray(a)[:, None] for a in (lam, log_gammas, hat))
    return correct_all(*columns)[:, 0]


def correct_all(lam, log_gammas, hat, **options):
    """Return V hat of topics in columns. Each word has a variate."""
    return correct_statistics(lam, Gammas.from_logs(log_gammas), hat, **options)


LAMBDAS = {
    "small": np.array([0.01, 0.05, 0.02, 0.1]), "mixed": np.array([0.03, 1.2, 40.0, 0.4, 3.0]),
    "large": np.array([300.0, 5000.0, 20.0]), "two words": np.array([2.5, 0.7]),
    "many words": np.full(60, 0.05) + 5.0 * (np.arange(60) % 7 == 0),
}  # fmt: skip
each_lam = pytest.mark.parametrize("lam", LAMBDAS.values(), ids=LAMBDAS.keys())


@each_lam
def test_the_correction_is_the_inverse_fisher_information_times_the_gradient(lam):
    rng = np.random.default_rng(1)
    u, hat = rng.uniform(0.02, 0.98, lam.size), rng.gamma(1.0, 3.0, lam.size)

    def log_gammas_at(lam):
        return np.array([log_quantile(a, p, 1.0 - p) for a, p in zip(lam, u, strict=True)])

    def value(lam):
        logs = log_gammas_at(lam)
        return hat @ (logs - np.log(np.sum(np.exp(logs - logs.max()))) - logs.max())

    gradient = np.empty(lam.size)
    for v in range(lam.size):
        h = 1e-3 * lam[v] * np.eye(lam.size)[v]
        wide = (value(lam + 2.0 * h) - value(lam - 2.0 * h)) / (4.0 * h[v])
        gradient[v] = (4.0 * (value(lam + h) - value(lam - h)) / (2.0 * h[v]) - wide) / 3.0
    found = fisher(lam) @ correct(lam, log_gammas_at(lam), hat)
    np.testing.assert_allclose(found, gradient, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


@pytest.mark.parametrize("size", [1e7, 1e9, 1e12, 1e20])
def test_very_large_parameters_are_corrected_as_in_exact_arithmetic(size):
    # Arithmetic in 60 digits uses 1 / psi'(x) = x - 1/2 + 1 / 12x - ... for large x.
    lam = np.array([0.4, 3.0, 1.0 * size, 2.5 * size])
    rng = np.random.default_rng(9)
    logs, hat = draw_log_gammas(lam, rng), size * np.array([0.0, 1e-9, 2.0, 0.7])
    logs[2:] = np.log(lam[2:]) + 0.3 / lam[2:] ** 0.5
    with localcontext(prec=60):
        slopes = [Decimal(log_gamma_slope(a, x)) for a, x in zip(lam, logs, strict=True)]
        variates = [Decimal(x).exp() for x in logs]
        beta = [x / sum(variates) for x in variates]
        hats, shapes = map(Decimal, hat), [Decimal(a) for a in lam]
        whole = sum(map(Decimal, hat))
        grad = [s * (h - b * whole) for s, h, b in zip(slopes, hats, beta, strict=True)]
        *inverse, of_sum = (
            x - Decimal("0.5") + 1 / (12 * x)
            if x > 100
            else 1 / Decimal(float(polygamma(1, float(x))))
            for x in (*shapes, sum(shapes))
        )
        parts = [i * g for i, g in zip(inverse, grad, strict=True)]
        factor = sum(parts) / (of_sum - sum(inverse))
        expected = np.array([float(p + factor * i) for p, i in zip(parts, inverse, strict=True)])
    found = correct(lam, logs, hat)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_the_common_part_of_the_correction_is_bounded_by_the_statistics():
    # The lam of the first word is far below its statistics, that of the second far above them.
    lam, hat = np.array([0.3, 1e9, 0.3]), np.array([1e7, 1e3, 0.0])
    logs = np.array([0.5, np.log(1e9), -3.0])
    free = correct(lam, logs, hat)
    assert np.abs(free).sum() > 100.0 * hat.sum()
    columns = (np.ascontiguousarray(a)[:, None] for a in (lam, logs, hat))
    bounded = correct_all(*columns, max_common=hat.sum())[:, 0]
    assert np.abs(bounded).sum() < 3.0 * hat.sum()
    np.testing.assert_array_equal(np.sign(bounded[1]), np.sign(free[1]))


@pytest.mark.parametrize("shape", [(9, 3), (2, 2500)])
def test_each_topic_is_corrected_as_if_it_were_alone(shape):
    rng = np.random.default_rng(5)
    lam, hat = rng.gamma(0.5, 4.0, size=shape) + 0.01, rng.random(shape)
    logs = draw_log_gammas(lam, rng)
    together = correct_all(lam, logs, hat)
    np.testing.assert_array_equal(correct_all(lam, logs, hat, run=run), together)
    for k in {0, 1, 2, 999, 1000, 2499} & set(range(shape[1])):
        alone = correct(lam[:, k], logs[:, k], hat[:, k])
        np.testing.assert_allclose(alone, together[:, k], rtol=1e-13)
    np.testing.assert_array_equal(correct(lam[:1, 0], logs[:1, 0], hat[:1, 0]), hat[:1, 0])


def with_rest(lam, rows, rng, n):
    """Draw n topics of parameters lam (V,) in columns, with one gamma for the other words."""
    others = np.delete(lam, rows)
    logs = np.ascontiguousarray(draw_log_gammas(lam[rows], rng, n).T)
    rest = np.full(n, others.sum())
    log_rest = draw_log_gammas(rest, rng)
    log_totals = np.logaddexp(np.logaddexp.reduce(logs), log_rest)
    return Gammas(logs, log_totals, rest, log_rest, rows)


@each_lam
def test_words_without_statistics_are_corrected_as_one_word(lam):
    rng = np.random.default_rng(7)
    rows = np.arange(0, lam.size, 2)
    gammas = with_rest(lam, rows, rng, 1)
    hat = rng.gamma(1.0, 3.0, rows.size)
    # The words without statistics are one word, whose parameter is their sum.
    shapes = np.append(lam[rows], gammas.shapes_of_others)
    logs = np.append(gammas.logs, gammas.logs_of_others)
    slopes = np.array([log_gamma_slope(a, x) for a, x in zip(shapes, logs, strict=True)])
    gradient = slopes * (np.append(hat, 0.0) - np.exp(logs - gammas.log_totals) * hat.sum())
    spread = np.full(lam.size, gradient[-1])
    spread[rows] = gradient[:-1]
    expected = np.linalg.solve(fisher(lam), spread)
    found = correct_statistics(lam[:, None], gammas, hat[:, None])[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("rows", [[1, 4, 6], list(range(7))], ids=str)
def test_the_model_corrects_all_words_given_statistics_of_some(scale, rows):
    rng = np.random.default_rng(6)
    # Topics have different priors where the scale is not 1.
    eta = rng.uniform(0.1, 0.5, 7) if scale == 1.0 else rng.uniform(0.1, 0.5, (7, 2))
    eta[2] = eta[3]
    model = LDAGivenTopics.from_lda(LDA(np.full(2, 0.3), eta), "gibbs", 1, 1)
    counts = rng.gamma(1.0, 2.0, size=(7, 2))
    counts[2:5, 1] = 0.0  # These words of the second topic are at their prior.
    stats = RunningStats([counts])
    stats.rescale(scale)
    lam = stats.as_stats().arrays[0] + eta.reshape(7, -1)
    X = np.zeros((1, 7))
    X[0, rows] = 1.0
    batch = model.batch(sp.csr_array(X), np.array([0]), np.ones(1))
    drawn = model.drawn_globals(stats, batch, "ssvi", np.random.default_rng(9), run)
    gammas = drawn.gammas
    assert gammas.logs.shape == (len(rows), 2)
    if len(rows) < 7:
        np.testing.assert_allclose(
            gammas.shapes_of_others, np.delete(lam, rows, axis=0).sum(axis=0)
        )
    some = rng.random((len(rows), 2))
    corrected = model.corrected(stats, drawn, Stats((some,), np.array(rows)), run)
    assert corrected.rows is None
    expected = correct_statistics(lam, gammas, some)
    np.testing.assert_allclose(corrected.arrays[0], expected, rtol=1e-9, atol=1e-12)
