"""
How many sounds are in a spectrogram
====================================

``StructuredGaPNMF`` factorises a spectrogram into at most ``n_components`` spectra and lets those
go that it does not need. Mean-field inference of the same model stops early with too few, mixed
spectra; structured inference finds most of the true ones (figure 5 of *Structured Stochastic
Variational Inference*, Hoffman and Blei 2015, in small). scikit-learn's ``NMF`` is given the right
rank.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import NMF

from skvt import StructuredGaPNMF
from skvt.datasets import make_spectrogram
from skvt.metrics import match_components

# %%
# Each frame, a row, is a mixture of 50 speech-like sounds, few of which are loud at a time.

X, truth, _ = make_spectrogram(800, n_components=50, random_state=0)
X = X.astype(np.float32)

settings = dict(n_components=100, max_iter=500, random_state=0)
models = {
    "SSVI-A": StructuredGaPNMF(**settings),
    "mean field": StructuredGaPNMF(local_step="mean_field", global_step="mean_field", **settings),
    "NMF, rank 50": NMF(
        50, init="random", beta_loss="kullback-leibler", solver="mu", max_iter=300, tol=0.0,
        random_state=0,
    ),
}  # fmt: skip

fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, model in models.items():
    model.fit(X)
    correlation = match_components(truth, model.components_)[1]
    axes.plot(np.sort(correlation)[::-1], label=name)
    active = getattr(model, "n_active_components_", 50)
    print(f"{name:14s} {active:3d} components, {(correlation > 0.9).sum():2d} of 50 sounds found")
axes.axhline(0.9, color="0.7", linewidth=0.8)
axes.set(xlabel="true spectra, sorted", ylabel="correlation with its partner", ylim=(0.0, 1.02))
axes.legend()

# %%
# Three true spectra and their partners.

fig, axes = plt.subplots(figsize=(6, 4), num="sounds", layout="constrained")
partner, correlation = match_components(truth, models["SSVI-A"].components_)
for row, k in enumerate(np.argsort(-correlation)[[0, 20, 40]]):
    found = models["SSVI-A"].components_[partner[k]]
    axes.plot(truth[k] / truth[k].max() - 1.2 * row, color="0.6", linewidth=3)
    axes.plot(found / found.max() - 1.2 * row, color="C0", linewidth=1)
axes.set(xlabel="frequency bin", yticks=[], title="true (grey) and found")
plt.show()
