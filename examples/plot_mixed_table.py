"""
Tutorial: a table with categories and holes
===========================================

.. index:: ! categories holes, ! imputation

From a CSV file with numbers, categories, flags and holes to clusters of its rows, what makes each
of them, and the holes filled. The file is made from scikit-learn's wine data: colour intensity is a
category, high proline a flag, and a fifth of all values is taken out.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPMixture
from skvt.plotting import ProfilesDisplay

wine = load_wine(as_frame=True)
table = wine.data.drop(columns="proanthocyanins")
table["color_intensity"] = pd.qcut(
    table["color_intensity"], 4, labels=["pale", "light", "deep", "dark"]
)
table["high_proline"] = (table.pop("proline") > 750.0).astype("boolean")

rng = np.random.default_rng(0)
complete = table.copy()
holes = rng.random(table.shape) < 0.2
file = Path(tempfile.mkdtemp()) / "wine.csv"
table.mask(holes).to_csv(file, index=False)

# %%
# Such files are read as they are. Only flags with holes need to be told: pandas takes them for
# objects.

table = pd.read_csv(file, dtype={"high_proline": "boolean"})
print(table.head())

# %%
# Each column gets a likelihood by its type: numbers are Gaussian, strings and categories
# categorical, booleans Bernoulli. (A list of ``components`` says what types do not: that numbers
# are counts, or correlated.) How many clusters there are is found.

mixture = MemoizedDPMixture(random_state=0)
labels = mixture.fit_predict(table)
print(f"{mixture.n_components_} components, bound {mixture.elbo_:,.1f} nats, adjusted Rand index "
      f"with the three cultivars {adjusted_rand_score(wine.target, labels):.2f}")  # fmt: skip

# %%
# What makes a component? Cells say what it is in each column. The darker a cell, the more the
# column sets the component apart from all other rows; red values are higher than in all rows, and
# blue values are lower.

ProfilesDisplay.from_estimator(mixture).figure_.set_label("profiles")
plt.show()

# %%
# The same as a table, with credible intervals: what tells the first component from the rest.

description = mixture.describe(level=0.9)
first = description[description["component"] == 0]
print(first.sort_values("relevance", ascending=False, kind="stable").head(6).to_string(index=False))

# %%
# Holes are filled by the posterior predictive mean, or the most probable value, given the rest of
# the row.

filled = mixture.impute(table)
numbers = complete.select_dtypes("float").columns
spread = complete[numbers].std()
guess = ((table[numbers].mean() - complete[numbers]) / spread).where(table[numbers].isna())
errors = ((filled[numbers] - complete[numbers]) / spread).where(table[numbers].isna())
print(f"root of the mean squared error, in standard deviations of the columns: "
      f"{np.sqrt(np.nanmean(errors**2)):.2f}; of column means "
      f"{np.sqrt(np.nanmean(guess**2)):.2f}")  # fmt: skip
missing = table["color_intensity"].isna()
right = (filled["color_intensity"] == complete["color_intensity"])[missing].mean()
print(f"colours right: {right:.0%} of {missing.sum()}")

# %%
# One column from the others, with its probability: also in rows whose colour is
# known. Each box is of the rows that have the colour.

probability, colours = mixture.predict_column_proba(table, "color_intensity")
fig, ax = plt.subplots(figsize=(5.0, 3.2), layout="constrained")
for place, colour in enumerate(colours):
    of_colour = (complete["color_intensity"] == colour).to_numpy()
    ax.boxplot(probability[of_colour, place], positions=[place], widths=0.6)
ax.set(xticks=range(len(colours)), xticklabels=colours, ylim=(0.0, 1.0),
       xlabel="colour", ylabel="its probability")  # fmt: skip
plt.show()
