"""
Tutorial: how do you cluster embeddings without leaving texts out?
==================================================================

.. index:: ! embeddings, ! bertopic, ! hdbscan

Use a mixture: it assigns each text to a cluster, with a probability, and estimates the number of
clusters. HDBSCAN, which BERTopic uses by default, leaves texts between dense regions without a
cluster. The tutorial compares both on docstrings of NumPy, SciPy and scikit-learn. Their embeddings
are singular vectors of their words, but any embedding can be used.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.cluster import HDBSCAN
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline

from skvt import MemoizedDPGMM
from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings

corpus = load_docstrings()
texts, libraries = corpus.data[::2], corpus.target[::2]
words = dict(stop_words=sorted(DOCSTRING_STOP_WORDS), token_pattern="[a-z]{3,}", min_df=5)
embed = make_pipeline(TfidfVectorizer(sublinear_tf=True, **words), TruncatedSVD(10, random_state=0))
embeddings = embed.fit_transform(texts)

# %%
# Comparison with HDBSCAN
# -----------------------
#
# How many clusters are there, how many texts have none, and how much do the clusters say about the
# library of a text? The table answers this for the mixture and for three minimum sizes of a cluster
# in HDBSCAN. The last column is the normalized mutual information, from 0 to 1.

mixture = MemoizedDPGMM(random_state=0).fit(embeddings)
table = {"mixture": mixture.labels_}
for size in (5, 15, 50):
    table[f"HDBSCAN, at least {size}"] = HDBSCAN(size, copy=True).fit_predict(embeddings)
table = pd.DataFrame(table)
print(
    pd.DataFrame(
        {
            "clusters": table.max() + 1,
            "left out": (table == -1).mean(),
            "information on the library": table.apply(
                lambda labels: normalized_mutual_info_score(libraries, labels)
            ),
        }
    ).round(2)
)

# %%
# HDBSCAN leaves out at least half of the texts, and with a minimum size of 50 all of them. The
# mixture assigns all texts to 40 clusters, which say more about the library.
#
# In the picture, texts that HDBSCAN leaves out are grey. The mixture has no such class. Instead,
# ``predict_proba`` gives the probability of each cluster, so that you can decide which assignments
# are certain enough.

fig, axes = plt.subplots(
    1, 2, figsize=(10, 4.5), num="clusters", layout="constrained", sharex=True, sharey=True
)
for ax, name in zip(axes, ["HDBSCAN, at least 5", "mixture"], strict=True):
    labels = table[name].to_numpy()
    out = labels == -1
    ax.scatter(*embeddings[out, 1:3].T, color="0.85", s=4)
    ax.scatter(*embeddings[~out, 1:3].T, c=labels[~out] % 20, cmap="tab20", s=4)
    ax.set(title=name, xlabel="second direction")
axes[0].set_ylabel("third direction")
plt.show()

sure = mixture.predict_proba(embeddings).max(axis=1)
print(f"probability of the label: below .9 in {np.mean(sure < 0.9):.0%} of the texts")

# %%
# One in ten texts has no clear cluster: its largest probability is below .9.
#
# The words of clusters
# ---------------------
#
# What is a cluster about? As in BERTopic, its words are those that are frequent in the cluster but
# not in other texts. The code prints them for the ten largest clusters.

vectorizer = CountVectorizer(**words)
counts = vectorizer.fit_transform(texts)
names = vectorizer.get_feature_names_out()
sums = np.stack(
    [np.asarray(counts[mixture.labels_ == k].sum(axis=0)).ravel()
     for k in range(mixture.n_components_)]
)  # fmt: skip
scores = sums / sums.sum(axis=1, keepdims=True) * np.log1p(sums.sum() / (1 + sums.sum(axis=0)))
sizes = np.bincount(mixture.labels_)
for k in np.argsort(-sizes)[:10]:
    print(f"{sizes[k]:4d} texts:", *names[np.argsort(-scores[k])[:6]])

# %%
# In BERTopic, pass the mixture in the place of HDBSCAN. BERTopic uses its ``labels_`` and
# ``predict``:
#
# .. code-block:: python
#
#    BERTopic(hdbscan_model=MemoizedDPGMM(random_state=0))
