"""The Dirichlet family, and fits of its concentration.

:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betaln, logsumexp, polygamma, xlogy

from skvt._compiled import digamma_array as digamma
from skvt._compiled import gammaln_array as gammaln
from skvt.expfam._gamma import CERTAIN_COUNT, MIN_DRAW, log_standard_gamma
from skvt.typing import Array

# Range of learned concentrations. Outside this range, the functions that the fits maximise hardly
# depend on the concentration, and float32 is inaccurate.
_MIN_CONCENTRATION = 1e-4
_MAX_CONCENTRATION = 1e4
# Maximum number of steps of Newton's method.
_MAX_STEPS = 50
# Newton's method ends when a step changes each concentration by less than this share of itself, for
# the D concentrations of a Dirichlet and for the single concentration of a symmetric Dirichlet.
_TOLERANCE = 1e-6
_SYMMETRIC_TOLERANCE = 1e-8


class Dirichlet:
    """Dirichlet distribution of probabilities x (D,) of D events.

    The natural parameter ``eta`` is the concentration, and the sufficient statistic is
    ``t(x) = log x``. A member of the family is one vector eta (D,), and an array (..., D) holds
    several members. The methods up to :meth:`entropy` are the methods of every
    :class:`~skvt.expfam.Family`, except :meth:`concentrate_at`, which only some families have. The
    methods after :meth:`entropy` return moments of powers of x, or fit concentrations.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """Return ``A(eta) = sum_d log Gamma(eta_d) - log Gamma(sum_d eta_d)``, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        return gammaln(eta).sum(axis=-1) - gammaln(eta.sum(axis=-1))

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """Return ``E[log x_d] = digamma(eta_d) - digamma(sum eta)``, shape (..., D)."""
        eta = np.asarray(eta, dtype=np.float64)
        expected_log: Array = digamma(eta)
        expected_log -= digamma(eta.sum(axis=-1, keepdims=True))
        return expected_log

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """Draw x (..., D) for each member.

        A draw consists of D gamma variates, divided by their sum. The logarithms of the gamma
        variates are drawn, because at small concentrations all D gamma variates could underflow.
        """
        eta = np.asarray(eta, dtype=np.float64)
        log_gammas = log_standard_gamma(eta, rng)
        gammas = np.exp(log_gammas - log_gammas.max(axis=-1, keepdims=True))
        return np.maximum(gammas / gammas.sum(axis=-1, keepdims=True), MIN_DRAW)

    @staticmethod
    def concentrate_at(x: Array) -> Array:
        """Return natural parameters of members that are nearly certain of x, in the shape of x."""
        # With this total concentration, draws hardly vary around their mean x.
        return CERTAIN_COUNT * x

    @staticmethod
    def to_standard(eta: ArrayLike) -> dict[str, Array]:
        """Return the concentrations (..., D) by name."""
        return {"concentration": np.asarray(eta)}

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        """Return ``E[x_d] = eta_d / sum eta``, shape (..., D)."""
        eta = np.asarray(eta)
        return eta / eta.sum(axis=-1, keepdims=True)

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        """Return the variance of each x_d, shape (..., D)."""
        eta = np.asarray(eta, dtype=np.float64)
        mean = Dirichlet.mean(eta)
        return mean * (1.0 - mean) / (eta.sum(axis=-1, keepdims=True) + 1.0)

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Return the log density at ``x`` in nats, shape (...); -inf off the simplex."""
        eta, x = np.asarray(eta, dtype=np.float64), np.asarray(x, dtype=np.float64)
        is_legal = np.all(x >= 0.0, axis=-1) & np.isclose(x.sum(axis=-1), 1.0)
        log_density = xlogy(eta - 1.0, x).sum(axis=-1) - Dirichlet.log_normalizer(eta)
        return np.where(is_legal, log_density, -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        """Return the entropy in nats, shape (...)."""
        eta = np.asarray(eta, dtype=np.float64)
        inner_product = np.einsum("...d,...d->...", eta - 1.0, Dirichlet.expectation(eta))
        return Dirichlet.log_normalizer(eta) - inner_product

    @staticmethod
    def log_mean_power_sum(eta: ArrayLike, powers: Array) -> tuple[Array, Array]:
        """Return ``log E[sum_d x_d^b]`` and its derivative in b, (M,) each, for the M powers b.

        ``powers`` are in (0, 1], and eta is one member (D,).
        ``E[x_d^b] = [Gamma(eta_d + b) / Gamma(eta_d)] [Gamma(sum eta) / Gamma(sum eta + b)]``.
        """
        # Evaluate only distinct concentrations, so that a symmetric prior takes little time.
        distinct_eta, counts = np.unique(np.asarray(eta, dtype=np.float64), return_counts=True)
        total_eta = float(distinct_eta @ counts)
        log_mean, slope = np.empty((2, len(powers)))
        for m, b in enumerate(powers):
            # Gamma(a + b) / Gamma(a) = Gamma(b) / B(a, b), with the beta function B. The factors
            # Gamma(b) for a = eta_d and a = sum eta cancel. Differences of gammaln would lose the
            # digits of a large concentration.
            log_terms = np.log(counts) - betaln(distinct_eta, b)
            log_mean[m] = logsumexp(log_terms + betaln(total_eta, b))
            weights = np.exp(log_terms - logsumexp(log_terms))
            slope[m] = weights @ digamma(distinct_eta + b) - float(digamma(total_eta + b))
        return log_mean, slope

    @staticmethod
    def log_mean_powers(eta: ArrayLike, powers: Array) -> tuple[Array, Array]:
        """Return ``log E[x_d^b]`` of each event d and its derivative in b, (D, M) each.

        eta is one member (D,), and b are the M ``powers``.
        """
        eta = np.asarray(eta, dtype=np.float64)[:, None]
        total_eta = eta.sum()
        log_mean = betaln(total_eta, powers) - betaln(eta, powers)
        return log_mean, digamma(eta + powers) - digamma(total_eta + powers)

    @staticmethod
    def fit(eta: Array, mean_log: Array, *, max_iter: int = _MAX_STEPS) -> Array:
        """Return the concentrations (D,) of a Dirichlet with ``E[log x] = mean_log`` (D,).

        Newton's method maximises ``<eta, mean_log> - A(eta)``, starting from ``eta``. The Hessian
        is the sum of a diagonal matrix and a matrix of rank one, so that a step takes time O(D)
        [Minka00 sec. 1]. Long steps are shortened. Entries that would leave the range of learned
        concentrations are held at an end of the range. If there is a single event, ``eta`` is
        returned, because the event has probability 1 for any concentration.
        """
        eta, mean_log = np.array(eta, dtype=np.float64), np.asarray(mean_log, dtype=np.float64)
        if eta.size == 1:
            return eta
        for _ in range(max_iter):
            gradient = mean_log - Dirichlet.expectation(eta)
            is_held_below = (eta <= _MIN_CONCENTRATION) & (gradient < 0.0)
            is_held_above = (eta >= _MAX_CONCENTRATION) & (gradient > 0.0)
            # q, z and b are the symbols of [Minka00]: the Hessian is diag(q) plus z in all entries,
            # and b is an auxiliary number. The entry of q is -inf if eta is held, which makes its
            # step 0.
            q = np.where(is_held_below | is_held_above, -np.inf, -polygamma(1, eta))
            z = polygamma(1, eta.sum())
            b = (gradient / q).sum() / (1.0 / z + (1.0 / q).sum())  # [Minka00 eq. 18]
            step = -(gradient - b) / q
            # Shorten the step so that each entry changes by at most 1 - 1 / e of its present value.
            step_share = 1.0 / max(1.0, np.max(np.abs(step) / (eta * (1.0 - 1.0 / np.e))))
            new_eta = eta + step_share * step
            has_converged = np.max(np.abs(new_eta - eta) / eta) < _TOLERANCE
            eta = _clip_to_range(new_eta)
            if has_converged:
                break
        return eta

    @staticmethod
    def step_towards_counts(eta: Array, mean_log: Array, mean_digamma_total: float) -> Array:
        """Return the concentrations (D,) after a fixed-point step towards more probable counts.

        The counts n (D,) of events in a sequence of draws have a Polya distribution, also called
        Dirichlet-multinomial. ``mean_log`` (D,) is the mean of ``digamma(eta + n) -
        digamma(sum(eta + n))`` over the sequences, and ``mean_digamma_total`` is the mean of
        ``digamma(sum(eta + n))``.

        Expectation-maximisation, with :meth:`fit` in each step, would be slow if an event is never
        drawn: the inverse of its entry would grow only linearly with the number of steps.
        """
        numerator = mean_log + mean_digamma_total - digamma(eta)
        denominator = mean_digamma_total - float(digamma(eta.sum()))
        # Without draws, the denominator is 0 up to rounding errors, and eta stays.
        if denominator < 1e-12 * abs(mean_digamma_total):
            return eta
        # [Minka00 eq. 55]
        return _clip_to_range(eta * numerator / denominator)

    @staticmethod
    def fit_symmetric(eta: float, mean_log: float, n_events: int) -> float:
        """Return the concentration of a symmetric Dirichlet, by Newton's method in log eta.

        ``mean_log`` is the mean of ``E[log x_d]`` over the ``n_events`` entries d. The search
        starts from ``eta``.
        """
        eta = float(eta)
        for _ in range(_MAX_STEPS):
            slope = mean_log - float(digamma(eta)) + float(digamma(n_events * eta))
            second_derivative = float(n_events * polygamma(1, n_events * eta) - polygamma(1, eta))
            # First and second derivatives in log eta are eta * slope and curvature. Where the
            # objective is not concave in log eta, go uphill by a factor e.
            curvature = eta * slope + eta * eta * second_derivative
            step = -eta * slope / curvature if curvature < 0.0 else np.sign(slope)
            new_eta = _clip_to_range(eta * np.exp(np.clip(step, -1.0, 1.0)))
            has_converged = abs(new_eta / eta - 1.0) < _SYMMETRIC_TOLERANCE
            eta = new_eta
            if has_converged:
                break
        return eta

    @staticmethod
    def fit_symmetric_to_counts(eta: float, counts: Array, n_draws: Array, n_events: int) -> float:
        """Return the concentration of a symmetric Dirichlet that makes counts most probable.

        ``counts`` are all positive counts of events in K sequences of draws, in any order, and
        ``n_draws`` (K,) are the numbers of draws. With the probabilities of events integrated out,
        the counts of a sequence have a Polya distribution. The maximum of the likelihood is found
        by a search for the root of its gradient, because expectation-maximisation, with
        :meth:`fit_symmetric` in each step, is slow. ``eta`` is returned if the likelihood does not
        depend on the concentration, that is, for a single event, or without counts.
        """
        if n_events == 1 or not counts.size:
            return float(eta)
        values, multiplicities = np.unique(counts, return_counts=True)
        values, n_draws = values.astype(np.float64), np.asarray(n_draws, np.float64)

        def compute_gradient(log_eta: float) -> float:
            """Return the gradient of the log likelihood in eta, given log eta [Minka00 eq. 55]."""
            eta = float(np.exp(log_eta))
            event_term = multiplicities @ (digamma(values + eta) - digamma(eta))
            total_eta = n_events * eta
            total_term = (digamma(n_draws + total_eta) - digamma(total_eta)).sum()
            return float(event_term - n_events * total_term)

        # If the gradient has one sign in the whole range, the maximum is at an end of the range.
        min_log_eta, max_log_eta = np.log([_MIN_CONCENTRATION, _MAX_CONCENTRATION])
        if compute_gradient(min_log_eta) <= 0.0:
            return _MIN_CONCENTRATION
        if compute_gradient(max_log_eta) >= 0.0:
            return _MAX_CONCENTRATION
        # The tolerance 1e-8 of log eta is a relative error of eta.
        return float(np.exp(brentq(compute_gradient, min_log_eta, max_log_eta, xtol=1e-8)))


def _clip_to_range(eta: Any) -> Any:
    """Return concentrations in the range of learned concentrations that are nearest to ``eta``."""
    return np.clip(eta, _MIN_CONCENTRATION, _MAX_CONCENTRATION)
