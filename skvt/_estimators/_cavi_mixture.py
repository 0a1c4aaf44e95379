"""The estimator of the textbook mixture: Gaussians of known variance and known weights.

Inference is coordinate ascent [BKM17 sec. 3].
"""

from dataclasses import KW_ONLY, replace
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from skvt._estimators._mixtures import make_initial_means, require_rows
from skvt._results import MixtureEstimator, compute_assignments, make_components_table
from skvt.expfam import Categorical, Normal, Stats
from skvt.files import in_files
from skvt.fitting import FIXED, POSITIVE, Temperature, estimator, fitted_property, make_policy
from skvt.inference import MemoizedInference, Phase, Pilot, Plan, Stopping, make_rows
from skvt.models.mixture import KnownVarianceGaussian, KnownWeights, Mixture, weighted_moments
from skvt.posterior import JointPosterior, Posterior
from skvt.readers.validation import check_variance, illegal_value_error
from skvt.rows import get_chunk_sizes
from skvt.schedules import RobbinsMonro


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files(
    "estimators.CAVIGaussianMixture",
    fitted={
        "model": (Mixture,),
        "model.weights": (KnownWeights,),
        "model.component": (KnownVarianceGaussian,),
    },
)
@estimator
class CAVIGaussianMixture(MixtureEstimator):
    """Gaussian mixture of known variance and weights, by coordinate ascent.

    This is the model on which variational inference is taught [1]_. Only the means and the
    assignments are unknown:

        mu_k ~ N(0, prior_variance I),    z_n ~ Cat(weights),
        x_n | z_n = k ~ N(mu_k, noise_variance I).

    Coordinate ascent finds the posterior q(mu) q(z). Each pass updates all assignments, and then
    all means. The evidence lower bound is computed in closed form. Without a ``temperature``, it
    never falls.
    For mixtures that learn variances, weights and the number of components, see
    :class:`~skvt.MemoizedDPGMM`.

    Parameters
    ----------
    .. shared: n_components
    noise_variance : float, default=1.0
        Variance of the noise of a value. The noise is the difference between the value and the mean
        of the row's component.
    prior_variance : float, default=100.0
        Prior variance of an entry of a component. The entries are those of the component's mean,
        and the prior mean is 0. With a noise variance of 1 the default is only weakly informative
        as long as the means are within about 20 of 0.
    weights : array-like of shape (n_components,) or None, default=None
        Probabilities of the components, which are positive and sum to 1. None means equal weights.
    .. shared: init_params
    means_init : array-like of shape (n_components, n_features) or None, default=None
        Initial means, in place of the initial components that ``init_params`` finds. All starts of
        ``n_init`` are then the same.
    temperature : None, str or policy, default=None
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
        "annealed" lets the temperature fall to 1. "variational" learns one temperature for all
        rows, "local" one for each row.
    .. shared: max_iter
    tol : float, default=1e-6
        Converged when the bound gains less than this from one evaluation to the next, in nats per
        row. There is a :class:`~sklearn.exceptions.ConvergenceWarning` if ``max_iter`` passes do
        not suffice.
    .. shared: n_init, warm_start, n_jobs, verbose, verbose_interval, random_state

    Attributes
    ----------
    n_components_ : int
        Number of components K.
    weights_ : ndarray of shape (K,)
        The weights as given.
    .. shared: labels_
    means_ : ndarray of shape (K, n_features)
        Expected means. They are the means of q(mu_k).
    mean_variances_ : ndarray of shape (K, n_features)
        Variances of q(mu_k): ``1 / (1 / prior_variance + N_k / noise_variance)``, where N_k is the
        expected number of rows of the component. With missing values it is the expected number of
        values in the column.
    covariances_ : ndarray of shape (K,)
        Variance of each component, which is ``noise_variance``. The array has the form of
        scikit-learn's "spherical" covariances, so that :class:`~skvt.plotting.ComponentsDisplay`
        draws circles.
    precisions_, precisions_cholesky_ : ndarray
        Expected precisions, and their Cholesky factors as in scikit-learn (square roots for "diag"
        and "spherical"). Here the precisions are the inverse of the known variance, shape (K,), and
        the factors are the square roots of the precisions, shape (K,).
    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "means", a :class:`~skvt.expfam.Normal` for each component and column, and the
        "assignments", a :class:`~skvt.expfam.Categorical` for each row of positive weight of the
        last fit.
    .. shared: hierarchy_
        The entropy of the assignments is defined in [2]_.
    .. shared: hierarchy_criteria_, n_clusters_, n_clusters_reason_, clusterings_
    .. shared: cluster_labels_
    .. shared: elbo_ & lower_bound_, history_
    .. shared: lower_bounds_, restart_elbos_, n_batch_iter_, temperature_, converged_, n_iter_
    .. shared: n_features_in_, feature_names_in_, words_

    See Also
    --------
    skvt.MemoizedDPGMM : Learns variances, weights and the number of components.

    Notes
    -----
    If weights are equal, components are exchangeable. If weights differ, components may be matched
    to the wrong weights. After each pass the component with the most rows therefore gets the
    largest weight, the component with the second most rows the second largest weight, and so on.
    This never lowers the bound.

    NaN in the data are missing values and are integrated out.

    References
    ----------
    .. [1] D. M. Blei, A. Kucukelbir, J. D. McAuliffe, "Variational Inference: A Review for
       Statisticians", JASA 112, 2017.
    .. [2] J.-P. Baudry, A. E. Raftery, G. Celeux, K. Lo, R. Gottardo, "Combining Mixture Components
       for Clustering", Journal of Computational and Graphical Statistics 19, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import CAVIGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = rng.choice([-5.0, 0.0, 5.0], size=(1000, 1), p=[0.1, 0.2, 0.7])
    >>> X += rng.normal(size=X.shape)
    >>> mixture = CAVIGaussianMixture(3, weights=[0.1, 0.2, 0.7], random_state=0).fit(X)
    >>> mixture.means_.round().ravel()
    array([-5.,  0.,  5.])
    """

    n_components: int = 1
    _: KW_ONLY
    # `FIXED` marks parameters that must not change between the calls that continue a fit.
    noise_variance: Annotated[float, FIXED, POSITIVE] = 1.0
    prior_variance: Annotated[float, FIXED, POSITIVE] = 100.0
    weights: Annotated[ArrayLike | None, FIXED, None, "array-like"] = None
    init_params: str = "k-means++"
    means_init: ArrayLike | None = None
    temperature: Temperature = None
    max_iter: int = 100
    tol: float = 1e-6

    # --------------------------------------------------------------------------------- model
    def _make_known_weights(self):
        """Return the weights as the model's prior; raise ValueError if ``weights`` is illegal."""
        K = self.n_components
        if self.weights is None:
            return KnownWeights(np.full(K, 1.0 / K))
        weights = np.array(self.weights, dtype=np.float64)
        is_legal = weights.shape == (K,) and np.all(weights > 0.0)
        if not is_legal or abs(weights.sum() - 1.0) > 1e-6:
            legal_values = f"an array of n_components = {K} positive numbers that sum to 1"
            raise illegal_value_error("weights", legal_values, repr(self.weights))
        return KnownWeights(weights / weights.sum())

    def _build_model(self, X, weights, old=None):
        """Build the mixture of Gaussians; return ``old`` unchanged if a fit is continued.

        ``weights`` (n,) are the weights of the rows X.
        """
        if old is not None:
            return old
        require_rows(self, X, self.n_components)
        centre, variances = weighted_moments(X, weights, "diag")
        # A variance must not be tiny compared with the values that it divides. Compare the noise
        # variance with the mean squares of columns around their means, and the prior variance with
        # those around 0.
        squares_by_name = {"noise_variance": variances, "prior_variance": variances + centre**2}
        for name, column_squares in squares_by_name.items():
            check_variance(name, getattr(self, name), X.dtype, column_squares.max())
        # The model subtracts ``centre`` from rows. In these coordinates the prior mean 0 is
        # -centre.
        prior = Normal.from_standard(-centre, self.prior_variance)
        component = KnownVarianceGaussian(prior, centre, float(self.noise_variance), X.dtype)
        model = Mixture(
            self._make_known_weights(), component, n_initial=self.n_components,
            init_params=self.init_params,
            # The number of components is fixed, so that components without rows are kept.
            n_fewest=self.n_components,
        )  # fmt: skip
        if self.means_init is None:
            return model
        # Start from the sufficient statistics of components with these means, whose numbers of rows
        # are proportional to their weights.
        counts = weights.sum() * model.weights.weights
        sums = component.sums_from_means(make_initial_means(self, X), counts)
        return replace(model, start=Stats((counts, sums)))

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of memoized inference of one batch, which is coordinate ascent."""
        return Plan(
            data=make_rows(X, weights, X.shape[0]),
            phases=(Phase(MemoizedInference()),),
            policy=make_policy(self.temperature),
            stopping=Stopping(self.max_iter, tol=self.tol),
            # The pilot is a short fit that calibrates a learned temperature. Its step has size 1.
            pilot=Pilot(RobbinsMonro(offset=1.0, decay=0.0)),
        )

    def _row_results(self, rows, workers):
        """Return results of the rows by name, with the assignments for ``posterior_``."""
        results = super()._row_results(rows, workers)
        # `get_chunk_sizes` returns an empty array for rows in memory. Assignments of rows in chunks
        # are not kept; predict_proba computes them chunk by chunk.
        if not get_chunk_sizes(rows.X).size:
            results["assignments"] = compute_assignments(self._fitted, rows.X, workers)
        return results

    # --------------------------------------------------------------------------- attributes
    @fitted_property
    def means_(self, fitted):
        """Expected means, shape (K, n_features)."""
        return self._compute_moment(fitted, Normal.mean)

    @fitted_property
    def mean_variances_(self, fitted):
        """Variances of the means under q, shape (K, n_features)."""
        return self._compute_moment(fitted, Normal.variance)

    @fitted_property
    def covariances_(self, fitted):
        """Known variance of each component, shape (K,)."""
        variance = fitted.model.component.noise_variance
        return np.full(self.n_components_, variance, fitted.model.dtype)

    @fitted_property
    def precisions_(self, fitted):
        """Inverse variance of each component, shape (K,)."""
        return 1.0 / self.covariances_

    @fitted_property
    def precisions_cholesky_(self, fitted):
        """Square roots of the precisions, shape (K,)."""
        return np.sqrt(self.precisions_)

    def _result_for_display(self):
        center = self.weights_ @ self.means_
        return make_components_table(self, "share", self.weights_, self.means_, center)

    def _compute_moment(self, fitted, moment):
        """Return a moment of q of the means, in the coordinates of the data, (K, n_features).

        ``moment`` is ``Normal.mean`` or ``Normal.variance``.
        """
        # The natural parameters of the weights are empty, because the weights are known.
        _, lam_of_means = fitted.lam()
        _, lam = fitted.model.component.in_data_coordinates(lam_of_means)
        return moment(lam).astype(fitted.model.dtype)

    @fitted_property
    def posterior_(self, fitted):
        """The posterior q of the means, in the coordinates of the data, and of the assignments."""
        _, lam_of_means = fitted.lam()
        family, lam = fitted.model.component.in_data_coordinates(lam_of_means)
        blocks = {"means": Posterior(family, lam)}
        # The assignments are not known during a fit.
        if fitted.assignments is not None:
            eta = Categorical.from_standard(fitted.assignments)
            blocks["assignments"] = Posterior(Categorical, eta)
        return JointPosterior(**blocks)
