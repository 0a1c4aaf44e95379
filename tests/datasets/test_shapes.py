"""Sums of small pictures."""

import numpy as np
import pytest

from skvt.datasets import make_shapes


def test_rows_are_sums_of_weighted_pictures_and_noise():
    X, activations, components = make_shapes(20_000, random_state=0)
    assert X.shape == (20_000, 16) and activations.dtype == bool
    # black and white, each of one weight
    for picture in components:
        weights = np.unique(picture)
        assert weights.size == 2 and weights[0] == 0.0 and 0.5 <= weights[1] <= 1.0
    assert np.linalg.matrix_rank(components) == 8
    noise = X - activations @ components
    assert noise.var() == pytest.approx(0.1, rel=0.02)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.012)
    np.testing.assert_allclose(activations.mean(axis=0), 0.3, atol=0.015)
    pairs = np.corrcoef(activations.T)
    np.testing.assert_allclose(pairs, np.eye(8), atol=0.035)


def test_the_same_seed_draws_the_same_rows_with_or_without_the_truth():
    X = make_shapes(50, random_state=3).X
    np.testing.assert_array_equal(make_shapes(50, random_state=3, return_truth=False), X)
    assert not np.array_equal(make_shapes(50, random_state=4).X, X)
    assert np.all(make_shapes(50, noise_variance=0.0, random_state=3).X >= 0.0)


@pytest.mark.parametrize(
    "wrong", [{"n_samples": 0}, {"activation": 0.0}, {"activation": 1.0}, {"noise_variance": -1.0}]
)
def test_illegal_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        make_shapes(**wrong)
