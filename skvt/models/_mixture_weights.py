"""Weights of a mixture: the contract, and their laws.

Their statistics are the expected counts of the components, shape (K,).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from skvt.expfam import Beta


class Weights(Protocol):
    """The law of a mixture's weights w, immutable.

    Attributes
    ----------
    family : Family
        Of what the weights are made of.
    n_kept : int
        So many components there always are, with rows or without.
    """

    def prior(self):
        """Natural parameters of the prior, broadcastable to :meth:`natural_parameters`."""

    def natural_parameters(self, counts):
        """``lam`` of q, given counts (K,)."""

    def expected_log(self, lam):
        """``E[log w_k]`` of at least the K components counted."""

    def mean(self, lam):
        """``E[w_k]`` of at least these; what lacks to 1 is the mass of components not yet seen."""

    def log_evidence(self, counts):
        """Log probability of assignments with these counts, weights summed out, in nats."""

    def order(self, counts):
        """Permutation of the components after which their counts are most probable."""


@dataclass(frozen=True)
class StickBreaking:
    """Weights of a Dirichlet process of this concentration; block of counts (K,)."""

    concentration: float

    family = Beta
    n_kept = 1

    def prior(self):
        """Beta(1, alpha) for each stick, shape (1, 2)."""
        return np.array([[1.0, self.concentration]])

    def natural_parameters(self, counts):
        """q(v_k) = Beta(1 + N_k, alpha + sum_{l>k} N_l), shape (K, 2)."""
        after = counts[::-1].cumsum()[::-1] - counts
        # the difference of sums may fall below 0 by rounding
        after = np.maximum(after, 0.0)
        return np.stack([1.0 + counts, self.concentration + after], axis=1)  # [HS13 eq. 10]

    @staticmethod
    def expected_log(lam):
        """``E[log w_k] = E[log v_k] + sum_{l<k} E[log(1 - v_l)]``, shape (K,)."""
        stick, rest = Beta.expectation(lam).T
        return stick + rest.cumsum() - rest

    @staticmethod
    def lengths(sticks):
        """``w_k = v_k prod_{l<k} (1 - v_l)`` of sticks (..., K)."""
        left = np.cumprod(1.0 - sticks, axis=-1)
        return sticks * np.concatenate([np.ones_like(left[..., :1]), left[..., :-1]], axis=-1)

    @staticmethod
    def mean(lam):
        """``E[w_k]``, shape (K,); what lacks to 1 is the mass of components not yet seen."""
        return StickBreaking.lengths(Beta.mean(lam))

    def log_evidence(self, counts):
        """Log probability of the assignments with the sticks summed out."""
        after = Beta.log_normalizer(self.natural_parameters(counts))
        return float(after.sum() - counts.size * Beta.log_normalizer(self.prior())[0])

    @staticmethod
    def order(counts):
        """Largest first."""
        return np.argsort(-counts, kind="stable")


class _Known:
    """The family of what is known: no natural parameters, no divergence."""

    @staticmethod
    def log_normalizer(eta):
        return np.zeros(eta.shape[:-1])

    @staticmethod
    def expectation(eta):
        return eta


@dataclass(frozen=True)
class KnownWeights:
    """Weights that are given: nothing is learned of them.

    Parameters
    ----------
    weights : ndarray, shape (K,)
        Positive, with the sum 1.
    """

    weights: np.ndarray

    family = _Known

    @property
    def n_kept(self):
        """All of them."""
        return self.weights.size

    def prior(self):
        """No parameters, shape (1, 0)."""
        return np.empty((1, 0))

    def natural_parameters(self, counts):
        """No parameters, shape (1, 0)."""
        return np.empty((1, 0))

    def expected_log(self, lam):
        """``log w_k``, shape (K,)."""
        return np.log(self.weights)

    def mean(self, lam):
        """``w_k``, shape (K,)."""
        return self.weights

    def log_evidence(self, counts):
        """``sum_k N_k log w_k``."""
        return float(counts @ np.log(self.weights))

    def order(self, counts):
        """The components with most rows where the largest weights are; else as they are."""
        ranked = np.argsort(-counts, kind="stable")
        alike = np.unique(-self.weights, return_inverse=True)[1]
        order = np.empty_like(ranked)
        order[np.argsort(alike, kind="stable")] = ranked[np.lexsort((ranked, np.sort(alike)))]
        return order
