"""Sums of random subsets of small binary pictures."""

from collections import namedtuple
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state, check_scalar

Shapes = namedtuple("Shapes", ["X", "activations", "components"])
Shapes.__doc__ = "Rows X (N, 16), activations (N, 8) and components (8, 16)."

# Eight pictures of 4 x 4: overlapping strokes, corners and blocks.
_PICTURES = """
    ####  ....  #...  ...#  ##..  .#..  #..#  ....
    ....  ....  #...  ...#  ##..  ####  .##.  .##.
    ....  ....  #...  ...#  ....  .#..  .##.  ..##
    ....  ####  #...  ...#  ....  .#..  #..#  ...#
"""


def _parse_pictures():
    """Return the pictures as rows of zeros and ones, (8, 16)."""
    lines = [line.split() for line in _PICTURES.split("\n") if line.strip()]
    # Each column of the text is a picture: four words of four characters.
    pictures = [[list(word) for word in column] for column in zip(*lines, strict=True)]
    return (np.array(pictures) == "#").reshape(len(pictures), -1).astype(np.float64)


def make_shapes(n_samples=10_000, *, activation=0.3, noise_variance=0.1, random_state=None):
    """Draw rows that are sums of some of 8 pictures of 4 x 4, plus noise [VT16 app. C]_.

    Each picture is black and white, and is multiplied by a number that is drawn from [0.5, 1]
    once for all rows. It is present in each row with a fixed probability, independently.

    Parameters
    ----------
    n_samples : int, default=10_000
        Number of rows N.
    activation : float, default=0.3
        Probability of each picture.
    noise_variance : float, default=0.1
        Variance of the noise of a pixel.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same rows at every call.

    Returns
    -------
    X : ndarray of shape (n_samples, 16)
        Rows.
    activations : ndarray of bool, shape (n_samples, 8)
        Which pictures are present.
    components : ndarray of shape (8, 16)
        The pictures, multiplied by their numbers. The three results are returned as a named tuple.

    References
    ----------
    .. [VT16] S. Mandt, J. McInerney, F. Abrol, R. Ranganath, D. Blei, "Variational Tempering",
       AISTATS 2016.

    Examples
    --------
    >>> from skvt.datasets import make_shapes
    >>> X, activations, components = make_shapes(100, random_state=0)
    >>> X.shape, activations.shape, components.shape
    ((100, 16), (100, 8), (8, 16))
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(
        activation, "activation", Real, min_val=0.0, max_val=1.0, include_boundaries="neither"
    )
    check_scalar(noise_variance, "noise_variance", Real, min_val=0.0)
    random_state = check_random_state(random_state)
    rng = np.random.default_rng(random_state.randint(np.iinfo(np.int32).max))
    pictures = _parse_pictures()
    components = pictures * rng.uniform(0.5, 1.0, size=(len(pictures), 1))
    activations = rng.random((n_samples, len(pictures))) < activation
    noise = np.sqrt(noise_variance) * rng.standard_normal((n_samples, pictures.shape[1]))
    X = activations @ components + noise
    return Shapes(X, activations, components)
