"""Components that differ from a common distribution in few columns.

In each column d, component k has a separate parameter phi_kd or the parameter psi_d that all
components share,

    pi_k ~ Uniform{pi_1, ..., pi_G},    s_kd ~ Bernoulli(pi_k),    phi_kd ~ H(eta_d),
    psi_d ~ H(eta_d),    x_nd | z_n = k ~ F(phi_kd) if s_kd = 1,  F(psi_d) if s_kd = 0,

a spike and slab [MitchellBeauchamp88] whose spike, psi, is estimated. H(eta) is the conjugate prior
with the natural parameters eta and the log normalizer A, and t are its sufficient statistics. The
probability pi_k that a column differs depends on the component, because a large component
determines psi and differs from it nowhere, while a small component may differ in many columns. The
log odds of pi_1, ..., pi_G are equidistant.

Let q(psi_d) = H(eta_d + R_d), and let S_kd be the statistics of the rows of component k. The best
q(pi_k, s_k, phi_k) is the posterior given q(psi): q(phi_kd | s_kd = 1) is H(eta_d + S_kd), and the
indicators of a component are independent given pi_k. In column d, separate parameters explain the
rows of component k better than the common parameters by

    Delta_kd = A(eta_d + S_kd) - A(eta_d) - <S_kd, E_q[t(psi_d)]>

nats. With the odds o_g of pi_g, the bound is a sum over components minus a divergence,

    sum_k ( sum_d <S_kd, E_q[t(psi_d)]> + log sum_g 1/G prod_d (1 + o_g exp Delta_kd) / (1 + o_g) )
        - sum_d KL(q(psi_d) || H(eta_d)).

Each term of the first sum is convex in S_k, and its gradient is the expectation of the statistics
under q. Given q(psi), the distributions of such components therefore form an exponential family.
Algorithms of inference, and moves that add, merge and split components, need not know of the
indicators. The components that a move adds are compared with the distribution of all rows.

The second line of the bound is treated as the log density of a hyperprior, and q(psi) is learned
like parameters of a prior, by

    R_d = sum_k q(s_kd = 0) S_kd.

This update maximises the bound at fixed q(s), so that the bound never falls.

Predictive densities treat the columns as independent given the component. They average over the
indicators,

    p(x_d | z = k) = q(s_kd = 1) int F(x_d | phi) q(phi_kd = phi | s_kd = 1) dphi
                     + q(s_kd = 0) int F(x_d | psi) q(psi_d = psi) dpsi.

Both integrals are predictive densities of the conjugate family, exp(A(lam + t(x)) - A(lam)) up to
the base measure, where lam are the natural parameters of q. Descriptions of components for users
take the more probable value of each indicator.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.files import in_files
from skvt.models.mixture._indicated import Indicated
from skvt.models.mixture._learned_priors import PriorLearner
from skvt.models.mixture._logs import Logged
from skvt.models.mixture._negative_binomial import NegativeBinomial
from skvt.models.mixture._product import Block, FamilyOfBlocks, Product, ValuesLearner
from skvt.models.mixture.components import (
    Bernoulli,
    Categorical,
    ConjugateComponent,
    DiagonalGaussian,
    KnownVarianceGaussian,
    Poisson,
)
from skvt.typing import Array, IndexArray

# Likelihoods whose columns are independent given the component.
_INDEPENDENT_LIKELIHOODS = (
    Bernoulli, Categorical, DiagonalGaussian, KnownVarianceGaussian, NegativeBinomial, Poisson,
)  # fmt: skip
# Number G of values of pi_k, the probability that a column of a component differs. The values are
# called shares.
_N_SHARES = 8
# Larger Delta_kd are not exponentiated, because the column then certainly differs.
_MAX_EXPONENT = 500.0
# Maximum number of updates of the common distribution in one call.
_MAX_COMMON_UPDATES = 10
# These updates end when the gain in nats is below this number.
_MIN_GAIN = 1e-2


@dataclass(frozen=True)
class SpikeAndSlab(FamilyOfBlocks):
    """The family of parameters whose columns are separate or common.

    The natural parameters ``eta`` in this class are those of q of the separate parameters, which
    are ``eta_d + S_kd`` in column d. They are flattened, (..., P), or have the ``shape`` of the
    prior, (..., *shape). All columns are in one block, so that each attribute for blocks has one
    entry.
    """

    # (*shape): natural parameters of the prior.
    prior: Array
    # (*shape): E[t] of the common parameters psi.
    common: Array
    # (D,): numbers of natural parameters of the columns.
    parameter_counts: tuple[int, ...]
    # Function that returns the log normalizer of each column, (..., D), for eta (..., *shape).
    column_log_normalizers: Callable[[Array], Array]

    @cached_property
    def _starts(self) -> IndexArray:
        """Positions of the first natural parameter of each column, (D,)."""
        counts = np.array(self.parameter_counts, np.intp)
        return np.cumsum(counts) - counts

    def _sum_entries(self, values: Array) -> Array:
        """Return sums of ``values`` (..., *shape) over the entries of each column, (..., D)."""
        (shape,) = self.shapes
        leading_shape = values.shape[: values.ndim - len(shape)]
        entries = values.reshape(*leading_shape, -1)
        return np.asarray(np.add.reduceat(entries, self._starts, axis=-1))

    def repeat_for_entries(self, columns: Array) -> Array:
        """Repeat values of columns (..., D) for each entry of the natural parameters."""
        return np.repeat(columns, self.parameter_counts, axis=-1)

    @cached_property
    def _prior_log_normalizers(self) -> Array:
        """``A(eta_d)`` of the prior of each column, (D,)."""
        return self.column_log_normalizers(self.prior)

    @cached_property
    def _odds(self) -> Array:
        """The odds o_g of pi_1, ..., pi_G, (G,), from 1 / (D + 1) to D + 1."""
        return np.exp(np.linspace(-1.0, 1.0, _N_SHARES) * np.log1p(len(self.parameter_counts)))

    def _sum_over_shares(self, eta: Array) -> tuple[Array, Array, Array, Array]:
        """Return terms of the bound in the docstring of the module, and q(pi_k = pi_g).

        The terms are ``<S_kd, E_q[t(psi_d)]>`` (..., D), ``log(1 + o_g exp Delta_kd)`` (..., D, G)
        and the log of the sum over g (...). The probabilities q(pi_k = pi_g) are (..., G).
        """
        (eta,) = self.split(eta)
        log_common = self._sum_entries((eta - self.prior) * self.common)
        # Delta_kd.
        gain = self.column_log_normalizers(eta) - self._prior_log_normalizers - log_common
        # Above the limit, log(1 + o_g exp(gain)) is gain + log(o_g) up to rounding.
        exponent = np.minimum(gain, _MAX_EXPONENT)
        log_ratios = np.log1p(np.exp(exponent)[..., None] * self._odds)
        log_ratios += (gain - exponent)[..., None]
        log_terms = log_ratios.sum(axis=-2) - len(self.parameter_counts) * np.log1p(self._odds)
        log_sum = np.logaddexp.reduce(log_terms, axis=-1)
        share_probabilities = np.exp(log_terms - log_sum[..., None])
        return log_common, log_ratios, log_sum - np.log(_N_SHARES), share_probabilities

    def indicators(self, eta: Array) -> Array:
        """Return q(s_kd = 1), (..., D)."""
        return self.indicators_and_bound(eta)[0]

    def indicators_and_bound(self, eta: Array) -> tuple[Array, Array]:
        """Return q(s_kd = 1), (..., D), and each component's term of the bound, (...) in nats."""
        log_common, log_ratios, log_sum, share_probabilities = self._sum_over_shares(eta)
        # q(s_kd = 1 | pi_k = pi_g) is 1 - 1 / (1 + o_g exp Delta_kd).
        probabilities = (-np.expm1(-log_ratios) @ share_probabilities[..., None])[..., 0]
        # Rounding may raise a probability above 1.
        return np.minimum(probabilities, 1.0), log_common.sum(axis=-1) + log_sum

    def column_bounds(self, eta: Array) -> Array:
        """Return each column's term of the bound, averaged over q(pi_k), (..., D) in nats."""
        log_common, log_ratios, _, share_probabilities = self._sum_over_shares(eta)
        log_ratios -= np.log1p(self._odds)
        return log_common + (log_ratios @ share_probabilities[..., None])[..., 0]

    def log_normalizer(self, eta: Array) -> Array:
        return self.indicators_and_bound(eta)[1] + self._prior_log_normalizers.sum()

    def expectation(self, eta: Array) -> Array:
        """Return the expected statistics (..., P), averaged over the indicators."""
        probability = self.repeat_for_entries(self.indicators(eta))
        separate = self.join([self.families[0].expectation(self.split(eta)[0])])
        return probability * separate + (1.0 - probability) * self.common.reshape(-1)


@in_files("models.SparseDifferences")
@dataclass(frozen=True)
class SparseDifferences(Product):
    """A component of one block, in which each column may have the common distribution.

    The docstring of the module has the model. The arguments ``lam`` (K, P) of methods are natural
    parameters of :class:`SpikeAndSlab`, and ``sums`` (K, P') are sums of features.
    :class:`skvt.contracts.Component` documents the methods without docstrings.
    """

    # Natural parameters eta + R of q(psi), in the shape of the block's prior.
    common: Array = field(kw_only=True)

    has_common_columns = True

    @classmethod
    def from_component(cls, component: Any, sums: Array) -> "SparseDifferences":
        """Return the component before any column differs.

        The common distribution is that of all rows, whose sums of features are ``sums`` (P,).
        """
        D = component.n_features
        blocks = (Block("values", component, np.arange(D)),)
        common = component.natural_parameters(sums[None])[0]
        return cls(blocks, D, component.dtype, common=common)

    def validate(self, d: int, k: int) -> bool:
        """Return whether the fields fit each other and data of ``d`` columns, for loaded files."""
        return (
            len(self.blocks) == 1
            and type(self.inner_component) in _INDEPENDENT_LIKELIHOODS
            and np.array_equal(self.blocks[0].columns, np.arange(d))
            and self.common.shape == self.inner_component.prior.shape
            and bool(np.isfinite(self.log_hyperprior))
        )

    @property
    def inner_component(self) -> Any:
        """The component whose columns may differ."""
        return self.blocks[0].component

    @cached_property
    def family(self) -> SpikeAndSlab:
        component = self.inner_component
        return SpikeAndSlab(
            ("values",), (component.family,), (component.prior.shape,),
            component.prior, component.family.expectation(self.common),
            component.parameter_counts, component.column_log_normalizers,
        )  # fmt: skip

    @cached_property
    def log_hyperprior(self) -> float:
        """``-KL(q(psi) || H)`` in nats, the second line of the bound."""
        family = self.family
        divergence = ((self.common - family.prior) * family.common).sum()
        divergence -= np.sum(self.inner_component.family.log_normalizer(self.common))
        divergence += np.sum(self.inner_component.family.log_normalizer(family.prior))
        return -float(divergence)

    # ------------------------------------------------------------------------------ evidence
    # Other products add up the evidence of their blocks. Here the family has the evidence.
    log_evidence = ConjugateComponent.log_evidence
    merge_gains = ConjugateComponent.merge_gains

    def column_evidence(self, sums: Array) -> Array:
        """Return each column's term of the bound, (K, D) in nats."""
        bounds = self.family.column_bounds(self.natural_parameters(sums))
        return self._append_exposure_column(bounds)

    def _append_exposure_column(self, columns: Array) -> Array:
        """Append a zero to values (..., D) of columns if the data have a column of exposures."""
        n_appended = self.n_features - columns.shape[-1]
        return np.pad(columns, [*[(0, 0)] * (columns.ndim - 1), (0, n_appended)])

    # --------------------------------------------------------------------------- predictions
    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities that average over the indicators, (n, K) in nats."""
        return np.asarray(self.inner_component.log_predictive_mixed(X, *self._parameters(lam)))

    def _parameters(self, lam: Array) -> tuple[Array, Array, Array]:
        """Return separate (K, *shape) and common (*shape) parameters, and q(s_kd = 1) (K, D)."""
        return self.family.split(lam)[0], self.common, self.family.indicators(lam)

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        mixed_lam = self.inner_component.mix_parameters(*self._parameters(lam))
        return np.asarray(self.inner_component.column_probabilities(mixed_lam, column, X))

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        mixed_lam = self.inner_component.mix_parameters(*self._parameters(lam))
        # If no natural parameters have the mixed density, average conditional means.
        if mixed_lam is None:
            return ConjugateComponent.imputed(self, X, lam, memberships)
        return np.asarray(self.inner_component.imputed(X, mixed_lam, memberships))

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows with means, averaged over the indicators, for missing values, (K, n, D)."""
        separate = self.inner_component.conditional_mean(X, self.family.split(lam)[0])
        common = self.inner_component.conditional_mean(X, self.common[None])
        probabilities = self._append_exposure_column(self.family.indicators(lam))[:, None]
        return np.asarray(common + probabilities * (separate - common))

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        return self._draw_values(
            lam, len(X), lambda eta: self.inner_component.conditional_sample(X, eta, rng), rng
        )

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        return self._draw_values(
            lam, n_rows, lambda eta: self.inner_component.sample(eta, n_rows, rng), rng
        )

    def _draw_values(
        self, lam: Array, n_rows: int, draw_rows: Callable[[Array], Array], rng: np.random.Generator
    ) -> Array:
        """Draw the indicators of each row, and then its values.

        ``draw_rows(parameters)`` draws all values of the rows under one array of parameters. Each
        indicator selects between a draw under separate and a draw under common parameters.
        """
        probabilities = self._append_exposure_column(self.family.indicators(lam))
        is_separate = rng.random((n_rows, probabilities.size)) < probabilities
        return np.where(is_separate, draw_rows(self.family.split(lam)[0]), draw_rows(self.common))

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple[Any, Array]:
        """Draw parameters and indicators; return a product and a ``lam`` concentrated at the draw.

        The product has no indicators, because the drawn parameters of a column are the separate or
        the common ones.
        """
        family = self.family
        probabilities = family.indicators(lam)
        uniform = family.repeat_for_entries(rng.random(probabilities.shape))
        is_separate = uniform < family.repeat_for_entries(probabilities)
        product = Product(self.blocks, self.n_features, self.dtype)
        component, separate = product.drawn(lam, rng)
        _, common = product.drawn(self.common.reshape(1, -1), rng)
        return component, np.where(is_separate, separate, common)

    # -------------------------------------------------------------------------- descriptions
    def differs(self, lam: Array) -> NDArray[np.bool_]:
        """Return for each entry of ``lam`` whether its column differs with probability > 1 / 2."""
        return np.asarray(self.family.repeat_for_entries(self.family.indicators(lam)) > 0.5)

    def _more_probable_parameters(self, lam: Array) -> Array:
        """Return natural parameters (K, *shape) for the more probable value of each indicator."""
        return self.family.split(np.where(self.differs(lam), lam, self.common.reshape(-1)))[0]

    def in_data_coordinates(self, lam: Array) -> tuple[Any, Array]:
        return self.inner_component.in_data_coordinates(self._more_probable_parameters(lam))

    def marginals(self, lam: Array) -> Any:
        return self.inner_component.marginals(self._more_probable_parameters(lam))

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        """Return no parts, because the component is described as a whole."""
        return {}


@in_files("models.SparseDifferencesLearner")
@dataclass(frozen=True)
class SparseDifferencesLearner:
    """Learns the common distribution and the prior."""

    # Learner of the block's prior; None if the prior is fixed.
    learner: PriorLearner | None

    def learn_prior(self, component: SparseDifferences, sums: Array) -> SparseDifferences:
        """Return the component with a common distribution and a prior of a higher bound.

        ``sums`` (K, P) are sums of features.
        """
        best, bound = _improve_common(component, sums)
        if self.learner is None:
            return best
        # Keep the new prior only if it raises the bound.
        improved = _improve_prior(best, self.learner, sums)
        base_measure = float((sums * component.base).sum())
        evidence = float(improved.log_evidence(sums).sum()) - base_measure
        return improved if evidence + improved.log_hyperprior > bound else best

    def make_symmetric(self, component: SparseDifferences) -> SparseDifferences:
        """Return the component as it is; see :class:`PriorLearner`."""
        return component

    def learned_values(self, component: SparseDifferences) -> dict[str, Any]:
        """Return the learned values of the prior by name."""
        if self.learner is None:
            return {}
        return self.learner.learned_values(component.inner_component)


def _improve_common(component: SparseDifferences, sums: Array) -> tuple[SparseDifferences, float]:
    """Return the component with a better common distribution, and the bound in nats.

    The bound leaves out the base measure.
    """
    # Leave out components without rows.
    lam = component.natural_parameters(sums)
    lam = lam[np.any(lam != component.prior, axis=1)]
    best, best_bound = component, -np.inf
    current = component
    for _ in range(_MAX_COMMON_UPDATES):
        probabilities, bounds = current.family.indicators_and_bound(lam)
        bound = float(bounds.sum()) + current.log_hyperprior
        gain = bound - best_bound
        if gain > 0.0:
            best, best_bound = current, bound
        if gain < _MIN_GAIN:
            break
        # Update q(psi) by the equation for R.
        common_probabilities = current.family.repeat_for_entries(1.0 - probabilities)
        R = (common_probabilities * (lam - component.prior)).sum(axis=0)
        common = component.inner_component.prior + R.reshape(component.common.shape)
        current = replace(current, common=common)
    return best, best_bound


def _improve_prior(
    component: SparseDifferences, learner: PriorLearner, sums: Array
) -> SparseDifferences:
    """Return the component with a prior learned from the common and the separate parameters.

    The learner gets the statistics R of the common parameters as if they belonged to a further
    component. A column in which a component does not differ counts as a column without rows, which
    does not change the evidence of the prior.
    """
    inner_component = component.inner_component
    lam = component.natural_parameters(sums)
    separate = np.where(component.differs(lam), lam - component.prior, 0.0)
    (separate,) = component.family.split(separate)
    R = component.common - inner_component.prior
    statistics = np.concatenate([R[None], separate])
    inner_component = learner.learn_prior(inner_component, inner_component.feature_sums(statistics))
    return replace(component.with_components([inner_component]), common=inner_component.prior + R)


def with_sparse_differences(
    component: Any, learner: PriorLearner | None, sums: Array
) -> tuple[Any, PriorLearner | None]:
    """Return a component whose columns may have a common distribution, and its learner.

    They are made from ``component`` and ``learner``. ``sums`` (P,) are the sums of features of all
    rows. In a component that wraps others, the wrapped components are replaced. If its columns are
    not independent, ``component`` is returned unchanged, with ``learner``.
    """
    if type(component) in _INDEPENDENT_LIKELIHOODS:
        return SparseDifferences.from_component(component, sums), SparseDifferencesLearner(learner)
    if type(component) not in (Indicated, Logged):
        return component, learner
    # The second block, which describes indicators or volumes, has no learner so far.
    learners = [learner.learner if type(learner) is ValuesLearner else learner, None]
    wrapped = [block.component for block in component.blocks]
    replacements = map(with_sparse_differences, wrapped, learners, component.split_by_block(sums))
    components, new_learners = zip(*replacements, strict=True)
    component = component.with_components(components)
    return component, ValuesLearner(*new_learners) if any(new_learners) else None


def without_sparse_differences(component: Any) -> Any:
    """Return the component from which :func:`with_sparse_differences` made ``component``."""
    if type(component) is SparseDifferences:
        return component.inner_component
    if type(component) not in (Indicated, Logged):
        return component
    return component.with_components(
        without_sparse_differences(block.component) for block in component.blocks
    )
