"""Image patches of edges, whose covariances are known."""

from collections import namedtuple
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state, check_scalar

EdgePatches = namedtuple("EdgePatches", ["X", "labels", "covariances", "weights"])
EdgePatches.__doc__ = "Patches X (N, D), components (N,), covariances (K, D, D), weights (K,)."


def make_edge_covariances(n_components, patch_size, contrast, noise):
    """Return the covariance of patches with a straight edge, for each of K orientations, (K, D, D).

    ``contrast`` is half the standard deviation of the step across an edge, and ``noise`` the
    standard deviation of the noise of a pixel. D is the number of pixels. The covariance is the
    mean over nine offsets of the edge from the centre.
    """
    grid = np.arange(patch_size) - 0.5 * (patch_size - 1)
    x, y = (axis.ravel() for axis in np.meshgrid(grid, grid))
    offsets = np.linspace(-0.25, 0.25, 9) * patch_size
    covariances = []
    for angle in np.pi * np.arange(n_components) / n_components:
        distance = np.cos(angle) * x + np.sin(angle) * y
        # A pixel is -1 on one side of an edge and 1 on the other side. A pixel on the edge has a
        # value between, because it is partly on either side.
        edges = np.clip(distance[None, :] - offsets[:, None], -0.5, 0.5) * 2.0
        covariances.append(contrast**2 * edges.T @ edges / offsets.size)
    return np.stack(covariances) + noise**2 * np.eye(patch_size**2)


def make_edge_patches(
    n_samples=100_000, *, n_components=8, patch_size=5, contrast=1.0, noise=0.1, random_state=None
):
    """Draw zero-mean image patches with an edge of one of several orientations [HS13 sec. 4.1]_.

    The patches are a mixture of zero-mean Gaussians with equal weights. Each component has the
    covariance of patches with a straight edge of one orientation, at a random position near the
    middle and with random contrast, plus independent noise.

    Parameters
    ----------
    n_samples : int, default=100_000
        Number of patches N.
    n_components : int, default=8
        Number of orientations K, evenly spaced over half a turn.
    patch_size : int, default=5
        Number of pixels along a side; D is its square.
    contrast : float, default=1.0
        Half the standard deviation of the step across an edge.
    noise : float, default=0.1
        Standard deviation of the noise of a pixel.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same patches at every call.

    Returns
    -------
    X : ndarray of shape (n_samples, patch_size ** 2)
        Patches, row by row.
    labels : ndarray of int, shape (n_samples,)
        Component of each patch.
    covariances : ndarray, shape (n_components, patch_size ** 2, patch_size ** 2)
        True covariances.
    weights : ndarray, shape (n_components,)
        True weights, all equal. The four results are returned as a named tuple.

    References
    ----------
    .. [HS13 sec. 4.1] M. C. Hughes and E. B. Sudderth, "Memoized Online Variational Inference for
       Dirichlet Process Mixture Models", NeurIPS 2013.

    Examples
    --------
    >>> from skvt.datasets import make_edge_patches
    >>> X, labels, covariances, weights = make_edge_patches(1000, random_state=0)
    >>> X.shape, covariances.shape
    ((1000, 25), (8, 25, 25))
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(n_components, "n_components", Integral, min_val=1)
    check_scalar(patch_size, "patch_size", Integral, min_val=2)
    check_scalar(contrast, "contrast", Real, min_val=0.0, include_boundaries="neither")
    check_scalar(noise, "noise", Real, min_val=0.0, include_boundaries="neither")
    rng = check_random_state(random_state)
    covariances = make_edge_covariances(n_components, patch_size, contrast, noise)
    labels = rng.randint(n_components, size=n_samples)
    X = rng.standard_normal((n_samples, patch_size**2))
    for k, covariance in enumerate(covariances):
        X[labels == k] = X[labels == k] @ np.linalg.cholesky(covariance).T
    return EdgePatches(X, labels, covariances, np.full(n_components, 1.0 / n_components))
