"""Shares of topics or clusters in each row, corrected for uncertain assignments.

A fit gives the tokens of a document probabilities of topics, or a row probabilities of clusters.
These probabilities use a prior without covariates, which pulls every row towards the mean of all
rows. Averages of the probabilities therefore understate differences between rows.

Let ``r_i`` (K,) be the probabilities of item i, a token or a row, ``w_i`` its weight, and ``D =
diag(sum_i w_i r_i)``. The matrix ``M = D^-1 sum_i w_i r_i r_i'`` has in row k the expected
probabilities of an item that truly belongs to component k. Hence ``r_i' M^-1`` has the true
indicator of item i as its expectation, whatever prior the item has. This is the correction of
Bolck, Croon and Hagenaars with proportional assignment [BCH04]. For topics, the probabilities of a
token depend on its word alone, and ``M_kl = sum_v beta_kv r_vl``; a document's mean over its tokens
is an unbiased estimate of its shares. Estimates may lie outside [0, 1].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvt.readers.validation import counts_of_words, preprocessing_and_model
from skvt.results._clusters import membership, together
from skvt.results.topic_words import topic_probabilities, word_probabilities

# Eigenvalues of the symmetric form of M, at most 1, that are below this count as 0: the data do not
# distinguish the components.
_SINGULAR = 1e-8
# Ridge, relative to the diagonal, of the information of parameters, which is singular if features
# are linearly dependent.
_RIDGE = 1e-6
# Number of rows whose scores are in memory at a time.
_ROWS = 2048


@dataclass(frozen=True)
class Shares:
    """Corrected shares of one fit.

    ``values`` (n, K) are unbiased estimates. ``profiles`` (K, ...) are distributions by which
    components of several fits are matched. ``errors(M, rng)`` (M, K, K) are matrices E for which
    ``values - values @ E`` are the shares under parameters drawn from their posterior, to first
    order.
    """

    values: Any
    profiles: Any
    errors: Callable[[int, np.random.Generator], Any]

    def draws(self, number, rng):
        """Draw matrices A (number, K, K) for which ``values @ A`` are drawn shares.

        The mean of the matrices is the identity, so that means over draws do not depend on them.
        """
        errors = self.errors(number, rng)
        return np.eye(errors.shape[1]) + errors.mean(axis=0) - errors


def is_mixture(estimator):
    """Return whether a fit assigns rows to clusters, rather than tokens to topics.

    Raise ValueError for an estimator that does neither.
    """
    model = preprocessing_and_model(estimator)[1]
    check_is_fitted(model)
    if hasattr(model, "_chances_and_features"):
        return True
    if hasattr(model, "exp_dirichlet_component_"):
        return False
    raise ValueError(
        f"{type(model).__name__} has neither clusters nor topics with a Dirichlet posterior. Pass "
        "StructuredLDA, TemperedLDA, MemoizedHDP, or a mixture."
    )


def words_of(estimator, X):
    """Return the counts of X as a CSR matrix; for a pipeline, the input of its last step."""
    preprocessing, model = preprocessing_and_model(estimator)
    X = X if preprocessing is None else preprocessing.transform(X)
    X = counts_of_words(X, "covariate_effects")
    if X.shape[1] != model.components_.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} words and the fit {model.components_.shape[1]}; count X with the "
            "vocabulary of the fit."
        )
    return X


def topic_shares_of(estimator, X):
    """Return the :class:`Shares` of topics in the documents X, CSR with tokens in each row.

    A draw takes each topic from its Dirichlet posterior. With drawn topics beta + delta, the shares
    of documents of topic k are on average too large by ``delta_k' G``, where G (V, K) are the
    corrected probabilities of words.
    """
    lam = np.asarray(preprocessing_and_model(estimator)[1].components_, np.float64)
    topics, words = topic_probabilities(estimator), word_probabilities(estimator)
    sizes = lam.sum(axis=1) / lam.sum()
    chances = (sizes[:, None] * topics / np.where(words > 0.0, words, 1.0)).T
    corrected = _corrected(chances, words)
    lengths = np.asarray(X.sum(axis=1), np.float64).ravel()
    values = (X @ corrected) / lengths[:, None]

    def errors(number, rng):
        drawn = (rng.standard_gamma(lam) for _ in range(number))
        return np.stack([(g / g.sum(axis=1, keepdims=True) - topics) @ corrected for g in drawn])

    return Shares(values, topics, errors)


def cluster_shares_of(estimator, X, weights, n_clusters=None):
    """Return the :class:`Shares` of clusters in rows of positive weight."""
    preprocessing, model = preprocessing_and_model(estimator)
    X = X if preprocessing is None else preprocessing.transform(X)
    clusters = None if n_clusters is None else model.component_clusters(n_clusters)
    chances, features = model._chances_and_features(X)
    used = np.flatnonzero(weights)
    chances, features, weights = chances[used], features[used], weights[used]
    of_clusters = together(chances, clusters)
    values, sizes = _corrected(of_clusters, weights), weights @ of_clusters
    profiles = (weights[:, None] * of_clusters / np.where(sizes > 0.0, sizes, 1.0)).T

    def errors(number, rng):
        drawn = _drawn_densities(chances, features, weights, values, number, rng)
        joined = membership(np.arange(chances.shape[1]) if clusters is None else clusters)
        sizes = joined @ (weights @ chances)
        return joined @ drawn / np.where(sizes > 0.0, sizes, 1.0)[:, None]

    return Shares(values, profiles, errors)


def _drawn_densities(chances, features, weights, values, number, rng):
    """Sum ``values`` over the errors of drawn densities of components, (number, K, K').

    The log density of component k is linear in the features F (n, P), and the score of row n is
    ``s_nk = r_nk (F_n - mu_k)`` with the component's mean mu_k. A draw weights rows by standard
    exponential variables e: the parameters move by ``theta = (sum_n w_n s_n s_n')^-1 sum_n (e_n -
    1) w_n s_n``, a step of the weighted likelihood bootstrap [NR94]. The outer products of scores
    include what uncertain assignments cost. Times the size of component k, the error of its density
    is ``sum_n w_n s_nk' theta_k`` at the rows n. A component whose effective number of rows is at
    most 2 has no drawn errors, because no quadratic describes its likelihood.
    """
    n, n_components = chances.shape
    sizes = weights @ chances
    means = (weights[:, None] * chances).T @ features / np.where(sizes > 0.0, sizes, 1.0)[:, None]
    # parameters of the components, then the logarithms of their weights
    width = n_components * (features.shape[1] + 1)
    is_alone = sizes**2 <= 2.0 * (weights @ chances**2)
    information, moved = np.zeros((width, width)), np.zeros((width, number))
    slopes = np.zeros((width - n_components, values.shape[1]))
    shares = sizes / weights.sum()
    for rows in (slice(i, i + _ROWS) for i in range(0, n, _ROWS)):
        by_component = chances[rows, :, None] * (features[rows, None] - means)
        by_component[:, is_alone] = 0.0
        scores = np.hstack([by_component.reshape(-1, width - n_components), chances[rows] - shares])
        weighted = weights[rows, None] * scores
        information += weighted.T @ scores
        moved += weighted.T @ (rng.standard_exponential((len(scores), number)) - 1.0)
        slopes += weighted[:, :-n_components].T @ values[rows]
    scale = np.sqrt(np.diag(information))
    scale[scale == 0.0] = 1.0
    information /= scale * scale[:, None]
    information[np.diag_indices(width)] += _RIDGE
    theta = np.linalg.solve(information, moved / scale[:, None]) / scale[:, None]
    of_components = [part.reshape(n_components, features.shape[1], -1)
                     for part in (theta[:-n_components], slopes)]  # fmt: skip
    return np.einsum("kpm,kpj->mkj", *of_components, optimize=True)


def _corrected(chances, weights):
    """Return ``chances M^-1``, (n, K), by the form ``D^-1/2 sum_i w_i r_i r_i' D^-1/2`` of M."""
    root = np.sqrt(weights @ chances)
    scaled = chances / np.where(root > 0.0, root, 1.0)
    symmetric = scaled.T @ (weights[:, None] * scaled)
    return scaled @ np.linalg.pinv(symmetric, rcond=_SINGULAR, hermitian=True) * root
