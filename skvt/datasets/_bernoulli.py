"""Generator of binary rows from a known mixture of Bernoullis."""

from collections import namedtuple
from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from skvt.components.specs import positive_numbers

BernoulliRows = namedtuple("BernoulliRows", ["X", "labels", "weights", "means"])
BernoulliRows.__doc__ = (
    "Binary rows X (N, D), component of each (N,), weights (K,) and probabilities of ones (K, D)."
)


def make_bernoulli_mixture(
    n_samples=1000, *, n_features=100, n_components=100, weight_concentration=20.0,
    feature_prior=1.0, random_state=None,
):  # fmt: skip
    """Draw binary rows from a mixture of Bernoullis with many components.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows N.
    n_features : int, default=100
        Number of columns D.
    n_components : int, default=100
        Number of components K. If it is large, the weights are nearly the weights of a Dirichlet
        process.
    weight_concentration : float, default=20.0
        Concentration alpha; the weights are a draw from ``Dirichlet(alpha / K)``.
    feature_prior : float or array-like of shape (2,), default=1.0
        Parameters (a, b) of the beta prior of the probability of a one. A number stands for both.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same rows at every call.

    Returns
    -------
    X : ndarray of int8, shape (N, D)
        Zeros and ones.
    labels : ndarray of int, shape (N,)
        Component of each row.
    weights : ndarray, shape (K,)
        Weights of the components.
    means : ndarray, shape (K, D)
        Probability of a one in each component and column. The four results are returned as a named
        tuple.

    Notes
    -----
    ``pi ~ Dirichlet(alpha / K)``, ``phi_kd ~ Beta(a, b)``, ``z_n ~ Categorical(pi)`` and
    ``x_nd ~ Bernoulli(phi_{z_n d})``. The defaults are the setting of section 4.2 of [1]_, in which
    about half of the components have rows.

    References
    ----------
    .. [1] M. Hoffman, D. Blei (2015). Structured stochastic variational inference. AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt.datasets import make_bernoulli_mixture
    >>> rows = make_bernoulli_mixture(random_state=0)
    >>> rows.X.shape, np.unique(rows.labels).size
    ((1000, 100), 50)
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(n_features, "n_features", Integral, min_val=1)
    check_scalar(n_components, "n_components", Integral, min_val=1)
    (alpha,) = positive_numbers("weight_concentration", weight_concentration, "a number", (1,))
    a, b = positive_numbers("feature_prior", feature_prior, "a number or a pair (a, b)", (2,))
    # Four random numbers are the seed of the Generator.
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1, size=4))
    weights = rng.dirichlet(np.full(n_components, alpha / n_components))
    means = rng.beta(a, b, size=(n_components, n_features))
    labels = rng.choice(n_components, size=n_samples, p=weights)
    X = (rng.random((n_samples, n_features)) < means[labels]).astype(np.int8)
    return BernoulliRows(X, labels, weights, means)
