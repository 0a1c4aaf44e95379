"""Notebooks show an estimator before and after a fit."""

import re

import numpy as np
import pandas as pd
import pytest
from estimators._registry import CLASSES
from sklearn.base import BaseEstimator

from skvt import (
    AnnealedFactorialMixture,
    CAVIGaussianMixture,
    MemoizedDPMixture,
    StructuredGaPNMF,
    TemperedLDA,
)
from skvt.datasets import make_shapes

pytestmark = pytest.mark.skipif(
    not hasattr(BaseEstimator, "_html_repr"),
    reason="the diagram of scikit-learn 1.6 stays as it is",
)


def text_of(estimator):
    """The text that is shown below the diagram."""
    page = re.sub(r"(?s)<(style|script)>.*?</\1>", "", estimator._repr_html_())
    return re.sub(r"<[^>]*>", " ", page.split("</body>")[-1])


@pytest.mark.parametrize("entry", CLASSES, ids=lambda entry: entry.cls.__name__)
def test_notebooks_show_the_result_after_a_fit_and_a_link_to_our_pages_before(entry):
    estimator = entry.make()
    name = type(estimator).__name__
    assert f"skvt.readthedocs.io/en/latest/generated/skvt.{name}.html" in estimator._repr_html_()
    assert not text_of(estimator).strip()
    for begun in (estimator.fit(entry.data()), entry.make().partial_fit(entry.data())):
        assert text_of(begun).strip()


def test_components_of_sums_and_of_known_weights_are_shown_with_their_largest_values():
    rng = np.random.default_rng(0)
    groups = rng.choice(2, size=200, p=[0.3, 0.7])
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["age", "size", "noise"])
    X["size"] += np.array([-40.0, 10.0])[groups]
    mixture = CAVIGaussianMixture(2, weights=[0.3, 0.7], noise_variance=1.0, random_state=0).fit(X)
    shown = re.findall(r"(\d+\.\d)% +size (-?[\d.]+)", text_of(mixture))
    np.testing.assert_allclose(
        np.array(shown, float), [[70.0, 10.0], [30.0, -40.0]], rtol=0.0, atol=0.5
    )
    counts = np.zeros((60, 3))
    counts[:40, 0], counts[40:, 2] = 90.0, 50.0
    parts = StructuredGaPNMF(5, max_iter=100, random_state=0).fit(counts + 0.1)
    first = re.search(r"\d% +column (\d) ([\d.]+)", text_of(parts))
    largest = parts.components_[parts.weights_.argmax()]
    assert int(first[1]) == largest.argmax()
    assert float(first[2]) == pytest.approx(largest.max(), rel=0.01)
    shapes = AnnealedFactorialMixture(3, random_state=0).fit(make_shapes(100, random_state=0)[0])
    probabilities = [float(share) for share in re.findall(r"(\d+\.\d)%", text_of(shapes))]
    expected = np.sort(100.0 * shapes.activation_prior_)[::-1]
    np.testing.assert_allclose(probabilities, expected, rtol=0.0, atol=0.05001)


def test_topics_are_shown_with_words_and_shares_in_the_order_of_their_shares():
    X = np.zeros((40, 4), int)
    X[:30, :2], X[30:, 2:] = [6, 3], [6, 3]
    lda = TemperedLDA(2, random_state=0).fit(
        pd.DataFrame(X, columns=["cat", "mouse", "<b>", "sun"])
    )
    lda.topic_labels_ = {int(lda.components_[:, 3].argmax()): "weather"}
    table = lda._repr_html_().split("</body>")[-1]
    assert "&lt;b&gt;, sun" in table and "<b>" not in table
    first, second = re.findall(r"(\d+\.\d)%", text_of(lda))
    assert float(first) == pytest.approx(75, abs=2) and float(second) == pytest.approx(25, abs=2)
    assert text_of(lda).index("cat, mouse") < text_of(lda).index("weather")


def test_clusters_are_shown_in_words():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], [150, 50])
    table = pd.DataFrame(
        {"age": rng.normal(np.array([20.0, 60.0])[group], 0.1), "noise": rng.normal(size=200)}
    )
    mixture = MemoizedDPMixture(random_state=0).fit(table)
    shown = text_of(mixture)
    # Age is read as the Gaussian of a logarithm, so that "all" is its geometric mean in all rows.
    assert all(words in shown for words in ("2 clusters", "age 20", "age 60", "all 26"))
    assert "noise" not in shown
    shares = [float(share) for share in re.findall(r"(\d+\.\d)%", shown)]
    assert shares == pytest.approx([75, 25], abs=0.5)
    assert "years 20" in text_of(mixture.set_words(["years", "noise"]))
