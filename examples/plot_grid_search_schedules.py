"""
Choosing a temperature schedule by grid search
==============================================

A temperature policy is an object with parameters, so that scikit-learn's model selection reaches
into it: search over policies, or over ``temperature__initial_temperature``. ``score`` is held-out
log predictive probability per word, which is what a grid search should maximise (and which, unlike
scikit-learn's perplexity, does not prefer fewer topics).
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
# Initial temperature and replication of the annealing schedule. A temperature and a replication of
# 1 together are plain variational inference. Split-merge moves, which would find much of what heat
# finds, are left out here.

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
# Mean and spread over the folds.

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
