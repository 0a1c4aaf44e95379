"""Compiled loops of the factorial mixture that draw activations of rows as annealed particles."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skvt.compiled import (
    GOLDEN,
    exp,
    jit_allocating,
    log,
    mix,
    part,
    part_allocating,
    resample,
    uniform,
)
from skvt.typing import Array, IndexArray

# Number of sweeps of Gibbs sampling at each inverse temperature but the last.
SWEEPS = 2
# Number of sweeps at the last inverse temperature.
LAST_SWEEPS = 6
# Smallest effective sample size after a step of the inverse temperature, as a share of the number
# of particles.
EFFECTIVE = 0.5
# Maximum number of steps of the inverse temperature.
MOST_LEVELS = 1_000
# Number of bisections by which the size of a step is found.
_BISECTIONS = 30
# Maximum number of particles of a row.
PARTICLES = 64
# Maximum number of activations, which is particles times components, of a row. With many components
# it limits the number of particles.
ACTIVATIONS_OF_PARTICLES = 1 << 13
# Minimum number of particles of a row, which takes precedence over the maxima.
FEWEST_PARTICLES = 8


def n_particles(n_components: int) -> int:
    """Return the number of particles of a row, a multiple of 8."""
    most = ACTIVATIONS_OF_PARTICLES // n_components // 8 * 8
    return max(FEWEST_PARTICLES, min(PARTICLES, most))


def particles_of(
    X: Array, linear: Array, gram: Array, logit: Array, noise_variance: float
) -> tuple[Array, Array, Array, Array, Array]:
    """Draw annealed particles of rows X (n, D) with log likelihood ``E[log p(x | z, mu)]``.

    ``linear`` (n, K) and ``gram`` (1 or n, K, K) are as in
    :func:`skvt.models.factorial._kernels.sweep_factors`. The values of a row determine its random
    numbers, so that its results depend neither on other rows nor on the number of threads.

    Returns
    -------
    log_mass, energies, chances, states, best
        The arrays that :func:`annealed_particles` writes.
    """
    n_rows, K = linear.shape
    # Equal rows must have equal bits. Adding 0 turns -0 into 0, and inf replaces all kinds of NaN.
    X = np.where(np.isnan(X), np.inf, np.asarray(X, np.float64) + 0.0)
    S = n_particles(K)
    shapes = (n_rows,), (n_rows, S), (n_rows, K), (n_rows, S, K), (n_rows, K)
    out: Any = tuple(np.empty(shape) for shape in shapes)
    annealed_particles(
        np.ascontiguousarray(linear, np.float64), np.ascontiguousarray(gram, np.float64), logit,
        1.0 / noise_variance, row_keys(np.ascontiguousarray(X).view(np.uint64)), *out,
    )  # fmt: skip
    return out


def spread(z: Array, covariance: Array) -> Array:
    """Return the variance of z' mu for each of P covariances of mu, (n, S, P).

    z are states (n, S, K), ``covariance`` is (P, K, K).
    """
    return np.einsum("nsk,pkl,nsl->nsp", z, covariance, z, optimize=True)


@jit_allocating
def row_keys(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a seed for each row, (n,), that depends on the ``bits`` (n, D) of its values alone."""
    keys = np.zeros(bits.shape[0], np.uint64)
    for n in range(bits.shape[0]):
        for d in range(bits.shape[1]):
            keys[n] = mix((keys[n] ^ bits[n, d]) + GOLDEN)
    return keys


@jit_allocating
def annealed_particles(
    linear: Array, gram: Array, logit: Array, precision: float, keys: NDArray[np.uint64],
    log_mass: Array, energies: Array, chances: Array, states: Array, best: Array,
) -> None:  # fmt: skip
    """Sequential Monte Carlo over the activations of each row, from the prior to the posterior.

    Particles drawn from the prior are weighted, resampled and moved by Gibbs sampling while the
    inverse temperature b of the likelihood rises to 1 [DelMoral06 sec. 3]. Each step of b leaves an
    effective sample size of at least ``EFFECTIVE`` times the number of particles.

    ``linear``, ``gram``, ``logit`` and ``precision`` are as in
    :func:`skvt.models.factorial._kernels.sweep_factors`; ``keys`` (n,) are seeds of the rows. All
    other arrays are written: ``log_mass`` (n,), estimates of ``log sum_z p(z) exp(E(z))`` in nats
    with ``E(z) = precision (linear . z - z' G z / 2)``; ``energies`` E (n, S) and ``states``
    (n, S, K) of the S particles, which have equal weights; ``best`` (n, K), the most probable
    particle; ``chances`` (n, K), mean conditional probabilities of the activations over the last
    sweeps.
    """
    n_rows, S, K = states.shape
    z, field = np.empty((K, S)), np.empty((K, S))
    old_z, old_field = np.empty((K, S)), np.empty((K, S))
    energy, old_energy, weight = np.empty(S), np.empty(S), np.empty(S)
    change = np.empty(S)
    source = np.empty(S, np.int64)
    for n in range(n_rows):
        G = gram[0 if gram.shape[0] == 1 else n]
        counter = _from_prior(logit, keys[n], z, source)
        energy[:] = 0.0
        for k in range(K):
            half = linear[n, k] - 0.5 * G[k, k]
            field[k] = half
            for j in range(K):
                if j != k:
                    g = G[k, j]
                    for p in range(S):
                        field[k, p] -= g * z[j, p]
            for p in range(S):
                # Each pair of activations is counted twice, which the factor 0.5 corrects.
                energy[p] += 0.5 * precision * z[k, p] * (field[k, p] + half)
        b, total = 0.0, 0.0
        chances[n] = 0.0
        for level in range(MOST_LEVELS):
            rest = 1.0 - b
            step = _next_step(energy, rest, weight) if level + 1 < MOST_LEVELS else rest
            total += _weigh(energy, step, weight)
            b = 1.0 if step == rest else b + step
            counter += GOLDEN
            resample(weight, uniform(mix(counter)), source)
            old_z[:], old_field[:], old_energy[:] = z, field, energy
            for p in range(S):
                energy[p] = old_energy[source[p]]
            for k in range(K):
                for p in range(S):
                    z[k, p] = old_z[k, source[p]]
                    field[k, p] = old_field[k, source[p]]
            sweeps = LAST_SWEEPS if b == 1.0 else SWEEPS
            for _ in range(sweeps):
                for k in range(K):
                    mean, changed = 0.0, 0.0
                    for p in range(S):
                        counter += GOLDEN
                        a = logit[k] + b * precision * field[k, p]
                        chance = 1.0 / (1.0 + exp(-min(max(a, -700.0), 700.0)))
                        mean += chance
                        new = 1.0 if uniform(mix(counter)) < chance else 0.0
                        change[p] = new - z[k, p]
                        changed += abs(change[p])
                        z[k, p] = new
                        energy[p] += change[p] * precision * field[k, p]
                    if b == 1.0:
                        chances[n, k] += mean / (S * sweeps)
                    if changed > 0.0:
                        unchanged = field[k].copy()
                        for j in range(K):
                            g = G[j, k]
                            for p in range(S):
                                field[j, p] -= g * change[p]
                        field[k] = unchanged
            if b == 1.0:
                break
        log_mass[n] = total
        top = 0
        for p in range(S):
            energies[n, p] = energy[p]
            weight[p] = energy[p]
            for k in range(K):
                states[n, p, k] = z[k, p]
                weight[p] += z[k, p] * logit[k]
            top = p if weight[p] > weight[top] else top
        best[n] = states[n, top]


@part
def _from_prior(logit: Array, key: np.uint64, z: Array, order: IndexArray) -> np.uint64:
    """Draw particles z (K, S) from the prior, stratified by activation; return the state."""
    K, S = z.shape
    counter = np.uint64(key)
    for k in range(K):
        chance = 1.0 / (1.0 + np.exp(-logit[k]))
        for p in range(S):
            order[p] = p
        for p in range(S - 1, 0, -1):
            counter += GOLDEN
            other = int(uniform(mix(counter)) * (p + 1))
            order[p], order[other] = order[other], order[p]
        for p in range(S):
            counter += GOLDEN
            z[k, p] = 1.0 if (order[p] + uniform(mix(counter))) / S < chance else 0.0
    return counter


@part_allocating
def _weigh(energy: Array, step: float, weight: Array) -> float:
    """Weight particles for a step of the inverse temperature.

    ``weight`` gets ``exp(step * energy)`` divided by its maximum. Return the logarithm of the mean
    of ``exp(step * energy)`` over particles.
    """
    largest = energy.max()
    total = 0.0
    for p in range(energy.size):
        weight[p] = exp(max(step * (energy[p] - largest), -700.0))
        total += weight[p]
    return step * largest + log(total / energy.size)


@part_allocating
def _next_step(energy: Array, most: float, weight: Array) -> float:
    """Find by bisection the largest step up to ``most`` that leaves enough effective particles."""
    low, high = 0.0, most
    step = most
    for _ in range(_BISECTIONS):
        _weigh(energy, step, weight)
        square = (weight * weight).sum()
        if weight.sum() ** 2 >= EFFECTIVE * energy.size * square:
            if step == most:
                return most
            low = step
        else:
            high = step
        # Bisect on a log scale, since steps differ by orders of magnitude.
        step = np.sqrt(max(low, 1e-3 * high) * high)
    return max(low, 1e-12 * most)
