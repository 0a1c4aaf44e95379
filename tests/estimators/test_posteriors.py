"""Draws, densities, moments and the entropy of the posterior of each estimator agree."""

import numpy as np
import pytest
from estimators._registry import every_class, every_growing_mixture, published
from sklearn.exceptions import NotFittedError

from skvt import MemoizedDPGMM, StructuredLDA

N_DRAWS = 2_000


def arrays(value):
    """The arrays of a value with blocks and fields, in order."""
    if isinstance(value, dict):
        return [array for part in value.values() for array in arrays(part)]
    return list(value) if isinstance(value, tuple) else [np.asarray(value)]


@pytest.mark.slow
@every_class
def test_draws_have_the_moments_and_the_entropy_of_the_posterior(entry):
    posterior = entry.make(**entry.still).fit(entry.data(n_rows=60)).posterior_
    draws = posterior.sample(N_DRAWS, random_state=0)
    drawn, means, variances = arrays(draws), arrays(posterior.mean()), arrays(posterior.var())
    assert len(drawn) == len(means) == len(variances)
    for array, mean, variance in zip(drawn, means, variances, strict=True):
        assert array.shape == (N_DRAWS, *mean.shape) and mean.shape == variance.shape
        error = np.sqrt(variance / N_DRAWS)
        # Draws say little of assignments that are nearly certain.
        certain = np.isin(array, [0.0, 1.0]).all(axis=0) & (variance < 10.0 / N_DRAWS)
        assert np.all((np.abs(array.mean(axis=0) - mean) < 5.0 * error)[~certain])
    logs = posterior.log_prob(draws)
    assert logs.shape == (N_DRAWS,)
    error = logs.std() / np.sqrt(N_DRAWS)
    assert posterior.entropy() == pytest.approx(-logs.mean(), abs=5.0 * error)


@every_class
def test_draws_follow_the_random_state(entry):
    posterior = entry.make().fit(entry.data()).posterior_
    one, again, other = (arrays(posterior.sample(2, seed)) for seed in (0, 0, 1))
    for a, b, c in zip(one, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c) and not np.array_equal(a[0], a[1])
    assert np.ndim(posterior.log_prob(posterior.mean())) == 0


def test_the_text_of_a_posterior_names_its_families():
    X = np.random.default_rng(0).normal(size=(50, 2))
    mixture = MemoizedDPGMM(3, moves=(), random_state=0).fit(X)
    assert repr(mixture.posterior_) == (
        "JointPosterior(weights=Posterior(Beta, members=(3,), value=()), "
        "components=Posterior(NormalWishart, members=(3,), mean=(2,), precision=(2, 2)))"
    )
    lda = StructuredLDA(n_components=4, max_iter=1, random_state=0).fit(np.ones((5, 7)))
    assert repr(lda.posterior_) == "Posterior(Dirichlet, members=(4,), value=(7,))"


@pytest.mark.quick_cases("MemoizedDPGMM")
@every_growing_mixture
def test_mixtures_drawn_have_the_expected_weights_and_the_components_of_the_posterior(entry):
    mixture = entry.make(**entry.still).fit(entry.data(n_rows=60))
    draws = mixture.sample_mixtures(N_DRAWS, random_state=3)
    assert set(draws) == {"weights", "components"}
    for drawn, same in zip(
        arrays(draws["components"]),
        arrays(mixture.posterior_.sample(N_DRAWS, random_state=3)["components"]),
        strict=True,
    ):
        np.testing.assert_array_equal(drawn, same)
    weights = draws["weights"]
    assert np.all(weights >= 0.0) and np.all(weights.sum(axis=1) < 1.0 + 1e-9)
    q = mixture.posterior_.weights.mean()
    # A finite Dirichlet has one row of weights, and sticks have their shares of what is left.
    expected = q[0] if q.ndim == 2 else q * np.cumprod(np.append(1.0, 1.0 - q))[:-1]
    error = weights.std(axis=0) / np.sqrt(N_DRAWS)
    assert np.all(np.abs(weights.mean(axis=0) - expected) < 5.0 * error)


@every_growing_mixture
def test_mixtures_are_drawn_only_from_a_fit_and_leave_it_as_it_was(entry):
    with pytest.raises(NotFittedError):
        entry.make().sample_mixtures()
    mixture = entry.make().fit(entry.data())
    before = published(mixture)
    np.testing.assert_array_equal(
        mixture.sample_mixtures()["weights"],
        mixture.sample_mixtures(random_state=entry.quick["random_state"])["weights"],
    )
    np.testing.assert_equal(published(mixture), before)
