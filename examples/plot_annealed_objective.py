"""
Why does a temperature help to avoid poor optima?
=================================================

At a high temperature the objective has a single optimum, and a fit that follows this optimum while
the temperature falls reaches a better one than a fit without a temperature. The example shows this
for a mixture of two one-dimensional Gaussians, as in figure 1 of *Variational Tempering* (Mandt et
al. 2016): the annealed evidence lower bound is a function of the two means. The assignments are at
their optimum for each pair of means, so that the bound is

.. math:: \\mathcal L_A(m_0, m_1; T) = \\log p(m_0, m_1) +
          \\sum_i \\log \\sum_k \\big(\\pi_k\\, \\mathcal N(x_i \\mid m_k, 1)\\big)^{1/T}.

The rows come from three clusters, so that two of them must share a component. The bound is highest
if the two larger clusters have a component each. A fit whose start has a component between these
two ends there. An annealed fit from the same start finds the better optimum.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import logsumexp

from skvt import CAVIGaussianMixture
from skvt.temperature import LinearAnnealing

rng = np.random.default_rng(0)
clusters = [(-8.0, 100), (0.0, 100), (8.0, 60)]  # mean, rows
X = np.concatenate([rng.normal(mean, 1.0, (n, 1)) for mean, n in clusters])


class Path:
    """A callback that stores the means after each pass."""

    def __init__(self, start):
        self.means = [np.ravel(start)]

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "pass":
            self.means.append(fitted_estimator.means_.ravel())


# %%
# The two fits have the same start and differ only in the temperature.

start = [[-1.5], [5.5]]
annealing = LinearAnnealing(initial_temperature=60.0, n_passes=60, replication=1.0)
fits, paths = {}, {}
for name, temperature in {"plain": None, "annealed": annealing}.items():
    path = Path(start)
    mixture = CAVIGaussianMixture(
        2, means_init=start, temperature=temperature, max_iter=100, random_state=0
    )
    fits[name] = mixture.set_callbacks(path).fit(X)
    paths[name] = np.array(path.means)
    means = mixture.means_.ravel().round(2)
    print(f"{name:8}: means {means}, bound {mixture.elbo_:.1f} nats")

# %%
# The annealed fit ends with a higher bound. The pictures show why: each has the objective at one
# temperature, with the plain fit in black and the annealed fit, up to this temperature, in red. At
# T = 55 there is one optimum, where both components are at the mean of all rows. At lower
# temperatures it splits into two, which differ only in the order of the components. The optimum in
# which the plain fit ends appears much later, when the annealed fit is already far from it.


def annealed_objective(m, temperature, prior_variance=100.0):
    """The bound at the means ``m`` (..., 2) in nats, up to the factor of the Gaussian."""
    compute_log_joint = np.log(0.5) - 0.5 * (X - m[..., None, :]) ** 2 - 0.5 * np.log(2 * np.pi)
    log_prior = -0.5 * np.sum(m**2, axis=-1) / prior_variance
    return logsumexp(compute_log_joint / temperature, axis=-1).sum(axis=-1) + log_prior


axis = np.linspace(-11.0, 11.0, 89)
grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
cooling = np.array(fits["annealed"].history_["temperature"])

fig, panels = plt.subplots(
    1, 4, figsize=(12, 3.5), num="temperatures", sharey=True, layout="constrained"
)
for panel, temperature in zip(panels, [55.0, 30.0, 10.0, 1.0], strict=True):
    height = annealed_objective(grid, temperature)
    # Levels are quantiles, because the shape of the optima matters here, not their height.
    panel.contourf(axis, axis, height.T, levels=np.quantile(height, np.linspace(0, 1, 24)))
    passed = paths["annealed"][: 1 + np.sum(cooling >= temperature)]
    panel.plot(*passed.T, ".-", color="red", linewidth=1, markersize=3, label="annealed")
    panel.plot(*passed[-1], "o", color="red", markersize=8)
    panel.plot(*paths["plain"].T, ".-", color="black", linewidth=1, markersize=3, label="plain")
    panel.plot(*paths["plain"][-1], "o", color="black", markersize=8)
    panel.set(title=f"T = {temperature:g}", xlabel="mean of component 0")
panels[0].set_ylabel("mean of component 1")
_ = panels[0].legend(loc="lower left")

# %%
# How many optima does the objective have at each temperature? The code counts them on the grid.

for temperature in [55.0, 30.0, 10.0, 1.0]:
    height = annealed_objective(grid, temperature)
    inner = height[1:-1, 1:-1]
    neighbours = [
        height[1 + i : height.shape[0] - 1 + i, 1 + j : height.shape[1] - 1 + j]
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
        if (i, j) != (0, 0)
    ]
    n_optima = np.sum(np.all([inner > other for other in neighbours], axis=0))
    print(f"T = {temperature:2g}: {n_optima} optima")

plt.show()

# %%
# There is one optimum at the highest temperature, and there are four at T = 1, so that more starts
# lead to a poor one.
