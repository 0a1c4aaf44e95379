"""The conjugate family of K Gaussians with separate means and a shared precision matrix.

:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._gaussian import MeanPrecision
from skvt.expfam._normal_wishart import NormalWishart, join_moments, split_parameters
from skvt.expfam._wishart import Wishart, compute_moments, compute_statistic, draw_root
from skvt.typing import Array


@dataclass(frozen=True, eq=False)
class TiedNormalWishart:
    """Joint distribution of the means mu_k of K Gaussians and of their shared precision Lambda.

    ``Lambda ~ Wishart(nu, W)`` and ``mu_k | Lambda ~ N(m_k, (kappa_k Lambda)^-1)``.

    Each of the K Gaussians is called a member. Natural parameters have shape (K, E), with a row for
    each member. Row k has the natural parameters of a separate :class:`~skvt.expfam.NormalWishart`,
    with the degrees of freedom nu_k and the scale W_k: an observation x of member k adds ``(1, 1,
    x, upper triangle of x x')`` to row k. In the marginal distribution of Lambda, the additions of
    all members are added to the parameters nu_0 and W_0 of the prior:

        nu = nu_0 + sum_k (nu_k - nu_0),      W^-1 = W_0^-1 + sum_k (W_k^-1 - W_0^-1).

    A member without observations therefore does not change the distribution of Lambda.

    The log-normaliser, log density and entropy have one term for each member. Each term includes a
    K-th of the log-normaliser, log density or entropy of Lambda, so that the sum of the K terms
    counts Lambda once.

    Parameters
    ----------
    prior : ndarray of shape (E,)
        Natural parameters of the prior of one member, a normal-Wishart; E = 2 + D + D (D + 1) / 2.
    """

    prior: Array
    # The name of the family in texts. Other families are classes, which have a ``__name__``.
    __name__ = "TiedNormalWishart"

    def with_shared_globals(self, eta: ArrayLike) -> Array:
        """Return natural parameters (K, E) of the marginals of (mu_k, Lambda), normal-Wisharts."""
        return NormalWishart.from_standard(**self.to_standard(eta))

    @cached_property
    def _prior_of_precision(self) -> tuple[Array, Array]:
        """The natural parameters of the prior of Lambda, a Wishart, and its log-normaliser."""
        _, _, marginal = split_parameters(self.prior)
        return marginal, Wishart.log_normalizer(marginal)

    def precision_marginal(self, eta: ArrayLike) -> Array:
        """Return natural parameters (1 + D (D + 1) / 2,) of the marginal of Lambda, a Wishart."""
        # (K, 1 + D (D + 1) / 2): the parameters nu_k and W_k of each member.
        _, _, members = split_parameters(eta)
        prior, _ = self._prior_of_precision
        return prior + (members - prior).sum(axis=tuple(range(members.ndim - 1)))

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return the terms of the members in the log-normaliser, (K,), in nats.

        The sum of the terms is the joint log-normaliser plus K - 1 times the log-normaliser of the
        prior of Lambda. If all members equal ``prior``, each term is the log-normaliser of
        ``prior``.
        """
        kappa, m, _ = split_parameters(eta)
        _, prior_log_normalizer = self._prior_of_precision
        mean_terms = 0.5 * m.shape[-1] * np.log(2.0 * np.pi / kappa)
        precision_gain = Wishart.log_normalizer(self.precision_marginal(eta)) - prior_log_normalizer
        return prior_log_normalizer + mean_terms + precision_gain / max(1, kappa.size)

    def expectation(self, eta: ArrayLike) -> Array:
        """Return ``E[t(mu_k, Lambda)]`` of each member, (K, E), see :class:`NormalWishart`.

        ``E[log|Lambda|]`` and ``E[Lambda]`` are equal for all members.
        """
        kappa, m, _ = split_parameters(eta)
        log_det, precision = compute_moments(self.precision_marginal(eta))
        return join_moments(m, kappa, log_det, precision, m @ precision)

    def to_standard(self, eta: ArrayLike) -> dict[str, Array]:
        """Return the parameters of the marginal of (mu_k, Lambda) for each member, by name.

        ``mean`` is (K, D), ``mean_precision`` (K,), ``degrees_of_freedom`` (K,) and
        ``scale_inverse`` (K, D, D). The last two are the nu and W^-1 of Lambda, repeated K times.
        """
        separate = NormalWishart.to_standard(eta)
        shared = Wishart.to_standard(self.precision_marginal(eta))
        return separate | {
            name: np.broadcast_to(shared[name], separate[name].shape) for name in shared
        }

    def from_standard(
        self, mean: ArrayLike, mean_precision: ArrayLike, degrees_of_freedom: ArrayLike,
        scale_inverse: ArrayLike,
    ) -> Array:  # fmt: skip
        """Return natural parameters (K, E) for the parameters that :meth:`to_standard` returns.

        ``degrees_of_freedom`` (K,) and ``scale_inverse`` (K, D, D) must be equal for all members.
        Their differences from the prior are divided equally among the members.
        """
        prior = NormalWishart.to_standard(self.prior)
        n_members = max(1, np.size(mean_precision))
        nu_0, W_0_inverse = prior["degrees_of_freedom"], prior["scale_inverse"]
        nu_k = nu_0 + (np.asarray(degrees_of_freedom) - nu_0) / n_members
        W_k_inverse = W_0_inverse + (np.asarray(scale_inverse) - W_0_inverse) / n_members
        return NormalWishart.from_standard(mean, mean_precision, nu_k, W_k_inverse)

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> MeanPrecision:
        """Draw means (K, D) and a precision, which is repeated for each member, (K, D, D)."""
        separate = NormalWishart.to_standard(eta)
        mean, kappa = separate["mean"], separate["mean_precision"]
        root = draw_root(self.precision_marginal(eta), rng)
        z = rng.standard_normal(mean.shape) / np.sqrt(kappa)[..., None]
        # Since Lambda = root root', root'^-1 z_k has the covariance (kappa_k Lambda)^-1.
        columns = z.reshape(-1, len(root)).T
        deviation = np.linalg.solve(root.T, columns).T.reshape(z.shape)
        precision = np.broadcast_to(root @ root.T, separate["scale_inverse"].shape)
        return MeanPrecision(mean + deviation, np.array(precision))

    #: Return natural parameters of members that are nearly certain of x, as separate members.
    concentrate_at = staticmethod(NormalWishart.concentrate_at)

    def mean(self, eta: ArrayLike) -> MeanPrecision:
        return NormalWishart.mean(self.with_shared_globals(eta))

    def variance(self, eta: ArrayLike) -> MeanPrecision:
        return NormalWishart.variance(self.with_shared_globals(eta))

    def log_density(self, eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        """Return the terms of the members in the log density at ``x``, (..., K), in nats.

        ``x`` has means (..., K, D) and precisions (..., K, D, D). All terms are -inf if the
        precisions of the K members differ, or are not symmetric and positive definite.
        """
        mean, precision = (np.asarray(values, dtype=np.float64) for values in x)
        log_densities = NormalWishart.log_density(self.with_shared_globals(eta), (mean, precision))
        # The log density of each normal-Wishart includes the whole log density of Lambda, but each
        # term only a K-th of it. Subtract the surplus.
        surplus = 1.0 - 1.0 / max(1, np.shape(eta)[0])
        with np.errstate(invalid="ignore"):
            log_density_of_precision = Wishart.log_density(self.precision_marginal(eta), precision)
            terms = log_densities - surplus * log_density_of_precision
        is_shared = np.all(precision == precision[..., :1, :, :], (-1, -2))
        is_legal = compute_statistic(precision)[1] & is_shared
        return np.where(np.all(is_legal, axis=-1, keepdims=True), terms, -np.inf)

    def entropy(self, eta: ArrayLike) -> Array:
        """Return the terms of the members in the entropy, (K,), in nats."""
        entropies = NormalWishart.entropy(self.with_shared_globals(eta))
        surplus = 1.0 - 1.0 / max(1, entropies.size)
        return entropies - surplus * Wishart.entropy(self.precision_marginal(eta))
