"""Real and ordinal columns of a table are modelled together."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skvt import MemoizedDPMixture
from skvt.components import Bernoulli, Categorical, Gaussian, LatentGaussian, Poisson

COLUMNS = ["size", "grade", "flag"]


def table(n=300, seed=0, missing=0.15, shift=0.0):
    """Two clusters of correlated latent values ``shift`` apart, complete and with holes."""
    rng = np.random.default_rng(seed)
    covariance = [[1.0, 0.9, 0.8], [0.9, 1.0, 0.7], [0.8, 0.7, 1.0]]
    kind = rng.integers(2, size=n)
    latent = rng.multivariate_normal(np.zeros(3), covariance, n)
    latent[:, 0] += shift * kind
    complete = pd.DataFrame(
        {
            "events": rng.poisson(3.0, n),
            "size": latent[:, 0],
            "grade": np.array([1, 2, 5, 9])[np.digitize(latent[:, 1], [-1.0, 0.0, 1.0])],
            "flag": latent[:, 2] > 0.3,
        }
    ).astype({"grade": "Int64", "flag": "boolean"})
    holes = rng.random((n, 3)) < missing
    return complete, complete.mask(np.column_stack([np.zeros(n, bool), holes])), kind


def mixture(covariance_type="full", **params):
    blocks = [
        ("events", Poisson(1.0, rate_prior=None), ["events"]),
        ("latent", LatentGaussian(["grade", "flag"], covariance_type), COLUMNS),
    ]
    params = {"max_components": 3, "random_state": 0} | params
    return MemoizedDPMixture(components=blocks, **params)


@pytest.mark.quick_cases("full")
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_correlations_of_columns_need_no_components(covariance_type):
    complete, X, _ = table(200)
    new, _, _ = table(500, seed=1)
    together = mixture(covariance_type, max_components=2).fit(X)
    assert together.n_components_ == 1
    assert np.diff(together.history_["elbo"]).min() > -1e-6
    apart = [("events", Poisson(), ["events"]), ("size", Gaussian(), ["size"]),
             ("grade", Categorical(), ["grade"]), ("flag", Bernoulli(), ["flag"])]  # fmt: skip
    apart = MemoizedDPMixture(components=apart, max_components=3, random_state=0).fit(X)
    assert together.score(new) > apart.score(new) + 0.05
    assert together.elbo_ > apart.elbo_ + 0.1 * len(X)
    filled = together.impute(X)
    assert list(filled.dtypes) == list(complete.dtypes) and not filled.isna().any(axis=None)


@pytest.mark.slow
def test_clusters_are_found_and_levels_kept():
    _, X, kind = table(200, shift=7.0)
    fitted = mixture().fit(X)
    assert fitted.n_components_ == 2
    labels = fitted.predict(X)
    assert max((labels == kind).mean(), (labels != kind).mean()) > 0.9
    drawn, _ = fitted.sample(50)
    assert set(drawn["grade"]) <= {1, 2, 5, 9} and drawn["flag"].dtype == bool
    likely = fitted.score_column(X.assign(grade=fitted.predict_column(X, "grade")), "grade")
    others = [fitted.score_column(X.assign(grade=level), "grade") for level in (1, 2, 5, 9)]
    np.testing.assert_allclose(likely, np.max(others, axis=0), atol=0.05)
    np.testing.assert_allclose(np.exp(others).sum(axis=0), 1.0, atol=0.02)


@pytest.mark.parametrize("ordinal", [["events"], [], ["grade", "events"]])
def test_ordinal_columns_must_be_some_of_the_component(ordinal):
    _, X, _ = table(20)
    blocks = [("latent", LatentGaussian(ordinal), COLUMNS)]
    with pytest.raises(ValueError, match="'ordinal' parameter"):
        MemoizedDPMixture(components=blocks).fit(X)


def test_priors_are_learned():
    _, X, _ = table(150, shift=6.0)
    learned = mixture(n_components=2, moves=(), max_iter=10, tol=0.0)
    fixed = clone(learned).set_params(
        components__latent__covariance_prior=None, components__latent__mean_prior=None
    )
    assert learned.fit(X).elbo_ > fixed.fit(X).elbo_ + 0.5
