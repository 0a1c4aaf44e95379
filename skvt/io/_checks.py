"""Checks that the parts of an estimator in a file fit together.

The checks are needed, because compiled loops rely on the shapes of their arguments. Conditions on a
single object are declared with its class, see `skvt.files`; this module compares objects with each
other. The shapes of arrays are checked before anything is computed from the arrays. K is the number
of components. A memo has the statistics of one batch of rows.
"""

import operator

import numpy as np

from skvt.expfam import are_float_arrays
from skvt.files import IN_FILES, LARGEST, are_like, check_fields, is_positive, is_within
from skvt.io._archive import PART_SIZE, FileError
from skvt.io._classes import conforms, get_class_name
from skvt.progress import RULES, ResumableMixin

# Largest legal parameter of q(beta) of a topic: 1000 times the largest legal sum of counts.
_LARGEST_TOPIC_PARAMETER = 1e3 * LARGEST


def check_estimator(estimator, memory):
    """Raise FileError unless the estimator's parts fit together.

    ``memory`` is the number of bytes that loading may take.
    """
    values = vars(estimator)
    entry = IN_FILES[get_class_name(type(estimator))]
    required = {*type(estimator)._get_param_names(), "_fitted", "n_features_in_", *entry.attributes}
    missing = sorted(required - set(values))
    _require(not missing, f"The estimator has no {missing[:1]}.")
    estimator._validate_params()
    fitted = values["_fitted"]
    _check_fitted(fitted, estimator, memory)
    if values.get("_progress") is not None:
        _check_progress(values["_progress"], estimator, memory)
    _check_names(values.get("feature_names_in_"), estimator.n_features_in_)
    covariates = estimator._covariates
    model = fitted.model
    regression = getattr(model, "regression", None)
    if covariates is None:
        # Without covariates, a regression is legal only in a model with allowed topics, and must
        # have the intercept as its only column.
        legal = regression is None or (
            model.topic_groups is not None and np.array_equal(regression.groups, [0])
        )
    else:
        legal = covariates.describes(regression, model.topic_groups is not None)
    _require(legal, "Coefficients of the document prior are those of other covariates.")
    if "_table" in values:
        priors = values.get("priors_") or ()
        legal = estimator._table.describes(model.component, priors)
        _require(legal, "The table is not that of the model.")


def _require(condition, message):
    """Raise FileError with this message unless the condition is true."""
    if not condition:
        raise FileError(message)


def _check_names(names, n_features):
    """Raise FileError unless ``names`` is None or has a text for each of the columns."""
    if names is not None:
        legal = names.shape == (n_features,) and {*map(type, names.tolist())} == {str}
        _require(legal, "Names of features are not one for each.")


# ------------------------------------------------------------------------- the outcome of a fit
def _check_fitted(fitted, estimator, memory):
    """Raise FileError unless the parts of the outcome of a fit are legal and fit together."""
    model, state, n_features = fitted.model, fitted.state, estimator.n_features_in_
    entry = IN_FILES[get_class_name(type(estimator))]
    # Check the classes of parts, the numbers of columns, and the rules of fields.
    for path, classes in entry.fitted.items():
        part = operator.attrgetter(path)(fitted)
        legal = type(part) in classes
        _require(legal, f"{entry.cls.__name__} has no {path} of {type(part).__name__}.")
    legal = model.n_features == n_features >= 1
    _require(legal, f"The model has {model.n_features} columns, not {n_features}.")
    _check_names(fitted.words, n_features)
    legal = set(fitted.parameters) <= set(estimator._get_param_names())
    _require(legal, f"Parameters of the fit are {sorted(map(str, fitted.parameters))}.")
    k = _number_of_components(model, state.stats)
    for part in (model, fitted.policy):
        check_fields(part, n_features, k)
    # Check the rows that a stream has gathered, the statistics, and the results of rows.
    shapes = _shapes_of_statistics(model, k, state.stats)
    if fitted.gathered is not None:
        legal = fitted.gathered.are_legal(type(estimator)._reader_class, n_features)
        _require(legal, "The rows of small calls of the stream are not legible.")
    legal = state.stats.are_legal(shapes)
    _require(legal, f"Statistics do not have the shapes {shapes}, or not their sums.")
    # The start is None, an array of topics, or statistics, which may have another K.
    start = getattr(model, "start", None)
    initial = getattr(state, "initial", None)
    legal = not hasattr(start, "arrays") or are_like(start.arrays, shapes)
    legal = legal and (initial is None or are_float_arrays(initial.arrays, shapes))
    _require(legal, "Initial statistics of other shapes.")
    legal = fitted.assignments is None or fitted.assignments.shape[1:] == (k,)
    _require(legal, "Assignments to other components.")
    # Check the state: its position in the fit, the statistics of priors, and memos.
    positive_numbers = state.stats.scale, state.replication, state.inv_temp, fitted.n_rows
    legal = is_positive(positive_numbers) and min(state.n_steps, state.seed) >= 0
    _require(legal, "The position in the fit is not legible.")
    regression = getattr(model, "regression", None)
    prior_shape = (k,) if regression is None else regression.statistics_shape
    legal = np.shape(state.prior_stats.total) in ((), prior_shape)
    _require(legal, "Priors are learned from statistics of other components.")
    memos = getattr(state, "memos", None)
    if memos is not None:
        legal = memos.are_legal(shapes, len(state.stats.arrays[0]), memory)
        legal = legal and (not memos or state.component_ids.shape == (k,))
        _require(legal, "Memos are not those of the statistics.")
    # All shapes are legal now, so that the posterior can be computed.
    legal = all(_posterior_checks(model, state.plain_stats))
    _require(legal, "The posterior is no distribution.")
    # Check results of the components that are shown. The label of the background is -1.
    shown = estimator._get_shown_fit(fitted)
    n_shown = _number_of_components(shown.model, shown.stats)
    check_fields(fitted.joins, n_features, n_shown)
    least = 0 if shown is fitted else -1
    legal = fitted.labels is None or is_within(fitted.labels - least, n_shown - least)
    _require(legal, "Labels of components that are not there.")


def _number_of_components(model, stats):
    """Return K: ``n_components`` of the model, or else the length of the first statistics."""
    return getattr(model, "n_components", len(stats.arrays[0]))


def _shapes_of_statistics(model, n_components, stats):
    """Return the legal shapes of the arrays of statistics.

    If a model of a user does not declare shapes, any shapes are legal.
    """
    if hasattr(model, "statistics_shapes"):
        return model.statistics_shapes(n_components)
    return [array.shape for array in stats.arrays]


def _posterior_checks(model, stats):
    """Yield for each part of the posterior whether its parameters are legal.

    Topics are checked some words at a time, to avoid a copy of the whole array.
    """
    arrays = stats.arrays
    if hasattr(model, "topic_word_prior"):
        # The model is a topic model. If it has sticks, its counts of words are (K, n_features),
        # otherwise (n_features, K).
        counts = arrays[0]
        eta = model.topic_word_prior
        if len(arrays) > 1:
            counts = counts.T
            yield is_positive(model.sticks.find_best(stats.scale * arrays[1]))
        n_words = max(1, PART_SIZE // counts.shape[1])
        for start in range(0, len(counts), n_words):
            prior = eta[start : start + n_words]
            prior = prior if prior.ndim == 2 else prior[:, None]
            lam = stats.scale * counts[start : start + n_words] + prior
            yield is_positive(lam) and lam.max() <= _LARGEST_TOPIC_PARAMETER
    elif hasattr(model, "component"):
        # The model is a mixture.
        # A distribution is proper if its log normalizer is finite.
        weights, component = model.weights, model.component
        yield np.isfinite(component.family.log_normalizer(component.prior)).all()
        yield is_positive(weights.natural_parameters(stats.scale * arrays[0]))
        for sums in arrays[1]:
            lam = component.natural_parameters(stats.scale * sums[None])
            yield np.isfinite(component.family.log_normalizer(lam)).all()
    else:
        for family, lam in zip(model.families, model.natural_parameters(stats), strict=True):
            # Parameters of gammas must also be positive.
            yield family.__name__ != "Gamma" or is_positive(lam)
            yield np.isfinite(family.log_normalizer(lam)).all()


# ------------------------------------------------------------------------------ interrupted fits
def _check_progress(progress, estimator, memory):
    """Raise FileError unless the state of an interrupted fit is legal for the estimator."""
    fitted = estimator._fitted
    state, model = fitted.state, fitted.model
    n_rows, n_features = progress.rows.shape
    # ``outcomes`` are of the starts that have ended, and ``start`` was interrupted.
    outcomes, start = progress.outcomes, progress.start
    best = outcomes.best
    legal = n_rows >= 1 and n_features == estimator.n_features_in_
    _require(legal, f"An interrupted fit to rows of shape {progress.rows.shape}.")
    legal = min(progress.seeds, default=-1) >= 0 and start.n_starts > len(outcomes.elbos)
    _require(legal, "The interrupted fit has no start left to resume.")
    legal = (best is None) == (not outcomes.elbos) and len(outcomes.kinds) == len(outcomes.elbos)
    legal = legal and min(start.position.n_passes, start.n_moves) >= 0
    _require(legal, "The starts of the fit are not legible.")
    if best is not None:
        legal = get_class_name(type(best)) == "estimators.Fitted" and best.elbo is not None
        _require(legal, "The best start is not legible.")
        _check_fitted(best, estimator, memory)
    k = _number_of_components(model, state.stats)
    legal = progress.row_starts is None or progress.row_starts.shape == (n_rows, k)
    # A temperature policy may keep an energy of each row.
    legal = legal and len(getattr(fitted.policy, "_energies", range(n_rows))) == n_rows
    _require(legal, "Starts or temperatures of other rows.")
    sizes = _shapes_of_statistics(model, k, state.stats), k, state.n_steps
    for name in ("engines", "after_pass"):
        _check_parts(name, progress.engine[name], sizes)


def _check_parts(name, parts, sizes):
    """Raise FileError unless ``parts`` is a list of legal data of engines, steps or moves.

    The error calls the parts ``name``. ``sizes`` are the arguments that `RULES` take after the
    value: the shapes of the statistics, K, and the number of steps.
    """
    _require(conforms(parts, list[dict]), f"{name!r} is not what parts of an engine remember.")
    for data in parts:
        _check_data(data, sizes)


def _check_data(data, sizes):
    """Raise FileError unless a `ResumableMixin` keeps attributes of these names and types."""
    matching = (cls for cls in _every_subclass(ResumableMixin) if _may_keep(cls, data, sizes))
    cls = next(matching, None)
    _require(cls is not None, f"No engine remembers {sorted(map(str, data))} of such shapes.")
    for name in set(data) & cls.kept_parts:
        _check_parts(name, data[name], sizes)


def _may_keep(cls, data, sizes):
    """Return whether objects of a class keep attributes of these names and types.

    Attributes for which the class has a default may be missing.
    """
    names = {*cls.kept_attributes, *cls.kept_parts}
    has_legal_names = set(data) <= names and all(hasattr(cls, name) for name in names - set(data))
    return has_legal_names and all(
        _follows_hint(data[name], cls.kept_attributes[name], sizes)
        for name in set(data) & set(cls.kept_attributes)
    )


def _follows_hint(value, hint, sizes):
    """Return whether a value is of the type ``hint`` and follows the rules in its metadata."""
    rules = getattr(hint, "__metadata__", ())
    return conforms(value, hint) and all(RULES[rule](value, *sizes) for rule in rules)


def _every_subclass(cls):
    """Yield the direct and indirect subclasses of a class."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _every_subclass(subclass)
