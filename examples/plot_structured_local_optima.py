"""
Structured inference leads mean-field inference to better optima
================================================================

Is a mean-field posterior a poor approximation, or is a good one only hard to find? Fit topics by
three methods, then continue from each, and from a random start, with mean-field batch inference
(figure 3 of *Structured Stochastic Variational Inference*, Hoffman and Blei 2015, in small). All
end in optima of one bound, and the highest are those that structured inference led to: much of what
mean-field inference lacks is the start.
"""

import matplotlib.pyplot as plt
import numpy as np

from skvt import StructuredLDA
from skvt.datasets import make_topic_corpus

priors = dict(doc_topic_prior=0.05, topic_word_prior=0.02)
size = dict(n_components=50, n_features=1_500, mean_length=80.0)
X = make_topic_corpus(2_000, **size, **priors, random_state=0).X
n_tokens = X.sum()

# %%
# A fitted estimator can continue with other steps: ``set_params`` changes them, ``warm_start``
# keeps the topics. Mean-field local steps under mean-field topics, all documents at once and steps
# of size 1 (``learning_decay=0``), are coordinate ascent of the mean-field bound.

first = {
    "random start": None,
    "stochastic mean field": dict(local_step="mean_field", global_step="mean_field"),
    "Gibbs, mean-field topics": dict(local_step="gibbs", global_step="mean_field"),
    "SSVI-A (Gibbs)": dict(local_step="gibbs", global_step="ssvi-a"),
    "SSVI-A (Gibbs), with moves": dict(moves=("split-merge",)),
}
mean_field = dict(
    local_step="mean_field",
    global_step="mean_field",
    learning_method="batch",
    learning_decay=0.0,
    max_iter=25,
    evaluate_every=5,
    perp_tol=0.0,
    moves=(),
)

bounds = {}
for name, steps in first.items():
    bounds[name] = []
    for seed in range(3):
        model = StructuredLDA(
            n_components=50,
            **priors,
            temperature=None,
            moves=(),
            batch_size=100,
            max_iter=10,
            warm_start=True,
            n_jobs=2,
            random_state=seed,
        )
        if steps is not None:
            model.set_params(**steps).fit(X)
        model.set_params(**mean_field).fit(X)
        # the history holds the passes before the change of steps, too
        bounds[name].append(np.array(model.history_["elbo"])[-25:][4::5] / n_tokens)

# %%
# The exact mean-field bound of the training data in the course of batch inference, and where it
# ends: three starts each. Stochastic mean-field inference leads into a poor optimum that batch
# passes do not leave.

passes = 5 * np.arange(1, 6)
fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4), num="starts", sharey=True, layout="constrained"
)
for place, (name, runs) in enumerate(bounds.items()):
    color, ends = f"C{place}", [run[-1] for run in runs]
    for number, run in enumerate(runs):
        label = None if number else name
        left.plot(passes, run, ".-", color=color, alpha=0.7, label=label)
    right.plot(np.full(len(ends), place), ends, "o", color=color, alpha=0.5)
    right.plot(place, np.mean(ends), "_", color=color, markersize=30)
    print(f"{name:26s} mean {np.mean(ends):.4f}, from {min(ends):.4f} to {max(ends):.4f}")
bottom = min(run[-1] for runs in bounds.values() for run in runs)
top = max(run[-1] for runs in bounds.values() for run in runs)
left.set(xlabel="passes of mean-field batch inference", ylabel="ELBO, nats per token")
left.set(ylim=(bottom - 0.1 * (top - bottom), top + 0.1 * (top - bottom)))
left.set_xticks(passes)
fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
right.set_xticks(range(len(bounds)), [name.replace(" ", "\n") for name in bounds])
right.set(xlim=(-0.5, len(bounds) - 0.5), title="where it ends")
plt.show()
