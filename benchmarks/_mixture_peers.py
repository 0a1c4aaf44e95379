"""Mixtures of other libraries, the number of components by the best BIC."""

import warnings

from sklearn.mixture import GaussianMixture


def lowest_bic(models, X):
    """The model with the lowest BIC, each fitted to X."""
    best = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in models:
            bic = model.fit(X).bic(X)
            if best is None or bic < best[0]:
                best = bic, model
    return best[1]


def gaussian_grid(X, most, shapes, **params):
    """The GaussianMixture of 1 to ``most`` components and of ``shapes`` with the lowest BIC."""
    numbers = range(1, min(most, len(X)) + 1)
    grid = (GaussianMixture(k, covariance_type=s, **params) for s in shapes for k in numbers)
    return lowest_bic(grid, X)
