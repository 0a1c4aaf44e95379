"""AnnealedFactorialMixture finds components of sums; tests of the registry hold what all share."""

import warnings

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from skvt import AnnealedFactorialMixture
from skvt.datasets import make_shapes
from skvt.models.factorial import _superposition
from skvt.temperature import ConstantTemperature

X, ACTIVATIONS, COMPONENTS = make_shapes(4_000, random_state=0)


def found(estimator):
    """Number of true pictures among the components."""
    n = len(estimator.components_)
    correlations = np.corrcoef(estimator.components_, COMPONENTS)[:n, n:]
    return np.sum(correlations[linear_sum_assignment(-correlations)] > 0.95)


@pytest.fixture(scope="module")
def annealed():
    return AnnealedFactorialMixture(8, random_state=0).fit(X)


@pytest.mark.quick_cases("annealed")
@pytest.mark.parametrize("temperature", ["annealed", "variational", "local"])
def test_all_pictures_are_found_and_what_is_learned_is_right(temperature, annealed):
    estimator = annealed
    if temperature != "annealed":
        estimator = AnnealedFactorialMixture(8, temperature=temperature, random_state=0).fit(X)
    assert found(estimator) == 8
    assert estimator.noise_variance_ == pytest.approx(0.1, rel=0.05)
    np.testing.assert_allclose(estimator.activation_prior_, 0.3, atol=0.04)
    assert estimator.prior_variance_ == pytest.approx(np.mean(COMPONENTS**2), rel=0.1)
    # Every fit ends at T = 1, in the model itself.
    assert estimator.history_["temperature"][-1] == 1.0
    assert max(estimator.history_["temperature"]) > 1.5


def test_parameters_that_are_given_are_kept():
    estimator = AnnealedFactorialMixture(
        8, noise_variance=0.2, prior_variance=0.5, activation_prior=0.25, random_state=0
    ).fit(X[:500])
    assert (estimator.noise_variance_, estimator.prior_variance_) == (0.2, 0.5)
    np.testing.assert_array_equal(estimator.activation_prior_, 0.25)


@pytest.mark.slow
def test_missing_values_are_filled_in_from_the_values_that_the_row_has():
    rng = np.random.default_rng(0)
    holes = rng.random(X.shape) < 0.2
    estimator = AnnealedFactorialMixture(8, random_state=0).fit(np.where(holes, np.nan, X))
    assert found(estimator) == 8
    filled = estimator.inverse_transform(estimator.transform(np.where(holes, np.nan, X)))
    error = np.mean((filled - X)[holes] ** 2)
    assert error < 0.5 * np.mean((X - X.mean(axis=0))[holes] ** 2)
    assert np.isfinite(estimator.score(np.where(holes, np.nan, X)[:200]))


@pytest.mark.quick_cases("partial_fit")
@pytest.mark.parametrize("then", ["partial_fit", "fit"])
def test_missing_values_may_come_later(then):
    estimator = AnnealedFactorialMixture(8, warm_start=True, random_state=0).fit(X[:2_000])
    later = X[2_000:].copy()
    later[::3, 5] = np.nan
    before = estimator.score(X[2_000:2_500])
    getattr(estimator, then)(later)
    assert estimator.score(X[2_000:2_500]) > before - 0.2
    assert estimator.posterior_.var().shape == (8, 16)


def test_transform_finds_the_activations(annealed):
    estimator = annealed
    correlations = np.corrcoef(estimator.components_, COMPONENTS)[:8, 8:]
    ours, true = linear_sum_assignment(-correlations)
    probabilities = estimator.transform(X)
    assert np.mean((probabilities[:, ours] > 0.5) == ACTIVATIONS[:, true]) > 0.85
    with pytest.raises(ValueError, match="8 components"):
        estimator.inverse_transform(probabilities[:, :5])


@pytest.mark.parametrize("K", [8, 13])
def test_rows_that_mean_field_explains_badly_are_explained(K):
    rng = np.random.default_rng(0)
    Z = rng.random((1_000, K)) < 0.3
    rows = Z @ rng.standard_normal((K, 8)) + 0.3 * rng.standard_normal((1_000, 8))
    estimator = AnnealedFactorialMixture(K, moves=(), max_iter=30, random_state=0).fit(rows)
    # Rows are explained no worse than the fit left them, up to 0.01 nats a row.
    assert estimator.elbo(rows) > estimator.elbo_ - 0.01 * len(rows)
    assert estimator.elbo(rows) < estimator.score_samples(rows).sum()
    # The activations of a row are compared with their posterior means under q of the components.
    model, stats, few = estimator._fitted.model, estimator._fitted.stats, rows[:60]
    q = model.family.to_standard(model.natural_parameters(stats)[0])
    z = ((np.arange(2**K)[:, None] >> np.arange(K)) & 1).astype(float)
    variance = model.noise_variance + np.einsum("sk,kl,sl->s", z, q["covariance"][0], z)
    squares = ((few[:, None] - z @ q["mean"]) ** 2).sum(axis=2)
    joint = z @ model.logit - 0.5 * (8 * np.log(variance) + squares / variance)
    exact = softmax(joint, axis=1) @ z
    assert np.abs(estimator.transform(few) - exact).max() < (1e-6 if K == 8 else 0.3)


def test_draws_score_as_the_data_do(annealed):
    estimator = annealed
    draws, activations = estimator.sample(1_000, random_state=1)
    assert draws.shape == (1_000, 16) and activations.shape == (1_000, 8)
    values = estimator.score_samples(X[2_000:3_000]), estimator.score_samples(draws)
    error = np.hypot(*(value.std() / np.sqrt(1_000) for value in values))
    assert abs(values[0].mean() - values[1].mean()) < 4.5 * error


def test_fits_take_fewer_rows_than_components_and_constant_columns():
    few = np.column_stack([X[:3], np.ones(3), np.zeros(3)])
    estimator = AnnealedFactorialMixture(6, max_iter=10, random_state=0).fit(few)
    assert np.isfinite(estimator.elbo_) and np.isfinite(estimator.components_).all()
    alone = AnnealedFactorialMixture(2, max_iter=10, random_state=0).fit(np.zeros((5, 3)))
    assert np.isfinite(alone.elbo_)
    empty = np.full((4, 3), np.nan)
    with pytest.warns(UserWarning, match="4 of 4 rows have NaN only"):
        alone.fit(empty)
    assert np.isfinite(alone.elbo_)


@pytest.mark.quick_cases("True")
@pytest.mark.parametrize("share, alike", [(0.7, False), (1.4, True)])
def test_components_differ_only_below_the_critical_temperature(share, alike):
    rng = np.random.default_rng(0)
    rows = (rng.random((2000, 4)) < 0.3) @ rng.standard_normal((4, 10)) + rng.normal(
        size=(2000, 10)
    )
    critical = np.linalg.eigvalsh(np.cov(rows.T))[-1] / 0.5
    estimator = AnnealedFactorialMixture(
        4, noise_variance=0.5, prior_variance=100.0, activation_prior=0.3, max_iter=300,
        tol=0.0, temperature=ConstantTemperature(share * critical), moves=(), random_state=0,
    ).fit(rows)  # fmt: skip
    assert (np.ptp(estimator.components_, axis=0).max() < 1e-3) == alike
    # The fit computes it from half of the rows.
    assert estimator._fitted.model.critical_temperature == pytest.approx(critical, rel=0.15)


def test_the_noise_variance_begins_as_what_the_components_leave_unexplained():
    rng = np.random.default_rng(0)
    rows = (rng.random((900, 6)) < 0.2) @ rng.standard_normal((6, 40)) + rng.normal(size=(900, 40))
    rows[rng.random(rows.shape) < 0.01] = np.nan
    built = AnnealedFactorialMixture(6)._build_model(rows, np.ones(900))
    assert built.noise_variance == pytest.approx(1.0, rel=0.1)
    twice = AnnealedFactorialMixture(6)._build_model(rows[:300], np.full(300, 2.0))
    repeated = AnnealedFactorialMixture(6)._build_model(np.repeat(rows[:300], 2, 0), np.ones(600))
    assert twice.noise_variance == pytest.approx(repeated.noise_variance, rel=1e-9)
    assert twice.critical_temperature == pytest.approx(repeated.critical_temperature, rel=1e-9)


def test_the_bound_does_not_fall_where_rows_are_far_from_zero():
    far = np.random.default_rng(0).normal(loc=100.0, size=(10, 4))
    # A bound that falls warns, and each warning is an error in tests.
    for seed in range(5):
        AnnealedFactorialMixture(noise_variance=0.05, moves=(), random_state=seed).fit(far)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"activation_prior": [0.3, 0.3]}, r"shape \(n_components,\) = \(8,\)"),
        ({"activation_prior": [0.3] * 7 + [1.0]}, r"in the range \(0, 1\). Got 1"),
        ({"moves": ("birth",)}, "'birth'"),
    ],
)
def test_illegal_parameters_are_refused_with_the_value(wrong, message):
    with pytest.raises(ValueError, match=message):
        AnnealedFactorialMixture(8, **wrong).fit(X)


@pytest.mark.parametrize(
    "changes", [{"activation_prior": 1e-300}, {"n_components": 41}, {"noise_variance": 1e-12}]
)
def test_extreme_priors_lead_to_finite_results_or_a_clear_error(changes):
    rows = np.random.default_rng(0).standard_normal((40, 4))
    for data in (rows, 1e99 * rows, 1e-160 * rows, np.column_stack([rows, np.full(40, 1e14)])):
        estimator = AnnealedFactorialMixture(**{"n_components": 5, "max_iter": 8} | changes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                estimator.fit(data)
            except ValueError as error:
                assert not isinstance(error, np.linalg.LinAlgError)
                assert "Scale the columns" in str(error)
                assert not hasattr(estimator, "elbo_")
            else:
                assert np.isfinite(estimator.elbo_) and np.isfinite(estimator.components_).all()


def test_a_search_for_moves_is_bounded_however_many_components_there_are(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((30, 5))
    tried = []
    try_change = _superposition._try_change

    def counted(*args, change, n_updates):
        tried.append(change)
        return try_change(*args, change=change, n_updates=n_updates)

    monkeypatch.setattr(_superposition, "_try_change", counted)
    monkeypatch.setattr(_superposition, "MAX_WORK", 60 * 64 * 12**2 * 5)
    estimator = AnnealedFactorialMixture(12, temperature=None, max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(rows)
    # It tries 5 changes on few rows, and the best of them on more rows.
    assert 2 <= len(tried) <= 5 + 1 + 4


@pytest.mark.slow
def test_ordinary_rows_converge_by_default():
    X = np.random.default_rng(0).standard_normal((180, 4))
    assert AnnealedFactorialMixture(random_state=0).fit(X).converged_
