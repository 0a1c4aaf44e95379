"""Rows are sums of small pictures."""

import numpy as np
import pytest

from skvt.datasets import make_shapes


def test_rows_are_sums_of_weighted_pictures_and_noise():
    X, activations, components = make_shapes(20_000, random_state=0)
    assert X.shape == (20_000, 16) and activations.dtype == bool
    # A picture is black and white, with one weight.
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
