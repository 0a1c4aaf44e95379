"""
From texts to topics that last
==============================

The whole way on real texts, the docstrings of NumPy, SciPy and scikit-learn: a pipeline from
strings to topics that stops by itself, their words, how far other starts agree, the mean of several
starts, names for topics, and new texts as they come.
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
# A pipeline from strings. The bound is evaluated after every second pass, and the fit stops when it
# gains less than a thousandth of a nat per word: after how many passes, nobody has to say.

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
# Would another start find the same? Four fits, the share of words on which each topic agrees with
# its partners in the other fits, and the mean of the four.

X = pipeline[0].transform(known)
fits = [clone(pipeline[-1]).set_params(random_state=seed).fit(X) for seed in range(4)]
topics = consensus(fits, X)
agreement = topic_stability([topics, *fits], average=None)[0]
print(f"stability of single fits: {topic_stability(fits):.2f}")
print(f"of their mean with each of them: {agreement.mean():.2f}")

# %%
# The six topics on which the fits agree most, named by their first two words. (``TopicsDisplay``
# takes pipelines, too.)

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
# As a table: words by relevance tell topics apart; ``topic_labels_`` are names that go
# with the model, into the names of its columns and into files, too. A text without any of the words
# is named by a warning. And the shares of topics in each of the three libraries, with intervals.

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
# Coherence judges each topic by the documents: do its first words occur together? Numbers are those
# of the table.

coherence = topic_coherence(topics.components_, X)
fig, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.scatter(agreement, coherence, color="C0")
sides = [("right", -4), ("left", 4)] * 6  # in turn, so that numbers do not meet
for (side, x), k in zip(sides, np.argsort(coherence), strict=True):
    place = dict(xytext=(x, 2), textcoords="offset points", ha=side)
    axes.annotate(str(k), (agreement[k], coherence[k]), **place)
axes.set(xlabel="agreement with other fits", ylabel="coherence (NPMI)")

# %%
# Texts that come later, a hundred at a time. Each is predicted before the topics learn from it.

for start in range(0, 400, 100):
    new = pipeline[0].transform(later[start : start + 100])
    print(f"{start + 100} later texts: {topics.score(new):.3f} nats per held-out word")
    topics.partial_fit(new)
newest = topics.transform(pipeline[0].transform(later[-3:]))
for text, shares in zip(later[-3:], newest, strict=True):
    print(f"{labels[shares.argmax()]} ({shares.max():.0%}): {text.strip()[:60]!r}")
plt.show()
