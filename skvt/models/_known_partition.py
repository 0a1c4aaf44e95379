"""The tempered normaliser log C(T) of likelihoods whose C(T) is known [VT16 app. C].

C(T) normalises the tempered likelihood: it is the likelihood to the power 1 / T, integrated over
the data and summed over assignments. Learned temperatures need log C(T) as a function of the
inverse temperature b = 1 / T. The functions compute its terms for mixtures and factorial models, in
nats: the term of normal noise, and the term of a choice among J values, such as components. M is
the number of temperatures.
"""

import numpy as np
from scipy.special import logsumexp

from skvt.typing import Array


def compute_noise_partition(b: Array, n_features: int, variance: float) -> tuple[Array, Array]:
    """Return ``log int N(x; m, s I)^b dx`` and its slope in b, (M,) each, for ``b`` (M,).

    x has ``n_features`` dimensions, and s is ``variance``. The integral does not depend on m.
    """
    half_d, log_scale = 0.5 * n_features, np.log(2.0 * np.pi * variance)
    return half_d * ((1.0 - b) * log_scale - np.log(b)), half_d * (-log_scale - 1.0 / b)


def compute_choice_partition(b: Array, log_p: Array) -> tuple[Array, Array]:
    """Return ``log sum_j p_j^b`` and its slope in b, (M, ...) each, for ``b`` (M,).

    ``log_p`` (J, ...) are the log probabilities of the J values of one or several choices.
    """
    log_powers = np.multiply.outer(b, log_p)
    value = logsumexp(log_powers, axis=1)
    return value, (np.exp(log_powers - value[:, None]) * log_p).sum(axis=1)
