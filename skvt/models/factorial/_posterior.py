"""The posterior of a row's activations in a factorial mixture, given q of the components.

For few components all activations are enumerated, otherwise annealed particles are used. Mean field
gives one explanation of a row, often a poor one; these methods find others and probabilities.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from skvt.expfam import RunningStats
from skvt.models.factorial._model import FactorialBatch, FactorialMixture
from skvt.models.factorial._particles import n_particles, particles_of, spread
from skvt.rows import pieces
from skvt.typing import Array, Run

# Maximum number of activations of a row that are enumerated.
MOST_ENUMERATED = 1 << 12
# If states of particles have more than this share of the posterior, they determine the density.
COVERED = 0.5
# Maximum number of rows of a task.
_ROWS_PER_TASK = 1024
# Maximum number of array entries that a task holds.
_NUMBERS_PER_TASK = 1 << 21


class Explanations(NamedTuple):
    # (n,), float64: ``log sum_z p(z) E_q[p(x | z, mu)]`` in nats, exact or estimated.
    log_density: Array
    # (n, K), float64: ``p(z_k = 1 | x)``.
    chances: Array


def explain(
    model: FactorialMixture, batch: FactorialBatch, stats: RunningStats, run: Run
) -> Explanations:
    """Compute the density of each row and the probabilities of its activations."""
    q = model.family.standard(model.natural_parameters(stats)[0])
    out = Explanations(np.empty(batch.n_rows), np.empty((batch.n_rows, model.n_components)))
    if 2**model.n_components <= MOST_ENUMERATED:
        K = model.n_components
        # all activations, (2^K, K)
        states = ((np.arange(2**K)[:, None] >> np.arange(K)) & 1).astype(np.float64)
        tables = None if batch.missing or len(q["covariance"]) > 1 else _table(model, states, q)
        step = max(1, min(_ROWS_PER_TASK, _NUMBERS_PER_TASK // len(states)))
        tasks: list[tuple[Any, ...]] = [
            (model, batch.X[rows], states, q, tables, out.log_density[rows], out.chances[rows])
            for rows in pieces(batch.n_rows, step)
        ]
        run(_enumerate_task, tasks)
        return out
    global_params = model.expectation(stats, batch, run)
    width = model.n_components
    if batch.missing or len(q["covariance"]) > 1:
        width = max(width, model.n_features)
    width *= n_particles(model.n_components)
    step = max(1, min(_ROWS_PER_TASK, _NUMBERS_PER_TASK // width))
    tasks = [
        (model, batch, rows, global_params, q, out.log_density[rows], out.chances[rows])
        for rows in pieces(batch.n_rows, step)
    ]
    run(_particle_task, tasks)
    return out


def log_joint(model: FactorialMixture, X: Array, z: Array, q: dict[str, Array]) -> Array:
    """Return ``log p(z) E_q[p(x | z, mu)]`` in nats of activations z (n or 1, S, K), (n, S)."""
    mean = q["mean"]
    variance = model.noise_variance + spread(z, q["covariance"])
    # Given z, each value is normal; missing values are left out.
    if variance.shape[2] == 1 and not np.isnan(X).any():
        variance = variance[:, :, 0]
        explained = 2.0 * (z @ (X @ mean.T)[:, :, None])[:, :, 0]
        explained -= spread(z, (mean @ mean.T)[None])[:, :, 0]
        error = ((X**2).sum(axis=1)[:, None] - explained) / variance
        log_density = -0.5 * (model.n_features * np.log(2.0 * np.pi * variance) + error)
    else:
        error = (X[:, None] - z @ mean) ** 2 / variance
        log_density = -0.5 * np.nansum(np.log(2.0 * np.pi * variance) + error, axis=2)
    return log_density + z @ model.logit + model.log_all_off


# --------------------------------------------------------------------------------- enumeration
def _table(model: FactorialMixture, states: Array, q: dict[str, Array]) -> Array:
    """Return coefficients (S, K + 2) of log p(x, z) in ``[mu x, |x|^2, 1]`` of complete rows."""
    mean = q["mean"]
    variance = model.noise_variance + spread(states[None], q["covariance"])[0]
    square = spread(states[None], (mean @ mean.T)[None])[0]
    rest = -0.5 * (model.n_features * np.log(2.0 * np.pi * variance) + square / variance)
    rest += (states @ model.logit)[:, None] + model.log_all_off
    return np.hstack([states / variance, -0.5 / variance, rest])


def _table_by_column(model: FactorialMixture, states: Array, q: dict[str, Array]) -> Array:
    """Return coefficients (S, 3 D + 1) of ``[observed, x, x^2, 1]``; missing values are 0."""
    shape = len(states), model.n_features
    variance = model.noise_variance + spread(states[None], q["covariance"])[0]
    variance = np.broadcast_to(variance, shape)
    mean = states @ q["mean"]
    constants = -0.5 * (np.log(2.0 * np.pi * variance) + mean**2 / variance)
    rest = (states @ model.logit)[:, None] + model.log_all_off
    return np.hstack([constants, mean / variance, -0.5 / variance, rest])


def _enumerate_task(
    model: FactorialMixture, X: Array, states: Array, q: dict[str, Array], table: Array | None,
    log_density: Array, chances: Array,
) -> None:  # fmt: skip
    """Sum over all activations of these rows."""
    X = X.astype(np.float64)
    one = np.ones((len(X), 1))
    if table is not None:
        features = np.hstack([X @ q["mean"].T, (X * X).sum(axis=1, keepdims=True), one])
        joint = features @ table.T
    else:
        observed = ~np.isnan(X)
        X = np.where(observed, X, 0.0)
        features = np.hstack([observed, X, X * X, one])
        joint = np.empty((len(X), len(states)))
        step = max(1, _NUMBERS_PER_TASK // features.shape[1])
        for block in pieces(len(states), step):
            joint[:, block] = features @ _table_by_column(model, states[block], q).T
    largest = joint.max(axis=1, keepdims=True)
    np.exp(np.subtract(joint, largest, out=joint), out=joint)
    total = joint.sum(axis=1)
    log_density[:] = largest[:, 0] + np.log(total)
    chances[:] = joint @ states / total[:, None]


# ----------------------------------------------------------------------------------- particles
def _particle_task(
    model: FactorialMixture, batch: FactorialBatch, rows: slice, global_params: Any,
    q: dict[str, Array], log_density: Array, chances: Array,
) -> None:  # fmt: skip
    """Estimate density and probabilities of these rows by annealed particles."""
    X = np.asarray(batch.X[rows], np.float64)
    observed = (~np.isnan(X)).astype(np.float64) if batch.missing else None
    filled, linear, gram, n_values = model.row_terms(X, observed, *global_params)
    noise = model.noise_variance
    log_mass, energies, chances[:], states, _ = particles_of(X, linear, gram, model.logit, noise)
    rest = -0.5 * (n_values * np.log(2.0 * np.pi * noise) + (filled**2).sum(axis=1) / noise)
    # Particles are drawn by E[log p(x | z, mu)], while the density is that of E[p(x | z, mu)].
    known = energies + states @ model.logit + model.log_all_off + rest[:, None]
    joint = log_joint(model, X, states, q)
    weight = joint - known
    from_path = log_mass + rest + logsumexp(weight, axis=1) - np.log(states.shape[1])
    from_states, covered = _density_of_states(joint, weight, states)
    log_density[:] = np.where(covered > COVERED, from_states, from_path)


def _density_of_states(joint: Array, log_weight: Array, states: Array) -> tuple[Array, Array]:
    """Estimate ``log p(x) = log p(x, z in A) - log p(z in A | x)`` for a set A, in nats.

    A are the states of one half of the particles, and p(z in A | x) is estimated from the other
    half; then the halves are exchanged. The estimate is nearly exact if few states explain the row.
    Returns the mean of both estimates and the smaller p(z in A | x).
    """
    half = states.shape[1] // 2
    # A number for each state, distinct with near certainty.
    code = states @ np.random.default_rng(0).integers(2**40, size=states.shape[2]).astype(float)
    estimates, shares = [], []
    for first, other in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        order = np.argsort(code[:, first], axis=1)
        codes = np.take_along_axis(code[:, first], order, axis=1)
        once = np.take_along_axis(joint[:, first], order, axis=1)
        once[:, 1:][codes[:, 1:] == codes[:, :-1]] = -np.inf
        known = (code[:, other, None] == codes[:, None]).any(axis=2)
        weight = log_weight[:, other] - log_weight[:, other].max(axis=1, keepdims=True)
        weight = np.exp(weight)
        share = (weight * known).sum(axis=1) / weight.sum(axis=1)
        estimates.append(logsumexp(once, axis=1) - np.log(np.maximum(share, 1e-300)))
        shares.append(share)
    return np.mean(estimates, axis=0), np.min(shares, axis=0)
