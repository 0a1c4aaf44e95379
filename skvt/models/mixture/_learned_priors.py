"""Learning of the parameters of a mixture's priors, by maximisation of the bound.

At the best q, ``q_k = eta + S_k``, the bound depends on the prior eta of the components only
through their evidence,

    F(eta) = sum_k [A(eta + S_k) - A(eta)],      dF/deta = sum_k (E_{q_k}[t] - E_eta[t]),

so that at the maximum the expectations E_eta[t] of the prior are the averages of E_{q_k}[t] over
components. A step of EM maximises the bound at fixed q. For Dirichlets and the concentration of
sticks it is the fixed-point step of [Minka00 eq. 55], which also raises F. Steps are lengthened
while this raises F further: EM alone is slow if a prior counts for more rows than a component has.

The prior cannot be learned from one component: the best prior would be concentrated at this
component and make all other components improbable. :class:`~skvt.models.mixture._model.Mixture`
therefore learns only from two or more components. The ranges of parameters are limited for the
same reason: if few components happen to have similar means or covariances, a prior that is certain
of these would prevent births of different components. For Dirichlets, a conjugate prior of the
concentrations has the same purpose: it counts as ``PSEUDO_COMPONENTS`` further components with the
expectations under concentrations of 1. It only directs the steps. F does not include it, and steps
that lower F are not made.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.optimize import brentq

from skvt.compiled import digamma_array as digamma
from skvt.files import in_files
from skvt.models.mixture._weights import StickBreaking
from skvt.typing import Array

# Range of concentrations and of gamma shapes.
CONCENTRATION = (1e-3, 1e3)
# Number of components as which the conjugate prior of learned concentrations counts.
PSEUDO_COMPONENTS = 2.0
# Maximum number of steps in one call.
MOST_STEPS = 10
# Steps end if they gain less than this, in nats.
_SMALLEST_GAIN = 1e-2
# Largest factor by which a step of EM is lengthened.
_LONGEST = 16.0


class PriorLearner(Protocol):
    """Moves the prior of a component towards the maximum of the bound; immutable."""

    def learned(self, component: Any, sums: Array) -> Any:
        """Return the component with a prior of higher evidence, given statistics (K, P)."""

    def values(self, component: Any) -> dict[str, Any]:
        """Return learned values by the names of the parameters."""


class Ascent:
    """Base of learners that make lengthened steps of EM on unconstrained parameters x."""

    most_steps: int = MOST_STEPS

    def at(self, component: Any, x: Array) -> Any:
        """Return the component whose prior has these parameters, clipped to their range."""
        raise NotImplementedError

    def parameters(self, component: Any) -> Array:
        """Return the parameters x of the component's prior, a vector."""
        raise NotImplementedError

    def step(self, component: Any, sums: Array) -> Array:
        """Return the parameters after a step of EM."""
        raise NotImplementedError

    def informative(self, component: Any, sums: Array) -> Array:
        """Select the statistics (K', P) of the components over which steps of EM average."""
        return sums

    def log_density(self, component: Any) -> float:
        """Return the log density of the prior's parameters, up to a constant, in nats."""
        return 0.0

    def learned(self, component: Any, sums: Array) -> Any:
        followed = self.informative(component, sums)
        if len(followed) < min(2, len(sums)):
            return component

        return _ascend(
            component, lambda now: (self.parameters(now), self.step(now, followed)), self.at,
            lambda now: _evidence(now, sums) + self.log_density(now), self.most_steps,
        )  # fmt: skip


def _evidence(component: Any, sums: Array) -> float:
    """Return the evidence of components with these statistics (K, P), without base measure."""
    after = component.family.log_normalizer(component.natural_parameters(sums))
    return float(after.sum() - len(sums) * component.log_normalizer)


def _ascend(
    now: Any, step: Callable[[Any], tuple[Array, Array]], at: Callable[[Any, Array], Any],
    evidence: Callable[[Any], float], most_steps: int = MOST_STEPS,
) -> Any:  # fmt: skip
    """Return ``now`` after a few steps from x to x', lengthened while F rises; no step lowers F.

    ``step`` returns x and x', ``at`` the object with parameters x, and ``evidence`` F in nats.
    """
    value, length = evidence(now), 1.0
    for _ in range(most_steps):
        x, target = step(now)
        trial = at(now, x + length * (target - x))
        new = evidence(trial)
        if length > 1.0 and not new > value:
            length = 1.0
            trial = at(now, target)
            new = evidence(trial)
        if not new > value:
            break
        gain, now, value = new - value, trial, new
        if gain < _SMALLEST_GAIN:
            break
        length = min(2.0 * length, _LONGEST)
    return now


def within(log_value: float, limits: tuple[float, float]) -> float:
    """Return a logarithm clipped to the logarithms of the limits."""
    return float(np.clip(log_value, *np.log(limits)))


def _root(function: Callable[[float], float], limits: tuple[float, float]) -> float:
    """Return log x at which a decreasing function of log x is 0, or the nearer end of the range."""
    low, high = np.log(limits)
    if function(low) <= 0.0:
        return float(low)
    if function(high) >= 0.0:
        return float(high)
    return float(brentq(function, low, high, xtol=1e-12))


@in_files("models.DirichletLearner")
@dataclass(frozen=True)
class DirichletLearner(Ascent):
    """Learns the concentrations of Dirichlet priors, separately or one for all entries."""

    name: str
    # Number of entries of each Dirichlet; they follow each other in the flattened prior.
    sizes: tuple[int, ...]
    symmetric: bool = False
    # Number of steps at a time.
    most_steps: int = MOST_STEPS

    def values(self, component: Any) -> dict[str, Any]:
        """Return the concentrations in the shape of the prior, or a number if symmetric."""
        prior = component.prior.copy()
        return {self.name: float(prior.flat[0]) if self.symmetric else prior}

    def parameters(self, component: Any) -> Array:
        return np.log(component.prior).reshape(-1)

    def at(self, component: Any, x: Array) -> Any:
        """Return the component with these concentrations, clipped to their range."""
        prior = np.exp(np.clip(x, *np.log(CONCENTRATION)))
        return replace(component, prior=prior.reshape(component.prior.shape))

    def learned(self, component: Any, sums: Array) -> Any:
        after = super().learned(component, sums)
        return after if _evidence(after, sums) > _evidence(component, sums) else component

    def log_density(self, component: Any) -> float:
        """Return ``<alpha, E_1[log phi]> - A(alpha)`` of each pseudo-component, in nats."""
        at_one = component.family.expectation(np.ones_like(component.prior))
        of_one = float((component.prior * at_one).sum()) - component.log_normalizer
        return PSEUDO_COMPONENTS * of_one

    def step(self, component: Any, sums: Array) -> Array:
        """Return log concentrations after a fixed-point step, see [Minka00 eq. 55].

        The differences of digamma functions of pseudo-components are added to the numerator or, if
        negative, subtracted from the denominator, and vice versa, so that both stay positive.
        """
        alpha = component.prior.reshape(-1)
        counts = component.spread(sums).reshape(len(sums), -1)
        starts = np.cumsum(self.sizes, dtype=np.intp) - np.array(self.sizes, np.intp)
        totals = np.add.reduceat(counts, starts, axis=1)
        total = np.add.reduceat(alpha, starts)
        numerator = (digamma(counts + alpha) - digamma(alpha)).sum(axis=0)
        denominator = np.repeat((digamma(totals + total) - digamma(total)).sum(axis=0), self.sizes)
        sizes = np.array(self.sizes, np.float64)
        rise = PSEUDO_COMPONENTS * (digamma(np.ones(1)) - digamma(alpha))
        fall = np.repeat(PSEUDO_COMPONENTS * (digamma(sizes) - digamma(total)), self.sizes)
        numerator += np.maximum(rise, 0.0) + np.maximum(-fall, 0.0)
        denominator += np.maximum(fall, 0.0) + np.maximum(-rise, 0.0)
        if self.symmetric:
            numerator, denominator = (
                np.full_like(numerator, numerator.sum()),
                np.full_like(denominator, denominator.sum()),
            )
        # The concentrations of a column without values are kept.
        ratio = np.where(
            denominator > 0.0, numerator / np.where(denominator > 0.0, denominator, 1.0), 1.0
        )
        return np.log(np.maximum(alpha * ratio, 0.1 * CONCENTRATION[0]))


@in_files("models.GammaLearner")
@dataclass(frozen=True)
class GammaLearner(Ascent):
    """Learns the shape that gamma priors of rates share, and their rates."""

    # A subset of "shape_prior" and "rate_prior".
    names: frozenset[str]

    def values(self, component: Any) -> dict[str, Any]:
        """Return the shape, a number, and the rates (D,), as far as learned."""
        shape, rate = component.prior.T
        values = {"shape_prior": float(shape[0]), "rate_prior": rate.copy()}
        return {name: value for name, value in values.items() if name in self.names}

    def parameters(self, component: Any) -> Array:
        shape, rate = component.prior.T
        return np.log(np.append(shape[0], rate))

    def at(self, component: Any, x: Array) -> Any:
        shape, rate = component.prior.T
        if "shape_prior" in self.names:
            shape = np.full_like(shape, np.exp(within(x[0], CONCENTRATION)))
        if "rate_prior" in self.names:
            rate = np.exp(np.clip(x[1:], -100.0, 100.0))
        return replace(component, prior=np.stack([shape, rate], axis=1))

    def step(self, component: Any, sums: Array) -> Array:
        """Return log parameters that solve ``sum avg E[log tau] = sum (digamma(a) - log b)``.

        The sums are over columns, the averages over components, and ``b = a / avg E[tau]``.
        """
        t = component.family.expectation(component.natural_parameters(sums)).mean(axis=0)
        (mean_log, mean), (shape, rate) = (t[:, 0], -t[:, 1]), component.prior.T
        a = shape[0]
        if "shape_prior" in self.names:
            learns_rate = "rate_prior" in self.names

            def excess(log_a: float) -> float:
                log_rate = log_a - np.log(mean) if learns_rate else np.log(rate)
                return float((mean_log + log_rate - digamma(np.exp(log_a))).sum())

            a = np.exp(_root(excess, CONCENTRATION))
        rate = a / mean if "rate_prior" in self.names else rate
        return np.log(np.append(a, rate))


def with_learned_concentration(weights: Any, counts: Array) -> Any:
    """Return sticks with a concentration of higher evidence.

    Steps lead to the fixed point ``alpha = -K / sum_k E[log(1 - v_k)]``.
    """

    def step(now: StickBreaking) -> tuple[Array, Array]:
        lam = now.natural_parameters(counts)
        missing = digamma(lam.sum(axis=1)) - digamma(lam[:, 1])  # -E[log(1 - v_k)]
        target = np.log(counts.size / missing.sum())
        return np.log([now.concentration]), np.array([target])

    def at(now: StickBreaking, x: Array) -> StickBreaking:
        return replace(now, concentration=float(np.exp(within(x[0], CONCENTRATION))))

    def evidence(now: StickBreaking) -> float:
        return now.log_evidence(counts)

    return _ascend(weights, step, at, evidence)
