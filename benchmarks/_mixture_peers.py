"""Mixtures of other libraries, whose number of components is chosen by BIC."""

import warnings

from sklearn.mixture import GaussianMixture


def fit_lowest_bic(models, X):
    """Fit each of the models to X; return the model with the lowest BIC."""
    # The lowest BIC so far, and its model.
    best = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in models:
            bic = model.fit(X).bic(X)
            if best is None or bic < best[0]:
                best = bic, model
    return best[1]


def fit_gaussian_grid(X, max_components, shapes, **params):
    """Return the GaussianMixture with the lowest BIC among all numbers and covariance types.

    The numbers of components are 1 to ``max_components``, and the covariance types are ``shapes``.
    """
    numbers = range(1, min(max_components, len(X)) + 1)
    grid = (GaussianMixture(k, covariance_type=s, **params) for s in shapes for k in numbers)
    return fit_lowest_bic(grid, X)
