"""
How much does the prior of the topics matter?
=============================================

A wrong prior costs more than a tenth of a nat per word, and which prior is right depends on the
inference. The example compares the held-out scores of four ways to fit the same topic model, for
four values of the prior eta of the topics. It is a small version of figure 2 of *Structured
Stochastic Variational Inference* (Hoffman and Blei 2015), with docstrings instead of Wikipedia.
Mean-field inference, and Gibbs sampling with mean-field topics, update each document under averaged
topics. SSVI-A and SSVI update it under topics that are drawn from their posterior. All have the
step sizes of the paper, ``rho = t ** -0.75``, no temperature and no moves.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from skvt import StructuredLDA, TemperedLDA
from skvt.datasets import DOCSTRING_STOP_WORDS, load_docstrings
from skvt.metrics import document_completion_score

vectorizer = CountVectorizer(
    stop_words=sorted(DOCSTRING_STOP_WORDS), min_df=20, max_df=0.3, token_pattern=r"[a-z]{3,}"
)
X = vectorizer.fit_transform(load_docstrings().data[::2])
train, test = train_test_split(X, test_size=300, random_state=0)

# %%
# SSVI differs from SSVI-A by a correction. It is too noisy for the first steps, which are large:
# from a random start, and with a small eta, all topics become the same. So here SSVI starts from
# the result of SSVI-A after half of the passes; the other methods make all passes in one ``fit``.

alpha, n_passes = 0.1, 8
common = dict(
    n_components=30,
    doc_topic_prior=alpha,
    temperature=None,
    moves=(),
    learning_offset=1.0,
    learning_decay=0.75,
    max_iter=n_passes,
    n_jobs=2,
)


def ssvi(**params):
    """Return an estimator that continues by SSVI from the topics of SSVI-A."""
    params["max_iter"] //= 2
    model = StructuredLDA(global_step="ssvi-a", warm_start=True, **params).fit(train)
    return model.set_params(global_step="ssvi")


methods = {
    "mean field": TemperedLDA,
    "Gibbs, mean-field topics": lambda **params: StructuredLDA(global_step="mean_field", **params),
    "SSVI-A (Gibbs)": lambda **params: StructuredLDA(global_step="ssvi-a", **params),
    "SSVI (Gibbs)": ssvi,
}
etas, seeds = np.array([0.01, 0.1, 0.3, 1.0]), range(2)
scores = {name: np.empty((len(seeds), etas.size)) for name in methods}
for name, method in methods.items():
    for i, seed in enumerate(seeds):
        for j, eta in enumerate(etas):
            model = method(topic_word_prior=eta, random_state=seed, **common).fit(train)
            scores[name][i, j] = document_completion_score(
                model.components_, test, doc_topic_prior=alpha
            )

# %%
# Each line has the mean score of two starts for each eta, where higher is better, and the range of
# these means. Mean-field inference predicts best with the largest eta, 1. Structured inference
# (SSVI-A and SSVI) predicts best with 0.1 and 0.3, and then better than both methods with averaged
# topics do with any eta.

fig, axes = plt.subplots(figsize=(6, 4), num="priors", layout="constrained")
for name, score in scores.items():
    mean = score.mean(axis=0)
    axes.fill_between(etas, score.min(axis=0), score.max(axis=0), alpha=0.15)
    axes.plot(etas, mean, "o-", label=name)
    print(f"{name:26s}", *(f"{m:.3f}" for m in mean), f"  range {np.ptp(mean):.3f}")
axes.set(xscale="log", xlabel="prior of the topics, eta", ylabel="held-out nats per word")
axes.set_xticks(etas, [f"{eta:g}" for eta in etas])
axes.legend()
plt.show()
