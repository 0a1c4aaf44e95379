"""The fitted posterior q(beta) of the global parameters beta, the attribute ``posterior_``."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skvt.expfam import Family
from skvt.typing import Array


class Posterior:
    """Represent a block of q(beta): independent distributions of one family.

    Each of the distributions is called a member, and a draw from one member is called an event.
    Methods take and return values of beta. A value has the leading axes of ``eta``, an entry for
    each member, and then the axes of one event. It is an array, or a NamedTuple of arrays if an
    event has fields, such as mean and precision.

    Parameters
    ----------
    family : Family
        The family, such as the Dirichlet.
    eta : ndarray, shape (..., P)
        The P natural parameters of each member.

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
        ndarray of shape (n_samples, ...) or NamedTuple
            The draws. The first axis of the array, or of each field, counts them.

        Raises
        ------
        ValueError
            If ``n_samples`` is less than 1.
        """
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1. Got {n_samples!r}.")
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        draws = [self.family.sample(self.eta, rng) for _ in range(n_samples)]
        # Draws with fields are NamedTuples, whose fields are stacked one by one.
        if isinstance(draws[0], tuple):
            return type(draws[0])(*(np.stack(field) for field in zip(*draws, strict=True)))
        return np.stack(draws)

    def log_prob(self, value: Any) -> Any:
        """Return the log density of q in nats, summed over the independent members.

        Parameters
        ----------
        value : array-like or NamedTuple
            A value shaped like :meth:`mean`, or n values shaped like :meth:`sample`. A NamedTuple
            needs all fields.

        Returns
        -------
        float or ndarray of shape (n,)
            The log density of the value, or of each of the n values, in nats.
        """
        density = np.asarray(self.family.log_density(self.eta, value))
        # Sum over the axes of members, which are the last axes of the density.
        n_member_axes = np.ndim(self.eta) - 1
        total = density.sum(axis=tuple(range(density.ndim - n_member_axes, density.ndim)))
        # The index () turns an array without axes into a number.
        return total[()]

    def mean(self) -> Any:
        """Return the mean of q.

        Returns
        -------
        ndarray or NamedTuple
            E_q[beta], shaped like a value. The fields of a NamedTuple are the means of the fields.
        """
        return self.family.mean(self.eta)

    def var(self) -> Any:
        """Return the variance of each entry of beta under q.

        Returns
        -------
        ndarray or NamedTuple
            Var_q[beta], shaped like a value. The fields of a NamedTuple are the variances of the
            fields.
        """
        return self.family.variance(self.eta)

    def entropy(self) -> float:
        """Return the differential entropy of q, summed over the independent members.

        Returns
        -------
        float
            The entropy in nats.
        """
        return float(np.sum(self.family.entropy(self.eta)))

    def __repr__(self) -> str:
        member_shape = np.shape(self.eta)[:-1]
        mean = self.mean()
        has_fields = isinstance(mean, tuple)
        fields: dict[str, Any] = mean._asdict() if has_fields else {"value": mean}
        # The shape of an event of each field follows the shape of the members.
        shapes = {name: np.shape(field)[len(member_shape) :] for name, field in fields.items()}
        event_shapes = ", ".join(f"{name}={shape}" for name, shape in shapes.items())
        # The protocol Family does not declare __name__, which all families have.
        family: Any = self.family
        return f"Posterior({family.__name__}, members={member_shape}, {event_shapes})"


class JointPosterior:
    """Represent a fitted q(beta) that is a product of named blocks, each a :class:`Posterior`.

    Parameters
    ----------
    **blocks : Posterior
        The blocks by name. Each block is also an attribute, such as ``posterior.weights``.

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
            The draws of each block by name, see :meth:`Posterior.sample`.

        Raises
        ------
        ValueError
            If ``n_samples`` is less than 1.
        """
        random_state = check_random_state(random_state)
        return {name: block.sample(n_samples, random_state) for name, block in self.blocks.items()}

    def log_prob(self, value: Mapping[str, Any]) -> Any:
        """Return the log density of q, summed over the blocks.

        Parameters
        ----------
        value : dict
            A value of each block by name, as returned by :meth:`mean`, or n values of each block,
            as returned by :meth:`sample`.

        Returns
        -------
        float or ndarray of shape (n,)
            The log density of the value, or of each of the n values, in nats.

        Raises
        ------
        KeyError
            If a block has no value.
        """
        return sum(block.log_prob(value[name]) for name, block in self.blocks.items())

    def mean(self) -> dict[str, Any]:
        """Return the mean of each block.

        Returns
        -------
        dict
            The means by name of the block, see :meth:`Posterior.mean`.
        """
        return {name: block.mean() for name, block in self.blocks.items()}

    def var(self) -> dict[str, Any]:
        """Return the variances of each block.

        Returns
        -------
        dict
            The variances by name of the block, see :meth:`Posterior.var`.
        """
        return {name: block.var() for name, block in self.blocks.items()}

    def entropy(self) -> float:
        """Return the differential entropy of q, summed over the blocks.

        Returns
        -------
        float
            The entropy in nats.
        """
        return sum(block.entropy() for block in self.blocks.values())

    def __repr__(self) -> str:
        blocks = ", ".join(f"{name}={block!r}" for name, block in self.blocks.items())
        return f"JointPosterior({blocks})"
