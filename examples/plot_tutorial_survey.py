"""
Tutorial: which groups of voters does a survey show, and how do they vote?
==========================================================================

.. index:: ! survey, ! voters, ! survey weights

In the American National Election Study of 1996, 944 voters placed themselves and both candidates,
Clinton and Dole, on a scale from 1 (extremely liberal) to 7 (extremely conservative), and named
their party. Which groups of voters are there, who is in them, and for whom do they vote? The
package ``statsmodels`` contains the table, which is in the public domain. The tutorial ends with a
page to hand on.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from statsmodels.datasets import anes96

from skvt import MemoizedDPMixture, cluster_report, covariate_effects, outcome_by_cluster
from skvt.plotting import EffectsDisplay

# %%
# **The answers.** A place on the scale is one of seven answers rather than a quantity: 4 may mean
# "moderate" or "do not know". The answers are therefore categories, and so is the party.

survey = anes96.load_pandas().data
parties = [
    "strong Democrat", "weak Democrat", "near Democrats", "independent", "near Republicans",
    "weak Republican", "strong Republican",
]  # fmt: skip
answers = survey[["selfLR", "ClinLR", "DoleLR"]].astype(int).astype("category")
answers.columns = ["self", "Clinton", "Dole"]
answers["party"] = survey["PID"].map(dict(enumerate(parties)))
print(answers.head())

# %%
# **Which groups are there?**

mixture = MemoizedDPMixture(random_state=0).fit(answers)
print(mixture.describe(form="text", n_clusters="auto"))

# %%
# The first group are liberal Democrats, the second conservative Republicans, and the third moderate
# Republicans. The answers of the last group differ in kind: more of these voters than of all others
# place Clinton right of the middle and Dole in the middle, and many of them are Democrats.

# %%
# **Weights.** The survey reached too many voters with a degree. In 1998, 82.8 % of the adults from
# 25 years on had a high school diploma, and 24.4 % a bachelor's degree or more (Census Bureau,
# press release CB00-151, 2000). As an example, rows get the weights that give the three levels
# these shares. They are shares of adults rather than of voters, and of two years later; a survey
# that comes with weights has better ones in a column. All that is said of the population below
# depends on these weights.
#
# The fit above has no weights, because a voter of weight 2 would count as two voters with equal
# answers, and equal answers look like a group. Groups are those of the voters who were asked. The
# weights enter below, where groups are counted and compared.

group = np.digitize(survey["educ"], [3, 5])
shares = pd.Series([0.172, 0.584, 0.244], ["no diploma", "diploma", "degree"])
sampled = np.bincount(group) / len(group)
weights = (shares.to_numpy() / sampled)[group]
print(pd.DataFrame({"population": shares, "survey": sampled.round(3)}))

# %%
# **Who is in them?** The groups overlap, so that no voter belongs to one with certainty.
# ``covariate_effects`` corrects for that, and its intervals include what is not known about the
# groups. An effect is the change of a group's share from one of seven levels of education to the
# next, or by ten years of age.

traits = pd.DataFrame({"education": survey["educ"], "decades of age": survey["age"] / 10.0})
options = {"sample_weight": weights, "n_clusters": "auto", "random_state": 0}
effects = covariate_effects(mixture, answers, traits, **options)
columns = ["cluster", "term", "effect", "low", "high"]
print(effects.loc[effects["term"] != "Intercept", columns].round(3).to_string(index=False))
EffectsDisplay.from_data(effects).figure_.set_label("effects")
plt.show()

# %%
# The share of the last group falls with education, perhaps since its voters know less of where the
# candidates stand. No effect of age is clear.
#
# **How do they vote?** These are the shares of each group that vote for Dole.

vote = np.where(survey["vote"] > 0, "Dole", "Clinton")
votes = outcome_by_cluster(mixture, answers, vote, **options)
columns = ["cluster", "mean", "low", "high"]
print(votes.loc[votes["category"] == "Dole", columns].round(2).to_string(index=False))

# %%
# The first and the last group vote for Clinton, wherever they place him, and the second for Dole.
# A mean may be slightly below 0 or above 1, because of the correction; intervals stay between
# these numbers. The interval of the third group is too wide to be of use, because too few voters
# certainly belong to it.
#
# **A page for others**: one file, which a browser shows without a network.

report = Path(tempfile.mkdtemp()) / "voters.html"
cluster_report(mixture, answers, report)
print(f"{report.stat().st_size / 1000:.0f} kB")
