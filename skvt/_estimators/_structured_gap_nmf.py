"""The estimator of Poisson factorisation that determines its rank, by structured inference.

The mathematics is in :mod:`skvt.models.gap_nmf`, and structured inference in
:mod:`skvt.inference`. A structured pass draws the components, and an ascent pass is a pass of
coordinate ascent on the mean-field bound. A round is a series of structured passes. Ascent passes
follow each round.
"""

import warnings
from dataclasses import KW_ONLY
from itertools import pairwise
from math import ceil
from typing import Annotated

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from skvt._results import SumsMixin, make_components_table
from skvt._sklearn_private import StrOptions
from skvt.expfam import Gamma
from skvt.files import in_files
from skvt.fitting import (
    AT_LEAST_ONE,
    FRACTION,
    POSITIVE,
    Temperature,
    VariationalEstimator,
    estimator,
    fitted_property,
    make_policy,
    model_property,
)
from skvt.inference import (
    ROWS_PER_BATCH,
    CoordinateAscent,
    Phase,
    Pilot,
    Plan,
    StochasticInference,
    Stopping,
    StreamPlan,
    StructuredInference,
    Workers,
    iterate_local_results,
    make_ascent_phases,
    make_rows,
)
from skvt.models.gap_nmf import GaPNMF, sum_columns
from skvt.posterior import JointPosterior, Posterior
from skvt.readers import CountReader
from skvt.readers.chunks import apply_by_chunk, sum_over_rows
from skvt.readers.validation import find_stack_level, require_prior
from skvt.rows import sums_of_rows
from skvt.schedules import RobbinsMonro

# Number of rounds of a fit to all rows at once; a fit to minibatches has one round.
N_ROUNDS = 5
# Minimum number of structured passes in a round. If N_ROUNDS rounds would be shorter, there is a
# single round.
MIN_PASSES_OF_ROUND = 20
# Share of the ascent passes that are between rounds; all other ascent passes are at the end.
SHARE_BETWEEN_ROUNDS = 1 / 3
# A fit warns if magnitudes, which are no counts, have a smaller mean.
MIN_MEAN = 0.1


# The decorator `estimator` replaces the lines ".. shared:" by texts of `skvt.fitting._texts`.
@in_files("estimators.StructuredGaPNMF", fitted={"model": (GaPNMF,)})
@estimator
class StructuredGaPNMF(SumsMixin, VariationalEstimator):
    """Nonnegative matrix factorisation that determines its rank.

    This is a Bayesian counterpart of :class:`sklearn.decomposition.NMF` with the Kullback-Leibler
    loss: ``X ~ Poisson(H diag(weights) W)`` with gamma priors. The prior of the weights
    approximates a gamma process, so that the weights of unneeded components vanish [1]_.

    Mean-field inference keeps too few components, each a mixture of several true components.
    Structured inference draws the components in each step, solves the rows given the draw [2]_, and
    finds most true components. Rows are samples, such as frames of a spectrogram. X is therefore
    the transpose of the papers' matrix: their W (bins x components) is ``components_.T``, and their
    H is ``transform(X).T``.

    Parameters
    ----------
    n_components : int, default=100
        Truncation K: an upper bound on the number of components.
    component_shape : float, default=0.25
        Shape a of the gamma prior of an entry of a component. The rate is also a, so that the mean
        is 1. Small values make sparse components.
    activation_shape : float, default=0.2
        Shape b of the gamma prior of an activation. The rate is also b, so that the mean is 1.
        Small values are for rows in which few components are active.
    weight_concentration_prior : float, default=1.0
        Concentration alpha of the gamma process; larger values favour more components.
    data_mean_prior : float or None, default=None
        Prior mean of an entry of X, 1 / c in the papers. None is the mean of the data.
    local_step : {"gibbs", "mean_field"}, default="gibbs"
        Local step of a row given the global parameters. "gibbs" alternates between the expected
        allocation of the row's counts to components given its activations, and a draw of the
        activations given this allocation.
    global_step : {"ssvi-a", "mean_field"}, default="ssvi-a"
        Global parameters on which local steps are conditioned. "ssvi-a" draws the components from
        q, and "mean_field" takes expectations. If both steps are "mean_field", inference is plain
        mean field.
    .. shared: n_burn_in, n_samples
    n_local_iter : int, default=1
        Number of mean-field updates of a row in a mean-field pass of ``fit``, such as a pass of
        coordinate ascent. They start from the row's activations after the previous pass.
    polish : float, default=0.25
        Share of the passes that are coordinate ascent of the mean-field bound. These ascent passes
        remove unneeded components that the noise of draws keeps alive. The other passes are
        structured, and draw components. With ``learning_method="batch"`` and at least 100
        structured passes, structured passes are divided into five rounds. A third of the ascent
        passes come between rounds, so that later rounds have fewer components. All other ascent
        passes come at the end. The parameter has no effect on mean-field inference or
        ``partial_fit``.
    temperature : None, str or policy, default=None
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name. The
        temperature applies to the likelihood. Policies that learn the temperature are refused.
    learning_method : {"batch", "online"}, default="batch"
        How the posterior q is found. "batch": steps of size 1 on all rows at once. "online": steps
        on minibatches.
    .. shared: learning_decay (factors), learning_offset, max_iter, batch_size, n_parallel_batches
    evaluate_every : int, default=-1
        Number of passes between evaluations of the bound on all data; 0 or a negative number means
        never. It is the mean-field bound. A structured step gives no bound: ``history_["elbo"]`` is
        NaN in structured passes without an evaluation.
    tol : float, default=1e-3
        Converged when the bound gains less than this from one evaluation to the next, in nats per
        row. Convergence is not judged while T > 1, nor in structured passes. Where bounds are
        evaluated, there is a :class:`~sklearn.exceptions.ConvergenceWarning` if ``max_iter`` passes
        do not suffice.
    .. shared: total_samples
    mean_change_tol : float, default=1e-3
        A row solved from scratch (in ``transform``, ``score``, ``elbo``, ``partial_fit``) has
        converged when the counts allocated to a component change by less than this on average.
    max_local_iter : int, default=200
        Maximum number of mean-field updates of a row solved from scratch.
    .. shared: n_init, warm_start, n_jobs, verbose, verbose_interval, random_state

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        ``E[weight] E[W]`` of each component: X is about ``transform(X) @ components_``. It is close
        to 0 for components that are not active.
    weights_ : ndarray of shape (n_components,)
        Expected weights theta.
    n_active_components_ : int
        Number of components to which at least a thousandth of the data is expected to belong. A
        thousandth of the data is a thousandth of the sum of X.
    n_components_ : int
        Number of components K. It is the truncation ``n_components``.
    data_mean_prior_ : float
        Prior mean of an entry of X: the given one, or the mean of the data.
    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "weights" and "components" (W).
    elbo_ : float
        Evidence lower bound of the training data in nats, every constant included. It is the
        mean-field bound at the final components, with each row solved from scratch. Not available
        after ``partial_fit``, see ``elbo``.
    .. shared: history_
        "objective" is the tempered bound. In structured passes it is the log likelihood at the last
        draws minus the divergence of the components, which is not a bound. "n_components" is the
        number of active components.
    .. shared: restart_elbos_, converged_, n_iter_, n_batch_iter_, temperature_, n_features_in_
    .. shared: feature_names_in_, words_

    See Also
    --------
    sklearn.decomposition.NMF : Point estimates at a given rank.

    Notes
    -----
    X may hold any non-negative numbers, as for the Kullback-Leibler loss. ELBO and ``score`` then
    have log Gamma(x + 1), a constant of the data, in the place of log x!. They can be compared
    between fits to the same data, but are not log probabilities. NaN are missing values and are
    integrated out. The model expects noise whose variance is the mean. More components are active
    if X is multiplied by a large number; scale magnitudes so that their mean is about 0.5.

    ``fit`` keeps the activations of all rows from pass to pass, ``X.shape[0] * n_components``
    numbers. CSR matrices are processed in dense blocks of rows, so that memory stays small, but
    zeros cost time.

    References
    ----------
    .. [1] M. Hoffman, D. Blei, P. Cook (2010). Bayesian nonparametric matrix factorization for
       recorded music. ICML.
    .. [2] M. Hoffman, D. Blei (2015). Structured stochastic variational inference. AISTATS.

    Examples
    --------
    >>> from skvt import StructuredGaPNMF
    >>> from skvt.datasets import make_spectrogram
    >>> X = make_spectrogram(150, n_components=4, n_features=40, random_state=0).X
    >>> nmf = StructuredGaPNMF(12, random_state=0).fit(X)
    >>> nmf.n_active_components_ < 8
    True
    >>> nmf.transform(X[:2]).shape
    (2, 12)
    """

    _reader_class = CountReader

    n_components: int = 100
    _: KW_ONLY
    component_shape: Annotated[float, POSITIVE] = 0.25
    activation_shape: Annotated[float, POSITIVE] = 0.2
    weight_concentration_prior: Annotated[float, POSITIVE] = 1.0
    data_mean_prior: Annotated[float | None, None, POSITIVE] = None
    local_step: Annotated[str, StrOptions({"gibbs", "mean_field"})] = "gibbs"
    global_step: Annotated[str, StrOptions({"ssvi-a", "mean_field"})] = "ssvi-a"
    n_burn_in: int = 2
    n_samples: int = 2
    n_local_iter: Annotated[int, AT_LEAST_ONE] = 1
    polish: Annotated[float, FRACTION] = 0.25
    temperature: Temperature = None
    learning_method: str = "batch"
    learning_decay: float = 0.7
    learning_offset: float = 10.0
    max_iter: int = 1000
    batch_size: int = 256
    n_parallel_batches: int | None = None
    evaluate_every: int = -1
    tol: float = 1e-3
    total_samples: float | None = None
    mean_change_tol: float = 1e-3
    max_local_iter: Annotated[int, AT_LEAST_ONE] = 200

    # -------------------------------------------------------------------------------- model
    def _build_model(self, X, weights, old=None):
        """Build the model; a default prior mean continues from its value in the ``old`` model."""
        for name in ("component_shape", "activation_shape", "weight_concentration_prior"):
            require_prior(name, getattr(self, name))
        data_mean = self.data_mean_prior
        if data_mean is not None:
            require_prior("data_mean_prior", data_mean)
        elif old is not None:
            data_mean = old.data_mean_prior
        else:
            counts, n_observed = sums_of_rows(X, weights, sum_columns)
            # If all counts are 0, any mean is legal.
            data_mean = counts.sum() / n_observed.sum() if counts.any() else 1.0
            # Sums of counts are whole, unless weights are not.
            is_whole = [not (sums % 1.0).any() for sums in (counts, n_observed)]
            if data_mean < MIN_MEAN and is_whole == [False, True]:
                warnings.warn(
                    f"The mean of X is {data_mean:.2g}, and its numbers are no counts. The unit of "
                    "X decides how many components stay, and in this unit too few may stay. Fit "
                    "X * (0.5 / X.mean()) instead, and compare the number at half and at twice "
                    "this scale.",
                    UserWarning,
                    stacklevel=find_stack_level(),
                )
        return GaPNMF(
            n_components=self.n_components, n_features=X.shape[1],
            component_shape=float(self.component_shape),
            activation_shape=float(self.activation_shape),
            weight_concentration=float(self.weight_concentration_prior),
            data_mean_prior=float(data_mean), local=self.local_step, n_burn_in=self.n_burn_in,
            n_samples=self.n_samples, n_local_iter=self.n_local_iter,
            max_local_iter=self.max_local_iter, mean_change_tol=self.mean_change_tol,
            dtype=X.dtype.type,
        )  # fmt: skip

    def _plan(self, model, X, weights, *, stream=False):
        """Return the plan of a fit: batches, phases with engines, and first activations of rows."""
        uses_minibatches = stream or self.learning_method == "online"
        minibatches = make_rows(X, weights, self.batch_size, self.n_parallel_batches)
        data = minibatches
        if not uses_minibatches:
            data = make_rows(X, weights, X.shape[0], self.n_parallel_batches)
        decaying_steps = RobbinsMonro(self.learning_offset, self.learning_decay)
        # The activations from which the first local step of each row starts; None for defaults.
        row_starts = None
        if not stream:
            # A new fit starts from equal activations. A row that is solved from scratch under the
            # random initial components would keep only a few of the components. In a fit that
            # continues, NaN means that rows are solved from scratch.
            activation = np.nan if self._is_warm_start() else 1.0
            row_starts = np.full((X.shape[0], self.n_components), activation, X.dtype)
        return Plan(
            data=data,
            phases=self._make_phases(decaying_steps, uses_minibatches, stream=stream),
            policy=make_policy(self.temperature),
            stopping=Stopping(self.max_iter, self.evaluate_every, self.tol),
            # Every plan has a pilot, the short fit that calibrates a learned temperature.
            pilot=Pilot(decaying_steps, minibatches),
            row_starts=row_starts,
            stream=StreamPlan(self.total_samples),
        )

    def _make_phases(self, decaying_steps, uses_minibatches, *, stream):
        """Return the phases of a fit or of a call of ``partial_fit``.

        ``decaying_steps`` is the schedule of step sizes for minibatches.
        """
        if self.local_step == self.global_step == "mean_field":
            if uses_minibatches:
                return (Phase(StochasticInference(decaying_steps)),)
            return (Phase(CoordinateAscent()),)
        # On all rows at once, steps have size 1, because their decay is 0.
        step_sizes = decaying_steps if uses_minibatches else RobbinsMonro(offset=1.0, decay=0.0)
        engine = StructuredInference(step_sizes, self.global_step)
        if stream:
            return (Phase(engine),)
        n_rounds = 1 if uses_minibatches else N_ROUNDS
        n_passes_first_round, later_rounds = self._divide_into_rounds(n_rounds)
        # The first phase ends when the first phase of coordinate ascent begins, that is, after
        # ``n_passes_first_round`` passes.
        return Phase(engine), *make_ascent_phases(engine, n_passes_first_round, later_rounds)

    def _divide_into_rounds(self, n_rounds):
        """Return the number of structured passes of the first round, and a list for later rounds.

        The list has a pair for each later round: the number of ascent passes before the round, and
        the number of structured passes of the round. If the rounds would be too short, the first
        round has all structured passes, and the list is empty.
        """
        n_structured = ceil((1.0 - self.polish) * self.max_iter)
        if n_structured < MIN_PASSES_OF_ROUND * n_rounds:
            return n_structured, []
        n_between = SHARE_BETWEEN_ROUNDS * (self.max_iter - n_structured)
        n_before_round = int(n_between / max(1, n_rounds - 1))
        # Structured passes are divided into rounds of equal length, up to rounding.
        round_ends = [n_structured * i // n_rounds for i in range(n_rounds + 1)]
        n_passes_first_round, *n_passes_later = [end - start for start, end in pairwise(round_ends)]
        return n_passes_first_round, [(n_before_round, n_passes) for n_passes in n_passes_later]

    # --------------------------------------------------------------------------- attributes
    data_mean_prior_ = model_property(
        "data_mean_prior",
        "Prior mean of an entry of X: the given one, or the mean of the rows of the fit.",
    )
    n_components_ = model_property("n_components", "Number of components K of the fit.")

    @fitted_property
    def components_(self, fitted):
        """``E[weight] E[W]`` of each component, shape (n_components, n_features)."""
        weights, components = map(Gamma.mean, fitted.lam())
        return (weights[:, None] * components).astype(fitted.model.dtype)

    @fitted_property
    def weights_(self, fitted):
        """Expected weight of each component, shape (n_components,)."""
        weights, _ = fitted.lam()
        return Gamma.mean(weights).astype(fitted.model.dtype)

    def _result_for_display(self):
        shares = self.weights_ / self.weights_.sum()
        return make_components_table(self, "share of weights", shares, self.components_)

    @fitted_property
    def n_active_components_(self, fitted):
        """Number of components that are expected to have a thousandth of the sum of X or more."""
        return fitted.model.size(fitted.stats)

    @fitted_property
    def posterior_(self, fitted):
        """The posterior q of the weights and of W, a :class:`~skvt.posterior.JointPosterior`."""
        weights, components = fitted.lam()
        return JointPosterior(
            weights=Posterior(Gamma, weights), components=Posterior(Gamma, components)
        )

    # --------------------------------------------------------------------------- inference
    # For rows of Dask, the lambda returns the number of columns and the dtype of the result.
    @apply_by_chunk(lambda self: (self._fitted.model.n_components, self._fitted.model.dtype))
    def transform(self, X):
        """Return the expected activations of each row, by mean field at T = 1.

        They are deterministic and, up to rounding, do not depend on the other rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            E[H], so that X is about ``transform(X) @ components_``. A component without weight has
            the mean of its prior, about 1, in each row, which says nothing about the row. Multiply
            by ``weights_`` to compare components.
        """
        fitted = self._require_fitted()
        X = self._read(X)
        with Workers(self.n_jobs) as workers:
            return _compute_activations(fitted, X, workers)

    def score(self, X, y=None, sample_weight=None):
        """Return the log predictive probability of hidden entries, in nats per entry.

        Higher is better. Even columns are predicted from the odd columns of the same row, and odd
        columns from even columns, so that each entry is predicted once. The prediction is the
        Poisson distribution whose rate is the posterior mean, ``E[H | observed columns] @
        components_``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Missing entries are neither used nor predicted.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts w times.

        Returns
        -------
        float
            Nats per entry.
        """
        # Sum the results of `_compute_score_sums` over all chunks of X.
        log_probability, n_entries = sum_over_rows(self, X, sample_weight)
        if n_entries == 0:
            raise ValueError(
                "X has no entry to predict: all entries are missing. Pass at least one observed "
                "entry."
            )
        return log_probability / n_entries

    def _compute_score_sums(self, X, weights):
        """Return the log probability of the observed entries of X in nats, and their number.

        An entry of a row of weight w counts w times. Even columns are predicted from the odd
        columns of the row, and odd columns from even columns. `sum_over_rows` calls this method for
        each chunk of rows.
        """
        log_probability, n_entries = 0.0, 0
        components = self.components_
        with Workers(self.n_jobs) as workers:
            for start in range(0, X.shape[0], ROWS_PER_BATCH):
                rows = X[start : start + ROWS_PER_BATCH]
                rows = rows.toarray() if sp.issparse(rows) else rows
                weights_of_rows = weights[start : start + ROWS_PER_BATCH]
                # Parity 0 hides the even columns, and parity 1 the odd columns. A single column has
                # parity 0.
                for parity in range(min(2, X.shape[1])):
                    hidden = rows[:, parity::2]
                    observed = rows.copy()
                    observed[:, parity::2] = np.nan
                    activations = _compute_activations(self._fitted, observed, workers)
                    is_known = ~np.isnan(hidden)
                    counts = hidden[is_known].astype(np.float64)
                    rates = (activations @ components[:, parity::2])[is_known]
                    entry_weights = np.repeat(weights_of_rows, is_known.sum(axis=1))
                    # The log density of a Poisson distribution.
                    log_density = xlogy(counts, rates) - rates - gammaln(counts + 1.0)
                    log_probability += float(np.sum(entry_weights * log_density))
                    n_entries += float(entry_weights.sum())
        return log_probability, n_entries


def _compute_activations(fitted, X, workers):
    """Return E[H] of each row of X by mean field at T = 1, shape (n, K)."""
    data = make_rows(X, np.ones(X.shape[0]))
    model = fitted.model.mean_field()
    global_params = model.compute_expected_spectra(*fitted.lam())
    results = iterate_local_results(model, lambda batch: global_params, data, workers)
    # The parameters q of a local result of mean field are E[H] in this model.
    return np.concatenate([result.q for _, result in results])
