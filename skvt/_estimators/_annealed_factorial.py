"""The estimator of factorial mixtures: each row is a sum of a subset of components, plus noise.

Inference is memoized or stochastic, and starts at a temperature above 1. A component is *on* in a
row if it is one of the summands of the row. The activations of a row are the probabilities that the
components are on in it. The mathematics is in :mod:`skvt.models.factorial`.
"""

from dataclasses import KW_ONLY, replace
from numbers import Real
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import DensityMixin

from skvt._results import MixtureEstimator, SumsMixin, make_components_table
from skvt._sklearn_private import Interval
from skvt.files import in_files
from skvt.fitting import (
    AT_LEAST_ONE,
    AUTO,
    POSITIVE,
    MoveLogMixin,
    Temperature,
    VariationalEstimator,
    check_moves,
    estimator,
    fitted_property,
    make_policy,
    model_property,
)
from skvt.inference import (
    MemoizedInference,
    Phase,
    Pilot,
    Plan,
    StochasticInference,
    Stopping,
    StreamPlan,
    Workers,
    make_rows,
)
from skvt.models.factorial import (
    ActivationPosterior,
    FactorialMixture,
    Superposition,
    contains_missing,
    guess_variances,
    infer_activations,
)
from skvt.posterior import Posterior
from skvt.readers import ContiguousReader
from skvt.readers.chunks import apply_by_chunk
from skvt.readers.validation import check_variance, require_positive_int
from skvt.schedules import RobbinsMonro
from skvt.temperature import LinearAnnealing

# Legal values of a probability of activation.
PROBABILITY = Interval(Real, 0, 1, closed="neither")
# Initial value of a learned activation prior.
INITIAL_ACTIVATION = 0.3
# Above the critical temperature all components are the same. Annealing starts at this share of the
# critical temperature. From a higher start, all components would describe the same few directions
# of the data.
SHARE_OF_CRITICAL = 0.25
# Maximum initial temperature of annealing. For rows of thousands of columns, a quarter of the
# critical temperature would be very high, although activations are certain at any temperature. The
# initial temperature is then this maximum.
MAX_INITIAL_T = 6.0
# Maximum of a learned temperature. A maximum that is too high does no harm, because the learned
# temperature falls below it at once.
MAX_LEARNED_T = 10.0


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files("estimators.AnnealedFactorialMixture", fitted={"model": (FactorialMixture,)})
@estimator
class AnnealedFactorialMixture(SumsMixin, MoveLogMixin, DensityMixin, VariationalEstimator):
    """Factorial mixture: each row is a sum of a subset of components, plus noise.

    ``x = sum_k z_k mu_k + noise`` with binary ``z_k ~ Bernoulli(pi_k)`` and Gaussian components
    ``mu_k ~ N(0, c I)``. A component is either on or off in a row, whereas factor analysis and
    dictionary learning give it a weight.

    Plain variational inference of this model nearly always ends in a poor local optimum. Annealing
    [1]_ and superposition moves avoid that. A move is accepted only if it raises the exact bound.

    Parameters
    ----------
    .. shared: n_components
    noise_variance : float or "auto", default="auto"
        Variance of the noise of a value. "auto" learns it once the temperature is 1. The learned
        variance is at least a ten-thousandth of the mean square of the data.
    prior_variance : float or "auto", default="auto"
        Prior variance of an entry of a component. It is c in the formula above. "auto" learns it.
    activation_prior : float, array-like of shape (n_components,) or "auto", default="auto"
        Probability pi_k that a component is on. "auto" learns each of them.
    temperature : None, str or policy, default="annealed"
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
        "annealed" is ``LinearAnnealing(T0, replication=1)``, where T0 is a quarter of the
        temperature above which all components would be the same, at least 1 and at most 6. With
        ``replication=1``, an update of the components counts each row once at any temperature.
        "variational" and "local" learn the temperature, which is at most 10.
    moves : tuple of {"superposition"}, default=("superposition",)
        Moves that may be made; ``()`` is none. They are made by memoized inference at T = 1.
    learning_method : {"batch", "online"}, default="batch"
        How the posterior q is found. "batch": memoized inference, which keeps the activations of
        all rows. "online": stochastic inference on shuffled minibatches, without moves.
    .. shared: learning_decay (factors), learning_offset, batch_size, n_parallel_batches
    .. shared: total_samples
    max_iter : int or None, default=None
        Maximum number of passes over the data. None is 500, and 100 with "online", which by default
        does not judge convergence.
    .. shared: tol, evaluate_every, n_init, warm_start, n_jobs, verbose, verbose_interval
    .. shared: random_state

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Expected components.
    activation_prior_ : ndarray of shape (n_components,)
        Probabilities pi_k, as given or learned.
    noise_variance_, prior_variance_ : float
        Variances, as given or learned.
    elbo_ : float
        Evidence lower bound of the training data in nats, every constant included. Not available
        after ``partial_fit``, see ``elbo``.
    .. shared: history_ (memoized), move_log_
    posterior_ : Posterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. It is the
        posterior of the components.
    .. shared: restart_elbos_, converged_, n_iter_, n_batch_iter_, temperature_, n_features_in_
    .. shared: feature_names_in_, words_

    See Also
    --------
    sklearn.decomposition.FactorAnalysis : Factors with continuous weights.
    sklearn.decomposition.MiniBatchDictionaryLearning : Factors with sparse continuous weights.

    Notes
    -----
    The model has no intercept: centre the columns if the rows share a large mean. NaN are missing
    values and are integrated out. Each column then has a separate covariance of the components,
    which costs ``n_samples * n_features * n_components ** 2`` operations per pass and memory for
    ``n_features * n_components ** 2`` numbers.

    Without missing values, a pass costs ``4 N K D + 4 N K^2`` operations, with N rows, D columns
    and K components. The activations of all rows are kept during the fit, ``N K`` numbers.

    References
    ----------
    .. [1] S. Mandt, J. McInerney, F. Abrol, R. Ranganath, D. Blei (2016). Variational tempering.
       AISTATS.

    Examples
    --------
    >>> from skvt import AnnealedFactorialMixture
    >>> from skvt.datasets import make_shapes
    >>> X = make_shapes(2000, random_state=0).X
    >>> model = AnnealedFactorialMixture(n_components=8, random_state=0).fit(X)
    >>> model.components_.shape
    (8, 16)
    >>> model.transform(X[:2]).shape
    (2, 8)
    """

    _reader_class = ContiguousReader

    n_components: int = 10
    _: KW_ONLY
    noise_variance: Annotated[float | str, AUTO, POSITIVE] = "auto"
    prior_variance: Annotated[float | str, AUTO, POSITIVE] = "auto"
    activation_prior: Annotated[ArrayLike | str, AUTO, PROBABILITY, "array-like"] = "auto"
    temperature: Temperature = "annealed"
    moves: tuple[str, ...] = ("superposition",)
    learning_method: str = "batch"
    learning_decay: float = 0.7
    learning_offset: float = 10.0
    batch_size: int = 128
    n_parallel_batches: int | None = None
    total_samples: float | None = None
    max_iter: Annotated[int | None, None, AT_LEAST_ONE] = None
    tol: float = 1e-5
    evaluate_every: int = -1

    # ---------------------------------------------------------------------------------- model
    def _make_activation_prior(self):
        """Return the initial pi (K,) by ``activation_prior``; raise ValueError if it is illegal."""
        if isinstance(self.activation_prior, str):
            return np.full(self.n_components, INITIAL_ACTIVATION)
        prior = np.asarray(self.activation_prior, dtype=np.float64)
        if prior.shape not in ((), (self.n_components,)):
            raise ValueError(
                "The 'activation_prior' parameter must be a number or an array of shape "
                f"(n_components,) = ({self.n_components},). Got an array of shape {prior.shape} "
                "instead."
            )
        is_legal = (prior > 0.0) & (prior < 1.0)
        if not is_legal.all():
            raise ValueError(
                "Each entry of the 'activation_prior' parameter must be in the range (0, 1). Got "
                f"{prior[~is_legal].flat[0]:g}."
            )
        return np.broadcast_to(prior, (self.n_components,)).copy()

    def _build_model(self, X, weights, old=None):
        """Build the model; parameters that are "auto" begin with guesses from the rows.

        If a fit is continued, they keep their values in the ``old`` model.
        """
        check_moves(self.moves, ("superposition",))
        prior = self._make_activation_prior()
        # Guesses of "noise_variance" and "prior_variance" by name, and the largest variance of the
        # rows in any direction. The sum of the prior is the expected number of active components.
        guesses, largest_variance = guess_variances(X, weights, self.n_components, prior.sum())
        names = "noise_variance", "prior_variance", "activation_prior"
        learned_names = {name for name in names if isinstance(getattr(self, name), str)}
        # `check_variance` refuses variances that are too small compared with a mean square. The
        # guess of the prior variance is the mean square of one component's contribution.
        component_square = guesses["prior_variance"]
        if "noise_variance" not in learned_names:
            check_variance("noise_variance", self.noise_variance, X.dtype, component_square)
            guesses["noise_variance"] = float(self.noise_variance)
        if "prior_variance" not in learned_names:
            # The prior variance must also not be too small compared with the variance of the noise.
            largest_square = max(component_square, guesses["noise_variance"])
            check_variance("prior_variance", self.prior_variance, X.dtype, largest_square)
            guesses["prior_variance"] = float(self.prior_variance)
        model = FactorialMixture(
            n_components=self.n_components, n_features=X.shape[1], activation_prior=prior,
            dtype=X.dtype, learned=frozenset(learned_names), by_column=contains_missing(X, weights),
            critical_temperature=largest_variance / guesses["noise_variance"], **guesses,
        )  # fmt: skip
        if old is None:
            return model
        old_values = {name: getattr(old, name) for name in learned_names}
        return replace(model, **old_values, by_column=old.by_column)

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of a fit: batches, engine, passes, and first activations of the rows."""
        n_rows = X.shape[0]
        minibatches = make_rows(X, weights, self.batch_size, self.n_parallel_batches)
        step_sizes = RobbinsMonro(self.learning_offset, self.learning_decay)
        is_online = self.learning_method == "online"
        n_passes = self.max_iter
        if n_passes is None:
            n_passes = 100 if is_online else 500
        if stream or is_online:
            data, row_starts = minibatches, None
            engine = StochasticInference(step_sizes)
        else:
            data = make_rows(X, weights, n_rows, self.n_parallel_batches)
            engine = MemoizedInference([Superposition()] if self.moves else [])
            # NaN tells the local step to start from the prior. inf tells it to search for the best
            # subset of components. A search is of use only if components have been learned, as in a
            # warm start.
            activation = np.inf if self._is_warm_start() else np.nan
            row_starts = np.full((n_rows, self.n_components), activation, X.dtype)
        return Plan(
            data=data,
            phases=(Phase(engine),),
            policy=_make_policy(self.temperature, model),
            # If the fit may stop before ``max_iter``, the temperature policy anneals over a share
            # of 100 expected passes, because ``max_iter`` is then only a limit.
            stopping=Stopping(n_passes, self.evaluate_every, self.tol, planned_passes=100.0),
            # The pilot is a short fit that calibrates a learned temperature.
            pilot=Pilot(step_sizes, minibatches),
            row_starts=row_starts,
            stream=StreamPlan(self.total_samples),
        )

    def _adapt_fit(self, fitted, X, weights):
        """Return the fit, with separate statistics of each column if the rows X need them.

        X needs them if it has missing values and the earlier rows had none. A warm start and a call
        of ``partial_fit`` call the method before their passes.
        """
        if fitted.model.by_column or not contains_missing(X, weights):
            return fitted
        model, stats = fitted.model.with_column_covariances(fitted.state.stats)
        return replace(fitted, model=model, state=replace(fitted.state, stats=stats))

    def _model_for_bounds(self):
        """Return the model with which ``elbo`` evaluates the bound of rows.

        Its local step searches for the best subset of components of each row, because these rows
        have no activations to start from.
        """
        return replace(self._fitted.model, search=True)

    # ------------------------------------------------------------------------------- attributes
    activation_prior_ = model_property(
        "activation_prior",
        'Probability that a row has each component, shape (n_components,); learned with "auto".',
    )
    noise_variance_ = model_property(
        "noise_variance", "Variance of the noise of an entry, given or learned."
    )
    prior_variance_ = model_property(
        "prior_variance", "Prior variance of an entry of a component, given or learned."
    )

    @fitted_property
    def components_(self, fitted):
        """Expected components, shape (K, n_features)."""
        # The components are the only block of parameters.
        return fitted.model.family.mean(*fitted.lam()).astype(fitted.model.dtype)

    def _result_for_display(self):
        shares = self.activation_prior_
        return make_components_table(self, "share of rows", shares, self.components_)

    @fitted_property
    def posterior_(self, fitted):
        """The posterior q of the components."""
        return Posterior(fitted.model.family, *fitted.lam())

    # -------------------------------------------------------------------------------- inference
    # For rows of Dask, the lambda returns a pair: the number of columns of the result, or None for
    # a vector, and the dtype of the result.
    @apply_by_chunk(lambda self: (self.n_components, self._fitted.model.dtype))
    def transform(self, X):
        """Return the probability that each component is on, given the row.

        The other components are summed out. This is exact for up to 12 components. Otherwise it is
        an estimate by annealed particles, whose random numbers depend on the row's values only.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN are missing values.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Probability that the component is on in the row.
        """
        self._require_fitted()
        activations = self._infer_activations(self._read(X))
        return activations.probabilities.astype(self._fitted.model.dtype)

    @apply_by_chunk(lambda self: (None, np.dtype(np.float64)))
    def score_samples(self, X):
        """Return the log posterior predictive density of each row.

        Activations are summed out and components integrated out. This is exact for up to 12
        components. Otherwise it is an estimate by annealed particles, slightly too low on average.
        It does not depend on the other rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN are missing values.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log densities in nats.
        """
        self._require_fitted()
        return self._compute_log_densities(self._read(X))

    def _compute_log_densities(self, X):
        """Return the log posterior predictive density of each row of numbers, (n,)."""
        return self._infer_activations(X).log_density

    def _infer_activations(self, X):
        """Return the :class:`ActivationPosterior` of rows of numbers, computed batch by batch."""
        fitted = self._fitted
        with Workers(self.n_jobs) as workers:
            data = make_rows(X, np.ones(X.shape[0]))
            batches = (data.batch(fitted.model, rows) for rows in data.list_batches())
            posteriors = [
                infer_activations(fitted.model, batch, fitted.stats, workers.run)
                for batch in batches
            ]
        # Concatenate each field over the batches.
        return ActivationPosterior(*map(np.concatenate, zip(*posteriors, strict=True)))

    # The score is the weighted mean of `score_samples`, as for mixtures. `MixtureEstimator` is not
    # a base, because its other methods assign each row to a single component.
    score = MixtureEstimator.score
    _compute_score_sums = MixtureEstimator._compute_score_sums

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the posterior predictive.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows to draw.
        random_state : int, RandomState instance or None, default=None
            None uses the estimator's ``random_state``.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The drawn rows.
        activations : ndarray of bool, shape (n_samples, n_components)
            Which components are on in each row.
        """
        fitted = self._require_fitted()
        n_samples = require_positive_int("n_samples", n_samples)
        rng = self._make_draw_rng(random_state)
        return fitted.model.sample(fitted.stats, n_samples, rng)


def _make_policy(temperature, model):
    """Return the policy of the parameter ``temperature``.

    The model determines the initial temperature of "annealed". Other named policies get a maximum.
    """
    if temperature == "annealed":
        initial = min(max(1.0, SHARE_OF_CRITICAL * model.critical_temperature), MAX_INITIAL_T)
        return LinearAnnealing(initial_temperature=initial, replication=1.0)
    policy = make_policy(temperature)
    if isinstance(temperature, str):
        policy.set_params(max_temperature=MAX_LEARNED_T, replication=1.0)
    return policy
