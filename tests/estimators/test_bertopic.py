"""Mixtures as the clusters of BERTopic, which asks for ``fit``, ``labels_`` and ``predict``."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

from skvt import MemoizedDPGMM
from skvt.datasets import load_docstrings


@pytest.mark.slow
def test_each_document_has_the_topic_of_its_component():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of what BERTopic imports and calls
        bertopic = pytest.importorskip("bertopic")
        from_dims = bertopic.dimensionality.BaseDimensionalityReduction
        texts = load_docstrings().data[::4]
        embed = make_pipeline(
            TfidfVectorizer(min_df=5, stop_words="english"), TruncatedSVD(8, random_state=0)
        )
        embeddings = embed.fit_transform(texts)
        mixture = MemoizedDPGMM(random_state=0)
        model = bertopic.BERTopic(
            embedding_model=bertopic.backend.BaseEmbedder(), umap_model=from_dims(),
            hdbscan_model=mixture, vectorizer_model=CountVectorizer(stop_words="english"),
        )  # fmt: skip
        topics, _ = model.fit_transform(texts, embeddings=embeddings)
        again, _ = model.transform(texts[:50], embeddings=embeddings[:50])
    assert mixture.n_components_ > 1 and min(topics) == 0
    # topics are components in another order, without outliers
    pairs = set(zip(topics, mixture.labels_.tolist(), strict=True))
    assert len(pairs) == len(set(topics)) == len(np.unique(mixture.labels_))
    assert list(again) == list(topics[:50])
