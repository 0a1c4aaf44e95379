"""The weights of topics: sticks, and what documents say of them.

    u_k ~ Beta(1, gamma),  beta_k = u_k prod_{l<k} (1 - u_l),  beta_rest = prod_{l<=K} (1 - u_l)
    pi_d ~ Dir(alpha beta_1, ..., alpha beta_K, alpha beta_rest)

with q(u_k) = Beta(a_k, b_k). Of the documents, whose tokens in topic k are N_dk, the bound of
:class:`~skvt.models.hdp.HDP` keeps sums only, the *usage* of each topic, so that the best q(u) is a
function of statistics that add.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln, psi

from skvt.expfam import Beta, kl_divergence
from skvt.models.hdp._kernels import stick_bound
from skvt.typing import Array

# Columns of the usage (K, 5), sums over documents d weighted by w_d; "in use" are the documents
# that have a topic. Of a topic not yet seen all are 0.
SLOPE, TRACES, IN_USE, DOCUMENTS, LENGTH = range(5)
N_COLUMNS = 5

# Evaluations of the objective at most; a gradient (in units of its curvature) that ends the search.
_MOST_STEPS, _SMALLEST_GRADIENT = 500, 1e-4
# Newton steps thereafter, the steps of conjugate gradients of each, and the length of differences.
_POLISH, _CONJUGATE, _DIFFERENCE = 2, 25, 1e-4
# Weights are at least this, so that the logarithm of a product of sticks is finite.
_TINY = 1e-300
# Of logits of shares, and logarithms of a + b.
_SMALLEST, _LARGEST = np.array([[-300.0], [-30.0]]), np.array([[300.0], [300.0]])


def expected_weights(sticks: Array) -> Array:
    """``E[beta_k]`` and last E[beta_rest], (K + 1,), under q(u_k) = Beta(sticks_k), (K, 2)."""
    share = sticks[:, 0] / sticks.sum(axis=1)
    rest = sticks[:, 1] / sticks.sum(axis=1)
    remaining = np.concatenate([[1.0], np.cumprod(rest)])
    return np.maximum(np.append(share, 1.0) * remaining, _TINY)


def _expected_logs(sticks: Array) -> tuple[Array, Array]:
    """``E[log u_k]`` and ``E[log(1 - u_k)]``, (K,) each."""
    log_sum = psi(sticks.sum(axis=1))
    return psi(sticks[:, 0]) - log_sum, psi(sticks[:, 1]) - log_sum


def totals(usage: Array) -> tuple[float, float]:
    """Documents D and the sum of their LENGTH: they stand in the row of each topic seen."""
    return float(usage[:, DOCUMENTS].max()), float(usage[:, LENGTH].max())


@dataclass(frozen=True)
class Sticks:
    """The prior of the weights, and the concentration of documents about them.

    Parameters
    ----------
    concentration : float
        gamma.
    doc_concentration : float
        alpha.
    """

    concentration: float
    doc_concentration: float

    def prior(self) -> Array:
        """``(1, gamma)``, shape (1, 2)."""
        return np.array([[1.0, self.concentration]])

    def log_normalizer_bound(self, sticks: Array) -> float:
        """A lower bound of ``E[log c_D(alpha beta)]`` of one document in nats.

        ``c_D(alpha beta) = Gamma(alpha) / prod_k Gamma(alpha beta_k)`` over the K + 1 pieces. Since
        log Gamma(1 + alpha x) is convex and 0 at x = 0, it lies below its chord on [0, 1]: with
        ``sum_k beta_k = 1``, ``sum_k log Gamma(1 + alpha beta_k) <= log Gamma(1 + alpha)``, so that

            log c_D(alpha beta) >= K log alpha + sum_{k <= K+1} log beta_k

        for every alpha, the last sum being ``sum_k [log u_k + (K + 1 - k) log(1 - u_k)]``.
        """
        log_u, log_rest = _expected_logs(sticks)
        n = len(sticks)
        later = np.arange(n, 0, -1)
        return float(n * np.log(self.doc_concentration) + log_u.sum() + later @ log_rest)

    def document_terms(self, sticks: Array, usage: Array) -> float:
        """The part of the bound in which documents depend on the weights, in nats.

        ``D E[log c_D] - sum_d log Gamma(alpha + N_d) + sum_dk log Gamma(alpha E[beta_k] + N_dk)``,
        each term but the first bounded by its tangent where documents were last seen, and up to
        what is constant.
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
        """:meth:`document_terms` less KL(q(u) || p(u)), in nats."""
        return self.document_terms(sticks, usage) - kl_divergence(Beta, sticks, self.prior())

    def best(self, usage: Array) -> Array:
        """The q(u) that maximises :meth:`bound`, (K, 2): a function of the usage alone."""
        shape = usage.shape
        best = _best(np.ascontiguousarray(usage, np.float64).tobytes(), shape[0], self)
        return np.array(best)

    def best_bound(self, usage: Array) -> float:
        """:meth:`bound` at its maximum."""
        return self.bound(self.best(usage), usage)

    def near_bound(self, usage: Array) -> float:
        """:meth:`bound` near its maximum, at a small part of the cost."""
        problem = _Problem.of(self, usage)
        return self.bound(problem.sticks(problem.start()), usage)

    # --------------------------------------------------------------------------- learned
    def with_learned(
        self, usage: Array, *, concentration: bool, doc_concentration: bool
    ) -> "Sticks":
        """Concentrations at the maximum of the bound given q(u)."""
        sticks = self.best(usage)
        gamma, alpha = self.concentration, self.doc_concentration
        if concentration:
            _, log_rest = _expected_logs(sticks)
            gamma = float(np.clip(-len(sticks) / log_rest.sum(), *_LEARNED_RANGE))
        if doc_concentration:
            alpha = self._best_doc_concentration(sticks, usage)
        return Sticks(gamma, alpha)

    def _best_doc_concentration(self, sticks: Array, usage: Array) -> float:
        """alpha: a search along the line, begun about the present one."""

        def loss(log_alpha: Array) -> float:
            return -Sticks(self.concentration, float(np.exp(log_alpha[0]))).document_terms(
                sticks, usage
            )

        start = np.log([self.doc_concentration])
        bounds = [(start[0] - 1.0, start[0] + 1.0)]
        found = minimize(loss, start, method="L-BFGS-B", bounds=bounds)
        alpha = float(np.clip(np.exp(found.x[0]), *_LEARNED_RANGE))
        return alpha if found.fun <= loss(start) else self.doc_concentration


# Learned concentrations stay within.
_LEARNED_RANGE = 1e-3, 1e3


@lru_cache(maxsize=64)
def _best(usage_bytes: bytes, n_topics: int, law: Sticks) -> Array:
    """See :meth:`Sticks.best`; what is asked for twice is computed once."""
    usage = np.frombuffer(usage_bytes).reshape(n_topics, N_COLUMNS)
    problem = _Problem.of(law, usage)
    x = problem.start()
    found = minimize(
        problem.loss, x, jac=True, method="L-BFGS-B",
        options={"maxfun": _MOST_STEPS, "maxiter": _MOST_STEPS, "ftol": 1e-13,
                 "gtol": _SMALLEST_GRADIENT, "maxcor": 20},
    )  # fmt: skip
    best = problem.sticks(problem.polished(found.x))
    best.flags.writeable = False
    return best


@dataclass(frozen=True)
class _Problem:
    """The search for q(u), in the logits of E[u_k] and the logarithms of a_k + b_k.

    Both are scaled by the square root of the curvature that they have about.
    """

    law: Sticks
    usage: Array
    n_documents: float
    scale: Array

    @classmethod
    def of(cls, law: Sticks, usage: Array) -> "_Problem":
        n_documents, _ = totals(usage)
        scale = np.stack([np.sqrt(usage[:, IN_USE] + 1.0), np.ones(len(usage))])
        return cls(law, usage, n_documents, scale)

    def start(self) -> Array:
        """Near the maximum: weights known for certain have it where their derivatives are equal.

        With ``log Gamma(1 + c) ~ -0.577 c`` the part of topic k is ``n_k log beta_k + beta_k g_k``,
        so that ``beta_k = n_k / (lambda - g_k)`` with a lambda for which they add up to 1.
        """
        usage, alpha = self.usage, self.law.doc_concentration
        without = np.append(self.n_documents - usage[:, IN_USE], self.n_documents)
        rise = alpha * (np.append(usage[:, SLOPE], 0.0) - np.euler_gamma * without)
        parts = np.append(usage[:, IN_USE] + 1.0, self.law.concentration)
        low = float((rise + parts).max())
        high = float(rise.max() + parts.sum())
        for _ in range(100):  # a fall from 1 or more at low to 1 or less at high
            middle = 0.5 * (low + high)
            if (parts / (middle - rise)).sum() > 1.0:
                low = middle
            else:
                high = middle
        weights = parts / (high - rise)
        remaining = np.cumsum(weights[::-1])[::-1]
        logit = np.log(weights[:-1] / remaining[1:])
        share = expit(logit)
        n = len(usage)
        one = self.n_documents + 1.0
        other = self.n_documents * np.arange(n, 0, -1) + self.law.concentration
        # at given E[u], to second order in what is large
        size = one * (1.0 - share) / share + other * share / (1.0 - share)
        return (np.stack([logit, np.log(size)]) * self.scale).ravel()

    def _legal(self, x: Array) -> Array:
        """Logits and logarithms of sizes, (2, K)."""
        return np.asarray(np.clip(x.reshape(2, -1) / self.scale, _SMALLEST, _LARGEST))

    def sticks(self, x: Array) -> Array:
        """(a_k, b_k), shape (K, 2)."""
        logit, log_size = self._legal(x)
        return np.exp(log_size)[:, None] * np.stack([expit(logit), expit(-logit)], axis=1)

    def loss(self, x: Array) -> tuple[float, Array]:
        """Minus the bound, up to a constant, and its gradient."""
        logit, log_size = self._legal(x)
        gradient = np.empty((2, len(self.usage)))
        value = stick_bound(
            logit, log_size, self.usage, self.n_documents, self.law.doc_concentration,
            self.law.concentration, _TINY, gradient,
        )  # fmt: skip
        return -value, -(gradient / self.scale).ravel()

    def polished(self, x: Array) -> Array:
        """Newton steps by gradients alone.

        What the bound itself says ends where its rounding begins, at the square root of that in x.
        """
        gradient = self.loss(x)[1]
        for _ in range(_POLISH):
            step = self._newton_step(x, gradient)
            after = self.loss(x + step)[1]
            if not np.linalg.norm(after) < np.linalg.norm(gradient):
                break
            x, gradient = x + step, after
        return x

    def _newton_step(self, x: Array, gradient: Array) -> Array:
        """Solve ``H step = -gradient`` by conjugate gradients, H v from differences."""
        step, residual = np.zeros_like(x), -gradient
        direction, size = residual, residual @ residual
        least = 1e-16 * size
        for _ in range(_CONJUGATE):
            if size <= least:
                break
            unit = _DIFFERENCE / np.sqrt(direction @ direction)
            there, back = (self.loss(x + sign * unit * direction)[1] for sign in (1.0, -1.0))
            curved = (there - back) / (2.0 * unit)
            curvature = direction @ curved
            if not curvature > 0.0:
                break
            length = size / curvature
            step, residual = step + length * direction, residual - length * curved
            size_now = residual @ residual
            direction, size = residual + size_now / size * direction, size_now
        return step
