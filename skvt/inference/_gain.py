"""Gain of the exact bound between two evaluations, in the units of tolerances."""

import numpy as np


def gain_per_unit(previous: float, current: float, n_units: float) -> float:
    """Nats per unit of data: a row, or a word of a corpus; in all for a corpus without words."""
    return (current - previous) / (n_units or 1.0)


def perplexity(bound: float, n_words: float) -> float:
    """``exp(-ELBO / number of words)``."""
    with np.errstate(over="ignore"):
        return float(np.exp(-bound / max(1.0, n_words)))


def perplexity_fall(previous: float, current: float, n_units: float) -> float:
    """Fall of the perplexity."""
    with np.errstate(invalid="ignore"):
        return float(np.subtract(perplexity(previous, n_units), perplexity(current, n_units)))
