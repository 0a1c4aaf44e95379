"""
Tutorial: texts in a CSV file
=============================

.. index:: ! csv, ! texts, ! topics by year

From a file of texts, some of which are missing, to topics with names, texts that stand for them,
and their shares by year with intervals. The texts are docstrings of NumPy, SciPy and scikit-learn;
their years are made up, so that scikit-learn's become more frequent.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

import skvt
from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings

# %%
# The file
# --------
#
# One row for each text. (Yours is there already; this makes one.)

corpus = load_docstrings()
rng = np.random.default_rng(0)
later = rng.beta(1 + (corpus.target == 2), 1 + (corpus.target != 2))
table = pd.DataFrame({"year": 2018 + (6 * later).astype(int), "text": corpus.data})
table = table.sample(2000, random_state=0, ignore_index=True)
table.loc[rng.choice(2000, 20, replace=False), "text"] = None
folder = Path(tempfile.mkdtemp())
table.to_csv(folder / "texts.csv", index=False)

# %%
# Read and count
# --------------
#
# Vectorizers refuse missing texts: an empty string stands for them. Words that are in nearly every
# text, or in hardly any, tell nothing of topics.
#
# If each text is a file in a folder, read the files in the order of their names::
#
#     paths = sorted(folder.glob("*.txt"))
#     texts = [path.read_text(encoding="utf-8") for path in paths]
#     table = pd.DataFrame({"file": [path.name for path in paths], "text": texts})
#
# The pattern of words is for English. For other languages, use ``r"[^\W\d_]{3,}"``, which also
# finds letters such as ä, é and ж, and stop words of the language, for example those of NLTK,
# ``nltk.corpus.stopwords.words("german")``.

table = pd.read_csv(folder / "texts.csv")
texts = table["text"].fillna("").tolist()
pipeline = make_pipeline(
    CountVectorizer(
        stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.3, token_pattern="[a-z]{3,}"
    ),
    skvt.StructuredLDA(n_components=12, random_state=0),
)
pipeline.fit(texts)

# %%
# Topics and their names
# ----------------------
#
# A table with the share of each topic, its words and the texts that have most of it. Texts without
# words belong to no topic, and a warning says which they are; here we drop them beforehand. Read
# words and texts, then give names: they go with the model, also into files.

known = pipeline[0].transform(texts).sum(axis=1) > 0
table, texts = table[known], [text for text, keep in zip(texts, known, strict=True) if keep]
topics = skvt.topic_table(pipeline, texts, n_words=6, n_rows=2)
print(topics[["share", "relevant_words"]].to_string(float_format="{:.3f}".format))
print(f"\nFor topic 0 stands, among others:\n{topics.loc[0, 'texts'][0][:95]!r}")

pipeline[-1].topic_labels_ = [" ".join(words.split(", ")[:2]) for words in topics["relevant_words"]]
skvt.save(pipeline[-1], folder / "topics.skvt")

# %%
# Shares by year
# --------------
#
# Intervals are those of the texts as a sample, topics taken as given.

shares = skvt.topic_shares(pipeline, texts, table["year"])
change = shares.groupby("label")["share"].agg(lambda share: share.iloc[-1] - share.iloc[0])
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for label in change.abs().nlargest(4).index:
    part = shares[shares["label"] == label]
    (line,) = ax.plot(part["group"], part["share"], label=label)
    ax.fill_between(part["group"], part["low"], part["high"], color=line.get_color(), alpha=0.2)
ax.set(xlabel="year", ylabel="share of the words", ylim=(0, None))
ax.legend(title="the four that change most")

# %%
# The topics of each text, as columns beside those that were there. For a page to explore all
# this in a browser, see :func:`skvt.plotting.topic_explorer`.

proportions = pipeline.transform(texts)
result = table.assign(topic=[pipeline[-1].topic_labels_[k] for k in proportions.argmax(axis=1)],
                      share=proportions.max(axis=1).round(2))  # fmt: skip
result.to_csv(folder / "with_topics.csv", index=False)
print(result[["year", "topic", "share"]].head())
plt.show()
