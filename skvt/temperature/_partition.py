"""The tempered log partition function log C(T) of VT16 (section 3.3, appendices A and B.1).

Variational tempering divides the tempered joint p(x, z | beta)^(1/T) p(beta) by its integral over
everything, the data included:

    C(T) = int dbeta p(beta) int dx dz p(x, z | beta)^inv_temp,    inv_temp = 1/T.    [VT16 eq. 13]

C(1) = 1, log C grows with T, and it is convex in inv_temp. Everything here is in nats and is the
total over the corpus; functions take inverse temperatures, an array of shape (M,) in (0, 1].

For latent Dirichlet allocation, D documents of N tokens each (VT16's simplification: N is the
corpus' mean length),

    C(T) = E_topics[(E_theta[g^N])^D],  theta ~ Dir(alpha),  topics_k ~ Dir(eta),    [VT16 app. B.1]

where ``g``, one token's sum, comes in two forms: with the assignment z summed out before tempering,

    "multinomial"    g = sum_v (sum_k theta_k topics_kv)^inv_temp                      [VT16 eq. 17]

or with z kept, as in the updates of VT16 app. B.2,

    "joint"          g = sum_kv (theta_k topics_kv)^inv_temp.

Two statements of VT16 do not hold and are mended here:

- Appendix B.1 calls N D log E[g] an *upper* bound. x^N and x^D are convex, so that Jensen's
  inequality gives E[g^N] >= E[g]^N: it is a lower bound, the tighter one of the two:
  N D E[log g] <= N D log E[g] <= log C(T), with equality on the right for a corpus of one token.
  A valid upper bound is the largest value of g, N D (1 - inv_temp) log V ("multinomial") or
  log(K V) ("joint"), method "ceiling". As N and D both grow at fixed K and V, log C(T) / (N D)
  tends to the ceiling's: the flattest proportions and topics, however rare, take over.
- Equation 15 (MAP) has the wrong sign: appendix A.1's exp(-N a(beta) / T + N a(beta / T)) at one
  point beta* gives log C(T) = N (a(beta* / T) - a(beta*) / T), which is positive for T > 1.
"""

import math
from numbers import Integral, Real

import numpy as np

from skvt.expfam import Dirichlet

FORMS = ("joint", "multinomial")
METHODS = ("closed_form", "nested", "log_mean", "mean_log", "map", "ceiling")
_MONTE_CARLO = ("nested", "log_mean", "mean_log")

# Entries of the largest temporary matrix (2 MB): topics are drawn and used by blocks of columns.
_BLOCK_SIZE = 2**18
# Below this a sum of underflowing products is not trusted.
_SMALLEST_SUM = 1e-290


# --------------------------------------------------------------------------------------------------
# LDA: the public face
# --------------------------------------------------------------------------------------------------


def log_partition_lda(
    inverse_temperatures,
    alpha,
    eta,
    *,
    n_docs,
    tokens_per_doc,
    form="joint",
    method="closed_form",
    n_draws=100,
    n_inner=100,
    rng=None,
):
    """Tempered log partition function of latent Dirichlet allocation.

    Parameters
    ----------
    inverse_temperatures : array-like of shape (M,)
        1/T, each in (0, 1].
    alpha : array-like of shape (K,)
        Dirichlet prior of a document's topic proportions.
    eta : array-like of shape (V,)
        Dirichlet prior of a topic's words.
    n_docs : float
        Number of documents D. (Real, since documents may carry weights.)
    tokens_per_doc : float
        Mean number of tokens per document N. All methods but "nested" depend on the product D N
        only.
    form : {"joint", "multinomial"}, default="joint"
        Is the assignment z of a token part of what is tempered, or summed out before? It has to
        agree with the energy that log C(T) is set against.
    method : {"closed_form", "nested", "log_mean", "mean_log", "map", "ceiling"}
        With g a token's sum (module docstring) and expectations over both priors:

        - "closed_form" (default): D N log E[g] without sampling, "joint" form only. A lower bound.
        - "log_mean": D N log E[g] by Monte Carlo (called the upper bound in VT16; a lower bound).
        - "mean_log": D N E[log g] by Monte Carlo, VT16's lower bound.
        - "nested": log E[(E[g^N])^D] by nested Monte Carlo, log C(T) itself in the limit of many
          draws of both kinds. For a real corpus the finite average is in effect the largest of
          its draws' values, an extreme-value statistic that varies from seed to seed. It errs
          both ways: few outer draws make the logarithm too low, while the noise of few inner
          draws is raised to the power D, which makes the average too high.
        - "map": the priors replaced by one point (VT16 eq. 15 with its sign corrected). On the
          simplex a mode does not exist for concentrations below 1 (the density is infinite at
          the corners, where log C = 0). VT16's globals are natural parameters, log-proportions:
          in these coordinates the prior is proportional to prod_k theta_k^alpha_k, whose mode
          theta_k = alpha_k / sum(alpha) exists for any concentration. That is the point taken
          here, for topics likewise. It is never below "log_mean", and for symmetric priors it is
          the ceiling.
        - "ceiling": D N times the largest possible log g. An upper bound.
    n_draws : int, default=100
        Draws of the topics (Monte Carlo methods).
    n_inner : int, default=100
        Draws of the proportions for each draw of the topics (Monte Carlo methods).
    rng : numpy.random.Generator, optional
        Needed by the Monte Carlo methods. All temperatures share the same draws, which keeps
        differences between temperatures smooth.

    Returns
    -------
    log_partition : ndarray of shape (M,)
        In nats, for the whole corpus; 0 at inverse temperature 1.

    Raises
    ------
    ValueError
        If an argument is out of range, if "closed_form" is asked of the "multinomial" form, or if
        a Monte Carlo method has no generator.

    See Also
    --------
    log_partition_lda_derivative : Slope of the closed form.
    token_log_partition : ``log g`` at given proportions and topics.

    Notes
    -----
    Monte Carlo costs ``n_draws K V`` gamma variates and ``n_draws M K V`` exponentials ("joint") or
    ``n_draws n_inner V (M + 2 K)`` operations ("multinomial"). Topics are drawn in log space and by
    blocks of columns: memory is ``n_inner (K + M)`` numbers and a few matrices of 2 MB, whatever
    ``K V`` is.

    References
    ----------
    .. [VT16] Mandt, McInerney, Abrol, Ranganath, Blei (2016). Variational Tempering. AISTATS.
       arXiv:1411.1810, section 3.3, appendices A and B.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt.temperature._partition import log_partition_lda
    >>> log_partition_lda([1.0, 0.5], [1.0], [1.0, 1.0], n_docs=3, tokens_per_doc=2).round(6)
    array([0.      , 1.726092])
    """
    inv_temps = _check_inverse_temperatures(inverse_temperatures)
    alpha = _check_concentration("alpha", alpha)
    eta = _check_concentration("eta", eta)
    n_docs = _check_positive("n_docs", n_docs)
    tokens_per_doc = _check_positive("tokens_per_doc", tokens_per_doc)
    _check_choice("form", form, FORMS)
    _check_method(method, form)
    n_tokens = n_docs * tokens_per_doc

    if method == "closed_form":
        per_token = log_mean_power_sum(inv_temps, alpha) + log_mean_power_sum(inv_temps, eta)
        return n_tokens * per_token
    if method == "map":
        return n_tokens * _log_token_sum_at_mean(inv_temps, alpha, eta, form)
    if method == "ceiling":
        n_outcomes = eta.size * (alpha.size if form == "joint" else 1)
        return n_tokens * (1.0 - inv_temps) * math.log(n_outcomes)

    n_inner = _check_count("n_inner", n_inner)
    width = max(1, _BLOCK_SIZE // max(alpha.size, n_inner))

    def draw_globals(rng):
        log_theta = _draw_log_dirichlet(alpha, n_inner, rng)  # (n_inner, K)
        return log_theta, _draw_log_topics(eta, alpha.size, width, rng)

    def one_copy(draw, inv_temps):
        """What one document (nested) or one token (bounds) adds, given the topics: (M,)."""
        log_theta, topic_blocks = draw
        log_g = _log_token_sums(inv_temps, log_theta, topic_blocks, form)  # (M, n_inner)
        return _average(log_g.T, tokens_per_doc if method == "nested" else 1.0, method)

    return monte_carlo_log_partition(
        draw_globals,
        one_copy,
        inv_temps,
        n_draws,
        rng,
        n_copies=n_docs if method == "nested" else n_tokens,
        method=method,
    )


def log_partition_lda_derivative(inverse_temperatures, alpha, eta, *, n_docs, tokens_per_doc):
    """Derivative of the closed form with respect to the inverse temperature.

    At a fixed point of variational tempering in inv_temp the energy E[log p(w, z | theta, topics)]
    equals this slope (the derivative of VT16 eq. 9's exponent vanishes), which is what an energy is
    calibrated by.

    Parameters
    ----------
    inverse_temperatures : array-like of shape (M,)
        1/T, each in (0, 1].
    alpha : array-like of shape (K,)
        Dirichlet prior of a document's topic proportions.
    eta : array-like of shape (V,)
        Dirichlet prior of a topic's words.
    n_docs : float
        Number of documents.
    tokens_per_doc : float
        Mean number of tokens per document.

    Returns
    -------
    slope : ndarray of shape (M,)
        d log C / d inv_temp of ``log_partition_lda(..., form="joint", method="closed_form")``, in
        nats; negative where K V > 1.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    inv_temps = _check_inverse_temperatures(inverse_temperatures)
    alpha = _check_concentration("alpha", alpha)
    eta = _check_concentration("eta", eta)
    n_docs = _check_positive("n_docs", n_docs)
    tokens_per_doc = _check_positive("tokens_per_doc", tokens_per_doc)
    per_token = log_mean_power_sum_derivative(inv_temps, alpha)
    per_token += log_mean_power_sum_derivative(inv_temps, eta)
    return n_docs * tokens_per_doc * per_token


def token_log_partition(inverse_temperatures, log_theta, log_topics, *, form="joint"):
    """One token's log partition function at given proportions and topics, ``log g``.

    Parameters
    ----------
    inverse_temperatures : array-like of shape (M,)
        1/T, each in (0, 1].
    log_theta : array-like of shape (S, K) or (K,)
        Logs of S vectors of topic proportions; each row's exponentials sum to 1.
    log_topics : array-like of shape (K, V)
        Logs of the topics; each row's exponentials sum to 1.
    form : {"joint", "multinomial"}, default="joint"
        ``log sum_kv (theta_k topics_kv)^inv_temp`` or
        ``log sum_v (sum_k theta_k topics_kv)^inv_temp``.  [VT16 eq. 17]

    Returns
    -------
    log_g : ndarray of shape (S, M) or (M,)
        In nats per token.

    Raises
    ------
    ValueError
        If an inverse temperature is outside (0, 1], shapes disagree or the form is unknown.
    """
    inv_temps = _check_inverse_temperatures(inverse_temperatures)
    log_theta = np.asarray(log_theta, dtype=np.float64)
    log_topics = np.asarray(log_topics, dtype=np.float64)
    _check_choice("form", form, FORMS)
    if (
        log_theta.ndim not in (1, 2)
        or log_topics.ndim != 2
        or log_topics.shape[0] != log_theta.shape[-1]
        or 0 in log_theta.shape + log_topics.shape
    ):
        raise ValueError(
            f"log_theta has shape {log_theta.shape} and log_topics {log_topics.shape}; legal: "
            "(S, K) or (K,), and (K, V), none of them 0. Pass one column of log_theta for each row "
            "of log_topics."
        )
    rows = np.atleast_2d(log_theta)
    width = max(1, _BLOCK_SIZE // max(rows.shape))
    blocks = (log_topics[:, j : j + width] for j in range(0, log_topics.shape[1], width))
    log_g = _log_token_sums(inv_temps, rows, blocks, form).T
    return log_g[0] if log_theta.ndim == 1 else log_g


# --------------------------------------------------------------------------------------------------
# Any model
# --------------------------------------------------------------------------------------------------


def monte_carlo_log_partition(
    draw_globals,
    local_log_partition,
    inverse_temperatures,
    n_draws,
    rng,
    *,
    n_copies=1.0,
    method="nested",
):
    """Monte Carlo estimate of log C(T) for any model with globals drawn from their prior.

    ``log C(T) = log E_beta[exp(N l(beta, 1/T))]``, where N copies of a data point contribute
    ``l(beta, inv_temp) = log int dx dz p(x, z | beta)^inv_temp`` each.  [VT16 eqs. 13-14, app. A.1]
    In a conditionally conjugate model with natural parameter beta and log normaliser a,
    ``l = a(inv_temp beta) - inv_temp a(beta)``.

    Parameters
    ----------
    draw_globals : callable
        ``draw_globals(rng)`` returns one draw of the globals from their prior, in any
        representation that ``local_log_partition`` reads. Each draw is used once.
    local_log_partition : callable
        ``local_log_partition(globals_, inv_temps)`` returns l, shape (M,), nats.
    inverse_temperatures : array-like of shape (M,)
        1/T, each in (0, 1].
    n_draws : int
        Number of draws of the globals; every draw serves all temperatures.
    rng : numpy.random.Generator
        Source of the draws.
    n_copies : float, default=1.0
        N. Leave it at 1 if l is already the total over the data.
    method : {"nested", "log_mean", "mean_log"}, default="nested"
        "nested": ``log mean exp(N l)``, which converges to log C(T). "log_mean":
        ``N log mean exp(l)`` and "mean_log": ``N mean(l)``, lower bounds in expectation
        (for N >= 1 and many draws: mean_log <= log_mean <= log C).

    Returns
    -------
    log_partition : ndarray of shape (M,)
        In nats. With an exact l, the logarithm of a finite average is biased downwards.

    Raises
    ------
    ValueError
        If an argument is out of range, or ``local_log_partition`` returns a wrong shape or NaN.
    """
    inv_temps = _check_inverse_temperatures(inverse_temperatures)
    n_draws = _check_count("n_draws", n_draws)
    n_copies = _check_positive("n_copies", n_copies)
    _check_choice("method", method, _MONTE_CARLO)
    if not isinstance(rng, np.random.Generator):
        raise ValueError(
            f"rng={rng!r}; legal: a numpy.random.Generator. Pass numpy.random.default_rng(seed)."
        )
    values = np.empty((n_draws, inv_temps.size))
    for row in values:
        value = np.asarray(local_log_partition(draw_globals(rng), inv_temps), dtype=np.float64)
        if value.shape != row.shape or np.isnan(value).any():
            raise ValueError(
                f"local_log_partition returned {value!r}; legal: an array of shape {row.shape} "
                "without NaN. Return one number, in nats, for each inverse temperature."
            )
        row[:] = value
    return _average(values, n_copies, method)


def _average(values, power, method):
    """Reduce ``values`` (S, M), logs of S draws, to (M,) as ``method`` says."""
    if method == "mean_log":
        return power * values.mean(axis=0)
    if method == "log_mean":
        return power * (_log_sum_exp(values, axis=0) - math.log(len(values)))
    return _log_sum_exp(power * values, axis=0) - math.log(len(values))


# --------------------------------------------------------------------------------------------------
# Closed forms for a Dirichlet
# --------------------------------------------------------------------------------------------------


def log_mean_power_sum(inverse_temperatures, concentration):
    """``log E[sum_i p_i^inv_temp]`` for p ~ Dirichlet(concentration).

    With a the concentrations and A their sum, E[p_i^b] = Gamma(a_i + b) / Gamma(a_i) *
    Gamma(A) / Gamma(A + b). For n equal ones this is
    f(a, n, b) = log n + lgamma(a + b) - lgamma(a) + lgamma(n a) - lgamma(n a + b).

    Parameters
    ----------
    inverse_temperatures : array-like of shape (M,)
        The powers b, each in (0, 1].
    concentration : array-like of shape (n,)
        Positive concentrations.

    Returns
    -------
    value : ndarray of shape (M,)
        In nats; 0 at power 1.

    Raises
    ------
    ValueError
        If a power is outside (0, 1] or a concentration is not positive.
    """
    inv_temps = _check_inverse_temperatures(inverse_temperatures)
    return Dirichlet.log_mean_power_sum(
        _check_concentration("concentration", concentration), inv_temps
    )


def log_mean_power_sum_derivative(inverse_temperatures, concentration):
    """Derivative of `log_mean_power_sum` with respect to the inverse temperature b.

    ``sum_i w_i digamma(a_i + b) - digamma(A + b)``, ``w_i`` proportional to
    ``Gamma(a_i + b) / Gamma(a_i)``.

    Parameters
    ----------
    inverse_temperatures : array-like of shape (M,)
        The powers b, each in (0, 1].
    concentration : array-like of shape (n,)
        Positive concentrations.

    Returns
    -------
    slope : ndarray of shape (M,)
        In nats.

    Raises
    ------
    ValueError
        If a power is outside (0, 1] or a concentration is not positive.
    """
    inv_temps = _check_inverse_temperatures(inverse_temperatures)
    return Dirichlet.log_mean_power_sum_slope(
        _check_concentration("concentration", concentration), inv_temps
    )


def _log_token_sum_at_mean(inv_temps, alpha, eta, form):
    """``log g`` with every Dirichlet at its mean, where all topics are equal; (M,)."""
    means = [eta / eta.sum()]
    if form == "joint":
        means.append(alpha / alpha.sum())
    # [VT16 eq. 15], with the sign that app. A.1 gives.
    return sum(_log_power_sums(inv_temps, np.log(mean)[None, :])[:, 0] for mean in means)


# --------------------------------------------------------------------------------------------------
# Sums over words and topics, in log space and by blocks of columns
# --------------------------------------------------------------------------------------------------


def _log_token_sums(inv_temps, log_theta, topic_blocks, form):
    """``log g`` for each row of ``log_theta`` (S, K); blocks (K, w) of log topics; (M, S)."""
    if form == "joint":
        log_s = _sum_over_blocks(inv_temps, topic_blocks)  # (M, K), log sum_v topics_kv^inv_temp
        terms = (b * log_theta + s for b, s in zip(inv_temps, log_s, strict=True))
        return np.array([_log_sum_exp(t, axis=1) for t in terms])
    # g >= 1, so that 1e5 words of log probability below this do not reach its last digit.
    negligible = -52.0 / inv_temps.min()
    mixtures = (_log_mixture(log_theta, block, negligible) for block in topic_blocks)
    return _sum_over_blocks(inv_temps, mixtures)  # [VT16 eq. 17]


def _sum_over_blocks(inv_temps, blocks):
    """``log sum_j exp(inv_temp x_rj)`` with the columns j of x arriving in blocks; (M, rows)."""
    total = None
    for block in blocks:
        part = _log_power_sums(inv_temps, block)
        total = part if total is None else np.logaddexp(total, part)
    return total


def _log_power_sums(inv_temps, x):
    """``log sum_j exp(inv_temp x_rj)``, x of shape (rows, columns); (M, rows)."""
    top = _finite_max(x, axis=1)  # (rows, 1)
    shifted = x - top
    buffer = np.empty_like(shifted)
    sums = np.empty((inv_temps.size, x.shape[0]))
    for b, out in zip(inv_temps, sums, strict=True):
        np.multiply(shifted, b, out=buffer)
        np.exp(buffer, out=buffer)
        buffer.sum(axis=1, out=out)
    with np.errstate(divide="ignore"):
        return np.log(sums) + inv_temps[:, None] * top[:, 0]


def _log_mixture(log_theta, log_topics, negligible):
    """``log sum_k theta_sk topics_kv``, shape (S, w), exact wherever it is above ``negligible``.

    One matrix product, of exponentials relative to the largest entry of each row of theta and each
    column of the topics. With priors like 1/500 the logs spread over thousands and a product can
    still underflow altogether: those few entries are summed in log space.
    """
    row_top = _finite_max(log_theta, axis=1)  # (S, 1)
    column_top = _finite_max(log_topics, axis=0)  # (1, w)
    product = np.exp(log_theta - row_top) @ np.exp(log_topics - column_top)
    scale = row_top + column_top
    # Terms lost to underflow could matter here, unless even this bound on the entry is negligible.
    lost = product < _SMALLEST_SUM
    lost &= scale + math.log(_SMALLEST_SUM) > negligible
    with np.errstate(divide="ignore"):
        log_mix = np.log(product) + scale
    s, v = np.nonzero(lost)
    step = max(1, _BLOCK_SIZE // log_theta.shape[1])
    for i in range(0, s.size, step):
        pair = s[i : i + step], v[i : i + step]
        log_mix[pair] = _log_sum_exp(log_theta[pair[0]] + log_topics.T[pair[1]], axis=1)
    return log_mix


def _draw_log_topics(eta, n_topics, width, rng):
    """Yield log topics, rows ~ Dirichlet(eta), in blocks of columns (K, <= width).

    A Dirichlet splits exactly: the masses of the blocks are a Dirichlet of the blocks' summed
    concentrations, and within a block the shares are an independent Dirichlet.
    """
    starts = np.arange(0, eta.size, width)
    log_mass = _draw_log_dirichlet(np.add.reduceat(eta, starts), n_topics, rng)  # (K, blocks)
    for j, start in enumerate(starts):
        block = _draw_log_dirichlet(eta[start : start + width], n_topics, rng)
        block += log_mass[:, j : j + 1]
        yield block


def _draw_log_dirichlet(concentration, n_draws, rng):
    """Logs of draws from a Dirichlet, (n_draws, n); finite where the draws underflow.

    ``log Gamma(a) draw = log Gamma(a + 1) draw + log(uniform) / a``.
    """
    shape = (n_draws, concentration.size)
    log_g = np.log(rng.standard_gamma(concentration + 1.0, size=shape))
    log_g -= rng.standard_exponential(size=shape) / concentration
    log_g -= _log_sum_exp(log_g, axis=1)[:, None]
    return log_g


def _log_sum_exp(x, axis):
    """``log sum exp(x)`` along ``axis``; -inf where all entries are."""
    top = _finite_max(x, axis)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)


def _finite_max(x, axis):
    """Maximum along ``axis``, kept as an axis; 0 where it is -inf, so that x - max is no NaN."""
    top = x.max(axis=axis, keepdims=True)
    return np.where(np.isfinite(top), top, 0.0)


# --------------------------------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------------------------------


def _check_inverse_temperatures(values):
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if array.ndim != 1 or array.size == 0 or not np.all((array > 0.0) & (array <= 1.0)):
        raise ValueError(
            f"inverse_temperatures={values!r}; legal: a non-empty one-dimensional array in (0, 1]. "
            "Pass 1 / T with temperatures T >= 1."
        )
    return array


def _check_concentration(name, values):
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.all((array > 0.0) & np.isfinite(array)):
        raise ValueError(
            f"{name}={values!r}; legal: a non-empty one-dimensional array of positive, finite "
            f"numbers. For a symmetric prior pass numpy.full(size, value)."
        )
    return array


def _check_positive(name, value):
    if not isinstance(value, Real) or not 0.0 < value < math.inf:
        raise ValueError(f"{name}={value!r}; legal: a positive, finite number. Pass a count.")
    return float(value)


def _check_count(name, value):
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}; legal: an integer >= 1. Pass e.g. 100.")
    return int(value)


def _check_choice(name, value, legal):
    if value not in legal:
        raise ValueError(f"{name}={value!r}; legal: {', '.join(map(repr, legal))}. Pick one.")


def _check_method(method, form):
    if method in ("lower", "upper"):
        raise ValueError(
            f"method={method!r}; legal: {', '.join(map(repr, METHODS))}. Both of VT16's bounds "
            "bound from below: pass 'mean_log' for its lower bound, 'log_mean' (or 'closed_form') "
            "for what it calls the upper bound, 'ceiling' for a true upper bound."
        )
    _check_choice("method", method, METHODS)
    if method == "closed_form" and form != "joint":
        raise ValueError(
            f"method='closed_form' with form={form!r}; legal: form='joint', since the power of "
            "a sum over topics has no closed mean. Pass form='joint' or method='log_mean'."
        )
