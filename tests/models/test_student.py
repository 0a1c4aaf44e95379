"""Student t: the bound by quadrature, the predictive, and outliers that do no harm."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma, multivariate_t, norm

from skvt import MemoizedDPMixture
from skvt.components import Gaussian, StudentT
from skvt.contracts import RowBatch
from skvt.files import check_fields
from skvt.models.mixture import (
    Mixture,
    StickBreaking,
    make_gaussian_component,
    make_student_t_component,
)
from skvt.models.mixture._student import _ScaleMixture
from skvt.models.mixture.components import project_to_principal

EACH = pytest.mark.parametrize("kind", ["full", "diag"])


def setup(kind, D, n=30, K=2):
    """A component, rows with holes, responsibilities, and the table of both components."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(3.0, size=(n, D)) @ (np.eye(D) + 0.3) + 1.0
    X[::3, 0] = np.nan if D > 1 else X[::3, 0]
    component = make_student_t_component(make_gaussian_component(X, np.ones(n), kind, False)[0])
    resp = rng.dirichlet(np.ones(K), size=n)
    batch = RowBatch.of(X, np.arange(n), np.ones(n))
    stats = Mixture(StickBreaking(1.0), component).make_local_result(batch, resp).stats
    lam = component.natural_parameters(stats.arrays[1])
    return component, X, resp, lam


def density_of_pair(component, lam, k, u, x, columns):
    """exp E[log p(x, u)] of rows (n, d) under component k, by the definition; one u."""
    gaussian, freedom = component.blocks[0].component, component.blocks[1].component
    of_gaussian, of_freedom = component.family.split(lam)
    nu = freedom.family.mean(of_freedom)[k]
    q = {name: part[0] for name, part in gaussian.family.to_standard(of_gaussian[[k]]).items()}
    t = gaussian.family.expectation(of_gaussian[[k]])[0]
    x = x - gaussian.center[columns]
    if gaussian.covariance_type == "diag":
        nu, log_det = nu[columns[0]], 2.0 * t[columns[0], 0]
        precision = (q["shape"] / q["rate"])[columns]
        away = precision * (x - q["mean"][columns, 0]) ** 2 + 1.0 / q["mean_precision"][columns, 0]
    else:
        nu, log_det = nu[0], 2.0 * t[0]
        precision = q["degrees_of_freedom"] * np.linalg.inv(q["scale_inverse"])
        apart = x - q["mean"]
        away = ((apart @ precision) * apart) + 1.0 / q["mean_precision"]
    away = away.sum(axis=1)
    log_density = 0.5 * (log_det + x.shape[1] * np.log(u / (2.0 * np.pi)) - u * away)
    return np.exp(log_density + gamma.logpdf(u, 0.5 * nu, scale=2.0 / nu))


@EACH
def test_the_bound_of_a_row_is_the_integral_over_what_is_hidden(kind):
    component, X, resp, lam = setup(kind, 2)
    table = component.expected_table(lam)
    logits, entropy = component.features(X) @ table.T, np.zeros((len(X), 2))
    holes = component.completion(table)(X, np.ones(1))
    holes.add_to(logits, entropy)
    # of a row with a hole, for each component
    axis, step = np.linspace(-60.0, 60.0, 2_001, retstep=True)
    rows = np.stack([axis, np.full_like(axis, X[0, 1])], axis=1)
    columns = np.arange(2)
    if kind == "diag":
        rows, step, columns = X[:1, 1:], 1.0, np.array([1])
    for k in range(2):

        def integrand(t, k=k):
            return np.exp(t) * density_of_pair(component, lam, k, np.exp(t), rows, columns).sum()

        found = np.log(step * quad(integrand, -9.0, 5.0, epsrel=1e-8)[0])
        assert logits[0, k] == pytest.approx(found, abs=1e-5)
    # and the statistics say what its energy is
    sums = component.features(X).T @ resp
    sums = np.ascontiguousarray(sums.T)
    holes.add_statistics(resp, sums)
    assert (sums * table).sum() == pytest.approx((resp * (logits - entropy)).sum(), rel=1e-10)


@pytest.mark.quick_cases("full")
@EACH
def test_predictive_densities_are_integrals_with_mass_one(kind):
    component, _, _, lam = setup(kind, 1)
    middle = component.conditional_mean(np.array([[np.nan]]), lam)[0, 0, 0]

    def density(x):
        return np.exp(component.log_predictive(np.array([[x]]), lam)[0, 0])

    ends = [-np.inf, middle - 5.0, middle, middle + 5.0, np.inf]
    mass = sum(quad(density, *pair)[0] for pair in pairwise(ends))
    assert mass == pytest.approx(1.0, abs=1e-6)
    drawn = component.sample(lam[0], 40_000, np.random.default_rng(0))[:, 0]
    share = quad(density, middle - 1.0, middle + 1.0)[0]
    assert abs((abs(drawn - middle) < 1.0).mean() - share) < 0.015


def test_degrees_of_freedom_are_at_the_maximum():
    family = setup("full", 2)[0].blocks[1].component.family
    eta = np.array([[50.0, -70.0], [50.0, -50.2], [3.0, -9.0], [0.0, 0.0]])
    best = family.log_normalizer(eta)
    half = 0.5 * np.geomspace(1.0, 100.0, 2_000)
    others = eta @ np.stack([half * np.log(half) - gammaln(half), half])
    assert (others <= best[:, None] + 1e-9).all()
    np.testing.assert_allclose(others.max(axis=1), best, rtol=1e-5)


def slips(seed=0, n=600):
    """Four clusters and values with a misplaced decimal point."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4, size=n)
    X = 20.0 + 6.0 * np.array([[0, 0, 0], [1, 0, 1], [0, 1, 1], [1, 1, 0]])[kind]
    X = X + rng.normal(size=X.shape)
    slipped = rng.random(X.shape) < 0.02
    return np.where(slipped, 10.0 * X, X), kind, slipped.any(axis=1)


@EACH
def test_slips_are_hardly_ever_drawn_as_seeds(kind):
    X, _, slipped = slips()
    X = np.column_stack([X, np.full(len(X), np.nan)])
    weights = np.ones(len(X))
    component = make_student_t_component(make_gaussian_component(X, weights, kind, False)[0])
    directions = partial(project_to_principal, n_directions=2)
    for fits in (component.row_fits(X), component.projected(X, weights, directions)):
        prepared = fits.prepare(np.arange(len(X)))
        seed = [int(np.argmin(slipped))]
        missed = fits.fits_to_self(prepared)[0] - fits.fits_to_seeds(prepared, seed)[0][:, 0]
        assert missed[slipped].sum() < 0.3 * missed.sum()


@pytest.mark.slow
def test_slips_of_typing_make_no_clusters():
    X, kind, slipped = slips()
    told = {"labels_init": kind, "n_components": 4, "moves": (), "random_state": 0}
    right = []
    for component in (StudentT("diag"), Gaussian("diag")):
        fitted = MemoizedDPMixture(components=[("all", component, slice(None))], **told).fit(X)
        right.append(pd.crosstab(fitted.predict(X), kind).max(axis=1).sum() / len(X))
        elbo = np.array(fitted.history_["elbo"])
        assert (np.diff(elbo[np.isfinite(elbo)]) > -1e-6).all()
        if isinstance(component, StudentT):
            strange = fitted.score_samples(X)
            assert strange[slipped].max() < np.quantile(strange[~slipped], 0.02)
            said = fitted.describe()["quantity"].unique().tolist()
            assert said == ["mean", "scale", "degrees of freedom"]
    assert right[0] > 0.95 > right[1] + 0.02


@pytest.mark.quick_cases("full")
@EACH
def test_gaussian_rows_have_the_densities_of_gaussians(kind):
    X = np.random.default_rng(0).normal(size=(2_000, 2))
    settings = {"moves": (), "random_state": 0}
    scores = [
        MemoizedDPMixture(components=[("all", component, slice(None))], **settings).fit(X).score(X)
        for component in (StudentT(kind), Gaussian(kind))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=0.01)
    assert scores[1] == pytest.approx(norm.logpdf(X).sum(axis=1).mean(), abs=0.01)


@pytest.mark.quick_cases("1e-06")
@pytest.mark.parametrize("kappa", [1e-6, 50.0])
def test_scales_are_integrated_out_wherever_the_mass_lies(kappa):
    """By an integral over u of multivariate t: where kappa is small, modes are far apart."""
    number, freedom, nu = 50, 51.0, 30.0
    for distance in (5e7, 1e3, 1.0):
        x = np.zeros(number)
        x[0] = np.sqrt(distance)

        def compute_log_joint(t, x=x):
            scale = (np.exp(-t) + 1.0 / kappa) / freedom
            prior = gamma.logpdf(np.exp(t), 0.5 * nu, scale=2.0 / nu)
            return multivariate_t(np.zeros(number), scale, freedom).logpdf(x) + prior + t

        nodes = np.linspace(-25.0, 2.0, 500)
        exact = logsumexp([compute_log_joint(t) for t in nodes]) + np.log(nodes[1] - nodes[0])
        parts = map(np.array, (distance, float(number), freedom, kappa, nu))
        assert _ScaleMixture(*parts).log_density() == pytest.approx(exact, abs=1e-5)


@EACH
def test_a_component_not_yet_seen_has_mass_one(kind):
    component, _, _, lam = setup(kind, 1)
    family = component.blocks[0].component.family
    of_gaussian, of_freedom = component.family.split(lam[:1])
    vague = {
        "mean_precision": 1e-8 * np.ones_like(family.to_standard(of_gaussian)["mean_precision"])
    }
    of_gaussian = family.from_standard(**(family.to_standard(of_gaussian) | vague))
    lam = component.family.join([of_gaussian, of_freedom])
    middle = component.conditional_mean(np.array([[np.nan]]), lam)[0, 0, 0]
    logs = np.linspace(-20.0, 40.0, 2_000)
    away = np.exp(logs)[:, None]
    density = sum(np.exp(component.log_predictive(middle + x, lam)[:, 0]) for x in (away, -away))
    assert (density * away[:, 0]).sum() * (logs[1] - logs[0]) == pytest.approx(1.0, abs=1e-5)


@EACH
def test_blocks_of_a_damaged_file_raise_the_error_of_files(kind):
    component, *_ = setup(kind, 2)
    check_fields(component, 2, 2)
    gaussian, freedom = component.blocks
    damaged = freedom._replace(component=gaussian.component)
    for blocks in [(gaussian,), (freedom, gaussian), (gaussian, freedom) * 2, (gaussian, damaged)]:
        with pytest.raises(ValueError, match="do not fit together"):
            check_fields(replace(component, blocks=blocks), 2, 2)
