"""Refits of a mixture by expectation-maximisation.

Mean-field inference assigns rows by E[log w_k] and E[log p(x | phi_k)]. These are less than log
E[w_k] and log E[p(x | phi_k)], and the difference is larger for components with fewer rows. Small
components that overlap with others therefore lose their rows. Refits have no such bias: they use
predictive densities and a uniform prior of the weights.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from skvt.models.mixture._model import ROWS_PER_CHUNK, Mixture
from skvt.models.mixture._seeds import ROWS_TO_SEED, distinct_rows
from skvt.rows import pieces
from skvt.typing import Array

# Minimum and maximum number of EM steps. Between these limits, the number of steps times rows times
# parameters is at most _WORK.
_FEWEST_STEPS, _MOST_STEPS = 10, 400
_WORK = 200_000_000
# Refits to drawn weights use a sample if there are more rows than this: the number at which rows
# times parameters are _LARGEST_STEP, but at least _FEWEST_ROWS and at most ROWS_TO_SEED.
_FEWEST_ROWS = 200
_LARGEST_STEP = 20_000_000
# Steps end when no responsibility changes by this much.
_TOL = 1e-4


class Refits(NamedTuple):
    """Responsibilities after a refit to all rows, and the data for refits to drawn weights.

    ``resp`` (n, K) are the responsibilities of all rows. ``X`` are m distinct rows, of a sample if
    there are many. Each represents equal rows, and in a sample also rows that are not part of it:
    ``weights`` (m,) are the sums of their weights, ``numbers`` (m,) their effective numbers
    ``(sum w)^2 / sum w^2``. ``start`` (m, K) are responsibilities under the fit, and ``before``
    (m, K) those after a refit with the weights that are not drawn.
    """

    resp: Array
    model: Mixture
    X: Any
    weights: Array
    numbers: Array
    start: Array
    before: Array

    def drawn(self, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draw weights (m,) and refit; return weights and responsibilities (m, K) before and after.

        The weight of each row of the data is multiplied by a standard exponential variable: the
        weighted likelihood bootstrap [NR94].
        """
        numbers = np.where(self.numbers > 0.0, self.numbers, 1.0)
        weights = self.weights * rng.standard_gamma(numbers) / numbers
        return weights, self.before, refitted(self.model, self.X, weights, self.start)


def refits_of(model: Mixture, X: Any, weights: Array, resp: Array) -> Refits:
    """Return refits to rows of these weights (n,) that start from responsibilities (n, K)."""
    fit = _statistics(model, X, weights, resp)
    n, most = X.shape[0], int(np.clip(_LARGEST_STEP // fit[1].size, _FEWEST_ROWS, ROWS_TO_SEED))
    rows = np.arange(n)
    if n > most:
        rows = np.sort(np.random.default_rng(0).choice(n, most, replace=False))
    scale = n / rows.size
    sample, total = distinct_rows(model.component, X[rows], weights[rows])
    squares = distinct_rows(model.component, X[rows], weights[rows] ** 2)[1]
    numbers = scale * total**2 / np.where(squares > 0.0, squares, 1.0)
    start = _memberships(model, sample, *fit)
    return Refits(
        refitted(model, X, weights, resp),
        model, sample, scale * total, numbers, start,
        refitted(model, sample, scale * total, start),
    )  # fmt: skip


def refitted(model: Mixture, X: Any, weights: Array, resp: Array) -> Array:
    """Return responsibilities (n, K) after steps of expectation-maximisation from ``resp``.

    Every third step starts from an extrapolation of the preceding ones [VR08].
    """
    counts, sums = _statistics(model, X, weights, resp)
    steps = int(np.clip(_WORK // (X.shape[0] * sums.size), _FEWEST_STEPS, _MOST_STEPS))
    previous = resp
    for step in range(steps):
        before, previous, resp = previous, resp, _memberships(model, X, counts, sums)
        change = resp - previous
        if abs(change).max() < _TOL:
            break
        if step % 3 == 2:
            first, second = previous - before, change - (previous - before)
            length = np.sqrt((weights @ first**2).sum() / max((weights @ second**2).sum(), 1e-300))
            if length > 1.0:
                resp = np.maximum(before + 2.0 * length * first + length**2 * second, 0.0)
                resp /= resp.sum(axis=1, keepdims=True)
        counts, sums = _statistics(model, X, weights, resp)
    return resp


def _statistics(model: Mixture, X: Any, weights: Array, resp: Array) -> tuple[Array, Array]:
    """Return the counts (K,) and the sums of features (K, P) given responsibilities (n, K)."""
    stats = model.given_assignments(model.batch(X, np.arange(weights.size), weights), resp).stats
    assert stats is not None
    counts, sums = stats.arrays
    return counts, sums


def _memberships(model: Mixture, X: Any, counts: Array, sums: Array) -> Array:
    """Return responsibilities (n, K) by predictive densities and weights proportional to N_k + 1.

    These weights are the posterior means under a uniform prior, given the counts N_k.
    """
    component = model.component
    lam = component.apart(component.natural_parameters(sums))
    out = np.empty((X.shape[0], counts.size))
    for rows in pieces(X.shape[0], ROWS_PER_CHUNK):
        out[rows] = softmax(component.log_predictive(X[rows], lam) + np.log(counts + 1.0), axis=1)
    return out
