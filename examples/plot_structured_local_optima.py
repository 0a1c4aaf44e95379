"""
Structured inference leads mean-field inference to better optima
================================================================

Is a mean-field posterior a poor approximation, or is a good one only hard to find? Much of the loss
is due to the start, so a good one is hard to find. The example fits topics by several methods, and
then continues from each result, and from a random start, by mean-field batch inference, as in
figure 3 of *Structured Stochastic Variational Inference* (Hoffman and Blei 2015), in small. All
fits end in optima of the same bound, and starts by structured inference lead to the highest ones.
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
# How does a fitted estimator continue by another method? ``set_params`` changes the method, and
# with ``warm_start`` the next ``fit`` starts from the topics. Mean-field steps for documents and
# topics, with all documents in one batch and a step size of 1 (``learning_decay=0``), are
# coordinate ascent of the mean-field bound.

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
        # The history includes the passes before the change of the method.
        bounds[name].append(np.array(model.history_["elbo"])[-25:][4::5] / n_tokens)

# %%
# The left picture shows the exact mean-field bound of the training data during batch inference,
# with three starts for each method, and the right one shows its final values. Starts by SSVI-A are
# the best, above all with moves. The two methods with mean-field topics lead to optima that are
# poorer than those from random starts, and batch passes do not escape them.

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
