"""
Tutorial: what are the texts in a CSV file about?
=================================================

.. index:: ! csv, ! texts, ! topics by year

What are these texts about, which texts are typical of each topic, and how do the shares of topics
change over the years? The tutorial leads from a file, in which some texts are missing, to named
topics and their shares by year, with intervals. The texts are docstrings of NumPy, SciPy and
scikit-learn. Their years are made up so that texts of scikit-learn become more frequent, which the
analysis should show.
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
# The file has one row for each text. You already have your file; this code makes one for the
# tutorial.

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
# Vectorizers do not accept missing texts, so replace them with empty strings. ``min_df`` leaves out
# words of fewer than five texts, and ``max_df`` those of more than 30 % of the texts. Raise
# ``max_df`` if texts are long or topics are few, because these may be the best words of a topic.
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
# ``topic_table`` returns the share of each topic, its words, and the texts that have most of it.
# Texts without any known word belong to no topic, so the code drops them first; otherwise a warning
# says which they are.

known = pipeline[0].transform(texts).sum(axis=1) > 0
table, texts = table[known], [text for text, keep in zip(texts, known, strict=True) if keep]
topics = skvt.topic_table(pipeline, texts, n_words=6, n_rows=2)
print(topics[["share", "relevant_words"]].to_string(float_format="{:.3f}".format))
print(f"\nA typical text of topic 0:\n{topics.loc[0, 'texts'][0][:95]!r}")

# %%
# The words show the subject of a topic, and its typical texts confirm it. Read both before you name
# a topic. Names are part of the model, also in files. Here each name is the first two words. After
# ``set_words``, the file has the words, too, by which :doc:`/guide/files` counts new texts.

pipeline[-1].topic_labels_ = [" ".join(words.split(", ")[:2]) for words in topics["relevant_words"]]
pipeline[-1].set_words(pipeline[0].get_feature_names_out())
skvt.save(pipeline[-1], folder / "topics.skvt")

# %%
# Shares by year
# --------------
#
# Which topics become more frequent? The intervals say how precisely these texts determine the share
# of a topic in a year, if the topics are taken as known.

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
# The topics that rise, about estimators and features, are topics of scikit-learn, as expected from
# the made-up years. Topics of NumPy and SciPy, such as polynomials, become less frequent.
#
# Topics of each text
# -------------------
#
# The table below has the most frequent topic of each text and its share, in new columns of the
# original table. To explore the topics in a browser, see :func:`skvt.plotting.topic_explorer`.

proportions = pipeline.transform(texts)
result = table.assign(topic=[pipeline[-1].topic_labels_[k] for k in proportions.argmax(axis=1)],
                      share=proportions.max(axis=1).round(2))  # fmt: skip
result.to_csv(folder / "with_topics.csv", index=False)
print(result[["year", "topic", "share"]].head())
plt.show()
