"""The contract of the weights of a mixture.

The statistics of the weights are the expected counts of the components, (K,). In structured
inference they are the result of :meth:`DrawnWeights.statistics` instead.
"""

from typing import Protocol

from skvt.contracts._model import Capability
from skvt.expfam import Family
from skvt.typing import Array, IndexArray


class Weights(Protocol):
    """The prior and posterior of the weights w of a mixture, immutable."""

    # Family of the variables that determine the weights, such as the sticks of a Dirichlet process.
    @property
    def family(self) -> Family: ...
    # MERGEABLE if any number of components is possible. TEMPERABLE if the weights are known: the
    # method ``log_partition(b)`` then returns ``log sum_k w_k^b`` and its slope in b.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Array:
        """Return the natural parameters of the prior, broadcastable to the shape of q."""

    def natural_parameters(self, counts: Array) -> Array:
        """Return the natural parameters ``lam`` of q given the counts (K,)."""

    def log_weights(self, t: Array) -> Array:
        """Return ``log w_k`` of at least K components from the sufficient statistics ``t``.

        ``log w_k`` is linear in t, so that the result for ``E[t]`` is ``E[log w_k]``.
        """

    def mean(self, lam: Array) -> Array:
        """Return ``E[w_k]`` of at least K components.

        If they sum to less than 1, the remainder is the weight of new components.
        """

    def weights_of(self, value: Array) -> Array:
        """Return the weights (..., K) for values of the variables that were drawn from q."""

    def log_evidence(self, counts: Array) -> float:
        """Return the log probability of assignments with these counts (K,), in nats.

        The weights are integrated out.
        """

    def order(self, counts: Array) -> IndexArray:
        """Return the order of the counts in which they are most probable; ties keep their order."""


class DrawnWeights(Weights, Protocol):
    """Weights for structured inference: they have Dirichlet or beta distributions."""

    def statistics(self, counts: Array) -> Array:
        """Return the statistics that structured inference keeps instead of the counts (K,)."""
