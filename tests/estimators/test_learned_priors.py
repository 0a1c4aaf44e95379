"""Estimators that learn their priors."""

import numpy as np
import pytest

from skvt import MemoizedDPGMM, MemoizedDPMixture, StructuredBernoulliMixture
from skvt.components import Bernoulli, Categorical, Gaussian, Multinomial, Poisson

AUTO = {
    "mean_prior": "auto", "mean_precision_prior": "auto", "degrees_of_freedom_prior": "auto",
    "covariance_prior": "auto", "weight_concentration_prior": "auto",
}  # fmt: skip


def small_clusters(n=800, K=16, seed=0):
    """Clusters a hundredth of the table wide."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(-1.0, 1.0, (K, 2))
    return means[rng.integers(K, size=n)] + 0.01 * rng.standard_normal((n, 2))


@pytest.mark.parametrize(
    "covariance_type",
    ["spherical", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("full", "diag"))],
)
def test_clusters_much_smaller_than_the_data_are_found(covariance_type):
    X, held_out = small_clusters(400, 8), small_clusters(800, 8)[400:]
    published = dict.fromkeys(AUTO)
    given = MemoizedDPGMM(covariance_type=covariance_type, random_state=0, **published).fit(X)
    learned = MemoizedDPGMM(covariance_type=covariance_type, random_state=0, **AUTO).fit(X)
    assert given.n_components_ < 8 == learned.n_components_
    assert learned.score(held_out) > given.score(held_out) + 2.0
    # The attributes are the priors of the bound, so that a fit that is given them has the same.
    priors = {name: getattr(learned, f"{name}_") for name in AUTO}
    again = MemoizedDPGMM(
        learned.n_components_, covariance_type=covariance_type, moves=(), random_state=0, **priors
    ).fit(X)
    for name in AUTO:
        np.testing.assert_allclose(getattr(again, f"{name}_"), priors[name], rtol=1e-12)
    assert learned._fitted.model.component.prior == pytest.approx(
        again._fitted.model.component.prior, rel=1e-9, abs=1e-12
    )
    assert learned.elbo(X) == pytest.approx(learned.elbo_, rel=1e-6)


@pytest.mark.parametrize("learning_method", ["online", "batch"])
def test_the_published_bound_is_that_of_the_learned_priors(learning_method):
    X, settings = small_clusters(400, 8), {"moves": (), "max_iter": 30, "random_state": 0}
    mixture = MemoizedDPGMM(8, learning_method=learning_method, **settings, **AUTO).fit(X)
    assert mixture.covariance_prior_[0, 0] < 0.1 * X[:, 0].var()
    assert mixture.elbo_ == pytest.approx(mixture.elbo(X), rel=1e-3)


@pytest.mark.slow
def test_a_stream_learns_its_priors():
    X = small_clusters()
    mixture = MemoizedDPGMM(random_state=0, **AUTO)
    for _ in range(4):
        for key in range(4):
            mixture.partial_fit(X[key::4], batch_id=key)
    assert mixture.mean_precision_prior_ < 0.1


def test_blocks_learn_what_is_to_be_learned_and_publish_it():
    rng = np.random.default_rng(0)
    kind = rng.integers(4, size=400)
    X = np.stack(
        [
            rng.normal(kind, 0.1), (rng.random(400) < (kind > 1)) * 1.0, kind * 1.0,
            rng.poisson(1.0 + 5.0 * kind), rng.poisson(1.0 + kind), rng.poisson(4.0 - kind),
        ],
        axis=1,
    )  # fmt: skip
    blocks = [
        ("x", Gaussian("diag", mean_precision_prior=None), [0]), ("b", Bernoulli("auto"), [1]),
        ("c", Categorical("auto"), [2]), ("n", Poisson(2.0, rate_prior="auto"), [3]),
        ("t", Multinomial("auto"), [4, 5]),
    ]  # fmt: skip
    mixture = MemoizedDPMixture(components=blocks, max_components=5, random_state=0).fit(X)
    priors = mixture.priors_
    assert priors["x"]["covariance_prior"] < 0.1 * X[:, 0].var()
    assert priors["x"]["mean_precision_prior"] == 1.0
    assert priors["b"]["feature_prior"].shape == (1, 2)
    # The probabilities of each cluster are near 0 or 1.
    assert priors["b"]["feature_prior"].max() < 0.5
    assert priors["c"]["concentration_prior"].shape == (4,)
    assert priors["c"]["concentration_prior"].max() < 0.5
    assert priors["n"]["shape_prior"] == 2.0
    assert priors["n"]["rate_prior"][0] != pytest.approx(2.0 / X[:, 3].mean(), rel=1e-3)
    assert isinstance(priors["t"]["concentration_prior"], float)
    assert priors["t"]["concentration_prior"] != 1.0
    # A fit may be given what was learned.
    given = [(name, spec.set_params(**priors[name]), columns) for name, spec, columns in blocks]
    again = MemoizedDPMixture(components=given, max_iter=1, tol=0.0).fit(X)
    for name, of_block in priors.items():
        for parameter, value in of_block.items():
            np.testing.assert_allclose(again.priors_[name][parameter], value, rtol=1e-12)


@pytest.mark.quick_cases("100")
@pytest.mark.parametrize(
    "law, batch_size", [("dirichlet_process", 100), ("dirichlet_distribution", None)]
)
def test_structured_inference_learns_how_much_clusters_differ_in_a_column(law, batch_size):
    rng = np.random.default_rng(0)
    differing = rng.permuted(np.tile([[0.02] * 3 + [0.98] * 3], (10, 1)), axis=1).T
    profiles = np.hstack([differing, np.full((6, 10), 0.5)])
    X = (rng.random((600, 20)) < profiles[rng.integers(6, size=600)]) * 1.0
    mixture = StructuredBernoulliMixture(
        20, learning_method="structured", weight_concentration_prior_type=law,
        feature_prior="auto", batch_size=batch_size, max_iter=60, random_state=0,
    )  # fmt: skip
    a_and_b = mixture.fit(X).feature_prior_
    assert a_and_b[:10].max() < 1.0
    assert a_and_b[10:].min() > 2.0
