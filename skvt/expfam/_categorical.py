"""The categorical family: distributions of assignments to K categories.

A member of the family is one distribution, and the leading axes of arrays enumerate members.
:class:`~skvt.expfam.Family` documents the methods that all families have.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, logsumexp, softmax

from skvt.typing import Array


class Categorical:
    """Categorical distribution of an assignment z (K,), an indicator vector.

    z is 1 at the category and 0 elsewhere, so that ``z.argmax(-1)`` is the category. The sufficient
    statistic is ``t(z) = z``, the natural parameter ``eta`` (..., K) has the log probabilities up
    to a constant, and the base measure is 1.
    """

    @staticmethod
    def log_normalizer(eta: ArrayLike) -> Array:
        """Return ``log sum_k exp(eta_k)``, shape (...)."""
        return logsumexp(np.asarray(eta, dtype=np.float64), axis=-1)

    @staticmethod
    def expectation(eta: ArrayLike) -> Array:
        """Return probabilities, shape (..., K)."""
        return softmax(np.asarray(eta, dtype=np.float64), axis=-1)

    @staticmethod
    def sample(eta: ArrayLike, rng: np.random.Generator) -> Array:
        """Draw an indicator vector for each member, shape (..., K)."""
        return rng.multinomial(1, Categorical.expectation(eta)).astype(np.float64)

    @staticmethod
    def to_standard(eta: ArrayLike) -> dict[str, Array]:
        return {"probabilities": Categorical.expectation(eta)}

    @staticmethod
    def from_standard(probabilities: ArrayLike) -> Array:
        """Return log probabilities, -inf for probabilities of 0."""
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(probabilities, dtype=np.float64))

    @staticmethod
    def mean(eta: ArrayLike) -> Array:
        return Categorical.expectation(eta)

    @staticmethod
    def variance(eta: ArrayLike) -> Array:
        """Return ``p_k (1 - p_k)`` for the probabilities p, shape (..., K)."""
        probabilities = Categorical.expectation(eta)
        return probabilities * (1.0 - probabilities)

    @staticmethod
    def log_density(eta: ArrayLike, x: ArrayLike) -> Array:
        """Return the log probability of ``x`` in nats, (...); -inf unless x is an indicator."""
        eta, x = np.asarray(eta, dtype=np.float64), np.asarray(x, dtype=np.float64)
        is_legal = np.all((x == 0.0) | (x == 1.0), axis=-1) & (x.sum(axis=-1) == 1.0)
        log_p = np.where(x == 1.0, eta, 0.0).sum(axis=-1) - Categorical.log_normalizer(eta)
        return np.where(is_legal, log_p, -np.inf)

    @staticmethod
    def entropy(eta: ArrayLike) -> Array:
        return entr(Categorical.expectation(eta)).sum(axis=-1)
