"""
How do you choose a temperature schedule by grid search?
========================================================

Search over the parameters of the schedule, such as ``temperature__initial_temperature``, as over
any parameter of scikit-learn, because a schedule is an object with parameters. A search maximizes
``score``, the log probability of held-out words. Unlike scikit-learn's perplexity, this score does
not prefer fewer topics.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV

from skvt import TemperedLDA
from skvt.datasets import make_topic_corpus
from skvt.temperature import LinearAnnealing

corpus = make_topic_corpus(
    1_500,
    n_components=15,
    n_features=600,
    mean_length=60,
    doc_topic_prior=0.1,
    topic_word_prior=0.05,
    random_state=0,
)

# %%
# The search is over the initial temperature and the replication of an annealing schedule. If both
# are 1, inference is plain variational inference. Split-merge moves are left out here, because they
# find many of the same improvements as a high temperature, which would hide its effect.

search = GridSearchCV(
    TemperedLDA(
        n_components=15, batch_size=64, temperature=LinearAnnealing(), moves=(), random_state=0
    ),
    {
        "temperature__initial_temperature": [1.0, 1.25, 1.5, 2.0, 4.0],
        "temperature__replication": [1.0, 10.0],
    },
    cv=3,
).fit(corpus.X)
print(search.best_params_)

# %%
# The printed values are those with the best mean score of the three folds. The picture shows this
# mean, with its standard error, for each initial temperature. Initial temperatures of 1.25 and 1.5
# predict better than none (1) and than high ones (2 and 4). Differences between replications near
# the best temperature are not larger than the standard errors, so either value is good.

results = search.cv_results_
fig, axes = plt.subplots(figsize=(7, 4), num="scores", layout="constrained")
for replication in (1.0, 10.0):
    chosen = results["param_temperature__replication"] == replication
    temperatures = results["param_temperature__initial_temperature"][chosen].astype(float)
    axes.errorbar(
        temperatures,
        results["mean_test_score"][chosen],
        yerr=results["std_test_score"][chosen] / np.sqrt(3),
        marker="o",
        label=f"replication {replication:g}",
    )
axes.set(xlabel="initial temperature", ylabel="nats per held-out word")
axes.legend()
plt.show()
