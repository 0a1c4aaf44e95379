"""The contract of the weights w of a mixture, the probabilities of its K components.

The weights are a function of random variables: of the weights themselves, whose prior is a
Dirichlet distribution, or of the sticks of a Dirichlet process, which have beta distributions.
These variables have a conjugate prior and a variational posterior q with the natural parameters
``lam``. Inference keeps statistics, from which ``lam`` follows: the expected numbers of rows of the
components, the ``counts`` (K,). Structured inference, which draws the variables from q, keeps the
result of :meth:`DrawnWeights.statistics` instead of the counts.
"""

from typing import Protocol

from skvt.contracts._model import Capability
from skvt.expfam import Family
from skvt.typing import Array, IndexArray


class Weights(Protocol):
    """The prior and posterior of the weights w of a mixture, immutable."""

    # Exponential family of the variables that determine the weights.
    @property
    def family(self) -> Family: ...
    # MERGEABLE if the number of components can change; TEMPERABLE if the weights are fixed and
    # known. TEMPERABLE weights have a method ``log_partition(b)``, which returns
    # ``log sum_k w_k^b`` and its derivative by b, the inverse temperature.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Array:
        """Return the natural parameters of the prior, broadcastable to the shape of ``lam``."""

    def natural_parameters(self, counts: Array) -> Array:
        """Return the natural parameters ``lam`` of q, given the counts (K,).

        Weights for structured inference take :meth:`DrawnWeights.statistics` in place of counts.
        """

    def log_weights(self, t: Array) -> Array:
        """Return ``log w_k`` for values ``t`` of the sufficient statistics of the family.

        The first K entries of the result are those of the K components; entries for components
        without rows may follow. ``log w_k`` is linear in t, so that the result for ``E[t]`` is
        ``E[log w_k]``.
        """

    def mean(self, lam: Array) -> Array:
        """Return ``E[w_k]`` under q with the parameters ``lam``, entries as in `log_weights`.

        If the sum of the result is less than 1, the remainder is the expected weight of all further
        components.
        """

    def weights_of(self, value: Array) -> Array:
        """Return the weights (..., K) for values of the variables that were drawn from q."""

    def log_evidence(self, counts: Array) -> float:
        """Return the log probability in nats of the assignments of all rows to components.

        The assignments give ``counts[k]`` rows to component k. The weights are integrated out.
        """

    def order(self, counts: Array) -> IndexArray:
        """Return the order of the components for which :meth:`log_evidence` is largest.

        The result (K,) has the indices of the components. Components with equal counts keep their
        order.
        """


class DrawnWeights(Weights, Protocol):
    """Weights for structured inference, with Dirichlet or beta distributions."""

    def statistics(self, counts: Array) -> Array:
        """Return the statistics that structured inference keeps instead of the counts (K,).

        They are the difference between the natural parameters of q and of the prior.
        """
