"""Compiled loop of the factorial mixture: sweeps over the factors of each row."""

import numpy as np

from skvt.expfam._special import exp, jit, lit, log

# Rows worked on side by side: each operation is one for all of them.
LANES = 16
# Factors subtracted at a time; their number is filled up with zeros.
_UNROLLED = 4
# Activations keep so far from 0 that products of two are no denormal numbers.
_FARTHEST = 30.0


@jit
def sweep_factors(
    linear, gram, logit, precision, inv_temps, ladder, most, tol, q, constant, bound, energy
):
    """Coordinate ascent over the activations of each row, in place.

    With b the inverse temperature of the row, times ``ladder[i]`` in sweep i,

        q_k = sigmoid(b (logit_k + precision (linear_k - G_kk / 2 - sum_{j != k} G_kj q_j))).

    [VT16 app. C]. After the ladder ``most`` sweeps, fewer for a row whose largest change is less
    than ``tol``.

    Parameters
    ----------
    linear : ndarray, shape (n, K)
        ``E[mu_k] . x``.
    gram : ndarray, shape (1, K, K) or (n, K, K)
        ``G = E[mu mu']``, of the columns of the row that are there.
    logit : ndarray, shape (K,)
        ``log(pi / (1 - pi))``.
    precision : float
        Of the noise.
    inv_temps : ndarray, shape (n,) or (1,)
    ladder : ndarray, shape (L,)
    most : int
    tol : float
    q : ndarray, shape (n, K)
        Where to start; overwritten.
    constant : ndarray of float64, shape (n,)
        What of the energy does not depend on the activations.
    bound, energy : ndarray of float64, shape (n,)
        Overwritten: ``b energy + entropy``, and the energy, in nats.
    """
    n_rows, K = q.shape
    padded = -(-K // _UNROLLED) * _UNROLLED
    one, half = lit(precision, 1.0), lit(precision, 0.5)
    shared = gram.shape[0] == 1
    G = np.zeros((K, padded), q.dtype)
    v = np.zeros((padded, LANES), q.dtype)
    field = np.empty((K, LANES), q.dtype)
    total = np.empty(LANES, q.dtype)
    inv_temp = np.empty(LANES, q.dtype)
    change = np.empty(LANES, q.dtype)
    moving = np.empty(LANES, np.bool_)
    if shared:
        G[:, :K] = gram[0]
    for start in range(0, n_rows, LANES):
        n = min(LANES, n_rows - start)
        for r in range(LANES):
            row = start + min(r, n - 1)  # lanes without a row repeat the last one
            inv_temp[r] = inv_temps[row] if inv_temps.size > 1 else inv_temps[0]
            moving[r] = True
            for k in range(K):
                v[k, r] = q[row, k]
                field[k, r] = linear[row, k] - half * gram[0 if shared else row, k, k]
        for sweep in range(ladder.size + most):
            factor = ladder[sweep] if sweep < ladder.size else one
            change[:] = lit(precision, 0.0)
            for k in range(K):
                if shared:
                    own = G[k, k]
                    for r in range(LANES):
                        total[r] = field[k, r] + own * v[k, r]
                    for j in range(0, padded, _UNROLLED):
                        g0, g1, g2, g3 = G[k, j], G[k, j + 1], G[k, j + 2], G[k, j + 3]
                        v0, v1, v2, v3 = v[j], v[j + 1], v[j + 2], v[j + 3]
                        for r in range(LANES):
                            total[r] -= g0 * v0[r] + g1 * v1[r] + g2 * v2[r] + g3 * v3[r]
                else:
                    for r in range(LANES):
                        g = gram[start + min(r, n - 1), k]
                        t = field[k, r] + g[k] * v[k, r]
                        for j in range(K):
                            t -= g[j] * v[j, r]
                        total[r] = t
                for r in range(LANES):
                    a = factor * inv_temp[r] * (logit[k] + precision * total[r])
                    a = min(max(a, -lit(precision, _FARTHEST)), lit(precision, _FARTHEST))
                    new = one / (one + exp(-a))
                    new = new if moving[r] else v[k, r]
                    change[r] = max(change[r], abs(new - v[k, r]))
                    v[k, r] = new
            if sweep >= ladder.size:
                going = False
                for r in range(LANES):
                    moving[r] = moving[r] and change[r] >= tol
                    going = going or moving[r]
                if not going:
                    break
        for r in range(n):
            row = start + r
            energy[row], entropy = constant[row], 0.0
            for k in range(K):
                g = gram[0 if shared else row, k]
                on = np.float64(v[k, r])
                q[row, k] = v[k, r]
                cross = 0.0
                for j in range(k):
                    cross += np.float64(g[j]) * np.float64(v[j, r])
                inside = np.float64(field[k, r]) - cross
                energy[row] += on * (np.float64(logit[k]) + np.float64(precision) * inside)
                if 0.0 < on < 1.0:
                    entropy -= on * log(on) + (1.0 - on) * log(1.0 - on)
            bound[row] = np.float64(inv_temp[r]) * energy[row] + entropy
