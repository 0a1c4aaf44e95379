"""Run a call of ``fit`` or ``resume``: make its starts, publish the best, and call the callbacks.

A *start* is a fit from one set of random initial values. A call makes several starts to find a
better optimum of the bound. A *launch*, a :class:`~skvt.fitting._restarts.Launch`, has everything
with which a start begins: the plan, the initial model and state, and the random numbers.
:mod:`skvt.fitting._restarts` has the rule that decides which start follows, and
:func:`skvt.inference.fit_loop` makes the passes of a start.
"""

import warnings
from copy import deepcopy
from dataclasses import replace
from functools import cache, cached_property

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skvt.fitting._changes import copy_parameters
from skvt.fitting._fitted import Fitted
from skvt.fitting._publish import publish
from skvt.fitting._restarts import Launch, Outcomes, Start
from skvt.fitting._resume import Progress, RowsIdentity, hash_all_rows
from skvt.inference import evaluate_bound, fit_loop, make_rows
from skvt.monitoring import FitMonitor, announcing_compilation
from skvt.readers.validation import find_stack_level, out_of_range_error


def run_fit(estimator, rows, workers, before=None):
    """Make all starts of a fit, and set the attributes of the estimator by the best start.

    In a warm start, ``before`` is the :class:`Fitted` from which a single start continues.
    """
    fit = Fit(estimator, rows, workers, before)
    fit.plan.check(fit.model)
    random_state = check_random_state(estimator.random_state)
    n_init = 1 if fit.is_warm else estimator.n_init
    seeds = [int(random_state.randint(np.iinfo(np.int32).max)) for _ in range(n_init)]
    restarts = estimator._restarts(tuple(seeds), fit)
    outcomes = Outcomes()
    fit.run(restarts.next(outcomes), restarts, outcomes)


def resume_fit(estimator, rows, workers, progress):
    """Make the remaining starts of an interrupted fit, whose :class:`Progress` is ``progress``.

    The best of all starts of the fit then determines the attributes of the estimator.
    """
    fit = Fit(estimator, rows, workers)
    launch = fit.launch_interrupted(progress)
    fit.run(launch, estimator._restarts(progress.seeds, fit), progress.outcomes)


class Fit:
    """A call of ``fit`` or ``resume``, which makes one or more starts.

    ``rows`` are the :class:`~skvt.fitting._rows.CallRows` of the call. ``before`` is the
    :class:`Fitted` from which a warm start continues, else None. The estimator builds the model and
    the plans; nothing else depends on the class of the estimator.
    """

    def __init__(self, estimator, rows, workers, before=None):
        self.estimator = estimator
        self.rows = rows
        self.workers = workers
        self.before = before
        # Whether the fit is a warm start. `launch_interrupted` may change the attribute.
        self.is_warm = before is not None
        # Whether the first start has taken ``plan``, so that further starts need new plans.
        self._has_launched = False

    # ------------------------------------------------------------------------------- launches
    @cached_property
    def _model_and_rows(self):
        """The model, and the rows to which it is fitted.

        If rows have labels, the rows get a further column with the class of each row.
        """
        X, weights, labels = self.rows.X, self.rows.weights, self.rows.labels
        old_model = None if self.before is None else self.before.model
        model = self.estimator._build_model(X, weights, old_model)
        return (model, X) if labels is None else labels.add_class_column(model, X, weights)

    @property
    def model(self):
        """The model of the rows, built when a start first needs it."""
        model, _ = self._model_and_rows
        return model

    @cached_property
    def plan(self):
        """The plan of the first start."""
        return self._make_plan()

    def _make_plan(self):
        """Return a new plan. Each start needs a new plan, because engines serve a single start."""
        model, X = self._model_and_rows
        return self.estimator._plan(model, X, self.rows.weights)

    def launch(self, seed, *, kind="", n_starts=1, model=None, policy=None):
        """Return the :class:`Launch` of a start.

        Parameters
        ----------
        seed : int
            The seed of the random numbers of the start.
        kind : str
            A word that describes the start in printed lines; "" for an ordinary start.
        n_starts : int
            The number of starts of the fit, as far as is known.
        model : Model or None
            The model; None for the model of the fit.
        policy : TemperaturePolicy or None
            The temperature policy; None for the policy of the plan.
        """
        model = self.model if model is None else model
        # The first start takes ``self.plan``, which `run_fit` has checked.
        plan = self._make_plan() if self._has_launched else self.plan
        self._has_launched = True
        rng = np.random.default_rng(seed)
        plan = plan if policy is None else replace(plan, policy=policy)
        data = plan.data
        if self.before is None:
            # Make the initial statistics of the model, and the temperature policy of this start.
            state, running_policy = plan.begin(model, self.workers, rng)
            fitted = self._make_initial_fitted(plan, model, state, running_policy)
        else:
            # Continue a copy of the fit. Keep its memos, the statistics and entropies of batches,
            # only if the batches consist of the same rows.
            draft = self.before.draft()
            state = draft.state
            if not self._has_memos_of(data):
                draft = draft.with_names_by_position()
                state = state.without_memos(data.total)
            if self.rows.labels is not None:
                state = self.rows.labels.add_to_components(state, model, data.X, data.weights)
            # Let the policy forget the energies of single rows, because the rows may differ.
            draft.policy.forget_rows(data.n_rows)
            fitted = self._make_initial_fitted(plan, model, state, draft.policy, draft)
        # The engine of the first phase of the plan makes the first passes.
        state = plan.phases[0].engine.start(state, data.total)
        # The initial values of the first local steps of rows.
        state.row_starts = plan.row_starts
        start = Start(rng, kind, n_starts, n_moves=len(state.move_log))
        return Launch(plan, replace(fitted, state=state), start)

    def launch_interrupted(self, progress):
        """Return the :class:`Launch` with which the interrupted start continues.

        The start continues after its last pass before the interruption. ``progress`` is the
        :class:`Progress` of the interrupted fit.
        """
        draft = self.estimator._fitted.draft()
        plan = self.estimator._plan(draft.model, self.rows.X, self.rows.weights)
        if progress.row_starts is not None:
            draft.state.row_starts = progress.row_starts.copy()
        plan.set_progress(deepcopy(progress.engine))
        # The progress is copied, so that the fit can be resumed again if this call fails.
        start = replace(progress.start, rng=deepcopy(progress.start.rng))
        self.plan = plan
        self._has_launched = True
        self.is_warm = self.estimator._is_warm_start()
        fitted = self._make_initial_fitted(plan, draft.model, draft.state, draft.policy, draft)
        return Launch(plan, fitted, start)

    def _has_memos_of(self, data):
        """Return whether ``before`` has memos of the rows ``data`` in the same batches."""
        before = self.before
        # Compute the hash only if it may agree, because it takes a pass over the rows.
        may_be_same = before.elbo is not None and before.seen is not None
        return may_be_same and before.seen == (hash_all_rows(data.X, data.weights), data.batch_size)

    def _make_initial_fitted(self, plan, model, state, policy, before=None):
        """Return the :class:`Fitted` of a start before its first pass, without a bound.

        If there is a fit ``before``, its history, the names of topics and clusters, and its words
        are kept.
        """
        parameters = copy_parameters(self.estimator)
        fitted = Fitted(model, state, policy, plan.data.total, parameters=parameters)
        if before is None:
            return fitted
        names = ("history", "topic_labels", "cluster_labels", "words")
        return replace(fitted, **{name: getattr(before, name) for name in names})

    # ----------------------------------------------------------------------------------- runs
    def run(self, launch, restarts, outcomes):
        """Make the starts from ``launch`` on, and set the attributes of the estimator by the best.

        ``restarts`` is the rule that decides which start follows. ``outcomes`` are the outcomes of
        starts that have ended before the call. Only a resumed fit has such starts.
        """
        estimator = self.estimator
        max_iter = launch.plan.stopping.max_iter
        # `_run_start` reads the attribute, too.
        self.callback_data = self.rows.callback_data
        callback_X, callback_y = self.callback_data
        # The context describes the fit to callbacks as a task, whose subtasks are the passes of all
        # starts.
        context = estimator._init_callback_context(max_subtasks=launch.start.n_starts * max_iter)
        context.call_on_fit_task_begin(estimator=estimator, X=callback_X, y=callback_y)
        with announcing_compilation(estimator.verbose):
            while launch is not None:
                # The expected number of starts may have changed.
                context.max_subtasks = launch.start.n_starts * max_iter
                plan = launch.plan
                fitted, converged, stopped = self._run_start(launch, outcomes, restarts, context)
                outcomes = outcomes.with_outcome(launch.start.kind, fitted, converged)
                launch = None if stopped else restarts.next(outcomes)
            best = outcomes.best
            # Only engines with memos know the exact bound.
            if plan.phases[-1].engine.knows_exact_bound:
                # Identify the rows of the memos, so that a warm start can use the memos.
                seen = hash_all_rows(self.rows.X, self.rows.weights), plan.data.batch_size
                best = replace(best, seen=seen)
            best = self._without_labels(self._make_last_step(best, plan))
        results = {"converged_": outcomes.converged, "restart_elbos_": np.array(outcomes.elbos)}
        publish(estimator, best, self.rows, self.workers, **results)
        context.call_on_fit_task_end(
            estimator=estimator, X=callback_X, y=callback_y, reconstruction_attributes=lambda: {}
        )
        self._warn_of_end(plan, best, outcomes.converged or stopped)

    def _without_labels(self, fitted):
        """Return ``fitted`` without the column of classes that labels of rows add to the model."""
        return fitted if self.rows.labels is None else self.rows.labels.remove_class_column(fitted)

    def _run_start(self, launch, outcomes, restarts, context):
        """Make the passes of a start.

        Return the :class:`Fitted` of the start, whether the start has converged, and whether a
        callback has stopped the start. ``context`` describes the fit to callbacks.
        """
        plan, initial_fitted, start = launch.plan, launch.fitted, launch.start
        state, history, data = initial_fitted.state, initial_fitted.history, plan.data
        # Number of passes of earlier fits, whose records the history of a warm start also has.
        n_before = len(history) - start.position.n_passes

        @cache
        def identify_rows():
            """Return the identity of the rows, computed once and only if a callback needs it."""
            return RowsIdentity.of(data.X, data.weights)

        def snapshot(model, state, position):
            """Return the attributes of an estimator whose fit has stopped at this position.

            Everything that further passes change is copied, because callbacks may keep the result.
            """
            fitted = replace(initial_fitted, model=model).draft()
            move_log = fitted.state.move_log = _renumber(state.move_log, start.n_moves, n_before)
            rng = deepcopy(start.rng)
            # The records of the log have their final numbers. A resumed start must keep them.
            current_start = replace(start, rng=rng, position=position, n_moves=len(move_log))
            row_starts = None if state.row_starts is None else state.row_starts.copy()
            progress = Progress(
                identify_rows(), restarts.seeds, outcomes, current_start,
                plan.get_progress(), row_starts,
            )  # fmt: skip
            return self._attributes_to_show(fitted, progress)

        start_number = len(outcomes.elbos) + 1
        kind = f"{start.kind}, " if start.kind else ""
        name = f"start {start_number} of {start.n_starts}, {kind}" if start.n_starts > 1 else ""
        monitor = FitMonitor(
            self.estimator, context, callback_data=self.callback_data, take_snapshot=snapshot,
            history=history, start=start, name=name,
        )  # fmt: skip
        model, converged = fit_loop(
            initial_fitted.model, plan, initial_fitted.policy, state,
            workers=self.workers, rng=start.rng, monitor=monitor,
        )  # fmt: skip
        # ``finish`` returns None if the engine does not know the exact bound. A further pass over
        # the rows then evaluates the bound.
        elbo = plan.finish(model, state)
        if elbo is None:
            elbo = self._evaluate_bound(model, state, data)
        if not np.isfinite(elbo):
            raise out_of_range_error(f"the bound is {elbo}")
        state.row_starts = None
        state.move_log = _renumber(state.move_log, start.n_moves, n_before)
        return replace(initial_fitted, model=model, elbo=float(elbo)), converged, monitor.stopped

    def _attributes_to_show(self, fitted, progress):
        """Return the attributes, by name, that the estimator would have if the fit ended now."""
        without_labels = self._without_labels(fitted)
        # A fit with labels of rows cannot be resumed.
        progress_if_resumable = {"_progress": progress} if without_labels is fitted else {}
        return {
            "_fitted": replace(without_labels, reader=self.rows.reader),
            **progress_if_resumable,
            "n_iter_": len(fitted.history),
            "converged_": progress.start.position.converged,
            **self.estimator._attributes_of_model(fitted.model),
            **self.rows.reader.attributes,
        }

    def _evaluate_bound(self, model, state, data):
        """Return the exact bound of all rows ``data`` in nats at T = 1."""
        rows = make_rows(data.X, data.weights)
        return evaluate_bound(model, state.plain_stats, rows, self.workers)

    def _make_last_step(self, best, plan):
        """Make the last step of the plan, if any; return the outcome with the exact bound after it.

        ``best`` is the best outcome of all starts. The step is left out if the model has a single
        component, or if the start ended above T = 1.
        """
        model, state = best.model, best.state
        has_several_components = model.size(best.stats) > 1
        is_possible = has_several_components and best.policy.at_unit_temperature
        if plan.last_step is None or not is_possible:
            return best
        plan.last_step(model, state, plan.data, self.workers)
        elbo = float(self._evaluate_bound(model, state, plan.data))
        # The memos do not belong to the changed state, so that a warm start must not use them.
        return replace(best, elbo=elbo, seen=None)

    def _warn_of_end(self, plan, fitted, has_ended):
        """Warn if the maximum number of passes ended the fit, or births reached the default limit.

        Births may reach ``max_components`` without a warning if the user has set the parameter.
        ``has_ended`` tells whether the fit converged or a callback stopped it.
        """
        estimator = self.estimator
        # The maximum number of components; None if there are no births.
        max_components = plan.stopping.max_components
        if not has_ended and plan.stopping.warns and plan.judges_convergence:
            message = (
                f"No convergence within max_iter={plan.stopping.max_iter} passes: in the last "
                f"passes, the bound still rose by tol={estimator.tol:g} or more, or was evaluated "
                "too rarely, or there were moves left to try. Raise max_iter or tol."
            )
        elif (
            max_components
            and estimator.n_components < max_components <= fitted.model.size(fitted.stats)
            and estimator.max_components is None
        ):
            message = (
                f"No convergence within the default maximum of {max_components} components: "
                "births would go on. Raise max_components, or use components of another shape or "
                "other columns, of which fewer may describe the rows."
            )
        else:
            return
        warnings.warn(message, ConvergenceWarning, stacklevel=find_stack_level())


def _renumber(move_log, n_moves, n_before):
    """Return the log of moves with pass numbers that also count the passes of earlier fits.

    ``n_before``, the number of passes of earlier fits, is added to the pass numbers of the records
    of this start. The first ``n_moves`` records are older, and already have the final numbers.
    """
    return move_log[:n_moves] + [
        replace(record, n_iter=n_before + record.n_iter) for record in move_log[n_moves:]
    ]
