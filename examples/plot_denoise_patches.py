"""
Denoising a photograph with a mixture of patches
================================================

Can a mixture remove the noise from a photograph? A zero-mean Gaussian mixture of the 8 x 8 patches
of one photograph is a prior by which noise can be removed from another (section 4.4 of *Memoized
Online Variational Inference for Dirichlet Process Mixture Models*, Hughes and Sudderth 2013). The
right number of components is not known, and births find it. The denoising is that of D. Zoran and
Y. Weiss, *From learning models of natural image patches to whole image restoration*, ICCV 2011:
each of the overlapping patches is assigned to its most probable component and Wiener filtered by
its covariance. The results are averaged, and their weight in the picture grows from step to step.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import null_space
from sklearn.datasets import load_sample_image
from sklearn.feature_extraction.image import extract_patches_2d

from skvt import MemoizedDPGMM
from skvt.plotting import ComponentsDisplay

side, sigma = 8, 25 / 255
rng = np.random.default_rng(0)


def grey(name):
    """Return a photograph with values from 0 (black) to 1 (white)."""
    return load_sample_image(name) @ (np.array([0.299, 0.587, 0.114]) / 255)


X = extract_patches_2d(grey("china.jpg"), (side, side), max_patches=20_000, random_state=0)
X = X.reshape(-1, side**2)
X -= X.mean(axis=1, keepdims=True)

# %%
# A patch minus its mean varies in only 63 of the 64 dimensions, so a basis of these 63 prevents
# singular covariances. A little noise is added because the grey values of the photograph are whole
# numbers.

basis = null_space(np.ones((1, side**2)))  # (64, 63), orthonormal
Z = X @ basis + rng.normal(scale=1 / 255, size=(len(X), side**2 - 1))
Z = Z.astype(np.float32)

models = {
    "births from K = 1": MemoizedDPGMM(
        mean_type="zero", max_iter=12, tol=0.0, n_jobs=2, random_state=0
    ),
    "one Gaussian": MemoizedDPGMM(mean_type="zero", moves=(), random_state=0),
}
for model in models.values():
    model.fit(Z)
ours = models["births from K = 1"]
print(f"births found {ours.n_components_} components")

# %%
# Half-quadratic splitting estimates the patches and the picture in turn, so that they agree better
# after each step.


def denoise(noisy, model, steps=(1, 4, 8, 16, 32)):
    """Maximise the expected patch log-likelihood of a grey picture."""
    picture = noisy
    components = [np.linalg.eigh(covariance) for covariance in model.covariances_]
    for step in steps:
        variance = sigma**2 / step  # The variance of a patch around the clean patch.
        windows = np.lib.stride_tricks.sliding_window_view(picture, (side, side))
        rows = windows.reshape(-1, side**2)
        means = rows.mean(axis=1, keepdims=True)
        Z = rows @ basis
        best, clean = np.full(len(Z), -np.inf), np.empty_like(Z)
        for k, (values, vectors) in enumerate(components):
            turned = Z @ vectors
            score = np.log(model.weights_[k]) - 0.5 * np.log(values + variance).sum()
            score = score - 0.5 * (turned**2) @ (1.0 / (values + variance))
            better = score > best
            best[better] = score[better]
            turned = turned[better] * (values / (values + variance))  # This is the Wiener filter.
            clean[better] = turned @ vectors.T
        patches = (clean @ basis.T + means).reshape(*windows.shape)
        total, count = np.zeros_like(picture), np.zeros_like(picture)
        for i in range(side):
            for j in range(side):
                there = slice(i, i + windows.shape[0]), slice(j, j + windows.shape[1])
                total[there] += patches[:, :, i, j]
                count[there] += 1.0
        # The noisy picture is one more observation, with the variance of the noise.
        picture = (noisy + step * total / side**2) / (1.0 + step * count / side**2)
    return picture


def psnr(picture, truth):
    """Return the peak signal-to-noise ratio in dB."""
    return -10.0 * np.log10(np.mean((np.clip(picture, 0.0, 1.0) - truth) ** 2))


# %%
# The pictures show a part of another photograph, its noisy version, and the denoised versions by
# the mixture and by a single Gaussian. A title has the signal-to-noise ratio; higher is better.

truth = grey("flower.jpg")[150:310, 200:380]
noisy = truth + rng.normal(scale=sigma, size=truth.shape)
pictures = {"photograph": truth, "noisy": noisy}
pictures |= {name: denoise(noisy, model) for name, model in models.items()}

fig, panels = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
for panel, (name, picture) in zip(panels.ravel(), pictures.items(), strict=True):
    panel.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0)
    title = name if name == "photograph" else f"{name}: {psnr(picture, truth):.2f} dB"
    panel.set(title=title, xticks=[], yticks=[])
    print(title)

# %%
# The mixture removes more noise than the single Gaussian, because its components describe different
# kinds of patches. Each column of the last picture has four draws from a component, with its weight
# above: some components are flat patches, others are edges of one orientation or texture.

order = np.argsort(-ours.weights_)[np.linspace(0, ours.n_components_ - 1, 10).astype(int)]
fig, panels = plt.subplots(4, 10, figsize=(9, 4), layout="constrained")
for column, k in enumerate(order):
    draws = rng.multivariate_normal(np.zeros(side**2 - 1), ours.covariances_[k], size=4)
    ComponentsDisplay((draws @ basis.T).reshape(-1, side, side)).plot(panels[:, column])
    panels[0, column].set_title(f"{ours.weights_[k]:.3f}", fontsize="small")
plt.show()
