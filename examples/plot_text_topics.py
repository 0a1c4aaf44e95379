"""
Which topics of texts can be reproduced?
========================================

Fits from other random starts find partly different topics. This example fits a model to real texts,
the docstrings of NumPy, SciPy and scikit-learn, measures how far several fits agree, and averages
them. It also names the topics, compares their shares between groups of texts, and updates the model
with new texts.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skvt import TemperedLDA, consensus, top_words, topic_shares, topic_table
from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings
from skvt.metrics import topic_coherence, topic_stability
from skvt.plotting import TopicsDisplay

corpus = load_docstrings()
texts = np.array(corpus.data, dtype=object)
order = np.random.default_rng(0).permutation(len(texts))
known, later = texts[order[:-400]], texts[order[-400:]]

# %%
# **Fit a pipeline to the texts.** The fit evaluates its bound after every second pass, and stops if
# the bound has gained less than a thousandth of a nat per word. You do not have to choose the
# number of passes.

words = dict(stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.3)
pipeline = make_pipeline(
    CountVectorizer(token_pattern="[a-z]{3,}", **words),
    TemperedLDA(12, learning_method="batch", max_iter=500, evaluate_every=2, tol=1e-3),
)
pipeline[-1].set_params(random_state=0)
pipeline.fit(known)
print(f"{pipeline[-1].n_iter_} passes of 500, converged: {pipeline[-1].converged_}")
for number, topic in enumerate(top_words(pipeline, 7)):
    print(number, *topic)

# %%
# The fit stopped after 24 of at most 500 passes. Each line has the most probable words of a topic.
#
# **Would another start find the same topics?** Fit four times. ``topic_stability`` matches the
# topics of the fits and measures the probability mass that the words of matched topics share, from
# 0 to 1. ``consensus`` averages the four fits.

X = pipeline[0].transform(known)
fits = [clone(pipeline[-1]).set_params(random_state=seed).fit(X) for seed in range(4)]
topics = consensus(fits, X)
agreement = topic_stability([topics, *fits], average=None)[0]
print(f"stability of single fits: {topic_stability(fits):.2f}")
print(f"agreement of their mean with each fit: {agreement.mean():.2f}")

# %%
# Two fits agree on half of the mass, so that a topic of a single fit should not be reported
# as if any fit would find it. The mean of the fits is nearer to each of them (.64).
#
# **Which topics can be reproduced?** The picture has the six topics on which the fits agree most.
# Their titles are their first two words and their agreement with the fits.

names = pipeline[0].get_feature_names_out()
labels = ["/".join(topic[:2]) for topic in topics.top_words(7, names)]
best = np.argsort(-agreement)[:6]
display = TopicsDisplay.from_estimator(
    topics, feature_names=names, n_words=7, topics=best, n_columns=3
)
display.figure_.set_label("topics")
for panel, k in zip(display.axes_, best, strict=True):
    panel.set_title(f"{labels[k]}\n{agreement[k]:.2f}", fontsize="small", loc="left")

# %%
# **Which topics does each library have?** Names that you assign to ``topic_labels_`` are part of
# the model: they are used in tables, in the names of output columns, and in files. ``topic_table``
# shows the words by relevance, because relevant words tell topics apart better than probable ones.
# The picture shows the shares of six topics in each library, with intervals.

topics.topic_labels_ = [f"{label} ({k})" for k, label in enumerate(labels)]
table = topic_table(topics, X, names, known, n_words=6, n_rows=1)
print(table[["label", "share", "relevant_words"]].to_string(float_format="{:.3f}".format))
libraries = np.array(corpus.target_names)[corpus.target][order[:-400]]
shares = topic_shares(topics, X, libraries)
fig, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for place, (library, part) in enumerate(shares.groupby("group")):
    part = part.iloc[best]
    errors = [part["share"] - part["low"], part["high"] - part["share"]]
    rows = np.arange(len(best)) + 0.2 * (place - 1)
    axes.errorbar(part["share"], rows, xerr=errors, fmt="o", label=library)
axes.set_yticks(np.arange(len(best)), [topics.topic_labels_[k] for k in best])
axes.set_xlabel("share of the words")
axes.legend()

# %%
# The topic about estimators occurs almost only in scikit-learn, and the one about Bessel functions
# mainly in SciPy: their intervals are far from those of the other libraries.
#
# **Are the topics coherent?** Coherence measures whether the first words of a topic occur in the
# same documents. The picture compares it with the agreement of the fits; the numbers are those of
# the topics in the table.

coherence = topic_coherence(topics.components_, X)
fig, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.scatter(agreement, coherence, color="C0")
sides = [("right", -4), ("left", 4)] * 6  # Sides alternate so that numbers do not overlap.
for (side, x), k in zip(sides, np.argsort(coherence), strict=True):
    place = dict(xytext=(x, 2), textcoords="offset points", ha=side)
    axes.annotate(str(k), (agreement[k], coherence[k]), **place)
axes.set(xlabel="agreement with other fits", ylabel="coherence (NPMI)")

# %%
# A topic on the upper right is coherent and can be reproduced. The two measures answer different
# questions: a coherent topic on the left was found by few of the fits.
#
# **What if more texts arrive?** Here they arrive in hundreds. The topics predict each hundred
# first, and are then updated by ``partial_fit``. The last lines show the main topic of three new
# texts.

for start in range(0, 400, 100):
    new = pipeline[0].transform(later[start : start + 100])
    print(f"{start + 100} later texts: {topics.score(new):.3f} nats per held-out word")
    topics.partial_fit(new)
newest = topics.transform(pipeline[0].transform(later[-3:]))
for text, shares in zip(later[-3:], newest, strict=True):
    print(f"{labels[shares.argmax()]} ({shares.max():.0%}): {text.strip()[:60]!r}")
plt.show()

# %%
# The score rises from -6.06 to about -5.9 nats per word, partly because the topics learn from the
# new texts, and partly because one hundred of texts is easier than another.
