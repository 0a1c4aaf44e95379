"""The methods that every exponential family has, and the KL divergence between its members."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from skvt.typing import Array


class Family(Protocol):
    """An exponential family with the natural parameter ``eta`` (..., E).

    A member is one distribution of the family, with the density ``h(x) exp(<eta, t(x)> - A(eta))``.
    The last axis of ``eta`` has the E parameters of a member, and the leading axes enumerate
    members.
    """

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return ``A(eta)`` in nats, shape (...); raise ValueError if eta is illegal."""

    def expectation(self, eta: ArrayLike) -> Array:
        """Return ``E[t(x)]``, the gradient of ``A``, shape (..., E)."""

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Any:
        """Draw x for each member; the result is an array, or a NamedTuple of arrays."""

    def to_standard(self, eta: ArrayLike) -> dict[str, Array]:
        """Return the parameters that textbooks use, by name."""

    def mean(self, eta: ArrayLike) -> Any:
        """Return ``E[x]``, as an array or NamedTuple like a draw."""

    def variance(self, eta: ArrayLike) -> Any:
        """Return the variance of each entry of x, as an array or NamedTuple like a draw."""

    def log_density(self, eta: ArrayLike, x: Any) -> Array:
        """Return the log density at x in nats for each member; -inf outside the support."""

    def entropy(self, eta: ArrayLike) -> Array:
        """Return ``-E[log_density(eta, x)]`` for each member in nats."""


def kl_divergence(family: Family, eta_q: ArrayLike, eta_p: ArrayLike) -> float:
    """Return KL(q || p) in nats between members of a family, summed over the leading axes.

    The divergence of two members is ``<eta_q - eta_p, E_q[t]> - A(eta_q) + A(eta_p)``. The shape of
    ``eta_q`` is (..., E), and ``eta_p`` is broadcast to this shape.
    """
    eta_q = np.asarray(eta_q, dtype=np.float64)
    eta_p = np.broadcast_to(np.asarray(eta_p, dtype=np.float64), eta_q.shape)
    inner = np.einsum("...d,...d->...", eta_q - eta_p, family.expectation(eta_q))
    return float(np.sum(inner - family.log_normalizer(eta_q) + family.log_normalizer(eta_p)))
