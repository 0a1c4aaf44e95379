"""Priors at the maximum of the bound."""

import numpy as np
import pytest
from _engines import passes
from models._textbook import KINDS
from scipy.special import digamma, gammaln

from skvt.expfam import RunningStats, Stats, _factor_analysis
from skvt.inference import MemoizedInference, MemoizedState, Rows
from skvt.models.mixture import (
    Block,
    DirichletLearner,
    GammaLearner,
    GaussianLearner,
    Mixture,
    Product,
    ProductLearner,
    StickBreaking,
    make_gaussian_component,
)
from skvt.models.mixture import _gaussian_learner as gaussians
from skvt.models.mixture import _learned_priors as learning
from skvt.models.mixture._freedom import MIN_EXCESS_FREEDOM
from skvt.models.mixture._gaussian_prior import DEFAULT_PRIOR
from skvt.moves import Birth, Delete, Merge
from skvt.moves._base import compute_bound

GAUSSIAN = ("mean_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior")
D, K = 3, 6


def gaussian_rows(rng, zero_mean, n=90):
    """Rows of K clusters that differ in place and in size."""
    labels = np.arange(n) % K
    means = rng.normal(2.0, 3.0, (K, D)) * (not zero_mean)
    scales = rng.gamma(2.0, 0.5, (K, D))
    return means[labels] + scales[labels] * rng.standard_normal((n, D)), labels


def binary(rng, labels):
    """Columns whose probabilities differ from component to component."""
    X = rng.random((len(labels), D)) < rng.beta(0.5, 1.0, (K, D))[labels]
    return X.astype(float), DirichletLearner("feature_prior", (2,) * D)


def categories(rng, labels):
    """Columns of 2, 3 and 4 categories."""
    sizes, columns = (2, 3, 4), []
    for size in sizes:
        below = rng.dirichlet(np.full(size, 0.5), K).cumsum(axis=1)[labels]
        columns.append((rng.random((len(labels), 1)) > below[:, :-1]).sum(axis=1))
    return np.stack(columns, axis=1).astype(float), DirichletLearner("concentration_prior", sizes)


def tokens(rng, labels):
    """Rows of ten tokens."""
    X = rng.multinomial(10, rng.dirichlet(np.full(D, 0.5), K)[labels]).astype(float)
    return X, DirichletLearner("concentration_prior", (D,), symmetric=True)


def events(rng, labels):
    """Counts whose rates differ."""
    X = rng.poisson(rng.gamma(2.0, [0.5, 1.0, 4.0], (K, D))[labels]).astype(float)
    return X, GammaLearner(frozenset({"shape_prior", "rate_prior"}))


DISCRETE = {
    "Bernoulli": binary, "categorical": categories, "multinomial": tokens, "Poisson": events,
}  # fmt: skip


def case(name, names=GAUSSIAN):
    """(component, learner, rows, memberships) of a kind of component."""
    rng = np.random.default_rng(3)
    labels = np.arange(90) % K
    if name in DISCRETE:
        component = KINDS[name].make(D, np.dtype(np.float64))
        X, learner = DISCRETE[name](rng, labels)
    else:
        zero_mean, kind = name.startswith("zero-mean"), name.split()[-1]
        X, labels = gaussian_rows(rng, zero_mean)
        component, _ = make_gaussian_component(X, np.ones(90), kind, zero_mean)
        learner = GaussianLearner.from_component(component, frozenset(names))
    return component, learner, X, np.eye(K)[labels]


def evidence(component, sums):
    """Of all components, by the model that judges moves."""
    stats = Stats((np.ones(len(sums)), sums))
    return component.log_evidence(stats.arrays[1]).sum()


def two_more_components(learner, component):
    """Mean log density of drawn concentrations, where 1 counts as two components, in nats."""
    if not isinstance(learner, DirichletLearner):
        return 0.0
    ends = np.cumsum(learner.sizes)[:-1]
    return sum(
        2.0 * (gammaln(a.sum()) - gammaln(a).sum() + a.sum() * (digamma(1.0) - digamma(a.size)))
        for a in np.split(component.prior.ravel(), ends)
    )


def slopes(learner, component, sums, h=1e-4):
    """Slopes of what is to be maximal in each parameter, by finite differences."""

    def objective(x):
        trial = learner.with_parameters(component, x)
        return evidence(trial, sums) + two_more_components(learner, trial)

    x = learner.parameters(component)
    directions = np.ones((1, x.size)) if vars(learner).get("symmetric") else np.eye(x.size)
    return np.array([(objective(x + h * e) - objective(x - h * e)) / (2.0 * h) for e in directions])


KINDS_LEARNED = (
    "full", "zero-mean full", "diag", "spherical", "low_rank", "Bernoulli", "categorical",
    "multinomial", "Poisson",
)  # fmt: skip
SINGLE = [("full", (name,)) for name in GAUSSIAN] + [("diag", (name,)) for name in GAUSSIAN]


@pytest.mark.parametrize(
    ("name", "names"), [*((name, GAUSSIAN) for name in KINDS_LEARNED), *SINGLE]
)
def test_steps_raise_the_evidence_to_a_stationary_point(name, names, monkeypatch):
    monkeypatch.setattr(learning, "_MIN_GAIN", 0.0)
    monkeypatch.setattr(_factor_analysis, "_TOLERANCE", 1e-12)
    # (the maximum is not at an end of the range)
    monkeypatch.setattr(gaussians, "freedom_limits", lambda n_features, least: (1e-2, 1e3))
    component, learner, X, resp = case(name, names)
    if isinstance(learner, DirichletLearner):
        component = learner.with_parameters(component, np.zeros(component.prior.size))
    sums = resp.T @ component.features(X)
    values = [evidence(component, sums)]
    assert np.abs(slopes(learner, component, sums)).max() > 0.1
    for _ in range(60):
        component = learner.learn_prior(component, sums)
        values.append(evidence(component, sums))
    assert np.all(np.diff(values) >= 0.0)
    # nats for a change by the factor e (of a mean: in units of the data)
    np.testing.assert_allclose(slopes(learner, component, sums), 0.0, atol=2e-4)


def test_what_is_learned_has_its_range():
    component, learner, X, _ = case("full")
    # components that are alike would draw all certainty, rows that are alike all of the scale
    sums = np.repeat(component.features(X).sum(axis=0)[None], K, axis=0)
    for _ in range(60):
        component = learner.learn_prior(component, sums)
    values = learner.learned_values(component)
    assert values["mean_precision_prior"] == pytest.approx(1.0, rel=1e-9)
    assert values["degrees_of_freedom_prior"] == pytest.approx(2.0 * D, rel=1e-9)
    _, learner, _, _ = case("full", ("degrees_of_freedom_prior",))
    x = learner.parameters(component)
    x[D + 1] = -50.0  # after the mean and log kappa
    (least,) = learner.learned_values(learner.with_parameters(component, x)).values()
    assert least == pytest.approx(D - 1.0 + MIN_EXCESS_FREEDOM, rel=1e-9)
    component, learner, X, _ = case("full", ("covariance_prior",))
    sums = 50.0 * component.features(X[:2])
    for _ in range(60):
        component = learner.learn_prior(component, sums)
    scaled = learner.learned_values(component)["covariance_prior"] / np.outer(
        learner.unit, learner.unit
    )
    least = np.linalg.eigvalsh(scaled)[0]
    assert least == pytest.approx(gaussians.MIN_RELATIVE_SCALE, rel=1e-3)
    # concentrations, as documented
    component, learner, _, _ = case("Bernoulli")
    ends = learner.with_parameters(component, np.resize([-50.0, 50.0], 2 * D)).prior
    np.testing.assert_allclose(ends, np.tile([0.001, 1000.0], (D, 1)), rtol=1e-12)


def test_the_concentration_of_sticks_is_a_maximum_of_their_evidence():
    counts, weights = np.array([70.0, 31.0, 20.0, 4.0, 2.0]), StickBreaking(1.0)
    for _ in range(20):
        weights = learning.with_learned_concentration(weights, counts)
    alpha = weights.concentration
    at = [StickBreaking(alpha * factor).log_evidence(counts) for factor in (0.99, 1.0, 1.01)]
    assert at[1] > max(at[0], at[2])
    assert at[2] - at[0] == pytest.approx(0.0, abs=1e-4 * (2.0 * at[1] - at[0] - at[2]) / 1e-3)


def product_of_kinds():
    """A mixture of a full Gaussian and a Bernoulli block, both learned, and rows."""
    component, learner, X, _ = case("full")
    binary, other, B, _ = case("Bernoulli")
    names = np.arange(2 * D)
    blocks = (Block("x", component, names[:D]), Block("b", binary, names[D:]))
    product = Product(blocks, 2 * D, np.dtype(np.float64))
    data = Rows(np.concatenate([X, B], axis=1), np.ones(90), 30)
    return product, ProductLearner((learner, other)), data


@pytest.mark.quick_cases("4")
@pytest.mark.parametrize("n_initial", [1, 4])
def test_with_moves_the_bound_never_falls_and_is_that_of_the_learned_priors(n_initial):
    product, learner, data = product_of_kinds()
    model = Mixture(
        StickBreaking(1.0), product, n_initial, learner=learner, learns_concentration=True
    )
    state = MemoizedState(model.initial(data, np.random.default_rng(0)))
    engine = MemoizedInference([Delete(), Merge(), Birth(50)])
    bounds, rng, begun = [], np.random.default_rng(0), model
    for result in passes(engine, model, state, data, 15, rng=rng):
        model = result.model
        bounds.append(result.totals.untempered - result.divergence)
        exact = compute_bound(model, state.memos.total())
        assert bounds[-1] == pytest.approx(exact, rel=1e-9)
        if model.size(state.stats) == 1:
            assert model is begun
    assert model.size(state.stats) > 1
    assert np.all(np.diff(bounds) > -1e-9 * np.abs(bounds[0]))
    # both blocks and the sticks have learned
    for one, other in zip(model.component.blocks, begun.component.blocks, strict=True):
        assert np.abs(one.component.prior - other.component.prior).max() > 0.01
    assert model.weights.concentration != begun.weights.concentration
    # a fresh mixture of a birth is judged by the same priors
    assert model.resized(3).with_learned_priors(None, state.stats).component is model.component


def test_nothing_is_learned_of_one_component():
    component, learner, X, resp = case("full")
    model = Mixture(StickBreaking(1.0), component, learner=learner, learns_concentration=True)
    features = component.features(X)
    one = RunningStats([np.array([90.0, 0.0]), np.stack([features.sum(axis=0), 0.0 * features[0]])])
    assert model.with_learned_priors(None, one) is model
    two = RunningStats([resp.sum(axis=0), resp.T @ features])
    assert model.with_learned_priors(None) is model
    assert model.with_learned_priors(None, two) is not model


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_means_far_from_0_that_do_not_differ_have_a_prior(covariance_type):
    # E[(mu - m)' Lambda (mu - m)] is 2e-6, a difference of numbers near 1e15
    X = np.random.default_rng(0).normal(size=(20, 2))
    given = {"mean": np.full(2, 1e3), "mean_precision": 1e6, "degrees_of_freedom": 1e9}
    component, _ = make_gaussian_component(
        X, np.ones(20), covariance_type, False, DEFAULT_PRIOR._replace(**given)
    )
    learner = GaussianLearner.from_component(component, frozenset({"mean_precision_prior"}))
    width = component.features(X[:1]).shape[1]
    log_kappa = learner.step(component, np.zeros((3, width)))[2]  # after the mean of two columns
    assert np.isfinite(log_kappa) and log_kappa > 0.0


def test_two_components_do_not_decide_how_much_all_differ():
    # without further components, the prior of two that are alike would leave no room for others
    component, learner, _, _ = case("Bernoulli")
    component = learner.with_parameters(component, np.zeros(2 * D))
    sums = np.tile([50.0] * D + [50.0] * D, (2, 1))
    for _ in range(60):
        component = learner.learn_prior(component, sums)
    assert 1.0 < component.prior.max() < 5.0
