import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings


@pytest.fixture(scope="module")
def corpus():
    return load_docstrings()


def test_the_corpus_is_large_and_has_documents_of_all_packages(corpus):
    assert len(corpus.data) == len(corpus.target) == len(corpus.names) == len(set(corpus.data))
    assert np.bincount(corpus.target).min() > 500
    assert sum(len(text.split()) for text in corpus.data) > 300_000
    for name, target in zip(corpus.names, corpus.target, strict=True):
        assert name.split(".")[0] == corpus.target_names[target]
    document = dict(zip(corpus.names, corpus.data, strict=True))["sklearn.cluster.KMeans"]
    assert "inertia" in document


def test_no_markup_code_or_formula_is_left(corpus):
    text = "\n".join(corpus.data)
    for pattern in (r">>>", r"`", r"\\frac", r":(math|func|class|ref|term):", r"-{4,}", r"={4,}"):
        assert not re.findall(pattern, text), pattern
    assert not re.search(r"\.\. (versionadded|deprecated|math|code-block|plot)::", text)
    assert not re.search(r"https?://\w", text)


def test_stop_words_remove_the_jargon_of_docstrings(corpus):
    assert {"the", "array_like", "optional", "default", "returns"} <= DOCSTRING_STOP_WORDS
    assert not {"matrix", "random", "kernel", "polynomial", "sparse"} & DOCSTRING_STOP_WORDS
    vectorizer = CountVectorizer(stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.5)
    X = vectorizer.fit_transform(corpus.data)
    assert X.shape[1] > 2000
    assert (X.sum(axis=1) == 0).mean() < 0.005
    assert (X > 0).mean(axis=0).max() < 0.45  # No word is in nearly every document.
