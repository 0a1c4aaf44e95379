"""Mixtures of any component, with any weights: the model, its components, and its clusters."""

from skvt.models.mixture._background import BackgroundMixture
from skvt.models.mixture._distinctness import Evidence
from skvt.models.mixture._gaussian_learner import GaussianLearner
from skvt.models.mixture._gaussian_prior import (
    GAUSSIAN_CLASSES,
    LOW_RANK_TYPES,
    MATRIX_TYPES,
    MIN_ROWS_PER_COLUMN_OF_MATRIX,
    MIN_ROWS_PER_COLUMN_OF_SCALE,
    GaussianPrior,
    make_gaussian_component,
    weighted_moments,
)
from skvt.models.mixture._given_columns import Conditioned, GivenColumns, separate_by_cell
from skvt.models.mixture._given_globals import MixtureGivenGlobals
from skvt.models.mixture._hierarchy import join_components
from skvt.models.mixture._indicated import (
    Indicated,
    add_indicators,
    find_columns_missing_together,
    without_point_masses,
)
from skvt.models.mixture._joined_bounds import compute_join_bounds, sum_joined_stats
from skvt.models.mixture._joins import SIGNIFICANT_VALLEY, Joins, indicate_clusters
from skvt.models.mixture._labels import (
    append_class_column,
    append_class_counts,
    with_labels,
    without_labels,
)
from skvt.models.mixture._latent import LATENT_GAUSSIAN_CLASSES, make_latent_gaussian_component
from skvt.models.mixture._learned_priors import DirichletLearner, GammaLearner, PriorLearner
from skvt.models.mixture._logs import Logged, model_logarithms, take_logarithms
from skvt.models.mixture._marginals import Marginals, have_large_shares, relevance
from skvt.models.mixture._model import Mixture
from skvt.models.mixture._negative_binomial import NegativeBinomial, SizesLearner
from skvt.models.mixture._ordinal import Cells
from skvt.models.mixture._pairs import Assignments
from skvt.models.mixture._product import (
    Block,
    Product,
    ProductLearner,
    ValuesLearner,
    as_slice,
    name_block_in_errors,
)
from skvt.models.mixture._refits import make_refits
from skvt.models.mixture._regression import (
    IndependentRegressions,
    Regression,
    RegressionLearner,
    make_regression_component,
)
from skvt.models.mixture._sizes import SIZES, make_exposure_points
from skvt.models.mixture._sparse_differences import (
    SparseDifferences,
    with_sparse_differences,
    without_sparse_differences,
)
from skvt.models.mixture._splits import number_distinct_rows, split_clusters
from skvt.models.mixture._starts import (
    initialise_from_labels,
    initialise_from_means,
    sum_by_label,
)
from skvt.models.mixture._student import StudentT, make_student_t_component
from skvt.models.mixture._suggestions import choose_by_elbow, choose_clusters
from skvt.models.mixture._valleys import find_valleys, measure_valley
from skvt.models.mixture._weights import (
    KnownWeights,
    SeparateSticks,
    StickBreaking,
    SymmetricDirichlet,
)
from skvt.models.mixture._wrap import WrapperMixin
from skvt.models.mixture.components import (
    Bernoulli,
    Categorical,
    ConjugateComponent,
    DiagonalGaussian,
    FullGaussian,
    KnownVarianceGaussian,
    Multinomial,
    Poisson,
    SphericalGaussian,
    ZeroMeanFullGaussian,
    split_exposure,
)
