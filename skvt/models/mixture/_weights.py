"""Laws of the weights of a mixture, see :class:`skvt.contracts.Weights`."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from skvt.contracts import Capability
from skvt.expfam import Beta, Dirichlet, Family
from skvt.models import choice_log_partition
from skvt.ties import stable_order
from skvt.typing import Array, IndexArray


@dataclass(frozen=True)
class StickBreaking:
    """Weights of a Dirichlet process of this concentration; block of counts (K,)."""

    concentration: float

    family = Beta
    capabilities: frozenset[Capability] = frozenset({Capability.MERGEABLE})

    def prior(self) -> Array:
        """Beta(1, alpha) for each stick, shape (1, 2)."""
        return np.array([[1.0, self.concentration]])

    def natural_parameters(self, counts: Array) -> Array:
        """q(v_k) = Beta(1 + N_k, alpha + sum_{l>k} N_l), shape (K, 2)."""
        after = counts[::-1].cumsum()[::-1] - counts
        # the difference of sums may fall below 0 by rounding
        after = np.maximum(after, 0.0)
        return np.stack([1.0 + counts, self.concentration + after], axis=1)  # [HS13 eq. 10]

    def log_weights(self, t: Array) -> Array:
        """``log w_k = log v_k + sum_{l<k} log(1 - v_l)``, shape (K,)."""
        stick, rest = t.T
        return stick + rest.cumsum() - rest

    def weights_of(self, sticks: Array) -> Array:
        """``w_k = v_k prod_{l<k} (1 - v_l)`` of sticks (..., K)."""
        left = np.cumprod(1.0 - sticks, axis=-1)
        return sticks * np.concatenate([np.ones_like(left[..., :1]), left[..., :-1]], axis=-1)

    def mean(self, lam: Array) -> Array:
        """``E[w_k]``, shape (K,); the remainder to 1 is the mass of components not yet seen."""
        return self.weights_of(Beta.mean(lam))

    def log_evidence(self, counts: Array) -> float:
        lam = StickBreaking.natural_parameters(self, counts)
        return _log_evidence(Beta, lam, self.prior())

    def order(self, counts: Array) -> IndexArray:
        """Largest first."""
        return _largest_first(counts)


@dataclass(frozen=True)
class SeparateSticks(StickBreaking):
    """Sticks with statistics ``(N_k, sum_{l>k} N_l)`` each, shape (K, 2).

    For steps after which the sticks are not those of any counts.
    """

    def statistics(self, counts: Array) -> Array:
        """Pairs of counts (K,)."""
        return StickBreaking.natural_parameters(self, counts) - self.prior()

    def natural_parameters(self, pairs: Array) -> Array:
        """``(1, alpha)`` and the pairs, shape (K, 2)."""
        return self.prior() + pairs


@dataclass(frozen=True)
class SymmetricDirichlet:
    """``w ~ Dir(alpha / K)`` of K components, a finite approximation of a Dirichlet process.

    Counts may be those of the first components only: the others exist without rows.
    """

    # alpha.
    concentration: float
    n_components: int

    family = Dirichlet
    capabilities: frozenset[Capability] = frozenset({Capability.MERGEABLE})

    def prior(self) -> Array:
        return np.full((1, 1), self.concentration / self.n_components)

    def statistics(self, counts: Array) -> Array:
        return counts

    def natural_parameters(self, counts: Array) -> Array:
        """``alpha / K + N_k``, shape (1, K)."""
        others = np.zeros(self.n_components - counts.size)
        return self.prior() + np.append(counts, others)

    def log_weights(self, t: Array) -> Array:
        return t[0]

    def mean(self, lam: Array) -> Array:
        return Dirichlet.mean(lam)[0]

    def weights_of(self, value: Array) -> Array:
        """They are what is drawn, (..., 1, K)."""
        return value[..., 0, :]

    def log_evidence(self, counts: Array) -> float:
        return _log_evidence(Dirichlet, self.natural_parameters(counts), self.prior())

    def order(self, counts: Array) -> IndexArray:
        return np.arange(counts.size)


def _largest_first(counts: Array) -> IndexArray:
    # a count is what is left of a sum over all rows
    return stable_order(-counts, scale=float(counts.sum()))


def _log_evidence(family: Family, lam: Array, prior: Array) -> float:
    """``A(lam) - A(prior)`` in nats, summed over members."""
    prior = np.broadcast_to(prior, lam.shape)
    return float(np.sum(family.log_normalizer(lam) - family.log_normalizer(prior)))


class _Known:
    """The family of known quantities: no natural parameters, no divergence."""

    @staticmethod
    def log_normalizer(eta: Array) -> Array:
        return np.zeros(eta.shape[:-1])

    @staticmethod
    def expectation(eta: Array) -> Array:
        return eta


@dataclass(frozen=True)
class KnownWeights:
    """Given weights, which are not learned."""

    # (K,): positive, with the sum 1.
    weights: Array

    family: ClassVar[Any] = _Known
    capabilities: frozenset[Capability] = frozenset({Capability.TEMPERABLE})

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
        """``sum_k N_k log w_k``."""
        return float(counts @ np.log(self.weights))

    def order(self, counts: Array) -> IndexArray:
        """The components with most rows at the largest weights; ties keep their order."""
        # tied components keep the weights that they have
        places = np.argsort(-self.weights, kind="stable")
        ranked = places[_largest_first(counts[places])]
        alike = np.unique(-self.weights, return_inverse=True)[1]
        order = np.empty_like(ranked)
        order[np.argsort(alike, kind="stable")] = ranked[np.lexsort((ranked, np.sort(alike)))]
        return order

    def log_partition(self, b: Array) -> tuple[Array, Array]:
        """``log sum_k w_k^b`` and its slope in b, (M,) each, in nats."""
        return choice_log_partition(b, np.log(self.weights))
