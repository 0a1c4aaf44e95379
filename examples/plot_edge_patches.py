"""
Do births and merges escape local optima?
=========================================

They do. The image patches come from a mixture of eight zero-mean Gaussians, each with the
covariance of an edge of one orientation, as in section 4.1 and figure 2 of *Memoized Online
Variational Inference for Dirichlet Process Mixture Models* (Hughes and Sudderth 2013). Inference
with births and merges starts with one component and ends with eight. Inference with a fixed number
of 25 components ends in a local optimum, whether it uses all data at once, memoized batches, or
stochastic steps with any of three schedules.
"""

import matplotlib.pyplot as plt
import numpy as np

from skvt import MemoizedDPGMM
from skvt.datasets import make_edge_patches
from skvt.metrics import match_components
from skvt.plotting import ComponentsDisplay, ELBODisplay

patches = make_edge_patches(20_000, noise=0.5, random_state=0)

# %%
# Six fits are compared by the exact bound of all patches after each pass, in nats per patch.

common = dict(mean_type="zero", batch_size=1_000, max_iter=20, tol=0.0, n_jobs=2)
fixed = dict(n_components=25, moves=(), **common)


def stochastic(decay, offset):
    """Return an estimator with stochastic steps ``(offset + t) ** -decay``."""
    steps = dict(learning_decay=decay, learning_offset=offset)
    return MemoizedDPGMM(learning_method="online", evaluate_every=1, **steps, **fixed)


models = {
    "births and merges, from K = 1": MemoizedDPGMM(**common),
    "memoized, K = 25": MemoizedDPGMM(**fixed),
    "full, K = 25": MemoizedDPGMM(**{**fixed, "batch_size": None}, learning_method="batch"),
    "stochastic a (0.5, 10), K = 25": stochastic(0.5, 10),
    "stochastic b (0.5, 100), K = 25": stochastic(0.5, 100),
    "stochastic c (0.9, 10), K = 25": stochastic(0.9, 10),
}
for name, model in models.items():
    model.set_params(random_state=0).fit(patches.X)
    print(
        f"{name:32s} K = {model.n_components_:2d}, ELBO {model.elbo_ / 20_000:.4f} nats per patch"
    )

# %%
# Births and merges find eight components and have the highest bound. The bound includes all
# constants, so that fits with different K can be compared. After births the bound may fall for a
# pass, until the new components have their rows or are removed. Which of the stochastic schedules
# is good depends on the data; memoized inference has no schedule to choose.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), num="bounds", layout="constrained")
for name, model in models.items():
    style = {"linestyle": "--" if "stochastic" in name else "-", "markersize": 4}
    ELBODisplay.from_estimator(model, name=name, ax=left, n_samples=20_000, line_kw=style)
    right.plot(model.history_["n_iter"], model.history_["n_components"], marker=".", **style)
left.get_legend().remove()
best = models["births and merges, from K = 1"].elbo_ / 20_000
left.set(xlabel="passes", ylabel="ELBO, nats per patch", ylim=(best - 2.2, best + 0.1))
right.set(xlabel="passes", ylabel="components K")
right.axhline(8, color="gray", linestyle=":")
fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")

# %%
# Which covariances were found? The first two lines have a patch of each true component and its
# covariance. Each other line has, for one method, the matching components with their weights.

side = 5
shown = ["births and merges, from K = 1", "memoized, K = 25", "stochastic b (0.5, 100), K = 25"]
truth = patches.covariances.reshape(8, -1)
fig, panels = plt.subplots(2 + len(shown), 8, figsize=(9, 6.3), layout="constrained")
limit = truth.max()
first = [np.argmax(patches.labels == k) for k in range(8)]
ComponentsDisplay(patches.X[first].reshape(8, side, side)).plot(panels[0])
style = {"cmap": "RdBu", "vmin": -limit, "vmax": limit}
ComponentsDisplay(patches.covariances, weights=patches.weights).plot(panels[1], image_kw=style)
for row, name in zip(panels[2:], shown, strict=True):
    model = models[name]
    partners, _ = match_components(truth, model.covariances_.reshape(model.n_components_, -1))
    found = partners >= 0
    ComponentsDisplay.from_estimator(
        model, values="covariances", components=partners[found], ax=row[found], image_kw=style
    )
    for panel in row[~found]:
        panel.text(0.5, 0.5, "none", ha="center", va="center")
names = ["a patch", "truth", "births\nmerges", "memoized", "stochastic b"]
for row, name in enumerate(names):
    panels[row, 0].set_ylabel(name, fontsize="small")
for panel in panels.ravel():
    panel.set(xticks=[], yticks=[])
plt.show()
