"""
Tutorial: clusters of embeddings, none left out
===============================================

.. index:: ! embeddings, ! bertopic, ! hdbscan

Texts as points in a space are clustered to find subjects. HDBSCAN, which BERTopic uses by default,
leaves points between dense regions without a cluster. A mixture gives each point the probabilities
of its clusters, and finds their number, too. The texts are docstrings of NumPy, SciPy and
scikit-learn, embedded by the singular vectors of their words; any embedding will do.
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
# Both clusterings
# ----------------

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
# Texts that HDBSCAN leaves out are grey. ``predict_proba`` says how sure a label is, where an
# outlier class only says "no".

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
# The words of clusters
# ---------------------
#
# As BERTopic finds them: words that are frequent in a cluster and not elsewhere.

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
# In BERTopic itself, the mixture takes HDBSCAN's place; it reads ``labels_`` and asks ``predict``:
#
# .. code-block:: python
#
#    BERTopic(hdbscan_model=MemoizedDPGMM(random_state=0))
