"""Estimators of LDA's tempered log partition function log C(T) (VT16 section 3.3, appendix B.1).

Variational tempering divides the tempered joint p(x, z | beta)^(1/T) p(beta) by its integral over
everything, the data included:

    C(T) = int dbeta p(beta) int dx dz p(x, z | beta)^b,    b = 1/T.    [VT16 eq. 13]

C(1) = 1, log C grows with T, and it is convex in b. For latent Dirichlet allocation with D
documents of N tokens each (VT16's simplification: N is the corpus' mean length),

    C(T) = E_topics[(E_theta[g^N])^D],  theta ~ Dir(alpha),  topics_k ~ Dir(eta),    [VT16 app. B.1]
    g = sum_v (sum_k theta_k topics_kv)^b,                                           [VT16 eq. 17]

where the assignment of a token is summed out before tempering. Everything here is per token, in
nats: log C / (D N), and its slope in b.

Two statements of VT16 do not hold and are corrected here:

- Appendix B.1 calls N D log E[g] an *upper* bound. By Jensen's inequality it is the tighter of two
  lower bounds, N D E[log g] <= N D log E[g] <= log C(T), exact for a corpus of one token.
- Equation 15 (MAP) has the wrong sign: appendix A.1's exp(-N a(beta) / T + N a(beta / T)) at one
  point beta* gives log C(T) = N (a(beta* / T) - a(beta*) / T), which is positive for T > 1.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from skvt.expfam import log_standard_gamma
from skvt.typing import Array

METHODS = ("log_mean", "mean_log", "nested", "map")
# Entries of the largest temporary matrix (2 MB): topics are drawn and used by blocks of columns.
_BLOCK_SIZE = 2**18
# Tempered log probabilities below this are clipped: as g >= 1, even 1e5 such words change nothing
# in double precision.
_NEGLIGIBLE = -52.0


class Corpus(NamedTuple):
    """The size of a corpus: D documents of N tokens."""

    n_docs: float
    tokens_per_doc: float


class Draws(NamedTuple):
    """Draws over which expectations are taken."""

    # All temperatures share its draws: differences between temperatures are smooth.
    rng: np.random.Generator
    # Draws of the topics, and of the proportions for each of them.
    n_topics: int = 8
    n_proportions: int = 16


def log_partition(
    inv_temps: Array, alpha: Array, eta: Array, method: str, corpus: Corpus, draws: Draws
) -> tuple[Array, Array]:
    """Estimate ``log C(T)`` of one token in nats and its slope in b, (M,) each; 0 at T = 1.

    For b in (0, 1] (M,), alpha (K,) and eta (V,) or (K, V). With expectations over both priors:

    - "log_mean": log E[g] (called the upper bound in VT16; a lower bound).
    - "mean_log": E[log g], VT16's lower bound.
    - "nested": log E[(E[g^N])^D] / (D N), log C itself in the limit of many draws of both kinds.
      For a real corpus its largest draw dominates the average, which thus underestimates log C.
    - "map": one point in place of the priors [VT16 eq. 15], sign corrected. The point is the mode
      in the coordinates of VT16's globals, log proportions. There the prior is proportional to
      prod_k theta_k^alpha_k, whose mode is alpha / sum(alpha) for any concentration, while a mode
      on the simplex does not exist for concentrations below 1. The topics are treated in the same
      way. If eta is symmetric, this is the largest possible g, ``(1 - b) log V``: an upper bound
      of log C.

    A draw costs ``K V`` gamma variates and ``n_proportions V (M + K)`` exponentials. Topics are
    drawn in log space and by blocks of columns: memory is a few matrices of 2 MB, for any ``K V``.
    """
    if method == "map":
        mode = np.atleast_2d(eta / eta.sum(axis=-1, keepdims=True))
        if len(mode) > 1:
            mode = alpha / alpha.sum() @ mode
        values, slopes = _token_sums(inv_temps, [np.log(np.atleast_2d(mode))])
        return values[0], slopes[0]
    width = max(1, _BLOCK_SIZE // max(alpha.size, draws.n_proportions))
    of_document, of_corpus = {
        "mean_log": (0.0, 0.0),
        "log_mean": (1.0, 1.0),
        "nested": (corpus.tokens_per_doc, corpus.n_docs * corpus.tokens_per_doc),  # [VT16 eq. 14]
    }[method]
    estimates = []
    for _ in range(draws.n_topics):
        log_theta = _log_dirichlet(alpha, draws.n_proportions, draws.rng)
        topics = _log_topics(eta, alpha.size, width, draws.rng)
        estimates.append(_power_mean(*mixture_sums(inv_temps, log_theta, topics), of_document))
    values, slopes = (np.array(part) for part in zip(*estimates, strict=True))
    return _power_mean(values, slopes, of_corpus)


def _power_mean(values: Array, slopes: Array, power: float) -> tuple[Array, Array]:
    """Log of the power mean over the first axis and its slope, (M,) each; geometric at power 0."""
    weights = softmax(power * values, axis=0)
    mean = values.mean(axis=0)
    if power > 0.0:
        mean = (logsumexp(power * values, axis=0) - np.log(len(values))) / power
    return mean, (weights * slopes).sum(axis=0)


def mixture_sums(
    inv_temps: Array, log_theta: Array, topic_blocks: Iterable[Array]
) -> tuple[Array, Array]:
    """Return ``log g`` [VT16 eq. 17] and its slope in b for each row of log proportions, (S, M).

    ``log_theta`` is (S, K); the log topics come in blocks of their columns, (K, w) each.
    """
    blocks = (_log_mixture(log_theta, block) for block in topic_blocks)
    return _token_sums(inv_temps, blocks)


def _token_sums(inv_temps: Array, blocks: Iterable[Array]) -> tuple[Array, Array]:
    """Return ``log sum_v p_v^b`` and its slope in b, (S, M); blocks of log p are (S, w)."""
    sums: Any = 0.0
    slopes: Any = 0.0
    for log_p in blocks:
        # The sum is at least 1 for b <= 1, so it cannot underflow and needs no shift.
        log_p = np.maximum(log_p, _NEGLIGIBLE / inv_temps.min())
        powers = np.empty_like(log_p)
        parts = np.empty((2, log_p.shape[0], inv_temps.size))
        for m, b in enumerate(inv_temps):
            np.exp(np.multiply(log_p, b, out=powers), out=powers)
            powers.sum(axis=1, out=parts[0, :, m])
            np.einsum("sv,sv->s", powers, log_p, out=parts[1, :, m])
        sums, slopes = sums + parts[0], slopes + parts[1]
    return np.log(sums), slopes / sums


def _log_mixture(log_theta: Array, log_topics: Array) -> Array:
    """Return ``log sum_k theta_sk topics_kv``, shape (S, w).

    Sums are in log space: with priors like 1/500, logs differ by thousands, and products underflow.
    """
    terms = (theta[:, None] + topic for theta, topic in zip(log_theta.T, log_topics, strict=True))
    return functools.reduce(np.logaddexp, terms)


def _log_topics(eta: Array, n_topics: int, width: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield log topics, rows ~ Dirichlet(eta), in blocks of columns (K, <= width).

    A Dirichlet splits exactly: the masses of the blocks are a Dirichlet of the blocks' summed
    concentrations, and within a block the shares are an independent Dirichlet.
    """
    starts = np.arange(0, eta.shape[-1], width)
    log_mass = _log_dirichlet(np.add.reduceat(eta, starts, axis=-1), n_topics, rng)  # (K, blocks)
    for j, start in enumerate(starts):
        block = _log_dirichlet(eta[..., start : start + width], n_topics, rng)
        block += log_mass[:, j : j + 1]
        yield block


def _log_dirichlet(concentration: Array, n_draws: int, rng: np.random.Generator) -> Array:
    """Return finite logs of ``n_draws`` Dirichlet draws, (n_draws, n).

    ``concentration`` is (n,), shared by all rows, or (n_draws, n).
    """
    shape = n_draws, concentration.shape[-1]
    log_g = log_standard_gamma(np.broadcast_to(concentration, shape), rng)
    log_g -= log_g.max(axis=1, keepdims=True)
    log_g -= np.log(np.exp(log_g).sum(axis=1, keepdims=True))
    return log_g
