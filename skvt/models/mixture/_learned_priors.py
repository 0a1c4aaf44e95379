"""Learning of the parameters of a mixture's priors, by maximisation of the bound.

At the best q, ``q_k = eta + S_k``, the bound depends on the prior eta of the components only
through their evidence,

    F(eta) = sum_k [A(eta + S_k) - A(eta)],      dF/deta = sum_k (E_{q_k}[t] - E_eta[t]),

so that at the maximum the expectations E_eta[t] of the prior are the averages of E_{q_k}[t] over
components. A step of EM maximises the bound at fixed q. For Dirichlets and the concentration of
sticks, the fixed-point step of [Minka00 eq. 55] is used instead, which also raises F. A step is
lengthened as long as longer steps raise F, because plain steps are short if a prior counts as more
rows than a component has.

The prior cannot be learned from one component: the best prior would be concentrated at this
component and make all other components improbable. :class:`~skvt.models.mixture._model.Mixture`
therefore learns only from two or more components. The ranges of parameters are limited for the
same reason: if few components happen to have similar means or covariances, a prior concentrated at
these would prevent that different components are added. For Dirichlets, a conjugate prior of the
concentrations has the same purpose. This prior counts as ``PSEUDO_COMPONENTS`` further components
with the expectations under concentrations of 1. Steps raise F plus the log density of this prior,
and all steps of a call are undone if they lower F.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.optimize import brentq

from skvt._compiled import digamma_array as digamma
from skvt.expfam import DirichletColumns
from skvt.files import in_files
from skvt.models.mixture._weights import StickBreaking
from skvt.typing import Array

# Range of concentrations and of gamma shapes.
CONCENTRATION = (1e-3, 1e3)
# Number of components that the conjugate prior of learned concentrations counts as.
PSEUDO_COMPONENTS = 2.0
# Maximum number of steps in one call.
MAX_STEPS = 10
# Steps end when the gain of a step, in nats, is less than this.
_MIN_GAIN = 1e-2
# Largest factor by which a step is lengthened.
_MAX_LENGTH = 16.0


class PriorLearner(Protocol):
    """Learns the prior of a component by steps towards the maximum of the bound; immutable."""

    def learn_prior(self, component: Any, sums: Array) -> Any:
        """Return the component with a prior of higher evidence, given sums of features (K, P)."""

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned parameters of the component's prior by name."""

    def make_symmetric(self, component: Any) -> Any:
        """Return the component with the mean concentration in each learned Dirichlet prior."""


class Ascent:
    """Base of learners that make lengthened steps on unconstrained parameters x of the prior."""

    # Maximum number of steps in one call.
    most_steps: int = MAX_STEPS

    def with_parameters(self, component: Any, x: Array) -> Any:
        """Return the component whose prior has the parameters x, clipped to their range."""
        raise NotImplementedError

    def parameters(self, component: Any) -> Array:
        """Return the parameters x of the component's prior, a vector."""
        raise NotImplementedError

    def step(self, component: Any, sums: Array) -> Array:
        """Return the parameters x after a step, given sums of features (K', P)."""
        raise NotImplementedError

    def select_informative(self, component: Any, sums: Array) -> Array:
        """Return the sums of features (K', P) of those components over which steps average."""
        return sums

    def log_density(self, component: Any) -> float:
        """Return the log density of the prior's parameters, up to a constant, in nats."""
        return 0.0

    def make_symmetric(self, component: Any) -> Any:
        """Return the component as it is; see :class:`PriorLearner`."""
        return component

    def learn_prior(self, component: Any, sums: Array) -> Any:
        """Return the component with a prior of higher evidence; see :class:`PriorLearner`.

        The prior stays as it is if fewer than two of several components are informative.
        """
        informative = self.select_informative(component, sums)
        if len(informative) < min(2, len(sums)):
            return component
        return _ascend(
            component,
            lambda current: (self.parameters(current), self.step(current, informative)),
            self.with_parameters,
            lambda current: _log_evidence(current, sums) + self.log_density(current),
            self.most_steps,
        )


def _log_evidence(component: Any, sums: Array) -> float:
    """Return the log evidence of all rows, given sums of features (K, P), without base measure."""
    after = component.family.log_normalizer(component.natural_parameters(sums))
    return float(after.sum() - len(sums) * component.log_normalizer)


def _ascend(
    current: Any, step: Callable[[Any], tuple[Array, Array]],
    with_parameters: Callable[[Any, Array], Any], objective: Callable[[Any], float],
    most_steps: int = MAX_STEPS,
) -> Any:  # fmt: skip
    """Return the object ``current`` after at most ``most_steps`` steps, which raise F.

    ``step(current)`` returns the present parameters x and the target of a step. After each step
    that has raised F, the next step is made twice as long. ``with_parameters(current, x)`` returns
    the object with parameters x, and ``objective(current)`` returns F in nats.
    """
    value, length = objective(current), 1.0
    for _ in range(most_steps):
        x, target = step(current)
        trial = with_parameters(current, x + length * (target - x))
        trial_value = objective(trial)
        # Shorten a lengthened step that does not raise F.
        if length > 1.0 and not trial_value > value:
            length = 1.0
            trial = with_parameters(current, target)
            trial_value = objective(trial)
        if not trial_value > value:
            break
        gain, current, value = trial_value - value, trial, trial_value
        if gain < _MIN_GAIN:
            break
        length = min(2.0 * length, _MAX_LENGTH)
    return current


def clip_log(log_value: float, limits: tuple[float, float]) -> float:
    """Return the logarithm ``log_value``, clipped to the logarithms of the limits."""
    return float(np.clip(log_value, *np.log(limits)))


def _find_root(function: Callable[[float], float], limits: tuple[float, float]) -> float:
    """Return log x at which a decreasing function of log x is 0, or the nearer end of the range.

    ``limits`` are the ends of the range of x.
    """
    low, high = np.log(limits)
    if function(low) <= 0.0:
        return float(low)
    if function(high) >= 0.0:
        return float(high)
    return float(brentq(function, low, high, xtol=1e-12))


@in_files("models.DirichletLearner")
@dataclass(frozen=True)
class DirichletLearner(Ascent):
    """Learns the concentrations of Dirichlet priors."""

    # Name of the parameter in descriptions.
    name: str
    # Number of entries of each Dirichlet. The flattened prior has one Dirichlet after the other.
    sizes: tuple[int, ...]
    # Whether all entries have the same concentration.
    symmetric: bool = False
    # Maximum number of steps in one call.
    most_steps: int = MAX_STEPS

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the concentrations in the shape of the prior, or a number if symmetric."""
        prior = component.prior.copy()
        return {self.name: float(prior.flat[0]) if self.symmetric else prior}

    def parameters(self, component: Any) -> Array:
        return np.log(component.prior).reshape(-1)

    def with_parameters(self, component: Any, x: Array) -> Any:
        """Return the component with these concentrations, clipped to their range."""
        prior = np.exp(np.clip(x, *np.log(CONCENTRATION)))
        return replace(component, prior=prior.reshape(component.prior.shape))

    def make_symmetric(self, component: Any) -> Any:
        sizes = np.array(self.sizes, np.intp)
        totals = np.add.reduceat(component.prior.ravel(), np.cumsum(sizes) - sizes)
        return self.with_parameters(component, np.repeat(np.log(totals / sizes), sizes))

    def learn_prior(self, component: Any, sums: Array) -> Any:
        # The steps raise F plus the log density. Undo them if they lower F itself.
        after = super().learn_prior(component, sums)
        return after if _log_evidence(after, sums) > _log_evidence(component, sums) else component

    def log_density(self, component: Any) -> float:
        """Return the sum of ``<alpha, E_1[log phi]> - A(alpha)`` over pseudo-components, in nats.

        E_1 is the expectation under concentrations of 1.
        """
        mean_log = component.family.expectation(np.ones_like(component.prior))
        log_density = float((component.prior * mean_log).sum()) - component.log_normalizer
        return PSEUDO_COMPONENTS * log_density

    def step(self, component: Any, sums: Array) -> Array:
        """Return log concentrations after a fixed-point step [Minka00 eq. 55].

        A step multiplies each concentration by the ratio of two sums over components. Both sums
        have a further term for the pseudo-components. A negative term of one sum is subtracted from
        the other sum, so that both sums stay positive.
        """
        alpha = component.prior.reshape(-1)
        counts = component.natural_sums(sums).reshape(len(sums), -1)
        dirichlets = DirichletColumns(self.sizes)
        counts_sum, alpha_sum = dirichlets.sum_categories(counts), dirichlets.sum_categories(alpha)
        numerator = (digamma(counts + alpha) - digamma(alpha)).sum(axis=0)
        denominator = (digamma(counts_sum + alpha_sum) - digamma(alpha_sum)).sum(axis=0)
        denominator = np.repeat(denominator, self.sizes)
        # Add the pseudo-components.
        sizes = np.array(self.sizes, np.float64)
        to_numerator = PSEUDO_COMPONENTS * (digamma(np.ones(1)) - digamma(alpha))
        to_denominator = PSEUDO_COMPONENTS * (digamma(sizes) - digamma(alpha_sum))
        to_denominator = np.repeat(to_denominator, self.sizes)
        numerator += np.maximum(to_numerator, 0.0) + np.maximum(-to_denominator, 0.0)
        denominator += np.maximum(to_denominator, 0.0) + np.maximum(-to_numerator, 0.0)
        if self.symmetric:
            numerator = np.full_like(numerator, numerator.sum())
            denominator = np.full_like(denominator, denominator.sum())
        # The concentrations of a column without values stay as they are.
        has_values = denominator > 0.0
        ratio = np.where(has_values, numerator / np.where(has_values, denominator, 1.0), 1.0)
        return np.log(np.maximum(alpha * ratio, 0.1 * CONCENTRATION[0]))


@in_files("models.GammaLearner")
@dataclass(frozen=True)
class GammaLearner(Ascent):
    """Learns the shape that the gamma priors of all columns share, and the rate of each column."""

    # A subset of "shape_prior" and "rate_prior".
    names: frozenset[str]

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned parameters: the shape is a number, and the rates are (D,)."""
        shape, rate = component.prior.T
        values = {"shape_prior": float(shape[0]), "rate_prior": rate.copy()}
        return {name: value for name, value in values.items() if name in self.names}

    def parameters(self, component: Any) -> Array:
        shape, rate = component.prior.T
        return np.log(np.append(shape[0], rate))

    def with_parameters(self, component: Any, x: Array) -> Any:
        shape, rate = component.prior.T
        if "shape_prior" in self.names:
            shape = np.full_like(shape, np.exp(clip_log(x[0], CONCENTRATION)))
        if "rate_prior" in self.names:
            rate = np.exp(np.clip(x[1:], -100.0, 100.0))
        return replace(component, prior=np.stack([shape, rate], axis=1))

    def step(self, component: Any, sums: Array) -> Array:
        """Return log(shape, rates) that maximise the bound at fixed q.

        The shape a solves ``sum avg E[log tau] = sum (digamma(a) - log b)`` and the rates are ``b =
        a / avg E[tau]``, with sums over columns and averages over components. If the rates are not
        learned, b are the rates of the prior.
        """
        t = component.family.expectation(component.natural_parameters(sums)).mean(axis=0)
        mean_log, mean = t[:, 0], -t[:, 1]
        shape, rate = component.prior.T
        a = shape[0]
        if "shape_prior" in self.names:
            learns_rate = "rate_prior" in self.names

            def excess(log_a: float) -> float:
                log_rate = log_a - np.log(mean) if learns_rate else np.log(rate)
                return float((mean_log + log_rate - digamma(np.exp(log_a))).sum())

            a = np.exp(_find_root(excess, CONCENTRATION))
        rate = a / mean if "rate_prior" in self.names else rate
        return np.log(np.append(a, rate))


def with_learned_concentration(weights: Any, counts: Array) -> Any:
    """Return the sticks ``weights`` with a concentration alpha of higher evidence.

    ``counts`` (K,) are the counts of the components. Steps lead to the fixed point ``alpha = -K /
    sum_k E[log(1 - v_k)]``.
    """

    def step(current: StickBreaking) -> tuple[Array, Array]:
        lam = current.natural_parameters(counts)
        # Expectations of -log(1 - v_k).
        minus_log_remainders = digamma(lam.sum(axis=1)) - digamma(lam[:, 1])
        target = np.log(counts.size / minus_log_remainders.sum())
        return np.log([current.concentration]), np.array([target])

    def with_parameters(current: StickBreaking, x: Array) -> StickBreaking:
        return replace(current, concentration=float(np.exp(clip_log(x[0], CONCENTRATION))))

    def objective(current: StickBreaking) -> float:
        return current.log_evidence(counts)

    return _ascend(weights, step, with_parameters, objective)
