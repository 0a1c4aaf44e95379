"""The log C(T) of LDA agrees with enumeration for one token and is a bound for several."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import gammaln, logsumexp

from skvt.models.lda import LDA

# There are two topics and three words.
ALPHA3, ETA3 = np.array([0.5, 0.8]), np.array([0.3, 0.6, 0.4])
# These topics have different priors.
OWN3 = np.array([[2.3, 0.6, 0.1], [0.2, 0.5, 0.9]])


def closed_form(alpha, eta, inv_temps):
    """Return ``(log C(T), slope)`` of one token by the model."""
    model = LDA(alpha, eta.T)
    return model.tempered_log_partition(np.asarray(inv_temps))


# ---- the truth, by enumeration ---------------------------------------------------------------


def log_moment(concentration, powers):
    """Return ``log E[prod_i p_i^powers_i]`` under a Dirichlet."""
    a = concentration
    return (gammaln(a + powers) - gammaln(a)).sum() + gammaln(a.sum()) - gammaln((a + powers).sum())


def exact_joint(b, alpha, eta, n_docs, n_tokens):
    """Return the log of the sum over every corpus and assignment."""
    n_topics, n_words = len(alpha), eta.shape[-1]
    own = np.broadcast_to(eta, (n_topics, n_words))
    outcomes = list(itertools.product(range(n_topics), range(n_words)))
    terms = []
    for corpus in itertools.product(outcomes, repeat=n_docs * n_tokens):
        doc_counts = np.zeros((n_docs, n_topics))
        topic_counts = np.zeros((n_topics, n_words))
        for i, (z, w) in enumerate(corpus):
            doc_counts[i // n_tokens, z] += 1
            topic_counts[z, w] += 1
        terms.append(
            sum(log_moment(alpha, b * row) for row in doc_counts)
            + sum(log_moment(eta, b * row) for eta, row in zip(own, topic_counts, strict=True))
        )
    return logsumexp(terms)


@pytest.mark.parametrize("b", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("eta", [ETA3, OWN3], ids=["shared", "own"])
def test_the_closed_form_is_exact_for_a_single_token(b, eta):
    truth = exact_joint(b, ALPHA3, eta, 1, 1)
    assert_allclose(closed_form(ALPHA3, eta, [b])[0], truth, rtol=1e-12)
    near = closed_form(ALPHA3, eta, [b - 1e-6, b + 1e-6])[0]
    assert_allclose(closed_form(ALPHA3, eta, [b])[1], np.diff(near) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize(("n_docs", "n_tokens"), [(1, 2), (2, 1)])
def test_the_closed_form_is_a_lower_bound_for_several_tokens(n_docs, n_tokens):
    for b in (0.8, 0.5, 0.2):
        truth = exact_joint(b, ALPHA3, ETA3, n_docs, n_tokens) / (n_docs * n_tokens)
        assert 0.0 < closed_form(ALPHA3, ETA3, [b])[0] < truth


def test_the_closed_form_vanishes_at_unit_temperature_and_is_convex():
    inv_temps = np.linspace(1.0, 0.05, 12)
    value, _ = closed_form(np.array([0.1, 0.2, 1.5]), np.linspace(0.01, 2.0, 7), inv_temps)
    assert_allclose(value[0], 0.0, atol=1e-13)
    assert np.all(np.diff(value) > 0)
    # The log of a sum of exponentials of inv_temp is convex.
    assert np.all(np.diff(value, 2) > 0)
