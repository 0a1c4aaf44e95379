"""Collapsed Gibbs sampling for a finite Bernoulli mixture: the yardstick of structured inference.

    pi ~ Dirichlet(alpha / K),   phi_kd ~ Beta(1, 1),   z_n ~ pi,   x_nd ~ Bernoulli(phi_{z_n d})

with pi and phi summed out (Neal, 2000), one assignment after the other. It shares no code with
``skvt``.
"""

import numba
import numpy as np


def collapsed_gibbs(X, n_components, concentration, n_sweeps, seed):
    """Assignments (N,) of the last sweep, begun at random ones.

    Parameters
    ----------
    X : ndarray of bool or int, shape (N, D)
    n_components : int
        K.
    concentration : float
        alpha.
    n_sweeps, seed : int
    """
    X = np.ascontiguousarray(X, np.int8)
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_components, size=X.shape[0])
    _sweeps(X, labels, n_components, concentration / n_components, n_sweeps, rng)
    return labels


def posterior_means(X, labels, n_components, concentration):
    """E[pi] (K,) and E[phi] (K, D) given the assignments."""
    R = np.eye(n_components)[labels]
    counts = R.sum(axis=0)
    weights = (concentration / n_components + counts) / (concentration + counts.sum())
    return weights, (1.0 + R.T @ X) / (2.0 + counts[:, None])


@numba.njit
def _sweeps(X, labels, K, prior, n_sweeps, rng):
    N, D = X.shape
    counts, ones = np.zeros(K, np.int64), np.zeros((K, D), np.int64)
    for n in range(N):
        counts[labels[n]] += 1
        ones[labels[n]] += X[n]
    log = np.log(np.arange(N + 3.0))  # log[m] = log m; log[0] is not used
    chances = np.empty(K)
    for _ in range(n_sweeps):
        for n in range(N):
            k = labels[n]
            counts[k] -= 1
            ones[k] -= X[n]
            top = -np.inf
            for j in range(K):
                value = np.log(counts[j] + prior) - D * log[counts[j] + 2]
                for d in range(D):
                    seen = ones[j, d] if X[n, d] else counts[j] - ones[j, d]
                    value += log[seen + 1]
                chances[j] = value
                top = max(top, value)
            total = 0.0
            for j in range(K):
                total += np.exp(chances[j] - top)
                chances[j] = total
            k = min(np.searchsorted(chances, rng.random() * total, side="right"), K - 1)
            labels[n] = k
            counts[k] += 1
            ones[k] += X[n]
