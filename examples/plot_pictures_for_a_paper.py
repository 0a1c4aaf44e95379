"""
Pictures for a paper
====================

.. index:: ! paper; pictures, ! publication; pictures, ! figures; for print

How do you draw the result of a fit at the size of a journal's column? Set the size of the letters
and of the figure once, let each display draw, and save the figure as PDF, which a journal can
scale. All colours are distinct for people who are colour-blind and in grey print; the pictures
below have the width of one column (3.4 inches) or of a page (7 inches).
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from palmerpenguins import load_penguins
from sklearn.feature_extraction.text import CountVectorizer

from skvt import MemoizedDPMixture, StructuredLDA
from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings
from skvt.plotting import (
    ClusterTreeDisplay,
    EffectsDisplay,
    ELBODisplay,
    MovesDisplay,
    ProfilesDisplay,
    TopicsDisplay,
    TopicSharesDisplay,
)

COLUMN, PAGE = 3.4, 7.0  # inches
plt.rcParams.update(
    {
        "font.size": 8,
        "axes.titlesize": 7,
        "axes.labelsize": 7,
        "legend.fontsize": 6,
        "lines.linewidth": 1.0,
        "figure.constrained_layout.use": True,
        "pdf.fonttype": 42,  # letters stay letters, as journals require
        "savefig.dpi": 300,
    }
)
folder = Path(tempfile.mkdtemp())


def finish(name):
    """Name the figure, and save it for the journal."""
    figure = plt.gcf()
    figure.set_label(name)
    figure.savefig(folder / f"{name}.pdf")


# %%
# The fits: topics of docstrings, and clusters of penguins.

corpus = load_docstrings()
vectorizer = CountVectorizer(stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=5, max_df=0.5)
X = vectorizer.fit_transform(corpus.data)
has_words = X.getnnz(axis=1) > 0
X, package = X[has_words], np.array(corpus.target_names)[corpus.target[has_words]]
words = vectorizer.get_feature_names_out()
fits = [StructuredLDA(8, random_state=seed).fit(X).set_words(words) for seed in range(3)]

penguins = load_penguins().drop(columns=["species", "island", "year"])
penguins = penguins.dropna(how="all", subset=["bill_length_mm"])
mixture = MemoizedDPMixture(random_state=0).fit(penguins)

# %%
# **What are the topics?** Four of them in a column.

fig, ax = plt.subplots(figsize=(COLUMN, 2.6))
TopicsDisplay.from_estimator(fits[0], ax=ax, topics=[0, 1, 2, 3], n_words=6, n_columns=2)
finish("topics")
plt.show()

# %%
# **Which topics does each group have?** Shares with their intervals over the width of a page.

fig, ax = plt.subplots(figsize=(PAGE, 2.6))
TopicSharesDisplay.from_estimator(fits[0], X, package, ax=ax, n_columns=4)
finish("shares")
plt.show()

# %%
# **What differs between groups?** Effects from three fits; filled points have intervals without 0.

fig, ax = plt.subplots(figsize=(COLUMN, 2.4))
EffectsDisplay.from_estimator(fits, X, pd.DataFrame({"package": package}), ax=ax, n_columns=2)
finish("effects")
plt.show()

# %%
# **Who are the clusters?** A table with numbers and categories. Categories have room for their
# names at the width of a page; in a column there would be only their probabilities.

fig, ax = plt.subplots(figsize=(PAGE, 2.2))
ProfilesDisplay.from_estimator(mixture, n_clusters="auto", ax=ax)
finish("profiles")
plt.show()

# %%
# **How many clusters are there?** The tree of joins, and what each join loses.

fig, ax = plt.subplots(figsize=(PAGE, 2.2))
ClusterTreeDisplay.from_estimator(mixture, ax=ax)
finish("tree")
plt.show()

# %%
# **Did the fit converge, and how were components found?** For the supplement.

fig, axes = plt.subplots(1, 2, figsize=(PAGE, 2.0))
ELBODisplay.from_estimator(mixture, ax=axes[0])
MovesDisplay.from_estimator(mixture, ax=axes[1])
finish("supplement")
plt.show()

# %%
# The files are small, and have letters that can be searched:

for path in sorted(folder.glob("*.pdf")):
    print(path.name, f"{path.stat().st_size / 1000:.0f} kB")
