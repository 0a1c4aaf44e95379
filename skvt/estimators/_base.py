"""The walk of every estimator: validate -> build collaborators -> run -> publish."""

from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvt.estimators._mixins import ELBOTrackingMixin, LearningRateMixin, TemperatureMixin
from skvt.estimators._sklearn_private import check_sample_weight
from skvt.inference import (
    CoordinateAscent,
    History,
    Rows,
    State,
    StochasticInference,
    Workers,
    evaluate_bound,
    fit_loop,
    one_blas_thread,
    pilot_energies,
)
from skvt.inference._bound import LocalTotals
from skvt.inference._loop import Stopping
from skvt.monitoring import FitMonitor
from skvt.temperature._base import FitPlan

# What a stream begun by partial_fit stands for unless the user says; scikit-learn's number.
STREAM_ROWS = 1e6
# Rows of a batch where the division is not the user's: full-data sweeps, evaluation, transform.
ROWS_PER_BATCH = 2048


@dataclass
class Fitted:
    """What a fit leaves behind: the model with its priors, the state, the running policy.

    ``n_rows`` is the weight of the rows the state stands for: those of ``fit`` and all since
    (``counts_rows``), or what a stream is taken for. ``assignments`` (n, K) are the q(z) of the
    rows of the last call, where the estimator shows them.
    """

    model: object
    state: State
    policy: object
    n_rows: float
    counts_rows: bool = True
    assignments: np.ndarray | None = None
    cache: dict = field(default_factory=dict)

    @property
    def stats(self):
        """Statistics as they are published: every row counted once, however hot the fit is."""
        return self.state.plain_stats

    def lam(self):
        """Natural parameters of q(beta), computed once for each state."""
        if self.cache.get("step") != self.state.n_steps:
            self.cache.clear()
            self.cache["step"] = self.state.n_steps
            self.cache["lam"] = self.model.natural_parameters(self.stats)
            for lam in self.cache["lam"]:
                lam.flags.writeable = False
        return self.cache["lam"]

    def snapshot(self):
        """An independent copy."""
        state = replace(
            self.state,
            stats=self.state.stats.copy(),
            prior_stats=copy(self.state.prior_stats),
            memos=copy(self.state.memos),
            starts=None,
            move_log=list(self.state.move_log),
        )
        return replace(self, state=state, policy=deepcopy(self.policy), cache={})

    def __getstate__(self):
        return self.__dict__ | {"cache": {}}


class VariationalEstimator(
    TemperatureMixin, LearningRateMixin, ELBOTrackingMixin, CallbackSupportMixin, BaseEstimator
):
    """Base of all estimators.

    A subclass validates its rows (``_validate_rows``), builds its model (``_build_model``) and
    names its published attributes (``_publish``).
    """

    # ----------------------------------------------------------------------- for subclasses
    def _validate_rows(self, X, *, reset):
        """X as the model takes it; raises on anything illegal."""
        raise NotImplementedError

    def _build_model(self, X, weights):
        """The model for rows like X."""
        raise NotImplementedError

    def _continued_model(self, X, weights):
        """The model of a warm start: this one's parameters, what was fitted before."""
        raise NotImplementedError

    def _rows(self, X, weights):
        """The data, divided into the batches of the engine."""
        online = self.learning_method == "online"
        return Rows(X, weights, self.batch_size if online else ROWS_PER_BATCH)

    def _minibatch_size(self, n_rows):
        """Rows of a step of stochastic inference."""
        return self.batch_size

    def _engine(self, n_batches):
        """The engine of a ``fit`` whose passes have so many minibatches."""
        if self.learning_method == "online":
            return self._stochastic_engine(n_batches)
        return CoordinateAscent()

    def _stochastic_engine(self, n_batches=None):
        """The engine of minibatches, of ``partial_fit`` among others; None is a stream."""
        return StochasticInference(self._learning_rate(n_batches))

    def _n_units(self, X, weights):
        """Weight of all local likelihoods."""
        return float(weights.sum())

    def _stopping(self, data):
        """When to evaluate and to stop."""
        return Stopping(self.max_iter, self.evaluate_every, self.tol)

    def _starts(self, data):
        """Where the first local step of each row begins; None where each begins anew."""
        return None

    def _publish(self):
        """Set attributes that depend on the fitted model."""

    # --------------------------------------------------------------------------------- fit
    def _fit(self, X, y, sample_weight):
        """``fit`` of every estimator, after scikit-learn's parameter validation."""
        raw = X
        with self._all_or_nothing():
            X = self._validate_rows(X, reset=not self._continues())
            X, weights = self._weighted_rows(X, sample_weight)
            build = self._continued_model if self._continues() else self._build_model
            with one_blas_thread():
                model = build(X, weights)
            policy = self._temperature_policy(model)
            policy.check(self._plan(model, X, weights, self.max_iter))
            random_state = check_random_state(self.random_state)
            n_init = 1 if self._continues() else self.n_init
            context = self._init_callback_context(max_subtasks=n_init * self.max_iter)
            context.call_on_fit_task_begin(estimator=self, X=raw, y=y)
            best, restart_elbos = None, []
            with Workers(self.n_jobs) as workers:
                for _ in range(n_init):
                    rng = np.random.default_rng(random_state.randint(np.iinfo(np.int32).max))
                    *run, stopped = self._run(
                        raw, y, X, weights, model, policy, rng, context, workers
                    )
                    restart_elbos.append(run[1])
                    if best is None or run[1] > best[1]:
                        best = run
                    if stopped:
                        break
            self._fitted, elbo, history, self.converged_ = best
            self.restart_elbos_ = np.array(restart_elbos)
            self.n_iter_ = len(history.n_iter)
            self._publish_bound(elbo, history)
            self._publish()
            context.call_on_fit_task_end(
                estimator=self,
                X=raw,
                y=np.zeros(np.shape(raw)[0]) if y is None else y,
                reconstruction_attributes=lambda: {},
            )
        return self

    def _run(self, raw, y, X, weights, model, policy, rng, context, workers):
        """One start: returns (Fitted, elbo, history, converged, stopped by a callback)."""
        data = self._rows(X, weights)
        engine = self._engine(data.n_batches)
        if self._continues():
            before = self._fitted.snapshot()
            state, running = before.state, before.policy
            running.resume(data.n_rows)
            state.forget_batches(data.total)
        else:
            state = State(model.initial(data, rng))
            plan = self._plan(model, X, weights, self.max_iter, rng, workers)
            running = policy.start(plan)
            state.seed = _seed(rng)
        state.starts = self._starts(data)

        def snapshot(model, state):
            fitted = Fitted(model, state, running, data.total).snapshot()
            return {"_fitted": fitted, "n_iter_": 1, "n_features_in_": X.shape[1]}

        history = History()
        monitor = FitMonitor(self, context, raw, y, snapshot, self.verbose)
        model, converged = fit_loop(
            model,
            data,
            engine,
            running,
            state,
            self._stopping(data),
            workers,
            rng,
            history,
            monitor,
        )
        if engine.exact:
            elbo = engine.conclude(model, state)
        else:
            whole = Rows(X, weights, ROWS_PER_BATCH)
            elbo = evaluate_bound(model, state.plain_stats, whole, workers)
        state.starts = None
        fitted = Fitted(model, state, running, data.total)
        return fitted, elbo, history, converged, monitor.stopped

    def _partial_fit(self, X, sample_weight, **batch):
        """``partial_fit`` of every estimator; ``batch`` is what its ``_go_on`` takes."""
        first = not hasattr(self, "_fitted")
        with self._all_or_nothing():
            X = self._validate_rows(X, reset=first)
            X, weights = self._weighted_rows(X, sample_weight)
            if first:
                self._start_stream(X, weights)
            fitted = self._fitted
            fitted.policy.resume(X.shape[0])
            with Workers(self.n_jobs) as workers, self._undone_on_failure(fitted, X):
                self._go_on(fitted, X, weights, workers, **batch)
            self._publish()
        return self

    def _go_on(self, fitted, X, weights, workers):
        """The rows of a stream in order, a step for each minibatch."""
        engine, totals = self._stochastic_engine(), LocalTotals()
        data = Rows(X, weights, self._minibatch_size(X.shape[0]))
        for batch in data.batches(fitted.model, workers):
            fitted.n_rows += float(weights[batch.rows].sum()) if fitted.counts_rows else 0.0
            total = self.total_samples or fitted.n_rows
            fitted.model = engine.step(
                fitted.model, batch, total, fitted.state, fitted.policy, workers, totals
            )
        if fitted.policy.settled:
            state = fitted.state
            fitted.model = fitted.model.with_learned_priors(state.prior_stats, state.plain_stats)

    def _start_stream(self, X, weights):
        with one_blas_thread():
            model = self._build_model(X, weights)
        random_state = check_random_state(self.random_state)
        rng = np.random.default_rng(random_state.randint(np.iinfo(np.int32).max))
        policy = self._temperature_policy(model)
        policy.check(self._plan(model, X, weights, np.inf))
        with Workers(self.n_jobs) as workers:
            running = policy.start(self._plan(model, X, weights, np.inf, rng, workers))
        state = State(model.initial(Rows(X, weights, X.shape[0]), rng))
        state.seed = _seed(rng)
        self._fitted = Fitted(model, state, running, STREAM_ROWS, counts_rows=False)
        self.n_iter_ = 1

    # ------------------------------------------------------------------------------ helpers
    def _plan(self, model, X, weights, n_passes, rng=None, workers=None):
        """What the temperature policy may know; ``n_passes`` is infinite for a stream."""
        data = Rows(X, weights, self._minibatch_size(X.shape[0]))
        rate = self._learning_rate(data.n_batches if np.isfinite(n_passes) else None)

        def pilot(replication, rows=None):
            return pilot_energies(model, data, rate, replication, workers, rng.spawn(1)[0], rows)

        return FitPlan(
            model=model,
            n_passes=n_passes,
            n_rows=data.n_rows,
            n_units=self._n_units(X, weights),
            pilot=pilot,
        )

    def _continues(self):
        return getattr(self, "warm_start", False) and hasattr(self, "_fitted")

    @staticmethod
    def _weighted_rows(X, sample_weight):
        """Rows of positive weight, and their weights as float64."""
        weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        with np.errstate(over="ignore", under="ignore"):
            as_computed = weights.astype(X.dtype)
        if np.any((as_computed == 0.0) != (weights == 0.0)) or np.isinf(as_computed).any():
            raise ValueError(
                f"sample_weight must be 0 or in the range of {X.dtype}. Got weights from "
                f"{weights.min():g} to {weights.max():g}; scale them."
            )
        used = weights > 0.0
        return (X, weights) if used.all() else (X[used], weights[used])

    @contextmanager
    def _all_or_nothing(self):
        """On any exception, an interrupt included, leave the estimator as it was before."""
        before = {name: value for name, value in vars(self).items() if _is_fitted_name(name)}
        try:
            yield
        except BaseException:
            for name in [name for name in vars(self) if _is_fitted_name(name)]:
                delattr(self, name)
            vars(self).update(before)
            raise

    @contextmanager
    def _undone_on_failure(self, fitted, X):
        """On any exception, take back the steps made in the block."""
        touched = fitted.model.touched(X)
        if touched is None:
            before, memory = fitted.snapshot(), None
        else:
            before = replace(fitted, policy=deepcopy(fitted.policy))
            before.state = replace(fitted.state, prior_stats=copy(fitted.state.prior_stats))
            memory = fitted.state.stats.remember(touched)
        try:
            yield
        except BaseException:
            if memory is not None:
                fitted.state.stats.restore(memory)
            vars(fitted).update(vars(before))
            fitted.cache.clear()
            raise

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_fitted")

    def _require_fitted(self):
        check_is_fitted(self)
        return self._fitted

    @property
    def n_batch_iter_(self):
        """Global updates made so far."""
        return _attribute_of_fit(self, "n_batch_iter_").state.n_steps


def each_entry_once(X):
    """A sparse matrix as CSR array with sorted, distinct columns in each row."""
    X = sp.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _seed(rng):
    """A seed from ``rng``, whose own stream goes on as if none had been taken."""
    return int(rng.spawn(1)[0].integers(2**63))


def _is_fitted_name(name):
    return name == "_fitted" or (name.endswith("_") and not name.startswith("_"))


def _attribute_of_fit(estimator, name):
    """The fitted state, or the AttributeError of an attribute that is not there yet."""
    try:
        return vars(estimator)["_fitted"]
    except KeyError:
        raise AttributeError(
            f"{type(estimator).__name__!r} object has no attribute {name!r} before fit."
        ) from None
