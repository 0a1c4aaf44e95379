"""How much counts vary beyond what topics explain."""

import numpy as np

from skvt.rows import dense, take_rows

# Maximum numbers of documents and of the most frequent words for the estimate of the noise ratio.
MAX_NOISE_ROWS, MAX_NOISE_WORDS = 1_000, 150
# Minimum number of words for the estimate of the noise ratio. With fewer words, topics may explain
# most directions of the residuals. An estimate from W words is divided by
# ``1 + (MIN_NOISE_WORDS / W)**2``, because it varies more if there are few words.
MIN_NOISE_WORDS = 20


def compute_noise_ratio(X, weights):
    """Return how much counts vary beyond topics, relative to Poisson counts.

    A residual is a count minus its expectation, divided by the square root of the expectation,
    where the expectation assumes that words do not depend on documents. Topics raise the variance
    of the residuals in few principal directions only. The lower quartile of the variances over all
    directions therefore shows the noise. The result is this quartile divided by the quartile for
    standard normal residuals, and by a number that is larger than 1 if there are few words. It is
    0 if there are too few words or documents for an estimate.
    """
    n_rows = X.shape[0]
    # Evenly spaced rows.
    rows = np.unique(np.linspace(0, n_rows - 1, min(n_rows, MAX_NOISE_ROWS)).astype(np.int64))
    counts, _ = take_rows(X, weights, rows)
    document_lengths = np.asarray(counts.sum(axis=1, dtype=np.float64)).ravel()
    word_counts = np.asarray(counts.sum(axis=0, dtype=np.float64)).ravel()
    nonempty_rows = np.flatnonzero(document_lengths)
    # Take at most half as many words as documents, so that all variances can be positive.
    n_words = min(MAX_NOISE_WORDS, nonempty_rows.size // 2)
    frequent_words = np.argsort(-word_counts, kind="stable")[:n_words]
    frequent_words = frequent_words[word_counts[frequent_words] > 0.0]
    if frequent_words.size < MIN_NOISE_WORDS:
        return 0.0
    word_shares = word_counts[frequent_words] / word_counts.sum()
    expected = np.outer(document_lengths[nonempty_rows], word_shares)
    residuals = (dense(counts[nonempty_rows][:, frequent_words]) - expected) / np.sqrt(expected)
    noise = np.random.default_rng(0).standard_normal(residuals.shape)
    # The eigenvalues are the variances in the principal directions, times the number of documents.
    # This number is the same in both matrices, so that it cancels in the ratio of the quartiles.
    residual_quartile, noise_quartile = (
        np.quantile(np.linalg.eigvalsh(matrix.T @ matrix), 0.25) for matrix in (residuals, noise)
    )
    few_words_factor = 1.0 + (MIN_NOISE_WORDS / frequent_words.size) ** 2
    return residual_quartile / noise_quartile / few_words_factor
