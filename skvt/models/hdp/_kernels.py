"""Compiled loops of the hierarchical Dirichlet process.

They compute the bound of the sticks and its maximum, which takes dozens of evaluations for each
batch, and the entropy that is lost if two topics merge.
"""

import numpy as np

from skvt.compiled import digamma, exp, gammaln, jit, jit_allocating, log, part, polynomial
from skvt.typing import Array, IndexArray

# Largest absolute value of the logit of E[u_k].
LARGEST_LOGIT = 300.0
# Smallest log(a_k + b_k) of q(u_k) = Beta(a_k, b_k).
SMALLEST_LOG_SIZE = -30.0
# Above this, asymptotic series are exact to rounding.
_LARGE = 8.0
_HALF_LOG_TWO_PI = 0.5 * np.log(2.0 * np.pi)


@part
def trigamma(x: float) -> float:
    """Derivative of digamma at x > 0: eight recurrence steps, then the asymptotic series."""
    r = 0.0
    for i in range(8):
        r += 1.0 / ((x + i) * (x + i))
    z = 1.0 / ((x + 8.0) * (x + 8.0))
    p = polynomial(z, (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6))
    y = 1.0 / (x + 8.0)
    return r + y + 0.5 * z + p * z * y


@part
def _shares(logit: float) -> tuple[float, float]:
    """Return E[u] and 1 - E[u] for these log odds; the smaller one is exact to the last digit."""
    small = exp(-abs(logit))
    share, rest = 1.0 / (1.0 + small), small / (1.0 + small)
    return (share, rest) if logit >= 0.0 else (rest, share)


@part
def _trigamma_excess(x: float) -> float:
    """Return ``x^2 (trigamma(x) - 1 / x)`` at x > 0, from 1 for small x to 1/2 for large x."""
    y = 1.0 / max(x, _LARGE)
    p = polynomial(y * y, (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6))
    return 0.5 + y * p if x > _LARGE else x * x * trigamma(x) - x


@part
def _digamma_excess(x: float) -> float:
    """Return ``x (digamma(x) - log x)`` at x > 0, from -1 for small x to -1/2 for large x."""
    y = 1.0 / max(x, _LARGE)
    p = polynomial(y * y, (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12))
    return -0.5 - y * p if x > _LARGE else x * (digamma(x) - log(x))


@part
def _gammaln_excess(x: float) -> float:
    """Return ``log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2`` at x > 0, 0 for large x."""
    y = 1.0 / max(x, _LARGE)
    p = polynomial(y * y, (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12))
    return y * p if x > _LARGE else gammaln(x) - (x - 0.5) * log(x) + x - _HALF_LOG_TWO_PI


@part
def _stick_terms(
    share: float, rest: float, size: float, gamma: float
) -> tuple[float, float, float]:
    """Return ``E[log u] - log E[u]``, ``E[log(1 - u)] - log E[1 - u]`` and ``KL(q(u) || p(u))``.

    q(u) = Beta(a, b) with a = share * size and b = rest * size; p(u) = Beta(1, gamma).

    With many documents a and b are huge. The terms log Gamma of the divergence then exceed the
    divergence so much that only their rounding would remain. Therefore (a - 1/2) log a and similar
    parts, which cancel between the terms, are left out of each.
    """
    a, b = share * size, rest * size
    of_a, of_b, of_size = _digamma_excess(a), _digamma_excess(b), _digamma_excess(size)
    more_u, more_rest = of_a / a - of_size / size, of_b / b - of_size / size
    log_share, log_rest = log(share), log(rest)
    divergence = of_a + of_b - of_size - more_u - gamma * more_rest
    divergence -= _gammaln_excess(a) + _gammaln_excess(b) - _gammaln_excess(size)
    divergence += 0.5 * log(b) - 0.5 * log_share - gamma * log_rest - _HALF_LOG_TWO_PI - log(gamma)
    return more_u, more_rest, divergence


@jit
def stick_divergence(sticks: Array, gamma: float) -> float:
    """Return the sum over sticks (K, 2) of KL(Beta(a_k, b_k) || Beta(1, gamma)), in nats."""
    total = 0.0
    for k in range(sticks.shape[0]):
        size = sticks[k, 0] + sticks[k, 1]
        total += _stick_terms(sticks[k, 0] / size, sticks[k, 1] / size, size, gamma)[2]
    return total


@jit
def stick_bound(
    logit: Array, log_size: Array, usage: Array, n_documents: float, alpha: float, gamma: float,
    least: float,
) -> float:  # fmt: skip
    """Return the bound of q(u) up to a constant, in nats.

    ``a + b = exp(log_size)`` and ``a / b = exp(logit)``. With c = alpha E[beta], it is

        sum_{k <= K+1} { D (E[log beta_k] - log E[beta_k]) + n_k log c_k + c_k slope_k
                         + traces_k psi(c_k) + (D - n_k) log Gamma(1 + c_k) } - KL(q(u) || p(u)),

    where column 0 of ``usage`` (K, 3) is slope, column 1 is traces and column 2 is n. For the rest,
    k = K + 1, n = slope = traces = 0. The terms are grouped so that D log beta_k, which is huge for
    a small weight, cancels before it is computed.
    """
    n_topics = logit.size
    value, remaining = 0.0, 1.0
    for k in range(n_topics):
        share, rest = _shares(logit[k])
        c = alpha * max(share * remaining, least)
        remaining *= rest
        value += c * usage[k, 0] + usage[k, 1] * digamma(c) + usage[k, 2] * log(c)
        value += (n_documents - usage[k, 2]) * gammaln(1.0 + c)
        more_u, more_rest, divergence = _stick_terms(share, rest, exp(log_size[k]), gamma)
        later = n_documents * (n_topics - k)
        value += n_documents * more_u + later * more_rest - divergence
    return value + n_documents * gammaln(1.0 + alpha * max(remaining, least))


@jit
def stick_slope(
    x: Array, far: float, direction: Array, scale: Array, usage: Array, n_documents: float,
    alpha: float, gamma: float, least: float, out: Array,
) -> None:  # fmt: skip
    """Write minus the gradient of :func:`stick_bound` at ``x + far * direction`` to ``out``.

    ``x[0]`` is ``logit * scale[0]`` and ``x[1]`` is ``log_size * scale[1]``; the gradient is with
    respect to x. All arrays are (2, K).
    """
    n_topics = x.shape[1]
    remaining = 1.0
    for k in range(n_topics):
        logit = (x[0, k] + far * direction[0, k]) / scale[0, k]
        out[1, k] = min(max(logit, -LARGEST_LOGIT), LARGEST_LOGIT)  # kept for the second loop
        share, rest = _shares(out[1, k])
        c = alpha * max(share * remaining, least)
        remaining *= rest
        # Terms in c_k only; D (E[log beta] - log E[beta]) follows in the second loop.
        out[0, k] = c * (usage[k, 0] + usage[k, 1] * trigamma(c))
        out[0, k] += c * (n_documents - usage[k, 2]) * digamma(c)
    c = alpha * max(remaining, least)
    after = c * n_documents * digamma(c)
    for i in range(n_topics):
        k = n_topics - 1 - i
        pull = out[0, k]
        share, rest = _shares(out[1, k])
        log_size = (x[1, k] + far * direction[1, k]) / scale[1, k]
        size = exp(min(max(log_size, SMALLEST_LOG_SIZE), LARGEST_LOGIT))
        a, b = share * size, rest * size
        of_u, of_rest = n_documents + 1.0, n_documents * (n_topics - k) + gamma
        # Only the excess of trigamma over 1 / x enters: the terms with 1 / x are as large as the
        # number of documents and a + b, and cancel.
        by_a = _trigamma_excess(a) * (of_u / a - 1.0)
        by_b = _trigamma_excess(b) * (of_rest / b - 1.0)
        by_size = _trigamma_excess(size) * ((of_u + of_rest) / size - 1.0)
        by_logit = rest * (of_u + by_a + pull) - share * (of_rest + by_b + after)
        out[0, k] = -by_logit / scale[0, k]
        out[1, k] = -(by_a + by_b - by_size) / scale[1, k]
        after += pull


@jit_allocating
def near_sticks(usage: Array, n_documents: float, alpha: float, gamma: float, out: Array) -> None:
    """Write a starting point near the best q(u) to ``out`` (2, K).

    ``out[0]`` has the logits of E[u_k], ``out[1]`` the logarithms of a_k + b_k. If q(u) were a
    point, its optimum would be beta_k = ``parts_k / (level - rise_k)`` with the multiplier
    ``level`` for which these sum to 1; bisection finds it.
    """
    n_topics = usage.shape[0]
    parts, rise = np.empty(n_topics + 1), np.empty(n_topics + 1)
    for k in range(n_topics):
        parts[k] = usage[k, 2] + 1.0
        rise[k] = alpha * (usage[k, 0] - np.euler_gamma * (n_documents - usage[k, 2]))
    parts[n_topics] = gamma
    rise[n_topics] = -alpha * np.euler_gamma * n_documents
    low, largest, total = -np.inf, -np.inf, 0.0
    for k in range(n_topics + 1):
        low = max(low, rise[k] + parts[k])
        largest = max(largest, rise[k])
        total += parts[k]
    high = largest + total
    for _ in range(100):  # the sum falls from >= 1 at low to <= 1 at high
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        total = 0.0
        for k in range(n_topics + 1):
            total += parts[k] / (middle - rise[k])
        if total > 1.0:
            low = middle
        else:
            high = middle
    remaining = parts[n_topics] / (high - rise[n_topics])
    for i in range(n_topics):
        k = n_topics - 1 - i
        ratio = parts[k] / (high - rise[k]) / remaining
        remaining *= 1.0 + ratio
        out[0, k] = log(ratio)
        # The best a + b given E[u], to second order for large a and b.
        after = n_documents * (n_topics - k) + gamma
        out[1, k] = log((n_documents + 1.0) / ratio + after * ratio)


@jit
def climb_sticks(
    x: Array, scale: Array, usage: Array, n_documents: float, alpha: float, gamma: float,
    least: float, enough: float, n_steps: int, n_polish: int, n_conjugate: int, difference: float,
    scratch: Array,
) -> float:  # fmt: skip
    """Improve x (2, K) by Newton's method while the gradient shrinks; return its largest entry.

    The bound is flat to rounding within the square root of eps of its maximum, so that gradients
    alone judge the progress. Each step solves ``H step = -gradient`` by conjugate gradients, where
    H v comes from differences of gradients. Once no entry of the gradient is above ``enough``,
    ``n_polish`` more steps are taken with a tighter tolerance. ``scratch`` is (5, 2, K).
    """
    # Explicit loops: each expression of arrays would add half a second of compilation.
    problem = scale, usage, n_documents, alpha, gamma, least
    slope, back, direction, residual, step = (
        scratch[0], scratch[1], scratch[2], scratch[3], scratch[4],
    )  # fmt: skip
    n_topics = x.shape[1]
    for i in range(2):
        for k in range(n_topics):
            step[i, k] = 0.0
    largest, before, polished = 0.0, np.inf, 0
    for taken in range(n_steps + 1):
        stick_slope(x, 1.0, step, *problem, slope)
        size, now_largest = 0.0, 0.0
        for i in range(2):
            for k in range(n_topics):
                size += slope[i, k] * slope[i, k]
                now_largest = max(now_largest, abs(slope[i, k]))
        if taken > 0 and not size < before:
            break
        before, largest = size, np.nan if np.isnan(size) else now_largest
        for i in range(2):
            for k in range(n_topics):
                x[i, k] += step[i, k]
                residual[i, k] = direction[i, k] = -slope[i, k]
                step[i, k] = 0.0
        close = largest <= enough
        if taken == n_steps or (close and polished == n_polish):
            break
        polished += close
        smallest = (1e-16 if close else 1e-4) * size
        of_direction = size
        for _ in range(n_conjugate):
            if size <= smallest:
                break
            unit = difference / np.sqrt(of_direction)
            stick_slope(x, unit, direction, *problem, slope)
            stick_slope(x, -unit, direction, *problem, back)
            half, curvature = 0.5 / unit, 0.0
            for i in range(2):
                for k in range(n_topics):
                    slope[i, k] = half * slope[i, k] - half * back[i, k]
                    curvature += direction[i, k] * slope[i, k]
            if not curvature > 0.0:
                break
            length, size_before, size, of_direction = size / curvature, size, 0.0, 0.0
            for i in range(2):
                for k in range(n_topics):
                    step[i, k] += length * direction[i, k]
                    residual[i, k] -= length * slope[i, k]
                    size += residual[i, k] * residual[i, k]
            share = size / size_before
            for i in range(2):
                for k in range(n_topics):
                    direction[i, k] = share * direction[i, k] + residual[i, k]
                    of_direction += direction[i, k] * direction[i, k]
    return largest


@jit_allocating
def pair_losses(
    indptr: IndexArray, words: IndexArray, counts: Array, row_weights: Array, weights: Array,
    table: Array, tokens: Array, pairs: IndexArray, least: float, start: int, stop: int,
    loss: Array,
) -> None:  # fmt: skip
    """Add to loss[p] the entropy of q(z), in nats, that is lost if the p-th pair of topics merges.

    With w_d the ``row_weights`` and n_dj the ``counts``, it is
    ``sum_dj w_d n_dj ((r_a + r_b) log(r_a + r_b) - r_a log r_a - r_b log r_b)`` with
    ``r_djk = weights_dk table_jk / sum_k weights_dk table_jk``, over documents that have at least
    ``least`` tokens of both, from ``start`` to ``stop``.
    """
    n_topics = table.shape[1]
    ratio = np.empty(0)
    for d in range(start, stop):
        lo, hi = indptr[d], indptr[d + 1]
        begun = False
        for p in range(pairs.shape[0]):
            a, b = pairs[p, 0], pairs[p, 1]
            if min(tokens[d, a], tokens[d, b]) < least:
                continue
            if not begun:
                begun = True
                if ratio.size < hi - lo:
                    ratio = np.empty(hi - lo)
                for j in range(hi - lo):
                    norm = 0.0
                    row = words[lo + j]
                    for k in range(n_topics):
                        norm += weights[d, k] * table[row, k]
                    ratio[j] = 1.0 / norm
            value = 0.0
            for j in range(hi - lo):
                row = words[lo + j]
                one = ratio[j] * weights[d, a] * table[row, a]
                other = ratio[j] * weights[d, b] * table[row, b]
                if min(one, other) > 0.0:
                    part = one * log(1.0 + other / one) + other * log(1.0 + one / other)
                    value += counts[lo + j] * part
            loss[p] += row_weights[d] * value
