"""The correction V(beta, lam) of structured inference for Dirichlet globals [HB15 sec. 2.4].

With ``global_step="ssvi"``, topic models and mixtures multiply the statistics of a batch by V, by
calls of :func:`correct_statistics`. A draw beta from Dirichlet(lam) consists of normalised gamma
variates, ``beta_v = b_v / sum b``. If the quantile of b_v is held fixed, b_v is a function of its
shape lam_v. Let ``hat`` be the expected counts of a batch under beta. Their log probability
``sum_v hat_v log beta_v`` has the gradient

    grad_u = (d log b_u / d lam_u) (hat_u - beta_u sum_v hat_v)

with respect to lam. In natural coordinates this is ``V hat = F^-1 grad`` with the Fisher
information of the Dirichlet, ``F = diag(psi'(lam)) - psi'(sum lam) 1 1'``, where psi is the digamma
function. V is the identity on average over the draw of beta.

There are K topics beta and V words; u and v number words. In the compiled loops, ``claim_items``
yields the items that the present thread takes from the shared ``counter``.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import polygamma

from skvt._compiled import (
    SharedLoop,
    claim_items,
    digamma,
    exp,
    jit,
    jit_allocating,
    jit_inlined,
    jit_inlined_allocating,
    run_serially,
    trigamma,
)
from skvt.typing import Array, IndexArray, Run

# Gauss-Legendre nodes and weights, moved from [-1, 1] to [0, 1].
_NODES, _NODE_WEIGHTS = 0.5 * np.array(np.polynomial.legendre.leggauss(16)) + [[0.5], [0.0]]
# Quadrature stops where the density is exp(-_MAX_FALL) times its value at the start.
_MAX_FALL = 20.0
# Number of terms of the power series after the first term, which is 1. The next term would be at
# most e^18 / 18!.
_N_TERMS = 17
# Shape above which the cube root of a gamma variate is normal up to rounding errors.
_NEARLY_NORMAL = 1e6
# Sum of lam above which rounding errors would dominate ``1 - psi'(sum lam) sum(1 / psi'(lam))``.
_LARGE_TOTAL = 1e8
# Number of words that a thread takes at a time.
_WORDS_PER_CLAIM = np.int64(16)


class Gammas(NamedTuple):
    """Gamma variates of rate 1 from which K topics are formed.

    The variates of A listed words are known. Of the variates of all other words, only the sum is
    known.
    """

    # (A, K): logarithms of the variates of the listed words.
    logs: Array
    # (K,), float64: logarithms of the sums of the variates over all words.
    log_totals: Array
    # (K,) each, float64: shape and logarithm of the sum of the variates of all other words, which
    # is a gamma variate, too. Both are None if all words are listed.
    shapes_of_others: Array | None = None
    logs_of_others: Array | None = None
    # (A,): numbers of the listed words in the vocabulary; None if all words are listed.
    rows: IndexArray | None = None

    @classmethod
    def from_logs(cls, logs: Array) -> Self:
        """Return the variates of all words, given their logarithms (V, K)."""
        return cls(logs, np.logaddexp.reduce(logs, dtype=np.float64))


@jit
def write_log_gamma_slopes(a: Array, log_x: Array, out: Array) -> None:
    """Write slopes ``d log x / d a`` of Gamma(a, 1) variates x at fixed quantiles to ``out``.

    All arrays are (n,). With the distribution function P(a, x), the slope is ``-(dP/da) / (x
    dP/dx)``. It is computed by the power series of P for x <= e, by the normal approximation of
    Wilson and Hilferty (1931) for greater x of very large shapes, and otherwise by quadrature. The
    relative error is below 2e-7 for a >= 1e-3.
    """
    for i in range(a.size):
        # P is x^a exp(-x) S / Gamma(a + 1) with the series S = sum_n x^n / ((a + 1) ... (a + n)).
        # Compute S as a fraction p / q by Horner's scheme, together with the derivatives of p and q
        # in a, so that a single division is needed. From the inside out, each step replaces S by
        # ``1 + x S / factor``: q becomes ``factor q``, and p becomes the new q plus ``x p``. The
        # derivative dq is updated before q, because it depends on the old q.
        x = exp(min(log_x[i], 1.0))
        p, q, dp, dq = 1.0, 1.0, 0.0, 0.0
        for step in range(_N_TERMS):
            factor = a[i] + (_N_TERMS - step)
            dq = q + factor * dq
            q *= factor
            dp = dq + x * dp
            p = q + x * p
        # The factor x^a exp(-x) / Gamma(a) cancels, so that the slope of log x is
        # ``-((S / a) (log x - psi(a)) + d(S / a) / da)``.
        inverse_q, inverse_a = 1.0 / q, 1.0 / a[i]
        series = p * inverse_q
        # ``a d(S / a) / da``.
        scaled_derivative = (dp - series * dq) * inverse_q - series * inverse_a
        out[i] = -inverse_a * (series * (log_x[i] - digamma(a[i])) + scaled_derivative)
    _write_slopes_of_large(a, log_x, out)


@jit_inlined_allocating
def _write_slopes_of_large(a: Array, log_x: Array, out: Array) -> None:
    """Write the slopes of variates x > e to ``out``, and keep all other entries of ``out``.

    The derivative of the distribution function is an integral over the lower or the upper tail of
    the density p,

        dP/da = int_0^x (log t - psi(a)) p(t) dt = -int_x^inf (log t - psi(a)) p(t) dt.

    The lower tail is taken for x <= a, and the upper tail otherwise. Quadrature is over s, where
    ``t = x exp(s)``.
    """
    # List the entries with x > e. Conditional expressions take the place of branches, so that the
    # compiler vectorises the loops.
    entries = np.empty(a.size, np.int64)
    n = 0
    for i in range(a.size):
        entries[n] = i
        n += 1 if log_x[i] > 1.0 else 0
    # The intervals of s begin at 0 and end at ``lengths``, which are negative in the lower tail.
    # ``log_terms`` first hold log(x). The second of the next loops replaces log(x) by
    # log(x) - psi(a), with the sign reversed in the lower tail.
    x, shapes, log_terms, lengths = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    integrals = np.zeros(n)
    for j in range(n):
        shapes[j], log_terms[j] = a[entries[j]], log_x[entries[j]]
    for j in range(n):
        x_j, shape = exp(log_terms[j]), shapes[j]
        sign = -1.0 if x_j <= shape else 1.0
        # The interval ends where the log density is at least _MAX_FALL below its value at s = 0.
        # Each of the following lengths |s| is the solution of an equation ``fall = _MAX_FALL``, in
        # which ``fall`` is a lower limit of the fall of the log density.
        c = _MAX_FALL / x_j
        # In the lower tail, the log density falls by at least x s^2 / (2 + |s|).
        lower_length = 0.5 * (c + np.sqrt(c * c + 8.0 * c))
        # In the upper tail, it falls by at least x s^2 / 2.
        upper_length = np.sqrt(2.0 * c)
        # In both tails, it falls by at least |s (a - x)|. The length is infinite if x = a.
        linear_length = _MAX_FALL / abs(shape - x_j)
        lengths[j] = sign * min(lower_length if x_j <= shape else upper_length, linear_length)
        x[j] = x_j
        log_terms[j] = sign * (log_terms[j] - digamma(shape))
    for i in range(_NODES.size):
        for j in range(n):
            s = lengths[j] * _NODES[i]
            # The integrand is the product of ``t p(t) / (x p(x))`` and of log t - psi(a), with the
            # sign reversed in the lower tail. The factor t comes from ``dt = t ds``.
            relative_density = exp(x[j] + shapes[j] * s - x[j] * exp(s))
            integrals[j] += _NODE_WEIGHTS[i] * (abs(s) + log_terms[j]) * relative_density
    for j in range(n):
        shape = shapes[j]
        if shape > _NEARLY_NORMAL:
            # The cube root w of x / a is 1 - 1 / (9 a) + z / (3 sqrt(a)) with a normal variate z.
            # At a fixed quantile, z is a constant, so that w has the derivative
            # ``w' = 1 / (18 a^2) - (w - 1) / (2 a)`` in a. Since log x is log a + 3 log w, its
            # derivative is ``1 / a + 3 w' / w``.
            w = exp((log_x[entries[j]] - np.log(shape)) / 3.0)
            out[entries[j]] = (1.0 + (1.0 / (6.0 * shape) - 1.5 * (w - 1.0)) / w) / shape
        else:
            out[entries[j]] = abs(lengths[j]) * integrals[j]


@jit_inlined
def _write_series(a: float, coefficients: Array) -> None:
    """Write the coefficients of the power series S / a in x, and of its derivative in a.

    S is the series in :func:`write_log_gamma_slopes`. ``coefficients`` is (_N_TERMS + 1, 2), with
    the highest power first.
    """
    value, slope = 1.0 / a, -1.0 / (a * a)
    for n in range(_N_TERMS + 1):
        if n > 0:
            slope = (slope - value / (a + n)) / (a + n)
            value /= a + n
        coefficients[_N_TERMS - n, 0], coefficients[_N_TERMS - n, 1] = value, slope


@jit_inlined
def _write_slopes_of_equal_shapes(
    coefficients: Array, digamma_of_shape: float, log_x: Array, out: Array
) -> None:
    """Write slopes, as :func:`write_log_gamma_slopes`, of variates x <= e that have the same shape.

    ``coefficients`` are those of :func:`_write_series` at this shape. The slopes written for
    greater x are wrong, and the caller must replace them.
    """
    for i in range(log_x.size):
        x = exp(min(log_x[i], 1.0))
        value, slope = 0.0, 0.0
        for step in range(_N_TERMS + 1):
            value = coefficients[step, 0] + x * value
            slope = coefficients[step, 1] + x * slope
        out[i] = -(value * (log_x[i] - digamma_of_shape) + slope)


@jit_allocating
def _write_gradients(
    array: Array, scale: float, prior: Array, log_gammas: Array, log_totals: Array, hat: Array,
    row_of_word: IndexArray, hat_totals: Array, gradients_of_others: Any, out: Array,
    inverses: Array, sums: Array, counter: IndexArray,
) -> None:  # fmt: skip
    """Write ``grad / psi'(lam)`` to ``out`` and ``1 / psi'(lam)`` to ``inverses``, both (V, K).

    Parameters
    ----------
    array, scale, prior : (V, K), number and (V,); lam = prior[:, None] + scale * array
    log_gammas : (A, K) logarithms of the variates of the listed words
    hat : (A, K) statistics of the listed words
    log_totals, hat_totals : (K,) logarithms of the sums of the variates, and sums of the
        statistics, over all words
    row_of_word : (V,) row of each word in ``log_gammas`` and ``hat``; -1 for words without a row
    gradients_of_others : (K,) grad of each word without a row
    out, inverses : (V, K) outputs
    sums : (B, 3, K) output, sums of ``out``, ``inverses`` and lam over each block of
        _WORDS_PER_CLAIM words
    """
    n_topics = array.shape[1]
    lam, logs, slopes = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    # The next arrays list entries (v, k) of a block, and their lam, log gammas and slopes.
    block_size = _WORDS_PER_CLAIM * n_topics
    entries, entry_slopes = np.empty(block_size, np.int64), np.empty(block_size)
    shapes, log_x = np.empty(block_size), np.empty(block_size)
    coefficients = np.empty((_N_TERMS + 1, 2))
    # The prior for which ``coefficients`` and the two numbers after it have been computed.
    last_eta, digamma_eta, inverse_eta = -1.0, 0.0, 0.0
    for block in claim_items(counter, np.int64(1), len(sums)):
        start = block * _WORDS_PER_CLAIM
        stop = min(start + _WORDS_PER_CLAIM, len(array))
        block_sums = sums[block]
        block_sums[:] = 0.0
        gradient_sums, inverse_sums, lam_sums = block_sums[0], block_sums[1], block_sums[2]
        # First treat each entry as if its lam were the prior, as for most words of a topic, and its
        # variate at most e. Functions of lam are then computed only once. List the n entries for
        # which this is false, and compute them again.
        n = 0
        for v in range(start, stop):
            eta, row = np.float64(prior[v]), row_of_word[v]
            # A prior of 0 keeps the coefficients of an earlier prior, ``last_eta``. They are right
            # for entries whose lam is ``last_eta``, and all other entries are listed below.
            if eta != last_eta and eta > 0.0:
                last_eta, digamma_eta, inverse_eta = eta, digamma(eta), 1.0 / trigamma(eta)
                _write_series(eta, coefficients)
            for k in range(n_topics):
                lam[k] = eta + scale * np.float64(array[v, k])
                inverses[v, k] = inverse_eta
                lam_sums[k] += lam[k]
            if row >= 0:
                for k in range(n_topics):
                    logs[k] = log_gammas[row, k]
                _write_slopes_of_equal_shapes(coefficients, digamma_eta, logs, slopes)
                for k in range(n_topics):
                    out[v, k] = slopes[k]
            else:
                # The entries of this word need no slopes, so that any finite number will do.
                logs[:] = 0.0
            first_entry = (v - start) * n_topics
            for k in range(n_topics):
                # To avoid a branch, always write the entry, but count it only if it is needed.
                entries[n], shapes[n], log_x[n] = first_entry + k, lam[k], logs[k]
                n += 1 if (lam[k] != last_eta) | (logs[k] > 1.0) else 0
        # Compute the listed entries. After the slopes, ``shapes`` is reused for 1 / psi'(lam).
        write_log_gamma_slopes(shapes[:n], log_x[:n], entry_slopes[:n])
        for j in range(n):
            shapes[j] = 1.0 / trigamma(shapes[j])
        for j in range(n):
            v, k = start + entries[j] // n_topics, entries[j] % n_topics
            out[v, k], inverses[v, k] = entry_slopes[j], shapes[j]
        # Turn slopes into gradients, divide them by psi'(lam), and add up the block.
        for v in range(start, stop):
            row = row_of_word[v]
            if row >= 0:
                for k in range(n_topics):
                    beta = exp(log_gammas[row, k] - log_totals[k])
                    out[v, k] *= hat[row, k] - beta * hat_totals[k]
            else:
                for k in range(n_topics):
                    out[v, k] = gradients_of_others[k]
            for k in range(n_topics):
                out[v, k] *= inverses[v, k]
            for k in range(n_topics):
                gradient_sums[k] += out[v, k]
                inverse_sums[k] += inverses[v, k]


@jit
def _add_multiples(out: Array, inverses: Array, factors: Array, counter: IndexArray) -> None:
    """Add ``factors * inverses`` to ``out``, for ``factors`` (K,) and two arrays (V, K)."""
    for v in claim_items(counter, _WORDS_PER_CLAIM, out.shape[0]):
        for k in range(factors.size):
            out[v, k] += factors[k] * inverses[v, k]


def correct_statistics(
    array: Array, gammas: Gammas, hat: Array, run: Run = run_serially, *, scale: float = 1.0,
    prior: Array | None = None, max_common: float | Array = np.inf,
) -> Array:  # fmt: skip
    """Return ``V(beta, lam) hat`` of each topic [HB15 eq. 7], (V, K), float64.

    V is the identity on average only. If the statistics of a word exceed its lam by orders of
    magnitude, the result can be much larger than the statistics. The reason is the common part of
    the result, a multiple of ``1 / psi'(lam)`` with one factor for all words of a topic.
    ``max_common`` limits the common part.

    Parameters
    ----------
    array : Array
        The parameters of q(beta_k) are ``lam = prior + scale * array``, (V, K), a column for each
        topic. ``scale * array`` are the statistics of the topics, as in
        :class:`~skvt.expfam.RunningStats`. Without ``prior`` and ``scale``, the array is lam.
    gammas : Gammas
        The variates of which the topics were made. The words that are not listed have statistics of
        0, so that only the sum of their variates matters, and all of them have the same gradient.
    hat : Array
        Statistics (A, K) of the words with listed variates.
    run : Run
        Runs the loops over words.
    scale : float
        Factor of ``array`` in lam.
    prior : Array or None
        Term of lam for each word, (V,), or for each word and topic, (V, K). None stands for zeros.
    max_common : float or Array
        Maximum, for each topic, of the sum of the common part over words, in absolute value.
    """
    array, hat, logs = (np.ascontiguousarray(values) for values in (array, hat, gammas.logs))
    n_words, n_topics = array.shape
    # A topic of one word has no parameter to correct for.
    if n_words == 1:
        return hat
    if prior is None:
        prior = np.zeros(n_words)
    # The compiled loop takes one prior for all topics. If topics differ, ``array`` becomes lam.
    if prior.ndim == 2:
        array = prior + scale * array
        scale = 1.0
        prior = np.zeros(n_words)
    row_of_word = np.full(n_words, -1)
    row_of_word[slice(None) if gammas.rows is None else gammas.rows] = np.arange(len(hat))
    hat_totals = hat.sum(axis=0, dtype=np.float64)
    gradients_of_others = np.zeros(n_topics)
    if len(hat) < n_words:
        # The variates of other words exist if some words are not listed.
        assert gammas.shapes_of_others is not None and gammas.logs_of_others is not None
        write_log_gamma_slopes(gammas.shapes_of_others, gammas.logs_of_others, gradients_of_others)
        gradients_of_others *= -hat_totals * np.exp(gammas.logs_of_others - gammas.log_totals)
    out, inverses = np.empty((2, n_words, n_topics))
    sums = np.empty((-(-n_words // _WORDS_PER_CLAIM), 3, n_topics))
    # The items of the first loop are the blocks of words, which a thread takes one at a time.
    # `SharedLoop` appends the last argument of the function, the counter.
    run(_write_gradients, SharedLoop(
        len(sums), 1, array, scale, prior, logs, gammas.log_totals, hat, row_of_word, hat_totals,
        gradients_of_others, out, inverses, sums,
    ))  # fmt: skip
    gradient_sums, inverse_sums, lam_sums = sums.sum(axis=0)
    # Compute F^-1 grad by the formula of Sherman and Morrison: add a multiple of 1 / psi'(lam),
    # the common part, to grad / psi'(lam).
    trigamma_sums = polygamma(1, lam_sums)
    denominators = 1.0 - trigamma_sums * inverse_sums
    is_large = lam_sums > _LARGE_TOTAL
    if is_large.any():
        denominators[is_large] = trigamma_sums[is_large] * _compute_trigamma_excess(
            prior[:, None] + scale * array[:, is_large], inverses[:, is_large], lam_sums[is_large]
        )
    limit = max_common / inverse_sums
    factors = np.clip(trigamma_sums * gradient_sums / denominators, -limit, limit)
    run(_add_multiples, SharedLoop(n_words, _WORDS_PER_CLAIM, out, inverses, factors))
    return out


def _compute_trigamma_excess(lam: Array, inverses: Array, lam_sums: Array) -> Array:
    """Return ``1 / psi'(sum lam) - sum 1 / psi'(lam)`` of each column of ``lam`` (V, K).

    ``inverses`` are 1 / psi'(lam). Since ``1 / psi'(x)`` is x - 1/2 plus a small remainder, about
    1 / (12 x) for large x, the large terms of the difference cancel exactly and are left out.
    """
    remainders = np.where(lam < _NEARLY_NORMAL, inverses - lam + 0.5, 1.0 / (12.0 * lam))
    return 0.5 * (len(lam) - 1.0) + 1.0 / (12.0 * lam_sums) - remainders.sum(axis=0)
