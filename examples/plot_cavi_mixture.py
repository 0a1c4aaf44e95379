"""
How does variational inference work in a small model?
=====================================================

This example repeats the experiment of a blog post on coordinate ascent (T. Fjelde, 2019). The rows
are a thousand draws from a mixture of three Gaussians with means -5, 0 and 5, weights 0.1, 0.2 and
0.7, and variance 1. The weights and the variance are known. The means and the component of each row
are unknown, and their posterior has :math:`3^{1000}` terms. ``CAVIGaussianMixture`` approximates it
by a Gaussian for each mean and a categorical distribution for each row,

.. math:: q(\\mu, z) = \\prod_k N(\\mu_k; m_k, s_k^2) \\prod_n \\mathrm{Cat}(z_n; \\varphi_n),

and updates one factor after the other, each time to its optimum given the others.
"""

import matplotlib.pyplot as plt
import numpy as np

from skvt import CAVIGaussianMixture

rng = np.random.default_rng(1)
weights, true_means = np.array([0.1, 0.2, 0.7]), np.array([-5.0, 0.0, 5.0])
labels = rng.choice(3, size=1000, p=weights)
X = rng.normal(true_means[labels])[:, None]
colors = ["tab:green", "tab:orange", "tab:blue"]

# %%
# The picture shows the draws.

fig, axes = plt.subplots(figsize=(9, 3), layout="constrained")
axes.scatter(np.arange(1000), X, s=6, c=np.array(colors)[labels])
axes.set(xlabel="row", ylabel="x", title="1,000 draws, colored by their true component")

# %%
# **Fit.** The result depends on the start, so ``n_init`` makes several starts and keeps the fit
# with the highest bound. Here starts are random responsibilities, far from the optimum, so that
# many passes can be seen.

mixture = CAVIGaussianMixture(
    3, prior_variance=1.0, weights=weights, init_params="random", n_init=5, random_state=0
).fit(X)
for k in range(3):
    m, s = mixture.means_[k, 0], np.sqrt(mixture.mean_variances_[k, 0])
    print(f"component {k}: true mean {true_means[k]:4.1f}, q(mu) = N({m:6.3f}, {s:.3f}^2)")
print("ELBO of each start:", mixture.restart_elbos_.round(1))

fig, axes = plt.subplots(figsize=(6, 3.4), num="bound", layout="constrained")
axes.plot(mixture.history_["n_iter"], mixture.history_["elbo"], ".-")
axes.set(xlabel="pass", ylabel="ELBO (nats)", title="The bound rises in each pass")

# %%
# The estimated means are near the true ones. Four of the five starts reach the same bound, and one
# ends in a poor optimum, which is why several starts are useful. The bound never falls; if it did,
# an update or the bound itself would be wrong.
#
# **How certain are the means?** The variance of a mean is ``1 / (1 / prior_variance + N_k /
# noise_variance)``, where ``N_k`` is the number of rows of the component. The mean of the rarest
# component is therefore the least certain. ``posterior_`` can draw means and assignments; each red
# line is the density of one such draw.

draws = mixture.posterior_.sample(200, random_state=0)
means = draws["means"][:, :, 0]
print("standard deviations of 200 draws:", means.std(axis=0).round(3))

fig, axes = plt.subplots(figsize=(9, 3.4), num="draws", layout="constrained")
axes.hist(X[:, 0], bins=60, density=True, color="lightgray", label="rows")
x = np.linspace(-9.0, 9.0, 400)[:, None]
for n, mu in enumerate(means[:60]):
    parts = weights * np.exp(-0.5 * (x - mu) ** 2) / np.sqrt(2.0 * np.pi)
    label = "densities drawn from q" if n == 0 else None
    axes.plot(x, parts.sum(axis=1), color="tab:red", lw=0.5, alpha=0.4, label=label)
axes.plot(x, np.exp(mixture.score_samples(x)), "k", lw=1, label="predictive density")
axes.set(xlabel="x", ylabel="density", title="Draws from the posterior")
axes.legend()
plt.show()
