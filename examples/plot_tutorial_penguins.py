"""
Tutorial: who are the groups in a real table?
=============================================

.. index:: ! penguins, ! tutorial; real table

How many kinds of penguins were measured at Palmer Station, and which measurements are doubtful? The
table of Gorman, Williams and Fraser (2014), which the package ``palmerpenguins`` contains (public
domain), has 344 rows with numbers, categories and missing values. The species are known, and are
hidden from the fit, so that the answer can be checked. The tutorial ends with a page to hand on.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from palmerpenguins import load_penguins

from skvt import MemoizedDPMixture, cluster_report, unusual_rows
from skvt.plotting import ProfilesDisplay

penguins = load_penguins()
table = penguins.drop(columns=["species", "island", "year"])
table = table.dropna(how="all", subset=["bill_length_mm"])  # two rows have no measurement
print(table.head())

# %%
# **Who are the groups?** Numbers are Gaussian and strings categories; missing values stay as they
# are.

mixture = MemoizedDPMixture(random_state=0).fit(table)
print(mixture.describe(form="text", n_clusters="auto"))

# %%
# There are more groups than species. What are they? A comparison with the species and the sexes
# shows that they are the males and the females of the three species, except for two birds.

groups = pd.Series(mixture.predict(table, n_clusters="auto"), table.index, name="group")
truth = penguins.loc[table.index]
print(pd.crosstab([truth["species"], truth["sex"]], groups))

# %%
# The picture shows the groups, the largest on top. A cell is darker if the column sets the group
# apart; red values are higher than in all rows, and blue values are lower.

ProfilesDisplay.from_estimator(mixture, n_clusters="auto").figure_.set_label("profiles")
plt.show()

# %%
# **How many kinds are there, apart from the sex?** A column that explains the others, without being
# explained itself, is named in ``given``. Rows whose sex is unknown are left out here. The three
# large groups are then the species, except for four birds, and one bird is on its own.

known = table.dropna(subset=["sex"])
kinds = MemoizedDPMixture(given=["sex"], random_state=0).fit(known)
kind = pd.Series(kinds.predict(known), known.index, name="kind")
print(pd.crosstab(penguins.loc[known.index, "species"], kind))

# %%
# **Which values are doubtful?** One bird leads the list: its bill of 58 mm is far longer than its
# other measurements suggest, which are those of a small female.

print(unusual_rows(mixture, table, n=3).round(1))

# %%
# **What are the missing values?** Of nine birds the sex was not recorded. The mixture infers it
# from the measurements, with a probability.

unknown = table[table["sex"].isna()]
chances, sexes = mixture.predict_column_proba(unknown, "sex")
print(pd.DataFrame(chances, unknown.index, sexes).round(2))

# %%
# **A page for others**: one file, which a browser shows without a network.

report = Path(tempfile.mkdtemp()) / "penguins.html"
cluster_report(mixture, table, report)
print(f"{report.stat().st_size / 1000:.0f} kB")
