"""
Sums of shapes: plain inference, annealing, and moves
=====================================================

Each row is a sum of some of eight small pictures, plus noise.
:class:`~skvt.AnnealedFactorialMixture` has to find the pictures and which of them are in which row.
Coordinate ascent from a random start ends where components stand for sums and differences of
pictures. So may an annealed fit; superposition moves, accepted where the exact bound rises, take
these apart. (Figures 3, left, and 4 of the paper on variational tempering, Mandt et al. 2016, which
has no moves.)
"""

# %%
# Data
# ----
import matplotlib.pyplot as plt
import numpy as np

from skvt import AnnealedFactorialMixture
from skvt.datasets import make_shapes
from skvt.metrics import match_components
from skvt.plotting import ComponentsDisplay

X, activations, truth = make_shapes(3_000, random_state=0)

# %%
# Four fits from the same start
# -----------------------------
fits = {
    "plain": {"temperature": None, "moves": ()},
    "annealed": {"temperature": "annealed", "moves": ()},
    "variational tempering": {"temperature": "variational", "moves": ()},
    "annealed, then moves": {},
}
models = {
    name: AnnealedFactorialMixture(8, random_state=3, **settings).fit(X)
    for name, settings in fits.items()
}

# %%
# The bound at T = 1, per row, from pass to pass; while a fit is hot, that bound is not what it
# raises.
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, model in models.items():
    ax.plot(model.history_["n_iter"], np.array(model.history_["elbo"]) / len(X), label=name)
highest = max(model.elbo_ for model in models.values()) / len(X)
ax.set(xlabel="pass", ylabel="ELBO, nats per row", ylim=(highest - 4.0, highest + 0.2))
ax.legend()

# %%
# What was found
# --------------
# Components in the order of the pictures that they resemble most; a title says how much.
fig, axes = plt.subplots(len(models) + 1, 8, figsize=(7, 5.2), layout="constrained")
pictures = (-1, 4, 4)
ComponentsDisplay(truth.reshape(pictures)).plot(ax=axes[0], titles=[""] * 8)
for row, (_, model) in zip(axes[1:], models.items(), strict=True):
    order, similarities = match_components(truth, model.components_)
    display = ComponentsDisplay(model.components_[order].reshape(pictures))
    display.plot(ax=row, titles=[f"{value:.2f}" for value in similarities])
for ax, name in zip(axes[:, 0], ["truth", *models], strict=True):
    ax.axis("on")
    ax.set(xticks=[], yticks=[])
    ax.set_ylabel(name, rotation=0, ha="right", va="center")
plt.show()

# %%
# What the moves did after the temperature had come down to 1: rows begun anew ("refresh"), and
# components added to, subtracted from each other, or turned.
log = models["annealed, then moves"].move_log_
for n_iter, move, accepted, gain in zip(
    log["n_iter"], log["move"], log["accepted"], log["gain"], strict=True
):
    if accepted:
        print(f"pass {n_iter}: {move} gained {gain:,.1f} nats")
