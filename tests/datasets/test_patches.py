"""Image patches are drawn from Gaussians with the covariances of edges."""

import numpy as np
import pytest

from skvt.datasets import make_edge_patches
from skvt.datasets._patches import make_edge_covariances


def test_patches_have_the_returned_covariances():
    X, labels, covariances, weights = make_edge_patches(
        40_000, n_components=3, patch_size=4, random_state=0
    )
    assert X.shape == (40_000, 16) and labels.shape == (40_000,)
    assert covariances.shape == (3, 16, 16)
    np.testing.assert_allclose(weights, 1.0 / 3.0)
    counts = np.bincount(labels, minlength=3)
    assert np.all(np.abs(counts - 40_000 / 3) < 4.5 * np.sqrt(40_000 * 2.0 / 9.0))
    for k in range(3):
        part = X[labels == k]
        products = np.einsum("ni,nj->nij", part, part)
        error = products.std(axis=0) / np.sqrt(len(part))
        assert np.all(np.abs(products.mean(axis=0) - covariances[k]) < 5.0 * error)
        error = part.std(axis=0) / np.sqrt(len(part))
        assert np.all(np.abs(part.mean(axis=0)) < 4.5 * error)


def test_patches_have_their_orientation_noise_and_contrast():
    quiet = make_edge_covariances(4, 5, contrast=2.0, noise=0.3)
    # After half of the orientations, an edge of the same kind is perpendicular.
    image = quiet[0].reshape(5, 5, 5, 5)
    across = quiet[2].reshape(5, 5, 5, 5)
    np.testing.assert_allclose(image.transpose(1, 0, 3, 2), across, atol=1e-12)
    # In a vertical edge, pixels above one another differ only by the noise.
    pixel = np.arange(25).reshape(5, 5)
    assert quiet[0][pixel[0, 4], pixel[4, 4]] == pytest.approx(quiet[0][24, 24] - 0.09)
    np.testing.assert_allclose(np.linalg.eigvalsh(quiet)[:, 0], 0.09, rtol=1e-6)
    louder = make_edge_covariances(4, 5, contrast=6.0, noise=0.3) - 0.09 * np.eye(25)
    np.testing.assert_allclose(louder, 9.0 * (quiet - 0.09 * np.eye(25)), atol=1e-12)
    # Far from the edge, a pixel is one contrast above or below the mean.
    assert quiet[0][pixel[2, 4], pixel[2, 4]] == pytest.approx(4.0 + 0.09, rel=0.2)
