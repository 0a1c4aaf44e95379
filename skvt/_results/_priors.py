"""Checks and simpler forms of Dirichlet priors of topic models."""

import numpy as np

from skvt.readers.validation import LARGEST, LEGAL_RANGE, illegal_value_error, require_prior


def prior_vector(name, value, size, size_name, *, n_topics=None, remedy=""):
    """Return a Dirichlet prior as an array of floats; raise ValueError for illegal values.

    A positive number or a vector of length ``size`` becomes a vector of this length. With
    ``n_topics``, an array (n_topics, size) is also legal. Without ``n_topics``, the error for a
    two-dimensional array ends in ``remedy``. The errors name the parameter by ``name``, and the
    size by ``size_name``.
    """
    try:
        prior = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise illegal_value_error(name, "positive numbers", repr(value)) from error
    shapes = [(), (size,)]
    legal_forms = f"a number or an array of {size_name} = {size} numbers"
    if n_topics is not None:
        shapes.append((n_topics, size))
        legal_forms += f", or an array of shape (n_components, {size_name}) = {shapes[-1]}"
    if prior.shape not in shapes:
        raise ValueError(
            f"The {name!r} parameter must be {legal_forms}. Got an array of shape {prior.shape} "
            f"instead.{remedy if prior.ndim == 2 and n_topics is None else ''}"
        )
    if prior.ndim < 2:
        # The error for zeros and infinite numbers comes first, because it has a remedy. Then
        # `require_prior` checks the narrower range that is legal for computations.
        if not (np.all(np.isfinite(prior)) and np.all(prior > 0.0)):
            raise ValueError(
                f"Each entry of the {name!r} parameter must be in the range (0, inf). Got {prior} "
                "instead; leave out words or topics that are to have no probability."
            )
        require_prior(name, value)
        return np.broadcast_to(prior, (size,)).copy()
    is_illegal = ~((prior >= 1.0 / LARGEST) & (prior <= LARGEST))
    if is_illegal.any():
        topic, word = np.argwhere(is_illegal)[0].tolist()
        raise ValueError(
            f"Each entry of the {name!r} parameter must be in {LEGAL_RANGE}. Got "
            f"{prior[topic, word]:g} for word {word} of topic {topic}; use a small number for a "
            "word that the topic is not to have."
        )
    return prior


def simplify_prior(parameter, prior):
    """Return the prior ``prior`` as a float if possible, otherwise as a copy.

    A float is possible if the user's ``parameter`` was not an array, and all entries of the prior
    are equal.
    """
    is_number = prior.ndim == 1 and np.ndim(parameter) == 0 and np.all(prior == prior[0])
    return float(prior[0]) if is_number else prior.copy()
