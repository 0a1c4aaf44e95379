"""What the columns of a table are: likelihoods with priors, for :class:`~skvt.MemoizedDPMixture`.

Each is a small object with parameters, as scikit-learn's estimators have them (``get_params``,
``set_params``, ``clone``), and is given with the columns that it describes::

    MemoizedDPMixture(
        components=[
            ("size", Gaussian(covariance_type="full"), ["height", "weight"]),
            ("kind", Categorical(), ["region", "colour"]),
        ]
    )

A component of your own inherits from :class:`ComponentSpec`.
"""

from skvt.estimators.component_specs import (
    Bernoulli,
    Categorical,
    ComponentSpec,
    Gaussian,
    Multinomial,
    Poisson,
)

__all__ = ["Bernoulli", "Categorical", "ComponentSpec", "Gaussian", "Multinomial", "Poisson"]
