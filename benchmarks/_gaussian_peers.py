"""Gaussian mixtures of other libraries, the number of components by the best BIC."""

import warnings

from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

SHAPES = ("full", "tied", "diag", "spherical")


def gaussian_grid(X, most, *, shapes=SHAPES, **params):
    """The GaussianMixture of 1 to ``most`` components and of ``shapes`` with the lowest BIC."""
    best = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for shape in shapes:
            for k in range(1, min(most, len(X)) + 1):
                mixture = GaussianMixture(k, covariance_type=shape, **params).fit(X)
                bic = mixture.bic(X)
                if best is None or bic < best[0]:
                    best = bic, mixture
    return best[1]
