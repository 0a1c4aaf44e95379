"""The beta family: the distribution of the first entry of a Dirichlet with two entries.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._dirichlet import Dirichlet
from skvt.expfam._gaussian import join
from skvt.typing import Array


class Beta(Dirichlet):
    """Beta distribution of v in (0, 1).

    The natural parameter is ``eta = (a, b)``, the sufficient statistic is
    ``t(v) = (log v, log(1 - v))``, and the base measure is ``1 / (v (1 - v))``. A draw v has shape
    (...). The pair (v, 1 - v) has a Dirichlet distribution with the same eta, so that this class
    inherits the log-normaliser, the expectation and the entropy.
    """

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """Draw v (...) for each member; v is neither 0 nor 1."""
        # A draw of the Dirichlet is never 0. A draw of 1 becomes the next smaller float.
        return np.minimum(Dirichlet.sample(eta, rng)[..., 0], np.nextafter(1.0, 0.0))

    @staticmethod
    def concentrate_at(x: Array) -> Array:
        """Return natural parameters (..., 2) of members that are nearly certain of x."""
        return Dirichlet.concentrate_at(np.stack([x, 1.0 - x], axis=-1))

    @staticmethod
    def to_standard(eta: ArrayLike) -> dict[str, Array]:
        """Return a (...) and b (...) by name."""
        eta = np.asarray(eta, dtype=np.float64)
        return {"a": eta[..., 0], "b": eta[..., 1]}

    @staticmethod
    def from_standard(a: ArrayLike, b: ArrayLike) -> Array:
        """Return natural parameters (..., 2); a and b broadcast."""
        return join(np.asarray(a)[..., None], np.asarray(b)[..., None])

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        """Return ``E[v] = a / (a + b)``, shape (...)."""
        return Dirichlet.mean(np.asarray(eta, dtype=np.float64))[..., 0]

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        """Return the variance of v, shape (...)."""
        return Dirichlet.variance(eta)[..., 0]

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Return the log density at v = ``x`` in nats, shape (...); -inf outside [0, 1]."""
        x = np.asarray(x, dtype=np.float64)
        return Dirichlet.log_density(eta, np.stack([x, 1.0 - x], axis=-1))
