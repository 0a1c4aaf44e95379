"""Components of tables: likelihoods of columns, with priors, for :class:`~skvt.MemoizedDPMixture`.

A component is an object with parameters, like a scikit-learn estimator (``get_params``,
``set_params``, ``clone``), and is passed together with the columns that it describes::

    MemoizedDPMixture(
        components=[
            ("size", Gaussian(covariance_type="full"), ["height", "weight"]),
            ("kind", Categorical(), ["region", "colour"]),
        ]
    )

Custom components inherit from :class:`ComponentSpec`.
"""

from skvt.components.specs import (
    Bernoulli,
    Categorical,
    ComponentSpec,
    Gaussian,
    Hurdle,
    LatentGaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    StudentT,
)

__all__ = [
    "Bernoulli", "Categorical", "ComponentSpec", "Gaussian", "Hurdle", "LatentGaussian",
    "Multinomial", "NegativeBinomial", "Poisson", "StudentT",
]  # fmt: skip
