"""Distributions of the weights w_k of a mixture of K components.

Weights are formed from the sticks of a Dirichlet process, have a symmetric Dirichlet prior, or are
known. The classes implement :class:`skvt.contracts.Weights`, which documents the methods without
docstrings. N_k is the count of component k, the sum of its responsibilities.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from skvt.contracts import Capability
from skvt.expfam import Beta, Dirichlet, Family
from skvt.files import COMPONENTS, PRIOR, in_files
from skvt.models import compute_choice_partition
from skvt.ties import stable_order
from skvt.typing import Array, IndexArray


@in_files("models.StickBreaking")
@dataclass(frozen=True)
class StickBreaking:
    """Weights of a Dirichlet process, made of sticks v_k; the statistics are counts (K,)."""

    # The concentration alpha of the Dirichlet process.
    concentration: Annotated[float, PRIOR]

    family = Beta
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.MERGEABLE})

    def prior(self) -> Array:
        """Return Beta(1, alpha) of each stick, shape (1, 2)."""
        return np.array([[1.0, self.concentration]])

    def natural_parameters(self, counts: Array) -> Array:
        """Return q(v_k) = Beta(1 + N_k, alpha + sum_{l>k} N_l), (..., K, 2), of counts (..., K)."""
        later_counts = counts[..., ::-1].cumsum(axis=-1)[..., ::-1] - counts
        # Rounding may make the difference of sums negative.
        later_counts = np.maximum(later_counts, 0.0)
        # [HS13 eq. 10]
        return np.stack([1.0 + counts, self.concentration + later_counts], axis=-1)

    def log_weights(self, t: Array) -> Array:
        """Return ``log w_k = log v_k + sum_{l<k} log(1 - v_l)``, shape (..., K).

        ``t`` (..., K, 2) are log v_k and log(1 - v_k), or their expectations.
        """
        log_stick, log_remainder = t[..., 0], t[..., 1]
        return log_stick + log_remainder.cumsum(axis=-1) - log_remainder

    def weights_of(self, sticks: Array) -> Array:
        """Return ``w_k = v_k prod_{l<k} (1 - v_l)`` for ``sticks`` v (..., K)."""
        remainders = np.cumprod(1.0 - sticks, axis=-1)
        ones = np.ones_like(remainders[..., :1])
        return sticks * np.concatenate([ones, remainders[..., :-1]], axis=-1)

    def mean(self, lam: Array) -> Array:
        """Return ``E[w_k]``, shape (K,); the weight that remains belongs to new components."""
        return self.weights_of(Beta.mean(lam))

    def log_evidence(self, counts: Array) -> float:
        # Call the method of this class. `SeparateSticks` overrides it by one that takes pairs.
        lam = StickBreaking.natural_parameters(self, counts)
        return _compute_log_evidence(Beta, lam, self.prior())

    def order(self, counts: Array) -> IndexArray:
        """Return the components with the largest counts first."""
        return _order_by_count(counts)


@in_files("models.SeparateSticks")
@dataclass(frozen=True)
class SeparateSticks(StickBreaking):
    """Sticks whose statistics are the pairs ``(N_k, sum_{l>k} N_l)``, shape (K, 2).

    Structured inference, which draws global parameters, changes both numbers of a pair separately,
    so that there may be no counts (K,) from which the pairs follow.
    """

    def statistics(self, counts: Array) -> Array:
        """Return the pairs (K, 2) that belong to ``counts`` (K,)."""
        return StickBreaking.natural_parameters(self, counts) - self.prior()

    def natural_parameters(self, pairs: Array) -> Array:
        """Return ``(1, alpha)`` plus the pairs, shape (K, 2)."""
        return self.prior() + pairs


@in_files("models.SymmetricDirichlet")
@dataclass(frozen=True)
class SymmetricDirichlet:
    """``w ~ Dir(alpha / K)`` of K components, a finite approximation of a Dirichlet process.

    There may be fewer counts than components. The last components then have no rows.
    """

    # The sum alpha of the parameters of the Dirichlet.
    concentration: Annotated[float, PRIOR]
    n_components: Annotated[int, COMPONENTS]

    family = Dirichlet
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.MERGEABLE})

    def validate(self, d: int, k: int) -> bool:
        """Return whether a file may have ``k`` components, see `skvt.files`."""
        return k <= self.n_components

    def prior(self) -> Array:
        return np.full((1, 1), self.concentration / self.n_components)

    def statistics(self, counts: Array) -> Array:
        return counts

    def natural_parameters(self, counts: Array) -> Array:
        """Return ``alpha / K + N_k``, shape (1, K)."""
        zeros = np.zeros(self.n_components - counts.size)
        return self.prior() + np.append(counts, zeros)

    def log_weights(self, t: Array) -> Array:
        return t[0]

    def mean(self, lam: Array) -> Array:
        return Dirichlet.mean(lam)[0]

    def weights_of(self, value: Array) -> Array:
        """Return the weights (..., K) of a drawn value (..., 1, K)."""
        return value[..., 0, :]

    def log_evidence(self, counts: Array) -> float:
        return _compute_log_evidence(Dirichlet, self.natural_parameters(counts), self.prior())

    def order(self, counts: Array) -> IndexArray:
        """Return the present order, because all orders have the same bound."""
        return np.arange(counts.size)


def _order_by_count(counts: Array) -> IndexArray:
    """Return the order of components by descending counts; tied components keep their order."""
    # Rounding errors of counts are relative to the sum over all rows.
    return stable_order(-counts, scale=float(counts.sum()))


def _compute_log_evidence(family: Family, lam: Array, prior: Array) -> float:
    """Return ``A(lam) - A(prior)`` in nats, summed over the distributions in ``lam``."""
    # All distributions have the same prior, whose log normalizer is computed once.
    prior = np.broadcast_to(prior, (1, lam.shape[1]))
    return float(np.sum(family.log_normalizer(lam) - family.log_normalizer(prior)))


class _KnownWeightsFamily:
    """The family of known weights, without natural parameters, so that its divergence is 0."""

    @staticmethod
    def log_normalizer(eta: Array) -> Array:
        return np.zeros(eta.shape[:-1])

    @staticmethod
    def expectation(eta: Array) -> Array:
        return eta


@in_files("models.KnownWeights")
@dataclass(frozen=True)
class KnownWeights:
    """Known weights, which are not learned."""

    # (K,): positive, with the sum 1.
    weights: Annotated[Array, "k"]

    family: ClassVar[Any] = _KnownWeightsFamily
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TEMPERABLE})

    def prior(self) -> Array:
        return np.empty((1, 0))

    def natural_parameters(self, counts: Array) -> Array:
        return self.prior()

    def log_weights(self, t: Array) -> Array:
        return np.log(self.weights)

    def mean(self, lam: Array) -> Array:
        return self.weights

    weights_of = mean

    def log_evidence(self, counts: Array) -> float:
        """Return ``sum_k N_k log w_k``."""
        return float(counts @ np.log(self.weights))

    def order(self, counts: Array) -> IndexArray:
        """Return the order in which larger counts have larger weights.

        Entry k is the component whose count gets weight k.
        """
        by_weight = np.argsort(-self.weights, kind="stable")
        # Components by descending count, and by descending weight if counts are tied.
        by_count = by_weight[_order_by_count(counts[by_weight])]
        # The largest weight goes to the first of these components, and so on. Components that get
        # equal weights form a group, in which they are sorted by number.
        _, group = np.unique(-self.weights, return_inverse=True)
        order = np.empty_like(by_count)
        order[np.argsort(group, kind="stable")] = by_count[np.lexsort((by_count, np.sort(group)))]
        return order

    def log_partition(self, b: Array) -> tuple[Array, Array]:
        """Return ``log sum_k w_k^b`` and its slope in b, (M,) each, in nats."""
        return compute_choice_partition(b, np.log(self.weights))
