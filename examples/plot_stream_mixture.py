"""
A mixture that grows with its stream
====================================

``MemoizedDPGMM.partial_fit`` takes rows batch by batch. It remembers the statistics of each batch,
not its rows, so that the evidence lower bound of all that was seen stays exact, and births, which
are tried within each batch, are kept only where it rises. Here new clusters turn up in the course
of the stream. Then the same batches, read from a file, are passed through several times with
``batch_id``: out of core, but the same inference as ``fit``.
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
    """A batch of rows from the clusters shown so far, and their clusters."""
    labels = rng.integers(n_shown, size=batch_size)
    noise = np.einsum("nd,nde->ne", rng.normal(size=(batch_size, 2)), factors[labels])
    return centres[labels] + noise


batches = [draw(n_shown) for n_shown in n_clusters]

# %%
# One pass over the stream. ``score`` is the log predictive density of the next batch, before it
# has been learned: it falls where a new cluster turns up, but not without limit, since the
# predictive density has room for a component not yet seen.

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
# Several passes over batches on disk. A ``batch_id`` says that a batch takes the place of its
# former self, so that nothing is counted twice. Only one batch is in memory.

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
# The components after the passes: two standard deviations, over some rows. A broad one with hardly
# any rows may be left over: deletes, by which ``fit`` is rid of it, need the rows of all batches.

fig, axes = plt.subplots(figsize=(5, 5), layout="constrained")
shown = everything[rng.choice(len(everything), 2_000, replace=False)]
axes.plot(*shown.T, ".", ms=2, color="lightgray")
ComponentsDisplay.from_estimator(model, ax=axes)
plt.show()
