"""Progress of a fit, as reported to scikit-learn's callbacks and in printed lines."""

from contextlib import nullcontext

import numpy as np
from numba.core import event

from skvt._stages import are_lines_reported, begin_stage, report, take_notes

# By default, each of the first passes up to this number has a line, and then each multiple of it.
DEFAULT_INTERVAL = 10


class FitMonitor:
    """Reporter of each pass to scikit-learn's callbacks and, if requested, to the terminal.

    For each pass, the loop of passes calls :meth:`begin_pass`, appends an entry to ``history``,
    sets the attribute ``position``, and calls :meth:`end_pass`.

    ``context`` is scikit-learn's task of the fit, and ``callback_data`` are X and y for callbacks.
    ``take_snapshot(model, state, position)`` returns the attributes of an estimator whose fit has
    stopped at this position, for callbacks that need them. ``start`` tells where the fit begins:
    its ``position`` has the number of passes made so far and the last exact bound, and its
    ``n_moves`` is the number of earlier records of moves. ``name`` precedes each line; it is the
    name of the start if there are several.
    """

    def __init__(self, estimator, context, callback_data, take_snapshot, history, start, name):
        self._estimator = estimator
        self._context = context
        self._X, self._y = callback_data
        self._take_snapshot = take_snapshot
        self._name = name
        self.history = history
        self.position = start.position
        # The task of the current pass.
        self._pass_task = None
        # Number of records of moves that have been reported.
        self._n_reported_moves = start.n_moves
        # Whether a callback has stopped the fit.
        self.stopped = False

    def begin_pass(self):
        """Begin the task of a pass."""
        begin_stage(f"{self._name}pass {len(self.history) + 1}")
        self._pass_task = self._context.subcontext(task_name="pass")
        self._pass_task.call_on_fit_task_begin(estimator=self._estimator, X=self._X, y=self._y)

    def end_pass(self, model, state, perplexity=None, *, is_last=False):
        """End a pass, with its ``perplexity`` if known; return whether a callback stops the fit.

        ``is_last`` tells whether it is the last pass, even if no callback stops the fit.
        """
        entry = self.history[-1]
        is_notable = perplexity is not None or is_last
        if _is_line_due(self._estimator, entry, is_notable or entry.n_iter <= DEFAULT_INTERVAL):
            # The line has the objective if the bound is NaN, as in structured inference, which
            # evaluates the bound only on request.
            name = "objective" if np.isnan(entry.elbo) else "elbo"
            perplexity_text = "" if perplexity is None else f"perplexity {perplexity:.6g}, "
            records = state.move_log[self._n_reported_moves :]
            self._n_reported_moves = len(state.move_log)
            bound_text = f"{name} {getattr(entry, name):.6g} nats, {perplexity_text}"
            line = f"{self._name}pass {entry.n_iter}: {bound_text}{_join_results(entry, records)}"
            report(line, printed=self._estimator.verbose > 0)
        self.stopped = self._pass_task.call_on_fit_task_end(
            estimator=self._estimator, X=self._X, y=self._y,
            reconstruction_attributes=lambda: self._take_snapshot(model, state, self.position),
        )  # fmt: skip
        return self.stopped


def report_call(estimator, entry, records):
    """Print or log the line of a call of ``partial_fit``, if a line is due.

    ``entry`` is the entry of the call in the history, and ``records`` are the records of its moves.
    """
    if _is_line_due(estimator, entry, is_notable=True):
        text = _join_results(entry, records)
        report(f"call {entry.n_iter}: {text}", printed=estimator.verbose > 0)


def _is_line_due(estimator, entry, is_notable):
    """Return whether a line about this pass or call is printed or logged.

    By default, notable ones have a line in any case.
    """
    interval = estimator.verbose_interval
    if interval is None:
        interval = 1 if is_notable else DEFAULT_INTERVAL
    return are_lines_reported(estimator.verbose) and entry.n_iter % interval == 0


def _join_results(entry, records):
    """Return the end of a line: components, moves, notes, temperature and seconds."""
    moves = "".join(f"{text}, " for text in _describe_moves(records))
    notes = "".join(f"{note}, " for note in dict.fromkeys(take_notes()))
    # Leave out a temperature that three decimals would show as 1.000.
    is_hot = abs(entry.temperature - 1.0) >= 0.0005
    temperature = f"temperature {entry.temperature:.3f}, " if is_hot else ""
    components = _count_components(entry.n_components)
    return f"{components}, {moves}{notes}{temperature}{entry.seconds:.1f} s"


def _count_components(number):
    """Return a number of components as a text."""
    return f"{number} component" + "s" * (number != 1)


def _describe_moves(records):
    """Yield a text for each kind of move, with its numbers of accepted and proposed changes."""
    for kind in dict.fromkeys(record.move for record in records):
        records_of_kind = [record for record in records if record.move == kind]
        n_accepted = sum(record.accepted for record in records_of_kind)
        n_proposed = sum(record.proposed for record in records_of_kind)
        # A birth that is accepted adds several components, and each of them counts as accepted.
        if kind == "birth":
            yield f"births {n_proposed} tried, {_count_components(n_accepted)} added"
        else:
            yield f"{kind} {n_accepted} of {n_proposed}"


class _CompilationListener(event.Listener):
    """Listener that reports the first compilation of a loop, which may take longer than a fit."""

    def __init__(self, printed):
        self._printed = printed
        self._has_reported = False

    def on_start(self, event):
        """Report the first compilation."""
        if not self._has_reported:
            report("compiling loops, once per installation", printed=self._printed)
        self._has_reported = True

    def on_end(self, event):
        """Do nothing."""


def announcing_compilation(verbose):
    """Return a context manager that announces compilation, if lines are printed or logged."""
    if not are_lines_reported(verbose):
        return nullcontext()
    return event.install_listener("numba:compile", _CompilationListener(verbose > 0))
