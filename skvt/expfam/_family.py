"""The contract of a family, and the KL divergence, which follows for all of them."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from skvt.rows import pieces
from skvt.typing import Array

# Natural parameters whose divergences are computed at once.
_AT_ONCE = 2**20


class Family(Protocol):
    """An exponential family in ``eta``, the event in the last axis; leading axes are members."""

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """``A(eta)`` in nats, shape ``eta.shape[:-1]``; ValueError where eta is illegal."""

    def expectation(self, eta: ArrayLike) -> Array:
        """``E[t(x)]``, the gradient of ``A``; shape of ``eta``."""

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> Any:
        """One draw of x for each member: an array, or a NamedTuple of arrays."""

    def standard(self, eta: ArrayLike) -> dict[str, Array]:
        """The standard parameters of textbooks, as a dict of arrays."""

    def mean(self, eta: ArrayLike) -> Any:
        """``E[x]``, shaped as a draw."""

    def variance(self, eta: ArrayLike) -> Any:
        """The variance of each entry of x."""

    def log_density(self, eta: ArrayLike, x: Any) -> Array:
        """Log density at x in nats, one for each member; -inf where there is none."""

    def entropy(self, eta: ArrayLike) -> Array:
        """Differential entropy in nats, one for each member."""


def kl_divergence(family: Family, eta_q: ArrayLike, eta_p: ArrayLike) -> float:
    """KL(q || p) in nats between members of one family, summed over the leading axes.

    ``KL = <eta_q - eta_p, E_q[t]> - A(eta_q) + A(eta_p)``: the base measure cancels. Natural
    parameters are (..., D); ``eta_p`` is broadcast against ``eta_q``.
    """
    eta_q = np.asarray(eta_q, dtype=np.float64)
    eta_p = np.broadcast_to(np.asarray(eta_p, dtype=np.float64), eta_q.shape)
    if eta_q.ndim != 2 or eta_q.size <= _AT_ONCE:
        return float(np.sum(_divergences(family, eta_q, eta_p)))
    # (topics are large; temporary arrays need not be)
    some = pieces(len(eta_q), max(1, _AT_ONCE // eta_q.shape[1]))
    parts = [_divergences(family, eta_q[members], eta_p[members]) for members in some]
    return float(np.sum(np.concatenate(parts)))


def _divergences(family: Family, eta_q: Array, eta_p: Array) -> Array:
    inner = np.einsum("...d,...d->...", eta_q - eta_p, family.expectation(eta_q))
    divergences: Array = inner - family.log_normalizer(eta_q) + family.log_normalizer(eta_p)
    return divergences
