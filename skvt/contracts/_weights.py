"""The contract of the weights w of a mixture, the probabilities of its K components.

The weights are a function of variables with a conjugate prior and a variational posterior q: the
weights themselves, or the sticks of a Dirichlet process. Inference keeps statistics of these
variables. They are the expected numbers of rows of the components, the ``counts`` (K,). Structured
inference, which draws the variables from q, keeps :meth:`DrawnWeights.statistics` instead.
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
    # MERGEABLE if any number of components is possible; TEMPERABLE if the weights are fixed and
    # known. TEMPERABLE weights have a method ``log_partition(b)``, which returns
    # ``log sum_k w_k^b`` and its derivative by b.
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def prior(self) -> Array:
        """Return the natural parameters of the prior, broadcastable to the shape of ``lam``."""

    def natural_parameters(self, counts: Array) -> Array:
        """Return the natural parameters ``lam`` of q, given the counts (K,).

        Weights for structured inference take :meth:`DrawnWeights.statistics` in place of counts.
        """

    def log_weights(self, t: Array) -> Array:
        """Return ``log w_k`` from the sufficient statistics ``t``.

        The result has an entry for each of the K components. More entries, of components without
        rows, may follow. ``log w_k`` is linear in t: the result for ``E[t]`` is ``E[log w_k]``.
        """

    def mean(self, lam: Array) -> Array:
        """Return ``E[w_k]`` under the q with the parameters ``lam``, as :meth:`log_weights` does.

        If the result sums to less than 1, the remainder is the weight of new components.
        """

    def weights_of(self, value: Array) -> Array:
        """Return the weights (..., K) for values of the variables that were drawn from q."""

    def log_evidence(self, counts: Array) -> float:
        """Return the log probability in nats of assignments of rows to components.

        Component k has ``counts[k]`` rows, and the weights are integrated out.
        """

    def order(self, counts: Array) -> IndexArray:
        """Return the order of the components (K,) with the largest :meth:`log_evidence`.

        Components with equal counts keep their order.
        """


class DrawnWeights(Weights, Protocol):
    """Weights for structured inference, with Dirichlet or beta distributions."""

    def statistics(self, counts: Array) -> Array:
        """Return the statistics that structured inference keeps instead of the counts (K,)."""
