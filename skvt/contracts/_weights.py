"""The contract of the weights of a mixture.

The statistics of the weights are the expected counts of the components, shape (K,). In structured
inference they are the result of :meth:`DrawnWeights.statistics`.
"""

from typing import Protocol

from skvt.contracts._model import Capability
from skvt.expfam import Family
from skvt.typing import Array, IndexArray


class Weights(Protocol):
    """The law of a mixture's weights w, immutable."""

    # Family of the variables that determine the weights, such as sticks.
    @property
    def family(self) -> Family: ...
    # MERGEABLE if any number of components is possible. TEMPERABLE for known weights:
    # ``log_partition(b)`` then gives ``log sum_k w_k^b`` and its slope in b.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Array:
        """Return the prior's natural parameters, broadcastable to :meth:`natural_parameters`."""

    def natural_parameters(self, counts: Array) -> Array:
        """Return ``lam`` of q given counts (K,)."""

    def log_weights(self, t: Array) -> Array:
        """Return ``log w_k`` of at least K components from statistics ``t``.

        Given ``E[t]``, it returns ``E[log w_k]``.
        """

    def mean(self, lam: Array) -> Array:
        """Return ``E[w_k]`` of at least K components; new components have the remaining mass."""

    def weights_of(self, value: Array) -> Array:
        """Return the weights (..., K) for values drawn from q."""

    def log_evidence(self, counts: Array) -> float:
        """Return the log probability of assignments, with the weights summed out, in nats."""

    def order(self, counts: Array) -> IndexArray:
        """Return the order in which counts are most probable; ties keep their order."""


class DrawnWeights(Weights, Protocol):
    """Weights for structured inference: their laws consist of Dirichlets or betas."""

    def statistics(self, counts: Array) -> Array:
        """Return the statistics that structured inference keeps in place of counts (K,)."""
