"""The posterior of the activations z of a row in a factorial mixture, given q(mu) of components.

A row x is the sum of the vectors mu_k of its active components, plus noise. The entry of z (K,) is
1 for each component that is active in the row, and 0 for all others. With few components, all 2^K
states of z are enumerated. With more components, states are drawn as annealed particles. The
mean-field posterior of the fit describes the neighbourhood of one state, which is often a poor
explanation of the row. Enumeration and particles also find other states, with their probabilities.

In shapes, n is the number of rows, D of columns, K of components and S of states.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from skvt.expfam import RunningStats
from skvt.models.factorial._model import FactorialBatch, FactorialMixture
from skvt.models.factorial._particles import count_particles, draw_particles, evaluate_forms
from skvt.rows import pieces
from skvt.typing import Array, Run

# Maximum number 2^K of states that are enumerated.
MAX_ENUMERATED = 1 << 12
# If the states z of a row's particles have more than this share of the posterior probability, the
# density of the row is computed from p(x, z) of these states, and otherwise from the weights of the
# particles.
MIN_COVERAGE = 0.5
# Maximum number of rows in a task.
_ROWS_PER_TASK = 1024
# Maximum number of entries in an array of a task.
_NUMBERS_PER_TASK = 1 << 21


class ActivationPosterior(NamedTuple):
    """Densities of rows and probabilities of their activations."""

    # (n,), float64: ``log p(x) = log sum_z p(z) E_q[p(x | z, mu)]`` in nats. The sum over z is
    # exact if states are enumerated, and otherwise an estimate.
    log_density: Array
    # (n, K), float64: ``p(z_k = 1 | x)``, exact or an estimate, like the density.
    probabilities: Array


def infer_activations(
    model: FactorialMixture, batch: FactorialBatch, stats: RunningStats, run: Run
) -> ActivationPosterior:
    """Compute the density of each row and the probabilities of its activations.

    ``stats`` are the statistics that determine q(mu). ``run(function, tasks)`` calls the function
    with the arguments of each task, perhaps in parallel.
    """
    q = model.family.to_standard(model.natural_parameters(stats)[0])
    posterior = ActivationPosterior(
        np.empty(batch.n_rows), np.empty((batch.n_rows, len(q["mean"])))
    )
    if 2**model.n_components <= MAX_ENUMERATED:
        _infer_by_enumeration(model, batch, q, posterior, run)
    else:
        global_params = model.expectation(stats, batch, run)
        _infer_by_particles(model, batch, q, global_params, posterior, run)
    return posterior


def compute_log_joint(model: FactorialMixture, X: Array, z: Array, q: dict[str, Array]) -> Array:
    """Return ``log p(z) E_q[p(x | z, mu)]`` in nats, (n, S).

    X (n, D) are rows, in which NaN stands for a missing value. The states z are (n, S, K), or
    (1, S, K) if they are the same for all rows. ``q`` has the mean (K, D) of the components and
    their covariance, (1, K, K) for all columns or (D, K, K) by column.
    """
    mean = q["mean"]
    # Given z, each value x_d is normal with mean ``z' mean_d`` and this variance.
    variance = model.noise_variance + evaluate_forms(z, q["covariance"])
    if variance.shape[2] == 1 and not np.isnan(X).any():
        variance = variance[:, :, 0]
        # |x - z' mean|^2 = |x|^2 - explained, where explained = 2 z' mean x - |z' mean|^2.
        explained = 2.0 * (z @ (X @ mean.T)[:, :, None])[:, :, 0]
        explained -= evaluate_forms(z, (mean @ mean.T)[None])[:, :, 0]
        error = ((X**2).sum(axis=1)[:, None] - explained) / variance
        log_density = -0.5 * (model.n_features * np.log(2.0 * np.pi * variance) + error)
    else:
        error = (X[:, None] - z @ mean) ** 2 / variance
        log_density = -0.5 * np.nansum(np.log(2.0 * np.pi * variance) + error, axis=2)
    return log_density + z @ model.logit + model.log_prob_all_inactive


# --------------------------------------------------------------------------------- enumeration
def _infer_by_enumeration(
    model: FactorialMixture, batch: FactorialBatch, q: dict[str, Array],
    posterior: ActivationPosterior, run: Run,
) -> None:  # fmt: skip
    """Write the densities of rows and the probabilities of activations by sums over all states.

    The results are written to the arrays of ``posterior``. ``q`` are the parameters of q(mu) for
    :func:`compute_log_joint`.
    """
    K = model.n_components
    # Row i of ``states`` (2^K, K) has the binary digits of i.
    states = ((np.arange(2**K)[:, None] >> np.arange(K)) & 1).astype(np.float64)
    coefficients = None
    if not batch.has_missing and len(q["covariance"]) == 1:
        coefficients = _make_complete_coefficients(model, states, q)
    rows_per_task = max(1, min(_ROWS_PER_TASK, _NUMBERS_PER_TASK // len(states)))
    log_density, probabilities = posterior
    tasks: list[tuple[Any, ...]] = [
        (model, batch.X[rows], states, q, coefficients, log_density[rows], probabilities[rows])
        for rows in pieces(batch.n_rows, rows_per_task)
    ]
    run(_infer_task_by_enumeration, tasks)


def _make_complete_coefficients(
    model: FactorialMixture, states: Array, q: dict[str, Array]
) -> Array:
    """Return coefficients (S, K + 2), with which log p(x, z) is linear in features of a row x.

    The row must be complete, and the components must have one covariance for all columns. The
    features are ``[m_1' x, ..., m_K' x, |x|^2, 1]``, where m_k is the mean of component k.
    """
    mean = q["mean"]
    variance = model.noise_variance + evaluate_forms(states[None], q["covariance"])[0]
    square_norm = evaluate_forms(states[None], (mean @ mean.T)[None])[0]
    constant = -0.5 * (model.n_features * np.log(2.0 * np.pi * variance) + square_norm / variance)
    constant += (states @ model.logit)[:, None] + model.log_prob_all_inactive
    return np.hstack([states / variance, -0.5 / variance, constant])


def _make_column_coefficients(model: FactorialMixture, states: Array, q: dict[str, Array]) -> Array:
    """Return coefficients (S, 3 D + 1), with which log p(x, z) is linear in features of a row x.

    The features are ``[o_1, ..., o_D, x_1, ..., x_D, x_1^2, ..., x_D^2, 1]``, where o_d is 1 if x_d
    is observed. If x_d is missing, it counts as 0, and o_d is 0.
    """
    shape = len(states), model.n_features
    variance = model.noise_variance + evaluate_forms(states[None], q["covariance"])[0]
    variance = np.broadcast_to(variance, shape)
    mean = states @ q["mean"]
    indicator_coefficients = -0.5 * (np.log(2.0 * np.pi * variance) + mean**2 / variance)
    log_prior = (states @ model.logit)[:, None] + model.log_prob_all_inactive
    return np.hstack([indicator_coefficients, mean / variance, -0.5 / variance, log_prior])


def _infer_task_by_enumeration(
    model: FactorialMixture, X: Array, states: Array, q: dict[str, Array],
    coefficients: Array | None, log_density: Array, probabilities: Array,
) -> None:  # fmt: skip
    """Write the densities of rows X and the probabilities of activations by sums over all states.

    ``coefficients`` are the result of :func:`_make_complete_coefficients`, or None. With None,
    coefficients by column are computed for a block of states at a time, because the coefficients of
    all states could need too much memory.
    """
    X = X.astype(np.float64)
    ones = np.ones((len(X), 1))
    if coefficients is not None:
        features = np.hstack([X @ q["mean"].T, (X * X).sum(axis=1, keepdims=True), ones])
        joint = features @ coefficients.T
    else:
        observed = ~np.isnan(X)
        X = np.where(observed, X, 0.0)
        features = np.hstack([observed, X, X * X, ones])
        joint = np.empty((len(X), len(states)))
        block_size = max(1, _NUMBERS_PER_TASK // features.shape[1])
        for block in pieces(len(states), block_size):
            joint[:, block] = features @ _make_column_coefficients(model, states[block], q).T
    # From here on, ``joint`` holds p(x, z) divided by its maximum over z, instead of log p(x, z).
    max_log_joint = joint.max(axis=1, keepdims=True)
    np.exp(np.subtract(joint, max_log_joint, out=joint), out=joint)
    sum_over_states = joint.sum(axis=1)
    log_density[:] = max_log_joint[:, 0] + np.log(sum_over_states)
    probabilities[:] = joint @ states / sum_over_states[:, None]


# ----------------------------------------------------------------------------------- particles
def _infer_by_particles(
    model: FactorialMixture, batch: FactorialBatch, q: dict[str, Array], global_params: Any,
    posterior: ActivationPosterior, run: Run,
) -> None:  # fmt: skip
    """Write estimates of the densities and probabilities of all rows by annealed particles."""
    # Count the entries of the largest array of a task by row: an entry for each particle and each
    # component, or for each particle and each column.
    numbers_per_row = model.n_components
    if batch.has_missing or len(q["covariance"]) > 1:
        numbers_per_row = max(numbers_per_row, model.n_features)
    numbers_per_row *= count_particles(model.n_components)
    rows_per_task = max(1, min(_ROWS_PER_TASK, _NUMBERS_PER_TASK // numbers_per_row))
    log_density, probabilities = posterior
    tasks = [
        (model, batch, rows, global_params, q, log_density[rows], probabilities[rows])
        for rows in pieces(batch.n_rows, rows_per_task)
    ]
    run(_infer_task_by_particles, tasks)


def _infer_task_by_particles(
    model: FactorialMixture, batch: FactorialBatch, rows: slice, global_params: Any,
    q: dict[str, Array], log_density: Array, probabilities: Array,
) -> None:  # fmt: skip
    """Write estimates of the densities and probabilities of ``rows`` by annealed particles."""
    X = np.asarray(batch.X[rows], np.float64)
    observed = (~np.isnan(X)).astype(np.float64) if batch.has_missing else None
    filled, linear, gram, n_values = model.compute_row_terms(X, observed, *global_params)
    noise = model.noise_variance
    particles = draw_particles(X, linear, gram, model.logit, noise)
    states, n_particles = particles.states, particles.states.shape[1]
    row_constant = -0.5 * (n_values * np.log(2.0 * np.pi * noise) + (filled**2).sum(axis=1) / noise)
    # Particles are drawn for the likelihood exp(E_q[log p(x | z, mu)]), but the density and the
    # probabilities need the likelihood E_q[p(x | z, mu)]. The weight of a particle is therefore
    # p(z) E_q[p(x | z, mu)], divided by the joint density for which the particles are drawn.
    log_sampled_joint = (
        particles.energies
        + states @ model.logit
        + model.log_prob_all_inactive
        + row_constant[:, None]
    )
    joint = compute_log_joint(model, X, states, q)
    log_weight = joint - log_sampled_joint
    log_sum_of_weights = logsumexp(log_weight, axis=1)
    # First estimate of the density: the mean weight times the sum over z of the sampled joint
    # density.
    density_from_weights = particles.log_mass + row_constant + log_sum_of_weights
    density_from_weights -= np.log(n_particles)
    # Second estimate: the sum of the exact joint density over the states of the particles.
    density_from_states, coverage = _estimate_density_from_states(joint, log_weight, states)
    log_density[:] = np.where(coverage > MIN_COVERAGE, density_from_states, density_from_weights)
    # The mean of z over particles with weights w is E[w z] / E[w] = E[z] + Cov(w, z) / E[w].
    # ``particles.probabilities`` estimate E[z], and ``corrections`` the second term.
    centred_weights = np.exp(log_weight - log_sum_of_weights[:, None]) - 1.0 / n_particles
    corrections = np.einsum("ns,nsk->nk", centred_weights, states)
    np.clip(particles.probabilities + corrections, 0.0, 1.0, out=probabilities)


def _estimate_density_from_states(
    joint: Array, log_weight: Array, states: Array
) -> tuple[Array, Array]:
    """Estimate ``log p(x) = log p(x, z in A) - log p(z in A | x)`` for a set A of states, in nats.

    The set A has the states of one half of the particles. p(x, z in A) is the sum of p(x, z) over
    the distinct states in A. p(z in A | x) is estimated from the other half of the particles: it is
    the share of the weight of this half that particles with states in A have. A second estimate
    exchanges the halves. The estimates are nearly exact if few states explain the row.

    Parameters
    ----------
    joint : ndarray, shape (n, S)
        log p(x, z) of the particles in nats.
    log_weight : ndarray, shape (n, S)
        Logarithms of the weights of the particles.
    states : ndarray, shape (n, S, K)
        The states z of the particles.

    Returns
    -------
    log_density : ndarray, shape (n,)
        The mean of the two estimates of log p(x).
    coverage : ndarray, shape (n,)
        The smaller estimate of p(z in A | x).
    """
    half = states.shape[1] // 2
    # The code of a state is a sum of random integers, one for each active component, so that
    # different states almost surely have different codes.
    codes = states @ np.random.default_rng(0).integers(2**40, size=states.shape[2]).astype(float)
    log_densities, coverages = [], []
    # The particles of ``set_half`` make the set A. The particles of ``test_half`` estimate its
    # probability.
    for set_half, test_half in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        order = np.argsort(codes[:, set_half], axis=1)
        sorted_codes = np.take_along_axis(codes[:, set_half], order, axis=1)
        distinct_joint = np.take_along_axis(joint[:, set_half], order, axis=1)
        # Count each state once: equal states follow each other in ``sorted_codes``, and all but the
        # first get the density 0.
        distinct_joint[:, 1:][sorted_codes[:, 1:] == sorted_codes[:, :-1]] = -np.inf
        is_in_set = (codes[:, test_half, None] == sorted_codes[:, None]).any(axis=2)
        weight = log_weight[:, test_half] - log_weight[:, test_half].max(axis=1, keepdims=True)
        weight = np.exp(weight)
        coverage = (weight * is_in_set).sum(axis=1) / weight.sum(axis=1)
        log_set_density = logsumexp(distinct_joint, axis=1)
        log_densities.append(log_set_density - np.log(np.maximum(coverage, 1e-300)))
        coverages.append(coverage)
    return np.mean(log_densities, axis=0), np.min(coverages, axis=0)
