"""The weights of topics: sticks, and their bound given the usage of topics by documents.

    u_k ~ Beta(1, gamma),  beta_k = u_k prod_{l<k} (1 - u_l),  beta_rest = prod_{l<=K} (1 - u_l)
    pi_d ~ Dir(alpha beta_1, ..., alpha beta_K, alpha beta_rest)

for topics k = 1 to K, with q(u_k) = Beta(a_k, b_k). pi_d are the topic proportions of document d,
and the rest are all topics that are not represented. In the bound of
:class:`~skvt.models.hdp.HDP`, documents appear only in the *usage* of topics, see
:mod:`skvt.models.hdp._usage`, so that the best q(u) is a function of additive statistics. The guide
(doc/guide/memoized_hdp.md) derives the bound.

``sticks`` (K, 2) are the parameters (a_k, b_k), and ``usage`` is (K, 5). c_D is the normaliser of
the Dirichlet density.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln, psi

from skvt.files import PRIOR, in_files
from skvt.models.hdp._kernels import (
    GRADIENT_TOLERANCE,
    MAX_LOGIT,
    MIN_LOG_SIZE,
    MIN_WEIGHT,
    compute_stick_divergence,
    improve_sticks,
    write_gradient,
    write_start,
)
from skvt.models.hdp._usage import IN_USE, N_COLUMNS, SLOPE, TRACES, find_document_totals
from skvt.typing import Array

# Newton's method has failed if an entry of the gradient is larger. L-BFGS then replaces it.
_FAILED_GRADIENT = 1e-2
# Maximum number of evaluations by L-BFGS.
_MAX_EVALUATIONS = 500
# Smallest logit of E[u_k], and smallest log(a_k + b_k), as a column (2, 1).
_LOWER_LIMITS = np.array([[-MAX_LOGIT], [MIN_LOG_SIZE]])
# Range of learned concentrations.
_LEARNED_RANGE = 1e-3, 1e3


def compute_expected_weights(sticks: Array) -> Array:
    """Return ``E[beta_k]``, and last E[beta_rest], (K + 1,)."""
    a, b = sticks.T
    mean, complement = a / (a + b), b / (a + b)
    remaining = np.concatenate([[1.0], np.cumprod(complement)])
    return np.maximum(np.append(mean, 1.0) * remaining, MIN_WEIGHT)


def _compute_expected_logs(sticks: Array) -> tuple[Array, Array]:
    """Return ``E[log u_k]`` and ``E[log(1 - u_k)]``, (K,) each."""
    a, b = sticks.T
    return psi(a) - psi(a + b), psi(b) - psi(a + b)


@in_files("models.Sticks")
@dataclass(frozen=True)
class Sticks:
    """The prior of the weights, and the concentration of document proportions around them."""

    # gamma.
    concentration: Annotated[float, PRIOR]
    # alpha.
    doc_concentration: Annotated[float, PRIOR]

    def prior(self) -> Array:
        """Return the parameters of the prior of a stick, (1, 2)."""
        return np.array([[1.0, self.concentration]])

    def log_normalizer_bound(self, sticks: Array) -> float:
        """Return a lower bound of ``E[log c_D(alpha beta)]``, a document's normaliser, in nats.

        For every alpha, ``log c_D(alpha beta) >= K log alpha + sum_{k <= K+1} log beta_k``, and the
        sum is ``sum_k [log u_k + (K + 1 - k) log(1 - u_k)]``; see doc/guide/memoized_hdp.md.
        """
        log_u, log_complement = _compute_expected_logs(sticks)
        n_topics = len(sticks)
        coefficients = np.arange(n_topics, 0, -1)
        log_alpha = np.log(self.doc_concentration)
        return float(n_topics * log_alpha + log_u.sum() + coefficients @ log_complement)

    def document_terms(self, sticks: Array, usage: Array) -> float:
        """Return the part of the documents' bound that depends on the weights, in nats.

        Up to a constant it is, for D documents of N_dk tokens of topic k and N_d tokens in all,

            D E[log c_D] - sum_d log Gamma(alpha + N_d) + sum_dk log Gamma(alpha E[beta_k] + N_dk)

        where the last two terms are bounded by tangents at the documents' last local steps.
        """
        alpha = self.doc_concentration
        n_documents, length_slope = find_document_totals(usage)
        # Pseudo-counts of the K topics, and last of the rest, which has no tokens.
        pseudo_counts = alpha * compute_expected_weights(sticks)
        tangents = pseudo_counts[:-1] @ usage[:, SLOPE] + usage[:, TRACES] @ psi(pseudo_counts[:-1])
        # Number of documents that do not use a topic, for the K topics and the rest.
        n_without = np.append(n_documents - usage[:, IN_USE], n_documents)
        return float(
            n_documents * self.log_normalizer_bound(sticks)
            + tangents
            + n_without @ gammaln(pseudo_counts)
            - alpha * length_slope
            - n_documents * gammaln(alpha)
        )

    def bound(self, sticks: Array, usage: Array) -> float:
        """Return :meth:`document_terms` less KL(q(u) || p(u)), in nats."""
        divergence = compute_stick_divergence(np.ascontiguousarray(sticks), self.concentration)
        return self.document_terms(sticks, usage) - float(divergence)

    def find_best(self, usage: Array) -> Array:
        """Return the sticks (K, 2) that maximise :meth:`bound`."""
        usage = np.ascontiguousarray(usage, np.float64)
        return np.array(_maximise_bound(usage.tobytes(), len(usage), self))

    def best_bound(self, usage: Array) -> float:
        """Return the maximum of :meth:`bound`."""
        return self.bound(self.find_best(usage), usage)

    def approximate_best_bound(self, usage: Array) -> float:
        """Return :meth:`bound` near its maximum, which costs much less than the maximum."""
        problem = _Problem.from_usage(self, usage)
        return self.bound(problem.to_sticks(problem.make_start()), usage)

    # --------------------------------------------------------------- learned concentrations
    def with_learned(
        self, usage: Array, *, concentration: bool, doc_concentration: bool
    ) -> "Sticks":
        """Return the prior with the concentrations that maximise the bound, given the best q(u).

        ``concentration`` and ``doc_concentration`` say whether gamma and alpha are learned.
        """
        sticks = self.find_best(usage)
        gamma, alpha = self.concentration, self.doc_concentration
        if concentration:
            # The bound contains sum_k (log gamma + (gamma - 1) E[log(1 - u_k)]).
            _, log_complement = _compute_expected_logs(sticks)
            gamma = float(np.clip(-len(sticks) / log_complement.sum(), *_LEARNED_RANGE))
        if doc_concentration:
            alpha = self._find_best_doc_concentration(sticks, usage)
        return Sticks(gamma, alpha)

    def _find_best_doc_concentration(self, sticks: Array, usage: Array) -> float:
        """Return the best alpha within a factor e of the present alpha, by maximising the bound."""

        def loss(log_alpha: Array) -> float:
            changed_sticks = Sticks(self.concentration, float(np.exp(log_alpha[0])))
            return -changed_sticks.document_terms(sticks, usage)

        start = np.log([self.doc_concentration])
        bounds = [(start[0] - 1.0, start[0] + 1.0)]
        optimum = minimize(loss, start, method="L-BFGS-B", bounds=bounds)
        alpha = float(np.clip(np.exp(optimum.x[0]), *_LEARNED_RANGE))
        return alpha if optimum.fun <= loss(start) else self.doc_concentration


@lru_cache(maxsize=64)
def _maximise_bound(usage_bytes: bytes, n_topics: int, prior: Sticks) -> Array:
    """Return the result of :meth:`Sticks.find_best`; the cache can hash bytes, but not arrays."""
    # Copy the array, since numba compiles anew for an array that is not writeable.
    usage = np.frombuffer(usage_bytes).reshape(n_topics, N_COLUMNS).copy()
    problem = _Problem.from_usage(prior, usage)
    x, largest_gradient = problem.run_newton(problem.make_start())
    # The comparison is negated because the gradient may be NaN.
    if not largest_gradient <= _FAILED_GRADIENT:
        optimum = minimize(
            problem.compute_loss, x, jac=True, method="L-BFGS-B",
            options={"maxfun": _MAX_EVALUATIONS, "maxiter": _MAX_EVALUATIONS, "ftol": 1e-13,
                     "gtol": GRADIENT_TOLERANCE, "maxcor": 20},
        )  # fmt: skip
        x, _ = problem.run_newton(optimum.x)
    sticks = problem.to_sticks(x)
    sticks.flags.writeable = False
    return sticks


@dataclass(frozen=True)
class _Problem:
    """The maximisation of the bound over q(u).

    The variables x (2 K,) are the K logits of E[u_k], then the K values of log(a_k + b_k), each
    multiplied by its entry of ``scale`` (2, K), so that their curvatures are similar.
    """

    prior: Sticks
    # Usage, number of documents, alpha and gamma: arguments of the compiled loops.
    constants: tuple[Array, float, float, float]
    scale: Array

    @classmethod
    def from_usage(cls, prior: Sticks, usage: Array) -> "_Problem":
        """Return the problem, scaled by the number of documents that use each topic."""
        scale = np.stack([np.sqrt(usage[:, IN_USE] + 1.0), np.ones(len(usage))])
        n_documents, _ = find_document_totals(usage)
        constants = usage, n_documents, prior.doc_concentration, prior.concentration
        return cls(prior, constants, scale)

    def make_start(self) -> Array:
        """Return the starting point of :func:`~skvt.models.hdp._kernels.write_start`, (2 K,)."""
        x = np.empty_like(self.scale)
        write_start(*self.constants, x)
        return (x * self.scale).ravel()

    def to_sticks(self, x: Array) -> Array:
        """Return (a_k, b_k), shape (K, 2), with x clipped to its limits."""
        logit, log_size = np.clip(x.reshape(2, -1) / self.scale, _LOWER_LIMITS, MAX_LOGIT)
        return np.exp(log_size)[:, None] * np.stack([expit(logit), expit(-logit)], axis=1)

    def compute_loss(self, x: Array) -> tuple[float, Array]:
        """Return minus the bound, and the gradient of minus the bound, (2 K,)."""
        loss = -self.prior.bound(self.to_sticks(x), self.constants[0])
        x, gradient = x.reshape(2, -1), np.empty_like(self.scale)
        # A step of length 0 evaluates the gradient at x itself, whatever its direction.
        write_gradient(x, 0.0, x, self.scale, *self.constants, gradient)
        return loss, gradient.ravel()

    def run_newton(self, x: Array) -> tuple[Array, float]:
        """Return x after Newton steps, and the largest absolute entry of its gradient."""
        x = np.array(x).reshape(2, -1)
        largest_gradient = improve_sticks(x, self.scale, *self.constants, np.empty((5, *x.shape)))
        return x.ravel(), float(largest_gradient)
