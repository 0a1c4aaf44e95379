"""The family of K means that share one precision matrix."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from skvt.expfam._gaussian import MeanPrecision, join
from skvt.expfam._normal_wishart import NormalWishart, split
from skvt.expfam._wishart import Wishart, drawn_root, moments, statistic
from skvt.expfam.triangle import pack_statistic
from skvt.typing import Array


@dataclass(frozen=True, eq=False)
class TiedNormalWishart:
    """Joint distribution of K means mu_k and the precision Lambda of all, of K Gaussians.

    ``Lambda ~ Wishart(nu, W)`` and ``mu_k | Lambda ~ N(m_k, (kappa_k Lambda)^-1)``. Natural
    parameters are (K, E), those of :class:`~skvt.expfam.NormalWishart` for each member: a row x of
    member k adds ``(1, 1, x, upper triangle of x x')`` to its own, as if it had a precision of its
    own. What all have added to the prior makes the precision that they share,

        nu = nu_0 + sum_k (nu_k - nu_0),      W^-1 = W_0^-1 + sum_k (W_k^-1 - W_0^-1),

    so that members that equal the prior change nothing. What belongs to Lambda alone (its
    log-normaliser, density and entropy) counts for each of the K members with one K-th, so that
    sums over the members are right.
    """

    # (E,): natural parameters of the prior of one member, a normal-Wishart.
    prior: Array
    __name__ = "TiedNormalWishart"

    def apart(self, eta: ArrayLike) -> Array:
        """Return the marginals of the members, normal-Wisharts: (K, E)."""
        return NormalWishart.from_standard(**self.standard(eta))

    @cached_property
    def _of_prior(self) -> tuple[Array, Array]:
        """The marginal of Lambda under the prior, a Wishart, and its log-normaliser."""
        marginal = split(self.prior)[2]
        return marginal, Wishart.log_normalizer(marginal)

    def shared(self, eta: ArrayLike) -> Array:
        """Return the marginal of Lambda, a Wishart: shape (1 + D (D + 1) / 2,)."""
        own, prior = split(eta)[2], self._of_prior[0]
        return prior + (own - prior).sum(axis=tuple(range(own.ndim - 1)))

    def log_normalizer(self, eta: ArrayLike) -> Array:
        """Return terms (K,) whose sum is the joint log-normaliser, up to a constant of the prior.

        For the prior, the term is the log-normaliser of the normal-Wishart.
        """
        kappa, m, _ = split(eta)
        of_prior, of_means = self._of_prior[1], 0.5 * m.shape[-1] * np.log(2.0 * np.pi / kappa)
        gain = Wishart.log_normalizer(self.shared(eta)) - of_prior
        return of_prior + of_means + gain / max(1, kappa.size)

    def expectation(self, eta: ArrayLike) -> Array:
        """``E[t]`` of each member; ``E[log|Lambda|]`` and ``E[Lambda]`` are the same in all."""
        kappa, m, _ = split(eta)
        log_det, precision = moments(self.shared(eta))
        precision_mean = m @ precision
        # E[mu' Lambda mu]
        square = np.einsum("...i,...i->...", m, precision_mean) + m.shape[-1] / kappa
        scalars = np.stack(np.broadcast_arrays(0.5 * log_det, -0.5 * square), axis=-1)
        return join(scalars, precision_mean, pack_statistic(precision))

    def standard(self, eta: ArrayLike) -> dict[str, Array]:
        """Return normal-Wishart parameters; members share degrees of freedom and scale."""
        q, shared = NormalWishart.standard(eta), Wishart.standard(self.shared(eta))
        return q | {name: np.broadcast_to(shared[name], q[name].shape) for name in shared}

    def from_standard(
        self, mean: ArrayLike, mean_precision: ArrayLike, degrees_of_freedom: ArrayLike,
        scale_inverse: ArrayLike,
    ) -> Array:  # fmt: skip
        """Return natural parameters (K, E), with equal shares of the precision's parameters.

        ``degrees_of_freedom`` (K,) and ``scale_inverse`` (K, D, D) are the same for all members.
        """
        prior, n_members = NormalWishart.standard(self.prior), max(1, np.size(mean_precision))
        freedom, scale = prior["degrees_of_freedom"], prior["scale_inverse"]
        return NormalWishart.from_standard(
            mean,
            mean_precision,
            freedom + (np.asarray(degrees_of_freedom) - freedom) / n_members,
            scale + (np.asarray(scale_inverse) - scale) / n_members,
        )

    def sample(self, eta: ArrayLike, rng: np.random.Generator) -> MeanPrecision:
        """Draw means (K, D) and one precision, repeated for each member, (K, D, D)."""
        q = NormalWishart.standard(eta)
        root = drawn_root(self.shared(eta), rng)
        z = rng.standard_normal(q["mean"].shape) / np.sqrt(q["mean_precision"])[..., None]
        # Lambda = root root', so that root'^-1 z has the covariance Lambda^-1
        deviation = np.linalg.solve(root.T, z.reshape(-1, len(root)).T).T.reshape(z.shape)
        precision = np.broadcast_to(root @ root.T, q["scale_inverse"].shape)
        return MeanPrecision(q["mean"] + deviation, np.array(precision))

    @staticmethod
    def certain(x: MeanPrecision) -> Array:
        """Return the natural parameters of separate normal-Wisharts that are nearly certain."""
        return NormalWishart.certain(x)

    def mean(self, eta: ArrayLike) -> MeanPrecision:
        return NormalWishart.mean(self.apart(eta))

    def variance(self, eta: ArrayLike) -> MeanPrecision:
        return NormalWishart.variance(self.apart(eta))

    def log_density(self, eta: ArrayLike, x: tuple[ArrayLike, ArrayLike]) -> Array:
        """Log density at ``x = (mu, Lambda)`` in nats, (..., K); -inf where precisions differ.

        Means are (..., K, D), precisions (..., K, D, D) with the same for each member.
        """
        mean, precision = (np.asarray(part, dtype=np.float64) for part in x)
        each = NormalWishart.log_density(self.apart(eta), (mean, precision))
        surplus = 1.0 - 1.0 / max(1, np.shape(eta)[0])
        with np.errstate(invalid="ignore"):
            value = each - surplus * Wishart.log_density(self.shared(eta), precision)
        inside = statistic(precision)[1] & np.all(precision == precision[..., :1, :, :], (-1, -2))
        return np.where(np.all(inside, axis=-1, keepdims=True), value, -np.inf)

    def entropy(self, eta: ArrayLike) -> Array:
        each = NormalWishart.entropy(self.apart(eta))
        return each - (1.0 - 1.0 / max(1, each.size)) * Wishart.entropy(self.shared(eta))
