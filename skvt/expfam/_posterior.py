"""A fitted q over globals that users can hold."""

import numpy as np
from sklearn.utils import check_random_state


class Posterior:
    """Independent members of one exponential family: a block of a fitted q(beta).

    Parameters
    ----------
    family : Family
        Such as :class:`~skvt.expfam.Dirichlet`.
    eta : ndarray, shape (..., D)
        Natural parameters, the event in the last axis.
    """

    def __init__(self, family, eta):
        self.family = family
        self.eta = eta

    def sample(self, n_samples=1, random_state=None):
        """Draws from q, shape (n_samples, ..., D)."""
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        return np.stack([self.family.sample(self.eta, rng) for _ in range(n_samples)])

    def log_prob(self, value):
        """Log density of q in nats, summed over the independent members.

        Parameters
        ----------
        value : array-like, shape (..., D) or (n, ..., D)

        Returns
        -------
        float or ndarray of shape (n,)
        """
        density = np.asarray(self.family.log_density(self.eta, value))
        members = np.ndim(self.eta) - 1
        return density.sum(axis=tuple(range(density.ndim - members, density.ndim)))[()]

    def mean(self):
        """E_q[beta], shape (..., D)."""
        return self.family.mean(self.eta)

    def var(self):
        """Var_q[beta] of each entry, shape (..., D)."""
        return self.family.variance(self.eta)

    def entropy(self):
        """Differential entropy in nats, summed over the independent members."""
        return float(np.sum(self.family.entropy(self.eta)))

    def __repr__(self):
        return f"Posterior({self.family.__name__}, shape={np.shape(self.eta)})"
