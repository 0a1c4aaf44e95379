"""Gain of the exact bound between two evaluations, in the units of tolerances."""

import numpy as np


def gain_per_unit(previous: float, current: float, n_units: float) -> float:
    """Nats per unit of data: a row, or a word of a corpus; in all for a corpus without words."""
    return (current - previous) / (n_units or 1.0)


def perplexity_fall(previous: float, current: float, n_units: float) -> float:
    """Fall of the perplexity ``exp(-ELBO / number of words)``."""
    n_words = max(1.0, n_units)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.exp(-previous / n_words) - np.exp(-current / n_words))
