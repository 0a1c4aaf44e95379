"""Components that differ from a common distribution in few columns.

In each column, a component has a parameter of its own or the parameter that all components share,

    s_kd ~ Bernoulli(pi),    phi_kd ~ H(eta_d),    psi_d ~ H(eta_d),    pi ~ Beta(2, 2),
    x_nd | z_n = k ~ F(phi_kd) if s_kd = 1,  F(psi_d) if s_kd = 0,

a spike and slab [MitchellBeauchamp88] whose spike is estimated. With

    q(psi_d) = H(eta_d + R_d),    q(s_kd, phi_kd) = q(s_kd) q(phi_kd | s_kd)

and statistics S_kd, the best q(phi_kd | s_kd = 1) is H(eta_d + S_kd), and the bound is a sum over
components,

    sum_kd log[(1 - pi) exp <S_kd, E_q[t(psi_d)]> + pi exp(A(eta_d + S_kd) - A(eta_d))]
        - sum_d KL(q(psi_d) || H(eta_d)) + log p(pi).

Each term of the first sum is convex in S_kd, and its gradient is the expectation of the column's
statistic under q. Given q(psi) and pi, such components are therefore members of an exponential
family, and engines and moves need not know of the indicators: births compare their components with
the distribution of all rows. The second line is the log density of a hyperprior. q(psi) and pi are
learned like parameters of a prior, with

    R_d = sum_k q(s_kd = 0) S_kd,    pi = (1 + sum_kd q(s_kd = 1)) / (2 + K D),

which maximises the bound at fixed q(s), so that the bound never falls.

Given the component, columns are independent under q, and predictions average over indicators,

    p(x_d | z = k) = q(s_kd = 1) int F(x_d | phi) q(phi_kd = phi | s_kd = 1) dphi
                     + q(s_kd = 0) int F(x_d | psi) q(psi_d = psi) dpsi.

Both integrals are predictive densities of the conjugate family, exp(A(lam + t(x)) - A(lam)) up to
the base measure. Descriptions take the more probable value of each indicator.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit

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
_OF_COLUMNS = (
    Bernoulli, Categorical, DiagonalGaussian, KnownVarianceGaussian, NegativeBinomial, Poisson,
)  # fmt: skip
# Parameters of the Beta prior of the share of columns in which a component differs.
_BETA = (2.0, 2.0)
# Share with which searches begin. A share learned from components that do not differ would end
# every search.
_SHARE_OF_SEARCH = 0.3
# Maximum number of updates of the common distribution at a time, and the gain in nats below which
# they end.
_MOST_STEPS = 10
_SMALLEST_GAIN = 1e-2


@dataclass(frozen=True)
class SpikeAndSlab(FamilyOfBlocks):
    """Members of one family, each column of which may have the common parameter."""

    # (*shape): natural parameters of the prior, and E[t] of the common parameters.
    prior: Array
    common: Array
    # Prior probability that a column has a parameter of its own.
    share: float
    # (D,): numbers of natural parameters of the columns.
    sizes: tuple[int, ...]

    @cached_property
    def _starts(self) -> IndexArray:
        return np.cumsum(self.sizes, dtype=np.intp) - np.array(self.sizes, np.intp)

    def _totals(self, values: Array) -> Array:
        """Return sums (..., D) over the entries of each column, of values (..., *shape)."""
        lead = values.shape[: values.ndim - len(self.shapes[0])]
        return np.asarray(np.add.reduceat(values.reshape(*lead, -1), self._starts, axis=-1))

    def of_entries(self, columns: Array) -> Array:
        """Repeat values of columns (..., D) for each entry of the natural parameters."""
        return np.repeat(columns, self.sizes, axis=-1)

    def _log_normalizers(self, eta: Array) -> Array:
        family: Any = self.families[0]
        of_columns = getattr(family, "log_normalizers", family.log_normalizer)
        return np.asarray(of_columns(eta))

    @cached_property
    def _of_prior(self) -> Array:
        return self._log_normalizers(self.prior)

    def against_prior(self, eta: Array) -> tuple[Array, Array]:
        """Return ``eta`` less the prior, (..., *shape), and the columns' log evidence, (..., D).

        The evidence is that of parameters of their own.
        """
        eta = self.split(eta)[0]
        return eta - self.prior, self._log_normalizers(eta) - self._of_prior

    def weighted(self, differences: Array, evidence: Array) -> tuple[Array, Array]:
        """Return the logarithms of both terms of each column, (..., D): common and separate."""
        with np.errstate(divide="ignore"):  # of draws, every column differs
            log_common = np.log1p(-self.share)
        of_common = self._totals(differences * self.common) + log_common
        return of_common, evidence + np.log(self.share)

    def indicators(self, eta: Array) -> Array:
        """Return q(s_kd = 1), (..., D)."""
        of_common, separate = self.weighted(*self.against_prior(eta))
        probabilities: Array = expit(separate - of_common)
        return probabilities

    def of_columns(self, eta: Array) -> Array:
        """Return the bound of each column's log evidence, (..., D) in nats."""
        return np.logaddexp(*self.weighted(*self.against_prior(eta)))

    def log_normalizer(self, eta: Array) -> Array:
        return self.of_columns(eta).sum(axis=-1) + self._of_prior.sum()

    def expectation(self, eta: Array) -> Array:
        chance = self.of_entries(self.indicators(eta))
        separate = self.join([self.families[0].expectation(self.split(eta)[0])])
        return chance * separate + (1.0 - chance) * self.common.reshape(-1)


@in_files("models.SparseDifferences")
@dataclass(frozen=True)
class SparseDifferences(Product):
    """A component of one block whose columns may have a common distribution, see the module."""

    # Natural parameters of q(psi), in the shape of the block's prior.
    common: Array = field(kw_only=True)
    # pi.
    share: float = field(kw_only=True)

    @classmethod
    def of(cls, component: Any, sums: Array) -> "SparseDifferences":
        """Return the component of which no column differs, given the sums (P,) of all rows."""
        D = component.n_features
        blocks = (Block("values", component, np.arange(D)),)
        common = component.natural_parameters(sums[None])[0]
        made = cls(blocks, D, component.dtype, common=common, share=_SHARE_OF_SEARCH)
        return replace(made, share=1.0 / (2.0 + made._n_columns))

    def validate(self, d: int, k: int) -> bool:
        return (
            len(self.blocks) == 1
            and type(self.differing) in _OF_COLUMNS
            and np.array_equal(self.blocks[0].columns, np.arange(d))
            and self.common.shape == self.differing.prior.shape
            and bool(np.isfinite(self.log_hyperprior))
        )

    @property
    def differing(self) -> Any:
        """The component whose columns may differ."""
        return self.blocks[0].component

    @cached_property
    def _n_columns(self) -> int:
        """Number of columns of parameters."""
        return int(self.family.indicators(self.prior).size)

    @cached_property
    def family(self) -> SpikeAndSlab:
        component = self.differing
        return SpikeAndSlab(
            ("values",), (component.family,), (component.prior.shape,),
            component.prior, component.family.expectation(self.common), self.share,
            component.sizes_of_columns,
        )  # fmt: skip

    @cached_property
    def log_hyperprior(self) -> float:
        """``log p(pi) - KL(q(psi) || H)`` in nats."""
        family, (a, b) = self.family, _BETA
        divergence = ((self.common - family.prior) * family.common).sum()
        divergence -= np.sum(self.differing.family.log_normalizer(self.common))
        divergence += np.sum(self.differing.family.log_normalizer(family.prior))
        of_share = (a - 1.0) * np.log(self.share) + (b - 1.0) * np.log1p(-self.share)
        return float(of_share - betaln(a, b) - divergence)

    @property
    def searching(self) -> "SparseDifferences":
        return replace(self, share=_SHARE_OF_SEARCH)

    # ------------------------------------------------------------------------------ evidence
    def log_evidence(self, sums: Array) -> Array:
        return ConjugateComponent.log_evidence(self, sums)

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        return ConjugateComponent.merge_gains(self, sums, a, b)

    def column_evidence(self, sums: Array) -> Array:
        return self._of_features(self.family.of_columns(self.natural_parameters(sums)))

    def _of_features(self, columns: Array) -> Array:
        """Append a zero to values (..., D) of columns if an exposure is another feature."""
        n_others = self.n_features - columns.shape[-1]
        return np.pad(columns, [*[(0, 0)] * (columns.ndim - 1), (0, n_others)])

    # --------------------------------------------------------------------------- predictions
    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities of products of mixtures, see the module."""
        return np.asarray(self.differing.log_predictive_mixed(X, *self._either(lam)))

    def _either(self, lam: Array) -> tuple[Array, Array, Array]:
        """Return separate parameters (K, *shape), common ones, and q(s_kd = 1) (K, D)."""
        return self.family.split(lam)[0], self.common, self.family.indicators(lam)

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        mixed = self.differing.mix_parameters(*self._either(lam))
        return np.asarray(self.differing.column_probabilities(mixed, column, X))

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        mixed = self.differing.mix_parameters(*self._either(lam))
        if mixed is None:
            return ConjugateComponent.imputed(self, X, lam, memberships)
        return np.asarray(self.differing.imputed(X, mixed, memberships))

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        separate, common = (
            self.differing.conditional_mean(X, values)
            for values in (self.family.split(lam)[0], self.common[None])
        )
        chances = self._of_features(self.family.indicators(lam))[:, None]
        return np.asarray(common + chances * (separate - common))

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        return self._of_either(
            lam, len(X), lambda values: self.differing.conditional_sample(X, values, rng), rng
        )

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        return self._of_either(
            lam, n_rows, lambda values: self.differing.sample(values, n_rows, rng), rng
        )

    def _of_either(
        self, lam: Array, n_rows: int, draw: Callable[[Array], Array], rng: np.random.Generator
    ) -> Array:
        """Draw the indicators of each row, then its values by ``draw(parameters)``."""
        chances = self._of_features(self.family.indicators(lam))
        differs = rng.random((n_rows, chances.size)) < chances
        return np.where(differs, draw(self.family.split(lam)[0]), draw(self.common))

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple[Any, Array]:
        chances = self.family.indicators(lam)
        random = rng.random(chances.shape)
        differs = self.family.of_entries(random) < self.family.of_entries(chances)
        component: Any
        component, known = super().drawn(lam, rng)
        common = super().drawn(self.common.reshape(1, -1), rng)[1]
        # the draws contain those of the common parameters
        return replace(component, share=1.0), np.where(differs, known, common)

    # -------------------------------------------------------------------------- descriptions
    def separate(self, lam: Array) -> NDArray[np.bool_]:
        """Return for each entry of ``lam`` whether its column probably differs."""
        return np.asarray(self.family.of_entries(self.family.indicators(lam)) > 0.5)

    def _more_probable(self, lam: Array) -> Array:
        """Return parameters (K, *shape), each of the more probable value of the indicator."""
        return self.family.split(np.where(self.separate(lam), lam, self.common.reshape(-1)))[0]

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        uncentred: tuple[Any, Array] = self.differing.uncentred(self._more_probable(lam))
        return uncentred

    def marginals(self, lam: Array) -> Any:
        return self.differing.marginals(self._more_probable(lam))

    def parts(self, lam: Array) -> dict[str, tuple[Any, Array]]:
        """Return no parts: the posterior is that of the block."""
        return {}


@in_files("models.SparseDifferencesLearner")
@dataclass(frozen=True)
class SparseDifferencesLearner:
    """Learns the common distribution, the share of differences, and the prior, unless fixed."""

    learner: PriorLearner | None

    def learned(self, component: SparseDifferences, sums: Array) -> SparseDifferences:
        """Return the component with a higher bound."""
        best, value = _with_common(component, sums)
        if self.learner is None:
            return best
        trial = _with_prior(best, self.learner, sums)
        of_base = float((sums * component.base).sum())
        after = float(trial.log_evidence(sums).sum()) - of_base + trial.log_hyperprior
        return trial if after > value else best

    def values(self, component: SparseDifferences) -> dict[str, Any]:
        """Return the learned values of the prior, and the share of columns that differ."""
        values = {} if self.learner is None else self.learner.values(component.differing)
        return values | {"share_of_differences": component.share}


def _with_common(component: SparseDifferences, sums: Array) -> tuple[SparseDifferences, float]:
    """Return the component with a better common distribution and share, and the bound in nats.

    The bound is that of the components, without their base measure. A share learned from components
    that do not differ would end every search. If no column differs, the share therefore begins with
    `_SHARE_OF_SEARCH`.
    """
    lam = component.natural_parameters(sums)
    lam = lam[np.any(lam != component.prior, axis=1)]
    differences, separate = component.family.against_prior(lam)
    best, value = component, -np.inf
    now, before = component, -np.inf
    for step in range(_MOST_STEPS):
        of_common, of_separate = now.family.weighted(differences, separate)
        after = float(np.logaddexp(of_common, of_separate).sum()) + now.log_hyperprior
        if after > value:
            best, value = now, after
        if step == 0 and np.all(of_separate < of_common):
            now = component.searching
            of_common, of_separate = now.family.weighted(differences, separate)
        elif after - before < _SMALLEST_GAIN:
            break
        else:
            before = after
        now = _updated(now, differences, expit(of_separate - of_common))
    return best, value


def _updated(component: SparseDifferences, differences: Array, chances: Array) -> SparseDifferences:
    """Return the component with the best common distribution and share for q(s) (K, D).

    ``differences`` (K, *shape) are the natural parameters less those of the prior.
    """
    family, (a, b) = component.family, _BETA
    shared = (family.of_entries(1.0 - chances).reshape(differences.shape) * differences).sum(axis=0)
    share = (a - 1.0 + chances.sum()) / (a + b - 2.0 + chances.size)
    return replace(component, common=component.differing.prior + shared, share=float(share))


def _with_prior(
    component: SparseDifferences, learner: PriorLearner, sums: Array
) -> SparseDifferences:
    """Return the component with a prior learned from the common and the separate parameters.

    A column without a separate parameter counts as one without rows, which does not change the
    evidence of the prior.
    """
    inner, family = component.differing, component.family
    lam = component.natural_parameters(sums)
    separate = np.where(component.separate(lam), lam - component.prior, 0.0)
    shared = component.common - inner.prior
    parts = np.concatenate([shared[None], family.split(separate)[0]])
    inner = learner.learned(inner, inner.unspread(parts))
    return replace(component.with_components([inner]), common=inner.prior + shared)


def with_sparse_differences(
    component: Any, learner: PriorLearner | None, sums: Array
) -> tuple[Any, PriorLearner | None]:
    """Return the component and its learner such that columns may have a common distribution.

    ``sums`` (P,) are those of the features of all rows. A likelihood whose columns are not
    independent given the component is returned unchanged.
    """
    if type(component) in _OF_COLUMNS:
        return SparseDifferences.of(component, sums), SparseDifferencesLearner(learner)
    if type(component) not in (Indicated, Logged):
        return component, learner
    learners = [learner.learner if type(learner) is ValuesLearner else learner, None]
    made = [
        with_sparse_differences(block.component, of_block, part)
        for block, of_block, part in zip(
            component.blocks, learners, component.split_by_block(sums), strict=True
        )
    ]
    component = component.with_components(changed for changed, _ in made)
    return component, ValuesLearner(made[0][1], made[1][1]) if any(m[1] for m in made) else None


def without_sparse_differences(component: Any) -> Any:
    """Return the component of which :func:`with_sparse_differences` has made this one."""
    if type(component) is SparseDifferences:
        return component.differing
    if type(component) not in (Indicated, Logged):
        return component
    return component.with_components(
        without_sparse_differences(block.component) for block in component.blocks
    )
