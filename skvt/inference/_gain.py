"""What the exact bound gained between two evaluations, in the unit of a tolerance."""

import numpy as np


def gain_per_unit(n_units):
    """``gain(previous, current)`` in nats per unit of data: a row, or a word of a corpus."""

    def gain(previous, current):
        return (current - previous) / n_units

    return gain


def perplexity_fall(n_words):
    """``gain(previous, current)`` as the fall of the perplexity ``exp(-ELBO / n_words)``."""

    def gain(previous, current):
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.exp(-previous / n_words) - np.exp(-current / n_words))

    return gain
