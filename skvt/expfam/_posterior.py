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
        """Draws from q, shape (n_samples, ..., D); for values with fields, each field so."""
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        draws = [self.family.sample(self.eta, rng) for _ in range(n_samples)]
        if draws and isinstance(draws[0], tuple):
            return type(draws[0])(*(np.stack(field) for field in zip(*draws, strict=True)))
        return np.stack(draws)

    def log_prob(self, value):
        """Log density of q in nats, summed over the independent members.

        Parameters
        ----------
        value : array-like, shape (..., D) or (n, ..., D)
            Shaped as :meth:`mean` or :meth:`sample`; for values with fields, all of them.

        Returns
        -------
        float or ndarray of shape (n,)
        """
        density = np.asarray(self.family.log_density(self.eta, value))
        members = np.ndim(self.eta) - 1
        return density.sum(axis=tuple(range(density.ndim - members, density.ndim)))[()]

    def mean(self):
        """E_q[beta], shape (..., D), or each field of it."""
        return self.family.mean(self.eta)

    def var(self):
        """Var_q[beta] of each entry, shape (..., D), or each field of it."""
        return self.family.variance(self.eta)

    def entropy(self):
        """Differential entropy in nats, summed over the independent members."""
        return float(np.sum(self.family.entropy(self.eta)))

    def __repr__(self):
        return f"Posterior({self.family.__name__}, shape={np.shape(self.eta)})"


class JointPosterior:
    """Independent blocks of a fitted q, each a :class:`Posterior` under its name.

    Parameters
    ----------
    **blocks : Posterior
        Also attributes: ``posterior.weights``.
    """

    def __init__(self, **blocks):
        self.blocks = blocks
        vars(self).update(blocks)

    def sample(self, n_samples=1, random_state=None):
        """Draws from q: a dict of each block's, see :meth:`Posterior.sample`."""
        random_state = check_random_state(random_state)
        return {name: block.sample(n_samples, random_state) for name, block in self.blocks.items()}

    def log_prob(self, value):
        """Log density of q in nats of a dict of values, shaped as :meth:`sample` or `mean`."""
        return sum(block.log_prob(value[name]) for name, block in self.blocks.items())

    def mean(self):
        """A dict of each block's mean."""
        return {name: block.mean() for name, block in self.blocks.items()}

    def var(self):
        """A dict of each block's variances."""
        return {name: block.var() for name, block in self.blocks.items()}

    def entropy(self):
        """Differential entropy in nats."""
        return sum(block.entropy() for block in self.blocks.values())

    def __repr__(self):
        inside = ", ".join(f"{name}={block!r}" for name, block in self.blocks.items())
        return f"JointPosterior({inside})"
