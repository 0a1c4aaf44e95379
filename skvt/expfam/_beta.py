"""The beta family: the Dirichlet with two entries, as the law of the first one."""

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._dirichlet import Dirichlet
from skvt.expfam._gaussian import join
from skvt.typing import Array


class Beta(Dirichlet):
    """Beta distribution of v in (0, 1).

    Natural parameter ``eta = (a, b)``, ``t(v) = (log v, log(1 - v))``, base measure
    ``1 / (v (1 - v))``. A value v has shape (...): the pair (v, 1 - v) is the Dirichlet's.
    """

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """One draw of v for each member, shape (...)."""
        # (nor can double precision tell more from 1)
        return np.minimum(Dirichlet.sample(eta, rng)[..., 0], np.nextafter(1.0, 0.0))

    @staticmethod
    def certain(x: Array) -> Array:
        """Natural parameters (..., 2) of members that are nearly certain of x."""
        return Dirichlet.certain(np.stack([x, 1.0 - x], axis=-1))

    @staticmethod
    def standard(eta: ArrayLike) -> dict[str, Array]:
        eta = np.asarray(eta, dtype=np.float64)
        return {"a": eta[..., 0], "b": eta[..., 1]}

    @staticmethod
    def from_standard(a: ArrayLike, b: ArrayLike) -> Array:
        """Natural parameters, shape (..., 2), of parameters that broadcast."""
        return join(np.asarray(a)[..., None], np.asarray(b)[..., None])

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        """``E[v] = a / (a + b)``, shape (...)."""
        return Dirichlet.mean(np.asarray(eta, dtype=np.float64))[..., 0]

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        return Dirichlet.variance(eta)[..., 0]

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Log density at v = ``x`` in nats, shape (...); -inf outside [0, 1]."""
        x = np.asarray(x, dtype=np.float64)
        return Dirichlet.log_density(eta, np.stack([x, 1.0 - x], axis=-1))
