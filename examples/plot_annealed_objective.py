"""
What a temperature does to the bound
====================================

The annealed evidence lower bound of a mixture of two one-dimensional Gaussians, as a function of
the two means (figure 1 of *Variational Tempering*, Mandt et al. 2016). The assignments are at their
optimum for each pair of means, which leaves

.. math:: \\mathcal L_A(m_0, m_1; T) = \\log p(m_0, m_1) +
          \\sum_i \\log \\sum_k \\big(\\pi_k\\, \\mathcal N(x_i \\mid m_k, 1)\\big)^{1/T}.

At T = 20 there is one hill, and any start leads to its top. Cooling moves the hill, then splits it:
at T = 1 there are two, one of them only a local optimum, with the components' names exchanged but
not their weights. Who follows the top from the left picture to the right one ends on the better.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import logsumexp

rng = np.random.default_rng(0)
weights, means = np.array([0.3, 0.7]), np.array([-3.0, 3.0])
x = rng.normal(means[rng.choice(2, size=200, p=weights)], 1.0)


def annealed_objective(m, temperature, prior_variance=100.0):
    """The bound at the means ``m`` (..., 2) in nats, up to the factor of the Gaussian."""
    log_joint = np.log(weights) - 0.5 * (x[:, None] - m[..., None, :]) ** 2
    log_joint -= 0.5 * np.log(2 * np.pi)
    log_prior = -0.5 * np.sum(m**2, axis=-1) / prior_variance
    return logsumexp(log_joint / temperature, axis=-1).sum(axis=-1) + log_prior


# %%
# The objective on a grid, at the paper's four temperatures; the dot is the highest point.

axis = np.linspace(-6.0, 6.0, 121)
grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)

fig, panels = plt.subplots(1, 4, figsize=(12, 3.3), sharey=True, layout="constrained")
for panel, temperature in zip(panels, [20.0, 13.0, 8.5, 1.0], strict=True):
    height = annealed_objective(grid, temperature)
    top = np.unravel_index(np.argmax(height), height.shape)
    # Levels by rank: the shape of the hill matters here, not its height.
    panel.contourf(axis, axis, height.T, levels=np.quantile(height, np.linspace(0, 1, 24)))
    panel.plot(axis[top[0]], axis[top[1]], "o", color="red")
    panel.set(title=f"T = {temperature:g}", xlabel="mean of component 0 (weight 0.3)")
panels[0].set_ylabel("mean of component 1 (weight 0.7)")

# %%
# How many optima there are, counted on the grid.

for temperature in [20.0, 13.0, 8.5, 4.0, 1.0]:
    height = annealed_objective(grid, temperature)
    inner = height[1:-1, 1:-1]
    neighbours = [
        height[1 + i : height.shape[0] - 1 + i, 1 + j : height.shape[1] - 1 + j]
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
        if (i, j) != (0, 0)
    ]
    n_optima = np.sum(np.all([inner > other for other in neighbours], axis=0))
    print(f"T = {temperature:4g}: {n_optima} optima")

plt.show()
