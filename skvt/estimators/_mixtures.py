"""What all mixtures show: components found, labels, densities, draws."""

from dataclasses import asdict

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from skvt.estimators._base import ROWS_PER_BATCH, VariationalEstimator, _attribute_of_fit
from skvt.expfam import JointPosterior, Posterior
from skvt.inference import (
    MemoizedInference,
    Rows,
    StochasticInference,
    Workers,
    evaluate_bound,
    local_results,
)
from skvt.inference._loop import Stopping
from skvt.models._mixture import Mixture, StickBreaking
from skvt.moves import Birth, Delete, Merge

# Rows of a batch where the user does not say: about ten batches within this range.
SMALLEST_BATCH, LARGEST_BATCH = 1_000, 50_000


class MixtureEstimator(DensityMixin, VariationalEstimator):
    """Base of the mixtures: rows in, responsibilities and densities out."""

    # ----------------------------------------------------------------------- for subclasses
    _allows_missing = False

    def _build_component(self, X, weights):
        """The component's likelihood and prior for rows like X."""
        raise NotImplementedError

    # --------------------------------------------------------------------------- validation
    def _validate_rows(self, X, *, reset):
        missing = self._allows_missing if reset else self._fitted.model.component.missing
        X = validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32] if reset else self._fitted.model.dtype,
            ensure_all_finite="allow-nan" if missing else True,
        )
        if reset and X.shape[0] < self.n_components:
            raise ValueError(
                f"n_components={self.n_components} is more than n_samples={X.shape[0]}: each "
                "component starts with a row. Lower n_components; births add more where needed."
            )
        return X

    def _check_parameters(self):
        """Raise ValueError for what the single parameters' ranges do not say."""
        if self.n_batches is not None and self.batch_size is not None:
            raise ValueError(
                f"Give n_batches or batch_size, not both. Got n_batches={self.n_batches} and "
                f"batch_size={self.batch_size}."
            )
        if self.max_components < self.n_components:
            raise ValueError(
                f"The 'max_components' parameter must be in the range [n_components, inf) = "
                f"[{self.n_components}, inf). Got {self.max_components} instead."
            )
        unknown = [move for move in self.moves if move not in ("birth", "merge", "delete")]
        if unknown:
            raise ValueError(
                "The 'moves' parameter must be a tuple of 'birth', 'merge' and 'delete', or () for "
                f"none. Got {unknown[0]!r} in it."
            )

    # -------------------------------------------------------------------------------- model
    def _build_model(self, X, weights):
        self._check_parameters()
        alpha = self.weight_concentration_prior
        return Mixture(
            StickBreaking(1.0 if alpha is None else float(alpha)),
            self._build_component(X, weights),
            n_initial=self.n_components,
            init_params=self.init_params,
        )

    def _continued_model(self, X, weights):
        self._check_parameters()
        model = self._fitted.model
        if self.n_components != model.n_initial:
            raise ValueError(
                f"A warm start goes on with the components fitted before, which began with "
                f"n_components={model.n_initial}. Got n_components={self.n_components}; set "
                "warm_start=False to start anew."
            )
        return model

    def _rows(self, X, weights):
        n_rows = X.shape[0]
        if self.n_batches is not None and self.n_batches > n_rows:
            raise ValueError(
                f"The 'n_batches' parameter must be in the range [1, n_samples] = [1, {n_rows}]. "
                f"Got {self.n_batches} instead."
            )
        return Rows(X, weights, self._minibatch_size(n_rows))

    def _minibatch_size(self, n_rows):
        if self.algorithm == "full":
            return n_rows
        if self.n_batches is not None:
            return -(-n_rows // self.n_batches)
        if self.batch_size is not None:
            return min(self.batch_size, n_rows)
        return min(n_rows, int(np.clip(-(-n_rows // 10), SMALLEST_BATCH, LARGEST_BATCH)))

    def _engine(self):
        if self.algorithm == "stochastic":
            return StochasticInference(self._learning_rate())
        # deletes before merges, so that rows of a component that fades go each where they belong
        makers = {
            "delete": Delete,
            "merge": Merge,
            "birth": lambda: Birth(self.max_components),
        }
        return MemoizedInference([make() for name, make in makers.items() if name in self.moves])

    def _stopping(self, data):
        """tol is in nats per row."""

        def gain(previous, current):
            return (current - previous) / data.total

        return Stopping(self.max_iter, self.evaluate_every, self.tol, gain)

    def _publish(self):
        state = self._fitted.state
        log = [asdict(record) for record in state.move_log]
        names = ("n_iter", "move", "proposed", "accepted", "gain")
        self.move_log_ = {name: [record[name] for record in log] for name in names}
        self.weight_concentration_prior_ = self._fitted.model.weights.concentration

    def _go_on(self, fitted, X, weights, workers, *, batch_id=None):
        """A batch of a stream: stochastic steps, or its memo with births and merges."""
        if self.algorithm == "stochastic":
            super()._go_on(fitted, X, weights, workers)
            return
        memos = fitted.state.memos
        if batch_id is None:
            batch_id = len(memos)
            while batch_id in memos:
                batch_id += 1
        batch = fitted.model.batch(X, np.arange(X.shape[0]), weights)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng([seed, fitted.state.n_steps])
        state, total = fitted.state, self.total_samples
        self._engine().go_on(
            fitted.model, batch, batch_id, total, state, fitted.policy, workers, rng
        )
        fitted.n_rows = memos.total().weight

    # --------------------------------------------------------------------------- attributes
    def _of_fit(self, name):
        return _attribute_of_fit(self, name)

    @property
    def n_components_(self):
        """Number of components K."""
        fitted = self._of_fit("n_components_")
        return fitted.model.size(fitted.stats)

    @property
    def weights_(self):
        """Expected weights, normalised, shape (K,)."""
        fitted = self._of_fit("weights_")
        weights = fitted.model.weights.mean(fitted.lam()[0])
        return (weights / weights.sum()).astype(fitted.model.dtype)

    @property
    def weight_concentration_(self):
        """Parameters of the sticks' q, a pair of (K,)."""
        return tuple(self._of_fit("weight_concentration_").lam()[0].T)

    @property
    def lower_bound_(self):
        """``elbo_``, under scikit-learn's name."""
        self._of_fit("lower_bound_")
        return self.elbo_

    @property
    def lower_bounds_(self):
        """``history_["elbo"]``, under scikit-learn's name."""
        self._of_fit("lower_bounds_")
        return self.history_["elbo"]

    @property
    def posterior_(self):
        """The posterior q of the sticks and the components, in the coordinates of the data."""
        fitted = self._of_fit("posterior_")
        model, (sticks, components) = fitted.model, fitted.lam()
        return JointPosterior(
            weights=Posterior(model.weights.family, sticks),
            components=Posterior(model.component.family, model.component.uncentred(components)),
        )

    # --------------------------------------------------------------------------- inference
    def _responsibilities(self, X):
        fitted = self._require_fitted()
        X = self._validate_rows(X, reset=False)
        model = fitted.model
        data = Rows(X, np.ones(X.shape[0]), ROWS_PER_BATCH)
        g = model.expectation(fitted.stats, None, None)
        with Workers(self.n_jobs) as workers:
            results = local_results(model, lambda batch: g, data, workers)
            return np.concatenate([result.q for _, result in results])

    def predict(self, X):
        """Most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of int, shape (n_samples,)
            Numbers of components, from 0.
        """
        return self._responsibilities(X).argmax(axis=1)

    def predict_proba(self, X):
        """Probability q(z_n = k) of each component for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, K)
            Each row sums to 1.
        """
        return self._responsibilities(X)

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit to X, then predict the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            As in ``fit``.

        Returns
        -------
        ndarray of int, shape (n_samples,)
            Numbers of components, from 0.
        """
        return self.fit(X, y, sample_weight=sample_weight).predict(X)

    def score_samples(self, X):
        """Log posterior predictive density of each row.

        ``log(sum_k E[w_k] p(x | rows of k) + E[w_new] p(x | prior))``, exact under q: parameters
        are integrated out, and a component not yet seen has its share.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Nats.
        """
        fitted = self._require_fitted()
        X = self._validate_rows(X, reset=False)
        with Workers(self.n_jobs) as workers:
            return fitted.model.log_predictive(X, fitted.stats, workers.run)

    def score(self, X, y=None):
        """Mean log posterior predictive density. Higher is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : ignored
            Not used.

        Returns
        -------
        float
            Nats per row.
        """
        return float(self.score_samples(X).mean())

    def elbo(self, X):
        """Evidence lower bound of X in nats, every constant included.

        X is taken for the whole data set: the divergence of the globals is subtracted once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        float
            Nats for all of X.
        """
        fitted = self._require_fitted()
        X = self._validate_rows(X, reset=False)
        with Workers(self.n_jobs) as workers:
            data = Rows(X, np.ones(X.shape[0]), ROWS_PER_BATCH)
            return evaluate_bound(fitted.model, fitted.stats, data, workers)

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the posterior predictive of the components in use.

        Parameters
        ----------
        n_samples : int, default=1
            Rows to draw.
        random_state : int, RandomState instance or None, default=None
            None uses the estimator's own.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows drawn.
        y : ndarray of int, shape (n_samples,)
            Component of each row, in ascending order as in scikit-learn.
        """
        fitted = self._require_fitted()
        if n_samples < 1:
            raise ValueError(f"n_samples must be in the range [1, inf). Got {n_samples} instead.")
        given = self.random_state if random_state is None else random_state
        seed = check_random_state(given).randint(np.iinfo(np.int32).max)
        rng, weights = np.random.default_rng(seed), self.weights_.astype(np.float64)
        numbers = rng.multinomial(n_samples, weights / weights.sum())
        component, lam = fitted.model.component, fitted.lam()[1]
        rows = [component.sample(lam[k], n, rng) for k, n in enumerate(numbers) if n > 0]
        X = np.concatenate(rows).astype(fitted.model.dtype, copy=False)
        return X, np.repeat(np.arange(numbers.size), numbers)

    def sample_mixtures(self, n_samples=1, random_state=None):
        """Draw whole mixtures from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            Mixtures to draw.
        random_state : int, RandomState instance or None, default=None
            None uses the estimator's own.

        Returns
        -------
        dict
            "weights", shape (n_samples, K), where what lacks to 1 is the mass of components not
            yet seen; and "components", the parameters of each component as
            ``posterior_.components`` draws them: means and precisions of Gaussians.
        """
        fitted = self._require_fitted()
        given = self.random_state if random_state is None else random_state
        draws = self.posterior_.sample(n_samples, given)
        return draws | {"weights": fitted.model.weights.lengths(draws["weights"])}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allows_missing
        return tags
