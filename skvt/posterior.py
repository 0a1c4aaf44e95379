"""The fitted posterior q of the globals, in the form published to users."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skvt.expfam import Family
from skvt.typing import Array


class Posterior:
    """A batch of independent distributions of one family: a block of the fitted q(beta).

    Parameters
    ----------
    family : Family
        The family, such as the Dirichlet.
    eta : ndarray, shape (..., D)
        Natural parameters, the event in the last axis.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPGMM
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0.0], [9.0]], 100, axis=0)
    >>> weights = MemoizedDPGMM(random_state=0).fit(X).posterior_.weights
    >>> weights.sample(5, random_state=0).shape, weights.mean().shape
    ((5, 2), (2,))
    """

    def __init__(self, family: Family, eta: Array) -> None:
        self.family = family
        self.eta = eta

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw from q.

        Parameters
        ----------
        n_samples : int, default=1
            Number of joint draws of all members.
        random_state : int, RandomState instance or None, default=None
            An int makes the draws reproducible.

        Returns
        -------
        ndarray of shape (n_samples, ..., D) or NamedTuple
            For values with fields, such as mean and precision, each field has this shape.
        """
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        draws = [self.family.sample(self.eta, rng) for _ in range(n_samples)]
        if draws and isinstance(draws[0], tuple):
            return type(draws[0])(*(np.stack(field) for field in zip(*draws, strict=True)))
        return np.stack(draws)

    def log_prob(self, value: Any) -> Any:
        """Return the log density of q in nats, summed over the independent members.

        Parameters
        ----------
        value : array-like, shape (..., D) or (n, ..., D)
            Values in the shape of :meth:`mean` or :meth:`sample`, with all fields if they have any.

        Returns
        -------
        float or ndarray of shape (n,)
            Nats.
        """
        density = np.asarray(self.family.log_density(self.eta, value))
        members = np.ndim(self.eta) - 1
        return density.sum(axis=tuple(range(density.ndim - members, density.ndim)))[()]

    def mean(self) -> Any:
        """Mean of q.

        Returns
        -------
        ndarray of shape (..., D) or NamedTuple
            E_q[beta], or each field of it.
        """
        return self.family.mean(self.eta)

    def var(self) -> Any:
        """Variance of each entry under q.

        Returns
        -------
        ndarray of shape (..., D) or NamedTuple
            Var_q[beta], or that of each field.
        """
        return self.family.variance(self.eta)

    def entropy(self) -> float:
        """Differential entropy, summed over the independent members.

        Returns
        -------
        float
            Nats.
        """
        return float(np.sum(self.family.entropy(self.eta)))

    def __repr__(self) -> str:
        members = np.shape(self.eta)[:-1]
        mean = self.mean()
        named = isinstance(mean, tuple)
        fields: dict[str, Any] = mean._asdict() if named else {"value": mean}
        shapes = {name: np.shape(field)[len(members) :] for name, field in fields.items()}
        inside = ", ".join(f"{name}={shape}" for name, shape in shapes.items())
        family: Any = self.family  # a class, or an object with a __name__
        return f"Posterior({family.__name__}, members={members}, {inside})"


class JointPosterior:
    """Independent blocks of a fitted q, each a named :class:`Posterior`.

    Parameters
    ----------
    **blocks : Posterior
        Blocks by name, which are also attributes, such as ``posterior.weights``.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPGMM
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0.0], [9.0]], 100, axis=0)
    >>> posterior = MemoizedDPGMM(random_state=0).fit(X).posterior_
    >>> sorted(posterior.blocks)
    ['components', 'weights']
    >>> posterior.sample(3, random_state=0)["components"].mean.shape
    (3, 2, 2)
    """

    def __init__(self, **blocks: Posterior) -> None:
        self.blocks = blocks
        vars(self).update(blocks)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> dict[str, Any]:
        """Draw from q.

        Parameters
        ----------
        n_samples : int, default=1
            Number of joint draws of all blocks.
        random_state : int, RandomState instance or None, default=None
            An int makes the draws reproducible.

        Returns
        -------
        dict
            The draws of each block, see :meth:`Posterior.sample`.
        """
        random_state = check_random_state(random_state)
        return {name: block.sample(n_samples, random_state) for name, block in self.blocks.items()}

    def log_prob(self, value: Mapping[str, Any]) -> Any:
        """Return the log density of q, summed over the blocks.

        Parameters
        ----------
        value : dict
            A value for each block, in the shape of :meth:`sample` or :meth:`mean`.

        Returns
        -------
        float or ndarray of shape (n,)
            Nats.
        """
        return sum(block.log_prob(value[name]) for name, block in self.blocks.items())

    def mean(self) -> dict[str, Any]:
        """Return the mean of each block.

        Returns
        -------
        dict
            See :meth:`Posterior.mean`.
        """
        return {name: block.mean() for name, block in self.blocks.items()}

    def var(self) -> dict[str, Any]:
        """Return the variances of each block.

        Returns
        -------
        dict
            See :meth:`Posterior.var`.
        """
        return {name: block.var() for name, block in self.blocks.items()}

    def entropy(self) -> float:
        """Return the differential entropy, summed over the blocks.

        Returns
        -------
        float
            Nats.
        """
        return sum(block.entropy() for block in self.blocks.values())

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={block!r}" for name, block in self.blocks.items())
        return f"JointPosterior({inside})"
