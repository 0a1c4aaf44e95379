"""What a family must say, and the divergence that follows for all of them."""

from typing import Protocol

import numpy as np


class Family(Protocol):
    """An exponential family in natural parameters ``eta``, the event in the last axis.

    Leading axes are independent members; every function is vectorised over them.
    """

    def log_normalizer(self, eta):
        """``A(eta)`` in nats, shape ``eta.shape[:-1]``."""

    def expectation(self, eta):
        """``E[t(x)]``, the gradient of ``A``; shape of ``eta``."""

    def sample(self, eta, rng):
        """One draw of x for each member: an array, or a NamedTuple of arrays."""

    def standard(self, eta):
        """The parameters a textbook uses, as a dict of arrays."""


def kl_divergence(family, eta_q, eta_p):
    """KL(q || p) in nats between members of one family, summed over the leading axes.

    ``KL = <eta_q - eta_p, E_q[t]> - A(eta_q) + A(eta_p)``: the base measure cancels.

    Parameters
    ----------
    family : Family
    eta_q, eta_p : array-like, shape (..., D)
        Natural parameters; ``eta_p`` is broadcast against ``eta_q``.
    """
    eta_q = np.asarray(eta_q, dtype=np.float64)
    eta_p = np.broadcast_to(np.asarray(eta_p, dtype=np.float64), eta_q.shape)
    inner = np.einsum("...d,...d->...", eta_q - eta_p, family.expectation(eta_q))
    return float(np.sum(inner - family.log_normalizer(eta_q) + family.log_normalizer(eta_p)))
