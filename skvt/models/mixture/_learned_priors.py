"""Learning of the parameters of a mixture's priors, by maximisation of the bound.

Let eta be the natural parameters of the components' prior, A their log normalizer, t the sufficient
statistics, and S_k the sums of the statistics over the rows of component k. At the best q, whose
natural parameters are eta + S_k, the bound depends on eta only through the evidence of the
components,

    F(eta) = sum_k [A(eta + S_k) - A(eta)],      dF/deta = sum_k (E_{q_k}[t] - E_eta[t]),

so that at the maximum the expectations E_eta[t] of the prior are the averages of E_{q_k}[t] over
components. A step of expectation maximisation (EM) maximises the bound at fixed q. For Dirichlets
and the concentration of sticks, the fixed-point step of [Minka00 eq. 55] is used instead, which
also raises F. A step is lengthened as long as longer steps raise F, because plain steps are short
if a prior counts as more rows than a component has.

The prior cannot be learned from one component: the best prior would be concentrated at this
component and make all other components improbable. :class:`~skvt.models.mixture._model.Mixture`
therefore learns only from two or more components. The ranges of parameters are limited for the
same reason: if few components happen to have similar means or covariances, a prior concentrated at
these values would make different components improbable.

For Dirichlets, a conjugate prior of the concentrations has the same purpose. It counts as
``N_PSEUDO_COMPONENTS`` further components whose expectations are those under concentrations of 1.
Steps raise the sum of F and the log density of this prior. If the steps of a call lower F itself,
all of them are undone.
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

# Smallest and largest value of concentrations and of gamma shapes.
_CONCENTRATION_LIMITS = (1e-3, 1e3)
# Smallest and largest logarithm of rates, so that rates neither overflow nor become 0.
_LOG_RATE_LIMITS = (-100.0, 100.0)
# Number of components that the conjugate prior of learned concentrations counts as.
N_PSEUDO_COMPONENTS = 2.0
# Maximum number of steps in one call.
MAX_STEPS = 10
# Steps end when the gain of a step, in nats, is less than this.
_MIN_GAIN = 1e-2
# Largest factor by which a step is lengthened.
_MAX_STEP_LENGTH = 16.0


class PriorLearner(Protocol):
    """An immutable object that learns a component's prior by steps that raise the bound.

    The methods do not change the component, but return a new one.
    """

    def learn_prior(self, component: Any, sums: Array) -> Any:
        """Return the component with a prior of higher evidence, given sums of features (K, P)."""

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned parameters of the component's prior by name."""

    def make_symmetric(self, component: Any) -> Any:
        """Return the component whose learned Dirichlets have equal concentrations of equal sum."""


class Ascent:
    """Base of learners that make lengthened steps on unconstrained parameters x of the prior.

    Subclasses define `with_parameters`, `parameters` and `step`. The method `learn_prior` calls
    them, and `select_informative` and `log_density`.
    """

    # Maximum number of steps in one call of `learn_prior`.
    most_steps: int = MAX_STEPS

    def with_parameters(self, component: Any, x: Array) -> Any:
        """Return the component whose prior has the parameters x, clipped to their range."""
        raise NotImplementedError

    def parameters(self, component: Any) -> Array:
        """Return the parameters x of the component's prior, a vector."""
        raise NotImplementedError

    def step(self, component: Any, sums: Array) -> Array:
        """Return the parameters x after a step, given sums of features (K', P).

        The rows of ``sums`` are those that :meth:`select_informative` returns.
        """
        raise NotImplementedError

    def select_informative(self, component: Any, sums: Array) -> Array:
        """Return the sums of features (K', P) of those components over which a step averages."""
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
        informative_sums = self.select_informative(component, sums)
        if len(informative_sums) < min(2, len(sums)):
            return component
        return _take_steps(
            component,
            lambda current: (self.parameters(current), self.step(current, informative_sums)),
            self.with_parameters,
            lambda current: _compute_log_evidence(current, sums) + self.log_density(current),
            self.most_steps,
        )


class PenalizedAscent(Ascent):
    """Base of learners whose steps raise the sum of F and `log_density`."""

    def learn_prior(self, component: Any, sums: Array) -> Any:
        """Return the component with a prior of higher evidence; see :class:`PriorLearner`."""
        # The steps raise F plus the log density. Undo them if they lower F itself.
        improved = super().learn_prior(component, sums)
        evidence, old_evidence = (_compute_log_evidence(c, sums) for c in (improved, component))
        return improved if evidence > old_evidence else component


def _compute_log_evidence(component: Any, sums: Array) -> float:
    """Return the log evidence F of components with ``sums`` of features (K, P), in nats.

    The base measure is left out.
    """
    log_normalizers = component.family.log_normalizer(component.natural_parameters(sums))
    return float(log_normalizers.sum() - len(sums) * component.log_normalizer)


def _take_steps(
    current: Any, step: Callable[[Any], tuple[Array, Array]],
    with_parameters: Callable[[Any, Array], Any], objective: Callable[[Any], float],
    most_steps: int = MAX_STEPS,
) -> Any:  # fmt: skip
    """Return the object ``current`` after at most ``most_steps`` steps, which raise F.

    ``step(current)`` returns the present parameters x and the target of a step. After each step
    that has raised F, the next step is made twice as long. ``with_parameters(current, x)`` returns
    the object with parameters x, and ``objective(current)`` returns F in nats.
    """
    F, step_length = objective(current), 1.0
    for _ in range(most_steps):
        x, target = step(current)
        trial = with_parameters(current, x + step_length * (target - x))
        trial_F = objective(trial)
        # Replace a lengthened step that does not raise F by the plain step. ``not trial_F > F`` is
        # also true if the value is NaN.
        if step_length > 1.0 and not trial_F > F:
            step_length = 1.0
            trial = with_parameters(current, target)
            trial_F = objective(trial)
        if not trial_F > F:
            break
        gain, current, F = trial_F - F, trial, trial_F
        if gain < _MIN_GAIN:
            break
        step_length = min(2.0 * step_length, _MAX_STEP_LENGTH)
    return current


def clip_log(log_value: float, limits: tuple[float, float]) -> float:
    """Return the logarithm ``log_value``, clipped to the logarithms of the limits."""
    return float(np.clip(log_value, *np.log(limits)))


def _find_root(function: Callable[[float], float], limits: tuple[float, float]) -> float:
    """Return log x at which a decreasing function of log x is 0.

    If there is no such x between the two ``limits``, the result is the log of the nearer limit.
    """
    low, high = np.log(limits)
    if function(low) <= 0.0:
        return float(low)
    if function(high) >= 0.0:
        return float(high)
    return float(brentq(function, low, high, xtol=1e-12))


@in_files("models.DirichletLearner")
@dataclass(frozen=True)
class DirichletLearner(PenalizedAscent):
    """Learns the concentrations of Dirichlet priors."""

    # Name of the learned parameter, under which `learned_values` returns it.
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
        """Return the component with the log concentrations x, clipped to their range."""
        prior = np.exp(np.clip(x, *np.log(_CONCENTRATION_LIMITS)))
        return replace(component, prior=prior.reshape(component.prior.shape))

    def make_symmetric(self, component: Any) -> Any:
        """Return the component with the mean concentration in each Dirichlet."""
        sizes = np.array(self.sizes, np.intp)
        # Sum the entries of each Dirichlet, from its first position on.
        totals = np.add.reduceat(component.prior.ravel(), np.cumsum(sizes) - sizes)
        return self.with_parameters(component, np.repeat(np.log(totals / sizes), sizes))

    def log_density(self, component: Any) -> float:
        """Return the sum of ``<alpha, E_1[log phi]> - A(alpha)`` over pseudo-components, in nats.

        Here alpha are the concentrations, phi are the probabilities that the Dirichlet describes,
        and E_1 is the expectation under concentrations of 1.
        """
        mean_log = component.family.expectation(np.ones_like(component.prior))
        log_density = float((component.prior * mean_log).sum()) - component.log_normalizer
        return N_PSEUDO_COMPONENTS * log_density

    def step(self, component: Any, sums: Array) -> Array:
        """Return log concentrations after a fixed-point step [Minka00 eq. 55].

        A step multiplies each concentration by the ratio of two sums over components. Both sums
        have a further term for the pseudo-components. So that both sums stay positive, the absolute
        value of a negative term is added to the other sum instead.
        """
        alpha = component.prior.reshape(-1)
        counts = component.natural_sums(sums).reshape(len(sums), -1)
        dirichlets = DirichletColumns(self.sizes)
        counts_sum, alpha_sum = dirichlets.sum_categories(counts), dirichlets.sum_categories(alpha)
        numerator = (digamma(counts + alpha) - digamma(alpha)).sum(axis=0)
        denominator = (digamma(counts_sum + alpha_sum) - digamma(alpha_sum)).sum(axis=0)
        denominator = np.repeat(denominator, self.sizes)
        # Add the pseudo-components, for which E_1[log phi] is digamma(1) - digamma(size).
        sizes = np.array(self.sizes, np.float64)
        numerator_term = N_PSEUDO_COMPONENTS * (digamma(np.ones(1)) - digamma(alpha))
        denominator_term = N_PSEUDO_COMPONENTS * (digamma(sizes) - digamma(alpha_sum))
        denominator_term = np.repeat(denominator_term, self.sizes)
        numerator += np.maximum(numerator_term, 0.0) + np.maximum(-denominator_term, 0.0)
        denominator += np.maximum(denominator_term, 0.0) + np.maximum(-numerator_term, 0.0)
        if self.symmetric:
            numerator = np.full_like(numerator, numerator.sum())
            denominator = np.full_like(denominator, denominator.sum())
        # The concentrations of a column without values stay as they are.
        has_values = denominator > 0.0
        ratio = np.where(has_values, numerator / np.where(has_values, denominator, 1.0), 1.0)
        # A limit keeps the logarithm finite. It is below the range to which results are clipped.
        min_concentration, _ = _CONCENTRATION_LIMITS
        return np.log(np.maximum(alpha * ratio, 0.1 * min_concentration))


@in_files("models.GammaLearner")
@dataclass(frozen=True)
class GammaLearner(Ascent):
    """Learns gamma priors: the shape, which all columns share, and the rate of each column."""

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
        """Return the component with the parameters x = (log shape, log rates), clipped."""
        log_shape, log_rate = x[0], x[1:]
        shape, rate = component.prior.T
        if "shape_prior" in self.names:
            shape = np.full_like(shape, np.exp(clip_log(log_shape, _CONCENTRATION_LIMITS)))
        if "rate_prior" in self.names:
            rate = np.exp(np.clip(log_rate, *_LOG_RATE_LIMITS))
        return replace(component, prior=np.stack([shape, rate], axis=1))

    def step(self, component: Any, sums: Array) -> Array:
        """Return log(shape, rates) that maximise the bound at fixed q.

        Let tau be the gamma variable of a column. The shape a solves ``sum avg E[log tau] = sum
        (digamma(a) - log b)`` and the rates are ``b = a / avg E[tau]``, with sums over columns and
        averages over components. If the rates are not learned, b are the rates of the prior.
        """
        # The statistics of a column are (log tau, -tau).
        t = component.family.expectation(component.natural_parameters(sums)).mean(axis=0)
        mean_log, mean = t[:, 0], -t[:, 1]
        shape, rate = component.prior.T
        a = shape[0]
        if "shape_prior" in self.names:
            learns_rate = "rate_prior" in self.names

            def excess(log_a: float) -> float:
                """Return the left side of the equation for the shape minus the right side."""
                log_rate = log_a - np.log(mean) if learns_rate else np.log(rate)
                return float((mean_log + log_rate - digamma(np.exp(log_a))).sum())

            a = np.exp(_find_root(excess, _CONCENTRATION_LIMITS))
        rate = a / mean if "rate_prior" in self.names else rate
        return np.log(np.append(a, rate))


def with_learned_concentration(weights: Any, counts: Array) -> Any:
    """Return the ``weights``, which are sticks v_k, with a concentration alpha of higher evidence.

    ``counts`` (K,) are the counts of the components. Steps lead to the fixed point ``alpha = -K /
    sum_k E[log(1 - v_k)]``.
    """

    def step(current: StickBreaking) -> tuple[Array, Array]:
        """Return the present log alpha and the target of a step."""
        a, b = current.natural_parameters(counts).T
        # Expectations of -log(1 - v_k) under Beta(a, b).
        minus_log_remainders = digamma(a + b) - digamma(b)
        target = np.log(counts.size / minus_log_remainders.sum())
        return np.log([current.concentration]), np.array([target])

    def with_parameters(current: StickBreaking, x: Array) -> StickBreaking:
        log_concentration = clip_log(x[0], _CONCENTRATION_LIMITS)
        return replace(current, concentration=float(np.exp(log_concentration)))

    def objective(current: StickBreaking) -> float:
        return current.log_evidence(counts)

    return _take_steps(weights, step, with_parameters, objective)
