"""
How does a mixture find new clusters in a stream?
=================================================

``MemoizedDPGMM.partial_fit`` takes rows batch by batch, and tries births in each batch. It stores
the statistics of each batch, not its rows, so that the evidence lower bound of all previous rows
stays exact. A birth is kept only if it raises this bound. In the first part of the example, new
clusters appear during the stream. In the second part, the same batches are read from files in
several passes, with ``batch_id``. This is the same inference as ``fit``, with a single batch in
memory.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skvt import MemoizedDPGMM
from skvt.plotting import ComponentsDisplay

rng = np.random.default_rng(0)
n_batches, batch_size = 30, 300
angles = 2 * np.pi * np.arange(10) / 10
centres = 12.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
factors = rng.normal(size=(10, 2, 2)) * 0.7 + np.eye(2)
# The first batches show two clusters, the last ones all ten.
n_clusters = np.minimum(10, 2 + np.arange(n_batches) // 3)


def draw(n_shown):
    """Return a batch of rows from the first ``n_shown`` clusters."""
    labels = rng.integers(n_shown, size=batch_size)
    noise = np.einsum("nd,nde->ne", rng.normal(size=(batch_size, 2)), factors[labels])
    return centres[labels] + noise


batches = [draw(n_shown) for n_shown in n_clusters]

# %%
# **One pass over the stream.** ``score`` is the log predictive density of each batch before the
# model learns from it. The score falls if a new cluster appears, but only so far, because the
# predictive density includes a component without rows.

stream = MemoizedDPGMM(covariance_prior=np.eye(2), mean_precision_prior=0.01, random_state=0)
found, scores = [], []
for number, X in enumerate(batches):
    if number > 0:
        scores.append(stream.score(X))
    stream.partial_fit(X)
    found.append(stream.n_components_)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), num="stream", layout="constrained")
left.step(range(1, n_batches + 1), n_clusters, where="mid", label="in the data")
left.step(range(1, n_batches + 1), found, "--", where="mid", label="found")
left.set(xlabel="batches seen", ylabel="components")
left.legend()
right.plot(range(2, n_batches + 1), scores, ".-")
right.set(xlabel="batch", ylabel="nats per row before it is learned")

# %%
# Each cluster is found in the batch in which it appears: the two lines of the left picture are the
# same. In the right picture, the score falls in these batches only, and rises in the next one.
#
# **Several passes over files.** A batch with a known ``batch_id`` replaces its earlier statistics,
# so that no row is counted twice.

with tempfile.TemporaryDirectory() as folder:
    for number, X in enumerate(batches):
        np.save(Path(folder) / f"{number}.npy", X)
    model = MemoizedDPGMM(covariance_prior=np.eye(2), mean_precision_prior=0.01, random_state=0)
    for n_pass in range(3):
        for number in range(n_batches):
            model.partial_fit(np.load(Path(folder) / f"{number}.npy"), batch_id=number)
        everything = np.concatenate(batches)
        print(
            f"after pass {n_pass + 1}: {model.n_components_} components, score "
            f"{model.score(everything):.4f} nats per row"
        )
whole = MemoizedDPGMM(covariance_prior=np.eye(2), mean_precision_prior=0.01, random_state=0)
whole.fit(everything)
print(f"fit of all rows: {whole.n_components_} components, score {whole.score(everything):.4f}")

# %%
# The score after the passes is near that of a fit of all rows.
#
# The picture shows the components after the passes, as ellipses of two standard deviations. A broad
# component with hardly any rows may remain, because delete moves, by which ``fit`` would remove it,
# need the rows of all batches.

fig, axes = plt.subplots(figsize=(5, 5), layout="constrained")
shown = everything[rng.choice(len(everything), 2_000, replace=False)]
axes.plot(*shown.T, ".", ms=2, color="lightgray")
ComponentsDisplay.from_estimator(model, ax=axes)
plt.show()
