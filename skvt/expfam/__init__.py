"""Exponential families: log-normaliser, expectation and sample, in natural parameters.

The whole package has one convention: a member of a family is ``h(x) exp(<eta, t(x)> - A(eta))``,
and the natural parameter ``eta`` is chosen such that a posterior's is the prior's plus statistics.
For the Dirichlet, ``eta`` is therefore the concentration, ``t(x) = log x`` and
``h(x) = 1 / prod(x)``. For the families over parameters of Gaussians (:class:`Wishart`,
:class:`NormalWishart`, :class:`NormalGamma`), rows x add 1, x and x x' to ``eta``, without factors.
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
from skvt.expfam._tied_normal_wishart import TiedNormalWishart
from skvt.expfam._wishart import Wishart
