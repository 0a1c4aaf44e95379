"""Compiled loops of the hierarchical Dirichlet process.

For :mod:`skvt.models.hdp._sticks` they search for the q(u) that maximises the bound, by its
gradient. They are compiled, since the search evaluates the gradient dozens of times for each batch.
For :mod:`skvt.models.hdp._pairs` they compute the entropy that is lost if two topics merge. The
guide (doc/guide/memoized_hdp.md) derives the bound.

Throughout, u_k is the stick of topic k with the prior Beta(1, ``gamma``), and the weight of the
topic is beta_k = u_k prod_{l<k} (1 - u_l). q(u_k) is Beta(a_k, b_k) with the mean E[u_k] =
a_k / (a_k + b_k), the ``complement`` 1 - E[u_k] and the ``size`` a_k + b_k. D or ``n_documents`` is
the number of documents, and ``alpha`` is the concentration of document proportions. Rows of
``usage`` (K, 5) belong to topics, and :mod:`skvt.models.hdp._usage` explains its columns.
"""

import numpy as np

from skvt._compiled import (
    digamma,
    exp,
    gammaln,
    jit,
    jit_allocating,
    jit_inlined,
    log,
    polynomial,
    trigamma,
)
from skvt.models.hdp._usage import IN_USE, SLOPE, TRACES
from skvt.typing import Array, IndexArray

# Largest absolute value of the logit of E[u_k], and largest log(a_k + b_k).
MAX_LOGIT = 300.0
# Smallest log(a_k + b_k).
MIN_LOG_SIZE = -30.0
# Smallest weight, so that the logarithm of a product of sticks is finite.
MIN_WEIGHT = 1e-300
# Newton's method has converged if no entry of the gradient of :func:`write_gradient` is larger.
GRADIENT_TOLERANCE = 1e-4
# Maximum number of Newton steps.
MAX_NEWTON_STEPS = 20
# Number of Newton steps after convergence.
N_FINAL_STEPS = 2
# Maximum number of conjugate gradient steps in a Newton step.
MAX_CONJUGATE_STEPS = 25
# Distance of x from each of the two points whose gradients give a finite difference.
DIFFERENCE_DISTANCE = 1e-4
# Arguments above this value use asymptotic series, which are exact to rounding there.
_LARGE_ARGUMENT = 8.0
_HALF_LOG_TWO_PI = 0.5 * np.log(2.0 * np.pi)


@jit_inlined
def _compute_mean_and_complement(logit: float) -> tuple[float, float]:
    """Return E[u] and 1 - E[u], given the logit of E[u].

    The smaller of the two is computed without a difference, so that it keeps all its digits.
    """
    odds = exp(-abs(logit))
    larger, smaller = 1.0 / (1.0 + odds), odds / (1.0 + odds)
    return (larger, smaller) if logit >= 0.0 else (smaller, larger)


@jit_inlined
def _trigamma_excess(x: float) -> float:
    """Return ``x^2 (trigamma(x) - 1 / x)`` at x > 0, which falls from 1 at x = 0 towards 1/2."""
    y = 1.0 / max(x, _LARGE_ARGUMENT)
    p = polynomial(y * y, (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6))
    return 0.5 + y * p if x > _LARGE_ARGUMENT else x * x * trigamma(x) - x


@jit_inlined
def _digamma_excess(x: float) -> float:
    """Return ``x (digamma(x) - log x)`` at x > 0, which rises from -1 at x = 0 towards -1/2."""
    y = 1.0 / max(x, _LARGE_ARGUMENT)
    p = polynomial(y * y, (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12))
    return -0.5 - y * p if x > _LARGE_ARGUMENT else x * (digamma(x) - log(x))


@jit_inlined
def _gammaln_excess(x: float) -> float:
    """Return ``log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2`` at x > 0.

    The result is the error of Stirling's formula, which tends to 0 for large x.
    """
    y = 1.0 / max(x, _LARGE_ARGUMENT)
    p = polynomial(y * y, (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    return y * p if x > _LARGE_ARGUMENT else gammaln(x) - (x - 0.5) * log(x) + x - _HALF_LOG_TWO_PI


@jit_inlined
def _compute_stick_terms(
    mean: float, complement: float, size: float, gamma: float
) -> tuple[float, float, float]:
    """Return ``E[log u] - log E[u]``, ``E[log(1 - u)] - log E[1 - u]`` and ``KL(q(u) || p(u))``.

    The distributions are q(u) = Beta(mean * size, complement * size) and p(u) = Beta(1, gamma).

    The divergence is a sum of log Gamma and digamma at a, b and a + b. With many documents these
    terms are so much larger than the divergence that their sum would be mostly rounding error. Most
    of each term cancels in the sum. The divergence is therefore computed from
    :func:`_digamma_excess` and :func:`_gammaln_excess`, which leave out the parts that cancel.
    """
    a, b = mean * size, complement * size
    excess_a, excess_b, excess_size = _digamma_excess(a), _digamma_excess(b), _digamma_excess(size)
    gap_u, gap_complement = excess_a / a - excess_size / size, excess_b / b - excess_size / size
    log_mean, log_complement = log(mean), log(complement)
    # The divergence is (a - 1) E[log u] + (b - gamma) E[log(1 - u)] - log B(a, b) - log gamma with
    # the beta function B. First add the terms of the excesses, then the logarithms that remain.
    divergence = excess_a + excess_b - excess_size - gap_u - gamma * gap_complement
    divergence -= _gammaln_excess(a) + _gammaln_excess(b) - _gammaln_excess(size)
    divergence += (
        0.5 * log(b) - 0.5 * log_mean - gamma * log_complement - _HALF_LOG_TWO_PI - log(gamma)
    )
    return gap_u, gap_complement, divergence


@jit
def compute_stick_divergence(sticks: Array, gamma: float) -> float:
    """Return the sum of KL(Beta(a_k, b_k) || Beta(1, gamma)) over the sticks, in nats.

    Row k of ``sticks`` (K, 2) has a_k and b_k.
    """
    total_divergence = 0.0
    for k in range(sticks.shape[0]):
        a, b = sticks[k]
        _, _, divergence = _compute_stick_terms(a / (a + b), b / (a + b), a + b, gamma)
        total_divergence += divergence
    return total_divergence


@jit
def write_gradient(
    x: Array, step_length: float, direction: Array, scale: Array, usage: Array, n_documents: float,
    alpha: float, gamma: float, out: Array,
) -> None:  # fmt: skip
    """Write the gradient of minus the bound with respect to x, at ``x + step_length * direction``.

    The bound is :meth:`skvt.models.hdp._sticks.Sticks.bound`. ``x``, ``direction``, ``scale`` and
    ``out`` are (2, K). ``x[0]`` is the logit of E[u_k] times ``scale[0]``, and ``x[1]`` is
    log(a_k + b_k) times ``scale[1]``. Logits and log(a_k + b_k) are clipped to their limits. The
    gradient is written to ``out``, which must be another array than ``x`` and ``direction``.
    """
    # Names of derivatives of the bound begin with ``by_``: ``by_logit`` is the derivative with
    # respect to a logit.
    n_topics = x.shape[1]
    remaining = 1.0
    for k in range(n_topics):
        logit = (x[0, k] + step_length * direction[0, k]) / scale[0, k]
        # Keep the logit for the second loop, which replaces it by the derivative.
        out[1, k] = min(max(logit, -MAX_LOGIT), MAX_LOGIT)
        mean, complement = _compute_mean_and_complement(out[1, k])
        # The pseudo-count c_k = alpha E[beta_k] of the topic.
        c = alpha * max(mean * remaining, MIN_WEIGHT)
        remaining *= complement
        # With slope_k, traces_k and n_k for SLOPE, TRACES and IN_USE, the documents add to the
        # bound c_k slope_k + traces_k psi(c_k) + (D - n_k) log Gamma(c_k) + D E[log beta_k]. Write
        # the derivative of the first three terms with respect to log c_k. The second loop adds the
        # derivative of the fourth.
        out[0, k] = c * (usage[k, SLOPE] + usage[k, TRACES] * trigamma(c))
        out[0, k] += c * (n_documents - usage[k, IN_USE]) * digamma(c)
    # The pseudo-count of all topics that are not represented, which have no tokens.
    c = alpha * max(remaining, MIN_WEIGHT)
    # The sum of the derivatives with respect to log c_l of all l > k, while k falls from K to 1.
    by_later_weights = c * n_documents * digamma(c)
    for i in range(n_topics):
        k = n_topics - 1 - i
        by_log_weight = out[0, k]
        mean, complement = _compute_mean_and_complement(out[1, k])
        log_size = (x[1, k] + step_length * direction[1, k]) / scale[1, k]
        size = exp(min(max(log_size, MIN_LOG_SIZE), MAX_LOGIT))
        a, b = mean * size, complement * size
        coef_u, coef_complement = n_documents + 1.0, n_documents * (n_topics - k) + gamma
        # The bound contains (coef_u - a) E[log u] + (coef_complement - b) E[log(1 - u)] + log B,
        # where B is the beta function of a and b. The derivatives of this sum with respect to
        # log a, log b and log(a + b) contain x^2 trigamma(x) = x + _trigamma_excess(x) at x = a, b
        # and a + b. The summands x cancel, so that ``by_a``, ``by_b`` and ``by_size`` leave them
        # out; they would add rounding errors, since they may be large.
        by_a = _trigamma_excess(a) * (coef_u / a - 1.0)
        by_b = _trigamma_excess(b) * (coef_complement / b - 1.0)
        by_size = _trigamma_excess(size) * ((coef_u + coef_complement) / size - 1.0)
        # A larger logit raises log c_k by 1 - E[u_k] and lowers each later log c_l by E[u_k].
        by_logit = complement * (coef_u + by_a + by_log_weight) - mean * (
            coef_complement + by_b + by_later_weights
        )
        out[0, k] = -by_logit / scale[0, k]
        out[1, k] = -(by_a + by_b - by_size) / scale[1, k]
        by_later_weights += by_log_weight


@jit_allocating
def write_start(usage: Array, n_documents: float, alpha: float, gamma: float, out: Array) -> None:
    """Write a starting point of the search for the best q(u) to ``out`` (2, K).

    ``out[0]`` has the logits of E[u_k], and ``out[1]`` has log(a_k + b_k). The starting point is
    near the best q(u). It maximises an approximation of the bound in which q(u) is a point, TRACES
    are 0, and ``log Gamma(1 + c)``, with c = alpha beta_k, is replaced by its tangent at 0,
    ``-0.577 c``. Up to a constant the approximation is

        sum_{k <= K+1} (count_k log beta_k + rise_k beta_k),

    where topic K + 1 stands for all topics that are not represented. Its maximum is at
    ``beta_k = count_k / (multiplier - rise_k)``. The Lagrange multiplier makes the weights sum to 1
    and is computed by bisection.
    """
    n_topics = usage.shape[0]
    counts, rises = np.empty(n_topics + 1), np.empty(n_topics + 1)
    for k in range(n_topics):
        counts[k] = usage[k, IN_USE] + 1.0
        rises[k] = alpha * (usage[k, SLOPE] - np.euler_gamma * (n_documents - usage[k, IN_USE]))
    counts[n_topics] = gamma
    rises[n_topics] = -alpha * np.euler_gamma * n_documents
    # The sum of the weights falls as the multiplier rises. It is at least 1 at ``low`` and at most
    # 1 at ``high``.
    low, largest_rise, total_count = -np.inf, -np.inf, 0.0
    for k in range(n_topics + 1):
        low = max(low, rises[k] + counts[k])
        largest_rise = max(largest_rise, rises[k])
        total_count += counts[k]
    high = largest_rise + total_count
    for _ in range(100):
        multiplier = 0.5 * (low + high)
        if not low < multiplier < high:
            break
        sum_of_weights = 0.0
        for k in range(n_topics + 1):
            sum_of_weights += counts[k] / (multiplier - rises[k])
        if sum_of_weights > 1.0:
            low = multiplier
        else:
            high = multiplier
    # The odds of u_k are beta_k over the sum of all later weights.
    remaining = counts[n_topics] / (high - rises[n_topics])
    for i in range(n_topics):
        k = n_topics - 1 - i
        ratio = counts[k] / (high - rises[k]) / remaining
        remaining *= 1.0 + ratio
        out[0, k] = log(ratio)
        # Given E[u], this a + b is the best if _trigamma_excess is 1/2, its limit for large a, b.
        coef_complement = n_documents * (n_topics - k) + gamma
        out[1, k] = log((n_documents + 1.0) / ratio + coef_complement * ratio)


@jit
def improve_sticks(
    x: Array, scale: Array, usage: Array, n_documents: float, alpha: float, gamma: float,
    scratch: Array,
) -> float:  # fmt: skip
    """Move x (2, K) towards the maximum of the bound by Newton's method.

    x changes in place. Return the largest absolute entry of the gradient at x. The method minimises
    minus the bound, with the gradient of :func:`write_gradient` and the Hessian H.

    Steps end after MAX_NEWTON_STEPS, or before the first step that does not reduce the norm of the
    gradient. Near the maximum the bound varies by less than its rounding errors, so that only the
    gradient shows progress. Once no entry of the gradient exceeds GRADIENT_TOLERANCE, N_FINAL_STEPS
    steps follow, for which the linear equations are solved more exactly.

    A Newton step solves ``H step = -gradient`` by at most MAX_CONJUGATE_STEPS steps of conjugate
    gradients. The product of H and a vector is computed from the difference of the gradients at two
    points, DIFFERENCE_DISTANCE on either side of x. ``scratch`` (5, 2, K) is overwritten.
    """
    # Compute entries in loops, since an expression of whole arrays adds half a second to the time
    # of compilation.
    constants = scale, usage, n_documents, alpha, gamma
    gradient, gradient_behind, direction, residual, step = (
        scratch[0], scratch[1], scratch[2], scratch[3], scratch[4],
    )  # fmt: skip
    n_topics = x.shape[1]
    for i in range(2):
        for k in range(n_topics):
            step[i, k] = 0.0
    # Names that end in norm2 are squared norms. ``largest_entry`` is the largest absolute entry of
    # the gradient at x, and ``n_final`` counts the steps after convergence.
    largest_entry, last_gradient_norm2, n_final = 0.0, np.inf, 0
    for n_steps_taken in range(MAX_NEWTON_STEPS + 1):
        # Take the step if it reduces the norm of the gradient.
        write_gradient(x, 1.0, step, *constants, gradient)
        gradient_norm2, new_largest_entry = 0.0, 0.0
        for i in range(2):
            for k in range(n_topics):
                gradient_norm2 += gradient[i, k] * gradient[i, k]
                new_largest_entry = max(new_largest_entry, abs(gradient[i, k]))
        if n_steps_taken > 0 and not gradient_norm2 < last_gradient_norm2:
            break
        last_gradient_norm2 = gradient_norm2
        # The maximum above ignores entries that are NaN.
        largest_entry = np.nan if np.isnan(gradient_norm2) else new_largest_entry
        for i in range(2):
            for k in range(n_topics):
                x[i, k] += step[i, k]
                residual[i, k] = direction[i, k] = -gradient[i, k]
                step[i, k] = 0.0
        is_close = largest_entry <= GRADIENT_TOLERANCE
        if n_steps_taken == MAX_NEWTON_STEPS or (is_close and n_final == N_FINAL_STEPS):
            break
        n_final += is_close
        # Find the next step by conjugate gradients. They end once the norm of the residual is 1e-2
        # of the norm of the gradient, or 1e-8 near the maximum.
        target_norm2 = (1e-16 if is_close else 1e-4) * gradient_norm2
        residual_norm2, direction_norm2 = gradient_norm2, gradient_norm2
        for _ in range(MAX_CONJUGATE_STEPS):
            if residual_norm2 <= target_norm2:
                break
            distance = DIFFERENCE_DISTANCE / np.sqrt(direction_norm2)
            write_gradient(x, distance, direction, *constants, gradient)
            write_gradient(x, -distance, direction, *constants, gradient_behind)
            factor, curvature = 0.5 / distance, 0.0
            for i in range(2):
                for k in range(n_topics):
                    # From here on, ``gradient`` holds the product of H and the direction.
                    gradient[i, k] = factor * gradient[i, k] - factor * gradient_behind[i, k]
                    curvature += direction[i, k] * gradient[i, k]
            if not curvature > 0.0:
                break
            step_length, last_residual_norm2 = residual_norm2 / curvature, residual_norm2
            residual_norm2, direction_norm2 = 0.0, 0.0
            for i in range(2):
                for k in range(n_topics):
                    step[i, k] += step_length * direction[i, k]
                    residual[i, k] -= step_length * gradient[i, k]
                    residual_norm2 += residual[i, k] * residual[i, k]
            ratio = residual_norm2 / last_residual_norm2
            for i in range(2):
                for k in range(n_topics):
                    direction[i, k] = ratio * direction[i, k] + residual[i, k]
                    direction_norm2 += direction[i, k] * direction[i, k]
    return largest_entry


@jit_allocating
def add_pair_losses(
    indptr: IndexArray, words: IndexArray, counts: Array, row_weights: Array, topic_weights: Array,
    word_weights: Array, tokens: Array, pairs: IndexArray, min_tokens: float, start: int, stop: int,
    losses: Array,
) -> None:  # fmt: skip
    """Add to ``losses[p]`` the entropy of q(z), in nats, that is lost if pair p of topics merges.

    The loss is summed over documents ``start`` to ``stop`` - 1 that have at least
    ``min_tokens`` tokens of both topics a and b of the pair. Document d has the words
    ``words[i]`` with the counts ``counts[i]`` for i from ``indptr[d]`` to ``indptr[d + 1]`` - 1.
    The share of topic k in the tokens of word v is

        r_dvk = topic_weights_dk word_weights_vk / sum_l topic_weights_dl word_weights_vl,

    and the loss is, with r_k for r_dvk,

        sum_dv row_weights_d counts_dv ((r_a + r_b) log(r_a + r_b) - r_a log r_a - r_b log r_b).

    ``topic_weights`` and ``tokens`` are (N, K), ``word_weights`` is (V, K), ``pairs`` is (P, 2) and
    ``losses`` is (P,).
    """
    n_topics = word_weights.shape[1]
    # 1 / sum_l topic_weights_dl word_weights_vl of each word v of document d, if a pair needs it.
    inverse_sums = np.empty(0)
    for d in range(start, stop):
        first, end = indptr[d], indptr[d + 1]
        has_sums = False
        for p in range(pairs.shape[0]):
            a, b = pairs[p, 0], pairs[p, 1]
            if min(tokens[d, a], tokens[d, b]) < min_tokens:
                continue
            if not has_sums:
                has_sums = True
                if inverse_sums.size < end - first:
                    inverse_sums = np.empty(end - first)
                for j in range(end - first):
                    sum_of_products = 0.0
                    word = words[first + j]
                    for k in range(n_topics):
                        sum_of_products += topic_weights[d, k] * word_weights[word, k]
                    inverse_sums[j] = 1.0 / sum_of_products
            document_loss = 0.0
            for j in range(end - first):
                word = words[first + j]
                r_a = inverse_sums[j] * topic_weights[d, a] * word_weights[word, a]
                r_b = inverse_sums[j] * topic_weights[d, b] * word_weights[word, b]
                if min(r_a, r_b) > 0.0:
                    token_loss = r_a * log(1.0 + r_b / r_a) + r_b * log(1.0 + r_a / r_b)
                    document_loss += counts[first + j] * token_loss
            losses[p] += row_weights[d] * document_loss
