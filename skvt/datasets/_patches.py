"""Image patches: edges of known covariance, and patches of scikit-learn's sample photographs."""

from collections import namedtuple
from numbers import Integral, Real

import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.utils import check_random_state, check_scalar

EdgePatches = namedtuple("EdgePatches", ["X", "labels", "covariances", "weights"])
EdgePatches.__doc__ = "Patches X (N, D), components (N,), covariances (K, D, D), weights (K,)."


PHOTOGRAPHS = ("china.jpg", "flower.jpg")
# Of red, green and blue in the luminance of ITU-R BT.601.
_LUMINANCE = np.array([0.299, 0.587, 0.114])


def edge_covariances(n_components, patch_size, contrast, noise):
    """Covariance of patches with a straight edge, one for each orientation, (K, D, D)."""
    grid = np.arange(patch_size) - 0.5 * (patch_size - 1)
    x, y = (axis.ravel() for axis in np.meshgrid(grid, grid))
    offsets = np.linspace(-0.25, 0.25, 9) * patch_size
    covariances = []
    for angle in np.pi * np.arange(n_components) / n_components:
        distance = np.cos(angle) * x + np.sin(angle) * y
        # A pixel on the edge is partly on either side.
        edges = np.clip(distance[None, :] - offsets[:, None], -0.5, 0.5) * 2.0
        covariances.append(contrast**2 * edges.T @ edges / offsets.size)
    return np.stack(covariances) + noise**2 * np.eye(patch_size**2)


def make_edge_patches(
    n_samples=100_000,
    *,
    n_components=8,
    patch_size=5,
    contrast=1.0,
    noise=0.1,
    random_state=None,
    return_truth=True,
):
    """Draw zero-mean image patches with an edge of one of several orientations [HS13 sec. 4.1]_.

    A mixture of zero-mean Gaussians with equal weights. The covariance of a component is that of
    patches with a straight edge of its orientation, at a random position near the middle and with
    random contrast, plus independent noise.

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
    return_truth : bool, default=True
        Whether to return labels, covariances and weights, too.

    Returns
    -------
    X : ndarray of shape (n_samples, patch_size ** 2)
        Patches, row by row.
    labels : ndarray of int, shape (n_samples,)
        Component of each patch. Only with ``return_truth=True``, like what follows.
    covariances : ndarray, shape (n_components, patch_size ** 2, patch_size ** 2)
        True covariances.
    weights : ndarray, shape (n_components,)
        True weights, all equal.

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
    covariances = edge_covariances(n_components, patch_size, contrast, noise)
    labels = rng.randint(n_components, size=n_samples)
    X = rng.standard_normal((n_samples, patch_size**2))
    for k, covariance in enumerate(covariances):
        X[labels == k] = X[labels == k] @ np.linalg.cholesky(covariance).T
    if not return_truth:
        return X
    return EdgePatches(X, labels, covariances, np.full(n_components, 1.0 / n_components))


def load_photo_patches(
    n_samples=50_000, *, photographs=PHOTOGRAPHS, patch_size=8, random_state=None
):
    """Draw square patches of scikit-learn's sample photographs, each minus its own mean.

    Grey values in [0, 1]; needs no download, but Pillow.

    Parameters
    ----------
    n_samples : int, default=50_000
        Number of patches N, drawn uniformly from all positions in all photographs, with
        replacement.
    photographs : tuple of {"china.jpg", "flower.jpg"}, default=("china.jpg", "flower.jpg")
        Which photographs, each of 427 x 640 pixels.
    patch_size : int, default=8
        Number of pixels along a side; D is its square.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same patches at every call.

    Returns
    -------
    X : ndarray of shape (n_samples, patch_size ** 2)
        Patches, row by row, each with mean 0.
    images : list of ndarray, shape (427, 640)
        The photographs in grey.

    Examples
    --------
    >>> from skvt.datasets import load_photo_patches
    >>> X, images = load_photo_patches(1000, random_state=0)
    >>> X.shape, images[0].shape
    ((1000, 64), (427, 640))
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    unknown = [name for name in photographs if name not in PHOTOGRAPHS]
    if unknown or len(photographs) == 0:
        raise ValueError(
            f"photographs={photographs!r} must be a non-empty tuple of names among {PHOTOGRAPHS}."
        )
    images = [load_sample_image(name) @ (_LUMINANCE / 255.0) for name in photographs]
    check_scalar(patch_size, "patch_size", Integral, min_val=2, max_val=min(images[0].shape))
    rng = check_random_state(random_state)
    X = np.empty((n_samples, patch_size**2))
    chosen = rng.randint(len(images), size=n_samples)
    for number, image in enumerate(images):
        places = np.lib.stride_tricks.sliding_window_view(image, (patch_size, patch_size))
        rows = np.flatnonzero(chosen == number)
        top = rng.randint(places.shape[0], size=rows.size)
        left = rng.randint(places.shape[1], size=rows.size)
        X[rows] = places[top, left].reshape(rows.size, -1)
    return X - X.mean(axis=1, keepdims=True), images
