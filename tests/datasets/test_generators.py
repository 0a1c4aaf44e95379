"""A generator of data depends only on its seed, and refuses illegal arguments."""

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
def test_a_seed_determines_all_results(make):
    one, again, other = (make(50, random_state=seed) for seed in (3, 3, 4))
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(dense(a), dense(b))
    assert not np.array_equal(dense(one.X), dense(other.X))
    state = np.random.RandomState(3)
    np.testing.assert_array_equal(dense(make(50, random_state=state).X), dense(one.X))
    assert not np.array_equal(dense(make(50, random_state=state).X), dense(one.X))


# Illegal arguments of each generator, with a part of the message.
ILLEGAL = {
    make_bernoulli_mixture: [
        ({"n_samples": 1.5}, "n_samples"), ({"n_features": 0}, "n_features"),
        ({"n_components": -1}, "n_components"),
        ({"weight_concentration": [1.0, 2.0]}, "weight_conc"),
        ({"feature_prior": [1.0, 2.0, 3.0]}, "feature_prior"),
    ],
    make_edge_patches: [
        ({"n_samples": 10.0}, "n_samples"), ({"n_components": 0}, "n_components"),
        ({"patch_size": 1}, "patch_size"), ({"patch_size": "5"}, "patch_size"),
        ({"contrast": 0.0}, "contrast"), ({"noise": None}, "noise"),
        ({"random_state": "seed"}, "seed"),
    ],
    make_shapes: [
        ({"n_samples": 0}, "n_samples"), ({"activation": 1.0}, "activation"),
        ({"noise_variance": -1.0}, "noise_variance"),
    ],
    make_spectrogram: [
        ({"n_samples": 2.5}, "n_samples"), ({"n_components": 0}, "n_components"),
        ({"n_features": 1}, "n_features"), ({"mean_count": 0.0}, "mean_count"),
        ({"activation_shape": -1.0}, "activation_shape"),
    ],
    make_topic_corpus: [
        ({"n_documents": 0}, "n_documents == 0, must be >= 1"),
        ({"n_components": "2"}, "n_components must be an instance"),
        ({"min_length": -1}, "min_length == -1, must be >= 0"),
        ({"mean_length": 3}, r"= \[5, inf\). Got 3"),
        ({"mean_length": np.nan}, "must be a finite number .* Got nan"),
        ({"doc_topic_prior": 0}, r"Each entry .* range \(0, inf\)"),
        ({"doc_topic_prior": [1, 2]}, "n_components = 20 numbers"),
        ({"topic_word_prior": [[1.0]]}, "n_features = 1000 numbers"),
        ({"topics": [[2.0, 3.0]]}, "sums to 5. Divide each row"),
        ({"topics": [[1.5, -0.5]]}, "smallest entry is -0.5"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("make", GENERATORS)
def test_a_generator_refuses_illegal_arguments(make):
    for arguments, message in ILLEGAL[make]:
        with pytest.raises((TypeError, ValueError), match=message):
            make(**arguments)
