"""
Tutorial: which groups does a table with missing values have?
=============================================================

.. index:: ! categories holes, ! imputation

Which groups do the rows of a CSV file form, what sets each group apart, and what should be in the
place of the missing values? :class:`~skvt.MemoizedDPMixture` answers all three questions for a
table with numbers, categories and yes/no columns. The file of this tutorial is made from
scikit-learn's wine data: the colour intensity is turned into a category and high proline into a
yes/no column, and a fifth of all values is removed.
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
# **Read the file.** Only a yes/no column with missing values needs a ``dtype``, because pandas
# would read it as objects. Missing values stay as they are.

table = pd.read_csv(file, dtype={"high_proline": "boolean"})
print(table.head())

# %%
# **Fit.** Each column has a likelihood that suits its type: numbers are Gaussian, strings and
# categories are categorical, and booleans are Bernoulli. If numbers are counts, for example, pass a
# list of ``components`` that says so. The fit estimates the number of components.

mixture = MemoizedDPMixture(random_state=0)
labels = mixture.fit_predict(table)
print(f"{mixture.n_components_} components, bound {mixture.elbo_:,.1f} nats, adjusted Rand index "
      f"with the three cultivars {adjusted_rand_score(wine.target, labels):.2f}")  # fmt: skip

# %%
# The wines come from three cultivars, which were not given to the fit. The components agree well
# with them: the adjusted Rand index is .83, and 1 would be perfect. Why are there five components?
# The picture below shows that three of them have about a third of the rows each; these are the
# cultivars. The other two have few wines, with unusual values.
#
# **What sets a component apart?** A cell has the mean of the column in the component, or the most
# probable category with its probability. The darker a cell, the more the column sets the component
# apart from all other rows; red values are higher than in all rows, and blue values are lower.

ProfilesDisplay.from_estimator(mixture).figure_.set_label("profiles")
plt.show()

# %%
# The same values are available as a table with credible intervals. Its first rows below are the
# parameters that set the first component apart most; ``low`` and ``high`` are the ends of a 90 %
# interval.

description = mixture.describe(level=0.9)
first = description[description["component"] == 0]
print(first.sort_values("relevance", ascending=False, kind="stable").head(6).to_string(index=False))

# %%
# **What are the missing values?** ``impute`` fills in the mean of a number, or the most probable
# category, given the rest of the row. Here the true values are known, so that the errors can be
# measured.

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
# A typical error is .75 standard deviations of the column, compared with 1.03 for the column mean,
# because the other columns of a row tell which values are likely. Of the missing colours, 54 % are
# right, where chance would give a quarter.
#
# **How certain is a category?** ``predict_column_proba`` gives the probability of each colour from
# the other columns, also in rows whose colour is known. Each box shows the rows that have this
# colour, and the probability of this colour.

probability, colours = mixture.predict_column_proba(table, "color_intensity")
fig, ax = plt.subplots(figsize=(5.0, 3.2), layout="constrained")
for place, colour in enumerate(colours):
    of_colour = (complete["color_intensity"] == colour).to_numpy()
    ax.boxplot(probability[of_colour, place], positions=[place], widths=0.6)
ax.set(xticks=range(len(colours)), xticklabels=colours, ylim=(0.0, 1.0),
       xlabel="colour", ylabel="its probability")  # fmt: skip
plt.show()

# %%
# Pale wines are recognized best: most of them have a probability above .6. Light wines are not
# recognized, because no large component has mainly light wines.
