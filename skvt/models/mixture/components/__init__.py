"""Likelihoods of the components of mixtures."""

from skvt.models.mixture.components._base import (
    LOG_2PI,
    ConjugateComponent,
    PairOfEachColumn,
    RowFits,
    dense_rows,
    draw_positions,
    fill_missing,
    multiply_features,
)
from skvt.models.mixture.components._directions import (
    cluster_along_line,
    project_to_factors,
    project_to_least_normal,
    project_to_principal,
    standardise_columns,
)
from skvt.models.mixture.components._discrete import (
    Bernoulli,
    Categorical,
    ExposureColumns,
    Multinomial,
    Poisson,
    separate_missing,
    split_exposure,
)
from skvt.models.mixture.components._full import (
    FullGaussian,
    GaussianRowFits,
    ZeroMeanFullGaussian,
    column_gammas,
    compute_observed_distances,
    compute_squared_distances,
    full_features,
    normal_gamma_log_normalizers,
    student_t_log_density,
)
from skvt.models.mixture.components._independent import (
    DiagonalGaussian,
    KnownVarianceGaussian,
    SphericalGaussian,
)
