"""
====================================
Effects of covariates, and curves
====================================

.. index:: ! effects, ! intervals

Which topics have more room in the docstrings of one package than in those of another, and how sure
is that? :func:`~skvt.covariate_effects` answers from several fits, so that the intervals include
which optimum a fit ended in. :class:`~skvt.plotting.EffectsDisplay` draws points or curves, and
:class:`~skvt.plotting.TopicSharesDisplay` the shares of topics by group.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer

from skvt import StructuredLDA
from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings
from skvt.plotting import EffectsDisplay, TopicSharesDisplay

corpus = load_docstrings()
vectorizer = CountVectorizer(stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.5)
X = vectorizer.fit_transform(corpus.data)
kept = X.getnnz(axis=1) > 0
X, words = X[kept], vectorizer.get_feature_names_out()
package = np.array(corpus.target_names)[corpus.target[kept]]
fits = [StructuredLDA(8, random_state=seed).fit(X).set_words(words) for seed in range(4)]

# %%
# An interval without 0 has a filled blue point, any other a hollow grey one. Topics have the
# numbers of the first fit.
covariates = pd.DataFrame(
    {"package": package, "length": np.log10(np.asarray(X.sum(axis=1)).ravel())}
)
fig, ax = plt.subplots(figsize=(10, 4), layout="constrained", num="points")
EffectsDisplay.from_estimator(fits, X, covariates, ax=ax)

# %%
# Shares predicted at the values of one number are curves, here by the logarithm of the number of
# words of a docstring in NumPy.
at = pd.DataFrame({"package": "numpy", "length": np.linspace(1.0, 2.5, 16)})
fig, ax = plt.subplots(figsize=(10, 4), layout="constrained", num="curves")
EffectsDisplay.from_estimator(fits, X, covariates, at=at, ax=ax, n_columns=4)

# %%
# Shares by group need one fit, whose topics they take as known.
fig, ax = plt.subplots(figsize=(10, 4), layout="constrained", num="shares")
TopicSharesDisplay.from_estimator(fits[0], X, package, ax=ax, n_columns=4)
plt.show()
