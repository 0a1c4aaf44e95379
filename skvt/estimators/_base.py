"""The walk of every estimator: validate -> build collaborators -> run -> publish."""

import time
import warnings
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import wraps

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvt.estimators._mixins import LearningRateMixin, TemperatureMixin, _attribute_of_fit
from skvt.estimators._sklearn_private import check_sample_weight, fit_context
from skvt.estimators.validation import LEGAL_RANGE, in_range, out_of_range, total_of
from skvt.inference import (
    ROWS_PER_BATCH,
    CoordinateAscent,
    Entry,
    History,
    LocalTotals,
    Rows,
    State,
    StochasticInference,
    Stopping,
    Workers,
    evaluate_bound,
    fit_loop,
    one_blas_thread,
    pilot_energies,
)
from skvt.monitoring import FitMonitor
from skvt.temperature import FitPlan
from skvt.ties import exceeds

# What a stream begun by partial_fit stands for unless the user says; scikit-learn's number.
STREAM_ROWS = 1e6


@dataclass
class Fitted:
    """What a fit leaves behind: the model with its priors, the state, the running policy.

    ``n_rows`` is the weight of the rows the state stands for: those of ``fit`` and all since
    (``counts_rows``), or what a stream is taken for. ``elbo`` is the bound of these rows; None amid
    a fit and in a stream, where it is not known. ``parameters`` are the estimator's when it last
    went on. ``assignments`` (n, K) are the q(z) of the rows of the last call, where the estimator
    shows them.
    """

    model: object
    state: State
    policy: object
    n_rows: float
    counts_rows: bool = True
    elbo: float | None = None
    history: History = field(default_factory=History)
    parameters: dict = field(default_factory=dict)
    assignments: np.ndarray | None = None
    cache: dict = field(default_factory=dict)

    @property
    def stats(self):
        """Statistics as they are published: every row counted once, however hot the fit is."""
        return self.state.plain_stats

    def lam(self):
        """Natural parameters of q(beta), computed once for each state."""
        n_steps, lam = self.cache.get("lam", (None, None))
        if n_steps != self.state.n_steps:
            lam = self.model.natural_parameters(self.stats)
            for array in lam:
                array.flags.writeable = False
            self.cache["lam"] = self.state.n_steps, lam
        return lam

    def draft(self, rows=None):
        """A copy to go on with; this one stays as it is.

        With ``rows``, for steps that change only these rows of the statistics.
        """
        state = replace(
            self.state,
            stats=self.state.stats.draft(rows),
            prior_stats=copy(self.state.prior_stats),
            memos=copy(self.state.memos),
            starts=None,
            move_log=list(self.state.move_log),
        )
        history, policy = History(self.history), deepcopy(self.policy)
        return replace(self, state=state, policy=policy, history=history, cache={})

    def __getstate__(self):
        return self.__dict__ | {"cache": {}}


def all_or_nothing(method):
    """``fit`` or ``partial_fit`` with scikit-learn's validation; the estimator changes at its end.

    The method works on a twin: what it sets, at whatever depth, the estimator takes over in one
    assignment. An exception, which an interrupt can raise anywhere, leaves it as it was. What the
    twin shares with it is therefore never written to, see :meth:`Fitted.draft`.
    """
    validated = fit_context(prefer_skip_nested_validation=True)(method)

    @wraps(method)
    def on_a_twin(self, *args, **kwargs):
        before = dict(vars(self))
        twin = object.__new__(type(self))
        vars(twin).update(before)
        try:
            validated(twin, *args, **kwargs)
        except np.linalg.LinAlgError as error:
            raise out_of_range(error) from error
        after = vars(twin)
        kept = {name: value for name, value in vars(self).items()
                if name in after or name not in before}  # fmt: skip
        new = {name: value for name, value in after.items()
               if name not in before or value is not before[name]}  # fmt: skip
        changed = kept | new
        # nothing that an interrupt could follow: it comes between an assignment and a call at most
        self.__dict__ = changed
        return self

    return on_a_twin


class VariationalEstimator(
    TemperatureMixin, LearningRateMixin, CallbackSupportMixin, BaseEstimator
):
    """Base of all estimators.

    A subclass validates its rows (``_validate_rows``), builds its model (``_build_model``) and
    names its published attributes (``_publish``).
    """

    # Passes of which a policy takes its share where the fit may stop on convergence: max_iter is
    # then a limit, and a share of it would keep a fit hot that has long nothing more to learn.
    _planned_passes = 20.0

    # What a model is made of, and a running one may take on (``_continued_model``).
    _model_parameters = ()
    # What a running model cannot take on, and what a stream cannot.
    _fixed_parameters = ("n_components",)
    _fixed_in_streams = ()
    # Whether scikit-learn's twin warns where max_iter ends a fit that has not converged.
    _warns_unconverged = True
    # Whether X holds counts, or other non-negative numbers.
    _of_counts = False

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
        if self._continues():
            self._fitted = replace(self._fitted, cache={})  # models may replace parts of it
            remedy = "set warm_start=False to start anew"
            self._refuse_changes("A warm start", self._fixed_parameters, remedy)
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
                *run, stopped = self._run(raw, y, X, weights, model, policy, rng, context, workers)
                restart_elbos.append(run[0].elbo)
                # of starts that end in the same optimum the first
                if best is None or exceeds(run[0].elbo, best[0].elbo, dtype=X.dtype):
                    best = run
                if stopped:
                    break
        self._fitted, self.converged_ = best
        self.restart_elbos_ = np.array(restart_elbos)
        self.n_iter_ = len(self._fitted.history)
        self._publish()
        context.call_on_fit_task_end(
            estimator=self,
            X=raw,
            y=np.zeros(np.shape(raw)[0]) if y is None else y,
            reconstruction_attributes=lambda: {},
        )
        if self._warns_unconverged and not (self.converged_ or stopped):
            self._warn_if_judged(self._rows(X, weights))
        return self

    def _run(self, raw, y, X, weights, model, policy, rng, context, workers):
        """One start: returns (Fitted, converged, stopped by a callback)."""
        data, history = self._rows(X, weights), History()
        engine = self._engine(data.n_batches)
        if self._continues():
            before = self._fitted.draft()
            state, running, history = before.state, before.policy, before.history
            running.resume(data.n_rows)
            state.forget_batches(data.total)
        else:
            state = State(model.initial(data, rng))
            plan = self._plan(model, X, weights, self.max_iter, rng, workers)
            running = policy.start(plan)
            state.seed = _seed(rng)
        state.starts = self._starts(data)

        def left_behind(model, state, elbo=None):
            parameters = self.get_params(deep=False)
            return Fitted(
                model, state, running, data.total, True, elbo, history, parameters=parameters
            )

        def snapshot(model, state):
            fitted = left_behind(model, state).draft()
            return {
                "_fitted": fitted,
                "n_iter_": len(history),
                "n_features_in_": X.shape[1],
            }

        n_before, n_moves = len(history), len(state.move_log)
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
        if not np.isfinite(elbo):
            raise out_of_range(f"the bound is {elbo}")
        state.starts = None
        # engines count the passes of a fit, the history those of the model
        state.move_log[n_moves:] = [
            replace(record, n_iter=n_before + record.n_iter) for record in state.move_log[n_moves:]
        ]
        return left_behind(model, state, float(elbo)), converged, monitor.stopped

    def _partial_fit(self, X, sample_weight, **batch):
        """``partial_fit`` of every estimator; ``batch`` is what its ``_update_stream`` takes."""
        first = not hasattr(self, "_fitted")
        X = self._validate_rows(X, reset=first)
        X, weights = self._weighted_rows(X, sample_weight)
        if first:
            self._start_stream(X, weights)
        else:
            self._fitted = self._fitted.draft(self._fitted.model.affected_rows(X))
        fitted, started = self._fitted, time.perf_counter()
        fitted.policy.resume(X.shape[0])
        with Workers(self.n_jobs) as workers:
            self._take_on_changes(fitted, X, weights)
            n_moves = len(fitted.state.move_log)
            engine = self._update_stream(fitted, X, weights, workers, **batch)
            self._record_call(fitted, engine, n_moves, started)
        self.n_iter_ = len(fitted.history)
        self._publish()
        return self

    def _record_call(self, fitted, engine, n_moves, started):
        """An entry of the history for a call of ``partial_fit`` whose steps ``engine`` made."""
        fitted.elbo, state = None, fitted.state
        number = len(fitted.history) + 1
        state.move_log[n_moves:] = [
            replace(record, n_iter=number) for record in state.move_log[n_moves:]
        ]
        entry = Entry(
            n_iter=number,
            elbo=np.nan,
            objective=np.nan,
            temperature=fitted.policy.temperature,
            learning_rate=engine.rate(state.n_steps - 1),
            n_components=fitted.model.size(state.stats),
            seconds=fitted.history.seconds + time.perf_counter() - started,
        )
        fitted.history.append(entry)

    def _update_stream(self, fitted, X, weights, workers):
        """The rows of a stream in order, a step for each minibatch; returns the engine."""
        engine, totals = self._stochastic_engine(), LocalTotals()
        data = Rows(X, weights, self._minibatch_size(X.shape[0]))
        for batch in data.batches(fitted.model, workers):
            fitted.n_rows += float(weights[batch.rows].sum()) if fitted.counts_rows else 0.0
            total = self.total_samples or fitted.n_rows
            fitted.model = engine.step(
                fitted.model, batch, total, fitted.state, fitted.policy, workers, totals
            )
        if fitted.policy.done:
            state = fitted.state
            fitted.model = fitted.model.with_learned_priors(state.prior_stats, state.plain_stats)
        return engine

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
        parameters = self.get_params(deep=False)
        self._fitted = Fitted(
            model, state, running, STREAM_ROWS, counts_rows=False, parameters=parameters
        )

    # ------------------------------------------------------------------------------ helpers
    def _plan(self, model, X, weights, n_passes, rng=None, workers=None):
        """What the temperature policy may know; ``n_passes`` is infinite for a stream."""
        data = Rows(X, weights, self._minibatch_size(X.shape[0]))
        rate = self._learning_rate(data.n_batches if np.isfinite(n_passes) else None)

        def pilot(replication, rows=None):
            return pilot_energies(model, data, rate, replication, workers, rng.spawn(1)[0], rows)

        judged = np.isfinite(n_passes) and self._judges_convergence(data)
        return FitPlan(
            model=model,
            n_passes=n_passes,
            planned_passes=self._planned_passes if judged else None,
            n_rows=data.n_rows,
            n_units=self._n_units(X, weights),
            pilot=pilot,
        )

    def _judges_convergence(self, data):
        """Whether a ``fit`` to these rows may stop before ``max_iter``."""
        return self._stopping(data).judges(self._engine(data.n_batches))

    def _warn_if_judged(self, data):
        if self._judges_convergence(data):
            warnings.warn(
                f"No convergence within max_iter={self.max_iter} passes: the bound still rises by "
                f"tol={self.tol:g} or more, or is too rarely evaluated, or moves have more to "
                "try. Raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _refuse_changes(self, whom, names, remedy):
        """Raise ValueError if one of these parameters is not what the model began with."""
        for name in names:
            begun, now = self._fitted.parameters[name], getattr(self, name)
            if not _is_same(begun, now):
                raise ValueError(
                    f"{whom} goes on with the model fitted before, with {name}={begun!r}. Got "
                    f"{name}={now!r}; set it back, or {remedy}."
                )

    def _take_on_changes(self, fitted, X, weights):
        """Parameters changed since the last call: valid, possible, and in force from now on."""
        now = self.get_params(deep=False)
        changed = [name for name in now if not _is_same(fitted.parameters.get(name), now[name])]
        if not changed:
            return
        # scikit-learn validates those of the first call only
        self._validate_params()
        fixed = (*self._fixed_parameters, *self._fixed_in_streams)
        self._refuse_changes("partial_fit", fixed, "fit a clone to start anew")
        if not set(changed).isdisjoint(self._model_parameters):
            with one_blas_thread():
                fitted.model = self._continued_model(X, weights)
        fitted.parameters = now

    def _continues(self):
        return getattr(self, "warm_start", False) and hasattr(self, "_fitted")

    def _weighted_rows(self, X, sample_weight):
        """Rows of positive weight, and their weights as float64."""
        weights = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        with np.errstate(over="ignore", under="ignore"):
            as_computed = weights.astype(X.dtype)
        if np.any((as_computed == 0.0) != (weights == 0.0)) or np.isinf(as_computed).any():
            raise ValueError(
                f"sample_weight must be 0 or in the range of {X.dtype}. Got weights from "
                f"{weights.min():g} to {weights.max():g}; scale them."
            )
        if self._of_counts and sample_weight is not None:
            total = total_of(X, weights)
            if total > 0.0 and not in_range(total):
                raise ValueError(
                    f"sample_weight times X must add up to 0 or a number in {LEGAL_RANGE}. Got a "
                    f"sum of {total:g}, weights from {weights.min():g} to {weights.max():g}; scale "
                    "them."
                )
        used = weights > 0.0
        return (X, weights) if used.all() else (X[used], weights[used])

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_fitted")

    def _require_fitted(self):
        check_is_fitted(self)
        return self._fitted

    @property
    def n_batch_iter_(self):
        """Global updates made so far."""
        return _attribute_of_fit(self, "n_batch_iter_").state.n_steps

    @property
    def history_(self):
        """What was recorded of each pass of ``fit`` and call of ``partial_fit``: dict of lists."""
        return _attribute_of_fit(self, "history_").history.lists()

    @property
    def elbo_(self):
        """Evidence lower bound of the data of ``fit`` in nats."""
        elbo = _attribute_of_fit(self, "elbo_").elbo
        if elbo is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'elbo_' amid a fit and after "
                "partial_fit: it is the bound of all rows, which are not at hand then. elbo(X) is "
                "the bound of the rows X."
            )
        return elbo


def _seed(rng):
    """A seed from ``rng``, whose own stream goes on as if none had been taken."""
    return int(rng.spawn(1)[0].integers(2**63))


def _is_same(one, other):
    """Whether two values of a parameter are the same, vectors included."""
    if one is other or np.ndim(one) == np.ndim(other) == 0:
        return one is other or bool(one == other)
    return np.shape(one) == np.shape(other) and bool(np.array_equal(one, other))
