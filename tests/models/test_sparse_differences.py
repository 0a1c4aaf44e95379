"""Components that differ from a common distribution in few columns."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score

import skvt
from skvt import MemoizedDPMixture
from skvt.components import Bernoulli, Categorical, Gaussian, Hurdle, NegativeBinomial, Poisson
from skvt.models.mixture import SparseDifferences, with_sparse_differences

N, D, K = 24, 2, 2
# Odds that a column of a component differs; they are equally probable.
ODDS = np.geomspace(1.0 / (D + 1.0), D + 1.0, 8)
SPECS = {
    "bernoulli": Bernoulli(),
    "categorical": Categorical(),
    "poisson": Poisson(),
    "gaussian": Gaussian("diag"),
    "negative_binomial": NegativeBinomial(),
}


def _rows(name, seed):
    """Rows of two columns, of which one differs between the first third and the others."""
    rng = np.random.default_rng(seed)
    means = np.where(np.arange(N)[:, None] < N // 3, [0.2, 0.4], [0.9, 0.4])
    draws = {
        "bernoulli": lambda: rng.random((N, D)) < means,
        "categorical": lambda: rng.binomial(2, means),
        "gaussian": lambda: rng.normal(4.0 * means, 1.0),
    }
    return 1.0 * draws.get(name, lambda: rng.poisson(8.0 * means))()


def _learned(name, seed):
    """Return a component with a learned common distribution, and statistics (K, P) of its rows."""
    X, spec = _rows(name, seed), SPECS[name]
    sizes = (3, 3) if name == "categorical" else None
    plain, _ = spec.build(X, np.ones(N), sizes)
    memberships = np.eye(K)[(np.arange(N) >= N // 3).astype(int)]
    sums = plain.weighted_sums(X, memberships)
    component, learner = with_sparse_differences(plain, None, sums.sum(axis=0))
    assert type(component) is SparseDifferences
    return plain, component, learner, sums


def _bound(component, sums):
    return component.log_evidence(sums).sum() + component.log_hyperprior


def _log_prior(differs):
    """Return the log probability of a component's indicators."""
    number = np.sum(differs)
    return logsumexp(number * np.log(ODDS) - len(differs) * np.log1p(ODDS)) - np.log(len(ODDS))


def _log_joint(plain, sums):
    """Return log p(rows) by enumeration of all indicators."""
    total = []
    for bits in product([False, True], repeat=K * D):
        separate = np.reshape(bits, (K, D))
        value = sum(map(_log_prior, separate))
        for d in range(D):
            own = sums[separate[:, d]]
            shared = sums[~separate[:, d]].sum(axis=0, keepdims=True)
            value += plain.column_evidence(np.concatenate([own, shared]))[:, d].sum()
        total.append(value)
    return logsumexp(total) + (sums * plain.base).sum()


@pytest.mark.parametrize("name", list(SPECS))
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_is_below_the_evidence_of_all_indicators_and_near_it(name, seed):
    plain, component, learner, sums = _learned(name, seed)
    at_first = _bound(component, sums)
    assert at_first <= _log_joint(plain, sums)
    component = learner.learn_prior(component, sums)
    bound, exact = _bound(component, sums), _log_joint(plain, sums)
    assert at_first < bound <= exact < bound + 2.0
    # the first column differs
    chances = component.family.indicators(component.natural_parameters(sums))
    assert chances[:, 0].max() > 0.5


@pytest.mark.parametrize("name", list(SPECS))
def test_expectations_are_the_gradient_of_the_log_normalizer(name):
    _, component, learner, sums = _learned(name, 0)
    component = learner.learn_prior(component, sums)
    lam, step = component.natural_parameters(sums), 1e-4
    direction = component.natural_sums(sums[::-1]) / N
    ends = [component.family.log_normalizer(lam + sign * step * direction) for sign in (1, -1)]
    slope = (direction * component.family.expectation(lam)).sum(axis=1)
    np.testing.assert_allclose((ends[0] - ends[1]) / (2.0 * step), slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(SPECS))
def test_sums_of_statistics_yield_these_statistics(name):
    plain, _, _, sums = _learned(name, 0)
    statistics = plain.natural_sums(sums)
    np.testing.assert_allclose(
        plain.natural_sums(plain.feature_sums(statistics)), statistics, rtol=1e-12
    )


def _alone(rows, column):
    """Return rows (n, D) whose values but those of one column are missing."""
    return np.where(np.arange(D) == column, np.asarray(rows, float)[:, None], np.nan)


@pytest.mark.parametrize("name", list(SPECS))
def test_predictions_average_over_both_values_of_each_indicator(name):
    plain, component, learner, sums = _learned(name, 0)
    component = learner.learn_prior(component, sums)
    lam, of_all = component.natural_parameters(sums), component.common
    statistics = plain.natural_sums(sums)
    of_rows = statistics * plain.family.expectation(of_all)
    step = {"gaussian": 0.02}.get(name, 1.0)
    values = {
        "bernoulli": np.arange(2.0),
        "categorical": np.arange(3.0),
        "gaussian": np.arange(-100.0, 100.0, step),
    }.get(name, np.arange(1000.0))
    log_common = (of_rows.reshape(K, D, -1)).sum(axis=2)
    # log p(s_k | rows, psi) for all values of the indicators, by enumeration
    states = np.array(list(product([0.0, 1.0], repeat=D)))
    log_states = states @ (plain.column_evidence(sums) - log_common).T
    log_states += np.array([[_log_prior(state)] for state in states])
    for d in range(D):
        chance = np.exp(logsumexp(log_states[states[:, d] == 1.0], axis=0))
        chance /= np.exp(logsumexp(log_states, axis=0))
        X = _alone(values, d)
        separate = np.exp(plain.log_predictive(X, plain.natural_parameters(sums)))
        expected = chance * separate + (1.0 - chance) * np.exp(
            plain.log_predictive(X, of_all[None])
        )
        density = np.exp(component.log_predictive(X, lam))
        np.testing.assert_allclose(density, expected, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(step * density.sum(axis=0), 1.0, rtol=1e-3)
        # draws and means of a missing value are those of its density
        mean, holes = step * values @ density, np.full((4000, D), np.nan)
        variance = step * values**2 @ density - mean**2
        if name != "categorical":
            means = component.conditional_mean(holes[:1], lam)[:, 0, d]
            np.testing.assert_allclose(means, mean, rtol=1e-3)
        rng = np.random.default_rng(d)
        for k in range(K):
            for draws in (
                component.conditional_sample(holes, lam[k], rng),
                component.sample(lam[k], len(holes), rng),
            ):
                error = np.sqrt(variance[k] / len(holes))
                assert abs(draws[:, d].mean() - mean[k]) < 4.0 * error
    # a row's columns are independent given the component
    X = _rows(name, 1)
    alone = sum(component.log_predictive(_alone(X[:, d], d), lam) for d in range(D))
    np.testing.assert_allclose(component.log_predictive(X, lam), alone, rtol=1e-8)


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_probabilities_and_imputed_values_average_over_indicators(name):
    _, component, learner, sums = _learned(name, 0)
    component = learner.learn_prior(component, sums)
    lam, levels = component.natural_parameters(sums), 2 if name == "bernoulli" else 3
    holes, memberships = np.full((1, D), np.nan), np.array([[0.3, 0.7]])
    imputed = component.imputed(holes, lam, memberships)
    for d in range(D):
        density = np.exp(component.log_predictive(_alone(np.arange(levels), d), lam))
        chances = component.column_probabilities(lam, d, None)
        np.testing.assert_allclose(chances, density.T, rtol=1e-10)
        assert imputed[0, d] == (memberships @ chances).argmax()


def test_drawn_parameters_are_predicted_without_a_choice():
    _, component, learner, sums = _learned("gaussian", 0)
    component = learner.learn_prior(component, sums)
    rng, lam = np.random.default_rng(0), component.natural_parameters(sums)
    draws = [component.drawn(lam, rng) for _ in range(300)]
    X = _rows("gaussian", 1)
    densities = np.mean([np.exp(drawn.log_predictive(X, known)) for drawn, known in draws], axis=0)
    ratios = densities / np.exp(component.log_predictive(X, lam))
    assert np.abs(np.median(ratios, axis=0) - 1.0).max() < 0.1


def test_components_that_do_not_differ_do_not_change_the_price_of_a_difference():
    X, is_rare, _ = _signs(0)
    plain, _ = Categorical().build(X, np.ones(len(X)), (4,) * 34)
    evidence = []
    for number in (1, 8):
        memberships = np.column_stack([is_rare, *[~is_rare / number] * number])
        sums = plain.weighted_sums(X, memberships)
        component, learner = with_sparse_differences(plain, None, sums.sum(axis=0))
        evidence.append(learner.learn_prior(component, sums).log_evidence(sums[:1])[0])
    assert abs(np.diff(evidence)[0]) < 1.0


def _signs(seed, concentration=0.5):
    """Draw 300 rows of 34 signs of four levels, of which 20 differ from the others in ten."""
    rng = np.random.default_rng(seed)
    usual = rng.dirichlet(np.full(4, concentration), 34)
    rare, differ = usual.copy(), rng.choice(34, 10, replace=False)
    rare[differ] = rng.dirichlet(np.full(4, concentration), 10)
    is_rare = rng.permutation(300) < 20
    chances = np.where(is_rare[:, None, None], rare, usual).cumsum(axis=-1)
    X = (rng.random((300, 34, 1)) > chances[..., :-1]).sum(axis=-1)
    return X, is_rare, differ


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_small_class_in_a_wide_table_is_found_and_described_by_its_columns(seed):
    X, is_rare, differ = _signs(seed)
    signs = pd.DataFrame(X, columns=[f"sign {j}" for j in range(34)]).astype("category")
    mixture = MemoizedDPMixture(sparse_differences=True, random_state=0).fit(signs)
    assert adjusted_rand_score(is_rare, mixture.labels_) > 0.8
    k = np.bincount(mixture.labels_[is_rare]).argmax()
    line = mixture.describe(form="text").splitlines()[k]
    assert line.count("sign") == sum(f"sign {j} " in line for j in differ) == 4


def _mixed():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(90) % 3)
    table = {
        "colour": np.array(["red", "green", "blue"])[np.where(rng.random(90) < 0.8, y, 0)],
        "shape": np.array(["round", "flat"], object)[rng.integers(2, size=90)],
        "length": rng.normal(3.0 * y, 1.0),
        "weight": np.exp(rng.normal(size=90)),
        "rain": np.where(rng.random(90) < 0.4, 0.0, rng.normal(2.0 * y + 3.0, 1.0)),
        "eggs": rng.poisson(2.0 + 4.0 * (y == 1)),
        "legs": rng.poisson(3.0, 90),
        "ticks": rng.negative_binomial(2, 0.3, 90),
    }
    table = pd.DataFrame(table)
    table.loc[::7, ["shape", "length"]] = None
    blocks = [
        ("names", Categorical(missing="informative"), ["colour", "shape"]),
        ("sizes", Gaussian("diag", log=["weight"]), ["length", "weight"]),
        ("hurdle", Hurdle(Gaussian("diag")), ["rain"]),
        ("counts", Poisson(), ["eggs", "legs"]),
        ("others", NegativeBinomial(), ["ticks"]),
    ]
    settings = {"n_components": 3, "moves": (), "sparse_differences": True, "random_state": 0}
    return table, MemoizedDPMixture(components=blocks, **settings)


def test_tables_of_all_kinds_are_predicted_described_and_saved(tmp_path):
    table, mixture = _mixed()
    mixture.fit(table)
    skvt.save(mixture, tmp_path / "mixture")
    loaded = skvt.load(tmp_path / "mixture")
    np.testing.assert_array_equal(loaded.score_samples(table), mixture.score_samples(table))
    np.testing.assert_array_equal(loaded.column_relevance_, mixture.column_relevance_)
    assert not mixture.impute(table, n_draws=1, random_state=0)[0].isna().any(axis=None)
    assert list(mixture.sample(20)[0]) == list(table)
    # a level that did not occur is less probable than any other
    with pytest.warns(skvt.ColumnWarning, match="'colour'"):
        likeliest = [
            mixture.score_samples(table.assign(colour=colour))[1]
            for colour in ("red", "blue", "grey")
        ]
    assert likeliest[2] < min(likeliest[:2])


def test_streams_learn_the_common_distribution():
    table, mixture = _mixed()
    for rows in np.array_split(np.arange(90), 3):
        mixture.partial_fit(table.iloc[rows])
    block = mixture._fitted.model.component.blocks[3].component
    # components have the same distribution of legs
    counts, rows = (block.common - block.inner_component.prior)[1]
    assert 0.5 * table.legs.sum() < counts < table.legs.sum() + 1e-6
    assert 0.5 * 90.0 < rows < 90.0 + 1e-6


def test_other_likelihoods_are_not_changed():
    X = np.random.default_rng(0).normal(size=(60, 3))
    fits = [
        MemoizedDPMixture(
            components=[("x", Gaussian("full"), slice(None))],
            n_components=2,
            moves=(),
            sparse_differences=on,
            random_state=0,
        ).fit(X)
        for on in (False, True)
    ]
    assert fits[0].elbo_ == fits[1].elbo_
