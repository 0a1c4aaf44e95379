"""Refits of a mixture by expectation-maximisation (EM).

Mean-field inference assigns rows by E[log w_k] and E[log p(x | phi_k)], where w_k is the weight of
component k, and phi_k are its parameters. These expectations are less than log E[w_k] and
log E[p(x | phi_k)], and the difference is larger for components with fewer rows. Small components
that overlap with other components therefore lose their rows. A refit avoids this bias: it assigns
rows by predictive densities E[p(x | phi_k)] and by expected weights E[w_k] under a uniform prior.
Dirichlet priors that the fit has learned are made symmetric before a refit. Since they are learned
from the assignments of the fit, a refit of clusters that overlap would otherwise stay near these
assignments.

A step of EM updates q of missing values only a few times, beginning with the parameters of the step
before. This generalised EM has the same fixed points as EM.

The results of a fit call :func:`make_refits`. It refits a mixture to all rows, and prepares refits
to drawn weights of the rows, from which the uncertainty of clusters is estimated.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from skvt.models.mixture._model import ROWS_PER_CHUNK, Mixture
from skvt.models.mixture._seeds import MAX_ROWS_TO_SEED, merge_equal_rows
from skvt.rows import pieces
from skvt.typing import Array

# The maximum number of EM steps is _MAX_WORK divided by the product of the numbers of rows and of
# parameters, but at least _MIN_STEPS and at most _MAX_STEPS.
_MIN_STEPS, _MAX_STEPS = 10, 400
_MAX_WORK = 200_000_000
# Refits to drawn weights use a sample if there are many rows. Its maximum number of rows is
# _MAX_WORK_OF_STEP divided by the number of parameters, but at least _MIN_SAMPLE_ROWS and at most
# MAX_ROWS_TO_SEED.
_MIN_SAMPLE_ROWS = 200
_MAX_WORK_OF_STEP = 20_000_000
# EM ends after a step that changes every responsibility by less than this.
_NEGLIGIBLE_CHANGE = 1e-4


class Refits(NamedTuple):
    """Responsibilities after a refit to all n rows, and the data for refits to drawn weights.

    Refits to drawn weights use m distinct rows, each of which represents all rows that equal it.
    If there are many rows, the distinct rows come from a sample of n' rows, each of which
    represents n / n' rows.
    """

    # (n, K): responsibilities of all rows after the refit.
    resp: Array
    model: Mixture
    # (m, D): the distinct rows.
    X: Any
    # (m,): total weight of the rows that each distinct row represents.
    weights: Array
    # (m,): effective number (sum w)^2 / sum w^2 of the rows that each distinct row represents,
    # where w are the weights of these rows.
    effective_numbers: Array
    # (m, K): responsibilities of the distinct rows with which all refits begin.
    start_resp: Array
    # (K, P): sums of features with whose parameters all refits begin to complete missing values.
    start_sums: Array
    # (m, K): responsibilities of the distinct rows after a refit to ``weights``.
    refit_resp: Array

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draw weights of the distinct rows, and refit the mixture to them.

        The weights are those of the weighted likelihood bootstrap [NR94].

        The bootstrap multiplies the weight of each row by a standard exponential variable. The sum
        over r equal rows of equal weight is then a gamma variable of shape r. For rows of unequal
        weights, this shape is their effective number.

        Returns
        -------
        weights : ndarray of shape (m,)
            The drawn weights.
        before : ndarray of shape (m, K)
            The responsibilities after the refit to the weights that are not drawn.
        after : ndarray of shape (m, K)
            The responsibilities after the refit to the drawn weights.
        """
        # Rows without weight have the effective number 0, which is not the shape of a gamma
        # distribution. With the shape 1, their drawn weights are 0, too.
        effective_numbers = np.where(self.effective_numbers > 0.0, self.effective_numbers, 1.0)
        weights = self.weights * rng.standard_gamma(effective_numbers) / effective_numbers
        after = refit_by_em(self.model, self.X, weights, self.start_resp, self.start_sums)
        return weights, self.refit_resp, after


def make_refits(model: Mixture, X: Any, weights: Array, resp: Array) -> Refits:
    """Refit a mixture to rows X of weights (n,), and prepare the refits to drawn weights.

    EM begins with the responsibilities ``resp`` (n, K) of the fit. If there are many rows, a sample
    is drawn with a fixed seed.
    """
    if model.learner is not None:
        model = replace(model, component=model.learner.make_symmetric(model.component))
    counts, sums = _compute_statistics(model, X, weights, resp)
    # Draw a sample if there are many rows.
    n = X.shape[0]
    max_rows = int(np.clip(_MAX_WORK_OF_STEP // sums.size, _MIN_SAMPLE_ROWS, MAX_ROWS_TO_SEED))
    rows = np.arange(n)
    if n > max_rows:
        rows = np.sort(np.random.default_rng(0).choice(n, max_rows, replace=False))
    scale = n / rows.size
    # Collect equal rows, with the sums of their weights and of the squares of their weights.
    distinct_rows, weight_sums = merge_equal_rows(model.component, X[rows], weights[rows])
    _, square_sums = merge_equal_rows(model.component, X[rows], weights[rows] ** 2)
    effective_numbers = scale * weight_sums**2 / np.where(square_sums > 0.0, square_sums, 1.0)
    start_resp = _compute_resp(model, distinct_rows, counts, sums)
    return Refits(
        resp=refit_by_em(model, X, weights, resp, sums), model=model, X=distinct_rows,
        weights=scale * weight_sums, effective_numbers=effective_numbers, start_resp=start_resp,
        start_sums=sums,
        refit_resp=refit_by_em(model, distinct_rows, scale * weight_sums, start_resp, sums),
    )  # fmt: skip


def refit_by_em(model: Mixture, X: Any, weights: Array, resp: Array, sums: Array) -> Array:
    """Refit a mixture to rows X of weights (n,) by EM; return the responsibilities (n, K).

    EM begins with the statistics of the responsibilities ``resp`` (n, K), in which missing values
    are completed by the parameters of the ``sums`` of features (K, P). After every third step but
    the last, an extrapolation of the last steps replaces the responsibilities, to accelerate EM
    [VR08]. It does not change the sums, so that their parameters stay legal. The next step
    completes missing values at the new responsibilities.
    """
    counts, sums = _compute_statistics(model, X, weights, resp, sums)
    # ``sums.size`` is about the number of parameters.
    max_steps = int(np.clip(_MAX_WORK // (X.shape[0] * sums.size), _MIN_STEPS, _MAX_STEPS))
    old_resp = resp
    for step in range(max_steps):
        older_resp, old_resp, resp = old_resp, resp, _compute_resp(model, X, counts, sums)
        change = resp - old_resp
        if abs(change).max() < _NEGLIGIBLE_CHANGE or step == max_steps - 1:
            break
        if step % 3 == 2:
            # Extrapolate along ``old_change``, the change in the previous step, and
            # ``acceleration``, the difference of the last two changes. A factor of 1 would
            # leave ``resp`` unchanged. The maximum prevents a division by 0.
            old_change = old_resp - older_resp
            acceleration = change - old_change
            squared_acceleration = max((weights @ acceleration**2).sum(), 1e-300)
            length = np.sqrt((weights @ old_change**2).sum() / squared_acceleration)
            if length > 1.0:
                resp = np.maximum(
                    older_resp + 2.0 * length * old_change + length**2 * acceleration, 0.0
                )
                resp /= resp.sum(axis=1, keepdims=True)
        counts, sums = _compute_statistics(model, X, weights, resp, sums)
    return resp


def _compute_statistics(
    model: Mixture, X: Any, weights: Array, resp: Array, previous_sums: Array | None = None
) -> tuple[Array, Array]:
    """Return the counts (K,) and the weighted sums of features (K, P), given responsibilities.

    ``previous_sums`` are as in :meth:`Mixture.statistics_of_assignments`.
    """
    batch = model.batch(X, np.arange(weights.size), weights)
    counts, sums = model.statistics_of_assignments(batch, resp, previous_sums).arrays
    return counts, sums


def _compute_resp(model: Mixture, X: Any, counts: Array, sums: Array) -> Array:
    """Return the responsibilities (n, K) of rows X under the statistics of the components.

    The responsibilities use predictive densities and the posterior means of the component weights.
    Under a uniform prior, these means are proportional to N_k + 1, where N_k is the count.
    """
    component = model.component
    lam = component.with_shared_globals(component.natural_parameters(sums))
    resp = np.empty((X.shape[0], counts.size))
    for rows in pieces(X.shape[0], ROWS_PER_CHUNK):
        resp[rows] = softmax(component.log_predictive(X[rows], lam) + np.log(counts + 1.0), axis=1)
    return resp
