"""The base of all estimators: ``fit``, ``partial_fit`` and ``resume``.

The methods read rows and check parameters. :mod:`skvt.fitting._fit` makes the passes of a fit, and
:mod:`skvt.fitting._stream` makes the steps of a *stream*, that is, of a sequence of calls of
``partial_fit``. The attribute ``_fitted`` of an estimator is the outcome of the calls so far, a
:class:`~skvt.fitting._fitted.Fitted`. Functions take such an outcome as the argument ``fitted``, or
as ``before`` if it is the outcome before the current call.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvt._sklearn_private import CallbackSupportMixin
from skvt._stages import reporting_stages
from skvt.fitting._changes import refuse_changes
from skvt.fitting._display import with_result
from skvt.fitting._fit import resume_fit, run_fit
from skvt.fitting._fitted import fitted_property
from skvt.fitting._restarts import SameModel
from skvt.fitting._resume import require_progress
from skvt.fitting._rows import open_rows
from skvt.fitting._stream import update
from skvt.fitting._twin import all_or_nothing
from skvt.inference import evaluate_bound, make_rows
from skvt.readers import Reader, warn_of_weights
from skvt.readers.labels import RowLabels, refuse_labels
from skvt.readers.validation import list_names


@dataclass(eq=False, repr=False, kw_only=True)
class VariationalEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of all estimators.

    A subclass defines

    - ``_reader_class``, the class of its reader;
    - ``_build_model(X, weights, old=None)``, which returns the model for rows like X. In a warm
      start or after a change of parameters, the model keeps what the model ``old`` has learned;
    - ``_plan(model, X, weights, *, stream=False)``, which returns the :class:`Plan` of a fit to
      these rows or of a call of ``partial_fit``;
    - its parameters, as annotated attributes, with the decorator `estimator`. The parameters of
      this class are added to them.
    """

    n_init: int = 1
    warm_start: bool = False
    n_jobs: int | None = None
    verbose: int = 0
    verbose_interval: int | None = None
    random_state: np.random.RandomState | int | None = None

    # The decorator `estimator` sets the following three attributes from the annotations.
    # Legal values of the parameters, by name, in the form that scikit-learn validates.
    _parameter_constraints = {}
    # Names of parameters that cannot change in warm starts.
    _fixed_parameters = ()
    # Names of parameters that cannot change within a stream.
    _fixed_in_streams = ()
    # Whether ``y`` of ``fit`` has the classes of rows. In some mixtures this is a parameter.
    use_labels = False
    # Under metadata routing, ``score`` takes the weights that a search passes, unless the user
    # requests otherwise. Without this default, scikit-learn 1.9 scores pipelines as NaN, and a
    # search over a single estimator fails.
    __metadata_request__score = {"sample_weight": True}
    # Names of the methods after which the bound is not known, for the error message of ``elbo_``.
    _methods_without_bound = "partial_fit"
    # ``_restarts(seeds, fit)`` returns the :class:`~skvt.fitting._restarts.Restarts` of a fit, the
    # rule that decides which start follows; ``fit`` is the :class:`~skvt.fitting._fit.Fit`.
    _restarts = SameModel
    # Method that builds the model of the first rows of a stream; None stands for `_build_model`.
    _build_model_of_stream = None
    # The :class:`~skvt._results.Covariates` that encode the covariates of rows, or None.
    _covariates = None
    # Class of the reader, which checks rows and converts them to numbers.
    _reader_class = Reader
    # Package and address to which the diagram of scikit-learn links.
    _doc_link_module = "skvt"
    _doc_link_template = (
        "https://skvt.readthedocs.io/en/latest/generated/skvt.{estimator_name}.html"
    )

    @classmethod
    @cache
    def _get_param_names(cls):
        # The result is cached, because scikit-learn inspects the signature for a millisecond in
        # each call.
        return super()._get_param_names()

    # --------------------------------------------------- methods that subclasses override
    def _attributes_of_model(self, model):
        """Return the public attributes that are set from the fitted model after a call, by name.

        Other results are properties, which are computed when they are read.
        """
        return {}

    def _row_results(self, rows, workers):
        """Return the fields of :class:`Fitted` that hold results of single rows, by name.

        ``rows`` are the :class:`CallRows` of the last call, and ``workers`` are the threads of this
        call. The method is called after all other attributes were set.
        """
        return {}

    def _get_shown_fit(self, fitted):
        """Return the fit that attributes and predictions show.

        A mixture with a background, for instance, shows the fit without this component.
        """
        return fitted

    def _adapt_fit(self, fitted, X, weights):
        """Return ``fitted`` after a change that new rows X may need.

        For instance, the first rows with missing values may need another model.
        """
        return fitted

    def _with_details(self, rows, details, used, *, reset):
        """Return ``rows.X`` with details of the rows, such as covariates.

        ``details`` are further arguments of the call by name. They have an entry for each row that
        the caller passed, but ``rows`` has only the rows of positive weight, whose entries ``used``
        selects. ``reset`` tells whether the rows begin a fit.
        """
        return rows.X

    def _gathers_small_calls(self, before=None):
        """Return whether rows of small calls of ``partial_fit`` are gathered to larger batches.

        They are gathered for births, which need large batches. Calls with labels are not gathered,
        because labels are not kept. ``before`` is the outcome before the call.
        """
        is_online = getattr(self, "learning_method", "online") == "online"
        has_births = "birth" in getattr(self, "moves", ()) and not is_online
        return has_births and not self.use_labels

    def _model_for_bounds(self):
        """Return the model with which ``elbo`` evaluates the bound of the rows passed to it."""
        return self._fitted.model

    # --------------------------------------------------------------------------------- fit
    @all_or_nothing
    def fit(self, X, y=None, sample_weight=None):
        """Fit to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows. The model decides whether they may be a sparse matrix, have missing values (NaN,
            and None and NA in data frames), or have columns of other types than numbers.
        y : array-like of shape (n_samples,), optional
            The classes of rows, -1 where unknown, if ``use_labels=True``, a parameter that some
            mixtures have. Otherwise ignored.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts as w equal rows, with two exceptions: a local step that draws
            random numbers draws them once for each row, and minibatches are drawn regardless of
            weights. Weights of a survey must have a mean near 1: divide weights that add up to a
            population by their mean.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        ValueError
            If X has values that the model does not take, or too few rows; if numbers of the fit
            leave the range of floating point; or if parameters or their combination are illegal.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X, y, sample_weight, details=None):
        """Fit to all rows; only topic models take ``details``, see `_with_details`."""
        # Remove results of the last fit, which this fit may not replace.
        for name in ("_progress", "restart_elbos_"):
            vars(self).pop(name, None)
        # The outcome from which a warm start continues.
        before = self._fitted if self._is_warm_start() else None
        labels = RowLabels.from_rows(self, X, y, sample_weight, before)
        if before is not None:
            remedy = "set warm_start=False to start anew"
            refuse_changes(self, before, "A warm start", self._fixed_parameters, remedy)
        printing = reporting_stages(self.verbose)
        options = {"y": y, "labels": labels, "reset": before is None}
        with printing, open_rows(self, X, sample_weight, details, **options) as (rows, workers):
            if before is not None:
                # The reader of an earlier fit does not warn of weights. Chunks are not judged.
                if isinstance(rows.weights, np.ndarray):
                    warn_of_weights(rows.X, rows.weights)
                before = self._adapt_fit(before, rows.X, rows.weights)
            run_fit(self, rows, workers, before)
        return self

    def _read(self, X, details=None):
        """Return rows as numbers, converted by the reader of the fit; topic models add details."""
        self._fitted.reader.refuse_other_names(X, self._fitted.words)
        return self._fitted.reader.with_parameters(self).read(X)

    @all_or_nothing
    def partial_fit(self, X, y=None, sample_weight=None, batch_id=None):
        """Update on rows of a stream.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows, as in ``fit``. With memoized inference they are one batch, whose statistics are
            kept as its memo; otherwise a step is made for every ``batch_size`` rows.
        y : array-like of shape (n_samples,), optional
            The classes of rows, -1 where unknown, if ``use_labels=True``, a parameter that some
            mixtures have. New classes may appear. Otherwise ignored.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts as w equal rows.
        batch_id : hashable or None, default=None
            None adds X as a new batch. With the id of an earlier call, X replaces the batch of this
            id. The batches of ``fit`` have the ids 0, 1 and so on. Calls with the same ids can thus
            make several passes over batches on disk. Not used unless inference is memoized.

        Returns
        -------
        self : estimator
            The estimator after these rows.

        Notes
        -----
        A move is made only if the exact bound rises. Births are tried among the rows of a batch;
        calls of fewer than 500 rows are gathered to batches of at least 500 rows. Births are tried
        when a batch is complete and whenever it has grown by half. Births of a mixture wait for
        more rows if the new rows of a component are like its other rows.

        Components of a mixture are merged by the memos of all batches. Two topics are merged only
        if no other batch has both, as is the case with topics just added. A topic is deleted only
        if no other batch has it, and new topics may replace all such topics. Other moves need the
        rows of all batches, and only ``fit`` makes them.

        Priors, categories and everything else that ``fit`` takes from the data are taken from the
        first rows.
        """
        return self._partial_fit(X, y, sample_weight, batch_id)

    def _partial_fit(self, X, y, sample_weight, batch_id, details=None):
        """Update on rows of a stream; only topic models take ``details``."""
        before = vars(self).get("_fitted")
        labels = RowLabels.from_rows(self, X, y, sample_weight, before, in_stream=True)
        update(self, X, sample_weight, batch_id, details, labels)
        return self

    @all_or_nothing
    def resume(self, X, y=None, sample_weight=None):
        """Continue an interrupted fit; the result is the same as without the interruption.

        Call this method of an estimator that :func:`skvt.load` has read from a file written by
        :class:`skvt.callbacks.Checkpoint`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows of the interrupted fit, in the same order. Their shape, their type and a sample
            of them are compared with the rows of the interrupted fit.
        y : ignored
            Only passed to callbacks.
        sample_weight : array-like of shape (n_samples,), optional
            The weights of the rows in the interrupted fit.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If no fit was interrupted, if the rows differ from the interrupted fit, or if a
            parameter has changed. Only ``max_iter``, ``tol``, ``perp_tol``, ``evaluate_every``,
            ``verbose``, ``verbose_interval``, ``n_jobs`` and ``random_state`` may change, because
            the passes so far do not depend on them.

        Notes
        -----
        On the same machine with the same libraries, the result agrees to the last bit with the
        result of an uninterrupted fit; the guide lists the differences elsewhere. Files do not hold
        callbacks: set them again before the call.
        """
        return self._resume(X, y, sample_weight)

    def _resume(self, X, y, sample_weight, details=None):
        """Continue an interrupted fit; only topic models take ``details``."""
        self._require_fitted()
        refuse_labels(self, "resume")
        progress = require_progress(self)
        printing = reporting_stages(self.verbose)
        with printing, open_rows(self, X, sample_weight, details, y=y) as (rows, workers):
            progress.rows.check(rows.X, rows.weights)
            resume_fit(self, rows, workers, progress)
        return self

    def elbo(self, X):
        """Return the evidence lower bound of X at T = 1 in nats, with all constants.

        X counts as the whole data set: the Kullback-Leibler divergence of the global parameters
        from their prior is subtracted once.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows like those of the fit.

        Returns
        -------
        float
            The bound of all rows of X in nats.
        """
        return self._elbo(X)

    def _elbo(self, X, details=None):
        """Return the bound of X in nats; only topic models take ``details``."""
        self._require_fitted()
        with open_rows(self, X, details=details) as (rows, workers):
            data = make_rows(rows.X, rows.weights)
            return evaluate_bound(self._model_for_bounds(), self._fitted.stats, data, workers)

    def _without_rows(self):
        """Return a copy for predictions in other processes, without memos and callbacks.

        The copy is small, because it has no results of single rows.
        """
        copy = object.__new__(type(self))
        omitted = "_progress", "_skl_callbacks"
        vars(copy).update({name: vars(self)[name] for name in vars(self) if name not in omitted})
        copy._fitted = self._fitted.without_data_of_rows()
        return copy

    def _is_warm_start(self):
        """Return whether the interrupted fit is a warm start.

        If no fit was interrupted, return whether the next ``fit`` is a warm start.
        """
        progress = vars(self).get("_progress")
        if progress is not None:
            # The history of a warm start also has the passes of earlier fits.
            return len(self._fitted.history) > progress.start.position.n_passes
        return self.warm_start and hasattr(self, "_fitted")

    def _result_for_display(self):
        """Return the title, and the column names and rows of the table that notebooks show.

        If there are no column names, no table is shown.
        """
        return f"after {self.history_['n_iter'][-1]} iterations", (), ()

    def _html_repr(self):
        diagram = super()._html_repr()
        is_fitted = self.__sklearn_is_fitted__()
        return with_result(diagram, *self._result_for_display()) if is_fitted else diagram

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._reader_class.accepts_missing
        tags.input_tags.sparse = self._reader_class.accepts_sparse
        # ``adds_up`` is true for readers of counts, which must not be negative, and ``needs_scan``
        # for readers of tables, which may have texts.
        tags.input_tags.positive_only = self._reader_class.adds_up
        tags.input_tags.string = tags.input_tags.categorical = self._reader_class.needs_scan
        if tags.transformer_tags is not None:
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return len(self.components_)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_fitted")

    def _make_draw_rng(self, random_state):
        """Return a random number generator for draws after a fit.

        If ``random_state`` is None, the seed is the parameter ``random_state`` of the estimator.
        """
        seed = self.random_state if random_state is None else random_state
        return np.random.default_rng(check_random_state(seed).randint(np.iinfo(np.int32).max))

    def _require_fitted(self):
        """Return the fit that predictions use; raise NotFittedError before a fit."""
        check_is_fitted(self)
        return self._get_shown_fit(self._fitted)

    # ---------------------------------------------------------------------------- attributes
    @fitted_property
    def words_(self, fitted):
        """Names of the columns, (n_features,), from ``set_words`` or else the column names of X."""
        words = fitted.words
        if words is None:
            words = getattr(self, "feature_names_in_", None)
        if words is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'words_', because X had no "
                "column names. Call set_words(names), for example with adata.var_names or "
                "CountVectorizer().get_feature_names_out()."
            )
        return words.copy()

    def set_words(self, names):
        """Name the columns of X, which are words of documents, genes of cells, and so on.

        Tables, sentences, displays and reports then show the names. A fit of a data frame has names
        already. Sparse matrices, such as the counts of ``CountVectorizer``, and arrays have none.
        Functions such as :func:`skvt.topic_table` find the words of a pipeline in its earlier
        steps.

        Parameters
        ----------
        names : array-like of str of shape (n_features,), or mapping
            A distinct name for each column, such as ``CountVectorizer().get_feature_names_out()``,
            or ``adata.var_names``. A mapping has the name of each column by its number, as the
            Dictionary of gensim and its ``id2token``, or the number of the column of each name, as
            its ``token2id`` and ``vocabulary_`` of CountVectorizer.

        Returns
        -------
        self : estimator
            The same estimator. It keeps the names in files, ``partial_fit``, warm starts, and
            changes of topics. Another fit deletes the names.

        Raises
        ------
        ValueError
            Unless there is a string for each column, and all strings differ; and if a mapping has
            other numbers than those of the columns, which are 0 to ``n_features - 1``.

        Notes
        -----
        Methods still take rows with the columns of ``fit``. A data frame that has some of these
        names, but not all of them in their order, is an error, unless the fit had a data frame.

        Examples
        --------
        >>> from sklearn.feature_extraction.text import CountVectorizer
        >>> from skvt import TemperedLDA
        >>> vectorizer = CountVectorizer()
        >>> X = vectorizer.fit_transform(["cat mouse cat", "sun rain sun"] * 20)
        >>> lda = TemperedLDA(2, random_state=0).fit(X)
        >>> lda = lda.set_words(vectorizer.get_feature_names_out())
        >>> sorted(lda.top_words(1))
        [['cat'], ['sun']]
        """
        self._require_fitted()
        names = np.asarray(list_names(names, self.n_features_in_), dtype=object)
        example = "such as adata.var_names, or CountVectorizer().get_feature_names_out()"
        n_features = self.n_features_in_
        if names.shape != (n_features,):
            raise ValueError(
                f"names must be {n_features} strings, one for each column of X, {example}. Got an "
                f"array of shape {names.shape} instead."
            )
        not_strings = [name for name in names if not isinstance(name, str)]
        if not_strings:
            raise ValueError(f"names must be strings, {example}. Got {not_strings[0]!r} instead.")
        if len(set(names)) < len(names):
            repeated = max(names, key=names.tolist().count)
            raise ValueError(
                f"names must be distinct. Got {repeated!r} {names.tolist().count(repeated)} times; "
                "an AnnData has distinct names after adata.var_names_make_unique()."
            )
        # Change ``_fitted`` itself, because the shown fit lacks the background of a mixture.
        words = np.array(list(map(str, names)), dtype=object)
        self._fitted = replace(self._fitted, words=words)
        return self

    @fitted_property
    def n_batch_iter_(self, fitted):
        """Number of global updates so far."""
        return fitted.state.n_steps

    @fitted_property
    def temperature_(self, fitted):
        """Temperature T of the last step, 1 if the step is not tempered.

        If rows have separate temperatures, 1 / T is averaged over the rows of the step.
        """
        return float(fitted.policy.temperature)

    @fitted_property
    def history_(self, fitted):
        """Records of each pass of ``fit`` and call of ``partial_fit``, as a dict of lists."""
        return fitted.history.lists()

    @fitted_property
    def elbo_(self, fitted):
        """Evidence lower bound of the data of ``fit`` in nats."""
        if fitted.elbo is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'elbo_' during a fit and after "
                f"{self._methods_without_bound}: it is the bound of all rows of the fit, which are "
                "not kept. elbo(X) is the bound of the rows X."
            )
        return fitted.elbo
