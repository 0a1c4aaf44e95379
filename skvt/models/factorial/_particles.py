"""Annealed particles: draws from the posterior of the activations of rows in a factorial mixture.

The algorithm is sequential Monte Carlo [DelMoral06 sec. 3]. Predictions with many components in
:mod:`skvt.models.factorial._posterior` use particles, and local steps start from particles.

A row x is the sum of the vectors mu_k of its active components, plus noise. The activation z_k of
component k is 1 if the component is active in the row, and 0 otherwise. A particle is a drawn state
z (K,) of all activations of a row. In shapes, n is the number of rows, K of components and S of
particles of a row.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skvt._compiled import (
    GOLDEN,
    exp,
    jit_allocating,
    jit_inlined,
    jit_inlined_allocating,
    log,
    mix,
    resample,
    uniform,
)
from skvt.typing import Array, IndexArray

# Number of sweeps of Gibbs sampling at each inverse temperature but the last.
N_SWEEPS = 2
# Number of sweeps at the last inverse temperature, which is 1.
N_LAST_SWEEPS = 6
# Smallest effective sample size after an increase of the inverse temperature, as a share of the
# number of particles.
MIN_EFFECTIVE_SHARE = 0.5
# Maximum number of increases of the inverse temperature.
MAX_INCREASES = 1_000
# Number of bisections in the search for the size of an increase.
_N_BISECTIONS = 30
# Maximum number of particles of a row.
MAX_PARTICLES = 64
# Maximum number of particles of a row times the number of components. This limits the number of
# particles if there are many components.
MAX_PARTICLE_ENTRIES = 1 << 13
# Minimum number of particles of a row, also if MAX_PARTICLE_ENTRIES would allow fewer.
MIN_PARTICLES = 8


class Particles(NamedTuple):
    """Annealed particles, S for each of n rows, and estimates from the particles."""

    # (n,): estimates of ``log sum_z p(z) exp(E(z))`` in nats, see :func:`write_particles`.
    log_mass: Array
    # (n, S): energies E(z) of the particles in nats.
    energies: Array
    # (n, K): probabilities of the activations given all other activations of the particle, averaged
    # over the particles and the sweeps at the last inverse temperature.
    probabilities: Array
    # (n, S, K): states z of the particles, which have equal weights.
    states: Array
    # (n, K): the state of the most probable particle.
    best: Array


def count_particles(n_components: int) -> int:
    """Return the number of particles of a row, a multiple of 8."""
    max_particles = MAX_PARTICLE_ENTRIES // n_components // 8 * 8
    return max(MIN_PARTICLES, min(MAX_PARTICLES, max_particles))


def draw_particles(
    X: Array, linear: Array, gram: Array, logit: Array, noise_variance: float
) -> Particles:
    """Draw annealed particles of rows X (n, D) with log likelihood ``E[log p(x | z, mu)]``.

    The values of a row are the seed of its random numbers, so that the particles of the row depend
    neither on other rows nor on the number of threads.

    Parameters
    ----------
    X : ndarray, shape (n, D)
        Rows, in which NaN stands for missing values. They only determine the seeds.
    linear : ndarray, shape (n, K)
        ``E[mu_k] . x`` of each row x.
    gram : ndarray, shape (1, K, K) or (n, K, K)
        ``G_kj = E[mu_k . mu_j]``, a sum over the columns that are observed in the row. It is one
        matrix if it is the same for all rows.
    logit : ndarray, shape (K,)
        Log odds of the prior probabilities of activations.
    noise_variance : float
        Variance of the noise.
    """
    n_rows, K = linear.shape
    # Equal rows must have equal bits. Adding 0 turns -0 into 0, and inf replaces NaN, which has
    # several bit patterns.
    X = np.where(np.isnan(X), np.inf, np.asarray(X, np.float64) + 0.0)
    S = count_particles(K)
    shapes = (n_rows,), (n_rows, S), (n_rows, K), (n_rows, S, K), (n_rows, K)
    particles = Particles(*map(np.empty, shapes))
    seeds = hash_rows(np.ascontiguousarray(X).view(np.uint64))
    write_particles(
        np.ascontiguousarray(linear, np.float64), np.ascontiguousarray(gram, np.float64), logit,
        1.0 / noise_variance, seeds, *particles,
    )  # fmt: skip
    return particles


def evaluate_forms(z: Array, matrices: Array) -> Array:
    """Return ``z' M z`` for each state in z (n, S, K) and each M in ``matrices`` (P, K, K).

    The result is (n, S, P). If M is the covariance of a column of mu, then ``z' M z`` is the
    variance of the same column of z' mu.
    """
    return np.einsum("nsk,pkl,nsl->nsp", z, matrices, z, optimize=True)


@jit_allocating
def hash_rows(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a seed for each row, (n,), that depends on the ``bits`` (n, D) of its values alone."""
    seeds = np.zeros(bits.shape[0], np.uint64)
    for n in range(bits.shape[0]):
        for d in range(bits.shape[1]):
            seeds[n] = mix((seeds[n] ^ bits[n, d]) + GOLDEN)
    return seeds


@jit_allocating
def write_particles(
    linear: Array, gram: Array, logit: Array, precision: float, seeds: NDArray[np.uint64],
    log_mass: Array, energies: Array, probabilities: Array, states: Array, best: Array,
) -> None:  # fmt: skip
    """Sample the activations of each row by annealed sequential Monte Carlo [DelMoral06 sec. 3].

    S particles are drawn from the prior. Then the inverse temperature b of the likelihood rises in
    several increases from 0 to 1. After each increase, the particles are weighted, resampled and
    moved by Gibbs sampling. An increase is so small that the weights leave an effective sample size
    of at least ``MIN_EFFECTIVE_SHARE`` times S.

    The *energy* of a state z, ``E(z) = precision (linear . z - z' G z / 2)``, is its log likelihood
    in nats, up to a constant of the row. The *field* of component k is ``field_k = linear_k -
    G_kk / 2 - sum_{j != k} G_kj z_j``. If z_k turns from 0 to 1, the energy rises by ``precision
    field_k``.

    ``linear``, ``gram`` (G of each row) and ``logit`` are the arguments of :func:`draw_particles`,
    ``precision`` is the inverse noise variance, and ``seeds`` (n,) has a seed for each row. All
    other arrays are the fields of :class:`Particles`, to which the results are written.

    The random number generator is SplitMix64: for each random number, ``GOLDEN`` is added to
    ``random_state``, and the number in [0, 1) is ``uniform(mix(random_state))``.
    """
    n_rows, S, K = states.shape
    z, field = np.empty((K, S)), np.empty((K, S))
    old_z, old_field = np.empty((K, S)), np.empty((K, S))
    energy, old_energy, weight = np.empty(S), np.empty(S), np.empty(S)
    changes = np.empty(S)
    parents = np.empty(S, np.int64)
    for n in range(n_rows):
        G = gram[0 if gram.shape[0] == 1 else n]
        random_state = _draw_from_prior(logit, seeds[n], z, parents)
        _write_fields(linear[n], G, precision, z, field, energy)
        inv_temp, total_log_mass = 0.0, 0.0
        probabilities[n] = 0.0
        for increase in range(MAX_INCREASES):
            # Raise the inverse temperature, and weight the particles for it.
            remaining = 1.0 - inv_temp
            is_last_increase = increase + 1 == MAX_INCREASES
            step = remaining if is_last_increase else _choose_step(energy, remaining, weight)
            total_log_mass += _write_weights(energy, step, weight)
            inv_temp = 1.0 if step == remaining else inv_temp + step
            # Resample the particles by their weights.
            random_state += GOLDEN
            resample(weight, uniform(mix(random_state)), parents)
            old_z[:], old_field[:], old_energy[:] = z, field, energy
            for p in range(S):
                energy[p] = old_energy[parents[p]]
            for k in range(K):
                for p in range(S):
                    z[k, p] = old_z[k, parents[p]]
                    field[k, p] = old_field[k, parents[p]]
            # Move the particles by sweeps of Gibbs sampling.
            n_sweeps = N_LAST_SWEEPS if inv_temp == 1.0 else N_SWEEPS
            for _ in range(n_sweeps):
                for k in range(K):
                    sum_of_probabilities, n_changes = 0.0, 0.0
                    for p in range(S):
                        random_state += GOLDEN
                        log_odds = logit[k] + inv_temp * precision * field[k, p]
                        # `exp` overflows at about 709.
                        probability = 1.0 / (1.0 + exp(-min(max(log_odds, -700.0), 700.0)))
                        sum_of_probabilities += probability
                        new_state = 1.0 if uniform(mix(random_state)) < probability else 0.0
                        changes[p] = new_state - z[k, p]
                        n_changes += abs(changes[p])
                        z[k, p] = new_state
                        energy[p] += changes[p] * precision * field[k, p]
                    if inv_temp == 1.0:
                        probabilities[n, k] += sum_of_probabilities / (S * n_sweeps)
                    if n_changes > 0.0:
                        # A change of z_k changes the fields of all other components. The loop also
                        # changes the field of component k, which is restored after the loop.
                        kept_field = field[k].copy()
                        for j in range(K):
                            gram_entry = G[j, k]
                            for p in range(S):
                                field[j, p] -= gram_entry * changes[p]
                        field[k] = kept_field
            if inv_temp == 1.0:
                break
        # Write the results, and find the particle with the largest p(z) exp(E(z)).
        log_mass[n] = total_log_mass
        most_probable = 0
        for p in range(S):
            energies[n, p] = energy[p]
            weight[p] = energy[p]
            for k in range(K):
                states[n, p, k] = z[k, p]
                weight[p] += z[k, p] * logit[k]
            most_probable = p if weight[p] > weight[most_probable] else most_probable
        best[n] = states[n, most_probable]


@jit_inlined
def _write_fields(
    linear: Array, G: Array, precision: float, z: Array, field: Array, energy: Array
) -> None:
    """Compute the fields (K, S) and energies (S,) of particles z (K, S)."""
    K, S = z.shape
    energy[:] = 0.0
    for k in range(K):
        field_alone = linear[k] - 0.5 * G[k, k]
        field[k] = field_alone
        for j in range(K):
            if j != k:
                gram_entry = G[k, j]
                for p in range(S):
                    field[k, p] -= gram_entry * z[j, p]
        for p in range(S):
            # The sum over k counts the term G_kj z_k z_j of each pair of components twice. The mean
            # of ``field`` and ``field_alone`` has the factor 1/2 at this term.
            energy[p] += 0.5 * precision * z[k, p] * (field[k, p] + field_alone)


@jit_inlined
def _draw_from_prior(logit: Array, seed: np.uint64, z: Array, intervals: IndexArray) -> np.uint64:
    """Draw particles z (K, S) from the prior; return the state of the random generator.

    The S draws of each activation are stratified: the interval [0, 1) is divided into S intervals
    of equal length, and each particle draws its uniform number in one of them, in random order.
    ``intervals`` (S,) is overwritten.
    """
    K, S = z.shape
    random_state = np.uint64(seed)
    for k in range(K):
        probability = 1.0 / (1.0 + np.exp(-logit[k]))
        # Shuffle the intervals by the algorithm of Fisher and Yates.
        for p in range(S):
            intervals[p] = p
        for p in range(S - 1, 0, -1):
            random_state += GOLDEN
            partner = int(uniform(mix(random_state)) * (p + 1))
            intervals[p], intervals[partner] = intervals[partner], intervals[p]
        for p in range(S):
            random_state += GOLDEN
            z[k, p] = 1.0 if (intervals[p] + uniform(mix(random_state))) / S < probability else 0.0
    return random_state


@jit_inlined_allocating
def _write_weights(energy: Array, step: float, weight: Array) -> float:
    """Weight particles for an increase of the inverse temperature by ``step``.

    Write ``exp(step * energy)``, divided by its maximum over particles, to ``weight``. Return the
    logarithm of the mean of ``exp(step * energy)`` over particles.
    """
    max_energy = energy.max()
    sum_of_weights = 0.0
    for p in range(energy.size):
        # Without the limit, `exp` could return denormal numbers, with which arithmetic is slow.
        weight[p] = exp(max(step * (energy[p] - max_energy), -700.0))
        sum_of_weights += weight[p]
    return step * max_energy + log(sum_of_weights / energy.size)


@jit_inlined_allocating
def _choose_step(energy: Array, longest: float, weight: Array) -> float:
    """Find by bisection the longest step that leaves a large enough effective sample size.

    A step is an increase of the inverse temperature, by at most ``longest``. ``weight`` (S,) is
    overwritten.
    """
    low, high = 0.0, longest
    step = longest
    for _ in range(_N_BISECTIONS):
        _write_weights(energy, step, weight)
        sum_of_squares = (weight * weight).sum()
        # The effective sample size is the squared sum of the weights over the sum of their squares.
        if weight.sum() ** 2 >= MIN_EFFECTIVE_SHARE * energy.size * sum_of_squares:
            if step == longest:
                return longest
            low = step
        else:
            high = step
        # Take the geometric mean of the limits, since steps differ by orders of magnitude. The
        # maximum makes the mean positive while ``low`` is 0.
        step = np.sqrt(max(low, 1e-3 * high) * high)
    # A step must be positive, so that the inverse temperature rises.
    return max(low, 1e-12 * longest)
