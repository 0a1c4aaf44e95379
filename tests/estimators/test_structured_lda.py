"""StructuredLDA as scikit-learn and its users see it."""

import numpy as np
import pytest
from estimators._registry import assert_same_fit, counts
from sklearn.model_selection import GridSearchCV

from skvt import StructuredLDA
from skvt.temperature import LinearAnnealing

# The registry runs the shared tests over two more pairs.
STEPS = [("gibbs", "ssvi"), ("cvb0", "ssvi"), ("cvb0", "map")]
every_pair = pytest.mark.parametrize("local, step", STEPS)


def quick(local, step, **params):
    params = {"n_components": 3, "max_iter": 4, "batch_size": 8, "random_state": 0} | params
    return StructuredLDA(local_step=local, global_step=step, **params)


@every_pair
def test_the_fit_is_the_same_for_every_number_of_jobs(local, step):
    X = counts(n_rows=60)
    assert_same_fit(quick(local, step, n_jobs=1).fit(X), quick(local, step, n_jobs=3).fit(X))


@every_pair
def test_a_row_is_transformed_alike_wherever_it_stands(local, step):
    X = counts(n_rows=60)
    fitted = quick(local, step).fit(X)
    np.testing.assert_array_equal(fitted.transform(X)[17:18], fitted.transform(X[17:18]))
    np.testing.assert_array_equal(fitted.transform(X)[::-1], fitted.transform(X[::-1]))


@every_pair
def test_float32_stays_float32_and_weights_are_taken(local, step):
    X = counts(n_rows=60).astype(np.float32)
    fitted = quick(local, step).fit(X, sample_weight=np.linspace(0.5, 2.0, 60))
    assert fitted.components_.dtype == np.float32
    assert np.isfinite(fitted.elbo_) and np.isfinite(fitted.score(X))


@pytest.mark.parametrize("temperature", ["variational", "local"])
def test_learned_temperatures_need_a_bound_to_learn_from(temperature):
    X = counts()
    with pytest.raises(ValueError, match="LinearAnnealing"):
        quick("gibbs", "ssvi-a", temperature=temperature).fit(X)
    quick("mean_field", "ssvi-a", temperature=temperature).fit(X)


@pytest.mark.parametrize(
    ("prior", "hottest"), [
        (0.001, 1.5), (0.02, 1.5), (0.02 * 5**0.5, 1.25), (0.1, 1.0), (3.0, 1.0), ("auto", 1.5),
    ],
)  # fmt: skip
def test_the_default_heat_depends_on_the_prior_of_the_topics(prior, hottest):
    X, params = counts(n_rows=60), {"topic_word_prior": prior, "moves": ()}
    by_name = quick("gibbs", "ssvi-a", **params).fit(X)
    third = by_name.max_iter / 3.0
    policy = LinearAnnealing(initial_temperature=hottest, n_passes=third, replication=1.0)
    explicit = quick("gibbs", "ssvi-a", temperature=policy, **params).fit(X)
    np.testing.assert_allclose(by_name.history_["temperature"], explicit.history_["temperature"])
    plain = quick("gibbs", "ssvi-a", temperature=None, **params).fit(X)
    assert (hottest == 1.0) == np.array_equal(by_name.components_, plain.components_)


def test_a_search_chooses_between_steps():
    search = GridSearchCV(
        quick("gibbs", "ssvi-a"),
        {"global_step": ["ssvi-a", "map"], "temperature": [None, "annealed"]},
        cv=2,
    ).fit(counts(n_rows=60))
    assert np.isfinite(search.best_score_)


@pytest.mark.parametrize(
    "params", [{"n_burn_in": -1}, {"n_samples": 0}, {"local_step": "exact"}, {"global_step": "em"}]
)
def test_illegal_parameters_are_named(params):
    (name,) = params
    with pytest.raises(ValueError, match=name):
        quick("gibbs", "ssvi-a").set_params(**params).fit(counts())


def test_exact_bounds_are_recorded_where_they_were_asked_for():
    fitted = quick("gibbs", "ssvi-a", evaluate_every=2, perp_tol=0.0).fit(counts())
    assert np.array_equal(np.isnan(fitted.history_["elbo"]), [True, False, True, False])
    assert fitted.elbo_ == pytest.approx(fitted.elbo(counts()), rel=1e-12)
    assert fitted.history_["elbo"][-1] == pytest.approx(fitted.elbo_, rel=1e-12)
