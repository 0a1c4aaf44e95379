"""Calls of ``partial_fit``, each of which begins a *stream* or continues the fit so far.

The rows of small calls are gathered, because *births*, the moves that add components, need more
rows than a small call has: see :mod:`skvt.fitting._buffer`. In memoized inference, each batch of
rows has a *memo*: its statistics and the entropies of its assignments. ``before`` is the
:class:`Fitted` before a call, or None. The *labels* of rows are the classes that the caller passed
as y. During a call with labels, the model and the rows have an additional column of the classes.
"""

import time
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from skvt._stages import begin_stage, reporting_stages
from skvt.contracts import PassInputs, Stream
from skvt.fitting._buffer import Gathered
from skvt.fitting._changes import FREE_TO_CHANGE, copy_parameters, find_changes, refuse_changes
from skvt.fitting._fitted import Fitted
from skvt.fitting._publish import publish
from skvt.fitting._rows import read_rows
from skvt.inference import History, HistoryEntry, Workers, name_chunk_in_errors
from skvt.monitoring import announcing_compilation, report_call
from skvt.readers.chunks import is_chunked, load_chunk, split_into_chunks

# Number of rows that a stream is assumed to have if the user does not give the number; scikit-learn
# has the same default.
STREAM_ROWS = 1e6


def update(estimator, X, sample_weight, batch_id, details=None, labels=None):
    """Update an estimator on rows in memory, or on one chunk of rows after another.

    ``details`` are further arguments about the rows by name, such as covariates. ``labels`` are the
    :class:`~skvt.readers.labels.RowLabels` or None. Rows in chunks have neither details nor labels.
    """
    if not is_chunked(X):
        options = {"passed_X": X, "details": details, "labels": labels}
        _update_in_memory(estimator, X, sample_weight, batch_id, **options)
        return
    # Load one chunk after another, so that this process holds a single chunk at a time. If the call
    # has an id, each of several chunks gets a separate id.
    chunks = split_into_chunks(X, sample_weight)
    needs_chunk_ids = batch_id is not None and len(chunks.rows) > 1
    for number, (rows, weights) in enumerate(zip(chunks.rows, chunks.weights, strict=True)):
        chunk_id = (batch_id, number) if needs_chunk_ids else batch_id
        with name_chunk_in_errors(number):
            chunk = load_chunk(rows, weights)
            if chunk is not None:
                _update_in_memory(estimator, *chunk, chunk_id)


def _update_in_memory(
    estimator, X, sample_weight, batch_id, *, passed_X=None, details=None, labels=None
):
    """Update an estimator on rows in memory, and set its attributes.

    ``passed_X`` is X as the caller passed it to ``partial_fit``; None if the rows are a chunk.
    """
    # An interrupted fit cannot be resumed after an update on other rows.
    vars(estimator).pop("_progress", None)
    before = vars(estimator).get("_fitted")
    n_moves = 0 if before is None else len(before.state.move_log)
    with reporting_stages(estimator.verbose), announcing_compilation(estimator.verbose):
        rows = read_rows(estimator, X, sample_weight, details, reset=before is None, in_stream=True)
        rows = replace(rows, passed_X=passed_X, labels=labels)
        begin_stage(f"call {1 if before is None else len(before.history) + 1}")
        with Workers(estimator.n_jobs) as workers:
            fitted = _fit_call(estimator, before, rows, batch_id, workers)
            publish(estimator, fitted, rows, workers)
        report_call(estimator, fitted.history[-1], fitted.state.move_log[n_moves:])


def _fit_call(estimator, before, rows, batch_id, workers):
    """Return the :class:`Fitted` after a call of ``partial_fit``.

    ``before`` is the :class:`Fitted` from which the call continues; None in the first call.
    """
    X, weights, labels = rows.X, rows.weights, rows.labels
    # Gather the rows of small calls.
    gathered = None
    if estimator._gathers_small_calls(before):
        memos, gathered_before = ({}, None) if before is None else (before.memos, before.gathered)
        gathered = Gathered.of(gathered_before, X, weights, batch_id, memos)
    # The first call begins the stream. A later call begins it anew if all rows so far are gathered:
    # a new model of the gathered rows can then replace the fit.
    begins_stream = before is None
    if not begins_stream:
        shown_fit = estimator._get_shown_fit(before)
        begins_stream = before.can_be_replaced_by(gathered, shown_fit.model.size(shown_fit.stats))
    # The gathered rows replace the rows of this call if the stream begins, if births are due, or if
    # no rows of earlier calls are gathered.
    if gathered is not None and (
        begins_stream or gathered.is_due or not gathered.from_several_calls
    ):
        X, weights, batch_id = gathered.X, gathered.weights, gathered.batch_id
    if begins_stream:
        fitted, plan = _begin_stream(estimator, before, X, weights, labels, workers)
    else:
        # Copy the fit, so that ``before`` does not change. Copy only the statistics that the steps
        # of this call can change, and leave out results of earlier calls.
        results = dict.fromkeys(("elbo", "joins", "labels", "component_classes", "seen"))
        fitted = before.draft(before.model.touched_columns(X), **results)
    start_time = time.perf_counter()
    # Without memos, rows are gathered only while a stream begins.
    gathered = gathered if begins_stream or before.memos else None
    fitted.policy.forget_rows(X.shape[0])
    # Adapt the fit to changes in the kind of rows and in the estimator's parameters.
    fitted = estimator._adapt_fit(fitted, X, weights)
    fitted = _with_changed_parameters(estimator, fitted, X, weights)
    n_moves = len(fitted.state.move_log)
    if not begins_stream:
        if labels is not None:
            model, X = labels.add_class_column(fitted.model, X, weights)
            # Without memos, the statistics represent the whole stream. Scale the statistics of the
            # labelled rows of this call to its weight.
            scale = 1.0 if fitted.memos else fitted.n_rows / weights.sum()
            state = labels.add_to_components(fitted.state, model, X, weights, scale)
            fitted = replace(fitted, model=model, state=state)
        plan = estimator._plan(fitted.model, X, weights, stream=True)
    random_state = estimator.random_state
    fitted, step_size = _make_steps(fitted, plan, workers, batch_id, gathered, random_state)
    if labels is not None:
        fitted = labels.remove_class_column(fitted)
    _record_call(fitted, step_size, n_moves, start_time)
    return fitted


def _begin_stream(estimator, before, X, weights, labels, workers):
    """Return the :class:`Fitted` before the first step of a stream, and the plan of the first call.

    If ``before`` is not None, the stream begins anew, and X has all of its rows so far. The result
    then has the history, the log of moves, the parameters and the words of ``before``.
    """
    build_model = estimator._build_model_of_stream or estimator._build_model
    model = build_model(X, weights)
    if labels is not None:
        model, X = labels.add_class_column(model, X, weights)
    random_state = check_random_state(estimator.random_state)
    rng = np.random.default_rng(random_state.randint(np.iinfo(np.int32).max))
    plan = estimator._plan(model, X, weights, stream=True)
    # A stream has no maximum number of passes.
    plan = replace(plan, stopping=replace(plan.stopping, max_iter=np.inf))
    plan.check(model)
    state, policy = plan.begin(model, workers, rng)
    counts_rows = plan.stream.counts_rows
    n_rows = 0.0 if counts_rows else STREAM_ROWS
    parameters = copy_parameters(estimator)
    fitted = Fitted(model, state, policy, n_rows, counts_rows, parameters=parameters)
    if before is None:
        return fitted, plan
    state.move_log = list(before.state.move_log)
    kept_fields = {"parameters": before.parameters, "words": before.words}
    return replace(fitted, history=History(before.history), **kept_fields), plan


def _with_changed_parameters(estimator, fitted, X, weights):
    """Return ``fitted`` with the current parameters of the estimator, and a new model if necessary.

    Raise ValueError if a parameter is illegal, or has changed and must not change within a stream.
    """
    changed_names = find_changes(estimator, fitted)
    if not changed_names:
        return fitted
    # Validate the new values, because scikit-learn does so only in the first call of partial_fit.
    estimator._validate_params()
    fixed_names = estimator._fixed_in_streams
    refuse_changes(estimator, fitted, "partial_fit", fixed_names, "fit a clone to start anew")
    model = fitted.model
    if not changed_names <= FREE_TO_CHANGE:
        model = estimator._build_model(X, weights, model)
    return replace(fitted, model=model, parameters=copy_parameters(estimator))


def _make_steps(fitted, plan, workers, batch_id, gathered, random_state):
    """Make steps on rows of a stream; return the :class:`Fitted` and the size of the last step.

    ``gathered`` are the gathered rows of this call and earlier calls, or None.
    """
    n_steps = fitted.state.n_steps

    def make_rng():
        """Return a random number generator that differs between the calls of a stream."""
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        return np.random.default_rng([seed, n_steps])

    tries_moves = gathered is None or gathered.is_due
    stream = Stream(
        fitted.n_rows, fitted.counts_rows, plan.stream.total_samples,
        batch_id=batch_id, make_rng=make_rng, tries_moves=tries_moves,
        n_judged=None if gathered is None else gathered.find_n_judged(set(fitted.memos)),
    )  # fmt: skip
    if gathered is not None and batch_id == gathered.key:
        # The batch consists of all gathered rows. After the moves, calls with ids become separate
        # batches. ``rows_of_calls`` is empty if calls have no ids.
        stream.rows_of_batches = gathered.rows_of_calls
    elif gathered is not None and batch_id is None:
        # The batch consists of the rows of this call, which has no id. After their local step, the
        # rows join the batch of the earlier calls.
        stream.joined_batch_id = gathered.key
    if gathered is not None:
        # Keep the number of rows among which births have been tried.
        n_judged = gathered.weights.size if tries_moves else gathered.n_judged
        gathered = replace(gathered, n_judged=n_judged).copy_for_next_call()
    engine = plan.phases[0].engine
    state = engine.start(fitted.state, fitted.n_rows)
    inputs = PassInputs(plan.data, fitted.policy, workers)
    model, step_size = engine.update(fitted.model, state, stream, inputs)
    fitted = replace(fitted, model=model, state=state, n_rows=stream.n_rows, gathered=gathered)
    return fitted, step_size


def _record_call(fitted, step_size, n_moves, start_time):
    """Append the record of a call to the history.

    ``step_size`` is the size of the last step, and ``n_moves`` is the length of the log of moves
    before the call. ``start_time`` is the time in seconds when the call began.
    """
    state = fitted.state
    call_number = len(fitted.history) + 1
    # The moves of the call get the number of the call.
    move_log = state.move_log
    move_log[n_moves:] = [replace(record, n_iter=call_number) for record in move_log[n_moves:]]
    # The bounds are not known.
    entry = HistoryEntry(
        call_number, elbo=np.nan, objective=np.nan, temperature=fitted.policy.temperature,
        learning_rate=step_size, n_components=fitted.model.size(state.stats),
        seconds=fitted.history.seconds + time.perf_counter() - start_time,
    )  # fmt: skip
    fitted.history.append(entry)
