"""What all generators of data have in common: seeds, and what they refuse."""

import numpy as np
import pytest
import scipy.sparse as sp

from skvt.datasets import (
    make_bernoulli_mixture,
    make_edge_patches,
    make_shapes,
    make_spectrogram,
    make_topic_corpus,
)

GENERATORS = [
    make_bernoulli_mixture, make_edge_patches, make_shapes, make_spectrogram, make_topic_corpus,
]  # fmt: skip


def dense(X):
    return X.toarray() if sp.issparse(X) else X


@pytest.mark.parametrize("make", GENERATORS)
def test_a_seed_decides_everything(make):
    one, again, other = (make(50, random_state=seed) for seed in (3, 3, 4))
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(dense(a), dense(b))
    assert not np.array_equal(dense(one.X), dense(other.X))
    state = np.random.RandomState(3)
    np.testing.assert_array_equal(dense(make(50, random_state=state).X), dense(one.X))
    assert not np.array_equal(dense(make(50, random_state=state).X), dense(one.X))


@pytest.mark.parametrize(
    ("make", "arguments", "error", "message"),
    [
        (make_bernoulli_mixture, {"n_samples": 1.5}, TypeError, "n_samples"),
        (make_bernoulli_mixture, {"n_features": 0}, ValueError, "n_features"),
        (make_bernoulli_mixture, {"n_components": -1}, ValueError, "n_components"),
        (make_bernoulli_mixture, {"weight_concentration": [1.0, 2.0]}, ValueError, "weight_conc"),
        (make_bernoulli_mixture, {"feature_prior": [1.0, 2.0, 3.0]}, ValueError, "feature_prior"),
        (make_edge_patches, {"n_samples": 10.0}, TypeError, "n_samples"),
        (make_edge_patches, {"n_components": 0}, ValueError, "n_components"),
        (make_edge_patches, {"patch_size": 1}, ValueError, "patch_size"),
        (make_edge_patches, {"patch_size": "5"}, TypeError, "patch_size"),
        (make_edge_patches, {"contrast": 0.0}, ValueError, "contrast"),
        (make_edge_patches, {"noise": None}, TypeError, "noise"),
        (make_edge_patches, {"random_state": "seed"}, ValueError, "seed"),
        (make_shapes, {"n_samples": 0}, ValueError, "n_samples"),
        (make_shapes, {"activation": 1.0}, ValueError, "activation"),
        (make_shapes, {"noise_variance": -1.0}, ValueError, "noise_variance"),
        (make_spectrogram, {"n_samples": 2.5}, TypeError, "n_samples"),
        (make_spectrogram, {"n_components": 0}, ValueError, "n_components"),
        (make_spectrogram, {"n_features": 1}, ValueError, "n_features"),
        (make_spectrogram, {"mean_count": 0.0}, ValueError, "mean_count"),
        (make_spectrogram, {"activation_shape": -1.0}, ValueError, "activation_shape"),
        (make_topic_corpus, {"n_documents": 0}, ValueError, "n_documents == 0, must be >= 1"),
        (make_topic_corpus, {"n_components": "2"}, TypeError, "n_components must be an instance"),
        (make_topic_corpus, {"min_length": -1}, ValueError, "min_length == -1, must be >= 0"),
        (make_topic_corpus, {"mean_length": 3}, ValueError, r"= \[5, inf\). Got 3"),
        (
            make_topic_corpus,
            {"mean_length": np.nan},
            ValueError,
            "must be a finite number .* Got nan",
        ),
        (make_topic_corpus, {"doc_topic_prior": 0}, ValueError, r"Each entry .* range \(0, inf\)"),
        (make_topic_corpus, {"doc_topic_prior": [1, 2]}, ValueError, "n_components = 20 numbers"),
        (make_topic_corpus, {"topic_word_prior": [[1.0]]}, ValueError, "n_features = 1000 numbers"),
        (make_topic_corpus, {"topics": [[2.0, 3.0]]}, ValueError, "sums to 5. Divide each row"),
        (make_topic_corpus, {"topics": [[1.5, -0.5]]}, ValueError, "smallest entry is -0.5"),
    ],
)
def test_illegal_arguments_are_refused(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)
