"""Checks that the parts of an estimator that was read from a file fit together.

Compiled loops do not check the shapes of their arguments, so that an array of another shape could
crash the process. Conditions on a single object are declared with its class, see `skvt.files`; this
module compares objects with each other. The shapes of arrays are checked before anything is
computed from the arrays.

An estimator has the outcome of its fit as ``_fitted``, a :class:`skvt.fitting._fitted.Fitted`. Its
parts are the ``model`` with the priors, the ``state`` with the statistics, from which the posterior
of the K components follows, and the ``policy``, which sets the temperature. In memoized inference
the state also has a *memo* of each batch of rows: the statistics and entropies of the batch.
"""

import operator

import numpy as np

from skvt.expfam import are_float_arrays
from skvt.files import LARGEST, REGISTRY, are_indices_below, are_like, check_fields, is_positive
from skvt.io._archive import PART_SIZE, FileError
from skvt.io._classes import conforms, get_class_name
from skvt.progress import RULES, ResumableMixin

# Largest legal parameter of q(beta) of a topic: 1000 times the largest legal sum of counts.
_MAX_TOPIC_PARAMETER = 1e3 * LARGEST


def check_estimator(estimator, max_bytes):
    """Raise FileError unless the estimator's parts fit together.

    ``max_bytes`` is the number of bytes of memory that loading may take.
    """
    attributes = vars(estimator)
    cls = type(estimator)
    declaration = REGISTRY[get_class_name(cls)]
    required_names = {*cls._get_param_names(), "_fitted", "n_features_in_", *declaration.attributes}
    missing_names = sorted(required_names - set(attributes))
    _require(not missing_names, f"The estimator lacks {', '.join(missing_names)}.")
    estimator._validate_params()
    fitted = attributes["_fitted"]
    _check_fitted(fitted, estimator, max_bytes)
    if attributes.get("_progress") is not None:
        _check_progress(attributes["_progress"], estimator, max_bytes)
    _check_column_names(attributes.get("feature_names_in_"), estimator.n_features_in_)
    covariates = estimator._covariates
    model = fitted.model
    # The regression of the prior of documents on their covariates.
    regression = getattr(model, "regression", None)
    if covariates is None:
        # Without covariates, a regression is legal only if documents have allowed topics, and only
        # if an intercept, which is in group 0, is its only coefficient.
        regression_is_legal = regression is None or (
            model.topic_groups is not None and np.array_equal(regression.groups, [0])
        )
    else:
        regression_is_legal = covariates.is_legal_for(regression, model.topic_groups is not None)
    _require(
        regression_is_legal,
        "The coefficients of the documents' prior do not belong to the covariates of the fit.",
    )
    if "_table" in attributes:
        # The estimator was fitted to a table, whose columns may be of any type.
        matches_table = estimator._table.describes(model.component, attributes.get("priors_") or ())
        _require(matches_table, "The description of the table's columns does not match the model.")


def _require(condition, message):
    """Raise FileError with the ``message`` unless the condition is true."""
    if not condition:
        raise FileError(message)


def _check_column_names(names, n_features):
    """Raise FileError unless ``names`` is None or an array with a string for each column."""
    if names is not None:
        are_texts = names.shape == (n_features,) and {*map(type, names.tolist())} == {str}
        _require(are_texts, f"The names of the {n_features} columns must be as many strings.")


# ------------------------------------------------------------------------- the outcome of a fit
def _check_fitted(fitted, estimator, max_bytes):
    """Raise FileError unless the parts of the outcome of a fit are legal and fit together."""
    model, state, n_features = fitted.model, fitted.state, estimator.n_features_in_
    _check_parts_of_fit(fitted, estimator)
    K = _count_components(model, state.stats)
    for part in (model, fitted.policy):
        check_fields(part, n_features, K)
    shapes = _get_statistics_shapes(model, K, state.stats)
    _check_statistics(fitted, estimator, K, shapes)
    _check_state(fitted, K, shapes, max_bytes)
    # The posterior can be computed, because the checks above found all shapes legal.
    # ``plain_stats`` are the statistics that count each row once.
    is_proper = all(_iterate_posterior_checks(model, state.plain_stats))
    _require(is_proper, "The parameters of the posterior are not those of a distribution.")
    # If a mixture has a background component, attributes and predictions show the fit without this
    # component, and rows of the background have the label -1.
    shown_fit = estimator._get_shown_fit(fitted)
    n_shown_components = _count_components(shown_fit.model, shown_fit.stats)
    check_fields(fitted.joins, n_features, n_shown_components)
    smallest_label = 0 if shown_fit is fitted else -1
    # Legal labels are smallest_label, ..., n_shown_components - 1. Shift them to begin at 0.
    n_legal_labels = n_shown_components - smallest_label
    _require(
        fitted.labels is None or are_indices_below(fitted.labels - smallest_label, n_legal_labels),
        f"Labels of rows must be in the range [{smallest_label}, {n_shown_components}).",
    )


def _check_parts_of_fit(fitted, estimator):
    """Raise FileError unless the parts of a fit have legal classes, columns, and parameters."""
    model, n_features = fitted.model, estimator.n_features_in_
    declaration = REGISTRY[get_class_name(type(estimator))]
    class_name = declaration.cls.__name__
    # A path is a chain of attributes, such as "model.weights".
    for path, legal_classes in declaration.fitted.items():
        part_class = type(operator.attrgetter(path)(fitted))
        _require(
            part_class in legal_classes,
            f"The {path} of {class_name} cannot be of class {part_class.__name__}.",
        )
    has_columns = model.n_features == n_features and n_features >= 1
    _require(
        has_columns,
        f"The model has {model.n_features} columns, but the estimator has "
        f"n_features_in_={n_features}.",
    )
    _check_column_names(fitted.words, n_features)
    unknown = set(fitted.parameters) - set(estimator._get_param_names())
    _require(
        not unknown,
        f"The fit has parameters that {class_name} does not have: {sorted(map(str, unknown))}.",
    )


def _check_statistics(fitted, estimator, K, shapes):
    """Raise FileError unless statistics have the ``shapes``, and results have K components."""
    model, state, gathered = fitted.model, fitted.state, fitted.gathered
    _require(
        gathered is None
        or gathered.are_legal(type(estimator)._reader_class, estimator.n_features_in_),
        "The rows that a stream has gathered from small calls do not have the form of its rows.",
    )
    _require(
        state.stats.are_legal(shapes),
        f"The statistics must have the shapes {shapes} and the sums that are stored with them.",
    )
    # ``start`` has the initial values that the user passed: None, topics, or statistics, whose
    # number of components `are_like` ignores.
    start = getattr(model, "start", None)
    start_is_legal = not hasattr(start, "arrays") or are_like(start.arrays, shapes)
    # ``initial`` has statistics of K components, which represent rows before their first visit, or
    # None after the first pass.
    initial = getattr(state, "initial", None)
    _require(
        start_is_legal and (initial is None or are_float_arrays(initial.arrays, shapes)),
        f"The initial statistics do not have the shapes {shapes}.",
    )
    _require(
        fitted.assignments is None or fitted.assignments.shape[1:] == (K,),
        f"The assignments of rows must have a column for each of the {K} components.",
    )


def _check_state(fitted, K, shapes, max_bytes):
    """Raise FileError unless counters and seed, statistics of priors, and memos are legal.

    Counters, such as the number of steps, say how far the fit has come.
    """
    model, state = fitted.model, fitted.state
    positive_numbers = state.stats.scale, state.replication, state.inv_temp, fitted.n_rows
    _require(
        is_positive(positive_numbers)
        and 0.0 <= state.n_lacking_steps <= state.n_steps
        and 0.0 <= state.rows_seen < np.inf
        and state.seed >= 0,
        "Numbers of rows and steps, the seed, or the temperature of the fit are out of range.",
    )
    regression = getattr(model, "regression", None)
    prior_shape = (K,) if regression is None else regression.statistics_shape
    _require(
        # The sum over rows is a number before the first row was added to it.
        np.shape(state.prior_stats.total) in ((), prior_shape),
        f"The statistics from which priors are learned do not have the shape {prior_shape}.",
    )
    memos = getattr(state, "memos", None)
    if memos is not None:
        # Components have identifiers as soon as a batch has a memo.
        has_ids = not memos or state.component_ids.shape == (K,)
        _require(
            memos.are_legal(shapes, len(state.stats.arrays[0]), max_bytes) and has_ids,
            "The sums and entropies of batches do not fit the statistics.",
        )


def _count_components(model, stats):
    """Return K: ``n_components`` of the model, or else the length of the first array of ``stats``.

    Models that can get or lose components have no ``n_components``.
    """
    return getattr(model, "n_components", len(stats.arrays[0]))


def _get_statistics_shapes(model, n_components, stats):
    """Return the legal shapes of the arrays of statistics for K = ``n_components``.

    A model of a user may declare no shapes. Any shapes are then legal, so that the shapes of
    ``stats`` are returned.
    """
    if hasattr(model, "statistics_shapes"):
        return model.statistics_shapes(n_components)
    return [array.shape for array in stats.arrays]


def _iterate_posterior_checks(model, stats):
    """Yield for each part of the posterior whether its parameters ``lam`` are legal.

    ``lam`` are the parameters of the prior plus the statistics, which are ``stats.scale`` times the
    stored arrays. ``lam`` of a mixture and of topics is computed in parts, to avoid a copy of all
    statistics.
    """
    arrays = stats.arrays
    if hasattr(model, "topic_word_prior"):
        # The model is a topic model. Its first statistics are the counts of words in topics. If the
        # model has sticks, the weights of topics in an HDP, the counts are (K, n_features) and the
        # second statistics belong to the sticks. Otherwise the counts are (n_features, K).
        counts = arrays[0]
        eta = model.topic_word_prior
        has_sticks = len(arrays) > 1
        if has_sticks:
            counts = counts.T
            # `find_best` returns the parameters of the posterior of the sticks.
            yield is_positive(model.sticks.find_best(stats.scale * arrays[1]))
        n_words = max(1, PART_SIZE // counts.shape[1])
        for first_word in range(0, len(counts), n_words):
            word_slice = slice(first_word, first_word + n_words)
            # The prior of words is (n_words, K), or (n_words,) if it is the same in all topics.
            prior = eta[word_slice]
            prior = prior if prior.ndim == 2 else prior[:, None]
            lam = stats.scale * counts[word_slice] + prior
            yield is_positive(lam) and lam.max() <= _MAX_TOPIC_PARAMETER
    elif hasattr(model, "component"):
        # The model is a mixture. Its statistics are statistics of the weights, such as the counts
        # of rows of the components, and the sums of features of each component. A distribution is
        # proper if its log normalizer is finite.
        weights_stats, feature_sums = arrays
        weights, component = model.weights, model.component
        yield np.isfinite(component.family.log_normalizer(component.prior)).all()
        yield is_positive(weights.natural_parameters(stats.scale * weights_stats))
        for component_sums in feature_sums:
            lam = component.natural_parameters(stats.scale * component_sums[None])
            yield np.isfinite(component.family.log_normalizer(lam)).all()
    else:
        for family, lam in zip(model.families, model.natural_parameters(stats), strict=True):
            # The log normalizer of gammas may be finite for parameters that are not positive.
            yield family.__name__ != "Gamma" or is_positive(lam)
            yield np.isfinite(family.log_normalizer(lam)).all()


# ------------------------------------------------------------------------------ interrupted fits
def _check_progress(progress, estimator, max_bytes):
    """Raise FileError unless the progress of an interrupted fit is legal for the estimator.

    ``progress`` is a :class:`skvt.fitting._resume.Progress`. A fit makes one or more starts, each
    from other random initial values.
    """
    fitted = estimator._fitted
    state, model = fitted.state, fitted.model
    n_rows, n_features = progress.rows.shape
    # The outcomes of the starts that have ended, and the start that was interrupted.
    outcomes, interrupted = progress.outcomes, progress.start
    best = outcomes.best
    _require(
        n_rows >= 1 and n_features == estimator.n_features_in_,
        f"The interrupted fit has rows of shape {progress.rows.shape}, but the estimator has "
        f"n_features_in_={estimator.n_features_in_}.",
    )
    # A fit has at least one seed, and seeds are not negative.
    _require(
        min(progress.seeds, default=-1) >= 0 and interrupted.n_starts > len(outcomes.elbos),
        "The interrupted fit has no start left to resume.",
    )
    _require(
        (best is None) == (not outcomes.elbos)
        and len(outcomes.kinds) == len(outcomes.elbos)
        and min(interrupted.position.n_passes, interrupted.n_moves) >= 0,
        "The bounds, kinds and numbers of passes of the starts of the interrupted fit disagree.",
    )
    if best is not None:
        is_outcome = get_class_name(type(best)) == "estimators.Fitted" and best.elbo is not None
        _require(is_outcome, "The best start of the interrupted fit is not a fit with a bound.")
        _check_fitted(best, estimator, max_bytes)
    K = _count_components(model, state.stats)
    # A policy that learns a temperature of each row keeps an energy of each row.
    energies = getattr(fitted.policy, "_energies", None)
    _require(
        (progress.row_starts is None or progress.row_starts.shape == (n_rows, K))
        and (energies is None or len(energies) == n_rows),
        f"Initial values or temperatures of rows are not those of the {n_rows} rows.",
    )
    rule_arguments = _get_statistics_shapes(model, K, state.stats), K, state.n_full_steps
    for name in ("engines", "after_pass"):
        _check_list_of_parts(name, progress.engine[name], rule_arguments)


def _check_list_of_parts(name, parts, rule_arguments):
    """Raise FileError unless ``parts`` is a list of legal dicts of attributes.

    An interrupted fit keeps such a dict for each engine, for each step after a pass, and for each
    move. ``name`` is the name of the list in the error. ``rule_arguments`` are the arguments of the
    functions in `RULES` after the checked value: the shapes of the statistics, K, and the number of
    full steps, which may be a fraction.
    """
    _require(
        conforms(parts, list[dict]),
        f"{name!r} of the interrupted fit must be a list of dictionaries.",
    )
    for kept_values in parts:
        _check_kept_values(kept_values, rule_arguments)


def _check_kept_values(values, rule_arguments):
    """Raise FileError unless a subclass of `ResumableMixin` may keep ``values``.

    ``values`` has the values of attributes by name. A file does not name their class, so that any
    subclass with attributes of the same names and types is accepted.
    """
    subclasses = _iterate_subclasses(ResumableMixin)
    cls = next((cls for cls in subclasses if _may_keep(cls, values, rule_arguments)), None)
    _require(
        cls is not None,
        f"No engine, step or move remembers {sorted(map(str, values))} with values of such "
        "types and shapes.",
    )
    for name in set(values) & cls.kept_parts:
        _check_list_of_parts(name, values[name], rule_arguments)


def _may_keep(cls, values, rule_arguments):
    """Return whether objects of a class may keep the attributes ``values``.

    Names and types must be as the class declares. ``values`` may lack attributes that have a
    default.
    """
    names = {*cls.kept_attributes, *cls.kept_parts}
    have_defaults = all(hasattr(cls, name) for name in names - set(values))
    has_legal_names = set(values) <= names and have_defaults
    return has_legal_names and all(
        _follows_hint(values[name], cls.kept_attributes[name], rule_arguments)
        for name in set(values) & set(cls.kept_attributes)
    )


def _follows_hint(value, hint, rule_arguments):
    """Return whether a value is of the type ``hint`` and follows the `RULES` that it names.

    For instance, ``Annotated[Any, "rate"]`` is any type with the rule "rate".
    """
    rules = getattr(hint, "__metadata__", ())
    return conforms(value, hint) and all(RULES[rule](value, *rule_arguments) for rule in rules)


def _iterate_subclasses(cls):
    """Yield the direct and indirect subclasses of a class."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _iterate_subclasses(subclass)
