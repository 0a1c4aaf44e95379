"""
===================================
Effects of covariates, and curves
===================================

.. index:: ! effects, ! intervals

Which topics are more frequent in the docstrings of one package than in those of another, and how
certain is the difference? :func:`~skvt.covariate_effects` estimates the differences with intervals.
Fits from different random starts find different topics; if you pass several fits, the intervals
include this uncertainty, too. :class:`~skvt.plotting.EffectsDisplay` draws the effects as points or
curves, and :class:`~skvt.plotting.TopicSharesDisplay` draws the shares of topics by group.
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
# **Which effects are clear?** The first two columns compare SciPy and scikit-learn with NumPy,
# which is first in the alphabet. The third one is the effect of the length of a docstring, as the
# logarithm of its number of words. An effect has a filled blue point if its interval excludes 0,
# and a hollow grey point otherwise. Topics have the numbers of the first fit.
covariates = pd.DataFrame(
    {"package": package, "length": np.log10(np.asarray(X.sum(axis=1)).ravel())}
)
fig, ax = plt.subplots(figsize=(10, 4), layout="constrained", num="points")
EffectsDisplay.from_estimator(fits, X, covariates, ax=ax)

# %%
# Topic 0, about estimators, is clearly more frequent in scikit-learn than in NumPy, as is topic 5,
# about distances. The intervals of some topics are wide, because the four fits found different
# versions of these topics; their effects cannot be reported from these fits.
#
# **How does a share change with a number?** The curves are the shares that are predicted for
# docstrings of 3 to 63 words, in two packages. The horizontal axis is the logarithm of the length.
lengths = np.linspace(0.5, 1.8, 16)
at = pd.DataFrame({"package": ["numpy"] * 16 + ["scipy"] * 16, "length": np.tile(lengths, 2)})
fig, ax = plt.subplots(figsize=(10, 4), layout="constrained", num="curves")
EffectsDisplay.from_estimator(fits, X, covariates, at=at, ax=ax, n_columns=4)

# %%
# Long docstrings of NumPy have more of topic 3, about distributions. The model is linear, so that a
# predicted share, or its interval, can be below 0; read such a value as "near 0".
#
# **Which topics does each package have?** Shares by group need a single fit. Their intervals are
# narrower, because they take the topics of this fit as known.
fig, ax = plt.subplots(figsize=(10, 4), layout="constrained", num="shares")
TopicSharesDisplay.from_estimator(fits[0], X, package, ax=ax, n_columns=4)
plt.show()

# %%
# About half of the words of scikit-learn belong to topic 0, and about two fifths of those of NumPy
# to topic 4, about axes of arrays.
