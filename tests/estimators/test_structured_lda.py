"""StructuredLDA as scikit-learn and its users see it."""

import numpy as np
import pytest
from estimators._registry import counts
from sklearn.model_selection import GridSearchCV

from skvt import StructuredLDA
from skvt.temperature import LinearAnnealing


def quick(local, step, **params):
    params = {"n_components": 3, "max_iter": 4, "batch_size": 8, "random_state": 0} | params
    return StructuredLDA(local_step=local, global_step=step, **params)


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


def test_exact_bounds_are_recorded_where_they_were_asked_for():
    fitted = quick("gibbs", "ssvi-a", evaluate_every=2, perp_tol=0.0).fit(counts())
    assert np.array_equal(np.isnan(fitted.history_["elbo"]), [True, False, True, False])
    assert fitted.elbo_ == pytest.approx(fitted.elbo(counts()), rel=1e-12)
    assert fitted.history_["elbo"][-1] == pytest.approx(fitted.elbo_, rel=1e-12)
