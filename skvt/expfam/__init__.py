"""Exponential families: log-normaliser, expectation and sample, in natural parameters.

The whole package has one convention: a member of a family has the density
``h(x) exp(<eta, t(x)> - A(eta))``, with the base measure h, the sufficient statistic t and the
log-normaliser A. The natural parameter ``eta`` is chosen such that ``eta`` of a posterior is
``eta`` of the prior plus statistics of the data. For the Dirichlet, ``eta`` is therefore the
concentration, ``t(x) = log x`` and ``h(x) = 1 / prod(x)``. For the families over parameters of
Gaussians (:class:`Wishart`, :class:`NormalWishart`, :class:`NormalGamma`), a row x of data adds 1,
x and x x' to ``eta``, without factors.
"""

from skvt.expfam._beta import Beta
from skvt.expfam._categorical import Categorical
from skvt.expfam._dirichlet import Dirichlet
from skvt.expfam._dirichlet_columns import DirichletColumns
from skvt.expfam._factor_analysis import FactorAnalysis, Factors
from skvt.expfam._family import Family, kl_divergence
from skvt.expfam._gamma import Gamma, log_standard_gamma
from skvt.expfam._gaussian import MeanPrecision
from skvt.expfam._gaussian_columns import GaussianColumns
from skvt.expfam._matrix_normal_wishart import Coefficients, MatrixNormalWishart
from skvt.expfam._normal import Normal
from skvt.expfam._normal_gamma import NormalGamma
from skvt.expfam._normal_wishart import NormalWishart
from skvt.expfam._stats import RunningStats, Stats, are_float_arrays, sum_stats
from skvt.expfam._tied_factor_analysis import TiedFactorAnalysis
from skvt.expfam._tied_normal_wishart import TiedNormalWishart
from skvt.expfam._wishart import Wishart
