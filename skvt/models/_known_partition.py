"""log C(T) of likelihoods for which it does not depend on the globals [VT16 app. C]."""

import numpy as np
from scipy.special import logsumexp

from skvt.typing import Array


def noise_log_partition(b: Array, n_features: int, variance: float) -> tuple[Array, Array]:
    """``log int N(x; m, s I)^b dx``, whatever m, and its slope in b, (M,) each, in nats."""
    half, log_scale = 0.5 * n_features, np.log(2.0 * np.pi * variance)
    return half * ((1.0 - b) * log_scale - np.log(b)), half * (-log_scale - 1.0 / b)


def choice_log_partition(b: Array, log_p: Array) -> tuple[Array, Array]:
    """``log sum_j p_j^b`` for log probabilities (J, ...), and its slope in b, (M, ...) each."""
    powers = np.multiply.outer(b, log_p)
    value = logsumexp(powers, axis=1)
    return value, (np.exp(powers - value[:, None]) * log_p).sum(axis=1)
