"""Cuts of ordinal columns if classes are so far apart that latent values are not normal.

Classes are those of a short fit of categories. In class k a column's latent value is N(m_k, s_k^2),
so that a level between cuts a and b has the probability ``Phi((b - m_k) / s_k) - Phi((a - m_k) /
s_k)``. Cuts, m and s maximise the likelihood of the levels, with weak priors on m and log s. The
units are such that all classes together have mean 0 and variance 1.
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr

from skvt.components._choices import MOST_ROWS, sample, short_fit
from skvt.inference import Workers
from skvt.models.mixture import Categorical, Mixture, StickBreaking

# Initial number of components of the short fit, and its number of passes.
_CLASSES = 10
_PASSES = 20
# Standard deviation of log s in its prior; that of m is 1.
_SPREAD = 0.7
# Number of cuts that are not parameters, as the origin and unit of the latent values are free.
_FREE = 2


def cut_by_classes(cells, X, weights):
    """Return cells with the cuts by classes in columns where these are better by BIC."""
    sizes = tuple(levels.size for levels in cells.levels)
    if max(sizes) <= 1 + _FREE:
        return cells
    X, weights = sample(X, weights, MOST_ROWS)
    codes = cells.codes(X).astype(np.float64)
    codes[codes < 0.0] = np.nan
    model = Mixture(StickBreaking(1.0), Categorical(np.ones(sum(sizes)), sizes, codes.dtype))
    with Workers(1) as workers:
        memo, _ = short_fit(model, codes, weights, _CLASSES, workers, _PASSES)
    edges = list(cells.edges)
    for j, shares in enumerate(np.split(memo.stats.arrays[1], np.cumsum(sizes)[:-1], axis=1)):
        n_free = sizes[j] - 1 - _FREE
        if n_free > 0 and len(shares) > 1:
            before, _ = _best(shares, edges[j], moves=False)
            after, moved = _best(shares, edges[j], moves=True)
            if after - before > 0.5 * n_free * np.log(shares.sum()):
                edges[j] = moved
    return replace(cells, edges=tuple(edges))


def _best(shares, edges, moves):
    """Maximise the log-likelihood of shares (K, C) of levels by class; return it and the edges."""
    n_cuts, weights = len(edges) - 2, shares.sum(axis=1) / shares.sum()
    steps = np.log(np.maximum(np.diff(edges[1:-1]), 1e-3))
    start = np.concatenate([edges[1:2], steps, np.zeros(2 * len(shares))])
    first = 0 if moves else n_cuts

    def loss(p):
        value, slope = _likelihood(np.concatenate([start[:first], p]), shares)
        return -value, -slope[first:]

    optimum = minimize(loss, start[first:], jac=True, method="L-BFGS-B")
    cuts, m, s = _split(np.concatenate([start[:first], optimum.x]), n_cuts)
    center = weights @ m
    unit = np.sqrt(weights @ (s**2 + (m - center) ** 2))
    return -optimum.fun, np.concatenate([[-np.inf], (cuts - center) / unit, [np.inf]])


def _split(p, n_cuts):
    """Return cuts, m and s; p has the first cut, the logarithms of steps, m and log s."""
    m, log_s = np.split(p[n_cuts:], 2)
    return np.cumsum(np.concatenate([p[:1], np.exp(p[1:n_cuts])])), m, np.exp(log_s)


def _likelihood(p, shares):
    """Return the log-likelihood with priors, and its gradient."""
    n_cuts = shares.shape[1] - 1
    cuts, m, s = _split(p, n_cuts)
    z = (cuts - m[:, None]) / s[:, None]
    low = np.pad(z, [(0, 0), (1, 0)], constant_values=-np.inf)
    high = np.pad(z, [(0, 0), (0, 1)], constant_values=np.inf)
    # differences are taken in the lower tail, to avoid cancellation
    sign = np.where(low > 0.0, -1.0, 1.0)
    chances = np.maximum(sign * (ndtr(sign * high) - ndtr(sign * low)), 1e-300)
    ratio = shares / chances
    of_z = (ratio[:, :-1] - ratio[:, 1:]) * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    of_cuts = (of_z / s[:, None]).sum(axis=0)
    later = np.cumsum(of_cuts[::-1])[::-1]
    log_s = np.log(s) / _SPREAD
    value = (shares * np.log(chances)).sum() - 0.5 * (m @ m + log_s @ log_s)
    of_m = -(of_z / s[:, None]).sum(axis=1) - m
    of_s = -(of_z * z).sum(axis=1) - log_s / _SPREAD
    return value, np.concatenate([later[:1], later[1:] * np.exp(p[1:n_cuts]), of_m, of_s])
