"""The regression of document priors on covariates agrees with quadrature and differences."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.special import digamma, gammaln
from scipy.stats import gamma, norm

from skvt._compiled import run_serially
from skvt.models import Topics
from skvt.models.lda import LDA, CollapsedLDA, DocumentRegression, LDAGivenTopics
from skvt.models.lda._covariates import MAX_CHANGE, RATE, SHAPE
from skvt.rows import Documents

N, K = 40, 3
GENERATOR = np.random.default_rng(3)
DESIGN = np.c_[np.ones(N), GENERATOR.standard_normal(N), GENERATOR.integers(2, size=N) - 0.5]
COUNTS = GENERATOR.poisson(GENERATOR.exponential(3.0, (N, K))) * (GENERATOR.random((N, K)) < 0.6)
WEIGHTS = GENERATOR.uniform(0.5, 2.0, N)
ALL, SOME = np.ones((N, K), bool), np.arange(N * K).reshape(N, K) % 4 > 0


@pytest.fixture
def rng():
    return np.random.default_rng(4)


def regression(rng, scale=0.5):
    start = DocumentRegression.with_equal_alpha(
        DESIGN, np.array([0, 1, 2]), np.full(K, 0.4), WEIGHTS.sum()
    )
    return replace(start, coef=start.coef + scale * rng.standard_normal((3, K)))


def test_the_prior_of_coefficients_integrates_over_the_variance_of_a_normal(rng):
    own = regression(rng)

    def of_group(values):
        def integrand(precision):
            normal = norm.pdf(values, scale=precision**-0.5).prod()
            return normal * gamma.pdf(precision, SHAPE, scale=1.0 / RATE)

        return quad(integrand, 0.0, np.inf, limit=500)[0]

    expected = sum(np.log(of_group(own.coef[p])) for p in (1, 2))
    assert own.log_prior() == pytest.approx(expected, rel=1e-6)


def bound(coef, of_gamma, allowed=ALL):
    """Return the part of the bound that depends on alpha, given q(theta) = Dir(gamma)."""
    alpha = np.exp(DESIGN @ coef)
    logs = digamma(of_gamma) - digamma((of_gamma * allowed).sum(axis=1, keepdims=True))
    value = gammaln((alpha * allowed).sum(axis=1))
    return WEIGHTS @ (value + ((alpha * logs - gammaln(alpha)) * allowed).sum(axis=1))


def evidence(coef, counts=COUNTS, allowed=ALL):
    """Return the log probability of the drawn topics, which integrates over the proportions."""
    alpha, n = np.exp(DESIGN @ coef), counts.sum(axis=1)
    total = (alpha * allowed).sum(axis=1)
    of_topics = (gammaln(alpha + counts) - gammaln(alpha)) * allowed
    return WEIGHTS @ (gammaln(total) - gammaln(total + n) + of_topics.sum(axis=1))


def parabola(h, coef):
    square = np.einsum("pk,kpq,qk->", coef, h[:, :, 1:], coef)
    return np.einsum("kp,pk->", h[:, :, 0], coef) - 0.5 * square


@pytest.mark.parametrize("allowed", [ALL, SOME])
@pytest.mark.parametrize("drawn", [False, True])
def test_the_parabola_has_the_slope_of_the_bound(drawn, allowed, rng):
    own = regression(rng)
    counts = (COUNTS * allowed).astype(float)
    of_gamma = own.alpha(DESIGN) + counts
    h = own.statistics(DESIGN, WEIGHTS, of_gamma * allowed, allowed)
    if drawn:
        h = own.statistics_of_counts(DESIGN, WEIGHTS, counts, allowed)
    for _ in range(5):
        step = 1e-5 * rng.standard_normal(own.coef.shape)
        up, down = own.coef + step, own.coef - step
        rise = bound(up, of_gamma, allowed) - bound(down, of_gamma, allowed)
        if drawn:
            rise = evidence(up, counts, allowed) - evidence(down, counts, allowed)
        assert parabola(h, up) - parabola(h, down) == pytest.approx(rise, rel=1e-6)


def test_the_parabola_stays_below_the_bound_within_the_radius(rng):
    for _ in range(100):
        own = regression(rng, rng.choice([0.1, 1.0]))
        of_gamma = own.alpha(DESIGN) + COUNTS
        h = own.statistics(DESIGN, WEIGHTS, of_gamma)
        step = rng.standard_normal(own.coef.shape)
        step *= MAX_CHANGE / abs(DESIGN @ step).max(axis=0)
        rise = bound(own.coef + step, of_gamma) - bound(own.coef, of_gamma)
        assert parabola(h, own.coef + step) - parabola(h, own.coef) <= rise + 1e-9


def test_a_step_raises_the_bound_and_stays_within_the_radius(rng):
    for _ in range(20):
        own = regression(rng, 1.0)
        of_gamma = own.alpha(DESIGN) + COUNTS
        mean = own.statistics(DESIGN, WEIGHTS, of_gamma) / WEIGHTS.sum()
        new = own.take_step(mean)
        assert abs(DESIGN @ (new.coef - own.coef)).max() <= MAX_CHANGE * (1.0 + 1e-9)
        before = bound(own.coef, of_gamma) + own.log_prior()
        assert bound(new.coef, of_gamma) + new.log_prior() > before


@pytest.mark.parametrize(
    "kind, inv_temp",
    [(kind, b) for kind in ("mean_field", "cvb0", "gibbs") for b in (1.0, 0.5)]
    + [("collapsed", 1.0)],
)
def test_each_document_has_the_prior_of_its_covariates(kind, inv_temp, rng):
    V = 6
    X = sp.csr_array(rng.poisson(1.0, (2, V)).astype(np.float64) + np.eye(2, V))
    design = np.array([[1.0, 2.0], [1.0, -1.0]])
    own = DocumentRegression.with_equal_alpha(design, np.array([0, 1]), np.full(K, 0.4), 2.0)
    own = replace(own, coef=np.array([[0.1, -1.0, 0.5], [1.0, 0.3, -0.8]]))
    log_beta = np.log(rng.dirichlet(np.ones(V), K).T)

    def q_of(rows, alpha, of_covariates):
        lda = LDA(alpha, np.full(V, 0.1), regression=of_covariates, counts_tokens=False)
        if kind == "collapsed":
            lda = CollapsedLDA.from_lda(lda, "gibbs")
        elif kind != "mean_field":
            lda = LDAGivenTopics.from_lda(lda, kind)
        batch = lda.batch(Documents.of(X, design), np.array(rows), np.ones(len(rows)))
        here = log_beta[batch.active]
        if kind == "collapsed":
            stats = lda.stats_from_topics(50.0 * np.exp(log_beta.T))
            given = lda.counts_given_others(stats, batch, 7)
            start = np.zeros(int(X[rows].sum()), np.uint16)
            return lda.local_step(replace(batch, row_starts=start), given, 1.0, run_serially).q
        given = Topics(here, 5)
        return lda.local_step(batch, given, inv_temp, run_serially).q

    together = q_of([0, 1], np.full(K, 0.4), own)
    alone = q_of([0], own.alpha(design)[0], None)
    np.testing.assert_allclose(together[:1], alone, rtol=1e-10)
