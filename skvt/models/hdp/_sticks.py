"""The weights of topics: sticks, and their bound given the usage of topics by documents.

    u_k ~ Beta(1, gamma),  beta_k = u_k prod_{l<k} (1 - u_l),  beta_rest = prod_{l<=K} (1 - u_l)
    pi_d ~ Dir(alpha beta_1, ..., alpha beta_K, alpha beta_rest)

with q(u_k) = Beta(a_k, b_k). In the bound of :class:`~skvt.models.hdp.HDP`, documents with N_dk
tokens of topic k appear only in sums, the *usage* of each topic, so that the best q(u) is a
function of additive statistics.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln, psi

from skvt.files import PRIOR, in_files
from skvt.models.hdp._kernels import (
    LARGEST_LOGIT,
    SMALLEST_LOG_SIZE,
    climb_sticks,
    stick_bound,
    stick_divergence,
    write_gradient,
    write_start,
)
from skvt.typing import Array

# Columns of the usage (K, 5), sums over documents d weighted by w_d; IN_USE counts the documents
# that have the topic. All columns of a topic that is not yet seen are 0.
SLOPE, TRACES, IN_USE, DOCUMENTS, LENGTH = range(5)
N_COLUMNS = 5

# Newton's method has converged if no entry of the scaled gradient is larger.
_SMALLEST_GRADIENT = 1e-4
# Newton's method has failed if an entry of the scaled gradient is larger; L-BFGS follows.
_FLAT = 1e-2
# Maximum number of evaluations by L-BFGS.
_MOST_STEPS = 500
# Maximum number of Newton steps.
_NEWTON = 20
# Number of Newton steps after convergence.
_POLISH = 2
# Maximum number of conjugate gradient steps in a Newton step.
_CONJUGATE = 25
# Length of finite differences.
_DIFFERENCE = 1e-4
# Smallest weight, so that the logarithm of a product of sticks is finite.
_TINY = 1e-300
_SMALLEST = np.array([[-LARGEST_LOGIT], [SMALLEST_LOG_SIZE]])


def expected_weights(sticks: Array) -> Array:
    """Return ``E[beta_k]``, and last E[beta_rest], (K + 1,), under q(u_k) = Beta(sticks_k)."""
    share = sticks[:, 0] / sticks.sum(axis=1)
    rest = sticks[:, 1] / sticks.sum(axis=1)
    remaining = np.concatenate([[1.0], np.cumprod(rest)])
    return np.maximum(np.append(share, 1.0) * remaining, _TINY)


def _expected_logs(sticks: Array) -> tuple[Array, Array]:
    """Return ``E[log u_k]`` and ``E[log(1 - u_k)]``, (K,) each."""
    log_sum = psi(sticks.sum(axis=1))
    return psi(sticks[:, 0]) - log_sum, psi(sticks[:, 1]) - log_sum


def totals(usage: Array) -> tuple[float, float]:
    """Return the number of documents D and the sum of LENGTH, which all topics share."""
    return float(usage[:, DOCUMENTS].max()), float(usage[:, LENGTH].max())


def usage_of_one(usage: Array) -> Array:
    """Estimate the usage (5,) of the union of topics (n, 5) without their documents.

    If n_a and n_b of D documents have topics a and b, ``n_a n_b / D`` have both by chance. There,
    psi of the sum of both theta is at least ``log(exp(psi_a) + exp(psi_b))``, since exp(psi) is
    convex, and 0 at 0.
    """
    one = usage[0].copy()
    for other in usage[1:]:
        n_documents = max(one[DOCUMENTS], other[DOCUMENTS])
        if one[IN_USE] > 0.0 and other[IN_USE] > 0.0:
            both = one[IN_USE] * other[IN_USE] / n_documents
            psi_one, psi_other = one[SLOPE] / one[IN_USE], other[SLOPE] / other[IN_USE]
            one[SLOPE] += both * (np.logaddexp(psi_one, psi_other) - psi_one - psi_other)
            one[IN_USE] -= both
        one[[SLOPE, TRACES, IN_USE]] += other[[SLOPE, TRACES, IN_USE]]
        one[DOCUMENTS], one[LENGTH] = n_documents, max(one[LENGTH], other[LENGTH])
    return one


@in_files("models.Sticks")
@dataclass(frozen=True)
class Sticks:
    """The prior of the weights, and the concentration of document proportions around them."""

    # gamma.
    concentration: Annotated[float, PRIOR]
    # alpha.
    doc_concentration: Annotated[float, PRIOR]

    def prior(self) -> Array:
        return np.array([[1.0, self.concentration]])

    def log_normalizer_bound(self, sticks: Array) -> float:
        """Return a lower bound of ``E[log c_D(alpha beta)]`` of one document in nats.

        ``log c_D(alpha beta) >= K log alpha + sum_{k <= K+1} log beta_k`` for every alpha, the last
        sum being ``sum_k [log u_k + (K + 1 - k) log(1 - u_k)]``; see doc/guide/memoized_hdp.md.
        """
        log_u, log_rest = _expected_logs(sticks)
        n = len(sticks)
        later = np.arange(n, 0, -1)
        return float(n * np.log(self.doc_concentration) + log_u.sum() + later @ log_rest)

    def document_terms(self, sticks: Array, usage: Array) -> float:
        """Return the part of the documents' bound that depends on the weights, in nats.

        ``D E[log c_D] - sum_d log Gamma(alpha + N_d) + sum_dk log Gamma(alpha E[beta_k] + N_dk)``,
        up to a constant, where the last two terms are bounded by tangents at the documents' last
        local steps.
        """
        alpha = self.doc_concentration
        n_documents, length = totals(usage)
        c = alpha * expected_weights(sticks)
        of_topics = c[:-1] @ usage[:, SLOPE] + usage[:, TRACES] @ psi(c[:-1])
        without = np.append(n_documents - usage[:, IN_USE], n_documents)
        return float(
            n_documents * self.log_normalizer_bound(sticks)
            + of_topics
            + without @ gammaln(c)
            - alpha * length
            - n_documents * gammaln(alpha)
        )

    def bound(self, sticks: Array, usage: Array) -> float:
        """Return :meth:`document_terms` less KL(q(u) || p(u)), in nats."""
        divergence = stick_divergence(np.ascontiguousarray(sticks), self.concentration)
        return self.document_terms(sticks, usage) - float(divergence)

    def best(self, usage: Array) -> Array:
        """Return the q(u) that maximises :meth:`bound`, (K, 2), a function of the usage alone."""
        usage = np.ascontiguousarray(usage, np.float64)
        return np.array(_best(usage.tobytes(), len(usage), self))

    def best_bound(self, usage: Array) -> float:
        """Return the maximum of :meth:`bound`."""
        return self.bound(self.best(usage), usage)

    def near_bound(self, usage: Array) -> float:
        """Return :meth:`bound` near its maximum, which costs much less."""
        problem = _Problem.of(self, usage)
        return self.bound(problem.sticks(problem.start()), usage)

    # --------------------------------------------------------------------------- learned
    def with_learned(
        self, usage: Array, *, concentration: bool, doc_concentration: bool
    ) -> "Sticks":
        """Return the concentrations that maximise the bound given q(u)."""
        sticks = self.best(usage)
        gamma, alpha = self.concentration, self.doc_concentration
        if concentration:
            _, log_rest = _expected_logs(sticks)
            gamma = float(np.clip(-len(sticks) / log_rest.sum(), *_LEARNED_RANGE))
        if doc_concentration:
            alpha = self._best_doc_concentration(sticks, usage)
        return Sticks(gamma, alpha)

    def _best_doc_concentration(self, sticks: Array, usage: Array) -> float:
        """Return alpha by a search that starts at the current value."""

        def loss(log_alpha: Array) -> float:
            law = Sticks(self.concentration, float(np.exp(log_alpha[0])))
            return -law.document_terms(sticks, usage)

        start = np.log([self.doc_concentration])
        bounds = [(start[0] - 1.0, start[0] + 1.0)]
        optimum = minimize(loss, start, method="L-BFGS-B", bounds=bounds)
        alpha = float(np.clip(np.exp(optimum.x[0]), *_LEARNED_RANGE))
        return alpha if optimum.fun <= loss(start) else self.doc_concentration


# Learned concentrations are clipped to this range.
_LEARNED_RANGE = 1e-3, 1e3


@lru_cache(maxsize=64)
def _best(usage_bytes: bytes, n_topics: int, law: Sticks) -> Array:
    """Return and cache the result of :meth:`Sticks.best`."""
    # Copy the array, since numba compiles anew for one that is not writeable.
    usage = np.frombuffer(usage_bytes).reshape(n_topics, N_COLUMNS).copy()
    problem = _Problem.of(law, usage)
    x, gradient = problem.climbed(problem.start())
    if not gradient <= _FLAT:
        optimum = minimize(
            problem.loss, x, jac=True, method="L-BFGS-B",
            options={"maxfun": _MOST_STEPS, "maxiter": _MOST_STEPS, "ftol": 1e-13,
                     "gtol": _SMALLEST_GRADIENT, "maxcor": 20},
        )  # fmt: skip
        x, _ = problem.climbed(optimum.x)
    best = problem.sticks(x)
    best.flags.writeable = False
    return best


@dataclass(frozen=True)
class _Problem:
    """The search for q(u) in logits of E[u_k] and log(a_k + b_k), scaled by their curvature."""

    # Usage, number of documents, alpha and gamma.
    given: tuple[Array, float, float, float]
    scale: Array

    @classmethod
    def of(cls, law: Sticks, usage: Array) -> "_Problem":
        scale = np.stack([np.sqrt(usage[:, IN_USE] + 1.0), np.ones(len(usage))])
        return cls((usage, totals(usage)[0], law.doc_concentration, law.concentration), scale)

    def start(self) -> Array:
        """Return a point near the maximum: the optimum if q(u) were a point.

        With ``log Gamma(1 + c) ~ -0.577 c`` the part of topic k is ``n_k log beta_k + beta_k g_k``,
        so that ``beta_k = n_k / (lambda - g_k)`` with the lambda for which these sum to 1.
        """
        x = np.empty_like(self.scale)
        write_start(*self.given, x)
        return (x * self.scale).ravel()

    def _legal(self, x: Array) -> Array:
        """Return logits and logarithms of sizes, clipped to legal values, (2, K)."""
        return np.asarray(np.clip(x.reshape(2, -1) / self.scale, _SMALLEST, LARGEST_LOGIT))

    def sticks(self, x: Array) -> Array:
        """Return (a_k, b_k), shape (K, 2)."""
        logit, log_size = self._legal(x)
        return np.exp(log_size)[:, None] * np.stack([expit(logit), expit(-logit)], axis=1)

    def loss(self, x: Array) -> tuple[float, Array]:
        """Return minus the bound, up to a constant, and its gradient."""
        logit, log_size = self._legal(x)
        x, gradient = x.reshape(2, -1), np.empty_like(self.scale)
        write_gradient(x, 0.0, x, self.scale, *self.given, _TINY, gradient)
        return -stick_bound(logit, log_size, *self.given, _TINY), gradient.ravel()

    def climbed(self, x: Array) -> tuple[Array, float]:
        """Return x after Newton steps, and the largest entry of the gradient there."""
        x = np.array(x).reshape(2, -1)
        largest = climb_sticks(
            x, self.scale, *self.given, _TINY, _SMALLEST_GRADIENT, _NEWTON, _POLISH, _CONJUGATE,
            _DIFFERENCE, np.empty((5, *x.shape)),
        )  # fmt: skip
        return x.ravel(), float(largest)
