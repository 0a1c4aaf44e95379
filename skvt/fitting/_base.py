"""The sequence of every fit: validate -> build collaborators -> run -> publish."""

import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, wraps

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvt.fitting._display import with_result
from skvt.fitting._fit import CallRows, resume_fit, run_fit
from skvt.fitting._fitted import Fitted, of_fit
from skvt.fitting._restarts import SameModel
from skvt.fitting._streams import Gathered, gathers_calls, record_call, update_stream
from skvt.inference import History, Workers, evaluate_bound, of_chunk, rows_of
from skvt.readers import Reader
from skvt.readers.chunks import is_chunked, loaded, loads_of, released, rows_read
from skvt.readers.validation import out_of_range
from skvt.sklearn_private import CallbackSupportMixin, fit_context
from skvt.stages import stages_printed

# Assumed rows of a stream started by partial_fit, unless given by the user; as in scikit-learn.
STREAM_ROWS = 1e6
# Parameters that may change before an interrupted fit is resumed, since the passes so far do not
# depend on them; the seeds of its starts are kept.
_FREE_TO_CHANGE = frozenset(
    "max_iter tol perp_tol evaluate_every verbose verbose_interval n_jobs random_state".split()
)


def all_or_nothing(method):
    """Validate parameters as scikit-learn does, and change the estimator only at the very end.

    The decorated method runs on a copy, the twin, whose attributes the estimator then takes over in
    one assignment. An exception, which an interrupt can raise anywhere, thus leaves the estimator
    unchanged. Objects that both share are never written to, see :meth:`Fitted.draft`.
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
        # no call follows this assignment, so that no interrupt is handled before the return
        self.__dict__ = changed
        return self

    return on_a_twin


class VariationalEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of all estimators.

    A subclass defines ``_reads``, the class of its reader; ``_build_model(X, weights, old=None)``,
    which returns the model for rows like X and, in a warm start or after a change of parameters,
    keeps what the ``old`` model has learned; and ``_plan(model, X, weights, *, stream=False)``,
    which returns the :class:`Plan` of a fit to these rows or of a call of ``partial_fit``.
    """

    # Legal values of parameters, parameters that cannot change in warm starts, and parameters that
    # cannot change within a stream; `estimator` sets all three from the annotations.
    _parameter_constraints = {}
    _fixed_parameters = ()
    _fixed_in_streams = ()
    # Names of the methods after which the bound is not known, for an error.
    _loses_bound = "partial_fit"
    # Makes the :class:`Restarts` of a fit from seeds and the :class:`Fit`.
    _restarts = SameModel
    # Class of the reader of rows.
    _reads = Reader
    # Where the diagram of scikit-learn links to.
    _doc_link_module = "skvt"
    _doc_link_template = (
        "https://skvt.readthedocs.io/en/latest/generated/skvt.{estimator_name}.html"
    )

    @classmethod
    @cache
    def _get_param_names(cls):
        # cached, as scikit-learn inspects the signature in each call, which takes a millisecond
        return super()._get_param_names()

    def _parameters(self):
        """Return the parameters by name, with copies that reveal later changes.

        Estimators and parameters that are fixed in streams are copied. Other arrays may be as large
        as the data, and are not.
        """
        return {
            name: _copied(value)
            if name in self._fixed_in_streams or isinstance(value, BaseEstimator)
            else value
            for name, value in self._values().items()
        }

    def _values(self):
        """Return the parameters by name, without copies."""
        return {name: getattr(self, name) for name in self._get_param_names()}

    # ----------------------------------------------------------------------- for subclasses
    def _published(self, model):
        """Return the attributes that depend on the fitted model, by name."""
        return {}

    def _publish(self, X, weights, given=None):
        """Set attributes that depend on the fitted model and on the rows of the last call.

        After ``fit``, ``given`` is X as the caller passed it, with rows of weight 0.
        """
        vars(self).update(self._published(self._fitted.model))

    def _label(self, given, X):
        """Set attributes with an entry for each row of ``given``, X as passed; ``X`` as read."""

    def _check_labels(self, X, y, sample_weight):
        """Take labels of rows as given, for those estimators that use them."""

    def _refuse_labels(self, whom):
        """Raise ValueError if labels of rows are used, which this method cannot."""

    def _with_labels(self, model, X, weights):
        """The model and the rows with which a fit works: those that know the labels."""
        return model, X

    def _without_labels(self, fitted):
        """What is published of a fit that works with labels."""
        return fitted

    # --------------------------------------------------------------------------------- fit
    @all_or_nothing
    def fit(self, X, y=None, sample_weight=None):
        """Fit to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows, as far as the model takes them: a sparse matrix, missing values (NaN, and None and
            NA in data frames), columns of other types than numbers.
        y : array-like of shape (n_samples,), optional
            Ignored, but by mixtures with ``use_labels=True``, for which it holds the classes of
            rows, -1 where unknown.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts w times; where local steps draw, it is drawn once. Minibatches
            are drawn regardless of weights.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        ValueError
            For values that the model does not take or that leave the range of floating point, for
            too few rows, and for illegal parameters and combinations of them.
        """
        self.__dict__.pop("_progress", None)
        self.__dict__.pop("restart_elbos_", None)  # set again after the last start
        passed, again = X, self._continues()
        has_labels = getattr(self, "use_labels", False)
        if has_labels:
            self._check_labels(X, y, sample_weight)
        before = None
        if again:
            before = self._fitted = replace(self._fitted, cache={})  # models may replace parts
            remedy = "set warm_start=False to start anew"
            self._refuse_changes("A warm start", self._fixed_parameters, remedy)
        reading = self._given_rows(X, sample_weight, reset=not again)
        shown, at_work = stages_printed(self.verbose), Workers(self.n_jobs)
        with shown, reading as (X, weights), at_work as workers:
            return run_fit(self, CallRows(passed, y, X, weights), workers, before)

    @contextmanager
    def _given_rows(self, X, sample_weight, *, reset):
        """Provide validated rows and weights; a cluster keeps them until the block has ended."""
        X, weights = self._read_rows(X, sample_weight, reset=reset)
        try:
            yield X, weights
        finally:
            released(X)

    def _read_rows(self, X, sample_weight, *, reset, in_stream=False):
        """Return rows of positive weight as numbers, and their weights, in memory or in chunks."""
        first = replace(self._reads.of(self), in_stream=in_stream)
        reader = first if reset else self._reader(self._fitted.model.dtype)
        reader, X, weights = rows_read(reader, X, sample_weight)
        if reset:
            vars(self).pop("feature_names_in_", None)
            vars(self).update(reader.columns)
        return X, weights

    def _reader(self, dtype):
        """Return the reader of rows that follow the first ones, in this precision."""
        return self._reads.of(self).resumed(vars(self), dtype)

    def _read(self, X):
        """Return rows like those of the fit as numbers."""
        return self._reader(self._fitted.model.dtype).read(X)

    @all_or_nothing
    def partial_fit(self, X, y=None, sample_weight=None, batch_id=None):
        """Update on rows of a stream.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows, as in ``fit``. With memoized inference they are one batch, which is remembered;
            otherwise a step is made for every ``batch_size`` of them.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts w times.
        batch_id : hashable or None, default=None
            None adds X as a new batch. With the id of an earlier call (or the number of a batch of
            ``fit``, from 0), X replaces that batch: several passes over batches on disk are thus
            calls with the same ids. Not used where nothing is remembered.

        Returns
        -------
        self : estimator
            The estimator after these rows.

        Notes
        -----
        Moves are made only where the exact bound rises. Births are tried within the batch, or among
        the last 500 rows of small calls. Components of a mixture are merged by the memos of all
        batches. Topics are merged only if no other batch has both, such as topics just added, and
        deleted only if no other batch has them; new topics may replace all of these. Other moves
        need the rows of all batches, and are made by ``fit`` alone. Priors, categories and all else
        that ``fit`` takes from the data come from the first rows.
        """
        self._refuse_labels("partial_fit")
        return self._partial_fit(X, sample_weight, batch_id)

    def _partial_fit(self, X, sample_weight, batch_id=None):
        """Update on rows in memory, or on one chunk after the other."""
        if is_chunked(X):
            return self._partial_fit_chunks(loads_of(X, sample_weight), batch_id)
        first, X_passed = not hasattr(self, "_fitted"), X
        X, weights = self._read_rows(X, sample_weight, reset=first, in_stream=True)
        rows, gathered, before = X, None, None if first else self._fitted
        if gathers_calls(self, before):
            memos = {} if first else before.memos
            gathered = Gathered.of(before and before.gathered, X, weights, batch_id, memos)
        begins = first or before.knows_only(gathered)
        if gathered is not None and (begins or gathered.is_due or gathered.is_new):
            X, weights, batch_id = gathered.X, gathered.weights, gathered.batch_id
        self.__dict__.pop("_progress", None)  # no resume after other rows
        with Workers(self.n_jobs) as workers:
            if begins:
                fitted, plan = self._start_stream(X, weights, workers)
                if before is not None:
                    fitted.history = History(before.history)
                    fitted.parameters, fitted.words = before.parameters, before.words
                    fitted.state.move_log = list(before.state.move_log)
            else:
                fitted = before.draft(before.model.touched_columns(X))
            fitted.gathered = gathered if begins or before.memos else None
            self._fitted, started = fitted, time.perf_counter()
            fitted.policy.resume(X.shape[0])
            self._take_on_changes(fitted, X, weights)
            self._adapt(fitted, X, weights)
            n_moves = len(fitted.state.move_log)
            if not begins:
                plan = self._plan(fitted.model, X, weights, stream=True)
            rate = update_stream(fitted, plan, workers, batch_id, self.random_state)
            record_call(fitted, rate, n_moves, started)
        fitted.gathered = fitted.gathered and fitted.gathered.kept()
        self.n_iter_ = len(fitted.history)
        self._publish(X, weights)
        self._label(X_passed, rows)
        return self

    def _partial_fit_chunks(self, loads, batch_id):
        """Update on each chunk, in order, with one at a time in this process."""
        several = len(loads.rows) > 1
        for number, (rows, weights) in enumerate(zip(loads.rows, loads.weights, strict=True)):
            with of_chunk(number):
                chunk = loaded(rows, weights)
                if chunk is not None:
                    numbered = several and batch_id is not None
                    self._partial_fit(*chunk, (batch_id, number) if numbered else batch_id)
                    self._fitted.labels = None  # labels would be those of one chunk
        return self

    def _adapt(self, fitted, X, weights):
        """Adapt a fitted model to rows of another kind."""

    def _start_stream(self, X, weights, workers):
        """Return the :class:`Fitted` before any rows, and the plan of the first call."""
        model = self._build_model(X, weights)
        random_state = check_random_state(self.random_state)
        rng = np.random.default_rng(random_state.randint(np.iinfo(np.int32).max))
        plan = replace(self._plan(model, X, weights, stream=True), n_passes=np.inf)
        plan.check(model)
        state, running = plan.begin(model, workers, rng)
        parameters = self._parameters()
        n_rows = 0.0 if plan.counts_rows else STREAM_ROWS
        counts_rows = plan.counts_rows
        fitted = Fitted(model, state, running, n_rows, counts_rows, parameters=parameters)
        return fitted, plan

    # ------------------------------------------------------------------------------ helpers
    @all_or_nothing
    def resume(self, X, y=None, sample_weight=None):
        """Continue a fit that was interrupted, to the same result as without interruption.

        For estimators that :func:`skvt.load` reads from a file written by
        :class:`skvt.callbacks.Checkpoint`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows of the interrupted fit, in the same order. Their shape, their type and a sample
            are compared.
        y : ignored
            Shown to callbacks.
        sample_weight : array-like of shape (n_samples,), optional
            The weights of the interrupted fit.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If there is nothing to resume, if these are other rows, or if a parameter has changed
            that the passes so far depend on: all but ``max_iter``, ``tol``, ``perp_tol``,
            ``evaluate_every``, ``verbose``, ``verbose_interval``, ``n_jobs`` and ``random_state``.

        Notes
        -----
        On the same machine with the same libraries the result has the same bits as that of the
        uninterrupted fit; see the guide for what may differ elsewhere. Callbacks are not kept in
        files: set them again before the call.
        """
        self._require_fitted()
        self._refuse_labels("resume")
        progress = vars(self).get("_progress")
        if progress is None:
            raise ValueError(
                f"This {type(self).__name__} has no interrupted fit to resume. Load a file written "
                "during a fit by skvt.callbacks.Checkpoint; to continue a fit that has ended, call "
                "fit with warm_start=True."
            )
        self._validate_params()
        fixed = [name for name in self._fitted.parameters if name not in _FREE_TO_CHANGE]
        self._refuse_changes("resume", fixed, "call fit to start anew")
        passed = X
        reading = self._given_rows(X, sample_weight, reset=False)
        shown, at_work = stages_printed(self.verbose), Workers(self.n_jobs)
        with shown, reading as (X, weights), at_work as workers:
            progress.rows.check(X, weights)
            return resume_fit(self, CallRows(passed, y, X, weights), workers, progress)

    def elbo(self, X):
        """Untempered evidence lower bound of X in nats, every constant included.

        X is taken for the whole data set: the divergence of the globals is subtracted once.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the kind that was fitted.

        Returns
        -------
        float
            Nats for all of X.
        """
        fitted = self._require_fitted()
        reading = self._given_rows(X, None, reset=False)
        with reading as (X, weights), Workers(self.n_jobs) as workers:
            data = rows_of(X, weights)
            return evaluate_bound(self._model_for_bounds(), fitted.stats, data, workers)

    def _without_rows(self):
        """Return a copy for predictions in other processes, without memos and callbacks."""
        copy = object.__new__(type(self))
        left_out = "_progress", "_skl_callbacks"
        vars(copy).update({name: value for name, value in vars(self).items()
                           if name not in left_out})  # fmt: skip
        copy._fitted = self._fitted.without_rows()
        return copy

    def _model_for_bounds(self):
        """Return the model by which bounds of other rows are evaluated."""
        return self._fitted.model

    def _refuse_changes(self, whom, names, remedy):
        """Raise ValueError if one of these parameters differs from that of the last call."""
        for name in names:
            begun, now = self._fitted.parameters[name], getattr(self, name)
            if not _is_same(begun, now):
                raise ValueError(
                    f"{whom} continues the model fitted before, with {name}={begun!r}. Got "
                    f"{name}={now!r}; set it back, or {remedy}."
                )

    def _take_on_changes(self, fitted, X, weights):
        """Apply parameters changed since the last call, once they are checked."""
        now = self._values()
        changed = [name for name in now if not _is_same(fitted.parameters.get(name), now[name])]
        if not changed:
            return
        # scikit-learn validates parameters in the first call of partial_fit only
        self._validate_params()
        self._refuse_changes("partial_fit", self._fixed_in_streams, "fit a clone to start anew")
        if not set(changed) <= _FREE_TO_CHANGE:
            fitted.model = self._build_model(X, weights, fitted.model)
        fitted.parameters = self._parameters()

    def _continues(self):
        return getattr(self, "warm_start", False) and hasattr(self, "_fitted")

    def _result_for_display(self):
        """Return what notebooks show of a fit: a title, names of columns, and rows in order."""
        return f"after {self.history_['n_iter'][-1]} iterations", (), ()

    def _html_repr(self):
        diagram = super()._html_repr()
        is_fitted = self.__sklearn_is_fitted__()
        return with_result(diagram, *self._result_for_display()) if is_fitted else diagram

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._reads.missing
        tags.input_tags.sparse = self._reads.sparse
        tags.input_tags.positive_only = self._reads.adds_up
        tags.input_tags.string = tags.input_tags.categorical = self._reads.needs_scan
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return len(self.components_)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_fitted")

    def _rng_of_draws(self, random_state):
        """Generator for draws after a fit; None uses the estimator's ``random_state``."""
        seed = self.random_state if random_state is None else random_state
        return np.random.default_rng(check_random_state(seed).randint(np.iinfo(np.int32).max))

    def _require_fitted(self):
        check_is_fitted(self)
        return self._fitted

    @of_fit
    def n_batch_iter_(self, fitted):
        """Global updates made so far."""
        return fitted.state.n_steps

    @of_fit
    def temperature_(self, fitted):
        """Temperature T of the last step, the mean over its rows; at 1 the fit is not tempered."""
        return float(fitted.policy.temperature)

    @of_fit
    def history_(self, fitted):
        """Records of each pass of ``fit`` and call of ``partial_fit``, as a dict of lists."""
        return fitted.history.lists()

    @of_fit
    def elbo_(self, fitted):
        """Evidence lower bound of the data of ``fit`` in nats."""
        elbo = fitted.elbo
        if elbo is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'elbo_' during a fit and "
                f"after {self._loses_bound}: it is the bound of all rows, which are not "
                "available then. "
                "elbo(X) is the bound of the rows X."
            )
        return elbo


def _copied(value):
    """Copy the lists, tuples, estimators and arrays in the value of a parameter.

    Other objects, such as selectors of columns, are not copied: a copy would not be equal to the
    original.
    """
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value))
    if isinstance(value, BaseEstimator):
        return type(value)(
            **{name: _copied(part) for name, part in value.get_params(deep=False).items()}
        )
    return value.copy() if isinstance(value, np.ndarray) else value


def _is_same(one, other):
    """Return whether two values of a parameter are equal; arrays are compared by element."""
    if one is other:
        return True
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, BaseEstimator) and type(one) is type(other):
        return _is_same(list(one.get_params().items()), list(other.get_params().items()))
    if np.ndim(one) == np.ndim(other) == 0:
        return bool(one == other)
    return np.shape(one) == np.shape(other) and bool(np.array_equal(one, other))
