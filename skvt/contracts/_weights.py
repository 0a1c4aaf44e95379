"""The contract of the weights of a mixture.

Their statistics are the expected counts of the components, shape (K,), or in structured inference
what :meth:`DrawnWeights.statistics` computes from them.
"""

from typing import Protocol

from skvt.contracts._model import Capability
from skvt.expfam import Family
from skvt.typing import Array, IndexArray


class Weights(Protocol):
    """The law of a mixture's weights w, immutable."""

    # Of the variables that determine the weights, such as sticks.
    @property
    def family(self) -> Family: ...
    # MERGEABLE if any number of components is possible. TEMPERABLE for known weights:
    # ``log_partition(b)`` then gives ``log sum_k w_k^b`` and its slope in b.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Array:
        """Natural parameters of the prior, broadcastable to :meth:`natural_parameters`."""

    def natural_parameters(self, counts: Array) -> Array:
        """``lam`` of q, given counts (K,)."""

    def log_weights(self, t: Array) -> Array:
        """``log w_k`` of at least the K components counted, from ``t``; of ``E[t]``, E[log w_k]."""

    def mean(self, lam: Array) -> Array:
        """``E[w_k]`` of at least these; the remainder is the mass of components not yet seen."""

    def weights_of(self, value: Array) -> Array:
        """Weights (..., K) of values drawn from q."""

    def log_evidence(self, counts: Array) -> float:
        """Log probability of assignments with these counts, weights summed out, in nats."""

    def order(self, counts: Array) -> IndexArray:
        """Permutation after which component counts are most probable; ties keep their order."""


class DrawnWeights(Weights, Protocol):
    """Weights for structured inference: their laws consist of Dirichlets or betas."""

    def statistics(self, counts: Array) -> Array:
        """The statistics of counts that structured inference keeps."""
