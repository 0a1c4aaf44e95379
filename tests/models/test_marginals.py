"""Components have posterior marginals, evidence and relevance of single columns."""

import numpy as np
import pytest
from models._textbook import KINDS, center_of, log_marginal, posterior
from scipy import stats as laws

from skvt.expfam import NormalWishart, Wishart
from skvt.models.mixture import Mixture, StickBreaking, components, relevance
from skvt.models.mixture._marginals import probability_marginals

GAUSSIAN_CLASSES = {
    "full": ["mean", "standard deviation"], "diagonal": ["mean", "standard deviation"],
    "spherical": ["mean", "standard deviation"], "zero-mean full": ["standard deviation"],
}  # fmt: skip
OTHERS = {"Bernoulli": "probability", "multinomial": "probability", "categorical": "probability",
          "Poisson": "rate"}  # fmt: skip


def setup(name, *, n=7, D=3, seed=0):
    rng = np.random.default_rng(seed)
    component, X = KINDS[name].make(D, np.dtype(np.float64)), KINDS[name].rows(n, D, rng)
    return component, X


def draws_of(name, component, lam, n_draws):
    """Draw the parameters (n_draws, Q) of each kind of marginals."""
    phi = component.family.sample(
        np.broadcast_to(lam, (n_draws, *lam.shape[1:])), np.random.default_rng(1)
    )
    if name in OTHERS:
        if name == "Bernoulli":
            phi = phi[..., 0]
        return [phi.reshape(n_draws, -1)]
    precision = getattr(phi, "precision", phi)
    if "full" in name:
        variance = np.diagonal(np.linalg.inv(precision), axis1=1, axis2=2)
    else:
        variance = 1.0 / np.broadcast_to(precision.reshape(n_draws, -1), (n_draws, 3))
    deviation = np.sqrt(variance)
    if name.startswith("zero"):
        return [deviation]
    return [phi.mean.reshape(n_draws, 3) + center_of(component), deviation]


@pytest.mark.parametrize("name", [*GAUSSIAN_CLASSES, *OTHERS])
def test_marginals_have_the_quantiles_and_means_of_posterior_draws(name):
    component, X = setup(name)
    lam = posterior(component, X, np.ones((len(X), 1)))
    n_draws = 60_000
    draws = draws_of(name, component, lam, n_draws)
    found = component.marginals(lam)
    assert [own.quantity for own in found] == GAUSSIAN_CLASSES.get(name, [OTHERS.get(name)])
    for own, drawn in zip(found, draws, strict=True):
        assert own.estimate.shape == (1, own.columns.size) == (1, drawn.shape[1])
        for p in (0.025, 0.3, 0.975):
            below = (drawn <= own.quantile(p)[0]).mean(axis=0)
            np.testing.assert_allclose(below, p, atol=4.5 * np.sqrt(p * (1.0 - p) / n_draws))
        if own.quantity == "standard deviation":
            np.testing.assert_allclose((drawn <= own.estimate[0]).mean(axis=0), 0.5, atol=0.01)
        else:
            error = 4.5 * drawn.std(axis=0) / np.sqrt(n_draws)
            assert np.all(np.abs(drawn.mean(axis=0) - own.estimate[0]) < error)


def test_probabilities_have_quantiles_with_any_number_of_pseudo_counts():
    a, b = (
        np.array([[5.0, 1e3, 1e3, 1e12, 1e16, 1e17]]),
        np.array([[1e12, 1e9, 1e14, 3e12, 1e17, 2e20]]),
    )
    both = probability_marginals(a, b), probability_marginals(b, a)
    few = a[0] < 1e6  # Small shares are gamma variables over a constant, others are normal.
    mean, deviation = a / (a + b), np.sqrt(a * b / (a + b)) / (a + b)
    for p in (0.025, 0.5, 0.975):
        expected = np.where(few, laws.gamma(a).ppf(p) / b, mean + deviation * laws.norm.ppf(p))
        error = np.abs(both[0].quantile(p) - expected) / deviation
        assert error.max() < 1e-3
        np.testing.assert_allclose(both[1].quantile(1.0 - p), 1.0 - expected, rtol=1e-8)
    # The law is continuous where another method starts.
    around = np.array([[1e7 * (1.0 - 1e-9), 1e7 * (1.0 + 1e-9)]])
    for other in (0.3, 40.0, 1e6, 1e7):
        one, two = probability_marginals(np.full_like(around, other), around).quantile(0.025)[0]
        assert one == pytest.approx(two, rel=1e-5)


def test_marginals_of_categories_name_their_column_and_category():
    component, X = setup("categorical")
    (own,) = component.marginals(posterior(component, X, np.ones((len(X), 1))))
    expected = [(d, c) for d, size in enumerate(component.sizes) for c in range(size)]
    assert list(zip(own.columns.tolist(), own.categories.tolist(), strict=True)) == expected
    certain = components.Multinomial(np.ones(1), np.dtype(np.float64)).marginals(
        np.full((1, 1), 5.0)
    )
    assert certain[0].quantile(0.1) == 1.0 == certain[0].estimate
    # Prior counts may be less than one.
    sparse = components.Multinomial(np.full(2, 0.3), np.dtype(np.float64)).marginals(
        np.array([[0.3, 1.3]])
    )
    expected = laws.beta.ppf(0.7, [[0.3, 1.3]], [[1.3, 0.3]])
    np.testing.assert_allclose(sparse[0].quantile(0.7), expected)


def alone(name, component, X, d):
    """Return kind, component and rows of a model of one column."""
    kind = KINDS[name]
    if component.missing and "full" not in name:
        rest = np.delete(np.arange(X.shape[1]), d)
        X = X.copy()
        X[:, rest] = np.nan
        return kind, component, X
    if name == "multinomial":
        pair = np.array([component.prior[d], component.prior.sum() - component.prior[d]])
        return (kind, components.Multinomial(pair, component.dtype),
                np.stack([X[:, d], X.sum(axis=1) - X[:, d]], axis=1))  # fmt: skip
    q = component.family.to_standard(component.prior)
    scale, freedom = q["scale_inverse"][d : d + 1, d : d + 1], q["degrees_of_freedom"] - 2.0
    if name == "full":
        prior = NormalWishart.from_standard(q["mean"][[d]], q["mean_precision"], freedom, scale)
        single = components.FullGaussian(prior, component.center[[d]], component.dtype)
    else:
        prior = Wishart.from_standard(freedom, scale)
        single = components.ZeroMeanFullGaussian(prior, 1, component.dtype)
    return kind, single, X[:, [d]]


def without_base(kind, component, X):
    """Return the log marginal likelihood without the base measure."""
    features = component.features(X)
    base = features.sum(axis=0) @ np.broadcast_to(component.base, features.shape[1])
    return log_marginal(kind, component, X) - base


@pytest.mark.parametrize("name", KINDS)
def test_column_evidence_is_the_evidence_of_the_column_alone(name):
    component, X = setup(name)
    found = component.column_evidence(component.features(X).sum(axis=0)[None])
    if "spherical" in name:  # The columns share their precision.
        expected = np.repeat(without_base(KINDS[name], component, X) / 3.0, 3)
    else:
        expected = [without_base(*alone(name, component, X, d)) for d in range(3)]
    np.testing.assert_allclose(found, [expected], rtol=1e-9)


@pytest.mark.parametrize("name", ["full", "diagonal", "categorical"])
def test_relevance_is_the_loss_of_a_merge_for_each_row(name):
    component, X = setup(name, n=30)
    resp = np.random.default_rng(1).dirichlet(np.full(4, 0.3), size=30)
    resp = np.column_stack([resp, np.zeros(30)])  # The last component has no rows.
    sums, counts = resp.T @ component.features(X), resp.sum(axis=0)
    model = Mixture(StickBreaking(1.0), component)

    def evidence(sums):
        return model.component.log_evidence(sums)[:, None]

    found = relevance(evidence, sums, counts)
    for k in range(4):
        rest = np.delete(sums, k, axis=0).sum(axis=0)
        own, others, shared = evidence(np.stack([sums[k], rest, sums[k] + rest]))[:, 0]
        assert found[k, 0] == pytest.approx((own + others - shared) / max(counts[k], 1.0))
    assert abs(found[4, 0]) < 1e-9
    columns = relevance(component.column_evidence, sums, counts)
    if name != "full":
        np.testing.assert_allclose(columns.sum(axis=1), found[:, 0], rtol=1e-9, atol=1e-12)
    assert relevance(evidence, sums[:1], counts[:1]) == 0.0, "nothing to be told from"
